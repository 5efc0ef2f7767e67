"""The last line: the keys that do something here, from the table of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.config.keymap import Keymap
from gpumon.readings.format import cells
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board

Hint = tuple[str, str]
"""A key and what it does."""

_Own = tuple[tuple[tuple[str, ...], str], ...]
_HOSTS: Final[_Own] = (
    *((("open",), "host"), (("fleet.models",), "models"), (("filter",), "filter"), (("sort",), "sort")),
    (("sizing",), "sizing"),
)
_LIST: Final[_Own] = ((("open",), "detail"), (("filter",), "filter"), (("sort",), "sort"))
_SPAN: Final = (("span.shorter", "span.longer"), "time span")
_OWN: Final[dict[str, _Own]] = {
    "rows": _HOSTS,
    "models": ((("open",), "its hosts"), (("fleet.models",), "hosts"), *_HOSTS[2:]),
    "gpus": _LIST,
    "engines": _LIST,
    "processes": _LIST,
    "history": ((("open",), "one chart"), _SPAN),
    "triage": _LIST[:2],
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
_ARROWS: Final = {"Left Right": "← →"}
_PANES: Final = 3
"""Cells of `1-5`."""


_CHANGES: Final[_Own] = ((("time.next", "time.previous"), "events"),)
_LIVE: Final[_Own] = ((("time.live",), "live"),)


class Place(NamedTuple):
    """What the keys are for right now."""

    name: str
    """What is asked, else of the page, else of the pane with the focus."""
    page: bool = False
    zoomed: bool = False
    opened: bool = False
    """Whether one thing of the pane has it to itself."""
    paused: bool = False
    past: bool = False
    """Whether the keys of time move in what is kept."""
    speed: float | None = None
    """Of a recording: how fast it plays."""
    beside: bool = False
    """Whether the sizing panel leaves panes in sight."""
    scrolls: bool = False
    """Whether there is more than what is visible; of a question, whether it has a list."""
    every: str = "1s"
    """The interval."""
    fleet: bool = False
    models: bool = False
    narrowed: bool = False
    """Whether a filter hides hosts or models."""
    inner: bool = False
    """Whether a step back leads to another screen."""


def hints(keys: Keymap, place: Place) -> list[Hint]:
    """The keys that do something here, most important first, and at last how to leave."""
    if place.name == ASKED:
        move = [("↑ ↓", "move")] if place.scrolls else []
        return [("Enter", "take it"), *move, ("Esc", "close"), ("ctrl+c", "quit")]
    name = "models" if place.name == "rows" and place.models else place.name
    own = (_OPENED if place.opened else _OWN).get(name, ())
    moves: _Own = ((("up", "down"), "scroll"),) if place.scrolls else ()
    common: _Own = ((("settings",), "settings"), (("palette",), "commands"), (("save",), "save"))
    frozen = "play" if place.speed is not None else "resume"
    wanted: _Own = ((("help",), "help"), (("pause",), frozen if place.paused else "pause"), *_times(place))
    if place.narrowed and not place.page:
        wanted = (wanted[0], (("back",), "all rows"), *wanted[1:])
    if place.name == SIZING:
        out: _Own = ((("pane.next",), "panes"), (("sizing",), "close"))
        wanted = own if place.opened else (*wanted[:1], *out[1:], *own, *(out[:1] if place.beside else ()))
    elif place.name == NUMBER:
        wanted = own
    elif place.page:
        wanted = (*wanted, (("back",), "back"), *own, *moves)
    else:
        panes = ((("redraw",), "refresh"),) if place.fleet else _panes(place)
        wanted = (*wanted, *own, *_pace(place), *panes, *moves, *common)
    said = [(" ".join(filter(None, map(keys.first, names))), does) for names, does in wanted]
    numbers = f"{keys.first('pane.gpus')}-{keys.first('pane.faults')}"
    said = [(_ARROWS.get(key, key), does) for key, does in said]
    said = [(numbers if does == "pane" and len(numbers) == _PANES else key, does) for key, does in said]
    steps_back = place.page or place.zoomed or place.opened or place.inner or place.name in (SIZING, NUMBER)
    leave = "ctrl+c" if steps_back else keys.first("quit")
    return [hint for hint in said if hint[0]] + [(leave or "ctrl+c", "quit")]


def _times(place: Place) -> _Own:
    """Keys that move in time, where they do."""
    if not place.past:
        return ()
    keys = ("time.frame.back", "time.frame.forth") if place.name == "detail" else ("left", "right")
    frames: _Own = ((keys, "refresh" if place.fleet else "frame"),)
    jumps: _Own = ((("time.back", "time.forth"), "5 min" if place.fleet else "10 s"),)
    speed: _Own = () if place.speed is None else ((("slower", "faster"), f"×{place.speed:g}"),)
    ends: _Own = _LIVE if place.speed is None else ((("time.oldest", "time.live"), "first, last"),)
    return (*(frames if place.paused else ()), *jumps, *speed, *_CHANGES, *ends)


def _pace(place: Place) -> _Own:
    """How often the GPUs are read; of a recording how fast it plays stands beside the keys of time."""
    return ((("slower", "faster"), f"every {place.every}"),) if place.speed is None else ()


def _panes(place: Place) -> _Own:
    return ((("pane.next",), "pane"), (("zoom",), "all panes" if place.zoomed else "zoom"))


class KeyLine(Board):
    """Hints from left to right as far as they fit; the last one is how to leave, and stands at the right."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._hints: tuple[Hint, ...] = ()

    def show(self, hints: Sequence[Hint]) -> None:
        """Paint the hints, most important first."""
        self._hints = tuple(hints)
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """One line."""
        if not self._hints:
            return ()
        *hints, leave = self._hints
        last = _size(leave)
        row: list[Piece] = []
        used = 1
        for hint in hints:
            if used + _size(hint) + 2 + last + 3 > width:
                break
            row += [(" " if used == 1 else "  ", "text"), (hint[0], "accent"), (f" {hint[1]}", "muted")]
            used += _size(hint) + (0 if used == 1 else 2)
        row += [(" " * max(1, width - used - last - 1), "text"), (leave[0], "accent"), (f" {leave[1]} ", "muted")]
        return (tuple(row),)


def _size(hint: Hint) -> int:
    return cells(hint[0]) + 1 + cells(hint[1])
