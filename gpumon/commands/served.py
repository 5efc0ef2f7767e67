"""The newest snapshot of this host's `gpumon serve-metrics`, for commands that need no more than part of it."""

from __future__ import annotations

import contextlib
import http.client
import os
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.readings.format import wall_of
from gpumon.sources.sockets import PeerState, connection_of, peer_of

_ANSWER_S: Final = 0.3
"""Longest wait for a `gpumon serve-metrics` of this host, and between two pieces of its answer."""
_WHOLE_ANSWER_S: Final = 2.0
"""Longest wait for the whole answer: while no gpumon listens there, any user of this host can."""
MOST_AGE_S: Final = 15.0
"""A served snapshot that is older is not of now."""
MOST_SNAPSHOT_BYTES: Final = 16_000_000
"""Bytes of a served snapshot that are read."""
_USERS_OF_SERVICES: Final = range(61184, 65520)
"""Users that only systemd gives to a service (`DynamicUser`), as our own unit has it."""
_LOOPBACK_OF_ALL: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Address of all interfaces -> the one to ask this host at."""


class Served(Protocol):
    """Part of a snapshot's JSON (docs/json.md)."""

    time: str

    @property
    def gpus(self) -> Sequence[object]:
        """The GPUs."""

    @property
    def engines(self) -> Sequence[object]:
        """The engines."""


Part = TypeVar("Part", bound=Served)


def served_snapshot(config: Config, run_options: Options, part: type[Part], *, has_endpoints: bool) -> Part | None:
    """Part of the newest served snapshot; None where there is none of now, none of what the options want, or none by
    root, this user or a service.

    `has_endpoints`: the options name engines. A server has run for a while, so that its snapshots have rates and
    verdicts.
    """
    # It shows this host's GPUs and the endpoints of the config.
    if run_options.demo or not run_options.nvml or has_endpoints:
        return None
    exporter = config.exporter
    # This asks without TLS and without a password.
    if exporter.tls_cert or exporter.user:
        return None
    host, _, port = exporter.listen.rpartition(":")
    host = host.strip("[]")
    bodies: list[bytes] = []
    asking = threading.Thread(target=_ask, args=(_LOOPBACK_OF_ALL.get(host, host), int(port), bodies), daemon=True)
    asking.start()
    asking.join(_WHOLE_ANSWER_S)
    if not bodies:
        return None
    try:
        snapshot = msgspec.json.decode(bodies[0], type=part)
        return snapshot if _is_of_now(snapshot) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _ask(host: str, port: int, bodies: list[bytes]) -> None:
    """Put the body of `/snapshot.json` into `bodies`; nothing where there is none."""
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("GET", "/snapshot.json")
        connected = connection.sock
        answer = connection.getresponse()
        # Another user could say that all is well, or have another verdict acknowledged than the one that is meant.
        peer = peer_of(connection_of(connected))
        is_trusted = peer.state is PeerState.OWNED and (peer.uid in (0, os.geteuid()) or peer.uid in _USERS_OF_SERVICES)
        if is_trusted and answer.status == http.client.OK:
            bodies.append(answer.read(MOST_SNAPSHOT_BYTES))


def _is_of_now(snapshot: Served) -> bool:
    """Whether a served snapshot is new enough, and has something in it. Raises ValueError for a time that is none."""
    age_s = abs(time.time() - wall_of(snapshot.time))
    return age_s < MOST_AGE_S and bool(snapshot.gpus or snapshot.engines)
