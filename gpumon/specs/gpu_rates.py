"""Peaks of a GPU whose name is in no catalogue, from its SM count, its maximum clock and the rates of its architecture.

Some names are never derived: the chips of export variants are throttled in ways that SM count and clock do not tell,
and a vGPU or a MIG slice has a share of its GPU only.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpumon.specs.gpu import GpuFacts, GpuSpec, PeaksOrigin
from gpumon.specs.precision import Precision

_EXPORT_VARIANT: Final = re.compile(r"\b(?:A800|AX800|H800|H20B?|L20|L2|B20|B30A|\d{4}[ -]?DD?)\b", re.IGNORECASE)
"""Names of GPUs made to keep under an export limit: their tensor rates are cut in ways of their own."""
_SHARED_GPU: Final = re.compile(r"^(?:NVIDIA )?GRID | MIG \d|(?<!PG\d{3})-\d+(?:[ABCQ]|CME)?$", re.IGNORECASE)
"""`GRID A100-40C`, `NVIDIA L40S-48Q`, `NVIDIA B200X-1-23CME`, `NVIDIA H200 MIG 1g.18gb`; not the boards that go by a
number, as `PG506-232`."""


class SmRate(msgspec.Struct, frozen=True):
    """Dense rates of one SM per clock."""

    architecture: str
    fp16: int
    """FP16 FLOP on professional cards; 0: far below those of FP32, and not derived."""
    geforce: int
    """FP16 FLOP on GeForce."""
    lanes: int
    """FP32 units of the vector pipes."""
    bf16: bool = True
    multiples: dict[Precision, tuple[float, float]] = {}
    """Format -> multiple of the FP16 rate on professional cards and on GeForce."""


def _fp4(professional: float, geforce: float) -> dict[Precision, tuple[float, float]]:
    """Multiples of both FP4 formats."""
    return dict.fromkeys((Precision.MXFP4, Precision.NVFP4), (professional, geforce))


# Format -> multiples of the FP16 rate on professional cards and on GeForce.
_INT8 = {Precision.INT8: (2.0, 4.0)}
_FP8 = {Precision.FP8: (2.0, 2.0)}
# On GeForce Blackwell FP8 is measured near four times FP16 with FP32 accumulation, twice the whitepaper's figure.
_FP8_BLACKWELL = {Precision.FP8: (2.0, 4.0)}

_RATES: Final[dict[str, SmRate]] = {
    "6.0": SmRate(architecture="Pascal", fp16=256, geforce=256, lanes=64, bf16=False),
    "6.1": SmRate(architecture="Pascal", fp16=0, geforce=0, lanes=128, bf16=False),
    "7.0": SmRate(architecture="Volta", fp16=1024, geforce=1024, lanes=64, bf16=False),
    "7.5": SmRate(architecture="Turing", fp16=1024, geforce=512, lanes=64, bf16=False, multiples=_INT8),
    "8.0": SmRate(architecture="Ampere", fp16=2048, geforce=2048, lanes=64, multiples=_INT8),
    "8.6": SmRate(architecture="Ampere", fp16=1024, geforce=512, lanes=128, multiples=_INT8),
    "8.7": SmRate(architecture="Ampere", fp16=2048, geforce=2048, lanes=128, multiples=_INT8),
    "8.9": SmRate(architecture="Ada Lovelace", fp16=1024, geforce=512, lanes=128, multiples=_INT8 | _FP8),
    "9.0": SmRate(architecture="Hopper", fp16=4096, geforce=4096, lanes=128, multiples=_INT8 | _FP8),
    "10.0": SmRate(
        architecture="Blackwell", fp16=8192, geforce=8192, lanes=128, multiples=_INT8 | _FP8 | _fp4(4.0, 4.0)
    ),
    "10.3": SmRate(architecture="Blackwell Ultra", fp16=8192, geforce=8192, lanes=128, multiples=_FP8 | _fp4(6.0, 6.0)),
    "11.0": SmRate(
        architecture="Blackwell", fp16=8192, geforce=8192, lanes=128, multiples=_INT8 | _FP8 | _fp4(4.0, 4.0)
    ),
    "12.0": SmRate(
        architecture="Blackwell", fp16=1024, geforce=512, lanes=128, multiples=_INT8 | _FP8_BLACKWELL | _fp4(4.0, 8.0)
    ),
    "12.1": SmRate(
        architecture="Blackwell", fp16=1024, geforce=1024, lanes=128, multiples=_INT8 | _FP8 | _fp4(4.0, 4.0)
    ),
}
"""Compute capability -> rates: 1024 Volta, professional Turing and GA10x/AD10x/GB20x, 512 their GeForce versions,
2048 GA100, 4096 GH100, 8192 GB100 and Thor; each holds against the catalogue's rows (`tests/specs/test_gpus.py`)."""


def why_never_derived(name: str) -> str:
    """Why the peaks of a GPU of this name are not to be derived; empty where they are."""
    if _SHARED_GPU.search(name):
        return "a vGPU or a slice, which has a share of its GPU"
    if _EXPORT_VARIANT.search(name):
        return "an export variant, whose rates do not follow from SMs and clock; add a [[gpu]] table to the config"
    return ""


def derive_spec(facts: GpuFacts) -> GpuSpec | None:
    """Peaks of a GPU that is not in the catalogue, as far as they can be derived; None where nothing is known.

    SM count x rate x maximum SM clock; the rates reproduce the data sheets within 1.6% at the rated clock.
    """
    rate = _RATES.get(facts.compute_capability)
    flops, how = _derived_flops(facts, rate)
    bandwidth = facts.bandwidth_bytes_per_s or 0.0
    if not flops and not bandwidth:
        return None
    architecture = rate.architecture if rate is not None else ""
    return GpuSpec(
        name=facts.name.removeprefix("NVIDIA "),
        architecture=architecture,
        bandwidth_bytes_per_s=bandwidth,
        memory_bytes=facts.memory_total_bytes or 0.0,
        flops_per_s=flops,
        origin=PeaksOrigin.DERIVED,
        verified=False,
        how=how,
        note="not in the catalogue; the driver's maximum clock can be above the rated one",
    )


def _derived_flops(facts: GpuFacts, rate: SmRate | None) -> tuple[dict[Precision, float], str]:
    """FLOP/s by number format, and how they were worked out; or none, and why."""
    reason = why_never_derived(facts.name)
    if reason:
        return {}, f"bandwidth only, as it is {reason}"
    if rate is None:
        return {}, "bandwidth only, the rates of its architecture are not known"
    sms = facts.sm_count or 0.0
    clock_hz = facts.max_sm_clock_hz or 0.0
    if sms <= 0.0 or clock_hz <= 0.0:
        return {}, "bandwidth only, the driver does not tell SM count and clock"
    name = facts.name.casefold()
    is_geforce = "geforce" in name or "titan" in name
    per_clock = rate.geforce if is_geforce else rate.fp16
    how = f"{sms:.0f} SM x {per_clock} FLOP/clock x {clock_hz / 1e9:.2f} GHz"
    return _flops_by_format(rate, per_clock, sms * clock_hz, is_geforce=is_geforce), how


def _flops_by_format(rate: SmRate, per_clock: int, cycles_per_s: float, *, is_geforce: bool) -> dict[Precision, float]:
    """FLOP/s by number format; `cycles_per_s` are those of all SMs."""
    flops = {Precision.FP32: cycles_per_s * rate.lanes * 2.0}  # 2: a multiplication and an addition
    if not per_clock:
        return flops
    flops[Precision.FP16] = cycles_per_s * per_clock
    if rate.bf16:
        flops[Precision.BF16] = flops[Precision.FP16]
    for precision, (professional, geforce) in rate.multiples.items():
        multiple = geforce if is_geforce else professional
        flops[precision] = flops[Precision.FP16] * multiple
    return flops
