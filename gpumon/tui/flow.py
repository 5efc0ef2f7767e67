"""How much is on its way to the terminal, and how much more may follow: learnt from the terminal's own answers.

The buffers between here and the glass (the kernel's, those of ssh and of sshd) hold seconds of a slow line, and none
of them tells how full it is. But each terminal answers `QUERY` when it has got that far.
"""

from __future__ import annotations

import math
from collections import deque
from threading import Lock
from typing import Final, NamedTuple

QUERY: Final = "\x1b[5n"
"""DSR 5, "are you all right?" (ECMA-48 8.3.35)."""
ANSWER: Final = b"\x1b[0n"
"""What every terminal says to it. No key sends this."""

TARGET_S: Final = 0.08
"""A line may be busy for this long with what is on its way; a key's answer has to stand behind it."""
UNLIMITED: Final = 16_384
"""Bytes in that time from which on a line is as good as infinitely fast."""
AT_FIRST: Final = 8192
"""Bytes that may be on their way before anything is known of the line: a first paint."""
FIRST_S: Final = 0.25
"""A terminal that has not answered for this long is taken for a fast one, until it does answer."""
TELLING: Final = 1024
"""Bytes that tell how fast a line is, however fast it is."""
LEAST: Final = 256
"""Bytes that may be on their way on the slowest of lines: some line of the screen has to fit."""
HELD_S: Final = 0.3
"""An answer that is this much later than usual: the line is not as fast as it was."""
LOST_S: Final = 1.0
"""Answers that are this late although a later question was answered were never given."""
SILENT_S: Final = 2.0
"""A terminal that never answered for this long does not know the question."""
REPEAT_S: Final = (2.0, 30.0)
"""A terminal that does not answer any more is asked again: first and longest interval."""


class _Mark(NamedTuple):
    """A question that was asked, and how many bytes had been written by then."""

    asked_s: float
    total: int


class Flow:
    """Told of writes by the event loop, of answers by the input's thread. Seconds are those of one monotonic clock."""

    def __init__(self) -> None:
        self.answers: bool | None = None
        """Whether the terminal answers; None: not known yet."""
        self.window: float = AT_FIRST
        """Bytes that may be on their way."""
        self._lock = Lock()
        self._marks: deque[_Mark] = deque()
        self._written = 0
        self._taken = 0
        self._asked_s = math.inf
        self._answered_s = -math.inf
        self._repeat_s = REPEAT_S[0]
        self._repeated_s = math.inf
        self._round_s = 0.0

    @property
    def on_the_way(self) -> int:
        """Bytes of which it is not known that the terminal took them."""
        return self._written - self._taken

    def wrote(self, size: int) -> None:
        """So many bytes were written."""
        self._written += size

    def idle(self, now_s: float) -> bool:
        """Whether a question ahead of what is to be written would tell when the line begins to be busy with it."""
        return self._may_answer(now_s) and not self._marks

    def worth_asking(self, now_s: float) -> bool:
        """Whether a question behind all that was written would tell something."""
        with self._lock:
            return self._may_answer(now_s) and (not self._marks or self._marks[-1].total < self._written)

    def _may_answer(self, now_s: float) -> bool:
        if self.answers is None and now_s - self._asked_s > SILENT_S:
            self.answers = False
        return self.answers is not False

    def asked(self, now_s: float) -> None:
        """A question was written behind all that was written so far."""
        with self._lock:
            self._asked_s = min(self._asked_s, now_s)
            self._marks.append(_Mark(now_s, self._written))

    def answered(self, now_s: float) -> None:
        """An answer came."""
        with self._lock:
            self.answers = True
            self._repeat_s = REPEAT_S[0]
            if self._marks:
                mark = self._marks.popleft()
                size = mark.total - self._taken
                self._taken = mark.total
                self._learn(size, now_s - max(mark.asked_s, self._answered_s))
                if not size:
                    self._round_s = now_s - mark.asked_s
            self._answered_s = now_s

    def _learn(self, size: int, busy_s: float) -> None:
        """The line needed so long for so many bytes."""
        fits = size * TARGET_S / max(busy_s, 1e-3)
        if busy_s > TARGET_S and size:
            self.window = max(LEAST, fits)
        elif size >= min(self.window / 2, TELLING) and fits > self.window:
            self.window = min(4 * self.window, fits)
            if self.window >= UNLIMITED:
                self.window = math.inf

    def room(self, now_s: float) -> float:
        """Bytes that may be written now; infinite on a fast line, and where the terminal does not answer."""
        with self._lock:
            if self.answers is False or (self.answers is None and now_s - self._asked_s > FIRST_S):
                return math.inf
            if not self._marks:
                return self.window
            if now_s - LOST_S > self._answered_s > self._repeated_s >= self._marks[-1].asked_s:
                self._forget()
                return self.window
            if math.isinf(self.window):
                return 0.0 if self._late(now_s) else math.inf
            return max(0.0, self.window - self.on_the_way)

    def wants_repeat(self, now_s: float) -> bool:
        """Whether the terminal stopped answering, and it is time to ask again: it may have lost what it was asked."""
        with self._lock:
            if not self.answers or not self._marks or now_s - self._marks[-1].asked_s < self._repeat_s:
                return False
            self._repeat_s = min(2 * self._repeat_s, REPEAT_S[1])
            self._repeated_s = now_s
            return True

    def due(self, now_s: float) -> bool:
        """Whether an answer is on its way."""
        with self._lock:
            return bool(self.answers and self._marks) and not self._late(now_s)

    def _forget(self) -> None:
        self._marks.clear()
        self._taken = self._written

    def _late(self, now_s: float) -> bool:
        return now_s - max(self._marks[0].asked_s, self._answered_s) > HELD_S + 2 * self._round_s
