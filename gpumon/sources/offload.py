"""Calls that may hang for ever (file systems, name servers, /proc): in daemon threads, which hold nothing up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Call in a thread of its own; the future has what comes of it, an error included.

    Not asyncio's own threads: `asyncio.run` joins those at its end, and their number is bounded, so that one which
    hangs holds up the exit and starves others. The caller sees to it that not ever more of them hang.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # handed to the one who asks for the result
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        threading.Thread(target=run, name=getattr(function, "__name__", "offload"), daemon=True).start()
    except RuntimeError as error:  # no more threads to be had
        future.set_exception(error)
    return future


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `function` gives or raises; one who is cancelled leaves the thread behind."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    future = daemon_thread(function, *args, **kwargs)
    future.add_done_callback(wake)
    await done.wait()
    return future.result()
