"""Sentences of verdicts, evidence, actions, missing signals and events; and the names of limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from gpumon.readings.format import clock_utc, counted, wall_of
from gpumon.readings.format import phrase as missing_phrase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.untrusted import Untrusted
from gpumon.readings.verdict import (
    LATER,
    YES,
    Acknowledged,
    Action,
    Event,
    EventKind,
    Evidence,
    Level,
    Limit,
    Signal,
    Team,
    Verdict,
)
from gpumon.specs.units import DAY_S
from gpumon.triage.advice import ADVISED_OPTIONS
from gpumon.triage.marks import MARKS
from gpumon.triage.rules import CAUSES, QUANTITIES, REMEDIES
from gpumon.triage.sentences import (
    EVENT_SENTENCES,
    FIXES,
    PEER_WORDS,
    SIGNALS,
    WHOLE_SENTENCES,
)
from gpumon.triage.templates import Clock, TemplateParameter, TemplatePart, filled_sentence, parse_template

CAUSE_WORDS: Final[Mapping[str, str]] = {code: cause.words for code, cause in CAUSES.items()}
"""Sentences of verdicts, by cause."""
EVIDENCE_WORDS: Final[Mapping[str, str]] = {code: quantity.words for code, quantity in QUANTITIES.items()}
"""Sentences of evidence, by quantity."""
ACTION_WORDS: Final[Mapping[str, str]] = {code: remedy.words for code, remedy in REMEDIES.items()}
"""Sentences of actions, by code."""
_BESIDE_REPLICAS: Final = "replica_"
"""How quantities begin in which an engine is compared with its replicas."""
LIMIT_NAMES: Final[Mapping[Limit, str]] = {
    Limit.HARDWARE_FAULT: "hardware fault",
    Limit.DOWN: "down",
    Limit.HUNG: "hung",
    Limit.UNRESPONSIVE: "unresponsive",
    Limit.FAILING: "failing",
    Limit.STARTING: "starting",
    Limit.DRAINING: "draining",
    Limit.THROTTLED: "throttled",
    Limit.QUEUE_LIMIT: "queue limit",
    Limit.KV_CACHE_FULL: "KV cache full",
    Limit.STRAGGLER: "straggler",
    Limit.INTERCONNECT_BOUND: "interconnect-bound",
    Limit.KV_TRANSFER: "KV transfer",
    Limit.LORA_SLOTS_FULL: "LoRA slots full",
    Limit.PREFIX_CACHE_LOST: "prefix cache lost",
    Limit.SPECULATION_LOW: "speculation low",
    Limit.GPU_SHARED: "GPU shared",
    Limit.LEAK: "leak",
    Limit.SLOWED_DOWN: "slowed down",
    Limit.COMPUTE_BOUND: "compute-bound",
    Limit.BANDWIDTH_BOUND: "memory-bandwidth-bound",
    Limit.PERIODIC_STALLS: "periodic stalls",
    Limit.HOST_CPU: "host CPU saturated",
    Limit.HOST_DISK: "host disk saturated",
    Limit.HOST_NETWORK: "host network saturated",
    Limit.CHANGED: "changed",
    Limit.TRAFFIC_FELL: "traffic fell",
    Limit.ODD_ANSWERS: "odd answers",
    Limit.IDLE_VRAM_HELD: "idle, VRAM held",
    Limit.MEMORY_FULL: "memory full",
    Limit.LOW_EFFICIENCY: "low efficiency",
    Limit.IDLE: "idle",
    Limit.NOT_VISIBLE: "not visible",
    Limit.ASLEEP: "asleep",
    Limit.EVALUATING: "evaluating",
    Limit.HEALTHY: "healthy",
    Limit.FORECAST: "forecast",
    Limit.UNKNOWN: "unknown",
}
"""Names of the limits."""
NOT_KNOWN: Final = "not known: "
"""Begin of the text of figures that are missing."""
NARROW_NAMES: Final[Mapping[Limit, str]] = {
    **LIMIT_NAMES,
    Limit.HARDWARE_FAULT: "hardware",
    Limit.INTERCONNECT_BOUND: "interconnect",
    Limit.BANDWIDTH_BOUND: "bandwidth",
    Limit.LORA_SLOTS_FULL: "LoRA slots",
    Limit.PREFIX_CACHE_LOST: "prefix cache",
    Limit.SPECULATION_LOW: "speculation",
    Limit.PERIODIC_STALLS: "stalls",
    Limit.HOST_CPU: "host CPU",
    Limit.HOST_DISK: "host disk",
    Limit.HOST_NETWORK: "host network",
    Limit.IDLE_VRAM_HELD: "VRAM held",
    Limit.LOW_EFFICIENCY: "efficiency",
}
"""The same in at most 13 cells, for a row."""
BRIEF_NAMES: Final[Mapping[Limit, str]] = {
    **NARROW_NAMES,
    Limit.UNRESPONSIVE: "no answer",
    Limit.KV_TRANSFER: "KV xfer",
    Limit.LORA_SLOTS_FULL: "LoRA",
    Limit.PREFIX_CACHE_LOST: "prefix",
    Limit.SPECULATION_LOW: "spec. low",
    Limit.GPU_SHARED: "shared",
    Limit.SLOWED_DOWN: "slowed",
    Limit.TRAFFIC_FELL: "traffic",
    Limit.QUEUE_LIMIT: "queue",
    Limit.KV_CACHE_FULL: "KV full",
    Limit.INTERCONNECT_BOUND: "links",
    Limit.COMPUTE_BOUND: "compute",
    Limit.HOST_NETWORK: "host net",
    Limit.MEMORY_FULL: "mem full",
    Limit.NOT_VISIBLE: "unseen",
    Limit.ODD_ANSWERS: "answers",
    Limit.EVALUATING: "eval.",
    Limit.LOW_EFFICIENCY: "low eff.",
}
"""The same in at most 9 cells, for a column of states."""
WAITS: Final = "waits"
"""State of a GPU that is well and waits for a slow one of its group."""
LEVEL_WORDS: Final[Mapping[Level, str]] = {level: mark.word for level, mark in MARKS.items()}
"""Words of the levels."""
_FORMS_IN_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "bus": ("bus",),
    "chunked": ("option", "setting"),
    "command": ("relaunch", "struck_relaunch"),
    "container": ("container",),
    "file": ("path",),
    "flag": ("option", "setting"),
    "host": ("host",),
    "index": ("gpus",),
    "kill": ("pids",),
    "log": ("log_command", "runtime"),
    "option": ("option", "setting"),
    "pid": ("pid",),
    "pids": ("pids", "listed_pids"),
    "pp_flag": ("option", "setting"),
    "restart": ("restart_command",),
    "start": ("start_command",),
    "tp_flag": ("option", "setting"),
    "unfreeze": ("unfreeze_command",),
    "url": ("url",),
}
"""Parameter that stands in commands of sentences -> the forms that it may have there."""
_WORDS_IN_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {"log": ("journal", "kubectl"), "pid": ("PID",)}
"""Parameter -> words that it may be besides."""
_TEAM_NOTES: Final = {
    Team.ENGINE: "",
    Team.HARDWARE: "hardware: ",
    Team.HOST: "host: ",
    Team.SCHEDULER: "scheduler: ",
    Team.CLIENT: "client: ",
    Team.OWNER: "owner: ",
}
"""Team -> note before its first action."""
_OWN_TEAM: Final = "engine: "
"""Note before an action for who runs the engine, behind one of another team."""


def verdict_text(verdict: Verdict, clock: Clock = clock_utc) -> str:
    """The verdict in one line, without its scope and its limit's name."""
    if verdict.code is Limit.UNKNOWN:
        sentence = _unknown_text(verdict.unknown)
        if verdict.level in (Level.CRITICAL, Level.WARN) and verdict.evidence:
            sentence = f"{evidence_text(verdict.evidence[0])}; {sentence}"
    elif verdict.cause:
        sentence = filled_sentence(CAUSE_WORDS, verdict.cause, verdict.parameters, clock)
    else:  # of another host's exporter, which has codes and figures
        sentence = ", ".join(evidence_text(evidence) for evidence in verdict.evidence[:2])
    beside_replicas = (proof for proof in verdict.evidence if proof.quantity.startswith(_BESIDE_REPLICAS))
    difference = next(beside_replicas, None)
    if difference is not None:
        sentence += f"; unlike its replicas: {evidence_text(difference)}"
    if verdict.until:
        return f"seen until {clock(wall_of(verdict.until))}: {sentence}"
    return sentence


def acknowledged_text(acknowledged: Acknowledged, clock: Clock = clock_utc) -> str:
    """`acknowledged by anna until 06:10:00: fan ordered`; where that is not within a day, for how many days, too.
    Without an end: `its scheduler knows: cordoned in Kubernetes`."""
    if not acknowledged.until:
        return f"{acknowledged.who or 'somebody'} knows: {acknowledged.reason}"
    until_s = wall_of(acknowledged.until)
    days = (until_s - wall_of(acknowledged.since)) / DAY_S
    length = f" for {counted(round(days), 'day')}," if days > 1.0 else ""
    text = f"acknowledged by {acknowledged.who or 'somebody'}{length} until {clock(until_s)}"
    if acknowledged.reason:
        return f"{text}: {acknowledged.reason}"
    return text


def shown_text(verdict: Verdict, clock: Clock = clock_utc) -> str:
    """The verdict in one line, as `verdict_text` has it, after who knows of it."""
    text = verdict_text(verdict, clock)
    if verdict.acknowledged is None:
        return text
    return f"{acknowledged_text(verdict.acknowledged, clock)}; {text}"


def _unknown_text(signals: Sequence[Signal]) -> str:
    """Text of the unknown signals, after the faults of the figures that are known."""
    stated = []
    hidden = []
    for signal in signals:
        if signal.code in WHOLE_SENTENCES:
            stated.append(signal_text(signal))
        else:
            hidden.append(signal_text(signal))
    if hidden:
        stated.append(f"{NOT_KNOWN}{', '.join(hidden)}")
    elif not stated:
        stated.append("not known")
    return "; ".join(stated)


def evidence_text(evidence: Evidence) -> str:
    """The figure as a person reads it, with its unit: `KV cache 97%`."""
    figures = {
        name: value
        for name, value in (("value", evidence.value), ("limit", evidence.limit))
        if not isinstance(value, Missing)
    }
    return filled_sentence(EVIDENCE_WORDS, evidence.quantity, {**evidence.parameters, **figures})


def action_text(action: Action) -> str:
    """The sentence of an action, with option names and figures.

    What stands in a command in it is of its form, and quoted; a parameter that is not is left out.
    """
    parameters = dict(action.parameters)
    for name, value in action.parameters.items():
        if name in _FORMS_IN_COMMANDS and isinstance(value, str) and action.code != PEER_WORDS.code:
            words = text_in_command(name, value)
            if words:
                parameters[name] = words
            else:
                del parameters[name]
    return filled_sentence(ACTION_WORDS, action.code, parameters)


def text_in_command(name: str, value: str) -> str:
    """A text as it may stand in a command; empty where it is of none of the forms of this parameter."""
    text = Untrusted(value)
    written = text.one_of(_WORDS_IN_COMMANDS.get(name, ())) or text.one_of(ADVISED_OPTIONS)
    for form in _FORMS_IN_COMMANDS[name]:
        written = written or text.of_form(form)
    return written


@lru_cache(maxsize=256)
def parameters_of(code: str) -> Mapping[str, frozenset[str]]:
    """Parameters that the sentence of an action, or its note, names -> their formats; `=word` where it asks for a
    word."""
    formats = {LATER: frozenset({"=yes"})}
    to_visit: list[TemplatePart] = list(parse_template(ACTION_WORDS[code]))
    while to_visit:
        part = to_visit.pop()
        if isinstance(part, list):
            for alternative in part:
                to_visit += alternative
        elif isinstance(part, TemplateParameter):
            spec = f"={part.spec}" if part.sign == "=" else part.spec
            formats[part.name] = formats.get(part.name, frozenset()) | {spec}
    return formats


def team_of(action: Action) -> Team:
    """The team that can do an action."""
    remedy = REMEDIES.get(action.code)
    return remedy.team if remedy is not None else Team.ENGINE


def is_for_later(action: Action) -> bool:
    """Whether an action is not to be done now."""
    return action.parameters.get(LATER) == YES


def action_note(action: Action) -> str:
    """`hardware: ` before what another team has to do, `later: ` before what is not for now; empty before all else."""
    note = _TEAM_NOTES[team_of(action)]
    if is_for_later(action):
        return f"later: {note}"
    return note


def actions_text(verdict: Verdict) -> str:
    """All actions of a verdict in one line, the best first (`action_texts`)."""
    return "; ".join(action_texts(verdict))


def action_texts(verdict: Verdict) -> list[str]:
    """Sentences of a verdict's actions, the best first; the first action of another team, or that is for later, has
    its note before it, and so has the first one behind it that is for the engine's own team again."""
    texts = []
    note_before = ""
    for action in verdict.actions:
        note = action_note(action)
        text = action_text(action)
        if note != note_before:
            text = f"{note or _OWN_TEAM}{text}"
        texts.append(text)
        note_before = note
    return texts


def signal_text(signal: Signal) -> str:
    """A missing signal, with why and what would give it: `memory bandwidth (needs Hopper or newer, ...)`."""
    what = filled_sentence(SIGNALS, signal.code, signal.parameters)
    notes = []
    if signal.reason:
        notes.append(missing_phrase(Missing(Reason(signal.reason))))
    fix = filled_sentence(FIXES, signal.fix, signal.parameters)
    if fix:
        notes.append(fix)
    if notes:
        return f"{what} ({': '.join(notes)})"
    return what


def event_text(event: Event, clock: Clock = clock_utc) -> str:
    """An event in one line."""
    if event.kind is not EventKind.VERDICT or event.verdict is None:
        return filled_sentence(EVENT_SENTENCES, event.code, event.parameters, clock)
    name = LIMIT_NAMES[event.verdict.code]
    if event.code == "verdict_over":
        return f"{name} is over"
    sentence = verdict_text(event.verdict, clock)
    if event.code == "verdict_cause":
        return f"{name}: {sentence}"
    if event.code == "verdict_level":
        return f"{name}: now {LEVEL_WORDS[event.level]}: {sentence}"
    before = event.parameters.get("before", "")
    was = f"{LIMIT_NAMES[Limit(before)]} -> " if isinstance(before, str) and before else ""
    if sentence:
        return f"{was}{name}: {sentence}"
    return f"{was}{name}"
