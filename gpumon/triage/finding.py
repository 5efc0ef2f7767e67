"""Findings of rules, and the rows that they are made of: causes, figures of evidence, and actions, with their words."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumon.figures.charted import SERIES_OF
from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.verdict import LATER, YES, Action, Confidence, Evidence, Level, Limit, Parameters, Signal, Team


class Finding(NamedTuple):
    """Answer of a rule: the limit that it found, or that it cannot tell (`unsure`)."""

    code: Limit
    cause: str
    parameters: Parameters
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[Action, ...] = ()
    level: Level = Level.WARN
    confidence: Confidence = Confidence.HIGH
    began_s: float = math.inf
    """Monotonic time at which the cause began, where its text tells how long that has been there."""
    missing: tuple[Signal, ...] = ()
    """Signals that would tell, for `UNKNOWN`."""
    is_sure: bool = False
    """It need not hold for a while to become the verdict: it is a fact, such as a setting that was changed."""


class Quantity(NamedTuple):
    """A figure that evidence names: its words, and where a sampled one comes from."""

    code: str
    """`Evidence.quantity`."""
    words: str
    """Sentence with `value`, `limit` and the parameters of the evidence (`triage.templates`)."""
    field: str = ""
    """Field of the engine or GPU whose source the evidence names."""
    chart: str | None = None
    """Series that shows it over time; None: that of its field."""
    limit: str = ""
    """Threshold (`Thresholds`) that it is held against; empty: none, or one of the case."""

    @property
    def series(self) -> str:
        """Series that shows it over time; empty where none does."""
        return SERIES_OF.get(self.field.partition(".")[0], "") if self.chart is None else self.chart

    def evidence(
        self,
        value: Reading = NOT_EXPOSED,
        limit: Reading = NOT_EXPOSED,
        source: str = "",
        chart: str = "",
        parameters: Parameters = {},  # noqa: B006 - never changed
    ) -> Evidence:
        """This figure as evidence."""
        return Evidence(self.code, value, limit, source, chart, parameters)


class Remedy(NamedTuple):
    """An action to advise: its words, and who can carry it out."""

    code: str
    """`Action.code`."""
    words: str
    """Sentence with the parameters of the action (`triage.templates`)."""
    team: Team = Team.ENGINE

    def action(self, **values: float | str | None) -> Action:
        """This action with its parameters; what is None or empty is not among them."""
        return Action(self.code, params(**values))


class Cause(NamedTuple):
    """A cause of verdicts: what it is called and says, and how urgent and sure it is unless its rule knows better."""

    code: str
    """`Verdict.cause`."""
    limit: Limit
    words: str
    """Sentence of a verdict with its parameters (`triage.templates`)."""
    level: Level = Level.WARN
    confidence: Confidence = Confidence.HIGH

    def finding(
        self,
        parameters: Parameters,
        evidence: tuple[Evidence, ...] = (),
        actions: tuple[Action, ...] = (),
        *,
        limit: Limit | None = None,
        level: Level | None = None,
        confidence: Confidence | None = None,
        began_s: float = math.inf,
        missing: tuple[Signal, ...] = (),
        is_sure: bool = False,
    ) -> Finding:
        """The finding that this cause holds, with the figures of now; limit, level and confidence are those of the row
        where none is given."""
        return Finding(
            code=limit or self.limit,
            cause=self.code,
            parameters=parameters,
            evidence=evidence,
            actions=actions,
            level=level or self.level,
            confidence=confidence or self.confidence,
            began_s=began_s,
            missing=missing,
            is_sure=is_sure,
        )


def unsure(
    missing: tuple[Signal, ...],
    evidence: tuple[Evidence, ...] = (),
    level: Level = Level.NOTE,
    actions: tuple[Action, ...] = (),
) -> Finding:
    """The answer of a rule that would say yes or no if it saw the `missing` signals."""
    return Finding(
        code=Limit.UNKNOWN,
        cause="",
        parameters={},
        evidence=evidence,
        actions=actions,
        level=level,
        confidence=Confidence.LOW,
        missing=missing,
    )


def params(**values: float | str | None) -> Parameters:
    """Numbers and names of a sentence; what is None or empty is not in it."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def yes_if(condition: object) -> str:
    """`YES`, or empty, which `params` leaves out."""
    return YES if condition else ""


def for_later(action: Action) -> Action:
    """An action that is not for now: the first one of its verdict says what is."""
    return Action(action.code, action.parameters | {LATER: YES})
