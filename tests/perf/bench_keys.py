"""A key while many GPUs arrive, and on very large terminals: gpumon on the fake driver, in a pty.

python -m tests.perf.bench_keys [--seconds 20]
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.nvml.driver import FakeDriver
from tests.tui.pty_process import PtyProcess

CASES = ((8, 120, 40), (64, 120, 40), (200, 120, 40), (64, 300, 100), (64, 500, 500), (200, 500, 500))
"""GPUs, columns, lines."""
BUDGET_S = 0.15
KEPT_BYTES = 1 << 17


def shown(process: PtyProcess, word: bytes, seconds: float) -> bool:
    """Whether it writes the word within a time; nothing is kept of a screen of a quarter of a million cells."""
    tail, end_s = b"", time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        ready, _, _ = select.select([process.master], [], [], min(left_s, 0.05))
        if ready:
            tail = (tail + os.read(process.master, 1 << 20))[-KEPT_BYTES:]
            if word and word in tail:
                return True
    return not word


def waits(gpus: int, width: int, height: int, seconds: float) -> list[float]:
    """Seconds from each `?` to its page, from the first paint on."""
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder))
        driver.write(driver.busy_h100s(gpus))
        command = [str(Path(sys.executable).with_name("gpumon"))]
        process = PtyProcess(command, width, height, **driver.env(HOME=folder))
        try:
            assert shown(process, b"gpumon", 30.0), "it never paints"
            found, end_s = [], time.monotonic() + seconds
            while time.monotonic() < end_s:
                began_s = time.monotonic()
                process.type(b"?")
                assert shown(process, b"never quits", 10.0), "the help never comes"
                found.append(time.monotonic() - began_s)
                shown(process, b"", 0.1)
                process.type(b"\x1b")
                shown(process, b"", 0.4)
            return found
        finally:
            process.close()


def main() -> None:
    """Print the table; fail where the median of a case is beyond the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds, late = parser.parse_args().seconds, []
    print("| GPUs | terminal | keys | first | median | 90% | longest |\n|---|---|---|---|---|---|---|")
    for gpus, width, height in CASES:
        found = waits(gpus, width, height, seconds)
        ordered = sorted(found)
        middle, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.9)]
        figures = " | ".join(f"{1e3 * each:.0f} ms" for each in (found[0], middle, most, ordered[-1]))
        print(f"| {gpus} | {width}x{height} | {len(found)} | {figures} |", flush=True)
        if middle > BUDGET_S:
            late.append(f"{gpus} GPUs at {width}x{height}")
    if late:
        sys.exit(f"beyond {1e3 * BUDGET_S:.0f} ms: {', '.join(late)}")


if __name__ == "__main__":
    main()
