"""The exported metrics: those of the catalogue of figures, and the families that are no single figure. Numbers and
codes, no sentences. `outputs.samples` reads them forwards, `sources.prometheus.own` backwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.figures.engine import BACKEND, ENGINE, RANK
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST, HOST_COSTS, SELF
from gpumon.figures.latency import LATENCIES
from gpumon.figures.model import MODEL
from gpumon.figures.unit import exported_unit

PREFIX: Final = "gpumon_"


class ExportedSample(NamedTuple):
    """One series at one moment."""

    name: str
    """As it stands on the wire: with `_total` or `_info`."""
    labels: dict[str, str]
    value: float


class ExportedMetric(msgspec.Struct, frozen=True):
    """One family of series."""

    name: str
    """Without `_total` and `_info`."""
    kind: str
    """gauge, counter, info, histogram, or summary (of its quantiles alone)."""
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name on the wire."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")

    @property
    def samples(self) -> tuple[str, ...]:
        """All names on the wire: a histogram has three."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.sample,)


HOST_TEXTS: Final = {"name": "name", "driver": "driver", "cuda": "cuda"}
"""Label of `gpumon_host_info` -> field."""
GPU_LABELS: Final = ("gpu", "uuid")
"""Labels of the series of a GPU."""
GPU_TEXTS: Final = {
    "name": "name",
    "type": "gpu_type",
    "machine": "host",
    "parent": "parent_uuid",
    "mig_profile": "mig_profile",
    "compute_capability": "compute_capability",
    "bandwidth_source": "bandwidth_source",
    "activity_source": "activity_source",
    "peak_source": "peak_source",
    "precision": "flops_peak_precision",
    "shared_memory": "vram_shared",
    "peak_unverified": "peak_unverified",
    "bandwidth_peak_unverified": "bandwidth_peak_unverified",
}
"""Label of `gpumon_gpu_info` -> field."""

ENGINE_LABELS: Final = ("engine",)
"""Labels of the series of an engine."""
ENGINE_TEXTS: Final = {
    "kind": "kind",
    "phase": "phase",
    "url": "url",
    "part": "part",
    "version": "version",
    "model": "model",
    "model_source": "model_source",
    "gpu_type": "gpu_type",
    "precision": "precision",
    "weight_precision": "weight_precision",
    "kv_precision": "kv_precision",
    "asleep": "asleep",
    "found_by": "found_by",
    "from_documentation": "from_documentation",
    "ttft_goal_assumed": "ttft_goal_assumed",
    "itl_goal_assumed": "itl_goal_assumed",
    "peak_unverified": "peak_unverified",
    "bandwidth_peak_unverified": "bandwidth_peak_unverified",
}
"""Label of `gpumon_engine_info` -> field."""
RANK_LABELS: Final = ("engine", "rank")
"""Labels of the series of a rank."""
BACKEND_LABELS: Final = ("engine", "backend", "polled_as")
"""Labels of the series of a backend."""
MODEL_LABELS: Final = ("model",)
"""Labels of the series of a model."""
DOUBTS: Final = ("uneven", "deviates", "contradicts")
"""Fields of an engine that hold findings: it is exported that there are some."""
ENDED_LABELS: Final = (*ENGINE_LABELS, "cause", "number", "planned")
"""Labels of the ends of an engine."""
_DOUBT_LABELS: Final = (*ENGINE_LABELS, "doubt")
"""Labels of the findings of an engine."""
GOAL_LABELS: Final = (*ENGINE_LABELS, "model", "latency")
"""Labels of the counters of what kept or missed a goal."""
VERDICT_LABELS: Final = ("kind", "thing", "family")
"""Labels of all series of a verdict."""
HISTOGRAMS: Final = {latency.field: latency.buckets for latency in LATENCIES}
"""Quantity (`readings.quantities`) -> family of its buckets, those of all ranks added up."""


class _OtherMetric(NamedTuple):
    """A metric that is no single field of a snapshot."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


_OTHER_METRICS: Final = (
    *(
        _OtherMetric(
            latency.buckets,
            "histogram",
            f"{latency.help}, of all requests since the engine began.",
            (*ENGINE_LABELS, "le"),
        )
        for latency in LATENCIES
    ),
    _OtherMetric(
        "source_up", "gauge", "1: the source answers; 0: it does not, and its series are absent.", ("source", "name")
    ),
    _OtherMetric("host", "info", "The machine.", (*HOST_TEXTS, "simulated")),
    _OtherMetric("gpu", "info", "What a GPU is.", (*GPU_LABELS, *GPU_TEXTS)),
    _OtherMetric("gpu_state", "gauge", "1 for the state that the GPU is in.", (*GPU_LABELS, "state")),
    _OtherMetric("gpu_age_seconds", "gauge", "Since the GPU was read.", GPU_LABELS),
    _OtherMetric("gpu_throttled", "gauge", "1 for each cause that holds the clocks down now.", (*GPU_LABELS, "cause")),
    _OtherMetric("gpu_throttle_seconds", "counter", "Time throttled since gpumon started.", (*GPU_LABELS, "cause")),
    _OtherMetric("gpu_xid", "gauge", "1 for each Xid error that the driver reported.", (*GPU_LABELS, "xid")),
    _OtherMetric("engine", "info", "What an engine is.", (*ENGINE_LABELS, *ENGINE_TEXTS)),
    _OtherMetric("engine_state", "gauge", "1 for what the last poll came to.", (*ENGINE_LABELS, "state")),
    _OtherMetric("engine_state_since_timestamp_seconds", "gauge", "Since when the state is so.", ENGINE_LABELS),
    _OtherMetric("engine_ended_timestamp_seconds", "gauge", "When the engine ended, and how.", ENDED_LABELS),
    _OtherMetric("engine_age_seconds", "gauge", "Since the engine was read.", ENGINE_LABELS),
    _OtherMetric("engine_gpu", "info", "Which engine runs on which GPU.", (*ENGINE_LABELS, *GPU_LABELS)),
    _OtherMetric(
        "engine_doubt", "gauge", "1 for each: uneven ranks, unlike its replicas, figures at odds.", _DOUBT_LABELS
    ),
    _OtherMetric(
        "engine_speculation_position_accepted_ratio",
        "gauge",
        "Share of drafts whose token at this position was accepted, 2 min.",
        (*ENGINE_LABELS, "position"),
    ),
    _OtherMetric("engine_restarts", "counter", "Restarts that gpumon saw since it started.", ENGINE_LABELS),
    _OtherMetric("model_replica", "info", "Which engines serve a model.", ("model", "engine", "deviating")),
    _OtherMetric(
        "engine_goal_counted", "counter", "Requests, or of `itl` tokens, whose latency has a goal.", GOAL_LABELS
    ),
    _OtherMetric("engine_goal_missed", "counter", "Those of them that missed it for certain.", GOAL_LABELS),
    _OtherMetric("model_replicas", "gauge", "Engines of a model that answer.", MODEL_LABELS),
    _OtherMetric("model_load_requests", "gauge", "Requests that run, wait or are turned away.", MODEL_LABELS),
    _OtherMetric(
        "model_replica_capacity_requests",
        "gauge",
        "Requests in flight that one replica carries within the goals, as the planner says.",
        MODEL_LABELS,
    ),
    _OtherMetric(
        "model_needed_replicas",
        "gauge",
        "Replicas for the mean of 5 min, the peak of 10 s in them, or the load in 5 min.",
        (*MODEL_LABELS, "load"),
    ),
    _OtherMetric(
        "model_headroom_ratio", "gauge", "Share of the replicas' capacity that the peak leaves.", MODEL_LABELS
    ),
    _OtherMetric("model_saturation_ratio", "gauge", "Share of the nearest limit that is taken.", MODEL_LABELS),
    _OtherMetric(
        "model_limit_saturation_ratio",
        "gauge",
        "Share of each limit that is taken: KV cache, slots, compute, bandwidth.",
        (*MODEL_LABELS, "limit"),
    ),
    _OtherMetric(
        "verdict", "gauge", "1 for each verdict.", (*VERDICT_LABELS, "scope", "code", "cause", "level", "confidence")
    ),
    _OtherMetric("verdict_since_timestamp_seconds", "gauge", "Since when a verdict holds.", VERDICT_LABELS),
    _OtherMetric(
        "verdict_until_timestamp_seconds", "gauge", "When it was last so, of one on its way out.", VERDICT_LABELS
    ),
    _OtherMetric(
        "verdict_affected",
        "gauge",
        "Things that suffer from a verdict, or GPUs that wait for it.",
        (*VERDICT_LABELS, "of"),
    ),
    _OtherMetric(
        "verdict_caused_by", "info", "The verdict that this one is a consequence of.", (*VERDICT_LABELS, "id")
    ),
    _OtherMetric(
        "verdict_acknowledged_until_timestamp_seconds",
        "gauge",
        "Until when somebody has acknowledged a verdict.",
        (*VERDICT_LABELS, "who"),
    ),
    _OtherMetric(
        "verdict_acknowledged_since_timestamp_seconds", "gauge", "When a verdict was acknowledged.", VERDICT_LABELS
    ),
    _OtherMetric(
        "verdict_unknown", "info", "A signal that a verdict lacks.", (*VERDICT_LABELS, "at", "code", "reason", "fix")
    ),
    _OtherMetric(
        "verdict_evidence",
        "gauge",
        "A verdict's figures, in base units.",
        (*VERDICT_LABELS, "at", "quantity", "source", "chart"),
    ),
    _OtherMetric("verdict_action", "info", "What to try, the best first.", (*VERDICT_LABELS, "at", "code")),
    _OtherMetric(
        "verdict_parameter",
        "gauge",
        "What else its sentence has: a figure, or 1 for a name (text).",
        (*VERDICT_LABELS, "of", "name", "text"),
    ),
    _OtherMetric("alert", "gauge", "1 for each alert of the config that holds.", ("alert", "scope")),
    _OtherMetric("alert_since_timestamp_seconds", "gauge", "Since when an alert holds.", ("alert", "scope")),
    _OtherMetric("alert_value", "gauge", "The figure that raised an alert.", ("alert", "scope")),
    _OtherMetric(
        "webhook_messages",
        "counter",
        "Messages to a webhook; `failed` counts attempts, `dropped` changes.",
        ("webhook", "result"),
    ),
    _OtherMetric("webhook_waiting_changes", "gauge", "Changes that wait for a webhook's receiver.", ("webhook",)),
    _OtherMetric(
        "webhook_up",
        "gauge",
        "1: the receiver takes what is sent; 0: changes wait. Absent: another gpumon sends.",
        ("webhook",),
    ),
    _OtherMetric("faults", "gauge", "Things that do not work right now.", ("source",)),
    _OtherMetric("missing", "info", "Why a series is absent.", ("of", "thing", "field", "reason")),
    _OtherMetric("events", "counter", "Events since gpumon started.", ("kind",)),
    _OtherMetric("left_out", "gauge", "Things that are not on this page because there are too many.", ("what",)),
    _OtherMetric("interval_seconds", "gauge", "Between two snapshots.", ()),
    _OtherMetric("snapshot_timestamp_seconds", "gauge", "When this snapshot was taken.", ()),
    _OtherMetric("process_start_time_seconds", "gauge", "When this gpumon started; each change is a restart.", ()),
    _OtherMetric("build", "info", "Which gpumon this is.", ("version", "python")),
)
"""All families but those of the catalogue of figures."""


_ROWS_OF_THINGS: Final[tuple[tuple[Figures, tuple[str, ...]], ...]] = (
    (GPU, GPU_LABELS),
    (ENGINE, ENGINE_LABELS),
    (RANK, RANK_LABELS),
    (BACKEND, BACKEND_LABELS),
    (MODEL, MODEL_LABELS),
    (HOST, ()),
    (HOST_COSTS, ()),
    (SELF, ()),
)
"""Rows of a kind of thing, and the labels that tell such things apart."""


def _make_metrics() -> tuple[ExportedMetric, ...]:
    """All families, by name: those of the catalogue of figures, and the others."""
    metrics: dict[str, ExportedMetric] = {}
    for other in _OTHER_METRICS:
        unit = "" if other.kind == "info" else exported_unit(other.name)
        metrics[other.name] = ExportedMetric(PREFIX + other.name, other.kind, unit, other.help, other.labels)
    for figures, labels in _ROWS_OF_THINGS:
        for _, exported in figures.exported:
            name = exported.sample.removesuffix("_total")
            kind = "gauge"
            if name != exported.sample:
                kind = "counter"
            elif "quantile" in exported.labels:
                kind = "summary"
            all_labels = (*labels, *exported.labels)
            metrics.setdefault(
                name, ExportedMetric(PREFIX + name, kind, exported_unit(name), exported.help, all_labels)
            )
    return tuple(sorted(metrics.values(), key=lambda metric: metric.name))


EXPORTED_METRICS: Final = _make_metrics()
"""Every family, by name."""
SAMPLE_NAMES: Final = frozenset(metric.sample for metric in EXPORTED_METRICS if metric.kind != "histogram")
"""Every name on the wire but those of histograms, which no snapshot is made of."""

SOMEBODY: Final = "a process"
PRIVATE: Final[Mapping[str, str]] = {
    "process": SOMEBODY,
    "processes": SOMEBODY,
    "program": SOMEBODY,
    "job": SOMEBODY,
    "pid": "PID",
    "alive_pid": "PID",
    "pids": "",
    "kill": "",
    "owner": "",
    "command": "",
    "file": "",
}
"""Parameters of verdicts that name processes and users -> what stands for them outside of their host."""
