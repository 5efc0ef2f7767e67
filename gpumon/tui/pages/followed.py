"""A page that follows something of an engine's log while it is open, and forgets it when it is closed."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from textual.worker import WorkType

from gpumon.readings.format import cells
from gpumon.readings.text import clean
from gpumon.tui.keys import keys_of_scope
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_POLL_S: Final = 1.0
"""Seconds between two looks at what was added."""


class FollowedRead(Protocol):
    """Result of a read, as every such page needs it."""

    @property
    def fault(self) -> str:
        """Why it cannot be read; empty where it can."""

    @property
    def command(self) -> str:
        """Command that shows the log."""

    @property
    def logs(self) -> int:
        """How many logs the engine has."""


ReadT = TypeVar("ReadT", bound=FollowedRead)
ReadT_co = TypeVar("ReadT_co", bound=FollowedRead, covariant=True)


class FollowedSource(Protocol[ReadT_co]):
    """Something that is read on again and again."""

    async def read(self) -> ReadT_co | None:
        """The newest result; None while an earlier read has not come back."""

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of the engine's logs from now on."""


class FollowedPage(Pane, Generic[ReadT]):
    """Reads on while it is shown. Nothing of it stays once the page is closed."""

    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True
    PRIVATE: ClassVar[bool] = True
    SCOPE: ClassVar[str]
    """Scope of the page's keys in the keymap."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._engine_name = ""
        self._source: FollowedSource[ReadT] | None = None
        self._shown: ReadT | None = None
        self._reading: FollowedSource[ReadT] | None = None
        """Source of the unfinished read: one that hangs holds up no other."""

    def look_at(self, name: str, source: FollowedSource[ReadT]) -> None:
        """Show another engine's."""
        self._engine_name = clean(name)
        self._source = source
        self._shown = None
        self._top = 0
        self.begin()
        self.search.begin("")
        self._read_soon()
        self.update()

    def drop_content(self) -> None:
        """Forget what was read."""
        self._source = None
        self._shown = None
        self.begin()

    def begin(self) -> None:
        """Forget what was made of what was read."""
        raise NotImplementedError

    def arrived(self, reading: ReadT) -> None:
        """Take what was read by now, before it is painted."""

    def broken(self, fault: str) -> ReadT:
        """The result that stands for a read that failed."""
        raise NotImplementedError

    def run(self, command: str) -> None:
        """One of the commands of the page."""
        raise NotImplementedError

    def take(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """The keys of the page itself."""
        command = keys_of_scope(self.view.keymap, self.SCOPE).get(key)
        if command is None:
            return False
        self.run(command)
        return True

    def on_mount(self) -> None:
        """Look what is added while the page is shown."""
        self.set_interval(_POLL_S, self._read_soon)

    def _read_soon(self) -> None:
        source = self._source
        if source is None or source is self._reading:
            return
        self._reading = source
        work: WorkType[None] = partial(self._read, source)
        self.run_worker(work, group="log")

    async def _read(self, source: FollowedSource[ReadT]) -> None:
        """Read on; what comes of something that is not looked at any more is dropped."""
        try:
            reading = await source.read()
        except Exception as error:  # whatever went wrong costs the log, not the screen
            reading = self.broken(clean(f"the log cannot be read: {type(error).__name__}: {error}"))
        finally:
            if source is self._reading:
                self._reading = None
        if reading is None or source is not self._source:
            return
        self._shown = reading
        self.arrived(reading)
        self.update()

    def step_aside(self, step: int) -> bool:
        """Another log of the same engine: standard error beside standard output."""
        if self._source is None or self._shown is None or self._shown.logs < 2:
            return False
        self._source.turn(step)
        self._read_soon()
        return True


def place_row(place: str, remark: str, room: int) -> Row:
    """The place of a log in so many cells, of a longer one its end, and a remark behind it."""
    if cells(place) > room:
        place = f"…{place[1 - room :]}"  # the end of a path says most
    return ((f" {place}", "strong"), (f"  {remark}", "muted"))


def fault_rows(reading: FollowedRead, width: int) -> list[Row]:
    """Why nothing can be read, and the command that shows it."""
    rows: list[Row] = list(wrap_line(reading.fault, width, "warn"))
    if reading.command:
        rows.append(())
        rows.append(((" this command shows it: ", "muted"), (reading.command, "strong")))
    return rows
