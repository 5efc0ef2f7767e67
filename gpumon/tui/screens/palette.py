"""Every command by its name, for the command palette: commands, orders of all lists, themes, moments and filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from rich.text import Text
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.worker import Worker, WorkType

from gpumon.config.keymap import COMMANDS, Command
from gpumon.readings.format import DASH, cells, left
from gpumon.readings.when import is_moment
from gpumon.tui.rows import Order, is_bound
from gpumon.tui.screens.context import S
from gpumon.tui.screens.focus import go_to_pane
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.questions import note_on_order
from gpumon.tui.screens.travel import go_to_time
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane

T = TypeVar("T")
"""Rows of a list."""
_THEME: Final = "theme: "
"""Begin of the name of a theme in the list."""
_NAME_CELLS: Final = 36
_KEYS_CELLS: Final = 10
"""Cells of the name of a command, and of its keys behind it."""
_BY_USE: Final = (
    *("filter", "sort", "open", "pause", "log", "requests", "copy", "acknowledge", "sizing", "zoom", "wall"),
    *("fleet.models", "fleet.free", "filter.all", "cell", "roofline", "time.back", "time.previous", "time.live"),
    *("settings", "help", "save", "mark", "compare", "hide", "hide.none", "redraw", "slower", "faster"),
    *("span.longer", "span.shorter", "wall.figure", "pane.faults", "pane.engines", "pane.gpus", "pane.processes"),
    *("pane.history", "quit"),
)
"""Commands that the palette begins with, those that people look for most first: whoever moves the cursor knows how."""
_BEGINS_SO: Final = 1.0
_CONTAINS: Final = 0.5
"""Scores by which Textual orders what fits: names that begin with what was typed come first."""


class Commands(Provider):
    """Everything that can be done on a screen, for the command palette: commands, orders of all lists, themes."""

    async def discover(self) -> Hits:
        """All of it, before anything is typed."""
        assert isinstance(self.screen, MonitorScreen)
        for entry in all_entries(self.screen):
            yield DiscoveryHit(_line(entry), entry.run, text=entry.name)

    async def search(self, query: str) -> Hits:
        """Commands that fit the words that were typed, in name, key or id; of a time that moment."""
        words = query.casefold().split()
        screen = self.screen
        assert isinstance(screen, MonitorScreen)
        if is_moment(query.strip()):
            name = f"go to {query.strip()}"
            yield Hit(_BEGINS_SO, Text(name), partial(go_to_time, screen, query.strip()), text=name)
        if not screen.body.fleet and any(map(is_bound, words)):
            name = f"filter all panes: {query.strip()}"
            yield Hit(_BEGINS_SO, Text(name), partial(screen.filter_everywhere, query.strip()), text=name)
        for entry in all_entries(screen):
            text = f"{entry.name} {entry.keys} {entry.note}".casefold()
            if all(word in text for word in words):
                score = _BEGINS_SO if entry.name.casefold().startswith(words[0]) else _CONTAINS
                yield Hit(score, _line(entry), entry.run, text=entry.name)


class SearchPalette(CommandPalette):
    """The command palette, whose search costs the list alone when it fails.

    Textual starts a search at each change of what is typed, also where a signal has just begun to take the palette's
    list away: the search finds no list then, and Textual would end the program with a traceback and its variables.
    """

    def run_worker(
        self,
        work: WorkType[T],
        name: str | None = "",
        group: str = "default",
        description: str = "",
        exit_on_error: bool = True,  # noqa: ARG002 - as above
        start: bool = True,
        exclusive: bool = False,
        thread: bool = False,
    ) -> Worker[T]:
        """Start a search, which does not end the program when it fails."""
        return super().run_worker(
            work, name, group, description, exit_on_error=False, start=start, exclusive=exclusive, thread=thread
        )


class Entry(NamedTuple):
    """One line of the palette."""

    name: str
    keys: str
    """Keys of a command; empty of anything else."""
    note: str
    """Id of a command, `now` or the meaning of an order."""
    run: Callable[[], object]


def _line(entry: Entry) -> Text:
    """The line of an entry."""
    keys = left(entry.keys, _KEYS_CELLS) if entry.keys else ""
    text = f"{left(entry.name, max(_NAME_CELLS, cells(entry.name)))}  {keys}{entry.note}"
    return Text(text.rstrip(), no_wrap=True, overflow="ellipsis")


def all_entries(screen: MonitorScreen[S]) -> Iterator[Entry]:
    """Every command, order and theme."""
    yield from _command_entries(screen)
    yield from _order_entries(screen)
    if screen.files is not None:
        theme_now = screen.view.config.general.theme
        for theme in screen.screen_settings.themes:
            note = "now" if theme == theme_now else ""
            yield Entry(
                f"{_THEME}{theme}", "", note, partial(screen.screen_settings.switch_theme, theme, as_setting=True)
            )


def _command_entries(screen: MonitorScreen[S]) -> Iterator[Entry]:
    """The commands that do something current, those that people look for most first."""
    keymap = screen.view.keymap
    places = {id_: place for place, id_ in enumerate(_BY_USE)}
    for command in sorted(COMMANDS, key=lambda command: places.get(command.id, len(places))):
        is_idle = _DOES_NOTHING.get(command.id)
        if not is_command_of(screen, command) or (is_idle is not None and is_idle(screen, screen.current)):
            continue
        does = command.fleet if screen.body.fleet and command.fleet else command.does
        yield Entry(does, keymap.shown(command.id) or DASH, command.id, partial(screen.action_do, command.id))


def _order_entries(screen: MonitorScreen[S]) -> Iterator[Entry]:
    """The orders of every list, those of the pane with the keys first."""
    lists = [(name, pane) for name, pane in screen.panes.items() if isinstance(pane, ListPane)]
    lists.sort(key=lambda named_pane: named_pane[1] is not screen.current)
    for name, pane in lists:
        for order in pane.listing.orders:
            title = f"sort {pane.title()} by {order.name}"
            yield Entry(title, "", note_on_order(pane, order), partial(_sort_pane, screen, name, pane, order))


def _sort_pane(screen: MonitorScreen[S], name: str, pane: ListPane[T], order: Order[T]) -> None:
    """Go to a list, and sort it."""
    go_to_pane(screen, name)
    pane.sort(order)


def is_command_of(screen: MonitorScreen[S], command: Command) -> bool:
    """Whether a screen has a command, wherever on it the keys are."""
    if command.scope == "sizing":
        return screen.dock.open
    if command.scope in ("detail", "log", "requests"):
        return screen.pages.name == command.scope
    is_of_this_kind = command.fleet is not None if screen.body.fleet else not command.scope
    return is_of_this_kind and command.id in screen.commands


def _steps_a_value(current: Pane | None) -> bool:
    """Whether - and + change the value under the cursor of this pane, and not the interval."""
    return current is not None and type(current).change is not Pane.change


def _goes_nowhere(screen: MonitorScreen[S], current: Pane | None) -> bool:
    """Whether ← and → do nothing in this pane: nothing is beside what it shows, and no time can be gone to."""
    if screen.travel.paused and screen.keys_move_in_time:
        return False
    return current is None or (type(current).step_sideways is Pane.step_sideways and not _steps_a_value(current))


def _is_only_pane(screen: MonitorScreen[S], current: Pane | None) -> bool:  # noqa: ARG001 - one of a table of functions
    """Whether there is no pane to go on to."""
    return len(screen.panes) == 1 and not screen.dock.columns


class IsIdle(Protocol):
    """A test whether a command does nothing with the pane that has the keys."""

    def __call__(self, screen: MonitorScreen[S], current: Pane | None, /) -> bool:
        """Whether it does nothing."""


_DOES_NOTHING: Final[Mapping[str, IsIdle]] = {
    "palette": lambda *_: True,
    "left": _goes_nowhere,
    "right": _goes_nowhere,
    "pane.next": _is_only_pane,
    "pane.previous": _is_only_pane,
    "faster": lambda _, current: _steps_a_value(current),
    "slower": lambda _, current: _steps_a_value(current),
    "pause": lambda screen, _: screen.in_panes is None,
    "filter": lambda screen, current: not isinstance(current, ListPane) and screen.pages.shown is None,
    "sort": lambda _, current: not (isinstance(current, ListPane) and current.listing.orders),
    "zoom": lambda screen, _: screen.pages.shown is not None or screen.body.fleet,
    "fleet.models": lambda screen, _: screen.pages.shown is not None,
    "fleet.free": lambda screen, _: screen.pages.shown is not None,
    "fleet.join": lambda screen, _: screen.pages.shown is not None,
    "save": lambda screen, current: (
        screen.in_panes is None
        or screen.files is None
        or (current is not None and type(current).write is not Pane.write)
    ),
}
"""Commands that do nothing in some places, and when."""
