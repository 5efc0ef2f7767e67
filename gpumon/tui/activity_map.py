"""The map of GPUs: a mark for each at its measured memory bandwidth and tensor activity, with its last five minutes.

It needs no engine and no feed: the figures are the GPU's own counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.efficiency.activity import (
    ActivityPoint,
    Region,
    RegionBounds,
    activity_point,
    region_of,
    shares_of_regions,
)
from gpumon.efficiency.points import OF_GPU
from gpumon.readings.dcgm import DCGM, NAME_OF, NOT_ON_PAGE
from gpumon.readings.format import counted, cut, left, phrase, ratio, right, spans
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading
from gpumon.readings.process_words import program_title
from gpumon.readings.snapshot import Gpu, Kind, Level, Snapshot, Verdict, physical_gpus
from gpumon.readings.text import clean
from gpumon.specs.units import PERCENT
from gpumon.triage.programs import PLAIN_SM
from gpumon.triage.render import LIMIT_NAMES, verdict_text
from gpumon.triage.thresholds import Thresholds
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.plotted import (
    CHOSEN,
    FEW_LINES,
    TONES,
    TRAIL_MARKS,
    TRAIL_TEXT,
    Cell,
    entries_and_sentence,
    read_trail,
    sentence_rows,
    with_list,
    write_label,
)
from gpumon.tui.sizing.canvas import CHART_MARKS, Canvas, LegendEntry, Scale, framed_picture, to_width
from gpumon.tui.table import clock

_TITLE: Final = "tensor cores active % over memory bandwidth %"
_TITLE_BY_SM: Final = "SM active % over memory bandwidth %"
_DOUBT_BY_SM: Final = ". Nothing tells the activity of its tensor cores: SM active does not tell arithmetic from waits"
_FEW_GPUS: Final = 8
"""GPUs of which each has its trail, and none are summed up in the list."""
_MOST_NAME: Final = 40
"""Characters of the name of a program or an engine."""
_FEWEST_PLACES: Final = 12
"""Places of a trail, of 5 s each, from which on its regions are told: a minute."""
_LEAST_SHARE: Final = 0.1
"""Share of them that a region must have to be told."""
_MOST_SENTENCE: Final = 800
"""Characters of the sentences on a GPU."""
_REGION_CELLS: Final = 24
"""Cells of a region in the list."""
_ORDER: Final = tuple(Region)
"""Regions in the order in which the list sums them up."""
_EXPORTER: Final = (
    f"A dcgm-exporter whose counters file (option -f) has {NAME_OF['tensor_active_ratio']}, "
    f"{NAME_OF['sm_active_ratio']} and {NAME_OF['dram_active_ratio']} tells both: set its url in [dcgm] of the config."
)
"""Source of the activity where the driver has none."""


class _PlottedGpu(NamedTuple):
    """A GPU on the map."""

    gpu: Gpu
    point: ActivityPoint
    region: Region | None
    """None where it has no place."""
    tone: str
    trail: Sequence[tuple[float, float]]
    """Memory bandwidth and tensor activity of its last minutes, oldest first."""

    @property
    def place(self) -> tuple[float, float] | None:
        """Its share of the memory bandwidth, and its tensor activity; None where it has no place."""
        if isinstance(self.point.dram, Missing) or isinstance(self.point.pipe, Missing):
            return None
        return self.point.dram, self.point.pipe


def gpus_on_map(snapshot: Snapshot) -> Sequence[Gpu]:
    """The GPUs that may have a place: MIG slices have counters of their own, but no peak."""
    return physical_gpus(snapshot.gpus)


def bounds_of(thresholds: Thresholds) -> RegionBounds:
    """The bounds of the regions: those from which on triage speaks up."""
    return RegionBounds(
        tensor_full=thresholds.compute_tensor_ratio,
        dram_full=thresholds.bandwidth_dram_ratio,
        tensor_low=thresholds.communication_tensor_ratio,
        dram_low=thresholds.communication_dram_ratio,
        sm_full=PLAIN_SM,
        busy_idle=thresholds.stalled_busy_ratio,
    )


def map_rows(
    snapshot: Snapshot,
    history: History | None,
    bounds: RegionBounds,
    chosen: str,
    size: tuple[int, int],
    glyphs: Glyphs,
) -> list[Row]:
    """The map and the list of GPUs, in `size` (cells and lines). `chosen`: UUID of the GPU under the cursor."""
    gpus = gpus_on_map(snapshot)
    plotted = []
    for number, gpu in enumerate(gpus):
        is_chosen = gpu.reading.uuid == chosen
        has_trail = is_chosen or len(gpus) <= _FEW_GPUS
        plotted.append(_plot(number, gpu, bounds, history if has_trail else None, snapshot.wall_s))
    cursor = next((number for number, gpu in enumerate(gpus) if gpu.reading.uuid == chosen), 0)
    if not any(plotted_gpu.place for plotted_gpu in plotted):
        return _rows_without_map(plotted, cursor, size)
    verdict = _verdict_on(gpus[cursor], snapshot)
    return with_list(
        size,
        lambda width, height: _picture_rows(plotted, cursor, bounds, (width, height), glyphs),
        lambda width, height: _list_rows(plotted, cursor, bounds, verdict, width, height),
    )


def _verdict_on(gpu: Gpu, snapshot: Snapshot) -> Verdict | None:
    """The first verdict on a GPU that says more than that all is well; None without one."""
    for verdict in snapshot.verdicts:
        if verdict.kind is Kind.GPU and verdict.key == gpu.reading.uuid and verdict.level is not Level.OK:
            return verdict
    return None


def _plot(number: int, gpu: Gpu, bounds: RegionBounds, history: History | None, wall_s: float) -> _PlottedGpu:
    """A GPU with its place, and its trail up to a Unix time; `number`: its place among all GPUs."""
    point = activity_point(gpu)
    pipe = "sm" if point.by_sm else "tensor"
    return _PlottedGpu(
        gpu=gpu,
        point=point,
        region=region_of(point, bounds),
        tone=TONES[number % len(TONES)],
        trail=read_trail(history, f"dram{OF_GPU}{gpu.reading.index}", f"{pipe}{OF_GPU}{gpu.reading.index}", wall_s),
    )


# --- the picture


def _picture_rows(
    plotted: Sequence[_PlottedGpu], cursor: int, bounds: RegionBounds, size: tuple[int, int], glyphs: Glyphs
) -> list[Row]:
    """The picture: axes, bounds, trails and marks. Both axes end at 100%, or at the highest figure above that."""
    places = [plotted_gpu.place for plotted_gpu in plotted if plotted_gpu.place is not None]
    most_x = max(1.0, *(x for x, _ in places))
    most_y = max(1.0, *(y for _, y in places))
    title = _TITLE
    if all(plotted_gpu.point.by_sm for plotted_gpu in plotted if plotted_gpu.place is not None):
        title = _TITLE_BY_SM
    draw = partial(_draw_inside, plotted=plotted, cursor=cursor, bounds=bounds, glyphs=glyphs)
    legend = _legend(bounds, glyphs)
    return framed_picture(size, title, (Scale(most_x, PERCENT), Scale(most_y, PERCENT)), legend, glyphs, draw)


def _legend(bounds: RegionBounds, glyphs: Glyphs) -> Sequence[LegendEntry]:
    """The regions with their bounds, and the marks."""
    low = f"tensor < {bounds.tensor_low:.0%}, mem < {bounds.dram_low:.0%}"
    return (
        LegendEntry("", "text", f"compute-bound: tensor from {bounds.tensor_full:.0%}"),
        LegendEntry("", "text", f"memory-bound: mem from {bounds.dram_full:.0%}"),
        LegendEntry("", "text", f"launch- or input-bound: {low}"),
        LegendEntry("", "text", f"idle: busy {bounds.busy_idle:.0%} or less"),
        LegendEntry("", "text", f"without tensor cores: SM from {bounds.sm_full:.0%} there"),
        LegendEntry(f"{CHART_MARKS[glyphs].free} {TRAIL_MARKS[glyphs]}", "text", TRAIL_TEXT),
        LegendEntry("(4)", "strong", "number of GPUs"),
    )


def _draw_inside(
    canvas: Canvas, *, plotted: Sequence[_PlottedGpu], cursor: int, bounds: RegionBounds, glyphs: Glyphs
) -> None:
    """Draw the inside of the picture: what lies behind comes first, and words are where they hide no mark."""
    _draw_regions(canvas, bounds, glyphs)
    chosen = plotted[cursor]
    for plotted_gpu in sorted(plotted, key=lambda plotted_gpu: plotted_gpu is chosen):  # the chosen one last
        mark = TRAIL_MARKS[glyphs] if plotted_gpu is chosen else CHART_MARKS[glyphs].free
        for x, y in plotted_gpu.trail:
            canvas.draw_mark(x, y, mark, plotted_gpu.tone)
    marks = _marks_of(canvas, plotted, chosen)
    _write_regions(canvas, bounds, set(marks))
    for cell, (glyph, tone) in marks.items():
        canvas.set_cell(*cell, glyph, tone)


def _draw_regions(canvas: Canvas, bounds: RegionBounds, glyphs: Glyphs) -> None:
    """Draw the bounds of the regions."""
    marks = CHART_MARKS[glyphs]
    full_line = canvas.line_of(bounds.tensor_full)
    full_column = canvas.column_of(bounds.dram_full)
    low_line = canvas.line_of(bounds.tensor_low)
    low_column = canvas.column_of(bounds.dram_low)
    for column in range(canvas.columns):
        canvas.set_cell(full_line, column, marks.goal, "border")
    for column in range(low_column + 1):
        canvas.set_cell(low_line, column, marks.goal, "border")
    for line in range(canvas.lines):
        canvas.set_cell(line, full_column, marks.limit, "border")
    for line in range(low_line + 1, canvas.lines):
        canvas.set_cell(line, low_column, marks.limit, "border")


def _write_regions(canvas: Canvas, bounds: RegionBounds, taken: set[Cell]) -> None:
    """Write the names of the regions into them, from their upper corners down. `taken`: cells that they leave free."""
    full_line = canvas.line_of(bounds.tensor_full)
    full_column = canvas.column_of(bounds.dram_full)
    low_line = canvas.line_of(bounds.tensor_low)
    low_column = canvas.column_of(bounds.dram_low)
    compute_lines = range(full_line)
    lines_below = range(full_line + 1, canvas.lines)
    for lines, column, word in (
        (compute_lines, 1, cut(Region.COMPUTE.value, full_column - 1)),
        (compute_lines, full_column + 1, "both"),
        (lines_below, full_column + 1, Region.MEMORY.value),
        (range(full_line + 1, low_line), 1, cut(Region.BETWEEN.value, full_column - 1)),
        (range(low_line + 1, canvas.lines), 1, cut(Region.WAITING.value, low_column - 1)),
        (range(low_line + 2, canvas.lines), 1, "or idle"),
    ):
        write_label(canvas, [(line, column) for line in lines], word, taken)


class _Group(NamedTuple):
    """GPUs whose marks would touch: two numbers side by side read as a third one."""

    column: int
    """Column of the first one's place."""
    gpus: list[_PlottedGpu]

    def text(self, chosen: _PlottedGpu) -> str:
        """The number of a GPU; of several how many they are, the chosen one always by number, with how many more."""
        if chosen in self.gpus and len(self.gpus) > 1:
            return f"{chosen.gpu.reading.index}(+{len(self.gpus) - 1})"
        if len(self.gpus) > 1:
            return f"({len(self.gpus)})"
        return str(self.gpus[0].gpu.reading.index)


def _marks_of(canvas: Canvas, plotted: Sequence[_PlottedGpu], chosen: _PlottedGpu) -> Mapping[Cell, Piece]:
    """Cell -> a character of the marks, and its tone."""
    marks: dict[Cell, Piece] = {}
    for line, groups in _groups_by_line(canvas, plotted, chosen).items():
        for group in reversed(groups):  # that of the chosen one last
            text = group.text(chosen)
            tone = group.gpus[0].tone if len(group.gpus) == 1 else "strong"
            column = max(0, min(group.column, canvas.columns - len(text)))
            for number, character in enumerate(text):
                marks[line, column + number] = (character, tone)
            if chosen in group.gpus:
                for number in range(len(str(chosen.gpu.reading.index))):
                    marks[line, column + number] = (text[number], CHOSEN)
    return marks


def _groups_by_line(
    canvas: Canvas, plotted: Sequence[_PlottedGpu], chosen: _PlottedGpu
) -> Mapping[int, Sequence[_Group]]:
    """Line -> the groups of GPUs that stand in it, that of the chosen one first."""
    groups_by_line: dict[int, list[_Group]] = {}
    places = [(plotted_gpu, plotted_gpu.place) for plotted_gpu in plotted]
    for plotted_gpu, place in sorted(places, key=lambda pair: (pair[0] is not chosen, pair[1] or ())):
        if place is None:
            continue
        x, y = place
        column = canvas.column_of(x)
        groups = groups_by_line.setdefault(canvas.line_of(y), [])
        cells = len(str(plotted_gpu.gpu.reading.index))
        for group in groups:
            text_cells = len(group.text(chosen))
            first_column = min(group.column, canvas.columns - text_cells)
            if first_column - cells <= column <= first_column + text_cells:
                group.gpus.append(plotted_gpu)
                break
        else:
            groups.append(_Group(column, [plotted_gpu]))
    return groups_by_line


# --- the list


def _list_rows(
    plotted: Sequence[_PlottedGpu],
    cursor: int,
    bounds: RegionBounds,
    verdict: Verdict | None,
    width: int,
    height: int,
) -> list[Row]:
    """Sums by region where there are many GPUs, the GPUs around the chosen one, and what there is to say of that."""
    chosen = plotted[cursor]
    sentence = _sentence(chosen, bounds, verdict)
    if height <= FEW_LINES:  # below the picture of a small screen
        said = sentence_rows(sentence, width, height - 1)
        return [_entry(chosen, chosen=True, width=width, of=len(plotted)), *said]
    rows: list[Row] = []
    if len(plotted) > _FEW_GPUS:
        rows += [*_sums_by_region(plotted, width), ()]
    rows.append(to_width([(f" gpu {left('', _REGION_CELLS)} tensor   mem", "muted")], width))
    entries = [_entry(plotted_gpu, chosen=number == cursor, width=width) for number, plotted_gpu in enumerate(plotted)]
    return [*rows, *entries_and_sentence(entries, cursor, sentence, width, height - len(rows))]


def _sums_by_region(plotted: Sequence[_PlottedGpu], width: int) -> list[Row]:
    """A line for each region that GPUs are in, the fewest first: one that stands apart is what is looked for."""
    indices: dict[Region | None, list[int]] = {}
    for plotted_gpu in plotted:
        indices.setdefault(plotted_gpu.region, []).append(plotted_gpu.gpu.reading.index)
    rows: list[Row] = []
    for region, numbers in sorted(indices.items(), key=lambda item: len(item[1])):
        word = "not measured" if region is None else region.value
        head = f"{len(numbers):>3} {word}: "
        rows.append(((cut(f"{head}gpu {spans(numbers)}", width), "text"),))
    return rows


def _entry(plotted_gpu: _PlottedGpu, *, chosen: bool, width: int, of: int = 0) -> Row:
    """A GPU in the list: its number, its region, and both figures; `of`: number of all, where it stands alone."""
    point = plotted_gpu.point
    missing = point.missing
    word = ""
    if missing is not None:
        word = phrase(missing)
    elif plotted_gpu.region is not None:
        word = plotted_gpu.region.value
    cursor = "▸" if chosen else " "
    number_tone = CHOSEN if chosen else plotted_gpu.tone
    pipe = f"SM {ratio(point.pipe, 4)}" if point.by_sm else ratio(point.pipe)
    figures = f"{right(pipe, 7)}{right(ratio(point.dram), 6)}"
    count = ""
    if of:  # without a head over the columns
        name = "" if point.by_sm else "tensor "
        figures = f"{name}{pipe}  mem {ratio(point.dram)}"
        count = f"  1 of {counted(of, 'GPU')}"
    return to_width(
        [
            (cursor, "accent"),
            (right(str(plotted_gpu.gpu.reading.index), 3), number_tone),
            (f" {left(word, _REGION_CELLS)}", "text"),
            (figures, "text"),
            (count, "muted"),
        ],
        width,
    )


def _sentence(plotted_gpu: _PlottedGpu, bounds: RegionBounds, verdict: Verdict | None) -> str:
    """The limit of a GPU by its own counters, then triage's verdict on it."""
    gpu = plotted_gpu.gpu
    region = plotted_gpu.region
    if region is None:
        text = _why_no_place(gpu, plotted_gpu.point)
    else:
        text = _region_text(region, plotted_gpu.point)
    text = f"gpu {gpu.reading.index}{_user_of(gpu)}: {text}{_past_text(plotted_gpu, bounds)}"
    if verdict is not None:
        text += f". Triage: {LIMIT_NAMES[verdict.code]}, {verdict_text(verdict, clock)}"
    return clean(text, _MOST_SENTENCE)


def _past_text(plotted_gpu: _PlottedGpu, bounds: RegionBounds) -> str:
    """The regions of its last minutes with their shares, where it was in several; else empty."""
    if len(plotted_gpu.trail) < _FEWEST_PLACES:
        return ""
    shares = shares_of_regions(plotted_gpu.trail, bounds, by_sm=plotted_gpu.point.by_sm)
    words = []
    for region, share in shares:
        word = f"{region.value} or idle" if region is Region.WAITING else region.value
        if share >= _LEAST_SHARE:
            words.append(f"{word} {share:.0%}")
    if len(words) < 2:
        return ""
    return f". {TRAIL_TEXT.capitalize()}: {', '.join(words)}"


def _user_of(gpu: Gpu) -> str:
    """The engine or the program on a GPU, behind a comma; empty where none is known."""
    if gpu.engines:
        return f", {clean(' '.join(gpu.engines), _MOST_NAME)}"
    if gpu.reading.processes:
        return f", {clean(program_title(gpu.reading.processes[0]), _MOST_NAME)}"
    return ""


def _region_text(region: Region, point: ActivityPoint) -> str:
    """The region in a sentence, with the figures that it rests on and no more than they tell."""
    unit = "SMs" if point.by_sm else "tensor cores"
    figures = f"{unit} {ratio(point.pipe)} active, memory {ratio(point.dram)} of its bandwidth"
    doubt = _DOUBT_BY_SM if point.by_sm else ""
    if region is Region.COMPUTE:
        return f"tensor cores are the limit ({figures})"
    if region is Region.MEMORY:
        return f"memory is the limit ({figures}){doubt}"
    if region is Region.BOTH:
        return f"tensor cores and memory are both at their limit ({figures})"
    if region is Region.PLAIN:
        return (
            f"SMs are active {ratio(point.sm)} of the time without tensor cores ({figures}): FP32, FP64 or integers, "
            "or kernels that wait; its counters do not tell which"
        )
    if region is Region.IDLE:
        return f"no kernel runs (busy {ratio(point.busy)})"
    if region is Region.UNTOLD:
        return (
            f"neither computes nor reads much ({figures}): nothing tells whether it is idle, waits, or works without "
            "tensor cores"
        )
    if region is Region.WAITING:
        return (
            f"neither computes nor reads much ({figures}) while busy {_known(point.busy)}: small kernels, or it waits "
            "for data, its host or other GPUs"
        )
    return f"at work, below all bounds ({figures}){doubt}"


def _known(reading: Reading) -> str:
    """A share, or that it is not known."""
    return "is not known" if isinstance(reading, Missing) else ratio(reading)


def _why_no_place(gpu: Gpu, point: ActivityPoint) -> str:
    """The figures that are missing, each with its reason and its source."""
    explain = make_explainer(Subject(gpu=gpu.reading.index, is_gpu=True, is_free=not gpu.reading.processes))
    names_by_why: dict[str, list[str]] = {}
    for name, field, value in (
        ("tensor activity", "tensor_active_ratio", point.pipe),
        ("memory bandwidth", "bandwidth_bytes_per_s", point.dram),
    ):
        if not isinstance(value, Missing):
            continue
        if value == NOT_SUPPORTED and gpu.reading.activity_source == DCGM:
            value = NOT_ON_PAGE  # where its counter is on the page, the exporter tells it
        if value == NOT_SUPPORTED:  # one counter of the driver gives both, or neither
            text = explain(value, "tensor_active_ratio").sentence
            if gpu.reading.name.startswith("NVIDIA"):
                text = f"{text}. {_EXPORTER}"
        else:
            why = explain(value, field)
            text = "; ".join(part for part in (why.sentence, f"{why.todo} {why.item}".strip()) if part)
        names_by_why.setdefault(text, []).append(name)
    parts = []
    for text, names in names_by_why.items():
        verb = "are" if len(names) > 1 else "is"
        parts.append(f"{' and '.join(names)} {verb} not measured: {text}")
    return "; ".join(parts)


def _rows_without_map(plotted: Sequence[_PlottedGpu], cursor: int, size: tuple[int, int]) -> list[Row]:
    """In place of a map on which no GPU has a place: what is missing, and which line or exporter gives it."""
    width, height = size
    if not plotted:
        return sentence_rows("no map: there is no GPU", width, height, "muted")
    chosen = plotted[cursor]
    text = f"no map: gpu {chosen.gpu.reading.index}, {_why_no_place(chosen.gpu, chosen.point)}"
    return sentence_rows(text, width, height, "muted")
