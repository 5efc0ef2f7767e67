"""An engine of which a process is gone or stands still, while others live and may go on to answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpumon.readings.frame import EndpointState, EnginePart, PartsReport, PartState
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.engine_state import listed_pids
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.progress.tokens import SUSPECTED_S, without_tokens_s
from gpumon.triage.sentences import NO_TOKEN, RESTART_WHOLE
from gpumon.triage.signals import TOKEN_TOTALS, YES, Case

_PART: Final = "{role}[, pid {pid},][ and {more:count} more]"
_TOKENS_LATE_S: Final = 10.0
"""Seconds after the end of a process for which tokens may still be counted: a poll or two of the page."""
_DATA_PARALLEL_RANK: Final = re.compile(r"\bDP\d{1,5}\b")
"""The data-parallel rank in a role: `engine core DP3`, `worker DP3 TP0`."""
_ELASTIC: Final = re.compile(r"--(?:enable-)?elastic-ep\b")
"""Options of a command by which ranks are taken out and added while the engine serves (vLLM, SGLang)."""
_IN_KERNEL: Final = frozenset({PartState.UNINTERRUPTIBLE, PartState.THREAD_UNINTERRUPTIBLE})
"""States of a process that waits in the kernel."""
_SILENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.REFUSED, EndpointState.STARTING})


PART_GONE_FIGURE: Final = Quantity("part_gone", "{role}[, pid {pid}], is gone")
PART_RUNS: Final = Quantity("part_runs", "{role}[, pid {pid}], lives")
PART_STOPPED_FIGURE: Final = Quantity("part_stopped", "{role}[, pid {pid}], in state T")
PART_TRACED_FIGURE: Final = Quantity("part_traced", "{role}[, pid {pid}], in state t")
PART_UNINTERRUPTIBLE_FIGURE: Final = Quantity("part_uninterruptible", "{role}[, pid {pid}], in state D")
PART_THREAD_UNINTERRUPTIBLE_FIGURE: Final = Quantity(
    "part_thread_uninterruptible", "a thread of {role}[, pid {pid}], in state D"
)
PART_FROZEN_FIGURE: Final = Quantity("part_frozen", "the cgroup of {role}[, pid {pid}], is frozen")
_STATES: Final = {
    PartState.GONE: PART_GONE_FIGURE,
    PartState.RUNS: PART_RUNS,
    PartState.STOPPED: PART_STOPPED_FIGURE,
    PartState.FROZEN: PART_FROZEN_FIGURE,
    PartState.TRACED: PART_TRACED_FIGURE,
    PartState.UNINTERRUPTIBLE: PART_UNINTERRUPTIBLE_FIGURE,
    PartState.THREAD_UNINTERRUPTIBLE: PART_THREAD_UNINTERRUPTIBLE_FIGURE,
}
"""State of a process -> its evidence."""
CHECK_SCALED_DOWN: Final = Remedy("check_scaled_down", "see in its log whether it was scaled down on purpose")
MEND_PART_STOPPED: Final = Remedy("mend_part_stopped", "kill -CONT {pids} lets it go on")
MEND_PART_FROZEN: Final = Remedy("mend_part_frozen", "[{unfreeze}|docker unpause or systemctl thaw] lets it go on")
MEND_PART_TRACED: Final = Remedy("mend_part_traced", "end the debugger that holds it (TracerPid in /proc/{pid}/status)")
MEND_PART_UNINTERRUPTIBLE: Final = Remedy(
    "mend_part_uninterruptible",
    (
        "sudo cat /proc/{pid}/stack and sudo dmesg -T show what it waits for (driver, disk, network "
        "mount): free that first, as it cannot be killed"
    ),
)
MEND_PART_THREAD_UNINTERRUPTIBLE: Final = Remedy(
    "mend_part_thread_uninterruptible",
    (
        "ps -L -o tid,stat,wchan:40,comm -p {pid} shows the thread in state D and where it waits, "
        "sudo dmesg -T why (driver, disk, network mount): free that first, as it cannot be killed"
    ),
)

PART_GONE: Final = Cause(
    "part_gone",
    Limit.DOWN,
    (
        _PART
        + " is gone; {alive}, pid {alive_pid}, lives[{closed=yes} with its port closed]: what needs it is not answered"
    ),
    level=Level.CRITICAL,
)
PART_GONE_OTHERS_SERVE: Final = Cause(
    "part_gone_others_serve",
    Limit.DOWN,
    _PART + " is gone; the others still give tokens",
    confidence=Confidence.MEDIUM,
)
PART_TAKEN_OUT: Final = Cause(
    "part_taken_out",
    Limit.DOWN,
    _PART + " is gone, and the engine goes on without it: taken out on request, as it seems",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
PART_STOPPED: Final = Cause(
    "part_stopped",
    Limit.UNRESPONSIVE,
    _PART + " is stopped (state T): it does nothing until it is continued",
    level=Level.CRITICAL,
)
PART_FROZEN: Final = Cause(
    "part_frozen",
    Limit.UNRESPONSIVE,
    _PART + " is frozen with its cgroup (docker pause, systemctl freeze)",
    level=Level.CRITICAL,
)
PART_TRACED: Final = Cause(
    "part_traced",
    Limit.UNRESPONSIVE,
    _PART + " is held by a debugger (state t)",
)
PART_UNINTERRUPTIBLE: Final = Cause(
    "part_uninterruptible",
    Limit.UNRESPONSIVE,
    (_PART + " is in uninterruptible sleep (state D): it waits in the kernel, and no signal ends it"),
    level=Level.CRITICAL,
)
PART_THREAD_UNINTERRUPTIBLE: Final = Cause(
    "part_thread_uninterruptible",
    Limit.UNRESPONSIVE,
    (_PART + " has a thread in uninterruptible sleep (state D): it waits in the kernel, and no signal ends it"),
    level=Level.CRITICAL,
)
_STILL: Final = {
    PartState.STOPPED: PART_STOPPED,
    PartState.FROZEN: PART_FROZEN,
    PartState.TRACED: PART_TRACED,
    PartState.UNINTERRUPTIBLE: PART_UNINTERRUPTIBLE,
    PartState.THREAD_UNINTERRUPTIBLE: PART_THREAD_UNINTERRUPTIBLE,
}
"""State of a process that lives and does nothing -> cause of the verdict."""
_MENDS: Final = {
    PART_STOPPED: MEND_PART_STOPPED,
    PART_FROZEN: MEND_PART_FROZEN,
    PART_TRACED: MEND_PART_TRACED,
    PART_UNINTERRUPTIBLE: MEND_PART_UNINTERRUPTIBLE,
    PART_THREAD_UNINTERRUPTIBLE: MEND_PART_THREAD_UNINTERRUPTIBLE,
}
"""Cause -> what makes the process go on."""


def part_gone(case: Case) -> Finding | None:
    """Rule: a process of an engine is gone, and others live: its core, or one of the ranks that wait for each other."""
    engine = case.engine
    report = _report(case)
    if engine is None or report is None or engine.asleep:
        return None
    gone = _in_state(report, PartState.GONE)
    alive = _in_state(report, PartState.RUNS)
    if not gone or not alive:
        return None
    seconds = max(0.0, case.frame.wall_s - gone[0].since_wall_s)
    parameters = _named(gone) | params(seconds=seconds, alive=alive[0].role, alive_pid=str(alive[0].pid))
    evidence = (*_evidence(gone), *_evidence(alive[:1]), *_token_evidence(case))
    restart = _restart(report, left=alive)
    began_s = case.now_s - seconds
    if _is_taken_out(case, report, gone, alive):
        return PART_TAKEN_OUT.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(CHECK_SCALED_DOWN.action(),),
            began_s=began_s,
        )
    if _gives_tokens_since(case, seconds):
        return PART_GONE_OTHERS_SERVE.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(CHECK_SCALED_DOWN.action(), Action(restart.code, restart.parameters | params(otherwise=YES))),
            began_s=began_s,
        )
    return PART_GONE.finding(
        parameters=parameters | params(closed=yes_if(not report.listens)),
        evidence=evidence,
        actions=(restart,),
        began_s=began_s,
    )


def _is_taken_out(case: Case, report: PartsReport, gone: Sequence[EnginePart], alive: Sequence[EnginePart]) -> bool:
    """Whether whole data-parallel ranks are gone of an engine that goes on without them: by its options ranks come and
    go, or its page has no more ranks than are there. Where requests wait for tokens in vain, it does not go on."""
    gone_ranks = {_rank_of(part) for part in gone}
    ranks_alive = {_rank_of(part) for part in alive} - {""}
    if "" in gone_ranks or gone_ranks & ranks_alive or not ranks_alive:
        return False
    answers = case.engine is not None and case.engine.state is EndpointState.OK
    if not answers or (without_tokens_s(case) or 0.0) >= SUSPECTED_S:
        return False
    if _ELASTIC.search(report.command):
        return True
    return case.reading is not None and 0 < len(case.reading.ranks) <= len(ranks_alive)


def _rank_of(part: EnginePart) -> str:
    """The data-parallel rank of a process; empty: it is of none."""
    rank = _DATA_PARALLEL_RANK.search(part.role)
    return rank[0] if rank else ""


def part_stands_still(case: Case) -> Finding | None:
    """Rule: a process of an engine lives and does nothing: it is stopped, frozen, traced, or waits in the kernel."""
    engine = case.engine
    report = _report(case)
    if engine is None or report is None:
        return None
    for state, cause in _STILL.items():
        parts = _in_state(report, state)
        if state in _IN_KERNEL and engine.state is EndpointState.STARTING:
            continue  # it loads: its weights come from a disk that is slow
        if parts and (state is PartState.STOPPED or state is PartState.FROZEN or _gives_nothing(case, engine)):
            return _still_finding(case, report, parts, cause)
    return None


def _still_finding(case: Case, report: PartsReport, parts: Sequence[EnginePart], cause: Cause) -> Finding:
    """The finding on processes that live and do nothing."""
    seconds = max(0.0, case.frame.wall_s - parts[0].since_wall_s)
    level = Level.WARN if _gives_tokens_since(case, seconds) or _may_be_another_thread(case, cause) else cause.level
    restart = _restart(report, left=_in_state(report, PartState.RUNS))
    otherwise = Action(restart.code, restart.parameters | params(otherwise=YES))
    pids = " ".join(str(part.pid) for part in parts)
    first = _MENDS[cause].action(pid=str(parts[0].pid), pids=pids, unfreeze=report.unfreeze)
    return cause.finding(
        parameters=_named(parts) | params(seconds=seconds),
        evidence=(*_evidence(parts), *_token_evidence(case)),
        actions=(first, otherwise),
        level=level,
        began_s=case.now_s - seconds,
    )


def _may_be_another_thread(case: Case, cause: Cause) -> bool:
    """Whether a thread that waits may not be the one that the tokens wait for: until they are late in any case."""
    unmoved_s = case.unmoved_s(TOKEN_TOTALS)
    is_late = unmoved_s is None or unmoved_s >= case.thresholds.hung_s
    return cause is PART_THREAD_UNINTERRUPTIBLE and not is_late


def _report(case: Case) -> PartsReport | None:
    """The processes of the engine, where one of them is in trouble."""
    if case.reading is None or case.reading.state is EndpointState.DOWN:
        return None
    return case.reading.parts


def _in_state(report: PartsReport, state: PartState) -> list[EnginePart]:
    """The processes that are in a state."""
    return [part for part in report.parts if part.state is state]


def _named(parts: Sequence[EnginePart]) -> Parameters:
    """Parameters that name the first of these processes, and how many more there are."""
    more = float(len(parts) - 1) if len(parts) > 1 else None
    pid = str(parts[0].pid) if parts[0].pid else None
    return params(role=parts[0].role, pid=pid, more=more)


def _evidence(parts: Sequence[EnginePart]) -> list[Evidence]:
    """The states of these processes, as /proc has them."""
    evidence = []
    for part in parts:
        pid = str(part.pid) if part.pid else None
        parameters = params(role=part.role, pid=pid)
        evidence.append(_STATES[part.state].evidence(source="/proc", parameters=parameters))
    return evidence


def _token_evidence(case: Case) -> list[Evidence]:
    """For how long no token has come, if counters tell that."""
    seconds = case.unmoved_s(TOKEN_TOTALS)
    if seconds is None:
        return []
    return [case.evidence(NO_TOKEN, seconds)]


def _gives_tokens_since(case: Case, seconds: float) -> bool:
    """Whether tokens have come after something that was so many seconds ago."""
    unmoved_s = case.unmoved_s(TOKEN_TOTALS)
    answers = case.engine is not None and case.engine.state is EndpointState.OK
    return answers and unmoved_s is not None and unmoved_s < seconds - _TOKENS_LATE_S


def _gives_nothing(case: Case, engine: Engine) -> bool:
    """Whether it does not answer, or gives no token while requests run."""
    if engine.state in _SILENT:
        return True
    unmoved_s = case.unmoved_s(TOKEN_TOTALS)
    return bool(case.newest("running")) and unmoved_s is not None and unmoved_s >= case.thresholds.stalled_s


def _restart(report: PartsReport, left: Sequence[EnginePart]) -> Action:
    """Start it anew, after the end of what is left of it."""
    pids = [part.pid for part in left if part.pid]
    return RESTART_WHOLE.action(
        restart=report.restart, command=report.command, pids=listed_pids(pids), kill=" ".join(map(str, pids))
    )
