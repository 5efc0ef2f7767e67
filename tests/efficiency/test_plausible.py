"""Figures of an engine that cannot be are no readings: they are marked, and drive no verdict, sum or plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.plausible import plausible
from gpumon.readings import quantities as q
from gpumon.readings.frame import GpuProcess, HostReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sizing.simulate.traffic import TrafficRecorder
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import engine, frame, gpu, rank
from tests.fakes.http_server import LoopbackServer, Reply
from tests.records import replace

GPUMON = str(Path(sys.executable).with_name("gpumon"))


def shown(tokens_per_s: float = 50.0, **gauges: float) -> Engine:
    """An engine after 20 polls, a second apart, with these gauges."""
    deriver = Deriver(gpu_catalogue())
    for tick in range(20):
        at_s = float(tick)
        counters = {q.DECODE_TOKENS: tokens_per_s * at_s, q.PREFILL_COMPUTED: 100.0 * at_s}
        ranks = (rank(counters, {q.RUNNING: 4.0, q.WAITING: 0.0, q.KV_USAGE: 0.2, **gauges}),)
        polled = replace(engine(at_s, counters), ranks=ranks)
        snapshot = deriver.derive(frame(at_s, (gpu(0, at_s),), (polled,))).snapshot
    return snapshot.engines[0]


@pytest.mark.parametrize(
    ("gauge", "field", "value"),
    [
        (q.RUNNING, "running", 1e18),
        (q.RUNNING, "running", -3.0),
        (q.WAITING, "waiting", 2e7),
        (q.KV_USAGE, "kv_usage_ratio", 23.5),
        (q.KV_USAGE, "kv_usage_ratio", float("inf")),
    ],
)
def test_a_gauge_that_cannot_be_is_no_reading_and_leaves_the_rest(gauge: str, field: str, value: float) -> None:
    told = shown(**{gauge: value})
    reading = getattr(told.load, field)
    assert isinstance(reading, Missing)
    assert (reading.reason, f"{value:.10g}" in reading.detail) == (Reason.INVALID, True)
    assert told.rates.decode_tokens_per_s == pytest.approx(50.0)


def test_verdicts_are_made_of_a_frame_without_what_cannot_be() -> None:
    """Also of polls that the source had at hand, of a router's backends, of processes, and of the host."""
    counters = {q.DECODE_TOKENS: 50.0}
    wrong = (rank(counters, {q.RUNNING: 1e18, q.WAITING: 3.0}),)
    earlier = replace(engine(0.0, counters), ranks=wrong)
    polled = replace(engine(1.0, counters), ranks=wrong, backends=wrong, earlier=(earlier,))
    process = GpuProcess(7, "python", vram_bytes=1e9, sm_ratio=3.0)
    card = gpu(0, 1.0, processes=(process,), power_w=-5.0)
    host = HostReading("box", memory_used_bytes=-4e9, memory_total_bytes=1e9, disk_busy_ratio=-1.0)
    told = Deriver(gpu_catalogue()).derive(replace(frame(1.0, (card,), (polled,)), host=host))
    (reading,) = told.frame.engines
    for ranks in (reading.ranks, reading.earlier[0].ranks, reading.backends):
        assert ranks[0].gauges == {q.WAITING: 3.0}
    (seen,) = told.frame.gpus
    assert (seen.processes[0].vram_bytes, reason(seen.processes[0].sm_ratio)) == (1e9, Reason.INVALID)
    assert reason(seen.power_w) is Reason.INVALID
    assert reason(told.frame.host.memory_used_bytes) is reason(told.frame.host.disk_busy_ratio) is Reason.INVALID
    assert (told.frame.host.memory_total_bytes, told.snapshot.host.memory_total_bytes) == (1e9, 1e9)
    assert reason(told.snapshot.host.memory_used_bytes) is Reason.INVALID


def reason(reading: Reading) -> Reason | None:
    return reading.reason if isinstance(reading, Missing) else None


def test_a_frame_in_which_all_can_be_is_handed_on_as_it_is() -> None:
    whole = frame(1.0, (gpu(0, 1.0),), (engine(1.0, {q.DECODE_TOKENS: 50.0}),))
    assert plausible(whole).frame is whole


def test_traffic_of_a_recording_has_no_request_that_cannot_be() -> None:
    traffic = TrafficRecorder()
    for at in range(20):
        counters = {q.REQUESTS: float(at), q.DECODE_TOKENS: 50.0 * at}
        ranks = (rank(counters, {q.RUNNING: 1e18 if at == 9 else 1.0}),)
        traffic.take(1e9 + at, (replace(engine(float(at), counters), ranks=ranks, model="m"),))
    arrivals = traffic._models["m"].arrivals
    assert 18.0 <= sum(arrivals.values()) <= 20.0


def test_what_can_be_stays() -> None:
    told = shown(**{q.RUNNING: 9000.0, q.WAITING: 80_000.0, q.KV_USAGE: 1.0})
    assert (told.load.running, told.load.waiting, told.load.kv_usage_ratio) == (9000.0, 80_000.0, 1.0)
    assert shown(2e6).rates.decode_tokens_per_s == pytest.approx(2e6)


def test_tokens_that_nothing_makes_in_a_second_are_in_no_rate_and_no_total() -> None:
    told = shown(1e15)
    assert isinstance(told.rates.decode_tokens_per_s, Missing)
    assert told.rates.decode_tokens_per_s.reason is Reason.INVALID
    assert told.tokens_total.decode == 0.0


def test_a_count_that_cannot_be_is_left_out_and_those_after_it_are_counted() -> None:
    deriver = Deriver(gpu_catalogue())
    for tick in range(60):
        counters = {q.DECODE_TOKENS: 1e18 if tick == 20 else 50.0 * tick}
        polled = engine(float(tick), counters, started_wall_s=1.0)
        snapshot = deriver.derive(frame(float(tick), (gpu(0, float(tick)),), (polled,))).snapshot
    # Two of the 59 intervals have the wrong count at one end.
    assert snapshot.engines[0].tokens_total.decode == 50.0 * 57


def test_a_local_page_is_held_against_the_same_bounds_and_no_verdict_comes_of_it() -> None:
    page = (
        'vllm:generation_tokens_total{engine="0",model_name="m"} 7\n'
        'vllm:num_requests_running{engine="0",model_name="m"} 1e18\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 3\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 23.5\n'
    )
    with LoopbackServer(lambda _: Reply(body=page.encode())) as server:
        done = subprocess.run(
            [GPUMON, "snapshot", "--json", "--no-nvml", "--no-discovery", "--endpoint", server.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    told = json.loads(done.stdout)
    (shown_engine,) = told["engines"]
    assert (shown_engine["running"], shown_engine["kv_usage_ratio"], shown_engine["waiting"]) == (None, None, 3.0)
    assert shown_engine["missing"]["running"] == shown_engine["missing"]["kv_usage_ratio"] == "invalid"
    assert any("23.5" in fault["text"] for fault in told["faults"])
    assert not [verdict for verdict in told["verdicts"] if verdict["code"] in ("kv_full", "kv_cache_full")]


def test_a_figure_of_a_gpu_that_cannot_be_is_struck_whoever_sent_it() -> None:
    told = replace(
        gpu(0, 0.0), source="dcgm", power_w=1e6, vram_total_bytes=80e9, vram_used_bytes=81e9, sm_clock_hz=1e9
    )
    shot = Deriver(gpu_catalogue()).derive(frame(0.0, (told,), ())).snapshot.gpus[0]
    for reading, number in ((shot.power_w, "1000000"), (shot.reading.vram_used_bytes, "8.1e+10")):
        assert isinstance(reading, Missing)
        assert reading.reason is Reason.INVALID
        assert f"dcgm says {number}" in reading.detail
    assert (shot.reading.vram_total_bytes, shot.reading.sm_clock_hz) == (80e9, 1e9)
