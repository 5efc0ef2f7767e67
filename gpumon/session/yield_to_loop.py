"""Gives way to the event loop during long work on it, so that keys never wait for that."""

from __future__ import annotations

import asyncio
import time
from typing import Final

_SLICE_S: Final = 0.005
"""Seconds of work after which the event loop gets its turn."""
_ROUNDS: Final = 10
"""Rounds of the event loop in a turn: a key passes through up to so many callbacks before its line is redrawn."""


class YieldToLoop:
    """Interrupts long work on the event loop, so that what waits there gets its turn."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        """When it gave way last."""

    async def if_due(self) -> None:
        """Give way to the event loop, if the work has gone on for `_SLICE_S` since the last time."""
        if time.monotonic() - self._since_s < _SLICE_S:
            return
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        self._since_s = time.monotonic()
