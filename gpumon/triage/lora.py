"""LoRA adapters that wait for a slot on the GPU."""

from __future__ import annotations

from typing import Final

from gpumon.readings.verdict import Limit, Team
from gpumon.triage.advice import advice
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.sentences import WAITING
from gpumon.triage.signals import Case, finite

_OFTEN: Final = 0.5
"""Mean adapters waited for from which on they are waited for most of the time."""


LORA_WAITING: Final = Quantity("lora_waiting", "{value:requests} LoRA adapters are waited for", field="lora_waiting")
LORA_LOADED: Final = Quantity("lora_loaded", "{value:count} of {limit:count} LoRA slots are taken", field="lora_loaded")
RAISE_LORA_SLOTS: Final = Remedy("raise_lora_slots", "raise {flag} from {now:count}[ to {wanted:count}]")
GROUP_ADAPTERS: Final = Remedy(
    "group_adapters", "send each adapter's requests to the same few replicas", team=Team.SCHEDULER
)

LORA_SLOTS: Final = Cause(
    "lora_slots",
    Limit.LORA_SLOTS_FULL,
    "{waiting:wait}: all {slots:count} LoRA slots are taken, {adapters:whole} more adapters wanted",
)


def lora_slots(case: Case) -> Finding | None:
    """Rule: requests wait for a LoRA adapter that has no slot on the GPU, as others have them all."""
    engine = case.serving_engine()
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
        case.evidence(LORA_WAITING, adapters),
        case.evidence(LORA_LOADED, loaded, limit=slots),
        case.evidence(WAITING, waiting),
    )
    flag = advice(engine.kind).loras
    wanted = float(round(slots + adapters)) if flag else None
    return LORA_SLOTS.finding(
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=(RAISE_LORA_SLOTS.action(flag=flag, now=slots, wanted=wanted), GROUP_ADAPTERS.action()),
    )
