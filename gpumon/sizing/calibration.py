"""Operating points, lengths, pools and limits of running engines, gathered tick by tick."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import mean_known
from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, number
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Snapshot, Window
from gpumon.sizing.length_tail import Lengths, LengthShare, problem_of
from gpumon.sizing.peaks import PeakLoad, RecentLoads, credible, in_flight
from gpumon.sizing.profile import MOST_POINTS, Observed, Origin, Point, load_level, merge_points

MOST_WINDOWS: Final = 8
"""Windows kept of one bucket; the oldest goes first."""
_MOST_TAILS: Final = 16
"""Ratios of p95 to the mean that are kept of one mix; the oldest goes first."""
_KEPT_S: Final = 4 * 3600.0
"""Windows this much older than the newest one of their mix are dropped: drivers, clocks and neighbours change."""
_SAME_FACTOR: Final = 1.5
"""Mean lengths within this factor are one mix."""
_WIDEST_BUCKET: Final = 2.0
"""Upper over lower bound of a histogram's bucket above which a quantile in it says too little."""
_STEADY_AFTER: Final = 20
"""Windows after which a mix's mean lengths move by no more than a twentieth of the difference."""
_ROUNDING_TOKENS: Final = 16.0
"""Added to the computed tokens of two prompts before these are compared: a prefix cache hits whole blocks, so that a
few tokens more or less say nothing."""
_MOST_MIXES: Final = 3
"""Mixes that are kept of one instance; the one not met for longest goes first."""
_POOL_TOLERANCE: Final = 0.1
"""KV pools of replicas differ by what else lay in memory when each started; by more than this it is another setting."""
_MOST_TOKENS_PER_STEP: Final = 64.0
"""Tokens per step and sequence beyond which nothing that an engine says is believed."""
_MAX_NUM_SEQS: Final = re.compile(r"--max[-_]num[-_]seqs[= ](\d{1,6})\b")
"""The option of a command line that limits the sequences of an engine."""
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
from averaging is spread^2 / (12 x mean), so 2 % of the slope's part at most, 6 % across one step of that size."""
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


class MeanLengths(NamedTuple):
    """Mean lengths of the requests of a mix."""

    prompt_tokens: float
    """Cached ones included."""
    answer_tokens: float
    hit_ratio: float | None
    """Share of the prompt's tokens that came from the prefix cache; None: not known."""

    def distance(self, other: MeanLengths) -> float:
        """Largest logarithm of a ratio between the two: of prompts, of computed prompts, of answers."""
        pairs = zip(self._compared_tokens(), other._compared_tokens(), strict=True)
        return max(abs(math.log(ours / theirs)) for ours, theirs in pairs)

    def moved_towards(self, target: MeanLengths, share: float) -> MeanLengths:
        """This one moved by a share of the way to another."""
        prompt = self.prompt_tokens + share * (target.prompt_tokens - self.prompt_tokens)
        answer = self.answer_tokens + share * (target.answer_tokens - self.answer_tokens)
        hit = self.hit_ratio
        if hit is None:
            hit = target.hit_ratio
        elif target.hit_ratio is not None:
            hit += share * (target.hit_ratio - hit)
        return MeanLengths(prompt, answer, hit)

    def _compared_tokens(self) -> tuple[float, float, float]:
        """Tokens of the prompt, of its computed part and of the answer; never 0, so that they have a logarithm."""
        computed = self.prompt_tokens * (1.0 - (self.hit_ratio or 0.0))
        return self.prompt_tokens + 1.0, computed + _ROUNDING_TOKENS, self.answer_tokens + 1.0


class MixPoints:
    """Windows of one traffic mix by load level. At most 64 levels of 8 windows (140 kB), of the last 4 hours."""

    def __init__(self, traffic: MeanLengths) -> None:
        self.traffic = traffic
        self.last_s = -math.inf
        """End of the newest window."""
        self.itl_tails: deque[float] = deque(maxlen=_MOST_TAILS)
        """p95 / mean of the ITL in the last windows, where it can be told."""
        self.ttft_tails: deque[float] = deque(maxlen=_MOST_TAILS)
        """p95 / mean of the TTFT in the last windows without a queue, where it can be told."""
        self._window_count = 0
        self._buckets: dict[int, deque[tuple[float, Point]]] = {}
        """Load level -> (end of the window, its point), the newest last."""
        self._points: tuple[Point, ...] | None = ()
        """Points of the buckets; None: they have to be merged anew."""

    def covers(self, traffic: MeanLengths, requests: float) -> bool:
        """Whether `traffic`, the mean of so many requests, is this mix: a mean of few is itself uncertain."""
        return self.traffic.distance(traffic) <= math.log(_SAME_FACTOR) + 1.0 / math.sqrt(max(requests, 1.0))

    def add(self, time_s: float, point: Point, traffic: MeanLengths) -> None:
        """Take one window in; the mix's lengths follow. Too old windows go, and of too many buckets the stalest."""
        self._window_count += 1
        self.traffic = self.traffic.moved_towards(traffic, 1.0 / min(self._window_count, _STEADY_AFTER))
        self.last_s = max(self.last_s, time_s)
        bucket = self._buckets.setdefault(load_level(point.running), deque(maxlen=MOST_WINDOWS))
        bucket.append((time_s, point))
        self._drop_old_windows()
        while len(self._buckets) > MOST_POINTS:
            del self._buckets[min(self._buckets, key=lambda level: self._buckets[level][-1][0])]
        self._points = None

    def _drop_old_windows(self) -> None:
        """Drop the windows that are hours older than the newest one, and buckets without any left."""
        for level, windows in list(self._buckets.items()):
            while windows and windows[0][0] < self.last_s - _KEPT_S:
                windows.popleft()
            if not windows:
                del self._buckets[level]

    def points(self) -> tuple[Point, ...]:
        """A point per bucket by rising load: medians of its windows, with their number as weight."""
        if self._points is None:
            points = []
            for _, windows in sorted(self._buckets.items()):
                points.append(merge_points([point for _, point in windows]))
            self._points = tuple(points)
        return self._points


_LengthSteps = tuple[tuple[float, float], ...]
"""(upper bound of a length in tokens, share of the requests that are at most so long), by rising bound."""


class LengthMeans:
    """A histogram of lengths over some minutes: each one that is taken in moves its shares towards its own."""

    def __init__(self) -> None:
        self._steps: _LengthSteps = ()
        self._taken = 0

    def take(self, steps: _LengthSteps) -> None:
        """Take in the histogram of the last minute. Other bounds than before are another engine's: all starts anew."""
        if not steps or problem_of(_length_shares(steps)):
            return
        if _bounds(steps) != _bounds(self._steps):
            self._steps = steps
            self._taken = 1
            return
        self._taken = min(self._taken + 1, _STEADY_AFTER)
        mean = []
        for (bound, before), (_, now) in zip(self._steps, steps, strict=True):
            mean.append((bound, before + (now - before) / self._taken))
        self._steps = tuple(mean)

    def shares(self) -> tuple[LengthShare, ...]:
        """The histogram without the steps that no request is in, but for the edges of others."""
        edges = []
        last = len(self._steps) - 1
        for index, (bound, share) in enumerate(self._steps):
            before = self._steps[index - 1][1] if index else 0.0
            after = self._steps[index + 1][1] if index < last else share
            if share > before or after > share:
                edges.append((bound, min(share, 1.0)))
        return _length_shares(edges)


def _bounds(steps: _LengthSteps) -> list[float]:
    return [bound for bound, _ in steps]


def _length_shares(steps: Iterable[tuple[float, float]]) -> tuple[LengthShare, ...]:
    return tuple(LengthShare(bound, share) for bound, share in steps)


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


class RestartSettings(msgspec.Struct, frozen=True):
    """Settings that a restart may change; empty or 0 is not known (yet)."""

    model: str
    gpu: str
    """Catalogue name."""
    gpus: int
    """GPUs of one instance."""
    tp: int
    weight_precision: str
    kv_precision: str
    tool: str
    """Engine and version."""
    pool_tokens: float
    """Tokens of the KV pool of one instance."""

    @classmethod
    def of(cls, engine: Engine, gpus: list[Gpu]) -> RestartSettings:
        """The settings as an engine, and the GPUs that it runs on here, show them."""
        hardware = engine.hardware
        types = {gpu.gpu_type for gpu in gpus} or {hardware.gpu_type}
        count = credible(hardware.gpu_count)
        pool = credible(engine.load.kv_pool_tokens)
        return cls(
            model=engine.model,
            gpu=types.pop() if len(types) == 1 else "",
            gpus=round(count / hardware.ranks) if count is not None else 0,
            tp=hardware.tp,
            weight_precision=engine.dimensions.weight_precision,
            kv_precision=engine.dimensions.kv_precision,
            tool=" ".join(word for word in (engine.kind.value, engine.version) if word),
            pool_tokens=pool / hardware.ranks if pool is not None else 0.0,
        )

    def agrees_with(self, other: RestartSettings) -> bool:
        """Whether nothing that both know differs."""
        smaller, larger = sorted((self.pool_tokens, other.pool_tokens))
        if smaller and larger > smaller * (1.0 + _POOL_TOLERANCE):
            return False
        for name in ("model", "gpu", "gpus", "tp", "weight_precision", "kv_precision"):
            ours = getattr(self, name)
            theirs = getattr(other, name)
            if ours and theirs and ours != theirs:
                return False
        # An engine whose version is not known agrees with any version of it; the space keeps 0.1 apart from 0.10.
        return f"{self.tool} ".startswith(f"{other.tool} ") or f"{other.tool} ".startswith(f"{self.tool} ")

    def completed_by(self, other: RestartSettings) -> RestartSettings:
        """These settings, with what only the other ones know."""
        known = {}
        for name in self.__struct_fields__:
            known[name] = getattr(self, name) or getattr(other, name)
        return RestartSettings(**{**known, "tool": max(self.tool, other.tool, key=len)})


class SeenInstances:
    """Measurements of an instance with one setting, on all engines (replicas) that have it."""

    def __init__(self, setting: RestartSettings) -> None:
        self.setting = setting
        self.names: dict[str, str] = {}
        """URL -> name of each engine."""
        self.last_s = -math.inf
        """Time at which one of them was last seen, in seconds."""
        self.time = ""
        """When one of them was last seen (RFC 3339)."""
        self.lengths: MeanLengths | None = None
        """Lengths of the requests that ended last on one of them: known before there is a point."""
        self._mixes: list[MixPoints] = []
        self._current: MixPoints | None = None
        self._memory_bytes: float | None = None
        self._tokens_per_step: float | None = None
        self._drafted_per_step: float | None = None
        self._prompts = LengthMeans()
        self._answers = LengthMeans()
        self._command_max_num_seqs: int | None = None
        """max_num_seqs as the command line says."""
        self._plateau: float | None = None
        """Running requests at which an instance let no more in; None where none was seen to stop."""
        self._most_running = 0.0

    def notice(self, engine: Engine, gpus: list[Gpu]) -> None:
        """Look at its memory, its speculation, the spread of its lengths and its processes' command lines."""
        memory_bytes = _engine_memory_bytes(engine, gpus)
        if memory_bytes is not None:
            self._memory_bytes = memory_bytes / engine.hardware.ranks
        self._notice_speculation(engine)
        if engine.load.window is not None:
            self._prompts.take(engine.load.window.prompt_lengths)
            self._answers.take(engine.load.window.answer_lengths)
        for gpu in gpus:
            for process in gpu.processes:
                if process.engine == engine.name:
                    self._notice_command(process.command)

    def _notice_command(self, command: str) -> None:
        """Take max_num_seqs from a command line that names it."""
        option = _MAX_NUM_SEQS.search(command)
        if option is not None:
            self._command_max_num_seqs = int(option[1])

    def _notice_speculation(self, engine: Engine) -> None:
        """Take the tokens that a step yields, and those that it drafts: the accepted ones over their share."""
        per_step = number(engine.rates.tokens_per_step)
        if per_step is None or not 1.0 <= per_step <= _MOST_TOKENS_PER_STEP:
            return
        self._tokens_per_step = per_step
        accepted_ratio = number(engine.rates.acceptance_ratio)
        if accepted_ratio is not None and 0.0 < accepted_ratio <= 1.0:
            self._drafted_per_step = min((per_step - 1.0) / accepted_ratio, _MOST_TOKENS_PER_STEP - 1.0)

    def select_mix(self, traffic: MeanLengths, requests: float) -> MixPoints:
        """The mix that `traffic`, a mean of so many requests, belongs to; it becomes the current one.

        The current mix is kept while it holds, so that lengths at the edge do not go to and fro.
        """
        candidates = sorted(self._mixes, key=lambda mix: (mix is not self._current, mix.traffic.distance(traffic)))
        for mix in candidates:
            if mix.covers(traffic, requests):
                self._current = mix
                return mix
        new = MixPoints(traffic)
        self._mixes.append(new)
        if len(self._mixes) > _MOST_MIXES:
            self._mixes.remove(min(self._mixes[:-1], key=lambda mix: mix.last_s))
        self._current = new
        return new

    def note_running(self, most: float, *, limited: bool) -> None:
        """Note that `most` requests ran at once on an instance: a limit that was seen below was none.

        `limited`: it let no more in while others waited, and had room in its KV pool.
        """
        self._most_running = max(self._most_running, most)
        if limited and most >= self._most_running:
            self._plateau = most
        elif self._plateau is not None and most > self._plateau:
            self._plateau = None

    def observed(self) -> Observed:
        """The profile of the instance, with the points of the current mix."""
        setting = self.setting
        traffic = self.lengths
        points: tuple[Point, ...] = ()
        itl_tail = None
        ttft_tail = None
        mix = self._current
        if mix is not None:
            traffic = mix.traffic
            points = mix.points()
            itl_tail = _median(mix.itl_tails)
            ttft_tail = _median(mix.ttft_tails)
        lengths = Lengths(self._prompts.shares(), self._answers.shares())
        return Observed(
            origin=Origin.LIVE,
            name=_shown_name(sorted(self.names.values())),
            model=setting.model,
            points=points,
            time=self.time,
            tool=setting.tool,
            gpu=setting.gpu,
            gpus=setting.gpus,
            tp=setting.tp,
            weight_precision=setting.weight_precision,
            kv_precision=setting.kv_precision,
            prompt_tokens=traffic.prompt_tokens if traffic is not None else None,
            answer_tokens=traffic.answer_tokens if traffic is not None else None,
            prefix_hit_ratio=traffic.hit_ratio if traffic is not None else None,
            lengths=lengths if lengths != Lengths() else None,
            itl_tail_ratio=itl_tail,
            ttft_tail_ratio=ttft_tail,
            kv_pool_tokens=setting.pool_tokens or None,
            max_num_seqs=self._max_num_seqs(),
            memory_bytes=self._memory_bytes,
            busy_ratio=points[-1].busy_ratio if points else None,
            power_w=points[-1].power_w if points else None,
            tokens_per_step=self._tokens_per_step,
            drafted_per_step=self._drafted_per_step,
        )

    def _max_num_seqs(self) -> int | None:
        """Requests that run at once at most: from its command line, else where it was seen to stop."""
        if self._command_max_num_seqs is not None:
            return self._command_max_num_seqs
        if self._plateau:
            return round(self._plateau)
        return None


def _engine_memory_bytes(engine: Engine, gpus: list[Gpu]) -> float | None:
    """GPU memory of an engine's processes; of a GPU that it has to itself, where those are hidden, all that is in use.

    None where it is not known of one of its GPUs, or it has none here.
    """
    if not gpus:
        return None
    total_bytes = 0.0
    for gpu in gpus:
        on_gpu = _memory_on(gpu, engine)
        if isinstance(on_gpu, Missing) and gpu.engines == (engine.name,):
            on_gpu = gpu.vram_used_bytes
        if isinstance(on_gpu, Missing):
            return None
        total_bytes += on_gpu
    return total_bytes


def _memory_on(gpu: Gpu, engine: Engine) -> Reading:
    """Memory of an engine's processes on a GPU; missing where it has none there, or that of one is not known."""
    sizes_bytes = []
    for process in gpu.processes:
        if process.engine == engine.name:
            if isinstance(process.vram_bytes, Missing):
                return process.vram_bytes
            sizes_bytes.append(process.vram_bytes)
    if not sizes_bytes:
        return NOT_EXPOSED
    return sum(sizes_bytes)


class _Tick(NamedTuple):
    """Figures of an engine at one poll; None where they are not known."""

    time_s: float
    running: float | None
    busy_ratio: float | None
    waiting: float | None
    kv_ratio: float | None


class _WatchedEngine:
    """State of one engine from poll to poll."""

    def __init__(self) -> None:
        self.end_s = -math.inf
        """End of the last window that became a point."""
        self.noticed_s = -math.inf
        """When its memory, speculation and command lines were looked at last."""
        self.ticks: deque[_Tick] = deque(maxlen=_MOST_TICKS)
        self.setting: RestartSettings | None = None
        self.replicas: SeenInstances | None = None
        """Measurements of it and of the others with its setting."""
        self.lengths: tuple[float | None, float | None, float | None] = (None, None, None)
        """Last known mean prompt, answer and hit ratio: no request may end for a while."""

    def ticks_since(self, start_s: float) -> list[_Tick]:
        """The ticks from `start_s` on."""
        return [tick for tick in self.ticks if tick.time_s >= start_s]

    def learn_lengths(self, engine: Engine, replicas: SeenInstances) -> MeanLengths | None:
        """Mean lengths as last known, without a steady window, too; None while no request has ended.

        They are noted in `replicas`.
        """
        prompt, answer, hit = self.lengths
        load = engine.load
        prompt = _newer(credible(load.prompt_tokens_mean), prompt)
        answer = _newer(credible(load.answer_tokens_mean), answer)
        cached_ratio = credible(load.cached_ratio)
        if cached_ratio is not None and cached_ratio <= 1.0:
            hit = cached_ratio
        self.lengths = prompt, answer, hit
        if prompt is None or answer is None:
            return None
        replicas.lengths = MeanLengths(prompt, answer, hit)
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
        self._all: list[SeenInstances] = []
        self._peaks = RecentLoads()

    def take(self, snapshot: Snapshot) -> None:
        """Take one tick in; ticks come in order. Costs some microseconds per engine, more once in a window."""
        self._peaks.take(snapshot.wall_s, in_flight(snapshot))
        whole_gpus = {}
        for gpu in snapshot.gpus:
            if not gpu.parent_uuid:  # a part of a GPU (MIG) has the index of the whole
                whole_gpus[gpu.index] = gpu
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
        watched = {}
        for engine in engines:
            if engine.key in self._watched:
                watched[engine.key] = self._watched[engine.key]
        self._watched = watched

    def observed(self) -> tuple[Observed, ...]:
        """One profile per model and settings, with the points of the traffic mix that it has now.

        What runs now comes first, of that what is known to be on GPUs, then what most engines have: which of them was
        polled last says nothing. What is gone follows, the newest first.
        """
        newest_s = max((replicas.last_s for replicas in self._all), default=0.0)
        engine_counts = Counter(id(watched.replicas) for watched in self._watched.values())

        def order_key(replicas: SeenInstances) -> tuple[float, bool, int]:
            age_s = newest_s - replicas.last_s
            count = engine_counts[id(replicas)]
            gone_s = _RECENT_S + age_s
            if count > 0 and age_s <= _RECENT_S:
                gone_s = 0.0
            return gone_s, not replicas.setting.gpus, -count

        return tuple(replicas.observed() for replicas in sorted(self._all, key=order_key))

    def in_flight(self) -> dict[str, PeakLoad]:
        """Served model name -> requests in flight over the last minutes, running and waiting, all its engines."""
        return self._peaks.peak_loads()

    def _take_engine(self, watched: _WatchedEngine, engine: Engine, gpus: list[Gpu], snapshot: Snapshot) -> None:
        """Take in one engine of a tick: what it shows, and its window where that is a new steady one."""
        time_s = snapshot.wall_s - engine.age_s
        if time_s < watched.end_s - _CLOCK_STEP_S:
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
        window = engine.load.window
        if window is None or window.seconds < _LEAST_WINDOW_S or time_s - window.seconds < watched.end_s - _OVERLAP_S:
            return
        running = _steady_running(engine, window)
        itl_s = credible(engine.latency.itl_mean_s)
        if running is None or not itl_s:
            return
        # The mix is known once a request has ended.
        traffic = watched.learn_lengths(engine, replicas)
        if traffic is not None:
            self._add_window(watched, engine, window, replicas, traffic, running=running, itl_s=itl_s, time_s=time_s)

    def _add_window(
        self, watched: _WatchedEngine, engine: Engine, window: Window, replicas: SeenInstances, traffic: MeanLengths,
        *, running: float, itl_s: float, time_s: float,
    ) -> None:  # fmt: skip
        """Add a steady window, which ends at `time_s`, to the points of its mix."""
        ticks = watched.ticks_since(time_s - window.seconds)
        ranks = engine.hardware.ranks
        tails = _latency_tails(engine, ticks)
        if _is_same_load(watched, engine, running, time_s):
            point_tails = tails
        else:
            point_tails = _NO_TAILS
        if window.first_token_s is None:
            ttft_s = None
        else:
            ttft_s = credible(window.first_token_s)
        point = Point(
            running=running / ranks,
            itl_s=itl_s,
            ttft_s=ttft_s,
            itl_p95_s=_p95_s(itl_s, point_tails.itl),
            ttft_p95_s=_p95_s(ttft_s, point_tails.ttft),
            tokens_per_s=_per_rank(engine.rates.decode_tokens_per_s, ranks),
            requests_per_s=_per_rank(engine.rates.requests_per_s, ranks),
            power_w=_per_rank(engine.hardware.power_w, ranks),
            busy_ratio=mean_known([tick.busy_ratio for tick in ticks]),
        )
        requests_per_minute = 60.0 * (credible(engine.rates.requests_per_s) or 0.0)
        mix = replicas.select_mix(traffic, requests_per_minute)
        mix.add(time_s, point, traffic)
        if tails.itl:
            mix.itl_tails.append(tails.itl)
        if tails.ttft:
            mix.ttft_tails.append(tails.ttft)
        # Requests waited all the time, the KV pool had room, and not one more was let in: the engine's own limit.
        limited = _always_waited(ticks) and window.running_least == window.running_most
        replicas.note_running(window.running_most / ranks, limited=limited)
        watched.end_s = time_s

    def _replicas_of(self, watched: _WatchedEngine, engine: Engine, gpus: list[Gpu]) -> SeenInstances:
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
            watched.lengths = (None, None, None)
        replicas.setting = replicas.setting.completed_by(setting)
        watched.setting = setting
        watched.replicas = replicas
        return replicas

    def _find_replicas(self, setting: RestartSettings, before: SeenInstances | None) -> SeenInstances:
        """The replicas that have this setting, those of before first; new ones where there are none."""
        if before is not None and before.setting.agrees_with(setting):
            return before
        for replicas in self._all:
            if replicas.setting.agrees_with(setting):
                return replicas
        new = SeenInstances(setting)
        self._all.append(new)
        if len(self._all) > MOST_REPLICAS:
            self._all.remove(min(self._all[:-1], key=lambda replicas: replicas.last_s))
        return new


class _LatencyTails(NamedTuple):
    """p95 / mean of both latencies in the last minute; None where it cannot be told."""

    itl: float | None
    ttft: float | None


_NO_TAILS: Final = _LatencyTails(None, None)


def _latency_tails(engine: Engine, ticks: Sequence[_Tick]) -> _LatencyTails:
    """The tails of an engine's latencies: that of the TTFT only where no request queued."""
    ttft_tail = None
    if not any(tick.waiting for tick in ticks):
        ttft_tail = tail_ratio(engine.latency.ttft_s)
    return _LatencyTails(tail_ratio(engine.latency.itl_s), ttft_tail)


def _p95_s(mean_s: float | None, tail: float | None) -> float | None:
    """p95 by the mean of a window and the tail of the minute; None where one of them is not known."""
    if not mean_s or not tail:
        return None
    return mean_s * tail


def _is_same_load(watched: _WatchedEngine, engine: Engine, running: float, time_s: float) -> bool:
    """Whether as many ran in the minute before `time_s`, which the quantiles are of, as in the last window."""
    # The gauge in both where it is known: `running` may be of the decoding requests alone.
    in_window = credible(engine.load.running_mean) or running
    in_minute = mean_known([tick.running for tick in watched.ticks_since(time_s - _QUANTILES_S)])
    if in_minute is None:
        return False
    return abs(in_minute - in_window) <= max(_STEADY_SPREAD / 2, _SAME_LOAD * in_window)


def _always_waited(ticks: Sequence[_Tick]) -> bool:
    """Whether requests waited at each tick, though the KV pool had room."""
    return bool(ticks) and all(tick.waiting and (tick.kv_ratio or 0.0) < _FREE_KV for tick in ticks)


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
    least = credible(window.running_least)
    most = credible(window.running_most)
    mean = credible(engine.load.running_mean)
    if mean is None or least is None or most is None or least < max(1, engine.hardware.ranks):
        return None
    if most - least > max(_STEADY_SPREAD, _STEADY_RATIO * mean):
        return None
    if window.decoding_mean is None:
        return mean
    return credible(window.decoding_mean) or mean


def _mean_busy_ratio(engine: Engine, gpus: list[Gpu]) -> float | None:
    """Mean busy share of an engine's GPUs; None where it is not known of one, or one is shared with another engine:
    whose work it is, is not known."""
    ratios = []
    for gpu in gpus:
        ratio = credible(gpu.busy_ratio)
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


def _median(values: Collection[float]) -> float | None:
    if values:
        return median(values)
    return None


def _shown_name(names: Sequence[str]) -> str:
    """The first of the engines, and how many more there are."""
    if len(names) > 1:
        return f"{names[0]} +{len(names) - 1}"
    return "".join(names)
