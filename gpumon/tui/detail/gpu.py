"""A GPU's page: how busy, how efficient, its memory, and what runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.service import BY_NATURE
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.format import counted, left, right, short
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, MEASURED, Entry, Fact, Figures, Line, Section, Sentence
from gpumon.tui.detail.gpu_health import Watch, health
from gpumon.tui.detail.things import is_blank
from gpumon.tui.detail.values import known, said
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.gpu_table import IDLE, held, is_free
from gpumon.tui.process_table import command, sm_share
from gpumon.tui.table import spans
from gpumon.tui.view import View

_MOST_PROCESSES: Final = 32
_WORK: Final = {Phase.INFERENCE: "engine", Phase.TRAINING: "training"}

_BANDWIDTH: Final = {
    BandwidthSource.GPM: (MEASURED, "measured by the GPU itself"),
    BandwidthSource.DCGM: (MEASURED, "measured by the GPU, read through DCGM"),
    BandwidthSource.ENGINE: (
        DERIVED,
        "at least this much (≥): modelled from the steps of the engines here, so it is no check on their MBU",
    ),
    BandwidthSource.UPPER_BOUND: (
        ESTIMATED,
        "at most this much (≤): memory busy is the share of time with any access, not of the bytes that could move",
    ),
    BandwidthSource.NONE: ("", ""),
}
"""Basis of the bandwidth, and what it means."""


def sections(gpu: Gpu, snapshot: Snapshot, view: View, watch: Watch | None) -> list[Section]:
    """All sections, in the order of a narrow screen; `watch`: how its throttling was when the page was opened."""
    runs = next((f"{clean(command(each), 60)} (pid {each.pid})" for each in gpu.processes if not each.engine), "")
    subject = Subject(is_blank(gpu), gpu=gpu.index, runs=runs, free=is_free(gpu))
    figures = Figures(gpu.sources, explain(subject))
    return [
        _activity(gpu, figures),
        _bandwidth(gpu, figures),
        _efficiency(gpu, snapshot, figures),
        _memory(gpu, view, figures),
        _tenants(gpu, snapshot, view),
        *health(gpu, snapshot.counted_since, view, figures, watch),
        _identity(gpu),
    ]


def _activity(gpu: Gpu, figures: Figures) -> Section:
    entries: list[Entry] = [
        figures("busy", gpu.busy_ratio, values.percent, "busy_ratio"),
        figures("busy mean", gpu.busy_mean_ratio, values.percent, "busy_mean_ratio", DERIVED),
        figures("SM active", gpu.sm_active_ratio, values.percent, "sm_active_ratio"),
        figures("SM occupancy", gpu.sm_occupancy_ratio, values.percent, "sm_occupancy_ratio"),
        figures("tensor active", gpu.tensor_active_ratio, values.percent, "tensor_active_ratio"),
        figures("memory busy", gpu.memory_busy_ratio, values.percent, "memory_busy_ratio"),
    ]
    pair = known(gpu.busy_ratio, gpu.sm_active_ratio)
    if pair and pair[0] < IDLE:
        entries.append(Sentence("idle: no kernel ran in the last sample"))
        if pair[1] >= IDLE:
            entries.append(Sentence("SM active is of another interval: work of a moment may show in one of them only"))
    elif pair and pair[1] >= pair[0]:
        entries.append(Sentence("whenever a kernel ran, all SMs had work"))
    elif pair:
        busy, active = (f"{100 * share:.0f} %" for share in pair)
        points = counted(round(100 * max(0.0, pair[0] - pair[1])), "point")
        gap = f"{points} of the chip stood idle while it counted as busy"
        entries.append(Sentence(f"a kernel ran {busy} of the time, but the mean SM had work {active}: {gap}"))
    elif known(gpu.busy_ratio):
        entries.append(Sentence("busy is the share of time with any kernel: it says little about the work done"))
    return Section("activity", entries)


def _bandwidth(gpu: Gpu, figures: Figures) -> Section:
    basis, meaning = _BANDWIDTH[gpu.bandwidth_source]
    used, peak = gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s
    formula = ""
    if (pair := known(used, peak)) and pair[1] > 0.0:
        share = said(values.percent(pair[0] / pair[1]))
        formula = f"{share} of {said(values.traffic(pair[1]))}{' ?' if gpu.bandwidth_peak_unverified else ''}"
    most = figures("bandwidth peak", peak, values.traffic, "bandwidth_peak_bytes_per_s", _basis_of_peak(gpu))
    entries: list[Entry] = [
        figures("bandwidth used", used, values.traffic, "bandwidth_bytes_per_s", basis, formula),
        most._replace(source=clean(gpu.peak_source.rpartition("bandwidth: ")[2])),
    ]
    if meaning:
        entries.append(Sentence(meaning))
    if gpu.bandwidth_peak_unverified:
        entries.append(Sentence("? the peak is derived, or stands on one source only"))
    return Section("memory bandwidth", entries)


def _basis_of_peak(gpu: Gpu) -> str:
    return DERIVED if "clock" in gpu.peak_source else ESTIMATED


def _efficiency(gpu: Gpu, snapshot: Snapshot, figures: Figures) -> Section:
    here = [engine for engine in snapshot.engines if engine.name in gpu.engines and gpu.index in engine.hardware.gpus]
    entries: list[Entry] = [
        figures("MFU", gpu.mfu_ratio, values.percent, "mfu_ratio", DERIVED, _sum(here, "mfu_ratio")),
        figures("MBU", gpu.mbu_ratio, values.percent, "mbu_ratio", DERIVED, _sum(here, "mbu_ratio")),
        figures(
            f"{gpu.flops_peak_precision or 'FLOP/s'} peak".strip(),
            gpu.flops_peak_per_s,
            values.flops,
            "flops_peak_per_s",
            ESTIMATED,
        ),
    ]
    if known(gpu.achievable_ratio):
        entries.append(figures("achievable", gpu.achievable_ratio, values.percent, "achievable_ratio", ESTIMATED))
    if gpu.tokens_per_j not in BY_NATURE:
        entries.append(figures("decode tok/J", gpu.tokens_per_j, values.tokens_per_joule, "tokens_per_j", DERIVED))
    if over := [name for name, ratio in (("MFU", gpu.mfu_ratio), ("MBU", gpu.mbu_ratio)) if _above(ratio)]:
        entries.append(Sentence(f"! {' and '.join(over)} above 100 %: see the cross-check of the engine", "warn"))
    if gpu.peak_unverified:
        entries.append(Sentence("? the FLOP/s peak is derived, assumed, or stands on one source only"))
    entries.append(
        Sentence("FLOPs and bytes that the tokens needed, as shares of the peaks; the engine's page has all")
    )
    return Section("efficiency", entries)


def _above(ratio: float | Missing) -> bool:
    return not isinstance(ratio, Missing) and ratio > 1.0


def _sum(engines: Sequence[Engine], field: str) -> str:
    """The shares of the engines on it, as a sum with the numbers put in."""
    parts = [(engine.name, value_of(engine, field)) for engine in engines]
    if not parts or any(isinstance(part, Missing) for _, part in parts):
        return ""
    return " + ".join(f"{name} {said(values.percent(part))}" for name, part in parts)


def _memory(gpu: Gpu, view: View, figures: Figures) -> Section:
    write = values.memory(view)
    used, total = gpu.vram_used_bytes, gpu.vram_total_bytes
    formula = ""
    if (pair := known(used, total)) and pair[1] > 0.0:
        formula = f"{said(values.percent(pair[0] / pair[1]))} of {said(write(pair[1]))}"
    entries: list[Entry] = [
        figures("used", used, write, "vram_used_bytes", MEASURED, formula),
        figures("total", total, write, "vram_total_bytes"),
        figures("reserved", gpu.vram_reserved_bytes, write, "vram_reserved_bytes"),
    ]
    if gpu.vram_shared:
        entries.append(Sentence("this GPU uses the host's memory: the figures are the host's"))
    elif held(gpu):
        entries.append(Sentence("! VRAM held: no engine is known here and nothing runs, but no other has it", "warn"))
    if not gpu.vram_shared and known(gpu.vram_reserved_bytes):
        entries.append(Sentence("reserved is the driver's own, and not part of used"))
    return Section("VRAM", entries)


def _tenants(gpu: Gpu, snapshot: Snapshot, view: View) -> Section:
    write = values.memory(view)
    entries: list[Entry] = []
    entries += [
        Fact(
            engine.name,
            f"{_WORK[engine.phase]} on GPUs {spans(engine.hardware.gpus)}{engine.model and f': {engine.model}'}",
        )
        for engine in snapshot.engines
        if engine.name in gpu.engines and gpu.index in engine.hardware.gpus
    ]
    for process in gpu.processes[:_MOST_PROCESSES]:
        size = short(vram) if isinstance(vram := process.vram_bytes, Missing) else said(write(vram))
        share = sm_share(process.sm_ratio, 5)
        entries.append(
            Line(
                (
                    (f"  {left(f'pid {process.pid}', 12)}", "muted"),
                    (f"{right(size, 11)} {right(share, 5)} SM  ", "text"),
                    (clean(_who(process)), "text"),
                )
            )
        )
    if more := len(gpu.processes) - _MOST_PROCESSES:
        entries += [Sentence(f"and {more} more: see the pane of the processes")] if more > 0 else []
    return Section("runs here", entries or [Sentence("no engine and no process is known on it")], side=1)


def _who(process: Process) -> str:
    """Its name, and whose it is; of one that is no engine what it runs."""
    name = process.name if process.engine else command(process)
    return f"{name}  {process.engine or process.user}"


def _identity(gpu: Gpu) -> Section:
    entries = [Fact("name", gpu.name), Fact("UUID", gpu.uuid)]
    if gpu.compute_capability:
        entries.append(Fact("compute", f"capability {gpu.compute_capability}"))
    if gpu.mig_profile or gpu.parent_uuid:
        entries.append(Fact("MIG slice", f"{gpu.mig_profile} of {gpu.parent_uuid}"))
    entries.append(Fact("peaks from", gpu.peak_source))
    return Section("identity", entries, side=1)
