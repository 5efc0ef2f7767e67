"""A snapshot as other hosts may see it: without processes, and without their names, pids and users in its texts."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpumon.readings.exported import PRIVATE, SOMEBODY
from gpumon.readings.frame import FILE_LOG, Departure
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Parameters, Verdict

_OTHERS: Final = (
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r"\bserver \d+ \("), "server ("),
    (re.compile(r"\bprocess \d+ \(.*?\)(?= listens)"), SOMEBODY),
    (re.compile(r"\bbelongs to user .*?(?=, and Linux)"), "belongs to another user"),
)
"""Words of discovery, and of the mapping of engines to GPUs, that hold a pid or a user."""


def without_processes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without processes; verdicts and texts about one say `a process`."""
    replaced = msgspec.structs.replace
    return replaced(
        snapshot,
        gpus=tuple(replaced(gpu, processes=()) if gpu.processes else gpu for gpu in snapshot.gpus),
        engines=tuple(
            replaced(
                one,
                fault=_reworded(one.fault),
                departure=tuple(map(_departure, one.departure)),
                hardware=replaced(one.hardware, gpus_source=_reworded(one.hardware.gpus_source)),
            )
            for one in snapshot.engines
        ),
        verdicts=tuple(map(_verdict, snapshot.verdicts)),
        faults=tuple(replaced(one, text=_reworded(one.text)) for one in snapshot.faults),
        events=tuple(
            one if one.verdict is None else replaced(one, verdict=_verdict(one.verdict)) for one in snapshot.events
        ),
    )


def _departure(departure: Departure) -> Departure:
    """An end without its process: a file's path names users, too."""
    if departure.log.startswith(FILE_LOG):
        log = ""
    else:
        log = departure.log
    return msgspec.structs.replace(departure, pid=0, command="", log=log)


def _verdict(verdict: Verdict) -> Verdict:
    replaced = msgspec.structs.replace
    return replaced(
        verdict,
        parameters=_nameless(verdict.parameters),
        evidence=tuple(replaced(one, parameters=_nameless(one.parameters)) for one in verdict.evidence),
        actions=tuple(replaced(one, parameters=_nameless(one.parameters)) for one in verdict.actions),
        unknown=tuple(replaced(one, parameters=_nameless(one.parameters)) for one in verdict.unknown),
    )


def _nameless(parameters: Parameters) -> Parameters:
    if not parameters.keys() & PRIVATE.keys():
        return parameters
    blanked = {name: PRIVATE.get(name, value) for name, value in parameters.items()}
    nameless = {}
    for name, value in blanked.items():
        if value != "":
            nameless[name] = value
    return nameless


def _reworded(text: str) -> str:
    for pattern, words in _OTHERS:
        text = pattern.sub(words, text)
    return text
