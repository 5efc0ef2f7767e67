"""Charted sums: a gap while a part has just fallen silent, the sum of the others once that is settled."""

from __future__ import annotations

import math

import msgspec
import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.points import SETTLED_S, Totals
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, GpuReading, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.test_deriver import H100_BANDWIDTH, engine, frame, gpu

LOST = Missing(Reason.LOST)


def kept(values: list[float], expected: list[float | None]) -> None:
    assert [None if math.isnan(value) else value for value in values] == expected


@pytest.mark.parametrize("silent", [Reason.LOST, Reason.STALE, Reason.UNREACHABLE])
def test_a_part_that_falls_silent_is_a_gap_until_that_is_settled(silent: Reason) -> None:
    totals = Totals()
    gone: Reading = Missing(silent)
    moments = [0.0, 1.0, 2.0, 31.9, 32.0, 33.0, 600.0]
    values = [totals.of("power", [("a", 700.0), ("b", gone if at >= 2.0 else 700.0)], at) for at in moments]
    kept(values, [1400.0, 1400.0, None, None, 700.0, 700.0, 700.0])
    kept([totals.of("power", [("a", 700.0), ("b", 600.0)], at) for at in (601.0, 631.0)], [1300.0] * 2)
    kept([totals.of("power", [("a", 700.0), ("b", gone)], 632.0)], [None])


@pytest.mark.parametrize("up_s", [3, 12])
def test_one_that_comes_and_goes_makes_one_gap(up_s: int) -> None:
    totals = Totals()
    parts = [600.0 if at % 20 < up_s else LOST for at in range(200)]
    values = [totals.of("power", [("a", 700.0), ("b", part)], float(at)) for at, part in enumerate(parts)]
    gaps = [at for at, value in enumerate(values) if math.isnan(value)]
    assert gaps == [at for at in range(up_s, up_s + 30) if at % 20 >= up_s]
    assert set(values[60:]) == {700.0, 1300.0}


def test_a_part_that_answers_again_ends_the_gap() -> None:
    totals = Totals()
    parts = [700.0, LOST, LOST, 650.0]
    kept(
        [totals.of("power", [("a", 700.0), ("b", part)], float(at)) for at, part in enumerate(parts)],
        [1400.0, None, None, 1350.0],
    )


def test_what_never_counted_or_answers_without_the_figure_is_no_gap() -> None:
    totals = Totals()
    for at in range(3):
        assert totals.of("power", [("a", 700.0), ("dead", LOST), ("old", Missing(Reason.NOT_SUPPORTED))], at) == 700.0
    assert totals.of("power", [("a", 700.0)], 3.0) == 700.0
    assert totals.of("power", [("a", Missing(Reason.WARMING_UP)), ("b", 1.0)], 4.0) == 1.0
    assert math.isnan(totals.of("power", [("a", LOST)], 5.0))
    assert math.isnan(totals.of("power", [], 6.0))


def test_at_the_longest_interval_there_is_a_gap_too() -> None:
    totals = Totals()
    values = [totals.of("power", [("a", 1.0), ("b", 1.0 if at < 2 else LOST)], at * 60.0) for at in range(5)]
    kept(values, [2.0, 2.0, None, 1.0, 1.0])


def test_a_lost_gpu_does_not_halve_the_chart_of_the_power_nor_blank_it_for_good() -> None:
    deriver = Deriver(gpu_catalogue())

    def card(index: int, at: int) -> GpuReading:
        return gpu(index, float(at), energy_j=700.0 * at, dram_active_ratio=0.5)

    lost = msgspec.structs.replace(card(1, 7), state=GpuState.LOST)
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
        two = msgspec.structs.replace(one, url="http://127.0.0.1:9000")
        if at >= 20:
            two = msgspec.structs.replace(two, state=EndpointState.REFUSED)
        seen.append(deriver.derive(frame(at, (gpu(0, float(at)),), (one, two))).points)
    for series, each in (("decode", 100.0), ("running", 1.0)):
        values = [found[series] for found in seen]
        assert values[9] == pytest.approx(2 * each)
        kept(values[10:25], [None] * 15)
        assert values[25] == pytest.approx(each)
    kept([found["replicas"] for found in seen[8:12]], [2.0, 2.0, 1.0, 1.0])
