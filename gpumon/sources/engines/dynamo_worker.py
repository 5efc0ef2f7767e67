"""What a Dynamo worker writes beside its engine's own metrics: an engine's adapter reads both from one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.sources.engines.adapter import Found

REQUESTS: Final = "dynamo_component_requests_total"
KV_USAGE: Final = ("dynamo_component_gpu_cache_usage_percent", "dynamo_component_kvstats_gpu_cache_usage_percent")
"""Share of the KV cache in use, 0 to 1 in spite of the names; the second until Dynamo 0.8."""
PLACE: Final = ("dynamo_namespace", "dynamo_component")
"""Labels that say which part of a deployment a worker is, such as `backend` or `prefill`."""


def place(found: Mapping[str, Found]) -> dict[str, str]:
    """The worker's place in its deployment, for `info`; empty where this is no Dynamo worker."""
    labels = next((series.labels for series, _ in found.get(REQUESTS, ())), {})
    return {name: labels[name] for name in PLACE if labels.get(name)}
