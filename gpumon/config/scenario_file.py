"""A scenario of the sizing as a TOML file: read strictly, written so that it reads back as the very same scenario."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from gpumon.config.effective import toml
from gpumon.config.errors import ConfigError, Refused, why_of_file
from gpumon.config.load import MOST_CONFIG_BYTES, config_error, parse_toml, read_file, text_of_bytes
from gpumon.config.ownership import place_of_new
from gpumon.config.save import NotSavedError, new_file_beside, sync_folder
from gpumon.config.scenario_rules import SCENARIO_RULES
from gpumon.config.schema import Config
from gpumon.config.validate import validated
from gpumon.readings.text import clean
from gpumon.sizing.scenario import Scenario, Server

FILE_KIND: Final = "scenario of gpumon"
"""The kind of file that errors expect, where it is something else."""
_ONE_LINE_LISTS: Final = frozenset({"points", "prompt", "answer", "attention", "states"})
"""Fields that are lists of many small tables, each written on one line."""
_USUAL_GPUS_PER_SERVER: Final = 8
"""GPUs of a server whose type is set, but not its number."""
_HEAD: Final = "# A scenario of gpumon: `gpumon size FILE` answers it (docs/sizing-file.md).\n"


def read_scenario(path: str | Path) -> Scenario:
    """The scenario in a file. Raises ConfigError: one line with file, line, key, value and what is allowed. Blocks."""
    text = read_file(Path(path), must_exist=True, what=FILE_KIND, from_anybody=True)
    assert text is not None  # as it must exist
    return parse_scenario(text, str(path))


def scenario_from_stream(stream: BinaryIO, name: str) -> Scenario:
    """The scenario in a stream such as standard input; `name` is what errors call it. Raises ConfigError. Blocks."""
    return parse_scenario(text_of_bytes(stream.read(MOST_CONFIG_BYTES + 1), name, FILE_KIND), name)


def parse_scenario(text: str, name: str = "scenario") -> Scenario:
    """The scenario in a TOML text; `name` is what errors call it. Raises ConfigError."""
    raw = parse_toml(text, name)
    try:
        scenario = validated(raw, Scenario, book=SCENARIO_RULES)
        _check_workloads(scenario)
    except Refused as refused:
        raise config_error(refused, name, text) from None
    return scenario


def scenario_toml(scenario: Scenario) -> str:
    """The scenario as TOML, defaults left out: `parse_scenario` gives back the same one, floats to the last bit.

    Raises ConfigError, in the words of `parse_scenario`, for what no file may hold, such as a target of 0.
    """
    fault = _unwritable_fault(scenario)
    if fault:
        raise ConfigError(f"scenario: {fault}")
    text = _HEAD + "".join(f"{line}\n" for line in _table_lines(scenario, ""))
    if parse_scenario(text) != scenario:
        raise ConfigError("scenario: does not read back as it was written")
    return text


def save_scenario(path: str | Path, scenario: Scenario, *, replace: bool) -> None:
    """Write the scenario into a file, in one step: whoever reads it sees the old file, the new one, or none.

    A file that is there stays as it is unless `replace`. Folders are made. Blocks. Raises NotSavedError, in one line.
    """
    try:
        text = scenario_toml(scenario)
    except ConfigError as refused:
        raise NotSavedError(str(refused)) from None
    save_text(path, text, replace=replace)


def save_text(path: str | Path, text: str, *, replace: bool) -> None:
    """Write a text into a file in one step, otherwise as `save_scenario` does. Raises NotSavedError."""
    shown = clean(str(path), 200)
    try:
        place = place_of_new(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_file_beside(place) as (descriptor, written):
            with open(descriptor, "wb", closefd=False) as stream:
                stream.write(text.encode("utf-8"))
                stream.flush()
                os.fsync(descriptor)
            if replace:
                written.replace(place)
            elif not _link_unless_taken(written, place, text):
                raise NotSavedError(f"{shown} is there already")
        sync_folder(place)
    except (OSError, ValueError) as failure:
        raise NotSavedError(f"{shown} cannot be written: {why_of_file(failure)}") from None


def _link_unless_taken(written: Path, place: Path, text: str) -> bool:
    """Give the new file its name if nothing has it; returns False where something has. Raises OSError."""
    try:
        os.link(written, place)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            stream = place.open("x", encoding="utf-8", newline="")
        except FileExistsError:
            return False
        with stream, contextlib.ExitStack() as undo:  # half a file is removed
            undo.callback(place.unlink)
            stream.write(text)
            stream.flush()
            undo.pop_all()
    return True


def _check_workloads(scenario: Scenario) -> None:
    """Refuse a scenario without workloads, or with two of one name. Raises Refused."""
    if not scenario.workload:
        raise Refused((), "needs at least one [[workload]], with model and target")
    first_numbers: dict[str, int] = {}
    for number, workload in enumerate(scenario.workload):
        first_number = first_numbers.setdefault(workload.label, number)
        if first_number != number:
            key = "name" if workload.name else "model"
            text = f"is the name of workload[{first_number}] as well: give each a name of its own"
            raise Refused(("workload", number, key), text, workload.label)


def _table_lines(struct: msgspec.Struct, header: str) -> Iterator[str]:
    """The lines of one table, then those of the tables in it."""
    inside: list[str] = []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        key = f"{header}.{field.name}".removeprefix(".")
        if not field.required and _is_default(value, field.default):
            continue
        if isinstance(value, msgspec.Struct):
            inside += ["", f"[{key}]", *_table_lines(value, key)]
        elif not isinstance(value, tuple) or all(isinstance(entry, str) for entry in value):
            yield f"{field.name} = {_value_text(value)}"
        elif field.name in _ONE_LINE_LISTS:
            yield f"{field.name} = ["
            for point in value:
                yield f"    {_inline_table(point)},"
            yield "]"
        else:
            for entry in value:
                inside += ["", f"[[{key}]]", *_table_lines(entry, key)]
    yield from inside


def _inline_table(struct: msgspec.Struct) -> str:
    """A table on one line: `{ running = 4.0, itl_s = 0.02 }`."""
    settings = []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or not _is_default(value, field.default):
            settings.append(f"{field.name} = {_value_text(value)}")
    return f"{{ {', '.join(settings)} }}"


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the default and may be left out. True == 1, but must be written to be refused."""
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def _value_text(value: Any) -> str:
    """One value as TOML writes it; of an Enum its value."""
    if isinstance(value, Enum):
        return toml(value.value)
    return toml(value)


def _unwritable_fault(value: Any, path: str = "") -> str:
    """Fault of a value that no TOML file can hold (NaN, infinity, a lone surrogate), at any depth; empty: none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} = {value}: must be a finite number"
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return f"{path}: holds half a character, which no file can hold"
    for part_path, part in _parts(value, path):
        fault = _unwritable_fault(part, part_path)
        if fault:
            return fault
    return ""


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of each part of a table or a list; nothing of a single value."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f"{path}.{name}".removeprefix("."), getattr(value, name)
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield f"{path}[{number}]", part


def scenario_of_settings(config: Config) -> Scenario:
    """The scenario before anything was seen: what `[sizing]` and `[goals]` of the config say, without workloads."""
    sizing = config.sizing
    goals = config.goals
    return Scenario(
        packing=sizing.packing,
        planning_factor=sizing.planning_factor,
        usable_memory_ratio=sizing.usable_memory_ratio,
        spare_instances=sizing.spare_instances,
        spare_servers=sizing.spare_servers,
        tpot_p95_ms=goals.tpot_p95_ms,
        itl_p95_ms=goals.itl_p95_ms,
        itl_mean_ms=goals.itl_mean_ms,
        ttft_p95_ms=goals.ttft_p95_ms,
        e2e_p95_ms=goals.e2e_p95_ms,
        server=servers_of_settings(config),
    )


def servers_of_settings(config: Config) -> tuple[Server, ...]:
    """The server that `[sizing]` of the config describes; none where it names no type of GPU."""
    sizing = config.sizing
    if not sizing.gpu:
        return ()
    return (Server(sizing.gpu, sizing.gpus or _USUAL_GPUS_PER_SERVER),)
