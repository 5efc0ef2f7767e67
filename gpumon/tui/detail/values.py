"""Figures in full: a number of a steady width and its unit, for a page that has room."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.readings.prices import KWH_J
from gpumon.tui.table import local_time_of
from gpumon.tui.view import View

WrittenFigure = tuple[str, str]
"""A number and its unit."""
Write = Callable[[float], WrittenFigure]

_LARGE: Final = ("", "k", "M", "G", "T", "P", "E")
_SMALL: Final = ("", "m", "u", "n")
_DAY_S: Final = 86400.0
_ENGINEERING: Final = 1e-9
"""Least number that is written with a prefix of its own."""
NUMBER_CELLS: Final = 9
"""Cells that a number takes at most."""
_PLACES: Final = 6
"""Decimals of the smallest number that is written without a prefix."""


def four_digits(value: float) -> str:
    """Four four_digits of a number from 0 to 1000, `1.234` to `999.9`: five cells."""
    decimals = 1
    if value < 9.9995:
        decimals = 3
    elif value < 99.995:
        decimals = 2
    return f"{value:.{decimals}f}"


def with_prefix(value: float, unit: str) -> WrittenFigure:
    """Four four_digits, and the unit with a decimal prefix: `2.310`, `TB/s`."""
    if 0.0 < value < _ENGINEERING:
        return "<1.000", _SMALL[-1] + unit
    step = 0
    if _ENGINEERING <= value < 0.99995:
        while value < 0.99995 and step < len(_SMALL) - 1:
            value *= 1000.0
            step += 1
        return four_digits(value), _SMALL[step] + unit
    while value >= 999.95 and step < len(_LARGE) - 1:
        value /= 1000.0
        step += 1
    if value >= 999.95:
        return ">999.9", _LARGE[step] + unit
    return four_digits(value), _LARGE[step] + unit


def with_decimals(value: float, decimals: int, unit: str, *, prefixes: bool = True) -> WrittenFigure:
    """A number with that many decimals: `2,074.4`; more of them where only zeros would be left of it: `0.0031`.

    Fewer where it is longer than `NUMBER_CELLS`, then a prefix to the unit, where it can have one.
    """
    text = f"{value:,.{decimals}f}"
    if value > 0.0 and float(f"{value:.{decimals}f}") == 0.0:
        if value < 10.0**-_PLACES:
            return f"<{10.0**-_PLACES:.{_PLACES}f}", unit
        return f"{value:.{min(_PLACES, 1 - math.floor(math.log10(value)))}f}", unit
    while len(text) > NUMBER_CELLS and decimals > 0:
        decimals -= 1
        text = f"{value:,.{decimals}f}"
    if len(text) <= NUMBER_CELLS:
        return text, unit
    if prefixes:
        return with_prefix(value, unit)
    return (">" + "9" * (NUMBER_CELLS - 2), unit)


def percent(value: float) -> WrittenFigure:
    """A share: `31.24`, `%`; above 100 % marked."""
    return with_decimals(value * 100.0, 2, "%!" if value > 1.0 else "%", prefixes=False)


def bounds_text(least: float, most: float) -> str:
    """Shares between which a third one lies, in percent: `83–91`; one number where they are equal."""
    low = f"{least * 100.0:.3g}"
    high = f"{most * 100.0:.3g}"
    return low if low == high else f"{low}–{high}"


def kilowatt_hours(joules_drawn: float) -> WrittenFigure:
    """Energy: `12.481`, `kWh`."""
    return with_decimals(joules_drawn / KWH_J, 3, "kWh")


def seconds(value: float) -> WrittenFigure:
    """A time: `24.12`, `ms`."""
    if value <= 0.0:
        return "0.000", "s"
    if value < 999.95:
        return with_prefix(value, "s")
    return with_decimals(value, 0, "s")


flop_rate: Final = partial(with_prefix, unit="FLOP/s")
flop_count: Final = partial(with_prefix, unit="FLOP")
traffic: Final = partial(with_prefix, unit="B/s")
size: Final = partial(with_prefix, unit="B")
joules: Final = partial(with_prefix, unit="J")
flops_per_joule: Final = partial(with_prefix, unit="FLOP/J")
tokens_per_joule: Final = partial(with_decimals, decimals=3, unit="tok/J")
token_rate: Final = partial(with_decimals, decimals=1, unit="tok/s")
plain_seconds: Final = partial(with_decimals, decimals=1, unit="s")
rate: Final = partial(with_decimals, decimals=2, unit="/s")
money: Final = partial(with_decimals, decimals=2, unit="")
money_per_hour: Final = partial(with_decimals, decimals=2, unit="per h")
hours: Final = partial(with_decimals, decimals=2, unit="h")
tokens: Final = partial(with_decimals, decimals=0, unit="tok")
mean_tokens: Final = partial(with_decimals, decimals=2, unit="tok")
whole: Final = partial(with_decimals, decimals=0, unit="")
sequences: Final = partial(with_decimals, decimals=1, unit="seq")
watts: Final = partial(with_decimals, decimals=1, unit="W")


def on_off(value: float) -> WrittenFigure:
    """A switch."""
    if value:
        return "on", ""
    return "off", ""


def parameters(value: float) -> WrittenFigure:
    """A number of parameters, in 1e9."""
    return with_decimals(value / 1e9, 3, "billion", prefixes=False)


def megahertz(value: float) -> WrittenFigure:
    """A clock."""
    return with_decimals(value / 1e6, 0, "MHz", prefixes=False)


def memory(view: View) -> Write:
    """Bytes of VRAM in the unit that the user wants."""
    return lambda value: with_decimals(value / view.memory_bytes, 2, view.memory_unit, prefixes=False)


def temperature(view: View) -> Write:
    """Whole degrees in the unit that the user wants: near 0 they are no small amount."""
    factor, offset, unit = (1.8, 32.0, "°F") if view.fahrenheit else (1.0, 0.0, "°C")
    return lambda value: with_decimals(float(round(value * factor + offset)), 0, unit, prefixes=False)


def figure_text(written: WrittenFigure) -> str:
    """A figure inside a sentence or a formula."""
    return " ".join(written).rstrip()


def known_numbers(*readings: Reading) -> tuple[float, ...] | None:
    """All numbers of a formula; None where one is missing or none."""
    values = tuple(value for value in readings if not isinstance(value, Missing) and math.isfinite(value))
    if len(values) == len(readings):
        return values
    return None


def is_above_one(ratio: Reading) -> bool:
    """Whether a share is known and above 100 %."""
    return not isinstance(ratio, Missing) and ratio > 1.0


def formula_text(template: str, *parts: tuple[Reading, Write]) -> str:
    """`{} x {}` with the numbers put in; empty where one is missing."""
    numbers = known_numbers(*(reading for reading, _ in parts))
    if numbers is None:
        return ""
    return template.format(*(figure_text(write(number)) for number, (_, write) in zip(numbers, parts, strict=True)))


class ShownTime(NamedTuple):
    """A time as a person reads it, and how long ago that was, in seconds."""

    clock: str
    ago_s: float


def shown_time_of_rfc3339(rfc3339: str, now_s: float) -> ShownTime | None:
    """An RFC 3339 time on the local clock; None where it is none."""
    when = local_time_of(rfc3339)
    if when is None:
        return None
    return shown_time(when.timestamp(), now_s)


def shown_time(wall_s: float, now_s: float) -> ShownTime:
    """A Unix time on the local clock, with its date once it is a day old."""
    ago_s = max(0.0, now_s - wall_s)
    if ago_s >= _DAY_S:
        form = "%d %b %H:%M"
    else:
        form = "%H:%M:%S"
    return ShownTime(datetime.fromtimestamp(wall_s).astimezone().strftime(form), ago_s)


def duration_text(duration_s: float) -> str:
    """How long something lasts or lasted: `0.4 s`, `14 s`, `3 min`, `2.5 h`, `4 days`."""
    if duration_s < 10.0:
        return f"{duration_s:.1f} s"
    if duration_s < 120.0:
        return f"{duration_s:.0f} s"
    if duration_s < 7200.0:
        return f"{duration_s / 60.0:.0f} min"
    if duration_s < 2 * _DAY_S:
        return f"{duration_s / 3600.0:.1f} h"
    return f"{duration_s / _DAY_S:.0f} days"
