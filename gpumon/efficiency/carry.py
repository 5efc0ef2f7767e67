"""What a Deriver and a Triage hold longer than their windows: a later start with it goes on as if it had been there."""

from __future__ import annotations

import msgspec

from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Family, Level, Limit, Verdict


class EngineCarry(msgspec.Struct, frozen=True, array_like=True):
    """One engine. Times are monotonic but for those named otherwise."""

    key: str
    totals: tuple[float | None, ...]
    """Tokens and samples counted since the start, in the order of `windows.TOTALS`; None: not exported."""
    counted: tuple[tuple[str, tuple[float | None, ...]], ...]
    """Rank, and up to where each of its counters is in the totals."""
    started: tuple[float, ...]
    """Unix times at which its processes began."""
    last_s: float
    """When the newest good answer was read."""
    good_wall_s: float
    keep_s: float
    """Longest window that its requests ask for."""
    several_servers: bool
    marks: tuple[tuple[float, float, float], ...]
    """Of the long mean: those that its window will leave next, and the newest."""
    longest_s: float
    state: EndpointState | None
    since: str
    """RFC 3339, of its state."""


class GpuCarry(msgspec.Struct, frozen=True, array_like=True):
    """One GPU."""

    uuid: str
    energy_j: float | None
    """Since the start."""
    throttle_s: dict[str, float]
    """Since the start, by cause; without zeros."""
    busy: tuple[tuple[int, float, float], ...]
    """Minute, busy seconds and seconds seen: the two that leave the hour next, and the sum of the others."""
    answered_s: float | None = None
    """When it answered last as it should (monotonic)."""


class FaultCarry(msgspec.Struct, frozen=True, array_like=True):
    """Since when something is wrong."""

    key: str
    cause: str
    since_wall_s: float


class ClaimCarry(msgspec.Struct, frozen=True, array_like=True):
    """What is said of an engine, or about to be said or unsaid."""

    model: tuple[str, ...]
    """Of a replica that stands apart; empty for what an engine's GPUs contradict."""
    key: str
    place: int
    said: bool
    since_s: float | None
    """Since when the contrary holds."""


class HoldCarry(msgspec.Struct, frozen=True, array_like=True):
    """The verdict of one family on one thing."""

    key: str
    family: Family
    limit: Limit | None
    since_wall_s: float
    coming: tuple[Limit | None, float, float] | None
    """Another that is found of late, and since when (monotonic, Unix time)."""
    before: tuple[tuple[Limit | None, float], ...] = ()
    """What was found before that one, since the verdict that stands was: for how many seconds each."""
    level: Level | None = None
    lower_s: float | None = None
    """Monotonic: since when the verdict that stands was found at a lower level."""
    onset: tuple[float, float] | None = None
    """When the cause of the verdict that stands began: monotonic, and the Unix time that is told."""


class Carry(msgspec.Struct, frozen=True, array_like=True):
    """Counts since gpumon started, and since when things are as they are. Some 4 kB for 8 GPUs and 4 engines."""

    engines: tuple[EngineCarry, ...] = ()
    gpus: tuple[GpuCarry, ...] = ()
    faults: tuple[FaultCarry, ...] = ()
    claims: tuple[ClaimCarry, ...] = ()
    runs: tuple[tuple[str, float, float], ...] = ()
    """Engine, and of a contradiction that holds the least that it read and the most that was measured (bytes/s)."""
    holds: tuple[HoldCarry, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    """Those that stand with evidence of before, as another is found of late."""
    steady: tuple[tuple[str, dict[str, float]], ...] = ()
    """Thing, and since when (monotonic) those of its sampled figures are as they are that are for long."""
    holders: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Engine, and the pids on its GPUs when it answered last."""
