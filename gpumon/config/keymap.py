"""Every key of the screen: what it does, its id, and how the user's own keys take its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpumon.config.urls import without_secrets
from gpumon.readings.text import clean

SAME: Final = ""
"""Meaning of a key on a fleet's screen: the same as on that of a machine."""


class Command(msgspec.Struct, frozen=True):
    """Something that a key does."""

    id: str
    """How `[keys]` in the config names it."""
    keys: tuple[str, ...]
    """As the user writes them: a character, or a name such as `f1`, `ctrl+l`, `pageup`."""
    does: str
    fleet: str | None = None
    """Its meaning on a fleet's screen; `SAME`: that of `does`; None: nothing."""
    scope: str = ""
    """Part of the screen where its keys come first; empty: everywhere. Each scope has keys of its own."""


COMMANDS: Final[tuple[Command, ...]] = (
    Command("help", ("?", "f1", "h"), "help", fleet=SAME),
    Command("quit", ("q", "f10"), "back, and at last quit", fleet=SAME),
    Command("pause", ("space", "p"), "freeze the display", fleet=SAME),
    Command("up", ("up", "k"), "up", fleet=SAME),
    Command("down", ("down", "j"), "down", fleet=SAME),
    Command("page.up", ("pageup",), "page up", fleet=SAME),
    Command("page.down", ("pagedown",), "page down", fleet=SAME),
    Command("top", ("g",), "to the top", fleet=SAME),
    Command("end", ("G",), "to the end", fleet=SAME),
    Command("open", ("enter",), "detail of the row", fleet="the host; a model's hosts"),
    Command("back", ("escape",), "back (never quits)", fleet=SAME),
    Command("filter", ("/", "f3"), "filter rows; search a page", fleet=SAME),
    Command("filter.all", ("\\",), "filter all panes"),
    Command("sort", ("o", "f6"), "sort the rows", fleet=SAME),
    Command("cell", ("i",), "why a cell: its formula"),
    Command("zoom", ("z",), "zoom the pane, and back", fleet="a wall of all GPUs, and back"),
    Command("wall", ("W",), "GPUs as tiles, or as rows"),
    Command("wall.figure", ("f",), "tiles by another figure", fleet=SAME),
    Command("roofline", ("R",), "map of GPUs; roofline"),
    Command("pane.next", ("tab",), "next pane", fleet="sizing panel, or table"),
    Command("pane.previous", ("shift+tab",), "previous pane", fleet="sizing panel, or table"),
    Command("pane.gpus", ("1",), "GPUs"),
    Command("pane.engines", ("2",), "engines"),
    Command("pane.history", ("3",), "history"),
    Command("pane.processes", ("4",), "processes"),
    Command("pane.faults", ("5", "t"), "triage: what limits, and why"),
    Command("span.shorter", ("<",), "shorter charts"),
    Command("span.longer", (">",), "longer charts"),
    Command("slower", ("+", "="), "read less often, as in btop", fleet="ask less often, as in btop"),
    Command("faster", ("-",), "read more often, as in btop", fleet="ask more often, as in btop"),
    Command("left", ("left",), "back: thing, value, columns", fleet="back: value, refresh, columns"),
    Command("right", ("right",), "next: thing, value, columns", fleet="next: value, refresh, columns"),
    Command("time.frame.back", ("comma",), "paused: one frame back", fleet="paused: one refresh back"),
    Command("time.frame.forth", (".",), "paused: one frame forth", fleet="paused: one refresh forth"),
    Command("time.back", ("[",), "pause, and 10 s back", fleet="pause, and 5 minutes back"),
    Command("time.forth", ("]",), "paused: 10 s forth", fleet="paused: 5 minutes forth"),
    Command("time.minute.back", ("{",), "pause, and a minute back", fleet="pause, and an hour back"),
    Command("time.minute.forth", ("}",), "paused: a minute forth", fleet="paused: an hour forth"),
    Command("time.previous", ("N",), "previous event; match", fleet="what happened before, on the row's host"),
    Command("time.next", ("n",), "next event; match", fleet="what happened next, on the row's host"),
    Command("time.oldest", ("home",), "top; paused: the oldest", fleet=SAME),
    Command("time.live", ("end",), "end; paused: live again", fleet=SAME),
    Command("redraw", ("r", "ctrl+l"), "read now, redraw", fleet="ask now, redraw"),
    Command("sizing", ("s",), "sizing: how many GPUs", fleet="sizing, for the whole fleet"),
    Command("settings", ("f2", "e"), "settings", fleet=SAME),
    Command("palette", (":", "ctrl+p"), "all commands; a time: 03:10", fleet=SAME),
    Command("save", ("w", "f12"), "write an incident bundle", fleet=SAME),
    Command("hide", ("H",), "hide an engine that ended"),
    Command("hide.none", (), "show hidden rows again"),
    Command("copy", ("c",), "copy a command of triage", fleet="copy a command of the row's verdict"),
    Command("acknowledge", ("a",), "acknowledge a verdict", fleet="maintenance: silence a host, a label"),
    Command("log", ("L",), "log of the engine"),
    Command("requests", ("F",), "requests in the engine's log"),
    Command("mark", ("M",), "mark this moment"),
    Command("compare", ("D",), "difference since the mark"),
    Command("suspend", ("ctrl+z",), "to the shell; fg comes back", fleet=SAME),
    Command("fleet.models", ("m",), "rows: hosts, models, owners", fleet=SAME, scope="fleet"),
    Command("fleet.free", ("C",), "what is free, and where", fleet=SAME, scope="fleet"),
    Command("fleet.join", ("J",), "engines to their GPUs: take the line", fleet=SAME, scope="fleet"),
    Command("detail.unfold", ("x",), "all figures with formulas; fold", scope="detail"),
    Command("log.follow", ("F",), "follow the log, or not", scope="log"),
    Command("log.error", ("e",), "first error of the log, next", scope="log"),
    Command("requests.errors", ("e",), "errors first, or by time", scope="requests"),
    *(
        Command(f"sizing.{name}", keys, does, fleet=SAME, scope="sizing")
        for name, keys, does in (
            ("more", ("+", "="), "a step more"),
            ("less", ("-",), "a step less"),
            ("double", ("d",), "double this target"),
            ("double.all", ("D",), "double all targets"),
            ("add", ("a",), "add a workload"),
            ("add.server", ("A",), "add a server type"),
            ("remove", ("x", "delete"), "remove, or look it up"),
            ("gpu", ("g",), "choose the GPU type"),
            ("tp", ("t",), "another TP, PP or DP"),
            ("precision", ("f",), "other weights: fp8, int4"),
            ("goal", ("i",), "another ITL goal"),
            ("goal.ttft", ("T",), "another TTFT goal"),
            ("goal.estimate", ("E",), "TTFT goal by estimate"),
            ("view", ("v",), "compare GPUs; pictures"),
            ("undo", ("u",), "undo"),
            ("redo", ("U", "ctrl+r"), "redo"),
            ("renew", ("r",), "take newer figures"),
            ("reset", ("R",), "reset to what runs now"),
            ("peak", ("P",), "plan for a recorded peak"),
            ("save", ("w",), "save as a file"),
            ("load", ("l",), "load a file"),
        )
    ),
)
"""All commands, in the order of the help."""

IDS: Final = tuple(command.id for command in COMMANDS)
NEEDED_COMMANDS: Final = frozenset(("help", "quit", "back"))
"""Commands without which there is no way on or out: they keep at least one key."""
KEPT_IN_SCOPES: Final = (
    *sorted(NEEDED_COMMANDS),
    *("up", "down", "left", "right", "open", "pane.next", "pane.previous", "sizing"),
)
"""Commands whose keys keep their meaning in every scope."""
_NUMBER_CHARACTERS: Final = frozenset("0123456789.,")
"""Characters that begin a number in the sizing panel, where numbers are typed."""
ALWAYS_QUITS: Final = "ctrl+c"
"""Key that quits, whatever the keys of the config are."""
KEY_NAMES: Final = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "enter", "escape", "space"),
    *("backspace", "delete", "insert", "comma"),
)
"""Keys that have a name; besides them f1 to f24 and every character."""
ALLOWED: Final = f"a character, f1 to f24, {', '.join(KEY_NAMES)}, or one of these after ctrl+, alt+ or shift+"
_SCOPES: Final = {command.id: command.scope for command in COMMANDS if command.scope}
"""Id of a command -> its scope; commands of the whole screen are not in it."""
_KEY: Final = re.compile(
    rf"(?P<modifiers>((ctrl|alt|shift)\+)*)(?:(?P<named>{'|'.join(KEY_NAMES)}|f[1-9]|f1[0-9]|f2[0-4])|(?P<character>.))"
)
"""A key as the config names it."""
_SENT_AS: Final = {"ctrl+h": "backspace", "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+[": "escape"}
"""Keys that most terminals cannot tell from another."""

_SHOWN_NAMES: Final = {
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "S-Tab",
    "enter": "Enter",
    "up": "↑",
    "down": "↓",
    "left": "Left",
    "right": "Right",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "comma": ",",
}
"""Names of keys as a person reads them. `Left` and `Right` are words: the line of keys shows the pair as `← →`."""


class Keymap:
    """The keys in effect: the defaults, and the user's own in their place."""

    def __init__(self, own_keys: Mapping[str, str] = MappingProxyType({})) -> None:
        """`own_keys`: id -> keys with commas between them, as `[keys]` has them, already validated."""
        self.keys: dict[str, tuple[str, ...]] = {command.id: command.keys for command in COMMANDS}
        self.keys.update({name: split_keys(keys) for name, keys in own_keys.items()})

    def shown(self, name: str) -> str:
        """All keys of a command as a person reads them: `? F1`."""
        return " ".join(map(shown_key, self.keys[name]))

    def holds(self, key: str) -> bool:
        """Whether a key does something on the whole screen."""
        for name, keys in self.keys.items():
            if name not in _SCOPES and key in keys:
                return True
        return False

    def first(self, name: str) -> str:
        """The first key of a command as a person reads it; empty where it has none."""
        keys = self.keys[name]
        if keys:
            return shown_key(keys[0])
        return ""


def split_keys(keys: str) -> tuple[str, ...]:
    """The keys in a text: `q, Ctrl+Q` holds `q` and `ctrl+q`.

    A single character stays as it is, the rest is lower case. A comma is `comma`.
    """
    names: dict[str, None] = {}
    for key in keys.split(","):
        name = key.strip()
        if len(name) > 1:
            name = name.lower()
        if name:
            names[name] = None
    return tuple(names)


def keys_problem(name: str, keys: str) -> str:
    """Fault of the keys given to the command `name`; empty: none."""
    names = split_keys(keys)
    if not names:
        if name in NEEDED_COMMANDS:
            return f"{name} needs at least one key"
        return ""
    for key in names:
        if _SCOPES.get(name) == "sizing" and key in _NUMBER_CHARACTERS:
            return f"{key} begins a number there"
    for key in names:
        fault = _key_problem(key)
        if fault:
            return fault
    return ""


def _key_problem(key: str) -> str:
    """Fault of one key as the user wrote it; empty: none."""
    if key == ALWAYS_QUITS:
        return f"{ALWAYS_QUITS} always quits and can do nothing else"
    if key in _SENT_AS:
        return f"{key} is what terminals send for {_SENT_AS[key]}: name that"
    parts = _KEY.fullmatch(key)
    if parts is None or (parts["character"] and not parts["character"].isprintable()):
        return f"{clean(without_secrets(key), 20)} is no key: {ALLOWED}"
    if parts["character"] and "shift+" in parts["modifiers"]:
        return f"{key}: write the character that it gives, such as G for shift+g"
    return ""


def find_clash(own_keys: Mapping[str, str]) -> tuple[str, str] | None:
    """A key that two commands would share once the user's `own_keys` hold: the command to blame, and why."""
    owners: dict[tuple[str, str], str] = {}
    keys = Keymap(own_keys).keys
    defaults = [name for name in keys if name not in own_keys]
    for name in (*defaults, *own_keys):  # the user's own come last, so that one of them is to blame
        for key in keys[name]:
            owner = _owner_after_claim(owners, name, key)
            if owner == name:
                continue
            default = ", by default: give that other keys here, too" if owner not in own_keys else ""
            return name, f"{key} is a key of {owner} as well{default}"
    return None


def _owner_after_claim(owners: dict[tuple[str, str], str], name: str, key: str) -> str:
    """Claim a key for a command in its scopes; returns the command that had it before, else the command itself.

    `owners`: (scope, key) -> command; the claim is added to it.
    """
    scopes = [_SCOPES.get(name, "")]
    if name in KEPT_IN_SCOPES:
        scopes += sorted({*_SCOPES.values()})
    for scope in scopes:
        owners.setdefault((scope, key), name)
    for scope in scopes:
        if owners[scope, key] != name:
            return owners[scope, key]
    return name


def shown_key(key: str) -> str:
    """One key as a person reads it."""
    if key in _SHOWN_NAMES:
        return _SHOWN_NAMES[key]
    if len(key) > 1 and key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return key
