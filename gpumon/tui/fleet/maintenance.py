"""The question after the key that silences a host of a fleet, or all hosts with a label: why, and for how long."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.format import counted
from gpumon.readings.text import clean
from gpumon.specs.units import HOUR_S
from gpumon.tui.control import FleetQueries
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.widgets.title_bar import date_text

_HOURS: Final = (2.0, 8.0, 24.0, 72.0, 168.0)
"""Hours to choose from; the first one is taken where only a reason is typed."""
_MOST_LABELS: Final = 4
"""Labels that are offered."""
_MOST_NAME: Final = 60
"""Characters of the name of a host or of a label with its value."""


class _Silence(NamedTuple):
    """A host or a label that a choice silences, and for how long; 0 seconds: it ends."""

    what: str
    """The host's name, or `label=value`."""
    seconds: float


def maintenance_question(
    fleet: FleetQueries, row: FleetRow, hosts: Sequence[HostShown], say: Callable[[str], None]
) -> Question:
    """The question why and for how long the host of a row, or all hosts with a label of it, are in maintenance. `say`
    shows a notice."""
    (host,) = row.parts.hosts  # a host's row is made of this one host
    choices = list(_choices(host, hosts))
    reason = host.maintenance.reason if host.maintenance is not None and host.maintenance.until else ""

    def choose(choice: Choice | None, text: str) -> None:
        if choice is None or not isinstance(choice.value, _Silence):
            return
        what, seconds = choice.value
        shown = clean(what, _MOST_NAME)
        if not seconds:
            fleet.end_maintenance(what)
            say(f"not in maintenance any more: {shown}")
            return
        fleet.begin_maintenance(what, text.strip(), seconds)
        now_s = time.time()
        until = date_text(now_s + seconds, now_s).rpartition(":")[0]  # no seconds
        say(f"in maintenance until {until}: {shown}; kept on this machine")

    return Question(
        f"maintenance of {clean(host.name, _MOST_NAME)}, why:",
        lambda _: choices,
        choose,
        text=reason,
        hint="Enter: for the hours below · Esc: not",
    )


def _choices(host: HostShown, hosts: Sequence[HostShown]) -> Iterator[Choice]:
    """The host and each label that groups hosts, for the hours; first the end of a maintenance that it is in."""
    names = [(host.name, "this host"), *_labels_of(host, hosts)]
    if host.maintenance is not None and host.maintenance.until:
        for what, meaning in names:
            yield Choice(f"{clean(what, _MOST_NAME)}: end it", f"{meaning} counts again", _Silence(what, 0.0))
    for what, meaning in names:
        for hours in _HOURS:
            yield Choice(f"{clean(what, _MOST_NAME)}: {_hours_text(hours)}", meaning, _Silence(what, hours * HOUR_S))


def _labels_of(host: HostShown, hosts: Sequence[HostShown]) -> Iterator[tuple[str, str]]:
    """Labels that the host shares with some others, but not with all: `rack=B`, and how many hosts have it."""
    counts = Counter(pair for other in hosts for pair in other.labels.items())
    shared = [pair for pair in host.labels.items() if 1 < counts[pair] < len(hosts)]
    shared.sort(key=lambda pair: (counts[pair], pair))
    for label, value in shared[:_MOST_LABELS]:
        yield f"{label}={value}", f"all {counted(counts[label, value], 'host')} with it"


def _hours_text(hours: float) -> str:
    """`8 hours`, `3 days`."""
    return f"{hours / 24.0:.0f} days" if hours > 24.0 else counted(round(hours), "hour")
