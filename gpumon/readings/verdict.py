"""What triage says: verdicts with their evidence, and events that stand on the time axis."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Reading


class Kind(str, Enum):
    """What a verdict or an event is about."""

    ENGINE = "engine"
    GPU = "gpu"
    HOST = "host"


class Family(str, Enum):
    """The three questions of triage, in the order in which they are asked; each has at most one answer per thing."""

    STATE = "state"
    """Is it broken?"""
    LIMIT = "limit"
    """What holds it back?"""
    USE = "use"
    """Is it used?"""


class Limit(str, Enum):
    """The answer, in one word."""

    HARDWARE = "hardware"
    STALLED = "stalled"
    THROTTLED = "throttled"
    QUEUE = "queue"
    KV_CACHE = "kv_cache"
    COMMUNICATION = "communication"
    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    INPUT_STARVED = "input_starved"
    MEMORY_IDLE = "memory_idle"
    """Memory is full, and nothing computes."""
    MEMORY_FULL = "memory_full"
    """Memory is nearly full, with nobody who reserves it on purpose."""
    UNDER_USED = "under_used"
    HEALTHY = "healthy"
    CANNOT_TELL = "cannot_tell"
    """Signals are missing, or fit no rule: `Verdict.unknown` names them."""

    @property
    def words(self) -> str:
        """As people read it."""
        return self.value.replace("_", " ")


class Level(str, Enum):
    """How urgent it is, the most urgent first."""

    CRITICAL = "critical"
    WARN = "warn"
    NOTE = "note"
    """Money or speed to gain; nobody suffers."""
    OK = "ok"


class Confidence(str, Enum):
    """How sure the verdict is."""

    HIGH = "high"
    """Measured where it happens, and nothing else explains it."""
    MEDIUM = "medium"
    """Derived, or one of the signals is an estimate."""
    LOW = "low"


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One figure that says so."""

    text: str
    """As a person reads it, with its figure and unit: `KV cache 97 %`."""
    source: str = ""
    """Metric, driver field or formula that it comes from; `config` for a goal or a limit that the user gave."""
    value: Reading = NOT_EXPOSED
    """The figure, in the base unit of its kind (ratio 0..1, bytes, seconds, watts, Hz)."""
    chart: str = ""
    """Key of the series that shows it over time (`efficiency.points`); empty where there is none."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What limits an engine, a GPU or the host, with its evidence and the next action."""

    scope: str
    """Shown name: the engine's, `gpu 3`, or `host`."""
    limit: Limit
    evidence: tuple[Evidence, ...]
    action: str
    """What to try next, with flag names of that engine and figures; empty where nothing is to be done."""
    confidence: Confidence
    since: str
    """RFC 3339."""
    kind: Kind = Kind.HOST
    key: str = ""
    """Tells things of a kind apart for good: `Engine.key`, `Gpu.uuid`; empty for the host."""
    family: Family = Family.STATE
    level: Level = Level.WARN
    text: str = ""
    """The verdict in one line, without its scope: `reads 69 % of HBM at batch 24: batch 50 still meets 40 ms`."""
    unknown: tuple[str, ...] = ()
    """Of `cannot_tell`: the signals that are missing, in words."""


class EventKind(str, Enum):
    """What happened."""

    RESTART = "restart"
    """An engine's process began anew."""
    MODEL = "model"
    """An engine serves another model, or has loaded its first."""
    ENGINE = "engine"
    """An engine began or ceased to answer."""
    REPLICAS = "replicas"
    """A model has more or fewer engines that answer."""
    XID = "xid"
    THROTTLE = "throttle"
    """A GPU's clocks began to be held down, by a cause that is no power cap at work."""
    GPU = "gpu"
    """A GPU was lost, or came back."""
    VERDICT = "verdict"
    """A verdict changed."""


_LIMITS: Final = {limit.words: limit for limit in Limit}


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened at one moment."""

    wall_s: float
    kind: EventKind
    scope: str
    """As `Verdict.scope`."""
    text: str
    level: Level = Level.NOTE
    key: str = ""
    """As `Verdict.key`."""
    since_s: float = 0.0
    """Of a verdict that is given: since when it has held, which is before `wall_s`; 0 of all else."""

    @property
    def limit(self) -> Limit | None:
        """The limit that a verdict's event gives: `queue -> kv cache: ...`; None where it is over, and of all else.

        It is told by the text alone: what is recorded of an event is its fields, and has been so from the beginning.
        """
        given = self.text.partition(":")[0].rpartition(" -> ")[2]
        return _LIMITS.get(given) if self.kind is EventKind.VERDICT else None


class RaisedAlert(msgspec.Struct, frozen=True, gc=False):
    """An alert of the config that holds right now."""

    name: str
    scope: str
    """As `Verdict.scope`."""
    text: str
    """What it was raised by: `kv_usage_ratio 0.97 > 0.95`, or the verdict's own line."""
    since: str
    """RFC 3339: since when its condition has held, which is before it was raised; a verdict's, since when that has."""
    value: Reading = NOT_EXPOSED
    """The figure when it was raised; none of a verdict."""
    bell: bool = False
    """It rings the terminal's bell."""
    title: bool = False
    """It marks the title line."""
    level: str = ""
    """Of a verdict its level when it was raised; empty of a figure. So `action`."""
    action: str = ""
    """What to try next."""
