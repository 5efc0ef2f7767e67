"""Where recordings lie: the host's own one, and the one in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpumon.config.errors import ConfigError
from gpumon.config.load import named

RECORDING: Final = "recording.gpumon"
"""The recording in the folder of an incident bundle."""


def own_file(environ: Mapping[str, str], host: str, *, simulated: bool) -> Path:
    """`gpumon/recordings/HOST.sqlite` in the user's XDG data folder. Raises ConfigError where there is no such."""
    base, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if not base.startswith("/"):
        base = f"{home}/.local/share" if home.startswith("/") else ""
    if not base:
        raise ConfigError("no folder for recordings: name a file, or set XDG_DATA_HOME or HOME")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip("-.")[:64] or "host"
    return Path(base, "gpumon", "recordings", f"{name}{'-simulated' if simulated else ''}.sqlite")


def to_read(file: str, environ: Mapping[str, str], host: str) -> Path:
    """The recording that a user means: of a folder the one in it, and without a name the host's own.

    Raises ConfigError.
    """
    path = Path(file) if file else own_file(environ, host, simulated=False)
    if not file and not os.path.exists(path):  # noqa: PTH110 - what must not be looked at raises there
        raise ConfigError(f"{named(path)}: this host has none of its own yet: name a file, or begin it: gpumon record")
    inside = path / RECORDING
    return inside if os.path.isfile(inside) else path  # noqa: PTH113 - likewise
