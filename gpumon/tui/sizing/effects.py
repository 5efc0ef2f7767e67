"""The value in effect of each field of the sizing panel, and where it comes from."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from gpumon.readings.format import age
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_KNOWN, Source, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_tokens
from gpumon.sizing.instance import Instance
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.sizing.calculation import Calculation
from gpumon.tui.sizing.fields import GOALS_SECTION, SERVER, WORKLOAD, FieldPlace, Value, default_of, holder, typed_value
from gpumon.tui.sizing.versions import Version

FROZEN_S: Final = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""
SEEN: Final = {Origin.LIVE: "measured", Origin.SWEEP: "sweep", Origin.TABLE: "table"}
SOURCES: Final = {
    Source.MEASURED: "measured",
    Source.SWEEP: "sweep",
    Source.RESCALED: "re-scaled",
    Source.ROOFLINE: "roofline",
    Source.TYPED: "typed",
    Source.NONE: "",
}
_STARTED: Final = {
    WORKLOAD: ("target",),
    SERVER: ("gpu", "gpus"),
    GOALS_SECTION: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
}
"""Fields that are filled in from what runs, and from the settings."""


class Effect(NamedTuple):
    """A value (None: nothing is known of it) and where it comes from."""

    value: Value
    origin: str


def effect(place: FieldPlace, version: Version, calculation: Calculation) -> Effect:
    """The value that a place has in a version of the scenario."""
    typed = typed_value(version.scenario, place)
    if typed not in (None, ""):
        return Effect(typed, _origin(place, version, calculation, typed))
    if place.section == GOALS_SECTION:
        return Effect(None, "no goal" if place.field.key.endswith("_p95_ms") else "not asked")
    if place.section == SERVER:
        return _of_server(place, version.scenario, calculation)
    return _of_workload(place, version.scenario, calculation)


def _origin(place: FieldPlace, version: Version, calculation: Calculation, value: Value) -> str:
    """Source of a value that the scenario has."""
    started = _started(place, version, calculation.configured)
    if started:
        return started
    if value == default_of(place) and not place.field.optional:
        return "default"
    return "typed"


def _started(place: FieldPlace, version: Version, configured: bool) -> str:
    """Source of a value that nobody changed since the panel was filled in; empty where it was changed."""
    now = holder(version.scenario, place.section, place.number)
    if now is None or place.field.key not in _STARTED[place.section]:
        return ""
    if isinstance(now, Workload):
        if version.follows:
            return version.follows[place.number].target_of(now)
        return ""
    if version.started is None or not _is_as_it_was(place, version.started, now):
        return ""
    if place.section == SERVER and not configured:
        return "detected"
    return "config"


def _is_as_it_was(place: FieldPlace, started: Scenario, now: Scenario | Server) -> bool:
    """Whether a value is that of the start; the number of GPUs of another type is another one."""
    before = holder(started, place.section, place.number)
    if before is None or getattr(before, place.field.key) != getattr(now, place.field.key):
        return False
    return not isinstance(before, Server) or not isinstance(now, Server) or before.gpu == now.gpu


def _of_server(place: FieldPlace, scenario: Scenario, calculation: Calculation) -> Effect:
    """A value of a server that the scenario leaves open."""
    if place.field.key == "gpu_power_w":
        return Effect(None, "measured, else the board's limit")
    if place.field.key != "price_per_gpu_hour" or place.number >= len(scenario.server):
        return Effect(None, "")
    price = calculation.catalogues.price(scenario.server[place.number].gpu)
    return Effect(price, "no price" if price is None else "config")


def _of_workload(place: FieldPlace, scenario: Scenario, calculation: Calculation) -> Effect:
    """A value of a workload that the scenario leaves open: goals and spares have one for all workloads."""
    key = place.field.key
    if hasattr(scenario, key):
        value = getattr(scenario, key)
        if value is None:
            return Effect(None, "no goal")
        return Effect(value, "of all workloads")
    instance = calculation.instance(place.number)
    if instance is None:
        return Effect(None, "")
    return _looked_up(instance, calculation.plan(place.number), scenario).get(key, Effect(None, ""))


def _looked_up(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> dict[str, Effect]:
    """Values of a workload that nobody typed: of the engine that was seen, of the plan, or of the formulas."""
    seen = instance.seen
    measured = ""
    most = Effect(None, "no limit known")
    if seen is not None:
        measured = SEEN[seen.origin]
        if seen.max_num_seqs is not None:
            most = Effect(seen.max_num_seqs, measured)
    return {
        **_of_plan(plan, measured),
        **_of_instance(instance, measured),
        **_precisions(instance, measured),
        "itl_tail_ratio": _itl_tail(instance, measured),
        "kv_pool_tokens": _kv_pool(instance, scenario, measured),
        "max_num_seqs": most,
        "profile": Effect(None, "none"),
    }


def _of_plan(plan: WorkloadPlan | None, measured: str) -> dict[str, Effect]:
    """Capacity, memory and busy share as the answer has them."""
    capacity: Reading = NOT_KNOWN
    memory: Reading = NOT_KNOWN
    busy: Reading = NOT_KNOWN
    source = ""
    memory_source = ""
    if plan is not None:
        capacity = plan.capacity_per_instance
        memory = plan.memory_bytes
        busy = plan.busy_ratio
        source = SOURCES[plan.source]
        memory_source = plan.memory_source
    return {
        "capacity_per_instance": _planned(capacity, 1.0, source),
        "memory_gb": _planned(memory, 1e9, memory_source),
        "busy_ratio": _planned(busy, 1.0, measured, "not known: a GPU of its own"),
    }


def _planned(value: Reading, unit: float, origin: str, unknown: str = "not known") -> Effect:
    if isinstance(value, Missing):
        return Effect(None, unknown)
    return Effect(value / unit, origin)


_OF_INSTANCE: Final = {
    "prompt_tokens": ("prompt_tokens", "not known", "not known"),
    "answer_tokens": ("answer_tokens", "not known", "not known"),
    "prefix_hit_ratio": ("hit_ratio", "none known", "not known"),
    "tp": ("tp", "fewest GPUs", "not known"),
    "pp": ("pp", "default", "not known"),
    "prefill_tokens_per_s": ("prefill_tokens_per_s", "roofline", "not known"),
}
"""Field -> attribute of the instance, the origin of a value that was not measured, and the words for none."""


def _of_instance(instance: Instance, measured: str) -> dict[str, Effect]:
    """Values of the instance; each was measured if what was seen has the same."""
    effects = dict[str, Effect]()
    for key, (attribute, otherwise, unknown) in _OF_INSTANCE.items():
        value = getattr(instance, attribute)
        if value is None:
            effects[key] = Effect(None, unknown)
        elif _has(instance.seen, key, value):
            effects[key] = Effect(value, measured)
        else:
            effects[key] = Effect(value, otherwise)
    return effects


def _has(seen: Observed | None, key: str, value: float) -> bool:
    """Whether the running instance has this value."""
    return seen is not None and bool(getattr(seen, key) == value)


def _precisions(instance: Instance, measured: str) -> dict[str, Effect]:
    """Number formats of weights and KV cache: of what was seen, else as the model was published."""
    llm = instance.llm
    published = {
        "weight_precision": llm.precision if llm is not None else None,
        "kv_precision": llm.kv_precision if llm is not None else None,
    }
    effects = dict[str, Effect]()
    for key, precision in published.items():
        running = getattr(instance.seen, key, "")
        if running:
            effects[key] = Effect(running, measured)
        else:
            effects[key] = Effect(precision.value if precision is not None else None, "as published")
    return effects


def _itl_tail(instance: Instance, measured: str) -> Effect:
    tail = instance.itl_tail
    if not tail.known:
        return Effect(instance.itl_tail_ratio, "not known: the mean")
    if tail.mean_s is not None:
        measured = f"{measured}, by load"
    return Effect(instance.itl_tail_ratio, measured)


def _kv_pool(instance: Instance, scenario: Scenario, measured: str) -> Effect:
    pool = kv_pool_tokens(instance, scenario)
    if pool is None:
        return Effect(None, "not known")
    tokens, source = pool
    return Effect(tokens, measured if source == "seen" else source)


def ages(scenario: Scenario, now_s: float) -> dict[int, str]:
    """Workloads that stand on figures of an engine that has none now -> how old they are."""
    old = dict[int, str]()
    for number, workload in enumerate(scenario.workload):
        seen = workload.seen
        if seen is None or seen.origin is not Origin.LIVE or workload.profile or not seen.time:
            continue
        age_s = _age_s(seen.time, now_s)
        if age_s > FROZEN_S:
            old[number] = age(age_s)
    return old


def _age_s(time: str, now_s: float) -> float:
    """Seconds since a time in ISO 8601; a text that is none is as old as can be."""
    try:
        return now_s - datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return now_s
