"""Hosts under two names that are one machine: those whose exporters name the same GPU, or that lack only a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

MOST: Final = 20_000
"""Names that are remembered."""


class Place(NamedTuple):
    """A machine by its labels. Texts are from outside."""

    cluster: str
    """Empty where there is one cluster, or where no label tells it."""
    name: str


class Machines:
    """Which names are of one machine. What was found stays, so that a host is not renamed when an exporter pauses."""

    def __init__(self) -> None:
        self._kept: dict[Place, Place] = {}

    def copy(self) -> Machines:
        """What is known."""
        other = Machines()
        other._kept = dict(self._kept)
        return other

    def of(self, place: Place) -> Place:
        """The name under which this machine is shown."""
        return self._kept.get(place, place)

    def pairs(self) -> tuple[tuple[Place, Place], ...]:
        """Each name that is another's, and that one."""
        return tuple(self._kept.items())

    def see(self, gpus: Mapping[Place, Collection[str]], best: Collection[Place]) -> list[tuple[Place, Place]]:
        """Take in the UUIDs that each name's exporters tell of now; which names are another's now, and whose.

        Two names whose GPUs were found to differ since are two machines again. The name that is kept is one of `best`,
        else one with a cluster, else the first. Two of `best` (where a gpumon runs, which knows its machine) are two.
        """
        for alias, kept in [*self._kept.items()]:
            if alias in gpus and kept in gpus and not set(gpus[alias]) & set(gpus[kept]):
                del self._kept[alias]
        by_uuid: dict[str, list[Place]] = {}
        for place, uuids in gpus.items():
            for uuid in uuids:
                by_uuid.setdefault(uuid, []).append(place)
        for several in by_uuid.values():
            if len(several) > 1 and sum(place in best for place in several) < 2:
                self._join(several, best)
        return [(alias, kept) for alias, kept in self._kept.items() if alias in gpus and alias.name != kept.name]

    def lend(self, alias: Place, kept: Place) -> None:
        """These two are one machine, shown under the second name."""
        if alias != kept and len(self._kept) < MOST:
            self._kept = {one: kept if of == alias else of for one, of in self._kept.items()} | {alias: kept}

    def _join(self, several: Collection[Place], best: Collection[Place]) -> None:
        known = [place for place in (self.of(each) for each in several) if place in self._kept.values()]
        kept = known[0] if known else min(several, key=lambda one: (one not in best, not one.cluster, one))
        for place in {*several, *map(self.of, several)}:
            self.lend(place, kept)
