"""Conditions of a simulation: the requests that arrive, for how long, and the router and replicas that they meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.sizing.engine_limits import longest_request
from gpumon.sizing.length_tail import Lengths, LengthShare
from gpumon.sizing.scenario import Workload
from gpumon.sizing.search import Demand
from gpumon.sizing.simulate.progress import Tell, silent
from gpumon.sizing.simulate.requests import (
    MOST_REQUESTS,
    Clients,
    Draw,
    RequestShape,
    RequestSource,
    arrival_kind,
    constant,
    histogram,
    lognormal,
    paced,
    steady,
)
from gpumon.sizing.simulate.trace_traffic import TraceTraffic
from gpumon.sizing.simulate.traffic import RecordedTraffic

PlayedTraffic = RecordedTraffic | TraceTraffic
"""Traffic whose arrivals are known: of a recording, or of a trace."""

DEFAULT_SECONDS: Final = 600.0
"""Simulated seconds, if neither the user nor a recording says how many."""
LEAST_REQUESTS: Final = 200.0
"""Requests that a bounded simulation has at least, however long that takes: a p95 of fewer is one of chance."""
LEAST_RESPONSE_TIMES: Final = 4.0
"""Times the mean time of a request that a simulation lasts at least: fewer requests run at its start and its end."""
MOST_CLIENTS: Final = 200_000
"""Clients of one simulation: each holds its request in memory."""


class Conditions(NamedTuple):
    """Traffic of a simulation, and the replicas and the router that it meets."""

    seconds: float | None = None
    """Simulated seconds of arrivals; None: those of the recording, else 10 minutes."""
    seed: int = 1
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps between arrivals: 1 is Poisson, less comes in bursts."""
    prompt_variation: float | None = None
    """Standard deviation over mean of the prompts; None: as typed in the scenario or seen, else all alike.

    A recording's prompts keep their own, unless their mean is typed.
    """
    answer_variation: float | None = None
    """As that of the prompts."""
    groups: int = 0
    """Groups of requests that begin alike; 0: the share of prefix hits is the workload's."""
    shared_tokens: int = 0
    """Tokens that the requests of one group begin with."""
    router: str = "least-loaded"
    """Name in `ROUTERS`."""
    replicas: int | None = None
    """None: as many as the plan by formula takes."""
    most_requests: int = MOST_REQUESTS
    tell: Tell = silent
    """Is told how far the simulation is."""


def source_of(demand: Demand, conditions: Conditions, recorded: PlayedTraffic | None = None) -> RequestSource:
    """The requests of a workload. Raises ValueError if their lengths are not known, or if they are too many."""
    workload = demand.workload
    if isinstance(recorded, TraceTraffic):
        return RequestSource(recorded.played(longest_request(demand.instance), conditions.seconds))
    if recorded is not None:
        shape = _recorded_shape(demand, conditions, recorded)
        most_s = math.inf if conditions.seconds is None else conditions.seconds
        paces = tuple(pace for pace in recorded.paces if pace.start_s < most_s)
        requests = paced(paces, shape, conditions.seed, conditions.burstiness, conditions.most_requests)
        return RequestSource(requests)
    shape = _request_shape(demand, conditions)
    seconds = conditions.seconds or DEFAULT_SECONDS
    if workload.target_kind == "requests_per_s":
        rate = workload.target
        requests = steady(rate, seconds, shape, conditions.seed, conditions.burstiness, conditions.most_requests)
        return RequestSource(requests)
    if workload.target > MOST_CLIENTS:
        raise ValueError(f"{workload.target:,.0f} clients are too many to simulate: at most {MOST_CLIENTS:,}")
    think_s = _think_s(workload)
    return Clients(
        clients=_client_count(workload),
        seconds=seconds,
        shape=shape,
        seed=conditions.seed,
        think_s=think_s,
        # Over one round of a client, so that their requests are not in step.
        spread_s=min(mean_response_s(demand) + think_s, seconds / 2.0),
        most=conditions.most_requests,
    )


def _client_count(workload: Workload) -> int:
    """The number of clients for a target in requests in flight or in users."""
    return max(1, round(workload.target))


def _think_s(workload: Workload) -> float:
    """Mean pause of a client in seconds; clients for a target in flight have none."""
    if workload.target_kind == "users":
        return workload.think_s
    return 0.0


def mean_response_s(demand: Demand) -> float:
    """Mean seconds from a request to its last token by the formulas; 0 where they do not tell."""
    return demand.instance.response_s(max(1.0, demand.planned_running)) or 0.0


def bounded(demand: Demand, conditions: Conditions, recorded: PlayedTraffic | None, most_requests: int) -> Conditions:
    """The conditions with a time for about so many requests, unless one was given or traffic is recorded.

    It is not shorter than `LEAST_REQUESTS` take, and than a few requests take one after the other.
    """
    if conditions.seconds is not None or recorded is not None:
        return conditions
    response_s = mean_response_s(demand)
    workload = demand.workload
    rate = workload.target
    if workload.target_kind != "requests_per_s":
        rate = _client_count(workload) / max(response_s + _think_s(workload), 1e-3)
    rate = max(rate, 1e-9)
    seconds = max(LEAST_RESPONSE_TIMES * response_s, LEAST_REQUESTS / rate, min(DEFAULT_SECONDS, most_requests / rate))
    return conditions._replace(seconds=seconds)


def _request_shape(demand: Demand, conditions: Conditions) -> RequestShape:
    """Lengths and shared beginnings of a workload's requests. Raises ValueError if the lengths are not known."""
    mix = demand.instance.mix
    if mix is None:
        raise ValueError("lengths are not known: give --prompt and --answer (prompt_tokens, answer_tokens)")
    lengths = lengths_of(demand)
    hit_ratio = 0.0 if conditions.groups else mix.prefix_hit_ratio  # groups: the prefix cache is simulated
    return RequestShape(
        prompt=_length_draw(max(1.0, mix.prompt_tokens), conditions.prompt_variation, lengths.prompt),
        answer=_length_draw(mix.answer_tokens, conditions.answer_variation, lengths.answer),
        hit_ratio=hit_ratio,
        groups=conditions.groups,
        shared_tokens=conditions.shared_tokens,
        longest=longest_request(demand.instance),
    )


def lengths_of(demand: Demand) -> Lengths:
    """Distribution of a workload's lengths: typed in the scenario, or else as measured; empty where not known."""
    typed = demand.workload.lengths
    if typed:
        return typed
    seen = demand.instance.seen
    if seen is not None and seen.lengths:
        return seen.lengths
    return Lengths()


def _length_draw(mean: float, variation: float | None, steps: Sequence[LengthShare]) -> Draw:
    """A draw of lengths with this mean: by a typed variation, else by a histogram, else all of one length."""
    if variation is not None:
        return lognormal(mean, variation)
    if not steps:
        return constant(mean)
    bounds = []
    shares = []
    before = 0.0
    for step in steps:  # `share` is that of all lengths up to its bound
        bounds.append(step.tokens)
        shares.append(step.share - before)
        before = step.share
    shares.append(0.0)  # of lengths beyond the last bound
    return histogram(bounds, shares, mean)


def _recorded_shape(demand: Demand, conditions: Conditions, recorded: RecordedTraffic) -> RequestShape:
    """Lengths of a recording, with typed ones in their place."""
    workload = demand.workload
    if workload.prompt_tokens is not None:
        recorded = recorded._replace(prompt=_length_draw(workload.prompt_tokens, conditions.prompt_variation, ()))
    if workload.answer_tokens is not None:
        recorded = recorded._replace(answer=_length_draw(workload.answer_tokens, conditions.answer_variation, ()))
    shape = recorded.shape(longest_request(demand.instance))
    if workload.prefix_hit_ratio is not None:
        shape = shape._replace(hit_ratio=workload.prefix_hit_ratio)
    if conditions.groups:
        shape = shape._replace(hit_ratio=0.0, groups=conditions.groups, shared_tokens=conditions.shared_tokens)
    return shape


def arrivals_text(workload: Workload, conditions: Conditions, recorded: PlayedTraffic | None) -> str:
    """The arrivals in words: `20 requests/s, Poisson, for 600 s`."""
    if recorded is not None:
        text = f"{recorded.requests:,.0f} requests {recorded.timing} in {recorded.seconds:,.0f} s"
        if conditions.seconds is not None and conditions.seconds < recorded.seconds:
            return f"the first {conditions.seconds:,.0f} s of {text}"
        return text
    seconds = conditions.seconds or DEFAULT_SECONDS
    if workload.target_kind == "concurrency":
        clients = _client_count(workload)
        noun = "client" if clients == 1 else "clients"
        return f"{clients:,} {noun}, each with one request in flight, for {seconds:,.0f} s"
    if workload.target_kind == "users":
        return f"{_client_count(workload):,} users who think for {workload.think_s:g} s, for {seconds:,.0f} s"
    return f"{workload.target:.4g} requests/s, {arrival_kind(conditions.burstiness)}, for {seconds:,.0f} s"
