"""The panes of one machine, live, of a recording, or of a fleet's host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from gpumon.readings.format import counted
from gpumon.readings.snapshot import Engine, Event, Level, Snapshot
from gpumon.readings.verdict import Action, Verdict
from gpumon.triage.marks import counted_verdicts
from gpumon.triage.roots import Root
from gpumon.tui.control import BundleFacts, Control, EngineLog, Picture
from gpumon.tui.engine_table import ended_at
from gpumon.tui.headline import headline
from gpumon.tui.layout import PANES, Counts, Plan, pane_heights
from gpumon.tui.line import Row
from gpumon.tui.marked import Marked
from gpumon.tui.screens import commands
from gpumon.tui.screens.context import ScreenContext
from gpumon.tui.screens.focus import go_to_pane, zoom
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.paging import prepare_page, put_over
from gpumon.tui.screens.past import MachinePast, Past
from gpumon.tui.summary import summary
from gpumon.tui.triage_rows import row_key_of
from gpumon.tui.triage_verdicts import verdict_key
from gpumon.tui.triage_words import most_urgent
from gpumon.tui.wall.plan import lines_wanted, wall_plan
from gpumon.tui.widgets.board import Board, Painted
from gpumon.tui.widgets.engine_pane import EnginePane
from gpumon.tui.widgets.gpu_pane import GpuPane
from gpumon.tui.widgets.history_pane import HistoryPane, Shows
from gpumon.tui.widgets.key_line import KeyHolder
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.process_pane import ProcessPane
from gpumon.tui.widgets.summary_line import with_hint
from gpumon.tui.widgets.title_bar import Freshness, Heading, machine_heading
from gpumon.tui.widgets.triage_pane import TriagePane
from gpumon.tui.widgets.wall_pane import WallShape

if TYPE_CHECKING:
    from gpumon.specs.gpu import GpuSpec
    from gpumon.tui.detail.cell import Explained
    from gpumon.tui.pages.detail import DetailPage
    from gpumon.tui.settings_table import Setting

HostScreen: TypeAlias = MonitorScreen[Snapshot]
HOST_KEY: Final = ("host", "")
"""Kind and key of the machine itself."""
_TITLE_LEAD: Final = "fleet > "
"""Before the name of a fleet's host in the title."""
_KEY_WORD_WIDTH: Final = 80
"""Columns from which a rule has room for the word `key`."""
_FEW_LINES_OF_PICTURE: Final = 18
"""Lines of the history pane up to which it is zoomed for the roofline or the map."""
_WALL_HINT_WIDTH: Final = 100
"""Columns from which the rule of a zoomed wall names the keys that lead back beside the tile under the cursor."""
_RAISED_S: Final = 60.0
"""Seconds after the last critical verdict for which the triage pane stays on top: no pane jumps to and fro."""
_GPUS, _ENGINES, _HISTORY, _PROCESSES, _TRIAGE = PANES


class HostBody:
    """Five panes: GPUs, engines, history, processes, triage."""

    fleet: bool = False
    past: Past[Snapshot]
    parts: Sequence[Board]
    tiny_summary: Board
    commands: Mapping[str, Callable[[HostScreen], object]]
    """Commands that do something else here than on other screens, or are of this one alone."""

    def __init__(
        self,
        context: ScreenContext,
        control: Control,
        is_past_loading: Callable[[], bool] | None = None,
        gpu: str = "",
    ) -> None:
        """`is_past_loading`: of a host of a fleet, tells whether its past is still being read; None: it is this machine
        or a recording. `gpu`: UUID of the GPU whose page is shown first; empty: none."""
        palette = context.palette
        view = context.view
        view.marked = None  # a mark is of what this screen's source counts: it counts anew, maybe on another host
        view.marked_s = None
        self.in_fleet = is_past_loading is not None
        """Whether it is a host of a fleet."""
        self._first_gpu = gpu
        """UUID of the GPU whose page the first snapshot opens; empty: none, or that is done."""
        self._is_past_loading = is_past_loading or (lambda: False)
        self._control = control
        self.past = MachinePast(control, slow=self.in_fleet)
        self.history = HistoryPane(palette, view, control.history, self._find_gpu)
        self.triage = TriagePane(palette, view, control.history)
        self._gpus = GpuPane(palette, view, control.history)
        self._engines = EnginePane(palette, view)
        self._processes = ProcessPane(palette, view, in_fleet=self.in_fleet)
        self.panes: Mapping[str, Pane] = {
            _GPUS: self._gpus,
            _ENGINES: self._engines,
            _HISTORY: self.history,
            _PROCESSES: self._processes,
            _TRIAGE: self.triage,
        }
        self.headline = Painted(palette)
        self.parts = (self.headline, *self.panes.values())
        self._critical_s = -math.inf
        """When a critical verdict was shown last (Unix time)."""
        self._triage_on_top = False
        """Whether triage is the uppermost pane, and not the lowest."""
        self._summary = Painted(palette)
        self.tiny_summary = self._summary
        self.zoomed = ""
        """Name of the pane that has the screen to itself; empty: none."""
        self._zoomed_for_picture = False
        """Whether the history pane is zoomed because the roofline, or the map, had too few lines."""
        self.commands = self._commands_by_id()

    def _commands_by_id(self) -> dict[str, Callable[[HostScreen], object]]:
        """The functions of the commands of this body, by their ids in the keymap."""
        by_id: dict[str, Callable[[HostScreen], object]] = {
            "open": self._open,
            "zoom": self._zoom,
            "wall": self._turn_wall,
            "wall.figure": self._next_figure,
            "roofline": self._turn_picture,
            "up": partial(self._move, -1),
            "down": partial(self._move, 1),
            "back": self._back,
            "span.shorter": partial(self._step_span, -1),
            "span.longer": partial(self._step_span, 1),
            "copy": self._copy,
            "acknowledge": self._acknowledge,
            "filter.all": _filter_everywhere,
            "log": self._open_log,
            "mark": _mark_moment,
            "requests": self._open_requests,
            "compare": self._compare_with_mark,
            "log.follow": partial(_run_on_page, "log.follow"),
            "log.error": partial(_run_on_page, "log.error"),
            "requests.errors": partial(_run_on_page, "requests.errors"),
            "detail.unfold": _unfold_page,
            "cell": _next_cell,
            "hide": self._hide_ended,
            "hide.none": self._show_hidden,
        }
        for name, pane in self.panes.items():
            by_id[pane.command] = partial(go_to_pane, name=name)
        by_id[self.triage.command] = self._go_to_worst  # does more than to go there
        return by_id

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page, imported when they are asked for."""
        from gpumon.tui.settings_table import FLEET_SETTINGS, SETTINGS

        return FLEET_SETTINGS if self.in_fleet else SETTINGS

    def plan(self, screen: HostScreen, width: int, height: int) -> Plan:
        """The lines of each pane."""
        covered = screen.pages.shown is not None or screen.dock.covers
        counts = self._narrowed_counts(_counts(screen.shown, width, self.triage), width)
        if self._gpus.shape is WallShape.ROWS:  # the user wants rows
            counts = counts._replace(wall=0)
        if self._gpus.shape is WallShape.WALL and counts.gpus:  # no more lines than its tiles fill
            tiles = wall_plan((counts.gpus,), 0, width, room=counts.gpus + 1)  # it has no header
            counts = counts._replace(gpus=max(1, min(counts.gpus, tiles.lines - 1)))
        return pane_heights(width, height, counts, zoomed=self.zoomed, page=covered)

    def _narrowed_counts(self, counts: Counts, width: int) -> Counts:
        """Numbers of rows and lines, of panes with a filter those that it leaves."""
        if self._gpus.filter.narrows:
            gpus = len(self._gpus.listed_items())
            counts = counts._replace(gpus=gpus, wall=lines_wanted(gpus, width))
        if self._engines.filter.narrows:
            counts = counts._replace(engines=max(1, len(self._engines.listed_items())))
        if self._processes.filter.narrows:
            counts = counts._replace(processes=max(1, len(self._processes.listed_items())))
        return counts

    def after_layout(self, screen: HostScreen) -> None:
        """Say on the rules which panes have no place, and the keys that show them."""
        key = screen.view.keymap.first
        hidden = screen.planned.hidden if isinstance(screen.planned, Plan) else ()
        hidden_names = " · ".join(f"{key(self.panes[name].command)}: {name}" for name in hidden)
        if hidden_names and screen.app.size.width - screen.dock.columns >= _KEY_WORD_WIDTH:
            hidden_names = f"key {hidden_names}"
        all_panes = self._all_panes_hint(screen)
        for name, pane in self.panes.items():
            pane.zoomed = name == self.zoomed
            if self.zoomed:
                pane.hint = all_panes if pane.zoomed else ""
            elif name == _TRIAGE:  # always in sight where several panes are
                pane.hint = hidden_names
            else:
                pane.hint = ""

    def _all_panes_hint(self, screen: HostScreen) -> str:
        """The keys that lead back to all panes; empty on a zoomed wall without room for them."""
        key = screen.view.keymap.first
        if self.zoomed == _GPUS and screen.app.size.width < _WALL_HINT_WIDTH:
            return ""
        return f"{key('zoom')} {key('back')}: all panes"

    def as_one_machine(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot itself: it is of one machine."""
        return snapshot

    def note_arrival(self, screen: HostScreen, before: Snapshot | None, now: Snapshot) -> None:
        """Ring for new alerts, go on counting since the mark, and draw all charts anew once their past is there: by
        themselves they look only at what is new."""
        if screen.view.marked is not None:
            screen.view.marked.take(now)
        if ringing_alerts(now) - (set() if before is None else ringing_alerts(before)):
            screen.app.bell()
        is_past_loading = self._is_past_loading()
        if is_past_loading is not self.history.is_past_loading:
            self.history.is_past_loading = is_past_loading
            screen.read_from(screen.travel.history, anew=True)

    def show(self, screen: HostScreen, snapshot: Snapshot) -> None:
        """Paint a snapshot in every pane; in that of the GPUs alone while nothing else is read yet."""
        if self._control.opening:
            self._gpus.show(snapshot)
            return
        for pane in self.panes.values():
            pane.show(snapshot)
        self.headline.paint(partial(self._headline, snapshot))
        self._place_triage(screen, snapshot)
        if self._first_gpu:
            uuid = self._first_gpu
            self._first_gpu = ""
            self._gpus.go_to(uuid)
            self._open_page(screen, ("gpu", uuid))

    def _headline(self, snapshot: Snapshot, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of a line that is painted
        """The line under the title."""
        return (headline(snapshot, self.triage.items(snapshot), self._control.prices, width, self._gpus.view),)

    def _place_triage(self, screen: HostScreen, snapshot: Snapshot) -> None:
        """Put the triage pane on top while something is critical and a while longer, else at the foot."""
        if any(verdict.level is Level.CRITICAL for verdict in counted_verdicts(snapshot)):
            self._critical_s = snapshot.wall_s
        on_top = 0.0 <= snapshot.wall_s - self._critical_s <= _RAISED_S
        if on_top is self._triage_on_top or not self.triage.is_mounted:
            return
        self._triage_on_top = on_top
        screen.move_child(self.triage, after=self.headline if on_top else self.panes[_PROCESSES])

    def show_status(self, screen: HostScreen) -> None:
        """Paint the summary that stands for everything."""
        paused = screen.travel.paused
        gone_back = screen.gone_back or screen.playback is not None
        draw = partial(summary, screen.shown, paused=paused, gone_back=gone_back)
        self._summary.paint(partial(with_hint, draw, screen.view.keymap.first("quit")))

    def heading(self, screen: HostScreen) -> Heading:
        """The name of the machine, and the filter of all panes."""
        heading = machine_heading(screen.shown, _TITLE_LEAD if self.in_fleet else "", screen.playing)
        return msgspec.structs.replace(heading, filter=screen.view.everywhere)

    def freshness(self, screen: HostScreen, freshness: Freshness) -> Freshness:
        """The freshness, with the age that a reading of a fleet's host had when the host was opened."""
        age_s = 0.0
        if self.in_fleet and screen.latest is not None:
            age_s = screen.context.unix_time() - screen.latest.wall_s
        interval_s = 0.0 if screen.shown is None else screen.shown.interval_s
        return msgspec.structs.replace(
            freshness, waited_s=max(freshness.waited_s, age_s), every_s=max(freshness.every_s, interval_s)
        )

    def key_holder(self, screen: HostScreen, holder: KeyHolder) -> KeyHolder:
        """The holder of the keys, whether a chart has its pane to itself, and with other keys on a wall of GPUs, and
        on the roofline and the map."""
        opened = holder.opened or (screen.current is self.history and self.history.opened)
        name = holder.name
        if screen.current is self._gpus and self._gpus.shows_tiles:
            name = "wall"
        elif screen.current is self.history and self.history.shows is not Shows.CHARTS:
            name = "picture" if self.history.other_picture is not None else "only picture"
        return msgspec.structs.replace(
            holder,
            name=name,
            opened=opened,
            unfolded=self._is_unfolded(screen),
            inner=holder.inner or self.in_fleet,
            idle=self._idle_on_page(screen),
            narrowed=screen.view.everywhere != "",
        )

    def _is_unfolded(self, screen: HostScreen) -> bool:
        """Whether a page shows all of its figures."""
        if screen.pages.shown is None:
            return False
        from gpumon.tui.pages.detail import DetailPage

        return isinstance(screen.pages.shown, DetailPage) and screen.pages.shown.unfolded

    def _idle_on_page(self, screen: HostScreen) -> frozenset[str]:
        """Commands that have nothing to do on the page of the thing that is shown."""
        from gpumon.triage.copyable import to_copy
        from gpumon.tui.detail.things import engine_of_thing

        thing = self._thing_of_page(screen, screen.pages.shown)
        shown = screen.in_panes
        if thing is None or shown is None:
            return frozenset()
        idle = set()
        if all(root.level is Level.OK for root in self._roots_at_cursor(screen)):
            idle.add("acknowledge")
        if not to_copy(self._actions_at_cursor(screen)):
            idle.add("copy")
        if engine_of_thing(shown, thing) is None:
            idle.update(("log", "requests"))
        if thing[0] != "engine":
            idle.add("detail.unfold")
        return frozenset(idle)

    def point_at(self, events: Sequence[Event], snapshot: Snapshot) -> None:
        """The triage pane's cursor goes to what happened."""
        if events:
            self.triage.go_to(row_key_of(most_urgent(events), snapshot))

    def before_page_closes(self, screen: HostScreen, page: Pane) -> None:
        """Put the list's cursor on the thing that the detail page went on to, if the list shows it."""
        page.drop_content()
        thing = self._thing_of_page(screen, page)
        if thing is None:
            return
        kind, key = thing
        pane = self._list_of(kind)
        if pane is not None and key in pane.page_keys():
            pane.go_to(key)

    def formula_at_cursor(self, screen: HostScreen) -> str:
        """The formula of the cell under the cell cursor."""
        return self._explain_cell(screen).text

    def _explain_cell(self, screen: HostScreen) -> Explained:
        """The formula of the cell under the cell cursor, and the place of the page that says so; empty without one."""
        from gpumon.tui.detail.cell import Explained, explain_cell

        pane = screen.current
        if not isinstance(pane, ListPane) or pane.selected is None or screen.shown is None:
            return Explained("")
        thing = pane.page_of(pane.selected)
        if thing is None:
            return Explained("")
        return explain_cell(thing, pane.cell, screen.shown, screen.view)

    def bundle_facts(self, screen: HostScreen, text: str, drawn: Picture) -> BundleFacts | None:
        """The snapshot with what happened before it, and the past."""
        if screen.shown is None:
            return None
        events: dict[object, Event] = {}
        """The events of what is live and of the past that is shown, each once."""
        for history in (self._control.history, screen.travel.history or self._control.history):
            for event in history.events(-math.inf, math.inf):
                events[event.wall_s, event.kind, event.key, event.scope, event.code] = event
        return BundleFacts(
            snapshot=screen.shown,
            screen=text,
            picture=drawn,
            events=tuple(sorted(events.values(), key=lambda event: event.wall_s)),
            timeline=self._control.timeline,
            card=self._card(screen),
        )

    def _card(self, screen: HostScreen) -> Picture | None:
        """The verdict whose page is shown, else the worst one, as a picture; None where all is well."""
        shown = screen.shown
        if shown is None:
            return None
        verdicts: Sequence[Verdict] = shown.verdicts
        on_page = self._thing_of_page(screen, screen.pages.shown)
        chosen = next((verdict for verdict in verdicts if ("verdict", verdict_key(verdict)) == on_page), None)
        if chosen is None:
            chosen = next((verdict for verdict in verdicts if verdict.level is not Level.OK), None)
        if chosen is None:
            return None
        from gpumon.tui.card import CARD_WIDTH, card_lines
        from gpumon.tui.picture import svg_picture

        strips = card_lines(chosen, shown, screen.travel.history, screen.palette, screen.view)
        return partial(svg_picture, strips, CARD_WIDTH, "gpumon")

    def _thing_of_page(self, screen: HostScreen, page: Pane | None) -> tuple[str, str] | None:
        """Kind and key of the thing that the detail page is about; None for any other page or pane."""
        if page is None or page is not screen.pages.by_name.get("detail"):
            return None
        from gpumon.tui.pages.detail import DetailPage

        assert isinstance(page, DetailPage)
        return page.thing

    def _pointed_thing(self, screen: HostScreen) -> tuple[str, str] | None:
        """Kind and key of the thing that the page or the row under the keys is about."""
        current = screen.current
        return current.open() if isinstance(current, ListPane) else self._thing_of_page(screen, current)

    def _open(self, screen: HostScreen) -> None:
        """Enter: do what it does in the current pane or page, such as the detail of a row, at the figure under the cell
        cursor."""
        current = screen.current
        thing = None
        if current is not None:
            if not current.opens_here:
                screen.say(f"this match is no link; {screen.view.keymap.first('back')} ends the search")
                return
            thing = current.open()
        if thing is not None:
            place_on_page = self._explain_cell(screen).place if isinstance(current, ListPane) and current.cell else ""
            page = self._open_page(screen, thing)
            if place_on_page:
                page.point_to(place_on_page)
        elif current is self.triage and self.triage.selected is not None:
            screen.say("no details: this line is not about a verdict, engine or GPU")
        screen.show_keys()

    def _open_page(self, screen: HostScreen, thing: tuple[str, str]) -> DetailPage:
        """Show the page of a thing, by its kind and key."""
        from gpumon.tui.pages.detail import DetailPage

        page = prepare_page(screen, "detail")
        assert isinstance(page, DetailPage)
        page.look_at(thing, self._keys_in)
        put_over(screen, page)
        return page

    def _keys_in(self, kind: str) -> Sequence[str]:
        """The keys of the things of one kind (gpu, engine, process, verdict), filtered and sorted as their pane is."""
        pane = self._list_of(kind)
        return () if pane is None else pane.page_keys()

    def _list_of(self, kind: str) -> ListPane[object] | None:
        """The pane that lists things of a kind; None for replicas, which stand among the engines."""
        lists = (pane for pane in self.parts if isinstance(pane, ListPane))
        return next((pane for pane in lists if kind == pane.listing.thing), None)

    def _zoom(self, screen: HostScreen) -> None:
        """The focused pane alone, or all again."""
        if screen.tiny:
            return
        if screen.pages.shown is not None or screen.dock.covers:
            screen.say(f"this has the whole screen: {screen.view.keymap.first('back')} shows the panes")
            return
        self._zoomed_for_picture = False
        focused = next((name for name, pane in self.panes.items() if pane is screen.focused), _GPUS)
        zoom(screen, "" if self.zoomed else focused)

    def _go_to_worst(self, screen: HostScreen) -> None:
        """Give the keys to triage; where it has them, put its cursor back on the worst."""
        had_keys = self.triage.has_focus
        go_to_pane(screen, _TRIAGE)
        if had_keys:
            self.triage.move_to_first()

    def _turn_wall(self, screen: HostScreen) -> None:
        """Show the GPUs as a wall of tiles, or as rows again."""
        if screen.tiny:
            return
        go_to_pane(screen, _GPUS)
        self._gpus.toggle_tiles()
        screen.lay_out()
        screen.show_keys()

    def _next_figure(self, screen: HostScreen) -> None:
        """Colour the wall by another figure."""
        if self._gpus.shows_tiles and self._gpus.display and not screen.tiny:
            self._gpus.show_next_figure()
        else:
            screen.say(f"there is no wall of GPUs here: {screen.view.keymap.first('wall')} shows it")

    def _find_gpu(self, gpu_type: str) -> GpuSpec | None:
        """The entry of a type of GPU in the catalogue; None where it has none."""
        try:
            return self._control.catalogues().gpus.find(gpu_type)
        except ValueError:
            return None

    def _turn_picture(self, screen: HostScreen) -> None:
        """Show the roofline or the map in the history pane, which is zoomed where it has few lines; or the charts."""
        if screen.tiny:
            return
        if self.history.first_picture is None:
            screen.say("nothing to draw: there is no GPU and no engine")
            return
        go_to_pane(screen, _HISTORY)
        self.history.turn_picture()
        if self.history.shows is Shows.CHARTS:
            if self._zoomed_for_picture and self.zoomed == _HISTORY:
                zoom(screen, "")
            self._zoomed_for_picture = False
        elif self.zoomed != _HISTORY and self.history.size.height <= _FEW_LINES_OF_PICTURE:
            self._zoomed_for_picture = True
            zoom(screen, _HISTORY)
        screen.show_keys()

    def _move(self, lines: int, screen: HostScreen) -> None:
        """Move the cursor; the roofline, or the map, comes after the last chart."""
        if screen.current is self.history and self.history.picture_is_next(lines):
            self._turn_picture(screen)
        else:
            commands.move(lines, screen)

    def _back(self, screen: HostScreen) -> bool:
        """One step back; from the roofline or the map to the charts, in the size that they had."""
        if screen.tiny or screen.current is not self.history or self.history.shows is Shows.CHARTS:
            return commands.back(screen)
        self._turn_picture(screen)
        return True

    def _step_span(self, step: int, screen: HostScreen) -> None:
        """Let the charts go back further (1) or less far (-1)."""
        if not screen.tiny:
            self.history.step_span(step)
            self._gpus.update()  # its sparks go back as far

    def _copy(self, screen: HostScreen) -> None:
        """Copy a command of the verdict under triage's cursor, or of those on what the page is about, to the terminal's
        clipboard; of several the one that is chosen."""
        from gpumon.tui.screens.copying import copy_advice

        triage = screen.view.keymap.first("pane.faults")
        copy_advice(screen, self._actions_at_cursor(screen), f"nothing to copy: choose a verdict in triage ({triage})")

    def _actions_at_cursor(self, screen: HostScreen) -> Sequence[Action]:
        """Actions of the verdict under triage's cursor, or of those on what the page is about."""
        return [action for root in self._roots_at_cursor(screen) for action in root.advised.actions]

    def _acknowledge(self, screen: HostScreen) -> None:
        """Ask why and for how long the verdicts under triage's cursor, or the first one of the page, are
        acknowledged."""
        from gpumon.tui.screens.acknowledging import ask_to_acknowledge

        roots = self._roots_at_cursor(screen)
        counting = [root for root in roots if root.acknowledged is None and root.level is not Level.OK]
        ask_to_acknowledge(screen, self._control, next((root.verdicts for root in (*counting, *roots)), ()))

    def _roots_at_cursor(self, screen: HostScreen) -> Sequence[Root]:
        """The verdict whose page is shown; on the page of a GPU or an engine those that it shows, one by one; else
        those that the row under triage's cursor stands for."""
        from gpumon.tui.detail.state import verdicts_on
        from gpumon.tui.detail.things import things_of_kind

        if screen.shown is None:
            return ()
        page = self._thing_of_page(screen, screen.pages.shown)
        if page is not None:
            thing = things_of_kind(screen.shown, page[0]).get(page[1])
            if isinstance(thing, Verdict):
                return (Root((thing,)),)
            return [Root((verdict,)) for verdict in verdicts_on(thing, screen.shown)]
        row = self.triage.selected
        keys = () if row is None else (row.key, *row.same)
        by_key = {verdict_key(verdict): verdict for verdict in screen.shown.verdicts}
        verdicts = tuple(by_key[key] for key in keys if key in by_key)
        return (Root(verdicts),) if verdicts else ()

    def _open_log(self, screen: HostScreen) -> None:
        """Open the log of the engine under the cursor, or of the page; of the only one where there is one."""
        engine = self._pointed_engine(screen)
        log = self._log_of(screen, engine)
        if engine is None or log is None:
            return
        from gpumon.tui.pages.log import LogPage

        page = prepare_page(screen, "log")
        assert isinstance(page, LogPage)
        put_over(screen, page)
        page.look_at(f"engine {engine.name}", log)
        screen.show_keys()

    def _open_requests(self, screen: HostScreen) -> None:
        """Open the page of the requests in the log of that engine."""
        engine = self._pointed_engine(screen)
        log = self._log_of(screen, engine)
        if engine is None or log is None:
            return
        from gpumon.tui.pages.requests import RequestsPage

        page = prepare_page(screen, "requests")
        assert isinstance(page, RequestsPage)
        put_over(screen, page)
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

    def _compare_with_mark(self, screen: HostScreen) -> None:
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
        page = prepare_page(screen, "compare")
        assert isinstance(page, ComparePage)
        if screen.pages.shown is not page:
            page.look_at(thing)
        put_over(screen, page)
        page.compare(timeline, marked_s)
        screen.show_keys()

    def _compared_thing(self, screen: HostScreen) -> tuple[str, str]:
        """The engine or GPU under the cursor, or of the page; the host elsewhere."""
        from gpumon.tui.detail.things import engine_of_thing

        shown = screen.in_panes
        thing = self._pointed_thing(screen)
        if thing is None or shown is None:
            return HOST_KEY
        kind, _ = thing
        if kind == "gpu":
            return thing
        engine = engine_of_thing(shown, thing)
        return HOST_KEY if engine is None else ("engine", engine.key)

    def _pointed_engine(self, screen: HostScreen) -> Engine | None:
        """The engine that the row or page under the keys is about."""
        from gpumon.tui.detail.things import engine_of_thing

        shown = screen.in_panes
        if shown is None:
            return None
        thing = self._pointed_thing(screen)
        if thing is not None:
            return engine_of_thing(shown, thing)
        return shown.engines[0] if len(shown.engines) == 1 else None

    def _hide_ended(self, screen: HostScreen) -> None:
        """Leave the row of an engine that has ended out of this screen."""
        pane = self._engines
        end = ended_at(pane.selected) if screen.current is pane and pane.selected is not None else None
        if end is None:
            screen.say("only an engine that has ended can be hidden: put the cursor on its row")
            return
        pane.hide(pane.hidden | {end})
        screen.say("hidden on this screen only; the palette's `show hidden rows again` brings it back")

    def _show_hidden(self, screen: HostScreen) -> None:
        """Show the rows again that were hidden."""
        count = len(self._engines.hidden)
        self._engines.hide(frozenset())
        if count:
            screen.say(f"{counted(count, 'row')} shown again")
        else:
            screen.say("no row is hidden")


def _filter_everywhere(screen: HostScreen) -> None:
    """Type what rows of all panes must contain."""
    from gpumon.tui.screens.questions import filter_all_question

    screen.ask(filter_all_question(screen.view.everywhere, screen.filter_everywhere))


def _mark_moment(screen: HostScreen) -> None:
    """Mark the moment that is shown; from now on, where that is live, count what engines do. An earlier mark goes."""
    from gpumon.tui.detail.values import shown_time

    newest = screen.latest
    shown = screen.shown
    if newest is None or shown is None:
        return
    hint = f"{screen.view.keymap.first('compare')} compares with it"
    if screen.gone_back:
        screen.view.marked = None
        screen.view.marked_s = shown.wall_s
        screen.say(f"marked {shown_time(shown.wall_s, newest.wall_s).clock}: {hint}")
        return
    screen.view.marked = Marked(newest)
    screen.view.marked_s = newest.wall_s
    clock = shown_time(newest.wall_s, newest.wall_s).clock
    screen.say(f"marked {clock}: an engine's page has what it did since then, {hint}")


def _next_cell(screen: HostScreen) -> None:
    """Show the cell cursor, or move it on: the last line explains its cell."""
    pane = screen.current
    if not isinstance(pane, ListPane) or not pane.next_cell():
        screen.say("cells are in the tables of GPUs, engines and processes")


def _run_on_page(command: str, screen: HostScreen) -> None:
    """Run a command of the page of a log or of requests, where that is shown, from the command palette."""
    from gpumon.tui.pages.followed import FollowedPage

    page = screen.pages.shown
    if isinstance(page, FollowedPage) and command.startswith(f"{page.SCOPE}."):
        page.run(command)


def _unfold_page(screen: HostScreen) -> None:
    """Show all figures of an engine's page, or fold them again, from the command palette."""
    from gpumon.tui.pages.detail import DetailPage

    page = screen.pages.shown
    if isinstance(page, DetailPage):
        page.toggle_fold()


def ringing_alerts(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    """Alerts that ring the bell, by name, scope, and since when: one that is raised again is another one."""
    return {(alert.name, alert.scope, alert.since) for alert in snapshot.alerts if alert.bell}


def _counts(snapshot: Snapshot | None, width: int, triage: TriagePane) -> Counts:
    """Numbers of rows and lines that the panes have to show on a screen of `width` cells."""
    if snapshot is None:
        return Counts()
    triage_lines = triage.lines_wanted(snapshot, width)
    return Counts(
        gpus=len(snapshot.gpus),
        engines=len(snapshot.engines) + len(snapshot.replicas),
        processes=len({process.pid for gpu in snapshot.gpus for process in gpu.reading.processes}),
        triage=triage_lines.loud,
        evidence=triage_lines.quiet,
        urgent=triage_lines.urgent,
        wall=lines_wanted(len(snapshot.gpus), width),
    )
