"""An instance as the simulation needs it: terms of a step, bounds of the engine, and a fixed delay of the TTFT."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpumon.sizing import memory
from gpumon.sizing.accuracy import REACHED, EngineEfficiency
from gpumon.sizing.answer import Source
from gpumon.sizing.capacity import kv_pool_of, unknown_model
from gpumon.sizing.engine_limits import TYPED, default_slots, step_tokens, told_slots
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import NO_SPECULATION, Curve, Mix, TtftLine
from gpumon.sizing.roofline import InstanceSetting, prompt_s, step_cost
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.simulate.batch import BLOCK
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.scheduler import EngineLimits


class Setup(NamedTuple):
    """One replica of a simulation."""

    cost: StepTime
    """Terms of a step."""
    limits: EngineLimits
    delay_s: float
    """Seconds of a TTFT that no step takes (`delay_of`)."""
    notes: tuple[str, ...] = ()
    """Assumptions and sources behind the figures."""


def setup_of(instance: Instance, scenario: Scenario, catalogues: Catalogues) -> Setup:
    """The replica for an instance. Raises ValueError with what is not known, and the option that would tell it."""
    if instance.problem:
        raise ValueError(instance.problem)
    mix = instance.mix
    if mix is None:
        raise ValueError("lengths are not known: give --prompt and --answer (prompt_tokens, answer_tokens)")
    curve = instance.model_curve
    if curve is None:
        raise ValueError(f"the time of a step is not known: {_why_no_curve(instance, catalogues)}")
    cost = _best_known_terms(instance, curve, mix)
    notes: list[str] = []
    limits = _engine_limits(instance, scenario, mix, notes)
    delay_s = 0.0
    ttft = instance.first
    if ttft.line is not None:
        delay_s = delay_of(ttft.line, cost, limits, mix)
    return Setup(cost, limits, delay_s, (*notes, *_latency_notes(instance)))


def _latency_notes(instance: Instance) -> Iterator[str]:
    """Notes on assumptions behind the latencies, and on features that are simulated in a simpler form."""
    ttft = instance.first
    if ttft.line is None:
        yield "TTFT has its steps and its queue alone: the TTFT of a single request is not known"
    elif not ttft.decides:
        errors = f", {ttft.band.text}" if ttft.band else ""
        yield f"TTFT was not measured on this engine: {ttft.basis or 'estimate'}{errors}"
    if instance.source in (Source.ROOFLINE, Source.RESCALED):
        band = f", {instance.band.text}" if instance.band else ""
        source = "roofline" if instance.source is Source.ROOFLINE else "re-scaled"
        yield f"the time of a step is {source}, not measured{band}"
    if instance.speculation != NO_SPECULATION:
        yield "speculative decoding is played as its mean ITL: each step yields one token of a sequence"
    if instance.pp > 1:
        yield f"{instance.pp} pipeline stages are played as one engine, whose steps have the sequences of all of them"
    if instance.dp > 1:
        yield f"{instance.dp} data-parallel ranks are played as one engine with their KV caches and bounds together"
    if instance.workload.disaggregated is not None:
        yield "prefill and decode are played on the same instances: --pools plays them apart"


class _SlopeParts(NamedTuple):
    """Parts of the slope of a curve by the roofline, in seconds per output token."""

    prompts_s: float
    """The output token's share of the prompts: their compute and their traffic between GPUs."""
    kv_s: float
    """Read of the KV cache."""
    decode_s: float
    """The tokens of a decoding sequence: their traffic between GPUs, and the compute of those that are drafted."""

    @property
    def whole_s(self) -> float:
        """The slope."""
        return self.prompts_s + self.kv_s + self.decode_s


def step_terms(curve: Curve, setting: InstanceSetting, reached: EngineEfficiency | None = None) -> StepTime:
    """Terms of a step whose mean is the curve at the lengths of the setting. `reached`: default `REACHED`.

    The slope of a curve is the sum of what each sequence decodes, the KV cache that it reads, and its share of the
    prompts. It is split as the roofline's slope is: each part is as far from the roofline as the whole.
    """
    mix = setting.mix
    parts = _slope_parts(setting, reached or REACHED)
    scale = curve.slope_s / parts.whole_s if parts.whole_s > 0.0 else 1.0
    prompt_tokens = mix.new_tokens / mix.answer_tokens
    prompt_token_s = parts.prompts_s * scale / prompt_tokens if prompt_tokens > 0.0 else 0.0
    cost = StepTime(
        base_s=curve.base_s,
        sequence_s=parts.decode_s * scale,
        prompt_token_s=prompt_token_s,
        kv_token_s=parts.kv_s * scale / max(1.0, mix.context_tokens),
        resident_ratio=curve.resident_ratio,
        experts=curve.experts,
        experts_per_token=curve.experts_per_token,
    )
    return _with_pairs(cost, setting)


def _slope_parts(setting: InstanceSetting, efficiency: EngineEfficiency) -> _SlopeParts:
    """Parts of the slope of the roofline's curve. All figures are per output token."""
    mix = setting.mix
    speculation = setting.speculation
    token_cost = step_cost(setting)
    without_speculation = step_cost(msgspec.structs.replace(setting, speculation=NO_SPECULATION))
    prompt_compute_s = without_speculation.prefill_s
    verified_compute_s = token_cost.prefill_s - prompt_compute_s  # tokens of speculation
    prompt_tokens = mix.new_tokens / mix.answer_tokens
    verified_tokens = speculation.verified / speculation.per_step
    exchanges_s = token_cost.link_s / efficiency.link + token_cost.sent_s
    prompt_exchanges_s = exchanges_s * prompt_tokens / (verified_tokens + prompt_tokens)
    decode_exchanges_s = exchanges_s - prompt_exchanges_s
    return _SlopeParts(
        prompts_s=prompt_compute_s / efficiency.prefill + prompt_exchanges_s,
        kv_s=token_cost.kv_s / efficiency.kv,
        decode_s=verified_compute_s / efficiency.prefill + decode_exchanges_s,
    )


def delay_of(line: TtftLine, cost: StepTime, limits: EngineLimits, mix: Mix) -> float:
    """Seconds of a TTFT that no step takes: those of a single request beyond its steps.

    The line has a decode step in its fixed part, as its rows are of engines that decode meanwhile: the one under way as
    a request comes. A simulation plays it.
    """
    decode_s = cost.base_at(1) + cost.sequence_s + cost.kv_token_s * mix.context_tokens
    return max(0.0, line.ttft_s(1.0) - prompt_alone_s(cost, limits, mix) - decode_s)


def prompt_alone_s(cost: StepTime, limits: EngineLimits, mix: Mix) -> float:
    """Seconds that the steps of one prompt of mean length take with nothing else to do."""
    new_tokens = max(1.0, mix.new_tokens)
    steps = math.ceil(new_tokens / limits.max_num_batched_tokens)
    base_s = cost.base_at(round(new_tokens / steps))
    cached_tokens = mix.prompt_tokens - mix.new_tokens
    # Each new token looks at the cached ones, and on average at half of the new ones.
    pairs = new_tokens * (cached_tokens + new_tokens / 2.0)
    return steps * base_s + cost.prompt_token_s * new_tokens + cost.pair_s * pairs


def _best_known_terms(instance: Instance, curve: Curve, mix: Mix) -> StepTime:
    """Terms of a step, by a typed prefill rate, or by the roofline's shares. Raises ValueError if neither is known."""
    rate = instance.workload.prefill_tokens_per_s
    if rate is not None:
        return _terms_by_prefill_rate(rate, curve, mix, instance.setting)
    if instance.setting is None:
        raise ValueError(
            "the time of a prompt token is not known, as the model's dimensions are not: give --prefill-rate "
            "(prefill_tokens_per_s) or a [[model]] table in the config"
        )
    return step_terms(curve, instance.setting)


def _terms_by_prefill_rate(rate: float, curve: Curve, mix: Mix, setting: InstanceSetting | None) -> StepTime:
    """Terms of a step by a rate in prompt tokens/s; the term of the KV cache is 0 where the setting is not known."""
    prompts_s = mix.new_tokens / mix.answer_tokens / rate
    without_kv = StepTime(
        base_s=curve.base_s,
        sequence_s=max(0.0, curve.slope_s - prompts_s),
        prompt_token_s=1.0 / rate,
        resident_ratio=curve.resident_ratio,
        experts=curve.experts,
        experts_per_token=curve.experts_per_token,
    )
    if setting is None:
        return without_kv
    by_roofline = step_terms(curve, setting)
    kv_s = min(by_roofline.kv_token_s * mix.context_tokens, without_kv.sequence_s)
    return without_kv._replace(
        sequence_s=without_kv.sequence_s - kv_s,
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
    """Bounds of the engine: typed, told by the engine, or its defaults. Adds a note with who tells them.

    Raises ValueError where the size of the KV cache is not known.
    """
    kv_blocks = _kv_blocks(instance, scenario, mix)
    slots = told_slots(instance) or default_slots(instance, kv_blocks * BLOCK)
    tokens = step_tokens(instance)
    for name, limit in (("max_num_seqs", slots), ("max_num_batched_tokens", tokens)):
        if limit.source != TYPED:
            notes.append(f"{name} {limit.value:,}: {limit.source}")
    return EngineLimits(max_num_seqs=slots.value, max_num_batched_tokens=tokens.value, kv_blocks=kv_blocks)


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
    if request_tokens <= 0.0:  # by which the size is divided
        return 0
    return max(0, int(pool.tokens * context_tokens / request_tokens / BLOCK))


def _why_no_curve(instance: Instance, catalogues: Catalogues) -> str:
    """Why the time of a step is not known, and what would help."""
    unknown = unknown_model(instance.workload.model, catalogues)
    if unknown:
        return unknown
    # An instance without a curve has the reason as its first note.
    return next(iter(instance.notes), "") or "import a load test (gpumon profiles add) or give a known model and GPU"
