"""The file of a webhook in the state folder, and the lock that one gpumon holds on it. All calls block.

It holds what the receiver was told and what waits for it, never a URL or a key. One gpumon of a user sends at a time:
the others stand by, and the next one goes on when it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from gpumon.config.ownership import open_lock
from gpumon.config.schema import Webhook
from gpumon.push.records import KeptState
from gpumon.sources.own_files import read_own, replace_own, service_state_folder

_MOST_STORE_BYTES: Final = 64 << 20
"""Bytes of a file that is read: sixteen times what the queue may take."""
MOST_PID_BYTES: Final = 20
"""Bytes of the PID in the lock file."""
_MOST_NAME_CHARACTERS: Final = 40
"""Characters of a name in the name of a file."""
_DIGEST_DIGITS: Final = 8
"""Hexadecimal digits in the name of a file that tell apart receivers of one name."""


def webhook_file(environ: Mapping[str, str], name: str, webhook: Webhook) -> Path | None:
    """`webhooks/HOST-NAME-DIGEST.json` in gpumon's state folder, else in the one that systemd gives to a service.

    Another receiver under the same name has another file. None where no such folder is known.
    """
    folder = service_state_folder(environ)
    if folder is None:
        return None
    host = socket.gethostname()
    receiver = (webhook.kind, webhook.url, webhook.url_env, webhook.url_file, webhook.api_key_env, webhook.api_key_file)
    identity = "\n".join((host, name, *receiver))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    return folder / "webhooks" / f"{_file_name_part(host) or 'host'}-{_file_name_part(name) or 'webhook'}-{digest}.json"


class Side(str, Enum):
    """Senders whose messages are not those of this server; each has a file of its own, for the last answer."""

    DEMO = "demo"
    TEST = "test"
    """`gpumon webhook --test`."""


def sender_file(path: Path | None, side: Side) -> Path | None:
    """The file of such a sender beside that of the webhook; None where there is none."""
    if path is None:
        return None
    return path.with_name(f"{path.stem}-{side.value}.json")


def _file_name_part(text: str) -> str:
    """The letters, digits, `-` and `_` of a text, cut."""
    letters = [letter for letter in text if letter.isascii() and (letter.isalnum() or letter in "-_")]
    return "".join(letters)[:_MOST_NAME_CHARACTERS]


class WebhookStore:
    """Reads and writes the file of one webhook; without a path it keeps nothing beyond this run."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock: int | None = None

    def take(self) -> bool:
        """Take the lock; returns whether this gpumon is the one that sends. Raises OSError where no file can be."""
        if self.path is None or self._lock is not None:
            return True
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(self._lock_path(self.path))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor
        with contextlib.suppress(OSError):  # on a full disk the lock holds without a PID
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        return True

    def holder(self) -> int:
        """PID of the gpumon that sends now; 0: none does, or it could not write it. This one does not wait for it."""
        if self.path is None:
            return 0
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._lock_path(self.path), flags)
        except OSError:
            return 0
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError):
                return int(os.read(descriptor, MOST_PID_BYTES))
        except OSError:
            return 0
        finally:
            os.close(descriptor)
        return 0

    def release(self) -> None:
        """Let another gpumon go on."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> KeptState:
        """Return the state that was kept; a damaged or foreign file counts as none."""
        if self.path is None:
            return KeptState()
        data = read_own(self.path, _MOST_STORE_BYTES)
        if data is None:
            return KeptState()
        try:
            kept = msgspec.json.decode(data, type=KeptState)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return KeptState()
        if kept.version != KeptState().version:
            return KeptState()
        return kept

    def write(self, data: bytes) -> None:
        """Write the file, which appears whole or not at all; only its user can read it. Raises OSError."""
        if self.path is not None:
            replace_own(self.path, data)

    @staticmethod
    def _lock_path(path: Path) -> Path:
        """The file beside that of a webhook which the gpumon that sends holds locked."""
        return path.with_suffix(".lock")


class DemoStore(WebhookStore):
    """The state of a simulated server's webhook: kept so that others can tell how it goes, and never gone on with."""

    def take(self) -> bool:
        """Take the lock where it is free: simulated servers are not one another's next run, so that each sends."""
        if not super().take():
            self.path = None
        return True

    def read(self) -> KeptState:
        """Nothing: each simulated server begins anew."""
        return KeptState()
