"""Finds the config file, reads it, and lays environment and command line over it."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import tomli

from gpumon.config import urls
from gpumon.config.checks import host_server
from gpumon.config.environment import Override, from_environment
from gpumon.config.errors import MOST_REFUSED, ConfigError, KeyPath, Refused, dotted, error_of_value, why_of_file
from gpumon.config.opener import open_checked
from gpumon.config.ownership import is_named_pipe, owner_fault
from gpumon.config.schema import Config
from gpumon.config.validate import validated
from gpumon.readings.text import MOST_FAULT, clean

MOST_CONFIG_BYTES = 1 << 20
"""A config file larger than this is refused unread."""
PIPE_S: Final = 5.0
"""Longest wait for what is written into a pipe that is given as the config."""
NO_ORIGINS: Mapping[str, str] = MappingProxyType({})
"""For a file without settings from elsewhere."""


class Loaded(msgspec.Struct, frozen=True):
    """The settings of this run, the file they came from (empty: none), and who set what: dotted key -> origin."""

    config: Config
    file: str
    origins: dict[str, str]
    place: str = ""
    """File that settings are saved to, or looked for at; empty if the environment names no home."""


def load(file: str, environ: Mapping[str, str], overrides: Iterable[Override] = ()) -> Loaded:
    """The settings: `overrides` (command line) over the environment's, over the file's, over the defaults.

    `file` is `--config`; empty: `GPUMON_CONFIG`, else `gpumon/config.toml` in the user's XDG folder if it is there.
    Raises ConfigError.
    """
    path, must_exist = _config_path(file, environ)
    text = read_file(path, must_exist) if path is not None else None
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if text is not None:
        raw = parse_toml(text, str(path))
        config_of(raw, {}, str(path), text)  # a fault of the file is told as one, even if an option hides it
        origins = dict.fromkeys(_setting_names(raw), "file")
    for override in (*from_environment(environ), *overrides):
        _lay_over(raw, override)
        origins[dotted(override.path)] = override.origin
    config = config_of(raw, origins, str(path), text or "")
    place = str(path) if path is not None else ""
    file_read = place if text is not None else ""
    return Loaded(config=config, file=file_read, origins=origins, place=place)


def _config_path(file: str, environ: Mapping[str, str]) -> tuple[Path | None, bool]:
    """The config file's path (None: no home is known), and whether it was asked for by name. Raises ConfigError."""
    named_file = file or environ.get("GPUMON_CONFIG", "")
    if named_file:
        if "://" in named_file:
            origin = "--config" if file else "GPUMON_CONFIG"
            raise ConfigError(f"{origin}: must be a file, not a URL")
        return Path(named_file), True
    base = environ.get("XDG_CONFIG_HOME", "")
    home = environ.get("HOME", "")
    if not base.startswith("/"):
        base = f"{home}/.config" if home.startswith("/") else ""
    if base:
        return Path(base, "gpumon", "config.toml"), False
    return None, False


def read_file(
    path: Path, must_exist: bool, what: str = "config of gpumon", *, from_anybody: bool = False
) -> str | None:
    """The text of a file that is `what`; None where there is none and none has to be.

    `from_anybody`: it says nothing that gpumon runs or sends, so that it may be another user's. Raises ConfigError.
    """
    try:
        content = _read_bytes(path, from_anybody)
    except (FileNotFoundError, NotADirectoryError):
        if must_exist:
            raise ConfigError(f"{file_name(path)}: there is no such file") from None
        return None
    except (OSError, ValueError) as failure:
        raise ConfigError(f"{file_name(path)}: cannot be read: {why_of_file(failure)}") from None
    return text_of_bytes(content, path, what)


def _read_bytes(path: Path, from_anybody: bool) -> bytes:
    """The bytes of a file, or what comes out of a pipe such as `<(...)` of a shell.

    Raises OSError, ValueError, and ConfigError for a file that somebody else may have written.
    """
    checks = () if from_anybody else (_check_owner,)
    with open_checked(path, *checks) as stream:
        if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
            return _read_pipe(stream.fileno())
        return stream.read(MOST_CONFIG_BYTES + 1)


def _check_owner(descriptor: int, path: Path) -> None:
    """Raise ConfigError for a file that somebody else may have written."""
    fault = owner_fault(os.fstat(descriptor), str(path))
    if fault:
        raise ConfigError(f"{file_name(path)}: {clean(fault, MOST_FAULT)}")


def _read_pipe(descriptor: int) -> bytes:
    """All that is written into a pipe within `PIPE_S`. Raises OSError if that is nothing, or does not end."""
    content = b""
    end_s = time.monotonic() + PIPE_S
    while len(content) <= MOST_CONFIG_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))
        if not ready:
            raise OSError(errno.ETIMEDOUT, f"is a pipe in which nothing ends within {PIPE_S:g} s: name a file")
        piece = os.read(descriptor, MOST_CONFIG_BYTES)
        if not piece:
            break
        content += piece
    if not content:
        raise OSError(errno.ENODATA, "is a pipe that nobody writes into: name a file")
    return content


def wait_for_writer(descriptor: int, _: Path) -> None:
    """Wait until somebody writes into a named pipe; what is opened is read to its end from then on.

    Raises OSError if that takes longer than `PIPE_S`.
    """
    if is_named_pipe(os.fstat(descriptor)) and not select.select([descriptor], [], [], PIPE_S)[0]:
        raise OSError(errno.ETIMEDOUT, f"is a pipe into which nobody writes within {PIPE_S:g} s: name a file")
    os.set_blocking(descriptor, True)


def text_of_bytes(content: bytes, path: Path | str, what: str) -> str:
    """The bytes of a file as text. Raises ConfigError for more than MOST_CONFIG_BYTES, and for what is no UTF-8."""
    if len(content) > MOST_CONFIG_BYTES:
        raise ConfigError(f"{file_name(path)}: is larger than {MOST_CONFIG_BYTES >> 20} MiB: this is no {what}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content[: failure.start].count(b"\n") + 1
        raise ConfigError(f"{file_name(path)}:{line}: is not UTF-8 text") from None


def file_name(path: Path | str) -> str:
    """A file's name for a message; a URL given as one may hold a password."""
    text = str(path)
    if ":" in text.partition("/")[0]:
        text = urls.without_secrets(text)
    return clean(text)


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """A TOML text; `path` is its file, for errors. Raises ConfigError with the line."""
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as failure:
        reason, _, place = str(failure).rpartition(" (at ")
        if "://" in reason:
            reason = urls.without_secrets(reason)
        numbers = re.match(r"line (\d+), column (\d+)", place)
        if numbers:
            line = int(numbers[1])
            column = f", column {numbers[2]}"
        else:
            line = text.rstrip().count("\n") + 1
            column = ", end of the file"
        raise ConfigError(f"{file_name(path)}:{line}: is not TOML: {clean(reason)}{column}") from None
    except (RecursionError, ValueError):
        raise ConfigError(
            f"{file_name(path)}: is not TOML: nested too deep, or a number with too many digits"
        ) from None


def config_of(raw: dict[str, Any], origins: Mapping[str, str], path: str, text: str) -> Config:
    """Raw settings as `Config`. Raises ConfigError: with the origin of the value to blame, else its line in `text`."""
    try:
        return validated(raw, Config)
    except Refused as refused:
        raise config_error(refused, path, text, origins) from None


def config_error(refused: Refused, path: str, text: str, origins: Mapping[str, str] = NO_ORIGINS) -> ConfigError:
    """The error for all that was refused in the file at `path`; `text` is what it holds."""
    from gpumon.config.lines import lines_of_settings

    faults = (refused, *refused.others)
    line_numbers = lines_of_settings(text)
    lines = [str(_error_of(fault, path, line_numbers, origins)) for fault in faults[:MOST_REFUSED]]
    if len(faults) > MOST_REFUSED:
        lines.append(f"{file_name(path)}: more is wrong: these were the first {MOST_REFUSED}")
    return ConfigError(lines[0], lines[1:])


def _error_of(
    refused: Refused, path: str, line_numbers: Mapping[KeyPath, int], origins: Mapping[str, str]
) -> ConfigError:
    """The error for one refused value, named by who gave it: a variable, an option, or a line of the file."""
    for length in range(len(refused.path), 0, -1):
        origin = origins.get(dotted(refused.path[:length]), "file")
        if origin != "file":
            return error_of_value(origin, refused)
    from gpumon.config.lines import line_among

    line = line_among(line_numbers, refused.path)
    where = f"{file_name(path)}:{line}" if line else file_name(path)
    return error_of_value(where, refused, dotted(refused.path))


def _setting_names(raw: Mapping[str, Any], path: tuple[str | int, ...] = ()) -> Iterable[str]:
    """The dotted key of every setting in a table and in the tables inside it."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _setting_names(value, (*path, key))
        else:
            yield dotted((*path, key))


def _lay_over(raw: dict[str, Any], override: Override) -> None:
    """Put a setting from elsewhere in the place of the file's."""
    *tables, key = override.path
    table = raw
    for name in tables:
        table = table.setdefault(name, {})
    if override.path == ("endpoint",):
        table[key] = _endpoint_entries(raw, override.value)
    elif override.path == ("host",):
        table[key] = _host_entries(raw, override.value)
    else:
        table[key] = override.value


def _host_entries(raw: Mapping[str, Any], addresses: list[str]) -> list[dict[str, Any]]:
    """The `[[host]]` entries for these addresses: a host that the file describes keeps its description."""
    described = {host_server(entry["address"]): entry for entry in raw.get("host", ())}
    entries: dict[str, dict[str, Any]] = {}
    for address in addresses:
        server = host_server(address)
        entries.setdefault(server, deepcopy(described.get(server, {"address": address})))
    return list(entries.values())


def _endpoint_entries(raw: Mapping[str, Any], addresses: list[str]) -> list[dict[str, Any]]:
    """The `[[endpoint]]` entries for these URLs: a server that the file describes keeps its name, key and model."""
    described = {urls.server_of_url(entry["url"]): entry for entry in raw.get("endpoint", ())}
    entries: dict[str, dict[str, Any]] = {}
    for url in addresses:
        # `load` refuses a URL with a problem later, with its fault.
        server = url if urls.url_problem(url) else urls.server_of_url(url)
        entries.setdefault(server, deepcopy(described.get(server, {"url": url})))
    return list(entries.values())
