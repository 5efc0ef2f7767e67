"""What the screen costs in a real terminal: `python -m tests.perf.bench_screen [seconds]`.

CPU per tick is that of the whole process less that of the same feed without a screen, at one snapshot per second.
"""

from __future__ import annotations

import statistics
import sys
import time

from tests.tui.pty_process import PtyProcess, screen

SIZES = ((80, 24), (120, 40), (200, 60))
PAINTED = b" engines "
"""The title of the second pane: it is on the screen from the first full paint on."""


def main() -> None:
    """Print one line per size."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    bare_ms = _cpu_ms(PtyProcess([sys.executable, "-m", "tests.tui.screen_driver", "none"], 80, 24), seconds)
    print(f"feed without a screen {bare_ms:.2f} ms/tick")
    for width, height in SIZES:
        first_ms = statistics.median(_first_paint_ms(width, height) for _ in range(5))
        busy_ms, busy_bytes = _steady(width, height, "busy", seconds)
        _, still_bytes = _steady(width, height, "still", min(seconds, 10.0))
        print(
            f"{width}x{height}: first paint {first_ms:.0f} ms, CPU {busy_ms - bare_ms:.2f} ms/tick, "
            f"{busy_bytes:.0f} B/s busy, {still_bytes:.0f} B/s when only the clock moves"
        )


def _first_paint_ms(width: int, height: int) -> float:
    process = screen(width, height, "live")
    process.read(5.0, lambda written: PAINTED in written)
    first_ms = (time.monotonic() - process.started_s) * 1e3
    process.close()
    return first_ms


def _steady(width: int, height: int, scene: str, seconds: float) -> tuple[float, float]:
    """CPU milliseconds and bytes per second once the first paints are over."""
    process = screen(width, height, scene)
    process.read(3.0)
    before = len(process.written)
    cpu_ms = _cpu_ms(process, seconds, close=False)
    bytes_per_s = (len(process.written) - before) / seconds
    process.close()
    return cpu_ms, bytes_per_s


def _cpu_ms(process: PtyProcess, seconds: float, *, close: bool = True) -> float:
    if close:
        process.read(3.0)
    before_s = process.cpu_s()
    process.read(seconds)
    cpu_ms = (process.cpu_s() - before_s) / seconds * 1e3
    if close:
        process.close()
    return cpu_ms


if __name__ == "__main__":
    main()
