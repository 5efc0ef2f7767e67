"""Prefill and decode on pools of instances of their own: the split with the fewest GPUs, beside the aggregated plan.

Prefill instances compute prompts and send their KV cache to decode instances, whose steps no prompt interrupts. The
numbers of both follow from one rate of requests (rate matching); parallelism of each pool is searched on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.traffic import kv_stored_bytes
from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import REACHED
from gpumon.sizing.answer import NOT_GIVEN, DisaggregatedPlan, PoolPlan, Source
from gpumon.sizing.instance import Instance
from gpumon.sizing.layouts import Layout
from gpumon.sizing.resolve import resolve
from gpumon.sizing.roofline import layers_s, prompt_s
from gpumon.sizing.scenario import Catalogues, Disaggregated, Scenario, Workload
from gpumon.sizing.search import INFEASIBLE, MOST_INSTANCES, Demand, demand_at_own_tp, demand_of, laid_out

MOST_BUSY: Final = 0.9
"""Share of the time that prefill instances compute at most, whatever the planning factor: above it prompts queue for
many times as long as they take. aiconfigurator plans with the same share."""
_EPSILON: Final = 1e-9
"""Part of an instance that rounding may add, and the seconds that a prompt takes at least."""
PROMPTS_ALONE: Final = {False: 1.6, True: 3.2}
"""Whether it is a MoE -> times the computation of `prompt_s` that a step of prompts alone takes.

The efficiency of `prompt_s` is that of prompts beside decoding, whose reads hide a part of them. From TTFT of measured
vLLM and TensorRT-LLM servers with prompts of 4,000 tokens or more and at most 4 requests in flight, 25 dense and 64 MoE
rows: the lower quartile, as in others requests waited for each other.
"""
_MOST_MORE_PREFILL: Final = 4
"""Times the instances that the rate needs, up to which more of them are tried for a TTFT goal."""
NOT_MEASURED: Final = "disaggregated: not measured, estimate by roofline"


class Prefill(NamedTuple):
    """An instance of the prefill pool."""

    instance: Instance
    prompt_s: float
    """Seconds that it computes one prompt, alone."""
    ranks: int
    """Prompts that it computes at once."""

    @property
    def requests_per_s(self) -> float:
        """Prompts per second that it computes if it always has some."""
        return self.ranks / self.prompt_s

    def wait_s(self, instances: int, requests_per_s: float) -> float:
        """Mean seconds in the queue of a pool of so many instances; infinite where the queue grows without end.

        M/D/c by Sakasegawa's formula, with each rank as a server.
        """
        ranks = instances * self.ranks
        busy_ratio = requests_per_s * self.prompt_s / ranks
        if busy_ratio >= 1.0:
            return math.inf
        waiting_share: float = busy_ratio ** (math.sqrt(2.0 * (ranks + 1.0)) - 1.0)
        return self.prompt_s * waiting_share / (2.0 * ranks * (1.0 - busy_ratio))


class Transfer(NamedTuple):
    """The KV cache of one prompt on its way from one pool to the other."""

    size_bytes: float
    bytes_per_s: float
    """Over all links of one rank together."""
    typed: bool
    """The link was typed; else it is the catalogue's, which ends at the server."""

    @property
    def time_s(self) -> float:
        """Seconds of one prompt's cache."""
        return self.size_bytes / self.bytes_per_s


class PoolSizes(NamedTuple):
    """Numbers of instances of both pools for one rate of requests."""

    prefill: Prefill
    decode: Demand
    transfer: Transfer
    requests_per_s: float
    """At the target."""
    prefill_instances: int
    """Without spares; so `decode_instances`."""
    decode_instances: int
    most_busy_ratio: float
    """Share of the time that prefill instances may compute."""

    @property
    def gpus(self) -> int:
        """GPUs of both pools, with as many spare instances of each as the workload has."""
        spares = self.decode.spares
        prefill_gpus = (self.prefill_instances + spares) * self.prefill.instance.gpus
        return prefill_gpus + (self.decode_instances + spares) * self.decode.instance.gpus

    @property
    def itl_s(self) -> float:
        """Mean ITL at the load that decode instances are planned with."""
        return self.decode.instance.itl_s(self.decode.planned_running) or 0.0

    @property
    def ttft_s(self) -> float:
        """Mean TTFT at the target: queue, prompt and transfer."""
        wait_s = self.prefill.wait_s(self.prefill_instances, self.requests_per_s)
        return wait_s + self.prefill.prompt_s + self.transfer.time_s

    @property
    def decode_stay_s(self) -> float:
        """Time that a request takes a place of a decode instance at its planned load."""
        return _stay_s(self.decode, self.transfer)

    @property
    def decode_requests_per_s(self) -> float:
        """Requests per second that a decode instance serves at the load that it is planned with."""
        return self.decode.planned_running / self.decode_stay_s

    @property
    def carried_per_s(self) -> float:
        """Requests per second that both pools can carry as planned."""
        prefill_per_s = self.prefill_instances * self.prefill.requests_per_s * self.most_busy_ratio
        return min(prefill_per_s, self.decode_instances * self.decode_requests_per_s)

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Output tokens per second of the requests that both pools can carry, for each GPU, spares left out."""
        prefill_gpus = self.prefill_instances * self.prefill.instance.gpus
        gpus = prefill_gpus + self.decode_instances * self.decode.instance.gpus
        return self.carried_per_s * (self.decode.instance.answer_tokens or 0.0) / gpus


def compare_disaggregated(demand: Demand, scenario: Scenario, catalogues: Catalogues) -> DisaggregatedPlan | None:
    """The disaggregated plan of a workload beside its aggregated one, `demand`; None where nobody asks for it."""
    settings = demand.workload.disaggregated
    if settings is None:
        return None
    server = demand.instance.server  # both pools have the type of GPU of the aggregated plan
    on_server = scenario if server is None else msgspec.structs.replace(scenario, server=(server,))
    try:
        split = best_split(demand.workload, settings, on_server, catalogues)
    except ValueError as why:
        return DisaggregatedPlan(text=f"no answer: {why}", problem=str(why))
    aggregated_gpus: Reading = INFEASIBLE
    saving_ratio: Reading = INFEASIBLE
    aggregated_tokens_per_s_per_gpu: Reading = INFEASIBLE
    if not demand.problem:
        aggregated_gpus = demand.gpus
        saving_ratio = 1.0 - split.gpus / demand.gpus
        aggregated_tokens_per_s_per_gpu = _aggregated_tokens_per_s_per_gpu(demand)
    spares = split.decode.spares
    prefill = _pool_plan(split.prefill.instance, split.prefill_instances + spares)
    decode = _pool_plan(split.decode.instance, split.decode_instances + spares)
    pools = f"{_pool_text(prefill, 'prefill')} + {_pool_text(decode, 'decode')}, {counted(split.gpus, 'GPU')}"
    prefill_per_s = split.prefill.requests_per_s * split.most_busy_ratio
    decode_per_s = split.decode_requests_per_s
    return DisaggregatedPlan(
        prefill=msgspec.structs.replace(prefill, requests_per_s=prefill_per_s),
        decode=msgspec.structs.replace(decode, requests_per_s=decode_per_s, running=split.decode.planned_running),
        text=f"{pools}; {_saving_text(aggregated_gpus, saving_ratio)}",
        gpus=float(split.gpus),
        aggregated_gpus=aggregated_gpus,
        saving_ratio=saving_ratio,
        requests_per_s=split.requests_per_s,
        tokens_per_s_per_gpu=split.tokens_per_s_per_gpu,
        aggregated_tokens_per_s_per_gpu=aggregated_tokens_per_s_per_gpu,
        ttft_s=split.ttft_s,
        itl_s=split.itl_s,
        transfer_bytes=split.transfer.size_bytes,
        transfer_s=split.transfer.time_s,
        notes=tuple(split_notes(split, scenario)),
    )


def _pool_plan(instance: Instance, count: int) -> PoolPlan:
    """A pool of so many instances, without rates."""
    return PoolPlan(instances=count, gpus=count * instance.gpus, tp=instance.tp, dp=instance.dp, pp=instance.pp)


def _pool_text(pool: PoolPlan, name: str) -> str:
    """A pool in words: `3 prefill of TP 1`."""
    return f"{pool.instances:,} {name} of {Layout(pool.tp, pool.pp, pool.dp).text}"


def _saving_text(aggregated_gpus: Reading, saving_ratio: Reading) -> str:
    """Share that the pools save against the aggregated plan: `aggregated 16 GPUs: saves 19%`."""
    if isinstance(aggregated_gpus, Missing) or isinstance(saving_ratio, Missing):
        return "no aggregated plan"
    aggregated = f"aggregated {counted(round(aggregated_gpus), 'GPU')}"
    share = f"{abs(saving_ratio) * 100:.0f}%"
    if saving_ratio > 0.0:
        return f"{aggregated}: saves {share}"
    if saving_ratio < 0.0:
        return f"{aggregated}: needs {share} more"
    return f"{aggregated}: the same"


def best_split(workload: Workload, settings: Disaggregated, scenario: Scenario, catalogues: Catalogues) -> PoolSizes:
    """The split that needs the fewest GPUs, of several the one with the largest goodput per GPU.

    ValueError says why there is none.
    """
    splits = list[PoolSizes]()
    problems = list[str]()
    for prefill in _prefill_instances(workload, settings, scenario, catalogues):
        for decode_workload in _at_each_tp(workload, settings.decode_tp, settings.decode_dp, scenario, catalogues):
            split = _split_or_why(prefill, decode_workload, settings, scenario, catalogues)
            if isinstance(split, str):
                problems.append(split)
            else:
                splits.append(split)
    if not splits:
        raise ValueError(problems[0] if problems else "no parallelism holds the model in both pools")
    return min(splits, key=lambda split: (split.gpus, -split.tokens_per_s_per_gpu))


def _at_each_tp(
    workload: Workload, tp: int | None, dp: int | None, scenario: Scenario, catalogues: Catalogues
) -> Iterator[Workload]:
    """The workload at each TP that a pool may have; of a model that no server holds in the layouts over several servers
    that the search finds. ValueError where none holds it."""
    ranks = dp or workload.dp
    # What was typed of an aggregated instance says nothing of a pool that does half of its work.
    bare = msgspec.structs.replace(workload, tp=tp, dp=ranks, capacity_per_instance=None, memory_gb=None)
    first = resolve(bare, scenario, catalogues)
    if first.problem and not (tp or ranks):
        yield from _over_servers(bare, scenario, catalogues)
        return
    if first.problem:
        raise ValueError(first.problem)
    sizes = {tp: None} if tp else dict.fromkeys((*first.tps, first.tp))
    for size in sizes:
        yield msgspec.structs.replace(bare, tp=size)


def _over_servers(bare: Workload, scenario: Scenario, catalogues: Catalogues) -> Iterator[Workload]:
    """The workload in the best layouts of the search. ValueError where there is none."""
    best = demand_of(bare, scenario, catalogues._replace(tails=None))
    if best.problem:
        raise ValueError(best.problem)
    for demand in (best, *best.alternatives):
        yield laid_out(bare, demand.layout)


def _prefill_instances(
    workload: Workload, settings: Disaggregated, scenario: Scenario, catalogues: Catalogues
) -> Iterator[Prefill]:
    """The instances that a prefill pool may have. ValueError where lengths or dimensions are not known."""
    for at_tp in _at_each_tp(workload, settings.prefill_tp, settings.prefill_dp, scenario, catalogues):
        instance = resolve(at_tp, scenario, catalogues)
        setting = instance.setting
        if setting is None:
            raise ValueError("needs the model's dimensions, prompt_tokens and answer_tokens")
        # Pipeline stages work on several prompts at once, as data-parallel ranks do.
        ranks = instance.gpus // instance.tp
        alone_s = PROMPTS_ALONE[bool(setting.llm.experts)] * prompt_s(setting) + layers_s(setting)
        typed_tokens_per_s = workload.prefill_tokens_per_s
        if typed_tokens_per_s is not None:
            alone_s = setting.mix.new_tokens * ranks / typed_tokens_per_s
        yield Prefill(instance, max(alone_s, _EPSILON), ranks)


def _split_or_why(
    prefill: Prefill, decode_workload: Workload, settings: Disaggregated, scenario: Scenario, catalogues: Catalogues
) -> PoolSizes | str:
    """The split for a prefill instance and a parallelism of decode instances, or why there is none."""
    try:
        return _split_at(prefill, decode_workload, settings, scenario, catalogues)
    except ValueError as why:
        return str(why)


def _split_at(
    prefill: Prefill, decode_workload: Workload, settings: Disaggregated, scenario: Scenario, catalogues: Catalogues
) -> PoolSizes:
    """Numbers of instances for a prefill instance and a parallelism of decode instances.

    ValueError where a goal cannot be met.
    """
    goals = prefill.instance.workload  # with those of the scenario
    transfer = _transfer_between(prefill.instance, decode_workload, settings)
    ttft_without_queue_s = prefill.prompt_s + transfer.time_s
    decode = _decode_demand(decode_workload, goals, ttft_without_queue_s, scenario, catalogues)
    stay_s = _stay_s(decode, transfer)
    requests_per_s = _requests_per_s(decode_workload, prefill.prompt_s + stay_s)
    most_busy_ratio = min(scenario.planning_factor, MOST_BUSY)
    sent_per_s = prefill.ranks / transfer.time_s if transfer.time_s > 0.0 else math.inf
    per_prefill_instance = min(prefill.requests_per_s * most_busy_ratio, sent_per_s)
    split = PoolSizes(
        prefill=prefill,
        decode=decode,
        transfer=transfer,
        requests_per_s=requests_per_s,
        prefill_instances=_whole_instances(requests_per_s / per_prefill_instance),
        decode_instances=_whole_instances(requests_per_s * stay_s / decode.planned_running),
        most_busy_ratio=min(most_busy_ratio, per_prefill_instance / prefill.requests_per_s),
    )
    goal_ms = goals.ttft_p95_ms
    if goal_ms is None or not _ttft_decides(goals, scenario):
        return split
    return _within_ttft(split, goal_ms / 1e3)


def _ttft_decides(goals: Workload, scenario: Scenario) -> bool:
    """Whether a TTFT goal counts: what was measured with prompts and decoding in one engine is none of these pools."""
    return scenario.assume_ttft or goals.prefill_tokens_per_s is not None


def _within_ttft(split: PoolSizes, goal_s: float) -> PoolSizes:
    """The split with as many prefill instances as the TTFT goal takes. ValueError where no number of them meets it."""
    for count in range(split.prefill_instances, _MOST_MORE_PREFILL * split.prefill_instances + 1):
        candidate = split._replace(prefill_instances=count)
        if candidate.ttft_s <= goal_s:
            return candidate
    least_ms = (split.prefill.prompt_s + split.transfer.time_s) * 1e3
    raise ValueError(f"TTFT {least_ms:,.0f} ms without a queue, goal {goal_s * 1e3:,.0f} ms: more TP would help")


def _decode_demand(
    decode_workload: Workload, goals: Workload, first_token_s: float, scenario: Scenario, catalogues: Catalogues
) -> Demand:
    """A decode instance and its load: prompts come with their KV cache, and it computes none of them.

    `first_token_s`: time that the prefill pool and the transfer take of an E2E goal. ValueError where the instance
    cannot serve even one request.
    """
    e2e_ms = goals.e2e_p95_ms
    if e2e_ms is not None:
        e2e_ms -= first_token_s * 1e3
        if e2e_ms <= 0.0:
            raise ValueError(f"the E2E goal is over before the first token: {first_token_s * 1e3:,.0f} ms")
    workload = msgspec.structs.replace(
        decode_workload,
        target=1.0,
        target_kind="concurrency",
        prefix_hit_ratio=1.0,
        prefill_tokens_per_s=None,
        tpot_p95_ms=goals.tpot_p95_ms,
        itl_p95_ms=goals.itl_p95_ms,
        itl_mean_ms=goals.itl_mean_ms,
        ttft_p95_ms=None,
        e2e_p95_ms=e2e_ms,
    )
    # Else these goals of the scenario would take the place of those left out of the workload.
    without_goals = msgspec.structs.replace(scenario, ttft_p95_ms=None, e2e_p95_ms=None)
    decode = demand_at_own_tp(workload, without_goals, catalogues)
    if decode.problem:
        raise ValueError(f"decode: {decode.problem}")
    if decode.instance.itl_s(decode.planned_running) is None or not decode.instance.answer_tokens:
        raise ValueError("needs an ITL: the model's dimensions, prompt_tokens and answer_tokens")
    return decode


def _transfer_between(prefill: Instance, decode: Workload, settings: Disaggregated) -> Transfer:
    """The KV cache of a whole prompt: each GPU of a rank sends its part over a link of its own.

    ValueError where the link is not known.
    """
    assert prefill.llm is not None
    assert prefill.gpu is not None
    size_bytes = kv_stored_bytes(prefill.llm, prefill.prompt_tokens or 0.0)
    lanes = min(prefill.tp, decode.tp or 1)
    if settings.link_gb_per_s is not None:
        return Transfer(size_bytes, lanes * settings.link_gb_per_s * 1e9, typed=True)
    if prefill.gpu.link_bytes_per_s <= 0.0:
        raise ValueError(f"the link between {prefill.gpu.name} GPUs is not known: link_gb_per_s tells it")
    return Transfer(size_bytes, lanes * prefill.gpu.link_bytes_per_s * REACHED.link, typed=False)


def _stay_s(decode: Demand, transfer: Transfer) -> float:
    """Time that a request takes a place of a decode instance at its planned load: transfer, and all further tokens."""
    instance = decode.instance
    tokens = max(1.0, (instance.answer_tokens or 0.0) - 1.0)
    return transfer.time_s + (instance.itl_s(decode.planned_running) or 0.0) * tokens


def _requests_per_s(workload: Workload, response_s: float) -> float:
    """Requests per second that the target comes to, without a queue."""
    if workload.target_kind == "requests_per_s":
        return workload.target
    if workload.target_kind == "users":
        return workload.target / (response_s + workload.think_s)
    return workload.target / response_s


def _whole_instances(exact: float) -> int:
    """Whole instances. ValueError where they are more than can be."""
    if exact > MOST_INSTANCES:
        raise ValueError(f"{exact:.2g} instances: check the target")
    return max(1, math.ceil(exact - _EPSILON))


def _aggregated_tokens_per_s_per_gpu(demand: Demand) -> Reading:
    """Output tokens per second and GPU of an aggregated instance at its planned load."""
    instance = demand.instance
    response_s = instance.response_s(demand.planned_running)
    if not response_s or not instance.answer_tokens:
        return NOT_GIVEN
    return demand.planned_running * instance.answer_tokens / response_s / instance.gpus


def split_notes(split: PoolSizes, scenario: Scenario) -> Iterator[str]:
    """Assumptions and sources behind the figures."""
    yield NOT_MEASURED
    if split.decode.instance.source in (Source.MEASURED, Source.SWEEP, Source.RESCALED):
        yield "decode: re-scaled from what was measured with prompts in its steps"
    server = split.decode.instance.server
    if not split.transfer.typed and server is not None and split.gpus > server.gpus:
        yield "the pools need more than one server: link_gb_per_s tells the network between them"
    goals = split.prefill.instance.workload
    if goals.ttft_p95_ms is not None and not _ttft_decides(goals, scenario):
        yield "TTFT goal not used: not measured on such pools; assume_ttft plans by the estimate"
