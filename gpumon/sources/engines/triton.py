"""Triton: all its models on one page, a part each, with what its TensorRT-LLM and vLLM backends add to them.

Its counters move when a request ends and carry no `_total`. The requests of an ensemble count once more in every model
that it is made of. Names and meaning: docs/user_guide/metrics.md of triton-inference-server/server, and the README.md
of tensorrtllm_backend; vllm_backend's src/utils/metrics.py writes vLLM's own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, HistogramReading
from gpumon.sources.engines import vllm
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Figures,
    Found,
    Metric,
    Rank,
    Rule,
    Tables,
    by_name,
    first_label,
    only_mean,
    picked,
    usable,
)
from gpumon.sources.engines.derived import Failures, Integral
from gpumon.sources.exposition import Scan

SUCCESSES: Final = "nv_inference_request_success"
FAILURES: Final = Failures("nv_inference_request_failure", "reason", client="CANCELED")
MICROSECONDS: Final = {
    q.E2E: "nv_inference_request_duration_us",
    q.QUEUE: "nv_inference_queue_duration_us",
}
"""Counters of the time that all successful requests together took."""
FIRST_RESPONSE: Final = "nv_inference_first_response_histogram_ms"
"""Of models that stream, with --metrics-config histogram_latencies=true."""
GPU: Final = "nv_gpu_memory_total_bytes"
MOST_GPUS: Final = 64
BLOCKS: Final = "nv_trt_llm_kv_cache_block_metrics"
ITERATIONS: Final = Metric("nv_trt_llm_general_metrics", "general_type", "iteration_counter")
GENERATING: Final = Metric(
    "nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", "generation_requests"
)


def _requests(kind: str) -> Metric:
    return Metric("nv_trt_llm_request_metrics", "request_type", kind)


def _blocks(kind: str) -> Metric:
    return Metric(BLOCKS, "kv_cache_block_type", kind)


def _joined(first: tuple[Rule, ...], then: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules of both: where both know a quantity, the metrics of the first go before."""
    before = {rule.quantity: rule for rule in first}
    joined = tuple(
        rule._replace(metrics=before[rule.quantity].metrics + rule.metrics) if rule.quantity in before else rule
        for rule in then
    )
    mine = {rule.quantity for rule in then}
    return tuple(rule for rule in first if rule.quantity not in mine) + joined


TABLES: Final = Tables(
    rank_label="",
    counters=_joined(
        tuple(rule for rule in vllm.TABLES.counters if rule.quantity not in (q.REQUESTS, q.FAILURES)),
        (
            Rule(q.REQUESTS, (Metric(SUCCESSES),)),
            Rule(q.INFERENCES, (Metric("nv_inference_count"),)),
            Rule(q.STEPS, (ITERATIONS,)),
        ),
    ),
    gauges=_joined(
        vllm.TABLES.gauges,
        (
            # Added up: each version of a model has a queue of its own.
            Rule(q.RUNNING, (_requests("active"),), added=True),
            Rule(q.WAITING, (_requests("waiting"), Metric("nv_inference_pending_request_count")), added=True),
            Rule(q.MOST_RUNNING, (_requests("max"),), added=True),
            Rule(q.KV_USAGE, (_blocks("fraction"),)),
        ),
    ),
    histograms=_joined(vllm.TABLES.histograms, (Rule(q.TTFT, (Metric(FIRST_RESPONSE),)),)),
    extra=(FAILURES.name, *MICROSECONDS.values(), GPU, GENERATING.name),
    part_label="model",
)


class TritonAdapter(Adapter):
    """One Triton server. `read` reads one of its models."""

    kind = EngineKind.TRITON
    tables = TABLES
    prefixes = ("nv_inference_", "nv_trt_llm_", "nv_pinned_memory_pool_")

    def __init__(self) -> None:
        super().__init__()
        self._decoded: dict[str, Integral] = {}

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A page for each model, each with the GPUs that the server sees: Triton does not say which it uses."""
        gpus = {one.labels.get("gpu_uuid", "") for one in scan.values if one.name == GPU} - {""}
        info = {"gpu_uuids": ",".join(sorted(gpus)[:MOST_GPUS])} if gpus else {}
        return tuple(msgspec.structs.replace(one, info={**one.info, **info}) for one in super().read_all(scan, bodies))

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """One model in canonical quantities: its versions are added up."""
        found = by_name(scan)
        figures = self.collect(found)
        ranks, live, advance, _ = figures
        for rank in ranks.values():
            FAILURES.put(rank, figures, found)
            _add_means(rank, live, found)
            _in_seconds(rank, live)
            _add_pool(rank, live, found)
        self._decode(figures, found)
        advance.update(dict.fromkeys(vllm.AT_FIRST_TOKEN & live.keys(), Advance.PROMPT))
        return self.reading(
            figures, model=first_label(found, "model", found), exact_steps=live.get(q.STEPS) == str(ITERATIONS)
        )

    def _decode(self, figures: Figures, found: Mapping[str, Found]) -> None:
        """Tokens of the TensorRT-LLM backend, which counts none: each step yields one for each generating request.

        Without speculation; the first token of a request comes from its prefill and is not in it. Each version of the
        model has steps of its own.
        """
        steps, generating = (_by_version(picked(found, metric)) for metric in (ITERATIONS, GENERATING))
        rank = next(iter(figures.ranks.values()), None)
        if rank is None or steps.keys() != generating.keys() or figures.live.get(q.STEPS) != str(ITERATIONS):
            return
        if q.DECODE_TOKENS in figures.live or q.STEPS not in rank.counters:
            return
        self._decoded = {version: self._decoded.get(version) or Integral() for version in steps}
        rank.counters[q.DECODE_TOKENS] = sum(
            self._decoded[version].add(made, generating[version]) for version, made in steps.items()
        )
        figures.live[q.DECODE_TOKENS] = f"{ITERATIONS} x {GENERATING}, added up poll by poll"
        figures.advance[q.DECODE_TOKENS] = Advance.DERIVED


def _by_version(series: Found) -> dict[str, float]:
    return {one.labels.get("version", ""): value for one, value in series}


def _add_means(rank: Rank, live: dict[str, str], found: Mapping[str, Found]) -> None:
    """Mean latencies from counters of microseconds, where there is no histogram."""
    served = picked(found, Metric(SUCCESSES))
    for quantity, name in MICROSECONDS.items():
        spent = picked(found, Metric(name))
        if quantity in live or not served or not spent:
            continue
        total, count = sum(value for _, value in spent), sum(value for _, value in served)
        if (mean := only_mean(total * 1e-6, count)) is not None:
            rank.histograms[quantity] = mean
            live[quantity] = f"{name} / {SUCCESSES}"


def _in_seconds(rank: Rank, live: Mapping[str, str]) -> None:
    if live.get(q.TTFT) == FIRST_RESPONSE and (one := rank.histograms.get(q.TTFT)) is not None:
        bounds = tuple(bound / 1000.0 for bound in one.bounds)
        rank.histograms[q.TTFT] = HistogramReading(bounds, one.counts, one.sum / 1000.0, one.count)


def _add_pool(rank: Rank, live: dict[str, str], found: Mapping[str, Found]) -> None:
    """KV pool in tokens: blocks x tokens of a block, of each version."""
    blocks, sizes = (_by_version(picked(found, _blocks(kind))) for kind in ("max", "tokens_per"))
    pool = sum(blocks[version] * sizes[version] for version in blocks.keys() & sizes.keys())
    if pool > 0.0 and usable(pool):
        rank.gauges[q.POOL_TOKENS] = pool
        live[q.POOL_TOKENS] = f"{BLOCKS} max x tokens_per: {q.BLOCK_PRODUCT}"
