"""Silences of a webhook: verdicts that it does not send, by code, thing and hours of the day."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from gpumon.readings.verdict import Limit

ALERT: Final = "alert"
"""Code of an alert on a figure, beside the codes of verdicts."""
EVERY: Final = "*"
DAY_MINUTES: Final = 1440
FORM: Final = (
    'must be CODE, CODE[NAME] or CODE[NAME] HH:MM-HH:MM, such as "low_efficiency[vllm*] 22:00-06:00"; * is every code'
)
_FORM: Final = re.compile(
    r"(?P<code>[a-z_]+|\*)\s*(\[(?P<glob>[^\]]+)\])?(\s+(?P<begin>\d{1,2}:\d\d)\s*-\s*(?P<end>\d{1,2}:\d\d))?"
)
_CODES: Final = frozenset((ALERT, EVERY, *(limit.value for limit in Limit)))


class Silence(NamedTuple):
    """What is not sent."""

    code: str
    """Code of a verdict, `alert`, or `*`."""
    glob: str
    """Pattern of the shown name of an engine, a GPU or the host."""
    begin_minute: int
    """Minute of the day, local time; equal to `end_minute`: all day."""
    end_minute: int

    def covers(self, code: str, scope: str, minute: int) -> bool:
        """Whether a verdict on `scope` is silenced at this minute of the day."""
        is_meant = self.code in (EVERY, code) and fnmatchcase(scope, self.glob)
        return is_meant and self._is_on(minute)

    def _is_on(self, minute: int) -> bool:
        if self.begin_minute == self.end_minute:
            return True
        if self.begin_minute < self.end_minute:
            return self.begin_minute <= minute < self.end_minute
        return minute >= self.begin_minute or minute < self.end_minute


def parse_silence(text: str) -> Silence:
    """Read a silence. Raises ValueError, whose text ends a sentence that begins with the setting and its value."""
    words = _FORM.fullmatch(text.strip())
    if words is None:
        raise ValueError(FORM)
    if words["code"] not in _CODES:
        raise ValueError(f"has a code that no verdict has; known: {', '.join(sorted(_CODES))}")
    begin = 0
    end = 0
    if words["begin"]:
        begin = _minute(words["begin"])
        end = _minute(words["end"])
        if begin == end:
            raise ValueError("has hours that begin and end at the same minute: leave them out for the whole day")
    return Silence(words["code"], words["glob"] or "*", begin, end)


def _minute(text: str) -> int:
    """The minute of the day. Raises ValueError."""
    hours, _, minutes = text.partition(":")
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > DAY_MINUTES:
        raise ValueError("has hours that are none: 00:00 to 24:00")
    return minute % DAY_MINUTES
