"""Who paints when on a slow line: lines of boards wait here, unpainted, until the terminal has room for them.

Nothing is queued as bytes. A line that changes while it waits is painted once, as it is then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from textual.app import App
from textual.geometry import Region, Size

from gpumon.tui.flow import Flow

KEYED_S: Final = 0.12
"""What changes so soon after a key is its answer, and goes first."""
UNDECIDED_S: Final = 0.15
"""Time in which it turns out whether an Escape was all."""
AGAIN_S: Final = 0.5
"""What is painted again so soon, with no key in between, is not damaged."""
_RETRY_S: Final = 0.25
_GRANTED_S: Final = 0.1
"""What a board was allowed to paint and did not by then, it does not want to paint any more."""


class Waiting(Protocol):
    """A board, as seen from here."""

    @property
    def visible_now(self) -> bool:
        """Whether its lines are on the screen."""

    @property
    def region(self) -> Region:
        """Its place on the screen."""

    def cost(self, y: int) -> int:
        """Bytes that it takes to bring a line up to date."""

    def unknown(self, y: int) -> bool:
        """Whether something else may stand in the place of a line, so that it has to be written whole."""

    def repaint(self, lines: Iterable[int]) -> None:
        """Ask Textual to paint the lines."""


class Pacer:
    """Grants room on the line, first to the answers of keys."""

    def __init__(self, app: App[Any], ask: Callable[[], None]) -> None:
        self.flow = Flow()
        self.backlog: Callable[[], bool] = lambda: False
        """Whether the terminal's pipe is full."""
        self._app = app
        self._ask = ask
        self._waiting: dict[Waiting, dict[int, tuple[float, float]]] = {}
        """For each line: when the key was pressed that it answers (0: none), and since when it waits."""
        self._keyed_s = -math.inf
        self._undecided_s = -math.inf
        self._pressed = False
        self._serving = False
        self._retrying = False
        self._granted = 0
        self._granted_s = -math.inf
        self._spent = 0
        self._painted: dict[int, tuple[object, float]] = {}
        self._size = Size()
        self.refused = False
        """Whether some line of what is being written was left out."""

    @property
    def waiting(self) -> bool:
        """Whether some board waits."""
        return bool(self._waiting)

    def free(self) -> bool:
        """Whether everything may be painted at once."""
        return not self.backlog() and math.isinf(self.flow.room(time.monotonic()))

    def keyed(self, *, undecided: bool = False) -> None:
        """A key was pressed; or it may have been, as what came begins like one: the line is kept free for it."""
        now_s = time.monotonic()
        if undecided:
            self._undecided_s = now_s
        else:
            self._keyed_s, self._undecided_s = now_s, -math.inf
            self._pressed = True
            self._painted.clear()

    def take(self, text: str) -> bool:
        """Whether the text of a line may go into what is being written to the terminal."""
        if self.free():
            return True
        size = bytes_of(text)
        if self._granted >= size:
            self._granted -= size
        elif self.backlog() or (size > self._room(time.monotonic()) and (self._spent or self.flow.on_the_way)):
            return False
        self._spent += size
        return True

    def painted(self, row: int, slot: object) -> None:
        """A line went out whole to a row of the screen."""
        self._painted[row] = (slot, time.monotonic())

    def just_painted(self, row: int, slot: object, size: Size) -> bool:
        """Whether the row of a screen of some size still shows what the slot thinks, although Textual wants it whole.

        For one key Textual often lays out twice or three times, and paints everything each time.
        """
        if size != self._size:
            self._size = size
            self._painted.clear()
        by, at_s = self._painted.get(row, (None, 0.0))
        return by is slot and time.monotonic() - at_s < AGAIN_S and not self.free()

    def damaged(self) -> None:
        """The terminal may have lost some of what it showed, or moved it."""
        self._painted.clear()

    def wrote(self, size: int) -> None:
        """So many bytes, all that was taken among them, are on their way."""
        self.flow.wrote(size)
        self._spent = 0
        self.refused = False

    def wait(self, board: Waiting, lines: Iterable[int]) -> None:
        """Paint these lines as soon as there is room."""
        now_s = time.monotonic()
        key_s = self._keyed_s if now_s - self._keyed_s < KEYED_S else 0.0
        since = self._waiting.setdefault(board, {})
        for y in lines:
            other_s, since_s = since.get(y, (0.0, now_s))
            since[y] = (max(key_s, other_s), since_s)
        self.wake()

    def refuse(self, board: Waiting, y: int) -> None:
        """Leave a line out of what is being written."""
        self.refused = True
        self.wait(board, (y,))

    def wake(self) -> None:
        """There may be room: see to it as soon as what is being done is done."""
        if self._waiting and not self._serving:
            self._serving = True
            self._app.call_later(self._serve)

    def drop(self) -> None:
        """Nothing waits any more: everything is painted anew."""
        self._waiting.clear()
        self._painted.clear()
        self._granted = self._spent = 0

    def _room(self, now_s: float) -> float:
        return self.flow.room(now_s) - self._spent

    def _serve(self) -> None:
        self._serving = False
        now_s = time.monotonic()
        if now_s - self._granted_s > _GRANTED_S:
            self._granted = 0
        if not self.backlog() and now_s - self._undecided_s > UNDECIDED_S:
            for board, lines in self._chosen(now_s).items():
                board.repaint(lines)
        if self._waiting and not self._retrying:
            self._retrying = True
            self._app.set_timer(_RETRY_S, self._retry)
        if self.flow.wants_repeat(now_s) and not self.backlog():
            self._ask()

    def _retry(self) -> None:
        self._retrying = False
        self.wake()

    def _chosen(self, now_s: float) -> dict[Waiting, list[int]]:
        """Lines that fit; a line that is wanted for a key may go behind what is on its way already."""
        room = self._room(now_s) - self._granted
        idle = not self.flow.on_the_way and not self._granted
        extra = self.flow.window / 2 if self._pressed and not idle and not math.isinf(room) else 0.0
        chosen: dict[Waiting, list[int]] = {}
        for keyed, board, y in self._in_order():
            size = board.cost(y)
            if size > room + (extra if keyed else 0) and not idle:
                break
            idle = False
            room -= size
            del self._waiting[board][y]
            if not self._waiting[board]:
                del self._waiting[board]
            self._pressed = self._pressed and not keyed
            if size:
                chosen.setdefault(board, []).append(y)
                self._granted += size
                self._granted_s = now_s
        return chosen

    def _in_order(self) -> list[tuple[bool, Waiting, int]]:
        """What answers the last key goes first: small changes, then whole lines top down; then what waits longest.

        But the clock and its like, boards of one line, cost next to nothing and never wait.
        """
        for board in [board for board in self._waiting if not board.visible_now]:
            del self._waiting[board]
        ranked = [
            (*self._rank(board, y, key_s, since_s), board.region.y + y, at, y, board, key_s > 0)
            for at, (board, lines) in enumerate(self._waiting.items())
            for y, (key_s, since_s) in lines.items()
        ]
        return [(keyed, board, y) for *_, y, board, keyed in sorted(ranked, key=lambda one: one[:6])]

    def _rank(self, board: Waiting, y: int, key_s: float, since_s: float) -> tuple[bool, float, float]:
        whole = board.unknown(y)
        then = since_s if not key_s else 0.0 if whole else -1 / len(self._waiting[board])
        return whole or board.region.height > 1, -key_s, then


def bytes_of(text: str) -> int:
    """Its size on the line."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
