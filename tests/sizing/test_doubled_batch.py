"""An engine at twice its batch: by the formulas of sizing, and not known without what they stand on."""

from __future__ import annotations

import pytest

from gpumon.efficiency.traffic import weight_read_bytes
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sizing.doubled_batch import DoubledBatch, doubled_batch
from gpumon.sizing.latency import Mix
from gpumon.sizing.roofline import InstanceSetting, roofline
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes

H100 = gpu_catalogue().find("H100 SXM 80GB")
DENSE = llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct")
MOE = llm_catalogue().find("Qwen/Qwen3-30B-A3B")


def engine(**figures: object) -> Engine:
    """One H100 that decodes 16 sequences of an 8B model."""
    usual = {
        "llm": DENSE,
        "batch": 16.0,
        "gpus": (0,),
        "gpu_count": 1.0,
        "tp": 1,
        "prompt_tokens_mean": 1000.0,
        "answer_tokens_mean": 300.0,
        "weight_bytes_per_s": 1.2e12,
        "kv_bytes_per_s": 0.3e12,
        "mfu_ratio": 0.05,
        "mbu_ratio": 0.45,
        "kv_usage_ratio": 0.2,
    }
    return replace(scenes.snapshot(8, 1).engines[0], **(usual | figures))


def doubled(**figures: object) -> DoubledBatch:
    estimate = doubled_batch(engine(**figures), H100)
    assert isinstance(estimate, DoubledBatch), estimate
    return estimate


def test_steps_become_as_much_longer_as_the_roofline_of_sizing_says() -> None:
    curve = roofline(InstanceSetting(DENSE, H100, 1, 1, Mix(1000.0, 300.0)))
    estimate = doubled()
    step_ratio = curve.itl_s(32.0) / curve.itl_s(16.0)
    assert estimate.sequences == 32.0
    assert estimate.tokens_ratio == pytest.approx(2.0 / step_ratio)
    assert 1.0 < estimate.tokens_ratio < 2.0
    assert estimate.mfu_ratio == pytest.approx(0.05 * estimate.tokens_ratio)


def test_weights_of_a_dense_model_are_read_once_a_step_and_the_cache_for_each_token() -> None:
    estimate = doubled()
    read = 1.2e12 * estimate.tokens_ratio / 2.0 + 0.3e12 * estimate.tokens_ratio
    assert estimate.mbu_ratio == pytest.approx(0.45 * read / 1.5e12)
    assert estimate.mfu_ratio / estimate.mbu_ratio > 0.05 / 0.45, "more FLOP for each byte"


def test_a_step_of_twice_the_tokens_touches_more_experts() -> None:
    estimate = doubled(llm=MOE)
    more = weight_read_bytes(MOE, 32.0) / weight_read_bytes(MOE, 16.0)
    assert more > 1.2
    read = 1.2e12 * more * estimate.tokens_ratio / 2.0 + 0.3e12 * estimate.tokens_ratio
    assert estimate.mbu_ratio == pytest.approx(0.45 * read / 1.5e12)


@each_row(("usage", "room"), [(0.2, 5.0), (0.8, 1.25), (Missing(Reason.NOT_EXPOSED), None)])
def test_the_room_in_the_kv_cache_stands_beside_it(usage: object, room: float | None) -> None:
    assert doubled(kv_usage_ratio=usage).kv_room == room


@each_row(
    ("field", "value", "why"),
    [
        ("llm", None, "the dimensions of its model are not known"),
        ("batch", Missing(Reason.NOT_EXPOSED), "nothing is decoded"),
        ("mfu_ratio", 0.0, "nothing is decoded"),
        ("answer_tokens_mean", Missing(Reason.FEW), "the lengths of its requests are not known"),
        ("weight_bytes_per_s", Missing(Reason.NO_CONTEXT), "what its steps read is not known"),
    ],
)
def test_it_is_not_known_without_what_it_stands_on(field: str, value: object, why: str) -> None:
    assert doubled_batch(engine(**{field: value}), H100) == why


@each_row(("mfu", "mbu", "most"), [(0.9, 0.2, "mfu_ratio"), (0.2, 0.95, "mbu_ratio"), (1.3, 0.5, "mfu_ratio")])
def test_it_ends_at_the_peaks_or_at_what_is_above_them_now(mfu: float, mbu: float, most: str) -> None:
    estimate = doubled(mfu_ratio=mfu, mbu_ratio=mbu, weight_bytes_per_s=1e9, kv_bytes_per_s=1.5e12)
    assert getattr(estimate, most) == pytest.approx(max(1.0, mfu))
    assert max(estimate.mfu_ratio, estimate.mbu_ratio) <= max(1.0, mfu) * (1.0 + 1e-9)
    assert estimate.tokens_ratio == pytest.approx(estimate.mfu_ratio / mfu), "tokens are as much slower"
