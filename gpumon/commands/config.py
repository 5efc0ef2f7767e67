"""`gpumon config`: the settings in effect, or the example file."""

from __future__ import annotations

import argparse

from gpumon.commands.options import add_fleet, add_monitor
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_OK, write


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change settings."""
    add_monitor(parser)
    add_fleet(parser)
    parser.add_argument("--example", action="store_true", help="print an example with every key, default and meaning")


def run(chosen: argparse.Namespace) -> int:
    """Print the settings in effect, or the example file."""
    if chosen.example:
        from gpumon.config.resources import resource

        write(resource("config.example.toml").read_bytes())
        return EXIT_OK
    from gpumon.config.effective import effective_toml
    from gpumon.config.themes import load_theme, themes_folder

    loaded = settings(chosen).loaded
    load_theme(loaded.config.general.theme, themes_folder(loaded.place))  # the screen refuses it, too
    write(effective_toml(loaded))
    return EXIT_OK
