"""The panes of one machine, live, of a recording, or of a fleet's host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from gpumon.config.validate import with_setting
from gpumon.readings.format import counted
from gpumon.readings.snapshot import Engine, Event, Level, Snapshot
from gpumon.readings.verdict import Action, Verdict
from gpumon.tui.control import BundleFacts, Control, EngineLog, Picture, Playback, Timeline
from gpumon.tui.engine_table import ENGINE_LISTING, ended_at
from gpumon.tui.gpu_table import gpu_listing
from gpumon.tui.headline import headline
from gpumon.tui.layout import PANES, Counts, Plan, pane_heights
from gpumon.tui.line import Row
from gpumon.tui.marked import Marked
from gpumon.tui.process_table import process_listing
from gpumon.tui.screens import commands
from gpumon.tui.screens.focus import go_to_pane, zoom
from gpumon.tui.screens.monitor import MonitorScreen, ScreenContext
from gpumon.tui.screens.travel import MachinePast, Past
from gpumon.tui.summary import summary
from gpumon.tui.triage_rows import row_key_of, verdict_key
from gpumon.tui.triage_words import most_urgent
from gpumon.tui.wall.gpus import tile_of_gpu
from gpumon.tui.wall.plan import lines_wanted
from gpumon.tui.widgets.board import Board, Painted
from gpumon.tui.widgets.history_pane import HistoryPane
from gpumon.tui.widgets.key_line import KeyHolder
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.summary_line import with_hint
from gpumon.tui.widgets.title_bar import Freshness, Heading, machine_heading
from gpumon.tui.widgets.triage_pane import TriagePane
from gpumon.tui.widgets.wall_pane import WallPane, WallShape

if TYPE_CHECKING:
    from gpumon.tui.detail.cell import Explained
    from gpumon.tui.pages.detail import DetailPage
    from gpumon.tui.settings_table import Setting

HostScreen: TypeAlias = MonitorScreen[Snapshot]
HOST_KEY: Final = ("host", "")
"""Kind and key of the machine itself."""
LEAD: Final = "fleet > "
"""Before the name of a fleet's host in the title."""
_ROOMY: Final = 80
"""Columns from which a rule has room for the word `key`."""
_WALL_HINT: Final = 100
"""Columns from which the rule of a zoomed wall names the keys that lead back beside the tile under the cursor."""
_RAISED_S: Final = 60.0
"""Seconds after the last critical verdict for which the triage pane stays on top: no pane jumps to and fro."""


class HostBody:
    """Five panes: GPUs, engines, history, processes, triage."""

    fleet: bool = False
    past: Past[Snapshot]
    parts: Sequence[Board]
    small: Board
    commands: Mapping[str, Callable[[HostScreen], object]]
    """Commands that do something else here than on other screens, or are of this one alone."""

    def __init__(
        self, context: ScreenContext, control: Control, filling: Callable[[], bool] | None = None, gpu: str = ""
    ) -> None:
        """`filling`: whether the past of a fleet's host is still being read; None: it is this machine. `gpu`: UUID of
        the GPU whose page is shown first."""
        palette = context.palette
        view = context.view
        view.marked = None  # a mark is of what this screen's source counts: it counts anew, maybe on another host
        view.marked_s = None
        self.afar = filling is not None
        self._first_gpu = gpu
        self._filling = filling or (lambda: False)
        self._control = control
        self.past = MachinePast(control, slow=self.afar)
        self.history = HistoryPane(palette, view, control.history)
        self.triage = TriagePane(palette, view, control.history)
        gpus = WallPane(palette, view, gpu_listing(), tile_of_gpu, lambda _: "", control.history)
        self._gpus = gpus
        engines = ListPane(palette, view, ENGINE_LISTING)
        self._engines = engines
        processes = ListPane(palette, view, process_listing(afar=self.afar))
        every: tuple[Pane, ...] = (gpus, engines, self.history, processes, self.triage)
        self.panes: Mapping[str, Pane] = dict(zip(PANES, every, strict=True))
        self.headline = Painted(palette)
        self.parts = (self.headline, *every)
        self._critical_s = -math.inf
        """When a critical verdict was shown last (Unix time)."""
        self._raised = False
        """Whether the triage pane stands on top."""
        self._summary = Painted(palette)
        self.small = self._summary
        self.zoomed = ""
        self._zoomed_for_roofline = False
        """Whether the history pane is zoomed because the roofline had too few lines."""
        self.commands = {
            "open": self._open,
            "zoom": self._zoom,
            "wall": self._turn_wall,
            "wall.figure": self._next_figure,
            "roofline": self._turn_to_roofline,
            "up": partial(self._move, -1),
            "down": partial(self._move, 1),
            "back": self._back,
            "span.shorter": partial(self._span, -1),
            "span.longer": partial(self._span, 1),
            "copy": self._copy,
            "filter.all": _filter_everywhere,
            "log": self._log,
            "mark": _mark,
            "requests": self._requests,
            "compare": self._compare,
            "log.follow": partial(_in_log, "log.follow"),
            "log.error": partial(_in_log, "log.error"),
            "requests.errors": _in_requests,
            "cell": _next_cell,
            "hide": self._hide,
            "hide.none": self._show_hidden,
            **{pane.KEY: partial(_go, name) for name, pane in self.panes.items()},
            self.triage.KEY: self._go_to_worst,
        }

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page, imported when they are asked for."""
        from gpumon.tui.settings_table import FLEET_SETTINGS, SETTINGS

        if self.afar:
            return FLEET_SETTINGS
        return SETTINGS

    @property
    def playback(self) -> Playback | None:
        """The recording that is shown; None where this is no replay."""
        return self._control.playback

    @property
    def timeline(self) -> Timeline | None:
        """The past that is kept; None without one."""
        return self._control.timeline

    def plan(self, screen: HostScreen, width: int, height: int) -> Plan:
        """The lines of each pane."""
        covered = screen.pages.shown is not None or screen.dock.covers
        counts = _counts(screen.shown, width, self.triage)
        if self._gpus.shape is WallShape.ROWS:
            counts = counts._replace(wall=0)
        return pane_heights(width, height, counts, zoomed=self.zoomed, page=covered)

    def laid_out(self, screen: HostScreen) -> None:
        """Say on the rules which panes have no place, and the keys that show them."""
        key = screen.view.keymap.first
        if isinstance(screen.planned, Plan):
            hidden = screen.planned.hidden
        else:
            hidden = ()
        alone = len(hidden) == len(PANES) - 1
        names = " · ".join(f"{key(self.panes[name].KEY)}: {name}" for name in hidden)
        if names and screen.app.size.width - screen.dock.columns >= _ROOMY:
            names = f"key {names}"
        all_panes = self._all_panes_hint(screen)
        for name, pane in self.panes.items():
            pane.zoomed = name == self.zoomed
            if alone and name not in hidden:
                pane.hint = all_panes
            elif name == PANES[-1]:
                pane.hint = names
            else:
                pane.hint = ""

    def _all_panes_hint(self, screen: HostScreen) -> str:
        """The keys that lead back to all panes; empty on a zoomed wall without room for them."""
        key = screen.view.keymap.first
        if not self.zoomed:
            return f"{key('back')}: all panes"
        if self.zoomed == PANES[0] and screen.app.size.width < _WALL_HINT:
            return ""
        return f"{key('zoom')} {key('back')}: all panes"

    def whole(self, snapshot: Snapshot) -> Snapshot:
        """It is one machine."""
        return snapshot

    def arrived(self, screen: HostScreen, before: Snapshot | None, now: Snapshot) -> None:
        """Ring for new alerts, go on counting since the mark, and draw all charts anew once their past is there: they
        look at what is new alone."""
        if screen.view.marked is not None:
            screen.view.marked.take(now)
        alerts = rung_alerts(now)
        if before is not None:
            alerts -= rung_alerts(before)
        if alerts:
            screen.app.bell()
        if self._filling() is not self.history.filling:
            self.history.filling = self._filling()
            screen.travel.read_from(screen.travel.history, anew=True)

    def show(self, screen: HostScreen, snapshot: Snapshot) -> None:
        """Paint it in every pane; while the rest is not read yet, in that of the GPUs."""
        if self._control.opening:
            self._gpus.show(snapshot)
            return
        for pane in self.panes.values():
            pane.show(snapshot)
        self.headline.paint(partial(self._headline, snapshot))
        self._place_triage(screen, snapshot)
        if self._first_gpu:
            page = ("gpu", self._first_gpu)
            self._first_gpu = ""
            self._gpus.go_to(page[1])
            self._open_page(screen, page)

    def _headline(self, snapshot: Snapshot, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of a line that is painted
        return (headline(snapshot, self.triage.items(snapshot), self._control.prices, width),)

    def _place_triage(self, screen: HostScreen, snapshot: Snapshot) -> None:
        """Put the triage pane on top while something is critical and a while longer, else at the foot."""
        if any(verdict.level is Level.CRITICAL for verdict in snapshot.verdicts):
            self._critical_s = snapshot.wall_s
        raised = 0.0 <= snapshot.wall_s - self._critical_s <= _RAISED_S
        if raised is self._raised or not self.triage.is_mounted:
            return
        self._raised = raised
        screen.move_child(self.triage, after=self.headline if raised else self.panes[PANES[-2]])

    def show_standing(self, screen: HostScreen) -> None:
        """The summary that stands for everything."""
        paused = screen.travel.paused
        gone_back = screen.gone_back or screen.playback is not None
        draw = partial(summary, screen.shown, paused=paused, gone_back=gone_back)
        self._summary.paint(partial(with_hint, draw, screen.view.keymap.first("quit")))

    def heading(self, screen: HostScreen) -> Heading:
        """Which machine it is."""
        heading = machine_heading(screen.shown, LEAD if self.afar else "", screen.travel.playing)
        return msgspec.structs.replace(heading, filter=screen.view.everywhere)

    def freshness(self, screen: HostScreen, freshness: Freshness) -> Freshness:
        """The freshness, with the age that a reading of a fleet's host had when the host was opened."""
        if self.afar and screen.latest is not None:
            known_s = screen.wall() - screen.latest.wall_s
        else:
            known_s = 0.0
        every_s = max(freshness.every_s, screen.shown.interval_s if screen.shown is not None else 0.0)
        return msgspec.structs.replace(freshness, waited_s=max(freshness.waited_s, known_s), every_s=every_s)

    def place(self, screen: HostScreen, place: KeyHolder) -> KeyHolder:
        """A chart may have its pane to itself."""
        opened = place.opened or (screen.current is self.history and self.history.opened)
        narrowed = screen.view.everywhere != ""
        if screen.current is self._gpus and self._gpus.walled:
            place = msgspec.structs.replace(place, name="wall")
        elif screen.current is self.history and not opened and _is_narrow(screen):
            place = msgspec.structs.replace(place, name="narrow history")
        return msgspec.structs.replace(place, opened=opened, inner=place.inner or self.afar, narrowed=narrowed)

    def point_at(self, events: Sequence[Event], snapshot: Snapshot) -> None:
        """The triage pane's cursor goes to what happened."""
        if events:
            self.triage.go_to(row_key_of(most_urgent(events), snapshot))

    def page_left(self, screen: HostScreen, page: Pane) -> None:
        """Put the list's cursor on the thing that the detail page went on to, if the list shows it."""
        page.let_go()
        if page is not screen.pages.by_name.get("detail"):
            return
        from gpumon.tui.pages.detail import DetailPage

        assert isinstance(page, DetailPage)
        kind, key = page.thing
        pane = self._list_of(kind)
        if pane is not None and key in pane.pages():
            pane.go_to(key)

    def explained(self, screen: HostScreen) -> str:
        """The formula of the cell under the cell cursor."""
        return self._cell(screen).text

    def _cell(self, screen: HostScreen) -> Explained:
        """The formula of the cell under the cell cursor, and where its page says so."""
        from gpumon.tui.detail.cell import Explained, explain_cell

        pane = screen.current
        item = None
        if isinstance(pane, ListPane):
            item = pane.selected
        key = None
        if isinstance(pane, ListPane) and item is not None:
            key = pane.page_of(item)
        if key is None or screen.shown is None:
            return Explained("")
        assert isinstance(pane, ListPane)
        return explain_cell(key, pane.cell, screen.shown, screen.view)

    def incident(self, screen: HostScreen, text: str, drawn: Picture) -> BundleFacts | None:
        """The snapshot with what happened before it, and the past."""
        if screen.shown is None:
            return None
        events = {
            (event.wall_s, event.kind, event.key, event.scope, event.code): event
            for history in {self._control.history, screen.travel.history or self._control.history}
            for event in history.events(-math.inf, math.inf)
        }
        ordered = tuple(sorted(events.values(), key=lambda event: event.wall_s))
        return BundleFacts(screen.shown, text, drawn, ordered, self._control.timeline, self._card(screen))

    def _card(self, screen: HostScreen) -> Picture | None:
        """The verdict whose page is shown, else the worst one, as a picture; None where all is well."""
        shown = screen.shown
        if shown is None:
            return None
        verdicts: Sequence[Verdict] = shown.verdicts
        key = ""
        if screen.pages.name == "detail":
            key = self._verdict_of_page(screen)
        chosen = next((verdict for verdict in verdicts if verdict_key(verdict) == key), None)
        if chosen is None:
            chosen = next((verdict for verdict in verdicts if verdict.level is not Level.OK), None)
        if chosen is None:
            return None
        from gpumon.tui.card import WIDTH, card
        from gpumon.tui.picture import picture

        strips = card(chosen, shown, screen.travel.history, screen.palette, screen.view)
        return partial(picture, strips, WIDTH, "gpumon")

    def _verdict_of_page(self, screen: HostScreen) -> str:
        """Key of the verdict whose page is shown; empty where it is the page of another thing."""
        from gpumon.tui.pages.detail import DetailPage

        page = screen.pages.shown
        assert isinstance(page, DetailPage)
        return page.thing[1] if page.thing[0] == "verdict" else ""

    def _open(self, screen: HostScreen) -> None:
        """Enter: the detail of the row."""
        if screen.current is not None and not screen.current.opens_here:
            screen.say(f"this match is no link; {screen.view.keymap.first('back')} ends the search")
            return
        thing = screen.current.open() if screen.current is not None else None
        if thing is not None:
            has_cell = isinstance(screen.current, ListPane) and screen.current.cell != ""
            place = ""
            if has_cell:
                place = self._cell(screen).place
            page = self._open_page(screen, thing)
            if place:
                page.point_to(place)
        elif screen.current is self.triage and self.triage.selected is not None:
            screen.say("no details: this line is not about a verdict, engine or GPU")
        screen.show_keys()

    def _open_page(self, screen: HostScreen, thing: tuple[str, str]) -> DetailPage:
        """Show the page of a thing, by its kind and key."""
        from gpumon.tui.pages.detail import DetailPage

        page = screen.pages.page("detail")
        assert isinstance(page, DetailPage)
        page.look_at(thing, self._keys_in)
        screen.pages.put_over(page)
        return page

    def _keys_in(self, kind: str) -> Sequence[str]:
        """The keys of the things of one kind (gpu, engine, process, verdict), filtered and sorted as their pane is."""
        pane = self._list_of(kind)
        return () if pane is None else pane.pages()

    def _list_of(self, kind: str) -> ListPane[object] | None:
        """The pane that lists things of a kind; replicas stand in the engines'."""
        lists = (pane for pane in self.parts if isinstance(pane, ListPane))
        return next((pane for pane in lists if kind == pane.listing.thing), None)

    def _zoom(self, screen: HostScreen) -> None:
        """The focused pane alone, or all again."""
        if screen.tiny:
            return
        if screen.pages.shown is not None or screen.dock.covers:
            screen.say(f"this has the whole screen: {screen.view.keymap.first('back')} shows the panes")
            return
        self._zoomed_for_roofline = False
        focused = next((name for name, pane in self.panes.items() if pane is screen.focused), PANES[0])
        zoom(screen, "" if self.zoomed else focused)

    def _go_to_worst(self, screen: HostScreen) -> None:
        """Give the keys to triage; where it has them, put its cursor back on the worst."""
        had_keys = self.triage.has_focus
        go_to_pane(screen, PANES[-1])
        if had_keys:
            self.triage.move_to_first()

    def _turn_wall(self, screen: HostScreen) -> None:
        """The GPUs as rows, or as a wall of tiles."""
        if screen.tiny:
            return
        go_to_pane(screen, PANES[0])
        self._gpus.turn()
        screen.lay_out()
        screen.show_keys()

    def _next_figure(self, screen: HostScreen) -> None:
        """Colour the wall by another figure."""
        if self._gpus.walled and self._gpus.display and not screen.tiny:
            self._gpus.show_next_figure()
        else:
            screen.say(f"there is no wall of GPUs here: {screen.view.keymap.first('wall')} shows it")

    def _turn_to_roofline(self, screen: HostScreen) -> None:
        """The roofline in the history pane, which is zoomed where it has too few lines; and the charts again."""
        from gpumon.tui.roofline import LEAST_ROOFLINE_HEIGHT, LEAST_ROOFLINE_WIDTH

        if screen.tiny:
            return
        if _is_narrow(screen):
            screen.say(f"the roofline needs {LEAST_ROOFLINE_WIDTH} columns")
            return
        go_to_pane(screen, PANES[2])
        self.history.turn_to_roofline()
        if not self.history.roofline:
            if self._zoomed_for_roofline and self.zoomed == PANES[2]:
                zoom(screen, "")
            self._zoomed_for_roofline = False
        elif self.zoomed != PANES[2] and self.history.size.height <= LEAST_ROOFLINE_HEIGHT:
            self._zoomed_for_roofline = True
            zoom(screen, PANES[2])
        screen.show_keys()

    def _move(self, lines: int, screen: HostScreen) -> None:
        """Move the cursor; the roofline comes after the last chart."""
        at_history = screen.current is self.history
        width = screen.app.size.width - screen.dock.columns
        if at_history and self.history.roofline_is_next(lines, width):
            self._turn_to_roofline(screen)
        else:
            commands.move(lines, screen)

    def _back(self, screen: HostScreen) -> bool:
        """One step back; from the roofline to the charts, in the size that they had."""
        if screen.tiny or screen.current is not self.history or not self.history.roofline:
            return commands.back(screen)
        self._turn_to_roofline(screen)
        return True

    def _span(self, step: int, screen: HostScreen) -> None:
        """Longer or shorter charts."""
        if not screen.tiny:
            self.history.step_span(step)
            screen.view.config = with_setting(screen.view.config, "screen", "span_s", self.history.span_s)
            self.panes["gpus"].update()

    def _copy(self, screen: HostScreen) -> None:
        """A command of the verdict under triage's cursor, or of the page's, to the terminal's clipboard; of several
        the one that is chosen."""
        from gpumon.tui.screens.copying import copy_advice

        triage = screen.view.keymap.first("pane.faults")
        copy_advice(screen, self._advised(screen), f"nothing to copy: choose a verdict in triage ({triage})")

    def _advised(self, screen: HostScreen) -> Sequence[Action]:
        """Actions of the verdict whose page is shown, else of the one under triage's cursor."""
        item = self.triage.selected
        key = item.key if item is not None else ""
        if screen.pages.name == "detail":
            key = self._verdict_of_page(screen) or key
        verdicts: Sequence[Verdict] = screen.shown.verdicts if screen.shown is not None else ()
        return next((verdict.actions for verdict in verdicts if verdict_key(verdict) == key), ())

    def _log(self, screen: HostScreen) -> None:
        """The log of the engine under the cursor, or of the page; of the only one where there is one."""
        engine = self._pointed_engine(screen)
        log = self._log_of(screen, engine)
        if engine is None or log is None:
            return
        from gpumon.tui.pages.log import LogPage

        page = screen.pages.page("log")
        assert isinstance(page, LogPage)
        screen.pages.put_over(page)
        page.look_at(f"engine {engine.name}", log)
        screen.show_keys()

    def _requests(self, screen: HostScreen) -> None:
        """The requests in the log of that engine."""
        engine = self._pointed_engine(screen)
        log = self._log_of(screen, engine)
        if engine is None or log is None:
            return
        from gpumon.tui.pages.requests import RequestsPage

        page = screen.pages.page("requests")
        assert isinstance(page, RequestsPage)
        screen.pages.put_over(page)
        page.look_at(f"engine {engine.name}", log.requests(engine.kind))
        screen.show_keys()

    def _log_of(self, screen: HostScreen, engine: Engine | None) -> EngineLog | None:
        """The log of an engine, not read yet; None, and a notice that says why, where there is none here."""
        if engine is None:
            screen.say(f"whose log: put the cursor on an engine ({screen.view.keymap.first('pane.engines')})")
            return None
        log = self._control.engine_log(engine)
        if isinstance(log, str):
            screen.say(log)
            return None
        return log

    def _compare(self, screen: HostScreen) -> None:
        """Open the page of the marked moment beside what is shown; on that page, compare again."""
        from gpumon.tui.pages.compare import ComparePage

        marked_s = screen.view.marked_s
        timeline = self._control.timeline
        if timeline is None:
            screen.say(self.past.why_not())
            return
        if marked_s is None:
            screen.say(f"no moment is marked: {screen.view.keymap.first('mark')} marks the one that is shown")
            return
        thing = self._compared_thing(screen)
        page = screen.pages.page("compare")
        assert isinstance(page, ComparePage)
        if screen.pages.shown is not page:
            page.look_at(thing)
        screen.pages.put_over(page)
        page.compare(timeline, marked_s)
        screen.show_keys()

    def _compared_thing(self, screen: HostScreen) -> tuple[str, str]:
        """The engine or GPU under the cursor, or of the page; the host elsewhere."""
        from gpumon.tui.detail.things import engine_of_thing

        shown = screen.in_panes
        current = screen.current
        thing = None
        if current is not None and current is screen.pages.by_name.get("detail"):
            from gpumon.tui.pages.detail import DetailPage

            assert isinstance(current, DetailPage)
            thing = current.thing
        elif isinstance(current, ListPane):
            thing = current.open()
        if thing is not None and thing[0] == "gpu":
            return thing
        engine = None
        if thing is not None and shown is not None:
            engine = engine_of_thing(shown, thing)
        if engine is not None:
            return "engine", engine.key
        return HOST_KEY

    def _pointed_engine(self, screen: HostScreen) -> Engine | None:
        """The engine that the row or page under the keys is about."""
        from gpumon.tui.detail.things import engine_of_thing

        shown = screen.in_panes
        if shown is None:
            return None
        current = screen.current
        page = screen.pages.by_name.get("detail")
        if current is not None and current is page:
            from gpumon.tui.pages.detail import DetailPage

            assert isinstance(page, DetailPage)
            return engine_of_thing(shown, page.thing)
        thing = None
        if isinstance(current, ListPane):
            thing = current.open()
        if thing is not None:
            return engine_of_thing(shown, thing)
        if len(shown.engines) == 1:
            return shown.engines[0]
        return None

    def _hide(self, screen: HostScreen) -> None:
        """Leave the row of an engine that has ended out of this screen."""
        pane = self._engines
        engine = pane.selected if screen.current is pane else None
        ended = None
        if engine is not None:
            ended = ended_at(engine)
        if ended is None:
            screen.say("only an engine that has ended can be hidden: put the cursor on its row")
            return
        pane.hide(pane.hidden | {ended})
        screen.say("hidden on this screen only; the palette's `show hidden rows again` brings it back")

    def _show_hidden(self, screen: HostScreen) -> None:
        """All rows again."""
        count = len(self._engines.hidden)
        self._engines.hide(frozenset())
        if count:
            screen.say(f"{counted(count, 'row')} shown again")
        else:
            screen.say("no row is hidden")


def _is_narrow(screen: HostScreen) -> bool:
    """Whether a roofline has no room beside the sizing panel."""
    from gpumon.tui.roofline import LEAST_ROOFLINE_WIDTH

    return screen.app.size.width - screen.dock.columns < LEAST_ROOFLINE_WIDTH


def _filter_everywhere(screen: HostScreen) -> None:
    """Type what rows of all panes must contain."""
    from gpumon.tui.screens.questions import filter_all_question

    screen.ask(filter_all_question(screen.view.everywhere, screen.filter_everywhere))


def _mark(screen: HostScreen) -> None:
    """Mark the moment that is shown; from now on, where that is live, count what engines do. An earlier mark goes."""
    from gpumon.tui.detail.values import shown_time

    newest = screen.latest
    shown = screen.shown
    if newest is None or shown is None:
        return
    compare = f"{screen.view.keymap.first('compare')} compares with it"
    if screen.gone_back:
        screen.view.marked = None
        screen.view.marked_s = shown.wall_s
        screen.say(f"marked {shown_time(shown.wall_s, newest.wall_s).clock}: {compare}")
        return
    screen.view.marked = Marked(newest)
    screen.view.marked_s = newest.wall_s
    clock = shown_time(newest.wall_s, newest.wall_s).clock
    screen.say(f"marked {clock}: an engine's page has what it did since then, {compare}")


def _next_cell(screen: HostScreen) -> None:
    """The cell cursor: the last line explains its cell."""
    pane = screen.current
    if not isinstance(pane, ListPane) or not pane.next_cell():
        screen.say("cells are in the tables of GPUs, engines and processes")


def _in_log(command: str, screen: HostScreen) -> None:
    """One of the commands of the log page, from the command palette."""
    from gpumon.tui.pages.log import LogPage

    page = screen.pages.shown
    if isinstance(page, LogPage):
        page.run(command)


def _in_requests(screen: HostScreen) -> None:
    """The order of the page of requests, from the command palette."""
    from gpumon.tui.pages.requests import RequestsPage

    page = screen.pages.shown
    if isinstance(page, RequestsPage):
        page.run("requests.errors")


def _go(name: str, screen: HostScreen) -> None:
    go_to_pane(screen, name)


def rung_alerts(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    """Alerts that ring the bell, each time that they are raised."""
    rung = set()
    for alert in snapshot.alerts:
        if alert.bell:
            rung.add((alert.name, alert.scope, alert.since))
    return rung


def _counts(snapshot: Snapshot | None, width: int, triage: TriagePane) -> Counts:
    """Numbers of rows and lines that the panes have to show on a screen of `width` cells."""
    if snapshot is None:
        return Counts()
    pids = set()
    for gpu in snapshot.gpus:
        for process in gpu.processes:
            pids.add(process.pid)
    triage_lines = triage.lines_wanted(snapshot, width)
    return Counts(
        gpus=len(snapshot.gpus),
        engines=len(snapshot.engines) + len(snapshot.replicas),
        processes=len(pids),
        triage=triage_lines.loud,
        evidence=triage_lines.quiet,
        urgent=triage_lines.urgent,
        wall=lines_wanted(len(snapshot.gpus), width),
    )
