"""The help page: the keys of the pane below it, where to look first, every other key, and what the marks mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import ClassVar, Final

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
from gpumon.tui.widgets.key_line import NUMBER, SIZING, KeyHolder, own_commands
from gpumon.tui.widgets.pane import Pane

QUESTIONS: Final = (
    ("GPU wasted?", "{pane.gpus} then {sort}: waste. Low mfu, mbu; sm far below busy; VRAM held."),
    ("engine slow?", "{pane.engines} then {sort}: TTFT, ITL (p95). wait > 0: queues; kv ~100%: full."),
    ("no figure?", "{open} on its row: why; and each figure's formula and source."),
    ("how recent?", "rates, mfu, mbu, mem bw: mean of 10 s; p95: 60 s; others: now."),
)
"""Questions that people come with, and their answers; names of commands in braces stand for their keys."""


LEGEND: Final = (
    ("busy sm", "a kernel ran; SMs at work"),
    ("╱ in a bar", "not measured"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("!vllm:8000", "wrong or apart: its page"),
    ("m ≥ ≤ ~", "measured, least/most/mean"),
    ("104%! 31%?", "wrong; unsure peak, goal"),
    ("28%*", "of some replicas only"),
    ("<10ms ~24ms", "first bucket; mean of few"),
    ("– … n/a", "none; not yet; not live"),
    ("LLM? GPU?", "unknown: gpumon doctor"),
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
    ("busy, VRAM", "muted"),
)
"""Colours of bars by level."""
_SIZING_TITLE: Final = "in the sizing panel"
_ALSO_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("cell", "wall", "zoom"),
    "engines": ("cell", "hide", "zoom"),
    "processes": ("zoom",),
    "history": ("zoom",),
    "triage": ("requests", "zoom"),
}
"""Pane -> commands that are for it besides those that the line of keys has room for."""
_SCOPED: Final = {command.id: command.does for command in COMMANDS if command.scope}
"""Id of a command that one part of the screen has -> what it does there."""
_TITLES: Final[Mapping[str, str]] = {
    "rows": "keys of the rows",
    "groups": "keys of the rows",
    "fleet wall": "keys of the wall",
    "wall below": "keys of the wall",
    "wall": "keys of the wall",
    "picture": "keys of the map and the roofline",
    "only picture": "keys of the map and the roofline",
    "detail": "keys of the page",
    "compare": "keys of the page",
}
"""Pane or page -> the title of its keys, where its name is not in it."""
TYPED: Final = (
    (":03:10", "today's, or yesterday's"),
    (":-20m", "20 min ago: s, m, h, d"),
    (":sort", "any command by its name"),
    ("/llama -8b", "with llama, without 8b"),
    ("/kv>80", "KV cache above 80%"),
    ("/ttft>500ms", "< >= <=, of any column"),
    ("/gpu7", "engines etc. on GPU 7"),
)
"""Examples of what can be typed, and what they do; the first character stands for the key of the palette, `:`, or the
filter, `/`."""
FLEET_TYPED: Final = (
    (":03:10", "today's, or yesterday's"),
    (":-2h", "two hours ago: s, m, h, d"),
    (":sort", "any command by its name"),
)
_TYPED_KEYS: Final[Mapping[str, str]] = {":": "palette", "/": "filter"}
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
_KEY_CELLS: Final = 9
"""Cells of the keys of a command."""
_MARK_CELLS: Final = 12
"""Cells of a mark, and of an example."""
_COLUMN_CELLS: Final = 39
"""Cells of a key or mark with its meaning."""
_FLEET_MARK_CELLS: Final = 16
_FLEET_COLUMN_CELLS: Final = 56
"""The same two for the screen of a fleet, which has longer marks and meanings."""
_QUESTION_CELLS: Final = 14
_HEADER_CELLS: Final = 9
"""Cells of a header of a table, in the glossary."""
_LEAST_MEANING_CELLS: Final = 24
"""Cells that an answer or a meaning in the glossary gets however narrow the screen is."""
_HEIGHT_FOR_BLANKS: Final = 30
"""Lines of the page from which sections have a blank line above their titles."""
_BELOW_TEN_PERCENT: Final = 0.0995
"""Largest share that has a digit after the point: in whole percent it would lose most of what it says."""
_Section = tuple[str, list[Row]]
"""Title and lines."""


class HelpPage(Pane):
    """Keys, questions, marks and the glossary, in as many columns as fit; a command has a line."""

    heading: str = "help"
    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def __init__(
        self, palette: Palette, view: View, dock: SizingDock, holder_below: Callable[[], KeyHolder], *, fleet: bool
    ) -> None:
        """`holder_below`: returns the holder of the keys when the help was opened, to which they go back
        (`MonitorScreen.holder_below_help`). `fleet`: whether the screen shows several hosts."""
        super().__init__(palette, view)
        self._dock = dock
        self._holder_below = holder_below
        self._fleet = fleet

    def is_title(self, row: Row) -> bool:
        """Whether a line is the title of a section."""
        return len(row) == 1 and row[0][1] == "muted"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The keys of what is below, then all that is to know of the screen that is shown; below these the glossary."""
        sections = self._key_sections(width)
        if self._fleet:
            sections += _fleet_sections(self.view.keymap, width)
        else:
            sections.insert(1, ("where to look", _question_rows(self.view.keymap, width)))
            sections += _host_sections(self.view.keymap, width)
        if not self._dock.open:
            sections.append((_SIZING_TITLE, _sizing_rows(self.view.keymap, width)))
        rows: list[Row] = []
        for title, lines in sections:
            if rows and height >= _HEIGHT_FOR_BLANKS:
                rows.append(())
            rows += [((f" {title}", "muted"),), *lines]
        if self.snapshot is not None and not self._fleet:
            rows += _own_cost_rows(self.snapshot.self_cost)
        return [*rows, *_glossary(width)]

    def _key_sections(self, width: int) -> list[_Section]:
        """The keys of what is below the help, and all others."""
        keymap = self.view.keymap
        holder = self._holder_below()
        column_cells = min(_FLEET_COLUMN_CELLS, width) if self._fleet else _COLUMN_CELLS
        meanings = _meanings(fleet=self._fleet)
        if self._dock.open or holder.name in (SIZING, NUMBER):
            title = _SIZING_TITLE
            own_rows = _sizing_rows(keymap, width)
            own_ids: Sequence[str] = ()
        else:
            texts = own_commands(holder)
            own_ids = list(dict.fromkeys((*texts, *_ALSO_OF.get(holder.name, ()))))
            own = {id_: meanings.get(id_) or _SCOPED[id_] for id_ in own_ids}
            if "open" in texts:  # each pane opens something else
                own["open"] = texts["open"]
            title = _TITLES.get(holder.name, f"keys of {holder.name}")
            own_rows = _key_rows(keymap, own, width, column_cells)
        others = {id_: does for id_, does in meanings.items() if id_ not in own_ids}
        sections = [(title, own_rows)] if own_rows else []
        return [*sections, ("keys everywhere", _key_rows(keymap, others, width, column_cells))]


def _host_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Examples of what can be typed, and the marks of the screen of one host."""
    return [
        ("what can be typed", _mark_rows(_with_typed_keys(keymap, TYPED), width)),
        ("marks", [*_mark_rows(LEGEND, width), _LEVELS_OF_BARS]),
    ]


def _fleet_sections(keymap: Keymap, width: int) -> list[_Section]:
    """Examples of what can be typed, filters and marks of a fleet's screen."""
    typed = _with_typed_keys(keymap, FLEET_TYPED)
    titled_entries = (("what can be typed", typed), ("filter", FLEET_FILTERS), ("marks", FLEET_LEGEND))
    column_cells = min(_FLEET_COLUMN_CELLS, width)
    return [(title, _column_rows(entries, width, _FLEET_MARK_CELLS, column_cells)) for title, entries in titled_entries]


def _with_typed_keys(keymap: Keymap, examples: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The examples with the user's own keys before what is typed."""
    with_keys = []
    for example, does in examples:
        key = keymap.first(_TYPED_KEYS[example[0]])
        gap = " " if len(key) > 1 else ""
        with_keys.append((f"{key}{gap}{example[1:]}", does))
    return with_keys


def _sizing_rows(keymap: Keymap, width: int) -> list[Row]:
    """Keys and marks of the sizing panel."""
    meanings = {command.id: command.does for command in COMMANDS if command.scope == "sizing"}
    return [*_key_rows(keymap, meanings, width, _COLUMN_CELLS), *_mark_rows(SIZING_LEGEND, width)]


@lru_cache(maxsize=4)
def _glossary(width: int) -> tuple[Row, ...]:
    """Every quantity in the table's order: its header, its name where that is another one, unit, window and meaning."""
    rows: list[Row] = [(), ((" glossary: header, name, unit, time it covers", "muted"),)]
    for term in TERMS:
        name = "" if term.name == term.short else f"{term.name}, "
        text = f"{name}{term.unit.symbol}, {term.window}: {term.meaning}"
        header = f" {left(term.short, _HEADER_CELLS)} "
        first, *others = wrap(text, max(_LEAST_MEANING_CELLS, width - cells(header) - 1))
        rows.append(((header, "accent"), (first, "text")))
        for line in others:
            rows.append(((" " * cells(header), "accent"), (line, "text")))
    return tuple(rows)


def _own_cost_rows(cost: Self) -> list[Row]:
    """CPU share of one core and memory of gpumon itself, its driver process included, below a blank line."""
    cpu = cost.cpu_ratio
    share = f"{cpu * 100:.1f}%" if not isinstance(cpu, Missing) and 0.0 <= cpu < _BELOW_TEN_PERCENT else ratio(cpu)
    memory = amount(cost.pss_bytes, "B")
    return [(), ((" gpumon itself  ", "strong"), (f"{share} of one core, {memory} of memory", "text"))]


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


def _meanings(*, fleet: bool) -> dict[str, str]:
    """Id of each command of the whole screen -> what it does there, in the order of the table of keys. `fleet`: the
    screen is that of a fleet."""
    meanings = {}
    for command in COMMANDS:
        if fleet and command.scope in ("", "fleet") and command.fleet is not None:
            meanings[command.id] = command.fleet or command.does
        elif not fleet and not command.scope:
            meanings[command.id] = command.does
    return meanings


def _key_rows(keymap: Keymap, meanings: Mapping[str, str], width: int, column_cells: int) -> list[Row]:
    """Commands in columns, each with all of its keys; those without a key are left out. `meanings`: id -> what it
    does."""
    entries = [(keymap.shown(id_), does) for id_, does in meanings.items() if keymap.keys[id_]]
    return _column_rows(entries, width, _KEY_CELLS, column_cells)


def _mark_rows(entries: Sequence[tuple[str, str]], width: int) -> list[Row]:
    """Marks or examples with their meanings."""
    return _column_rows(entries, width, _MARK_CELLS, _COLUMN_CELLS)


def _column_rows(entries: Sequence[tuple[str, str]], width: int, key_cells: int, column_cells: int) -> list[Row]:
    """Keys or marks with their meanings in columns, from top to bottom, then from left to right.

    Two blanks are behind keys that fill their place: these have blanks between them, too.
    """
    columns = max(1, (width - 1) // column_cells)
    height = -(-len(entries) // columns)  # rounded up
    rows: list[Row] = []
    for line in range(height):
        row: list[Piece] = []
        for key, meaning in entries[line::height]:
            gap = 2 if cells(key) >= key_cells else 1
            padded_key = left(key, max(key_cells, cells(key)) + gap)
            row.append((f" {padded_key}", "accent"))
            row.append((left(meaning, column_cells - cells(padded_key) - 1), "text"))
        rows.append(tuple(row))
    return rows
