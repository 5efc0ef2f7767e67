"""Columns of the tables whose cells are explained by the page of the row's thing: the cell cursor stands on these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WASTE_FIELD: Final = "waste"
"""Stands for a field: an engine's wasted GPUs follow from MFU, MBU and the number of its GPUs."""
TOKENS_GOAL_FIELD: Final = "tokens_goal"
"""Stands for one of two fields: an engine has the share within the ITL goal of its requests or of its tokens."""
QUANTILES: Final[Mapping[str, str]] = {"ttft_p50": "p50", "ttft_p99": "p99", "itl_p50": "p50", "itl_p99": "p99"}
"""Column of a latency -> its quantile, where that is not the p95."""
GOAL_OF_COLUMN: Final[Mapping[str, str]] = {"ttft_ok": "ttft_p95_ms", "itl_ok": "itl_p95_ms"}
"""Column of a share within a goal -> setting of the goal in `[goals]`."""
_FIELDS_OF_GPUS: Final[Mapping[str, tuple[str, ...]]] = {
    "busy": ("busy_window_ratio", "busy_ratio"),
    "sm": ("sm_active_window_ratio", "sm_active_ratio"),
    "vram": ("vram_used_bytes",),
    "memory": ("bandwidth_bytes_per_s",),
    "mfu": ("mfu_ratio",),
    "mbu": ("mbu_ratio",),
    "power": ("power_w",),
    "temperature": ("temperature_c",),
    "limit": ("power_limit_w",),
    "tensor": ("tensor_active_ratio",),
    "nvlink": ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
    "pcie": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "tok_j": ("tokens_per_j",),
    "clock": ("sm_clock_hz",),
    "mean": ("busy_mean_ratio",),
    "occupancy": ("sm_occupancy_ratio",),
    "memory_temperature": ("memory_temperature_c",),
    "fan": ("fan_ratio",),
    "energy": ("energy_j",),
    "link": ("pcie_generation", "pcie_width"),
}
_FIELDS_OF_ENGINES: Final[Mapping[str, tuple[str, ...]]] = {
    "running": ("running",),
    "waiting": ("waiting",),
    "kv": ("kv_usage_ratio",),
    "decode": ("decode_tokens_per_s",),
    "prefill": ("prefill_tokens_per_s",),
    "ttft": ("ttft_s",),
    "itl": ("itl_s",),
    "ttft_p50": ("ttft_s",),
    "ttft_p99": ("ttft_s",),
    "itl_p50": ("itl_s",),
    "itl_p99": ("itl_s",),
    "ttft_ok": ("ttft_goal",),
    "itl_ok": (TOKENS_GOAL_FIELD,),  # of TTFT there is one share, that of requests
    "mfu": ("mfu_ratio",),
    "mbu": ("mbu_ratio",),
    "e2e": ("e2e_s",),
    "queue": ("queue_s",),
    "req_s": ("requests_per_s",),
    "cached": ("cached_tokens_per_s",),
    "step_s": ("steps_per_s",),
    "tok_j": ("tokens_per_j",),
    "context": ("context_tokens",),
    "power": ("power_w",),
    "batch": ("batch",),
    "preempt_s": ("preemptions_per_s",),
    "flops": ("flops_per_s",),
    "traffic": ("bytes_per_s",),
    "mfu_prefill": ("mfu_prefill_ratio",),
    "mfu_decode": ("mfu_decode_ratio",),
    "kv_tokens": ("kv_pool_tokens",),
    "waste": (WASTE_FIELD,),
}
FIELDS_BY_THING: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "gpu": _FIELDS_OF_GPUS,
    "engine": _FIELDS_OF_ENGINES,
    "replicas": _FIELDS_OF_ENGINES,
    "process": {"vram": ("vram_bytes",), "sm": ("sm_ratio",), "cpu": ("cpu_ratio",), "rss": ("rss_bytes",)},
}
"""Kind of thing -> column of its table -> fields of its page."""
SUMMED_COLUMNS: Final = frozenset({"nvlink", "pcie"})
"""Columns that add their fields."""
_ENGINE_FACTS: Final[Mapping[str, str]] = {
    "model": "model",
    "full_model": "model",
    "gpus": "GPUs",
    "precision": "arithmetic in",
    "version": "server",
    "url": "server",
}
FACTS_BY_THING: Final[Mapping[str, Mapping[str, str]]] = {
    "gpu": {"name": "name"},
    "engine": _ENGINE_FACTS,
    "replicas": _ENGINE_FACTS,
    "process": {
        "user": "user",
        "engine": "engine",
        "container": "container",
        "pod": "pod",
        "type": "type",
        "time": "runs for",
    },
}
"""Kind of thing -> column of words in its table -> name of the fact on its page."""
FIRST_FIGURE: Final = "mfu"
"""Column that the cell cursor begins at, where it is in view."""


def explained_columns(kind: str) -> frozenset[str]:
    """The columns of a kind of thing that the cell cursor may stand on."""
    return frozenset((*FIELDS_BY_THING.get(kind, ()), *FACTS_BY_THING.get(kind, ())))
