"""Which figures a question and what was seen may have: least, most and unit of each. What lies outside is no figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.sizing.observed import Observed, Point
from gpumon.sizing.scenario import Scenario, Server


class Range(NamedTuple):
    """Least and most, both allowed, and the unit that a message names."""

    low: float
    high: float
    unit: str = ""


MOST_GPUS: Final = 576
"""Of one server: no NVLink domain has more, and a typing error must not fill the memory."""
_MILLISECONDS: Final = {
    "itl_p95_ms": Range(1e-3, 1e7, " ms"),
    "ttft_p95_ms": Range(1e-3, 1e8, " ms"),
    "e2e_p95_ms": Range(1e-3, 1e9, " ms"),
}
RANGES: Final[dict[str, Range]] = {
    "capacity_per_instance": Range(1.0, 1e6, " requests in flight"),
    "memory_gb": Range(1e-3, 1e6, " GB"),
    "busy_ratio": Range(0.0, 1.0),
    "tp": Range(1, 1024),
    "pp": Range(1, 1024),
    "think_s": Range(0.0, 1e7, " s"),
    "prompt_tokens": Range(1.0, 1e8),
    "answer_tokens": Range(1.0, 1e8),
    "prefix_hit_ratio": Range(0.0, 1.0),
    **_MILLISECONDS,
    "itl_tail_ratio": Range(1.0, 100.0),
    "kv_pool_tokens": Range(1.0, 1e12),
    "max_num_seqs": Range(1, 1e6),
    "prefill_tokens_per_s": Range(1e-3, 1e9),
    "tokens_per_step": Range(1.0, 64.0),
    "draft_ratio": Range(0.0, 10.0),
    "spare_instances": Range(0, 1e6),
}
"""Of a workload."""
_SHARE: Final = Range(1e-3, 1.0)
_LEAVE_OUT: Final = ", or left out where it is not known"
SCENARIO_RANGES: Final = {
    "planning_factor": _SHARE,
    "usable_memory_ratio": _SHARE,
    "queue_wait_ratio": Range(1e-9, 1.0),
    "spare_instances": Range(0, 1e6),
    "spare_servers": Range(0, 1e6),
}
SERVER_RANGES: Final = {
    "gpus": Range(1, MOST_GPUS),
    "nvlink_gpus": Range(0, MOST_GPUS),
    "count": Range(0, 1e6),
    "price_per_gpu_hour": Range(1e-6, 1e9, _LEAVE_OUT),
    "price_per_hour": Range(0.0, 1e9),
    "gpu_power_w": Range(1e-3, 1e6, " W"),
}
SEEN_RANGES: Final = {
    "gpus": Range(0, 1e5),
    "tp": Range(0, 1e5),
    "pp": Range(0, 1e5),
    "prompt_tokens": Range(0.0, 1e9),
    "answer_tokens": Range(0.0, 1e9),
    "prefix_hit_ratio": Range(0.0, 1.0),
    "itl_tail_ratio": Range(1e-3, 1e6),
    "ttft_tail_ratio": Range(1e-3, 1e6),
    "kv_pool_tokens": Range(0.0, 1e15),
    "max_num_seqs": Range(1, 1e9),
    "memory_bytes": Range(1.0, 1e18),
    "busy_ratio": Range(0.0, 1.0),
    "power_w": Range(0.0, 1e9),
    "tokens_per_step": Range(1.0, 64.0),
    "prefill_tokens_per_s": Range(0.0, 1e12),
    "concurrency": Range(0.0, 1e12),
}

LABELS: Final = {
    "capacity_per_instance": "capacity of an instance",
    "memory_gb": "memory of an instance",
    "memory_bytes": "memory of an instance",
    "busy_ratio": "busy share",
    "tp": "TP",
    "pp": "PP",
    "think_s": "think time",
    "prompt_tokens": "prompt tokens",
    "answer_tokens": "answer tokens",
    "prefix_hit_ratio": "share of prefix hits",
    "itl_p95_ms": "ITL goal",
    "ttft_p95_ms": "TTFT goal",
    "e2e_p95_ms": "E2E goal",
    "itl_tail_ratio": "p95 / mean of the ITL",
    "ttft_tail_ratio": "p95 / mean of the TTFT",
    "kv_pool_tokens": "tokens of the KV cache",
    "max_num_seqs": "most requests of the engine",
    "prefill_tokens_per_s": "prompt tokens per second",
    "tokens_per_step": "tokens per step",
    "draft_ratio": "share of the draft",
    "spare_instances": "spare instances",
    "planning_factor": "planning factor",
    "usable_memory_ratio": "usable share of the memory",
    "queue_wait_ratio": "share that may wait",
    "spare_servers": "spare servers",
    "gpus": "GPUs",
    "nvlink_gpus": "GPUs of an NVLink domain",
    "count": "number of servers",
    "price_per_gpu_hour": "price of a GPU per hour",
    "price_per_hour": "price of the host per hour",
    "gpu_power_w": "power of a GPU",
    "power_w": "power",
    "concurrency": "requests in flight",
}
"""Field of a file -> the words that a message begins with."""
_MOST_RUNNING: Final = 1e6
"""Sequences beyond which no single engine is believed."""


def check(asked: msgspec.Struct, ranges: Mapping[str, Range] = RANGES) -> None:
    """ValueError on a figure that can not be, named with what it may be; None is open and passes."""
    for name, (low, high, unit) in ranges.items():
        value: float | None = getattr(asked, name)
        if value is not None and not low <= value <= high:
            words = LABELS[name] if LABELS[name].lower() == name else f"{LABELS[name]} ({name})"
            raise ValueError(f"{words} is {_figure(value)}: it must be from {_figure(low)} to {_figure(high)}{unit}")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:g}"


def check_scenario(scenario: Scenario) -> None:
    """The same of what holds for all workloads, every shape of server included."""
    check(scenario, SCENARIO_RANGES)
    for server in scenario.server:
        check_server(server)


def check_server(server: Server) -> None:
    """The same of a shape of server."""
    if not 1 <= server.gpus <= MOST_GPUS:
        raise ValueError(f"a server of {server.gpus} GPUs: give it from 1 to {MOST_GPUS}")
    check(server, SERVER_RANGES)


@lru_cache(maxsize=256)
def sound(seen: Observed) -> Observed:
    """What was seen, without points that no engine can have shown; ValueError on another figure that can not be."""
    try:
        check(seen, SEEN_RANGES)
    except ValueError as wrong:
        raise ValueError(f"what was seen of {seen.name or seen.model}: {wrong}") from None
    points = tuple(point for point in seen.points if _possible(point))
    return seen if len(points) == len(seen.points) else msgspec.structs.replace(seen, points=points)


def _possible(point: Point) -> bool:
    figures: tuple[Any, ...] = msgspec.structs.astuple(point)
    return point.running <= _MOST_RUNNING and all(value is None or 0 <= value < math.inf for value in figures)
