"""The PromQL of a fleet: a constant number of queries, whatever the number of hosts, GPUs and engines."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.dcgm import DCGM_METRICS, XID
from gpumon.readings.exported import SAMPLE_NAMES
from gpumon.readings.fleet import GpuLoad
from gpumon.readings.frame import Advance
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    E2E,
    ITL,
    KV_USAGE,
    PROMPT_LENGTH,
    REQUESTS,
    RUNNING,
    TPOT,
    TTFT,
    WAITING,
)
from gpumon.sources.dcgm_page import WANTED as GPU_NAMES
from gpumon.sources.engines.adapter import START_TIME, Adapter
from gpumon.sources.engines.registry import ENGINE_ROWS
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.hosts import INSTANCE, PODS, host_of, user_of
from gpumon.sources.prometheus.other_exporters import OTHER_NAMES
from gpumon.sources.prometheus.targets import EXPORTED, OF_WORKLOADS, UNKNOWN

_SCRAPES_S: Final = 300
"""Seconds over which a target's scrapes are looked at."""
ENDS: Final = ("_bucket", "_count", "_sum")
"""Ends of the names of a histogram's series."""
OWN: Final = "gpumon_.+"
"""Regular expression of all that gpumon exports."""
LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Name of a label that PromQL takes without quotes."""
_ODD_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_:]")

TABLED: Final = tuple(row for row in ENGINE_ROWS if len(row.json_paths) < len(row.paths))
"""The engines whose metrics a Prometheus can scrape; what answers JSON alone never comes through one."""
_ADAPTERS: Final[tuple[Adapter, ...]] = tuple(row.adapter() for row in TABLED)
ENGINE_NAMES: Final = frozenset().union(*(adapter.wanted_names for adapter in _ADAPTERS)) - {START_TIME}
"""All sample names that an engine is read from, but one that every exporter writes."""
_SIGN_QUANTITIES: Final = frozenset({RUNNING, WAITING, REQUESTS, DECODE_TOKENS})
"""Quantities of which every engine writes one at least."""
ALL_BUCKETS: Final = frozenset(histogram.quantity for adapter in _ADAPTERS for histogram in adapter.tables.histograms)
"""Quantities that some engine has a histogram of."""
FLEET_BUCKETS: Final = frozenset({TTFT, ITL, PROMPT_LENGTH})
"""Quantities whose buckets a whole fleet is asked for: latencies that its rows merge, and of prompts what attention
takes, which grows with the square of a length. Of the others the means are enough there: a third fewer series."""
REPORT_BUCKETS: Final = FLEET_BUCKETS | {TPOT}
"""Quantities whose buckets a report asks for: it counts the requests within the goals."""
LOAD_QUANTITIES: Final = frozenset({RUNNING, WAITING, KV_USAGE, DECODE_TOKENS})
"""Quantities of every engine that a large fleet is asked for at every refresh."""
GPU_LOAD_NAMES: Final = frozenset(
    name for metric in DCGM_METRICS if metric.field in GpuLoad.__struct_fields__ for name, _ in metric.names
)
_XID_NAMES: Final = frozenset(name for metric in DCGM_METRICS if metric.field == XID for name, _ in metric.names)
_GPU_LOAD_LABELS: Final = ("UUID", "uuid", "GPU_I_ID")
"""Labels that tell the GPUs and slices of an exporter apart."""
_MOST_INSTANCES: Final = 200
"""Addresses of targets in one query: VictoriaMetrics takes 16 KiB."""
TIME_FUNCTION: Final = "time()"
MOST_ADDRESSES: Final = 200
"""Addresses of a host's targets in the past that are asked about."""
GPU_SIGNS: Final = GPU_NAMES & {
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_USED_BYTES",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS",
}
"""Metrics of which a dcgm-exporter writes one at least, unless its list of fields was cut down."""
_OWN_SIGNS: Final = SAMPLE_NAMES & {"gpumon_build_info"}
"""Metrics that every gpumon writes."""


def _pod_labels() -> Iterator[str]:
    """Labels that name a pod, as a page writes them and as Prometheus renames them."""
    for namespace, pod, _ in PODS:
        yield from (namespace, EXPORTED + namespace)
        yield from (pod, EXPORTED + pod)


_POD_LABELS: Final = tuple(_pod_labels())


def sign_names() -> frozenset[str]:
    """Names of which an engine writes one at least."""
    signs: set[str] = set()
    for adapter in _ADAPTERS:
        for number in (*adapter.tables.counters, *adapter.tables.gauges):
            if number.quantity in _SIGN_QUANTITIES:
                for metric in number.metrics:
                    signs |= adapter.page_names(metric.name)
    return frozenset(signs)


def buckets_of(quantities: frozenset[str]) -> frozenset[str]:
    """Names of the series of buckets that these quantities are read from.

    Where tokens may be counted at a request's end alone, how long requests take is asked for in full: the longest one
    tells how long such a count has to be looked at.
    """
    names: set[str] = set()
    for adapter in _ADAPTERS:
        for histogram in adapter.tables.histograms:
            is_longest_request = histogram.quantity == E2E and _counts_at_end(adapter)
            if histogram.quantity in quantities or is_longest_request:
                for metric in histogram.metrics:
                    names |= adapter.page_names(f"{metric.name}{ENDS[0]}")
    return frozenset(names)


def _counts_at_end(adapter: Adapter) -> bool:
    """Whether one of the metrics of an engine's tokens moves at a request's end alone."""
    for counter in adapter.tables.counters:
        if counter.quantity == DECODE_TOKENS and any(metric.advance is Advance.END for metric in counter.metrics):
            return True
    return False


def left_out(quantities: frozenset[str]) -> frozenset[str]:
    """Names of the series of buckets that are not asked for where those of these quantities are."""
    return buckets_of(ALL_BUCKETS) - buckets_of(quantities)


class Queries(NamedTuple):
    """The queries of one frame, in this order; all for one moment."""

    scraped: str
    """When each target was scraped: value and labels of `up`."""
    up: str
    engines: str
    started: str
    """Start time of the engines' processes: every exporter writes it, so only beside an engine's series."""
    gpus: str
    own: str
    """The metrics of `gpumon serve-metrics`."""


PAGE_KINDS: Final = ("engines", "started", "gpus", "own")
"""Queries whose answers are the pages of targets."""


class Answers(NamedTuple):
    """The answers for one moment, in the order of `Queries`."""

    at_s: float
    """Unix time that was asked for."""
    scraped: Sequence[Vector]
    up: Sequence[Vector]
    engines: Sequence[Vector]
    started: Sequence[Vector]
    gpus: Sequence[Vector]
    own: Sequence[Vector]
    again: Sequence[Vector]
    """The answer to the first query, which is asked again at the end."""
    asked: frozenset[str] | None = None
    """Addresses (`instance`) whose pages were asked for; None: all. What is known of the others stays."""
    incomplete: frozenset[str] = frozenset()
    """Kinds of pages (`PAGE_KINDS`) of which some may be missing, as a query was refused, answered in part or not sent:
    what is known of them stays."""
    engine_loads: Sequence[Vector] = ()
    """The answer to `LoadQueries.engines`."""
    gpu_loads: Sequence[Vector] = ()
    """The answer to `LoadQueries.gpus`."""


def load_names() -> frozenset[str]:
    """Names of the series that the loads of engines are read from."""
    names: set[str] = set()
    for adapter in _ADAPTERS:
        for number in (*adapter.tables.counters, *adapter.tables.gauges):
            if number.quantity in LOAD_QUANTITIES:
                for name in (*(metric.name for metric in number.metrics), *number.also):
                    names |= adapter.page_names(name)
    return frozenset(names)


def _load_labels() -> frozenset[str]:
    """Labels by which adapters tell the series of engines' loads apart: ranks, models, parts of a whole."""
    labels: set[str] = set()
    for adapter in _ADAPTERS:
        tables = adapter.tables
        labels |= {tables.rank_label, tables.part_label, tables.priority_label, tables.model_label, *tables.repeated}
        labels.update(label for label, _ in tables.ignored)
        for number in (*tables.counters, *tables.gauges):
            if number.quantity in LOAD_QUANTITIES:
                labels.update(metric.label for metric in number.metrics)
    return frozenset(labels - {""})


class LoadQueries(NamedTuple):
    """The queries for the loads of a whole fleet, in which series have no more labels than tell them apart."""

    engines: str
    gpus: str
    xids: str
    """The Xids that exporters show: a host with a new one is read at once."""


def load_queries(match: str, place_labels: Iterable[str]) -> LoadQueries:
    """The queries for the loads of all engines and GPUs. `place_labels` tell apart targets of one address.

    Replicas of a Prometheus tell the same figure: the highest counts.
    """
    shared = {"__name__", "job", "instance", *filter(LABEL_NAME.fullmatch, place_labels)}
    engine_labels = ", ".join(sorted(shared | _load_labels()))
    gpu_labels = ", ".join(sorted(shared | {*_GPU_LOAD_LABELS}))
    return LoadQueries(
        engines=f"max by ({engine_labels}) ({series_of_names(load_names(), match)})",
        gpus=f"max by ({gpu_labels}) ({series_of_names(GPU_LOAD_NAMES, match)})",
        xids=f"{series_of_names(_XID_NAMES, match)} > 0",
    )


def first_look(whole: Queries, match: str) -> Queries:
    """The queries of the first frame of a large fleet: those of a frame, of engines and GPUs the loads alone."""
    return whole._replace(
        engines=series_of_names(load_names(), match),
        gpus=series_of_names(GPU_LOAD_NAMES | {"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE_BYTES"}, match),
    )


def chunks(instances: Iterable[str]) -> list[list[str]]:
    """The addresses of targets in order, in parts of as many as one query takes."""
    ordered = sorted(instances)
    return [ordered[begin : begin + _MOST_INSTANCES] for begin in range(0, len(ordered), _MOST_INSTANCES)]


def series_of_names(names: Iterable[str], matchers: str) -> str:
    """Series of these names. Names are made of letters, digits, `_` and `:`."""
    return _selector(pattern(names), matchers)


def pattern(names: Iterable[str]) -> str:
    """A regular expression of exactly these names, a third as long as a list: VictoriaMetrics takes 16 KiB a query.

    Names of histograms come first, with their ends written once: those with all three, then those without buckets.
    """
    parts = []
    unwritten = frozenset(names)
    for ends in (ENDS, ENDS[1:]):
        bases = _bases(unwritten, ends)
        for end in ends:
            unwritten -= {base + end for base in bases}
        if bases:
            parts.append(f"({_factored(sorted(bases))})({'|'.join(ends)})")
    if unwritten:
        parts.append(_factored(sorted(unwritten)))
    return "|".join(parts)


def _bases(names: frozenset[str], ends: Sequence[str]) -> set[str]:
    """Beginnings of the names that are there with each of these ends."""
    bases: set[str] = set()
    for name in names:
        base = name.removesuffix(ends[0])
        if base != name and all(base + end in names for end in ends):
            bases.add(base)
    return bases


def _factored(names: list[str]) -> str:
    """The names, sorted, with their common beginnings written once."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name[:1], []).append(name)
    parts = []
    for group in groups.values():
        begin = os.path.commonprefix(group)  # noqa: RUF071 (of characters)
        part = begin
        if len(group) > 1:
            ends = [name[len(begin) :] for name in group]
            part += f"({_factored(ends)})"
        parts.append(part)
    return "|".join(parts)


def queries(match: str = "", own: str = OWN, buckets: frozenset[str] = ALL_BUCKETS) -> Queries:
    """The queries of one frame.

    `match`: label matchers in PromQL. `own`: the regular expression of the names that gpumon itself exports. `buckets`:
    quantities of which the distribution is asked for, not the sum and the count alone.
    """
    started = f"{_metric(START_TIME, match)} and on (job, instance) {series_of_names(sign_names(), match)}"
    return Queries(
        scraped=f"timestamp({_metric('up', match)})",
        up=_metric("up", match),
        engines=series_of_names(ENGINE_NAMES - left_out(buckets), match),
        started=started,
        gpus=series_of_names(GPU_NAMES | OTHER_NAMES, match),
        own=_selector(own, match),
    )


def own_names(names: Iterable[str]) -> str:
    """The regular expression of exactly these names."""
    return pattern(name for name in names if not _ODD_CHARACTER.search(name)) or OWN


def scrapes(instances: Iterable[str], match: str = "") -> str:
    """The query for all scrapes of these targets within `_SCRAPES_S`, by their `up`."""
    return f"up{{{matchers_of_label(match, 'instance', instances)}}}[{_SCRAPES_S}s]"


def matchers_of_label(match: str, label: str, values: Iterable[str]) -> str:
    """Matchers of `match`, and of one of these values of a label, whatever characters they have."""
    one_of = "|".join(sorted(map(_literal, values)))
    return join_matchers(match, f'{label}=~"{one_of}"')


def join_matchers(*parts: str) -> str:
    """Several matchers as one list."""
    stripped = [part.strip().strip(",").strip() for part in parts]
    return ",".join(filter(None, stripped))


def _literal(value: str) -> str:
    """A value as a regular expression (RE2) inside a quoted string."""
    escaped = "".join(f"\\{character}" if character in r"\.+*?()|[]{}^$" else character for character in value)
    quoted = escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return quoted.replace("\r", "\\r").replace("\0", "\\x00")


def _selector(names: str, match: str) -> str:
    """The series whose names match a regular expression."""
    name = f'__name__=~"{names}"'
    return f"{{{join_matchers(name, match)}}}"


def _metric(name: str, match: str) -> str:
    """The series of one name."""
    matchers = join_matchers(match)
    if matchers:
        return f"{name}{{{matchers}}}"
    return name


def with_scrape_times(scraped: str, match: str) -> str:
    """The query `scraped`, extended by when the pages without `up` were scraped, by their own series.

    It stays one query.
    """
    pages = (
        (UNKNOWN, sign_names() | _OWN_SIGNS),
        ([name for name in UNKNOWN if name not in OF_WORKLOADS], GPU_SIGNS),
    )
    return " or ".join((scraped, *(_newest_scrape(labels, names, match) for labels, names in pages)))


def _newest_scrape(labels: Iterable[str], names: Iterable[str], match: str) -> str:
    """The query for the newest time of any series of these names, by these labels."""
    # Each name by itself: a function drops it, and two series must not become alike.
    times = " or ".join(f"timestamp({name}{{{join_matchers(match)}}})" for name in sorted(names))
    return f"max by ({', '.join(labels)}) ({times})"


def queries_of_last_day(match: str) -> tuple[str, str]:
    """The queries of the last day, one series per GPU each: when it was last busy, and when it was first seen.

    The first is a Unix time to 5 minutes, and a GPU that never was busy has none; the second is one to half an hour.
    """
    busy = _metric("DCGM_FI_DEV_GPU_UTIL", match)
    return (
        f"max_over_time(timestamp(max_over_time({busy}[5m]) > 0)[1d:5m])",
        f"min_over_time(timestamp({busy})[1d:30m])",
    )


def targets_of_range(match: str, seconds: float) -> str:
    """The targets that there were, by their `up`; to be asked for the end of the time."""
    return f"last_over_time(up{{{join_matchers(match)}}}[{_duration(seconds)}])"


def exporters_of_range(names: Iterable[str], match: str, seconds: float) -> str:
    """The exporters that told GPUs of the hosts of these names, and the pods that used them."""
    gpu_series = series_of_names(GPU_SIGNS, matchers_of_label(match, "Hostname", names))
    return f"group by (job, instance, {', '.join(_POD_LABELS)}) (last_over_time({gpu_series}[{_duration(seconds)}]))"


def addresses(
    up: Iterable[Vector], exporters: Iterable[Vector], names: Iterable[str], ladder: Sequence[str]
) -> frozenset[str]:
    """Addresses of a host's targets in the past: known by their labels, or by the pods that used its GPUs.

    `names`: those of the host; `ladder`: labels that name hosts, the best first.
    """
    host_names = frozenset(names)
    of_exporters = [sample.series.labels for sample in exporters]
    pods = _pods_of(of_exporters)
    instances = dict.fromkeys(labels.get(INSTANCE, "") for labels in of_exporters)
    for sample in up:
        labels = sample.series.labels
        if host_of(labels, {}, ladder) in host_names or _pod(labels) in pods:
            instances[labels.get(INSTANCE, "")] = None
    instances.pop("", None)
    return frozenset(list(instances)[:MOST_ADDRESSES])


def _pods_of(exporters: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    """The pods that these labels of exporters name, their own and those of a GPU's user."""
    pods = set()
    for labels in exporters:
        for pod in (_pod(labels), _pod(_without_exported(labels))):
            if pod is not None:
                pods.add(pod)
    return pods


def _pod(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Namespace and name of the pod that these labels name; None where they name none."""
    user = user_of(labels, "")
    if user is None:
        return None
    return user.pod.namespace, user.pod.name


def _without_exported(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that Prometheus has renamed, under the names that the page gave them."""
    return {name[len(EXPORTED) :]: value for name, value in labels.items() if name.startswith(EXPORTED)}


def _duration(seconds: float) -> str:
    """A time as PromQL writes it, in whole seconds, at least one."""
    return f"{max(1, round(seconds))}s"
