"""Waiting until the application has done all that it can do: what Textual's Pilot guesses from the processor's time.

Pilot sleeps for 20 ms at least three times per key and sends a message to each widget. An event loop tells it at once,
and on a busy machine, too: nothing is ready to run, no thread of the pool works, and no timer is about to end.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
import textual.app
import textual.pilot

SOON_S: Final = 0.05
"""A timer that ends within this time is waited for: Textual paints a frame up to 2/60 s after what changed it, for its
timer skips the beat that it has missed."""
MOST_WORK_S: Final = 1.0
"""An application that never rests is not waited for after so much time of the processor; a busy machine gives that
late, so that a limit in real time would end the wait in the middle of the work."""
MOST_S: Final = 10.0
"""Real seconds after which an application that does little, but again and again, is not waited for any longer."""
THREAD_S: Final = 0.002
"""Seconds between two looks at the threads."""


async def wait_until_idle(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """Return once nothing is to be done; the arguments are those of Textual's `wait_for_idle`."""
    loop: Any = asyncio.get_running_loop()
    end_s = loop.time() + max(max_sleep, MOST_S)
    worked_s = time.process_time() + MOST_WORK_S
    if min_sleep > 0:
        await asyncio.sleep(min_sleep)
    quiet_passes = 0
    while quiet_passes < 2 and loop.time() < end_s and time.process_time() < worked_s:
        await asyncio.sleep(0)
        if loop._ready:
            quiet_passes = 0
            continue
        pause_s = _pause_s(loop)
        if pause_s is None:
            quiet_passes += 1
        else:
            quiet_passes = 0
            await asyncio.sleep(pause_s)


def _pause_s(loop: Any) -> float | None:
    """Seconds until there may be something to do, or None if nothing is under way."""
    if _works(loop._default_executor):
        return THREAD_S
    now_s = loop.time()
    due = [timer.when() for timer in loop._scheduled if not timer.cancelled() and timer.when() < now_s + SOON_S]
    if not due:
        return None
    return max(0.0, min(due) - now_s)


def _works(pool: ThreadPoolExecutor | None) -> bool:
    """Whether a thread of the pool has something to do."""
    if pool is None:
        return False
    return pool._work_queue.qsize() > 0 or pool._idle_semaphore._value < len(pool._threads)


async def _screen_is_idle(_pilot: textual.pilot.Pilot[Any], _timeout: float = 30.0) -> bool:
    """Take the place of `Pilot._wait_for_screen`."""
    await wait_until_idle()
    return True


@pytest.fixture(autouse=True, scope="session")
def quick_pilot() -> Any:
    """Let every Pilot wait for the event loop instead of for time."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(textual.pilot, "wait_for_idle", wait_until_idle)
        patches.setattr(textual.app, "wait_for_idle", wait_until_idle)
        patches.setattr(textual.pilot.Pilot, "_wait_for_screen", _screen_is_idle)
        yield
