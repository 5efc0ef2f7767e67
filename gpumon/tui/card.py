"""A verdict on a card, to be sent around: what is wrong, what to do, the evidence and its charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from textual.strip import Strip

from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Evidence, Verdict
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.charts.grid import Style
from gpumon.tui.detail.blocks import lay_out
from gpumon.tui.detail.verdict import ChartPlace, EvidenceCharts, sections
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
    charts: set[str] = set()
    evidence_with_chart: list[Evidence] = []
    for evidence in verdict.evidence:
        if evidence.chart in series and len(charts | {evidence.chart}) <= _MOST_CHARTS:
            charts.add(evidence.chart)
            evidence_with_chart.append(evidence)
    charted_verdict = msgspec.structs.replace(verdict, evidence=tuple(evidence_with_chart))
    place = ChartPlace(CARD_WIDTH, _CHART_LINES, style)
    return EvidenceCharts().rows(charted_verdict, history, snapshot.wall_s, clock(snapshot.wall_s), place)
