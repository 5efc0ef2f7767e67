"""The answer in words: what is needed, what is here, what limits an instance, and what one has to know."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.readings.format import age, cells, counted, cut
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, LimitKind, WorkloadPlan
from gpumon.sizing.document.plan import PlanDocument
from gpumon.sizing.document.workload import WorkloadDocument
from gpumon.sizing.profile import Origin
from gpumon.sizing.running import runs_clauses
from gpumon.sizing.scenario import GOAL_NAMES, Workload
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row, cells_of, wrap_line
from gpumon.tui.sizing.effective_values import effective_value
from gpumon.tui.sizing.fields import WORKLOAD, FieldPlace, field_of, with_field_names
from gpumon.tui.sizing.offer import points_of
from gpumon.tui.sizing.server_blocks import block_pieces
from gpumon.tui.sizing.table import Scene, whole_count
from gpumon.tui.sizing.versions import AS_IT_RUNS

_LIMIT_TEXTS: Final = {
    LimitKind.TYPED.value: "as typed",
    LimitKind.RANGE.value: "the most that was measured",
    LimitKind.KNEE.value: "the knee of the sweep",
}
"""Origin of a capacity that no limit of the engine sets."""
_SETTINGS: Final = ("tp", "pp", "dp", "weight_precision", "kv_precision")
"""Fields of a workload whose values in effect are shown."""
BLOCKS_LABEL: Final = " servers "
_LABEL_CELLS: Final = 8
"""Cells of the labels of the need, of the types, and of what is here."""
_MARGIN: Final = 1
"""Cells that stay free at the right."""
_ROUNDING: Final = 1e-6
"""Requests by which a product of floats may miss a whole number."""


def need_rows(scene: Scene) -> list[Row]:
    """GPUs and servers that the plan needs, and those that are here: always in view."""
    answer = scene.state.calculation.answer
    document = scene.state.calculation.document
    tone = scene.tone
    if answer is None or document is None:
        return [((" need   …", "muted"),)]
    problem_rows = _problem_rows(scene, answer)
    if problem_rows and not answer.without:
        no_answer = ((" need   no answer", tone("critical")),)
        return [no_answer, *problem_rows, *_have_rows(scene, answer), *_seen_rows(scene)]
    without = f"{document.partial}: " if document.partial else ""
    room = scene.width - _LABEL_CELLS - _MARGIN - cells(without)
    blocks = blocks_row(scene)
    lines = _side_by_side(_totals(document, has_price=not blocks), room)
    totals = lines[0] if lines else ""  # the need has one line: totals that would begin another are left out
    label = " was    " if scene.state.stale else " need   "
    need: Row = ((label, tone("muted")), (without, tone("critical")), (totals, tone("strong")))
    range_text = f"{' ' * _LABEL_CELLS}{document.gpus_range.text}"
    return [
        need,
        *([blocks] if blocks else ()),
        *(wrap_line(range_text, scene.width, tone("warn"), most=2) if document.gpus_range.parts else ()),
        *(_labelled_rows(scene, " of     ", *document.types.parts) if document.types.parts else ()),
        *problem_rows,
        *_have_rows(scene, answer),
        *_seen_rows(scene),
    ]


def _seen_rows(scene: Scene) -> list[Row]:
    """The age of what the panel works on and its points, and what a key would take: one line, as long as there is
    anything that was seen."""
    frozen_s = scene.state.frozen.wall_s
    if frozen_s is None or not scene.state.scenario.workload:
        return []
    points = points_of(scene.state.scenario)
    seen = counted(points, "point") if points else "nothing measured here"
    label = " seen   "
    text = f"{seen}, {age(max(0.0, scene.now_s - frozen_s))} old"
    room = scene.width - cells(label) - cells(text) - _MARGIN
    offer = next((text for text in _offer_texts(scene) if cells(text) <= room), "")
    return [((label, "muted"), (text, "text"), (offer, "accent"))]


def _offer_texts(scene: Scene) -> Iterator[str]:
    """The offer of newer figures, in words that are shorter each time; what it changes stays longest."""
    offer = scene.offer
    key = scene.keymap.first("sizing.renew")
    if offer is None or not key:
        return
    # After a change of the question the need is not known until the next look.
    need = f": {offer.need}" if offer.need and offer.is_told(scene.state.calculation.answer) else ""
    for number in range(len(offer.changes), 0, -1):
        changes = ", ".join(offer.changes[:number])
        yield f"; {key} takes {changes}, {offer.newer}{need}"
        yield f"; {key} takes {changes}{need}"
    yield f"; {key}{need or ' takes newer ones'}"


def blocks_row(scene: Scene) -> Row:
    """The servers as blocks, with the price of those that are needed behind them; empty where there is no room."""
    scale = scene.block_scale
    answer = scene.state.calculation.answer
    document = scene.state.calculation.document
    if scale is None or answer is None or document is None:
        return ()
    blocks = block_pieces(answer, scale, scene.glyphs)
    pieces: list[Piece] = [(BLOCKS_LABEL, scene.tone("muted"))]
    pieces += [(text, scene.tone(tone)) for text, tone in blocks]
    behind = []
    if "price" in document.totals:
        behind.append(document.totals["price"].text)
    if scale.servers_per_cell > 1:
        behind.append(f"a cell is {scale.servers_per_cell:,} servers")
    room = scene.width - cells_of(pieces) - _MARGIN
    return (*pieces, (cut(f"  {' · '.join(behind)}", max(0, room)), scene.tone("strong")))


def _totals(document: PlanDocument, *, has_price: bool) -> list[str]:
    """GPUs, servers, memory, prices and power of the whole plan, as far as they are known."""
    totals = document.totals
    parts = [*document.need.parts]
    if "memory" in totals:
        parts.append(f"memory {totals['memory'].text}")
    if "price" in totals and has_price:
        parts.append(totals["price"].text)
    if "power" in totals:
        parts.append(f"{totals['power'].text}{totals['power'].note}")
    if "price of tokens" in totals:
        parts.append(totals["price of tokens"].text)
    return parts


def _problem_rows(scene: Scene, answer: Answer) -> list[Row]:
    """The reason why a workload has no answer: the one under the cursor, else the first; the others by name."""
    if not answer.problem:
        return []
    stop = scene.state.stop
    under_cursor = scene.state.calculation.plan(stop.number) if stop.section == WORKLOAD else None
    plan = _plan_with_problem(under_cursor, answer)
    # A workload under the cursor that has an answer needs the lines for its own figures.
    most = 1 if answer.without and under_cursor is not None and not under_cursor.problem else 3
    tone = scene.tone("critical")
    rows = wrap_line(clean(with_field_names(_reason(plan, answer)), 400), scene.width, tone, most=most)
    others = [_short_name(name) for name in answer.without if plan is None or name != plan.name]
    if others:
        rows += wrap_line(clean(f"also without {', '.join(others)}", 400), scene.width, tone, most=2)
    return rows


def _reason(plan: WorkloadPlan | None, answer: Answer) -> str:
    """The problem of a workload behind its name; the problem of the whole answer without a workload."""
    if plan is None:
        return answer.problem
    if answer.without:
        return f"without {_short_name(plan.name)}: {plan.problem}"
    return f"{plan.name}: {plan.problem}"


def _plan_with_problem(under_cursor: WorkloadPlan | None, answer: Answer) -> WorkloadPlan | None:
    """The workload under the cursor if it has a problem, else the first one that has; None if none has."""
    if under_cursor is not None and under_cursor.problem:
        return under_cursor
    for plan in answer.workloads:
        if plan.problem:
            return plan
    return None


def _short_name(name: str) -> str:
    """The name of a model without its organisation."""
    return name.rpartition("/")[2] or name


def _have_rows(scene: Scene, answer: Answer) -> list[Row]:
    """The GPUs that are here, whether they are enough, and what else uses them."""
    have = answer.have
    if have is None:
        return []
    gpus = _count_text(float(have.gpus), "GPU") if have.gpus else "no GPU"
    if have.gpu:
        gpus = f"{gpus} {clean(have.gpu, 40)}"
    gpus = f"{gpus}  "
    verdict = clean(with_field_names(have.text), 120)
    tone = scene.tone("ok")
    if not isinstance(have.short_gpus, Missing) and have.short_gpus > 0:
        tone = scene.tone("warn")
    row: Row = ((" have   ", scene.tone("muted")), (gpus, scene.tone("text")))
    in_use: list[Row] = []
    if scene.state.calculation.here.in_use:
        in_use = _labelled_rows(scene, " " * _LABEL_CELLS, ", ".join(scene.state.calculation.here.in_use))
    if _LABEL_CELLS + cells(gpus) + cells(verdict) + _MARGIN <= scene.width:
        return [(*row, (verdict, tone)), *in_use]
    return [row, *wrap_line(verdict, scene.width, tone, most=2), *in_use]


def about_rows(scene: Scene) -> list[Row]:
    """The facts about the chosen workload, the most important first."""
    state = scene.state
    plan = state.calculation.plan(state.workload_number)
    document = state.calculation.workload_document(state.workload_number)
    rows = [*_other_packing(scene), *_settings(scene)]
    if plan is None or document is None or plan.problem:
        return rows
    return [
        *_target_origin(scene),
        *rows,
        *_places(scene, plan),
        *(_labelled_rows(scene, " goals  ", *document.goals.parts, between=" · ") if document.goals.parts else ()),
        *_limits(scene, plan),
        *_capacity(scene, plan),
        *_routing(scene),
        *_labelled_rows(scene, " at the target ", *document.load.parts, *_tokens_together(document)),
        *_running_now(scene, plan),
        *_capacity_source(scene, document),
        *_disaggregated(scene, document),
        *_after_a_loss(scene, document),
    ]


def _target_origin(scene: Scene) -> list[Row]:
    """The origin of a target that follows what runs: a peak is another number than that of now."""
    state = scene.state
    workload = state.scenario.workload[state.workload_number]
    follows = state.version.follows[state.workload_number]
    origin = state.calculation.here.target_origins.get(workload.model, "")
    if not origin or follows.target_source(workload) != AS_IT_RUNS:
        return []
    return _labelled_rows(scene, " target ", origin)


def _after_a_loss(scene: Scene, document: WorkloadDocument) -> list[Row]:
    """The instances that are left once a GPU, or a server, is lost."""
    rows: list[Row] = []
    for row in document.degraded:
        text = clean(with_field_names(f"{row.label}, {row.text}"), 200)
        rows += wrap_line(text, scene.width, scene.tone("text"), 2)
    return rows


def note_rows(scene: Scene) -> list[Row]:
    """Warnings, then the conditions under which the figures of the chosen workload hold; each text once."""
    calculation = scene.state.calculation
    document = calculation.document
    if document is None:
        return []
    workload = calculation.workload_document(scene.state.workload_number)
    texts = [(clean(with_field_names(row.text), 300), "warn") for row in document.warnings]
    if workload is not None:
        texts += [(clean(with_field_names(row.text), 300), "muted") for row in workload.notes]
    return [row for text, tone in dict.fromkeys(texts) for row in wrap_line(text, scene.width, scene.tone(tone))]


def _other_packing(scene: Scene) -> list[Row]:
    """The need by the other packing rule, where it differs."""
    document = scene.state.calculation.document
    if document is None or document.problem.text or not document.other_packing.parts:
        return []
    return _labelled_rows(scene, f" {document.other_packing.label} ", document.other_packing.text)


def _settings(scene: Scene) -> list[Row]:
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
    if not parts:
        return []
    rows = _labelled_rows(scene, " with   ", *parts, between=" · ")
    reason = state.calculation.layout_reason(state.workload_number)
    if reason:
        text = clean(with_field_names(f"{' ' * _LABEL_CELLS}{reason}"), 200)
        rows += wrap_line(text, scene.width, scene.tone("warn"), most=2)
    return rows


def _settings_in_effect(scene: Scene) -> list[str]:
    """Fields of the chosen workload with their values in effect: `TP 4 typed`; a PP or DP of 1 is not worth saying."""
    state = scene.state
    parts = []
    for key in _SETTINGS:
        place = FieldPlace(WORKLOAD, state.workload_number, field_of(WORKLOAD, key))
        value, origin = effective_value(place, state.version, state.calculation)
        if not value or (key in ("pp", "dp") and value == 1):
            continue
        text = f"{place.field.name} {clean(place.field.shown(value), 20)}"
        if origin == "typed":
            text += " typed"
        parts.append(text)
    return parts


def _own_goals(workload: Workload) -> list[str]:
    """The goals that a workload has for itself."""
    goals: list[str] = []
    for key in GOAL_NAMES:
        goal = field_of(WORKLOAD, key)
        value = getattr(workload, goal.key)
        if value:
            goals.append(f"{goal.name} ≤ {goal.shown(value)}")
    return goals


def _places(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """GPUs and servers that one of several workloads takes, and whether it shares the servers."""
    servers = plan.servers
    shared = plan.servers_shared
    if len(scene.state.scenario.workload) < 2 or isinstance(servers, Missing) or isinstance(shared, Missing):
        return []
    if not shared:
        whose = "of its own"
    elif shared == servers:
        whose = "shared with other models*"
    else:
        whose = f"{whole_count(shared)} of them shared with other models*"
    gpus = _count_text(plan.gpus, "GPU")
    return _labelled_rows(scene, " takes  ", f"{gpus} in {_count_text(servers, 'server')}, {whose}")


def _limits(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The first limit and the next one, with the requests in flight at which each holds."""
    if not plan.limit:
        return []
    text = f"{_limit_with_load(plan, plan.limit)} per instance"
    if plan.next_limit:
        text += f", then {_limit_with_load(plan, plan.next_limit)}"
    return _labelled_rows(scene, " first limit ", text)


def _limit_with_load(plan: WorkloadPlan, kind: str) -> str:
    """A limit, and the requests in flight at which it holds: `KV cache at 48`."""
    for limit in plan.limits:
        if limit.kind.value == kind:
            if limit.concurrency >= 1:
                return f"{kind} at {whole_count(limit.concurrency)}"
            return kind
    return kind


def _capacity(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """Requests in flight that the instances here, or else the needed ones, carry, and the room above the target."""
    running = _running_here(scene)
    carried = _carried(plan, running)
    if carried is None:
        return []
    # A target that is no number of requests in flight would be taken for one of the same unit.
    unit = " in flight" if plan.target_kind != "concurrency" else ""
    if carried.surplus >= 0 and running.kv_is_full:
        above = f"{carried.surplus:,} above the target" if carried.surplus else "just the target"
        room = f": {above}, but KV here is {running.kv_ratio * 100:.0f}% full"
    else:
        room = f"{_capacity_basis(scene, plan, carried.per_instance)}: {_room_text(carried.surplus)}"
    place = "here" if running.instances else "needed"
    if carried.instances == 1:
        label = f" 1 instance {place} "
        verb = "carries"
    else:
        label = f" {carried.instances:,} instances {place} "
        verb = "carry"
    return _labelled_rows(scene, label, f"{verb} {whole_count(carried.requests)}{unit}{room}")


def _routing(scene: Scene) -> list[Row]:
    """The assumption of even routing, where triage finds replicas at their limit while others have room."""
    model = scene.state.scenario.workload[scene.state.workload_number].model
    routing = scene.state.calculation.here.uneven_routing.get(model)
    if routing is None:
        return []
    full = f"{routing.at_limit:,} replicas are at their limit" if routing.at_limit > 1 else "1 replica is at its limit"
    roomy = "others have room" if routing.with_room > 1 else "another has room"
    return _labelled_rows(scene, " routing ", f"assumed even; here {full}, while {roomy}")


class _Carried(NamedTuple):
    """Requests in flight that some instances of a workload carry."""

    instances: int
    per_instance: float
    requests: float
    surplus: int
    """Whole requests above the target; below 0: those that are not carried."""


def _carried(plan: WorkloadPlan, running: _Running) -> _Carried | None:
    """The load that the running instances carry, or the needed ones where none runs; None where it is not known."""
    per_instance = plan.capacity_per_instance
    instances = plan.instances
    target = plan.concurrency
    if isinstance(per_instance, Missing) or isinstance(instances, Missing) or isinstance(target, Missing):
        return None
    carrying = running.instances or max(0.0, instances - plan.spares)
    requests = per_instance * carrying
    if not math.isfinite(requests) or not math.isfinite(target):
        return None
    surplus = math.floor(requests + _ROUNDING) - math.ceil(target - _ROUNDING)
    return _Carried(round(carrying), per_instance, requests, surplus)


def _room_text(surplus: int) -> str:
    """Requests in flight that fit above the target; below 0 those that do not fit."""
    if surplus > 0:
        return f"room for {surplus:,} more"
    if surplus < 0:
        return f"short of {-surplus:,}"
    return "no room for more"


class _Running(NamedTuple):
    """Instances of a workload that run here as they are planned."""

    instances: int = 0
    kv_ratio: float = 0.0
    """How full the fullest of their KV caches is; 0 where that is not known."""

    @property
    def kv_is_full(self) -> bool:
        """Whether a KV cache is as full as requests fill it: the engine lets no more in, whatever the plan says."""
        return self.kv_ratio >= KV_SHARE


def _running_here(scene: Scene) -> _Running:
    """The instances of the chosen workload that run here on the planned GPU with the planned TP and PP."""
    calculation = scene.state.calculation
    instance = calculation.instance(scene.state.workload_number)
    seen = instance.seen if instance is not None else None
    if instance is None or seen is None or seen.origin is not Origin.LIVE:
        return _Running()
    same_gpu = not seen.gpu or (instance.gpu is not None and seen.gpu == instance.gpu.name)
    if not same_gpu or seen.parallel != (instance.tp, instance.pp):
        return _Running()
    model = scene.state.scenario.workload[scene.state.workload_number].model
    return _Running(calculation.here.instances.get(model, 0), calculation.here.kv_ratios.get(model, 0.0))


def _capacity_basis(scene: Scene, plan: WorkloadPlan, per_instance: float) -> str:
    """The limit that a capacity comes from, and which share of it is planned with: ` (80% of the KV limit)`."""
    if plan.limit in _LIMIT_TEXTS:
        return f" ({_LIMIT_TEXTS[plan.limit]})"
    factor = scene.state.scenario.planning_factor
    limit = next((limit.concurrency for limit in plan.limits if limit.kind.value == plan.limit), 0.0)
    # Fractions of a request are cut off. A capacity that is further off does not come from this share.
    if factor < 1.0 and abs(limit * factor - per_instance) <= 1.0:
        return f" ({factor * 100:.3g}% of the {plan.limit} limit)"
    return f" (the {plan.limit} limit)"


def _running_now(scene: Scene, plan: WorkloadPlan) -> list[Row]:
    """The engines that serve the model here, beside the plan; nothing where there is none."""
    runs = scene.state.calculation.runs(scene.state.workload_number)
    if runs is None:
        return []
    label = " runs   "
    room = max(1, scene.width - cells(label))
    clauses = [line for clause in runs_clauses(plan, runs) for line in folded(clause, room)]
    return _labelled_rows(scene, label, *clauses, between=" ")


def _tokens_together(document: WorkloadDocument) -> list[str]:
    """Tokens per second of all instances."""
    tokens = document.together.parts[0]
    return [f"{document.together.label} {tokens}"] if tokens else []


def _capacity_source(scene: Scene, document: WorkloadDocument) -> list[Row]:
    """The origin of the capacity, with the memory if the line has room for it."""
    text = document.capacity_source
    if not text:
        return []
    label = " capacity "
    with_memory = f"{text}; memory {document.memory}"
    if document.memory and cells(label) + cells(with_memory) <= scene.width:
        text = with_memory
    return _labelled_rows(scene, label, text)


def _disaggregated(scene: Scene, document: WorkloadDocument) -> list[Row]:
    """The same target on pools of prefill and decode, where the scenario asks for it."""
    if not document.disaggregated:
        return []
    row = document.disaggregated[0]
    return _labelled_rows(scene, f" {row.label} ", row.text)


def _labelled_rows(scene: Scene, label: str, *parts: str, between: str = "  ", most: int = 2) -> list[Row]:
    """The rows of a text behind a label. A single part is a sentence, in at most `most` lines; several parts stand side
    by side with `between` them, none of them broken."""
    tone = scene.tone("text")
    room = max(1, scene.width - cells(label))
    if len(parts) == 1:
        first, *more = folded(parts[0], room)
        return [((label, scene.tone("muted")), (first, tone)), *wrap_line(" ".join(more), scene.width, tone, most - 1)]
    rows: list[Row] = []
    begin = label
    for line in _side_by_side([part for part in parts if part], room, between):
        rows.append(((begin, scene.tone("muted")), (line, tone)))
        begin = " " * cells(label)
    return rows


def _side_by_side(parts: list[str], width: int, between: str = "  ") -> list[str]:
    """The parts in as few lines as they fit into, none of them broken."""
    lines: list[str] = []
    for part in parts:
        if lines and cells(lines[-1]) + cells(between) + cells(part) <= width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return lines


def _count_text(value: Reading, thing: str) -> str:
    """A number of things: `1 GPU`, `2 GPUs`."""
    if value == 1:
        return f"{whole_count(value)} {thing}"
    return f"{whole_count(value)} {thing}s"
