"""An engine's page: its figures held against what its GPUs measure themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, OwnEstimate, Snapshot
from gpumon.tui.detail.blocks import ESTIMATED, Entry, Figures, Section, Sentence
from gpumon.tui.detail.values import flops, known, percent, said, traffic

_SLACK: Final = 1.25
"""A modelled share may be that much above the measured one: the load changes, and an engine is polled less often."""
_AGREES: Final = 2.0
"""A measured share may be that many times the modelled one, which leaves out writes, activations and prefill."""
_MEASURED: Final = (BandwidthSource.GPM, BandwidthSource.DCGM)


def checks(engine: Engine, snapshot: Snapshot) -> list[Section]:
    """What MBU and MFU must not exceed; no section where nothing measures it."""
    own = [gpu for gpu in snapshot.gpus if gpu.index in engine.hardware.gpus and not gpu.parent_uuid]
    entries: list[Entry] = []
    if engine.hardware.gpus and len(own) == len(engine.hardware.gpus):
        entries += _bandwidth(engine, own)
        entries += _tensor(engine, own)
    return [Section("cross-check", entries, side=1)] if entries else []


def own_estimate(engine: Engine, figures: Figures) -> list[Section]:
    """What the engine counts of its own FLOPs and bytes, beside gpumon's; no section where it counts none."""
    own = engine.efficiency.own
    if all(isinstance(reading, Missing) and reading.reason is Reason.NOT_EXPOSED for reading in _readings(own)):
        return []
    entries: list[Entry] = [
        figures("its FLOP/s", own.flops_per_s, flops, "own_flops", ESTIMATED, _beside(own.flops_ratio)),
        figures(
            "its bytes read",
            own.read_bytes_per_s,
            traffic,
            "own_read_bytes",
            ESTIMATED,
            _beside(own.read_bytes_ratio),
        ),
        figures("its bytes written", own.write_bytes_per_s, traffic, "own_write_bytes", ESTIMATED),
    ]
    entries += [Sentence(f"! {note}", "warn") for note in own.notes]
    entries.append(Sentence("the engine's own estimate, a second opinion: MFU and MBU above do not use it"))
    return [Section("the engine's own count", entries, side=1)]


def _readings(own: OwnEstimate) -> tuple[Reading, ...]:
    return own.flops_per_s, own.read_bytes_per_s, own.write_bytes_per_s


def _beside(share: Reading) -> str:
    return "" if isinstance(share, Missing) else f"{share:.2f} x gpumon's"


def _bandwidth(engine: Engine, own: Sequence[Gpu]) -> list[Entry]:
    measured = _mean([_share(gpu) for gpu in own])
    several = any(len(gpu.engines) > 1 for gpu in own)
    together = _mean([gpu.mbu_ratio for gpu in own]) if several else None
    modelled = engine.efficiency.mbu_ratio if together is None else together
    if isinstance(modelled, Missing) or measured is None:
        return []
    whose = "" if together is None else " of all engines on its GPUs"
    text = f"MBU{whose} {said(percent(modelled))}, and its GPUs measure {said(percent(measured))} of their bandwidth"
    if modelled * _AGREES < measured:
        return [Sentence(f"{text}: only an upper bound, as what else uses them is in it: MBU may be right, or too low")]
    if modelled <= measured:
        return [Sentence(f"✓ {text}: not less, as it must be (MBU counts weights and KV only)")]
    if modelled <= measured * _SLACK:
        return [Sentence(f"{text}: about the same (their 10 s are not quite the same)")]
    if together is None and not engine.contradicts:
        return [Sentence(f"{text}: caches may explain that, or a load that changes; if nothing does, the top says so")]
    text += ", which cannot be less: the model's dimensions, its precision or its GPUs are wrong"
    return [Sentence(f"! {text}", "warn")]


def _tensor(engine: Engine, own: Sequence[Gpu]) -> list[Entry]:
    measured = _mean([gpu.tensor_active_ratio for gpu in own])
    if isinstance(engine.efficiency.mfu_ratio, Missing) or measured is None:
        return []
    mfu, now = said(percent(engine.efficiency.mfu_ratio)), said(percent(measured))
    text = f"MFU {mfu} over its window; tensor pipes active {now} now"
    return [Sentence(f"{text}: over a longer time MFU must not be above it")]


def _share(gpu: Gpu) -> Reading:
    used, peak = gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s
    if isinstance(used, Missing) or isinstance(peak, Missing) or gpu.bandwidth_source not in _MEASURED or peak <= 0.0:
        return NOT_SUPPORTED
    return used / peak


def _mean(readings: Sequence[Reading]) -> float | None:
    numbers = known(*readings)
    return sum(numbers) / len(numbers) if numbers else None
