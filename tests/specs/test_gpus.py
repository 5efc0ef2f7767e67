"""The GPU catalogue: every row against its architecture's rates, real names with their traps, peaks that are derived
and peaks that never are, what the config knows better, and the bandwidth peak."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from gpumon.config.schema import Gpu
from gpumon.sources.packaged import gpu_catalogue, network_catalogue
from gpumon.specs.gpu import GpuFacts, GpuSpec, PeaksOrigin
from gpumon.specs.gpu_names import USUAL
from gpumon.specs.gpu_rates import derive_spec, why_never_derived
from gpumon.specs.gpus import bandwidth_peak, parse_gpus
from gpumon.specs.precision import Precision
from tests.each_row import each_row

TEXT = files("gpumon.specs").joinpath("data", "gpus.csv").read_text("utf-8")
ROWS = list(csv.DictReader(TEXT.splitlines()))
CATALOGUE = gpu_catalogue()
MIB = 2.0**20
RATES = {
    "fp32_tflops": Precision.FP32,
    "fp16_tflops": Precision.FP16,
    "bf16_tflops": Precision.BF16,
    "fp8_tflops": Precision.FP8,
    "int8_tops": Precision.INT8,
    "fp4_tflops": Precision.MXFP4,
}
EXPORT_VARIANTS = [
    "NVIDIA A800-SXM4-80GB",
    "NVIDIA A800 80GB PCIe LC",
    "NVIDIA AX800",
    "NVIDIA H800",
    "NVIDIA H800 NVL",
    "NVIDIA H800 80GB HBM3",
    "NVIDIA H20",
    "NVIDIA H20-3e",
    "NVIDIA H20 NVL16",
    "NVIDIA H20B",
    "NVIDIA L20",
    "NVIDIA L2",
    "NVIDIA B30A",
    "NVIDIA RTX 6000D",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 5090 D",
    "NVIDIA GeForce RTX 5090 D v2",
    "NVIDIA GeForce RTX 5080 D",
    "NVIDIA RTX 5000D",
]
SHARES = [
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "GRID A100-40C",
    "GRID T4-1B4",
    "NVIDIA L40S-48Q",
    "NVIDIA L20-48",
    "NVIDIA B200X-1-23CME",
]


def by_name(row: dict[str, str]) -> str:
    return row["short_name"]


def matched(name: str, memory_mib: float | None = None, units: float | None = None) -> GpuSpec:
    spec = CATALOGUE.match(GpuFacts(name, None if memory_mib is None else memory_mib * MIB, units))
    assert spec is not None
    return spec


@each_row("row", lambda: ROWS, by_name)
def test_every_row_is_found_by_every_name(row: dict[str, str]) -> None:
    memory = float(row["memory_mib"] or float(row["memory_gb"] or 0) * 1024)
    for name in row["name"].split("|"):
        spec = matched(name, memory, float(row["sm_count"] or 0))
        assert spec.name == row["short_name"]
        assert spec.bandwidth_bytes_per_s == float(row["bandwidth_gbs"] or 0) * 1e9
        assert spec.verified == (not row["unverified"])
        assert ("unverified" in spec.source) == (not spec.verified)
        assert CATALOGUE.find(spec.name) is spec
        for column, precision in RATES.items():
            if row[column] == "":
                assert precision not in spec.flops_per_s, "it lacks the format"
            else:
                peak = 0.0 if row[column] == "?" else float(row[column]) * 1e12
                assert spec.flops_per_s[precision] == peak, "0: it has the format, and nobody tells its peak"


@each_row("row", lambda: ROWS, by_name)
def test_every_row_has_a_source_and_says_what_stands_on_one(row: dict[str, str]) -> None:
    assert row["source"]
    unknown = any(row[column] == "?" for column in RATES)
    assert not unknown or row["unverified"], "a row whose peaks are not known is no verified one"
    figures = [each for each in row["source"].split(" ; ") if "g_nv_name_released" not in each]
    if len(figures) < 2:
        assert row["unverified"], "one source for its figures"


@each_row(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("nvidia h100 80gb hbm3", "H100 SXM5 80GB"),
        ("H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB"),
        ("NVIDIA H100", "H100 SXM5 64GB"),
        ("NVIDIA H200", "H200 SXM 141GB"),
        ("NVIDIA H200 NVL", "H200 NVL 141GB"),
        ("NVIDIA H800", "H800 SXM5 80GB"),
        ("NVIDIA H800 PCIe", "H800 PCIe 80GB"),
        ("NVIDIA H800 NVL", "H800 NVL 94GB"),
        ("NVIDIA H20", "H20 96GB"),
        ("NVIDIA H20-3e", "H20-3e 141GB"),
        ("NVIDIA H20 NVL16", "H20 NVL16"),
        ("NVIDIA GH200 480GB", "GH200 96GB HBM3"),
        ("NVIDIA GH200 120GB", "GH200 96GB HBM3"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB HBM3e"),
        ("NVIDIA B200", "B200 SXM 180GB"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM 288GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA A100-SXM-64GB", "A100 SXM4 64GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A800 80GB PCIe LC", "A800 PCIe 80GB"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L2", "L2"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla P40", "P40"),
        ("Quadro RTX 8000", "Quadro RTX 8000"),
        ("NVIDIA RTX A2000", "RTX A2000 6GB"),
        ("NVIDIA RTX A2000 12GB", "RTX A2000 12GB"),
        ("NVIDIA RTX A4500", "RTX A4500"),
        ("NVIDIA RTX A5500", "RTX A5500"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada"),
        ("NVIDIA RTX 4500 Ada Generation", "RTX 4500 Ada"),
        ("NVIDIA RTX 5880 Ada Generation", "RTX 5880 Ada"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX 6000D", "RTX 6000D"),
        ("NVIDIA RTX PRO 2000 Blackwell", "RTX PRO 2000 Blackwell"),
        ("NVIDIA RTX PRO 4000 Blackwell", "RTX PRO 4000 Blackwell"),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", "RTX PRO 4000 Blackwell SFF"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "RTX PRO 5000 Blackwell 72GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "GeForce RTX 4090 D"),
        ("NVIDIA GeForce RTX 5060", "GeForce RTX 5060"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("NVIDIA GeForce RTX 5090 D", "GeForce RTX 5090 D"),
        ("NVIDIA GeForce RTX 5090 D v2", "GeForce RTX 5090 D v2"),
    ],
)
def test_names_of_the_driver(name: str, short: str) -> None:
    assert matched(name).name == short


@each_row(
    "name",
    [
        "NVIDIA H100 80GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA H200 141GB",
        "NVIDIA GB300 NVL",
        "NVIDIA B200X-180C",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 DD",
        "NVIDIA GeForce RTX 5090 D v3",
        "NVIDIA RTX 4000 SFF Ada",
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        "NVIDIA RTX A4000H",
        "NVIDIA RTX PRO 6000 Blackwell",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q",
        "NVIDIA RTX Pro 6000 Blackwell DC-96C",
        "NVIDIA L40G",
        "GRID A100-40C",
        "NVIDIA L40S-48Q",
        "NVIDIA Graphics Device",
        "H10",
        "",
    ],
)
def test_what_only_begins_like_a_row_is_unknown(name: str) -> None:
    assert CATALOGUE.match(GpuFacts(name)) is None


@each_row(
    ("name", "memory_mib", "short", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 3080", 10240, "GeForce RTX 3080 10GB", 760),
        ("NVIDIA GeForce RTX 3080", 12288, "GeForce RTX 3080 12GB", 912),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "GeForce RTX 4060 Ti 16GB", 288),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, "GeForce RTX 4060 Ti 8GB", 288),
        ("NVIDIA GeForce RTX 5060 Ti", 16311, "GeForce RTX 5060 Ti 16GB", 448),
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


def test_a_note_says_what_is_not_verified() -> None:
    note = matched("NVIDIA H100").note
    assert "unverified: compute figures assumed equal to H100 SXM5" in note
    assert "PCI id 10DE:2339" in note


def test_fp4_is_nvidias_both_formats_and_amds_one() -> None:
    assert matched("NVIDIA B200").flops_per_s[Precision.NVFP4] == matched("NVIDIA B200").flops_per_s[Precision.MXFP4]
    assert Precision.NVFP4 not in matched("AMD Instinct MI355X").flops_per_s
    assert Precision.FP8 not in matched("NVIDIA A100-SXM4-80GB").flops_per_s


HALF_RATE = ("A10G", "L40", "L20")
"""Chips of the professional rate that are sold with half of it: no rule finds that, so they have rows."""
CAPPED = ("H20 96GB", "H20-3e 141GB", "GeForce RTX 5090 D", "GeForce RTX 5090 D v2")
"""Export variants whose published rates lie below their SMs and clock."""
OTHERWISE = {
    ("P40", Precision.INT8): "its vector pipes multiply 8-bit integers (DP4A); it has no tensor cores",
    ("H20 96GB", Precision.FP32): "44 is the published figure; SMs and clock give 39.5",
    ("H20-3e 141GB", Precision.FP32): "the same",
    ("RTX PRO 6000 Blackwell Server", Precision.FP32): "120 is the published figure; the driver's clock gives 117",
}
OF_AMD = ("CDNA", "RDNA")
CLOCKED = [
    row for row in ROWS if row["sm_count"] and row["boost_clock_mhz"] and not row["architecture"].startswith(OF_AMD)
]


@each_row("row", lambda: CLOCKED, by_name)
def test_every_rate_follows_from_sms_and_clock_or_is_a_named_exception(row: dict[str, str]) -> None:
    """SM count x FLOP per clock of the architecture x rated clock, for each format, within 1.6%."""
    spec = CATALOGUE.find(row["short_name"])
    consumer = "GeForce X" if "GeForce" in spec.name else "NVIDIA X"

    def at(mhz: str) -> dict[Precision, float]:
        facts = GpuFacts(consumer, None, spec.sm_count, float(mhz) * 1e6, None, None, row["compute_capability"])
        found = derive_spec(facts)
        assert found is not None
        return found.flops_per_s

    by_rule = at(row["tensor_clock_mhz"] or row["boost_clock_mhz"])
    by_rule[Precision.FP32] = at(row["boost_clock_mhz"])[Precision.FP32]
    factor = 0.5 if spec.name in HALF_RATE else 1.0
    for precision in by_rule.keys() | spec.flops_per_s.keys():
        peak = spec.flops_per_s.get(precision)
        if peak == 0.0 or (spec.name, precision) in OTHERWISE:
            continue
        assert peak is not None, f"{precision.value}: the architecture has it"
        assert precision in by_rule, f"{precision.value}: the architecture lacks it"
        expected = by_rule[precision] * (1.0 if precision is Precision.FP32 else factor)
        if spec.name in CAPPED and precision is not Precision.FP32:
            assert peak <= expected * 1.016
        else:
            assert peak == pytest.approx(expected, rel=0.016), precision.value


def test_each_exception_is_one() -> None:
    for name, precision in OTHERWISE:
        row = next(row for row in CLOCKED if row["short_name"] == name)
        clock = float(row["boost_clock_mhz"]) * 1e6
        facts = GpuFacts("NVIDIA X", None, float(row["sm_count"]), clock, None, None, row["compute_capability"])
        found = derive_spec(facts)
        assert found is not None
        by_rule = found.flops_per_s.get(precision, 0.0)
        assert CATALOGUE.find(name).flops_per_s[precision] != pytest.approx(by_rule, rel=0.016)


AMD_FLOP_PER_CLOCK = {
    "CDNA2": {Precision.FP32: 128, Precision.BF16: 1024, Precision.INT8: 1024},
    "CDNA3": {Precision.FP32: 256, Precision.BF16: 2048, Precision.FP8: 4096, Precision.INT8: 4096},
    "CDNA4": {Precision.FP32: 256, Precision.BF16: 4096, Precision.FP8: 8192, Precision.MXFP4: 16384},
    "RDNA2": {Precision.FP32: 128, Precision.FP16: 256, Precision.INT8: 512},
    "RDNA3": {Precision.FP32: 256, Precision.BF16: 512, Precision.INT8: 512},
    "RDNA4": {Precision.FP32: 256, Precision.BF16: 1024, Precision.FP8: 2048, Precision.INT8: 2048},
}
"""FLOP of one compute unit in one clock, dense, as AMD's whitepapers and GPUOpen have them."""
AMD = [row for row in ROWS if row["architecture"] in AMD_FLOP_PER_CLOCK and row["boost_clock_mhz"]]


@each_row("row", lambda: AMD, by_name)
def test_every_rate_of_amd_follows_from_compute_units_and_clock(row: dict[str, str]) -> None:
    spec = CATALOGUE.find(row["short_name"])
    for precision, per_clock in AMD_FLOP_PER_CLOCK[row["architecture"]].items():
        expected = per_clock * spec.sm_count * float(row["boost_clock_mhz"]) * 1e6
        assert spec.flops_per_s[precision] == pytest.approx(expected, rel=0.016), precision.value


@each_row(
    ("name", "memory_mib", "units", "short"),
    [
        ("AMD Instinct MI250X / MI250", 65520, 110, "Instinct MI250X GCD"),
        ("AMD Instinct MI250X / MI250", 65520, 104, "Instinct MI250 GCD"),
        ("AMD Instinct MI300X VF", 196592, 304, "Instinct MI300X"),
        ("AMD Instinct MI300X OAM", 196592, 304, "Instinct MI300X"),
        ("AMD Instinct MI325X VF", 262128, 304, "Instinct MI325X"),
        ("AMD Instinct MI300A", 131072, 228, "Instinct MI300A"),
        ("AMD Instinct MI350X", 294896, 256, "Instinct MI350X"),
        ("AMD Radeon Pro W7900 Dual Slot", 49136, 96, "Radeon Pro W7900"),
        ("AMD Radeon Pro W7800", 32752, 70, "Radeon Pro W7800"),
        ("AMD Radeon Pro W7800 48GB", 49136, 70, "Radeon Pro W7800 48GB"),
        ("AMD Radeon Pro W6800", 32752, 60, "Radeon Pro W6800"),
        ("AMD Radeon AI PRO R9700", 32624, 64, "Radeon AI PRO R9700"),
        ("AMD Radeon RX 7900 XTX", 24560, 96, "Radeon RX 7900 XTX"),
        ("AMD Radeon RX 9070", 16304, 56, "Radeon RX 9070"),
    ],
)
def test_a_gpu_of_amd_is_found_by_each_name_of_its_driver(name: str, memory_mib: int, units: int, short: str) -> None:
    spec = matched(name, memory_mib, units)
    assert spec.name == short
    assert "other parts" not in spec.note


def test_an_mi250_without_a_count_of_its_units_is_not_guessed_in_silence() -> None:
    assert "other parts have this name" in matched("AMD Instinct MI250X / MI250", 65520).note


def test_an_instinct_whose_rates_amd_does_not_publish_has_a_bandwidth_alone() -> None:
    spec = CATALOGUE.find("Instinct MI308X")
    assert not any(spec.flops_per_s.values())
    assert spec.bandwidth_bytes_per_s == pytest.approx(5.3e12)


WITHOUT_CLOCK = {"L2", "H20 NVL16", "B100", "B300 SXM 288GB", "GB300", "RTX 6000D", "Rubin"}


def test_the_rows_without_a_clock_are_few_and_keep_their_formats_ratios() -> None:
    unclocked = {row["short_name"] for row in ROWS if row not in CLOCKED and not row["architecture"].startswith(OF_AMD)}
    assert unclocked == WITHOUT_CLOCK
    for name in ("B300 SXM 288GB", "GB300"):
        spec = CATALOGUE.find(name)
        clock_hz = spec.flops_per_s[Precision.BF16] / (spec.sm_count * 8192)
        assert 1.8e9 < clock_hz < 2.1e9, "as the B200's"
        assert spec.flops_per_s[Precision.NVFP4] == 6 * spec.flops_per_s[Precision.BF16]
    assert CATALOGUE.find("L2").flops_per_s[Precision.FP8] == 2 * CATALOGUE.find("L2").flops_per_s[Precision.BF16]


def test_an_unknown_gpu_is_derived_and_says_so() -> None:
    facts = GpuFacts("NVIDIA GeForce RTX 4077", 12282 * MIB, 56, 3.1e9, 10.501e9, 192, "8.9")
    spec = CATALOGUE.match(facts)
    assert spec is not None
    assert spec.source == "derived: 56 SM x 512 FLOP/clock x 3.10 GHz"
    assert (spec.verified, spec.listed, spec.architecture) == (False, False, "Ada Lovelace")
    assert spec.bandwidth_bytes_per_s == pytest.approx(504e9, rel=0.001)
    assert spec.flops_per_s[Precision.BF16] == 56 * 512 * 3.1e9
    assert spec.flops_per_s[Precision.FP8] == 2 * spec.flops_per_s[Precision.BF16]


def test_an_unknown_gpu_without_clocks_has_its_bandwidth_only_or_nothing() -> None:
    spec = CATALOGUE.match(GpuFacts("NVIDIA X1", None, None, None, 1.6e9, 5120, "9.0"))
    assert spec is not None
    assert spec.flops_per_s == {}
    assert spec.bandwidth_bytes_per_s == 1.6e9 * 2 * 5120 / 8
    assert "does not tell SM count and clock" in spec.source
    assert CATALOGUE.match(GpuFacts("NVIDIA X1", 8e9)) is None
    assert CATALOGUE.match(GpuFacts("NVIDIA X1", 8e9, 100, 2e9, None, None, "99.0")) is None


@each_row("name", lambda: EXPORT_VARIANTS)
def test_peaks_of_export_variants_are_never_derived(name: str) -> None:
    facts = GpuFacts(name, 90e9, 132, 1.98e9, 2.619e9, 5120, "9.0")
    spec = derive_spec(facts)
    assert spec is not None
    assert spec.flops_per_s == {}
    assert spec.bandwidth_bytes_per_s == facts.bandwidth_bytes_per_s
    assert "export variant" in spec.source
    assert "[[gpu]]" in spec.source


@each_row("name", lambda: SHARES)
def test_peaks_of_a_share_of_a_gpu_are_never_derived(name: str) -> None:
    spec = CATALOGUE.match(GpuFacts(name, 40e9, 108, 1.41e9, 1.215e9, 5120, "8.0"))
    assert spec is not None
    assert spec.flops_per_s == {}
    assert "vGPU" in spec.source


@each_row("row", lambda: ROWS, by_name)
def test_no_other_name_of_the_catalogue_counts_as_one_of_those(row: dict[str, str]) -> None:
    for name in row["name"].split("|"):
        assert bool(why_never_derived(name)) == (name in EXPORT_VARIANTS or "A800" in name or "H800" in name)


def test_a_board_that_goes_by_its_number_is_no_share() -> None:
    assert not why_never_derived("NVIDIA PG506-232")
    assert why_never_derived("NVIDIA RTX Pro 6000 Blackwell DC-96C")


def test_rubin_is_known_by_its_architecture() -> None:
    announced = CATALOGUE.find("Rubin")
    assert CATALOGUE.match(GpuFacts("NVIDIA R200", None, 224, 2.4e9, None, None, "10.7", 13)) is announced
    assert CATALOGUE.match(GpuFacts("NVIDIA R200", None, 224, 2.4e9, None, None, "", 13)) is announced
    assert CATALOGUE.match(GpuFacts("NVIDIA R200", None, 224, 2.4e9, None, None, "10.7")) is announced
    assert not announced.verified
    assert announced.flops_per_s[Precision.BF16] == 4000e12
    other = CATALOGUE.match(GpuFacts("NVIDIA R100", None, 200, 2.4e9, 2e9, 4096, "10.7", 13))
    assert other is not None
    assert other.flops_per_s == {}, "the announced figures are of 224 SMs, and no clock stands beside them"


@each_row(
    ("name", "precision", "percent"),
    [
        ("H100 SXM 80GB", Precision.BF16, 80),
        ("H100 SXM 80GB", Precision.FP8, 71),
        ("B200 SXM 180GB", Precision.BF16, 78),
        ("B300 SXM 288GB", Precision.BF16, 79),
        ("GB200", Precision.BF16, 73),
        ("GH200 144GB HBM3e", Precision.BF16, 84),
    ],
)
def test_the_share_of_the_peak_that_matrix_products_reach(name: str, precision: Precision, percent: int) -> None:
    spec = CATALOGUE.find(name)
    ratio = spec.achievable_ratio(precision)
    assert ratio is not None
    assert round(100 * ratio) == percent
    assert "stas00/ml-engineering" in spec.achieved_source


def test_a_share_that_nobody_measured_is_none() -> None:
    assert CATALOGUE.find("L40S").achievable_ratio(Precision.BF16) is None
    assert CATALOGUE.find("H100 SXM 80GB").achievable_ratio(Precision.INT8) is None
    for row in ROWS:
        assert bool(row["achieved_source"]) == bool(row["achieved_bf16_tflops"] or row["achieved_fp8_tflops"])


def test_the_config_tells_the_peaks_of_a_gpu_that_has_none() -> None:
    own = gpu_catalogue((Gpu("NVIDIA H20 NVL16", bf16_tflops=148.0, fp8_tflops=296.0, memory_gb=96.0),))
    facts = GpuFacts("NVIDIA H20 NVL16", 96 * 2.0**30, 78, 1.98e9, 2.619e9, 6144, "9.0")
    spec = own.match(facts)
    assert spec is not None
    assert (spec.origin, spec.source, spec.listed) == (PeaksOrigin.CONFIG, "config (unverified)", True)
    assert spec.flops_per_s[Precision.FP16] == spec.flops_per_s[Precision.BF16] == 148e12
    assert spec.flops_per_s[Precision.FP8] == 296e12
    assert spec.flops_per_s[Precision.INT8] == 0.0, "not told, so still not known"
    told = bandwidth_peak(facts, spec)
    assert told is not None
    assert told[0] == facts.bandwidth_bytes_per_s, "not given: the driver's clock"
    assert own.find("H20 NVL16") == spec
    assert CATALOGUE.find("H20 NVL16").origin is PeaksOrigin.CATALOGUE, "the packaged rows stay as they are"


def test_the_config_tells_of_a_gpu_without_a_row() -> None:
    own = gpu_catalogue((Gpu("NVIDIA B30A", bf16_tflops=1125.0, bandwidth_gbs=4000.0),))
    facts = GpuFacts("NVIDIA B30A", 144e9, 74, 1.965e9, 3.996e9, 4096, "10.3")
    spec = own.match(facts)
    assert spec is not None
    assert (spec.name, spec.source, spec.verified) == ("B30A", "config", True)
    assert spec.flops_per_s[Precision.BF16] == 1125e12
    assert spec.flops_per_s[Precision.FP8] == 0.0, "not known, and not lacking"
    assert bandwidth_peak(facts, spec) == (4000e9, "bandwidth: config"), "the user stands above the driver's clock"
    assert own.find("B30A") is spec


@each_row(
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
        ("L20", "L20"),
        ("Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_short_names_of_the_config(text: str, short: str) -> None:
    assert CATALOGUE.find(text).name == short


@each_row(
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


def clocked(max_mem_clock_hz: float | None, bus_bits: float | None) -> GpuFacts:
    return GpuFacts("NVIDIA X", max_mem_clock_hz=max_mem_clock_hz, bus_bits=bus_bits)


def test_clock_rule() -> None:
    assert clocked(2.619e9, 5120).bandwidth_bytes_per_s == pytest.approx(3352e9, rel=1e-3)
    assert clocked(3.996e9, 8192).bandwidth_bytes_per_s == pytest.approx(8184e9, rel=1e-3)
    assert clocked(None, 5120).bandwidth_bytes_per_s is None
    assert clocked(2.6e9, 0).bandwidth_bytes_per_s is None


@each_row("row", [row for row in ROWS if row["memory_clock_mhz"] and row["bandwidth_gbs"]], named=by_name)
def test_the_clock_rule_reproduces_the_catalogue(row: dict[str, str]) -> None:
    assert clocked(float(row["memory_clock_mhz"]) * 1e6, float(row["memory_bus_bits"])).bandwidth_bytes_per_s == (
        pytest.approx(float(row["bandwidth_gbs"]) * 1e9, rel=0.025)
    )


def test_the_drivers_clock_comes_first_and_the_catalogue_checks_it() -> None:
    h200 = matched("NVIDIA H200")
    peak = bandwidth_peak(clocked(3.201e9, 6144), h200)
    assert peak is not None
    assert peak[0] == pytest.approx(4917e9, rel=1e-3)
    assert "catalogue" not in peak[1]
    half = bandwidth_peak(clocked(3.201e9, 3072), h200)
    assert half is not None
    assert half[0] == pytest.approx(2458e9, rel=1e-3)
    assert "-49% from catalogue (4800 GB/s)" in half[1]


def test_the_catalogue_serves_where_the_driver_has_no_clock() -> None:
    nothing = clocked(None, None)
    assert bandwidth_peak(nothing, matched("NVIDIA GB10")) == (273e9, "bandwidth: catalogue (unverified)")
    assert bandwidth_peak(nothing, matched("NVIDIA H100")) is None
    assert bandwidth_peak(clocked(None, 5120), None) is None
    custom = bandwidth_peak(clocked(2.619e9, 4096), matched("NVIDIA H100"))
    assert custom is not None
    assert custom[0] == pytest.approx(2681.9e9, rel=1e-3)


@each_row(
    ("old", "new", "problem"),
    [
        (",2039,", ",fast,", "bandwidth_gbs 'fast'"),
        (",2039,", ",-1,", "bandwidth_gbs '-1'"),
        (",A100 SXM4 80GB,", ",A100 SXM4 40GB,", "A100 SXM4 40GB stands twice"),
        ("bandwidth_gbs,", "bandwidth,", "bandwidth_gbs is missing"),
        (",A100 SXM4 80GB,", ",,", "empty"),
        (",19.5,312,312,,624,,", ",19.5,312,,?,about 624,,", "int8_tops 'about 624'"),
    ],
)
def test_a_bad_cell_is_named(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(ValueError, match=r"gpus\.csv line \d+: ") as error:
        parse_gpus(text)
    assert problem in str(error.value)


@each_row(
    ("said", "name"),
    [
        ("H100", "H100 SXM5 80GB"),
        ("h100 sxm", "H100 SXM5 80GB"),
        ("H100 PCIe", "H100 PCIe 80GB"),
        ("H100 NVL", "H100 NVL 94GB"),
        ("A100 80GB", "A100 SXM4 80GB"),
        ("a100-40gb", "A100 SXM4 40GB"),
        ("MI300X", "Instinct MI300X"),
        ("RTX 5090 32GB", "GeForce RTX 5090"),
        ("4090", "GeForce RTX 4090"),
        ("p5.48xlarge", "H100 SXM5 80GB"),
        ("Standard_ND96isr_H200_v5", "H200 SXM 141GB"),
        ("a3-ultragpu-8g", "H200 SXM 141GB"),
        ("ND96isr_H100_v5", "H100 SXM5 80GB"),
        ("gpu_8x_a100_80gb_sxm4", "A100 SXM4 80GB"),
        ("BM.GPU.MI300X.8", "Instinct MI300X"),
    ],
)
def test_a_plan_may_name_gpus_as_people_say_them(said: str, name: str) -> None:
    assert CATALOGUE.find_planned(said).name == name


@each_row("said", ["V100", "H1000", "RTX PRO 6000", "H20", "", "100", "sxm"])
def test_what_may_be_several_or_none_is_not_guessed(said: str) -> None:
    with pytest.raises(ValueError, match="GPU type"):
        CATALOGUE.find_planned(said)


def test_every_server_of_a_cloud_has_a_gpu_and_a_network_of_the_catalogues() -> None:
    networks = network_catalogue()
    for server in CATALOGUE.servers.by_name.values():
        assert CATALOGUE.find(server.gpu).name == server.gpu
        assert networks.find(server.network).name == server.network
        assert 1 <= server.gpus <= 72
        assert server.nvlink_gpus <= server.gpus
    assert {CATALOGUE.find(gpu).name for gpu in USUAL} == set(USUAL)


@each_row(
    ("said", "gpu", "gpus", "network"),
    [
        ("p5.48xlarge", "H100 SXM5 80GB", 8, "EFA 400"),
        ("p6-b300.48xlarge", "B300 SXM 288GB", 8, "EFA 400"),
        ("g6e.12xlarge", "L40S", 4, "Ethernet 25"),
        ("g2-standard-24", "L4", 2, "Ethernet 25"),
        ("a3-megagpu-8g", "H100 SXM5 80GB", 8, "Ethernet 100"),
        ("A2-MEGAGPU-16G", "A100 SXM4 40GB", 16, "Ethernet 100"),
        ("ND GB200 v6", "GB200", 4, "InfiniBand NDR 400"),
        ("Standard_NC80adis_H100_v5", "H100 NVL 94GB", 2, "Ethernet 25"),
        ("gpu_4x_h100_sxm5", "H100 SXM5 80GB", 4, "Ethernet 25"),
    ],
)
def test_the_server_of_a_cloud_says_what_is_in_it(said: str, gpu: str, gpus: int, network: str) -> None:
    server = CATALOGUE.servers.find(said)
    assert server is not None
    assert (server.gpu, server.gpus, server.network) == (gpu, gpus, network)


@each_row(
    ("said", "near", "far"),
    [
        ("RTX 5090 33GB", "GeForce RTX 5090", "RTX 3080"),
        ("RTX 5091", "GeForce RTX 5090", "RTX 3080"),
        ("H100 SXM 90GB", "H100 SXM5 80GB", "B300"),
        ("MI300", "Instinct MI300X", "RTX 3060"),
        ("p5.49xlarge", "p5.48xlarge", "H100"),
        ("ND96isr_H100_v6", "nd96isr_h100_v5", "H100 SXM5 80GB"),
        ("a3-highgpu-16g", "a3-highgpu-8g", "H100"),
    ],
)
def test_near_names_share_words_and_not_letters(said: str, near: str, far: str) -> None:
    with pytest.raises(ValueError, match="near names: ") as error:
        CATALOGUE.find_planned(said)
    names = str(error.value).partition("near names: ")[2].split(", ")
    assert near in names[:4]
    assert not any(far in name for name in names)


def test_what_runs_is_not_looked_up_by_a_usual_name() -> None:
    with pytest.raises(ValueError, match="is several"):
        CATALOGUE.find("H100")
