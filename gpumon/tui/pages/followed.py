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
_LEAST_PLACE_CELLS: Final = 8
"""Cells that the place of a log gets however narrow the screen is."""


class FollowedReading(Protocol):
    """A log as far as it was read, as every such page needs it: a `LogView` or a `RequestView`."""

    @property
    def fault(self) -> str:
        """Why the log cannot be read; empty where it can."""

    @property
    def command(self) -> str:
        """Command that shows the log."""

    @property
    def logs(self) -> int:
        """Number of the engine's logs: standard output and standard error may be two."""


ReadT = TypeVar("ReadT", bound=FollowedReading)
ReadT_co = TypeVar("ReadT_co", bound=FollowedReading, covariant=True)


class FollowedSource(Protocol[ReadT_co]):
    """A log that is read again and again, each time from where the last read ended: the `EngineLog` or the
    `EngineRequests` of `tui.control`."""

    async def read(self) -> ReadT_co | None:
        """All that was read up to now; None while an earlier read has not come back."""

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of the engine's logs from now on."""


class FollowedPage(Pane, Generic[ReadT]):
    """Reads a log while it is shown. Nothing of it stays once the page is closed.

    `LogPage` and `RequestsPage` say what they make of a reading, and paint it.
    """

    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True
    PRIVATE: ClassVar[bool] = True
    SCOPE: ClassVar[str]
    """Scope of the page's keys in the keymap."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self.engine_name = ""
        self._source: FollowedSource[ReadT] | None = None
        self.reading: ReadT | None = None
        """The newest reading; None before the first."""
        self._unfinished_source: FollowedSource[ReadT] | None = None
        """Source whose read has not come back: it is not asked again, but another one is, even if this one hangs."""

    def look_at(self, name: str, source: FollowedSource[ReadT]) -> None:
        """Show the log of another engine, from now on."""
        self.engine_name = clean(name)
        self._source = source
        self.reading = None
        self.scrolling.top = 0
        self.reset()
        self.search.begin("")
        self._read_soon()
        self.update()

    def drop_content(self) -> None:
        """Forget what was read, and read no more."""
        self._source = None
        self.reading = None
        self.reset()

    def reset(self) -> None:
        """Forget the rows that were made of a log, and begin as a new page does."""
        raise NotImplementedError

    def take_reading(self, reading: ReadT) -> None:
        """Prepare for painting what was read."""

    def failed_reading(self, fault: str) -> ReadT:
        """The reading that stands for a read that failed; `fault`: why."""
        raise NotImplementedError

    def run(self, command: str) -> None:
        """Run a command of the page's own keys, by its id."""
        raise NotImplementedError

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Run the command of one of the page's own keys; returns whether the key has one."""
        command = keys_of_scope(self.view.keymap, self.SCOPE).get(key)
        if command is None:
            return False
        self.run(command)
        return True

    def on_mount(self) -> None:
        """Look for new lines at intervals, while there is a log to read."""
        self.set_interval(_POLL_S, self._read_soon)

    def _read_soon(self) -> None:
        """Read in a worker, unless the last read of this source has not come back."""
        source = self._source
        if source is None or source is self._unfinished_source:
            return
        self._unfinished_source = source
        work: WorkType[None] = partial(self._read, source)
        self.run_worker(work, group="log")

    async def _read(self, source: FollowedSource[ReadT]) -> None:
        """Read and paint; what comes of a source that is not shown any more is dropped."""
        try:
            reading = await source.read()
        except Exception as error:  # whatever went wrong costs the log, not the screen
            reading = self.failed_reading(clean(f"the log cannot be read: {type(error).__name__}: {error}"))
        finally:
            if source is self._unfinished_source:
                self._unfinished_source = None
        if reading is None or source is not self._source:
            return
        self.reading = reading
        self.take_reading(reading)
        self.update()

    def step_sideways(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) log of the same engine; returns whether it has another one."""
        if self._source is None or self.reading is None or self.reading.logs < 2:
            return False
        self._source.turn(step)
        self._read_soon()
        return True


def place_row(place: str, remark: str, width: int) -> Row:
    """The place of a log, cut at its beginning where it is too long, and a remark behind it."""
    room = max(_LEAST_PLACE_CELLS, width - cells(remark) - 3)  # blanks: one before the place, two before the remark
    if cells(place) > room:
        place = f"…{place[1 - room :]}"  # the end of a path says most
    return ((f" {place}", "strong"), (f"  {remark}", "muted"))


def fault_rows(reading: FollowedReading, width: int) -> list[Row]:
    """Why a log cannot be read, and the command that shows it all the same."""
    rows: list[Row] = list(wrap_line(reading.fault, width, "warn"))
    if reading.command:
        rows.append(())
        rows.append(((" this command shows it: ", "muted"), (reading.command, "strong")))
    return rows
