"""Exporters of GPUs that people have besides dcgm-exporter: read as far as they go in a real Prometheus, or named."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu
from gpumon.session.build import deriver_maker
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.other_exporters import OTHER_NAMES, as_dcgm
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes import backfill
from tests.fakes.prometheus import Prometheus

NVIDIA: Final = """\
nvidia_smi_gpu_info{{uuid="0f-1",index="1",name="NVIDIA H200",driver_version="590.48.01"}} 1
nvidia_smi_utilization_gpu_ratio{{uuid="0f-1"}} 0.93
nvidia_smi_memory_used_bytes{{uuid="0f-1"}} 33934016512
nvidia_smi_memory_total_bytes{{uuid="0f-1"}} 150754820096
nvidia_smi_power_draw_watts{{uuid="0f-1"}} {watts}
nvidia_smi_temperature_gpu{{uuid="0f-1"}} 52
"""
_AMD_LABELS: Final = (
    'card_model="102-G30211-0C",card_series="AMD Instinct MI300X OAM",gpu_id="2",gpu_partition_id="0",'
    'gpu_uuid="ccff74a1-0000-1000-80e0-c6d49f5b0d86",hostname="n1",namespace="",pod="",serial_number="692409005408"'
)
AMD: Final = "".join(
    f"gpu_{name}{{{{{_AMD_LABELS}}}}} {value}\n"
    for name, value in (
        ("gfx_activity", "93"),
        ("used_vram", "32363"),
        ("total_vram", "196592"),
        ("package_power", "{watts}"),
        ("junction_temperature", "52"),
    )
)
_ALL_SMI_LABELS: Final = 'gpu="NVIDIA H200",instance="n1",uuid="GPU-0f-1",index="1"'
ALL_SMI: Final = "".join(
    f"all_smi_gpu_{name}{{{{{_ALL_SMI_LABELS}}}}} {value}\n".replace("instance=", "exported_instance=")
    for name, value in (
        ("utilization", "93"),
        ("memory_used_bytes", "33934016512"),
        ("memory_total_bytes", "150754820096"),
        ("power_consumption_watts", "{watts}"),
        ("temperature_celsius", "52"),
    )
)
UNREAD: Final = 'node_hwmon_chip_names{{chip="0000:41:00_0",chip_name="amdgpu"}} 1\n'


async def fleet_of(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """The fleet of a Prometheus that scrapes this page."""
    monkeypatch.setattr(backfill, "STORED", backfill.STORED | OTHER_NAMES | {"node_hwmon_chip_names"})
    now_s = time.time()

    def page(at_s: float) -> bytes:
        return text.format(watts=600 + round(at_s / 15.0) % 50).encode()

    labels = {"job": "gpus", "instance": "10.0.0.9:9835", "node": "n1"}
    backfill.store(folder, [backfill.Scraped(labels, page, now_s - 300.0, now_s + 300.0)], 15.0)
    with Prometheus(folder) as prometheus:
        source = FleetSource(Settings(url=prometheus.url, interval_s=15.0))
        fleet = Fleet(deriver_maker(Config(), None))
        for _ in range(2):
            fleet.take(await source.frame())
        await source.close()
    return fleet


Check = Callable[[Gpu], bool]


@pytest.mark.parametrize(
    ("text", "exporter", "gpu_type", "index"),
    [
        (NVIDIA, "nvidia_gpu_exporter", "H200", 1),
        (AMD, "AMD's device-metrics-exporter", "MI300X", 2),
        (ALL_SMI, "all-smi", "H200", 1),
    ],
)
async def test_it_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, exporter: str, gpu_type: str, index: int
):
    fleet = await fleet_of(tmp_path, text, monkeypatch)
    (host,) = fleet.snapshot.hosts
    (gpu,) = host.snapshot.gpus
    assert (host.name, gpu.reading.index) == ("n1", index)
    assert gpu_type in gpu.gpu_type
    assert gpu.reading.busy_ratio == pytest.approx(0.93)
    assert gpu.reading.vram_used_bytes == pytest.approx(33.93e9, rel=0.001)
    assert gpu.reading.temperature_c == 52.0
    assert isinstance(gpu.power_w, float)
    assert 600.0 <= gpu.power_w <= 650.0
    assert isinstance(gpu.bandwidth_bytes_per_s, Missing)
    assert any(f"1 GPUs come from {exporter}" in fault.text for fault in fleet.snapshot.faults)


@pytest.mark.parametrize("serial", ["", "N/A"])
def test_amd_gpus_without_a_serial_number_are_one_for_each_host_and_index(serial: str):
    page: dict[Series, float] = {}
    for hostname, gpu_id in product(("n1", "n2"), ("0", "1")):
        labels = {"gpu_id": gpu_id, "hostname": hostname, "serial_number": serial, "card_series": "AMD Instinct MI300X"}
        page[Series("gpu_gfx_activity", labels)] = 93.0
    assert len({series.labels["UUID"] for series in as_dcgm(page)}) == 4


async def test_one_that_is_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fleet = await fleet_of(tmp_path, UNREAD, monkeypatch)
    assert any("node_exporter's hwmon (job gpus)" in fault.text for fault in fleet.snapshot.faults)
