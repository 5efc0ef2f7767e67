"""Holds raw TOML values to the schema, and says of each that does not fit what is allowed there."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from gpumon.config.errors import HIDDEN, MOST_REFUSED, Path, Refused, dotted, joined
from gpumon.config.rules import ANY, CONFIG, SECRET_ADVICE, SECRET_NAMES, FieldRule, OpenTable, Rulebook
from gpumon.config.schema import Config

T = TypeVar("T", bound=msgspec.Struct)
_MOST_DEPTH: Final = 4


def validated(raw: Mapping[str, Any], kind: type[T], path: Path = (), book: Rulebook = CONFIG) -> T:
    """`raw` as the Struct `kind`. Raises Refused for the first key or value that does not fit, in the file's order,
    with the others behind it; what settings say together is looked at once each fits."""
    types = _types(kind, book)
    values = {}
    refusals: list[Refused] = []
    for key, value in raw.items():
        if len(refusals) > MOST_REFUSED:
            break
        with _added_to(refusals):
            if key not in types:
                raise _unknown(key, tuple(types), (*path, key), book.root)
            values[key] = _value(value, types[key], (*path, key), book, book.rule(kind, key))
    if types.keys() >= raw.keys():  # else an unknown key may be one that is needed, misspelt
        needed = kind.__struct_fields__[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)]
        absent = (name for name in needed if name not in raw)
        refusals += [Refused(path, f"needs {name}: {described(types[name])}") for name in absent]
    if refusals:
        raise joined(refusals)
    table = kind(**values)
    for wrong, key, text in book.tables.get(kind.__name__, ()):
        if wrong(table):
            said = text if isinstance(text, str) else text(table)
            raise Refused((*path, key), said, HIDDEN if book.rule(kind, key).hidden else raw.get(key, HIDDEN))
    return table


def _types(kind: type[msgspec.Struct], book: Rulebook) -> Mapping[str, Any]:
    """The type of each field, with the range that the book adds."""
    own = _own_types(kind)
    return {name: book.types.get(f"{kind.__name__}.{name}", own[name]) for name in own} if book.types else own


@cache
def _own_types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def changed(config: Config, section: str, key: str, value: object) -> Config:
    """`config` with one setting changed; None is for what has no default. Raises Refused for what does not fit."""
    return all_changed(config, {(section, key): value})


def all_changed(config: Config, changes: Mapping[tuple[str, str], object]) -> Config:
    """`config` with settings ((section, key) -> value) changed at once: only together do they have to fit.

    Raises Refused.
    """
    tables = {}
    for section in dict.fromkeys(section for section, _ in changes):
        table = getattr(config, section)
        given = {key: value for (of, key), value in changes.items() if of == section}
        raw = {key: value for key, value in msgspec.to_builtins(table).items() if key not in given}
        raw.update({key: list(value) if isinstance(value, tuple) else value for key, value in given.items()})
        there = {key: value for key, value in raw.items() if value is not None}
        tables[section] = validated(there, type(table), (section,))
    return msgspec.structs.replace(config, **tables)


def _unknown(key: str, known: tuple[str, ...], path: Path, root: type[msgspec.Struct]) -> Refused:
    if key.lower().replace("-", "_") in SECRET_NAMES:
        return Refused(path, SECRET_ADVICE)
    inside = _places(root) if len(path) == 1 else {}
    nearest = difflib.get_close_matches(key.lower(), (*known, *inside), n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known here: {', '.join(known)}"
    if nearest and nearest[0] not in known:
        table, header = inside[nearest[0]]
        hint = f"did you mean {table}.{nearest[0]} (in {header})?"
    return Refused(path, f"unknown key; {hint}")


def _places(root: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
    """The keys inside the tables of a file, each with the first table that has it, and that table's header."""
    places: dict[str, tuple[str, str]] = {}
    for table in msgspec.structs.fields(root):
        entry = entry_of(table.type)
        kind = entry or table.type
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            header = f"[[{table.name}]]" if entry else f"[{table.name}]"
            for field in msgspec.structs.fields(kind):
                places.setdefault(field.name, (table.name, header))
    return places


def _value(value: Any, kind: Any, path: Path, book: Rulebook, rule: FieldRule) -> Any:
    if (table := _table_of(kind)) is not None:
        if not isinstance(value, dict):
            raise Refused(path, f"must be a table: [{path[-1]}]", value)
        return validated(value, table, path, book)
    if (entry := entry_of(kind)) is not None:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise Refused(path, f"must be tables: [[{path[-1]}]]", value)
        entries = _entries(value, entry, path, book)
        _must_differ(entries, path, book)
        if text := rule.problem(entries):
            raise Refused(path, text)
        return entries
    if get_origin(kind) is dict:
        return _open_table(value, book.open_tables[str(path[-1])], path, book)
    return _scalar(value, kind, path, book, rule)


def _entries(items: list[Any], kind: type[T], path: Path, book: Rulebook) -> tuple[T, ...]:
    entries: list[T] = []
    refusals: list[Refused] = []
    for at, item in enumerate(items):
        if len(refusals) > MOST_REFUSED:
            break
        with _added_to(refusals):
            entries.append(validated(item, kind, (*path, at), book))
    if refusals:
        raise joined(refusals)
    return tuple(entries)


@contextlib.contextmanager
def _added_to(refusals: list[Refused]) -> Iterator[None]:
    """Go on after a refusal: what comes behind it is looked at, too."""
    try:
        yield
    except Refused as refused:
        refusals.append(refused)


def _open_table(value: Any, table: OpenTable, path: Path, book: Rulebook) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(path, f"must be a table: [{path[-1]}]", value)
    places: dict[str, Path] = {}
    values: dict[str, Any] = {}
    for place, item in _leaves(value, path):
        name = ".".join(map(str, place[len(path) :]))
        if table.names and name not in table.names:
            raise _unknown(name, table.names, place, book.root)
        if text := table.named(name):
            raise Refused(place, text)
        if name in values:
            raise Refused(place, "stands here twice")
        values[name] = _scalar(item, table.kind, place, book, ANY)
        places[name] = place
        if text := table.problem(name, values[name]):
            raise Refused(place, text, values[name])
    if clash := table.clash(values):
        raise Refused(places[clash[0]], clash[1], values[clash[0]])
    return values


def _leaves(table: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """What stands in a table and in those inside it: TOML makes tables of a name with dots that has no quotes."""
    for key, value in table.items():
        if isinstance(value, dict) and len(path) < _MOST_DEPTH:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _must_differ(entries: tuple[msgspec.Struct, ...], path: Path, book: Rulebook) -> None:
    for key, compared in book.unique.get(str(path[-1]), ()):
        seen: dict[str, int] = {}
        for at, entry in enumerate(entries):
            value = getattr(entry, key)
            first = seen.setdefault(compared(value), at) if value else at
            if first != at:
                raise Refused((*path, at, key), f"is the same as in {dotted((*path, first))}", value)


def _scalar(value: Any, kind: Any, path: Path, book: Rulebook, rule: FieldRule) -> Any:
    shown = HIDDEN if rule.hidden else value
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise Refused(path, f"must be {described(kind)}", shown) from None
    if isinstance(converted, str) and (text := book.text(converted)):
        raise Refused(path, text, shown)
    converted = rule.read(converted)
    if text := rule.problem(converted):
        raise Refused(path, text, shown)
    return converted


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """The Struct of a table (TOML's `[name]`), also of one that may be left out, else None."""
    for each in (kind, *get_args(kind)) if get_origin(kind) in (Union, UnionType) else (kind,):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def entry_of(kind: Any) -> type[msgspec.Struct] | None:
    """The Struct of a `tuple[Struct, ...]` (TOML's `[[name]]`), else None."""
    arguments = get_args(kind)
    if get_origin(kind) is tuple and isinstance(arguments[0], type) and issubclass(arguments[0], msgspec.Struct):
        return arguments[0]
    return None


def described(kind: Any) -> str:
    """What a field allows, as the end of "must be ..."; e.g. `a number from 0.25 to 3600`."""
    return _described(inspect.type_info(kind))


def _described(info: Any) -> str:
    for node, describe in _DESCRIPTIONS.items():
        if isinstance(info, node):
            return describe(info)
    return "a value of another kind"


def _range(info: Any) -> str:
    if info.ge is not None and info.le is not None:
        return f" from {info.ge:g} to {info.le:g}"
    if info.gt is not None and info.le is not None:
        return f" above {info.gt:g}, at most {info.le:g}"
    return f" of at least {info.ge:g}" if info.ge is not None else f" above {info.gt:g}" if info.gt is not None else ""


def _union(info: Any) -> str:
    return " or ".join(_described(item) for item in info.types if not isinstance(item, inspect.NoneType))


_DESCRIPTIONS: dict[type, Callable[[Any], str]] = {
    inspect.BoolType: lambda _: "true or false",
    inspect.IntType: lambda info: "a whole number" + _range(info),
    inspect.FloatType: lambda info: "a number" + _range(info),
    inspect.StrType: lambda _: "text in quotes",
    inspect.EnumType: lambda info: " or ".join(f'"{member.value}"' for member in info.cls),
    inspect.LiteralType: lambda info: " or ".join(f'"{value}"' for value in info.values),
    inspect.VarTupleType: lambda info: f"a list, each {_described(info.item_type)}",
    inspect.UnionType: _union,
}
