"""An engine on GPUs that measure themselves, tick by tick: healthy, unless the changes say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.readings.frame import EngineKind, Frame, GpuProcess, RankReading
from gpumon.readings.goals import Goals
from gpumon.readings.quantities import MOST_RUNNING
from gpumon.readings.snapshot import (
    BandwidthSource,
    Family,
    Kind,
    Limit,
    Quantiles,
    Replicas,
    Snapshot,
    TokensTotal,
    Verdict,
)
from gpumon.triage.triage import Triage
from tests.records import replace
from tests.triage.stage import GIB, Of, Stage, engine, gpu, verdict

PEAK = 3.35e12
"""Bytes/s of an H100."""
WORKS: Mapping[str, Any] = {
    "running": 24.0,
    "waiting": 0.0,
    "kv_usage_ratio": 0.41,
    "decode_tokens_per_s": 1100.0,
    "prefill_tokens_per_s": 8200.0,
    "preemptions_per_s": 0.0,
    "ttft_s": Quantiles(mean=0.2, p95=0.4),
    "itl_s": Quantiles(mean=0.024, p95=0.024),
    "itl_mean_s": 0.024,
    "queue_s": Quantiles(mean=0.01),
    "mfu_ratio": 0.2,
    "mfu_prefill_ratio": 0.12,
    "mfu_decode_ratio": 0.08,
    "mbu_ratio": 0.4,
    "batch": 24.0,
    "context_tokens": 1000.0,
    "kv_pool_tokens": 60_000.0,
    "tp": 1,
    "ranks": 1,
    "gpu_count": 1.0,
    "advances": {"decode_tokens_per_s": "live"},
}
BUSY: Mapping[str, Any] = {
    "busy_ratio": 0.95,
    "sm_active_ratio": 0.7,
    "tensor_active_ratio": 0.3,
    "bandwidth_bytes_per_s": 0.45 * PEAK,
    "bandwidth_source": BandwidthSource.GPM,
    "bandwidth_peak_bytes_per_s": PEAK,
    "activity_source": "gpm",
    "gpu_type": "H100 SXM 80GB",
    "vram_used_bytes": 70.0 * GIB,
    "processes": (GpuProcess(4711, "vllm", vram_bytes=70.0 * GIB, engine="vllm:8000"),),
}
IDLE: Mapping[str, Any] = {
    **BUSY,
    "busy_ratio": 0.0,
    "sm_active_ratio": 0.0,
    "tensor_active_ratio": 0.0,
    "bandwidth_bytes_per_s": 0.0,
}
SPINS: Mapping[str, Any] = {**IDLE, "busy_ratio": 1.0, "sm_active_ratio": 0.2}
"""Kernels that wait for each other."""


class Alike(Triage):
    """The engines that are named are replicas."""

    def __init__(self, names: tuple[str, ...], **of_triage: Any) -> None:
        super().__init__(**of_triage)
        self._group = (Replicas("m", names, len(names)),)

    def judge(self, frame: Frame, snapshot: Snapshot) -> Snapshot:
        """Judge them as such."""
        return super().judge(frame, replace(snapshot, replicas=self._group))


def scene(
    changes: Mapping[str, Any] | None = None,
    gpus: Mapping[str, Any] | tuple[Mapping[str, Any], ...] = BUSY,
    *,
    slots: float = 0.0,
    moves: bool = True,
    info: Mapping[str, str] | None = None,
    **of_engine: Any,
) -> Callable[[int], tuple[Of, ...]]:
    """One engine; its tokens move with the ticks, unless it hangs."""
    cards = gpus if isinstance(gpus, tuple) else (gpus,)

    def at(tick: int) -> tuple[Of, ...]:
        done = float(tick if moves else 7)
        totals = {"tokens_total": TokensTotal(8200.0 * done, 0.0, 1100.0 * done)}
        fields = {**WORKS, **totals, "gpu_count": float(len(cards)), **(changes or {})}
        indices = tuple(range(len(cards)))
        one = engine(gpus=indices, **of_engine, **fields)
        ranks = (RankReading("0", {}, {MOST_RUNNING: slots} if slots else {}, {}),)
        read = replace(one.read, ranks=ranks, live={MOST_RUNNING: "max"}, info=dict(info or {}))
        return (*(gpu(index, **card) for index, card in enumerate(cards)), Of(read, one.shown))

    return at


def judged(
    of: Callable[[int], tuple[Of, ...]],
    seconds: int = 60,
    goals: Goals | None = None,
    prices: Mapping[str, float] | None = None,
) -> Snapshot:
    """The last snapshot after so many ticks."""
    stage = Stage()
    stage.triage = Triage(prices=prices or {}, goals=goals or Goals())
    return stage.play(seconds, of)


def of_engine(snapshot: Snapshot, family: Family) -> Verdict | None:
    return verdict(snapshot, family, Kind.ENGINE)


def limits(snapshot: Snapshot) -> tuple[Limit, ...]:
    """Of the engine."""
    return tuple(each.code for each in snapshot.verdicts if each.kind is Kind.ENGINE)


def only(snapshot: Snapshot) -> Verdict:
    """Its one verdict."""
    (found,) = (each for each in snapshot.verdicts if each.kind is Kind.ENGINE)
    assert found.evidence or found.code is Limit.UNKNOWN
    return found


__all__ = ["BUSY", "IDLE", "PEAK", "SPINS", "EngineKind", "Goals", "judged", "limits", "of_engine", "only", "scene"]
