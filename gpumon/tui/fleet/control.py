"""What the fleet's screen may ask of what is behind it: a Prometheus, and the machines that it tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Collecting, Control, Timeline


class HostControl(Control, Protocol):
    """One host of a fleet, as its screen sees it."""

    @property
    def filling(self) -> bool:
        """Whether the past of its charts is still being read."""


class FleetControl(Collecting, Protocol):
    """A fleet, as the screen sees it."""

    @property
    def place(self) -> str:
        """Host and port of the Prometheus, for the title; without user, password and query. Text from outside."""

    @property
    def prices(self) -> Mapping[str, float]:
        """Catalogue name of a GPU -> price of one hour, "" for all others; empty: none are known."""

    @property
    def asking(self) -> bool:
        """Whether the Prometheus is being asked right now, for a refresh or for a moment of the past."""

    async def start(self, sink: Callable[[FleetSnapshot], None]) -> None:
        """Begin to ask; returns at once. `sink` gets every snapshot and never blocks.

        A Prometheus that does not answer gives a snapshot, too: with the hosts as they were known last (`wall_s` and
        `time` are those of the last answer) and the reason in `faults`; with no hosts and `wall_s` 0 where there was
        no answer yet.
        """

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for; None: nothing yet. Returns at once.

        The first one may be what the Prometheus is assumed to keep: what it has nothing of comes without hosts.
        """

    async def at(self, wall_s: float) -> FleetSnapshot:
        """The fleet as it was at a time, from queries at that time; what can not be had is in its `faults`."""

    async def first_after(self, none_s: float, there_s: float) -> float:
        """Where the fleet begins, to a refresh: there is none at `none_s`, and one at `there_s` (Unix times)."""

    def host(self, name: str, seen: Snapshot | None = None) -> HostControl:
        """One host, for the screen of one machine: `start` gives its snapshots as refreshes bring them, `history` is
        filled from range queries, `timeline` asks the Prometheus. `stop` lets go of it; of those looked at last the
        past is kept. `seen`: the host as it was shown last, for where the Prometheus has nothing of it now."""

    def past(self, name: str) -> Timeline | None:
        """The past of one host, to look for something in: the charts that are kept of hosts stay as they are."""
