"""Counters and gauges of one rank on an engine's page: the largest numbers that can be true.

The names are those of `readings.quantities`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.figures.figure import Figure, Figures
from gpumon.figures.unit import BYTES, PER_S, REQUESTS, SHARE, TOKENS_PER_S, Unit

MOST_RANKS: Final = 4096
"""Data-parallel ranks of one engine."""
MOST_REQUESTS: Final = 1e6
"""Requests of one rank at once: a server that holds as many open connections is beyond what Linux and Python do."""
MOST_OF_POOL: Final = 1.05
"""Share of a pool; pages round, and count blocks that are being freed."""
MOST_TOKENS_PER_S: Final = 1e10
"""Tokens per second of one rank.

A rack of 72 GB200 computes about 1e6 prompt tokens/s of a small model and finds some ten times as many in its cache:
1e10 is a thousand times that.
"""
_MOST_EVENTS_PER_S: Final = 1e8
"""Requests or steps per second of one rank."""
_MOST_MEMORY_BYTES: Final = 1e13
"""Memory of one GPU."""


def _bounded(unit: Unit, most: float, *names: str) -> Iterator[Figure]:
    """The rows of quantities in one unit, which can all be no larger than `most`."""
    for name in names:
        yield Figure(name, unit, most=most)


GAUGES: Final = Figures(
    *_bounded(REQUESTS, MOST_REQUESTS, "running", "waiting", "waiting_deferred", "paused"),
    *_bounded(REQUESTS, MOST_REQUESTS, "router_queue", "most_running"),
    *_bounded(SHARE, MOST_OF_POOL, "kv_usage_ratio", "host_kv_usage_ratio", "acceptance_ratio"),
    *_bounded(TOKENS_PER_S, MOST_TOKENS_PER_S, "decode_tokens_per_s", "prefill_tokens_per_s"),
    *_bounded(BYTES, _MOST_MEMORY_BYTES, "own_weight_bytes", "own_kv_bytes", "own_graph_bytes"),
)
"""Gauges that are bounded."""
COUNTERS: Final = Figures(
    *_bounded(TOKENS_PER_S, MOST_TOKENS_PER_S, "prompt_tokens", "prefill_computed_tokens"),
    *_bounded(TOKENS_PER_S, MOST_TOKENS_PER_S, "prefill_cached_tokens", "decode_tokens"),
    *_bounded(PER_S, _MOST_EVENTS_PER_S, "requests", "aborts", "failures", "rejections", "preemptions", "steps"),
)
"""Counters whose growth per second is bounded."""
