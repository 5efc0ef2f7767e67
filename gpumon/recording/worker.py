"""One daemon thread that does one thing after another, and uses the time between them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")
BREATH_S: Final = 0.002
"""Between two steps of what nobody waits for: the screen's thread gets its turn."""


class Worker:
    """Runs calls in their order. The thread is there while there is something to do; nobody waits for it at the end."""

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
                threading.Thread(target=self._run, name="timeline", daemon=True).start()
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
            return self._idle()
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
