"""Engines that have given no token for some seconds: too short a time for a verdict, too long to call all well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.efficiency.tracks import RATE_S
from gpumon.readings.frame import Advance, EndpointState
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Family
from gpumon.triage.marks import URGENT

_RAN_ALL_THE_TIME: Final = 0.8
"""Mean of the requests that ran in the window of the rates, as a share of those of now, from which on they did not just
come."""
_TENSOR_AT_WORK: Final = 0.1
"""Activity of the tensor cores from which on a GPU computes: a long prompt gives no token, either."""


def engines_without_token(snapshot: Snapshot) -> Iterator[Engine]:
    """Engines without a token in the last 10 s while requests run, that no verdict on a state or trouble is about."""
    for engine in snapshot.engines:
        if _gives_no_token(engine) and not _has_verdict(snapshot, engine) and not _computes(snapshot, engine):
            yield engine


def no_token_text(names: Sequence[str]) -> str:
    """The fact in words: `no token for over 10 s while requests run: vllm:8000 and 2 more`."""
    more = ""
    if len(names) > 1:
        more = f" and {len(names) - 1} more"
    return f"no token for over {RATE_S:.0f} s while requests run: {names[0]}{more}"


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


def _has_verdict(snapshot: Snapshot, engine: Engine) -> bool:
    """Whether a verdict says already how the engine is."""
    for verdict in snapshot.verdicts:
        if verdict.key == engine.key and (verdict.family is Family.STATE or verdict.level in URGENT):
            return True
    return False


def _computes(snapshot: Snapshot, engine: Engine) -> bool:
    """Whether one of its GPUs computes, where that is measured."""
    for gpu in snapshot.gpus:
        if engine.name in gpu.engines and (number(gpu.tensor_active_ratio) or 0.0) >= _TENSOR_AT_WORK:
            return True
    return False
