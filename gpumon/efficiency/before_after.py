"""Two spans held against each other: figures with their noise, what was set differently, and verdicts of each side.

A difference is a change if it is larger than the noise, and than `_LEAST_CHANGE` of the figure. The noise is the mean
of two spreads: of each span the highest less the lowest of the means of its parts. Two quantiles in one bucket of a
histogram are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.costs import SHARED_GPU
from gpumon.efficiency.facts import OPTION, STARTED, differing_facts
from gpumon.efficiency.goodput import share_within
from gpumon.efficiency.quantiles import ENOUGH, histogram_quantile
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.span import SUMS, SpanParts, TakenSpan, ThingKey, ThingSpan, VerdictSpan
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST
from gpumon.figures.latency import LATENCIES
from gpumon.readings import quantities as q
from gpumon.readings.before_after import (
    SAME_LOAD_FACTOR,
    BeforeAfter,
    ComparedSpan,
    FactChange,
    FigureChange,
    Judgement,
    SeenOn,
    ThingChange,
    VerdictChange,
)
from gpumon.readings.format import is_last_bucket, rfc3339
from gpumon.readings.frame import HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.verdict import URGENCY, Kind, Level
from gpumon.specs.units import HOUR_S

LEAST_PARTS: Final = 3
"""Parts of a span that must have a figure for its noise to be known."""
_LEAST_CHANGE: Final = 0.03
"""Share of a figure below which a difference is none, however steady both sides are: windows do not end exactly with
their spans."""
_PER_MILLION_S: Final = 1e6 / HOUR_S
"""Price per hour over tokens per second -> price of a million tokens."""

FigureOfParts = Callable[[SpanParts], Reading]
"""A figure of some parts of a span."""


class FigureSpec(NamedTuple):
    """A figure of a kind of thing."""

    code: str
    """Name of the figure in the answer."""
    unit: str
    """`s`, `w`, `per_s`, ... (docs/compare.md)."""
    better: str
    """`higher`, `lower`, or empty where neither is better."""
    figure: FigureOfParts
    """Works the figure out."""
    bucket: Callable[[SpanParts], tuple[Reading, Reading] | None] | None = None
    """Bounds of the bucket that a quantile lies in; None where it is in none."""
    goal: str = ""
    """Field with the goal of a share within it."""


def _spec(row: Figure, figure: FigureOfParts) -> FigureSpec:
    """A figure of the catalogue, and what works it out."""
    return FigureSpec(row.flat_name, row.unit.code, row.better, figure)


def _mean_spec(row: Figure) -> FigureSpec:
    """Mean of a figure over the moments of a span."""

    def figure(parts: SpanParts) -> Reading:
        return parts.mean(row.flat_name)

    return _spec(row, figure)


def _rate_spec(row: Figure) -> FigureSpec:
    """Growth of a counter per second; of an engine without it, the mean of the rates that it has."""

    def figure(parts: SpanParts) -> Reading:
        rate = parts.rate(row.counts)
        if rate is None:
            return parts.mean(row.flat_name)
        return rate

    return _spec(row, figure)


def _observed_mean_spec(row: Figure, quantity: str) -> FigureSpec:
    """Mean of a histogram's observations; of an engine without one, of the means that it has."""

    def figure(parts: SpanParts) -> Reading:
        observed = parts.histogram(quantity)
        if observed is None and quantity in parts.exported:
            return Missing(Reason.RESET)
        if observed is None:
            return parts.mean(row.flat_name)
        return divide(observed.sum, observed.count, Missing(Reason.IDLE))

    return _spec(row, figure)


def _quantile_spec(row: Figure, quantity: str, share: float) -> FigureSpec:
    """A quantile of all observations of some parts: no mean of quantiles."""

    def figure(parts: SpanParts) -> Reading:
        observed = parts.histogram(quantity)
        if observed is None and quantity in parts.exported:
            return Missing(Reason.RESET)
        if observed is None or not _has_buckets(observed):
            return NOT_EXPOSED
        if not observed.count:
            return Missing(Reason.IDLE)
        if observed.count < ENOUGH:
            return Missing(Reason.FEW)
        value, _, _ = histogram_quantile(observed, share)
        return value

    def bucket(parts: SpanParts) -> tuple[Reading, Reading] | None:
        observed = parts.histogram(quantity)
        if observed is None or observed.count < ENOUGH or not _has_buckets(observed):
            return None
        _, low, high = histogram_quantile(observed, share)
        return low, high

    return _spec(row, figure)._replace(bucket=bucket)


def _within_goal_spec(row: Figure, quantities: Sequence[str], goal: str) -> FigureSpec:
    """Least share of the observations within a goal, by the first of these histograms that there is."""

    def figure(parts: SpanParts) -> Reading:
        goal_s = parts.mean(goal)
        observed = _first_observed(parts, quantities)
        if observed is None or isinstance(goal_s, Missing):
            return NOT_EXPOSED
        return share_within(observed, goal_s).low_ratio

    return _spec(row, figure)._replace(goal=goal)


def _first_observed(parts: SpanParts, quantities: Sequence[str]) -> HistogramReading | None:
    """Observations by the first of these histograms that has some."""
    for quantity in quantities:
        observed = parts.histogram(quantity)
        if observed is not None and _has_buckets(observed) and observed.count > 0.0:
            return observed
    return None


def _has_buckets(observed: HistogramReading) -> bool:
    """Whether a histogram has bounds beside that of all observations, so that it tells more than a mean."""
    return len(observed.bounds) > 1


def _cost_per_million(parts: SpanParts) -> Reading:
    """Price of an hour over the tokens generated in it."""
    return times(divide(parts.mean("cost_per_hour"), _rate_or_mean(parts, "decode_tokens_per_s")), _PER_MILLION_S)


def _tokens_per_joule(parts: SpanParts) -> Reading:
    """Tokens generated per joule of the GPUs, unless these draw some for another engine."""
    at_each_moment = parts.mean("tokens_per_j")
    if at_each_moment == SHARED_GPU:
        return at_each_moment
    return divide(_rate_or_mean(parts, "decode_tokens_per_s"), parts.mean("power_w"))


_COST: Final = _spec(ENGINE["cost_per_million_output_tokens"], _cost_per_million)
_PER_JOULE: Final = _spec(ENGINE["tokens_per_j"], _tokens_per_joule)
_OWN_WAYS: Final = (
    *(_COST, _PER_JOULE),
    _observed_mean_spec(ENGINE["prompt_tokens_mean"], q.PROMPT_LENGTH),
    _observed_mean_spec(ENGINE["answer_tokens_mean"], q.OUTPUT_LENGTH),
    _within_goal_spec(ENGINE["ttft_goal.low_ratio"], (q.TTFT,), "ttft_goal_s"),
    _within_goal_spec(ENGINE["itl_goal.low_ratio"], (q.TPOT, q.ITL), "itl_goal_s"),
    *(_observed_mean_spec(ENGINE[f"{latency.field}.mean"], latency.quantity) for latency in LATENCIES),
    *(
        _quantile_spec(ENGINE[f"{latency.field}.{part}"], latency.quantity, share)
        for latency in LATENCIES
        for part, share in (("p50", 0.5), ("p95", 0.95))
    ),
)
"""Figures of an engine that are neither the rate of a counter nor the mean of a gauge, as far as these are compared."""


def _specs_of_engine() -> Iterator[FigureSpec]:
    """The compared figures of an engine, in their order."""
    own_ways = {spec.code: spec for spec in _OWN_WAYS}
    for row in ENGINE.compared:
        if row.flat_name in own_ways:
            yield own_ways[row.flat_name]
        elif row.counts:
            yield _rate_spec(row)
        else:
            yield _mean_spec(row)


COMPARED_FIGURES: Final[Mapping[Kind, tuple[FigureSpec, ...]]] = {
    Kind.HOST: (
        *(_mean_spec(ENGINE[field]) for field in SUMS),
        _mean_spec(GPU["busy_ratio"]),
        _mean_spec(ENGINE["power_w"]),
        _PER_JOULE,
        _mean_spec(ENGINE["cost_per_hour"]),
        _COST,
        _mean_spec(HOST["cpu_ratio"]),
    ),
    Kind.ENGINE: tuple(_specs_of_engine()),
    Kind.GPU: tuple(_mean_spec(row) for row in GPU.compared),
}
"""Figures by kind of thing, in the order in which they are shown. Load comes first."""
_LOAD_FIELDS: Final = ("requests_per_s", "trained_tokens_per_s", "decode_tokens_per_s")
"""Figures that a load is taken from, the first that both sides know."""
_KINDS: Final = (Kind.HOST, Kind.ENGINE, Kind.GPU)


def before_after(before: TakenSpan, after: TakenSpan) -> BeforeAfter:
    """Both spans as one answer."""
    things = sorted(dict.fromkeys((*before.things, *after.things)), key=lambda thing: _KINDS.index(thing.kind))
    return BeforeAfter(
        before=_compared_span(before),
        after=_compared_span(after),
        simulated=before.simulated or after.simulated,
        things=tuple(_thing_change(thing, before.things.get(thing), after.things.get(thing)) for thing in things),
        verdicts=_verdict_changes(before, after),
    )


def _compared_span(span: TakenSpan) -> ComparedSpan:
    """A span as it is shown."""
    return ComparedSpan(
        begin=rfc3339(span.begin_s),
        end=rfc3339(span.end_s),
        seconds=span.end_s - span.begin_s,
        covered_s=span.covered_s,
        moments=span.moments,
    )


def _thing_change(thing: ThingKey, before: ThingSpan | None, after: ThingSpan | None) -> ThingChange:
    """A thing on both sides, or on the one where it was seen."""
    figures = []
    for spec in COMPARED_FIGURES[thing.kind]:
        figure = figure_change(spec, before, after)
        if not isinstance(figure.before, Missing) or not isinstance(figure.after, Missing):
            figures.append(figure)
    newest = after or before
    assert newest is not None, "a thing of neither side"
    code, load_ratio = load_change(before, after)
    ratio = number(load_ratio)
    return ThingChange(
        kind=thing.kind,
        key=thing.key,
        name=newest.name,
        seen=_seen_on(before, after),
        load_ratio=load_ratio,
        load=code,
        is_comparable=ratio is None or 1.0 / SAME_LOAD_FACTOR <= ratio <= SAME_LOAD_FACTOR,
        figures=tuple(figures),
        changes=fact_changes(before, after),
    )


def _seen_on(before: ThingSpan | None, after: ThingSpan | None) -> SeenOn:
    """The side on which a thing was seen, or both."""
    if before is None:
        return SeenOn.AFTER
    if after is None:
        return SeenOn.BEFORE
    return SeenOn.BOTH


def load_change(before: ThingSpan | None, after: ThingSpan | None) -> tuple[str, Reading]:
    """Figure that the load is taken from, and the load after over that before."""
    if before is None or after is None:
        return "", NOT_EXPOSED
    for code in _LOAD_FIELDS:
        ratio = divide(_load_of(after.whole, code), _load_of(before.whole, code))
        if not isinstance(ratio, Missing):
            return code, ratio
    return "", NOT_EXPOSED


def _load_of(parts: SpanParts, code: str) -> Reading:
    """A load: requests that ended and those that were turned away, or tokens."""
    load = _rate_or_mean(parts, code)
    rejected = number(_rate_or_mean(parts, "rejections_per_s"))
    if code == "requests_per_s" and rejected is not None:
        return plus(load, rejected)
    return load


def _rate_or_mean(parts: SpanParts, code: str) -> Reading:
    """A rate by its counter, where there is one, else its mean."""
    rate = parts.rate(ENGINE[code].counts)
    if rate is None:
        return parts.mean(code)
    return rate


def figure_change(spec: FigureSpec, before: ThingSpan | None, after: ThingSpan | None) -> FigureChange:
    """One figure on both sides, with its noise and whether it changed."""
    value_before = _whole_value(spec, before)
    value_after = _whole_value(spec, after)
    noise = _noise(spec, before, after)
    bucket_before = _bucket(spec, before)
    bucket_after = _bucket(spec, after)
    is_same_bucket = bucket_before is not None and bucket_before == bucket_after
    goal_s: Reading = NOT_EXPOSED
    newest = after or before
    if spec.goal and newest is not None:
        goal_s = newest.whole.mean(spec.goal)
    return FigureChange(
        code=spec.code,
        unit=spec.unit,
        better=spec.better,
        before=value_before,
        after=value_after,
        noise=noise,
        judgement=_judgement(value_before, value_after, noise, is_same_bucket=is_same_bucket),
        goal_s=goal_s,
        before_is_least=bucket_before is not None and is_last_bucket(bucket_before[1]),
        after_is_least=bucket_after is not None and is_last_bucket(bucket_after[1]),
    )


def _whole_value(spec: FigureSpec, span: ThingSpan | None) -> Reading:
    """A figure over a whole span; missing where the thing was not seen in it."""
    if span is None:
        return NOT_EXPOSED
    return spec.figure(span.whole)


def _noise(spec: FigureSpec, before: ThingSpan | None, after: ThingSpan | None) -> Reading:
    """The mean of the two spreads; missing where one is not known."""
    spreads = []
    for span in (before, after):
        if span is None:
            return NOT_EXPOSED
        spread = _spread([spec.figure(part) for part in span.by_part()])
        if isinstance(spread, Missing):
            return spread
        spreads.append(spread)
    return sum(spreads) / len(spreads)


def _spread(means: Iterable[Reading]) -> Reading:
    """The highest less the lowest of the means of the parts."""
    known_means = [mean for mean in means if not isinstance(mean, Missing)]
    if len(known_means) < LEAST_PARTS:
        return Missing(Reason.FEW)
    return max(known_means) - min(known_means)


def _bucket(spec: FigureSpec, span: ThingSpan | None) -> tuple[Reading, Reading] | None:
    """Bounds of the bucket that a quantile of a span lies in: two in one of them are not told apart; None: in none."""
    if spec.bucket is None or span is None:
        return None
    return spec.bucket(span.whole)


def _judgement(before: Reading, after: Reading, noise: Reading, *, is_same_bucket: bool) -> Judgement:
    """Whether a figure changed by more than its noise; not judged where a side or the noise is not known."""
    if isinstance(before, Missing) or isinstance(after, Missing):
        return Judgement.NOT_JUDGED
    if is_same_bucket or before == after:
        return Judgement.WITHIN_NOISE
    if isinstance(noise, Missing):
        return Judgement.NOT_JUDGED
    difference = abs(after - before)
    if difference > noise and difference > _LEAST_CHANGE * max(abs(before), abs(after)):
        return Judgement.CHANGED
    return Judgement.WITHIN_NOISE


def fact_changes(before: ThingSpan | None, after: ThingSpan | None) -> tuple[FactChange, ...]:
    """Settings that differ between the two spans."""
    if before is None or after is None:
        return ()
    changes = []
    for code, old, new in differing_facts(before.facts, after.facts):
        kind, _, name = code.partition(" ")
        is_inside = code in before.mixed or code in after.mixed
        if kind == OPTION:
            code = OPTION
        changes.append(FactChange(code=code, name=name, before=old, after=new, inside=is_inside))
    return tuple(sorted(changes, key=_is_consequence))


def _is_consequence(change: FactChange) -> bool:
    """Whether a change follows from the others, so that it comes last: new options need a restart."""
    return change.code == STARTED


def _verdict_changes(before: TakenSpan, after: TakenSpan) -> tuple[VerdictChange, ...]:
    """Verdicts of both sides, the most urgent first."""
    changes = []
    for key in dict.fromkeys((*before.verdicts, *after.verdicts)):
        old = before.verdicts.get(key)
        new = after.verdicts.get(key)
        newest = new or old
        assert newest is not None, "a verdict of neither side"
        changes.append(
            VerdictChange(
                verdict=newest.verdict,
                level=_most_urgent(old, new),
                before_ratio=_stood_share(old, before.moments),
                after_ratio=_stood_share(new, after.moments),
            )
        )
    return tuple(sorted(changes, key=_urgency_order))


def _stood_share(stood: VerdictSpan | None, moments: int) -> float:
    """Share of a span's moments at which a verdict stood."""
    if stood is None or not moments:
        return 0.0
    return min(1.0, stood.moments / moments)


def _most_urgent(*spans: VerdictSpan | None) -> Level:
    """The most urgent level that a verdict had on the sides where it stood."""
    levels = [span.level for span in spans if span is not None]
    return min(levels, key=URGENCY.__getitem__)


def _urgency_order(change: VerdictChange) -> int:
    """Sort key that puts the most urgent level first."""
    return URGENCY[change.level]
