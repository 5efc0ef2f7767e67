"""Units of memory in bytes and of time in seconds, and factors to units without a prefix."""

from __future__ import annotations

from typing import Final

MIB: Final = 2.0**20
GIB: Final = 2.0**30
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
MHZ: Final = 1e6
PERCENT: Final = 0.01
MILLI: Final = 1e-3
MICRO: Final = 1e-6
