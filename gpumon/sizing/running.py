"""A plan beside what runs: instances, GPUs, load, and latencies as predicted at that load and as measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import FRONTENDS, engines_in_sums, model_key
from gpumon.readings.format import counted, is_last_bucket, quantile, seconds
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import NO_UPPER_BOUND, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Quantiles, Snapshot
from gpumon.sizing.answer import NOT_GIVEN, NOT_KNOWN, Answer, Runs, RunsP95, WorkloadPlan
from gpumon.sizing.gaps import gap_text, quantile_gap_text
from gpumon.sizing.goals import GOALS, Goal, formula_s, goals_of, simulated_s, tail_of_goal, ttft_decides
from gpumon.sizing.instance import Instance
from gpumon.sizing.peaks import credible
from gpumon.sizing.plan import DetailedPlan
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Scenario
from gpumon.sizing.tails import PendingError

USUAL_SPAN_S: Final = 600.0
"""Seconds of a recording that are looked at where no time is given."""

_LEAST_TOLD: Final = 0.05
"""Mean number below which there is none."""
_NEARLY_ONE: Final = 0.95
"""Mean number from which on it is one."""
_LEAST_WAITING: Final = 0.5
"""Waiting requests from which on a queue is told: a mean of fewer is now and then one."""

P95_GOALS: Final = tuple(goal for goal in GOALS if goal.latency)
"""The goals that judge a p95."""
_SIMULATING: Final = Missing(Reason.WARMING_UP)
"""A p95 that is being simulated."""
_AWAITED: Final = Missing(Reason.FEW)
"""A latency of the plan at a load that is not known for the minute that the measured one is of."""
_AWAITED_TEXT: Final = " (plan: once the load is known for 60 s)"

_NOT_MEASURED: Final = Quantiles(p95=NOT_KNOWN)
"""A latency whose p95 no engine tells."""

ModelKey = tuple[str, ...]
"""Words of a model's name (`model_key`): equal for names of one model that are spelled differently."""


class ModelEngines(NamedTuple):
    """Engines of one model, all together."""

    instances: int
    """Data-parallel ranks count one by one."""
    gpus: float | None
    """None where one of the engines does not tell."""
    in_flight: float | None
    """Running and waiting requests of the engines that tell; None where none does."""
    running: float | None
    """Running requests of the engines that tell; None where none does."""
    waiting: float | None
    """Waiting requests of the engines that tell how many run; None where one of these does not tell its queue."""
    itl_s: float | None
    """Mean over the running requests of the engines that tell; None where none does."""
    ttft_s: float | None
    """Mean over the running requests of the engines that tell; None where none does."""
    quantiles: Mapping[str, Quantiles] = MappingProxyType({})
    """Field of `tails.P95` -> the quantiles of the engine with the longest p95, of those that tell."""
    running_lately: float | None = None
    """Mean of `running` over the seconds that `itl_s` is of; None where no engine tells it."""
    running_minute: float | None = None
    """Mean of `running` over the minute that `ttft_s` and `quantiles` are of; None: it was not seen for so long yet."""
    telling: float = 0.0
    """Instances that tell how many requests they run, which `running` is of."""
    is_least: bool = False
    """Whether more than `in_flight` may be in flight: an engine does not tell what it runs, or its queue."""


class _WeightedMean:
    """Mean of figures that are known at some moments, weighted by the requests that they are of."""

    def __init__(self) -> None:
        self._total = 0.0
        self._weight = 0.0

    def add(self, value: float | None, weight: float = 1.0) -> None:
        """Take a figure in, if it is known and of any request."""
        if value is not None and weight > 0.0:
            self._total += value * weight
            self._weight += weight

    @property
    def value(self) -> float | None:
        """The mean; None where no figure was known."""
        if self._weight > 0.0:
            return self._total / self._weight
        return None


class _QuantileMean:
    """Mean of a p95 over some moments, and of the bounds that it lies between."""

    def __init__(self) -> None:
        self._value = _WeightedMean()
        self._low = _WeightedMean()
        self._high = _WeightedMean()
        self._is_bounded = True
        """Whether both bounds were told at all moments."""
        self._is_least = False
        """Whether a moment had it in the last bucket, which has no upper bound."""

    def add(self, quantiles: Quantiles, weight: float) -> None:
        """Take the p95 of a moment in, if it is known and of any request."""
        value = credible(quantiles.p95)
        if value is None or weight <= 0.0:
            return
        low = credible(quantiles.p95_low)
        high = credible(quantiles.p95_high)
        is_last = is_last_bucket(quantiles.p95_high)
        self._is_least |= is_last
        self._is_bounded &= low is not None and (is_last or high is not None)
        self._value.add(value, weight)
        self._low.add(low, weight)
        self._high.add(high, weight)

    @property
    def quantiles(self) -> Quantiles:
        """The mean p95 between its bounds, as far as they are known."""
        value = _reading(self._value.value)
        if self._is_least:
            low = _reading(self._low.value) if self._is_bounded else NOT_KNOWN
            return Quantiles(p95=value, p95_low=low, p95_high=NO_UPPER_BOUND)
        if self._is_bounded:
            return Quantiles(p95=value, p95_low=_reading(self._low.value), p95_high=_reading(self._high.value))
        return Quantiles(p95=value, p95_low=NOT_KNOWN, p95_high=NOT_KNOWN)


class _ModelMeans:
    """Means of load and latency of one model's engines over some moments."""

    def __init__(self) -> None:
        self.telling = _WeightedMean()
        self.is_least = False
        self.in_flight = _WeightedMean()
        self.running = _WeightedMean()
        self.waiting = _WeightedMean()
        self.itl_s = _WeightedMean()
        self.ttft_s = _WeightedMean()
        self.p95_s = {goal.latency: _QuantileMean() for goal in P95_GOALS}


class ServedMeans:
    """The engines of each model over some moments: means of load and latency, instances and GPUs of the last moment."""

    def __init__(self) -> None:
        self._last: Mapping[ModelKey, ModelEngines] = {}
        self._means: dict[ModelKey, _ModelMeans] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Take one moment in. Latencies are weighted by the requests that ran."""
        self._last = engines_by_model(snapshot)
        for model, engines in self._last.items():
            means = self._means.setdefault(model, _ModelMeans())
            means.is_least |= engines.is_least
            means.telling.add(engines.telling if engines.running is not None else None)
            means.in_flight.add(engines.in_flight)
            means.running.add(engines.running)
            means.waiting.add(engines.waiting)
            means.itl_s.add(engines.itl_s, engines.running or 0.0)
            means.ttft_s.add(engines.ttft_s, engines.running or 0.0)
            for latency, quantiles in engines.quantiles.items():
                means.p95_s[latency].add(quantiles, engines.running or 0.0)

    def by_model(self) -> dict[ModelKey, ModelEngines]:
        """Model -> its engines, for the models that are served at the last moment."""
        engines = {}
        for model, last in self._last.items():
            means = self._means[model]
            engines[model] = ModelEngines(
                instances=last.instances,
                gpus=last.gpus,
                in_flight=means.in_flight.value,
                running=means.running.value,
                waiting=means.waiting.value,
                itl_s=means.itl_s.value,
                ttft_s=means.ttft_s.value,
                quantiles={
                    latency: mean.quantiles
                    for latency, mean in means.p95_s.items()
                    if not isinstance(mean.quantiles.p95, Missing)
                },
                running_lately=means.running.value,
                running_minute=means.running.value,
                telling=means.telling.value or 0.0,
                is_least=means.is_least,
            )
        return engines


def engines_by_model(snapshot: Snapshot, minute: Mapping[str, float] | None = None) -> dict[ModelKey, ModelEngines]:
    """Model -> its engines that answer at the moment of a snapshot.

    `minute`: served model name -> its mean running requests of the last minute; None: that is not known.
    """
    engines: dict[ModelKey, list[Engine]] = {}
    for engine in engines_in_sums(snapshot.engines):
        is_serving = engine.state is EndpointState.OK and engine.phase is Phase.INFERENCE
        if is_serving and engine.model and engine.kind not in FRONTENDS:
            engines.setdefault(model_key(engine.model), []).append(engine)
    return {model: _add_up(group, minute or {}) for model, group in engines.items()}


def _add_up(engines: list[Engine], minute: Mapping[str, float]) -> ModelEngines:
    """The engines of one model together, whose name they may spell differently."""
    names = {engine.model for engine in engines}
    together = ModelEngines(
        instances=_instances(engines),
        gpus=_gpus(engines),
        in_flight=None,
        running=None,
        waiting=None,
        itl_s=None,
        ttft_s=None,
        running_minute=sum(minute[name] for name in names) if names <= minute.keys() else None,
    )
    counts = [(engine, credible(engine.load.running)) for engine in engines]
    telling = [(engine, running) for engine, running in counts if running is not None]
    return _with_load(together, telling) if telling else together


def _instances(engines: Iterable[Engine]) -> int:
    """Instances of engines: data-parallel ranks count one by one."""
    return sum(max(engine.hardware.ranks, 1) for engine in engines)


def _with_load(together: ModelEngines, telling: list[tuple[Engine, float]]) -> ModelEngines:
    """The engines of one model with load and latencies of those that tell how many requests they run, each with its
    number of these."""
    engines = [engine for engine, _ in telling]
    running = sum(engine_running for _, engine_running in telling)
    queues = [queue for queue in map(_queue, engines) if queue is not None]
    waiting = sum(queues) if len(queues) == len(engines) else None
    telling_instances = _instances(engines)
    running_lately = 0.0
    itl = _WeightedMean()
    ttft = _WeightedMean()
    for engine, engine_running in telling:
        engine_lately = credible(engine.load.running_mean)
        running_lately += engine_running if engine_lately is None else engine_lately
        itl.add(credible(engine.latency.itl_mean_s), engine_running)
        ttft.add(credible(engine.latency.ttft_s.mean), engine_running)
    return together._replace(
        in_flight=running + sum(queues),
        running=running,
        waiting=waiting,
        itl_s=itl.value,
        ttft_s=ttft.value,
        quantiles=_quantiles_of_longest(engines),
        running_lately=running_lately,
        telling=telling_instances,
        is_least=waiting is None or telling_instances < together.instances,
    )


def _queue(engine: Engine) -> float | None:
    """Waiting requests of an engine; None where it does not tell."""
    return credible(engine.load.waiting)


def _gpus(engines: list[Engine]) -> float | None:
    """GPUs of all engines; None where one of them does not tell."""
    total = 0.0
    for engine in engines:
        gpus = credible(engine.hardware.gpu_count)
        if gpus is None:
            return None
        total += gpus
    return total


def _quantiles_of_longest(engines: list[Engine]) -> dict[str, Quantiles]:
    """Field of `tails.P95` -> the quantiles of the engine with the longest p95, of those that tell it."""
    longest = {}
    for goal in P95_GOALS:
        told = [getattr(engine.latency, goal.latency) for engine in engines]
        known = [quantiles for quantiles in told if credible(quantiles.p95) is not None]
        if known:
            longest[goal.latency] = max(known, key=attrgetter("p95"))
    return longest


def with_runs(planned: DetailedPlan, engines: Mapping[ModelKey, ModelEngines]) -> Answer:
    """The answer of a plan, with what runs of each workload."""
    workloads = []
    for plan, demand in zip(planned.answer.workloads, planned.demands, strict=True):
        runs = running_instances(demand.instance, engines.get(model_key(plan.model)), planned.scenario)
        workloads.append(msgspec.structs.replace(plan, runs=runs))
    return msgspec.structs.replace(planned.answer, workloads=tuple(workloads))


def running_instances(instance: Instance | None, engines: ModelEngines | None, scenario: Scenario) -> Runs:
    """Instances of a workload that run, with the latencies that `instance`, the planned one, has at their load.

    None run without `engines`: no engine serves the model.
    """
    if engines is None:
        return Runs(instances=0, gpus=0.0)
    as_planned = _is_as_planned(instance)
    planned = instance if as_planned else None
    lately = _per_instance(engines.running_lately, engines.telling)
    in_minute = _per_instance(engines.running_minute, engines.telling)
    predicted_itl_s, predicted_ttft_s = _planned_means(planned, lately, in_minute)
    judged = set[str]() if instance is None else {goal.name for goal, _ in goals_of(instance.workload)}
    p95 = []
    for goal in P95_GOALS:
        if goal.name in judged or (not judged and goal.latency in engines.quantiles):
            predicted_s = _planned_p95(planned, goal, in_minute, scenario, is_judged=goal.name in judged)
            measured = engines.quantiles.get(goal.latency, _NOT_MEASURED)
            p95.append(RunsP95(goal.name, measured.p95, predicted_s, measured.p95_low, measured.p95_high))
    return Runs(
        instances=engines.instances,
        gpus=_reading(engines.gpus),
        concurrency=_reading(engines.in_flight),
        is_least=engines.is_least,
        waiting=_reading(engines.waiting),
        itl_s=_reading(engines.itl_s),
        ttft_s=_reading(engines.ttft_s),
        itl_predicted_s=predicted_itl_s,
        ttft_predicted_s=predicted_ttft_s,
        as_planned=as_planned,
        p95=tuple(p95),
    )


def _per_instance(running: float | None, instances: float) -> float | None:
    """Running requests of each of the instances that tell them; None where their number is not known."""
    if running is None or not instances:
        return None
    return running / instances


def _planned_means(
    instance: Instance | None, running_lately: float | None, running_minute: float | None
) -> tuple[Reading, Reading]:
    """Mean ITL and TTFT of an instance with so many requests running. A TTFT is measured over a minute, and awaited as
    long as nobody knows the load of that."""
    if instance is None:
        return NOT_KNOWN, NOT_KNOWN
    itl_s = _reading(instance.itl_s(running_lately)) if running_lately else NOT_KNOWN
    if running_minute is None:
        return itl_s, _AWAITED
    ttft_s = _reading(instance.ttft_s(running_minute)) if running_minute else NOT_KNOWN
    return itl_s, ttft_s


def _planned_p95(
    instance: Instance | None, goal: Goal, running: float | None, scenario: Scenario, *, is_judged: bool
) -> Reading:
    """The p95 of an instance with so many requests in flight: by the measured p95 / mean, else, where a goal judges it,
    by simulated requests. Not given where neither tells it; warming up while they are simulated. It is awaited as long
    as nobody knows how many requests (`running`: None) ran in the minute that the measured one is of."""
    if instance is None or running == 0.0:
        return NOT_GIVEN
    if running is None:
        return _AWAITED
    by_formula = formula_s(instance, goal)
    is_decided = goal.name != "TTFT p95" or ttft_decides(instance, scenario)
    if by_formula is not None and is_decided and tail_of_goal(instance, goal).known:
        return by_formula(max(1.0, running))
    if not is_judged or instance.tails is None:
        return NOT_GIVEN
    try:
        simulated = simulated_s(instance, goal, instance.tails.at(running), running)
    except PendingError:
        return _SIMULATING
    return NOT_GIVEN if simulated is None else simulated


def _is_as_planned(instance: Instance | None) -> bool:
    """Whether the engine that runs has the planned GPU, layout and precision; also where nobody knows its own."""
    if instance is None or instance.seen is None or instance.seen.origin is not Origin.LIVE:
        return True
    return instance.alike


def _reading(value: float | None) -> Reading:
    """The value, or that it is not known."""
    if value is None:
        return NOT_KNOWN
    return value


def runs_text(plan: WorkloadPlan, runs: Runs) -> str:
    """Instances, GPUs and latencies that run beside those of the plan.

    As `2 of 3 instances, 4 of 6 GPUs, 34 of 40 in flight, 6 waiting; ITL p95 26ms (plan at this load: 24ms, +8%)`
    """
    return " ".join(runs_clauses(plan, runs))


def runs_clauses(plan: WorkloadPlan, runs: Runs) -> list[str]:
    """The clauses of `runs_text`, each with the sign behind it: `2 of 3 instances,`, `4 of 6 GPUs;`."""
    if not runs.instances:
        return ["no engine that answers serves this model"]
    if runs.as_planned:
        parts = [
            f"{_share_text(runs.instances, plan.instances)} instances",
            f"{_share_text(runs.gpus, plan.gpus)} GPUs",
        ]
    else:
        instances = counted(runs.instances, "instance")
        parts = [f"{instances} on {_number_text(runs.gpus)} GPUs, with another GPU, layout or precision than planned"]
    if not isinstance(runs.concurrency, Missing):
        least = "at least " if runs.is_least else ""
        parts.append(f"{least}{_share_text(runs.concurrency, plan.concurrency)} in flight")
    waiting = number(runs.waiting)
    if waiting is not None and waiting >= _LEAST_WAITING:
        parts.append(f"{_number_text(waiting)} waiting")
    latencies = _latency_texts(plan, runs)
    clauses = [f"{part}," for part in parts[:-1]]
    clauses += [f"{part};" for part in (parts[-1], *latencies)]
    return [*clauses[:-1], clauses[-1].removesuffix(";")]


def _latency_texts(plan: WorkloadPlan, runs: Runs) -> list[str]:
    """Latencies that were measured, with those of the plan at the same load: a p95 beside a p95 and a mean beside a
    mean. Each goal has the figure that it judges; without one both p95 stand, where both are known."""
    p95 = {latency.name: latency for latency in runs.p95}
    judged = {goal.name for goal in plan.goals}
    texts: list[str] = []
    labels = chain(("plan at this load",), repeat("plan"))  # the first one says at which load it is
    for mean_name, names, measured, predicted in (
        ("ITL mean", ("ITL p95", "TPOT p95"), runs.itl_s, runs.itl_predicted_s),
        ("TTFT mean", ("TTFT p95",), runs.ttft_s, runs.ttft_predicted_s),
        ("E2E mean", ("E2E p95",), NOT_KNOWN, NOT_KNOWN),
    ):
        told = _told_p95([p95[name] for name in names if name in p95], judged)
        texts += [_p95_text(latency, labels) for latency in told]
        is_told = bool(told) and all(map(_is_whole, told)) and mean_name not in judged
        if not (isinstance(measured, Missing) or is_told):
            texts.append(f"{mean_name} {seconds(measured)}{_prediction_text(measured, predicted, labels)}")
    return texts


def _told_p95(known: Sequence[RunsP95], judged: Collection[str]) -> list[RunsP95]:
    """The p95 that goals judge; without such a goal the first one that is known on both sides."""
    told = [latency for latency in known if latency.name in judged]
    return told or [latency for latency in known if _is_whole(latency)][:1]


def _is_whole(latency: RunsP95) -> bool:
    """Whether a p95 is known on both sides."""
    return not isinstance(latency.value_s, Missing) and not isinstance(latency.predicted_s, Missing)


def _p95_text(latency: RunsP95, labels: Iterator[str]) -> str:
    """A p95 beside that of the plan; where one of them is not known, that is said."""
    if isinstance(latency.value_s, Missing):
        return f"{latency.name} not measured"
    first_bound = latency.high_s if latency.low_s == 0.0 else NOT_KNOWN
    measured = Quantiles(p95=latency.value_s, p95_high=latency.high_s, first_bound_s=first_bound)
    text = f"{latency.name} {quantile(measured)}"
    if latency.predicted_s == _SIMULATING:
        return f"{text} (plan: simulating …)"
    if latency.predicted_s == _AWAITED:
        return f"{text}{_AWAITED_TEXT}"
    expected = number(latency.predicted_s)
    if not expected:
        return f"{text} (plan: p95 neither measured nor simulated)"
    gap = quantile_gap_text(latency.value_s, latency.low_s, latency.high_s, expected)
    return f"{text} ({next(labels)}: {seconds(expected)}, {gap})"


def _share_text(running: Reading, planned: Reading) -> str:
    """The running share of the planned number, as `2 of 3`, or `29 (16 planned)` where more run; `?`: not known."""
    running_text = _number_text(running)
    planned_text = _number_text(planned)
    running_number = number(running)
    planned_number = number(planned)
    if running_number is not None and planned_number is not None and running_number > planned_number:
        return f"{running_text} ({planned_text} planned)"
    return f"{running_text} of {planned_text}"


def _number_text(value: Reading) -> str:
    """A whole number, as nobody sees half of an instance or a request; `?` where it is not known."""
    count = number(value)
    if count is None:
        return "?"
    if _LEAST_TOLD <= count < _NEARLY_ONE:
        return "under 1"
    return f"{count:,.0f}"


def _prediction_text(measured: float, predicted: Reading, labels: Iterator[str]) -> str:
    """The prediction at the same load behind the next label, and how far the measurement is off it; empty where there
    is none."""
    if predicted == _AWAITED:
        return _AWAITED_TEXT
    expected = number(predicted)
    if not expected:
        return ""
    return f" ({next(labels)}: {seconds(expected)}, {gap_text(measured / expected)})"
