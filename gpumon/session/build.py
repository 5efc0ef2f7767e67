"""The collector of this host, made of the sources that the config and the options name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from gpumon.config.options import Options
from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.session.hardware import Hardware, Simulation

if TYPE_CHECKING:
    from gpumon.collector import Collector, Push, Remembering, TickKeeper
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.readings.frame import Fault
    from gpumon.sources.acknowledging import AcknowledgementKeeper
    from gpumon.sources.discovery.source import EngineDiscovery
    from gpumon.sources.endpoint import EndpointSource
    from gpumon.sources.file_feed import FileFeed
    from gpumon.sources.ownership import Ownership
    from gpumon.sources.source import HostMeter, Source
    from gpumon.triage.alerts import Alerts
    from gpumon.triage.fresh import MakeDeriver


def build(
    config: Config,
    options: Options,
    hardware: Hardware,
    history: History | None = None,
    keepers: Sequence[TickKeeper] = (),
    *,
    with_past: bool = False,
    push: Push | None = None,
) -> Collector:
    """The collector of this run, not started. Nothing is connected to yet.

    `with_past`: the simulated server has a past (`open_hardware`), to be relived in place of its warm-up. `push`: the
    webhooks.

    It imports what it needs here: that takes 0.1 s, which the screen's first paint does not wait for.
    """
    from gpumon.collector import Collector
    from gpumon.sources.attachment import EngineResolver
    from gpumon.sources.host import ProcMeter

    page_feeds, file_feeds = _feeds(config, hardware.feeds)
    polled = [*_endpoints(config, hardware.endpoints), *page_feeds]
    listed = {source.reading.key: source.endpoint for source in polled}
    for feed in file_feeds:
        listed[feed.reading.key] = feed.endpoint
    exporters = _exporters(config, options)
    ownership = None
    discovery = None
    if not options.demo:
        ownership, discovery = _discovery(config, polled, listed, hardware.gpus)
    commands, alerts = _alerts_of(config)
    deriver, triage = deriver_maker(config, hardware)()
    if options.for_fleet:
        from gpumon.triage.triage import FIRST_HOLD_S

        triage.first_hold_s = FIRST_HOLD_S
    facts = EngineResolver(listed, config.model, ownership, nvml=bool(hardware.gpus or exporters))
    simulation = hardware.simulation
    past = simulation.past(polled, facts) if with_past and simulation is not None else None
    see_gpus = discovery.see if discovery is not None else None
    acknowledging = _acknowledging(options)
    host_meter: HostMeter = ProcMeter()
    if simulation is not None:
        host_meter = simulation.host_meter(host_meter)
    sources = (hardware.gpus, *exporters, *polled, *file_feeds, discovery)
    return Collector(
        [source for source in sources if source is not None],
        deriver,
        host_meter,
        facts,
        interval_s=config.general.interval_s,
        simulated=options.demo,
        history=history,
        see_gpus=see_gpus,
        alerts=alerts,
        on_alert=commands.call,
        keepers=keepers,
        troubles=[*_fault_checks(commands, keepers, push), acknowledging.fault],
        triage=triage,
        memory=_memory(config, simulation, discovery),
        past=past,
        push=push,
        acknowledging=acknowledging,
    )


def _acknowledging(options: Options) -> AcknowledgementKeeper:
    """The keeper of acknowledgements; those of a simulated server are in no file."""
    from gpumon.sources.acknowledged import AcknowledgementStore, acknowledged_file
    from gpumon.sources.acknowledging import AcknowledgementKeeper

    path = acknowledged_file(os.environ)
    if options.demo or path is None:
        return AcknowledgementKeeper(None)
    return AcknowledgementKeeper(AcknowledgementStore(path))


def _endpoints(config: Config, endpoints: Iterable[Endpoint]) -> Iterator[EndpointSource]:
    """Sources of the engines that are listed; a URL with `*` is for a fleet's engines."""
    from gpumon.sources.endpoint import EndpointSource

    for endpoint in endpoints:
        if "*" not in endpoint.url:
            yield EndpointSource(endpoint, config.general.engine_interval_s)


def _fault_checks(
    commands: AlertCommands, keepers: Sequence[TickKeeper], push: Push | None
) -> list[Callable[[float], Fault | None]]:
    """Functions that are asked at each tick for a fault: of the alerts' commands, of webhooks, and of keepers."""
    troubles: list[Callable[[float], Fault | None]] = [commands.fault]
    if push is not None:
        troubles += push.troubles
    for keeper in keepers:
        if hasattr(keeper, "fault"):
            troubles.append(keeper.fault)
    return troubles


def _discovery(
    config: Config, polled: Sequence[EndpointSource], listed: dict[str, Endpoint], gpus: Source | None
) -> tuple[Ownership | None, EngineDiscovery | None]:
    """Process ownership and discovery of engines on this host; None and None where discovery is off or cannot look."""
    if not config.discovery.enabled:
        return None, None
    from gpumon.sources.discovery.source import discover
    from gpumon.sources.ownership import Ownership

    ownership = Ownership()
    discovery = discover(config, polled, listed, ownership, gpus)
    if discovery is None:
        return None, None
    return ownership, discovery


def _memory(config: Config, simulation: Simulation | None, discovery: EngineDiscovery | None) -> Remembering | None:
    """The memory of engines and GPUs; the simulated server is remembered in no file."""
    from gpumon.sources.endpoint_url import parse_url
    from gpumon.sources.last_seen.keeper import LastSeenKeeper
    from gpumon.sources.last_seen.store import LastSeenStore, state_file

    if simulation is not None:
        return LastSeenKeeper(None, None, simulated=simulation.process_state)
    path = state_file(os.environ)
    servers = discovery.servers if discovery is not None else None
    store = LastSeenStore(path) if path is not None else None
    exporter = parse_url(config.dcgm.url).base if config.dcgm.url else ""
    return LastSeenKeeper(servers, store, exporter=exporter)


def _exporters(config: Config, options: Options) -> list[Source]:
    """The dcgm-exporter of the config, if it names one."""
    if not config.dcgm.url or options.demo:
        return []
    from gpumon.sources.dcgm import DcgmSource

    return [DcgmSource(config.dcgm)]


def _alerts_of(config: Config) -> tuple[AlertCommands, Alerts]:
    """The runner of the commands of alerts, and the alerts of the config."""
    from gpumon.outputs.alert_commands import AlertCommands
    from gpumon.triage.alerts import AlertRule, Alerts, parse

    rules = tuple(
        AlertRule(
            name=alert.name or alert.when,
            condition=parse(alert.when),
            for_s=alert.for_s,
            clear_s=alert.clear_s,
            bell=alert.bell,
            title=alert.title,
            command=alert.command,
        )
        for alert in config.alert
    )
    return AlertCommands(), Alerts(rules)


def _feeds(config: Config, feeds: tuple[Feed, ...]) -> tuple[Sequence[EndpointSource], Sequence[FileFeed]]:
    """Sources of the feeds that are listed: those with a page, and those with a file."""
    if not feeds:
        return (), ()
    from gpumon.sources.feeds import feeds_of

    return feeds_of(msgspec.structs.replace(config, feed=feeds))


def deriver_maker(config: Config, hardware: Hardware | None = None) -> MakeDeriver:
    """A maker of derivers and triages, for the collector and for the timelines over what it keeps.

    The thresholds and goals are those of `hardware`; without it those of the config.
    """
    from gpumon.config.prices import goals_of, running_prices, triage_of
    from gpumon.efficiency.deriver import Deriver
    from gpumon.sources.packaged import gpu_catalogue

    gpus = gpu_catalogue(config.gpu)
    thresholds = hardware.thresholds if hardware else config.triage
    goals = hardware.goals if hardware else goals_of(config.goals)
    prices = running_prices(config, gpus)
    return lambda: (Deriver(gpus, goals, prices), triage_of(config, gpus, thresholds, goals))


def failed_worker(snapshot: Snapshot) -> str:
    """Why nothing is known of the GPUs: the driver's worker cannot be started, or ended. Empty if it runs."""
    from gpumon.sources.driver.source import VENDORS

    for fault in snapshot.faults:
        for vendor in VENDORS:
            if fault.source == vendor.source and fault.text.startswith(vendor.worker):
                return fault.text
    return ""


def has_nothing_to_show(snapshot: Snapshot) -> bool:
    """Whether there is neither a GPU nor an engine to show."""
    return not snapshot.gpus and not snapshot.engines
