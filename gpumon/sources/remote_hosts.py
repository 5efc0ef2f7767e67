"""The hosts of a fleet without a Prometheus: connects to all, and puts their newest or past frames together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

from gpumon.config.schema import Config
from gpumon.readings.fleet import FleetFrame, HostFrame, LabelsLine
from gpumon.readings.frame import Fault
from gpumon.readings.text import clean
from gpumon.sources.guest.archive import Archives
from gpumon.sources.prometheus.models import Models
from gpumon.sources.remote import KEPT_BYTES, Remote

MOST_READ: Final = 2
"""Snapshots that are decoded at once, each in a thread of its own: more would keep the event loop from its turn."""
_SHORTEST_POLL_S: Final = 1.0
"""Shortest time between two polls of a URL, however fast the screen refreshes."""
STAGGER_S: Final = 0.02
"""Pause between the starts of two ssh: each takes some CPU for its keys."""


class RemoteHosts:
    """The hosts of a fleet, each as its own gpumon shows it (`FleetFrames` of `session/live_fleet.py`)."""

    def __init__(self, config: Config, wall: Callable[[], float] = time.time) -> None:
        """The `[[host]]` of a config. Those with a URL are polled at its refresh interval, at most once a second."""
        self._interval_s = max(_SHORTEST_POLL_S, config.general.interval_s)
        self._remotes = [Remote(host, self._interval_s, wall) for host in config.host]
        remotes_per_name = Counter(remote.name for remote in self._remotes)
        decode_slots = asyncio.Semaphore(MOST_READ)
        archives: dict[str, Archives] = {}  # by the folder of wheels: hosts with the same one share them
        models = Models(config.model, config.endpoint)
        for remote in self._remotes:
            remote.decode_slots = decode_slots
            remote.models = models
            remote.archives = archives.setdefault(remote.host.wheels, Archives(remote.host.wheels))
            remote.most_bytes = KEPT_BYTES / len(self._remotes)
            if remotes_per_name[remote.name] > 1:  # the whole address tells alike hosts of two users or ports apart
                remote.name = clean(remote.host.name or remote.host.address, 120)
        self._wall = wall
        self._tasks: list[asyncio.Task[None]] = []

    async def next_frame(self) -> FleetFrame:
        """All hosts now: each sends what it has by itself."""
        return await self.frame()

    async def frame(
        self,
        at_s: float | None = None,
        hosts: Collection[str] | None = None,  # noqa: ARG002 - all are at hand
    ) -> FleetFrame:
        """All hosts now, or as they were at a Unix time: `hosts` may be fewer, but each is at hand here.

        Hosts that do not answer are among those of now, with the reason; of the past they are left out.
        """
        self._start()
        frames = await asyncio.to_thread(lambda: [remote.at(at_s) for remote in self._remotes])
        known = sorted((host for host in frames if host is not None), key=lambda host: host.name)
        if at_s is None:
            return FleetFrame(self._wall(), self._interval_s, tuple(known), faults=self._notices())
        return FleetFrame(at_s, self._interval_s, tuple(known))

    def _notices(self) -> tuple[Fault, ...]:
        """A fault of the fleet for each host whose snapshots are beyond the bounds, and are not read."""
        return tuple(Fault(remote.name, remote.refused, remote.since_s) for remote in self._remotes if remote.refused)

    async def settle(self, timeout_s: float = 15.0) -> None:
        """Wait until each host has rates, or is known not to answer."""
        self._start()
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s and not all(remote.settled for remote in self._remotes):
            await asyncio.sleep(0.05)

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """One host from one Unix time to another, as `Remote.between` gives it; nothing of a host that is not known."""
        for remote in self._remotes:
            if remote.name == host:
                return tuple(await asyncio.to_thread(remote.between, start_s, end_s, step_s))
        return ()

    def look_at(self, host: str) -> None:
        """Do nothing: a host sends all that it has, whether one looks at it or not."""

    async def use_labels(self, lines: Iterable[LabelsLine]) -> None:
        """Nothing: labels name no host here."""

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""
        for remote in self._remotes:
            if remote.name == host and remote.lacks_gpumon and not remote.installs:
                return True
        return False

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder."""
        for remote in self._remotes:
            if remote.name == host:
                remote.install()

    def first_s(self, newest_s: float) -> float:
        """Unix time of the oldest snapshot that is kept of any host; `newest_s` where none is kept."""
        kept_s = [remote.first_s for remote in self._remotes]
        return min((first_s for first_s in kept_s if first_s is not None), default=newest_s)

    async def close(self) -> None:
        """Hang up everywhere."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.2)
        self._tasks = []

    def _start(self) -> None:
        """Connect to all hosts, one after another, if that has not begun."""
        if not self._tasks:
            for index, remote in enumerate(self._remotes):
                task = asyncio.create_task(_run_later(index * STAGGER_S, remote))
                self._tasks.append(task)


async def _run_later(seconds: float, remote: Remote) -> None:
    """Run a host after a pause."""
    await asyncio.sleep(seconds)
    await remote.run()
