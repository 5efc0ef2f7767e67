"""Bounds of time on what is awaited: `timeout` on a block, `result_within` on a call.

`asyncio.wait_for` is not used: before Python 3.12 it loses a cancellation that comes just as its call ends (CPython
issue 86296), so that a poll which was stopped went on for ever.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["result_within", "timeout"]

Result = TypeVar("Result")

_CLEANUP_S = 0.1
"""Most seconds that the caller waits for cancelled work to close what it opened. A choice, below the 0.25 s that a
program which quits waits for (`collector.STOP_S`)."""
_AGAIN_S = 1.0
"""Seconds after which work that still goes on is cancelled again: it has lost its cancellation. Not sooner, as that
would cut off the closing of what it opened."""


async def result_within(seconds: float, work: Coroutine[Any, Any, Result] | asyncio.Task[Result]) -> Result:
    """The result of the work, or its error. Raises TimeoutError if it takes longer, or if it cancels itself.

    The work is done in a task of its own, so that cancelling the caller always ends the caller: before Python 3.11,
    anyio (through which httpx waits) loses a cancellation now and then, and a loop of polls would go on for ever.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_mark_retrieved)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done or task.cancelled():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        await _end(task)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait a moment for its end."""
    if not task.cancel():
        return
    await asyncio.wait({task}, timeout=_CLEANUP_S)
    _cancel_later(task)


def _cancel_later(task: asyncio.Task[Any]) -> None:
    """See to it that a task that has not ended is cancelled again, each `_AGAIN_S` until it ends."""
    if not task.done():
        asyncio.get_running_loop().call_later(_AGAIN_S, _cancel_again, task)


def _cancel_again(task: asyncio.Task[Any]) -> None:
    """Cancel a task if it still goes on."""
    task.cancel()
    _cancel_later(task)


def _mark_retrieved(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting the error of a task that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
