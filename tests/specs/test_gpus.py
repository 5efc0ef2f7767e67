"""The GPU catalogue: every row, exact matching with its traps, derived peaks, and the bandwidth peak."""

from __future__ import annotations

import csv
import re
from importlib.resources import files

import pytest

from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpus import bandwidth_peak, clock_bandwidth, parse_gpus
from gpumon.specs.precision import Precision

TEXT = files("gpumon.specs").joinpath("data", "gpus.csv").read_text("utf-8")
ROWS = list(csv.DictReader(TEXT.splitlines()))
CATALOGUE = gpu_catalogue()
MIB = 2.0**20


def matched(name: str, memory_mib: float | None = None) -> GpuSpec:
    spec = CATALOGUE.match(name, None if memory_mib is None else memory_mib * MIB)
    assert spec is not None
    return spec


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['marketing_name']} {row['memory_gb']}")
def test_every_row_is_found_by_every_name(row: dict[str, str]) -> None:
    memory = float(row["memory_bytes_reported_by_nvml_mib"] or float(row["memory_gb"]) * 1024)
    for name in row["name"].split("|"):
        spec = matched(name, memory)
        assert spec.bandwidth_bytes_per_s == float(row["bandwidth_gbs"] or 0) * 1e9
        assert spec.verified == ("UNVERIFIED: " not in row["notes"])
        assert ("unverified" in spec.source) == (not spec.verified)
        assert spec.flops_per_s[Precision.FP16] == float(row["fp16_tflops"]) * 1e12
        assert CATALOGUE.find(spec.name) is spec


def test_notes_are_kept_without_the_arithmetic() -> None:
    spec = matched("NVIDIA H100")
    assert "UNVERIFIED: compute figures assumed equal to H100 SXM5" in spec.note
    assert "PCI id 10DE:2339" in spec.note
    assert "tensor_rule" not in spec.note


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("nvidia h100 80gb hbm3", "H100 SXM5 80GB"),
        ("H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("NVIDIA H100", "H100 SXM5 64GB"),
        ("Tesla T4", "T4"),
        ("A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA GH200 480GB", "GH200 96GB HBM3"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
    ],
)
def test_names_of_the_driver(name: str, short: str) -> None:
    assert matched(name).name == short


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 5090 D v2",
        "NVIDIA RTX 4000 SFF Ada",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "GRID A100-40C",
        "NVIDIA L40S-48Q",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q",
        "H10",
        "",
    ],
)
def test_what_only_begins_like_a_row_is_unknown(name: str) -> None:
    assert CATALOGUE.match(name) is None


@pytest.mark.parametrize(
    ("name", "memory_mib", "short", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 3080", 10240, "GeForce RTX 3080 10GB", 760),
        ("NVIDIA GeForce RTX 3080", 12288, "GeForce RTX 3080 12GB", 912),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "GeForce RTX 4060 Ti 16GB", 288),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "GeForce RTX 4060 Ti 8GB", 288),
    ],
)
def test_parts_of_one_name_are_told_apart_by_memory(name: str, memory_mib: float, short: str, gb_per_s: float) -> None:
    spec = matched(name, memory_mib)
    assert (spec.name, spec.bandwidth_bytes_per_s) == (short, gb_per_s * 1e9)


def test_without_a_memory_size_a_shared_name_is_noted() -> None:
    assert "other parts have this name" in matched("NVIDIA GeForce RTX 3080").note
    assert "other parts" not in matched("NVIDIA L4").note


def test_a_modded_board_keeps_the_rates_with_a_warning() -> None:
    spec = matched("NVIDIA GeForce RTX 4090", 49140)
    assert spec.flops_per_s == matched("NVIDIA GeForce RTX 4090", 24564).flops_per_s
    assert spec.note.startswith("this one has 48 GiB instead of 24")
    assert "instead of" not in matched("NVIDIA GeForce RTX 4090", 24564).note


def test_consumer_blackwell_takes_the_fp8_rate_that_is_reached() -> None:
    assert matched("NVIDIA GeForce RTX 5090").flops_per_s[Precision.FP8] == 838e12
    assert matched("NVIDIA GeForce RTX 4090").flops_per_s[Precision.FP8] == 330.3e12


def test_fp4_is_nvidias_both_formats_and_amds_one() -> None:
    assert matched("NVIDIA B200").flops_per_s[Precision.NVFP4] == matched("NVIDIA B200").flops_per_s[Precision.MXFP4]
    assert Precision.NVFP4 not in matched("AMD Instinct MI355X").flops_per_s
    assert Precision.FP8 not in matched("NVIDIA A100-SXM4-80GB").flops_per_s


def test_an_unknown_gpu_is_derived_and_says_so() -> None:
    spec = CATALOGUE.match("NVIDIA GeForce RTX 4070 SUPER", 12282 * MIB, 56, 3.1e9, 10.501e9, 192, "8.9")
    assert spec is not None
    assert spec.source == "derived: 56 SM x 512 FLOP/clock x 3.10 GHz"
    assert not spec.verified
    assert spec.architecture == "Ada Lovelace"
    assert spec.bandwidth_bytes_per_s == pytest.approx(504e9, rel=0.001)
    assert spec.flops_per_s[Precision.BF16] == 56 * 512 * 3.1e9
    assert spec.flops_per_s[Precision.FP8] == 2 * spec.flops_per_s[Precision.BF16]


def test_an_unknown_gpu_without_clocks_has_its_bandwidth_only_or_nothing() -> None:
    spec = CATALOGUE.match("NVIDIA X1", None, None, None, 1.6e9, 5120, "9.0")
    assert spec is not None
    assert spec.flops_per_s == {}
    assert spec.bandwidth_bytes_per_s == 1.6e9 * 2 * 5120 / 8
    assert CATALOGUE.match("NVIDIA X1", 8e9) is None
    assert CATALOGUE.match("NVIDIA X1", 8e9, 100, 2e9, None, None, "99.0") is None


CAPABILITY_ROWS = [
    row
    for row in ROWS
    if re.fullmatch(r"\d+\.\d", row["compute_capability"])
    and (rule := re.search(r"tensor_rule (\d+)SM\*(\d+)\*(\d+)MHz", row["notes"]))
    and rule[1] == row["sm_count"]
]


@pytest.mark.parametrize("row", CAPABILITY_ROWS, ids=lambda row: f"{row['marketing_name']} {row['memory_gb']}")
def test_the_rates_reproduce_the_catalogue_at_the_rated_clock(row: dict[str, str]) -> None:
    """L40 and A10G run at half of their chip's rate: they are in the catalogue because no rule finds that."""
    rule = re.search(r"tensor_rule (\d+)SM\*(\d+)\*(\d+)MHz", row["notes"])
    assert rule is not None
    name = f"GeForce {row['marketing_name']} X" if "GeForce" in row["marketing_name"] else "NVIDIA X"
    spec = CATALOGUE.match(name, None, float(rule[1]), float(rule[3]) * 1e6, None, None, row["compute_capability"])
    assert spec is not None
    factor = 2.0 if row["marketing_name"].startswith(("L40", "A10G")) and row["marketing_name"] != "L40S" else 1.0
    assert spec.flops_per_s[Precision.FP16] == pytest.approx(factor * float(row["fp16_tflops"]) * 1e12, rel=0.016)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("H100 SXM 80GB", "H100 SXM5 80GB"),
        ("h100 sxm5 80gb", "H100 SXM5 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("A100 SXM 80GB", "A100 SXM4 80GB"),
        ("RTX 4090", "GeForce RTX 4090"),
        ("GB200", "GB200"),
        ("A10G", "A10G"),
        ("L4", "L4"),
        ("Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_short_names_of_the_config(text: str, short: str) -> None:
    assert CATALOGUE.find(text).name == short


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("H100", ["H100 PCIe 80GB", "H100 SXM5 80GB", "H100 NVL 94GB"]),
        ("NVIDIA H100", ["H100 PCIe 80GB", "H100 SXM5 80GB"]),
        ("H200", ["H200 SXM 141GB", "H200 NVL 141GB"]),
        ("H100 SXM 80G", ["H100 SXM5 80GB"]),
        ("GeForce RTX 3080", ["GeForce RTX 3080 10GB", "GeForce RTX 3080 12GB"]),
        ("RTX PRO 6000", ["RTX PRO 6000 Blackwell Workstation"]),
        ("", []),
        ("x" * 10_000, []),
    ],
)
def test_an_unclear_short_name_lists_the_near_ones(text: str, near: list[str]) -> None:
    with pytest.raises(ValueError, match="GPU type") as error:
        CATALOGUE.find(text)
    assert all(name in str(error.value) for name in near)
    assert len(str(error.value)) < 600


def test_clock_rule() -> None:
    assert clock_bandwidth(2.619e9, 5120) == pytest.approx(3352e9, rel=1e-3)
    assert clock_bandwidth(3.996e9, 8192) == pytest.approx(8184e9, rel=1e-3)
    assert clock_bandwidth(None, 5120) is None
    assert clock_bandwidth(2.6e9, 0) is None


BANDWIDTH_RULES = [row for row in ROWS if re.search(r"bw_rule (\d+)MHz\*2\*(\d+)/8", row["notes"])]


@pytest.mark.parametrize("row", BANDWIDTH_RULES, ids=lambda row: f"{row['marketing_name']} {row['memory_gb']}")
def test_the_clock_rule_reproduces_the_catalogue(row: dict[str, str]) -> None:
    rule = re.search(r"bw_rule (\d+)MHz\*2\*(\d+)/8", row["notes"])
    assert rule is not None
    assert clock_bandwidth(float(rule[1]) * 1e6, float(rule[2])) == pytest.approx(
        float(row["bandwidth_gbs"]) * 1e9, rel=0.025
    )


def test_the_drivers_clock_comes_first_and_the_catalogue_checks_it() -> None:
    h200 = matched("NVIDIA H200")
    peak = bandwidth_peak(3.201e9, 6144, h200)
    assert peak is not None
    assert peak[0] == pytest.approx(4917e9, rel=1e-3)
    assert "catalogue" not in peak[1]
    half = bandwidth_peak(3.201e9, 3072, h200)
    assert half is not None
    assert half[0] == pytest.approx(2458e9, rel=1e-3)
    assert "-49% from catalogue (4800 GB/s)" in half[1]


def test_the_catalogue_serves_where_the_driver_has_no_clock() -> None:
    assert bandwidth_peak(None, None, matched("NVIDIA GB10")) == (273e9, "bandwidth: catalogue (unverified)")
    assert bandwidth_peak(None, None, matched("NVIDIA H100")) is None
    assert bandwidth_peak(None, 5120, None) is None
    custom = bandwidth_peak(2.619e9, 4096, matched("NVIDIA H100"))
    assert custom is not None
    assert custom[0] == pytest.approx(2681.9e9, rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (",2039,", ",fast,", "bandwidth_gbs 'fast'"),
        (",2039,", ",-1,", "bandwidth_gbs '-1'"),
        ("A100 SXM4 80GB,Ampere,8.0,80,", "A100 SXM4 40GB,Ampere,8.0,40,", "A100 SXM4 40GB 40GB stands twice"),
        ("bandwidth_gbs,", "bandwidth,", "bandwidth_gbs is missing"),
        (",A100 SXM4 80GB,", ",,", "empty"),
    ],
)
def test_a_bad_cell_is_named(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(ValueError, match=r"gpus\.csv line \d+: ") as error:
        parse_gpus(text)
    assert problem in str(error.value)
