"""The question that the running engines pose: a scenario of what is here now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import FRONTENDS, engines_in_sums
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import REPLICAS_WITH_ROOM, Kind, Verdict
from gpumon.sizing.live_gpus import first_few, servers_here
from gpumon.sizing.peaks import PeakLoad, credible, turned_away_of
from gpumon.sizing.profile import Observed, best_profile
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.specs.llm import LlmSpec

_LEAST_TURNED_AWAY: Final = 0.5
"""Requests that are turned away, beside those in flight, from which on a note says so: fewer are rounded to 0."""


def from_live(
    snapshot: Snapshot,
    observed: Sequence[Observed],
    base: Scenario | None = None,
    in_flight: Mapping[str, PeakLoad] | None = None,
) -> Scenario:
    """One workload per model that is served now, its target the requests in flight; the server is the one seen.

    `observed`: profiles of the engines, of which each model gets the best. `in_flight`: peaks of the last minutes by
    model (`Calibration.in_flight`), as a plan is for the peak, or for the requests at this instant where these are
    more; a p95 of a longer past is the target as it is. `base` has what cannot be seen: goals, prices, planning factor,
    and a server shape where the user gave one. What was assumed or left out stands in the note.
    """
    if base is None:
        base = Scenario()
    served = _served_models(snapshot)
    peaks = {model: load for model, load in (in_flight or {}).items() if model in served.engines}
    notes = [*first_few(served.left_out, "engines"), *_peaks_note(peaks, served.engines)]
    workloads = [
        _workload(model, engines, observed, peaks.get(model), notes) for model, engines in served.engines.items()
    ]
    server = base.server or servers_here(snapshot, notes)
    note = "; ".join(filter(None, (base.note, *notes)))
    return msgspec.structs.replace(base, name=base.name or "live", note=note, server=server, workload=tuple(workloads))


def live_targets(snapshot: Snapshot, in_flight: Mapping[str, PeakLoad]) -> dict[str, float]:
    """Served model name -> the target that `from_live` has for it now; none for a model whose engines do not tell."""
    return {
        model: max(1.0, _in_flight(engines, in_flight.get(model)) or 0.0)
        for model, engines in _served_models(snapshot).engines.items()
        if _telling_engines(engines)
    }


def target_origins(snapshot: Snapshot, peaks: Mapping[str, PeakLoad]) -> dict[str, str]:
    """Served model name -> origin of its target, beside the other load that it could be.

    As `the peak of the last 5 min; 113 in flight at the end, 29 of them turned away`, or, where more were in flight at
    the end, `113 in flight at the end; highest mean of 10 s in the last 5 min: 64`. None for a model without a
    peak.
    """
    origins = {}
    for model, engines in _served_models(snapshot).engines.items():
        peak = peaks.get(model)
        load = _instant_load(engines)
        if peak is not None and load is not None:
            origins[model] = _origin_text(engines, peak, load)
    return origins


def _origin_text(engines: Sequence[Engine], peak: PeakLoad, load: float) -> str:
    """The origin of a target of a peak and of the load at this instant: the larger one of both stands in front."""
    span = _duration_text(peak.seconds)
    if _is_above(load, peak):
        highest = f"highest mean of {peak.step_s:.0f} s in the last {span}: {peak.peak:,.0f}"
        return f"{_load_text(engines, load)}; {highest}"
    return f"the {peak.what} of the last {span}; {_load_text(engines, load)}"


def _is_above(load: float, peak: PeakLoad) -> bool:
    """Whether more are in flight at this instant than in any step that a peak is the highest of."""
    return peak.what == "peak" and round(load) > round(peak.peak)


def _load_text(engines: Sequence[Engine], load: float) -> str:
    """The load of the last instant: `113 in flight at the end, 29 of them turned away`; `at least 113` where an engine
    does not tell."""
    text = f"{load:,.0f} in flight at the end"
    if not all(_tells_load(engine) for engine in engines):
        text = f"at least {text}"
    turned_away = sum(turned_away_of(engine) for engine in engines)
    if turned_away >= _LEAST_TURNED_AWAY:
        text += f", {turned_away:,.0f} of them turned away"
    return text


def _tells_load(engine: Engine) -> bool:
    """Whether it is known how many requests an engine has: running and waiting, or none as its process has ended."""
    if engine.state is EndpointState.DOWN:
        return True
    return credible(engine.load.running) is not None and credible(engine.load.waiting) is not None


def instances_here(snapshot: Snapshot) -> dict[str, int]:
    """Served model name -> instances that answer: data-parallel ranks count one by one."""
    counts: Counter[str] = Counter()
    for engine in snapshot.engines:
        if engine.state is EndpointState.OK and engine.model and engine.kind not in FRONTENDS:
            counts[engine.model] += max(engine.hardware.ranks, 1)
    return dict(counts)


def kv_ratios(snapshot: Snapshot) -> dict[str, float]:
    """Served model name -> used share of the fullest KV cache of its engines that answer and tell."""
    ratios: dict[str, float] = {}
    for engine in snapshot.engines:
        ratio = credible(engine.load.kv_usage_ratio)
        if engine.state is EndpointState.OK and engine.model and ratio is not None:
            ratios[engine.model] = max(ratio, ratios.get(engine.model, 0.0))
    return ratios


class UnevenRouting(NamedTuple):
    """Replicas of a model that are at their limit now, beside others with room."""

    at_limit: int
    with_room: int
    """Most of the others to which triage would send requests of one at its limit: with prefill and decode apart, each
    has others."""


def uneven_routing(snapshot: Snapshot) -> dict[str, UnevenRouting]:
    """Served model name -> its replicas at both ends, as triage finds them; plans assume even routing.

    Models without such a verdict are left out: one moment does not show who has room, nor which part of the work a
    replica does. So is a verdict that holds no more.
    """
    models = {engine.key: engine.model for engine in snapshot.engines}
    at_limit: dict[str, set[str]] = {}
    with_room: dict[str, int] = {}
    for verdict in snapshot.verdicts:
        model = models.get(verdict.key, "")
        roomy = _replicas_with_room(verdict)
        if model and roomy and verdict.kind is Kind.ENGINE and not verdict.until:
            at_limit.setdefault(model, set()).add(verdict.key)
            with_room[model] = max(roomy, with_room.get(model, 0))
    return {model: UnevenRouting(len(keys), with_room[model]) for model, keys in at_limit.items()}


def _replicas_with_room(verdict: Verdict) -> int:
    """Other replicas that a verdict says have room; 0 where it says so of none."""
    for evidence in verdict.evidence:
        if evidence.quantity == REPLICAS_WITH_ROOM:
            return round(credible(evidence.value) or 0.0)
    return 0


def own_models(snapshot: Snapshot) -> dict[str, LlmSpec]:
    """Served model name -> dimensions, of the engines whose model is known."""
    return {
        engine.model: engine.dimensions.llm
        for engine in snapshot.engines
        if engine.model and engine.dimensions.llm is not None
    }


class _ServedModels(NamedTuple):
    """Models that a plan is for."""

    engines: dict[str, list[Engine]]
    """Served model name -> its engines."""
    left_out: list[str]
    """Engines that are of none of these models, each with the reason."""


def _served_models(snapshot: Snapshot) -> _ServedModels:
    """The models that engines serve with generated tokens."""
    served = _ServedModels({}, [])
    for engine in engines_in_sums(snapshot.engines):
        decode_tokens = engine.tokens_total.decode
        if engine.phase is not Phase.INFERENCE:
            continue
        # Embedding models and the like have no such figure, also while their engine does not answer.
        if isinstance(decode_tokens, Missing) and decode_tokens.reason is Reason.NOT_SUPPORTED:
            served.left_out.append(f"{engine.name}: left out (it generates no tokens)")
        elif engine.model:
            served.engines.setdefault(engine.model, []).append(engine)
        else:
            served.left_out.append(f"{engine.name}: its model is not known")
    return served


def _telling_engines(engines: Sequence[Engine]) -> list[Engine]:
    """The engines that tell how many requests they run."""
    return [engine for engine in engines if credible(engine.load.running) is not None]


def _in_flight(engines: Sequence[Engine], peak: PeakLoad | None) -> float | None:
    """Requests in flight to plan for: the larger one of the peak and of this instant; None where nobody told either."""
    load = _instant_load(engines)
    if peak is None:
        return load
    if load is not None and _is_above(load, peak):
        return float(round(load))
    return float(round(peak.peak))


def _instant_load(engines: Sequence[Engine]) -> float | None:
    """Requests in flight at this instant; None where no engine tells."""
    loads = []
    for engine in _telling_engines(engines):
        running = credible(engine.load.running) or 0.0
        waiting = credible(engine.load.waiting) or 0.0
        loads.append(running + waiting + turned_away_of(engine))
    if loads:
        return sum(loads)
    return None


def _workload(
    model: str, engines: Sequence[Engine], observed: Sequence[Observed], peak: PeakLoad | None, notes: list[str]
) -> Workload:
    """The workload of a model as its engines show it. Adds notes on what its target leaves out or assumes."""
    profile = best_profile(model, observed)
    in_flight = _in_flight(engines, peak)
    target = _usual_load(engines, profile) if in_flight is None else in_flight
    turned_away = sum(turned_away_of(engine) for engine in engines)
    if turned_away >= _LEAST_TURNED_AWAY:
        notes.append(f"{model}: requests are turned away, {turned_away:.0f} more would run: the target has them, too")
    notes += _silent_note(engines, profile)
    if target <= 0.0:
        reason = "what it had in flight is not known" if in_flight is None else "nothing in flight now"
        notes.append(f"{model}: {reason}, so its target is 1")
    return Workload(model=model, target=max(1.0, target), seen=profile)


def _silent_note(engines: Sequence[Engine], profile: Observed | None) -> list[str]:
    """A note that names the engines of a model that have no figures now; none if all have."""
    silent = [engine for engine in engines if credible(engine.load.running) is None]
    if not silent:
        return []
    last_seen = f", last seen {profile.time}" if profile is not None and profile.time else ""
    names = ", ".join(first_few([engine.name for engine in silent], "engines"))
    return [f"{names}: no figures now ({silent[0].state.value}{last_seen})"]


def _usual_load(engines: Sequence[Engine], profile: Observed | None) -> float:
    """Requests in flight of all instances at the load that was seen most; 0 where none was."""
    if profile is None or not profile.points:
        return 0.0
    usual_running = max(profile.points, key=lambda point: point.weight).running
    instances = sum(max(engine.hardware.ranks, 1) for engine in engines)
    return float(round(usual_running * instances))


def _peaks_note(peaks: Mapping[str, PeakLoad], engines: Mapping[str, Sequence[Engine]]) -> list[str]:
    """Source of the targets: `targets: the peak of the last 5 min, 64 running + waiting (mean 41)`; none without peaks.

    With several models each is named. `engines`: those of each model, which may have more in flight at this instant.
    """
    if not peaks:
        return []
    seconds = 0.0
    texts = []
    for model, load in peaks.items():
        seconds = max(seconds, load.seconds)
        text = f"{load.peak:.0f} running + waiting (mean {load.mean:.0f})"
        instant_load = _instant_load(engines[model])
        if instant_load is not None and _is_above(instant_load, load):
            text += f", {instant_load:.0f} at its end"
        if len(peaks) > 1:
            text = f"{clean(model)} {text}"
        if load.requests_per_s is not None:
            text += f", {load.requests_per_s:.3g} requests/s"
        texts.append(text)
    first = next(iter(peaks.values()))  # all are of one kind
    return [f"targets: the {first.what} of the last {_duration_text(seconds)}, {', '.join(texts)}"]


def _duration_text(seconds: float) -> str:
    """A length of time in whole seconds, minutes, or from 2 hours on hours: `45 s`, `90 min`, `3 h`."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"
