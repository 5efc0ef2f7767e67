"""The page of a snapshot as OpenMetrics and as classic Prometheus text, worked out once per snapshot and form."""

from __future__ import annotations

import gzip
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics_exposition

from gpumon import __version__
from gpumon.efficiency.goodput import goal_bounds
from gpumon.outputs.essential import is_essential
from gpumon.outputs.json import encode
from gpumon.outputs.private import without_processes
from gpumon.outputs.samples import MOST_EXPORTED, engine_labels, goal_samples, histogram_samples, samples
from gpumon.readings.exported import EXPORTED_METRICS, ExportedSample
from gpumon.readings.frame import EngineReading, Frame
from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import EventKind, Snapshot

_LATE_INTERVALS: Final = 3.0
"""Intervals after which a snapshot is no longer of now: its collector is stuck."""
LEAST_LATE_S: Final = 3.0
"""Least lateness in seconds: a short interval on a busy machine is no stuck collector."""
MOST_COUNTED: Final = 1024
"""Engines whose restarts are remembered before those that are gone are forgotten."""
NO_GOALS: Final = Goals()
"""Nothing is promised."""
_GZIP_LEVEL: Final = 4
"""Level of compression: higher ones take longer and save little."""
_METRIC_OF_SAMPLE: Final = {name: metric for metric in EXPORTED_METRICS for name in metric.samples}
"""Name of a sample -> the metric that it belongs to."""
_FORMS: Final[Mapping[str, tuple[Callable[[Any], bytes], str]]] = {
    "classic": (exposition.generate_latest, "text/plain; version=0.0.4; charset=utf-8"),
    "openmetrics": (
        openmetrics_exposition.generate_latest,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    ),
}
"""Forms of the page: what writes it, and its content type."""


class PageBody(NamedTuple):
    """An answer's body."""

    body: bytes
    content_type: str
    encoding: str = ""


class _KeptTick(Protocol):
    """The part of a tick that is read here."""

    @property
    def frame(self) -> Frame: ...


class _FamilyRegistry(NamedTuple):
    """Families as prometheus-client takes them: by a registry that it asks."""

    families: tuple[Family, ...]

    def collect(self) -> Iterable[Family]:
        return self.families


class _TakenSnapshot(NamedTuple):
    """The newest snapshot."""

    snapshot: Snapshot
    taken_s: float
    """Monotonic time at which it was taken."""


class MetricsPage:
    """Takes snapshots in the collector's thread, gives pages in the server's: each takes what is newest.

    The lock is for what `take` changes in place. The server's thread alone calls `page`; the engines' histograms, which
    are replaced in one step, may be those of the tick after the snapshot.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        *,
        detail: bool = False,
        goals: Goals = NO_GOALS,
    ) -> None:
        """Begin without a snapshot. `detail`: export every series, not only the essential ones. `goals`: those that are
        promised; what keeps and misses them is counted."""
        self._detail = detail
        self._goal_bounds = goal_bounds(goals)
        self._clock = clock
        self._started_s = wall()
        self._lock = threading.Lock()
        self._newest: _TakenSnapshot | None = None
        self._engines: tuple[EngineReading, ...] = ()
        self._snapshot_number = 0
        """Number of the newest snapshot. Its `id()` would not do: addresses are used again."""
        self._events: Counter[str] = Counter({kind.value: 0 for kind in EventKind})
        self._restarts: Counter[str] = Counter()
        self._pages: dict[tuple[str, str], PageBody] = {}
        self._pages_of: tuple[int, bool] = (0, False)
        """Number of the snapshot that the pages show, and whether it is too old to be shown."""
        self._json = b""
        self._json_of: Snapshot | None = None
        """Snapshot that the JSON is of."""
        self._further_samples: list[Callable[[], Iterable[ExportedSample]]] = []
        """Samples of others."""

    def keep(self, kept: _KeptTick) -> None:
        """Take the readings that the next snapshot is made of: their histograms are exported."""
        self._engines = kept.frame.engines

    def count_also(self, samples: Callable[[], Iterable[ExportedSample]]) -> None:
        """Export these samples, too, which are asked for at each snapshot."""
        self._further_samples.append(samples)

    def take(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot; returns at once."""
        with self._lock:
            self._newest = _TakenSnapshot(snapshot, self._clock())
            self._snapshot_number += 1
            for event in snapshot.events:
                self._events[event.kind.value] += 1
                if event.kind is EventKind.RESTART:
                    self._restarts[event.key] += 1
            if len(self._restarts) > MOST_COUNTED:  # engines come and go, each on a port of its own
                present = {engine.key for engine in snapshot.engines}
                self._restarts = Counter({key: count for key, count in self._restarts.items() if key in present})

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot; None where there is none yet, or none of now."""
        newest = self._newest
        if newest is not None and not self._trouble(newest):
            return newest.snapshot
        return None

    def trouble(self) -> str:
        """Why there are no figures of now, in one line; empty where there are."""
        return self._trouble(self._newest)

    def json(self) -> bytes | None:
        """The newest snapshot as JSON, encoded once; None as `newest`. The server's thread alone calls it."""
        snapshot = self.newest
        if snapshot is None:
            return None
        if snapshot is not self._json_of:
            self._json = encode(without_processes(snapshot)) + b"\n"
            self._json_of = snapshot
        return self._json

    def page(self, accept: str, accept_encoding: str) -> PageBody:
        """The page in the form and encoding that a client takes (its header lines)."""
        form = "openmetrics" if "application/openmetrics-text" in accept.lower() else "classic"
        encoding = "gzip" if any(map(_is_gzip, accept_encoding.lower().split(","))) else ""
        with self._lock:
            newest = self._newest
            number = self._snapshot_number
            events = dict(self._events)
            restarts = dict(self._restarts)
        is_stuck = bool(self._trouble(newest))
        pages_of = number, is_stuck
        if pages_of != self._pages_of:
            self._pages.clear()
            self._pages_of = pages_of
        key = form, encoding
        if key not in self._pages:
            snapshot = newest.snapshot if newest and not is_stuck else None
            self._pages[key] = self._render_page(snapshot, events, restarts, *key)
        return self._pages[key]

    def _trouble(self, newest: _TakenSnapshot | None) -> str:
        """Why a snapshot is none of now; empty where it is one."""
        if newest is None:
            return "no snapshot yet: the sources are being opened"
        interval_s = newest.snapshot.interval_s
        age_s = self._clock() - newest.taken_s
        if age_s <= max(_LATE_INTERVALS * interval_s, LEAST_LATE_S):
            return ""
        return f"the newest snapshot is {age_s:.0f} s old, one is due every {interval_s:g} s: gpumon is stuck"

    def _render_page(
        self, snapshot: Snapshot | None, events: dict[str, int], restarts: dict[str, int], form: str, encoding: str
    ) -> PageBody:
        """The page in a form and an encoding; the compressed one is made of the plain one."""
        plain = self._pages.get((form, ""))
        if plain is None:
            series = [*self._own_samples(), *_snapshot_samples(snapshot, events, restarts)]
            for further_samples in self._further_samples:
                series += further_samples()
            if snapshot is not None:
                series += goal_samples(self._engines, snapshot, self._goal_bounds)
            if snapshot is not None and self._detail:
                series += histogram_samples(self._engines, snapshot)
            if not self._detail:
                series = list(filter(is_essential, series))
            write, content_type = _FORMS[form]
            plain = PageBody(write(_FamilyRegistry(tuple(_grouped_by_family(series)))), content_type)
            self._pages[form, ""] = plain
        if not encoding:
            return plain
        return PageBody(gzip.compress(plain.body, _GZIP_LEVEL, mtime=0), plain.content_type, encoding)

    def _own_samples(self) -> Iterator[ExportedSample]:
        """The series of the exporter itself: its start and its version."""
        yield ExportedSample("gpumon_process_start_time_seconds", {}, self._started_s)
        build = {"version": __version__, "python": platform.python_version()}
        yield ExportedSample("gpumon_build_info", build, 1.0)


def _is_gzip(coding: str) -> bool:
    """Whether a client takes gzip, by one of the codings that it names."""
    name, _, weight = coding.replace(" ", "").partition(";")
    return name.strip() == "gzip" and weight not in ("q=0", "q=0.0")


def _snapshot_samples(
    snapshot: Snapshot | None, events: dict[str, int], restarts: dict[str, int]
) -> Iterator[ExportedSample]:
    """The series of a snapshot, with events and restarts counted so far; without one that gpumon is down."""
    if snapshot is None:
        yield ExportedSample("gpumon_source_up", {"source": "collector", "name": ""}, 0.0)
        return
    yield from samples(snapshot)
    for kind, count in events.items():
        yield ExportedSample("gpumon_events_total", {"kind": kind}, float(count))
    names = engine_labels(snapshot.engines)
    exported = snapshot.engines[: MOST_EXPORTED["engines"]]
    restarts_by_name = {engine.name: restarts.get(engine.key, 0) for engine in exported}
    for name, count in restarts_by_name.items():
        yield ExportedSample("gpumon_engine_restarts_total", {"engine": names[name]}, float(count))


def _grouped_by_family(page: Iterable[ExportedSample]) -> Iterator[Family]:
    """The samples by family, by name, as prometheus-client wants them."""
    grouped: dict[str, list[ExportedSample]] = {}
    for sample in page:
        grouped.setdefault(_METRIC_OF_SAMPLE[sample.name].name, []).append(sample)
    for _, series in sorted(grouped.items()):
        metric = _METRIC_OF_SAMPLE[series[0].name]
        family = Family(metric.name, metric.help, metric.kind, metric.unit)
        for name, labels, value in series:
            family.add_sample(name, labels, value)
        yield family
