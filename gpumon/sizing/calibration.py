"""Operating points, lengths, pools and limits of running engines, gathered tick by tick."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.ratio import mean_known
from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import Reading, number
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Snapshot, Window, physical_gpus
from gpumon.sizing.peaks import PeakLoad, RecentLoads, credible, in_flight, running_requests
from gpumon.sizing.profile import Observed, Point
from gpumon.sizing.seen_replicas import RestartSettings, SeenReplicas
from gpumon.sizing.traffic_mix import MeanLengths

_WIDEST_BUCKET: Final = 2.0
"""Upper over lower bound of a histogram's bucket above which a quantile in it says too little."""
_LEAST_WINDOW_S: Final = 9.0
"""Shortest window that is a point: gpumon's rates are of 10 s, of less just after a start or a gap."""
_OVERLAP_S: Final = 0.2
"""Polls do not come to the millisecond: two windows may overlap by this much."""
_CLOCK_STEP_S: Final = 1.0
"""A poll this much before the end of the last window says that the clock was set back."""
_STEADY_SPREAD: Final = 2.0
"""Requests by which the running ones of a steady window may differ, however few they are."""
_STEADY_RATIO: Final = 0.5
"""A window is steady where the running requests stay within 2, or within half of their mean: most of a line's error
from averaging is spread^2 / (12 x mean), so 2% of the slope's part at most, 6% across one step of that size."""
_QUANTILES_S: Final = 60.0
"""Seconds that the quantiles of an engine are of."""
_SAME_LOAD: Final = 0.25
"""Share by which the requests that ran in the minute of the quantiles may differ from those of its last window."""
_FREE_KV: Final = 0.8
"""KV usage up to which a queue is not the pool's doing."""
_MOST_TICKS: Final = 64
"""Polls of an engine that are kept: more than a minute of them at one a second."""
MOST_REPLICAS: Final = 64
"""Models or settings remembered, as those of a fleet; the one not seen for longest goes first."""
_RECENT_S: Final = 60.0
"""An engine seen this short a time before the newest one counts as running: not all are scraped at one moment."""
_MOST_ENGINES: Final = 256
"""Engines that are watched, or twice those of a snapshot if that is more; beyond it those that are gone are dropped."""


def tail_ratio(latency: Quantiles) -> float | None:
    """p95 / mean, at least 1; None with few observations or where p95 fell in an open, first or too wide bucket."""
    p95 = number(latency.p95)
    mean = number(latency.mean)
    low = number(latency.p95_low)
    high = number(latency.p95_high)
    if p95 is None or mean is None or low is None or high is None:
        return None
    if not 0.0 < mean < math.inf or not math.isfinite(p95):
        return None
    if low <= 0.0 or high > _WIDEST_BUCKET * low:  # a first bucket has no lower bound, an open one no upper
        return None
    return max(1.0, p95 / mean)


class _Tick(NamedTuple):
    """Figures of an engine at one poll; None where they are not known."""

    time_s: float
    running: float | None
    busy_ratio: float | None
    waiting: float | None
    kv_ratio: float | None


class _SteadyWindow(NamedTuple):
    """A window of an engine in which the number of running requests was steady."""

    window: Window
    end_s: float
    running: float
    """Mean sequences that decoded, all ranks together."""
    itl_s: float


class _LatencyTails(NamedTuple):
    """p95 / mean of the latencies in the last minute; None where it cannot be told."""

    tpot: float | None
    itl: float | None
    ttft: float | None


_NO_TAILS: Final = _LatencyTails(tpot=None, itl=None, ttft=None)


class _LastLengths(NamedTuple):
    """Mean lengths of an engine's requests as last known; None: never known."""

    prompt: float | None = None
    """Tokens."""
    answer: float | None = None
    """Tokens."""
    hit_ratio: float | None = None
    """Share of the prompt tokens that came from the prefix cache."""


class _WatchedEngine:
    """State of one engine from poll to poll."""

    def __init__(self) -> None:
        self.end_s = -math.inf
        """End of the last window that became a point."""
        self.noticed_s = -math.inf
        """When its memory, speculation and command lines were looked at last."""
        self.ticks: deque[_Tick] = deque(maxlen=_MOST_TICKS)
        self.setting: RestartSettings | None = None
        self.replicas: SeenReplicas | None = None
        """Measurements of it and of the others with its setting."""
        self.lengths = _LastLengths()
        """They stay as last known: no request may end for a while."""

    def ticks_since(self, start_s: float) -> list[_Tick]:
        """The ticks from `start_s` on."""
        return [tick for tick in self.ticks if tick.time_s >= start_s]

    def learn_lengths(self, engine: Engine, replicas: SeenReplicas) -> MeanLengths | None:
        """Mean lengths as last known, without a steady window, too; None while no request has ended.

        They are noted in `replicas`.
        """
        load = engine.load
        prompt = _newer(credible(load.prompt_tokens_mean), self.lengths.prompt)
        answer = _newer(credible(load.answer_tokens_mean), self.lengths.answer)
        hit_ratio = self.lengths.hit_ratio
        cached_ratio = credible(load.cached_ratio)
        if cached_ratio is not None and cached_ratio <= 1.0:
            hit_ratio = cached_ratio
        self.lengths = _LastLengths(prompt, answer, hit_ratio)
        if prompt is None or answer is None:
            return None
        replicas.lengths = MeanLengths(prompt, answer, hit_ratio)
        return replicas.lengths


def _newer(now: float | None, before: float | None) -> float | None:
    """The present figure, or where it is not known the one before."""
    if now is None:
        return before
    return now


class Calibration:
    """Gathers one point per engine and steady window, for each traffic mix on its own. Knows no clock, does no I/O.

    A window is that of the engine's rates (10 s, longer where it is polled seldom), and disjoint from the last one. It
    counts where at least one request per rank ran at all its polls and their number was steady; a reset, a restart, a
    stale or unreachable engine gives none, as the rates are missing then. Engines of one model with the same settings
    pool their points. What an engine showed stays after it is gone, with the time when it was last seen.

    Memory: 140 kB per full mix, 3 mixes per model and setting, 64 of those: 27 MB at the very most, some 30 kB usually.
    """

    def __init__(self) -> None:
        self._watched: dict[str, _WatchedEngine] = {}
        """Key of an engine -> its state."""
        self._seen: list[SeenReplicas] = []
        """Replicas of all models and settings, those that are gone included."""
        self._peaks = RecentLoads()
        self._running = RecentLoads()

    def take(self, snapshot: Snapshot) -> None:
        """Take one tick in; ticks come in order. Costs some microseconds per engine, more once in a window."""
        self._peaks.take(snapshot.wall_s, in_flight(snapshot))
        self._running.take(snapshot.wall_s, running_requests(snapshot))
        # A part of a GPU (MIG) has the index of the whole.
        whole_gpus = {gpu.reading.index: gpu for gpu in physical_gpus(snapshot.gpus)}
        for engine in snapshot.engines:
            watched = self._watched.get(engine.key)
            if watched is None:
                watched = _WatchedEngine()
                self._watched[engine.key] = watched
            if not _is_instance(engine):
                watched.ticks.clear()
                continue
            gpus = [whole_gpus[index] for index in engine.hardware.gpus if index in whole_gpus]
            self._take_engine(watched, engine, gpus, snapshot)
        if len(self._watched) > max(_MOST_ENGINES, 2 * len(snapshot.engines)):
            self._forget_others(snapshot.engines)

    def _forget_others(self, engines: Sequence[Engine]) -> None:
        """Keep the state of these engines alone."""
        watched = {engine.key: self._watched[engine.key] for engine in engines if engine.key in self._watched}
        self._watched = watched

    def observed(self) -> tuple[Observed, ...]:
        """One profile per model and settings, with the points of the traffic mix that it has now.

        What runs now comes first, of that what is known to be on GPUs, then what most engines have: which of them was
        polled last says nothing. What is gone follows, the newest first.
        """
        newest_s = max((replicas.last_s for replicas in self._seen), default=0.0)
        engine_counts = Counter(id(watched.replicas) for watched in self._watched.values())

        def order_key(replicas: SeenReplicas) -> tuple[float, bool, int]:
            age_s = newest_s - replicas.last_s
            count = engine_counts[id(replicas)]
            gone_s = 0.0 if count > 0 and age_s <= _RECENT_S else _RECENT_S + age_s
            return gone_s, not replicas.setting.gpus, -count

        return tuple(replicas.observed() for replicas in sorted(self._seen, key=order_key))

    def in_flight(self) -> dict[str, PeakLoad]:
        """Served model name -> requests in flight over the last minutes, running and waiting, all its engines."""
        return self._peaks.peak_loads()

    def minute_running(self) -> dict[str, float]:
        """Served model name -> mean running requests of the last minute, of models that were seen for so long."""
        return self._running.minute_means()

    def load_steps(self) -> dict[str, list[tuple[float, float]]]:
        """Served model name -> (Unix time, requests in flight) of the steps of 10 s of the last minutes."""
        return self._peaks.step_means()

    def _take_engine(self, watched: _WatchedEngine, engine: Engine, gpus: list[Gpu], snapshot: Snapshot) -> None:
        """Take in one engine of a tick: what it shows, and its window where that is a new steady one."""
        time_s = snapshot.wall_s - engine.age_s
        if time_s < watched.end_s - _CLOCK_STEP_S:  # the clock was set back
            watched.end_s = -math.inf
            watched.noticed_s = -math.inf
        watched.ticks.append(
            _Tick(
                time_s=time_s,
                running=credible(engine.load.running),
                busy_ratio=_mean_busy_ratio(engine, gpus),
                waiting=credible(engine.load.waiting),
                kv_ratio=credible(engine.load.kv_usage_ratio),
            )
        )
        replicas = self._replicas_of(watched, engine, gpus)
        replicas.last_s = max(replicas.last_s, time_s)
        replicas.time = snapshot.time
        replicas.names[engine.key] = engine.name
        if time_s - watched.noticed_s >= _LEAST_WINDOW_S:
            watched.noticed_s = time_s
            replicas.notice(engine, gpus)
            watched.learn_lengths(engine, replicas)
        steady = _steady_window(engine, time_s, watched.end_s)
        if steady is None:
            return
        # The mix is known once a request has ended.
        traffic = watched.learn_lengths(engine, replicas)
        if traffic is not None:
            _add_window(watched, engine, steady, replicas, traffic)

    def _replicas_of(self, watched: _WatchedEngine, engine: Engine, gpus: list[Gpu]) -> SeenReplicas:
        """The replicas that the engine's points belong to: they start anew where model, hardware, precision, version
        or KV pool changed."""
        setting = RestartSettings.of(engine, gpus)
        before = watched.replicas
        if before is not None and setting == watched.setting:
            return before
        replicas = self._find_replicas(setting, before)
        if before is not None and before is not replicas:
            if len(before.names) > 1:  # the name of the last one stays with what it showed
                before.names.pop(engine.key, None)
            watched.lengths = _LastLengths()
        replicas.setting = replicas.setting.completed_by(setting)
        watched.setting = setting
        watched.replicas = replicas
        return replicas

    def _find_replicas(self, setting: RestartSettings, before: SeenReplicas | None) -> SeenReplicas:
        """The replicas that have this setting, those of before first; new ones where there are none."""
        if before is not None and before.setting.agrees_with(setting):
            return before
        for replicas in self._seen:
            if replicas.setting.agrees_with(setting):
                return replicas
        new = SeenReplicas(setting)
        self._seen.append(new)
        if len(self._seen) > MOST_REPLICAS:
            self._seen.remove(min(self._seen[:-1], key=lambda replicas: replicas.last_s))
        return new


def _steady_window(engine: Engine, time_s: float, last_end_s: float) -> _SteadyWindow | None:
    """The window of an engine that ends at `time_s`; None where it is none, was not steady, or begins before the last
    one ended."""
    window = engine.load.window
    if window is None or window.seconds < _LEAST_WINDOW_S or time_s - window.seconds < last_end_s - _OVERLAP_S:
        return None
    running = _steady_running(engine, window)
    itl_s = credible(engine.latency.itl_mean_s)
    if itl_s is None and window.token_s is not None:
        itl_s = credible(window.token_s)
    if running is None or not itl_s:
        return None
    return _SteadyWindow(window, time_s, running, itl_s)


def _add_window(
    watched: _WatchedEngine, engine: Engine, steady: _SteadyWindow, replicas: SeenReplicas, traffic: MeanLengths
) -> None:
    """Add a steady window to the points of its mix."""
    window = steady.window
    ticks = watched.ticks_since(steady.end_s - window.seconds)
    # The tail of the TTFT is known only where no request queued.
    ttft_tail = None if any(tick.waiting for tick in ticks) else tail_ratio(engine.latency.ttft_s)
    tails = _LatencyTails(tail_ratio(engine.latency.tpot_s), tail_ratio(engine.latency.itl_s), ttft_tail)
    requests_per_minute = 60.0 * (credible(engine.rates.requests_per_s) or 0.0)
    mix = replicas.select_mix(traffic, requests_per_minute)
    mix.add(steady.end_s, _point_of(watched, engine, steady, ticks, tails), traffic)
    if tails.tpot:
        mix.tpot_tails.append(tails.tpot)
    if tails.itl:
        mix.itl_tails.append(tails.itl)
    if tails.ttft:
        mix.ttft_tails.append(tails.ttft)
    # Requests waited all the time, the KV pool had room, and not one more was let in: the engine's own limit.
    limited = _always_waited(ticks) and window.running_least == window.running_most
    replicas.note_running(window.running_most / engine.hardware.ranks, limited=limited)
    watched.end_s = steady.end_s


def _point_of(
    watched: _WatchedEngine, engine: Engine, steady: _SteadyWindow, ticks: Sequence[_Tick], tails: _LatencyTails
) -> Point:
    """The operating point of one data-parallel rank in a steady window, with p95 where the minute had the same load."""
    ranks = engine.hardware.ranks
    if not _is_same_load(watched, engine, steady):
        tails = _NO_TAILS
    ttft_s = credible(steady.window.first_token_s) if steady.window.first_token_s is not None else None
    return Point(
        running=steady.running / ranks,
        itl_s=steady.itl_s,
        ttft_s=ttft_s,
        tpot_p95_s=_p95_s(steady.itl_s, tails.tpot),
        itl_p95_s=_p95_s(steady.itl_s, tails.itl),
        ttft_p95_s=_p95_s(ttft_s, tails.ttft),
        tokens_per_s=_per_rank(engine.rates.decode_tokens_per_s, ranks),
        requests_per_s=_per_rank(engine.rates.requests_per_s, ranks),
        power_w=_per_rank(engine.hardware.power_w, ranks),
        busy_ratio=mean_known([tick.busy_ratio for tick in ticks]),
    )


def _p95_s(mean_s: float | None, tail: float | None) -> float | None:
    """p95 by the mean of a window and the tail of the minute; None where one of them is not known."""
    if not mean_s or not tail:
        return None
    return mean_s * tail


def _is_same_load(watched: _WatchedEngine, engine: Engine, steady: _SteadyWindow) -> bool:
    """Whether as many ran in the minute before the end of a window, which the quantiles are of, as in the window."""
    # The gauge in both where it is known: `steady.running` may be of the decoding requests alone.
    in_window = credible(engine.load.running_mean) or steady.running
    in_minute = mean_known([tick.running for tick in watched.ticks_since(steady.end_s - _QUANTILES_S)])
    if in_minute is None:
        return False
    return abs(in_minute - in_window) <= max(_STEADY_SPREAD / 2, _SAME_LOAD * in_window)


def _always_waited(ticks: Sequence[_Tick]) -> bool:
    """Whether requests waited at each tick, though the KV pool had room; False where its use is not known."""
    return bool(ticks) and all(
        tick.waiting and tick.kv_ratio is not None and tick.kv_ratio < _FREE_KV for tick in ticks
    )


def _is_instance(engine: Engine) -> bool:
    """Whether the engine is an instance with figures. A frontend is none: it shows those of nobody knows how many."""
    return (
        engine.state is EndpointState.OK
        and engine.phase is Phase.INFERENCE
        and engine.kind not in FRONTENDS
        and bool(engine.model)
        and engine.hardware.ranks > 0
        and credible(engine.load.running) is not None
        and math.isfinite(engine.age_s)
    )


def _steady_running(engine: Engine, window: Window) -> float | None:
    """Mean sequences that decoded in a steady window, all ranks together; None where it was not steady.

    Time between tokens / window where the engine has a histogram of it, else the mean of the gauge: that one is read at
    five or six moments only, and counts requests in their prefill, too.
    """
    least_running = credible(window.running_least)
    most_running = credible(window.running_most)
    mean_running = credible(engine.load.running_mean)
    if mean_running is None or least_running is None or most_running is None:
        return None
    if least_running < max(1, engine.hardware.ranks):
        return None
    if most_running - least_running > max(_STEADY_SPREAD, _STEADY_RATIO * mean_running):
        return None
    if window.decoding_mean is None:
        return mean_running
    return credible(window.decoding_mean) or mean_running


def _mean_busy_ratio(engine: Engine, gpus: list[Gpu]) -> float | None:
    """Mean busy share of an engine's GPUs; None where it is not known of one, or one is shared with another engine:
    whose work it is, is not known."""
    ratios = []
    for gpu in gpus:
        ratio = credible(gpu.reading.busy_ratio)
        if len(gpu.engines) < 2 and ratio is not None and ratio <= 1.0:
            ratios.append(ratio)
    if ratios and len(ratios) == len(gpus) == len(engine.hardware.gpus):
        return sum(ratios) / len(ratios)
    return None


def _per_rank(reading: Reading, ranks: int) -> float | None:
    """The share of one data-parallel rank in a sum over all; None where that is not known."""
    value = credible(reading)
    if value is None:
        return None
    return value / ranks
