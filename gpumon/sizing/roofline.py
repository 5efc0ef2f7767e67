"""Latency from dimensions and peaks alone, and what a measured curve becomes on another GPU, mix or precision."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency.checks import checked, positive
from gpumon.efficiency.flops import compute_peak, head_flops, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_read_bytes
from gpumon.sizing.curve import Curve, Mix
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

WEIGHT_MBU: Final = 0.65
"""Share of the peak bandwidth at which weights are read, end to end (sizing fact sheet, section 7)."""
KV_MBU: Final = 0.5
"""The same for the KV cache: chosen on the NIM, sizing-course and aiconfigurator rows of the fact sheet, which then all
lie within `BAND_RATIO`. Measured slopes are 1.0 to 3.6 times what the full bandwidth gives (result 2)."""
PREFILL_MFU: Final = 0.55
"""Share of the peak FLOP/s that prefill reaches (sizing fact sheet, section 7; 50 to 72 % predicted on H100)."""
_MIXED_MFU: Final = 0.4
"""The same where prompts share their steps with decoding: chosen on the sizing course's rows, of one engine and GPU."""
BAND_RATIO: Final = 0.5
"""+- of `roofline` and, below it, of `rescale` and of what is far beyond the load that was measured."""
RESCALED_BAND_RATIO: Final = 0.25


class Setting(msgspec.Struct, frozen=True):
    """One instance of a model on GPUs of one type under one mix; precisions are those of `llm`.

    `gpus` beyond `tp` are pipeline stages or data-parallel ranks. ValueError on sizes below 1 or gpus below tp.
    """

    llm: LlmSpec
    gpu: GpuSpec
    gpus: int
    tp: int
    mix: Mix

    def __post_init__(self) -> None:
        checked("tp", self.tp, least=1)
        checked("gpus", self.gpus, least=self.tp)


def roofline(setting: Setting) -> Curve:
    """The curve that bandwidth and FLOP/s allow at usual efficiency; believe it to +-50 % (`BAND_RATIO`).

    a = W/(0.65*tp*BW), c = KV(T)/(0.5*n*BW) + ISL*(1-hit)/OSL / R_p with T = ISL + OSL/2 (sizing fact sheet, section
    7). Launches and all-reduces are not in it: a sparse MoE over eight GPUs, whose steps read little, was measured 3 to
    10 times slower (InferenceX, MiniMax-M2.5). ValueError where model or GPU lacks a figure.
    """
    llm = setting.llm
    return Curve(
        base_s=weight_read_s(setting) / WEIGHT_MBU,
        slope_s=_kv_slope_s(setting) / KV_MBU + prefill_slope_s(setting),
        resident_ratio=_resident_ratio(llm),
        experts=llm.experts,
        experts_per_token=llm.experts_per_token,
    )


def weight_read_s(setting: Setting) -> float:
    """Seconds to read all weights once at the peak bandwidth, every expert included: W/(tp*BW).

    Over tp ranks, not all GPUs: pipeline stages read one after the other, and data-parallel ranks read a copy each.
    ValueError where model or GPU lacks the figure.
    """
    return positive("read_bytes", setting.llm.read_bytes) / (setting.tp * _bandwidth(setting.gpu))


def prefill_tokens_per_s(setting: Setting) -> float:
    """Prompt tokens per second that the instance computes with nothing else to do, R_p = 0.55*n*P/FLOPs per token.

    LM head once per prompt included. ValueError where the GPU has no known peak for the model's format.
    """
    mix = setting.mix
    new = max(1.0, mix.new_tokens)
    needed = prefill_flops_per_token(setting.llm, new, mix.prompt_tokens - mix.new_tokens)
    peak = compute_peak(setting.gpu, setting.llm)
    if peak is None:
        raise ValueError(f"no peak FLOP/s is known of {setting.gpu.name} for {setting.llm.precision.value}")
    return PREFILL_MFU * setting.gpus * peak[0] / (needed + head_flops(setting.llm) / new)


def prefill_slope_s(setting: Setting) -> float:
    """What one running sequence adds to each token's time by the prompts it stands for: ISL*(1-hit)/OSL / R_p."""
    mix = setting.mix
    return mix.new_tokens / mix.answer_tokens / prefill_tokens_per_s(setting)


def rescale(curve: Curve, seen: Setting, wanted: Setting) -> Curve:
    """A curve measured under `seen` as it would be under `wanted`: only its physical part is scaled.

    a' = a*(W'/W)*(tp*BW)/(tp'*BW'); c' = c_o + c_kv*(KV time ratio) + c_pf*(prefill time ratio), with the overhead
    c_o = c - c_kv - c_pf kept as it is (sizing fact sheet, 1.4). The sheet takes c_kv at the full bandwidth, which
    counts the engine's inefficiency as overhead and keeps it where there is less to do: from prompts of 7,000 tokens
    to 200 it then says 230 % too much. Here both parts count at efficiencies chosen so that the sizing course's mixes
    re-scale into each other (`KV_MBU`, `_MIXED_MFU`): within 22 % there, 20 % between aiconfigurator's GPU types, but
    28 % too fast from BF16 to FP8. Rows that the choice did not see: NIM's 70B on two
    GPUs to its 8B on one 12 to 40 % too fast, back 6 to 29 % too slow; between the two engines, A100 and H100, up to
    61 % off. Where the measured slope is below the physical one both parts shrink alike, so that nothing changes where
    nothing differs.
    """
    was_s, is_s = _physical_slope_s(seen), _physical_slope_s(wanted)
    kept = min(1.0, curve.slope_s / was_s) if was_s > 0.0 else 0.0
    alike = (seen.llm.experts, seen.llm.experts_per_token) == (wanted.llm.experts, wanted.llm.experts_per_token)
    return Curve(
        base_s=curve.base_s * weight_read_s(wanted) / weight_read_s(seen),
        slope_s=max(0.0, curve.slope_s - was_s) + kept * is_s,
        resident_ratio=curve.resident_ratio if alike else _resident_ratio(wanted.llm),
        experts=wanted.llm.experts,
        experts_per_token=wanted.llm.experts_per_token,
    )


def speculative(
    curve: Curve,
    tokens_per_step: float,
    draft_ratio: float,
    *,
    draft_tokens: float | None = None,
    prefill_slope_s: float = 0.0,
) -> Curve:
    """The curve per output token with speculative decoding that yields `tokens_per_step` per step and sequence.

    Step time*(1 + draft_ratio)/tokens_per_step, `draft_ratio` being what drafting adds to a step as a share of it.
    A MoE's step reads the experts of all tokens that it verifies, `draft_tokens` + 1 per sequence (default: only the
    accepted ones, the least it can be). `prefill_slope_s` of the slope is left alone: prompts cost what they cost.
    Not modelled: arithmetic of the verified tokens (decode stays bound by memory up to about 300 tokens a step on an
    H100), memory of the draft model, acceptance that changes with the load. ValueError on tokens_per_step below 1.
    """
    checked("tokens_per_step", tokens_per_step, least=1.0)
    checked("draft_ratio", draft_ratio)
    verified = max(tokens_per_step, 1.0 + checked("draft_tokens", draft_tokens or 0.0))
    gain = (1.0 + draft_ratio) / tokens_per_step
    prompts_s = min(checked("prefill_slope_s", prefill_slope_s), curve.slope_s)
    routed: float = curve.experts_per_token
    if curve.experts:
        routed = curve.experts * (1.0 - (1.0 - routed / curve.experts) ** verified)
    return Curve(
        base_s=curve.base_s * gain,
        slope_s=(curve.slope_s - prompts_s) * gain + prompts_s,
        resident_ratio=curve.resident_ratio,
        experts=curve.experts,
        experts_per_token=routed,
    )


def _physical_slope_s(setting: Setting) -> float:
    """What one more sequence costs a step by its KV cache and its share of prefill, as engines do it."""
    return _kv_slope_s(setting) / KV_MBU + prefill_slope_s(setting) * PREFILL_MFU / _MIXED_MFU


def _kv_slope_s(setting: Setting) -> float:
    """Seconds that the KV cache of one sequence takes to read at the peak bandwidth of all GPUs."""
    moved = kv_read_bytes(setting.llm, setting.mix.context_tokens, setting.tp)
    return moved / (setting.gpus * _bandwidth(setting.gpu))


def _bandwidth(gpu: GpuSpec) -> float:
    if gpu.bandwidth_bytes_per_s <= 0.0:
        raise ValueError(f"the memory bandwidth of {gpu.name} is not known")
    return gpu.bandwidth_bytes_per_s


def _resident_ratio(llm: LlmSpec) -> float:
    """Share of the weights that every step reads."""
    if not llm.experts:
        return 1.0
    return max(0.0, 1.0 - llm.experts * llm.expert_read_bytes / positive("read_bytes", llm.read_bytes))
