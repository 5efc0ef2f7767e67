"""Canonical names of what engines count, gauge and bucket: the keys of `RankReading`."""

from __future__ import annotations

from typing import Final

# Counters (monotonic until a restart), in tokens, requests or steps.
PROMPT_TOKENS: Final = "prompt_tokens"
"""Prompt tokens including those that came from the prefix cache."""
PREFILL_COMPUTED: Final = "prefill_computed_tokens"
"""Prompt tokens whose prefill was computed here."""
PREFILL_CACHED: Final = "prefill_cached_tokens"
DECODE_TOKENS: Final = "decode_tokens"
"""Tokens generated, the first of each request included."""
STEPS: Final = "steps"
"""Engine steps that produced output."""
REQUESTS: Final = "requests"
"""Requests finished, aborted and failed ones included."""
PREEMPTIONS: Final = "preemptions"
DRAFTS: Final = "drafts"
"""Speculative drafts verified (one per sequence and step)."""
ACCEPTED_TOKENS: Final = "accepted_tokens"
"""Draft tokens accepted."""

# Gauges.
RUNNING: Final = "running"
WAITING: Final = "waiting"
KV_USAGE: Final = "kv_usage_ratio"
POOL_TOKENS: Final = "pool_tokens"
"""Tokens that the KV pool of this rank holds."""
BLOCK_PRODUCT: Final = "num_gpu_blocks x block_size"
"""End of the source of `POOL_TOKENS` where it is this product: wrong where layers of several kinds share the pool."""
USED_TOKENS: Final = "used_tokens"
"""Tokens in the KV pool, where the engine reports them itself (right for hybrid pools too)."""

# Histograms, seconds or tokens.
TTFT: Final = "ttft_s"
ITL: Final = "itl_s"
E2E: Final = "e2e_s"
QUEUE: Final = "queue_s"
PROMPT_LENGTH: Final = "prompt_length_tokens"
OUTPUT_LENGTH: Final = "output_length_tokens"
