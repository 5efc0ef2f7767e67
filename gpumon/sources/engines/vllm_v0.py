"""What vLLM's first engine, V0 (until 0.10), counts in other ways than V1: told apart here, and made the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance
from gpumon.sources.engines.adapter import Found, Metric, picked
from gpumon.sources.engines.plan import Rank

SWAPPED: Final = "vllm:num_requests_swapped"
EMITTED: Final = "vllm:spec_decode_num_emitted_tokens_total"
EXTRA: Final = (SWAPPED, EMITTED)
RANK: Final = "0"
"""V0 has no data-parallel ranks."""
V1_SIGNS: Final = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
"""Counters that V0 never had; the first V1 pages (0.8) have them and no label `engine` yet."""
SERIES: Final = ("vllm:generation_tokens_total", "vllm:num_requests_running")


def is_v0(found: Mapping[str, Found]) -> bool:
    """Whether a page is V0's: no series has the label `engine`, and none of V1's counters is there."""
    series = [one for name in SERIES for one, _ in found.get(name, ())]
    return bool(series) and not any("engine" in one.labels for one in series) and not any(map(found.get, V1_SIGNS))


def translate(
    ranks: Mapping[str, Rank], live: dict[str, str], advance: dict[str, Advance], found: Mapping[str, Found]
) -> None:
    """Make V0's figures those of V1: requests swapped out to the host wait, and drafts are what was emitted beyond
    the accepted tokens (each draft yields one token more than it had accepted)."""
    rank = ranks.get(RANK)
    if rank is None:
        return
    swapped = [value for _, value in picked(found, Metric(SWAPPED))]
    if swapped and q.WAITING in rank.gauges:
        rank.gauges[q.WAITING] += max(swapped)
        live[q.WAITING] = f"{live[q.WAITING]} + {SWAPPED.partition(':')[2]}"
        advance[q.WAITING] = Advance.DERIVED
    emitted = sum(value for _, value in picked(found, Metric(EMITTED)))
    accepted = rank.counters.get(q.ACCEPTED_TOKENS)
    if accepted is not None and q.DRAFTS not in live and emitted >= accepted:
        rank.counters[q.DRAFTS] = emitted - accepted
        live[q.DRAFTS] = f"{EMITTED} - {live[q.ACCEPTED_TOKENS]}"
        advance[q.DRAFTS] = Advance.DERIVED
