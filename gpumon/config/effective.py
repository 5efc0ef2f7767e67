"""The settings in effect as a config file: what `gpumon config` prints."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gpumon.config.errors import dotted
from gpumon.config.load import Loaded
from gpumon.readings.text import clean


def effective(loaded: Loaded) -> str:
    """Every setting in effect as TOML, with who set it behind those that are no default. It holds no secret."""
    lines = [f"# config file: {clean(loaded.file, 1000) if loaded.file else 'none'}"]
    for section in msgspec.structs.fields(loaded.config):
        value = getattr(loaded.config, section.name)
        if isinstance(value, tuple):
            for entry in value:
                head = f"[[{section.name}]]{_origin(loaded, (section.name,))}"
                lines += _table(loaded, head, msgspec.structs.asdict(entry), (section.name,), told=False)
        else:
            if isinstance(value, dict):
                table = value
            else:
                table = msgspec.structs.asdict(value)
            lines += _table(loaded, f"[{section.name}]", table, (section.name,))
    return "\n".join(lines) + "\n"


def _table(loaded: Loaded, head: str, table: dict[str, Any], path: tuple[str, ...], *, told: bool = True) -> list[str]:
    """A table and those inside it. `told`: the origin of each setting is known."""
    lines = ["", head]
    inside = []
    for name, value in table.items():
        if isinstance(value, dict):
            inside += _table(loaded, f"[{'.'.join((*path, name))}]", value, (*path, name))
        elif value is not None:
            if re.fullmatch("[a-z0-9_]+", name):
                key = name
            else:
                key = toml(name)
            lines.append(f"{key} = {toml(value)}{_origin(loaded, (*path, name)) if told else ''}")
    return lines + inside


def _origin(loaded: Loaded, path: tuple[str, ...]) -> str:
    origin = loaded.origins.get(dotted(path), "")
    if origin:
        return f"  # {origin}"
    return ""


def toml(value: Any) -> str:
    """A value as TOML writes it: JSON's forms are TOML's for these types, but for U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
