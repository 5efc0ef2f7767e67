"""Failed requests that an engine counts by cause: failures, aborts and rejections of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.readings import quantities as q
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import Metric


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
        note_causes(figures, causes)

    def _put_into(self, rank: Rank, figures: PageFigures, causes: Mapping[str, float]) -> None:
        """Put the requests by cause into one rank."""
        no_failures = {self.client: q.ABORTS, self.turned_away: q.REJECTIONS}
        # An engine that counts no aborts has "" as their cause, which is that of a series without the label, too.
        failed = sum(value for cause, value in causes.items() if not cause or cause not in no_failures)
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
    counted = []
    for cause, value in sorted(causes.items()):
        if cause and value:
            counted.append(f"{cause} ×{value:.0f}")
    if counted:
        figures.info["failures_by_cause"] = ", ".join(counted)
