"""A file of this user's own in the state folder: read where nobody else can have put it there, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


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
            stream.write(data)
        new.replace(path)
    except BaseException:  # whatever interrupts it, no half file is left
        with contextlib.suppress(OSError):
            new.unlink()
        raise
