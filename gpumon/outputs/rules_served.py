"""Alerts over the series of `gpumon serve-metrics`: its verdicts, by each host's own [triage], and figures."""

from __future__ import annotations

from typing import Final

from gpumon.outputs.rules_alerts import WASTE_S, Alert
from gpumon.outputs.rules_scope import Scope, number
from gpumon.outputs.rules_targets import SERVED_KNOWN, exporters
from gpumon.triage.thresholds import Thresholds

HOST: Final = "{{ $labels.instance }}"
ENGINE: Final = f"{{{{ $labels.engine }}}} on {HOST}"
SCOPE: Final = f"{{{{ $labels.scope }}}} on {HOST}"
LOOK: Final = "`gpumon` on that host says what and why"
_VERDICTS: Final = (
    (
        "GpumonLowUse",
        'kind="engine", code=~"low_efficiency|idle_vram_held"',
        WASTE_S,
        "info",
        f"{SCOPE}: low efficiency, or idle",
        "more traffic, or the same traffic on fewer instances or GPUs: `gpumon size`",
    ),
    (
        "GpumonGpuHeldIdle",
        'kind="gpu", code="idle_vram_held"',
        WASTE_S,
        "info",
        f"{SCOPE} does nothing and its memory is held",
        "stop what holds it, or put the model beside others",
    ),
    (
        "GpumonThrottled",
        'code="throttled"',
        300.0,
        "warning",
        f"{SCOPE}: clocks held down",
        "cooling, power supply, power limits",
    ),
    (
        "GpumonVramFull",
        'kind="gpu", code="memory_full"',
        300.0,
        "warning",
        f"{SCOPE}: GPU memory nearly full",
        "a smaller batch, or fewer programs on this GPU",
    ),
    (
        "GpumonEngineStalled",
        'kind="engine", code=~"hung|unresponsive"',
        60.0,
        "critical",
        f"{SCOPE} hangs, or does not answer",
        f"{LOOK}; restart it if it hangs",
    ),
    (
        "GpumonHardware",
        'kind="gpu", code="hardware_fault"',
        0.0,
        "critical",
        f"{SCOPE}: hardware fault",
        f"drain it: {LOOK}",
    ),
)
"""Alert, matchers of the verdict, how long it must hold in seconds, severity, summary and fix."""


def served_alerts(s: Scope, limits: Thresholds) -> tuple[Alert, ...]:
    """All of them. `limits` are those of the figures; the verdicts' own are the hosts'."""
    by = ", ".join(exporters(s))
    verdicts = tuple(
        # Without its level and confidence, which change while it holds.
        Alert(name, f"max by ({by}, scope) ({s.of('gpumon_verdict', matchers)})", for_s, severity, summary, fix)
        for name, matchers, for_s, severity, summary, fix in _VERDICTS
    )
    return (*_of_sources(s, by), *_of_figures(s, limits, by), *verdicts)


def _of_sources(s: Scope, by: str) -> tuple[Alert, ...]:
    up, target = "gpumon_source_up", f"on ({by})"
    down = f'label_replace({s.of(up, _SOURCE_ENGINE)} == 0, "engine", "$1", "name", "(.*)")'
    starting = s.of("gpumon_engine_state", 'state="starting"')
    return (
        Alert(
            "GpumonServeMetricsDown",
            f"{SERVED_KNOWN} and {target} up == 0\nor max by ({by}) ({s.of(up, _SOURCE_OWN)}) == 0",
            120.0,
            "warning",
            f"gpumon serve-metrics on {HOST} gives no figures",
            "is the host up? See its log; if it is gone for good, take out its target",
        ),
        Alert(
            "GpumonEngineDown",
            f"max by ({by}, engine) ({down})\nunless on ({by}, engine) {starting}",
            60.0,
            "critical",
            f"{ENGINE} does not answer",
            "see its log and its GPUs: `gpumon doctor` on that host",
        ),
        Alert(
            "GpumonGpusSilent",
            f"max by ({by}, source) ({s.of(up, _SOURCE_GPUS)}) == 0",
            120.0,
            "critical",
            f"no figures of the GPUs of {HOST} ({{{{ $labels.source }}}})",
            "its driver (`nvidia-smi` there), or its dcgm-exporter: `gpumon doctor`",
        ),
        Alert(
            "GpumonXid",
            f"max by ({by}, gpu, xid) ({s.of('gpumon_gpu_xid')})\n"
            f"and {target} increase({s.of('gpumon_events_total', _XIDS)}[1h]) > 0",
            0.0,
            "critical",
            f"GPU {{{{ $labels.gpu }}}} of {HOST}: Xid {{{{ $labels.xid }}}}",
            "drain it and read dmesg",
        ),
    )


_SOURCE_ENGINE: Final = 'source="engine"'
_SOURCE_OWN: Final = 'source="collector"'
_SOURCE_GPUS: Final = 'source=~"nvml|dcgm"'
_XIDS: Final = 'kind="xid"'


def _of_figures(s: Scope, limits: Thresholds, by: str) -> tuple[Alert, ...]:
    engine, most = f"{by}, engine", number(limits.kv_full_ratio)
    usage, waiting = s.of("gpumon_engine_kv_cache_used_ratio"), s.of("gpumon_engine_requests_waiting")
    thrown_out = s.of("gpumon_engine_preemptions_per_second")
    return (
        Alert(
            "GpumonKvCacheFull",
            f"max by ({engine}) ({usage}) > {most}\nand on ({engine}) {waiting} > 0",
            300.0,
            "warning",
            f"{ENGINE}: KV cache {{{{ $value | humanizePercentage }}}} full and requests wait",
            "more instances, a shorter maximum length, or an FP8 KV cache",
        ),
        Alert(
            "GpumonPreemptions",
            f"max by ({engine}) ({thrown_out}) >= {number(limits.kv_preemptions_per_s)}",
            300.0,
            "warning",
            f"{ENGINE}: {{{{ $value | humanize }}}} requests/s thrown out of the KV cache",
            "fewer requests at once, more KV cache, or more instances",
        ),
    )
