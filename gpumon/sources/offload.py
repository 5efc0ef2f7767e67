"""Calls that may hang for ever (file systems, name servers, /proc): in daemon threads, which hold nothing up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from gpumon.deadline import timeout
from gpumon.sources.arena import share_arena

P = ParamSpec("P")
T = TypeVar("T")


MOST_IDLE: Final = 4
"""Threads that are kept for calls to come: many calls take less than the start of a thread."""


under_way: Final[set[Future[Any]]] = set()
"""Calls whose outcome was not told yet, those that hang among them."""
_Call = Callable[[], Callable[[], None]]
"""Makes a call, and returns what tells the outcome."""


class _Thread:
    """A daemon thread that makes one call after the other. One whose call hangs is not used again."""

    def __init__(self) -> None:
        """Start it. Raises RuntimeError where no more threads are to be had."""
        share_arena()
        self.calls: SimpleQueue[tuple[Future[Any], _Call]] = SimpleQueue()
        threading.Thread(target=self._work, name="offload", daemon=True).start()

    def _work(self) -> None:
        """Make the calls that come, one after the other; end where enough other threads wait."""
        goes_on = True
        while goes_on:
            future, call = self.calls.get()
            tell = call()
            goes_on = len(_idle) < MOST_IDLE
            if goes_on:
                _idle.append(self)  # before the outcome is told: who gets that may have the next call
            tell()
            under_way.discard(future)
            del future, call, tell  # with the outcome: nothing of it is kept while the thread waits


_idle: Final[list[_Thread]] = []
"""Threads that wait for a call."""
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of the threads


def daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Call in a daemon thread that does nothing else meanwhile; the future has what comes of it, an error included.

    Not asyncio's own threads: `asyncio.run` joins those at its end, and their number is bounded, so that one which
    hangs holds up the exit and starves others. The caller sees to it that not ever more of them hang.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> Callable[[], None]:
        """Make the call, and return what tells its outcome to the future."""
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # handed to the one who asks for the result
            return partial(future.set_exception, error)
        return partial(future.set_result, result)

    under_way.add(future)
    try:
        _waiting_thread().calls.put((future, run))
    except RuntimeError as error:  # no more threads to be had
        future.set_exception(error)
        under_way.discard(future)
    return future


def _waiting_thread() -> _Thread:
    """A thread without a call. Raises RuntimeError."""
    try:
        return _idle.pop()
    except IndexError:
        return _Thread()


async def finished(future: Future[Any], most_s: float) -> None:
    """Wait for a call of `daemon_thread`, at most so long."""
    with contextlib.suppress(Exception):  # its error is for the one who takes its result
        async with timeout(most_s):
            await asyncio.wrap_future(future)


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `function`, or its error; one who is cancelled leaves the thread behind."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    future = daemon_thread(function, *args, **kwargs)
    future.add_done_callback(wake)
    await done.wait()
    return future.result()
