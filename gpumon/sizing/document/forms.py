"""Figures with their units, names and counts: what the rows of a plan are written with; an unknown one is empty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean

_LONGEST_TEXT: Final = 400
"""Characters of one text from a file or an engine."""
_LONGEST_NAME: Final = 80
"""Characters of a name from a file or an engine."""
_BYTES: Final = ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"))
"""Bytes of a unit, and its name; the largest first."""
_WATTS: Final = ((1e9, "GW"), (1e6, "MW"), (1e3, "kW"))
"""Watts of a unit, and its name; the largest first."""
# A threshold lies half a last digit below the round number: 99.97 is written `100`, not `100.0`.
_PLAIN_BELOW: Final = 1e15
"""A figure from there on is written in powers of ten."""
_WHOLE_FROM: Final = 99.95
"""A figure from there on has no decimals."""
_ONE_DECIMAL_FROM: Final = 99.995
"""A size from there on has one decimal, below it two."""
_UNIT_FROM: Final = 0.99995
"""Part of a unit from which on a figure is written in it."""
_KILOWATTS_FROM: Final = 9999.5
"""Watts from there on are written as kilowatts."""
_TWO_DECIMALS_FROM: Final = 0.1
"""A sum of money from there on has two decimals, below it two digits."""


def figure_text(value: Reading) -> str:
    """A figure without decimals where it is whole or above 100, else in three digits: `24`, `1,024`, `0.5`, `85.5`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return ""
    needs_no_decimals = value == round(value) or abs(value) >= _WHOLE_FROM
    if needs_no_decimals and abs(value) < _PLAIN_BELOW:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def gigabytes(value: Reading) -> str:
    """Bytes in GB (1e9), TB, PB or EB: `12.41 GB`, `556.6 GB`, `1.25 TB`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return ""
    size, unit = _in_unit(value, _BYTES)
    if size >= _PLAIN_BELOW:
        return f"{size:.3g} {unit}"
    if size < _ONE_DECIMAL_FROM:
        return f"{size:,.2f} {unit}"
    return f"{size:,.1f} {unit}"


def _in_unit(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The value in the largest unit of which it is at least one, else in the smallest, and that unit."""
    for scale, unit in units:
        if value >= _UNIT_FROM * scale:
            return value / scale, unit
    scale, unit = units[-1]
    return value / scale, unit


def amount_of_money(value: Reading) -> str:
    """A sum in the user's currency: `19.92`, `0.0042`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return ""
    if value == 0 or _TWO_DECIMALS_FROM <= value < _PLAIN_BELOW:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def watts(value: Reading) -> str:
    """Watts in the unit that suits them: `2,800 W`, `12.3 kW`, `1.5 MW`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return ""
    if value < _KILOWATTS_FROM:
        return f"{value:,.0f} W"
    power, unit = _in_unit(value, _WATTS)
    if value < _PLAIN_BELOW:  # the watts: gigawatts are the largest unit, and their number grows without end
        return f"{power:,.1f} {unit}"
    return f"{power:.3g} {unit}"


def seconds_text(value: Reading) -> str:
    """A latency: `24ms`, `1.2s`; below a millisecond `0.4ms`."""
    text = "" if isinstance(value, Missing) else human.seconds(value)
    return "" if text == human.DASH else text


def with_words(figure: str, before: str = "", behind: str = "") -> str:
    """The text of a figure with words around it; of an unknown figure there are no words either."""
    return f"{before}{figure}{behind}" if figure else ""


def join_known(parts: Iterable[str], between: str = ", ") -> str:
    """The parts that say something, with `between` them."""
    return between.join(filter(None, parts))


def count_text(value: Reading, noun: str) -> str:
    """A number of things, in the plural unless it is one: `1 GPU`, `24 GPUs`."""
    if value == 1.0:
        return f"{figure_text(value)} {noun}"
    return f"{figure_text(value)} {noun}s"


def printable_text(text: str) -> str:
    """A sentence with parts from a file or an engine, cut and safe to print."""
    return clean(text, _LONGEST_TEXT)


def printable_name(name: str) -> str:
    """A name from a file or an engine, cut and safe to print."""
    return clean(name, _LONGEST_NAME)
