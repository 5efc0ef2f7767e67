"""One row per serving engine: load, throughput, latency, MFU and MBU in 80 cells, more on wider screens."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from gpumon.efficiency.goodput import within_itl_goal
from gpumon.efficiency.quantiles import least_e2e_s
from gpumon.efficiency.service import ROUTER_KINDS
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.readings.columns import ENGINE_COLUMNS
from gpumon.readings.flat import value_of
from gpumon.readings.format import (
    age,
    cells,
    counted,
    cut,
    left,
    model_name,
    quantile,
    rate,
    ratio,
    right,
    seconds,
    short,
    whole,
)
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.goals import PROMISED
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Kind, Quantiles, Verdict, WithinGoal
from gpumon.triage.render import LIMIT_NAMES
from gpumon.triage.signals import is_read_along
from gpumon.tui.levels import PLAIN_TONES, WARM, is_high, tone_of
from gpumon.tui.line import Row
from gpumon.tui.replica_rows import is_sums
from gpumon.tui.rows import Listing, ListScene, Order, figure_orders, figures_to_bound
from gpumon.tui.services import other_rate
from gpumon.tui.table import (
    PARTIAL,
    UNSURE,
    Cell,
    Column,
    Table,
    drawn_column,
    drawn_columns,
    efficiency_columns,
    figure_text_column,
    local_time_of,
    share,
    spans,
    with_high_mark,
    words_column,
)
from gpumon.tui.triage_words import mark, remarked
from gpumon.tui.view import View

_MODEL_CELLS: Final = 13
"""Cells of the model on a screen of 80 columns, without the blank before it."""
_GPUS_CELLS: Final = 5
"""Cells at the end of those of the model, at most, that say on which GPUs it runs."""
_WHOLE_MODEL_CELLS: Final = 38
"""Cells of the whole name of the model."""
_RUNNING_CELLS: Final = 4
_WAITING_CELLS: Final = 5
_KV_CELLS: Final = 5
_ROOMY_WIDTH: Final = 100
"""Columns of the screen from which running requests have a digit more."""
_GPUS_WIDTH: Final = 162
"""Columns of the screen from which the GPUs have a column of their own."""
_FULL_WIDTH: Final = 199
"""Columns of the screen from which the whole name of the model has room."""
_DECODE_CELLS: Final = 7
_PREFILL_CELLS: Final = 8
_TTFT_CELLS: Final = 7
_ITL_CELLS: Final = 7
_E2E_CELLS: Final = 9
_GOAL_CELLS: Final = 9
"""Cells of columns, the blanks before their figures included."""
_LATENCY_CELLS: Final = 5
"""Cells of a p95 before its mark."""
_LEAST_IN_THOUSANDS: Final = 999.5
_MOST_IN_THOUSANDS: Final = 99_500.0
"""Numbers of requests that are rounded to `1k` to `99k`, as four digits and their mark have no room."""
STATES: Final = {
    EndpointState.STARTING: ("… starting", "muted"),
    EndpointState.DRAINING: ("… draining", "muted"),
    EndpointState.DOWN: ("✗ DOWN", "critical"),
    EndpointState.REFUSED: ("! REFUSED", "warn"),
    EndpointState.TIMEOUT: ("! TIMEOUT", "warn"),
    EndpointState.DNS: ("! NO SUCH HOST", "warn"),
    EndpointState.TLS: ("! TLS", "warn"),
    EndpointState.UNAUTHORIZED: ("! UNAUTHORIZED", "warn"),
    EndpointState.METRICS_OFF: ("! METRICS OFF", "warn"),
    EndpointState.HTTP_ERROR: ("! HTTP ERROR", "warn"),
    EndpointState.NOT_METRICS: ("! NOT METRICS", "warn"),
    EndpointState.WRONG_ENGINE: ("! NO KNOWN ENGINE", "warn"),
    EndpointState.TOO_LARGE: ("! ANSWER TOO LARGE", "warn"),
    EndpointState.ERROR: ("! ERROR", "warn"),
}
"""Word and tone of an engine that gives no figures: a warning, as its fault is, unless a verdict says more."""
_STALE: Final = ("! STALE", "warn")
_ASLEEP: Final = ("… asleep", "muted")


def _model_cell(engine: Engine, view: View, tone: str) -> Row:
    """Family and size, and the GPUs: what a row is looked for by."""
    gpus = ""
    if "engines.gpus" not in view.hidden:
        gpus = cut(spans(engine.hardware.gpus), _GPUS_CELLS).replace(" …", "…")  # a cell more for numbers
    if gpus:
        gpus = f" {gpus}"
    room = _MODEL_CELLS - cells(gpus)
    return ((" " + left(_short_model(engine, room), room), tone), (gpus, "muted"))


def _model_alone_cell(engine: Engine, _: View, tone: str) -> Row:
    """Family and size; the GPUs have a column of their own."""
    return ((" " + left(_short_model(engine, _MODEL_CELLS), _MODEL_CELLS), tone),)


def _whole_model_cell(engine: Engine, _: View, tone: str) -> Row:
    """The model as the engine names it."""
    name = engine.model or _short_model(engine, _WHOLE_MODEL_CELLS)
    if engine.kind in ROUTER_KINDS:
        name = _front_end_text(engine)
    return ((" " + left(name, _WHOLE_MODEL_CELLS), tone),)


def _short_model(engine: Engine, room: int) -> str:
    """Family and size of the model in `room` cells; `training` for a training run that does not name one, and how many
    backends a front end has."""
    if engine.kind in ROUTER_KINDS:
        return cut(_backends_text(engine), room)
    model = "training" if not engine.model and engine.phase is Phase.TRAINING else engine.model
    return model_name(model.rstrip("/").rpartition("/")[2], room)


def _front_end_text(engine: Engine) -> str:
    """Backends of a front end, its model, and the requests that fail in it: `2/3 ready of llama, 0.2/s fail`."""
    text = _backends_text(engine)
    if engine.model:
        text = f"{text} of {engine.model}"
    failures = engine.rates.failures_per_s
    if isinstance(failures, Missing) or failures <= 0.0:
        return text
    end = f", {rate(failures)}/s fail"
    return f"{cut(text, _WHOLE_MODEL_CELLS - cells(end))}{end}"


def _backends_text(engine: Engine) -> str:
    """Backends of a front end, such as `2/3 ready`."""
    total = engine.load.backends_known
    ready = engine.load.backends_ready
    if isinstance(total, Missing) and isinstance(ready, Missing):
        return "front end"
    if isinstance(total, Missing):
        return f"{whole(ready)} ready"
    if isinstance(ready, Missing):
        return counted(round(total), "backend")
    return f"{whole(ready)}/{whole(total)} ready"


def _model_head(view: View) -> Row:
    """The header of the model, with that of the GPUs that stand in the same column."""
    gpus = "" if "engines.gpus" in view.hidden else "gpu"
    return ((" " + left("model", _MODEL_CELLS - len(gpus)) + gpus, "muted"),)


def _model_column(size: int, cell: Cell[Engine]) -> Column[Engine]:
    """The column of the model without GPUs, in `size` cells behind a blank."""
    return Column("model", title="model", width=1 + size, head=((" " + left("model", size), "muted"),), cell=cell)


def _decode_cell(engine: Engine, view: View, tone: str) -> Row:
    """Decode rate; training rate of a training run, inferences of a server of other models, requests of a front end:
    these only beside the prefill column, which says what they count."""
    per_s = engine.rates.decode_tokens_per_s
    if "engines.prefill" not in view.hidden:
        other = other_rate(engine)
        if other is not None:
            per_s = other.per_s
    return ((right(rate(per_s), _DECODE_CELLS), tone),)


def _prefill_cell(engine: Engine, view: View, tone: str) -> Row:
    """Prefill rate; of what has another rate in place of the decode rate, what that counts."""
    other = other_rate(engine) if "engines.decode" not in view.hidden else None
    if other is None:
        return ((right(rate(engine.rates.prefill_tokens_per_s), _PREFILL_CELLS), tone),)
    return ((" " + left(other.counted, _PREFILL_CELLS - 1), "muted"),)


def _tokens_or_other_rate(engine: Engine, tokens_per_s: Reading) -> Reading:
    """A rate of tokens; of what has another rate in place of the decode rate, that: its columns show it together."""
    other = other_rate(engine)
    return tokens_per_s if other is None else other.per_s


def _leveled_cell(row: Figure, value: Reading, view: View, text: str, width: int, tone: str) -> Row:
    """A figure by its level, with its mark where that is high."""
    if tone not in PLAIN_TONES:
        return ((right(text, width), tone),)
    tone = tone_of(row.level, value, view, tone)
    if is_high(tone):
        text = with_high_mark(text.strip(), width - 1)
    return ((right(text, width), tone),)


def _requests_text(requests: Reading) -> str:
    """A number of requests in 3 cells: `24`, `410`, `1k`."""
    if isinstance(requests, Missing) or requests < _LEAST_IN_THOUSANDS:
        return whole(requests)
    return f"{requests / 1e3:.0f}k" if requests < _MOST_IN_THOUSANDS else ">9k"


def _waiting_cell(engine: Engine, view: View, tone: str) -> Row:
    waiting = engine.load.waiting
    text = _requests_text(waiting)
    return _leveled_cell(ENGINE["waiting"], waiting, view, text, width=_WAITING_CELLS, tone=tone)


def _kv_cell(engine: Engine, view: View, tone: str) -> Row:
    used = engine.load.kv_usage_ratio
    text, _ = share(used, _KV_CELLS - 1, tone)
    return _leveled_cell(ENGINE["kv_usage_ratio"], used, view, text, width=_KV_CELLS, tone=tone)


def _latency_cell(engine: Engine, view: View, tone: str, row: Figure, width: int) -> Row:
    """A p95 in 5 cells and its mark in the last one; `~`, `<` or `>` before it moves it there.

    It is dim where it is only of what was. One in the first bucket has no level: it may be anything down to 0. Nor has
    a gap between the tokens of answers that nobody reads as they come, unless it has a goal: triage counts none, too.
    """
    quantiles: Quantiles = value_of(engine, row.field.partition(".")[0])
    gap = " " * (width - _LATENCY_CELLS - 1)
    if _shows_the_past(engine):
        tone = "muted"
    unread_gaps = row.level == "itl" and view.goals.itl_p95_ms is None and not is_read_along(engine)
    level = tone if unread_gaps or _in_first_bucket(quantiles) else tone_of(row.level, quantiles.p95, view, tone)
    if is_high(level):
        return ((f"{quantile(quantiles)}!".rjust(width), level),)
    text = quantile(quantiles).rjust(_LATENCY_CELLS).ljust(_LATENCY_CELLS + 1)
    return ((gap + text, level if tone == "text" else tone),)


def _in_first_bucket(quantiles: Quantiles) -> bool:
    """Whether the p95 is in the first bucket of its histogram."""
    bound_s = quantiles.first_bound_s
    p95_s = quantiles.p95
    return not isinstance(bound_s, Missing) and not isinstance(p95_s, Missing) and p95_s <= bound_s


def _shows_the_past(engine: Engine) -> bool:
    """Whether its latencies are only of what was: they reach back 60 s, and no token came in the last 10 s."""
    return engine.rates.decode_tokens_per_s == 0.0 and engine.rates.prefill_tokens_per_s == 0.0


def _e2e_cell(engine: Engine, view: View, tone: str) -> Row:
    """The p95 of E2E; where that of TTFT is surely longer, its bound: requests cannot end before their first token."""
    least_s = least_e2e_s(engine.latency)
    if least_s is None:
        return _latency_cell(engine, view, tone, ENGINE["e2e_s.p95"], _E2E_CELLS)
    if _shows_the_past(engine):
        tone = "muted"
    level = tone_of(ENGINE["e2e_s.p95"].level, least_s, view, tone)
    if is_high(level) or tone == "text":
        tone = level
    text = ">" + seconds(least_s).strip(" <>")
    return ((f"{right(text, _E2E_CELLS - 1)}{'!' if is_high(level) else ' '}", tone),)


def _goal_text(goal: WithinGoal) -> str:
    """The share within a goal: `97%`, or `83–91%` where only its bounds are known."""
    low = goal.low_ratio
    high = goal.high_ratio
    if isinstance(low, Missing):
        return short(low)
    text = ratio(low)
    return text if ratio(high) == text else f"{text.removesuffix('%')}–{ratio(high)}"


def _goal_cell(goal: WithinGoal, assumed: bool, tone: str) -> Row:
    """A share within a goal: `?` where the goal is assumed, `!` where it is surely below what is promised."""
    text = _goal_text(goal)
    if isinstance(goal.high_ratio, Missing):
        return ((right(f"{text} ", _GOAL_CELLS), tone),)
    if assumed:
        return ((right(text + UNSURE, _GOAL_CELLS), tone),)
    if goal.high_ratio < PROMISED and tone in PLAIN_TONES:
        return ((right(f"{text}!", _GOAL_CELLS), WARM),)
    return ((right(f"{text} ", _GOAL_CELLS), tone),)


def _column_with_mark(row: Figure, width: int, cell: Cell[Engine]) -> Column[Engine]:
    """A column whose last cell is for a mark, so that its title ends before that."""
    return drawn_column(row, width, cell, ((f"{right(row.short, width - 1)} ", "muted"),))


def _doubt_mark(engine: Engine, *, unverified: bool) -> str:
    """The mark behind an engine's MFU or MBU: the peak is not verified; of sums of replicas, which have no peak of
    their own, that some replicas are not in it."""
    if not unverified:
        return ""
    return PARTIAL if is_sums(engine) else UNSURE


def wasted_gpus(engine: Engine) -> Reading:
    """GPUs x (1 - the larger of MFU and MBU), in tenths of a GPU, so that engines of the same use keep their order."""
    gpus = engine.hardware.gpu_count
    ratios = (engine.efficiency.mfu_ratio, engine.efficiency.mbu_ratio)
    known_ratios = [value for value in ratios if not isinstance(value, Missing)]
    if isinstance(gpus, Missing):
        return gpus
    if not known_ratios:
        return engine.efficiency.mfu_ratio  # the reason why it is missing
    return round(gpus * (1.0 - min(1.0, max(known_ratios))), 1)


def waste_bound(engine: Engine) -> str:
    """Mark before wasted GPUs: `≤` where one of MFU and MBU is not known, and may be the larger one."""
    efficiency = engine.efficiency
    is_bound = isinstance(efficiency.mfu_ratio, Missing) or isinstance(efficiency.mbu_ratio, Missing)
    return "≤" if is_bound else ""


def _waste_text(engine: Engine) -> str:
    wasted = wasted_gpus(engine)
    return short(wasted) if isinstance(wasted, Missing) else f"{waste_bound(engine)}{wasted:.1f}"


_EFFICIENCY: Final[tuple[Column[Engine], Column[Engine]]] = efficiency_columns(
    "engines",
    (5, 5),
    lambda engine: (engine.efficiency.mfu_ratio, _doubt_mark(engine, unverified=engine.efficiency.peak_unverified)),
    lambda engine: (
        engine.efficiency.mbu_ratio,
        _doubt_mark(engine, unverified=engine.efficiency.bandwidth_peak_unverified),
    ),
)

_DRAWN: Final[tuple[Column[Engine], ...]] = (
    Column(
        "model",
        title="model",
        width=1 + _MODEL_CELLS,
        head=_model_head,
        cell=_model_cell,
        wider=(
            (_FULL_WIDTH, _model_column(_WHOLE_MODEL_CELLS, _whole_model_cell)),
            (_GPUS_WIDTH, _model_column(_MODEL_CELLS, _model_alone_cell)),
        ),
    ),
    msgspec.structs.replace(
        figure_text_column(ENGINE["running"], _RUNNING_CELLS, lambda engine: _requests_text(engine.load.running)),
        wider=(
            (
                _ROOMY_WIDTH,
                figure_text_column(ENGINE["running"], _RUNNING_CELLS + 1, lambda engine: whole(engine.load.running)),
            ),
        ),
    ),
    drawn_column(ENGINE["waiting"], _WAITING_CELLS, _waiting_cell),
    drawn_column(ENGINE["kv_usage_ratio"], _KV_CELLS, _kv_cell),
    msgspec.structs.replace(
        drawn_column(ENGINE["decode_tokens_per_s"], _DECODE_CELLS, _decode_cell),
        value=lambda engine: _tokens_or_other_rate(engine, engine.rates.decode_tokens_per_s),
    ),
    msgspec.structs.replace(
        drawn_column(ENGINE["prefill_tokens_per_s"], _PREFILL_CELLS, _prefill_cell),
        value=lambda engine: _tokens_or_other_rate(engine, engine.rates.prefill_tokens_per_s),
    ),
    # The headers of both say `ttft/itl p95` together, and `itl p95` fills its column: each is shorter alone.
    drawn_column(
        ENGINE["ttft_s.p95"],
        _TTFT_CELLS,
        partial(_latency_cell, row=ENGINE["ttft_s.p95"], width=_TTFT_CELLS),
        lambda view: (("  ttft " if "engines.itl" in view.hidden else "  ttft/", "muted"),),
    ),
    drawn_column(
        ENGINE["itl_s.p95"],
        _ITL_CELLS,
        partial(_latency_cell, row=ENGINE["itl_s.p95"], width=_ITL_CELLS),
        lambda view: (("    itl" if "engines.ttft" in view.hidden else ENGINE["itl_s.p95"].short, "muted"),),
    ),
    *_EFFICIENCY,
    _column_with_mark(ENGINE["e2e_s.p95"], _E2E_CELLS, _e2e_cell),
    _column_with_mark(
        ENGINE["ttft_goal.low_ratio"],
        _GOAL_CELLS,
        lambda engine, _, tone: _goal_cell(engine.goodput.ttft_goal, engine.goodput.ttft_goal_assumed, tone),
    ),
    _column_with_mark(
        ENGINE["itl_goal.low_ratio"],
        _GOAL_CELLS,
        lambda engine, _, tone: _goal_cell(within_itl_goal(engine.goodput), engine.goodput.itl_goal_assumed, tone),
    ),
    figure_text_column(ENGINE["wasted_gpus"], 10, _waste_text),
    msgspec.structs.replace(
        words_column("full_model", "full model name", _WHOLE_MODEL_CELLS, lambda engine: engine.model, gap=2),
        wider=((_FULL_WIDTH, None),),
    ),
)
"""Columns that are more than plain text, by name."""
_BASE: Final = drawn_columns(ENGINE_COLUMNS.base, _DRAWN)
EXTRA: Final = drawn_columns(ENGINE_COLUMNS.extra, _DRAWN)

TABLE: Final = Table(ENGINE_COLUMNS.pane, _BASE, EXTRA, drops=("model", "prefill", "ttft"))
_COLUMNS_WITHOUT_FIGURES: Final = frozenset(("engine", "model"))
"""Columns that an engine without figures has, too."""


def engine_row(
    engine: Engine,
    width: int,
    view: View,
    now_s: float,
    verdict: Verdict | None = None,
    shift: int = 0,
    of_state: Verdict | None = None,
) -> Row:
    """One engine at a Unix time; one that gives no figures shows since when, and the fix, in their place.

    `verdict`: its worst urgent one; `of_state`: the one on its state.
    """
    if _has_figures(engine):
        tone = "strong" if is_sums(engine) else "text"
        figures = tuple(TABLE.row(engine, width, view, tone, shift=shift))
        if verdict is not None:
            verdict_mark = mark(verdict)
            return _with_mark(figures, verdict_mark.glyph, verdict_mark.tone)
        if _deserves_mark(engine):
            return _with_mark(figures, "!", "warn")
        return figures
    identity = [
        piece
        for column in TABLE.columns(width, view.hidden)
        if column.name in _COLUMNS_WITHOUT_FIGURES
        for piece in column.cell(engine, view, "text")
    ]
    if engine.state is EndpointState.OK and engine.asleep:
        word, tone = _ASLEEP
        reason = engine.asleep
    else:
        word, tone = _word_without_figures(engine, now_s)
        reason = engine.fault
    if of_state is not None and engine.state is not EndpointState.OK:
        word, tone = remarked(word, tone, of_state.level)
    return (*identity, (f"  {word}  ", tone), (reason, "muted"))


def _has_figures(engine: Engine) -> bool:
    """Whether the row of an engine shows figures: it answers, serves and is not stale."""
    return engine.state is EndpointState.OK and not engine.asleep and not _is_stale(engine)


def _word_without_figures(engine: Engine, now_s: float) -> tuple[str, str]:
    """Word and tone of an engine that gives no figures, and for how long it has not."""
    if engine.state is EndpointState.OK:
        word, tone = _STALE
        return f"{word} {age(engine.age_s)}".rstrip(), tone
    if engine.departure:
        return ended_word(engine)
    word, tone = STATES[engine.state]
    since = local_time_of(engine.since)
    if since is None:
        return word, tone
    return f"{word} {age(max(0.0, now_s - since.timestamp()))}".rstrip(), tone


def ended_word(engine: Engine) -> tuple[str, str]:
    """Word and tone of an engine that has ended: stopped where somebody meant it, else down."""
    since = local_time_of(engine.since)
    clock = "" if since is None else f" since {since:%H:%M}"
    if any(departure.planned for departure in engine.departure):
        return f"! stopped{clock}", "warn"
    return f"✗ down{clock}", "critical"


def trouble_text(engine: Engine, verdict: Verdict | None = None, of_state: Verdict | None = None) -> str:
    """State of an engine in trouble, as `! vllm:8000 REFUSED`; just its name where its row has figures and a mark."""
    if engine.state is EndpointState.STARTING:
        return ""
    state, tone = STATES.get(engine.state, _STALE)
    if of_state is not None:
        state, _ = remarked(state, tone, of_state.level)
    glyph, _, word = state.partition(" ")
    if engine.state is not EndpointState.OK or _is_stale(engine):
        return f"{glyph} {engine.name} {word}"
    if verdict is not None:
        return f"{mark(verdict).glyph} {engine.name} {LIMIT_NAMES[verdict.code]}"
    if _deserves_mark(engine):
        return f"! {engine.name}"
    return ""


def _is_stale(engine: Engine) -> bool:
    """Whether its figures are older than they may be: a stale reading has this reason in each of them."""
    return isinstance(engine.load.running, Missing) and engine.load.running.reason is Reason.STALE


def _deserves_mark(engine: Engine) -> bool:
    """Whether it has figures that cannot be right or uneven ranks, or stands apart from its replicas."""
    return bool(engine.contradicts or engine.deviates or engine.uneven)


def _with_mark(row: Row, glyph: str, mark_tone: str) -> Row:
    """The row with a mark in its first cell, which is blank; the page of the engine says at its top what it is for."""
    (first, tone), *others = row
    return ((glyph, mark_tone), (first[1:], tone), *others)


ORDERS: Final[tuple[Order[Engine], ...]] = (
    Order("name", lambda engine: engine.name.casefold(), descending=False, column="engine"),
    *figure_orders(Engine, ENGINE, {"itl_goal.low_ratio": lambda engine: within_itl_goal(engine.goodput).low_ratio}),
    Order(GPU["waste_ratio"].name, wasted_gpus, means="GPUs x (1 - max(MFU, MBU))", column="waste"),
)
"""The ways to sort."""
FIGURE_NAMED: Final = figures_to_bound(Engine, ENGINE)
"""Gives a figure of an engine that a filter may bound, by its name."""


def ended_at(engine: Engine) -> tuple[str, str] | None:
    """Key by which the row of an ended engine is hidden: another end of it is shown again. None for any other
    engine."""
    if engine.state is EndpointState.DOWN:
        return engine.key, engine.since
    return None


def _filter_text(engine: Engine, scene: ListScene) -> str:
    """The text that the filter looks into."""
    verdict = scene.urgent.get(engine.key)
    return row_words(engine, "" if verdict is None else LIMIT_NAMES[verdict.code])


def row_words(engine: Engine, limit: str) -> str:
    """Name, model, URL, kind, version, GPUs, precision, and the state with what is wrong of an engine, for filters.
    `limit`: what limits it."""
    state = "ok"
    if engine.state is not EndpointState.OK:
        state, _ = STATES[engine.state]
    gpus = f"gpu {spans(engine.hardware.gpus)} {engine.hardware.gpu_type}"
    words = (engine.name, engine.model, engine.url, engine.kind.value, engine.version, gpus)
    return " ".join((*words, engine.efficiency.precision, state, engine.state.value, engine.fault, limit))


ENGINE_LISTING: Final = Listing[Engine](
    thing="engine",
    title="engines",
    key=lambda engine: engine.key,
    command="pane.engines",
    words=_filter_text,
    gpus=lambda engine, _: engine.hardware.gpus,
    figure_named=FIGURE_NAMED,
    engines=lambda engine, _: (engine.name,),
    filters="words, -word: without, kv>80",
    orders=ORDERS,
    table=TABLE,
    leaves_out=True,
    kind=Kind.ENGINE,
)
"""The engines, and the sums of a model's replicas."""
