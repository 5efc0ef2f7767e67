"""A snapshot as other hosts may see it: without processes, and without their names, pids and users in its texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from gpumon.readings.exported import PRIVATE, SOMEBODY
from gpumon.readings.frame import FILE_LOG, Departure
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Action, Event, Evidence, Parameters, RaisedAlert, Signal, Verdict
from gpumon.triage.render import actions_text, verdict_text

PartT = TypeVar("PartT", Evidence, Action, Signal)

_PROCESS_WORDS: Final = (
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r"\bserver \d+ \("), "server ("),
    (re.compile(r"\bprocess \d+ \(.*?\)(?= listens)"), SOMEBODY),
    (re.compile(r"\bbelongs to (?:user )?.*?(?=, and (?:Linux|it is not given))"), "belongs to another user"),
    (re.compile(r"\b(?P<setting>\w+_user) = \".*?\""), r"\g<setting>"),
    (re.compile(r"\bthe engine's user .*?(?= may not read)"), "the engine's user"),
    (re.compile(r"\b(?P<setting>\w+_file): .*"), r"\g<setting>: it cannot be used; `gpumon doctor` there says why"),
    (re.compile(r"\b(?P<word>what|in) file [/~].*?(?= holds| is (?:empty|not one word))"), r"\g<word> its file"),
)
"""Patterns of words with a pid, a user or a user's file, in texts of discovery, of the mapping to GPUs, on keys and on
models, and words without one."""
_WITH_PID: Final = re.compile(r"\(pid \d")
"""The name of a process with its pid."""


def without_processes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without processes; verdicts and texts about one say `a process`."""
    gpus = []
    for gpu in snapshot.gpus:
        reading = msgspec.structs.replace(gpu.reading, processes=())
        gpus.append(msgspec.structs.replace(gpu, reading=reading))
    faults = [msgspec.structs.replace(fault, text=_without_process_words(fault.text)) for fault in snapshot.faults]
    verdicts = tuple(map(nameless_verdict, snapshot.verdicts))
    return msgspec.structs.replace(
        snapshot,
        gpus=tuple(gpus),
        engines=tuple(map(_nameless_engine, snapshot.engines)),
        verdicts=verdicts,
        faults=tuple(faults),
        events=tuple(map(_nameless_event, snapshot.events)),
        alerts=tuple(_nameless_alert(alert, verdicts) for alert in snapshot.alerts),
    )


def _nameless_engine(engine: Engine) -> Engine:
    """An engine without the processes that it ran in, and without users."""
    gpus_source = _without_process_words(engine.hardware.gpus_source)
    return msgspec.structs.replace(
        engine,
        fault=_without_process_words(engine.fault),
        departure=tuple(map(_nameless_departure, engine.departure)),
        hardware=msgspec.structs.replace(engine.hardware, gpus_source=gpus_source),
        sources=_nameless_sources(engine.sources),
        options=msgspec.structs.replace(engine.options, sources=_nameless_sources(engine.options.sources)),
    )


def _nameless_sources(sources: Mapping[str, str]) -> dict[str, str]:
    """Sources of figures or options without pids and users."""
    return {name: _without_process_words(text) for name, text in sources.items()}


def _nameless_alert(alert: RaisedAlert, verdicts: Sequence[Verdict]) -> RaisedAlert:
    """An alert in the words of its verdict as others may read it; with its code alone where that does not stand."""
    if not alert.level:
        return alert
    code = alert.text.partition(":")[0]
    for verdict in verdicts:
        if verdict.code.value == code and verdict.scope == alert.scope:
            text = f"{code}: {verdict_text(verdict)}"
            return msgspec.structs.replace(alert, text=text, action=actions_text(verdict))
    return msgspec.structs.replace(alert, text=code, action="")


def _nameless_event(event: Event) -> Event:
    """An event whose verdict names no process and no user."""
    if event.verdict is None:
        return event
    return msgspec.structs.replace(event, verdict=nameless_verdict(event.verdict))


def _nameless_departure(departure: Departure) -> Departure:
    """An end without its process: a file's path names users, too."""
    log = "" if departure.log.startswith(FILE_LOG) else departure.log
    return msgspec.structs.replace(departure, pid=0, command="", log=log)


def nameless_verdict(verdict: Verdict) -> Verdict:
    """The verdict without names of processes and users."""
    return msgspec.structs.replace(
        verdict,
        parameters=_nameless_parameters(verdict.parameters),
        evidence=tuple(map(_nameless_part, verdict.evidence)),
        actions=tuple(map(_nameless_part, verdict.actions)),
        unknown=tuple(map(_nameless_part, verdict.unknown)),
    )


def _nameless_part(part: PartT) -> PartT:
    """A part of a verdict without names of processes and users in its parameters."""
    return msgspec.structs.replace(part, parameters=_nameless_parameters(part.parameters))


def _nameless_parameters(parameters: Parameters) -> Parameters:
    """The parameters, with the public stand-in for each private one, or without it where there is none.

    `shared` is the name of an engine, or a process with its pid.
    """
    nameless = {}
    for name, value in parameters.items():
        public = PRIVATE.get(name, value)
        if public != "" and not _WITH_PID.search(str(public)):
            nameless[name] = public
    return nameless


def _without_process_words(text: str) -> str:
    """A text of gpumon without the pids and users in it."""
    for pattern, words in _PROCESS_WORDS:
        text = pattern.sub(words, text)
    return text
