"""A snapshot as the samples that a Prometheus is given of it: the catalogue of figures, read forwards."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.goodput import Bounds, most_within
from gpumon.efficiency.quantiles import merge_common
from gpumon.figures.engine import BACKEND, ENGINE, RANK
from gpumon.figures.figure import Exported, Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, HOST_COSTS, SELF
from gpumon.figures.model import MODEL
from gpumon.readings.dcgm import DCGM
from gpumon.readings.exported import (
    DOUBTS,
    ENGINE_TEXTS,
    GPU_TEXTS,
    HISTOGRAMS,
    HOST_TEXTS,
    PREFIX,
    PRIVATE,
    ExportedSample,
)
from gpumon.readings.flat import getter, value_of
from gpumon.readings.format import wall_of
from gpumon.readings.frame import EndpointState, EngineReading, GpuState, HistogramReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.quantities import ITL, TTFT
from gpumon.readings.snapshot import Engine, Gpu, Replicas, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence, Parameters
from gpumon.sizing.autoscale import ModelNeed
from gpumon.triage.roots import affected_by, roots_of

MOST_EXPORTED: Final = {
    "gpus": 128,
    "engines": 128,
    "verdicts": 256,
    "models": 64,
    "alerts": 64,
    "ranks": 64,
    "backends": 64,
}
"""Things of a kind that are exported; `gpumon_left_out` counts the others."""
_MOST_PARTS: Final = 8
"""Evidences or causes of one thing."""
_MOST_CAUSES: Final = 16
"""Causes for which one GPU is throttled."""
MOST_KEY: Final = 256
"""Characters of a label's value that holds a URL or the key of a thing."""
MOST_LABEL: Final = 128
"""Characters of any other label's value."""
_NUMBER_CHARACTERS: Final = len(" (999)")
"""Room for the number that tells labels apart which were cut to the same text."""
SILENT_GPU: Final = frozenset((GpuState.STALE, GpuState.MUTE, GpuState.LOST, GpuState.INITIALISING, GpuState.ERROR))
"""States in which a GPU gives no figures."""
_GONE_REASONS: Final = frozenset((Reason.STALE, Reason.UNREACHABLE))
"""Reasons for missing figures of an engine that does not answer."""
_FIGURES_OF_KIND: Final = {"gpu": GPU, "engine": ENGINE}
"""Kind of a thing with reasons for missing figures -> its figures."""
_SHORT_NAME: Final = re.compile(r"(?! )(?:[\w.:=+/-]+ ?){1,3}(?<! )", re.ASCII)
"""Names of options (`--kv-cache-dtype fp8`), models and causes; what has more words in it stays on the host."""
_LONGEST_NAME: Final = 64
"""Characters of such a name."""
_OWN_WORDS: Final = frozenset(("flag", "chunked", "tp_flag", "pp_flag", "gpus", "engines", "replica"))
"""Parameters that are words of gpumon's own, or names of engines, which other series have, too."""

SampleLabels = dict[str, str]
T = TypeVar("T")


def samples(snapshot: Snapshot) -> Iterator[ExportedSample]:
    """Every series of a snapshot. What is missing, or of a source that does not answer, has none. No two are equal."""
    yield _sample("source_up", {"source": "collector", "name": ""}, 1.0)
    yield _sample("interval_seconds", {}, snapshot.interval_s)
    yield _sample("snapshot_timestamp_seconds", {}, snapshot.wall_s)
    yield from _host_samples(snapshot)
    gpus = list(_distinct(snapshot.gpus, gpu_key))
    engines = list(_distinct(snapshot.engines, lambda engine: engine.name))
    names = engine_labels(engines)
    verdicts = list(_distinct(snapshot.verdicts, _verdict_key))
    models = list(_distinct(snapshot.replicas, lambda replicas: _label_value(replicas.model)))
    things_by_kind: dict[str, Sequence[object]] = {
        "gpus": gpus,
        "engines": engines,
        "verdicts": verdicts,
        "models": models,
        "alerts": snapshot.alerts,
    }
    for what, things in things_by_kind.items():
        yield _sample("left_out", {"what": what}, max(0, len(things) - MOST_EXPORTED[what]))
    exported_gpus = gpus[: MOST_EXPORTED["gpus"]]
    exported_engines = engines[: MOST_EXPORTED["engines"]]
    for gpu in exported_gpus:
        yield from _gpu_samples(gpu)
    for engine in exported_engines:
        yield from _engine_samples(engine, names[engine.name])
    yield from _source_samples(snapshot, exported_engines, names)
    yield from _placement_samples(exported_gpus, exported_engines, names)
    for model in models[: MOST_EXPORTED["models"]]:
        yield from _model_samples(model, names)
    for verdict in verdicts[: MOST_EXPORTED["verdicts"]]:
        yield from _verdict_samples(verdict)
    yield from _affected_samples(snapshot, verdicts[: MOST_EXPORTED["verdicts"]])
    yield from _alert_samples(snapshot)
    yield from _fault_samples(snapshot)


def engine_labels(engines: Sequence[Engine]) -> dict[str, str]:
    """Name -> label of each engine: cut, and still unlike every other."""
    labels: dict[str, str] = {}
    used_labels: set[str] = set()
    for engine in engines:
        if engine.name in labels:
            continue
        label = _label_value(engine.name)
        number = 1
        while label in used_labels:
            number += 1
            label = f"{_label_value(engine.name, MOST_LABEL - _NUMBER_CHARACTERS)} ({number})"
        used_labels.add(label)
        labels[engine.name] = label
    return labels


def gpu_key(gpu: Gpu) -> str:
    """Key of a GPU's texts and reasons."""
    return _label_value(gpu.reading.uuid) or str(gpu.reading.index)


def _sample(name: str, labels: SampleLabels, value: float) -> ExportedSample:
    """A sample; `name` without the prefix of all."""
    return ExportedSample(PREFIX + name, labels, float(value))


def _label_value(text: str, most: int = MOST_LABEL) -> str:
    """Text from outside as the value of a label: cut and escaped."""
    return clean(text, most)


def _distinct(things: Iterable[T], key: Callable[[T], Any]) -> Iterator[T]:
    """The things without those whose key came before: a page must not hold a series twice."""
    keys = set()
    for thing in things:
        thing_key = key(thing)
        if thing_key not in keys:
            keys.add(thing_key)
            yield thing


@cache
def _getters(kind: type[msgspec.Struct], paths: tuple[str, ...]) -> tuple[Callable[[Any], Any], ...]:
    """Functions that get the fields at these paths of a thing of this type."""
    return tuple(getter(kind, path) for path in paths)


class _ExportedRows(NamedTuple):
    """Exported figures of a kind of thing."""

    series: tuple[Exported, ...]
    paths: tuple[str, ...]
    """Path of each of their fields: a key by which their getters are remembered."""


def _figure_samples(thing: Any, rows: _ExportedRows, labels: SampleLabels) -> Iterator[ExportedSample]:
    """A sample for each field that has a finite figure."""
    for exported, get in zip(rows.series, _getters(thing.__class__, rows.paths), strict=True):
        value = get(thing)
        if type(value) is Missing or not math.isfinite(value) or (exported.zero_is_unknown and value == 0):
            continue
        if exported.labels:
            yield ExportedSample(PREFIX + exported.sample, {**labels, **exported.labels}, float(value))
        else:
            yield ExportedSample(PREFIX + exported.sample, labels, float(value))


def _exported_rows(figures: Figures) -> _ExportedRows:
    """The exported rows of a thing, which are looked up once."""
    paths, series = zip(*figures.exported, strict=True)
    return _ExportedRows(series, paths)


_GPU_ROWS: Final = _exported_rows(GPU)
_ENGINE_ROWS: Final = _exported_rows(ENGINE)
_RANK_ROWS: Final = _exported_rows(RANK)
_BACKEND_ROWS: Final = _exported_rows(BACKEND)
_MODEL_ROWS: Final = _exported_rows(MODEL)
_HOST_ROWS: Final = _exported_rows(HOST)
_COSTS_ROWS: Final = _exported_rows(HOST_COSTS)
_SELF_ROWS: Final = _exported_rows(SELF)


def _text_labels(thing: Any, fields: Mapping[str, str]) -> SampleLabels:
    """Labels of an info sample: label -> value of the field that `fields` names."""
    labels = {}
    for label, name in fields.items():
        value = value_of(thing, name)
        value = getattr(value, "value", value)
        if isinstance(value, bool):
            labels[label] = _yes_or_empty(value)
        else:
            labels[label] = _label_value(value)
    return labels


def _yes_or_empty(is_true: bool) -> str:
    """Value of a label that is `yes` or empty."""
    if is_true:
        return "yes"
    return ""


def _time_samples(name: str, labels: SampleLabels, since: str) -> Iterator[ExportedSample]:
    """The sample of a time in RFC 3339 as Unix seconds; none where the text is no time."""
    try:
        yield _sample(name, labels, wall_of(since))
    except (ValueError, OverflowError, OSError):
        return


def _reason_samples(kind: str, key: str, thing: Any) -> Iterator[ExportedSample]:
    """Why figures are missing, where their rows ask for it. `kind`: gpu or engine; `key`: what its series go by."""
    for name in _FIGURES_OF_KIND[kind].with_reason:
        value = value_of(thing, name)
        if isinstance(value, Missing):
            labels = {"of": kind, "thing": key, "field": name, "reason": value.reason.value}
            yield _sample("missing_info", labels, 1.0)


def _host_samples(snapshot: Snapshot) -> Iterator[ExportedSample]:
    """The series of the host, of the costs of all GPUs, and of gpumon itself."""
    texts = _text_labels(snapshot.host, HOST_TEXTS)
    yield _sample("host_info", {**texts, "simulated": _yes_or_empty(snapshot.simulated)}, 1.0)
    yield from _figure_samples(snapshot.host, _HOST_ROWS, {})
    yield from _figure_samples(snapshot.costs, _COSTS_ROWS, {})
    yield from _figure_samples(snapshot.self_cost, _SELF_ROWS, {})


def answers(engine: Engine) -> bool:
    """Whether an engine's figures are of now."""
    running = engine.load.running
    is_gone = isinstance(running, Missing) and running.reason in _GONE_REASONS
    return engine.state is EndpointState.OK and not is_gone


def _source_samples(
    snapshot: Snapshot, engines: Sequence[Engine], names: Mapping[str, str]
) -> Iterator[ExportedSample]:
    """Which sources answer. One that is not asked for has no series."""
    blamed = {fault.source for fault in snapshot.faults}
    for source, is_exporter in (("nvml", False), (DCGM, True)):
        # An exporter names the machine of its GPUs.
        gpus = [gpu for gpu in snapshot.gpus if bool(gpu.reading.host) is is_exporter]
        if gpus or source in blamed:
            is_up = any(gpu.reading.state not in SILENT_GPU for gpu in gpus)
            yield _sample("source_up", {"source": source, "name": ""}, is_up)
    for engine in engines:
        yield _sample("source_up", {"source": "engine", "name": names[engine.name]}, answers(engine))


def _gpu_samples(gpu: Gpu) -> Iterator[ExportedSample]:
    """The series of a GPU; no figures of a silent one."""
    labels = {"gpu": str(gpu.reading.index), "uuid": _label_value(gpu.reading.uuid)}
    yield _sample("gpu_info", {**labels, **_text_labels(gpu, GPU_TEXTS)}, 1.0)
    yield _sample("gpu_state", {**labels, "state": gpu.reading.state.value}, 1.0)
    if math.isfinite(gpu.age_s):
        yield _sample("gpu_age_seconds", labels, gpu.age_s)
    for xid in sorted(set(gpu.xid))[:_MOST_PARTS]:
        yield _sample("gpu_xid", {**labels, "xid": str(xid)}, 1.0)
    if gpu.reading.state in SILENT_GPU:
        return
    yield from _figure_samples(gpu, _GPU_ROWS, labels)
    yield from _reason_samples("gpu", gpu_key(gpu), gpu)
    causes = list(_distinct(gpu.reading.throttle, _label_value))
    for cause in causes[:_MOST_CAUSES]:
        yield _sample("gpu_throttled", {**labels, "cause": _label_value(cause)}, 1.0)
    seconds_by_cause = list(_distinct(gpu.throttle_s.items(), lambda item: _label_value(item[0])))
    for cause, seconds in seconds_by_cause[:_MOST_CAUSES]:
        if math.isfinite(seconds):
            yield _sample("gpu_throttle_seconds_total", {**labels, "cause": _label_value(cause)}, seconds)


def _engine_samples(engine: Engine, name: str) -> Iterator[ExportedSample]:
    """The series of an engine whose label is `name`; no figures of one that does not answer."""
    labels = {"engine": name}
    texts = _text_labels(engine, ENGINE_TEXTS)
    yield _sample("engine_info", {**labels, **texts, "url": _label_value(engine.url, MOST_KEY)}, 1.0)
    yield _sample("engine_state", {**labels, "state": engine.state.value}, 1.0)
    yield from _time_samples("engine_state_since_timestamp_seconds", labels, engine.since)
    yield from _departure_samples(engine, labels)
    if math.isfinite(engine.age_s):
        yield _sample("engine_age_seconds", labels, engine.age_s)
    if not answers(engine):
        return
    for doubt in DOUBTS:
        if value_of(engine, doubt):
            yield _sample("engine_doubt", {**labels, "doubt": doubt}, 1.0)
    yield from _figure_samples(engine, _ENGINE_ROWS, labels)
    for position, share in enumerate(engine.served.accepted_by_position):
        position_labels = {**labels, "position": str(position)}
        yield _sample("engine_speculation_position_accepted_ratio", position_labels, share)
    yield from _reason_samples("engine", name, engine)
    rank_loads = list(_distinct(engine.rank_loads, lambda load: _label_value(load.rank)))
    for load in rank_loads[: MOST_EXPORTED["ranks"]]:
        yield from _figure_samples(load, _RANK_ROWS, {**labels, "rank": _label_value(load.rank)})
    backends = list(_distinct(engine.backends, lambda backend: _label_value(backend.address)))
    for backend in backends[: MOST_EXPORTED["backends"]]:
        backend_labels = {"backend": _label_value(backend.address), "polled_as": _label_value(backend.engine)}
        yield from _figure_samples(backend, _BACKEND_ROWS, {**labels, **backend_labels})


def _departure_samples(engine: Engine, labels: SampleLabels) -> Iterator[ExportedSample]:
    """The ends of an engine that are known, each with its cause."""
    for departure in engine.departure:
        number = str(departure.number) if departure.number else ""
        end_labels = {
            "cause": _label_value(departure.cause),
            "number": number,
            "planned": _yes_or_empty(departure.planned),
        }
        if math.isfinite(departure.wall_s):
            yield _sample("engine_ended_timestamp_seconds", {**labels, **end_labels}, departure.wall_s)


def histogram_samples(readings: Iterable[EngineReading], snapshot: Snapshot) -> Iterator[ExportedSample]:
    """The latencies of each engine that answers as its own histograms, those of its ranks added up.

    They are counters: they begin anew with the engine, and those of several engines may be added and averaged.
    """
    answering = filter(answers, snapshot.engines)
    names = engine_labels(list(_distinct(answering, lambda engine: engine.name)))
    for reading in _distinct(readings, lambda reading: reading.name):
        if reading.name in names:
            for quantity, name in HISTOGRAMS.items():
                yield from _bucket_samples(name, {"engine": names[reading.name]}, _merge_ranks(reading, quantity))


def goal_samples(readings: Iterable[EngineReading], snapshot: Snapshot, bounds: Bounds) -> Iterator[ExportedSample]:
    """How many requests of each engine that answers had a latency with a promised goal, and how many missed it for
    certain, since the engine began: counters, for alerts over any window. `bounds`: the goals.

    Of the time between tokens requests are counted by their mean, or tokens where the engine counts no requests.
    """
    engines = {engine.name: engine for engine in filter(answers, snapshot.engines)}
    names = engine_labels(list(engines.values()))
    for reading in _distinct(readings, lambda reading: reading.name):
        engine = engines.get(reading.name)
        if engine is None:
            continue
        labels = {"engine": names[engine.name], "model": _label_value(engine.model)}
        counted: set[bool] = set()
        # TPOT comes before ITL: where requests are counted, tokens are not.
        for bound in sorted(bounds.by_field(reading.kind), key=lambda bound: bound.quantity == ITL):
            is_ttft = bound.quantity == TTFT
            is_assumed = bounds.ttft_assumed if is_ttft else bounds.itl_assumed
            histogram = _merge_ranks(reading, bound.quantity)
            if is_assumed or is_ttft in counted or histogram is None or len(histogram.bounds) < 2:
                continue
            counted.add(is_ttft)
            latency_labels = {**labels, "latency": bound.field.removesuffix("_goal")}
            total = histogram.counts[-1]
            yield _sample("engine_goal_counted_total", latency_labels, total)
            yield _sample("engine_goal_missed_total", latency_labels, total - most_within(histogram, bound.bound_s))


def need_samples(needs: Iterable[ModelNeed]) -> Iterator[ExportedSample]:
    """Figures of each model for an autoscaler; none of what is not known."""
    for need in list(_distinct(needs, lambda need: _label_value(need.model)))[: MOST_EXPORTED["models"]]:
        labels = {"model": _label_value(need.model)}
        yield _sample("model_replicas", labels, need.replicas)
        figures: tuple[tuple[str, SampleLabels, Reading], ...] = (
            ("model_load_requests", {}, need.load),
            ("model_replica_capacity_requests", {}, need.capacity),
            ("model_needed_replicas", {"load": "mean"}, need.needed_for_mean),
            ("model_needed_replicas", {"load": "peak"}, need.needed_for_peak),
            ("model_needed_replicas", {"load": "forecast"}, need.needed_for_forecast),
            ("model_headroom_ratio", {}, need.headroom_ratio),
            ("model_saturation_ratio", {}, need.saturation_ratio),
            *(("model_limit_saturation_ratio", {"limit": limit}, share) for limit, share in need.saturations.items()),
        )
        for name, more, figure in figures:
            if not isinstance(figure, Missing):
                yield _sample(name, {**labels, **more}, figure)


def _merge_ranks(reading: EngineReading, quantity: str) -> HistogramReading | None:
    """The histogram of a quantity over all ranks of an engine; None where no rank has it."""
    histograms = [rank.histograms[quantity] for rank in reading.ranks if quantity in rank.histograms]
    return merge_common(histograms)


def _bucket_samples(name: str, labels: SampleLabels, histogram: HistogramReading | None) -> Iterator[ExportedSample]:
    """The series of a histogram: its buckets, count and sum; none of one without a last bucket."""
    if histogram is None or histogram.bounds[-1] != math.inf:
        return
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        upper = repr(bound) if bound < math.inf else "+Inf"
        yield _sample(f"{name}_bucket", {**labels, "le": upper}, count)
    yield _sample(f"{name}_count", labels, histogram.count)
    yield _sample(f"{name}_sum", labels, histogram.sum)


def _placement_samples(
    gpus: Sequence[Gpu], engines: Sequence[Engine], names: Mapping[str, str]
) -> Iterator[ExportedSample]:
    """The GPUs that each engine runs on: as GPUs tell it, and beside these as only the engine knows it, by number."""
    mapped = set()
    for gpu in gpus:
        for name in dict.fromkeys(gpu.engines):
            if name in names:
                mapped.add((name, gpu.reading.index))
                labels = {"engine": names[name], "gpu": str(gpu.reading.index), "uuid": _label_value(gpu.reading.uuid)}
                yield _sample("engine_gpu_info", labels, 1.0)
    for engine in engines:
        for index in engine.hardware.gpus[: MOST_EXPORTED["gpus"]]:
            if (engine.name, index) not in mapped:
                mapped.add((engine.name, index))
                yield _sample("engine_gpu_info", {"engine": names[engine.name], "gpu": str(index), "uuid": ""}, 1.0)


def _model_samples(model: Replicas, names: Mapping[str, str]) -> Iterator[ExportedSample]:
    """The series of a model over its replicas. `names`: name -> label of the exported engines."""
    labels = {"model": _label_value(model.model)}
    for engine in dict.fromkeys(model.engines):
        if engine not in names:
            continue
        deviating = _yes_or_empty(engine in model.deviating)
        yield _sample("model_replica_info", {**labels, "engine": names[engine], "deviating": deviating}, 1.0)
    yield from _figure_samples(model, _MODEL_ROWS, labels)


def _verdict_labels(verdict: Verdict) -> SampleLabels:
    """Labels of all series of a verdict: the thing that it is about, and its family."""
    return {"kind": verdict.kind.value, "thing": _label_value(verdict.key, MOST_KEY), "family": verdict.family.value}


def _verdict_key(verdict: Verdict) -> str:
    """Labels of a verdict as one text: two verdicts that share it would have the same series."""
    return " ".join(_verdict_labels(verdict).values())


def _verdict_samples(verdict: Verdict) -> Iterator[ExportedSample]:
    """The series of a verdict: the judgement, its times, what is unknown, evidence, actions and parameters."""
    labels = _verdict_labels(verdict)
    judgement = {"code": verdict.code.value, "cause": _label_value(verdict.cause), "level": verdict.level.value}
    judgement["confidence"] = verdict.confidence.value
    yield _sample("verdict", {**labels, "scope": _label_value(verdict.scope), **judgement}, 1.0)
    yield from _time_samples("verdict_since_timestamp_seconds", labels, verdict.since)
    if verdict.until:
        yield from _time_samples("verdict_until_timestamp_seconds", labels, verdict.until)
    if verdict.caused_by:
        yield _sample("verdict_caused_by_info", {**labels, "id": _label_value(verdict.caused_by, MOST_KEY)}, 1.0)
    if verdict.acknowledged is not None:
        who = _label_value(verdict.acknowledged.who)
        yield from _time_samples(
            "verdict_acknowledged_until_timestamp_seconds", {**labels, "who": who}, verdict.acknowledged.until
        )
        yield from _time_samples("verdict_acknowledged_since_timestamp_seconds", labels, verdict.acknowledged.since)
    for number, signal in enumerate(verdict.unknown[:_MOST_PARTS]):
        codes = {
            "code": _label_value(signal.code),
            "reason": _label_value(signal.reason),
            "fix": _label_value(signal.fix),
        }
        yield _sample("verdict_unknown_info", {**labels, "at": str(number), **codes}, 1.0)
        yield from _parameter_samples(labels, f"unknown {number}", signal.parameters)
    yield from _evidence_samples(labels, verdict.evidence)
    for number, action in enumerate(verdict.actions[:_MOST_PARTS]):
        yield _sample("verdict_action_info", {**labels, "at": str(number), "code": _label_value(action.code)}, 1.0)
        yield from _parameter_samples(labels, f"action {number}", action.parameters)
    yield from _parameter_samples(labels, "verdict", verdict.parameters)


def _affected_samples(snapshot: Snapshot, verdicts: Sequence[Verdict]) -> Iterator[ExportedSample]:
    """How many things suffer from each of these verdicts that is a cause: `gpus` that wait, and `others` by name."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    for root in roots_of(snapshot.verdicts):
        affected = affected_by(root, snapshot)
        if root.first.id not in by_id or not (affected.gpus or affected.names):
            continue
        labels = _verdict_labels(root.first)
        yield _sample("verdict_affected", {**labels, "of": "gpus"}, affected.gpus)
        yield _sample("verdict_affected", {**labels, "of": "others"}, len(affected.names))


def _evidence_samples(labels: SampleLabels, evidence: Iterable[Evidence]) -> Iterator[ExportedSample]:
    """The figures of a verdict that are known, with their limits."""
    figures = [
        (figure, figure.value)
        for figure in evidence
        if not isinstance(figure.value, Missing) and math.isfinite(figure.value)
    ]
    for number, (figure, value) in enumerate(figures[:_MOST_PARTS]):
        texts = {
            "quantity": _label_value(figure.quantity),
            "source": _label_value(figure.source),
            "chart": _label_value(figure.chart),
        }
        yield _sample("verdict_evidence", {**labels, "at": str(number), **texts}, value)
        parameters = dict(figure.parameters)
        if not isinstance(figure.limit, Missing):
            parameters["limit"] = figure.limit
        yield from _parameter_samples(labels, f"evidence {number}", parameters)


def _parameter_samples(labels: SampleLabels, part: str, parameters: Parameters) -> Iterator[ExportedSample]:
    """Parameters of a verdict, or of a `part` of it, whose values may be exported.

    Of private ones only the stand-ins are, of texts only gpumon's own words and short names.
    """
    for name, value in parameters.items():
        parameter_labels = {**labels, "of": part, "name": _label_value(name)}
        if name in PRIVATE:
            if PRIVATE[name]:
                yield _sample("verdict_parameter", {**parameter_labels, "text": ""}, 1.0)
        elif isinstance(value, str):
            if name in _OWN_WORDS or (len(value) <= _LONGEST_NAME and _SHORT_NAME.fullmatch(value)):
                yield _sample("verdict_parameter", {**parameter_labels, "text": _label_value(value)}, 1.0)
        elif math.isfinite(value):
            yield _sample("verdict_parameter", {**parameter_labels, "text": ""}, value)


def _alert_samples(snapshot: Snapshot) -> Iterator[ExportedSample]:
    """The series of the alerts that hold."""
    alerts = list(_distinct(snapshot.alerts, lambda alert: f"{_label_value(alert.name)} {_label_value(alert.scope)}"))
    for alert in alerts[: MOST_EXPORTED["alerts"]]:
        labels = {"alert": _label_value(alert.name), "scope": _label_value(alert.scope)}
        yield _sample("alert", labels, 1.0)
        yield from _time_samples("alert_since_timestamp_seconds", labels, alert.since)
        if not isinstance(alert.value, Missing) and math.isfinite(alert.value):
            yield _sample("alert_value", labels, alert.value)


def _fault_samples(snapshot: Snapshot) -> Iterator[ExportedSample]:
    """Number of faults of each source, of the sources with the most."""
    for source, count in Counter(_label_value(fault.source) for fault in snapshot.faults).most_common(_MOST_PARTS):
        yield _sample("faults", {"source": source}, count)
