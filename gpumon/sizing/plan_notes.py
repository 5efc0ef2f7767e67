"""Words beside a plan: the conditions that its figures hold under, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import LimitKind
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.instance import Instance
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadPart
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.queueing import queue_warning
from gpumon.sizing.scenario import Scenario
from gpumon.sizing.search import Demand
from gpumon.sizing.service import running_of

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
        planned = part.demand.planned_running
        yield f"{part.instances} on {name} (TP {instance.tp}): {running:.3g} requests each, at most {planned:g}"
        if part is not main_part:  # whose notes the plan has anyway
            yield from (f"on {name}: {note}" for note in instance.notes)
    problems = {}
    for pool in pools:
        if pool.demands[workload].problem:
            problems[pool.gpu] = pool.demands[workload].problem
    for name, problem in problems.items():
        yield f"not on {name}: {problem}"


def plan_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Conditions that the figures hold under."""
    instance = demand.instance
    if demand.simulation_note:
        yield demand.simulation_note
    if demand.fewer_gpus_note:
        yield demand.fewer_gpus_note
    yield from _goal_notes(demand, scenario)
    if instance.workload.target_kind == "users" and instance.workload.think_s <= 0.0:
        yield "think time 0 s: each user asks anew as soon as an answer ends"
    if instance.fitted is not None and instance.fitted.anchored:
        yield f"{instance.fitted.text}: too few load levels for a fit"
    yield from _typed_notes(demand)
    if instance.seen is not None:
        yield from _profile_notes(instance, instance.seen)


def _profile_notes(instance: Instance, seen: Observed) -> Iterator[str]:
    """Conditions under which the profile was measured."""
    if seen.origin is Origin.TABLE and not instance.alike and seen.gpu and instance.gpu:
        yield f"the table of {seen.name} was measured on {seen.gpu}, not on {instance.gpu.name}"
    warning = queue_warning(seen)
    if warning:
        yield warning


class _Goal(NamedTuple):
    """A latency goal that was asked for."""

    name: str
    latency_known: bool
    """Whether something tells that latency."""
    tail_known: bool
    """Whether something tells p95 / mean of that latency."""


def _goals(instance: Instance) -> list[_Goal]:
    """The latency goals of a workload."""
    asked = instance.workload
    itl_known = instance.curve is not None
    goals = []
    if asked.itl_p95_ms is not None:
        goals.append(_Goal("ITL", itl_known, instance.itl_tail.known))
    if asked.ttft_p95_ms is not None:
        ttft_known = instance.first.line is not None
        goals.append(_Goal("TTFT", ttft_known, instance.ttft_tail.known))
    if asked.e2e_p95_ms is not None:
        e2e_known = itl_known and instance.answer_tokens is not None
        goals.append(_Goal("E2E", e2e_known, instance.itl_tail.known))
    return goals


def _goal_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Which goals count, and as what."""
    instance = demand.instance
    goals = _goals(instance)
    if not goals:
        yield from _no_goal_notes(demand)
    yield from _unknown_latencies(goals)
    if instance.workload.ttft_p95_ms is None or instance.first.line is None or instance.first.decides:
        return
    if scenario.assume_ttft:
        yield _assumed_ttft_note(demand)
    else:
        yield _unused_goal_note(demand)


def _unknown_latencies(goals: Sequence[_Goal]) -> Iterator[str]:
    """Goals that are compared with a mean, and those that nothing can be compared with."""
    by_mean = []
    unchecked = []
    for goal in goals:
        if not goal.tail_known:
            by_mean.append(goal.name)
        if not goal.latency_known:
            unchecked.append(goal.name)
    if by_mean:
        yield f"p95 / mean of the {' and '.join(by_mean)} is not known: the goal is compared with the mean"
    if unchecked:
        yield f"the {' and '.join(unchecked)} goal is not checked: its latency is not known"


def _no_goal_notes(demand: Demand) -> Iterator[str]:
    """Names of the limits of a workload without latency goals, unless it has an operating point."""
    names: dict[LimitKind, str] = {}
    for limit in demand.limits:
        names[limit.kind] = limit.kind.value
    if not names or OPERATING_POINTS.intersection(names):
        return
    verb = "limit"
    if len(names) == 1:
        verb = "limits"
    yield f"no latency goal: only {' and '.join(names.values())} {verb} it"


def _assumed_ttft_note(demand: Demand) -> str:
    """A plan that stands on an estimate of TTFT says so."""
    estimate = _text_with_band("estimate", demand.instance.first.band)
    return f"the TTFT goal counts by an {estimate} (assume_ttft): it was not measured here"


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


def _typed_notes(demand: Demand) -> Iterator[str]:
    """Limits that are below the capacity that the user typed."""
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
        f"packed by memory alone, instances on one GPU need {busiest_ratio * 100:.0f} % of it in sum: each "
        f"runs at about 1/{busiest_ratio:.1f} of its speed; by busy share {remedy}"
    )
