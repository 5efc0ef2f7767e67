"""The help screen: every key from the bindings themselves, and what the marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.readings.format import left
from gpumon.tui.keys import listed
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.pane import Pane

LEGEND: Final = (
    ("▒ busy", "share of time in which a kernel ran: says little about work done"),
    ("█ sm", "share of the SMs at work: the gap to busy is left on the table"),
    ("mfu mbu", "FLOPs and bytes that the tokens needed, of the chip's peaks"),
    ("m ≥ ≤", "memory B/s: measured; at least (engine); at most (share of time)"),
    ("104%!", "above 100 %: the figures of the model or of the GPU are wrong"),
    ("31%?", "of a peak that is derived or stands on one source"),
    ("ttft itl", "p95 of 60 s: 210m is 210 milliseconds, 1.2s seconds"),
    ("<10m ~24m", "in the engine's first bucket; the mean, too few for a p95"),
    ("–  …", "not there (never a zero); not there yet"),
    ("LLM? GPU?", "model or GPU not known: `gpumon doctor` says what to add"),
    ("✗ LOST 14s", "has not answered for 14 seconds; the others go on"),
)


class HelpText(Pane):
    """The text."""

    KEY: ClassVar[str] = "?"
    TITLE: ClassVar[str] = "help · Esc: back"
    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, bindings: Sequence[Binding]) -> None:
        super().__init__(palette)
        self._keys = listed(bindings)

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """Keys in two columns where they fit, then the marks."""
        columns = 2 if width >= 78 else 1
        per_column = -(-len(self._keys) // columns)
        rows: list[Row] = []
        for at in range(per_column):
            row: list[tuple[str, str]] = []
            for keys, does in self._keys[at::per_column]:
                row += [("  " + left(keys, 11), "accent"), (left(does, 27), "text")]
            rows.append(tuple(row))
        rows.append((("  what the marks mean", "muted"),))
        rows += [(("  " + left(mark, 11), "accent"), (text, "text")) for mark, text in LEGEND]
        return rows


class HelpScreen(Screen[None], inherit_bindings=False):
    """Covers the monitor, which goes on collecting."""

    ALLOW_SELECT = False
    AUTO_FOCUS = "HelpText"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1", "back", "back", id="help.back"),
        Binding("up,k", "scroll(-1)", "up", id="help.up"),
        Binding("down,j", "scroll(1)", "down", id="help.down"),
        Binding("pageup", "page(-1)", "a page up", id="help.page.up"),
        Binding("pagedown,space", "page(1)", "a page down", id="help.page.down"),
        Binding("g", "scroll(-100000)", "to the top", id="help.top"),
        Binding("G", "scroll(100000)", "to the end", id="help.end"),
    ]

    def __init__(self, palette: Palette, bindings: Sequence[Binding]) -> None:
        super().__init__()
        self.text = HelpText(palette, bindings)

    def compose(self) -> ComposeResult:
        """The text alone."""
        self.text.styles.height = "1fr"
        yield self.text

    def action_back(self) -> None:
        """Close."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Scroll."""
        self.text.scroll_rows(lines)

    def action_page(self, pages: int) -> None:
        """Scroll by what is visible."""
        self.text.scroll_rows(pages * self.text.page())
