"""Which instance is on which GPU of which server: letters for workloads, equal servers as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from gpumon.readings.format import cells, cut
from gpumon.readings.missing import Reading, number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Packed, PlacedServer
from gpumon.sizing.scenario import Scenario
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import CHART_MARKS, LegendEntry, Marks, can_be_drawn, flowed, reason, to_width

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TONES: Final = ("accent", "tokens", "mfu", "mbu", "ok", "sm", "strong", "text")
"""Tones of the workloads, round and round."""
_RULES: Final = {"busy": "GPUs shared by memory and busy share", "memory": "GPUs shared by memory alone"}
_LETTERS_OF_GPU: Final = 4
"""Instances of a GPU that are written one by one; more become a letter and a number."""
_LEGENDS: Final = ((20, 4), (12, 3), (8, 2), (4, 1))
"""Height from which a legend may have so many lines."""
Unit = tuple[tuple[int, ...], int]
"""Workloads on one GPU, and over how many GPUs they are joined."""
ServerKind = tuple[int, tuple[Unit, ...]]
"""Shape of a server and what is on it: equal ones are drawn once."""


def placement(width: int, height: int, answer: Answer, scenario: Scenario, glyphs: Glyphs) -> list[Row]:
    """Servers and their GPUs in the plan that is needed: at most `height` rows."""
    packed = answer.plans.busy_aware if scenario.packing == "busy" else answer.plans.memory_only
    marks = CHART_MARKS[glyphs]
    title = _title(packed, scenario)
    if not packed.layout:
        return _without_layout(title, clean(packed.problem or answer.problem), width, height)
    head: list[Row] = []
    if height >= 6:
        head.append(to_width([(cut(title, width), "strong")], width))
    head.append(to_width([(cut(marks.dot.join(_totals(packed)), width), "text")], width))
    kinds = Counter(_kind(server) for server in packed.layout)
    tail: list[Row] = []
    if packed.problem:
        tail.append(to_width([(cut(f"not placed: {clean(packed.problem)}", width), "warn")], width))
    most = _legend_lines(height)
    legend = flowed(_keys(answer, kinds, width * most, marks), width, most)
    room = max(1, height - len(head) - len(tail) - len(legend))
    names = _names(packed, scenario)
    body = _body(kinds, names, width, room, _not_drawn(packed, scenario), marks)
    return [*head, *body, *tail, *legend][: max(0, height)]


def _without_layout(title: str, problem: str, width: int, height: int) -> list[Row]:
    """The reason why nothing is placed."""
    if problem:
        return reason(title, problem, width, height, "warn")
    return reason(title, "nothing to place", width, height, "muted")


def _title(packed: Packed, scenario: Scenario) -> str:
    """The rule of the plan, and the shapes of its servers."""
    used = sorted({server.shape for server in packed.layout if server.shape < len(scenario.server)})
    shapes = ", ".join(f"{scenario.server[shape].gpus}x {clean(scenario.server[shape].gpu)}" for shape in used)
    return f"{_RULES[scenario.packing]}: {shapes}"


def _totals(packed: Packed) -> list[str]:
    """Numbers of servers and GPUs, and how near the first is to the least that is possible."""
    servers = _known(packed.servers)
    gpus = _known(packed.gpus)
    least = _known(packed.servers_least)
    parts: list[str] = []
    if servers is not None:
        parts.append(f"{servers:,.0f} server{'s' * (servers != 1)}")
    if gpus is not None:
        parts.append(f"{gpus:,.0f} GPU{'s' * (gpus != 1)}")
    if servers is None or least is None or packed.problem:
        return parts
    if servers - least < 0.5:
        parts.append("optimal")
    else:
        parts.append(f"lower bound {least:,.0f}")
    return parts


def _legend_lines(height: int) -> int:
    """Lines that the legend may have."""
    for least, lines in _LEGENDS:
        if height >= least:
            return lines
    return 0


def _names(packed: Packed, scenario: Scenario) -> list[str]:
    """The type of GPU of each shape of server, where they differ."""
    if not _mixed(packed, scenario):
        return [""] * len(scenario.server)
    return [clean(server.gpu) for server in scenario.server]


def _known(reading: Reading) -> float | None:
    value = number(reading)
    if can_be_drawn(value):
        return value
    return None


def _kind(server: PlacedServer) -> ServerKind:
    """The shape of a server, and its GPUs in one order: those that an instance joins, then shared and free ones."""
    groups: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for place, slot in enumerate(server.gpus):
        key = (0, slot.group) if slot.group >= 0 else (1, place)
        groups.setdefault(key, []).append(tuple(sorted(slot.workloads)))
    units = [(gpus[0], len(gpus)) for gpus in groups.values()]
    return server.shape, tuple(sorted(units, key=lambda unit: (not unit[0], -unit[1], unit[0])))


def _not_drawn(packed: Packed, scenario: Scenario) -> str:
    """Servers that are not in the layout."""
    servers = _known(packed.servers)
    if servers is None or round(servers) <= len(packed.layout):
        return ""
    rest = round(servers) - len(packed.layout)
    spare = min(rest, scenario.spare_servers)
    parts = []
    if spare:
        text = f"{spare} spare server{'s' * (spare != 1)}"
        if _mixed(packed, scenario):
            text += f" of {clean(scenario.server[packed.spare_shape].gpu)}"
        parts.append(text)
    if rest > spare:
        parts.append(f"{rest - spare:,} more server{'s' * (rest - spare != 1)} not drawn")
    return " + ".join(parts)


def _mixed(packed: Packed, scenario: Scenario) -> bool:
    """Whether the servers of a packing have several types of GPU."""
    shapes = {server.shape for server in packed.layout}
    if packed.spare_servers:
        shapes.add(packed.spare_shape)
    return len({scenario.server[shape].gpu for shape in shapes if shape < len(scenario.server)}) > 1


def _body(
    kinds: Counter[ServerKind], names: Sequence[str], width: int, room: int, not_drawn: str, marks: Marks
) -> list[Row]:
    """A line of each kind of server with the name of its shape, as many kinds as fit; the others are counted."""
    most = max(kinds.values())
    rows: list[Row] = []
    for (shape, units), times in kinds.items():
        prefix = ""
        if most > 1:
            prefix = f"{times:>{len(f'{most:,}')},} x "
        name = ""
        if shape < len(names):
            name = f" {names[shape]}"
        line = _servers_line(units, width - cells(prefix), marks)
        rows.append(to_width([(prefix, "strong"), *line, (name, "muted")], width))
    rest = [not_drawn] if not_drawn else []
    if len(rows) + len(rest) > room:
        left = list(kinds.values())[room - 1 :]
        rest.insert(0, f"{sum(left):,} more ({len(left)} kind{'s' * (len(left) != 1)})")
        rows = rows[: room - 1]
    if rest:
        return [*rows, to_width([(f"+ {', '.join(rest)}", "muted")], width)]
    return rows


def _servers_line(units: Sequence[Unit], width: int, marks: Marks) -> list[Piece]:
    """The GPUs of a server one by one; equal ones counted where that is wider than `width` cells."""
    line = _server([(_gpus(unit, marks), 1) for unit in units], marks)
    if cells_of(line) <= width:
        return line
    runs = [(unit, len(list(equal))) for unit, equal in groupby(units)]
    return _server([(_gpus(unit, marks, short=True), times) for unit, times in runs], marks)


def _server(units: Sequence[tuple[list[Piece], int]], marks: Marks) -> list[Piece]:
    """Units side by side between bars; a number behind one says how many there are of it."""
    bar: Piece = (marks.side, "border")
    line = [bar]
    for pieces, times in units:
        line += pieces
        if times > 1:
            line.append((f" x {times} ", "muted"))
        line.append(bar)
    return line


def _gpus(unit: Unit, marks: Marks, *, short: bool = False) -> list[Piece]:
    """One GPU, or those that an instance joins; in short with their number."""
    workloads, gpus = unit
    gpu = _gpu(workloads, marks)
    bond = marks.joined
    tone = "border"
    if workloads:
        tone = _tone(workloads[0])
    if short and gpus > 2:
        return [*gpu, (f"{bond}{gpus} GPUs{bond}", tone), *gpu]
    return [*gpu, *[(bond, tone), *gpu] * (gpus - 1)]


def _gpu(workloads: tuple[int, ...], marks: Marks) -> list[Piece]:
    """The letters of the instances on a GPU; from the fifth on letters with numbers, in at most 8 cells."""
    if not workloads:
        return [(marks.free, "muted")]
    instances = Counter(workloads)
    if len(workloads) <= _LETTERS_OF_GPU:
        return [(letter(workload) * count, _tone(workload)) for workload, count in instances.items()]
    text = ""
    for workload, count in instances.items():
        text += letter(workload)
        if count > 1:
            text += f"{count}"
    if len(text) > 8:
        text = text[:7] + "+"
    return [(text, _tone(workloads[0]))]


def letter(workload: int) -> str:
    """The letter of a workload."""
    return LETTERS[workload % len(LETTERS)]


def _tone(workload: int) -> str:
    return _TONES[workload % len(_TONES)]


def _keys(answer: Answer, kinds: Counter[ServerKind], room: int, marks: Marks) -> list[LegendEntry]:
    """Letters of the workloads, and what a bond and a dot stand for where there are any."""
    free = 0
    is_joined = False
    placed: set[int] = set()
    for (_, units), times in kinds.items():
        for workloads, gpus in units:
            placed.update(workloads)
            is_joined = is_joined or gpus > 1
            if not workloads:
                free += times
    keys: list[LegendEntry] = []
    if is_joined:
        keys.append(LegendEntry(f"A{marks.joined}A", "muted", "one instance"))
    if free:
        keys.append(LegendEntry(marks.free, "muted", f"{free:,} free"))
    room -= sum(cells(key.glyph) + cells(key.text) + 3 for key in keys)
    longest = max(4, min(24, room // max(1, len(placed)) - 9))
    names = []
    for workload in sorted(placed):
        if workload < len(answer.workloads):
            names.append(_key(answer, workload, longest))
    return [*names, *keys]


def _key(answer: Answer, workload: int, longest: int) -> LegendEntry:
    """Letter, name and number of instances of a workload."""
    plan = answer.workloads[workload]
    name = clean(plan.name.rpartition("/")[2] or plan.name)
    instances = _known(plan.instances)
    times = ""
    if instances is not None:
        times = f" x {instances:,.0f}"
    return LegendEntry(letter(workload), _tone(workload), f"{cut(name, longest)}{times}")
