"""`gpumon demo`: the screen, on a simulated server."""

from __future__ import annotations

import argparse

from gpumon.commands import screen
from gpumon.commands.options import add_monitor, add_screen
from gpumon.commands.scenarios import add_scenario


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the screen, and the scenario that the server plays."""
    add_monitor(parser)
    add_screen(parser)
    add_scenario(parser)
    parser.set_defaults(demo=True)


run = screen.run
"""The screen's: `chosen.demo` says what it watches."""
