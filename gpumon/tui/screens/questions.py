"""What the drawer asks: a filter, an order, a command by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpumon.config.keymap import COMMANDS
from gpumon.readings.text import clean
from gpumon.tui.rows import Order
from gpumon.tui.widgets.drawer import Choice, Question
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.screens.common import CommonActions

_MOST_RECENT: Final = 5
_THEME: Final = "theme: "
_LAST: Final = frozenset(
    command.does
    for command in COMMANDS
    if command.id in ("up", "down", "page.up", "page.down", "top", "end", "open", "back", "quit")
)
"""What is behind everything else as long as nothing is typed: nobody looks for these by name."""


def filter_of(pane: ListPane[Any]) -> Question:
    """The filter of a pane; rows follow while it is typed."""
    before = pane.wanted
    return Question(
        f"filter {pane.title()}:",
        changed=pane.filter,
        dropped=lambda: pane.filter(before),
        text=before,
        hint=f"{pane.FILTERS} · Enter: keep · Esc: as before",
    )


def order_of(pane: ListPane[Any]) -> Question:
    """The order of a pane's rows."""
    orders = pane.orders()

    def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001
        listed = [Choice(order.name, _now(pane, order), order) for order in orders]
        return [Choice("as it comes", "now" if pane.order is None else "", None), *listed]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001
        if choice is not None:
            pane.sort(next((order for order in orders if order is choice.value), None))

    return Question(
        f"sort {pane.title()} by",
        choices,
        choose,
        at=next((at for at, order in enumerate(orders, start=1) if order is pane.order), 0),
        types=False,
        hint="Enter: choose; the same again turns it round",
    )


def _now(pane: ListPane[Any], order: Order[Any]) -> str:
    return "now: Enter turns it round" if order is pane.order else order.means


def palette(screen: CommonActions) -> Question:
    """Everything that can be done here, by name: commands, orders of all lists, themes."""
    here = screen.current
    before = screen.view.config.general.theme
    tried: list[str] = []

    def choices(text: str) -> Sequence[Choice]:
        found = [(at, choice) for choice in _everything(screen, here) if (at := _rank(choice, text)) is not None]
        recent = {name: at for at, name in enumerate(screen.recent)}
        found.sort(key=lambda pair: (pair[0], recent.get(pair[1].name, len(recent)), pair[1].name in _LAST))
        return [choice for _, choice in found]

    def wear(name: str) -> None:
        if name != (tried[-1] if tried else before):
            tried.append(name)
            screen.wear(name)

    def point(choice: Choice | None) -> None:
        wear(choice.name.removeprefix(_THEME) if choice is not None and choice.name.startswith(_THEME) else before)

    def choose(choice: Choice | None, text: str) -> None:
        if choice is None:
            screen.say(f"no such command: {clean(text, 40)}")
            return
        if not choice.name.startswith(_THEME):
            point(None)
        screen.recent = tuple(dict.fromkeys((choice.name, *screen.recent)))[:_MOST_RECENT]
        assert callable(choice.value)
        choice.value()

    return Question(
        "command:",
        choices,
        choose,
        pointed=point,
        dropped=lambda: point(None),
        hint="type a part of its name · Enter: do it · Esc: close",
    )


def _rank(choice: Choice, text: str) -> int | None:
    """How well the name or the id of a choice fits what was typed, 0 is best; None: not at all.

    All words are in it, from its beginning on or somewhere.
    """
    wanted, name = text.casefold().split(), f"{choice.name} {choice.id}".casefold()
    if not all(word in name for word in wanted):
        return None
    return 0 if not wanted or name.startswith(wanted[0]) else 1


def _everything(screen: CommonActions, here: Pane | None) -> Iterator[Choice]:
    """`here`: what had the keys before the drawer."""
    keymap = screen.view.keymap
    for command in screen.commands():
        idle = _DOES_NOTHING.get(command.id)
        if idle is not None and idle(screen, here):
            continue
        run = partial(_run, screen, command.call)
        yield Choice(command.does, f"{keymap.shown(command.id)}  {command.id}".strip(), run, command.id)
    lists = [(of, pane) for of, pane in screen.panes.items() if isinstance(pane, ListPane)]
    for of, pane in sorted(lists, key=lambda named: named[1] is not here):
        for order in pane.orders():
            name = f"sort {pane.title()} by {order.name}"
            yield Choice(name, _now(pane, order), partial(_sort, screen, of, pane, order))
    if screen.files is not None:
        now = screen.view.config.general.theme
        for name in screen.themes:
            yield Choice(f"{_THEME}{name}", "now" if name == now else "", partial(screen.use_theme, name))


def _sort(screen: CommonActions, of: str, pane: ListPane[Any], order: Order[Any]) -> None:
    screen.go_to_pane(of)
    pane.sort(order)


def _run(screen: CommonActions, call: str) -> None:
    screen.call_later(screen.run_action, call)


def _steps(here: Pane | None) -> bool:
    """Whether - and + are for the line under the cursor here."""
    return here is not None and type(here).change is not Pane.change


def _stays(screen: CommonActions, here: Pane | None) -> bool:
    """Whether there is nothing beside what is shown here, in time neither."""
    if screen.paused and screen.timely:
        return False
    return here is None or (type(here).side is Pane.side and not _steps(here))


def _alone(screen: CommonActions, here: Pane | None) -> bool:  # noqa: ARG001
    """Whether there is no pane to go on to."""
    return len(screen.panes) == 1 and not screen.panel_columns


_DOES_NOTHING: Final[dict[str, Callable[[CommonActions, Pane | None], bool]]] = {
    "palette": lambda *_: True,
    "left": _stays,
    "right": _stays,
    "pane.next": _alone,
    "pane.previous": _alone,
    "faster": lambda _, here: _steps(here),
    "slower": lambda _, here: _steps(here),
    "pause": lambda screen, _: screen.in_panes is None,
    "filter": lambda _, here: not isinstance(here, ListPane) or here.covered,
    "sort": lambda _, here: not (isinstance(here, ListPane) and here.orders()),
    "zoom": lambda screen, _: screen.page is not None,
    "fleet.models": lambda screen, _: screen.page is not None,
    "save": lambda screen, here: (
        screen.in_panes is None or screen.files is None or (here is not None and type(here).write is not Pane.write)
    ),
}
"""Commands that do nothing in some places, and when."""
