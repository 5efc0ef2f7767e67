"""The sizing panel: how many instances, GPUs and servers a target takes, answered at each keystroke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual import events

from gpumon.config.errors import ConfigError
from gpumon.config.scenario_file import base_of
from gpumon.readings.format import cut
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sizing.live import from_live, have, held, instances_here, kv_ratios, targets
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.control import Files
from gpumon.tui.keys import scoped
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.sizing import field_list, painting, questions
from gpumon.tui.sizing.edits import Newest, ages
from gpumon.tui.sizing.fields import GOALS, SERVER, WORKLOAD, value_of
from gpumon.tui.sizing.pictures import KINDS
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.table import clock
from gpumon.tui.view import View
from gpumon.tui.widgets.key_line import NUMBER, SIZING
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.sizing.host_screen import HostScreen

SCOPE: Final = "sizing"
"""Of its keys, in the table of keys."""
_GOALS_MS: Final = (None, 100.0, 60.0, 40.0, 25.0, 15.0)
"""What one key goes through: open at first."""
_RENEW_S: Final = 2.0
"""Between two looks at what the engines showed since."""
VIEWS: Final = (KINDS[0][0], "gpus", *(kind for kind, _ in KINDS[1:]))
"""What stands below the figures: one of the pictures first, or other types of GPU side by side."""


class SizingPanel(Pane):
    """Made when it is opened first. While it is closed it costs nothing; while it is open a look every 2 s."""

    KEY: ClassVar[str] = "sizing"
    TITLE: ClassVar[str] = "sizing"
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self.beside = False
        """Whether it stands beside the panes, with a rule at its left, instead of over them."""
        self.what = VIEWS[0]
        self.wanted = False
        """Whether a picture was asked for, so that it has room before words."""
        self._drawn_picture = False
        self._state: PanelState | None = None
        self._ages: dict[int, str] = {}
        self._looked_s = float("-inf")
        self._stray = False
        """Whether the last key was part of a number that there is no place for."""
        self._files: Sequence[str] = ()
        """Names of saved scenarios, as of the last time that someone asked."""
        self._notes_from = 0
        """Lines of words that are scrolled out of view."""
        self._stops: list[int] = []
        """The cursor's row of each painted line, -1 where there is none."""

    @property
    def monitor(self) -> HostScreen:
        """The screen that the panel is part of."""
        return cast("HostScreen", self.screen)

    @property
    def state(self) -> PanelState:
        """What is worked on; at first what runs here."""
        if self._state is None:
            known, scenario = self.monitor.control.known(), self._as_it_runs()
            self._state = PanelState(known, scenario, bool(base_of(self.view.config).server))
            self._look()
        return self._state

    def _as_it_runs(self) -> Scenario:
        base, shot, seen = base_of(self.view.config), self.snapshot, self.monitor.control.calibration
        return from_live(shot, seen.observed(), base, seen.in_flight()) if shot is not None else base

    @property
    def editing(self) -> bool:
        """Whether a value is being typed."""
        return self._state is not None and self._state.edit is not None

    @property
    def on_number(self) -> bool:
        """Whether the cursor is on a number among the fields of a row: there letters are no commands."""
        state = self._state
        return state is not None and state.opened and state.place.field.kind is not None

    @property
    def keys_of(self) -> str:
        """What the key line names the keys of."""
        return NUMBER if self.on_number and not self.editing else SIZING

    def show(self, snapshot: Snapshot) -> None:
        """Take a snapshot in; what it changes is looked at every 2 s."""
        first = self.snapshot is None
        self.snapshot = snapshot
        state = self._state
        if state is not None and not state.scenario.workload and not state.undo.changes and state.edit is None:
            # It was opened before the first engine was read.
            scenario = self._as_it_runs()
            if scenario.workload:
                state.load(scenario, runs=True)
                first = True
        if first or not 0.0 <= snapshot.wall_s - self._looked_s < _RENEW_S:
            self._look()
            self.update()

    def _look(self) -> None:
        """Take over what engines showed since, which GPUs are here, and what is known by now."""
        snapshot, state = self.snapshot, self.state
        if snapshot is None:
            return
        self._looked_s = snapshot.wall_s
        state.last.here, state.last.kv_ratios = instances_here(snapshot), kv_ratios(snapshot)
        state.last.held = held(snapshot)
        if state.last.use(self.monitor.control.known(), dict(have(snapshot))):
            state.answer()
        seen = self.monitor.control.calibration
        state.renew(Newest(seen.observed(), targets(snapshot, seen.in_flight())))
        self._ages = ages(state.undo.present, snapshot.wall_s)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule and all below it."""
        edge: Row = (("│", "border"),) if self.beside else ()
        inner = width - len(edge)
        scene = self._scene(inner, height)
        self._notes_from = painting.leaf(scene, 0) or 0  # there may be fewer lines now, or more room
        lines = painting.painted(scene._replace(notes_from=self._notes_from))
        self._stops = [-1, *(stop for stop, _ in lines)]
        self._drawn_picture = painting.pictured(lines)
        rule = self._rule(inner, len(lines), height - 1)
        return [(*edge, *row) for row in (rule, *(row for _, row in lines))]

    def _scene(self, width: int, height: int) -> painting.Scene:
        return painting.Scene(
            self.state,
            self.has_focus,
            self._ages,
            self.what,
            self.wanted,
            self.palette.glyphs,
            self.view.keymap,
            width,
            height - 1,
            self._notes_from,
        )

    def leaf(self, pages: int) -> None:
        """Scroll what is said about the workload; where all of it is in view, move the cursor."""
        scene = self._scene(self.size.width - self.beside, self.size.height)
        scrolled = painting.leaf(scene, pages)
        if scrolled is None:
            super().leaf(pages)
        else:
            self._notes_from = scrolled
            self.update()

    def note(self) -> str:
        """Whether the figures are live, and what is not as it runs."""
        state = self.state
        frozen = next(iter(self._ages.values()), "")
        live = self.view.keymap.first("pause")  # keys that go to an end move within the panel
        live_now = f"{live}: live again" if self.monitor.gone_back and live else "live ●" if state.live else ""
        live_now = f"frozen {frozen}" if frozen else live_now
        before = state.undo.changes
        return " · ".join(part for part in (f"{before} changed" if before else "", live_now) if part)

    def title(self) -> str:
        """The panel; and of when it is, as it goes on with the newest figures while another moment is shown."""
        of = self.snapshot if self.monitor.gone_back else None
        return f"{self.TITLE} as of {clock(of.wall_s)}" if of is not None else self.TITLE

    def take(self, key: str, character: str | None = None) -> bool:
        """Numbers are typed, and the panel's own keys do what the table of keys says."""
        state = self.state
        if state.type(key, character):
            self._changed()
            return True
        if self._stray and character in ("e", "E", ".", ","):
            return self._astray(character)
        name = scoped(self.view.keymap, SCOPE).get(key, "").partition("'")[2].rstrip("')")
        if self._refused(key, character, name):
            return True
        if not name:
            return self._astray(character)
        self.run(name)
        return True

    def _refused(self, key: str, character: str | None, name: str) -> bool:
        """While a value is typed only what the key line names does something, and on a number field no letter is a
        command: no slip of a letter undoes or quits."""
        first = self.view.keymap.first
        if self.editing:
            shown = character if character is not None and character.isprintable() else key if name else ""
            if shown:
                self._say_why(f"{shown} is no part of a number; {first('open')}: take it")
            return bool(shown)
        field = self.state.place.field
        if not self.on_number or field.kind is None or character is None or not character.isalpha():
            return False
        self.monitor.say(
            f"{field.name}: {character} is no number; type one {field.kind.name}; {first('back')}: the rows"
        )
        return True

    def _astray(self, character: str | None) -> bool:
        """A digit where a value is chosen is answered in words; what else may be of a number goes with it."""
        digit = character is not None and character.isdigit()
        was, self._stray = self._stray, digit or (self._stray and character in ("e", "E", ".", ","))
        if digit or (was and self._stray):
            key = self.view.keymap.first
            chosen = "" if self.state.place.field.kind is not None else f"{self.state.place.field.name}: "
            self.monitor.say(
                f"{chosen}choose with {key('left')} {key('right')} or {key('open')}; digits belong to a number field"
            )
        return digit or (was and self._stray)

    def on_paste(self, event: events.Paste) -> None:
        """A pasted number is a typed number."""
        event.stop()
        if event.text:
            self.state.paste(event.text.splitlines()[0][:32].strip())
            self._changed()

    def run(self, name: str) -> None:
        """One of the panel's commands, by the last part of its id."""
        state = self.state
        simple: dict[str, Callable[[], object]] = {
            "more": lambda: state.step(1),
            "less": lambda: state.step(-1),
            "double": self._double,
            "double.all": partial(state.double, every=True),
            "tp": self._other_tp,
            "precision": state.other_weights,
            "goal": partial(state.what_if, GOALS, "itl_p95_ms", _GOALS_MS),
            "remove": self._remove,
            "undo": partial(self._turn, forth=False),
            "redo": partial(self._turn, forth=True),
            "reset": self._reset,
            "view": self._next_view,
            "add": self._ask_model,
            "gpu": self._ask_gpu,
            "save": self._ask_name,
            "load": self._ask_file,
        }
        simple[name]()
        self._changed()

    def _changed(self) -> None:
        if self.snapshot is not None:
            self._ages = ages(self.state.undo.present, self.snapshot.wall_s)
        self._notes_from = 0
        self.update()
        self.monitor.show_keys()

    def move(self, lines: int) -> None:
        """Another row, or another field of the opened one."""
        if not self.state.move(lines):
            self._say_why()
        self._changed()

    def side(self, step: int) -> bool:
        """The value beside, or another choice."""
        self.state.side(step)
        if self.state.edit is not None:
            self._say_why()
        self._changed()
        return True

    def change(self, step: int) -> bool:
        """A step of the value."""
        self.state.step(step)
        self._changed()
        return True

    def open(self) -> tuple[str, str] | None:
        """Enter: take what is typed; else all fields of the row; of these, type or choose."""
        state = self.state
        if state.edit is not None:
            if not state.accept():
                self._say_why()
        elif not state.opened:
            if state.stop.section != SERVER or state.stop.at < len(state.undo.present.server):
                state.open()
            else:
                self._ask_gpu()
        elif state.place.field.kind is not None:
            state.begin()
        elif state.place.field.key == "gpu":
            self._ask_gpu()
        else:
            self._ask_choice()
        self._changed()
        return None

    def _say_why(self, why: str = "") -> None:
        edit, back = self.state.edit, self.view.keymap.first("back")
        if edit is not None:
            self.monitor.say(f"{edit.place.field.name}: {why or edit.reason}; {back}: as it was")

    def back(self) -> bool:
        """Drop what is typed, then from the fields to the rows, then words in place of the picture."""
        went = self.state.cancel() or self.state.close()
        if not went and self.wanted:
            self.wanted, went = False, True
        if went:
            self._changed()
        return went

    def write(self) -> bool:
        """The key for saving saves the scenario."""
        self._ask_name()
        return True

    def _double(self) -> None:
        if not self.state.double() and self.state.stop.section != WORKLOAD:
            one, every = map(self.view.keymap.first, ("sizing.double", "sizing.double.all"))
            self.monitor.say(f"{one} doubles the model under the cursor; all: {every}")

    def _other_tp(self) -> None:
        if not self.state.other_tp():
            self.monitor.say("no other TP is known to hold this model on one of these servers")

    def _remove(self) -> None:
        if not self.state.remove():
            self.monitor.say(f"{self.state.place.field.name}: nothing was typed here, so there is nothing to remove")

    def _turn(self, *, forth: bool) -> None:
        if not self.state.turn(forth):
            self.monitor.say(f"nothing to {'redo' if forth else 'undo'}")

    def _next_view(self) -> None:
        """Ask for a picture where there is none, else for the next one; after the last, words have the room again."""
        if self._drawn_picture or self.wanted:
            self.what = VIEWS[(VIEWS.index(self.what) + 1) % len(VIEWS)]
            self.wanted = self.what != VIEWS[0]
        else:
            self.wanted = True

    def _reset(self) -> None:
        if self.snapshot is None:
            return
        scenario = self._as_it_runs()
        if not scenario.workload:
            self.monitor.say("no engine runs here: nothing to go back to")
            return
        self.state.load(scenario, runs=True)
        self._look()

    def _ask_model(self) -> None:
        observed = self.monitor.control.calibration.observed()

        def add(workload: Workload) -> None:
            self.state.add(workload, observed)
            self._changed()

        if self.state.accept():
            self.monitor.ask(questions.model_to_add(self.state.last.known, observed, add))

    def _ask_gpu(self) -> None:
        state = self.state
        at = state.stop.at if state.stop.section == SERVER else 0
        server: Server | None = next(iter(state.undo.present.server[at : at + 1]), None)

        def use(name: str) -> None:
            state.use_gpu(name)
            self._changed()

        if state.accept():
            now = server.gpu if server is not None else ""
            self.monitor.ask(questions.gpu_type(state.last.known, now, use))

    def _ask_choice(self) -> None:
        state, place = self.state, self.state.place

        def put(value: str) -> None:
            state.put_value(place, value)
            self._changed()

        now = str(value_of(state.undo.present, place) or "")
        self.monitor.ask(questions.value_from_list(place, now, state.last.known, put))

    def _ask_name(self) -> None:
        files = self.monitor.files
        if files is None or not self.state.accept():
            return

        def save(name: str) -> None:
            self.monitor.run_alone("scenario", partial(self._save, files, name))

        self.monitor.ask(questions.file_to_save(clean(self.state.undo.present.name, 60), save))

    async def _save(self, files: Files, name: str) -> None:
        written, said = await files.save_scenario(self.state.last.known.kept(self.state.undo.present), name)
        if written:
            self.state.undo.settle()
        self.update()
        self.monitor.say(said if written else f"not saved: {said}")

    def _ask_file(self) -> None:
        files = self.monitor.files
        if files is None or not self.state.accept():
            return

        def load(name: str) -> None:
            self.monitor.run_alone("scenario", partial(self._load, files, name))

        self.monitor.ask(questions.file_to_load(lambda: self._files, load))
        self.monitor.run_alone("scenario", partial(self._list_files, files))

    async def _list_files(self, files: Files) -> None:
        """Which there are is known only when the disk has answered."""
        self._files = await files.scenarios()
        self.monitor.drawer.renew()

    async def _load(self, files: Files, name: str) -> None:
        try:
            scenario = await files.load_scenario(name)
        except ConfigError as refused:
            self.monitor.say(str(refused))
            return
        self.state.load(scenario)
        self._changed()
        self.monitor.say(f"loaded {cut(clean(name, 60), 60)}")

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor on a row."""
        at = self._stops[event.y] if 0 <= event.y < len(self._stops) else -1
        state = self.state
        if at < 0 or not state.accept():
            return
        if state.opened:
            state.cell = min(at, len(field_list.places(state.stop)) - 1)
        else:
            state.go_to(at, 0)
        self._changed()
