"""`gpumon size`: how many instances, GPUs and servers a scenario takes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gpumon.commands.options import Usage, add_config, add_forms, add_span, check_span, settings
from gpumon.commands.streams import INFEASIBLE, OK, complain, width, write

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.readings.fleet import FleetFrame
    from gpumon.sizing.answer import Answer
    from gpumon.sizing.peaks import PeakLoad
    from gpumon.sizing.plan import Decide
    from gpumon.sizing.scenario import Known, Scenario
    from gpumon.sources.prometheus.source import FleetSource
    from gpumon.specs.llm import LlmSpec


_PAST_S: Final = 7 * 86400.0
_LONGEST_S: Final = 366 * 86400.0
_MOMENTS: Final = 20
"""Scrapes before now that tell how fast the engines are, and of what lengths."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the scenario, and the form of the answer."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="scenario file (docs/sizing-file.md); - reads standard input"
    )
    add_config(parser)
    parser.add_argument(
        "--from-recording",
        metavar="FILE",
        dest="recording",
        help="size for the p95 load of a recording",
    )
    parser.add_argument(
        "--from-prometheus",
        action="store_true",
        dest="scraped",
        help="size for the p95 load of a Prometheus, last 7 days or since --from",
    )
    parser.add_argument(
        "--assume-ttft",
        action="store_true",
        help="let a TTFT goal decide by an estimate where TTFT was not measured",
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="take the smallest plan that holds the goals at p95 in a simulation (docs/simulate.md)",
    )
    parser.add_argument(
        "--disaggregated",
        action="store_true",
        help="compare with prefill and decode on pools of their own",
    )
    parser.add_argument(
        "--compare",
        metavar="TYPE,TYPE",
        dest="compared",
        help="the same question on these GPU types, such as H100,H200,B200",
    )
    parser.add_argument("--prometheus", metavar="URL", help="Prometheus to ask (default [prometheus].url)")
    add_span(parser)
    add_forms(
        parser,
        json="one JSON object (docs/sizing.schema.json)",
        markdown="tables to paste into a ticket",
        csv="a line per workload, and one of totals",
    )


def run(chosen: argparse.Namespace) -> int:
    """Size, and print; the exit code is 4 where no plan meets what was asked."""
    from msgspec.structs import replace

    from gpumon.sizing.compare import compare
    from gpumon.sizing.plan import plan

    config = settings(chosen).loaded.config
    _check(chosen, config)
    scenario, own = _scenario(chosen, config)
    known = known_of(config, scenario, os.environ, own)
    _check_profiles(scenario, known, _place(chosen))
    answer = plan(scenario, known, decide=_simulation(chosen, config) if chosen.simulate else None)
    if chosen.compared:
        types = _gpu_types(chosen.compared, known)
        answer = replace(answer, compared=compare(scenario, known, types, answer).rows)
    _name_unknown_models(chosen, answer, known)
    _print(chosen.form, answer, scenario)
    return INFEASIBLE if answer.problem else OK


def _check(chosen: argparse.Namespace, config: Config) -> None:
    """Raises Usage where the options do not go together, or where there is nothing to size."""
    if not chosen.file and not chosen.recording and not chosen.scraped:
        raise Usage("size needs a scenario file, --from-recording FILE or --from-prometheus")
    check_span(chosen)
    if chosen.recording and chosen.scraped:
        raise Usage("--from-recording and --from-prometheus: one of them at a time")
    if chosen.simulate and chosen.compared:
        raise Usage("--simulate and --compare: other types of GPU are compared by formula; one of them at a time")
    if chosen.scraped and not config.prometheus.url:
        raise Usage("which Prometheus? Give --prometheus URL, or set [prometheus].url")


def _place(chosen: argparse.Namespace) -> str:
    """Place of the scenario, as errors name it."""
    from gpumon.config.load import named

    if chosen.file == "-":
        return "standard input"
    return named(chosen.file or "the settings")


def _scenario(chosen: argparse.Namespace, config: Config) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The scenario of the options, with what was recorded in it, and the models of what was recorded."""
    from msgspec.structs import replace

    from gpumon.sizing.scenario import Server, disaggregated

    own: Mapping[str, LlmSpec] = {}
    scenario = _written_scenario(chosen, config)
    if chosen.recording:
        scenario, own = recorded_load(chosen, config, scenario)
    elif chosen.scraped:
        scenario, own = asyncio.run(scraped_load(chosen, config, scenario))
    if not scenario.server and config.sizing.gpu:
        scenario = replace(scenario, server=(Server(gpu=config.sizing.gpu, gpus=config.sizing.gpus or 8),))
    if chosen.assume_ttft:
        scenario = replace(scenario, assume_ttft=True)
    if chosen.disaggregated:
        scenario = disaggregated(scenario)
    return scenario, own


def _written_scenario(chosen: argparse.Namespace, config: Config) -> Scenario:
    """The scenario of the file or of standard input, else an empty one with the settings of the config."""
    from gpumon.config.scenario_file import base_of, read_scenario, scenario_from_stream

    if chosen.file == "-":
        return scenario_from_stream(sys.stdin.buffer, _place(chosen))
    if chosen.file:
        return read_scenario(chosen.file)
    return base_of(config)


def _check_profiles(scenario: Scenario, known: Known, where: str) -> None:
    """Raises ConfigError for a workload whose profile is not there."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.profile_store import absent, stored_profiles

    for number, workload in enumerate(scenario.workload):
        if workload.profile and workload.seen is None and workload.profile not in known.profiles:
            why = absent(workload.profile, stored_profiles(os.environ))
            raise ConfigError(f"{where}: workload[{number}].profile: {why}")


def _name_unknown_models(chosen: argparse.Namespace, answer: Answer, known: Known) -> None:
    """Tell on standard error in which line of the scenario file a model is that nobody knows."""
    from gpumon.config.lines import line_among, places
    from gpumon.sizing.capacity import unknown_model

    if chosen.file in (None, "", "-"):
        return
    for number, row in enumerate(answer.workloads):
        unknown = ""
        if row.problem:
            unknown = unknown_model(row.model, known)
        if unknown:
            text = Path(chosen.file).read_text(encoding="utf-8-sig")
            line = line_among(places(text), ("workload", number, "model"))
            complain(f"{_place(chosen)}:{line}: workload[{number}].model: {unknown}", OK)


def _print(form: str, answer: Answer, scenario: Scenario) -> None:
    """Print the answer in a form; each is imported only where it is asked for."""
    if form == "json":
        from gpumon.outputs.sizing_data import encode

        write(encode(answer) + b"\n")
    elif form == "markdown":
        from gpumon.outputs.sizing import markdown

        write(markdown(answer, scenario))
    elif form == "csv":
        from gpumon.outputs.sizing_data import table

        write(table(answer))
    else:
        from gpumon.outputs.sizing import report

        write(report(answer, scenario, width=width()))


def _gpu_types(text: str, known: Known) -> tuple[str, ...]:
    """The types of `--compare`. Raises Usage for one that the catalogue does not have."""
    from gpumon.sizing.compare import gpu_types

    try:
        found = gpu_types(text, known)
    except ValueError as wrong:
        raise Usage(f"--compare: {wrong}") from None
    if not found:
        raise Usage("--compare needs GPU types, such as H100,H200,B200")
    return found


def _simulation(chosen: argparse.Namespace, config: Config) -> Decide:
    """Gives the needs of a workload by simulation, of the recorded traffic where there is such. Raises ConfigError."""
    from functools import partial

    from gpumon.commands.simulate import recorded_traffic, scraped_traffic
    from gpumon.config.load import named
    from gpumon.sizing.simulate.experiment import decide_by_simulation

    if chosen.recording:
        return partial(decide_by_simulation, traffic=recorded_traffic(chosen, named(chosen.recording)))
    if chosen.scraped:
        return partial(decide_by_simulation, traffic=asyncio.run(scraped_traffic(chosen, config, _PAST_S)))
    return decide_by_simulation


def recorded_load(chosen: argparse.Namespace, config: Config, base: Scenario) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """Load of the engines of a recording at their p95, in the scenario `base`, and their models."""
    from gpumon.commands.report import opened, tell_damage
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import named
    from gpumon.history.derivation import Derivation, moments
    from gpumon.session import maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    recording, (from_s, to_s) = opened(chosen.recording, chosen.since, chosen.until)
    calibration = Calibration()
    loads = PastLoads()
    last = None
    for snapshot in moments(recording, Derivation(recording, maker(config)), from_s, to_s, 0.0):
        calibration.take(snapshot)
        loads.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
        if snapshot.engines or last is None:
            last = snapshot
    tell_damage(recording)
    if last is None or not loads.found():
        raise ConfigError(f"{named(chosen.recording)}: no engine was seen in it")
    return from_live(last, calibration.observed(), base, loads.found()), own_models(last)


async def scraped_load(
    chosen: argparse.Namespace, config: Config, base: Scenario
) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The p95 of what all engines of a Prometheus carried, of 7 days unless asked otherwise, in the scenario `base`, as
    those that run now serve it, and their models. Raises ConfigError where it does not answer, or knows of none."""
    from gpumon.fleet.fleet import Fleet
    from gpumon.fleet.whole import whole
    from gpumon.session import maker
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.live import from_live, own_models

    async with prometheus_source(config) as (source, newest):
        step_s = max(newest.interval_s, config.prometheus.interval_s)
        fleet = Fleet(maker(config), step_s)
        calibration = Calibration()
        for back in range(_MOMENTS, -1, -1):
            for _ in fleet.steps(await source.frame(newest.wall_s - back * step_s)):
                pass
            calibration.take(whole(fleet.snapshot))
        start_s, end_s = scraped_span(chosen, newest.wall_s, _PAST_S)
        loads = await _loads(source, newest, config, start_s, end_s)
    last = whole(fleet.snapshot)
    return from_live(last, calibration.observed(), base, loads), own_models(last)


def scraped_span(chosen: argparse.Namespace, now_s: float, usual_s: float) -> tuple[float, float]:
    """The Unix times of --from and --to; without them the last `usual_s`. Raises ConfigError."""
    from gpumon.commands.report import moment

    span = now_s - _LONGEST_S, now_s
    if chosen.until:
        end_s = moment("--to", chosen.until, span)
    else:
        end_s = now_s
    if chosen.since:
        start_s = moment("--from", chosen.since, span)
    else:
        start_s = end_s - usual_s
    return start_s, end_s


async def prometheus_loads(config: Config) -> Mapping[str, PeakLoad]:
    """The p95 of what all engines of `[prometheus].url` carried in the last 7 days, by served model name. Raises
    ConfigError in one line where it does not answer, or knows of none."""
    async with prometheus_source(config) as (source, newest):
        return await _loads(source, newest, config, newest.wall_s - _PAST_S, newest.wall_s)


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
    from gpumon.fleet.course import HostCourse
    from gpumon.session import maker
    from gpumon.sizing.peaks import PastLoads, in_flight, request_rates

    make = maker(config)
    step_s = max(newest.interval_s, config.prometheus.interval_s)
    pasts = [await source.past(host.name, start_s, end_s, step_s) for host in newest.hosts]
    # Moments are further apart where a host has many series: its answers are bounded.
    apart = [min((b[0] - a[0] for a, b in pairwise(frames)), default=step_s) for frames in pasts]
    machines = []
    for frames, apart_s in zip(pasts, apart, strict=True):
        course = HostCourse(make)
        loads = PastLoads(max(apart))
        for at_s, frame in frames:
            snapshot = course.take(frame, at_s, max(frame.interval_s, apart_s)).snapshot
            loads.take(at_s, in_flight(snapshot), request_rates(snapshot))
        machines.append(loads)
    if machines:
        found = machines[0].found(*machines[1:])
    else:
        found = {}
    if not found:
        raise ConfigError("prometheus: it scraped no engine in that time")
    return found


def known_of(
    config: Config, scenario: Scenario, environ: Mapping[str, str], own: Mapping[str, LlmSpec] = MappingProxyType({})
) -> Known:
    """The look-ups of sizing for a scenario: catalogues, models of the config, imported profiles, prices. Reads files.

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
