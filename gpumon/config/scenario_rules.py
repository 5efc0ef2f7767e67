"""Rules of a scenario file beside the types of `sizing.scenario`: ranges, and which values fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gpumon.config.checks import FieldRule, network_problem, planned_gpu_problem, rented_gpus
from gpumon.config.rules import Faults, Rulebook
from gpumon.config.validate import validated
from gpumon.readings.text import clean
from gpumon.sizing.latency import Speculation
from gpumon.sizing.length_tail import Lengths, LengthShare, problem_of
from gpumon.sizing.profile import MOST_POINTS, Observed, Point
from gpumon.sizing.scenario import (
    DISAGGREGATED_RANGES,
    LENGTH_RANGES,
    RANGES,
    SCENARIO_RANGES,
    SEEN_RANGES,
    SERVER_RANGES,
    SPECULATION_RANGES,
    Disaggregated,
    Range,
    Scenario,
    Server,
    Workload,
)
from gpumon.specs.llm import Attention, LlmSpec, State
from gpumon.specs.precision import Precision

MOST_WORKLOADS: Final = 200
"""Workloads of one scenario."""
MOST_SERVERS: Final = 32
"""Shapes of server in one scenario."""
MOST_LENGTHS: Final = 100
"""Steps of one histogram of lengths: engines export 20 to 40 buckets."""

_DEFAULT_GPUS: Final = Server("").gpus
"""GPUs of a server that does not say how many it has: a cloud's server says it for it."""
_AboveZero = Annotated[float, Meta(gt=0.0, le=1e12)]
_Length = Annotated[float, Meta(gt=0.0, le=1e9)]
_FromZero = Annotated[float, Meta(ge=0.0, le=1e15)]
"""A figure from 0 on. The upper ends are above anything that is measured or planned."""
_MOST_SIZE: Final = 10**16
"""Largest dimension of a model: bytes of all its weights are below it."""
_GOAL_RANGES: Final = {name: limits for name, limits in RANGES.items() if name.endswith("_ms")}
"""Name of a latency goal, of a workload or of the whole scenario -> its range."""


def _ranged_types(kind: type[msgspec.Struct], ranges: Mapping[str, Range]) -> dict[str, Any]:
    """The type of each field with its range: what the plan would refuse is refused in the file, with its line."""
    types = {}
    for name, limits in ranges.items():
        # `int`, or `int | None`; annotations are texts here
        number: type[int] | type[float] = int if "int" in str(kind.__annotations__[name]) else float
        types[name] = Annotated[number, Meta(ge=number(limits.low), le=number(limits.high))]
    return types


def _size_types(kind: type[msgspec.Struct], least_one: tuple[str, ...]) -> dict[str, Any]:
    """The type of each number of a model's dimensions: from 0 on, from 1 on where it is one of `least_one`."""
    types: dict[str, Any] = {}
    for name, annotation in kind.__annotations__.items():
        least = 1 if name in least_one else 0
        if annotation == "int":
            types[name] = Annotated[int, Meta(ge=least, le=_MOST_SIZE)]
        elif annotation == "float":
            types[name] = Annotated[float, Meta(ge=float(least), le=float(_MOST_SIZE))]
    return types


_RANGED_TYPES: Final[dict[type[msgspec.Struct], dict[str, Any]]] = {
    Scenario: _ranged_types(Scenario, {**SCENARIO_RANGES, **_GOAL_RANGES}),
    Server: _ranged_types(Server, SERVER_RANGES),
    Workload: {"target": _AboveZero, **_ranged_types(Workload, RANGES)},
    Disaggregated: _ranged_types(Disaggregated, DISAGGREGATED_RANGES),
    Speculation: _ranged_types(Speculation, SPECULATION_RANGES),
    LengthShare: _ranged_types(LengthShare, LENGTH_RANGES),
    Observed: {**_ranged_types(Observed, SEEN_RANGES), "prompt_tokens": _Length, "answer_tokens": _Length},
    Point: {
        **{name: _FromZero for name, kind in Point.__annotations__.items() if "float" in str(kind)},
        "busy_ratio": Annotated[float, Meta(ge=0.0, le=1.0)],
        "weight": Annotated[int, Meta(ge=1, le=1_000_000_000)],
    },
    LlmSpec: _size_types(LlmSpec, ("layers", "hidden", "heads", "kv_heads", "head_dim")),
    Attention: _size_types(Attention, ("kv_heads", "stride")),
    State: _size_types(State, ()),
}
"""Type of a table -> its numbers with their ranges. Measured figures may be 0; a target of 0 would ask for nothing."""


def _types_by_path(kind: type[msgspec.Struct], ranges: dict[str, Any]) -> dict[str, Any]:
    """`Type.field` -> its type with its range; a field whose default is None may stay without a number."""
    optional = {field.name for field in msgspec.structs.fields(kind) if field.default is None}
    result = {}
    for name, number in ranges.items():
        if name in optional:
            result[f"{kind.__name__}.{name}"] = number | None
        else:
            result[f"{kind.__name__}.{name}"] = number
    return result


def _blank_problem(text: str) -> str:
    """Fault of a text without letters; empty: none."""
    if text.strip():
        return ""
    return "must not be empty"


def _precision_problem(name: str) -> str:
    """Fault of the name of a precision, which may be left out; empty: none."""
    names = [precision.value for precision in Precision]
    if name in ("", *names):
        return ""
    return f"must be one of {', '.join(names)}, or empty"


def _server_gpu_problem(name: str) -> str:
    """Fault of a server's type of GPU, which must be given; empty: none."""
    if name:
        return planned_gpu_problem(name)
    return 'must be the type of its GPUs, such as "H100 SXM 80GB"'


def _most_entries(most: int, plural: str) -> FieldRule:
    """The rule that a list has no more entries; `plural` names them in the error."""

    def problem(entries: Any) -> str:
        if len(entries) > most:
            return f"holds {len(entries)} {plural}: at most {most}"
        return ""

    return FieldRule(problem)


_PRECISION_RULE: Final = FieldRule(_precision_problem)


def checked_observed(observed: Observed) -> Observed:
    """A measurement that a scenario file can hold. Raises Refused for the first figure that is out of its range."""
    raw = {**msgspec.to_builtins(observed), "points": [msgspec.to_builtins(point) for point in observed.points]}
    if observed.lengths is not None:
        raw["lengths"] = {name: list(steps) for name, steps in msgspec.to_builtins(observed.lengths).items()}
    return validated(raw, Observed, book=SCENARIO_RULES)


def _server_faults(server: Server) -> Faults:
    """Faults of a `[[server]]`: an NVLink domain that is larger than the server, other GPUs than those of a cloud's."""
    rented = rented_gpus(server.gpu)
    if rented and server.gpus not in (rented, _DEFAULT_GPUS):
        yield "gpus", f"must be {rented}, which {clean(server.gpu, 40)} has, or left out"
    if server.nvlink_gpus > server.gpus:
        yield "nvlink_gpus", "must be at most gpus"


def _observed_faults(observed: Observed) -> Faults:
    """Faults of a measurement: fewer GPUs than its parallelism takes."""
    if 0 < observed.gpus < observed.tp * observed.pp:
        yield "gpus", "must be at least tp x pp, or 0"


def _speculation_faults(speculation: Speculation) -> Faults:
    """Faults of speculation: a rate that drafts cannot reach."""
    if speculation.problem:
        yield "accepted", speculation.problem


def _lengths_faults(lengths: Lengths) -> Faults:
    """Faults of histograms of lengths: steps that are in no order."""
    for name in Lengths.__struct_fields__:
        fault = problem_of(getattr(lengths, name))
        if fault:
            yield name, fault


SCENARIO_RULES: Final = Rulebook(
    root=Scenario,
    fields={
        "Server.gpu": FieldRule(_server_gpu_problem),
        "Server.network": FieldRule(network_problem),
        "Workload.model": FieldRule(_blank_problem),
        "Workload.weight_precision": _PRECISION_RULE,
        "Workload.kv_precision": _PRECISION_RULE,
        "Observed.weight_precision": _PRECISION_RULE,
        "Observed.kv_precision": _PRECISION_RULE,
        "Scenario.server": _most_entries(MOST_SERVERS, "shapes of server"),
        "Scenario.workload": _most_entries(MOST_WORKLOADS, "workloads"),
        "Observed.points": _most_entries(MOST_POINTS, "points"),
        "Lengths.prompt": _most_entries(MOST_LENGTHS, "steps"),
        "Lengths.answer": _most_entries(MOST_LENGTHS, "steps"),
    },
    tables={
        Server: (_server_faults,),
        Observed: (_observed_faults,),
        Speculation: (_speculation_faults,),
        Lengths: (_lengths_faults,),
    },
    types={
        name: number for kind, ranges in _RANGED_TYPES.items() for name, number in _types_by_path(kind, ranges).items()
    },
)
"""Rules of a scenario file. Texts in it are names from anywhere, and nothing in it is a secret."""
