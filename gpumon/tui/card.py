"""A verdict on a card, to be sent around: what is wrong, what to do, the evidence and its charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual.strip import Strip

from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Verdict
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.charts.grid import Style
from gpumon.tui.detail.blocks import lay_out
from gpumon.tui.detail.thing_charts import ThingCharts
from gpumon.tui.detail.verdict import evidence_keys, evidence_plan, sections
from gpumon.tui.levels import levels_in
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import clock
from gpumon.tui.triage_words import mark
from gpumon.tui.view import View

CARD_WIDTH: Final = 100
"""Cells of a card."""
_MOST_CHARTS: Final = 3
"""Charts on a card."""
_CHART_LINES: Final = 24
"""Lines of its charts together."""


def card_lines(
    verdict: Verdict, snapshot: Snapshot, history: History | None, palette: Palette, view: View
) -> list[Strip]:
    """The lines of the card; without a history it has no charts."""
    verdict_mark = mark(verdict)
    title = f"{verdict.scope}: {LIMIT_NAMES[verdict.code]}"
    simulated = " · SIMULATED" if snapshot.simulated else ""
    rows: list[Row] = [
        ((f" {verdict_mark.glyph} {verdict_mark.word}  {title}", verdict_mark.tone),),
        ((f" {snapshot.host.name} · {clock(snapshot.wall_s)}{simulated}", "muted"),),
        (),
        *lay_out(sections(verdict, history), CARD_WIDTH),
    ]
    if history is not None:
        style = Style(view.config.screen.span_s, palette.glyphs, levels_in(view))
        rows += _chart_rows(verdict, snapshot, history, style)
    return [Line(row, CARD_WIDTH, palette, LineSlot()) for row in rows]


def _chart_rows(verdict: Verdict, snapshot: Snapshot, history: History, style: Style) -> Sequence[Row]:
    """Charts of the first figures of the evidence that have one."""
    series = set(history.keys())
    keys = [key for key in evidence_keys(verdict) if key in series][:_MOST_CHARTS]
    moment = clock(snapshot.wall_s)
    plan = evidence_plan(_CHART_LINES)
    return ThingCharts().rows(keys, history, snapshot, moment, CARD_WIDTH, style, plan)
