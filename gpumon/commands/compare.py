"""`gpumon compare`: two moments of a recording or a Prometheus, side by side."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from gpumon.commands.options import MOMENT_METAVAR, UsageError, add_config, add_forms, seconds_option
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_OK, tell_progress, width, write

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.readings.before_after import BeforeAfter
    from gpumon.readings.when import Stretch


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: both moments, of what, how long the spans are, and in which form."""
    times = "03:10, 2026-11-22T03:10Z, -10m (before the end), or a span: 03:00..03:10"
    parser.add_argument("before", metavar=MOMENT_METAVAR, type=str.strip, help=f"moment before a change: {times}")
    parser.add_argument("after", metavar="TO", type=str.strip, help="moment after it, likewise")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="recording, or folder of a bundle (default: this host's recording)"
    )
    parser.add_argument(
        "--for",
        metavar="LENGTH",
        dest="length_s",
        type=seconds_option,
        default=300.0,
        help="length of the span that ends at each moment (default 5m)",
    )
    parser.add_argument("--prometheus", metavar="URL", help="compare the hosts that this Prometheus scrapes")
    add_config(parser)
    add_forms(parser, json="one JSON object (docs/compare.md)", markdown="tables to paste into a ticket")


def run(chosen: argparse.Namespace) -> int:
    """Compare two moments of a recording or a Prometheus, and print how they differ."""
    from gpumon.outputs import before_after

    if chosen.file and chosen.prometheus:
        raise UsageError("FILE and --prometheus are two pasts: give one of them")
    # `Path.exists` raises where a name is too long, or a folder may not be read.
    if not chosen.file and not chosen.prometheus and os.path.exists(chosen.after):  # noqa: PTH110
        raise UsageError(f"TO is missing before {chosen.after[:80]!a}: gpumon compare FROM TO FILE")
    config = settings(chosen).loaded.config
    if chosen.prometheus:
        comparison = asyncio.run(_compare_prometheus(chosen, config))
    else:
        comparison = _compare_recording(chosen, config)
    # The hosts of a Prometheus are many, and most of them did not change.
    only_changed = bool(chosen.prometheus)
    if chosen.form == "json":
        write(before_after.encode(comparison).decode() + "\n")
    elif chosen.form == "markdown":
        write(before_after.markdown(comparison, only_changed=only_changed))
    else:
        write(before_after.report(comparison, width(), only_changed=only_changed))
    return EXIT_OK


def _compare_recording(chosen: argparse.Namespace, config: Config) -> BeforeAfter:
    """The comparison of two spans of a recording. Raises ConfigError."""
    from gpumon.commands.stretch import open_recording, tell_damage
    from gpumon.history.compared import compare_spans
    from gpumon.session.build import deriver_maker

    recording, kept_span = open_recording(chosen.file, since=None, until=None)
    before, after = _spans(chosen, kept_span)
    answer = compare_spans(recording, deriver_maker(config), before, after)
    tell_damage(recording)
    return answer


def _spans(chosen: argparse.Namespace, kept_span: tuple[float, float]) -> tuple[Stretch, Stretch]:
    """The two spans that the command line names. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.history.compared import TooShortError, spans_of
    from gpumon.readings.when import Stretch

    before = _stretch("FROM", chosen.before, kept_span)
    after = _stretch("TO", chosen.after, kept_span)
    try:
        return spans_of(before, after, chosen.length_s, Stretch(*kept_span))
    except TooShortError as wrong:
        raise ConfigError(str(wrong)) from None


def _stretch(name: str, text: str, kept_span: tuple[float, float]) -> Stretch:
    """The moment or span that a word names; `kept_span`: Unix times of the ends of the past. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.readings.when import OutsideError, stretch_of

    try:
        return stretch_of(text, kept_span)
    except (ValueError, OutsideError) as wrong:
        raise ConfigError(f"{name} {wrong}") from None


async def _compare_prometheus(chosen: argparse.Namespace, config: Config) -> BeforeAfter:
    """The comparison of two spans of the hosts of a Prometheus. Raises ConfigError."""
    from gpumon.commands.past_load import LONGEST_S, prometheus_source
    from gpumon.config.errors import ConfigError
    from gpumon.session.build import deriver_maker
    from gpumon.session.compared import compare_hosts

    async with prometheus_source(config) as (source, newest):
        spans = _spans(chosen, (newest.wall_s - LONGEST_S, newest.wall_s))
        hosts = [host.name for host in newest.hosts]
        answer = await compare_hosts(
            source, deriver_maker(config), hosts, scrape_s=newest.interval_s, spans=spans, progress=tell_progress
        )
    if not answer.before.moments and not answer.after.moments:
        raise ConfigError("prometheus: it has nothing of either span")
    return answer
