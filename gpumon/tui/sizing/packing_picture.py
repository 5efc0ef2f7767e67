"""Which instance stands on which GPU of which server: letters for workloads, equal servers as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from gpumon.readings.format import cells, cut
from gpumon.readings.missing import Reading, number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, GpuSlot, Packed, PlacedServer
from gpumon.sizing.scenario import Packing, Scenario
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import MARKS, Marks, fitted, usable
from gpumon.tui.sizing.fields import labelled
from gpumon.tui.sizing.plot_frame import Key, Title, flowed, said, titled

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
TONES: Final = ("accent", "tokens", "mfu", "mbu", "ok", "sm", "strong", "text")
"""Tones of the workloads, round and round."""
_RULES: Final[dict[str, tuple[str, str]]] = {
    "busy": ("GPUs shared by memory and busy share", "by memory + busy share"),
    "memory": ("GPUs shared by memory alone", "by memory alone"),
}
_LETTERS_OF_GPU: Final = 4
"""Instances of a GPU that are written one by one; more become a letter and a number."""
_LEGENDS: Final = ((20, 4), (12, 3), (8, 2), (4, 1))
"""Height from which a legend may have so many lines."""
_LINES_OF_SERVER: Final = 3
"""A server that takes more has its equal GPUs counted instead."""

_HELD: Final = (-1,)
"""In the place of workloads: something else holds the GPU."""

Unit = tuple[tuple[int, ...], int]
"""Workloads on one GPU, and over how many GPUs they are joined."""
Kind = tuple[int, tuple[Unit, ...]]
"""Shape of a server and what is on it: equal ones are drawn once."""


def letter(workload: int) -> str:
    """What stands for a workload."""
    return LETTERS[workload % len(LETTERS)]


def tone(workload: int) -> str:
    """The tone of a workload."""
    return TONES[workload % len(TONES)]


def packing(
    width: int,
    height: int,
    answer: Answer,
    scenario: Scenario,
    plan: Packing,
    glyphs: Glyphs,
    held: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> list[Row]:
    """Servers and their GPUs in the plan by `plan`: at most `height` rows. Of GPUs that are free in it, those that are
    `held` here by something else (`live.Held`) are drawn as taken."""
    packed = answer.plans.busy_aware if plan == "busy" else answer.plans.memory_only
    marks = MARKS[glyphs]
    title = _title(scenario, packed, plan, width)
    problem = clean(packed.problem or ("" if packed.layout else answer.problem))
    if not packed.layout:
        return said(title, problem or "nothing to place", width, height, "warn" if problem else "muted")
    layout, needed = _with_held(packed.layout, scenario, held)
    kinds = Counter(_kind(server) for server in layout)
    head = _head(title, packed, width, 2 if height >= 6 else 1, marks)
    tail = _missed(answer, problem, width, 2 if height >= 8 else 1)
    most = next((n for least, n in _LEGENDS if height >= least), 0)
    legend = flowed(_keys(answer, kinds, width * most, marks, needed), width, most)
    room = max(1, height - len(head) - len(tail) - len(legend))
    extra = _extra(packed, scenario)
    body = _body(kinds, scenario, width, room, extra, marks)
    return [*head, *body, *tail, *legend][: max(0, height)]


def _title(scenario: Scenario, packed: Packed, plan: Packing, width: int) -> Title:
    """How GPUs are shared, and of what servers they are."""
    used = sorted({server.shape for server in packed.layout if server.shape < len(scenario.server)})
    shapes = ", ".join(f"{scenario.server[at].gpus}x {clean(scenario.server[at].gpu)}" for at in used)
    rules = _RULES[plan]
    what = rules[0] if cells(f"{rules[0]}: {shapes}") <= width else rules[1]
    return Title(what, shapes)


def _head(title: Title, packed: Packed, width: int, most: int, marks: Marks) -> list[Row]:
    """How many it takes and how far that is from the least."""
    servers, gpus, least = _known(packed.servers), _known(packed.gpus), _known(packed.servers_least)
    parts = [f"{n:,.0f} {word}{'s' * (n != 1)}" for n, word in ((servers, "server"), (gpus, "GPU")) if n is not None]
    over = servers - least if servers is not None and least is not None else None
    if over is not None and not packed.problem:
        parts.append("optimal" if over < 0.5 else f"at most {over:,.0f} server{'s' * (over >= 1.5)} too many")
    brief = [*parts[:-1], parts[-1].replace(" servers too", " too").replace(" server too", " too")] if parts else []
    forms = (parts, brief, [*brief[:1], *brief[2:]])
    texts = [marks.dot.join(form) for form in forms]
    summary: Row = [(next((text for text in texts if cells(text) <= width), texts[-1]), "text")]
    return [titled(title, width), fitted(summary, width)] if most > 1 else [fitted(summary, width)]


def _known(reading: Reading) -> float | None:
    value = number(reading)
    return value if usable(value) else None


def _with_held(
    layout: Sequence[PlacedServer], scenario: Scenario, held: Mapping[str, tuple[int, ...]]
) -> tuple[Sequence[PlacedServer], int]:
    """The servers with what is held on those that are here, and how many held GPUs the plan has no other for.

    Which of the drawn servers is which of those here is open: most is held where most is free.
    """
    servers, needed = list(layout), 0
    for gpu, numbers in held.items():
        shapes = {at for at, server in enumerate(scenario.server) if server.gpu == gpu and any(numbers)}
        alike = [index for index, server in enumerate(layout) if server.shape in shapes]
        alike.sort(key=lambda index: -_free(layout[index]))
        for index, left in zip(alike, sorted(numbers[: len(alike)], reverse=True), strict=False):
            slots = list[GpuSlot]()
            for slot in layout[index].gpus:
                takes = left > 0 and not slot.workloads
                slots.append(GpuSlot(_HELD) if takes else slot)
                left -= takes
            servers[index] = replace(layout[index], gpus=tuple(slots))
            needed += left
    return servers, needed


def _free(server: PlacedServer) -> int:
    return sum(not slot.workloads for slot in server.gpus)


def _kind(server: PlacedServer) -> Kind:
    """What is on a server, in one order: GPUs that an instance joins, then shared ones, held ones, and free ones."""
    groups: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for at, slot in enumerate(server.gpus):
        key = (0, slot.group) if slot.group >= 0 else (1, at)
        groups.setdefault(key, []).append(tuple(sorted(slot.workloads)))
    units = [(found[0], len(found)) for found in groups.values()]
    return server.shape, tuple(sorted(units, key=lambda unit: (not unit[0], unit[0] == _HELD, -unit[1], unit[0])))


def _extra(packed: Packed, scenario: Scenario) -> str:
    """Servers that are not in the layout."""
    servers = _known(packed.servers)
    rest = round(servers) - len(packed.layout) if servers is not None else 0
    if rest <= 0:
        return ""
    spare = min(rest, scenario.spare_servers)
    more = f"{rest - spare:,} more server{'s' * (rest - spare != 1)} not drawn" if rest > spare else ""
    said = f"{spare} spare server{'s' * (spare != 1)}" if spare else ""
    if said and len(scenario.server) > 1:
        said += f" of {clean(scenario.server[packed.spare_shape].gpu)}"
    return " + ".join(part for part in (said, more) if part)


def _body(
    kinds: Counter[Kind], scenario: Scenario, width: int, room: int, extra: str, marks: Marks
) -> list[Row]:  # fmt: skip
    """A line or more of each kind of server, as many kinds as fit; the others are counted."""
    last: list[Row] = [fitted([(f"+ {extra}", "muted")], width)] if extra else []
    most = max(kinds.values())
    counted = len(f"{most:,}")
    mixed = len({shape for shape, _ in kinds}) > 1
    rows: list[Row] = []
    drawn = 0
    for at, ((shape, units), times) in enumerate(kinds.items()):
        prefix = f"{times:>{counted},} x " if most > 1 else ""
        name = f" {clean(scenario.server[shape].gpu)}" if mixed and shape < len(scenario.server) else ""
        lines = _server(units, prefix, name, width, marks, min(_LINES_OF_SERVER, max(1, room - len(rows))))
        is_last = at == len(kinds) - 1
        if rows and len(rows) + len(lines) + len(last) + (not is_last) > room:
            rest = sum(kinds.values()) - drawn
            text = f"+ {rest:,} more ({len(kinds) - at} kind{'s' * (len(kinds) - at != 1)})"
            return [*rows[: room - 1], fitted([(text + (f", {extra}" if extra else ""), "muted")], width)]
        rows += lines
        drawn += times
    return [*rows, *last][:room]


def _server(units: Sequence[Unit], prefix: str, name: str, width: int, marks: Marks, most: int) -> list[Row]:
    """One server: all its GPUs, or where they take too many lines each sort of them once, with its number."""
    start: list[Piece] = [(prefix, "strong")] if prefix else []
    room = width - cells(prefix)
    lines = _lines([(_unit(unit, marks), 1) for unit in units], room, marks)
    if len(lines) > most or any(sum(cells(text) for text, _ in line) > room for line in lines):
        runs = [(unit, len(list(same))) for unit, same in groupby(units)]
        lines = _lines([(_counted(unit, marks, room), times) for unit, times in runs], room, marks)
    rows: list[Row] = []
    for at, line in enumerate(lines[:most]):
        end: list[Piece] = [(name, "muted")] if at == 0 and name else []
        rows.append(fitted([*(start if at == 0 else [(" " * cells(prefix), "text")]), *line, *end], width))
    if len(lines) > most:
        rows[-1] = fitted([*rows[-1][:-1], ("…" if marks.joined != "-" else "~", "muted")], width)
    return rows


def _lines(units: Sequence[tuple[list[Piece], int]], room: int, marks: Marks) -> list[list[Piece]]:
    """Units side by side between bars; a number behind one says how many there are of it."""
    bar: Piece = (marks.side, "border")
    lines: list[list[Piece]] = []
    used = 0
    for pieces, times in units:
        unit = [*pieces, *([(f" x {times} ", "muted")] if times > 1 else [])]
        size = sum(cells(text) for text, _ in unit) + 1
        if lines and used + size <= room:
            lines[-1] += [*unit, bar]
            used += size
        else:
            lines.append([bar, *unit, bar])
            used = size + 1
    return lines


def _unit(unit: Unit, marks: Marks) -> list[Piece]:
    """One GPU, or those that an instance joins."""
    workloads, gpus = unit
    pieces: list[Piece] = []
    for at in range(gpus):
        if at:
            pieces.append((marks.joined, tone(workloads[0]) if workloads else "border"))
        pieces += _gpu(workloads, marks)
    return pieces


def _counted(unit: Unit, marks: Marks, room: int) -> list[Piece]:
    """The same, with a number for many joined GPUs."""
    workloads, gpus = unit
    pieces = _unit(unit, marks)
    if gpus <= 2 or sum(cells(text) for text, _ in pieces) + 10 <= room:
        return pieces
    bond = marks.joined
    shown = tone(workloads[0]) if workloads else "muted"
    return [*_gpu(workloads, marks), (f"{bond}{gpus} GPUs{bond}", shown), *_gpu(workloads, marks)]


def _gpu(workloads: tuple[int, ...], marks: Marks) -> list[Piece]:
    if not workloads:
        return [(marks.free, "muted")]
    if workloads == _HELD:
        return [(marks.taken, "warn")]
    if len(workloads) > _LETTERS_OF_GPU:
        return [(_text(workloads), tone(workloads[0]))]
    return [(letter(at) * len(list(same)), tone(at)) for at, same in groupby(workloads)]


def _text(workloads: tuple[int, ...]) -> str:
    """The workloads of a GPU that has many, with their numbers: `A9B3`."""
    found = [(letter(at), len(list(same))) for at, same in groupby(workloads)]
    text = "".join(f"{name}{times if times > 1 else ''}" for name, times in found)
    return text if len(text) <= 8 else text[:7] + "+"


def _keys(answer: Answer, kinds: Counter[Kind], room: int, marks: Marks, needed: int) -> list[Key]:
    """Letters of the workloads, and what a bond, a cross and a dot stand for where there are any."""
    units = [unit for _, found in kinds for unit in found]
    there = {at for workloads, _ in units if workloads != _HELD for at in workloads}
    keys = []
    held, free = (
        sum(times for (_, found), times in kinds.items() for workloads, _ in found if workloads == which)
        for which in (_HELD, ())
    )
    if held or needed:
        all_ = held + needed
        more = f", the plan needs {needed:,}" if needed else ""
        text = f"{all_:,} GPU{'s' * (all_ != 1)} held by something else{more}"
        keys.append(Key(marks.taken if held else "", "warn", text, f"{all_:,} held{more}"))
    bond = max((gpus for _, gpus in units), default=1)
    if bond > 1:
        keys.append(Key(f"A{marks.joined}A", "muted", "one instance on several GPUs", "joined"))
    if free:
        keys.append(Key(marks.free, "muted", f"{free:,} GPU{'s' * (free != 1)} free", f"{free:,} free"))
    others = sum(cells(key.glyph) + 1 + cells(key.short) + 2 for key in keys)
    return [*_names(answer, sorted(there), room - others), *keys]


def _names(answer: Answer, there: Sequence[int], room: int) -> list[Key]:
    """Letters of the workloads with their names, which are shortened into what the other keys leave."""
    short, keys = max(4, min(10, room // max(1, len(there)) - 9)), []
    for at in there:
        if at >= len(answer.workloads):
            continue
        plan = answer.workloads[at]
        name, instances = clean(plan.name.rpartition("/")[2] or plan.name), _known(plan.instances)
        times = f" x {instances:,.0f}" if instances is not None else ""
        keys.append(Key(letter(at), tone(at), f"{cut(name, 24)}{times}", f"{cut(name, short)}{times}"))
    return keys


def _missed(answer: Answer, problem: str, width: int, most: int) -> list[Row]:
    """What has no place, or no answer, and why."""
    without = [plan for plan in answer.workloads if number(plan.instances) is None]
    texts = [f"not placed: {problem}"] if problem else []
    texts += [f"{clean(plan.name)}: {clean(labelled(plan.problem)) or 'no answer'}" for plan in without if plan.problem]
    lines = [line for text in texts for line in folded(text, max(1, width))]
    shown: list[Row] = [fitted([(line, "warn")], width) for line in lines[:most]]
    if len(lines) > most and shown:
        shown[-1] = fitted([(cut(f"{lines[most - 1]} {lines[most]}", width), "warn")], width)
    return shown
