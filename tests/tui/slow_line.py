"""The demo behind a line of 256 kbit/s: how long keys take, how old the screen is. `python -m tests.tui.slow_line`."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pyte

from tests.tui.pty_process import PtyProcess

GPUMON: Final = str(Path(sys.executable).with_name("gpumon"))
BYTES_PER_S: Final = 32_000.0
"""256 kbit/s."""
PIECE_S: Final = 0.01
"""The line carries a small piece this often."""


class Glass(pyte.Screen):
    """A terminal's screen."""

    def row(self, y: int) -> str:
        """One line of text (pyte's own `display` joins all of them, which takes longer than a piece of the line)."""
        cells = self.buffer[y]
        return "".join(cells[x].data for x in range(self.columns))


class SlowTerminal:
    """A program at the other end of a slow line, in a terminal that shows what has arrived so far."""

    def __init__(self, command: list[str], columns: int, lines: int, bytes_per_s: float, **environ: str) -> None:
        self.process = PtyProcess(command, columns, lines, **environ)
        self.glass = Glass(columns, lines)
        self.clock_ages_s: list[float] = []
        self.arrived = 0
        self._clock = ""
        self._stream = pyte.ByteStream(self.glass)
        self.bytes_per_s = bytes_per_s
        self._piece = bytes_per_s * PIECE_S
        self._credit = 0.0
        self._at_s = time.monotonic()

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float | None:
        """Carry pieces for some time, or until the screen shows it; returns after how many seconds it did."""
        began_s = time.monotonic()
        while (now_s := time.monotonic()) - began_s < seconds:
            if self._carry(now_s) and until is not None and until():
                return time.monotonic() - began_s
            time.sleep(max(0.0, self._at_s + PIECE_S - time.monotonic()))
        return None

    def _carry(self, now_s: float) -> bool:
        """Let one piece through. A line that was idle does not make up for it."""
        self._credit = min(self._credit + (now_s - self._at_s) / PIECE_S * self._piece, 3 * self._piece)
        self._at_s = now_s
        if self._credit < 1 or not select.select([self.process.master], [], [], 0)[0]:
            return False
        piece = os.read(self.process.master, int(self._credit))
        self._credit -= len(piece)
        self.arrived += len(piece)
        self.glass.dirty.clear()
        self._stream.feed(piece)
        if 0 in self.glass.dirty:
            self._note_clock()
        return True

    def _note_clock(self) -> None:
        """How old the time in the title is when it appears: 0 to 1 s on a fast line, by the moment of the tick."""
        shown = re.search(r"(\d\d):(\d\d):(\d\d) *$", self.glass.row(0))
        if shown is not None and shown.group() != self._clock and not paused(self.glass):
            self._clock = shown.group()
            now = datetime.now().astimezone()
            hours, minutes, seconds = map(int, shown.groups())
            then = now.replace(hour=hours, minute=minutes, second=seconds, microsecond=0)
            self.clock_ages_s.append((now - then).total_seconds() % 86400)

    def show_on(self, glass: Glass) -> None:
        """From now on, what arrives is shown on another, empty screen."""
        self.glass = glass
        self._stream = pyte.ByteStream(glass)

    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.glass.display)

    def press(self, key: bytes, answered: Callable[[Glass], bool], within_s: float = 60.0) -> tuple[float, float]:
        """Seconds from the key until its answer is on the screen, and how many of these the line was in use."""
        arrived = self.arrived
        self.process.type(key)
        took_s = self.run(within_s, lambda: answered(self.glass))
        if took_s is None:
            raise AssertionError(f"{key!r} was never answered:\n{self.text()}")
        return took_s, (self.arrived - arrived) / self.bytes_per_s


@contextlib.contextmanager
def slow_demo(bytes_per_s: float = BYTES_PER_S, columns: int = 120, lines: int = 40) -> Iterator[SlowTerminal]:
    """The installed demo, painted, at the end of a slow line."""
    terminal = SlowTerminal([GPUMON, "demo"], columns, lines, bytes_per_s)
    try:
        terminal.run(60.0, lambda: "quit" in terminal.glass.row(lines - 1))
        terminal.run(3.0)
        yield terminal
    finally:
        terminal.process.close()


def helps(glass: Glass) -> bool:
    """Whether the first line that the help page changes is its own."""
    return any("─ help" in glass.row(y) for y in (0, 1, 2))


def paused(glass: Glass) -> bool:
    """Whether the title says so."""
    return "PAUSED" in glass.row(0)


def changed_from(rows: list[str]) -> Callable[[Glass], bool]:
    """Whether one of the rows below the title is another one."""
    return lambda glass: any(glass.row(y) != row for y, row in enumerate(rows, 1))


def cursor(glass: Glass) -> int:
    """The row of the cursor."""
    return next((y for y in range(glass.lines) if glass.buffer[y][0].data == "▸"), -1)


def moved_from(row: int) -> Callable[[Glass], bool]:
    """Whether the cursor is on another row."""
    return lambda glass: cursor(glass) not in (row, -1)


KEYS: Final[tuple[tuple[bytes, Callable[[Glass], Callable[[Glass], bool]]], ...]] = (
    (b" ", lambda _: paused),
    (b" ", lambda _: lambda glass: not paused(glass)),
    (b"j", lambda before: moved_from(cursor(before))),
    (b"?", lambda _: helps),
    (b"\x1b", lambda before: changed_from([before.row(y) for y in (1, 2, 3, 4)])),  # no tick changes the help page
)
"""Keys, and for the screen before one the test whether the first line of its answer is there."""


def measure(rounds: int = 6, seed: int = 1, bytes_per_s: float = BYTES_PER_S) -> dict[str, float]:
    """Presses each key at random moments of the tick, `rounds` times; all figures in seconds but the bytes."""
    moments = random.Random(seed)
    took_s: list[float] = []
    carried_s: list[float] = []
    with slow_demo(bytes_per_s) as terminal:
        terminal.clock_ages_s.clear()
        began_s, arrived = time.monotonic(), terminal.arrived
        for _ in range(rounds):
            for key, answers in KEYS:
                terminal.run(moments.uniform(0.6, 1.6))
                key_s, line_s = terminal.press(key, answers(terminal.glass))
                took_s.append(key_s)
                carried_s.append(line_s)
        elapsed_s = time.monotonic() - began_s
        return {
            "keys": len(took_s),
            "key_median_s": statistics.median(took_s),
            "key_p95_s": sorted(took_s)[int(0.95 * (len(took_s) - 1))],
            "key_max_s": max(took_s),
            "line_within_200_ms_ratio": sum(line <= 0.2 for line in carried_s) / len(carried_s),
            "line_max_s": max(carried_s),
            "keys_within_200_ms_ratio": sum(took <= 0.2 for took in took_s) / len(took_s),
            "clock_age_max_s": max(terminal.clock_ages_s),
            "bytes_per_s": (terminal.arrived - arrived) / elapsed_s,
        }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:26} {value:8.3f}")
