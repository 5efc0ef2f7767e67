"""The help page: where to look first, every key from the table of keys, and what the marks mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import ClassVar, Final, Protocol

from gpumon.config.keymap import COMMANDS, Keymap
from gpumon.readings.format import amount, cells, left, ratio
from gpumon.readings.glossary import TERMS
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Self
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.screens.parts import SizingDock
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

QUESTIONS: Final = (
    ("GPU wasted?", "{pane.gpus} then {sort}: waste. Low mfu, mbu; sm far below busy; VRAM held."),
    ("engine slow?", "{pane.engines} then {sort}: TTFT, ITL (p95). wait > 0: queues; kv ~100%: full."),
    ("no figure?", "{open} on its row: why; and each figure's formula and source."),
    ("how recent?", "rates, mfu, mbu, mem bw: mean of 10 s; p95: 60 s; others: now."),
)
"""Questions that people come with, and the keys that answer them."""

GROUPS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (("up", "down"), "move the cursor", ""),
    (("page.up", "page.down", "top", "end"), "a page; to an end", ""),
    (("open", "back"), "detail; back, never quits", "the host; back, never quits"),
    (("help", "quit"), "help; back, and quit", ""),
    (("filter", "filter.all", "sort"), "filter, all; sort", "filter, sort; find"),
    (("cell", "zoom", "mark", "compare"), "formula; zoom; mark, diff", "a wall of all GPUs, and back"),
    (("wall", "wall.figure", "roofline"), "tiles, figure; roofline", "the wall by another figure"),
    (("pane.next", "pane.previous"), "next pane, page section", "sizing panel, or table"),
    (("pane.gpus", "pane.engines", "pane.history", "pane.processes", "pane.faults"), "GPUs to processes; triage", ""),
    (
        ("span.shorter", "span.longer", "slower", "faster"),
        "span of charts; how often",
        "ask less, more often, as in btop",
    ),
    (
        ("left", "right", "time.frame.back", "time.frame.forth"),
        "beside; paused: frame",
        "paused: a refresh back, forth",
    ),
    (
        ("time.back", "time.forth", "time.minute.back", "time.minute.forth"),
        "time: 10 s, a minute",
        "time: 5 minutes, an hour",
    ),
    (("time.previous", "time.next"), "time: events; matches", "what happened on the row's host"),
    (("time.oldest", "time.live"), "time: oldest, live; ends", ""),
    (("settings", "palette"), "settings; commands, time", ""),
    (
        ("copy", "hide", "hide.none", "log", "requests", "log.follow", "log.error", "requests.errors"),
        "copy; hide; log, requests",
        "",
    ),
    (("redraw", "suspend"), "read now; to the shell", "ask now; to the shell"),
    (("sizing.more", "sizing.less"), "a step more, less", ""),
    (("sizing.double", "sizing.double.all"), "double this target, all", ""),
    (("sizing.goal", "sizing.goal.ttft"), "ITL, TTFT goal", ""),
    (("sizing.reset",), "as it runs", ""),
    (("sizing.undo", "sizing.redo"), "undo, redo", ""),
    (("sizing.save", "sizing.load"), "save, load a file", ""),
)
"""Commands that share a line, or are said shorter here, with what they do on a fleet's screen where that is something
else; every other one has its own."""

LEGEND: Final = (
    ("busy sm", "a kernel ran; SMs at work"),
    ("╱ in a bar", "not measured"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("!vllm:8000", "wrong or apart: its page"),
    ("m ≥ ≤", "measured, at least / most"),
    ("104%! 31%?", "wrong facts; unsure peak"),
    ("28%*", "of some replicas only"),
    ("<10ms ~24ms", "first bucket; mean of few"),
    ("– … n/a", "none; not yet; not live"),
    ("LLM? GPU?", "unknown: gpumon doctor"),
    ("gpu7 -abc", "in a filter: of 7, no abc"),
    ("VRAM held", "but by no engine"),
)
"""Figures and marks, in a column each."""

_SIZING: Final = "in the sizing panel"
"""Over its keys; they stand first while it is open, else where there is room."""
SIZING_LEGEND: Final = (
    ("● sweep", "measured; imported"),
    ("~ ?", "re-scaled; roofline"),
    ("●! ~!", "beyond what was measured"),
    ("‖3m", "frozen for 3 min"),
)

FLEET_LEGEND: Final = (
    ("busy bar", "a kernel ran; in it SMs at work: means"),
    ("gpus 6/8", "busy is known of 6 of them"),
    ("! 2 silent", "engines that do not answer"),
    ("mfu of 87/96", "of how many GPUs MFU is known"),
    ("37%~", "known for a part of its GPUs"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("idle", "1 - busy, summed: GPUs, or $/h"),
    ("104%! 31%?", "wrong facts; unsure peak"),
    ("! STALE", "no scrape of it for 3 intervals"),
    ("✗ UNREACHABLE", "none of its targets answers"),
    ("✗ GONE 3m", "no series of it any more"),
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
_KEYS: Final = 12
_COLUMN: Final = 39
"""Cells of a key or mark with its meaning, and of the marks alone."""
_FLEET_KEYS: Final = 16
_FLEET_COLUMN: Final = 56
_ASKED: Final = 14
_SHORT: Final = 9
_LEAST_MEANING: Final = 24
"""Cells of a header of the glossary, and the least of its meaning and of an answer."""
_ONE_DIGIT: Final = 0.0995
"""Share below which it is shown with one digit after the point."""
_Section = tuple[str, list[Row]]
"""Title and lines."""
_Names = tuple[str, ...]
"""Commands that share a line."""


class HelpBody(Protocol):
    """The body of a screen, as its help knows it."""

    fleet: bool
    """Whether it shows several hosts."""


class HelpScreen(Protocol):
    """The screen as its help knows it."""

    dock: SizingDock

    @property
    def body(self) -> HelpBody:
        """Return its body."""


class HelpPage(Pane):
    """In as many columns as fit; section titles where there are lines to spare for them."""

    TITLE: str = "help"
    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View, screen: HelpScreen) -> None:
        super().__init__(palette, view)
        self._helped = screen

    def is_title(self, row: Row) -> bool:
        """Whether a line is the title of a section."""
        return len(row) == 1 and row[0][1] == "muted"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """First questions, keys, marks."""
        screen = self._helped
        fleet = screen.body.fleet
        if fleet:
            sections = _fleet_sections(self.view.keymap, width)
        else:
            sections = _host_sections(self.view.keymap, width)
        sizing = _columns([*_sizing_keys(self.view.keymap), *SIZING_LEGEND], max(1, (width - 1) // _COLUMN))
        spare = height - sum(len(rows) for _, rows in sections)
        if screen.dock.open:
            title: list[Row] = []
            if spare < len(sizing):
                title = [((f" {_SIZING}", "muted"),)]
            sections.insert(1, (_SIZING, [*title, *sizing]))
        elif spare > len(sizing):
            sections.append((_SIZING, sizing))
        rows = _titled(sections, height)
        if self.snapshot is not None and not fleet and len(rows) < height:
            rows.append(_own_cost(self.snapshot.self_cost))
        return [*rows, *_glossary(width)]


def _host_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Sections of the screen of one host."""
    columns = max(1, (width - 1) // _COLUMN)
    return [
        ("", _questions(keymap, width)),
        ("keys", _columns(_host_keys(keymap), columns)),
        ("marks", _columns(LEGEND, columns)),
    ]


def _fleet_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Sections of a fleet's screen."""
    size = min(_FLEET_COLUMN, width)
    columns = max(1, (width - 1) // size)
    return [
        ("keys", _columns(_fleet_keys(keymap), columns, _FLEET_KEYS, size)),
        ("filter", _columns(FLEET_FILTERS, columns, _FLEET_KEYS, size)),
        ("marks", _columns(FLEET_LEGEND, columns, _FLEET_KEYS, size)),
    ]


def _titled(sections: Sequence[_Section], height: int) -> list[Row]:
    """The lines of all sections, with titles and blank lines between them where there are lines to spare."""
    spare = height - sum(len(lines) for _, lines in sections)
    rows: list[Row] = []
    for title, lines in sections:
        if title and lines and spare >= 4:
            rows.append(())
        if title and lines and spare >= 2:
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
        text = f"{name}{term.unit}, {term.window}: {term.meaning}"
        before = f" {left(term.short, _SHORT)} "
        for line in wrap(text, max(_LEAST_MEANING, width - cells(before) - 1)):
            rows.append(((before, "accent"), (line, "text")))
            before = " " * cells(before)
    return tuple(rows)


def _own_cost(cost: Self) -> Row:
    """CPU share of one core and memory of gpumon itself, its driver process included."""
    cpu = cost.cpu_ratio
    share = ratio(cpu)
    if not isinstance(cpu, Missing) and 0.0 <= cpu < _ONE_DIGIT:
        share = f"{cpu * 100:.1f}%"
    return ((" gpumon itself  ", "strong"), (f"{share} of one core, {amount(cost.pss_bytes, 'B')} of memory", "text"))


def _questions(keymap: Keymap, width: int) -> list[Row]:
    keys = {command.id: keymap.first(command.id) for command in COMMANDS}
    rows: list[Row] = []
    for question, answer in QUESTIONS:
        for name, key in keys.items():
            answer = answer.replace(f"{{{name}}}", key)
        before = left(f" {question}", _ASKED) + " "
        for line in wrap(answer, max(_LEAST_MEANING, width - len(before))):
            rows.append(((before, "strong"), (line, "text")))
            before = " " * len(before)
    return rows


def _host_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of the screen of one host, and what they do."""
    return _with_keys(keymap, _meanings(""))


def _sizing_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of the sizing panel, and what they do."""
    return _with_keys(keymap, _meanings("sizing"))


def _meanings(scope: str) -> dict[_Names, str]:
    """Commands of a scope, those of a group in one line, and what they do, in the order of the table of keys."""
    groups = {name: (names, does) for names, does, _ in GROUPS for name in names}
    meanings: dict[_Names, str] = {}
    for command in COMMANDS:
        if command.scope == scope:
            names, does = groups.get(command.id, ((command.id,), command.does))
            meanings[names] = does
    return meanings


def _fleet_keys(keymap: Keymap) -> list[tuple[str, str]]:
    """Keys of a fleet's screen, and what they do there."""
    groups: dict[str, tuple[_Names, str]] = {}
    for names, does, on_fleet in GROUPS:
        groups |= dict.fromkeys(names, (names, on_fleet or does))
    meanings: dict[_Names, str] = {}
    for command in COMMANDS:
        if command.scope in ("", "fleet") and command.fleet is not None:
            names, does = groups.get(command.id, ((command.id,), command.fleet or command.does))
            meanings[_on_fleet(names)] = does
    return _with_keys(keymap, meanings)


def _on_fleet(names: _Names) -> _Names:
    """The commands among these that a fleet's screen has."""
    absent = {command.id for command in COMMANDS if command.fleet is None}
    return tuple(name for name in names if name not in absent)


def _with_keys(keymap: Keymap, meanings: Mapping[_Names, str]) -> list[tuple[str, str]]:
    """The keys of commands in place of their names; commands without a key are left out."""
    entries: list[tuple[str, str]] = []
    for names, does in meanings.items():
        keys = " ".join(dict.fromkeys(key for name in names for key in keymap.shown(name).split()))
        if keys:
            entries.append((keys, does))
    return entries


def _columns(entries: Sequence[tuple[str, str]], columns: int, least: int = _KEYS, column: int = _COLUMN) -> list[Row]:
    """Top to bottom, then left to right."""
    height = -(-len(entries) // columns)
    rows: list[Row] = []
    for number in range(height):
        row: list[tuple[str, str]] = []
        for name, does in entries[number::height]:
            keys = left(name, max(least, cells(name)))
            row += [(f" {keys} ", "accent"), (left(does, column - cells(keys) - 2), "text")]
        rows.append(tuple(row))
    return rows
