"""The fractional covering of bins by patterns (Gilmore and Gomory 1961): a strong bound, and what items are worth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.sizing.bins import Bin, Budget, Pattern

PIVOTS = 400
SHAKE = 1e-5
"""Counts are a little uneven while pivoting, so that no two patterns run out at once: it would go in circles."""
GLANCE = 200
"""Steps in which a good enough pattern is looked for, before the best one is."""


class Relaxed(NamedTuple):
    """Fractions of bins that would cover the items."""

    patterns: tuple[tuple[Pattern, float], ...]
    values: tuple[float, ...]
    """Of an item of each type, such that no bin is worth more than 1: items take at least their worth in bins."""
    least: int
    """Bins, rounded up."""


def relax(bins: Bin, counts: Pattern, known: Iterable[Pattern], enough: int, budget: Budget) -> Relaxed:
    """Revised simplex over patterns that are made when they are needed; every count is at least 1.

    Stops as soon as the bound is `enough`, or the fractions need no more bins than it. A bound that was reached
    is valid whenever it stops (Farley 1990: values divided by the best bin's).
    """
    size = range(bins.types)
    basis = [tuple(bins.fill(bins.empty, at, counts[at])[0] if at == kind else 0 for at in size) for kind in size]
    inverse = [[1.0 / basis[at][at] if at == other else 0.0 for other in size] for at in size]
    shaken = [counts[at] + SHAKE * (at + 1) ** 1.5 for at in size]
    amounts = [shaken[at] / basis[at][at] for at in size]
    pool = [*dict.fromkeys(known)]
    least, values = 0, (0.0,) * bins.types
    for _ in range(PIVOTS):
        prices = [sum(row[at] for row in inverse) for at in size]
        worth, pattern = max(((_worth(prices, each), each) for each in pool), default=(0.0, ()))
        if worth <= 1 + 1e-9:
            prices = [max(0.0, price) for price in prices]
            worth, pattern, _ = bins.best(prices, counts, budget.part(GLANCE))
        if worth <= 1 + 1e-6:
            worth, pattern, ceiling = bins.best(prices, counts, budget)
            scaled = tuple(price / max(1.0, ceiling) for price in prices)
            bound = _rounded(_worth(scaled, counts))
            if bound >= least:
                least, values = bound, scaled
            if least >= enough or worth <= 1 + 1e-9 or sum(amounts) <= least + 1e-3 or budget.spent:
                break
        budget.take(bins.types * 2)
        _pivot(basis, inverse, amounts, pattern)
    amounts = [_worth(row, counts) for row in inverse]
    return Relaxed(tuple(zip(basis, amounts, strict=True)), values, least)


def _pivot(basis: list[Pattern], inverse: list[list[float]], amounts: list[float], pattern: Pattern) -> None:
    """Takes a pattern into the basis, in place of the one that runs out first."""
    column = [_worth(row, pattern) for row in inverse]
    ratios = [
        (amount / part, -part, at) for at, (amount, part) in enumerate(zip(amounts, column, strict=True)) if part > 1e-9
    ]
    step, _, out = min(ratios)
    factor = 1.0 / column[out]
    leaving = [entry * factor for entry in inverse[out]]
    for at, part in enumerate(column):
        if at != out and part:
            inverse[at] = [entry - part * other for entry, other in zip(inverse[at], leaving, strict=True)]
            amounts[at] = max(0.0, amounts[at] - part * step)
    inverse[out], amounts[out], basis[out] = leaving, step, pattern


def _worth(values: Iterable[float], pattern: Iterable[int]) -> float:
    """Sum of the values."""
    return sum(value * number for value, number in zip(values, pattern, strict=True) if number)


def _rounded(bound: float) -> int:
    """Up, but never for an error of floats."""
    return math.ceil(bound * (1 - 1e-11) - 1e-6)
