"""The table of keys as Textual's bindings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from textual.binding import Binding, BindingType

from gpumon.config.keymap import COMMANDS, Command, Keymap

ALWAYS: Final[list[BindingType]] = [
    Binding("ctrl+c", "quit", "quit", id="quit.always", priority=True),
    Binding("ctrl+z", "screen.suspend", "to the shell", id="suspend.always", priority=True),
]
"""What holds whatever is being typed, and can not be mapped away."""
_NO_KEY = "unbound"
"""Of a command without a key: Textual keeps the usual one where it is told nothing."""


def named(key: str) -> str:
    """A key as Textual names it: `?` is `question_mark` there, `ctrl+_` is `ctrl+underscore`."""
    before, last = (key[:-1], key[-1]) if key[-2:-1] == "+" else ("", key)
    return before + next(iter(Binding.make_bindings([Binding(last, "")]))).key


def bindings(ids: Collection[str] = ()) -> list[BindingType]:
    """Every command of the whole screen with its usual keys, or only those with these ids."""
    wanted = [command for command in COMMANDS if (command.id in ids if ids else not command.scope)]
    return [_binding(command, key) for command in wanted for key in command.keys]


def keymap_of(keymap: Keymap) -> dict[str, str]:
    """The user's keys by command, as `App.set_keymap` takes them."""
    wanted = (command.id for command in COMMANDS if not command.scope)
    return {id_: ",".join(map(named, keymap.keys[id_])) or _NO_KEY for id_ in wanted}


def scoped(keymap: Keymap, scope: str) -> dict[str, str]:
    """Keys of one scope, as Textual names them, to what they call."""
    return {
        named(key): command.call for command in COMMANDS if command.scope == scope for key in keymap.keys[command.id]
    }


def _binding(command: Command, key: str) -> Binding:
    return Binding(named(key), command.call, command.does, id=command.id)
