"""The fleet: a row per host, model or owner, and what the host under the cursor holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from gpumon.config.keymap import COMMANDS
from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.format import counted, cut
from gpumon.readings.history import History
from gpumon.readings.snapshot import Event, Snapshot, physical_gpus
from gpumon.readings.text import clean
from gpumon.tui.control import BundleFacts, FleetControl, Picture, Timeline
from gpumon.tui.fleet.headline import fleet_headline
from gpumon.tui.fleet.host_pane import HostPane, RowLine
from gpumon.tui.fleet.moment import HOSTS, MODELS, FleetMoment, fleet_moment
from gpumon.tui.fleet.overview import MOST_CHARTED, FleetCharts, TroublePane
from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.fleet.summary import Headline, fault_lines, small_screen_lines, sum_lines
from gpumon.tui.fleet.wall_pane import FleetWall
from gpumon.tui.layout import FleetPlan, fleet_plan
from gpumon.tui.line import Row as Line
from gpumon.tui.screens.context import ScreenContext
from gpumon.tui.screens.copying import copy_advice
from gpumon.tui.screens.focus import zoom
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.paging import put_over
from gpumon.tui.screens.past import Arrival, NoPastError, Past, SearchedHost, nth_change
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.widgets.board import Board, Painted
from gpumon.tui.widgets.key_line import KeyHolder
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.summary_line import with_hint
from gpumon.tui.widgets.title_bar import Freshness, Heading, date_text

if TYPE_CHECKING:
    from gpumon.readings.fleet import LabelsLine
    from gpumon.tui.fleet.free_page import FreePage
    from gpumon.tui.settings_table import Setting

FleetScreen: TypeAlias = MonitorScreen[FleetMoment]
JUMPS_S: Final = (300.0, 3600.0)
"""Seconds of the keys that go 10 s and a minute on the screen of one machine; here a frame is a scrape."""
_WALL: Final = "wall"
"""Name of the pane that takes the place of the table."""
_MOST_LABEL_CELLS: Final = 12
"""Cells of a label's name on the line of keys."""
_MOST_NAME: Final = 60
"""Characters of the name of a host, a row or the Prometheus."""
_MOST_FAULT: Final = 200
"""Characters of a fault in a notice."""
RUN_THERE: Final = "run gpumon there"
RUNS: Final = "sent over ssh into a temporary folder, which is removed when this screen is closed"
OPEN_IT: Final = "open the host"
_OPENS: Final = "it has no figures: its shell finds no gpumon"


class FleetBody:
    """Sums, the table, the host under the cursor; in room that they leave charts, or a wall of all GPUs, which may
    also stand in their place."""

    fleet: bool = True
    past: Past[FleetMoment]
    parts: Sequence[Board]
    tiny_summary: Board
    commands: Mapping[str, Callable[[FleetScreen], object]]
    """Commands that do something else here than on other screens, or are of this one alone."""

    def __init__(
        self, context: ScreenContext, control: FleetControl, open_host: Callable[[str, float | None, str], None]
    ) -> None:
        """`open_host`: shows a host by its name, at a Unix time (None: live), with the page of a GPU by its UUID
        (empty: none)."""
        palette = context.palette
        view = context.view
        self._control = control
        self._view = view
        self._open_host_screen = open_host
        self.headline = Painted(palette)
        self.faults = Painted(palette)
        self.summary = Painted(palette)
        self.table = RowsPane(palette, view)
        self.foot = HostPane(palette, view)
        self.troubles = TroublePane(palette, view)
        self.charts = FleetCharts(palette, view)
        self.row_line = RowLine(palette)
        self.wall = FleetWall(palette, view)
        above = (self.headline, self.faults, self.summary, self.table, self.foot)
        self.parts = (*above, self.troubles, self.charts, self.row_line, self.wall)
        self.panes: Mapping[str, Pane] = {"rows": self.table, _WALL: self.wall}
        self._walled = False
        """Whether the wall stands in the place of the table."""
        self._summary_of_all = Painted(palette)
        self.tiny_summary = self._summary_of_all
        self._free_page: FreePage | None = None
        """The page of what is free, once it was opened."""
        self.past = FleetPast(self, control)
        self.shown: FleetMoment | None = None
        """The moment in the parts; None: nothing yet."""
        self._headline_of: Headline = lambda _width, _height: ()
        """Paints the headline of that moment."""
        self.commands = {
            **_ONLY_ON_HOSTS,
            "open": self._open,
            "copy": self._copy,
            "acknowledge": self._ask_for_maintenance,
            "zoom": self._zoom,
            "wall.figure": self._next_figure,
            "fleet.models": self._turn_rows,
            "fleet.free": self._show_free,
            "fleet.join": self._ask_to_join,
        }

    @property
    def zoomed(self) -> str:
        """The wall, while it stands in the place of the table; else nothing."""
        return _WALL if self._walled else ""

    @zoomed.setter
    def zoomed(self, name: str) -> None:
        self._walled = name == _WALL
        self.wall.zoomed = self._walled
        self._narrow_wall()

    def _narrow_wall(self) -> None:
        """Have the wall below the table show the hosts that its filter lets through; in its place it shows all."""
        filtered = None if self._walled else self.table.filtered_sum
        self.wall.show_hosts(None if filtered is None else frozenset(filtered.hosts))

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page, imported when they are asked for."""
        from gpumon.tui.settings_table import FLEET_SETTINGS

        return FLEET_SETTINGS

    def plan(self, screen: FleetScreen, width: int, height: int) -> FleetPlan:
        """The lines of each part."""
        shown_faults = fault_lines(screen.shown, screen.context.unix_time(), width, gone_back=screen.gone_back)
        return fleet_plan(
            width,
            height,
            rows=self.table.count,
            foot=self.foot.wanted_lines,
            faults=len(shown_faults),
            sentence=self.row_line.wanted_lines(width),
            covered=screen.pages.shown is not None or screen.dock.covers,
            wall=self._walled,
            troubles=self.troubles.wanted_lines,
            charted=not screen.gone_back and self._has_charts,
            tiles=self._has_tiles,
            more=self.table.more_lines,
        )

    @property
    def _has_charts(self) -> bool:
        """Whether the charts of all hosts have something to show."""
        return self.shown is not None and 0 < len(self.shown.whole.gpus) + len(self.shown.whole.engines) <= MOST_CHARTED

    @property
    def _has_tiles(self) -> bool:
        """Whether a wall below the table has something to show: GPUs of the hosts that its filter lets through."""
        filtered = self.table.filtered_sum
        if filtered is not None:
            return bool(filtered.parts.gpus)
        return self.shown is not None and bool(self.shown.whole.gpus)

    def after_layout(self, screen: FleetScreen) -> None:
        """Have the foot follow the cursor from now on: before the first layout there is no screen to do so on."""
        self.table.cursor_moved = partial(self._look_at_row, screen)

    def fleet_moment(self, fleet: FleetSnapshot) -> FleetMoment:
        """The rows and sums of a moment, those of the owners that the table shows among them: for a thread."""
        config_labels = self._view.config.fleet.owners
        return fleet_moment(fleet, self._control.prices, config_labels, self.table.grouping.label)

    def as_one_machine(self, moment: FleetMoment) -> Snapshot:
        """All GPUs and engines of the fleet as those of one machine."""
        return moment.whole

    def note_arrival(self, screen: FleetScreen, before: FleetMoment | None, now: FleetMoment) -> None:  # noqa: ARG002 - the signature of Body
        """Take the moment into the charts; the bell rings on the screens of hosts alone."""
        self.charts.take_moment(now)

    def show(self, screen: FleetScreen, moment: FleetMoment) -> None:
        """Paint a moment of the fleet in every part."""
        self.shown = moment
        live = moment.fleet.answered or screen.gone_back
        self._headline_of = partial(_headline, moment, live)
        self.headline.paint(self._headline_of)
        self.troubles.show_standing(moment.standing)
        if self._has_charts:
            self.charts.show(moment.whole)
        self.table.show_fleet(moment)
        self.wall.show_fleet(moment)
        if self._free_page is not None and screen.pages.shown is self._free_page:
            self._free_page.show_fleet(moment)
        self._look_at_row(screen)

    def show_status(self, screen: FleetScreen) -> None:
        """Paint the problems, and the summary of everything."""
        paused = screen.travel.paused
        gone_back = screen.gone_back
        self.faults.paint(
            lambda width, height: fault_lines(
                self.shown, screen.context.unix_time(), width, height, gone_back=gone_back
            )
        )
        draw = partial(small_screen_lines, self.shown, paused=paused, gone_back=gone_back)
        self._summary_of_all.paint(partial(with_hint, draw, screen.view.keymap.first("quit")))

    def _look_at_row(self, screen: FleetScreen) -> None:
        """Have the foot follow the cursor, and the sums the filter."""
        filtered = self.table.filtered_sum
        self.summary.paint(partial(sum_lines, self.shown, filtered, screen.view, self._headline_of))
        self._narrow_wall()
        grouping = self.table.grouping
        self.foot.look_at(self.table.selected, of_many=grouping != HOSTS, of_owner=grouping not in (HOSTS, MODELS))
        now_s = self.shown.wall_s if self.shown is not None else 0.0
        self.row_line.look_at(self.table.selected, now_s)
        screen.show_title()
        screen.lay_out()

    def heading(self, screen: FleetScreen) -> Heading:  # noqa: ARG002 - the signature of Body
        """The address of the Prometheus, and what it knows of."""
        fleet = self.shown.fleet if self.shown is not None else None
        badge = "SIM" if fleet is not None and any(host.snapshot.simulated for host in fleet.hosts) else ""
        address = clean(self._control.place, _MOST_NAME)
        forms = [" · ".join(filter(None, parts)) for parts in _title_forms(address, fleet, self.table.filtered_sum)]
        return Heading(lambda _room: forms, simulated=badge)

    def freshness(self, screen: FleetScreen, freshness: Freshness) -> Freshness:
        """The age of the last answer, whether there was one to the last question, and whether it is being asked now."""
        fleet = self.shown.fleet if self.shown is not None else None
        self.faults.update()
        if fleet is None or not fleet.wall_s:
            failed = fleet is not None and bool(fleet.faults) and not self._control.fleet.asking
            return msgspec.structs.replace(freshness, shown_s=None, failed=failed, asking=self._control.fleet.asking)
        return msgspec.structs.replace(
            freshness,
            waited_s=max(0.0, screen.context.unix_time() - fleet.wall_s),
            every_s=max(freshness.every_s, fleet.interval_s),
            failed=not fleet.answered,
            asking=self._control.fleet.asking,
        )

    def key_holder(self, screen: FleetScreen, holder: KeyHolder) -> KeyHolder:
        """The holder of the keys, with the kind of the rows, the next kind, and whether a filter hides some."""
        name = "wall below" if screen.current is self.wall and not self._walled else holder.name
        at_wall = self._walled or screen.current is self.wall
        filter_text = self.wall.filter.text if at_wall else self.table.filter.text
        grouping = self.table.grouping
        next_grouping = self.shown.next_grouping(grouping) if self.shown is not None else MODELS
        return msgspec.structs.replace(
            holder,
            name=name,
            fleet=True,
            grouped=grouping != HOSTS,
            rows_next=cut(clean(next_grouping.plural, 40), _MOST_LABEL_CELLS),
            narrowed=filter_text != "",
            idle=holder.idle if self._proposals else holder.idle | {"fleet.join"},
        )

    def point_at(self, events: Sequence[Event], snapshot: FleetMoment) -> None:
        """Nothing: the cursor stays on its host."""

    def before_page_closes(self, screen: FleetScreen, page: Pane) -> None:
        """Nothing: no pane follows a page here."""

    def formula_at_cursor(self, screen: FleetScreen) -> str:  # noqa: ARG002 - the signature of Body
        """Cells of a fleet's table have no formula."""
        return ""

    def bundle_facts(self, screen: FleetScreen, text: str, drawn: Picture) -> BundleFacts | None:
        """The fleet as it is shown; its past stays in the Prometheus."""
        if self.shown is None or not self.shown.fleet.wall_s:
            screen.say("nothing to write: no answer yet")
            return None
        return BundleFacts(snapshot=self.shown.fleet, screen=text, picture=drawn, prices=self._control.prices)

    def _open(self, screen: FleetScreen) -> None:
        """Enter: the host's own screen; of a model or an owner its hosts, of a tile the page of its GPU; what a page
        has for it."""
        current = screen.current
        if current is self.wall and self.wall.selected is not None:
            tile = self.wall.selected
            self._open_host(screen, tile.host, tile.gpu.reading.uuid)
        elif current is self.table:
            if self.table.selected is not None:
                self._open_row(screen, self.table.selected)
        else:
            if current is not None:
                current.open()
            screen.show_keys()

    def _open_row(self, screen: FleetScreen, row: FleetRow) -> None:
        """Open the screen of a host; the hosts of a model or an owner."""
        if self.table.grouping == HOSTS:
            self._open_host(screen, row.key)
        elif self._narrow_to_hosts(row):
            self._look_at_row(screen)
            screen.show_keys()
        elif row.parts.engines:
            self._open_host(screen, row.parts.engines[0].host)  # no model to narrow to, but the foot shows the engine
        else:
            screen.say(f"no engine runs there: {screen.view.keymap.first('fleet.models')} shows all hosts")

    def _narrow_to_hosts(self, row: FleetRow) -> bool:
        """Show the hosts of an owner or a model; returns whether the row has any to narrow to."""
        if self.table.grouping.label:
            self.table.narrow_to_owner(row)
            return True
        return self.table.narrow_to_model(row)

    def _open_host(self, screen: FleetScreen, host: str, gpu: str = "") -> None:
        """Open the screen of a host, with the page of a GPU by its UUID (empty: none); on a host without gpumon ask
        first whether to run it there."""
        if self._control.fleet.lacks_gpumon(host):
            screen.ask(guest_question(self._control, host, partial(self._show_host, screen, host, gpu)))
        else:
            self._show_host(screen, host, gpu)

    def _show_host(self, screen: FleetScreen, host: str, gpu: str) -> None:
        """Show the screen of a host, at the moment that is shown here unless that is live."""
        at_s = self.shown.wall_s if screen.travel.paused and self.shown is not None else None
        self._open_host_screen(host, at_s, gpu)

    def _zoom(self, screen: FleetScreen) -> None:
        """Show the wall of all GPUs in the place of the table, or the table again, and give it the keys."""
        if not screen.tiny and screen.pages.shown is None and not screen.dock.covers:
            screen.last_focused = "rows" if self._walled else _WALL
            zoom(screen, "" if self._walled else _WALL)
            screen.give_keys()

    def _next_figure(self, screen: FleetScreen) -> None:
        """Colour the wall by another figure."""
        if self.wall.display:
            self.wall.show_next_figure()
        else:
            screen.say(f"{screen.view.keymap.first('zoom')} shows the wall of GPUs first")

    def _copy(self, screen: FleetScreen) -> None:
        """Copy a command of the worst verdict of the row under the cursor."""
        row = self.table.selected
        if screen.current is not self.table or row is None:
            screen.say("nothing to copy: put the cursor on a row of the table")
            return
        name = clean(row.name, _MOST_NAME)
        if row.worst is None:
            screen.say(f"nothing to copy: {name} has no verdict")
        else:
            copy_advice(screen, row.worst.actions, f"nothing to copy: the verdict on {name} has no advice")

    def _show_free(self, screen: FleetScreen) -> None:
        """Show what is free, in the place of the table."""
        from gpumon.tui.fleet.free_page import FreePage

        if screen.tiny:
            return
        if self._free_page is None:
            self._free_page = FreePage(screen.palette, screen.view)
            self._free_page.display = False  # until it is put over the panes
            screen.pages.by_name["free"] = self._free_page
            screen.mount_pane(self._free_page)
        self._free_page.show_fleet(self.shown)
        self._free_page.to_top()
        put_over(screen, self._free_page)

    def _ask_for_maintenance(self, screen: FleetScreen) -> None:
        """Ask for how long and why the host under the cursor, or all with one of its labels, are silenced."""
        from gpumon.tui.fleet.maintenance import maintenance_question

        row = self.table.selected
        if screen.current is not self.table or row is None or self.table.grouping != HOSTS or self.shown is None:
            screen.say("maintenance is for hosts: put the cursor on one in the table of hosts")
        elif screen.gone_back:
            screen.say(f"this is the past: {screen.view.keymap.first('time.live')} leads to what stands now")
        else:
            screen.ask(maintenance_question(self._control.fleet, row, self.shown.fleet.hosts, screen.say))

    def _ask_to_join(self, screen: FleetScreen) -> None:
        """Ask whether a line that a notice proposes is put into the config."""
        from gpumon.tui.fleet.joining import joining_question

        if not self._proposals:
            screen.say("no line of the config is proposed: nothing says that engines and GPUs are apart")
        elif screen.gone_back:
            screen.say(f"this is the past: {screen.view.keymap.first('time.live')} leads to what stands now")
        else:
            screen.ask(joining_question(self._proposals, self._control.fleet, screen.context))

    @property
    def _proposals(self) -> Sequence[LabelsLine]:
        """Lines of the config that notices propose."""
        return self.shown.fleet.proposals if self.shown is not None else ()

    def _turn_rows(self, screen: FleetScreen) -> None:
        """Turn to the next kind of rows: per host, per model, per owner by each label."""
        if self._walled:
            screen.say(f"{screen.view.keymap.first('zoom')} shows the hosts first")
        elif screen.current is self.table and self.shown is not None:
            self.table.turn_to(self.shown.next_grouping(self.table.grouping))
            self._look_at_row(screen)
            screen.show_keys()


def _only_on_hosts(does: str, screen: FleetScreen) -> None:
    """Say why a key does nothing here."""
    screen.say(f"on the screen of a host only ({screen.view.keymap.first('open')} opens it): {does}")


_ONLY_ON_HOSTS: Final[Mapping[str, Callable[[FleetScreen], object]]] = {
    command.id: partial(_only_on_hosts, command.does)
    for command in COMMANDS
    if command.fleet is None and not command.scope and command.keys
}
"""Commands that only a host's screen has."""


def _headline(moment: FleetMoment, live: bool, width: int, height: int) -> Sequence[Line]:  # noqa: ARG001 - the signature of a line that is painted
    """The line under the title; none before the first answer."""
    if not moment.fleet.wall_s:
        return ()
    return (fleet_headline(moment.total, moment.standing, width, live=live),)


def guest_question(control: FleetControl, host: str, show: Callable[[], None]) -> Question:
    """Ask whether gpumon shall run on a host that has none; `show` opens the host's screen without it."""

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        if choice is not None and choice.name == RUN_THERE:
            control.fleet.install(host)
        elif choice is not None:
            show()

    return Question(
        f"no gpumon on {clean(host, _MOST_NAME)}:",
        lambda _: (Choice(RUN_THERE, RUNS, None), Choice(OPEN_IT, _OPENS, None)),
        choose,
        has_field=False,
        hint="Enter: choose · Esc: neither",
    )


class FleetPast:
    """The past of the fleet in the Prometheus."""

    live: History | None = None
    jumps_s: Sequence[float] = JUMPS_S
    slow: bool = True

    def __init__(self, body: FleetBody, control: FleetControl) -> None:
        self._body = body
        self._control: FleetControl = control
        self._looked_through: tuple[str, Timeline | None] = ("", None)
        """The host whose past was looked through last, and that past."""

    @property
    def frame_s(self) -> float:
        """Seconds between two refreshes."""
        return self._control.interval_s

    def why_not(self) -> str:
        """Why there is no past: there was no answer yet."""
        if self._control.fleet.span() is not None:
            return ""
        return "nothing is known of the past yet"

    def searched_host(self) -> SearchedHost:
        """The host under the cursor."""
        wall = self._body.wall
        if self._body.zoomed and wall.selected is not None:
            return SearchedHost(wall.selected.host)
        table = self._body.table
        if table.selected is not None and table.grouping == HOSTS:
            return SearchedHost(table.selected.key)
        hosts_key = table.view.keymap.first("fleet.models")
        why = "there is none" if table.grouping == HOSTS else f"{hosts_key} shows the hosts"
        return SearchedHost("", f"this looks through the past of the host under the cursor: {why}")

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""
        return self._control.fleet.span()

    async def at(self, wall_s: float) -> Arrival[FleetMoment] | None:
        """The fleet at a time; where nothing is known of that, the first moment that there is before what is shown."""
        shown_s = self._body.shown.wall_s if self._body.shown is not None else wall_s
        when = partial(date_text, now_s=shown_s)
        try:
            fleet = await self._control.fleet.at(wall_s)
            note = ""
            if fleet.answered and not fleet.hosts and shown_s > wall_s:
                first_s = await self._control.fleet.first_after(wall_s, shown_s)
                fleet = await self._control.fleet.at(first_s)
                note = f"nothing at {when(wall_s)}: shown is {when(first_s)}, the first after it"
        except Exception as error:  # a past that cannot be read costs this step, not the screen
            reason = clean(f"{type(error).__name__}: {error}", _MOST_FAULT)
            raise NoPastError(f"{when(wall_s)} cannot be read: {reason}") from error
        if not fleet.answered:
            why = clean(fleet.faults[0].text, _MOST_FAULT) if fleet.faults else "no answer"
            raise NoPastError(f"{when(wall_s)} cannot be had: {why}")
        if not fleet.hosts:
            raise NoPastError(f"nothing at {when(wall_s)}, and before what is shown")
        return Arrival(await asyncio.to_thread(self._body.fleet_moment, fleet), note=note)

    async def nearest(self, wall_s: float) -> Arrival[FleetMoment] | None:
        """The fleet at a time: what keeps its past is asked for any time."""
        return await self.at(wall_s)

    async def step(self, wall_s: float, frames: int) -> Arrival[FleetMoment] | None:
        """The fleet so many refreshes after `wall_s`; before it where `frames` is negative."""
        return await self.at(wall_s + frames * self.frame_s)

    async def change(self, wall_s: float, step: int, host: str) -> Arrival[FleetMoment] | None:
        """The fleet at a change on one host, which is `step` changes after `wall_s`, or before it where that is
        negative."""
        if self._looked_through[0] != host:
            self._looked_through = (host, self._control.past(host))
        timeline = self._looked_through[1]
        if timeline is None:
            return None
        change = await nth_change(timeline, wall_s, step)
        if change is None:
            return None
        arrival = await self.at(change.snapshot.wall_s)
        if arrival is None:
            return None
        return msgspec.structs.replace(arrival, events=change.snapshot.events)

    def leave(self) -> None:
        """Let go of the host whose past was looked through."""
        self._looked_through = ("", None)


def _title_forms(address: str, fleet: FleetSnapshot | None, chosen: FleetRow | None) -> Iterator[tuple[str, ...]]:
    """Parts of the title from the longest form to the shortest. `chosen`: the sums of the rows that a filter leaves;
    None without one."""
    if fleet is None or not fleet.wall_s:
        state = "starting …" if fleet is None or not fleet.faults else "no answer yet"
        yield from (("fleet", address, state), ("fleet", address), ("fleet",))
        return
    hosts, gpus, engines = _size_texts(fleet, chosen)
    yield "fleet", address, hosts, gpus, engines
    yield "fleet", address, hosts, gpus
    yield "fleet", hosts, gpus, engines
    yield "fleet", hosts, gpus
    yield "fleet", hosts


def _size_texts(fleet: FleetSnapshot, chosen: FleetRow | None) -> list[str]:
    """Numbers of hosts, GPUs and engines of the fleet: `96 hosts`; with a chosen row its own before them: `2 of 96
    hosts`."""
    gpus = sum(len(physical_gpus(host.snapshot.gpus)) for host in fleet.hosts)
    engines = sum(len(host.snapshot.engines) for host in fleet.hosts)
    texts = [counted(len(fleet.hosts), "host"), counted(gpus, "GPU"), counted(engines, "engine")]
    if chosen is None:
        return texts
    of_row = (len(chosen.hosts), len(chosen.parts.gpus), chosen.engines)
    return [f"{number} of {text}" for number, text in zip(of_row, texts, strict=True)]
