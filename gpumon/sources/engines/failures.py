"""Failed requests that an engine counts by cause: failures, aborts and rejections of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import FAILURES_BY_CAUSE, REFUSALS_BY_CAUSE
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import FoundSeries, Metric

REFUSALS: Final = frozenset({"4xx", "400", "413", "422"})
"""Statuses of answers to requests that no engine can serve as they are: too long, malformed, a wrong parameter. A class
of status holds them all; by themselves a missing key (401, 403), a wrong path (404, 405) and a limit of rates (429) are
something else."""


class Failures(NamedTuple):
    """The counter of failed requests, where an engine counts them by cause and apart from those that it served."""

    name: str
    """Name of the counter."""
    cause: str
    """Label of the counter with the cause."""
    client: str = ""
    """The cause that is the client's wish: a request that was aborted, and no failure."""
    turned_away: str = ""
    """The cause of requests that were turned away, as the queue was full: no failure of one that ran."""
    refused: frozenset[str] = frozenset()
    """Causes that are the request's own fault: it is too long, or malformed."""
    besides: bool = True
    """Whether the engine's own count of requests lacks failed and aborted ones: they are added to it."""

    def put(self, figures: PageFigures) -> None:
        """Put failed, aborted and rejected requests into each rank, and the causes into `info`."""
        causes: dict[str, float] = {}
        for series, value in figures.samples_of(Metric(self.name)):
            cause = series.labels.get(self.cause, "")
            causes[cause] = causes.get(cause, 0.0) + value
        if not causes or not figures.ranks:
            return
        for rank in figures.ranks.values():
            self._put_into(rank, figures, causes)
        note_causes(figures, {cause: value for cause, value in causes.items() if cause not in self.refused})
        note_refusals(figures, {cause: value for cause, value in causes.items() if cause in self.refused})

    def _put_into(self, rank: Rank, figures: PageFigures, causes: Mapping[str, float]) -> None:
        """Put the requests by cause into one rank."""
        no_failures = {self.client: q.ABORTS, self.turned_away: q.REJECTIONS}
        # An engine that counts no aborts has "" as their cause, which is that of a series without the label, too.
        others = {cause: value for cause, value in causes.items() if not cause or cause not in no_failures}
        refused = sum((value for cause, value in others.items() if cause in self.refused), 0.0)
        failed = sum(others.values(), 0.0) - refused
        if self.refused:
            figures.put(rank.counters, q.REFUSED, refused, self.name)
        figures.put(rank.counters, q.FAILURES, failed, self.name)
        for cause, quantity in no_failures.items():
            if cause:
                source = str(Metric(self.name, self.cause, cause))
                figures.put(rank.counters, quantity, causes.get(cause, 0.0), source)
        if self.besides and q.REQUESTS in rank.counters:
            rank.counters[q.REQUESTS] += failed + causes.get(self.client, 0.0)
            figures.live[q.REQUESTS] += f" + {self.name}"


def note_causes(figures: PageFigures, causes: Mapping[str, float]) -> None:
    """Note the causes of failed requests since the engine started: `BACKEND ×256, REJECTED ×3`; text from outside."""
    _note(figures, FAILURES_BY_CAUSE, causes)


def note_refusals(figures: PageFigures, causes: Mapping[str, float]) -> None:
    """Note why requests were refused since the engine started: `HTTP 400 ×31`; text from outside."""
    _note(figures, REFUSALS_BY_CAUSE, causes)


def _note(figures: PageFigures, key: str, causes: Mapping[str, float]) -> None:
    """Note counts by cause in `info`, those of causes without a name or a count left out."""
    counted = [f"{cause} ×{value:.0f}" for cause, value in sorted(causes.items()) if cause and value]
    if counted:
        figures.info[key] = ", ".join(counted)


def put_refusals(figures: PageFigures, answers: FoundSeries, status_label: str, source: str) -> None:
    """Put the answers that refused a request into the first rank, and their statuses into `info`.

    `answers` are those to requests for tokens, of a page that counts answers by status.
    """
    first_rank = figures.first_rank
    if first_rank is None:
        return
    refusals: dict[str, float] = {}
    for series, value in answers:
        status = series.labels.get(status_label, "")
        if status in REFUSALS:
            refusals[f"HTTP {status}"] = refusals.get(f"HTTP {status}", 0.0) + value
    figures.put(first_rank.counters, q.REFUSED, sum(refusals.values(), 0.0), f'{source}{{{status_label}="4.."}}')
    note_refusals(figures, refusals)
