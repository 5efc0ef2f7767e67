"""Text of a refused setting: its place, its value, and the allowed ones. One line each, never a secret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpumon.config.urls import without_secrets
from gpumon.readings.text import clean

KeyPath = tuple[str | int, ...]
"""Place of a setting: `("endpoint", 0, "url")`."""

HIDDEN_VALUE: Final = object()
"""Stands for a value that must not be printed, or that there is none."""

MOST_REFUSED: Final = 20
"""Errors of one file that are said: more are not looked for."""
_MOST_SHOWN = 80


class ConfigError(Exception):
    """A setting, file or option that gpumon refuses: `str()` is one line for the user, the exit code is 2.

    `lines` are that one and those of what else is wrong in the same file.
    """

    def __init__(self, text: str, others: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = (text, *others)


class Refused(Exception):  # noqa: N818 - travels inside the loader, which turns it into a ConfigError
    """One value that does not fit the schema. `value` is HIDDEN where it may be a secret or is not there.

    `others` are those behind it in the same file.
    """

    def __init__(self, path: KeyPath, text: str, value: object = HIDDEN_VALUE) -> None:
        super().__init__(text)
        self.path = path
        self.text = text
        self.value = value
        self.others: tuple[Refused, ...] = ()


def join_faults(faults: Iterable[Refused]) -> Refused:
    """The first fault, with the others behind it, up to one more than are printed."""
    flat: list[Refused] = []
    for refused in faults:
        flat += [refused, *refused.others]
    first, *others = flat
    first.others = tuple(others[:MOST_REFUSED])
    return first


def error(where: str, refused: Refused, named: str = "") -> ConfigError:
    """The error for one refused value. `where` is `file:line`, or a variable or an option (then `named` is empty)."""
    value = toml_value(refused.value)
    key, equals = (f"{where}: {named}", " = ") if named else (where, "=")
    return ConfigError(f"{key}{equals if value else ''}{value}: {refused.text}")


def dotted(path: KeyPath) -> str:
    """`("endpoint", 0, "url")` as `endpoint[0].url`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        name = without_secrets(part)
        text += f".{name}" if text else name
    return clean(text, _MOST_SHOWN)


def toml_value(value: object) -> str:
    """A value as the user wrote it in TOML, cut, without secrets and control characters; empty for HIDDEN."""
    if value is HIDDEN_VALUE:
        return ""
    if isinstance(value, str):
        value = without_secrets(value)
    if isinstance(value, bool | str):
        import json

        return clean(json.dumps(value, ensure_ascii=False), _MOST_SHOWN)
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        items = ("[...]" if isinstance(item, list) else toml_value(item) for item in value[:8])
        return clean(f"[{', '.join(items)}]", _MOST_SHOWN)
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of many digits"
    return clean(str(value), _MOST_SHOWN)
