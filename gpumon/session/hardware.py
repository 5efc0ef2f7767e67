"""The GPUs of this run: those of the host's driver, none, or those of a simulated server and what belongs to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpumon.config.options import Options
from gpumon.config.prices import goals_of
from gpumon.config.schema import Config, Endpoint, Feed
from gpumon.readings.goals import Goals
from gpumon.triage.thresholds import Thresholds

if TYPE_CHECKING:
    from subprocess import Popen

    from gpumon.demo.source import SimulatedServer
    from gpumon.sources.attachment import EngineResolver
    from gpumon.sources.endpoint import EndpointSource
    from gpumon.sources.last_seen.processes.process_state import ProcessState
    from gpumon.sources.source import HostMeter, Round, Source


class Simulation(NamedTuple):
    """All but the GPUs that a simulated server stands in for."""

    host_meter: Callable[[HostMeter], HostMeter]
    """Makes a meter of the real host into one of the simulated host."""
    process_state: Callable[[], ProcessState]
    """State of the processes of its engines."""
    past: Callable[[Sequence[EndpointSource], EngineResolver], AsyncIterator[Round]]
    """Rounds of its past, from the sources of its endpoints and feeds in their order."""


class Hardware(NamedTuple):
    """Source of the GPUs, and the settings that go with them: of the config, or of the simulated server."""

    gpus: Source | None
    """None: this run reads no driver."""
    endpoints: tuple[Endpoint, ...]
    feeds: tuple[Feed, ...]
    thresholds: Thresholds
    goals: Goals
    simulation: Simulation | None = None


def start_worker(options: Options) -> Popen[bytes] | None:
    """The worker of the GPUs' driver, started and asked for its first report; None where this run has none.

    It gets ready in the time in which the screen is imported and painted for the first time.
    """
    if options.demo or not options.nvml:
        return None
    from gpumon.sources.driver.source import start_and_ask_worker, vendor_of

    return start_and_ask_worker(vendor_of())


async def open_hardware(
    config: Config, options: Options, *, with_past: bool = False, worker: Popen[bytes] | None = None
) -> Hardware:
    """The GPUs of this run, their source started before the rest is imported, so that the driver worker starts
    meanwhile.

    `with_past`: the simulated server gets a past; give it to `build`, too. `worker`: what `start_worker` returned.
    """
    if options.demo:
        from gpumon.demo.scenarios import DEMO, scenario
        from gpumon.demo.source import SimulatedServer

        play = scenario(options.scenario) if options.scenario else DEMO
        if with_past:
            play = msgspec.structs.replace(play, warm_s=play.past_s)
        return simulated_hardware(SimulatedServer(play), config)
    hardware = Hardware(None, config.endpoint, config.feed, config.triage, goals_of(config.goals))
    if not options.nvml:
        return hardware
    from gpumon.sources.driver.source import DriverSource, vendor_of

    source = DriverSource(config.general.interval_s, vendor_of(), worker=worker)
    await source.start()
    return hardware._replace(gpus=source)


def simulated_hardware(server: SimulatedServer, config: Config) -> Hardware:
    """The GPUs of a simulated server, and what it brings in the place of the config."""
    from gpumon.demo.past import past_of

    return Hardware(
        gpus=server,
        endpoints=server.endpoints,
        feeds=server.feeds,
        thresholds=server.thresholds(config.triage),
        goals=server.goals(goals_of(config.goals)),
        simulation=Simulation(
            host_meter=server.host_meter,
            process_state=server.process_state,
            past=lambda sources, facts: past_of(server, sources, facts),
        ),
    )
