"""Sums and means over one machine, for the headline and for terminals too small for tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from gpumon.efficiency.merged import merge_things, ratio_of_sums
from gpumon.efficiency.service import engines_in_sums
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, physical_gpus

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
    """Mean over the GPUs that serve engines, weighted with their peaks; without GPUs over engines."""
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
    gpus = physical_gpus(snapshot.gpus)
    engines = snapshot.engines
    owners: Sequence[Gpu | Engine] = gpus or engines
    rows = GPU if gpus else ENGINE
    counted = engines_in_sums(engines)
    measured = [gpu for gpu in gpus if gpu.bandwidth_source.is_measured]
    bandwidth = ratio_of_sums(
        [gpu.bandwidth_bytes_per_s for gpu in measured], [gpu.bandwidth_peak_bytes_per_s for gpu in measured]
    )
    with_vram = [gpu for gpu in gpus if not isinstance(gpu.reading.vram_used_bytes, Missing)]
    return MachineTotals(
        gpus=len(gpus),
        engines=len(engines),
        engines_up=number_in(engines, _ANSWERING_STATES),
        busy_ratio=_over_things(GPU, gpus, "busy_ratio"),
        mfu_ratio=_over_things(rows, owners, "mfu_ratio"),
        mbu_ratio=_over_things(rows, owners, "mbu_ratio"),
        decode_tokens_per_s=_over_things(ENGINE, counted, "decode_tokens_per_s"),
        trained_tokens_per_s=_over_things(ENGINE, counted, "trained_tokens_per_s"),
        sm_active_ratio=_over_things(GPU, gpus, "sm_active_ratio"),
        tensor_active_ratio=_over_things(GPU, gpus, "tensor_active_ratio"),
        bandwidth_ratio=bandwidth.value if bandwidth.gpus else NOT_EXPOSED,
        vram_used_bytes=_over_things(GPU, gpus, "vram_used_bytes"),
        vram_total_bytes=_over_things(GPU, with_vram, "vram_total_bytes"),
        power_w=_over_things(GPU, gpus, "power_w"),
    )


def number_in(things: Iterable[Gpu | Engine], states: Collection[GpuState | EndpointState]) -> int:
    """Number of GPUs or engines in one of the states."""
    return sum(value_of(thing, "state") in states for thing in things)


def _over_things(rows: Figures, things: Sequence[Gpu | Engine], field: str) -> Reading:
    """A figure of the things of which it is known, by the rule of its row; missing where it is known of none."""
    known = merge_things(rows[field], things)
    return known.value if known.gpus else NOT_EXPOSED
