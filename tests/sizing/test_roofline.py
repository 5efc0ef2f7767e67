"""The roofline and the re-scaling against every published row, each within the band that it claims."""

from __future__ import annotations

import math

import msgspec
import pytest

from gpumon.sizing.curve import Curve, Mix
from gpumon.sizing.roofline import (
    BAND_RATIO,
    RESCALED_BAND_RATIO,
    Setting,
    prefill_slope_s,
    prefill_tokens_per_s,
    rescale,
    roofline,
    speculative,
    weight_read_s,
)
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
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


def test_the_roofline_holds_its_band_on_every_row() -> None:
    errors = {row["id"]: error(roofline(setting(row)), row) for row in LATENCIES}
    print(table(errors))
    assert len(errors) == 43
    assert max(map(abs, errors.values())) <= BAND_RATIO, table(errors)


def test_sparse_experts_over_eight_gpus_are_slower_than_the_roofline_knows() -> None:
    """What the docstring warns of: 3 to 10 times at 64 to 4 sequences."""
    for row, times in zip(named(LAUNCH_BOUND), (10.0, 5.2, 2.9), strict=True):
        assert 1.0 / (1.0 + error(roofline(setting(row)), row)) == pytest.approx(times, rel=0.1)


@pytest.mark.parametrize("target", ["A6", "A7", "A8", "A9", "A10", "A11", "A12"])
def test_h100_re_scales_to_other_gpus_and_to_a_larger_model(target: str) -> None:
    """Llama-3.1-8B on one H100 -> A100, L40S, H200, B200, and Llama-3.1-70B on four H100."""
    row = ROWS[target]
    moved = rescale(fitted("A1 A2 A3 A4").curve, setting(ROWS["A1"]), setting(row))
    assert abs(error(moved, row)) <= RESCALED_BAND_RATIO


@pytest.mark.parametrize("target", ["A13", "A14"])
def test_four_h100_re_scale_to_two_h200(target: str) -> None:
    row = ROWS[target]
    moved = rescale(fitted("A10 A11 A12").curve, setting(ROWS["A10"]), setting(row))
    assert abs(error(moved, row)) <= RESCALED_BAND_RATIO


def test_bf16_to_fp8_is_the_one_that_leaves_the_band() -> None:
    row = ROWS["A5"]
    moved = rescale(fitted("A1 A2 A3 A4").curve, setting(ROWS["A1"]), setting(row))
    assert error(moved, row) == pytest.approx(-0.28, abs=0.02)


@pytest.mark.parametrize("wanted", SWEEPS)
@pytest.mark.parametrize("seen", ["200/1000", "2000/2000", "7000/1000"])
def test_one_traffic_mix_re_scales_to_another(seen: str, wanted: str) -> None:
    curve = fitted(SWEEPS[seen]).curve
    moved = rescale(curve, setting(named(SWEEPS[seen])[0]), setting(named(SWEEPS[wanted])[0]))
    errors = {row["id"]: error(moved, row) for row in named(SWEEPS[wanted])}
    assert max(map(abs, errors.values())) <= RESCALED_BAND_RATIO, table(errors)


@pytest.mark.parametrize(
    ("seen", "wanted", "low", "high"),
    [
        ("N1 N2 N3 N4", "N7 N8 N9 N10", -0.40, -0.11),
        ("N7 N8 N9 N10", "N1 N2 N3 N4 N5 N6", 0.05, 0.30),
        ("N1 N2 N3 N4", "D1 D2 D3 D4 D5", -0.57, -0.24),
        ("D10 D11 D12", "N1 N2 N3 N4 N5 N6", 0.41, 0.62),
    ],
)
def test_another_model_or_engine_leaves_the_band_as_far_as_is_said(
    seen: str, wanted: str, low: float, high: float
) -> None:
    """No constant was chosen on these pairs: they are what the docstring warns with."""
    moved = rescale(fitted(seen).curve, setting(named(seen)[0]), setting(named(wanted)[0]))
    errors = {row["id"]: error(moved, row) for row in named(wanted)}
    assert all(low <= each <= high for each in errors.values()), table(errors)


@pytest.mark.parametrize("name", ["N1", "D1", "A1", "A16", "A21"])
@pytest.mark.parametrize("slope_s", [0.0, 1e-6, 1e-3, 0.1])
def test_where_nothing_differs_nothing_changes(name: str, slope_s: float) -> None:
    at = setting(ROWS[name])
    curve = msgspec.structs.replace(roofline(at), slope_s=slope_s)
    moved = rescale(curve, at, at)
    assert moved.base_s == pytest.approx(curve.base_s)
    assert moved.slope_s == pytest.approx(curve.slope_s)
    assert moved.resident_ratio == curve.resident_ratio


def test_longer_prompts_more_hits_and_faster_gpus_move_the_slope_their_way() -> None:
    at = setting(ROWS["N1"])
    curve = fitted("N1 N2 N3 N4").curve
    longer = msgspec.structs.replace(at, mix=Mix(10_000.0, 500.0))
    cached = msgspec.structs.replace(at, mix=Mix(5000.0, 500.0, 0.9))
    h200 = msgspec.structs.replace(at, gpu=gpu_catalogue().find("H200 SXM 141GB"))
    assert rescale(curve, at, longer).slope_s > 1.8 * curve.slope_s
    assert rescale(curve, at, cached).slope_s < 0.5 * curve.slope_s
    assert rescale(curve, at, h200).base_s == pytest.approx(curve.base_s * 3.35 / 4.8, rel=0.01)
    assert rescale(curve, at, longer).base_s == curve.base_s


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row["phase"] == "prefill"])
def test_prompts_alone_take_what_is_predicted(name: str) -> None:
    """55 % MFU against the 72 % (one GPU) and 54 to 60 % (four) of aiconfigurator."""
    row = ROWS[name]
    at = setting(row)
    taken_s = at.mix.prompt_tokens / prefill_tokens_per_s(at)
    assert taken_s * 1e3 == pytest.approx(float(row["ttft_ms"]), rel=0.26 if name.startswith("A22") else 0.08)


def test_one_prefill_rate_explains_long_prompts() -> None:
    """GLM-5, prompts of 12,288 tokens: 7.8k of them a second however many users wait, so the output stays at 81."""
    rates = [float(row["tokens_per_s"]) * 12288 / 128 for row in named("X2-16 X2-64")]
    assert rates == pytest.approx([7776.0, 7776.0])
    curve = Curve(0.02, 12288 / 128 / 7776.0)
    assert curve.tokens_per_s(64.0) == pytest.approx(81.0, rel=0.03)
    assert math.isinf(curve.running_at_rate(81.1))


def test_the_base_divides_by_tensor_parallelism_only() -> None:
    """Pipeline stages take turns, data-parallel ranks read a copy each: more of them do not shorten a step."""
    at = setting(ROWS["A10"])
    staged = msgspec.structs.replace(at, gpus=8)
    assert roofline(staged).base_s == roofline(at).base_s
    assert roofline(staged).slope_s == pytest.approx(roofline(at).slope_s / 2)
    assert prefill_tokens_per_s(staged) == pytest.approx(2 * prefill_tokens_per_s(at))


def test_the_roofline_by_hand() -> None:
    """Llama-3.1-8B, BF16, one H100, 1024/1024: 15.0 GB of weights at 65 % of 3.35 TB/s."""
    at = setting(ROWS["A1"])
    assert weight_read_s(at) == pytest.approx(15.01e9 / 3.35e12, rel=0.002)
    curve = roofline(at)
    assert curve.base_s * 1e3 == pytest.approx(6.89, rel=0.005)
    kv_s = 131_072 * 1536 / (0.5 * at.gpu.bandwidth_bytes_per_s)
    assert curve.slope_s == pytest.approx(kv_s + prefill_slope_s(at))
    assert prefill_slope_s(at) == pytest.approx(1.0 / prefill_tokens_per_s(at))


def test_latent_attention_is_read_by_every_rank() -> None:
    at = setting(ROWS["A21"])
    one = msgspec.structs.replace(at, gpus=1, tp=1, mix=Mix(1e5, 1e5, 1.0))
    eight = msgspec.structs.replace(one, gpus=8, tp=8)
    kv_one, kv_eight = (roofline(each).slope_s for each in (one, eight))
    assert kv_eight == pytest.approx(kv_one)


def test_what_is_not_known_is_named() -> None:
    at = setting(ROWS["A1"])
    unknown = msgspec.structs.replace(at.gpu, name="mystery", bandwidth_bytes_per_s=0.0, flops_per_s={})
    with pytest.raises(ValueError, match="bandwidth of mystery is not known"):
        roofline(msgspec.structs.replace(at, gpu=unknown))
    with pytest.raises(ValueError, match="no peak FLOP/s is known of mystery"):
        prefill_tokens_per_s(msgspec.structs.replace(at, gpu=unknown))
    with pytest.raises(ValueError, match="read_bytes"):
        weight_read_s(msgspec.structs.replace(at, llm=msgspec.structs.replace(at.llm, read_bytes=0.0)))


@pytest.mark.parametrize(("gpus", "tp", "said"), [(0, 1, "gpus"), (1, 0, "tp"), (2, 4, "gpus")])
def test_impossible_settings_are_named(gpus: int, tp: int, said: str) -> None:
    at = setting(ROWS["A1"])
    with pytest.raises(ValueError, match=said):
        Setting(at.llm, at.gpu, gpus, tp, at.mix)


@pytest.mark.parametrize("mix", [Mix(0.0, 1.0), Mix(1e6, 1.0), Mix(1.0, 1e6), Mix(1000.0, 10.0, 1.0)])
def test_every_catalogued_model_has_a_roofline_under_any_mix(mix: Mix) -> None:
    gpu = gpu_catalogue().find("H100 SXM 80GB")
    found = 0
    for name in ("Llama-3.1-8B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-Next-80B-A3B", "Mixtral-8x7B", "GLM-5"):
        llm = llm_catalogue().find(name)
        assert llm is not None, name
        curve = roofline(Setting(llm, gpu, 8, 8, mix))
        assert 0.0 < curve.itl_s(1.0) < curve.itl_s(1000.0) < math.inf
        found += 1
    assert found == 6


def test_speculation_divides_the_step_by_what_it_yields() -> None:
    curve = Curve(0.02, 0.001)
    assert speculative(curve, 1.0, 0.0) == curve
    faster = speculative(curve, 2.5, 0.25)
    assert faster.itl_s(10.0) == pytest.approx(0.5 * curve.itl_s(10.0))
    kept = speculative(curve, 2.0, 0.0, prefill_slope_s=0.0004)
    assert kept.slope_s == pytest.approx(0.0003 + 0.0004)


def test_speculation_touches_more_experts() -> None:
    curve = Curve(0.02, 0.0, 0.1, 128, 8)
    drafted = speculative(curve, 2.0, 0.0, draft_tokens=3)
    assert drafted.weight_ratio(5.0) == pytest.approx(curve.weight_ratio(20.0))
    assert speculative(curve, 2.0, 0.0).weight_ratio(5.0) == pytest.approx(curve.weight_ratio(10.0))
    # Alone, with few experts touched, speculation gains a MoE less than its tokens per step.
    assert drafted.itl_s(1.0) > curve.itl_s(1.0) / 2.0


@pytest.mark.parametrize(("step", "draft"), [(0.5, 0.0), (2.0, -0.1), (math.nan, 0.0), (2.0, math.inf)])
def test_impossible_speculation_is_named(step: float, draft: float) -> None:
    with pytest.raises(ValueError, match=r"tokens_per_step|draft_ratio"):
        speculative(Curve(0.02, 0.001), step, draft)
