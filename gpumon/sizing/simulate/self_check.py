"""A recording beside its own simulation: the same traffic on the engines as they ran, against what they measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.format import counted, is_last_bucket, least_time, seconds
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.snapshot import Quantiles
from gpumon.sizing.answer import Source
from gpumon.sizing.instance import Instance
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import Demand
from gpumon.sizing.simulate.conditions import Conditions, source_of
from gpumon.sizing.simulate.figures import Figures, RequestGoals, Spread, figures_of
from gpumon.sizing.simulate.measured_run import MeasuredRun
from gpumon.sizing.simulate.requests import ArrivalPace
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.setup import setup_of
from gpumon.sizing.simulate.traffic import RecordedTraffic

MOST_ERROR: Final = 0.25
"""Share by which a simulation may be off what was measured before it stands for nothing that was measured."""
_FEW_ERROR: Final = 0.5
"""The same, where chance alone makes a difference of a quarter: a mean, or a p95, of few requests."""
_ENOUGH_FOR_MEAN: Final = 20
_ENOUGH_FOR_P95: Final = 100
"""Requests of which five are longer than their p95."""
_WARM_UP_TIMES: Final = 4.0
"""Times the mean time of a request that a simulation warms up."""
_USUAL_RESPONSE_S: Final = 10.0
THROUGHPUT: Final = "throughput"
"""Name of the figure that is no latency."""
_NOT_MEASURED: Final = Missing(Reason.NOT_EXPOSED)


class CheckedFigure(msgspec.Struct, frozen=True):
    """One figure, measured and simulated. Seconds, of the throughput output tokens/s."""

    name: str
    """`TTFT mean`, `TTFT p95`, `throughput`."""
    measured: Reading
    simulated: Reading
    error_ratio: Reading
    """Simulated / measured - 1; of a p95 against the nearer end of the bucket that it was measured in, 0 inside of it.
    Missing where one of both is."""
    is_least: bool = False
    """Whether `measured` lies in the last bucket of its histogram, which has no end: it may be longer."""

    @property
    def error(self) -> float:
        """`error_ratio`, 0 where it is missing."""
        return number(self.error_ratio) or 0.0


class SelfCheck(msgspec.Struct, frozen=True):
    """The recorded traffic, played on the engines as they ran."""

    instances: int
    in_flight: float
    """Mean requests of one instance, running and waiting, as measured."""
    figures: tuple[CheckedFigure, ...] = ()
    refuted: bool = False
    """Whether a figure is more than 25% off, and farther than by chance: the fit does not say what these engines do."""
    text: str = ""
    """The figure that is farthest off, or why nothing could be compared."""


class CheckedFit(NamedTuple):
    """A self-check, and what its simulation stood on."""

    check: SelfCheck
    stands_on_points: bool
    """Whether the time of a step is that of measured points of that very server, whose GPU is known."""


def check_recording(
    workload: Workload, scenario: Scenario, catalogues: Catalogues, recorded: RecordedTraffic
) -> CheckedFit | None:
    """The recorded traffic on the engines as they ran, without what was typed; None where nothing of them is known."""
    measured = recorded.measured
    seen = workload.seen
    if measured is None or seen is None:
        return None
    as_it_ran = Workload(workload.model, workload.target, target_kind=workload.target_kind, seen=seen)
    if seen.gpu:
        scenario = msgspec.structs.replace(scenario, server=(Server(seen.gpu, gpus=max(8, seen.gpus)),))
    instance = resolve(as_it_ran, scenario, catalogues)
    stands_on_points = bool(seen.gpu) and instance.source is Source.MEASURED
    in_flight = measured.in_flight
    try:
        figures = _simulated(Demand(as_it_ran, instance), scenario, catalogues, recorded, measured.instances)
    except ValueError as why:
        check = SelfCheck(measured.instances, in_flight, text=f"not compared with what was recorded: {why}")
        return CheckedFit(check, stands_on_points)
    rows = tuple(_rows(measured, figures))
    compared = [row for row in rows if not isinstance(row.error_ratio, Missing)]
    refuting = [row for row in compared if abs(row.error) > _most_error(row, recorded.requests, measured)]
    worst = max(refuting or compared, key=lambda row: abs(row.error), default=None)
    if worst is None:
        text = "not compared: the recording has neither latencies nor tokens"
        return CheckedFit(SelfCheck(measured.instances, in_flight, rows, text=text), stands_on_points)
    text = f"{worst.name} {_value_text(worst, worst.simulated)}, measured {_measured_text(worst)}"
    few = ""
    if not refuting and abs(worst.error) > MOST_ERROR:
        few = f", of {counted(round(recorded.requests), 'request')}: too few to refute anything"
    text = f"{text}, at {in_flight:.3g} in flight each ({worst.error:+.0%}{few})"
    check = SelfCheck(measured.instances, in_flight, rows, refuted=bool(refuting), text=text)
    return CheckedFit(check, stands_on_points)


def _most_error(row: CheckedFigure, requests: float, measured: MeasuredRun) -> float:
    """Share by which a figure of so many recorded requests may be off: chance alone makes as many arrive, and has some
    of them begin before the recording or end after it."""
    requests = max(1.0, requests)
    at_its_ends = measured.in_flight * measured.instances / requests
    if row.name == THROUGHPUT:
        return max(MOST_ERROR, 2.0 * math.sqrt(2.0 / requests) + at_its_ends)
    enough = _ENOUGH_FOR_P95 if row.name.endswith("p95") else _ENOUGH_FOR_MEAN
    return _FEW_ERROR if requests < enough else min(_FEW_ERROR, max(MOST_ERROR, at_its_ends))


def _simulated(
    demand: Demand, scenario: Scenario, catalogues: Catalogues, recorded: RecordedTraffic, instances: int
) -> Figures:
    """The recorded traffic on so many instances. Raises ValueError where they cannot be set up, or nothing arrives."""
    setup = setup_of(demand.instance, scenario, catalogues)
    warm_up_s = min(recorded.seconds, _WARM_UP_TIMES * _response_s(recorded))
    source = source_of(demand, Conditions(), _with_warm_up(recorded, warm_up_s))
    source.counted_from_s = warm_up_s
    source.counted_until_s = warm_up_s + recorded.seconds
    router = ROUTERS["least-loaded"]()
    log = play(source, setup.cost, setup.limits, instances, router, setup.delay_s)
    if not log.served:
        raise ValueError("no request was served")
    return figures_of(log, RequestGoals(), instances * demand.instance.gpus)


def _response_s(recorded: RecordedTraffic) -> float:
    """Mean time of a recorded request; the usual one of a chat where it was not measured."""
    measured = recorded.measured
    latency = measured.latencies.get(q.E2E, Quantiles()) if measured is not None else Quantiles()
    return number(latency.mean) or _USUAL_RESPONSE_S


def _with_warm_up(recorded: RecordedTraffic, warm_up_s: float) -> RecordedTraffic:
    """The traffic with a stretch before it: a recording begins while requests run, a simulation with none."""
    first = recorded.paces[0]
    before = (ArrivalPace(0.0, warm_up_s, first.rate),) if warm_up_s > 0.0 else ()
    later = (ArrivalPace(warm_up_s + pace.start_s, warm_up_s + pace.end_s, pace.rate) for pace in recorded.paces)
    return recorded._replace(paces=(*before, *later))


def _rows(measured: MeasuredRun, figures: Figures) -> Iterator[CheckedFigure]:
    """Each figure that was measured, beside the simulated one; gaps between tokens where an engine has no histogram of
    them are compared as means of requests."""
    spreads: list[tuple[str, str, Spread]] = [("TTFT", q.TTFT, figures.ttft_s)]
    if q.ITL in measured.latencies:
        spreads.append(("ITL", q.ITL, figures.itl_s))
    else:
        spreads.append(("TPOT", q.TPOT, figures.tpot_s))
    spreads.append(("E2E", q.E2E, figures.e2e_s))
    for name, quantity, spread in spreads:
        latency = measured.latencies.get(quantity)
        if latency is not None:
            yield _row(f"{name} mean", latency.mean, spread.mean)
            yield _p95_row(name, latency, spread.p95)
    if measured.tokens_per_s > 0.0:
        yield _row(THROUGHPUT, measured.tokens_per_s, figures.tokens_per_s)


def _row(name: str, measured: Reading, simulated: Reading) -> CheckedFigure:
    """A figure with its error."""
    error_ratio: Reading = _NOT_MEASURED
    if not isinstance(measured, Missing) and not isinstance(simulated, Missing) and measured > 0.0:
        error_ratio = simulated / measured - 1.0
    return CheckedFigure(name, measured, simulated, error_ratio)


def _p95_row(name: str, latency: Quantiles, simulated: Reading) -> CheckedFigure:
    """A p95, which a histogram tells no nearer than its bucket."""
    row = _row(f"{name} p95", latency.p95, simulated)
    if isinstance(row.error_ratio, Missing) or isinstance(simulated, Missing):
        return row
    low = number(latency.p95_low)
    high = number(latency.p95_high)
    error_ratio = row.error_ratio
    is_least = is_last_bucket(latency.p95_high)
    if low is not None and low <= simulated and (is_least or (high is not None and simulated <= high)):
        error_ratio = 0.0
    elif high is not None and simulated > high > 0.0:
        error_ratio = simulated / high - 1.0
    elif low is not None and 0.0 < simulated < low:
        error_ratio = simulated / low - 1.0
    return msgspec.structs.replace(row, error_ratio=error_ratio, is_least=is_least)


def _measured_text(row: CheckedFigure) -> str:
    """The measured value of a row with its unit; `>80s` where it may be longer."""
    return least_time(row.measured) if row.is_least else _value_text(row, row.measured)


def _value_text(row: CheckedFigure, value: Reading) -> str:
    """A value of a row with its unit."""
    if row.name == THROUGHPUT:
        return f"{number(value) or 0.0:,.0f} tokens/s"
    return seconds(value)


def refusal_text(instance: Instance, fit: CheckedFit) -> str:
    """Why nothing is known of engines whose own recording refutes what a simulation would stand on.

    Empty where the time of a step is a fit of their own points: then the figures are shown as refuted.
    """
    if not fit.check.refuted or fit.stands_on_points:
        return ""
    gpu = instance.gpu.name if instance.gpu is not None else "a GPU"
    return (
        f"not known: nothing was measured that tells what a step of these engines takes, and a model of {gpu} is "
        f"refuted by what was recorded: {fit.check.text}"
    )
