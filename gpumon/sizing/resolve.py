"""Resolves one instance of a workload: each fact from the best source there is."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gpumon.sizing import memory
from gpumon.sizing.answer import Source
from gpumon.sizing.communication import Fabric, fabric_of
from gpumon.sizing.instance import Instance
from gpumon.sizing.instance_latency import with_latencies
from gpumon.sizing.layouts import Ground
from gpumon.sizing.length_tail import TokensInFlight, tokens_in_flight_of
from gpumon.sizing.measured_instance import MeasuredInstance, has_hardware, speculation_of
from gpumon.sizing.parallelism import parallelism_of
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import (
    GOAL_NAMES,
    Catalogues,
    Scenario,
    Server,
    Workload,
    check_scenario,
    check_workload,
    checked_profile,
)
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

_MOST_NAMED: Final = 8
"""Profiles that are named where the one that was asked for is not there."""
_LONGEST_NAME: Final = 40
"""Characters of the name of a profile in an error message."""
_LONGEST_PRECISION: Final = 20
"""Characters of the name of a precision in an error message."""


def resolve(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Instance:
    """One instance of `workload` on the GPUs of the servers; `problem` says why there can be none.

    Typed values come before measured ones, these before imported ones, these before formulas.
    """
    scenario_goals = {name: getattr(scenario, name) for name in GOAL_NAMES if getattr(workload, name) is None}
    if any(scenario_goals.values()):
        workload = msgspec.structs.replace(workload, **scenario_goals)
    try:
        check_scenario(scenario)
        seen = _profile_of(workload, catalogues)
        measured_instance = None
        if seen is not None:
            measured_instance = MeasuredInstance.look_up(seen, catalogues, workload.dp or 1)
        bare = _without_latencies(workload, scenario, catalogues, measured_instance)
        instance = with_latencies(bare, measured_instance)
        if catalogues.tails is None:
            return instance
        return instance._replace(tails=catalogues.tails(instance, scenario, catalogues))
    except ValueError as why:
        return Instance(workload, problem=str(why))


def _profile_of(workload: Workload, catalogues: Catalogues) -> Observed | None:
    """The profile of a workload, its GPU by the catalogue's name; None if it names none and keeps none.

    Raises ValueError for a profile that is not there, or not sound.
    """
    seen = catalogues.profile_of(workload)
    if seen is None:
        if not workload.profile:
            return None
        names = ", ".join(sorted(catalogues.profiles)[:_MOST_NAMED]) or "none is imported"
        raise ValueError(f"there is no profile {workload.profile[:_LONGEST_NAME]!r}; known: {names}")
    seen = checked_profile(seen)
    name = catalogues.gpu_name(seen.gpu) if seen.gpu else ""
    if name == seen.gpu:
        return seen
    return msgspec.structs.replace(seen, gpu=name)


def _without_latencies(
    workload: Workload, scenario: Scenario, catalogues: Catalogues, measured_instance: MeasuredInstance | None
) -> Instance:
    """The instance without its latencies. Raises ValueError with the reason why there can be none."""
    seen = measured_instance.seen if measured_instance is not None else None
    server = _server_of(scenario, seen)
    gpu = _gpu_of(server, catalogues)
    llm = _model_of(workload, seen, catalogues)
    _check_context(workload, llm)
    check_workload(workload)
    prompt = _typed_or_seen(workload, seen, "prompt_tokens")
    answer = _typed_or_seen(workload, seen, "answer_tokens")
    hits = _typed_or_seen(workload, seen, "prefix_hit_ratio") or 0.0
    context_tokens = (prompt or 0.0) + (answer or 0.0)
    tp, pp, fitting_tps = parallelism_of(workload, seen, llm, gpu, server, scenario, context_tokens=context_tokens)
    dp = workload.dp or 1
    source = Source.TYPED if workload.capacity_per_instance else Source.NONE
    instance = Instance(
        workload=workload,
        server=server,
        gpu=gpu,
        fabric=_fabric(server, gpu, catalogues, gpus=tp * pp * dp),
        llm=llm,
        seen=seen,
        gpus=tp * pp * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        tps=fitting_tps,
        prompt_tokens=prompt,
        answer_tokens=answer,
        hit_ratio=hits,
        tokens_in_flight=_tokens_in_flight(workload, seen, prompt, answer),
        speculation=workload.speculative or speculation_of(seen),
        source=source,
    )
    if measured_instance is None:
        return instance
    same_hardware = has_hardware(measured_instance.seen, gpu, instance.gpus, tp)
    return instance._replace(
        alike=same_hardware and measured_instance.same_model(workload, llm),
        pool_shift_ratio=measured_instance.pool_shift_ratio(llm, scenario, catalogues),
        same_mix=measured_instance.same_mix(prompt, answer, hits),
    )


def _typed_or_seen(workload: Workload, seen: Observed | None, name: str) -> float | None:
    """A figure of the workload as typed, or else as measured; None where it is neither."""
    typed_value: float | None = getattr(workload, name)
    if typed_value is not None:
        return typed_value
    measured_value: float | None = getattr(seen, name, None)
    return measured_value


def _server_of(scenario: Scenario, seen: Observed | None) -> Server:
    """The server to plan for: the first one given, or else one with the GPUs of the profile. Raises ValueError."""
    if scenario.server:
        return scenario.server[0]
    if seen is None or not seen.gpu:
        raise ValueError("no server is given: choose a GPU type and how many a server has ([[server]] gpu, gpus)")
    return Server(seen.gpu)


def ground_of(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Ground | None:
    """The model and the servers that layouts are tried on; None where something of them is not known."""
    try:
        check_scenario(scenario)
        seen = _profile_of(workload, catalogues)
        server = _server_of(scenario, seen)
        gpu = _gpu_of(server, catalogues)
        llm = _model_of(workload, seen, catalogues)
        network = catalogues.network(server, gpu)
    except ValueError:
        return None
    if llm is None:
        return None
    if not gpu.has_nvlink and not server.network:
        network = None  # servers of such cards may have any network: instances over several of them are not proposed
    most_gpus = math.inf
    if scenario.server and all(shape.count for shape in scenario.server):
        most_gpus = sum(shape.count * shape.gpus for shape in scenario.server)
    return Ground(llm, gpu, server.gpus, server.domain, network, most_gpus)


def _fabric(server: Server, gpu: GpuSpec, catalogues: Catalogues, *, gpus: int) -> Fabric | None:
    """Links between the GPUs of an instance; None where it stands in one domain of its server.

    Raises ValueError for an unknown network, or none.
    """
    domain = server.domain
    if gpus <= domain:
        return None
    network = catalogues.network(server, gpu)
    fabric = fabric_of(gpu, server.gpus, domain, network, catalogues.networks)
    fabric.widest(gpus)  # refuses GPUs that nothing joins
    return fabric


def _gpu_of(server: Server, catalogues: Catalogues) -> GpuSpec:
    """The type of the server's GPUs. Raises ValueError where their memory is not known."""
    gpu = catalogues.gpus.find(server.gpu)
    if gpu.memory_bytes <= 0.0:
        raise ValueError(f"the memory of {gpu.name} is not known: memory_gb in a [[gpu]] table of the config tells it")
    return gpu


def _model_of(workload: Workload, seen: Observed | None, catalogues: Catalogues) -> LlmSpec | None:
    """Dimensions of the model at the precisions that are typed, or else measured; None where they are not known.

    Raises ValueError for an unknown precision.
    """
    weights = workload.weight_precision
    cache = workload.kv_precision
    if seen is not None:
        weights = weights or seen.weight_precision
        cache = cache or seen.kv_precision
    for name in filter(None, (weights, cache)):
        if name not in memory.WEIGHTS:
            names = ", ".join(memory.WEIGHTS)
            raise ValueError(f"unknown precision {name[:_LONGEST_PRECISION]!r}: one of {names}")
    base = catalogues.llm(workload.model)
    if base is None:
        return None
    return memory.variant(catalogues.llms, workload.model, base, weights, cache)


def _check_context(workload: Workload, llm: LlmSpec | None) -> None:
    """Raises ValueError for requests that the model's context does not hold."""
    request_tokens = (workload.prompt_tokens or 0.0) + (workload.answer_tokens or 0.0)
    if llm is not None and 0 < llm.max_context < request_tokens:
        raise ValueError(
            f"a request of {request_tokens:,.0f} tokens (prompt and answer) is longer than the model's context of "
            f"{llm.max_context:,}: engines refuse it"
        )


def _tokens_in_flight(
    workload: Workload, seen: Observed | None, prompt: float | None, answer: float | None
) -> TokensInFlight | None:
    """Distribution of the tokens that a request in flight holds, by typed or measured lengths; None if not known."""
    lengths = workload.lengths
    if not lengths and seen is not None:
        lengths = seen.lengths
    if not lengths or not prompt or not answer:
        return None
    return tokens_in_flight_of(lengths, prompt, answer)
