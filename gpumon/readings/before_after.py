"""Two spans of time side by side: figures with their noise, verdicts, and what changed between. `gpumon compare`."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.verdict import Kind, Level, Verdict

COMPARE_SCHEMA = 1
"""Version of the JSON of `gpumon compare`."""
SAME_LOAD_FACTOR: Final = 1.2
"""Loads that differ by less than this factor are about the same: latencies may be held against each other."""


class Judgement(str, Enum):
    """Whether two means differ by more than the noise inside their spans."""

    CHANGED = "changed"
    WITHIN_NOISE = "within_noise"
    NOT_JUDGED = "not_judged"
    """A side has no figure, or is too short for its noise to be known."""


class SeenOn(str, Enum):
    """Spans in which a thing was seen."""

    BOTH = "both"
    BEFORE = "before"
    AFTER = "after"


class ComparedSpan(msgspec.Struct, frozen=True):
    """One of the two spans."""

    begin: str
    """RFC 3339."""
    end: str
    """RFC 3339."""
    seconds: float
    covered_s: float
    """Time of it that was seen: gaps are in no rate, mean or cost."""
    moments: int
    """Moments that the means are of."""


class FigureChange(msgspec.Struct, frozen=True):
    """One figure of a thing, before and after."""

    code: str
    unit: str
    """Base unit of both sides: `ratio`, `s`, `tokens_per_s`, `per_s`, `number`, `w`, `c`, `hz`, `bytes`,
    `tokens_per_j`, `money`."""
    better: str
    """Direction that is an improvement: `higher`, `lower`; empty where neither is."""
    before: Reading = NOT_EXPOSED
    after: Reading = NOT_EXPOSED
    noise: Reading = NOT_EXPOSED
    """The mean of the two spreads. The spread of a span is the highest less the lowest mean of its parts: six of equal
    length, or fewer where these would be shorter than 10 s."""
    judgement: Judgement = Judgement.NOT_JUDGED
    goal_s: Reading = NOT_EXPOSED
    """Seconds that the goal allows, if the figure is a share of requests or tokens within a goal."""
    before_is_least: bool = False
    """Whether `before` may be longer: a quantile in the last bucket of a histogram, which has no end."""
    after_is_least: bool = False


class FactChange(msgspec.Struct, frozen=True):
    """A setting that is another after than before."""

    code: str
    """`version`, `model`, `option`, `weights`, `gpus`, `power_limit`, ... (docs/compare.md)."""
    name: str = ""
    """The option's name."""
    before: str = ""
    """Value in words, with its unit. Empty: an option that was not given."""
    after: str = ""
    inside: bool = False
    """It changed within one of the spans, whose means are of both settings."""


class VerdictChange(msgspec.Struct, frozen=True):
    """A verdict that stood in one of the spans, or in both."""

    verdict: Verdict
    """As it stood last."""
    level: Level
    """The most urgent level at which it stood."""
    before_ratio: float
    """Share of the moments before at which it stood."""
    after_ratio: float


class ThingChange(msgspec.Struct, frozen=True):
    """An engine, a GPU or the host, before and after."""

    kind: Kind
    key: str
    name: str
    seen: SeenOn
    load_ratio: Reading = NOT_EXPOSED
    """Load after / load before."""
    load: str = ""
    """Code of the figure that the load is taken from; empty where none is known on both sides."""
    is_comparable: bool = True
    """The loads are about the same, or not known: latencies may be held against each other."""
    figures: tuple[FigureChange, ...] = ()
    changes: tuple[FactChange, ...] = ()


class BeforeAfter(msgspec.Struct, frozen=True):
    """Two spans of a past."""

    before: ComparedSpan
    after: ComparedSpan
    simulated: bool = False
    things: tuple[ThingChange, ...] = ()
    """The host, or the hosts, then engines and GPUs."""
    verdicts: tuple[VerdictChange, ...] = ()
