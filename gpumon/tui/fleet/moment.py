"""A fleet as its screen shows it: rows, their sum, and all of it as one machine. Worked out beside the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.owners import by_owner, owner_labels
from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.fleet.sums import sum_fleet
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

    def __init__(self, fleet: FleetSnapshot, prices: Mapping[str, float], config_labels: Sequence[str]) -> None:
        """`prices`: type of GPU -> price per hour; `config_labels`: labels of owners that the config names."""
        self.labels = owner_labels(fleet, config_labels)
        """Labels by which GPUs have owners."""
        self._fleet = fleet
        self._prices = prices
        self._rows: dict[str, tuple[FleetRow, ...]] = {}
        """Label -> its rows, of the labels that were asked for."""

    def rows_by(self, label: str) -> tuple[FleetRow, ...]:
        """A row for each value of a label, and one for what does not have it."""
        rows = self._rows.get(label)
        if rows is None:
            rows = tuple(by_owner(self._fleet, label, self._prices))
            self._rows[label] = rows
        return rows


class FleetMoment(NamedTuple):
    """One moment of a fleet."""

    fleet: FleetSnapshot
    hosts: tuple[FleetRow, ...]
    """A row for each host."""
    models: tuple[FleetRow, ...]
    """A row for each model that is served."""
    owners: OwnerRows
    total: FleetRow
    """The sum over all hosts."""
    whole: Snapshot
    """The hosts as one machine, for sizing."""
    standing: FleetStanding
    """Numbers of problems, the worst one, and what is healthy."""

    def rows(self, grouping: RowSubject) -> Sequence[FleetRow]:
        """The rows of a grouping."""
        if grouping.label:
            return self.owners.rows_by(grouping.label)
        if grouping == MODELS:
            return self.models
        return self.hosts

    def next_grouping(self, grouping: RowSubject) -> RowSubject:
        """The grouping that follows, in a circle: hosts, models, then each label of owners."""
        groupings = [HOSTS, MODELS, *(RowSubject("owner", label) for label in self.owners.labels)]
        if grouping not in groupings:  # a label that no target has any more
            return HOSTS
        return groupings[(groupings.index(grouping) + 1) % len(groupings)]

    @property
    def wall_s(self) -> float:
        """Time of the moment (Unix time)."""
        return self.fleet.wall_s


def fleet_moment(
    fleet: FleetSnapshot, prices: Mapping[str, float], config_labels: Sequence[str] = (), shown_label: str = ""
) -> FleetMoment:
    """A snapshot of a fleet as it is shown. It takes a time that grows with the hosts: to be called in a thread.

    `prices`: type of GPU -> price per hour; `config_labels`: labels of owners that the config names; `shown_label`: the
    label whose owners the table shows, empty for none: their rows are worked out here, too.
    """
    rows = sum_fleet(fleet, prices)
    owners = OwnerRows(rows.fleet, prices, config_labels)
    if shown_label:
        owners.rows_by(shown_label)
    return FleetMoment(
        fleet=rows.fleet,
        hosts=tuple(rows.hosts),
        models=tuple(rows.models),
        owners=owners,
        total=rows.total,
        whole=whole_fleet(rows.fleet),
        standing=fleet_standing(rows.fleet, rows.hosts),
    )
