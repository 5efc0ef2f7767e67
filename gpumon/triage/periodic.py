"""An engine that stands still for seconds in a rhythm while requests run and its GPUs have nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.verdict import Confidence, Limit
from gpumon.triage.engine_state import processes_of
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.pauses import Pause
from gpumon.triage.progress.work import QUIET_LINK_BYTES_PER_S, SM_AT_WORK
from gpumon.triage.samples import KEPT_S, Recent
from gpumon.triage.signals import Case

_EDGE_S: Final = 2.0
"""Seconds at either end of a pause that its samples may still share with steps: a poll dates it so well."""
_TENSOR_AT_WORK: Final = 0.1
"""Tensor activity in pauses from which on a GPU computes: a long prefill keeps it at 60% and more."""
_BUSY_AT_WORK: Final = 0.5
"""Busy share in pauses from which on a GPU may compute, where nothing tells what it does."""
_TRANSFERS: Final = 100.0
"""Times the housekeeping of a link from which on weights or KV cache come: that is a pause on purpose."""


PAUSES: Final = Quantity("pauses", "{value:count} pauses of {pause_s:lasting} in a row, one every {period_s:lasting}")
FIND_TIMER: Final = Remedy(
    "find_timer",
    (
        "look at it in the next pause, about {next:clock} (py-spy dump[ --pid {pid}]), and for what "
        "comes as often: garbage collection, checkpoints, log rotation, health probes, cron and "
        "systemd timers, a backup or scraper of its host"
    ),
)

PERIODIC_STALLS: Final = Cause(
    "periodic_stalls",
    Limit.PERIODIC_STALLS,
    (
        "no token for about {pause_s:lasting} every {period_s:lasting} ({times:count} times in a "
        "row) while requests run and its GPUs rest: something stops it in a rhythm"
    ),
    confidence=Confidence.MEDIUM,
)


def periodic_stalls(case: Case) -> Finding | None:
    """Rule: pauses of some seconds at even distances, in which its GPUs neither compute nor receive anything."""
    engine = case.serving_engine()
    if engine is None:
        return None
    rhythm = case.recent.pauses.rhythm(case.now_s)
    if rhythm is None or not _gpus_rest(case, rhythm.pauses):
        return None
    next_s = case.frame.wall_s + rhythm.pauses[-1].began_s + rhythm.period_s - case.now_s
    times = float(len(rhythm.pauses))
    parameters = params(pause_s=rhythm.pause_s, period_s=rhythm.period_s, times=times, next=next_s)
    processes = processes_of(case, engine)
    pid = str(processes[0].pid) if processes else ""
    return PERIODIC_STALLS.finding(
        parameters=parameters,
        evidence=(
            PAUSES.evidence(times, source="tokens of its page", parameters=parameters),
            *case.work_evidence(case.activity()),
        ),
        actions=(FIND_TIMER.action(pid=pid, next=next_s),),
        began_s=rhythm.pauses[0].began_s,
    )


def _gpus_rest(case: Case, pauses: Iterable[Pause]) -> bool:
    """Whether its GPUs are known to do no arithmetic in the pauses, and nothing comes over their links."""
    recents = [case.recents[gpu.reading.uuid] for gpu in case.gpus]
    inner = [Pause(pause.began_s + _EDGE_S, pause.ended_s - _EDGE_S) for pause in pauses]
    for field in ("nvlink_bytes_per_s", "pcie_rx_bytes_per_s"):
        moved = _mean_in(recents, field, inner)
        if moved is not None and moved > _TRANSFERS * QUIET_LINK_BYTES_PER_S:
            return False
    limits = (
        ("tensor_active_ratio", _TENSOR_AT_WORK),
        ("sm_active_ratio", SM_AT_WORK),
        ("busy_ratio", _BUSY_AT_WORK),
    )
    for field, most in limits:
        activity = _mean_in(recents, field, inner)
        if activity is not None:
            return activity <= most
    return False


def _mean_in(recents: Iterable[Recent], field: str, pauses: Iterable[Pause]) -> float | None:
    """Mean of a figure of the GPUs in the pauses, as far as samples reach back; None where there is none."""
    inside = []
    for recent in recents:
        for sampled_s, value in recent.values(field, KEPT_S):
            if any(pause.began_s <= sampled_s <= pause.ended_s for pause in pauses):
                inside.append(value)
    return mean_known(inside)
