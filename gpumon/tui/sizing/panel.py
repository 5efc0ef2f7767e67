"""The sizing panel: how many instances, GPUs and servers a target takes, answered at each keystroke."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple

from textual import events
from textual.worker import WorkType

from gpumon.config.scenario_file import scenario_of_settings
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.live import from_live, live_targets
from gpumon.sizing.scenario import Scenario
from gpumon.tui.keys import is_command, keys_of_scope
from gpumon.tui.line import Row
from gpumon.tui.screens.context import KeysChanged, ScreenContext
from gpumon.tui.sizing.answer import BLOCKS_LABEL
from gpumon.tui.sizing.calculation import Here, Question
from gpumon.tui.sizing.dialogs import Dialogs
from gpumon.tui.sizing.effective_values import ages_of_frozen
from gpumon.tui.sizing.fields import SERVER, WORKLOAD, FieldPlace, field_of, typed_value
from gpumon.tui.sizing.layout import PICTURES, PanelPage, panel_page
from gpumon.tui.sizing.offer import Offer, offer_of
from gpumon.tui.sizing.server_blocks import BlockScale, block_scale
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene
from gpumon.tui.sizing.versions import FrozenFigures, Version
from gpumon.tui.sizing.what_ifs import double, next_goal, next_layout, next_weights, toggle_estimate
from gpumon.tui.table import clock
from gpumon.tui.widgets.key_line import NUMBER, SIZING
from gpumon.tui.widgets.pane import Pane

_LOOK_S: Final = 2.0
"""Seconds between two looks at the age of what the panel works on."""
_OFFER_S: Final = 10.0
"""Seconds between two looks at what the engines showed since: a point takes as long."""
_OF_NUMBERS: Final = "0123456789., "
"""Characters that are typed into a number wherever they stand."""
_SIMULATE_AFTER_S: Final = 0.15
"""Seconds without a key after which requests are simulated, so that the keys of one number do not wait for it."""
_MOST_PAUSE_S: Final = 0.2
"""Seconds after which simulating goes on even so, where the screen was never painted after a key."""
_SIMULATION: Final = "sizing simulation"
"""Group of that work."""
_MOST_PASTED: Final = 32
"""Most characters of a pasted number."""
_OF_PANES: Final = frozenset(
    (
        *("filter", "filter.all", "sort", "wall", "wall.figure", "roofline", "span.shorter", "span.longer"),
        *("hide", "copy", "acknowledge", "log", "requests", "mark", "compare", "fleet.models", "fleet.free"),
    )
)
"""Commands of the whole screen that are about what is under a pane's cursor."""
_DOUBLE_CLICK: Final = 2
"""Clicks of a double one."""
_LEAST_WITH_BLOCKS: Final = 14
"""Lines of a panel from which it has the blocks of servers."""
_CELLS_OF_PRICE: Final = 18
"""Cells behind the blocks, for the price."""


class _Command(NamedTuple):
    """A command of the panel."""

    run: Callable[[], object]
    """Does it; returns False where there was nothing to do."""
    otherwise: str = ""
    """The notice where there was nothing to do."""


class SizingPanel(Pane):
    """The panel that answers how many servers a load takes. It is made when it is opened first; while it is closed it
    costs nothing. It works on what the engines showed when it was opened; newer figures are offered, and taken by a
    key."""

    command: str = "sizing"
    heading: str = "sizing"
    TIMELESS: ClassVar[bool] = True

    def __init__(self, context: ScreenContext) -> None:
        """`context`: of the screen that the panel is part of."""
        super().__init__(context.palette, context.view)
        self.context = context
        self.beside = False
        """Whether it stands beside the panes, with a rule at its left, instead of over them."""
        self._picture = PICTURES[0]
        """The picture that is shown where there is room."""
        self._picture_first = False
        """Whether a picture was asked for, so that it has room before text."""
        self._state: PanelState | None = None
        self._ages: dict[int, str] = {}
        """Number of a workload that is not measured any more -> the age of its figures."""
        self._looked_s = float("-inf")
        """Unix time of the snapshot that was looked at last."""
        self._offer: Offer | None = None
        """Newer figures that a key takes; None where it would change nothing."""
        self._offered_s = float("-inf")
        """Unix time of the snapshot that the offer is of."""
        self._scrolled_lines = 0
        """Lines of text that are scrolled out of view."""
        self._page = PanelPage([], has_picture=False)
        """The lines as they were painted last."""
        self._misplaced = False
        """Whether the last key was a digit that nothing here takes: what belongs to its number is no command then."""
        self._dialogs = Dialogs(context, self)
        self._being_simulated: tuple[Question, ...] = ()
        """Questions whose requests are simulated now, or were simulated last."""
        self._is_simulating = False
        """Whether they are simulated now."""
        self._no_key = threading.Event()
        """Set while no key is answered: what is simulated beside gives way to keys."""
        self._no_key.set()
        self._block_scale: BlockScale | None = None
        """Scale of the blocks of servers, as they were painted last; None: there are none."""
        self._is_dragging = False
        """Whether a button is down on the blocks: their scale stays."""
        self._candidate: FrozenFigures | None = None
        """Figures to offer once it is known what they would change: they stay while requests are simulated."""

    @property
    def state(self) -> PanelState:
        """The panel without its looks; at first with what runs here."""
        if self._state is None:
            frozen = self.newest_figures()
            self._state = PanelState(
                frozen.catalogues,
                self._as_it_runs(),
                has_configured_servers=bool(scenario_of_settings(self.view.config).server),
                frozen=frozen,
            )
            self._drop_offer()
        return self._state

    @property
    def editing(self) -> bool:
        """Whether a value is being typed."""
        return self._state is not None and self._state.edit is not None

    @property
    def keys_of(self) -> str:
        """Place whose keys the key line names: on a number among the fields of a row letters are no commands."""
        state = self._state
        is_number = state is not None and state.opened and state.place.field.kind is not None
        if is_number and not self.editing:
            return NUMBER
        return SIZING

    def _as_it_runs(self) -> Scenario:
        """The scenario of what runs here; the settings alone before anything was seen."""
        calibration = self.context.control.calibration
        of_settings = scenario_of_settings(self.view.config)
        if self.snapshot is None:
            return of_settings
        return from_live(self.snapshot, calibration.observed(), of_settings, calibration.in_flight())

    def newest_figures(self) -> FrozenFigures:
        """Figures of the engines and GPUs by now; the catalogues alone before anything was seen."""
        catalogues = self.context.control.catalogues()
        if self.snapshot is None:
            return FrozenFigures(catalogues)
        calibration = self.context.control.calibration
        peaks = calibration.in_flight()
        return FrozenFigures(
            catalogues,
            here=Here.of(self.snapshot, peaks, calibration.minute_running()),
            observed=calibration.observed(),
            targets=live_targets(self.snapshot, peaks),
            wall_s=self.snapshot.wall_s,
        )

    def begin(self) -> None:
        """Begin with what runs as the panel is opened, unless something was ever changed in it: that stays, with what
        it stands on."""
        state = self._state
        if state is not None and state.undo.untouched and state.edit is None and self.snapshot is not None:
            self._state = None

    def show(self, snapshot: Snapshot) -> None:
        """Take a snapshot in: the age of what the panel works on, and what is offered, are looked at now and then."""
        has_begun = self.snapshot is None
        self.snapshot = snapshot
        if self._state is not None and not self._state.present.workload and self._as_it_runs().workload:
            self.begin()  # it was opened before the first engine was read
        looked_lately = 0.0 <= snapshot.wall_s - self._looked_s < _LOOK_S  # less than 0: in a replay, gone back
        if has_begun or not looked_lately:
            self._look(snapshot)
            self.update()
        self._simulate_pending()

    def _simulate_pending(self) -> None:
        """Simulate what answers wait for, in place of what is left of an earlier question."""
        questions = self.state.calculation.pending
        if questions and questions is not self._being_simulated:
            self._being_simulated = questions
            self._is_simulating = True
            work: WorkType[None] = partial(self._simulate, questions)
            self.run_worker(work, group=_SIMULATION, exclusive=True)

    async def _simulate(self, questions: Sequence[Question]) -> None:
        """Simulate beside the screen once no key came for a moment, and answer with the p95 of it."""
        await asyncio.sleep(_SIMULATE_AFTER_S)
        calculation = self.state.calculation
        stop = threading.Event()
        try:
            await asyncio.to_thread(calculation.simulate, questions, partial(self._may_simulate, stop))
        finally:
            stop.set()  # another question came: what is simulated by then is kept
            if self._being_simulated is questions:
                self._is_simulating = False
        calculation.take_simulated()
        self.state.answer()
        self._being_simulated = calculation.pending  # if something waits even so, it does until the next question
        self._look_at_offer()
        if self.snapshot is not None and any(question.is_offered for question in questions):
            self._being_simulated = calculation.pending
            self._offered_s = self.snapshot.wall_s  # it stands for 10 s before the next one is worked out
        elif self.snapshot is not None:
            self._look(self.snapshot)
        self.update()
        self._simulate_pending()

    def _may_simulate(self, stop: threading.Event) -> bool:
        """Whether simulating goes on; waits on its thread while a key is answered."""
        self._no_key.wait(_MOST_PAUSE_S)
        return not stop.is_set()

    def _look(self, snapshot: Snapshot) -> None:
        """Look at what is offered by now; what the panel works on stays."""
        self._looked_s = snapshot.wall_s
        answer = self.state.calculation.answer
        offered_lately = 0.0 <= snapshot.wall_s - self._offered_s < _OFFER_S
        if not offered_lately and not self._is_simulating:
            self._offered_s = snapshot.wall_s
            self._candidate = self.newest_figures()
            self._look_at_offer()
        elif self._offer is not None and self._offer.asked != answer:
            self._look_at_offer()

    def _look_at_offer(self) -> None:
        """Work out what newer figures would change; until that is known the offer of older ones stays."""
        if self._candidate is None:
            return
        offer = offer_of(self.state, self._candidate)
        is_told = self._offer is not None and self._offer.is_told(self.state.calculation.answer)
        if offer is None or not offer.waits or not is_told:
            self._offer = offer

    def _drop_offer(self) -> None:
        """There is nothing newer than the figures of now; the next look is in 10 s."""
        self._offer = None
        self._candidate = None
        if self.snapshot is not None:
            self._offered_s = self.snapshot.wall_s
            self._ages = ages_of_frozen(self.state.present, self.snapshot.wall_s)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule and all below it."""
        edge: Row = (("│", "border"),) if self.beside else ()
        if not self._is_dragging:
            self._block_scale = self._scale_of_blocks(width - len(edge), height - 1)
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
            offer=self._offer,
            now_s=self._looked_s,
            block_scale=self._block_scale,
        )
        self._page = panel_page(scene)
        self._scrolled_lines = self._page.scrolled_lines
        rule = self.rule(scene.width, len(self._page.lines), scene.height)
        rows_below = [line.row for line in self._page.lines]
        return [(*edge, *row) for row in (rule, *rows_below)]

    def _scale_of_blocks(self, width: int, height: int) -> BlockScale | None:
        """Scale of the blocks of servers in a panel of this size; None where it has none."""
        calculation = self.state.calculation
        plan = calculation.plan(self.state.workload_number)
        if height < _LEAST_WITH_BLOCKS or calculation.answer is None or plan is None:
            return None
        return block_scale(calculation.answer, plan, width - len(BLOCKS_LABEL) - _CELLS_OF_PRICE)

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """How many changes were made, and how the panes go on where they show the past."""
        changes = f"{self.state.undo.changes} changed" if self.state.undo.changes else ""
        live = ""
        # The keys that go to the end of the past on other panes move within the panel: here the key of a pause does so.
        key = self.view.keymap.first("pause")
        if self.context.gone_back and key:
            live = f"{key}: live again"
        return " · ".join(filter(None, [changes, live]))

    @property
    def changes(self) -> int:
        """Number of changes that were neither saved nor undone."""
        return self._state.undo.changes if self._state is not None else 0

    def title(self) -> str:
        """The name of the panel; with the time of its figures while the panes show another moment."""
        frozen_s = self.state.frozen.wall_s
        if frozen_s is None or not self.context.gone_back:
            return self.heading
        return f"{self.heading} as of {clock(frozen_s)}"

    def take_key(self, key: str, character: str | None = None) -> bool:
        """Take a key: it is typed into a number, or does what the table of keys says; returns whether it was taken.

        A letter that is no unit ends the number before it, and then does its own job.
        """
        self._no_key.clear()
        self.call_after_refresh(self._no_key.set)
        if self._ends_number(character):
            self.state.accept_typing()
            self.changed()
        elif self.state.type(key, character):
            self.changed()
            return True
        return self._take_untyped(key, character)

    def _take_untyped(self, key: str, character: str | None) -> bool:
        """Do what the table of keys says of a key that is typed into nothing, or say why it does nothing; returns
        whether it was taken."""
        continues_number = self._misplaced and character in ("e", "E", ".", ",")
        self._misplaced = False
        name = keys_of_scope(self.view.keymap, self.command).get(key, "").removeprefix("sizing.")
        if self.editing:
            return self._refuse_while_typing(key, name)
        # A letter on a number field is a slip: it must not undo or quit.
        if self.keys_of == NUMBER and character is not None and character.isalpha():
            self.context.say(self._no_command(character))
            return True
        is_digit = not name and character is not None and character.isdigit()
        if continues_number or is_digit:
            self._take_digit(character)
            return True
        if name:
            self.run(name)
            return True
        return character is not None and self._refuse_letter(key, character)

    def _refuse_letter(self, key: str, character: str) -> bool:
        """Say that a letter has no command here, or one of the panes behind, which are not under the cursor; returns
        whether it is one of these."""
        if not character.isprintable() or character.isspace():
            return False
        first = self.view.keymap.first
        command = keys_of_scope(self.view.keymap, "").get(key, "")
        if not command:
            self.context.say(
                f"{character} does nothing here; {first('help')} has the keys, {first('sizing.add')} adds a model"
            )
            return True
        if command not in _OF_PANES:
            return False
        way = f"{first('pane.next')} leads there" if self.beside else f"{first('sizing')} closes sizing"
        self.context.say(f"{character} is a key of the panes: {way}")
        return True

    def _ends_number(self, character: str | None) -> bool:
        """Whether a character is a command behind the whole number that is being typed."""
        edit = self.state.edit
        if edit is None or character is None or character in _OF_NUMBERS:
            return False
        return edit.ends_before(character) and is_command(self.view.keymap, self.command, character)

    def _refuse_while_typing(self, key: str, name: str) -> bool:
        """While a value is typed no key is a command but those that the key line names; returns whether it was one."""
        edit = self.state.edit
        if edit is None or not name:
            return False
        edit.key_note = f"{key} waits until the number is taken"
        self.changed()
        return True

    def _no_command(self, character: str | None) -> str:
        """The notice on a letter where a number is expected."""
        field = self.state.place.field
        example = field.kind.example if field.kind is not None else ""
        return f"{field.name}: {character} is no number; type one {example}; {self.view.keymap.first('back')}: the rows"

    def _take_digit(self, character: str | None) -> None:
        """Open the list of the choice under the cursor, if one of the choices has this digit; else say so."""
        first = self.view.keymap.first
        field = self.state.place.field
        if character is not None and self._dialogs.choose_by_digit(character):
            return
        self._misplaced = True
        keys = f"choose with {first('left')} {first('right')} or {first('open')}"
        self.context.say(f"{field.name}: {keys}; none of the choices has this digit")

    def run(self, name: str) -> None:
        """Run one of the panel's commands, by the last part of its id; say why where it could do nothing."""
        state = self.state
        first = self.view.keymap.first
        no_workload = ""
        if state.stop.section != WORKLOAD:
            no_workload = (
                f"{first('sizing.double')} doubles the model under the cursor; all: {first('sizing.double.all')}"
            )
        commands: dict[str, _Command] = {
            "more": _Command(partial(state.step, 1)),
            "less": _Command(partial(state.step, -1)),
            "double": _Command(partial(double, state), no_workload),
            "double.all": _Command(partial(double, state, every=True)),
            "tp": _Command(partial(next_layout, state), "no other layout is known to hold this model on these servers"),
            "precision": _Command(partial(next_weights, state)),
            "goal": _Command(partial(next_goal, state, "tpot_p95_ms")),
            "goal.ttft": _Command(partial(next_goal, state, "ttft_p95_ms")),
            "goal.estimate": _Command(partial(toggle_estimate, state)),
            "remove": _Command(
                state.remove,
                f"{state.place.field.name}: nothing was typed here, so there is nothing to remove",
            ),
            "undo": _Command(partial(state.undo_or_redo, -1), "nothing to undo"),
            "redo": _Command(partial(state.undo_or_redo, 1), "nothing to redo"),
            "peak": _Command(self._dialogs.plan_for),
            "reset": _Command(self._reset, "no engine runs here: nothing to go back to"),
            "renew": _Command(self._renew, "nothing was seen yet"),
            "view": _Command(self._next_picture),
            "add": _Command(self._dialogs.add_model),
            "add.server": _Command(self._dialogs.add_server),
            "gpu": _Command(self._dialogs.choose_gpu),
            "save": _Command(self._dialogs.save),
            "load": _Command(self._dialogs.load),
        }
        command = commands[name]
        self._run_and_show(command.run, command.otherwise)

    def _run_and_show(self, command: Callable[[], object], otherwise: str = "") -> None:
        """Run a command and show what it did; `otherwise` is said where it did nothing."""
        if command() is False and otherwise:
            self.context.say(otherwise)
        self.changed()

    def changed(self) -> None:
        """Show the changed state, the text of the workload from its begin."""
        frozen_s = self.state.frozen.wall_s
        if frozen_s is not None:
            self._ages = ages_of_frozen(self.state.present, frozen_s)
        self._scrolled_lines = 0
        self.update()
        self.post_message(KeysChanged())
        self._simulate_pending()

    def move(self, lines: int) -> None:
        """Move the cursor by some rows, or fields of the opened one."""
        self._run_and_show(partial(self.state.move, lines))

    def move_pages(self, pages: int) -> None:
        """Scroll the text about the workload by pages; where all of it is in view, move the cursor."""
        if not self._page.most_scrolled:
            super().move_pages(pages)
            return
        self._scrolled_lines = max(
            0, min(self._page.most_scrolled, self._scrolled_lines + pages * self._page.page_lines)
        )
        self.update()

    def step_sideways(self, step: int) -> bool:
        """Move the cursor to the value beside, or take the choice beside."""
        self._run_and_show(partial(self.state.move_sideways, step))
        return True

    def change(self, step: int) -> bool:
        """Step the value under the cursor."""
        self._run_and_show(partial(self.state.step, step))
        return True

    def open(self) -> None:
        """Take what is typed; else show all fields of the row; on one of these, type or choose its value."""
        state = self.state
        no_server = state.stop.section == SERVER and state.stop.number >= len(state.present.server)
        if state.edit is not None:
            self._run_and_show(self._accept)
        elif no_server or (state.opened and state.place.field.key == "gpu"):
            self._run_and_show(self._dialogs.choose_gpu)
        elif not state.opened:
            self._run_and_show(state.open)
        elif state.place.field.kind is not None:
            self._run_and_show(state.begin)
        else:
            self._run_and_show(self._dialogs.choose_value)

    def _accept(self) -> bool:
        """Take what is typed; the cursor comes back to the row that it left for a goal."""
        if not self.state.accept_typing():
            return False
        self.state.leave_goal()
        return True

    def back(self) -> bool:
        """Drop what is typed and leave a goal; else close the fields of a row; else the picture that was asked for.
        Returns whether there was any of these."""
        has_cancelled = self.state.cancel()
        has_left_goal = self.state.leave_goal()
        has_gone_back = has_cancelled or has_left_goal or self.state.close()
        if not has_gone_back and self._picture_first:
            self._picture_first = False
            has_gone_back = True
        if has_gone_back:
            self.changed()
        return has_gone_back

    def write(self) -> bool:
        """Save the scenario, with the key that writes a bundle elsewhere."""
        self._dialogs.save()
        return True

    def _next_picture(self) -> None:
        """Ask for a picture where there is none, else for the next one; after the last, text has the room again."""
        if self._page.has_picture or self._picture_first:
            self._picture = PICTURES[(PICTURES.index(self._picture) + 1) % len(PICTURES)]
            self._picture_first = self._picture != PICTURES[0]
        else:
            self._picture_first = True

    def _reset(self) -> bool:
        """Begin anew with what runs here; returns False where no engine runs."""
        scenario = self._as_it_runs()
        if self.snapshot is None or not scenario.workload:
            return self.snapshot is None
        self.state.renew(self.newest_figures())
        self.state.load(Version.of_what_runs(scenario))
        self._drop_offer()
        return True

    def _renew(self) -> bool:
        """Work on the figures that are offered, without an offer on those of now, and say so; returns False where
        nothing was seen yet."""
        if self.snapshot is None:
            return False
        figures = self._offer.figures if self._offer is not None else self.newest_figures()
        self.state.renew(figures)
        self._drop_offer()
        self.context.say("taken: what the engines showed up to now")
        return True

    def take_paste(self, text: str) -> None:
        """Take a pasted number as a typed one."""
        if text:
            first_line = text.splitlines()[0]
            self.state.paste(first_line[:_MOST_PASTED].strip())
            self.changed()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the value that is clicked on; a second click begins to type it, or opens its list."""
        lines = self._page.lines
        state = self.state
        if not 0 < event.y <= len(lines):
            return
        line = lines[event.y - 1]  # line 0 is the rule
        if line.stop < 0 or not state.accept_typing():
            return
        before = state.row, state.cell
        if state.opened:
            state.cell = line.stop
        else:
            state.go_to(line.stop)
            state.cell = line.value_at(event.x - self._edge_cells)
        self.changed()
        if event.chain == _DOUBLE_CLICK and before == (state.row, state.cell):
            self._take_up_value()

    @property
    def _edge_cells(self) -> int:
        """Cells of the rule at its left."""
        return 1 if self.beside else 0

    def _take_up_value(self) -> None:
        """Begin to type the number under the cursor, or open the list of the choice."""
        if self.state.place.field.key == "gpu":
            self._run_and_show(self._dialogs.choose_gpu)
        elif self.state.place.field.kind is None:
            self.open()
        elif self.state.begin():
            self.changed()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """On the blocks of servers the target goes to where the mouse is, and follows it until the button is up."""
        if event.button != 1 or event.y - 1 != self._page.blocks_line or self._block_scale is None:
            return
        if not self.state.accept_typing():
            return
        event.stop()
        self._is_dragging = True
        self.capture_mouse()
        self._drag_to(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """While the button is down the target follows the mouse."""
        if self._is_dragging:
            event.stop()
            self._drag_to(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """The target stays where the mouse left it."""
        if self._is_dragging:
            event.stop()
            self.release_mouse()
            self._end_drag()

    def on_mouse_release(self) -> None:
        """Another thing took the mouse."""
        if self._is_dragging:
            self._end_drag()

    def _end_drag(self) -> None:
        """Let the blocks have the scale of the answer again."""
        self._is_dragging = False
        self.state.undo.seal()
        self.changed()

    def _drag_to(self, x: int) -> None:
        """Set the chosen workload's target to what lights up the blocks up to a cell of the panel."""
        if self._block_scale is None:
            return
        target = self._block_scale.target_at(x - self._edge_cells - len(BLOCKS_LABEL))
        place = FieldPlace(WORKLOAD, self.state.workload_number, field_of(WORKLOAD, "target"))
        if target is None:
            self.context.say("what a GPU carries is not known: type a target")
        elif target != typed_value(self.state.present, place):
            self.state.put_value(place, target)
            self.changed()
