"""What a rule is: a limit, the things that it is for, and a pure function over a scene."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gpumon.readings.snapshot import Confidence, Evidence, Family, Kind, Level, Limit
from gpumon.triage.scene import Scene


class Finding(NamedTuple):
    """A rule's yes."""

    text: str
    evidence: tuple[Evidence, ...]
    action: str
    level: Level = Level.WARN
    confidence: Confidence = Confidence.HIGH
    began_s: float = math.inf
    """Monotonic time at which the cause began, where its text tells how long that has been there."""


class Unsure(NamedTuple):
    """A rule that would say yes or no if it saw more."""

    missing: tuple[str, ...]
    """Signals that it lacks, in words, each with what would give it: `DRAM activity (needs Hopper, or --dcgm)`."""
    evidence: tuple[Evidence, ...] = ()
    began_s: float = math.inf
    """As in `Finding`."""


class Rule(NamedTuple):
    """One row of the table. Of a family the first rule that finds something gives the verdict."""

    limit: Limit
    family: Family
    kinds: frozenset[Kind]
    find: Callable[[Scene], Finding | Unsure | None]
    hold_s: float | None = None
    """How long it must hold; None: `Thresholds.hold_s`. 0 for what is true at once: a GPU that is lost is lost."""
    leave_s: float | None = None
    """How long it must be gone to go; None: `Thresholds.hold_s`. 0 for one that says itself that it is over."""
