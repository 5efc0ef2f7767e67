"""A host on which something is far from what it was: cores, disks, network or memory, though its GPUs have no more
to do than before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.readings.verdict import Level, Limit, Team
from gpumon.triage.change import Change
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.host import with_consumers
from gpumon.triage.hour import SLOT_S
from gpumon.triage.onset import means_around, rise_in_hour, wall_s
from gpumon.triage.samples import Recent
from gpumon.triage.sentences import FIND_READER
from gpumon.triage.signals import MINUTE_S, Case, finite
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.turns import PROCESS

_LASTS_S: Final = 60.0
"""Seconds for which a figure is another from which on it is told: a build or a copy of less is no news."""
_LEAST_TIMES: Final = 1.25
"""Times its level of before that a figure has to be in any case."""
_FAR_TIMES: Final = 5.0
"""Times its level of before from which on traffic of the network is far from it: it has no most that is known."""
_FAR_SHARE: Final = 0.4
"""Share of all cores, of the time, or of the memory by which a figure has to rise: less is a change of the load."""
_MEMORY_SHARE: Final = 0.25
"""The same of memory: a quarter of a host's is what no program takes and gives back unseen."""
_STARTS_BEFORE_S: Final = 180.0
"""Seconds before a change in which a program that began on a GPU may bring it about: it reads weights and data."""
_STARTS_AFTER_S: Final = 60.0
"""Seconds after it in which the same program may be seen on its GPU first."""
_MORE_BUSY: Final = 0.3
"""Share of time by which a GPU has to be busier than before to have other work."""
_MORE_LOAD: Final = 1.3
"""Times the requests or steps of before from which on the host of an engine has more to do."""
_LOADS: Final = ("decode_tokens_per_s", "prefill_tokens_per_s", "running", "trained_tokens_per_s", "samples_per_s")
"""Sampled fields of an engine that tell how much it has to do."""


PACE_CPU_RATIO: Final = Quantity(
    "pace_cpu_ratio", "CPU {value:percent} of all cores, {limit:percent} before", field="cpu_ratio"
)
PACE_DISK_BUSY_RATIO: Final = Quantity(
    "pace_disk_busy_ratio", "busiest disk {value:percent} busy, {limit:percent} before", field="disk_busy_ratio"
)
PACE_NETWORK_RX_BYTES_PER_S: Final = Quantity(
    "pace_network_rx_bytes_per_s", "receives {value:bytes}/s, {limit:bytes}/s before", field="network_rx_bytes_per_s"
)
PACE_MEMORY_USED_BYTES: Final = Quantity(
    "pace_memory_used_bytes", "memory {value:gib} used, {limit:gib} before", field="memory_used_bytes"
)
FIND_CPU_USER: Final = Remedy(
    "find_cpu_user",
    ("find out whose it is: top -o %CPU, systemd-cgtop; move it away, or give it fewer cores (taskset, cpu.max)"),
    team=Team.HOST,
)
FIND_MEMORY_USER: Final = Remedy(
    "find_memory_user",
    "find out whose it is: ps aux --sort=-rss | head, and files in memory: df -h -t tmpfs",
    team=Team.HOST,
)
FIND_RECEIVER: Final = Remedy(
    "find_receiver", "find out whose it is: sudo ss -tinp state established, nethogs", team=Team.HOST
)

CPU_ROSE: Final = Cause(
    "cpu_rose",
    Limit.CHANGED,
    "CPU {before:percent} -> {now:percent} of all cores since {began:clock}[: {process} uses {cores:cores}]",
    level=Level.NOTE,
)
DISK_ROSE: Final = Cause(
    "disk_rose",
    Limit.CHANGED,
    "busiest disk {before:percent} -> {now:percent} busy since {began:clock}",
    level=Level.NOTE,
)
NETWORK_ROSE: Final = Cause(
    "network_rose",
    Limit.CHANGED,
    "receives {now:bytes}/s since {began:clock}, {before:bytes}/s before",
    level=Level.NOTE,
)
MEMORY_ROSE: Final = Cause(
    "memory_rose",
    Limit.CHANGED,
    "memory in use {before:gib} -> {now:gib} since {began:clock}",
    level=Level.NOTE,
)


class _Figure(NamedTuple):
    """A figure of the host that may be another."""

    cause: Cause
    quantity: Quantity
    """Its figure, of a sampled field of `Host`."""
    source: str
    chart: str
    """Series of its chart; empty where it has none."""
    remedy: Remedy
    """The action that finds what it is."""


_FIGURES: Final = (
    _Figure(CPU_ROSE, PACE_CPU_RATIO, "/proc/stat", "cpu@host", FIND_CPU_USER),
    _Figure(DISK_ROSE, PACE_DISK_BUSY_RATIO, "/proc/diskstats", "disk@host", FIND_READER),
    _Figure(MEMORY_ROSE, PACE_MEMORY_USED_BYTES, "/proc/meminfo", "", FIND_MEMORY_USER),
    _Figure(NETWORK_ROSE, PACE_NETWORK_RX_BYTES_PER_S, "/proc/net/dev", "net@host", FIND_RECEIVER),
)
"""The most telling first."""


def host_changed(case: Case) -> Finding | None:
    """Rule: a figure of the host has risen far and to a height that matters, and its GPUs do nothing new.

    A note: where users or GPUs suffer from it, other rules say so.
    """
    for figure in _FIGURES:
        now = finite(case.recent.mean(figure.quantity.field, SLOT_S))
        if now is None:
            continue
        change = rise_in_hour(case.recent, figure.quantity.field, now, _LEAST_TIMES)
        if change is None or case.now_s - change.began_s < _LASTS_S or not _is_far(case, figure, change, now):
            continue
        # What the host does for new work is no news.
        if not any(_starts(case, change.began_s)) and not any(_is_busier(case, change.began_s)):
            return _finding(case, figure, change, now)
    return None


def _is_far(case: Case, figure: _Figure, change: Change, now: float) -> bool:
    """Whether a figure is far above what it was, and high enough to be worth a word."""
    limits: Thresholds = case.thresholds
    rise = now - change.before
    if figure.quantity.field == "cpu_ratio":
        return now >= limits.cpu_high_ratio and rise >= _FAR_SHARE
    if figure.quantity.field == "disk_busy_ratio":
        return now >= limits.disk_busy_ratio and rise >= _FAR_SHARE
    if figure.quantity.field == "network_rx_bytes_per_s":
        return now >= limits.network_bytes_per_s and now >= _FAR_TIMES * change.before
    total = finite(case.snapshot.host.memory_total_bytes)
    return total is not None and rise >= _MEMORY_SHARE * total


def _starts(case: Case, began_s: float) -> Iterator[bool]:
    """For each program on a GPU whether it began at that time."""
    wall_ahead_s = case.frame.wall_s - case.now_s
    for gpu in case.snapshot.gpus:
        for process in gpu.reading.processes:
            yield -_STARTS_BEFORE_S <= process.started_s - wall_ahead_s - began_s <= _STARTS_AFTER_S
        for turn in case.recents[gpu.reading.uuid].turns.noted:
            yield turn.setting == PROCESS and -_STARTS_BEFORE_S <= turn.at_s - began_s <= _STARTS_AFTER_S


def _is_busier(case: Case, began_s: float) -> Iterator[bool]:
    """For each GPU and engine whether it has more to do since a change."""
    for gpu in case.snapshot.gpus:
        busy = means_around(case.recents[gpu.reading.uuid], "busy_ratio", began_s)
        yield busy is not None and busy[1] - busy[0] >= _MORE_BUSY
    for engine in case.snapshot.engines:
        recent: Recent = case.recents[engine.key]
        for field in _LOADS:
            before = [value for end_s, value in recent.hour.timed_values(field) if end_s <= began_s]
            now = recent.mean(field, MINUTE_S)
            yield now is not None and now > _MORE_LOAD * max(before, default=now)


def _finding(case: Case, figure: _Figure, change: Change, now: float) -> Finding:
    """The finding on a figure of the host that is another."""
    source = f"{figure.source}, mean of {SLOT_S:.0f} s"
    evidence = figure.quantity.evidence(now, limit=change.before, source=source, chart=figure.chart)
    finding = figure.cause.finding(
        parameters=params(before=change.before, now=now, began=wall_s(case, change.began_s)),
        evidence=(evidence,),
        actions=(figure.remedy.action(),),
        began_s=change.began_s,
    )
    return with_consumers(case, finding) if figure.quantity.field == "cpu_ratio" else finding
