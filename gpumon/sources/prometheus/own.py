"""A host's exports by its own gpumon as a snapshot again: the table of `readings.exported`, read backwards.

Only numbers and codes are exported, so there are no sentences in it but those of codes. Samples are untrusted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from gpumon.readings import exported
from gpumon.readings.bounds import LARGEST
from gpumon.readings.exported import PREFIX, ExportedSample, Field
from gpumon.readings.flat import make_record
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Departure, EndpointState, EngineKind, GpuState, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import MOST_POSITIONS
from gpumon.readings.snapshot import (
    Backend,
    BandwidthSource,
    CachedBy,
    Engine,
    FaultShown,
    Gpu,
    Host,
    HostCosts,
    Lengths,
    Outcomes,
    OwnEstimate,
    Phases,
    Quantiles,
    RankLoad,
    Replicas,
    Seen,
    Self,
    Snapshot,
    TokensTotal,
    WithinGoal,
)
from gpumon.readings.verdict import (
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
E = TypeVar("E", bound=Enum)

_PARTS: Final[dict[str, type[msgspec.Struct]]] = {
    "ttft_s": Quantiles,
    "itl_s": Quantiles,
    "queue_s": Quantiles,
    "e2e_s": Quantiles,
    "ttft_goal": WithinGoal,
    "itl_goal": WithinGoal,
    "tpot_goal": WithinGoal,
}
"""Objects in an engine's or a model's row."""
ENGINE_PARTS: Final[dict[str, type[msgspec.Struct]]] = {
    **_PARTS,
    "outcomes": Outcomes,
    "outcomes_since_start": Outcomes,
    "prompt_tokens": Lengths,
    "answer_tokens": Lengths,
    "phases": Phases,
    "cached_by": CachedBy,
    "seen": Seen,
    "tpot_s": Quantiles,
    "tokens_total": TokensTotal,
    "own": OwnEstimate,
}
ITS_OWN: Final = "gpumon on that host says more (`gpumon`, /snapshot.json)"
"""In the place of a sentence, of which only the code is exported."""
STUCK: Final = "the gpumon of this host has not renewed its figures: see its journal, then restart gpumon serve-metrics"
_SILENT: Final = {
    GpuState.STALE: Reason.STALE,
    GpuState.LOST: Reason.LOST,
    GpuState.INITIALISING: Reason.WARMING_UP,
    GpuState.ERROR: Reason.ERROR,
}
_COUNTED: Final = {
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
"""Series of which there is one for each of something, and what: more than there can be are refused."""


def _places(kind: Iterable[E]) -> dict[E, int]:
    """Members of an enumeration -> their places in it."""
    return {member: place for place, member in enumerate(kind)}


_LEVELS: Final = _places(Level)
_FAMILIES: Final = _places(Family)
_LIMITS: Final = _places(Limit)


class OwnScrape:
    """The samples of one page, by name, and then by one of their labels."""

    def __init__(self, samples: Iterable[ExportedSample]) -> None:
        self._named: dict[str, list[LabelledValue]] = defaultdict(list)
        self._grouped: dict[tuple[str, str], dict[str, list[LabelledValue]]] = {}
        for name, labels, value in samples:
            if name.startswith(PREFIX) and math.isfinite(value):
                self._named[name[len(PREFIX) :]].append((labels, value))

    def all(self, name: str) -> Sequence[LabelledValue]:
        """Series of a name, without `PREFIX`."""
        return self._named.get(name, ())

    def of(self, name: str, label: str, value: str) -> Sequence[LabelledValue]:
        """The series whose label has that value."""
        groups = self._grouped.get((name, label))
        if groups is None:
            groups = defaultdict(list)
            self._grouped[name, label] = groups
            for series in self.all(name):
                groups[series[0].get(label, "")].append(series)
        return groups.get(value, ())

    def value(self, name: str, labels: Mapping[str, str]) -> float | None:
        """The value of the first series that has these labels."""
        return next((value for _, value in self.having(name, labels)), None)

    def having(self, name: str, labels: Mapping[str, str]) -> Iterator[LabelledValue]:
        """The series that have these labels."""
        label = next(iter(labels), "")
        for has, value in self.of(name, label, labels[label]) if label else self.all(name):
            if all(has.get(key, "") == wanted for key, wanted in labels.items()):
                yield has, value

    def told(self, name: str, labels: Mapping[str, str], label: str) -> list[str]:
        """The values of another label in the series that have these labels."""
        return [has.get(label, "") for has, _ in self.having(name, labels)]

    def since(self, name: str, labels: Mapping[str, str]) -> str:
        """A Unix time as RFC 3339; empty where there is none."""
        return _when(self.value(name, labels))


def rebuilt(samples: Iterable[ExportedSample], wall_s: float, interval_s: float) -> Snapshot | None:
    """The snapshot that `samples` gave; None where they are of no gpumon. Raises PeerError where they have more of
    something than a host can have, and nothing else, whatever they hold.

    What is not exported has the values of a Struct's defaults: processes, provenance, events, what only sizing needs.
    Where that gpumon's collector is stuck, the snapshot is empty but for a fault that says so.
    """
    page = OwnScrape(samples)
    collector = page.value("source_up", {"source": "collector"})
    if collector is None:
        return None
    for name, field in _COUNTED.items():
        peers.check_count(field, len(page.all(name)))
    names = next((labels for labels, _ in page.all("host_info")), {})
    about = _texts(names, exported.HOST_TEXTS, ())
    gpus = tuple(sorted(_gpus(page), key=lambda gpu: (gpu.index, gpu.uuid)))
    engines = tuple(sorted(_engines(page), key=lambda engine: engine.name))
    time = _when(wall_s)
    stuck = () if collector else (FaultShown("gpumon", STUCK, time),)
    return Snapshot(
        time=time,
        wall_s=wall_s,
        simulated=names.get("simulated") == "yes",
        interval_s=interval_s,
        host=Host(**about, **_figures(page, exported.EXPORTED_HOST, {}, {}, NOT_EXPOSED)),
        costs=HostCosts(**_figures(page, exported.COSTS, {}, {}, NOT_EXPOSED)),
        self_cost=Self(**_figures(page, exported.SELF, {}, {}, NOT_EXPOSED)),
        gpus=gpus,
        engines=engines,
        verdicts=tuple(sorted(_verdicts(page), key=_urgency)),
        faults=(*stuck, *_faults(page)),
        replicas=tuple(_models(page)),
        alerts=tuple(_alerts(page)),
    )


def _when(wall_s: float | None) -> str:
    if wall_s is None:
        return ""
    try:
        return rfc3339(wall_s)
    except (ValueError, OverflowError, OSError):
        return ""


def _small_number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return 0


def _member(kind: type[E], text: str, otherwise: E) -> E:
    try:
        return kind(text)
    except ValueError:
        return otherwise


def _figures(
    page: OwnScrape,
    fields: Sequence[Field],
    labels: Mapping[str, str],
    parts: Mapping[str, type[msgspec.Struct]],
    absent: Reading,
    reasons: Mapping[str, Reading] = {},
) -> dict[str, Any]:
    """Keyword arguments of a Struct: every field of the table, those in its parts as Structs of their own."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {name: {} for name in parts}
    for path, name, _, fixed, whole in fields:
        exported_value = page.value(name, {**labels, **fixed})
        value: Any = exported_value
        if whole:
            value = _whole_number(exported_value)
        elif exported_value is None:
            value = reasons.get(path, absent)
        head, dot, tail = path.partition(".")
        if dot:
            inner[head][tail] = value
        else:
            own[path] = value
    bound = peers.bounded_gpu if fields is exported.GPU else peers.bounded_figures
    for values in (own, *inner.values()):
        bound(values, tuple(values))
    for name, kind in parts.items():
        own[name] = kind(**inner[name])
    return own


def _whole_number(value: float | None) -> int:
    """A count; 0 where it is not exported, or cannot be one."""
    if value is None or not 0 <= value < 1e9:
        return 0
    return int(value)


def _reasons(page: OwnScrape, kind: str, thing: str) -> dict[str, Reading]:
    """Why figures of a GPU or an engine are missing, by their fields."""
    reasons: dict[str, Reading] = {}
    for labels, _ in page.of("missing_info", "thing", thing):
        if labels.get("of") == kind:
            reason = _member(Reason, labels.get("reason", ""), Reason.NOT_EXPOSED)
            reasons[labels.get("field", "")] = Missing(reason)
    return reasons


def _texts(labels: Mapping[str, str], fields: Mapping[str, str], flags: Sequence[str]) -> dict[str, Any]:
    """Texts and flags by their fields; `fields` has the field of each label."""
    texts: dict[str, Any] = {}
    for label, name in fields.items():
        text = labels.get(label, "")
        if name in flags:
            texts[name] = text == "yes"
        else:
            texts[name] = text
    return texts


_GPU_FLAGS: Final = ("vram_shared", "peak_unverified", "bandwidth_peak_unverified")
_ENGINE_FLAGS: Final = (
    *("from_documentation", "peak_unverified", "bandwidth_peak_unverified"),
    *("ttft_goal_assumed", "itl_goal_assumed"),
)


def _gpus(page: OwnScrape) -> Iterator[Gpu]:
    for info, _ in page.all("gpu_info"):
        index = info.get("gpu", "")
        uuid = info.get("uuid", "")
        if not index.isascii() or not index.isdigit() or len(index) > 9:
            continue
        labels = {"uuid": uuid, "gpu": index}
        key = uuid or index
        standing = _member(GpuState, next(iter(page.told("gpu_state", labels, "state")), ""), GpuState.ERROR)
        absent = Missing(_SILENT.get(standing, Reason.NOT_EXPOSED))
        texts = _texts(info, exported.GPU_TEXTS, _GPU_FLAGS)
        texts["bandwidth_source"] = _member(BandwidthSource, texts["bandwidth_source"], BandwidthSource.NONE)
        slowed = page.having("gpu_throttle_seconds_total", labels)
        yield Gpu(
            index=int(index),
            uuid=uuid,
            state=standing,
            age_s=peers.bounded_number("age_s", page.value("gpu_age_seconds", labels) or 0.0),
            throttle=tuple(page.told("gpu_throttled", labels, "cause")),
            throttle_s={has.get("cause", ""): peers.bounded_number("throttle_s", value) for has, value in slowed},
            xid=tuple(sorted(map(_small_number, page.told("gpu_xid", labels, "xid")))),
            engines=tuple(sorted(page.told("engine_gpu_info", labels, "engine"))),
            **texts,
            **_figures(page, exported.GPU, labels, {}, absent, _reasons(page, "gpu", key)),
        )


def _engines(page: OwnScrape) -> Iterator[Engine]:
    for info, _ in page.all("engine_info"):
        name = info.get("engine", "")
        labels = {"engine": name}
        state = next(iter(page.told("engine_state", labels, "state")), "")
        up = page.value("source_up", {"name": name, "source": "engine"})
        standing = _member(EndpointState, state, EndpointState.ERROR)
        absent = NOT_EXPOSED
        if not up:
            absent = Missing(Reason.STALE if standing is EndpointState.OK else Reason.UNREACHABLE)
        texts = _texts(info, exported.ENGINE_TEXTS, _ENGINE_FLAGS)
        texts["kind"] = _member(EngineKind, texts["kind"], EngineKind.UNKNOWN)
        texts["phase"] = _member(Phase, texts["phase"], Phase.INFERENCE)
        figures = _figures(page, exported.EXPORTED_ENGINE, labels, ENGINE_PARTS, absent, _reasons(page, "engine", name))
        doubts = page.told("engine_doubt", labels, "doubt")
        known = {
            "name": name,
            "state": standing,
            "since": page.since("engine_state_since_timestamp_seconds", labels),
            "age_s": peers.bounded_number("age_s", page.value("engine_age_seconds", labels) or 0.0),
            "gpus": tuple(sorted(set(map(_small_number, page.told("engine_gpu_info", labels, "gpu"))))),
            "departure": _departure(page, labels),
            "rank_loads": tuple(_ranks(page, name)),
            "backends": tuple(_backends(page, name)),
            "accepted_by_position": _accepted(page, labels),
        }
        for doubt in exported.DOUBTS:
            known[doubt] = (Evidence("own_gpumon"),) if doubt in doubts else ()
        yield make_record(Engine, {**known, **texts, **figures})


def _accepted(page: OwnScrape, labels: Mapping[str, str]) -> tuple[float, ...]:
    """Share of drafts that were accepted at each position, in order."""
    shares = {}
    for has, value in page.having("engine_speculation_position_accepted_ratio", labels):
        shares[_small_number(has.get("position", ""))] = peers.bounded_number("acceptance_ratio", value)
    return tuple(shares[position] for position in sorted(shares)[:MOST_POSITIONS])


def _departure(page: OwnScrape, labels: Mapping[str, str]) -> tuple[Departure, ...]:
    """How an engine ended, as far as that is exported; none of one that runs."""
    for has, wall_s in page.having("engine_ended_timestamp_seconds", labels):
        number = _small_number(has.get("number", ""))
        planned = has.get("planned", "") == "yes"
        return (Departure(wall_s=wall_s, cause=has.get("cause", ""), number=number, planned=planned),)
    return ()


def _ranks(page: OwnScrape, engine: str) -> Iterator[RankLoad]:
    names = {field.sample: None for field in exported.RANK}
    ranks = set()
    for name in names:
        for has, _ in page.of(name, "engine", engine):
            ranks.add(has.get("rank", ""))
    for rank in sorted(ranks, key=lambda text: (_small_number(text), text)):
        labels = {"engine": engine, "rank": rank}
        yield RankLoad(rank, **_figures(page, exported.RANK, labels, {}, NOT_EXPOSED))


def _backends(page: OwnScrape, engine: str) -> Iterator[Backend]:
    """The backends of a front end, in the order of their addresses."""
    polled_as: dict[str, str] = {}
    for field in exported.BACKEND:
        for has, _ in page.of(field.sample, "engine", engine):
            polled_as[has.get("backend", "")] = has.get("polled_as", "")
    for address in sorted(polled_as):
        labels = {"engine": engine, "backend": address, "polled_as": polled_as[address]}
        yield Backend(address, polled_as[address], **_figures(page, exported.BACKEND, labels, {}, NOT_EXPOSED))


def _models(page: OwnScrape) -> Iterator[Replicas]:
    samples = {field.sample for field in exported.EXPORTED_MODEL}
    deviating: dict[str, dict[str, str]] = {}
    for name in samples:
        for labels, _ in page.all(name):
            deviating.setdefault(labels.get("model", ""), {})
    for labels, _ in page.all("model_replica_info"):
        engines_of_model = deviating.setdefault(labels.get("model", ""), {})
        engines_of_model[labels.get("engine", "")] = labels.get("deviating", "")
    for model in sorted(deviating):
        engines = sorted(deviating[model])
        yield Replicas(
            model=model,
            engines=tuple(engines),
            deviating=tuple(engine for engine in engines if deviating[model][engine] == "yes"),
            **_figures(page, exported.EXPORTED_MODEL, {"model": model}, _PARTS, NOT_EXPOSED),
        )


def _urgency(verdict: Verdict) -> tuple[int, int, int, str, str]:
    """As triage orders them: the most urgent first."""
    order = (_LEVELS[verdict.level], _FAMILIES[verdict.family], _LIMITS[verdict.code])
    return (*order, verdict.kind.value, verdict.key)


def _verdicts(page: OwnScrape) -> Iterator[Verdict]:
    for verdict, _ in page.all("verdict"):
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
            )
        )


def _numbered(series: Iterable[LabelledValue]) -> list[LabelledValue]:
    """The series in the order of the numbers that they have as a label."""
    return sorted(series, key=_number)


def _number(series: LabelledValue) -> int:
    labels, _ = series
    return _small_number(labels.get("at", ""))


def _evidence(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Evidence]:
    for has, value in _numbered(page.having("verdict_evidence", labels)):
        parameters = _parameters(page, labels, f"evidence {has.get('at', '')}")
        limit = parameters.pop("limit", NOT_EXPOSED)
        yield peers.bounded_evidence(
            Evidence(
                has.get("quantity", ""),
                value,
                NOT_EXPOSED if isinstance(limit, str) else limit,
                has.get("source", ""),
                has.get("chart", ""),
                parameters,
            )
        )


def _actions(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Action]:
    for has, _ in _numbered(page.having("verdict_action_info", labels)):
        yield peers.vetted(Action(has.get("code", ""), _parameters(page, labels, f"action {has.get('at', '')}")))


def _unknown(page: OwnScrape, labels: Mapping[str, str]) -> Iterator[Signal]:
    for has, _ in _numbered(page.having("verdict_unknown_info", labels)):
        parameters = _parameters(page, labels, f"unknown {has.get('at', '')}")
        yield peers.bounded_signal(Signal(has.get("code", ""), has.get("reason", ""), has.get("fix", ""), parameters))


def _parameters(page: OwnScrape, labels: Mapping[str, str], kind: str) -> dict[str, float | str]:
    """Figures and names of one sentence; of what the host kept to itself, the word that stands for it."""
    parameters: dict[str, float | str] = {}
    for has, value in page.having("verdict_parameter", {**labels, "of": kind}):
        name = has.get("name", "")
        parameter = exported.PRIVATE.get(name, has.get("text", "") or value)
        if parameter != "":
            parameters[name] = parameter
    return parameters


def _alerts(page: OwnScrape) -> Iterator[RaisedAlert]:
    for labels, _ in page.all("alert"):
        key = {"alert": labels.get("alert", ""), "scope": labels.get("scope", "")}
        value = page.value("alert_value", key)
        yield RaisedAlert(
            name=key["alert"],
            scope=key["scope"],
            text="" if value is None else f"{value:.6g}",
            since=page.since("alert_since_timestamp_seconds", key),
            value=NOT_EXPOSED if value is None or not abs(value) <= LARGEST else value,
        )


def _faults(page: OwnScrape) -> Iterator[FaultShown]:
    for labels, count in page.all("faults"):
        yield FaultShown(labels.get("source", ""), f"{count:.0f} reported; {ITS_OWN}", "")
