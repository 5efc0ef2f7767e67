"""What a scenario file has to keep to beside the types of `sizing.scenario`: ranges, and which values fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gpumon.config.rules import FieldRule, Rulebook, gpu_type_problem
from gpumon.sizing.observed import Observed, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.specs.precision import Precision

MOST_WORKLOADS: Final = 200
MOST_SERVERS: Final = 32
MOST_POINTS: Final = 64

_Above = Annotated[float, Meta(gt=0.0, le=1e12)]
_FromZero = Annotated[float, Meta(ge=0.0, le=1e15)]
_Share = Annotated[float, Meta(ge=0.0, le=1.0)]
_SomeShare = Annotated[float, Meta(gt=0.0, le=1.0)]
_Milliseconds = Annotated[float, Meta(gt=0.0, le=1e9)]
_Money = Annotated[float, Meta(ge=0.0, le=1e9)]
_Spares = Annotated[int, Meta(ge=0, le=1_000_000)]
_Gpus = Annotated[int, Meta(ge=1, le=1024)]
_SeenGpus = Annotated[int, Meta(ge=0, le=100_000)]

_GOALS: Final = dict.fromkeys(("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"), _Milliseconds)
_RANGES: Final[dict[type[msgspec.Struct], dict[str, Any]]] = {
    Scenario: {
        "planning_factor": _SomeShare,
        "usable_memory_ratio": _SomeShare,
        "queue_wait_ratio": _SomeShare,
        "spare_instances": _Spares,
        "spare_servers": _Spares,
        **_GOALS,
    },
    Server: {
        "gpus": _Gpus,
        "nvlink_gpus": Annotated[int, Meta(ge=0, le=1024)],
        "count": _Spares,
        "price_per_gpu_hour": _Money,
        "price_per_hour": _Money,
        "gpu_power_w": Annotated[float, Meta(gt=0.0, le=1e6)],
    },
    Workload: {
        "target": _Above,
        "think_s": Annotated[float, Meta(ge=0.0, le=1e9)],
        "capacity_per_instance": Annotated[float, Meta(gt=0.0, le=1e9)],
        "memory_gb": Annotated[float, Meta(gt=0.0, le=1e6)],
        "busy_ratio": _Share,
        "tp": _Gpus,
        "pp": _Gpus,
        "prompt_tokens": Annotated[float, Meta(gt=0.0, le=1e9)],
        "answer_tokens": Annotated[float, Meta(gt=0.0, le=1e9)],
        "prefix_hit_ratio": _Share,
        **_GOALS,
        "itl_tail_ratio": Annotated[float, Meta(gt=0.0, le=1000.0)],
        "kv_pool_tokens": _Above,
        "max_num_seqs": Annotated[int, Meta(ge=1, le=1_000_000_000)],
        "prefill_tokens_per_s": _Above,
        "tokens_per_step": Annotated[float, Meta(ge=1.0, le=1000.0)],
        "draft_ratio": _Share,
        "spare_instances": _Spares,
    },
    Observed: {
        **{name: _FromZero for name, kind in Observed.__annotations__.items() if "float" in str(kind)},
        "prompt_tokens": _Above,
        "answer_tokens": _Above,
        "gpus": _SeenGpus,
        "tp": _SeenGpus,
        "pp": _SeenGpus,
        "prefix_hit_ratio": _Share,
        "max_num_seqs": Annotated[int, Meta(ge=1, le=1_000_000_000)],
        "busy_ratio": _Share,
    },
    Point: {
        **{name: _FromZero for name, kind in Point.__annotations__.items() if "float" in str(kind)},
        "busy_ratio": _Share,
        "weight": Annotated[int, Meta(ge=1, le=1_000_000_000)],
    },
}
"""Least and most of every number. What is measured may be 0; what is asked for is above it where 0 means nothing."""


def _optional(kind: type[msgspec.Struct], ranges: dict[str, Any]) -> dict[str, Any]:
    optional = {field.name for field in msgspec.structs.fields(kind) if field.default is None}
    return {f"{kind.__name__}.{name}": each | None if name in optional else each for name, each in ranges.items()}


def _given(text: str) -> str:
    return "" if text.strip() else "must not be empty"


def _precision_problem(name: str) -> str:
    names = [each.value for each in Precision]
    return "" if name in ("", *names) else f"must be one of {', '.join(names)}, or empty"


def _server_gpu_problem(name: str) -> str:
    return gpu_type_problem(name) if name else 'must be the type of its GPUs, such as "H100 SXM 80GB"'


def _most(most: int, what: str) -> Callable[[Any], str]:
    return lambda entries: f"holds {len(entries)} {what}: at most {most}" if len(entries) > most else ""


_PRECISIONS: Final = FieldRule(_precision_problem)

SCENARIO: Final = Rulebook(
    root=Scenario,
    fields={
        "Server.gpu": FieldRule(_server_gpu_problem),
        "Workload.model": FieldRule(_given),
        "Workload.weight_precision": _PRECISIONS,
        "Workload.kv_precision": _PRECISIONS,
        "Observed.weight_precision": _PRECISIONS,
        "Observed.kv_precision": _PRECISIONS,
        "Scenario.server": FieldRule(_most(MOST_SERVERS, "shapes of server")),
        "Scenario.workload": FieldRule(_most(MOST_WORKLOADS, "workloads")),
        "Observed.points": FieldRule(_most(MOST_POINTS, "points")),
    },
    tables={
        "Server": ((lambda server: server.nvlink_gpus > server.gpus, "nvlink_gpus", "must be at most gpus"),),
        "Observed": ((lambda seen: 0 < seen.gpus < seen.tp * seen.pp, "gpus", "must be at least tp x pp, or 0"),),
    },
    unique={},
    open_tables={},
    text=lambda _: "",
    types={name: each for kind, ranges in _RANGES.items() for name, each in _optional(kind, ranges).items()},
)
"""Of a scenario file. Texts in it are names from anywhere, and nothing in it is a secret."""
