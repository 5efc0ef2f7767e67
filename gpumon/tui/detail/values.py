"""Figures in full: a number of a steady width and its unit, for a page that has room."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from gpumon.readings.missing import Missing, Reading
from gpumon.tui.table import moment as local_time
from gpumon.tui.view import View

Written = tuple[str, str]
"""A number and its unit."""
Write = Callable[[float], Written]

_LARGE: Final = ("", "k", "M", "G", "T", "P", "E")
_SMALL: Final = ("", "m", "u", "n")
_DAY_S: Final = 86400.0
_ENGINEERING: Final = 1e-9
"""Least number that is written with a prefix of its own."""
NUMBER: Final = 9
"""Cells that a number takes at most."""
_PLACES: Final = 6
"""Decimals of the smallest number that is written without a prefix."""


def digits(value: float) -> str:
    """Four digits of a number from 0 to 1000, `1.234` to `999.9`: five cells."""
    return f"{value:.{3 if value < 9.9995 else 2 if value < 99.995 else 1}f}"


def prefixed(value: float, unit: str) -> Written:
    """Four digits, and the unit with a decimal prefix: `2.310`, `TB/s`."""
    if value != 0.0 and value < 0.99995 and value >= _ENGINEERING:
        at = 0
        while value < 0.99995 and at < len(_SMALL) - 1:
            value, at = value * 1000.0, at + 1
        return digits(value), _SMALL[at] + unit
    if 0.0 < value < _ENGINEERING:
        return "<1.000", _SMALL[-1] + unit
    at = 0
    while value >= 999.95 and at < len(_LARGE) - 1:
        value, at = value / 1000.0, at + 1
    return digits(value) if value < 999.95 else ">999.9", _LARGE[at] + unit


def plain(value: float, decimals: int, unit: str, *, prefixes: bool = True) -> Written:
    """A number with that many decimals: `2,074.4`; more of them where only zeros would be left of it: `0.0031`.

    Fewer where it is longer than `NUMBER`, then a prefix to the unit, where it can have one.
    """
    text = f"{value:,.{decimals}f}"
    if value > 0.0 and float(f"{value:.{decimals}f}") == 0.0:
        if value < 10.0**-_PLACES:
            return f"<{10.0**-_PLACES:.{_PLACES}f}", unit
        return f"{value:.{min(_PLACES, 1 - math.floor(math.log10(value)))}f}", unit
    while len(text) > NUMBER and decimals > 0:
        decimals -= 1
        text = f"{value:,.{decimals}f}"
    if len(text) <= NUMBER:
        return text, unit
    return prefixed(value, unit) if prefixes else (">" + "9" * (NUMBER - 2), unit)


def percent(value: float) -> Written:
    """A share: `31.24`, `%`; above 100 % marked."""
    return plain(value * 100.0, 2, "%!" if value > 1.0 else "%", prefixes=False)


def flops(value: float) -> Written:
    """FLOP/s."""
    return prefixed(value, "FLOP/s")


def flop(value: float) -> Written:
    """An amount of arithmetic."""
    return prefixed(value, "FLOP")


def traffic(value: float) -> Written:
    """Bytes per second, decimal as data sheets have them."""
    return prefixed(value, "B/s")


def size(value: float) -> Written:
    """Bytes, decimal as data sheets have them."""
    return prefixed(value, "B")


def seconds(value: float) -> Written:
    """A time: `24.12`, `ms`."""
    return ("0.000", "s") if value <= 0.0 else prefixed(value, "s") if value < 999.95 else plain(value, 0, "s")


def joules(value: float) -> Written:
    """An energy."""
    return prefixed(value, "J")


def flops_per_joule(value: float) -> Written:
    """Arithmetic per energy."""
    return prefixed(value, "FLOP/J")


def tokens_per_joule(value: float) -> Written:
    """Tokens per energy."""
    return plain(value, 3, "tok/J")


def token_rate(value: float) -> Written:
    """Tokens per second."""
    return plain(value, 1, "tok/s")


def plain_seconds(value: float) -> Written:
    """A time that is added up: always in seconds."""
    return plain(value, 1, "s")


def rate(value: float) -> Written:
    """Anything else per second."""
    return plain(value, 2, "/s")


def tokens(value: float) -> Written:
    """A number of tokens."""
    return plain(value, 0, "tok")


def mean_tokens(value: float) -> Written:
    """A mean number of tokens."""
    return plain(value, 2, "tok")


def parameters(value: float) -> Written:
    """A number of parameters, in 1e9."""
    return plain(value / 1e9, 3, "billion", prefixes=False)


def whole(value: float) -> Written:
    """A number of things."""
    return plain(value, 0, "")


def sequences(value: float) -> Written:
    """A mean number of sequences."""
    return plain(value, 1, "seq")


def watts(value: float) -> Written:
    """Power."""
    return plain(value, 1, "W")


def megahertz(value: float) -> Written:
    """A clock."""
    return plain(value / 1e6, 0, "MHz", prefixes=False)


def memory(view: View) -> Write:
    """Bytes of VRAM in the unit that the user wants."""
    return lambda value: plain(value / view.memory_bytes, 2, view.memory_unit, prefixes=False)


def temperature(view: View) -> Write:
    """Degrees in the unit that the user wants."""
    if view.fahrenheit:
        return lambda value: _degrees(value * 1.8 + 32.0, "°F")
    return lambda value: _degrees(value, "°C")


def _degrees(value: float, unit: str) -> Written:
    """Whole degrees: near 0 they are no small amount."""
    return plain(float(round(value)), 0, unit, prefixes=False)


def said(written: Written) -> str:
    """A figure inside a sentence or a formula."""
    return " ".join(written).rstrip()


def known(*readings: Reading) -> tuple[float, ...] | None:
    """All numbers of a formula; None where one is missing or none."""
    values = tuple(value for value in readings if not isinstance(value, Missing) and math.isfinite(value))
    return values if len(values) == len(readings) else None


class Moment(NamedTuple):
    """A time as a person reads it, and how long ago that was, in seconds."""

    clock: str
    ago_s: float


def moment(rfc3339: str, now_s: float) -> Moment | None:
    """An RFC 3339 time on the local clock; None where it is none."""
    when = local_time(rfc3339)
    return None if when is None else moment_of(when.timestamp(), now_s)


def moment_of(wall_s: float, now_s: float) -> Moment:
    """A Unix time on the local clock, with its date once it is a day old."""
    ago_s = max(0.0, now_s - wall_s)
    form = "%d %b %H:%M" if ago_s >= _DAY_S else "%H:%M:%S"
    return Moment(datetime.fromtimestamp(wall_s).astimezone().strftime(form), ago_s)


def lasting(seconds_: float) -> str:
    """How long something lasts or lasted: `0.4 s`, `14 s`, `3 min`, `2.5 h`, `4 days`."""
    if seconds_ < 10.0:
        return f"{seconds_:.1f} s"
    if seconds_ < 120.0:
        return f"{seconds_:.0f} s"
    if seconds_ < 7200.0:
        return f"{seconds_ / 60.0:.0f} min"
    return f"{seconds_ / 3600.0:.1f} h" if seconds_ < 2 * _DAY_S else f"{seconds_ / _DAY_S:.0f} days"
