"""GPUs that instances of one GPU share: as few as are found by column generation, and how few there can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

UNITS_PER_GPU: Final = 10**12
"""Parts into which the memory and the time of a GPU are divided: sums of whole numbers are exact in any order."""
CAPACITY: Final = UNITS_PER_GPU + UNITS_PER_GPU // 10**9
"""Units that a GPU holds. A billionth more than there are: instances that fill it exactly fit in spite of rounding."""
_MOST_CONTENTS: Final = 600
"""Contents of a GPU that are looked at for the best one: what a keystroke has time for."""
_MOST_COLUMNS: Final = 80
"""Contents that are added to a relaxed problem at most: what a keystroke has time for."""
_MOST_KINDS: Final = 24
"""Most kinds of instances: of more the relaxed problem takes too long for a keystroke."""
_MOST_RELAXED_PROBLEMS: Final = 6
"""Relaxed problems that are solved one after the other; what is left then is put in decreasing size."""
_ROUNDING: Final = 1e-9
"""Share by which a sum of floats may be off."""


class SlotKind(NamedTuple):
    """Instances of one GPU that take equally much of it."""

    memory: int
    """Memory of one instance, in `UNITS_PER_GPU`."""
    busy_time: int
    """Busy share of one instance, in `UNITS_PER_GPU`."""
    instances: int


SlotContent = tuple[tuple[int, int], ...]
"""(index of the kind, instances of it) on one GPU."""
ContentRun = tuple[SlotContent, int]
"""A content, and how many GPUs have it."""


class PackedGpus(NamedTuple):
    """Contents of GPUs that hold all instances."""

    runs: Sequence[ContentRun]
    least_gpus: int
    """No packing takes fewer GPUs."""


class _RelaxedSolution(NamedTuple):
    """The fewest GPUs where parts of a GPU are allowed."""

    columns: list[SlotContent]
    shares: list[float]
    """How many GPUs have each content; not whole."""
    is_proven: bool
    """Whether no solution takes fewer: the search for a better content was not cut short."""


_SIZE_ORDERS: Final[tuple[Callable[[SlotKind], tuple[int, int]], ...]] = (
    lambda kind: (-kind.memory - kind.busy_time, 0),
    lambda kind: (-max(kind.memory, kind.busy_time), -kind.memory - kind.busy_time),
    lambda kind: (-kind.memory, -kind.busy_time),
    lambda kind: (-kind.busy_time, -kind.memory),
)
"""Orders by size, the largest first: by memory and busy time in sum, by the scarcer one, by memory, by busy time."""


@lru_cache(maxsize=64)
def pack_gpus(kinds: tuple[SlotKind, ...]) -> PackedGpus:
    """Contents of GPUs that hold all instances, on as few GPUs as are found.

    Column generation (Gilmore and Gomory 1961): the relaxed problem, which allows parts of a GPU, is solved over the
    contents that pay; its whole GPUs are taken, and the rest is solved anew. On 150 random mixes of 6 to 20 models it
    was at most one GPU above the relaxed optimum.
    """
    counts = {index: kind.instances for index, kind in enumerate(kinds) if kind.instances}
    least_gpus = max(
        divide_up(sum(kind.memory * kind.instances for kind in kinds), CAPACITY),
        divide_up(sum(kind.busy_time * kind.instances for kind in kinds), CAPACITY),
    )
    by_size = _pack_by_size(kinds, counts)
    fewest = _gpus_in(by_size)
    if fewest == least_gpus or len(counts) > _MOST_KINDS:
        return PackedGpus(by_size, least_gpus)
    relaxed = _solve_relaxed(kinds, counts)
    if relaxed.is_proven:
        least_gpus = max(least_gpus, math.ceil(sum(relaxed.shares) * (1 - _ROUNDING) - _ROUNDING))
        if fewest == least_gpus:
            return PackedGpus(by_size, least_gpus)
    by_relaxation = _pack_by_relaxation(kinds, counts, relaxed)
    if _gpus_in(by_relaxation) < fewest:
        return PackedGpus(by_relaxation, least_gpus)
    return PackedGpus(by_size, least_gpus)


def _pack_by_relaxation(
    kinds: Sequence[SlotKind], counts: dict[int, int], relaxed: _RelaxedSolution
) -> list[ContentRun]:
    """Whole parts of a relaxed solution, and of the solutions anew for what is left; the last rest by its sizes."""
    runs: list[ContentRun] = []
    counts = _add_runs(_whole_parts(kinds, counts, relaxed), counts, runs)
    for _ in range(_MOST_RELAXED_PROBLEMS - 1):
        if not counts:
            break
        relaxed = _solve_relaxed(kinds, counts)
        counts = _add_runs(_whole_parts(kinds, counts, relaxed), counts, runs)
    runs += _pack_by_size(kinds, counts)
    return runs


def divide_up(number: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-number // by)


def _gpus_in(runs: Iterable[ContentRun]) -> int:
    """The number of GPUs of a packing."""
    return sum(times for _, times in runs)


def _whole_parts(kinds: Sequence[SlotKind], counts: Mapping[int, int], relaxed: _RelaxedSolution) -> list[ContentRun]:
    """The whole GPUs of a relaxed solution; where there are none, the content with the largest share, filled up."""
    columns = relaxed.columns
    shares = relaxed.shares
    whole_gpus = [(content, math.floor(share + _ROUNDING)) for content, share in zip(columns, shares, strict=True)]
    if any(times for _, times in whole_gpus):
        return whole_gpus
    # Rounded, so that of shares that differ by rounding alone the content with more kinds is taken.
    largest = max(range(len(shares)), key=lambda column: (round(shares[column], 6), len(columns[column])))
    by_sum_of_sizes = _sort_by_size(kinds, counts, _SIZE_ORDERS[0])
    return [(_fill_up(kinds, by_sum_of_sizes, columns[largest]), 1)]


def _sort_by_size(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], order_key: Callable[[SlotKind], tuple[int, int]]
) -> dict[int, int]:
    """The counts, the largest kind first."""
    return {kind: counts[kind] for kind in sorted(counts, key=lambda kind: order_key(kinds[kind]))}


def _add_runs(new: Iterable[ContentRun], counts: Mapping[int, int], runs: list[ContentRun]) -> dict[int, int]:
    """Add contents to `runs` as far as instances are left; returns the instances that are left then."""
    counts_left = dict(counts)
    for content, most_times in new:
        times = min(most_times, *(counts_left[kind] // number for kind, number in content))
        if times > 0:
            runs.append((content, times))
            for kind, number in content:
                counts_left[kind] -= number * times
    return {kind: count for kind, count in counts_left.items() if count}


def _pack_by_size(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> list[ContentRun]:
    """GPUs filled one after the other, the largest instances first; of the orders the one that takes fewest."""
    packings = [_pack_in_order(kinds, _sort_by_size(kinds, counts, order_key)) for order_key in _SIZE_ORDERS]
    return min(packings, key=_gpus_in)


def _pack_in_order(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> list[ContentRun]:
    """GPUs filled one after the other with the kinds in the order of `counts`."""
    counts_left = dict(counts)
    runs = list[ContentRun]()
    while counts_left:
        content = _fill_up(kinds, counts_left, ())
        times = min(counts_left[kind] // number for kind, number in content)
        counts_left = _add_runs([(content, times)], counts_left, runs)
    return runs


def _fill_up(kinds: Sequence[SlotKind], counts: Mapping[int, int], content: SlotContent) -> SlotContent:
    """The content as far as instances are left, and of all others as many as fit, in the order of `counts`."""
    numbers = {kind: min(number, counts[kind]) for kind, number in content}
    memory_left = CAPACITY - sum(kinds[kind].memory * number for kind, number in numbers.items())
    time_left = CAPACITY - sum(kinds[kind].busy_time * number for kind, number in numbers.items())
    for kind, count in counts.items():
        more = _fitting_number(kinds[kind], count - numbers.get(kind, 0), memory_left, time_left)
        if more:
            numbers[kind] = numbers.get(kind, 0) + more
            memory_left -= more * kinds[kind].memory
            time_left -= more * kinds[kind].busy_time
    return tuple(numbers.items())


def _solve_relaxed(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> _RelaxedSolution:
    """The fewest GPUs for these counts where parts of GPUs are allowed.

    Revised simplex: a row for each kind, a column for each content; `inverse` is that of the basis. It begins with GPUs
    of one kind each. The prices of the kinds are those at which each GPU of the basis is worth 1; while some content is
    worth more, it takes the place of a column.
    """
    order = list(counts)
    columns: list[SlotContent] = []
    inverse = [[0.0] * len(order) for _ in order]
    for row, kind in enumerate(order):
        most = _fitting_number(kinds[kind], counts[kind], CAPACITY, CAPACITY)
        columns.append(((kind, most),))
        inverse[row][row] = 1.0 / most
    shares = [counts[kind] * inverse[row][row] for row, kind in enumerate(order)]
    for _ in range(_MOST_COLUMNS):
        prices = {kind: sum(line[column] for line in inverse) for column, kind in enumerate(order)}
        content, value, is_proven = _best_content(kinds, counts, prices)
        if value <= 1.0 + _ROUNDING:
            return _RelaxedSolution(columns, shares, is_proven)
        entering = _entering_column(inverse, order, content)
        leaving_row = _leaving_row(shares, entering)
        columns[leaving_row] = content
        _pivot(inverse, shares, entering, leaving_row)
    return _RelaxedSolution(columns, shares, is_proven=False)


def _entering_column(inverse: Sequence[Sequence[float]], order: Sequence[int], content: SlotContent) -> list[float]:
    """The column of a new content in the present basis."""
    numbers = dict(content)
    terms = [(column, numbers[kind]) for column, kind in enumerate(order) if kind in numbers]
    return [sum(line[column] * number for column, number in terms) for line in inverse]


def _leaving_row(shares: Sequence[float], entering: Sequence[float]) -> int:
    """The row whose content falls to nothing first as the new one grows."""
    rows = [row for row, step in enumerate(entering) if step > _ROUNDING]
    return min(rows, key=lambda row: shares[row] / entering[row])


def _pivot(inverse: list[list[float]], shares: list[float], entering: Sequence[float], leaving_row: int) -> None:
    """Put the new column in place of the row that leaves: changes `inverse` and `shares`."""
    pivot = entering[leaving_row]
    share = shares[leaving_row] / pivot
    line = [value / pivot for value in inverse[leaving_row]]
    for row, step in enumerate(entering):
        if row != leaving_row and step:
            inverse[row] = [old - step * new for old, new in zip(inverse[row], line, strict=True)]
            shares[row] = max(0.0, shares[row] - step * share)
    inverse[leaving_row] = line
    shares[leaving_row] = share


def _fitting_number(kind: SlotKind, count: int, memory: int, busy_time: int) -> int:
    """How many of `count` instances fit into this memory and time of a GPU."""
    kind_memory, kind_time, _ = kind
    by_memory = min(count, memory // kind_memory)
    if kind_time:
        return min(by_memory, busy_time // kind_time)
    return by_memory


def _best_content(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], prices: Mapping[int, float]
) -> tuple[SlotContent, float, bool]:
    """The content that is worth most at these prices, its value, and whether none is worth more: searched depth first,
    bounded by the value of the room left, until the search is cut short."""
    valued = [kind for kind in counts if prices[kind] > 0]
    order = sorted(valued, key=lambda kind: -prices[kind] / (kinds[kind].memory + kinds[kind].busy_time))
    per_memory, per_time = _values_per_room(kinds, order, prices)
    best_content: SlotContent = ()
    best_value = 0.0
    tried = 0

    def search(position: int, memory_left: int, time_left: int, value: float, content: SlotContent) -> None:
        """Try all numbers of the kind at `position` of the order, the largest first, beside `content`."""
        nonlocal best_content, best_value, tried
        tried += 1
        if value > best_value + _ROUNDING:
            best_content = content
            best_value = value
        if position == len(order):
            return
        kind = order[position]
        price = prices[kind]
        memory, busy_time, _ = kinds[kind]
        most_per_memory = per_memory[position + 1]
        most_per_time = per_time[position + 1]
        for number in range(_fitting_number(kinds[kind], counts[kind], memory_left, time_left), -1, -1):
            if tried > _MOST_CONTENTS:
                return
            next_memory = memory_left - number * memory
            next_time = time_left - number * busy_time
            next_value = value + number * price
            # Infinity times no time left is not a number.
            by_time = most_per_time * next_time if most_per_time < math.inf else math.inf
            most_more = min(most_per_memory * next_memory, by_time)
            is_better = number > 0 and next_value > best_value + _ROUNDING
            if is_better or next_value + most_more > best_value + _ROUNDING:
                next_content = (*content, (kind, number)) if number else content
                search(position + 1, next_memory, next_time, next_value, next_content)

    search(0, CAPACITY, CAPACITY, 0.0, ())
    return best_content, best_value, tried <= _MOST_CONTENTS


def _values_per_room(
    kinds: Sequence[SlotKind], order: Sequence[int], prices: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """Most value per memory and per busy time among the kinds from each position of the order on; 0 at its end."""
    per_memory = [0.0] * (len(order) + 1)
    per_time = [0.0] * (len(order) + 1)
    for position in range(len(order) - 1, -1, -1):
        kind = kinds[order[position]]
        price = prices[order[position]]
        price_per_time = price / kind.busy_time if kind.busy_time else math.inf
        per_memory[position] = max(per_memory[position + 1], price / kind.memory)
        per_time[position] = max(per_time[position + 1], price_per_time)
    return per_memory, per_time
