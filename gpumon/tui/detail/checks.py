"""MBU and MFU of an engine beside what its GPUs measure, and beside the engine's own counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.activity import dram_share
from gpumon.efficiency.checks import MEASURE_SLACK
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.specs.units import GIB
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import ESTIMATED, MEASURED, Entry, Fact, FigureMaker, Section, Sentence
from gpumon.tui.detail.values import figure_text, known_numbers
from gpumon.tui.view import View

_MOST_BELOW_MEASURED: Final = 2.0
"""A measured share may be so many times the modelled one, which leaves out writes, activations and prefill."""


_MOST_DIFFERENT: Final = 0.05
"""Relative difference of the memory from which on it is a notice."""
_LEAST_JUDGED_BYTES: Final = GIB
"""Memory below which a difference says nothing: engines measure weights by what was free before and after."""


class _OwnCount(NamedTuple):
    """A rate that an engine counts itself."""

    name: str
    field: str
    """Names its reasons, in place of a field of the snapshot."""
    write: values.Write
    per_s: Reading
    ratio: Reading = NOT_EXPOSED
    """The engine's rate in units of gpumon's."""


class _OwnMemoryRow(NamedTuple):
    """Memory of one GPU by the engine's own table."""

    name: str
    field: str
    """Names its reasons, in place of a field of the snapshot."""
    held_bytes: Reading
    ratio: Reading = NOT_EXPOSED
    """In units of gpumon's figure."""


def check_sections(engine: Engine, snapshot: Snapshot) -> list[Section]:
    """Bounds that MBU and MFU must not exceed; no section where its GPUs measure nothing."""
    gpus = [gpu for gpu in snapshot.gpus if gpu.reading.index in engine.hardware.gpus and not gpu.reading.parent_uuid]
    if not gpus or len(gpus) != len(engine.hardware.gpus):  # a check needs all of its GPUs
        return []
    entries = [*_bandwidth_check_entries(engine, gpus), *_tensor_check_entries(engine, gpus)]
    if entries:
        return [Section("cross-check", entries, side=1)]
    return []


def _bandwidth_check_entries(engine: Engine, gpus: Sequence[Gpu]) -> list[Entry]:
    """MBU beside the bandwidth that the GPUs measure, which it must not exceed; nothing where one is not known."""
    measured = _mean_of([dram_share(gpu) for gpu in gpus])
    shared_mbu = _mean_mbu_if_shared(gpus)
    modelled: Reading = engine.efficiency.mbu_ratio
    whose = ""
    if shared_mbu is not None:
        modelled = shared_mbu
        whose = " of all engines on its GPUs"
    if isinstance(modelled, Missing) or measured is None:
        return []
    mbu = figure_text(values.percent(modelled))
    share = figure_text(values.percent(measured))
    text = f"MBU{whose} {mbu}, and its GPUs measure {share} of their peak memory bandwidth"
    if modelled * _MOST_BELOW_MEASURED < measured:
        return [Sentence(f"{text}: only an upper bound, as what else uses them is in it: MBU may be right, or too low")]
    if modelled <= measured:
        return [Sentence(f"✓ {text}: not less, as it must be (MBU counts weights and KV only)")]
    if modelled <= measured * MEASURE_SLACK:
        return [Sentence(f"{text}: about the same (their 10 s are not quite the same)")]
    if shared_mbu is None and not engine.contradicts:  # what contradicts for longer stands at the top of the page
        return [Sentence(f"{text}: caches may explain that, or a load that changes; if nothing does, the top says so")]
    text += ", which cannot be less: the model's dimensions, its precision or its GPUs are wrong"
    return [Sentence(f"! {text}", "warn")]


def _tensor_check_entries(engine: Engine, gpus: Sequence[Gpu]) -> list[Entry]:
    """MFU beside the time for which the tensor pipes are active; nothing where one is not known."""
    tensor_active = _mean_of([gpu.reading.tensor_active_ratio for gpu in gpus])
    if isinstance(engine.efficiency.mfu_ratio, Missing) or tensor_active is None:
        return []
    mfu = figure_text(values.percent(engine.efficiency.mfu_ratio))
    active = figure_text(values.percent(tensor_active))
    text = f"MFU {mfu} over its window; tensor pipes active {active} now"
    return [Sentence(f"{text}: MFU may be above it, as other units compute, too")]


def _mean_mbu_if_shared(gpus: Sequence[Gpu]) -> float | None:
    """Mean MBU of the GPUs where several engines share one of them; None where none is shared."""
    if not any(len(gpu.engines) > 1 for gpu in gpus):
        return None
    return _mean_of([gpu.mbu_ratio for gpu in gpus])


def _mean_of(readings: Sequence[Reading]) -> float | None:
    """The mean of readings; None where one is missing, or there are none."""
    numbers = known_numbers(*readings)
    if numbers:
        return sum(numbers) / len(numbers)
    return None


def own_count_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """The engine's own counts of FLOPs and bytes, beside gpumon's; no section where it counts none."""
    own = engine.efficiency.own
    rows = (
        _OwnCount("its FLOP/s", "own_flops", values.flop_rate, own.flops_per_s, own.flops_ratio),
        _OwnCount("its bytes read", "own_read_bytes", values.traffic, own.read_bytes_per_s, own.read_bytes_ratio),
        _OwnCount("its bytes written", "own_write_bytes", values.traffic, own.write_bytes_per_s),
    )
    entries: list[Entry] = []
    exports_none = True
    for row in rows:
        if not isinstance(row.per_s, Missing) or row.per_s.reason is not Reason.NOT_EXPOSED:
            exports_none = False
        formula = f"{row.ratio:.2f} x gpumon's" if not isinstance(row.ratio, Missing) else ""
        entries.append(figures.of_reading(row.per_s, row.name, row.field, row.write, ESTIMATED, formula=formula))
    if exports_none:
        return []
    text = "cross-check only, not used for MFU and MBU above; known differences: docs/accuracy.md"
    return [Section("the engine's own count", [*entries, Sentence(text)], side=1)]


def second_opinion(engine: Engine) -> list[Entry]:
    """The engine's own FLOP/s and bytes read in units of gpumon's, and why they differ, as far as it counts them."""
    own = engine.efficiency.own
    counts = (
        ("own FLOP/s", own.flops_ratio, own.flops_reason),
        ("own bytes read", own.read_bytes_ratio, own.read_bytes_reason),
    )
    return [
        Fact(name, f"{quotient:.2f} x gpumon's", reason or "agrees")
        for name, quotient, reason in counts
        if not isinstance(quotient, Missing)
    ]


def own_memory_sections(engine: Engine, view: View, figures: FigureMaker) -> list[Section]:
    """The engine's own table of a GPU's memory beside gpumon's figures; no section where it has none."""
    memory = engine.efficiency.own_memory
    rows = (
        _OwnMemoryRow("weights", "own_weight_bytes", memory.weight_bytes, memory.weight_ratio),
        _OwnMemoryRow("KV cache", "own_kv_bytes", memory.kv_bytes, memory.kv_ratio),
        _OwnMemoryRow("CUDA graphs", "own_graph_bytes", memory.graph_bytes),
    )
    write = values.memory(view)
    entries: list[Entry] = []
    for row in rows:
        if isinstance(row.held_bytes, Missing):
            continue
        formula = f"{row.ratio:.2f} x gpumon's" if not isinstance(row.ratio, Missing) else ""
        entries.append(figures.of_reading(row.held_bytes, row.name, row.field, write, MEASURED, formula=formula))
        expected = _expected_text(row, write)
        if expected:
            text = f"gpumon expects {expected}: is the model, its precision or its number of GPUs another?"
            entries.append(Sentence(f"! {row.name}: {text}", "warn"))
    if not entries:
        return []
    return [Section("the engine's own memory, one GPU", entries, side=1)]


def _expected_text(row: _OwnMemoryRow, write: values.Write) -> str:
    """Gpumon's figure of the same, such as `14.96 GiB`, where the engine's is so far from it that the page says so."""
    numbers = known_numbers(row.held_bytes, row.ratio)
    if numbers is None:
        return ""
    held_bytes, quotient = numbers
    if held_bytes < _LEAST_JUDGED_BYTES or abs(quotient - 1.0) <= _MOST_DIFFERENT:
        return ""
    return figure_text(write(held_bytes / quotient))
