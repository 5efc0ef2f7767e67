"""Requests that pass two pools: computed by prefill instances, sent to decode instances, decoded there."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple

import msgspec

from gpumon.sizing.disaggregated import NOT_MEASURED, PoolSizes, best_split
from gpumon.sizing.instance import Instance
from gpumon.sizing.plan import with_server
from gpumon.sizing.scenario import Catalogues, Disaggregated, Scenario, Workload
from gpumon.sizing.search import Demand
from gpumon.sizing.simulate.conditions import Conditions, PlayedTraffic, source_of
from gpumon.sizing.simulate.experiment import Formula, Simulation, answer_of, goals_of, problem_answer
from gpumon.sizing.simulate.figures import Figures, figures_of
from gpumon.sizing.simulate.requests import PlayedRequest, RequestSource
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import Log, ServedRequest
from gpumon.sizing.simulate.setup import Setup, setup_of


class Prefilled(NamedTuple):
    """A request whose prompt is computed."""

    request: PlayedRequest
    began_s: float
    """Begin of the computation."""
    sent_s: float
    """Time at which its KV cache is at the decode pool, with the first token of its answer."""


def simulate_pools(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: PlayedTraffic | None = None,
) -> Simulation:
    """Simulate a workload on the pools of its best split. Whatever a user typed, it does not raise: `problem` says why
    there is no answer. Targets in flight or in users arrive at the rate that the plan makes of them."""
    scenario = with_server(scenario, catalogues)
    settings = workload.disaggregated or Disaggregated()
    try:
        split = best_split(workload, settings, scenario, catalogues)
        at_rate = msgspec.structs.replace(workload, target=split.requests_per_s, target_kind="requests_per_s")
        arriving = Demand(at_rate, split.prefill.instance)
        source = source_of(arriving, conditions, recorded)
        decoding = split.decode.instance
        apart = msgspec.structs.replace(decoding.workload, disaggregated=None)  # which would be noted
        setup = setup_of(decoding._replace(workload=apart), scenario, catalogues)
        figures = play_pools(split, source, setup, conditions)
    except ValueError as why:
        return problem_answer(Demand(workload, Instance(workload)), conditions, str(why), recorded)
    decode = split.decode._replace(
        workload=at_rate,
        instance=decoding._replace(workload=split.prefill.instance.workload),
    )
    answer = answer_of(decode, conditions, recorded, split.decode_instances, setup=setup, figures=figures)
    prefill = split.prefill
    pools = (
        f"{split.prefill_instances} prefill instances of TP {prefill.instance.tp} in front of "
        f"{split.decode_instances} decode instances of {split.decode.layout.text}: a prompt waits for the first rank "
        f"that is free, takes {prefill.prompt_s * 1e3:,.0f} ms at its mean length, and is sent in "
        f"{split.transfer.time_s * 1e3:,.0f} ms"
    )
    return msgspec.structs.replace(
        answer,
        replicas=split.prefill_instances + split.decode_instances,
        gpus=_gpus(split),
        formula=_formula(split),
        notes=(pools, NOT_MEASURED, *answer.notes),
    )


def play_pools(split: PoolSizes, source: RequestSource, setup: Setup, conditions: Conditions) -> Figures:
    """The figures of requests that pass the prefill and the decode instances of a split. ValueError if none arrives."""
    prefilled = prefill_all(split, list(source.first()))
    if not prefilled:
        raise ValueError("no request arrives in the simulated time: give a longer one (--duration)")
    sent = []
    by_sent: dict[int, Prefilled] = {}
    for done in sorted(prefilled, key=lambda done: done.sent_s):
        request = done.request
        # Its first token came with the cache.
        decoded = request._replace(arrival_s=done.sent_s, answer=max(1, request.answer - 1), cached=request.prompt)
        sent.append(decoded)
        by_sent[id(decoded)] = done
    decoding = RequestSource(sent)
    log = play(decoding, setup.cost, setup.limits, split.decode_instances, ROUTERS[conditions.router]())
    return figures_of(_joined(log, by_sent), goals_of(split.prefill.instance), _gpus(split))


def prefill_all(split: PoolSizes, requests: Sequence[PlayedRequest]) -> list[Prefilled]:
    """All requests through the prefill pool and the transfer: first come, first served, by the ranks of all instances.

    A prompt takes as much of the mean's time as it has of its tokens; cached tokens are not computed, but sent.
    """
    prefill = split.prefill
    mix = prefill.instance.mix
    assert mix is not None
    free_s = [0.0] * (split.prefill_instances * prefill.ranks)
    heapify(free_s)
    prefilled = []
    for request in sorted(requests):
        began_s = max(request.arrival_s, free_s[0])
        computed = max(1, request.prompt - request.cached)
        ended_s = began_s + prefill.prompt_s * computed / max(1.0, mix.new_tokens)
        heapreplace(free_s, ended_s)
        sent_s = ended_s + split.transfer.time_s * request.prompt / max(1.0, mix.prompt_tokens)
        prefilled.append(Prefilled(request, began_s, sent_s))
    return prefilled


def _joined(log: Log, by_sent: dict[int, Prefilled]) -> Log:
    """The log of the decode pool with the times of its requests in both pools."""
    served = []
    for decoded in log.served:
        done = by_sent[id(decoded.request)]
        end_s = done.sent_s  # an answer of one token is whole with the KV cache
        if done.request.answer > 1:
            log.add_gaps(max(1e-9, decoded.first_s - done.sent_s), 1.0, decoded.first_s)
            end_s = decoded.end_s
        served.append(ServedRequest(done.request, done.began_s, done.sent_s, end_s))
    log.served = served
    log.prompt_tokens = sum(one.request.prompt for one in served)
    log.hit_tokens = sum(one.request.cached for one in served)
    return log


def _gpus(split: PoolSizes) -> int:
    """GPUs of both pools without spares."""
    return split.prefill_instances * split.prefill.instance.gpus + split.decode_instances * split.decode.instance.gpus


def _formula(split: PoolSizes) -> Formula:
    """Means by the formulas of the plan for both pools."""
    tokens = max(1.0, split.decode.instance.answer_tokens or 1.0) - 1.0
    return Formula(
        running=split.requests_per_s * split.decode_stay_s / split.decode_instances,
        ttft_s=split.ttft_s,
        itl_s=split.itl_s,
        e2e_s=split.ttft_s + split.itl_s * tokens,
    )
