"""Questions at the foot of the screen: a text, a choice from a list, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpumon.readings.format import cells, cut, left
from gpumon.triage.copyable import Copyable
from gpumon.tui.rows import Order
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane

T = TypeVar("T")
"""Rows of a list."""
MOST_CHOICES: Final = 12
"""Lines of choices in view."""
_MOST_TYPED: Final = 200
"""Characters of a text; a paste may be of any length."""
_PAGE: Final = 10
"""Choices that Page Up and Page Down move by."""
_WHOLE_LIST: Final = 100_000
"""Choices that `g` and `G` move by: more than any list has."""
_PADDING: Final = 4
"""Cells beside the title and the hint that are blank: one at each side of both."""
_LEAST_FIELD: Final = 24
"""Cells of the field below which the hint gives way to it."""
_BESIDE_CHOICE: Final = 2
"""Cells that a list of choices may need for its scroll bar."""
_LEAST_NAME: Final = 28
"""Cells that the names of choices may have on a narrow screen; on others they may have half of it."""


class Choice(NamedTuple):
    """One line to choose."""

    name: str
    note: str
    """Text behind the name."""
    value: object
    """The thing that is chosen with it, for whoever asks."""


class Question(NamedTuple):
    """A question. All functions are called in the event loop and return at once."""

    title: str
    """Words before the field."""
    choices: Callable[[str], Sequence[Choice]] | None = None
    """The choices for the text typed so far; None: only a text is asked for."""
    on_choose: Callable[[Choice | None, str], None] = lambda _choice, _text: None
    """Enter: the choice under the cursor (None: there is none) and the text."""
    on_point: Callable[[Choice | None], None] = lambda _choice: None
    """After each move of the cursor; None: the list is another one, and nobody pointed yet."""
    on_change: Callable[[str], None] = lambda _text: None
    """After each change of the text."""
    on_drop: Callable[[], None] = lambda: None
    """Esc."""
    text: str = ""
    """Text of the field at first."""
    replaces_text: bool = False
    """Whether the first character typed takes the place of that text."""
    has_field: bool = True
    """Whether there is a field; without one, j k g G move, too."""
    first_choice: int = 0
    """Place of the choice that the cursor is on at first."""
    keeps_open: bool = False
    """Whether Enter leaves it open: for things that are switched on and off."""
    hint: str = ""
    """Words behind the field."""


class QuestionBar(Vertical):
    """A question over the foot of a screen that goes on; a screen of its own would cost all lines at each change."""

    DEFAULT_CSS = """
    QuestionBar { layer: above; dock: bottom; height: auto; margin-bottom: 1; background: $panel; }
    QuestionBar Horizontal { height: 1; }
    QuestionBar .title { width: auto; color: $primary; text-style: bold; }
    QuestionBar .hint { width: auto; color: $text-muted; }
    QuestionBar Input { width: 1fr; background: $panel; }
    QuestionBar Static { padding: 0 1; }
    QuestionBar OptionList { background: $panel; }
    QuestionBar OptionList > .option-list--option-highlighted {
        background: $surface; color: $primary; text-style: bold;
    }
    QuestionBar:ansi OptionList > .option-list--option-highlighted { text-style: reverse; }
    QuestionBar:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop"),
        Binding("space", "switch"),
        Binding("up,ctrl+p,shift+tab,k", "point(-1)"),
        Binding("down,ctrl+n,tab,j", "point(1)"),
        Binding("pageup", f"point(-{_PAGE})"),
        Binding("pagedown", f"point({_PAGE})"),
        Binding("g", f"point(-{_WHOLE_LIST})"),
        Binding("G", f"point({_WHOLE_LIST})"),
    ]

    def __init__(self, question: Question, on_close: Callable[[], None]) -> None:
        """`on_close`: gives the keys back to the screen below."""
        super().__init__()
        self._question = question
        self._on_close = on_close
        self._is_closed = False
        self.input = Input(question.text, compact=True, select_on_focus=False, max_length=_MOST_TYPED)
        self._hint = Static(Text(question.hint), classes="hint")
        self.list = OptionList(compact=True, markup=False)
        self.choices: Sequence[Choice] = ()
        """The choices that are listed."""
        self._listed_for = question.text
        """The text that the choices are for."""
        self.has_choices = question.choices is not None
        """Whether there is a list to choose from."""
        self._last_place: int | None = question.first_choice
        """Place of the choice that was pointed at last; None: at none."""

    def compose(self) -> ComposeResult:
        """The title with the field, and the list below."""
        with Horizontal():
            yield Static(Text(self._question.title), classes="title")
            if self._question.has_field:
                yield self.input
            yield self._hint
        if self.has_choices:
            yield self.list

    def on_mount(self) -> None:
        """Give the keys to the field, or the list."""
        self._fit_to_screen()
        self._list_choices()
        if self._question.replaces_text:
            self.input.action_select_all()
        self._point_at(self._question.first_choice)
        self.screen.set_focus(self.input if self._question.has_field else self.list)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - the signature of Textual's handler
        """Fit the question into the new size."""
        self._fit_to_screen()

    def _fit_to_screen(self) -> None:
        """Give the list no more than half of the screen; the hint gives way to what is typed."""
        width, height = self.app.size
        self.list.styles.max_height = min(MOST_CHOICES, height // 2)
        room = width - cells(self._question.title) - cells(self._question.hint) - _PADDING
        least = _LEAST_FIELD if self._question.has_field else 0
        self._hint.display = room >= least

    def _list_choices(self) -> None:
        """List the choices for the text of the field."""
        if self._question.choices is None:
            return
        self.choices = self._question.choices(self.input.value)
        width = self.app.size.width
        longest = max((cells(choice.name) for choice in self.choices), default=0)
        name_width = min(longest, max(_LEAST_NAME, width // 2))
        lines = [f"  {left(choice.name, name_width)}  {choice.note}".rstrip() for choice in self.choices]
        # A line that is wider than the list would be wrapped.
        options = [Option(Text(cut(line, width - _BESIDE_CHOICE), no_wrap=True)) for line in lines]
        self.list.set_options(options or [Option("  nothing matches; Esc: close", disabled=True)])

    def renew_choices(self) -> None:
        """Ask for the choices again: there are others by now."""
        place = self.list.highlighted
        self._list_choices()
        self._point_at(place or 0)

    def _point_at(self, place: int) -> None:
        """Point at a choice, at the last one where there are fewer, at none where there is none."""
        self._last_place = None
        if self.choices:
            self._last_place = min(place, len(self.choices) - 1)
        self.list.highlighted = self._last_place

    @property
    def pointed_choice(self) -> Choice | None:
        """The choice under the cursor."""
        place = self.list.highlighted
        if place is not None and place < len(self.choices):
            return self.choices[place]
        return None

    def on_input_changed(self, event: Input.Changed) -> None:
        """List the choices for the text; characters that cannot be shown are taken out of it."""
        event.stop()
        if self._is_closed:
            return  # Enter came first, with all of the text
        text = "".join(filter(str.isprintable, self.input.value))
        if text != self.input.value:
            self.input.value = text  # which comes here again
        elif text != self._listed_for:
            self._change_text(text)

    def _change_text(self, text: str) -> None:
        """List the choices for a text, and tell who asked. The cursor is on the first one, unless they are the same as
        before and the user chose another one: who chose the hours and then types the reason wants those hours."""
        listed = self.choices
        place = self.list.highlighted
        self._listed_for = text
        self._list_choices()
        keeps_choice = self.choices == listed and place != self._question.first_choice
        self._point_at((place or 0) if keeps_choice else 0)
        self._question.on_change(text)
        if not keeps_choice:
            self._question.on_point(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice after Enter in the list, or a click."""
        event.stop()
        self.action_take()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Tell who asked that the user moved the cursor: our own moves set `_last_place` before."""
        event.stop()
        choice = self.pointed_choice
        if not self._is_closed and event.option_index != self._last_place and choice is not None:
            self._last_place = event.option_index
            self._question.on_point(choice)

    def action_switch(self) -> None:
        """Space: do what Enter does, where the question stays open."""
        if self._question.keeps_open:
            self.action_take()

    def action_point(self, step: int) -> None:
        """Move the cursor by so many choices, to the ends of the list at most."""
        if self.choices:
            place = (self.list.highlighted or 0) + step
            self.list.highlighted = max(0, min(len(self.choices) - 1, place))

    def action_take(self) -> None:
        """Enter: take the choice and the text."""
        # Textual tells of a change of the text later: Enter may come before that.
        if self.input.value != self._listed_for:
            self._change_text(self.input.value)
        choice = self.pointed_choice
        text = self.input.value
        if self._question.keeps_open:
            self._question.on_choose(choice, text)
            self.renew_choices()
            return
        self._close()
        self._question.on_choose(choice, text)

    def action_drop(self) -> None:
        """Esc: leave all as it was."""
        self._close()
        self._question.on_drop()

    def _close(self) -> None:
        """Take the question off the screen, and give the keys back."""
        self._is_closed = True
        # Textual's field does so itself only once a text is selected: until then the screen keeps each of them.
        self.screen.text_selection_started_signal.unsubscribe(self.input)
        self.remove()
        self._on_close()

    async def receive_key(self, event: events.Key) -> None:
        """Do what a key means here."""
        if self._question.has_field and event.is_printable and event.character is not None:
            self.receive_text(event.character)
            return
        if event.key == "enter":
            self.action_take()
            return
        active = self._binding_for(event.key)
        if active is not None:
            await self.app.run_action(active.binding.action, active.node)

    def receive_text(self, text: str) -> None:
        """Put a text into the field, if there is one."""
        if self._question.has_field:
            self.input.replace(text, *sorted(self.input.selection))

    def _binding_for(self, key: str) -> ActiveBinding | None:
        """The binding of a key of this question; None for keys of the screen."""
        for binding in Binding.make_bindings(self.BINDINGS):
            if binding.key == key:  # before the field's: that would scroll what has one line
                return ActiveBinding(self, binding, enabled=True)
        active = self.screen.active_bindings.get(key)
        if active is None:
            return None
        if active.node in (self.input, self.list):
            return active
        return None


def filter_question(pane: ListPane[T], lay_out: Callable[[], None]) -> Question:
    """Ask for the filter of a pane; its rows follow while it is typed, and `lay_out` gives other panes the lines that
    they leave."""
    filter_before = pane.filter.text

    def set_filter(text: str) -> None:
        pane.set_filter(text)
        lay_out()

    return Question(
        f"filter {pane.title()}:",
        on_change=set_filter,
        on_drop=lambda: set_filter(filter_before),
        text=filter_before,
        hint=f"{pane.listing.filters} · Enter: keep · Esc: as before",
    )


def filter_all_question(filter_before: str, set_filter: Callable[[str], None]) -> Question:
    """Ask for the filter of all panes, which was `filter_before`; `set_filter` takes it while it is typed."""
    return Question(
        "filter all panes:",
        on_change=set_filter,
        on_drop=lambda: set_filter(filter_before),
        text=filter_before,
        hint="an engine's GPUs stay with it · Enter: keep · Esc: as before",
    )


def search_question(page: Pane) -> Question:
    """Ask for words to find on a page: all of their places are marked while they are typed.

    Enter ends the typing; with the words of before it goes to the next place.
    """
    text_before = page.search.text
    key = page.view.keymap.first

    def end_typing(_: Choice | None, text: str) -> None:
        if text and text == text_before:
            page.step_match(1)

    return Question(
        "find:",
        on_change=page.find,
        on_choose=end_typing,
        on_drop=lambda: page.find(""),
        text=text_before,
        replaces_text=True,
        hint=f"Enter: done, then {key('time.next')} {key('time.previous')}: next, previous · Esc: unmark",
    )


def copy_question(copyables: Sequence[Copyable], copy: Callable[[Copyable], None]) -> Question:
    """Ask which command or setting of a verdict's actions to copy."""

    def copy_choice(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        if choice is not None and isinstance(choice.value, Copyable):
            copy(choice.value)

    choices = [Choice(copyable.text, copyable.does, copyable) for copyable in copyables]
    return Question("copy", lambda _: choices, copy_choice, has_field=False, hint="Enter: copy · Esc: copy nothing")


def order_question(pane: ListPane[T]) -> Question:
    """Ask for the order of a pane's rows."""
    orders = pane.listing.orders

    def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
        now = "now" if pane.filter.order is None else ""
        by_order = [Choice(order.name, note_on_order(pane, order), order) for order in orders]
        return [Choice("default order", now, None), *by_order]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
        if choice is not None:
            # The value is an object of any type: by identity it is one of our orders, or the default order's None.
            pane.sort(next((order for order in orders if order is choice.value), None))

    place = 0
    for number, order in enumerate(orders, start=1):  # at 0 stands the default order
        if order is pane.filter.order:
            place = number

    return Question(
        f"sort {pane.title()} by",
        choices,
        choose,
        first_choice=place,
        has_field=False,
        hint="Enter: choose; again to reverse",
    )


def note_on_order(pane: ListPane[T], order: Order[T]) -> str:
    """The note behind an order in lists: its meaning; for the order that the pane has, what Enter does."""
    if order is pane.filter.order:
        return "now: Enter reverses"
    return order.means
