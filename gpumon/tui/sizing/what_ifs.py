"""Changes of one key in the sizing panel: twice the load, another layout, other weights, another goal, another past."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gpumon.sizing.layouts import Layout
from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.profile import Observed, best_profile
from gpumon.sizing.scenario import Server, Workload
from gpumon.sizing.search import holding_layouts
from gpumon.tui.sizing.calculation import Calculation
from gpumon.tui.sizing.fields import WORKLOAD, FieldPlace, Value, field_of, typed_value
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import AS_IT_RUNS, Follows

_WEIGHTS: Final = ("", "fp8", "w8a8", "int4", "nvfp4")
"""Precisions of the weights that one key goes through; empty: as published."""
GOALS_MS: Final[dict[str, tuple[float | None, ...]]] = {
    "tpot_p95_ms": (None, 100.0, 60.0, 40.0, 25.0, 15.0),
    "ttft_p95_ms": (None, 5000.0, 2000.0, 1000.0, 500.0, 200.0),
}
"""Field of a goal -> the values in ms that one key goes through; None: no goal."""


def add_workload(state: PanelState, workload: Workload, observed: Sequence[Observed] = ()) -> None:
    """Add one more workload, and put the cursor on it."""
    seen = best_profile(workload.model, observed)
    if seen is not None and not workload.profile:
        workload = replace(workload, seen=seen)
    state.opened = False
    state.put(state.undo.version.with_workload(workload, Follows(figures=seen is not None)))
    state.go_to(len(state.stops) - 1)


def add_server(state: PanelState, gpu: str) -> None:
    """Add servers with another type of GPU, as large as the last one, or those of a cloud, and put the cursor on them.

    They are filled last: servers without a count get the number that is here, else the planned one, and what does not
    fit on them goes to the new type.
    """
    servers = [_with_count(server, state.calculation) for server in state.present.server]
    size = servers[-1].gpus if servers else Server("").gpus
    price = state.calculation.typed_price(gpu)
    servers.append(state.calculation.catalogues.server(Server(gpu, size, price_per_gpu_hour=price)))
    state.opened = False
    state.put(replace(state.present, server=tuple(servers)))
    state.go_to(len(servers))


def _with_count(server: Server, calculation: Calculation) -> Server:
    """The server with its count; without one that of its GPUs which are here, else that of the plan."""
    if server.count:
        return server
    gpu = calculation.catalogues.gpu_name(server.gpu)
    gpus_here = (calculation.here.gpus or {}).get(gpu, 0)
    servers_here = gpus_here // server.gpus
    return replace(server, count=servers_here or calculation.servers_of(gpu) or 1)


def double(state: PanelState, *, every: bool = False) -> bool:
    """Double the target of the workload under the cursor, or of every one; returns whether there was one."""
    if not state.accept_typing():
        return False
    state.leave_goal()
    numbers: Collection[int] = ()
    if every:
        numbers = range(len(state.present.workload))
    elif state.stop.section == WORKLOAD:
        numbers = (state.stop.number,)
    workloads = list(state.present.workload)
    for number in numbers:
        workloads[number] = replace(workloads[number], target=workloads[number].target * 2)
    scenario = replace(state.present, workload=tuple(workloads))
    return state.put(state.undo.version._replace(scenario=scenario).with_typed_targets(numbers))


def plan_for(state: PanelState, loads: Mapping[str, PeakLoad], source: str) -> bool:
    """Take targets in flight or per second from loads (by served model name); `source` names where these come from.

    Goals, TP and all else stay as they are. Returns whether that changed a target.
    """
    targets = dict[int, float]()
    for number, workload in enumerate(state.present.workload):
        load = loads.get(workload.model)
        target = _target_of(load, workload) if load is not None else None
        if target is not None:
            targets[number] = target
    return _put_targets(state, targets, source)


def plan_for_what_runs(state: PanelState, targets_by_model: Mapping[str, float]) -> bool:
    """Take the load of now for targets in flight (by served model name); goals, TP and all else stay as they are.

    Returns whether that changed a target.
    """
    state.frozen = state.frozen._replace(targets=targets_by_model)
    targets = {
        number: targets_by_model[workload.model]
        for number, workload in enumerate(state.present.workload)
        if workload.target_kind == "concurrency" and workload.model in targets_by_model
    }
    return _put_targets(state, targets, AS_IT_RUNS)


def _target_of(load: PeakLoad, workload: Workload) -> float | None:
    """The target that a load is for a workload, in the workload's own kind; None where the load does not tell it."""
    if workload.target_kind == "concurrency":
        return max(1.0, float(round(load.peak)))
    if workload.target_kind == "requests_per_s":
        return load.requests_per_s or None
    return None


def _put_targets(state: PanelState, targets: Mapping[int, float], source: str) -> bool:
    """Set targets, by the number of the workload, and their source; returns whether that changed anything."""
    state.accept_typing()  # what is typed and wrong stays as it is: these targets come from elsewhere
    version = state.undo.version
    workloads = list(version.scenario.workload)
    follows = list(version.follows)
    for number, target in targets.items():
        workloads[number] = replace(workloads[number], target=target)
        follows[number] = follows[number]._replace(target=source)
    scenario = replace(version.scenario, workload=tuple(workloads))
    return state.put(version._replace(scenario=scenario, follows=tuple(follows)))


def next_goal(state: PanelState, key: str) -> bool:
    """Set the next of some goals for all, with the cursor on it: digits are the goal then; returns whether it did."""
    if not state.accept_typing() or not state.present.workload:
        return False
    place = state.visit_goal(key)
    return _put_next(state, place, GOALS_MS[key])


def toggle_estimate(state: PanelState) -> bool:
    """Let a TTFT goal decide by an estimate, or no more; returns whether that changed anything."""
    if not state.accept_typing():
        return False
    return state.put(replace(state.present, assume_ttft=not state.present.assume_ttft))


def next_weights(state: PanelState) -> bool:
    """Set the next of some precisions of the weights, without the one that they have; returns whether it did."""
    if not state.accept_typing() or not state.present.workload:
        return False
    workload = state.present.workload[state.workload_number]
    catalogues = state.calculation.asked_catalogues
    seen = catalogues.profile_of(workload)
    llm = catalogues.llm(workload.model)
    own = seen.weight_precision if seen is not None else ""
    if not own and llm is not None:
        own = llm.precision.value
    # The empty one stays: it is the way back to the model's own.
    others = [precision for precision in _WEIGHTS if precision != own or not precision]
    return _put_next(state, _leave_goal_for(state, "weight_precision"), others)


def next_layout(state: PanelState) -> bool:
    """Set the next layout with which the model fits, after the one in effect: TP, then stages, then ranks; behind the
    last one the first. Where none is known to fit, a typed TP is removed. Returns whether that changed anything."""
    if not state.accept_typing() or not state.present.workload:
        return False
    place = _leave_goal_for(state, "tp")
    instance = state.calculation.instance(state.workload_number)
    layouts: tuple[Layout, ...] = ()
    if instance is not None:
        layouts = holding_layouts(instance, state.present, state.calculation.asked_catalogues)
    if instance is None or not layouts:
        has_typed = typed_value(state.present, place) is not None
        return has_typed and state.put_value(place, None)
    present = (instance.dp, instance.pp, instance.tp)
    later = (layout for layout in layouts if (layout.dp, layout.pp, layout.tp) > present)
    layout = next(later, layouts[0])
    if (layout.dp, layout.pp, layout.tp) == present:
        return False
    workloads = list(state.present.workload)
    workloads[state.workload_number] = replace(
        workloads[state.workload_number],
        tp=layout.tp,
        pp=layout.pp if layout.pp > 1 else None,
        dp=layout.dp if layout.dp > 1 else None,
    )
    return state.put(replace(state.present, workload=tuple(workloads)), place)


def _leave_goal_for(state: PanelState, key: str) -> FieldPlace:
    """Put a cursor that was put on a goal back on its row; returns the place of a field of the chosen workload."""
    state.leave_goal()
    return FieldPlace(WORKLOAD, state.workload_number, field_of(WORKLOAD, key))


def _put_next(state: PanelState, place: FieldPlace, values: Sequence[Value]) -> bool:
    """Set the value after the present one in a circle, the first where it is none of them; returns whether it did."""
    present = typed_value(state.present, place)
    if present not in values:
        return state.put_value(place, values[0])
    return state.put_value(place, values[(values.index(present) + 1) % len(values)])
