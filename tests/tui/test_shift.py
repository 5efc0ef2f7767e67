"""A curve that moves to the left costs few bytes, and the terminal shows what a whole line would."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gpumon.config.themes import load_theme
from gpumon.tui.app import MonitorApp
from gpumon.tui.line import Line, Row, Slot
from gpumon.tui.palette import Palette
from gpumon.tui.shift import Cells, can_shift, shifted
from gpumon.tui.terminal import Depth
from tests.tui.detail_scenes import full_snapshot
from tests.tui.feed import Still

WIDTH = 100
THEME = load_theme("default")
PALETTES = {depth: Palette(THEME, depth) for depth in Depth}
CONSOLE = Console()
CURVE = st.lists(st.sampled_from("⣿⣶⣤⣀ ⣷⣄"), min_size=50, max_size=50).map("".join)


def shown(screen: pyte.Screen) -> list[tuple[str, str, str]]:
    buffer = screen.buffer[0]
    return [(buffer[x].data, "" if buffer[x].data == " " else buffer[x].fg, buffer[x].bg) for x in range(WIDTH + 10)]


def row(figure: str, curve: str, other: str, tone: str) -> Row:
    return ((f" {figure:<8}", "text"), ("│", "muted"), (curve, tone), ("  ", "text"), (other, "sm"), (" end", "text"))


@settings(max_examples=200, deadline=None)
@given(CURVE, CURVE, st.text("⣿⣶⣤⣀ ", min_size=1, max_size=12), st.integers(0, 3), st.sampled_from(list(Depth)))
def test_the_terminal_shows_what_whole_lines_would(curve: str, other: str, fresh: str, step: int, depth: Depth) -> None:
    screens = [pyte.Screen(WIDTH + 10, 2) for _ in range(2)]
    patched, whole = (pyte.Stream(screen) for screen in screens)
    for screen in screens:
        screen.buffer[0][WIDTH + 5] = screen.default_char._replace(data="x")
    slot = Slot()
    palette = PALETTES[depth]
    patched.feed(Line(row("0", curve, other[:20], "busy"), WIDTH, palette, slot).render(CONSOLE))
    for at, glyph in enumerate(fresh):
        curve = (curve + glyph)[step and 1 :][:50].ljust(50)
        other = (other + glyph)[1 if at % 2 else 0 :][-50:]
        wanted = row(str(at * 7), curve, other[:20], "busy" if at % 3 else "mfu")
        patched.feed("\r" + Line(wanted, WIDTH, palette, slot).crop(0, WIDTH - 1).render(CONSOLE))
        whole.feed("\r" + Line(wanted, WIDTH, palette, Slot()).render(CONSOLE))
        assert shown(screens[0]) == shown(screens[1])


def test_a_moved_curve_is_not_sent_again() -> None:
    palette, slot = PALETTES[Depth.TRUE], Slot()
    curve = "⣿⣶⣤⣀ ⣷⣄" * 8
    Line(row("1", curve[:50], "", "busy"), WIDTH, palette, slot).render(CONSOLE)
    patch = Line(row("2", curve[1:51], "", "busy"), WIDTH, palette, slot).crop(0, WIDTH - 1).render(CONSOLE)
    assert "\x1b[P" in patch
    assert "\x1b[@" in patch
    assert len(patch.encode()) < 120


@pytest.mark.parametrize("terminal", ["vt100", "vt102", "VT102-nsgr", "vt132"])
def test_a_terminal_that_cannot_insert_cells_gets_them_written(terminal: str) -> None:
    palette, slot = Palette(THEME, Depth.NONE, shifts=can_shift({"TERM": terminal})), Slot()
    curve = "⣿⣶⣤⣀ ⣷⣄" * 8
    Line(row("1", curve[:50], "", "busy"), WIDTH, palette, slot).render(CONSOLE)
    patch = Line(row("2", curve[1:51], "", "busy"), WIDTH, palette, slot).crop(0, WIDTH - 1).render(CONSOLE)
    assert "\x1b[P" not in patch
    assert "\x1b[@" not in patch


@pytest.mark.parametrize(("terminal", "can"), [("vt100", False), ("xterm-256color", True), ("linux", True)])
def test_the_screen_asks_its_terminal(monkeypatch: pytest.MonkeyPatch, terminal: str, can: bool) -> None:
    monkeypatch.setenv("TERM", terminal)
    assert MonitorApp(Still(full_snapshot()), THEME).palette.shifts is can


@pytest.mark.parametrize(
    ("before", "after"),
    [("a" * 40, "a" * 40), ("abcdefghij" * 4, "0123456789" * 4), ("abc" + " " * 37, "bc " + " " * 37)],
)
def test_what_did_not_move_is_left_to_the_patch(before: str, after: str) -> None:
    cells = Cells(before, "b" * 40)
    moves, _, then = shifted(cells, Cells(after, "b" * 40))
    assert (not moves) == (then == cells)
    if moves:
        assert len(then.characters) == len(then.marks) == 40
