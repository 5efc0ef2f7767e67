"""`gpumon report`: a stretch of a recording, or of a fleet, summed up."""

from __future__ import annotations

import argparse
import os
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpumon.commands.options import UsageError, add_config, add_forms, add_recording, add_span, seconds_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_OK, width, write
from gpumon.commands.stretch import open_recording, tell_damage

if TYPE_CHECKING:
    from gpumon.config.schema import Config


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the recording, from when to when, and in which form."""
    add_recording(parser)
    add_config(parser)
    add_forms(
        parser,
        json="one JSON object (docs/recording.md, docs/fleet-report.md)",
        markdown="tables to paste into a ticket",
    )
    add_span(parser)
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="report the fleet that this Prometheus scrapes (default: its last 7 days)",
    )
    parser.add_argument(
        "--by", metavar="LABEL", help="group by host, model, or a label such as namespace (docs/fleet-report.md)"
    )
    parser.add_argument(
        "--every",
        metavar="LENGTH",
        dest="every_s",
        type=seconds_option,
        default=0.0,
        help="look at the fleet so often, such as 5m (default: by its size and the time)",
    )
    parser.add_argument(
        "--card",
        metavar="NAME",
        help="write NAME.svg and NAME.md of the most urgent incident: its chain, three charts, what happened meanwhile",
    )


def run(chosen: argparse.Namespace) -> int:
    """Sum up the recording or the fleet, and print the report."""
    _check_options(chosen)
    config = settings(chosen).loaded.config
    if chosen.prometheus or chosen.by:
        return _report_by_group(chosen, config)
    if chosen.card:
        return _write_card(chosen)
    from gpumon.config.prices import goals_of, running_prices
    from gpumon.history.summary import summary_of
    from gpumon.outputs import period
    from gpumon.sources.packaged import gpu_catalogue

    recording, (from_s, to_s) = open_recording(chosen.file, chosen.since, chosen.until)
    gpus = gpu_catalogue(config.gpu)
    summary = summary_of(recording, gpus, running_prices(config, gpus), from_s, to_s, goals_of(config.goals))
    if chosen.form == "json":
        write(period.encode(summary).decode() + "\n")
    elif chosen.form == "markdown":
        write(period.markdown(summary))
    else:
        write(period.report(summary, width()))
    tell_damage(recording)
    return EXIT_OK


def _check_options(chosen: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if chosen.file and chosen.prometheus:
        raise UsageError("FILE and --prometheus are two pasts: give one of them")
    if chosen.card is not None:
        _check_card(chosen)
    if chosen.every_s and not chosen.prometheus:
        cadence = "with --by it is looked at once a minute" if chosen.by else "every reading in it is taken in"
        raise UsageError(f"--every is for --prometheus URL, not for a recording: {cadence}")


def _check_card(chosen: argparse.Namespace) -> None:
    """Refuse options beside --card, and names that are none of a new file. Raises UsageError."""
    if chosen.card and (chosen.prometheus or chosen.by or chosen.form):
        raise UsageError(
            "--card is of one incident of a recording: leave out --prometheus, --by, --json and --markdown"
        )
    if PurePath(chosen.card).name in ("", ".."):
        raise UsageError(f"--card takes the name of a file to write, {chosen.card!r} is none")
    if not chosen.file and os.path.isfile(chosen.card):  # noqa: PTH113 - `Path.is_file` may raise
        raise UsageError(f"--card takes the name of a file to write: gpumon report {chosen.card!r} --card NAME")


def _write_card(chosen: argparse.Namespace) -> int:
    """Write the two files of the most urgent incident, and print their names. Raises ConfigError."""
    from pathlib import Path

    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.history.incident_card import incident_card
    from gpumon.outputs.incident_card import files

    recording, (from_s, to_s) = open_recording(chosen.file, chosen.since, chosen.until)
    card = incident_card(recording, from_s, to_s)
    tell_damage(recording)
    if card is None:
        raise ConfigError("no incident of warn or worse began in this time: see gpumon report, or name another --from")
    for name, text in files(card, Path(chosen.card).name).items():
        path = Path(chosen.card).with_name(name)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise ConfigError(f"{file_name(path)} is there already: give --card another name") from None
        except OSError as error:
            raise ConfigError(f"{file_name(path)}: cannot be written: {error.strerror}") from None
        write(f"{file_name(path)}\n")
    return EXIT_OK


def _report_by_group(chosen: argparse.Namespace, config: Config) -> int:
    """Sum up by host, model or label, and print."""
    import asyncio

    from gpumon.commands.fleet_report import check_by, fleet_report, recording_report
    from gpumon.outputs import fleet_period

    by = check_by(chosen.by or "host")
    if chosen.prometheus:
        summary = asyncio.run(fleet_report(chosen, config, by))
    else:
        recording, span = open_recording(chosen.file, chosen.since, chosen.until)
        summary = recording_report(recording, config, by, span)
        tell_damage(recording)
    if chosen.form == "json":
        write(fleet_period.encode(summary).decode() + "\n")
    elif chosen.form == "markdown":
        write(fleet_period.markdown(summary))
    else:
        write(fleet_period.report(summary, width()))
    return EXIT_OK
