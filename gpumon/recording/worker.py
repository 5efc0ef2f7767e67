"""One daemon thread that does one thing after another, and uses the time between them."""

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

T = TypeVar("T")
BREATH_S: Final = 0.002
"""Between two steps of what nobody waits for: the screen's thread gets its turn."""
END_S: Final = 0.3
"""Longest wait for all threads when the program ends: SQLite in a thread does not survive the interpreter's end, and a
disk that hangs must not hold it up."""
_THREADS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """The main thread is over by now, so that no thread begins another step."""
    end_s = time.monotonic() + END_S
    for thread in list(_THREADS):
        thread.join(max(0.0, end_s - time.monotonic()))


class Worker:
    """Runs calls in their order. The thread is there while there is something to do, and ends with the main thread."""

    def __init__(self, idle: Callable[[], bool] = lambda: False) -> None:
        """`idle` is called while nothing is asked for, as long as it returns True: a small step at a time."""
        self._idle = idle
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._running = False

    async def call(self, function: Callable[[], T]) -> T:
        """What `function` gives or raises in the thread."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        future: Future[T] = Future()

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        future.add_done_callback(wake)
        with self._lock:
            self._calls.append((function, future))
            if not self._running:
                self._running = True
                thread = threading.Thread(target=self._run, name="timeline", daemon=True)
                _THREADS.add(thread)
                thread.start()
        try:
            await done.wait()
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def _run(self) -> None:
        while True:
            with self._lock:
                call = self._calls.popleft() if self._calls else None
            if call is not None:
                _answer(*call)
            elif not self._more():
                with self._lock:
                    if not self._calls:
                        self._running = False
                        return
            else:
                time.sleep(BREATH_S)

    def _more(self) -> bool:
        try:
            return threading.main_thread().is_alive() and self._idle()
        except Exception:  # whoever asks for that comes upon it again, and is told then
            return False


def _answer(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # handed to the one who asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)
