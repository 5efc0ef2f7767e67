"""Verdicts of triage with their evidence and actions, and events: codes and figures, no sentences."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Reading


class Kind(str, Enum):
    """Subject of a verdict or an event."""

    ENGINE = "engine"
    GPU = "gpu"
    HOST = "host"


class Family(str, Enum):
    """The questions of triage, in the order in which they are asked; each has at most one answer per thing."""

    STATE = "state"
    """Is the thing broken?"""
    LIMIT = "limit"
    """Is the thing held back?"""
    USE = "use"
    """Is the thing used?"""
    FORECAST = "forecast"
    """Will something of it be full soon?"""


class Limit(str, Enum):
    """The answer of triage, by its name in the field. Within a family the worse one is listed first."""

    HARDWARE_FAULT = "hardware_fault"
    DOWN = "down"
    """The engine served, and its process has ended."""
    HUNG = "hung"
    """The engine has work and gives nothing, and its GPUs do not work either."""
    UNRESPONSIVE = "unresponsive"
    """The engine does not answer, while its processes hold their GPU."""
    FAILING = "failing"
    """Requests end in errors, are aborted, or are turned away; `Verdict.cause` says which."""
    STARTING = "starting"
    """The engine's process runs and does not serve yet: it loads weights or compiles."""
    DRAINING = "draining"
    """The engine has closed its port and ends what runs: it is being stopped."""
    THROTTLED = "throttled"
    """Clocks held down: heat, power brake, power cap, or a locked clock; `Verdict.cause` says which."""
    QUEUE_LIMIT = "queue_limit"
    """The scheduler lets requests wait although the GPU has room."""
    KV_CACHE_FULL = "kv_cache_full"
    STRAGGLER = "straggler"
    """One GPU, or one rank, is slower than its peers, which wait for it."""
    INTERCONNECT_BOUND = "interconnect_bound"
    KV_TRANSFER = "kv_transfer"
    """Requests wait for KV cache of another engine or store: the sender's side limits."""
    LORA_SLOTS_FULL = "lora_slots_full"
    """Requests wait for a slot of a LoRA adapter."""
    PREFIX_CACHE_LOST = "prefix_cache_lost"
    """The prefix cache hits far less than it did: prompts are computed anew."""
    SPECULATION_LOW = "speculation_low"
    """The draft's tokens are accepted far less than they were."""
    GPU_SHARED = "gpu_shared"
    """Another program on the engine's GPUs costs it latency."""
    LEAK = "leak"
    """Memory of the engine is in use that nothing of it needs."""
    SLOWED_DOWN = "slowed_down"
    """The engine takes far longer for the same work than it did, or than its replicas."""
    COMPUTE_BOUND = "compute_bound"
    BANDWIDTH_BOUND = "memory_bandwidth_bound"
    PERIODIC_STALLS = "periodic_stalls"
    """The engine stands still for seconds in a rhythm, for no reason that is seen."""
    HOST_CPU = "host_cpu_saturated"
    HOST_DISK = "host_disk_saturated"
    HOST_NETWORK = "host_network_saturated"
    CHANGED = "changed"
    """A figure of the host is far from what it was, and nobody is known to suffer; `Verdict.cause` says which."""
    TRAFFIC_FELL = "traffic_fell"
    """Requests stopped, or fell to a third, within minutes."""
    ODD_ANSWERS = "odd_answers"
    """All answers end at their longest, or have one token; `Verdict.cause` says which."""
    IDLE_VRAM_HELD = "idle_vram_held"
    MEMORY_FULL = "memory_full"
    LOW_EFFICIENCY = "low_efficiency"
    IDLE = "idle"
    """Nothing runs on the thing, and next to no memory is held."""
    NOT_VISIBLE = "not_visible"
    """GPUs of the host that were listed before are not to be seen here: no sign that anything is wrong with them."""
    ASLEEP = "asleep"
    """An engine in its own sleep mode."""
    EVALUATING = "evaluating"
    """The engine does little so far, and was not seen for long enough to tell that its efficiency is low."""
    HEALTHY = "healthy"
    FORECAST = "forecast"
    """Something is going to reach its limit; `Verdict.cause` says what."""
    UNKNOWN = "unknown"
    """Signals are missing, or fit no rule: `Verdict.unknown` names them."""


LIMIT_CODES: Final = frozenset(limit.value for limit in Limit)
"""Codes of verdicts."""


class Level(str, Enum):
    """How urgent a verdict or an event is, the most urgent first."""

    CRITICAL = "critical"
    WARN = "warn"
    NOTE = "note"
    """Money or speed; nobody suffers."""
    OK = "ok"


URGENCY: Final = {level: place for place, level in enumerate(Level)}
"""Level -> place among the levels: the lower, the more urgent."""


class Confidence(str, Enum):
    """How sure the verdict is."""

    HIGH = "high"
    """The limit is measured where it happens, and nothing else explains it."""
    MEDIUM = "medium"
    """Derived, or one of the signals is an estimate."""
    LOW = "low"


Parameters = dict[str, float | str]
"""Numbers and names of a sentence, by name: the templates of `gpumon.triage.render` say how each is written."""


REPLICAS_WITH_ROOM: Final = "replicas_with_room"
"""Quantity of the evidence that other replicas of an engine at its limit have room: how many."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One figure that a verdict rests on."""

    quantity: str
    """Code of what was measured; it implies the unit of `value` and `limit` (`triage.rules.QUANTITIES`)."""
    value: Reading = NOT_EXPOSED
    """In the base unit of its kind (ratio 0..1, bytes, seconds, watts, Hz)."""
    limit: Reading = NOT_EXPOSED
    """Figure that `value` is compared with: a threshold, a goal, a capacity, or the figure of its peers."""
    source: str = ""
    """Metric, driver field or formula that it comes from; `config` for a goal or a limit that the user gave."""
    chart: str = ""
    """Key of the series that shows it over time (`efficiency.points`); empty where there is none."""
    parameters: Parameters = {}
    """Further figures and names of the sentence."""


class Team(str, Enum):
    """Who can carry out an action, where that is not the one who runs the engine."""

    ENGINE = "engine"
    HARDWARE = "hardware"
    """Data centre and hardware: cooling, power, cards, firmware."""
    HOST = "host"
    """Who runs the machine: drivers, clocks, disks, other jobs."""
    SCHEDULER = "scheduler"
    """Load balancer, router or cluster scheduler."""
    CLIENT = "client"
    """Who sends the requests."""
    OWNER = "owner"
    """Who started the program that holds the GPU."""


LATER: Final = "later"
"""Parameter of an action, `yes`, that is not to be done now."""
YES: Final = "yes"
"""Value of a parameter that brackets of a sentence ask for: `[{idle=yes}; nothing runs on it]`."""


class Action(msgspec.Struct, frozen=True, gc=False):
    """Something to try."""

    code: str
    parameters: Parameters = {}
    """Option names of that engine, figures and names."""


class Signal(msgspec.Struct, frozen=True, gc=False):
    """A figure that is not known."""

    code: str
    reason: str = ""
    """`Reason` of the missing figure, or empty."""
    fix: str = ""
    """Code of what would give the figure (`triage.sentences.FIXES`), or empty."""
    parameters: Parameters = {}


def verdict_id(kind: Kind, key: str, family: Family) -> str:
    """Id of what stands in a family of a thing: `gpu:GPU-5c2f:state`, `engine:http://127.0.0.1:8000:limit`,
    `host:use`."""
    return ":".join(part for part in (kind.value, key, family.value) if part)


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """Somebody knows of a verdict and has taken it on, for some time."""

    who: str
    reason: str
    until: str
    """RFC 3339: the verdict counts again from then on."""
    since: str
    """RFC 3339."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The limit of an engine, a GPU or the host. It holds codes and figures; `triage.render` makes its sentences."""

    scope: str
    """Shown name: the engine's, `gpu 3`, or `host`."""
    code: Limit
    cause: str
    """Code of the sentence: what exactly (`throttled`: `thermal`, `power_brake`, `power_cap`, `locked_clock`)."""
    since: str
    """RFC 3339."""
    kind: Kind = Kind.HOST
    key: str = ""
    """Tells things of a kind apart for good: `Engine.key`, `Gpu.uuid`; empty for the host."""
    family: Family = Family.STATE
    level: Level = Level.WARN
    confidence: Confidence = Confidence.HIGH
    parameters: Parameters = {}
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[Action, ...] = ()
    """Actions to try, the best first; empty if nothing is to be done."""
    unknown: tuple[Signal, ...] = ()
    """Signals that are missing, for `unknown`."""
    until: str = ""
    """RFC 3339: when the verdict last held, where it is on its way out; the figures are of then."""
    caused_by: str = ""
    """`id` of the verdict that this one is a consequence of; empty: it is a cause of its own, as far as is known."""
    acknowledged: Acknowledged | None = None
    """Who knows of it: it is shown, and in no count; None: nobody said so."""
    id: str = ""
    """The same for as long as a verdict stands there, whatever it says (`verdict_id`); made here, never given."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "id", verdict_id(self.kind, self.key, self.family))


class RootShown(msgspec.Struct, frozen=True, gc=False):
    """Verdicts that are one item for a person: a cause with its consequences, or the same trouble of several things."""

    id: str
    """Id of the verdict whose words stand for the item."""
    scope: str
    """`gpu 2`, or of several things `GPUs 2-63`."""
    code: Limit
    level: Level
    """Level of the most urgent of its verdicts and consequences."""
    verdicts: tuple[str, ...]
    """Ids of the verdicts that are alike; one mostly."""
    consequences: tuple[str, ...] = ()
    """Ids of the verdicts that it is the cause of."""
    affected_gpus: int = 0
    """GPUs that wait for it, and have no verdict of their own."""
    affected: tuple[str, ...] = ()
    """Names of the engines, GPUs and the host that these consequences are about."""
    text: str = ""
    """The same in words: `3 GPUs and llama-70b wait for it`."""
    acknowledged: bool = False
    """Whether somebody has acknowledged it: it is in no count."""


class EventKind(str, Enum):
    """Kind of an event."""

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
    GAIN = "gain"
    """An action that a verdict advised was applied, and the verdict is over: latencies before and after."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened at one moment."""

    wall_s: float
    kind: EventKind
    scope: str
    """As `Verdict.scope`."""
    code: str
    """Code of the event: `restarted`, `down`, `verdict_began`, ..."""
    level: Level = Level.NOTE
    key: str = ""
    """As `Verdict.key`."""
    parameters: Parameters = {}
    since_s: float = 0.0
    """Start of a verdict that began, which is before `wall_s`; 0 for all other events."""
    verdict: Verdict | None = None
    """The verdict of an event of `kind` verdict: it began, changed its level or cause, or is over."""


class RaisedAlert(msgspec.Struct, frozen=True, gc=False):
    """An alert of the config that holds right now."""

    name: str
    scope: str
    """As `Verdict.scope`."""
    text: str
    """Condition that raised it: `kv_usage_ratio 0.97 > 0.95`, or the verdict's own line."""
    since: str
    """RFC 3339: since when the condition (or the verdict) has held, which is before the alert was raised."""
    value: Reading = NOT_EXPOSED
    """The figure when the alert was raised; missing for alerts on verdicts."""
    bell: bool = False
    """Whether the alert rings the terminal's bell."""
    title: bool = False
    """Whether the alert marks the title line."""
    level: str = ""
    """Level of the verdict when the alert was raised; empty for alerts on a figure."""
    action: str = ""
    """Action to try next; empty for alerts on a figure."""
