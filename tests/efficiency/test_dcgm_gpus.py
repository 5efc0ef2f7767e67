"""What is shown of GPUs that a dcgm-exporter measures: bandwidth in steps, honest ages, and nothing that is held."""

from __future__ import annotations

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Gpu
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import frame
from tests.records import replace

A100 = "NVIDIA A100-SXM4-80GB"
PEAK = 2039e9
"""Of the catalogue, bytes/s."""
CLOCKED = 1593e6 * 2 * 5120 / 8
EXPORTER_S = 30.0
FIELDS = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")


def number(reading: Reading) -> float:
    assert not isinstance(reading, Missing), reading
    return reading


def reason(reading: Reading) -> Reason:
    assert isinstance(reading, Missing), reading
    return reading.reason


def merged(at_s: float, measured_s: float, active: float, **facts: object) -> GpuReading:
    """An Ampere GPU of NVML whose activity an exporter changed last at `measured_s`."""
    base: dict[str, object] = {
        "memory_busy_ratio": 0.9,
        "memory_clock_max_hz": 1593e6,
        "memory_bus_bits": 5120.0,
        "power_w": 300.0,
        **dict.fromkeys(FIELDS, active),
        "activity_source": "dcgm",
        "activity_monotonic_s": measured_s,
        "activity_interval_s": EXPORTER_S,
        "from_dcgm": FIELDS,
    }
    return GpuReading(0, "GPU-0", A100, GpuState.OK, at_s, **{**base, **facts})


def alone(measured_s: float, **facts: object) -> GpuReading:
    """A GPU that only an exporter tells of."""
    base: dict[str, object] = {
        "source": "dcgm",
        "host": "gpu-07",
        "vram_total_bytes": 81920 * 2.0**20,
        "activity_interval_s": EXPORTER_S,
        "activity_monotonic_s": measured_s,
    }
    return GpuReading(0, "GPU-0", A100, GpuState.OK, measured_s, **{**base, **facts})


def after(deriver: Deriver, at_s: float, reading: GpuReading) -> Gpu:
    return deriver.derive(frame(at_s, (reading,))).snapshot.gpus[0]


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def test_bandwidth_is_dram_active_times_peak_with_its_source_and_age(deriver: Deriver) -> None:
    shown = after(deriver, 112.0, merged(112.0, 100.0, 0.6))
    assert shown.bandwidth_source is BandwidthSource.DCGM
    assert shown.bandwidth_bytes_per_s == pytest.approx(0.6 * CLOCKED)
    assert (shown.reading.activity_source, shown.activity_age_s, shown.age_s) == ("dcgm", 12.0, 0.0)
    assert shown.sources["bandwidth_bytes_per_s"] == (
        "measured: DCGM_FI_PROF_DRAM_ACTIVE x peak, mean of the exporter's 30 s"
    )
    assert shown.sources["tensor_active_ratio"] == "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, mean of the exporter's 30 s"
    assert shown.sources["busy_ratio"].startswith("nvml"), "the rest is NVML's"


def test_the_figure_and_the_chart_step_where_the_exporter_does(deriver: Deriver) -> None:
    """No mean over both sides of a step: that would show changes inside of the exporter's 30 s."""
    shares, points = [], []
    for at in range(120):
        measured_s = at // 30 * 30
        reading = merged(float(at), float(measured_s), 0.2 if at < 60 else 0.8)
        derived = deriver.derive(frame(at, (reading,)))
        shares.append(number(derived.snapshot.gpus[0].bandwidth_bytes_per_s) / CLOCKED)
        points.append(derived.points["bandwidth"] / CLOCKED)
    assert shares == points == pytest.approx([0.2] * 60 + [0.8] * 60)


@pytest.mark.parametrize(("age_s", "fresh"), [(29.0, True), (90.0, True), (91.0, False), (4000.0, False)])
def test_activity_that_stands_still_for_3_intervals_is_stale(deriver: Deriver, age_s: float, fresh: bool) -> None:
    shown = after(deriver, 5000.0, merged(5000.0, 5000.0 - age_s, 0.6))
    if fresh:
        assert shown.reading.sm_active_ratio == 0.6
        return
    assert {reason(value_of(shown, field)) for field in FIELDS[:2]} == {Reason.STALE}
    assert (shown.reading.state, shown.power_w) == (GpuState.OK, 300.0), "NVML goes on"
    assert shown.bandwidth_source is BandwidthSource.UPPER_BOUND
    assert shown.bandwidth_bytes_per_s == pytest.approx(0.9 * CLOCKED)
    assert shown.activity_age_s == age_s


def test_a_gpu_that_only_dcgm_tells_of_is_shown_like_nvmls(deriver: Deriver) -> None:
    facts = {**dict.fromkeys(FIELDS, 0.5), "activity_source": "dcgm", "from_dcgm": FIELDS}
    shown = after(deriver, 125.0, alone(100.0, power_w=250.0, energy_j=5e6, busy_ratio=0.9, **facts))
    assert (shown.reading.state, shown.age_s, shown.reading.host) == (GpuState.OK, 25.0, "gpu-07")
    assert shown.gpu_type == "A100 SXM4 80GB"
    assert shown.bandwidth_peak_bytes_per_s == PEAK
    assert shown.bandwidth_bytes_per_s == 0.5 * PEAK
    assert (shown.power_w, shown.reading.busy_ratio) == (250.0, 0.9)
    told = {field: text for field, text in shown.sources.items() if text}
    assert not any("nvml" in text or "GPM" in text for text in told.values()), told
    assert told["power_w"] == "DCGM_FI_DEV_POWER_USAGE, each 30 s"
    assert set(told) <= set(flat_fields(Gpu))


def played(deriver: Deriver, seconds: int, watts: float, **facts: object) -> list[Gpu]:
    """Ticks of 1 s; the exporter measures each 30 s, and its page is polled each 5 s, 3 s after full 5 s."""
    shown = []
    for at in range(seconds):
        measured = at // 30 * 30
        seen = max(0, (measured + 4) // 5 * 5 + 3)
        if at < seen:
            measured, seen = measured - 30, seen - 30
        shown.append(
            after(deriver, float(at), alone(float(max(seen, 0)), energy_j=1e6 + max(measured, 0) * watts, **facts))
        )
    return shown


def test_energy_adds_up_and_a_pause_between_two_measurements_is_no_gap(deriver: Deriver) -> None:
    last = played(deriver, 400, 200.0, busy_ratio=0.5)[-1]
    assert last.energy_j == pytest.approx(200.0 * 390)
    assert last.busy_mean_ratio == pytest.approx(0.5)


def test_text_of_the_exporter_is_made_safe(deriver: Deriver) -> None:
    reading = alone(1.0)
    hostile = replace(reading, host="\x1b[2J" + "h" * 500, name="\u202eevil", uuid="GPU-\x00")
    shown = after(deriver, 1.0, hostile)
    assert all(text.isprintable() for text in (shown.reading.host, shown.reading.name, shown.reading.uuid))
    assert len(shown.reading.host) <= 64
    assert shown.bandwidth_source is BandwidthSource.NONE
    assert shown.activity_age_s == NOT_SUPPORTED
