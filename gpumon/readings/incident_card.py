"""An incident as people post it: its cause, what came of it, how its figures went, what to try and what happened."""

from __future__ import annotations

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.period import Incident


class CardChart(msgspec.Struct, frozen=True):
    """One series from before the incident until after it."""

    series: str
    """Key of the series (`efficiency.points`): `kv@KEY`, `power:3`, `decode`."""
    thing: str
    """Shown name of the thing it is of; empty: the host."""
    points: tuple[tuple[float, float], ...]
    """Unix time and mean of each cell; a cell without a reading is left out."""
    before: Reading = NOT_EXPOSED
    """Mean before the incident."""
    during: Reading = NOT_EXPOSED
    after: Reading = NOT_EXPOSED


class ChainLink(msgspec.Struct, frozen=True):
    """A link of the chain from a cause to those who suffer."""

    what: str
    """`llama-70b hung`, `85 queued`."""
    id: str = ""
    """Id of the verdict; empty: it is of none alone."""
    begin_s: float | None = None
    """Unix time; None: it has no begin of its own."""
    after_s: float | None = None
    """Seconds after the cause, 0 for that itself."""
    again: bool = False
    """Whether another link of the same thing says more."""


class CardEvent(msgspec.Struct, frozen=True):
    """Something else that happened meanwhile: a restart, other options, a process that came or went."""

    wall_s: float
    scope: str
    text: str


class IncidentCard(msgspec.Struct, frozen=True):
    """One incident with its consequences."""

    host: str
    simulated: bool
    root: Incident
    consequences: tuple[Incident, ...]
    """In the order in which they began."""
    begin_s: float
    """Unix time at which the root began."""
    end_s: float
    """Unix time at which the last of all was over, or the past ends."""
    from_s: float
    """Unix time at which the charts begin."""
    to_s: float
    """Unix time at which the charts end."""
    chain: tuple[ChainLink, ...] = ()
    """Empty where the cause is no verdict."""
    evidence: tuple[str, ...] = ()
    """Figures that the root's verdict rests on, as it was told at its worst."""
    actions: tuple[str, ...] = ()
    """Actions that were advised then, the best first."""
    charts: tuple[CardChart, ...] = ()
    """At most three."""
    events: tuple[CardEvent, ...] = ()
    """Oldest first."""
