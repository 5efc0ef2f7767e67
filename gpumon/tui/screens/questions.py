"""Questions at the foot of the screen: a text, a choice from a list, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpumon.readings.format import cells, left
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
_FAR: Final = 100_000
_ALWAYS: Final = ("quit.always", "suspend.always")


class Choice(NamedTuple):
    """One line to choose."""

    name: str
    note: str
    value: object


class Question(NamedTuple):
    """A question. All functions are called in the event loop and return at once."""

    title: str
    choices: Callable[[str], Sequence[Choice]] | None = None
    """The choices for the text typed so far; None: only a text is asked for."""
    chosen: Callable[[Choice | None, str], None] = lambda _choice, _text: None
    """Enter: the choice under the cursor (None: there is none) and the text."""
    pointed: Callable[[Choice | None], None] = lambda _choice: None
    """After each move of the cursor; None: the list is another one, and nobody pointed yet."""
    changed: Callable[[str], None] = lambda _text: None
    """After each change of the text."""
    dropped: Callable[[], None] = lambda: None
    """Esc."""
    text: str = ""
    """Text of the field at first."""
    fresh: bool = False
    """The first character typed takes the place of that text."""
    types: bool = True
    """Whether there is a field; without one, j k g G move, too."""
    at: int = 0
    """The choice that the cursor is on at first."""
    stays: bool = False
    """Enter leaves it open: for things that are switched on and off."""
    hint: str = ""


class AskingScreen(Protocol):
    """The screen as an open question knows it."""

    asking: Asking | None

    def give_keys(self) -> None:
        """Give the keys to what lies on top."""

    def show_keys(self) -> None:
        """Name the keys that do something here."""


class TypedField(Input):
    """Runs all keys in the order in which they were typed: of itself it inserts characters before it runs bindings."""

    async def on_key(self, event: events.Key) -> None:
        """For the question."""
        if isinstance(self.parent, Horizontal) and isinstance(asking := self.parent.parent, Asking):
            await asking.take(event)


class Asking(Vertical):
    """A question over the foot of a screen that goes on; a screen of its own would cost all lines at each change."""

    DEFAULT_CSS = """
    Asking { layer: above; dock: bottom; height: auto; margin-bottom: 1; background: $panel; }
    Asking Horizontal { height: 1; }
    Asking .title { width: auto; color: $primary; text-style: bold; }
    Asking .hint { width: auto; color: $text-muted; }
    Asking Input { width: 1fr; background: $panel; }
    Asking Static { padding: 0 1; }
    Asking OptionList { background: $panel; }
    Asking OptionList > .option-list--option-highlighted { background: $surface; color: $primary; text-style: bold; }
    Asking:ansi OptionList > .option-list--option-highlighted { text-style: reverse; }
    Asking:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop"),
        Binding("space", "switch"),
        *(
            Binding(keys, f"point({by})")
            for keys, by in (
                *(("up,ctrl+p,shift+tab,k", -1), ("down,ctrl+n,tab,j", 1)),
                *(("pageup", -10), ("pagedown", 10), ("g", -_FAR), ("G", _FAR)),
            )
        ),
    ]

    def __init__(self, below: AskingScreen, question: Question) -> None:
        super().__init__()
        self._below = below
        self._asked = question
        self.input = TypedField(question.text, compact=True, select_on_focus=False, max_length=_MOST_TYPED)
        self.list = OptionList(compact=True, markup=False)
        self.choices: Sequence[Choice] = ()
        self._told = question.text
        """The text that the choices are for."""
        self.lists = question.choices is not None
        """Whether there is something to choose from."""
        self._at: int | None = question.at
        """The choice that was pointed at last."""

    def compose(self) -> ComposeResult:
        """The title with the field, and the list below."""
        with Horizontal():
            yield Static(Text(self._asked.title), classes="title")
            if self._asked.types:
                yield self.input
            yield Static(Text(self._asked.hint), classes="hint")
        if self.lists:
            yield self.list

    def on_mount(self) -> None:
        """Give the keys to the field, or the list."""
        self._fit()
        self._fill()
        if self._asked.fresh:
            self.input.action_select_all()
        self._point_at(self._asked.at)
        self.screen.set_focus(self.input if self._asked.types else self.list)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002 - the signature of Textual's handler
        """No more than half of the screen; the hint gives way to what is typed."""
        self._fit()

    def _fit(self) -> None:
        width, height = self.app.size
        self.list.styles.max_height = min(MOST_CHOICES, height // 2)
        room = width - cells(self._asked.title) - cells(self._asked.hint) - 4
        self.query_one(".hint").display = room >= (24 if self._asked.types else 0)

    def _fill(self) -> None:
        """List the choices for the text."""
        if self._asked.choices is None:
            return
        self.choices = self._asked.choices(self.input.value)
        name = min(max((cells(choice.name) for choice in self.choices), default=0), max(28, self.app.size.width // 2))
        self.list.set_options(
            [Option(Text(f"  {left(choice.name, name)}  {choice.note}", no_wrap=True)) for choice in self.choices]
            or [Option("  nothing matches; Esc: close", disabled=True)]
        )

    def renew(self) -> None:
        """Ask for the choices again: there are others by now."""
        place = self.list.highlighted
        self._fill()
        self._point_at(place or 0)

    def _point_at(self, place: int) -> None:
        """Point at a choice, at the last one where there are fewer, at none where there is none."""
        pointed = None
        if self.choices:
            pointed = min(place, len(self.choices) - 1)
        self._at = pointed
        self.list.highlighted = pointed

    @property
    def pointed(self) -> Choice | None:
        """The choice under the cursor."""
        place = self.list.highlighted
        if place is not None and place < len(self.choices):
            return self.choices[place]
        return None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Other choices fit; nobody pointed at one yet."""
        event.stop()
        if self._below.asking is not self:
            return  # Enter came first, with all of the text
        text = "".join(filter(str.isprintable, self.input.value))
        if text != self.input.value:
            self.input.value = text
        elif text != self._told:
            self._typed(text)

    def _typed(self, text: str) -> None:
        self._told = text
        self._fill()
        self._at = 0 if self.choices else None
        self.list.highlighted = self._at
        self._asked.changed(text)
        self._asked.pointed(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter in the list, or a click."""
        event.stop()
        self.action_take()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The cursor is on another one."""
        event.stop()
        if self._below.asking is self and event.option_index != self._at and self.pointed is not None:
            self._at = event.option_index
            self._asked.pointed(self.pointed)

    def action_switch(self) -> None:
        """Enter, where the question stays."""
        if self._asked.stays:
            self.action_take()

    def action_point(self, by: int) -> None:
        """Move the cursor."""
        if self.choices:
            self.list.highlighted = max(0, min(len(self.choices) - 1, (self.list.highlighted or 0) + by))

    def action_take(self) -> None:
        """Enter: take the choice and the text."""
        if self.input.value != self._told:
            self._typed(self.input.value)
        choice = self.pointed
        text = self.input.value
        if self._asked.stays:
            self._asked.chosen(choice, text)
            self.renew()
            return
        self._close()
        self._asked.chosen(choice, text)

    def action_drop(self) -> None:
        """Esc: leave all as it was."""
        self._close()
        self._asked.dropped()

    def _close(self) -> None:
        self._below.asking = None
        self.remove()
        self._below.give_keys()
        self._below.show_keys()

    async def on_key(self, event: events.Key) -> None:
        """Take the keys of a list without a field."""
        await self.take(event)

    async def take(self, event: events.Key) -> None:
        """A key, by whatever way it comes; after the end of the question it is for whatever has the keys then."""
        event.stop()
        event.prevent_default()
        if self._below.asking is not self:
            self.app.post_message(events.Key(event.key, event.character))
        elif self._asked.types and event.is_printable and event.character is not None:
            self.input.replace(event.character, *sorted(self.input.selection))
        elif event.key == "enter":
            self.action_take()
        elif (found := self.screen.active_bindings.get(event.key)) is not None and (
            found.node in (self, self.input, self.list) or found.binding.id in _ALWAYS
        ):
            await self.app.run_action(found.binding.action, found.node)


def filter_of(pane: ListPane[T]) -> Question:
    """The filter of a pane; rows follow while it is typed."""
    before = pane.wanted
    return Question(
        f"filter {pane.title()}:",
        changed=pane.filter,
        dropped=lambda: pane.filter(before),
        text=before,
        hint=f"{pane.listing.filters} · Enter: keep · Esc: as before",
    )


def filter_of_all(before: str, narrow: Callable[[str], None]) -> Question:
    """The filter of all panes, which was `before`; `narrow` takes it while it is typed."""
    return Question(
        "filter all panes:",
        changed=narrow,
        dropped=lambda: narrow(before),
        text=before,
        hint="an engine's GPUs stay with it · Enter: keep · Esc: as before",
    )


def search_of(page: Pane) -> Question:
    """Words to find on a page: all of their places are marked while they are typed. Enter ends the typing; with the
    words of before it goes to the next place."""
    before = page.search.sought
    keys = page.view.keymap.first

    def end_typing(_: Choice | None, text: str) -> None:
        if text and text == before:
            page.step_match(1)

    return Question(
        "find:",
        changed=page.find,
        chosen=end_typing,
        dropped=lambda: page.find(""),
        text=before,
        fresh=True,
        hint=f"Enter: done, then {keys('time.next')} {keys('time.previous')}: next, previous · Esc: unmark",
    )


def copy_of(offered: Sequence[Copyable], copy: Callable[[Copyable], None]) -> Question:
    """Which command or setting of a verdict's actions to copy."""

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.chosen
        if choice is not None and isinstance(choice.value, Copyable):
            copy(choice.value)

    listed = [Choice(copyable.text, copyable.does, copyable) for copyable in offered]
    return Question("copy", lambda _: listed, choose, types=False, hint="Enter: copy · Esc: copy nothing")


def order_of(pane: ListPane[T]) -> Question:
    """The order of a pane's rows."""
    orders = pane.listing.orders

    def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001 - the signature of Question.choices
        listed = [Choice(order.name, note_on_order(pane, order), order) for order in orders]
        return [Choice("default order", "now" if pane.order is None else "", None), *listed]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.chosen
        if choice is not None:
            pane.sort(next((order for order in orders if order is choice.value), None))

    return Question(
        f"sort {pane.title()} by",
        choices,
        choose,
        at=next((place for place, order in enumerate(orders, start=1) if order is pane.order), 0),
        types=False,
        hint="Enter: choose; again to reverse",
    )


def note_on_order(pane: ListPane[T], order: Order[T]) -> str:
    """The meaning of an order; of the one that a pane has, what Enter does."""
    if order is pane.order:
        return "now: Enter reverses"
    return order.means
