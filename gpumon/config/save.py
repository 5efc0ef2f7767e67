"""Writes settings into the user's config file and keeps everything else there: comments, order, spacing, other keys."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from gpumon.config.effective import toml
from gpumon.config.errors import ConfigError
from gpumon.config.lines import last_line_of
from gpumon.config.load import config_of, parse_toml, read_file
from gpumon.config.ownership import check_made, place_of_new
from gpumon.config.schema import Config
from gpumon.readings.text import clean

Changes = Mapping[tuple[str, str], object]
"""(section, key) -> value; None takes the key out of the file, so that its default holds."""

_TRIES: Final = 3
"""How often the work is done anew because someone else wrote the file meanwhile."""


class NotSavedError(Exception):
    """Nothing was written; `str()` is one line that says why. The file is as it was."""


def save(file: str, changes: Changes) -> Config:
    """Write `changes` into `file`, which is made where there is none, its folder too; returns what the file now says.

    The new text is written beside the file, loaded from there, held against the old one (only the changes may differ),
    and put in its place in one step: a reader sees the old file or the new one, and a crash leaves one of them. A
    symbolic link stays one; mode and owner stay. A value that equals the default is written like any other: it was
    chosen. Blocks as files do. Raises NotSavedError.
    """
    try:
        path = place_of_new(file)
        for _ in range(_TRIES):
            before = read_file(path, must_exist=False)
            if before is not None and not _is_writable(path):
                raise NotSavedError(f"{clean(file, 200)} is read-only")
            after, config = _apply_changes(before or "", changes, str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            if _replace_file(path, before, after):
                return config
    except ConfigError as refused:
        raise NotSavedError(str(refused)) from None
    except OSError as failure:
        raise NotSavedError(f"{clean(file, 200)} cannot be written: {failure.strerror}") from None
    raise NotSavedError(f"{clean(file, 200)} is being changed by someone else: try again")


def _is_writable(path: Path) -> bool:
    """Whether this process may write the file, by its effective user where the system can tell."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def snippet(changes: Changes) -> str:
    """The changes as lines to paste into a config file."""
    lines: list[str] = []
    sections: dict[str, list[str]] = {}
    for (section, key), value in changes.items():
        line = f"# take out: {key}" if value is None else f"{key_text(key)} = {toml(value)}"
        sections.setdefault(section, []).append(line)
    for section, settings in sections.items():
        lines += [f"[{section}]", *settings]
    return "\n".join(lines) + "\n"


def key_text(key: str) -> str:
    """A key as TOML writes it: in quotes where it has a dot."""
    if "." in key:
        return toml(key)
    return key


def _apply_changes(before: str, changes: Changes, path: str) -> tuple[str, Config]:
    """The new text, and the settings in it. Raises ConfigError where a value is not valid, NotSavedError otherwise."""
    try:
        raw = parse_toml(before, path)
        config_of(raw, {}, path, before)
    except ConfigError as refused:
        raise NotSavedError(f"the file is not valid now: {refused}") from None
    expected = deepcopy(raw)
    after = before
    try:
        for (section, key), value in changes.items():
            after = _with_setting(after, section, key, value)
            _set_key(expected, section, key, value)
        written = parse_toml(after, path)
    except Exception:  # a writer of TOML that does not manage somebody's file must not end the screen
        written = {}
    if _comparable(written) != _comparable(expected):
        raise NotSavedError(f"{path} is written in a way that gpumon cannot change safely")
    return after, config_of(written, {}, path, after)


def _with_setting(text: str, section: str, key: str, value: object) -> str:
    """The text with one setting changed, added or taken out."""
    import tomlkit

    document: Any = tomlkit.parse(text)
    table = document.get(section)
    if isinstance(value, tuple):
        value = list(value)
    if value is None:
        if table is not None and key in table:
            del table[key]
        return tomlkit.dumps(document)
    end = last_line_of(text, section)
    if table is not None and (key in table or not end):
        table[key] = value
        return tomlkit.dumps(document)
    return _with_line(text, section, end, f"{key_text(key)} = {toml(value)}")


def _with_line(text: str, section: str, end: int, setting: str) -> str:
    """The text with one setting more, behind line `end` of its section; 0: the section is added."""
    ending = "\r\n" if "\r\n" in text else "\n"
    line = f"{setting}{ending}"
    if not end:
        return f"{text}{_gap_after(text, ending)}[{section}]{ending}{line}"
    lines = text.split("\n")
    lines_behind = lines[end:] or [""]  # where the text ends without a line ending, the new line has one
    return "\n".join([*lines[:end], line.rstrip("\n"), *lines_behind])


def _gap_after(text: str, ending: str) -> str:
    """Line endings between a file's text and a new section: a blank line, unless the file is empty."""
    if not text:
        return ""
    if text.endswith("\n"):
        return ending
    return ending * 2


def _set_key(raw: dict[str, Any], section: str, key: str, value: object) -> None:
    """Make the change in parsed settings, as `_with_setting` makes it in the text."""
    if value is None:
        raw.get(section, {}).pop(key, None)
        return
    if isinstance(value, tuple):
        value = list(value)
    raw.setdefault(section, {})[key] = value


def _comparable(raw: Mapping[str, Any]) -> str:
    """A text that is equal for the same settings. Empty sections do not count; 1, 1.0 and true are not the same."""
    sections = {name: section for name, section in raw.items() if section != {}}
    return json.dumps(sections, sort_keys=True, default=repr)


def _replace_file(path: Path, before: str | None, after: str) -> bool:
    """Put the new text in the file's place; False where the file is another one by now. Raises OSError."""
    with new_file_beside(path) as (descriptor, written):
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(after.encode("utf-8"))
            stream.flush()
            os.fsync(descriptor)
        if read_file(written, must_exist=True) != after:
            raise NotSavedError("what was written could not be read back")
        if read_file(path, must_exist=False) != before:
            return False
        written.replace(path)
    sync_folder(path)
    return True


def sync_folder(path: Path) -> None:
    """Write the folder of a new file to disk, so that its name survives a crash, where the file system can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def new_file_beside(path: Path) -> Iterator[tuple[int, Path]]:
    """Descriptor and path of a new file beside `path`, with its mode and owner; it is removed unless it was moved.

    One that is in no file's place is the user's alone to write: a config that its group may write is refused.
    """
    new_path = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        if not path.exists():
            check_made(descriptor, new_path)
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        yield descriptor, new_path
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            new_path.unlink()
