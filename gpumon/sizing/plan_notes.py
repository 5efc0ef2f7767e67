"""Words beside a plan: the conditions that its figures hold under, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.readings.format import counted, seconds
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import Basis, JudgedGoal, LimitKind
from gpumon.sizing.capacity import OPERATING_POINTS, binding
from gpumon.sizing.goals import Goal, basis_of, goals_of
from gpumon.sizing.instance import Instance
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadPart
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.queueing import queue_warning
from gpumon.sizing.scenario import Scenario
from gpumon.sizing.search import REMEDIES, Demand
from gpumon.sizing.service import running_of

_MOST_ALTERNATIVES: Final = 3
"""Other layouts that a note names."""
_FEW_REQUESTS: Final = 8
"""Requests of an instance below which a note says why they are so few, if the target is `_MANY_TIMES` as many."""
_MANY_TIMES: Final = 10
_CROWDED_RATIO: Final = 1.0 + 1e-6
"""Sum of busy shares above which instances on one GPU slow each other down."""


def has_several_types(pools: Sequence[ServerPool]) -> bool:
    """Whether there are several types of GPU."""
    return len({pool.gpu for pool in pools}) > 1


def type_notes(workload: int, parts: Sequence[WorkloadPart], pools: Sequence[ServerPool]) -> Iterator[str]:
    """Places of the instances of a workload in a plan over several types of GPU, and why they are not elsewhere."""
    if not has_several_types(pools) or not parts:
        return
    main_part = max(parts, key=lambda part: part.instances)
    for part, running in zip(parts, running_of(parts, [0] * len(parts)), strict=True):
        instance = part.demand.instance
        name = instance.gpu.name if instance.gpu is not None else "an unknown GPU"
        layout = part.demand.layout.text
        planned = part.demand.planned_running
        yield f"{part.instances} on {name} ({layout}): {running:.3g} requests each, at most {planned:g}"
        if part is not main_part:  # whose notes the plan has anyway
            yield from (f"on {name}: {note}" for note in instance.notes)
    problems = {pool.gpu: pool.demands[workload].problem for pool in pools if pool.demands[workload].problem}
    for name, problem in problems.items():
        yield f"not on {name}: {problem}"


def plan_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Conditions that the figures hold under."""
    instance = demand.instance
    if demand.simulation_note:
        yield demand.simulation_note
    if demand.fewer_gpus_note:
        yield demand.fewer_gpus_note
    yield from _layout_notes(demand)
    yield from _goal_notes(demand, scenario)
    if instance.workload.target_kind == "users" and instance.workload.think_s <= 0.0:
        yield "think time 0 s: each user asks anew as soon as an answer ends"
    if instance.fitted is not None and instance.fitted.anchored:
        yield f"{instance.fitted.text}: too few load levels for a fit"
    yield from _typed_capacity_notes(demand)
    if instance.seen is not None:
        yield from _profile_notes(instance, instance.seen)


def uneven_notes(goals: Sequence[JudgedGoal]) -> Iterator[str]:
    """Goals that are missed at the load of the target though they hold at a larger one, the limit: simulated p95 rise
    unevenly with the load."""
    for goal in goals:
        if goal.basis is Basis.SIMULATED and not isinstance(goal.value_s, Missing) and goal.value_s > goal.goal_s:
            yield (
                f"{goal.name} is {seconds(goal.value_s)} at the load of the target, beyond its goal of "
                f"{seconds(goal.goal_s)} that holds at the limit: simulated p95 rise unevenly with the load; a spare "
                "instance would move it"
            )


def _layout_notes(demand: Demand) -> Iterator[str]:
    """Other layouts beside the planned one, the network that it goes over, and why its instances hold so little."""
    if demand.problem:
        return
    if demand.alternatives:
        others = "; ".join(map(_layout_text, demand.alternatives[:_MOST_ALTERNATIVES]))
        yield f"{demand.layout.text} takes {_gpus_text(demand)}; best of other kinds: {others}"
    yield from _few_requests_note(demand)


def _layout_text(demand: Demand) -> str:
    """GPUs of a layout, and the reason: `TP 8 128 GPUs (5 requests each, limited by KV)`."""
    kind = binding(demand.limits).kind.value
    least = "at least " if demand.is_bound else ""
    requests = counted(round(demand.planned_running), "request")
    return f"{demand.layout.text} {least}{_gpus_text(demand)} ({requests} each, limited by {kind})"


def _gpus_text(demand: Demand) -> str:
    """GPUs of a layout: `1 GPU`, `2,048 GPUs`."""
    return "1 GPU" if demand.gpus == 1 else f"{demand.gpus:,.0f} GPUs"


def _few_requests_note(demand: Demand) -> Iterator[str]:
    """Why each instance holds few of many requests, and what would change that."""
    planned = demand.planned_running
    needed = demand.needed_instances
    if planned >= _FEW_REQUESTS or needed < _MANY_TIMES:
        return
    first = binding(demand.limits)
    remedy = REMEDIES.get(first.kind, "change that bound")
    larger = [other for other in demand.alternatives if other.planned_running >= _FEW_REQUESTS]
    beside = f"; {larger[0].layout.text} holds {larger[0].planned_running:,.0f} each" if larger else ""
    yield f"each of {needed:,} instances holds {counted(round(planned), 'request')}: {first.text}; {remedy}{beside}"


def _profile_notes(instance: Instance, seen: Observed) -> Iterator[str]:
    """Conditions under which the profile was measured."""
    if seen.origin is Origin.TABLE and not instance.alike and seen.gpu and instance.gpu:
        yield f"the table of {seen.name} was measured on {seen.gpu}, not on {instance.gpu.name}"
    request_tokens = (instance.prompt_tokens or 0.0) + (instance.answer_tokens or 0.0)
    if seen.max_model_len is not None and request_tokens > seen.max_model_len:
        yield (
            f"a request of {request_tokens:,.0f} tokens is longer than {seen.name} takes now (context "
            f"{seen.max_model_len:,}): it has to be started with a longer one"
        )
    if seen.of_medians:
        yield f"latencies of {seen.name} are medians of requests: the file has no means"
    warning = queue_warning(seen)
    if warning:
        yield warning


def _goal_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Which goals count, and as what."""
    instance = demand.instance
    bases = {goal: basis_of(instance, scenario, goal) for goal, _ in goals_of(instance.workload)}
    if not bases:
        yield from _no_goal_notes(demand)
    yield from _basis_notes(instance, bases)
    if instance.lacks_ttft and instance.answer_tokens is not None:
        yield "TTFT is not known: E2E is at least, and requests per second are at most, what stands here"
    if instance.workload.ttft_p95_ms is None or instance.first.line is None or instance.first.decides:
        return
    if Basis.SIMULATED in bases.values():
        yield f"TTFT was not measured on this engine: it is simulated on an {_first_token_text(instance)}"
    elif scenario.assume_ttft:
        estimate = _first_token_text(instance)
        yield f"the TTFT goal counts by an {estimate} (assume_ttft): it was not measured here"
    else:
        yield _unused_goal_note(demand)


def _basis_notes(instance: Instance, bases: Mapping[Goal, Basis]) -> Iterator[str]:
    """Goals that are held against simulated requests, against a mean, and those that nothing is held against."""
    goals: dict[Basis, list[Goal]] = {}
    for goal, basis in bases.items():
        goals.setdefault(basis, []).append(goal)
    simulated = goals.get(Basis.SIMULATED, [])
    if simulated:
        names = " and ".join(goal.name for goal in simulated)
        yield f"{names} of simulated requests at each load (docs/simulate.md): not measured"
    if any(goal.kind is LimitKind.TTFT for goal in simulated):
        yield from _step_notes(instance)
    by_mean = _latencies(goals.get(Basis.MEAN_ONLY, []))
    if by_mean:
        yield f"p95 / mean of the {by_mean} is not known: the goal is compared with the mean"
    unknown = goals.get(Basis.UNKNOWN, [])
    if instance.first.line is not None:  # an estimated TTFT has a note of its own
        unknown = [goal for goal in unknown if goal.kind is not LimitKind.TTFT]
    unchecked = _latencies(unknown)
    if unchecked:
        yield f"the {unchecked} goal is not checked: its latency is not known"


def _latencies(goals: Sequence[Goal]) -> str:
    """The latencies that goals are of: `TTFT and E2E`."""
    return " and ".join(goal.kind.value for goal in goals)


def _step_notes(instance: Instance) -> Iterator[str]:
    """Chance in the p95 of a simulated TTFT of clients that ask anew as soon as they are answered."""
    has_lengths = bool(instance.workload.lengths) or (instance.seen is not None and bool(instance.seen.lengths))
    if instance.workload.target_kind == "concurrency" and not has_lengths:
        yield (
            "clients whose requests are all of one length keep step: their TTFT p95 may be another by half in another "
            "simulation, by how many prompts meet; lengths of the workload make it steadier"
        )


def _no_goal_notes(demand: Demand) -> Iterator[str]:
    """Names of the limits of a workload without latency goals, unless it has an operating point."""
    names: dict[LimitKind, str] = {limit.kind: limit.kind.value for limit in demand.limits}
    if not names or OPERATING_POINTS.intersection(names):
        return
    verb = "limits" if len(names) == 1 else "limit"
    yield f"no latency goal: only {' and '.join(names.values())} {verb} it"


def _first_token_text(instance: Instance) -> str:
    """An estimated TTFT, with the errors that such estimates have."""
    return _text_with_band("estimate", instance.first.band)


def _unused_goal_note(demand: Demand) -> str:
    """Why a TTFT goal does not decide, and what makes it count."""
    first = demand.instance.first
    ttft_s = _ttft_at_target_s(demand)
    figure = ""
    if ttft_s is not None:
        estimate = _text_with_band(f"{first.basis}: {ttft_s * 1e3:,.0f} ms", first.band)
        figure = f" ({estimate})"
    return (
        f"TTFT goal not used: not measured on this engine{figure}; `gpumon profiles add` of a load test or a running "
        f"engine makes it count, assume_ttft plans by the estimate"
    )


def _text_with_band(text: str, band: Band) -> str:
    """A figure with the errors that such figures have."""
    if band:
        return f"{text}, {band.text}"
    return text


def _ttft_at_target_s(demand: Demand) -> float | None:
    """TTFT at the target in seconds, p95 where its tail is known, else the mean; None where there is no answer."""
    if demand.problem or not demand.needed_instances:
        return None
    running = demand.running_per_instance(demand.needed_instances)
    if not math.isfinite(running):
        return None
    p95_s = demand.instance.ttft_p95_s(running)
    if p95_s is None:
        return demand.instance.ttft_s(running)
    return p95_s


def _typed_capacity_notes(demand: Demand) -> Iterator[str]:
    """Limits that let fewer requests in than the capacity that the user typed."""
    typed = demand.workload.capacity_per_instance
    if typed is None:
        return
    for limit in demand.limits:
        if limit.concurrency < typed:
            yield f"typed capacity is above what {limit.kind.value} allows: {limit.text}"


def _ttft_warning(demand: Demand, scenario: Scenario) -> str:
    """Warning where an estimate of TTFT leaves open whether its goal is met, or most likely misses it; else empty."""
    first = demand.instance.first
    goal_ms = demand.instance.workload.ttft_p95_ms
    if goal_ms is None or first.decides or scenario.assume_ttft or not first.band:
        return ""
    ttft_s = _ttft_at_target_s(demand)
    if ttft_s is None:
        return ""
    low_ms = ttft_s * 1e3 * (1.0 + first.band.low)
    high_ms = ttft_s * 1e3 * (1.0 + first.band.high)
    if goal_ms >= high_ms:
        return ""
    name = demand.workload.label
    if goal_ms < low_ms:
        return f"{name}: TTFT is estimated at {low_ms:,.0f} to {high_ms:,.0f} ms, above its goal of {goal_ms:,.0f} ms"
    span = f"{low_ms:,.0f} to {high_ms:,.0f} ms"
    return f"{name}: the TTFT goal of {goal_ms:,.0f} ms lies inside its estimate, {span}: measure it"


def plan_warnings(
    demands: Sequence[Demand], original: Scenario, scenario: Scenario, memory_only: PackedPools, busy_aware: PackedPools
) -> Iterator[str]:
    """Warnings about the whole answer; `original`: the scenario as it was given, before a server was assumed."""
    if scenario.server and not original.server:
        shape = scenario.server[0]
        yield f"no server is given: assumed {shape.gpus} x {shape.gpu}, as measured"
    if memory_only.busiest_ratio > _CROWDED_RATIO:
        yield _crowding_warning(memory_only.busiest_ratio, busy_aware.packed.gpus)
    extrapolated = []
    instances = 0
    for demand in demands:
        ttft_warning = _ttft_warning(demand, scenario)
        if ttft_warning:
            yield ttft_warning
        if demand.extrapolated:
            extrapolated.append(demand.workload.label)
        instances += demand.instances
    if extrapolated:
        yield f"planned beyond the load that was measured (extrapolated): {', '.join(extrapolated)}"
    if scenario.planning_factor >= 1.0 and instances:
        yield "planning factor 1: no headroom for bursts"


def _crowding_warning(busiest_ratio: float, gpus_by_busy_share: Reading) -> str:
    """Instances share a GPU that is too busy: how slow they are, and what the packing by busy share takes."""
    if isinstance(gpus_by_busy_share, Missing):
        remedy = "there is no room"
    else:
        remedy = f"it takes {gpus_by_busy_share:,.0f} GPUs"
    return (
        f"packed by memory alone, instances on one GPU need {busiest_ratio * 100:.0f}% of it in sum: each "
        f"runs at about 1/{busiest_ratio:.1f} of its speed; by busy share {remedy}"
    )
