"""Costs of GPUs, engines and the host: hours and energy counted tick by tick, and priced by the config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from gpumon.efficiency.faults import is_free
from gpumon.efficiency.gpu import GpuTrack
from gpumon.efficiency.merged import merge_all, sum_of
from gpumon.efficiency.money import cost_of, per_million_tokens
from gpumon.efficiency.rates import gpus_of_all_ranks, has_gpus_elsewhere
from gpumon.efficiency.ratio import plus, times
from gpumon.efficiency.served_time import UnusedTime
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.span_counters import GpuGrowth, SpanCounters
from gpumon.efficiency.tracks import GAP_INTERVALS
from gpumon.figures.gpu import GPU
from gpumon.figures.merge import Merge
from gpumon.figures.model import MODEL
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.missing import (
    NOT_EXPOSED,
    REMOTE_POWER,
    WARMING_UP,
    Missing,
    Reading,
    Reason,
    number,
)
from gpumon.readings.prices import NO_PRICE, Prices, price_of_hour
from gpumon.readings.snapshot import Engine, EngineCosts, Gpu, HostCosts, physical_gpus

SHARED_GPU: Final = Missing(Reason.NOT_MODELLED, "another engine runs on one of its GPUs")
ONCE_SHARED_GPU: Final = Missing(Reason.NOT_MODELLED, "another engine ran on one of its GPUs")
"""Why the energy since gpumon saw an engine first is not known, though it is alone by now."""
_UNDER_MIG: Final = Missing(Reason.UNDER_MIG)
_NO_GPU: Final = Missing(Reason.NO_GPU)

_SUMMED_COSTS: Final = tuple(
    row.field for row in MODEL.values() if row.merge is Merge.SUM and hasattr(EngineCosts, row.field)
)
"""Costs of a model that are the sums of those of its engines; missing where one lacks it."""
OUTPUT_RATES: Final = ("decode_tokens_per_s",)
ALL_RATES: Final = (*OUTPUT_RATES, "prefill_tokens_per_s", "cached_tokens_per_s")
"""Fields of `Rates` with the tokens that a price is of."""
_NEVER_COUNTED: Final = (Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED, Reason.NOT_MODELLED)
_GENERATES_NOTHING: Final = (EndpointState.DOWN, EndpointState.REFUSED, EndpointState.STARTING)
_SUMMED_OF_GPUS: Final = ("cost_per_hour", "unused_s", "unused_cost", "energy_j", "energy_cost")
"""Costs of a host that are those of its GPUs together."""


class _Usage:
    """Unused time and energy of one GPU or engine since gpumon saw it first."""

    __slots__ = ("energy_cost", "energy_j", "once_shared", "unused_s")

    def __init__(self) -> None:
        self.unused_s: Reading = WARMING_UP
        self.energy_j = 0.0
        self.energy_cost: Reading = 0.0
        self.once_shared = False
        """Whether there was a tick whose energy it shared with another engine: that part is in neither's sum."""

    def add_time(self, unused_s: Reading, elapsed_s: float) -> Reading:
        """Count the unused time since the last tick. Returns that of all ticks, or why it was never known."""
        if isinstance(unused_s, Missing):
            return unused_s if isinstance(self.unused_s, Missing) else self.unused_s
        if elapsed_s > 0.0:
            self.unused_s = unused_s + (number(self.unused_s) or 0.0)
        return self.unused_s

    def add_energy(self, growths: Iterable[GpuGrowth]) -> Missing | None:
        """Count the energy of GPUs since the last tick, at the price of now.

        Returns why one GPU's energy is not known, or None: it is in a later part, as counters go on. A tick without a
        price makes the cost missing for good.
        """
        why_unknown = None
        for growth in growths:
            if isinstance(growth.energy_j, Missing):
                why_unknown = growth.energy_j
            else:
                self.energy_j += growth.energy_j
                self.energy_cost = plus(self.energy_cost, growth.energy_cost)
        return why_unknown


class CostLedger:
    """Counts since gpumon started. A pause in which nothing was read is neither used nor unused."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._counters = SpanCounters(prices, energy_begins_at=0.0)
        self._gpus: dict[str, _Usage] = {}
        """UUID of a GPU -> its usage."""
        self._engines: dict[str, _Usage] = {}
        """`EngineReading.key` -> usage of the engine."""
        self._engine_times: dict[str, UnusedTime] = {}
        """`EngineReading.key` -> its time without a request."""
        self._growths: dict[str, GpuGrowth] = {}
        """UUID of a GPU -> what it has counted from the last tick to this one."""
        self._last_s: float | None = None
        """When the last tick was (monotonic)."""
        self._elapsed_s = 0.0
        """Seconds from the last tick to this one; 0 after a pause."""
        self._wall_s = 0.0
        """Unix time of this tick."""
        self._readings: Mapping[str, EngineReading] = {}
        """The engines of this tick by their keys."""

    def begin(self, frame: Frame) -> None:
        """Begin a tick: its time since the last one, and the answers of its engines."""
        self._elapsed_s = 0.0
        if self._last_s is not None:
            elapsed_s = frame.monotonic_s - self._last_s
            # With GAP_INTERVALS ticks left out, the two around them are GAP_INTERVALS + 1 intervals apart.
            if 0.0 < elapsed_s <= (GAP_INTERVALS + 1) * frame.interval_s:
                self._elapsed_s = elapsed_s
        self._last_s = frame.monotonic_s
        self._wall_s = frame.wall_s
        self._growths = {}
        self._readings = {reading.key: reading for reading in frame.engines}
        self._forget(self._readings.keys())

    def charge_gpu(self, gpu: Gpu, track: GpuTrack, engines: Sequence[Engine], why_no_engine: Missing) -> Gpu:
        """Count this tick of a GPU and return it with its costs.

        `engines` are those on it, `why_no_engine` says why there is none.
        """
        usage = self._gpus.get(gpu.reading.uuid)
        elapsed_s = self._elapsed_s
        if usage is None:
            usage = _Usage()
            self._gpus[gpu.reading.uuid] = usage
            elapsed_s = 0.0
        growth = self._counters.take_gpu(
            gpu,
            track.energy_j,
            engines,
            self._readings,
            seconds=elapsed_s,
            wall_s=self._wall_s,
            unused_s=_unused_s_without_engine(track, why_no_engine, elapsed_s),
        )
        self._growths[gpu.reading.uuid] = growth
        why_no_energy = usage.add_energy((growth,))
        unused_s = usage.add_time(growth.unused_s, elapsed_s)
        per_hour = self._per_hour(gpu)
        return msgspec.structs.replace(
            gpu,
            cost_per_hour=per_hour,
            unused_s=unused_s,
            unused_cost=cost_of(per_hour, unused_s),
            energy_cost=self._energy_cost(usage, why_no_energy),
        )

    def charge_engine(self, reading: EngineReading, engine: Engine, gpus: Sequence[Gpu], sharers: int) -> Engine:
        """Count this tick of an engine and return it with its costs. Call `charge_gpu` for all GPUs first.

        `gpus` are those of the engine, `sharers` is the most engines on any of them, itself included.
        """
        usage = self._engines.get(reading.key)
        elapsed_s = self._elapsed_s
        if usage is None:
            usage = _Usage()
            self._engines[reading.key] = usage
            self._engine_times[reading.key] = UnusedTime()
            elapsed_s = 0.0
        unused = self._engine_times[reading.key].add((engine,), self._readings, elapsed_s, NOT_EXPOSED)
        unused_s = usage.add_time(unused, elapsed_s)
        per_hour = _engine_per_hour(reading, engine, gpus, sharers, self._prices)
        why_no_energy = self._add_engine_energy(usage, reading, gpus, sharers)
        rates = engine.rates
        token_rates = (rates.prefill_tokens_per_s, _cached_tokens_per_s(engine), rates.decode_tokens_per_s)
        energy_j: Reading = why_no_energy if why_no_energy is not None else usage.energy_j
        costs = EngineCosts(
            cost_per_hour=per_hour,
            cost_per_million_output_tokens=per_million_tokens(per_hour, rates.decode_tokens_per_s),
            cost_per_million_all_tokens=per_million_tokens(per_hour, *token_rates),
            unused_s=unused_s,
            unused_cost=cost_of(per_hour, unused_s),
            energy_j=energy_j,
            energy_cost=self._energy_cost(usage, why_no_energy),
        )
        return msgspec.structs.replace(engine, costs=costs)

    def _add_engine_energy(
        self, usage: _Usage, reading: EngineReading, gpus: Sequence[Gpu], sharers: int
    ) -> Missing | None:
        """Count the energy of an engine's GPUs in this tick. Returns why its energy so far is not known, or None."""
        if has_gpus_elsewhere(reading, len(gpus)):
            return REMOTE_POWER
        if not gpus:
            return _NO_GPU
        if sharers > 1:
            usage.once_shared = True
            return SHARED_GPU
        if usage.once_shared:
            return ONCE_SHARED_GPU
        return usage.add_energy([self._growths[gpu.reading.uuid] for gpu in gpus])

    def _energy_cost(self, usage: _Usage, why_no_energy: Missing | None) -> Reading:
        """The price of the energy so far. A missing price is reported before missing energy."""
        per_kwh = self._prices.per_kwh_at(self._wall_s)
        if isinstance(per_kwh, Missing):
            return per_kwh
        if why_no_energy is not None:
            return why_no_energy
        return usage.energy_cost

    def _per_hour(self, gpu: Gpu) -> Reading:
        """Price of an hour of a GPU; a MIG slice has none of its own."""
        price = price_of_hour(gpu.gpu_type, self._prices.per_gpu_hour)
        if gpu.reading.parent_uuid and not isinstance(price, Missing):
            return _UNDER_MIG
        return price

    def _forget(self, keys: Set[str]) -> None:
        """Drop the usage of engines that are not in `keys`, so that memory stays flat. GPUs are few, and stay."""
        for key in self._engines.keys() - keys:
            del self._engines[key]
            del self._engine_times[key]


def summed_costs(engines: Sequence[Engine]) -> EngineCosts:
    """The costs of some engines together; what one of them lacks, the sum lacks."""
    if not engines:
        return EngineCosts()
    sums = {
        field: merge_all(MODEL[field], [getattr(engine.costs, field) for engine in engines]) for field in _SUMMED_COSTS
    }
    per_hour = sums["cost_per_hour"]
    # Replicas of one model all export the same, so that a rate which one lacks is a gap; `host_costs` adds up different
    # engines, of which some never count a kind of tokens.
    output_rates = [engine.rates.decode_tokens_per_s for engine in engines]
    prompt_rates = [engine.rates.prefill_tokens_per_s for engine in engines]
    cached_rates = [_cached_tokens_per_s(engine) for engine in engines]
    return EngineCosts(
        cost_per_million_output_tokens=per_million_tokens(per_hour, *output_rates),
        cost_per_million_all_tokens=per_million_tokens(per_hour, *prompt_rates, *cached_rates, *output_rates),
        **sums,
    )


def _cached_tokens_per_s(engine: Engine) -> Reading:
    """Cached prompt tokens per second. An engine that never tells them computed all of its prompts."""
    cached = engine.rates.cached_tokens_per_s
    if isinstance(cached, Missing) and cached.reason in _NEVER_COUNTED:
        return 0.0
    return cached


def host_costs(gpus: Sequence[Gpu], engines: Iterable[Engine]) -> HostCosts:
    """The sums over all GPUs of the machine; what one of them lacks, the sum lacks. MIG slices are in their GPU's."""
    boards = physical_gpus(gpus)
    if not boards:
        return HostCosts()
    sums = {field: merge_all(GPU[field], [value_of(gpu, field) for gpu in boards]) for field in _SUMMED_OF_GPUS}
    per_hour = sums["cost_per_hour"]
    counting = engines_in_sums(engines)
    return HostCosts(
        cost_per_million_output_tokens=per_million_tokens(per_hour, tokens_per_s(counting, OUTPUT_RATES)),
        cost_per_million_all_tokens=per_million_tokens(per_hour, tokens_per_s(counting, ALL_RATES)),
        unused_gpu_s=sums.pop("unused_s"),
        **sums,
    )


def tokens_per_s(engines: Iterable[Engine], rates: Sequence[str]) -> Reading:
    """Tokens per second of all these engines. Kinds of tokens that an engine never counts are none of its, and nothing
    is generated where nothing listens any more, or a model is still loaded; what one does not tell for another reason,
    all of them lack: the price of its GPUs is not that of the others' tokens."""
    known = []
    for engine in engines:
        for rate in rates:
            value: Reading = getattr(engine.rates, rate)
            if not isinstance(value, Missing):
                known.append(value)
            elif value.reason not in _NEVER_COUNTED and engine.state not in _GENERATES_NOTHING:
                return value
    return sum_of(known) if known else NOT_EXPOSED


def _engine_per_hour(
    reading: EngineReading, engine: Engine, gpus: Sequence[Gpu], sharers: int, prices: Prices
) -> Reading:
    """Price of an hour of all GPUs of an engine; of those on other hosts by their type."""
    if not prices.per_gpu_hour:
        return NO_PRICE
    if sharers > 1:
        return SHARED_GPU
    if has_gpus_elsewhere(reading, len(gpus)):
        if not engine.hardware.gpu_type:
            return _NO_GPU
        number_of_gpus = gpus_of_all_ranks(reading, len(gpus))
        return times(price_of_hour(engine.hardware.gpu_type, prices.per_gpu_hour), float(number_of_gpus))
    if not gpus:
        return _NO_GPU
    return plus(*(gpu.cost_per_hour for gpu in gpus))


def _unused_s_without_engine(track: GpuTrack, why_no_engine: Missing, elapsed_s: float) -> Reading:
    """Seconds in which a GPU on which no engine is known computed nothing, whoever holds it; why that is not known."""
    if track.why_blank is not None:
        return track.why_blank
    busy = track.reading.busy_ratio
    if not isinstance(busy, Missing):
        return elapsed_s if busy == 0.0 else 0.0
    if why_no_engine.reason is not Reason.NO_ENGINE:
        return why_no_engine
    return elapsed_s if is_free(track.reading) else busy
