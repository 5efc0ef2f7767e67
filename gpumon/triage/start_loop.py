"""Starts of an engine that ended before or soon after its first token: a loop, told once, with the log of the end."""

from __future__ import annotations

from typing import Final

from gpumon.readings.frame import FILE_LOG, FailedStarts
from gpumon.readings.verdict import Action, Level, Limit
from gpumon.triage.engine_down import level_beside_replicas
from gpumon.triage.engine_state import RESTART_LOOP
from gpumon.triage.finding import Cause, Finding, Quantity, params, yes_if
from gpumon.triage.sentences import LAST_END, READ_LAST_LOG, STARTS
from gpumon.triage.signals import YES, Case

LOOP_STARTS: Final = 2
"""Starts that failed from which on they are a loop: the one after them is the third."""


FAILED_STARTS: Final = Quantity(
    "failed_starts",
    (
        "[{one=yes}1 start|{value:count} starts] ended after about {length:lasting}, [{served=yes}the last with "
        "requests running|before a token came]"
    ),
)

LOAD_LOOP: Final = Cause(
    "load_loop",
    Limit.DOWN,
    ("crash loop while it loads: each start ended after about {length:lasting}, without a token" + LAST_END + STARTS),
)
START_FAILED: Final = Cause(
    "start_failed",
    Limit.DOWN,
    (
        "start {start:count} in {seconds:lasting}[ (pid {pid})]: the one before it ended after "
        "{length:lasting}, [{served=yes}with requests running|before its first token]" + LAST_END
    ),
)


def start_loop(case: Case) -> Finding | None:
    """Rule: an engine's last starts ended before a token came, or soon after it: what it does now is no fresh start."""
    engine = case.engine
    if engine is None or case.reading is None or case.reading.failed_starts is None:
        return None
    failed = case.reading.failed_starts
    is_loop = failed.ended >= LOOP_STARTS
    if not is_loop and not failed.runs:
        return None
    seconds = max(0.0, case.frame.wall_s - failed.first_wall_s)
    ended = float(failed.ended)
    starts = ended + (1.0 if failed.runs else 0.0)
    parameters = params(
        start=starts if failed.runs else None,
        ended=ended,
        times=starts,
        newest=failed.began_wall_s,
        seconds=seconds,
        length=failed.length_s,
        pid=str(failed.pid) if failed.runs else None,
        runs=yes_if(failed.runs),
        served=yes_if(failed.served),
        cause=failed.cause,
        number=float(failed.number),
    )
    cause = START_FAILED
    if is_loop:
        cause = RESTART_LOOP if failed.served else LOAD_LOOP
    one = yes_if(failed.ended == 1)
    evidence_parameters = params(one=one, length=failed.length_s, served=yes_if(failed.served))
    return cause.finding(
        parameters=parameters,
        evidence=(FAILED_STARTS.evidence(ended, source="/proc", parameters=evidence_parameters),),
        actions=(_read_log(failed),),
        level=level_beside_replicas(case, engine) if is_loop else Level.WARN,
        began_s=case.now_s - seconds,
    )


def _read_log(failed: FailedStarts) -> Action:
    """The command that shows what the last start wrote."""
    if failed.log.startswith(FILE_LOG):
        return READ_LAST_LOG.action(ended=YES, file=failed.log.removeprefix(FILE_LOG))
    return READ_LAST_LOG.action(log=failed.log)
