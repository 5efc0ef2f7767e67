"""Prices of GPU-hours and of energy, as the config gives them: the one place where hours and joules become money."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Final

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason

NO_PRICE: Final = Missing(Reason.NO_PRICE)
NO_ENERGY_PRICE: Final = Missing(Reason.NO_ENERGY_PRICE)
KWH_J: Final = 3.6e6
"""Joules of a kWh."""
DAY_MINUTES: Final = 1440
HOURS_FORM: Final = 'must be hours of the day, HH:MM-HH:MM, such as "22:00-06:00"'
"""Problem of a text that is no hours of the day."""
_HOURS_PATTERN: Final = re.compile(r"(\d{1,2}:\d\d)\s*-\s*(\d{1,2}:\d\d)")


class DayHours(msgspec.Struct, frozen=True):
    """A stretch of every day, in minutes of the local time; it may go over midnight."""

    begin_minute: int
    end_minute: int
    """The first minute behind it."""

    def covers(self, minute: int) -> bool:
        """Whether a minute of the day is in it."""
        if self.begin_minute < self.end_minute:
            return self.begin_minute <= minute < self.end_minute
        # Over midnight.
        return minute >= self.begin_minute or minute < self.end_minute


class EnergyPrice(msgspec.Struct, frozen=True):
    """Price of a kWh at some hours of the day."""

    hours: DayHours
    per_kwh: float


class Prices(msgspec.Struct, frozen=True):
    """Prices in the currency of the user. What has no price has no cost, never a cost of 0."""

    per_gpu_hour: Mapping[str, float] = MappingProxyType({})
    """Catalogue name of a GPU -> price of one hour; under "" that of all others."""
    per_kwh: float | None = None
    """Price of a kWh at all hours that `by_hours` does not name."""
    by_hours: tuple[EnergyPrice, ...] = ()

    def per_kwh_at(self, wall_s: float) -> Reading:
        """Price of a kWh at a moment (Unix time)."""
        if self.by_hours:
            local = datetime.fromtimestamp(wall_s, timezone.utc).astimezone()
            minute = local.hour * 60 + local.minute
            for price in self.by_hours:
                if price.hours.covers(minute):
                    return price.per_kwh
        if self.per_kwh is None:
            return NO_ENERGY_PRICE
        return self.per_kwh


FREE: Final = Prices()
"""No price of anything."""


def price_of_hour(gpu_type: str, per_gpu_hour: Mapping[str, float]) -> Reading:
    """Price of one hour of a GPU by its catalogue name; empty: one that is not in the catalogue."""
    price = per_gpu_hour.get(gpu_type, per_gpu_hour.get(""))
    if price is None:
        return NO_PRICE
    return price


def parse_hours(text: str) -> DayHours:
    """Read `22:00-06:00`. Raises ValueError, whose text ends a sentence that begins with the setting and its value."""
    words = _HOURS_PATTERN.fullmatch(text.strip())
    if words is None:
        raise ValueError(HOURS_FORM)
    begin = minute_of_day(words[1])
    end = minute_of_day(words[2])
    if begin == end:
        raise ValueError("begins and ends at the same minute: for the whole day set kwh alone")
    return DayHours(begin, end)


def minute_of_day(text: str) -> int:
    """The minute of the day of `HH:MM`; 24:00 is 00:00. Raises ValueError."""
    hours, _, minutes = text.partition(":")
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > DAY_MINUTES:
        raise ValueError("has hours that are none: 00:00 to 24:00")
    return minute % DAY_MINUTES
