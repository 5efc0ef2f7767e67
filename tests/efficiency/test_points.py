"""Charted sums: a gap while a part has just fallen silent, the sum of the others once that is settled."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.points import SETTLED_S, SumsOfThings, chart_points
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, GpuReading, GpuState, HostReading
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import H100_BANDWIDTH, engine, frame, gpu
from tests.records import make_gpu, replace
from tests.tui import scenes

LOST = Missing(Reason.LOST)


def kept(values: list[float], expected: list[float | None]) -> None:
    assert [None if math.isnan(value) else value for value in values] == expected


@each_row("silent", [Reason.LOST, Reason.STALE, Reason.UNREACHABLE])
def test_a_part_that_falls_silent_is_a_gap_until_that_is_settled(silent: Reason) -> None:
    totals = SumsOfThings()
    gone: Reading = Missing(silent)
    moments = [0.0, 1.0, 2.0, 31.9, 32.0, 33.0, 600.0]
    values = [totals.add_up("power", [("a", 700.0), ("b", gone if at >= 2.0 else 700.0)], at) for at in moments]
    kept(values, [1400.0, 1400.0, None, None, 700.0, 700.0, 700.0])
    kept([totals.add_up("power", [("a", 700.0), ("b", 600.0)], at) for at in (601.0, 631.0)], [1300.0] * 2)
    kept([totals.add_up("power", [("a", 700.0), ("b", gone)], 632.0)], [None])


@each_row("up_s", [3, 12])
def test_one_that_comes_and_goes_makes_one_gap(up_s: int) -> None:
    totals = SumsOfThings()
    parts = [600.0 if at % 20 < up_s else LOST for at in range(200)]
    values = [totals.add_up("power", [("a", 700.0), ("b", part)], float(at)) for at, part in enumerate(parts)]
    gaps = [at for at, value in enumerate(values) if math.isnan(value)]
    assert gaps == [at for at in range(up_s, up_s + 30) if at % 20 >= up_s]
    assert set(values[60:]) == {700.0, 1300.0}


def test_what_never_counted_or_answers_without_the_figure_is_no_gap() -> None:
    totals = SumsOfThings()
    for at in range(3):
        assert (
            totals.add_up("power", [("a", 700.0), ("dead", LOST), ("old", Missing(Reason.NOT_SUPPORTED))], at) == 700.0
        )
    assert totals.add_up("power", [("a", 700.0)], 3.0) == 700.0
    assert totals.add_up("power", [("a", Missing(Reason.WARMING_UP)), ("b", 1.0)], 4.0) == 1.0
    assert math.isnan(totals.add_up("power", [("a", LOST)], 5.0))
    assert math.isnan(totals.add_up("power", [], 6.0))


def test_a_lost_gpu_does_not_halve_the_chart_of_the_power_nor_blank_it_for_good() -> None:
    deriver = Deriver(gpu_catalogue())

    def card(index: int, at: int) -> GpuReading:
        return gpu(index, float(at), power_w=700.0, dram_active_ratio=0.5)

    lost = replace(card(1, 7), state=GpuState.LOST)
    points = [deriver.derive(frame(at, (card(0, at), card(1, at) if at < 8 else lost))).points for at in range(60)]
    kept([found["power"] for found in points[2:8]], [1400.0] * 6)
    settled = 8 + round(SETTLED_S)
    for series in ("power", "bandwidth"):
        kept([found[series] for found in points[8:settled]], [None] * round(SETTLED_S))
    kept([found["power"] for found in points[settled:]], [700.0] * (60 - settled))
    assert points[-1]["bandwidth"] == pytest.approx(0.5 * H100_BANDWIDTH)
    kept([found["busy:0"] for found in points[8:]], [1.0] * 52)


def test_an_engine_that_went_away_is_a_gap_in_the_sums_of_the_engines() -> None:
    deriver = Deriver(gpu_catalogue())
    seen: list[dict[str, float]] = []
    for at in range(0, 60, 2):
        counters = {q.DECODE_TOKENS: 100.0 * at, q.STEPS: 100.0 * at, q.PREFILL_COMPUTED: 0.0}
        one = engine(float(at), counters)
        two = replace(one, url="http://127.0.0.1:9000")
        if at >= 20:
            two = replace(two, state=EndpointState.REFUSED)
        seen.append(deriver.derive(frame(at, (gpu(0, float(at)),), (one, two))).points)
    for series, each in (("decode", 100.0), ("running", 1.0)):
        values = [found[series] for found in seen]
        assert values[9] == pytest.approx(2 * each)
        kept(values[10:25], [None] * 15)
        assert values[25] == pytest.approx(each)
    kept([found["replicas"] for found in seen[8:12]], [2.0, 2.0, 1.0, 1.0])


def things(gpus: int, engines: int) -> dict[str, float]:
    """Points of so many things of which everything is known."""
    of = scenes.snapshot(gpus, engines)
    known = {"iowait_ratio": 0.1, "busiest_core_ratio": 0.9, "io_pressure_ratio": 0.2, "disk_busy_ratio": 0.3}
    host = replace(of.host, **known, network_rx_bytes_per_s=3e6, network_tx_bytes_per_s=1e6)
    ticks, traffic = [1.0] * len(of.engines), [1e12] * len(of.gpus)
    return chart_points(of.gpus, of.engines, ticks, traffic, host, SumsOfThings(), 0.0)


def test_what_verdicts_stand_on_has_series_by_gpu_engine_and_host() -> None:
    points, of = things(8, 3), scenes.snapshot()
    engine, card = of.engines[1], of.gpus[3]
    assert points["dram:3"] == pytest.approx(card.bandwidth_bytes_per_s / card.bandwidth_peak_bytes_per_s)
    assert points["vram:3"] == pytest.approx(card.reading.vram_used_bytes / card.reading.vram_total_bytes)
    assert points["temp:3"] == card.reading.temperature_c
    assert points[f"kv@{engine.key}"] == engine.load.kv_usage_ratio
    assert points[f"itl@{engine.key}"] == engine.latency.itl_s.p95
    assert points[f"queue@{engine.key}"] == engine.latency.queue_s.mean
    assert points["net@host"] == 4e6
    assert points["core@host"] == 0.9


def test_what_is_charted_comes_first_and_all_of_it_fits_a_history() -> None:
    points = things(130, 20)
    keys = list(points)
    first = next(at for at, key in enumerate(keys) if key.startswith("cpu@"))
    assert all("@" not in key for key in keys[:first])
    assert {"busy", "waiting", "busy:129", "mbu:129"} <= set(keys[:first])
    assert {"power:127", "temp:127"} <= set(keys)
    assert not {"power:128", "temp:129"} & set(keys)
    assert len({key.partition("@")[2] for key in keys if "@" in key}) == 12 + 1
    for gpus in (8, 128):
        past = History()
        past.append(0.0, things(gpus, 12))
        assert set(past.keys()) == set(things(gpus, 12))


def test_what_a_thing_never_has_takes_no_series_and_a_bound_is_no_share() -> None:
    of = scenes.snapshot(2, 1)
    modelled = replace(of.gpus[0], bandwidth_source=BandwidthSource.ENGINE)
    old = replace(of.gpus[1], sm_active_ratio=NOT_SUPPORTED, vram_total_bytes=0.0)
    points = chart_points((modelled, old), of.engines, [1.0], [1.0, 1.0], of.host, SumsOfThings(), 0.0)
    assert not {"dram:0", "sm:1", "vram:1", "iowait@host", "net@host"} & points.keys()
    assert {"dram:1", "sm:0", "vram:0", "cpu@host"} <= points.keys()


def test_shares_of_peaks_of_two_types_of_gpus_are_weighted_with_the_peaks() -> None:
    """As in the rows and reports of a fleet: what both do together of what they could."""
    h100 = make_gpu(
        0, "h", "H100", GpuState.OK, 0.0, engines=("e",), busy_ratio=0.9, mfu_ratio=0.4, mbu_ratio=0.2,
        flops_peak_per_s=1000.0, bandwidth_peak_bytes_per_s=3000.0,
    )  # fmt: skip
    a100 = make_gpu(
        1, "a", "A100", GpuState.OK, 0.0, engines=("e",), busy_ratio=0.5, mfu_ratio=0.1, mbu_ratio=0.6,
        flops_peak_per_s=300.0, bandwidth_peak_bytes_per_s=2000.0,
    )  # fmt: skip
    host = HostReading("h")
    points = chart_points((h100, a100), (), (), (NOT_SUPPORTED, NOT_SUPPORTED), host, SumsOfThings(), 0.0)
    assert points["mfu"] == pytest.approx((0.4 * 1000.0 + 0.1 * 300.0) / 1300.0)
    assert points["mbu"] == pytest.approx((0.2 * 3000.0 + 0.6 * 2000.0) / 5000.0)
    assert points["busy"] == pytest.approx(0.7)
