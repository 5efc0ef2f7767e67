"""The help of the fleet's screen: its keys, how rows are filtered, and what marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from gpumon.readings.format import cells, left
from gpumon.tui.fleet.keys import MEANINGS
from gpumon.tui.line import Row
from gpumon.tui.widgets.pane import Pane

MARKS: Final = (
    ("▒busy █sm", "a kernel ran; SMs at work: means"),
    ("gpus 6/8", "busy is known of 6 of them"),
    ("! 2 silent", "engines that do not answer"),
    ("mfu of 87/96", "of how many GPUs MFU is known"),
    ("37%~", "known for a part of its GPUs"),
    ("mfu mbu", "FLOPs, bytes used of peak"),
    ("idle", "1 - busy, summed: GPUs, or money per hour"),
    ("104%! 31%?", "wrong facts; unsure peak"),
    ("! STALE", "no scrape of it for 3 intervals"),
    ("✗ UNREACHABLE", "none of its targets answers"),
    ("✗ GONE 3m", "no series of it any more"),
    ("– n/a", "none; not known"),
)
FILTERS: Final = (
    ("llama h100", "both words in its names"),
    ("host=gpu0*", "of that host"),
    ("model!=*llama*", "without that model"),
    ("engine= gpu=", "names of engines, GPUs"),
    ("verdict=kv", "what is not well there"),
    ("zone=eu-1", "any label of its targets"),
)
_WIDTH: Final = 60
"""Cells of a key, filter or mark with its meaning."""
_NAME: Final = 16


class FleetHelp(Pane):
    """One column, or two where there is room."""

    TITLE: ClassVar[str] = "help"
    ZOOMS: ClassVar[bool] = False
    TIMELESS: ClassVar[bool] = True

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """Keys, filters, marks."""
        keymap = self.view.keymap
        said = [(" ".join(filter(None, map(keymap.shown, names))), does) for names, does in MEANINGS]
        keys = [(name, does) for name, does in said if name]
        if width < 2 * _WIDTH:
            return [*_section("keys", keys), *_section("filter", FILTERS), *_section("marks", MARKS)]
        one, other = _section("keys", keys), [*_section("filter", FILTERS), *_section("marks", MARKS)]
        longest = max(len(one), len(other))
        one += [()] * (longest - len(one))
        other += [()] * (longest - len(other))
        return [(*_padded(first), *second) for first, second in zip(one, other, strict=True)]


def _section(title: str, entries: Sequence[tuple[str, str]]) -> list[Row]:
    rows: list[Row] = [((f" {title}", "muted"),)]
    for name, does in entries:
        rows.append(((f" {left(name, max(_NAME, cells(name)))} ", "accent"), (does, "text")))
    return rows


def _padded(row: Row) -> Row:
    return (*row, (" " * max(0, _WIDTH - sum(cells(text) for text, _ in row)), "text"))
