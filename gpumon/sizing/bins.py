"""Kinds of bins that items of few types go into, and the budget of the searches over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

Pattern = tuple[int, ...]
"""Items of each type, in one bin or in all."""
Room = tuple[int, ...]
"""What is left in a bin."""


class Budget:
    """Steps that a search may still take, about 1 us of Python each.

    Counted, not timed, so that the same question has the same answer on a slow machine.
    """

    def __init__(self, steps: int, whole: Budget | None = None) -> None:
        self._left = steps
        self._whole = whole

    @property
    def left(self) -> int:
        """Steps."""
        return self._left

    @property
    def spent(self) -> bool:
        """Searches stop; what they have found is used, and nothing is proved by them."""
        return self._left <= 0

    def take(self, steps: int) -> None:
        """Count them."""
        self._left -= steps
        if self._whole is not None:
            self._whole.take(steps)

    def part(self, steps: int) -> Budget:
        """At most so many of the steps that are left; they count here, too."""
        return Budget(min(steps, self._left), self)

    def share(self, ratio: float) -> Budget:
        """A share of the steps that are left."""
        return self.part(int(self._left * ratio))


class Bin(Protocol):
    """One kind of bin with the types of items; what holds a pattern also holds every part of it."""

    types: int

    @property
    def empty(self) -> Room:
        """Of a bin with nothing in it."""

    def fill(self, room: Room, kind: int, most: int) -> tuple[int, Room]:
        """Up to `most` items of one type into that room: how many, and what is left."""

    def measure(self, room: Room) -> float:
        """How much room that is; best fit prefers the least."""

    def orders(self) -> Iterable[Pattern]:
        """Orders of the types, by size falling, in which best fit is tried."""

    def least(self, counts: Pattern) -> int:
        """Bins that those items take at the very least, by sums alone."""

    def searchable(self, budget: Budget) -> bool:
        """Whether `best` and `near` can be asked: it has few enough patterns."""

    def best(self, values: Sequence[float], counts: Pattern, budget: Budget) -> tuple[float, Pattern, float]:
        """The bin of most value from those items: value, pattern, and what no bin exceeds (the value, if searched)."""

    def near(
        self, values: Sequence[float], counts: Pattern, floor: float, budget: Budget
    ) -> list[tuple[float, Pattern]]:
        """All bins with one of the first type there is, worth at least `floor`, and without room for a further item."""


class SizedBin:
    """Items have two sizes whose sums may not exceed the room: memory and busy time of a GPU, or GPUs of a server.

    The first size is never 0; the second is, where only the first one counts.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], empty: tuple[int, int]) -> None:
        self.sizes = tuple(sizes)
        self.types = len(self.sizes)
        self._empty = empty

    @property
    def empty(self) -> Room:
        """See `Bin`."""
        return self._empty

    def fill(self, room: Room, kind: int, most: int) -> tuple[int, Room]:
        """See `Bin`."""
        size, share = self.sizes[kind]
        taken = min(most, room[0] // size if size else most, room[1] // share if share else most)
        return taken, (room[0] - taken * size, room[1] - taken * share)

    def measure(self, room: Room) -> float:
        """See `Bin`: shares of both dimensions added up."""
        size, share = self._empty
        return room[0] / size + (room[1] / share if share else 0.0)

    def orders(self) -> Iterable[Pattern]:
        """See `Bin`: by the larger share, by the sum, by each."""
        shares = [
            tuple(size / whole for size, whole in zip(pair, self._empty, strict=True) if whole) for pair in self.sizes
        ]
        keys: tuple[Callable[[tuple[float, ...]], float], ...] = (max, sum, lambda pair: pair[0], lambda pair: pair[-1])
        return dict.fromkeys(_falling([key(pair) for pair in shares]) for key in keys)

    def least(self, counts: Pattern) -> int:
        """See `Bin`: the sum of each dimension, and what is too large to share a bin."""
        axes = [axis for axis in (0, 1) if self._empty[axis]]
        return max(_least([size[axis] for size in self.sizes], counts, self._empty[axis]) for axis in axes)

    def searchable(self, budget: Budget) -> bool:
        """See `Bin`."""
        return not budget.spent

    def best(self, values: Sequence[float], counts: Pattern, budget: Budget) -> tuple[float, Pattern, float]:
        """See `Bin`."""
        walk = _Walk(
            self, values, counts, budget, [at for at in range(self.types) if counts[at] and values[at] > 1e-12]
        )
        ceiling = walk.ceiling(0, self._empty[0], self._empty[1])
        walk.climb(0, self._empty[0], self._empty[1], 0.0)
        budget.take(walk.steps)
        return walk.top, tuple(walk.top_pattern), ceiling if budget.spent else walk.top

    def near(
        self, values: Sequence[float], counts: Pattern, floor: float, budget: Budget
    ) -> list[tuple[float, Pattern]]:
        """See `Bin`."""
        first = next(at for at in range(self.types) if counts[at])
        walk = _Walk(self, values, counts, budget, [at for at in range(self.types) if counts[at]], first)
        walk.collect(0, self._empty[0], self._empty[1], 0.0, floor)
        budget.take(walk.steps)
        return walk.found


def _falling(keys: Sequence[float]) -> Pattern:
    """Indices by falling key."""
    return tuple(sorted(range(len(keys)), key=lambda at: (-keys[at], at)))


def _least(sizes: Sequence[int], counts: Pattern, room: int) -> int:
    """Martello and Toth's bound L2 (Knapsack Problems, 1990, section 8.3.2)."""
    best = 0
    for small in {1, *(size for size in sizes if 2 * size <= room)}:
        large = middle = slack = filled = 0
        for size, count in zip(sizes, counts, strict=True):
            if size > room - small:
                large += count
            elif 2 * size > room:
                middle += count
                slack += count * (room - size)
            elif size >= small:
                filled += size * count
        best = max(best, large + middle + max(0, -(-(filled - slack) // room)))
    return best


class _Walk:
    """One walk over the patterns of a `SizedBin`: type by type, by falling value per size, most items first."""

    def __init__(
        self,
        bins: SizedBin,
        values: Sequence[float],
        counts: Pattern,
        budget: Budget,
        kinds: Sequence[int],
        first: int | None = None,
    ) -> None:
        shares = [bins.measure(size) or 1e-12 for size in bins.sizes]
        self.order = sorted(kinds, key=lambda at: (at != first, -values[at] / shares[at], at))
        self.worth = [values[at] for at in self.order]
        self.sizes = [bins.sizes[at] for at in self.order]
        self.most = [counts[at] for at in self.order]
        self.must = 1 if first is not None else 0
        self.steps = 0
        self.most_steps = budget.left
        self.chosen = [0] * bins.types
        self.top = 0.0
        self.top_pattern = [0] * bins.types
        self.found: list[tuple[float, Pattern]] = []
        self._suffixes()

    def _suffixes(self) -> None:
        """Value per unit of each dimension, and value of all items, from each type on: bounds of what can be added."""
        self.per_size, self.per_share, self.all = [0.0], [0.0], [0.0]
        for worth, (size, share), most in zip(
            reversed(self.worth), reversed(self.sizes), reversed(self.most), strict=True
        ):
            self.per_size.append(max(self.per_size[-1], worth / size))
            self.per_share.append(max(self.per_share[-1], worth / share if share else float("inf")))
            self.all.append(self.all[-1] + worth * most)
        for suffix in (self.per_size, self.per_share, self.all):
            suffix.reverse()

    def ceiling(self, at: int, room: int, time: int) -> float:
        """What the types from there on can add at most."""
        by_time = time * self.per_share[at] if time else float("inf")
        return min(self.all[at], room * self.per_size[at], by_time)

    def climb(self, at: int, room: int, time: int, value: float) -> None:
        """Finds the pattern of most value."""
        if value > self.top:
            self.top, self.top_pattern = value, list(self.chosen)
        if at == len(self.order) or self.steps >= self.most_steps:
            return
        (size, share), worth, kind = self.sizes[at], self.worth[at], self.order[at]
        most = min(self.most[at], room // size, time // share if share else self.most[at])
        steady = self._steady(at)
        for taken in range(most, -1, -1):
            self.steps += 1
            rest, slot, sum_ = room - taken * size, time - taken * share, value + taken * worth
            if sum_ + self.ceiling(at + 1, rest, slot) <= self.top + 1e-12:
                if steady:
                    break
                continue
            self.chosen[kind] = taken
            self.climb(at + 1, rest, slot, sum_)
        self.chosen[kind] = 0

    def collect(self, at: int, room: int, time: int, value: float, floor: float) -> None:
        """Finds all patterns worth `floor` that take no further item."""
        if at == len(self.order):
            if not any(
                self.chosen[kind] < most and size <= room and share <= time
                for kind, most, (size, share) in zip(self.order, self.most, self.sizes, strict=True)
            ):
                self.found.append((value, tuple(self.chosen)))
            return
        (size, share), worth, kind = self.sizes[at], self.worth[at], self.order[at]
        most = min(self.most[at], room // size, time // share if share else self.most[at])
        steady = self._steady(at)
        fewest = most if at + 1 == len(self.order) else self.must if at == 0 else 0
        for taken in range(most, fewest - 1, -1):
            self.steps += 1
            if self.steps >= self.most_steps:
                break
            rest, slot, sum_ = room - taken * size, time - taken * share, value + taken * worth
            if sum_ + self.ceiling(at + 1, rest, slot) < floor:
                if steady:
                    break
                continue
            self.chosen[kind] = taken
            self.collect(at + 1, rest, slot, sum_, floor)
        self.chosen[kind] = 0

    def _steady(self, at: int) -> bool:
        """With fewer items of that type the bound can only fall, so the first number that fails ends the loop."""
        (size, share), worth = self.sizes[at], self.worth[at]
        return worth >= size * self.per_size[at + 1] and (not share or worth >= share * self.per_share[at + 1])
