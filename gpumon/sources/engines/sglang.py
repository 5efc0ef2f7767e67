"""SGLang: live counters from 0.5.7 on, gauges and counts of ended requests before; every rank of a group once.

Names and when they move: srt/observability/metrics_collector.py and srt/managers/scheduler_components/
metrics_reporter.py of 0.5.23, and what came before them (srt/metrics/collector.py).

What the live counters count, by metrics_reporter.py:
- `realtime_tokens_total{mode="decode"}`: at each decode step one token per running sequence, and accepted drafts. A
  request's first token comes with its prefill and is not in it; it is counted by the tokeniser, as one TTFT
  (srt/managers/tokenizer_manager.py). Generated tokens are the sum of both.
- `realtime_tokens_total{mode="prefill_compute"}` and `{mode="prefill_cache"}`: at each prefill step the tokens that it
  computes, and those that it finds in the cache. The tokens of prompts are their sum. It has twice
  what a retraction makes SGLang compute again.
- `prefill_effective_tokens_total` (0.5.18): the same sum without that second time.
- `prompt_tokens_total`, `generation_tokens_total`, `cached_tokens_total`: whole requests, when they end. They are never
  added to the live ones: before 0.5.7 they serve alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import note_causes, put_refusals
from gpumon.sources.engines.histograms import only_mean
from gpumon.sources.engines.json_body import first_items, mapping, parse_json, positive_count, text
from gpumon.sources.engines.launch_form import HOST_PORT, NODE, Catch, LaunchForm
from gpumon.sources.engines.page_figures import MOST_REMEMBERED, PageFigures, Rank, series_sum
from gpumon.sources.engines.tables import CompanionPage, Metric, Rule, Tables, rule
from gpumon.specs import hints
from gpumon.specs.units import GIB

REALTIME: Final = "sglang:realtime_tokens_total"
EFFECTIVE: Final = "sglang:prefill_effective_tokens_total"
FIRST_TOKENS: Final = "sglang:time_to_first_token_seconds_count"
SIGN_OF_LIVE: Final = "sglang:decode_sum_seq_lens"
"""Came with `realtime_tokens_total`, and is there before the first token."""
LIVE_SINCE: Final = (0, 5, 7)
"""Version from which on tokens are counted live."""
LIVE: Final = {
    q.PREFILL_COMPUTED: Metric(REALTIME, "mode", "prefill_compute"),
    q.PREFILL_CACHED: Metric(REALTIME, "mode", "prefill_cache"),
    q.DECODE_TOKENS: Metric(REALTIME, "mode", "decode"),
}
"""Quantity -> its live counter. The series of a mode is there from its first token on."""
_LATE_COUNTERS: Final = {
    **{quantity: str(metric) for quantity, metric in LIVE.items()},
    q.PREEMPTIONS: "sglang:num_retracted_requests_total",
    q.REQUESTS: "sglang:num_requests_total",
    q.ABORTS: "sglang:num_aborted_requests_total (not there yet: none was aborted)",
}
"""Quantity -> counter that every version with live tokens has, whose series is there from its first count on.

Requests and aborts are counted for the whole server, the others for each rank.
"""
NONE_CACHED: Final = "sglang:cached_tokens_total (not there yet: nothing was cached)"
"""It came together with the count of requests (0.4.6), and is there from the first hit on."""
_ANSWERS: Final = "sglang:http_responses_total"
"""Answers by status, of the whole server: without the labels that other series have."""
GENERATES: Final = frozenset(
    {
        "/generate",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/api/generate",
    }
)
"""Paths whose answers are those to requests for tokens."""
LOST_REQUESTS: Final = {
    "KV transfer": "sglang:num_transfer_failed_reqs_total",
    "bootstrap": "sglang:num_bootstrap_failed_reqs_total",
}
"""Requests that failed on their way from prefill to decode; every rank of a group counts them."""
GRAMMAR_FAILURES: Final = {
    "grammar timeout": "sglang:num_grammar_timeout_total",
    "grammar aborted": "sglang:num_grammar_aborted_total",
}
"""Requests whose grammar could not be compiled (in time): causes of answers with an error."""
EXPERT_BALANCE: Final = ("sglang:eplb_balancedness_sum", "sglang:eplb_balancedness_count")
"""A summary by kind of step, where the distribution over experts is recorded: of the lowest rank of experts."""
_ENDED: Final = "sglang:generation_tokens_total"
"""Generated tokens of ended requests."""
QUEUES: Final = (
    "sglang:num_grammar_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs",
    "sglang:num_decode_transfer_queue_reqs",
)
"""Requests that wait elsewhere than in `num_queue_reqs`."""
KV_QUEUES: Final = (
    "sglang:num_decode_transfer_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
)
"""Requests of `QUEUES` that wait for the other half: for its KV cache, or until it takes theirs."""
COUNTED_BY_OTHER_HALF: Final = {
    "prefill": (q.DECODE_TOKENS, q.USED_TOKENS),
    "decode": (q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED),
}
"""`engine_type` of the halves of a server whose prefill and decode run apart -> what the other half counts.

Both count a request's prompt when it ends, and both its first token.
"""
_MEMORY: Final = {
    q.OWN_WEIGHT_BYTES: "sglang:weight_memory_usage_gb",
    q.OWN_KV_BYTES: "sglang:kv_cache_memory_usage_gb",
    # By phase.
    q.OWN_GRAPH_BYTES: "sglang:graph_memory_usage_gb",
}
"""Memory of one GPU, from 0.5.18 on: in GiB, in spite of the names."""
_HOST_USED: Final = "sglang:hicache_host_used_tokens"
_HOST_TOTAL: Final = "sglang:hicache_host_total_tokens"
SERVER_INFO: Final = CompanionPage("/server_info", 10.0)
_SETTINGS: Final = {
    "model_path": hints.MODEL_PATH,
    "dtype": hints.WEIGHT_PRECISION,
    "quantization": hints.QUANTIZATION,
    "kv_cache_dtype": hints.KV_DTYPE,
    "mamba_ssm_dtype": hints.STATE_DTYPE,
    "context_length": hints.CONTEXT_LEN,
    "speculative_algorithm": hints.SPECULATION,
    "page_size": "block_size",
    "mem_fraction_static": "gpu_memory_utilization",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "ep_size": "ep_size",
    "speculative_num_draft_tokens": "speculative_num_draft_tokens",
    "disaggregation_mode": "disaggregation_mode",
}
"""Server argument -> key in `info`."""
MOST_UNMOVED_POLLS: Final = 2
"""Polls in a row with new tokens and no new pass, after which the passes are no step counter."""

_rule = partial(rule, prefix="sglang:")
_at_end = partial(Metric, advance=Advance.END)
"""A metric that counts when a request ends."""


def _cached_by(quantity: str, mode: str, source: str) -> Rule:
    """Cached prompt tokens of one tier; before 0.5.18 those of requests that ended."""
    return Rule(
        quantity, (Metric(EFFECTIVE, "mode", mode), _at_end("sglang:cached_tokens_total", "cache_source", source))
    )


_TABLES: Final = Tables(
    rank_label="dp_rank",
    model_label="model_name",
    model_samples=("sglang:num_running_reqs", REALTIME, _ENDED, "sglang:prompt_tokens_total"),
    # Every rank of a tensor- or expert-parallel group, and every pipeline stage, may report the same figures: which
    # of them do differs from version to version, so the lowest of each counts.
    repeated=("tp_rank", "pp_rank", "moe_ep_rank"),
    # With priority scheduling the scheduler's gauges come as a whole (`priority=""`) and for each priority. Counters
    # and histograms are of requests, each with its own.
    priority_label="priority",
    counters=(
        # From 0.5.18 on, without what is computed a second time after a retraction; before, it is worked out below.
        Rule(q.PROMPT_TOKENS, (Metric(EFFECTIVE), _at_end("sglang:prompt_tokens_total"))),
        Rule(q.PREFILL_COMPUTED, (LIVE[q.PREFILL_COMPUTED],)),
        # `total` is the sum of the other sources; older versions do not tell them apart.
        Rule(
            q.PREFILL_CACHED,
            (
                LIVE[q.PREFILL_CACHED],
                _at_end("sglang:cached_tokens_total", "cache_source", "total"),
                _at_end("sglang:cached_tokens_total"),
            ),
        ),
        Rule(q.DECODE_TOKENS, (LIVE[q.DECODE_TOKENS], _at_end(_ENDED))),
        # Counted once for each forward pass, whether it is a CUDA graph or not: decode passes, and prefill passes
        # where the version counts them.
        _rule(q.STEPS, "cuda_graph_passes_total"),
        _rule(q.REQUESTS, "num_requests_total"),
        # From 0.5.22 on: of all requests that end, those alone that were not aborted and have more than one token.
        _rule(q.WHOLE_ANSWERS, "request_time_per_output_token_seconds_count"),
        _rule(q.PREEMPTIONS, "num_retracted_requests_total"),
        _rule(q.ABORTS, "num_aborted_requests_total"),
        # On the prefill half.
        _rule(q.PREFILL_RETRIES, "num_prefill_retries_total"),
        # From 0.5.20 on.
        _rule(q.SCHEDULER_IDLE_S, "scheduler_idle_seconds_total"),
        # From 0.5.7 on, where the device's timer is on.
        _rule(q.FORWARD_S, "forward_execution_seconds_total", "gpu_execution_seconds_total"),
        _cached_by(q.CACHED_DEVICE, "device_hit", "device"),
        _cached_by(q.CACHED_HOST, "host_hit", "host"),
        _cached_by(q.CACHED_DISK, "storage_hit", "storage"),
        _rule(q.OWN_FLOPS, "estimated_flops_per_gpu_total"),
        _rule(q.OWN_READ_BYTES, "estimated_read_bytes_per_gpu_total"),
        _rule(q.OWN_WRITE_BYTES, "estimated_write_bytes_per_gpu_total"),
    ),
    gauges=(
        _rule(q.RUNNING, "num_running_reqs"),
        Rule(q.WAITING, (Metric("sglang:num_queue_reqs"),), added=True, also=QUEUES),
        Rule(q.WAITING_DEFERRED, tuple(Metric(name) for name in KV_QUEUES[:1]), added=True, also=KV_QUEUES[1:]),
        # While weights are updated.
        _rule(q.PAUSED, "num_paused_reqs"),
        # Exact, and of the fullest pool of a model with layers of several kinds; else rounded to 0.01.
        Rule(
            q.KV_USAGE,
            (Metric("sglang:full_token_usage"), Metric("sglang:token_usage")),
            also=("sglang:swa_token_usage", "sglang:mamba_usage"),
        ),
        _rule(q.POOL_TOKENS, "max_total_num_tokens"),
        # What the decode steps read: the lengths of all running sequences. `num_used_tokens` counts a shared prefix
        # once although each sequence reads it, and in a hybrid model it is one pool's.
        rule(q.USED_TOKENS, SIGN_OF_LIVE, "sglang:num_used_tokens"),
        _rule(q.DECODE_RATE, "gen_throughput", advance=Advance.SAMPLED),
        _rule(q.MEAN_ACCEPTED, "spec_accept_length", advance=Advance.SAMPLED),
        _rule(q.ACCEPTANCE, "spec_accept_rate", advance=Advance.SAMPLED),
        # From 0.5.7 on. Which adapters are waited for it does not say.
        _rule(q.LORA_SLOTS, "lora_pool_slots_total"),
        _rule(q.LORA_LOADED, "lora_pool_slots_used"),
    ),
    histograms=(
        _rule(q.TTFT, "time_to_first_token_seconds"),
        _rule(q.ITL, "inter_token_latency_seconds", "time_per_output_token_seconds"),
        _rule(q.E2E, "e2e_request_latency_seconds"),
        _rule(q.QUEUE, "queue_time_seconds"),
        # From 0.5.22 on.
        _rule(q.TPOT, "request_time_per_output_token_seconds"),
        _rule(q.PROMPT_LENGTH, "prompt_tokens_histogram"),
        _rule(q.OUTPUT_LENGTH, "generation_tokens_histogram"),
        # Where attention is data-parallel.
        _rule(q.RANK_IMBALANCE, "dp_attention_token_imbalance_ratio"),
    ),
    extra=(
        _ANSWERS,
        *LOST_REQUESTS.values(),
        *GRAMMAR_FAILURES.values(),
        *EXPERT_BALANCE,
        *_MEMORY.values(),
        _HOST_USED,
        _HOST_TOTAL,
    ),
)


class ServerSettings(NamedTuple):
    """The settings of one server; 0 or empty where it does not tell one."""

    info: Mapping[str, str] = MappingProxyType({})
    version: str = ""
    tp: int = 0
    """Tensor-parallel GPUs of one data-parallel rank: tp x pp x dp is the number of GPUs."""
    pp: int = 0
    dp: int = 0
    most_running: int = 0
    """Requests that one data-parallel rank runs at once."""
    pool_tokens: int = 0
    """Tokens of KV that one data-parallel rank holds."""


def parse_server_info(body: bytes) -> ServerSettings:
    """The answer of /server_info; empty where it is none. Raises nothing."""
    settings = mapping(parse_json(body))
    info = _settings_of(settings)
    tp = positive_count(settings.get("tp_size"))
    dp = positive_count(settings.get("dp_size"))
    # The ranks of data-parallel attention share the GPUs of the tensor-parallel group.
    if settings.get("enable_dp_attention") is True and dp:
        tp = max(1, tp // dp)
        info["dp_attention"] = "yes"
    states = [mapping(state) for state in first_items(settings.get("internal_states"))]
    most_running = _first_count(states, "effective_max_running_requests_per_dp")
    if not most_running:
        most_running = positive_count(settings.get("max_running_requests")) // max(1, dp)
    pool_tokens = _first_count([mapping(state.get("memory_usage")) for state in states], "token_capacity")
    if not pool_tokens:
        pool_tokens = positive_count(settings.get("max_total_num_tokens"))
    return ServerSettings(
        info=info,
        version=text(settings.get("version")),
        tp=tp,
        pp=positive_count(settings.get("pp_size")),
        dp=dp,
        most_running=most_running,
        pool_tokens=pool_tokens,
    )


def _settings_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings of /server_info that `info` of a reading has."""
    unset = ("", "null", "None", "none")
    texts = {key: text(settings.get(name)) for name, key in _SETTINGS.items()}
    info = {key: value for key, value in texts.items() if value not in unset}
    if hints.KV_DTYPE in info:
        info["cache_dtype"] = info[hints.KV_DTYPE]
    if settings.get("disable_radix_cache") in (True, False):
        info["enable_prefix_caching"] = str(not settings["disable_radix_cache"])
    if settings.get("disable_cuda_graph") in (True, False):
        info["disable_cuda_graph"] = str(settings["disable_cuda_graph"])
    return info


def _first_count(parts: Sequence[Mapping[str, Any]], name: str) -> int:
    """The first count of this name that is not 0; else 0."""
    for part in parts:
        value = positive_count(part.get(name))
        if value:
            return value
    return 0


class SglangAdapter(Adapter):
    """One SGLang server. Data-parallel ranks come as readings of their own, by their `dp_rank` label.

    What its tokeniser counts (requests, latencies) has no rank: it stands with rank 0.
    """

    kind = EngineKind.SGLANG
    tables = _TABLES
    prefixes = ("sglang:",)
    companions = (SERVER_INFO,)

    def __init__(self) -> None:
        super().__init__()
        self._server_body = b""
        """Newest answer of `SERVER_INFO`."""
        self._server = ServerSettings()
        """The settings in `_server_body`."""
        self._quantities_seen: set[tuple[str, str]] = set()
        """(rank, quantity) of all that a page of this process has had."""
        self._first_tokens = 0.0
        """First tokens of requests so far: it never falls, though a page may lack the series."""
        self._most_ranks = 1
        """The most ranks that a page has had: the share of each may not change when a rank is missing for a poll."""
        self._last_progress = (0.0, 0.0)
        """Steps and tokens at the last poll."""
        self._unmoved_polls = 0
        """Polls in a row with new tokens and no new step."""

    def refine(self, figures: PageFigures) -> None:
        """Add live tokens or those of ended requests, and the settings.

        A prefill or decode half leaves out what the other half of its server counts.
        """
        body = figures.bodies.get(SERVER_INFO.path, b"")
        if body and body is not self._server_body:
            self._server = parse_server_info(body)
            self._server_body = body
        server = self._server
        figures.info.update(server.info)
        figures.model_root = server.info.get(hints.MODEL_PATH, "")
        figures.version = server.version
        figures.tp = server.tp
        figures.pp = server.pp
        figures.dp = server.dp
        if self._counts_live(figures):
            self._take_live(figures)
        else:
            self._take_ended(figures)
        _add_gauges(figures, server)
        self._add_memory(figures)
        role = figures.first_label("engine_type", ("sglang:num_running_reqs", REALTIME, "sglang:max_total_num_tokens"))
        if role in COUNTED_BY_OTHER_HALF:
            figures.info["role"] = role
        else:
            figures.leave_out(q.WAITING_DEFERRED)
        self._add_failures(figures, is_half=role in COUNTED_BY_OTHER_HALF)
        _add_refusals(figures)
        self._add_expert_balance(figures)
        for quantity in COUNTED_BY_OTHER_HALF.get(role, ()):
            figures.leave_out(quantity)
        figures.exact_steps = self._passes_are_steps(figures)

    def _counts_live(self, figures: PageFigures) -> bool:
        """Whether this version has live token counters, though no token may have been counted yet."""
        if figures.samples.get(REALTIME):
            return True
        ended = figures.counter_total(q.DECODE_TOKENS)
        version = tuple(int(part) for part in re.findall(r"\d{1,6}", self._server.version)[:3])
        return not ended and bool(figures.ranks) and (SIGN_OF_LIVE in figures.samples or version >= LIVE_SINCE)

    def _take_ended(self, figures: PageFigures) -> None:
        """Take the tokens of ended requests: the computed ones are those that were not cached."""
        if figures.live.keys() >= {q.PROMPT_TOKENS, q.REQUESTS, q.RUNNING}:
            figures.live.setdefault(q.PREFILL_CACHED, NONE_CACHED)
            figures.advance[q.PREFILL_CACHED] = Advance.END
            for rank in figures.ranks.values():
                if q.PROMPT_TOKENS in rank.counters:
                    self._start_at_zero(rank, q.PREFILL_CACHED)
        self.work_out_prefill(figures)
        for rank in figures.ranks.values():
            # The engine's own rate keeps its last value for up to 30 s after the last request.
            if rank.gauges.get(q.RUNNING) == 0.0 and q.DECODE_RATE in rank.gauges:
                rank.gauges[q.DECODE_RATE] = 0.0

    def _take_live(self, figures: PageFigures) -> None:
        """Take the tokens as they are computed, where the tables gave those of ended requests or none."""
        for quantity, metric in LIVE.items():
            if figures.live.get(quantity) != str(metric):
                figures.leave_out(quantity)
        self._start_late_counters(figures)
        _add_live_prompts(figures)
        figures.leave_out(q.DECODE_RATE)  # the counter gives a better one
        self._add_first_tokens(figures)

    def _start_late_counters(self, figures: PageFigures) -> None:
        """Let the counters begin at 0 whose series come with their first count.

        Those of the whole server stand in its first rank.
        """
        ranks = list(figures.ranks.values())
        for quantity, name in _LATE_COUNTERS.items():
            if quantity == q.REQUESTS and (quantity in figures.live or _ENDED in figures.samples):
                continue
            figures.live.setdefault(quantity, name)
            is_of_server = quantity in (q.REQUESTS, q.ABORTS)
            counting_ranks = ranks[:1] if is_of_server else ranks
            for rank in counting_ranks:
                self._start_at_zero(rank, quantity)

    def _add_first_tokens(self, figures: PageFigures) -> None:
        """Add the first tokens of requests, which `realtime_tokens_total` leaves out.

        They are counted for the whole server: each rank gets an equal share.
        """
        self._first_tokens = max(self._first_tokens, figures.total(Metric(FIRST_TOKENS)))
        self._most_ranks = max(self._most_ranks, len(figures.ranks))
        for rank in figures.ranks.values():
            if q.DECODE_TOKENS in rank.counters:
                rank.counters[q.DECODE_TOKENS] += self._first_tokens / self._most_ranks
        if self._first_tokens:
            figures.live[q.DECODE_TOKENS] += f" + {FIRST_TOKENS}"

    def _add_failures(self, figures: PageFigures, *, is_half: bool) -> None:
        """Add failed requests: those answered with a server's error, or of a half those lost between the halves.

        Never both: a lost one may also be answered with an error.
        """
        answers = _server_errors(figures)
        lost = self._counts_by_cause(figures, LOST_REQUESTS)
        note_causes(figures, answers | lost | self._counts_by_cause(figures, GRAMMAR_FAILURES))
        if is_half:
            failed = lost
            source = " + ".join(LOST_REQUESTS.values())
        elif _ANSWERS in figures.samples:
            failed = answers
            source = f'{_ANSWERS}{{status_code="5.."}}'
        else:
            return
        if not figures.ranks:
            return
        first_rank = next(iter(figures.ranks.values()))
        if failed:
            self._note_quantity(first_rank, q.FAILURES)
        elif self._has_had(first_rank, q.FAILURES):  # their series are missing: that is not 0
            return
        figures.put(first_rank.counters, q.FAILURES, sum(failed.values()), source)

    def _counts_by_cause(self, figures: PageFigures, names: Mapping[str, str]) -> dict[str, float]:
        """Requests by their cause, of counters that every rank of a group may have; `names`: cause -> counter."""
        return {
            cause: series_sum(self.tables.without_repeats(figures.samples_of(Metric(name))))
            for cause, name in names.items()
            if name in figures.samples
        }

    def _add_memory(self, figures: PageFigures) -> None:
        """Add the engine's own table of a GPU's memory, and how full the host's part of the KV cache is."""
        for quantity, name in _MEMORY.items():
            for rank_name, total in self._rank_sums(figures, name).items():
                figures.put(figures.ranks[rank_name].gauges, quantity, total * GIB, name)
        used = self._rank_sums(figures, _HOST_USED)
        for rank_name, total in self._rank_sums(figures, _HOST_TOTAL).items():
            if total and rank_name in used:
                gauges = figures.ranks[rank_name].gauges
                figures.put(gauges, q.HOST_KV_USAGE, used[rank_name] / total, f"{_HOST_USED} / {_HOST_TOTAL}")

    def _rank_sums(self, figures: PageFigures, name: str) -> dict[str, float]:
        """Sum of a metric by rank, of the ranks that have figures; what several processes report counts once."""
        sums: dict[str, float] = {}
        for series, value in self.tables.without_repeats(figures.samples_of(Metric(name))):
            rank_name = self.tables.rank_of(series)
            if rank_name in figures.ranks:
                sums[rank_name] = sums.get(rank_name, 0.0) + value
        return sums

    def _add_expert_balance(self, figures: PageFigures) -> None:
        """Add how evenly the steps of each rank load the GPUs of its experts."""
        sums: dict[str, list[float]] = {}
        for index, name in enumerate(EXPERT_BALANCE):
            for series, value in self.tables.without_repeats(figures.samples_of(Metric(name))):
                sums.setdefault(self.tables.rank_of(series), [0.0, 0.0])[index] += value
        for rank_name, (total, count) in sums.items():
            rank = figures.ranks.get(rank_name)
            observed = only_mean(total, count)
            if rank is not None and observed is not None:
                rank.histograms[q.EXPERT_BALANCE] = observed
                figures.live[q.EXPERT_BALANCE] = "sglang:eplb_balancedness"

    def _passes_are_steps(self, figures: PageFigures) -> bool:
        """Whether the counted forward passes are all steps: not where tokens come without them."""
        ranks = [rank.counters for rank in figures.ranks.values()]
        counted = [counters for counters in ranks if q.STEPS in counters]
        uncounted = [counters for counters in ranks if q.STEPS not in counters]
        self._watch_steps(counted)
        if not counted or self._unmoved_polls >= MOST_UNMOVED_POLLS:
            return False
        return not any(counters.get(q.DECODE_TOKENS) for counters in uncounted)

    def _watch_steps(self, counted: Iterable[Mapping[str, float]]) -> None:
        """Count the polls in a row at which there were more tokens and no more steps."""
        steps = 0.0
        tokens = 0.0
        for counters in counted:
            steps += counters[q.STEPS]
            tokens += counters.get(q.DECODE_TOKENS, 0.0)
        last_steps, last_tokens = self._last_progress
        self._last_progress = (steps, tokens)
        if self._unmoved_polls >= MOST_UNMOVED_POLLS:
            return
        if last_tokens < tokens and last_steps == steps:
            self._unmoved_polls += 1
        else:
            self._unmoved_polls = 0

    def _start_at_zero(self, rank: Rank, quantity: str) -> None:
        """Put 0 for a counter whose series has not been there yet; one that was there before stays missing."""
        if quantity in rank.counters:
            self._note_quantity(rank, quantity)
        elif not self._has_had(rank, quantity):
            rank.counters[quantity] = 0.0

    def _note_quantity(self, rank: Rank, quantity: str) -> None:
        """Remember that a page has had this quantity of a rank."""
        if len(self._quantities_seen) > MOST_REMEMBERED:
            self._quantities_seen.clear()
        self._quantities_seen.add((rank.name, quantity))

    def _has_had(self, rank: Rank, quantity: str) -> bool:
        """Whether a page of this process has had this quantity of a rank."""
        return (rank.name, quantity) in self._quantities_seen


def _server_errors(figures: PageFigures) -> dict[str, float]:
    """Requests that were answered with a server's error, by its status as `HTTP 500`."""
    answers: dict[str, float] = {}
    for series, value in figures.samples_of(Metric(_ANSWERS, "method", "POST")):
        status = series.labels.get("status_code", "")
        if status.startswith("5"):
            answers[f"HTTP {status}"] = answers.get(f"HTTP {status}", 0.0) + value
    return answers


def _add_refusals(figures: PageFigures) -> None:
    """Add the requests for tokens that were refused, by their status."""
    if _ANSWERS not in figures.samples:
        return
    asked = [
        (series, value)
        for series, value in figures.samples_of(Metric(_ANSWERS, "method", "POST"))
        if series.labels.get("endpoint") in GENERATES
    ]
    put_refusals(figures, asked, "status_code", _ANSWERS)


def _add_live_prompts(figures: PageFigures) -> None:
    """Put the tokens of prompts into each rank: computed ones and those from the cache."""
    if figures.live.get(q.PROMPT_TOKENS) == EFFECTIVE:  # the server counts them itself
        return
    figures.leave_out(q.PROMPT_TOKENS)
    figures.live[q.PROMPT_TOKENS] = f"{REALTIME} prefill_compute + prefill_cache"
    for rank in figures.ranks.values():
        computed = rank.counters.get(q.PREFILL_COMPUTED)
        cached = rank.counters.get(q.PREFILL_CACHED)
        if computed is not None and cached is not None:
            rank.counters[q.PROMPT_TOKENS] = computed + cached


def _add_gauges(figures: PageFigures, server: ServerSettings) -> None:
    """Add the limits of the settings, and leave out gauges that mean nothing now."""
    # Both are 0 where nothing is speculated.
    if not any(rank.gauges.get(q.MEAN_ACCEPTED) for rank in figures.ranks.values()):
        figures.leave_out(q.MEAN_ACCEPTED)
        figures.leave_out(q.ACCEPTANCE)
    limits = {q.MOST_RUNNING: (server.most_running, "max_running_requests")}
    if q.POOL_TOKENS not in figures.live:
        limits[q.POOL_TOKENS] = (server.pool_tokens, "token_capacity")
    for rank in figures.ranks.values():
        # Without a running request, this gauge still has the lengths of the last batch.
        if rank.gauges.get(q.RUNNING) == 0.0 and figures.live.get(q.USED_TOKENS) == SIGN_OF_LIVE:
            rank.gauges.pop(q.USED_TOKENS, None)
        for quantity, (value, name) in limits.items():
            if value and q.RUNNING in rank.gauges:
                figures.put(rank.gauges, quantity, float(value), f"{SERVER_INFO.path} {name}")


ENGINE: Final = EngineRow(
    "SGLang",
    SglangAdapter,
    port=30000,
    switch="start it with --enable-metrics",
    names_from="0.5.23, October 2026",
    forms=(
        LaunchForm(
            EngineKind.SGLANG,
            "SGLang",
            ("sglang.launch_server", "sglang serve"),
            options={
                **HOST_PORT,
                "model": "--model-path --model",
                "served_name": "--served-model-name",
                "tp": "--tensor-parallel-size --tp-size --tp",
                "pp": "--pipeline-parallel-size --pp-size --pp",
                "dp": "--data-parallel-size --dp-size --dp",
                "on": "--enable-metrics",
                "key": "--api-key",
                "tls": "--ssl-keyfile --ssl-certfile",
                "quantization": "--quantization",
                "kv_dtype": "--kv-cache-dtype",
                "state_dtype": "--mamba-ssm-dtype",
                "cpu_offload_gb": "--cpu-offload-gb",
                "file": "--config",
                "slots": "--max-running-requests",
                "step_tokens": "--max-prefill-tokens",
                "context_tokens": "--context-length",
                "memory_share": "--mem-fraction-static",
                "eager": "--disable-cuda-graph --disable-decode-cuda-graph",
                "chunk_tokens": "--chunked-prefill-size",
                "ep_size": "--expert-parallel-size --ep-size --ep",
                "lora": "--enable-lora",
                "lora_slots": "--max-loras-per-batch",
                "dtype": "--dtype",
                "speculation": "--speculative-algorithm",
                "draft_tokens": "--speculative-num-draft-tokens",
            },
            inverse={"prefix_caching": "--disable-radix-cache"},
            abbreviates=True,
            positional=True,
            catches=(
                Catch("--node-rank", NODE, ("0",)),
                Catch("--grpc-mode", "it serves gRPC: add the URL of its HTTP port"),
            ),
        ),
    ),
    instead=(EngineKind.SGLANG_DIFFUSION,),
)
