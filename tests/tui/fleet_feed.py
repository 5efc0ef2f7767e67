"""A fleet for the screen's tests: simulated servers, asked for in place of a Prometheus through the real control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

from textual.pilot import Pilot

from gpumon.config.schema import Config, General, Prometheus
from gpumon.config.themes import load_theme
from gpumon.readings.fleet import FleetFrame, HostFrame, LabelsLine
from gpumon.readings.frame import EndpointState, Fault, GpuState
from gpumon.session.fleet import FleetSession
from gpumon.sources.prometheus.api import ApiFault
from gpumon.tui.fleet.app import FleetApp
from gpumon.tui.screens.monitor import MonitorScreen
from tests.fleet.fleets import EVERY_S, fleet_frame, host, scrape
from tests.history.frames import WALL_S
from tests.records import replace
from tests.tui.running import until

LAST = 11
"""The newest scrape there is."""
NEWEST_S = WALL_S + LAST * EVERY_S + 3.0
CONFIG = Config(prometheus=Prometheus(url="http://prometheus.example:9090/api", interval_s=15.0))


@lru_cache(maxsize=64)
def many(at: int, hosts: int) -> FleetFrame:
    """A fleet of hosts with one GPU each, and an engine on every fourth."""
    frames = [scrape(1 + seed, at) for seed in range(2)]
    alone = [
        replace(
            frames[number % 2],
            gpus=frames[number % 2].gpus[number % 8 : number % 8 + 1],
            engines=frames[number % 2].engines[:1] if number % 4 == 0 else (),
        )
        for number in range(hosts)
    ]
    found = tuple(host(f"node{number:04d}", frame) for number, frame in enumerate(alone))
    return FleetFrame(WALL_S + at * EVERY_S + 3.0, float(EVERY_S), found, queries=7, cost_s=0.3)


def lost(host: HostFrame) -> HostFrame:
    """Its third GPU does not answer any more."""
    gpu = replace(host.gpus[2], state=GpuState.LOST, state_text="fell off the bus")
    return replace(host, gpus=(*host.gpus[:2], gpu, *host.gpus[3:]))


def refused(host: HostFrame) -> HostFrame:
    """Its engines do not answer."""
    engines = tuple(replace(each, state=EndpointState.REFUSED, fault="connection refused") for each in host.engines)
    return replace(host, engines=engines)


def bare(host: HostFrame) -> HostFrame:
    """No engine is known on it, so that a host among many costs little."""
    return replace(host, engines=())


def owned(host: HostFrame) -> HostFrame:
    """Its first four GPUs, which an engine has, are `chat`'s, the next two `search`'s; the others have no owner."""
    namespaces = (*["chat"] * 4, *["search"] * 2)
    owners = {gpu.uuid: {"namespace": name} for gpu, name in zip(host.gpus, namespaces, strict=False)}
    return replace(host, owners=owners)


MIXED: Mapping[str, Callable[[HostFrame], HostFrame]] = {"gpu02": lost, "gpu04": refused}
"""What is wrong with which host."""


class Scrapes:
    """Answers as a Prometheus would, of times from `WALL_S` on; the test says what is wrong with it."""

    def __init__(
        self,
        hosts: int = 5,
        *,
        single: bool = False,
        names: Mapping[str, str] | None = None,
        wrong: Mapping[str, Callable[[HostFrame], HostFrame]] = MIXED,
    ) -> None:
        """`single`: hosts of one GPU. `names`: other names for some hosts. `wrong`: what is done to some."""
        self.wrong = wrong
        self.hosts = hosts
        self.single = single
        self.names = dict(names or {})
        self.newest = LAST
        self.fault = ""
        """Why there is no answer; empty: there is one."""
        self.notice = ""
        """What is wrong with the answers, which come."""
        self.later_s = 0.0
        """So long after the newest scrape's time now is."""
        self.left: set[str] = set()
        """Hosts that there is nothing of from the newest scrape on, nor in range queries."""
        self.lacking: set[str] = set()
        """Hosts that there is nothing of any more."""
        self.only: Sequence[str] = ()
        """The only hosts there are; empty: all."""
        self.free = asyncio.Event()
        """While it is not set no answer comes."""
        self.free.set()
        self.asked: list[float | None] = []
        self.bare: set[str] = set()
        """Hosts whose shell finds no gpumon."""
        self.installed: list[str] = []
        """Hosts that gpumon was to be run on."""

    def prepare(self) -> None:
        """Make the frames of a fleet of single GPUs, which else is done while the screen waits for them."""
        for at in range(self.newest + 1):
            many(at, self.hosts)

    async def next_frame(self) -> FleetFrame:
        """All of it: no host takes turns."""
        return await self.frame()

    async def frame(self, at_s: float | None = None, hosts: Collection[str] | None = None) -> FleetFrame:
        """The fleet at a time."""
        self.asked.append(at_s)
        await self.free.wait()
        at = self.newest if at_s is None else int((at_s - WALL_S) // EVERY_S)
        wall_s = WALL_S + self.newest * EVERY_S + 3.0 + self.later_s if at_s is None else at_s
        if self.fault:
            return FleetFrame(wall_s, float(EVERY_S), answered=False, faults=(Fault("prometheus", self.fault, wall_s),))
        if not 0 <= at <= self.newest:
            return FleetFrame(wall_s, float(EVERY_S))
        frame = many(at, self.hosts) if self.single else fleet_frame(at, self.hosts)
        found = tuple(self._told(each) for each in frame.hosts if each.name not in self.lacking)
        if at_s is None or at >= self.newest:
            found = tuple(each for each in found if each.name not in self.left)
        if self.only:
            found = tuple(each for each in found if each.name in self.only)
        faults = (Fault("prometheus", self.notice, wall_s),) if self.notice else ()
        return replace(frame, wall_s=wall_s, hosts=found, faults=faults)

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """One host at each scrape of a stretch."""
        if self.fault:
            raise ApiFault(self.fault)
        if host in self.left:
            return ()
        found = []
        for at in range(self.newest + 1):
            wall_s = WALL_S + at * EVERY_S + 3.0
            if start_s <= wall_s <= end_s:
                frame = await self.frame(wall_s)
                found += [(wall_s, each) for each in frame.hosts if each.name == host]
        return tuple(found)

    async def use_labels(self, lines: Iterable[LabelsLine]) -> None:
        """Nothing: the frames have names of their own."""

    def lacks_gpumon(self, host: str) -> bool:
        """Whether the test says so."""
        return host in self.bare

    def install(self, host: str) -> None:
        """Note it."""
        self.bare.discard(host)
        self.installed.append(host)

    def look_at(self, host: str) -> None:
        """There is all of every host anyway."""

    def first_s(self, newest_s: float) -> float:
        """As far back as a Prometheus keeps what it has."""
        return newest_s - 15 * 86400.0

    async def settle(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """Nothing to let go of."""

    def _told(self, host: HostFrame) -> HostFrame:
        wrong = self.wrong.get(host.name)
        host = host if wrong is None else wrong(host)
        name = self.names.get(host.name)
        return host if name is None else replace(host, name=name)


@asynccontextmanager
async def watching(
    source: Scrapes,
    width: int = 80,
    height: int = 24,
    *,
    config: Config = CONFIG,
    ascii: bool = False,  # noqa: A002
    answered: bool = True,
) -> AsyncIterator[tuple[FleetApp, Pilot[int]]]:
    """The application with its first rates painted, 12 s after the newest scrape."""
    config = replace(config, general=General(ascii=ascii))
    app = FleetApp(
        FleetSession(config, lambda: source), load_theme("default"), config, unix_time=lambda: NEWEST_S + 12.0
    )
    async with app.run_test(size=(width, height), notifications=True) as pilot:
        if answered:
            await until(lambda: has_rates(app), pilot)
        yield app, pilot


async def opened(app: FleetApp, pilot: Pilot[int]) -> MonitorScreen:
    """The screen of the host under the cursor, once the past of its charts was read."""
    await pilot.press("enter")
    await until(
        lambda: (
            app.host_screen is not None and app.host_screen.shown is not None and not app.host_screen.control.filling
        ),
        pilot,
        20.0,
    )
    assert app.host_screen is not None
    return app.host_screen


def has_rates(app: FleetApp) -> bool:
    """Whether what is shown stands on more than one scrape, and no more is to come by itself."""
    shown = app.monitor.shown
    return shown is not None and isinstance(shown.total.decode_tokens_per_s, float) and not app.control.fleet.asking
