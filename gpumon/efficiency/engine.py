"""One engine's rates to FLOPs and bytes per second, and those to shares of its GPUs' peaks: MFU and MBU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.efficiency import flops, ratio, traffic
from gpumon.efficiency.rates import Rates
from gpumon.efficiency.service import WITHOUT_DECODE, Service, service_of
from gpumon.efficiency.training import NO_COST, training_flops
from gpumon.readings.frame import DIFFUSION, MODEL_AWAITED, EndpointState, EngineReading, GpuReading
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason, number
from gpumon.specs.gpu import GpuFacts, GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision

OF_A_FEED = Missing(Reason.NOT_EXPOSED, "a training run has no model: its feed says the FLOPs of a token")
DENOISES = Missing(Reason.NOT_MODELLED, "a diffusion model: its steps denoise a canvas and are no tokens")
IMPOSSIBLE = Missing(Reason.INVALID, "these tokens need more FLOP/s than its GPUs have")
_PRECISIONS = {precision.value: precision for precision in Precision}


class Peak(NamedTuple):
    """What one GPU can do at most."""

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
    """What a reading tells of the things that a GPU's peaks depend on; memory that is the host's tells nothing."""
    return GpuFacts(
        reading.name,
        number(reading.vram_total_bytes) if not reading.vram_shared else None,
        number(reading.sm_count),
        number(reading.sm_clock_max_hz),
        number(reading.memory_clock_max_hz),
        number(reading.memory_bus_bits),
        reading.compute_capability,
        reading.architecture,
    )


class Work(NamedTuple):
    """FLOPs and bytes per second that the tokens needed, over all GPUs of the engine."""

    prefill_flops: Reading
    decode_flops: Reading
    flops: Reading
    """All of them."""
    bytes: Reading
    single_stream_bytes: Reading
    weight_bytes: Reading
    """The part of `bytes` that is weights; the rest is KV cache."""
    flops_per_decode_token: Reading
    """At the mean context."""
    kv_bytes_per_token: Reading
    least_flops: float = 0.0
    """What all tokens that are known of need whatever their context: without attention and LM head."""


def work(reading: EngineReading, found: Rates, tp: int) -> Work:
    """FLOPs and bytes per second of an engine's rates; each `Missing` says which input was not there."""
    if found.service is Service.GENERATION:
        return _generation(reading, found, tp)
    no_decode, no_bytes = WITHOUT_DECODE[found.service], _NO_BYTES[found.service]
    prefill: Reading = no_decode
    if found.service is Service.TRAINING:
        total = training_flops(reading, found.counted["trained_tokens_per_s"])
    elif found.service is Service.ENCODING:
        prefill = total = _encoding_flops(reading, found)
    else:
        total = no_bytes
    least = 0.0 if reading.llm is None else _least_flops(reading.llm, found)
    return Work(prefill, no_decode, total, no_bytes, no_bytes, no_bytes, no_decode, no_decode, least)


_NO_BYTES = {
    Service.ENCODING: Missing(Reason.NOT_MODELLED, "how often an encoder reads its weights is not exported"),
    Service.OTHER: Missing(Reason.NOT_MODELLED, "it serves no language model"),
    Service.TRAINING: Missing(Reason.NOT_MODELLED, "what a training step reads is not modelled"),
}


def _generation(reading: EngineReading, found: Rates, tp: int) -> Work:
    llm = reading.llm
    if llm is None:
        why = no_model(reading)
        return Work(why, why, why, why, why, why, why, why)
    kv = kv_precision(reading)
    single: Reading = found.decode
    if not isinstance(found.decode, Missing):
        single = traffic.single_stream_bytes_per_s(llm, found.decode)
    per_token: Reading = found.context
    if not isinstance(found.context, Missing):
        per_token = flops.decode_flops_per_token(llm, found.context)
    weights, moved = _bytes(llm, found, tp, kv)
    prefill, decode = _prefill_flops(llm, found), _decode_flops(found, per_token)
    if DIFFUSION in reading.info:
        weights = moved = decode = single = per_token = DENOISES
    return Work(
        prefill_flops=prefill,
        decode_flops=decode,
        flops=plus(prefill, decode),
        bytes=moved,
        single_stream_bytes=single,
        weight_bytes=weights,
        flops_per_decode_token=per_token,
        kv_bytes_per_token=traffic.kv_bytes_per_token(llm, kv),
        least_flops=_least_flops(llm, found),
    )


def kv_precision(reading: EngineReading) -> Precision | None:
    """Format of the KV cache where the engine says that it is another than the model's."""
    return Precision.FP8 if reading.info.get("cache_dtype", "").startswith("fp8") else None


def _prefill_flops(llm: LlmSpec, found: Rates) -> Reading:
    if isinstance(found.prefill, Missing) or found.prefill == 0.0:
        return found.prefill
    if isinstance(found.prompt_length, Missing):
        return Missing(Reason.NO_CONTEXT)
    cached = number(found.cached) or 0.0
    hit = cached / (cached + found.prefill)
    per_token = flops.prefill_flops_per_token(llm, found.prompt_length * (1 - hit), found.prompt_length * hit)
    return found.prefill * per_token + (number(found.prompts) or 0.0) * flops.head_flops(llm)


def _least_flops(llm: LlmSpec, found: Rates) -> float:
    tokens = sum(number(rate) or 0.0 for rate in (found.prefill, found.decode))
    return tokens * 2.0 * max(0.0, llm.matmul_params - llm.head_params)


def _encoding_flops(reading: EngineReading, found: Rates) -> Reading:
    """Prefill without an LM head; which tokens an encoder's token sees is a trait of its model."""
    llm = reading.llm
    if llm is None or isinstance(found.prefill, Missing) or found.prefill == 0.0:
        return no_model(reading) if llm is None else found.prefill
    if isinstance(found.prompt_length, Missing):
        return Missing(Reason.NO_CONTEXT)
    return found.prefill * flops.prefill_flops_per_token(llm, found.prompt_length)


def _decode_flops(found: Rates, per_token: Reading) -> Reading:
    if isinstance(found.decode, Missing) or found.decode == 0.0:
        return found.decode
    if isinstance(per_token, Missing):
        return Missing(Reason.NO_CONTEXT)
    return found.decode * per_token


def _bytes(llm: LlmSpec, found: Rates, tp: int, kv: Precision | None) -> tuple[Reading, Reading]:
    """Bytes per second of the weights alone, and of weights and KV cache."""
    if isinstance(found.decode, Missing) or found.decode == 0.0:
        return found.decode, found.decode
    if isinstance(found.steps, Missing):
        return found.steps, found.steps
    if found.steps <= 0.0:
        idle = Missing(Reason.IDLE)
        return idle, idle
    weights = traffic.weight_bytes_per_s(llm, found.steps, found.decode, found.spread)
    if isinstance(found.context, Missing):
        return weights, Missing(Reason.NO_CONTEXT)
    moved = traffic.step_bytes_per_s(
        llm, found.steps, found.decode, found.context, found.tokens_per_step, max(tp, 1), kv, found.spread
    )
    return weights, moved


class Shares(NamedTuple):
    """MFU and MBU of an engine, and the precision that decided the FLOP/s peak."""

    mfu_prefill: Reading
    mfu_decode: Reading
    mfu: Reading
    mbu: Reading
    mbu_single_stream: Reading
    precision: str
    flops_peak: Reading
    """Sum over the GPUs, as that of the bandwidth."""
    bandwidth_peak: Reading
    unverified: bool = False
    bandwidth_unverified: bool = False


def no_model(reading: EngineReading) -> Missing:
    """Why an engine has no model: it is still looked up, not known, or nobody answers who could tell it."""
    if reading.training is not None:
        return OF_A_FEED
    if MODEL_AWAITED in reading.info:
        return WARMING_UP
    unasked = reading.state is not EndpointState.OK and "model_missing" not in reading.info
    return Missing(Reason.UNREACHABLE if unasked else Reason.UNKNOWN_MODEL)


def no_flops(reading: EngineReading) -> Missing | None:
    """Why no FLOPs can be worked out of what an engine does; None where they can."""
    service = service_of(reading)
    if service is Service.TRAINING:
        return NO_COST if reading.training is None else None
    if service is Service.OTHER:
        return _NO_BYTES[service]
    return no_model(reading) if reading.llm is None else None


def shares(reading: EngineReading, done: Work, peaks: Sequence[Peak]) -> Shares:
    """FLOPs and bytes as shares of the peaks of the engine's GPUs."""
    if not peaks:
        no_gpu = Missing(Reason.NO_GPU)
        unknown = no_flops(reading)
        none = no_gpu if unknown is None else unknown
        return Shares(none, none, none, none, none, "", no_gpu, no_gpu)
    flops_peak, precision = _flops_peak(reading, peaks)
    bandwidth = plus(*(peak.bandwidth_bytes_per_s for peak in peaks))
    mfu = _share(ratio.mfu, done.flops, flops_peak)
    if isinstance(mfu, Missing) and done.least_flops > (number(flops_peak) or math.inf):
        mfu = IMPOSSIBLE
    return Shares(
        _share(ratio.mfu, done.prefill_flops, flops_peak),
        _share(ratio.mfu, done.decode_flops, flops_peak),
        mfu,
        _share(ratio.mbu, done.bytes, bandwidth),
        _share(ratio.mbu, done.single_stream_bytes, bandwidth),
        precision,
        flops_peak,
        bandwidth,
        any(peak.unverified or assumes(peak, reading) for peak in peaks),
        any(peak.bandwidth_unverified for peak in peaks),
    )


def _flops_peak(reading: EngineReading, peaks: Sequence[Peak]) -> tuple[Reading, str]:
    total, names = 0.0, set()
    for peak in peaks:
        flops_peak, precision = flops_peak_of(peak, reading)
        if isinstance(flops_peak, Missing):
            return flops_peak, ""
        total += flops_peak
        names.add(precision)
    return total, "+".join(sorted(names))


def flops_peak_of(peak: Peak, reading: EngineReading) -> tuple[Reading, str]:
    """Dense peak FLOP/s of one GPU in the format that the model's matmuls run in on it, and that format's name."""
    unknown = no_flops(reading)
    if unknown is not None:
        return unknown, ""
    found = None if peak.spec is None else _arithmetic(peak.spec, reading)
    if found is None:
        known = isinstance(peak.bandwidth_bytes_per_s, Missing) and peak.spec is None
        return peak.bandwidth_bytes_per_s if known else Missing(Reason.UNKNOWN_GPU), ""
    return found[0], found[1].value


def _arithmetic(gpu: GpuSpec, reading: EngineReading) -> tuple[float, Precision] | None:
    if reading.training is not None:
        precision = _PRECISIONS.get(reading.training.precision)
        return None if precision is None else flops.training_peak(gpu, precision)
    return None if reading.llm is None else flops.compute_peak(gpu, reading.llm)


def assumes(peak: Peak, reading: EngineReading) -> bool:
    """Whether the format of this engine's arithmetic on the GPU, and so its peak, is an assumption."""
    if reading.training is not None or reading.llm is None or peak.spec is None:
        return False
    return flops.assumed(peak.spec, reading.llm)


def _share(of: Callable[[float, float, float], float], part: Reading, whole: Reading) -> Reading:
    if isinstance(part, Missing):
        return part
    if isinstance(whole, Missing):
        return whole
    return of(part, 1, whole) if whole > 0 else Missing(Reason.UNKNOWN_GPU)


def plus(*parts: Reading) -> Reading:
    """The sum; the first `Missing` where one part is missing, so that nothing enters a sum silently."""
    total = 0.0
    for part in parts:
        if isinstance(part, Missing):
            return part
        total += part
    return total
