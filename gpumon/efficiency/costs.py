"""Costs of GPUs, engines and the host: hours and energy counted tick by tick, and priced by the config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from gpumon.efficiency.faults import is_free
from gpumon.efficiency.gpu import GpuTrack
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.tracks import GAP_INTERVALS
from gpumon.figures.merge import Merge
from gpumon.figures.model import MODEL
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
from gpumon.readings.prices import HOUR_S, KWH_J, NO_PRICE, Prices, price_of_hour
from gpumon.readings.snapshot import Engine, EngineCosts, Gpu, HostCosts

SHARED_GPU: Final = Missing(Reason.NOT_MODELLED, "another engine runs on one of its GPUs")
ONCE_SHARED_GPU: Final = Missing(Reason.NOT_MODELLED, "another engine ran on one of its GPUs")
"""Why the energy since gpumon saw an engine first is not known, though it is alone by now."""
_UNDER_MIG: Final = Missing(Reason.UNDER_MIG)
_NO_GPU: Final = Missing(Reason.NO_GPU)
_IDLE: Final = Missing(Reason.IDLE)
MILLION: Final = 1e6
"""Tokens that a price is for."""


def cost_of(per_hour: Reading, seconds: Reading) -> Reading:
    """The price of a time at a price per hour."""
    return times(per_hour, divide(seconds, HOUR_S))


def energy_cost_of(joules: Reading, per_kwh: Reading) -> Reading:
    """The price of energy at a price per kWh."""
    return times(joules, divide(per_kwh, KWH_J))


def per_million_tokens(per_hour: Reading, *rates: Reading) -> Reading:
    """Price of a million tokens of these rates together (tokens/s) at a price per hour."""
    tokens_per_s = plus(*rates)
    if tokens_per_s == 0.0:
        if isinstance(per_hour, Missing):
            return per_hour  # a price that nobody set stays missing when tokens come, `idle` does not
        return _IDLE
    return times(divide(per_hour, times(tokens_per_s, HOUR_S)), MILLION)


_SUMMED_COSTS: Final = tuple(
    row.field for row in MODEL.values() if row.merge is Merge.SUM and hasattr(EngineCosts, row.field)
)
"""Costs of a model that are the sums of those of its engines; missing where one lacks it."""


class _Usage:
    """Unused time and energy of one GPU or engine since gpumon saw it first."""

    __slots__ = ("energy_cost", "energy_j", "known_s", "once_shared", "unused_s")

    def __init__(self) -> None:
        self.unused_s = 0.0
        self.known_s = 0.0
        """Time in which it is known whether it was used."""
        self.energy_j = 0.0
        self.energy_cost: Reading = 0.0
        self.once_shared = False
        """Whether there was a tick whose energy it shared with another engine: that part is in neither's sum."""

    def add_time(self, unused: bool | Missing, seconds: float) -> Reading:
        """Count the time since the last tick. Returns the unused time so far, or why it is not known."""
        if not isinstance(unused, Missing):
            self.known_s += seconds
            if unused:
                self.unused_s += seconds
        if self.known_s > 0.0:
            return self.unused_s
        if isinstance(unused, Missing):
            return unused
        return WARMING_UP

    def add_energy(self, parts: Iterable[Reading], per_kwh: Reading) -> Missing | None:
        """Count the energy of GPUs since the last tick, at the price of now.

        Returns why one GPU's energy is not known, or None: it is in a later part, as counters go on. A tick without a
        price makes the cost missing for good.
        """
        why_unknown = None
        for joules in parts:
            if isinstance(joules, Missing):
                why_unknown = joules
            else:
                self.energy_j += joules
                self.energy_cost = plus(self.energy_cost, energy_cost_of(joules, per_kwh))
        return why_unknown


class CostLedger:
    """Counts since gpumon started. A pause in which nothing was read is neither used nor unused."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._gpus: dict[str, _Usage] = {}
        """UUID of a GPU -> its usage."""
        self._engines: dict[str, _Usage] = {}
        """`EngineReading.key` -> usage of the engine."""
        self._last_energy_j: dict[str, float] = {}
        """UUID of a GPU -> its energy at the last tick that knew it."""
        self._tick_energy_j: dict[str, Reading] = {}
        """UUID of a GPU -> its energy from the last tick to this one."""
        self._last_s: float | None = None
        """When the last tick was (monotonic)."""
        self._elapsed_s = 0.0
        """Seconds from the last tick to this one; 0 after a pause."""
        self._per_kwh: Reading = NO_PRICE
        """Price of energy at this tick."""
        self._active: Mapping[str, bool | None] = {}
        """`EngineReading.key` -> whether the engine had anything to do at its newest poll; None where nothing tells."""

    def begin(self, frame: Frame, active: Mapping[str, bool | None]) -> None:
        """Begin a tick: its time since the last one, and the price of energy now.

        `active`: `EngineReading.key` -> whether the engine had anything to do at its newest poll, None where nothing
        tells.
        """
        self._active = active
        self._elapsed_s = 0.0
        if self._last_s is not None:
            elapsed_s = frame.monotonic_s - self._last_s
            # With GAP_INTERVALS ticks left out, the two around them are GAP_INTERVALS + 1 intervals apart.
            if 0.0 < elapsed_s <= (GAP_INTERVALS + 1) * frame.interval_s:
                self._elapsed_s = elapsed_s
        self._last_s = frame.monotonic_s
        self._per_kwh = self._prices.per_kwh_at(frame.wall_s)
        self._tick_energy_j = {}
        self._forget({reading.key for reading in frame.engines})

    def charge_gpu(self, gpu: Gpu, track: GpuTrack, engines: Sequence[Engine], why_no_engine: Missing) -> Gpu:
        """Count this tick of a GPU and return it with its costs.

        `engines` are those on it, `why_no_engine` says why there is none.
        """
        usage = self._gpus.get(gpu.uuid)
        elapsed_s = self._elapsed_s
        if usage is None:
            usage = _Usage()
            self._gpus[gpu.uuid] = usage
            elapsed_s = 0.0
        tick_energy_j = self._energy_of_tick(gpu.uuid, track.energy_j)
        self._tick_energy_j[gpu.uuid] = tick_energy_j
        why_no_energy = usage.add_energy((tick_energy_j,), self._per_kwh)
        unused_s = usage.add_time(self._is_gpu_unused(track, engines, why_no_engine), elapsed_s)
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
            elapsed_s = 0.0
        unused_s = usage.add_time(self._is_engine_unused(engine), elapsed_s)
        per_hour = _engine_per_hour(reading, engine, gpus, sharers, self._prices)
        why_no_energy = self._add_engine_energy(usage, reading, gpus, sharers)
        rates = engine.rates
        # An engine that does not tell cached tokens computed all of its prompts.
        cached_tokens_per_s = number(rates.cached_tokens_per_s) or 0.0
        token_rates = (rates.prefill_tokens_per_s, cached_tokens_per_s, rates.decode_tokens_per_s)
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
        if reading.gpu_count > len(gpus):
            return REMOTE_POWER
        if not gpus:
            return _NO_GPU
        if sharers > 1:
            usage.once_shared = True
            return SHARED_GPU
        if usage.once_shared:
            return ONCE_SHARED_GPU
        return usage.add_energy([self._tick_energy_j[gpu.uuid] for gpu in gpus], self._per_kwh)

    def _energy_cost(self, usage: _Usage, why_no_energy: Missing | None) -> Reading:
        """The price of the energy so far. A missing price is reported before missing energy."""
        if isinstance(self._per_kwh, Missing):
            return self._per_kwh
        if why_no_energy is not None:
            return why_no_energy
        return usage.energy_cost

    def _is_gpu_unused(self, track: GpuTrack, engines: Sequence[Engine], why_no_engine: Missing) -> bool | Missing:
        """Whether the GPU did nothing: its engines served no request, or no kernel ran; why that is not known."""
        if track.why_blank is not None:
            return track.why_blank
        if not engines:
            return _is_unused_without_engine(track, why_no_engine)
        why_unknown: Missing | None = None
        for engine in engines:
            unused = self._is_engine_unused(engine)
            if isinstance(unused, Missing):
                why_unknown = unused
            elif not unused:
                return False
        if why_unknown is not None:
            return why_unknown
        return True

    def _is_engine_unused(self, engine: Engine) -> bool | Missing:
        """Whether an engine served no request; one that is down or sleeps serves none. By its counters, too: requests
        that are shorter than the time between two polls are in no gauge."""
        if engine.state is EndpointState.DOWN or engine.asleep:
            return True
        active = self._active.get(engine.key)
        if engine.state is EndpointState.OK and active is not None:
            return not active
        running = engine.load.running
        if isinstance(running, Missing):
            return running
        return running == 0.0

    def _per_hour(self, gpu: Gpu) -> Reading:
        """Price of an hour of a GPU; a MIG slice has none of its own."""
        price = price_of_hour(gpu.gpu_type, self._prices.per_gpu_hour)
        if gpu.parent_uuid and not isinstance(price, Missing):
            return _UNDER_MIG
        return price

    def _energy_of_tick(self, uuid: str, energy_j: Reading) -> Reading:
        """Energy of a GPU since the last tick, in J; `energy_j` is that of its track so far."""
        if isinstance(energy_j, Missing):
            return energy_j
        tick_energy_j = energy_j - self._last_energy_j.get(uuid, 0.0)  # a track counts from 0
        self._last_energy_j[uuid] = energy_j
        if tick_energy_j < 0.0:  # the track of the GPU began anew
            return energy_j
        return tick_energy_j

    def _forget(self, keys: Set[str]) -> None:
        """Drop the usage of engines that are not in `keys`, so that memory stays flat. GPUs are few, and stay."""
        for key in self._engines.keys() - keys:
            del self._engines[key]


def summed_costs(engines: Sequence[Engine]) -> EngineCosts:
    """The costs of some engines together; what one of them lacks, the sum lacks."""
    if not engines:
        return EngineCosts()
    sums = {field: plus(*(getattr(engine.costs, field) for engine in engines)) for field in _SUMMED_COSTS}
    per_hour = sums["cost_per_hour"]
    # Replicas of one model all export the same, so that a rate which one lacks is a gap; `host_costs` adds up different
    # engines, of which some never count a kind of tokens.
    output_rates = [engine.rates.decode_tokens_per_s for engine in engines]
    prompt_rates = [engine.rates.prefill_tokens_per_s for engine in engines]
    cached_rates = [number(engine.rates.cached_tokens_per_s) or 0.0 for engine in engines]
    return EngineCosts(
        cost_per_million_output_tokens=per_million_tokens(per_hour, *output_rates),
        cost_per_million_all_tokens=per_million_tokens(per_hour, *prompt_rates, *cached_rates, *output_rates),
        **sums,
    )


def host_costs(gpus: Sequence[Gpu], engines: Iterable[Engine]) -> HostCosts:
    """The sums over all GPUs of the machine; what one of them lacks, the sum lacks. MIG slices are in their GPU's."""
    boards = [gpu for gpu in gpus if not gpu.parent_uuid]
    if not boards:
        return HostCosts()
    per_hour = plus(*(gpu.cost_per_hour for gpu in boards))
    output_rates = []
    prompt_rates = []
    for engine in engines_in_sums(engines):
        rates = engine.rates
        output_rates.append(number(rates.decode_tokens_per_s))
        prompt_rates += [number(rates.prefill_tokens_per_s), number(rates.cached_tokens_per_s)]
    return HostCosts(
        cost_per_hour=per_hour,
        cost_per_million_output_tokens=per_million_tokens(per_hour, _known_sum(output_rates)),
        cost_per_million_all_tokens=per_million_tokens(per_hour, _known_sum([*output_rates, *prompt_rates])),
        unused_gpu_s=plus(*(gpu.unused_s for gpu in boards)),
        unused_cost=plus(*(gpu.unused_cost for gpu in boards)),
        energy_j=plus(*(gpu.energy_j for gpu in boards)),
        energy_cost=plus(*(gpu.energy_cost for gpu in boards)),
    )


def _known_sum(values: Iterable[float | None]) -> Reading:
    """The sum of what is known; missing where nothing is."""
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return NOT_EXPOSED


def _engine_per_hour(
    reading: EngineReading, engine: Engine, gpus: Sequence[Gpu], sharers: int, prices: Prices
) -> Reading:
    """Price of an hour of all GPUs of an engine; of those on other hosts by their type."""
    if not prices.per_gpu_hour:
        return NO_PRICE
    if sharers > 1:
        return SHARED_GPU
    if reading.gpu_count > len(gpus):
        if not engine.hardware.gpu_type:
            return _NO_GPU
        return times(price_of_hour(engine.hardware.gpu_type, prices.per_gpu_hour), float(reading.gpu_count))
    if not gpus:
        return _NO_GPU
    return plus(*(gpu.cost_per_hour for gpu in gpus))


def _is_unused_without_engine(track: GpuTrack, why_no_engine: Missing) -> bool | Missing:
    """Whether a GPU on which no engine is known computes nothing, whoever holds it; why that is not known."""
    busy = track.reading.busy_ratio
    if not isinstance(busy, Missing):
        return busy == 0.0
    if why_no_engine.reason is Reason.NO_ENGINE:
        return is_free(track.reading)
    return why_no_engine
