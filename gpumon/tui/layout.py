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

# Lines and rows that come before others as a screen grows, in the order of `_claims`.
_FIRST_GPU_ROWS: Final = 8
_FIRST_ENGINE_ROWS: Final = 4
"""Rows that come before the strip of charts: as many as 80x24 holds."""
_STRIP_LINES: Final = 2
"""Lines of charts that come before tables of more rows."""
_SOME_CHARTS: Final = 9
"""Lines that the charts get before the processes get any."""
_FIRST_CHARTS: Final = 13
"""Lines that the charts get before there are more verdicts."""
_FIRST_PROCESSES: Final = 6
"""Rows of processes that come before more of anything else: those of the first screen."""
_FULL_CHARTS: Final = 20
"""Lines that the charts get before the processes get all of theirs."""
_LEAST_CHARTS_BELOW: Final = 5
"""Lines that charts take below a zoomed table, at least: fewer stay blank."""
_TALL_CHARTS: Final = 40
"""Lines from which the charts let an empty table of processes say that it is empty."""
_SOME_VERDICTS: Final = 5
"""Lines of faults and verdicts that come before more charts."""
_FIRST_VERDICTS: Final = 9
"""Lines of faults and verdicts that come before `_FIRST_CHARTS`."""
_FOOT_HEIGHT: Final = 30
"""Lines of a fleet's screen from which the host under the cursor has a place at the foot."""
_FIRST_HOSTS: Final = 8
"""Rows of the table that come before the foot."""
_LEAST_FOOT: Final = 4
"""Lines of the foot, at least."""
_LEAST_TABLE: Final = 6
"""Lines of table below which the sentence of a row has none."""
_MOST_BLANK: Final = 3
"""Lines of a fleet's screen that may stay blank."""
_LEAST_FLEET_CHARTS: Final = 5
"""Lines of the charts of all hosts, or of the wall below the table, at least."""
_MANY_FLEET_CHARTS: Final = 24
"""Lines of them that are enough, if there is more to tell."""
_ONE_LINE_WIDTH: Final = 150
"""Columns from which a fleet's sums need one line only."""
_EDGES: Final = 3
"""Lines that are not the panes': title, headline, keys."""
_RULE: Final = 1
"""Lines of a pane that are no rows: its rule."""
_HEADS: Final = 2
"""Lines of a table that are no rows: its rule and its header."""
_EMPTY_LINES: Final = 2
"""Lines of a table that has nothing to show but why."""


class Counts(NamedTuple):
    """Numbers of rows, or of lines, that there are to show."""

    gpus: int = 0
    engines: int = 0
    processes: int = 0
    triage: int = 1
    """Lines of faults and verdicts."""
    evidence: int = 0
    """Lines of what they stand on, and of what happened."""
    urgent: int = 1
    """Lines of the worst fault or verdict, which come before the charts."""
    wall: int = 0
    """Lines of a wall of GPUs, which takes the place of rows that do not fit; 0: the user wants rows."""


class Plan(NamedTuple):
    """Lines of each pane, its rule included; 0 is hidden, 1 just the rule. All 0 is the one-line summary."""

    gpus: int = 0
    engines: int = 0
    history: int = 0
    processes: int = 0
    triage: int = 0
    page: int = 0
    """Lines of the page that covers the panes."""
    headline: int = 0
    """Lines between the title and all else: 1 wherever tables have room."""

    @property
    def panes(self) -> tuple[int, ...]:
        """Lines of the panes, in the order of `PANES`."""
        return tuple(self[: len(PANES)])

    @property
    def parts(self) -> tuple[int, ...]:
        """Lines of the headline, then of the panes in the order of `PANES`."""
        return (self.headline, *self.panes)

    @property
    def tiny(self) -> bool:
        """Whether there is room for a summary only."""
        return not any(self)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Panes that got no place."""
        hidden = [name for name, lines in zip(PANES, self.panes, strict=True) if not lines]
        return tuple(hidden)


def panel_width(width: int) -> int:
    """Columns that the sizing panel takes from the panes on a screen of `width`; 0: it covers them."""
    return next((columns for least, columns in _PANELS if width >= least), 0)


@lru_cache(maxsize=64)
def pane_heights(
    width: int,
    height: int,
    counts: Counts,
    *,
    zoomed: str = "",
    page: bool = False,
) -> Plan:
    """The lines of each pane on a screen of `width` x `height` cells.

    `zoomed`: the pane that takes as many of them as it has a use for. `page`: a page covers the panes.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Plan()
    body = height - _EDGES
    if page:
        return Plan(page=body, headline=1)
    if zoomed:
        return _zoomed_plan(zoomed, counts, body)
    lines = _divide_lines(counts, body)
    if counts.wall and lines["gpus"] < counts.gpus + _HEADS:
        rows_of_wall = max(1, counts.wall - 1)  # a wall has no header, which `_claims` adds
        lines = _divide_lines(counts._replace(gpus=rows_of_wall), body)
    return Plan(**lines, headline=1)


def _zoomed_plan(zoomed: str, counts: Counts, body: int) -> Plan:
    """The lines of the zoomed pane; engines or processes that do not fill `body` lines leave the rest to the charts
    below them, if that is enough for some."""
    rows = {"engines": counts.engines, "processes": counts.processes}.get(zoomed)
    if rows is not None:
        lines = _HEADS + max(1, rows)
        if body - lines >= _LEAST_CHARTS_BELOW:
            return Plan(headline=1)._replace(**{zoomed: lines, "history": body - lines})
    return Plan(headline=1)._replace(**{zoomed: body})


def _divide_lines(counts: Counts, body: int) -> dict[str, int]:
    """The lines of each pane, of `body` lines; the charts get what is left."""
    lines = dict.fromkeys(PANES, 0)
    for claim in _claims(counts):
        more = min(max(0, claim.lines - lines[claim.pane]), body)
        lines[claim.pane] += more
        body -= more
        if not body:
            break
    lines["history"] += body
    return lines


class _Claim(NamedTuple):
    """The lines up to which a pane is given more, before the next claim is served."""

    pane: str
    lines: int


def _claims(counts: Counts) -> Iterator[_Claim]:
    """The claims of the panes, the first served first: the order in which things appear as a screen grows.

    A later claim of a pane contains its earlier ones. Whatever is left at the end makes the charts taller.
    """
    gpus = _HEADS + (counts.gpus or _EMPTY_LINES - 1)
    engines = _HEADS + counts.engines if counts.engines else _EMPTY_LINES
    # One row of each table, and a line under the rule of triage.
    yield _Claim("gpus", _HEADS + 1)
    yield _Claim("engines", min(engines, _HEADS + 1))
    yield _Claim("triage", _RULE + 1)
    yield from _row_claims(min(gpus, _HEADS + _FIRST_GPU_ROWS), min(engines, _HEADS + _FIRST_ENGINE_ROWS))
    yield _Claim("triage", _RULE + max(1, counts.urgent))
    yield _Claim("history", _STRIP_LINES)
    yield from _row_claims(gpus, engines)
    yield _Claim("triage", _RULE + min(max(1, counts.triage), _SOME_VERDICTS))
    yield _Claim("history", _SOME_CHARTS)
    if counts.processes:
        yield _Claim("processes", _HEADS + min(counts.processes, _FIRST_PROCESSES))
    yield _Claim("triage", _RULE + min(max(1, counts.triage), _FIRST_VERDICTS))
    yield _Claim("history", _FIRST_CHARTS)
    yield _Claim("history", _FULL_CHARTS)
    if counts.processes:
        yield _Claim("processes", _HEADS + counts.processes)
    yield _Claim("triage", _RULE + max(1, counts.triage) + counts.evidence)
    yield _Claim("history", _TALL_CHARTS)
    yield _Claim("processes", _EMPTY_LINES)


def _row_claims(gpus: int, engines: int) -> Iterator[_Claim]:
    """Claims of the tables up to so many lines each, in turn: two GPUs for each engine."""
    pairs_of_gpus = -(-gpus // 2)  # rounded up
    for pair in range(max(pairs_of_gpus, engines)):
        yield _Claim("gpus", min(gpus, _HEADS + 1 + 2 * pair))
        yield _Claim("engines", min(engines, _HEADS + 1 + pair))
    yield from (_Claim("gpus", gpus), _Claim("engines", engines))


class FleetPlan(NamedTuple):
    """Lines of each part; 0 is hidden. All 0 is the summary alone."""

    faults: int = 0
    summary: int = 0
    table: int = 0
    foot: int = 0
    troubles: int = 0
    """Lines of all that is wrong, in room that rows leave."""
    charts: int = 0
    """Lines of the charts of all hosts together, in what is left then."""
    sentence: int = 0
    """Lines of what is wrong with the row under the cursor."""
    wall: int = 0
    """Lines of the wall of GPUs: in the place of the table and of what is about its rows, or in what is left below
    them."""
    page: int = 0
    """Lines of what covers the table: the help, or the sizing panel."""
    headline: int = 0
    """Lines between the title and all else."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Lines of all between title and keys, top to bottom."""
        above = (self.headline, self.faults, self.summary, self.table, self.foot)
        return (*above, self.troubles, self.charts, self.sentence, self.wall)

    @property
    def tiny(self) -> bool:
        """Whether there is room for a summary only."""
        return not any(self)


def fleet_plan(
    width: int,
    height: int,
    *,
    rows: int,
    foot: int,
    faults: int,
    sentence: int,
    covered: bool,
    wall: bool = False,
    troubles: int = 0,
    charted: bool = False,
    tiles: bool = False,
    more: int = 0,
) -> FleetPlan:
    """The lines of each part on a screen of `width` x `height` cells.

    `rows`: lines of the table's body; `more`: lines that long words of them could use; `foot`: lines that the foot
    could use; `faults`: lines of the faults; `sentence`: lines of what is wrong with the row under the cursor. Faults
    and that sentence have a line each, and more where rows leave some. `troubles`: lines of all that is wrong;
    `charted`: whether there is something to chart; both have room that the others leave. `tiles`: whether there are
    GPUs, of which a wall has that room where there are no charts. `covered`: the help or the sizing panel stands over
    the table. `wall`: the wall of GPUs stands in the place of the table.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return FleetPlan()
    body = height - _EDGES
    if covered:
        return FleetPlan(page=body, headline=1)
    summary = 1 if width >= _ONE_LINE_WIDTH or height < _FOOT_HEIGHT else 2
    free = max(0, body - summary - _HEADS - rows - min(1, faults))
    faults = min(faults, 1 + free)
    body -= faults + summary
    if wall:
        return FleetPlan(faults=faults, summary=summary, wall=body, headline=1)
    foot = _foot_lines(rows, foot, body) if height >= _FOOT_HEIGHT else 0
    sentence = 0 if foot else _sentence_lines(rows, sentence, body)  # the foot says what is wrong
    spare = body - foot - sentence - _HEADS - max(rows, 1) - more
    troubles, pictured = _lines_in_spare(spare, troubles, pictured=charted or tiles)
    return FleetPlan(
        faults=faults,
        summary=summary,
        table=body - foot - sentence - troubles - pictured,
        foot=foot,
        troubles=troubles,
        charts=pictured if charted else 0,
        sentence=sentence,
        wall=0 if charted else pictured,
        headline=1,
    )


def _lines_in_spare(spare: int, troubles: int, *, pictured: bool) -> tuple[int, int]:
    """Lines of all that is wrong, and of charts or a wall, in lines that nothing else needs: these have half of them or
    more."""
    if spare <= _MOST_BLANK:
        return 0, 0
    if not pictured or spare < _LEAST_FLEET_CHARTS:
        return min(troubles, spare), 0
    room = max(spare // 2, spare - _MANY_FLEET_CHARTS)
    shown = min(troubles, room if spare - room >= _LEAST_FLEET_CHARTS else spare - _LEAST_FLEET_CHARTS)
    if shown <= _RULE:
        shown = 0
    return shown, spare - shown


def _sentence_lines(rows: int, sentence: int, body: int) -> int:
    """Lines of what is wrong with the row under the cursor: one, and more where rows leave some of `body`."""
    if not rows or body < _LEAST_TABLE:
        return 0
    return min(sentence, max(1, body - _HEADS - rows))


def _foot_lines(rows: int, foot: int, body: int) -> int:
    """Lines of the foot: as many as it could use and the first rows leave of `body`; 0 where these are too few."""
    room = body - _HEADS
    most = room - min(rows, max(_FIRST_HOSTS, room // 2))
    lines = min(foot, most)
    if lines < _LEAST_FOOT:
        return 0
    return lines
