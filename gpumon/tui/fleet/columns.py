"""Columns of the fleet's tables: a row per host, model or owner in 80 cells with its worst verdict behind, more on
wider screens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from gpumon.efficiency.merged import Known, merge_known
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import WATTS
from gpumon.fleet.free import Use
from gpumon.fleet.order import SORTS
from gpumon.fleet.row import FleetRow, is_least, row_reader
from gpumon.readings.format import (
    DASH,
    cells,
    cut,
    figure,
    least_time,
    model_name,
    ratio,
    right,
    short,
)
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.readings.written import writer
from gpumon.tui import line
from gpumon.tui.bar import bar
from gpumon.tui.levels import CALM, is_high, tone_of
from gpumon.tui.palette import BODY, bar_tone, levelled
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
from gpumon.tui.view import View

OWNER: Final = "owner"
"""Kind of rows that are one owner's each."""
_NAME_CELLS: Final = 18
_WIDE_NAME_CELLS: Final = 34
_WIDE_SCREEN: Final = 160
"""Cells of a screen on which names have more room."""
_BOTH_SHARES_SCREEN: Final = 120
"""Cells of a screen on which MFU and MBU are both shown, whatever the rows are sorted by."""
_BAR_CELLS: Final = 5
_BUSY_CELLS: Final = 1 + _BAR_CELLS + 1 + 4
"""Cells of the column of the busy share: a blank, its bar, a blank, and its percent."""
_GPUS_CELLS: Final = 6
"""Cells of the column of the number of GPUs, a blank before it included."""
LEAST_VERDICT: Final = 12
"""Least cells of the worst verdict behind the columns: a glyph and a word."""
_WIDER_ROOM: Final = 34
"""Cells that the columns of wider screens leave to the verdict, or are left out."""
_LAST_ROOM: Final = 60
"""The same for the last columns, which are the least important ones."""
_SHARE_CELLS: Final = (6, 5)
"""Cells of the columns MFU and MBU."""
_PARTIAL_MARK: Final = "~"
"""Behind a share that is known for a part of the GPUs."""
_DROPS: Final = ("vram", "mbu", "gpus", "mfu", "idle", "tokens", "ttft")
"""Columns that a narrow screen does without, the first one first: whoever is on call asks who waits, not for MFU."""
_OWNER_DROPS: Final = ("mbu", "mfu", "power", "tokens", "cost", "idle")
"""The same for rows of owners."""
_COLUMN_OF_SORT: Final = {"waste": "idle"}
"""Sort -> the column that shows what it goes by, where that has another name."""
_SORT_MEANS: Final = {
    "waste": "cost of idle GPUs per hour, else their number",
    "level": "how bad the worst verdict is, who waits, then waste",
}
"""Sort -> what it goes by, where the name does not tell it."""


def gpus_have_prices(view: View) -> bool:
    """Whether GPUs have a price, so that what lies idle is money."""
    prices = view.config.prices
    return bool(prices.by_type) or prices.gpu_hour is not None


def vram_ratio(row: FleetRow) -> Reading:
    """VRAM in use over all VRAM."""
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
    """Whether the FLOP/s peak of a GPU of the row is not verified: its MFU is unsure then."""
    return any(row_gpu.gpu.peak_unverified for row_gpu in row.parts.gpus)


def has_unverified_bandwidth(row: FleetRow) -> bool:
    """Whether the bandwidth peak of a GPU of the row is not verified: its MBU is unsure then."""
    return any(row_gpu.gpu.bandwidth_peak_unverified for row_gpu in row.parts.gpus)


def _gpus_cell(row: FleetRow, _: View, tone: str) -> line.Row:
    """Number of GPUs; before it how many of them report, if some do not and there is room: `41/48`."""
    if isinstance(row.gpus, Missing):
        return ((right(DASH, _GPUS_CELLS), "muted"),)
    reporting = row.busy_ratio.gpus
    text = f"{reporting}/{row.gpus}" if reporting < row.gpus else f"{row.gpus}"
    if cells(text) >= _GPUS_CELLS:
        text = f"{row.gpus}"
    return ((right(text, _GPUS_CELLS), tone),)


def _busy_cell(row: FleetRow, _: View, tone: str) -> line.Row:
    """The mean busy share as a bar, with the mean SM activity in it, and as percent."""
    sm_active = [row_gpu.gpu.reading.sm_active_ratio for row_gpu in row.parts.gpus]
    sm = merge_known(GPU["sm_active_ratio"], sm_active).value
    text, tone = share(row.busy_ratio.value, 4, tone)
    return ((" ", tone), *bar((("busy", row.busy_ratio.value), ("sm", sm)), _BAR_CELLS), (" " + text, tone))


def _idle_column(*, has_prices: bool) -> Column[FleetRow]:
    """Idle GPUs: their price per hour where prices are known, else how many GPUs' worth."""

    def text(row: FleetRow) -> str:
        idle = row.idle_cost_per_h if has_prices else row.idle_gpus
        if isinstance(idle.value, Missing):
            return short(idle.value, 5)
        return figure(idle.value)

    if has_prices:
        return figures_column("idle", title="idle/h", width=7, text=text, gap=0)
    return figures_column("idle", title="idle gpu", width=9, text=text, gap=0)


def _figure_column(name: str, catalogued: Figure, width: int, *, keep: int = 0) -> Column[FleetRow]:
    """The column of a figure in `width` cells, blanks before it included, under its short name and in its unit's form.
    It has the tone of its level, and a mark where it is high."""
    write = writer(catalogued)
    read = row_reader(catalogued)
    level = catalogued.level if catalogued.unit is not WATTS else ""  # that of power is for a share of a GPU's limit

    def cell(row: FleetRow, view: View, tone: str) -> line.Row:
        reading = read(row)
        shown = least_time(reading) if is_least(row, catalogued) else write(reading)
        if level and tone == "text":
            tone = tone_of(level, reading, view, tone)
        if is_high(tone):
            shown = with_high_mark(shown, width - 1)
        return ((right(shown, width), tone),)

    title = catalogued.short
    return Column(name, title, width, head=((right(title, width), "muted"),), cell=cell, keep=keep)


def _bandwidth_cell(row: FleetRow, _: View, tone: str) -> line.Row:
    """Memory bandwidth in use over its peak, as percent."""
    doubt = UNSURE if has_unverified_bandwidth(row) else ""
    text, tone = share(row.bandwidth_ratio.value, 6, tone, doubt)
    return ((" " + text, tone),)


def gpu_types_text(row: FleetRow) -> str:
    """Types of GPU with their numbers: `8x H100 SXM 2x L40S`."""
    return " ".join(f"{number}x {clean(name, 40).removeprefix('NVIDIA ')}" for name, number in row.gpu_types)


def is_partial(known: Known) -> bool:
    """Whether a figure is known, but not of all GPUs."""
    return not isinstance(known.value, Missing) and known.gpus < known.of


def _with_partial_mark(column: Column[FleetRow], known: Callable[[FleetRow], Known]) -> Column[FleetRow]:
    """The column with a mark behind a figure that is known for a part of the GPUs, where it has a cell for the mark."""

    def cell(row: FleetRow, view: View, tone: str) -> line.Row:
        pieces = column.cell(row, view, tone)
        if not pieces or not is_partial(known(row)):
            return pieces
        (text, tone), *_ = pieces
        if text.startswith("  "):  # the mark takes one of the blanks, and leaves one before the figure
            return ((right(text.strip() + _PARTIAL_MARK, column.width), tone),)
        return pieces

    return msgspec.structs.replace(column, cell=cell)


def _share_columns(*, together: bool) -> tuple[Column[FleetRow], Column[FleetRow]]:
    """The columns MFU and MBU; `together`: neither is shown without the other."""
    mfu: Column[FleetRow]
    mbu: Column[FleetRow]
    mfu, mbu = efficiency_columns(
        "fleet",
        _SHARE_CELLS,
        lambda row: (row.mfu_ratio.value, UNSURE if has_unverified_peak(row) else ""),
        lambda row: (row.mbu_ratio.value, UNSURE if has_unverified_bandwidth(row) else ""),
        together=together,
    )
    mfu_marked = _with_partial_mark(mfu, lambda row: row.mfu_ratio)
    mbu_marked = _with_partial_mark(mbu, lambda row: row.mbu_ratio)
    return mfu_marked, mbu_marked


def _idle_ratio(row: FleetRow) -> Reading:
    """Share of the GPUs that lies idle: what their busy share leaves."""
    busy = row.busy_ratio.value
    return busy if isinstance(busy, Missing) else max(0.0, 1.0 - busy)


def _free_text(row: FleetRow) -> str:
    """Free GPUs of a host, and the largest tensor parallelism that fits into them: `5 TP4`."""
    free = sum(len(domain.free) for domain in row.parts.domains)
    if not free:
        return "0" if any(domain.uses.get(Use.UNKNOWN.value, 0) < domain.gpus for domain in row.parts.domains) else DASH
    return f"{free} TP{max(domain.largest_tp for domain in row.parts.domains)}"


def _models_text(row: FleetRow) -> str:
    """Names of the models that are served, each shortened."""
    return " ".join(model_name(clean(model, 100), 20) for model in row.models)


_MFU_AND_MBU: Final[tuple[Column[FleetRow], Column[FleetRow]]] = _share_columns(together=True)
_MFU_OR_MBU: Final[tuple[Column[FleetRow], Column[FleetRow]]] = _share_columns(together=False)
_GPUS_HEAD: Final = (("  gpus", "muted"),)
_BANDWIDTH_HEAD: Final = ((right(GPU["bandwidth_bytes_per_s"].short, 7), "muted"),)
_BUSY_HEAD: Final = (
    (" " * (_BAR_CELLS + 1), "muted"),
    (BODY, bar_tone(levelled("busy", CALM))),
    (GPU["busy_ratio"].short, "muted"),
)
"""Its glyph is the legend of the bar."""
_GPUS: Final[Column[FleetRow]] = Column("gpus", title="gpus", width=_GPUS_CELLS, head=_GPUS_HEAD, cell=_gpus_cell)
_BUSY: Final[Column[FleetRow]] = Column("busy", title="busy", width=_BUSY_CELLS, head=_BUSY_HEAD, cell=_busy_cell)
_WAITING: Final = _figure_column("waiting", ENGINE["waiting"], 6, keep=_WIDER_ROOM)
_TTFT: Final = _figure_column("ttft", ENGINE["ttft_s.p95"], 10, keep=_WIDER_ROOM)
_VRAM: Final[Column[FleetRow]] = figures_column(
    "vram", title=GPU["vram_used_bytes"].short, width=5, text=lambda row: ratio(vram_ratio(row), 4), gap=0
)
_TOKENS: Final = _figure_column("tokens", ENGINE["decode_tokens_per_s"], 7)
_POWER: Final = _figure_column("power", GPU["power_w"], 6, keep=_WIDER_ROOM)
_IDLE_SHARE: Final[Column[FleetRow]] = figures_column(
    "idle_share", title="idle", width=6, text=lambda row: ratio(_idle_ratio(row)), gap=0
)
_COST: Final[Column[FleetRow]] = figures_column(
    "cost", title="cost/h", width=8, text=lambda row: figure(row.cost_per_h.value), gap=0
)
_MODELS: Final[Column[FleetRow]] = words_column(
    "models", title="models", width=30, text=_models_text, gap=2, keep=_LAST_ROOM
)
_FREE: Final[Column[FleetRow]] = figures_column("free", title="free", width=7, text=_free_text, keep=_WIDER_ROOM)
_HOSTS: Final[Column[FleetRow]] = figures_column(
    "hosts", title="hosts", width=5, text=lambda row: f"{len(row.hosts)}", keep=_LAST_ROOM
)
_MORE: Final[tuple[Column[FleetRow], ...]] = (
    _BUSY,
    _WAITING,
    _TTFT,
    _VRAM,
    _figure_column("itl", ENGINE["itl_s.p95"], 9, keep=_WIDER_ROOM),
    _figure_column("kv", ENGINE["kv_usage_ratio"], 5, keep=_WIDER_ROOM),
    _POWER,
    Column(
        "bandwidth",
        title=GPU["bandwidth_bytes_per_s"].name,
        width=7,
        head=_BANDWIDTH_HEAD,
        cell=_bandwidth_cell,
        keep=_WIDER_ROOM,
    ),
    _figure_column("tok_j", GPU["tokens_per_j"], 6, keep=_WIDER_ROOM),
    figures_column(
        "engines",
        title="engines",
        width=7,
        text=lambda row: f"{row.engines - row.silent}/{row.engines}" if row.silent else f"{row.engines}",
        keep=_LAST_ROOM,
    ),
    _figure_column("prefill", ENGINE["prefill_tokens_per_s"], 8, keep=_LAST_ROOM),
    _figure_column("requests", ENGINE["requests_per_s"], 6, keep=_LAST_ROOM),
    _figure_column("ttft_ok", ENGINE["ttft_goal.low_ratio"], 8, keep=_LAST_ROOM),
    _figure_column("itl_ok", ENGINE["itl_goal.low_ratio"], 8, keep=_LAST_ROOM),
    words_column("types", title="GPU types", width=18, text=gpu_types_text, gap=2, keep=_LAST_ROOM),
)
"""Columns of wider screens, in their order; those that a kind of rows has on every screen are left out here."""
_OF_ENGINES: Final = frozenset(
    (
        *("waiting", "ttft", "ttft_ok", "itl", "itl_ok", "kv", "mfu", "mbu", "tokens", "tok_j"),
        *("engines", "prefill", "requests", "models"),
    )
)
"""Columns that have nothing without an engine."""
_WITHOUT_ENGINES: Final = tuple(column for column in _MORE if column.name in ("power", "bandwidth"))
"""Columns that stand in their place."""
_FIRST_OF_MORE: Final[dict[str, tuple[Column[FleetRow], ...]]] = {"host": (_FREE,), "model": (), OWNER: ()}
"""The columns of each kind of rows that come before those of all kinds on wider screens."""
_LAST: Final[dict[str, tuple[Column[FleetRow], ...]]] = {
    "host": (_MODELS,),
    "model": (_HOSTS,),
    OWNER: (_MODELS, _HOSTS),
}
"""The last columns of each kind of rows."""


def _base_columns(
    kind: str, name: Column[FleetRow], *, has_prices: bool, is_narrow: bool
) -> tuple[Column[FleetRow], ...]:
    """The columns that every screen shows: what somebody on call looks at first, then efficiency; for owners what they
    hold and what of it lies idle."""
    shares = _MFU_OR_MBU if is_narrow else _MFU_AND_MBU
    idle = _idle_column(has_prices=has_prices)
    if kind != OWNER:
        return (name, _GPUS, _BUSY, _WAITING, _TTFT, _VRAM, *shares, _TOKENS, idle)
    owner_columns = (name, _GPUS, _IDLE_SHARE, _TOKENS, *shares, _POWER)
    if has_prices:
        return (*owner_columns, _COST, idle)
    return owner_columns


def bare_model(model: str, width: int) -> str:
    """A model's name without its organisation, even where that has room, so that all names of a list look alike."""
    return model_name(model.rstrip("/").rpartition("/")[2] or model, width)


def _without_engines(columns: Sequence[Column[FleetRow]]) -> tuple[Column[FleetRow], ...]:
    """The columns that have something without an engine."""
    return tuple(column for column in columns if column.name not in _OF_ENGINES)


@lru_cache(maxsize=128)
def _table(kind: str, width: int, sort: str, *, has_prices: bool, has_engines: bool) -> Table[FleetRow]:
    """The columns in their order; that of the sort stands with those that every screen shows. Without an engine those
    of engines are left out, and power and bandwidth stand with the first."""
    name_cells = _WIDE_NAME_CELLS if width >= _WIDE_SCREEN else _NAME_CELLS
    shorten = bare_model if kind == "model" else cut
    name: Column[FleetRow] = words_column(
        "name", title=kind, width=name_cells, text=lambda row: shorten(clean(row.name, 200), name_cells), fixed=True
    )
    base = _base_columns(kind, name, has_prices=has_prices, is_narrow=width < _BOTH_SHARES_SCREEN)
    others = (*_FIRST_OF_MORE[kind], *_MORE, *_LAST[kind])
    if not has_engines:
        base = (*_without_engines(base), *_WITHOUT_ENGINES)
        others = _without_engines(others)
    sorted_by = _COLUMN_OF_SORT.get(sort, sort)
    of_sort = [column for column in others if column.name == sorted_by and column not in base]
    drops = _OWNER_DROPS if kind == OWNER else _DROPS
    return Table(
        "fleet",
        (*base, *of_sort),
        [column for column in others if column not in base and column not in of_sort],
        drops=[column for column in drops if column != sorted_by],  # that of the sort stays
        room_behind=LEAST_VERDICT,
        room_behind_shifted=LEAST_VERDICT,
    )


def fleet_columns(kind: str, width: int, view: View, sort: str = "", *, has_engines: bool = True) -> Table[FleetRow]:
    """The columns of a row per host, per model or per owner, on a screen of `width` cells; the one that the rows are
    sorted by has a place on every screen. `has_engines`: whether there is an engine in the fleet."""
    # All widths between two of these have the same table, which is kept.
    least = max(screen for screen in (0, _BOTH_SHARES_SCREEN, _WIDE_SCREEN) if screen <= width)
    return _table(kind, least, sort, has_prices=gpus_have_prices(view), has_engines=has_engines)


def _sort_figure(row: FleetRow, sort: str) -> Reading:
    """The first figure that a sort goes by; 0 where it goes by the name alone."""
    figures = SORTS[sort](row)
    return figures[0] if figures else 0.0


ORDERS: Final[tuple[Order[FleetRow], ...]] = tuple(
    Order(
        name=sort,
        value=partial(_sort_figure, sort=sort),
        descending=sort != "name",
        means=_SORT_MEANS.get(sort, ""),
        column=_COLUMN_OF_SORT.get(sort, sort),
    )
    for sort in SORTS
)
"""The ways to sort the rows of a fleet."""
