"""The sizing panel: how many instances, GPUs and servers a target takes, answered at each keystroke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from textual import events

from gpumon.config.scenario_file import scenario_of_settings
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.live import from_live, live_targets
from gpumon.sizing.scenario import Scenario
from gpumon.tui.keys import keys_of_scope
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.sizing.calculation import Here
from gpumon.tui.sizing.dialogs import Dialogs, SizingScreen
from gpumon.tui.sizing.effects import ages_of_frozen
from gpumon.tui.sizing.fields import SERVER, WORKLOAD
from gpumon.tui.sizing.layout import PICTURES, PanelPage, panel_page
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene
from gpumon.tui.sizing.versions import Newest, Version
from gpumon.tui.sizing.what_ifs import double, next_goal, next_tp, next_weights, toggle_estimate
from gpumon.tui.table import clock
from gpumon.tui.view import View
from gpumon.tui.widgets.key_line import NUMBER, SIZING
from gpumon.tui.widgets.pane import Pane

_RENEW_S: Final = 2.0
"""Between two looks at what the engines showed since."""


class SizingPanel(Pane):
    """Made when it is opened first. While it is closed it costs nothing; while it is open a look every 2 s."""

    COMMAND: str = "sizing"
    TITLE: str = "sizing"
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View, monitor: SizingScreen) -> None:
        """`monitor`: the screen that the panel is part of."""
        super().__init__(palette, view)
        self.monitor = monitor
        self.beside = False
        """Whether it stands beside the panes, with a rule at its left, instead of over them."""
        self._picture = PICTURES[0]
        self._picture_first = False
        """Whether a picture was asked for, so that it has room before words."""
        self._state: PanelState | None = None
        self._ages: dict[int, str] = {}
        self._looked_s = float("-inf")
        self._scrolled_lines = 0
        """Lines of words that are scrolled out of view."""
        self._page = PanelPage([], False)
        """As it was painted last."""
        self._misplaced = False
        """Whether the last key was part of a number that nothing here takes."""
        self._dialogs = Dialogs(self)

    @property
    def state(self) -> PanelState:
        """The panel without its looks; at first with what runs here."""
        if self._state is None:
            configured = bool(scenario_of_settings(self.view.config).server)
            self._state = PanelState(
                self.monitor.control.catalogues(), self._as_it_runs(), has_configured_servers=configured
            )
            self.look()
        return self._state

    @property
    def editing(self) -> bool:
        """Whether a value is being typed."""
        return self._state is not None and self._state.edit is not None

    @property
    def keys_of(self) -> str:
        """Place whose keys the key line names: on a number among the fields of a row letters are no commands."""
        state = self._state
        number = state is not None and state.opened and state.place.field.kind is not None
        if number and not self.editing:
            return NUMBER
        return SIZING

    def _as_it_runs(self) -> Scenario:
        """The scenario of what runs here; the settings alone before anything was seen."""
        seen = self.monitor.control.calibration
        base = scenario_of_settings(self.view.config)
        if self.snapshot is None:
            return base
        return from_live(self.snapshot, seen.observed(), base, seen.in_flight())

    def show(self, snapshot: Snapshot) -> None:
        """Take a snapshot in; what it changes is looked at every 2 s."""
        first = self.snapshot is None
        self.snapshot = snapshot
        state = self._state
        if state is not None and not state.present.workload and not state.undo.changes and state.edit is None:
            # It was opened before the first engine was read.
            scenario = self._as_it_runs()
            if scenario.workload:
                state.load(Version.of(scenario, runs=True))
                first = True
        if first or not 0.0 <= snapshot.wall_s - self._looked_s < _RENEW_S:
            self.look()
            self.update()

    def look(self) -> None:
        """Take over what engines showed since, which GPUs are here, and what is known by now."""
        snapshot = self.snapshot
        state = self.state
        if snapshot is None:
            return
        self._looked_s = snapshot.wall_s
        if state.calculation.use(self.monitor.control.catalogues(), Here.of(snapshot)):
            state.answer()
        seen = self.monitor.control.calibration
        state.renew(Newest(seen.observed(), live_targets(snapshot, seen.in_flight())))
        self._ages = ages_of_frozen(state.present, snapshot.wall_s)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule and all below it."""
        edge: Row = (("│", "border"),) if self.beside else ()
        scene = Scene(
            state=self.state,
            focused=self.has_focus,
            ages=self._ages,
            picture=self._picture,
            picture_first=self._picture_first,
            glyphs=self.palette.glyphs,
            keymap=self.view.keymap,
            width=width - len(edge),
            height=height - 1,
            scrolled_lines=self._scrolled_lines,
        )
        self._page = panel_page(scene)
        self._scrolled_lines = self._page.scrolled_lines
        rule = self._rule(scene.width, len(self._page.lines), scene.height)
        return [(*edge, *row) for row in (rule, *(row for _, row in self._page.lines))]

    def note(self) -> str:
        """Whether the figures are live, and how many changes were made."""
        parts = [self._liveness()]
        if self.state.undo.changes:
            parts.insert(0, f"{self.state.undo.changes} changed")
        return " · ".join(filter(None, parts))

    def _liveness(self) -> str:
        """Whether the figures go on with the engines; empty for a scenario of a file."""
        frozen = next(iter(self._ages.values()), "")
        if frozen:
            return f"frozen {frozen}"
        # Keys that go to an end move within the panel, so it is the key for a pause that goes on with now.
        live = self.view.keymap.first("pause")
        if self.monitor.gone_back and live:
            return f"{live}: live again"
        follows = any(follow.figures for follow in self.state.undo.version.follows)
        return "live ●" if follows else ""

    @property
    def changes(self) -> int:
        """Changes that were neither saved nor undone."""
        return self._state.undo.changes if self._state is not None else 0

    def title(self) -> str:
        """The panel; and of when it is, as it goes on with the newest figures while another moment is shown."""
        if self.snapshot is None or not self.monitor.gone_back:
            return self.TITLE
        return f"{self.TITLE} as of {clock(self.snapshot.wall_s)}"

    def take(self, key: str, character: str | None = None) -> bool:
        """Numbers are typed, and the panel's own keys do what the table of keys says."""
        if self.state.type(key, character):
            self.changed()
            return True
        goes_on = self._misplaced and character in ("e", "E", ".", ",")
        self._misplaced = False
        name = keys_of_scope(self.view.keymap, self.COMMAND).get(key, "").removeprefix("sizing.")
        if self.editing:
            return self._refuse_while_typing(key, name)
        if self._is_slip(character):
            self.monitor.say(self._no_command(character))
            return True
        if goes_on or (not name and character is not None and character.isdigit()):
            self._take_digit(character)
            return True
        if name:
            self.run(name)
        return bool(name)

    def _refuse_while_typing(self, key: str, name: str) -> bool:
        """While a value is typed no key is a command but those that the key line names; returns whether it was one."""
        edit = self.state.edit
        if edit is None or not name:
            return False
        edit.key_note = f"{key} waits until the number is taken"
        self.changed()
        return True

    def _is_slip(self, character: str | None) -> bool:
        """Whether a key is a letter on a number field, where none is a command: no slip undoes or quits."""
        return self.keys_of == NUMBER and character is not None and character.isalpha()

    def _no_command(self, character: str | None) -> str:
        field = self.state.place.field
        example = field.kind.example if field.kind is not None else ""
        return f"{field.name}: {character} is no number; type one {example}; {self.view.keymap.first('back')}: the rows"

    def _take_digit(self, character: str | None) -> None:
        """A digit on a choice opens its list, if one of the choices has that digit."""
        first = self.view.keymap.first
        field = self.state.place.field
        if character is not None and self._dialogs.choose_by_digit(character):
            return
        self._misplaced = True
        keys = f"choose with {first('left')} {first('right')} or {first('open')}"
        self.monitor.say(f"{field.name}: {keys}; none of the choices has this digit")

    def run(self, name: str) -> None:
        """One of the panel's commands, by the last part of its id."""
        state = self.state
        first = self.view.keymap.first
        in_row = f"{first('sizing.double')} doubles the model under the cursor; all: {first('sizing.double.all')}"
        commands: dict[str, tuple[Callable[[], object], str]] = {
            "more": (partial(state.step, 1), ""),
            "less": (partial(state.step, -1), ""),
            "double": (partial(double, state), in_row if state.stop.section != WORKLOAD else ""),
            "double.all": (partial(double, state, every=True), ""),
            "tp": (partial(next_tp, state), "no other TP is known to hold this model on one of these servers"),
            "precision": (partial(next_weights, state), ""),
            "goal": (partial(next_goal, state, "itl_p95_ms"), ""),
            "goal.ttft": (partial(next_goal, state, "ttft_p95_ms"), ""),
            "goal.estimate": (partial(toggle_estimate, state), ""),
            "remove": (
                state.remove,
                f"{state.place.field.name}: nothing was typed here, so there is nothing to remove",
            ),
            "undo": (partial(state.undo_or_redo, -1), "nothing to undo"),
            "redo": (partial(state.undo_or_redo, 1), "nothing to redo"),
            "peak": (self._dialogs.plan_for, ""),
            "reset": (self._reset, "no engine runs here: nothing to go back to"),
            "view": (self._next_picture, ""),
            "add": (self._dialogs.add_model, ""),
            "add.server": (self._dialogs.add_server, ""),
            "gpu": (self._dialogs.choose_gpu, ""),
            "save": (self._dialogs.save, ""),
            "load": (self._dialogs.load, ""),
        }
        self._do(*commands[name])

    def _do(self, command: Callable[[], object], otherwise: str = "") -> None:
        """Run a command and show what it did; `otherwise` is said where it did nothing."""
        if command() is False and otherwise:
            self.monitor.say(otherwise)
        self.changed()

    def changed(self) -> None:
        """Show what is another now."""
        if self.snapshot is not None:
            self._ages = ages_of_frozen(self.state.present, self.snapshot.wall_s)
        self._scrolled_lines = 0
        self.update()
        self.monitor.show_keys()

    def move(self, lines: int) -> None:
        """Another row, or another field of the opened one."""
        self._do(partial(self.state.move, lines))

    def move_pages(self, pages: int) -> None:
        """Scroll what is written about the workload; where all of it is in view, move the cursor."""
        if not self._page.most_scrolled:
            super().move_pages(pages)
            return
        self._scrolled_lines = max(
            0, min(self._page.most_scrolled, self._scrolled_lines + pages * self._page.page_lines)
        )
        self.update()

    def step_aside(self, step: int) -> bool:
        """The value beside, or another choice."""
        self._do(partial(self.state.move_sideways, step))
        return True

    def change(self, step: int) -> bool:
        """A step of the value."""
        self._do(partial(self.state.step, step))
        return True

    def open(self) -> None:
        """Enter: take what is typed; else all fields of the row; of these, type or choose."""
        state = self.state
        no_server = state.stop.section == SERVER and state.stop.number >= len(state.present.server)
        if state.edit is not None:
            self._do(self._accept)
        elif no_server or (state.opened and state.place.field.key == "gpu"):
            self._do(self._dialogs.choose_gpu)
        elif not state.opened:
            self._do(state.open)
        elif state.place.field.kind is not None:
            self._do(state.begin)
        else:
            self._do(self._dialogs.choose_value)

    def _accept(self) -> bool:
        """Take what is typed; the cursor comes back to the row that it left for a goal."""
        if not self.state.accept_typing():
            return False
        self.state.leave_goal()
        return True

    def back(self) -> bool:
        """Drop what is typed and leave a goal; then close the fields of a row, then the picture that was asked for."""
        cancelled = self.state.cancel()
        left_goal = self.state.leave_goal()
        went = cancelled or left_goal or self.state.close()
        if not went and self._picture_first:
            self._picture_first = False
            went = True
        if went:
            self.changed()
        return went

    def write(self) -> bool:
        """The key for saving saves the scenario."""
        self._dialogs.save()
        return True

    def _next_picture(self) -> None:
        """Ask for a picture where there is none, else for the next one; after the last, words have the room again."""
        if self._page.pictured or self._picture_first:
            self._picture = PICTURES[(PICTURES.index(self._picture) + 1) % len(PICTURES)]
            self._picture_first = self._picture != PICTURES[0]
        else:
            self._picture_first = True

    def _reset(self) -> bool:
        scenario = self._as_it_runs()
        if self.snapshot is None or not scenario.workload:
            return self.snapshot is None
        self.state.load(Version.of(scenario, runs=True))
        self.look()
        return True

    def on_paste(self, event: events.Paste) -> None:
        """A pasted number is a typed number."""
        event.stop()
        if event.text:
            self.state.paste(event.text.splitlines()[0][:32].strip())
            self.changed()

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor on a row."""
        lines = self._page.lines
        state = self.state
        if 0 < event.y <= len(lines):
            place = lines[event.y - 1][0]
        else:
            place = -1
        if place < 0 or not state.accept_typing():
            return
        if state.opened:
            state.cell = place
        else:
            state.go_to(place)
        self.changed()
