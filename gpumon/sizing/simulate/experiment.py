"""Simulations of one workload on replicas of an instance, with all that an answer says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from gpumon.readings.format import counted
from gpumon.readings.goals import goal_s
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.instance import Instance
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.sizing.search import Demand, demand_of
from gpumon.sizing.simulate.conditions import (
    DEFAULT_SECONDS,
    LEAST_REQUESTS,
    LEAST_RESPONSE_TIMES,
    Conditions,
    PlayedTraffic,
    arrivals_text,
    bounded,
    source_of,
)
from gpumon.sizing.simulate.figures import Figures, RequestGoals, figures_of, holds_goals, missed_goals
from gpumon.sizing.simulate.requests import RequestSource
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits
from gpumon.sizing.simulate.self_check import SelfCheck, check_recording, refusal_text
from gpumon.sizing.simulate.setup import Setup, setup_of
from gpumon.sizing.simulate.traffic import RecordedTraffic

SKETCH_REQUESTS: Final = 2_000
"""Requests that a sketch simulates: a keystroke has to wait for it."""
MOST_SKETCH_REQUESTS: Final = 50_000
"""Requests beyond which there is no sketch: they take longer than half a second."""
_LONGEST_NAME: Final = 40
"""Letters of a workload's name beside a bar."""
_IDLE: Final = 1e-9
"""Load that stands for none where a time is divided by it."""
_NO_LIMITS: Final = EngineLimits(0, 0, 0)
"""Limits of an engine that could not be set up."""
_TOO_SHORT: Final = (
    f"the simulated time is less than {LEAST_RESPONSE_TIMES:.0f} times that of a request: its start and its end, where "
    "fewer requests run, count too much; give a longer --duration, or a longer trace"
)
_BY_CHANCE: Final = (
    f"a p95 of fewer than {LEAST_REQUESTS:.0f} requests is one of chance: give a longer --duration, or a longer trace"
)
_NOT_KNOWN: Final = Missing(Reason.NOT_GIVEN)


class Formula(msgspec.Struct, frozen=True):
    """Means by the formulas of `gpumon size` for the same replicas, for requests that do not wait."""

    running: Reading
    """Requests in flight of each replica."""
    ttft_s: Reading
    itl_s: Reading
    e2e_s: Reading


class Simulation(msgspec.Struct, frozen=True):
    """The answer for one workload."""

    name: str
    model: str
    gpu: str
    tp: int
    pp: int
    replicas: int
    gpus: int
    """GPUs of all replicas."""
    router: str
    arrivals: str
    """In words: rate, clients, or the recording."""
    seed: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    """Blocks of 16 tokens of one replica's KV cache."""
    goal_ttft_s: Reading
    """Goals on the p95, but for `goal_itl_mean_s`."""
    goal_itl_s: Reading
    """Goal on the gaps between two tokens."""
    goal_e2e_s: Reading
    holds: bool
    """Whether each latency is within its goal, every request fits into the KV cache, and the queue does not grow."""
    missed: tuple[str, ...]
    """Latencies that are beyond their goals: TTFT, TPOT, ITL, ITL mean, E2E."""
    figures: tuple[Figures, ...]
    """Figures of the simulation: one entry, or none where there is a problem."""
    formula: Formula
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why there is no answer, and which option would help."""
    goal_tpot_s: Reading = _NOT_KNOWN
    """Goal on the p95 of the mean time between the tokens of each request."""
    goal_itl_mean_s: Reading = _NOT_KNOWN
    dp: int = 1
    """Data-parallel ranks of a replica."""
    check: SelfCheck | None = None
    """The recorded traffic on the engines as they ran, beside what they measured; None: nothing was recorded."""


def simulate(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: PlayedTraffic | None = None,
) -> Simulation:
    """Simulate a workload. Whatever a user typed, it does not raise: `problem` says why there is no answer.

    Recorded traffic is played on the engines as they ran first. Where that is not what they measured, no goal is said
    to be held by it; and there is no answer at all where the time of a step is none that was measured on them.
    """
    fit = None
    if isinstance(recorded, RecordedTraffic):
        fit = check_recording(workload, scenario, catalogues, recorded)
    demand = demand_of(workload, scenario, catalogues)
    if fit is not None and refusal_text(demand.instance, fit):
        answer = problem_answer(demand, conditions, refusal_text(demand.instance, fit), recorded)
        return msgspec.structs.replace(answer, check=fit.check)
    try:
        setup = setup_of(demand.instance, scenario, catalogues)
        replicas = _replicas(demand, conditions)
        source = source_of(demand, conditions, recorded)
        figures = simulate_replicas(demand, setup, source, conditions, replicas)
    except ValueError as why:
        return problem_answer(demand, conditions, str(why), recorded, conditions.replicas or 0)
    answer = answer_of(demand, conditions, recorded, replicas, setup=setup, figures=figures)
    if fit is not None:
        holds = answer.holds and not fit.check.refuted
        answer = msgspec.structs.replace(answer, check=fit.check, holds=holds)
    if len(scenario.gpu_types) > 1:
        note = f"played on {scenario.server[0].gpu} alone, the first type of GPU of the scenario"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
    return answer


def _replicas(demand: Demand, conditions: Conditions) -> int:
    """Replicas to simulate: typed, else those of the plan by formula. ValueError where there is no such plan."""
    if conditions.replicas is not None:
        return conditions.replicas
    if demand.problem:
        raise ValueError(f"the formulas have no number of replicas ({demand.problem}): give --replicas")
    return demand.needed_instances


def simulate_replicas(
    demand: Demand, setup: Setup, source: RequestSource, conditions: Conditions, replicas: int
) -> Figures:
    """Simulate so many replicas. Raises ValueError if no request arrives."""
    what = f"{demand.workload.label[:_LONGEST_NAME]}: {counted(replicas, 'replica')} of {demand.layout.text}"

    def tell(share: float) -> None:
        """Say how far this simulation is."""
        conditions.tell(what, share)

    log = play(source, setup.cost, setup.limits, replicas, ROUTERS[conditions.router](), setup.delay_s, tell)
    if not log.served and not log.refused:
        raise ValueError("no request arrives in the simulated time: give a longer one (--duration)")
    return figures_of(log, goals_of(demand.instance), replicas * demand.instance.gpus)


def goals_of(instance: Instance) -> RequestGoals:
    """The goals of an instance's workload, in seconds."""
    workload = instance.workload
    return RequestGoals(
        ttft_s=goal_s(workload.ttft_p95_ms),
        tpot_s=goal_s(workload.tpot_p95_ms),
        itl_s=goal_s(workload.itl_p95_ms),
        itl_mean_s=goal_s(workload.itl_mean_ms),
        e2e_s=goal_s(workload.e2e_p95_ms),
    )


def sketch(demand: Demand, scenario: Scenario, catalogues: Catalogues) -> Simulation:
    """Simulate one instance of a demand at its share of the target, with few requests, for a picture in a moment."""
    conditions = Conditions(replicas=1, most_requests=MOST_SKETCH_REQUESTS)
    workload = demand.workload
    share = max(workload.target / max(1, demand.needed_instances), _IDLE)
    one_instance = demand._replace(workload=msgspec.structs.replace(workload, target=share))
    if demand.problem:
        return problem_answer(one_instance, conditions, demand.problem)
    try:
        conditions = bounded(one_instance, conditions, recorded=None, most_requests=SKETCH_REQUESTS)
        setup = setup_of(demand.instance, scenario, catalogues)
        source = source_of(one_instance, conditions)
        figures = simulate_replicas(one_instance, setup, source, conditions, replicas=1)
    except ValueError as why:
        return problem_answer(one_instance, conditions, str(why))
    return answer_of(one_instance, conditions, recorded=None, replicas=1, setup=setup, figures=figures)


def problem_answer(
    demand: Demand,
    conditions: Conditions,
    problem: str,
    recorded: PlayedTraffic | None = None,
    replicas: int = 0,
) -> Simulation:
    """The answer without figures, and why there are none."""
    return answer_of(demand, conditions, recorded, replicas, setup=None, figures=None, problem=problem)


def answer_of(
    demand: Demand,
    conditions: Conditions,
    recorded: PlayedTraffic | None,
    replicas: int,
    setup: Setup | None,
    figures: Figures | None,
    problem: str = "",
) -> Simulation:
    """The answer with what is known of it: without `setup` no limits of the engine, without `figures` no verdict."""
    instance = demand.instance
    gpu = instance.gpu.name if instance.gpu is not None else ""
    goals = goals_of(instance)
    limits = setup.limits if setup is not None else _NO_LIMITS
    goals_hold = False
    missed: tuple[str, ...] = ()
    all_figures: tuple[Figures, ...] = ()
    if figures is not None:
        goals_hold = holds_goals(figures, goals)
        missed = missed_goals(figures, goals)
        all_figures = (figures,)
    return Simulation(
        name=demand.workload.label,
        model=demand.workload.model,
        gpu=gpu,
        tp=instance.tp,
        pp=instance.pp,
        dp=instance.dp,
        replicas=replicas,
        gpus=replicas * instance.gpus,
        router=conditions.router,
        arrivals=arrivals_text(demand.workload, conditions, recorded),
        seed=conditions.seed,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=limits.kv_blocks,
        goal_ttft_s=_reading(goals.ttft_s),
        goal_tpot_s=_reading(goals.tpot_s),
        goal_itl_s=_reading(goals.itl_s),
        goal_itl_mean_s=_reading(goals.itl_mean_s),
        goal_e2e_s=_reading(goals.e2e_s),
        holds=goals_hold,
        missed=missed,
        figures=all_figures,
        formula=formula_of(demand, replicas),
        notes=tuple(_notes(conditions, recorded, setup, figures)),
        problem=problem,
    )


def _notes(
    conditions: Conditions, recorded: PlayedTraffic | None, setup: Setup | None, figures: Figures | None
) -> Iterator[str]:
    """Notes on the assumptions of a simulation, and on what its figures depend on."""
    if setup is not None:
        yield from setup.notes
    seconds = conditions.seconds or DEFAULT_SECONDS
    if recorded is not None:
        yield f"lengths from {recorded.basis}"
        yield from recorded.notes
        seconds = conditions.seconds or recorded.seconds
    if figures is not None:
        yield from _figure_notes(figures, seconds)
    knows_prefixes = conditions.groups or (recorded is not None and recorded.has_prefixes)
    if conditions.router == "prefix-aware" and not knows_prefixes:
        yield "prefix-aware routing goes by load alone: give --prefix-groups and --shared-tokens"


def _figure_notes(figures: Figures, seconds: float) -> Iterator[str]:
    """Notes on figures that depend on the time that is simulated."""
    if figures.queue_grows:
        yield "the queue grows as long as requests arrive: the percentiles depend on how long that is simulated"
    if figures.requests < LEAST_REQUESTS:
        yield _BY_CHANCE
    mean_s = figures.e2e_s.mean
    if not isinstance(mean_s, Missing) and seconds < LEAST_RESPONSE_TIMES * mean_s:
        yield _TOO_SHORT  # many requests run in the emptier system of the start or the end


def formula_of(demand: Demand, replicas: int) -> Formula:
    """The formulas' means for so many replicas; missing where they have none."""
    unknown = Formula(running=_NOT_KNOWN, ttft_s=_NOT_KNOWN, itl_s=_NOT_KNOWN, e2e_s=_NOT_KNOWN)
    if replicas < 1 or demand.instance.problem:
        return unknown
    running = demand.running_per_instance(replicas)
    if not math.isfinite(running):
        return unknown
    instance = demand.instance
    return Formula(
        running=running,
        ttft_s=_reading(instance.ttft_s(running)),
        itl_s=_reading(instance.itl_s(running)),
        e2e_s=_reading(instance.response_s(max(running, _IDLE))),
    )


def _reading(value: float | None) -> Reading:
    """A value, or that it is not known."""
    if value is None:
        return _NOT_KNOWN
    return value
