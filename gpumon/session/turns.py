"""Turns of the event loop during long work, so that keys never wait for it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

_SLICE_S: Final = 0.005
"""The event loop gets its turn after so long."""
ROUNDS: Final = 10
"""Rounds of the event loop in a turn: a key passes through up to so many callbacks before its line is redrawn."""


class Turns:
    """Lets the event loop have its turn in long work."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    async def give(self) -> None:
        """Give way, if `_SLICE_S` has passed since the last time."""
        if time.monotonic() - self._since_s < _SLICE_S:
            return
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        self._since_s = time.monotonic()
