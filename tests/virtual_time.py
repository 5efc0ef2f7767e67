"""Time that passes only while nothing is to be done: what a cadence does in an hour, exactly, in a moment."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

Found = TypeVar("Found")


class Clock(selectors.DefaultSelector):
    """A monotonic clock that an event loop sets forward instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; where nothing is, the time is over at once."""
        found = super().select(0)
        if not found and timeout is not None:
            self.now_s += timeout
        return found

    def time(self) -> float:
        """In seconds."""
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        """As `time.sleep`: the loop is blocked meanwhile."""
        self.now_s += seconds


def played(main: Coroutine[Any, Any, Found], clock: Clock) -> Found:
    """The result of `main`, in an event loop of its own for which, as for `time.monotonic`, `clock` is the time."""
    loop = asyncio.SelectorEventLoop(clock)
    with mock.patch("time.monotonic", clock.time):
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()
