"""Time that passes only while nothing is to be done: what a cadence does in an hour, exactly, in a moment."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar
from unittest import mock

from gpumon.sources import offload

Found = TypeVar("Found")
GRACE_S = 0.001
"""How long the kernel is given to carry bytes over loopback before a wait is taken for over."""


_clock = time.monotonic
"""The clock of now: that of the machine, or one that is played."""


def _now_s() -> float:
    """Seconds of the clock of now."""
    return _clock()


# From before the program is imported on: a function that has `time.monotonic` as the default of an argument has it from
# its import, and would else go on with the clock of the test during which that was.
time.monotonic = _now_s


class Clock(selectors.DefaultSelector):
    """A monotonic clock that an event loop sets forward instead of waiting.

    It stands still while a thread works for the loop, so that a slow machine changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.offloaded = 0
        """Calls that are under way in the loop's thread pool."""
        self._before = set(threading.enumerate())
        self._hung = set(offload.under_way)
        """Calls that a test before this one has left behind."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; where nothing is, the time is over at once."""
        found = super().select(0)
        while not found and timeout != 0 and self._working():
            found = super().select(0.01)
        if not found and timeout != 0 and len(self.get_map()) > 1:
            found = super().select(GRACE_S)
        if not found and timeout is not None:
            self.now_s += timeout
        return found

    def _working(self) -> bool:
        """Whether a thread works: one of the pool, one that makes calls, or a daemon that was started since."""
        if self.offloaded > 0 or offload.under_way - self._hung:
            return True
        return any(
            one.daemon
            for one in threading.enumerate()
            if one not in self._before and not one.name.startswith(("asyncio", "offload"))
        )

    def time(self) -> float:
        """In seconds."""
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        """As `time.sleep`: the loop is blocked meanwhile."""
        self.now_s += seconds


class Loop(asyncio.SelectorEventLoop):
    """An event loop on such a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._offloaded_by = clock

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Found], *args: Any
    ) -> asyncio.Future[Found]:
        """As ever, and counted until it is done."""

        def ended(_: asyncio.Future[Found]) -> None:
            self._offloaded_by.offloaded -= 1

        future = super().run_in_executor(executor, func, *args)
        self._offloaded_by.offloaded += 1
        future.add_done_callback(ended)
        return future


def played(main: Coroutine[Any, Any, Found], clock: Clock) -> Found:
    """The result of `main`, in an event loop of its own for which, as for `time.monotonic`, `clock` is the time."""
    loop = Loop(clock)
    with mock.patch(f"{__name__}._clock", clock.time):
        try:
            return loop.run_until_complete(main)
        finally:
            loop.run_until_complete(end_all(asyncio.all_tasks(loop)))
            loop.close()


async def end_all(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks that are left, as `asyncio.run` does, so that they close what they have opened."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
