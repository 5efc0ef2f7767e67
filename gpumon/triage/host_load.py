"""Is the host the limit? Its memory nearly full, its cores all at work, or its disks waited for."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Confidence, Evidence, Level
from gpumon.triage.engine_signals import finite, percent
from gpumon.triage.gpu_words import gib
from gpumon.triage.rule import Finding
from gpumon.triage.scene import Scene

WINDOW_S: Final = 60.0
MEAN: Final = ", mean of 60 s"
"""Of `WINDOW_S`."""
STAT: Final = "/proc/stat"
_FEW: Final = 1 << 30
"""Bytes left at which a host of any size is full."""


def memory_full(scene: Scene) -> Finding | None:
    """Near the point where the kernel kills a process: that is often an engine."""
    host, limits = scene.snapshot.host, scene.thresholds
    used, total = finite(host.memory_used_bytes), finite(host.memory_total_bytes)
    if used is None or not total:
        return None
    pressure = _mean(scene, "memory_pressure_ratio")
    waits = pressure is not None and pressure > limits.memory_pressure_ratio
    full = used > limits.host_memory_ratio * total
    if not full and not waits:
        return None
    evidence = [Evidence(f"memory {percent(used / total)}: {gib(total - used)} left", "/proc/meminfo", used)]
    if pressure is not None:
        shown = f"tasks wait for memory {percent(pressure)} of the time{MEAN}"
        evidence.append(Evidence(shown, "/proc/pressure/memory", pressure))
    if used < limits.host_memory_tight_ratio * total:
        return _cgroup_full(tuple(evidence), pressure or 0.0, total - used)
    worst = full and (waits or total - used < _FEW)
    text = f"memory {percent(used / total)} used, {gib(total - used)} left"
    text += (
        ": the kernel may soon kill a process"
        if full
        else f": tasks wait for it {percent(pressure or 0.0)} of the time"
    )
    action = (
        "fewer data loader workers, smaller --swap-space or CPU offload, no pinned buffers; ps aux --sort=-rss | head"
    )
    level = Level.CRITICAL if worst else Level.WARN
    return Finding(text, tuple(evidence), action, level, Confidence.HIGH if full else Confidence.MEDIUM)


def _cgroup_full(evidence: tuple[Evidence, ...], pressure: float, left: float) -> Finding:
    """The kernel counts tasks that wait at a cgroup's limit, too: the host itself has memory left."""
    text = f"tasks wait for memory {percent(pressure)} of the time, with {gib(left)} left: likely a container's limit"
    action = (
        "systemd-cgtop -m shows which is at its limit, its memory.events counts how often; raise it (docker update "
        "--memory, resources.limits.memory, MemoryMax=)"
    )
    return Finding(text, evidence, action, Level.NOTE, Confidence.LOW)


def cpu_saturated(scene: Scene) -> Finding | None:
    """All cores at work, and tasks that wait for one."""
    cpu, pressure = _mean(scene, "cpu_ratio"), _mean(scene, "cpu_pressure_ratio")
    limits = scene.thresholds
    if cpu is None or cpu < limits.cpu_high_ratio or (pressure is not None and pressure < limits.cpu_pressure_ratio):
        return None
    evidence = [Evidence(f"CPU {percent(cpu)} of all cores{MEAN}", STAT, cpu, "cpu@host")]
    text = f"all cores at work ({percent(cpu)})"
    if pressure is not None:
        text += f": tasks wait for one {percent(pressure)} of the time"
        evidence.append(
            Evidence(f"tasks wait for a core {percent(pressure)} of the time{MEAN}", "/proc/pressure/cpu", pressure)
        )
    action = "what feeds the GPUs waits too: move other jobs away, fewer workers than cores, pin the engine (taskset)"
    confidence = Confidence.HIGH if pressure is not None else Confidence.MEDIUM
    return Finding(text, tuple(evidence), action, Level.WARN, confidence)


def disk_waits(scene: Scene) -> Finding | None:
    """Tasks that wait for a disk much of the time."""
    limits = scene.thresholds
    pressure, iowait = _mean(scene, "io_pressure_ratio"), _mean(scene, "iowait_ratio")
    disk = _mean(scene, "disk_busy_ratio")
    if pressure is None or pressure < limits.io_pressure_ratio or (disk is not None and disk < limits.disk_busy_ratio):
        return None
    evidence = [
        Evidence(
            f"tasks wait for a disk {percent(pressure)} of the time{MEAN}", "/proc/pressure/io", pressure, "io@host"
        )
    ]
    if iowait is not None:
        evidence.append(Evidence(f"iowait {percent(iowait)} of all cores{MEAN}", STAT, iowait, "iowait@host"))
    if disk is not None:
        evidence.append(Evidence(f"busiest disk {percent(disk)} busy{MEAN}", "/proc/diskstats", disk, "disk@host"))
    action = "find the reader: iotop -o; put data and weights on local NVMe, in fewer and larger files"
    text = f"tasks wait for a disk {percent(pressure)} of the time"
    return Finding(text, tuple(evidence), action, Level.NOTE, Confidence.MEDIUM)


def _mean(scene: Scene, field: str) -> float | None:
    return finite(scene.recent.mean(field, WINDOW_S))
