"""Bounds of figures, as their rows have them: a number beyond these is no reading, whoever sent it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import unit_of
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason

_DEPENDENTS: Final[Mapping[str, tuple[str, ...]]] = {
    other: tuple(row.field for row in GPU.values() if row.within == other)
    for other in {row.within for row in GPU.values() if row.within}
}
"""Field of a GPU -> those that it bounds."""


def with_dependents(fields: Iterable[str]) -> list[str]:
    """These fields of a GPU, each before those that it bounds."""
    return [name for field in fields for name in (field, *_DEPENDENTS.get(field, ()))]


def why_impossible(figures: Figures, field: str, values: Mapping[str, Any]) -> str:
    """Why the number of this field cannot be true beside the others; empty where it can, or where there is none."""
    value = values.get(field, NOT_SUPPORTED)
    if value.__class__ is Missing:
        return ""
    row = figures.get(field)
    largest = unit_of(field).most if row is None else row.largest
    if not 0.0 <= value <= largest:
        return f"0 to {largest:g} is possible"
    if row is None or not row.within:
        return ""
    most: Reading = values.get(row.within, NOT_SUPPORTED)
    if isinstance(most, Missing) or value <= most * row.times:
        return ""
    if not 0.0 <= most <= figures[row.within].largest:
        # The limit is the number that cannot be true, whichever of both is looked at first.
        return ""
    factor_text = "" if row.times == 1.0 else f"{row.times:g} x "
    return f"more than {factor_text}its {row.within.rpartition('_')[0].replace('_', ' ')} of {most:.10g}"


def drop_impossible(
    figures: Figures, values: MutableMapping[str, Any], fields: Iterable[str], source: str = "the driver"
) -> bool:
    """Put a reason in the place of every number of these fields that cannot be true; `source` is who told them.

    Returns whether there was one.
    """
    is_any_impossible = False
    for field in fields:
        value = values.get(field, NOT_SUPPORTED)
        # Nearly all figures end here, at each tick of each GPU: neither of the checks calls a function.
        if value.__class__ is Missing:
            continue
        row = figures.get(field)
        if row is not None and not row.within:
            most = row.unit.most if row.most is None else row.most
            if 0.0 <= value <= most:
                continue
        why = why_impossible(figures, field, values)
        if why:
            values[field] = invalid_reading(value, why, source)
            is_any_impossible = True
    return is_any_impossible


def invalid_reading(value: float, why: str, source: str = "the driver") -> Missing:
    """The reading that stands for a number that cannot be true, and quotes it; `source` is who told the number."""
    return Missing(Reason.INVALID, f"{source} says {value:.10g}: {why}")
