"""Which moments a fleet is asked for before one, so that its rates and verdicts stand there."""

from __future__ import annotations

import math
from typing import Final

LEAST: Final = 2
"""Moments that rates need."""
MOST: Final = 7
"""Moments at most: each costs as much as a refresh."""


def moments_before(wall_s: float, step_s: float, hold_s: float) -> list[float]:
    """Unix times before `wall_s`, the oldest first, `step_s` apart.

    The first one has no rates; from the second one on verdicts hold, and stand after `hold_s`. Where that takes more
    moments than `MOST`, there are those for rates alone, and verdicts stand later.
    """
    number = max(LEAST, 1 + math.ceil(hold_s / step_s))
    return [wall_s - at * step_s for at in range(number if number <= MOST else LEAST, 0, -1)]
