"""An engine's page: latencies with their quantiles, and the buckets that these fell in."""

from __future__ import annotations

from typing import Final

from gpumon.readings.flat import value_of
from gpumon.readings.format import left, right, short
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Explain, Line, Section, Sentence, Why
from gpumon.tui.detail.values import known, said
from gpumon.tui.line import Piece
from gpumon.tui.view import View

_ROWS: Final = (("TTFT", "ttft_s"), ("ITL", "itl_s"), ("queue", "queue_s"), ("E2E", "e2e_s"), ("TPOT", "tpot_s"))
_SOME: Final = frozenset({"tpot_s"})
"""Those of which there is no row where an engine has none."""
_NAME: Final = 8
_CELL: Final = 11
_GOALS: Final = {"ttft_s": "ttft_p95_ms", "itl_s": "itl_p95_ms", "e2e_s": "e2e_p95_ms"}
_EXACT: Final = 0.5
"""Width of a bucket as a share of its quantile from which on the bucket is called coarse."""


def latencies(engine: Engine, view: View, explain: Explain, without: frozenset[str] = frozenset()) -> list[Section]:
    """A table of mean and quantiles; below each row the buckets and the metric. No rows of fields that are `without`
    and missing, and no section without rows."""
    entries: list[Entry] = [Line((("  " + " " * _NAME + _cells("mean", "p50", "p95", "p99"), "muted"),))]
    missing: list[tuple[str, Why]] = []
    coarse = False
    without = without | _SOME
    rows = [(name, field) for name, field in _ROWS if not (field in without and _is_missing(value_of(engine, field)))]
    for name, field in rows:
        of: Quantiles = value_of(engine, field)
        entries.append(Line(_row(name, of, _goal_s(view, field))))
        if buckets := _buckets(of):
            entries.append(Sentence(f"buckets {buckets}", indent=4))
        if source := engine.sources.get(field, ""):
            entries.append(Sentence(source, indent=4))
        shown = {"mean": of.mean, "p50": of.p50, "p95": of.p95, "p99": of.p99}
        if _is_missing(of):
            shown = {"": of.mean}
        missing += [
            (f"{name} {part}".rstrip(), explain(reading, field))
            for part, reading in shown.items()
            if isinstance(reading, Missing)
        ]
        coarse = coarse or _coarse(of)
    entries.append(Sentence("mean: sum / count, exact; a quantile is interpolated, and truly anywhere in its bucket"))
    if coarse:
        entries.append(Sentence("the engine's buckets are coarse: a quantile can be wrong by half of itself and more"))
    return [Section("latencies", entries, missing=missing)] if rows else []


def _is_missing(of: Quantiles) -> bool:
    return all(isinstance(reading, Missing) for reading in (of.mean, of.p50, of.p95, of.p99))


def _cells(*texts: str) -> str:
    return "".join(right(text, _CELL) for text in texts)


def _row(name: str, of: Quantiles, goal_s: float | None) -> tuple[Piece, ...]:
    pieces: list[Piece] = [("  " + left(name, _NAME), "muted"), _cell(of.mean)]
    pieces.append(_cell(of.p50, of.p50_high, of.first_bound_s))
    pieces.append(_cell(of.p95, of.p95_high, of.first_bound_s, goal_s))
    pieces.append(_cell(of.p99, of.p99_high, of.first_bound_s))
    if goal_s is not None:
        pieces.append((f"  goal {said(values.seconds(goal_s))}", "muted"))
    return tuple(pieces)


def _cell(
    reading: Reading, high: Reading = NOT_EXPOSED, first_bound_s: Reading = NOT_EXPOSED, goal_s: float | None = None
) -> Piece:
    """A mean, or a quantile: where it fell in the first or the last bucket only a bound of it is known."""
    if isinstance(reading, Missing):
        return right(short(reading, 5), _CELL), "muted"
    text, over = said(values.seconds(reading)), goal_s is not None and reading > goal_s
    if _is_open(high):
        text, over = f">{_bound(reading)}", goal_s is not None and reading >= goal_s
    elif (first := known(first_bound_s)) and reading <= first[0]:
        text = f"<{_bound(first[0])}"
    return right(text, _CELL), "warn" if over else "text"


def _is_open(high: Reading) -> bool:
    """Whether a quantile fell in the last bucket: then it is its lower bound, and truly somewhere above."""
    return isinstance(high, Missing) and high.reason is Reason.INVALID


def _goal_s(view: View, field: str) -> float | None:
    goal: float | None = getattr(view.goals, _GOALS[field]) if field in _GOALS else None
    return None if goal is None else goal / 1e3


def _buckets(of: Quantiles) -> str:
    """Between which bounds each quantile lies: `p50 10–25 ms · p95 50–75 ms`."""
    parts = []
    for name, value, low, high in (
        ("p50", of.p50, of.p50_low, of.p50_high),
        ("p95", of.p95, of.p95_low, of.p95_high),
        ("p99", of.p99, of.p99_low, of.p99_high),
    ):
        if not isinstance(value, Missing) and (text := interval(low, high)):
            parts.append(f"{name} {text}")
    return " · ".join(parts)


def interval(low: Reading, high: Reading) -> str:
    """The bounds of a bucket in seconds; the last one is open, and the first begins at 0."""
    if isinstance(low, Missing):
        return ""
    if isinstance(high, Missing):
        return f"above {_bound(low)}" if _is_open(high) else ""
    if low <= 0.0:
        return f"below {_bound(high)}"
    if high < 1.0:
        return f"{low * 1e3:g}–{_bound(high)}"
    return f"{low:g}–{_bound(high)}"


def _bound(value: float) -> str:
    return f"{value * 1e3:g} ms" if value < 1.0 else f"{value:g} s"


def _coarse(of: Quantiles) -> bool:
    numbers = known(of.p95, of.p95_low, of.p95_high)
    return numbers is not None and numbers[2] - numbers[1] > _EXACT * numbers[0]
