"""The roofline and the re-scaling against every published row, each within the band that it claims."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.flops import compute_peak, head_flops, prefill_flops_per_token
from gpumon.sizing import memory
from gpumon.sizing.accuracy import REACHED
from gpumon.sizing.latency import Curve, Mix
from gpumon.sizing.roofline import (
    INDEX_LAYER_S,
    InstanceSetting,
    layers_s,
    prefill_tokens_per_s,
    prompt_parts_s,
    rescale,
    roofline,
    step_cost,
    weight_read_s,
)
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import Reach
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.rows import ROWS, error, fitted, named, setting

LATENCIES = [row for row in ROWS.values() if row["phase"] == "all" and row["gpu"] and row["id"][0] in "NDA"]
LAUNCH_BOUND = "X3-4 X3-16 X3-64"
SWEEPS = {
    "200/1000": "D1 D2 D3 D4 D5",
    "2000/2000": "D6 D7 D8",
    "7000/1000": "D10 D11 D12",
    "200/2000": "D9",
}


def table(errors: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:+.0%}" for name, value in errors.items())


def test_published_rows_that_it_was_not_fitted_to() -> None:
    """NIM, the sizing course and aiconfigurator: half of them within 30%; an engine of 2024 on A100 is slower."""
    errors = {row["id"]: error(roofline(setting(row)), row) for row in LATENCIES}
    assert len(errors) == 43
    off = sorted(abs(each) for each in errors.values())
    assert off[len(off) // 2] <= 0.3, table(errors)
    assert off[-1] <= 0.75, table(errors)


def test_sparse_experts_over_eight_gpus_wait_for_their_layers() -> None:
    """MiniMax-M2.5 on eight H200 (InferenceX): reads alone told a tenth of what was measured."""
    for row in named(LAUNCH_BOUND):
        assert abs(error(roofline(setting(row)), row)) < 0.55


@each_row(("target", "worst"), [("A6", 0.3), ("A8", 0.3), ("A10", 0.3), ("A11", 0.3), ("A12", 0.3)])
def test_h100_re_scales_to_other_gpus_and_to_a_larger_model(target: str, worst: float) -> None:
    """Llama-3.1-8B on one H100 -> other GPUs, and Llama-3.1-70B on four H100."""
    row = ROWS[target]
    moved = rescale(fitted("A1 A2 A3 A4").curve, setting(ROWS["A1"]), setting(row), 128.0)
    assert abs(error(moved, row)) <= worst


@each_row("wanted", SWEEPS)
@each_row("seen", ["200/1000", "2000/2000", "7000/1000"])
def test_one_traffic_mix_re_scales_to_another(seen: str, wanted: str) -> None:
    """Half of the rows within 30%, of an engine that the roofline knows nothing of."""
    at = named(SWEEPS[seen])
    moved = rescale(fitted(SWEEPS[seen]).curve, setting(at[0]), setting(named(SWEEPS[wanted])[0]), 250.0)
    off = sorted(abs(error(moved, row)) for row in named(SWEEPS[wanted]))
    assert off[len(off) // 2] <= 0.45, off


def glm_5(prompt_tokens: float, precision: str = "fp8", name: str = "GLM-5") -> InstanceSetting:
    """On eight B200."""
    found = llm_catalogue().find(name)
    assert found is not None
    spec = memory.variant(llm_catalogue(), name, found, precision, "")
    return InstanceSetting(spec, gpu_catalogue().find("B200 SXM 180GB"), 8, 8, Mix(prompt_tokens, 1024.0))


def test_a_layer_with_an_indexer_takes_longer() -> None:
    """78 of GLM-5, none of DeepSeek-V3; GLM-5.2 has 21 that others share."""
    at = glm_5(1000.0)
    block_s = REACHED.block_s + 3 * REACHED.block_tp_s
    plain_s = 156 * block_s + 75 * 8 * REACHED.expert_s  # the first three layers are dense
    assert layers_s(at) == pytest.approx(plain_s + 78 * INDEX_LAYER_S)
    shared = glm_5(1000.0, name="GLM-5.2")
    assert layers_s(shared) == pytest.approx(plain_s + 21 * INDEX_LAYER_S)
    dense = glm_5(1000.0, name="DeepSeek-V3")
    assert layers_s(dense) == pytest.approx(122 * block_s + 58 * 8 * REACHED.expert_s)


@each_row(("prompt_tokens", "precision", "measured_ms"), [(64_000.0, "nvfp4", 15.3), (1000.0, "fp8", 20.2)])
def test_published_runs_of_glm_5_with_one_request(prompt_tokens: float, precision: str, measured_ms: float) -> None:
    """SGLang of April 2026, and its first version for this model, which was slower."""
    predicted_ms = roofline(glm_5(prompt_tokens, precision)).itl_s(1.0) * 1e3
    assert 0.72 <= predicted_ms / measured_ms <= 1.1


def test_prompts_of_sparse_latent_attention_are_computed_against_the_latent() -> None:
    """Up to the 2,048 entries that it chooses, a prompt costs what its dimensions say, without a step there."""

    def token_s(prompt_tokens: float) -> float:
        at = glm_5(prompt_tokens)
        return prompt_parts_s(at)[0] / prompt_tokens

    def plain_s(prompt_tokens: float) -> float:
        at = glm_5(prompt_tokens)
        spec = at.llm
        flops = prefill_flops_per_token(spec, prompt_tokens, 0.0) + head_flops(spec) / prompt_tokens
        peak = compute_peak(at.gpu, spec)
        assert peak is not None
        return flops / (8 * peak[0])

    assert token_s(2000.0) == pytest.approx(plain_s(2000.0))
    assert token_s(2100.0) < 1.1 * token_s(2000.0)
    # 6,144 of 8,192 tokens look at 2,048 latents with eight times as many heads as each GPU has.
    look = next(each for each in glm_5(8192.0).llm.attention if each.reach is Reach.TOP)
    more = 78 * 2048 * 0.75 * (8.0 * look.decode_flops - look.prefill_flops)
    peak = compute_peak(glm_5(8192.0).gpu, glm_5(8192.0).llm)
    assert peak is not None
    assert token_s(8192.0) - plain_s(8192.0) == pytest.approx(more / (8 * peak[0]))


@each_row("name", ["N1", "D1", "A1", "A16", "A21"])
@each_row("slope_s", [1e-6, 1e-3, 0.1])
def test_where_nothing_differs_nothing_changes(name: str, slope_s: float) -> None:
    at = setting(ROWS[name])
    curve = replace(roofline(at), slope_s=slope_s)
    moved = rescale(curve, at, at, 64.0)
    assert moved.base_s == pytest.approx(curve.base_s)
    assert moved.slope_s == pytest.approx(curve.slope_s)
    assert moved.resident_ratio == curve.resident_ratio


def test_longer_prompts_more_hits_and_faster_gpus_move_the_latency_their_way() -> None:
    at = setting(ROWS["N1"])
    curve = fitted("N1 N2 N3 N4").curve
    longer = replace(at, mix=Mix(10_000.0, 500.0))
    cached = replace(at, mix=Mix(5000.0, 500.0, 0.9))
    h200 = replace(at, gpu=gpu_catalogue().find("H200 SXM 141GB"))
    eight = replace(at, gpus=8, tp=8)
    assert rescale(curve, at, longer, 50.0).slope_s > 1.5 * curve.slope_s
    assert rescale(curve, at, cached, 50.0).slope_s < 0.6 * curve.slope_s
    assert 3.35 / 4.8 < rescale(curve, at, h200, 50.0).itl_s(1.0) / curve.itl_s(1.0) < 1.0
    # A quarter of the reads, and layers that cost more than before.
    assert 0.35 < rescale(curve, at, eight, 50.0).itl_s(1.0) / curve.itl_s(1.0) < 0.7


def test_one_prefill_rate_explains_long_prompts() -> None:
    """GLM-5, prompts of 12,288 tokens: 7.8k of them a second however many users wait, so the output stays at 81."""
    rates = [float(row["tokens_per_s"]) * 12288 / 128 for row in named("X2-16 X2-64")]
    assert rates == pytest.approx([7776.0, 7776.0])
    curve = Curve(0.02, 12288 / 128 / 7776.0)
    assert curve.tokens_per_s(64.0) == pytest.approx(81.0, rel=0.03)
    assert curve.tokens_per_s(1e9) < 81.1


def test_the_base_divides_by_tensor_parallelism_only() -> None:
    """Pipeline stages take turns, data-parallel ranks read a copy each: more of them do not shorten a step."""
    at = setting(ROWS["A10"])
    staged = replace(at, gpus=8)
    assert roofline(staged).base_s == roofline(at).base_s
    assert roofline(staged).slope_s == pytest.approx(roofline(at).slope_s / 2)
    assert prefill_tokens_per_s(staged) == pytest.approx(2 * prefill_tokens_per_s(at))


def test_the_roofline_by_hand() -> None:
    """Llama-3.1-8B, BF16, one H100, 1024/1024: 15.0 GB of weights, 32 layers, no all-reduce."""
    at = setting(ROWS["A1"])
    assert weight_read_s(at) == pytest.approx(15.01e9 / 3.35e12, rel=0.002)
    assert layers_s(at) == pytest.approx(64 * REACHED.block_s)
    curve = roofline(at)
    assert curve.base_s == pytest.approx(weight_read_s(at) / REACHED.weights + layers_s(at))
    kv_s = 131_072 * 1536 / (REACHED.kv * at.gpu.bandwidth_bytes_per_s)
    assert curve.slope_s == pytest.approx(kv_s + 1.0 / prefill_tokens_per_s(at) + REACHED.sequence_s)


def test_all_reduces_by_hand() -> None:
    """70B on two H100: 80 layers x 2 x 8,192 elements of 2 bytes, 2*(2-1)/2 of them over 450 GB/s; 11 tokens each."""
    at = setting(ROWS["N1"])
    one_s = 80 * 2 * 8192 * 2 * 2 * 0.5 / 450e9
    assert step_cost(at).link_s == pytest.approx(one_s * 11.0)
    alone = replace(at, tp=1, gpus=1)
    assert step_cost(alone).link_s == 0.0


def test_experts_spread_over_data_parallel_ranks_are_read_by_all_of_them() -> None:
    at = next(each for each in map(setting, ROWS.values()) if each.llm.experts)
    ranks = replace(at, gpus=8, tp=1, expert_gpus=8)
    copies = replace(ranks, expert_gpus=0)
    assert step_cost(ranks).weights_s < 0.2 * step_cost(copies).weights_s


def test_what_is_not_known_is_named() -> None:
    at = setting(ROWS["A1"])
    unknown = replace(at.gpu, name="mystery", bandwidth_bytes_per_s=0.0, flops_per_s={})
    with pytest.raises(ValueError, match="bandwidth of mystery is not known"):
        roofline(replace(at, gpu=unknown))
    with pytest.raises(ValueError, match="no peak FLOP/s is known of mystery"):
        prefill_tokens_per_s(replace(at, gpu=unknown))
    with pytest.raises(ValueError, match="read_bytes"):
        weight_read_s(replace(at, llm=replace(at.llm, read_bytes=0.0)))


@each_row(("gpus", "tp", "said"), [(0, 1, "gpus"), (1, 0, "tp"), (2, 4, "gpus")])
def test_impossible_settings_are_named(gpus: int, tp: int, said: str) -> None:
    at = setting(ROWS["A1"])
    with pytest.raises(ValueError, match=said):
        InstanceSetting(at.llm, at.gpu, gpus, tp, at.mix)


@each_row("mix", [Mix(0.0, 1.0), Mix(1e6, 1.0), Mix(1.0, 1e6), Mix(1000.0, 10.0, 1.0)])
def test_every_catalogued_model_has_a_roofline_under_any_mix(mix: Mix) -> None:
    gpu = gpu_catalogue().find("H100 SXM 80GB")
    found = 0
    for name in ("Llama-3.1-8B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-Next-80B-A3B", "Mixtral-8x7B", "GLM-5"):
        llm = llm_catalogue().find(name)
        assert llm is not None, name
        curve = roofline(InstanceSetting(llm, gpu, 8, 8, mix))
        assert 0.0 < curve.itl_s(1.0) < curve.itl_s(1000.0) < math.inf
        found += 1
    assert found == 6
