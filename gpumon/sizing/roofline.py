"""Latency from dimensions and peaks alone, and what a measured curve becomes on another GPU, mix or precision."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import compute_peak, decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.ratio import require_at_least, require_positive
from gpumon.efficiency.traffic import distinct_experts, kv_read_bytes
from gpumon.sizing.accuracy import REACHED, EngineEfficiency, FirstTokenCost, first_token_cost, steps_each
from gpumon.sizing.latency import NO_SPECULATION, Curve, Mix, Speculation, TtftLine
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import Attention, LlmSpec, Reach

_ACTIVATION_BYTES: Final = 2.0
"""Bytes of an element that ranks exchange: engines do so at 16 bit."""
INDEX_LAYER_S: Final = 71e-6
"""Time of a step in a layer that chooses its entries by an indexer: scores of all keys, the choice, the gathering.

GLM-5 (NVFP4 on eight B200, SGLang of April 2026, 64,000 tokens) decoded in 15.3 ms with its 78 indexers and in 11.4 ms
where 56 layers took the choice of another (sgl-project/sglang pull request 21925). Earlier versions took longer.
"""
SPARSE_HEADS: Final = 64
"""Query heads that kernels of sparse latent attention compute on each GPU, whatever it has (FlashMLA on Hopper and
Blackwell; vllm-project/recipes pull request 234)."""


class InstanceSetting(msgspec.Struct, frozen=True):
    """One instance of a model on GPUs of one type under one mix; precisions are those of `llm`.

    `gpus` beyond `tp` are pipeline stages or data-parallel ranks. ValueError on sizes below 1 or gpus below tp.
    """

    llm: LlmSpec
    gpu: GpuSpec
    gpus: int
    tp: int
    mix: Mix
    expert_gpus: int = 0
    """GPUs over which the experts are spread, as measured servers with data-parallel ranks do; 0: those of a
    tensor-parallel group."""
    speculation: Speculation = NO_SPECULATION

    def __post_init__(self) -> None:
        require_at_least("tp", self.tp, least=1)
        require_at_least("gpus", self.gpus, least=self.tp)


class StepCost(NamedTuple):
    """Seconds that the parts of a decode step would take at the GPUs' peaks."""

    weights_s: float
    """Reading all weights once, every expert included."""
    resident_ratio: float
    """Share of that which every step reads: all but the routed experts."""
    kv_s: float
    """Reading the KV cache of one sequence, per token that a step yields of it."""
    link_s: float
    """Exchanges of the tokens that are verified for one output token, and of the prompt tokens behind it."""
    prefill_s: float
    """Computing the prompt tokens that stand behind one output token, and the tokens that are drafted for it."""
    layers: int
    log2_tp: float
    moe: bool


def step_cost(setting: InstanceSetting) -> StepCost:
    """The parts of a step. ValueError where model or GPU lacks a figure.

    Weights are read over tp ranks, not all GPUs: pipeline stages read one after the other, and data-parallel ranks
    read a copy each. An all-reduce of n ranks moves 2*(n-1)/n of its bytes over each rank's link (ring).
    """
    llm = setting.llm
    mix = setting.mix
    tp = setting.tp
    experts = llm.experts * llm.expert_read_bytes if llm.experts else 0.0
    resident = max(0.0, require_positive("read_bytes", llm.read_bytes) - experts) / tp
    routed = experts / (setting.expert_gpus or tp)
    bandwidth = _bandwidth(setting.gpu)
    new_per_token = mix.new_tokens / mix.answer_tokens
    speculation = setting.speculation
    verified = speculation.verified / speculation.per_step
    exchanged = (verified + new_per_token) * _exchange_s(setting) * tp / setting.gpus
    return StepCost(
        weights_s=(resident + routed) / bandwidth,
        resident_ratio=resident / (resident + routed),
        kv_s=kv_read_bytes(llm, mix.context_tokens, tp) / (setting.gpus * bandwidth) / speculation.per_step,
        link_s=exchanged,
        prefill_s=new_per_token / _peak_prefill_tokens_per_s(setting) + _drafted_s(setting),
        layers=llm.layers,
        log2_tp=math.log2(tp),
        moe=bool(llm.experts),
    )


def roofline(setting: InstanceSetting, reached: EngineEfficiency | None = None) -> Curve:
    """The curve of an engine at the efficiencies that measured servers reach (`bands.REACHED`).

    ITL(b) = W(b)/(e_w*BW) + layers*(t + t_tp*log2 TP + t_moe) + b*(KV/(e_kv*BW) + all-reduce/(e_l*link) +
    prompts/(e_p*FLOP/s)); W(b) of a MoE is what b tokens are routed to. A step with speculation yields several tokens
    of each sequence: what is read once per step is divided by them, W(b) is that of all verified tokens, and the
    drafted ones are computed in full; drafting itself is not in it. Its errors on measured rows of vLLM, SGLang and
    TensorRT-LLM are in docs/sizing.md. ValueError where model or GPU lacks a figure.
    """
    cost = step_cost(setting)
    at = reached or REACHED
    read_s = cost.weights_s / at.weights
    beside_s = layers_s(setting, at)
    return Curve(
        base_s=(read_s + beside_s) / setting.speculation.per_step,
        slope_s=cost.kv_s / at.kv + cost.link_s / at.link + cost.prefill_s / at.prefill,
        resident_ratio=(read_s * cost.resident_ratio + beside_s) / (read_s + beside_s),
        experts=setting.llm.experts,
        experts_per_token=_experts_of_a_sequence(setting),
    )


def _experts_of_a_sequence(setting: InstanceSetting) -> float:
    """Experts of a layer that a step touches for one sequence: those of all its verified tokens."""
    llm = setting.llm
    if not llm.experts or setting.speculation == NO_SPECULATION:
        return llm.experts_per_token
    return distinct_experts(llm.experts, llm.experts_per_token, setting.speculation.verified)


def layers_s(setting: InstanceSetting, reached: EngineEfficiency | None = None) -> float:
    """Seconds of a step that are neither bytes nor FLOPs: layers*(t + t_tp*log2 TP + t_moe), and its indexers."""
    at = reached or REACHED
    llm = setting.llm
    each_s = at.layer_s + at.layer_tp_s * math.log2(setting.tp) + at.layer_moe_s * bool(llm.experts)
    return llm.layers * each_s + llm.attention_layers(Reach.INDEX) * INDEX_LAYER_S


def weight_read_s(setting: InstanceSetting) -> float:
    """Seconds to read all weights once at the peak bandwidth, every expert included. ValueError as `step_cost`."""
    return require_positive("read_bytes", setting.llm.read_bytes) / (setting.tp * _bandwidth(setting.gpu))


def prompt_parts_s(setting: InstanceSetting) -> tuple[float, float]:
    """Seconds that the FLOPs and the all-reduces of one prompt's new tokens would take at the peaks, alone.

    A prompt passes pipeline stages one after the other, and one data-parallel rank computes it: only tp speeds it.
    """
    new = setting.mix.new_tokens
    alone = _peak_prefill_tokens_per_s(setting) * setting.tp / setting.gpus
    return new / alone, new * _exchange_s(setting)


def prompt_s(setting: InstanceSetting) -> float:
    """Seconds to compute the new tokens of one prompt, alone, at the reached efficiencies."""
    computed_s, exchanged_s = prompt_parts_s(setting)
    return computed_s / REACHED.prefill + exchanged_s / REACHED.link


def prefill_tokens_per_s(setting: InstanceSetting) -> float:
    """Prompt tokens per second that the instance computes with nothing else to do. ValueError as `step_cost`."""
    new = max(1.0, setting.mix.new_tokens)
    if new == 1.0:
        of_one = msgspec.structs.replace(setting, mix=Mix(new, setting.mix.answer_tokens))
    else:
        of_one = setting
    return new / prompt_s(of_one) * setting.gpus / setting.tp


def rescale(
    curve: Curve, seen: InstanceSetting, wanted: InstanceSetting, most: float, reached: EngineEfficiency | None = None
) -> Curve:
    """A curve measured under `seen` as it would be under `wanted`: it stays as far from the roofline as it was.

    ITL'(b) = ITL(b) * roofline'(b)/roofline(b), made a curve again through one sequence and through `most`, the
    highest load that was measured. What differs moves each part of the roofline as that part does: another TP the
    reads and the all-reduces, another GPU the bandwidth, another mix the prompts; what each layer costs stays. Where
    nothing differs nothing changes. Bands by what differs: `bands.band_of`.
    """
    was = roofline(seen, reached)
    now = roofline(wanted, reached)
    few = 1.0
    many = max(2.0, most)
    few_s, many_s = (curve.itl_s(b) * now.itl_s(b) / was.itl_s(b) for b in (few, many))
    alike = (was.experts, was.experts_per_token) == (now.experts, now.experts_per_token)
    if alike and curve.resident_ratio >= was.resident_ratio:
        shape = curve
    else:
        shape = now
    read_few = shape.weight_ratio(few)
    read_many = shape.weight_ratio(many)
    slope_s = (many_s * read_few - few_s * read_many) / (many * read_few - few * read_many)
    base_s = (few_s - slope_s * few) / read_few
    if slope_s < 0.0 or base_s <= 0.0:
        scale = many_s / now.itl_s(many)
        base_s = now.base_s * scale
        slope_s = now.slope_s * scale
        shape = now
    return msgspec.structs.replace(shape, base_s=base_s, slope_s=slope_s)


def _exchange_s(setting: InstanceSetting) -> float:
    """Seconds that the exchanges of one token of each rank take at the peak of the link; 0 of a single GPU.

    A layer exchanges twice: behind attention among the ranks of a tensor-parallel group, and behind the MLP among the
    GPUs that share it. Where data-parallel ranks share the experts, the second one has the tokens of all of them.
    """
    tp = setting.tp
    sharing = setting.expert_gpus or tp
    if sharing == 1:
        return 0.0
    if setting.gpu.link_bytes_per_s <= 0.0:
        raise ValueError(f"the link between {setting.gpu.name} GPUs is not known")
    times = _ring(tp) + sharing / tp * _ring(sharing)
    return setting.llm.layers * times * setting.llm.hidden * _ACTIVATION_BYTES / setting.gpu.link_bytes_per_s


def _ring(ranks: int) -> float:
    """Times its own bytes that each rank sends in an all-reduce."""
    return 2.0 * (ranks - 1) / ranks


def _drafted_s(setting: InstanceSetting) -> float:
    """Seconds that computing the drafted tokens behind one output token takes at the peak of all GPUs."""
    speculation = setting.speculation
    if not speculation.tokens:
        return 0.0
    needed = decode_flops_per_token(setting.llm, setting.mix.context_tokens)
    return speculation.tokens / speculation.per_step * needed / (setting.gpus * _peak_flops_per_s(setting))


def _peak_prefill_tokens_per_s(setting: InstanceSetting) -> float:
    """Prompt tokens per second at the peak of all GPUs, LM head once per prompt included."""
    mix = setting.mix
    new = max(1.0, mix.new_tokens)
    needed = prefill_flops_per_token(setting.llm, new, mix.prompt_tokens - mix.new_tokens)
    needed += _sparse_flops_per_token(setting) + head_flops(setting.llm) / new
    return setting.gpus * _peak_flops_per_s(setting) / needed


def _peak_flops_per_s(setting: InstanceSetting) -> float:
    """Peak of one GPU in the format of the model's matmuls. ValueError where it is not known."""
    peak = compute_peak(setting.gpu, setting.llm)
    if peak is None:
        raise ValueError(f"no peak FLOP/s is known of {setting.gpu.name} for {setting.llm.precision.value}")
    return peak[0]


def _sparse_flops_per_token(setting: InstanceSetting) -> float:
    """FLOPs per prompt token that sparse latent attention takes beyond those of the model.

    Behind its first `limit` tokens a prompt is computed against the latent itself, as a decode step is, with the heads
    of each GPU padded.
    """
    return sum(_beyond_dense(look, setting) for look in setting.llm.attention if look.reach is Reach.TOP)


def _beyond_dense(attention: Attention, setting: InstanceSetting) -> float:
    """The same of one way of looking back; 0 where it keeps no latents."""
    if attention.kv_heads > 1 or attention.decode_flops == attention.prefill_flops:
        return 0.0
    mix = setting.mix
    new = max(1.0, mix.new_tokens)
    beyond = min(new, max(0.0, mix.prompt_tokens - attention.limit))
    padded = max(1.0, SPARSE_HEADS * setting.tp / setting.llm.heads)
    flops = attention.decode_flops * padded - attention.prefill_flops
    return attention.layers * attention.limit * flops * beyond / new


def _bandwidth(gpu: GpuSpec) -> float:
    if gpu.bandwidth_bytes_per_s <= 0.0:
        raise ValueError(f"the memory bandwidth of {gpu.name} is not known")
    return gpu.bandwidth_bytes_per_s


class Prompt(NamedTuple):
    """Parts of the TTFT of an engine."""

    new_tokens: float
    """Computed, not cached."""
    alone_s: float
    """Seconds to compute it alone."""
    beside_s: float
    """Seconds that the layers of one step cost beside bytes and FLOPs."""


def ttft_line_of(prompt: Prompt, engine: str = "", fitted: FirstTokenCost | None = None) -> TtftLine:
    """The TTFT of such prompts: layers*(k0 + k1*b*steps) + prompt*(k2 + k3*b), with an engine's constants.

    A first token takes some steps beside its prompt, and waits for a share of the prompts in flight. `fitted`: other
    constants than those that are shipped.
    """
    cost = fitted or first_token_cost(engine)
    fixed_s = cost.layers * prompt.beside_s + cost.prompt * prompt.alone_s
    waited_s = cost.layers_each * steps_each(engine, prompt.new_tokens) * prompt.beside_s
    return TtftLine(fixed_s, 0.0, waited_s + cost.prompt_each * prompt.alone_s)


def ttft_line(setting: InstanceSetting, engine: str = "") -> TtftLine:
    """The line from dimensions and peaks; `engine`: vllm, trtllm, sglang, or not known."""
    return ttft_line_of(Prompt(setting.mix.new_tokens, prompt_s(setting), layers_s(setting)), engine)
