"""Verdicts and events for the screens of the tests."""

from __future__ import annotations

from typing import Any

from gpumon.readings.snapshot import (
    Confidence,
    Engine,
    Event,
    EventKind,
    Evidence,
    Family,
    Gpu,
    Kind,
    Level,
    Limit,
    Verdict,
)
from gpumon.readings.verdict import Action, Signal

SINCE = "2025-10-09T08:50:12.000Z"


def of_engine(engine: Engine, limit: Limit, text: str, **others: Any) -> Verdict:
    values: dict[str, Any] = {"family": Family.LIMIT, "confidence": Confidence.HIGH}
    return Verdict(
        scope=engine.name, code=limit, cause=text, since=SINCE, kind=Kind.ENGINE, key=engine.key, **values | others
    )


def of_gpu(gpu: Gpu, limit: Limit, text: str, **others: Any) -> Verdict:
    values: dict[str, Any] = {"family": Family.STATE, "confidence": Confidence.HIGH}
    return Verdict(
        scope=f"gpu {gpu.reading.index}",
        code=limit,
        cause=text,
        since=SINCE,
        kind=Kind.GPU,
        key=gpu.reading.uuid,
        **values | others,
    )


def healthy(of: Engine | Gpu) -> Verdict:
    others = {"family": Family.USE, "level": Level.OK}
    if isinstance(of, Gpu):
        return of_gpu(of, Limit.HEALTHY, "31% MFU, 62% MBU", **others)
    return of_engine(of, Limit.HEALTHY, "room for 37 more at 40 ms", **others)


def bandwidth(engine: Engine) -> Verdict:
    return of_engine(
        engine,
        Limit.BANDWIDTH_BOUND,
        "reads 69% of HBM at batch 24: batch 50 still meets 40 ms",
        evidence=(
            Evidence("memory bandwidth 69%", source="NVML GPM metric 10 (DRAM_BW_UTIL)", value=0.69, chart="dram:0"),
            Evidence(
                "MBU 62%",
                source="(steps/s x weights + tokens/s x KV) / (GPUs x peak)",
                value=0.62,
                chart=f"mbu@{engine.key}",
            ),
            Evidence("batch 24", source="decode tokens/s / steps/s", value=24.0, chart=f"running@{engine.key}"),
        ),
        actions=(
            Action("raise --max-num-seqs to 50, quantise the weights to FP8, or put more GPUs under one instance"),
        ),
    )


def full_cache(engine: Engine) -> Verdict:
    return of_engine(
        engine,
        Limit.KV_CACHE_FULL,
        "KV cache 97% full with 31 waiting, 1.4 preemptions/s",
        level=Level.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence("KV cache 97%", source="vllm:kv_cache_usage_perc", value=0.97, chart=f"kv@{engine.key}"),
            Evidence("31 waiting", source="vllm:num_requests_waiting", value=31.0, chart=f"waiting@{engine.key}"),
            Evidence("goal of TTFT p95 1.0 s", source="config", value=1.0),
        ),
        actions=(Action("shorten --max-model-len, set --kv-cache-dtype fp8, or add an instance"),),
    )


def hot(gpu: Gpu) -> Verdict:
    return of_gpu(
        gpu,
        Limit.THROTTLED,
        "HW thermal slowdown holds the clock at 1.2 of 1.98 GHz",
        level=Level.WARN,
        evidence=(Evidence("88 °C", source="nvmlDeviceGetTemperature", value=88.0, chart=f"temp:{gpu.reading.index}"),),
        actions=(Action("check the fans and the air flow of this slot"),),
    )


def unknown(engine: Engine) -> Verdict:
    missing = (Signal("memory bandwidth (needs Hopper, or --dcgm)"), Signal("the model's dimensions"))
    return of_engine(
        engine,
        Limit.UNKNOWN,
        "",
        level=Level.NOTE,
        confidence=Confidence.LOW,
        unknown=missing,
    )


def past(now_s: float, engine: Engine, gpu: Gpu) -> tuple[Event, ...]:
    """What happened in the last minutes, oldest first."""
    return (
        Event(now_s - 880.0, EventKind.MODEL, engine.name, "serves Llama-3.3-70B", level=Level.OK, key=engine.key),
        Event(
            now_s - 320.0, EventKind.REPLICAS, engine.name, "2 -> 3 replicas answer", level=Level.NOTE, key=engine.key
        ),
        Event(
            now_s - 240.0,
            EventKind.XID,
            f"gpu {gpu.reading.index}",
            "Xid 31: memory page fault",
            level=Level.CRITICAL,
            key=gpu.reading.uuid,
        ),
        Event(
            now_s - 239.0,
            EventKind.RESTART,
            engine.name,
            "restarted after 3 h 40 min",
            level=Level.WARN,
            key=engine.key,
        ),
        Event(
            now_s - 190.0,
            EventKind.VERDICT,
            engine.name,
            "verdict_began",
            level=Level.NOTE,
            key=engine.key,
            verdict=bandwidth(engine),
        ),
        Event(
            now_s - 62.0,
            EventKind.THROTTLE,
            f"gpu {gpu.reading.index}",
            "hw thermal slowdown",
            level=Level.WARN,
            key=gpu.reading.uuid,
        ),
    )
