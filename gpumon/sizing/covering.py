"""As few bins as can be for many items of few types: best fit, then a search that is exact while its budget lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpumon.sizing.bins import Bin, Budget, Pattern, Room
from gpumon.sizing.columns import Relaxed, relax

Runs = tuple[tuple[Pattern, int], ...]
"""Patterns and how many bins are filled by each."""
RELAXED_SHARE = 0.6
"""Of the budget, for the fractional covering."""
TARGETS = 4
"""Numbers of bins that are tried, from the bound up."""
SEARCHED_BINS = 100
"""Bins that the tree search goes through one by one."""
_Groups = dict[tuple[Pattern, Room], int]


def cover(bins: Bin, counts: Pattern, budget: Budget) -> tuple[Runs, int]:
    """Bins for all the items, and a lower bound: equal numbers prove that none could be saved.

    Every count is at least 1. Never more bins than best fit decreasing in any of its orders.
    """
    if not counts:
        return (), 0
    least = bins.least(counts)
    tried: list[Runs] = []
    for order in bins.orders():
        tried.append(best_fit(bins, counts, order))
        if bins_of(tried[-1]) == least:
            return tried[-1], least
    found = min(tried, key=bins_of)
    if not bins.searchable(budget):
        return found, least
    patterns = [pattern for runs in tried for pattern, _ in runs]
    relaxed = relax(bins, counts, patterns, bins_of(found), budget.share(RELAXED_SHARE))
    least = max(least, relaxed.least)
    if bins_of(found) > least:
        found = min(found, *_rounded(bins, counts, relaxed), key=bins_of)
    for target in range(least, min(bins_of(found), least + TARGETS)):
        better, proved = _search(bins, counts, relaxed, target, budget.share(0.5))
        if better is not None:
            return better, least
        if proved:
            least = target + 1
    return found, least


def bins_of(runs: Runs) -> int:
    """Their number."""
    return sum(times for _, times in runs)


def best_fit(bins: Bin, counts: Pattern, order: Sequence[int]) -> Runs:
    """Best fit decreasing: each item goes where least room is left. Equal bins are kept as one: counts may be huge."""
    groups: _Groups = {}
    nothing = (0,) * bins.types
    for kind in order:
        left = counts[kind]
        changed: _Groups = {}
        for (content, room), times in sorted(groups.items(), key=lambda item: bins.measure(item[0][1])):
            left = _top_up(bins, (content, room), times, kind, left, changed)
        while left > 0:
            taken, _ = bins.fill(bins.empty, kind, left)
            if not taken:
                raise ValueError(f"an item of type {kind} fits no bin")
            left = _top_up(bins, (nothing, bins.empty), left // taken, kind, left, changed)
        groups = changed
    return _merged((content, times) for (content, _), times in groups.items())


def _merged(runs: Iterable[tuple[Pattern, int]]) -> Runs:
    """Equal patterns together."""
    merged: dict[Pattern, int] = {}
    for pattern, times in runs:
        merged[pattern] = merged.get(pattern, 0) + times
    return tuple(merged.items())


def _top_up(bins: Bin, state: tuple[Pattern, Room], times: int, kind: int, left: int, groups: _Groups) -> int:
    """Items of one type into equal bins, one bin after the other; returns how many items are left over."""
    content, room = state
    while times:
        taken, after = bins.fill(room, kind, left) if left else (0, room)
        filled = min(times, left // taken) if taken else times
        key = ((*content[:kind], content[kind] + taken, *content[kind + 1 :]), after)
        groups[key] = groups.get(key, 0) + filled
        times -= filled
        left -= filled * taken
    return left


def _kept(relaxed: Relaxed, fewer: int) -> list[tuple[Pattern, int]]:
    """The whole bins of the fractional covering, some of each pattern less."""
    whole = [(pattern, int(amount + 1e-6) - fewer) for pattern, amount in relaxed.patterns]
    return [(pattern, times) for pattern, times in whole if times > 0]


def _rounded(bins: Bin, counts: Pattern, relaxed: Relaxed) -> Iterator[Runs]:
    """The fractional covering's whole bins, and best fit for the rest."""
    for fewer in (0, 1, 3):
        kept = _kept(relaxed, fewer)
        rest = _without(counts, kept)
        for order in bins.orders():
            yield _merged([*kept, *best_fit(bins, rest, order)])


def _search(bins: Bin, counts: Pattern, relaxed: Relaxed, target: int, budget: Budget) -> tuple[Runs | None, bool]:
    """The items in `target` bins, if that is found; and whether it is proved that there is no way.

    The whole bins of the fractional covering are kept, and a tree search places the rest; where it fails, fewer are.
    """
    fewer = 0
    while not budget.spent:
        kept = _kept(relaxed, fewer)
        spare = target - bins_of(tuple(kept))
        if spare > SEARCHED_BINS:
            break
        part = budget.share(0.5) if kept else budget
        way = _tree(bins, _without(counts, kept), relaxed.values, spare, part)
        if way is not None:
            return _merged([*kept, *way]), False
        if not kept:
            return None, not part.spent
        fewer = fewer * 2 + 1
    return None, False


def _without(counts: Pattern, runs: Iterable[tuple[Pattern, int]]) -> Pattern:
    """Items that are left; a pattern may hold more of a type than there are."""
    left = list(counts)
    for pattern, times in runs:
        for kind, number in enumerate(pattern):
            left[kind] -= number * times
    return tuple(max(0, number) for number in left)


def _tree(bins: Bin, counts: Pattern, values: Sequence[float], target: int, budget: Budget) -> Runs | None:
    """Depth-first over the patterns of the first type that is left, each of them worth so much that the rest may fit.

    Values are those of the fractional covering: with n bins for items worth v, no bin may be worth less than v - n + 1.
    """
    failed: dict[Pattern, int] = {}
    taken: list[Pattern] = []
    left = [counts]
    branches: list[Iterator[Pattern]] = []
    while True:
        room = target - len(taken)
        quick = _quick(bins, left[-1], room, budget) if failed.get(left[-1], -1) < room else None
        if quick is not None:
            return _merged([*((pattern, 1) for pattern in taken), *quick])
        branches.append(
            _branches(bins, left[-1], values, room, budget) if failed.get(left[-1], -1) < room else iter(())
        )
        while branches:
            pattern = next(branches[-1], None)
            if pattern is not None and not budget.spent:
                taken.append(pattern)
                left.append(_without(left[-1], [(pattern, 1)]))
                break
            branches.pop()
            failed[left[-1]] = max(failed.get(left[-1], -1), target - len(taken))
            left.pop()
            if taken:
                taken.pop()
        else:
            return None


def _quick(bins: Bin, counts: Pattern, room: int, budget: Budget) -> Runs | None:
    """Best fit, if it is good enough."""
    budget.take(10 * bins.types)
    for order in bins.orders():
        runs = best_fit(bins, counts, order)
        if bins_of(runs) <= room:
            return tuple(run for run in runs if any(run[0]))
    return None


def _branches(bins: Bin, counts: Pattern, values: Sequence[float], room: int, budget: Budget) -> Iterator[Pattern]:
    """Patterns to try, those that waste least first."""
    worth = sum(value * number for value, number in zip(values, counts, strict=True))
    budget.take(2 * bins.types)
    if room < 1 or worth > room + 1e-6 or bins.least(counts) > room:
        return iter(())
    near = bins.near(values, counts, worth - room + 1 - 1e-6, budget)
    return iter([pattern for _, pattern in sorted(near, key=lambda way: (-way[0], way[1]), reverse=False)])
