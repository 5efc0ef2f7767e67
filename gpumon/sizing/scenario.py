"""What the user asks: workloads with targets, goals, server shapes; which figures they may have; what is looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from gpumon.sizing.profile import Observed, Point
from gpumon.specs.gpus import GpuCatalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llms import LlmCatalogue

TargetKind = Literal["concurrency", "users", "requests_per_s"]
Packing = Literal["busy", "memory"]


class Server(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shape of server. Prices in the user's currency."""

    gpu: str
    """Catalogue name of its GPUs, e.g. `H100 SXM 80GB`."""
    gpus: int = 8
    nvlink_gpus: int = 0
    """GPUs of one NVLink domain; 0: all of the server. 2 on bridged PCIe pairs."""
    count: int = 0
    """How many there are at most; 0: as many as it takes."""
    price_per_gpu_hour: float | None = None
    price_per_hour: float = 0.0
    """Of the host, beside its GPUs."""
    gpu_power_w: float | None = None
    """Of one GPU under this load; default: measured, else the board's limit from the catalogue."""


class Workload(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model and its target. What is None is looked up: measured, imported, then worked out."""

    model: str
    target: float
    """Requests in flight, users, or requests per second, by `target_kind`."""
    target_kind: TargetKind = "concurrency"
    name: str = ""
    """Shown name; default is the model."""
    think_s: float = 0.0
    """Of users: seconds between an answer and the next question."""
    capacity_per_instance: float | None = None
    """Requests in flight that one instance carries: an operating point, so the planning factor does not apply."""
    memory_gb: float | None = None
    """Memory of one instance, in 1e9 bytes."""
    busy_ratio: float | None = None
    """Share of its GPU that one instance keeps busy at that capacity."""
    tp: int | None = None
    pp: int | None = None
    weight_precision: str = ""
    """A value of `specs.Precision`; empty: as published or seen."""
    kv_precision: str = ""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    prefix_hit_ratio: float | None = None
    itl_p95_ms: float | None = None
    """Goals of this workload; default: those of the scenario."""
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    itl_tail_ratio: float | None = None
    """p95 / mean of the ITL; default: as seen, else 1."""
    kv_pool_tokens: float | None = None
    max_num_seqs: int | None = None
    prefill_tokens_per_s: float | None = None
    """Of one instance."""
    tokens_per_step: float | None = None
    """Speculative decoding: tokens per step and sequence; 1 is none."""
    draft_ratio: float | None = None
    """What the draft adds to a step, as a share of it."""
    spare_instances: int | None = None
    """Default: that of the scenario."""
    profile: str = ""
    """Name of an imported profile to take capacity and latency from."""
    seen: Observed | None = None
    """What was measured, kept with the scenario so that it gives the same answer elsewhere."""

    @property
    def label(self) -> str:
        """Its shown name."""
        return self.name or self.model


class Scenario(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The whole question. `gpumon size` and the panel answer the same one alike."""

    name: str = ""
    note: str = ""
    packing: Packing = "busy"
    """Which plan is needed: `busy` shares a GPU by memory and busy share, `memory` by memory alone."""
    planning_factor: float = 0.8
    """Share of a worked-out capacity that is planned with."""
    usable_memory_ratio: float = 0.92
    """Share of a GPU's memory that engines may take (vLLM's gpu_memory_utilization)."""
    queue_wait_ratio: float | None = None
    """Highest share of requests that may wait for a slot (Erlang C); None: not asked."""
    spare_instances: int = 0
    """Of each workload."""
    spare_servers: int = 0
    itl_p95_ms: float | None = None
    ttft_p95_ms: float | None = None
    e2e_p95_ms: float | None = None
    server: tuple[Server, ...] = ()
    """Shapes in the order in which they are filled."""
    workload: tuple[Workload, ...] = ()


class Known(NamedTuple):
    """Catalogues and what the user added to them."""

    gpus: GpuCatalogue
    llms: LlmCatalogue
    own: Mapping[str, LlmSpec] = MappingProxyType({})
    """Model name -> dimensions that stand above the catalogue: of running engines and of the config."""
    profiles: Mapping[str, Observed] = MappingProxyType({})
    """Imported, by name."""
    prices: Mapping[str, float] = MappingProxyType({})
    """Catalogue name of a GPU -> price of one hour."""

    def llm(self, model: str) -> LlmSpec | None:
        """Dimensions of a model; None where they are not known."""
        return self.own.get(model) or self.llms.find(model)

    def seen(self, workload: Workload) -> Observed | None:
        """What was seen of its model: the profile that it names, else what the scenario itself keeps."""
        return self.profiles.get(workload.profile, workload.seen) if workload.profile else workload.seen

    def kept(self, scenario: Scenario) -> Scenario:
        """The scenario with its profiles in it, so that it gives the same answer where they were never imported."""
        workloads = (msgspec.structs.replace(each, seen=self.seen(each)) for each in scenario.workload)
        return msgspec.structs.replace(scenario, workload=tuple(workloads))


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
