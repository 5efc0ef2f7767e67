"""Bounds of what other hosts and files from elsewhere say: sizes, counts, numbers, texts, and what they advise.

A snapshot is read within these bounds or not at all; a single figure, time or advice beyond them costs only itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.figures.unit import LARGEST, unit_of
from gpumon.readings.format import wall_of
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted
from gpumon.readings.verdict import (
    LATER,
    LIMIT_CODES,
    YES,
    Action,
    Event,
    EventKind,
    Evidence,
    Parameters,
    Signal,
    Verdict,
)
from gpumon.triage.advice import ADVISED_OPTIONS
from gpumon.triage.render import action_text, is_for_later, parameters_of, text_in_command
from gpumon.triage.rules import REMEDIES
from gpumon.triage.sentences import PEER_WORDS
from gpumon.triage.templates import NUMERIC, UNKNOWN_TEXT

MOST_SNAPSHOT_BYTES: Final = 2 * 1024 * 1024
"""Bytes of one snapshot: 8 GPUs and 8 engines take 50 kB."""
_MOST_VALUES: Final = 85_000
"""Values in one snapshot, counted by its commas before anything is decoded."""
MOST_OBJECTS: Final = 15_000
"""Lists and objects in one snapshot, counted by their brackets: each costs the decoder far more than a number."""
MOST_TEXT_CHARACTERS: Final = 1000
"""Characters of one text."""
MOST_ITEMS: Final[Mapping[str, int]] = {
    "gpus": 128,
    "engines": 128,
    "verdicts": 512,
    "events": 128,
    "faults": 128,
    "alerts": 128,
    "replicas": 128,
    "processes": 256,
    "evidence": 32,
    "actions": 16,
    "unknown": 32,
    "parameters": 32,
    "rank_loads": 1024,
    "backends": 1024,
    "evidence of all verdicts": 4096,
    "actions of all verdicts": 2048,
    "missing signals of all verdicts": 2048,
    "parameters of all verdicts": 8192,
    "missing figures": 16_384,
    "GPUs of all engines": 4096,
    "engines of all models": 1024,
}
"""Items of one list by its field: a server has at most 16 GPUs of 7 slices each."""
MOST_OTHER_ITEMS: Final = 1024
"""Items of any other list or table."""
MOST_TIME_S: Final = 253_402_214_400.0
"""Unix time at the end of the year 9999."""
MOST_WHOLE: Final = {"tp": 4096, "pp": 4096, "ranks": 4096, "index": 100_000, "answering": 4096, "mapped": 4096}
"""Largest whole number of a field; beyond it stands 0, which is `not known`."""
_MOST_NUMBERS: Final[Mapping[str, float]] = {"interval_s": 86400.0}
"""Largest number of a field that is no reading; of any other that of its unit."""
_REASON_CODES: Final = frozenset(reason.value for reason in Reason)
"""Codes of reasons for a missing figure."""
WHO: Final = "its gpumon"
"""Who says a figure that cannot be true, in the reason for its lack."""


class PeerError(ValueError):
    """A peer's snapshot is beyond these bounds: one line, safe to show."""


class SnapshotSize(NamedTuple):
    """How large a snapshot is."""

    bytes: int
    values: int
    """Counted by commas."""
    objects: int
    """Counted by opening brackets."""

    def grown_by(self, other: SnapshotSize) -> SnapshotSize:
        """The largest size of a snapshot of this size after a difference of the other size is applied."""
        return SnapshotSize(self.bytes + other.bytes, self.values + other.values, self.objects + other.objects)

    @property
    def excess(self) -> str:
        """Why a snapshot of this size is not read; empty where it is."""
        if self.bytes > MOST_SNAPSHOT_BYTES:
            return f"its snapshot has more than {MOST_SNAPSHOT_BYTES >> 20} MiB: it is not read"
        if self.values > _MOST_VALUES:
            return f"its snapshot has more than {_MOST_VALUES:,} values: it is not read"
        if self.objects > MOST_OBJECTS:
            return f"its snapshot has more than {MOST_OBJECTS:,} lists and objects: it is not read"
        return ""


def size_of(text: bytes) -> SnapshotSize:
    """The size of a snapshot. Cheap: nothing is decoded."""
    if len(text) > MOST_SNAPSHOT_BYTES:
        return SnapshotSize(len(text), 0, 0)
    return SnapshotSize(len(text), text.count(b","), text.count(b"[") + text.count(b"{"))


def check_size(text: bytes) -> None:
    """Refuse a snapshot that is too large to be decoded at all. Raises PeerError."""
    excess = size_of(text).excess
    if excess:
        raise PeerError(excess)


def check_count(field: str, number: int) -> None:
    """Refuse a list of more items than gpumon can have. Raises PeerError."""
    most = MOST_ITEMS.get(field, MOST_OTHER_ITEMS)
    if number > most:
        raise PeerError(f"its snapshot has {number:,} {field.replace('_', ' ')}, at most {most:,} are read")


def bounded_number(field: str, value: float) -> float:
    """A number that has to be there, such as an age, within what its unit can have."""
    if not math.isnan(value):
        return min(max(value, 0.0), _MOST_NUMBERS.get(field, unit_of(field).most))
    return 0.0


def bounded_whole(field: str, value: int) -> int:
    """A whole number; 0 where it cannot be true."""
    most = MOST_WHOLE.get(field)
    if most is None or 0 <= value <= most:
        return value
    return 0


def bounded_time(text: str) -> str:
    """A time as RFC 3339; empty where it is none of the years 1970 to 9999."""
    try:
        wall_s = wall_of(text)
    except (ValueError, OverflowError):
        return ""
    if 0.0 <= wall_s <= MOST_TIME_S:
        return text
    return ""


def bounded_parameters(parameters: Parameters) -> Parameters:
    """Numbers and names of a sentence, without numbers that cannot be shown."""
    return {name: value for name, value in parameters.items() if isinstance(value, str) or abs(value) <= LARGEST}


def bounded_signal(signal: Signal) -> Signal:
    """A missing signal; a reason that is not known is left out."""
    reason = signal.reason if signal.reason in _REASON_CODES else ""
    return msgspec.structs.replace(signal, reason=reason, parameters=bounded_parameters(signal.parameters))


_FILLED_BY_PEERS: Final = frozenset(
    {"chunked", "container", "file", "flag", "log", "option", "pid", "pids", "pp_flag", "tp_flag"}
)
"""Parameters of an action that a peer may fill in a command. It gives no command of its own: that is no single word."""
_FORMS_IN_SENTENCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("path", "folder"), "plain_path"),
    **dict.fromkeys(("free", "partly", "gpus", "replica", "shared", "engines", "owner", "processes"), "names"),
    **dict.fromkeys(("now", "process", "program", "model"), "names"),
}
"""Any other parameter -> the form that its text has to be of; of those that are not here a single word."""


def vetted_action(action: Action) -> Action:
    """A peer's action: gpumon's own only where its code is known and every parameter is what it can be.

    Anything else is shown as the peer's words, and is never copied.
    """
    if action.code in REMEDIES and action.code != PEER_WORDS.code:
        expected = parameters_of(action.code)
        known = {name: value for name, value in action.parameters.items() if name in expected}
        if all(_is_sound(name, value, expected[name]) for name, value in known.items()):
            return Action(action.code, known)
    words = action_text(action)
    if words == UNKNOWN_TEXT:
        words = f"{action.code} with what is no option"
    if action.code == PEER_WORDS.code:
        words = str(action.parameters.get("text", ""))
    parameters: Parameters = {"text": clean(words, MOST_TEXT_CHARACTERS)}
    if is_for_later(action):
        parameters[LATER] = YES
    return PEER_WORDS.action(**parameters)


def _is_sound(name: str, value: float | str, formats: frozenset[str]) -> bool:
    """Whether a parameter is of the type that the sentence writes, and its text harmless."""
    if not isinstance(value, str):
        return abs(value) <= LARGEST
    if formats & NUMERIC:
        return False
    if value in ADVISED_OPTIONS:
        return True
    if name in _FILLED_BY_PEERS:
        return bool(text_in_command(name, value))
    return bool(Untrusted(value).of_form(_FORMS_IN_SENTENCES.get(name, "word")))


def vetted_verdict(verdict: Verdict) -> Verdict:
    """A verdict from a file of elsewhere with its numbers, times, counts and advice within bounds."""
    return bounded_verdict(
        msgspec.structs.replace(
            verdict,
            evidence=tuple(map(bounded_evidence, verdict.evidence[: MOST_ITEMS["evidence"]])),
            actions=tuple(map(vetted_action, verdict.actions[: MOST_ITEMS["actions"]])),
            unknown=tuple(map(bounded_signal, verdict.unknown[: MOST_ITEMS["unknown"]])),
            since=bounded_time(verdict.since),
            until=bounded_time(verdict.until),
        )
    )


def bounded_verdict(verdict: Verdict) -> Verdict:
    """The verdict without numbers in its sentence that cannot be shown, and acknowledged only where it says until
    when."""
    acknowledged = verdict.acknowledged
    if acknowledged is not None and not acknowledged.until:
        acknowledged = None
    elif acknowledged is not None and not acknowledged.since:
        acknowledged = msgspec.structs.replace(acknowledged, since=acknowledged.until)
    parameters = bounded_parameters(verdict.parameters)
    return msgspec.structs.replace(verdict, parameters=parameters, acknowledged=acknowledged)


def bounded_event(event: Event) -> Event:
    """The event without parameters that cannot be shown."""
    parameters = bounded_parameters(event.parameters)
    before = parameters.get("before", "")
    if event.kind is EventKind.VERDICT and before not in LIMIT_CODES:
        parameters.pop("before", None)
    return msgspec.structs.replace(event, parameters=parameters)


def bounded_evidence(evidence: Evidence) -> Evidence:
    """Evidence whose figures can be written; their unit depends on the quantity."""
    changes: dict[str, Any] = {"parameters": bounded_parameters(evidence.parameters)}
    for field in ("value", "limit"):
        value = getattr(evidence, field)
        if not isinstance(value, Missing) and not abs(value) <= LARGEST:
            changes[field] = Missing(Reason.INVALID)
    return msgspec.structs.replace(evidence, **changes)
