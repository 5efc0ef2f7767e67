"""Writes docs/screen.svg: the demo's screen after some minutes.

python -m tests.tui.screenshot [--seconds 420] [--size 120x40] [--out docs/screen.svg]
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.tui.app import MonitorApp
from gpumon.wiring import LateCollector


async def shoot(seconds: float, size: tuple[int, int]) -> str:
    """The screen as SVG after `seconds` of the simulated server."""
    app = MonitorApp(LateCollector(Config(), Options(demo=True)), load_theme("default"))
    async with app.run_test(size=size):
        await asyncio.sleep(seconds)
        return app.export_screenshot(title="gpumon demo")


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--out", type=Path, default=Path("docs/screen.svg"))
    arguments = parser.parse_args()
    columns, lines = map(int, arguments.size.split("x"))
    arguments.out.write_text(asyncio.run(shoot(arguments.seconds, (columns, lines))), encoding="utf-8")


if __name__ == "__main__":
    main()
