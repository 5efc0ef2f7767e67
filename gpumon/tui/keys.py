"""The table of keys as Textual's bindings."""

from __future__ import annotations

from typing import Final

from textual import events
from textual.binding import Binding, BindingType

from gpumon.config.keymap import COMMANDS, Keymap

ALWAYS: Final[list[BindingType]] = [
    Binding("ctrl+c", "quit", "quit", id="quit.always", priority=True),
    Binding("ctrl+z", "suspend_process", "to the shell", id="suspend.always", priority=True),
]
"""Keys that hold whatever is being typed, and cannot be mapped away."""
_NO_KEY = "unbound"
"""Key of a command without one: Textual keeps the usual one where it is told nothing."""
_CHARACTERS: Final = {"space": " ", "comma": ","}
"""Keys with a name that type a character."""


def _textual_name(key: str) -> str:
    """A key as Textual names it: `?` is `question_mark` there, `ctrl+_` is `ctrl+underscore`."""
    modifiers = ""
    last = key
    if key[-2:-1] == "+":
        modifiers = key[:-1]
        last = key[-1]
    binding = next(iter(Binding.make_bindings([Binding(last, "")])))
    return modifiers + binding.key


def pressed(key: str) -> events.Key:
    """The event of a key as the user writes it: `?`, `ctrl+l`, `space`."""
    character = _CHARACTERS.get(key)
    if len(key) == 1:
        character = key
    return events.Key(_textual_name(key), character)


def bindings() -> list[BindingType]:
    """Every command of the whole screen with its usual keys."""
    return [
        Binding(_textual_name(key), f"do('{command.id}')", command.does, id=command.id)
        for command in COMMANDS
        if not command.scope
        for key in command.keys
    ]


def keymap_of(keymap: Keymap) -> dict[str, str]:
    """The keys that the user changed by command, as `App.set_keymap` takes them.

    Textual goes through the whole keymap at each key, three times: of 70 commands that took 15 ms.
    """
    changed = (command.id for command in COMMANDS if not command.scope and keymap.keys[command.id] != command.keys)
    keys_of = {}
    for id_ in changed:
        keys_of[id_] = ",".join(map(_textual_name, keymap.keys[id_])) or _NO_KEY
    return keys_of


def keys_of_scope(keymap: Keymap, scope: str) -> dict[str, str]:
    """Keys of one scope, as Textual names them, to the ids of their commands."""
    scoped = {}
    for command in COMMANDS:
        if command.scope == scope:
            for key in keymap.keys[command.id]:
                scoped[_textual_name(key)] = command.id
    return scoped
