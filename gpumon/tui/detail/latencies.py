"""The table of an engine's latencies: mean and quantiles, the buckets that they fell in, and their goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.quantiles import least_e2e_s
from gpumon.figures.latency import LATENCIES, TPOT
from gpumon.readings.flat import value_of
from gpumon.readings.format import bound_text, bucket_text, is_last_bucket, left, right, short
from gpumon.readings.goals import HTTP_S
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import REMARK_INDENT, Entry, Explainer, ReadyLine, Section, Sentence, Why
from gpumon.tui.detail.values import figure_text, known_number, known_numbers
from gpumon.tui.line import Piece
from gpumon.tui.view import View

_OPTIONAL_LATENCIES: Final = frozenset({"tpot_s"})
"""Latencies that have no row where an engine does not export them."""
_WITH_HTTP: Final = frozenset({"ttft_s", "e2e_s"})
"""Latencies that begin with a user's request: HTTP is in them as the user sees them."""
_LATENCY_NAME_CELLS: Final = 8
_LATENCY_CELLS: Final = 11
_GOAL_SETTINGS: Final = {
    "ttft_s": "ttft_p95_ms",
    "tpot_s": "tpot_p95_ms",
    "itl_s": "itl_p95_ms",
    "e2e_s": "e2e_p95_ms",
}
"""Field of a latency -> setting of its goal in `[goals]`."""
_COARSE_BUCKET: Final = 0.5
"""Width of a bucket as a share of its quantile from which on the bucket is called coarse."""


class _Latency(NamedTuple):
    """A latency of an engine, with its name on the page."""

    name: str
    field: str
    quantiles: Quantiles


class _Quantile(NamedTuple):
    """One quantile, with the bounds of the bucket that it fell in."""

    name: str
    value: Reading
    low: Reading
    high: Reading


def latency_sections(
    engine: Engine, view: View, explain: Explainer, without: frozenset[str] = frozenset()
) -> list[Section]:
    """A table of mean and quantiles, with the buckets and the metric below each row; no section without rows.

    A latency among the fields `without` has no row where it is missing.
    """
    latencies = _listed_latencies(engine, without | _OPTIONAL_LATENCIES)
    if not latencies:
        return []
    titles = "".join(right(title, _LATENCY_CELLS) for title in ("mean", "p50", "p95", "p99"))
    entries: list[Entry] = [ReadyLine(((" " * (2 + _LATENCY_NAME_CELLS) + titles, "muted"),))]
    missing: list[tuple[str, Why]] = []
    for latency in latencies:
        entries += _latency_entries(latency, engine, view)
        for part, reason in _missing_parts(latency.quantiles):
            missing.append((f"{latency.name} {part}".rstrip(), explain(reason, latency.field)))
    entries += _remarks(latencies, engine, view)
    return [Section("latencies", entries, missing=missing)]


def _remarks(latencies: Sequence[_Latency], engine: Engine, view: View) -> Iterator[Sentence]:
    """How the table is to be read, as far as that is not plain from its rows."""
    yield Sentence("mean: sum / count, exact; quantiles are interpolated: the true value lies anywhere in the bucket")
    with_http = [latency.name for latency in latencies if latency.field in _WITH_HTTP]
    if with_http:
        text = f"inside the engine: HTTP adds up to {HTTP_S * 1e3:.0f} ms to {' and '.join(with_http)} of its users"
        yield Sentence(text)
    if least_e2e_s(engine.latency) is not None:
        yield Sentence(
            "TTFT above E2E: E2E is of requests that ended, TTFT of later ones, which wait longer and end later"
        )
    if view.goals.tpot_p95_ms is not None and "tpot_s" not in {latency.field for latency in latencies}:
        goal = f"the TPOT goal of {view.goals.tpot_p95_ms:g} ms"
        yield Sentence(f"{goal} is held against the mean ITL: this engine exports no TPOT")
    if any(_is_coarse(latency.quantiles) for latency in latencies):
        yield Sentence("coarse buckets: quantiles can be off by 50% and more")


def _listed_latencies(engine: Engine, without: frozenset[str]) -> list[_Latency]:
    """The latencies that have a row: all but those of the fields `without` that are missing."""
    listed = []
    for latency in (*LATENCIES, TPOT):
        quantiles: Quantiles = value_of(engine, latency.field)
        if latency.field not in without or not _is_all_missing(quantiles):
            listed.append(_Latency(latency.name, latency.field, quantiles))
    return listed


def _latency_entries(latency: _Latency, engine: Engine, view: View) -> list[Entry]:
    """One latency: its row, then its buckets and its metric."""
    entries: list[Entry] = [_latency_line(latency, goal_s_of(view, latency.field))]
    buckets = _buckets_text(latency.quantiles)
    if buckets:
        entries.append(Sentence(f"buckets {buckets}", indent=REMARK_INDENT))
    source = engine.sources.get(latency.field, "")
    if source:
        entries.append(Sentence(source, indent=REMARK_INDENT))
    return entries


def goal_s_of(view: View, field: str) -> float | None:
    """The goal of a latency in seconds; None where it has none."""
    if field not in _GOAL_SETTINGS:
        return None
    goal_ms: float | None = getattr(view.goals, _GOAL_SETTINGS[field])
    if goal_ms is None:
        return None
    return goal_ms / 1e3


def _missing_parts(quantiles: Quantiles) -> list[tuple[str, Missing]]:
    """Name and reason of the mean and of each quantile that is missing; one nameless entry where all are."""
    if isinstance(quantiles.mean, Missing) and _is_all_missing(quantiles):
        return [("", quantiles.mean)]
    missing = []
    if isinstance(quantiles.mean, Missing):
        missing.append(("mean", quantiles.mean))
    for quantile in _shown_quantiles(quantiles):
        if isinstance(quantile.value, Missing):
            missing.append((quantile.name, quantile.value))
    return missing


def _is_all_missing(quantiles: Quantiles) -> bool:
    """Whether neither the mean nor any quantile is there."""
    readings = (quantiles.mean, quantiles.p50, quantiles.p95, quantiles.p99)
    return all(isinstance(reading, Missing) for reading in readings)


def _latency_line(latency: _Latency, goal_s: float | None) -> ReadyLine:
    """Name, mean and quantiles of a latency; its goal, which is one of the p95, behind them."""
    quantiles = latency.quantiles
    pieces: list[Piece] = [("  " + left(latency.name, _LATENCY_NAME_CELLS), "muted"), _latency_cell(quantiles.mean)]
    for quantile in _shown_quantiles(quantiles):
        quantile_goal_s = goal_s if quantile.name == "p95" else None
        pieces.append(_latency_cell(quantile.value, quantile.high, quantiles.first_bound_s, quantile_goal_s))
    if goal_s is not None:
        pieces.append((f"  goal {figure_text(values.seconds(goal_s))}", "muted"))
    return ReadyLine(tuple(pieces))


def _shown_quantiles(quantiles: Quantiles) -> tuple[_Quantile, ...]:
    """The quantiles of a latency, each with the bucket that it fell in."""
    return (
        _Quantile("p50", quantiles.p50, quantiles.p50_low, quantiles.p50_high),
        _Quantile("p95", quantiles.p95, quantiles.p95_low, quantiles.p95_high),
        _Quantile("p99", quantiles.p99, quantiles.p99_low, quantiles.p99_high),
    )


def _latency_cell(
    reading: Reading, high: Reading = NOT_EXPOSED, first_bound_s: Reading = NOT_EXPOSED, goal_s: float | None = None
) -> Piece:
    """A mean, or a quantile: where it fell in the first or the last bucket only a bound of it is known.

    `high`: the upper bound of its bucket; `first_bound_s`: that of the first bucket.
    """
    if isinstance(reading, Missing):
        return right(short(reading, 5), _LATENCY_CELLS), "muted"
    text = figure_text(values.seconds(reading))
    is_over = goal_s is not None and reading > goal_s
    known_bound_s = known_number(first_bound_s)
    if is_last_bucket(high):  # the reading is the lower bound: the quantile is above the goal if that is at it
        text = f">{bound_text(reading)}"
        is_over = goal_s is not None and reading >= goal_s
    elif known_bound_s is not None and reading <= known_bound_s:
        text = f"<{bound_text(known_bound_s)}"
    return right(text, _LATENCY_CELLS), "warn" if is_over else "text"


def _buckets_text(quantiles: Quantiles) -> str:
    """Between which bounds each quantile lies: `p50 10–25 ms · p95 50–75 ms`."""
    texts = []
    for quantile in _shown_quantiles(quantiles):
        bounds = bucket_text(quantile.low, quantile.high)
        if bounds and not isinstance(quantile.value, Missing):
            texts.append(f"{quantile.name} {bounds}")
    return " · ".join(texts)


def _is_coarse(quantiles: Quantiles) -> bool:
    """Whether the bucket of the p95 is so wide that its p95 says little."""
    numbers = known_numbers(quantiles.p95, quantiles.p95_low, quantiles.p95_high)
    if numbers is None:
        return False
    p95_s, low_s, high_s = numbers
    return high_s - low_s > _COARSE_BUCKET * p95_s
