"""Figures of several things as that of all of them together, by the rule of their row: sums, means, the most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum, isfinite
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import times
from gpumon.figures.figure import Figure
from gpumon.figures.merge import Merge
from gpumon.readings.flat import value_of
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason

_NO_SUM: Final = Missing(Reason.INVALID, "its parts are too large to be added")
_NO_ENGINE: Final = Missing(Reason.NO_ENGINE)


class Known(NamedTuple):
    """A figure over those GPUs, or other things, of which it is known."""

    value: Reading
    gpus: int
    """Number of GPUs that are in it."""
    of: int
    """Number of all GPUs of the row."""


def merge_known(row: Figure, values: Sequence[Reading], weights: Sequence[Reading] = ()) -> Known:
    """A figure of several things over those of which it is known, and of how many it is. `weights`: what each is
    weighted with (`Figure.weight`); where that is known of none, all weigh the same. ValueError for a row whose
    figures are not made of those of its parts."""
    if row.merge is Merge.MEAN and any(not isinstance(weight, Missing) for weight in weights):
        weighted = [times(value, weight) for value, weight in zip(values, weights, strict=True)]
        return ratio_of_sums(weighted, weights)
    if row.merge is Merge.SUM:
        return sum_known(values)
    numbers = [value for value in values if not isinstance(value, Missing)]
    if not numbers:
        return Known(common_reason(values), 0, len(values))
    if row.merge is Merge.MEAN:
        merged = _quotient(sum_of(numbers), float(len(numbers)))
    elif row.merge is Merge.MOST:
        merged = max(numbers)
    else:
        raise ValueError(f"{row.field} is not made of the figures of its parts")
    return Known(merged, len(numbers), len(values))


def merge_things(row: Figure, things: Sequence[msgspec.Struct]) -> Known:
    """A figure of GPUs or engines over those of which it is known, by the rule of its row."""
    weights = [value_of(thing, row.weight) for thing in things] if row.weight else ()
    return merge_known(row, [value_of(thing, row.field) for thing in things], weights)


def merge_all(row: Figure, values: Sequence[Reading], weights: Sequence[Reading] = ()) -> Reading:
    """A figure of several things; missing where one lacks it, or its weight: what one lacks, all of them lack."""
    for value in (*values, *weights):
        if isinstance(value, Missing):
            return value
    return merge_known(row, values, weights).value


def sum_of(values: Iterable[float]) -> Reading:
    """The sum of numbers; missing where it is infinite or no number, as with figures that cannot be true."""
    try:
        total = fsum(values)
    except (OverflowError, ValueError):
        return _NO_SUM
    return total if isfinite(total) else _NO_SUM


def ratio_of_sums(parts: Sequence[Reading], wholes: Sequence[Reading]) -> Known:
    """Sum of the parts / sum of the wholes, over the GPUs of which both are known."""
    known_parts = []
    known_wholes = []
    lacking = []
    for part, whole in zip(parts, wholes, strict=True):
        if isinstance(part, Missing):
            lacking.append(part)
        elif isinstance(whole, Missing):
            lacking.append(whole)
        else:
            known_parts.append(part)
            known_wholes.append(whole)
    divisor = sum_of(known_wholes)
    if isinstance(divisor, Missing) or not divisor > 0.0:
        return Known(common_reason(lacking), 0, len(parts))
    return Known(_quotient(sum_of(known_parts), divisor), len(known_parts), len(parts))


def _quotient(dividend: Reading, divisor: float) -> Reading:
    """`dividend / divisor`, which is above 0; a missing dividend as it is."""
    return dividend if isinstance(dividend, Missing) else dividend / divisor


def sum_known(values: Sequence[Reading]) -> Known:
    """The sum of what is known, and of how many that is."""
    numbers = [value for value in values if not isinstance(value, Missing)]
    if not numbers:
        return Known(common_reason(values), 0, len(values))
    return Known(sum_of(numbers), len(numbers), len(values))


def most_known(values: Sequence[Reading]) -> Reading:
    """The largest of what is known; where nothing is, the most common reason."""
    numbers = [value for value in values if not isinstance(value, Missing)]
    return max(numbers) if numbers else common_reason(values, otherwise=NOT_EXPOSED)


def common_reason(figures: Iterable[Reading], otherwise: Missing = NOT_SUPPORTED) -> Missing:
    """The most common reason for which figures are missing; `otherwise` if none is.

    That there is no engine is the reason only if all say so: other GPUs have one, and another reason.
    """
    reasons: Counter[Missing] = Counter()
    for figure in figures:
        if isinstance(figure, Missing):
            reasons[figure] += 1
    if len(reasons) > 1:
        reasons.pop(_NO_ENGINE, None)
    if reasons:
        return reasons.most_common(1)[0][0]
    return otherwise
