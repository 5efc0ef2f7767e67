"""The last line: the keys that do something here, from the table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from textual import events

from gpumon.config.keymap import ALWAYS_QUITS, Keymap
from gpumon.readings.format import cells, cut
from gpumon.tui.keys import pressed
from gpumon.tui.line import Piece, Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board

MOST_NOTICE: Final = 3
"""Lines of a notice; it takes them from the panes while it stands."""


class Hint(NamedTuple):
    """Keys and what they do."""

    key: str
    """As a person reads them."""
    does: str
    presses: tuple[str, ...]
    """The keys, for a click: two of them where one goes back and the other forth."""


_Own = tuple[tuple[tuple[str, ...], str], ...]
_TURN: Final = ("fleet.models",)
"""Its key is called by the rows that it shows next."""
_HOSTS: Final[_Own] = (
    *((("open",), "host"), (_TURN, "rows"), (("filter",), "filter"), (("sort",), "sort")),
    (("sizing",), "sizing"),
    (("zoom",), "wall of GPUs"),
)
_FLEET_WALL: Final[_Own] = (
    *((("open",), "its page"), (("wall.figure",), "figure"), (("zoom",), "hosts"), (("filter",), "filter")),
    (("sizing",), "sizing"),
)
_LIST: Final[_Own] = ((("open",), "detail"), (("filter",), "filter"), (("sort",), "sort"))
_SPAN: Final = (("span.shorter", "span.longer"), "time span")
_OWN: Final[dict[str, _Own]] = {
    "rows": _HOSTS,
    "groups": ((("open",), "its hosts"), *_HOSTS[1:]),
    "gpus": _LIST,
    "fleet wall": _FLEET_WALL,
    "wall": ((("open",), "detail"), (("wall.figure",), "figure"), (("wall",), "rows"), *_LIST[1:]),
    "engines": (*_LIST, (("log",), "log"), (("requests",), "requests")),
    "processes": _LIST,
    "history": ((("open",), "one chart"), _SPAN, (("roofline",), "roofline")),
    "narrow history": ((("open",), "one chart"), _SPAN),
    "triage": (*_LIST[:2], (("log",), "log")),
    "compare": ((("left", "right"), "other thing"), (("compare",), "again")),
    "log": ((("log.error",), "errors"), (("log.follow",), "follow"), (("filter",), "find")),
    "requests": ((("requests.errors",), "errors first, by time"), (("filter",), "find")),
    "settings": ((("open",), "change"),),
    "number": ((("open",), "type"), (("back",), "to the rows"), (("up", "down"), "on")),
    "sizing": (
        (("open",), "fields"),
        (("sizing.double",), "double"),
        (("sizing.gpu",), "GPU"),
        (("sizing.view",), "view"),
        (("sizing.add",), "add"),
        (("sizing.remove",), "remove"),
        (("sizing.undo", "sizing.redo"), "undo, redo"),
        (("sizing.reset",), "as it runs"),
        (("sizing.save", "sizing.load"), "save, load"),
    ),
}
"""Commands that only do something in this pane or page, and what the key line calls them there."""

_FLEET_NAMES: Final = {("rows", True): "groups", ("wall", True): "fleet wall", ("wall", False): "fleet wall"}
"""Name of a fleet's pane, and whether its rows are of several hosts -> whose commands it has."""

_OPENED: Final[dict[str, _Own]] = {
    "history": ((("back",), "all charts"), _SPAN),
    "sizing": ((("open",), "take it"), (("back",), "as it was"), (("up", "down"), "take it, and on")),
}
"""The same where one thing of it has the pane to itself, or is being typed."""

SIZING: Final = "sizing"
"""The panel with keys of its own."""
NUMBER: Final = "number"
"""A number among its fields, where letters are no commands."""
ASKED: Final = "asked"
"""The place where all keys are for what is asked; its own are fixed."""
_SIDEWAYS: Final = ("detail", "compare")
"""Pages on which the arrows go to another thing, and not through time."""
_ARROWS: Final = {"Left Right": "← →"}
_PANES: Final = 3
"""Cells of `1-5`."""


_HELP: Final = (("help",), "help")
_CLOSE: Final = (("sizing",), "close")
_TO_PANES: Final[_Own] = ((("pane.next",), "panes"),)
_REFRESH: Final[_Own] = ((("redraw",), "refresh"),)
_SCROLL: Final[_Own] = ((("up", "down"), "scroll"),)
_COMMON: Final[_Own] = ((("settings",), "settings"), (("palette",), "commands"), (("save",), "save"))
_CHANGES: Final[_Own] = ((("time.next", "time.previous"), "events"),)
_MATCHES: Final[_Own] = ((("time.next", "time.previous"), "match"),)
_LIVE: Final[_Own] = ((("time.live",), "live"),)
_ENDS: Final[_Own] = ((("time.oldest", "time.live"), "first, last"),)
_ALL_ROWS: Final[_Own] = ((("back",), "all rows"),)


class KeyHolder(msgspec.Struct, frozen=True):
    """The holder of the keys right now, and what it can do."""

    name: str
    """Name of the question, else of the page, else of the pane with the focus."""
    page: bool = False
    zoomed: bool = False
    opened: bool = False
    """Whether one thing of the pane has it to itself."""
    paused: bool = False
    past: bool = False
    """Whether the keys of time move in what is kept."""
    speed: float | None = None
    """Playing speed of a recording; None elsewhere."""
    beside: bool = False
    """Whether the sizing panel leaves panes in sight."""
    scrolls: bool = False
    """Whether there is more than what is visible; of a question, whether it has a list."""
    every: str = "1s"
    """The interval."""
    fleet: bool = False
    grouped: bool = False
    """Whether rows of a fleet are models or owners."""
    rows_next: str = ""
    """The rows of a fleet that the key shows next."""
    narrowed: bool = False
    """Whether a filter hides rows of a fleet."""
    searching: bool = False
    """Whether a search in a page is open."""
    inner: bool = False
    """Whether a step back leads to another screen."""


def hints_at(keys: Keymap, place: KeyHolder) -> list[Hint]:
    """The keys that do something here, most important first, and at last how to leave."""
    if place.name == ASKED:
        return _hints_of_question(place)
    shown = []
    for names, does in _wanted(place):
        if any(map(keys.first, names)):
            shown.append(_hint(keys, names, does))
    return [*shown, _leave(keys, place)]


def _hints_of_question(place: KeyHolder) -> list[Hint]:
    """Fixed keys while something is asked."""
    shown = [Hint("Enter", "take it", ("enter",))]
    if place.scrolls:
        shown.append(Hint("↑ ↓", "move", ("up", "down")))
    return [*shown, Hint("Esc", "close", ("escape",)), Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))]


def _leave(keys: Keymap, place: KeyHolder) -> Hint:
    """The key that quits: its letter where no step back comes first, else the key that always quits."""
    steps_back = place.page or place.zoomed or place.opened or place.inner or place.name in (SIZING, NUMBER)
    letter = keys.first("quit")
    if steps_back or not letter:
        return Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))
    return Hint(letter, "quit", keys.keys["quit"][:1])


def _wanted(place: KeyHolder) -> _Own:
    """Commands that do something here, most important first, with what the key line calls them."""
    own = _own(place)
    if place.name == NUMBER:
        return own
    if place.name == SIZING:
        return _wanted_in_sizing(place)
    moves = _SCROLL if place.scrolls else ()
    if place.searching:
        return (_HELP, *_MATCHES, (("filter",), "find"), (("back",), "end search"), *moves)
    if place.page:
        return (_HELP, _pause(place), *_times(place), (("back",), "back"), *own, *moves)
    widen = _ALL_ROWS if place.narrowed else ()
    time = (_pause(place), *_times(place))
    return (_HELP, *widen, *time, *own, *_pace(place), *_panes(place), *moves, *_COMMON)


def _wanted_in_sizing(place: KeyHolder) -> _Own:
    """Commands of the sizing panel; while something is typed there, those alone that end it."""
    own = _own(place)
    if place.opened:
        return own
    to_panes = _TO_PANES if place.beside else ()
    return (_HELP, _CLOSE, *own, *to_panes)


def _own(place: KeyHolder) -> _Own:
    """Commands of the pane, page or panel alone."""
    name = place.name
    if place.fleet:
        name = _FLEET_NAMES.get((place.name, place.grouped), place.name)
    if place.opened:
        return _OPENED.get(name, ())
    own = []
    for names, does in _OWN.get(name, ()):
        if names == _TURN and place.rows_next:
            does = place.rows_next
        own.append((names, does))
    return tuple(own)


def _pause(place: KeyHolder) -> tuple[tuple[str, ...], str]:
    """The key that freezes the display, called by what it does now."""
    if not place.paused:
        return ("pause",), "pause"
    return ("pause",), "resume" if place.speed is None else "play"


def _hint(keys: Keymap, names: Sequence[str], does: str) -> Hint:
    """The first keys of some commands that share a hint."""
    shown = " ".join(filter(None, map(keys.first, names)))
    numbers = f"{keys.first('pane.gpus')}-{keys.first('pane.faults')}"
    if does == "pane" and len(numbers) == _PANES:
        shown = numbers
    presses = tuple(key for name in names for key in keys.keys[name][:1])
    return Hint(_ARROWS.get(shown, shown), does, presses)


def _times(place: KeyHolder) -> _Own:
    """Keys that move in time, where they do."""
    if not place.past:
        return ()
    times: list[tuple[tuple[str, ...], str]] = []
    if place.paused:
        keys = ("time.frame.back", "time.frame.forth") if place.name in _SIDEWAYS else ("left", "right")
        times.append((keys, "refresh" if place.fleet else "frame"))
    times.append((("time.back", "time.forth"), "5 min" if place.fleet else "10 s"))
    if place.speed is None:
        times += [*_CHANGES, *_LIVE]
    else:
        times += [(("slower", "faster"), f"×{place.speed:g}"), *_CHANGES, *_ENDS]
    return tuple(times)


def _pace(place: KeyHolder) -> _Own:
    """How often the GPUs are read; of a recording how fast it plays stands beside the keys of time."""
    if place.speed is None:
        return ((("slower", "faster"), f"every {place.every}"),)
    return ()


def _panes(place: KeyHolder) -> _Own:
    """Keys that go to other panes and show one alone; on a fleet's screen the key that asks all hosts anew."""
    if place.fleet:
        return _REFRESH
    return ((("pane.next",), "pane"), (("zoom",), "all panes" if place.zoomed else "zoom"))


class KeyLine(Board):
    """Hints from left to right as far as they fit; the last one is how to leave, and stands at the right. A notice
    takes their place while it stands."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._hints: tuple[Hint, ...] = ()
        self._places: list[tuple[int, Hint]] = []
        """The first cell of each hint that is shown."""
        self._explained = ""
        """The formula of the cell under the cell cursor; empty: there is none."""
        self.notice = ""
        """Text in place of the hints; empty: none."""
        self._urgent = False

    def show(self, hints: Sequence[Hint], explained: str = "") -> None:
        """Paint the hints, most important first, or in their place what the cell under the cell cursor means."""
        self._hints = tuple(hints)
        self._explained = explained
        self.update()

    def tell(self, text: str, *, urgent: bool = False) -> None:
        """Say something in place of the hints; an empty text brings them back."""
        self.notice = text
        self._urgent = urgent
        self.update()

    def lines_wanted(self, width: int) -> int:
        """Lines for the notice, or for the hints."""
        return max(1, len(self._notice_rows(width)))

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The notice, or one line of hints."""
        if self.notice:
            return self._notice_rows(width, height)
        if self._explained:
            return (((f" {cut(self._explained, width - 2)}", "accent"),),)
        if self._hints:
            return (self._hint_row(width),)
        return ()

    def _notice_rows(self, width: int, most: int = MOST_NOTICE) -> list[Row]:
        return wrap_line(self.notice, width, "warn" if self._urgent else "strong", most)

    def _hint_row(self, width: int) -> Row:
        *hints, leave = self._hints
        last = _hint_cells(leave)
        row: list[Piece] = []
        self._places = []
        used = 1
        for hint in hints:
            gap = 0 if used == 1 else 2
            if used + _hint_cells(hint) + 2 + last + 3 > width:
                break
            self._places.append((used + gap, hint))
            row += [(" " * (gap or 1), "text"), (hint.key, "accent"), (f" {hint.does}", "muted")]
            used += _hint_cells(hint) + gap
        self._places.append((width - last - 1, leave))
        row += [(" " * max(1, width - used - last - 1), "text"), (leave.key, "accent"), (f" {leave.does} ", "muted")]
        return tuple(row)

    def on_click(self, event: events.Click) -> None:
        """A click on a hint presses its key; of two keys the one that was hit, or the last on what they do."""
        event.stop()
        if self.notice or self._explained:
            return
        key = self._key_at(event.x)
        if key:
            self.app.post_message(pressed(key))

    def _key_at(self, x: int) -> str:
        """The key at a cell; empty where there is none."""
        for first, hint in self._places:
            if first <= x < first + _hint_cells(hint):
                is_first = x < first + (cells(hint.key) + 1) // 2
                return hint.presses[0] if is_first else hint.presses[-1]
        return ""


def _hint_cells(hint: Hint) -> int:
    return cells(hint.key) + 1 + cells(hint.does)
