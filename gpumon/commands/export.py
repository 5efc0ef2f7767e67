"""`gpumon export`: the moments of a recording, as CSV or JSON lines."""

from __future__ import annotations

import argparse

from gpumon.commands.options import add_config, add_forms, add_recording, add_span, seconds_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_OK, write
from gpumon.commands.stretch import open_recording, tell_damage


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the recording, from when to when, how often, and in which form."""
    add_recording(parser)
    add_config(parser)
    add_forms(
        parser,
        csv="a line per moment and GPU, engine or host (the default)",
        jsonl="a line of JSON per moment, as `watch --json` prints it",
    )
    add_span(parser)
    parser.add_argument(
        "--every",
        metavar="S",
        type=seconds_option,
        default=0.0,
        help="one moment per S seconds, or 5m, 1h (default 0: all)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the moments."""
    config = settings(chosen).loaded.config
    from gpumon.history.derivation import Derivation, derived_moments
    from gpumon.outputs import export
    from gpumon.outputs.json import encode
    from gpumon.session.build import deriver_maker

    recording, (from_s, to_s) = open_recording(chosen.file, chosen.since, chosen.until)
    if chosen.form != "jsonl":
        write(export.csv_header())
    derivation = Derivation(recording, deriver_maker(config))
    for snapshot in derived_moments(recording, derivation, from_s, to_s, every_s=chosen.every):
        if chosen.form == "jsonl":
            write(encode(snapshot).decode() + "\n")
        else:
            write(export.csv_rows(snapshot))
    tell_damage(recording)
    return EXIT_OK
