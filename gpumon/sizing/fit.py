"""From measured points to lines: ITL, TTFT and p95 over the load, with range and error, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import require_not_negative
from gpumon.readings.format import counted
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.interpolated import Interpolated, ItlCurve, never_falling
from gpumon.sizing.latency import Curve, Tail, TtftLine
from gpumon.sizing.profile import Point, load_level

_LEAST_BUCKETS: Final = 5
"""Buckets of live points from which on a line stands on them alone."""
_TWO_LOADS: Final = 2
"""Loads between which an error is that of two alone: of a mixture of experts the shape between them is the model's."""
_LEAST_LOADS: Final = 3
"""Loads from which on a line of TTFT, or of p95, stands on points alone."""
_LEAST_SPREAD: Final = 2.0
"""Highest over lowest load of a fit that stands on points alone."""
TWO_LOADS_SPREAD: Final = 4.0
"""Highest over lowest of two loads between which, and beyond, TTFT is a straight line through both: of loads closer
than that its slope may be noise."""
_LEAST_TAIL_SPREAD: Final = 1.5
"""Highest over lowest load of a line of p95: from levels closer than that its slope is noise."""
_LONGEST_ITL_S: Final = 3600.0
"""An hour per token is no measurement."""
_LONGEST_TTFT_S: Final = 86400.0
"""A day until the first token is no measurement."""
_MOST_RUNNING: Final = 1e6
"""A million sequences on one engine are no measurement."""
_KNEE: Final = 1.05
"""Offered over running: beyond it, requests wait for admission."""
_ONE_CLIENT: Final = 1.0
"""Requests that a client holds open where none can wait for another."""
_FLAT: Final = 0.05
"""A fall over the range by this share of the ITL is noise on a flat line."""
_LEVEL: Final = 0.75
"""Latencies of the upper half of the loads over those of the lower: down to here a fall is noise."""
_HUMP: Final = 1.15
"""Latencies of the fewest sequences this much above those of the most are another regime (idle data-parallel ranks)."""
_WIDEST_BAND: Final = 0.9
"""Share that a side of a band is at most: a latency is above 0."""
_NO_BASE: Final = 1e-6
"""Share of an ITL that stands for no base: that of a curve is above 0."""
_RESIDENT_STEPS: Final = 16
"""Steps between 0 and 1 in which a MoE's fit tries the share of the base that every step takes."""


class Fitted(msgspec.Struct, frozen=True):
    """A curve with what it stands on."""

    curve: Curve
    """The model that was fitted to the points."""
    line: Interpolated
    """The line through the points themselves: in their range what was measured counts, not the model."""
    low: float
    """Fewest running sequences that it was measured at."""
    high: float
    """Most running sequences that it was measured at."""
    buckets: int
    r2: float
    """Share of the buckets' variance that the curve explains, 0..1; low on a flat line even where that fits well."""
    band: Band
    """Errors of such fits at other loads than their own, up to 1.5 times their range; or the scatter of its own points,
    if that is wider."""
    anchored: bool
    """Whether the roofline had to help: too few or too similar points for a line."""
    text: str
    """Points that it stands on, for the screen."""


class _Bucket(NamedTuple):
    """Weighted medians of the points of one load level."""

    running: float
    itl_s: float
    weight: float
    """Windows or runs behind it."""


def fit(
    points: Iterable[Point],
    *,
    roof: Curve | None,
    floor_s: float = 0.0,
    least_buckets: int = _LEAST_BUCKETS,
    noisy: bool = True,
) -> Fitted | str:
    """The curve through `points`, or why there is none.

    Weighted median per bucket of running, then Theil-Sen over the buckets of ITL/w against b/w, in which a MoE is a
    line too; base at least `floor_s` (half the time to read the weights at the peak bandwidth; per token, so less with
    speculative decoding), slope at least 0. Points past the KV knee stay: they lie on the line over what *runs*.

    Below `least_buckets` buckets (5 for live points; a sweep's few are means over whole runs, 2 do) or a spread of 2
    one load cannot tell base from slope: the roofline `roof` of what was seen is scaled to the median point. So it is
    where the ITL falls, but by no more than noise does over a short range. `roof` gives w; without one it is 1.

    `noisy`: points are windows of a running engine, one of which may be slow for a reason of its own: then no single
    level decides alone how far the line through the points is from the curve.

    Raises ValueError for a floor that is negative.
    """
    require_not_negative("floor_s", floor_s)
    shape = roof or Curve(1.0, 0.0)
    buckets = _buckets(points)
    if not buckets:
        return "no inter-token latency was measured"
    used = buckets[_line_start(buckets) :]
    if len(used) >= max(2, least_buckets) and used[-1].running >= _LEAST_SPREAD * used[0].running:
        curve = _fit_curve(used, shape, floor_s)
    else:
        curve = f"{_points_text(used)}: too little for a line"
    anchored = isinstance(curve, str) and roof is not None and _is_level(used)
    if anchored:
        curve = _scale_to_buckets(used, shape, floor_s)
    if isinstance(curve, str):
        return curve
    return _fitted(buckets, used, curve, anchored=anchored, noisy=noisy)


def few_loads_text(points: Iterable[Point], least_buckets: int) -> str:
    """Why the ITL of these points stands on too few loads for a line: `measured at one load only`; empty if it does
    not, or none was measured."""
    buckets = _buckets(points)
    used = buckets[_line_start(buckets) :]
    if not used:
        return ""
    if len(used) >= least_buckets and used[-1].running >= _LEAST_SPREAD * used[0].running:
        return ""
    if len(used) == 1:
        return "measured at one load only"
    return f"measured at {len(used)} loads only, {used[0].running:.0f} to {used[-1].running:.0f} running"


def bound_by_points(points: Iterable[Point]) -> Fitted | None:
    """The line through points of a server that no roofline tells anything of, where they are too few for a curve.

    It is never better than what was measured: no faster with fewer sequences than at the first point, and with no more
    throughput beyond the last one. None where the ITL falls, or none was measured.
    """
    buckets = _buckets(points)
    if not buckets or not _is_level(buckets):
        return None
    last = buckets[-1]
    model = Curve(_NO_BASE * last.itl_s, last.itl_s / last.running)
    itls_s = never_falling(_itls_s(buckets), [bucket.weight for bucket in buckets])
    loads = [bucket.running for bucket in buckets]
    if loads[0] > 1.0:
        loads.insert(0, 1.0)
        itls_s = (itls_s[0], *itls_s)
    return Fitted(
        curve=model,
        line=Interpolated(tuple(loads), itls_s, model),
        low=buckets[0].running,
        high=last.running,
        buckets=len(buckets),
        r2=0.0,
        band=band_of("one load", 1, moe=False),
        anchored=True,
        text=f"{_points_text(buckets)}, taken to be no faster below and of no more throughput beyond",
    )


def _is_level(buckets: Sequence[_Bucket]) -> bool:
    """Whether the ITL falls by no more than a short range may show by chance: its level still says something."""
    half = len(buckets) // 2
    if not half:
        return True
    low_s = median(_itls_s(buckets[:half]))
    high_s = median(_itls_s(buckets[half:]))
    return high_s >= _LEVEL * low_s


def _itls_s(buckets: Sequence[_Bucket]) -> list[float]:
    """ITL of each bucket."""
    return [bucket.itl_s for bucket in buckets]


def _scale_to_buckets(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """The shape scaled to the median bucket; or why it cannot be."""
    scale = median(bucket.itl_s / shape.itl_s(bucket.running) for bucket in buckets)
    curve = _with_terms(shape, shape.base_s * scale, shape.slope_s * scale)
    if curve.base_s >= floor_s:
        return curve
    return _fit_on_floor(buckets, [(bucket.running, bucket.itl_s) for bucket in buckets], shape, floor_s)


def calibrated_ttft(line: TtftLine | None, points: Sequence[Point]) -> TtftLine | None:
    """The TTFT through the points from below the knee; where they are too few `line`, moved to those that there are.

    None without `line` and such points.

    From three loads with a spread of 2 on: Theil-Sen over sqrt(b) or over b, whichever is nearer. Of two with a spread
    of 4 the straight line through both (`python -m tests.accuracy.ttft_two_loads`). Points whose offered load is more
    than 5% above what decodes and computes its prompt have waited for admission and are left out. Each counts once:
    weights are windows of the same engine, and the latency drifts with load rather than time.
    """
    samples = [(max(1.0, point.running), point.ttft_s) for point in points_below_knee(points) if point.ttft_s]
    loads = loads_below_knee(points)
    if span_a_line(loads):
        return _fit_ttft(samples)
    if are_two_apart(loads):
        fixed_s, growth_s = _positive_line(samples)
        return TtftLine(fixed_s, 0.0, growth_s)
    if not samples:
        return line
    if line is None:
        return TtftLine(median(ttft_s for _, ttft_s in samples), 0.0)
    if line.ttft_s(1.0) > 0.0:  # a line of 0 has no factor to any measurement
        return line.moved_to(samples)
    return line


def _fit_ttft(samples: Sequence[tuple[float, float]]) -> TtftLine:
    """The line through samples of (running sequences, TTFT in seconds): over the root of the running sequences or over
    themselves, whichever is nearer."""
    by_root = [(math.sqrt(running), ttft_s) for running, ttft_s in samples]
    fixed_s, crowd_s = _positive_line(by_root)
    crowd = TtftLine(fixed_s, crowd_s)
    fixed_s, growth_s = _positive_line(samples)
    straight = TtftLine(fixed_s, 0.0, growth_s)
    if _ttft_error(straight, samples) < _ttft_error(crowd, samples):
        return straight
    return crowd


def _ttft_error(line: TtftLine, samples: Sequence[tuple[float, float]]) -> float:
    """Median error of a line, as a share."""
    return median(abs(line.ttft_s(running) / ttft_s - 1.0) for running, ttft_s in samples)


def loads_below_knee(points: Sequence[Point]) -> list[int]:
    """Different loads, in running sequences and rising, at which a TTFT from below the knee was measured."""
    return sorted({round(max(1.0, point.running)) for point in points_below_knee(points)})


def span_a_line(loads: Sequence[int]) -> bool:
    """Whether the TTFT at these rising loads makes a line of its own: at least three, the last twice the first."""
    return len(loads) >= _LEAST_LOADS and loads[-1] >= _LEAST_SPREAD * loads[0]


def are_two_apart(loads: Sequence[int]) -> bool:
    """Whether these rising loads are two, far enough from each other for a line through both."""
    return len(loads) == 2 and loads[1] >= TWO_LOADS_SPREAD * loads[0]


def points_below_knee(points: Sequence[Point]) -> list[Point]:
    """The points with a TTFT from below the knee: what the client holds open really runs, or computes its prompt."""
    # With a client that holds one request open nothing of the TTFT is a wait.
    alone_s = [point.ttft_s for point in points if point.ttft_s and 0.0 < (point.offered or math.inf) <= _ONE_CLIENT]
    prompt_s = min(alone_s, default=0.0)
    return [point for point in points if _is_below_knee(point, prompt_s)]


def _is_below_knee(point: Point, prompt_s: float) -> bool:
    """Whether no request of a point waits for admission, with prompts that take `prompt_s` to compute."""
    if point.overload:
        return False
    if not (point.ttft_s and 0.0 < point.ttft_s < _LONGEST_TTFT_S and 0.0 < point.running < math.inf):
        return False
    if point.offered is None:
        return True
    # Running are those that decode; with short answers to long prompts many more compute their prompt.
    in_prefill = point.offered * prompt_s / point.e2e_s if point.e2e_s else 0.0
    return point.offered <= _KNEE * point.running + in_prefill


class LatencySample(NamedTuple):
    """Mean and p95 of a latency at one level of load, seconds."""

    running: float
    mean_s: float
    p95_s: float

    @property
    def usable(self) -> bool:
        """Whether all of it is above 0, and p95 is a number."""
        return self.running > 0.0 and self.mean_s > 0.0 and 0.0 < self.p95_s < math.inf


def tail_of(samples: Sequence[LatencySample], mean: ItlCurve | TtftLine | None, otherwise: float | None) -> Tail:
    """The tail from samples: a line over at least three levels, else the median ratio, else `otherwise`, else 1.

    `mean`: the fit of the mean that the line stands beside.
    """
    usable = [sample for sample in samples if sample.usable]
    if not usable:
        return Tail(otherwise or 1.0, known=otherwise is not None)
    ratio = max(1.0, median(sample.p95_s / sample.mean_s for sample in usable))
    levels = [(sample.running, sample.p95_s) for sample in usable]
    loads = sorted({running for running, _ in levels})
    if mean is None or len(loads) < _LEAST_LOADS or loads[-1] < _LEAST_TAIL_SPREAD * loads[0]:
        return Tail(ratio, known=True)
    base_s, slope_s = _theil_sen(levels)
    mean_s = mean.ttft_s if isinstance(mean, TtftLine) else mean.itl_s
    return Tail(ratio=ratio, known=True, base_s=base_s, slope_s=slope_s, high=max(1.0, loads[-1]), mean_s=mean_s)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil-Sen: the median of the slopes between all pairs."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    if slopes:
        return median(slopes)
    return 0.0


def _theil_sen(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of the Theil-Sen line, its slope at least 0."""
    slope = max(0.0, _slope(points))
    return median(y - slope * x for x, y in points), slope


def _positive_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of the Theil-Sen line, both at least 0: where it begins below 0, of a line through 0."""
    base, slope = _theil_sen(points)
    if base >= 0.0:
        return base, slope
    return 0.0, median(y / x for x, y in points)


def _buckets(points: Iterable[Point]) -> list[_Bucket]:
    """Medians of the points of each load level with an ITL, by rising load.

    A mean of less than one running sequence is of idle moments, too: what decodes then decodes alone. It counts as 1.
    """
    grouped: dict[int, list[tuple[float, float, int]]] = {}
    for point in points:
        itl_s = point.itl_s
        if itl_s is None or not 0.0 < itl_s < _LONGEST_ITL_S:
            continue
        if not 0.0 < point.running <= _MOST_RUNNING or point.weight <= 0:
            continue
        running = max(1.0, point.running)
        grouped.setdefault(load_level(running), []).append((running, itl_s, point.weight))
    buckets = []
    for _, group in sorted(grouped.items()):
        loads = []
        latencies = []
        group_weight = 0.0
        for running, itl_s, weight in group:
            loads.append((running, weight))
            latencies.append((itl_s, weight))
            group_weight += weight
        buckets.append(_Bucket(_weighted_median(loads), _weighted_median(latencies), group_weight))
    return buckets


def _line_start(buckets: Sequence[_Bucket]) -> int:
    """Index of the first bucket of the line: behind a hump at few sequences, which is no line.

    Data-parallel engines decode 3 times slower below one sequence per rank (vLLM #23752). The cut is a fall where the
    medians before and behind differ most; with fewer than three buckets or a spread below 2 behind it, there is none.
    """
    largest_drop = _HUMP
    start = 0
    for cut in range(1, len(buckets) - 2):
        if buckets[-1].running < _LEAST_SPREAD * buckets[cut].running:
            break
        if buckets[cut - 1].itl_s <= buckets[cut].itl_s:
            continue
        before = sorted(_itls_s(buckets[:cut]))
        behind = sorted(_itls_s(buckets[cut:]))
        # Of an even number the lower middle before, the upper one behind: a cut has to be clear.
        drop = before[(len(before) - 1) // 2] / behind[len(behind) // 2]
        if drop > largest_drop:
            largest_drop = drop
            start = cut
    return start


def _fit_curve(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """The best curve of a shape, or why there is none; of a MoE with the best share of the base that every step takes,
    whatever it is routed to.

    Launches and all-reduces take time beside the reads, more of it in one engine than in another.
    """
    best = _fit_line(buckets, shape, floor_s)
    if not shape.experts or shape.resident_ratio == 1.0:
        return best
    least_error = _mean_error(buckets, best) if isinstance(best, Curve) else math.inf
    for step in range(_RESIDENT_STEPS + 1):
        with_share = msgspec.structs.replace(shape, resident_ratio=step / _RESIDENT_STEPS)
        curve = _fit_line(buckets, with_share, floor_s)
        if isinstance(curve, Curve):
            error = _mean_error(buckets, curve)
            if error < least_error:
                best = curve
                least_error = error
    return best


def _fit_line(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """Theil-Sen where every curve of this shape is a line, y = base + slope*x with x = b/w and y = ITL/w; the base by
    relative error. Or why there is no line."""
    line = []
    for bucket in buckets:
        weight_ratio = shape.weight_ratio(bucket.running)
        line.append((bucket.running / weight_ratio, bucket.itl_s / weight_ratio))
    slope_s = _slope(line)
    if slope_s < 0.0:
        fall_s = -slope_s * (line[-1][0] - line[0][0])
        if fall_s > _FLAT * median(y for _, y in line):
            return f"ITL falls as running rises ({_points_text(buckets)}): something else changed meanwhile"
        slope_s = 0.0
    base_s = _weighted_median([(y - slope_s * x, 1.0 / y) for x, y in line])
    if base_s >= floor_s and base_s > 0.0:
        return _with_terms(shape, base_s, slope_s)
    if floor_s <= 0.0:
        return f"ITL grows faster than running ({_points_text(buckets)}): no line, and no floor to hold one to"
    return _fit_on_floor(buckets, line, shape, floor_s)


def _fit_on_floor(
    buckets: Sequence[_Bucket], line: Sequence[tuple[float, float]], shape: Curve, floor_s: float
) -> Curve | str:
    """The curve whose base is `floor_s`, through the points of `line`; or why there is none."""
    slope_s = median((y - floor_s) / x for x, y in line)
    if slope_s > 0.0:
        return _with_terms(shape, floor_s, slope_s)
    return (
        f"ITL {min(_itls_s(buckets)) * 1e3:.1f} ms is less than reading the weights allows "
        f"(base at least {floor_s * 1e3:.1f} ms): model, precision or GPU differ from what is assumed"
    )


def _fitted(
    buckets: Sequence[_Bucket], used: Sequence[_Bucket], curve: Curve, *, anchored: bool, noisy: bool
) -> Fitted:
    """A curve with its range, errors and words; `used`: the buckets without those of a hump."""
    line = _through(used, curve, noisy=noisy)
    errors_s = [curve.itl_s(bucket.running) - bucket.itl_s for bucket in used]
    relative_errors = [abs(line.itl_s(bucket.running) / bucket.itl_s - 1.0) for bucket in used]
    r2 = _r2(used, errors_s)
    if anchored:
        figure = "one load"
        parts = [f"roofline scaled to {_points_text(used)}"]
    else:
        figure = "two loads" if len(used) == _TWO_LOADS else "measured"
        parts = [f"fit of {_points_text(used)}"]
        parts.append("flat" if curve.slope_s == 0.0 else f"r2 {r2:.2f}")
    if len(used) < len(buckets):
        parts.append(f"slower below {used[0].running:.0f}, left out")
    band = band_of(figure, 1, bool(curve.experts))
    scatter = 2.0 * median(relative_errors)
    if scatter > band.widest():
        band = Band(-min(scatter, _WIDEST_BAND), min(scatter, _WIDEST_BAND), rows=0)
    return Fitted(
        curve=curve,
        line=line,
        low=used[0].running,
        high=used[-1].running,
        buckets=len(used),
        r2=r2,
        band=band,
        anchored=anchored,
        text=", ".join(parts),
    )


def _through(buckets: Sequence[_Bucket], model: Curve, *, noisy: bool) -> Interpolated:
    """The line through buckets, with a model beyond them."""
    ratios = [bucket.itl_s / model.itl_s(bucket.running) for bucket in buckets]
    if noisy:
        ratios = _medians_of_three(ratios)
    itls_s = [ratio * model.itl_s(bucket.running) for ratio, bucket in zip(ratios, buckets, strict=True)]
    loads = tuple(bucket.running for bucket in buckets)
    return Interpolated(loads, never_falling(itls_s, [bucket.weight for bucket in buckets]), model)


def _medians_of_three(values: Sequence[float]) -> list[float]:
    """Each value as the median of itself and its two neighbours; fewer than three values as they are.

    The first and the last are the median of themselves, of the next one and of the line through the next two (Tukey,
    Exploratory Data Analysis, 1977, chapter 7).
    """
    if len(values) < 3:
        return list(values)
    inner = [median(values[place : place + 3]) for place in range(len(values) - 2)]
    first = median((values[0], inner[0], 3.0 * inner[0] - 2.0 * inner[min(1, len(inner) - 1)]))
    last = median((values[-1], inner[-1], 3.0 * inner[-1] - 2.0 * inner[max(-2, -len(inner))]))
    return [first, *inner, last]


def _r2(buckets: Sequence[_Bucket], errors_s: Sequence[float]) -> float:
    """Share of the variance that a curve with these errors explains; 0 where there is none."""
    latencies = _itls_s(buckets)
    mean = sum(latencies) / len(latencies)
    spread = sum((itl_s - mean) ** 2 for itl_s in latencies)
    if spread <= 0.0:
        return 0.0
    return max(0.0, 1.0 - sum(error**2 for error in errors_s) / spread)


def _with_terms(shape: Curve, base_s: float, slope_s: float) -> Curve:
    """A curve of this shape with another base and slope."""
    return msgspec.structs.replace(shape, base_s=base_s, slope_s=slope_s)


def _mean_error(buckets: Sequence[_Bucket], curve: Curve) -> float:
    """Mean error of a curve, as a share. Not the median: two of three buckets lie on every line, whatever its shape."""
    return sum(abs(curve.itl_s(bucket.running) / bucket.itl_s - 1.0) for bucket in buckets) / len(buckets)


def _weighted_median(weighted: Sequence[tuple[float, float]]) -> float:
    """Median of (value, weight); the middle of both where the weights split evenly. Not a number without any."""
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2.0
    summed = 0.0
    for index, (value, weight) in enumerate(ordered):
        summed += weight
        if summed > half or index == len(ordered) - 1:
            return value
        if math.isclose(summed, half):
            return (value + ordered[index + 1][0]) / 2.0
    return math.nan


def _points_text(buckets: Sequence[_Bucket]) -> str:
    """Number and range of the buckets, as `5 points at 2 to 36 running`."""
    low = buckets[0].running
    high = buckets[-1].running
    span = f"{low:.0f} to {high:.0f}" if f"{low:.0f}" != f"{high:.0f}" else f"{low:.0f}"
    return f"{counted(len(buckets), 'point')} at {span} running"
