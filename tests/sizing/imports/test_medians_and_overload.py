"""Files without means, and loads of which fewer requests are served than are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpumon.sizing.imports.profiles import Given, import_files
from gpumon.sizing.knee import knee
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.sizing.imports.samples import FOLDER
from tests.sizing.questions import KNOWN

H100 = "H100 SXM5 80GB"
RUN: Mapping[str, Any] = json.loads((FOLDER / "sglang-new.jsonl").read_text().splitlines()[0])
SWEEP = (
    (1, 8.0, 60.0, 120.0), (10, 10.0, 90.0, 940.0), (50, 16.0, 180.0, 2850.0), (128, 30.0, 400.0, 3480.0),
    (350, 85.0, 900.0, 3760.0), (880, 170.0, 45_000.0, 4288.0),
)  # fmt: skip
"""In flight, median TPOT and TTFT in ms, tokens/s."""


def without_means(*, keep_means: bool = False) -> list[dict[str, Any]]:
    """The sweep as SGLang writes it, its means left out."""
    runs = []
    for clients, tpot_ms, ttft_ms, tokens_per_s in SWEEP:
        run = {name: value for name, value in RUN.items() if keep_means or not name.startswith("mean_")}
        number = 10 * clients
        run |= {
            "max_concurrency": clients, "median_tpot_ms": tpot_ms, "median_itl_ms": tpot_ms,
            "median_ttft_ms": ttft_ms, "median_e2e_latency_ms": ttft_ms + 511 * tpot_ms,
            "output_throughput": tokens_per_s, "request_throughput": tokens_per_s / 512, "completed": number,
            "num_prompts": number, "total_input_tokens": 1024 * number, "total_output_tokens": 512 * number,
            "total_output_tokens_retokenized": 511 * number,
        }  # fmt: skip
        runs.append(run)
    return runs


def profile(runs: list[dict[str, Any]]) -> tuple[Observed, tuple[str, ...]]:
    data = "\n".join(map(json.dumps, runs)).encode()
    found = import_files({"runs.jsonl": data}, Given(gpu=H100, gpus=2), gpu_catalogue())
    assert len(found.profiles) == 1
    return found.profiles[0], found.notes


def test_medians_stand_for_means_and_both_import_and_plan_say_so() -> None:
    seen, notes = profile(without_means())
    assert "medians stand for means: the file has no means" in notes
    assert seen.of_medians
    assert [point.itl_s for point in seen.points] == [tpot_ms / 1e3 for _, tpot_ms, _, _ in SWEEP]
    [row] = plan(Scenario(server=(Server(H100),), workload=(Workload(seen.model, 1000.0, seen=seen),)), KNOWN).workloads
    assert f"latencies of {seen.name} are medians of requests: the file has no means" in row.notes


def test_the_queue_of_the_last_load_is_the_knee() -> None:
    """729 of 880 run; throughput alone would say that 14% more still pay."""
    seen, _ = profile(without_means())
    assert (seen.concurrency, knee(seen.points).rule) == (350.0, "running stops following the load: 729.0 of 880")


@each_row("goal_ms", [None, 20.0, 50.0, 200.0])
@each_row("slots", [None, 1000])
def test_no_instance_is_planned_above_the_most_that_the_file_has(goal_ms: float | None, slots: int | None) -> None:
    seen, _ = profile(without_means())
    workload = Workload(seen.model, 1000.0, seen=seen, max_num_seqs=slots)
    [row] = plan(Scenario(itl_p95_ms=goal_ms, server=(Server(H100),), workload=(workload,)), KNOWN).workloads
    assert not row.problem
    assert row.tokens_per_s <= 4288.0 * row.instances


def test_means_go_before_medians() -> None:
    seen, notes = profile([*without_means(keep_means=True)][:1])
    assert not seen.of_medians
    assert not [note for note in notes if "medians" in note]
    assert seen.points[0].itl_s == RUN["mean_tpot_ms"] / 1e3


def at_rate(
    rate: float, served: float, number: int = 1000, tpot_ms: float = 20.0, ttft_ms: float = 100.0
) -> dict[str, Any]:
    """A run of vLLM's benchmark at a rate, with 200 tokens out."""
    return {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "request_rate": rate, "max_concurrency": None,
        "num_prompts": number, "completed": number, "failed": 0, "total_input_tokens": 1000 * number,
        "total_output_tokens": 200 * number, "request_throughput": served, "output_throughput": 200 * served,
        "mean_tpot_ms": tpot_ms, "mean_ttft_ms": ttft_ms,
    }  # fmt: skip


def test_a_rate_that_is_not_served_is_an_overload_and_the_knee_stands_before_it() -> None:
    """Throughput still grows, and by Little's law all that is sent runs or waits."""
    runs = [at_rate(2.0, 1.99), at_rate(8.0, 7.8), at_rate(16.0, 12.5, tpot_ms=45.0, ttft_ms=9000.0)]
    seen, _ = profile(runs)
    assert [point.overload for point in seen.points] == [False, False, True]
    found = knee(seen.points)
    assert found.point == seen.points[1]
    assert found.rule == "fewer are served than are sent: 12.5 requests/s were served"
    assert seen.concurrency == pytest.approx(seen.points[1].offered)


@each_row(
    ("rate", "served", "number", "is_overload"),
    [
        (10.0, 9.9, 1000, False),
        (10.0, 7.0, 1000, True),
        (10.0, 8.5, 100, False),  # 100 random arrivals vary by 10%
        (10.0, 5.5, 100, True),
        (100.0, 18.0, 100, False),  # sent in 1 s, and answered 4 s later
    ],
)
def test_the_end_of_a_short_test_and_chance_are_no_overload(
    rate: float, served: float, number: int, is_overload: bool
) -> None:
    seen, _ = profile([at_rate(rate, served, number)])
    assert seen.points[0].overload is is_overload
