"""Triage and charts of all hosts, in the room that few hosts leave on a fleet's screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual import events

from gpumon.efficiency.points import SumsOfThings, chart_points
from gpumon.readings.format import cells, cut, left, period
from gpumon.readings.history import History
from gpumon.tui.fleet.headline import FleetStanding, HostProblem, problem_item
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.line import Row, cells_of
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.history_pane import HistoryPane
from gpumon.tui.widgets.pane import Pane

MOST_CHARTED: Final = 512
"""GPUs beyond which a fleet has no charts of all hosts: the table fills the screen then."""
_LABEL_CELLS: Final = 14
"""Cells of the name of a problem."""
_SCOPE_CELLS: Final = 28
"""Cells of its host and thing."""
_LEAST_ACTION: Final = 16
"""Cells below which an action is not begun."""


class TroublePane(Pane):
    """A line for each problem of the fleet, the most urgent first, with what to do."""

    heading: str = "triage"

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._problems: Sequence[HostProblem] = ()
        self.can_focus = False

    def show_standing(self, standing: FleetStanding) -> None:
        """Paint the problems of a moment."""
        self._problems = standing.problems
        self.update()

    @property
    def wanted_lines(self) -> int:
        """Number of lines that it could use, its rule included; 0 where nothing is wrong."""
        return 1 + len(self._problems) if self._problems else 0

    def body(self, width: int, height: int) -> Sequence[Row]:
        """As many problems as fit, and how many more there are."""
        shown = self._problems
        more = len(shown) - height
        if more > 0:
            shown = shown[: max(0, height - 1)]
        rows = [_problem_row(problem, width) for problem in shown]
        if more > 0:
            rows.append(((f"   +{len(self._problems) - len(shown)} more", "muted"),))
        return rows


def _problem_row(problem: HostProblem, width: int) -> Row:
    """The mark and name of a problem, its host and thing, what is wrong, and what to do."""
    item = problem_item(problem)
    glyph, tone = item.mark
    head: Row = (
        (f" {glyph.strip()} {left(cut(item.label, _LABEL_CELLS), _LABEL_CELLS)} ", tone),
        (f"{left(cut(item.scope, _SCOPE_CELLS), _SCOPE_CELLS)} ", "strong"),
    )
    room = max(0, width - cells_of(head) - 1)
    text = cut(item.text, room)
    action = ""
    if item.actions and cells(text) + _LEAST_ACTION <= room:
        action = cut(f" → {item.actions[0]}", room - cells(text))
    return (*head, (text, "text"), (action, "muted"))


class FleetCharts(HistoryPane):
    """The charts of all hosts together since the screen was opened."""

    command: str = ""
    heading: str = "all hosts"

    def __init__(self, palette: Palette, view: View) -> None:
        self.all_hosts = History()
        super().__init__(palette, view, self.all_hosts)
        self.can_focus = False
        self._totals = SumsOfThings()
        self._last_s = 0.0
        """Unix time of the newest moment that was taken in."""

    def take_moment(self, moment: FleetMoment) -> None:
        """Take in a moment that has just been collected."""
        whole = moment.whole
        if not moment.fleet.answered or whole.wall_s == self._last_s or len(whole.gpus) > MOST_CHARTED:
            return
        self._last_s = whole.wall_s
        decode_rates = [engine.rates.decode_tokens_per_s for engine in whole.engines]
        bandwidths = [gpu.bandwidth_bytes_per_s for gpu in whole.gpus]
        points = chart_points(
            whole.gpus, whole.engines, decode_rates, bandwidths, whole.host, self._totals, whole.wall_s
        )
        self.all_hosts.append(whole.wall_s, points, max(1.0, whole.interval_s))

    def span_note(self) -> str:
        """The span of the charts: no key of a fleet's screen changes it."""
        return f"last {period(self.charted_s)}"

    def on_click(self, event: events.Click) -> None:
        """Nothing: there is no key that brings the charts back from one of them."""
        event.stop()
