"""The settings in effect as a config file: what `gpumon config` prints."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gpumon.config.errors import dotted
from gpumon.config.load import Loaded
from gpumon.readings.text import clean


def effective_toml(loaded: Loaded) -> str:
    """Every setting in effect as TOML, with who set it behind those that are no default.

    It holds no secret: the config only names where keys, passwords and secret URLs are.
    """
    file = clean(loaded.file, 1000) if loaded.file else "none"
    lines = [f"# config file: {file}"]
    for section in msgspec.structs.fields(loaded.config):
        value = getattr(loaded.config, section.name)
        if isinstance(value, tuple):
            for entry in value:
                head = f"[[{section.name}]]{_origin(loaded, (section.name,))}"
                lines += _table_lines(loaded, head, msgspec.structs.asdict(entry), (section.name,), with_origins=False)
        else:
            table = value if isinstance(value, dict) else msgspec.structs.asdict(value)
            lines += _table_lines(loaded, f"[{section.name}]", table, (section.name,))
    return "\n".join(lines) + "\n"


def _table_lines(
    loaded: Loaded, head: str, table: dict[str, Any], path: tuple[str, ...], *, with_origins: bool = True
) -> list[str]:
    """The lines of a table and those inside it; without origins for an entry of an array, which has one at its head."""
    lines = ["", head]
    inside = []
    for name, value in table.items():
        if isinstance(value, dict):
            inner_path = (*path, name)
            inner_head = f"[{'.'.join(inner_path)}]"  # unquoted: names of tables are those of fields
            inside += _table_lines(loaded, inner_head, value, inner_path, with_origins=with_origins)
        elif value is not None:
            key = name if re.fullmatch("[a-z0-9_]+", name) else toml(name)
            origin = _origin(loaded, (*path, name)) if with_origins else ""
            lines.append(f"{key} = {toml(value)}{origin}")
    return lines + inside


def _origin(loaded: Loaded, path: tuple[str, ...]) -> str:
    """Who set a setting, as a comment behind it; empty for a default."""
    origin = loaded.origins.get(dotted(path), "")
    if origin:
        return f"  # {origin}"
    return ""


def toml(value: Any) -> str:
    """A value as TOML writes it: JSON's forms are TOML's for these types, but for U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
