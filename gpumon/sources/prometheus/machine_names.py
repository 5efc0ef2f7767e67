"""Learns which names of a fleet belong to one machine, and under which of them it is shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

_MOST_NAMES: Final = 20_000
"""Second names that are remembered."""


class MachineId(NamedTuple):
    """A name of a machine by its labels. Its texts are untrusted."""

    cluster: str
    """Name of the cluster; empty where there is one cluster, or where no label tells it."""
    name: str


class KnownMachines:
    """Remembers which names are of one machine, so that a host is not renamed while an exporter pauses."""

    def __init__(self) -> None:
        self._shown: dict[MachineId, MachineId] = {}
        """Second name of a machine -> the name under which the machine is shown."""

    def copy(self) -> KnownMachines:
        """A copy, which learns apart from this one."""
        other = KnownMachines()
        other._shown = dict(self._shown)
        return other

    def shown_id(self, machine_id: MachineId) -> MachineId:
        """The name under which this machine is shown."""
        return self._shown.get(machine_id, machine_id)

    def pairs(self) -> tuple[tuple[MachineId, MachineId], ...]:
        """Each second name of a machine, and the name under which the machine is shown."""
        return tuple(self._shown.items())

    def learn(
        self, gpus: Mapping[MachineId, Collection[str]], best: Collection[MachineId]
    ) -> list[tuple[MachineId, MachineId]]:
        """Learn from the UUIDs that each name's exporters tell now.

        Returns the second names that are seen now, each with the shown one, where more than the cluster differs.

        Names that tell of the same GPU are one machine; two whose GPUs differ by now are two machines again. The name
        that is shown is one of `best`, else one with a cluster, else the first. Two of `best` are two machines: a
        gpumon runs on each, which knows its machine.
        """
        self._separate(gpus)
        for ids in _ids_by_uuid(gpus).values():
            if len(ids) > 1 and sum(machine_id in best for machine_id in ids) < 2:
                self._merge(ids, best)
        return [(alias, shown) for alias, shown in self._shown.items() if alias in gpus and alias.name != shown.name]

    def _separate(self, gpus: Mapping[MachineId, Collection[str]]) -> None:
        """Forget that two names are one machine where no GPU of theirs is the same."""
        for alias, shown in list(self._shown.items()):
            if alias in gpus and shown in gpus and set(gpus[alias]).isdisjoint(gpus[shown]):
                del self._shown[alias]

    def show_under(self, alias: MachineId, shown: MachineId) -> None:
        """Take two names for one machine, which is shown under the second one."""
        if alias != shown and len(self._shown) < _MOST_NAMES:
            # What was shown under the alias has to follow it.
            for other_alias, other_shown in self._shown.items():
                if other_shown == alias:
                    self._shown[other_alias] = shown
            self._shown[alias] = shown

    def _merge(self, names: Collection[MachineId], best: Collection[MachineId]) -> None:
        """Take all these names for one machine."""
        shown_already = [machine_id for machine_id in map(self.shown_id, names) if machine_id in self._shown.values()]
        if shown_already:
            shown = shown_already[0]
        else:
            shown = min(names, key=lambda machine_id: (machine_id not in best, not machine_id.cluster, machine_id))
        for machine_id in {*names, *map(self.shown_id, names)}:
            self.show_under(machine_id, shown)


def _ids_by_uuid(gpus: Mapping[MachineId, Collection[str]]) -> dict[str, list[MachineId]]:
    """UUID of a GPU -> the names that tell of it."""
    ids: dict[str, list[MachineId]] = {}
    for machine_id, uuids in gpus.items():
        for uuid in uuids:
            ids.setdefault(uuid, []).append(machine_id)
    return ids
