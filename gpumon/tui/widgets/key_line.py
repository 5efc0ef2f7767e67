"""The last line: the keys that do something here, from the table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from textual import events

from gpumon.config.keymap import ALWAYS_QUITS, Keymap
from gpumon.readings.format import cells, cut
from gpumon.tui.keys import key_event
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
"""Hints of a pane, page or panel, the most important first."""


def _keys(does: str, *commands: str) -> KeyGroup:
    """A hint: what the key of a command does, or those of two commands."""
    return KeyGroup(does, commands)


_TURN_ROWS: Final = ("fleet.models",)
"""Command of the hint that is called by the rows of a fleet which its key shows next."""
_JOIN: Final = _keys("join engines and GPUs", "fleet.join")
_HOSTS: Final = (
    _JOIN,
    _keys("host", "open"),
    _keys("rows", *_TURN_ROWS),
    _keys("filter", "filter"),
    _keys("sort", "sort"),
    _keys("sizing", "sizing"),
    _keys("wall of GPUs", "zoom"),
)
_GROUPS: Final = (_JOIN, _keys("its hosts", "open"), *_HOSTS[2:])
_FLEET_WALL: Final = (
    _keys("its page", "open"),
    _keys("figure", "wall.figure"),
    _keys("hosts", "zoom"),
    _keys("filter", "filter"),
    _keys("sizing", "sizing"),
)
_LIST: Final = (_keys("detail", "open"), _keys("filter", "filter"), _keys("sort", "sort"))
_OF_THING: Final = (
    _keys("copy", "copy"),
    _keys("acknowledge", "acknowledge"),
    _keys("log", "log"),
    _keys("requests", "requests"),
)
_UNFOLD: Final = ("detail.unfold",)
_SPAN: Final = _keys("time span", "span.shorter", "span.longer")
_GROUPS_OF: Final[dict[str, KeyGroups]] = {
    "rows": _HOSTS,
    "groups": _GROUPS,
    "gpus": _LIST,
    "fleet wall": _FLEET_WALL,
    "wall below": (*_FLEET_WALL[:2], _keys("wall alone", "zoom"), *_FLEET_WALL[3:]),
    "wall": (_keys("detail", "open"), _keys("figure", "wall.figure"), _keys("rows", "wall"), *_LIST[1:]),
    "engines": (*_LIST, _keys("log", "log"), _keys("requests", "requests")),
    "processes": _LIST,
    "history": (_keys("one chart", "open"), _SPAN, _keys("map", "roofline")),
    "picture": (_keys("choose", "up", "down"), _keys("map, or roofline", "open"), _keys("charts", "roofline")),
    "only picture": (_keys("choose", "up", "down"), _keys("charts", "roofline")),
    "triage": (_LIST[0], *_OF_THING[:3], _LIST[1]),
    "detail": (*_OF_THING, _keys("more", *_UNFOLD)),
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
"""Name of a fleet's pane, and whether its rows are models or owners -> key of its commands in `_GROUPS_OF`."""

_GROUPS_OPENED: Final[dict[str, KeyGroups]] = {
    "history": (_keys("all charts", "back"), _SPAN),
    "sizing": (_keys("use it", "open"), _keys("as before", "back"), _keys("use it, and on", "up", "down")),
}
"""Pane or panel -> the commands there while one chart has the pane to itself, or a value is being typed."""

SIZING: Final = "sizing"
"""Name of the sizing panel as the holder of the keys."""
NUMBER: Final = "number"
"""Name of a number among its fields as the holder of the keys: there letters are no commands."""
ASKED: Final = "asked"
"""Name of a question as the holder of the keys: all of them are for it, and fixed."""
_SIDEWAYS: Final = ("detail", "compare")
"""Pages on which the arrows go to another thing, and not through time."""
_ARROWS: Final = {"Left Right": "← →"}
"""Names of keys that are shorter as a sign."""
_PANE_NUMBERS_CELLS: Final = 3
"""Cells of `1-5`: with other keys the hint for the panes is that of the next one."""
_GAP: Final = 2
"""Cells between two hints."""
_BESIDE_LAST: Final = 3
"""Cells beside the last hint that stay blank: two before it, and one at the right edge."""
_HELP: Final = _keys("help", "help")
_CLOSE: Final = _keys("close", "sizing")
_TO_PANES: Final = _keys("panes", "pane.next")
_GO_TO_PANE: Final = _keys("pane", "pane.next")
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
    """Whether it is a page over the panes."""
    zoomed: bool = False
    """Whether one pane has the screen to itself."""
    unfolded: bool = False
    """Whether a page shows all of its figures."""
    opened: bool = False
    """Whether one chart has the pane to itself, or a value of the sizing panel is being typed."""
    paused: bool = False
    """Whether the display is frozen."""
    past: bool = False
    """Whether the keys of time move in what is kept."""
    speed: float | None = None
    """Playing speed of a recording; None elsewhere."""
    beside: bool = False
    """Whether the sizing panel leaves panes in sight."""
    scrolls: bool = False
    """Whether there is more than what is visible; of a question, whether it has a list."""
    interval: str = "1 s"
    """Time between two readings, as text."""
    fleet: bool = False
    """Whether it is on the screen of a fleet."""
    grouped: bool = False
    """Whether rows of a fleet are models or owners."""
    rows_next: str = ""
    """The rows of a fleet that the key shows next."""
    narrowed: bool = False
    """Whether a filter of a fleet's rows, or of all panes, may hide something."""
    searching: bool = False
    """Whether a search in a page is open."""
    inner: bool = False
    """Whether a step back leads to another screen."""
    idle: frozenset[str] = frozenset()
    """Commands of the page that have nothing to do there: a thing without a verdict has none to acknowledge."""


def hints_for(keys: Keymap, holder: KeyHolder) -> list[Hint]:
    """The keys that do something here, most important first, and at last how to leave."""
    if holder.name == ASKED:
        return _hints_of_question(holder)
    hints = [_hint(keys, group) for group in _groups_for(holder) if any(map(keys.first, group.commands))]
    return [*hints, _leave_hint(keys, holder)]


def _hints_of_question(holder: KeyHolder) -> list[Hint]:
    """The keys while something is asked: they are fixed."""
    hints = [Hint("Enter", "use it", ("enter",))]
    if holder.scrolls:
        hints.append(Hint("↑ ↓", "move", ("up", "down")))
    return [*hints, Hint("Esc", "close", ("escape",)), Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))]


def _leave_hint(keys: Keymap, holder: KeyHolder) -> Hint:
    """The key that quits: its letter where no step back comes first, else the key that always quits. While the display
    is paused the letter lets it go on."""
    step_comes_first = holder.page or holder.zoomed or holder.opened or holder.inner or holder.name in (SIZING, NUMBER)
    letter = keys.first("quit")
    if step_comes_first or not letter:
        return Hint(ALWAYS_QUITS, "quit", (ALWAYS_QUITS,))
    goes_on = holder.paused and holder.speed is None  # a recording that is paused ends
    return Hint(letter, "live" if goes_on else "quit", keys.keys["quit"][:1])


def _groups_for(holder: KeyHolder) -> Sequence[KeyGroup]:
    """Commands that do something here, most important first."""
    own = _own_groups(holder)
    if holder.name == NUMBER:
        return own
    if holder.name == SIZING:
        return _groups_in_sizing(holder)
    chooses = any(group.commands == _SCROLL.commands for group in own)
    scroll = (_SCROLL,) if holder.scrolls and not chooses else ()
    if holder.searching:
        return (_HELP, _MATCHES, _keys("find", "filter"), _keys("end search", "back"), *scroll)
    if holder.page:
        pause = _pause_group(holder)
        if holder.paused:
            return (*own, _keys("back", "back"), pause, *_groups_of_time(holder), _HELP, *scroll)
        return (*own, _keys("back", "back"), *_groups_of_time(holder), _HELP, pause, *scroll)
    widen = (_ALL_ROWS,) if holder.narrowed else ()
    time = (_pause_group(holder), *_groups_of_time(holder))
    # How fast a recording plays stands beside the keys of time.
    pace = (_keys(f"every {holder.interval}", "slower", "faster"),) if holder.speed is None else ()
    return (_HELP, *widen, *time, *own, *pace, *_groups_of_panes(holder), *scroll, *_COMMON)


def _groups_in_sizing(holder: KeyHolder) -> Sequence[KeyGroup]:
    """Commands of the sizing panel; while something is typed there, those alone that end it."""
    own = _own_groups(holder)
    if holder.opened:
        return own
    to_panes = (_TO_PANES,) if holder.beside else ()
    return (_HELP, _CLOSE, *own, *to_panes)


def _own_groups(holder: KeyHolder) -> Sequence[KeyGroup]:
    """Commands of the pane, page or panel alone."""
    name = _FLEET_NAMES.get((holder.name, holder.grouped), holder.name) if holder.fleet else holder.name
    if holder.opened:
        return _GROUPS_OPENED.get(name, ())
    own = []
    for group in _GROUPS_OF.get(name, ()):
        if group.commands == _TURN_ROWS and holder.rows_next:
            group = group._replace(does=holder.rows_next)
        if group.commands == _UNFOLD and holder.unfolded:
            group = group._replace(does="less")
        if holder.idle.isdisjoint(group.commands):
            own.append(group)
    return own


def own_commands(holder: KeyHolder) -> dict[str, str]:
    """Ids of the commands of the pane, page or panel alone, the most important first, and their texts there."""
    return {command: group.does for group in _own_groups(holder) for command in group.commands}


def _pause_group(holder: KeyHolder) -> KeyGroup:
    """The key that freezes the display, called by what it does now."""
    if not holder.paused:
        return _keys("pause", "pause")
    if holder.speed is None:
        return _keys("resume", "pause")
    return _keys("play", "pause")


def _hint(keys: Keymap, group: KeyGroup) -> Hint:
    """The hint of some commands: the first key of each."""
    key_text = " ".join(filter(None, map(keys.first, group.commands)))
    if group is _GO_TO_PANE:
        numbers = f"{keys.first('pane.gpus')}-{keys.first('pane.faults')}"
        if len(numbers) == _PANE_NUMBERS_CELLS:
            key_text = numbers
    presses = [key for command in group.commands for key in keys.keys[command][:1]]
    return Hint(_ARROWS.get(key_text, key_text), group.does, tuple(presses))


def _groups_of_time(holder: KeyHolder) -> Sequence[KeyGroup]:
    """Keys that move in time, where they do."""
    if not holder.past:
        return ()
    groups: list[KeyGroup] = []
    frame = "frame"
    jump = "10 s"
    if holder.fleet:
        frame = "refresh"
        jump = "5 min"
    if holder.paused and holder.name in _SIDEWAYS:
        groups.append(_keys(frame, "time.frame.back", "time.frame.forth"))
    elif holder.paused:
        groups.append(_keys(frame, "left", "right"))
    groups.append(_keys(jump, "time.back", "time.forth"))
    if holder.speed is None:
        groups += [_CHANGES, _LIVE]
    else:
        groups += [_keys(f"×{holder.speed:g}", "slower", "faster"), _CHANGES, _ENDS]
    return groups


def _groups_of_panes(holder: KeyHolder) -> Sequence[KeyGroup]:
    """Keys that go to other panes and show one alone; on a fleet's screen the key that asks all hosts anew."""
    if holder.fleet:
        return (_REFRESH,)
    if holder.zoomed:
        return (_GO_TO_PANE, _keys("all panes", "zoom"))
    return (_GO_TO_PANE, _keys("zoom", "zoom"))


class KeyLine(Board):
    """Hints from left to right as far as they fit; the last one is how to leave, and stands at the right. A notice
    takes their place while it stands."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._hints: tuple[Hint, ...] = ()
        self._places: list[tuple[int, Hint]] = []
        """The first cell of each hint that is shown."""
        self._formula = ""
        """The formula of the cell under the cell cursor; empty: there is none."""
        self.notice = ""
        """Text in place of the hints; empty: none."""
        self._urgent = False

    def show(self, hints: Sequence[Hint], formula: str = "") -> None:
        """Paint the hints, most important first, or in their place the formula of the cell under the cell cursor."""
        self._hints = tuple(hints)
        self._formula = formula
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
        if self._formula:
            return (((f" {cut(self._formula, width - 2)}", "accent"),),)
        if self._hints:
            return (self._hint_row(width),)
        return ()

    def _notice_rows(self, width: int, most: int = MOST_NOTICE) -> list[Row]:
        """The notice in at most `most` lines; none without a notice."""
        tone = "warn" if self._urgent else "strong"
        return wrap_line(self.notice, width, tone, most)

    def _hint_row(self, width: int) -> Row:
        """As many hints as fit from left to right, and the last one at the right edge."""
        *hints, leave = self._hints
        leave_cells = _hint_cells(leave)
        row: list[Piece] = []
        self._places = []
        used = 1  # the blank at the left edge
        for hint in hints:
            if used + _GAP + _hint_cells(hint) + _BESIDE_LAST + leave_cells > width:
                break
            if row:
                row.append((" " * _GAP, "text"))
                used += _GAP
            else:
                row.append((" ", "text"))
            self._places.append((used, hint))
            row += [(hint.key, "accent"), (f" {hint.does}", "muted")]
            used += _hint_cells(hint)
        self._places.append((width - leave_cells - 1, leave))
        blank = max(1, width - used - leave_cells - 1)
        row += [(" " * blank, "text"), (leave.key, "accent"), (f" {leave.does} ", "muted")]
        return tuple(row)

    def on_click(self, event: events.Click) -> None:
        """A click on a hint presses its key; of two keys the one that was hit, or the last on what they do."""
        event.stop()
        if self.notice or self._formula:
            return
        key = self._key_at(event.x)
        if key:
            self.app.post_message(key_event(key))

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
