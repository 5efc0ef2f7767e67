"""Triton: all its models on one page, a part each, with what its TensorRT-LLM and vLLM backends add to them.

Its counters move when a request ends and carry no `_total`. The requests of an ensemble count once more in every model
that it is made of. Names and meaning: docs/user_guide/metrics.md of triton-inference-server/server, and the README.md
of tensorrtllm_backend; vllm_backend's src/utils/metrics.py writes vLLM's own names.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines import vllm
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import Failures
from gpumon.sources.engines.histograms import only_mean
from gpumon.sources.engines.launch_form import Catch, LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, Rank, is_usable, series_sum
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule, Tables, rule

_SUCCESSES: Final = "nv_inference_request_success"
_FAILURES: Final = Failures("nv_inference_request_failure", "reason", client="CANCELED", turned_away="REJECTED")
MICROSECONDS: Final = {
    q.E2E: "nv_inference_request_duration_us",
    q.QUEUE: "nv_inference_queue_duration_us",
}
"""Counters of the time that all successful requests together took."""
_BLOCKS: Final = "nv_trt_llm_kv_cache_block_metrics"
"""Series of the TensorRT-LLM backend: blocks in use, at most, and tokens in each, by a label."""
ITERATIONS: Final = Metric("nv_trt_llm_general_metrics", "general_type", "iteration_counter")
"""Steps of the TensorRT-LLM backend."""
_GENERATING: Final = Metric(
    "nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", "generation_requests"
)


"""Requests of the TensorRT-LLM backend that are in their decode phase."""


def _request_metric(kind: str) -> Metric:
    """The metric of the TensorRT-LLM backend that counts requests of this kind (`active`, `waiting`, `max`)."""
    return Metric("nv_trt_llm_request_metrics", "request_type", kind)


def _join_rules(vllm_rules: tuple[Rule, ...], triton_rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules of both. Where both have a quantity, Triton's rule holds, and tries the metrics of vLLM's first."""
    vllm_by_quantity = {vllm_rule.quantity: vllm_rule for vllm_rule in vllm_rules}
    triton_quantities = {triton_rule.quantity for triton_rule in triton_rules}
    joined = [vllm_rule for vllm_rule in vllm_rules if vllm_rule.quantity not in triton_quantities]
    for triton_rule in triton_rules:
        vllm_rule = vllm_by_quantity.get(triton_rule.quantity)
        if vllm_rule is None:
            joined.append(triton_rule)
        else:
            joined.append(triton_rule._replace(metrics=vllm_rule.metrics + triton_rule.metrics))
    return tuple(joined)


class TritonAdapter(Adapter):
    """One Triton server. `read` reads one of its models, whose versions are added up."""

    kind = EngineKind.TRITON
    prefixes = ("nv_inference_", "nv_trt_llm_", "nv_pinned_memory_pool_")
    tables = Tables(
        rank_label="",
        part_label="model",
        model_label="model",
        counters=_join_rules(
            tuple(
                counter
                for counter in vllm.TABLES.counters
                if counter.quantity not in (q.REQUESTS, q.FAILURES, q.ABORTS)
            ),
            (
                rule(q.REQUESTS, _SUCCESSES),
                rule(q.INFERENCES, "nv_inference_count"),
                Rule(q.STEPS, (ITERATIONS,)),
            ),
        ),
        gauges=_join_rules(
            vllm.TABLES.gauges,
            (
                # Added up: each version of a model has a queue of its own.
                Rule(q.RUNNING, (_request_metric("active"),), added=True),
                Rule(q.WAITING, (_request_metric("waiting"), Metric("nv_inference_pending_request_count")), added=True),
                Rule(q.MOST_RUNNING, (_request_metric("max"),), added=True),
                Rule(q.KV_USAGE, (Metric(_BLOCKS, "kv_cache_block_type", "fraction"),)),
            ),
        ),
        histograms=vllm.TABLES.histograms,
        extra=(_FAILURES.name, *MICROSECONDS.values(), _GENERATING.name),
    )

    def __init__(self) -> None:
        super().__init__()
        self._last_poll: dict[str, tuple[float, float]] = {}
        """Version of the model -> its steps and generating requests at the last poll."""
        self._decoded: dict[str, float] = {}
        """Version of the model -> its tokens so far."""

    def refine(self, figures: PageFigures) -> None:
        """Add mean latencies, the KV pool, and the tokens of its TensorRT-LLM backend."""
        _FAILURES.put(figures)
        for rank in figures.ranks.values():
            _add_means(rank, figures)
            blocks = _by_version(figures.samples_of(Metric(_BLOCKS, "kv_cache_block_type", "max")))
            sizes = _by_version(figures.samples_of(Metric(_BLOCKS, "kv_cache_block_type", "tokens_per")))
            pool = sum(blocks[version] * sizes[version] for version in blocks.keys() & sizes.keys())
            if pool > 0.0:
                figures.put(rank.gauges, q.POOL_TOKENS, pool, f"{_BLOCKS} max x tokens_per: {q.BLOCK_PRODUCT}")
            self._add_decoded(rank, figures)
        figures.exact_steps = figures.live.get(q.STEPS) == str(ITERATIONS)

    def _add_decoded(self, rank: Rank, figures: PageFigures) -> None:
        """Add the tokens of the TensorRT-LLM backend, which counts none: each step yields one for each generating
        request (the mean of two polls).

        Without speculation; the first token of a request comes from its prefill and is not in it. Each version of the
        model has steps of its own. A step counter that falls is another process: it begins again at 0.
        """
        steps = _by_version(figures.samples_of(ITERATIONS))
        generating = _by_version(figures.samples_of(_GENERATING))
        if steps.keys() != generating.keys() or q.STEPS not in rank.counters or q.DECODE_TOKENS in figures.live:
            return
        decoded = {}
        for version, count in steps.items():
            last_count, last_generating = self._last_poll.get(version, (count, 0.0))
            mean_generating = (last_generating + generating[version]) / 2
            total = self._decoded.get(version, 0.0) + (count - last_count) * mean_generating
            decoded[version] = 0.0
            if count >= last_count and is_usable(total):
                decoded[version] = total
        self._last_poll = {version: (steps[version], generating[version]) for version in steps}
        self._decoded = decoded
        source = f"{ITERATIONS} x {_GENERATING}, added up poll by poll"
        figures.put(rank.counters, q.DECODE_TOKENS, sum(decoded.values()), source, Advance.DERIVED)


def _by_version(samples: FoundSeries) -> dict[str, float]:
    """The value of each version of the model."""
    return {series.labels.get("version", ""): value for series, value in samples}


def _add_means(rank: Rank, figures: PageFigures) -> None:
    """Add mean latencies from counters of microseconds, where there is no histogram."""
    served = figures.samples_of(Metric(_SUCCESSES))
    for quantity, name in MICROSECONDS.items():
        spent = figures.samples_of(Metric(name))
        if quantity in figures.live or not served or not spent:
            continue
        mean = only_mean(series_sum(spent) * 1e-6, series_sum(served))
        if mean is not None:
            rank.histograms[quantity] = mean
            figures.live[quantity] = f"{name} / {_SUCCESSES}"


ENGINE: Final = EngineRow(
    "Triton",
    TritonAdapter,
    port=8002,
    models_path="",
    names_from="2.51",
    forms=(
        LaunchForm(
            EngineKind.TRITON,
            "Triton",
            ("tritonserver",),
            options={"host": "--metrics-address --http-address", "port": "--metrics-port"},
            catches=(
                Catch(
                    "--allow-metrics",
                    "its metrics are off: start it without --allow-metrics=false",
                    ("true", "True", "1", "on"),
                ),
            ),
        ),
        LaunchForm(EngineKind.TRITON, "Triton", ("triton_python_backend_stub",), part=True),
    ),
)
