"""What running engines showed, in the rows that are about them: kept up to date, and kept when they fall silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import age
from gpumon.sizing.observed import Observed, Origin, seen_of
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.book import Page, Tie

FROZEN_S = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""


class Newest(NamedTuple):
    """What the engines show now."""

    observed: Sequence[Observed] = ()
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.targets`); none for one that falls silent."""


class Follower:
    """Brings pages up to date: what of their workloads follows what runs here."""

    def __init__(self, newest: Newest) -> None:
        self._newest = newest
        self._known: dict[tuple[int, Tie], tuple[Workload, Workload]] = {}
        """By identity: pages on the way back mostly have the same rows."""

    def renewed(self, page: Page) -> Page:
        """The page with the newest figures; the same one where nothing is new.

        An engine that is not among the newest changes nothing: its row keeps what was seen last.
        """
        before = page.scenario.workload
        workloads = tuple(self._renewed(workload, tie) for workload, tie in zip(before, page.ties, strict=True))
        if all(now is each for now, each in zip(workloads, before, strict=True)):
            return page
        return page._replace(scenario=replace(page.scenario, workload=workloads))

    def _renewed(self, workload: Workload, tie: Tie) -> Workload:
        key = id(workload), tie
        if key not in self._known:
            self._known[key] = workload, self._seen(self._target(workload, tie), tie)
        return self._known[key][1]

    def _target(self, workload: Workload, tie: Tie) -> Workload:
        now = self._newest.targets.get(workload.model, workload.target)
        return replace(workload, target=now) if tie.follows(workload) and now != workload.target else workload

    def _seen(self, workload: Workload, tie: Tie) -> Workload:
        if (
            not tie.figures
            or workload.profile
            or (workload.seen is not None and workload.seen.origin is not Origin.LIVE)
        ):
            return workload
        found = seen_of(workload.model, self._newest.observed, workload.seen)
        return workload if found is None or found == workload.seen else replace(workload, seen=found)


def ages(scenario: Scenario, now_s: float) -> dict[int, str]:
    """Workloads that stand on figures of an engine that has none now -> how old they are."""
    found: dict[int, str] = {}
    for at, workload in enumerate(scenario.workload):
        seen = workload.seen
        if seen is None or seen.origin is not Origin.LIVE or workload.profile or not seen.time:
            continue
        old_s = now_s - _when(seen.time)
        if old_s > FROZEN_S:
            found[at] = age(old_s)
    return found


def _when(time: str) -> float:
    """Seconds since 1970 of an RFC 3339 time; now-ish is not claimed for what is none."""
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
