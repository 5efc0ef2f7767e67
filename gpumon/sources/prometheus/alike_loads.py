"""Engines without GPUs and hosts with GPUs at work whose loads move together: most likely one machine under two names.

Only where no label brings them together is their load looked at. It is a proposal with its evidence, never used by
itself: engines behind one balancer move together, too.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from statistics import StatisticsError, correlation, fmean, pstdev
from typing import Final, TypeVar

from gpumon.readings.text import clean
from gpumon.sources.prometheus.hosts import host_name
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.targets import LabelPairs

ALIKE: Final = (
    "by load {} and the GPUs of {} may be one machine: its requests and their watts moved together over {} scrapes or "
    "more (correlation above {}), and with nothing else"
)
_KEPT: Final = 40
"""Scrapes that are compared at most."""
FEWEST: Final = 12
"""Scrapes that are compared at least."""
LEAST_CORRELATION: Final = 0.9
_LEAST_LEAD: Final = 0.2
"""By so much the correlation of a pair is above that of either with anything else."""
_LEAST_SWING: Final = 0.05
"""Standard deviation of a load as a share of its mean from which it moves."""
MOST_THINGS: Final = 60
"""Engines, or hosts, that are compared: with more of them none is, as what is left out might fit better."""
_MOST_NAMED: Final = 3
"""Pairs that a notice names."""


K = TypeVar("K", bound=Hashable)


class LoadTracks:
    """The loads of engines and hosts that are apart, one value for each scrape."""

    def __init__(self) -> None:
        self._engines: dict[LabelPairs, deque[float]] = {}
        """Key of an engine's target -> its requests."""
        self._hosts: dict[MachineId, deque[float]] = {}
        """Host without an engine -> watts of its GPUs."""
        self._last_s = -math.inf
        self.pairs: list[tuple[LabelPairs, MachineId]] = []
        """Engines and hosts that move together, and with nothing else, as of the newest scrape."""

    def note(
        self, engines: Mapping[LabelPairs, float], hosts: Mapping[MachineId, float], at_s: float, interval_s: float
    ) -> None:
        """Note the loads of what is apart at a moment, unless there was no scrape since the last one. What is not among
        it is forgotten."""
        if at_s - self._last_s < interval_s:
            return
        self._last_s = at_s
        if max(len(engines), len(hosts)) > MOST_THINGS:
            engines = {}
            hosts = {}
        self._engines = _with_newest(self._engines, engines)
        self._hosts = _with_newest(self._hosts, hosts)
        self.pairs = self._alike_pairs()

    def _alike_pairs(self) -> list[tuple[LabelPairs, MachineId]]:
        """Engines and hosts that move together, and with nothing else."""
        engines = {key: track for key, track in self._engines.items() if _moves(track)}
        hosts = {key: track for key, track in self._hosts.items() if _moves(track)}
        alike = {
            (engine, host): _correlation(load, watts)
            for engine, load in engines.items()
            for host, watts in hosts.items()
        }
        found = []
        for (engine, host), together in alike.items():
            if together < LEAST_CORRELATION:
                continue
            # Those that share one of the two with this pair.
            others = [value for pair, value in alike.items() if (pair[0] == engine) != (pair[1] == host)]
            if together - max(others, default=0.0) >= _LEAST_LEAD:
                found.append((engine, host))
        return found


def _with_newest(tracks: Mapping[K, deque[float]], newest: Mapping[K, float]) -> dict[K, deque[float]]:
    """The tracks of the things of now, each with its newest load."""
    longer: dict[K, deque[float]] = {}
    for key, load in newest.items():
        track = tracks.get(key, deque(maxlen=_KEPT))
        track.append(load)
        longer[key] = track
    return longer


def _moves(track: Sequence[float]) -> bool:
    """Whether a load was seen for long enough, and is not the same all the time."""
    return len(track) >= FEWEST and pstdev(track) > _LEAST_SWING * fmean(track)


def _correlation(load: Sequence[float], watts: Sequence[float]) -> float:
    """Correlation of two loads over the scrapes that both have; 0 where there is none."""
    common = min(len(load), len(watts))
    try:
        return correlation(list(load)[-common:], list(watts)[-common:])
    except StatisticsError:
        return 0.0


def alike_notice(tracks: LoadTracks, clusters: int) -> str:
    """The notice of pairs that move together; empty where there are none."""
    texts = []
    for engine, host in tracks.pairs[:_MOST_NAMED]:
        address = dict(engine).get("instance", "")
        name = host_name(host.name, host.cluster, clusters)
        texts.append(ALIKE.format(clean(address, 80), name, FEWEST, LEAST_CORRELATION))
    if len(tracks.pairs) > _MOST_NAMED:
        texts.append(f"{len(tracks.pairs) - _MOST_NAMED} more pairs")
    return "; ".join(texts)
