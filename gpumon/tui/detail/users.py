"""The table of what the users of an engine got: its latencies with bars, the shares within the goals, and how requests
ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.efficiency.goodput import field_of_itl_goal
from gpumon.figures.latency import LATENCIES_OF_ENGINES, TPOT, LatencyWords
from gpumon.readings import format as human
from gpumon.readings.flat import value_of
from gpumon.readings.format import is_in_last_bucket, left, phrase, right, short
from gpumon.readings.missing import SILENT_REASONS, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.tui.detail import served
from gpumon.tui.detail.blocks import Entry, ReadyLine, Section
from gpumon.tui.detail.latencies import goal_s_of
from gpumon.tui.detail.values import bounds_text
from gpumon.tui.line import Piece
from gpumon.tui.palette import BODY, RAIL, TIPS
from gpumon.tui.view import View

_BY_FIELD: Final = {latency.field: latency for latency in LATENCIES_OF_ENGINES}
_ROWS: Final = tuple(
    _BY_FIELD[field] for field in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "prefill_s", "decode_s")
)
"""The latencies, from what users feel to the phases that it is made of."""
_OF_TOKENS: Final = frozenset({TPOT.field, "itl_s"})
"""Latencies of a token: nothing beside a whole request."""
_QUANTILES: Final = ("p50", "p90", "p95", "p99")
_NAME_CELLS: Final = 12
"""Cells of the name of a latency, with the indent."""
_CELLS: Final = 8
"""Cells of a quantile."""
_BAR_CELLS: Final = 14
_EIGHTHS: Final = 8
_FAULTS: Final = (
    ("failed", "errors"),
    ("corrupted", "with NaN"),
    ("rejected", "turned away"),
    ("refused", "refused (HTTP 4xx)"),
)
"""Fields of outcomes that are bad, and their words."""


def users_sections(engine: Engine, view: View) -> list[Section]:
    """Quantiles of each latency that the engine observes, goodput and outcomes; no section without any of them."""
    e2e_s = number(engine.latency.e2e_s.p95)
    known = [latency for latency in _observed_latencies(engine) if _has_figure(value_of(engine, latency.field))]
    lines: list[Entry] = []
    for latency in known:
        goal_s = goal_s_of(view, latency.field)
        full_s = e2e_s if goal_s is None and latency.field not in _OF_TOKENS else goal_s
        lines.append(_latency_line(latency, value_of(engine, latency.field), full_s, goal_s))
    lines += [*_lines_without_figure(engine), *_goodput_lines(engine), *_outcome_lines(engine)]
    if not lines:
        return []
    titles = "".join(right(title, _CELLS) for title in _QUANTILES)
    has_goal = any(goal_s_of(view, latency.field) is not None for latency in known)
    bars = "p95 of E2E or goal" if has_goal else "p95 of E2E"
    return [Section("what users got", lines, columns=f"{' ' * _NAME_CELLS}{titles}  bar: {bars}, 60 s")]


def _observed_latencies(engine: Engine) -> list[LatencyWords]:
    """The latencies that the engine has a histogram of."""
    return [latency for latency in _ROWS if _is_observed(value_of(engine, latency.field))]


def _has_figure(quantiles: Quantiles) -> bool:
    """Whether a p95 or a mean of a latency is known."""
    return not (isinstance(quantiles.p95, Missing) and isinstance(quantiles.mean, Missing))


def _lines_without_figure(engine: Engine) -> Iterator[Entry]:
    """The observed latencies without a figure right now, a line for each reason."""
    names_by_reason: dict[str, list[str]] = {}
    for latency in _observed_latencies(engine):
        quantiles: Quantiles = value_of(engine, latency.field)
        if isinstance(quantiles.p95, Missing) and not _has_figure(quantiles):
            why = "none in 60 s" if quantiles.p95.reason is Reason.IDLE else phrase(quantiles.p95)
            names_by_reason.setdefault(why, []).append(latency.name)
    for why, names in names_by_reason.items():
        yield ReadyLine(((f"  {', '.join(names)}: {why}", "muted"),))


def _is_observed(quantiles: Quantiles) -> bool:
    """Whether the engine has a histogram of a latency, and answers: what it lacks has no row."""
    p50 = quantiles.p50
    if not isinstance(p50, Missing) or not isinstance(quantiles.mean, Missing):
        return True
    return p50.reason not in (*SILENT_REASONS, Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED)


def _latency_line(latency: LatencyWords, quantiles: Quantiles, full_s: float | None, goal_s: float | None) -> ReadyLine:
    """A latency: its quantiles, its bar, and its goal; without quantiles why, and the mean that there is.

    `full_s`: what fills the bar; None: there is nothing to hold the p95 against. `goal_s`: None without a goal, and
    without the colour of a level.
    """
    name: Piece = (left(f"  {latency.name}", _NAME_CELLS), "muted")
    if isinstance(quantiles.p95, Missing):
        return ReadyLine((name, (_why_none(quantiles.p95, quantiles.mean), "muted")))
    pieces = [name]
    for part in _QUANTILES:
        pieces.append(_quantile_piece(quantiles, part, goal_s if part == "p95" else None))
    pieces.append(("  ", "text"))
    if full_s:
        pieces += _bar_pieces(quantiles.p95 / full_s, _tone(quantiles, goal_s))
    if goal_s is not None:
        pieces.append((f" goal {human.seconds(goal_s)}", "muted"))
    return ReadyLine(tuple(pieces))


def _why_none(missing: Missing, mean: Reading) -> str:
    """Why a latency has no quantiles, in place of them."""
    if missing.reason is Reason.FEW:
        return f"  too few for quantiles in 60 s: mean {human.seconds(mean)}"
    return f"  mean {human.seconds(mean)}"


def _quantile_piece(quantiles: Quantiles, part: str, goal_s: float | None) -> Piece:
    """A quantile; of one in the first or the last bucket only the bound of it."""
    reading: Reading = getattr(quantiles, part)
    if isinstance(reading, Missing):
        return right(short(reading, 5), _CELLS), "muted"
    text = human.seconds(reading)
    first_s = number(quantiles.first_bound_s)
    if is_in_last_bucket(quantiles, part):
        text = human.least_time(reading)
    elif first_s is not None and reading <= first_s:
        text = f"<{human.seconds(first_s)}"
    tone = "text" if goal_s is None else _tone(quantiles, goal_s)
    return right(text, _CELLS), tone if tone in ("warn", "critical") else "text"


def _tone(quantiles: Quantiles, goal_s: float | None) -> str:
    """Tone of a p95 beside its goal; that of no level where it has none."""
    p95_s = number(quantiles.p95)
    if goal_s is None or p95_s is None:
        return "busy"
    is_over = p95_s >= goal_s if is_in_last_bucket(quantiles, "p95") else p95_s > goal_s
    if not is_over:
        return "ok"
    return "critical" if p95_s > 2.0 * goal_s else "warn"


def _bar_pieces(share: float, tone: str) -> list[Piece]:
    """A bar that is full at 1, in eighths of a cell."""
    eighths = min(_BAR_CELLS * _EIGHTHS, max(1, round(share * _BAR_CELLS * _EIGHTHS)))
    whole, part = divmod(eighths, _EIGHTHS)
    text = BODY * whole + (TIPS[part - 1] if part else "")
    return [(text, tone), (RAIL * (_BAR_CELLS - len(text)), "border")]


def _goodput_lines(engine: Engine) -> list[Entry]:
    """The shares within the goals with their bounds, in a line; none where nothing is observed."""
    parts = []
    are_assumed = []
    of_tokens = field_of_itl_goal(engine.goodput)
    for goal in served.observed_goals(engine.goodput):
        if goal.field not in ("ttft_goal", of_tokens):
            continue
        low = number(goal.share.low_ratio)
        high = number(goal.share.high_ratio)
        goal_s = number(goal.share.goal_s)
        if low is None or high is None or goal_s is None:
            continue
        are_assumed.append(goal.is_assumed)
        name = goal.name.removesuffix(" in goal")
        mark = "?" if goal.is_assumed else ""
        parts.append(f"{name} {bounds_text(low, high)}% in {human.seconds(goal_s)}{mark}")
    if not parts:
        return []
    if any(are_assumed):
        parts.append("? assumed")
    return [ReadyLine(((left("  goodput", _NAME_CELLS), "muted"), (f"  {' · '.join(parts)}", "text")))]


def _outcome_lines(engine: Engine) -> list[Entry]:
    """How many requests ended in 2 minutes, and those that ended badly, in a line; none where that is not counted."""
    outcomes = engine.served.outcomes
    ended = number(outcomes.ended)
    if ended is None:
        return []
    pieces: list[Piece] = [(left("  ended", _NAME_CELLS), "muted"), (f"  {ended:,.0f} in 2 min", "text")]
    for field, words in _FAULTS:
        count = number(getattr(outcomes, field))
        if count:
            pieces += [(" · ", "muted"), (f"{count:,.0f} {words}", "warn")]
    aborted = number(outcomes.aborted)
    if aborted:
        pieces.append((f" · {aborted:,.0f} aborted", "text"))
    return [ReadyLine(tuple(pieces))]
