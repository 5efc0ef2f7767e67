"""Whether an engine gives tokens: for how long it has not, and what that is taken for, by how long it lasts.

No rule says `hung` before `Thresholds.stalled_s`: until then other rules stand back, and the screen says the fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.efficiency.tracks import RATE_S
from gpumon.readings.frame import Advance, EndpointState, GpuState
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Family
from gpumon.triage.marks import URGENT
from gpumon.triage.signals import TOKEN_TOTALS, Case

_RAN_ALL_THE_TIME: Final = 0.8
"""Mean of the requests that ran in the window of the rates, as a share of those of now, from which on they did not just
come."""
_TENSOR_AT_WORK: Final = 0.1
"""Activity of the tensor cores from which on a GPU computes: a long prompt gives no token, either."""

SUSPECTED_S: Final = 10.0
"""Seconds without a token from which on a stall is suspected: PCIe is measured, so that a minute of it is known soon
after the first minute of the stall."""
_COUNTED_AT_END: Final = Advance.END.value


def without_tokens_s(case: Case) -> float | None:
    """Seconds for which it has had requests and given no token.

    None where it has no request, does not serve, or counts the tokens of a request only when that ends.
    """
    engine = case.serving_engine()
    if engine is None or not (case.newest("running") or case.newest("waiting")):
        return None
    if engine.advances.get("decode_tokens_per_s", _COUNTED_AT_END) == _COUNTED_AT_END:
        return None
    still_s = case.unmoved_s(TOKEN_TOTALS)
    if still_s is None:
        return None
    # An idle night gives no token either, nor does a process that is not there.
    return min(still_s, _loaded_s(case, still_s), case.now_s - case.recent.refused_s)


def may_hang(case: Case) -> bool:
    """Whether its GPUs' PCIe traffic is worth measuring: it may hang."""
    seconds = without_tokens_s(case)
    return seconds is not None and seconds >= SUSPECTED_S


def _loaded_s(case: Case, seconds: float) -> float:
    """For how long it has had a request without a break; infinite where no sample of the last seconds shows it without
    one."""
    waiting = dict(case.recent.values("waiting", seconds))
    running = dict(case.recent.values("running", seconds)) or waiting
    without_request_s = [
        sampled_s for sampled_s, count in running.items() if count == 0.0 and not waiting.get(sampled_s)
    ]
    if without_request_s:
        return case.now_s - without_request_s[-1]
    return float("inf")


def gives_no_tokens(case: Case) -> bool:
    """Whether no token comes out: a long prompt is computed, which counts at its end only, or the engine hangs."""
    quiet_s = case.unmoved_s(TOKEN_TOTALS)
    return quiet_s is not None and quiet_s >= case.thresholds.stalled_s / 2


def stands_still(case: Case) -> bool:
    """Whether an engine gives nothing right now though it has requests, or has lost a GPU: that it did well until just
    now is no reason to say that it does."""
    if case.engine is None:
        return False
    if any(gpu.reading.state is not GpuState.OK for gpu in case.gpus):
        return True
    has_requests = case.newest("running") and case.newest("waiting")
    return (
        bool(has_requests) and case.newest("decode_tokens_per_s") == 0.0 and case.newest("prefill_tokens_per_s") == 0.0
    )


def engines_without_token(snapshot: Snapshot) -> Iterator[Engine]:
    """Engines without a token in the last 10 s while requests run, that no verdict on a state or trouble is about."""
    for engine in snapshot.engines:
        if _gives_no_token(engine) and not has_verdict(snapshot, engine) and not _computes(snapshot, engine):
            yield engine


def no_token_text(names: Sequence[str]) -> str:
    """The fact in words: `vllm:8000 and 2 more: no token for over 10 s while requests run`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}: no token for over {RATE_S:.0f} s while requests run"


def _gives_no_token(engine: Engine) -> bool:
    """Whether its counters of tokens have stood still for a whole window of the rates while requests ran."""
    if engine.state is not EndpointState.OK or engine.asleep:
        return False
    if engine.advances.get("decode_tokens_per_s") != Advance.LIVE.value:
        return False
    rates = engine.rates
    if number(rates.decode_tokens_per_s) != 0.0:
        return False
    if number(rates.prefill_tokens_per_s) or number(rates.cached_tokens_per_s):
        return False
    running = number(engine.load.running)
    ran = number(engine.load.running_mean)
    return bool(running) and ran is not None and ran >= _RAN_ALL_THE_TIME * (running or 0.0)


def has_verdict(snapshot: Snapshot, engine: Engine) -> bool:
    """Whether a verdict on a state or trouble says already how the engine is."""
    verdicts = [verdict for verdict in snapshot.verdicts if verdict.key == engine.key]
    return any(verdict.family is Family.STATE or verdict.level in URGENT for verdict in verdicts)


def _computes(snapshot: Snapshot, engine: Engine) -> bool:
    """Whether one of its GPUs computes, where that is measured."""
    gpus = [gpu for gpu in snapshot.gpus if engine.name in gpu.engines]
    return any((number(gpu.reading.tensor_active_ratio) or 0.0) >= _TENSOR_AT_WORK for gpu in gpus)
