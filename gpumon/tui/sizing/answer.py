"""The answer in words: what is needed, what is here, what limits an instance, and what one has to know."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.efficiency.service import model_key
from gpumon.readings.format import cells, count, seconds, watts
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import NOT_KNOWN, Answer, LimitKind, Source, WorkloadPlan
from gpumon.sizing.profile import Origin
from gpumon.sizing.running import running_instances, runs_text
from gpumon.sizing.scenario import Workload
from gpumon.tui.fold import folded
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.sizing.effects import SOURCES, effect
from gpumon.tui.sizing.fields import WORKLOAD, FieldPlace, field, with_field_names
from gpumon.tui.sizing.table import GOAL_KEYS, Scene, whole_count

_LIMITS: Final = {
    LimitKind.TYPED.value: "as typed",
    LimitKind.RANGE.value: "the most that was measured",
    LimitKind.KNEE.value: "the knee of the sweep",
}
"""Origin of a capacity that is not called a limit of some kind."""
_PLANNED_WITH: Final = ("tp", "pp", "weight_precision", "kv_precision")


def need(scene: Scene) -> list[Row]:
    """Needed and here: always in view."""
    answer = scene.state.calculation.answer
    width = scene.width
    tone = scene.tone
    if answer is None:
        return [((" need   …", "muted"),)]
    rows = _why_not(scene, answer)
    if rows and not answer.without:
        return [((" need   no answer", tone("critical")),), *rows, *_have(scene, answer)]
    without = ""
    if answer.without:
        without = f"without {len(answer.without)} of {len(answer.workloads)}: "
    totals = _side_by_side(_totals(answer), width - 9 - cells(without))
    label = " need   "
    if scene.state.stale:
        label = " was    "
    needed: Row = (
        (label, tone("muted")),
        (without, tone("critical")),
        (totals[0] if totals else "", tone("strong")),
    )
    return [needed, *_types(scene, answer), *rows, *_have(scene, answer)]


def _totals(answer: Answer) -> list[str]:
    """GPUs, servers, memory, prices and power of the whole plan, as far as they are known."""
    totals = answer.totals_without if answer.without else answer.totals
    parts = [_number(totals.gpus, "GPU"), _number(totals.servers, "server"), _memory(totals.memory_bytes)]
    if not isinstance(totals.price_per_hour, Missing):
        parts.append(f"{totals.price_per_hour:,.2f} per hour")
    if not isinstance(totals.power_w, Missing):
        parts.append(f"{watts(totals.power_w)} ({_power_basis(answer)})")
    if not isinstance(totals.price_per_mtok, Missing):
        parts.append(f"{totals.price_per_mtok:,.2f} per 1M tokens")
    return [part for part in parts if part]


def _power_basis(answer: Answer) -> str:
    """The origin of the total power."""
    sources = answer.power_sources
    if sources == {"limit"}:
        return "the boards' limit, at most"
    if "limit" in sources:
        return "in part the boards' limit"
    return "typed" if sources == {"typed"} else "measured"


def _types(scene: Scene, answer: Answer) -> list[Row]:
    """The need for each of several types of GPU, and the extra cost of the order of the servers."""
    packed = answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware
    parts = []
    for share in packed.by_gpu:
        servers = _number(float(share.servers), "server")
        parts.append(f"{whole_count(float(share.gpus))} {clean(share.gpu, 40)} in {servers}")
    saving = packed.saving_per_hour
    if not isinstance(saving, Missing) and saving > 0:
        parts.append(f"{saving:,.2f} per hour less than in this order")
    elif len(parts) < 2:
        return []
    return _labelled(scene, " of     ", *parts)


def _why_not(scene: Scene, answer: Answer) -> list[Row]:
    """The reason why a workload has no answer: the one under the cursor, else the first; the others by name."""
    if not answer.problem:
        return []
    under_cursor = _plan_under_cursor(scene)
    chosen = _first_problem(under_cursor, answer)
    # Where the cursor is on another row, that row's figures have the lines.
    most = 3
    if answer.without and under_cursor is not None and not under_cursor.problem:
        most = 1
    tone = scene.tone("critical")
    rows = wrap_line(clean(with_field_names(_reason(chosen, answer)), 400), scene.width, tone, most=most)
    others = [_short(name) for name in answer.without if chosen is None or name != chosen.name]
    if others:
        rows += wrap_line(clean(f"also without {', '.join(others)}", 400), scene.width, tone, most=2)
    return rows


def _plan_under_cursor(scene: Scene) -> WorkloadPlan | None:
    """The plan of the workload under the cursor; None on another row."""
    stop = scene.state.stop
    if stop.section == WORKLOAD:
        return scene.state.calculation.plan(stop.number)
    return None


def _reason(chosen: WorkloadPlan | None, answer: Answer) -> str:
    """The problem of the chosen workload behind its name; that of the whole plan if none is chosen."""
    if chosen is None:
        return answer.problem
    if answer.without:
        return f"without {_short(chosen.name)}: {chosen.problem}"
    return f"{chosen.name}: {chosen.problem}"


def _first_problem(under_cursor: WorkloadPlan | None, answer: Answer) -> WorkloadPlan | None:
    """The workload under the cursor if it has a problem, else the first one that has."""
    if under_cursor is not None and under_cursor.problem:
        return under_cursor
    for plan in answer.workloads:
        if plan.problem:
            return plan
    return None


def _short(name: str) -> str:
    """Without the organisation."""
    return name.rpartition("/")[2] or name


def _have(scene: Scene, answer: Answer) -> list[Row]:
    """The GPUs that are here, whether they are enough, and what uses them."""
    have = answer.have
    if have is None:
        return []
    lacks = not isinstance(have.short_gpus, Missing) and have.short_gpus > 0
    here = "no GPU"
    if have.gpus:
        here = _number(float(have.gpus), "GPU")
    if have.gpu:
        here += f" {clean(have.gpu, 40)}"
    text = clean(with_field_names(have.text), 120)
    tone = scene.tone("warn" if lacks else "ok")
    row: Row = ((" have   ", scene.tone("muted")), (f"{here}  ", scene.tone("text")))
    others = scene.state.calculation.here.in_use
    if others:
        in_use = _labelled(scene, " " * 8, ", ".join(others))
    else:
        in_use = []
    if cells(here) + cells(text) + 11 <= scene.width:
        return [(*row, (text, tone)), *in_use]
    return [row, *wrap_line(text, scene.width, tone, most=2), *in_use]


def about(scene: Scene) -> list[Row]:
    """The facts about the chosen workload, the most important first."""
    state = scene.state
    plan = state.calculation.plan(state.workload_number)
    rows = [*_other_packing(scene), *_planned_with(scene)]
    if plan is None or plan.problem:
        return rows
    return [
        *rows,
        *_takes(scene, plan),
        *_limit(scene, plan),
        *_carries(scene, plan),
        *_load(scene, plan),
        *_source(scene, plan),
        *_split(scene, plan),
        *_degraded(scene, plan),
        *_runs(scene, plan),
    ]


def _degraded(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The instances that are left once a GPU, or a server, is lost."""
    rows: list[Row] = []
    for degraded in plan.degraded:
        text = f"one {degraded.lost} lost"
        if degraded.instances:
            text += f", {degraded.instances} left"
        text += f": {clean(with_field_names(degraded.text), 160)}"
        rows += wrap_line(text, scene.width, scene.tone("text"), 2)
    return rows


def answer_notes(scene: Scene) -> list[Row]:
    """Warnings, then what one has to know about the chosen workload."""
    answer = scene.state.calculation.answer
    if answer is None:
        return []
    plan = scene.state.calculation.plan(scene.state.workload_number)
    texts = [(clean(with_field_names(text), 300), "warn") for text in answer.warnings]
    if plan is not None:
        texts += [(clean(with_field_names(text), 300), "muted") for text in plan.notes]
    rows: list[Row] = []
    for text, tone in dict.fromkeys(texts):
        rows += wrap_line(text, scene.width, scene.tone(tone))
    return rows


def _other_packing(scene: Scene) -> list[Row]:
    """The plan by the other packing rule, where it differs."""
    answer = scene.state.calculation.answer
    if answer is None or answer.problem:
        return []
    if answer.packing == "memory":
        mine = answer.plans.memory_only
        other = answer.plans.busy_aware
        name = " by memory and busy share "
    else:
        mine = answer.plans.busy_aware
        other = answer.plans.memory_only
        name = " by memory alone "
    if other.problem or (other.gpus, other.servers) == (mine.gpus, mine.servers):
        return []
    return _labelled(scene, name, f"{_number(other.gpus, 'GPU')}, {_number(other.servers, 'server')}")


def _planned_with(scene: Scene) -> list[Row]:
    """TP, weights and KV cache in effect of the chosen workload, what of it was typed, and its goals."""
    state = scene.state
    if state.workload_number >= len(state.scenario.workload):
        return []
    parts = _settings_in_effect(scene)
    plan = state.calculation.plan(state.workload_number)
    if plan is not None and plan.dp > 1:
        parts.append(f"DP {plan.dp}")
    if plan is not None and plan.tokens_per_step > 1.0:
        parts.append(f"{plan.tokens_per_step:.3g} tokens per step")
    goals = _own_goals(state.scenario.workload[state.workload_number])
    if goals:
        parts.append(f"own goal {', '.join(goals)}")
    if parts:
        return _labelled(scene, " with   ", *parts, between=" · ")
    return []


def _settings_in_effect(scene: Scene) -> list[str]:
    """Fields of the chosen workload with their values in effect: `TP 4 typed`; a PP of 1 is not worth saying."""
    state = scene.state
    parts = []
    for key in _PLANNED_WITH:
        place = FieldPlace(WORKLOAD, state.workload_number, field(WORKLOAD, key))
        value, origin = effect(place, state.version, state.calculation)
        if not value or (key == "pp" and value == 1):
            continue
        text = f"{place.field.name} {clean(place.field.shown(value), 20)}"
        if origin == "typed":
            text += " typed"
        parts.append(text)
    return parts


def _own_goals(workload: Workload) -> list[str]:
    """The goals that a workload has for itself."""
    goals: list[str] = []
    for key in GOAL_KEYS:
        goal = field(WORKLOAD, key)
        value = getattr(workload, goal.key)
        if value:
            goals.append(f"{goal.name} ≤ {goal.shown(value)}")
    return goals


def _takes(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """GPUs and servers of one of several workloads, and whether it shares these."""
    servers = plan.servers
    shared = plan.servers_shared
    if len(scene.state.scenario.workload) < 2 or isinstance(servers, Missing) or isinstance(shared, Missing):
        return []
    if shared == servers:
        whose = "shared"
    else:
        whose = f"{whole_count(shared)} of them shared"
    if shared:
        whose = f"{whose} with other models*"
    else:
        whose = "of its own"
    return _labelled(scene, " takes  ", f"{_number(plan.gpus, 'GPU')} in {_number(servers, 'server')}, {whose}")


def _limit(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The first limit and the next one, with where each holds."""
    if not plan.limit:
        return []
    text = f"{_limit_with_load(plan, plan.limit)} per instance"
    if plan.next_limit:
        text += f", then {_limit_with_load(plan, plan.next_limit)}"
    return _labelled(scene, " first limit ", text)


def _limit_with_load(plan: WorkloadPlan, kind: str) -> str:
    """A limit, and the requests in flight at which it holds: `KV cache at 48`."""
    for limit in plan.limits:
        if limit.kind.value == kind:
            if limit.concurrency >= 1:
                return f"{kind} at {whole_count(limit.concurrency)}"
            return kind
    return kind


def _carries(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """How much more would fit into the same instances."""
    per_instance = plan.capacity_per_instance
    instances = plan.instances
    target = plan.concurrency
    if isinstance(per_instance, Missing) or isinstance(instances, Missing) or isinstance(target, Missing):
        return []
    here, kv_ratio = _running_here(scene)
    needed = max(0.0, instances - plan.spares)
    most = per_instance * (here or needed)
    if not math.isfinite(most) or not math.isfinite(target):
        return []
    more = math.floor(most + 1e-6) - math.ceil(target - 1e-6)
    room = f"{_share(scene, plan, per_instance)}: {_room_for(more)}"
    if more >= 0 and kv_ratio is not None and kv_ratio >= KV_SHARE:
        room = f": {_above(more)}, but KV here is {kv_ratio * 100:.0f} % full now"
    label, verb = _instances_carry(here or round(needed), here=bool(here))
    # A target that is no number of requests in flight would be taken for one of the same unit.
    unit = ""
    if plan.target_kind != "concurrency":
        unit = " in flight"
    return _labelled(scene, label, f"{verb} {whole_count(most)}{unit}{room}")


def _instances_carry(number: int, *, here: bool) -> tuple[str, str]:
    """The instances that run here, or are needed, as a label, and the verb that follows."""
    place = "here" if here else "needed"
    if number == 1:
        return f" 1 instance {place} ", "carries"
    return f" {number:,} instances {place} ", "carry"


def _above(more: int) -> str:
    """Requests in flight that are carried above the target."""
    if more:
        return f"{more:,} above the target"
    return "just the target"


def _room_for(more: int) -> str:
    """Requests in flight that fit above the target; below 0 those that do not fit."""
    if more > 0:
        return f"room for {more:,} more"
    if more < 0:
        return f"short of {-more:,}"
    return "no room for more"


def _running_here(scene: Scene) -> tuple[int, float | None]:
    """Instances that run here as they are planned, and how full the fullest KV cache of them is."""
    calculation = scene.state.calculation
    instance = calculation.instance(scene.state.workload_number)
    seen = instance.seen if instance is not None else None
    if instance is None or seen is None or seen.origin is not Origin.LIVE:
        return 0, None
    same = not seen.gpu or (instance.gpu is not None and seen.gpu == instance.gpu.name)
    if not same or seen.parallel != (instance.tp, instance.pp):
        return 0, None
    model = scene.state.scenario.workload[scene.state.workload_number].model
    return calculation.here.instances.get(model, 0), calculation.here.kv_ratios.get(model)


def _share(scene: Scene, plan: WorkloadPlan, per_instance: float) -> str:
    """The limit that a capacity comes from, and which share of it is planned with: ` (80 % of the KV limit)`."""
    name = _LIMITS.get(plan.limit, f"the {plan.limit} limit")
    factor = scene.state.scenario.planning_factor
    first = next((limit.concurrency for limit in plan.limits if limit.kind.value == plan.limit), 0.0)
    planned = plan.limit not in _LIMITS and factor < 1.0 and abs(first * factor - per_instance) <= 1.0
    if planned:
        return f" ({factor * 100:.3g} % of {name})"
    return f" ({name})"


def _load(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """Load and latencies of each instance at the target."""
    parts = [""]
    if not isinstance(plan.running, Missing):
        parts[0] = f"{plan.running:.3g} in flight"
    for name, key in (("ITL", "itl"), ("TTFT", "ttft"), ("E2E", "e2e")):
        mean: Reading = getattr(plan, f"{key}_s")
        slow: Reading = getattr(plan, f"{key}_p95_s", NOT_KNOWN)
        if isinstance(mean, Missing):
            continue
        latency = f"{name} mean {seconds(mean)}"
        if not isinstance(slow, Missing):
            latency += f" p95 {seconds(slow)}"
        parts.append(latency)
    if not isinstance(plan.tokens_per_s, Missing):
        parts.append(f"all instances {count(plan.tokens_per_s)} tok/s")
    return _labelled(scene, " per instance ", *parts, between="  ")


def _runs(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The engines that serve the model here, beside the plan; nothing where there is none."""
    calculation = scene.state.calculation
    here = calculation.here.served.get(model_key(plan.model))
    if here is None:
        return []
    runs = running_instances(calculation.instance(scene.state.workload_number), here)
    return _labelled(scene, " runs now ", runs_text(plan, runs))


def _source(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The origin of the capacity, with the memory if the line has room for it."""
    name = SOURCES[plan.source]
    if not name:
        return []
    band = ""
    if plan.band:
        band = f", {plan.band.text}"
    text = f"{name}{_measured_on(scene, plan)}{band}"
    memory = _memory(plan.memory_bytes)
    if memory:
        longer = f"{text}; {memory} ({plan.memory_source})"
        if cells(longer) + 10 <= scene.width:
            text = longer
    return _labelled(scene, " capacity ", text)


def _measured_on(scene: Scene, plan: WorkloadPlan) -> str:
    """The engine that was measured, and up to which load if the plan goes beyond."""
    engine = ""
    if plan.seen_name and plan.source is not Source.ROOFLINE:
        engine = f" on {clean(plan.seen_name, 40)}"
    instance = scene.state.calculation.instance(scene.state.workload_number)
    fitted = instance.fitted if instance is not None else None
    if not plan.extrapolated or fitted is None or isinstance(plan.capacity_per_instance, Missing):
        return engine
    planned = whole_count(plan.capacity_per_instance)
    return f" up to {whole_count(fitted.high)}{engine}, {planned} is extrapolated"


def _split(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The same target on pools of prefill and decode, where the scenario asks for it."""
    split = plan.disaggregated
    if split is None:
        return []
    if split.problem:
        basis = ""
    else:
        basis = "; not measured"
    return _labelled(scene, " disaggregated ", clean(f"{split.text}{basis}", 300))


def _labelled(scene: Scene, label: str, *parts: str, between: str = "  ") -> list[Row]:
    """Text behind a label: one sentence in at most two lines, or several parts side by side."""
    tone = scene.tone("text")
    room = max(1, scene.width - cells(label))
    if len(parts) == 1:
        first, *more = folded(parts[0], room)
        return [((label, scene.tone("muted")), (first, tone)), *wrap_line(" ".join(more), scene.width, tone, most=1)]
    lines = _side_by_side([part for part in parts if part], room, between)
    labels = [label, *[" " * cells(label)] * len(lines)]
    return [((begin, scene.tone("muted")), (line, tone)) for begin, line in zip(labels, lines, strict=False)]


def _side_by_side(parts: list[str], width: int, between: str = "  ") -> list[str]:
    """The parts in as few lines as they fit into, none of them broken."""
    lines: list[str] = []
    for part in parts:
        if lines and cells(lines[-1]) + cells(between) + cells(part) <= width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return lines


def _number(value: Reading, thing: str) -> str:
    return f"{whole_count(value)} {thing}{'' if value == 1 else 's'}"


def _memory(size: Reading) -> str:
    """In data sheets' units: 1 GB is 1e9 bytes."""
    if isinstance(size, Missing):
        return ""
    if size >= 9.995e11:
        return f"memory {size / 1e12:.2f} TB"
    return f"memory {size / 1e9:.1f} GB"
