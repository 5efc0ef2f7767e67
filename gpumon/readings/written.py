"""How figures are written on the screen: each unit has one form, in a bounded number of cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gpumon.figures import unit
from gpumon.figures.figure import Figure
from gpumon.readings.format import (
    amount,
    celsius,
    count,
    figure,
    memory,
    rate,
    ratio,
    seconds,
    two_digits,
    watts,
    whole,
)
from gpumon.readings.missing import Reading

_WRITERS: Final[Mapping[unit.Unit, Callable[[Reading], str]]] = {
    unit.SHARE: ratio,
    unit.WATTS: watts,
    unit.JOULES: partial(amount, unit="J"),
    unit.HERTZ: amount,
    unit.BYTES_PER_S: amount,
    unit.BYTES_PER_S_OF_PEAK: amount,
    unit.FLOPS_PER_S: amount,
    unit.TOKENS_PER_J: figure,
    unit.TOKENS_PER_S: rate,
    unit.PER_S: rate,
    unit.SEQUENCES: rate,
    unit.TOKENS: count,
    unit.REQUESTS: whole,
    unit.SECONDS: seconds,
    unit.CELSIUS: celsius,
    unit.BYTES: memory,
}
"""Unit -> its writer, for at most 5 cells."""


def writer(row: Figure) -> Callable[[Reading], str]:
    """The function that writes values of a figure, or why one is missing. Raises KeyError for an unknown unit."""
    write = _WRITERS[row.unit]
    return two_digits if write is amount and row.digits < 3 else write
