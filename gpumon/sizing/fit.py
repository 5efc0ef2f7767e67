"""From measured points to lines: ITL, TTFT and p95 over the load, with range and error, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import require_not_negative
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.latency import Curve, Tail, TtftLine
from gpumon.sizing.profile import Point, load_level

_LEAST_BUCKETS: Final = 5
_LEAST_LOADS: Final = 3
"""Loads from which on a line stands on points alone."""
_LEAST_SPREAD: Final = 2.0
"""Highest over lowest load of a fit that stands on points alone."""
_LEAST_TAIL_SPREAD: Final = 1.5
"""The same of the p95: from levels closer than that its slope is noise."""
_LONGEST_S: Final = 3600.0
_LONGEST_TTFT_S: Final = 86400.0
"""A day until the first token is no measurement."""
_MOST: Final = 1e6
_KNEE: Final = 1.05
"""Offered over running: beyond it, requests wait for admission."""
_ONE_CLIENT: Final = 1.0
"""Requests that a client holds open where none can wait for another."""
_FLAT: Final = 0.05
"""A fall over the range by this share of the ITL is noise on a flat line."""
_FALL: Final = 0.75
"""Latencies of the upper half of the loads this far below those of the lower are no noise."""
_HUMP: Final = 1.15
"""Latencies of the fewest sequences this much above those of the most are another regime (idle data-parallel ranks)."""
_WIDEST: Final = 0.9
"""A band is no wider: a latency is above 0."""
_RESIDENT_STEPS: Final = 16
"""Shares that a MoE's fit tries."""


class Fitted(msgspec.Struct, frozen=True):
    """A curve with what it stands on."""

    curve: Curve
    low: float
    """Fewest and most running sequences that it was measured at."""
    high: float
    buckets: int
    r2: float
    """Share of the buckets' variance that the curve explains, 0..1; low on a flat line even where that fits well."""
    band: Band
    """Errors up to 1.5 times the range of loads, at loads that such fits were not shown, or the scatter of its own."""
    anchored: bool
    """The roofline had to help: too few or too similar points for a line."""
    text: str
    """Points that it stands on, for the screen."""


class _Bucket(NamedTuple):
    running: float
    itl_s: float


def fit(
    points: Iterable[Point], *, roof: Curve | None, floor_s: float = 0.0, least_buckets: int = _LEAST_BUCKETS
) -> Fitted | str:
    """The curve through `points`, or why there is none.

    Weighted median per bucket of running, then Theil-Sen over the buckets of ITL/w against b/w, in which a MoE is a
    line too; base at least `floor_s` (half the time to read the weights at the peak bandwidth; per token, so less with
    speculative decoding), slope at least 0. Points past the KV knee stay: they lie on the line over what *runs*.

    Below `least_buckets` buckets (5 for live points; a sweep's few are means over whole runs, 3 do) or a spread of 2
    one load cannot tell base from slope: the roofline `roof` of what was seen is scaled to the median point. The same
    where the ITL falls by no more than noise over a short range does. `roof` gives w; without one it is 1.
    Sizing fact sheet, 1.4. ValueError on a floor that is negative.
    """
    require_not_negative("floor_s", floor_s)
    shape = roof or Curve(1.0, 0.0)
    every = _buckets(points)
    if not every:
        return "no inter-token latency was measured"
    kept = every[_start(every) :]
    if len(kept) >= max(2, least_buckets) and kept[-1].running >= _LEAST_SPREAD * kept[0].running:
        curve = _free(kept, shape, floor_s)
    else:
        curve = f"{_stand(kept)}: too little for a line"
    anchored = isinstance(curve, str) and roof is not None and _is_level(kept)
    if anchored:
        curve = _scaled(kept, shape, floor_s)
    if isinstance(curve, str):
        return curve
    return _fitted(every, kept, curve, anchored=anchored)


def _is_level(buckets: Sequence[_Bucket]) -> bool:
    """Whether the ITL falls by no more than a short range may show by chance: its level still says something."""
    half = len(buckets) // 2
    if not half:
        return True
    low_s = median(_itls_s(buckets[:half]))
    high_s = median(_itls_s(buckets[half:]))
    return high_s >= _FALL * low_s


def _itls_s(buckets: Sequence[_Bucket]) -> list[float]:
    return [bucket.itl_s for bucket in buckets]


def _scaled(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """The shape scaled to the median point."""
    scale = median(bucket.itl_s / shape.itl_s(bucket.running) for bucket in buckets)
    curve = _made(shape, shape.base_s * scale, shape.slope_s * scale)
    if curve.base_s >= floor_s:
        return curve
    return _on_floor(buckets, [(bucket.running, bucket.itl_s) for bucket in buckets], shape, floor_s)


def calibrated_ttft(line: TtftLine | None, points: Sequence[Point]) -> TtftLine | None:
    """The TTFT through the points from below the knee; `line` moved to them where they are too few, itself without.

    From three loads with a spread of 2 on: Theil-Sen over sqrt(b) or over b, whichever is nearer. Points whose offered
    load is more than 5 % above what decodes and computes its prompt have waited for admission and are left out. Each
    counts once: weights are windows of the same engine, and the latency drifts with load rather than time.
    """
    seen = []
    for point in points_below_knee(points):
        if point.ttft_s:
            seen.append((max(1.0, point.running), point.ttft_s))
    if span_a_line(loads_below_knee(points)):
        return _own_line(seen)
    if not seen:
        return line
    if line is None:
        return TtftLine(median(ttft_s for _, ttft_s in seen), 0.0)
    if line.ttft_s(1.0) > 0.0:
        return line.moved_to(seen)
    return line


def _own_line(seen: Sequence[tuple[float, float]]) -> TtftLine:
    """The line through these TTFTs by running sequences: over their root or themselves, whichever is nearer."""
    by_root = []
    for running, ttft_s in seen:
        by_root.append((math.sqrt(running), ttft_s))
    crowd = TtftLine(*_positive_line(by_root))
    fixed_s, growth_s = _positive_line(seen)
    straight = TtftLine(fixed_s, 0.0, growth_s)
    if _ttft_error(straight, seen) < _ttft_error(crowd, seen):
        return straight
    return crowd


def _ttft_error(line: TtftLine, seen: Sequence[tuple[float, float]]) -> float:
    """Median error of a line, as a share."""
    return median(abs(line.ttft_s(running) / ttft_s - 1.0) for running, ttft_s in seen)


def loads_below_knee(points: Sequence[Point]) -> list[int]:
    """Different loads, in running sequences and rising, at which a TTFT from below the knee was measured."""
    return sorted({round(max(1.0, point.running)) for point in points_below_knee(points)})


def span_a_line(loads: Sequence[int]) -> bool:
    """Whether the TTFT at these rising loads makes a line of its own: three of them, the last twice the first."""
    return len(loads) >= _LEAST_LOADS and loads[-1] >= _LEAST_SPREAD * loads[0]


def points_below_knee(points: Sequence[Point]) -> list[Point]:
    """The points with a TTFT from below the knee: what the client holds open really runs, or computes its prompt."""
    alone_s = _ttft_alone_s(points)
    knee = []
    for point in points:
        if _is_below_knee(point, alone_s):
            knee.append(point)
    return knee


def _ttft_alone_s(points: Sequence[Point]) -> float:
    """TTFT of a client that holds one request open: nothing of it is a wait. 0 where no point is of one."""
    alone = []
    for point in points:
        if point.ttft_s and 0.0 < (point.offered or math.inf) <= _ONE_CLIENT:
            alone.append(point.ttft_s)
    return min(alone, default=0.0)


def _is_below_knee(point: Point, alone_s: float) -> bool:
    """Whether no request of a point waits for admission, with prompts that take `alone_s`."""
    if not (point.ttft_s and 0.0 < point.ttft_s < _LONGEST_TTFT_S and 0.0 < point.running < math.inf):
        return False
    if point.offered is None:
        return True
    # Running are those that decode; with short answers to long prompts many more compute their prompt.
    prompts = point.offered * alone_s / point.e2e_s if point.e2e_s else 0.0
    return point.offered <= _KNEE * point.running + prompts


class LatencySample(NamedTuple):
    """Mean and p95 of a latency at one level of load, seconds."""

    running: float
    mean_s: float
    p95_s: float

    @property
    def usable(self) -> bool:
        """Whether all of it is above 0, and p95 is a number."""
        return self.running > 0.0 and self.mean_s > 0.0 and 0.0 < self.p95_s < math.inf


def tail_of(samples: Sequence[LatencySample], mean: Curve | TtftLine | None, otherwise: float | None) -> Tail:
    """The tail from samples: a line over at least three levels, else the median ratio, else `otherwise`, else 1.

    `mean`: the fit of the mean that the line stands beside.
    """
    usable = [sample for sample in samples if sample.usable]
    if not usable:
        return Tail(otherwise or 1.0, otherwise is not None)
    ratios = []
    levels = []
    for sample in usable:
        ratios.append(sample.p95_s / sample.mean_s)
        levels.append((sample.running, sample.p95_s))
    ratio = max(1.0, median(ratios))
    loads = sorted({running for running, _ in levels})
    if mean is None or len(loads) < _LEAST_LOADS or loads[-1] < _LEAST_TAIL_SPREAD * loads[0]:
        return Tail(ratio, known=True)
    base_s, slope_s = _theil_sen(levels)
    return Tail(ratio, True, base_s, slope_s, max(1.0, loads[-1]), _mean_s(mean))


def _mean_s(line: Curve | TtftLine) -> Callable[[float], float]:
    """The mean of a latency by running sequences: an ITL or a TTFT, whichever the line is of."""
    if isinstance(line, Curve):
        return line.itl_s
    return line.ttft_s


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil-Sen: the median of the slopes between all pairs."""
    slopes = []
    for (x1, y1), (x2, y2) in combinations(points, 2):
        if x2 != x1:
            slopes.append((y2 - y1) / (x2 - x1))
    if slopes:
        return median(slopes)
    return 0.0


def _theil_sen(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, that one at least 0."""
    slope = max(0.0, _slope(points))
    return median(y - slope * x for x, y in points), slope


def _positive_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, both at least 0."""
    base, slope = _theil_sen(points)
    if base >= 0.0:
        return (base, slope)
    return (0.0, median(y / x for x, y in points))


def _buckets(points: Iterable[Point]) -> list[_Bucket]:
    """Medians by running, rising. Below 1 the mean is of idle moments: who decodes then decodes alone.

    An hour per token or a million sequences were not measured.
    """
    grouped: dict[int, list[tuple[float, float, int]]] = {}
    for point in points:
        itl_s = point.itl_s
        if itl_s is not None and 0.0 < itl_s < _LONGEST_S and 0.0 < point.running <= _MOST and point.weight > 0:
            running = max(1.0, point.running)
            grouped.setdefault(load_level(running), []).append((running, itl_s, point.weight))
    buckets = []
    for _, group in sorted(grouped.items()):
        loads = []
        latencies = []
        for running, itl_s, weight in group:
            loads.append((running, weight))
            latencies.append((itl_s, weight))
        buckets.append(_Bucket(_median(loads), _median(latencies)))
    return buckets


def _start(buckets: Sequence[_Bucket]) -> int:
    """First bucket of the line: behind a hump at few sequences, which is no line.

    Data-parallel engines decode 3 times slower below one sequence per rank (vLLM #23752). The cut is a fall where the
    medians before and behind differ most; with fewer than three buckets or a spread below 2 behind it, there is none.
    """
    best = _HUMP
    start = 0
    for cut in range(1, len(buckets) - 2):
        if buckets[-1].running < _LEAST_SPREAD * buckets[cut].running:
            break
        if buckets[cut - 1].itl_s <= buckets[cut].itl_s:
            continue
        before = sorted(_itls_s(buckets[:cut]))
        behind = sorted(_itls_s(buckets[cut:]))
        drop = before[(len(before) - 1) // 2] / behind[len(behind) // 2]
        if drop > best:
            best = drop
            start = cut
    return start


def _free(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """The best line; of a MoE with the best share of the base that every step takes, whatever it is routed to.

    Launches and all-reduces take time beside the reads, more of it in one engine than in another.
    """
    line = _line(buckets, shape, floor_s)
    if not shape.experts or shape.resident_ratio == 1.0:
        return line
    best = line
    if isinstance(line, str):
        error = math.inf
    else:
        error = _mean_error(buckets, line)
    for step in range(_RESIDENT_STEPS + 1):
        tried = _line(buckets, msgspec.structs.replace(shape, resident_ratio=step / _RESIDENT_STEPS), floor_s)
        if isinstance(tried, Curve) and _mean_error(buckets, tried) < error:
            best = tried
            error = _mean_error(buckets, tried)
    return best


def _line(buckets: Sequence[_Bucket], shape: Curve, floor_s: float) -> Curve | str:
    """Theil-Sen in the space where every curve of this shape is a line, y = base + slope*x; base by relative error."""
    line = []
    for b in buckets:
        for read in (shape.weight_ratio(b.running),):
            line.append((b.running / read, b.itl_s / read))
    slope_s = _slope(line)
    if slope_s < 0.0:
        if -slope_s * (line[-1][0] - line[0][0]) > _FLAT * median(y for _, y in line):
            return f"ITL falls as running rises ({_stand(buckets)}): something else changed meanwhile"
        slope_s = 0.0
    base_s = _median([(y - slope_s * x, 1.0 / y) for x, y in line])
    if base_s >= floor_s and base_s > 0.0:
        return _made(shape, base_s, slope_s)
    if floor_s <= 0.0:
        return f"ITL grows faster than running ({_stand(buckets)}): no line, and no floor to hold one to"
    return _on_floor(buckets, line, shape, floor_s)


def _on_floor(
    buckets: Sequence[_Bucket], line: Sequence[tuple[float, float]], shape: Curve, floor_s: float
) -> Curve | str:
    slope_s = median((y - floor_s) / x for x, y in line)
    if slope_s > 0.0:
        return _made(shape, floor_s, slope_s)
    return (
        f"ITL {min(_itls_s(buckets)) * 1e3:.1f} ms is less than reading the weights allows "
        f"(base at least {floor_s * 1e3:.1f} ms): model, precision or GPU differ from what is assumed"
    )


def _fitted(every: Sequence[_Bucket], kept: Sequence[_Bucket], curve: Curve, *, anchored: bool) -> Fitted:
    errors = []
    shares = []
    for bucket in kept:
        error = curve.itl_s(bucket.running) - bucket.itl_s
        errors.append(error)
        shares.append(abs(error / bucket.itl_s))
    r2 = _r2(kept, errors)
    scatter = 2.0 * median(shares)
    band = band_of("one load" if anchored else "measured", 1, bool(curve.experts))
    if scatter > band.widest():
        band = Band(-min(scatter, _WIDEST), min(scatter, _WIDEST), 0)
    parts = [f"{'roofline scaled to' if anchored else 'fit of'} {_stand(kept)}"]
    if not anchored:
        parts.append("flat" if curve.slope_s == 0.0 else f"r2 {r2:.2f}")
    if len(kept) < len(every):
        parts.append(f"slower below {kept[0].running:.0f}, left out")
    return Fitted(
        curve=curve,
        low=kept[0].running,
        high=kept[-1].running,
        buckets=len(kept),
        r2=r2,
        band=band,
        anchored=anchored,
        text=", ".join(parts),
    )


def _r2(buckets: Sequence[_Bucket], errors: Sequence[float]) -> float:
    """Share of the variance that a curve with these errors explains; 0 where there is none."""
    latencies = _itls_s(buckets)
    mean = sum(latencies) / len(latencies)
    spread = sum((itl_s - mean) ** 2 for itl_s in latencies)
    if spread <= 0.0:
        return 0.0
    return max(0.0, 1.0 - sum(error**2 for error in errors) / spread)


def _made(shape: Curve, base_s: float, slope_s: float) -> Curve:
    return msgspec.structs.replace(shape, base_s=base_s, slope_s=slope_s)


def _mean_error(buckets: Sequence[_Bucket], curve: Curve) -> float:
    """The mean: of three buckets two lie on every line, so that the median tells no shares apart."""
    return sum(abs(curve.itl_s(bucket.running) / bucket.itl_s - 1.0) for bucket in buckets) / len(buckets)


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Weighted median; the middle of both where the weights split evenly."""
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2.0
    before = 0.0
    for index, (value, weight) in enumerate(ordered):
        before += weight
        if before > half or index == len(ordered) - 1:
            return value
        if math.isclose(before, half):
            return (value + ordered[index + 1][0]) / 2.0
    return math.nan


def _stand(buckets: Sequence[_Bucket]) -> str:
    low = buckets[0].running
    high = buckets[-1].running
    if f"{low:.0f}" != f"{high:.0f}":
        span = f"{low:.0f} to {high:.0f}"
    else:
        span = f"{low:.0f}"
    return f"{len(buckets)} point{'s' if len(buckets) > 1 else ''} at {span} running"
