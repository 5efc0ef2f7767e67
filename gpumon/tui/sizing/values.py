"""The value in effect of each field of a scenario, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_KNOWN, Source, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_tokens
from gpumon.sizing.instance import Instance
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.fields import GOALS, SERVER, WORKLOAD, Place, default_of, holder, value_of

if TYPE_CHECKING:
    from gpumon.tui.sizing.state import Calculation, Version

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
    GOALS: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
}
"""Fields that are filled in from what runs, and from the settings."""


class Effect(NamedTuple):
    """A value (None: nothing is known of it) and where it comes from."""

    value: float | str | None
    origin: str


def effect(place: Place, version: Version, calculation: Calculation) -> Effect:
    """The value that a place has in a version of the scenario."""
    scenario, key = version.scenario, place.field.key
    typed = value_of(scenario, place)
    if typed not in (None, ""):
        default = typed == default_of(place) and not place.field.optional
        return Effect(typed, _started(place, version, calculation.configured) or ("default" if default else "typed"))
    if place.section == GOALS:
        return Effect(None, "no goal" if key.endswith("_p95_ms") else "not asked")
    if place.section == SERVER:
        if key == "price_per_gpu_hour" and place.at < len(scenario.server):
            price = calculation.known.prices.get(scenario.server[place.at].gpu)
            return Effect(price, "config" if price is not None else "no price")
        return Effect(None, "measured, else the board's limit" if key == "gpu_power_w" else "")
    if hasattr(scenario, key):  # goals and spares have a value for all workloads
        value = getattr(scenario, key)
        return Effect(value, "of all workloads" if value is not None else "no goal")
    instance = calculation.instance(place.at)
    if instance is None:
        return Effect(None, "")
    return _looked_up(instance, calculation.plan(place.at), scenario).get(key, Effect(None, ""))


def _started(place: Place, version: Version, configured: bool) -> str:
    """Where a value comes from that nobody changed since the panel was filled in; empty where it was changed."""
    of, key = holder(version.scenario, place.section, place.at), place.field.key
    if of is None or key not in _STARTED[place.section]:
        return ""
    if isinstance(of, Workload):
        return version.follows[place.at].target_of(of) if version.follows else ""
    before = holder(version.started, place.section, place.at) if version.started is not None else None
    same = before is not None and getattr(before, key) == getattr(of, key)
    if not same or (key == "gpus" and getattr(before, "gpu", "") != getattr(of, "gpu", "")):
        return ""
    return "as seen" if place.section == SERVER and not configured else "config"


def _looked_up(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> dict[str, Effect]:
    """What a workload has where nothing was typed: of the engine that was seen, of the plan, or of the formulas."""
    seen, llm, tail = instance.seen, instance.llm, instance.itl_tail
    measured = SEEN[seen.origin] if seen is not None else ""

    def own(key: str, value: float | None, otherwise: str, unknown: str = "not known") -> Effect:
        """A value of the instance; it was measured if what was seen has the same."""
        if not value and value != 0.0:
            return Effect(None, unknown)
        return Effect(value, measured if seen is not None and getattr(seen, key) == value else otherwise)

    def planned(value: Reading, unit: float, origin: str, unknown: str = "not known") -> Effect:
        return Effect(None, unknown) if isinstance(value, Missing) else Effect(value / unit, origin)

    def precision(key: str, published: Any) -> Effect:
        told = getattr(seen, key, "")
        return Effect(told, measured) if told else Effect(published and published.value, "as published")

    pool = kv_pool_tokens(instance, scenario)
    by_load = ", by load" if tail.mean_s is not None else ""
    capacity = plan.capacity_per_instance if plan is not None else NOT_KNOWN
    memory, busy = (plan.memory_bytes, plan.busy_ratio) if plan is not None else (NOT_KNOWN, NOT_KNOWN)
    most = seen.max_num_seqs if seen is not None else None
    return {
        "capacity_per_instance": planned(capacity, 1.0, SOURCES[plan.source] if plan is not None else ""),
        "prompt_tokens": own("prompt_tokens", instance.prompt_tokens, "not known"),
        "answer_tokens": own("answer_tokens", instance.answer_tokens, "not known"),
        "prefix_hit_ratio": own("prefix_hit_ratio", instance.hit_ratio, "none known"),
        "tp": own("tp", instance.tp, "fewest GPUs"),
        "pp": own("pp", instance.pp, "default"),
        "weight_precision": precision("weight_precision", llm and llm.precision),
        "kv_precision": precision("kv_precision", llm and llm.kv_precision),
        "memory_gb": planned(memory, 1e9, plan.memory_source if plan is not None else ""),
        "busy_ratio": planned(busy, 1.0, measured, "not known: a GPU of its own"),
        "itl_tail_ratio": Effect(
            instance.itl_tail_ratio, f"{measured}{by_load}" if tail.known else "not known: the mean"
        ),
        "kv_pool_tokens": Effect(pool[0], measured if pool[1] == "seen" else pool[1])
        if pool is not None
        else Effect(None, "not known"),
        "max_num_seqs": Effect(most, measured if most is not None else "no limit known"),
        "prefill_tokens_per_s": own("prefill_tokens_per_s", instance.prefill_tokens_per_s, "roofline"),
        "profile": Effect(None, "none"),
    }
