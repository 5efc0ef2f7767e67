"""A snapshot as lines for `watch --plain`: one per GPU and engine, columns that stand still, no cursor moves, ASCII."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gpumon.outputs.units import NONE, milliseconds, quantities, token
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles, Replicas, Snapshot

_LEAST_NAME_WIDTH = 14
_MOST_NAME_WIDTH = 40
_STATE_WIDTH = max(len(state.value) for kind in (GpuState, EndpointState) for state in kind)


class _Column(NamedTuple):
    """`word value`, the value flush right in `width` cells."""

    word: str
    width: int
    value: Callable[[Any], str]


_MARKS: Final = {
    BandwidthSource.GPM: ("", "(m)"),
    BandwidthSource.DCGM: ("", "(m)"),
    BandwidthSource.ENGINE: (">=", ""),
    BandwidthSource.UPPER_BOUND: ("<=", ""),
    BandwidthSource.NONE: ("", ""),
}
"""What stands before and behind a bandwidth: measured, modelled from the engines, or an upper bound."""


def _vram(gpu: Gpu) -> str:
    used, total = quantities["gib"](gpu.vram_used_bytes), quantities["gib"](gpu.vram_total_bytes)
    return NONE if used == total == NONE else f"{used}/{total}GiB"


def _bandwidth(gpu: Gpu) -> str:
    before, after = _MARKS[gpu.bandwidth_source]
    shown = quantities["bytes_per_s"](gpu.bandwidth_bytes_per_s)
    return shown if shown == NONE else before + shown + after


def _latency(of: Quantiles) -> str:
    """The p95; `~` the mean where there is no quantile, `<` where it fell in the first bucket."""
    if isinstance(of.p95, Missing):
        return NONE if isinstance(of.mean, Missing) else f"~{milliseconds(of.mean)}"
    first = of.first_bound_s
    below = not isinstance(first, Missing) and of.p95 <= first
    return f"<{milliseconds(first)}" if below else milliseconds(of.p95)


def _reading(field: str, unit: str) -> Callable[[Any], str]:
    def value(of: Any) -> str:
        reading: Reading = getattr(of, field)
        return quantities[unit](reading)

    return value


_GPU: Final = (
    _Column("busy", 5, _reading("busy_ratio", "ratio")),
    _Column("sm", 5, _reading("sm_active_ratio", "ratio")),
    _Column("vram", 14, _vram),
    _Column("bw", 11, _bandwidth),
    _Column("mfu", 5, _reading("mfu_ratio", "ratio")),
    _Column("mbu", 5, _reading("mbu_ratio", "ratio")),
    _Column("power", 5, _reading("power_w", "w")),
    _Column("temp", 4, _reading("temperature_c", "c")),
)
_ENGINE: Final = (
    _Column("run", 5, _reading("running", "count")),
    _Column("wait", 5, _reading("waiting", "count")),
    _Column("kv", 5, _reading("kv_usage_ratio", "ratio")),
    _Column("decode", 8, _reading("decode_tokens_per_s", "per_s")),
    _Column("prefill", 8, _reading("prefill_tokens_per_s", "per_s")),
    _Column("ttft", 7, lambda engine: _latency(engine.ttft_s)),
    _Column("itl", 7, lambda engine: _latency(engine.itl_s)),
    _Column("mfu", 5, _reading("mfu_ratio", "ratio")),
    _Column("mbu", 5, _reading("mbu_ratio", "ratio")),
)


def lines(snapshot: Snapshot) -> str:
    """One line per GPU, engine, verdict and fault, each with the time and, where it is so, SIMULATED."""
    stamp = snapshot.time[:19] + (" SIMULATED" if snapshot.simulated else "")
    return "".join(f"{stamp} {line.rstrip()}\n" for line in _lines(snapshot))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    names = [token(engine.name) for engine in snapshot.engines]
    width = min(_MOST_NAME_WIDTH, max((_LEAST_NAME_WIDTH, *map(cells, names))))
    for gpu in snapshot.gpus:
        yield f"{_head('gpu', str(gpu.index), width, gpu.state.value)} {_columns(_GPU, gpu)}  {_gpu_end(gpu)}"
    for engine, name in zip(snapshot.engines, names, strict=True):
        end = token(engine.model) + (f"  {token(engine.fault, spaces=True)}" if engine.fault else "")
        yield f"{_head('engine', name, width, engine.state.value)} {_columns(_ENGINE, engine)}  {end}"
    for replicas in snapshot.replicas:
        down = len(replicas.engines) - replicas.answering
        apart = ", ".join(token(name) for name in replicas.deviating)
        parts = (token(replicas.model), f"{down} without figures" if down else "", f"apart: {apart}" if apart else "")
        name = f"{len(replicas.engines)} replicas"
        end = "  ".join(part for part in parts if part)
        yield f"{_head('sum', name, width, 'ok')} {_columns(_ENGINE, replicas)}  {end}"
    for verdict in snapshot.verdicts:
        texts = (verdict.limit, *verdict.evidence, verdict.action)
        yield f"verdict {token(verdict.scope)} " + "; ".join(token(text, spaces=True) for text in texts)
    for fault in snapshot.faults:
        yield f"fault {token(fault.source)} {token(fault.text, spaces=True)}"


def _head(kind: str, name: str, width: int, state: str) -> str:
    """Kind, name and state; a name longer than `width` stays whole: it is what a line is searched by."""
    return f"{kind:<6} {name}{' ' * (width - cells(name))} {state:<{_STATE_WIDTH}}"


def _columns(columns: tuple[_Column, ...], of: Gpu | Engine | Replicas) -> str:
    return " ".join(f"{column.word} {column.value(of):>{column.width}}" for column in columns)


def _gpu_end(gpu: Gpu) -> str:
    """Type of the GPU and what is wrong with it."""
    wrong = [*(f"throttled:{reason}" for reason in gpu.throttle), *(f"xid:{code}" for code in gpu.xid)]
    texts = (token(gpu.mig_profile or gpu.name), *(token(text) for text in wrong), token(gpu.state_text, spaces=True))
    return " ".join(text for text in texts if text != NONE)
