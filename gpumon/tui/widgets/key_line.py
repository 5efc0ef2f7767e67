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


class KeyGroup(NamedTuple):
    """Commands that share a hint."""

    does: str
    """Their text on the key line."""
    commands: tuple[str, ...]
    """Their ids: one, or two of which one goes back and the other forth."""


KeyGroups = tuple[KeyGroup, ...]


def _keys(does: str, *commands: str) -> KeyGroup:
    """The commands that share a hint."""
    return KeyGroup(does, commands)


_TURN_ROWS: Final = ("fleet.models",)
"""Its key is called by the rows that it shows next."""
_HOSTS: Final = (
    _keys("host", "open"),
    _keys("rows", *_TURN_ROWS),
    _keys("filter", "filter"),
    _keys("sort", "sort"),
    _keys("sizing", "sizing"),
    _keys("wall of GPUs", "zoom"),
)
_GROUPS: Final = (_keys("its hosts", "open"), *_HOSTS[1:])
_FLEET_WALL: Final = (
    _keys("its page", "open"),
    _keys("figure", "wall.figure"),
    _keys("hosts", "zoom"),
    _keys("filter", "filter"),
    _keys("sizing", "sizing"),
)
_LIST: Final = (_keys("detail", "open"), _keys("filter", "filter"), _keys("sort", "sort"))
_SPAN: Final = _keys("time span", "span.shorter", "span.longer")
_OWN: Final[dict[str, KeyGroups]] = {
    "rows": _HOSTS,
    "groups": _GROUPS,
    "gpus": _LIST,
    "fleet wall": _FLEET_WALL,
    "wall": (_keys("detail", "open"), _keys("figure", "wall.figure"), _keys("rows", "wall"), *_LIST[1:]),
    "engines": (*_LIST, _keys("log", "log"), _keys("requests", "requests")),
    "processes": _LIST,
    "history": (_keys("one chart", "open"), _SPAN, _keys("roofline", "roofline")),
    "narrow history": (_keys("one chart", "open"), _SPAN),
    "triage": (*_LIST[:2], _keys("log", "log")),
    "compare": (_keys("other thing", "left", "right"), _keys("again", "compare")),
    "log": (_keys("errors", "log.error"), _keys("follow", "log.follow"), _keys("find", "filter")),
    "requests": (_keys("errors first, by time", "requests.errors"), _keys("find", "filter")),
    "settings": (_keys("change", "open"),),
    "number": (_keys("type", "open"), _keys("to the rows", "back"), _keys("on", "up", "down")),
    "sizing": (
        _keys("fields", "open"),
        _keys("double", "sizing.double"),
        _keys("GPU", "sizing.gpu"),
        _keys("view", "sizing.view"),
        _keys("add", "sizing.add"),
        _keys("remove", "sizing.remove"),
        _keys("undo, redo", "sizing.undo", "sizing.redo"),
        _keys("as it runs", "sizing.reset"),
        _keys("save, load", "sizing.save", "sizing.load"),
    ),
}
"""Pane, page or panel -> the commands that only do something there, the most important first."""

_FLEET_NAMES: Final = {("rows", True): "groups", ("wall", True): "fleet wall", ("wall", False): "fleet wall"}
"""Name of a fleet's pane, and whether its rows are of several hosts -> whose commands it has."""

_OPENED: Final[dict[str, KeyGroups]] = {
    "history": (_keys("all charts", "back"), _SPAN),
    "sizing": (_keys("take it", "open"), _keys("as it was", "back"), _keys("take it, and on", "up", "down")),
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
"""Names of keys that are shorter as a sign."""
_PANES: Final = 3
"""Cells of `1-5`."""


_HELP: Final = _keys("help", "help")
_CLOSE: Final = _keys("close", "sizing")
_TO_PANES: Final = _keys("panes", "pane.next")
_REFRESH: Final = _keys("refresh", "redraw")
_SCROLL: Final = _keys("scroll", "up", "down")
_COMMON: Final = (_keys("settings", "settings"), _keys("commands", "palette"), _keys("save", "save"))
_CHANGES: Final = _keys("events", "time.next", "time.previous")
_MATCHES: Final = _keys("match", "time.next", "time.previous")
_LIVE: Final = _keys("live", "time.live")
_ENDS: Final = _keys("first, last", "time.oldest", "time.live")
_ALL_ROWS: Final = _keys("all rows", "back")


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
    interval: str = "1s"
    """Time between two readings, as text."""
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
    for group in _groups_at(place):
        if any(map(keys.first, group.commands)):
            shown.append(_hint(keys, group))
    return [*shown, _leave_hint(keys, place)]


def _hints_of_question(place: KeyHolder) -> list[Hint]:
    """The keys while something is asked: they are fixed."""
    shown = [Hint("Enter", "take it", ("enter",))]
    if place.scrolls:
        shown.append(Hint("↑ ↓", "move", ("up", "down")))
    return [*shown, Hint("Esc", "close", ("escape",)), Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))]


def _leave_hint(keys: Keymap, place: KeyHolder) -> Hint:
    """The key that quits: its letter where no step back comes first, else the key that always quits."""
    step_comes_first = place.page or place.zoomed or place.opened or place.inner or place.name in (SIZING, NUMBER)
    letter = keys.first("quit")
    if step_comes_first or not letter:
        return Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))
    return Hint(letter, "quit", keys.keys["quit"][:1])


def _groups_at(place: KeyHolder) -> Sequence[KeyGroup]:
    """Commands that do something here, most important first."""
    own = _own_groups(place)
    if place.name == NUMBER:
        return own
    if place.name == SIZING:
        return _groups_in_sizing(place)
    scroll = (_SCROLL,) if place.scrolls else ()
    if place.searching:
        return (_HELP, _MATCHES, _keys("find", "filter"), _keys("end search", "back"), *scroll)
    if place.page:
        return (_HELP, _pause(place), *_groups_of_time(place), _keys("back", "back"), *own, *scroll)
    widen = (_ALL_ROWS,) if place.narrowed else ()
    time = (_pause(place), *_groups_of_time(place))
    return (_HELP, *widen, *time, *own, *_pace(place), *_groups_of_panes(place), *scroll, *_COMMON)


def _groups_in_sizing(place: KeyHolder) -> Sequence[KeyGroup]:
    """Commands of the sizing panel; while something is typed there, those alone that end it."""
    own = _own_groups(place)
    if place.opened:
        return own
    to_panes = (_TO_PANES,) if place.beside else ()
    return (_HELP, _CLOSE, *own, *to_panes)


def _own_groups(place: KeyHolder) -> Sequence[KeyGroup]:
    """Commands of the pane, page or panel alone."""
    name = place.name
    if place.fleet:
        name = _FLEET_NAMES.get((place.name, place.grouped), place.name)
    if place.opened:
        return _OPENED.get(name, ())
    own = []
    for group in _OWN.get(name, ()):
        if group.commands == _TURN_ROWS and place.rows_next:
            group = group._replace(does=place.rows_next)
        own.append(group)
    return own


def _pause(place: KeyHolder) -> KeyGroup:
    """The key that freezes the display, called by what it does now."""
    if not place.paused:
        return _keys("pause", "pause")
    return _keys("resume" if place.speed is None else "play", "pause")


def _hint(keys: Keymap, group: KeyGroup) -> Hint:
    """The hint of some commands: the first key of each."""
    shown = " ".join(filter(None, map(keys.first, group.commands)))
    numbers = f"{keys.first('pane.gpus')}-{keys.first('pane.faults')}"
    if group.does == "pane" and len(numbers) == _PANES:
        shown = numbers
    presses = tuple(key for command in group.commands for key in keys.keys[command][:1])
    return Hint(_ARROWS.get(shown, shown), group.does, presses)


def _groups_of_time(place: KeyHolder) -> Sequence[KeyGroup]:
    """Keys that move in time, where they do."""
    if not place.past:
        return ()
    groups: list[KeyGroup] = []
    if place.paused:
        commands = ("time.frame.back", "time.frame.forth") if place.name in _SIDEWAYS else ("left", "right")
        groups.append(KeyGroup("refresh" if place.fleet else "frame", commands))
    groups.append(_keys("5 min" if place.fleet else "10 s", "time.back", "time.forth"))
    if place.speed is None:
        groups += [_CHANGES, _LIVE]
    else:
        groups += [_keys(f"×{place.speed:g}", "slower", "faster"), _CHANGES, _ENDS]
    return groups


def _pace(place: KeyHolder) -> Sequence[KeyGroup]:
    """How often the GPUs are read; of a recording how fast it plays stands beside the keys of time."""
    if place.speed is None:
        return (_keys(f"every {place.interval}", "slower", "faster"),)
    return ()


def _groups_of_panes(place: KeyHolder) -> Sequence[KeyGroup]:
    """Keys that go to other panes and show one alone; on a fleet's screen the key that asks all hosts anew."""
    if place.fleet:
        return (_REFRESH,)
    return (_keys("pane", "pane.next"), _keys("all panes" if place.zoomed else "zoom", "zoom"))


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
    """Cells of a hint: the key, a blank, and what it does."""
    return cells(hint.key) + 1 + cells(hint.does)
