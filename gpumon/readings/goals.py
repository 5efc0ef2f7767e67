"""Latencies that are promised to users, and those that are assumed where none is."""

from __future__ import annotations

from typing import Final

import msgspec

ASSUMED_TTFT_S: Final = 1.0
"""Longest time in seconds that a reader waits for a first token without losing the thread (Nielsen)."""
ASSUMED_ITL_S: Final = 0.05
"""Seconds per token: 20 tokens/s are three times as fast as people read."""
PROMISED: Final = 0.95
"""Share of requests that goals are promised for: they are p95."""


class Goals(msgspec.Struct, frozen=True):
    """Goals promised to users, as p95 in seconds; None: nothing. Other limits stand in for what is not promised."""

    ttft_s: float | None = None
    itl_s: float | None = None
    e2e_s: float | None = None
