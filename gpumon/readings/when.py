"""Times as users write them, in a recording: `03:10`, `2026-11-22T03:10Z`, `-10m`."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, timezone
from typing import Final, NamedTuple

_LENGTH_FORM: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])")
"""A length of time: `10m`."""
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK_FORM: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
"""A time of the day."""
_DATED_FORM: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
"""A date and a time, with or without a zone."""
_EXAMPLES: Final = "03:10, 03:10:30, 2026-11-22T03:10 (local time; with Z: UTC), or -10m (before the end; s, m, h, d)"


def is_moment(text: str) -> bool:
    """Whether a text has the form of a time: `03:10`, `2026-11-22T03:10`, `-10m`."""
    is_before_end = text.startswith("-") and length_of(text[1:]) is not None
    return is_before_end or bool(_CLOCK_FORM.fullmatch(text) or _DATED_FORM.fullmatch(text))


def length_of(text: str) -> float | None:
    """Seconds of `90s`, `10m`, `1.5h` or `7d`; None of anything else."""
    match = _LENGTH_FORM.fullmatch(text)
    if match:
        return float(match[1]) * _UNITS_S[match[2]]
    return None


def moment_of(text: str, span: tuple[float, float], zone: timezone | None = None) -> float:
    """Unix time of what a user calls a moment of a recording. Raises ValueError or OutsideError, in one line.

    A time without a date is the newest such time in the recording, in the local time zone (or `zone`). A minute or
    second in which the recording begins or ends is in it.
    """
    if text.startswith("-") and (before_s := length_of(text[1:])) is not None:
        return _within_span(text, span[1] - before_s, 0.0, span, zone)
    try:
        clock = _CLOCK_FORM.fullmatch(text)
        if clock:
            return _newest_clock_time(text, _reach_s(clock[1]), span, zone)
        dated = _DATED_FORM.fullmatch(text)
        if dated:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            if moment.tzinfo is None:
                moment = _with_zone(moment, zone)
            return _within_span(text, moment.timestamp(), _reach_s(dated[1]), span, zone)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"is no time: {text[:40]!a}; write it as {_EXAMPLES}")


def _reach_s(seconds: str | None) -> float:
    """How much time a text means: a second where it has seconds, else a minute."""
    if seconds:
        return 1.0
    return 60.0


def _newest_clock_time(text: str, reach_s: float, span: tuple[float, float], zone: timezone | None) -> float:
    """Unix time of the newest `3:10` or `03:10:30` in a span. Raises ValueError, OutsideError."""
    two_digits = f"0{text}" if text[1] == ":" else text
    clock = time.fromisoformat(two_digits)
    first = _day(span[0], zone)
    day = _day(span[1], zone)
    # 23:59 of the day before reaches into a recording that begins at 0:00:20.
    while day >= first - timedelta(days=1):
        wall_s = _with_zone(datetime.combine(day, clock), zone).timestamp()
        if wall_s <= span[1] and wall_s + reach_s > span[0]:
            return max(wall_s, span[0])
        day -= timedelta(days=1)
    raise OutsideError(text, span, zone)


def _within_span(text: str, wall_s: float, reach_s: float, span: tuple[float, float], zone: timezone | None) -> float:
    """The time, or the begin of the span if that is later.

    Raises OutsideError where no part of the `reach_s` seconds from the time on is in the span; with 0 the time alone.
    """
    if wall_s <= span[1] and (wall_s >= span[0] or wall_s + reach_s > span[0]):
        return max(wall_s, span[0])
    raise OutsideError(text, span, zone)


class OutsideError(LookupError):
    """A time that the recording does not hold: no ValueError, which says that a text has not the form of a time."""

    def __init__(self, text: str, span: tuple[float, float], zone: timezone | None) -> None:
        first, last = (datetime.fromtimestamp(wall_s, zone) for wall_s in span)
        form = "%Y-%m-%d %H:%M:%S"
        super().__init__(f"is outside of the recording: {text}; it goes from {first:{form}} to {last:{form}}")


def _with_zone(moment: datetime, zone: timezone | None) -> datetime:
    """A moment without zone in this one, or in the local one."""
    if zone is not None:
        return moment.replace(tzinfo=zone)
    return moment.astimezone()


def _day(wall_s: float, zone: timezone | None) -> date:
    """The day of a Unix time, in a zone or the local one."""
    return datetime.fromtimestamp(wall_s, zone).date()


class Stretch(NamedTuple):
    """Time from one moment to another (Unix times); a moment alone has no length."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end_s - self.begin_s


def stretch_of(text: str, span: tuple[float, float], zone: timezone | None = None) -> Stretch:
    """A moment (`03:10`) or a stretch (`03:00..03:10`) of a recording. Raises ValueError or OutsideError."""
    first, dots, last = text.partition("..")
    begin_s = moment_of(first, span, zone)
    if not dots:
        return Stretch(begin_s, begin_s)
    end_s = moment_of(last, span, zone)
    if end_s <= begin_s:
        raise ValueError(f"is no stretch of time: {text[:60]!a} ends before it begins")
    return Stretch(begin_s, end_s)
