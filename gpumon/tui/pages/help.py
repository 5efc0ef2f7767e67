"""The help page: where to look first, every key from the table of keys, and what the marks mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import ClassVar, Final, NamedTuple

from gpumon.config.keymap import COMMANDS, Keymap
from gpumon.figures.glossary import TERMS
from gpumon.readings.format import amount, cells, left, ratio
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Self
from gpumon.tui.levels import CALM, HOT, NOTE, WARM
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import VRAM, Palette, bar_tone, levelled
from gpumon.tui.screens.parts import SizingDock
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

QUESTIONS: Final = (
    ("GPU wasted?", "{pane.gpus} then {sort}: waste. Low mfu, mbu; sm far below busy; VRAM held."),
    ("engine slow?", "{pane.engines} then {sort}: TTFT, ITL (p95). wait > 0: queues; kv ~100%: full."),
    ("no figure?", "{open} on its row: why; and each figure's formula and source."),
    ("how recent?", "rates, mfu, mbu, mem bw: mean of 10 s; p95: 60 s; others: now."),
)
"""Questions that people come with, and their answers; names of commands in braces stand for their keys."""


class KeyGroup(NamedTuple):
    """Commands that share a line, or one that has shorter words here than in the table of keys."""

    ids: tuple[str, ...]
    does: str
    """Their effects on a host's screen, in words."""
    does_on_fleet: str = ""
    """The same on a fleet's; empty: no other words than on a host's."""


GROUPS: Final = (
    KeyGroup(("up", "down"), "move the cursor"),
    KeyGroup(("page.up", "page.down", "top", "end"), "a page; to an end"),
    KeyGroup(("open", "back"), "detail; back, never quits", "the host; back, never quits"),
    KeyGroup(("help", "quit"), "help; back, and quit"),
    KeyGroup(("filter", "filter.all", "sort"), "filter, all; sort", "filter, sort; find"),
    KeyGroup(("cell", "zoom", "mark", "compare"), "formula; zoom; mark, diff", "a wall of all GPUs, and back"),
    KeyGroup(("wall", "wall.figure", "roofline"), "tiles, figure; map", "the wall by another figure"),
    KeyGroup(("pane.next", "pane.previous"), "next pane, page section", "sizing panel, or table"),
    KeyGroup(
        ("pane.gpus", "pane.engines", "pane.history", "pane.processes", "pane.faults"), "GPUs to processes; triage"
    ),
    KeyGroup(
        ("span.shorter", "span.longer", "slower", "faster"),
        "span of charts; how often",
        "ask less, more often, as in btop",
    ),
    KeyGroup(
        ("left", "right", "time.frame.back", "time.frame.forth"),
        "beside; paused: frame",
        "paused: a refresh back, forth",
    ),
    KeyGroup(
        ("time.back", "time.forth", "time.minute.back", "time.minute.forth"),
        "time: 10 s, a minute",
        "time: 5 minutes, an hour",
    ),
    KeyGroup(("time.previous", "time.next"), "time: events; matches", "what happened on the row's host"),
    KeyGroup(("time.oldest", "time.live"), "time: oldest, live; ends"),
    KeyGroup(("settings", "palette"), "settings; command, time"),
    KeyGroup(
        ("copy", "acknowledge", "hide", "hide.none", "log", "requests", "log.follow", "log.error", "requests.errors"),
        "copy, ack; hide; logs",
        "copy advice; maintenance",
    ),
    KeyGroup(("redraw", "suspend"), "read now; to a shell", "ask now; to a shell"),
    KeyGroup(("sizing.more", "sizing.less"), "a step more, less"),
    KeyGroup(("sizing.double", "sizing.double.all"), "double this target, all"),
    KeyGroup(("sizing.goal", "sizing.goal.ttft"), "ITL, TTFT goal"),
    KeyGroup(("sizing.renew", "sizing.reset"), "newer figures; as it runs"),
    KeyGroup(("sizing.undo", "sizing.redo"), "undo, redo"),
    KeyGroup(("sizing.save", "sizing.load"), "save, load a file"),
)
"""Every other command has a line of its own."""

LEGEND: Final = (
    ("busy sm", "a kernel ran; SMs at work"),
    ("╱ in a bar", "not measured"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("!vllm:8000", "wrong or apart: its page"),
    ("m ≥ ≤", "measured, at least / most"),
    ("104%! 31%?", "wrong; unsure peak, goal"),
    ("28%*", "of some replicas only"),
    ("<10ms ~24ms", "first bucket; mean of few"),
    ("– … n/a", "none; not yet; not live"),
    ("LLM? GPU?", "unknown: gpumon doctor"),
    ("gpu7 -abc", "in a filter: of 7, no abc"),
    ("VRAM held", "but by no engine"),
)
"""Marks in figures and beside them, and what they mean."""

_LEVELS_OF_BARS: Final[Row] = (
    (" ▇▇ ", bar_tone(levelled(VRAM, CALM))),
    ("calm  ", "text"),
    ("▇▇ ", bar_tone(levelled(VRAM, NOTE))),
    ("note  ", "text"),
    ("▇▇ ", bar_tone(levelled(VRAM, WARM))),
    ("warning  ", "text"),
    ("▇▇ ", bar_tone(levelled(VRAM, HOT))),
    ("critical  ", "text"),
    ("bars of busy, VRAM", "muted"),
)
"""Colours of bars by level."""
_SIZING_TITLE: Final = "in the sizing panel"
SIZING_LEGEND: Final = (
    ("● sweep", "measured; imported"),
    ("~ ?", "re-scaled; roofline"),
    ("●! ~!", "beyond what was measured"),
    ("‖3m", "silent for 3 min"),
)

FLEET_LEGEND: Final = (
    ("busy bar", "a kernel ran; in it SMs at work: means"),
    ("gpus 6/8", "busy is known of 6 of them"),
    ("! 2 silent", "engines that do not answer"),
    ("mfu of 87/96", "of how many GPUs MFU is known"),
    ("37%~", "known for a part of its GPUs"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("ttft p95", "of all requests; engines may be worse"),
    ("idle", "1 - busy, summed: GPUs, or $/h"),
    ("104%! 31%?", "wrong facts; unsure peak"),
    ("starting", "no figures yet"),
    ("! partial", "an exporter of it is down"),
    ("! stale", "no scrape of it for 3 intervals"),
    ("✗ unreachable", "none of its targets answers"),
    ("✗ gone 3m", "no series of it any more"),
    ("– n/a", "none; not known"),
)
FLEET_FILTERS: Final = (
    ("llama h100", "both words in its names"),
    ("host=gpu0*", "of that host"),
    ("model!=*llama*", "without that model"),
    ("engine= gpu=", "names of engines, GPUs"),
    ("verdict=kv", "what is not well there"),
    ("zone=eu-1", "any label of its targets"),
)
_KEY_CELLS: Final = 12
"""Cells of a key or mark, at least."""
_COLUMN_CELLS: Final = 39
"""Cells of a key or mark with its meaning."""
_FLEET_KEY_CELLS: Final = 16
_FLEET_COLUMN_CELLS: Final = 56
"""The same two for the screen of a fleet, which has longer marks and meanings."""
_QUESTION_CELLS: Final = 14
_HEADER_CELLS: Final = 9
"""Cells of a header of a table, in the glossary."""
_LEAST_MEANING_CELLS: Final = 24
"""Cells that an answer or a meaning in the glossary gets however narrow the screen is."""
_SPARE_LINES_FOR_TITLES: Final = 2
_SPARE_LINES_FOR_BLANKS: Final = 4
"""Lines that are to spare where sections get titles, and blank lines above these, too."""
_BELOW_TEN_PERCENT: Final = 0.0995
"""Largest share that has a digit after the point: in whole percent it would lose most of what it says."""
_Section = tuple[str, list[Row]]
"""Title and lines."""
_Ids = tuple[str, ...]
"""Ids of the commands that share a line."""


class HelpPage(Pane):
    """Questions, keys, marks and the glossary, in as many columns as fit; with titles where there is room for them."""

    TITLE: str = "help"
    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View, dock: SizingDock, *, fleet: bool) -> None:
        """`fleet`: whether the screen shows several hosts."""
        super().__init__(palette, view)
        self._dock = dock
        self._fleet = fleet

    def is_title(self, row: Row) -> bool:
        """Whether a line is the title of a section."""
        return len(row) == 1 and row[0][1] == "muted"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The questions, keys and marks of the screen that is shown; below these the glossary."""
        if self._fleet:
            sections = _fleet_sections(self.view.keymap, width)
        else:
            sections = _host_sections(self.view.keymap, width)
        entries = [*_sizing_keys(self.view.keymap), *SIZING_LEGEND]
        sizing = _column_rows(entries, max(1, (width - 1) // _COLUMN_CELLS))
        spare = height - _line_count(sections)
        if self._dock.open:  # the keys of the open panel stand near the top, whatever room there is
            title: list[Row] = []
            if spare < len(sizing):  # no section will get a title: these keys need one all the same
                title = [((f" {_SIZING_TITLE}", "muted"),)]
            sections.insert(1, (_SIZING_TITLE, [*title, *sizing]))
        elif spare > len(sizing):
            sections.append((_SIZING_TITLE, sizing))
        rows = _section_rows(sections, height)
        if self.snapshot is not None and not self._fleet and len(rows) < height:
            rows += _own_cost_rows(self.snapshot.self_cost, height - len(rows))
        return [*rows, *_glossary(width)]


def _host_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Questions, keys and marks of the screen of one host."""
    columns = max(1, (width - 1) // _COLUMN_CELLS)
    return [
        ("", _question_rows(keymap, width)),
        ("keys", _column_rows(_host_keys(keymap), columns)),
        ("marks", [*_column_rows(LEGEND, columns), _LEVELS_OF_BARS]),
    ]


def _fleet_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Keys, filters and marks of a fleet's screen."""
    column_cells = min(_FLEET_COLUMN_CELLS, width)
    columns = max(1, (width - 1) // column_cells)
    titled_entries = (("keys", _fleet_keys(keymap)), ("filter", FLEET_FILTERS), ("marks", FLEET_LEGEND))
    sections = []
    for title, entries in titled_entries:
        rows = _column_rows(entries, columns, key_cells=_FLEET_KEY_CELLS, column_cells=column_cells)
        sections.append((title, rows))
    return sections


def _line_count(sections: Sequence[_Section]) -> int:
    """Lines of all sections together, without titles."""
    return sum(len(lines) for _, lines in sections)


def _section_rows(sections: Sequence[_Section], height: int) -> list[Row]:
    """The lines of all sections, with titles and blank lines between them where there are lines to spare."""
    spare = height - _line_count(sections)
    rows: list[Row] = []
    for title, lines in sections:
        if title and lines and spare >= _SPARE_LINES_FOR_BLANKS:
            rows.append(())
        if title and lines and spare >= _SPARE_LINES_FOR_TITLES:
            rows.append(((f" {title}", "muted"),))
        rows += lines
    return rows


@lru_cache(maxsize=4)
def _glossary(width: int) -> tuple[Row, ...]:
    """Every quantity in the table's order: its header, its name where that is another one, unit, window and meaning."""
    rows: list[Row] = [(), ((" glossary: header, name, unit, time it covers", "muted"),)]
    for term in TERMS:
        if term.name == term.short:
            name = ""
        else:
            name = f"{term.name}, "
        text = f"{name}{term.unit.symbol}, {term.window}: {term.meaning}"
        header = f" {left(term.short, _HEADER_CELLS)} "
        first, *others = wrap(text, max(_LEAST_MEANING_CELLS, width - cells(header) - 1))
        rows.append(((header, "accent"), (first, "text")))
        for line in others:
            rows.append(((" " * cells(header), "accent"), (line, "text")))
    return tuple(rows)


def _own_cost_rows(cost: Self, room: int) -> list[Row]:
    """CPU share of one core and memory of gpumon itself, its driver process included; below a blank line if it fits."""
    cpu = cost.cpu_ratio
    share = ratio(cpu)
    if not isinstance(cpu, Missing) and 0.0 <= cpu < _BELOW_TEN_PERCENT:
        share = f"{cpu * 100:.1f}%"
    memory = amount(cost.pss_bytes, "B")
    row: Row = ((" gpumon itself  ", "strong"), (f"{share} of one core, {memory} of memory", "text"))
    if room > 1:
        return [(), row]
    return [row]


def _question_rows(keymap: Keymap, width: int) -> list[Row]:
    """The questions, and their answers with the keys put in."""
    indent = _QUESTION_CELLS + 1
    rows: list[Row] = []
    for question, template in QUESTIONS:
        answer = template
        for command in COMMANDS:
            answer = answer.replace(f"{{{command.id}}}", keymap.first(command.id))
        first, *others = wrap(answer, max(_LEAST_MEANING_CELLS, width - indent))
        rows.append(((left(f" {question}", _QUESTION_CELLS) + " ", "strong"), (first, "text")))
        for line in others:
            rows.append(((" " * indent, "strong"), (line, "text")))
    return rows


def _host_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of the screen of one host, and what they do."""
    return _with_keys(keymap, _meanings(""))


def _sizing_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of the sizing panel, and what they do."""
    return _with_keys(keymap, _meanings("sizing"))


def _meanings(scope: str) -> dict[_Ids, str]:
    """Commands of a scope, those of a group in one line, and what they do, in the order of the table of keys."""
    groups: dict[str, tuple[_Ids, str]] = {}
    for group in GROUPS:
        groups |= dict.fromkeys(group.ids, (group.ids, group.does))
    meanings: dict[_Ids, str] = {}
    for command in COMMANDS:
        if command.scope == scope:
            ids, does = groups.get(command.id, ((command.id,), command.does))
            meanings[ids] = does
    return meanings


def _fleet_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of a fleet's screen, and what they do there."""
    groups: dict[str, tuple[_Ids, str]] = {}
    for group in GROUPS:
        groups |= dict.fromkeys(group.ids, (group.ids, group.does_on_fleet or group.does))
    meanings: dict[_Ids, str] = {}
    for command in COMMANDS:
        if command.scope in ("", "fleet") and command.fleet is not None:
            ids, does = groups.get(command.id, ((command.id,), command.fleet or command.does))
            meanings[_fleet_ids(ids)] = does
    return _with_keys(keymap, meanings)


def _fleet_ids(ids: _Ids) -> _Ids:
    """The commands among these that a fleet's screen has."""
    absent_ids = {command.id for command in COMMANDS if command.fleet is None}
    return tuple(id_ for id_ in ids if id_ not in absent_ids)


def _with_keys(keymap: Keymap, meanings: Mapping[_Ids, str]) -> list[tuple[str, str]]:
    """The keys of commands in place of their ids, and what they do; commands without a key are left out."""
    entries: list[tuple[str, str]] = []
    for ids, does in meanings.items():
        keys: dict[str, None] = {}  # each once, in their order
        for id_ in ids:
            keys |= dict.fromkeys(keymap.shown(id_).split())
        if keys:
            entries.append((" ".join(keys), does))
    return entries


def _column_rows(
    entries: Sequence[tuple[str, str]],
    columns: int,
    *,
    key_cells: int = _KEY_CELLS,
    column_cells: int = _COLUMN_CELLS,
) -> list[Row]:
    """Keys or marks with their meanings in columns, from top to bottom, then from left to right.

    Two blanks are behind keys that fill their place: these have blanks between them, too.
    """
    height = -(-len(entries) // columns)  # rounded up
    rows: list[Row] = []
    for line in range(height):
        row: list[Piece] = []
        for key, meaning in entries[line::height]:
            gap = 1
            if cells(key) >= key_cells:
                gap = 2
            padded_key = left(key, max(key_cells, cells(key)) + gap)
            row.append((f" {padded_key}", "accent"))
            row.append((left(meaning, column_cells - cells(padded_key) - 1), "text"))
        rows.append(tuple(row))
    return rows
