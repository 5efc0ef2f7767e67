"""Which instance is on which GPU of which server: letters for workloads, equal servers as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut
from gpumon.readings.missing import Reading, number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Packed, PlacedServer
from gpumon.sizing.scenario import Scenario
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import (
    CHART_MARKS,
    LegendEntry,
    LegendLines,
    Marks,
    can_be_drawn,
    legend_lines,
    legend_rows,
    reason_rows,
    to_width,
)

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TONES: Final = ("accent", "tokens", "mfu", "mbu", "ok", "sm", "strong", "text")
"""Tones of the workloads, round and round."""
_RULES: Final = {"busy": "GPUs shared by memory and busy share", "memory": "GPUs shared by memory alone"}
"""Packing rule of a scenario -> the begin of the title."""
_MOST_LETTERS: Final = 4
"""Instances of a GPU that are written one by one; more become a letter and a number."""
_MOST_GPU_CELLS: Final = 8
"""Cells of the letters and numbers of one GPU."""
_LEGEND_LINES: Final[LegendLines] = ((20, 4), (12, 3), (8, 2), (4, 1))
_LEAST_TITLED: Final = 6
"""Height from which there is a title."""
_ENTRY_BLANKS: Final = 3
"""Blanks in and behind an entry of the legend."""
_CELLS_BESIDE_NAME: Final = 9
"""Cells of a workload's entry beside its name: the letter, the number of instances, and blanks."""
_NAME_CELLS: Final = (4, 24)
"""Fewest and most cells of the name of a workload in the legend."""


class Unit(NamedTuple):
    """One GPU, or several that an instance joins."""

    workloads: tuple[int, ...]
    """Number of the workload of each instance on it."""
    gpus: int


class ServerKind(NamedTuple):
    """Servers of one shape with the same on their GPUs: they are drawn once."""

    shape: int
    """Number of the server in the scenario."""
    units: tuple[Unit, ...]


def placement_rows(width: int, height: int, answer: Answer, scenario: Scenario, glyphs: Glyphs) -> list[Row]:
    """Servers and their GPUs in the plan that is needed: at most `height` rows."""
    packed = answer.plans.busy_aware if scenario.packing == "busy" else answer.plans.memory_only
    marks = CHART_MARKS[glyphs]
    title = _title(packed, scenario)
    if not packed.layout:
        problem = clean(packed.problem or answer.problem)
        return reason_rows(title, problem or "nothing to place", width, height, "warn" if problem else "muted")
    head: list[Row] = []
    if height >= _LEAST_TITLED:
        head.append(to_width([(cut(title, width), "strong")], width))
    head.append(to_width([(cut(marks.dot.join(_totals(packed)), width), "text")], width))
    kinds = Counter(_server_kind(server) for server in packed.layout)
    tail: list[Row] = []
    if packed.problem:
        tail.append(to_width([(cut(f"not placed: {clean(packed.problem)}", width), "warn")], width))
    most = legend_lines(height, _LEGEND_LINES)
    entries = _legend_entries(answer, kinds, width * most, marks)
    legend = legend_rows(entries, width, most)
    room = max(1, height - len(head) - len(tail) - len(legend))
    gpu_names = _gpu_names(packed, scenario)
    not_drawn = _not_drawn_text(packed, scenario)
    body = _kind_rows(kinds, gpu_names, width=width, room=room, not_drawn=not_drawn, marks=marks)
    return [*head, *body, *tail, *legend][: max(0, height)]


def _title(packed: Packed, scenario: Scenario) -> str:
    """The rule of the plan, and the GPUs of its servers: `GPUs shared by memory alone: 8x H100 SXM5 80GB`."""
    shapes = sorted({server.shape for server in packed.layout if server.shape < len(scenario.server)})
    servers = [scenario.server[shape] for shape in shapes]
    texts = [f"{server.gpus}x {clean(server.gpu)}" for server in servers]
    return f"{_RULES[scenario.packing]}: {', '.join(texts)}"


def _totals(packed: Packed) -> list[str]:
    """Numbers of servers and GPUs, and how near the first is to the least that is possible."""
    servers = _drawable(packed.servers)
    gpus = _drawable(packed.gpus)
    least = _drawable(packed.servers_least)
    parts: list[str] = []
    if servers is not None:
        parts.append(f"{servers:,.0f} server{'s' * (servers != 1)}")
    if gpus is not None:
        parts.append(f"{gpus:,.0f} GPU{'s' * (gpus != 1)}")
    if servers is None or least is None or packed.problem:
        return parts
    if servers - least < 0.5:  # both are whole numbers
        parts.append("optimal")
    else:
        parts.append(f"lower bound {least:,.0f}")
    return parts


def _gpu_names(packed: Packed, scenario: Scenario) -> list[str]:
    """The type of GPU of each shape of server; empty texts where all have the same."""
    if not _has_several_types(packed, scenario):
        return [""] * len(scenario.server)
    return [clean(server.gpu) for server in scenario.server]


def _drawable(reading: Reading) -> float | None:
    """A figure; None where it is missing or too large to be drawn."""
    value = number(reading)
    if can_be_drawn(value):
        return value
    return None


def _server_kind(server: PlacedServer) -> ServerKind:
    """The shape of a server, and its GPUs in one order: those that an instance joins, then shared and free ones."""
    units: list[Unit] = []
    # The GPUs of a group are joined by one instance: they are one unit.
    joined_gpus = Counter(slot.group for slot in server.gpus if slot.group >= 0)
    drawn_groups: set[int] = set()
    for slot in server.gpus:
        workloads = tuple(sorted(slot.workloads))
        if slot.group < 0:
            units.append(Unit(workloads, gpus=1))
        elif slot.group not in drawn_groups:
            drawn_groups.add(slot.group)
            units.append(Unit(workloads, gpus=joined_gpus[slot.group]))
    # Units with instances come first, of these those of many GPUs.
    units.sort(key=lambda unit: (not unit.workloads, -unit.gpus, unit.workloads))
    return ServerKind(server.shape, tuple(units))


def _not_drawn_text(packed: Packed, scenario: Scenario) -> str:
    """Servers that are not in the layout: spares, and those that are too many to be laid out; empty where none is."""
    servers = _drawable(packed.servers)
    if servers is None or round(servers) <= len(packed.layout):
        return ""
    not_laid_out = round(servers) - len(packed.layout)
    spare = min(not_laid_out, scenario.spare_servers)
    more = not_laid_out - spare
    parts = []
    if spare:
        text = f"{spare} spare server{'s' * (spare != 1)}"
        if _has_several_types(packed, scenario):
            text += f" of {clean(scenario.server[packed.spare_shape].gpu)}"
        parts.append(text)
    if more:
        parts.append(f"{more:,} more server{'s' * (more != 1)} not drawn")
    return " + ".join(parts)


def _has_several_types(packed: Packed, scenario: Scenario) -> bool:
    """Whether the servers of a packing have several types of GPU."""
    shapes = {server.shape for server in packed.layout}
    if packed.spare_servers:
        shapes.add(packed.spare_shape)
    return len({scenario.server[shape].gpu for shape in shapes if shape < len(scenario.server)}) > 1


def _kind_rows(
    kinds: Counter[ServerKind], gpu_names: Sequence[str], *, width: int, room: int, not_drawn: str, marks: Marks
) -> list[Row]:
    """A line of each kind of server with the name of its GPUs, as many kinds as fit; the others are counted."""
    most_servers = max(kinds.values())
    number_cells = len(f"{most_servers:,}")
    rows: list[Row] = []
    for (shape, units), servers in kinds.items():
        prefix = f"{servers:>{number_cells},} x " if most_servers > 1 else ""
        name = f" {gpu_names[shape]}" if shape < len(gpu_names) else ""
        pieces = _server_pieces(units, width - cells(prefix), marks)
        rows.append(to_width([(prefix, "strong"), *pieces, (name, "muted")], width))
    more_texts = [not_drawn] if not_drawn else []
    if len(rows) + len(more_texts) > room:
        servers_without_room = list(kinds.values())[room - 1 :]
        more_kinds = len(servers_without_room)
        more_texts.insert(0, f"{sum(servers_without_room):,} more ({more_kinds} kind{'s' * (more_kinds != 1)})")
        rows = rows[: room - 1]
    if more_texts:
        return [*rows, to_width([(f"+ {', '.join(more_texts)}", "muted")], width)]
    return rows


def _server_pieces(units: Sequence[Unit], width: int, marks: Marks) -> list[Piece]:
    """The GPUs of a server one by one; equal ones counted where that is wider than `width` cells."""
    pieces = _between_bars([(_unit_pieces(unit, marks), 1) for unit in units], marks)
    if cells_of(pieces) <= width:
        return pieces
    counted_units = [
        (_unit_pieces(unit, marks, short=True), len(list(equal_units))) for unit, equal_units in groupby(units)
    ]
    return _between_bars(counted_units, marks)


def _between_bars(counted_units: Sequence[tuple[list[Piece], int]], marks: Marks) -> list[Piece]:
    """Units side by side between bars; a number behind one says how many there are of it."""
    bar: Piece = (marks.side, "border")
    line = [bar]
    for pieces, times in counted_units:
        line += pieces
        if times > 1:
            line.append((f" x {times} ", "muted"))
        line.append(bar)
    return line


def _unit_pieces(unit: Unit, marks: Marks, *, short: bool = False) -> list[Piece]:
    """One GPU, `AAB`, or those that an instance joins, `A─A─A─A`; `short`: `A─4 GPUs─A`."""
    workloads, gpus = unit
    gpu = _gpu_pieces(workloads, marks)
    tone = workload_tone(workloads[0]) if workloads else "border"
    if short and gpus > 2:
        return [*gpu, (f"{marks.joined}{gpus} GPUs{marks.joined}", tone), *gpu]
    return [*gpu, *[(marks.joined, tone), *gpu] * (gpus - 1)]


def _gpu_pieces(workloads: tuple[int, ...], marks: Marks) -> list[Piece]:
    """The letters of the instances on a GPU: `AAB`; where there are many, letters with numbers: `A12B3`."""
    if not workloads:
        return [(marks.free, "muted")]
    instances = Counter(workloads)
    if len(workloads) <= _MOST_LETTERS:
        return [(letter(workload) * count, workload_tone(workload)) for workload, count in instances.items()]
    text = ""
    for workload, count in instances.items():
        text += letter(workload)
        if count > 1:
            text += f"{count}"
    if len(text) > _MOST_GPU_CELLS:
        text = text[: _MOST_GPU_CELLS - 1] + "+"
    return [(text, workload_tone(workloads[0]))]


def letter(workload: int) -> str:
    """The letter of a workload, by its number; there are fewer letters than there may be workloads."""
    return LETTERS[workload % len(LETTERS)]


def workload_tone(workload: int) -> str:
    """The tone of a workload, by its number."""
    return _TONES[workload % len(_TONES)]


def _legend_entries(answer: Answer, kinds: Counter[ServerKind], room: int, marks: Marks) -> list[LegendEntry]:
    """Letters of the workloads, and the marks of joined and of free GPUs where there are any; `room`: cells for all."""
    free_gpus = 0
    has_joined = False
    placed: set[int] = set()
    for (_, units), servers in kinds.items():
        for workloads, gpus in units:
            placed.update(workloads)
            has_joined = has_joined or gpus > 1
            if not workloads:
                free_gpus += servers
    mark_entries: list[LegendEntry] = []
    if has_joined:
        mark_entries.append(LegendEntry(f"A{marks.joined}A", "muted", "one instance"))
    if free_gpus:
        mark_entries.append(LegendEntry(marks.free, "muted", f"{free_gpus:,} free"))
    room -= sum(cells(entry.glyph) + cells(entry.text) + _ENTRY_BLANKS for entry in mark_entries)
    least, most = _NAME_CELLS
    name_cells = max(least, min(most, room // max(1, len(placed)) - _CELLS_BESIDE_NAME))
    workload_entries = [
        _workload_entry(answer, workload, name_cells) for workload in sorted(placed) if workload < len(answer.workloads)
    ]
    return [*workload_entries, *mark_entries]


def _workload_entry(answer: Answer, workload: int, name_cells: int) -> LegendEntry:
    """Letter, name and number of instances of a workload, by its number."""
    plan = answer.workloads[workload]
    name = clean(plan.name.rpartition("/")[2] or plan.name)
    instances = _drawable(plan.instances)
    times = f" x {instances:,.0f}" if instances is not None else ""
    return LegendEntry(letter(workload), workload_tone(workload), f"{cut(name, name_cells)}{times}")
