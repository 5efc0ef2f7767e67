"""An instance as the simulation needs it: terms of a step, bounds of the engine, and a fixed delay of the TTFT."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.sizing import memory
from gpumon.sizing.accuracy import REACHED, EngineEfficiency
from gpumon.sizing.answer import Source
from gpumon.sizing.capacity import kv_pool_of, unknown_model
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import NO_SPECULATION, Curve, Mix
from gpumon.sizing.placement import domain_problem
from gpumon.sizing.roofline import InstanceSetting, prompt_s, step_cost
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.scheduler import BLOCK, EngineLimits
from gpumon.specs.gpu import GpuSpec

LARGE_GPU_BYTES: Final = 70 * 2**30
"""Memory of a GPU from which vLLM's API server takes more tokens into a step, but for the A100."""


class DefaultBounds(NamedTuple):
    """Defaults of vLLM's API server."""

    max_num_batched_tokens: int
    max_num_seqs: int


_LARGE_GPU: Final = DefaultBounds(8192, 1024)
_SMALL_GPU: Final = DefaultBounds(2048, 256)


class Setup(NamedTuple):
    """One replica of a simulation."""

    cost: StepTime
    """Terms of a step."""
    limits: EngineLimits
    delay_s: float
    """Seconds of a TTFT that no step takes: those of a single request beyond its steps."""
    notes: tuple[str, ...] = ()
    """Assumptions and sources behind the figures."""


def setup_of(instance: Instance, scenario: Scenario, catalogues: Catalogues) -> Setup:
    """The replica for an instance. Raises ValueError with what is not known, and the option that would tell it."""
    if instance.problem:
        raise ValueError(instance.problem)
    if instance.server is not None:
        domain = min(instance.server.nvlink_gpus or instance.server.gpus, instance.server.gpus)
        if instance.tp > domain:
            raise ValueError(domain_problem(instance.tp, domain))
    mix = instance.mix
    if mix is None:
        raise ValueError("lengths are not known: give --prompt and --answer (prompt_tokens, answer_tokens)")
    curve = instance.curve
    if curve is None:
        raise ValueError(f"the time of a step is not known: {_why_no_curve(instance, catalogues)}")
    cost = _step_terms_of(instance, curve, mix)
    notes: list[str] = []
    limits = _engine_limits(instance, scenario, mix, notes)
    delay_s = 0.0
    line = instance.first.line
    if line is not None:
        delay_s = max(0.0, line.ttft_s(1.0) - prompt_alone_s(cost, limits, mix))
    return Setup(cost, limits, delay_s, (*notes, *_latency_notes(instance)))


def _latency_notes(instance: Instance) -> Iterator[str]:
    """Notes on assumptions behind the latencies, and on features that are simulated in a simpler form."""
    if instance.first.line is None:
        yield "TTFT has its steps and its queue alone: the TTFT of a single request is not known"
    elif not instance.first.decides:
        yield f"TTFT was not measured on this engine: {_estimate_text(instance)}"
    if instance.source in (Source.ROOFLINE, Source.RESCALED):
        band = ""
        if instance.band:
            band = f", {instance.band.text}"
        source = "re-scaled"
        if instance.source is Source.ROOFLINE:
            source = "roofline"
        yield f"the time of a step is {source}, not measured{band}"
    if instance.speculation != NO_SPECULATION:
        yield "speculative decoding is played as its mean ITL: each step yields one token of a sequence"
    if instance.dp > 1:
        yield f"{instance.dp} data-parallel ranks are played as one engine with their KV caches and bounds together"
    if instance.workload.disaggregated is not None:
        yield "prefill and decode are played on the same instances, not disaggregated"


def step_terms(curve: Curve, setting: InstanceSetting, reached: EngineEfficiency | None = None) -> StepTime:
    """Terms of a step whose mean is the curve at the lengths of the setting. `reached`: default `REACHED`.

    The slope of a curve is the sum of what each sequence decodes, the KV cache that it reads, and its share of the
    prompts. It is split as the roofline's slope is: each part is as far from the roofline as the whole.
    """
    efficiency = reached or REACHED
    mix = setting.mix
    speculation = setting.speculation
    # All of these are for one output token.
    parts = step_cost(setting)
    without_speculation = step_cost(msgspec.structs.replace(setting, speculation=NO_SPECULATION))
    prompt_compute_s = without_speculation.prefill_s
    verified_compute_s = parts.prefill_s - prompt_compute_s  # tokens of speculation
    prompt_tokens = mix.new_tokens / mix.answer_tokens
    verified_tokens = speculation.verified / speculation.per_step
    prompt_link_s = parts.link_s * prompt_tokens / (verified_tokens + prompt_tokens)
    prompts_s = prompt_compute_s / efficiency.prefill + prompt_link_s / efficiency.link
    kv_s = parts.kv_s / efficiency.kv
    token_s = verified_compute_s / efficiency.prefill + (parts.link_s - prompt_link_s) / efficiency.link
    whole_s = prompts_s + kv_s + token_s
    scale = 1.0
    if whole_s > 0.0:
        scale = curve.slope_s / whole_s
    prompt_token_s = 0.0
    if prompt_tokens > 0.0:
        prompt_token_s = prompts_s * scale / prompt_tokens
    cost = StepTime(
        base_s=curve.base_s,
        sequence_s=token_s * scale,
        prompt_token_s=prompt_token_s,
        kv_token_s=kv_s * scale / max(1.0, mix.context_tokens),
        resident_ratio=curve.resident_ratio,
        experts=curve.experts,
        experts_per_token=curve.experts_per_token,
    )
    return _with_pairs(cost, setting)


def prompt_alone_s(cost: StepTime, limits: EngineLimits, mix: Mix) -> float:
    """Seconds that the steps of one prompt of mean length take with nothing else to do."""
    new_tokens = max(1.0, mix.new_tokens)
    steps = math.ceil(new_tokens / limits.max_num_batched_tokens)
    bases_s = cost.base_by_tokens()
    base_s = bases_s[min(round(new_tokens / steps), len(bases_s) - 1)]
    cached_tokens = mix.prompt_tokens - mix.new_tokens
    pairs = new_tokens * (cached_tokens + new_tokens / 2.0)
    return steps * base_s + cost.prompt_token_s * new_tokens + cost.pair_s * pairs


def _step_terms_of(instance: Instance, curve: Curve, mix: Mix) -> StepTime:
    """Terms of a step, by the roofline's shares, or by a typed prefill rate. Raises ValueError if neither is known."""
    rate = instance.workload.prefill_tokens_per_s
    setting = instance.setting
    if rate is None:
        if setting is None:
            raise ValueError(
                "the time of a prompt token is not known, as the model's dimensions are not: give --prefill-rate "
                "(prefill_tokens_per_s) or a [[model]] table in the config"
            )
        return step_terms(curve, setting)
    prompts_s = mix.new_tokens / mix.answer_tokens / rate
    plain = StepTime(
        base_s=curve.base_s,
        sequence_s=max(0.0, curve.slope_s - prompts_s),
        prompt_token_s=1.0 / rate,
        resident_ratio=curve.resident_ratio,
        experts=curve.experts,
        experts_per_token=curve.experts_per_token,
    )
    if setting is None:
        return plain
    by_roofline = step_terms(curve, setting)
    kv_s = min(by_roofline.kv_token_s * mix.context_tokens, plain.sequence_s)
    return plain._replace(
        sequence_s=plain.sequence_s - kv_s,
        kv_token_s=kv_s / max(1.0, mix.context_tokens),
    )


def _with_pairs(cost: StepTime, setting: InstanceSetting) -> StepTime:
    """The terms with the time of prompt tokens split into a part per token and a part per pair of tokens.

    The roofline tells the split: how much longer each token takes in a prompt of twice the length.
    """
    length = max(1.0, setting.mix.new_tokens)
    token_s = _prompt_token_s(setting, length)
    doubled_s = _prompt_token_s(setting, 2.0 * length)
    if token_s <= 0.0 or cost.prompt_token_s <= 0.0:
        return cost
    pairs_share = min(1.0, max(0.0, (doubled_s - token_s) / token_s))
    pairs_per_token = length / 2.0 + setting.mix.prompt_tokens - setting.mix.new_tokens
    return cost._replace(
        prompt_token_s=cost.prompt_token_s * (1.0 - pairs_share),
        pair_s=cost.prompt_token_s * pairs_share / pairs_per_token,
    )


def _prompt_token_s(setting: InstanceSetting, tokens: float) -> float:
    """Seconds of each token of an uncached prompt of so many, by the roofline."""
    return prompt_s(msgspec.structs.replace(setting, mix=Mix(tokens, setting.mix.answer_tokens))) / tokens


def _engine_limits(instance: Instance, scenario: Scenario, mix: Mix, notes: list[str]) -> EngineLimits:
    """Bounds of the engine: typed, or as measured, or else the engine's defaults, which a note is added about.

    Raises ValueError where the size of the KV cache is not known.
    """
    kv_blocks = _kv_blocks(instance, scenario, mix)
    seen = instance.seen
    defaults = default_bounds(instance.gpu)
    # Each data-parallel rank is an engine with these defaults; typed and measured bounds are of the whole instance.
    default_tokens = defaults.max_num_batched_tokens * instance.dp
    default_seqs = defaults.max_num_seqs * instance.dp
    max_num_seqs = instance.workload.max_num_seqs
    if not max_num_seqs and seen is not None:
        max_num_seqs = seen.max_num_seqs
    taken_defaults = []
    if max_num_seqs is None:
        max_num_seqs = default_seqs
        taken_defaults.append(f"max_num_seqs {default_seqs:,}")
    max_tokens = instance.workload.max_num_batched_tokens
    if max_tokens is None:
        max_tokens = default_tokens
        taken_defaults.append(f"max_num_batched_tokens {default_tokens:,}")
    if taken_defaults:
        notes.append(f"{' and '.join(taken_defaults)}: vLLM's default for this GPU, not typed and not seen")
    return EngineLimits(max_num_seqs, max_tokens, kv_blocks)


def _kv_blocks(instance: Instance, scenario: Scenario, mix: Mix) -> int:
    """Blocks of the KV cache, as requests of this mix fill them. Raises ValueError where its size is not known."""
    pool = kv_pool_of(instance, scenario)
    if pool is None or not math.isfinite(pool.tokens):
        raise ValueError("the size of the KV cache is not known: give --kv-tokens (kv_pool_tokens)")
    context_tokens = mix.prompt_tokens + mix.answer_tokens
    # A request may take fewer tokens of the pool than it has: window attention keeps the last ones alone. A simulation
    # counts all of its tokens, in a pool that is larger by the same factor.
    request_tokens = context_tokens
    if instance.llm is not None:
        request_tokens = memory.request_tokens(instance.llm, context_tokens, instance.tp)
    if request_tokens <= 0.0:
        return 0
    return max(0, int(pool.tokens * context_tokens / request_tokens / BLOCK))


def default_bounds(gpu: GpuSpec | None) -> DefaultBounds:
    """Defaults of vLLM's API server on a GPU."""
    if gpu is not None and gpu.memory_bytes >= LARGE_GPU_BYTES and "A100" not in gpu.name:
        return _LARGE_GPU
    return _SMALL_GPU


def _why_no_curve(instance: Instance, catalogues: Catalogues) -> str:
    """Why the time of a step is not known, and what would help."""
    unknown = unknown_model(instance.workload.model, catalogues)
    if unknown:
        return unknown
    return next(iter(instance.notes), "") or "import a load test (gpumon profiles add) or give a known model and GPU"


def _estimate_text(instance: Instance) -> str:
    """Basis of an estimated TTFT, with its error band."""
    band = instance.first.band
    basis = instance.first.basis or "estimate"
    if band:
        return f"{basis}, {band.text}"
    return basis
