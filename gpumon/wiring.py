"""The one composition root: config to sources to collector to front end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gpumon.config.options import Options
from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.onlooker import Onlooker
from gpumon.readings.check import Check
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot

if TYPE_CHECKING:
    from gpumon.collector import Collector, Keeper
    from gpumon.config.load import Loaded
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.sizing.answer import Answer
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.scenario import Known, Scenario
    from gpumon.sources.endpoint import EndpointSource
    from gpumon.sources.feeds.file import FileFeed
    from gpumon.sources.source import Source
    from gpumon.specs.llm import LlmSpec
    from gpumon.triage.alerts import Alerts
    from gpumon.tui.control import Playback, Timeline

READY_S = 90.0
"""Longest wait of `snapshot` and `watch` for the driver: eight GPUs without persistence mode are slow to open."""
OTHERS_READY_S = 10.0
"""Longest further wait of `snapshot` once one source is there: a hung driver does not silence the engines."""
NOTHING_TO_MONITOR = 3
"""Exit code: no GPU and no endpoint."""

T = TypeVar("T")


async def open_hardware(config: Config, options: Options) -> Source | None:
    """The source of the GPUs, started before the rest is imported, so that the driver worker starts meanwhile."""
    if options.scenario:
        from gpumon.sources.simulator.scenarios import scenario
        from gpumon.sources.simulator.source import play

        return play(scenario(options.scenario))
    if options.demo:
        from gpumon.sources.simulator.source import SimulatedServer

        return SimulatedServer()
    if not options.nvml:
        return None
    from gpumon.sources.nvml_source import NvmlSource

    source = NvmlSource(config.general.interval_s)
    await source.start()
    return source


def build(
    config: Config,
    options: Options,
    hardware: Source | None,
    history: History | None = None,
    keepers: Sequence[Keeper] = (),
) -> Collector:
    """The collector of this run, not started. Nothing is connected to yet.

    It imports what it needs here: that takes 0.1 s, which the screen's first paint does not wait for.
    """
    from gpumon.collector import Collector
    from gpumon.flight import maker
    from gpumon.sources.attachment import EngineFacts
    from gpumon.sources.endpoint import sources_of
    from gpumon.sources.host import HostMeter

    endpoints: tuple[Endpoint, ...] = getattr(hardware, "endpoints", config.endpoint)
    pages, files = _feeds(config, hardware)
    polled = [*sources_of(endpoints, config.general.engine_interval_s), *pages]
    listed = {each.reading.key: each.endpoint for each in polled} | {each.reading.key: each.endpoint for each in files}
    exporters = _exporters(config, options)
    owner = discovery = None
    if config.discovery.enabled and not options.demo:
        from gpumon.sources.discovery.source import discover
        from gpumon.sources.ownership import Ownership

        owner = Ownership()
        discovery = discover(config, polled, listed, owner, hardware)
    (commands, alerts), (deriver, triage) = _alerting(config), maker(config, hardware)()
    return Collector(
        [source for source in (hardware, *exporters, *polled, *files, discovery) if source is not None],
        deriver,
        getattr(hardware, "host_meter", _as_it_is)(HostMeter()),
        EngineFacts(listed, config.model, owner, nvml=bool(hardware or exporters)),
        interval_s=config.general.interval_s,
        simulated=options.demo,
        history=history,
        see_gpus=discovery.see if discovery is not None else None,
        alerts=alerts,
        on_alert=commands.call,
        keepers=keepers,
        troubles=(commands.fault, *(keeper.fault for keeper in keepers if hasattr(keeper, "fault"))),
        triage=triage,
    )


def _exporters(config: Config, options: Options) -> list[Source]:
    if not config.dcgm.url or options.demo:
        return []
    from gpumon.sources.dcgm import DcgmSource

    return [DcgmSource(config.dcgm)]


def _alerting(config: Config) -> tuple[AlertCommands, Alerts]:
    """Who runs the commands of alerts, and the alerts of the config."""
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.triage.alerts import AlertRule, Alerts
    from gpumon.triage.condition import parse

    rules = (
        AlertRule(
            alert.name or alert.when,
            parse(alert.when),
            alert.for_s,
            alert.clear_s,
            alert.bell,
            alert.title,
            alert.command,
        )
        for alert in config.alert
    )
    return AlertCommands(), Alerts(tuple(rules))


def _as_it_is(of_this_host: T) -> T:
    """What a simulated server may put in the place of a thing of this host."""
    return of_this_host


def _feeds(config: Config, hardware: Source | None) -> tuple[Sequence[EndpointSource], Sequence[FileFeed]]:
    """The feeds of the config, or of the simulated server: those with a page, and those with a file."""
    feeds: tuple[Feed, ...] = getattr(hardware, "feeds", config.feed)
    if not feeds:
        return (), ()
    from gpumon.sources.feeds.build import feeds_of

    return feeds_of(msgspec.structs.replace(config, feed=feeds))


class LateCollector:
    """What the screen controls: a collector that is built when the screen stands, in a thread."""

    def __init__(self, config: Config, options: Options) -> None:
        self.history = History()
        self.timeline: Timeline | None = None
        self.playback: Playback | None = None
        self._config = config
        self._options = options
        self._interval_s = config.general.interval_s
        self._collector: Collector | None = None
        self._onlooker = Onlooker(config)

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return self._interval_s if self._collector is None else self._collector.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the cadence."""
        self._interval_s = seconds
        if self._collector is not None:
            self._collector.set_interval(seconds)

    def refresh(self) -> None:
        """Tick now."""
        if self._collector is not None:
            self._collector.refresh()

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Build the collector and start it."""
        hardware = await open_hardware(self._config, self._options)
        collector = await asyncio.to_thread(self._built, hardware)
        if self._interval_s != collector.interval_s:
            collector.set_interval(self._interval_s)
        self._collector = collector
        onlooker = self._onlooker

        def take(snapshot: Snapshot) -> None:
            onlooker.take(snapshot)
            sink(snapshot)

        await collector.start(take, early=True)
        onlooker.start()

    def _built(self, hardware: Source | None) -> Collector:
        """The collector, with the flight recorder that this run has."""
        from gpumon.flight import flight

        config, simulated = self._config, self._options.demo
        recorder, self.timeline = flight(config, hardware, self.history, simulated=simulated)
        return build(config, self._options, hardware, self.history, () if recorder is None else (recorder,))

    @property
    def calibration(self) -> Calibration:
        """What the engines were seen to do, gathered at every snapshot."""
        return self._onlooker.calibration

    def known(self) -> Known:
        """What sizing looks up, as it is known by now; imported profiles a moment after the start."""
        return self._onlooker.known()

    async def ended(self) -> None:
        """Wait until collecting ends, by `stop`; raises what ended it otherwise."""
        if self._collector is not None:
            await asyncio.shield(self._collector.ended())

    async def stop(self) -> None:
        """Stop it, if it ever started."""
        self._onlooker.stop()
        if self._collector is not None:
            await self._collector.stop()


def run_screen(loaded: Loaded, options: Options) -> int:
    """The monitor; returns the exit code."""
    from gpumon.disk import Disk
    from gpumon.tui.app import MonitorApp, run

    config = loaded.config
    disk = Disk(loaded, os.environ)
    app = MonitorApp(LateCollector(config, options), disk.first_theme(), config, disk)
    return run(app, mouse=config.general.mouse)


def run_snapshot(config: Config, options: Options) -> Snapshot | int:
    """One snapshot, after two readings `options.window_s` apart; or the exit code where there is nothing to monitor."""

    async def take() -> Snapshot | int:
        collector = build(config, options, await open_hardware(config, options))
        try:
            await collector.open()
            await collector.any_ready(READY_S)
            others = config.endpoint or config.feed or config.dcgm.url
            await collector.ready(OTHERS_READY_S if others else READY_S)
            snapshot = await collector.tick()
            end_s = time.monotonic() + options.window_s
            while (left_s := end_s - time.monotonic()) > 0:
                await asyncio.sleep(min(left_s, collector.interval_s))
                snapshot = await collector.tick()
            return NOTHING_TO_MONITOR if nothing(snapshot) else snapshot
        finally:
            await collector.stop()

    return _run(take())


def run_watch(
    config: Config, options: Options, write: Callable[[Snapshot], None], keepers: Sequence[Keeper] = ()
) -> int:
    """Snapshots until `options.count` or `options.duration_s`; returns the exit code."""

    async def watch() -> int:
        collector = build(config, options, await open_hardware(config, options), keepers=keepers)
        done = asyncio.Event()
        _stop_on_signals(done)
        written = 0

        def sink(snapshot: Snapshot) -> None:
            nonlocal written
            if done.is_set():
                return
            if written == 0 and nothing(snapshot):
                written = -1
                done.set()
                return
            try:
                write(snapshot)
            except BaseException:
                done.set()
                raise
            written += 1
            if options.count and written >= options.count:
                done.set()

        end_s = time.monotonic() + (options.duration_s or math.inf)
        try:
            await collector.open()
            # One source is enough to begin: a driver that takes its time does not silence the engines.
            first = asyncio.create_task(collector.any_ready(READY_S))
            await _until(done, first, end_s)
            first.cancel()
            if not done.is_set() and time.monotonic() < end_s:
                await collector.start(sink)
                await _until(done, collector.ended(), end_s)
            return NOTHING_TO_MONITOR if written < 0 else 0
        finally:
            await collector.stop()

    return _run(watch())


def run_doctor(config: Config, options: Options) -> list[Check]:
    """What works here, what does not, and the fix."""
    from gpumon.sources.diagnosis import diagnose

    return _run(diagnose(config, options))


def run_size(
    config: Config,
    file: str,
    environ: Mapping[str, str],
    recorded: Callable[[Scenario], tuple[Scenario, Mapping[str, LlmSpec]]] | None = None,
) -> tuple[Scenario, Answer]:
    """The scenario of a file (`-`: standard input; empty: the settings) and the answer to it. `recorded` puts the
    workloads of a recording and their models in it. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import named
    from gpumon.config.profile_store import absent, stored_profiles
    from gpumon.config.scenario_file import base_of, read_scenario, scenario_from_stream
    from gpumon.sizing.plan import plan
    from gpumon.sizing.scenario import Server

    where = "standard input" if file == "-" else named(file or "the settings")
    if file == "-":
        scenario = scenario_from_stream(sys.stdin.buffer, where)
    else:
        scenario = read_scenario(file) if file else base_of(config)
    own: Mapping[str, LlmSpec] = {}
    if recorded is not None:
        scenario, own = recorded(scenario)
    if not scenario.server and config.sizing.gpu:
        server = Server(gpu=config.sizing.gpu, gpus=config.sizing.gpus or 8)
        scenario = msgspec.structs.replace(scenario, server=(server,))
    looked_up = known(config, scenario, environ, own)
    for at, workload in enumerate(scenario.workload):
        if workload.profile and workload.seen is None and workload.profile not in looked_up.profiles:
            why = absent(workload.profile, stored_profiles(environ))
            raise ConfigError(f"{where}: workload[{at}].profile: {why}")
    return scenario, plan(scenario, looked_up)


def known(
    config: Config, scenario: Scenario, environ: Mapping[str, str], own: Mapping[str, LlmSpec] = MappingProxyType({})
) -> Known:
    """What sizing looks up for a scenario: catalogues, models of the config, imported profiles, prices. Reads files.

    Raises ConfigError for a `[[model]]` entry of one of its models that does not hold together.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.config.prices import prices_per_hour
    from gpumon.config.profile_store import profiles
    from gpumon.sizing.scenario import Known
    from gpumon.sources.model_facts import OwnModels, configured
    from gpumon.sources.packaged import gpu_catalogue, llm_catalogue

    try:
        for workload in scenario.workload:
            configured(workload.model, config.model)
    except ValueError as wrong:
        raise ConfigError(str(wrong)) from None
    gpus = gpu_catalogue(config.gpu)
    return Known(
        gpus=gpus,
        llms=llm_catalogue(),
        own=OwnModels(own, config.model),
        profiles=profiles(environ),
        prices=prices_per_hour(config.sizing, gpus, (server.gpu for server in scenario.server)),
    )


def nothing(snapshot: Snapshot) -> bool:
    """Whether there is neither a GPU nor an endpoint, nor hope of one: the driver is not still initialising."""
    return not snapshot.gpus and not snapshot.engines


def _stop_on_signals(done: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, done.set)


async def _until(done: asyncio.Event, task: asyncio.Task[None], end_s: float) -> None:
    """Wait for `done`, for the end of `task` (and raise what ended it), or for the monotonic time `end_s`."""
    left_s = end_s - time.monotonic()
    waits = [asyncio.create_task(done.wait()), task]
    try:
        await asyncio.wait(waits, timeout=None if math.isinf(left_s) else left_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            task.result()
    finally:
        waits[0].cancel()


def _run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)
