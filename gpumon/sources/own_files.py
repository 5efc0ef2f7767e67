"""The folder in which gpumon keeps what it made, and its files: last-seen engines, incident bundles, webhooks' ledger.

A file is read where nobody else can have put it there, and replaced as a whole.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpumon.config.ownership import check_made


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """`gpumon` in the user's XDG state folder; None where no such folder is known."""
    base = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - the text as it is
        return Path(base) / "gpumon"
    if os.path.isabs(home):  # noqa: PTH117 - the text as it is
        return Path(home) / ".local" / "state" / "gpumon"
    return None


def service_state_folder(environ: Mapping[str, str]) -> Path | None:
    """`state_folder`, else the folder that systemd gives to a service; None where there is none."""
    service_folder = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return state_folder(environ) or (Path(service_folder) if service_folder.startswith("/") else None)


def read_own(path: Path, most_bytes: int) -> bytes | None:
    """The contents of a regular file of this user; None for a link, another's file, and one that is too large or cannot
    be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > most_bytes:
            return None
        with os.fdopen(os.dup(file), "rb") as stream:
            return stream.read(most_bytes + 1)
    except OSError:
        return None
    finally:
        os.close(file)


def replace_own(path: Path, data: bytes) -> None:
    """Write the file anew: it appears whole or not at all, and only its user can read it. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.urandom(6).hex()}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
            check_made(stream.fileno(), new, is_shared=True)
            stream.write(data)
        new.replace(path)
    except BaseException:  # whatever interrupts it, no half file is left
        with contextlib.suppress(OSError):
            new.unlink()
        raise
