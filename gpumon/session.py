"""What a screen, a command or the exporter is attached to: sources, their collector, and what sizing learns from it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from gpumon.config.options import Options
from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Snapshot

if TYPE_CHECKING:
    from gpumon.collector import Collector, Keeper, Memory
    from gpumon.history.derivation import Make
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.profile import Observed
    from gpumon.sizing.scenario import Known
    from gpumon.sources.attachment import EngineFacts
    from gpumon.sources.discovery.source import Discovery
    from gpumon.sources.endpoint import EndpointSource
    from gpumon.sources.feeds import FileFeed
    from gpumon.sources.last_seen.records import Origin
    from gpumon.sources.ownership import Ownership
    from gpumon.sources.source import Round, Source
    from gpumon.specs.llm import LlmSpec
    from gpumon.triage.alerts import Alerts
    from gpumon.tui.control import EngineLog, Playback, Timeline

T = TypeVar("T")


async def open_hardware(config: Config, options: Options, *, with_past: bool = False) -> Source | None:
    """The source of the GPUs, started before the rest is imported, so that the driver worker starts meanwhile.

    `with_past`: the simulated server gets a past, which `build` is to be told, too.
    """
    if options.demo:
        from gpumon.sources.simulator.scenarios import DEMO, scenario
        from gpumon.sources.simulator.source import SimulatedServer

        if options.scenario:
            play = scenario(options.scenario)
        else:
            play = DEMO
        if with_past:
            play = msgspec.structs.replace(play, warm_s=play.past_s)
        return SimulatedServer(play)
    if not options.nvml:
        return None
    from gpumon.sources.driver.source import DriverSource, vendor_of

    source = DriverSource(config.general.interval_s, vendor_of())
    await source.start()
    return source


def build(
    config: Config,
    options: Options,
    hardware: Source | None,
    history: History | None = None,
    keepers: Sequence[Keeper] = (),
    *,
    with_past: bool = False,
) -> Collector:
    """The collector of this run, not started. Nothing is connected to yet.

    `with_past`: the simulated server's past is there to be relived, in place of its warm-up.

    It imports what it needs here: that takes 0.1 s, which the screen's first paint does not wait for.
    """
    from gpumon.collector import Collector
    from gpumon.sources.attachment import EngineFacts
    from gpumon.sources.endpoint import EndpointSource
    from gpumon.sources.host import HostMeter

    endpoints: tuple[Endpoint, ...] = getattr(hardware, "endpoints", config.endpoint)
    pages, files = _feeds(config, hardware)
    own = [each for each in endpoints if "*" not in each.url]  # one with a `*` is of a fleet's
    polled = [*(EndpointSource(each, config.general.engine_interval_s) for each in own), *pages]
    listed = {each.reading.key: each.endpoint for each in polled} | {each.reading.key: each.endpoint for each in files}
    exporters = _exporters(config, options)
    owner, discovery = (None, None) if options.demo else _discovery(config, polled, listed, hardware)
    (commands, alerts) = _alerting(config)
    (deriver, triage) = maker(config, hardware)()
    if options.for_fleet:
        from gpumon.triage.triage import FIRST_HOLD_S

        triage.first_hold_s = FIRST_HOLD_S
    facts = EngineFacts(listed, config.model, owner, nvml=bool(hardware or exporters))
    return Collector(
        [source for source in (hardware, *exporters, *polled, *files, discovery) if source is not None],
        deriver,
        getattr(hardware, "host_meter", _as_it_is)(HostMeter()),
        facts,
        interval_s=config.general.interval_s,
        simulated=options.demo,
        history=history,
        see_gpus=discovery.see if discovery is not None else None,
        alerts=alerts,
        on_alert=commands.call,
        keepers=keepers,
        troubles=(commands.fault, *(keeper.fault for keeper in keepers if hasattr(keeper, "fault"))),
        triage=triage,
        memory=_memory(options, hardware, discovery),
        past=_past(hardware, polled, facts) if with_past else None,
    )


def _discovery(
    config: Config, polled: Sequence[EndpointSource], listed: dict[str, Endpoint], hardware: Source | None
) -> tuple[Ownership | None, Discovery | None]:
    """What finds engines on this host, and who owns which process; None and None where it is off or can not look."""
    if not config.discovery.enabled:
        return None, None
    from gpumon.sources.discovery.source import discover
    from gpumon.sources.ownership import Ownership

    owner = Ownership()
    discovery = discover(config, polled, listed, owner, hardware)
    return (None, None) if discovery is None else (owner, discovery)


def _past(hardware: Source | None, polled: Sequence[EndpointSource], facts: EngineFacts) -> AsyncIterator[Round] | None:
    """The past of the simulated server; None where the hardware is real."""
    from gpumon.sources.simulator.past import past_of
    from gpumon.sources.simulator.source import SimulatedServer

    if isinstance(hardware, SimulatedServer):
        return past_of(hardware, polled, facts)
    return None


def _memory(options: Options, hardware: Source | None, discovery: Discovery | None) -> Memory | None:
    """The memory of engines; the simulated server is remembered in no file."""
    from gpumon.sources.last_seen.keeper import Keeper
    from gpumon.sources.last_seen.store import Store, state_file

    if options.demo:
        return Keeper(None, None, simulated=getattr(hardware, "around", None))
    path = state_file(os.environ)
    servers = discovery.servers if discovery is not None else None
    return Keeper(servers, Store(path) if path is not None else None)


def _exporters(config: Config, options: Options) -> list[Source]:
    if not config.dcgm.url or options.demo:
        return []
    from gpumon.sources.dcgm import DcgmSource

    return [DcgmSource(config.dcgm)]


def _alerting(config: Config) -> tuple[AlertCommands, Alerts]:
    """Who runs the commands of alerts, and the alerts of the config."""
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.triage.alerts import AlertRule, Alerts, parse

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
    from gpumon.sources.feeds import feeds_of

    return feeds_of(msgspec.structs.replace(config, feed=feeds))


def maker(config: Config, hardware: object = None) -> Make:
    """What gives derivers and triages, to the collector and to the timelines over what it keeps.

    `hardware` may be a simulated server, which has thresholds of its own.
    """
    from gpumon.config.prices import triage_of
    from gpumon.efficiency.deriver import Deriver
    from gpumon.sources.packaged import gpu_catalogue

    gpus = gpu_catalogue(config.gpu)
    of_server = getattr(hardware, "thresholds", None)
    if of_server is None:
        thresholds = config.triage
    else:
        thresholds = of_server(config.triage)
    return lambda: (Deriver(gpus), triage_of(config, gpus, thresholds))


class Calibrator:
    """Sees every snapshot that is shown. It imports what it needs late: the screen's first paint does not wait."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._newest: Snapshot | None = None
        self._profiles: Mapping[str, Observed] = {}
        self._own: dict[str, LlmSpec] = {}
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read the imported profiles."""
        self._reading = asyncio.create_task(self._read_profiles())

    def stop(self) -> None:
        """Stop reading, if it ever began."""
        if self._reading is not None:
            self._reading.cancel()

    def take(self, snapshot: Snapshot) -> None:
        """Look at one snapshot."""
        self._newest = snapshot
        self.calibration.take(snapshot)

    @cached_property
    def calibration(self) -> Calibration:
        """What the engines were seen to do, gathered at every snapshot."""
        from gpumon.sizing.calibration import Calibration

        return Calibration()

    async def _read_profiles(self) -> None:
        from gpumon.config.profile_store import profiles

        self._profiles = await asyncio.to_thread(profiles, os.environ)

    def known(self) -> Known:
        """What sizing looks up, as it is known by now; imported profiles a moment after the start."""
        from gpumon.config.prices import prices_per_hour
        from gpumon.sizing.live import have, own_models
        from gpumon.sizing.scenario import Known
        from gpumon.sources.model_facts import OwnModels
        from gpumon.sources.packaged import gpu_catalogue, llm_catalogue

        newest = self._newest
        gpus = gpu_catalogue(self._config.gpu)
        if newest is not None:
            self._own |= own_models(newest)  # an engine that is gone leaves its dimensions to what was measured on it
        own = OwnModels(self._own, self._config.model)
        if newest is not None:
            here = have(newest)
        else:
            here = ()
        prices = prices_per_hour(self._config.sizing, gpus, (name for name, _ in here))
        return Known(gpus=gpus, llms=llm_catalogue(), own=own, profiles=self._profiles, prices=prices)


Take = Callable[[Snapshot], None]


class SnapshotSource(Protocol):
    """What brings the snapshots of a session, and keeps them: this host, a recording, a host of a fleet."""

    history: History
    """Series for the charts."""
    timeline: Timeline | None
    """Where one can go back to; None: nowhere."""
    playback: Playback | None
    """Set where this is a recording."""
    filling: bool
    """Whether the past of the charts is still being read."""

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""

    def set_interval(self, seconds: float) -> None:
        """Change that."""

    def refresh(self) -> None:
        """Take a snapshot now."""

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine, not read yet; or why there is none here, with what to do."""

    async def begin(self, show: Take, learn: Take) -> None:
        """Get ready, soon. `show` gets each snapshot to be shown, `learn` each that sizing may learn from."""

    async def run(self) -> None:
        """Bring snapshots until it is cancelled; raises what ends it otherwise."""

    async def end(self) -> None:
        """Let go of everything, within a fraction of a second."""


class Session:
    """What a screen is attached to: the snapshots of a source, its past, and what sizing learns from both."""

    def __init__(self, config: Config, source: SnapshotSource) -> None:
        self._config = config
        self._source = source
        self._calibrator = Calibrator(config)
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    @property
    def history(self) -> History:
        """Series for the charts, on the clock of `Snapshot.wall_s`."""
        return self._source.history

    @property
    def timeline(self) -> Timeline | None:
        """The past; None: there is none."""
        return self._source.timeline

    @property
    def playback(self) -> Playback | None:
        """Set where this is a recording."""
        return self._source.playback

    @property
    def filling(self) -> bool:
        """Whether the past of the charts is still being read."""
        return self._source.filling

    @cached_property
    def prices(self) -> Mapping[str, float]:
        """Catalogue name of a GPU -> price of one hour, "" for all others; empty: none are known."""
        from gpumon.config.prices import running_prices
        from gpumon.sources.packaged import gpu_catalogue

        return running_prices(self._config.sizing, gpu_catalogue(self._config.gpu))

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""
        return self._source.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change that."""
        self._source.set_interval(seconds)

    def refresh(self) -> None:
        """Take a snapshot now."""
        self._source.refresh()

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine, not read yet; or why there is none here, with what to do."""
        return self._source.engine_log(engine)

    @property
    def calibration(self) -> Calibration:
        """What the engines were seen to do, gathered at every snapshot."""
        return self._calibrator.calibration

    def known(self) -> Known:
        """What sizing looks up, as it is known by now; imported profiles a moment after the start."""
        return self._calibrator.known()

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._begun

    async def start(self, sink: Take) -> None:
        """Begin; returns soon. `sink` gets every snapshot, in this event loop. May be called again after `stop`."""
        self._begun = True
        await self._source.begin(sink, self._calibrator.take)
        self._calibrator.start()
        self._task = asyncio.create_task(self._source.run())

    async def ended(self) -> None:
        """Wait until it is stopped; raises what ended it otherwise."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop it, if it ever started."""
        self._begun = False
        self._calibrator.stop()
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=0.25)
        await self._source.end()


class ThisHost:
    """A collector, built when the screen stands, in a thread; or the simulated server."""

    playback: Playback | None = None
    filling = False

    def __init__(self, config: Config, options: Options) -> None:
        self.history = History()
        self.timeline: Timeline | None = None
        self._config = config
        self._options = options
        self._interval_s = config.general.interval_s
        self._collector: Collector | None = None
        self._serving: dict[str, Origin] = {}
        """Servers whose log was looked at and that discovery does not follow, by key of their engine."""

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

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine that runs, or ran, on this host."""
        from gpumon.sources.engine_log.log import EngineLog, serving_origin
        from gpumon.sources.last_seen.keeper import Keeper
        from gpumon.sources.last_seen.records import NO_ORIGIN

        if self._options.demo:
            return f"{engine.name} is simulated and writes no log"
        memory = self._collector.memory if self._collector is not None else None

        origins = self._serving

        def origin() -> Origin:
            if isinstance(memory, Keeper):
                known = memory.origin(engine.key, engine.url)
            else:
                known = NO_ORIGIN
            if known.pid:
                return known
            serving = serving_origin(engine.url)
            if serving.pid:
                origins[engine.key] = serving
            return origins.get(engine.key, NO_ORIGIN)

        return EngineLog(origin)

    async def begin(self, show: Take, learn: Take) -> None:
        """Build the collector and start it."""
        hardware = await open_hardware(self._config, self._options, with_past=True)
        collector = await asyncio.to_thread(self._built, hardware)
        if self._interval_s != collector.interval_s:
            collector.set_interval(self._interval_s)
        self._collector = collector

        def take(snapshot: Snapshot) -> None:
            learn(snapshot)
            show(snapshot)

        await collector.relive(learn)
        await collector.start(take, early=True)

    def _built(self, hardware: Source | None) -> Collector:
        """The collector, with the frames of the last minutes that this run keeps."""
        config = self._config
        keepers = []
        if config.recorder.minutes:
            import socket

            from gpumon.history.file import facts
            from gpumon.history.memory import MemoryStore
            from gpumon.history.recorder import write_recording
            from gpumon.history.timeline import DerivedTimeline

            store = MemoryStore(config.recorder.minutes * 60.0, config.recorder.memory_mb * 1e6)
            about = facts(socket.gethostname(), simulated=self._options.demo)
            self.timeline = DerivedTimeline(
                store, maker(config, hardware), lambda path: write_recording(Path(path), store, about), self.history
            )
            keepers.append(store)
        return build(config, self._options, hardware, self.history, keepers, with_past=self._options.demo)

    async def run(self) -> None:
        """Until ticking ends."""
        assert self._collector is not None, "not begun"
        await self._collector.ended()

    async def end(self) -> None:
        """Stop the collector, if it was ever built."""
        if self._collector is not None:
            await self._collector.stop()


def failed_worker(snapshot: Snapshot) -> str:
    """Why nothing is known of the GPUs: the driver's worker can not be started, or ended. Empty if it runs."""
    from gpumon.sources.driver.source import AMD, NVIDIA

    for fault in snapshot.faults:
        for vendor in (NVIDIA, AMD):
            if fault.source == vendor.source and fault.text.startswith(vendor.worker):
                return fault.text
    return ""


def nothing(snapshot: Snapshot) -> bool:
    """Whether there is neither a GPU nor an endpoint, nor hope of one: the driver is not still initialising."""
    return not snapshot.gpus and not snapshot.engines
