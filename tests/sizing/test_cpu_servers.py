"""Engines whose server nobody knows: their own points tell, and a GPU's roofline never answers for a CPU."""

from __future__ import annotations

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, Frame, HostReading
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import LimitKind, Source, WorkloadPlan
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.records import replace
from tests.sizing.questions import KNOWN
from tests.sources.engines.test_llamacpp import recorded

MODEL = "TinyLlama-1.1B"
H100 = "H100 SXM5 80GB"


def seen(*points: Point, gpu: str = "") -> Observed:
    return Observed(
        Origin.LIVE, "llama.cpp:8080", MODEL, points, gpu=gpu, tool="llama.cpp b1", prompt_tokens=200.0,
        answer_tokens=100.0, kv_pool_tokens=20_000.0,
    )  # fmt: skip


def row_of(profile: Observed, catalogues: Catalogues = KNOWN, **fields: float) -> WorkloadPlan:
    workload = Workload(MODEL, 20.0, seen=profile, **fields)  # type: ignore[arg-type]
    return plan(Scenario(server=(Server(H100),), workload=(workload,)), catalogues).workloads[0]


ONE = Point(1.6, itl_s=0.064, ttft_s=0.72)
TWO = Point(4.0, itl_s=0.140, ttft_s=1.5)


def test_one_load_of_a_cpu_is_not_scaled_by_a_gpu_but_bounds_the_plan() -> None:
    """64 ms at 1.6 running, dozens of times an H100's: as slow below, and beyond it no more than 25 tokens/s."""
    scenario = Scenario(server=(Server(H100),), workload=(Workload(MODEL, 20.0, seen=seen(ONE)),))
    found = resolve(scenario.workload[0], scenario, KNOWN)
    assert [found.itl_s(running) for running in (1.0, 1.6, 3.2)] == pytest.approx([0.064, 0.064, 0.128])
    assert found.ttft_s(1.6) == pytest.approx(0.72)
    row = row_of(seen(ONE), itl_mean_ms=64.0)
    [limit] = [each for each in row.limits if each.kind is LimitKind.ITL_MEAN]
    assert limit.concurrency == pytest.approx(1.6)
    assert "1 point at 2 running, taken to be no faster below and of no more throughput beyond" in " ".join(row.notes)


def test_a_first_token_that_nobody_measured_on_a_cpu_is_none_of_a_gpu() -> None:
    row = row_of(seen(replace(ONE, ttft_s=None)))
    assert isinstance(row.ttft_s, Missing)
    [note] = [note for note in row.notes if note.startswith("the server of llama.cpp:8080 is not known, and no H100")]
    assert note.endswith("times what such a GPU takes, so that no figure of one stands for it")


def test_two_loads_make_a_line_without_any_gpu() -> None:
    row = row_of(seen(ONE, TWO), itl_mean_ms=102.0)
    assert row.source is Source.MEASURED
    [limit] = [each for each in row.limits if each.kind is LimitKind.ITL_MEAN]
    assert limit.concurrency == pytest.approx(2.8)


def test_a_gpu_that_was_seen_keeps_its_roofline_however_slow() -> None:
    scenario = Scenario(server=(Server(H100),), workload=(Workload(MODEL, 20.0, seen=seen(ONE, gpu=H100)),))
    found = resolve(scenario.workload[0], scenario, KNOWN)
    assert found.itl_s(1.6) == pytest.approx(0.064)


@each_row(
    ("name", "loads"),
    [("llamacpp-basic", {"1-c1": 1.0, "2-c8": 4.0}), ("llamacpp-slots", {"1-c3": 3.0, "3-c6": 4.0})],
)
def test_llama_cpp_is_sized_by_the_seconds_that_its_page_counts(name: str, loads: dict[str, float]) -> None:
    """A real llama-server with four slots: time per token within 5% of its clients' at each load."""
    deriver = Deriver(gpu_catalogue())
    calibration = Calibration()
    for number, (t, page) in enumerate(recorded(name)):
        told = {"name": "llama", "url": "http://a", "state": EndpointState.OK, "monotonic_s": t, "interval_s": 1.0}
        reading = replace(page, model=MODEL, **told)
        frame = Frame(number, 1.8e9 + t, t, 1.0, HostReading(), (), (reading,))
        calibration.take(deriver.derive(frame).snapshot)
    (found,) = calibration.observed()
    requests = [one for one in Capture(name).truth if (one["output_tokens"] or 0) > 1]
    for phase, running in loads.items():
        (point,) = [point for point in found.points if round(point.running) == running]
        times = [
            (one["t_end"] - one["t_first"]) / (one["output_tokens"] - 1) for one in requests if one["phase"] == phase
        ]
        assert point.itl_s == pytest.approx(sum(times) / len(times), rel=0.05)
    assert found.answer_tokens is not None
    row = row_of(found, itl_mean_ms=2e3 * found.points[-1].itl_s)  # type: ignore[operator]
    assert row.source is Source.MEASURED
    assert (row.limit, row.capacity_per_instance) == ("max_num_seqs", 4.0)
