"""Rule on a prefix cache that gives far less than in the hour before: prompts are computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.verdict import Confidence, Evidence, Level, Limit, Parameters, Team
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.kv_cache import preempts
from gpumon.triage.signals import MINUTE_S, TTFT_GROWN_TIMES, Case

_HITS_LEFT: Final = 0.5
"""Part of the share of cached prompt tokens before down to which it falls where the prefixes are lost."""
_LEAST_HITS_LOST: Final = 0.2
"""Share of cached prompt tokens that has to be lost: less is hardly felt."""
_LEAST_PROMPTS: Final = 10.0
"""Requests of a minute that make a share of cached tokens."""
_WARM_AGAIN_S: Final = 180.0
"""A prefix cache is as warm as it was after so long: the prefixes of most requests come again within minutes."""
_COLD_S: Final = 300.0
"""Seconds after a restart in which a cold prefix cache is taken for its consequence."""
TTFT_BEFORE: Final = Quantity("ttft_before", "TTFT {value:latency}, {limit:latency} before", field="ttft_s")
PREFIX_HITS: Final = Quantity(
    "prefix_hits",
    "{value:percent} of the prompt tokens come from the prefix cache, {limit:percent} before",
    field="cached_ratio",
)
PREFILL_RATE: Final = Quantity("prefill_rate", "prefill computes {value:amount} tok/s", field="prefill_tokens_per_s")
CHECK_PREFIX_ROUTING: Final = Remedy(
    "check_prefix_routing",
    (
        "find what changed: routing (session or prefix affinity), the prompts' first tokens (date or "
        "id in the system prompt, chat template), or a KV cache too small to keep them"
    ),
    team=Team.SCHEDULER,
)
WAIT_FOR_CACHE: Final = Remedy("wait_for_cache", "wait: the prefix cache fills with the first requests of each prefix")


def prefix_hits(case: Case) -> Finding | None:
    """Rule: the prefix cache knows far fewer of the prompts' tokens than it did."""
    cached_share = case.mean("cached_ratio")
    if case.serving_engine() is None or cached_share is None or _has_few_prompts(case) or preempts(case):
        return None
    before = case.recent.hour.before_fall("cached_ratio", cached_share, _HITS_LEFT)
    if before is None or before - cached_share < _LEAST_HITS_LOST:
        return None
    parameters = params(now=cached_share, before=before)
    evidence = [case.evidence(PREFIX_HITS, cached_share, limit=before)]
    computed = case.mean("prefill_tokens_per_s")
    if computed is not None:
        evidence.append(case.evidence(PREFILL_RATE, computed))
    restart_age_s = case.restart_age_s
    if restart_age_s is not None and restart_age_s < _COLD_S:
        cold = parameters | params(restarted=restart_age_s, heals_s=_WARM_AGAIN_S)
        return PREFIX_COLD.finding(
            parameters=cold,
            evidence=(*evidence, *case.late_latencies()),
            actions=(WAIT_FOR_CACHE.action(),),
        )
    return _fewer_hits_finding(case, parameters, evidence)


def _has_few_prompts(case: Case) -> bool:
    """Whether so few requests came in the last minute that each of them moves the share."""
    requests_per_s = case.mean("requests_per_s", MINUTE_S)
    return requests_per_s is not None and requests_per_s * MINUTE_S < _LEAST_PROMPTS


PREFIX_COLD: Final = Cause(
    "prefix_cold",
    Limit.PREFIX_CACHE_LOST,
    (
        "restarted {restarted:lasted} ago: its prefix cache is cold ({now:percent} of the prompt "
        "tokens, {before:percent} before); heals by itself in about {heals_s:lasting}"
    ),
    level=Level.NOTE,
)


PREFIX_HITS_FELL: Final = Cause(
    "prefix_hits_fell",
    Limit.PREFIX_CACHE_LOST,
    "the prefix cache gives {now:percent} of the prompt tokens, {before:percent} before",
)


def _fewer_hits_finding(case: Case, parameters: Parameters, hits_evidence: Sequence[Evidence]) -> Finding:
    """The finding on prompts or routing that have changed; more urgent where users feel it."""
    late = case.late_latencies()
    first_late = later_first_tokens(case)
    evidence = list(hits_evidence)
    if first_late is not None:
        evidence.append(first_late)
    evidence += late
    is_felt = bool(late) or first_late is not None or case.waiting_mean() >= case.thresholds.queue_waiting
    level = Level.NOTE
    confidence = Confidence.MEDIUM
    if is_felt:
        level = Level.WARN
        confidence = Confidence.HIGH
    return PREFIX_HITS_FELL.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(CHECK_PREFIX_ROUTING.action(),),
        level=level,
        confidence=confidence,
    )


def later_first_tokens(case: Case) -> Evidence | None:
    """Evidence of the time to first token beside its own of before; None where it is not far longer."""
    ttft_s = case.mean("ttft_s.mean")
    if ttft_s is None:
        return None
    ttft_before_s = case.recent.hour.before_rise("ttft_s.mean", ttft_s, TTFT_GROWN_TIMES)
    if ttft_before_s is None:
        return None
    return case.evidence(TTFT_BEFORE, ttft_s, limit=ttft_before_s)
