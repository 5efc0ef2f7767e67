"""The screen: a title, panes or a page over them, and a line of keys. What the panes show (a machine, a recording, a
fleet) is its body's matter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol

from textual import events
from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from gpumon.readings.format import period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Event, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.triage.render import LIMIT_NAMES, verdict_text
from gpumon.tui.control import BundleFacts, Picture, Playback
from gpumon.tui.keys import bindings, keymap_of
from gpumon.tui.layout import LEAST_HEIGHT, FleetPlan, Plan
from gpumon.tui.screens.context import (
    S,
    ScreenContext,
    ThemeRead,
    WorkWanted,
)
from gpumon.tui.screens.parts import Pages, SizingDock, TimeTravel
from gpumon.tui.screens.past import SAME_MOMENT_S, Arrival, Past
from gpumon.tui.screens.settings_in_effect import ScreenSettings, colour_textual
from gpumon.tui.table import clock
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.key_line import ASKED, KeyHolder, KeyLine, hints_for
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.title_bar import Freshness, Heading, Playing, TitleBar

if TYPE_CHECKING:
    from gpumon.tui.screens.questions import Question, QuestionBar
    from gpumon.tui.settings_table import Setting

NOTICE_S: Final = 6.0
"""Seconds for which a notice stands, unless a key is pressed before."""
_CLOCK_DELAY_S: Final = 0.005
"""Seconds after the change of the clock's second at which it is painted: a timer may come a little early."""
_CARRIED_S: Final = 1.2
"""Seconds since the last paint up to which snapshots come often enough to carry the clock along."""
_MOST_SCOPE: Final = 40
"""Characters of the name of what a notice is about."""
_MOST_FILE: Final = 60
"""Characters of the name of a recording."""
_MOST_TEXT: Final = 200
"""Characters of a text in a notice."""
_TITLE_AND_KEYS: Final = 2
"""Lines of the screen that the sizing panel leaves free beside the panes: the title and the keys."""


class Body(Protocol[S]):
    """Everything between title and keys: the panes of one machine, or of a fleet."""

    panes: Mapping[str, Pane]
    """Panes that take the keys while nothing covers them, by name, top to bottom."""
    parts: Sequence[Board]
    """All that is painted between title and keys, top to bottom."""
    tiny_summary: Board
    """Takes the place of everything where there is no room."""
    past: Past[S]
    """The past that the keys of time move in."""
    fleet: bool
    """Whether it shows several hosts."""
    zoomed: str
    """The pane that has the screen to itself."""

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page; the first one is how often what is shown is renewed."""

    def plan(self, screen: MonitorScreen[S], width: int, height: int) -> Plan | FleetPlan:
        """The lines of each part."""

    def after_layout(self, screen: MonitorScreen[S]) -> None:
        """Bring up to date what depends on the lines of the parts, after these have changed."""

    def as_one_machine(self, snapshot: S) -> Snapshot:
        """A snapshot as that of one machine."""

    def note_arrival(self, screen: MonitorScreen[S], before: S | None, now: S) -> None:
        """Take note of a snapshot that was collected, and of the one before it; it may not be shown."""

    def show(self, screen: MonitorScreen[S], snapshot: S) -> None:
        """Paint a snapshot in every part."""

    def show_status(self, screen: MonitorScreen[S]) -> None:
        """Paint what says whether the display is frozen, but the title."""

    def heading(self, screen: MonitorScreen[S]) -> Heading:
        """Contents of the title."""

    def freshness(self, screen: MonitorScreen[S], freshness: Freshness) -> Freshness:
        """How old what is shown is, where this body knows that better."""

    def key_holder(self, screen: MonitorScreen[S], holder: KeyHolder) -> KeyHolder:
        """The holder of the keys, with what this body knows better of it."""

    def point_at(self, events: Sequence[Event], snapshot: S) -> None:
        """Put a cursor on what happened."""

    def before_page_closes(self, screen: MonitorScreen[S], page: Pane) -> None:
        """Do what a page that is about to be closed leaves to do in the panes."""

    def formula_at_cursor(self, screen: MonitorScreen[S]) -> str:
        """The formula of the cell under the cell cursor, in one line; empty: there is none."""

    def bundle_facts(self, screen: MonitorScreen[S], text: str, drawn: Picture) -> BundleFacts | None:
        """The screen's moment, to be written to a bundle; None: nothing yet. `text`, `drawn`: the screen as text and as
        a picture."""


class SnapshotReady(Message, Generic[S], bubble=False):
    """A new snapshot. A newer one replaces an older one that still waits: the screen never works off a queue."""

    def __init__(self, snapshot: S) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Whether this message takes the place of `message` in the queue."""
        return isinstance(message, SnapshotReady)


class MonitorScreen(Screen[None], Generic[S], inherit_bindings=False):
    """Its parts are a body, pages, the sizing panel, time, and the settings in effect; it lays them out and gives each
    its keys."""

    ALLOW_SELECT = False
    AUTO_FOCUS = "Pane"
    # Neither a new size nor another focus needs a second paint of the whole screen: boards show their focus.
    virtual_size = Reactive(Size(0, 0), layout=False, repaint=False)
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    BINDINGS: ClassVar = bindings()

    def __init__(
        self,
        context: ScreenContext,
        body: Body[S],
        commands: Mapping[str, Callable[[MonitorScreen[S]], object]],
        leave_host: Callable[[str], None] | None = None,
        begin: Callable[[MonitorScreen[S]], None] | None = None,
    ) -> None:
        """`commands`: those of every screen and of this body by their id. `leave_host`: back to the fleet, with what is
        to be said there. `begin`: done once the first snapshot is shown."""
        super().__init__()
        self.context: ScreenContext = context
        context.post_message = self.post_message
        context.say = self.say
        context.warn = partial(self.say, urgent=True)
        context.ask = self.ask
        self.control = context.control
        self.files = context.files
        self.palette = context.palette
        self.view = context.view
        self.body: Body[S] = body
        self.panes: Mapping[str, Pane] = body.panes
        self.commands = commands
        self.leave_host = leave_host
        self._begin = begin
        self.latest: S | None = None
        """The newest snapshot."""
        self.shown: S | None = None
        """The snapshot in the panes: the newest one, or one that is frozen or of the past."""
        self.planned: Plan | FleetPlan | None = None
        """The plan in effect; None before the first one."""
        self._layout_inputs: tuple[object, ...] = ()
        """All that the layout in effect follows from."""
        self.holder_below_help = KeyHolder("")
        """The holder of the keys when the help was opened."""
        self.last_focused = next(iter(self.panes))
        """Name of the pane that had the focus before a page or a question took it."""
        self._arrived_s = context.monotonic()
        """When the newest snapshot came (clock of the context)."""
        self._painted_s = 0.0
        """When panes were painted last (monotonic clock)."""
        self.question_bar: QuestionBar | None = None
        """The open question."""
        self.ends_notice: Timer | None = None
        """Brings the keys back; None: no notice ends by itself."""
        self.opening: Awaitable[None] | None = None
        """Mount of a question over the screen: the next key is for it."""
        self.title_bar = TitleBar(self.palette)
        self.key_line = KeyLine(self.palette)
        self.screen_settings: ScreenSettings = ScreenSettings(context)
        self.pages = Pages()
        self.dock = SizingDock()
        self.travel: TimeTravel[S] = TimeTravel(body.past)

    def compose(self) -> ComposeResult:
        """Top to bottom; sized before the first paint."""
        self.lay_out()
        for board in self.boards():
            board.asks_for_all = self.title_bar
        yield from (self.title_bar, *self.body.parts, self.key_line, self.body.tiny_summary)

    def on_mount(self) -> None:
        """Start the clock."""
        self.screen_layout_refresh_signal.subscribe(self, self._settle)
        self.show_keys()
        self._tick()

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - the signature of Textual's handler
        """Lay out for the new size, before Textual arranges and paints it: one frame, without the old rows."""
        self.lay_out()

    def on_descendant_focus(self) -> None:
        """Name the keys of whatever has them now; also after a click, which may open something in a pane, or leave
        it."""
        self.show_keys()

    on_click = on_descendant_focus

    def on_screen_resume(self) -> None:
        """Paint all anew on the way back from another screen: theme, units and size may be others now."""
        if self.shown is not None:
            self.screen_settings.chosen_theme = self.view.config.general.theme
            self.redraw()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The ground below the boards, which cover it: Textual would make all of its lines anew for every frame."""
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    def action_do(self, command: str) -> None:
        """Run a command by its id."""
        run = self.commands.get(command)
        if run is not None:
            run(self)
        if self._has_cell():
            self.show_keys()

    def _has_cell(self) -> bool:
        """Whether the pane with the keys has a cell cursor, which the last line explains."""
        return isinstance(self.current, ListPane) and self.current.cell != ""

    @property
    def playback(self) -> Playback | None:
        """The recording that is shown; None where this is no replay."""
        return self.context.playback

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot as one machine, whatever moment the panes show; None: nothing yet."""
        return None if self.latest is None else self.body.as_one_machine(self.latest)

    @property
    def in_panes(self) -> Snapshot | None:
        """The snapshot that pages show; None: nothing yet."""
        return None if self.shown is None else self.body.as_one_machine(self.shown)

    @property
    def paused(self) -> bool:
        """Whether the display is frozen."""
        return self.travel.paused

    @property
    def gone_back(self) -> bool:
        """Whether a moment is shown that the user went to."""
        return self.context.gone_back

    @property
    def keys_move_in_time(self) -> bool:
        """Whether the keys of time go before those of the page or pane that has the keys."""
        is_timeless = self.current is not None and self.current.TIMELESS
        is_held = self.travel.paused or self.playback is not None
        return is_held and not is_timeless and not self.travel.past.why_not()

    @property
    def playing(self) -> Playing | None:
        """The recording that is shown, as the title names it; None where this is no replay."""
        playback = self.playback
        if playback is None:
            return None
        span = self.travel.past.span()
        ended = self.shown is not None and span is not None and self.shown.wall_s >= span[1] - SAME_MOMENT_S
        return Playing(file=clean(playback.file, _MOST_FILE), speed=playback.speed, ended=ended)

    @property
    def tiny(self) -> bool:
        """Whether only a summary has room."""
        return self.planned is None or self.planned.tiny

    @property
    def current(self) -> Pane | None:
        """The pane with the keys: the sizing panel where it has the focus, the page, else the pane with the focus; None
        where none can be seen."""
        if self.tiny:
            return None
        if self.dock.focused:
            return self.dock.panel
        if self.pages.shown is not None:
            return self.pages.shown
        if isinstance(self.focused, Pane):
            return self.focused
        return None

    def boards(self) -> Iterator[Board]:
        """Everything that is painted."""
        yield from (self.title_bar, *self.body.parts, *self.pages.by_name.values())
        yield from (self.key_line, self.body.tiny_summary)
        if self.dock.panel is not None:
            yield self.dock.panel

    def mount_pane(self, pane: Pane) -> None:
        """Mount a pane that was made late, above the line of keys."""
        pane.asks_for_all = self.title_bar
        self.mount(pane, before=self.key_line)

    def on_snapshot_ready(self, message: SnapshotReady[S]) -> None:
        """Show the newest snapshot; the first time go to the moment that the screen is to begin at."""
        self.show(message.snapshot)
        begin = self._begin
        self._begin = None
        if begin is not None:
            begin(self)

    def on_keys_changed(self) -> None:
        """Name the keys that do something by now."""
        self.show_keys()

    def on_choices_changed(self) -> None:
        """Renew the choices of the question, or of the palette."""
        if self.question_bar is not None:
            self.question_bar.renew_choices()
        elif self.app.screen is not self:
            for field in self.app.screen.query(Input):
                # Textual's palette lists its commands anew when its text changes.
                self.app.screen.post_message(Input.Changed(field, field.value))

    def on_settings_changed(self) -> None:
        """Take over the keys and the cadence of other settings, and paint everything by them."""
        self.app.set_keymap(keymap_of(self.view.keymap))
        interval_s = self.body.settings[0].value(self.view.config)
        if interval_s != self.control.interval_s:
            self.control.set_interval(interval_s)
        self.redraw()

    def on_theme_read(self, message: ThemeRead) -> None:
        """Paint everything in the colours of a theme."""
        if self.question_bar is not None:  # the cursor went on from a theme that could not be read: its notice goes
            self.hush()
        self.palette.use(message.theme)
        colour_textual(self.app, self.palette)
        self.redraw()

    def on_work_wanted(self, message: WorkWanted) -> None:
        """Work beside the screen, in place of what is left of the same group."""
        self.run_worker(message.work, exclusive=True, group=message.group)

    def show(self, snapshot: S) -> None:
        """Take in a snapshot that was collected; paint it unless the display is frozen."""
        previous = self.latest
        self.latest = snapshot
        if previous is None or snapshot.wall_s != previous.wall_s:  # the same moment again is nothing new
            self._arrived_s = self.context.monotonic()
        self.body.note_arrival(self, previous, snapshot)
        self.show_newest_in_sizing()
        if self.travel.paused:
            self._say_what_became_critical(previous, snapshot)
            self.show_title()
        else:
            self.show_live(snapshot)

    def show_newest_in_sizing(self) -> None:
        """Show the newest snapshot in the sizing panel, whatever moment the panes show."""
        if self.dock.panel is not None and self.dock.open and self.newest is not None:
            self.dock.panel.show(self.newest)

    def _say_what_became_critical(self, before: S | None, now: S) -> None:
        """While a live display stands still, say what became critical meanwhile."""
        if self.playback is not None:
            return
        verdicts_before = () if before is None else self.body.as_one_machine(before).verdicts
        known_verdicts = {(verdict.scope, verdict.code) for verdict in verdicts_before}
        for verdict in self.body.as_one_machine(now).verdicts:
            if verdict.level is Level.CRITICAL and (verdict.scope, verdict.code) not in known_verdicts:
                scope = clean(verdict.scope, _MOST_SCOPE)
                text = clean(f"{LIMIT_NAMES[verdict.code]}: {verdict_text(verdict, clock)}", _MOST_TEXT)
                self.say(f"! now, live: {scope}: {text}", urgent=True)
                return

    def show_live(self, snapshot: S) -> None:
        """Paint what is live, or what a recording plays."""
        if self.gone_back:
            self.context.gone_back = False
            self._jump_panes()
        self.read_from(self.travel.past.live)
        self.paint(snapshot)

    def show_past(self, arrival: Arrival[S]) -> None:
        """Paint a moment that the user went to."""
        self.context.gone_back = True
        self.read_from(arrival.history)
        self._jump_panes()
        self.paint(arrival.snapshot)

    def read_from(self, history: History | None, *, anew: bool = False) -> None:
        """Draw the charts from these series (None: from the same as before), `anew` even if they are the same; and tell
        panes and pages whether what they show has a time of its own, as all that is not live."""
        for pane in self._panes_and_pages():
            pane.past = self.gone_back or self.playback is not None
            if history is not None and (anew or history is not self.travel.history):
                pane.read_from(history)
        self.travel.history = history

    def _panes_and_pages(self) -> Iterator[Pane]:
        """All panes, and the pages that were made."""
        yield from (*self.panes.values(), *self.pages.by_name.values())

    def _jump_panes(self) -> None:
        """Prepare panes and pages for a snapshot of any time."""
        for pane in self._panes_and_pages():
            pane.prepare_for_jump()
        if self.dock.panel is not None:
            self.dock.panel.update()

    def paint(self, snapshot: S) -> None:
        """Show a moment in every pane."""
        self.shown = snapshot
        self.lay_out()
        machine = self.body.as_one_machine(snapshot)
        self.body.show(self, snapshot)
        for page in self.pages.by_name.values():
            page.show(machine)
        self.show_status()
        self.show_title()
        if self._has_cell():
            self.show_keys()
        self._painted_s = time.monotonic()

    def _tick(self) -> None:
        """Paint the clock once per second, just after it changes; while snapshots come that often, they carry it
        along."""
        if not self.is_attached:
            return
        # Not Textual's timer, which is a task and two messages each time: that was a fiftieth of what the screen takes.
        to_next_second_s = 1.0 - self.context.unix_time() % 1.0
        asyncio.get_running_loop().call_later(to_next_second_s + _CLOCK_DELAY_S, self._tick)
        is_carried = time.monotonic() - self._painted_s <= _CARRIED_S
        if self.gone_back or (not self.travel.paused and not is_carried):
            self.call_later(self.show_title)

    def show_status(self) -> None:
        """Paint what says whether the display is frozen, but the title."""
        self.body.show_status(self)

    def show_title(self) -> None:
        """Paint the title line."""
        freshness = Freshness(
            shown_s=None if self.shown is None else self.shown.wall_s,
            paused=self.travel.paused,
            waited_s=self.context.monotonic() - self._arrived_s,
            every_s=self.control.interval_s,
            back=self.gone_back,
            playing=self.playing,
            asked_s=self.travel.asked_s,
        )
        self.title_bar.show(self.body.heading(self), self.context.unix_time(), self.body.freshness(self, freshness))

    def lay_out(self) -> None:
        """Give each part its lines; costs a layout only where that changes something."""
        screen_width, height = self.app.size
        width = screen_width - self.dock.columns
        notice_lines = self._notice_lines(width, screen_width, height)
        height -= notice_lines - 1  # one line is that of the keys, which every plan has
        plan = self.body.plan(self, width, height)
        if plan.tiny and self.question_bar is not None:
            self.question_bar.action_drop()  # what is typed must be seen
        beside_summary = plan.tiny and self.key_line.notice != ""
        inputs = (plan, self.pages.shown, screen_width, width, height, self.dock.open, beside_summary)
        if inputs == self._layout_inputs and self.title_bar.is_mounted:
            return
        self.remember_focus()
        self._layout_inputs = inputs
        self.planned = plan
        self.body.after_layout(self)
        self._size_panes(plan, width, height)
        self._size_edges(tiny=plan.tiny, height=height, notice_lines=notice_lines)
        if self.key_line.is_mounted and not self.tiny and (self.focused is None or not self.focused.display):
            self.give_keys()  # what had them lost its place, or all had

    def _size_panes(self, plan: Plan | FleetPlan, width: int, height: int) -> None:
        """Give the panes, the page and the sizing panel their lines."""
        for part, lines in zip(self.body.parts, plan.parts, strict=True):
            part.give(lines, width)
        for page in self.pages.by_name.values():
            page_lines = plan.page if page is self.pages.shown else 0
            page.give(page_lines, width)
        panel_lines = 0 if plan.tiny else height - _TITLE_AND_KEYS
        if self.dock.covers:
            panel_lines = plan.page
        self.dock.give(panel_lines, under_page=self.pages.shown is not None)

    def _size_edges(self, *, tiny: bool, height: int, notice_lines: int) -> None:
        """Give title and key line their lines; without room, the summary takes all but those of a notice."""
        if not tiny:
            self.title_bar.give(1)
            self.key_line.give(notice_lines)
            self.body.tiny_summary.give(0)
            return
        self.title_bar.give(0)
        if self.key_line.notice:
            height -= 1  # the first line of the notice, which `height` still has: it is that of the keys elsewhere
            self.key_line.give(notice_lines)
        else:
            self.key_line.give(0)
        self.body.tiny_summary.give(max(1, height))

    def _notice_lines(self, width: int, screen_width: int, height: int) -> int:
        """Lines at the foot: more than one only where a notice needs them, and the panes have them to give. `width`:
        cells of the panes; `screen_width`, `height`: of the screen.

        A notice never takes the place of the pane with the focus: the keys would go to another pane and stay there. Its
        last lines are cut off instead.
        """
        spare = max(0, height - LEAST_HEIGHT)
        lines = min(self.key_line.lines_wanted(screen_width), 1 + spare)
        if lines == 1 or not self._has_place(self.body.plan(self, width, height)):
            return lines  # it takes nothing away
        while lines > 1 and not self._has_place(self.body.plan(self, width, height - lines + 1)):
            lines -= 1
        return lines

    def _has_place(self, plan: Plan | FleetPlan) -> bool:
        """Whether a plan has lines for the pane with the focus, or for the one that gets it back."""
        pane: Widget | None = self.focused if self.focused in self.panes.values() else self.panes[self.last_focused]
        return any(part is pane and lines > 0 for part, lines in zip(self.body.parts, plan.parts, strict=True))

    def _settle(self, _: object) -> None:
        """After a layout: bring the rules and the keys of parts that kept their size up to date."""
        for board in self.boards():
            board.settle()
        self.show_keys()

    def redraw(self) -> None:
        """Paint everything from scratch."""
        self.body.after_layout(self)
        for board in self.boards():
            board.forget()
        self.refresh(layout=True)
        self.lay_out()
        self.show_keys()

    def remember_focus(self) -> None:
        """Note which pane has the focus, for when what covers it is closed."""
        if self.dock.focused:
            self.dock.has_keys = True
            return
        focused = next((name for name, pane in self.panes.items() if pane is self.focused), "")
        if focused:
            self.last_focused = focused
            self.dock.has_keys = False

    def give_keys(self) -> None:
        """Give the keys to what lies on top: the page, the sizing panel, the pane that had them, else the first one."""
        candidates: list[Board] = [self.panes[self.last_focused], *self.panes.values()]
        if self.dock.panel is not None and self.dock.open and (self.dock.has_keys or self.dock.covers):
            candidates.insert(0, self.dock.panel)
        if self.pages.shown is not None:
            candidates.insert(0, self.pages.shown)
        self.set_focus(next((part for part in candidates if part.display), None))

    def key_holder(self) -> KeyHolder:
        """The part that has the keys now, and what it can do."""
        current = self.current
        playback = self.playback
        panel = self.dock.panel
        scrolls = current is not None and current.scrolls
        if self.question_bar is not None:
            scrolls = self.question_bar.has_choices
        holder = KeyHolder(
            self._name_of_key_holder(),
            page=current is not None and current is self.pages.shown,
            zoomed=bool(self.body.zoomed),
            opened=panel is not None and current is panel and panel.editing,
            paused=self.travel.paused,
            past=self.keys_move_in_time,
            speed=playback.speed if playback is not None else None,
            beside=self.dock.columns > 0,
            scrolls=scrolls,
            interval=period(self.control.interval_s),
            inner=self.gone_back and playback is None,
            searching=current is not None and current.search.text != "",
        )
        return self.body.key_holder(self, holder)

    def show_keys(self) -> None:
        """Name the keys that do something here."""
        formula = self.body.formula_at_cursor(self) if self._has_cell() else ""
        self.key_line.show(hints_for(self.view.keymap, self.key_holder()), formula)

    def _name_of_key_holder(self) -> str:
        """The name of the question, page, panel or pane that has the keys; empty where none has."""
        if self.question_bar is not None:
            return ASKED
        current = self.current
        panel = self.dock.panel
        if panel is not None and panel is current:
            return panel.keys_of
        for name, pane in (*self.panes.items(), *self.pages.by_name.items()):
            if pane is current:
                return name
        return ""

    def ask(self, question: Question) -> None:
        """Ask at the foot of the screen, if there is room; what is asked has the keys until it is closed."""
        if self.tiny:
            return
        from gpumon.tui.screens.questions import QuestionBar

        self.question_bar = QuestionBar(question, self._end_question)
        self.show_keys()
        self.remember_focus()
        self.opening = self.mount(self.question_bar)

    def _end_question(self) -> None:
        """Give the keys back after a question."""
        self.question_bar = None
        self.give_keys()
        self.show_keys()

    def say(self, text: str, *, urgent: bool = False) -> None:
        """Show a notice on the line of keys, for some seconds or until the next key; an `urgent` one until the next
        key."""
        self.key_line.tell(text, urgent=urgent)
        if self.ends_notice is not None:
            self.ends_notice.stop()
            self.ends_notice = None
        if not urgent:
            self.ends_notice = self.set_timer(NOTICE_S, self.hush)
        self.lay_out()

    def hush(self) -> None:
        """Bring the keys back where a notice stands."""
        if self.key_line.notice:
            self.key_line.tell("")
            self.lay_out()

    def filter_everywhere(self, text: str) -> None:
        """Show in every pane what contains the words, and what belongs to an engine that does."""
        self.view.everywhere = text.strip()
        for pane in self.panes.values():
            pane.update()
        self.lay_out()
        self.show_title()
        self.show_keys()
