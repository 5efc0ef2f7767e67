"""Which pane gets how many lines: a taller screen adds lines in one fixed order, and takes none away."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 15
"""Below this the screen is one line of summary."""
BESIDE_WIDTH: Final = 140
"""Columns from which the sizing panel stands beside the panes; below, it covers them."""
_PANELS: Final = ((200, 80), (170, 72), (160, 68), (BESIDE_WIDTH, 56))
"""Columns of the screen -> of the panel from there on: from 160 the panes keep 90."""
PANES: Final = ("gpus", "engines", "history", "processes", "triage")
"""In the order of their keys, and from top to bottom."""

_LEAST_BODY: Final = LEAST_HEIGHT - 2
"""Lines in which all tables have a place; where the drawer leaves less, the pane it is about has them alone."""
_LEAST_ALONE: Final = 3
"""Lines that the drawer leaves to whatever it is about."""
_FIRST_GPUS: Final = 8
_FIRST_ENGINES: Final = 4
"""Rows that come before the strip of charts: as many as 80x24 holds."""
_STRIP: Final = 2
_FULL_CHARTS: Final = 20
"""Lines that the charts get before the processes get any."""
_TALL_CHARTS: Final = 40
"""Lines from which the charts let an empty table of processes say that it is empty."""
_FIRST_VERDICTS: Final = 4
_EMPTY_LINES: Final = 2
"""Lines of a table that has nothing to show but why."""


class Counts(NamedTuple):
    """What there is to show."""

    gpus: int = 0
    engines: int = 0
    processes: int = 0
    triage: int = 0
    """Lines of faults and verdicts."""
    evidence: int = 0
    """Lines of what they stand on, and of what happened."""
    urgent: int = 0
    """Of the lines of faults and verdicts those under which somebody suffers."""

    @property
    def calm(self) -> Counts:
        """If nothing but what is urgent had verdicts."""
        return self._replace(triage=self.urgent, evidence=0)


class Plan(NamedTuple):
    """Lines of each pane, its rule included; 0 is hidden, 1 just the rule. All 0 is the one-line summary."""

    gpus: int = 0
    engines: int = 0
    history: int = 0
    processes: int = 0
    triage: int = 0
    page: int = 0
    """Lines of the page that covers the panes."""
    drawer: int = 0

    @property
    def panes(self) -> tuple[int, ...]:
        """Lines of the panes, in the order of `PANES`."""
        return tuple(self[: len(PANES)])

    @property
    def tiny(self) -> bool:
        """Whether there is room for a summary only."""
        return not any(self)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Panes that got no place."""
        return tuple(name for name, lines in zip(PANES, self.panes, strict=True) if not lines)


def panel_width(width: int) -> int:
    """Columns that the sizing panel takes from the panes on a screen of `width`; 0: it covers them."""
    return next((columns for least, columns in _PANELS if width >= least), 0)


@lru_cache(maxsize=64)
def plan(
    width: int,
    height: int,
    counts: Counts,
    *,
    zoomed: str = "",
    page: bool = False,
    drawer: int = 0,
    about: str = PANES[0],
) -> Plan:
    """The lines of each pane on a screen of `width` x `height` cells.

    `zoomed`: the pane that takes all of them. `page`: a page covers the panes. `drawer`: lines that it wants at the
    foot; `about`: the pane that it is about.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Plan()
    drawer = min(drawer, height - 2 - _LEAST_ALONE)
    body = height - 2 - drawer
    if page:
        return Plan(page=body, drawer=drawer)
    if not zoomed and body < _LEAST_BODY:
        zoomed = about
    if zoomed:
        return Plan(drawer=drawer)._replace(**{zoomed: body})
    lines = dict.fromkeys(PANES, 0)
    for name, wanted in _stages(counts):
        more = min(max(0, wanted - lines[name]), body)
        lines[name] += more
        body -= more
    lines["history"] += body
    return Plan(**lines, drawer=drawer)


def _stages(counts: Counts) -> Iterator[tuple[str, int]]:
    """Who gets lines next, and up to how many: the order in which things appear as a screen grows.

    Whatever is left at the end makes the charts taller.
    """
    gpus, engines = 2 + (counts.gpus or _EMPTY_LINES - 1), 2 + (counts.engines or _EMPTY_LINES - 1)
    yield from (("gpus", 3), ("engines", 3), ("triage", 2))
    yield from _rows(min(gpus, 2 + _FIRST_GPUS), min(engines, 2 + _FIRST_ENGINES))
    yield "history", _STRIP
    yield from _rows(gpus, engines)
    yield "triage", 1 + min(counts.triage, _FIRST_VERDICTS)
    yield "history", _FULL_CHARTS
    if counts.processes:
        yield "processes", 2 + counts.processes
    yield "triage", 1 + max(1, counts.triage) + counts.evidence
    yield "history", _TALL_CHARTS
    yield "processes", 2


def _rows(gpus: int, engines: int) -> Iterator[tuple[str, int]]:
    """Two GPUs for each engine, until both tables have what they fill."""
    for pair in range(max(-(-gpus // 2), engines)):
        yield "gpus", min(gpus, 3 + 2 * pair)
        yield "engines", min(engines, 3 + pair)
    yield from (("gpus", gpus), ("engines", engines))
