"""Writes the pictures of the README and the docs: the demo after some minutes, and what Enter says of an engine.

python -m tests.tui.screenshot [--seconds 330] [--folder docs]
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Final

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.session import Session, ThisHost
from gpumon.tui.app import MonitorApp

SIZE: Final = (120, 40)
WIDE: Final = (160, 46)
PICTURES: Final = (
    ("screen", "default", SIZE, ()),
    ("detail", "default", SIZE, ("2", "enter")),
    ("light", "light", SIZE, ("escape", "1")),
    ("sizing", "default", WIDE, ("s", *"400", "enter")),
    ("simulate", "default", WIDE, ("v", "v", "v")),
)
"""Name, theme, size, and the keys that lead there from the picture before."""


async def shoot(seconds: float, folder: Path) -> None:
    """The pictures, after `seconds` of the simulated server."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8")
    app = MonitorApp(Session(Config(), ThisHost(Config(), Options(demo=True))), load_theme("default"))
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(seconds)
        for name, theme, size, keys in PICTURES:
            await pilot.resize_terminal(*size)
            await pilot.press(*keys)
            app.palette.use(load_theme(theme))
            app.monitor.redraw()
            await asyncio.sleep(1.5)
            path = folder / f"{name}.svg"
            path.write_text(app.export_screenshot(title="gpumon demo"), encoding="utf-8")
            print(path)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=330.0)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    asyncio.run(shoot(arguments.seconds, arguments.folder))


if __name__ == "__main__":
    main()
