"""The value in effect of each field of a scenario, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.readings.missing import Missing, Reading, number
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
        started = _started(place, version, calculation.configured)
        return Effect(typed, started or ("default" if default else "typed"))
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
    if instance is None or key not in _LOOK_UPS:
        return Effect(None, "")
    return _LOOK_UPS[key](instance, calculation.plan(place.at), scenario)


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


_Look = Callable[[Instance, "WorkloadPlan | None", Scenario], Effect]


def _seen(instance: Instance) -> str:
    return SEEN[instance.seen.origin] if instance.seen is not None else ""


def _instance(attribute: str, key: str, otherwise: str) -> _Look:
    """A value of the instance; it was measured if what was seen has the same."""

    def look(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
        value = getattr(instance, attribute)
        if not value and value != 0.0:
            return Effect(None, "not known")
        same = instance.seen is not None and getattr(instance.seen, key, None) == value
        return Effect(value, _seen(instance) if same else otherwise)

    return look


def _plan(attribute: str, unit: float, origin: Callable[[WorkloadPlan, Instance], str], otherwise: str) -> _Look:
    """A figure of the answer for the workload."""

    def look(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
        reading: Reading = getattr(plan, attribute) if plan is not None else NOT_KNOWN
        if plan is None or isinstance(reading, Missing):
            return Effect(None, otherwise)
        return Effect(number(reading / unit), origin(plan, instance))

    return look


def _precision(seen: str, llm: str) -> _Look:
    """A number format: of the engine that was seen, else of the model as published."""

    def look(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
        measured = getattr(instance.seen, seen) if instance.seen is not None else ""
        if measured:
            return Effect(measured, _seen(instance))
        return Effect(getattr(instance.llm, llm).value if instance.llm is not None else None, "as published")

    return look


def _tail(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
    """p95 / mean of the ITL, where the goal is met if it follows the load."""
    if not instance.itl_tail.known:
        return Effect(instance.itl_tail_ratio, "not known: the mean")
    by_load = ", by load" if instance.itl_tail.mean_s is not None else ""
    return Effect(instance.itl_tail_ratio, f"{_seen(instance)}{by_load}")


def _pool(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
    pool = kv_pool_tokens(instance, scenario)
    if pool is None:
        return Effect(None, "not known")
    return Effect(pool[0], _seen(instance) if pool[1] == "seen" else pool[1])


def _max_num_seqs(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
    value = instance.seen.max_num_seqs if instance.seen is not None else None
    return Effect(value, _seen(instance) if value is not None else "no limit known")


def _speculation(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> Effect:  # noqa: ARG001
    """What an engine drafted while it was seen is in its latency, and so in effect."""
    seen = instance.seen
    if seen is None or not seen.tokens_per_step or seen.tokens_per_step <= 1.0 or instance.source is Source.ROOFLINE:
        return Effect(1.0, "no speculation")
    return Effect(seen.tokens_per_step, _seen(instance))


_LOOK_UPS: Final[dict[str, _Look]] = {
    "capacity_per_instance": _plan("capacity_per_instance", 1.0, lambda plan, _: SOURCES[plan.source], "not known"),
    "prompt_tokens": _instance("prompt_tokens", "prompt_tokens", "not known"),
    "answer_tokens": _instance("answer_tokens", "answer_tokens", "not known"),
    "prefix_hit_ratio": _instance("hit_ratio", "prefix_hit_ratio", "none known"),
    "tp": _instance("tp", "tp", "fewest GPUs"),
    "pp": _instance("pp", "pp", "default"),
    "weight_precision": _precision("weight_precision", "precision"),
    "kv_precision": _precision("kv_precision", "kv_precision"),
    "memory_gb": _plan("memory_bytes", 1e9, lambda plan, _: plan.memory_source, "not known"),
    "busy_ratio": _plan("busy_ratio", 1.0, lambda _, instance: _seen(instance), "not known: a GPU of its own"),
    "itl_tail_ratio": _tail,
    "kv_pool_tokens": _pool,
    "max_num_seqs": _max_num_seqs,
    "prefill_tokens_per_s": _instance("prefill_tokens_per_s", "prefill_tokens_per_s", "roofline"),
    "tokens_per_step": _speculation,
    "draft_ratio": lambda *_: Effect(0.0, "no speculation"),
    "profile": lambda *_: Effect(None, "none"),
}
