"""`gpumon watch`: a snapshot per tick, of this host or of a fleet."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpumon import __version__
from gpumon.commands.options import add_fleet, add_forms, add_monitor, number_option
from gpumon.commands.scenarios import add_demo
from gpumon.commands.settings import settings
from gpumon.commands.streams import (
    EXIT_FAILED,
    EXIT_NOTHING,
    EXIT_OK,
    NOTHING_HERE,
    WORKER_FAILED,
    Failed,
    complain,
    note,
    width,
    write,
)
from gpumon.config.errors import ConfigError
from gpumon.deadline import timeout

if TYPE_CHECKING:
    from gpumon.collector import TickKeeper
    from gpumon.config.options import Options
    from gpumon.config.schema import Config
    from gpumon.fleet.snapshot import FleetSnapshot, HostShown
    from gpumon.readings.snapshot import Snapshot

T = TypeVar("T")
READY_S: Final = 90.0
"""Longest wait for the driver, in seconds: eight GPUs without persistence mode are slow to open."""
TOO_SHORT: Final = "nothing was read before --duration was over: neither the driver nor an engine had answered"


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, the form to print, and for how long."""
    add_monitor(parser)
    add_fleet(parser)
    add_forms(
        parser,
        json="JSON (one object per line; docs/json.md)",
        plain="a line per GPU and engine (the default)",
    )
    parser.add_argument(
        "--fleet",
        action="store_true",
        help="with --json: for the screen of a fleet on another machine (docs/json.md): after the first object "
        "differences only, and no end where there is no GPU",
    )
    add_demo(parser)
    parser.add_argument(
        "--count", metavar="N", type=number_option(1, 1e9, int), default=0, help="stop after N snapshots"
    )
    parser.add_argument(
        "--duration", metavar="S", type=number_option(0.25, 1e9), default=0.0, help="stop after S seconds"
    )


def run(chosen: argparse.Namespace) -> int:
    """Print until the end that was asked for, or a signal."""
    loaded, run_options = settings(chosen)
    if chosen.fleet and (chosen.form != "json" or chosen.prometheus or chosen.host):
        raise ConfigError("--fleet: goes with --json, and is of this host alone")
    if chosen.prometheus or chosen.host:
        return print_fleet(loaded.config, run_options, chosen.form)
    if chosen.fleet:
        from msgspec.structs import replace

        from gpumon.outputs.json import Differences

        write(f"gpumon {__version__}\n")  # before the driver opens, which may take long
        run_options = replace(run_options, for_fleet=True)
        lines_of_fleet = Differences()
        code = watch(
            loaded.config,
            run_options,
            lambda snapshot: write(lines_of_fleet.encode(snapshot) + b"\n"),
            although_nothing=True,
        )
    elif chosen.form == "json":
        from gpumon.outputs.json import encode

        code = watch(loaded.config, run_options, lambda snapshot: write(encode(snapshot) + b"\n"))
    else:
        from gpumon.outputs.plain import snapshot_lines

        code = watch(loaded.config, run_options, lambda snapshot: write(snapshot_lines(snapshot)))
    if code == EXIT_NOTHING:
        return complain(NOTHING_HERE, EXIT_NOTHING)
    return code


def watch(
    config: Config,
    run_options: Options,
    sink: Callable[[Snapshot], None],
    keepers: Sequence[TickKeeper] = (),
    *,
    although_nothing: bool = False,
) -> int:
    """Pass snapshots to `sink` until `run_options.count` or `run_options.duration_s`; returns the exit code.

    Where there is neither a GPU nor an engine it ends at once, unless `although_nothing`.
    """
    this_run = _Run(sink, run_options.count, although_nothing=although_nothing)
    return asyncio.run(_collect_snapshots(config, run_options, keepers, this_run))


class _Run:
    """The snapshots of one run: passes them on, counts them, and knows when it is over."""

    def __init__(self, sink: Callable[[Snapshot], None], most_snapshots: int, *, although_nothing: bool) -> None:
        """`most_snapshots`: snapshots to pass on; 0: no end."""
        self.done = asyncio.Event()
        self.written = 0
        self.has_nothing = False
        """Whether the first snapshot had neither a GPU nor an engine."""
        self.failure = ""
        """Why the driver worker could not start, if that is why there is nothing."""
        self._sink = sink
        self._most_snapshots = most_snapshots
        self._although_nothing = although_nothing

    def take(self, snapshot: Snapshot) -> None:
        """Pass one snapshot on."""
        from gpumon.session.build import failed_worker, has_nothing_to_show

        if self.done.is_set():
            return
        if self.written == 0 and not self._although_nothing and has_nothing_to_show(snapshot):
            self.has_nothing = True
            self.failure = failed_worker(snapshot)
            self.done.set()
            return
        try:
            self._sink(snapshot)
        except BaseException:  # whatever ends the writing ends the run; it is raised where the run is awaited
            self.done.set()
            raise
        self.written += 1
        if self._most_snapshots and self.written >= self._most_snapshots:
            self.done.set()

    def exit_code(self) -> int:
        """The exit code at the end. Raises Failed."""
        if self.failure:
            raise Failed(f"{WORKER_FAILED}{self.failure}")
        if self.has_nothing:
            return EXIT_NOTHING
        if self.written == 0 and not self.done.is_set():
            raise Failed(TOO_SHORT)
        return EXIT_OK


async def _collect_snapshots(
    config: Config, run_options: Options, keepers: Sequence[TickKeeper], this_run: _Run
) -> int:
    """Collect until the run is over."""
    from gpumon.session.build import build
    from gpumon.session.hardware import open_hardware

    push = None
    if config.webhook:
        from gpumon.push.webhooks import webhooks_of

        push = webhooks_of(config, run_options, note)
    stop_on_signals(this_run.done)
    collector = build(config, run_options, await open_hardware(config, run_options), keepers=keepers, push=push)
    end_s = time.monotonic() + (run_options.duration_s or math.inf)
    try:
        await collector.open()
        # One source is enough to begin: a driver that takes its time does not silence the engines.
        ready_task = asyncio.create_task(collector.any_ready(READY_S))
        await _wait_until(this_run.done, ready_task, end_s)
        ready_task.cancel()
        if not this_run.done.is_set() and time.monotonic() < end_s:
            await collector.start(this_run.take)
            await _wait_until(this_run.done, collector.ended(), end_s)
        return this_run.exit_code()
    finally:
        await collector.stop()


def stop_on_signals(done: asyncio.Event) -> None:
    """Set `done` at SIGINT, SIGTERM and SIGHUP."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(name, done.set)


async def _wait_until(done: asyncio.Event, task: asyncio.Task[None], end_s: float) -> None:
    """Wait for `done`, for the end of `task` (and raise what ended it), or for the monotonic time `end_s`."""
    left_s: float | None = end_s - time.monotonic() if not math.isinf(end_s) else None
    stop_task = asyncio.create_task(done.wait())
    try:
        await asyncio.wait({stop_task, task}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            task.result()
    finally:
        stop_task.cancel()


def _ever_answered(host: HostShown) -> bool:
    """Whether a host's gpumon, or its nvidia-smi, ever told something."""
    return host.own_gpumon or bool(host.snapshot.gpus)


def print_fleet(
    config: Config, run_options: Options, form: str, sink: Callable[[str | bytes], None] = write, columns: int = 0
) -> int:
    """Print the fleet, `json` or else as a table, `run_options.count` times (0: until a signal); returns the exit code.

    It is 1 if the Prometheus, or every host, never answered, 3 where the Prometheus has nothing of any host.
    """
    code = asyncio.run(_print_fleet(config, run_options, form, sink, columns or width()))
    if code == EXIT_NOTHING:
        return complain("nothing to monitor: the Prometheus has nothing of any host now", EXIT_NOTHING)
    return code


async def _print_fleet(
    config: Config, run_options: Options, form: str, sink: Callable[[str | bytes], None], columns: int
) -> int:
    """Print the fleet after each refresh, until the count or the duration is reached; returns the exit code."""
    from gpumon.fleet.snapshot import NOTHING_YET
    from gpumon.outputs.fleet import encode, report
    from gpumon.session.fleet import FleetSession

    control = FleetSession(config)
    done = asyncio.Event()
    printed = 0
    snapshot = NOTHING_YET
    stop_on_signals(done)
    slot_s = time.monotonic()
    end_s = slot_s + (run_options.duration_s or math.inf)
    try:
        while not done.is_set():
            answer = await _wait_unless(done, control.fleet.ask_once())
            if answer is None:
                break
            snapshot = answer
            if form == "json":
                sink(encode(snapshot, control.prices, config.fleet.owners) + b"\n")
            else:
                sink(report(snapshot, control.prices, columns, config.fleet.owners))
            printed += 1
            slot_s = max(slot_s + control.interval_s, time.monotonic())
            if printed == run_options.count or slot_s >= end_s:
                break
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(slot_s - time.monotonic()):
                    await done.wait()
    finally:
        await control.stop()
    return _exit_code_of_fleet(config, snapshot)


async def _wait_unless(done: asyncio.Event, answer: Coroutine[Any, Any, T]) -> T | None:
    """Wait for an answer and return it; None where `done` is set before it comes."""
    answer_task = asyncio.ensure_future(answer)
    stop_task = asyncio.ensure_future(done.wait())
    await asyncio.wait({answer_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
    stop_task.cancel()
    if answer_task.done():
        return answer_task.result()
    answer_task.cancel()
    return None


def _exit_code_of_fleet(config: Config, snapshot: FleetSnapshot) -> int:
    """Exit code by the last snapshot."""
    if not snapshot.wall_s:
        return EXIT_FAILED
    if config.host and not any(map(_ever_answered, snapshot.hosts)):
        return EXIT_FAILED
    if snapshot.hosts:
        return EXIT_OK
    return EXIT_NOTHING
