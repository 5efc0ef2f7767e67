"""A snapshot as other hosts may see it: without processes, and without their names, pids and users in its texts."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from gpumon.readings.exported import PRIVATE, SOMEBODY
from gpumon.readings.frame import FILE_LOG, Departure
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Action, Event, Evidence, Parameters, Signal, Verdict

PartT = TypeVar("PartT", Evidence, Action, Signal)

_OTHERS: Final = (
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r"\bserver \d+ \("), "server ("),
    (re.compile(r"\bprocess \d+ \(.*?\)(?= listens)"), SOMEBODY),
    (re.compile(r"\bbelongs to user .*?(?=, and Linux)"), "belongs to another user"),
)
"""Words of discovery, and of the mapping of engines to GPUs, that hold a pid or a user."""


def without_processes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without processes; verdicts and texts about one say `a process`."""
    gpus = []
    for gpu in snapshot.gpus:
        gpus.append(msgspec.structs.replace(gpu, processes=()))
    faults = []
    for fault in snapshot.faults:
        faults.append(msgspec.structs.replace(fault, text=_reworded(fault.text)))
    return msgspec.structs.replace(
        snapshot,
        gpus=tuple(gpus),
        engines=tuple(map(_engine, snapshot.engines)),
        verdicts=tuple(map(nameless_verdict, snapshot.verdicts)),
        faults=tuple(faults),
        events=tuple(map(_event, snapshot.events)),
    )


def _engine(engine: Engine) -> Engine:
    """An engine without the processes that it ran in."""
    return msgspec.structs.replace(
        engine,
        fault=_reworded(engine.fault),
        departure=tuple(map(_departure, engine.departure)),
        hardware=msgspec.structs.replace(engine.hardware, gpus_source=_reworded(engine.hardware.gpus_source)),
    )


def _event(event: Event) -> Event:
    if event.verdict is None:
        return event
    return msgspec.structs.replace(event, verdict=nameless_verdict(event.verdict))


def _departure(departure: Departure) -> Departure:
    """An end without its process: a file's path names users, too."""
    if departure.log.startswith(FILE_LOG):
        log = ""
    else:
        log = departure.log
    return msgspec.structs.replace(departure, pid=0, command="", log=log)


def nameless_verdict(verdict: Verdict) -> Verdict:
    """The verdict without names of processes and users."""
    return msgspec.structs.replace(
        verdict,
        parameters=_nameless(verdict.parameters),
        evidence=tuple(map(_nameless_part, verdict.evidence)),
        actions=tuple(map(_nameless_part, verdict.actions)),
        unknown=tuple(map(_nameless_part, verdict.unknown)),
    )


def _nameless_part(part: PartT) -> PartT:
    """A part of a verdict without names of processes and users in its parameters."""
    return msgspec.structs.replace(part, parameters=_nameless(part.parameters))


def _nameless(parameters: Parameters) -> Parameters:
    """The parameters: in the place of a private one what may stand there, if anything."""
    if not parameters.keys() & PRIVATE.keys():
        return parameters
    nameless = {}
    for name, value in parameters.items():
        public = PRIVATE.get(name, value)
        if public != "":
            nameless[name] = public
    return nameless


def _reworded(text: str) -> str:
    for pattern, words in _OTHERS:
        text = pattern.sub(words, text)
    return text
