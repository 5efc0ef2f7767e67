"""Kinds of numbers that the sizing panel lets people type: units, ranges, steps, and how a value is shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+))(?:e([+-]?[0-9]+))?\s*(\D*)", re.IGNORECASE)
"""A number with a point or a comma, its power of ten, and its unit."""
_BEGUN_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]*[.,]?[0-9]*(?:e[+-]?[0-9]*)?\s*([^\d\s]*)\s*")
"""The begin of such a number, as far as it is typed; a capital E is a command."""
_THOUSANDS: Final = {"k": 1e3, "m": 1e6}
_LARGEST_NUMBER: Final = 1e15
"""Numbers above this are refused: no load, size or price is as large."""
_MOST_POWER: Final = 30
"""Powers of ten beyond which a number is taken for infinite, or for 0: larger ones overflow."""
_DIGITS: Final = 12
"""Digits of a value that are kept: 0.1 + 0.2 is 0.3."""
_TOLERANCE: Final = 1e-9
"""How near to a whole number of steps a value counts as one."""
_LEAST_TENTH: Final = 1e-9
"""Tenths of a number below which it is stepped by 1, as 0 is."""


class NumberKind(NamedTuple):
    """One way of writing numbers."""

    example: str
    """An example of what may be typed."""
    sign: str = ""
    """The unit that is shown behind the number."""
    unit: float = 1.0
    """Factor from the number that is typed and shown to the field's value: 0.01 for percent."""
    units: Mapping[str, float] = {}
    """Unit that may be typed behind the number -> its factor to the unit that is shown."""
    whole: bool = False
    """Whether fractions are refused."""
    least: float = 0.0
    """Least value of the field."""
    above_least: bool = False
    """Whether `least` itself is not allowed."""
    most: float = math.inf
    """Largest value of the field."""
    step: float = 0.0
    """Fixed step, as typed; 0: about a tenth of the number."""

    @property
    def allowed(self) -> str:
        """The values that are allowed and an example: `above 0% up to 100%, such as 80, in percent`."""
        has_end = self.most < math.inf
        least = self.shown(self.least)
        if self.above_least:
            begin = f"above {least}"
        elif has_end:
            begin = f"from {least}"
        else:
            begin = f"{least} or more"
        end = f" up to {self.shown(self.most)}" if has_end else ""
        whole = "whole numbers, " if self.whole else ""
        return f"{whole}{begin}{end}, {self.example}"

    def may_become_number(self, text: str) -> bool:
        """Whether a text is a number or the begin of one: its end may be a part of a unit."""
        parts = _BEGUN_NUMBER.fullmatch(text)
        if parts is None:
            return False
        begun_unit = parts[1].lower()
        return any(unit.startswith(begun_unit) for unit in (self.sign.lower(), *self.units))

    def read(self, text: str) -> float:
        """The field's value of a typed text. Raises ValueError with the reason in a few words."""
        text = text.strip()
        parts = _NUMBER.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text} is no number")
        unit = parts[3].strip().lower()
        if unit and unit not in self.units and unit != self.sign.lower():
            raise ValueError(f"{text} is no number")
        number = float(parts[1].replace(",", "."))
        power = int(parts[2] or 0)
        typed = _times_power(number, power) * self.units.get(unit, 1.0)
        if typed > _LARGEST_NUMBER:
            raise ValueError("that is too large a number")
        return self._value_of(typed)

    def _value_of(self, typed: float) -> float:
        """The field's value of a typed number. Raises ValueError if it is not allowed."""
        value = typed * self.unit
        if self.whole and value != math.floor(value):
            raise ValueError("must be a whole number")
        if self.above_least and value <= self.least:
            raise ValueError(f"must be above {self.shown(self.least)}")
        if value < self.least:
            raise ValueError(f"must be at least {self.shown(self.least)}")
        if value > self.most:
            raise ValueError(f"must be at most {self.shown(self.most)}")
        if self.whole:
            return int(value)
        return _rounded(value)

    def typed(self, value: float) -> str:
        """A value as it may be typed, with all digits that are kept."""
        return f"{value / self.unit:.{_DIGITS}g}"

    def shown(self, value: float) -> str:
        """A value as a person reads it."""
        number = value / self.unit
        if not math.isfinite(number):
            return "–"
        text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
        return text + self.sign if self.sign == "%" else f"{text} {self.sign}".rstrip()

    def stepped(self, value: float, direction: int) -> float:
        """The next round value above (1) or below (-1); the value itself where there is none that is allowed."""
        number = value / self.unit
        step = self.step or round_step(number)
        if self.whole:
            step = max(step, 1.0)
        steps = number / step
        next_steps = math.floor(steps + _TOLERANCE) + 1 if direction > 0 else math.ceil(steps - _TOLERANCE) - 1
        try:
            return self._value_of(_rounded(next_steps * step))
        except ValueError:
            return value


def _rounded(value: float) -> float:
    """A value without the digits that only the arithmetic of floats has."""
    return float(f"{value:.{_DIGITS}g}")


def _times_power(number: float, power: int) -> float:
    """A number times a power of ten; powers that no figure has are infinite or 0."""
    if abs(power) <= _MOST_POWER:
        return number * 10.0**power
    return math.inf if power > 0 else 0.0


def round_step(number: float) -> float:
    """About a tenth of a number: 1, 2 or 5 times a power of ten; for numbers from 1 on at least 1."""
    tenth = abs(number) / 10.0
    if tenth < _LEAST_TENTH:
        return 1.0
    power = 10.0 ** math.floor(math.log10(tenth) + _TOLERANCE)
    # The smallest that is no less than three quarters of the tenth: 60 is stepped by 5, 70 by 10.
    step = next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= tenth * 0.75)
    if abs(number) >= 1.0:
        return max(1.0, step)
    return step


REQUESTS: Final = NumberKind("such as 512 or 1.5k", units=_THOUSANDS)
CAPACITY: Final = NumberKind("such as 24", units=_THOUSANDS, least=1.0)
COUNT: Final = NumberKind("such as 4", whole=True, least=1.0)
NUMBER: Final = NumberKind("such as 0 or 1", whole=True)
TOKENS: Final = NumberKind("such as 2000 or 4k", units=_THOUSANDS, above_least=True)
SECONDS: Final = NumberKind("such as 30, in seconds", "s", units={"ms": 1e-3, "min": 60.0})
GOAL: Final = NumberKind("such as 40, in ms, or 1.5 s", "ms", units={"s": 1e3}, above_least=True)
GB: Final = NumberKind("such as 44.8, in GB (1e9)", "GB", units={"tb": 1e3, "gib": 1.073741824}, above_least=True)
SHARE: Final = NumberKind("such as 80, in percent", "%", unit=0.01, above_least=True, most=1.0, step=5.0)
ANY_SHARE: Final = NumberKind("such as 20, in percent", "%", unit=0.01, most=1.0, step=5.0)
MONEY: Final = NumberKind("such as 2.49 an hour")
WATTS: Final = NumberKind("such as 650, in W", "W", units={"kw": 1e3}, above_least=True)
RATIO: Final = NumberKind("such as 1.2", least=1.0)
