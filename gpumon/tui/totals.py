"""Sums and means over one machine, for the headline and for terminals too small for tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
    owners: Sequence[Gpu | Engine] = gpus or engines
    counted = engines_in_sums(engines)
    return MachineTotals(
        gpus=len(gpus),
        engines=len(engines),
        engines_up=number_in(engines, _ANSWERING_STATES),
        busy_ratio=_mean(_values(gpus, "busy_ratio")),
        mfu_ratio=_mean(_values(owners, "mfu_ratio")),
        mbu_ratio=_mean(_values(owners, "mbu_ratio")),
        decode_tokens_per_s=_sum(_values(counted, "decode_tokens_per_s")),
        trained_tokens_per_s=_sum(_values(counted, "trained_tokens_per_s")),
        sm_active_ratio=_mean(_values(gpus, "sm_active_ratio")),
        tensor_active_ratio=_mean(_values(gpus, "tensor_active_ratio")),
        bandwidth_ratio=_mean(_measured_bandwidths(gpus)),
        vram_used_bytes=_sum(_values(gpus, "vram_used_bytes")),
        vram_total_bytes=_sum(_totals_of_known_vram(gpus)),
        power_w=_sum(_values(gpus, "power_w")),
    )


def _values(things: Iterable[Gpu | Engine], field: str) -> list[Reading]:
    """One figure of all things."""
    return [value_of(thing, field) for thing in things]


def _measured_bandwidths(gpus: Iterable[Gpu]) -> list[Reading]:
    """Memory bandwidth over its peak, of the GPUs that measure it."""
    measured = [gpu for gpu in gpus if gpu.bandwidth_source in _MEASURED]
    return [divide(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s) for gpu in measured]


def _totals_of_known_vram(gpus: Iterable[Gpu]) -> list[Reading]:
    """Memory of the GPUs of which it is known how much is in use."""
    return [gpu.vram_total_bytes for gpu in gpus if not isinstance(gpu.vram_used_bytes, Missing)]


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
