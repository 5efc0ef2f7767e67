"""The terminal driver: Textual's, made cheap while nobody types, and made to survive what terminals do."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import sys
import termios
import time
from queue import Empty
from types import FrameType
from typing import Any, Final

from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message

from gpumon.tui.flow import QUERY, Flow
from gpumon.tui.output import Answers, Keys, Output
from gpumon.tui.pacing import Pacer, bytes_of
from gpumon.tui.terminal import MOST_CELLS, reports_mouse, terminal_size

_ALERT_S: Final = 0.5
"""After a key, the time in which the parser is asked whether a lone Escape was all."""
_ALERT_PERIOD_S: Final = 0.025
_LEAVE_S: Final = 0.05
"""On leaving, the time in which a terminal takes what is queued, unless it takes nothing."""
_RESTORE_S: Final = 1.0
"""Longest wait for the terminal to take what restores it."""
_ANSWERS_S: Final = 0.5
"""On leaving, the longest wait for answers that are on their way: the shell would take them for keys."""
_FULL: Final = 6
"""Texts that the terminal did not take yet, from which on its pipe is full."""
_IDLE_MOVES: Final = re.compile(r"(?:\x1b\[\d+;\d+H\n?)+(?=\x1b\[\d+;\d+H)")
"""Cursor moves to lines of which nothing is painted."""


class TerminalDriver(LinuxDriver):
    """Draws on stdout (Textual: stderr); leaves quietly when the terminal has gone; comes back from any stop."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse and reports_mouse(os.environ), size=size)
        stream = sys.__stdout__ or sys.__stderr__
        assert stream is not None, "no terminal"
        self._file: Any = Output(stream, self._terminal_gone)
        self._output: Output = self._file
        self._wake_pipe: tuple[int, ...] = ()
        self._queued = 0
        self._behind = False
        self._leaving = False
        self._asking = False
        self.pacer = Pacer(app, self._ask)
        self.pacer.backlog = self._full

    def start_application_mode(self) -> None:
        """Also after each stop."""
        for descriptor in self._wake_pipe:
            os.close(descriptor)
        self._wake_pipe = os.pipe()
        self._leaving = False
        self.pacer.flow = Flow()
        self.pacer.drop()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._asking = True
        self._ask()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Asked at the start, and at each change of the size."""
        self.pacer.damaged()
        return terminal_size()

    def process_message(self, message: Message) -> None:
        """A terminal that tells its size by itself is cut to what is painted, too."""
        if isinstance(message, events.Resize) and max(message.size) > MOST_CELLS:
            size = Size(min(message.size.width, MOST_CELLS), min(message.size.height, MOST_CELLS))
            message = events.Resize(size, size)
        super().process_message(message)

    def write(self, data: str) -> None:
        """Queue for the terminal. A terminal that takes nothing loses frames, never the event loop's time."""
        writer = self._writer_thread
        if writer is None:
            return
        if self._behind and writer._queue.empty():
            self._behind = False
            self._app.call_later(self._app.refresh, layout=True)
        if writer._queue.full():
            self._behind = True
        if self._leaving or not self._behind:
            if self.pacer.refused:
                data = _IDLE_MOVES.sub("", data)
            if self._asking and self.pacer.flow.idle(now_s := time.monotonic()):
                self.pacer.flow.asked(now_s)
                data = QUERY + data
            self.pacer.wrote(bytes_of(data))
            self._queued += 1
            writer.write(data)

    def flush(self) -> None:
        """Textual: all of a frame was written."""
        if self._asking and self.pacer.flow.worth_asking(time.monotonic()):
            self._ask()

    def _ask(self) -> None:
        """Ask the terminal to answer when it has got this far."""
        writer = self._writer_thread
        if self._asking and writer is not None and not writer._queue.full():
            self._queued += 1
            self.pacer.flow.asked(time.monotonic())
            writer.write(QUERY)

    def _full(self) -> bool:
        """Whether the terminal takes nothing at the moment."""
        return self._queued - self._output.taken > _FULL

    def stop_application_mode(self) -> None:
        """Restore the terminal, ahead of frames that it did not take yet."""
        writer = self._writer_thread
        if writer is not None and not self._all_taken(_LEAVE_S):
            self._output.abandoned = True
            with contextlib.suppress(Empty):
                while True:
                    writer._queue.get_nowait()
                    self._queued -= 1
            with contextlib.suppress(termios.error):
                termios.tcflush(writer.fileno(), termios.TCOFLUSH)
            self._all_taken(_LEAVE_S)
            self._output.abandoned = False
        self._behind = False
        self._leaving = True
        super().stop_application_mode()

    def close(self) -> None:
        """End the writer's thread; one that a terminal holds for ever is left to the end of the program."""
        if self._all_taken(_RESTORE_S):
            super().close()

    def _all_taken(self, within_s: float) -> bool:
        """Whether the terminal took all that was queued, within some seconds."""
        end_s = time.monotonic() + within_s
        while self._output.taken < self._queued:
            if time.monotonic() > end_s:
                return False
            time.sleep(0.002)
        return True

    def _terminal_gone(self) -> None:
        """Called from the writer's or the reader's thread."""
        loop = self._app._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._app.exit)

    def _enable_mouse_support(self) -> None:
        """Buttons and wheel only: Textual asks for every motion, which costs bytes and CPU on the way in."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""

    def _run_input_thread(self) -> None:
        """A hang-up ends the input; it is no error of the program."""
        try:
            self.run_input_thread()
        except OSError:
            self._terminal_gone()

    def run_input_thread(self) -> None:
        """Wait for keys without waking up in between (Textual: ten times a second)."""
        keys, answers = Keys(self._debug), Answers()
        alert_until_s = 0.0
        woken = self._wake_pipe[0]
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                alert = time.monotonic() < alert_until_s
                ready = {key.fd for key, _ in selector.select(answers.wait_s or _ALERT_PERIOD_S if alert else None)}
                if woken in ready:
                    return
                data = None
                if self.fileno in ready:
                    data = os.read(self.fileno, 4096)
                    if not data:
                        raise OSError("the terminal was closed")
                if self._take(data, keys, answers):
                    alert_until_s = time.monotonic() + _ALERT_S

    def _take(self, data: bytes | None, keys: Keys, answers: Answers) -> bool:
        """What the terminal sent: keys, and its answers (None: nothing for a while). Returns whether it was a key."""
        now_s, pacer = time.monotonic(), self.pacer
        rest, answered = answers.take(data, due=pacer.flow.due(now_s))
        for _ in range(answered):
            pacer.flow.answered(now_s)
        if answered and pacer.waiting and self._app._loop is not None:
            self._app._loop.call_soon_threadsafe(pacer.wake)
        came = keys.events(rest)
        if any(isinstance(event, events.InputEvent) for event in came):
            pacer.keyed()
        elif answers.wait_s or (rest and not came):
            pacer.keyed(undecided=True)
        for event in came:
            self.process_message(event)
        return bool(rest or answers.wait_s)

    def disable_input(self) -> None:
        """Stop reading keys, at once but for answers that are on their way."""
        self._asking = False
        end_s = time.monotonic() + _ANSWERS_S
        while (now_s := time.monotonic()) < end_s and self.pacer.flow.due(now_s):
            time.sleep(0.002)
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._wake_pipe[1], b"\0")
        super().disable_input()

    def _sigcont_application(self, *arguments: int | FrameType | None) -> None:
        """Continued: after SIGTSTP the terminal was restored; after SIGSTOP a shell may have changed its modes."""
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application(*arguments)
