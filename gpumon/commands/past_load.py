"""Loads and traffic of a recording or a Prometheus, and the look-ups of sizing, for `size` and `simulate`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.history.reader import Recording
    from gpumon.readings.fleet import FleetFrame
    from gpumon.readings.frame import Frame
    from gpumon.sizing.peaks import PeakLoad
    from gpumon.sizing.scenario import Catalogues, Scenario
    from gpumon.sizing.simulate.traffic import RecordedTraffic
    from gpumon.sources.prometheus.source import FleetSource
    from gpumon.specs.llm import LlmSpec

LOAD_S: Final = 7 * 86400.0
"""Seconds of a Prometheus whose load counts, without --from."""
TRAFFIC_S: Final = 3600.0
"""Seconds of a Prometheus whose traffic is played, without --from."""
LONGEST_S: Final = 366 * 86400.0
_MOMENTS: Final = 20
"""Scrapes before now that tell how fast the engines are, and of what lengths."""
_CHUNK_S: Final = 60.0
"""Frames of a recording are read by the minute."""


def recorded_load(chosen: argparse.Namespace, config: Config, base: Scenario) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """Load of the engines of a recording at their p95, in the scenario `base`, and their models."""
    from gpumon.commands.stretch import open_recording, tell_damage
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.history.derivation import Derivation, derived_moments
    from gpumon.session.build import maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    recording, (from_s, to_s) = open_recording(chosen.recording, chosen.since, chosen.until)
    calibration = Calibration()
    loads = PastLoads()
    last = None
    for snapshot in derived_moments(recording, Derivation(recording, maker(config)), from_s, to_s, 0.0):
        calibration.take(snapshot)
        loads.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
        if snapshot.engines or last is None:
            last = snapshot
    tell_damage(recording)
    if last is None or not loads.found():
        raise ConfigError(f"{file_name(chosen.recording)}: no engine was seen in it")
    return from_live(last, calibration.observed(), base, loads.found()), own_models(last)


async def scraped_load(
    chosen: argparse.Namespace, config: Config, base: Scenario
) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The p95 of what all engines of a Prometheus carried, of 7 days unless asked otherwise, in the scenario `base`, as
    those that run now serve it, and their models. Raises ConfigError where it does not answer, or knows of none."""
    from gpumon.fleet.fleet import Fleet
    from gpumon.fleet.whole import whole_fleet
    from gpumon.session.build import maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models

    async with prometheus_source(config) as (source, newest):
        step_s = max(newest.interval_s, config.prometheus.interval_s)
        fleet = Fleet(maker(config), step_s)
        calibration = Calibration()
        for back in range(_MOMENTS, -1, -1):
            for _ in fleet.steps(await source.frame(newest.wall_s - back * step_s)):
                pass
            calibration.take(whole_fleet(fleet.snapshot))
        start_s, end_s = scraped_span(chosen, newest.wall_s, LOAD_S)
        loads = await _loads(source, newest, config, start_s, end_s)
    last = whole_fleet(fleet.snapshot)
    return from_live(last, calibration.observed(), base, loads), own_models(last)


def scraped_span(chosen: argparse.Namespace, now_s: float, usual_s: float) -> tuple[float, float]:
    """The Unix times of --from and --to; without them the last `usual_s`. Raises ConfigError."""
    from gpumon.commands.stretch import time_of_option

    span = now_s - LONGEST_S, now_s
    if chosen.until:
        end_s = time_of_option("--to", chosen.until, span)
    else:
        end_s = now_s
    if chosen.since:
        start_s = time_of_option("--from", chosen.since, span)
    else:
        start_s = end_s - usual_s
    return start_s, end_s


async def prometheus_loads(config: Config) -> Mapping[str, PeakLoad]:
    """The p95 of what all engines of `[prometheus].url` carried in the last 7 days, by served model name. Raises
    ConfigError in one line where it does not answer, or knows of none."""
    async with prometheus_source(config) as (source, newest):
        return await _loads(source, newest, config, newest.wall_s - LOAD_S, newest.wall_s)


@asynccontextmanager
async def prometheus_source(config: Config) -> AsyncIterator[tuple[FleetSource, FleetFrame]]:
    """The Prometheus of the settings with its newest frame; its faults become ConfigErrors."""
    from gpumon.config.errors import ConfigError
    from gpumon.sources.prometheus.api import ApiFault
    from gpumon.sources.prometheus.source import FleetSource

    source = FleetSource(config.prometheus, config.model, config.endpoint)
    try:
        newest = await source.frame()
        if not newest.answered:
            raise ConfigError(f"prometheus: {newest.faults[0].text if newest.faults else 'no answer'}")
        yield source, newest
    except ApiFault as fault:
        raise ConfigError(f"prometheus: {fault.text}") from None
    finally:
        await source.close()


async def _loads(
    source: FleetSource, newest: FleetFrame, config: Config, start_s: float, end_s: float
) -> Mapping[str, PeakLoad]:
    """The p95 of all engines together between two Unix times. Raises ApiFault, and ConfigError where there is none."""
    from gpumon.config.errors import ConfigError
    from gpumon.fleet.pipeline import HostPipeline
    from gpumon.session.build import maker
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    make = maker(config)
    step_s = max(newest.interval_s, config.prometheus.interval_s)
    pasts = [await source.past(host.name, start_s, end_s, step_s) for host in newest.hosts]
    # Moments are further apart where a host has many series: its answers are bounded.
    apart = [min((b[0] - a[0] for a, b in pairwise(frames)), default=step_s) for frames in pasts]
    machines = []
    for frames, apart_s in zip(pasts, apart, strict=True):
        pipeline = HostPipeline(make, charted=False, judged=False)
        loads = PastLoads(max(apart))
        for at_s, frame in frames:
            snapshot = pipeline.take(frame, at_s, max(frame.interval_s, apart_s)).snapshot
            loads.take(at_s, in_flight(snapshot), request_rates(snapshot))
        machines.append(loads)
    if machines:
        peak_loads = machines[0].found(*machines[1:])
    else:
        peak_loads = {}
    if not peak_loads:
        raise ConfigError("prometheus: it scraped no engine in that time")
    return peak_loads


def recorded_traffic(chosen: argparse.Namespace, name: str) -> Mapping[str, RecordedTraffic]:
    """Arrivals and lengths of a recording. Raises ConfigError where no request was seen in it."""
    from gpumon.commands.stretch import open_recording
    from gpumon.config.errors import ConfigError
    from gpumon.sizing.simulate.traffic import TrafficRecorder

    recording, (from_s, to_s) = open_recording(chosen.recording, chosen.since, chosen.until)
    traffic = TrafficRecorder()
    for frame in _frames(recording, from_s, to_s):
        traffic.take(frame.wall_s, frame.engines)
    arrivals = traffic.by_model()
    if not arrivals:
        raise ConfigError(f"{name}: no request was seen to arrive in it")
    return arrivals


def _frames(recording: Recording, from_s: float, to_s: float) -> Iterator[Frame]:
    """Frames of a recording, by rising time."""
    from gpumon.history.derivation import in_order

    chunk_s: float | None = from_s
    while chunk_s is not None and chunk_s <= to_s:
        end_s = min(to_s, chunk_s + _CHUNK_S)
        yield from in_order(recording.frames(chunk_s, end_s))
        chunk_s = recording.after(end_s)


async def scraped_traffic(chosen: argparse.Namespace, config: Config, usual_s: float) -> Mapping[str, RecordedTraffic]:
    """Arrivals and lengths of what a Prometheus scraped, of the last `usual_s` unless asked otherwise. Raises
    ConfigError where no request was seen to arrive."""
    from gpumon.config.errors import ConfigError
    from gpumon.sizing.simulate.traffic import TrafficRecorder

    async with prometheus_source(config) as (source, newest):
        step_s = max(newest.interval_s, config.prometheus.interval_s)
        start_s, end_s = scraped_span(chosen, newest.wall_s, usual_s)
        pasts = {}
        for host in newest.hosts:
            pasts[host.name] = await source.past(host.name, start_s, end_s, step_s)
    steps_s = (later[0] - earlier[0] for frames in pasts.values() for earlier, later in pairwise(frames))
    traffic = TrafficRecorder(max(steps_s, default=step_s))
    moments = [(at_s, name, frame) for name, frames in pasts.items() for at_s, frame in frames]
    for at_s, name, frame in sorted(moments, key=lambda moment: moment[:2]):
        traffic.take(at_s, frame.engines, name)
    arrivals = traffic.by_model()
    if not arrivals:
        raise ConfigError("prometheus: no request was seen to arrive in that time")
    return arrivals


def sizing_look_ups(
    config: Config, scenario: Scenario, environ: Mapping[str, str], own: Mapping[str, LlmSpec] = MappingProxyType({})
) -> Catalogues:
    """The look-ups of sizing for a scenario: catalogues, models of the config, imported profiles, prices. Reads files.

    Raises ConfigError for a `[[model]]` entry of one of its models that does not hold together.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.config.prices import sizing_prices
    from gpumon.config.profile_store import profiles
    from gpumon.sizing.scenario import Catalogues
    from gpumon.sources.model_facts import OwnModels, configured
    from gpumon.sources.packaged import gpu_catalogue, llm_catalogue

    try:
        for workload in scenario.workload:
            configured(workload.model, config.model)
    except ValueError as wrong:
        raise ConfigError(str(wrong)) from None
    gpus = gpu_catalogue(config.gpu)
    return Catalogues(
        gpus=gpus,
        llms=llm_catalogue(),
        own=OwnModels(own, config.model),
        profiles=profiles(environ),
        prices=sizing_prices(config, gpus, (server.gpu for server in scenario.server)),
    )
