"""Scenarios that several tests ask, and what sizing may look up."""

from __future__ import annotations

from typing import Any

from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from tests.records import replace

KNOWN = Catalogues(gpu_catalogue(), llm_catalogue(), prices={"H100 SXM5 80GB": 2.49}, networks=network_catalogue())

NIM_70B = Observed(
    origin=Origin.LIVE,
    name="NIM Llama-3.3-70B",
    model="meta-llama/Llama-3.3-70B-Instruct-FP8",
    gpu="H100 SXM5 80GB",
    gpus=2,
    tp=2,
    weight_precision="fp8",
    kv_precision="fp8",
    prompt_tokens=5000.0,
    answer_tokens=500.0,
    kv_pool_tokens=85.5 * 5500 / 0.9,
    points=tuple(
        Point(running, itl_s=itl / 1e3, offered=offered, ttft_s=ttft / 1e3, tokens_per_s=rate)
        for running, offered, itl, ttft, rate in (
            (1.0, 1.0, 18.58, 407.0, 51.7),
            (5.0, 5.0, 21.83, 547.0, 218.0),
            (25.0, 25.0, 38.75, 689.0, 623.0),
            (50.0, 50.0, 59.73, 835.0, 814.0),
            (85.2, 100.0, 92.91, 7996.0, 917.0),
        )
    ),
)
"""docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance: Llama-3.3-70B FP8, 2 x H100, 5000 in, 500 out."""

GUIDE = Scenario(
    name="design guide",
    packing="memory",
    server=(Server("H100 PCIe 80GB", gpus=4),),
    workload=(
        Workload("NeMo 5B", 64, capacity_per_instance=4, memory_gb=12.41, busy_ratio=0.99),
        Workload("NeMo 20B", 128, capacity_per_instance=16, memory_gb=44.76, busy_ratio=0.935),
    ),
)
"""Dell H19686: 64 users of NeMo GPT 5B and 128 of 20B."""

SEVENTY = Scenario(
    itl_p95_ms=100.0,
    server=(Server("H100 SXM5 80GB"),),
    workload=(Workload("meta-llama/Llama-3.3-70B-Instruct-FP8", 512, seen=NIM_70B),),
)


def changed(scenario: Scenario, at: int = 0, **fields: Any) -> Scenario:
    """With other fields in one workload."""
    workloads = list(scenario.workload)
    workloads[at] = replace(workloads[at], **fields)
    return replace(scenario, workload=tuple(workloads))
