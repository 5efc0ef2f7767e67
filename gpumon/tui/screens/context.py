"""The context that the parts of a screen share: settings, files, session, and messages by which they ask for things."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from textual.message import Message
from textual.worker import WorkType

from gpumon.config.themes import Theme
from gpumon.tui.control import Collector, Control, Files, Playback, Timeline
from gpumon.tui.palette import Palette
from gpumon.tui.view import View

if TYPE_CHECKING:
    from gpumon.tui.screens.questions import Question


class Timed(Protocol):
    """A moment of one machine, or of a fleet."""

    @property
    def wall_s(self) -> float:
        """When it was (Unix time)."""


S = TypeVar("S", bound=Timed)
"""Snapshot on a screen: a machine's `Snapshot`, or a fleet's `FleetMoment`."""


class KeysChanged(Message):
    """Another key may do something now: the line of keys has to name it."""


class ChoicesChanged(Message):
    """There are other choices by now, for an open question or the palette."""


class SettingsChanged(Message):
    """Other settings are in effect: keys, cadence, and everything that is painted."""


class ThemeRead(Message):
    """A theme was read, and is to be shown."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.theme = theme


class WorkWanted(Message):
    """Something is to be worked on beside the screen, in place of what is left of the same group."""

    def __init__(self, group: str, work: WorkType[None]) -> None:
        super().__init__()
        self.group = group
        self.work = work


class ScreenContext:
    """Everything that the body, the pages and the panels of a screen know of it.

    They post a message where they want something of the screen. Notices and questions are for the key that was typed,
    before the next one: these are functions, which the screen sets.
    """

    post_message: Callable[[Message], bool]
    say: Callable[[str], None]
    """Shows a notice until the next key, or for some seconds."""
    warn: Callable[[str], None]
    """Shows a notice until the next key."""
    ask: Callable[[Question], None]
    """Asks at the foot of the screen, if there is room."""

    def __init__(
        self,
        control: Collector,
        files: Files | None,
        palette: Palette,
        view: View,
        unix_time: Callable[[], float],
        monotonic: Callable[[], float],
        machine: Control | None = None,
    ) -> None:
        """`control`: the session behind the screen; `machine`: the same where it is of one machine, with its past.
        `files`: None where nothing is read or written. `unix_time`: gives the Unix time now. `monotonic`: the clock by
        which the age of what is shown is told."""
        self.control = control
        self.files = files
        self.palette = palette
        self.view = view
        self.unix_time = unix_time
        self.monotonic = monotonic
        self._machine = machine
        self.gone_back = False
        """Whether a moment is shown that the user went to."""

    @property
    def playback(self) -> Playback | None:
        """The recording that is shown; None where this is no replay."""
        return None if self._machine is None else self._machine.playback

    @property
    def timeline(self) -> Timeline | None:
        """The past that is kept of one machine; None without one."""
        return None if self._machine is None else self._machine.timeline
