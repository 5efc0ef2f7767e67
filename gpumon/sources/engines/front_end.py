"""Front ends: routers and proxies that pass requests on to engines, their backends.

A front end counts requests, errors and latencies as its clients see them, and some of that for each backend. What it
counts of tokens is left out: its backends count the same.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.sources.engines.adapter import Adapter
from gpumon.sources.engines.page_figures import PageFigures, Rank, series_sum, usable_samples
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule

MOST_BACKENDS: Final = 256
"""Backends of one front end that are read; all of them are counted."""
_SECRETS: Final = re.compile(r"//[^/?#]*@")
"""User and password of a URL."""
TIMED_OUT: Final = 408
"""HTTP status of a request that took too long."""
TOO_MANY: Final = 429
"""HTTP status of a request that was turned away."""
_CLIENT_GONE: Final = 499
"""HTTP status of a request whose client hung up before its answer was there."""


class BackendTables(NamedTuple):
    """Series of a front end that are each of one backend."""

    labels: tuple[str, ...]
    """Labels that may name the backend: the first that a series has."""
    counters: tuple[Rule, ...] = ()
    gauges: tuple[Rule, ...] = ()


class FrontEnd(Adapter):
    """One front end: its own figures by `tables`, and those of its backends by `backends`."""

    backends: ClassVar[BackendTables]
    ready_from: ClassVar[tuple[str, ...]] = ()
    """Sample names that tell whether a backend gets requests."""

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of all samples that `read` uses."""
        names = set(super().wanted_names)
        for figure in (*self.backends.counters, *self.backends.gauges):
            names.update(metric.name for metric in figure.metrics)
        return frozenset(names)

    def refine(self, figures: PageFigures) -> None:
        """Add the backends, what the tables cannot describe, and how many of the backends get requests."""
        figures.model = self.only_model(figures)
        self._read_backends(figures)
        if figures.backends and not figures.ranks:
            # It has served nothing yet, and knows its backends already.
            figures.ranks["0"] = Rank("0")
        self.work_out(figures)
        if figures.ranks and figures.backends:
            self._count_backends(figures)
        figures.backends = dict(sorted(figures.backends.items())[:MOST_BACKENDS])

    def work_out(self, figures: PageFigures) -> None:
        """Add the figures that the tables cannot describe: a front end's own module does."""

    def only_model(self, figures: PageFigures) -> str:
        """The model that all series name; empty where there are several, or none."""
        label = self.tables.model_label
        if not label:
            return ""
        models: set[str] = set()
        for name in self.tables.model_samples:
            models.update(series.labels.get(label, "") for series, _ in figures.samples.get(name, ()))
        models.discard("")
        if len(models) == 1:
            return models.pop()
        return ""

    def backend_of(self, figures: PageFigures, name: str) -> Rank:
        """The figures of a backend; new where it has none yet."""
        return figures.backends.setdefault(name, Rank(name))

    def by_backend(self, samples: FoundSeries) -> dict[str, FoundSeries]:
        """The samples of each backend; those that name none are left out."""
        backends: dict[str, FoundSeries] = {}
        for series, value in samples:
            for label in self.backends.labels:
                name = series.labels.get(label, "")
                if name and name != "None":
                    backends.setdefault(self.backend_name(name), []).append((series, value))
                    break
        return backends

    def backend_name(self, label: str) -> str:
        """The name of the backend that a label's value is of: an address without what may be secret in it."""
        address = _SECRETS.sub("//", label)
        return address.partition("?")[0].partition("#")[0]

    def _read_backends(self, figures: PageFigures) -> None:
        """Read the counters and gauges of all backends."""
        for counter in self.backends.counters:
            for name, samples in self._samples_by_backend(figures, counter).items():
                self.backend_of(figures, name).counters[counter.quantity] = series_sum(samples)
        for gauge in self.backends.gauges:
            # The sum of its parts, or the highest.
            join = sum if gauge.added else max
            for name, samples in self._samples_by_backend(figures, gauge).items():
                self.backend_of(figures, name).gauges[gauge.quantity] = join(value for _, value in samples)

    def _samples_by_backend(self, figures: PageFigures, rule: Rule) -> dict[str, FoundSeries]:
        """The samples of the first metric of a rule that names a backend, by backend."""
        for metric in rule.metrics:
            backends = self.by_backend(figures.samples_of(metric))
            if backends:
                return backends
        return {}

    def _count_backends(self, figures: PageFigures) -> None:
        """Put into the first rank how many backends there are, and how many get requests, where the page tells."""
        first_rank = next(iter(figures.ranks.values()))
        # Some pages name a backend with its first request only.
        backend_count = max(float(len(figures.backends)), first_rank.gauges.get(q.BACKENDS_READY, 0.0))
        figures.put(first_rank.gauges, q.BACKENDS, backend_count, f"label {self.backends.labels[0]}")
        if q.BACKENDS_READY in first_rank.gauges:
            return
        if all(q.READY in backend.gauges for backend in figures.backends.values()):
            ready = sum(backend.gauges[q.READY] for backend in figures.backends.values())
            source = " and ".join(name for name in self.ready_from if name in figures.samples)
            figures.put(first_rank.gauges, q.BACKENDS_READY, ready, source)


def put_answers(figures: PageFigures, samples: FoundSeries, status_label: str, source: str) -> None:
    """Put failed, aborted and rejected requests into the front end's rank, by the HTTP status of their answer."""
    rank = figures.first_rank
    if rank is None or not samples:
        return
    requests = dict.fromkeys((q.FAILURES, q.ABORTS, q.REJECTIONS), 0.0)
    for series, value in samples:
        quantity = kind_of_status(series.labels.get(status_label, ""))
        if quantity:
            requests[quantity] += value
    for quantity, value in requests.items():
        figures.put(rank.counters, quantity, value, f"{source} by {status_label}")


def kind_of_status(status: str) -> str:
    """Quantity that counts an answer with this HTTP status; empty where it was served, or the request was wrong.

    LiteLLM says `None` of requests without a key: what has no status is the client's.
    """
    if not status.isascii() or not status.isdecimal():
        return ""
    code = int(status[:4])
    if code == _CLIENT_GONE:
        return q.ABORTS
    if code == TOO_MANY:
        return q.REJECTIONS
    if code >= 500 or code == TIMED_OUT:
        return q.FAILURES
    return ""


def samples_of_name(figures: PageFigures, name: str) -> FoundSeries:
    """All usable samples of a name."""
    return usable_samples(figures.samples, Metric(name))
