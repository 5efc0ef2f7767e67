"""The page `then | now | change`: an engine, a GPU or the host beside what it was at the marked moment."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import ClassVar, Final

from textual.worker import WorkType

from gpumon.efficiency.span import LEAST_PART_S
from gpumon.readings.before_after import BeforeAfter, ComparedSpan, FigureChange, Judgement, ThingChange, VerdictChange
from gpumon.readings.change_words import (
    NOTHING_DIFFERS,
    after_text,
    amount_text,
    before_text,
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
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import clock
from gpumon.tui.triage_words import LEVEL_MARKS
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_STILL_S: Final = 0.3
"""Seconds for which a moment of the past must be shown before it is compared: whoever goes through time passes many."""
_WAIT_FACTOR: Final = 9.0
"""The next comparison of the present waits so many times as long as the last one took: a tenth of the time at most."""
_WIDE: Final = 118
"""Cells of a screen from which settings and verdicts stand beside the figures."""
_NAME_CELLS: Final = 17
_FIGURE_CELLS: Final = 11
_CHANGE_CELLS: Final = 12
_TABLE_CELLS: Final = 1 + _NAME_CELLS + 3 * _FIGURE_CELLS + _CHANGE_CELLS
"""Cells of the table of figures: name, then, now, change, noise."""
_GAP_CELLS: Final = 3
"""Cells between that table and the texts beside it."""
_LEAST_TEXT_CELLS: Final = 20
"""Cells that a text gets however narrow the screen is."""
_INDENT: Final = "   "
"""Blanks before a setting that differs."""
_LATER_INDENT: Final = "     "
"""Blanks before its further lines."""
_LONGEST_VERDICT: Final = 300
"""Characters of the text of a verdict."""


class ComparePage(Pane):
    """Shows how one thing differs from what it was at the marked moment.

    The screen says which thing (`look_at`) and which moment (`compare`) when it opens the page. It compares then, and
    again whenever another moment is shown (`show`): one of the past once it has been shown for a while, the present
    with each tick, or less often where a comparison takes long.
    """

    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._thing: ShownKey = ("", "")
        self._timeline: Timeline | None = None
        self._marked_s = 0.0
        """The marked moment (Unix time)."""
        self._now_s = 0.0
        """The moment (Unix time) that was compared last, or is being compared."""
        self._answer: BeforeAfter | None = None
        self._fault = ""
        """Why the last comparison failed; empty where it did not."""
        self._is_comparing = False
        self._took_s = 0.0
        """Seconds that the last comparison took. 0 after the first one, which reads the past and takes longest."""

    def look_at(self, thing: ShownKey) -> None:
        """Show another thing: its kind (host, engine, gpu) and its key."""
        self._thing = thing
        self.scrolling.top = 0

    def compare(self, timeline: Timeline, marked_s: float) -> None:
        """Compare what is shown with the marked moment `marked_s` (Unix time), now and whenever it changes."""
        self._timeline = timeline
        self._marked_s = marked_s
        self._answer = None
        self._fault = ""
        self._compare_soon(0.0)
        self.update()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot, and compare its moment; once the page is closed, let go of what is kept for comparing."""
        super().show(snapshot)
        if self._timeline is None:
            return
        if not self.display:
            self._timeline.end_comparing()
            self._timeline = None
        elif self.past and snapshot.wall_s != self._now_s:
            self._compare_soon(_STILL_S)
        elif not self.past and self._is_due(snapshot):
            self._compare_soon(0.0)

    def _is_due(self, snapshot: Snapshot) -> bool:
        """Whether the present is to be compared again. The clock may have been set back: hence the absolute value."""
        return not self._is_comparing and abs(snapshot.wall_s - self._now_s) > _WAIT_FACTOR * self._took_s

    def _compare_soon(self, still_s: float) -> None:
        """Compare the shown moment in a worker, unless another one is asked for within `still_s` seconds."""
        if self.snapshot is None or self._timeline is None:
            return
        self._now_s = self.snapshot.wall_s
        work: WorkType[None] = partial(self._compare, self._timeline, still_s)
        self.run_worker(work, group="compare", exclusive=True)

    async def _compare(self, timeline: Timeline, still_s: float) -> None:
        """Compare after `still_s` seconds: a newer request cancels this one while it waits."""
        await asyncio.sleep(still_s)
        self._is_comparing = True
        is_first = self._answer is None
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
        if is_first and not self._fault:
            self._took_s = 0.0
        else:
            self._took_s = time.monotonic() - begun_s
        self.update()

    def step_sideways(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) thing; returns whether there is another one."""
        things = self._things()
        if len(things) < 2:
            return False
        self._thing = _key_of(things[(self._place_in(things) + step) % len(things)])
        self.scrolling.top = 0
        self.update()
        return True

    def _place_in(self, things: Sequence[ThingChange]) -> int:
        """Place of the shown thing among all things: the first one, the host, where neither moment has it."""
        for place, thing in enumerate(things):
            if _key_of(thing) == self._thing:
                return place
        return 0

    def _things(self) -> Sequence[ThingChange]:
        """The things that were compared, the host first; none before the first comparison."""
        if self._answer is None:
            return ()
        return self._answer.things

    def _shown_thing(self) -> ThingChange | None:
        """The thing that is looked at, compared; None before the first comparison."""
        things = self._things()
        if not things:
            return None
        return things[self._place_in(things)]

    def title(self) -> str:
        """The name on the rule, with that of the thing."""
        thing = self._shown_thing()
        if thing is None:
            return "then and now"
        return f"then and now: {_name_of(thing)}"

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """The place of the thing among all things: `2/9`."""
        things = self._things()
        if len(things) < 2:
            return ""
        return f"{self._place_in(things) + 1}/{len(things)}"

    def head(self, width: int) -> Sequence[Row]:
        """Both spans, how the loads compare, and what the change amounts to."""
        answer = self._answer
        thing = self._shown_thing()
        if answer is None or thing is None:
            return ()
        spans = f" then {_span_text(answer.before)}   now {_span_text(answer.after)}"
        rows: list[Row] = [((cut(spans, width), "strong"),)]
        load = load_text(thing)
        if load:
            tone = "text" if thing.is_comparable else "warn"
            rows.append(((cut(f" {load}", width), tone),))
        effect = effect_text(thing)
        if effect:
            rows.append(((cut(f" {effect}", width), "text"),))
        return rows

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """Figures, settings and verdicts; or why there are none."""
        needed_s = 2.0 * LEAST_PART_S
        wait_s = needed_s - (self._now_s - self._marked_s)
        if self._fault and not self.past and 0.0 < wait_s <= needed_s:
            words = (
                f"wait {math.ceil(wait_s)} s: then and now take {LEAST_PART_S:.0f} s each of the time since the mark"
            )
            return [((f" {line}", "muted"),) for line in folded(words, width - 1)]
        if self._fault:
            return [((f" {line}", "warn"),) for line in folded(self._fault, width - 1)]
        answer = self._answer
        thing = self._shown_thing()
        if answer is None or thing is None:
            return (((" comparing …", "muted"),),)
        figures = _figure_rows(thing)
        if width < _WIDE:
            return [*_setting_rows(answer, thing, width), (), *figures, *_verdicts_rows(answer, thing, width)]
        room = width - _TABLE_CELLS - _GAP_CELLS
        texts = [*_setting_rows(answer, thing, room), *_verdicts_rows(answer, thing, room)]
        return [_side_by_side(figure, text) for figure, text in zip_longest(figures, texts, fillvalue=())]


def _side_by_side(figure: Row, text: Row) -> Row:
    """A row of the table of figures, filled up to its width, with a row of text beside it."""
    used = sum(cells(piece) for piece, _ in figure)
    return (*figure, (" " * (_TABLE_CELLS + _GAP_CELLS - used), "text"), *text)


def _key_of(thing: ThingChange) -> ShownKey:
    """Kind and key of a compared thing."""
    return thing.kind.value, thing.key


def _name_of(thing: ThingChange) -> str:
    """Name of a compared thing: `engine vllm:8000`, `gpu 3`, or that of the host."""
    if thing.kind is Kind.ENGINE:
        return f"engine {thing.name}"
    return thing.name


def _span_text(span: ComparedSpan) -> str:
    """A span on the local clock: `03:05:00-03:10:00`."""
    begin = clock(wall_of(span.begin))
    end = clock(wall_of(span.end))
    return f"{begin}-{end}"


def _figure_rows(thing: ThingChange) -> list[Row]:
    """The table of figures."""
    titles = (
        left("", _NAME_CELLS),
        right("then", _FIGURE_CELLS),
        right("now", _FIGURE_CELLS),
        right("change", _CHANGE_CELLS),
        right("noise", _FIGURE_CELLS),
    )
    head: Row = ((" " + "".join(titles), "muted"),)
    return [head, *(_figure_row(figure) for figure in thing.figures if is_shown(figure))]


def _figure_row(figure: FigureChange) -> Row:
    """One figure; what changed stands out, by its tone as by its words."""
    noise = amount_text(figure.unit, figure.noise)
    after_tone = "strong" if figure.judgement is Judgement.CHANGED else "text"
    return (
        (" " + left(figure_name(figure), _NAME_CELLS), "text"),
        (right(before_text(figure), _FIGURE_CELLS), "text"),
        (right(after_text(figure), _FIGURE_CELLS), after_tone),
        (right(difference_text(figure), _CHANGE_CELLS), _change_tone(figure)),
        (right(noise, _FIGURE_CELLS), "muted"),
    )


def _change_tone(figure: FigureChange) -> str:
    """Tone of a difference: whether it is one beyond the noise, and for better or worse."""
    if figure.judgement is not Judgement.CHANGED:
        return "muted"
    improved = is_better(figure)
    if improved is None:
        return "strong"
    if improved:
        return "ok"
    return "warn"


def _setting_rows(answer: BeforeAfter, thing: ThingChange, width: int) -> list[Row]:
    """Settings of the thing that differ; on the page of the host, those of all things."""
    texts = []
    for other in answer.things:
        if other is thing:
            texts += [fact_text(change, _time_text) for change in other.changes]
        elif thing.kind is Kind.HOST:
            texts += [f"{_name_of(other)}: {fact_text(change, _time_text)}" for change in other.changes]
    rows: list[Row] = [((" set differently", "strong"),)]
    if not texts:
        return [*rows, ((_INDENT + NOTHING_DIFFERS, "muted"),)]
    for text in texts:
        first, *others = folded(text, max(_LEAST_TEXT_CELLS, width - len(_LATER_INDENT)))
        rows.append(((_INDENT + first, "text"),))
        for line in others:
            rows.append(((_LATER_INDENT + line, "text"),))
    return rows


def _time_text(unix_s: str) -> str:
    """A Unix time, which a fact has as text, on the local clock: `at 03:05:00`."""
    return f"at {clock(float(unix_s))}"


def _verdicts_rows(answer: BeforeAfter, thing: ThingChange, width: int) -> list[Row]:
    """Verdicts on the thing in either span; on the page of the host, all verdicts with what they are about."""
    is_host = thing.kind is Kind.HOST
    rows: list[Row] = []
    for change in answer.verdicts:
        verdict = change.verdict
        if is_host or (verdict.kind, verdict.key) == (thing.kind, thing.key):
            rows += _verdict_rows(change, width, with_scope=is_host)
    if rows:
        return [(), ((" verdicts: share of each span that they lasted", "strong"),), *rows]
    return []


def _verdict_rows(change: VerdictChange, width: int, *, with_scope: bool) -> list[Row]:
    """A verdict with the shares of both spans in which it stood, over as many lines as it needs."""
    verdict = change.verdict
    shares = f" {_share_text(change.before_ratio):>4} {_share_text(change.after_ratio):>4} "
    text = f"{LIMIT_NAMES[verdict.code]}: {verdict_text(verdict, clock)}"
    if with_scope:
        text = f"{verdict.scope} {text}"
    glyph, tone, _ = LEVEL_MARKS[change.level]
    indent = cells(shares) + cells(glyph) + 1
    first, *others = folded(clean(text, _LONGEST_VERDICT), max(_LEAST_TEXT_CELLS, width - indent - 1))
    rows: list[Row] = [((shares, "text"), (glyph, tone), (f" {first}", "text"))]
    for line in others:
        rows.append(((" " * indent + line, "text"),))
    return rows


def _share_text(ratio: float) -> str:
    """A share of a span in whole percent: at least `1%`, or `-` for none of it."""
    if ratio <= 0.0:
        return "-"
    return f"{max(1.0, ratio * 100):.0f}%"
