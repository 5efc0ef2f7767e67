"""One row per serving engine: load, throughput, latency, MFU and MBU in 80 cells, more on wider screens."""

from __future__ import annotations

from typing import Final

from gpumon.readings.format import age, amount, count, figure, quantile, rate, ratio, right, watts, whole
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.tui.line import Piece, Row
from gpumon.tui.replica_rows import is_sums
from gpumon.tui.rows import Order
from gpumon.tui.table import Cell, Column, Table, efficiency, figures, flagged, level, moment, share, spans, words
from gpumon.tui.view import View

_NAME: Final = 12
_MODEL: Final = 13

STATES: Final = {
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
"""Word and tone of an engine that gives no figures."""
_STALE: Final = ("! STALE", "warn")


def _model(engine: Engine) -> str:
    return engine.model.rpartition("/")[2] if len(engine.model) > _MODEL else engine.model


def _waiting(engine: Engine, _: View, tone: str) -> Row:
    waiting = engine.waiting
    if isinstance(waiting, Missing) or not waiting > 0.0:
        return ((" " + right(whole(waiting), 4), tone),)
    text = whole(waiting) if waiting < 999.5 else f"{waiting / 1e3:.0f}k" if waiting < 99_500.0 else ">9k"
    return ((" " + right(flagged(text, 4), 4), "warn"),)


def _kv(engine: Engine, view: View, tone: str) -> Row:
    high = level(engine.kv_usage_ratio, view.levels.kv_warn, view.levels.kv_critical)
    text, tone = share(engine.kv_usage_ratio, 4, tone)
    if high:
        text, tone = right(flagged(text.strip(), 4), 4), high
    return ((" " + text, tone),)


def _is_late(of: Quantiles, goal_ms: float | None) -> bool:
    """Whether a p95 is above its goal; in the first bucket it may be anything down to nothing."""
    if goal_ms is None or isinstance(of.p95, Missing):
        return False
    first = not isinstance(of.first_bound_s, Missing) and of.p95 <= of.first_bound_s
    return of.p95 * 1e3 > goal_ms and not first


def _other(of: Quantiles, value: Reading) -> str:
    """Another quantile than the p95."""
    return quantile(Quantiles(p95=value, first_bound_s=of.first_bound_s))


def _latency(of: Quantiles, goal_ms: float | None, tone: str, most: int) -> Piece:
    """A p95 in 4 cells and its mark in the fifth; up to `most` cells where there is no mark."""
    if _is_late(of, goal_ms):
        return f"{right(quantile(of, 4), 4)}!", "warn"
    text = quantile(of, most)
    return (right(text, 5) if len(text) > 4 else f"{right(text, 4)} "), tone


def _ttft(engine: Engine, view: View, tone: str) -> Row:
    text, tone = _latency(engine.ttft_s, view.goals.ttft_p95_ms, tone, 4 if "engines.itl" in view.hidden else 5)
    return ((" " + text, tone),)


def _itl(engine: Engine, view: View, tone: str) -> Row:
    text, tone = _latency(engine.itl_s, view.goals.itl_p95_ms, tone, 4)
    return ((" " + text, tone),)


def _e2e(engine: Engine, view: View, tone: str) -> Row:
    text, tone = _latency(engine.e2e_s, view.goals.e2e_p95_ms, tone, 4)
    return ((" " + text, tone),)


def _marked(name: str, title: str, width: int, cell: Cell[Engine]) -> Column[Engine]:
    """A column whose last cell is for a mark."""
    return Column(name, title, width, ((f"{right(title, width - 1)} ", "muted"),), cell)


def _plain(name: str, title: str, width: int, cell: Cell[Engine]) -> Column[Engine]:
    return Column(name, title, width, ((right(title, width), "muted"),), cell)


_EFFICIENCY: Final[tuple[Column[Engine], Column[Engine]]] = efficiency(
    "engines",
    (5, 6),
    lambda engine: (engine.mfu_ratio, engine.peak_unverified),
    lambda engine: (engine.mbu_ratio, engine.bandwidth_peak_unverified),
)

BASE: Final[tuple[Column[Engine], ...]] = (
    words("engine", "engine", _NAME, lambda engine: engine.name, fixed=True),
    words("model", "model", _MODEL, _model),
    figures("running", "run", 4, lambda engine: whole(engine.running)),
    _plain("waiting", "wait", 5, _waiting),
    _plain("kv", "kv", 5, _kv),
    figures("decode", "decode", 6, lambda engine: rate(engine.decode_tokens_per_s)),
    figures("prefill", "prefill", 7, lambda engine: rate(engine.prefill_tokens_per_s)),
    _marked("ttft", "ttft", 6, _ttft),
    _marked("itl", "itl", 6, _itl),
    *_EFFICIENCY,
)
"""What every screen shows."""

EXTRA: Final[tuple[Column[Engine], ...]] = (
    _marked("e2e", "e2e", 6, _e2e),
    figures("queue", "queue", 5, lambda engine: quantile(engine.queue_s)),
    figures("req_s", "req/s", 5, lambda engine: rate(engine.requests_per_s)),
    words("version", "version", 8, lambda engine: engine.version, gap=2),
    figures("cached", "cached", 6, lambda engine: rate(engine.cached_tokens_per_s)),
    figures("step_s", "step/s", 6, lambda engine: rate(engine.steps_per_s)),
    figures("tok_j", "tok/J", 5, lambda engine: figure(engine.tokens_per_j)),
    figures("context", "context", 7, lambda engine: count(engine.context_tokens)),
    words("gpus", "gpus", 8, lambda engine: spans(engine.gpus) or engine.gpu_type, gap=2),
    words("precision", "runs in", 7, lambda engine: engine.precision),
    words("full_model", "full model name", 38, lambda engine: engine.model, gap=2),
    figures("power", "power", 5, lambda engine: watts(engine.power_w)),
    figures("batch", "batch", 5, lambda engine: rate(engine.batch)),
    figures("preempt_s", "preempt/s", 9, lambda engine: rate(engine.preemptions_per_s)),
    figures("ttft_p50", "ttft p50", 8, lambda engine: _other(engine.ttft_s, engine.ttft_s.p50)),
    figures("ttft_p99", "ttft p99", 8, lambda engine: _other(engine.ttft_s, engine.ttft_s.p99)),
    figures("itl_p50", "itl p50", 7, lambda engine: _other(engine.itl_s, engine.itl_s.p50)),
    figures("itl_p99", "itl p99", 7, lambda engine: _other(engine.itl_s, engine.itl_s.p99)),
    figures("flops", "FLOP/s", 6, lambda engine: amount(engine.flops_per_s)),
    figures("traffic", "B/s", 5, lambda engine: amount(engine.bytes_per_s)),
    figures("mfu_prefill", "mfu pre", 7, lambda engine: ratio(engine.mfu_prefill_ratio)),
    figures("mfu_decode", "mfu dec", 7, lambda engine: ratio(engine.mfu_decode_ratio)),
    figures("kv_tokens", "kv tokens", 9, lambda engine: count(engine.kv_pool_tokens)),
    words("url", "url", 21, lambda engine: engine.url, gap=2),
)
"""What a wider screen adds, in this order."""

TABLE: Final = Table("engines", BASE, EXTRA, drops=("model", "ttft"))
_NAMES: Final = frozenset(("engine", "model"))
"""Columns that an engine without figures has, too."""


def head(width: int, view: View) -> Row:
    """The header."""
    return TABLE.head(width, view)


def row(engine: Engine, width: int, view: View, now_s: float) -> Row:
    """One engine at a Unix time; one that gives no figures shows since when, and the fix, in their place."""
    stale = isinstance(engine.running, Missing) and engine.running.reason is Reason.STALE
    if engine.state is EndpointState.OK and not stale:
        cells = tuple(TABLE.row(engine, width, view, "strong" if is_sums(engine) else "text"))
        return _apart(cells) if engine.deviates or engine.uneven else cells
    named = [column for column in TABLE.columns(width, view.hidden) if column.name in _NAMES]
    name = [piece for column in named for piece in column.cell(engine, view, "text")]
    if engine.state is EndpointState.OK:
        (word, tone), lasts = _STALE, age(engine.age_s)
    else:
        (word, tone), since = STATES[engine.state], moment(engine.since)
        lasts = "" if since is None else age(max(0.0, now_s - since.timestamp()))
    return (*name, (f"  {word} {lasts}".rstrip() + "  ", tone), (engine.fault, "muted"))


def _apart(cells: Row) -> Row:
    """The row of an engine whose ranks are uneven, or that stands apart from its replicas: its page says in what."""
    (first, tone), *rest = cells
    return (("!", "warn"), (first[1:], tone), *rest)


ORDERS: Final[tuple[Order[Engine], ...]] = (
    Order("name", lambda engine: engine.name.casefold(), descending=False),
    Order("running", lambda engine: engine.running),
    Order("waiting", lambda engine: engine.waiting),
    Order("KV", lambda engine: engine.kv_usage_ratio),
    Order("decode", lambda engine: engine.decode_tokens_per_s),
    Order("prefill", lambda engine: engine.prefill_tokens_per_s),
    Order("TTFT p95", lambda engine: engine.ttft_s.p95),
    Order("ITL p95", lambda engine: engine.itl_s.p95),
    Order("MFU", lambda engine: engine.mfu_ratio),
    Order("MBU", lambda engine: engine.mbu_ratio),
)
"""The ways to sort."""
