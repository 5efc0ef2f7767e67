"""Figures in full: a number of a steady width and its unit, for a page that has room."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.readings.prices import KWH_J
from gpumon.specs.units import DAY_S
from gpumon.tui.table import local_time_of
from gpumon.tui.view import View

WrittenFigure = tuple[str, str]
"""A number and its unit."""
Write = Callable[[float], WrittenFigure]

_PREFIXES_UP: Final = ("", "k", "M", "G", "T", "P", "E")
"""Prefixes of 1000, 1000**2 and so on."""
_PREFIXES_DOWN: Final = ("", "m", "u", "n")
"""Prefixes of 1/1000, 1/1000**2 and so on."""
_ROUNDS_TO_1: Final = 0.99995
_ROUNDS_TO_10: Final = 9.9995
_ROUNDS_TO_100: Final = 99.995
_ROUNDS_TO_1000: Final = 999.95
"""Least numbers that four digits round up to 1.000, 10.00, 100.0 and 1000: from there on they have a decimal less, or
the next prefix."""
_LEAST_PREFIXED: Final = 1e-9
"""Least number that is written with a prefix: that of the last of `_PREFIXES_DOWN`."""
NUMBER_CELLS: Final = 9
"""Cells that a number takes at most."""
NO_FIGURES: Final = "no figures yet"
"""Stands for a `load_text` that is empty."""
_MOST_DECIMALS: Final = 6
"""Decimals of the smallest number that is written without a prefix."""


def four_digits(value: float) -> str:
    """Four digits of a number from 0 to 1000, `1.234` to `999.9`: five cells."""
    decimals = 1
    if value < _ROUNDS_TO_10:
        decimals = 3
    elif value < _ROUNDS_TO_100:
        decimals = 2
    return f"{value:.{decimals}f}"


def with_prefix(value: float, unit: str) -> WrittenFigure:
    """Four digits, and the unit with a decimal prefix: `2.310`, `TB/s`."""
    if 0.0 < value < _LEAST_PREFIXED:
        return "<1.000", _PREFIXES_DOWN[-1] + unit
    step = 0
    if _LEAST_PREFIXED <= value < _ROUNDS_TO_1:
        while value < _ROUNDS_TO_1 and step < len(_PREFIXES_DOWN) - 1:
            value *= 1000.0
            step += 1
        return four_digits(value), _PREFIXES_DOWN[step] + unit
    while value >= _ROUNDS_TO_1000 and step < len(_PREFIXES_UP) - 1:
        value /= 1000.0
        step += 1
    if value >= _ROUNDS_TO_1000:
        return ">999.9", _PREFIXES_UP[step] + unit
    return four_digits(value), _PREFIXES_UP[step] + unit


def with_decimals(value: float, decimals: int, unit: str, *, prefixes: bool = True) -> WrittenFigure:
    """A number with so many decimals: `2,074.4`; with more where only zeros would be left of it: `0.0031`.

    A number longer than `NUMBER_CELLS` gets fewer decimals, then a prefix to its unit if `prefixes`.
    """
    text = f"{value:,.{decimals}f}"
    if value > 0.0 and float(f"{value:.{decimals}f}") == 0.0:
        least = 10.0**-_MOST_DECIMALS
        if value < least:
            return f"<{least:.{_MOST_DECIMALS}f}", unit
        decimals_for_two_digits = 1 - math.floor(math.log10(value))
        return f"{value:.{min(_MOST_DECIMALS, decimals_for_two_digits)}f}", unit
    while len(text) > NUMBER_CELLS and decimals > 0:
        decimals -= 1
        text = f"{value:,.{decimals}f}"
    if len(text) <= NUMBER_CELLS:
        return text, unit
    if prefixes:
        return with_prefix(value, unit)
    return (">" + "9" * (NUMBER_CELLS - 2), unit)


def percent(value: float) -> WrittenFigure:
    """A share: `31.24`, `%`; `104.00`, `%!` where it is above 100%."""
    unit = "%!" if value > 1.0 else "%"
    return with_decimals(value * 100.0, 2, unit, prefixes=False)


def bounds_text(least: float, most: float) -> str:
    """The bounds of a share in percent: `83–91`; one number where they are equal."""
    low = f"{least * 100.0:.3g}"
    high = f"{most * 100.0:.3g}"
    if low == high:
        return low
    return f"{low}–{high}"


def kilowatt_hours(joules_drawn: float) -> WrittenFigure:
    """Energy: `12.481`, `kWh`."""
    return with_decimals(joules_drawn / KWH_J, 3, "kWh")


def seconds(value: float) -> WrittenFigure:
    """A time: `24.12`, `ms`."""
    if value <= 0.0:
        return "0.000", "s"
    if value < _ROUNDS_TO_1000:
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
per_request: Final = partial(with_decimals, decimals=2, unit="/req")
times_mean: Final = partial(with_decimals, decimals=2, unit="x mean")
mean_tokens: Final = partial(with_decimals, decimals=2, unit="tok")
whole: Final = partial(with_decimals, decimals=0, unit="")
sequences: Final = partial(with_decimals, decimals=1, unit="seq")
watts: Final = partial(with_decimals, decimals=1, unit="W")


def on_off(value: float) -> WrittenFigure:
    """A switch: `on` unless it is 0."""
    if value:
        return "on", ""
    return "off", ""


def parameters(value: float) -> WrittenFigure:
    """A number of parameters: `70.554`, `billion`."""
    return with_decimals(value / 1e9, 3, "billion", prefixes=False)


def megahertz(value: float) -> WrittenFigure:
    """A clock of `value` Hz: `1,980`, `MHz`."""
    return with_decimals(value / 1e6, 0, "MHz", prefixes=False)


def memory(view: View) -> Write:
    """How bytes of memory are written: in the unit that the user wants."""
    return lambda value: with_decimals(value / view.memory_bytes, 2, view.memory_unit, prefixes=False)


def temperature(view: View) -> Write:
    """How degrees Celsius are written: whole, in the unit that the user wants."""
    # Rounded before they are written: 0.3 degrees are 0, and not an amount so small that it needs decimals.
    if view.fahrenheit:
        return lambda celsius: with_decimals(float(round(celsius * 1.8 + 32.0)), 0, "°F", prefixes=False)
    return lambda celsius: with_decimals(float(round(celsius)), 0, "°C", prefixes=False)


def figure_text(written: WrittenFigure) -> str:
    """A figure with its unit as one text, for a sentence or a formula."""
    number, unit = written
    return number + unit if unit.startswith("%") else f"{number} {unit}".rstrip()


def known_number(reading: Reading) -> float | None:
    """The reading as a number; None where it is missing or not finite."""
    if isinstance(reading, Missing) or not math.isfinite(reading):
        return None
    return reading


def known_numbers(*readings: Reading) -> tuple[float, ...] | None:
    """The readings as numbers; None where one of them is missing or not finite."""
    numbers = []
    for reading in readings:
        number = known_number(reading)
        if number is None:
            return None
        numbers.append(number)
    return tuple(numbers)


def is_above_one(ratio: Reading) -> bool:
    """Whether a share is known and above 100%."""
    return not isinstance(ratio, Missing) and ratio > 1.0


def formula_text(template: str, *parts: tuple[Reading, Write]) -> str:
    """A template such as `{} x {}` with the numbers put in; empty where one is missing."""
    operands = []
    for reading, write in parts:
        operand = known_number(reading)
        if operand is None:
            return ""
        operands.append(figure_text(write(operand)))
    return template.format(*operands)


def load_text(template: str, *, decode: Reading, running: Reading, waiting: Reading, kv_usage: Reading) -> str:
    """The load as far as it is known: `812.4 tok/s · running 12 · waiting 0 · KV 41.20%`; empty where it is not.

    `template`: how `decode` is written, as `decode {}`.
    """
    parts = (
        formula_text(template, (decode, token_rate)),
        formula_text("running {}", (running, whole)),
        formula_text("waiting {}", (waiting, whole)),
        formula_text("KV {}", (kv_usage, percent)),
    )
    return " · ".join(part for part in parts if part)


class ShownTime(NamedTuple):
    """A time on the local clock, as a person reads it."""

    clock: str
    """`14:05:09`, or `26 Nov 14:05` for a time at least a day ago."""
    ago_s: float
    """How long before the shown moment that was; 0 for a time after it."""


def shown_time_of_rfc3339(rfc3339: str, now_s: float) -> ShownTime | None:
    """An RFC 3339 time on the local clock; None where the text is no such time."""
    when = local_time_of(rfc3339)
    if when is None:
        return None
    return shown_time(when.timestamp(), now_s)


def shown_time(wall_s: float, now_s: float) -> ShownTime:
    """A Unix time on the local clock, with its date in place of its seconds once it is a day old at `now_s`."""
    ago_s = max(0.0, now_s - wall_s)
    form = "%d %b %H:%M" if ago_s >= DAY_S else "%H:%M:%S"
    return ShownTime(datetime.fromtimestamp(wall_s).astimezone().strftime(form), ago_s)


def duration_text(duration_s: float) -> str:
    """How long something lasts or lasted: `0.4 s`, `14 s`, `3 min`, `2.5 h`, `4 days`."""
    if duration_s < 10.0:
        return f"{duration_s:.1f} s"
    if duration_s < 120.0:
        return f"{duration_s:.0f} s"
    if duration_s < 7200.0:
        return f"{duration_s / 60.0:.0f} min"
    if duration_s < 2 * DAY_S:
        return f"{duration_s / 3600.0:.1f} h"
    return f"{duration_s / DAY_S:.0f} days"
