"""The value in effect of each field of a scenario, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.readings.missing import number
from gpumon.sizing.answer import Source, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_tokens
from gpumon.sizing.instance import Instance
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.scenario import Known, Scenario, Workload
from gpumon.tui.sizing.edits import Tie
from gpumon.tui.sizing.fields import GOALS, SERVER, WORKLOAD, Field, Place, default_of, holder, value_of

SEEN: Final = {Origin.LIVE: "measured", Origin.SWEEP: "sweep", Origin.TABLE: "table"}
SOURCES: Final = {
    Source.MEASURED: "measured",
    Source.SWEEP: "sweep",
    Source.RESCALED: "re-scaled",
    Source.ROOFLINE: "roofline",
    Source.TYPED: "typed",
    Source.NONE: "",
}


class Effect(NamedTuple):
    """A value (None: nothing is known of it) and who says so."""

    value: float | str | None
    origin: str


class Asked(NamedTuple):
    """What effects are worked out from; `instance` and `plan` are those of the workload that the place is about."""

    scenario: Scenario
    known: Known
    instance: Instance | None = None
    plan: WorkloadPlan | None = None
    begun: Scenario | None = None
    """What ran, of which servers and goals may be as they were."""
    configured: bool = False
    """Whether the servers of that were those of the settings."""
    ties: tuple[Tie, ...] = ()
    """What of each workload follows what runs."""


def effect(place: Place, asked: Asked) -> Effect:
    """What holds in a place."""
    typed = value_of(asked.scenario, place)
    if typed not in (None, ""):
        default = typed == default_of(place) and not place.field.optional
        return Effect(typed, _begun(place, asked) or ("default" if default else "typed"))
    if place.section == WORKLOAD:
        return _looked_up(place, asked)
    if place.section == SERVER:
        return _of_server(place, asked)
    return Effect(None, "no goal" if place.section == GOALS and place.field.key.endswith("_p95_ms") else "not asked")


def _begun(place: Place, asked: Asked) -> str:
    """Where a value comes from that is as it runs, or as the settings have it; empty where it is another."""
    of, begun, key = holder(asked.scenario, place.section, place.at), asked.begun, place.field.key
    if of is None or key not in _BEGUN[place.section]:
        return ""
    if isinstance(of, Workload):
        return "as it runs" if asked.ties and asked.ties[place.at].follows(of) else ""
    if begun is None:
        return ""
    before = holder(begun, place.section, place.at)
    same = before is not None and getattr(before, key) == getattr(of, key)
    same = same and (key != "gpus" or getattr(before, "gpu", "") == getattr(of, "gpu", ""))
    if not same:
        return ""
    return "as seen" if place.section == SERVER and not asked.configured else "config"


_BEGUN: Final = {
    WORKLOAD: ("target",),
    SERVER: ("gpu", "gpus"),
    GOALS: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
}
"""Fields that are filled in from what runs, and from the settings."""


def _of_server(place: Place, asked: Asked) -> Effect:
    key = place.field.key
    if key == "price_per_gpu_hour" and place.at < len(asked.scenario.server):
        price = asked.known.prices.get(asked.scenario.server[place.at].gpu)
        return Effect(price, "config" if price is not None else "no price")
    return Effect(None, "measured, else the board's limit" if key == "gpu_power_w" else "")


def _looked_up(place: Place, asked: Asked) -> Effect:
    key = place.field.key
    if hasattr(asked.scenario, key):  # goals and spares have a value for all workloads
        value = getattr(asked.scenario, key)
        return Effect(value, "of all workloads" if value is not None else "no goal")
    found = _LOOK_UPS.get(key)
    if found is None or asked.instance is None:
        return Effect(None, "")
    return found(asked.instance, asked, place.field)


def _seen(seen: Observed | None) -> str:
    return SEEN[seen.origin] if seen is not None else ""


def _from_instance(attribute: str, otherwise: str) -> Callable[[Instance, Asked, Field], Effect]:
    """A value of the instance; it was seen if what was seen has the same."""

    def look(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
        value = getattr(instance, attribute)
        if not value and value != 0.0:
            return Effect(None, "not known")
        seen = instance.seen
        same = seen is not None and getattr(seen, field.key, None) == value
        return Effect(value, _seen(seen) if same else otherwise)

    return look


def _tail(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    """p95 / mean of the ITL, where the goal is met if it follows the load."""
    if not instance.itl_tail.known:
        return Effect(instance.itl_tail_ratio, "not known: the mean")
    by_load = ", by load" if instance.itl_tail.mean_s is not None else ""
    return Effect(instance.itl_tail_ratio, f"{_seen(instance.seen)}{by_load}")


def _capacity(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    plan = asked.plan
    value = number(plan.capacity_per_instance) if plan is not None else None
    return Effect(value, SOURCES[plan.source] if plan is not None and value is not None else "not known")


def _memory(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    size = number(asked.plan.memory_bytes) if asked.plan is not None else None
    if size is None or asked.plan is None:
        return Effect(None, "not known")
    return Effect(size / 1e9, asked.plan.memory_source)


def _busy(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    busy = number(asked.plan.busy_ratio) if asked.plan is not None else None
    return Effect(busy, _seen(instance.seen) if busy is not None else "not known: a GPU of its own")


def _pool(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    pool = kv_pool_tokens(instance, asked.scenario)
    if pool is None:
        return Effect(None, "not known")
    return Effect(pool[0], _seen(instance.seen) if pool[1] == "seen" else pool[1])


def _most_sequences(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    value = instance.seen.max_num_seqs if instance.seen is not None else None
    return Effect(value, _seen(instance.seen) if value is not None else "no limit known")


def _weights(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    seen = instance.seen.weight_precision if instance.seen is not None else ""
    if seen:
        return Effect(seen, _seen(instance.seen))
    return Effect(instance.llm.precision.value if instance.llm is not None else None, "as published")


def _cache(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    seen = instance.seen.kv_precision if instance.seen is not None else ""
    if seen:
        return Effect(seen, _seen(instance.seen))
    return Effect(instance.llm.kv_precision.value if instance.llm is not None else None, "as published")


def _drafted(instance: Instance, asked: Asked, field: Field) -> Effect:  # noqa: ARG001
    """What an engine drafted while it was seen is in its latency, and so in effect."""
    seen = instance.seen
    if seen is None or not seen.tokens_per_step or seen.tokens_per_step <= 1.0 or instance.source is Source.ROOFLINE:
        return Effect(1.0, "no speculation")
    return Effect(seen.tokens_per_step, _seen(seen))


def _always(value: float, origin: str) -> Callable[[Instance, Asked, Field], Effect]:
    return lambda instance, asked, field: Effect(value, origin)  # noqa: ARG005


_LOOK_UPS: Final[dict[str, Callable[[Instance, Asked, Field], Effect]]] = {
    "capacity_per_instance": _capacity,
    "prompt_tokens": _from_instance("prompt_tokens", "not known"),
    "answer_tokens": _from_instance("answer_tokens", "not known"),
    "prefix_hit_ratio": _from_instance("hit_ratio", "none known"),
    "tp": _from_instance("tp", "least that holds it"),
    "pp": _from_instance("pp", "default"),
    "weight_precision": _weights,
    "kv_precision": _cache,
    "memory_gb": _memory,
    "busy_ratio": _busy,
    "itl_tail_ratio": _tail,
    "kv_pool_tokens": _pool,
    "max_num_seqs": _most_sequences,
    "prefill_tokens_per_s": _from_instance("prefill_tokens_per_s", "roofline"),
    "tokens_per_step": _drafted,
    "draft_ratio": _always(0.0, "no speculation"),
    "profile": lambda instance, asked, field: Effect(None, "none"),  # noqa: ARG005
}
