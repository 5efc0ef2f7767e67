"""Variables of a process's environment, as it was started with."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 256 * 1024


def variables_of(pid: int, wanted: Collection[str]) -> dict[str, str] | None:
    """Those of the wanted ones that are set and not empty; None where Linux hides them from this user."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in wanted and value}
