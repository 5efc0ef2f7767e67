"""Moments as text, the same in every output."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

_FIRST_S: Final = -62_135_596_800.0
_LAST_S: Final = 253_402_300_799.0


def rfc3339(wall_s: float) -> str:
    """A Unix time in UTC to the millisecond: `2026-01-02T14:00:00.000Z`; the nearest that there is of years 1 to 9999.

    A damaged recording may have any number in the place of a time.
    """
    wall_s = min(max(wall_s, _FIRST_S), _LAST_S) if wall_s == wall_s else _FIRST_S
    return datetime.fromtimestamp(wall_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wall_of(rfc3339_: str) -> float:
    """The Unix time of what `rfc3339` gave. Raises ValueError."""
    return datetime.fromisoformat(rfc3339_.replace("Z", "+00:00")).timestamp()


def clock_utc(wall_s: float) -> str:
    """`13:13:29 UTC`: the time of day in a text, which does not know where it is read."""
    return f"{rfc3339(wall_s)[11:19]} UTC"
