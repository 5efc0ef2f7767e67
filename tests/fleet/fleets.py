"""Frames of fleets: simulated servers as a Prometheus tells of them, scraped every 15 s, all clocks Unix time."""

from __future__ import annotations

from functools import cache

from gpumon.config.schema import Config
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Frame
from gpumon.session.build import deriver_maker
from gpumon.triage.fresh import MakeDeriver
from tests.history.frames import WALL_S, served
from tests.records import replace

EVERY_S = 15
_UNIX_S = WALL_S - 5000.0
"""What the recording frames' own clock lies behind Unix time."""


SCRAPES = 12
"""Of three minutes."""


class _Server:
    """A simulated server of eight GPUs and four engines, which is played no further than a test looks."""

    def __init__(self, seed: int) -> None:
        self._coming = served(SCRAPES * EVERY_S, seed=seed, every=EVERY_S)
        self._frames: list[Frame] = []

    def scrape(self, at: int) -> Frame:
        """As it was at this scrape."""
        while len(self._frames) <= at:
            self._frames.append(next(self._coming))
        return self._frames[at]


@cache
def _server(seed: int) -> _Server:
    return _Server(seed)


def scrape(seed: int, at: int) -> Frame:
    """A server as it was at the scrape `at` (0 to 11)."""
    return _server(seed).scrape(at)


def host(name: str, frame: Frame, **labels: str) -> HostFrame:
    """A server's readings as those of a host of a fleet: GPUs and engines are its own, by uuid and URL."""
    gpus = tuple(replace(gpu, uuid=f"{gpu.uuid}-{name}", monotonic_s=gpu.monotonic_s + _UNIX_S) for gpu in frame.gpus)
    engines = tuple(
        replace(
            engine,
            url=engine.url.replace("127.0.0.1", name),
            gpus=tuple(f"{uuid}-{name}" for uuid in engine.gpus),
            monotonic_s=engine.monotonic_s + _UNIX_S,
            interval_s=float(EVERY_S),
        )
        for engine in frame.engines
    )
    return HostFrame(name, gpus, engines, labels={"cluster": "a", **labels}, interval_s=float(EVERY_S))


def fleet_frame(at: int, hosts: int = 3, *, seeds: int = 3) -> FleetFrame:
    """The fleet at its scrape `at` (0 to 11): `gpu01` and so on, each with readings of one of `seeds` servers."""
    servers = [scrape(1 + number % seeds, at) for number in range(hosts)]
    found = [host(f"gpu{number + 1:02d}", server, rack=str(number // 2)) for number, server in enumerate(servers)]
    return FleetFrame(WALL_S + at * EVERY_S + 3.0, float(EVERY_S), tuple(found), queries=7, cost_s=0.1)


def make() -> MakeDeriver:
    """Derivers and triages of the usual thresholds."""
    return deriver_maker(Config())


def fed(*frames: FleetFrame, fleet: Fleet | None = None) -> FleetSnapshot:
    """The fleet after these frames."""
    fleet = fleet or Fleet(make())
    for frame in frames:
        for _ in fleet.steps(frame):
            pass
    return fleet.snapshot
