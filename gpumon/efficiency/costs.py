"""Costs of GPUs, engines and the host: hours and energy counted tick by tick, and priced by the config."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

import msgspec

from gpumon.efficiency.faults import is_free
from gpumon.efficiency.gpu import GpuTrack
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.tracks import GAP
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
_UNDER_MIG: Final = Missing(Reason.UNDER_MIG)
_NO_GPU: Final = Missing(Reason.NO_GPU)
_IDLE: Final = Missing(Reason.IDLE)
MILLION: Final = 1e6


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
        return per_hour if isinstance(per_hour, Missing) else _IDLE
    return times(divide(per_hour, times(tokens_per_s, HOUR_S)), MILLION)


class _Count:
    """Unused time and energy of one thing since gpumon saw it first."""

    __slots__ = ("energy_cost", "energy_j", "known_s", "unused_s")

    def __init__(self) -> None:
        self.unused_s = 0.0
        self.known_s = 0.0
        """Time in which it is known whether it was used."""
        self.energy_j = 0.0
        self.energy_cost: Reading = 0.0

    def add_time(self, unused: bool | Missing, seconds: float) -> Reading:
        """Count the time since the last tick; the unused time so far, or why it is not known."""
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
        """Count the energy of GPUs since the last tick at the price of now; why that of one is not known.

        What is not known now is in a later part, as counters go on. After an hour without a price there is no cost.
        """
        why = None
        for joules in parts:
            if isinstance(joules, Missing):
                why = joules
            else:
                self.energy_j += joules
                self.energy_cost = plus(self.energy_cost, energy_cost_of(joules, per_kwh))
        return why


class CostLedger:
    """Counts since gpumon started. A pause in which nothing was read is neither used nor unused."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._gpus: dict[str, _Count] = {}
        self._engines: dict[str, _Count] = {}
        self._joules: dict[str, float] = {}
        """GPU -> its energy at the last tick."""
        self._grown: dict[str, Reading] = {}
        """GPU -> energy since the tick before, of this tick."""
        self._last_s: float | None = None
        self._elapsed_s = 0.0
        self._per_kwh: Reading = NO_PRICE

    def begin(self, frame: Frame) -> None:
        """Begin a tick."""
        self._elapsed_s = 0.0
        if self._last_s is not None:
            elapsed_s = frame.monotonic_s - self._last_s
            if 0.0 < elapsed_s <= (GAP + 1) * frame.interval_s:
                self._elapsed_s = elapsed_s
        self._last_s = frame.monotonic_s
        self._per_kwh = self._prices.per_kwh_at(frame.wall_s)
        self._grown = {}
        self._forget({reading.key for reading in frame.engines})

    def gpu(self, gpu: Gpu, track: GpuTrack, engines: Sequence[Engine], alone: Missing) -> Gpu:
        """The GPU with its costs; `engines` are those on it, `alone` says why there is none."""
        count = self._gpus.get(gpu.uuid)
        elapsed_s = self._elapsed_s
        if count is None:
            count = _Count()
            self._gpus[gpu.uuid] = count
            elapsed_s = 0.0
        grown = self._growth(gpu.uuid, track.energy_j)
        self._grown[gpu.uuid] = grown
        without_energy = count.add_energy((grown,), self._per_kwh)
        unused_s = count.add_time(_is_gpu_unused(track, engines, alone), elapsed_s)
        per_hour = self._per_hour(gpu)
        return msgspec.structs.replace(
            gpu,
            cost_per_hour=per_hour,
            unused_s=unused_s,
            unused_cost=cost_of(per_hour, unused_s),
            energy_cost=self._energy_cost(count, without_energy),
        )

    def engine(self, reading: EngineReading, engine: Engine, cards: Sequence[Gpu], sharers: int) -> Engine:
        """The engine with its costs; `cards` are its GPUs, `sharers` the engines on the one with the most of them."""
        count = self._engines.get(reading.key)
        elapsed_s = self._elapsed_s
        if count is None:
            count = _Count()
            self._engines[reading.key] = count
            elapsed_s = 0.0
        unused_s = count.add_time(_is_engine_unused(engine), elapsed_s)
        per_hour = _engine_per_hour(reading, engine, cards, sharers, self._prices)
        if reading.gpu_count > len(cards):
            without_energy: Missing | None = REMOTE_POWER
        elif not cards:
            without_energy = _NO_GPU
        elif sharers > 1:
            without_energy = SHARED_GPU
        else:
            without_energy = count.add_energy([self._grown[gpu.uuid] for gpu in cards], self._per_kwh)
        rates = engine.rates
        tokens = (rates.prefill_tokens_per_s, number(rates.cached_tokens_per_s) or 0.0, rates.decode_tokens_per_s)
        costs = EngineCosts(
            cost_per_hour=per_hour,
            cost_per_million_output_tokens=per_million_tokens(per_hour, rates.decode_tokens_per_s),
            cost_per_million_all_tokens=per_million_tokens(per_hour, *tokens),
            unused_s=unused_s,
            unused_cost=cost_of(per_hour, unused_s),
            energy_j=count.energy_j if without_energy is None else without_energy,
            energy_cost=self._energy_cost(count, without_energy),
        )
        return msgspec.structs.replace(engine, costs=costs)

    def _energy_cost(self, count: _Count, without_energy: Missing | None) -> Reading:
        """The price of the energy so far; that there is no price stands before why the energy is not known."""
        if isinstance(self._per_kwh, Missing):
            return self._per_kwh
        if without_energy is not None:
            return without_energy
        return count.energy_cost

    def _per_hour(self, gpu: Gpu) -> Reading:
        price = price_of_hour(gpu.gpu_type, self._prices.per_gpu_hour)
        if gpu.parent_uuid and not isinstance(price, Missing):
            return _UNDER_MIG
        return price

    def _growth(self, uuid: str, energy_j: Reading) -> Reading:
        """Energy of a GPU since the last tick, in J."""
        if isinstance(energy_j, Missing):
            return energy_j
        grown = energy_j - self._joules.get(uuid, 0.0)
        self._joules[uuid] = energy_j
        if grown < 0.0:  # the track of the GPU began anew
            return energy_j
        return grown

    def _forget(self, keys: Container[str]) -> None:
        """Drop the counts of engines that are gone, so that memory stays flat."""
        for key in [key for key in self._engines if key not in keys]:
            del self._engines[key]


def summed_costs(engines: Sequence[Engine]) -> EngineCosts:
    """The costs of some engines together; what one of them lacks, the sum lacks."""
    if not engines:
        return EngineCosts()
    costs = [engine.costs for engine in engines]
    per_hour = plus(*(cost.cost_per_hour for cost in costs))
    output = [engine.rates.decode_tokens_per_s for engine in engines]
    prompts = [engine.rates.prefill_tokens_per_s for engine in engines]
    cached = [number(engine.rates.cached_tokens_per_s) or 0.0 for engine in engines]
    return EngineCosts(
        cost_per_hour=per_hour,
        cost_per_million_output_tokens=per_million_tokens(per_hour, *output),
        cost_per_million_all_tokens=per_million_tokens(per_hour, *prompts, *cached, *output),
        unused_s=plus(*(cost.unused_s for cost in costs)),
        unused_cost=plus(*(cost.unused_cost for cost in costs)),
        energy_j=plus(*(cost.energy_j for cost in costs)),
        energy_cost=plus(*(cost.energy_cost for cost in costs)),
    )


def host_costs(gpus: Sequence[Gpu], engines: Iterable[Engine]) -> HostCosts:
    """The sums over all GPUs of the machine; what one of them lacks, the sum lacks."""
    cards = [gpu for gpu in gpus if not gpu.parent_uuid]
    if not cards:
        return HostCosts()
    per_hour = plus(*(gpu.cost_per_hour for gpu in cards))
    output = []
    every = []
    for engine in engines_in_sums(engines):
        rates = engine.rates
        output.append(number(rates.decode_tokens_per_s))
        every += [number(rates.prefill_tokens_per_s), number(rates.cached_tokens_per_s)]
    return HostCosts(
        cost_per_hour=per_hour,
        cost_per_million_output_tokens=per_million_tokens(per_hour, _known_sum(output)),
        cost_per_million_all_tokens=per_million_tokens(per_hour, _known_sum([*output, *every])),
        unused_gpu_s=plus(*(gpu.unused_s for gpu in cards)),
        unused_cost=plus(*(gpu.unused_cost for gpu in cards)),
        energy_j=plus(*(gpu.energy_j for gpu in cards)),
        energy_cost=plus(*(gpu.energy_cost for gpu in cards)),
    )


def _known_sum(values: Iterable[float | None]) -> Reading:
    """The sum of what is known; missing where nothing is."""
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return NOT_EXPOSED


def _engine_per_hour(
    reading: EngineReading, engine: Engine, cards: Sequence[Gpu], sharers: int, prices: Prices
) -> Reading:
    """Price of an hour of all GPUs of an engine; of those on other hosts by their type."""
    if not prices.per_gpu_hour:
        return NO_PRICE
    if sharers > 1:
        return SHARED_GPU
    if reading.gpu_count > len(cards):
        if not engine.hardware.gpu_type:
            return _NO_GPU
        return times(price_of_hour(engine.hardware.gpu_type, prices.per_gpu_hour), float(reading.gpu_count))
    if not cards:
        return _NO_GPU
    return plus(*(gpu.cost_per_hour for gpu in cards))


def _is_gpu_unused(track: GpuTrack, engines: Sequence[Engine], alone: Missing) -> bool | Missing:
    """Whether no engine on a GPU runs a request, or without one no kernel runs; why that is not known."""
    if track.blank is not None:
        return track.blank
    if not engines:
        return _is_unused_without_engine(track, alone)
    unknown: Missing | None = None
    for engine in engines:
        unused = _is_engine_unused(engine)
        if isinstance(unused, Missing):
            unknown = unused
        elif not unused:
            return False
    if unknown is not None:
        return unknown
    return True


def _is_unused_without_engine(track: GpuTrack, alone: Missing) -> bool | Missing:
    """Whether a GPU on which no engine is known computes nothing, whoever holds it; why that is not known."""
    busy = track.reading.busy_ratio
    if not isinstance(busy, Missing):
        return busy == 0.0
    if alone.reason is Reason.NO_ENGINE:
        return is_free(track.reading)
    return alone


def _is_engine_unused(engine: Engine) -> bool | Missing:
    """Whether an engine runs no request; one that is down or sleeps runs none."""
    if engine.state is EndpointState.DOWN or engine.asleep:
        return True
    running = engine.load.running
    if isinstance(running, Missing):
        return running
    return running == 0.0
