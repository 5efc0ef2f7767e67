"""Names of Docker's containers, asked of its daemon once per container by a GET on its socket."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

SOCKET: Final = Path("/var/run/docker.sock")
DEADLINE_S: Final = 0.5
"""The daemon is asked within a tick of the GPUs: one that takes longer is not asked again by this process."""
_MOST_BYTES: Final = 256 * 1024
"""Bytes of an answer that are read."""
_MOST_NAMES: Final = 1024
"""Containers whose names are remembered."""
_DOCKER: Final = re.compile(r"docker[/-]([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
"""A container of Docker in a cgroup path: `/docker/ID`, `/system.slice/docker-ID.scope`."""
_NAME: Final = re.compile(r"/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})")


class ContainerNames:
    """Names by container id, shared by the GPUs of a worker."""

    def __init__(self, socket: Path = SOCKET) -> None:
        self._socket = socket
        self._names: dict[str, str] = {}
        """Container id -> name; empty where it has none, or the daemon does not tell it."""
        self._is_mute = False
        """The daemon took too long once: it is not asked again."""

    def of(self, cgroup: str) -> str:
        """The name of the container of Docker that a process's cgroup path names; empty where it is in none, and where
        this user may not ask."""
        match = _DOCKER.search(cgroup)
        if match is None or self._is_mute:
            return ""
        container = match.group(1)
        if container not in self._names:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[container] = self._ask(container)
        return self._names[container]

    def _ask(self, container: str) -> str:
        """The container's name by the daemon; empty where that fails."""
        import json
        import socket

        try:
            status = self._socket.stat()
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in (0, os.geteuid()):
                return ""
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as stream:
                body = _fetch_body(stream, str(self._socket), _http_request(container))
            containers = json.loads(body)
            return _name_of(containers, container)
        except TimeoutError:
            self._is_mute = True
            return ""
        except (OSError, ValueError, RecursionError):
            return ""


def _http_request(container: str) -> bytes:
    """The request for a list of this container alone: it has names and labels, and no environment."""
    filters = f"%7B%22id%22%3A%5B%22{container}%22%5D%7D"  # {"id":["..."]}
    return f"GET /containers/json?all=1&filters={filters} HTTP/1.0\r\nHost: docker\r\n\r\n".encode()


def _fetch_body(stream: socket.socket, path: str, request: bytes) -> bytes:
    """The body of the answer. Raises OSError, among them TimeoutError after `DEADLINE_S`; ValueError for a refusal."""
    end_s = time.monotonic() + DEADLINE_S
    stream.settimeout(DEADLINE_S)
    stream.connect(path)
    stream.sendall(request)
    answer = b""
    while len(answer) < _MOST_BYTES:
        left_s = end_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        stream.settimeout(left_s)
        chunk = stream.recv(65536)
        if not chunk:
            break
        answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 200 ", head):
        raise ValueError("refused")
    return body


def _name_of(containers: object, container: str) -> str:
    """The container's name in an answer. Aliases of links have another `/` in them, and are no match."""
    if not isinstance(containers, list):
        return ""
    for entry in containers:
        if not isinstance(entry, dict) or entry.get("Id") != container:
            continue
        names = entry.get("Names")
        if isinstance(names, list):
            for name in names:
                match = _NAME.fullmatch(name) if isinstance(name, str) else None
                if match is not None:
                    return match.group(1)
    return ""


CONTAINER_NAMES: Final = ContainerNames()
"""Names that this process knows."""
