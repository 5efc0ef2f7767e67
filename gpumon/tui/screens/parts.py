"""The state of the parts of a screen: the pages over its panes, the sizing panel beside or over them, and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from gpumon.readings.history import History
from gpumon.tui.layout import panel_width
from gpumon.tui.screens.context import S
from gpumon.tui.screens.past import AskedMoment, Past
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.sizing.panel import SizingPanel


class Pages:
    """Pages that cover the panes: help, settings, the detail of a thing. `paging` opens and closes them."""

    def __init__(self) -> None:
        self.shown: Pane | None = None
        """The page that covers the panes; None: these are in sight."""
        self.by_name: dict[str, Pane] = {}
        """Pages that were needed so far, by name."""
        self.covered: list[Pane] = []
        """Pages under the one that is shown, the lowest first."""

    @property
    def name(self) -> str:
        """Name of the page that is shown; empty without one."""
        return next((name for name, page in self.by_name.items() if page is self.shown), "")


class SizingDock:
    """The place of the sizing panel on the screen, and who has the keys beside it. `docking` opens and closes it."""

    def __init__(self) -> None:
        self.panel: SizingPanel | None = None
        """The panel, which is made when it is opened first."""
        self.open = False
        """Whether the panel is in sight, or comes back once what covers it is closed."""
        self.has_keys = False
        """Whether the panel has the keys, or had them before a page or a question took them."""
        self.changes_named = 0
        """Number of the unsaved changes that were named when the user wanted to quit last."""

    @property
    def columns(self) -> int:
        """Columns of the panel where it stands beside the panes; 0 where it is closed or covers them."""
        if self.panel is None or not self.open:
            return 0
        return panel_width(self.panel.app.size.width)

    @property
    def covers(self) -> bool:
        """Whether the panel stands over the panes."""
        return self.open and not self.columns

    @property
    def focused(self) -> bool:
        """Whether the panel has the keys now."""
        return self.panel is not None and self.panel.is_attached and self.panel.screen.focused is self.panel

    def give(self, lines: int, *, under_page: bool) -> None:
        """Put the open panel beside the panes in so many lines, or over them where there is no room for both.
        `under_page`: a page has the place of the panes."""
        panel = self.panel
        if panel is None:
            return
        screen_width = panel.app.size.width
        columns = self.columns
        panel.beside = columns > 0
        if columns:
            panel.give(lines, columns)
            panel.styles.layer = "beside"
            panel.styles.offset = (screen_width - columns, 1)  # below the title
        else:
            panel.give(lines if self.open and not under_page else 0, screen_width)
            panel.styles.layer = "base"
            panel.styles.offset = (0, 0)


class TimeTravel(Generic[S]):
    """The time of a screen: frozen or not, live or past. `travel` freezes it, and goes back and forth."""

    def __init__(self, past: Past[S]) -> None:
        self.past = past
        self.paused = False
        """Whether the display is frozen."""
        self.history: History | None = past.live
        """Series that the charts show."""
        self.asked_s: float | None = None
        """Unix time that is being asked for, where that takes a while."""
        self.seeking = False
        """Whether a moment is being looked for."""
        self.waiting: list[AskedMoment] = []
        """Moments that were asked for and are not looked for yet, the first one first."""
        self.returns = 0
        """Number of times that the user went on with what is live: what was looked for before such a return is not
        shown after it."""
        self.frozen_to_travel = False
        """Whether the display is frozen only because a moment was asked for: where none arrives, it goes on."""
        self.aim_s: float | None = None
        """Unix time that jumps by seconds have led to, from which the next one counts: the frames there are some
        milliseconds off. None: it counts from what is shown."""
