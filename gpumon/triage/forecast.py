"""Forecasts of what will be full, and when: figures that rise for certain, held against the most that they may be.

A forecast is a note that looks no further ahead than the rise has been seen, and is gone when the rise ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Level, Limit, Team
from gpumon.triage.change import Drift, TimedValue, Trend, drift, trend
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.harm import HOPELESS_S, may_turn_out_offline, offline_flow
from gpumon.triage.hour import SLOT_S
from gpumon.triage.samples import KEPT_S, Recent
from gpumon.triage.sentences import LESS_HOST_MEMORY, MORE_INSTANCES
from gpumon.triage.signals import MINUTE_S, NOW_S, Case, finite
from gpumon.triage.templates import lasting

_SOON: Final = " in about {seconds:lasting} at this rate[{spread=yes} ({low:lasting} to {high:lasting})]"
_LEAST_TAU: Final = 0.8
"""Share of the pairs of values that have to rise more than fall (Kendall's tau). Values without a trend do so by chance
once in 45,000 times where they are 12, in 1,100 where they are 8, and in 120 where they are 6: a minute alone is less
sure, which the interval of its slope has to make good."""
_SIGMAS: Final = 3.0
"""Half width of the interval of the slope, in standard deviations: values that follow each other are alike, which makes
the usual 2 too narrow."""
_STILL_RISING: Final = 0.5
"""Part of the whole slope that the newest third must have: a rise that ends is none."""
_BELOW_LINE: Final = 0.3
"""Part of what it has gained by which a figure may be below its line in the last seconds: further below it has turned,
or levels off."""
_TURNED_SCATTER: Final = 4.0
"""Standard deviations below its line at which a figure has turned: ten seconds scatter more than longer blocks."""
_TURNED_LEAST: Final = 0.2
"""Part of what it has gained by which a figure may always be below its line, however straight that was."""
_TURNED_S: Final = 30.0
"""The same in seconds of its rise, where that is less: what rises in steps is below its line between two of them. Long
windows learn only after minutes that a rise has ended, which the figure itself shows at once."""
_WIDEST: Final = 3.0
"""Times the time that is named up to which the interval may go: beyond it the slope is not known."""
_VARIES: Final = 1.1
"""Times the time that is named, or part of it, that the interval has at least: no rate stays as it is."""
_STRAIGHT: Final = 1.1
"""Largest slope over the smallest of a rise that is a straight line, such as a leak."""
_STRAIGHT_AHEAD: Final = 2.0
"""Times as far as another rise a straight line is carried on."""
_LEAST_GROWTH: Final = 0.05
"""Share of the limit by which a figure must have risen: less says nothing of the rest."""
_OLD_PROGRAM_S: Final = 300.0
"""Seconds after its start in which a program's memory is what it loads."""
_AT_WORK: Final = 0.3
"""Share of time in which a GPU works whose memory may leak; one that only loads does not compute."""
_LEAST_QUEUE: Final = 5.0
"""Requests waiting below which a queue is none that is forecast."""
_SURE_DRIFT: Final = 3.0
"""Standard errors that a queue's drift must be above zero: chance alone gets there once in 700 looks."""
_QUEUE_SIGMAS: Final = 2.0
"""Standard deviations of the time to a queue's limit that its interval has to each side."""
_QUEUE_AHEAD: Final = 3.0
"""Times as far as it has been seen to rise that a queue is carried on: how sure that is its interval tells (chosen)."""
_NO_KV_FORECAST_BESIDE: Final = frozenset({Limit.KV_CACHE_FULL, Limit.SLOWED_DOWN, Limit.KV_TRANSFER})
"""Limits beside which the KV cache is not forecast: it is full, or it fills up to what a slower engine holds at once,
and a rise after a change goes on no longer than a request takes."""
_FULL: Final = 0.98
"""Share of a memory at which it is full: the next allocation of some size fails."""


RISE_KV_USAGE_RATIO: Final = Quantity(
    "rise_kv_usage_ratio",
    "KV cache {value:percent}, {per_min:percent} more a minute, full at {limit:percent}",
    field="kv_usage_ratio",
)
RISE_WAITING: Final = Quantity(
    "rise_waiting",
    (
        "{value:requests} waiting, {per_min:requests} more a minute; {limit:requests} take "
        "{goal_s:latency} at this rate of answers"
    ),
    field="waiting",
)
RISE_WAITING_DEFERRED: Final = Quantity(
    "rise_waiting_deferred",
    "{value:requests} wait for a KV transfer, {per_min:requests} more a minute",
    field="waiting_deferred",
)
RISE_ITL_MEAN_S: Final = Quantity(
    "rise_itl_mean_s",
    "mean ITL {value:latency}, {per_min:latency} more a minute, goal {limit:latency}",
    field="itl_mean_s",
)
RISE_TTFT_S: Final = Quantity(
    "rise_ttft_s",
    "mean TTFT {value:latency}, {per_min:latency} more a minute, goal {limit:latency}",
    field="ttft_s.mean",
)
RISE_VRAM_USED_BYTES: Final = Quantity(
    "rise_vram_used_bytes",
    "VRAM {value:gib}, {per_min:gib} more a minute, full at {limit:gib}",
    field="vram_used_bytes",
)
RISE_MEMORY_USED_BYTES: Final = Quantity(
    "rise_memory_used_bytes",
    "host memory {value:gib}, {per_min:gib} more a minute, full at {limit:gib}",
    field="memory_used_bytes",
)
_RISES: Final = {
    row.field: row
    for row in (
        RISE_KV_USAGE_RATIO,
        RISE_WAITING,
        RISE_WAITING_DEFERRED,
        RISE_ITL_MEAN_S,
        RISE_TTFT_S,
        RISE_VRAM_USED_BYTES,
        RISE_MEMORY_USED_BYTES,
    )
}
"""Sampled field -> evidence of its rise."""
FEWER_AT_ONCE: Final = Remedy("fewer_at_once", "or let fewer requests in at once until then")
LOOK_AT_TRANSFERS: Final = Remedy(
    "look_at_transfers", "look at what sends the KV cache: its load, its link, its failures"
)
RESTART_IN_TIME: Final = Remedy(
    "restart_in_time",
    (
        "restart what grows before that, at a quiet moment, and look for what it keeps (memory of a "
        "step, a cache without a bound)"
    ),
    team=Team.OWNER,
)

KV_FULL_SOON: Final = Cause(
    "kv_full_soon",
    Limit.FORECAST,
    "KV cache full" + _SOON + ": {now:percent} now, {per_min:percent} more a minute",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
QUEUE_LATE_SOON: Final = Cause(
    "queue_late_soon",
    Limit.FORECAST,
    "its queue will take {goal_s:latency}" + _SOON + ": {now:requests} waiting now, {per_min:requests} more a minute",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
KV_TRANSFER_LATE_SOON: Final = Cause(
    "kv_transfer_late_soon",
    Limit.FORECAST,
    (
        "requests will wait {goal_s:latency} for KV transfers"
        + _SOON
        + ": {now:requests} wait now, {per_min:requests} more a minute"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
ITL_GOAL_MISSED_SOON: Final = Cause(
    "itl_goal_missed_soon",
    Limit.FORECAST,
    "mean ITL beyond its goal of {limit:latency}" + _SOON + ": {now:latency} now",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
TTFT_GOAL_MISSED_SOON: Final = Cause(
    "ttft_goal_missed_soon",
    Limit.FORECAST,
    "mean TTFT beyond its goal of {limit:latency}" + _SOON + ": {now:latency} now",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
VRAM_FULL_SOON: Final = Cause(
    "vram_full_soon",
    Limit.FORECAST,
    "VRAM full" + _SOON + ": {now:gib} now, {per_min:gib} more a minute[; {program} holds most]",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
HOST_MEMORY_FULL_SOON: Final = Cause(
    "host_memory_full_soon",
    Limit.FORECAST,
    "host memory full" + _SOON + ": {now:gib} now, {per_min:gib} more a minute",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


class Window(NamedTuple):
    """Time over which a rise is looked for."""

    seconds: float
    points: int
    """Number of medians that its values are reduced to."""
    ahead: float
    """How far a rise in it is carried on, in lengths of the window."""


_WINDOWS: Final = (Window(60.0, 6, 1.0), Window(120.0, 8, 1.0), Window(KEPT_S, 12, 1.0))
"""Windows of the samples of the last minutes, the shortest first: it knows the present rate best."""
LONG_WINDOWS: Final = tuple(Window(seconds, 15, 1.5) for seconds in (300.0, 600.0, 1200.0, 2400.0, 3600.0))
"""Windows of the last hour, for what takes longer."""


class Rise(NamedTuple):
    """A figure on its way to its limit."""

    line: Trend
    expected_s: float
    """Seconds until the limit is reached, at the present rate."""
    low_s: float
    """The limit is reached after at least this, and at most `high_s`, if the rise goes on."""
    high_s: float


def will_be_full(case: Case) -> Finding | None:
    """Rule: something of an engine rises for certain, and reaches its limit soon at the rate of the last minutes."""
    engine = case.serving_engine()
    if engine is None or engine.asleep:
        return None
    return next(_engine_forecasts(case, engine), None)


def _engine_forecasts(case: Case, engine: Engine) -> Iterator[Finding]:
    """Forecasts of an engine: KV cache, queue, goals, KV transfers."""
    may_have_requests = case.mean("running") != 0.0
    if may_have_requests and _NO_KV_FORECAST_BESIDE.isdisjoint(case.found_limits):
        yield from _forecast(case, "kv_usage_ratio", case.thresholds.kv_full_ratio, KV_FULL_SOON)
    yield from _queue_forecast(case, engine)
    if case.goals.token_s:
        yield from _forecast(case, "itl_mean_s", case.goals.token_s, ITL_GOAL_MISSED_SOON)
    if case.goals.ttft_s:
        yield from _forecast(case, "ttft_s.mean", case.goals.ttft_s, TTFT_GOAL_MISSED_SOON)


def _queue_forecast(case: Case, engine: Engine) -> Iterator[Finding]:
    """The forecast of a queue, or of requests that wait for KV transfers, in which the wait will be too long; nothing
    of one that belongs to an offline batch."""
    wait_s = case.goals.ttft_s or HOPELESS_S
    served_per_s = case.mean("requests_per_s", MINUTE_S) or 0.0
    if served_per_s <= 0.0 or (case.mean("waiting") or 0.0) < _LEAST_QUEUE:
        return
    if offline_flow(case, engine) is not None or may_turn_out_offline(case, engine):
        return
    is_deferred = (case.mean("waiting_deferred") or 0.0) >= _LEAST_QUEUE
    field = "waiting_deferred" if is_deferred else "waiting"
    cause = KV_TRANSFER_LATE_SOON if is_deferred else QUEUE_LATE_SOON
    rise = find_queue_rise_to_limit(case.recent, field, wait_s * served_per_s, served_per_s)
    if rise is not None:
        yield _finding(case, field, wait_s * served_per_s, cause, rise, goal_s=wait_s)


def vram_will_be_full(case: Case) -> Finding | None:
    """Rule: the memory of a GPU at work grows for certain, and is full soon at that rate."""
    gpu = case.gpu
    total = finite(gpu.reading.vram_total_bytes) if gpu is not None else None
    if gpu is None or not total or not _has_settled(case, gpu):
        return None
    finding = next(_forecast(case, "vram_used_bytes", _FULL * total, VRAM_FULL_SOON), None)
    if finding is None:
        return None
    biggest = max(gpu.reading.processes, key=lambda process: finite(process.vram_bytes) or 0.0, default=None)
    if biggest is None:
        return finding
    return finding._replace(parameters=finding.parameters | params(program=f"{biggest.name} (pid {biggest.pid})"))


def _has_settled(case: Case, gpu: Gpu) -> bool:
    """Whether no program on a GPU loads what it needs: all have run for minutes, they work, and engines there serve."""
    for process in gpu.reading.processes:
        if process.started_s and case.frame.wall_s - process.started_s < _OLD_PROGRAM_S:
            return False
    if any(engine.state is not EndpointState.OK for engine in case.engines):
        return False
    return (case.recent.mean("awake", KEPT_S) or 0.0) >= _AT_WORK


def host_memory_will_be_full(case: Case) -> Finding | None:
    """Rule: the memory of the host grows for certain, and is full soon at that rate."""
    total = finite(case.snapshot.host.memory_total_bytes)
    if not total:
        return None
    return next(_forecast(case, "memory_used_bytes", _FULL * total, HOST_MEMORY_FULL_SOON), None)


def _forecast(case: Case, field: str, limit: float, cause: Cause) -> Iterator[Finding]:
    """The forecast of one figure; nothing where it does not rise to its limit for certain."""
    rise = find_rise_to_limit(case.recent, field, limit)
    if rise is not None:
        yield _finding(case, field, limit, cause, rise)


def _finding(case: Case, field: str, limit: float, cause: Cause, rise: Rise, goal_s: float | None = None) -> Finding:
    """The finding on a figure on its way to its limit."""
    parameters = params(
        seconds=rise.expected_s,
        low=rise.low_s,
        high=rise.high_s,
        spread=yes_if(lasting(rise.low_s) != lasting(rise.high_s)),
        now=rise.line.level,
        limit=limit,
        per_min=rise.line.per_s * MINUTE_S,
        goal_s=goal_s,
    )
    source = f"{field}: slope of {rise.line.seen_s:.0f} s"
    evidence = _RISES[field].evidence(rise.line.level, limit, source, parameters=parameters)
    return cause.finding(
        parameters=parameters,
        evidence=(evidence,),
        actions=_ACTIONS.get(cause, ()),
        began_s=case.now_s - rise.line.seen_s,
    )


_ACTIONS: Final[dict[Cause, tuple[Action, ...]]] = {
    KV_FULL_SOON: (MORE_INSTANCES.action(), FEWER_AT_ONCE.action()),
    QUEUE_LATE_SOON: (MORE_INSTANCES.action(),),
    KV_TRANSFER_LATE_SOON: (LOOK_AT_TRANSFERS.action(),),
    VRAM_FULL_SOON: (RESTART_IN_TIME.action(),),
    HOST_MEMORY_FULL_SOON: (LESS_HOST_MEMORY.action(),),
}
"""Cause -> actions before it comes to that."""


def find_rise_to_limit(recent: Recent, field: str, limit: float) -> Rise | None:
    """When a figure reaches its limit; None where it does not rise for certain, is there already, or is far from it."""
    newest = recent.last(field)
    if newest is None or newest >= limit:
        return None
    for values, windows in _pasts(recent, field):
        if not _has_moved(values, limit):
            continue
        for window in windows:
            rise = rise_in(values, window, limit, recent.newest_s)
            if rise is not None and not _has_turned(recent, field, rise.line):
                return rise
    return None


def find_queue_rise_to_limit(recent: Recent, field: str, limit: float, served_per_s: float) -> Rise | None:
    """When a queue reaches its limit, where more comes than goes for certain; None where it does not.

    A queue is what came less what went, both counts of chance, so that it wavers about its line, and the more the
    longer it is watched: its drift tells what no line through its lengths does.
    """
    newest = recent.last(field)
    if newest is None or newest >= limit:
        return None
    for values, windows in _pasts(recent, field):
        for window in windows:
            points = in_blocks(values, window.seconds, window.points)
            if len(points) < window.points:
                continue
            rise = _queue_rise(points, window, limit, served_per_s, recent.newest_s)
            if rise is None or _has_turned(recent, field, rise.line):
                continue
            if not _has_levelled_off(recent, field, rise.line, served_per_s):
                return rise
    return None


def _has_levelled_off(recent: Recent, field: str, line: Trend, served_per_s: float) -> bool:
    """Whether a shorter window shows for certain that a queue rises at less than half of its rate by now: a long one
    shows that ten minutes later, and chance hides it from `_has_turned`."""
    for values, windows in _pasts(recent, field):
        for window in windows:
            if window.seconds >= line.seen_s:
                return False
            points = in_blocks(values, window.seconds, window.points)
            newest = drift(points, served_per_s) if len(points) == window.points else None
            if newest is not None and newest.per_s + _QUEUE_SIGMAS * newest.error_per_s < _STILL_RISING * line.per_s:
                return True
    return False


def _pasts(recent: Recent, field: str) -> Iterator[tuple[list[TimedValue], tuple[Window, ...]]]:
    """The values of the last minutes and of the last hour, with the windows in which a rise of them is looked for."""
    yield recent.values(field, KEPT_S), _WINDOWS
    from_s = recent.window_from_s + SLOT_S
    yield [(at_s, value) for at_s, value in recent.hour.timed_values(field) if at_s >= from_s], LONG_WINDOWS


def _queue_rise(
    points: Sequence[TimedValue], window: Window, limit: float, served_per_s: float, now_s: float
) -> Rise | None:
    """A queue carried on from now to its limit; None where it may as well not rise, rises less now, or is far off."""
    rise = drift(points, served_per_s)
    if rise is None or rise.per_s < _SURE_DRIFT * rise.error_per_s:
        return None
    newest = drift(_newest_third(points), served_per_s)
    if newest is None or newest.per_s + newest.error_per_s < _STILL_RISING * rise.per_s:
        return None
    rise = rise._replace(level=rise.level + rise.per_s * (now_s - points[-1][0]))
    return _queue_carried_on(rise, limit, _QUEUE_AHEAD * window.seconds)


def _queue_carried_on(rise: Drift, limit: float, most_s: float) -> Rise | None:
    """A queue that rises carried on to its limit; None where that is further off than `most_s`, or may be anywhere."""
    expected_s, deviation_s = rise.time_to(limit)
    high_s = max(expected_s * _VARIES, expected_s + _QUEUE_SIGMAS * deviation_s)
    if expected_s > most_s or high_s > _WIDEST * expected_s + NOW_S:
        return None
    low_s = max(0.0, min(expected_s / _VARIES, expected_s - _QUEUE_SIGMAS * deviation_s))
    error_per_s = _QUEUE_SIGMAS * rise.error_per_s
    walk = rise.error_per_s * rise.seen_s  # how far chance alone moves a queue in that time
    line = Trend(rise.level, rise.per_s, rise.per_s - error_per_s, rise.per_s + error_per_s, rise.seen_s, walk)
    return Rise(line, expected_s, low_s, high_s)


def _newest_third(points: Sequence[TimedValue]) -> Sequence[TimedValue]:
    """The newest third of the medians of a window; three at least, as fewer have no trend."""
    return points[-max(3, round(len(points) / 3)) :]


def _has_turned(recent: Recent, field: str, line: Trend) -> bool:
    """Whether a figure has fallen far below its line in the last seconds, or is not known for them: the line is made of
    medians, which show that later."""
    level = recent.mean(field, NOW_S)
    if level is None:
        return True
    gain = line.per_s * line.seen_s
    least = min(_TURNED_LEAST * gain, _TURNED_S * line.per_s)
    room = min(_BELOW_LINE * gain, max(_TURNED_SCATTER * line.scatter, least))
    return level < line.level - room


def _has_moved(values: Sequence[TimedValue], limit: float) -> bool:
    """Whether the values span `_LEAST_GROWTH` of the limit: without that there is no rise, and this is cheap to see."""
    figures = [value for _, value in values]
    return bool(figures) and max(figures) - min(figures) >= _LEAST_GROWTH * limit


def rise_in(values: Sequence[TimedValue], window: Window, limit: float, now_s: float) -> Rise | None:
    """The rise to the limit in one window, carried on from now; None where there is none, or it is too far off."""
    points = in_blocks(values, window.seconds, window.points)
    if len(points) < window.points:
        return None
    gain = points[-1][1] - points[0][1]
    distance = limit - points[-1][1]
    # Twice: the line through all values may be steeper than that from the first to the last.
    if gain < _LEAST_GROWTH * limit or gain <= 0.0 or distance > 2.0 * _STRAIGHT_AHEAD * window.ahead * gain:
        return None
    line = trend(points, _LEAST_TAU, _SIGMAS)
    newest = trend(_newest_third(points), 0.0, 0.0)
    if line is None or newest is None or newest.per_s < _STILL_RISING * line.per_s:
        return None
    line = line._replace(level=line.level + line.per_s * (now_s - points[-1][0]))
    return _carried_on(line, newest.per_s, limit, window.ahead * window.seconds)


def _carried_on(line: Trend, newest_per_s: float, limit: float, most_s: float) -> Rise | None:
    """A line carried on to the limit; None where that is further off than `most_s`."""
    distance = max(0.0, limit - line.level)
    slowest = min(line.low_per_s, newest_per_s)
    fastest = max(line.high_per_s, newest_per_s)
    if slowest * _WIDEST < line.per_s or line.per_s <= 0.0:
        return None
    if fastest <= _STRAIGHT * slowest:
        most_s *= _STRAIGHT_AHEAD
    if distance > most_s * min(line.per_s, newest_per_s):
        return None
    expected_s = distance / line.per_s
    low_s = min(distance / fastest, expected_s / _VARIES)
    high_s = max(distance / slowest, expected_s * _VARIES)
    return Rise(line, expected_s, low_s, high_s)


def in_blocks(values: Sequence[TimedValue], seconds: float, count: int) -> list[TimedValue]:
    """Medians of the last `seconds` in so many parts, each at its middle; without those that have no value."""
    if not values:
        return []
    length_s = seconds / count
    end_s = values[-1][0]
    parts: list[list[float]] = [[] for _ in range(count)]
    for at_s, value in values:
        index = count - 1 - int((end_s - at_s) / length_s)
        if index >= 0:
            parts[index].append(value)
    return [(end_s - seconds + (index + 0.5) * length_s, median(part)) for index, part in enumerate(parts) if part]
