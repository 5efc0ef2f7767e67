"""SGLang: live counters from 0.5.7 on, gauges and counts of ended requests before; every rank of a group once.

Names and when they move: srt/observability/metrics_collector.py and srt/managers/scheduler_components/
metrics_reporter.py of 0.5.23, and what came before them (srt/metrics/collector.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, HistogramReading
from gpumon.sources.engines.adapter import (
    MOST_RANKS,
    NO_BODIES,
    Adapter,
    Bodies,
    Companion,
    Figures,
    Found,
    Metric,
    Rank,
    Rule,
    Tables,
    by_name,
    first_label,
    picked,
)
from gpumon.sources.engines.derived import BY_CAUSE, Remainder
from gpumon.sources.engines.json_body import count, decoded, items, mapping, text
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

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
TOKENS_OF_ENDED: Final = (ENDED, "sglang:prompt_tokens_total")
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

SETTINGS: Final = {
    "model_path": hints.MODEL_PATH,
    "dtype": hints.WEIGHT_PRECISION,
    "quantization": hints.QUANTIZATION,
    "kv_cache_dtype": hints.KV_DTYPE,
    "context_length": hints.CONTEXT_LEN,
    "speculative_algorithm": hints.SPECULATION,
    "page_size": "block_size",
    "mem_fraction_static": "gpu_memory_utilization",
    "disaggregation_mode": "disaggregation_mode",
}
"""Server argument -> key in `info`."""
NOT_SET: Final = ("", "null", "None", "none")
CACHE_DTYPE: Final = "cache_dtype"
"""Key of the KV cache's format, as vLLM has it."""


REMEMBERED_RANKS: Final = 2 * MOST_RANKS
UNMOVED: Final = 2
"""Polls in a row with new tokens and no new pass, after which the passes are no step counter."""


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


class Server(NamedTuple):
    """The settings of one server. 0 and empty: it does not say."""

    info: Mapping[str, str] = MappingProxyType({})
    model_path: str = ""
    version: str = ""
    tp: int = 0
    """So that tp x pp x dp is the number of GPUs."""
    pp: int = 0
    dp: int = 0
    most_running: int = 0
    """Requests that one data-parallel rank runs at once."""
    pool_tokens: int = 0
    """Tokens of KV that one data-parallel rank holds."""


def server_of(body: bytes) -> Server:
    """The answer of /server_info; empty where it is none. Raises nothing."""
    said = mapping(decoded(body))
    info = {key: value for name, key in SETTINGS.items() if (value := text(said.get(name))) not in NOT_SET}
    if hints.KV_DTYPE in info:
        info[CACHE_DTYPE] = info[hints.KV_DTYPE]
    if said.get("disable_radix_cache") in (True, False):
        info["enable_prefix_caching"] = str(not said["disable_radix_cache"])
    tp, dp = count(said.get("tp_size")), count(said.get("dp_size"))
    # The ranks of data-parallel attention share the GPUs of the tensor-parallel group.
    if said.get("enable_dp_attention") is True and dp:
        info["dp_attention"], tp = "yes", max(1, tp // dp)
    states = [mapping(state) for state in items(said.get("internal_states"))]
    return Server(
        info=info,
        model_path=info.get(hints.MODEL_PATH, ""),
        version=text(said.get("version")),
        tp=tp,
        pp=count(said.get("pp_size")),
        dp=dp,
        most_running=_first(states, "effective_max_running_requests_per_dp")
        or count(said.get("max_running_requests")) // max(1, dp),
        pool_tokens=_first([mapping(state.get("memory_usage")) for state in states], "token_capacity")
        or count(said.get("max_total_num_tokens")),
    )


def _first(states: list[dict[str, Any]], name: str) -> int:
    return next((value for state in states if (value := count(state.get(name)))), 0)


class FirstTokens:
    """The first token of each request, which `realtime_tokens_total` leaves out: shared among the ranks.

    They are counted for the whole server. Each new one goes to the ranks in proportion to their new tokens.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._untold = False
        """Tokens were there before it was known how many of them are first ones: those are never added."""
        self._decoded: dict[str, float] = {}
        self._shares: dict[str, float] = {}

    def add(self, ranks: Mapping[str, Rank], count: float | None) -> None:
        """Add to each rank's decode tokens what is its own of `count` first tokens; None: the page does not say."""
        if len(self._shares) > REMEMBERED_RANKS:
            self._shares.clear()
            self._decoded.clear()
            self._count = 0.0
        counted = {name: rank for name, rank in ranks.items() if q.DECODE_TOKENS in rank.counters}
        if count is None:
            self._untold = self._untold or any(rank.counters[q.DECODE_TOKENS] for rank in counted.values())
            count = self._count
        elif self._untold and not self._count:
            self._count = count
        new = {
            name: max(0.0, rank.counters[q.DECODE_TOKENS] - self._decoded.get(name, 0.0))
            for name, rank in counted.items()
        }
        total, firsts = sum(new.values()), max(0.0, count - self._count)
        for name, rank in counted.items():
            part = new[name] / total if total else 1.0 / len(counted)
            self._shares[name] = self._shares.get(name, 0.0) + firsts * part
            self._decoded[name] = rank.counters[q.DECODE_TOKENS]
            rank.counters[q.DECODE_TOKENS] += self._shares[name]
        if counted:
            self._count = max(count, self._count)


class Passes:
    """Whether the counted forward passes are all steps: not where tokens come without them."""

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._unmoved = 0

    def are_steps(self, ranks: Mapping[str, Rank]) -> bool:
        """Judge one more page."""
        counted = [rank.counters for rank in ranks.values() if q.STEPS in rank.counters]
        others = [rank.counters for rank in ranks.values() if q.STEPS not in rank.counters]
        steps, tokens = (sum(each.get(name, 0.0) for each in counted) for name in (q.STEPS, q.DECODE_TOKENS))
        last_tokens, last_steps = self._last
        self._last = (tokens, steps)
        if self._unmoved < UNMOVED:
            self._unmoved = self._unmoved + 1 if last_tokens < tokens and last_steps == steps else 0
        missing = any(each.get(q.DECODE_TOKENS) for each in others)
        return bool(counted) and not missing and self._unmoved < UNMOVED


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

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:
        """The page in canonical quantities; no rank where it has no SGLang series."""
        found = by_name(scan)
        server = self._asked(bodies)
        figures = self.collect(found)
        figures.info.update(server.info)
        if self._counts_live(found, figures, server):
            self._take_live(figures, found)
            if ENDED not in found:
                self._begin_histograms(figures)
        else:
            self._take_ended(figures)
        if self._queues - found.keys():
            # The rest of them is not all that wait.
            _leave_out(figures, q.WAITING)
        self._queues.update(name for name in QUEUES if name in found)
        _add_gauges(figures, found, server)
        role = first_label(found, "engine_type", ("sglang:num_running_reqs", REALTIME, "sglang:max_total_num_tokens"))
        if role in OF_THE_OTHER:
            figures.info["role"] = role
        self._add_failures(figures, found, apart=role in OF_THE_OTHER)
        for quantity in OF_THE_OTHER.get(role, ()):
            _leave_out(figures, quantity)
        return self.reading(
            figures,
            model=first_label(found, "model_name", ("sglang:num_running_reqs", REALTIME, *TOKENS_OF_ENDED)),
            exact_steps=self._passes.are_steps(figures.ranks),
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

    def _counts_live(self, found: Mapping[str, Found], figures: Figures, server: Server) -> bool:
        """Whether this version has live token counters, though no token may have been counted yet."""
        if found.get(REALTIME):
            return True
        ended = sum(rank.counters.get(q.DECODE_TOKENS, 0.0) for rank in figures.ranks.values())
        return not ended and bool(figures.ranks) and (SIGN_OF_LIVE in found or _version(server.version) >= LIVE_SINCE)

    def _take_ended(self, figures: Figures) -> None:
        """Tokens of ended requests: the computed ones are those that were not cached."""
        ranks, live, advance, _ = figures
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

    def _take_live(self, figures: Figures, found: Mapping[str, Found]) -> None:
        """Tokens as they are computed, where the tables gave those of ended requests or none."""
        ranks, live, _, _ = figures
        for quantity, metric in LIVE.items():
            if live.get(quantity) != str(metric):
                _leave_out(figures, quantity)
        for quantity, name in (*LIVE_NAMES.items(), *LATE.items()):
            if quantity != q.REQUESTS or (quantity not in live and ENDED not in found):
                live.setdefault(quantity, name)
                # Requests are counted for the whole server, with the first rank.
                for rank in list(ranks.values())[: 1 if quantity in (q.REQUESTS, q.ABORTS) else None]:
                    self._start_at_zero(rank, quantity)
        if live.get(q.PROMPT_TOKENS) != EFFECTIVE:
            _leave_out(figures, q.PROMPT_TOKENS)
            live[q.PROMPT_TOKENS] = f"{REALTIME} prefill_compute + prefill_cache"
            for rank in ranks.values():
                parts = [rank.counters.get(quantity) for quantity in (q.PREFILL_COMPUTED, q.PREFILL_CACHED)]
                if None not in parts:
                    rank.counters[q.PROMPT_TOKENS] = sum((part for part in parts if part), 0.0)
        _leave_out(figures, q.DECODE_RATE)
        counts = [value for _, value in picked(found, Metric(FIRST_TOKENS + "_count"))]
        self._first_tokens.add(ranks, sum(counts) if counts else None)
        live[q.DECODE_TOKENS] += f" + {FIRST_TOKENS}_count"

    def _add_failures(self, figures: Figures, found: Mapping[str, Found], *, apart: bool) -> None:
        """Requests that were answered with a server's error, or, where prefill and decode run `apart`, lost between the
        halves: one may be both. The causes stand in `info`."""
        answers: dict[str, float] = {}
        for series, value in picked(found, Metric(ANSWERS, "method", "POST")):
            if (status := series.labels.get("status_code", "")).startswith("5"):
                answers[f"HTTP {status}"] = answers.get(f"HTTP {status}", 0.0) + value
        lost = {
            cause: sum(value for _, value in self._unrepeated(picked(found, Metric(name))))
            for cause, name in LOST.items()
            if name in found
        }
        failed, told = (lost, True) if apart else (answers, ANSWERS in found)
        for rank in list(figures.ranks.values())[: 1 if told else 0]:
            if failed or not self._was_there(rank, q.FAILURES, there=False):
                self._was_there(rank, q.FAILURES, there=bool(failed))
                rank.counters[q.FAILURES] = sum(failed.values(), 0.0)
                figures.live[q.FAILURES] = " + ".join(LOST.values()) if apart else f'{ANSWERS}{{status_code="5.."}}'
        if causes := ", ".join(f"{cause} {value:.0f}" for cause, value in sorted((answers | lost).items()) if value):
            figures.info[BY_CAUSE] = causes

    def _start_at_zero(self, rank: Rank, quantity: str) -> None:
        """A series that never was there has counted nothing yet; one that was and is missing now is missing."""
        if not self._was_there(rank, quantity, there=quantity in rank.counters):
            rank.counters[quantity] = 0.0

    def _begin_histograms(self, figures: Figures) -> None:
        """Before a request has ended, a histogram that never was there has no observation yet.

        They are of the whole server and stand with its first rank; what waits is of each.
        """
        for rank in list(figures.ranks.values())[:1]:
            if rank.counters.get(q.DECODE_TOKENS) and q.TTFT not in rank.histograms:
                continue
            for rule in TABLES.histograms if len(figures.ranks) == 1 else OF_SERVER:
                if not self._was_there(rank, rule.quantity, there=rule.quantity in rank.histograms):
                    rank.histograms[rule.quantity] = NO_OBSERVATION
                    figures.live[rule.quantity] = str(rule.metrics[0])

    def _was_there(self, rank: Rank, quantity: str, *, there: bool) -> bool:
        """Whether a page of this process had it, this one included."""
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        if there:
            self._seen.add((rank.name, quantity))
        return (rank.name, quantity) in self._seen


def _leave_out(figures: Figures, quantity: str) -> None:
    figures.live.pop(quantity, None)
    figures.advance.pop(quantity, None)
    for rank in figures.ranks.values():
        rank.counters.pop(quantity, None)
        rank.gauges.pop(quantity, None)


def _add_gauges(figures: Figures, found: Mapping[str, Found], server: Server) -> None:
    ranks, live, _, _ = figures
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
        _leave_out(figures, q.MEAN_ACCEPTED)
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


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,6}", text)[:3])
