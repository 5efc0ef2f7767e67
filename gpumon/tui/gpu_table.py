"""One row per GPU: activity, memory, bandwidth, MFU, MBU, power, temperature and state in 80 cells, more where
there is room."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Levels
from gpumon.efficiency.gpu import over_window
from gpumon.efficiency.ratio import divide
from gpumon.figures.gpu import GPU
from gpumon.readings.columns import GPU_COLUMNS
from gpumon.readings.flat import value_of
from gpumon.readings.format import (
    DASH,
    age,
    amount,
    cells,
    celsius,
    count,
    fahrenheit,
    left,
    memory,
    right,
    short,
    two_digits,
    watts,
)
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading
from gpumon.readings.snapshot import BandwidthSource, Gpu, Kind, Verdict
from gpumon.specs.units import GIB
from gpumon.triage.marks import peers_waited_for
from gpumon.triage.render import LIMIT_NAMES, WAITS
from gpumon.tui.bar import Stage, bar
from gpumon.tui.levels import CALM, HOT, NOTE, WARM, is_high, tone_of
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import BODY, STAGES, VRAM, bar_tone, levelled
from gpumon.tui.rows import Listing, ListScene, Order, figure_orders, figures_to_bound
from gpumon.tui.table import UNSURE, Column, Table, drawn_column, drawn_columns, efficiency_columns, share
from gpumon.tui.triage_words import LEVEL_MARKS, badge, remarked
from gpumon.tui.view import View

NARROW_STAGES: Final = STAGES[:2]
"""Stages of a bar that is too short for all four."""
_BAR_CELLS: Final = 6
"""Cells of the bars of busy and VRAM on a screen of 80 columns."""
_WIDER_BARS: Final = ((130, 16), (91, 10))
"""Columns of the screen -> cells of the busy bar from there on: no column of a narrower screen gives way to it."""
_FUNNELS: Final = ((200, 26), (160, 20))
"""The same of the busy bar with all stages."""
_WIDER_VRAM_BARS: Final = ((200, 12), (117, 8), (103, 6))
"""The same of the bar of VRAM, which has all there is beside what is used from there on."""
_BUSY_FIGURE_CELLS: Final = 5
"""Cells of the busy share behind a bar, the blank before it included."""
_STATE_CELLS: Final = 11
"""Cells of the state."""
IDLE_BELOW: Final = 0.01
"""A GPU that is busy for less than this share is idle."""
_DIM_FROM_S: Final = 5.0
"""Age of a figure from which it is dim beside those of this second."""
_HELD_SHARE: Final = 0.05
"""VRAM in use above this share is held by someone."""

_IN_ONE_CELL: Final = {"": " ", ">=": "≥", "<=": "≤"}
"""Signs before a bandwidth that do not take one cell -> what stands in that cell."""


class _StateWord(NamedTuple):
    """How a state is shown."""

    word: str
    tone: str
    with_age: bool = False
    """Whether the age of the reading follows."""


_STATES: Final = {
    GpuState.STALE: _StateWord("! STALE", "warn", with_age=True),
    GpuState.MUTE: _StateWord("✗ MUTE", "alarm", with_age=True),
    GpuState.LOST: _StateWord("✗ LOST", "alarm", with_age=True),
    GpuState.RESET_REQUIRED: _StateWord("✗ RESET", "critical"),
    GpuState.NO_PERMISSION: _StateWord("! NO ACCESS", "warn"),
    GpuState.ERROR: _StateWord("! ERROR", "warn", with_age=True),
    GpuState.INITIALISING: _StateWord("  starting", "muted"),
}
"""The states other than OK."""
_THROTTLE_WORDS: Final = {
    "hw_thermal": _StateWord("! hot (hw)", "warn"),
    "sw_thermal": _StateWord("! hot (sw)", "warn"),
    "hw_power_brake": _StateWord("! pwr brake", "warn"),
    "hw_slowdown": _StateWord("! slowdown", "warn"),
    "sw_power_cap": _StateWord("  power cap", "muted"),
}
"""Start of the driver's name for a reason, worst first. Reasons not listed (clock settings) limit by choice."""
_DEFAULT_LEVELS: Final = Levels()
"""Levels of a config that says nothing of them."""
_COMPUTING_SHARE: Final = 0.5
"""Tensor activity of a GPU that wastes nothing: a long prefill keeps it at 60% and more."""
_OK: Final = "  ok"
"""State of a healthy GPU of which there is nothing to say: its cell is blank."""
_LOW_USE: Final = "  low eff."
"""State of a GPU that is busy with little to show for it."""
_QUIET_TONES: Final = ("muted", "note")
"""Tones of states that are no trouble: a verdict takes their place."""
_TROUBLE_TONES: Final = ("warn", "critical", "alarm")
"""Tones of states that are named on the rule while their rows are out of view."""
_SEVERAL: Final = 2
"""GPUs from which a state that all of them have stands on the rule, and in no row."""
_LEAST_UUID_FILTER: Final = 6
"""Characters from which a filter may mean a UUID: shorter ones are in too many of them."""


def _gpu_name(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """`3`, or `3.0` for the first MIG slice of GPU 3, in the order in which `nvidia-smi -L` lists them. `gpus`: all of
    the host."""
    if not gpu.reading.parent_uuid:
        return f"{gpu.reading.index}"
    slices = [other.reading.uuid for other in gpus if other.reading.parent_uuid == gpu.reading.parent_uuid]
    return f"{gpu.reading.index}.{slices.index(gpu.reading.uuid)}"


def _bar_column(size: int) -> Column[Gpu]:
    """Busy and SM activity as a bar of so many cells, and the busy share as a figure."""

    def cell(gpu: Gpu, view: View, tone: str) -> Row:
        stages = _shown_stages(gpu, view, NARROW_STAGES)
        return (*bar(stages, size, busy_level(gpu, view.levels)), *_busy_figure(gpu, tone))

    head = ((" " * size, "muted"), (BODY, _legend_tone("busy")), (GPU["busy_ratio"].short, "muted"))
    return drawn_column(GPU["busy_ratio"], size + _BUSY_FIGURE_CELLS, cell, head)


def _funnel_column(size: int) -> Column[Gpu]:
    """The four stages as a bar of so many cells, and the busy share as a figure."""

    def cell(gpu: Gpu, view: View, tone: str) -> Row:
        stages = _shown_stages(gpu, view, STAGES)
        return (*bar(stages, size, busy_level(gpu, view.levels)), *_busy_figure(gpu, tone))

    width = size + _BUSY_FIGURE_CELLS

    def head(view: View) -> Row:
        """The stages that are shown, and the name of the figure where that has room."""
        legend: list[Piece] = []
        for stage, _ in _stage_fields(STAGES, view.hidden):
            legend += [(BODY, _legend_tone(stage)), (f"{stage} ", "muted")]
        room = width - cells_of(legend)
        title = GPU["busy_ratio"].short
        return (*legend, (right(title if cells(title) <= room else "", room), "muted"))

    return drawn_column(GPU["busy_ratio"], width, cell, head)


def _legend_tone(stage: str) -> str:
    """The tone of a stage in the header: that of a calm bar."""
    return bar_tone(levelled(stage, CALM))


def busy_level(gpu: Gpu, levels: Levels) -> str:
    """The level of a GPU's work, which its busy bar has the colour of: a note where it is busy with little to show for
    it, a warning or worse where its state is."""
    word, tone = gpu_state(gpu, levels)
    if tone == "warn":
        return WARM
    if tone in _TROUBLE_TONES:
        return HOT
    return NOTE if word == _LOW_USE else CALM


def vram_level(gpu: Gpu, view: View) -> str:
    """The level of a GPU's memory, which its bar has the colour of: a note where it is held though nothing runs on it,
    else that of the share in use."""
    if holds_vram(gpu):
        return NOTE
    return tone_of(GPU["vram_used_bytes"].level, _vram_share(gpu), view, CALM)


def _vram_share(gpu: Gpu) -> Reading:
    """The share of a GPU's memory that is in use."""
    return divide(gpu.reading.vram_used_bytes, gpu.reading.vram_total_bytes, NOT_SUPPORTED)


def _busy_figure(gpu: Gpu, tone: str) -> Row:
    """The busy share behind its bar."""
    text, tone = share(gpu.reading.busy_ratio, _BUSY_FIGURE_CELLS - 1, tone)
    return ((" " + text, tone),)


def _shown_stages(gpu: Gpu, view: View, names: tuple[str, ...]) -> list[Stage]:
    """The stages with their shares, but for those whose column the user has hidden."""
    return [(name, value_of(gpu, field)) for name, field in _stage_fields(names, view.hidden)]


@lru_cache(maxsize=16)
def _stage_fields(names: tuple[str, ...], hidden: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Stages that are shown, which have the names of columns, and the fields of a GPU that have their shares."""
    return tuple((name, GPU.by_column[name].field) for name in names if f"gpus.{name}" not in hidden)


def _tone_by_age(gpu: Gpu, tone: str) -> str:
    """The tone of what is measured less often than the rest of its row, as by a dcgm-exporter: dim once it is old."""
    old = not isinstance(gpu.activity_age_s, Missing) and gpu.activity_age_s >= _DIM_FROM_S
    return "muted" if old and tone == "text" else tone


def _sm_cell(gpu: Gpu, _: View, tone: str) -> Row:
    text, tone = share(gpu.reading.sm_active_ratio, 4, _tone_by_age(gpu, tone))
    return ((" " + text, tone),)


def _vram_column(size: int, *, with_total: bool) -> Column[Gpu]:
    """Memory in use as a bar of so many cells and as a figure, with all there is where it has room."""
    figure_cells = 9 if with_total else 4

    def cell(gpu: Gpu, view: View, tone: str) -> Row:
        share_used = _vram_share(gpu)
        tone = _level_tone(GPU["vram_used_bytes"].level, share_used, view, tone)
        text = memory(gpu.reading.vram_used_bytes, view.memory_bytes)
        if isinstance(gpu.reading.vram_total_bytes, Missing):
            text = short(gpu.reading.vram_total_bytes, figure_cells)
        elif with_total:
            text = f"{text}/{memory(gpu.reading.vram_total_bytes, view.memory_bytes)}"
        pieces = bar(((VRAM, share_used),), size, vram_level(gpu, view))
        return ((" ", tone), *pieces, (f" {right(text, figure_cells)}{_level_mark(tone)}", tone))

    width = 1 + size + 1 + figure_cells + 1

    def head(view: View) -> Row:
        title = f"{GPU['vram_used_bytes'].short} {view.memory_unit}"
        return ((f"{right(title, width - 1)} ", "muted"),)

    return drawn_column(GPU["vram_used_bytes"], width, cell, head)


def _bandwidth_cell(gpu: Gpu, _: View, tone: str) -> Row:
    """Bandwidth in 6 cells, its share of the peak, and its mark; before a share two digits of the amount are enough."""
    source = gpu.bandwidth_source
    lead_mark = _IN_ONE_CELL.get(source.sign, source.sign)
    end_mark = "m" if source.is_measured else " "
    if source is BandwidthSource.DCGM:
        tone = _tone_by_age(gpu, tone)
    used = gpu.bandwidth_bytes_per_s
    peak = gpu.bandwidth_peak_bytes_per_s
    if isinstance(used, Missing):
        return ((f"{right(short(used), 6)} {right(DASH, 4)}{end_mark}", tone),)
    if isinstance(peak, Missing) or not peak > 0.0:
        return ((f"{right(lead_mark + amount(used), 6)}     {end_mark}", tone),)
    text, tone_of_share = share(used / peak, 4, tone)
    if gpu.bandwidth_peak_unverified and text.endswith("%"):
        end_mark = UNSURE
    return ((right(lead_mark + two_digits(used), 6), tone), (f" {text}", tone_of_share), (end_mark, tone))


def _temperature_cell(gpu: Gpu, view: View, tone: str) -> Row:
    tone = _level_tone(GPU["temperature_c"].level, gpu.reading.temperature_c, view, tone)
    return ((f" {right(_degrees(gpu.reading.temperature_c, view), 3)}{_level_mark(tone)}", tone),)


def _power_cell(gpu: Gpu, view: View, tone: str) -> Row:
    used = gpu.power_w
    limit = gpu.reading.power_limit_w
    if not isinstance(used, Missing) and not isinstance(limit, Missing) and limit > 0.0:
        tone = _level_tone(GPU["power_w"].level, used / limit, view, tone)
    text = watts(used)
    if len(text) >= 5:
        return ((right(text, 6), tone),)  # the whole column: no cell is left for a mark
    return ((f"{right(text, 5)}{_level_mark(tone)}", tone),)


def _level_tone(name: str, value: Reading, view: View, tone: str) -> str:
    """The tone of a figure by its level; in a dim row it is as dim as the others."""
    return tone_of(name, value, view, tone) if tone == "text" else tone


def _level_mark(tone: str) -> str:
    """The mark behind a figure by the tone of its level; a blank behind one that is calm."""
    return "!" if is_high(tone) else " "


def _degrees(value: Reading, view: View) -> str:
    return fahrenheit(value) if view.fahrenheit else celsius(value)


def _unit(view: View) -> str:
    return "°F" if view.fahrenheit else "°C"


def _state_cell(gpu: Gpu, view: View, tone: str) -> Row:
    word, tone = gpu_state(gpu, view.levels)
    return ((" " + left("" if word == _OK else word, _STATE_CELLS), tone),)


_EFFICIENCY: Final[tuple[Column[Gpu], Column[Gpu]]] = efficiency_columns(
    "gpus",
    (6, 6),
    lambda gpu: (gpu.mfu_ratio, UNSURE if gpu.peak_unverified else ""),
    lambda gpu: (gpu.mbu_ratio, UNSURE if gpu.bandwidth_peak_unverified else ""),
)

_BUSY: Final = msgspec.structs.replace(
    _bar_column(_BAR_CELLS),
    wider=(
        *((width, _funnel_column(size)) for width, size in _FUNNELS),
        *((width, _bar_column(size)) for width, size in _WIDER_BARS),
    ),
)
_BANDWIDTH: Final = GPU["bandwidth_bytes_per_s"]
_STATE_HEAD: Final = ((" " + left("  state", _STATE_CELLS), "muted"),)
_SM_HEAD: Final = (("  ", "muted"), (BODY, _legend_tone("sm")), (GPU["sm_active_ratio"].short, "muted"))

_DRAWN: Final[tuple[Column[Gpu], ...]] = (
    Column(
        "index",
        title="#",
        width=4,
        head=(("  # ", "muted"),),
        cell=lambda gpu, _, tone: ((f" {right(str(gpu.reading.index), 2)} ", tone),),
        fixed=True,
    ),
    _BUSY,
    msgspec.structs.replace(
        drawn_column(GPU["sm_active_ratio"], 5, _sm_cell, _SM_HEAD),
        wider=tuple((width, drawn_column(GPU["sm_active_ratio"], 5, _sm_cell)) for width, _ in _FUNNELS),
    ),
    msgspec.structs.replace(
        _vram_column(_BAR_CELLS, with_total=False),
        wider=tuple((width, _vram_column(size, with_total=True)) for width, size in _WIDER_VRAM_BARS),
    ),
    drawn_column(_BANDWIDTH, 12, _bandwidth_cell, ((f"{_BANDWIDTH.short} B/s".center(12), "muted"),)),
    *_EFFICIENCY,
    drawn_column(GPU["power_w"], 6, _power_cell),
    drawn_column(GPU["temperature_c"], 5, _temperature_cell, lambda view: ((f"{right(_unit(view), 4)} ", "muted"),)),
    Column("state", title="state", width=1 + _STATE_CELLS, head=_STATE_HEAD, cell=_state_cell, fixed=True),
    drawn_column(
        GPU["memory_temperature_c"],
        7,
        lambda gpu, view, tone: ((right(_degrees(gpu.reading.memory_temperature_c, view), 7), tone),),
        lambda view: ((right(f"mem {_unit(view)}", 7), "muted"),),
    ),
)
"""Columns that are more than plain text, by name."""
_BASE: Final = drawn_columns(GPU_COLUMNS.base, _DRAWN)
EXTRA: Final = drawn_columns(GPU_COLUMNS.extra, _DRAWN)

TABLE: Final = Table(GPU_COLUMNS.pane, _BASE, EXTRA, drops=("temperature", "power", "vram"))


def gpu_row(
    gpu: Gpu,
    width: int,
    view: View,
    verdict: Verdict | None = None,
    shift: int = 0,
    of_state: Verdict | None = None,
    gpus: Sequence[Gpu] = (),
    hides_state: bool = False,
) -> Row:
    """One GPU. A GPU that does not answer is dim, but for its state.

    `verdict`: its worst urgent one; `of_state`: the one on its state. `gpus`: all of its host, of which a MIG slice has
    its number. `hides_state`: whether the rule names the state for all of them, so that no row does.
    """
    gpu = over_window(gpu)
    tone = "text" if gpu.reading.state is GpuState.OK else "muted"
    instead: dict[str, Row] = {}
    if gpu.reading.parent_uuid and gpus:
        instead["index"] = ((right(_gpu_name(gpu, gpus), 4), tone),)
    if verdict is not None or of_state is not None:
        word, state_tone = judged_state(gpu, view.levels, verdict, of_state)
        instead["state"] = ((" " + left("" if word == _OK else word, _STATE_CELLS), state_tone),)
    elif hides_state:
        instead["state"] = ((" " * (1 + _STATE_CELLS), "text"),)
    return tuple(TABLE.row(gpu, width, view, tone, instead, shift))


def judged_state(gpu: Gpu, levels: Levels, verdict: Verdict | None, of_state: Verdict | None = None) -> tuple[str, str]:
    """Word and tone of a GPU's state, marked as the verdict on the state (`of_state`) is; where the state is no
    trouble, those of its worst urgent verdict, or that it waits for the GPU which that is about."""
    word, tone = gpu_state(gpu, levels)
    if tone in _QUIET_TONES:
        if verdict is None:
            return word, tone
        if of_state is None and peers_waited_for(gpu, verdict):
            glyph, tone_of_level, _ = LEVEL_MARKS[verdict.level]
            return f"{glyph} {WAITS}", tone_of_level
        return badge(verdict)
    if of_state is None:
        return word, tone
    return remarked(word, tone, of_state.level)


def gpu_state(gpu: Gpu, levels: Levels = _DEFAULT_LEVELS) -> tuple[str, str]:
    """A glyph and a word for the GPU's health, at most 11 cells, and its tone."""
    if gpu.reading.state is not GpuState.OK:
        state_word = _STATES[gpu.reading.state]
        return f"{state_word.word} {age(gpu.age_s)}" if state_word.with_age else state_word.word, state_word.tone
    error = _hardware_error(gpu)
    if error:
        return error, "warn"
    if gpu.reading.throttle:
        for start, state_word in _THROTTLE_WORDS.items():
            if any(reason.startswith(start) for reason in gpu.reading.throttle):
                return state_word.word, state_word.tone
    return _use_state(gpu, levels)


def _hardware_error(gpu: Gpu) -> str:
    """The error that the hardware reports, the worst first; empty without one."""
    if gpu.xid:
        return f"! Xid {gpu.xid[-1]}"
    if not isinstance(gpu.reading.ecc_uncorrected, Missing) and gpu.reading.ecc_uncorrected > 0:
        return f"! ECC {count(gpu.reading.ecc_uncorrected)}"
    if not isinstance(gpu.reading.remap_pending, Missing) and gpu.reading.remap_pending > 0:
        return "! row remap"
    return ""


def _use_state(gpu: Gpu, levels: Levels) -> tuple[str, str]:
    """Word and tone of a healthy GPU: how it is used."""
    if _is_wasteful(gpu, levels):
        return _LOW_USE, "muted"
    if gpu.reading.mig_profile:
        return f"  {gpu.reading.mig_profile}", "muted"
    if holds_vram(gpu):
        return "+ VRAM held", "note"
    if gpu.reading.vram_shared:
        return "  shared", "muted"
    if _is_idle(gpu):
        return "  idle", "muted"
    return _OK, "muted"


def _is_wasteful(gpu: Gpu, levels: Levels) -> bool:
    """Whether it is busy, but with little of its arithmetic and of its bandwidth; no, where one of them is not known.

    A prompt counts in MFU at its end: until then only the tensor cores show the work.
    """
    busy = gpu.reading.busy_ratio
    mfu = gpu.mfu_ratio
    mbu = gpu.mbu_ratio
    if isinstance(busy, Missing) or isinstance(mfu, Missing) or isinstance(mbu, Missing):
        return False
    if not isinstance(gpu.reading.tensor_active_ratio, Missing) and gpu.reading.tensor_active_ratio >= _COMPUTING_SHARE:
        return False
    return busy >= levels.low_use_busy and max(mfu, mbu) < levels.low_use


def _is_idle(gpu: Gpu) -> bool:
    """Whether nothing runs on it; no, where that is not known."""
    return not isinstance(gpu.reading.busy_ratio, Missing) and gpu.reading.busy_ratio < IDLE_BELOW


def holds_vram(gpu: Gpu) -> bool:
    """Whether its VRAM is in use though nothing runs on it and it is no engine's: nobody else can have it."""
    used = gpu.reading.vram_used_bytes
    total = gpu.reading.vram_total_bytes
    if gpu.reading.vram_shared or not _is_idle(gpu) or isinstance(used, Missing) or isinstance(total, Missing):
        return False
    return used > _HELD_SHARE * total > 0.0 and not _may_serve(gpu)


def has_no_use(gpu: Gpu) -> bool:
    """Whether it has no process, no work, and next to no VRAM in use."""
    used = gpu.reading.vram_used_bytes
    total = gpu.reading.vram_total_bytes
    if gpu.reading.vram_shared or gpu.reading.processes or gpu.engines or not _is_idle(gpu):
        return False
    return not isinstance(used, Missing) and not isinstance(total, Missing) and used <= _HELD_SHARE * total


def _may_serve(gpu: Gpu) -> bool:
    """Whether an engine runs on it, or may do so: one that does not answer, or whose GPUs are not known."""
    return gpu.is_unplaced or bool(gpu.engines) or any(process.engine for process in gpu.reading.processes)


def waste(gpu: Gpu) -> Reading:
    """1 - the larger of MFU and MBU (means of 10 s): the share of the GPU that does nothing that counts.

    Where neither is known, as without an engine, SM activity stands for them, else busy. In whole percent, so that
    rows of the same use do not change places with every reading.
    """
    shares = [value for value in (gpu.mfu_ratio, gpu.mbu_ratio) if not isinstance(value, Missing)]
    if shares:
        used = max(shares)
    elif not isinstance(gpu.reading.sm_active_ratio, Missing):
        used = gpu.reading.sm_active_ratio
    elif not isinstance(gpu.reading.busy_ratio, Missing):
        used = gpu.reading.busy_ratio
    else:
        return NOT_SUPPORTED
    return round(1.0 - min(1.0, used), 2)


def _waste_order(gpu: Gpu) -> Missing | tuple[float, float]:
    """Sort key: the waste, then the VRAM in use in whole GiB; GPUs that are equal stay as the driver has them."""
    wasted_ratio = waste(gpu)
    used = gpu.reading.vram_used_bytes
    if isinstance(wasted_ratio, Missing):
        return wasted_ratio
    if isinstance(used, Missing):
        return wasted_ratio, -1.0
    return wasted_ratio, used // GIB


ORDERS: Final[tuple[Order[Gpu], ...]] = (
    Order("index", lambda gpu: float(gpu.reading.index), descending=False),
    *figure_orders(Gpu, GPU),
    Order(GPU["waste_ratio"].name, _waste_order, means="1 - max(MFU, MBU); no engine: 1 - SM active"),
)
"""The ways to sort."""


def _filter_text(gpu: Gpu, scene: ListScene) -> str:
    """Index, name, engines and their models, state, what throttles it; the UUID for a long filter."""
    engines = scene.snapshot.engines if scene.snapshot is not None else ()
    models = [engine.model for engine in engines if engine.name in gpu.engines]
    uuid = gpu.reading.uuid if len(scene.filter_text) >= _LEAST_UUID_FILTER else ""
    verdict = scene.urgent.get(gpu.reading.uuid)
    limit = "" if verdict is None else LIMIT_NAMES[verdict.code]
    number = f"{gpu.reading.index}"
    if gpu.reading.parent_uuid and scene.snapshot is not None:
        number = _gpu_name(gpu, scene.snapshot.gpus)
    state_word, _ = gpu_state(over_window(gpu), scene.view.levels)
    words = (f"gpu {number}", gpu.reading.name, *gpu.engines, *models, state_word, limit)
    return " ".join((*words, gpu.reading.mig_profile, *gpu.reading.throttle, uuid))


def quiet_state_of_all(gpus: Sequence[Gpu], levels: Levels) -> str:
    """The state that all GPUs have, where it is no trouble and there are several; empty otherwise."""
    states = {gpu_state(over_window(gpu), levels) for gpu in gpus}
    if len(gpus) < _SEVERAL or len(states) > 1:
        return ""
    ((word, tone),) = states
    return word.strip("+ ") if tone in _QUIET_TONES else ""


def trouble_text(
    gpu: Gpu, gpus: Sequence[Gpu], levels: Levels, verdict: Verdict | None, of_state: Verdict | None
) -> str:
    """State and name of a GPU, where that is a warning, as `! gpu 3 hot (sw)`; empty otherwise. `gpus`: all of its
    host."""
    word, tone = judged_state(gpu, levels, verdict, of_state)
    if tone not in _TROUBLE_TONES:
        return ""
    glyph, _, name_of_state = word.partition(" ")
    return f"{glyph} gpu {_gpu_name(gpu, gpus)} {name_of_state}"


FIGURE_NAMED: Final = figures_to_bound(Gpu, GPU)
"""Gives a figure of a GPU that a filter may bound, by its name."""
GPU_LISTING: Final = Listing[Gpu](
    thing="gpu",
    title="gpus",
    key=lambda gpu: gpu.reading.uuid,  # indices change when a GPU goes
    command="pane.gpus",
    words=_filter_text,
    gpus=lambda gpu, _: (gpu.reading.index,),
    figure_named=FIGURE_NAMED,
    engines=lambda gpu, _: gpu.engines,
    filters="words, -word: without, mfu<20",
    orders=ORDERS,
    table=TABLE,
    leaves_out=True,
    kind=Kind.GPU,
)
"""The GPUs of one machine."""
