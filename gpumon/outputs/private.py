"""A snapshot as other hosts may see it: without processes, and without their names, pids and users in its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from gpumon.readings.process_words import briefly, program
from gpumon.readings.snapshot import Process, Snapshot
from gpumon.readings.verdict import Parameters, Verdict

SOMEBODY: Final = "a process"
"""Stands for a process in a text."""
_LEAST_CUT: Final = 3
"""Characters of a name at the end of a text that was cut."""
_PID: Final = re.compile(r"\(pid (\d+)\)")
_NAMED: Final = re.compile(r"(?:(?![:;,] ).)*\(pid \d+\)(?: of [^\s,:;]+)?")
"""A process that has gone since the text was written: with it goes all that may be its name, up to a `, `."""
_OTHERS: Final = (
    (re.compile(r"\bask .+? to end it\b"), "ask its owner to end it"),
    (re.compile(r"\bpid \d+(?:, \d+)*(?: and \d+ more)?"), "pid PID"),
    (re.compile(r"\b_PID=\d+"), "_PID=PID"),
    (re.compile(r"\bserver \d+ \("), "server ("),
    (re.compile(r"\bprocess \d+ \(.*?\)(?= listens)"), SOMEBODY),
    (re.compile(r"\bbelongs to user .*?(?=, and Linux)"), "belongs to another user"),
)
"""Other words of triage, of the mapping of engines to GPUs, and of discovery that hold a pid or a user."""
_HINTS: Final = ("pid", "_PID", "ask ", "server ", "process ", "user ", "…")
"""Without one of them a text names nobody."""


def without_processes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without processes; texts about one say `a process`. Once more, it changes nothing."""
    phrases: dict[str, list[str]] = {}
    for process in (process for gpu in snapshot.gpus for process in gpu.processes):
        phrases.setdefault(str(process.pid), []).extend(_phrases(process))
    blank = partial(_blanked, phrases)
    replaced = msgspec.structs.replace
    return replaced(
        snapshot,
        gpus=tuple(replaced(gpu, processes=()) if gpu.processes else gpu for gpu in snapshot.gpus),
        engines=tuple(
            replaced(
                one,
                fault=blank(one.fault),
                hardware=replaced(one.hardware, gpus_source=blank(one.hardware.gpus_source)),
            )
            for one in snapshot.engines
        ),
        verdicts=tuple(map(_verdict, snapshot.verdicts)),
        faults=tuple(replaced(one, text=_reworded(one.text)) for one in snapshot.faults),
        events=tuple(
            one if one.verdict is None else replaced(one, verdict=_verdict(one.verdict)) for one in snapshot.events
        ),
    )


_PRIVATE: Final[Mapping[str, str]] = {"process": SOMEBODY, "processes": SOMEBODY, "pids": "", "pid": "PID", "owner": ""}
"""Parameters of triage that name processes and users, and what stands for them."""


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
    if not parameters.keys() & _PRIVATE.keys():
        return parameters
    blanked = {name: _PRIVATE.get(name, value) for name, value in parameters.items()}
    return {name: value for name, value in blanked.items() if value != ""}


def _phrases(process: Process) -> Iterator[str]:
    """What texts may call it, the longest first."""
    whole = program(process)
    yield whole
    yield whole[: whole.index(f"(pid {process.pid})")] + f"(pid {process.pid})"
    yield briefly(process)


def _blanked(phrases: Mapping[str, Iterable[str]], text: str) -> str:
    if not any(hint in text for hint in _HINTS):
        return text
    for pid in _PID.findall(text):
        for phrase in phrases.get(pid, ()):
            text = text.replace(phrase, SOMEBODY)
    if text.endswith("…"):
        text = _uncut(text[:-1], (phrase for each in phrases.values() for phrase in each)) + "…"
    return _reworded(_NAMED.sub(SOMEBODY, text))


def _uncut(text: str, phrases: Iterable[str]) -> str:
    """A text that ends in the midst of a phrase, without that beginning of it."""
    for phrase in phrases:
        ends = (text.removesuffix(phrase[:end]) for end in range(len(phrase), _LEAST_CUT, -1))
        if (found := next((end for end in ends if end != text), None)) is not None:
            return f"{found}{SOMEBODY}"
    return text


def _reworded(text: str) -> str:
    for pattern, words in _OTHERS:
        text = pattern.sub(words, text)
    return text
