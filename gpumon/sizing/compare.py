"""The same question on other types of GPU, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpumon.sizing.answer import Answer
from gpumon.sizing.known import Known
from gpumon.sizing.plan import named, plan
from gpumon.sizing.scenario import Scenario, Server

USUAL = ("L40S", "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB")
"""What most people ask about, by their names in the catalogue."""


_OPEN: Final[dict[str, Any]] = dict.fromkeys(
    ("capacity_per_instance", "memory_gb", "busy_ratio", "kv_pool_tokens", "prefill_tokens_per_s")
)


class Column(msgspec.Struct, frozen=True):
    """One type of GPU and the answer on it."""

    gpu: str
    answer: Answer


def compare(scenario: Scenario, known: Known, gpus: Sequence[str] = USUAL) -> tuple[Column, ...]:
    """The answers on servers of the same size with other GPUs, the scenario's own type first.

    Typed capacities, memory and busy shares hold on the GPU that they were typed for: elsewhere they are left out, so
    that formulas and what was measured decide. The watts are the boards' limits unless typed: those seen here at one
    load beside limits of what is not here would flatter what is here.
    """
    own = named(scenario.server[0], known) if scenario.server else None
    others = (named(Server(gpu), known).gpu for gpu in gpus)
    names = dict.fromkeys((*([own.gpu] if own is not None else []), *others))
    return tuple(Column(name, plan(_on(scenario, own, name, known), known)) for name in names)


def _on(scenario: Scenario, own: Server | None, gpu: str, known: Known) -> Scenario:
    if own is not None and own.gpu == gpu:
        return msgspec.structs.replace(scenario, server=(_at_its_limit(own, known),))
    shape = Server(gpu) if own is None else Server(gpu, own.gpus, own.nvlink_gpus, price_per_hour=own.price_per_hour)
    workloads = tuple(msgspec.structs.replace(each, **_OPEN) for each in scenario.workload)
    return msgspec.structs.replace(scenario, server=(shape,), workload=workloads)


def _at_its_limit(server: Server, known: Known) -> Server:
    try:
        limit_w = known.gpus.find(server.gpu).tdp_w
    except ValueError:
        return server
    return msgspec.structs.replace(server, gpu_power_w=server.gpu_power_w or limit_w or None)
