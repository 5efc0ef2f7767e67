"""The value in effect of each field of the sizing panel, and where it comes from."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from gpumon.readings.format import DASH, age, seconds
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_KNOWN, Basis, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_of
from gpumon.sizing.document.workload import SOURCE_WORDS
from gpumon.sizing.engine_limits import planned_slots
from gpumon.sizing.goals import judged_goal
from gpumon.sizing.instance import Instance
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import GOAL_NAMES, Scenario, Server, Workload
from gpumon.tui.sizing.calculation import Calculation
from gpumon.tui.sizing.fields import (
    GOALS,
    SERVER,
    WORKLOAD,
    FieldPlace,
    Value,
    default_of,
    row_struct,
    typed_value,
)
from gpumon.tui.sizing.versions import Version

FROZEN_S: Final = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""
ORIGIN_WORDS: Final = {Origin.LIVE: "measured", Origin.SWEEP: "sweep", Origin.TABLE: "table"}
"""Words for where figures of an instance were seen."""
_FILLED_IN: Final = {
    WORKLOAD: ("target",),
    SERVER: ("gpu", "gpus"),
    GOALS: GOAL_NAMES,
}
"""Section -> its fields that are filled in from what runs, and from the settings, when the panel is opened."""
_INSTANCE_FIELDS: Final = {
    "prompt_tokens": ("prompt_tokens", "not known"),
    "answer_tokens": ("answer_tokens", "not known"),
    "prefix_hit_ratio": ("hit_ratio", "none known"),
    "tp": ("tp", "fewest GPUs"),
    "pp": ("pp", "fewest GPUs"),
    "dp": ("dp", "fewest GPUs"),
    "prefill_tokens_per_s": ("prefill_tokens_per_s", "roofline"),
}
"""Field -> attribute of the instance, and the origin of a value that was not measured."""


class EffectiveValue(NamedTuple):
    """A value and where it comes from."""

    value: Value
    """None where there is none."""
    origin: str
    """The origin in words; without a value, why there is none."""


def _no_value(why: str) -> EffectiveValue:
    """The effective value of a field that has none."""
    return EffectiveValue(None, why)


def effective_value(place: FieldPlace, version: Version, calculation: Calculation) -> EffectiveValue:
    """The value that a place has in a version of the scenario, and its origin."""
    value = typed_value(version.scenario, place)
    if value not in (None, ""):
        return EffectiveValue(value, _origin(place, version, calculation, value))
    if place.section == GOALS:
        return _no_value("no goal" if place.field.key in GOAL_NAMES else "not asked")
    if place.section == SERVER:
        return _server_value(place, version.scenario, calculation)
    return _workload_value(place, version.scenario, calculation)


def _origin(place: FieldPlace, version: Version, calculation: Calculation, value: Value) -> str:
    """Origin of a value that the scenario has."""
    filled_in_from = _filled_in_from(place, version, has_configured_servers=calculation.has_configured_servers)
    if filled_in_from:
        return filled_in_from
    if value == default_of(place) and not place.field.optional:
        return "default"
    return "typed"


def _filled_in_from(place: FieldPlace, version: Version, *, has_configured_servers: bool) -> str:
    """Origin of a value that nobody changed since the panel was filled in; empty where somebody did."""
    row = row_struct(version.scenario, place.section, place.number)
    if row is None or place.field.key not in _FILLED_IN[place.section]:
        return ""
    if isinstance(row, Workload):
        if version.follows:
            return version.follows[place.number].target_source(row)
        return ""
    if version.started is None or not _is_unchanged(place, version.started, row):
        return ""
    if place.section == SERVER and not has_configured_servers:
        return "detected"
    return "config"


def _is_unchanged(place: FieldPlace, started: Scenario, row: Scenario | Server) -> bool:
    """Whether a value is that of the start; the same number of GPUs of another type is another value."""
    row_at_start = row_struct(started, place.section, place.number)
    if row_at_start is None or getattr(row_at_start, place.field.key) != getattr(row, place.field.key):
        return False
    if isinstance(row_at_start, Server) and isinstance(row, Server):
        return row_at_start.gpu == row.gpu
    return True


def _server_value(place: FieldPlace, scenario: Scenario, calculation: Calculation) -> EffectiveValue:
    """The value of a field of a server that the scenario leaves open."""
    if place.field.key == "gpu_power_w":
        return _no_value("measured, else the board's limit")
    if place.field.key == "network":
        return _no_value("the usual one")
    if place.field.key != "price_per_gpu_hour" or place.number >= len(scenario.server):
        return _no_value("")
    price = calculation.catalogues.price(scenario.server[place.number].gpu)
    return EffectiveValue(price, "no price" if price is None else "config")


def _workload_value(place: FieldPlace, scenario: Scenario, calculation: Calculation) -> EffectiveValue:
    """The value of a field of a workload that the scenario leaves open."""
    key = place.field.key
    if hasattr(scenario, key):  # goals and spares, which have a value for all workloads, too
        value = getattr(scenario, key)
        if value is None:
            return _no_value("no goal")
        return EffectiveValue(value, "of all workloads")
    instance = calculation.instance(place.number)
    if instance is None:
        return _no_value("")
    return _looked_up_values(instance, calculation.plan(place.number), scenario).get(key, _no_value(""))


def _looked_up_values(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> dict[str, EffectiveValue]:
    """Field of a workload -> its value where nobody typed one: of the engine that was seen, of the plan, or of the
    formulas."""
    seen = instance.seen
    measured = ""
    max_num_seqs = _no_value("no limit known")
    if seen is not None:
        measured = ORIGIN_WORDS[seen.origin]
    pool = kv_pool_of(instance, scenario)
    slots = planned_slots(instance, pool.tokens if pool is not None else None)
    if slots is not None:
        max_num_seqs = EffectiveValue(slots.value, "default" if slots.is_default else measured)
    return {
        **_plan_values(plan, measured),
        **_instance_values(instance, measured),
        **_precision_values(instance, measured),
        "itl_tail_ratio": _itl_tail_value(instance, measured),
        "kv_pool_tokens": _kv_pool_value(instance, scenario, measured),
        "max_num_seqs": max_num_seqs,
        "profile": _no_value("none"),
    }


def _plan_values(plan: WorkloadPlan | None, measured: str) -> dict[str, EffectiveValue]:
    """Capacity, memory and busy share as the answer has them; `measured`: the word for what was seen."""
    capacity: Reading = NOT_KNOWN
    memory: Reading = NOT_KNOWN
    busy: Reading = NOT_KNOWN
    source = ""
    memory_source = ""
    if plan is not None:
        capacity = plan.capacity_per_instance
        memory = plan.memory_bytes
        busy = plan.busy_ratio
        source = SOURCE_WORDS[plan.source]
        memory_source = plan.memory_source
    return {
        "capacity_per_instance": _reading_value(capacity, source),
        "memory_gb": _reading_value(memory, memory_source, unit=1e9),
        "busy_ratio": _reading_value(busy, measured, unknown="not known: a GPU of its own"),
    }


def _reading_value(value: Reading, origin: str, *, unit: float = 1.0, unknown: str = "not known") -> EffectiveValue:
    """A reading divided by the unit of its field; where it is missing, `unknown` is said instead of its origin."""
    if isinstance(value, Missing):
        return _no_value(unknown)
    return EffectiveValue(value / unit, origin)


def _instance_values(instance: Instance, measured: str) -> dict[str, EffectiveValue]:
    """Values of the instance; each was measured if what was seen has the same."""
    values = dict[str, EffectiveValue]()
    for key, (attribute, otherwise) in _INSTANCE_FIELDS.items():
        value = getattr(instance, attribute)
        if value is None:
            values[key] = _no_value("not known")
        elif instance.seen is not None and getattr(instance.seen, key, None) == value:
            values[key] = EffectiveValue(value, measured)
        else:
            values[key] = EffectiveValue(value, otherwise)
    return values


def _precision_values(instance: Instance, measured: str) -> dict[str, EffectiveValue]:
    """Number formats of weights and KV cache: of what was seen, else as the model was published."""
    llm = instance.llm
    published = {
        "weight_precision": llm.precision if llm is not None else None,
        "kv_precision": llm.kv_precision if llm is not None else None,
    }
    values = dict[str, EffectiveValue]()
    for key, precision in published.items():
        seen_precision = getattr(instance.seen, key, "")
        if seen_precision:
            values[key] = EffectiveValue(seen_precision, measured)
        else:
            values[key] = EffectiveValue(precision.value if precision is not None else None, "as published")
    return values


def _itl_tail_value(instance: Instance, measured: str) -> EffectiveValue:
    """The p95 of the ITL over its mean."""
    tail = instance.itl_tail
    if not tail.known:
        return EffectiveValue(instance.itl_tail_ratio, "not known: the mean")
    if tail.mean_s is not None:
        return EffectiveValue(instance.itl_tail_ratio, f"{measured}, by load")
    return EffectiveValue(instance.itl_tail_ratio, measured)


def _kv_pool_value(instance: Instance, scenario: Scenario, measured: str) -> EffectiveValue:
    """Tokens that the KV cache of an instance holds."""
    pool = kv_pool_of(instance, scenario)
    if pool is None:
        return _no_value("not known")
    return EffectiveValue(pool.tokens, measured if pool.source == "seen" else pool.source)


def ages_of_frozen(scenario: Scenario, now_s: float) -> dict[int, str]:
    """Number of a workload that stands on figures of an engine that has none now -> how old these are."""
    ages = dict[int, str]()
    for number, workload in enumerate(scenario.workload):
        seen = workload.seen
        if seen is None or seen.origin is not Origin.LIVE or workload.profile or not seen.time:
            continue
        age_s = _age_s(seen.time, now_s)
        if age_s > FROZEN_S:
            ages[number] = age(age_s)
    return ages


def _age_s(time: str, now_s: float) -> float:
    """Seconds from a time in ISO 8601 to `now_s` (Unix time); a text that is no time is as old as the epoch."""
    try:
        return now_s - datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return now_s


def judged_text(plan: WorkloadPlan, name: str) -> str:
    """The figure that a goal judges; dots while it is simulated, a dash where there is no such goal."""
    goal = judged_goal(plan, name)
    if goal is None:
        return DASH
    return "…" if goal.basis is Basis.PENDING else seconds(goal.value_s)
