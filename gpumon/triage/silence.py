"""Silences of a webhook: verdicts that it does not send, by code, thing and hours of the day."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from gpumon.readings.prices import DayHours, minute_of_day
from gpumon.readings.verdict import Limit

ALERT: Final = "alert"
"""Code of an alert on a figure, beside the codes of verdicts."""
EVERY: Final = "*"
"""Code that stands for all codes."""
FORM: Final = (
    'must be CODE, CODE[NAME] or CODE[NAME] HH:MM-HH:MM, such as "low_efficiency[vllm*] 22:00-06:00"; * is every code'
)
_SILENCE_PATTERN: Final = re.compile(
    r"(?P<code>[a-z_]+|\*)\s*(\[(?P<glob>[^\]]+)\])?(\s+(?P<begin>\d{1,2}:\d\d)\s*-\s*(?P<end>\d{1,2}:\d\d))?"
)
_CODES: Final = frozenset((ALERT, EVERY, *(limit.value for limit in Limit)))


class Silence(NamedTuple):
    """A rule for what is not sent."""

    code: str
    """Code of a verdict, `alert`, or `*`."""
    glob: str
    """Pattern of the shown name of an engine, a GPU or the host."""
    hours: DayHours | None = None
    """Hours of the day in which it holds; None: all day."""

    def covers(self, code: str, scope: str, minute: int) -> bool:
        """Whether a verdict on `scope` is silenced at this minute of the day."""
        is_meant = self.code in (EVERY, code) and fnmatchcase(scope, self.glob)
        return is_meant and (self.hours is None or self.hours.covers(minute))


def parse_silence(text: str) -> Silence:
    """Read a silence. Raises ValueError, whose text ends a sentence that begins with the setting and its value."""
    words = _SILENCE_PATTERN.fullmatch(text.strip())
    if words is None:
        raise ValueError(FORM)
    if words["code"] not in _CODES:
        raise ValueError(f"has a code that no verdict has; known: {', '.join(sorted(_CODES))}")
    hours = None
    if words["begin"]:
        hours = DayHours(minute_of_day(words["begin"]), minute_of_day(words["end"]))
        if hours.begin_minute == hours.end_minute:
            raise ValueError("has hours that begin and end at the same minute: leave them out for the whole day")
    return Silence(words["code"], words["glob"] or "*", hours)
