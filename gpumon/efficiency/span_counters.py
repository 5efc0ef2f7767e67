"""Counters of one host over a span of time, from look to look: energy, tokens, goodput and unused time of its GPUs and
engines. What is shown since gpumon started, a report of a recording and that of a fleet count with it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gpumon.efficiency.gpu import MOST_POWER_W
from gpumon.efficiency.money import MILLION, energy_cost_of
from gpumon.efficiency.ratio import times
from gpumon.efficiency.served_time import UnusedTime
from gpumon.efficiency.sums import (
    TOKEN_FIELDS,
    CounterGrowth,
    GoodputGrowth,
    GoodputTotal,
    all_tokens,
    quotient,
    sum_of_known,
)
from gpumon.readings.frame import EngineReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.prices import Prices
from gpumon.readings.snapshot import Engine, Gpu


class GpuGrowth(NamedTuple):
    """Growth of a GPU's counters since the look before."""

    energy_j: Reading
    """Missing where its counter was not there at both looks."""
    energy_cost: Reading
    unused_s: Reading


class EngineGrowth(NamedTuple):
    """Growth of an engine's counters since the look before."""

    tokens: dict[str, float]
    """Field of a report (`TOKEN_FIELDS`) -> tokens, of the counters that were seen twice."""
    goodput: GoodputTotal | None
    """None without a raw reading."""


class SpanCounters:
    """Counters of the GPUs and engines of a host. After a gap they begin anew: time without looks is in no sum."""

    def __init__(
        self,
        prices: Prices,
        goals: Goals = Goals(),  # noqa: B008 - immutable
        *,
        tokens_begin_at: float | None = None,
        energy_begins_at: float | None = None,
    ) -> None:
        """`tokens_begin_at`, `energy_begins_at`: what the counters have at a thing's start, where these are the
        deriver's totals: such a counter goes on after looks that lacked it."""
        self.energy: dict[str, CounterGrowth] = {}
        """UUID -> energy in joules, by the GPU's own counter."""
        self.unused: dict[str, UnusedTime] = {}
        """UUID -> seconds without a request, or with nobody on the GPU."""
        self._own_unused: dict[str, CounterGrowth] = {}
        """UUID -> the same as whoever derived the GPU has counted it."""
        self.tokens: dict[tuple[str, str], CounterGrowth] = {}
        """Key of an engine and field of `TOKEN_FIELDS` -> its tokens."""
        self._answered_s: dict[str, float] = {}
        """Key of an engine -> when it gave the answer that was taken in last (monotonic)."""
        self._goodput: dict[str, GoodputGrowth] = {}
        """Key of an engine -> its histograms from one look to the next."""
        self._prices = prices
        self._goals = goals
        self._tokens_begin_at = tokens_begin_at
        self._energy_begins_at = energy_begins_at

    def begin_anew(self) -> None:
        """Take the next values of all counters as a base line."""
        for counter in (*self.energy.values(), *self.tokens.values(), *self._own_unused.values()):
            counter.last = None
        for unused in self.unused.values():
            unused.begin_anew()
        for goodput in self._goodput.values():
            goodput.begin_anew()
        self._answered_s = {}

    def take_gpu(
        self,
        gpu: Gpu,
        energy_j: Reading,
        engines: Sequence[Engine],
        readings: Mapping[str, EngineReading],
        *,
        seconds: float,
        wall_s: float,
        unused_s: Reading | None = None,
    ) -> GpuGrowth:
        """Take in a GPU `seconds` after the look before. `energy_j`: its counter; `engines`: those on it; `readings`:
        raw ones by key of the engine; `wall_s`: Unix time, whose price the energy has; `unused_s`: how many of the
        seconds it was unused if no engine is on it, by default those that its count of them has grown by."""
        # What the deriver has counted is held against it already, and goes on over gaps.
        most_w = MOST_POWER_W if self._energy_begins_at is None else math.inf
        counter = self.energy.setdefault(gpu.reading.uuid, CounterGrowth(self._energy_begins_at, most_w))
        joules = energy_j
        if not isinstance(energy_j, Missing) or self._energy_begins_at is None:
            joules = counter.grow(energy_j, seconds)
        if unused_s is None:
            unused_s = self._own_unused.setdefault(gpu.reading.uuid, CounterGrowth()).grow(gpu.unused_s, seconds)
        unused = self.unused.setdefault(gpu.reading.uuid, UnusedTime())
        unused_s = unused.add(engines, readings, seconds, unused_s, kernel_runs=gpu.reading.busy_ratio != 0.0)
        energy_cost = energy_cost_of(joules, self._prices.per_kwh_at(wall_s))
        return GpuGrowth(joules, energy_cost, unused_s)

    def take_engine(
        self, engine: Engine, reading: EngineReading | None, *, seconds: float, wall_s: float
    ) -> EngineGrowth:
        """Take in an engine `seconds` after the look before, at a Unix time. With its raw reading the seconds of its
        tokens are those between its answers."""
        if reading is not None:
            seconds = reading.monotonic_s - self._answered_s.get(engine.key, reading.monotonic_s)
            self._answered_s[engine.key] = reading.monotonic_s
        tokens = {}
        for field, total_field in TOKEN_FIELDS.items():
            counter = self.tokens.setdefault((engine.key, field), CounterGrowth(self._tokens_begin_at))
            total = getattr(engine.tokens_total, total_field)
            if isinstance(total, Missing) and self._tokens_begin_at is not None:
                continue
            growth = counter.add(total, seconds)
            if counter.seconds:  # else there was no second value yet: 0 tokens would be no finding
                tokens[field] = growth
        if reading is None:
            return EngineGrowth(tokens, None)
        goodput = self._goodput.setdefault(engine.key, GoodputGrowth(self._goals))
        return EngineGrowth(tokens, goodput.take(reading, wall_s))

    def forget_gpus(self, uuids: Collection[str]) -> None:
        """Forget the counters of GPUs: one that comes back counts anew."""
        for uuid in uuids:
            self.energy.pop(uuid, None)
            self.unused.pop(uuid, None)
            self._own_unused.pop(uuid, None)

    def keep_engines(self, keys: Collection[str]) -> None:
        """Forget the counters of all engines but these: one that comes back counts anew."""
        self._goodput = {key: count for key, count in self._goodput.items() if key in keys}
        self._answered_s = {key: answered_s for key, answered_s in self._answered_s.items() if key in keys}
        self.tokens = {(key, field): count for (key, field), count in self.tokens.items() if key in keys}


class PerToken(NamedTuple):
    """Cost and energy of the tokens of a span."""

    tokens_per_j: Reading
    """Decode (or trained) tokens per joule."""
    cost_per_million_tokens: Reading
    """Per 10^6 decode (or trained) tokens."""
    cost_per_million_all_tokens: Reading
    """Per 10^6 prompt tokens, cached ones included, and decode tokens."""


def generated_tokens(tokens: Mapping[str, Reading]) -> Reading:
    """Decode and trained tokens of a span, by field of `TOKEN_FIELDS`."""
    return sum_of_known([tokens["decode_tokens"], tokens["trained_tokens"]])


def per_token(tokens: Mapping[str, Reading], energy_j: Reading, cost: Reading) -> PerToken:
    """Cost and energy of the tokens of a span, by field of `TOKEN_FIELDS`."""
    generated = generated_tokens(tokens)
    return PerToken(
        tokens_per_j=quotient(generated, energy_j),
        cost_per_million_tokens=times(quotient(cost, generated), MILLION),
        cost_per_million_all_tokens=times(quotient(cost, all_tokens(tokens)), MILLION),
    )
