"""The keys of the fleet's screen: those of the screen of one machine that mean something here, and what the key line
says of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.config.keymap import COMMANDS, Command, Keymap
from gpumon.readings.format import period
from gpumon.tui.widgets.key_line import DRAWER, Hint, Place
from gpumon.tui.widgets.key_line import hints as monitor_hints

MEANINGS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("up", "down"), "move the cursor"),
    (("page.up", "page.down"), "a page up, down"),
    (("top", "end"), "to the top, the end"),
    (("open",), "the host's screen; a model's hosts"),
    (("back",), "from a host, of a filter (never quits)"),
    (("fleet.models",), "a row per model, or per host"),
    (("filter",), "filter the rows"),
    (("sort",), "sort the rows"),
    (("sizing",), "sizing, for the whole fleet"),
    (("pane.next", "pane.previous"), "between sizing panel and table"),
    (("pause",), "freeze the display"),
    (("left", "right", "time.frame.back", "time.frame.forth"), "frozen: one refresh back, forth"),
    (("time.back", "time.forth"), "freeze, and 5 minutes back; forth"),
    (("time.minute.back", "time.minute.forth"), "freeze, and an hour back; forth"),
    (("time.previous", "time.next"), "what happened on the row's host"),
    (("time.oldest",), "top; frozen: the oldest moment"),
    (("time.live",), "end; frozen: live again"),
    (("faster", "slower"), "ask more, less often"),
    (("redraw",), "ask now, redraw"),
    (("settings", "palette"), "settings, all commands by name"),
    (("save",), "write an incident bundle"),
    (("help",), "help"),
    (("suspend",), "to the shell (fg: back)"),
    (("quit",), "quit (ctrl+c too)"),
)
"""Commands and what they do here, in the order of the help."""

_SAYS_WHY: Final = frozenset({"zoom"})
"""Commands that only say why they do nothing here."""
IDS: Final = _SAYS_WHY | {name for names, _ in MEANINGS for name in names if not name.startswith("fleet.")}
"""Commands of the whole screen that are answered here."""
_HERE: Final = {
    "open": "the host; a model's hosts",
    "pane.next": "sizing panel, or table",
    "pane.previous": "sizing panel, or table",
    "left": "back: value, refresh",
    "right": "next: value, refresh",
    "time.frame.back": "frozen: one refresh back",
    "time.frame.forth": "frozen: one refresh forth",
    "time.back": "freeze, and 5 minutes back",
    "time.forth": "frozen: 5 minutes forth",
    "time.minute.back": "freeze, and an hour back",
    "time.minute.forth": "frozen: an hour forth",
    "faster": "ask more often",
    "slower": "ask less often",
    "redraw": "ask now, redraw",
}
"""What commands do here, where that is not what they do on the screen of one machine."""
OFFERED: Final[tuple[Command, ...]] = tuple(
    command._replace(does=_HERE.get(command.id, command.does))
    for command in COMMANDS
    if any(command.id in names for names, _ in MEANINGS)
)
"""Commands that do something here, with what they do here."""


class FleetPlace(NamedTuple):
    """What the keys are for right now."""

    drawer: bool = False
    panel: str = ""
    """What the keys of the sizing panel are for; empty where it has none."""
    beside: bool = False
    """Whether that panel leaves the table in sight."""
    editing: bool = False
    """Whether a value of the sizing panel is being typed."""
    page: str = ""
    """The page that is shown; empty: none."""
    models: bool = False
    paused: bool = False
    narrowed: bool = False
    """Whether there is a filter to go back from."""
    scrolls: bool = False
    every_s: float = 0.0


def hints(keys: Keymap, place: FleetPlace) -> list[Hint]:
    """The keys that do something here, most important first, and at last how to leave."""
    if place.drawer:
        return monitor_hints(keys, Place(DRAWER, scrolls=place.scrolls))
    if place.panel:
        return monitor_hints(keys, Place(place.panel, opened=place.editing, beside=place.beside))
    wanted: list[tuple[tuple[str, ...], str]] = [(("help",), "help")]
    if place.page:
        wanted.append((("back",), "back"))
        wanted += [(("open",), "change"), (("save",), "save")] if place.page == "settings" else []
    else:
        wanted += [(("back",), "all rows")] if place.narrowed else []
        wanted += _times(place.models) if place.paused else []
        wanted += [
            (("open",), "its hosts" if place.models else "host"),
            (("fleet.models",), "hosts" if place.models else "models"),
            (("filter",), "filter"),
            (("sort",), "sort"),
            (("sizing",), "sizing"),
        ]
        wanted += [] if place.paused else [(("pause",), "freeze"), (("time.back",), "5 min back")]
        wanted += [(("faster", "slower"), f"every {period(place.every_s)}"), (("redraw",), "refresh")]
        wanted += [(("settings",), "settings"), (("palette",), "commands"), (("save",), "save")]
    said = [(" ".join(filter(None, map(keys.first, names))), does) for names, does in wanted]
    arrows = {"Left Right": "← →"}
    return [(arrows.get(key, key), does) for key, does in said if key] + [(keys.first("quit") or "ctrl+c", "quit")]


def _times(models: bool) -> list[tuple[tuple[str, ...], str]]:
    return [
        (("pause",), "live"),
        (("left", "right"), "refresh"),
        (("time.back", "time.forth"), "5 min"),
        (("time.minute.back", "time.minute.forth"), "1 h"),
        *([] if models else [(("time.next", "time.previous"), "its events")]),
        (("time.oldest",), "oldest"),
    ]
