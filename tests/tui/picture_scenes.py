"""Answers and curves to draw pictures of."""

from __future__ import annotations

from msgspec.structs import fields, replace

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import (
    NOT_KNOWN,
    Answer,
    GpuSlot,
    Limit,
    LimitKind,
    Packed,
    PlacedServer,
    Plans,
    Source,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.fit import Fitted
from gpumon.sizing.instance import Instance
from gpumon.sizing.interpolated import Interpolated
from gpumon.sizing.latency import Curve, Tail
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload

INFEASIBLE = Missing(Reason.NOT_EXPOSED)
LINE = Curve(0.01769, 0.000841)
RUNNING = (1.0, 4.0, 8.0, 12.0, 20.0, 28.0, 36.0)
POINTS = tuple(
    Point(b, LINE.itl_s(b) * wobble)
    for b, wobble in zip(RUNNING, (1.05, 0.98, 1.02, 0.97, 1.03, 0.99, 1.01), strict=True)
)
LIMITS = (
    Limit(LimitKind.ITL, 85.5, "ITL 89.6 ms at 85, goal 89.6 ms"),
    Limit(LimitKind.KV, 92.0, "the KV cache holds 560,000 tokens"),
    Limit(LimitKind.MAX_NUM_SEQS, 256.0, "the engine runs at most 256 together"),
)
BAND = Band(-0.02, 0.06, 415)


def fitted_to(low: float, high: float, anchored: bool = False) -> Fitted:
    """A fit to points of these loads."""
    through = Interpolated((1.0,), (LINE.itl_s(1.0),), LINE)
    return Fitted(LINE, through, low, high, 7, 1.0, BAND, anchored, "")


def measured(*points: Point) -> Observed:
    """An engine that was seen at these points."""
    return Observed(Origin.LIVE, "vllm:8000", "Llama-3.3-70B", points)


INSTANCE = Instance(
    workload=Workload("Llama-3.3-70B", 512, itl_p95_ms=100.0), server=None, gpu=None, llm=None,
    seen=measured(*POINTS), gpus=1, tp=1, pp=1, prompt_tokens=None, answer_tokens=None, hit_ratio=0.0,
    curve=LINE, fitted=fitted_to(1.0, 36.0), source=Source.MEASURED, band=BAND,
    prefill_tokens_per_s=None, itl_tail=Tail(100.0 / 89.6, known=True), ttft_tail=Tail(), alike=True,
)  # fmt: skip
"""Planned beyond the 36 that it was measured at, with a goal of 100 ms as p95, which is 89.6 ms as a mean."""


def plan_of(
    name: str, instances: Reading = 8.0, target: float = 512.0, each: Reading = 68.0, gpus: int = 1
) -> WorkloadPlan:
    """The answer for one workload."""
    return WorkloadPlan(
        name=name,
        model=name,
        target=target,
        target_kind="concurrency",
        concurrency=target,
        capacity_per_instance=each,
        instances=instances,
        gpus=NOT_KNOWN,
        limit="KV",
        next_limit="ITL",
        limits=LIMITS,
        source=Source.MEASURED,
        band=BAND,
        extrapolated=False,
        gpus_per_instance=gpus,
        tp=gpus,
        layout=f"TP {gpus}",
        pp=1,
        spares=0,
        memory_bytes=140e9,
        memory_source="seen",
        busy_ratio=0.9,
        running=64.0,
        itl_s=0.07,
        ttft_s=0.3,
        e2e_s=20.0,
        tokens_per_s=7300.0,
        requests_per_s=20.0,
        power_w=9000.0,
    )


def packed_of(
    layout: tuple[PlacedServer, ...], least: float | None = None, spare: int = 0, problem: str = ""
) -> Packed:
    """A placement."""
    slots = [slot for server in layout for slot in server.gpus]
    return Packed(
        instances=float(sum(len(slot.workloads) for slot in slots)),
        gpus=float(sum(bool(slot.workloads) for slot in slots)),
        servers=float(len(layout) + spare),
        memory_bytes=556.6e9,
        price_per_hour=59.8,
        servers_least=float(len(layout) + spare if least is None else least),
        layout=layout,
        problem=problem,
    )


def single(*gpus: tuple[int, ...]) -> PlacedServer:
    """A server whose instances take a GPU or less."""
    return PlacedServer(0, tuple(GpuSlot(found) for found in gpus))


def grouped(sizes: tuple[tuple[int, int], ...], gpus: int = 8, shape: int = 0) -> PlacedServer:
    """A server of (workload, GPUs) instances; what is left is free."""
    slots = [GpuSlot((workload,), group=at) for at, (workload, size) in enumerate(sizes) for _ in range(size)]
    return PlacedServer(shape, (*slots, *[GpuSlot()] * (gpus - len(slots))))


def totals(**known: Reading) -> Totals:
    """Totals; what is not said is not known."""
    return Totals(**{field.name: known.get(field.name, NOT_KNOWN) for field in fields(Totals)})


def answer_of(
    plans: tuple[WorkloadPlan, ...], busy: Packed, memory: Packed | None = None, packing: str = "busy"
) -> Answer:
    """A whole answer."""
    return Answer(
        name="",
        packing=packing,
        workloads=plans,
        totals=totals(instances=24.0, gpus=24.0, servers=6.0, price_per_hour=59.8, power_w=9e3),
        plans=Plans(memory_only=memory or busy, busy_aware=busy),
    )


SHAPES = (Server("H100 SXM 80GB", 8), Server("L40S 48GB", 4))
SCENARIO = Scenario(server=SHAPES, workload=(Workload("Llama-3.3-70B", 512), Workload("NeMo 20B", 128)))

GUIDE = answer_of(
    (plan_of("NeMo GPT 5B", 16.0, 64.0, 4.0), plan_of("NeMo GPT 20B", 8.0, 128.0, 16.0)),
    packed_of((single(*[(0,)] * 4),) * 4 + (single(*[(1,)] * 4),) * 2),
    packed_of((single(*[(0, 0, 1)] * 4),) * 2),
    packing="memory",
)
GUIDE_SCENARIO = Scenario(packing="memory", server=(Server("H100 SXM 80GB", 4),))
TP = answer_of(
    (plan_of("Llama-3.3-70B", 8.0, gpus=2), plan_of("NeMo 20B", 8.0, 128.0, 16.0), plan_of("DeepSeek-V3", 2.0, gpus=8)),
    packed_of(
        (grouped(((2, 8),)),) * 2
        + (grouped(((0, 2),) * 4),) * 2
        + (PlacedServer(0, (*[GpuSlot((1,))] * 6, *[GpuSlot((1, 1))], GpuSlot())),),
        least=4.0,
        spare=1,
    ),
)
SPARE = replace(SCENARIO, spare_servers=1)
