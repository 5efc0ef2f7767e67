"""`gpumon simulate`: the latencies that requests would meet, from a discrete-event model of the engines."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.commands.options import (
    UsageError,
    add_config,
    add_forms,
    add_span,
    check_span,
    number_option,
    seconds_option,
)
from gpumon.commands.past_load import (
    TRAFFIC_S,
    recorded_load,
    recorded_traffic,
    scraped_load,
    scraped_traffic,
    sizing_look_ups,
)
from gpumon.commands.progress import ProgressBar
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_INFEASIBLE, EXIT_OK, width, write
from gpumon.commands.trace import add_trace_options, check_trace_options, traffic_of_options, workload_of_trace

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.sizing.scenario import Catalogues, Scenario, Workload
    from gpumon.sizing.simulate.conditions import Conditions, PlayedTraffic
    from gpumon.sizing.simulate.experiment import Simulation
    from gpumon.specs.llm import LlmSpec

ROUTER_NAMES: Final = ("least-loaded", "round-robin", "prefix-aware")
"""Values of `--router`, the default first."""
_TOKENS: Final = number_option(1, 1e8)
_GOAL_MS: Final = number_option(1e-3, 1e9)


class _NumberOption(NamedTuple):
    """An option whose value is a number."""

    option: str
    metavar: str
    kind: Callable[[str], float]
    """Converts its text, and refuses what is out of its range."""
    meaning: str


_NUMBER_OPTIONS: Final = (
    _NumberOption("--rate", "R", number_option(1e-6, 1e6), "requests per second, in place of the scenario's target"),
    _NumberOption(
        "--concurrency", "N", number_option(1, 200_000, int), "requests in flight, in place of the scenario's target"
    ),
    _NumberOption(
        "--burstiness", "B", number_option(1e-3, 1e3), "of the arrivals: 1 is Poisson, less comes in bursts (default 1)"
    ),
    _NumberOption("--prompt", "N", _TOKENS, "mean tokens of a prompt"),
    _NumberOption("--answer", "N", _TOKENS, "mean tokens of an answer"),
    _NumberOption(
        "--prompt-variation",
        "V",
        number_option(0, 10),
        "standard deviation / mean of the prompts (default: as measured)",
    ),
    _NumberOption("--answer-variation", "V", number_option(0, 10), "the same of the answers"),
    _NumberOption("--hits", "SHARE", number_option(0, 1), "share of the prompt tokens in the prefix cache"),
    _NumberOption(
        "--prefix-groups", "N", number_option(1, 1e6, int), "groups of requests that begin with the same tokens"
    ),
    _NumberOption(
        "--shared-tokens", "N", number_option(1, 1e7, int), "tokens that the requests of one group begin with"
    ),
    _NumberOption("--replicas", "N", number_option(1, 512, int), "instances (default: those of the plan by formula)"),
    _NumberOption("--tp", "N", number_option(1, 1024, int), "tensor parallel size"),
    _NumberOption("--max-num-seqs", "N", number_option(1, 1e6, int), "most requests that an engine runs at once"),
    _NumberOption("--max-num-batched-tokens", "N", number_option(1, 1e7, int), "most tokens of one step"),
    _NumberOption("--kv-tokens", "N", number_option(1, 1e12), "tokens that the KV cache of one instance holds"),
    _NumberOption("--prefill-rate", "R", number_option(1e-3, 1e9), "prompt tokens per second of one instance"),
    _NumberOption("--ttft", "MS", _GOAL_MS, "goal for the p95 of the TTFT"),
    _NumberOption("--tpot", "MS", _GOAL_MS, "goal for the p95 of the mean time between the tokens of a request"),
    _NumberOption("--itl", "MS", _GOAL_MS, "goal for the p95 of the gap between two tokens"),
    _NumberOption("--itl-mean", "MS", _GOAL_MS, "goal for the mean of these gaps"),
    _NumberOption("--e2e", "MS", _GOAL_MS, "goal for the p95 of the whole request"),
    _NumberOption("--seed", "N", number_option(0, 2**31, int), "seed of the random numbers (default 1)"),
)
_WORKLOAD_FIELDS: Final = (
    ("prompt", "prompt_tokens"),
    ("answer", "answer_tokens"),
    ("hits", "prefix_hit_ratio"),
    ("tp", "tp"),
    ("max_num_seqs", "max_num_seqs"),
    ("max_num_batched_tokens", "max_num_batched_tokens"),
    ("kv_tokens", "kv_pool_tokens"),
    ("prefill_rate", "prefill_tokens_per_s"),
    ("ttft", "ttft_p95_ms"),
    ("tpot", "tpot_p95_ms"),
    ("itl", "itl_p95_ms"),
    ("itl_mean", "itl_mean_ms"),
    ("e2e", "e2e_p95_ms"),
)
"""Options and the figures of a workload that they stand for."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the traffic, the engines that it meets, and the form of the answer."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="scenario file (docs/sizing-file.md); - reads standard input"
    )
    add_config(parser)
    parser.add_argument("--workload", metavar="NAME", help="workload of the scenario (default: all)")
    parser.add_argument("--model", metavar="MODEL", help="the model, where there is no scenario file")
    parser.add_argument("--gpu", metavar="GPU", help='type of GPU, e.g. "H100 SXM 80GB" or H100')
    for number in _NUMBER_OPTIONS:
        parser.add_argument(number.option, metavar=number.metavar, type=number.kind, help=number.meaning)
    parser.add_argument(
        "--router", metavar="NAME", choices=ROUTER_NAMES, help=f"{', '.join(ROUTER_NAMES)} (default: the first)"
    )
    parser.add_argument(
        "--duration", metavar="S", type=seconds_option, help="simulated time, such as 90s or 1h (default 10m)"
    )
    parser.add_argument(
        "--pools",
        action="store_true",
        help="play prefill and decode on pools of their own, those of `gpumon size --pools`",
    )
    parser.add_argument("--from-recording", metavar="FILE", dest="recording", help="play the traffic of a recording")
    parser.add_argument(
        "--from-prometheus",
        action="store_true",
        dest="scraped",
        help="play the traffic that a Prometheus scraped, last hour or since --from",
    )
    parser.add_argument("--prometheus", metavar="URL", help="Prometheus to ask (default [prometheus].url)")
    add_span(parser)
    add_trace_options(parser)
    add_forms(parser, json="one JSON object (docs/simulate.schema.json)")


def run(chosen: argparse.Namespace) -> int:
    """Simulate, and print; the exit code is 4 where a goal is missed or there is no answer."""
    config = settings(chosen).loaded.config
    _check_options(chosen, config)
    with ProgressBar("simulating") as bar:
        answers = _answers(chosen, config, bar)
    if chosen.form == "json":
        from gpumon.outputs.simulation_data import encode

        write(encode(answers) + b"\n")
    else:
        from gpumon.outputs.simulation import report

        write(report(answers, width()))
    if all(answer.holds and not answer.problem for answer in answers):
        return EXIT_OK
    return EXIT_INFEASIBLE


def _answers(chosen: argparse.Namespace, config: Config, bar: ProgressBar) -> list[Simulation]:
    """The simulation of each workload. Raises ConfigError, UsageError."""
    from msgspec.structs import replace

    from gpumon.sizing.plan import names_taken, with_server
    from gpumon.sizing.simulate.experiment import simulate
    from gpumon.sizing.simulate.pools import simulate_pools

    scenario, recorded_models, traffic = _scenario_and_traffic(chosen, config)
    if chosen.gpu:
        scenario = _on_gpu(chosen.gpu, scenario, sizing_look_ups(config, scenario, os.environ, recorded_models))
    scenario = _with_options(chosen, config, scenario, recorded=bool(traffic))
    if chosen.trace:
        scenario, traffic = _with_trace(chosen, scenario, bar)
    conditions = _conditions(chosen, bar)
    catalogues = sizing_look_ups(config, scenario, os.environ, recorded_models)
    taken = names_taken(scenario, catalogues)
    scenario = with_server(scenario, catalogues)
    answers = []
    for workload in scenario.workload:
        played = simulate_pools if chosen.pools else simulate
        answer = played(workload, scenario, catalogues, conditions, traffic.get(workload.model))
        answers.append(replace(answer, notes=(*taken, *answer.notes)))
    return answers


def _check_options(chosen: argparse.Namespace, config: Config) -> None:
    """Refuse options that contradict each other, or that lack another one."""
    sources = (chosen.file, chosen.model, chosen.recording, chosen.scraped)
    if not any(sources):
        raise UsageError("simulate needs a scenario file, --model, --from-recording FILE or --from-prometheus")
    if chosen.pools and chosen.replicas is not None:
        raise UsageError("--pools has the instances of its plan: without --replicas")
    check_span(chosen)
    check_trace_options(chosen)
    _check_source(chosen, config)
    _check_rate(chosen)
    if (chosen.prefix_groups is None) != (chosen.shared_tokens is None):
        raise UsageError("--prefix-groups and --shared-tokens belong together")
    if chosen.duration == 0.0:
        raise UsageError("--duration must be above 0")
    _check_traffic(chosen)


def _check_source(chosen: argparse.Namespace, config: Config) -> None:
    """Refuse two sources of one kind, and a Prometheus without an address."""
    if chosen.recording and chosen.scraped:
        raise UsageError("--from-recording and --from-prometheus: one of them at a time")
    if chosen.file and chosen.model:
        raise UsageError("a scenario file and --model: the file has its models, --workload NAME chooses one")
    if chosen.scraped and not config.prometheus.url:
        raise UsageError("which Prometheus? Give --prometheus URL, or set [prometheus].url")


def _check_rate(chosen: argparse.Namespace) -> None:
    """Refuse two amounts of traffic, or none where only a model is given."""
    if chosen.rate is not None and chosen.concurrency is not None:
        raise UsageError("--rate and --concurrency: one of them at a time")
    if not chosen.model or chosen.recording or chosen.scraped or chosen.trace:
        return
    if chosen.rate is None and chosen.concurrency is None:
        raise UsageError("how many requests? Give --rate or --concurrency")


def _check_traffic(chosen: argparse.Namespace) -> None:
    """Refuse options of arrivals and lengths that would change nothing."""
    if chosen.burstiness is not None and chosen.concurrency is not None:
        raise UsageError("--burstiness is of a --rate: with --concurrency each request follows an answer")
    if not (chosen.recording or chosen.scraped):
        return
    if chosen.rate is not None or chosen.concurrency is not None:
        raise UsageError("--rate and --concurrency: the arrivals that were recorded are played")
    for name in ("prompt", "answer"):
        if getattr(chosen, f"{name}_variation") is not None and getattr(chosen, name) is None:
            raise UsageError(f"--{name}-variation: the lengths that were recorded are played, unless you give --{name}")


def _scenario_and_traffic(
    chosen: argparse.Namespace, config: Config
) -> tuple[Scenario, Mapping[str, LlmSpec], Mapping[str, PlayedTraffic]]:
    """The scenario, the specs of models that came with a recording, and the recorded traffic of each model.

    Raises ConfigError.
    """
    from msgspec.structs import replace

    from gpumon.config.load import file_name
    from gpumon.config.scenario_file import read_scenario, scenario_from_stream, scenario_of_settings
    from gpumon.sizing.scenario import Workload

    if chosen.file == "-":
        scenario = scenario_from_stream(sys.stdin.buffer, "standard input")
    elif chosen.file:
        scenario = read_scenario(chosen.file)
    else:
        scenario = scenario_of_settings(config)
    recorded_models: Mapping[str, LlmSpec] = MappingProxyType({})
    traffic: Mapping[str, PlayedTraffic] = MappingProxyType({})
    if chosen.recording:
        scenario, recorded_models = recorded_load(chosen, config, scenario)
        traffic = recorded_traffic(chosen, file_name(chosen.recording))
    elif chosen.scraped:
        scenario, recorded_models = asyncio.run(scraped_load(chosen, config, scenario))
        traffic = asyncio.run(scraped_traffic(chosen, config, TRAFFIC_S))
    if chosen.model and not traffic:
        # The target is that of --rate, --concurrency or --trace, one of which is given then (`_check_rate`).
        scenario = replace(scenario, workload=(Workload(chosen.model, target=1.0),))
    return scenario, recorded_models, traffic


def _on_gpu(text: str, scenario: Scenario, catalogues: Catalogues) -> Scenario:
    """The scenario on the type of `--gpu`, or on the server of a cloud. Raises UsageError for an unknown name."""
    from gpumon.sizing.compare import gpu_type, scenario_on_gpu

    try:
        gpu = gpu_type(text, catalogues)
    except ValueError as wrong:
        raise UsageError(f"--gpu: {wrong}") from None
    if not scenario.server or catalogues.gpus.servers.find(text) is not None:
        return scenario_on_gpu(scenario, None, text)
    server = scenario.server[0]
    if catalogues.gpu_name(server.gpu) == gpu:
        gpu = server.gpu  # another name of the same type
    return scenario_on_gpu(scenario, server, gpu)


def _with_options(chosen: argparse.Namespace, config: Config, scenario: Scenario, *, recorded: bool) -> Scenario:
    """The scenario with what the options say in the place of its own figures. Raises ConfigError."""
    from msgspec.structs import replace

    from gpumon.config.errors import ConfigError
    from gpumon.config.scenario_file import servers_of_settings

    if not scenario.server:
        scenario = replace(scenario, server=servers_of_settings(config))
    workloads = _chosen_workloads(chosen, scenario, recorded=recorded)
    if not workloads:
        raise ConfigError("no workload: the scenario has none, and no engine was seen")
    if len(workloads) > 1 and (chosen.rate is not None or chosen.concurrency is not None):
        raise ConfigError("--rate and --concurrency are for one workload: choose it with --workload NAME")
    return replace(scenario, workload=tuple(_with_typed_figures(chosen, workload) for workload in workloads))


def _with_trace(
    chosen: argparse.Namespace, scenario: Scenario, bar: ProgressBar
) -> tuple[Scenario, Mapping[str, PlayedTraffic]]:
    """The scenario with the workload that `--trace` makes of its only one, and the trace. Raises ConfigError."""
    from msgspec.structs import replace

    from gpumon.config.errors import ConfigError

    if len(scenario.workload) > 1:
        raise ConfigError("--trace is for one workload: choose it with --workload NAME")
    traffic = traffic_of_options(chosen, bar)
    workload = workload_of_trace(scenario.workload[0], traffic)
    return replace(scenario, workload=(workload,)), {workload.model: traffic}


def _chosen_workloads(chosen: argparse.Namespace, scenario: Scenario, *, recorded: bool) -> tuple[Workload, ...]:
    """The workloads that `--workload` names, or `--model` among those of a recording. Raises ConfigError."""
    from gpumon.config.errors import ConfigError

    name = chosen.workload
    if not name and recorded:
        name = chosen.model
    if not name:
        return scenario.workload
    workloads = tuple(workload for workload in scenario.workload if name in (workload.label, workload.model))
    if not workloads:
        known = ", ".join(workload.label for workload in scenario.workload) or "none"
        raise ConfigError(f"there is no workload {name[:80]!r}; known: {known}")
    return workloads


def _with_typed_figures(chosen: argparse.Namespace, workload: Workload) -> Workload:
    """A workload with the figures that were typed."""
    from msgspec.structs import replace

    figures: dict[str, object] = {
        field: getattr(chosen, option) for option, field in _WORKLOAD_FIELDS if getattr(chosen, option) is not None
    }
    if chosen.rate is not None:
        figures |= {"target": chosen.rate, "target_kind": "requests_per_s"}
    if chosen.concurrency is not None:
        figures |= {"target": float(chosen.concurrency), "target_kind": "concurrency"}
    return replace(workload, **figures)


def _conditions(chosen: argparse.Namespace, bar: ProgressBar) -> Conditions:
    """Arrivals, router and number of replicas as the options have them."""
    from gpumon.sizing.simulate.conditions import Conditions

    seed = chosen.seed if chosen.seed is not None else 1  # 0 is a seed
    return Conditions(
        seconds=chosen.duration or None,
        seed=seed,
        burstiness=chosen.burstiness or 1.0,
        prompt_variation=chosen.prompt_variation,
        answer_variation=chosen.answer_variation,
        groups=chosen.prefix_groups or 0,
        shared_tokens=chosen.shared_tokens or 0,
        router=chosen.router or ROUTER_NAMES[0],
        replicas=chosen.replicas,
        tell=bar.tell,
    )
