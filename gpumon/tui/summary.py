"""Everything in one line, or in the few there are, for a terminal too small for tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from typing import Final

from gpumon.efficiency.service import adding_up
from gpumon.readings.flat import value_of
from gpumon.readings.format import cells, count, counted, ratio, watts
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Level, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.render import LIMITS
from gpumon.tui.line import Piece, Row
from gpumon.tui.triage_words import LEVELS, URGENT, mark

_TROUBLES: Final = (
    ("DOWN", "critical", frozenset(GpuState) - {GpuState.OK, GpuState.STALE, GpuState.INITIALISING}),
    ("STALE", "warn", frozenset({GpuState.STALE})),
)
"""Word and tone for GPUs in these states, worst first."""
_SILENT: Final = frozenset(
    {
        *(EndpointState.UNAUTHORIZED, EndpointState.METRICS_OFF, EndpointState.NOT_METRICS),
        *(EndpointState.WRONG_ENGINE, EndpointState.TOO_LARGE),
    }
)
"""States of an engine that answers, but gives no figures."""
_DOWN: Final = frozenset(EndpointState) - {EndpointState.OK, EndpointState.STARTING} - _SILENT


def summary(snapshot: Snapshot | None, width: int, height: int, *, paused: bool, back: bool = False) -> list[Row]:
    """The most important first, as many whole parts as fit into `height` lines of `width` cells; a glyph if none does.

    `back`: it is of a moment of the past, which is named.

    A part that does not fit ends the summary rather than letting a lesser one take its place.
    """
    lines: list[list[Piece]] = [[]]
    room = width
    for text, tone in _parts(snapshot, paused=paused, back=back):
        size = cells(text) + (1 if lines[-1] else 0)
        if size > room and lines[-1] and len(lines) < height:
            lines.append([])
            room, size = width, cells(text)
        if size > room:
            break
        lines[-1] += [(" ", "text"), (text, tone)] if lines[-1] else [(text, tone)]
        room -= size
    return [tuple(line) for line in lines if line] or [(_glyph(snapshot, paused=paused),)]


def _parts(snapshot: Snapshot | None, *, paused: bool, back: bool) -> list[Piece]:
    if snapshot is None:
        return [("gpumon", "strong"), ("starting …", "muted")]
    gpus, engines = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid], snapshot.engines
    owners: Sequence[Gpu | Engine] = gpus or engines
    parts: list[Piece] = [("SIM", "badge")] if snapshot.simulated else []
    parts += [(_clock(snapshot) if back else "PAUSED", "badge_paused")] if paused or back else []
    parts += [(counted(len(gpus), "GPU"), "text")] if gpus or not engines else []
    parts += [(f"{n} {word}", tone) for word, tone, states in _TROUBLES if (n := _number(gpus, states))]
    down = _number(engines, _DOWN)
    parts += [] if gpus or not engines else [(counted(len(engines), "engine"), "text")]
    parts += [(f"{counted(down, 'engine')} DOWN", "critical")] if down else []
    silent = _number(engines, _SILENT)
    parts += [(f"{counted(silent, 'engine')} without figures", "warn")] if silent else []
    parts += _worst(snapshot)
    parts += [(f"busy {ratio(_mean([gpu.busy_ratio for gpu in gpus]))}", "text")] if gpus else []
    if engines:
        parts.append((f"mfu {ratio(_mean([value_of(owner, 'mfu_ratio') for owner in owners]))}", "text"))
        parts.append((f"mbu {ratio(_mean([value_of(owner, 'mbu_ratio') for owner in owners]))}", "text"))
        parts.append(
            (f"{count(_sum([engine.rates.decode_tokens_per_s for engine in adding_up(engines)]))} tok/s", "text")
        )
    power_w = _sum([gpu.power_w for gpu in gpus])
    parts += [] if isinstance(power_w, Missing) else [(watts(power_w), "text")]
    faults = len(snapshot.faults)
    return parts + ([(counted(faults, "fault"), "warn")] if faults else [])


def _worst(snapshot: Snapshot) -> list[Piece]:
    """The worst verdict, where somebody suffers under it."""
    for verdict in snapshot.verdicts[:1]:
        if verdict.level in URGENT:
            glyph, tone, _ = mark(verdict)
            return [(f"{glyph} {LIMITS[verdict.code]} {clean(verdict.scope)}", tone)]
    return []


def _clock(snapshot: Snapshot) -> str:
    """When a moment of the past was, with its date."""
    return datetime.fromtimestamp(snapshot.wall_s, timezone.utc).astimezone().strftime("AT %Y-%m-%d %H:%M:%S")


def _glyph(snapshot: Snapshot | None, *, paused: bool) -> Piece:
    """All of it in one cell."""
    if snapshot is None:
        return "…", "muted"
    lost = _TROUBLES[0][2]
    critical = any(verdict.level is Level.CRITICAL for verdict in snapshot.verdicts)
    if critical or _number(snapshot.gpus, lost) or _number(snapshot.engines, _DOWN):
        return LEVELS[Level.CRITICAL][:2]
    if snapshot.faults:
        return LEVELS[Level.WARN][:2]
    return ("‖", "warn") if paused else ("●", "ok")


def _number(things: Sequence[Gpu | Engine], states: Collection[GpuState | EndpointState]) -> int:
    return sum(thing.state in states for thing in things)


def _known(readings: list[Reading]) -> list[float]:
    return [reading for reading in readings if not isinstance(reading, Missing)]


def _mean(readings: list[Reading]) -> Reading:
    known = _known(readings)
    return sum(known) / len(known) if known else NOT_EXPOSED


def _sum(readings: list[Reading]) -> Reading:
    known = _known(readings)
    return sum(known) if known else NOT_EXPOSED
