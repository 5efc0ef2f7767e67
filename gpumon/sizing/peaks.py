"""Requests in flight of each model, which a plan is made for: the peak of minutes, the p95 of a longer past."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import engines_in_sums, turned_away_requests
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Reading, number
from gpumon.readings.snapshot import Engine, Snapshot

STEP_S: Final = 10.0
"""Seconds of one step; a peak is the mean of a step: one instant is none."""
KEPT_STEPS: Final = 30
"""Steps that are kept: 5 minutes of them."""
MINUTE_STEPS: Final = 6
"""Steps of a minute, which is what the quantiles of engines are of."""
LEAST_TICKS: Final = 2
"""Least ticks of a step; fewer are an instant, too."""
WIDTHS: Final = (1, 3, 6, 15)
"""Numbers of steps that are taken as one where polls are seldom; all divide `KEPT_STEPS`."""
MOST_MODELS: Final = 64
"""Models whose steps are kept; further ones are not looked at."""
_MINUTE_S: Final = 60.0
_LARGEST_CREDIBLE: Final = 1e12
"""Figure beyond which nothing that an engine says is believed."""


def credible(reading: Reading) -> float | None:
    """A figure as a number; None where it is missing or cannot be: engines may say infinite, negative or no number."""
    value = number(reading)
    if value is not None and 0.0 <= value <= _LARGEST_CREDIBLE:
        return value
    return None


def in_flight(snapshot: Snapshot) -> dict[str, float]:
    """Served model name -> running, waiting and turned away on all engines that tell."""

    def requests_of(engine: Engine) -> tuple[Reading, ...]:
        return engine.load.running, engine.load.waiting, turned_away_of(engine)

    return _sum_by_model(snapshot, requests_of)


def running_requests(snapshot: Snapshot) -> dict[str, float]:
    """Served model name -> running requests on all engines that tell."""
    return _sum_by_model(snapshot, lambda engine: (engine.load.running,))


def turned_away_of(engine: Engine) -> float:
    """Requests that would run on an engine beside the others, had it not turned them away; 0 where it does not tell."""
    running = credible(engine.load.running) or 0.0
    served_per_s = credible(engine.rates.requests_per_s) or 0.0
    rejected_per_s = credible(engine.rates.rejections_per_s) or 0.0
    return turned_away_requests(running, served_per_s, rejected_per_s)


def request_rates(snapshot: Snapshot) -> dict[str, float]:
    """Served model name -> requests that end or are turned away per second, on all engines that tell."""

    def rates_of(engine: Engine) -> tuple[Reading, ...]:
        return engine.rates.requests_per_s, engine.rates.rejections_per_s

    return _sum_by_model(snapshot, rates_of)


def _sum_by_model(snapshot: Snapshot, figures_of: Callable[[Engine], tuple[Reading, ...]]) -> dict[str, float]:
    """Served model name -> sum of these figures over its engines; one whose first figure is not known is left out."""
    sums: dict[str, float] = {}
    for engine in engines_in_sums(snapshot.engines):
        if not engine.model or engine.phase is not Phase.INFERENCE:
            continue
        first, *others = map(credible, figures_of(engine))
        if first is not None:
            figure = first + sum(other or 0.0 for other in others)
            sums[engine.model] = sums.get(engine.model, 0.0) + figure
    return sums


class PeakLoad(NamedTuple):
    """Requests in flight of one model, all its engines."""

    peak: float
    """Highest mean of 10 s, of longer where polls are more than 5 s apart; of a recording the p95 of minutes."""
    mean: float
    """Mean over the time that was looked at."""
    seconds: float
    """Time that was looked at."""
    what: str = "peak"
    """The kind of `peak`: `peak` or `p95`."""
    requests_per_s: float | None = None
    """p95 of the request rate in the same steps; None where no engine tells it."""
    step_s: float = STEP_S
    """Seconds of the means of which `peak` is one: at an instant more may be in flight."""


class _Step:
    """Sum and number of the values that were seen in one step."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0

    def add(self, total: float, count: int = 1) -> None:
        """Take in `count` values of this sum."""
        self.total += total
        self.count += count

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return self.total / self.count


_Steps = dict[str, dict[int, _Step]]
"""Model -> number of the step -> what was seen in it."""


class RecentLoads:
    """Steps of 10 s for each model, of the last 5 minutes, at most 64 models: 150 kB at the very most."""

    def __init__(self) -> None:
        self._current_step = -1
        """Number of the step under way; -1: none."""
        self._steps: _Steps = {}

    def take(self, time_s: float, counts: Mapping[str, float]) -> None:
        """Take one tick in: served model name -> requests in flight. All starts anew where the clock was set back."""
        if not math.isfinite(time_s):
            return
        step_number = int(time_s // STEP_S)
        if step_number < self._current_step:
            self._steps.clear()
        if step_number != self._current_step:
            self._current_step = step_number
            self._forget(step_number - KEPT_STEPS)
        for model, count in counts.items():
            if model in self._steps or len(self._steps) < MOST_MODELS:
                self._steps.setdefault(model, {}).setdefault(step_number, _Step()).add(count)

    def _forget(self, first: int) -> None:
        """Drop the steps before number `first`, and models of which none is left."""
        remaining: _Steps = {}
        for model, steps in self._steps.items():
            newer = {step_number: step for step_number, step in steps.items() if step_number >= first}
            if newer:
                remaining[model] = newer
        self._steps = remaining

    def peak_loads(self) -> dict[str, PeakLoad]:
        """The peak of every model that was seen for one whole step at least; the step under way is not looked at.

        Where polls come so seldom that no step has two of them, as from a Prometheus, several steps are one.
        """
        loads = dict[str, PeakLoad]()
        for model, steps in self._steps.items():
            for width in WIDTHS:
                ended = self._ended_steps(steps, width)
                if ended:
                    loads[model] = _peak_of(ended, STEP_S * width)
                    break
        return loads

    def minute_means(self) -> dict[str, float]:
        """Served model name -> mean of the last six steps, the one under way among them; of models that were seen
        before these, too."""
        first_step = self._current_step - MINUTE_STEPS + 1
        means = {}
        for model, steps in self._steps.items():
            newest = [step for number, step in steps.items() if number >= first_step]
            if newest and min(steps) < first_step:
                means[model] = sum(step.total for step in newest) / sum(step.count for step in newest)
        return means

    def step_means(self) -> dict[str, list[tuple[float, float]]]:
        """Served model name -> (Unix time of the end, mean) of each step that is over, the oldest first."""
        means = {}
        for model, steps in self._steps.items():
            numbers = sorted(number for number in steps if number != self._current_step)
            means[model] = [((number + 1) * STEP_S, steps[number].mean) for number in numbers]
        return means

    def _ended_steps(self, steps: Mapping[int, _Step], width: int) -> list[_Step]:
        """The steps, `width` of them taken as one, that are over and were looked at more than once, the newest last."""
        wide_steps: dict[int, _Step] = {}
        for step_number, step in steps.items():
            wide_steps.setdefault(step_number // width, _Step()).add(step.total, step.count)
        ended = [
            step
            for wide_number, step in wide_steps.items()
            if wide_number != self._current_step // width and step.count >= LEAST_TICKS
        ]
        return ended[-(KEPT_STEPS // width) :]


def _peak_of(steps: Sequence[_Step], step_s: float) -> PeakLoad:
    """The highest mean of steps of `step_s` seconds; one with less than half of the ticks of the fullest is an instant
    again, and left out."""
    most_ticks = max(step.count for step in steps)
    peak = max(step.mean for step in steps if 2 * step.count >= most_ticks)
    mean = sum(step.total for step in steps) / sum(step.count for step in steps)
    return PeakLoad(peak, mean=mean, seconds=step_s * len(steps), step_s=step_s)


class PastLoads:
    """Requests in flight and per second of each model, in steps of a longer past: of one machine, or of all."""

    def __init__(self, step_s: float = _MINUTE_S) -> None:
        """`step_s`: seconds of one step, at least as long as the moments are apart."""
        self._step_s = step_s
        self._running: _Steps = {}
        self._rates: _Steps = {}
        self._first_s = math.inf
        """Time of the first moment."""
        self._last_s = -math.inf
        self._interval_s = 0.0
        """Seconds between the last two moments: a moment stands for so long."""

    def take(self, time_s: float, running: Mapping[str, float], rates: Mapping[str, float]) -> None:
        """Take one moment in: served model name -> requests in flight, and requests per second."""
        if time_s > self._last_s and math.isfinite(self._last_s):
            self._interval_s = time_s - self._last_s
        self._first_s = min(self._first_s, time_s)
        self._last_s = max(self._last_s, time_s)
        for steps, values in ((self._running, running), (self._rates, rates)):
            for model, value in values.items():
                steps.setdefault(model, {}).setdefault(int(time_s // self._step_s), _Step()).add(value)

    def peak_loads(self, *machines: PastLoads) -> dict[str, PeakLoad]:
        """The p95 of every model over the means of its steps, the same step of other `machines` added to it."""
        all_machines = (self, *machines)
        running = _step_means([machine._running for machine in all_machines])
        rates = _step_means([machine._rates for machine in all_machines])
        span_s = max(machine._span_s for machine in all_machines)
        loads = dict[str, PeakLoad]()
        for model, means in running.items():
            rate = _p95(rates[model]) if model in rates else None
            loads[model] = PeakLoad(
                peak=_p95(means),
                mean=sum(means) / len(means),
                seconds=min(span_s, self._step_s * len(means)),
                what="p95",
                requests_per_s=rate,
                step_s=self._step_s,
            )
        return loads

    @property
    def _span_s(self) -> float:
        """Seconds from the first moment to the end of the last one: the first and the last step may be seen in part."""
        return self._last_s - self._first_s + min(self._interval_s, self._step_s)


def _step_means(machines: list[_Steps]) -> dict[str, list[float]]:
    """Model -> means of its steps, each the sum over the machines that have it."""
    sums: dict[str, dict[int, float]] = {}
    for models in machines:
        for model, steps in models.items():
            model_sums = sums.setdefault(model, {})
            for step_number, step in steps.items():
                model_sums[step_number] = model_sums.get(step_number, 0.0) + step.mean
    return {model: list(model_sums.values()) for model, model_sums in sums.items()}


def _p95(means: list[float]) -> float:
    """The smallest of these means that at least 19 of 20 are no larger than."""
    return sorted(means)[math.ceil(0.95 * len(means)) - 1]
