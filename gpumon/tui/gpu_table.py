"""One row per GPU: activity, memory, bandwidth, MFU, MBU, power, heat and state in 80 cells, more on wider screens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.format import DASH, age, amount, celsius, count, gib, left, ratio, right, watts
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Gpu
from gpumon.tui.line import Piece, Row
from gpumon.tui.table import Column, dropped, fitting, pair, part, without

BASE: Final = 80
"""Cells of the columns that every screen shows."""
_BAR: Final = 8
_STATE: Final = 11

_DROPS: Final = (("°C", 4), ("power", 6), ("vram", 10))
"""Columns, with their cells, that a screen of less than 80 cells leaves out, first to last."""

_MARKS: Final = {
    BandwidthSource.GPM: (" ", "m"),
    BandwidthSource.DCGM: (" ", "m"),
    BandwidthSource.ENGINE: ("≥", " "),
    BandwidthSource.UPPER_BOUND: ("≤", " "),
    BandwidthSource.NONE: (" ", " "),
}
"""Before and after the figure: measured, at least, at most."""

_STATES: Final = {
    GpuState.STALE: ("! STALE", "warn", True),
    GpuState.LOST: ("✗ LOST", "critical", True),
    GpuState.RESET_REQUIRED: ("✗ RESET", "critical", False),
    GpuState.NO_PERMISSION: ("! NO ACCESS", "warn", False),
    GpuState.ERROR: ("✗ ERROR", "critical", True),
    GpuState.INITIALISING: ("  starting", "muted", False),
}
"""Word, tone, and whether the age follows."""

_THROTTLE: Final = (
    ("hw_thermal", "! hot (hw)", "warn"),
    ("sw_thermal", "! hot (sw)", "warn"),
    ("hw_power_brake", "! pwr brake", "warn"),
    ("hw_slowdown", "! slowdown", "warn"),
    ("sw_power_cap", "  power cap", "muted"),
)
"""Start of the driver's name, what is shown, tone; worst first. Reasons not listed (clock settings) limit by choice."""

EXTRA: Final[tuple[Column[Gpu], ...]] = (
    Column("limit", 5, lambda gpu: watts(gpu.power_limit_w)),
    Column("tensor", 6, lambda gpu: ratio(gpu.tensor_active_ratio)),
    Column("nvlink", 6, lambda gpu: amount(gpu.nvlink_bytes_per_s)),
    Column("pcie", 5, lambda gpu: amount(gpu.pcie_bytes_per_s)),
    Column("tok/J", 5, lambda gpu: count(gpu.tokens_per_j)),
    Column("clock", 5, lambda gpu: amount(gpu.sm_clock_hz)),
    Column("engines", 24, lambda gpu: " ".join(gpu.engines), flush_left=True, gap=2),
)
"""What a wider screen adds, in this order."""


def narrow(width: int) -> tuple[str, ...]:
    """Columns that a screen below 80 cells leaves out."""
    return dropped(width, BASE, _DROPS)


def left_out(width: int) -> tuple[str, ...]:
    """All columns that a wider screen would show."""
    return narrow(width) + tuple(column.title for column in EXTRA[len(fitting(EXTRA, width - BASE)) :])


def head(width: int) -> Row:
    """The header; the two tones of the bar stand beside the figures they belong to."""
    extra = "".join(column.head() for column in fitting(EXTRA, width - BASE))
    parts: list[tuple[str, Piece]] = [
        ("", ("  #         ", "muted")),
        ("", ("▒", "busy")),
        ("", ("busy  ", "muted")),
        ("", ("█", "sm")),
        ("", ("sm", "muted")),
        ("vram", ("  vram GiB", "muted")),
        ("", ("  memory B/s  ", "muted")),
        ("", ("   mfu", "mfu")),
        ("", ("   mbu", "mbu")),
        ("power", (" power", "muted")),
        ("°C", ("  °C", "muted")),
        ("", (" " + left("  state", _STATE) + extra, "muted")),
    ]
    return tuple(without(narrow(width), parts))


def row(gpu: Gpu, width: int) -> Row:
    """One GPU. A GPU that does not answer is dim, but for its state."""
    word, tone = state(gpu)
    before, after = _MARKS[gpu.bandwidth_source]
    total = gpu.vram_total_bytes
    memory = DASH if isinstance(total, Missing) else f"{gib(gpu.vram_used_bytes)}/{gib(total)}"
    share = _share(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s)
    after = "?" if gpu.bandwidth_peak_unverified and share.endswith("%") else after
    number = "└" if gpu.parent_uuid else str(gpu.index)
    unverified = (gpu.peak_unverified, gpu.bandwidth_peak_unverified)
    text = "text" if gpu.state is GpuState.OK else "muted"
    parts: list[tuple[str, Piece]] = [
        ("", (f" {right(number, 2)} ", text)),
        *(("", piece) for piece in _bar(gpu.busy_ratio, gpu.sm_active_ratio)),
        ("", part(ratio(gpu.busy_ratio, 4), 4, text)),
        ("", part(ratio(gpu.sm_active_ratio, 4), 4, text)),
        ("vram", (f" {right(memory, 9)}", text)),
        ("", (f" {right(before + amount(gpu.bandwidth_bytes_per_s), 6)}", text)),
        ("", part(share, 4, text)),
        ("", (f" {after}", text)),
        *(("", piece) for piece in pair(gpu.mfu_ratio, gpu.mbu_ratio, 5, text, unverified)),
        ("power", (f" {right(watts(gpu.power_w), 5)}", text)),
        ("°C", (f" {right(celsius(gpu.temperature_c), 3)}", text)),
        ("", (" " + left(word, _STATE), tone)),
        ("", ("".join(column.cell(gpu) for column in fitting(EXTRA, width - BASE)), text)),
    ]
    return tuple(without(narrow(width), parts))


def state(gpu: Gpu) -> tuple[str, str]:
    """A glyph and a word for the GPU's health, at most 11 cells, and its tone."""
    if gpu.state is not GpuState.OK:
        word, tone, aged = _STATES[gpu.state]
        return (f"{word} {age(gpu.age_s)}" if aged else word), tone
    if gpu.xid:
        return f"! Xid {gpu.xid[-1]}", "warn"
    if not isinstance(gpu.ecc_uncorrected, Missing) and gpu.ecc_uncorrected > 0:
        return f"! ECC {count(gpu.ecc_uncorrected)}", "warn"
    if not isinstance(gpu.remap_pending, Missing) and gpu.remap_pending > 0:
        return "! row remap", "warn"
    for start, word, tone in _THROTTLE if gpu.throttle else ():
        if any(reason.startswith(start) for reason in gpu.throttle):
            return word, tone
    return f"  {gpu.mig_profile or ('shared' if gpu.vram_shared else 'ok')}", "muted"


def _bar(busy: Reading, sm: Reading) -> Sequence[Piece]:
    """Busy in the light tone, SM activity over it in the solid one: the gap between them is the story."""
    light = _cells(busy)
    solid = min(_cells(sm), light) if light else _cells(sm)
    return (("█" * solid, "sm"), ("▒" * (light - solid), "busy"), ("·" * (_BAR - max(light, solid)), "border"))


def _cells(value: Reading) -> int:
    """Filled cells: a share above 0 fills at least one, and only a full one fills all."""
    if isinstance(value, Missing) or value != value or value <= 0.0:
        return 0
    return max(1, min(_BAR if value >= 0.995 else _BAR - 1, int(min(value, 1.0) * _BAR + 0.5)))


def _share(used: Reading, whole: Reading) -> str:
    if isinstance(used, Missing):
        return DASH
    return ratio(used / whole, 4) if not isinstance(whole, Missing) and whole > 0.0 else ""
