"""Time on the screen: frozen, back and forth in what is kept, and a recording's playback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from textual.worker import WorkType

from gpumon.readings.format import period
from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event, Level
from gpumon.readings.when import OutsideError, moment_of
from gpumon.triage.render import LIMIT_NAMES, verdict_text
from gpumon.tui.control import SPEEDS, Control, Playback, Timeline
from gpumon.tui.screens.parts import Pages, SizingDock
from gpumon.tui.table import clock
from gpumon.tui.triage_rows import event_words
from gpumon.tui.triage_words import most_urgent
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.title_bar import Playing

_SAME_MOMENT_S: Final = 1e-3
"""Two times that are nearer to each other are of one moment."""
_FAR_S: Final = 2.0
"""Seconds from the time that was typed, beyond which a notice says that a moment is another: readings are a second
apart, or two."""
_MOST_SCOPE: Final = 40
"""Characters of the name of what a notice is about."""
_MOST_FILE: Final = 60
"""Characters of the name of a recording."""
_MOST_TEXT: Final = 200
"""Characters of a text in a notice."""
_SAME_SPEED: Final = 1e-9
"""Difference up to which two playing speeds are the same."""
_WORK_GROUP: Final = "travel"
"""Group of the worker that looks for moments."""
_WHOLE_LIST: Final = 100_000
"""Rows by which the cursor moves to an end of a list: more than any list has."""


class Timed(Protocol):
    """A moment of one machine, or of a fleet."""

    @property
    def wall_s(self) -> float:
        """When it was (Unix time)."""


S = TypeVar("S", bound=Timed)
"""Snapshot on a screen: a machine's `Snapshot`, or a fleet's `FleetMoment`."""


class AskKind(Enum):
    """How a moment is asked for: by its distance from what is shown, or by itself."""

    FRAMES = "frames"
    """So many frames from what is shown."""
    SECONDS = "seconds"
    """So many seconds from what is shown."""
    CHANGES = "changes"
    """So many moments at which something happened from what is shown."""
    TIME = "time"
    """A Unix time."""
    OLDEST = "oldest"
    """The first moment of the past."""
    NEWEST = "newest"
    """The last moment of the past."""


_ABSOLUTE: Final = (AskKind.TIME, AskKind.OLDEST, AskKind.NEWEST)
"""Kinds that do not depend on what is shown: they replace what was asked for before."""


class AskedMoment(NamedTuple):
    """A moment that was asked for."""

    kind: AskKind
    amount: float
    """Number of frames, seconds or changes from what is shown, backwards below 0; of `TIME` the Unix time; of `OLDEST`
    -1 and of `NEWEST` 1, the direction."""
    host: str = ""
    """The host whose changes are looked for, where there are several."""


class SearchedHost(NamedTuple):
    """The host on which changes are looked for."""

    name: str
    """Empty where there is one host alone, or none to look at."""
    why_none: str = ""
    """Why there is none to look at; empty where there is one."""


class Arrival(msgspec.Struct, Generic[S], frozen=True):
    """A moment of the past, to be shown."""

    snapshot: S
    history: History | None = None
    """Series for the charts up to then."""
    events: Sequence[Event] = ()
    """Events of that moment."""
    note: str = ""
    """Why it is not the moment that was asked for."""


class NoPastError(Exception):
    """A moment cannot be shown; the text says why."""


class Past(Protocol[S]):
    """Source of the past of a screen."""

    jumps_s: Sequence[float]
    """Seconds of the two keys that jump."""
    slow: bool
    """Whether a moment may take seconds, so that the title says what is asked for."""

    @property
    def live(self) -> History | None:
        """Series of what is live."""

    @property
    def frame_s(self) -> float | None:
        """Seconds between two moments; None: they are as they were recorded."""

    def why_not(self) -> str:
        """Why there is no past at all; empty where there is one."""

    def searched_host(self) -> SearchedHost:
        """The host on which changes are looked for."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment; None: nothing yet."""

    async def at(self, wall_s: float) -> Arrival[S] | None:
        """The last moment at or before a time; the first one where there is none. Raises NoPastError."""

    async def nearest(self, wall_s: float) -> Arrival[S] | None:
        """The moment for a time that was typed; its note says so where it is far from that. Raises NoPastError."""

    async def step(self, wall_s: float, frames: int) -> Arrival[S] | None:
        """The moment so many frames after the one of `wall_s`."""

    async def change(self, wall_s: float, step: int, host: str) -> Arrival[S] | None:
        """The moment `step` changes after `wall_s`, or before it where `step` is negative; None where there is none."""


class MachinePast:
    """The past of one machine, or of a recording."""

    jumps_s: Sequence[float] = (10.0, 60.0)
    frame_s: float | None = None

    def __init__(self, control: Control, *, slow: bool = False) -> None:
        self._control = control
        self.slow = slow

    @property
    def live(self) -> History:
        """Series of what is live."""
        return self._control.history

    def why_not(self) -> str:
        """Why there is no past at all."""
        if self._control.timeline is None:
            return "no past is kept: [recorder] minutes is 0"
        return ""

    def searched_host(self) -> SearchedHost:
        """No name, as there is one host alone, and no reason."""
        return SearchedHost("")

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment."""
        if self._control.timeline is None:
            return None
        return self._control.timeline.span()

    async def at(self, wall_s: float) -> Arrival[Snapshot] | None:
        """The last moment at or before a time."""
        assert self._control.timeline is not None
        return _arrival(await self._control.timeline.at(wall_s))

    async def nearest(self, wall_s: float) -> Arrival[Snapshot] | None:
        """The moment at a time, else the nearest one before or after it: what is far back may have fewer readings."""
        arrival = await self.at(wall_s)
        if arrival is None or _distance_s(arrival, wall_s) <= _FAR_S:
            return arrival
        later = await self.step(wall_s, 1)
        if later is not None and _distance_s(later, wall_s) < _distance_s(arrival, wall_s):
            arrival = later
        if _distance_s(arrival, wall_s) <= _FAR_S:
            return arrival
        note = f"nothing is kept at {clock(wall_s)}: shown is {clock(arrival.snapshot.wall_s)}, the nearest moment"
        return msgspec.structs.replace(arrival, note=note)

    async def step(self, wall_s: float, frames: int) -> Arrival[Snapshot] | None:
        """The moment so many frames after that of `wall_s`."""
        assert self._control.timeline is not None
        return _arrival(await self._control.timeline.step(wall_s, frames))

    async def change(self, wall_s: float, step: int, host: str) -> Arrival[Snapshot] | None:  # noqa: ARG002 - the signature of Past
        """The moment `step` changes after `wall_s`, or before it; the last one in that direction where there are
        fewer."""
        assert self._control.timeline is not None
        return _arrival(await nth_change(self._control.timeline, wall_s, step))


async def nth_change(timeline: Timeline, wall_s: float, step: int) -> PastMoment | None:
    """The moment `step` changes after `wall_s`, or before it where `step` is negative; the last one in that direction
    where there are fewer, None where there is none."""
    direction = 1 if step > 0 else -1
    last = None
    for _ in range(abs(step)):
        moment = await timeline.change(wall_s, direction)
        if moment is None:
            break
        last = moment
        wall_s = moment.snapshot.wall_s
    return last


def _arrival(moment: PastMoment | None) -> Arrival[Snapshot] | None:
    """A moment of one machine with its events; None where there is none."""
    if moment is None:
        return None
    at_s = moment.snapshot.wall_s
    return Arrival(moment.snapshot, moment.history, moment.history.events(at_s - _SAME_MOMENT_S, at_s + _SAME_MOMENT_S))


def _distance_s(arrival: Arrival[Snapshot], wall_s: float) -> float:
    """Seconds between a moment and a time."""
    return abs(arrival.snapshot.wall_s - wall_s)


class TravelScreen(Protocol[S]):
    """The screen as time travel knows it."""

    view: View
    shown: S | None
    latest: S | None
    panes: Mapping[str, Pane]
    pages: Pages
    dock: SizingDock

    @property
    def current(self) -> Pane | None:
        """The pane with the keys."""

    @property
    def playback(self) -> Playback | None:
        """The recording that is shown."""

    def as_one_machine(self, snapshot: S) -> Snapshot:
        """A snapshot as one machine."""

    def paint(self, snapshot: S) -> None:
        """Show a moment in every pane."""

    def point_at(self, events: Sequence[Event], snapshot: S) -> None:
        """Put a cursor on what happened."""

    def say(self, text: str, *, urgent: bool = False) -> None:
        """Show a notice."""

    def show_title(self) -> None:
        """Paint the title line."""

    def show_status(self) -> None:
        """Paint what says whether the display is frozen, but the title."""

    def show_keys(self) -> None:
        """Name the keys that do something here."""

    def run_worker(self, work: WorkType[None], *, group: str) -> object:
        """Work beside the screen."""

    def drop_work(self, group: str) -> None:
        """Cancel the work of a group."""


class TimeTravel(Generic[S]):
    """The part of a screen that is about time."""

    def __init__(self, screen: TravelScreen[S], past: Past[S]) -> None:
        self._screen = screen
        self.past = past
        self.paused = False
        self.moment: Arrival[S] | None = None
        """The moment of the past on the screen; None while that is the snapshot shown last."""
        self.history = past.live
        """Series that the charts show."""
        self.asked_s: float | None = None
        """Unix time that is being asked for, where that takes a while."""
        self.seeking = False
        """Whether a moment is being looked for."""
        self._waiting: list[AskedMoment] = []
        """Moments that were asked for and are not looked for yet, the first one first."""
        self._returns = 0
        """Number of times that the user went on with what is live: `_seek` compares it with the number at its begin,
        and shows nothing that comes after such a return."""
        self._frozen_to_travel = False
        """Whether the display is frozen only because a moment was asked for: where none arrives, it goes on."""
        self._aim_s: float | None = None
        """Unix time that jumps by seconds have led to, from which the next one counts: the frames there are some
        milliseconds off. None: it counts from what is shown."""

    @property
    def keys_move_in_time(self) -> bool:
        """Whether the keys of time go before those of the page or pane that has the keys."""
        current = self._screen.current
        is_timeless = current is not None and current.TIMELESS
        is_held = self.paused or self._screen.playback is not None
        return is_held and not is_timeless and not self.past.why_not()

    @property
    def playing(self) -> Playing | None:
        """The recording that is shown, as the title names it; None where this is no replay."""
        playback = self._screen.playback
        if playback is None:
            return None
        span = self.past.span()
        shown = self._screen.shown
        ended = shown is not None and span is not None and shown.wall_s >= span[1] - _SAME_MOMENT_S
        return Playing(file=clean(playback.file, _MOST_FILE), speed=playback.speed, ended=ended)

    def step_frames(self, frames: int) -> None:
        """Go so many frames back (below 0) or forth."""
        frame_s = self.past.frame_s
        if frame_s is None:
            self.ask_for(AskedMoment(AskKind.FRAMES, frames))
        else:
            self.ask_for(AskedMoment(AskKind.SECONDS, frames * frame_s))

    def go_to_change(self, step: int) -> None:
        """Go to the next (1) or the previous (-1) moment at which something happened."""
        host = self.past.searched_host()
        if host.why_none:
            self._screen.say(host.why_none)
        else:
            self.ask_for(AskedMoment(AskKind.CHANGES, step, host.name))

    def go_to_end(self, step: int) -> None:
        """Go to one end: of the past where the keys move in time, else of the list.

        Of the past, -1 is the oldest moment and 1 what is live, or the last moment of a recording; of the list, -1 is
        the begin and 1 the end.
        """
        if not self.keys_move_in_time:
            if self._screen.current is not None:
                self._screen.current.move(step * _WHOLE_LIST)
        elif step < 0:
            self.ask_for(AskedMoment(AskKind.OLDEST, -1.0))
        elif self._screen.playback is not None:
            self.ask_for(AskedMoment(AskKind.NEWEST, 1.0))
        else:
            self.go_on()

    def go_to_time(self, text: str) -> None:
        """Go to a time as a person writes it: `03:10`, `-2h`."""
        screen = self._screen
        span = self.past.span()
        why = self.past.why_not()
        if span is None or why:
            screen.say(why or "nothing is kept yet")
            return
        first_s, last_s = span
        try:
            self.ask_for(AskedMoment(AskKind.TIME, moment_of(text, span)))
        except ValueError as wrong:
            screen.say(str(wrong))
        except OutsideError:
            notice = f"{text} is not kept here: {clock(first_s)} to {clock(last_s)} is"
            if not self.past.slow:
                notice += f"; a recording may have it: gpumon replay --at {text}"
            screen.say(notice)

    def change_speed(self, step: int) -> bool:
        """Play the recording faster (1) or slower (-1); returns whether this is one."""
        playback = self._screen.playback
        if playback is None:
            return False
        next_speeds = [speed for speed in SPEEDS if (speed - playback.speed) * step > _SAME_SPEED]
        if next_speeds:
            playback.set_speed(min(next_speeds, key=lambda speed: abs(speed - playback.speed)))
        self._screen.show_title()
        self._screen.show_keys()
        return True

    def freeze(self) -> None:
        """Freeze what is shown."""
        self._set_paused(paused=True)
        self._aim_s = None
        if self._screen.playback is not None:
            self._screen.playback.pause()
        self._show_paused()

    def go_on(self) -> None:
        """Go on with the newest snapshot, or in a recording from what is shown."""
        screen = self._screen
        self._set_paused(paused=False)
        self._returns += 1
        self._waiting.clear()
        self.asked_s = None
        self.seeking = False
        screen.drop_work(_WORK_GROUP)
        if screen.playback is not None and screen.shown is not None:
            screen.playback.go_on(screen.shown.wall_s)
        elif screen.latest is not None:
            self.show_live(screen.latest)
        self._show_paused()

    def _set_paused(self, *, paused: bool) -> None:
        """Note, for all panes, whether the display is frozen; at first as if the user had asked for it."""
        self.paused = paused
        for pane in self._screen.panes.values():
            pane.paused = paused
        self._frozen_to_travel = False

    def _show_paused(self) -> None:
        """Paint all that says whether the display is frozen."""
        screen = self._screen
        for pane in screen.panes.values():
            pane.update()  # its rule names other keys now
        screen.show_status()
        screen.show_title()
        screen.show_keys()

    def leave_past(self) -> bool:
        """Show what is live again, after a moment that the user went to; returns whether one was shown. A recording is
        never live."""
        if self.moment is None or self._screen.playback is not None:
            return False
        self.go_on()
        return True

    def show_live(self, snapshot: S) -> None:
        """Paint what is live, or what a recording plays."""
        if self.moment is not None:
            self.moment = None
            self._jump_panes()
        self.read_from(self.past.live)
        self._screen.paint(snapshot)

    def read_from(self, history: History | None, *, anew: bool = False) -> None:
        """Draw the charts from these series (None: from the same as before), `anew` even if they are the same; and tell
        panes and pages whether what they show has a time of its own, as all that is not live."""
        has_own_time = self.moment is not None or self._screen.playback is not None
        for pane in self._panes():
            pane.past = has_own_time
            if history is not None and (anew or history is not self.history):
                pane.read_from(history)
        self.history = history

    def _panes(self) -> Iterator[Pane]:
        """All panes, and the pages that were made."""
        yield from (*self._screen.panes.values(), *self._screen.pages.by_name.values())

    def _jump_panes(self) -> None:
        """Prepare panes and pages for a snapshot of any time."""
        for pane in self._panes():
            pane.prepare_for_jump()
        if self._screen.dock.panel is not None:
            self._screen.dock.panel.update()

    def watch_live(self, before: S | None, now: S) -> None:
        """While the display stands still, say what became critical meanwhile."""
        screen = self._screen
        if screen.playback is not None:
            return
        known_verdicts = set()
        if before is not None:
            for verdict in screen.as_one_machine(before).verdicts:
                known_verdicts.add((verdict.scope, verdict.code))
        for verdict in screen.as_one_machine(now).verdicts:
            if verdict.level is Level.CRITICAL and (verdict.scope, verdict.code) not in known_verdicts:
                scope = clean(verdict.scope, _MOST_SCOPE)
                text = clean(f"{LIMIT_NAMES[verdict.code]}: {verdict_text(verdict, clock)}", _MOST_TEXT)
                screen.say(f"! now, live: {scope}: {text}", urgent=True)
                return

    def ask_for(self, ask: AskedMoment) -> None:
        """Go to another moment as soon as the one asked for before is there; what was asked for meanwhile adds up."""
        screen = self._screen
        why = self.past.why_not()
        if screen.shown is None or why:
            screen.say(why or "nothing is known yet")
            return
        if not self.paused:
            goes_forth = ask.amount > 0.0 and ask.kind is not AskKind.TIME
            if goes_forth and screen.playback is None:  # there is nothing after what is live
                screen.say(f"this is live: {screen.view.keymap.first('time.back')} goes back")
                return
            self.freeze()
            self._frozen_to_travel = True
        self._add(ask)
        if self._waiting and not self.seeking:
            self.seeking = True
            work: WorkType[None] = self._seek
            screen.run_worker(work, group=_WORK_GROUP)

    def _add(self, ask: AskedMoment) -> None:
        """Add a step to those that wait: steps of one way are summed up; a moment of its own, and a step on another
        host, replace them all."""
        last = self._waiting[-1] if self._waiting else None
        if ask.kind in _ABSOLUTE or (last is not None and last.host != ask.host):
            self._waiting.clear()
        elif last is not None and last.kind is ask.kind:
            self._waiting.pop()
            ask = ask._replace(amount=last.amount + ask.amount)
        if ask.amount:  # steps back and forth may add up to nothing
            self._waiting.append(ask)

    def begin_at(self, wall_s: float) -> None:
        """Go to a Unix time, where the screen before this one was."""
        shown = self._screen.shown
        if shown is not None and wall_s < shown.wall_s:
            self.ask_for(AskedMoment(AskKind.SECONDS, wall_s - shown.wall_s))
        else:
            self.freeze()

    async def _seek(self) -> None:
        """Go to the moments that were asked for, one after the other, until none is left."""
        returns_at_begin = self._returns
        arrived = False
        while self._waiting:
            ask = self._waiting.pop(0)
            try:
                moment = await self._moment_for(ask)
            except NoPastError as why:
                self._screen.say(str(why))
            except Exception as error:  # a past that cannot be read costs this step, not the screen
                reason = clean(f"{type(error).__name__}: {error}", _MOST_TEXT)
                self._screen.say(f"this moment cannot be read: {reason}")
            else:
                if returns_at_begin == self._returns and self._show_arrival(ask, moment):
                    arrived = True
        if returns_at_begin == self._returns:  # else the user went back to what is live meanwhile
            self.asked_s = None
            self.seeking = False
            if not arrived and self._frozen_to_travel and self._screen.playback is None:
                self.go_on()
            self._frozen_to_travel = False
            self._screen.show_title()

    async def _moment_for(self, ask: AskedMoment) -> Arrival[S] | None:
        """The moment that was asked for; None where there is none."""
        span = self.past.span()
        shown = self._screen.shown
        if span is None or shown is None:
            raise NoPastError("nothing is kept yet")
        if ask.kind is AskKind.SECONDS:
            from_s = shown.wall_s if self._aim_s is None else self._aim_s
            aim_s = min(max(from_s + ask.amount, span[0]), span[1])
            self._aim_s = aim_s
            return await self._ask_for_time(aim_s)
        self._aim_s = None
        if ask.kind is AskKind.TIME:
            self._show_asked(ask.amount)
            return await self.past.nearest(ask.amount)
        if ask.kind is AskKind.FRAMES:
            return await self.past.step(shown.wall_s, int(ask.amount))
        if ask.kind is AskKind.CHANGES:
            if self.past.slow:
                self._screen.say(f"looking for what happened{self._where_text(ask)} …")
            return await self.past.change(shown.wall_s, int(ask.amount), ask.host)
        if ask.kind is AskKind.OLDEST:
            return await self._ask_for_time(span[0])
        return await self._ask_for_time(span[1])

    async def _ask_for_time(self, wall_s: float) -> Arrival[S] | None:
        """The moment at a time; while it is looked for, the title says so where that takes a while."""
        self._show_asked(wall_s)
        return await self.past.at(wall_s)

    def _show_asked(self, wall_s: float) -> None:
        """Have the title say what is asked for, where that takes a while."""
        if self.past.slow:
            self.asked_s = wall_s
            self._screen.show_title()

    def _where_text(self, ask: AskedMoment) -> str:
        """` on` the host whose changes are looked for; empty where there is one host."""
        if ask.host:
            return f" on {clean(ask.host, _MOST_SCOPE)}"
        return ""

    def _show_arrival(self, ask: AskedMoment, moment: Arrival[S] | None) -> bool:
        """Show a moment and say what there is to say about it; returns whether there was one."""
        screen = self._screen
        span = self.past.span()
        if moment is None or span is None:
            screen.say(self._nothing_there_notice(ask))
            return False
        self.moment = moment
        self._frozen_to_travel = False
        self.read_from(moment.history)
        self._jump_panes()
        screen.paint(moment.snapshot)
        screen.show_keys()
        if moment.note:
            self._aim_s = None
            screen.say(moment.note)
        elif ask.kind is AskKind.CHANGES:
            screen.point_at(moment.events, moment.snapshot)
            notice = what_happened(moment.events, clock)
            if ask.host:
                notice = f"{clean(ask.host, _MOST_SCOPE)}: {notice}"
            screen.say(notice)
        else:
            self._say_where_it_ends(ask, moment.snapshot.wall_s, span)
        return True

    def _nothing_there_notice(self, ask: AskedMoment) -> str:
        """The notice that there is no moment as asked for."""
        if ask.kind is not AskKind.CHANGES:
            return "nothing is kept of that time"
        searched = "in what is kept"
        if self.past.slow:
            searched = "as far as is looked"
        order = "after" if ask.amount > 0.0 else "before"
        where = self._where_text(ask)
        if where:
            return f"nothing happened {order} this{where}, {searched}"
        return f"nothing happened {order} this {searched}"

    def _say_where_it_ends(self, ask: AskedMoment, shown_s: float, span: tuple[float, float]) -> None:
        """Say that the oldest, or the newest, moment is reached."""
        if ask.amount < 0.0 and shown_s <= span[0] + _SAME_MOMENT_S:
            self._screen.say(self._oldest_notice(shown_s, span[1] - span[0]))
        elif ask.amount > 0.0 and shown_s >= span[1] - _SAME_MOMENT_S:
            if self._screen.playback is not None:
                self._screen.say(f"the recording ends: {clock(shown_s)}")
            else:
                live = self._screen.view.keymap.first("time.live")
                self._screen.say(f"the newest moment; {live}: live again")

    def _oldest_notice(self, oldest_s: float, kept_s: float) -> str:
        """The notice at the oldest moment: the begin of what can be asked for, of the recording, or of what is kept."""
        if self.past.slow:
            return f"the oldest moment that can be asked for: {clock(oldest_s)}, {period(kept_s)} back"
        if self._screen.playback is not None:
            return f"the recording begins: {clock(oldest_s)}"
        return f"the oldest moment kept: {clock(oldest_s)}; [recorder] minutes"


def what_happened(events: Sequence[Event], time_text: Callable[[float], str]) -> str:
    """The events of a moment in a line: the most urgent of its events, and how many more there are. `time_text` gives a
    Unix time as the screen has it."""
    if not events:
        return "other verdicts from here on"
    event = most_urgent(events)
    others = len(events) - 1
    more = ""
    if others:
        more = f" +{others}"
    scope = clean(event.scope, _MOST_SCOPE)
    return f"{time_text(event.wall_s)} {scope}: {clean(event_words(event, time_text), _MOST_TEXT)}{more}"
