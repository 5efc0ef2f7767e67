"""Snapshots of engines at a given load, for the tests of live calibration."""

from __future__ import annotations

from typing import Any

from gpumon.readings.flat import make_record
from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, HostReading, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Self, Snapshot, Window
from tests.records import make_gpu, replace

H100 = "H100 SXM 80GB"
BASE_S, SLOPE_S = 0.010, 0.0005
"""What the scenes' engines do: ITL = 10 ms + 0.5 ms a sequence."""
NONE = Missing(Reason.UNREACHABLE)


def engine(running: float, name: str = "vllm:8000", **facts: Any) -> Engine:
    """An engine of one rank at a steady load, on GPU 0."""
    itl_s = BASE_S + SLOPE_S * running
    spread = facts.pop("spread", 0.0)
    base: dict[str, Any] = {
        "kind": EngineKind.VLLM,
        "phase": Phase.INFERENCE,
        "state": EndpointState.OK,
        "age_s": 0.4,
        "version": "0.32.0",
        "model": "llama",
        "gpus": (0,),
        "tp": 1,
        "ranks": 1,
        "running": running,
        "running_mean": running,
        "waiting": 0.0,
        "kv_usage_ratio": 0.3,
        "itl_mean_s": itl_s,
        "decode_tokens_per_s": running / itl_s,
        "prefill_tokens_per_s": 1000.0,
        "requests_per_s": 2.0,
        "prompt_tokens_mean": 1000.0,
        "answer_tokens_mean": 200.0,
        "cached_ratio": 0.25,
        "kv_pool_tokens": 400_000.0,
        "gpu_count": 1.0,
        "power_w": 500.0,
        "weight_precision": "fp8",
        "kv_precision": "fp8",
        "itl_s": Quantiles(p95=0.03, mean=0.02, p95_low=0.025, p95_high=0.05),
        "window": Window(10.0, running - spread / 2, running + spread / 2, running, 0.1),
    }
    return make_record(Engine, dict(name=name, url=f"http://{name}", **{**base, **facts}))


def gone(name: str = "vllm:8000", state: EndpointState = EndpointState.REFUSED) -> Engine:
    """An engine that does not answer any more: all its figures are missing."""
    return replace(
        engine(1.0, name), state=state, running=NONE, waiting=NONE, running_mean=NONE, itl_mean_s=NONE, window=None,
        ranks=0,
    )  # fmt: skip


def gpu(index: int = 0, name: str = "vllm:8000", **facts: Any) -> Gpu:
    """An H100 with one engine's process on it."""
    process = GpuProcess(1, "VLLM::EngineCore", "u", 70e9, engine=name, command=facts.pop("command", ""))
    base: dict[str, Any] = {
        "state": GpuState.OK,
        "gpu_type": H100,
        "busy_ratio": 0.9,
        "engines": (name,),
        "processes": (process,),
        "bandwidth_peak_bytes_per_s": 3.35e12,
    }
    return make_gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA H100 80GB HBM3", age_s=0.1, **{**base, **facts})


def at(seconds: float, *engines: Engine, gpus: tuple[Gpu, ...] | None = None) -> Snapshot:
    """One tick."""
    missing = Missing(Reason.NOT_SUPPORTED)
    return Snapshot(
        time=f"2026-01-02T00:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}.000Z",
        wall_s=1.8e9 + seconds,
        simulated=False,
        interval_s=1.0,
        host=HostReading("h", "", "", missing, missing, missing),
        self_cost=Self(missing, missing),
        gpus=(gpu(),) if gpus is None else gpus,
        engines=engines,
    )
