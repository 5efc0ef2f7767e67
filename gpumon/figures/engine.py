"""Figures of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.figures.figure import HIGHER, LOWER, MOMENT, TEN, Charted, Column, Exported, Figure, Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.latency import LATENCIES_OF_ENGINES, goal_figures, latency_figures
from gpumon.figures.merge import Merge
from gpumon.figures.quantity import MOST_OF_POOL, MOST_RANKS, MOST_REQUESTS, MOST_TOKENS_PER_S
from gpumon.figures.unit import (
    BYTES,
    BYTES_PER_S,
    FLOPS_PER_J,
    FLOPS_PER_S,
    GPUS,
    JOULES,
    MONEY,
    NUMBER,
    PER_REQUEST,
    PER_S,
    REQUESTS,
    SECONDS,
    SEQUENCES,
    SHARE,
    TIMES_MEAN,
    TOKENS,
    TOKENS_PER_J,
    TOKENS_PER_S,
    TOKENS_PER_STEP,
    WATTS,
)

_OUTCOMES: Final = (
    *("ended", "stopped", "cut", "aborted", "aborted_midway"),
    *("failed", "corrupted", "rejected", "refused"),
)
"""Fields of `Outcomes`, as they are exported."""


def _outcome_figures() -> Iterator[Figure]:
    """Requests by how they ended, lately and since the start."""
    for outcome in _OUTCOMES:
        labels = {"outcome": outcome}
        recent = Exported("engine_recent_requests", "Requests of the last 2 min by how they ended.", labels)
        yield Figure(f"outcomes.{outcome}", REQUESTS, exported=recent)
        since = Exported("engine_requests_total", "Requests by how they ended, by the engine's own counters.", labels)
        # How far an answer had come is not counted since the start.
        yield Figure(
            f"outcomes_since_start.{outcome}", REQUESTS, exported=None if outcome == "aborted_midway" else since
        )


def _length_figures() -> Iterator[Figure]:
    """Lengths of prompts and answers, and the buckets that they fell in."""
    for field, kind in (("prompt_tokens", "prompt"), ("answer_tokens", "answer")):
        for part in ("mean", "p50", "p95"):
            text = "Tokens of the requests that ended in the last 2 min."
            labels = {"of": kind, "figure": part}
            yield Figure(f"{field}.{part}", TOKENS, exported=Exported("engine_length_tokens", text, labels))
        for part in ("p50", "p95", "longest"):
            for bound in ("low", "high"):
                text = "The bucket of a length; `longest`: since the engine started."
                labels = {"of": kind, "figure": part, "bound": bound}
                exported = Exported("engine_length_bound_tokens", text, labels)
                yield Figure(f"{field}.{part}_{bound}", TOKENS, exported=exported)


def _phase_figures() -> Iterator[Figure]:
    """Phases of requests, and cached tokens by where they came from."""
    for phase in ("e2e", "queue", "transfer", "prefill", "decode", "rest"):
        text = "Mean time of a request's phases in the last 2 min; `e2e` is their sum."
        exported = Exported("engine_phase_seconds", text, {"phase": phase})
        yield Figure(f"phases.{phase}_s", SECONDS, exported=exported)
    for tier in ("device", "host", "disk", "peer", "external"):
        text = "Share of the cached prompt tokens of the last 2 min by where they came from."
        exported = Exported("engine_prompt_cached_by_ratio", text, {"source": tier})
        yield Figure(f"cached_by.{tier}_ratio", SHARE, exported=exported)


ENGINE: Final = Figures(
    Figure(
        "wasted_gpus",
        GPUS,
        short="waste gpu",
        name="wasted GPUs",
        window=TEN,
        listed=True,
        meaning="GPUs of the engine x (1 - the larger of MFU and MBU): what is left of their peaks; `≤` if one share "
        "is not known.",
        derived=True,
        column=Column("waste", 210),
    ),
    Figure(
        "running",
        REQUESTS,
        gauge="running",
        compared=20,
        merge=Merge.SUM,
        in_csv=True,
        most=MOST_RANKS * MOST_REQUESTS,
        short="run",
        name="running",
        window=MOMENT,
        listed=True,
        meaning="Requests that the engine works on.",
        column=Column("running", 20, sorts=True),
        charted=Charted("running", "accent"),
        exported=Exported("engine_requests_running", "Requests that are being worked on now.", with_reason=True),
    ),
    Figure(
        "running_mean",
        REQUESTS,
        exported=Exported("engine_requests_running_mean", "Mean of gpumon_engine_requests_running over 10 s."),
    ),
    Figure(
        "waiting",
        REQUESTS,
        gauge="waiting",
        compared=30,
        merge=Merge.SUM,
        in_csv=True,
        better=LOWER,
        most=MOST_RANKS * MOST_REQUESTS,
        short="wait",
        name="waiting",
        window=MOMENT,
        listed=True,
        meaning="Requests in its queue.",
        column=Column("waiting", 30, sorts=True),
        level="waiting",
        charted=Charted("waiting", "warn"),
        exported=Exported("engine_requests_waiting", "Requests in the queue now."),
    ),
    Figure(
        "waiting_deferred",
        REQUESTS,
        gauge="waiting_deferred",
        name="deferred",
        most=MOST_RANKS * MOST_REQUESTS,
        exported=Exported("engine_requests_deferred", "Those of them that do not wait for room."),
    ),
    Figure(
        "lora_slots",
        NUMBER,
        gauge="lora_slots",
        name="LoRA slots",
        exported=Exported("engine_lora_slots", "LoRA adapters that it can serve at once."),
    ),
    Figure(
        "lora_loaded",
        NUMBER,
        gauge="lora_loaded",
        name="LoRA loaded",
        exported=Exported(
            "engine_lora_adapters", "LoRA adapters with a slot, and those waited for.", labels={"state": "loaded"}
        ),
    ),
    Figure(
        "lora_waiting",
        NUMBER,
        gauge="lora_waiting",
        name="LoRA waiting",
        exported=Exported("engine_lora_adapters", labels={"state": "waiting"}),
    ),
    Figure(
        "router_queue",
        REQUESTS,
        gauge="router_queue",
        name="held by its router",
        most=MOST_RANKS * MOST_REQUESTS,
        exported=Exported("engine_router_queue_requests", "Requests that its router has given to no worker yet."),
    ),
    Figure(
        "backends_known",
        NUMBER,
        gauge="backends",
        name="backends",
        exported=Exported("engine_backends", "Backends of a front end."),
    ),
    Figure(
        "backends_ready",
        NUMBER,
        gauge="backends_ready",
        exported=Exported("engine_backends_ready", "Those of them that it sends requests to."),
    ),
    Figure(
        "kv_usage_ratio",
        SHARE,
        compared=200,
        merge=Merge.MOST,
        in_csv=True,
        most=MOST_OF_POOL,
        short="kv",
        name="KV cache",
        window=MOMENT,
        listed=True,
        meaning="Blocks of the engine's KV cache in use, of all it has.",
        column=Column("kv", 40, sorts=True),
        level="kv",
        charted=Charted("kv", "ok", of_all=", fullest"),
        exported=Exported(
            "engine_kv_cache_used_ratio", "Share of the KV cache in use now, mean of the ranks.", with_reason=True
        ),
    ),
    Figure(
        "kv_pool_tokens",
        TOKENS,
        short="kv tokens",
        name="KV cache holds",
        column=Column("kv_tokens", 360, width=9),
        exported=Exported("engine_kv_cache_size_tokens", "Tokens that the KV cache holds, all ranks."),
    ),
    Figure(
        "prefill_tokens_per_s",
        TOKENS_PER_S,
        compared=60,
        merge=Merge.SUM,
        in_csv=True,
        counts="prefill_computed_tokens",
        most=MOST_RANKS * MOST_TOKENS_PER_S,
        short="prefill",
        name="prefill",
        window="10 s, or the longest prefill",
        listed=True,
        meaning="Prompt tokens computed (input), without those from the prefix cache.",
        column=Column("prefill", 60, sorts=True),
        charted=Charted("prefill", "tokens"),
        exported=Exported(
            "engine_prefill_tokens_per_second", "Prompt tokens computed; none of the cache.", with_reason=True
        ),
    ),
    Figure(
        "decode_tokens_per_s",
        TOKENS_PER_S,
        compared=80,
        merge=Merge.SUM,
        in_csv=True,
        counts="decode_tokens",
        better=HIGHER,
        most=MOST_RANKS * MOST_TOKENS_PER_S,
        short="decode",
        name="decode",
        window=TEN,
        listed=True,
        meaning="Tokens generated (output).",
        column=Column("decode", 50, sorts=True),
        charted=Charted("decode", "tokens", mean_s=10.0),
        exported=Exported("engine_decode_tokens_per_second", "Tokens generated, over 10 s.", with_reason=True),
    ),
    Figure(
        "cached_tokens_per_s",
        TOKENS_PER_S,
        compared=70,
        merge=Merge.SUM,
        in_csv=True,
        counts="prefill_cached_tokens",
        short="cached",
        name="prefill cached",
        window=TEN,
        listed=True,
        meaning="Prompt tokens taken from the prefix cache.",
        column=Column("cached", 160, width=6),
        exported=Exported("engine_cached_tokens_per_second", "Prompt tokens from the prefix cache."),
    ),
    Figure(
        "decode_mean_tokens_per_s",
        TOKENS_PER_S,
        name="decode, mean",
        exported=Exported("engine_decode_mean_tokens_per_second", "Mean of 10 minutes at most."),
    ),
    Figure(
        "requests_per_s",
        PER_S,
        compared=10,
        merge=Merge.SUM,
        in_csv=True,
        counts="requests",
        short="req/s",
        name="requests",
        window=TEN,
        listed=True,
        meaning="Requests that ended.",
        column=Column("req_s", 130, width=5),
        exported=Exported("engine_requests_per_second", "Requests that ended, over 10 s."),
    ),
    Figure(
        "failures_per_s",
        PER_S,
        compared=220,
        counts="failures",
        better=LOWER,
        name="failures",
        exported=Exported("engine_failures_per_second", "Requests that ended in an error."),
    ),
    Figure(
        "rejections_per_s",
        PER_S,
        compared=230,
        name="turned away",
        counts="rejections",
        better=LOWER,
        exported=Exported("engine_rejections_per_second", "Requests turned away before they ran."),
    ),
    Figure(
        "kv_fetch_waiting",
        REQUESTS,
        gauge="kv_fetch_waiting",
        name="KV to be fetched",
        exported=Exported(
            "engine_kv_fetches", "Waiting requests by how far their KV cache is.", labels={"stage": "waiting"}
        ),
    ),
    Figure(
        "kv_fetch_running",
        REQUESTS,
        gauge="kv_fetch_running",
        name="KV on its way",
        exported=Exported(
            "engine_kv_fetches", "Waiting requests by how far their KV cache is.", labels={"stage": "running"}
        ),
    ),
    Figure(
        "kv_fetch_done",
        REQUESTS,
        gauge="kv_fetch_done",
        name="KV here, waiting",
        exported=Exported(
            "engine_kv_fetches", "Waiting requests by how far their KV cache is.", labels={"stage": "done"}
        ),
    ),
    Figure(
        "aborted_tokens_mean",
        TOKENS,
        name="tokens at abort",
        exported=Exported("engine_aborted_tokens_mean", "Mean tokens of answers that were given up midway."),
    ),
    Figure(
        "preemptions_mean",
        PER_REQUEST,
        name="preemptions",
        exported=Exported("engine_preemptions_per_request", "Mean of the requests of the last 60 s that ended."),
    ),
    Figure(
        "expert_balance_ratio",
        SHARE,
        name="expert balance",
        exported=Exported("engine_expert_balance_ratio", "Mean load of the experts' GPUs / that of the busiest."),
    ),
    Figure(
        "rank_imbalance",
        TIMES_MEAN,
        name="busiest rank",
        exported=Exported("engine_rank_imbalance", "Tokens of the busiest rank in a step / the mean of all."),
    ),
    Figure(
        "scheduler_idle_ratio",
        SHARE,
        name="scheduler idle",
        exported=Exported("engine_scheduler_idle_ratio", "Share of 60 s in which its scheduler had no request."),
    ),
    Figure(
        "forward_ratio",
        SHARE,
        name="GPUs in steps",
        exported=Exported("engine_forward_ratio", "Share of 60 s in which its GPUs computed steps, by its own clock."),
    ),
    Figure(
        "prefill_retries_per_s",
        PER_S,
        name="prefill put off",
        counts="prefill_retries",
        exported=Exported("engine_prefill_retries_per_second", "Prompts that were put off after their prefill."),
    ),
    Figure(
        "refused_per_s",
        PER_S,
        name="refused (HTTP 4xx)",
        counts="refused",
        exported=Exported("engine_refused_per_second", "Requests that were answered with HTTP 4xx."),
    ),
    Figure(
        "corrupted_per_s",
        PER_S,
        name="NaN in logits",
        counts="corrupted",
        exported=Exported("engine_corrupted_per_second", "Requests that ended with a NaN in their logits."),
    ),
    Figure(
        "kv_stored_bytes_per_s",
        BYTES_PER_S,
        name="KV stored",
        counts="kv_stored_bytes",
        exported=Exported("engine_kv_stored_bytes_per_second", "KV cache copied from the GPUs to a tier."),
    ),
    Figure(
        "kv_loaded_bytes_per_s",
        BYTES_PER_S,
        name="KV loaded",
        counts="kv_loaded_bytes",
        exported=Exported("engine_kv_loaded_bytes_per_second", "KV cache copied back to the GPUs."),
    ),
    Figure(
        "kv_transferred_bytes_per_s",
        BYTES_PER_S,
        name="KV transferred",
        counts="kv_transferred_bytes",
        exported=Exported("engine_kv_transferred_bytes_per_second", "KV cache of another engine's."),
    ),
    Figure(
        "kv_transfer_failures_per_s",
        PER_S,
        name="KV transfer fails",
        counts="kv_transfer_failures",
        exported=Exported("engine_kv_transfer_failures_per_second", "Transfers of KV that failed."),
    ),
    Figure(
        "kv_expired_per_s",
        PER_S,
        name="KV not fetched",
        counts="kv_expired_requests",
        exported=Exported("engine_kv_expired_requests_per_second", "Requests whose KV cache no engine took in time."),
    ),
    Figure(
        "kv_late_reads_per_s",
        PER_S,
        name="KV read too late",
        counts="kv_late_reads",
        exported=Exported("engine_kv_late_reads_per_second", "Reads of KV cache after it was given up."),
    ),
    Figure(
        "kv_tier_written_bytes_per_s",
        BYTES_PER_S,
        name="KV tiers written",
        counts="kv_tier_written_bytes",
        exported=Exported("engine_kv_tier_written_bytes_per_second", "KV cache from host memory to a disk or store."),
    ),
    Figure(
        "kv_tier_read_bytes_per_s",
        BYTES_PER_S,
        name="KV tiers read",
        counts="kv_tier_read_bytes",
        exported=Exported("engine_kv_tier_read_bytes_per_second", "KV cache from a disk or store to host memory."),
    ),
    Figure(
        "kv_copy_failures_per_s",
        PER_S,
        name="KV copies failed",
        counts="kv_copy_failures",
        exported=Exported("engine_kv_copy_failures_per_second", "Copies of KV cache that failed or found no room."),
    ),
    Figure(
        "aborts_per_s",
        PER_S,
        name="aborts",
        counts="aborts",
        exported=Exported("engine_aborts_per_second", "Requests that their client gave up, or somebody cancelled."),
    ),
    Figure(
        "inferences_per_s",
        PER_S,
        short="items",
        name="items",
        counts="inferences",
        exported=Exported("engine_inferences_per_second", "Items of a server of models that are no LLMs."),
    ),
    Figure(
        "steps_per_s",
        PER_S,
        short="step/s",
        name="steps",
        window=TEN,
        listed=True,
        meaning="Forward passes; each gives a request in decode one token, or several with speculative decoding.",
        column=Column("step_s", 170, width=6),
        exported=Exported("engine_steps_per_second", "Forward passes."),
    ),
    Figure(
        "preemptions_per_s",
        PER_S,
        compared=210,
        counts="preemptions",
        better=LOWER,
        short="preempt/s",
        name="preemptions",
        window=TEN,
        listed=True,
        meaning="Running requests that were thrown out of a full KV cache and are computed again.",
        column=Column("preempt_s", 270, width=9),
        charted=Charted("preempt", "warn", name="preemptions/s"),
        exported=Exported("engine_preemptions_per_second", "Requests thrown out of the KV cache."),
    ),
    Figure(
        "tokens_per_step",
        TOKENS_PER_STEP,
        name="tokens per step",
        exported=Exported("engine_tokens_per_step", "Tokens per step and sequence: 1 without speculation."),
    ),
    Figure(
        "acceptance_ratio",
        SHARE,
        compared=240,
        name="drafts accepted",
        better=HIGHER,
        most=MOST_OF_POOL,
        exported=Exported("engine_speculation_accepted_ratio", "Share of the draft tokens that were accepted."),
    ),
    Figure(
        "batch",
        SEQUENCES,
        short="batch",
        name="batch",
        window=TEN,
        listed=True,
        meaning="Sequences in one step of a rank.",
        column=Column("batch", 260, width=5),
        exported=Exported("engine_batch_sequences", "Mean sequences per step of one rank."),
    ),
    Figure(
        "context_tokens",
        TOKENS,
        short="context",
        name="context",
        window=MOMENT,
        listed=True,
        meaning="Mean tokens of a running request: its prompt and what it has generated.",
        column=Column("context", 190, width=7),
        exported=Exported("engine_context_tokens", "Mean tokens in context of a running sequence."),
    ),
    Figure(
        "prompt_tokens_mean",
        TOKENS,
        compared=40,
        name="prompt tokens",
        exported=Exported("engine_prompt_tokens_mean", "Mean prompt of the requests of the last 60 s."),
    ),
    Figure(
        "answer_tokens_mean",
        TOKENS,
        compared=50,
        name="answer tokens",
        exported=Exported("engine_answer_tokens_mean", "Mean answer of the requests of the last 60 s."),
    ),
    Figure(
        "cached_ratio",
        SHARE,
        exported=Exported("engine_prompt_cached_ratio", "Share of prompt tokens from the prefix cache, 60 s."),
    ),
    Figure(
        "prefill_token_s",
        SECONDS,
        name="prefill per token",
        exported=Exported("engine_prefill_token_seconds", "Seconds of prefill per computed prompt token, 60 s."),
    ),
    Figure(
        "itl_mean_s",
        SECONDS,
        exported=Exported("engine_itl_mean_10s_seconds", "Mean time per token after the first, over 10 s."),
    ),
    *latency_figures("engine", *LATENCIES_OF_ENGINES),
    *goal_figures("engine"),
    *_outcome_figures(),
    *_length_figures(),
    *_phase_figures(),
    Figure("seen.seconds", SECONDS, exported=Exported("engine_seen_seconds", "Time in which gpumon watched it.")),
    Figure(
        "seen.requests",
        REQUESTS,
        name="requests",
        exported=Exported("engine_seen_requests_total", "Requests that ended since gpumon started."),
    ),
    Figure(
        "seen.peak_running",
        REQUESTS,
        name="most running",
        exported=Exported("engine_requests_peak", "Most at a poll since gpumon started.", {"of": "running"}),
    ),
    Figure(
        "seen.peak_waiting",
        REQUESTS,
        name="most waiting",
        exported=Exported("engine_requests_peak", labels={"of": "waiting"}),
    ),
    Figure(
        "seen.busy_ratio",
        SHARE,
        name="busy",
        exported=Exported("engine_busy_ratio", "Share of time with a request since gpumon started."),
    ),
    Figure(
        "tokens_total.prefill_computed",
        TOKENS,
        exported=Exported("engine_tokens_total", "Since gpumon started.", labels={"kind": "prefill"}),
    ),
    Figure("tokens_total.prefill_cached", TOKENS, exported=Exported("engine_tokens_total", labels={"kind": "cached"})),
    Figure("tokens_total.decode", TOKENS, exported=Exported("engine_tokens_total", labels={"kind": "decode"})),
    Figure("tokens_total.trained", TOKENS, exported=Exported("engine_tokens_total", labels={"kind": "trained"})),
    Figure(
        "tokens_total.samples",
        NUMBER,
        exported=Exported("engine_training_samples_total", "Samples that a training run consumed."),
    ),
    Figure(
        "samples_per_s",
        PER_S,
        short="samples",
        name="samples",
        exported=Exported("engine_training_samples_per_second", "Samples of a training run, all its GPUs."),
    ),
    Figure(
        "trained_tokens_per_s",
        TOKENS_PER_S,
        compared=90,
        merge=Merge.SUM,
        in_csv=True,
        counts="trained_tokens",
        better=HIGHER,
        short="trained",
        name="trained",
        exported=Exported("engine_training_tokens_per_second", "Tokens of a training run, all its GPUs."),
    ),
    Figure(
        "mfu_ratio",
        SHARE,
        compared=250,
        merge=Merge.MEAN,
        in_csv=True,
        better=HIGHER,
        short="mfu",
        name="MFU",
        window=TEN,
        listed=True,
        meaning=GPU["mfu_ratio"].meaning,
        column=Column("mfu", 90, sorts=True),
        exported=Exported("engine_mfu_ratio", "Model FLOPs utilization: FLOP/s of its model / peak.", with_reason=True),
    ),
    Figure(
        "mfu_prefill_ratio",
        SHARE,
        short="mfu pre",
        name="MFU of prefill",
        column=Column("mfu_prefill", 340, width=7),
        exported=Exported("engine_mfu_part_ratio", "What it consists of.", labels={"part": "prefill"}),
    ),
    Figure(
        "mfu_decode_ratio",
        SHARE,
        short="mfu dec",
        name="MFU of decode",
        column=Column("mfu_decode", 350, width=7),
        exported=Exported("engine_mfu_part_ratio", labels={"part": "decode"}),
    ),
    Figure(
        "mbu_ratio",
        SHARE,
        compared=260,
        merge=Merge.MEAN,
        in_csv=True,
        better=HIGHER,
        short="mbu",
        name="MBU",
        window=TEN,
        listed=True,
        meaning=GPU["mbu_ratio"].meaning,
        column=Column("mbu", 95, sorts=True),
        exported=Exported(
            "engine_mbu_ratio", "Model bandwidth utilization: bytes that its steps need / peak.", with_reason=True
        ),
    ),
    Figure(
        "mbu_single_stream_ratio",
        SHARE,
        name="single-stream form",
        exported=Exported("engine_mbu_single_stream_ratio", "Parameters x bytes x tokens/s / peak."),
    ),
    Figure(
        "flops_per_s",
        FLOPS_PER_S,
        short="FLOP/s",
        name="FLOP/s",
        column=Column("flops", 320, width=6),
        exported=Exported("engine_flops_per_second", "FLOP/s of its model."),
    ),
    Figure(
        "prefill_flops_per_s",
        FLOPS_PER_S,
        name="prefill FLOP/s",
        exported=Exported("engine_part_flops_per_second", "What they consist of.", labels={"part": "prefill"}),
    ),
    Figure(
        "decode_flops_per_s",
        FLOPS_PER_S,
        name="decode FLOP/s",
        exported=Exported("engine_part_flops_per_second", labels={"part": "decode"}),
    ),
    Figure(
        "bytes_per_s",
        BYTES_PER_S,
        short="B/s",
        name="all B/s",
        column=Column("traffic", 330, width=5),
        exported=Exported("engine_memory_bytes_per_second", "Bytes that its steps read and write."),
    ),
    Figure(
        "weight_bytes_per_s",
        BYTES_PER_S,
        name="weights B/s",
        exported=Exported("engine_memory_part_bytes_per_second", "What they consist of.", labels={"part": "weights"}),
    ),
    Figure(
        "kv_bytes_per_s",
        BYTES_PER_S,
        name="KV cache B/s",
        exported=Exported("engine_memory_part_bytes_per_second", labels={"part": "kv"}),
    ),
    Figure(
        "power_w",
        WATTS,
        compared=270,
        in_csv=True,
        short="power",
        name="power",
        column=Column("power", 250, width=5),
        exported=Exported("engine_power_watts", "Power of its GPUs, mean of 10 s."),
    ),
    Figure(
        "tokens_per_j",
        TOKENS_PER_J,
        compared=280,
        in_csv=True,
        better=HIGHER,
        short="tok/J",
        name="tokens per joule",
        window=TEN,
        listed=True,
        meaning=GPU["tokens_per_j"].meaning,
        column=Column("tok_j", 180, width=5),
        exported=Exported("engine_tokens_per_joule", "Decode tokens / energy of its GPUs."),
    ),
    Figure(
        "flops_per_j",
        FLOPS_PER_J,
        name="FLOPs per joule",
        exported=Exported("engine_flops_per_joule", "FLOPs of its model / energy of its GPUs."),
    ),
    Figure(
        "cost_per_hour",
        MONEY,
        compared=290,
        name="$/h",
        better=LOWER,
        exported=Exported("engine_cost_per_hour", "Price of an hour of its GPUs, in the currency of the config."),
    ),
    Figure(
        "cost_per_million_output_tokens",
        MONEY,
        compared=300,
        name="$/1M out",
        better=LOWER,
        exported=Exported("engine_cost_per_million_tokens", "At the rates of now.", labels={"of": "output"}),
    ),
    Figure(
        "cost_per_million_all_tokens",
        MONEY,
        name="per 1M in + out",
        exported=Exported("engine_cost_per_million_tokens", labels={"of": "all"}),
    ),
    Figure("unused_s", SECONDS, exported=Exported("engine_unused_seconds_total", "Time in which it ran no request.")),
    Figure(
        "unused_cost",
        MONEY,
        name="unused cost",
        exported=Exported("engine_unused_cost_total", "Price of its GPUs in that time."),
    ),
    Figure(
        "energy_j",
        JOULES,
        name="energy",
        exported=Exported("engine_energy_joules_total", "Energy of its GPUs since gpumon saw it first."),
    ),
    Figure(
        "energy_cost", MONEY, name="energy cost", exported=Exported("engine_energy_cost_total", "Price of that energy.")
    ),
    Figure(
        "gpu_count",
        GPUS,
        name="number of GPUs",
        most=65536.0,
        exported=Exported("engine_gpus", "GPUs that it runs on."),
    ),
    Figure(
        "params", NUMBER, name="parameters", exported=Exported("engine_model_parameters", "Parameters of its model.")
    ),
    Figure(
        "active_params",
        NUMBER,
        name="used per token",
        exported=Exported("engine_model_active_parameters", "Those of them that a token uses."),
    ),
    Figure("layers", NUMBER, name="layers", exported=Exported("engine_model_layers", "Layers of its model.")),
    Figure(
        "weight_bytes",
        BYTES,
        name="weights of a step",
        exported=Exported("engine_model_step_weight_bytes", "Weights that one step reads at this batch."),
    ),
    Figure(
        "kv_bytes_per_token",
        NUMBER,
        name="KV of a token",
        exported=Exported("engine_model_kv_token_bytes", "KV cache of one token in context, one copy."),
    ),
    Figure(
        "flops_per_decode_token",
        NUMBER,
        name="FLOPs per token",
        exported=Exported("engine_model_decode_token_flops", "FLOPs of a token at the present context."),
    ),
    Figure(
        "peak_flops_per_s",
        FLOPS_PER_S,
        name="peak FLOP/s",
        exported=Exported("engine_peak_flops_per_second", "Dense peak of its GPUs: MFU's denominator."),
    ),
    Figure(
        "peak_bandwidth_bytes_per_s",
        BYTES_PER_S,
        name="peak bandwidth",
        exported=Exported("engine_peak_memory_bytes_per_second", "Of its GPUs: MBU's denominator."),
    ),
    Figure(
        "own.flops_per_s",
        FLOPS_PER_S,
        exported=Exported("engine_own_flops_per_second", "FLOP/s by the engine's own count."),
    ),
    Figure(
        "own.read_bytes_per_s",
        BYTES_PER_S,
        exported=Exported("engine_own_memory_bytes_per_second", "By its own count.", labels={"direction": "read"}),
    ),
    Figure(
        "own.write_bytes_per_s",
        BYTES_PER_S,
        exported=Exported("engine_own_memory_bytes_per_second", labels={"direction": "write"}),
    ),
    Figure(
        "own.flops_ratio", SHARE, exported=Exported("engine_own_flops_ratio", "The engine's own FLOP/s / gpumon's.")
    ),
    Figure(
        "own.read_bytes_ratio",
        SHARE,
        exported=Exported("engine_own_read_bytes_ratio", "The engine's own bytes read / gpumon's."),
    ),
    Figure(
        "own_memory.weight_bytes",
        BYTES,
        exported=Exported("engine_own_memory_size_bytes", "By its own table, one GPU.", labels={"of": "weights"}),
    ),
    Figure("own_memory.kv_bytes", BYTES, exported=Exported("engine_own_memory_size_bytes", labels={"of": "kv"})),
    Figure("own_memory.graph_bytes", BYTES, exported=Exported("engine_own_memory_size_bytes", labels={"of": "graphs"})),
    Figure(
        "own_memory.weight_ratio",
        SHARE,
        exported=Exported("engine_own_memory_ratio", "That / gpumon's figure.", labels={"of": "weights"}),
    ),
    Figure("own_memory.kv_ratio", SHARE, exported=Exported("engine_own_memory_ratio", labels={"of": "kv"})),
    Figure(
        "tp",
        NUMBER,
        exported=Exported("engine_tensor_parallel", "GPUs that share each layer of one rank.", zero_is_unknown=True),
    ),
    Figure(
        "pp",
        NUMBER,
        exported=Exported("engine_pipeline_parallel", "Pipeline stages of one instance.", zero_is_unknown=True),
    ),
    Figure(
        "ranks",
        NUMBER,
        exported=Exported("engine_data_parallel", "Instances of the model on their own GPUs.", zero_is_unknown=True),
    ),
    Figure("host_kv_usage_ratio", SHARE, name="KV in host memory", most=MOST_OF_POOL),
    Figure("since_start.seconds", SECONDS),
    Figure("since_start.prefill_tokens_per_s", TOKENS_PER_S, name="prefill"),
    Figure("since_start.decode_tokens_per_s", TOKENS_PER_S, name="decode"),
    Figure("since_start.requests_per_s", PER_S, name="requests"),
    Figure("since_start.ttft_s", SECONDS, name="TTFT, mean"),
    Figure("since_start.itl_s", SECONDS, name="ITL, mean"),
    Figure("since_start.ttft_count", NUMBER),
    Figure("since_start.itl_count", NUMBER),
)
"""Figures of an engine, by flat path: `mfu_ratio`, `ttft_s.p95`."""
GAUGE_OF_FIGURE: Final = {row.field: row.gauge for row in ENGINE.values() if row.gauge}
"""Field of an engine -> the gauge whose newest value it is."""
RATES_OF_WORK: Final = tuple(ENGINE[field] for field in ("trained_tokens_per_s", "samples_per_s", "inferences_per_s"))
"""Rates of a training run, and of a model that is no LLM: what they do makes no tokens for anybody."""
RANK: Final = Figures(
    Figure(
        "running",
        REQUESTS,
        most=MOST_REQUESTS,
        exported=Exported("engine_rank_requests_running", "Requests that a data-parallel rank works on, mean of 10 s."),
    ),
    Figure(
        "waiting",
        REQUESTS,
        most=MOST_REQUESTS,
        exported=Exported("engine_rank_requests_waiting", "Requests in a rank's queue, mean of 10 s."),
    ),
    Figure(
        "kv_usage_ratio",
        SHARE,
        most=MOST_OF_POOL,
        exported=Exported("engine_rank_kv_cache_used_ratio", "Share of a rank's KV cache in use, mean of 10 s."),
    ),
    Figure(
        "decode_tokens_per_s",
        TOKENS_PER_S,
        most=MOST_TOKENS_PER_S,
        exported=Exported("engine_rank_decode_tokens_per_second", "Tokens that a rank generates, over 10 s."),
    ),
)
"""Figures of a data-parallel rank."""
BACKEND: Final = Figures(
    Figure(
        "ready",
        NUMBER,
        exported=Exported("engine_backend_ready", "1 where a front end sends requests to this backend, else 0."),
    ),
    Figure(
        "running",
        REQUESTS,
        exported=Exported("engine_backend_requests_running", "Requests that a front end has at this backend."),
    ),
    Figure(
        "waiting",
        REQUESTS,
        exported=Exported(
            "engine_backend_requests_waiting", "Requests in the backend's queue, as its front end knows."
        ),
    ),
    Figure(
        "requests_per_s",
        PER_S,
        exported=Exported("engine_backend_requests_per_second", "Requests to this backend, over 10 s."),
    ),
    Figure(
        "failures_per_s",
        PER_S,
        exported=Exported("engine_backend_failures_per_second", "Requests that failed at this backend, over 10 s."),
    ),
)
"""Figures of a backend of a front end."""
