"""What each key does in the sizing panel: numbers are typed, all else is in the table of keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from gpumon.config.scenario_file import base_of
from gpumon.sizing.live import from_live
from gpumon.sizing.scenario import Scenario
from gpumon.tui.keys import scoped
from gpumon.tui.sizing.dialogs import Dialogs
from gpumon.tui.sizing.fields import GOALS, SERVER, WORKLOAD
from gpumon.tui.sizing.state import PanelState, Version, double, next_tp, next_value, next_weights
from gpumon.tui.widgets.key_line import NUMBER

if TYPE_CHECKING:
    from gpumon.tui.sizing.panel import SizingPanel

_SCOPE: Final = "sizing"
"""Of its keys, in the table of keys."""
_ITL_GOALS_MS: Final = (None, 100.0, 60.0, 40.0, 25.0, 15.0)
_TTFT_GOALS_MS: Final = (None, 5000.0, 2000.0, 1000.0, 500.0, 200.0)
"""What one key goes through: open at first."""


class PanelKeys:
    """Runs commands on the panel's state, and says what they did not do."""

    def __init__(self, panel: SizingPanel) -> None:
        self._panel = panel
        self._misplaced = False
        """Whether the last key was part of a number that nothing here takes."""
        self.dialogs = Dialogs(panel)

    @property
    def _state(self) -> PanelState:
        return self._panel.state

    def as_it_runs(self) -> Scenario:
        """The scenario of what runs here; the settings alone before anything was seen."""
        panel, seen = self._panel, self._panel.monitor.control.calibration
        base, shot = base_of(panel.view.config), panel.snapshot
        return from_live(shot, seen.observed(), base, seen.in_flight()) if shot is not None else base

    def take(self, key: str, character: str | None = None) -> bool:
        """Numbers are typed, and the panel's own keys do what the table of keys says."""
        state = self._state
        if state.type(key, character):
            self._panel.changed()
            return True
        goes_on = self._misplaced and character in ("e", "E", ".", ",")
        self._misplaced = False
        name = scoped(self._panel.view.keymap, _SCOPE).get(key, "").removeprefix("sizing.")
        refused = self._refusal(key, character, name)
        if goes_on or (not refused and not name and character is not None and character.isdigit()):
            self._misplaced = True
            first, field = self._panel.view.keymap.first, state.place.field
            chosen = "" if field.kind is not None else f"{field.name}: "
            refused = f"{chosen}choose with {first('left')} {first('right')} or {first('open')}; "
            refused += "digits belong to a number field"
        if refused:
            self._panel.monitor.say(refused)
            return True
        if name:
            self.run(name)
        return bool(name)

    def _refusal(self, key: str, character: str | None, name: str) -> str:
        """While a value is typed only what the key line names does something, and on a number field no letter is a
        command: no slip of a letter undoes or quits. Returns why a key does nothing; empty where it may."""
        first, field = self._panel.view.keymap.first, self._state.place.field
        if self._panel.editing:
            shown = character if character is not None and character.isprintable() else key if name else ""
            why = f"{shown} is no part of a number; {first('open')}: take it"
            return self._why(why) if shown else ""
        if self._panel.keys_of != NUMBER or field.kind is None or character is None or not character.isalpha():
            return ""
        return f"{field.name}: {character} is no number; type one {field.kind.name}; {first('back')}: the rows"

    def _why(self, why: str = "") -> str:
        """Why what is typed is not taken; empty where nothing is typed."""
        edit = self._state.edit
        if edit is None:
            return ""
        return f"{edit.place.field.name}: {why or edit.reason}; {self._panel.view.keymap.first('back')}: as it was"

    def run(self, name: str) -> None:
        """One of the panel's commands, by the last part of its id."""
        state, first = self._state, self._panel.view.keymap.first
        in_row = f"{first('sizing.double')} doubles the model under the cursor; all: {first('sizing.double.all')}"
        commands: dict[str, tuple[Callable[[], object], str]] = {
            "more": (partial(state.step, 1), ""),
            "less": (partial(state.step, -1), ""),
            "double": (partial(double, state), in_row if state.stop.section != WORKLOAD else ""),
            "double.all": (partial(double, state, every=True), ""),
            "tp": (partial(next_tp, state), "no other TP is known to hold this model on one of these servers"),
            "precision": (partial(next_weights, state), ""),
            "goal": (partial(next_value, state, GOALS, "itl_p95_ms", _ITL_GOALS_MS), ""),
            "goal.ttft": (partial(next_value, state, GOALS, "ttft_p95_ms", _TTFT_GOALS_MS), ""),
            "remove": (
                state.remove,
                f"{state.place.field.name}: nothing was typed here, so there is nothing to remove",
            ),
            "undo": (partial(state.turn, -1), "nothing to undo"),
            "redo": (partial(state.turn, 1), "nothing to redo"),
            "peak": (self.dialogs.plan_for, ""),
            "reset": (self._reset, "no engine runs here: nothing to go back to"),
            "view": (self._panel.next_view, ""),
            "add": (self.dialogs.add_model, ""),
            "gpu": (self.dialogs.choose_gpu, ""),
            "save": (self.dialogs.save, ""),
            "load": (self.dialogs.load, ""),
        }
        self._do(*commands[name])

    def _do(self, command: Callable[[], object], otherwise: str = "") -> None:
        """Run a command and show what it did; `otherwise` is said where it did nothing."""
        if command() is False and otherwise:
            self._panel.monitor.say(otherwise)
        self._panel.changed()

    def move(self, lines: int) -> None:
        """Another row, or another field of the opened one."""
        self._do(partial(self._state.move, lines), self._why())

    def side(self, step: int) -> None:
        """The value beside, or another choice."""
        self._do(partial(self._state.side, step))
        if self._panel.editing:
            self._panel.monitor.say(self._why())

    def change(self, step: int) -> None:
        """A step of the value."""
        self._do(partial(self._state.step, step))

    def open(self) -> None:
        """Enter: take what is typed; else all fields of the row; of these, type or choose."""
        state, why = self._state, self._why()
        no_server = state.stop.section == SERVER and state.stop.at >= len(state.present.server)
        if state.edit is not None:
            self._do(state.accept, why)
        elif no_server or (state.opened and state.place.field.key == "gpu"):
            self._do(self.dialogs.choose_gpu)
        elif not state.opened:
            self._do(state.open)
        elif state.place.field.kind is not None:
            self._do(state.begin)
        else:
            self._do(self.dialogs.choose_value)

    def _reset(self) -> bool:
        scenario = self.as_it_runs()
        if self._panel.snapshot is None or not scenario.workload:
            return self._panel.snapshot is None
        self._state.load(Version.of(scenario, runs=True))
        self._panel.look()
        return True
