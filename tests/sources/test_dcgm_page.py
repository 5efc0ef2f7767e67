"""Pages in the dcgm-exporter's formats to the figures of their GPUs; whatever a line holds, nothing raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.dcgm import DCGM_METRICS, NOT_ON_PAGE
from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.dcgm_page import MOST_GPUS, WANTED, DcgmPage, GpuIdentity, gpu_fields, read_page
from gpumon.sources.exposition import Scanner
from tests.each_row import each_row

PAGES = Path(__file__).parents[1] / "data" / "pages" / "dcgm"
A100 = tuple(f"GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a10{n}" for n in range(2))
SLICED = "GPU-c07a51be-3e9f-4d4b-9e2a-4b7d10f3aa00"
MIB = 1 << 20


def page(text: str | bytes) -> DcgmPage:
    return read_page(Scanner(WANTED).scan(text.encode() if isinstance(text, str) else text))


def of(name: str) -> DcgmPage:
    return page((PAGES / name).read_bytes())


def one(labels: str, value: str, name: str = "DCGM_FI_DEV_GPU_TEMP") -> dict[str, Any]:
    found = page(f'{name}{{gpu="0",UUID="GPU-1"{labels}}} {value}\n')
    return gpu_fields(found, next(iter(found.gpus)))


def reason(value: object) -> Reason:
    assert isinstance(value, Missing), value
    return value.reason


def test_the_default_counters_of_a_busy_and_an_idle_gpu() -> None:
    found = of("a100-default.prom")
    busy, idle = (gpu_fields(found, GpuIdentity("gpu-07", uuid)) for uuid in A100)
    assert busy["busy_ratio"] == 0.97
    assert busy["memory_busy_ratio"] == 0.61
    assert busy["tensor_active_ratio"] == 0.182744
    assert busy["dram_active_ratio"] == 0.603125
    assert (busy["pcie_tx_bytes_per_s"], busy["pcie_rx_bytes_per_s"]) == (112603447, 298311902)
    assert (busy["power_w"], busy["energy_j"]) == (287.413, pytest.approx(41278334.912))
    assert (busy["temperature_c"], busy["memory_temperature_c"]) == (47, 52)
    assert (busy["sm_clock_hz"], busy["memory_clock_hz"]) == (1410e6, 1593e6)
    assert (busy["vram_used_bytes"], busy["vram_reserved_bytes"]) == (73767 * MIB, 632 * MIB)
    assert busy["vram_total_bytes"] == 81920 * MIB
    assert busy["remap_failed"] == 0
    assert busy["sm_active_ratio"] == busy["sm_occupancy_ratio"] == busy["power_limit_w"] == NOT_ON_PAGE
    assert (idle["busy_ratio"], idle["tensor_active_ratio"], idle["dram_active_ratio"]) == (0, 0, 0.000131)
    assert set(busy) <= set(GpuReading.__struct_fields__)
    first = found.gpus[GpuIdentity("gpu-07", A100[0])]
    assert (first.gpu_index, first.name, first.driver) == (0, "NVIDIA A100-SXM4-80GB", "580.95.05")


def test_the_newest_names_and_labels_say_the_same() -> None:
    before, after = of("a100-all.prom"), of("renamed.prom")
    assert list(before.gpus) == list(after.gpus)
    for key in before.gpus:
        assert gpu_fields(after, key) == pytest.approx(gpu_fields(before, key))


def test_every_metric_of_the_table_fills_a_field() -> None:
    fields = {*GpuReading.__struct_fields__, "engine_active_ratio", "vram_free_bytes"}
    assert {metric.field for metric in DCGM_METRICS} <= fields
    names = [name for metric in DCGM_METRICS for name, _ in metric.names]
    assert len(set(names)) == len(names)


def test_a_gpu_that_pods_share_is_one_gpu() -> None:
    found = of("shared.prom")
    assert [(key.host, one.gpu_index) for key, one in found.gpus.items()] == [("pool-t4-3", 0), ("pool-t4-3", 1)]
    shared = gpu_fields(found, next(iter(found.gpus)))
    assert shared["dram_active_ratio"] == 0.412207
    assert shared["vram_used_bytes"] == 11253 * MIB, "not the sum over the pods"
    assert reason(shared["memory_temperature_c"]) is Reason.NOT_SUPPORTED, "a T4 has no such sensor: no fake zero"


def test_slices_have_their_own_figures_and_their_gpu_those_that_only_it_has() -> None:
    found = of("mig.prom")
    keys = list(found.gpus)
    assert [(key.instance, found.gpus[key].profile) for key in keys] == [
        ("", ""),
        ("3", "2g.20gb"),
        ("5", "2g.20gb"),
        ("6", "2g.20gb"),
        ("", ""),
    ]
    assert [found.gpus[key].gpu_index for key in keys] == [0, 0, 0, 0, 1]
    assert found.sliced == {GpuIdentity("mig-2", SLICED)}
    parent, first, second = (gpu_fields(found, key) for key in keys[:3])
    assert (parent["power_w"], parent["temperature_c"], parent["pcie_tx_bytes_per_s"]) == (171.905, 41, 31005512)
    assert {reason(parent[field]) for field in ("dram_active_ratio", "vram_used_bytes")} == {Reason.UNDER_MIG}
    assert {reason(first[field]) for field in ("power_w", "energy_j", "pcie_tx_bytes_per_s")} == {Reason.UNDER_MIG}
    assert (first["busy_ratio"], first["dram_active_ratio"], first["tensor_active_ratio"]) == (0.931, 0.571, 0.202)
    assert (first["vram_used_bytes"], first["vram_total_bytes"]) == (14310 * MIB, (14310 + 5657) * MIB)
    assert second["busy_ratio"] == 0.0


def test_blanks_of_old_exporters_are_no_numbers() -> None:
    found = of("old.prom")
    assert [key.host for key in found.gpus] == ["", ""]
    first = gpu_fields(found, next(iter(found.gpus)))
    for field in ("memory_temperature_c", "remap_failed"):
        assert reason(first[field]) is Reason.NOT_SUPPORTED
    assert first["dram_active_ratio"] == NOT_ON_PAGE
    assert (first["busy_ratio"], first["temperature_c"]) == (0.64, 58)
    assert first["vram_total_bytes"] == (12003 + 20502) * MIB


def test_hosts_on_one_page_stay_apart_in_their_order() -> None:
    found = of("federated.prom")
    assert [(key.host, one.gpu_index) for key, one in found.gpus.items()] == [
        (f"node-{host}.cluster.local", gpu) for host in range(2) for gpu in range(2)
    ]


@each_row(
    ("name", "value", "why"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", "9223372036854775792", Reason.NOT_SUPPORTED),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355328.000000", Reason.NOT_SUPPORTED),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355330.000000", Reason.NOT_SUPPORTED),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "9223372036854775795", Reason.NOT_SUPPORTED),
        ("DCGM_FI_DEV_POWER_USAGE", "NaN", Reason.INVALID),
        ("DCGM_FI_DEV_POWER_USAGE", "-1", Reason.INVALID),
        ("DCGM_FI_DEV_POWER_USAGE", "+Inf", Reason.NOT_SUPPORTED),
        ("DCGM_FI_DEV_POWER_USAGE", "-Inf", Reason.INVALID),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "60.3", Reason.INVALID),
        ("DCGM_FI_DEV_GPU_UTIL", "101", Reason.INVALID),
        ("DCGM_FI_DEV_GPU_TEMP", "2147483632", Reason.INVALID),
    ],
)
def test_what_can_not_be_is_dropped_with_its_reason(name: str, value: str, why: Reason) -> None:
    field = next(metric.field for metric in DCGM_METRICS if name in dict(metric.names))
    assert reason(one("", value, name)[field]) is why


def test_a_good_number_beside_a_blank_of_the_same_gpu_counts() -> None:
    lines = (
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="u",pod="{pod}"}} {value}\n' for pod, value in (("a", 1e19), ("b", 47))
    )
    found = page("".join(lines))
    assert gpu_fields(found, GpuIdentity("", "u"))["temperature_c"] == 47


def test_a_counter_of_years_is_no_blank() -> None:
    assert one("", "2.2e14", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["energy_j"] == 2.2e11


@each_row(("value", "share"), [("1", 0.01), ("0.500000", 0.005), ("0", 0.0)])
def test_a_percentage_under_the_name_of_a_share_is_taken_for_what_it_is(value: str, share: float) -> None:
    """DCGM 4.6 had the name before it had the unit: another GPU's 87 on the page says so."""
    name = "DCGM_FI_DEV_GPU_UTIL_RATIO"
    found = page(f'{name}{{gpu="0",UUID="a"}} {value}\n{name}{{gpu="1",UUID="b"}} 87\n')
    assert gpu_fields(found, GpuIdentity("", "a"))["busy_ratio"] == share
    assert gpu_fields(found, GpuIdentity("", "b"))["busy_ratio"] == 0.87


def test_a_share_under_the_name_of_a_share_is_one() -> None:
    assert one("", "1.000000", "DCGM_FI_DEV_GPU_UTIL_RATIO")["busy_ratio"] == 1.0


def test_series_of_other_things_than_gpus_are_left_alone() -> None:
    assert page('DCGM_FI_DEV_GPU_TEMP{nvswitch="0",Hostname="h"} 40\nDCGM_FI_DEV_GPU_TEMP 41\n').gpus == {}


@each_row(
    ("labels", "indices"),
    [
        (['gpu="1",UUID="a"', 'gpu="1",UUID="b"', 'gpu="7",UUID="c"'], [1, 2, 7]),
        (['gpu="x",UUID="a"', 'UUID="b"', 'gpu="0",UUID="c"'], [1, 2, 0]),
        (['gpu="99999999999999999999",UUID="a"', 'gpu="²",UUID="b"'], [0, 1]),
        (['gpu="0",UUID="a",Hostname="h"', 'gpu="0",UUID="b",Hostname="i"'], [0, 0]),
    ],
)
def test_no_two_gpus_of_a_host_have_one_index(labels: list[str], indices: list[int]) -> None:
    found = page("".join(f"DCGM_FI_DEV_GPU_TEMP{{{each}}} 40\n" for each in labels)).gpus
    by_uuid = {key.uuid: one.gpu_index for key, one in found.items()}
    assert [by_uuid[uuid] for uuid in sorted(by_uuid)] == indices


def test_a_page_of_too_many_gpus_is_cut() -> None:
    found = page("".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{n}"}} 40\n' for n in range(MOST_GPUS + 5)))
    assert len(found.gpus) == MOST_GPUS
    assert found.cut


TEXTS = st.text(st.sampled_from('aG0-"\\\n{},= \x1b²\U0001f600'), max_size=8)
NUMBERS = st.one_of(
    st.floats().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["", "NaN", "-nan(ind)", "1_0", "0x1p3", "1e999", "١"]),
)
KEYS = st.sampled_from(["gpu", "UUID", "uuid", "Hostname", "GPU_I_ID", "modelName"])
LABELS = st.lists(st.builds('{}="{}"'.format, KEYS, TEXTS), max_size=6).map(",".join)
LINES = st.builds("{}{{{}}} {}".format, st.sampled_from(sorted(WANTED)), LABELS, NUMBERS)


@given(st.lists(st.one_of(LINES, st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))), max_size=30))
def test_garbage_gives_numbers_in_range_or_reasons(lines: list[str]) -> None:
    found = page("\n".join(lines).encode("utf-8", "surrogatepass"))
    for key in found.gpus:
        for field, value in gpu_fields(found, key).items():
            assert isinstance(value, Missing) or 0.0 <= value < 1e18, field


@given(st.data())
def test_a_page_that_is_cut_or_disturbed_anywhere_still_reads(data: st.DataObject) -> None:
    raw = bytearray((PAGES / data.draw(st.sampled_from(["mig.prom", "shared.prom"]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = page(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    for key in found.gpus:
        busy = gpu_fields(found, key)["busy_ratio"]
        assert isinstance(busy, Missing) or 0.0 <= busy <= 1.0
