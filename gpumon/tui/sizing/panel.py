"""The sizing panel: how many instances, GPUs and servers a target takes, answered at each keystroke."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, cast

from textual import events

from gpumon.config.scenario_file import base_of
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.live import targets
from gpumon.tui.control import Control, Files
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.sizing.keys import PanelKeys
from gpumon.tui.sizing.layout import VIEWS, Page, page
from gpumon.tui.sizing.state import Here, Newest, PanelState, Version, ages
from gpumon.tui.sizing.table import Scene
from gpumon.tui.table import clock
from gpumon.tui.view import View
from gpumon.tui.widgets.key_line import NUMBER, SIZING
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.screens.questions import Question

_RENEW_S: Final = 2.0
"""Between two looks at what the engines showed since."""


class HostScreen(Protocol):
    """What the panel asks of the screen that it is part of."""

    control: Control
    files: Files | None
    ask: Callable[[Question], None]
    say: Callable[[str], None]
    renew: Callable[[], None]
    show_keys: Callable[[], None]
    run_alone: Callable[[str, Callable[[], Coroutine[None, None, None]]], None]

    @property
    def gone_back(self) -> bool: ...


class SizingPanel(Pane):
    """Made when it is opened first. While it is closed it costs nothing; while it is open a look every 2 s."""

    KEY: str = "sizing"
    TITLE: str = "sizing"
    TIMELESS: ClassVar[bool] = True

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self.beside = False
        """Whether it stands beside the panes, with a rule at its left, instead of over them."""
        self._view = VIEWS[0]
        self._asked = False
        """Whether a picture was asked for, so that it has room before words."""
        self._state: PanelState | None = None
        self._ages: dict[int, str] = {}
        self._looked_s = float("-inf")
        self._notes_from = 0
        """Lines of words that are scrolled out of view."""
        self._page = Page([], False)
        """As it was painted last."""
        self.keys = PanelKeys(self)

    @property
    def monitor(self) -> HostScreen:
        """The screen that the panel is part of."""
        return cast("HostScreen", self.screen)

    @property
    def state(self) -> PanelState:
        """What is worked on; at first what runs here."""
        if self._state is None:
            configured = bool(base_of(self.view.config).server)
            self._state = PanelState(self.monitor.control.known(), self.keys.as_it_runs(), configured)
            self.look()
        return self._state

    @property
    def editing(self) -> bool:
        """Whether a value is being typed."""
        return self._state is not None and self._state.edit is not None

    @property
    def keys_of(self) -> str:
        """What the key line names the keys of: on a number among the fields of a row letters are no commands."""
        state = self._state
        number = state is not None and state.opened and state.place.field.kind is not None
        return NUMBER if number and not self.editing else SIZING

    def show(self, snapshot: Snapshot) -> None:
        """Take a snapshot in; what it changes is looked at every 2 s."""
        first = self.snapshot is None
        self.snapshot = snapshot
        state = self._state
        if state is not None and not state.present.workload and not state.undo.changes and state.edit is None:
            # It was opened before the first engine was read.
            scenario = self.keys.as_it_runs()
            if scenario.workload:
                state.load(Version.of(scenario, runs=True))
                first = True
        if first or not 0.0 <= snapshot.wall_s - self._looked_s < _RENEW_S:
            self.look()
            self.update()

    def look(self) -> None:
        """Take over what engines showed since, which GPUs are here, and what is known by now."""
        snapshot, state = self.snapshot, self.state
        if snapshot is None:
            return
        self._looked_s = snapshot.wall_s
        if state.calculation.use(self.monitor.control.known(), Here.of(snapshot)):
            state.answer()
        seen = self.monitor.control.calibration
        state.renew(Newest(seen.observed(), targets(snapshot, seen.in_flight())))
        self._ages = ages(state.present, snapshot.wall_s)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule and all below it."""
        edge: Row = (("│", "border"),) if self.beside else ()
        glyphs, keymap = self.palette.glyphs, self.view.keymap
        scene = Scene(
            self.state, self.has_focus, self._ages, self._view, self._asked, glyphs, keymap,
            width - len(edge), height - 1, self._notes_from,
        )  # fmt: skip
        self._page = page(scene)
        self._notes_from = self._page.notes_from
        rule = self._rule(scene.width, len(self._page.lines), scene.height)
        return [(*edge, *row) for row in (rule, *(row for _, row in self._page.lines))]

    def note(self) -> str:
        """Whether the figures are live, and how many changes were made."""
        state, live = self.state, self.view.keymap.first("pause")
        frozen = next(iter(self._ages.values()), "")
        follows = any(each.figures for each in state.undo.present.follows)
        # Keys that go to an end move within the panel, so it is the key for a pause that goes on with now.
        now = f"{live}: live again" if self.monitor.gone_back and live else "live ●" if follows else ""
        now = f"frozen {frozen}" if frozen else now
        changes = state.undo.changes
        return " · ".join(part for part in (f"{changes} changed" if changes else "", now) if part)

    def title(self) -> str:
        """The panel; and of when it is, as it goes on with the newest figures while another moment is shown."""
        of = self.snapshot if self.monitor.gone_back else None
        return f"{self.TITLE} as of {clock(of.wall_s)}" if of is not None else self.TITLE

    def take(self, key: str, character: str | None = None) -> bool:
        """Numbers are typed, and the panel's own keys do what the table of keys says."""
        return self.keys.take(key, character)

    def run(self, name: str) -> None:
        """One of the panel's commands, by the last part of its id."""
        self.keys.run(name)

    def changed(self) -> None:
        """Show what is another now."""
        if self.snapshot is not None:
            self._ages = ages(self.state.present, self.snapshot.wall_s)
        self._notes_from = 0
        self.update()
        self.monitor.show_keys()

    def move(self, lines: int) -> None:
        """Another row, or another field of the opened one."""
        self.keys.move(lines)

    def leaf(self, pages: int) -> None:
        """Scroll what is written about the workload; where all of it is in view, move the cursor."""
        if not self._page.most_from:
            super().leaf(pages)
            return
        self._notes_from = max(0, min(self._page.most_from, self._notes_from + pages * self._page.leaf))
        self.update()

    def side(self, step: int) -> bool:
        """The value beside, or another choice."""
        self.keys.side(step)
        return True

    def change(self, step: int) -> bool:
        """A step of the value."""
        self.keys.change(step)
        return True

    def open(self) -> None:
        """Enter: take what is typed; else all fields of the row; of these, type or choose."""
        self.keys.open()

    def back(self) -> bool:
        """Drop what is typed, then from the fields to the rows, then words in place of the picture."""
        went = self.state.cancel() or self.state.close()
        if not went and self._asked:
            self._asked, went = False, True
        if went:
            self.changed()
        return went

    def write(self) -> bool:
        """The key for saving saves the scenario."""
        self.keys.dialogs.save()
        return True

    def next_view(self) -> None:
        """Ask for a picture where there is none, else for the next one; after the last, words have the room again."""
        if self._page.pictured or self._asked:
            self._view = VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)]
            self._asked = self._view != VIEWS[0]
        else:
            self._asked = True

    def on_paste(self, event: events.Paste) -> None:
        """A pasted number is a typed number."""
        event.stop()
        if event.text:
            self.state.paste(event.text.splitlines()[0][:32].strip())
            self.changed()

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor on a row."""
        lines, state = self._page.lines, self.state
        at = lines[event.y - 1][0] if 0 < event.y <= len(lines) else -1
        if at < 0 or not state.accept():
            return
        if state.opened:
            state.cell = at
        else:
            state.go_to(at)
        self.changed()
