"""TP groups into the NVLink domains of one server, where it has more than one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gpumon.sizing.bins import Budget, Pattern, Room

LISTED = 4000
"""Ways to fill a server that are listed for the exact search; servers with more are filled by best fit alone."""
SEARCHED_DOMAINS = 8


def seat(groups: tuple[int, ...], domains: tuple[int, ...]) -> tuple[int, ...] | None:
    """A domain for each TP group (sizes falling) so that none overflows; None if there is none. Exact: it tries all."""
    places: list[int] = []
    left = list(domains)
    if not _holds(groups, tuple(sorted(left))):
        return None
    if len(domains) == 1:
        return (0,) * len(groups)
    for number, size in enumerate(groups, 1):
        for at in _distinct(size, tuple(left)):
            left[at] -= size
            if _holds(groups[number:], tuple(sorted(left))):
                places.append(at)
                break
            left[at] += size
    return tuple(places)


def _distinct(size: int, domains: tuple[int, ...]) -> Iterator[int]:
    """One of each room that holds the size, the fullest first."""
    rooms = {room: at for at, room in reversed(list(enumerate(domains))) if room >= size}
    return (at for _, at in sorted(rooms.items()))


@lru_cache(maxsize=65536)
def _holds(groups: tuple[int, ...], domains: tuple[int, ...]) -> bool:
    """Whether those domains (rising) have a place for all the groups (falling)."""
    if not groups:
        return True
    if sum(groups) > sum(domains):
        return False
    if len(domains) == 1:
        return True
    if groups[0] == groups[-1]:
        return sum(left // groups[0] for left in domains) >= len(groups)
    return any(
        _holds(groups[1:], tuple(sorted((*domains[:at], domains[at] - groups[0], *domains[at + 1 :]))))
        for at in _distinct(groups[0], domains)
    )


class DomainBin:
    """A server with several domains. An item is an instance: `stages` TP groups of `tp` GPUs, all in this server."""

    def __init__(self, groups: Sequence[tuple[int, int]], domains: tuple[int, ...]) -> None:
        self.groups = tuple(groups)
        self.types = len(self.groups)
        self._domains = domains
        self._ways: list[Pattern] = []

    @property
    def empty(self) -> Room:
        """See `bins.Bin`."""
        return self._domains

    def fill(self, room: Room, kind: int, most: int) -> tuple[int, Room]:
        """See `bins.Bin`: each group goes into the fullest domain that holds it."""
        tp, stages = self.groups[kind]
        taken = min(most, sum(left // tp for left in room) // stages)
        groups, rooms = taken * stages, list(room)
        for at in sorted(range(len(rooms)), key=lambda at: rooms[at]):
            here = min(groups, rooms[at] // tp)
            rooms[at] -= here * tp
            groups -= here
        return taken, tuple(rooms)

    def measure(self, room: Room) -> float:
        """See `bins.Bin`: GPUs that are left."""
        return float(sum(room))

    def orders(self) -> Iterable[Pattern]:
        """See `bins.Bin`: by GPUs, and by the size of a group."""
        by_gpus = sorted(range(self.types), key=lambda at: (-self.groups[at][0] * self.groups[at][1], at))
        by_tp = sorted(range(self.types), key=lambda at: (-self.groups[at][0], -self.groups[at][1], at))
        return dict.fromkeys((tuple(by_gpus), tuple(by_tp)))

    def least(self, counts: Pattern) -> int:
        """See `bins.Bin`: by GPUs, and by TP groups of at least a size, of which a domain holds only so many."""
        gpus = sum(count * tp * stages for count, (tp, stages) in zip(counts, self.groups, strict=True))
        found = -(-gpus // sum(self._domains))
        for size in {tp for tp, _ in self.groups}:
            held = sum(room // size for room in self._domains)
            wanted = sum(count * stages for count, (tp, stages) in zip(counts, self.groups, strict=True) if tp >= size)
            found = max(found, -(-wanted // held))
        return found

    def searchable(self, budget: Budget) -> bool:
        """See `bins.Bin`."""
        self._ways = []
        return len(self._domains) <= SEARCHED_DOMAINS and self._list((), budget)

    def best(self, values: Sequence[float], counts: Pattern, budget: Budget) -> tuple[float, Pattern, float]:
        """See `bins.Bin`."""
        value, pattern = max((_worth(values, way), way) for way in self._clipped(counts, budget))
        return value, pattern, value

    def near(
        self, values: Sequence[float], counts: Pattern, floor: float, budget: Budget
    ) -> list[tuple[float, Pattern]]:
        """See `bins.Bin`; with some that do hold another item, which does no harm."""
        first = next(at for at in range(self.types) if counts[at])
        ways = [(_worth(values, way), way) for way in self._clipped(counts, budget) if way[first]]
        return [(value, way) for value, way in ways if value >= floor]

    def _clipped(self, counts: Pattern, budget: Budget) -> Iterable[Pattern]:
        """The patterns, of those items only."""
        budget.take(len(self._ways))
        return dict.fromkeys(tuple(map(min, way, counts)) for way in self._ways)

    def _list(self, begun: Pattern, budget: Budget) -> bool:
        """Patterns that begin so; False if there are too many."""
        if len(begun) == self.types:
            self._ways.append(begun)
            return len(self._ways) <= LISTED
        tp, stages = self.groups[len(begun)]
        last = len(begun) + 1 == self.types
        for taken in range(sum(self._domains) // (tp * stages), -1, -1):
            budget.take(5)
            if budget.spent:
                return False
            if self._feasible((*begun, taken)):
                if not self._list((*begun, taken), budget):
                    return False
                if last:
                    break
        return True

    def _feasible(self, begun: Pattern) -> bool:
        """Whether one server holds them."""
        sizes = [
            tp
            for taken, (tp, stages) in zip(begun, self.groups[: len(begun)], strict=True)
            for _ in range(taken * stages)
        ]
        return _holds(tuple(sorted(sizes, reverse=True)), tuple(sorted(self._domains)))


def _worth(values: Sequence[float], pattern: Pattern) -> float:
    """Sum of the values."""
    return sum(value * number for value, number in zip(values, pattern, strict=True))
