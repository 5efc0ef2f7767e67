"""Verdicts on what is idle, worded for another moment: the idle time in them counts from their beginning."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.format import wall_of
from gpumon.readings.verdict import Limit, Verdict

_IDLE: Final = (Limit.IDLE, Limit.IDLE_VRAM_HELD)
"""Limits whose verdicts begin when the GPU began to do nothing."""


def with_beginning(verdict: Verdict, since: str, wall_s: float) -> Verdict:
    """A verdict as it stood at `wall_s` (Unix time), which began at `since` (RFC 3339).

    One on something idle then says for how long. Whoever judges a moment of the past has seen less of that time, and a
    verdict that was noted says it of its own time.
    """
    if verdict.code not in _IDLE:
        return msgspec.structs.replace(verdict, since=since)
    idle_s = wall_s - wall_of(since)
    evidence = []
    for proof in verdict.evidence:
        if proof.quantity == "idle_time":
            proof = msgspec.structs.replace(proof, value=idle_s)
        evidence.append(proof)
    parameters = dict(verdict.parameters)
    if "seconds" in parameters:
        parameters["seconds"] = idle_s
    return msgspec.structs.replace(verdict, since=since, parameters=parameters, evidence=tuple(evidence))
