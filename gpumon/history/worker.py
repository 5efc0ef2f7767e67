"""A thread that runs calls one after another, so that reading a past never holds up the event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

_PAUSE_S: Final = 0.002
"""Seconds between two steps of what nobody waits for: the screen's thread gets its turn."""
_MOST_JOIN_S: Final = 0.3
"""Longest wait for all threads when the program ends: SQLite in a thread does not survive the interpreter's end, and a
disk that hangs must not hold it up."""
_THREADS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
"""Threads of all workers."""

T = TypeVar("T")


@atexit.register
def _join_threads() -> None:
    """Wait for the threads of all workers. The main thread is over by now, so that none begins another step."""
    end_s = time.monotonic() + _MOST_JOIN_S
    for thread in list(_THREADS):
        thread.join(max(0.0, end_s - time.monotonic()))


class Worker:
    """Runs calls in their order. The thread is there while there is something to do, and ends with the main thread."""

    def __init__(self, idle_step: Callable[[], bool] = lambda: False) -> None:
        """`idle_step` is called while nothing is asked for, as long as it returns True."""
        self._idle_step = idle_step
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._running = False

    async def call(self, function: Callable[[], T]) -> T:
        """Result of `function`, which runs in the thread, or its exception."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        future = self.post(function)
        future.add_done_callback(wake)
        try:
            await done.wait()
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def post(self, function: Callable[[], T]) -> Future[T]:
        """Have `function` run in the thread, behind what was asked for before; returns at once."""
        future: Future[T] = Future()
        with self._lock:
            self._calls.append((function, future))
            if not self._running:
                self._running = True
                thread = threading.Thread(target=self._run, name="timeline", daemon=True)
                _THREADS.add(thread)
                thread.start()
        return future

    def _run(self) -> None:
        """Run calls and idle steps until there are none; in the thread, which then ends."""
        while True:
            call = None
            with self._lock:
                if self._calls:
                    call = self._calls.popleft()
            if call is not None:
                function, future = call
                _run_call(function, future)
            elif not self._do_idle_step():
                with self._lock:
                    if not self._calls:
                        self._running = False
                        return
            else:
                time.sleep(_PAUSE_S)

    def _do_idle_step(self) -> bool:
        """Do one idle step; returns whether there may be more."""
        try:
            return threading.main_thread().is_alive() and self._idle_step()
        except Exception:  # whoever asks for what failed gets the exception then
            return False


def _run_call(function: Callable[[], Any], future: Future[Any]) -> None:
    """Give a future the result of a function, or its exception; nothing where nobody waits for it any more."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # handed to the one who asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)
