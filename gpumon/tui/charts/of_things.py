"""Charts of single GPUs, engines and the host, by the keys of their series (`efficiency.points`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpumon.efficiency.points import AT, HOST, OF_GPU
from gpumon.readings.format import amount, celsius, count, ratio, seconds, watts, whole
from gpumon.readings.missing import Reading
from gpumon.tui.charts.curves import CHART_OF, CHARTS, Chart, Curve

_RATIOS: Final = {
    "busy": ("busy", "busy"),
    "sm": ("SM", "sm"),
    "tensor": ("tensor", "sm"),
    "dram": ("DRAM", "mbu"),
    "mfu": ("MFU", "mfu"),
    "mbu": ("MBU", "mbu"),
    "vram": ("VRAM", "mbu"),
    "kv": ("KV cache", "mbu"),
    "cpu": ("CPU", "busy"),
    "core": ("1 core", "busy"),
    "iowait": ("iowait", "warn"),
    "io": ("IO wait", "warn"),
    "disk": ("disk", "busy"),
}
"""Shares of 1: names and tones."""
_AMOUNTS: Final[dict[str, tuple[str, str, Callable[[Reading], str], str]]] = {
    "running": ("running", "accent", whole, ""),
    "waiting": ("waiting", "warn", whole, ""),
    "decode": ("decode tok/s", "tokens", count, ""),
    "prefill": ("prefill tok/s", "tokens", count, ""),
    "preempt": ("preemptions/s", "warn", count, ""),
    "ttft": ("TTFT p95", "accent", seconds, "s"),
    "itl": ("ITL p95", "accent", seconds, "s"),
    "queue": ("queue, mean", "warn", seconds, "s"),
    "power": ("power", "muted", watts, "W"),
    "clock": ("clock", "accent", amount, "Hz"),
    "temp": ("temp", "warn", celsius, "°C"),
    "net": ("net B/s", "accent", amount, ""),
}
"""The others: names, tones, how their figures are written, and units."""


def chart_of(key: str) -> Chart | None:
    """The chart of one series alone; None where the key means nothing."""
    mark = AT if AT in key else OF_GPU
    base, found, thing = key.partition(mark)
    if not found:
        whole_ = CHARTS[CHART_OF[key]] if key in CHART_OF else None
        own = [curve for curve in whole_.curves if curve.key == key] if whole_ is not None else []
        return whole_._replace(curves=tuple(own), stacked=False) if whole_ is not None else None
    if base not in _RATIOS and base not in _AMOUNTS:
        return None
    name, tone, text, unit = (*_RATIOS[base], ratio, "") if base in _RATIOS else _AMOUNTS[base]
    name = f"gpu {thing} {name}" if mark == OF_GPU else f"host {name}" if thing == HOST else name
    return Chart((Curve(name, base, key, tone, text),), unit, 1.0 if base in _RATIOS else 0.0)
