"""LoRA adapters that wait for a slot on the GPU."""

from __future__ import annotations

from typing import Final

from gpumon.readings.verdict import Limit
from gpumon.triage.advice import advice
from gpumon.triage.finding import Cause, Finding, action, params
from gpumon.triage.signals import Case, finite

_OFTEN: Final = 0.5
"""Mean adapters waited for from which on they are waited for most of the time."""


LORA_SLOTS: Final = Cause(
    "lora_slots",
    Limit.LORA_SLOTS_FULL,
    "{waiting:wait}: all {slots:count} LoRA slots are taken, {adapters:whole} more adapters wanted",
)


def lora_slots(case: Case) -> Finding | None:
    """Rule: requests wait for a LoRA adapter that has no slot on the GPU, as others have them all."""
    engine = case.served()
    if engine is None:
        return None
    slots = finite(engine.load.lora_slots)
    loaded = finite(engine.load.lora_loaded)
    adapters = case.mean("lora_waiting")
    waiting = case.mean("waiting") or 0.0
    if not slots or loaded is None or loaded < slots or not adapters or adapters < _OFTEN:
        return None
    if waiting < case.thresholds.queue_waiting:
        return None
    parameters = params(slots=slots, adapters=adapters, waiting=waiting)
    evidence = (
        case.evidence("lora_waiting", "lora_waiting", adapters),
        case.evidence("lora_loaded", "lora_loaded", loaded, limit=slots),
        case.evidence("waiting", "waiting", waiting, chart="waiting"),
    )
    flag = advice(engine.kind).loras
    wanted = None
    if flag:
        wanted = float(round(slots + adapters))
    fixes = (action("raise_lora_slots", flag=flag, now=slots, wanted=wanted), action("group_adapters"))
    return LORA_SLOTS.finding(
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=fixes,
    )
