"""The few alerts that are worth a page, over the recorded figures: each names what to do."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency import promql as p
from gpumon.outputs.rules_engines import KV_USAGE, WAITING
from gpumon.outputs.rules_gpus import BUSY, MEMORY
from gpumon.outputs.rules_scope import RATE_SCRAPES, Scope, duration, number
from gpumon.outputs.rules_targets import ENGINES_KNOWN, GPUS_KNOWN, exporters, gpus_now
from gpumon.triage.samples import AWAKE
from gpumon.triage.thresholds import Thresholds


class Alert(NamedTuple):
    """An alerting rule."""

    name: str
    expr: str
    for_s: float
    severity: str
    summary: str
    fix: str


ENGINE = "{{ $labels.model_name }} on {{ $labels.instance }}"
GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} ({{ $labels.instance }})"
SLOW_BITS = {32: "SW thermal", 64: "HW thermal", 128: "power brake"}
"""Bits of the reasons for a lower clock that are no part of normal work under a power limit."""
WASTE_S = 1800.0


def alerts(s: Scope, limits: Thresholds) -> tuple[Alert, ...]:
    """All alerts; their limits are those of triage where it judges the same."""
    return (*_of_engines(s, limits), *_of_gpus(s, limits))


def _of_engines(s: Scope, limits: Thresholds) -> tuple[Alert, ...]:
    return (
        Alert(
            "GpumonEngineDown",
            f"{ENGINES_KNOWN} and on ({', '.join(s.target)}) up == 0",
            60.0,
            "critical",
            f"{ENGINE} does not answer",
            "see its log and its GPUs: `gpumon doctor` on that host; if it is gone for good, take out its target",
        ),
        Alert(
            "GpumonKvCacheFull",
            f"{KV_USAGE} > {number(limits.kv_full_ratio)} and {WAITING} > 0",
            300.0,
            "warning",
            f"{ENGINE}: KV cache {{{{ $value | humanizePercentage }}}} full and requests wait",
            "more instances, a shorter maximum length, or an FP8 KV cache",
        ),
        Alert(
            "GpumonLowUse",
            _under_used(s, limits),
            WASTE_S,
            "info",
            f"{ENGINE}: few requests, low MFU ({{{{ $value | humanizePercentage }}}}) and low MBU, and nothing waits",
            "more traffic, or the same traffic on fewer instances or GPUs: `gpumon size`",
        ),
    )


def _under_used(s: Scope, limits: Thresholds) -> str:
    """The rule `under used` of triage. The share of the KV pool in use is that of the requests that would fit: of an
    engine without one it is not known, and nothing is said."""
    window = duration(max(limits.under_used_s, RATE_SCRAPES * s.scrape_s))
    mfu, mbu, usage, waiting, running = (
        f"avg_over_time({name}[{window}])"
        for name in ("gpumon:engine_mfu:ratio", "gpumon:engine_mbu:ratio", KV_USAGE, WAITING, p.RUNNING)
    )
    return (
        f"({mfu} > 0) <= {number(limits.under_used_mfu_ratio)}\n"
        f"and {mbu} <= {number(limits.under_used_mbu_ratio)}\n"
        f"and {usage} <= {number(limits.under_used_slots_ratio)}\n"
        f"and {waiting} < {number(limits.queue_waiting)} and {running} > 0"
    )


def _of_gpus(s: Scope, limits: Thresholds) -> tuple[Alert, ...]:
    of_xid = s.of("DCGM_FI_DEV_XID_ERRORS")
    # A new Xid may be a new series: newer exporters have it as a label, too, and a new pod's series begins with it.
    xid = f"max {s.by_gpu} ({of_xid})"
    before = f"max {s.by_gpu} (last_over_time({of_xid}[1h] offset 1h))"
    names = (s.of("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"), s.of("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"))
    slow = " + ".join(f"floor(({' or '.join(names)}) / {bit}) % 2" for bit in SLOW_BITS)
    target = f"on ({', '.join(exporters(s))})"
    return (
        Alert(
            "GpumonGpusSilent",
            f"{GPUS_KNOWN} unless {target} {gpus_now(s)}",
            120.0,
            "critical",
            "no figures of the GPUs of {{ $labels.Hostname }} ({{ $labels.instance }})",
            "is the host up, its driver (`nvidia-smi` there), its exporter? If it is gone for good take out its target",
        ),
        Alert(
            "GpumonGpuHeldIdle",
            f"{BUSY} < {number(AWAKE)} and {MEMORY} > {number(limits.held_ratio)}",
            max(limits.gpu_idle_s, WASTE_S),
            "info",
            f"{GPU} does nothing and its memory is held",
            "stop what holds it, or put the model beside others",
        ),
        Alert(
            "GpumonXid",
            f"{xid} > 0\nand (max {s.by_gpu} (changes({of_xid}[1h])) > 0 or {xid} unless {xid} == {before})",
            0.0,
            "critical",
            f"{GPU}: Xid error",
            "drain it and read dmesg: the number is the value of DCGM_FI_DEV_XID_ERRORS",
        ),
        Alert(
            "GpumonThrottled",
            f"{slow} > 0",
            300.0,
            "warning",
            f"{GPU}: clocks lowered by heat or power brake",
            "cooling, power supply, power limits",
        ),
    )


def seconds(alert: Alert) -> str:
    """How long it must hold."""
    return duration(alert.for_s)
