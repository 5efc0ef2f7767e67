"""A plan beside what runs: instances, GPUs, load, and latencies as predicted at that load and as measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import FRONTENDS, engines_in_sums, model_key
from gpumon.readings.format import seconds
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sizing.answer import NOT_KNOWN, Answer, Runs, WorkloadPlan
from gpumon.sizing.instance import Instance
from gpumon.sizing.peaks import credible
from gpumon.sizing.plan import DetailedPlan

USUAL_SPAN_S: Final = 600.0
"""Seconds of a recording that are looked at where no time is given."""

ModelKey = tuple[str, ...]


class ModelEngines(NamedTuple):
    """Engines of one model, all together."""

    instances: int
    """Data-parallel ranks count one by one."""
    gpus: float | None
    """None where one of them does not tell."""
    in_flight: float | None
    """Running and waiting."""
    running: float | None
    itl_s: float | None
    """Mean over the running requests of those that tell."""
    ttft_s: float | None


class _RequestMean:
    """Mean of figures that are known at some moments, weighted by the requests that they are of."""

    def __init__(self) -> None:
        self._total = 0.0
        self._weight = 0.0

    def add(self, value: float | None, weight: float = 1.0) -> None:
        if value is not None and weight > 0.0:
            self._total += value * weight
            self._weight += weight

    @property
    def value(self) -> float | None:
        if self._weight > 0.0:
            return self._total / self._weight
        return None


class ServedMeans:
    """Means of what served each model over some moments; instances and GPUs are those of the last one."""

    def __init__(self) -> None:
        self._last: Mapping[ModelKey, ModelEngines] = {}
        self._means: dict[ModelKey, dict[str, _RequestMean]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Take in a moment. Latencies count by the requests that ran."""
        self._last = engines_by_model(snapshot)
        for model, now in self._last.items():
            means = self._means.setdefault(model, {})
            for field in ("in_flight", "running"):
                means.setdefault(field, _RequestMean()).add(getattr(now, field))
            for field in ("itl_s", "ttft_s"):
                means.setdefault(field, _RequestMean()).add(getattr(now, field), now.running or 0.0)

    def by_model(self) -> dict[ModelKey, ModelEngines]:
        """The models that are served at the last moment."""
        by_model = {}
        for model, last in self._last.items():
            means = self._means[model]
            by_model[model] = ModelEngines(
                instances=last.instances,
                gpus=last.gpus,
                in_flight=means["in_flight"].value,
                running=means["running"].value,
                itl_s=means["itl_s"].value,
                ttft_s=means["ttft_s"].value,
            )
        return by_model


def engines_by_model(snapshot: Snapshot) -> dict[ModelKey, ModelEngines]:
    """Model -> its engines that answer, of a moment."""
    engines: dict[ModelKey, list[Engine]] = {}
    for engine in engines_in_sums(snapshot.engines):
        is_serving = engine.state is EndpointState.OK and engine.phase is Phase.INFERENCE
        if is_serving and engine.model and engine.kind not in FRONTENDS:
            engines.setdefault(model_key(engine.model), []).append(engine)
    return {model: _served(group) for model, group in engines.items()}


def _served(engines: list[Engine]) -> ModelEngines:
    """The engines of one model together."""
    gpus: float | None = 0.0
    in_flight = None
    running = None
    itl = _RequestMean()
    ttft = _RequestMean()
    for engine in engines:
        count = credible(engine.hardware.gpu_count)
        gpus = None if gpus is None or count is None else gpus + count
        runs = credible(engine.load.running)
        if runs is None:
            continue
        running = (running or 0.0) + runs
        in_flight = (in_flight or 0.0) + runs + (credible(engine.load.waiting) or 0.0)
        itl.add(credible(engine.latency.itl_mean_s), runs)
        ttft.add(credible(engine.latency.ttft_s.mean), runs)
    instances = sum(max(engine.hardware.ranks, 1) for engine in engines)
    return ModelEngines(instances, gpus, in_flight, running, itl.value, ttft.value)


def with_runs(planned: DetailedPlan, runs: Mapping[ModelKey, ModelEngines]) -> Answer:
    """The answer with what runs of each workload."""
    workloads = []
    for plan, demand in zip(planned.answer.workloads, planned.demands, strict=True):
        workloads.append(
            msgspec.structs.replace(plan, runs=running_instances(demand.instance, runs.get(model_key(plan.model))))
        )
    return msgspec.structs.replace(planned.answer, workloads=tuple(workloads))


def running_instances(instance: Instance | None, now: ModelEngines | None) -> Runs:
    """Instances of a workload that run; none if no engine serves its model."""
    if now is None:
        return Runs(instances=0, gpus=0.0)
    itl_s: Reading = NOT_KNOWN
    ttft_s: Reading = NOT_KNOWN
    per_instance = None
    if now.running is not None and now.instances:
        per_instance = now.running / now.instances
    if instance is not None and per_instance is not None and per_instance > 0.0:
        itl_s = _known(instance.itl_s(per_instance))
        ttft_s = _known(instance.ttft_s(per_instance))
    return Runs(
        instances=now.instances,
        gpus=_known(now.gpus),
        concurrency=_known(now.in_flight),
        itl_s=_known(now.itl_s),
        ttft_s=_known(now.ttft_s),
        itl_predicted_s=itl_s,
        ttft_predicted_s=ttft_s,
    )


def _known(value: float | None) -> Reading:
    if value is None:
        return NOT_KNOWN
    return value


def runs_text(plan: WorkloadPlan, runs: Runs) -> str:
    """Instances, GPUs and latencies as they are beside those of the plan.

    `2 of 3 instances, 4 of 6 GPUs, 34 of 40 in flight; ITL mean 26ms (plan at this load: 24ms, +8%)`
    """
    if not runs.instances:
        return "no engine that answers serves this model"
    parts = [f"{_of(runs.instances, plan.instances)} instances, {_of(runs.gpus, plan.gpus)} GPUs"]
    if not isinstance(runs.concurrency, Missing):
        parts.append(f"{_of(runs.concurrency, plan.concurrency)} in flight")
    latencies: list[str] = []
    for name, measured, predicted in (
        ("ITL", runs.itl_s, runs.itl_predicted_s),
        ("TTFT", runs.ttft_s, runs.ttft_predicted_s),
    ):
        if isinstance(measured, Missing):
            continue
        by = "plan"
        if not latencies:
            by = "plan at this load"
        latencies.append(f"{name} mean {seconds(measured)}{_beside(measured, predicted, by)}")
    return "; ".join([", ".join(parts), *latencies])


def _of(here: Reading, wanted: Reading) -> str:
    """`2 of 3`; `?` where one is not known."""
    return f"{_count(here)} of {_count(wanted)}"


def _count(value: Reading) -> str:
    known = number(value)
    if known is None:
        return "?"
    if known < 9.95 and abs(known - round(known)) >= 0.05:
        return f"{known:.1f}"
    return f"{known:,.0f}"


def _beside(measured: float, predicted: Reading, by: str) -> str:
    """The prediction at the same load, and how far the measurement is off it."""
    expected = number(predicted)
    if not expected:
        return ""
    return f" ({by}: {seconds(expected)}, {(measured / expected - 1.0) * 100:+.0f}%)"
