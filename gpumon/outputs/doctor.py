"""The doctor's report as text: what is fine, grouped by area; at the end what is not, the worst first, with its fix."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpumon.outputs.tables import join_stripped
from gpumon.readings.check import Check, CheckState
from gpumon.readings.text import clean

_STYLES: Final = {
    CheckState.OK: "green",
    CheckState.WARN: "yellow",
    CheckState.FAIL: "bold red",
    CheckState.OFF: "dim",
}
_COUNT_WORDS: Final = {
    CheckState.OK: "ok",
    CheckState.WARN: "with gaps",
    CheckState.FAIL: "failed",
    CheckState.OFF: "off",
}
"""State -> its word behind the number of checks."""
_TO_MEND: Final = (CheckState.FAIL, CheckState.WARN)
"""States of checks with something to mend, the worst first."""
_LONGEST_TEXT: Final = 4000
"""Characters of a text, or of a line of a fix."""
_MOST_FIX_LINES: Final = 20
"""Lines of one fix: it may be a piece of config."""
_NAME_WIDTH: Final = 28
"""Cells of the names of checks."""
_RESTART_NOTE: Final = "gpumon reads its config when it starts: after a change of it, start gpumon again"
"""Line below fixes that change the config."""


def any_failed(checks: Sequence[Check]) -> bool:
    """Whether anything does not work: the command then exits with 1."""
    return any(check.state is CheckState.FAIL for check in checks)


def report(checks: Sequence[Check], *, colour: bool, width: int) -> str:
    """The checks in the order given, but those with something to mend last, where a long report leaves the eye.

    Text from outside is shown as it is: neither markup nor control characters act.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=colour,
        no_color=not colour,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    _print_fine(console, checks)
    _print_to_mend(console, checks)
    if any("config" in check.fix and check.state is not CheckState.OFF for check in checks):
        console.print(Text(_RESTART_NOTE))
    console.print(Text(_counts(checks)))
    return join_stripped(stream.getvalue().splitlines())


def _print_fine(console: Console, checks: Sequence[Check]) -> None:
    """The checks with nothing to mend, by area."""
    areas: dict[str, list[tuple[str, Check]]] = {}
    for check in checks:
        if check.state not in _TO_MEND:
            areas.setdefault(check.area, []).append((check.name, check))
    for area, rows in areas.items():
        console.print(Text(area, style="bold"))
        console.print(_table(rows))


def _print_to_mend(console: Console, checks: Sequence[Check]) -> None:
    """The checks with something to mend, failures first."""
    rows = []
    for state in _TO_MEND:
        for check in checks:
            if check.state is state:
                rows.append((f"{check.area} {check.name}", check))
    if rows:
        console.print(Text("to fix", style="bold"))
        console.print(_table(rows))


def _counts(checks: Sequence[Check]) -> str:
    """Number of checks of each state: `12 ok, 1 with gaps`."""
    counts = Counter(check.state for check in checks)
    words = [f"{counts[state]} {_COUNT_WORDS[state]}" for state in CheckState if counts[state]]
    return ", ".join(words)


def _table(checks: Sequence[tuple[str, Check]]) -> Table:
    """State, name and text of each check, its fix below the text."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=6, justify="right", no_wrap=True)
    table.add_column(max_width=_NAME_WIDTH, overflow="fold")
    table.add_column(overflow="fold")
    for name, check in checks:
        style = _STYLES[check.state]
        text = Text(clean(check.text, _LONGEST_TEXT))
        if check.fix:
            lines = [clean(line, _LONGEST_TEXT) for line in check.fix.splitlines()[:_MOST_FIX_LINES]]
            fix = f"fix: {lines[0]}" if len(lines) == 1 else "\n".join(("fix:", *lines))
            if check.state is CheckState.OFF:
                text.append(f"\n{fix}")
            else:
                text.append(f"\n{fix}", style=style)
        table.add_row(Text(check.state.value, style=style), Text(clean(name)), text)
    return table
