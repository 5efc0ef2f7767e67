"""What running engines showed, in the rows that are about them: kept up to date, and kept when they fall silent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from gpumon.config.schema import Config
from gpumon.readings.format import age
from gpumon.sizing.observed import Observed, Origin, seen_of
from gpumon.sizing.scenario import Scenario, Server, Workload

FROZEN_S = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""


def base_of(config: Config) -> Scenario:
    """What a scenario begins with before anything was seen: the settings. Prices are looked up."""
    of, goals = config.sizing, config.goals
    server = (Server(of.gpu, of.gpus or 8),) if of.gpu else ()
    return Scenario(
        packing=of.packing,
        planning_factor=of.planning_factor,
        usable_memory_ratio=of.usable_memory_ratio,
        spare_instances=of.spare_instances,
        spare_servers=of.spare_servers,
        itl_p95_ms=goals.itl_p95_ms,
        ttft_p95_ms=goals.ttft_p95_ms,
        e2e_p95_ms=goals.e2e_p95_ms,
        server=server,
    )


class Newest(NamedTuple):
    """What the engines show now."""

    observed: Sequence[Observed] = ()
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.targets`); none for one that falls silent."""


class Follower:
    """Brings scenarios up to date: rows of models that run here, as far as nobody typed something else into them."""

    def __init__(self, newest: Newest, models: Collection[str], begun: Scenario | None) -> None:
        self._newest = newest
        self._models = models
        self._were = {each.model: each.target for each in begun.workload} if begun is not None else {}
        """Targets that were as it ran until now."""
        self._known: dict[int, tuple[Workload, Workload]] = {}
        """By identity: scenarios on the way back mostly have the same rows."""

    def renewed(self, scenario: Scenario) -> Scenario:
        """The scenario with the newest figures; the same one where nothing is new.

        An engine that is not among the newest changes nothing: its row keeps what was seen last.
        """
        workloads = tuple(self._renewed(workload) for workload in scenario.workload)
        if all(now is before for now, before in zip(workloads, scenario.workload, strict=True)):
            return scenario
        return replace(scenario, workload=workloads)

    def _renewed(self, workload: Workload) -> Workload:
        if id(workload) not in self._known:
            self._known[id(workload)] = workload, self._seen(self._target(workload))
        return self._known[id(workload)][1]

    def _target(self, workload: Workload) -> Workload:
        now = self._newest.targets.get(workload.model, workload.target)
        follows = workload.target_kind == "concurrency" and workload.target == self._were.get(workload.model)
        return replace(workload, target=now) if follows and now != workload.target else workload

    def _seen(self, workload: Workload) -> Workload:
        follows = workload.model in self._models and not workload.profile
        if not follows or (workload.seen is not None and workload.seen.origin is not Origin.LIVE):
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
