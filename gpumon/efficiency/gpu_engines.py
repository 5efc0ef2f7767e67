"""What the engines on a GPU make of it: their shares added up, the peak of their arithmetic, tokens per joule."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpumon.efficiency.engine import Peak, flops_peak_of, plus
from gpumon.efficiency.engine_view import per
from gpumon.readings.frame import EndpointState, EngineReading, GpuReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.specs.precision import Precision

_UNMEASURED = Missing(Reason.UNKNOWN_GPU, "nobody has measured it on this type of GPU in this format")
_SEVERAL = Missing(Reason.NOT_MODELLED, "its engines compute in several precisions, each with a peak of its own")


def of_engines(reading: GpuReading, parts: list[Reading], alone: Missing) -> Reading:
    """What its engines do together; `alone` where there is none."""
    if reading.mig or reading.parent_uuid:
        return Missing(Reason.UNDER_MIG)
    return plus(*parts) if parts else alone


def peak_and_precision(
    reading: GpuReading, peak: Peak, read: Sequence[EngineReading], alone: Missing
) -> tuple[Reading, str]:
    """Peak FLOP/s at the precision of the engines' arithmetic, and that precision."""
    if reading.mig or reading.parent_uuid:
        return Missing(Reason.UNDER_MIG), ""
    found = [flops_peak_of(peak, engine) for engine in read]
    if not found:
        return alone, ""
    unknown = next((value for value, _ in found if isinstance(value, Missing)), None)
    names = "+".join(sorted({name for _, name in found}))
    if unknown is not None:
        return unknown, ""
    return found[0][0] if len({value for value, _ in found}) == 1 else _SEVERAL, names


def achievable_ratio(peak: Peak, flops_peak: Reading, precision: str) -> Reading:
    """Share of that peak that products of large matrices reached; missing where nobody measured it."""
    if isinstance(flops_peak, Missing):
        return flops_peak
    formats = map(Precision, precision.split("+"))
    ratios = {peak.spec.achievable_ratio(each) for each in formats} if peak.spec is not None else {None}
    ratio = ratios.pop()
    return _UNMEASURED if ratio is None or ratios else ratio


def tokens_per_j(engines: Sequence[Engine], power_w: Reading) -> Reading:
    """Tokens generated per joule: of an engine on several GPUs, this one's share."""
    return per(
        plus(*(per(engine.rates.decode_tokens_per_s, float(len(engine.hardware.gpus))) for engine in engines)), power_w
    )


def worded(gpu: Gpu, engines: Sequence[Engine]) -> Gpu:
    """The GPU as a person reads it: with the better reason where its engine answers, but has its metrics off."""
    missing = gpu.mfu_ratio
    if not isinstance(missing, Missing) or missing.reason is not Reason.UNREACHABLE:
        return gpu
    states = {engine.state for engine in engines if engine.name in gpu.engines}
    off = Missing(Reason.OFF)
    return msgspec.structs.replace(gpu, mfu_ratio=off, mbu_ratio=off) if EndpointState.METRICS_OFF in states else gpu
