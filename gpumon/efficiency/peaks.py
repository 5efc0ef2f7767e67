"""Peaks of GPUs, and the format in which an engine computes on them: the denominators of MFU and MBU."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency import flops
from gpumon.efficiency.service import no_flops
from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.specs.gpu import GpuFacts, GpuSpec
from gpumon.specs.gpus import BANDWIDTH_PREFIX, GpuCatalogue, bandwidth_peak
from gpumon.specs.precision import Precision

_MOST_CACHED: Final = 64
"""Kinds of GPUs whose peaks are kept."""
_PRECISIONS: Final = {precision.value: precision for precision in Precision}
"""Name of a number format, as the feed of a training run has it -> the format."""


class Peak(msgspec.Struct, frozen=True):
    """Peaks of one GPU."""

    spec: GpuSpec | None
    """The catalogue's entry, which has the FLOP/s peaks; None for a GPU that is not in it."""
    bandwidth_bytes_per_s: Reading
    source: str
    """Sources of both peaks, that of the bandwidth last."""
    bandwidth_source: str = ""
    """Source of the bandwidth; that of the FLOP/s peaks where the bandwidth has none of its own."""
    unverified: bool = False
    """The FLOP/s peaks are derived, or stand in the catalogue on one source only."""
    bandwidth_unverified: bool = False


def gpu_facts(reading: GpuReading) -> GpuFacts:
    """Facts in a reading that a GPU's peaks depend on; memory that is the host's tells nothing."""
    vram_bytes = None if reading.vram_shared else number(reading.vram_total_bytes)
    return GpuFacts(
        reading.name,
        vram_bytes,
        number(reading.sm_count),
        number(reading.sm_clock_max_hz),
        number(reading.memory_clock_max_hz),
        number(reading.memory_bus_bits),
        reading.compute_capability,
        reading.architecture,
        number(reading.memory_peak_bytes_per_s),
    )


class Peaks:
    """Peaks of GPUs by a catalogue and by what their drivers tell."""

    def __init__(self, catalogue: GpuCatalogue) -> None:
        self._catalogue = catalogue
        self._by_gpu_facts: dict[GpuFacts, Peak] = {}
        """Peaks of the kinds of GPUs seen so far: they are asked for at each tick of each GPU."""

    def of_gpu(self, reading: GpuReading) -> Peak:
        """Peaks of a GPU by what its driver tells; under MIG a slice's share is not known."""
        if reading.mig or reading.parent_uuid:
            return Peak(spec=None, bandwidth_bytes_per_s=Missing(Reason.UNDER_MIG), source="")
        facts = gpu_facts(reading)
        if facts not in self._by_gpu_facts:
            if len(self._by_gpu_facts) > _MOST_CACHED:
                self._by_gpu_facts.clear()
            self._by_gpu_facts[facts] = self._peak_of(facts)
        return self._by_gpu_facts[facts]

    def _peak_of(self, facts: GpuFacts) -> Peak:
        """Peaks by the catalogue, and the bandwidth by the driver where it tells one."""
        spec = self._catalogue.match(facts)
        bandwidth, bandwidth_text = bandwidth_peak(facts, spec) or (Missing(Reason.UNKNOWN_GPU), "")
        bandwidth_source = bandwidth_text.removeprefix(BANDWIDTH_PREFIX)
        if spec is None:
            return Peak(
                spec=None,
                bandwidth_bytes_per_s=bandwidth,
                source=bandwidth_text,
                bandwidth_source=bandwidth_source,
            )
        source = "; ".join(text for text in (spec.source, bandwidth_text) if text)
        # Worked out from this GPU's own clock and bus, or told by its driver: not taken from the catalogue.
        is_bandwidth_told = facts.bandwidth_bytes_per_s is not None
        return Peak(
            spec=spec,
            bandwidth_bytes_per_s=bandwidth,
            source=source,
            bandwidth_source=bandwidth_source or spec.source,
            unverified=not spec.verified,
            bandwidth_unverified=not spec.verified and not is_bandwidth_told,
        )

    def of_remote(self, reading: EngineReading) -> list[Peak]:
        """Peaks of an engine of which the type and the number of its GPUs are known, and not which these are."""
        if not reading.gpu_type or reading.gpu_count < 1:
            return []
        spec = self._catalogue.row(reading.gpu_type)
        if spec is None:
            return []
        bandwidth: Reading = spec.bandwidth_bytes_per_s or Missing(Reason.UNKNOWN_GPU)
        peak = Peak(
            spec=spec,
            bandwidth_bytes_per_s=bandwidth,
            source=spec.source,
            bandwidth_source=spec.source,
            unverified=not spec.verified,
            bandwidth_unverified=not spec.verified,
        )
        return [peak] * reading.gpu_count


def flops_peak_of(peak: Peak, reading: EngineReading) -> tuple[Reading, str]:
    """Dense peak FLOP/s of one GPU in the format that the model's matmuls run in on it, and that format's name."""
    unknown = no_flops(reading)
    if unknown is not None:
        return unknown, ""
    peak_and_format = None
    if peak.spec is not None and reading.training is not None:
        precision = _PRECISIONS.get(reading.training.precision)
        if precision is not None:
            peak_and_format = flops.training_peak(peak.spec, precision)
    elif peak.spec is not None and reading.llm is not None:
        peak_and_format = flops.compute_peak(peak.spec, reading.llm)
    if peak_and_format is not None:
        flops_per_s, precision = peak_and_format
        return flops_per_s, precision.value
    # The reason is that of the bandwidth: the GPU is under MIG, or not in the catalogue.
    if peak.spec is None and isinstance(peak.bandwidth_bytes_per_s, Missing):
        return peak.bandwidth_bytes_per_s, ""
    return Missing(Reason.UNKNOWN_GPU), ""


def is_format_assumed(peak: Peak, reading: EngineReading) -> bool:
    """Whether the format of this engine's arithmetic on the GPU, and so its peak, is an assumption."""
    if reading.training is not None or reading.llm is None or peak.spec is None:
        return False
    return flops.assumed(peak.spec, reading.llm)
