"""What nvidia-smi prints of GPUs, in gpumon's units, and its words in the place of numbers."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.smi import SMI_FIGURES
from gpumon.sources.guest.smi import OLDER, SMI_COLUMNS, THROTTLE, parse_smi_gpus, refused_column, without_column
from tests.each_row import each_row

TOLD = {
    "index": "0",
    "uuid": "GPU-5ff8d1c1-31b0-4e7b-9e6d-0c4e6c7f2a11",
    "name": "NVIDIA H100 80GB HBM3",
    "mig.mode.current": "Disabled",
    "compute_cap": "9.0",
    THROTTLE: "0x0000000000000004",
    "utilization.gpu": "97",
    "utilization.memory": "61",
    "memory.total": "81559",
    "memory.used": "74210",
    "memory.reserved": "551",
    "power.draw": "684.33",
    "enforced.power.limit": "700.00",
    "power.default_limit": "700.00",
    "temperature.gpu": "63",
    "temperature.memory": "71",
    "clocks.sm": "1755",
    "clocks.max.sm": "1980",
    "clocks.mem": "2619",
    "clocks.max.mem": "2619",
    "pcie.link.gen.current": "5",
    "pcie.link.gen.max": "5",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
    "fan.speed": "[N/A]",
    "ecc.errors.corrected.volatile.total": "0",
    "ecc.errors.uncorrected.volatile.total": "0",
}
MIB = 2.0**20


def line(**changes: str) -> str:
    """A line of nvidia-smi; `changes` by column, with `_` for a dot."""
    told = {column: changes.get(column.replace(".", "_"), TOLD[column]) for column in SMI_COLUMNS}
    return ", ".join(told.values())


def test_figures_are_in_base_units() -> None:
    (gpu,) = parse_smi_gpus([line()], SMI_COLUMNS, 1000.0, {})
    assert (gpu.index, gpu.uuid, gpu.name) == (0, TOLD["uuid"], TOLD["name"])
    assert gpu.state is GpuState.OK
    assert gpu.busy_ratio == pytest.approx(0.97)
    assert gpu.memory_busy_ratio == pytest.approx(0.61)
    assert (gpu.vram_total_bytes, gpu.vram_used_bytes) == (81559 * MIB, 74210 * MIB)
    assert (gpu.power_w, gpu.power_limit_w) == (684.33, 700.0)
    assert (gpu.temperature_c, gpu.memory_temperature_c) == (63.0, 71.0)
    assert (gpu.sm_clock_hz, gpu.memory_clock_max_hz) == (1755e6, 2619e6)
    assert (gpu.pcie_generation, gpu.pcie_width) == (5.0, 16.0)
    assert gpu.throttle == ("sw_power_cap",)
    assert gpu.compute_capability == "9.0"
    assert gpu.ecc_uncorrected == 0.0
    assert gpu.monotonic_s == 1000.0
    assert gpu.source == "nvidia-smi"


@each_row(
    ("word", "reason"),
    [
        ("[N/A]", Reason.NOT_SUPPORTED),
        ("N/A", Reason.NOT_SUPPORTED),
        ("[Not Supported]", Reason.NOT_SUPPORTED),
        ("[Insufficient Permissions]", Reason.NO_PERMISSION),
        ("[Unknown Error]", Reason.ERROR),
        ("[GPU is lost]", Reason.LOST),
        ("[GPU requires reset]", Reason.LOST),
        ("a new word", Reason.INVALID),
        ("-5", Reason.INVALID),
        ("1e9", Reason.INVALID),
        ("nan", Reason.INVALID),
        ("4000", Reason.INVALID),
        ("9" * 400, Reason.INVALID),
        ("", Reason.INVALID),
    ],
)
def test_a_word_in_the_place_of_a_number_is_a_reason_and_never_a_zero(word: str, reason: Reason) -> None:
    (gpu,) = parse_smi_gpus([line(utilization_gpu=word)], SMI_COLUMNS, 1000.0, {})
    assert isinstance(gpu.busy_ratio, Missing)
    assert gpu.busy_ratio.reason is reason


def test_what_nvidia_smi_has_no_column_for_says_so() -> None:
    (gpu,) = parse_smi_gpus([line()], SMI_COLUMNS, 1000.0, {})
    for field in ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "nvlink_tx_bytes_per_s", "energy_j"):
        value = getattr(gpu, field)
        assert isinstance(value, Missing)
        assert value.reason is Reason.NOT_EXPOSED
        assert "install gpumon" in value.detail


def test_a_gpu_that_is_gone_is_lost() -> None:
    gone = {column.name.replace(".", "_"): "[GPU is lost]" for column in SMI_FIGURES}
    (gpu,) = parse_smi_gpus([line(**gone)], SMI_COLUMNS, 1000.0, {})
    assert gpu.state is GpuState.LOST


def test_columns_of_an_older_nvidia_smi() -> None:
    refused = refused_column([f'Field "{THROTTLE}" is not a valid field to query.', ""])
    assert refused == THROTTLE
    older = without_column(SMI_COLUMNS, refused)
    assert len(older) == len(SMI_COLUMNS)
    assert OLDER[THROTTLE] in older
    oldest = without_column(older, "memory.reserved")
    assert len(oldest) == len(SMI_COLUMNS) - 1
    told = {**TOLD, OLDER[THROTTLE]: "0x0000000000000008"}
    (gpu,) = parse_smi_gpus([", ".join(told[column] for column in oldest)], oldest, 1000.0, {})
    assert gpu.throttle == ("hw_slowdown",)
    assert isinstance(gpu.vram_reserved_bytes, Missing)
    assert "too old" in gpu.vram_reserved_bytes.detail


def test_lines_that_are_no_gpu_and_texts_that_a_terminal_would_read() -> None:
    lines = ["", "WARNING: infoROM is corrupted at gpu 0000:1A:00.0", "x" * 5000, line(index="one"), line(index="-1")]
    assert parse_smi_gpus(lines, SMI_COLUMNS, 1000.0, {}) == ()
    (gpu,) = parse_smi_gpus([line(name="H100\x1b[31m", compute_cap="\x1b]0;x\x07")], SMI_COLUMNS, 1000.0, {})
    assert gpu.name == "H100[31m" or "\x1b" not in gpu.name
    assert gpu.compute_capability == ""
    assert len(parse_smi_gpus([line()] * 500, SMI_COLUMNS, 1000.0, {})) == 128


def test_a_digit_that_is_no_decimal_is_no_gpu() -> None:
    assert parse_smi_gpus([line(index="\u00b2")], SMI_COLUMNS, 0.0, {}) == ()
