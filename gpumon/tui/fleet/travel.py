"""Time on the fleet's screen: frozen, and back and forth in what the Prometheus keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.screen import Screen

from gpumon.readings.format import period
from gpumon.readings.text import clean
from gpumon.tui.fleet.shown import worked_out
from gpumon.tui.fleet.title import dated, utc
from gpumon.tui.screens.travel import nothing_happened, what_happened

if TYPE_CHECKING:
    from textual.worker import WorkType

    from gpumon.fleet.snapshot import FleetSnapshot
    from gpumon.tui.control import Moment, Timeline
    from gpumon.tui.fleet.control import FleetControl
    from gpumon.tui.fleet.rows_pane import RowsPane
    from gpumon.tui.fleet.shown import Shown
    from gpumon.tui.view import View

JUMPS_S: Final = {10: 300.0, 60: 3600.0}
"""What the keys that go 10 s and a minute on the screen of one machine go here, where a frame is a scrape."""


class FleetTravel(Screen[None]):
    """The part of the fleet's screen that is about time."""

    paused = False
    back = False
    """Whether what is shown is a moment that was gone back to."""
    aim_s: float | None = None
    """The moment that was asked for last; None while what is shown is live, or was."""
    seeking_s: float | None = None
    """The moment that is being asked for."""
    _by_the_way = False
    """Whether the display is frozen only because a moment was asked for."""
    _changes = 0
    """How many changes on are looked for; backwards below 0."""
    _sought = ""
    """The host that they are looked for on."""
    _looked_through: tuple[str, Timeline | None] = ("", None)
    """The host whose past was looked through last, and that past."""
    _journey = 0
    """Counts the ways back to what is live: what was asked for before that is not wanted any more."""
    if TYPE_CHECKING:
        control: FleetControl
        view: View
        shown: Shown | None
        newest: Shown | None
        say: Callable[[str], None]
        show_keys: Callable[[], None]
        show_title: Callable[[], None]
        paint: Callable[[Shown], None]
        action_move: Callable[[int], None]
        table: RowsPane
        run_alone: Callable[[str, WorkType[None]], None]

        @property
        def host_in_hand(self) -> str: ...

        @property
        def timely(self) -> bool: ...

    def action_frame(self, frames: int) -> None:
        """So many refreshes back (below 0) or forth."""
        self.travel(frames * self.control.interval_s)

    def action_jump(self, seconds: int) -> None:
        """By what the keys stand for here."""
        self.travel(JUMPS_S[abs(seconds)] * (1 if seconds > 0 else -1))

    def action_change(self, step: int) -> None:
        """To the next (1) or the previous (-1) moment at which something happened on the host under the cursor."""
        name = self.host_in_hand
        if self.shown is None:
            return
        if not name:
            key = self.view.keymap.first("fleet.models")
            why = f"{key} shows the hosts" if self.table.models else "there is none"
            self.say(f"this looks through the past of the host under the cursor: {why}")
            return
        if not self.paused and step > 0:
            self._say_it_is_live()
            return
        if name != self._sought:
            self._sought, self._changes = name, 0  # the search on another host ends with the new one
        looking, self._changes = self._changes != 0, self._changes + step
        if not looking:
            self.say(f"looking for what happened on {clean(name, 40)} …")
            self.run_alone("change", partial(self._find_change, name))

    async def _find_change(self, name: str) -> None:
        """Go as many changes on as are wanted by now."""
        found: Moment | None = None
        try:
            timeline = self._past_of(name)
            while self._changes and timeline is not None and self.shown is not None:
                step = 1 if self._changes > 0 else -1
                here_s = self.shown.fleet.wall_s if self.aim_s is None else self.aim_s
                moment = await timeline.change(here_s if found is None else found.snapshot.wall_s, step)
                if moment is None:
                    self.say(nothing_happened(step, f"on {clean(name, 40)}, as far as is looked"))
                    break
                found = moment
                self._changes -= step
        except Exception as error:  # a past that can not be read costs this step, not the screen
            self.say(f"the past can not be read: {clean(f'{type(error).__name__}: {error}', 200)}")
        self._changes = 0
        if found is not None:
            self.travel_to(found.snapshot.wall_s)
            self.say(f"{clean(name, 40)}: {what_happened(found.snapshot.events, lambda wall_s: f'{utc(wall_s)}Z')}")

    def _past_of(self, name: str) -> Timeline | None:
        if self._looked_through[0] != name:
            self._looked_through = (name, self.control.past(name))
        return self._looked_through[1]

    def action_oldest(self) -> None:
        """Paused, the oldest moment that can be asked for; else the top of the list."""
        if self.timely:
            self.travel(float("-inf"))
        else:
            self.action_move(-100000)

    def action_live(self) -> None:
        """Paused, live again; else the end of the list."""
        if self.timely:
            self.freeze(False)
        else:
            self.action_move(100000)

    def freeze(self, paused: bool) -> None:
        """Freeze what is shown, or go on with the newest."""
        self.paused, self._by_the_way = paused, False
        if not paused:
            for group in ("travel", "change"):
                self.workers.cancel_group(self, group)
            self._changes = 0  # a search that is dropped before it began can not tell
            self._be_live()
        self.show_title()
        self.show_keys()

    def _be_live(self) -> None:
        self.paused = self.back = self._by_the_way = False
        self.aim_s = self.seeking_s = None
        self._journey += 1
        if self.newest is not None:
            self.paint(self.newest)

    def travel(self, by_s: float) -> None:
        """Go so many seconds back (below 0) or forth; what is asked for while an answer is awaited adds up."""
        if not self.paused and by_s > 0.0:
            self._say_it_is_live()
        elif self.shown is None:
            self.say("nothing is known of the past yet")
        else:
            self.travel_to((self.shown.fleet.wall_s if self.aim_s is None else self.aim_s) + by_s)

    def travel_to(self, wanted_s: float) -> None:
        """Go to a Unix time, or as near as one may."""
        span = self.control.span()
        if span is None:
            self.say("nothing is known of the past yet")
            return
        if not self.paused:
            self.freeze(True)
            self._by_the_way = True
        self.aim_s = min(max(wanted_s, span[0]), span[1])
        self._say_where_it_ends(wanted_s, span)
        if self.seeking_s is None:
            self.seeking_s = self.aim_s
            self.run_worker(self._seek(), group="travel")
        self.show_title()

    def _say_it_is_live(self) -> None:
        self.say(f"this is live: {self.view.keymap.first('time.back')} goes back")

    def _say_where_it_ends(self, wanted_s: float, span: tuple[float, float]) -> None:
        if wanted_s <= span[0]:
            self.say(f"the oldest moment that can be asked for: {utc(span[0])}Z, {period(span[1] - span[0])} back")
        elif wanted_s > span[1]:
            self.say(f"the newest moment; {self.view.keymap.first('time.live')}: live again")

    async def _seek(self) -> None:
        """Ask for the moment wanted by now, until it is the one that came."""
        journey = self._journey
        try:
            while (aim_s := self.aim_s) is not None:
                self.seeking_s = aim_s
                self.show_title()
                arrived = await self._ask(aim_s)
                if aim_s == self.aim_s:
                    span = self.control.span()
                    if self.shown is not None and (not arrived or span is None or aim_s <= span[0]):
                        self.aim_s = self.shown.fleet.wall_s  # else steps go on from what was asked for, over gaps
                    if not arrived and self._by_the_way:
                        self._be_live()
                    break
        finally:
            if journey == self._journey:
                self.seeking_s = None
            self.show_title()
            self.show_keys()

    async def _ask(self, aim_s: float) -> bool:
        """Show that moment; returns whether there is one to show."""
        try:
            moment = await self.control.at(aim_s)
            if moment.answered and not moment.hosts:
                moment = await self._first(aim_s, moment)
            shown = await asyncio.to_thread(worked_out, moment, self.control.prices)
        except Exception as error:  # a past that can not be read costs this step, not the screen
            self.say(f"{self._named(aim_s)} can not be read: {clean(f'{type(error).__name__}: {error}', 200)}")
            return False
        if self.aim_s is None:
            return True  # live again meanwhile
        if not moment.hosts and moment.answered:
            self.say(f"nothing at {self._named(aim_s)}, and before what is shown")
            if self._by_the_way:
                self._be_live()
            return True
        if not moment.hosts:
            why = clean(moment.faults[0].text, 200) if moment.faults else "no answer"
            self.say(f"{self._named(aim_s)} can not be had: {why}")
            return False
        self.back, self._by_the_way = True, False
        self.paint(shown)
        self.show_keys()
        return True

    async def _first(self, aim_s: float, nothing: FleetSnapshot) -> FleetSnapshot:
        """Nothing is known of the moment that was asked for: the first one that there is before what is shown."""
        there_s = self.shown.fleet.wall_s if self.shown is not None else aim_s
        if there_s <= aim_s:
            return nothing
        first_s = await self.control.first_after(aim_s, there_s)
        if self.aim_s == aim_s:
            self.say(f"nothing at {self._named(aim_s)}: shown is {self._named(first_s)}, the first after it")
        return await self.control.at(first_s)

    def _named(self, wall_s: float) -> str:
        newest_s = self.newest.fleet.wall_s if self.newest is not None else wall_s
        return f"{dated(wall_s, newest_s)}Z"
