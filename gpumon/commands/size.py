"""`gpumon size`: how many instances, GPUs and servers a scenario takes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpumon.commands.options import UsageError, add_config, add_forms, add_span, check_span
from gpumon.commands.past_load import (
    LOAD_S,
    recorded_load,
    recorded_traffic,
    scraped_load,
    scraped_traffic,
    sizing_look_ups,
)
from gpumon.commands.progress import ProgressBar
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_INFEASIBLE, EXIT_OK, Failed, complain, width, write

MANIFEST_KINDS: Final = ("deployment", "lws", "dynamo", "llm-d")
"""Values of `--manifest`."""

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.sizing.answer import Answer, Compared
    from gpumon.sizing.plan import Decide, DetailedPlan
    from gpumon.sizing.running import ModelEngines, ModelKey
    from gpumon.sizing.scenario import Catalogues, Scenario
    from gpumon.specs.llm import LlmSpec


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
        "--against",
        metavar="RECORDING",
        help="beside the plan of FILE what ran: instances, GPUs, load, latencies (last 10 minutes, or --from, --to)",
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
        "--pools",
        action="store_true",
        help="plan with prefill and decode on pools of their own: GPUs, servers, price and power are theirs",
    )
    parser.add_argument(
        "--compare",
        metavar="TYPE,TYPE",
        dest="compared",
        help="the same question on these GPU types, such as H100,H200,B200",
    )
    parser.add_argument("--prometheus", metavar="URL", help="Prometheus to ask (default [prometheus].url)")
    add_span(parser)
    parser.add_argument(
        "--manifest",
        metavar="KIND",
        choices=MANIFEST_KINDS,
        help=f"print how the plan is started on Kubernetes: {', '.join(MANIFEST_KINDS)} (docs/sizing.md)",
    )
    add_forms(
        parser,
        commands="print the command line of each engine of the plan: vLLM, SGLang, TensorRT-LLM",
        json="one JSON object (docs/sizing.schema.json)",
        markdown="tables to paste into a ticket",
        csv="a line per workload, and one of totals",
    )


def run(chosen: argparse.Namespace) -> int:
    """Size, and print the answer; the exit code is 4 where no plan meets what was asked."""
    config = settings(chosen).loaded.config
    _check_options(chosen, config)
    with ProgressBar("planning") as bar:
        plan, answer = _planned(chosen, config, bar)
    _name_unknown_models(chosen, answer, plan.catalogues)
    if chosen.form == "commands" or chosen.manifest:
        _print_launches(chosen, plan)
    else:
        _print(chosen.form, answer, plan.scenario)  # with the servers that the names of clouds stand for
    if answer.problem:
        return EXIT_INFEASIBLE
    return EXIT_OK


def _planned(chosen: argparse.Namespace, config: Config, bar: ProgressBar) -> tuple[DetailedPlan, Answer]:
    """The plan, and its answer with what ran and other types of GPU beside it. Raises ConfigError, UsageError."""
    from msgspec.structs import replace

    from gpumon.sizing.compare import compare, type_names_taken
    from gpumon.sizing.plan import detailed_plan
    from gpumon.sizing.pooled_plan import has_pools, pooled_plan
    from gpumon.sizing.running import with_runs

    scenario, recorded_models = _scenario(chosen, config)
    catalogues = sizing_look_ups(config, scenario, os.environ, recorded_models)
    _check_profiles(scenario, catalogues, _scenario_place(chosen))
    decide = _decide_by_simulation(chosen, config, bar) if chosen.simulate else None
    plan = detailed_plan(scenario, catalogues, decide=decide)
    answer = with_runs(plan, _engines_of_recording(chosen, config)) if chosen.against else plan.answer
    rows: tuple[Compared, ...] = ()
    if chosen.compared:
        types = _gpu_types(chosen.compared, catalogues)
        rows = compare(scenario, catalogues, types, answer, with_pools=True).rows
        taken = type_names_taken(chosen.compared, catalogues)
        answer = replace(answer, warnings=(*answer.warnings, *taken))
    elif has_pools(scenario) and not answer.problem and len(plan.scenario.server) == 1:
        rows = compare(scenario, catalogues, plan.scenario.gpu_types, answer, with_pools=True).rows
    if chosen.pools:
        plan = pooled_plan(scenario, catalogues)
        answer = replace(plan.answer, warnings=(*plan.answer.warnings, *answer.warnings))
    return plan, replace(answer, compared=rows)


def _check_options(chosen: argparse.Namespace, config: Config) -> None:
    """Refuse options that do not go together, or nothing to size. Raises UsageError."""
    _check_load(chosen)
    _check_pools(chosen)
    if chosen.simulate and chosen.compared:
        raise UsageError("--simulate and --compare: other types of GPU are compared by formula; one of them at a time")
    if chosen.manifest and chosen.form:
        raise UsageError(f"--manifest and --{chosen.form}: one of them at a time")
    if chosen.compared and (chosen.manifest or chosen.form == "commands"):
        raise UsageError("--compare prints figures, --commands and --manifest what starts: one of them at a time")
    if chosen.scraped and not config.prometheus.url:
        raise UsageError("which Prometheus? Give --prometheus URL, or set [prometheus].url")


def _check_pools(chosen: argparse.Namespace) -> None:
    """Refuse options beside --pools that know of no pools. Raises UsageError."""
    if chosen.pools and (chosen.simulate or chosen.against):
        raise UsageError("--pools plans by formula, and no recording knows of pools: without --simulate and --against")


def _check_load(chosen: argparse.Namespace) -> None:
    """Refuse no load, or more than one. Raises UsageError."""
    if not chosen.file and not chosen.recording and not chosen.scraped:
        raise UsageError("size needs a scenario file, --from-recording FILE or --from-prometheus")
    if not chosen.against:
        check_span(chosen)
    elif not chosen.file or chosen.recording or chosen.scraped:
        raise UsageError("--against compares the plan of a scenario FILE with what ran: without --from-...")
    if chosen.recording and chosen.scraped:
        raise UsageError("--from-recording and --from-prometheus: one of them at a time")


def _engines_of_recording(chosen: argparse.Namespace, config: Config) -> Mapping[ModelKey, ModelEngines]:
    """Engines of each model in the recording of --against. Raises ConfigError."""
    from gpumon.commands.stretch import open_recording, tell_damage
    from gpumon.history.derivation import Derivation, derived_moments
    from gpumon.session.build import deriver_maker
    from gpumon.sizing.running import USUAL_SPAN_S, ServedMeans

    recording, (from_s, to_s) = open_recording(chosen.against, chosen.since, chosen.until)
    if not chosen.since:
        from_s = max(from_s, to_s - USUAL_SPAN_S)
    means = ServedMeans()
    derivation = Derivation(recording, deriver_maker(config))
    for snapshot in derived_moments(recording, derivation, from_s, to_s, every_s=0.0):
        means.take(snapshot)
    tell_damage(recording)
    return means.by_model()


def _scenario_place(chosen: argparse.Namespace) -> str:
    """Place of the scenario, as errors name it."""
    from gpumon.config.load import file_name

    if chosen.file == "-":
        return "standard input"
    return file_name(chosen.file or "the settings")


def _scenario(chosen: argparse.Namespace, config: Config) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """The scenario of the options, with what was recorded in it, and the models of what was recorded."""
    from msgspec.structs import replace

    from gpumon.config.scenario_file import servers_of_settings
    from gpumon.sizing.pooled_plan import has_pools
    from gpumon.sizing.scenario import with_disaggregation

    recorded_models: Mapping[str, LlmSpec] = {}
    scenario = _written_scenario(chosen, config)
    if chosen.recording:
        scenario, recorded_models = recorded_load(chosen, config, scenario)
    elif chosen.scraped:
        scenario, recorded_models = asyncio.run(scraped_load(chosen, config, scenario))
    if not scenario.server:
        scenario = replace(scenario, server=servers_of_settings(config))
    if chosen.assume_ttft:
        scenario = replace(scenario, assume_ttft=True)
    if chosen.disaggregated or (chosen.pools and not has_pools(scenario)):
        scenario = with_disaggregation(scenario)
    return scenario, recorded_models


def _written_scenario(chosen: argparse.Namespace, config: Config) -> Scenario:
    """The scenario of the file or of standard input, else an empty one with the settings of the config."""
    from gpumon.config.scenario_file import read_scenario, scenario_from_stream, scenario_of_settings

    if chosen.file == "-":
        return scenario_from_stream(sys.stdin.buffer, _scenario_place(chosen))
    if chosen.file:
        return read_scenario(chosen.file)
    return scenario_of_settings(config)


def _check_profiles(scenario: Scenario, catalogues: Catalogues, where: str) -> None:
    """Refuse a workload whose profile is not there. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.profile_store import absence_reason, stored_profiles

    for number, workload in enumerate(scenario.workload):
        if workload.profile and workload.seen is None and workload.profile not in catalogues.profiles:
            why = absence_reason(workload.profile, stored_profiles(os.environ))
            raise ConfigError(f"{where}: workload[{number}].profile: {why}")


def _name_unknown_models(chosen: argparse.Namespace, answer: Answer, catalogues: Catalogues) -> None:
    """Tell on standard error in which line of the scenario file a model is that nobody knows."""
    from gpumon.config.lines import line_among, lines_of_settings
    from gpumon.sizing.capacity import unknown_model

    if not chosen.file or not Path(chosen.file).is_file():  # standard input or a pipe, which cannot be read again
        return
    for number, row in enumerate(answer.workloads):
        unknown = unknown_model(row.model, catalogues) if row.problem else ""
        if unknown:
            text = Path(chosen.file).read_text(encoding="utf-8-sig")
            line = line_among(lines_of_settings(text), ("workload", number, "model"))
            complain(f"{_scenario_place(chosen)}:{line}: workload[{number}].model: {unknown}", EXIT_OK)


def _print_launches(chosen: argparse.Namespace, plan: DetailedPlan) -> None:
    """Print how the engines of the plan are started. Raises Failed where a manifest cannot say it, or nothing runs."""
    from gpumon.sizing.launch import launches

    started = launches(plan)
    if not started:
        raise Failed(f"nothing to start: {plan.answer.problem}")
    if plan.answer.problem:
        complain(plan.answer.problem, EXIT_INFEASIBLE)
    if chosen.manifest:
        from gpumon.outputs.manifests import CannotSayError, manifests_text

        try:
            write(manifests_text(started, chosen.manifest))
        except CannotSayError as why:
            raise Failed(f"--manifest {chosen.manifest}: {why}") from None
    else:
        from gpumon.outputs.launch_commands import commands_text

        write(commands_text(started))


def _print(form: str, answer: Answer, scenario: Scenario) -> None:
    """Print the answer in a form; each is imported only where it is asked for."""
    if form == "json":
        from gpumon.outputs.sizing_data import encode

        write(encode(answer) + b"\n")
    elif form == "markdown":
        from gpumon.outputs.sizing import markdown

        write(markdown(answer, scenario))
    elif form == "csv":
        from gpumon.outputs.sizing_data import csv_table

        write(csv_table(answer))
    else:
        from gpumon.outputs.sizing import report

        write(report(answer, scenario, width=width()))


def _gpu_types(text: str, catalogues: Catalogues) -> tuple[str, ...]:
    """The types of `--compare`. Raises UsageError for one that the catalogue does not have."""
    from gpumon.sizing.compare import gpu_types

    try:
        types = gpu_types(text, catalogues)
    except ValueError as wrong:
        raise UsageError(f"--compare: {wrong}") from None
    if not types:
        raise UsageError("--compare needs GPU types, such as H100,H200,B200")
    return types


def _decide_by_simulation(chosen: argparse.Namespace, config: Config, bar: ProgressBar) -> Decide:
    """The function that finds the needs of a workload by simulation, of recorded traffic if there is any.

    Raises ConfigError.
    """
    from functools import partial

    from gpumon.config.load import file_name
    from gpumon.sizing.simulate.fewest import decide_by_simulation

    decide = partial(decide_by_simulation, tell=bar.tell)
    if chosen.recording:
        return partial(decide, traffic=recorded_traffic(chosen, file_name(chosen.recording)))
    if chosen.scraped:
        return partial(decide, traffic=asyncio.run(scraped_traffic(chosen, config, LOAD_S)))
    return decide
