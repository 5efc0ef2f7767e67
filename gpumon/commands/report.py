"""`gpumon report`: a stretch of a recording, summed up."""

from __future__ import annotations

import argparse
import os
import socket
from typing import TYPE_CHECKING

from gpumon.commands.options import add_config, add_forms, add_recording, add_span, settings
from gpumon.commands.streams import OK, complain, width, write

if TYPE_CHECKING:
    from gpumon.history.reader import Recording


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the recording, from when to when, and in which form."""
    add_recording(parser)
    add_config(parser)
    add_forms(parser, json="one JSON object (docs/recording.md)", markdown="tables to paste into a ticket")
    add_span(parser)


def run(chosen: argparse.Namespace) -> int:
    """Sum it up, and print."""
    config = settings(chosen).loaded.config
    from gpumon.config.prices import goals_of, running_prices
    from gpumon.history.summary import summed_up
    from gpumon.outputs import period
    from gpumon.sources.packaged import gpu_catalogue

    recording, (from_s, to_s) = opened(chosen.file, chosen.since, chosen.until)
    gpus = gpu_catalogue(config.gpu)
    summed = summed_up(recording, gpus, running_prices(config, gpus), from_s, to_s, goals_of(config.goals))
    if chosen.form == "json":
        write(period.encode(summed).decode() + "\n")
    elif chosen.form == "markdown":
        write(period.markdown(summed))
    else:
        write(period.report(summed, width()))
    tell_damage(recording)
    return OK


def tell_damage(recording: Recording) -> None:
    """Say on stderr what could not be read, where there is such."""
    if recording.damaged:
        parts = "part is" if recording.damaged == 1 else "parts are"
        complain(f"{recording.damaged} {parts} damaged and left out: a minute each, or a frame", OK)


def opened(file: str | None, since: str | None, until: str | None) -> tuple[Recording, tuple[float, float]]:
    """A recording (none named: the host's own), and the stretch from a time to another (none: its ends).

    Raises ConfigError.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import named
    from gpumon.history.file import to_read
    from gpumon.history.reader import Recording

    path = to_read(file or "", os.environ, socket.gethostname())
    recording = Recording(path)
    span = recording.span()
    if span is None:
        raise ConfigError(f"{named(path)}: nothing was recorded in it yet")
    if since:
        from_s = moment("--from", since, span)
    else:
        from_s = span[0]
    if until:
        to_s = moment("--to", until, span)
    else:
        to_s = span[1]
    if from_s > to_s:
        raise ConfigError(f"--from {since or 'the start'} is after --to {until or 'the end'}")
    return recording, (from_s, to_s)


def moment(option: str, text: str, span: tuple[float, float]) -> float:
    """The Unix time that an option names. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.readings.when import OutsideError, moment_of

    try:
        return moment_of(text, span)
    except (ValueError, OutsideError) as wrong:
        raise ConfigError(f"{option} {wrong}") from None
