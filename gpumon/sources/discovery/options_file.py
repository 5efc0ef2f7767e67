"""The file with further options that a command line names (`--config`), read as its engine's user may read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from gpumon.sources.checked_open import allowed, open_file
from gpumon.sources.reading_user import reader_of

_MOST_BYTES: Final = 64 * 1024
"""Bytes of such a file that are read."""
_ENTRY: Final = re.compile(
    r"""([A-Za-z][\w.-]{0,63})\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\s#{\[&*|>"'][^#]*?))?\s*(?:\#.*)?"""
)
"""A line `key: value` of YAML whose value is plain, or stands in quotes: options are such."""


@lru_cache(maxsize=256)
def read_options_file(server: tuple[int, int], name: str) -> str | None:
    """The text of the file that a process was started with, by its root and folder; None where it cannot be read.

    An engine reads it once, at its start: `server` is the pid, and the start that tells it from a later one.
    """
    pid, _ = server
    if not allowed(name):
        return None
    try:
        if not name.startswith("/"):
            name = f"{Path(f'/proc/{pid}/cwd').readlink()}/{name}"
        with open_file(Path(f"/proc/{pid}/root{name}"), reader_of(pid)) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def options_in(text: str) -> Iterator[str]:
    """The options of a YAML file as words of a command line: `--max-num-seqs=16`. Objects and lists are left out."""
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line.rstrip())
        if entry is not None:
            value = entry[2] or entry[3] or entry[4] or ""
            yield f"--{entry[1]}={value.strip()}"
