"""Columns of the fleet's tables: a row per host, model or owner in 80 cells with its worst verdict behind, more on
wider screens."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import msgspec

from gpumon.fleet.order import SORTS
from gpumon.fleet.parts import Known, mean_of_known_gpus
from gpumon.fleet.row import STATE_LEVELS, FleetRow, has_nothing
from gpumon.fleet.snapshot import HostState
from gpumon.readings import glossary
from gpumon.readings.format import (
    DASH,
    age,
    cells,
    cut,
    figure,
    left,
    model_name,
    rate,
    ratio,
    right,
    seconds,
    short,
    watts,
    whole,
)
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import BRIEF, LIMIT_NAMES, actions_text
from gpumon.tui import line
from gpumon.tui.bar import bar
from gpumon.tui.levels import is_high, tone_of
from gpumon.tui.palette import BODY, bar_tone
from gpumon.tui.rows import Order
from gpumon.tui.table import (
    UNSURE,
    Column,
    Table,
    efficiency_columns,
    figures_column,
    share,
    with_high_mark,
    words_column,
)
from gpumon.tui.triage_words import LEVEL_MARKS, mark
from gpumon.tui.view import View

_STATES: Final[dict[HostState, tuple[str, str]]] = {
    state: (f"{LEVEL_MARKS[level][0]} {state.name}", LEVEL_MARKS[level][1]) for state, level in STATE_LEVELS.items()
}
"""Word and tone of a host that is not well known."""
OWNER: Final = "owner"
"""Kind of rows that are one owner's each."""
_NAME: Final = 18
_WIDE_NAME: Final = 34
_WIDE: Final = 160
"""Columns from which names have more room."""
_BOTH_SHARES: Final = 120
"""Columns from which MFU and MBU are both shown, whatever the rows are sorted by."""
_BAR: Final = 5
LEAST_VERDICT: Final = 12
"""Cells of the worst verdict behind the columns: a glyph and a word."""
_BRIEF_ROOM: Final = 24
"""Cells of it in which a part of its sentence would say nothing."""
_BRIEF_STATES: Final = {HostState.UNREACHABLE: "✗ NO ANSWER"}
"""States that have another word there."""
_ROOM: Final = 34
"""Cells that the columns of a wider screen leave to it."""
_MOST_ROOM: Final = 60
"""The same of the last ones."""


def priced(view: View) -> bool:
    """Whether GPUs have a price, so that what lies idle is money."""
    prices = view.config.prices
    return bool(prices.by_type) or prices.gpu_hour is not None


def vram_ratio(row: FleetRow) -> Reading:
    """VRAM in use of all there is."""
    used = row.vram_used_bytes.value
    total = row.vram_total_bytes.value
    if isinstance(used, Missing):
        return used
    if isinstance(total, Missing):
        return total
    if total > 0.0:
        return used / total
    return 0.0


def has_unverified_peak(row: FleetRow) -> bool:
    """Whether a FLOP/s peak in it is not verified."""
    return any(row_gpu.gpu.peak_unverified for row_gpu in row.parts.gpus)


def bandwidth_unsure(row: FleetRow) -> bool:
    """Whether a bandwidth peak in it is not verified."""
    return any(row_gpu.gpu.bandwidth_peak_unverified for row_gpu in row.parts.gpus)


def _gpus(row: FleetRow, _: View, tone: str) -> line.Row:
    """Number of GPUs; before it how many of them report, if some do not and there is room: `41/48`."""
    if isinstance(row.gpus, Missing):
        return ((right(DASH, 6), "muted"),)
    number = f"{row.gpus}"
    reporting = row.busy_ratio.gpus
    in_part = f"{reporting}/{number}"
    if reporting < row.gpus and cells(in_part) <= 5:
        number = in_part
    return ((right(number, 6), tone),)


def _busy(row: FleetRow, _: View, tone: str) -> line.Row:
    sm = mean_of_known_gpus([row_gpu.gpu.sm_active_ratio for row_gpu in row.parts.gpus]).value
    text, tone = share(row.busy_ratio.value, 4, tone)
    return ((" ", tone), *bar((("busy", row.busy_ratio.value), ("sm", sm)), _BAR), (" " + text, tone))


def _idle(money: bool) -> Column[FleetRow]:
    """Idle GPUs: their price per hour where prices are known, else how many GPUs' worth."""

    def text(row: FleetRow) -> str:
        value = idle_of(row, money).value
        if isinstance(value, Missing):
            return short(value, 5)
        return figure(value)

    return figures_column("idle", "idle/h" if money else "idle gpu", 7 if money else 9, text, gap=0)


def idle_of(row: FleetRow, money: bool) -> Known:
    """Idle money per hour, or idle GPUs."""
    return row.idle_cost_per_h if money else row.idle_gpus


def _leveled(
    name: str, title: str, width: int, value: Callable[[FleetRow], Reading], text: Callable[[Reading], str], keep: int
) -> Column[FleetRow]:
    """A column of figures by their level."""

    def cell(row: FleetRow, view: View, tone: str) -> line.Row:
        reading = value(row)
        if tone == "text":
            tone = tone_of(name, reading, view, tone)
        shown = text(reading)
        if is_high(tone):
            shown = with_high_mark(shown, width - 1)
        return ((right(shown, width), tone),)

    return Column(name, title, width, ((right(title, width), "muted"),), cell, keep)


def _bandwidth(row: FleetRow, _: View, tone: str) -> line.Row:
    text, tone = share(row.bandwidth_ratio.value, 6, tone, UNSURE if bandwidth_unsure(row) else "")
    return ((" " + text, tone),)


def _engines(row: FleetRow) -> str:
    if row.silent:
        return f"{row.engines - row.silent}/{row.engines}"
    return f"{row.engines}"


def _types(row: FleetRow) -> str:
    return " ".join(f"{number}x {clean(name, 40).removeprefix('NVIDIA ')}" for name, number in row.gpu_types)


PART: Final = "~"
"""Behind a share that is known for a part of the GPUs."""


def in_part(known: Known) -> bool:
    """Whether a figure is known, and not of all GPUs."""
    return not isinstance(known.value, Missing) and known.gpus < known.of


def _marked(column: Column[FleetRow], known: Callable[[FleetRow], Known]) -> Column[FleetRow]:
    """The column with a mark behind a figure of a part of the GPUs, where it has a cell for it."""

    def cell(row: FleetRow, view: View, tone: str) -> line.Row:
        pieces = column.cell(row, view, tone)
        if not pieces or not in_part(known(row)):
            return pieces
        (text, tone), *_ = pieces
        if text.startswith("  "):
            return ((right(text.strip() + PART, column.width), tone),)
        return pieces

    return msgspec.structs.replace(column, cell=cell)


def _shares(*, together: bool) -> tuple[Column[FleetRow], Column[FleetRow]]:
    """The columns MFU and MBU; `together`: neither is shown without the other."""
    shares: tuple[Column[FleetRow], Column[FleetRow]] = efficiency_columns(
        "fleet",
        (6, 5),
        lambda row: (row.mfu_ratio.value, UNSURE if has_unverified_peak(row) else ""),
        lambda row: (row.mbu_ratio.value, UNSURE if bandwidth_unsure(row) else ""),
        together=together,
    )
    return _marked(shares[0], lambda row: row.mfu_ratio), _marked(shares[1], lambda row: row.mbu_ratio)


_EFFICIENCY: Final[tuple[Column[FleetRow], Column[FleetRow]]] = _shares(together=True)
_APART: Final[tuple[Column[FleetRow], Column[FleetRow]]] = _shares(together=False)

_BANDWIDTH_HEAD: Final = ((right(glossary.BANDWIDTH.short, 7), "muted"),)
_BUSY_HEAD: Final = ((" " * (_BAR + 1), "muted"), (BODY, bar_tone("busy")), ("busy", "muted"))


_GPUS: Final[Column[FleetRow]] = Column("gpus", "gpus", 6, (("  gpus", "muted"),), _gpus)
_BUSY: Final[Column[FleetRow]] = Column("busy", "busy", _BAR + 6, _BUSY_HEAD, _busy)
_WAITING: Final[Column[FleetRow]] = _leveled(
    "waiting", glossary.WAITING.short, 6, lambda row: row.waiting, whole, _ROOM
)
_TTFT: Final[Column[FleetRow]] = _leveled(
    "ttft", glossary.TTFT.short, 10, lambda row: row.ttft_p95_s.value, seconds, _ROOM
)
_VRAM: Final[Column[FleetRow]] = figures_column("vram", "vram", 5, lambda row: ratio(vram_ratio(row), 4), gap=0)
_TOKENS: Final[Column[FleetRow]] = figures_column(
    "tokens", glossary.DECODE.short, 7, lambda row: rate(row.decode_tokens_per_s), gap=0
)
_POWER: Final[Column[FleetRow]] = figures_column(
    "power", glossary.POWER.short, 6, lambda row: watts(row.power_w.value), gap=0, keep=_ROOM
)


def idle_ratio(row: FleetRow) -> Reading:
    """Share of the GPUs that lies idle: what their busy share leaves."""
    busy = row.busy_ratio.value
    if isinstance(busy, Missing):
        return busy
    return max(0.0, 1.0 - busy)


_UNUSED: Final[Column[FleetRow]] = figures_column("idle_share", "idle", 6, lambda row: ratio(idle_ratio(row)), gap=0)
_COST: Final[Column[FleetRow]] = figures_column("cost", "cost/h", 8, lambda row: figure(row.cost_per_h.value), gap=0)


def _base(kind: str, name: Column[FleetRow], money: bool, narrow: bool) -> tuple[Column[FleetRow], ...]:
    """The columns that every screen shows: what somebody on call looks at first, then efficiency; of owners what they
    hold and what of it lies idle."""
    shares = _APART if narrow else _EFFICIENCY
    if kind != OWNER:
        return (name, _GPUS, _BUSY, _WAITING, _TTFT, _VRAM, *shares, _TOKENS, _idle(money))
    cost = (_COST, _idle(money)) if money else ()
    return (name, _GPUS, _UNUSED, _TOKENS, *shares, _POWER, *cost)


_MORE: Final[tuple[Column[FleetRow], ...]] = (
    _BUSY,
    _WAITING,
    _TTFT,
    _VRAM,
    _leveled("itl", glossary.ITL.short, 9, lambda row: row.itl_p95_s.value, seconds, _ROOM),
    _leveled("kv", glossary.KV_CACHE.short, 5, lambda row: row.kv_usage_ratio, lambda value: ratio(value, 4), _ROOM),
    _POWER,
    Column(
        "bandwidth", glossary.BANDWIDTH.name, 7, ((right(glossary.BANDWIDTH.short, 7), "muted"),), _bandwidth, _ROOM
    ),
    figures_column(
        "tok_j", glossary.TOKENS_PER_JOULE.short, 6, lambda row: figure(row.tokens_per_j), gap=0, keep=_ROOM
    ),
    figures_column("engines", "engines", 7, _engines, keep=_MOST_ROOM),
    figures_column("prefill", glossary.PREFILL.short, 7, lambda row: rate(row.prefill_tokens_per_s), keep=_MOST_ROOM),
    figures_column("requests", glossary.REQUESTS.short, 5, lambda row: figure(row.requests_per_s), keep=_MOST_ROOM),
    figures_column("ttft_ok", glossary.TTFT_GOAL.short, 7, lambda row: ratio(row.ttft_goal_ratio), keep=_MOST_ROOM),
    figures_column("itl_ok", glossary.ITL_GOAL.short, 7, lambda row: ratio(row.itl_goal_ratio), keep=_MOST_ROOM),
    words_column("types", "GPU types", 18, _types, gap=2, keep=_MOST_ROOM),
)


_DROPS: Final = ("vram", "mbu", "gpus", "mfu", "idle", "tokens", "ttft")
"""Columns that a narrow screen does without, the first one first: whoever is on call asks who waits, not for MFU."""
_OWNER_DROPS: Final = ("mbu", "mfu", "power", "tokens", "cost", "idle")
"""The same of owners."""
_COLUMN: Final = {"waste": "idle"}
"""Sort -> the column that shows what it goes by, where that has another name."""


def _models(row: FleetRow) -> str:
    return " ".join(model_name(clean(model, 100), 20) for model in row.models)


_MODELS: Final[Column[FleetRow]] = words_column("models", "models", 30, _models, gap=2, keep=_MOST_ROOM)
_HOSTS: Final[Column[FleetRow]] = figures_column("hosts", "hosts", 5, lambda row: f"{len(row.hosts)}", keep=_MOST_ROOM)


_LAST: Final[dict[str, tuple[Column[FleetRow], ...]]] = {
    "host": (_MODELS,),
    "model": (_HOSTS,),
    OWNER: (_MODELS, _HOSTS),
}
"""The last columns of each kind of rows."""


def bare_model(model: str, width: int) -> str:
    """A model without its organisation, whether or not that has room: names of a list are alike."""
    return model_name(model.rstrip("/").rpartition("/")[2] or model, width)


def _name(kind: str, width: int) -> Column[FleetRow]:
    """The column of the names of models, owners, or hosts."""
    shorten = bare_model if kind == "model" else cut
    return words_column("name", kind, width, lambda row: shorten(clean(row.name, 200), width), fixed=True)


@lru_cache(maxsize=128)
def _table(kind: str, width: int, money: bool, sort: str) -> Table[FleetRow]:
    """The columns in their order; that of the sort stands with those that every screen shows."""
    name = _name(kind, _WIDE_NAME if width >= _WIDE else _NAME)
    base = _base(kind, name, money, width < _BOTH_SHARES)
    more = tuple(column for column in (*_MORE, *_LAST[kind]) if column not in base)
    sorted_by = _COLUMN.get(sort, sort)
    first = tuple(column for column in more if column.name == sorted_by)
    return Table(
        "fleet",
        (*base, *first),
        tuple(column for column in more if column not in first),
        drops=_drops(kind, sorted_by),
        least=LEAST_VERDICT,
        behind=LEAST_VERDICT,
    )


def _drops(kind: str, sorted_by: str) -> tuple[str, ...]:
    """The columns that go first where room is short; that of the sort stays."""
    drops = _OWNER_DROPS if kind == OWNER else _DROPS
    return tuple(name for name in drops if name != sorted_by)


def fleet_columns(kind: str, width: int, view: View, sort: str = "") -> Table[FleetRow]:
    """The columns of a row per host, per model or per owner, on a screen of `width` cells; the one that the rows are
    sorted by has a place on every screen."""
    least = max(step for step in (0, _BOTH_SHARES, _WIDE) if step <= width)
    return _table(kind, least, priced(view), sort)


def _state_of(row: FleetRow, now_s: float) -> tuple[str, str] | None:
    """Word and tone of a row of which nothing new is known, and since when; None for all others, and where a verdict on
    it is more urgent."""
    if row.state not in _STATES or row.troubled < len(row.hosts):
        return None
    judged = row.state is not HostState.GONE
    if judged and row.level is not None and URGENCY[row.level] < URGENCY[STATE_LEVELS[row.state]]:
        return None
    word, tone = _STATES[row.state]
    seen_s = max((host.seen_wall_s for host in row.parts.hosts), default=0.0)
    silent_s = now_s - seen_s
    if silent_s >= 1.0:
        word = f"{word} {age(silent_s)}"
    return word, tone


def state_or_verdict(row: FleetRow, now_s: float, room: int) -> line.Row:
    """The state of a row in `room` cells, else its worst verdict; where room is short, its name."""
    brief = room < _BRIEF_ROOM
    state = _state_of(row, now_s)
    if state is not None:
        word, tone = state
        if brief:
            text = _brief_state(row, word, room)
        else:
            text = f"{word}{_fault(row)}"
        return ((" " + cut(text, room - 1), tone),)
    verdict = row.worst
    unanswered = _unanswered(row, brief=brief)
    if unanswered and (verdict is None or verdict.level not in URGENT):
        return ((" " + cut(unanswered, room - 1), "warn"),)
    if verdict is None:
        return _notice(row, room)
    glyph, tone, _ = mark(verdict)
    calm = verdict.level is Level.OK or tone == "muted"
    head = f"{glyph} {BRIEF[verdict.code]}"
    if brief:
        return ((" " + cut(head, room - 1), tone),)
    text = clean(row.verdict, 300)
    return ((" " + left(head, 11), tone), (" " + cut(text, room - 13), "muted" if calm else "text"))


def _brief_state(row: FleetRow, word: str, room: int) -> str:
    """The state alone, by a shorter name where it would be cut."""
    if cells(word) < room:
        return word
    return _BRIEF_STATES.get(row.state, word)


def _unanswered(row: FleetRow, *, brief: bool) -> str:
    """Engines, else exporters, that do not answer; empty where all do."""
    if row.silent:
        if brief:
            return f"! {row.silent} silent"
        return _silent(row)
    if row.exporters_down:
        return "! exporter down"
    return ""


def _notice(row: FleetRow, room: int) -> line.Row:
    """The notice of a host that answers and has no verdict: it has no GPU, or its gpumon has a fault."""
    if not row.verdict:
        return ()
    if any(map(has_nothing, row.parts.hosts)):
        return ((" " + cut(clean(row.verdict, 300), room - 1), "muted"),)
    return ((" " + cut(f"! {clean(row.verdict, 300)}", room - 1), "warn"),)


def sentence(row: FleetRow, now_s: float) -> tuple[str, str, str]:
    """Glyph, its tone, and a whole sentence: what is wrong with a row, and what to do; empty where nothing is known."""
    name = clean(row.name, 60)
    state = _state_of(row, now_s)
    verdict = row.worst
    if state is not None:
        glyph, _, word = state[0].partition(" ")
        return glyph, state[1], f"{name}: {word}{_fault(row)}"
    if row.silent and (verdict is None or verdict.level not in URGENT):
        return "!", "warn", f"{name}: {_silent(row).removeprefix('! ')}"
    if verdict is None and row.verdict:
        return "", "text", f"{name}: {clean(row.verdict, 400)}"
    if verdict is None:
        return "", "text", ""
    glyph, tone, _ = mark(verdict)
    action = ""
    if verdict.actions:
        action = f" - {clean(actions_text(verdict), 400)}"
    return glyph, tone, f"{name}: {LIMIT_NAMES[verdict.code]}: {clean(row.verdict, 400)}{action}"


def _silent(row: FleetRow) -> str:
    """Engines that do not answer, and why the first of them does not."""
    first = next(row_engine for row_engine in row.parts.engines if not row_engine.answers)
    where = ""
    if len(row.hosts) > 1:
        where = f"{clean(first.host, 40)} "
    why = ""
    if first.engine.fault:
        why = f": {where}{clean(first.engine.name, 40)}: {clean(first.engine.fault, 200)}"
    return f"! {row.silent} silent{why}"


def _fault(row: FleetRow) -> str:
    """Why, as the first fault has it."""
    faults = [fault for host in row.parts.hosts for fault in host.snapshot.faults]
    if faults:
        return f": {clean(faults[-1].text, 200)}"
    return ""


def _first(row: FleetRow, sort: str) -> Reading:
    """The first figure that a sort goes by; 0 where it goes by the name alone."""
    figures = SORTS[sort](row)
    return figures[0] if figures else 0.0


_MEANS: Final = {
    "waste": "what lies idle: in money, or GPUs",
    "level": "how bad the worst verdict is, who waits, then waste",
}
ORDERS: Final[tuple[Order[FleetRow], ...]] = tuple(
    Order(
        name,
        partial(_first, sort=name),
        name != "name",
        _MEANS.get(name, ""),
        _COLUMN.get(name, name),
    )
    for name in SORTS
)
"""The ways to sort, as rows of a fleet have them."""
