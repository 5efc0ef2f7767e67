"""The table of keys as Textual's bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual import events
from textual.binding import Binding, BindingType

from gpumon.config.keymap import COMMANDS, Keymap

ALWAYS: Final[Mapping[str, str]] = {"ctrl+c": "quit", "ctrl+z": "suspend_process"}
"""Key -> action, of keys that hold whatever is being typed, and cannot be mapped away."""
_NO_KEY = "unbound"
"""Key of a command without one: Textual keeps the usual one where it is told nothing."""
_CHARACTERS: Final = {"space": " ", "comma": ","}
"""Keys with a name that type a character."""


def _textual_name(key: str) -> str:
    """A key as Textual names it: `?` is `question_mark` there, `ctrl+_` is `ctrl+underscore`."""
    modifiers = ""
    character = key
    if key[-2:-1] == "+":  # a single character behind modifiers; names such as `ctrl+space` are Textual's own
        modifiers = key[:-1]
        character = key[-1]
    binding = next(iter(Binding.make_bindings([Binding(character, "")])))
    return modifiers + binding.key


def key_event(key: str) -> events.Key:
    """The event of a key as the user writes it: `?`, `ctrl+l`, `space`."""
    character = key if len(key) == 1 else _CHARACTERS.get(key)
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
    changed = {}
    for command in COMMANDS:
        keys = keymap.keys[command.id]
        if not command.scope and keys != command.keys:
            changed[command.id] = ",".join(map(_textual_name, keys)) or _NO_KEY
    return changed


def is_command(keymap: Keymap, scope: str, character: str) -> bool:
    """Whether a character is a key of a command of a scope, or of the whole screen."""
    return any(character in keymap.keys[command.id] for command in COMMANDS if command.scope in ("", scope))


def keys_of_scope(keymap: Keymap, scope: str) -> dict[str, str]:
    """Key as Textual names it -> id of its command, of the commands of one scope."""
    return {
        _textual_name(key): command.id
        for command in COMMANDS
        if command.scope == scope
        for key in keymap.keys[command.id]
    }
