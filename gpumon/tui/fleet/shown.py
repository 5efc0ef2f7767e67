"""A fleet as its screen shows it: rows, their sum, and all of it as one machine. Worked out beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.fleet.rows import Row
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.fleet.summed import summed
from gpumon.fleet.whole import whole
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.fleet.headline import Standing, standing


class FleetMoment(NamedTuple):
    """One moment of a fleet."""

    fleet: FleetSnapshot
    hosts: tuple[Row, ...]
    models: tuple[Row, ...]
    total: Row
    whole: Snapshot
    """The hosts as one machine, for sizing."""
    standing: Standing
    """Numbers of problems, the worst one, and what is healthy."""

    @property
    def wall_s(self) -> float:
        """When it was (Unix time)."""
        return self.fleet.wall_s


def worked_out(fleet: FleetSnapshot, prices: Mapping[str, float]) -> FleetMoment:
    """All of it, in a time that grows with the hosts: for a thread."""
    rows = summed(fleet, prices)
    return FleetMoment(
        rows.fleet,
        tuple(rows.hosts),
        tuple(rows.models),
        rows.total,
        whole(rows.fleet),
        standing(rows.fleet, rows.hosts),
    )
