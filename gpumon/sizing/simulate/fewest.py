"""The fewest GPUs that hold the latency goals in simulations, and plans that are made by them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.readings.missing import Missing
from gpumon.sizing.capacity import binding
from gpumon.sizing.goals import LATENCY_KINDS
from gpumon.sizing.layouts import Layout
from gpumon.sizing.scenario import GOAL_NAMES, Catalogues, Scenario, Workload
from gpumon.sizing.search import Demand, demand_at_own_tp, demand_of, laid_out
from gpumon.sizing.simulate.conditions import DEFAULT_SECONDS, Conditions, bounded, source_of
from gpumon.sizing.simulate.experiment import goals_of, simulate_replicas
from gpumon.sizing.simulate.figures import (
    TOO_FEW_REQUESTS,
    Figures,
    RequestGoals,
    holds_goals,
    judged_figures,
    untold_goals,
)
from gpumon.sizing.simulate.progress import Tell, silent
from gpumon.sizing.simulate.self_check import check_recording
from gpumon.sizing.simulate.setup import setup_of
from gpumon.sizing.simulate.traffic import RecordedTraffic

_SEARCH_REQUESTS: Final = 20_000
"""Requests that a search simulates for each number of replicas: the p95 stands on 1,000 of them."""
_MOST_REPLICAS: Final = 512
"""Replicas beyond which a search gives up."""
SMALL_STEPS: Final = 512
"""Tokens of a step that a plan with an ITL goal is tried with, too: each step with a prompt is a long gap for all who
decode, and with still fewer tokens prompts wait."""
_NOT_LESS: Final = 0.99
"""Share of an earlier latency above which a later one counts as not less."""
_MOST_OTHER_KINDS: Final = 2
"""Layouts of other kinds that are simulated beside the planned one."""
_LARGER_CACHE: Final = "more GPUs per instance, an FP8 KV cache or shorter requests would help"


class FewestGpus(NamedTuple):
    """The fewest GPUs that hold the goals in the simulation."""

    demand: Demand
    """At the TP that takes the fewest, with the replicas that the simulation asks for."""
    figures: Figures
    """Figures of the simulation with these replicas."""


def fewest_gpus(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: RecordedTraffic | None = None,
) -> FewestGpus:
    """The smallest number of GPUs that holds the goals at p95, over the TPs that hold the model.

    A TP that was typed, or measured on these GPUs, stays. Raises ValueError with the reason if no number does.
    """
    first = demand_of(workload, scenario, catalogues)
    if first.instance.problem:
        raise ValueError(first.instance.problem)
    if not goals_of(first.instance).given:
        raise ValueError(f"no goal to simulate for: give one of {', '.join(GOAL_NAMES)}")
    best: FewestGpus | None = None
    first_problem = ""
    for layout in _layouts_to_try(workload, first):
        demand = demand_at_own_tp(laid_out(workload, layout), scenario, catalogues)
        demand = demand._replace(workload=workload, searched=first.searched)  # in which no layout was typed
        most_replicas = _MOST_REPLICAS
        if best is not None:  # fewer GPUs than the best so far
            most_replicas = int((best.demand.gpus - 1) // demand.instance.gpus) - demand.spares
        try:
            fewest = _fewest_replicas(demand, scenario, catalogues, conditions, recorded, most_replicas)
        except ValueError as problem:
            first_problem = first_problem or str(problem)
            continue
        best = fewest or best
    if best is None:
        none_holds = f"no number of replicas up to {_MOST_REPLICAS} holds the goals at p95 in the simulation"
        raise ValueError(first_problem or none_holds)
    return best


def _layouts_to_try(workload: Workload, first: Demand) -> list[Layout]:
    """The layouts to try: that of the plan first, and alone if it was typed or measured; beside TP alone the other TPs,
    beside stages or ranks the best layouts of other kinds."""
    planned = first.layout
    if workload.tp or workload.pp or workload.dp or first.instance.alike:
        return [planned]
    if planned.pp == planned.dp == 1:
        others = [Layout(tp) for tp in first.instance.tps]
    else:
        others = [other.layout for other in first.alternatives[:_MOST_OTHER_KINDS]]
    return list(dict.fromkeys([planned, *others]))


def _fewest_replicas(
    demand: Demand,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: RecordedTraffic | None,
    most_replicas: int,
) -> FewestGpus | None:
    """The fewest replicas of one TP, at most so many; None if even these do not hold the goals.

    Their number is doubled until the goals hold, then bisected. Raises ValueError where the formulas have no instance.
    """
    if demand.problem and not _misses_a_goal(demand):
        raise ValueError(demand.problem)
    setup = setup_of(demand.instance, scenario, catalogues)
    conditions = bounded(demand, conditions, recorded, _SEARCH_REQUESTS)
    goals = goals_of(demand.instance)
    results: dict[int, Figures] = {}

    def are_enough(replicas: int) -> bool:
        """Whether so many replicas hold the goals; their figures are kept in `results`."""
        figures = simulate_replicas(demand, setup, source_of(demand, conditions, recorded), conditions, replicas)
        if figures.refused:  # more instances would not help
            longer = counted(round(figures.refused), "request")
            raise ValueError(f"{longer} longer than the KV cache of an instance: {_LARGER_CACHE}")
        results[replicas] = figures
        if untold_goals(figures, goals):  # more instances would not bring more requests
            raise ValueError(f"{TOO_FEW_REQUESTS} ({figures.requests:,.0f} in all)")
        return holds_goals(figures, goals)

    if most_replicas < 1:
        return None
    low = 0
    high = min(most_replicas, max(1, demand.needed_instances))
    while not are_enough(high):
        if high >= most_replicas or (low and _is_stuck(results[low], results[high], goals)):
            return None
        low = high
        high = min(most_replicas, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if are_enough(middle):
            high = middle
        else:
            low = middle
    return FewestGpus(demand._replace(needed_instances=high, problem=""), results[high])


def _misses_a_goal(demand: Demand) -> bool:
    """Whether the formulas refuse an instance for a latency goal alone, which the simulation judges by itself."""
    if not demand.limits:
        return False
    first = binding(demand.limits)
    return first.concurrency < 1.0 and first.kind in LATENCY_KINDS


def _is_stuck(before: Figures, after: Figures, goals: RequestGoals) -> bool:
    """Whether a p95 misses its goal, and twice the replicas did not lower it: more of them do not help."""
    judged = zip(judged_figures(before, goals), judged_figures(after, goals), strict=True)
    for (_, goal_s, before_s), (_, _, after_s) in judged:
        if goal_s is None or isinstance(before_s, Missing) or isinstance(after_s, Missing):
            continue
        if after_s > goal_s and after_s >= _NOT_LESS * before_s:
            return True
    return False


def decide_by_simulation(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    traffic: Mapping[str, RecordedTraffic] = MappingProxyType({}),
    tell: Tell = silent,
) -> Demand:
    """The needs of a workload with the number of instances that the simulation asks for.

    `traffic`: served model name -> its recorded traffic, of which the busiest 10 minutes are simulated.
    """
    tails = catalogues.tails
    catalogues = catalogues._replace(tails=None)  # the whole plan is simulated, not its instances before it
    recorded = traffic.get(workload.model)
    by_formula = demand_of(workload, scenario, catalogues)
    if recorded is not None:
        fit = check_recording(workload, scenario, catalogues, recorded)
        if fit is not None and fit.check.refuted:
            return by_formula._replace(
                problem=f"by simulation: its fit is refuted by what was recorded: {fit.check.text}"
            )
        recorded = recorded.busiest(DEFAULT_SECONDS)
    try:
        fewest = fewest_gpus(workload, scenario, catalogues, Conditions(tell=tell), recorded)
    except ValueError as why:
        if str(why) == by_formula.problem:
            return by_formula
        return by_formula._replace(problem=f"by simulation: {why}")
    decided = fewest.demand
    if tails is not None:
        decided = decided._replace(
            instance=decided.instance._replace(tails=tails(decided.instance, scenario, catalogues))
        )
    fewer_gpus_note = ""
    if decided.gpus > by_formula.gpus:
        fewer_gpus_note = _smaller_steps_advice(by_formula, scenario, catalogues, recorded, decided.gpus, tell)
    return decided._replace(
        exact_instances=float(decided.needed_instances),
        simulation_note=_decision_text(by_formula, fewest),
        fewer_gpus_note=fewer_gpus_note,
    )


def _smaller_steps_advice(
    by_formula: Demand,
    scenario: Scenario,
    catalogues: Catalogues,
    recorded: RecordedTraffic | None,
    gpus: float,
    tell: Tell,
) -> str:
    """The advice to take smaller steps, if fewer than `gpus` GPUs hold the goals with them; else empty.

    Empty where the size of steps was typed, and without an ITL goal: steps with prompts make the p95 of the ITL.
    """
    workload = by_formula.workload
    if workload.max_num_batched_tokens is not None or goals_of(by_formula.instance).itl_s is None:
        return ""
    with_small_steps = msgspec.structs.replace(workload, max_num_batched_tokens=SMALL_STEPS)
    try:
        fewest = fewest_gpus(with_small_steps, scenario, catalogues, Conditions(tell=tell), recorded)
    except ValueError:
        return ""
    if fewest.demand.gpus >= gpus:
        return ""
    smaller = f"max_num_batched_tokens = {SMALL_STEPS} would take {fewest.demand.gpus:,.0f} GPUs"
    return f"{smaller} instead of {gpus:,.0f} in the simulation"


def _decision_text(by_formula: Demand, fewest: FewestGpus) -> str:
    """The decision of the simulation, as a note: `by simulation: 3 instances of TP 2 (by formula: 2 of TP 2); ...`."""
    figures = fewest.figures
    latencies = (
        *(("TTFT", figures.ttft_s), ("TPOT", figures.tpot_s)),
        *(("ITL", figures.itl_s), ("E2E", figures.e2e_s)),
    )
    p95_texts = [
        f"{name} {spread.p95 * 1e3:,.0f} ms" for name, spread in latencies if not isinstance(spread.p95, Missing)
    ]
    formulas = "none" if by_formula.problem else f"{by_formula.needed_instances} of {by_formula.layout.text}"
    instances = f"{counted(fewest.demand.needed_instances, 'instance')} of {fewest.demand.layout.text}"
    return f"by simulation: {instances} (by formula: {formulas}); p95 in it: {', '.join(p95_texts)}"
