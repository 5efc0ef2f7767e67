"""The catalogue of GPUs: `gpus.csv` -> GpuSpec by NVML name, or derived where the name is not known; and the
bandwidth peak that gpumon measures against."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Final

import msgspec

from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpu_rates import derived_flops
from gpumon.specs.precision import Precision

_MIB = 2.0**20
_GIB = 2.0**30
_MEMORY_TOLERANCE = 0.10
_BANDWIDTH_TOLERANCE = 0.05
_ALT_FP8 = re.compile(r"alt_fp8=(\d+(?:\.\d+)?)")
_ARITHMETIC = re.compile(r"\s*\[(?:bw|tensor)_rule[^\]]*\]")
_UNVERIFIED = re.compile(r"\bUNVERIFIED: ")
_PARENTHESES = re.compile(r"\([^)]*\)")
_SOCKET = re.compile(r"\bsxm\d\b")


class GpuCatalogue(msgspec.Struct, frozen=True):
    """All rows: `by_name` under every NVML name (stripped, case-folded), `by_short` under the short name."""

    by_name: dict[str, tuple[GpuSpec, ...]]
    by_short: dict[str, GpuSpec]

    def match(
        self,
        name: str,
        memory_total_bytes: float | None = None,
        sm_count: float | None = None,
        max_sm_clock_hz: float | None = None,
        max_mem_clock_hz: float | None = None,
        bus_bits: float | None = None,
        compute_capability: str = "",
    ) -> GpuSpec | None:
        """The GPU with this NVML name: an exact row, else a spec derived from what the driver says, else None.

        Exact only, after a leading `NVIDIA ` is taken off: `NVIDIA H100` is a 64 GB part of its own, and `Laptop GPU`,
        `Max-Q`, `SFF`, `D v2` and vGPU names differ from the card that they begin like. Of several parts with one
        name the one nearest in memory is taken. A memory size that is more than 10 % off the row is noted.
        """
        rows = self.by_name.get(_nvml_key(name), ())
        if not rows:
            bandwidth = clock_bandwidth(max_mem_clock_hz, bus_bits)
            return derived_spec(
                name, memory_total_bytes, sm_count, max_sm_clock_hz, bandwidth or 0.0, compute_capability
            )
        if memory_total_bytes is None:
            note = "other parts have this name too; the driver does not tell the memory size" if len(rows) > 1 else ""
            return _noted(rows[0], note)
        row = min(rows, key=lambda each: abs(each.memory_bytes - memory_total_bytes))
        if row.memory_bytes and abs(memory_total_bytes / row.memory_bytes - 1.0) > _MEMORY_TOLERANCE:
            return _noted(
                row, f"this one has {memory_total_bytes / _GIB:.0f} GiB instead of {row.memory_bytes / _GIB:.0f}"
            )
        return row

    def find(self, short_name: str) -> GpuSpec:
        """The GPU that a config means, e.g. `H100 SXM 80GB` or a full NVML name; ValueError lists the near names.

        Never a guess: a name that begins several rows (`H100`) is an error that names them.
        """
        key = _short_key(short_name)
        exact = self.by_short.get(key)
        if exact is not None:
            return exact
        begun = [spec.name for each, spec in self.by_short.items() if each.startswith(f"{key} ")]
        rows = self.by_name.get(_nvml_key(short_name), ())
        if len(rows) == 1 and len(begun) < 2:
            return rows[0]
        if begun:
            raise ValueError(f"GPU type {short_name[:80]!r} is several, give the whole name: {', '.join(begun[:8])}")
        near = _nearest(key, self.by_short)
        raise ValueError(f"unknown GPU type {short_name[:80]!r}; near names: {', '.join(near[:8])}")


def parse_gpus(text: str) -> GpuCatalogue:
    """Reads the catalogue; ValueError names line, column and cell of what is wrong."""
    by_name: dict[str, tuple[GpuSpec, ...]] = {}
    by_short: dict[str, GpuSpec] = {}
    rows = list(csv.DictReader(text.splitlines()))
    marketing = [str(row.get("marketing_name")) for row in rows]
    for line, row in enumerate(rows, start=2):
        spec = _spec(row, line, shared_name=marketing.count(str(row.get("marketing_name"))) > 1)
        if by_short.setdefault(_short_key(spec.name), spec) is not spec:
            raise ValueError(f"gpus.csv line {line}: {spec.name} stands twice")
        for name in (row.get("name") or "").split("|"):
            key = _nvml_key(name)
            by_name[key] = (*by_name.get(key, ()), spec)
    return GpuCatalogue(by_name, by_short)


def clock_bandwidth(max_mem_clock_hz: float | None, bus_bits: float | None) -> float | None:
    """Peak bytes/s = maximum memory clock x 2 (double data rate) x bus width / 8; None where either is not known.

    Reproduces the data sheets within 2.5 % (they round down). NVML has neither figure on GB10, Thor and vGPU.
    """
    if not max_mem_clock_hz or not bus_bits or max_mem_clock_hz < 0 or bus_bits < 0:
        return None
    return max_mem_clock_hz * 2.0 * bus_bits / 8.0


def bandwidth_peak(
    max_mem_clock_hz: float | None, bus_bits: float | None, spec: GpuSpec | None
) -> tuple[float, str] | None:
    """Peak memory bandwidth in bytes/s and where it comes from; None where nothing tells it.

    The driver's clock and bus width come first; the catalogue checks them (a difference above 5 % is noted) and serves
    where the driver has no clock.
    """
    measured = clock_bandwidth(max_mem_clock_hz, bus_bits)
    row = spec if spec is not None and spec.bandwidth_bytes_per_s > 0.0 else None
    if measured is None:
        return None if row is None else (row.bandwidth_bytes_per_s, f"bandwidth: {row.source}")
    text = "bandwidth: the driver's max memory clock x 2 x bus width / 8"
    if row is None or row.source.startswith("derived"):
        return measured, text
    ratio = measured / row.bandwidth_bytes_per_s - 1.0
    if abs(ratio) > _BANDWIDTH_TOLERANCE:
        text += f"; {ratio:+.0%} from {row.source} ({row.bandwidth_bytes_per_s / 1e9:.0f} GB/s)"
    return measured, text


def derived_spec(
    name: str,
    memory_total_bytes: float | None,
    sm_count: float | None,
    max_sm_clock_hz: float | None,
    bandwidth_bytes_per_s: float,
    compute_capability: str,
) -> GpuSpec | None:
    """Peaks of a GPU that is not in the catalogue, from its SM count and maximum clock; None where nothing is known."""
    flops, how, architecture = derived_flops(name, sm_count, max_sm_clock_hz, compute_capability)
    if not flops and not bandwidth_bytes_per_s:
        return None
    return GpuSpec(
        name=name.removeprefix("NVIDIA "),
        source=f"derived: {how}",
        architecture=architecture,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        memory_bytes=memory_total_bytes or 0.0,
        flops_per_s=flops,
        verified=False,
        note="not in the catalogue; the driver's maximum clock can be above the rated one",
    )


def _spec(row: Mapping[str, str | None], line: int, shared_name: bool) -> GpuSpec:
    def number(column: str) -> float:
        text = row.get(column)
        if text is None:
            raise ValueError(f"gpus.csv line {line}: column {column} is missing")
        try:
            value = float(text or 0.0)
        except ValueError:
            value = -1.0
        if not 0.0 <= value < 1e9:
            raise ValueError(f"gpus.csv line {line}: {column} {text!r} is not a positive number")
        return value

    notes = _ARITHMETIC.sub("", row.get("notes") or "").strip()
    doubt = _UNVERIFIED.search(notes)
    architecture = row.get("architecture") or ""
    full = row.get("marketing_name") or ""
    name = " ".join(_PARENTHESES.sub(" ", full).split())
    if not name or not row.get("name"):
        raise ValueError(f"gpus.csv line {line}: name or marketing_name is empty")
    return GpuSpec(
        name=f"{name} {number('memory_gb'):.0f}GB" if shared_name else name,
        source="catalogue (unverified)" if doubt else "catalogue",
        architecture=architecture,
        bandwidth_bytes_per_s=number("bandwidth_gbs") * 1e9,
        memory_bytes=number("memory_bytes_reported_by_nvml_mib") * _MIB or number("memory_gb") * _GIB,
        flops_per_s=_flops({each: number(column) * 1e12 for column, each in _COLUMNS.items()}, architecture, notes),
        verified=doubt is None,
        note="; ".join(each.strip("()") for each in (*_PARENTHESES.findall(full), notes) if each),
        tdp_w=number("tdp_w"),
    )


def _flops(table: dict[Precision, float], architecture: str, notes: str) -> dict[Precision, float]:
    # Consumer Blackwell beats the whitepaper's FP8 rate, which assumes FP32 accumulation: the note's is reachable.
    faster = _ALT_FP8.search(notes)
    if faster:
        table[Precision.FP8] = float(faster[1]) * 1e12
    if not architecture.startswith("CDNA"):
        table[Precision.NVFP4] = table[Precision.MXFP4]
    return {precision: flops for precision, flops in table.items() if flops > 0.0}


def _noted(spec: GpuSpec, note: str) -> GpuSpec:
    return msgspec.structs.replace(spec, note="; ".join(each for each in (note, spec.note) if each))


def _nvml_key(name: str) -> str:
    return name.strip().casefold().removeprefix("nvidia ").strip()


def _short_key(name: str) -> str:
    text = _PARENTHESES.sub(" ", name.casefold().replace("nvidia ", " ").replace("geforce ", " "))
    return " ".join(_SOCKET.sub("sxm", text).replace("-", " ").split())


def _nearest(key: str, names: Mapping[str, GpuSpec]) -> list[str]:
    words = set(re.findall(r"[a-z]+\d+[a-z]*|\d+|[a-z]+", key))

    def distance(each: str) -> tuple[int, float, int, str]:
        shared = len(words & set(re.findall(r"[a-z]+\d+[a-z]*|\d+|[a-z]+", each)))
        alike = SequenceMatcher(None, key.partition(" ")[0], each.partition(" ")[0]).ratio()
        return -shared, -alike, abs(len(each) - len(key)), each

    ordered: Iterable[str] = sorted(names, key=distance)
    return [names[each].name for each in ordered]


_COLUMNS: Final = {
    "fp32_tflops": Precision.FP32,
    "fp16_tflops": Precision.FP16,
    "bf16_tflops": Precision.BF16,
    "fp8_tflops": Precision.FP8,
    "int8_tops": Precision.INT8,
    "fp4_tflops": Precision.MXFP4,
}
"""Column -> format; all dense, tensor rates with FP32 accumulation for the 16-bit ones."""
