"""Which pane gets how many lines: small screens lose lines in a fixed order, large ones give them to the charts."""

from __future__ import annotations

from typing import Final, NamedTuple

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 15
"""Below this the screen is one line of summary."""
PANES: Final = ("gpus", "engines", "history", "faults")
"""In the order of their keys 1, 2, 3, 4, and from top to bottom."""

_CHARTS_FROM: Final = 16
"""Body lines from which the charts get a place: below, the rows of GPUs and engines come first."""
_MOST_FAULTS: Final = 4
_EMPTY_LINES: Final = 2
"""Lines of a table that has nothing to show but why."""


class Plan(NamedTuple):
    """Lines of each pane, its rule included; 0 is hidden. All 0 is the one-line summary."""

    gpus: int = 0
    engines: int = 0
    history: int = 0
    faults: int = 0

    @property
    def tiny(self) -> bool:
        """Whether there is room for a summary only."""
        return not any(self)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Panes that got no place."""
        return tuple(name for name, lines in zip(PANES, self, strict=True) if not lines)


def plan(width: int, height: int, gpus: int, engines: int, faults: int, zoomed: str = "") -> Plan:
    """The lines of each pane on a screen of `width` x `height` cells; `zoomed` takes all of them."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Plan()
    body = height - 2
    if zoomed:
        return Plan(**{zoomed: body})
    chart = 2 if body >= _CHARTS_FROM else 0
    fault = 2
    rows = body - chart - fault
    want_gpus, want_engines = 2 + (gpus or _EMPTY_LINES), 2 + (engines or _EMPTY_LINES)
    engine = min(want_engines, max(3, rows // 3))
    gpu = min(want_gpus, rows - engine)
    engine = min(want_engines, rows - gpu)
    spare = rows - gpu - engine
    if chart:
        more = min(max(0, spare - 1), max(0, min(faults, _MOST_FAULTS) - 1))
        return Plan(gpu, engine, chart + spare - more, fault + more)
    return Plan(gpu, engine, 0, fault + spare)
