"""Kinds of numbers that the sizing panel lets people type: units, ranges, steps, and how a value is shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"([+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+))(?:e([+-]?[0-9]+))?\s*(\D*)", re.IGNORECASE)
_THOUSANDS: Final = {"k": 1e3, "m": 1e6}
_MOST: Final = 1e15
_MOST_POWER: Final = 30
"""Powers of ten beyond which a number is taken for infinite, or for 0."""


class NumberKind(NamedTuple):
    """One way of writing numbers. `unit` is the factor from what is typed to the unit of the field."""

    name: str
    """An example of what may be typed."""
    sign: str = ""
    """Shown behind the number."""
    unit: float = 1.0
    units: Mapping[str, float] = {}
    """Unit that may be typed behind it -> its factor, in the unit that is typed."""
    whole: bool = False
    least: float = 0.0
    open: bool = False
    """`least` itself is not allowed."""
    most: float = math.inf
    step: float = 0.0
    """Fixed step, as typed; 0: a tenth, rounded."""

    @property
    def allowed(self) -> str:
        """The values that are allowed and an example: `above 0 % up to 100 %, such as 80, in percent`."""
        low = self.shown(self.least)
        if self.most < math.inf:
            if self.open:
                begin = f"above {low}"
            else:
                begin = f"from {low}"
            numbers = f"{begin} up to {self.shown(self.most)}"
        else:
            if self.open:
                numbers = f"above {low}"
            else:
                numbers = f"{low} or more"
        if self.whole:
            whole = "whole numbers, "
        else:
            whole = ""
        return f"{whole}{numbers}, {self.name}"

    def read(self, text: str) -> float:
        """A typed text as the field's value. Raises ValueError with the reason in a few words."""
        text = text.strip()
        parts = _NUMBER.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text} is no number")
        unit = parts[3].strip().lower()
        if unit and unit not in self.units and unit != self.sign.lower():
            raise ValueError(f"{text} is no number")
        number = float(parts[1].replace(",", "."))
        value = _times_power(number, int(parts[2] or 0)) * self.units.get(unit, 1.0)
        if value > _MOST:
            raise ValueError("that is too large a number")
        return self._checked(value)

    def _checked(self, typed: float) -> float:
        value = typed * self.unit
        if self.whole and value != math.floor(value):
            raise ValueError("must be a whole number")
        if self.open and value <= self.least:
            raise ValueError(f"must be above {self.shown(self.least)}")
        if value < self.least:
            raise ValueError(f"must be at least {self.shown(self.least)}")
        if value > self.most:
            raise ValueError(f"must be at most {self.shown(self.most)}")
        if self.whole:
            return int(value)
        return float(f"{value:.12g}")

    def typed(self, value: float) -> str:
        """A value as it may be typed: nothing is rounded away."""
        return f"{value / self.unit:.12g}"

    def shown(self, value: float) -> str:
        """A value as a person reads it."""
        number = value / self.unit
        if not math.isfinite(number):
            return "–"
        if abs(number) >= 1000:
            text = f"{number:,.0f}"
        else:
            text = f"{number:.4g}"
        return f"{text} {self.sign}".rstrip()

    def stepped(self, value: float, direction: int) -> float:
        """The next round value above (1) or below (-1); the value itself where there is none that is allowed."""
        number = value / self.unit
        step = self.step or max(round_step(number), 1.0 if self.whole else 0.0)
        here = number / step
        if direction > 0:
            steps = math.floor(here + 1e-9) + 1
        else:
            steps = math.ceil(here - 1e-9) - 1
        try:
            return self._checked(float(f"{steps * step:.12g}"))
        except ValueError:
            return value


def _times_power(number: float, power: int) -> float:
    """A number times a power of ten; powers that no figure has are infinite or 0."""
    if abs(power) <= _MOST_POWER:
        return number * 10.0**power
    return math.inf if power > 0 else 0.0


def round_step(number: float) -> float:
    """About a tenth of a number: 1, 2 or 5 times a power of ten. From 1 on never less than 1."""
    tenth = abs(number) / 10.0
    if tenth < 1e-9:
        return 1.0
    power = 10.0 ** math.floor(math.log10(tenth) + 1e-9)
    step = next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= tenth * 0.75)
    if abs(number) >= 1.0:
        return max(1.0, step)
    return step


REQUESTS: Final = NumberKind("such as 512 or 1.5k", units=_THOUSANDS)
CAPACITY: Final = NumberKind("such as 24", units=_THOUSANDS, least=1.0)
COUNT: Final = NumberKind("such as 4", whole=True, least=1.0)
NUMBER: Final = NumberKind("such as 0 or 1", whole=True)
TOKENS: Final = NumberKind("such as 2000 or 4k", units=_THOUSANDS, open=True)
SECONDS: Final = NumberKind("such as 30, in seconds", "s", units={"ms": 1e-3, "min": 60.0})
GOAL: Final = NumberKind("such as 40, in ms, or 1.5 s", "ms", units={"s": 1e3}, open=True)
GB: Final = NumberKind("such as 44.8, in GB (1e9)", "GB", units={"tb": 1e3, "gib": 1.073741824}, open=True)
SHARE: Final = NumberKind("such as 80, in percent", "%", unit=0.01, open=True, most=1.0, step=5.0)
ANY_SHARE: Final = NumberKind("such as 20, in percent", "%", unit=0.01, most=1.0, step=5.0)
MONEY: Final = NumberKind("such as 2.49 an hour")
WATTS: Final = NumberKind("such as 650, in W", "W", units={"kw": 1e3}, open=True)
RATIO: Final = NumberKind("such as 1.2", least=1.0)
