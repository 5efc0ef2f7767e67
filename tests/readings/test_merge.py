"""GPUs of NVML joined with those of a dcgm-exporter: what is filled in, what is not, and who stands where."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.merge import merge_dcgm
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP
from tests.each_row import each_row

HERE = "gpu-07"
MEASURED = {
    "sm_active_ratio": 0.7,
    "tensor_active_ratio": 0.2,
    "dram_active_ratio": 0.6,
    "pcie_tx_bytes_per_s": 1e8,
    "nvlink_tx_bytes_per_s": 2e9,
}


def nvml(index: int = 0, **facts: Any) -> GpuReading:
    return GpuReading(index, facts.pop("uuid", f"GPU-{index}"), "A100", GpuState.OK, 100.0, **facts)


def dcgm(index: int = 0, host: str = HERE, **facts: Any) -> GpuReading:
    settings = {"source": "dcgm", "activity_source": "dcgm", "activity_monotonic_s": 80.0, "activity_interval_s": 30.0}
    uuid = facts.pop("uuid", f"GPU-{index}")
    return GpuReading(index, uuid, "A100", GpuState.OK, 80.0, host=host, **{**settings, **MEASURED, **facts})


def shown(gpus: tuple[GpuReading, ...]) -> list[tuple[int, str]]:
    return [(gpu.index, gpu.uuid) for gpu in gpus]


def test_what_nvml_has_not_is_filled_in_and_dated() -> None:
    (one,) = merge_dcgm([nvml(busy_ratio=0.9), dcgm(busy_ratio=0.1, power_w=1.0)], HERE)
    assert (one.sm_active_ratio, one.tensor_active_ratio, one.dram_active_ratio) == (0.7, 0.2, 0.6)
    assert (one.activity_source, one.activity_monotonic_s, one.activity_interval_s) == ("dcgm", 80.0, 30.0)
    assert set(one.from_dcgm) == set(MEASURED)
    assert (one.source, one.monotonic_s, one.host) == ("nvml", 100.0, "")
    assert (one.busy_ratio, one.power_w) == (0.9, NOT_SUPPORTED), "only activity and rates are filled in"


def test_gpm_is_never_overridden_and_rates_are_filled_one_by_one() -> None:
    own = nvml(activity_source="gpm", dram_active_ratio=0.5, nvlink_tx_bytes_per_s=7.0)
    (one,) = merge_dcgm([own, dcgm()], HERE)
    assert (one.dram_active_ratio, one.activity_source) == (0.5, "gpm")
    assert one.sm_active_ratio == NOT_SUPPORTED
    assert (one.nvlink_tx_bytes_per_s, one.pcie_tx_bytes_per_s) == (7.0, 1e8)
    assert one.from_dcgm == ("pcie_tx_bytes_per_s",)


@each_row("field", MEASURED)
def test_what_nvml_is_about_to_measure_is_waited_for(field: str) -> None:
    (one,) = merge_dcgm([nvml(**{field: WARMING_UP}), dcgm()], HERE)
    assert getattr(one, field) == WARMING_UP


@each_row("state", [GpuState.LOST, GpuState.RESET_REQUIRED, GpuState.STALE])
def test_a_gpu_that_does_not_answer_gets_nothing(state: GpuState) -> None:
    own = GpuReading(0, "GPU-0", "A100", state, 100.0)
    assert merge_dcgm([own, dcgm()], HERE) == (own,)


def test_without_an_exporter_nothing_changes() -> None:
    own = [nvml(0), nvml(1)]
    assert merge_dcgm(own, HERE) == tuple(own)
    nothing = dcgm(**dict.fromkeys(MEASURED, NOT_SUPPORTED), activity_source="")
    assert merge_dcgm([nvml(), nothing], HERE) == (nvml(),)


def test_slices_are_found_by_their_gpu_and_instance() -> None:
    own = [nvml(mig=True), nvml(uuid="MIG-a", parent_uuid="GPU-0", mig_instance="3")]
    theirs = [dcgm(uuid="MIG-GPU-0/5", parent_uuid="GPU-0", mig_instance="5", dram_active_ratio=0.5)]
    theirs += [dcgm(uuid="MIG-GPU-0/3", parent_uuid="GPU-0", mig_instance="3", dram_active_ratio=0.3)]
    found = merge_dcgm([*own, dcgm(mig=True, **dict.fromkeys(MEASURED, NOT_SUPPORTED)), *theirs], HERE)
    assert [gpu.uuid for gpu in found] == ["GPU-0", "MIG-a"]
    assert found[1].dram_active_ratio == 0.3


@each_row(
    ("label", "taken"),
    [("gpu-07", False), ("GPU-07.cluster.local", False), ("dcgm-exporter-8x2kp", True), ("gpu-08", True), ("", True)],
)
def test_gpus_that_nvml_does_not_list_are_taken_from_other_hosts_only(label: str, taken: bool) -> None:
    """A container may see one of a host's GPUs only: the others are not its own, nor another host's."""
    found = merge_dcgm([nvml(0), dcgm(0, host=label, uuid="GPU-x")], HERE)
    assert shown(found) == [(0, "GPU-0"), *([(1, "GPU-x")] if taken else [])]


def test_a_label_under_which_one_gpu_is_known_is_this_host_s() -> None:
    pod = "dcgm-exporter-8x2kp"
    assert shown(merge_dcgm([nvml(3), *(dcgm(n, host=pod) for n in range(8))], HERE)) == [(3, "GPU-3")]


def test_where_nvml_lists_none_all_are_taken_as_they_are() -> None:
    gpus = [dcgm(n) for n in range(3)]
    assert merge_dcgm(gpus, HERE) == tuple(gpus)


def test_other_hosts_stand_behind_in_their_order_with_indices_of_their_own() -> None:
    theirs = [dcgm(n, host=host, uuid=f"GPU-{host}-{n}") for host in ("a", "b") for n in range(2)]
    slices = dcgm(1, host="b", uuid="MIG-b", parent_uuid="GPU-b-1", mig_instance="2")
    found = merge_dcgm([*theirs, slices, nvml(0), nvml(1)], HERE)
    assert shown(found) == [
        *((0, "GPU-0"), (1, "GPU-1")),
        *((2, "GPU-a-0"), (3, "GPU-a-1")),
        *((4, "GPU-b-0"), (5, "GPU-b-1"), (5, "MIG-b")),
    ]
    assert shown(merge_dcgm(theirs, HERE)) == [(0, "GPU-a-0"), (1, "GPU-a-1"), (2, "GPU-b-0"), (3, "GPU-b-1")]
