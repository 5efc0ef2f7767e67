"""The last minutes of every thing's figures: samples of its fields, their means, and since when they stand still."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.engine_snapshot import flat_path
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Engine, Gpu, Host
from gpumon.readings.verdict import Kind, Limit

KEPT_S: Final = 180.0
"""How far back `Recent` goes."""
MOST: Final = 200
"""Samples of one thing that are kept."""
LEAST_GAP_S: Final = 0.9
"""Two samples of one thing are at least so far apart."""
SAMPLED: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: (
        *("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s"),
        *("preemptions_per_s", "trained_tokens_per_s", "samples_per_s", "mfu_ratio", "mbu_ratio"),
        *("mfu_prefill_ratio", "ttft_s.mean", "inferences_per_s", "tokens_total.trained", "tokens_total.samples"),
        *("forward_ratio", "scheduler_idle_ratio", "host_ratio"),
        *("tokens_total.decode", "tokens_total.prefill_computed", "tokens_total.prefill_cached"),
    ),
    Kind.GPU: (
        *("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "bandwidth_bytes_per_s", "sm_clock_hz"),
        *("power_w", "vram_used_bytes", "ecc_uncorrected"),
        *("nvlink_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    ),
    Kind.HOST: (
        *("cpu_ratio", "busiest_core_ratio", "iowait_ratio", "io_pressure_ratio", "network_rx_bytes_per_s"),
        *("cpu_pressure_ratio", "memory_pressure_ratio", "disk_busy_ratio"),
    ),
}
"""Fields of `Engine`, `Gpu` and `Host` that rules look back at; with a dot those of what stands in a field."""
AWAKE: Final = 0.05
"""Busy share of a GPU above which it does something: a driver's own housekeeping stays below."""
REASONS: Final = (
    *("applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"),
)
"""Clock event reasons: their mean is the share of time in which they were active."""
SIGNS: Final = ("awake", *REASONS)
"""What is sampled of a GPU as 1 or 0; `awake`: its busy share, or under MIG its SM activity, is above `AWAKE`."""


_BESIDE: Final[Mapping[Kind, tuple[str, ...]]] = {Kind.ENGINE: (), Kind.GPU: ("throttle",), Kind.HOST: ()}
"""What `SIGNS` are made of, beside sampled fields."""


class _Layout(NamedTuple):
    """How things of a kind are sampled."""

    at: Mapping[str, int]
    """Column of each field."""
    look: Callable[[object], tuple[Any, ...]]
    """All that samples are made of."""
    read: Callable[[object], tuple[Any, ...]]
    """The sampled fields."""


def _layout(kind: Kind) -> _Layout:
    fields = (*SAMPLED[kind], *SIGNS) if kind is Kind.GPU else SAMPLED[kind]
    at = {field: number for number, field in enumerate(fields)}
    paths = tuple(flat_path(_TYPES[kind], field) for field in SAMPLED[kind])
    parts = dict.fromkeys((*(path.partition(".")[0] for path in paths), *_BESIDE[kind]))
    return _Layout(at, attrgetter(*parts), attrgetter(*paths))


_TYPES: Final[Mapping[Kind, type[msgspec.Struct]]] = {Kind.ENGINE: Engine, Kind.GPU: Gpu, Kind.HOST: Host}
_LAYOUTS: Final = {kind: _layout(kind) for kind in Kind}


class Recent:
    """The last minutes of one thing's sampled fields, on the monotonic clock."""

    def __init__(self, kind: Kind) -> None:
        self._at, self._look, self._read = _LAYOUTS[kind]
        self._times: list[float] = []
        self._columns: tuple[list[float | None], ...] = tuple([] for _ in self._at)
        """Samples of each field; where a column is shorter than the times, all that it lacks are as the newest."""
        self._seen: tuple[Any, ...] = ()
        """What was looked at last."""
        self._newest: list[float | None] = []
        """The sample that was made of it."""
        self._began_s = math.inf
        """When the first sample was taken."""
        self._since: list[float] = []
        """When each field took the value that it has."""
        self._means: dict[tuple[str, float], float | None] = {}
        """Of this sample: several rules ask for the same."""
        self._firsts: dict[float, int] = {}
        self.holders: frozenset[int] = frozenset()
        """Of an engine: the processes on its GPUs (pids) when it answered last."""
        self.refused_s = -math.inf
        """Of an engine: when nothing listened at its address last (monotonic): what answers later is a new process."""
        self.found: tuple[Limit, ...] = ()
        """Of an engine: `Case.found` when its use was judged last."""
        self.worked_out: dict[object, Any] = {}
        """What rules keep of this sample for each other."""

    def add(self, now_s: float, thing: object) -> None:
        """Sample the thing, unless it was sampled just before."""
        times = self._times
        if times and now_s - times[-1] < LEAST_GAP_S:
            return
        seen = self._look(thing)
        if seen != self._seen:  # between two polls an engine is as it was
            self._change(now_s, thing)
            self._seen = seen
        times.append(now_s)
        self._means.clear()
        self._firsts.clear()
        self.worked_out.clear()
        if len(times) >= 2 * MOST:
            self._forget(now_s)

    def _change(self, now_s: float, thing: object) -> None:
        """Let the next samples be of this."""
        values = [value if type(value) is not Missing and math.isfinite(value) else None for value in self._read(thing)]
        if isinstance(thing, Gpu):
            values += _signs(thing)
        if not self._times:
            self._began_s = now_s
            self._since = [now_s] * len(values)
        elif values != self._newest:
            changed = compress(range(len(values)), map(ne, values, self._newest))
            for at in changed:
                self._since[at] = now_s
        self._complete()
        self._newest = values

    def _complete(self) -> None:
        count = len(self._times)
        for column, value in zip(self._columns, self._newest, strict=False):
            column += [value] * (count - len(column))

    def _column(self, at: int) -> list[float | None]:
        column = self._columns[at]
        if lacking := len(self._times) - len(column):
            column += [self._newest[at]] * lacking
        return column

    def _forget(self, now_s: float) -> None:
        gone = max(bisect_left(self._times, now_s - KEPT_S), len(self._times) - MOST)
        self._complete()
        self._firsts.clear()
        del self._times[:gone]
        for column in self._columns:
            del column[:gone]

    def _first(self, seconds: float) -> int:
        """Where the last seconds begin."""
        if seconds not in self._firsts:
            since_s = self._times[-1] - min(seconds, KEPT_S)
            self._firsts[seconds] = max(bisect_left(self._times, since_s), len(self._times) - MOST)
        return self._firsts[seconds]

    def values(self, field: str, seconds: float) -> list[tuple[float, float]]:
        """(monotonic s, value) of a sampled field over the last seconds, oldest first; what was missing is left out."""
        if not self._times:
            return []
        first, column = self._first(seconds), self._column(self._at[field])
        pairs = zip(self._times[first:], column[first:], strict=True)
        return [(at_s, value) for at_s, value in pairs if value is not None]

    def mean(self, field: str, seconds: float) -> float | None:
        """Mean of a sampled field over the last seconds; None where nothing was there."""
        means, of = self._means, (field, seconds)
        if of not in means:
            means[of] = _mean(self._column(self._at[field])[self._first(seconds) :]) if self._times else None
        return means[of]

    def last(self, field: str) -> float | None:
        """The newest sample of a field; None where it was missing."""
        return self._newest[self._at[field]] if self._newest else None

    def steady_s(self, field: str) -> float:
        """For how long a field has had the value that it has (or has been missing), as far back as it was sampled."""
        return self._times[-1] - self._since[self._at[field]] if self._times else 0.0

    @property
    def seconds(self) -> float:
        """How far the samples go back."""
        return min(self._times[-1] - self._began_s, KEPT_S) if self._times else 0.0


def _mean(samples: list[float | None]) -> float | None:
    try:
        return sum(samples) / len(samples)  # type: ignore[arg-type]
    except TypeError:  # it was missing now and then
        known = [value for value in samples if value is not None]
        return sum(known) / len(known) if known else None


def _signs(gpu: Gpu) -> list[float | None]:
    busy = number(gpu.busy_ratio)
    busy = number(gpu.sm_active_ratio) if busy is None else busy
    awake = None if busy is None else float(busy > AWAKE)
    return [awake, *(float(reason in gpu.throttle) for reason in REASONS)]
