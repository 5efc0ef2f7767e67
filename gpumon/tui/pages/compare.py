"""The page `then | now | change`: an engine, a GPU or the host beside what it was at the marked moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import ClassVar, Final

from textual.worker import WorkType

from gpumon.readings.before_after import BeforeAfter, ComparedSpan, FigureChange, Judgement, ThingChange, VerdictChange
from gpumon.readings.change_words import (
    NOTHING_DIFFERS,
    amount_text,
    difference_text,
    effect_text,
    fact_text,
    figure_name,
    is_better,
    is_shown,
    load_text,
)
from gpumon.readings.format import cells, cut, left, right, wall_of
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Kind
from gpumon.triage.render import LIMIT_NAMES, verdict_text
from gpumon.tui.control import Timeline
from gpumon.tui.detail.things import ShownKey
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import clock
from gpumon.tui.triage_words import LEVEL_MARKS
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_CALM_S: Final = 0.3
"""Seconds for which the moment must stand before it is compared: whoever goes through time asks for many."""
_REST: Final = 9.0
"""Times as long as a comparison took, the next one of the present waits: it takes a tenth of the time at most."""
_NAME: Final = 17
_FIGURE: Final = 9
_CHANGE: Final = 12
_WIDE: Final = 118
"""Columns from which settings and verdicts stand beside the figures."""
_GAP: Final = 3
_TABLE: Final = 1 + _NAME + 3 * (_FIGURE + 2) + _CHANGE
"""Columns of the table of figures."""


class ComparePage(Pane):
    """Shows one thing at a time. Compares once it is asked to, and again where another moment is shown.

    A moment of the past must stand for that; the present is compared with each tick, or less often where
    that costs much.
    """

    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._thing: ShownKey = ("", "")
        self._timeline: Timeline | None = None
        self._marked_s = 0.0
        self._now_s = 0.0
        """The moment that was compared last, or is being compared."""
        self._answer: BeforeAfter | None = None
        self._fault = ""
        self._is_comparing = False
        self._took_s = 0.0
        """Time that the last comparison took, if it went on from one before or failed."""

    def look_at(self, thing: ShownKey) -> None:
        """Show another thing: its kind (host, engine, gpu) and its key."""
        self._thing = thing
        self._top = 0

    def compare(self, timeline: Timeline, marked_s: float) -> None:
        """Compare what is shown with the moment that was marked."""
        self._timeline = timeline
        self._marked_s = marked_s
        self._answer = None
        self._fault = ""
        self._compare_soon(0.0)
        self.update()

    def show(self, snapshot: Snapshot) -> None:
        """Another moment is compared anew; what is kept for that is let go of once the page is closed."""
        super().show(snapshot)
        if self._timeline is None:
            return
        if not self.display:
            self._timeline.end_comparing()
            self._timeline = None
        elif self.past and snapshot.wall_s != self._now_s:
            self._compare_soon(_CALM_S)
        elif not self.past and self._is_due(snapshot):
            self._compare_soon(0.0)

    def _is_due(self, snapshot: Snapshot) -> bool:
        """Whether the present is compared again; its clock may have been set back."""
        return not self._is_comparing and abs(snapshot.wall_s - self._now_s) > _REST * self._took_s

    def _compare_soon(self, calm_s: float) -> None:
        if self.snapshot is None or self._timeline is None:
            return
        self._now_s = self.snapshot.wall_s
        work: WorkType[None] = partial(self._compare, self._timeline, calm_s)
        self.run_worker(work, group="compare", exclusive=True)

    async def _compare(self, timeline: Timeline, calm_s: float) -> None:
        """Compare once no other moment has been asked for."""
        await asyncio.sleep(calm_s)
        self._is_comparing = True
        goes_on = self._answer is not None
        begun_s = time.monotonic()
        try:
            self._answer = await timeline.compare(self._marked_s, self._now_s)
            self._fault = ""
        except ValueError as wrong:
            self._answer = None
            self._fault = clean(str(wrong))
        except ImportError:  # this page's modules are imported when it is opened
            self._answer = None
            self._fault = "gpumon's files were changed while it runs: start it again"
        except Exception as error:  # whatever went wrong costs the comparison, not the screen
            self._answer = None
            self._fault = clean(f"this cannot be compared: {type(error).__name__}: {error}")
        finally:
            self._is_comparing = False
        if goes_on or self._fault:
            self._took_s = time.monotonic() - begun_s
        else:
            self._took_s = 0.0
        self.update()

    def step_aside(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) thing; returns whether there is another one."""
        things = self._things()
        if len(things) < 2:
            return False
        place = next((at for at, thing in enumerate(things) if _key_of(thing) == self._thing), 0)
        self._thing = _key_of(things[(place + step) % len(things)])
        self._top = 0
        self.update()
        return True

    def _things(self) -> Sequence[ThingChange]:
        if self._answer is None:
            return ()
        return self._answer.things

    def _shown_thing(self) -> ThingChange | None:
        """The thing that is looked at; the host where neither side has it."""
        things = self._things()
        for thing in things:
            if _key_of(thing) == self._thing:
                return thing
        if things:
            return things[0]
        return None

    def title(self) -> str:
        """Name of the thing."""
        thing = self._shown_thing()
        if thing is None:
            return "then and now"
        return f"then and now: {_name_of(thing)}"

    def note(self) -> str:
        """Which of the things it is."""
        things = self._things()
        if len(things) < 2:
            return ""
        place = next((at for at, thing in enumerate(things) if _key_of(thing) == self._thing), 0)
        return f"{place + 1}/{len(things)}"

    def head(self, width: int) -> Sequence[Row]:
        """Both spans, and how the loads compare."""
        answer = self._answer
        thing = self._shown_thing()
        if answer is None or thing is None:
            return ()
        spans = f" then {_span_text(answer.before)}   now {_span_text(answer.after)}"
        tone = "text" if thing.is_comparable else "warn"
        rows: list[Row] = [((cut(spans, width), "strong"),)]
        load = load_text(thing)
        if load:
            rows.append(((cut(f" {load}", width), tone),))
        effect = effect_text(thing)
        if effect:
            rows.append(((cut(f" {effect}", width), "text"),))
        return rows

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """Figures, settings and verdicts; or why there are none."""
        if self._fault:
            return [((line, "warn"),) for line in folded(f" {self._fault}", width)]
        answer = self._answer
        thing = self._shown_thing()
        if answer is None or thing is None:
            return (((" comparing …", "muted"),),)
        figures = _figure_rows(thing)
        if width < _WIDE:
            return [*_settings(answer, thing, width), (), *figures, *_verdicts(answer, thing, width)]
        beside = width - _TABLE - _GAP
        other = [*_settings(answer, thing, beside), *_verdicts(answer, thing, beside)]
        return [_joined(one, two) for one, two in zip_longest(figures, other, fillvalue=())]


def _joined(one: Row, other: Row) -> Row:
    """Two rows side by side."""
    used = sum(cells(text) for text, _ in one)
    return (*one, (" " * (_TABLE + _GAP - used), "text"), *other)


def _key_of(thing: ThingChange) -> ShownKey:
    return thing.kind.value, thing.key


def _name_of(thing: ThingChange) -> str:
    if thing.kind is Kind.ENGINE:
        return f"engine {thing.name}"
    return thing.name


def _span_text(span: ComparedSpan) -> str:
    """`03:05:00-03:10:00`."""
    begin = clock(wall_of(span.begin))
    end = clock(wall_of(span.end))
    return f"{begin}-{end}"


def _figure_rows(thing: ThingChange) -> list[Row]:
    """The table of figures."""
    head = [left("", _NAME), *(right(title, _FIGURE + 2) for title in ("then", "now"))]
    head += [right("change", _CHANGE), right("noise", _FIGURE + 2)]
    rows: list[Row] = [((" " + "".join(head), "muted"),)]
    for figure in thing.figures:
        if is_shown(figure):
            rows.append(_figure_row(figure))
    return rows


def _figure_row(figure: FigureChange) -> Row:
    """One figure; what changed stands out, by its tone as by its words."""
    before = right(amount_text(figure.unit, figure.before), _FIGURE + 2)
    after = right(amount_text(figure.unit, figure.after), _FIGURE + 2)
    noise = right(amount_text(figure.unit, figure.noise), _FIGURE + 2)
    return (
        (" " + left(figure_name(figure), _NAME), "text"),
        (before, "text"),
        (after, "strong" if figure.judgement is Judgement.CHANGED else "text"),
        (right(difference_text(figure), _CHANGE), _tone_of(figure)),
        (noise, "muted"),
    )


def _tone_of(figure: FigureChange) -> str:
    if figure.judgement is not Judgement.CHANGED:
        return "muted"
    better = is_better(figure)
    if better is None:
        return "strong"
    if better:
        return "ok"
    return "warn"


def _settings(answer: BeforeAfter, thing: ThingChange, width: int) -> list[Row]:
    """Settings of the thing that differ; on the page of the host, those of all things."""
    texts = []
    for other in answer.things:
        if other is thing:
            texts += [fact_text(change, _at) for change in other.changes]
        elif thing.kind is Kind.HOST:
            texts += [f"{_name_of(other)}: {fact_text(change, _at)}" for change in other.changes]
    rows: list[Row] = [((" set differently", "strong"),)]
    if not texts:
        return [*rows, ((f"   {NOTHING_DIFFERS}", "muted"),)]
    for text in texts:
        for place, line in enumerate(folded(text, max(20, width - 5))):
            rows.append(((f"   {line}" if place == 0 else f"     {line}", "text"),))
    return rows


def _at(unix_s: str) -> str:
    return f"at {clock(float(unix_s))}"


def _verdicts(answer: BeforeAfter, thing: ThingChange, width: int) -> list[Row]:
    """Verdicts on the thing in either span; of the host all."""
    rows: list[Row] = []
    for change in answer.verdicts:
        verdict = change.verdict
        if thing.kind is Kind.HOST or (verdict.kind, verdict.key) == (thing.kind, thing.key):
            rows += _verdict_rows(change, width, scoped=thing.kind is Kind.HOST)
    if rows:
        return [(), ((" verdicts: share of then and now in which they stood", "strong"),), *rows]
    return []


def _verdict_rows(change: VerdictChange, width: int, *, scoped: bool) -> list[Row]:
    """A verdict with its shares, over as many lines as it needs."""
    verdict = change.verdict
    shares = f" {_share(change.before_ratio):>4} {_share(change.after_ratio):>4} "
    scope = f"{verdict.scope} " if scoped else ""
    text = f"{scope}{LIMIT_NAMES[verdict.code]}: {verdict_text(verdict, clock)}"
    glyph, tone, _ = LEVEL_MARKS[change.level]
    first: Piece = (glyph, tone)
    indent = cells(shares) + cells(glyph) + 1
    rows: list[Row] = []
    for line in folded(clean(text, 300), max(20, width - indent - 1)):
        if rows:
            rows.append(((" " * indent + line, "text"),))
        else:
            rows.append(((shares, "text"), first, (f" {line}", "text")))
    return rows


def _share(ratio: float) -> str:
    if ratio <= 0.0:
        return "-"
    return f"{max(1.0, ratio * 100):.0f}%"
