"""Loads and traffic of a recording or a Prometheus, and the look-ups of sizing, for `size` and `simulate`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.history.reader import Recording
    from gpumon.readings.fleet import FleetFrame, HostFrame
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
"""Most seconds before now at which a time of the command line may lie."""
_CALIBRATION_SCRAPES: Final = 20
"""Scrapes before now that tell how fast the engines are, and of what lengths."""
_CHUNK_S: Final = 60.0
"""Seconds of a recording that are read at once."""


def recorded_load(chosen: argparse.Namespace, config: Config, base: Scenario) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The scenario `base` with the p95 load of the engines of a recording, and their models. Raises ConfigError."""
    from gpumon.commands.stretch import open_recording, tell_damage
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.history.derivation import Derivation, derived_moments
    from gpumon.session.build import deriver_maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    recording, (from_s, to_s) = open_recording(chosen.recording, chosen.since, chosen.until)
    calibration = Calibration()
    loads = PastLoads()
    last = None
    derivation = Derivation(recording, deriver_maker(config))
    for snapshot in derived_moments(recording, derivation, from_s, to_s, every_s=0.0):
        calibration.take(snapshot)
        loads.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
        if snapshot.engines or last is None:
            last = snapshot
    tell_damage(recording)
    if last is None or not loads.peak_loads():
        raise ConfigError(f"{file_name(chosen.recording)}: no engine was seen in it")
    return from_live(last, calibration.observed(), base, loads.peak_loads()), own_models(last)


async def scraped_load(
    chosen: argparse.Namespace, config: Config, base: Scenario
) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The scenario `base` with the p95 load of all engines of a Prometheus, served as those that run now serve it.

    Returns it with their models. The load is that of 7 days unless asked otherwise. Raises ConfigError where the
    Prometheus does not answer, or knows of no engine.
    """
    from gpumon.fleet.fleet import Fleet
    from gpumon.fleet.whole import whole_fleet
    from gpumon.session.build import deriver_maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models

    async with prometheus_source(config) as (source, newest):
        step_s = max(newest.interval_s, config.prometheus.interval_s)
        fleet = Fleet(deriver_maker(config), step_s)
        calibration = Calibration()
        for scrapes_ago in range(_CALIBRATION_SCRAPES, -1, -1):
            fleet.take(await source.frame(newest.wall_s - scrapes_ago * step_s))
            calibration.take(whole_fleet(fleet.snapshot))
        start_s, end_s = scraped_span(chosen, newest.wall_s, LOAD_S)
        loads = await _peak_loads(source, newest, config, start_s, end_s)
    last = whole_fleet(fleet.snapshot)
    return from_live(last, calibration.observed(), base, loads), own_models(last)


def scraped_span(chosen: argparse.Namespace, now_s: float, usual_s: float) -> tuple[float, float]:
    """The Unix times of --from and --to; without them the last `usual_s`. Raises ConfigError."""
    from gpumon.commands.stretch import time_of_option

    allowed_span = (now_s - LONGEST_S, now_s)
    end_s = time_of_option("--to", chosen.until, allowed_span) if chosen.until else now_s
    start_s = time_of_option("--from", chosen.since, allowed_span) if chosen.since else end_s - usual_s
    return start_s, end_s


async def prometheus_loads(config: Config) -> Mapping[str, PeakLoad]:
    """Served model name -> p95 load of its engines of `[prometheus].url` in the last 7 days.

    Raises ConfigError in one line where the Prometheus does not answer, or knows of no engine.
    """
    async with prometheus_source(config) as (source, newest):
        return await _peak_loads(source, newest, config, newest.wall_s - LOAD_S, newest.wall_s)


@asynccontextmanager
async def prometheus_source(config: Config) -> AsyncIterator[tuple[FleetSource, FleetFrame]]:
    """Open the Prometheus of the settings, with its newest frame; its faults become ConfigErrors."""
    from gpumon.config.errors import ConfigError
    from gpumon.sources.prometheus.api import ApiFault
    from gpumon.sources.prometheus.source import FleetSource

    source = FleetSource(config.prometheus, config.model, config.endpoint)
    try:
        newest = await source.frame()
        if not newest.answered:
            reason = newest.faults[0].text if newest.faults else "no answer"
            raise ConfigError(f"prometheus: {reason}")
        yield source, newest
    except ApiFault as fault:
        raise ConfigError(f"prometheus: {fault.text}") from None
    finally:
        await source.close()


async def _peak_loads(
    source: FleetSource, newest: FleetFrame, config: Config, start_s: float, end_s: float
) -> Mapping[str, PeakLoad]:
    """Served model name -> p95 load of its engines on all hosts between two Unix times.

    Raises ApiFault, and ConfigError where there is no engine.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.fleet.pipeline import HostPipeline
    from gpumon.session.build import deriver_maker
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    make = deriver_maker(config)
    step_s = max(newest.interval_s, config.prometheus.interval_s)
    pasts = [await source.past(host.name, start_s, end_s, step_s) for host in newest.hosts]
    # Moments are further apart where a host has many series: its answers are bounded.
    steps_s = [_least_step_s(frames, step_s) for frames in pasts]
    host_loads = []
    for frames, host_step_s in zip(pasts, steps_s, strict=True):
        pipeline = HostPipeline(make, charted=False, judged=False)
        loads = PastLoads(max(steps_s))
        for moment_s, frame in frames:
            snapshot = pipeline.take(frame, moment_s, max(frame.interval_s, host_step_s)).snapshot
            loads.take(moment_s, in_flight(snapshot), request_rates(snapshot))
        host_loads.append(loads)
    peak_loads: Mapping[str, PeakLoad] = host_loads[0].peak_loads(*host_loads[1:]) if host_loads else {}
    if not peak_loads:
        raise ConfigError("prometheus: it scraped no engine in that time")
    return peak_loads


def _least_step_s(frames: Sequence[tuple[float, HostFrame]], step_s: float) -> float:
    """Seconds between the two nearest moments of a host's past; `step_s` where there is one moment at most."""
    return min((later_s - earlier_s for (earlier_s, _), (later_s, _) in pairwise(frames)), default=step_s)


def recorded_traffic(chosen: argparse.Namespace, name: str) -> Mapping[str, RecordedTraffic]:
    """Model -> arrivals and lengths in a recording, which errors call `name`.

    Raises ConfigError where no request was seen to arrive in it.
    """
    from gpumon.commands.stretch import open_recording
    from gpumon.config.errors import ConfigError
    from gpumon.sizing.simulate.traffic import TrafficRecorder

    recording, (from_s, to_s) = open_recording(chosen.recording, chosen.since, chosen.until)
    traffic = TrafficRecorder()
    for frame in _recorded_frames(recording, from_s, to_s):
        traffic.take(frame.wall_s, frame.engines)
    arrivals = traffic.by_model()
    if not arrivals:
        raise ConfigError(f"{name}: no request was seen to arrive in it")
    return arrivals


def _recorded_frames(recording: Recording, from_s: float, to_s: float) -> Iterator[Frame]:
    """Frames of a recording, by rising time."""
    from gpumon.history.derivation import in_order

    begin_s: float | None = from_s
    while begin_s is not None and begin_s <= to_s:
        end_s = min(to_s, begin_s + _CHUNK_S)
        yield from in_order(recording.frames(begin_s, end_s))
        begin_s = recording.after(end_s)


async def scraped_traffic(chosen: argparse.Namespace, config: Config, usual_s: float) -> Mapping[str, RecordedTraffic]:
    """Model -> arrivals and lengths of what a Prometheus scraped, in the last `usual_s` unless asked otherwise.

    Raises ConfigError where no request was seen to arrive.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.sizing.simulate.traffic import TrafficRecorder

    async with prometheus_source(config) as (source, newest):
        step_s = max(newest.interval_s, config.prometheus.interval_s)
        start_s, end_s = scraped_span(chosen, newest.wall_s, usual_s)
        pasts = {host.name: await source.past(host.name, start_s, end_s, step_s) for host in newest.hosts}
    steps_s = []
    for frames in pasts.values():
        for (earlier_s, _), (later_s, _) in pairwise(frames):
            steps_s.append(later_s - earlier_s)
    traffic = TrafficRecorder(max(steps_s, default=step_s))
    moments = [(moment_s, name, frame) for name, frames in pasts.items() for moment_s, frame in frames]
    for moment_s, name, frame in sorted(moments, key=lambda moment: moment[:2]):  # by time, then by host
        traffic.take(moment_s, frame.engines, name)
    arrivals = traffic.by_model()
    if not arrivals:
        raise ConfigError("prometheus: no request was seen to arrive in that time")
    return arrivals


def sizing_look_ups(
    config: Config,
    scenario: Scenario,
    environ: Mapping[str, str],
    own_models: Mapping[str, LlmSpec] = MappingProxyType({}),
) -> Catalogues:
    """The look-ups of sizing for a scenario: catalogues, models of the config, imported profiles, prices. Reads files.

    Raises ConfigError for a `[[model]]` entry of one of its models that does not hold together.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.config.prices import sizing_prices
    from gpumon.config.profile_store import all_profiles
    from gpumon.sizing.scenario import Catalogues
    from gpumon.sizing.simulate.tails import SimulatedTails
    from gpumon.sources.model_facts import OwnModels, configured
    from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue

    try:
        for workload in scenario.workload:
            configured(workload.model, config.model)
    except ValueError as wrong:
        raise ConfigError(str(wrong)) from None
    gpus = gpu_catalogue(config.gpu)
    catalogues = Catalogues(
        gpus=gpus,
        llms=llm_catalogue(),
        own=OwnModels(own_models, config.model),
        profiles=all_profiles(environ),
        prices=sizing_prices(config, gpus, (server.gpu for server in scenario.server)),
        networks=network_catalogue(),
        tails=SimulatedTails(),
    )
    return catalogues.with_models_of(scenario)
