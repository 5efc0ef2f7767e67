"""Latency goals: the figure that each judges, and where that comes from: measured, simulated, or by formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from gpumon.readings.format import seconds
from gpumon.sizing.answer import Basis, JudgedGoal, LimitKind, WorkloadPlan
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import Tail
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.sizing.tails import P95


class Goal(NamedTuple):
    """A latency goal that can be set."""

    key: str
    """Its key in files, in ms."""
    name: str
    """The figure that it judges, such as `TPOT p95`."""
    kind: LimitKind
    latency: str
    """Field of `tails.P95` with that figure; empty: it judges a mean."""


GOALS: Final = (
    Goal("tpot_p95_ms", "TPOT p95", LimitKind.TPOT, "tpot_s"),
    Goal("itl_p95_ms", "ITL p95", LimitKind.ITL, "itl_s"),
    Goal("itl_mean_ms", "ITL mean", LimitKind.ITL_MEAN, ""),
    Goal("ttft_p95_ms", "TTFT p95", LimitKind.TTFT, "ttft_s"),
    Goal("e2e_p95_ms", "E2E p95", LimitKind.E2E, "e2e_s"),
)
"""All goals, in the order in which they are shown."""
TOKEN_KINDS: Final = (LimitKind.TPOT, LimitKind.ITL, LimitKind.ITL_MEAN)
"""Limits of goals for the time between tokens."""
TOKEN_GOALS: Final = tuple(goal.name for goal in GOALS if goal.kind in TOKEN_KINDS)
"""Names of the goals for the time between tokens."""
LATENCY_KINDS: Final = frozenset(goal.kind for goal in GOALS)
"""Limits of latency goals."""


def goals_of(workload: Workload) -> Iterator[tuple[Goal, float]]:
    """The goals that a workload has, each with its seconds."""
    for goal in GOALS:
        goal_ms = getattr(workload, goal.key)
        if goal_ms is not None:
            yield goal, goal_ms / 1e3


def first_judged(names: Iterable[str], plans: Iterable[WorkloadPlan]) -> str:
    """The first of some goals that judges its own figure in a plan, and no mean in its place; empty: none does."""
    judged = set[str]()
    for plan in plans:
        judged |= {goal.name for goal in plan.goals if goal.basis not in (Basis.MEAN_ONLY, Basis.UNKNOWN)}
    return next((name for name in names if name in judged), "")


def judged_goal(plan: WorkloadPlan, name: str) -> JudgedGoal | None:
    """The goal of a workload with that name; None where it has no such goal."""
    return next((goal for goal in plan.goals if goal.name == name), None)


def ttft_decides(instance: Instance, scenario: Scenario) -> bool:
    """Whether the formula of the TTFT may decide: where TTFT was measured, or an estimate is to count."""
    return instance.first.line is not None and (instance.first.decides or scenario.assume_ttft)


def basis_of(instance: Instance, scenario: Scenario, goal: Goal) -> Basis:
    """Source of the figure that a goal is held against."""
    if goal.kind in TOKEN_KINDS and instance.answer_tokens == 1.0:  # which has no time between tokens
        return Basis.UNKNOWN
    by_formula = _formula_decides(instance, scenario, goal)
    if by_formula and not goal.latency:
        return Basis.MEAN
    if by_formula and tail_of_goal(instance, goal).known:
        is_typed = goal.kind is LimitKind.ITL and instance.workload.itl_tail_ratio is not None
        return Basis.TYPED if is_typed else Basis.MEASURED
    if goal.latency and instance.tails is not None:
        return Basis.SIMULATED
    return Basis.MEAN_ONLY if by_formula else Basis.UNKNOWN


def _formula_decides(instance: Instance, scenario: Scenario, goal: Goal) -> bool:
    """Whether a formula gives the latency of a goal, and may decide about it."""
    if goal.kind is LimitKind.TTFT and not ttft_decides(instance, scenario):
        return False
    return formula_s(instance, goal) is not None


def goal_text(goal: JudgedGoal) -> str:
    """A goal with the figure that it judges: `TPOT p95 33ms of 40ms (simulated)`."""
    name = f"{goal.name}: mean" if goal.basis is Basis.MEAN_ONLY else goal.name
    if goal.basis is Basis.PENDING:
        return f"{name} is simulated, of {seconds(goal.goal_s)}; mean {seconds(goal.value_s)}"
    basis = "" if goal.basis is Basis.MEAN else f" ({goal.basis.value})"
    least = "at least " if goal.is_least else ""
    return f"{name} {least}{seconds(goal.value_s)} of {seconds(goal.goal_s)}{basis}"


def tail_of_goal(instance: Instance, goal: Goal) -> Tail:
    """p95 / mean of the latency of a goal, as measured or typed.

    The E2E has none of its own: it is known where those of its parts are.
    """
    if goal.kind is LimitKind.E2E:
        return Tail(known=_decode_tail(instance).known and instance.ttft_tail.known)
    tails = {LimitKind.TPOT: instance.tpot_tail, LimitKind.ITL: instance.itl_tail, LimitKind.TTFT: instance.ttft_tail}
    return tails.get(goal.kind, Tail())


def formula_s(instance: Instance, goal: Goal) -> Callable[[float], float] | None:
    """Latency of a goal over the requests in flight, in seconds: p95 where p95 / mean is known, else the mean.

    None where nothing tells it.
    """
    if goal.kind is LimitKind.E2E:
        return _e2e_s(instance)
    mean_s = _mean_s(instance, goal)
    if mean_s is None:
        return None
    tail = tail_of_goal(instance, goal)
    return lambda running: mean_s(running) * tail.ratio_at(running)


def least_p95_s(instance: Instance, goal: Goal, running: float) -> float:
    """The mean that a simulated p95 does not go below, in seconds: of a time between tokens that of the curve; of a
    TTFT and an E2E the measured one, 0 where TTFT was not measured on the engine."""
    if goal.kind in TOKEN_KINDS:
        return instance.itl_s(running) or 0.0
    if not instance.first.decides:
        return 0.0
    mean_s = instance.ttft_s(running) if goal.kind is LimitKind.TTFT else instance.response_s(running)
    return mean_s or 0.0


def simulated_s(instance: Instance, goal: Goal, p95: P95, running: float) -> float | None:
    """The p95 of a goal by simulated requests, in seconds, no shorter than the mean; None where it has none.

    Most gaps between two tokens may be shorter than their mean, and so may be their p95.
    """
    value_s: float | None = getattr(p95, goal.latency)
    if value_s is None or goal.kind is LimitKind.ITL:
        return value_s
    return max(value_s, least_p95_s(instance, goal, running))


def _mean_s(instance: Instance, goal: Goal) -> Callable[[float], float] | None:
    """Mean over the requests in flight of a TTFT or a time between tokens; None where it is not known."""
    if goal.kind is LimitKind.TTFT:
        line = instance.first.line
        return None if line is None else line.ttft_s
    return None if instance.curve is None else instance.curve.itl_s


def _decode_tail(instance: Instance) -> Tail:
    """p95 / mean of the time that requests decode: that of the TPOT, or else of the ITL."""
    return instance.tpot_tail if instance.tpot_tail.known else instance.itl_tail


def _e2e_s(instance: Instance) -> Callable[[float], float] | None:
    """E2E over the requests in flight, each of its parts with its own tail. A TTFT that is not known counts as 0."""
    curve = instance.curve
    answer_tokens = instance.answer_tokens
    line = instance.first.line
    if curve is None or answer_tokens is None:
        return None
    decode_tail = _decode_tail(instance)
    # A constant ratio stands for the whole; one that follows the load of the tokens says nothing of the TTFT.
    ttft_tail = instance.ttft_tail if decode_tail.mean_s else decode_tail

    def e2e_s(running: float) -> float:
        ttft_s = 0.0 if line is None else line.ttft_s(running)
        decode_s = curve.itl_s(running) * max(0.0, answer_tokens - 1.0)
        return decode_s * decode_tail.ratio_at(running) + ttft_s * ttft_tail.ratio_at(running)

    return e2e_s
