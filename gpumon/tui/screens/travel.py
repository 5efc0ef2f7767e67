"""Time on the screen: frozen, back and forth in what is kept, and a recording's playback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.screen import Screen

from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.triage.render import LIMITS, verdict_text
from gpumon.tui.control import SPEEDS, Moment, Timeline
from gpumon.tui.table import clock
from gpumon.tui.triage_rows import happened, row_of
from gpumon.tui.triage_words import most_urgent
from gpumon.tui.widgets.title_bar import Playing

if TYPE_CHECKING:
    from gpumon.readings.history import History
    from gpumon.readings.snapshot import Event, Snapshot
    from gpumon.tui.control import Control
    from gpumon.tui.sizing.panel import SizingPanel
    from gpumon.tui.view import View
    from gpumon.tui.widgets.pane import Pane
    from gpumon.tui.widgets.triage_pane import TriagePane

_SAME_S: Final = 1e-3
"""Two times that are nearer to each other are of one moment."""


class Way(Enum):
    """How a moment is asked for."""

    FRAMES = "frames"
    SECONDS = "seconds"
    CHANGES = "changes"
    OLDEST = "oldest"
    NEWEST = "newest"


class Ask(NamedTuple):
    """A moment that was asked for."""

    way: Way
    by: float = 0.0
    """Frames, seconds or changes from what is shown; backwards below 0."""


_TO_AN_END: Final = (Way.OLDEST, Way.NEWEST)


class TravelActions(Screen[None]):
    """The part of the monitor's screen that is about time."""

    LOOKED: ClassVar = "in what is kept"
    """Where changes are looked for."""
    paused = False
    moment: Moment | None = None
    """What is shown of the past; None while it is what was shown last."""
    _seeking = False
    _journey = 0
    """Counts the ways back to what is live: what was asked for before that is not wanted any more."""
    _aim_s: float | None = None
    """Where jumps by seconds have led to: the frames there are some milliseconds off."""
    if TYPE_CHECKING:
        control: Control
        view: View
        shown: Snapshot | None
        latest: Snapshot | None
        panes: dict[str, Pane]
        pages: dict[str, Pane]
        triage: TriagePane
        say: Callable[[str], None]
        show_keys: Callable[[], None]
        show_title: Callable[[], None]
        paint: Callable[[Snapshot], None]
        summarise: Callable[[], None]

        @property
        def current(self) -> Pane | None: ...
        @property
        def panels(self) -> tuple[SizingPanel, ...]: ...

    def start_of_time(self) -> None:
        """Nothing was asked for yet."""
        self._asked: list[Ask] = []
        self._read_from: History = self.control.history

    @property
    def timely(self) -> bool:
        """Whether the keys of time go before those of the page or pane that has the keys."""
        held = self.paused or self.control.playback is not None
        return held and self.control.timeline is not None and not (self.current is not None and self.current.TIMELESS)

    @property
    def playing(self) -> Playing | None:
        """The recording that is shown; None where this is no replay."""
        playback, timeline = self.control.playback, self.control.timeline
        if playback is None:
            return None
        span = timeline.span() if timeline is not None else None
        ended = self.shown is not None and span is not None and self.shown.wall_s >= span[1] - _SAME_S
        return Playing(clean(playback.file, 60), playback.speed, ended)

    @property
    def gone_back(self) -> bool:
        """Whether a moment is shown that the user went to."""
        return self.moment is not None

    def action_frame(self, frames: int) -> None:
        """One frame back (-1) or forth (1)."""
        self.travel(Ask(Way.FRAMES, frames))

    def action_jump(self, seconds: int) -> None:
        """So many seconds forth, or back (below 0)."""
        self.travel(Ask(Way.SECONDS, seconds))

    def action_change(self, step: int) -> None:
        """To the next (1) or the previous (-1) moment at which something happened."""
        self.travel(Ask(Way.CHANGES, step))

    def action_oldest(self) -> None:
        """Paused, the oldest moment; else the top of the list."""
        if self.timely:
            self.travel(Ask(Way.OLDEST, -1.0))
        elif self.current is not None:
            self.current.move(-100000)

    def action_live(self) -> None:
        """Paused, live again; of a recording the last moment; else the end of the list."""
        if self.timely and self.control.playback is not None:
            self.travel(Ask(Way.NEWEST, 1.0))
        elif self.timely:
            self.freeze(False)
        elif self.current is not None:
            self.current.move(100000)

    def change_speed(self, step: int) -> bool:
        """Play the recording faster (1) or slower (-1); returns whether this is one."""
        playback = self.control.playback
        if playback is None:
            return False
        others = [speed for speed in SPEEDS if (speed - playback.speed) * step > 1e-9]
        if others:
            playback.set_speed(min(others) if step > 0 else max(others))
        self.show_title()
        self.show_keys()
        return True

    def freeze(self, paused: bool) -> None:
        """Freeze what is shown, or go on: with the newest, or in a recording from what is shown."""
        self.paused = paused
        playback = self.control.playback
        if paused:
            self._aim_s = None
            if playback is not None:
                playback.pause()
        else:
            self._journey += 1
            self._asked.clear()
            if playback is not None and self.shown is not None:
                playback.go_on(self.shown.wall_s)
            elif self.latest is not None:
                self.show_now(self.latest)
        self.summarise()
        self.show_title()
        self.show_keys()

    def show_now(self, snapshot: Snapshot) -> None:
        """Paint what is live, or what a recording plays."""
        if self.moment is not None:
            self.moment = None
            self._jumped()
        self._date_panes()
        self.read_from(self.control.history)
        self.paint(snapshot)

    def read_from(self, history: History) -> None:
        """Draw the charts from these series."""
        if history is not self._read_from:
            self._read_from = history
            for pane in (*self.panes.values(), *self.pages.values()):
                pane.read_from(history)

    @property
    def histories(self) -> set[History]:
        """The live series, and those that are shown."""
        return {self.control.history, self._read_from}

    def new_page(self, page: Pane) -> None:
        """A page that was just made shows the series that all others show."""
        page.read_from(self._read_from)
        self._date_panes()

    def _date_panes(self) -> None:
        """What is shown has a time of its own, unless it is live: that of a recording is never now."""
        past = self.moment is not None or self.control.playback is not None
        for pane in (*self.panes.values(), *self.pages.values()):
            pane.past = past

    def _jumped(self) -> None:
        for pane in (*self.panes.values(), *self.pages.values()):
            pane.jump()
        for panel in self.panels:
            panel.update()

    def watch_live(self, before: Snapshot | None, now: Snapshot) -> None:
        """While the display stands still: say what became critical meanwhile."""
        if self.control.playback is not None:
            return
        known = {(each.scope, each.code) for each in before.verdicts} if before is not None else set()
        for verdict in now.verdicts:
            if verdict.level is Level.CRITICAL and (verdict.scope, verdict.code) not in known:
                said = f"{LIMITS[verdict.code]}: {verdict_text(verdict)}"
                self.say(f"! now, live: {clean(verdict.scope, 40)}: {clean(said, 200)}")
                return

    def travel(self, ask: Ask) -> None:
        """Go to another moment as soon as the one asked for before is there; what was asked for meanwhile adds up."""
        timeline = self.control.timeline
        if self.shown is None:
            return
        if timeline is None:
            self.say("no past is kept: [recorder] minutes is 0")
            return
        if not self.paused:
            if ask.by > 0.0 and self.control.playback is None:
                self.say(f"this is live: {self.view.keymap.first('time.back')} goes back")
                return
            self.freeze(True)
        last = self._asked[-1] if self._asked else None
        if ask.way in _TO_AN_END:
            self._asked.clear()
        elif last is not None and last.way is ask.way:
            ask = Ask(ask.way, self._asked.pop().by + ask.by)
        if ask.by:
            self._asked.append(ask)
        if self._asked and not self._seeking:
            self._seeking = True
            self.run_worker(self._seek(timeline), group="travel")

    async def _seek(self, timeline: Timeline) -> None:
        try:
            while self._asked:
                journey, ask = self._journey, self._asked.pop(0)
                try:
                    moment = await self._found(timeline, ask)
                except Exception as error:  # a past that can not be read costs this step, not the screen
                    self.say(f"this moment can not be read: {clean(f'{type(error).__name__}: {error}', 200)}")
                    continue
                if journey == self._journey:
                    self._arrive(timeline, ask, moment)
        finally:
            self._seeking = False

    async def _found(self, timeline: Timeline, ask: Ask) -> Moment | None:
        """The moment that was asked for; None where there is none."""
        span = timeline.span()
        if span is None or self.shown is None:
            return None
        now_s = self.shown.wall_s
        if ask.way is Way.SECONDS:
            aim_s = min(max((now_s if self._aim_s is None else self._aim_s) + ask.by, span[0]), span[1])
            self._aim_s = aim_s
            return await timeline.at(aim_s)
        self._aim_s = None
        if ask.way is Way.FRAMES:
            return await timeline.step(now_s, int(ask.by))
        if ask.way is not Way.CHANGES:
            return await timeline.at(span[0] if ask.way is Way.OLDEST else span[1])
        found: Moment | None = None
        for _ in range(abs(int(ask.by))):
            moment = await timeline.change(now_s, 1 if ask.by > 0.0 else -1)
            if moment is None:
                break
            found, now_s = moment, moment.snapshot.wall_s
        return found

    def _arrive(self, timeline: Timeline, ask: Ask, moment: Moment | None) -> None:
        span = timeline.span()
        if moment is None or span is None:
            if ask.way is Way.CHANGES:
                self.say(nothing_happened(ask.by, self.LOOKED))
            elif span is None:
                self.say("nothing is kept yet")
            return
        self.moment = moment
        self.read_from(moment.history)
        self._jumped()
        self._date_panes()
        self.paint(moment.snapshot)
        self.show_keys()
        at_s = moment.snapshot.wall_s
        if ask.way is Way.CHANGES:
            events = moment.history.events(at_s - _SAME_S, at_s + _SAME_S)
            if events:
                self.triage.go_to(row_of(most_urgent(events), moment.snapshot))
            self.say(what_happened(events, clock))
            return
        replay = self.control.playback is not None
        if ask.by < 0.0 and at_s <= span[0] + _SAME_S:
            kept = f"the recording begins: {clock(at_s)}" if replay else f"the oldest moment kept: {clock(at_s)}"
            self.say(kept if replay else f"{kept}; [recorder] minutes")
        elif ask.by > 0.0 and at_s >= span[1] - _SAME_S:
            live = self.view.keymap.first("time.live")
            self.say(f"the recording ends: {clock(at_s)}" if replay else f"the newest moment; {live}: live again")


def what_happened(events: Sequence[Event], at: Callable[[float], str]) -> str:
    """What happened at a moment, in a line: the most urgent of its events, and how many more there are. `at` gives a
    Unix time as the screen has it."""
    if not events:
        return "other verdicts from here on"
    event, others = most_urgent(events), len(events) - 1
    more = f" +{others}" if others else ""
    return f"{at(event.wall_s)} {clean(event.scope, 40)}: {clean(happened(event, at), 200)}{more}"


def nothing_happened(step: float, where: str) -> str:
    """That there is no further change, in the direction of `step`."""
    return f"nothing happened {'after' if step > 0.0 else 'before'} this {where}"
