"""The lower part of the sizing panel: what is needed, what is here, what limits, and what one has to know."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.readings.format import cells, count, seconds, watts
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import NOT_KNOWN, Answer, LimitKind, Packed, Source, WorkloadPlan
from gpumon.tui.fold import folded
from gpumon.tui.line import Row
from gpumon.tui.sizing.effects import SOURCES, Asked, effect
from gpumon.tui.sizing.fields import WORKLOAD, Place, field, labelled
from gpumon.tui.sizing.sheet import Sheet, whole_count
from gpumon.tui.widgets.pane import wrapped

_LIMITS: Final = {
    LimitKind.TYPED.value: "as typed",
    LimitKind.RANGE.value: "the most that was measured",
    LimitKind.KNEE.value: "the knee of the sweep",
    LimitKind.QUEUE.value: "so that few enough wait",
}
"""What a capacity comes from where that is not called a limit of some kind."""
_PLANNED_WITH: Final = ("tp", "pp", "weight_precision", "kv_precision")
_OWN_GOALS: Final = ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms")
_OTHER: Final = {"busy": "by memory alone", "memory": "by memory and busy share"}


def need(sheet: Sheet, width: int) -> list[Row]:
    """Needed and here: always in view."""
    answer = sheet.answer
    if answer is None:
        return [((" need …", "muted"),)]
    rows = _why_not(sheet, answer, width)
    if rows and not answer.without:
        return [((" need  no answer", sheet.tone("critical")),), *rows, *_have(sheet, answer, width)]
    totals = answer.totals_without if answer.without else answer.totals
    limit = " at most" if "limit" in answer.power_sources else ""
    parts = [
        _number(totals.gpus, "GPU"),
        _number(totals.servers, "server"),
        _memory(totals.memory_bytes),
        "" if isinstance(totals.price_per_hour, Missing) else f"{totals.price_per_hour:,.2f} /h",
        "" if isinstance(totals.power_w, Missing) else f"{watts(totals.power_w)}{limit}",
        "" if isinstance(totals.price_per_mtok, Missing) else f"{totals.price_per_mtok:,.2f} /1M tokens",
    ]
    without = f"without {len(answer.without)} of {len(answer.workloads)}: " if answer.without else ""
    needed: Row = (
        (" was   " if sheet.grey else " need  ", sheet.tone("muted")),
        (without, sheet.tone("critical")),
        (_fitted(parts, width - 8 - cells(without)), sheet.tone("strong")),
    )
    return [needed, *rows, *_have(sheet, answer, width)]


def _why_not(sheet: Sheet, answer: Answer, width: int) -> list[Row]:
    """What has no answer and why: of the row under the cursor, else of the first one; the others by name."""
    if not answer.problem:
        return []
    about = sheet.plan(sheet.stop.at) if sheet.stop.section == "workload" else None
    failed = (each for each in (about, *answer.workloads) if each is not None and each.problem)
    chosen = next(failed, None)
    said = answer.problem
    if chosen is not None:
        said = f"{chosen.name}: {chosen.problem}"
        said = f"without {_short(chosen.name)}: {chosen.problem}" if answer.without else said
    # Where the cursor is on another row, that row's figures have the lines.
    most = 1 if answer.without and about is not None and not about.problem else 3
    rows = wrapped(clean(labelled(said), 400), width, sheet.tone("critical"), most=most)
    others = [_short(each) for each in answer.without if chosen is None or each != chosen.name]
    also = wrapped(clean(f"also without {', '.join(others)}", 400), width, sheet.tone("critical"), most=2)
    return [*rows, *also] if others else rows


def _short(name: str) -> str:
    """Without the organisation."""
    return name.rpartition("/")[2] or name


def _have(sheet: Sheet, answer: Answer, width: int) -> list[Row]:
    have = answer.have
    if have is None:
        return []
    short = have.short_gpus
    lacks = not isinstance(short, Missing) and short > 0
    here = _number(float(have.gpus), "GPU") if have.gpus else "no GPU"
    here += f" {clean(have.gpu, 40)}" if have.gpu else ""
    text, tone = clean(labelled(have.text), 120), sheet.tone("warn" if lacks else "ok")
    row: Row = ((" have  ", sheet.tone("muted")), (f"{here}  ", sheet.tone("text")))
    held = _folded(sheet, " taken ", ", ".join(sheet.held), width) if sheet.held else []
    if cells(here) + cells(text) + 10 <= width:
        return [(*row, (text, tone)), *held]
    return [row, *wrapped(text, width, tone, most=2), *held]


def other_packing(sheet: Sheet) -> list[Row]:
    """The plan by the other packing rule, where it differs."""
    answer = sheet.answer
    if answer is None or answer.problem:
        return []
    plans = answer.plans
    other: Packed = plans.memory_only if answer.packing == "busy" else plans.busy_aware
    mine = plans.busy_aware if answer.packing == "busy" else plans.memory_only
    if other.problem or (other.gpus, other.servers) == (mine.gpus, mine.servers):
        return []
    said = f"{_number(other.gpus, 'GPU')}, {_number(other.servers, 'server')}"
    return [((f" {_OTHER[answer.packing]}: ", sheet.tone("muted")), (said, sheet.tone("text")))]


def planned_with(asked: Asked, at: int, width: int) -> list[Row]:
    """TP, weights and KV cache in effect of a workload, what of it was typed, and goals of its own."""
    if at >= len(asked.scenario.workload):
        return []
    parts = list[str]()
    for key in _PLANNED_WITH:
        place = Place(WORKLOAD, at, field(WORKLOAD, key))
        value, origin = effect(place, asked)
        if value and (key != "pp" or value != 1):
            said = f"{place.field.name} {clean(place.field.shown(value), 20)}"
            parts.append(f"{said} typed" if origin == "typed" else said)
    goals = [field(WORKLOAD, key) for key in _OWN_GOALS]
    own = [
        f"{goal.name} ≤ {goal.shown(value)}"
        for goal in goals
        if (value := getattr(asked.scenario.workload[at], goal.key))
    ]
    parts += [f"own goal: {', '.join(own)}"] if own else []
    first, *more = _lines(parts, width - 7, " · ") or [""]
    rows: list[Row] = [((" with: ", "muted"), (first, "text"))] if first else []
    return [*rows, *(((" " * 7, "muted"), (line, "text")) for line in more)]


def about(sheet: Sheet, width: int) -> list[Row]:
    """What is known of the workload under the cursor, the most important first."""
    plan = sheet.plan(sheet.stop.at) if sheet.stop.section == "workload" else sheet.plan(0)
    if plan is None or plan.problem:
        return []
    return [
        *_takes(sheet, plan),
        *_limit(sheet, plan),
        *_carries(sheet, plan, width),
        *_load(sheet, plan, width),
        *_source(sheet, plan, width),
        *_degraded(sheet, plan, width),
    ]


def _takes(sheet: Sheet, plan: WorkloadPlan) -> list[Row]:
    """GPUs and servers of one of several workloads, and whether it shares these."""
    servers, shared = plan.servers, plan.servers_shared
    if len(sheet.scenario.workload) < 2 or isinstance(servers, Missing) or isinstance(shared, Missing):
        return []
    whose = "shared" if shared == servers else f"{whole_count(shared)} of them shared"
    whose = f"{whose} with other models*" if shared else "of its own"
    said = f"{_number(plan.gpus, 'GPU')} in {_number(servers, 'server')}, {whose}"
    return [((" takes: ", sheet.tone("muted")), (said, sheet.tone("text")))]


def _limit(sheet: Sheet, plan: WorkloadPlan) -> list[Row]:
    """The first limit and the next one, with where each holds."""
    at = {limit.kind.value: limit.concurrency for limit in reversed(plan.limits)}
    if not plan.limit:
        return []

    def named(kind: str) -> str:
        return f"{kind} at {whole_count(at[kind])}" if kind in at and at[kind] >= 1 else kind

    after = f", then {named(plan.next_limit)}" if plan.next_limit else ""
    first = named(plan.limit) + (" per instance" if plan.limit != LimitKind.QUEUE.value else "")
    return [((" first limit: ", sheet.tone("muted")), (f"{first}{after}", sheet.tone("text")))]


def _carries(sheet: Sheet, plan: WorkloadPlan, width: int) -> list[Row]:
    """How much more would fit into the same instances."""
    each, instances, target = plan.capacity_per_instance, plan.instances, plan.concurrency
    if isinstance(each, Missing) or isinstance(instances, Missing) or isinstance(target, Missing):
        return []
    needed = max(0.0, instances - plan.spares)
    most = each * (sheet.here or needed)
    if not math.isfinite(most) or not math.isfinite(target):
        return []
    more = math.floor(most + 1e-6) - math.ceil(target - 1e-6)
    here = "the one that runs here" if sheet.here == 1 else f"the {sheet.here} that run here"
    begin = here if sheet.here else "the one needed" if needed == 1 else f"the {whole_count(needed)} needed"
    verb = "carries" if (sheet.here or needed) == 1 else "carry"
    # A target that is no number of requests in flight would be taken for one of the same unit.
    unit = "" if plan.target_kind == "concurrency" else " in flight"
    said = f"{verb} {whole_count(most)}{unit}"
    said += _full(sheet, more) or f"{_share(sheet, plan, each)}: {_room(more)}"
    return _folded(sheet, f" {begin} ", said, width)


def _full(sheet: Sheet, more: int) -> str:
    """What stands in the place of room while a KV cache here is full, whatever target is typed; empty while none is."""
    if more < 0 or not sheet.here or sheet.kv_ratio is None or sheet.kv_ratio < KV_SHARE:
        return ""
    above = f"{more:,} above the target" if more else "just the target"
    return f": {above}, but KV here is {sheet.kv_ratio * 100:.0f} % full now"


def _room(more: int) -> str:
    """How far the target is from what is carried."""
    return f"room for {more:,} more" if more > 0 else f"short of {-more:,}" if more else "no room for more"


def _folded(sheet: Sheet, begin: str, said: str, width: int) -> list[Row]:
    """A line, or two where one is too narrow."""
    first, *more = folded(said, max(1, width - cells(begin)))
    rest = wrapped(" ".join(more), width, sheet.tone("text"), most=1)
    return [((begin, sheet.tone("muted")), (first, sheet.tone("text"))), *rest]


def _share(sheet: Sheet, plan: WorkloadPlan, each: float) -> str:
    """The limit that a capacity comes from, and which share of it is planned with: ` (80 % of the KV limit)`."""
    name = _LIMITS.get(plan.limit, f"the {plan.limit} limit")
    factor = sheet.scenario.planning_factor
    first = next((limit.concurrency for limit in plan.limits if limit.kind.value == plan.limit), 0.0)
    planned = plan.limit not in _LIMITS and factor < 1.0 and abs(first * factor - each) <= 1.0
    return f" ({factor * 100:.3g} % of {name})" if planned else f" ({name})"


def _load(sheet: Sheet, plan: WorkloadPlan, width: int) -> list[Row]:
    parts = [
        "" if isinstance(plan.running, Missing) else f"{plan.running:.3g} in flight",
        *(_latency(plan, name, key) for name, key in (("ITL", "itl"), ("TTFT", "ttft"), ("E2E", "e2e"))),
        "" if isinstance(plan.tokens_per_s, Missing) else f"all together {count(plan.tokens_per_s)} tok/s",
    ]
    begin, rows = " each then: ", list[Row]()
    for line in _lines([part for part in parts if part], width - cells(begin)):
        rows.append(((begin, sheet.tone("muted")), (line, sheet.tone("text"))))
        begin = " " * cells(begin)
    return rows


def _latency(plan: WorkloadPlan, name: str, key: str) -> str:
    """Mean and, where it is known, p95: of what goals are about."""
    mean: Reading = getattr(plan, f"{key}_s")
    slow: Reading = getattr(plan, f"{key}_p95_s", NOT_KNOWN)
    if isinstance(mean, Missing):
        return ""
    return f"{name} mean {seconds(mean)}" + ("" if isinstance(slow, Missing) else f" p95 {seconds(slow)}")


def _lines(parts: list[str], width: int, between: str = "  ") -> list[str]:
    """Parts side by side, in as many lines as they take."""
    lines: list[str] = []
    for part in parts:
        if lines and cells(lines[-1]) + cells(between) + cells(part) <= width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return lines


def _degraded(sheet: Sheet, plan: WorkloadPlan, width: int) -> list[Row]:
    return [
        row
        for each in plan.degraded
        for row in wrapped(
            f"one {each.lost} lost, {each.instances} left: {clean(labelled(each.text), 160)}",
            width,
            sheet.tone("text"),
            2,
        )
    ]


def _source(sheet: Sheet, plan: WorkloadPlan, width: int) -> list[Row]:
    who = f": {clean(plan.seen_name, 40)}" if plan.seen_name and plan.source is not Source.ROOFLINE else ""
    band = f", {plan.band.text}" if plan.band else ""
    memory = "" if isinstance(plan.memory_bytes, Missing) else f"; {_memory(plan.memory_bytes)} ({plan.memory_source})"
    said = f"{SOURCES[plan.source]}{who}{band}{memory}"
    if plan.extrapolated and sheet.measured is not None and not isinstance(plan.capacity_per_instance, Missing):
        planned = whole_count(plan.capacity_per_instance)
        said = f"{SOURCES[plan.source]} up to {whole_count(sheet.measured)}, planned {planned}: extrapolated{who}{band}"
        said += memory
    if cells(said) + 10 > width:
        said = said.removesuffix(memory)
    return _folded(sheet, " capacity ", said, width) if SOURCES[plan.source] else []


def notes(sheet: Sheet, width: int) -> list[Row]:
    """Warnings, then what one has to know about the workload under the cursor."""
    answer = sheet.answer
    if answer is None:
        return []
    at = sheet.stop.at if sheet.stop.section == "workload" else 0
    plan = sheet.plan(at)
    said = [(clean(labelled(text), 300), "warn") for text in answer.warnings]
    said += [(clean(labelled(text), 300), "muted") for text in (plan.notes if plan is not None else ())]
    return [row for text, tone in dict.fromkeys(said) for row in wrapped(text, width, sheet.tone(tone))]


def _number(value: Reading, thing: str) -> str:
    return f"{whole_count(value)} {thing}{'' if value == 1 else 's'}"


def _memory(size: Reading) -> str:
    if isinstance(size, Missing):
        return ""
    return f"{size / 1e12:.2f} TB" if size >= 9.995e11 else f"{size / 1e9:.1f} GB"


def _fitted(parts: list[str], width: int) -> str:
    """As many parts as fit, the first ones first."""
    said = ""
    for part in filter(None, parts):
        longer = f"{said}  {part}" if said else part
        if cells(longer) > width:
            break
        said = longer
    return said
