"""Backends of front ends: what each does as its front end counts it, and which of them are polled as engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.address import LOOPBACK, USUAL_PORT
from gpumon.readings.frame import EngineReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Backend, Engine
from gpumon.readings.text import clean

HostPort = tuple[str, int]
"""Host name and port of a server, in lower case as `urlsplit` has it."""


class BackendsView:
    """The polls of one front end's backends: each is tracked as a rank is."""

    def __init__(self) -> None:
        self._track: Track | None = None
        self._reading: EngineReading | None = None

    def add(self, reading: EngineReading, wall_s: float, frames_s: float) -> None:
        """Take in one poll of the front end, made at `wall_s` (Unix time)."""
        if reading is self._reading or not (reading.backends or self._track):
            return
        self._reading = reading
        if self._track is None:
            self._track = Track()
        self._track.add(_as_ranks(reading), wall_s, frames_s)

    def shown(self) -> tuple[Backend, ...]:
        """The backends of the newest poll, in the order of their names."""
        if self._track is None or self._reading is None:
            return ()
        backends = [_backend(figures, self._track) for figures in self._reading.backends]
        return tuple(backends)


def _as_ranks(reading: EngineReading) -> EngineReading:
    """The reading of a front end in which its backends stand in the place of ranks."""
    earlier = tuple(_as_ranks(before) for before in reading.earlier)
    return msgspec.structs.replace(reading, ranks=reading.backends, backends=(), earlier=earlier)


def _backend(figures: RankReading, track: Track) -> Backend:
    """One backend as its front end counts it; requests/s by its counter, else by the front end's own rate."""
    gauges = figures.gauges
    requests = track.short.rank_rate(figures.rank, q.REQUESTS)
    if q.REQUESTS not in figures.counters:
        requests = gauges.get(q.REQUEST_RATE, requests)
    return Backend(
        address=clean(figures.rank),
        ready=gauges.get(q.READY, NOT_EXPOSED),
        running=gauges.get(q.RUNNING, NOT_EXPOSED),
        waiting=gauges.get(q.WAITING, NOT_EXPOSED),
        requests_per_s=requests,
        failures_per_s=_failures_per_s(figures, track, requests),
    )


def _failures_per_s(figures: RankReading, track: Track, requests: Reading) -> Reading:
    """Failures/s of a backend.

    A front end writes the count of a backend with its first failure: until then it is 0, if other backends have one.
    """
    if q.FAILURES not in figures.counters and track.has_counter(q.FAILURES) and not isinstance(requests, Missing):
        return 0.0
    return track.short.rank_rate(figures.rank, q.FAILURES)


def with_polled_backends(engines: Sequence[Engine]) -> list[Engine]:
    """The engines, each front end's backends with the name of the engine that is polled at their address."""
    if not any(engine.backends for engine in engines):
        return list(engines)
    names = _names_by_server(engines)
    result = []
    for engine in engines:
        if engine.backends:
            result.append(msgspec.structs.replace(engine, backends=_named_backends(engine, names)))
        else:
            result.append(engine)
    return result


def _names_by_server(engines: Iterable[Engine]) -> dict[HostPort, str]:
    """Server -> name of the engine that is polled there; of several models of one server that of the first."""
    names: dict[HostPort, str] = {}
    for engine in engines:
        server = host_port_of(engine.url)
        if server is not None:
            names.setdefault(server, engine.name)
    return names


def _named_backends(front_end: Engine, names: dict[HostPort, str]) -> tuple[Backend, ...]:
    """The backends of a front end, each with the name of the engine at its address; no engine is its own backend."""
    backends = []
    for backend in front_end.backends:
        server = host_port_of(backend.address)
        name = names.get(server, "") if server is not None else ""
        if name == front_end.name:
            name = ""
        backends.append(msgspec.structs.replace(backend, engine=name))
    return tuple(backends)


def host_port_of(address: str) -> HostPort | None:
    """Host and port of an address such as `http://127.0.0.1:8000/v1`; None where it is none, such as a pod's name."""
    if "://" not in address:
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if port is None:
        port = USUAL_PORT.get(parts.scheme)
    if not parts.hostname or port is None:
        return None
    if parts.hostname in LOOPBACK:
        return ("localhost", port)
    return (parts.hostname, port)


def backend_url(address: str) -> str:
    """The URL of a backend's server, without a path such as `/v1`, a user and a password; empty for what is none of
    HTTP, such as a pod's name."""
    if host_port_of(address) is None or urlsplit(address).scheme not in USUAL_PORT:
        return ""
    return clean(f"{urlsplit(address).scheme}://{short_name(address)}")


def short_name(address: str) -> str:
    """Host and port of a backend's address; any other name as it is."""
    if host_port_of(address) is None:
        return clean(address)
    return clean(urlsplit(address).netloc.rpartition("@")[2])
