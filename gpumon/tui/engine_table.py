"""One row per serving engine: load, throughput, latency, MFU and MBU in 80 cells, more on wider screens."""

from __future__ import annotations

from typing import Final

from gpumon.readings.format import age, count, left, quantile, ratio, right, whole
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.tui.line import Piece, Row
from gpumon.tui.table import Column, dropped, fitting, pair, part, without

BASE: Final = 80
"""Cells of the columns that every screen shows."""
_NAME: Final = 12
_MODEL: Final = 13

_DROPS: Final = (("model", 14), ("ttft", 6))
"""Columns, with their cells, that a screen of less than 80 cells leaves out, first to last."""

_STATES: Final = {
    EndpointState.STARTING: ("… starting", "muted"),
    EndpointState.REFUSED: ("✗ REFUSED", "critical"),
    EndpointState.TIMEOUT: ("✗ TIMEOUT", "critical"),
    EndpointState.DNS: ("✗ NO SUCH HOST", "critical"),
    EndpointState.TLS: ("✗ TLS", "critical"),
    EndpointState.UNAUTHORIZED: ("! UNAUTHORIZED", "warn"),
    EndpointState.METRICS_OFF: ("! METRICS OFF", "warn"),
    EndpointState.HTTP_ERROR: ("✗ HTTP ERROR", "critical"),
    EndpointState.NOT_METRICS: ("! NOT METRICS", "warn"),
    EndpointState.WRONG_ENGINE: ("! NO KNOWN ENGINE", "warn"),
    EndpointState.TOO_LARGE: ("! ANSWER TOO LARGE", "warn"),
    EndpointState.ERROR: ("✗ ERROR", "critical"),
}

EXTRA: Final[tuple[Column[Engine], ...]] = (
    Column("e2e", 4, lambda engine: quantile(engine.e2e_s, 4)),
    Column("queue", 5, lambda engine: quantile(engine.queue_s)),
    Column("req/s", 5, lambda engine: count(engine.requests_per_s)),
    Column("version", 8, lambda engine: engine.version),
    Column("cached", 6, lambda engine: count(engine.cached_tokens_per_s)),
    Column("step/s", 6, lambda engine: count(engine.steps_per_s)),
    Column("tok/J", 5, lambda engine: count(engine.tokens_per_j)),
    Column("context", 7, lambda engine: count(engine.context_tokens)),
    Column("gpus", 8, lambda engine: spans(engine.gpus) or engine.gpu_type, flush_left=True, gap=2),
    Column("runs in", 7, lambda engine: engine.precision, flush_left=True),
    Column("full model name", 38, lambda engine: engine.model, flush_left=True, gap=2),
)
"""What a wider screen adds, in this order."""


def narrow(width: int) -> tuple[str, ...]:
    """Columns that a screen below 80 cells leaves out."""
    return dropped(width, BASE, _DROPS)


def left_out(width: int) -> tuple[str, ...]:
    """All columns that a wider screen would show."""
    return narrow(width) + tuple(column.title for column in EXTRA[len(fitting(EXTRA, width - BASE)) :])


def head(width: int) -> Row:
    """The header."""
    extra = "".join(column.head() for column in fitting(EXTRA, width - BASE))
    parts: list[tuple[str, Piece]] = [
        ("", (f" {left('engine', _NAME)}", "muted")),
        ("model", (f" {left('model', _MODEL)}", "muted")),
        ("", ("  run wait   kv decode prefill", "muted")),
        ("ttft", ("  ttft", "muted")),
        ("", ("  itl", "muted")),
        ("", ("   mfu", "mfu")),
        ("", ("   mbu", "mbu")),
        ("", (extra, "muted")),
    ]
    return tuple(without(narrow(width), parts))


def row(engine: Engine, width: int) -> Row:
    """One engine; one that does not answer shows what is wrong and the fix instead of its figures."""
    model = engine.model.rpartition("/")[2] if len(engine.model) > _MODEL else engine.model
    stale = isinstance(engine.running, Missing) and engine.running.reason is Reason.STALE
    text = "muted" if stale else "text"
    name: list[tuple[str, Piece]] = [
        ("", (f" {left(engine.name, _NAME)}", text)),
        ("model", (f" {left(model, _MODEL)}", text)),
    ]
    if engine.state is not EndpointState.OK:
        word, tone = _STATES[engine.state]
        said = engine.fault or f"for {age(engine.age_s)}"
        return (*without(narrow(width), name), (f"  {word}  ", tone), (said, "muted"))
    load = f" {right(whole(engine.running), 4)} {right(whole(engine.waiting), 4)}"
    rates = f" {right(count(engine.decode_tokens_per_s), 6)} {right(count(engine.prefill_tokens_per_s), 7)}"
    unverified = (engine.peak_unverified, engine.bandwidth_peak_unverified)
    efficiency = pair(engine.mfu_ratio, engine.mbu_ratio, 5, unverified=unverified)
    parts: list[tuple[str, Piece]] = [
        *name,
        ("", (load, text)),
        ("", part(ratio(engine.kv_usage_ratio, 4), 4, text)),
        ("", (rates, text)),
        ("ttft", (f" {right(quantile(engine.ttft_s), 5)}", text)),
        ("", (f" {right(quantile(engine.itl_s, 4), 4)}", text)),
        *(("", piece) for piece in ([(right(f"stale {age(engine.age_s)}", 12), "warn")] if stale else efficiency)),
        ("", ("".join(column.cell(engine) for column in fitting(EXTRA, width - BASE)), text)),
    ]
    return tuple(without(narrow(width), parts))


def spans(numbers: tuple[int, ...]) -> str:
    """Sorted numbers with runs joined: `0-3 6`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
