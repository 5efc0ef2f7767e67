"""Peaks of GPUs, and the format in which an engine computes on them: the denominators of MFU and MBU."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency import flops
from gpumon.efficiency.service import no_flops
from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.specs.gpu import GpuFacts, GpuSpec
from gpumon.specs.gpus import GpuCatalogue, bandwidth_peak
from gpumon.specs.precision import Precision

_MOST_CACHED: Final = 64
"""Kinds of GPUs whose peaks are kept."""
_PRECISIONS: Final = {precision.value: precision for precision in Precision}


class Peak(msgspec.Struct, frozen=True):
    """Peaks of one GPU."""

    spec: GpuSpec | None
    bandwidth_bytes_per_s: Reading
    source: str
    unverified: bool = False
    """The FLOP/s peaks are derived, or stand in the catalogue on one source only."""
    bandwidth_unverified: bool = False

    @property
    def bandwidth_source(self) -> str:
        """The part of `source` that tells where the bandwidth comes from."""
        return self.source.rpartition("bandwidth: ")[2]


def gpu_facts(reading: GpuReading) -> GpuFacts:
    """Facts in a reading that a GPU's peaks depend on; memory that is the host's tells nothing."""
    return GpuFacts(
        reading.name,
        number(reading.vram_total_bytes) if not reading.vram_shared else None,
        number(reading.sm_count),
        number(reading.sm_clock_max_hz),
        number(reading.memory_clock_max_hz),
        number(reading.memory_bus_bits),
        reading.compute_capability,
        reading.architecture,
        number(reading.memory_peak_bytes_per_s),
    )


class Peaks:
    """Peaks of a catalogue's GPUs."""

    def __init__(self, catalogue: GpuCatalogue) -> None:
        self._catalogue = catalogue
        self._by_gpu_facts: dict[GpuFacts, Peak] = {}
        """Peaks of the GPUs so far: they are asked at each tick of each GPU."""

    def of_gpu(self, reading: GpuReading) -> Peak:
        """Peaks of a GPU by what its driver tells; under MIG a slice's share is not known."""
        if reading.mig or reading.parent_uuid:
            return Peak(None, Missing(Reason.UNDER_MIG), "")
        facts = gpu_facts(reading)
        if facts not in self._by_gpu_facts:
            if len(self._by_gpu_facts) > _MOST_CACHED:
                self._by_gpu_facts.clear()
            self._by_gpu_facts[facts] = self._peak_of(facts)
        return self._by_gpu_facts[facts]

    def _peak_of(self, facts: GpuFacts) -> Peak:
        """Peaks by the catalogue and by what the driver says."""
        spec = self._catalogue.match(facts)
        bandwidth, bandwidth_source = bandwidth_peak(facts, spec) or (Missing(Reason.UNKNOWN_GPU), "")
        if spec is None:
            return Peak(None, bandwidth, bandwidth_source)
        source = "; ".join(text for text in (spec.source, bandwidth_source) if text)
        clocked = facts.bandwidth_bytes_per_s is not None
        return Peak(spec, bandwidth, source, not spec.verified, not spec.verified and not clocked)

    def of_remote(self, reading: EngineReading) -> list[Peak]:
        """Peaks of an engine of which the type and the number of its GPUs are known, and not which these are."""
        if not reading.gpu_type or reading.gpu_count < 1:
            return []
        try:
            spec = self._catalogue.find(reading.gpu_type)
        except ValueError:
            return []
        bandwidth: Reading = spec.bandwidth_bytes_per_s or Missing(Reason.UNKNOWN_GPU)
        return [Peak(spec, bandwidth, spec.source, not spec.verified, not spec.verified)] * reading.gpu_count


def flops_peak_of(peak: Peak, reading: EngineReading) -> tuple[Reading, str]:
    """Dense peak FLOP/s of one GPU in the format that the model's matmuls run in on it, and that format's name."""
    unknown = no_flops(reading)
    if unknown is not None:
        return unknown, ""
    best = None
    if peak.spec is not None and reading.training is not None:
        precision = _PRECISIONS.get(reading.training.precision)
        if precision is not None:
            best = flops.training_peak(peak.spec, precision)
    elif peak.spec is not None and reading.llm is not None:
        best = flops.compute_peak(peak.spec, reading.llm)
    if best is not None:
        return best[0], best[1].value
    if peak.spec is None and isinstance(peak.bandwidth_bytes_per_s, Missing):
        return peak.bandwidth_bytes_per_s, ""
    return Missing(Reason.UNKNOWN_GPU), ""


def assumes(peak: Peak, reading: EngineReading) -> bool:
    """Whether the format of this engine's arithmetic on the GPU, and so its peak, is an assumption."""
    if reading.training is not None or reading.llm is None or peak.spec is None:
        return False
    return flops.assumed(peak.spec, reading.llm)
