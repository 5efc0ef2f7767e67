"""Snapshots by hand for the tests of the outputs."""

from __future__ import annotations

from typing import Any

from gpumon.readings.flat import make_record
from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, HostReading, Phase
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import (
    BandwidthSource,
    Confidence,
    Engine,
    Event,
    EventKind,
    Evidence,
    Family,
    FaultShown,
    Gpu,
    Kind,
    Level,
    Limit,
    Quantiles,
    Self,
    Snapshot,
    TokensTotal,
    Verdict,
)
from gpumon.readings.verdict import Action, Signal
from tests.records import make_gpu, replace

HOSTILE = 'a\x1b[31m\n\u202e[bold]\x9b"\ud800' + "x" * 20_000
"""Escape, newline, bidi mark, markup, C1 control, quote, lone surrogate, and far too long."""


def gpu(index: int = 0, **changed: Any) -> Gpu:
    """A busy H100 whose bandwidth is measured."""
    command = "vllm serve llama --port 8000"
    worker = GpuProcess(4711, "VLLM::Worker", "llm", 7e10, engine="vllm:8000", command=command, sm_ratio=0.91)
    whole = make_gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100 80GB HBM3",
        state=GpuState.OK,
        age_s=0.2,
        busy_ratio=0.91,
        sm_active_ratio=0.64,
        tensor_active_ratio=0.3,
        vram_used_bytes=71.2 * 2**30,
        vram_total_bytes=79.6 * 2**30,
        bandwidth_bytes_per_s=2.31e12,
        bandwidth_source=BandwidthSource.GPM,
        bandwidth_peak_bytes_per_s=3.35e12,
        peak_source="catalogue",
        mfu_ratio=0.31,
        mbu_ratio=0.62,
        power_w=612.0,
        power_limit_w=700.0,
        energy_j=1e6,
        temperature_c=64.0,
        sm_clock_hz=1.98e9,
        engines=("vllm:8000",),
        processes=(worker,),
        busy_mean_ratio=0.5,
        tokens_per_j=0.4,
        pcie_generation=5.0,
        throttle_s={"sw_power_cap": 12.0},
        sources={"throttle_s": "NVML fields", "pcie_generation": "a driver call"},
    )
    return replace(whole, **changed)


def engine(**changed: Any) -> Engine:
    """A vLLM that serves."""
    whole = make_record(
        Engine,
        {
            "name": "vllm:8000",
            "kind": EngineKind.VLLM,
            "phase": Phase.INFERENCE,
            "url": "http://127.0.0.1:8000",
            "state": EndpointState.OK,
            "age_s": 0.4,
            "version": "0.11.0",
            "model": "meta-llama/Llama-3.3-70B-Instruct",
            "model_source": "catalogue",
            "gpus": (0, 1),
            "gpus_source": "process",
            "tp": 2,
            "running": 24.0,
            "waiting": 0.0,
            "kv_usage_ratio": 0.41,
            "prefill_tokens_per_s": 8200.0,
            "decode_tokens_per_s": 1100.0,
            "steps_per_s": 41.0,
            "ttft_s": Quantiles(p50=0.1, p95=0.21, p99=0.3, mean=0.12, first_bound_s=0.001),
            "itl_s": Quantiles(p95=0.01, mean=0.008, first_bound_s=0.01),
            "queue_s": Quantiles(p95=Missing(Reason.FEW), mean=0.0004),
            "tokens_total": TokensTotal(1e6, 2e5, 3e5),
            "mfu_ratio": 0.31,
            "mbu_ratio": 0.62,
            "flops_per_s": 6e14,
            "bytes_per_s": 4e12,
            "precision": "bf16",
            "sources": {"decode_tokens_per_s": "vllm:generation_tokens_total over 10 s"},
        },
    )
    return replace(whole, **changed)


def snapshot(**changed: Any) -> Snapshot:
    """One GPU, one engine."""
    whole = Snapshot(
        time="2026-01-02T14:03:22.500+01:00",
        wall_s=1767358.0,
        simulated=False,
        interval_s=1.0,
        host=HostReading("gpu-07", "580.95.05", "13.0", 0.12, 2.0**37, 2.0**40),
        self_cost=Self(0.011, 60.0 * 2**20),
        gpus=(gpu(),),
        engines=(engine(),),
    )
    return replace(whole, **changed)


def bare() -> Snapshot:
    """Nothing is known of anything."""
    blank = dict.fromkeys(("cpu_ratio", "memory_used_bytes", "memory_total_bytes"), NOT_SUPPORTED)
    return snapshot(
        host=HostReading("", "", "", **blank),
        self_cost=Self(NOT_SUPPORTED, NOT_SUPPORTED),
        gpus=(make_gpu(7, "GPU-7", "", GpuState.LOST, 14.0, state_text="fallen off the bus"),),
        engines=(
            make_record(
                Engine,
                {
                    "name": "engine:1",
                    "kind": EngineKind.UNKNOWN,
                    "phase": Phase.INFERENCE,
                    "url": "http://127.0.0.1:1",
                    "state": EndpointState.REFUSED,
                    "age_s": 3.0,
                    "fault": "nothing listens on 127.0.0.1:1",
                },
            ),
        ),
        faults=(FaultShown("nvml", "no driver", "2026-01-02T14:00:00+01:00"),),
        verdicts=(
            Verdict(
                "engine:1",
                Limit.BANDWIDTH_BOUND,
                "reads 69% of HBM",
                "2026-01-02T14:00:00Z",
                actions=(Action("raise the batch"),),
                evidence=(Evidence("MBU 69%"),),
                confidence=Confidence.HIGH,
            ),
        ),
    )


def judged() -> Snapshot:
    """A verdict with all that it can have, one that all is well, and an event."""
    proof = (
        Evidence("7 waiting", source="vllm:num_requests_waiting", value=7.0, chart="waiting@http://127.0.0.1:8000"),
    )
    since, config = "2026-01-02T14:00:00Z", Evidence("goal 1.0 s", source="config")
    return snapshot(
        verdicts=(
            Verdict(
                "vllm:8000",
                Limit.QUEUE_LIMIT,
                "7 wait while 24 run",
                since,
                actions=(Action("raise --max-num-seqs"),),
                evidence=(*proof, config),
                confidence=Confidence.HIGH,
                kind=Kind.ENGINE,
                key="http://127.0.0.1:8000",
                family=Family.LIMIT,
            ),
            Verdict(
                "gpu 3", Limit.HEALTHY, "busy 91%", since, evidence=proof, confidence=Confidence.MEDIUM, level=Level.OK
            ),
        ),
        events=(Event(1.0, EventKind.XID, "gpu 3", "Xid 79", level=Level.CRITICAL, key="GPU-3"),),
    )


def hostile() -> Snapshot:
    """Every text from outside is an attack, every number is impossible."""
    nan, inf = float("nan"), float("inf")
    return snapshot(
        simulated=True,
        host=HostReading(HOSTILE, HOSTILE, HOSTILE, nan, inf, -inf),
        gpus=(
            gpu(
                name=HOSTILE,
                uuid=HOSTILE,
                state_text=HOSTILE,
                busy_ratio=nan,
                power_w=inf,
                vram_used_bytes=-1.0,
                throttle=(HOSTILE,),
                processes=(GpuProcess(1, HOSTILE, HOSTILE, nan, HOSTILE, engine=HOSTILE),),
            ),
        ),
        engines=(
            engine(
                name=HOSTILE,
                model=HOSTILE,
                fault=HOSTILE,
                version=HOSTILE,
                url=HOSTILE,
                running=nan,
                ttft_s=Quantiles(*(nan for _ in range(7))),
                sources={HOSTILE: HOSTILE, "decode_tokens_per_s": HOSTILE},
            ),
        ),
        faults=(FaultShown(HOSTILE, HOSTILE, "2026-01-02T14:00:00+01:00"),),
        verdicts=(
            Verdict(
                HOSTILE,
                Limit.UNKNOWN,
                HOSTILE,
                "2026-01-02T14:00:00Z",
                actions=(Action(HOSTILE),),
                evidence=(Evidence(HOSTILE, source=HOSTILE, value=nan, chart=HOSTILE),),
                confidence=Confidence.LOW,
                key=HOSTILE,
                unknown=(Signal(HOSTILE),),
            ),
        ),
        events=(Event(1.0, EventKind.RESTART, HOSTILE, HOSTILE),),
    )


ALL = {"whole": snapshot, "bare": bare, "judged": judged, "hostile": hostile}
