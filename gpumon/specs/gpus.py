"""The catalogue of GPUs: `gpus.csv` -> GpuSpec by the driver's name or the short one, with what the user knows better;
and the bandwidth peak that gpumon measures against."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

import msgspec

from gpumon.specs.cloud_servers import CloudServers, parse_cloud_servers
from gpumon.specs.gpu import GpuFacts, GpuSpec, PeaksOrigin
from gpumon.specs.gpu_names import nearest_names, planned_gpu
from gpumon.specs.gpu_rates import derive_spec
from gpumon.specs.precision import Precision
from gpumon.specs.units import GIB, MIB

_MEMORY_TOLERANCE: Final = 0.10
"""Share by which the driver's memory may differ from the row without a note. A choice."""
_BANDWIDTH_TOLERANCE: Final = 0.05
"""Share by which the driver's bandwidth may differ from the row without a note. Clock x bus width is within 2.5% of
the rows: data sheets round down."""
_UNKNOWN: Final = "?"
"""In a cell of a rate: the GPU has this format, and its peak is not known. An empty cell: it lacks the format."""
_PCIE_BYTES_PER_S = {"3": 15.75e9, "4": 31.5e9, "5": 63.0e9, "6": 121.0e9}
"""Rate of 16 lanes, one direction, by generation."""
_PEAK_COLUMNS: Final = {
    "fp32_tflops": (Precision.FP32,),
    "fp16_tflops": (Precision.FP16,),
    "bf16_tflops": (Precision.BF16,),
    "fp8_tflops": (Precision.FP8,),
    "int8_tops": (Precision.INT8,),
    "fp4_tflops": (Precision.MXFP4, Precision.NVFP4),
}
"""Column -> formats; all dense, tensor rates with FP32 accumulation for the 16-bit ones."""
_ACHIEVED_COLUMNS: Final = {"achieved_bf16_tflops": Precision.BF16, "achieved_fp8_tflops": Precision.FP8}
"""Column -> format of the rate that was measured."""
BANDWIDTH_PREFIX: Final = "bandwidth: "
"""Begins the source of a bandwidth, which may stand behind that of the FLOP/s peaks."""
_SOCKET = re.compile(r"\bsxm\d\b")
"""The word for the socket in a name."""
_MOST_NEAR: Final = 5
"""Near names of an error message."""
_SERVER_SIGNS: Final = frozenset("-_.")
"""Signs between the words of the name of a cloud's server."""
_PARTITIONS: Final = (2.0, 3.0, 4.0, 6.0, 8.0)
"""Numbers of partitions that an AMD Instinct can be split into."""
_UNNAMED_ROWS: Final = {13: "rubin"}
"""NVML_DEVICE_ARCH_* -> short name of the announced GPU of that architecture, whose name at the driver is not known."""
_UNNAMED_BY_CAPABILITY: Final = {"10.7": 13}
"""CUDA's compute capability -> the same architecture, for readings without NVML's."""


class OwnPeaks(msgspec.Struct, frozen=True):
    """Figures of a GPU that the user gave, as gpumon does not know them so well; 0 and absent formats: nothing."""

    name: str
    """As the driver gives it."""
    bandwidth_bytes_per_s: float
    memory_bytes: float
    flops_per_s: dict[Precision, float]


class GpuCatalogue(msgspec.Struct, frozen=True):
    """All rows: `by_name` under every NVML name (stripped, case-folded), `by_short` under the short name."""

    by_name: dict[str, tuple[GpuSpec, ...]]
    by_short: dict[str, GpuSpec]
    servers: CloudServers = CloudServers()
    """Servers of clouds, whose names stand for their GPUs where one plans."""

    def match(self, facts: GpuFacts) -> GpuSpec | None:
        """The GPU that the driver tells of: an exact row, else a spec derived from what the driver says, else None.

        Exact only, after a leading `NVIDIA ` is taken off and dashes are blanks: `NVIDIA H100` is a 64 GB part of its
        own, and `Laptop GPU`, `Max-Q`, `SFF`, `D v2` and vGPU names differ from the card that they begin like. Of
        several parts with one name the one nearest in memory is taken, then the one nearest in SMs or compute units.
        A memory size that is more than 10% off the row is noted, and so are parts that nothing tells apart.
        """
        rows = self.by_name.get(_nvml_key(facts.name), ())
        total = facts.memory_total_bytes
        if not rows:
            return self._find_announced(facts) or derive_spec(facts)
        if total is None:
            note = "other parts have this name too; the driver does not tell the memory size" if len(rows) > 1 else ""
            return _with_note(rows[0], note)
        row = min(rows, key=lambda candidate: _difference(candidate, facts, total))
        if sum(_difference(other, facts, total) == _difference(row, facts, total) for other in rows) > 1:
            return _with_note(row, "other parts have this name too; the driver does not tell what differs")
        part = _partition(row, facts, total)
        if part is not None:
            return part
        if row.memory_bytes and abs(total / row.memory_bytes - 1.0) > _MEMORY_TOLERANCE:
            return _with_note(row, f"this one has {total / GIB:.0f} GiB instead of {row.memory_bytes / GIB:.0f}")
        return row

    def find(self, short_name: str) -> GpuSpec:
        """The GPU that a config means, e.g. `H100 SXM 80GB` or a full NVML name; ValueError lists the near names.

        Never a guess: a name that begins several rows (`H100`) is an error that names them.
        """
        spec = self.row(short_name)
        if spec is not None:
            return spec
        longer = self._longer_names(short_name)
        if longer:
            raise ValueError(f"GPU type {short_name[:80]!r} is several, give the whole name: {', '.join(longer[:8])}")
        near = nearest_names(short_name, {spec.name for spec in self.by_short.values()})
        raise ValueError(f"unknown GPU type {short_name[:80]!r}; near names: {', '.join(near[:_MOST_NEAR])}")

    def row(self, short_name: str) -> GpuSpec | None:
        """The row of this name alone; None where there is none, or several are."""
        exact = self.by_short.get(_short_key(short_name))
        if exact is not None:
            return exact
        rows = self.by_name.get(_nvml_key(short_name), ())
        return rows[0] if len(rows) == 1 and len(self._longer_names(short_name)) < 2 else None

    def _longer_names(self, short_name: str) -> list[str]:
        """Names that begin with the words of this one."""
        beginning = f"{_short_key(short_name)} "
        return [spec.name for short_key, spec in self.by_short.items() if short_key.startswith(beginning)]

    def has(self, name: str) -> bool:
        """Whether `find` knows a name."""
        return self.row(name) is not None

    def planned(self, name: str) -> GpuSpec | None:
        """The GPU that a plan means: that of a cloud's server of this name, else the row of the name, or the usual one
        of those with its words; None where it is not known."""
        server = self.servers.find(name)
        if server is not None:
            return self.row(server.gpu)
        return self.row(name) or planned_gpu(name, self.by_short)

    def find_planned(self, name: str) -> GpuSpec:
        """As `planned`. ValueError as of `find`; the near names are those of servers for what is written like one."""
        spec = self.planned(name)
        if spec is not None:
            return spec
        if " " in name.strip() or not _SERVER_SIGNS & set(name.strip("-_.")):
            return self.find(name)
        near = nearest_names(name, {server.name for server in self.servers.by_name.values()})
        raise ValueError(f"unknown GPU type or cloud server {name[:80]!r}; near names: {', '.join(near[:_MOST_NEAR])}")

    def with_own(self, own_peaks: Iterable[OwnPeaks]) -> GpuCatalogue:
        """This catalogue with the user's figures above its own, and with a row for each name that it lacks."""
        by_name = dict(self.by_name)
        by_short = dict(self.by_short)
        for peaks in own_peaks:
            key = _nvml_key(peaks.name)
            known_rows = by_name.get(key) or (_row_of_own(peaks),)
            rows = tuple(_with_own_peaks(row, peaks) for row in known_rows)
            by_name[key] = rows
            by_short |= {_short_key(row.name): row for row in rows}
        return GpuCatalogue(by_name, by_short, self.servers)

    def _find_announced(self, facts: GpuFacts) -> GpuSpec | None:
        """The row of an architecture whose GPUs' names are not known yet, where the SM count is that of the row."""
        architecture = facts.architecture or _UNNAMED_BY_CAPABILITY.get(facts.compute_capability, 0)
        row = self.by_short.get(_UNNAMED_ROWS.get(architecture, ""))
        if row is not None and row.sm_count == facts.sm_count:
            return row
        return None


def _difference(row: GpuSpec, facts: GpuFacts, total_bytes: float) -> tuple[float, float]:
    """Difference in memory, then in SMs or compute units (0 where one is not known), between a row and a GPU.

    AMD's driver gives an MI250 the name `AMD Instinct MI250X / MI250`, and both have the same memory.
    """
    units = abs(row.sm_count - facts.sm_count) if row.sm_count and facts.sm_count else 0.0
    return abs(row.memory_bytes - total_bytes), units


def _partition(row: GpuSpec, facts: GpuFacts, total_bytes: float) -> GpuSpec | None:
    """The row of a card as one of its partitions (AMD's DPX, QPX, CPX): FLOP/s by compute units; None if it is none.

    The driver tells the name of the card, and the compute units and memory of the partition. How much of the bandwidth
    it can have depends on what the others do: it has the card's.
    """
    if not row.architecture.startswith("CDNA") or not row.sm_count or not facts.sm_count:
        return None
    count = row.sm_count / facts.sm_count
    if count not in _PARTITIONS:
        return None
    return msgspec.structs.replace(
        row,
        flops_per_s={precision: peak / count for precision, peak in row.flops_per_s.items()},
        achieved_flops_per_s={},
        memory_bytes=total_bytes,
        sm_count=facts.sm_count,
        note=f"one of {count:.0f} partitions: FLOP/s by its compute units, bandwidth of the whole card",
    )


def parse_gpus(text: str, servers: str = "") -> GpuCatalogue:
    """Reads the catalogue, and the one of clouds' servers; ValueError names line, column and cell of what is wrong."""
    by_name: dict[str, tuple[GpuSpec, ...]] = {}
    by_short: dict[str, GpuSpec] = {}
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        spec = _parse_row(row, line)
        if by_short.setdefault(_short_key(spec.name), spec) is not spec:
            raise ValueError(f"gpus.csv line {line}: {spec.name} stands twice")
        for key in dict.fromkeys(map(_nvml_key, (row.get("name") or "").split("|"))):
            by_name[key] = (*by_name.get(key, ()), spec)
    return GpuCatalogue(by_name, by_short, parse_cloud_servers(servers))


def bandwidth_peak(facts: GpuFacts, spec: GpuSpec | None) -> tuple[float, str] | None:
    """Peak memory bandwidth in bytes/s and where it comes from; None where nothing tells it.

    The driver's clock and bus width come first; the catalogue checks them (a difference above 5% is noted) and serves
    where the driver has no clock. What the user gave stands above both.
    """
    measured = facts.bandwidth_bytes_per_s
    row = spec if spec is not None and spec.bandwidth_bytes_per_s > 0.0 else None
    if row is not None and (measured is None or row.origin is PeaksOrigin.CONFIG):
        return row.bandwidth_bytes_per_s, f"{BANDWIDTH_PREFIX}{row.source}"
    if measured is None:
        return None
    by_clock = "the driver's max memory clock x 2 x bus width / 8"
    source = "the driver's peak (AMD SMI vram_max_bandwidth)" if facts.memory_peak_bytes_per_s else by_clock
    text = f"{BANDWIDTH_PREFIX}{source}"
    if row is None or row.origin is PeaksOrigin.DERIVED:
        return measured, text
    ratio = measured / row.bandwidth_bytes_per_s - 1.0
    if abs(ratio) > _BANDWIDTH_TOLERANCE:
        text += f"; {ratio:+.0%} from {row.source} ({row.bandwidth_bytes_per_s / 1e9:.0f} GB/s)"
    return measured, text


def _parse_row(row: Mapping[str, str | None], line: int) -> GpuSpec:
    """The GPU of a line of the file. Raises ValueError."""
    name = row.get("short_name") or ""
    if not name or not row.get("name"):
        raise ValueError(f"gpus.csv line {line}: name or short_name is empty")
    architecture = row.get("architecture") or ""
    flops = _read_peaks(row, line)
    if architecture.startswith("CDNA"):  # the FP4 that AMD has is MXFP4
        flops.pop(Precision.NVFP4, None)
    achieved = {
        precision: _read_number(row, line, column) * 1e12
        for column, precision in _ACHIEVED_COLUMNS.items()
        if row.get(column)
    }
    nvlink_bytes_per_s = _read_number(row, line, "nvlink_gbs") * 1e9 / 2.0  # data sheets add both directions
    pcie_bytes_per_s = _PCIE_BYTES_PER_S.get(row.get("pcie_gen") or "", 0.0)
    return GpuSpec(
        name=name,
        architecture=architecture,
        bandwidth_bytes_per_s=_read_number(row, line, "bandwidth_gbs") * 1e9,
        memory_bytes=_read_number(row, line, "memory_mib") * MIB or _read_number(row, line, "memory_gb") * GIB,
        flops_per_s=flops,
        verified=not row.get("unverified"),
        note=_joined_notes(row),
        tdp_w=_read_number(row, line, "tdp_w"),
        link_bytes_per_s=nvlink_bytes_per_s or pcie_bytes_per_s,
        has_nvlink=nvlink_bytes_per_s > 0.0,
        pcie_bytes_per_s=pcie_bytes_per_s,
        sm_count=_read_number(row, line, "sm_count"),
        achieved_flops_per_s=achieved,
        achieved_source=row.get("achieved_source") or "",
    )


def _read_number(row: Mapping[str, str | None], line: int, column: str) -> float:
    """A cell as a number, 0 where it is empty. Raises ValueError."""
    text = row.get(column)
    if text is None:
        raise ValueError(f"gpus.csv line {line}: column {column} is missing")
    try:
        value = float(text or 0.0)
    except ValueError:
        value = -1.0  # no number of a GPU
    if not 0.0 <= value < 1e9:
        raise ValueError(f"gpus.csv line {line}: {column} {text!r} is not a positive number")
    return value


def _read_peaks(row: Mapping[str, str | None], line: int) -> dict[Precision, float]:
    """FLOP/s by number format; 0 for a format whose peak is not known."""
    flops: dict[Precision, float] = {}
    for column, precisions in _PEAK_COLUMNS.items():
        cell = row.get(column)
        if cell == "":
            continue
        peak = 0.0 if cell == _UNKNOWN else _read_number(row, line, column) * 1e12
        flops |= dict.fromkeys(precisions, peak)
    return flops


def _joined_notes(row: Mapping[str, str | None]) -> str:
    """The notes of a row, and what speaks against its figures, as one text."""
    notes = []
    note = row.get("notes")
    if note:
        notes.append(note)
    unverified = row.get("unverified")
    if unverified:
        notes.append(f"unverified: {unverified}")
    return "; ".join(notes)


def _with_own_peaks(row: GpuSpec, peaks: OwnPeaks) -> GpuSpec:
    """A row with the user's figures above its own; verified once the user gave the peaks of all its formats."""
    return msgspec.structs.replace(
        row,
        origin=PeaksOrigin.CONFIG,
        verified=row.verified or peaks.flops_per_s.keys() >= row.flops_per_s.keys(),
        bandwidth_bytes_per_s=peaks.bandwidth_bytes_per_s or row.bandwidth_bytes_per_s,
        memory_bytes=peaks.memory_bytes or row.memory_bytes,
        flops_per_s=row.flops_per_s | peaks.flops_per_s,
    )


def _row_of_own(peaks: OwnPeaks) -> GpuSpec:
    """A GPU without a row: nobody says which formats it lacks, so that all are not known until they are given."""
    formats = chain.from_iterable(_PEAK_COLUMNS.values())
    return GpuSpec(
        name=peaks.name.strip().removeprefix("NVIDIA "),
        architecture="",
        bandwidth_bytes_per_s=0.0,
        memory_bytes=0.0,
        flops_per_s=dict.fromkeys(formats, 0.0),
    )


def _with_note(spec: GpuSpec, note: str) -> GpuSpec:
    """The spec with one more note, before its own."""
    return msgspec.structs.replace(spec, note="; ".join(text for text in (note, spec.note) if text))


def _nvml_key(name: str) -> str:
    """Key of a driver's name; Kubernetes labels have `NVIDIA-H100-80GB-HBM3` for `NVIDIA H100 80GB HBM3`."""
    return " ".join(name.casefold().replace("-", " ").split()).removeprefix("nvidia ")


def _short_key(name: str) -> str:
    """Key of a short name, with or without the vendor's words; `SXM5` is `SXM`."""
    text = name.casefold().replace("nvidia ", " ").replace("geforce ", " ")
    return " ".join(_SOCKET.sub("sxm", text).replace("-", " ").split())
