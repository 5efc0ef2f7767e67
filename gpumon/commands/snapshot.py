"""`gpumon snapshot`: one snapshot, of this host or of a fleet."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpumon.commands.options import add_fleet, add_forms, add_monitor, number_option
from gpumon.commands.scenarios import add_demo
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_NOTHING, EXIT_OK, NOTHING_HERE, WORKER_FAILED, Failed, complain, width, write
from gpumon.commands.watch import READY_S, print_fleet
from gpumon.readings.frame import EndpointState

if TYPE_CHECKING:
    from gpumon.config.options import Options
    from gpumon.config.schema import Config
    from gpumon.readings.snapshot import Snapshot

OTHERS_READY_S: Final = 10.0
"""Longest further wait once one source is there: a hung driver does not silence the engines."""


FIRST_ANSWER_S: Final = 6.5
"""Longest wait for the first answer of an engine that was found: by then its page is late (`Limits` of fetch.py), and
its processes were looked at twice."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, and the form to print."""
    add_monitor(parser)
    add_fleet(parser)
    add_forms(parser, json="JSON (docs/json.md)", verbose="every figure with its source, or why it is missing")
    add_demo(parser)
    parser.add_argument(
        "--window",
        metavar="S",
        type=number_option(0, 3600),
        default=2.0,
        help="seconds between the two readings that rates need (default 2); 0: one reading, no rates",
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the snapshot; exit code 3: there is nothing to monitor."""
    loaded, run_options = settings(chosen)
    if chosen.prometheus or chosen.host:
        from msgspec.structs import replace

        return print_fleet(loaded.config, replace(run_options, count=1), chosen.form)
    config = loaded.config
    snapshot = asyncio.run(take_snapshot(config, run_options))
    if snapshot is None:
        # The screen shows the fleet of the config, this command only one that is named.
        hint = "; --prometheus URL prints the fleet of [prometheus] url" if config.prometheus.url else ""
        return complain(f"{NOTHING_HERE}{hint}", EXIT_NOTHING)
    if chosen.form == "json":
        from gpumon.outputs.json import encode

        write(encode(snapshot) + b"\n")
        return EXIT_OK
    from gpumon.outputs.brief import brief, window_advice

    write(brief(snapshot, width()))
    if chosen.form == "verbose":
        from gpumon.outputs.report import report

        write("\n" + report(snapshot))
    general = config.general
    slowest_s = max(general.interval_s, general.engine_interval_s, *(feed.interval_s for feed in config.feed))
    hint = window_advice(snapshot, run_options.window_s, slowest_s)
    if hint:
        complain(hint, EXIT_OK)
    return EXIT_OK


def _never(snapshot: Snapshot) -> bool:  # noqa: ARG001 - a test of snapshots
    """No snapshot is enough before the window is over."""
    return False


def _awaits_answer(snapshot: Snapshot) -> bool:
    """Whether an engine has neither answered nor failed to answer yet."""
    return any(engine.state is EndpointState.STARTING and not engine.fault for engine in snapshot.engines)


async def take_snapshot(
    config: Config, run_options: Options, is_enough: Callable[[Snapshot], bool] = _never
) -> Snapshot | None:
    """A snapshot after `run_options.window_s`, or the first one for which `is_enough` holds; None: nothing to monitor.

    Raises Failed if the GPUs cannot be asked for.
    """
    from gpumon.session.build import build, failed_worker, has_nothing_to_show
    from gpumon.session.hardware import open_hardware

    collector = build(config, run_options, await open_hardware(config, run_options))
    try:
        await collector.open()
        await collector.any_ready(READY_S)
        has_others = config.endpoint or config.feed or config.dcgm.url
        longest_s = OTHERS_READY_S if has_others else READY_S
        await collector.ready(longest_s)
        snapshot = await collector.tick()
        begun_s = time.monotonic()
        end_s = begun_s + run_options.window_s
        answers_by_s = begun_s + FIRST_ANSWER_S
        while True:
            awaits = run_options.window_s > 0 and _awaits_answer(snapshot)
            left_s = (max(end_s, answers_by_s) if awaits else end_s) - time.monotonic()
            if left_s <= 0 or (is_enough(snapshot) and not awaits):
                break
            await asyncio.sleep(min(left_s, collector.interval_s))
            snapshot = await collector.tick()
        if not has_nothing_to_show(snapshot):
            return snapshot
        why = failed_worker(snapshot)
        if why:
            raise Failed(f"{WORKER_FAILED}{why}")
        return None
    finally:
        await collector.stop()
