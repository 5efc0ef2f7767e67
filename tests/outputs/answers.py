"""Answers of the sizing by hand: a full one, one without an answer, and one whose texts and numbers are hostile."""

from __future__ import annotations

import math
from typing import Any

from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import (
    Alternative,
    Answer,
    Basis,
    Compared,
    Degraded,
    GpuCount,
    GpuSlot,
    JudgedGoal,
    Limit,
    LimitKind,
    OnGpu,
    Packed,
    PlacedServer,
    Plans,
    Source,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.records import replace

NO_PRICE = Missing(Reason.NO_PRICE)
NOT_GIVEN = Missing(Reason.NOT_GIVEN)
INFEASIBLE = Missing(Reason.INFEASIBLE)
HOSTILE = "\x1b[31m|`*_[x](http://e)<b>@all #1\u202e\n=1+1"

SCENARIO = Scenario(
    name="chat",
    note="for 2027",
    server=(Server("H100 SXM 80GB", 8), Server("L40S", 2)),
    workload=(Workload("acme/70b", 500.0, name="large"), Workload("acme/8b", 12.0, "requests_per_s", name="small")),
)


def workload(**changes: Any) -> WorkloadPlan:
    """The plan of one workload, complete but for `changes`."""
    fields: dict[str, Any] = {
        "name": "large",
        "model": "acme/70b",
        "target": 500.0,
        "target_kind": "users",
        "concurrency": 60.0,
        "capacity_per_instance": 16.0,
        "instances": 5.0,
        "gpus": 20.0,
        "limit": "ITL",
        "next_limit": "KV",
        "limits": (
            Limit(LimitKind.ITL, 20.7, "ITL 40.0 ms at 20.7, goal 40.0 ms"),
            Limit(LimitKind.KV, 85.2, "the KV cache holds 419,430 tokens, 5,500 a request"),
        ),
        "source": Source.MEASURED,
        "band": Band(-0.1, 0.1, 955),
        "extrapolated": True,
        "gpus_per_instance": 4,
        "tp": 4,
        "layout": "TP 4",
        "pp": 1,
        "spares": 1,
        "memory_bytes": 143.3e9,
        "memory_source": "seen",
        "busy_ratio": 0.9,
        "running": 12.0,
        "itl_s": 0.031,
        "ttft_s": 0.21,
        "e2e_s": 8.4,
        "itl_p95_s": 0.045,
        "ttft_p95_s": 0.42,
        "goals": (
            JudgedGoal("TPOT p95", 0.04, 0.0332, Basis.SIMULATED),
            JudgedGoal("TTFT p95", 2.0, NOT_GIVEN, Basis.UNKNOWN),
        ),
        "tokens_per_s": 1234.5,
        "requests_per_s": 7.14,
        "power_w": 11200.0,
        "power_source": "limit",
        "degraded": (Degraded("server", 3, 20.0, 0.041, NOT_GIVEN, "the ITL goal would be missed", 0.052),),
        "notes": ("the p95 is not known",),
        "seen_name": "vllm:8000",
        "seen_time": "2026-01-02T14:03:22+01:00",
        "servers": 3.0,
        "servers_shared": 1.0,
        "on": (OnGpu("H100 SXM5 80GB", 5, 20, 4, 4, 16.0, "ITL"),),
        "alternatives": (Alternative("TP 8 x PP 2", 32, 2, 16, 40.0, "KV"),),
    }
    return WorkloadPlan(**{**fields, **changes})


SMALL = workload(
    name="small", model="acme/8b", target=12.0, target_kind="requests_per_s", source=Source.ROOFLINE,
    band=Band(-0.15, 0.38, 215),
    extrapolated=False, gpus_per_instance=1, tp=1, layout="TP 1", alternatives=(),
    gpus=2.0, instances=4.0, memory_bytes=20e9, limits=(), degraded=(),
    limit="", next_limit="", notes=(), seen_name="", spares=0, servers=1.0, servers_shared=1.0,
)  # fmt: skip

LARGE = tuple(GpuSlot((0,), 36e9, 0.9, group) for group in (0, 0, 0, 0, 1, 1, 1, 1))
MIXED = (*LARGE[:4], *(GpuSlot((1, 1), 40e9, 0.8),) * 2, GpuSlot(), GpuSlot())


def packed(**changes: Any) -> Packed:
    """The packing of both workloads on three servers and a spare one."""
    servers = (PlacedServer(0, LARGE), PlacedServer(0, LARGE), PlacedServer(0, MIXED))
    fields: dict[str, Any] = {
        "instances": 9.0,
        "gpus": 22.0,
        "servers": 4.0,
        "memory_bytes": 796.5e9,
        "price_per_hour": 79.68,
        "servers_least": 4.0,
        "layout": servers,
        "spare_servers": 1,
        "by_gpu": (GpuCount("H100 SXM5 80GB", 22, 4),),
    }
    return Packed(**{**fields, **changes})


TOTALS = Totals(9.0, 22.0, 4.0, 796.5e9, 79.68, 12600.0, NOT_GIVEN, NOT_GIVEN, NOT_GIVEN)


def full() -> Answer:
    """Two workloads, two packings that differ."""
    return Answer(
        "chat",
        "busy",
        (workload(), SMALL),
        TOTALS,
        Plans(packed(gpus=21.0, servers=3.0, spare_servers=0, servers_least=2.0, price_per_hour=59.76), packed()),
        warnings=("planning factor 1: no headroom for bursts",),
    )


def compared() -> Answer:
    """The same with other types of GPU beside it, of which one has no answer."""
    none = Totals(*[INFEASIBLE] * 9)
    rows = (
        Compared("H100 SXM5 80GB + L40S", TOTALS, (workload(), SMALL), as_planned=True),
        Compared("H100 SXM5 80GB", TOTALS, (workload(), SMALL), ("gpus", "power_w")),
        Compared("L40S", none, (workload(problem="no room"), SMALL), problem="large: no room"),
    )
    return replace(full(), compared=rows)


def infeasible() -> Answer:
    """No answer: the goal is below what one request takes."""
    problem = "not even one request at a time: TTFT 2.1 s, goal 1.0 s; more TP would help, more instances would not"
    readings = (
        "concurrency",
        "capacity_per_instance",
        "instances",
        "gpus",
        "running",
        "itl_s",
        "ttft_s",
        "e2e_s",
        "itl_p95_s",
        "ttft_p95_s",
        "servers",
        "servers_shared",
    )
    nothing = dict.fromkeys((*readings, "tokens_per_s", "requests_per_s", "power_w", "memory_bytes"), INFEASIBLE)
    none = Packed(*[INFEASIBLE] * 6)
    plan = workload(
        **nothing,
        problem=problem,
        limits=(),
        limit="",
        next_limit="",
        degraded=(),
        tp=0,
        layout="",
        alternatives=(),
        power_source="",
    )
    totals = Totals(*[INFEASIBLE] * 9)
    return Answer("", "memory", (plan,), totals, Plans(none, none), problem=f"large: {problem}")


def partly() -> Answer:
    """The small workload has an answer, the large one only a place for a part of it."""
    nothing = dict.fromkeys(("instances", "gpus", "servers", "servers_shared"), INFEASIBLE)
    none = Packed(*[INFEASIBLE] * 6, layout=packed().layout, problem="no room")
    plans = (workload(**nothing, problem="no room"), SMALL)
    others = Totals(4.0, 2.0, 1.0, 80e9, NO_PRICE, 1400.0, 1234.5, NO_PRICE, 0.88)
    totals = Totals(*[INFEASIBLE] * 9)
    return Answer(
        "",
        "busy",
        plans,
        totals,
        Plans(none, none),
        problem="large: no room",
        without=("large",),
        totals_without=others,
    )


def hostile() -> Answer:
    """Texts that want to be markup, numbers that are none, and ten thousand alike servers."""
    plan = workload(
        name=HOSTILE, model="m" * 10_000, notes=(HOSTILE,), seen_name=HOSTILE, itl_s=math.nan, tokens_per_s=math.inf,
        problem=HOSTILE, limits=(Limit(LimitKind.KV, 1e300, HOSTILE),),
    )  # fmt: skip
    many = packed(layout=(PlacedServer(7, (GpuSlot((0, 0, 0, 9), 1.0, 1e300),)),) * 10_000, servers=10_000.0)
    return Answer(HOSTILE, "busy", (plan,), TOTALS, Plans(many, many), (HOSTILE,), HOSTILE)


ALL = {"full": full, "infeasible": infeasible, "partly": partly, "compared": compared, "hostile": hostile}
