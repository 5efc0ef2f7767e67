"""A fleet as its screen shows it: rows, their sum, and all of it as one machine. Worked out beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.owners import by_owner, owner_labels
from gpumon.fleet.rows import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.fleet.summed import summed
from gpumon.fleet.whole import whole_fleet
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.fleet.headline import FleetStanding, fleet_standing


class RowSubject(NamedTuple):
    """The kind of thing that a row of the table stands for."""

    kind: str
    """`host`, `model` or `owner`."""
    label: str = ""
    """Label that names the owners."""

    @property
    def plural(self) -> str:
        """The rows in one word, for rules and keys."""
        if self.label:
            return self.label
        return f"{self.kind}s"


HOSTS: Final = RowSubject("host")
MODELS: Final = RowSubject("model")


class OwnerRows:
    """The rows per owner of one moment: those of a label are worked out when they are first asked for."""

    def __init__(self, fleet: FleetSnapshot, prices: Mapping[str, float], wanted: Sequence[str]) -> None:
        """`wanted`: labels that the config names."""
        self.labels = owner_labels(fleet, wanted)
        self._fleet = fleet
        self._prices = prices
        self._rows: dict[str, tuple[FleetRow, ...]] = {}

    def by(self, label: str) -> tuple[FleetRow, ...]:
        """The rows by a label."""
        rows = self._rows.get(label)
        if rows is None:
            rows = tuple(by_owner(self._fleet, label, self._prices))
            self._rows[label] = rows
        return rows


class FleetMoment(NamedTuple):
    """One moment of a fleet."""

    fleet: FleetSnapshot
    hosts: tuple[FleetRow, ...]
    models: tuple[FleetRow, ...]
    owners: OwnerRows
    total: FleetRow
    whole: Snapshot
    """The hosts as one machine, for sizing."""
    standing: FleetStanding
    """Numbers of problems, the worst one, and what is healthy."""

    def rows(self, grouping: RowSubject) -> Sequence[FleetRow]:
        """The rows of a grouping."""
        if grouping.label:
            return self.owners.by(grouping.label)
        if grouping == MODELS:
            return self.models
        return self.hosts

    def next_grouping(self, grouping: RowSubject) -> RowSubject:
        """The grouping that follows: hosts, models, then each label of owners."""
        groupings = [HOSTS, MODELS]
        for label in self.owners.labels:
            groupings.append(RowSubject("owner", label))
        if grouping not in groupings:
            return HOSTS
        return groupings[(groupings.index(grouping) + 1) % len(groupings)]

    @property
    def wall_s(self) -> float:
        """When it was (Unix time)."""
        return self.fleet.wall_s


def worked_out(
    fleet: FleetSnapshot, prices: Mapping[str, float], owners: Sequence[str] = (), label: str = ""
) -> FleetMoment:
    """All of it, in a time that grows with the hosts: for a thread.

    `owners`: labels that the config names; `label`: the one that the table shows.
    """
    rows = summed(fleet, prices)
    owner_rows = OwnerRows(rows.fleet, prices, owners)
    if label:
        owner_rows.by(label)
    return FleetMoment(
        rows.fleet,
        tuple(rows.hosts),
        tuple(rows.models),
        owner_rows,
        rows.total,
        whole_fleet(rows.fleet),
        fleet_standing(rows.fleet, rows.hosts),
    )
