"""Chooses the hosts whose pages a refresh of a large fleet reads: they take turns, and what has changed goes first."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

TARGETS_AT_ONCE: Final = 120
"""Targets of a fleet whose pages are all read at every refresh: some 25 hosts. Larger fleets take turns."""
_REFRESHES: Final = 8
"""Refreshes in which each host has its turn once."""
_FEWEST_HOSTS: Final = 12
"""Hosts that a refresh reads at least."""


class Turns:
    """Remembers when each host was read last, counted in refreshes."""

    def __init__(self) -> None:
        self._refreshes = 0
        self._read_at: dict[str, int] = {}
        """Host -> refresh that read it last."""

    def choose(self, hosts: Collection[str], urgent: Collection[str]) -> list[str]:
        """The hosts to be read now: those that are urgent, never read, or were read longest ago.

        Together they are at most two turns' worth, so that a network that fails whole costs no whole reading; and half
        of a turn goes on by age whatever is urgent, so that hosts that go up and down all the time do not keep the
        others waiting for more than twice as long.
        """
        self._refreshes += 1
        self._read_at = {host: self._read_at[host] for host in self._read_at if host in hosts}
        share = max(_FEWEST_HOSTS, math.ceil(len(hosts) / _REFRESHES))
        half = math.ceil(share / 2)
        chosen = dict.fromkeys(self._oldest_first([host for host in urgent if host in hosts])[: 2 * share - half])
        most = max(share, len(chosen) + half)
        for host in self._oldest_first(hosts):
            if len(chosen) >= most:
                break
            chosen[host] = None
        return list(chosen)

    def note(self, hosts: Collection[str]) -> None:
        """Note that these hosts were read."""
        self._read_at |= dict.fromkeys(hosts, self._refreshes)

    def count_unread(self, hosts: Collection[str]) -> int:
        """Number of these hosts that were never read."""
        return sum(host not in self._read_at for host in hosts)

    def turn_s(self, hosts: int, interval_s: float) -> float:
        """Seconds in which each of so many hosts has its turn once, with a refresh every `interval_s`."""
        return math.ceil(hosts / max(_FEWEST_HOSTS, math.ceil(hosts / _REFRESHES))) * interval_s

    def _oldest_first(self, hosts: Collection[str]) -> Sequence[str]:
        """The hosts by when they were read last, those that never were first."""
        return sorted(hosts, key=lambda host: (self._read_at.get(host, 0), host))
