"""Units of memory in bytes, and of time in seconds."""

from __future__ import annotations

from typing import Final

MIB: Final = 2.0**20
GIB: Final = 2.0**30
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
