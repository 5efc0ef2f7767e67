"""Rule on KV cache that stays in use while no request runs: blocks that nobody gives back."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.checks import ROLES
from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Level, Limit
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.sentences import KV_USAGE
from gpumon.triage.signals import WORK_TOTALS, Case

_COUNTS_HELD_BLOCKS: Final = frozenset({EngineKind.VLLM, EngineKind.SGLANG})
"""Engines whose KV use counts what requests hold: that of others counts prefixes that are kept for later, too."""
_QUIET_S: Final = 30.0
"""Seconds without a request after which nothing holds a block: they are given back at the end of each."""
_LEAST_LOST: Final = 0.02
"""Share of the pool from which on it is a leak: engines keep a block or two for themselves."""
_MUCH_LOST: Final = 0.2
"""Share of the pool that users miss."""


NO_RUNNING: Final = Quantity("no_running", "no request has run for {value:lasted}")
RESTART_FOR_KV: Final = Remedy(
    "restart_for_kv",
    (
        "restart it at a quiet moment: lost blocks come back with a new process alone; then look "
        "which requests lose them (aborted ones, transfers, a plugin), and for a fix in a newer "
        "version"
    ),
)

KV_LEAK: Final = Cause(
    "kv_leak",
    Limit.LEAK,
    (
        "KV cache {usage:percent} in use while no request has run for {seconds:lasted}[: "
        "{waiting:wait}]: nobody gives it back"
    ),
)


def kv_leak(case: Case) -> Finding | None:
    """Rule: for half a minute no request has run, and KV cache is in use all the same."""
    engine = case.serving_engine()
    usage = case.newest("kv_usage_ratio")
    if engine is None or usage is None or usage < _LEAST_LOST or not _should_be_empty(case, engine):
        return None
    waiting = case.newest("waiting") or None
    quiet_s = _quiet_s(case)
    return KV_LEAK.finding(
        parameters=params(usage=usage, seconds=quiet_s, waiting=waiting),
        evidence=(
            case.evidence(KV_USAGE, usage),
            NO_RUNNING.evidence(quiet_s, source=engine.sources.get("running", "")),
        ),
        actions=(RESTART_FOR_KV.action(),),
        level=Level.WARN if usage >= _MUCH_LOST or waiting else Level.NOTE,
    )


def _should_be_empty(case: Case, engine: Engine) -> bool:
    """Whether nothing holds a block of an engine's KV cache: no request has run for half a minute, its GPUs rest, and
    it keeps none for another one."""
    if engine.asleep or engine.kind not in _COUNTS_HELD_BLOCKS:
        return False
    if case.newest("running") != 0.0 or _quiet_s(case) < _QUIET_S:
        return False
    # A GPU at work may compute a long prompt, whose request a page counts at the end of its step.
    busy = case.activity(_QUIET_S).busy
    rests = busy is not None and busy <= case.thresholds.stalled_busy_ratio
    return rests and not _is_kept_for_others(case, engine)


def _quiet_s(case: Case) -> float:
    """For how long no request has run: a short one is between two polls, and its tokens are counted all the same."""
    running_s = case.recent.steady_s("running")
    counted_s = case.unmoved_s(WORK_TOTALS)
    return running_s if counted_s is None else min(running_s, counted_s)


def _is_kept_for_others(case: Case, engine: Engine) -> bool:
    """Whether an engine may hold KV cache for another one that is going to fetch it."""
    if any(case.info.get(role) for role in ROLES) or case.newest("waiting_deferred"):
        return True
    return number(engine.rates.kv_transferred_bytes_per_s) is not None
