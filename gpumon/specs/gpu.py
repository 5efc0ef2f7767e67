"""What a GPU can do at most: peaks by number format, memory bandwidth, memory size."""

from __future__ import annotations

import msgspec

from gpumon.specs.precision import Precision


class GpuSpec(msgspec.Struct, frozen=True, array_like=True):
    """Peaks of one GPU type; FLOP/s dense (never the 2:4 sparse figure of data sheets)."""

    name: str
    """Short name, e.g. `H100 SXM 80GB`."""
    source: str
    """catalogue, catalogue (unverified), or derived; with the reason where derived."""
    architecture: str
    bandwidth_bytes_per_s: float
    """Peak of the memory; 0 where not known."""
    memory_bytes: float
    flops_per_s: dict[Precision, float]
    """Dense peak per format, with FP32 accumulation for the 16-bit ones."""
    verified: bool = True
    note: str = ""
    tdp_w: float = 0.0
