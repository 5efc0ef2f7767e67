"""`gpumon status`: one short line for status bars and prompts."""

from __future__ import annotations

import argparse

import msgspec

from gpumon.commands.options import add_forms, add_monitor, number_option
from gpumon.commands.scenarios import add_demo
from gpumon.commands.served import served_snapshot
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_NOTHING, EXIT_OK, NOTHING_HERE, complain, write
from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.outputs.status_line import StatusSnapshot, is_critical, status_line, status_of
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import WARMING_UP
from gpumon.readings.snapshot import Snapshot

_SERVED = "serve-metrics"
_READ = "reading"
"""Sources of a status: the exporter of this host, or readings of this process."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources."""
    add_monitor(parser)
    add_demo(parser)
    add_forms(parser, json="one JSON object (docs/json.md)")
    parser.add_argument(
        "--window",
        metavar="S",
        type=number_option(0, 3600),
        help="longest wait for rates and verdicts (default: for rates only; verdicts need 35)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the line; exit code 1: a critical verdict stands, an engine crashed or is mute; 3: nothing to monitor."""
    loaded, run_options = settings(chosen)
    source = _SERVED
    snapshot = served_snapshot(loaded.config, run_options, StatusSnapshot, has_endpoints=bool(chosen.endpoint))
    if snapshot is None:
        source = _READ
        snapshot = _own_snapshot(loaded.config, run_options, chosen.window)
    if snapshot is None:
        return complain(NOTHING_HERE, EXIT_NOTHING)
    if chosen.form == "json":
        write(msgspec.json.encode(status_of(snapshot, source)) + b"\n")
    else:
        write(status_line(snapshot) + "\n")
    if is_critical(snapshot):
        return EXIT_FAILED
    return EXIT_OK


def _own_snapshot(config: Config, run_options: Options, window_s: float | None) -> StatusSnapshot | None:
    """A snapshot of this process's own, taken until it is enough or the window is over; None: nothing to monitor.

    `window_s`: the longest wait for rates and verdicts; None: the usual wait, for rates alone.
    """
    import asyncio

    from gpumon.commands.snapshot import take_snapshot
    from gpumon.outputs.json import encode

    is_enough = _is_judged
    if window_s is None:
        window_s = config.general.engine_interval_s + 1.0  # two polls of an engine, and its answer
        is_enough = _has_rates
    snapshot = asyncio.run(take_snapshot(config, msgspec.structs.replace(run_options, window_s=window_s), is_enough))
    if snapshot is None:
        return None
    # In the form that a served one has.
    status = msgspec.json.decode(encode(snapshot), type=StatusSnapshot)
    status.is_own = True
    return status


def _has_rates(snapshot: Snapshot) -> bool:
    """Whether no engine that answers waits for its first rate of tokens: another reading would add nothing."""
    for engine in snapshot.engines:
        if engine.state is EndpointState.OK and engine.rates.decode_tokens_per_s == WARMING_UP:
            return False
    return True


def _is_judged(snapshot: Snapshot) -> bool:
    """Whether there are rates, and every engine and GPU has a verdict."""
    judged = {verdict.key for verdict in snapshot.verdicts}
    for engine in snapshot.engines:
        if engine.key not in judged:
            return False
    for gpu in snapshot.gpus:
        if gpu.reading.uuid not in judged:
            return False
    return _has_rates(snapshot)
