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
from gpumon.readings.snapshot import Event, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.control import BundleFacts, FleetControl, Picture, Playback, Timeline
from gpumon.tui.fleet.headline import fleet_headline
from gpumon.tui.fleet.host_pane import HostPane, RowLine
from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.fleet.shown import HOSTS, MODELS, FleetMoment, fleet_moment
from gpumon.tui.fleet.summary import fault_lines, small_screen_lines, sum_lines
from gpumon.tui.fleet.wall_pane import FleetWall
from gpumon.tui.layout import FleetPlan, fleet_plan
from gpumon.tui.line import Row as Line
from gpumon.tui.screens.copying import copy_advice
from gpumon.tui.screens.focus import zoom
from gpumon.tui.screens.monitor import MonitorScreen, ScreenContext
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.screens.travel import Arrival, NoPastError, Past
from gpumon.tui.widgets.board import Board, Painted
from gpumon.tui.widgets.key_line import KeyHolder
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.summary_line import with_hint
from gpumon.tui.widgets.title_bar import Freshness, Heading, dated

if TYPE_CHECKING:
    from gpumon.tui.settings_table import Setting

FleetScreen: TypeAlias = MonitorScreen[FleetMoment]
JUMPS_S: Final = (300.0, 3600.0)
"""Seconds of the keys that go 10 s and a minute on the screen of one machine; here a frame is a scrape."""


_WALL: Final = "wall"
"""Name of the pane that takes the place of the table."""
_MOST_LABEL: Final = 12
"""Cells of a label's name on the line of keys."""


class FleetBody:
    """Sums, the table, the host under the cursor; or in their place a wall of all GPUs."""

    fleet: bool = True
    past: Past[FleetMoment]
    parts: Sequence[Board]
    small: Board
    playback: Playback | None = None
    timeline: Timeline | None = None
    commands: Mapping[str, Callable[[FleetScreen], object]]
    """Commands that do something else here than on other screens, or are of this one alone."""

    def __init__(
        self, context: ScreenContext, control: FleetControl, opens: Callable[[str, float | None, str], None]
    ) -> None:
        """`opens`: shows a host by its name, at a Unix time (None: live), with the page of a GPU by its UUID (empty:
        none)."""
        palette = context.palette
        view = context.view
        self._control = control
        self._view = view
        self._opens = opens
        self.headline = Painted(palette)
        self.faults = Painted(palette)
        self.summary = Painted(palette)
        self.table = RowsPane(palette, view)
        self.foot = HostPane(palette, view)
        self.row_line = RowLine(palette)
        self.wall = FleetWall(palette, view)
        self.parts = (self.headline, self.faults, self.summary, self.table, self.foot, self.row_line, self.wall)
        self.panes: Mapping[str, Pane] = {"rows": self.table, _WALL: self.wall}
        self._walled = False
        self._small = Painted(palette)
        self.small = self._small
        self.past = FleetPast(self, control)
        self.shown: FleetMoment | None = None
        self.commands = {
            **_ONLY_ON_HOSTS,
            "open": self._open,
            "copy": self._copy,
            "zoom": self._zoom,
            "wall.figure": self._next_figure,
            "fleet.models": self._turn_rows,
        }

    @property
    def zoomed(self) -> str:
        """The wall, while it stands in the place of the table; else nothing."""
        return _WALL if self._walled else ""

    @zoomed.setter
    def zoomed(self, name: str) -> None:
        self._walled = name == _WALL

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page, imported when they are asked for."""
        from gpumon.tui.settings_table import FLEET_SETTINGS

        return FLEET_SETTINGS

    def plan(self, screen: FleetScreen, width: int, height: int) -> FleetPlan:
        """The lines of each part."""
        shown_faults = fault_lines(screen.shown, screen.wall(), width, gone_back=screen.gone_back)
        return fleet_plan(
            width,
            height,
            rows=self.table.count,
            foot=self.foot.wanted_lines,
            faults=len(shown_faults),
            sentence=self.row_line.wanted_lines(width),
            covered=screen.pages.shown is not None or screen.dock.covers,
            wall=self._walled,
        )

    def laid_out(self, screen: FleetScreen) -> None:
        """From now on the foot follows the cursor."""
        self.table.cursor_moved = partial(self._look_at_row, screen)

    def fleet_moment(self, fleet: FleetSnapshot) -> FleetMoment:
        """The rows and sums of a moment, those of the owners that the table shows among them: for a thread."""
        config_labels = self._view.config.fleet.owners
        return fleet_moment(fleet, self._control.prices, config_labels, self.table.grouping.label)

    def whole(self, moment: FleetMoment) -> Snapshot:
        """All GPUs and engines of the fleet as those of one machine."""
        return moment.whole

    def arrived(self, screen: FleetScreen, before: FleetMoment | None, now: FleetMoment) -> None:
        """Nothing rings here."""

    def show(self, screen: FleetScreen, moment: FleetMoment) -> None:
        """Paint a moment of the fleet in every part."""
        self.shown = moment
        live = moment.fleet.answered or screen.gone_back
        self.headline.paint(partial(_headline, moment, live))
        self.table.show_fleet(moment)
        self.wall.show_fleet(moment)
        self._look_at_row(screen)

    def show_standing(self, screen: FleetScreen) -> None:
        """Problems, and the summary of everything."""
        paused = screen.travel.paused
        gone_back = screen.gone_back
        self.faults.paint(
            lambda width, height: fault_lines(self.shown, screen.wall(), width, height, gone_back=gone_back)
        )
        draw = partial(small_screen_lines, self.shown, paused=paused, gone_back=gone_back)
        self._small.paint(partial(with_hint, draw, screen.view.keymap.first("quit")))

    def _look_at_row(self, screen: FleetScreen) -> None:
        """The foot follows the cursor, the sums the filter."""
        self.summary.paint(partial(sum_lines, self.shown, self.table.filtered_sum, screen.view))
        self.foot.look_at(self.table.selected, of_many=self.table.grouping != HOSTS)
        self.row_line.look_at(self.table.selected, self.shown.wall_s if self.shown is not None else 0.0)
        screen.show_title()
        screen.lay_out()

    def heading(self, screen: FleetScreen) -> Heading:  # noqa: ARG002 - the signature of Body
        """Which Prometheus, and what it knows of."""
        fleet = self.shown.fleet if self.shown is not None else None
        simulated = fleet is not None and any(host.snapshot.simulated for host in fleet.hosts)
        place = clean(self._control.place, 60)
        forms = []
        for parts in _forms(place, fleet, self.table.filtered_sum):
            forms.append(" · ".join(filter(None, parts)))
        return Heading(lambda _room: forms, simulated="SIM" if simulated else "")

    def freshness(self, screen: FleetScreen, freshness: Freshness) -> Freshness:
        """Asked now and then: how old it is."""
        fleet = self.shown.fleet if self.shown is not None else None
        self.faults.update()
        if fleet is None or not fleet.wall_s:
            failed = fleet is not None and bool(fleet.faults) and not self._control.fleet.asking
            return msgspec.structs.replace(freshness, shown_s=None, failed=failed, asking=self._control.fleet.asking)
        return msgspec.structs.replace(
            freshness,
            waited_s=max(0.0, screen.wall() - fleet.wall_s),
            every_s=max(freshness.every_s, fleet.interval_s),
            failed=not fleet.answered,
            asking=self._control.fleet.asking,
        )

    def place(self, screen: FleetScreen, place: KeyHolder) -> KeyHolder:  # noqa: ARG002 - the signature of Body
        """Hosts, models or owners, all of them or some."""
        narrowed = bool(self.wall.filter_text if self._walled else self.table.filter_text)
        grouping = self.table.grouping
        turns_to = MODELS if self.shown is None else self.shown.next_grouping(grouping)
        rows_next = cut(clean(turns_to.plural, 40), _MOST_LABEL)
        return msgspec.structs.replace(
            place, fleet=True, grouped=grouping != HOSTS, rows_next=rows_next, narrowed=narrowed
        )

    def point_at(self, events: Sequence[Event], snapshot: FleetMoment) -> None:
        """The cursor stays on its host."""

    def page_left(self, screen: FleetScreen, page: Pane) -> None:
        """Nothing here follows a page."""

    def explained(self, screen: FleetScreen) -> str:  # noqa: ARG002 - the signature of Body
        """Cells of a fleet's table have no formula."""
        return ""

    def incident(self, screen: FleetScreen, text: str, drawn: Picture) -> BundleFacts | None:
        """The fleet as it is shown; its past stays in the Prometheus."""
        if self.shown is None or not self.shown.fleet.wall_s:
            screen.say("nothing to write: no answer yet")
            return None
        return BundleFacts(self.shown.fleet, text, drawn, prices=self._control.prices)

    def _open(self, screen: FleetScreen) -> None:
        """Enter: the host's own screen; of a model or an owner its hosts, of a tile the page of its GPU."""
        tile = self.wall.selected if screen.current is self.wall else None
        if tile is not None:
            self._open_host(screen, tile.host, tile.gpu.uuid)
            return
        if screen.current is not self.table:
            if screen.current is not None:
                screen.current.open()
            screen.show_keys()
            return
        row = self.table.selected
        if row is None:
            return
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
        """Show the hosts of an owner or a model; returns whether the row has such."""
        if self.table.grouping.label:
            self.table.narrow_to_owner(row)
            return True
        return self.table.narrow_to_model(row)

    def _open_host(self, screen: FleetScreen, host: str, gpu: str = "") -> None:
        """The screen of a host, at the moment that is shown, with the page of a GPU by its UUID; of one without gpumon
        whether to run it there."""
        if self._control.fleet.lacks_gpumon(host):
            screen.ask(guest_on(self._control, host, partial(self._show_host, screen, host, gpu)))
        else:
            self._show_host(screen, host, gpu)

    def _show_host(self, screen: FleetScreen, host: str, gpu: str) -> None:
        at_s = None
        if screen.travel.paused and self.shown is not None:
            at_s = self.shown.wall_s
        self._opens(host, at_s, gpu)

    def _zoom(self, screen: FleetScreen) -> None:
        """The wall of all GPUs in the place of the table, and back."""
        if not screen.tiny and screen.pages.shown is None and not screen.dock.covers:
            self.wall.zoomed = not self._walled
            zoom(screen, "" if self._walled else _WALL)
            screen.give_keys()

    def _next_figure(self, screen: FleetScreen) -> None:
        """Colour the wall by another figure."""
        if self._walled:
            self.wall.show_next_figure()
        else:
            screen.say(f"{screen.view.keymap.first('zoom')} shows the wall of GPUs first")

    def _copy(self, screen: FleetScreen) -> None:
        """A command of the worst verdict of the row under the cursor."""
        row = self.table.selected
        if screen.current is not self.table or row is None:
            screen.say("nothing to copy: put the cursor on a row of the table")
            return
        name = clean(row.name, 60)
        if row.worst is None:
            screen.say(f"nothing to copy: {name} has no verdict")
        else:
            copy_advice(screen, row.worst.actions, f"nothing to copy: the verdict on {name} has no advice")

    def _turn_rows(self, screen: FleetScreen) -> None:
        """The next kind of rows: per host, per model, per owner by each label."""
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
    """No line before the first answer."""
    if not moment.fleet.wall_s:
        return ()
    return (fleet_headline(moment.total, moment.standing, width, live=live),)


RUN_THERE: Final = "run gpumon there"
RUNS: Final = "sent over ssh into a temporary folder, which is removed when this screen is closed"
OPEN_IT: Final = "open the host"
_OPENS: Final = "it has no figures: its shell finds no gpumon"


def guest_on(control: FleetControl, host: str, show: Callable[[], None]) -> Question:
    """Whether gpumon shall run on a host that has none."""

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        if choice is not None and choice.name == RUN_THERE:
            control.fleet.install(host)
        elif choice is not None:
            show()

    return Question(
        f"no gpumon on {clean(host, 60)}:",
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
        """A refresh."""
        return self._control.interval_s

    def why_not(self) -> str:
        """There is one as soon as there was an answer."""
        if self._control.fleet.span() is not None:
            return ""
        return "nothing is known of the past yet"

    def about(self) -> tuple[str, str]:
        """The host under the cursor."""
        tile = self._body.wall.selected if self._body.zoomed else None
        if tile is not None:
            return tile.host, ""
        table = self._body.table
        row = table.selected
        if row is not None and table.grouping == HOSTS:
            return row.key, ""
        why = "there is none"
        if table.grouping != HOSTS:
            why = f"{table.view.keymap.first('fleet.models')} shows the hosts"
        return "", f"this looks through the past of the host under the cursor: {why}"

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""
        return self._control.fleet.span()

    async def at(self, wall_s: float) -> Arrival[FleetMoment] | None:
        """The fleet at a time; where nothing is known of that, the first moment that there is before what is shown."""
        there_s = self._body.shown.wall_s if self._body.shown is not None else wall_s
        name = partial(dated, now_s=there_s)
        try:
            fleet = await self._control.fleet.at(wall_s)
            note = ""
            if fleet.answered and not fleet.hosts and there_s > wall_s:
                first_s = await self._control.fleet.first_after(wall_s, there_s)
                fleet = await self._control.fleet.at(first_s)
                note = f"nothing at {name(wall_s)}: shown is {name(first_s)}, the first after it"
        except Exception as error:  # a past that cannot be read costs this step, not the screen
            raise NoPastError(
                f"{name(wall_s)} cannot be read: {clean(f'{type(error).__name__}: {error}', 200)}"
            ) from error
        if not fleet.answered:
            why = "no answer"
            if fleet.faults:
                why = clean(fleet.faults[0].text, 200)
            raise NoPastError(f"{name(wall_s)} cannot be had: {why}")
        if not fleet.hosts:
            raise NoPastError(f"nothing at {name(wall_s)}, and before what is shown")
        return Arrival(await asyncio.to_thread(self._body.fleet_moment, fleet), note=note)

    async def nearest(self, wall_s: float) -> Arrival[FleetMoment] | None:
        """The fleet at a time: what keeps its past is asked for any time."""
        return await self.at(wall_s)

    async def step(self, wall_s: float, frames: int) -> Arrival[FleetMoment] | None:
        """So many refreshes on."""
        return await self.at(wall_s + frames * self.frame_s)

    async def change(self, wall_s: float, step: int, about: str) -> Arrival[FleetMoment] | None:
        """The moment of a change on one host."""
        if self._looked_through[0] != about:
            self._looked_through = (about, self._control.past(about))
        timeline = self._looked_through[1]
        if timeline is None:
            return None
        last = None
        for _ in range(abs(step)):
            moment = await timeline.change(wall_s, 1 if step > 0 else -1)
            if moment is None:
                break
            last = moment
            wall_s = moment.snapshot.wall_s
        if last is None:
            return None
        arrival = await self.at(wall_s)
        if arrival is None:
            return None
        return msgspec.structs.replace(arrival, events=last.snapshot.events)


def _forms(place: str, fleet: FleetSnapshot | None, chosen: FleetRow | None) -> Iterator[tuple[str, ...]]:
    """Parts of the title from the longest form to the shortest."""
    if fleet is None or not fleet.wall_s:
        state = "no answer yet"
        if fleet is None or not fleet.faults:
            state = "starting …"
        yield from (("fleet", place, state), ("fleet", place), ("fleet",))
        return
    hosts, gpus, engines = _sizes(fleet, chosen)
    yield "fleet", place, hosts, gpus, engines
    yield "fleet", place, hosts, gpus
    yield "fleet", hosts, gpus, engines
    yield "fleet", hosts, gpus
    yield "fleet", hosts


def _sizes(fleet: FleetSnapshot, chosen: FleetRow | None) -> list[str]:
    """Numbers of hosts, GPUs and engines of the fleet: `96 hosts`; with a chosen row its own before them: `2 of 96
    hosts`."""
    gpus = 0
    engines = 0
    for host in fleet.hosts:
        gpus += sum(not gpu.parent_uuid for gpu in host.snapshot.gpus)
        engines += len(host.snapshot.engines)
    texts = [counted(len(fleet.hosts), "host"), counted(gpus, "GPU"), counted(engines, "engine")]
    if chosen is None:
        return texts
    of_row = (len(chosen.hosts), len(chosen.parts.gpus), chosen.engines)
    return [f"{number} of {text}" for number, text in zip(of_row, texts, strict=True)]
