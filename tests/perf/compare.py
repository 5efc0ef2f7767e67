"""gpumon beside other monitors, at the same size on the same fake driver and engine: their screens as text.

make compare                    # or: python -m tests.perf.compare [--size 80x24] [--folder build/screens]
                                # with another engine: --capture sglang-basic --start 30
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.fakes.nvml.driver import FakeDriver
from tests.perf.bench import command, engines
from tests.perf.contestants import ENGINE_MONITORS, contestants, engine_monitors, missing
from tests.terminal import Terminal

SIZES = ("80x24", "120x40", "200x60")
SETTLE_S = 12.0
"""Long enough for rates and the first columns of charts."""


def screens(width: int, height: int, capture: str, start_s: int) -> dict[str, str]:
    """Program -> its screen, with engines that replay `capture` from its second `start_s` on."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder))
        driver.write(driver.busy_h100s(8))
        env = driver.env(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8", XDG_CONFIG_HOME=folder)
        everyone = [*contestants(height, Path(folder), nvitop_mode="auto"), *engine_monitors(Path(folder))]
        for one in everyone:
            if one.name.startswith("Textual"):
                continue
            with (
                engines(one.endpoints, capture, start_s) as urls,
                Terminal(command(one, urls), env, width, height) as terminal,
            ):
                terminal.run(SETTLE_S)
                found[one.name] = "\n".join(line.rstrip() for line in terminal.screen()) + "\n"
    return found


def main() -> None:
    """Write a file per program and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", help=f"columns x lines; default {' '.join(SIZES)}")
    parser.add_argument("--capture", default="prometheus-api", help="folder of tests/data/captures that engines replay")
    parser.add_argument("--start", type=int, default=15, help="second of the capture at which they begin")
    parser.add_argument("--folder", type=Path, default=Path("build/screens"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for size in arguments.size or SIZES:
        width, height = map(int, size.split("x"))
        for name, text in screens(width, height, arguments.capture, arguments.start).items():
            path = arguments.folder / f"{name.split(',')[0]}{'-engines' if 'endpoints' in name else ''}-{size}.txt"
            path.write_text(text, encoding="utf-8")
            print(path)
    for name in missing(*ENGINE_MONITORS):
        print(f"not here: {name} (`make rivals` fetches it)")


if __name__ == "__main__":
    main()
