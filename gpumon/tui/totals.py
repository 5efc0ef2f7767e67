"""Sums and means over one machine, for the headline and for terminals too small for tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from gpumon.efficiency.ratio import divide
from gpumon.efficiency.service import engines_in_sums
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Snapshot

SILENT_STATES: Final = frozenset(
    {
        EndpointState.UNAUTHORIZED,
        EndpointState.METRICS_OFF,
        EndpointState.NOT_METRICS,
        EndpointState.WRONG_ENGINE,
        EndpointState.TOO_LARGE,
    }
)
"""States of an engine that answers, but gives no figures."""
DOWN_STATES: Final = frozenset(EndpointState) - {EndpointState.OK, EndpointState.STARTING} - SILENT_STATES
"""States of an engine that serves nobody, as far as is known."""
_ANSWERING_STATES: Final = SILENT_STATES | {EndpointState.OK}
"""States of an engine that answers."""


_MEASURED: Final = (BandwidthSource.GPM, BandwidthSource.DCGM)
"""Sources of a bandwidth that is neither modelled nor an upper bound."""


class MachineTotals(msgspec.Struct, frozen=True):
    """Figures of the whole machine; each leaves out the GPUs or engines of which it is not known."""

    gpus: int
    """Whole GPUs: no MIG slices."""
    engines: int
    engines_up: int
    """Engines that answer, with or without figures."""
    busy_ratio: Reading
    """Mean over GPUs."""
    mfu_ratio: Reading
    """Mean over the GPUs that serve engines; without GPUs over engines."""
    mbu_ratio: Reading
    """Mean over the same."""
    decode_tokens_per_s: Reading
    """Sum over engines, those that other engines serve through left out."""
    trained_tokens_per_s: Reading
    """Sum over training runs."""
    sm_active_ratio: Reading
    """Mean over GPUs."""
    tensor_active_ratio: Reading
    """Mean over GPUs."""
    bandwidth_ratio: Reading
    """Memory bandwidth over its peak, of the GPUs that measure it."""
    vram_used_bytes: Reading
    """Sum over GPUs."""
    vram_total_bytes: Reading
    """Sum over the GPUs whose memory in use is known."""
    power_w: Reading
    """Sum over GPUs."""


def machine_totals(snapshot: Snapshot) -> MachineTotals:
    """Sums and means of a snapshot."""
    gpus = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid]
    engines = snapshot.engines
    owners: Iterable[Gpu | Engine] = gpus or engines
    counted = engines_in_sums(engines)
    measured = [gpu for gpu in gpus if gpu.bandwidth_source in _MEASURED]
    return MachineTotals(
        gpus=len(gpus),
        engines=len(engines),
        engines_up=number_in(engines, _ANSWERING_STATES),
        busy_ratio=_mean(gpu.busy_ratio for gpu in gpus),
        mfu_ratio=_mean(value_of(owner, "mfu_ratio") for owner in owners),
        mbu_ratio=_mean(value_of(owner, "mbu_ratio") for owner in owners),
        decode_tokens_per_s=_sum(engine.rates.decode_tokens_per_s for engine in counted),
        trained_tokens_per_s=_sum(engine.rates.trained_tokens_per_s for engine in counted),
        sm_active_ratio=_mean(gpu.sm_active_ratio for gpu in gpus),
        tensor_active_ratio=_mean(gpu.tensor_active_ratio for gpu in gpus),
        bandwidth_ratio=_mean(divide(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s) for gpu in measured),
        vram_used_bytes=_sum(gpu.vram_used_bytes for gpu in gpus),
        vram_total_bytes=_sum(gpu.vram_total_bytes for gpu in gpus if not isinstance(gpu.vram_used_bytes, Missing)),
        power_w=_sum(gpu.power_w for gpu in gpus),
    )


def number_in(things: Iterable[Gpu | Engine], states: Collection[GpuState | EndpointState]) -> int:
    """Number of GPUs or engines in one of the states."""
    return sum(thing.state in states for thing in things)


def _known_values(readings: Iterable[Reading]) -> list[float]:
    """The readings that have a value."""
    values = []
    for reading in readings:
        if not isinstance(reading, Missing):
            values.append(reading)
    return values


def _mean(readings: Iterable[Reading]) -> Reading:
    """Mean of the readings that have a value; missing where none has."""
    values = _known_values(readings)
    if not values:
        return NOT_EXPOSED
    return sum(values) / len(values)


def _sum(readings: Iterable[Reading]) -> Reading:
    """Sum of the readings that have a value; missing where none has."""
    values = _known_values(readings)
    if not values:
        return NOT_EXPOSED
    return sum(values)
