"""Latency from dimensions and peaks alone, and what a measured curve becomes on another GPU, mix or precision."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import compute_peak, decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.ratio import require_at_least, require_positive
from gpumon.efficiency.traffic import distinct_experts, kv_read_bytes
from gpumon.sizing.accuracy import (
    REACHED,
    RISING_POWER,
    EngineEfficiency,
    FirstTokenCost,
    first_token_cost,
    steps_each,
)
from gpumon.sizing.communication import (
    Fabric,
    all_to_all_s,
    delay_s,
    exchange_s,
    own_links,
    stages_delay_s,
    stages_s,
)
from gpumon.sizing.kernels import (
    LEAST_STEP_S,
    RANKS_WAIT,
    slow_state_bytes,
    step_times,
    unpacking_s,
    widens_experts,
)
from gpumon.sizing.latency import NO_SPECULATION, Curve, Mix, Speculation, TtftLine
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import MODEL_FORMAT_BYTES, Attention, LlmSpec, Reach

INDEX_LAYER_S: Final = 71e-6
"""Time of a step in a layer that chooses its entries by an indexer: scores of all keys, the choice, the gathering.

GLM-5 (NVFP4 on eight B200, SGLang of April 2026, 64,000 tokens) decoded in 15.3 ms with its 78 indexers and in 11.4 ms
where 56 layers took the choice of another (sgl-project/sglang pull request 21925). Earlier versions took longer.
"""
SPARSE_HEADS: Final = 64
"""Query heads that kernels of sparse latent attention compute on each GPU, whatever it has (FlashMLA on Hopper and
Blackwell; vllm-project/recipes pull request 234)."""
_LEAST_SLOPE: Final = 0.5
"""Share of a re-scaled slope below which two loads do not tell slope and base apart: experts' reads rise, too."""


class InstanceSetting(msgspec.Struct, frozen=True):
    """One instance of a model on GPUs of one type under one mix; precisions are those of `llm`.

    `gpus` beyond `tp` are pipeline stages or data-parallel ranks. ValueError on sizes below 1 or gpus below tp.
    """

    llm: LlmSpec
    gpu: GpuSpec
    gpus: int
    """GPUs of the instance, all of its stages or ranks."""
    tp: int
    mix: Mix
    expert_gpus: int = 0
    """GPUs over which the experts are spread, as measured servers with data-parallel ranks do; 0: those of a
    tensor-parallel group."""
    speculation: Speculation = NO_SPECULATION
    pp: int = 1
    """Pipeline stages."""
    fabric: Fabric | None = None
    """Links between its GPUs; None: all have the link of their type, as in one server."""

    @property
    def sharing_gpus(self) -> int:
        """GPUs that share the MLP of a layer: those of the experts, else of a tensor-parallel group."""
        return self.expert_gpus or self.tp

    @property
    def links(self) -> Fabric:
        """Links between its GPUs. ValueError where the one of their type is not known."""
        return self.fabric or own_links(self.gpu)

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
    """Reading the KV cache of one sequence, for each token that a step yields of it."""
    link_s: float
    """All-reduces for one output token: of the tokens that are verified for it, and of its share of the prompt."""
    sent_s: float
    """Messages for the same tokens to experts on other servers, and from stage to stage: they reach the peak rate."""
    prefill_s: float
    """Computing for one output token its share of the prompt, and the tokens that are drafted for it."""
    blocks: int
    """Mixers and feed-forward parts of all layers."""
    log2_tp: float
    """Logarithm of the tensor-parallel size: doublings of it."""
    routed: float
    """Experts of one token, over all MoE layers."""
    widened: float
    """The same where kernels widen the experts' weights."""
    sequences: float
    """Share of the running sequences that one rank schedules, for each token that a step yields of it."""


def step_cost(setting: InstanceSetting) -> StepCost:
    """The parts of a step. ValueError where model or GPU lacks a figure.

    Weights are read over tp ranks, not all GPUs: pipeline stages read one after the other, and data-parallel ranks
    read a copy each. An all-reduce of n ranks moves 2*(n-1)/n of its bytes over each rank's link (ring).
    """
    llm = setting.llm
    mix = setting.mix
    tp = setting.tp
    expert_bytes = llm.experts * llm.expert_read_bytes if llm.experts else 0.0
    # Bytes that one GPU reads of each.
    resident_bytes = max(0.0, require_positive("read_bytes", llm.read_bytes) - expert_bytes) / tp
    routed_bytes = expert_bytes / (setting.expert_gpus or tp)
    bandwidth = _bandwidth(setting.gpu)
    prompt_per_token = mix.new_tokens / mix.answer_tokens
    speculation = setting.speculation
    verified_per_token = speculation.verified / speculation.per_step
    tokens_of_rank = (verified_per_token + prompt_per_token) * tp / setting.gpus
    kv_bytes = kv_read_bytes(llm, mix.context_tokens, tp) + slow_state_bytes(llm, speculation.verified)
    routed = float(llm.moe_layers * llm.experts_per_token)
    return StepCost(
        weights_s=(resident_bytes + routed_bytes) / bandwidth + unpacking_s(llm, setting.gpu, resident_bytes),
        resident_ratio=resident_bytes / (resident_bytes + routed_bytes),
        kv_s=kv_bytes / (setting.gpus * bandwidth) / speculation.per_step,
        link_s=tokens_of_rank * _exchange_s(setting),
        sent_s=tokens_of_rank * _sends_s(setting),
        prefill_s=prompt_per_token / _peak_prefill_tokens_per_s(setting) * _waiting_ratio(setting) + _draft_s(setting),
        blocks=llm.blocks,
        log2_tp=math.log2(tp),
        routed=routed,
        widened=routed if widens_experts(llm, setting.gpu) else 0.0,
        sequences=tp * setting.pp / setting.gpus / speculation.per_step,
    )


def roofline(setting: InstanceSetting, reached: EngineEfficiency | None = None) -> Curve:
    """The curve of an engine at the efficiencies that measured servers reach (`accuracy.REACHED`).

    ITL(b) = W(b)/(e_w*BW) + L + b*(KV/(e_kv*BW) + all-reduce/(e_l*link) + sends/link + prompts/(e_p*FLOP/s) + t_seq);
    W(b) of a MoE is what b tokens are routed to, L what its layers take beside (`layers_s`). One sequence takes at
    least `kernels.LEAST_STEP_S`. A step with speculation yields several tokens of each sequence: what is done once per
    step is divided by them, W(b) is that of all verified tokens, the drafted ones are computed in full, and each takes
    a pass of the drafter. Its errors on measured rows of vLLM, SGLang and TensorRT-LLM are in docs/sizing-accuracy.md.
    ValueError where model or GPU lacks a figure.
    """
    cost = step_cost(setting)
    efficiency = reached or REACHED
    llm = setting.llm
    experts_per_token = _experts_of_a_sequence(setting)
    drafter = 1.0 + setting.speculation.tokens / llm.layers  # a drafter is one more layer per drafted token
    read_s = cost.weights_s / efficiency.weights * drafter
    fixed_s = layers_s(setting, efficiency) * drafter + _draft_heads_s(setting) / efficiency.weights
    shape = Curve(1.0, 0.0, cost.resident_ratio, llm.experts, experts_per_token)
    fixed_s += max(0.0, LEAST_STEP_S - read_s * shape.weight_ratio(1.0) - fixed_s)
    slope_s = cost.kv_s / efficiency.kv + cost.link_s / efficiency.link + cost.sent_s
    slope_s += cost.prefill_s / efficiency.prefill + cost.sequences * efficiency.sequence_s
    times = step_times(setting.gpu)
    return Curve(
        base_s=(read_s + fixed_s) / setting.speculation.per_step * times,
        slope_s=slope_s * times,
        # What does not depend on the experts that are read counts as resident.
        resident_ratio=(read_s * cost.resident_ratio + fixed_s) / (read_s + fixed_s),
        experts=llm.experts,
        experts_per_token=experts_per_token,
        stages=setting.pp,
    )


def _experts_of_a_sequence(setting: InstanceSetting) -> float:
    """Experts of a layer that a step touches for one sequence: those of all its verified tokens."""
    llm = setting.llm
    if not llm.experts or setting.speculation == NO_SPECULATION:
        return llm.experts_per_token
    return distinct_experts(llm.experts, llm.experts_per_token, setting.speculation.verified)


def layers_s(setting: InstanceSetting, reached: EngineEfficiency | None = None) -> float:
    """Seconds of a step that are neither bytes nor FLOPs: blocks*(t + t_tp*log2 TP) + MoE layers*k*(t_k + t_marlin),
    its indexers, and the delays of links that are slower than NVLink. ValueError where no link joins its GPUs."""
    efficiency = reached or REACHED
    cost = step_cost(setting)
    fixed_s = cost.blocks * (efficiency.block_s + efficiency.block_tp_s * cost.log2_tp)
    fixed_s += cost.routed * efficiency.expert_s + cost.widened * efficiency.marlin_s
    return fixed_s + setting.llm.attention_layers(Reach.INDEX) * INDEX_LAYER_S + _delays_s(setting)


def weight_read_s(setting: InstanceSetting) -> float:
    """Seconds to read all weights once at the peak bandwidth, every expert included. ValueError as `step_cost`."""
    return require_positive("read_bytes", setting.llm.read_bytes) / (setting.tp * _bandwidth(setting.gpu))


def prompt_parts_s(setting: InstanceSetting) -> tuple[float, float]:
    """Seconds that computing the new tokens of one prompt would take at the peaks, and exchanging them, alone.

    A prompt passes pipeline stages one after the other, and one data-parallel rank computes it, but for the experts,
    which lie on the GPUs of all ranks.
    """
    new_tokens = setting.mix.new_tokens
    shared_gpus = setting.gpus / setting.tp
    if setting.expert_gpus:
        own_ratio = _own_flops_ratio(setting.llm)
        shared_gpus *= own_ratio + (1.0 - own_ratio) * setting.tp / setting.expert_gpus
    return new_tokens / _peak_prefill_tokens_per_s(setting) * shared_gpus, new_tokens * _exchange_s(setting)


def prompt_s(setting: InstanceSetting) -> float:
    """Seconds to compute the new tokens of one prompt, alone, at the reached efficiencies."""
    return prompt_of(setting, REACHED).alone_s


def prefill_tokens_per_s(setting: InstanceSetting) -> float:
    """Prompt tokens per second that the instance computes with nothing else to do. ValueError as `step_cost`."""
    if setting.mix.new_tokens <= 1.0:  # a prompt that is cached whole still has one token computed
        setting = msgspec.structs.replace(setting, mix=Mix(1.0, setting.mix.answer_tokens))
    # All stages and ranks compute prompts side by side.
    compute_s = 1.0 / (_peak_prefill_tokens_per_s(setting) * REACHED.prefill)
    exchange_s = _exchange_s(setting) / REACHED.link + _sends_s(setting)
    return 1.0 / (compute_s + exchange_s * setting.tp / setting.gpus)


def rescale(
    curve: Curve,
    measured_setting: InstanceSetting,
    new_setting: InstanceSetting,
    highest_load: float,
    reached: EngineEfficiency | None = None,
) -> Curve:
    """A curve measured under one setting as it would be under another: it stays as far from the roofline as it was.

    ITL'(b) = ITL(b) * roofline'(b)/roofline(b), made a curve again through one sequence and through `highest_load`, the
    highest that was measured. What differs moves each part of the roofline as that part does: another TP the
    reads and the all-reduces, another GPU the bandwidth, another mix the prompts; what each layer costs stays. Where
    nothing differs nothing changes. Bands by what differs: `accuracy.band_of`.
    """
    measured_roofline = roofline(measured_setting, reached)
    new_roofline = roofline(new_setting, reached)
    few = float(max(measured_setting.pp, new_setting.pp))  # with fewer, stages of a pipeline are idle
    many = max(2.0 * few, highest_load)
    few_s = curve.itl_s(few) * new_roofline.itl_s(few) / measured_roofline.itl_s(few)
    many_s = curve.itl_s(many) * new_roofline.itl_s(many) / measured_roofline.itl_s(many)
    # The share that every step takes stays as it was fitted, unless that is below the formula's or the experts differ.
    shape = new_roofline
    if (
        measured_roofline.experts == new_roofline.experts
        and measured_roofline.experts_per_token == new_roofline.experts_per_token
        and curve.resident_ratio >= measured_roofline.resident_ratio
    ):
        shape = msgspec.structs.replace(curve, stages=new_setting.pp)
    read_few = shape.weight_ratio(few)
    read_many = shape.weight_ratio(many)
    # Two equations, base*w(b) + slope*b = ITL'(b) at both loads.
    slope_s = (many_s * read_few - few_s * read_many) / (many * read_few - few * read_many)
    base_s = (few_s - slope_s * few) / read_few
    least_slope_s = _LEAST_SLOPE * curve.slope_s * new_roofline.slope_s / measured_roofline.slope_s
    if slope_s < least_slope_s or base_s <= 0.0:  # no such curve goes through both: the roofline, scaled to the higher
        scale = many_s / new_roofline.itl_s(many)
        base_s = new_roofline.base_s * scale
        slope_s = new_roofline.slope_s * scale
        shape = new_roofline
    return msgspec.structs.replace(shape, base_s=base_s, slope_s=slope_s)


def _exchange_s(setting: InstanceSetting) -> float:
    """Seconds that the all-reduces of one token of each rank take at the peak of the links; 0 of a single GPU."""
    if setting.sharing_gpus == 1:
        return 0.0
    return exchange_s(setting.llm, setting.links, setting.tp, setting.sharing_gpus)


def _sends_s(setting: InstanceSetting) -> float:
    """Seconds that one token of each rank takes at the peak rates to experts on other servers, and between stages."""
    if setting.fabric is None and setting.pp == 1:
        return 0.0
    sent_s = all_to_all_s(setting.llm, setting.links, setting.tp, setting.sharing_gpus)
    return sent_s + stages_s(setting.llm, setting.links, setting.tp, setting.pp, setting.gpus)


def _delays_s(setting: InstanceSetting) -> float:
    """Seconds of a step that links beyond NVLink take for messages of any size."""
    if setting.gpus == 1:
        return 0.0
    exchanges_s = delay_s(setting.llm, setting.links, setting.tp, setting.sharing_gpus)
    return exchanges_s + stages_delay_s(setting.links, setting.pp, setting.gpus)


def _own_flops_ratio(llm: LlmSpec) -> float:
    """Share of a prompt token's products that are not those of routed experts."""
    return 1.0 - llm.experts_per_token * llm.expert_params / llm.matmul_params


def _waiting_ratio(setting: InstanceSetting) -> float:
    """Times the prompts of its own GPUs that an output token waits for: those of other ranks, and of other stages.

    A chunk of prompts takes its whole time of the sequences in its micro-batch, and of the others in a pipeline of p
    stages 1/p of it at one stage: (1 + (p - 1) / p) / p of all, where one stage computes 1/p.
    """
    stages = 2.0 - 1.0 / setting.pp
    if not setting.expert_gpus:
        return stages
    other_ranks = setting.gpus / setting.tp - 1.0
    return (1.0 + RANKS_WAIT * other_ranks * _own_flops_ratio(setting.llm)) * stages


def _draft_heads_s(setting: InstanceSetting) -> float:
    """Seconds that reading the LM head takes at the peak, once per drafted token; heads stay at 16 bit."""
    head_bytes = setting.llm.head_params * MODEL_FORMAT_BYTES
    return setting.speculation.tokens * head_bytes / (setting.tp * _bandwidth(setting.gpu))


def _draft_s(setting: InstanceSetting) -> float:
    """Seconds that computing the drafted tokens behind one output token takes at the peak of all GPUs."""
    speculation = setting.speculation
    if not speculation.tokens:
        return 0.0
    flops = decode_flops_per_token(setting.llm, setting.mix.context_tokens)
    return speculation.tokens / speculation.per_step * flops / (setting.gpus * _peak_flops_per_s(setting))


def _peak_prefill_tokens_per_s(setting: InstanceSetting) -> float:
    """Prompt tokens per second at the peak of all GPUs, LM head once per prompt included."""
    mix = setting.mix
    new_tokens = max(1.0, mix.new_tokens)
    flops_per_token = prefill_flops_per_token(setting.llm, new_tokens, mix.prompt_tokens - mix.new_tokens)
    flops_per_token += _sparse_flops_per_token(setting) + head_flops(setting.llm) / new_tokens
    return setting.gpus * _peak_flops_per_s(setting) / flops_per_token


def _peak_flops_per_s(setting: InstanceSetting) -> float:
    """Peak of one GPU in the format of the model's matmuls. ValueError where it is not known."""
    peak = compute_peak(setting.gpu, setting.llm)
    if peak is None:
        raise ValueError(f"no peak FLOP/s is known of {setting.gpu.name} for {setting.llm.precision.value}")
    flops_per_s, _ = peak
    return flops_per_s


def _sparse_flops_per_token(setting: InstanceSetting) -> float:
    """FLOPs per prompt token that sparse latent attention takes beyond those of the model.

    Behind its first `limit` tokens a prompt is computed against the latent itself, as a decode step is, with the heads
    of each GPU padded.
    """
    flops = 0.0
    for attention in setting.llm.attention:
        if attention.reach is Reach.TOP:
            flops += _latent_flops_per_token(attention, setting)
    return flops


def _latent_flops_per_token(attention: Attention, setting: InstanceSetting) -> float:
    """FLOPs per prompt token of one kind of attention beyond those of the model; 0 where it keeps no latents."""
    if attention.kv_heads > 1 or attention.decode_flops == attention.prefill_flops:
        return 0.0
    mix = setting.mix
    new_tokens = max(1.0, mix.new_tokens)
    tokens_beyond = min(new_tokens, max(0.0, mix.prompt_tokens - attention.limit))
    padding = max(1.0, SPARSE_HEADS * setting.tp / setting.llm.heads)
    flops = attention.decode_flops * padding - attention.prefill_flops
    return attention.layers * attention.limit * flops * tokens_beyond / new_tokens


def _bandwidth(gpu: GpuSpec) -> float:
    """Bytes per second of a GPU's memory. ValueError where it is not known."""
    if gpu.bandwidth_bytes_per_s <= 0.0:
        raise ValueError(f"the memory bandwidth of {gpu.name} is not known")
    return gpu.bandwidth_bytes_per_s


class Prompt(NamedTuple):
    """The numbers that the TTFT of a prompt follows from."""

    new_tokens: float
    """Tokens that are computed, not cached."""
    alone_s: float
    """Seconds to compute the prompt with nothing beside it (`prompt_s`)."""
    layers_s: float
    """Seconds that the layers of one step cost beside bytes and FLOPs (`layers_s`)."""


def ttft_line_of(prompt: Prompt, engine: str = "", fitted: FirstTokenCost | None = None) -> TtftLine:
    """The TTFT of such prompts with b in flight: layers*(k0 + k1*b*steps) + prompt*(k2 + k3*b), with an engine's k.

    A first token takes some steps beside its prompt, and waits for a share of the prompts in flight. `fitted`: other
    constants than those that are shipped.
    """
    cost = fitted or first_token_cost(engine)
    fixed_s = cost.layers * prompt.layers_s + cost.prompt * prompt.alone_s
    steps_s = cost.layers_each * steps_each(engine, prompt.new_tokens) * prompt.layers_s
    line = TtftLine(fixed_s, crowd_s=0.0, growth_s=steps_s + cost.prompt_each * prompt.alone_s)
    return msgspec.structs.replace(line, rising_power=RISING_POWER.get(engine, line.rising_power))


def ttft_line(setting: InstanceSetting, engine: str = "") -> TtftLine:
    """The TTFT from dimensions and peaks; `engine`: vllm, trtllm, sglang, or empty: not known."""
    return ttft_line_of(prompt_of(setting, REACHED), engine)


def prompt_of(setting: InstanceSetting, reached: EngineEfficiency) -> Prompt:
    """The numbers of a prompt at these efficiencies."""
    compute_s, all_reduces_s = prompt_parts_s(setting)
    sent_s = setting.mix.new_tokens * _sends_s(setting)
    alone_s = compute_s / reached.prefill + all_reduces_s / reached.link + sent_s
    return Prompt(setting.mix.new_tokens, alone_s, layers_s(setting, reached))
