"""`gpumon demo`: the screen, on a simulated server."""

from __future__ import annotations

import argparse

from gpumon.commands import screen
from gpumon.commands.options import add_monitor, add_scenario, add_screen


def options(parser: argparse.ArgumentParser) -> None:
    """The screen's, and what the server plays."""
    add_monitor(parser)
    add_screen(parser)
    add_scenario(parser)
    parser.set_defaults(demo=True)


run = screen.run
