"""Failed requests by cause, where an engine counts them apart from those that it served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.sources.engines.adapter import Found, Metric, picked
from gpumon.sources.engines.plan import Rank

BY_CAUSE: Final = "failures_by_cause"
"""Key in `info`: `BACKEND 256, REJECTED 3`, since the engine started; text from outside."""


class Failures(NamedTuple):
    """The counter of failed requests."""

    name: str
    cause: str
    """Its label that says why."""
    client: str = ""
    """The cause that is the client's wish: a request that ended, and no failure."""
    besides: bool = True
    """They are not among the requests that the engine counts otherwise."""

    def put(self, rank: Rank, live: dict[str, str], info: dict[str, str], found: Mapping[str, Found]) -> None:
        """Put them into the rank, with what tells of them."""
        causes: dict[str, float] = {}
        for series, value in picked(found, Metric(self.name)):
            cause = series.labels.get(self.cause, "")
            causes[cause] = causes.get(cause, 0.0) + value
        if not causes:
            return
        rank.counters[q.FAILURES] = sum(value for cause, value in causes.items() if not cause or cause != self.client)
        live[q.FAILURES] = self.name
        if self.besides and q.REQUESTS in rank.counters:
            rank.counters[q.REQUESTS] += sum(causes.values())
            live[q.REQUESTS] = f"{live[q.REQUESTS]} + {self.name}"
        if said := ", ".join(f"{cause} {value:.0f}" for cause, value in sorted(causes.items()) if cause and value):
            info[BY_CAUSE] = said
