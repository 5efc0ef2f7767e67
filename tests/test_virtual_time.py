"""The tests' own clock stands still while a thread works, and goes on when it waits for the next call."""

from __future__ import annotations

import asyncio
import time

from gpumon.sources.offload import in_daemon_thread
from tests.virtual_time import Clock, played


def test_a_thread_that_waits_for_the_next_call_does_not_hold_the_clock_up() -> None:
    async def main() -> tuple[int, float]:
        before_s = time.monotonic()
        found = 0
        for _ in range(20):
            found += await in_daemon_thread(int, "1")
            await asyncio.sleep(60.0)
        return found, time.monotonic() - before_s

    assert played(main(), Clock()) == (20, 1200.0)
