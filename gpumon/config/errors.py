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
"""Errors of one file that are printed; further ones are not looked for."""
_LONGEST_SHOWN: Final = 80
"""Characters of a key or a value in an error."""
_MOST_ITEMS: Final = 8
"""Items of a list in an error."""
_MOST_BITS: Final = 200
"""Python refuses to print whole numbers of thousands of digits."""


class ConfigError(Exception):
    """A setting, file or option that gpumon refuses: `str()` is one line for the user, the exit code is 2.

    `lines` are that one and those of what else is wrong in the same file.
    """

    def __init__(self, text: str, others: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = (text, *others)


class Refused(Exception):  # noqa: N818 - travels inside the loader, which turns it into a ConfigError
    """One value that does not fit the schema. `value` is HIDDEN_VALUE where it may be a secret or is not there.

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


def why_of_file(failure: OSError | ValueError) -> str:
    """Why a file could not be opened, in the words of the system. ValueError: a NUL is in its name."""
    return getattr(failure, "strerror", None) or "is no file name"


def error_of_value(where: str, refused: Refused, key: str = "") -> ConfigError:
    """The error for one refused value: `config.toml:3: general.interval_s = 0: must be ...`, or `--interval=0: ...`.

    `where` is `file:line`; without a `key` it is the variable or the option that gave the value.
    """
    setting = where
    equals = "="
    if key:
        setting = f"{where}: {key}"
        equals = " = "
    value = toml_value(refused.value)
    if not value:
        equals = ""
    return ConfigError(f"{setting}{equals}{value}: {refused.text}")


def dotted(path: KeyPath) -> str:
    """`("endpoint", 0, "url")` as `endpoint[0].url`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        name = without_secrets(part)
        if text:
            text += "."
        text += name
    return clean(text, _LONGEST_SHOWN)


def toml_value(value: object) -> str:
    """A value as the user wrote it in TOML, cut, without secrets and control characters; empty for HIDDEN_VALUE."""
    if value is HIDDEN_VALUE:
        return ""
    if isinstance(value, str):
        value = without_secrets(value)
    if isinstance(value, bool | str):
        import json

        return clean(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN)
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        items = ["[...]" if isinstance(item, list) else toml_value(item) for item in value[:_MOST_ITEMS]]
        return clean(f"[{', '.join(items)}]", _LONGEST_SHOWN)
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number of many digits"
    return clean(str(value), _LONGEST_SHOWN)
