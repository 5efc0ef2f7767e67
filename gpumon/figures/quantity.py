"""Counters and gauges of one rank on an engine's page: the largest numbers that can be true.

The names are those of `readings.quantities`.
"""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import Figure, Figures
from gpumon.figures.unit import BYTES, PER_S, REQUESTS, SHARE, TOKENS_PER_S

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

GAUGES: Final = Figures(
    Figure("running", REQUESTS, most=MOST_REQUESTS),
    Figure("waiting", REQUESTS, most=MOST_REQUESTS),
    Figure("waiting_deferred", REQUESTS, most=MOST_REQUESTS),
    Figure("paused", REQUESTS, most=MOST_REQUESTS),
    Figure("router_queue", REQUESTS, most=MOST_REQUESTS),
    Figure("most_running", REQUESTS, most=MOST_REQUESTS),
    Figure("kv_usage_ratio", SHARE, most=MOST_OF_POOL),
    Figure("host_kv_usage_ratio", SHARE, most=MOST_OF_POOL),
    Figure("acceptance_ratio", SHARE, most=MOST_OF_POOL),
    Figure("decode_tokens_per_s", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("prefill_tokens_per_s", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("own_weight_bytes", BYTES, most=_MOST_MEMORY_BYTES),
    Figure("own_kv_bytes", BYTES, most=_MOST_MEMORY_BYTES),
    Figure("own_graph_bytes", BYTES, most=_MOST_MEMORY_BYTES),
)
"""Gauges that are bounded."""
COUNTERS: Final = Figures(
    Figure("prompt_tokens", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("prefill_computed_tokens", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("prefill_cached_tokens", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("decode_tokens", TOKENS_PER_S, most=MOST_TOKENS_PER_S),
    Figure("requests", PER_S, most=_MOST_EVENTS_PER_S),
    Figure("aborts", PER_S, most=_MOST_EVENTS_PER_S),
    Figure("failures", PER_S, most=_MOST_EVENTS_PER_S),
    Figure("rejections", PER_S, most=_MOST_EVENTS_PER_S),
    Figure("preemptions", PER_S, most=_MOST_EVENTS_PER_S),
    Figure("steps", PER_S, most=_MOST_EVENTS_PER_S),
)
"""Counters whose growth per second is bounded."""
