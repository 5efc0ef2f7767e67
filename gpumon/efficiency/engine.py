"""One engine's polls to its shown figures: rates, latencies, FLOPs and bytes, MFU and MBU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.efficiency import flops, ratio, traffic
from gpumon.efficiency.quantiles import longest, mean, size_biased_mean
from gpumon.efficiency.windows import MOST_KEPT_S, Track
from gpumon.readings.frame import MODEL_AWAITED, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    ACCEPTED_TOKENS,
    BLOCK_PRODUCT,
    DECODE_TOKENS,
    DRAFTS,
    ITL,
    KV_USAGE,
    OUTPUT_LENGTH,
    POOL_TOKENS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PROMPT_LENGTH,
    PROMPT_TOKENS,
    RUNNING,
    STEPS,
    TTFT,
    USED_TOKENS,
)
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision

WRONG_WITHOUT = frozenset({"compressed attention", "state-space layers"})
"""Parts of an architecture without which FLOPs and bytes are wrong: no figure is shown then. Others, such as a vision
encoder, leave the text's figures right or nearly so."""


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


class Rates(NamedTuple):
    """What the engine did per second, and the sizes that its FLOPs and bytes depend on."""

    prefill: Reading
    cached: Reading
    decode: Reading
    decode_tick: Reading
    """Decode rate between the two newest polls, for charts."""
    prompts: Reading
    """Requests per second that got their first token."""
    steps: Reading
    """Steps per second, summed over the ranks."""
    group_steps: float
    """Steps per second of the rank that makes most: ranks that share experts step together."""
    steps_source: str
    context: Reading
    context_source: str
    prompt_length: Reading
    """Size-biased mean prompt length, cached tokens included."""
    tokens_per_step: float
    """Tokens per step and sequence: 1 without speculation."""
    rate_s: float
    """What the window of the rates truly spans, in seconds."""
    prefill_s: float
    """The same of the prefill rate."""
    quantile_s: float
    """The same of the quantiles."""


class Work(NamedTuple):
    """FLOPs and bytes per second that the tokens needed, over all GPUs of the engine."""

    prefill_flops: Reading
    decode_flops: Reading
    bytes: Reading
    single_stream_bytes: Reading
    weight_bytes: Reading
    """The part of `bytes` that is weights; the rest is KV cache."""
    flops_per_decode_token: Reading
    """At the mean context."""
    kv_bytes_per_token: Reading


def rates(reading: EngineReading, track: Track) -> Rates:
    """The rates of one engine over its windows."""
    prefill_s, prefill = _prefill(track)
    decode = track.rate(DECODE_TOKENS, track.rate_s)
    by_rank, steps_source = _steps(reading, track)
    context, context_source = _context(reading, track)
    ttft = track.histogram(TTFT, prefill_s)
    prompts: Reading = NOT_EXPOSED
    if ttft is not None and (pair := track.window(prefill_s)):
        prompts = ttft.count / (pair[1].monotonic_s - pair[0].monotonic_s)
    return Rates(
        prefill=prefill,
        cached=track.rate(PREFILL_CACHED, prefill_s),
        decode=decode,
        decode_tick=track.rate(DECODE_TOKENS, 0.0),
        prompts=prompts,
        steps=by_rank if isinstance(by_rank, Missing) else sum(by_rank),
        group_steps=0.0 if isinstance(by_rank, Missing) else max(by_rank, default=0.0),
        steps_source=steps_source,
        context=context,
        context_source=context_source,
        prompt_length=_prompt_length(track, prefill_s),
        tokens_per_step=_tokens_per_step(track),
        rate_s=track.length_s(track.rate_s),
        prefill_s=track.length_s(prefill_s),
        quantile_s=track.length_s(track.quantile_s),
    )


def _prefill(track: Track) -> tuple[float, Reading]:
    """Window and rate of computed prefill.

    vLLM books a whole prompt at its first token, so the window has to be as long as the longest prefill in it; until
    it is, there is no rate. The longest, not the mean: one prompt of 128k among short ones would else read as more
    than the GPUs can compute.
    """
    ttft_s = longest(track.histogram(TTFT, max(track.quantile_s, track.keep_s)))
    ttft_s = min(ttft_s, MOST_KEPT_S)
    window_s = max(track.rate_s, ttft_s)
    if track.length_s(window_s) < ttft_s:
        window_s += track.cadence_s
    track.keep_s = max(track.quantile_s, window_s)
    if track.length_s(window_s) < ttft_s:
        return window_s, track.not_yet
    return window_s, track.rate(PREFILL_COMPUTED, window_s)


def _steps(reading: EngineReading, track: Track) -> tuple[list[float] | Missing, str]:
    """Steps per second of each rank, and how they are known."""
    pair = track.window(track.rate_s)
    if pair is None:
        return track.not_yet, ""
    if reading.exact_steps:
        counted = track.rank_rates(STEPS, track.rate_s)
        span_s = track.length_s(track.rate_s)
        return counted or NOT_EXPOSED, f"{reading.live.get(STEPS, 'step counter')} over {span_s:.0f} s"
    estimated = []
    for rank in pair[1].ranks:
        duty = number(track.duty(rank, track.rate_s))
        itl_s = track.rank_mean(rank, ITL, track.rate_s)
        if duty is None or (isinstance(itl_s, Missing) and itl_s.reason is not Reason.IDLE):
            return NOT_EXPOSED, ""
        if not isinstance(itl_s, Missing) and itl_s > 0:
            estimated.append(duty / itl_s)
    return estimated or Missing(Reason.IDLE), "estimated: duty / mean ITL, per rank"


def _context(reading: EngineReading, track: Track) -> tuple[Reading, str]:
    """Mean tokens in context of a running sequence: KV pool, else recent request lengths, else the config."""
    used = running = 0.0
    exact = not _shared_pool(reading)
    for point in track.inside(track.rate_s):
        for rank in point.ranks.values():
            gauges = rank.gauges
            running += gauges.get(RUNNING, 0.0)
            if USED_TOKENS in gauges:
                used += gauges[USED_TOKENS]
            elif KV_USAGE in gauges and POOL_TOKENS in gauges:
                used += gauges[KV_USAGE] * gauges[POOL_TOKENS]
            else:
                exact = False
    if exact and running > 0 and used > 0:
        return used / running, "KV tokens in use / running"
    lengths = (
        mean(track.histogram(PROMPT_LENGTH, track.quantile_s)),
        mean(track.histogram(OUTPUT_LENGTH, track.quantile_s)),
    )
    prompt, output = (number(length) for length in lengths)
    if prompt is not None and output is not None:
        span_s = track.length_s(track.quantile_s)
        return prompt + output / 2, f"mean prompt + half the mean answer of the last {span_s:.0f} s"
    if not isinstance(reading.context_tokens, Missing):
        return reading.context_tokens, "config"
    return Missing(Reason.NO_CONTEXT if running > 0 else Reason.IDLE), ""


def pool_tokens(reading: EngineReading, track: Track) -> Reading:
    """Tokens that the KV cache of all ranks holds."""
    shared = Missing(Reason.NOT_MODELLED, "layers of several kinds share the pool: its blocks are not tokens")
    return shared if _shared_pool(reading) else track.gauge(POOL_TOKENS)


def _shared_pool(reading: EngineReading) -> bool:
    """Whether layers of several kinds share a pool of which only the blocks are known."""
    llm = reading.llm
    mixed = llm is not None and (llm.window_layers > 0 or llm.linear_layers > 0)
    return mixed and reading.live.get(POOL_TOKENS, "").endswith(BLOCK_PRODUCT)


def _prompt_length(track: Track, window_s: float) -> Reading:
    biased = size_biased_mean(track.histogram(PROMPT_LENGTH, track.quantile_s))
    if biased is not None:
        return biased
    prompts = track.histogram(TTFT, window_s)
    tokens = number(track.rate(PROMPT_TOKENS, window_s))
    pair = track.window(window_s)
    if prompts is None or pair is None or tokens is None or prompts.count <= 0:
        return Missing(Reason.IDLE)
    return tokens * (pair[1].monotonic_s - pair[0].monotonic_s) / prompts.count


def _tokens_per_step(track: Track) -> float:
    drafts, accepted = (number(track.rate(quantity, track.rate_s)) for quantity in (DRAFTS, ACCEPTED_TOKENS))
    return 1.0 + accepted / drafts if drafts and accepted else 1.0


def work(reading: EngineReading, found: Rates, tp: int) -> Work:
    """FLOPs and bytes per second of an engine's rates; each `Missing` says which input was not there."""
    llm = reading.llm
    if llm is None or WRONG_WITHOUT & set(llm.not_modelled):
        why = no_model(reading) if llm is None else Missing(Reason.NOT_MODELLED)
        return Work(why, why, why, why, why, why, why)
    kv = kv_precision(reading)
    single: Reading = found.decode
    if not isinstance(found.decode, Missing):
        single = traffic.single_stream_bytes_per_s(llm, found.decode)
    per_token: Reading = found.context
    if not isinstance(found.context, Missing):
        per_token = flops.decode_flops_per_token(llm, found.context)
    weights, moved = _bytes(llm, found, tp, kv)
    return Work(
        prefill_flops=_prefill_flops(llm, found),
        decode_flops=_decode_flops(found, per_token),
        bytes=moved,
        single_stream_bytes=single,
        weight_bytes=weights,
        flops_per_decode_token=per_token,
        kv_bytes_per_token=traffic.kv_bytes_per_token(llm, kv),
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
    weights = traffic.weight_bytes_per_s(llm, found.steps, found.decode, found.group_steps)
    if isinstance(found.context, Missing):
        return weights, Missing(Reason.NO_CONTEXT)
    moved = traffic.step_bytes_per_s(
        llm, found.steps, found.decode, found.context, found.tokens_per_step, max(tp, 1), kv, found.group_steps
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
    """Why an engine has no model: its dimensions are still looked up, or not known."""
    return WARMING_UP if MODEL_AWAITED in reading.info else Missing(Reason.UNKNOWN_MODEL)


def shares(reading: EngineReading, done: Work, peaks: Sequence[Peak]) -> Shares:
    """FLOPs and bytes as shares of the peaks of the engine's GPUs."""
    if not peaks:
        no_gpu = Missing(Reason.NO_GPU)
        none = no_model(reading) if reading.llm is None else no_gpu
        return Shares(none, none, none, none, none, "", no_gpu, no_gpu)
    flops_peak, precision = _flops_peak(reading, peaks)
    prefill = _share(ratio.mfu, done.prefill_flops, flops_peak)
    decode = _share(ratio.mfu, done.decode_flops, flops_peak)
    bandwidth = plus(*(peak.bandwidth_bytes_per_s for peak in peaks))
    return Shares(
        prefill,
        decode,
        plus(prefill, decode),
        _share(ratio.mbu, done.bytes, bandwidth),
        _share(ratio.mbu, done.single_stream_bytes, bandwidth),
        precision,
        flops_peak,
        bandwidth,
        any(peak.unverified for peak in peaks),
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
    if reading.llm is None:
        return no_model(reading), ""
    found = flops.compute_peak(peak.spec, reading.llm) if peak.spec is not None else None
    if found is None:
        known = isinstance(peak.bandwidth_bytes_per_s, Missing) and peak.spec is None
        return peak.bandwidth_bytes_per_s if known else Missing(Reason.UNKNOWN_GPU), ""
    return found[0], found[1].value


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
