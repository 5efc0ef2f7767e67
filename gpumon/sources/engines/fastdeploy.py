"""FastDeploy (PaddlePaddle): metric names of its source; its series have no labels.

Names and when they move: fastdeploy/metrics/metrics.py (4613567), output/token_processor.py (00f68c3) and
engine/sched/resource_manager_v1.py of PaddlePaddle/FastDeploy 2.x; docs/online_serving/metrics.md (19d8ac2) for
`num_requests_enqueued`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, whole_number
from gpumon.sources.engines.tables import Metric, Rule, Tables, rule

_CONFIG: Final = "fastdeploy:cache_config_info"
_BLOCKS: Final = Metric("fastdeploy:max_gpu_block_num")
_QUEUED: Final = "fastdeploy:num_requests_enqueued"
"""Requests that have no slot yet, in newer versions; `num_requests_waiting` has those with one that do not run."""
_SWITCH: Final = "add the URL with the number of its --metrics-port (8001 where it is not given)"

_rule = partial(rule, prefix="fastdeploy:")


class FastDeployAdapter(Adapter):
    """One FastDeploy server.

    No computed prefill: prompts are counted as they arrive, refused ones included, and cached tokens as they are
    scheduled, so that the difference is no work of now.
    """

    kind = EngineKind.FASTDEPLOY
    prefixes = ("fastdeploy:",)
    from_documentation = True
    tables = Tables(
        rank_label="",
        counters=(
            _rule(q.PROMPT_TOKENS, "prompt_tokens_total", advance=Advance.PROMPT),
            _rule(q.PREFILL_CACHED, "prefix_cache_token_num_total", advance=Advance.PROMPT),
            _rule(q.CACHED_DEVICE, "prefix_gpu_cache_token_num_total", advance=Advance.PROMPT),
            _rule(q.CACHED_HOST, "prefix_cpu_cache_token_num_total", advance=Advance.PROMPT),
            _rule(q.DECODE_TOKENS, "generation_tokens_total"),
            # Those that were answered to their end.
            _rule(q.REQUESTS, "request_success_total"),
            _rule(q.KV_TRANSFER_FAILURES, "send_cache_failed_num_total"),
            _rule(q.DRAFTED_TOKENS, "spec_decode_num_draft_tokens_total"),
            _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
        ),
        gauges=(
            _rule(q.RUNNING, "num_requests_running"),
            Rule(q.WAITING, (Metric("fastdeploy:num_requests_waiting"),), added=True, also=(_QUEUED,)),
            _rule(q.KV_USAGE, "gpu_cache_usage_perc"),
            _rule(q.MOST_RUNNING, "max_batch_size"),
        ),
        histograms=(
            _rule(q.TTFT, "time_to_first_token_seconds"),
            # Between two outputs of a request, however many tokens one brings.
            _rule(q.ITL, "time_per_output_token_seconds"),
            _rule(q.E2E, "e2e_request_latency_seconds"),
            _rule(q.QUEUE, "request_queue_time_seconds"),
            _rule(q.PREFILL_TIME, "request_prefill_time_seconds"),
            _rule(q.DECODE_TIME, "request_decode_time_seconds"),
            _rule(q.PROMPT_LENGTH, "request_prompt_tokens"),
            _rule(q.OUTPUT_LENGTH, "request_generation_tokens"),
        ),
        extra=(_CONFIG, _BLOCKS.name),
    )

    def refine(self, figures: PageFigures) -> None:
        """Add the KV pool in tokens."""
        block_tokens = whole_number(figures.labels(_CONFIG).get("block_size", ""))
        pool = figures.total(_BLOCKS) * block_tokens
        if pool:
            for rank in figures.ranks.values():
                figures.put(rank.gauges, q.POOL_TOKENS, pool, f"{_BLOCKS} x block_size of {_CONFIG}")


ENGINE: Final = EngineRow(
    "FastDeploy",
    FastDeployAdapter,
    port=8000,
    switch=_SWITCH,
    names_from="2.x at 4613567, 00f68c3, 19d8ac2",
    forms=(
        LaunchForm(
            EngineKind.FASTDEPLOY,
            "FastDeploy",
            (
                "fastdeploy serve",
                "fastdeploy.entrypoints.openai.api_server",
                "fastdeploy.entrypoints.openai.multi_api_server",
            ),
            options={
                "host": "--host",
                "port": "--metrics-port --port",
                "model": "--model",
                "served_name": "--served-model-name",
                "tp": "--tensor-parallel-size",
                "dp": "--data-parallel-size",
                "quantization": "--quantization",
                "key": "--api-key",
            },
            positional=True,
        ),
    ),
)
