"""The settings in effect as a config file: what `gpumon config` prints."""

from __future__ import annotations

import json
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
        if isinstance(value, dict):
            lines += ["", f"[{section.name}]", *_named(loaded, value, section.name)]
        elif isinstance(value, tuple):
            for entry in value:
                lines += ["", f"[[{section.name}]]{_origin(loaded, (section.name,))}", *_settings(loaded, entry, ())]
                lines += _tables_inside(loaded, entry, section.name)
        else:
            lines += ["", f"[{section.name}]", *_settings(loaded, value, (section.name,))]
            lines += _tables_inside(loaded, value, section.name)
    return "\n".join(lines) + "\n"


def _settings(loaded: Loaded, table: msgspec.Struct, path: tuple[str, ...]) -> list[str]:
    values = {field.name: getattr(table, field.name) for field in msgspec.structs.fields(table)}
    return [
        f"{name} = {toml(value)}{_origin(loaded, (*path, name)) if path else ''}"
        for name, value in values.items()
        if value is not None and not isinstance(value, dict)
    ]


def _tables_inside(loaded: Loaded, table: msgspec.Struct, section: str) -> list[str]:
    lines = []
    for field in msgspec.structs.fields(table):
        if isinstance(named := getattr(table, field.name), dict):
            lines += ["", f"[{section}.{field.name}]", *_named(loaded, named, section, field.name)]
    return lines


def _named(loaded: Loaded, table: dict[str, Any], *section: str) -> list[str]:
    return [f"{toml(name)} = {toml(value)}{_origin(loaded, (*section, name))}" for name, value in table.items()]


def _origin(loaded: Loaded, path: tuple[str, ...]) -> str:
    origin = loaded.origins.get(dotted(path), "")
    return f"  # {origin}" if origin else ""


def toml(value: Any) -> str:
    """A value as TOML writes it: JSON's forms are TOML's for these types, but for U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
