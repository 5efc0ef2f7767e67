"""A verdict's page: what limits, what to do about it, the figures that say so with their sources, and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.points import MOST_CHARTED_ENGINES, MOST_CHARTED_GPUS
from gpumon.readings.history import History
from gpumon.readings.snapshot import Confidence, Family, Verdict
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import action_text, evidence_text, signal_text, team_note, verdict_text
from gpumon.tui.charts.curves import CurveTexts, chart_of
from gpumon.tui.charts.grid import Charts, Style
from gpumon.tui.detail.blocks import Entry, Section, Sentence
from gpumon.tui.line import Row
from gpumon.tui.table import clock

_QUESTIONS: Final = {
    Family.STATE: "is it broken?",
    Family.LIMIT: "what holds it back?",
    Family.USE: "how is it used?",
}
_CONFIDENCE: Final = {
    Confidence.MEDIUM: "medium confidence: derived, or one signal is an estimate",
    Confidence.LOW: "low confidence: the signals would also fit another cause",
}
_MOST_CHARTS: Final = 6
_LEAST: Final = 3
_MOST: Final = 7
"""Lines of one chart."""


def sections(verdict: Verdict, history: History | None) -> list[Section]:
    """The verdict's text, its actions and its evidence."""
    entries: list[Entry] = []
    for signal in verdict.unknown:
        entries.append(Sentence(f"? {signal_text(signal)}", "text"))
    entries = entries or [Sentence(verdict_text(verdict, clock), "text")]
    if verdict.confidence is not Confidence.HIGH and not verdict.unknown:
        entries.append(Sentence(_CONFIDENCE[verdict.confidence]))
    sections = [Section(_QUESTIONS[verdict.family], entries)]
    if verdict.actions:
        todo = []
        for action in verdict.actions:
            todo.append(Sentence(f"→ {team_note(action)}{action_text(action)}", "accent"))
        sections.append(Section("what to do", todo))
    if verdict.evidence:
        rows = [_evidence(figure) for figure in verdict.evidence]
        sections.append(Section("evidence (metric or source)", rows, side=1))
    return sections + _charts_missing(verdict, history)


def _evidence(figure: Evidence) -> Sentence:
    """A figure that a verdict rests on, with its metric or source."""
    text = f"· {evidence_text(figure)}"
    if figure.source:
        text = f"{text} ({figure.source})"
    return Sentence(text, "text")


def _charts_missing(verdict: Verdict, history: History | None) -> list[Section]:
    """The reason why a figure has no chart below: the history keeps series of so many things only."""
    known = history.keys() if history is not None else ()
    without = sorted({figure.chart for figure in verdict.evidence if figure.chart and figure.chart not in known})
    if not without:
        return []
    most = f"{MOST_CHARTED_GPUS} GPUs and {MOST_CHARTED_ENGINES} engines"
    why = f"none of {', '.join(without)}: a figure that has not come yet, or of a thing beyond the first {most}"
    return [Section("charts", [Sentence(why)], side=1)]


class ChartPlace(NamedTuple):
    """Place and style of charts: `room` is the number of lines, about."""

    width: int
    room: int
    style: Style


class _Made(NamedTuple):
    """Arguments that the charts were made for."""

    keys: tuple[str, ...]
    place: ChartPlace
    history: History


class EvidenceCharts:
    """Charts of the series that a verdict names, made anew only where they or their place are others."""

    def __init__(self) -> None:
        self._made: _Made | None = None
        self._charts: Charts | None = None

    def rows(self, verdict: Verdict, history: History, now_s: float, moment: str, place: ChartPlace) -> Sequence[Row]:
        """The charts up to `now_s`, which the axis calls `moment`; none where no figure has one."""
        known = set(history.keys())
        named = list(dict.fromkeys(figure.chart for figure in verdict.evidence if figure.chart in known))
        charts = [chart for key in named if (chart := chart_of(key)) is not None][:_MOST_CHARTS]
        if not charts:
            return ()
        made = _Made(tuple(named), place, history)
        if self._charts is None or made != self._made:
            self._made = made
            least = max(_LEAST, min(_MOST, (place.room - 2) // len(charts)))
            size = (place.width, least * len(charts) + 1)
            self._charts = Charts(history, charts, *size, place.style, least=least, across=1)
        return [(), *self._charts.rows(now_s, CurveTexts(history), edge=moment)]
