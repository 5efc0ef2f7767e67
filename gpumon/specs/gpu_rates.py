"""FLOP per clock and SM by architecture: peaks of a GPU whose name is in no catalogue."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.specs.precision import Precision


class SmRate(msgspec.Struct, frozen=True):
    """Dense rates of one SM: FP16 FLOP per clock (professional and GeForce cards), and multiples of that rate."""

    architecture: str
    fp16: int
    geforce: int
    lanes: int
    """FP32 units of the vector pipes."""
    bf16: bool = True
    wider: dict[Precision, tuple[float, float]] = {}
    """Format -> multiple of the FP16 rate on professional cards and on GeForce."""


def derived_flops(
    name: str, sm_count: float | None, max_sm_clock_hz: float | None, compute_capability: str
) -> tuple[dict[Precision, float], str, str]:
    """FLOP/s by format, how they were found, and the architecture; no FLOP/s where an input is missing.

    SM count x rate x maximum SM clock; the rates reproduce the data sheets within 1.6 % at the rated clock.
    """
    rate = _RATES.get(compute_capability) or _RATES.get(compute_capability.split(".", maxsplit=1)[0])
    if rate is None or not sm_count or not max_sm_clock_hz or sm_count < 0 or max_sm_clock_hz < 0:
        return {}, "bandwidth only, the driver does not tell SM count and clock", rate.architecture if rate else ""
    consumer = "geforce" in name.casefold() or "titan" in name.casefold()
    per_clock = rate.geforce if consumer else rate.fp16
    cycles = sm_count * max_sm_clock_hz
    flops = {Precision.FP32: cycles * rate.lanes * 2.0}
    if per_clock:
        flops[Precision.FP16] = cycles * per_clock
        if rate.bf16:
            flops[Precision.BF16] = flops[Precision.FP16]
        for precision, multiples in rate.wider.items():
            flops[precision] = flops[Precision.FP16] * multiples[consumer]
    how = f"{sm_count:.0f} SM x {per_clock} FLOP/clock x {max_sm_clock_hz / 1e9:.2f} GHz"
    return flops, how, rate.architecture


def _fp4(professional: float, geforce: float) -> dict[Precision, tuple[float, float]]:
    return dict.fromkeys((Precision.MXFP4, Precision.NVFP4), (professional, geforce))


_INT8 = {Precision.INT8: (2.0, 4.0)}
_FP8 = {Precision.FP8: (2.0, 2.0)}
# On GeForce Blackwell FP8 is measured near four times FP16 with FP32 accumulation, twice the whitepaper's figure.
_FP8_BLACKWELL = {Precision.FP8: (2.0, 4.0)}

_RATES: Final[dict[str, SmRate]] = {
    "6": SmRate("Pascal", 0, 0, 64, bf16=False),
    "7.0": SmRate("Volta", 1024, 1024, 64, bf16=False),
    "7.5": SmRate("Turing", 1024, 512, 64, bf16=False, wider=_INT8),
    "8.0": SmRate("Ampere", 2048, 2048, 64, wider=_INT8),
    "8.6": SmRate("Ampere", 1024, 512, 128, wider=_INT8),
    "8.7": SmRate("Ampere", 2048, 2048, 128, wider=_INT8),
    "8.9": SmRate("Ada Lovelace", 1024, 512, 128, wider=_INT8 | _FP8),
    "9.0": SmRate("Hopper", 4096, 4096, 128, wider=_INT8 | _FP8),
    "10.0": SmRate("Blackwell", 8192, 8192, 128, wider=_INT8 | _FP8 | _fp4(4.0, 4.0)),
    "10.3": SmRate("Blackwell Ultra", 8192, 8192, 128, wider=_FP8 | _fp4(6.0, 6.0)),
    "11.0": SmRate("Blackwell", 8192, 8192, 128, wider=_INT8 | _FP8 | _fp4(4.0, 4.0)),
    "12.0": SmRate("Blackwell", 1024, 512, 128, wider=_INT8 | _FP8_BLACKWELL | _fp4(4.0, 8.0)),
    "12.1": SmRate("Blackwell", 1024, 1024, 128, wider=_INT8 | _FP8 | _fp4(4.0, 4.0)),
}
"""Compute capability -> rates: 1024 Volta, professional Turing and GA10x/AD10x/GB20x, 512 their GeForce versions,
2048 GA100, 4096 GH100, 8192 GB100 and Thor (NVML fact sheet, GPU table)."""
