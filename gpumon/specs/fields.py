"""Typed, bounded access to the fields of a JSON object from outside, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping

_SHOWN_CHARACTERS = 40
"""Characters of a value that an error quotes."""
LARGEST_NUMBER = 10_000_000
"""Largest number that is read where the caller has no bound of its own: vocabularies and widths are far below."""
_MOST_ITEMS = 100_000
"""Most items of a list: one that has an entry per layer is searched once per layer."""


class FieldError(ValueError):
    """Fault of one field of a file; `key` names file and field without the value."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(text)
        self.key = key


class RefusedError(FieldError):
    """Raised where the model's files show that no figures can be right; callers must not try another source."""


class Fields:
    """Reads a JSON object whose fields go by several names; `null` counts as absent.

    Looks in the first object first (a multimodal config nests its language model), then in the others.
    Every error is a FieldError that names the field and the value.
    """

    def __init__(self, *objects: Mapping[str, object], where: str = "config.json") -> None:
        self._objects = objects
        self._where = where

    def with_first(self, overrides: Mapping[str, object]) -> Fields:
        """These fields, with those of `overrides` that are not null in their place."""
        return Fields(overrides, *self._objects, where=self._where)

    def with_last(self, defaults: Mapping[str, object]) -> Fields:
        """These fields, with those of `defaults` that they lack."""
        return Fields(*self._objects, defaults, where=self._where)

    def raw(self, *names: str) -> object:
        """The first of these fields that is there, as JSON gave it; None where none is."""
        for name in names:
            for fields in self._objects:
                if fields.get(name) is not None:
                    return fields[name]
        return None

    def has(self, *names: str) -> bool:
        """Whether one of these fields is there."""
        return self.raw(*names) is not None

    def integer(self, *names: str, default: int | None = None, low: int = 1, high: int = LARGEST_NUMBER) -> int:
        """A whole number from `low` to `high`; ValueError where it is absent without a default, or out of range.

        A list of equal numbers, one per layer, is that number.
        """
        value = self.raw(*names)
        if value is None:
            if default is not None:
                return default
            raise self.error(names[0], "is missing")
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(
                self._present_name(names), f"{json_text(value)} is not a whole number from {low} to {high}"
            )
        return value

    def flag(self, *names: str, default: bool = False) -> bool:
        """A boolean; ValueError where it is something else."""
        value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(self._present_name(names), f"{json_text(value)} is not true or false")
        return value

    def text(self, *names: str) -> str:
        """A string; empty where absent; ValueError where it is something else."""
        value = self.raw(*names)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(self._present_name(names), f"{json_text(value)} is not a text")
        return value

    def items(self, *names: str) -> list[object] | None:
        """A list; None where absent; ValueError where it is something else, or absurdly long."""
        value = self.raw(*names)
        if value is None or (isinstance(value, list) and len(value) <= _MOST_ITEMS):
            return value
        if isinstance(value, list):
            raise self.error(self._present_name(names), f"has {len(value)} entries, more than {_MOST_ITEMS}")
        raise self.error(self._present_name(names), f"{json_text(value)} is not a list")

    def table(self, name: str) -> dict[str, object] | None:
        """A JSON object; None where absent; ValueError where it is something else."""
        value = self.raw(name)
        if value is None or isinstance(value, dict):
            return value
        raise self.error(name, f"{json_text(value)} is not an object")

    def tables_and_flags(self) -> list[tuple[str, object]]:
        """Name and value of all fields that hold an object or a boolean: the first of each name."""
        found: dict[str, object] = {}
        for fields in self._objects:
            for name, value in fields.items():
                if isinstance(value, (dict, bool)):
                    found.setdefault(name, value)
        return list(found.items())

    def error(self, name: str, problem: str) -> FieldError:
        """The error to raise about one field."""
        return FieldError(f"{self._where}: {name} {problem}", f"{self._where}: {name}")

    def refusal(self, name: str, problem: str) -> RefusedError:
        """The error to raise about one field where no other source can stand in."""
        return RefusedError(f"{self._where}: {name} {problem}", f"{self._where}: {name}")

    def _present_name(self, names: tuple[str, ...]) -> str:
        """The first of these names that is there."""
        return next(name for name in names if self.raw(name) is not None)


def json_text(value: object) -> str:
    """The value as JSON-like text, cut: it comes from outside."""
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return text[: _SHOWN_CHARACTERS - 1] + "…"
