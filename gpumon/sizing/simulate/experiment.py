"""Simulations of one workload on replicas of an instance: one answer, and the fewest replicas that hold the goals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.answer import LimitKind
from gpumon.sizing.capacity import binding
from gpumon.sizing.instance import Instance
from gpumon.sizing.length_tail import Lengths, LengthShare
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.sizing.search import Demand, demand_of
from gpumon.sizing.simulate.figures import Figures, RequestGoals, figures_of, holds_goals, missed_goals
from gpumon.sizing.simulate.requests import (
    MOST_REQUESTS,
    Clients,
    Draw,
    RequestShape,
    RequestSource,
    constant,
    histogram,
    lognormal,
    paced,
    steady,
)
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits
from gpumon.sizing.simulate.setup import Setup, setup_of
from gpumon.sizing.simulate.traffic import RecordedTraffic

_DEFAULT_SECONDS: Final = 600.0
"""Simulated seconds, if neither the user nor a recording says how many."""
_SEARCH_REQUESTS: Final = 20_000
"""Requests that a search simulates for each number of replicas: the p95 stands on 1,000 of them."""
SKETCH_REQUESTS: Final = 2_000
"""Requests that a sketch simulates: a keystroke has to wait for it."""
MOST_SKETCH_REQUESTS: Final = 50_000
"""Requests beyond which there is no sketch: they take longer than half a second."""
_LEAST_REQUESTS: Final = 200.0
"""Requests that a bounded simulation has at least, however long that takes: a p95 of fewer is one of chance."""
LEAST_LIVES: Final = 4.0
"""Times the mean time of a request that a simulation lasts at least."""
_MOST_REPLICAS: Final = 512
"""Replicas beyond which a search gives up."""
MOST_CLIENTS: Final = 200_000
SMALL_STEPS: Final = 512
"""Tokens of a step that a plan with an ITL goal is tried with, too: each step with a prompt is a long gap for all who
decode, and with still fewer tokens prompts wait."""
_LATENCIES: Final = frozenset({LimitKind.ITL, LimitKind.TTFT, LimitKind.E2E})
_NOT_LESS: Final = 0.99
"""Share of the latency before above which a latency has not become less."""
_LARGER_CACHE: Final = "more GPUs per instance, an FP8 KV cache or shorter requests would help"
_NO_LIMITS: Final = EngineLimits(0, 0, 0)
_TOO_SHORT: Final = (
    f"the simulated time is less than {LEAST_LIVES:.0f} times that of a request: its start and its end, where fewer "
    "requests run, count too much; give a longer --duration"
)
_NOT_KNOWN: Final = Missing(Reason.NOT_GIVEN)


class Conditions(NamedTuple):
    """Traffic of a simulation, and the replicas and the router that it meets."""

    seconds: float | None = None
    """Simulated seconds of arrivals; None: those of the recording, else 10 minutes."""
    seed: int = 1
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps between arrivals: 1 is Poisson, less comes in bursts."""
    prompt_variation: float | None = None
    """Standard deviation over mean of the prompts; None: as typed in the scenario or seen, else all alike."""
    answer_variation: float | None = None
    groups: int = 0
    """Groups of requests that begin alike; 0: the share of prefix hits is the workload's."""
    shared_tokens: int = 0
    router: str = "least-loaded"
    replicas: int | None = None
    """None: as many as the plan by formula takes."""
    most_requests: int = MOST_REQUESTS


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
    """Goals on the p95."""
    goal_itl_s: Reading
    goal_e2e_s: Reading
    holds: bool
    """Whether the p95 of each latency is within its goal, and the queue does not grow."""
    missed: tuple[str, ...]
    """Latencies whose p95 is beyond its goal: TTFT, ITL, E2E."""
    figures: tuple[Figures, ...]
    """One; none where there is a problem."""
    formula: Formula
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why there is no answer, and which option would help."""


def _goals_of(instance: Instance) -> RequestGoals:
    """The goals of an instance's workload, in seconds."""
    workload = instance.workload
    return RequestGoals(
        ttft_s=_ms_to_s(workload.ttft_p95_ms),
        itl_s=_ms_to_s(workload.itl_p95_ms),
        e2e_s=_ms_to_s(workload.e2e_p95_ms),
    )


def simulate(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: RecordedTraffic | None = None,
) -> Simulation:
    """Simulate a workload. Whatever a user typed, it does not raise: `problem` says why there is no answer."""
    demand = demand_of(workload, scenario, catalogues)
    try:
        setup = setup_of(demand.instance, scenario, catalogues)
        replicas = _replicas(demand, conditions)
        source = source_of(demand, conditions, recorded)
        figures = simulate_replicas(demand, setup, source, conditions, replicas)
    except ValueError as why:
        return _problem_answer(demand, conditions, str(why), recorded, conditions.replicas or 0)
    answer = _answer(demand, conditions, recorded, replicas, setup, figures)
    if len(scenario.gpu_types) > 1:
        note = f"played on {scenario.server[0].gpu} alone, the first type of GPU of the scenario"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
    return answer


def simulate_replicas(
    demand: Demand, setup: Setup, source: RequestSource, conditions: Conditions, replicas: int
) -> Figures:
    """Simulate so many replicas. Raises ValueError if no request arrives."""
    log = play(source, setup.cost, setup.limits, replicas, ROUTERS[conditions.router](), setup.delay_s)
    if not log.served and not log.refused:
        raise ValueError("no request arrives in the simulated time: give a longer one (--duration)")
    return figures_of(log, _goals_of(demand.instance), replicas * demand.instance.gpus)


def source_of(demand: Demand, conditions: Conditions, recorded: RecordedTraffic | None = None) -> RequestSource:
    """The requests of a workload. Raises ValueError if their lengths are not known, or if they are too many."""
    workload = demand.workload
    if recorded is not None:
        shape = _recorded_shape(demand, conditions, recorded)
        paces = recorded.paces
        if conditions.seconds is not None:
            paces = tuple(pace for pace in paces if pace.start_s < conditions.seconds)
        requests = paced(paces, shape, conditions.seed, conditions.burstiness, conditions.most_requests)
        return RequestSource(requests)
    shape = _shape(demand, conditions)
    seconds = conditions.seconds or _DEFAULT_SECONDS
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
        spread_s=min(life_s(demand) + think_s, seconds / 2.0),
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


def life_s(demand: Demand) -> float:
    """Mean seconds from a request to its last token by the formulas; 0 where they do not tell."""
    return demand.instance.response_s(max(1.0, demand.planned_running)) or 0.0


def sketch(demand: Demand, scenario: Scenario, catalogues: Catalogues) -> Simulation:
    """Simulate one instance of a demand at its share of the target, with few requests, for a picture in a moment."""
    conditions = Conditions(replicas=1, most_requests=MOST_SKETCH_REQUESTS)
    workload = demand.workload
    share = max(workload.target / max(1, demand.needed_instances), 1e-9)
    one = demand._replace(workload=msgspec.structs.replace(workload, target=share))
    if demand.problem:
        return _problem_answer(one, conditions, demand.problem)
    try:
        conditions = _bounded(one, conditions, None, SKETCH_REQUESTS)
        setup = setup_of(demand.instance, scenario, catalogues)
        figures = simulate_replicas(one, setup, source_of(one, conditions), conditions, 1)
    except ValueError as why:
        return _problem_answer(one, conditions, str(why))
    return _answer(one, conditions, None, 1, setup, figures)


def _problem_answer(
    demand: Demand,
    conditions: Conditions,
    problem: str,
    recorded: RecordedTraffic | None = None,
    replicas: int = 0,
) -> Simulation:
    """The answer without figures, and why there are none."""
    return _answer(demand, conditions, recorded, replicas, setup=None, figures=None, problem=problem)


class Least(NamedTuple):
    """The fewest GPUs that hold the goals in the simulation."""

    demand: Demand
    """At the TP that takes the fewest, with the replicas that the simulation asks for."""
    figures: Figures


def least(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: RecordedTraffic | None = None,
) -> Least:
    """The smallest number of GPUs that holds the goals at p95, over the TPs that hold the model.

    A TP that was typed, or measured on these GPUs, stays. Raises ValueError with the reason if no number does.
    """
    first = demand_of(workload, scenario, catalogues)
    if first.instance.problem:
        raise ValueError(first.instance.problem)
    if not _goals_of(first.instance).given:
        raise ValueError("no goal to simulate for: give one of ttft_p95_ms, itl_p95_ms, e2e_p95_ms")
    best: Least | None = None
    first_problem = ""
    for tp in _tps(workload, first.instance):
        demand = demand_of(msgspec.structs.replace(workload, tp=tp), scenario, catalogues)._replace(workload=workload)
        most = _MOST_REPLICAS
        if best is not None:  # fewer GPUs than the best so far
            most = int((best.demand.gpus - 1) // demand.instance.gpus) - demand.spares
        try:
            fewest = _fewest(demand, scenario, catalogues, conditions, recorded, most)
        except ValueError as problem:
            first_problem = first_problem or str(problem)
            continue
        best = fewest or best
    if best is None:
        none_holds = f"no number of replicas up to {_MOST_REPLICAS} holds the goals at p95 in the simulation"
        raise ValueError(first_problem or none_holds)
    return best


def _tps(workload: Workload, instance: Instance) -> list[int]:
    """The TPs to try: that of the plan first, and alone if it was typed or measured."""
    if workload.tp or instance.alike:
        return [instance.tp]
    return [instance.tp, *(tp for tp in instance.tps if tp != instance.tp)]


def decide_by_simulation(
    workload: Workload,
    scenario: Scenario,
    catalogues: Catalogues,
    traffic: Mapping[str, RecordedTraffic] = MappingProxyType({}),
) -> Demand:
    """The needs of a workload with the number of instances that the simulation asks for.

    `traffic`: served model name -> its recorded traffic, of which the busiest 10 minutes are simulated.
    """
    recorded = traffic.get(workload.model)
    if recorded is not None:
        recorded = recorded.busiest(_DEFAULT_SECONDS)
    by_formula = demand_of(workload, scenario, catalogues)
    try:
        fewest = least(workload, scenario, catalogues, Conditions(), recorded)
    except ValueError as why:
        if str(why) == by_formula.problem:
            return by_formula
        return by_formula._replace(problem=f"by simulation: {why}")
    decided = fewest.demand
    fewer_gpus_note = ""
    if decided.gpus > by_formula.gpus:
        fewer_gpus_note = _smaller_steps(by_formula, scenario, catalogues, recorded, decided.gpus)
    return decided._replace(
        exact_instances=float(decided.needed_instances),
        simulation_note=_decision(by_formula, fewest),
        fewer_gpus_note=fewer_gpus_note,
    )


def _smaller_steps(
    by_formula: Demand, scenario: Scenario, catalogues: Catalogues, recorded: RecordedTraffic | None, gpus: float
) -> str:
    """The advice to take smaller steps, if fewer than `gpus` GPUs hold the goals with them; else empty.

    Empty where the size of steps was typed, and without an ITL goal: steps with prompts make the p95 of the ITL.
    """
    workload = by_formula.workload
    if workload.max_num_batched_tokens is not None or _goals_of(by_formula.instance).itl_s is None:
        return ""
    with_small_steps = msgspec.structs.replace(workload, max_num_batched_tokens=SMALL_STEPS)
    try:
        fewest = least(with_small_steps, scenario, catalogues, Conditions(), recorded)
    except ValueError:
        return ""
    if fewest.demand.gpus >= gpus:
        return ""
    smaller = f"max_num_batched_tokens = {SMALL_STEPS} would take {fewest.demand.gpus:,.0f} GPUs"
    return f"{smaller} instead of {gpus:,.0f} in the simulation"


def _decision(by_formula: Demand, fewest: Least) -> str:
    """The decision of the simulation, as a note: `by simulation: 3 instances of TP 2 (by formula: 2 of TP 2); ...`."""
    figures = fewest.figures
    latencies = (("TTFT", figures.ttft_s), ("ITL", figures.itl_s), ("E2E", figures.e2e_s))
    p95_texts = []
    for name, spread in latencies:
        if not isinstance(spread.p95, Missing):
            p95_texts.append(f"{name} {spread.p95 * 1e3:,.0f} ms")
    formulas = "none"
    if not by_formula.problem:
        formulas = f"{by_formula.needed_instances} of TP {by_formula.instance.tp}"
    instances = f"{counted(fewest.demand.needed_instances, 'instance')} of TP {fewest.demand.instance.tp}"
    return f"by simulation: {instances} (by formula: {formulas}); p95 in it: {', '.join(p95_texts)}"


def _check_none_refused(figures: Figures) -> None:
    """ValueError where requests are longer than the KV cache of an instance: more instances do not help."""
    if figures.refused:
        longer = counted(round(figures.refused), "request")
        raise ValueError(f"{longer} longer than the KV cache of an instance: {_LARGER_CACHE}")


def _fewest(
    demand: Demand,
    scenario: Scenario,
    catalogues: Catalogues,
    conditions: Conditions,
    recorded: RecordedTraffic | None,
    most: int,
) -> Least | None:
    """The fewest replicas of one TP, at most `most`; None if even these do not hold the goals.

    Their number is doubled until the goals hold, then bisected. Raises ValueError where the formulas have no instance.
    """
    if demand.problem and not _misses_a_goal(demand):
        raise ValueError(demand.problem)
    setup = setup_of(demand.instance, scenario, catalogues)
    conditions = _bounded(demand, conditions, recorded)
    goals = _goals_of(demand.instance)
    results: dict[int, Figures] = {}

    def are_enough(replicas: int) -> bool:
        figures = simulate_replicas(demand, setup, source_of(demand, conditions, recorded), conditions, replicas)
        _check_none_refused(figures)
        results[replicas] = figures
        return holds_goals(figures, goals)

    if most < 1:
        return None
    low = 0
    high = min(most, max(1, demand.needed_instances))
    while not are_enough(high):
        if high >= most or (low and _is_stuck(results[low], results[high], goals)):
            return None
        low = high
        high = min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if are_enough(middle):
            high = middle
        else:
            low = middle
    return Least(demand._replace(needed_instances=high, problem=""), results[high])


def _misses_a_goal(demand: Demand) -> bool:
    """Whether the formulas refuse an instance for a latency goal alone, which the simulation judges by itself."""
    if not demand.limits:
        return False
    first = binding(demand.limits)
    return first.concurrency < 1.0 and first.kind in _LATENCIES


def _is_stuck(before: Figures, after: Figures, goals: RequestGoals) -> bool:
    """Whether a p95 misses its goal, and twice the replicas did not lower it: more of them do not help."""
    pairs = (
        (goals.ttft_s, before.ttft_s.p95, after.ttft_s.p95),
        (goals.itl_s, before.itl_s.p95, after.itl_s.p95),
        (goals.e2e_s, before.e2e_s.p95, after.e2e_s.p95),
    )
    for goal_s, old_s, new_s in pairs:
        if goal_s is None or isinstance(old_s, Missing) or isinstance(new_s, Missing):
            continue
        if new_s > goal_s and new_s >= _NOT_LESS * old_s:
            return True
    return False


def _bounded(
    demand: Demand, conditions: Conditions, recorded: RecordedTraffic | None, most: int = _SEARCH_REQUESTS
) -> Conditions:
    """The conditions with a time for about `most` requests, unless one was given or traffic is recorded.

    It is not shorter than `_LEAST_REQUESTS`, and than a few requests take one after the other.
    """
    if conditions.seconds is not None or recorded is not None:
        return conditions
    life = life_s(demand)
    workload = demand.workload
    rate = workload.target
    if workload.target_kind != "requests_per_s":
        rate = _client_count(workload) / max(life + _think_s(workload), 1e-3)
    rate = max(rate, 1e-9)
    seconds = max(LEAST_LIVES * life, _LEAST_REQUESTS / rate, min(_DEFAULT_SECONDS, most / rate))
    return conditions._replace(seconds=seconds)


def _replicas(demand: Demand, conditions: Conditions) -> int:
    """Replicas to simulate: typed, else those of the plan by formula. ValueError where there is no such plan."""
    if conditions.replicas is not None:
        return conditions.replicas
    if demand.problem:
        raise ValueError(f"the formulas have no number of replicas ({demand.problem}): give --replicas")
    return demand.needed_instances


def _shape(demand: Demand, conditions: Conditions) -> RequestShape:
    """Lengths and shared beginnings of a workload's requests. Raises ValueError if the lengths are not known."""
    mix = demand.instance.mix
    if mix is None:
        raise ValueError("lengths are not known: give --prompt and --answer (prompt_tokens, answer_tokens)")
    lengths = lengths_of(demand)
    hit_ratio = mix.prefix_hit_ratio
    if conditions.groups:  # then hits are found by simulating the prefix cache
        hit_ratio = 0.0
    return RequestShape(
        prompt=_length_draw(max(1.0, mix.prompt_tokens), conditions.prompt_variation, lengths.prompt),
        answer=_length_draw(mix.answer_tokens, conditions.answer_variation, lengths.answer),
        hit_ratio=hit_ratio,
        groups=conditions.groups,
        shared_tokens=conditions.shared_tokens,
        longest=_longest(demand),
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
    for step in steps:
        bounds.append(step.tokens)
        shares.append(step.share - before)
        before = step.share
    return histogram(bounds, [*shares, 0.0], mean)


def _recorded_shape(demand: Demand, conditions: Conditions, recorded: RecordedTraffic) -> RequestShape:
    """Lengths of a recording, with typed ones in their place."""
    workload = demand.workload
    if workload.prompt_tokens is not None:
        recorded = recorded._replace(prompt=_length_draw(workload.prompt_tokens, conditions.prompt_variation, ()))
    if workload.answer_tokens is not None:
        recorded = recorded._replace(answer=_length_draw(workload.answer_tokens, conditions.answer_variation, ()))
    shape = recorded.shape(_longest(demand))
    if workload.prefix_hit_ratio is not None:
        shape = shape._replace(hit_ratio=workload.prefix_hit_ratio)
    if conditions.groups:
        shape = shape._replace(hit_ratio=0.0, groups=conditions.groups, shared_tokens=conditions.shared_tokens)
    return shape


def _longest(demand: Demand) -> float:
    """Tokens of the model's context; infinite where it is not known."""
    llm = demand.instance.llm
    if llm is not None and llm.max_context > 0:
        return float(llm.max_context)
    return math.inf


def _answer(
    demand: Demand,
    conditions: Conditions,
    recorded: RecordedTraffic | None,
    replicas: int,
    setup: Setup | None,
    figures: Figures | None,
    problem: str = "",
) -> Simulation:
    """The answer with what is known of it."""
    instance = demand.instance
    gpu = ""
    if instance.gpu is not None:
        gpu = instance.gpu.name
    goals = _goals_of(instance)
    limits = _NO_LIMITS
    if setup is not None:
        limits = setup.limits
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
        replicas=replicas,
        gpus=replicas * instance.gpus,
        router=conditions.router,
        arrivals=arrivals_text(demand.workload, conditions, recorded),
        seed=conditions.seed,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=limits.kv_blocks,
        goal_ttft_s=_reading(goals.ttft_s),
        goal_itl_s=_reading(goals.itl_s),
        goal_e2e_s=_reading(goals.e2e_s),
        holds=goals_hold,
        missed=missed,
        figures=all_figures,
        formula=formula_of(demand, replicas),
        notes=tuple(_notes(conditions, recorded, setup, figures)),
        problem=problem,
    )


def _figure_notes(figures: Figures, seconds: float) -> Iterator[str]:
    """Notes on figures that depend on the time that is simulated."""
    if figures.queue_grows:
        yield "the queue grows as long as requests arrive: the percentiles depend on how long that is simulated"
    if _is_short(figures, seconds):
        yield _TOO_SHORT


def _notes(
    conditions: Conditions, recorded: RecordedTraffic | None, setup: Setup | None, figures: Figures | None
) -> Iterator[str]:
    """Notes on the assumptions of a simulation, and on what its figures depend on."""
    if setup is not None:
        yield from setup.notes
    seconds = conditions.seconds or _DEFAULT_SECONDS
    if recorded is not None:
        yield f"lengths from {recorded.basis}"
        seconds = conditions.seconds or recorded.seconds
    if figures is not None:
        yield from _figure_notes(figures, seconds)
    if conditions.router == "prefix-aware" and not conditions.groups:
        yield "prefix-aware routing goes by load alone: give --prefix-groups and --shared-tokens"


def _is_short(figures: Figures, seconds: float) -> bool:
    """Whether requests take so long that many of them run in the emptier system of the start or the end."""
    mean_s = figures.e2e_s.mean
    return not isinstance(mean_s, Missing) and seconds < LEAST_LIVES * mean_s


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
        e2e_s=_reading(instance.response_s(max(running, 1e-9))),
    )


def arrivals_text(workload: Workload, conditions: Conditions, recorded: RecordedTraffic | None) -> str:
    """The arrivals in words: `20 requests/s, Poisson, for 600 s`."""
    if recorded is not None:
        text = f"{recorded.requests:,.0f} requests as recorded in {recorded.seconds:,.0f} s"
        if conditions.seconds is not None and conditions.seconds < recorded.seconds:
            return f"the first {conditions.seconds:,.0f} s of {text}"
        return text
    seconds = conditions.seconds or _DEFAULT_SECONDS
    if workload.target_kind == "concurrency":
        clients = _client_count(workload)
        noun = "client" if clients == 1 else "clients"
        return f"{clients:,} {noun}, each with one request in flight, for {seconds:,.0f} s"
    if workload.target_kind == "users":
        return f"{_client_count(workload):,} users who think for {workload.think_s:g} s, for {seconds:,.0f} s"
    kind = f"gamma with burstiness {conditions.burstiness:g}"
    if conditions.burstiness == 1.0:
        kind = "Poisson"
    return f"{workload.target:.4g} requests/s, {kind}, for {seconds:,.0f} s"


def _ms_to_s(goal_ms: float | None) -> float | None:
    if goal_ms is None:
        return None
    return goal_ms / 1e3


def _reading(value: float | None) -> Reading:
    """A value, or that it is not known."""
    if value is None:
        return _NOT_KNOWN
    return value
