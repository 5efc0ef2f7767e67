"""The bar of a command that takes long: on a terminal's stderr, from the second second on, gone at the end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SHOWN_AFTER_S: Final = 2.0
_REFRESHES_PER_S: Final = 5.0
_MOST_SHARE: Final = 0.999
"""Share that is drawn at most: the clock of what is done stands still."""
_TOLD_EVERY: Final = 10_000
"""Lines of a file after which their share is told."""


class ProgressBar:
    """A bar with what is done and for how long; it pulses where the share that is done is not known.

    Use as a context manager. Where stderr is no terminal nothing is written.
    """

    def __init__(self, what: str) -> None:
        """`what`: what the command does, until `tell` says more."""
        self._what = what
        self._share: float | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(_SHOWN_AFTER_S, self._show)
        self._timer.daemon = True
        self._is_over = False
        """Whether the command has ended, perhaps while the bar was made."""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        """Wait for the time from which on it is shown."""
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _why: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Take the bar off the screen."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def tell(self, what: str, share: float) -> None:
        """Show what is done now, and the share of it that is done, from 0 to 1."""
        self._what = what
        self._share = share
        if self._bar is not None:
            self._renew()

    def lines(self, lines: Iterable[str], what: str, size: float) -> Iterator[str]:
        """The lines of a file of so many characters, 0 where that is not known, as they are read."""
        read = 0
        for number, line in enumerate(lines):
            read += len(line)
            if size and number % _TOLD_EVERY == 0:
                self.tell(what, min(1.0, read / size))
            yield line

    def _show(self) -> None:
        """Begin to draw; called by the timer, in a thread of its own."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        console = Console(file=sys.stderr)
        bar = Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES_PER_S)
        with self._lock:
            if self._is_over:
                return
            self._task = bar.add_task(self._what, total=None)
            self._bar = bar
            self._renew()
            bar.start()

    def _renew(self) -> None:
        """Draw what was told last."""
        bar = self._bar
        if bar is None or self._task is None:
            return
        if self._share is None:
            bar.update(self._task, description=self._what)
        else:
            bar.update(self._task, description=self._what, total=1.0, completed=min(self._share, _MOST_SHARE))
