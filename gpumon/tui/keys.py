"""The table of keys as Textual's bindings."""

from __future__ import annotations

from collections.abc import Collection

from textual.binding import Binding, BindingsMap
from textual.keys import _character_to_key

from gpumon.config.keymap import COMMANDS, Command, Keymap

QUIT = Binding("ctrl+c", "quit", "quit", id="quit.always", priority=True)
"""Quits whatever is being typed, and can not be mapped away."""


def named(key: str) -> str:
    """A key as Textual names it: `ctrl+_` is `ctrl+underscore` there; single characters it names itself."""
    return key[:-1] + _character_to_key(key[-1]) if key[-2:-1] == "+" and not key[-1].isalnum() else key


def bindings(keymap: Keymap, ids: Collection[str] = ()) -> BindingsMap:
    """Every command of the whole screen that has a key, or only those with these ids.

    Not `App.set_keymap`: keys that two commands exchange are a clash to it.
    """
    wanted = [command for command in COMMANDS if (command.id in ids if ids else not command.scope)]
    return BindingsMap([QUIT, *(_binding(command, key) for command in wanted for key in keymap.keys[command.id])])


def scoped(keymap: Keymap, scope: str) -> dict[str, str]:
    """Keys of one scope, as Textual names them, to what they call."""
    return {
        _character_to_key(key) if len(key) == 1 else named(key): command.call
        for command in COMMANDS
        if command.scope == scope
        for key in keymap.keys[command.id]
    }


def _binding(command: Command, key: str) -> Binding:
    """Only a key that is never part of a text goes before what is being typed."""
    first = command.anywhere and key.startswith("ctrl+")
    return Binding(named(key), command.call, command.does, id=command.id, priority=first)
