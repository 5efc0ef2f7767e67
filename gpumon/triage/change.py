"""The detector of change: what a figure was before, since when it is another, whether at once or little by little, and
how fast it goes on. It knows no clock and no figure; rules ask it about what they know of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median, stdev
from typing import Final, NamedTuple

LEAST_BEFORE: Final = 3
"""Values before a change that make a level: of slots of 20 s a minute."""
EXTREME: Final = 0.9
"""Quantile that stands for the level of before while it is not known yet which values are of before."""
SWINGS: Final = 0.25
"""Share of the values of before that may lie as far off as now: with more of them the figure always swings so."""
_MAD_TO_DEVIATION: Final = 1.4826
"""Standard deviation / median absolute deviation, where values scatter normally."""
_SCATTER_TIMES: Final = 3.0
"""Standard deviations from its level up to which a value is of that level."""
_LEAST_BAND_SHARE: Final = 0.05
"""Part of a change by which a value may be off the level of before and still be of it: windows overlap."""
_ROUNDS: Final = 8
"""Most times that the level of before is worked out anew without the values that turn out to be of the change."""
_ARRIVED_SHARE: Final = 0.7
"""Part of a change at which a figure has arrived at its new level."""
_AT_ONCE_VALUES: Final = 2
"""Values between its beginning and its arrival up to which a change came at once: the first may have both levels."""

_SUDDEN_SHARE: Final = 0.7
"""Part of a change that has come after one to two of its windows if it came at once."""
_STILL_RISEN_TIMES: Final = 1.3
"""Times its level of before down to which a figure that rose is still another: lower, it is back."""
_USUAL_S: Final = 3600.0
"""Seconds after which the level of now is the usual."""

TimedValue = tuple[float, float]
"""Monotonic time in s, and the value of then."""


class Change(NamedTuple):
    """A figure that is another now."""

    before: float
    """Its level before, a median."""
    began_s: float
    """Monotonic time of the last value that was of that level."""
    is_sudden: bool
    """It came at once; else little by little."""

    def stands(self, now: float, now_s: float) -> bool:
        """Whether the figure is still far above its level of before, and an hour has not made it the usual."""
        return now >= _STILL_RISEN_TIMES * self.before and now_s - self.began_s <= _USUAL_S


def begin_of_now(values: Sequence[float], now: float, looked_back: int) -> int:
    """Index from which on all values lie nearer to `now` than to the high ones of the last `looked_back` values."""
    sorted_values = sorted(values[-looked_back:])
    if not sorted_values:
        return 0
    high = sorted_values[int(EXTREME * (len(sorted_values) - 1))]
    middle = (high + now) / 2.0
    begin = len(values)
    while begin and values[begin - 1] < middle:
        begin -= 1
    return begin


def level_before(values: Sequence[float], now: float) -> float | None:
    """The median of the values before the last ones that lie at the height of now, which is below it.

    None without enough of them, and where they have gone as low as now all along.
    """
    before = values[: begin_of_now(values, now, len(values))]
    if len(before) < LEAST_BEFORE:
        return None
    level = median(before)
    swings = [value for value in before if value < (level + now) / 2.0]
    if level > now and len(swings) <= SWINGS * len(before):
        return level
    return None


def find_rise(values: Sequence[TimedValue], now: float, least_factor: float) -> Change | None:
    """The rise of a figure to `now`, which is `least_factor` times its level of before or more; None without one.

    `values` are those of the past, the oldest first; a value covers the time since the one before it. Where the figure
    rises little by little, the level is that from which it began to.
    """
    figures = [value for _, value in values]
    level = level_before([-value for value in figures], -now)
    if level is None or now < -least_factor * level:
        return None
    onset = _onset(figures, -level, now)
    if onset < LEAST_BEFORE:
        return None
    before = median(figures[:onset])
    if now < least_factor * before:
        return None
    arrived = onset
    while arrived < len(figures) and figures[arrived] < before + _ARRIVED_SHARE * (now - before):
        arrived += 1
    return Change(before, values[onset - 1][0], is_sudden=arrived - onset <= _AT_ONCE_VALUES)


def find_change(
    slots: Sequence[TimedValue],
    read_samples: Callable[[], Sequence[TimedValue]],
    now: float,
    least_factor: float,
    window_s: float,
) -> Change | None:
    """The rise of a figure to `now` by its slots (`find_rise`), with its beginning by its samples (`exact_change`).

    The samples are read where there is a rise only: at most ticks there is none.
    """
    rise = find_rise(slots, now, least_factor)
    return None if rise is None else exact_change(read_samples(), rise, now, window_s)


def level_until(values: Sequence[TimedValue], began_s: float, least: int = 1) -> float | None:
    """Median of the values up to the beginning of a change; None of fewer than `least`."""
    before = [value for at_s, value in values if at_s <= began_s]
    return median(before) if len(before) >= least else None


def _onset(figures: Sequence[float], level: float, now: float) -> int:
    """Index behind the last value that is of the level of before."""
    onset = len(figures)
    for _ in range(_ROUNDS):
        band = level + scatter_band(figures[:onset], level, now)
        last = onset
        while last and figures[last - 1] > band:
            last -= 1
        if last in (0, onset):
            return last
        onset = last
        level = median(figures[:onset])
    return onset


def scatter_band(figures: Sequence[float], level: float, now: float) -> float:
    """How far above its level a value still is of that level: by how far values lie apart that follow each other, so
    that what rises all along does not count as scatter."""
    band = _LEAST_BAND_SHARE * (now - level)
    if len(figures) < LEAST_BEFORE:
        return band
    scatter = median(abs(after - before) for before, after in pairwise(figures)) / math.sqrt(2.0)
    return max(band, _SCATTER_TIMES * _MAD_TO_DEVIATION * scatter)


def exact_change(samples: Sequence[TimedValue], change: Change, now: float, window_s: float) -> Change:
    """The change with its beginning and its kind by samples, where they go back so far: slots are coarser.

    `window_s`: seconds over which a sample is a mean.
    """
    before = [value for sampled_s, value in samples if sampled_s <= change.began_s]
    if not before:
        return change
    most = change.before + scatter_band(before, change.before, now)
    began_s = change.began_s
    for sampled_s, value in samples:
        if value <= most and sampled_s >= began_s:
            began_s = sampled_s
    first = [value for sampled_s, value in samples if 1.0 <= (sampled_s - began_s) / window_s <= 2.0]
    is_sudden = median(first) - change.before >= _SUDDEN_SHARE * (now - change.before) if first else change.is_sudden
    return Change(change.before, began_s, is_sudden)


class Drift(NamedTuple):
    """A queue that gets longer by what comes more than what goes."""

    level: float
    """Its length now."""
    per_s: float
    """Arrivals less departures per second."""
    error_per_s: float
    """Standard error of that rate."""
    seen_s: float
    """Seconds over which it was seen."""

    def time_to(self, limit: float) -> tuple[float, float]:
        """Seconds until a queue that gets longer is as long as this, and their standard deviation.

        The way of a queue is a random walk with a drift: its time to a limit at distance D has the mean D / drift and
        the variance D x variance per second / drift^3 (inverse Gaussian). The error of the drift comes beside it.
        """
        distance = max(0.0, limit - self.level)
        seconds = distance / self.per_s
        variance_per_s = self.error_per_s**2 * self.seen_s
        walk_s = math.sqrt(distance * variance_per_s / self.per_s**3)
        return seconds, math.hypot(walk_s, seconds * self.error_per_s / self.per_s)


def drift(values: Sequence[TimedValue], served_per_s: float) -> Drift | None:
    """The drift of a queue's lengths; None of fewer than `LEAST_BEFORE`.

    Both arrivals and departures are counts, so that chance alone moves a queue by the root of their sum (Poisson). What
    comes in bursts moves it further: then the scatter of its steps tells the error.
    """
    if len(values) < LEAST_BEFORE:
        return None
    seconds = values[-1][0] - values[0][0]
    steps = [after - before for (_, before), (_, after) in pairwise(values)]
    per_s = sum(steps) / seconds
    by_count = math.sqrt(max(0.0, 2.0 * served_per_s + per_s) * seconds)
    by_steps = stdev(steps) * math.sqrt(len(steps))
    return Drift(values[-1][1], per_s, max(by_count, by_steps) / seconds, seconds)


class Trend(NamedTuple):
    """A figure that goes on in one direction."""

    level: float
    """Its level now, by the line through its values."""
    per_s: float
    low_per_s: float
    """The true slope lies between this and `high_per_s`, if the line is one."""
    high_per_s: float
    seen_s: float
    """Seconds over which it was seen."""
    scatter: float = 0.0
    """Standard deviation of its values from the line."""


def trend(values: Sequence[TimedValue], least_tau: float, sigmas: float) -> Trend | None:
    """The line through values that rise or fall for certain (Theil and Sen); None where they may as well not.

    `least_tau`: share of the pairs of values (Kendall's tau) that have to go its way more than the other. The interval
    of the slope holds `sigmas` standard deviations of the count of such pairs to each side.
    """
    count = len(values)
    if count < LEAST_BEFORE:
        return None
    slopes = [
        (late - early) / (late_s - early_s)
        for index, (early_s, early) in enumerate(values)
        for late_s, late in values[index + 1 :]
    ]
    slopes.sort()
    rising = sum(slope > 0.0 for slope in slopes)
    falling = sum(slope < 0.0 for slope in slopes)
    if abs(rising - falling) < least_tau * len(slopes):
        return None
    spread = sigmas * math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    low = max(0, math.floor((len(slopes) - spread) / 2.0))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2.0))
    per_s = median(slopes)
    last_s = values[-1][0]
    level = median(value + per_s * (last_s - at_s) for at_s, value in values)
    residuals = [abs(value + per_s * (last_s - at_s) - level) for at_s, value in values]
    scatter = _MAD_TO_DEVIATION * median(residuals)
    return Trend(level, per_s, slopes[low], slopes[high], last_s - values[0][0], scatter)
