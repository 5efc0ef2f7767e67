"""A host's exports by its own gpumon as a snapshot again: the catalogue of figures, read backwards.

Only numbers and codes are exported, so there are no sentences in it but those of codes. Samples are untrusted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from gpumon.figures.engine import BACKEND, ENGINE, RANK
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, HOST_COSTS, SELF
from gpumon.figures.model import MODEL
from gpumon.figures.unit import LARGEST
from gpumon.readings.bounds import drop_impossible
from gpumon.readings.exported import DOUBTS, ENGINE_TEXTS, GPU_TEXTS, HOST_TEXTS, PREFIX, PRIVATE, ExportedSample
from gpumon.readings.flat import flat_fields, make_record
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Departure, EndpointState, EngineKind, GpuState, HostReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import MOST_POSITIONS
from gpumon.readings.snapshot import (
    Backend,
    BandwidthSource,
    Engine,
    FaultShown,
    Gpu,
    HostCosts,
    RankLoad,
    Replicas,
    Self,
    Snapshot,
)
from gpumon.readings.verdict import (
    Acknowledged,
    Action,
    Confidence,
    Evidence,
    Family,
    Kind,
    Level,
    Limit,
    RaisedAlert,
    Signal,
    Verdict,
)
from gpumon.triage import peers

LabelledValue = tuple[dict[str, str], float]
"""Labels and value of one series."""
_YES: Final = "yes"
"""Value of a label that stands for true."""
E = TypeVar("E", bound=Enum)


def _parts(kind: type[msgspec.Struct], rows: Figures) -> dict[str, type[msgspec.Struct]]:
    """Fields of a record that are objects with exported figures in them -> the type of such an object."""
    fields = flat_fields(kind)
    parts = {}
    for path, _ in rows.exported:
        name, dot, _ = path.partition(".")
        if dot:
            _, field = fields[name]
            parts[name] = field.type
    return parts


ENGINE_PARTS: Final = _parts(Engine, ENGINE)
_MODEL_PARTS: Final = _parts(Replicas, MODEL)
MORE_ON_HOST: Final = "gpumon on that host says more (`gpumon`, /snapshot.json)"
"""In the place of a sentence, of which only the code is exported."""
STUCK: Final = "the gpumon of this host has not renewed its figures: see its journal, then restart gpumon serve-metrics"
_REASON_OF_STATE: Final = {
    GpuState.STALE: Reason.STALE,
    GpuState.MUTE: Reason.STALE,
    GpuState.LOST: Reason.LOST,
    GpuState.INITIALISING: Reason.WARMING_UP,
    GpuState.ERROR: Reason.ERROR,
}
_ACKNOWLEDGED_UNTIL: Final = "verdict_acknowledged_until_timestamp_seconds"
"""Series whose label says who has acknowledged a verdict."""
_COUNTED_SERIES: Final = {
    "gpu_info": "gpus",
    "engine_info": "engines",
    "verdict": "verdicts",
    "alert": "alerts",
    "faults": "faults",
    "verdict_evidence": "evidence of all verdicts",
    "verdict_action_info": "actions of all verdicts",
    "verdict_unknown_info": "missing signals of all verdicts",
    "verdict_parameter": "parameters of all verdicts",
    "missing_info": "missing figures",
    "engine_gpu_info": "GPUs of all engines",
    "model_replica_info": "engines of all models",
}
"""Series of which there is one for each of something -> what that is: more than there can be are refused."""


def _positions(kind: Iterable[E]) -> dict[E, int]:
    """Member of an enumeration -> its position in it."""
    return {member: position for position, member in enumerate(kind)}


_LEVELS: Final = _positions(Level)
_FAMILIES: Final = _positions(Family)
_LIMITS: Final = _positions(Limit)


class OwnScrape:
    """The samples of one page, by name, and then by one of their labels."""

    def __init__(self, samples: Iterable[ExportedSample]) -> None:
        self._named: dict[str, list[LabelledValue]] = defaultdict(list)
        """Name without `PREFIX` -> its series."""
        self._grouped: dict[tuple[str, str], dict[str, list[LabelledValue]]] = {}
        """Name and label -> value of the label -> the series that have it; made when it is asked for."""
        for name, labels, value in samples:
            if name.startswith(PREFIX) and math.isfinite(value):
                self._named[name[len(PREFIX) :]].append((labels, value))

    def series_named(self, name: str) -> Sequence[LabelledValue]:
        """Series of a name, without `PREFIX`."""
        return self._named.get(name, ())

    def series_by_label(self, name: str, label: str, value: str) -> Sequence[LabelledValue]:
        """The series whose label has that value."""
        groups = self._grouped.get((name, label))
        if groups is None:
            groups = defaultdict(list)
            self._grouped[name, label] = groups
            for series in self.series_named(name):
                series_labels, _ = series
                groups[series_labels.get(label, "")].append(series)
        return groups.get(value, ())

    def value(self, name: str, labels: Mapping[str, str]) -> float | None:
        """The value of the first series that has these labels."""
        return next((number for _, number in self.series_with(name, labels)), None)

    def series_with(self, name: str, labels: Mapping[str, str]) -> Iterator[LabelledValue]:
        """The series that have these labels."""
        candidates = self.series_named(name)
        if labels:
            first_label = next(iter(labels))
            candidates = self.series_by_label(name, first_label, labels[first_label])
        for series_labels, number in candidates:
            if all(series_labels.get(label, "") == text for label, text in labels.items()):
                yield series_labels, number

    def label_values(self, name: str, labels: Mapping[str, str], label: str) -> list[str]:
        """The values of another label in the series that have these labels."""
        return [series_labels.get(label, "") for series_labels, _ in self.series_with(name, labels)]

    def since(self, name: str, labels: Mapping[str, str]) -> str:
        """The value of the first series that has these labels, a Unix time, as RFC 3339; empty where there is none."""
        return _time_text(self.value(name, labels))


def rebuild_snapshot(samples: Iterable[ExportedSample], wall_s: float, interval_s: float) -> Snapshot | None:
    """The snapshot that `samples` were exported from; None where they are of no gpumon.

    Raises PeerError where they have more of something than a host can have, and nothing else, whatever they hold.

    What is not exported has the values of a Struct's defaults: processes, provenance, events, what only sizing needs.
    Where that gpumon's collector is stuck, the snapshot is empty but for a fault that says so.
    """
    page = OwnScrape(samples)
    collector = page.value("source_up", {"source": "collector"})
    if collector is None:
        return None
    for name, field in _COUNTED_SERIES.items():
        peers.check_count(field, len(page.series_named(name)))
    host_labels = next((labels for labels, _ in page.series_named("host_info")), {})
    host_texts = _texts(host_labels, HOST_TEXTS, ())
    gpus = tuple(sorted(_gpus(page), key=lambda gpu: (gpu.reading.index, gpu.reading.uuid)))
    engines = tuple(sorted(_engines(page), key=lambda engine: engine.name))
    time = _time_text(wall_s)
    faults = list(_faults(page))
    if not collector:
        faults.insert(0, FaultShown("gpumon", STUCK, time))
    return Snapshot(
        time=time,
        wall_s=wall_s,
        simulated=host_labels.get("simulated") == _YES,
        interval_s=interval_s,
        host=HostReading(**host_texts, **_figures(page, HOST, {}, {}, NOT_EXPOSED)),
        costs=HostCosts(**_figures(page, HOST_COSTS, {}, {}, NOT_EXPOSED)),
        self_cost=Self(**_figures(page, SELF, {}, {}, NOT_EXPOSED)),
        gpus=gpus,
        engines=engines,
        verdicts=tuple(sorted(_verdicts(page), key=_urgency_order)),
        faults=tuple(faults),
        replicas=tuple(_models(page)),
        alerts=tuple(_alerts(page)),
    )


def _time_text(wall_s: float | None) -> str:
    """A Unix time as RFC 3339; empty where there is none, or it is beyond the calendar."""
    if wall_s is None:
        return ""
    try:
        return rfc3339(wall_s)
    except (ValueError, OverflowError, OSError):
        return ""


def _small_number(text: str) -> int:
    """The number of a label; 0 where it is none."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return 0


def _member_or(kind: type[E], text: str, otherwise: E) -> E:
    """The member of an enumeration with this value; `otherwise` where it has none."""
    try:
        return kind(text)
    except ValueError:
        return otherwise


def _figures(
    page: OwnScrape,
    rows: Figures,
    labels: Mapping[str, str],
    parts: Mapping[str, type[msgspec.Struct]],
    absent: Reading,
    reasons: Mapping[str, Reading] = {},
) -> dict[str, Any]:
    """Keyword arguments of a Struct: every exported figure, those in its parts as Structs of their own.

    A figure that is not exported is missing for the reason that `reasons` has for its field, else as `absent`.
    """
    figures: dict[str, Any] = {}
    for path, exported in rows.exported:
        number = page.value(exported.sample, {**labels, **exported.labels})
        if exported.zero_is_unknown:
            figures[path] = _whole_number(number)
        else:
            figures[path] = reasons.get(path, absent) if number is None else number
    drop_impossible(rows, figures, tuple(figures), peers.WHO)
    part_figures: dict[str, dict[str, Any]] = {name: {} for name in parts}
    for path in [path for path in figures if "." in path]:
        part, _, field = path.partition(".")
        part_figures[part][field] = figures.pop(path)
    for name, kind in parts.items():
        figures[name] = kind(**part_figures[name])
    return figures


def _whole_number(value: float | None) -> int:
    """A count; 0 where it is not exported, or cannot be one."""
    if value is None or not 0 <= value < 1e9:
        return 0
    return int(value)


def _reasons(page: OwnScrape, kind: str, thing: str) -> dict[str, Reading]:
    """Why figures of a GPU or an engine are missing, by their fields."""
    reasons: dict[str, Reading] = {}
    for labels, _ in page.series_by_label("missing_info", "thing", thing):
        if labels.get("of") == kind:
            reason = _member_or(Reason, labels.get("reason", ""), Reason.NOT_EXPOSED)
            reasons[labels.get("field", "")] = Missing(reason)
    return reasons


def _texts(labels: Mapping[str, str], fields: Mapping[str, str], flags: Sequence[str]) -> dict[str, Any]:
    """Texts and flags by their fields; `fields` has the field of each label."""
    texts: dict[str, Any] = {}
    for label, name in fields.items():
        text = labels.get(label, "")
        if name in flags:
            texts[name] = text == _YES
        else:
            texts[name] = text
    return texts


_GPU_FLAGS: Final = ("vram_shared", "peak_unverified", "bandwidth_peak_unverified")
_ENGINE_FLAGS: Final = (
    *("from_documentation", "peak_unverified", "bandwidth_peak_unverified"),
    *("ttft_goal_assumed", "itl_goal_assumed"),
)


def _gpus(page: OwnScrape) -> Iterator[Gpu]:
    """The GPUs and slices of the page."""
    for info, _ in page.series_named("gpu_info"):
        index = info.get("gpu", "")
        uuid = info.get("uuid", "")
        if not index.isascii() or not index.isdigit() or len(index) > 9:
            continue
        labels = {"uuid": uuid, "gpu": index}
        key = uuid or index
        state_text = next(iter(page.label_values("gpu_state", labels, "state")), "")
        state = _member_or(GpuState, state_text, GpuState.ERROR)
        absent = Missing(_REASON_OF_STATE.get(state, Reason.NOT_EXPOSED))
        texts = _texts(info, GPU_TEXTS, _GPU_FLAGS)
        texts["bandwidth_source"] = _member_or(BandwidthSource, texts["bandwidth_source"], BandwidthSource.NONE)
        throttle_s = {
            series_labels.get("cause", ""): peers.bounded_number("throttle_s", seconds)
            for series_labels, seconds in page.series_with("gpu_throttle_seconds_total", labels)
        }
        figures = _figures(page, GPU, labels, {}, absent, reasons=_reasons(page, "gpu", key))
        fields = {
            "index": int(index),
            "uuid": uuid,
            "state": state,
            "age_s": peers.bounded_number("age_s", page.value("gpu_age_seconds", labels) or 0.0),
            "throttle": tuple(page.label_values("gpu_throttled", labels, "cause")),
            "throttle_s": throttle_s,
            "xid": tuple(sorted(map(_small_number, page.label_values("gpu_xid", labels, "xid")))),
            "engines": tuple(sorted(page.label_values("engine_gpu_info", labels, "engine"))),
        }
        yield make_record(Gpu, {**fields, **texts, **figures})


def _engines(page: OwnScrape) -> Iterator[Engine]:
    """The engines of the page."""
    for info, _ in page.series_named("engine_info"):
        name = info.get("engine", "")
        labels = {"engine": name}
        state_text = next(iter(page.label_values("engine_state", labels, "state")), "")
        state = _member_or(EndpointState, state_text, EndpointState.ERROR)
        absent = NOT_EXPOSED
        if not page.value("source_up", {"name": name, "source": "engine"}):
            reason = Reason.STALE if state is EndpointState.OK else Reason.UNREACHABLE
            absent = Missing(reason)
        texts = _texts(info, ENGINE_TEXTS, _ENGINE_FLAGS)
        texts["kind"] = _member_or(EngineKind, texts["kind"], EngineKind.UNKNOWN)
        texts["phase"] = _member_or(Phase, texts["phase"], Phase.INFERENCE)
        figures = _figures(page, ENGINE, labels, ENGINE_PARTS, absent, _reasons(page, "engine", name))
        doubts = page.label_values("engine_doubt", labels, "doubt")
        fields = {
            "name": name,
            "state": state,
            "since": page.since("engine_state_since_timestamp_seconds", labels),
            "age_s": peers.bounded_number("age_s", page.value("engine_age_seconds", labels) or 0.0),
            "gpus": tuple(sorted(set(map(_small_number, page.label_values("engine_gpu_info", labels, "gpu"))))),
            "departure": _departure(page, labels),
            "rank_loads": tuple(_ranks(page, name)),
            "backends": tuple(_backends(page, name)),
            "accepted_by_position": _accepted(page, labels),
        }
        for doubt in DOUBTS:
            fields[doubt] = (Evidence("own_gpumon"),) if doubt in doubts else ()
        yield make_record(Engine, {**fields, **texts, **figures})


def _accepted(page: OwnScrape, labels: Mapping[str, str]) -> tuple[float, ...]:
    """Share of drafts that were accepted at each position, in order."""
    shares = {
        _small_number(series_labels.get("position", "")): peers.bounded_number("acceptance_ratio", value)
        for series_labels, value in page.series_with("engine_speculation_position_accepted_ratio", labels)
    }
    return tuple(shares[position] for position in sorted(shares)[:MOST_POSITIONS])


def _departure(page: OwnScrape, labels: Mapping[str, str]) -> tuple[Departure, ...]:
    """How an engine ended, as far as that is exported; none of one that runs."""
    for series_labels, wall_s in page.series_with("engine_ended_timestamp_seconds", labels):
        number = _small_number(series_labels.get("number", ""))
        planned = series_labels.get("planned", "") == _YES
        return (Departure(wall_s=wall_s, cause=series_labels.get("cause", ""), number=number, planned=planned),)
    return ()


def _ranks(page: OwnScrape, engine: str) -> Iterator[RankLoad]:
    """The data-parallel ranks of an engine, in order."""
    ranks = {
        series_labels.get("rank", "")
        for _, exported in RANK.exported
        for series_labels, _ in page.series_by_label(exported.sample, "engine", engine)
    }
    for rank in sorted(ranks, key=lambda text: (_small_number(text), text)):
        labels = {"engine": engine, "rank": rank}
        yield RankLoad(rank, **_figures(page, RANK, labels, {}, NOT_EXPOSED))


def _backends(page: OwnScrape, engine: str) -> Iterator[Backend]:
    """The backends of a front end, in the order of their addresses."""
    polled_as = {
        series_labels.get("backend", ""): series_labels.get("polled_as", "")
        for _, exported in BACKEND.exported
        for series_labels, _ in page.series_by_label(exported.sample, "engine", engine)
    }
    for address in sorted(polled_as):
        labels = {"engine": engine, "backend": address, "polled_as": polled_as[address]}
        yield Backend(address, polled_as[address], **_figures(page, BACKEND, labels, {}, NOT_EXPOSED))


def _models(page: OwnScrape) -> Iterator[Replicas]:
    """The models of the page with their engines, by name."""
    deviates: dict[str, dict[str, bool]] = {}
    """Model -> engine -> whether it stands apart from the others."""
    for name in {exported.sample for _, exported in MODEL.exported}:
        for labels, _ in page.series_named(name):
            deviates.setdefault(labels.get("model", ""), {})
    for labels, _ in page.series_named("model_replica_info"):
        engines_of_model = deviates.setdefault(labels.get("model", ""), {})
        engines_of_model[labels.get("engine", "")] = labels.get("deviating", "") == _YES
    for model in sorted(deviates):
        engines = sorted(deviates[model])
        yield Replicas(
            model=model,
            engines=tuple(engines),
            deviating=tuple(engine for engine in engines if deviates[model][engine]),
            **_figures(page, MODEL, {"model": model}, _MODEL_PARTS, NOT_EXPOSED),
        )


def _urgency_order(verdict: Verdict) -> tuple[int, int, int, str, str]:
    """As triage orders them: the most urgent first."""
    order = (_LEVELS[verdict.level], _FAMILIES[verdict.family], _LIMITS[verdict.code])
    return (*order, verdict.kind.value, verdict.key)


def _verdicts(page: OwnScrape) -> Iterator[Verdict]:
    """The verdicts of the page, without those of a kind that this gpumon does not know."""
    for verdict, _ in page.series_named("verdict"):
        labels = {
            "thing": verdict.get("thing", ""),
            "kind": verdict.get("kind", ""),
            "family": verdict.get("family", ""),
        }
        try:
            kind = Kind(labels["kind"])
            family = Family(labels["family"])
            code = Limit(verdict.get("code", ""))
            level = Level(verdict.get("level", ""))
            confidence = Confidence(verdict.get("confidence", ""))
        except ValueError:  # of a newer gpumon
            continue
        yield peers.bounded_verdict(
            Verdict(
                scope=verdict.get("scope", ""),
                code=code,
                cause=verdict.get("cause", ""),
                since=page.since("verdict_since_timestamp_seconds", labels),
                kind=kind,
                key=labels["thing"],
                family=family,
                level=level,
                confidence=confidence,
                parameters=_parameters(page, labels, "verdict"),
                evidence=tuple(_evidence(page, labels)),
                actions=tuple(_actions(page, labels)),
                unknown=tuple(_unknown(page, labels)),
                until=page.since("verdict_until_timestamp_seconds", labels),
                caused_by=next(iter(page.label_values("verdict_caused_by_info", labels, "id")), ""),
                acknowledged=_acknowledged(page, labels),
            )
        )


def _acknowledged(page: OwnScrape, labels: Mapping[str, str]) -> Acknowledged | None:
    """Who has acknowledged a verdict; the reason stays on its host. None: nobody."""
    for series_labels, _ in page.series_with(_ACKNOWLEDGED_UNTIL, labels):
        return Acknowledged(
            who=series_labels.get("who", ""),
            reason="",
            until=page.since(_ACKNOWLEDGED_UNTIL, labels),
            since=page.since("verdict_acknowledged_since_timestamp_seconds", labels),
        )
    return None


def _in_order(series: Iterable[LabelledValue]) -> list[LabelledValue]:
    """The series in the order of the numbers that they have as a label."""
    return sorted(series, key=_label_number)


def _label_number(series: LabelledValue) -> int:
    """The position of a series among those of one verdict: its label `at`."""
    labels, _ = series
    return _small_number(labels.get("at", ""))


def _evidence(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Evidence]:
    """The evidence of a verdict, in order."""
    for series_labels, value in _in_order(page.series_with("verdict_evidence", labels)):
        parameters = _parameters(page, labels, f"evidence {series_labels.get('at', '')}")
        limit = parameters.pop("limit", NOT_EXPOSED)
        if isinstance(limit, str):
            limit = NOT_EXPOSED
        yield peers.bounded_evidence(
            Evidence(
                series_labels.get("quantity", ""),
                value,
                limit=limit,
                source=series_labels.get("source", ""),
                chart=series_labels.get("chart", ""),
                parameters=parameters,
            )
        )


def _actions(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Action]:
    """The actions that a verdict advises, in order."""
    for series_labels, _ in _in_order(page.series_with("verdict_action_info", labels)):
        parameters = _parameters(page, labels, f"action {series_labels.get('at', '')}")
        yield peers.vetted_action(Action(series_labels.get("code", ""), parameters))


def _unknown(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Signal]:
    """The signals that a verdict lacks, in order."""
    for series_labels, _ in _in_order(page.series_with("verdict_unknown_info", labels)):
        parameters = _parameters(page, labels, f"unknown {series_labels.get('at', '')}")
        yield peers.bounded_signal(
            Signal(
                series_labels.get("code", ""), series_labels.get("reason", ""), series_labels.get("fix", ""), parameters
            )
        )


def _parameters(page: OwnScrape, labels: Mapping[str, str], kind: str) -> dict[str, float | str]:
    """Figures and names of one sentence; of what the host kept to itself, the word that stands for it."""
    parameters: dict[str, float | str] = {}
    for series_labels, value in page.series_with("verdict_parameter", {**labels, "of": kind}):
        name = series_labels.get("name", "")
        parameter = PRIVATE.get(name, series_labels.get("text", "") or value)
        if parameter != "":
            parameters[name] = parameter
    return parameters


def _alerts(page: OwnScrape) -> Iterator[RaisedAlert]:
    """The raised alerts of the page."""
    for labels, _ in page.series_named("alert"):
        key = {"alert": labels.get("alert", ""), "scope": labels.get("scope", "")}
        value: Reading = NOT_EXPOSED
        text = ""
        exported_value = page.value("alert_value", key)
        if exported_value is not None:
            text = f"{exported_value:.6g}"
            if abs(exported_value) <= LARGEST:
                value = exported_value
        yield RaisedAlert(
            name=key["alert"],
            scope=key["scope"],
            text=text,
            since=page.since("alert_since_timestamp_seconds", key),
            value=value,
        )


def _faults(page: OwnScrape) -> Iterator[FaultShown]:
    """A fault for each source that has some: their texts are not exported."""
    for labels, count in page.series_named("faults"):
        yield FaultShown(labels.get("source", ""), f"{count:.0f} reported; {MORE_ON_HOST}", "")
