"""A verdict's page: what limits, what to do about it, the figures that say so with their sources, and their charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from gpumon.efficiency.points import MOST_CHARTED_ENGINES, MOST_CHARTED_GPUS
from gpumon.readings.history import History
from gpumon.readings.snapshot import Confidence, Family, Verdict
from gpumon.readings.verdict import Evidence
from gpumon.triage.chain import after_text, chain_of, chain_text
from gpumon.triage.render import (
    acknowledged_text,
    action_note,
    action_text,
    evidence_text,
    signal_text,
    verdict_text,
)
from gpumon.tui.detail.blocks import Entry, Section, Sentence
from gpumon.tui.detail.thing_charts import ChartPlan
from gpumon.tui.table import clock
from gpumon.tui.triage_rows import consequence_text

_QUESTIONS: Final = {
    Family.STATE: "is it broken?",
    Family.LIMIT: "what holds it back?",
    Family.USE: "how is it used?",
    Family.FORECAST: "what is coming?",
}
"""Title of the section with the text of a verdict, by its family."""
_CONFIDENCE_NOTES: Final = {
    Confidence.MEDIUM: "medium confidence: derived, or one signal is an estimate",
    Confidence.LOW: "low confidence: the signals would also fit another cause",
}
_LEAST_CHART_LINES: Final = 3
_MOST_CHART_LINES: Final = 7


def sections(verdict: Verdict, history: History | None, others: Sequence[Verdict] = ()) -> list[Section]:
    """The verdict's text, its actions, what comes of it among the `others`, and its evidence; `history` tells which
    figures have a chart."""
    sections = [Section(_QUESTIONS[verdict.family], _text_entries(verdict))]
    if verdict.actions:
        todo = [Sentence(f"→ {action_note(action)}{action_text(action)}", "accent") for action in verdict.actions]
        sections.append(Section("what to do", todo))
    sections += _chain_sections(verdict, others)
    if verdict.evidence:
        evidence = [_evidence_sentence(figure) for figure in verdict.evidence]
        sections.append(Section("evidence (metric or source)", evidence, side=1))
    return sections + _missing_chart_sections(verdict, history)


def _chain_sections(verdict: Verdict, others: Sequence[Verdict]) -> list[Section]:
    """The chain of the incident that a verdict is the cause or a consequence of: in a line, then link by link with its
    time; no section of one that stands alone."""
    cause = next((other for other in others if other.id and other.id == verdict.caused_by), verdict)
    consequences = {other.id: other for other in others if cause.id and other.caused_by == cause.id}
    if not consequences:
        return []
    links = chain_of(cause, consequences.values())
    entries: list[Entry] = [Sentence(chain_text(links, clock), "strong")]
    for link in links:
        if link.id in consequences:
            told = consequences[link.id]
            tone = "muted" if told.id == verdict.id else "text"  # the page says it already
            entries.append(Sentence(f"└ {after_text(link)} {consequence_text(told)}", tone))
    return [Section("what comes of it" if cause is verdict else "what it comes of", entries)]


def _text_entries(verdict: Verdict) -> list[Entry]:
    """The text of a verdict with its confidence; where signals are missing, these alone: it says no more then."""
    if verdict.unknown:
        return [Sentence(f"? {signal_text(signal)}", "text") for signal in verdict.unknown]
    entries: list[Entry] = [Sentence(verdict_text(verdict, clock), "text")]
    if verdict.acknowledged is not None:
        entries.append(Sentence(acknowledged_text(verdict.acknowledged, clock), "text"))
    if verdict.confidence is not Confidence.HIGH:
        entries.append(Sentence(_CONFIDENCE_NOTES[verdict.confidence]))
    return entries


def _evidence_sentence(figure: Evidence) -> Sentence:
    """A figure that a verdict rests on, with its metric or source."""
    text = f"· {evidence_text(figure)}"
    if figure.source:
        text = f"{text} ({figure.source})"
    return Sentence(text, "text")


def _missing_chart_sections(verdict: Verdict, history: History | None) -> list[Section]:
    """The figures that have no chart below, and why; no section where all have one.

    The history keeps the series of so many GPUs and engines only.
    """
    keys: Collection[str] = history.keys() if history is not None else ()
    missing = {figure.chart for figure in verdict.evidence if figure.chart and figure.chart not in keys}
    if not missing:
        return []
    charted = f"{MOST_CHARTED_GPUS} GPUs and {MOST_CHARTED_ENGINES} engines"
    names = ", ".join(sorted(missing))
    text = f"none of {names}: a figure that has not come yet, or of a thing beyond the first {charted}"
    return [Section("charts", [Sentence(text)], side=1)]


def evidence_keys(verdict: Verdict) -> list[str]:
    """Keys of the series that a verdict rests on."""
    return list(dict.fromkeys(figure.chart for figure in verdict.evidence if figure.chart))


def evidence_plan(room: int) -> Callable[[int], ChartPlan]:
    """The plan of so many charts below each other, in about `room` lines: each has a least height."""

    def plan(number: int) -> ChartPlan:
        lines = max(_LEAST_CHART_LINES, min(_MOST_CHART_LINES, (room - 2) // number))  # a blank line before, the axis
        return ChartPlan(height=lines * number + 1, least=lines, across=1)

    return plan
