"""The folder in which gpumon keeps what it made: last-seen engines, incident bundles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """`gpumon` in the user's XDG state folder; None where no such folder is known."""
    base = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - the text as it is
        return Path(base) / "gpumon"
    if os.path.isabs(home):  # noqa: PTH117 - the text as it is
        return Path(home) / ".local" / "state" / "gpumon"
    return None
