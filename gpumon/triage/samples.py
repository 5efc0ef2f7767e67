"""The last minutes of every thing's figures: samples of its fields, their means, and since when they stand still."""

from __future__ import annotations

import copy
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.flat import flat_path
from gpumon.readings.frame import GpuProcess, HostReading
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Kind, Limit
from gpumon.triage.arrivals import Arrivals
from gpumon.triage.change import Change
from gpumon.triage.hour import GPU_HOUR_FIELDS, HOST_HOUR_FIELDS, HOUR_FIELDS, Hour
from gpumon.triage.pauses import Pauses
from gpumon.triage.step_time import step_excess
from gpumon.triage.turns import Turn, Turns

KEPT_S: Final = 180.0
"""How far back `Recent` goes."""
MOST_KEPT_SAMPLES: Final = 400
"""Samples of one thing with which those older than `KEPT_S` are dropped, all at once: cheaper than one by one."""
_SAME_START_S: Final = 2.0
"""Seconds by which two readings of the time at which a process began may differ: the boot time is in whole seconds."""
_LEAST_GAP_S: Final = 0.9
"""Two samples of one thing are at least so far apart: a little less than the shortest interval, 1 s."""
PROCESS_CPU: Final = "process_cpu_ratio"
"""Sampled value of an engine's processes: the CPU of the busiest, where 1 is one core."""
STEP_EXCESS: Final = "step_excess"
"""Sampled value of an engine: how many times as long as its bytes take a decode step takes."""
TENSOR_CYCLES: Final = "tensor_cycles_per_s"
"""Sampled value of a GPU: cycles per second in which its tensor cores were active. At a lower clock the same work takes
as many of them, and the share of time stays."""
STALLED: Final = "stalled"
"""Sampled value of an engine, 1 or 0: it had requests and gave no token for some seconds."""
SAMPLED: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: (
        "running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s",
        "preemptions_per_s", "trained_tokens_per_s", "samples_per_s", "mfu_ratio", "mbu_ratio",
        "mfu_prefill_ratio", "ttft_s.mean", "inferences_per_s", "tokens_total.trained", "tokens_total.samples",
        "tokens_total.decode", "tokens_total.prefill_computed", "tokens_total.prefill_cached",
        "requests_per_s", "failures_per_s", "aborts_per_s", "rejections_per_s",
        "refused_per_s", "corrupted_per_s", "seen.requests",
        "acceptance_ratio", "cached_ratio", "itl_mean_s", "lora_waiting",
        "waiting_deferred", "kv_expired_per_s", "backends_ready", "prompt_tokens_mean", "answer_tokens_mean",
    ),
    Kind.GPU: (
        "busy_ratio", "sm_active_ratio", "tensor_active_ratio", "bandwidth_bytes_per_s", "sm_clock_hz",
        "power_w", "vram_used_bytes", "ecc_uncorrected",
        "nvlink_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s",
        "power_limit_w", "pcie_width", "pcie_generation", "nvlinks_active", "pcie_replays", "nvlink_errors",
    ),
    Kind.HOST: (
        "cpu_ratio", "busiest_core_ratio", "iowait_ratio", "io_pressure_ratio", "network_rx_bytes_per_s",
        "cpu_pressure_ratio", "memory_pressure_ratio", "disk_busy_ratio", "disk_write_bytes_per_s", "memory_used_bytes",
    ),
}  # fmt: skip
"""Fields of `Engine`, `Gpu` and `Host` that rules look back at; with a dot those of what stands in a field."""
SHARES: Final = frozenset(
    {"requests_per_s", *(f"{way}_per_s" for way in ("failures", "aborts", "rejections", "refused", "corrupted"))}
)
"""Rates of requests of which rules make shares."""
LEAST_WINDOW_S: Final = 10.0
"""Seconds that a window has at least after a cure: the rates are those of 10 s anyway."""
AWAKE: Final = 0.05
"""Busy share of a GPU above which it does something: the driver's own housekeeping stays below."""
CLOCK_REASONS: Final = (
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
"""Clock event reasons: their mean is the share of time in which they were active."""
_SIGNS: Final = ("awake", *CLOCK_REASONS)
"""Signs of a GPU, sampled as 1 or 0; `awake`: its busy share, or under MIG its SM activity, is above `AWAKE`."""
_TYPES: Final[Mapping[Kind, type[msgspec.Struct]]] = {Kind.ENGINE: Engine, Kind.GPU: Gpu, Kind.HOST: HostReading}
"""Kind of a thing -> its struct in the snapshot."""
_READERS: Final = {
    kind: attrgetter(*(flat_path(_TYPES[kind], field) for field in fields)) for kind, fields in SAMPLED.items()
}
"""Kind -> getter of all its sampled fields at once."""
_OTHER_SAMPLED: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: (PROCESS_CPU, STALLED, STEP_EXCESS),
    Kind.GPU: (*_SIGNS, TENSOR_CYCLES),
    Kind.HOST: (),
}
"""Sampled values of a thing beside its own fields."""


class _ColumnIndex(dict[str, int]):
    """Sampled field -> index of its column."""

    def __missing__(self, field: str) -> int:
        raise KeyError(
            f"{field} is not sampled: SAMPLED (gpumon/triage/samples.py) has the fields that rules look back at"
        )


_COLUMN_INDEX: Final = {
    kind: _ColumnIndex((field, index) for index, field in enumerate((*fields, *_OTHER_SAMPLED[kind])))
    for kind, fields in SAMPLED.items()
}
"""Kind of a thing -> the columns of its samples."""


_HOUR_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: HOUR_FIELDS,
    Kind.GPU: GPU_HOUR_FIELDS,
    Kind.HOST: HOST_HOUR_FIELDS,
}
"""Figures of a thing whose means are kept for an hour."""


class Holder(NamedTuple):
    """A process on an engine's GPUs."""

    started_s: float
    """When it began (Unix time); 0 where that is not known."""
    started_monotonic_s: float
    """The same on the monotonic clock, by which it does not move where the clock is set."""
    type: str
    """As in `GpuProcess`."""

    def is_same(self, other: Holder) -> bool:
        """Whether a process that has its pid is it: no start is known, or both began at the same time."""
        if not self.started_s or not other.started_s:
            return True
        by_wall_s = abs(self.started_s - other.started_s)
        by_monotonic_s = abs(self.started_monotonic_s - other.started_monotonic_s)
        return min(by_wall_s, by_monotonic_s) <= _SAME_START_S


def holder_of(process: GpuProcess, wall_ahead_s: float) -> Holder:
    """A process as it is remembered; `wall_ahead_s` is the wall clock's lead over the monotonic one."""
    return Holder(process.started_s, process.started_s - wall_ahead_s, process.type)


class PaceChange(NamedTuple):
    """A program's change of pace, as it is remembered."""

    program: object
    """Key of the program (`programs.ProgramKey`)."""
    change: Change
    turns: tuple[Turn, ...]
    """Changes of settings and others at that time, the most telling first."""
    step_s: tuple[float, float] | None
    """Seconds of a round before and after, where there was a rhythm."""


class Recent:
    """The last minutes of one thing's sampled fields, on the monotonic clock; and what rules note about the thing from
    one sample to the next."""

    def __init__(self, kind: Kind) -> None:
        self._index = _COLUMN_INDEX[kind]
        """Sampled field -> index of its column."""
        self._read = _READERS[kind]
        self._times: list[float] = []
        """When each sample was taken, oldest first."""
        self._columns: tuple[list[float | None], ...] = tuple([] for _ in self._index)
        """Values of each field, one for each sample; None where it was missing."""
        self._since = [0.0] * len(self._index)
        """When each field took the value that it has."""
        self._previous: list[float | None] = [None] * len(self._index)
        """Value of each field before the one that it has; None where it never had another."""
        self._began_s = math.inf
        """When the first sample was taken."""
        self._window_from_s = -math.inf
        """How far back windows reach at most (monotonic)."""
        self._shares_from_s = -math.inf
        """How far back windows of `SHARES` reach at most (monotonic)."""
        self._means: dict[tuple[str, float], float | None] = {}
        """Means of this sample: several rules ask for the same, and summing anew is a tenth of triage's cost."""
        self.holders: Mapping[int, Holder] = {}
        """Pid -> process on an engine's GPUs when it answered last."""
        self.held_bytes: Mapping[str, float | None] = {}
        """GPU (uuid) that these were on -> memory in use then; None where that was not known."""
        self.refused_s = -math.inf
        """When nothing listened at an engine's address last (monotonic): what answers later is a new process."""
        self.hour = Hour(_HOUR_FIELDS[kind])
        """Means of the last hour."""
        self.turns = Turns()
        """Settings of an engine or a GPU, and when they changed."""
        self.slowdown: tuple[Change, tuple[Turn, ...]] | None = None
        """Since when an engine is slower, and what changed at that time: the samples of then are forgotten."""
        self.pace: PaceChange | None = None
        """Since when the program on a GPU takes longer for the same work."""
        self.found_limits: tuple[Limit, ...] = ()
        """`Case.found_limits` of an engine when its use was judged last."""
        self.pauses = Pauses()
        """Times in which an engine had requests and gave no token."""
        self.arrivals = Arrivals()
        """Requests of an engine that came and went."""
        self.used_s = -math.inf
        """When a program or an engine was last seen on a GPU (monotonic)."""
        self.free_s = -math.inf
        """When a GPU was last seen without a program or an engine (monotonic)."""
        self.program: tuple[object, float] = (None, -math.inf)
        """Key of the program that was seen last to be alone on a GPU (`programs.ProgramKey`), and when (monotonic)."""
        self.program_since_s = -math.inf
        """Since when that program has been the one on the GPU, whatever came beside it for a while (monotonic)."""
        self.spins_since_s = math.inf
        """Since when a GPU has run a kernel that computes nothing (monotonic); infinite: it does not."""
        self.spun_s = -math.inf
        """When a GPU did so last (monotonic)."""
        self.worked_s = -math.inf
        """When a GPU of a program computed or moved memory last (monotonic)."""
        self.whole_s = -math.inf
        """When a GPU was last seen in a state other than those in which nothing can run on it (monotonic)."""
        self.held_s = -math.inf
        """When an engine last said itself that it gives no token on purpose (monotonic)."""
        self.long_prefill_s = -math.inf
        """When an engine was last found at work on a long prompt (monotonic)."""
        self.advised: dict[str, int] = {}
        """Instances of an engine that were advised last, by what is full."""
        self.worked_out: dict[object, Any] = {}
        """Results for this sample that rules share."""

    def add(self, now_s: float, thing: object, process_cpu: float | None = None, *, stalled: bool = False) -> None:
        """Sample the thing, unless it was sampled just before; of an engine also the CPU of its busiest process, and
        whether a stall is suspected."""
        times = self._times
        if times and now_s - times[-1] < _LEAST_GAP_S:
            return
        self._began_s = min(self._began_s, now_s)
        values = self._figures(thing)
        if isinstance(thing, Gpu):
            values += _signs(thing)
        elif isinstance(thing, Engine):
            values += [process_cpu, float(stalled), step_excess(thing)]
        self._append(now_s, values)
        self._means.clear()
        self.worked_out.clear()
        if self.hour.is_due(now_s):
            in_flight = self._in_flight() if isinstance(thing, Engine) else None
            self.hour.add(now_s, self.mean, in_flight)
        if len(times) >= MOST_KEPT_SAMPLES:
            self._forget(now_s - KEPT_S)

    def _figures(self, thing: object) -> list[float | None]:
        """The sampled fields of the thing itself; None for those that are missing."""
        figures = list(self._read(thing))
        for index, figure in enumerate(figures):
            if type(figure) is Missing or not math.isfinite(figure):
                figures[index] = None
        return figures

    def _append(self, now_s: float, values: Sequence[float | None]) -> None:
        """Append a sample, and note which fields have changed."""
        for index, (column, value) in enumerate(zip(self._columns, values, strict=True)):
            if not column or column[-1] != value:
                self._since[index] = now_s
                if column and column[-1] is not None:
                    self._previous[index] = column[-1]
            column.append(value)
        self._times.append(now_s)

    def _forget(self, before_s: float) -> None:
        """Drop the samples before a time (monotonic)."""
        old = bisect_left(self._times, before_s)
        del self._times[:old]
        for column in self._columns:
            del column[:old]

    def _in_flight(self) -> float | None:
        """Requests that run or wait in an engine."""
        running = self.last("running")
        if running is None:
            return None
        return running + (self.last("waiting") or 0.0)

    def since(self, from_s: float) -> Recent:
        """The same samples and notes, with windows that do not reach back before a time (monotonic): the last 10 s are
        always in them."""
        clipped = copy.copy(self)
        clipped._window_from_s = from_s
        clipped._means = {}
        clipped.worked_out = {}
        return clipped

    @property
    def window_from_s(self) -> float:
        """Time (monotonic) before which no window reaches back; -infinity where all may."""
        return self._window_from_s

    def begin_shares_anew(self, now_s: float) -> None:
        """Leave out what another process of an engine counted: a share of requests is one of this process's."""
        self._shares_from_s = now_s
        self._means.clear()

    @property
    def share_seconds(self) -> float:
        """Seconds that windows of `SHARES`, the rates of requests, reach back: at most to when an engine's process was
        seen to begin anew."""
        if not self._times:
            return 0.0
        return max(0.0, min(self.seconds, self._times[-1] - self._shares_from_s))

    def _first_index(self, seconds: float, from_s: float = -math.inf) -> int:
        """Index of the first sample in the last seconds, and not before a time."""
        last_s = self._times[-1]
        clipped_s = min(self._window_from_s, last_s - LEAST_WINDOW_S)
        return bisect_left(self._times, max(last_s - min(seconds, KEPT_S), clipped_s, from_s))

    def growth(self, field: str) -> float:
        """How far a counter grew in all that is kept, 3 minutes; 0 where it was reset."""
        if self.steady_s(field) >= KEPT_S:
            return 0.0  # as of most counters at every tick
        values = self.values(field, KEPT_S)
        if not values:
            return 0.0
        _, first = values[0]
        _, last = values[-1]
        return max(0.0, last - first)

    def values(self, field: str, seconds: float) -> list[tuple[float, float]]:
        """(monotonic s, value) of a sampled field over the last seconds, oldest first; what was missing is left out."""
        if not self._times:
            return []
        first = self._first_index(seconds)
        pairs = zip(self._times[first:], self._columns[self._index[field]][first:], strict=True)
        return [(sampled_s, value) for sampled_s, value in pairs if value is not None]

    def mean(self, field: str, seconds: float) -> float | None:
        """Mean of a sampled field over the last seconds; None where nothing was there."""
        key = (field, seconds)
        if key not in self._means:
            column: list[float | None] = []
            if self._times:
                from_s = self._shares_from_s if field in SHARES else -math.inf
                column = self._columns[self._index[field]][self._first_index(seconds, from_s) :]
            self._means[key] = mean_known(column)
        return self._means[key]

    def seconds_without(self, field: str, seconds: float, covered_s: float) -> float:
        """Seconds of the last ones that no value of a field is of, where a value is of the `covered_s` before it."""
        lacks_s = 0.0
        before_s: float | None = None
        first = self._first_index(seconds)
        for sampled_s, value in zip(self._times[first:], self._columns[self._index[field]][first:], strict=True):
            if value is None and before_s is None:
                before_s = sampled_s
            elif value is not None and before_s is not None:
                lacks_s += max(0.0, sampled_s - covered_s - before_s)
                before_s = None
        if before_s is not None:
            lacks_s += max(0.0, self._times[-1] - covered_s - before_s)
        return lacks_s

    def last(self, field: str) -> float | None:
        """The newest sample of a field; None where it was missing."""
        column = self._columns[self._index[field]]
        if column:
            return column[-1]
        return None

    def steady_s(self, field: str) -> float:
        """For how long a field has had the value that it has (or has been missing), as far back as it was sampled."""
        if self._times:
            return self._times[-1] - self._since[self._index[field]]
        return 0.0

    def previous(self, field: str) -> float | None:
        """The value of a field before the one that it has, however long ago; None where it never had another."""
        return self._previous[self._index[field]]

    @property
    def newest_s(self) -> float:
        """When the newest sample was taken; -infinity before the first."""
        return self._times[-1] if self._times else -math.inf

    @property
    def seconds(self) -> float:
        """How far the samples go back."""
        if self._times:
            clipped_s = min(self._window_from_s, self._times[-1] - LEAST_WINDOW_S)
            return min(self._times[-1] - max(self._began_s, clipped_s), KEPT_S)
        return 0.0


def _signs(gpu: Gpu) -> list[float | None]:
    """Whether the GPU does something, and which reasons hold its clocks down, 1 or 0 each; then `TENSOR_CYCLES`."""
    busy = number(gpu.reading.busy_ratio)
    if busy is None:
        busy = number(gpu.reading.sm_active_ratio)
    signs: list[float | None] = [float(busy > AWAKE)] if busy is not None else [None]
    for reason in CLOCK_REASONS:
        signs.append(float(reason in gpu.reading.throttle))
    tensor = number(gpu.reading.tensor_active_ratio)
    clock_hz = number(gpu.reading.sm_clock_hz)
    cycles_per_s = tensor * clock_hz if tensor is not None and clock_hz is not None else math.nan
    signs.append(cycles_per_s if math.isfinite(cycles_per_s) else None)
    return signs
