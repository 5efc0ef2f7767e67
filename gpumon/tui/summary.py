"""Everything in one line, or in the few there are, for a terminal too small for tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

from gpumon.efficiency.faults import is_loud
from gpumon.figures.gpu import GPU, SHARES_OF_PEAKS
from gpumon.readings.flat import value_of
from gpumon.readings.format import cells, count, counted, ratio, watts
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Level, Snapshot, physical_gpus
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENT, counted_verdicts
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.line import Piece, Row
from gpumon.tui.totals import DOWN_STATES, SILENT_STATES, MachineTotals, machine_totals, number_in
from gpumon.tui.triage_words import LEVEL_MARKS, mark

_GPU_DOWN_STATES: Final = frozenset(GpuState) - {GpuState.OK, GpuState.STALE, GpuState.INITIALISING}
"""States of a GPU that does not work."""
_GPU_TROUBLES: Final = (
    ("DOWN", "critical", _GPU_DOWN_STATES),
    ("STALE", "warn", frozenset({GpuState.STALE})),
)
"""Word and tone for the number of GPUs in these states, worst first."""


def summary(snapshot: Snapshot | None, width: int, height: int, *, paused: bool, gone_back: bool = False) -> list[Row]:
    """The most important first, as many whole parts as fit into `height` lines of `width` cells; a glyph if none does.

    `gone_back`: it is of a moment of the past, which is named.
    """
    rows = whole_parts(_summary_parts(snapshot, paused=paused, gone_back=gone_back), width, height)
    return rows or [(_single_glyph(snapshot, paused=paused),)]


def whole_parts(parts: Iterable[Piece], width: int, height: int) -> list[Row]:
    """As many parts as fit into `height` lines of `width` cells, none of them cut.

    A part that does not fit ends them rather than letting a lesser one take its place.
    """
    lines: list[list[Piece]] = []
    room = 0
    for text, tone in parts:
        size = cells(text)
        if lines and size + 1 <= room:
            lines[-1] += [(" ", "text"), (text, tone)]
            room -= size + 1
        elif len(lines) < max(1, height) and size <= width:
            lines.append([(text, tone)])
            room = width - size
        else:
            break
    return [tuple(line) for line in lines]


def _summary_parts(snapshot: Snapshot | None, *, paused: bool, gone_back: bool) -> list[Piece]:
    """Texts and tones, the most important first."""
    if snapshot is None:
        return [("gpumon", "strong"), ("starting …", "muted")]
    total = machine_totals(snapshot)
    parts: list[Piece] = []
    if snapshot.simulated:
        parts.append(("SIM", "badge"))
    if gone_back:
        moment = datetime.fromtimestamp(snapshot.wall_s, timezone.utc).astimezone()
        parts.append((moment.strftime("AT %Y-%m-%d %H:%M:%S"), "badge_paused"))
    elif paused:
        parts.append(("PAUSED", "badge_paused"))
    parts += _state_parts(snapshot, total)
    parts += _worst_part(snapshot)
    parts += _figure_parts(total)
    faults = _loud_faults(snapshot)
    if faults:
        parts.append((counted(faults, "fault"), "warn"))
    return parts


def _loud_faults(snapshot: Snapshot) -> int:
    """Number of the faults that ask for somebody."""
    return sum(is_loud(fault, snapshot.engines) for fault in snapshot.faults)


def _state_parts(snapshot: Snapshot, total: MachineTotals) -> list[Piece]:
    """How many GPUs or engines there are, and how many of them do not work."""
    parts: list[Piece] = []
    if total.gpus or not total.engines:
        parts.append((counted(total.gpus, "GPU"), "text"))
    else:
        parts.append((counted(total.engines, "engine"), "text"))
    whole_gpus = physical_gpus(snapshot.gpus)
    for word, tone, states in _GPU_TROUBLES:
        number = number_in(whole_gpus, states)
        if number:
            parts.append((f"{number} {word}", tone))
    down = number_in(snapshot.engines, DOWN_STATES)
    if down:
        parts.append((f"{counted(down, 'engine')} DOWN", "critical"))
    silent = number_in(snapshot.engines, SILENT_STATES)
    if silent:
        parts.append((f"{counted(silent, 'engine')} without figures", "warn"))
    return parts


def _figure_parts(total: MachineTotals) -> list[Piece]:
    """Use of GPUs and engines."""
    parts: list[Piece] = []
    if total.gpus:
        parts.append((f"busy {ratio(total.busy_ratio)}", "text"))
    for field in SHARES_OF_PEAKS:
        share = value_of(total, field)
        if not isinstance(share, Missing):
            parts.append((f"{GPU[field].short} {ratio(share)}", "text"))
    for per_s, unit in ((total.decode_tokens_per_s, "tok/s"), (total.trained_tokens_per_s, "tok/s trained")):
        if not isinstance(per_s, Missing):
            parts.append((f"{count(per_s)} {unit}", "text"))
    if not isinstance(total.power_w, Missing):
        parts.append((watts(total.power_w), "text"))
    return parts


def _worst_part(snapshot: Snapshot) -> list[Piece]:
    """The worst verdict, where somebody suffers under it."""
    for verdict in counted_verdicts(snapshot)[:1]:
        if verdict.level in URGENT:
            glyph, tone, _ = mark(verdict)
            return [(f"{glyph} {LIMIT_NAMES[verdict.code]} {clean(verdict.scope)}", tone)]
    return []


def _single_glyph(snapshot: Snapshot | None, *, paused: bool) -> Piece:
    """The glyph that stands for all of it: the worst there is."""
    if snapshot is None:
        return "…", "muted"
    critical = any(verdict.level is Level.CRITICAL for verdict in counted_verdicts(snapshot))
    if critical or number_in(snapshot.gpus, _GPU_DOWN_STATES) or number_in(snapshot.engines, DOWN_STATES):
        return LEVEL_MARKS[Level.CRITICAL].glyph, LEVEL_MARKS[Level.CRITICAL].tone
    if _loud_faults(snapshot):
        return LEVEL_MARKS[Level.WARN].glyph, LEVEL_MARKS[Level.WARN].tone
    if paused:
        return "‖", "warn"
    return "●", "ok"
