"""SGLang: live counters from 0.5.7 on, gauges and counts of ended requests before; every rank of a group once.

Names and when they move: srt/observability/metrics_collector.py and srt/managers/scheduler_components/
metrics_reporter.py of 0.5.23, and what came before them (srt/metrics/collector.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, HistogramReading
from gpumon.sources.engines.adapter import (
    MOST_RANKS,
    NO_BODIES,
    Adapter,
    Bodies,
    Companion,
    EnginePage,
    Found,
    Metric,
    Rule,
    Tables,
    by_name,
    frozen,
    picked,
)
from gpumon.sources.engines.failures import BY_CAUSE
from gpumon.sources.engines.plan import Collected, Rank
from gpumon.sources.engines.remainder import Remainder
from gpumon.sources.engines.sglang_counts import FirstTokens, Passes
from gpumon.sources.engines.sglang_server import Server, server_of
from gpumon.sources.exposition import Scan

PREFIX: Final = "sglang:"
REALTIME: Final = "sglang:realtime_tokens_total"
EFFECTIVE: Final = "sglang:prefill_effective_tokens_total"
FIRST_TOKENS: Final = "sglang:time_to_first_token_seconds"
SIGN_OF_LIVE: Final = "sglang:decode_sum_seq_lens"
"""Came with `realtime_tokens_total`, and is there before the first token."""
LIVE_SINCE: Final = (0, 5, 7)
LIVE: Final = {
    q.PREFILL_COMPUTED: Metric(REALTIME, "mode", "prefill_compute"),
    q.PREFILL_CACHED: Metric(REALTIME, "mode", "prefill_cache"),
    q.DECODE_TOKENS: Metric(REALTIME, "mode", "decode"),
}
"""A mode's series is there from its first token on."""
LIVE_NAMES: Final = {quantity: str(metric) for quantity, metric in LIVE.items()}
LATE: Final = {
    q.REQUESTS: "sglang:num_requests_total",
    q.PREEMPTIONS: "sglang:num_retracted_requests_total",
    q.ABORTS: "sglang:num_aborted_requests_total (not there yet: none was aborted)",
}
"""Counters that every version with live tokens has, each there from its first count on."""
NONE_CACHED: Final = "sglang:cached_tokens_total (not there yet: nothing was cached)"
"""It came together with the count of requests (0.4.6), and is there from the first hit on."""
ANSWERS: Final = "sglang:http_responses_total"
"""By status; of the whole server, and without its labels."""
LOST: Final = {
    "KV transfer": "sglang:num_transfer_failed_reqs_total",
    "bootstrap": "sglang:num_bootstrap_failed_reqs_total",
}
"""Requests that failed on their way from prefill to decode; every rank of a group counts them."""
ENDED: Final = "sglang:generation_tokens_total"
"""Moves with the count of requests."""
QUEUES: Final = (
    "sglang:num_grammar_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_prefill_infight_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs",
    "sglang:num_decode_transfer_queue_reqs",
)
"""Requests that wait elsewhere than in `num_queue_reqs` (`infight` is how 0.4.10 spells it)."""
POOLS: Final = ("sglang:swa_token_usage", "sglang:mamba_usage")
"""Use of the other pools of a model with layers of several kinds: the fullest one limits."""
OF_THE_OTHER: Final = {
    "prefill": (q.DECODE_TOKENS, q.USED_TOKENS),
    "decode": (q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED),
}
"""`engine_type` of the halves of a server whose prefill and decode run apart -> what the other half counts.

Both count a request's prompt when it ends, and both its first token.
"""
SERVER_INFO: Final = Companion("/server_info", 10.0)
OLD_SERVER_INFO: Final = Companion("/get_server_info", 10.0)
"""Its name before `/server_info`, and now a deprecated one: asked only where the other is not answered."""
MOST_SEEN: Final = 16 * MOST_RANKS


def _rule(quantity: str, *names: str, advance: Advance = Advance.LIVE) -> Rule:
    return Rule(quantity, tuple(Metric(PREFIX + name, advance=advance) for name in names))


def _ended(name: str, label: str = "", value: str = "") -> Metric:
    return Metric(PREFIX + name, label, value, Advance.END)


TABLES: Final = Tables(
    rank_label="dp_rank",
    # Every rank of a tensor- or expert-parallel group, and every pipeline stage, may report the same figures: which
    # of them do differs from version to version, so the lowest of each counts.
    repeated=("tp_rank", "pp_rank", "moe_ep_rank"),
    counters=(
        # From 0.5.18 on, without what is computed a second time after a retraction; before, it is worked out below.
        Rule(q.PROMPT_TOKENS, (Metric(EFFECTIVE), _ended("prompt_tokens_total"))),
        Rule(q.PREFILL_COMPUTED, (LIVE[q.PREFILL_COMPUTED],)),
        # `total` is the sum of the other sources; older versions do not tell them apart.
        Rule(
            q.PREFILL_CACHED,
            (
                LIVE[q.PREFILL_CACHED],
                _ended("cached_tokens_total", "cache_source", "total"),
                _ended("cached_tokens_total"),
            ),
        ),
        Rule(q.DECODE_TOKENS, (LIVE[q.DECODE_TOKENS], Metric(ENDED, advance=Advance.END))),
        # Counted once for each forward pass, whether it is a CUDA graph or not: decode passes, and prefill passes
        # where the version counts them.
        _rule(q.STEPS, "cuda_graph_passes_total"),
        _rule(q.REQUESTS, "num_requests_total"),
        _rule(q.PREEMPTIONS, "num_retracted_requests_total"),
        # Of the whole server; 0.4.10 to 0.5.2 wrote it without its ending.
        _rule(q.ABORTS, "num_aborted_requests_total", "num_aborted_requests"),
        # One per kind of pass; only with SGLANG_ENABLE_METRICS_DEVICE_TIMER=1. Its name until 0.5.10 is the second.
        _rule(q.FORWARD_SECONDS, "forward_execution_seconds_total", "gpu_execution_seconds_total"),
        _rule(q.SCHEDULER_IDLE_SECONDS, "scheduler_idle_seconds_total"),  # from 0.5.20 on
        _rule(q.OWN_FLOPS, "estimated_flops_per_gpu_total"),
        _rule(q.OWN_READ_BYTES, "estimated_read_bytes_per_gpu_total"),
        _rule(q.OWN_WRITE_BYTES, "estimated_write_bytes_per_gpu_total"),
    ),
    gauges=(
        _rule(q.RUNNING, "num_running_reqs"),
        _rule(q.WAITING, "num_queue_reqs"),
        # The first is exact and of one pool; the second is rounded to 0.01 and of the fullest.
        _rule(q.KV_USAGE, "full_token_usage", "token_usage"),
        _rule(q.POOL_TOKENS, "max_total_num_tokens"),
        # What the decode steps read: the lengths of all running sequences. `num_used_tokens` counts a shared prefix
        # once although each sequence reads it, and in a hybrid model it is one pool's.
        _rule(q.USED_TOKENS, "decode_sum_seq_lens", "num_used_tokens"),
        _rule(q.DECODE_RATE, "gen_throughput", advance=Advance.SAMPLED),
        _rule(q.MEAN_ACCEPTED, "spec_accept_length", advance=Advance.SAMPLED),
    ),
    histograms=(
        _rule(q.TTFT, "time_to_first_token_seconds"),
        _rule(q.ITL, "inter_token_latency_seconds", "time_per_output_token_seconds"),
        _rule(q.E2E, "e2e_request_latency_seconds"),
        _rule(q.QUEUE, "queue_time_seconds", "queue_time_s"),
        _rule(q.PROMPT_LENGTH, "prompt_tokens_histogram"),
        _rule(q.OUTPUT_LENGTH, "generation_tokens_histogram"),
    ),
    extra=(SIGN_OF_LIVE, *QUEUES, *POOLS, ANSWERS, *LOST.values()),
)
OF_SERVER: Final = tuple(rule for rule in TABLES.histograms if rule.quantity != q.QUEUE)
"""What the tokeniser observes."""
NO_OBSERVATION: Final = HistogramReading((math.inf,), (0.0,), 0.0, 0.0)


class SglangAdapter(Adapter):
    """One SGLang server. Data-parallel ranks come as readings of their own, by their `dp_rank` label.

    What its tokeniser counts (requests, latencies) has no rank: it stands with rank 0.
    """

    kind = EngineKind.SGLANG
    tables = TABLES
    prefixes = (PREFIX,)
    companions = (SERVER_INFO,)

    def __init__(self) -> None:
        super().__init__()
        self._server_body = b""
        self._server = Server()
        self._seen: set[tuple[str, str]] = set()
        self._queues: set[str] = set()
        self._first_tokens = FirstTokens()
        self._computed = Remainder()
        self._passes = Passes()

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EnginePage:
        """The page in canonical quantities; no rank where it has no SGLang series."""
        found = by_name(scan)
        server = self._asked(bodies)
        taken = self.collect(found)
        ranks, live, advance = taken
        if self._counts_live(found, taken, server):
            self._take_live(taken, found)
            if ENDED not in found:
                self._begin_histograms(taken)
        else:
            self._take_ended(taken)
        if self._queues - found.keys():
            # The rest of them is not all that wait.
            _leave_out(taken, q.WAITING)
        self._queues.update(name for name in QUEUES if name in found)
        _add_gauges(taken, found, server)
        role = _role(found)
        causes = self._add_failures(taken, found, role)
        for quantity in OF_THE_OTHER.get(role, ()):
            _leave_out(taken, quantity)
        return EnginePage(
            ranks=frozen(ranks.values()),
            live=live,
            info={**server.info, **({"role": role} if role else {}), **({BY_CAUSE: causes} if causes else {})},
            model=_model(found),
            started_wall_s=0.0,
            exact_steps=self._passes.are_steps(ranks),
            cut=self._cut,
            advance=advance,
            model_root=server.model_path,
            version=server.version,
            tp=server.tp,
            pp=server.pp,
            dp=server.dp,
        )

    def _asked(self, bodies: Bodies) -> Server:
        body = bodies.get(SERVER_INFO.path) or bodies.get(OLD_SERVER_INFO.path) or b""
        if not body:
            asked = self.companions == (SERVER_INFO,)
            self.companions = (OLD_SERVER_INFO if asked else SERVER_INFO,)
        elif body is not self._server_body:
            self._server_body, self._server = body, server_of(body)
        return self._server

    def _counts_live(self, found: Mapping[str, Found], taken: Collected, server: Server) -> bool:
        """Whether this version has live token counters, though no token may have been counted yet."""
        if found.get(REALTIME):
            return True
        ended = sum(rank.counters.get(q.DECODE_TOKENS, 0.0) for rank in taken.ranks.values())
        return not ended and bool(taken.ranks) and (SIGN_OF_LIVE in found or _version(server.version) >= LIVE_SINCE)

    def _take_ended(self, taken: Collected) -> None:
        """Tokens of ended requests: the computed ones are those that were not cached."""
        ranks, live, advance = taken
        if live.keys() >= {q.PROMPT_TOKENS, q.REQUESTS, q.RUNNING}:
            live.setdefault(q.PREFILL_CACHED, NONE_CACHED)
            advance[q.PREFILL_CACHED] = Advance.END
            for rank in ranks.values():
                if q.PROMPT_TOKENS in rank.counters:
                    self._start_at_zero(rank, q.PREFILL_CACHED)
        for rank in ranks.values():
            prompt, cached = (rank.counters.get(name) for name in (q.PROMPT_TOKENS, q.PREFILL_CACHED))
            if prompt is not None and cached is not None:
                rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, cached)
                live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {live[q.PREFILL_CACHED]}"
                advance[q.PREFILL_COMPUTED] = Advance.END
            # The engine's own rate stands still for up to 30 s after the last request.
            if rank.gauges.get(q.RUNNING) == 0.0 and q.DECODE_RATE in rank.gauges:
                rank.gauges[q.DECODE_RATE] = 0.0

    def _take_live(self, taken: Collected, found: Mapping[str, Found]) -> None:
        """Tokens as they are computed, where the tables gave those of ended requests or none."""
        ranks, live, _ = taken
        for quantity, metric in LIVE.items():
            if live.get(quantity) != str(metric):
                _leave_out(taken, quantity)
        for quantity, name in (*LIVE_NAMES.items(), *LATE.items()):
            if quantity != q.REQUESTS or (quantity not in live and ENDED not in found):
                live.setdefault(quantity, name)
                # Requests are counted for the whole server, with the first rank.
                for rank in list(ranks.values())[: 1 if quantity in (q.REQUESTS, q.ABORTS) else None]:
                    self._start_at_zero(rank, quantity)
        if live.get(q.PROMPT_TOKENS) != EFFECTIVE:
            _leave_out(taken, q.PROMPT_TOKENS)
            live[q.PROMPT_TOKENS] = f"{REALTIME} prefill_compute + prefill_cache"
            for rank in ranks.values():
                parts = [rank.counters.get(quantity) for quantity in (q.PREFILL_COMPUTED, q.PREFILL_CACHED)]
                if None not in parts:
                    rank.counters[q.PROMPT_TOKENS] = sum((part for part in parts if part), 0.0)
        _leave_out(taken, q.DECODE_RATE)
        counts = [value for _, value in picked(found, Metric(FIRST_TOKENS + "_count"))]
        self._first_tokens.add(ranks, sum(counts) if counts else None)
        live[q.DECODE_TOKENS] += f" + {FIRST_TOKENS}_count"

    def _add_failures(self, taken: Collected, found: Mapping[str, Found], role: str) -> str:
        """Requests that were answered with a server's error, or, of a half of a server, lost between the halves: one
        may be both. The causes in one line."""
        answers: dict[str, float] = {}
        for series, value in picked(found, Metric(ANSWERS, "method", "POST")):
            if (status := series.labels.get("status_code", "")).startswith("5"):
                answers[f"HTTP {status}"] = answers.get(f"HTTP {status}", 0.0) + value
        lost = {
            cause: sum(value for _, value in self._unrepeated(picked(found, Metric(name))))
            for cause, name in LOST.items()
            if name in found
        }
        failed, told = (lost, True) if role else (answers, ANSWERS in found)
        for rank in list(taken.ranks.values())[: 1 if told else 0]:
            if failed or not self._was_there(rank, q.FAILURES, there=False):
                self._was_there(rank, q.FAILURES, there=bool(failed))
                rank.counters[q.FAILURES] = sum(failed.values(), 0.0)
                taken.live[q.FAILURES] = " + ".join(LOST.values()) if role else f'{ANSWERS}{{status_code="5.."}}'
        return ", ".join(f"{cause} {value:.0f}" for cause, value in sorted((answers | lost).items()) if value)

    def _start_at_zero(self, rank: Rank, quantity: str) -> None:
        """A series that never was there has counted nothing yet; one that was and is missing now is missing."""
        if not self._was_there(rank, quantity, there=quantity in rank.counters):
            rank.counters[quantity] = 0.0

    def _begin_histograms(self, taken: Collected) -> None:
        """Before a request has ended, a histogram that never was there has no observation yet.

        They are of the whole server and stand with its first rank; what waits is of each.
        """
        for rank in list(taken.ranks.values())[:1]:
            if rank.counters.get(q.DECODE_TOKENS) and q.TTFT not in rank.histograms:
                continue
            for rule in TABLES.histograms if len(taken.ranks) == 1 else OF_SERVER:
                if not self._was_there(rank, rule.quantity, there=rule.quantity in rank.histograms):
                    rank.histograms[rule.quantity] = NO_OBSERVATION
                    taken.live[rule.quantity] = str(rule.metrics[0])

    def _was_there(self, rank: Rank, quantity: str, *, there: bool) -> bool:
        """Whether a page of this process had it, this one included."""
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        if there:
            self._seen.add((rank.name, quantity))
        return (rank.name, quantity) in self._seen


def _leave_out(taken: Collected, quantity: str) -> None:
    taken.live.pop(quantity, None)
    taken.advance.pop(quantity, None)
    for rank in taken.ranks.values():
        rank.counters.pop(quantity, None)
        rank.gauges.pop(quantity, None)


def _add_gauges(taken: Collected, found: Mapping[str, Found], server: Server) -> None:
    ranks, live, _ = taken
    queues = [name for name in QUEUES if name in found]
    if queues and q.WAITING in live:
        live[q.WAITING] += f" + {len(queues)} other queues"
    for name in queues:
        for rank, value in _of_ranks(ranks, found, name):
            if q.WAITING in rank.gauges:
                rank.gauges[q.WAITING] += value
    for name in POOLS if live.get(q.KV_USAGE) == "sglang:full_token_usage" else ():
        for rank, value in _of_ranks(ranks, found, name):
            rank.gauges[q.KV_USAGE] = max(rank.gauges.get(q.KV_USAGE, 0.0), value)
    told = {
        q.MOST_RUNNING: (server.most_running, "max_running_requests"),
        q.POOL_TOKENS: (0 if q.POOL_TOKENS in live else server.pool_tokens, "token_capacity"),
    }
    # 0 where nothing is speculated.
    if not any(rank.gauges.get(q.MEAN_ACCEPTED) for rank in ranks.values()):
        _leave_out(taken, q.MEAN_ACCEPTED)
    for rank in ranks.values():
        gauges = rank.gauges
        # It keeps the last batch's lengths when that has ended.
        if gauges.get(q.RUNNING) == 0.0 and live.get(q.USED_TOKENS) == SIGN_OF_LIVE:
            gauges.pop(q.USED_TOKENS, None)
        for quantity, (value, name) in told.items():
            if value and q.RUNNING in gauges:
                gauges[quantity] = float(value)
                live[quantity] = f"{SERVER_INFO.path} {name}"


def _of_ranks(ranks: Mapping[str, Rank], found: Mapping[str, Found], name: str) -> list[tuple[Rank, float]]:
    """The highest value of a gauge for each rank that there is."""
    highest: dict[str, float] = {}
    for series, value in picked(found, Metric(name)):
        rank = series.labels.get(TABLES.rank_label, "0")
        highest[rank] = max(value, highest.get(rank, 0.0))
    return [(ranks[rank], value) for rank, value in highest.items() if rank in ranks]


def _role(found: Mapping[str, Found]) -> str:
    """`prefill` or `decode` where the two run apart, else empty."""
    for name in ("sglang:num_running_reqs", REALTIME, "sglang:max_total_num_tokens"):
        for series, _ in found.get(name, ()):
            role = series.labels.get("engine_type", "")
            return role if role in OF_THE_OTHER else ""
    return ""


def _model(found: Mapping[str, Found]) -> str:
    for name in ("sglang:num_running_reqs", REALTIME, "sglang:generation_tokens_total", "sglang:prompt_tokens_total"):
        for series, _ in found.get(name, ()):
            if model := series.labels.get("model_name", ""):
                return model
    return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,6}", text)[:3])
