"""The design guide's tables, as printed, and what they do not say aloud."""

from __future__ import annotations

import math

import pytest

from gpumon.sizing.design_guide import guide_profiles
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.queueing import queue_ratio, queue_warning
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.records import replace

PROFILES = {row.name: row for row in guide_profiles()}
SWEPT = ("guide-nemo-345m", "guide-nemo-1.3b", "guide-nemo-5b", "guide-nemo-20b")


def test_both_tables_are_there_under_names_of_their_own() -> None:
    assert len(PROFILES) == len(guide_profiles()) == 13
    assert {row.origin for row in PROFILES.values()} == {Origin.TABLE}
    assert all(row.tool.startswith("Dell") for row in PROFILES.values())


def test_models_gpus_and_precisions_are_the_catalogues() -> None:
    for row in PROFILES.values():
        assert not row.gpu or gpu_catalogue().find(row.gpu).name == row.gpu
        assert bool(row.gpu) == row.model.startswith("NeMo")
        assert Precision(row.weight_precision)
        found = llm_catalogue().find(row.model)
        assert row.model.startswith("Stable-Diffusion") or (found is not None and found.name == row.model)


@each_row(
    ("name", "gigabytes", "concurrency", "rate", "p95_ms", "busy"),
    [
        ("guide-nemo-345m", 3.1, 4, 14.5, 295.85, 0.98),
        ("guide-nemo-1.3b", 4.12, 4, 10.07, 406.69, 0.99),
        ("guide-nemo-5b", 12.41, 4, 3.61, 1135.52, 0.99),
        ("guide-nemo-20b", 44.76, 16, 14.51, 1112.39, 0.935),
    ],
)
def test_table_10(name: str, gigabytes: float, concurrency: float, rate: float, p95_ms: float, busy: float) -> None:
    row = PROFILES[name]
    assert row.memory_bytes == pytest.approx(gigabytes * 1e9)
    assert (row.concurrency, row.busy_ratio, row.gpus, row.tp) == (concurrency, busy, 1, 1)
    (point,) = row.points
    assert (point.requests_per_s, point.offered, point.busy_ratio) == (rate, concurrency, busy)
    assert point.e2e_p95_s == pytest.approx(p95_ms / 1e3)
    assert point.itl_s is None
    assert point.tokens_per_s is None


def test_table_9_has_memory_and_nothing_else() -> None:
    rows = {row.model: row for row in PROFILES.values() if row.name.startswith("guide-memory-")}
    assert {model: row.memory_bytes and round(row.memory_bytes / 1e9, 2) for model, row in rows.items()} == {
        "NeMo-GPT-345M": 3.1,
        "NeMo-GPT-1.3B": 4.1,
        "NeMo-GPT-5B": 12.41,
        "NeMo-GPT-20B": 42.44,
        "BLOOM-7B1": 16.63,
        "Stable-Diffusion-2.1": 7.88,
        "Llama-2-7B": 14.2,
        "Llama-2-13B": 29.5,
        "Llama-2-70B": 154.7,
    }
    assert all(not row.points and row.concurrency is None for row in rows.values())


def test_its_sizing_example() -> None:
    """64 users of 5B and 128 of 20B: 16 + 8 instances, 556.6 GB (printed as about 560)."""
    five, twenty = PROFILES["guide-nemo-5b"], PROFILES["guide-nemo-20b"]
    assert five.concurrency is not None
    assert twenty.concurrency is not None
    counts = math.ceil(64 / five.concurrency), math.ceil(128 / twenty.concurrency)
    assert counts == (16, 8)
    assert counts[0] * (five.memory_bytes or 0.0) + counts[1] * (twenty.memory_bytes or 0.0) == pytest.approx(556.64e9)


def test_three_of_four_serve_one_request_at_a_time() -> None:
    """Queue 206 of 275 ms, 297 of 396, 825 of 1101: 75%; only the 20B batches (50 of 1100)."""
    for name in SWEPT[:3]:
        (point,) = PROFILES[name].points
        assert point.running == pytest.approx(1.0, abs=0.01)
        assert queue_ratio(point) == pytest.approx(0.75, abs=0.01)
        assert queue_warning(PROFILES[name]) == (
            "75% of the response at concurrency 4 is queue: a serial server, concurrency 1 gives the same throughput "
            "and 25% of the latency"
        )
    (batched,) = PROFILES["guide-nemo-20b"].points
    assert batched.running == pytest.approx(15.24, abs=0.01)
    assert queue_ratio(batched) == pytest.approx(0.045, abs=0.005)
    assert queue_warning(PROFILES["guide-nemo-20b"]) == ""


def test_a_full_engine_is_not_called_serial() -> None:
    """[NIM] 70B at 250 users runs 86: more users only queue."""
    point = Point(running=85.8, offered=250.0, itl_s=0.0932)
    seen = Observed(origin=Origin.SWEEP, name="nim", model="m", points=(point,), concurrency=250.0)
    assert queue_warning(seen) == (
        "66% of the response at concurrency 250 is queue: its slots are full, concurrency 86 gives the same "
        "throughput and 34% of the latency"
    )


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert queue_ratio(Point(running=3.0)) is None
    assert queue_ratio(Point(running=3.0, offered=0.0)) is None
    assert queue_ratio(Point(running=5.0, offered=4.0)) == 0.0
    assert queue_warning(PROFILES["guide-memory-bloom-7b"]) == ""
    five = PROFILES["guide-nemo-5b"]
    assert queue_warning(replace(five, concurrency=None)) == ""
    assert queue_warning(replace(five, concurrency=7.0)) == ""
