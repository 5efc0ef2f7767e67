"""What the keys do on the screen of one machine alone: its five panes, detail pages, the charts' time span."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpumon.config.validate import changed
from gpumon.tui.control import Incident
from gpumon.tui.layout import PANES
from gpumon.tui.screens.common import CommonActions, Picture
from gpumon.tui.screens.travel import TravelActions
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.triage_pane import TriagePane

if TYPE_CHECKING:
    from gpumon.readings.snapshot import Snapshot
    from gpumon.tui.control import Control
    from gpumon.tui.widgets.history_pane import HistoryPane


class Actions(TravelActions, CommonActions):
    """Commands of the monitor's screen."""

    if TYPE_CHECKING:
        control: Control
        shown: Snapshot | None
        zoomed: str
        history: HistoryPane

    def action_pane(self, number: int, step: int = 0) -> None:
        """Go to a pane by its number, or to the next one; zoomed where another was, or where it has no place."""
        if self.tiny:
            return
        if step and self.page is None and self.says_panel_covers():
            return
        if self.page is not None:
            self.below.clear()
            self.close_page()
        if not self.panel_columns:
            self._leave_panel()
        name = PANES[number - 1]
        if step:
            reached = [name for name in PANES if self.zoomed or self.panes[name].display]
            reached += ["sizing"] if self.panel_columns else []
            at = next((at for at, name in enumerate(reached) if self._named(name) is self.focused), -(step > 0))
            name = reached[(at + step) % len(reached)]
        if name == "sizing":
            self.set_focus(self.panel)
            return
        self._leave_panel()
        if self.zoomed or not self.panes[name].display:
            self._zoom(name)
        self.set_focus(self.panes[name])

    def go_to_pane(self, name: str) -> None:
        """Give the keys to a pane, out of what covers it."""
        self.action_pane(PANES.index(name) + 1)

    def _named(self, name: str) -> Pane | None:
        return self.panel if name == "sizing" else self.panes[name]

    def action_open(self) -> None:
        """Enter: the detail of the row."""
        thing = self.current.open() if self.current is not None else None
        if thing is not None:
            from gpumon.tui.pages.detail import DetailPage

            page = self.page_named("detail")
            assert isinstance(page, DetailPage)
            page.look_at(thing, self.keys_in)
            self.put_over(page)
        elif isinstance(self.current, TriagePane) and self.current.selected is not None:
            self.say("this line has no page of its own: it is no verdict, and about no engine or GPU here")
        self.show_keys()

    def leave_last(self) -> None:
        """All panes again, where one has the screen."""
        self._zoom("")

    def action_zoom(self) -> None:
        """The focused pane alone, or all again."""
        if not self.tiny and not self.covered:
            focused = next((name for name, pane in self.panes.items() if pane is self.focused), PANES[0])
            self._zoom("" if self.zoomed else focused)

    def action_span(self, step: int) -> None:
        """Longer or shorter charts."""
        if self.tiny:
            return
        self.history.step_span(step)
        self.view.config = changed(self.view.config, "screen", "span_s", self.history.span_s)
        self.panes["gpus"].update()

    def incident(self, screen: str, drawn: Picture) -> Incident | None:
        """The snapshot with what happened before it, and the past."""
        if self.shown is None:
            return None
        events = {
            (event.wall_s, event.kind, event.key, event.scope, event.code): event
            for history in self.histories
            for event in history.events(-math.inf, math.inf)
        }
        ordered = tuple(sorted(events.values(), key=lambda event: event.wall_s))
        return Incident(self.shown, screen, drawn, ordered, self.control.timeline)

    def close_page(self) -> None:
        """What it covers again: the page below it, else all panes."""
        if self.page is not None and self.page is self.pages.get("detail"):
            self._point_at_what_was_seen()
        super().close_page()

    def _point_at_what_was_seen(self) -> None:
        """Put the list's cursor on the thing that the detail page went on to, if the list shows it."""
        from gpumon.tui.pages.detail import DetailPage

        assert isinstance(self.page, DetailPage)
        kind, key = self.page.thing
        pane = self._list_of(kind)
        if pane is not None and key in self.keys_in(kind):
            pane.go_to(key)

    def keys_in(self, kind: str) -> Sequence[str]:
        """The keys of the things of one kind (gpu, engine, process, verdict), filtered and sorted as their pane is."""
        pane = self._list_of(kind)
        return () if pane is None else pane.pages()

    def _list_of(self, kind: str) -> ListPane[Any] | None:
        """The pane that lists things of a kind; replicas stand in the engines'."""
        lists = (pane for pane in self.panes.values() if isinstance(pane, ListPane))
        return next((pane for pane in lists if kind == pane.THING), None)

    def _zoom(self, name: str) -> None:
        if name != self.zoomed:
            self.zoomed = name
            self.lay_out()
            self.show_keys()

    def made(self, name: str) -> type[Pane]:
        """The class of a page, imported when it is needed first."""
        if name == "help":
            from gpumon.tui.pages.help import HelpPage

            return HelpPage
        if name == "detail":
            from gpumon.tui.pages.detail import DetailPage

            return DetailPage
        return super().made(name)
