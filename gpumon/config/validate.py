"""Holds raw TOML values to the schema, and says of each that does not fit what is allowed there."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from gpumon.config.checks import FieldRule
from gpumon.config.errors import HIDDEN_VALUE, MOST_REFUSED, KeyPath, Refused, dotted, join_faults
from gpumon.config.rules import CONFIG_RULES, SECRET_ADVICE, SECRET_NAMES, OpenTable, Rulebook
from gpumon.config.schema import Config

T = TypeVar("T", bound=msgspec.Struct)
_MOST_DEPTH: Final = 4
"""Parts of the longest path of a setting, `keys.time.minute.back`: what lies deeper is refused as a value."""
_NO_RULE: Final = FieldRule(lambda _: "")


def validated(raw: Mapping[str, Any], kind: type[T], path: KeyPath = (), book: Rulebook = CONFIG_RULES) -> T:
    """`raw` as the Struct `kind`. Raises Refused for the first key or value that does not fit, in the file's order,
    with the others behind it; what settings say together is looked at once each fits."""
    reader = _Reader(book)
    table = reader.read_table(raw, kind, path)
    if table is None:
        raise join_faults(reader.refused)
    return table


class _Reader:
    """Reads raw values, and goes on behind what does not fit: None stands for it, and `refused` says why."""

    def __init__(self, book: Rulebook) -> None:
        self.book = book
        self.refused: list[Refused] = []

    def refuse(self, path: KeyPath, text: str, value: object = HIDDEN_VALUE) -> None:
        """Note what is wrong with a value. Callers return its None as the value."""
        self.refused.append(Refused(path, text, value))

    def read_table(self, raw: Mapping[str, Any], kind: type[T], path: KeyPath) -> T | None:
        """The Struct of a table; None where something in it is refused."""
        count_before = len(self.refused)
        types = _types(kind, self.book)
        values = self.read_values(raw, kind, path)
        if types.keys() >= raw.keys():  # else an unknown key may be one that is needed, misspelt
            for name in _required_names(kind):
                if name not in raw:
                    self.refuse(path, f"needs {name}: {allowed_values(types[name])}")
        if len(self.refused) > count_before or len(self.refused) > MOST_REFUSED:  # then not all of it was read
            return None
        table = kind(**values)
        fault = self.fault_of_whole(table)
        if fault is None:
            return table
        key, text = fault
        refused: object = HIDDEN_VALUE if _rule(kind, key, self.book).hidden else raw.get(key, HIDDEN_VALUE)
        self.refuse((*path, key), text, refused)
        return None

    def read_values(self, raw: Mapping[str, Any], kind: type[T], path: KeyPath) -> dict[str, Any]:
        """The values of a table; those behind more than `MOST_REFUSED` refused ones are not read."""
        types = _types(kind, self.book)
        values = {}
        for key, value in raw.items():
            if len(self.refused) > MOST_REFUSED:
                break
            if key in types:
                values[key] = self.read_value(value, types[key], (*path, key), _rule(kind, key, self.book))
            else:
                self.refused.append(self.unknown_key(key, tuple(types), (*path, key)))
        return values

    def unknown_key(self, key: str, keys: tuple[str, ...], path: KeyPath) -> Refused:
        """The refusal of a key that no field has; if earlier versions had it, the text says where it stands now."""
        if path in self.book.moved:
            return Refused(path, self.book.moved[path])
        return _unknown_key_refusal(key, keys, path, self.book.root)

    def fault_of_whole(self, table: msgspec.Struct) -> tuple[str, str] | None:
        """The key and the text of the first fault of settings together: others may follow from it. None: no fault."""
        for rule in self.book.tables.get(type(table), ()):
            for fault in rule(table):
                return fault
        return None

    def read_value(self, value: Any, kind: Any, path: KeyPath, rule: FieldRule) -> Any:
        """The value of one key."""
        table = _table_of(kind)
        if table is not None:
            if isinstance(value, dict):
                return self.read_table(value, table, path)
            return self.refuse(path, f"must be a table: [{path[-1]}]", value)
        entry = entry_of(kind)
        if entry is not None:
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                return self.refuse(path, f"must be tables: [[{path[-1]}]]", value)
            return self.read_entries(value, entry, path, rule)
        if get_origin(kind) is dict:
            return self.read_open_table(value, self.book.open_tables[str(path[-1])], path)
        return self.read_scalar(value, kind, path, rule)

    def read_entries(self, items: list[Any], kind: type[T], path: KeyPath, rule: FieldRule) -> Any:
        """The Structs of an array of tables, after a check that they differ in what must be unique."""
        count_before = len(self.refused)
        tables = [self.read_table(item, kind, (*path, number)) for number, item in enumerate(items)]
        if len(self.refused) > count_before:
            return None
        for key, compared in self.book.unique.get(str(path[-1]), ()):
            first_numbers: dict[str, int] = {}
            for number, entry in enumerate(tables):
                value = getattr(entry, key)
                if not value:
                    continue
                first = first_numbers.setdefault(compared(value), number)
                if first != number:
                    return self.refuse((*path, number, key), f"is the same as in {dotted((*path, first))}", value)
        text = rule.problem(tables)
        if text:
            return self.refuse(path, text)
        return tuple(tables)

    def read_open_table(self, value: Any, table: OpenTable, path: KeyPath) -> Any:
        """A table whose keys the user chooses."""
        if not isinstance(value, dict):
            return self.refuse(path, f"must be a table: [{path[-1]}]", value)
        places: dict[str, KeyPath] = {}
        values: dict[str, Any] = {}
        for place, item in _leaves(value, path):
            name = ".".join(map(str, place[len(path) :]))
            if name in values:
                return self.refuse(place, "stands here twice")
            values[name] = self.read_open_value(name, item, table, place)
            if values[name] is None:
                return None
            places[name] = place
        clash = table.clash(values)
        if clash:
            name, text = clash
            return self.refuse(places[name], text, values[name])
        return values

    def read_open_value(self, name: str, item: Any, table: OpenTable, place: KeyPath) -> Any:
        """The value of one key of a table whose keys the user chooses."""
        if table.names and name not in table.names:
            self.refused.append(_unknown_key_refusal(name, table.names, place, self.book.root))
            return None
        name_fault = table.name_problem(name)
        if name_fault:
            return self.refuse(place, name_fault)
        value = self.read_scalar(item, table.kind, place, _NO_RULE)
        if value is None:
            return None
        fault = table.problem(name, value)
        if fault:
            return self.refuse(place, fault, value)
        return value

    def read_scalar(self, value: Any, kind: Any, path: KeyPath, rule: FieldRule) -> Any:
        """A number, a text, or a list of them."""
        shown = HIDDEN_VALUE if rule.hidden else value
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError
            converted = msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return self.refuse(path, f"must be {allowed_values(kind)}", shown)
        if isinstance(converted, str):
            fault = self.book.text_problem(converted)
            if fault:
                return self.refuse(path, fault, shown)
        converted = rule.read(converted)
        fault = rule.problem(converted)
        if fault:
            return self.refuse(path, fault, shown)
        return converted


def _required_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Names of the fields that have no default; msgspec has them in front of the others."""
    return kind.__struct_fields__[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)]


def _types(kind: type[msgspec.Struct], book: Rulebook) -> Mapping[str, Any]:
    """The type of each field, with the range that the book adds."""
    declared_types = _declared_types(kind)
    if book.types:
        return {name: book.types.get(f"{kind.__name__}.{name}", declared_types[name]) for name in declared_types}
    return declared_types


@cache
def _declared_types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The type of each field as the Struct declares it."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _rule(kind: type[msgspec.Struct], key: str, book: Rulebook) -> FieldRule:
    """The rule of a field: the book's, else the one that stands beside its type."""
    return book.fields.get(f"{kind.__name__}.{key}") or _declared_rules(kind).get(key, _NO_RULE)


@cache
def _declared_rules(kind: type[msgspec.Struct]) -> Mapping[str, FieldRule]:
    """The rules that stand beside the types of the fields, by name of the field."""
    rules = {}
    for name, annotation in _declared_types(kind).items():
        for part in (annotation, *get_args(annotation)):
            for meta in getattr(part, "__metadata__", ()):
                if isinstance(meta, msgspec.Meta) and meta.extra:
                    rules[name] = meta.extra["rule"]
    return rules


def with_setting(config: Config, section: str, key: str, value: object) -> Config:
    """`config` with one setting changed; the value None takes it out. Raises Refused for what does not fit."""
    return with_settings(config, {(section, key): value})


def with_settings(config: Config, changes: Mapping[tuple[str, str], object]) -> Config:
    """`config` with several settings, (section, key) -> value, changed at once: they have to fit together only.

    Raises Refused.
    """
    sections: dict[str, dict[str, object]] = {}
    for (section, key), value in changes.items():
        sections.setdefault(section, {})[key] = value
    tables = {}
    for section, values in sections.items():
        table = getattr(config, section)
        raw: dict[str, object] = msgspec.to_builtins(table)
        for key in values:
            raw.pop(key, None)
        raw |= values  # behind the others: faults come in the order of the changes
        tables[section] = validated(_as_toml_values(raw), type(table), (section,))
    return msgspec.structs.replace(config, **tables)


def _as_toml_values(raw: Mapping[str, object]) -> dict[str, object]:
    """Values as a parser of TOML would give them: lists for tuples, and no None."""
    values: dict[str, object] = {}
    for key, value in raw.items():
        if isinstance(value, tuple):
            values[key] = list(value)
        elif value is not None:
            values[key] = value
    return values


def _unknown_key_refusal(key: str, keys: tuple[str, ...], path: KeyPath, root: type[msgspec.Struct]) -> Refused:
    """The refusal of an unknown key, with the nearest of the known `keys`, or of those inside the tables of `root`."""
    if key.lower().replace("-", "_") in SECRET_NAMES:
        return Refused(path, SECRET_ADVICE)
    inside = _keys_inside_tables(root) if len(path) == 1 else {}
    nearest = difflib.get_close_matches(key.lower(), (*keys, *inside), n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known here: {', '.join(keys)}"
    if nearest and nearest[0] not in keys:
        table, header = inside[nearest[0]]
        hint = f"did you mean {table}.{nearest[0]} (in {header})?"
    return Refused(path, f"unknown key; {hint}")


def _keys_inside_tables(root: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
    """The keys inside the tables of a file -> name and header of the first table that has it."""
    tables: dict[str, tuple[str, str]] = {}
    for table in msgspec.structs.fields(root):
        entry = entry_of(table.type)
        kind = entry or table.type
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            header = f"[[{table.name}]]" if entry else f"[{table.name}]"
            for field in msgspec.structs.fields(kind):
                tables.setdefault(field.name, (table.name, header))
    return tables


def _leaves(table: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Settings of a table and of those inside it: TOML makes tables of a name with dots that has no quotes."""
    for key, value in table.items():
        if isinstance(value, dict) and len(path) < _MOST_DEPTH:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """The Struct of a table (TOML's `[name]`), also of one that may be left out, else None."""
    members = [kind]
    if get_origin(kind) in (Union, UnionType):
        members += get_args(kind)
    for member in members:
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            return member
    return None


def entry_of(kind: Any) -> type[msgspec.Struct] | None:
    """The Struct of a `tuple[Struct, ...]` (TOML's `[[name]]`), else None."""
    arguments = get_args(kind)
    if get_origin(kind) is tuple and isinstance(arguments[0], type) and issubclass(arguments[0], msgspec.Struct):
        return arguments[0]
    return None


def allowed_values(kind: Any) -> str:
    """Allowed values of a field, as the end of "must be ..."; e.g. `a number from 0.25 to 3600`."""
    return _describe(inspect.type_info(kind))


def _describe(info: Any) -> str:
    """Allowed values of a type, as msgspec describes it."""
    for node, describe in _DESCRIPTIONS.items():
        if isinstance(info, node):
            return describe(info)
    return "a value of another kind"


def _range_text(info: Any) -> str:
    """Range of a number with a blank in front, ` from 0.25 to 3600`; empty where it has none."""
    if info.ge is not None and info.le is not None:
        return f" from {info.ge:g} to {info.le:g}"
    if info.gt is not None and info.le is not None:
        return f" above {info.gt:g}, at most {info.le:g}"
    if info.ge is not None:
        return f" of at least {info.ge:g}"
    if info.gt is None:
        return ""
    return f" above {info.gt:g}"


def _union_text(info: Any) -> str:
    """Allowed values of a type that is one of several; that there may be none is left out."""
    kinds = [_describe(kind) for kind in info.types if not isinstance(kind, inspect.NoneType)]
    return " or ".join(kinds)


_DESCRIPTIONS: dict[type, Callable[[Any], str]] = {
    inspect.Metadata: lambda info: _describe(info.type),
    inspect.BoolType: lambda _: "true or false",
    inspect.IntType: lambda info: "a whole number" + _range_text(info),
    inspect.FloatType: lambda info: "a number" + _range_text(info),
    inspect.StrType: lambda _: "text in quotes",
    inspect.EnumType: lambda info: " or ".join(f'"{member.value}"' for member in info.cls),
    inspect.LiteralType: lambda info: " or ".join(f'"{value}"' for value in info.values),
    inspect.VarTupleType: lambda info: f"a list, each {_describe(info.item_type)}",
    inspect.UnionType: _union_text,
}
"""Kind of a type -> what says in words which values it has."""
