"""Latencies that are promised to users, and those that are assumed where none is."""

from __future__ import annotations

from typing import Final

import msgspec

ASSUMED_TTFT_S: Final = 1.0
"""Longest time in seconds that a reader waits for a first token without losing the thread (Nielsen)."""
ASSUMED_ITL_S: Final = 0.05
"""Seconds per token: 20 tokens/s are three times as fast as people read."""
HTTP_S: Final = 0.025
"""Longest time in seconds that HTTP adds to the TTFT of an engine for a client on the same network: in recordings 5 to
16 ms on average, and up to 24 ms (docs/accuracy.md)."""
PROMISED: Final = 0.95
"""Share of requests that goals are promised for: they are p95."""


def goal_s(goal_ms: float | None) -> float | None:
    """A goal in seconds; None: nothing is promised."""
    return goal_ms / 1e3 if goal_ms is not None else None


class Goals(msgspec.Struct, frozen=True):
    """Goals promised to users in seconds, all but `itl_mean_s` as p95; None: nothing. Other limits stand in for what is
    not promised."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    """p95 over requests of the mean time between the tokens of one."""
    itl_s: float | None = None
    """p95 of the gaps between two tokens."""
    itl_mean_s: float | None = None
    e2e_s: float | None = None

    @property
    def token_s(self) -> float | None:
        """Longest time per token that is promised, by whichever figure; None: nothing is."""
        return self.tpot_s or self.itl_s or self.itl_mean_s
