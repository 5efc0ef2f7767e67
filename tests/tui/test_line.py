"""What a line writes to the terminal is what it shows: judged by a terminal emulator, not by the codes."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpumon.config.themes import load_theme
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.palette import TONES, Palette
from gpumon.tui.repaint import repainted
from gpumon.tui.terminal import Depth
from tests.each_row import each_row

WIDTH = 60
THEME = load_theme("default")
PALETTES = {depth: Palette(THEME, depth) for depth in Depth}
CONSOLE = Console()

TEXTS = st.one_of(
    st.text("abc 0189%.T", max_size=14),
    st.text("█▒·─⣿⣀ ", max_size=14),
    st.sampled_from(["日本", "e\u0301", "🚀", "[bold]", ""]),
)
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from(sorted(TONES))), max_size=9)

Look = list[tuple[str, str, str, bool, bool, bool]]


def terminal() -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(WIDTH + 4, 2)
    return screen, pyte.Stream(screen)


def look(screen: pyte.Screen) -> Look:
    """Every cell; the colour of a blank is its ground alone."""
    cells = [screen.buffer[0][x] for x in range(WIDTH)]
    return [
        (
            cell.data,
            "" if cell.data == " " and not cell.reverse else cell.fg,
            cell.bg,
            cell.bold and cell.data != " ",
            cell.reverse,
            cell.underscore,
        )
        for cell in cells
    ]


def fresh(row: Row, palette: Palette) -> Look:
    screen, stream = terminal()
    stream.feed(Line(row, WIDTH, palette, LineSlot()).render(CONSOLE))
    return look(screen)


@given(st.lists(ROWS, min_size=2, max_size=5), st.sampled_from(list(Depth)), st.data())
def test_changes_bring_the_terminal_to_where_a_full_line_would(
    rows: list[Row], depth: Depth, data: st.DataObject
) -> None:
    """Also where frames are left out, and where a line was written in parts."""
    screen, stream = terminal()
    slot = LineSlot()
    stream.feed(Line(rows[0], WIDTH, PALETTES[depth], slot).render(CONSOLE))
    for row in rows[1:]:
        line = Line(row, WIDTH, PALETTES[depth], slot)
        how = data.draw(st.sampled_from(["change", "skip", "parts"]))
        if how == "skip":
            line.crop(0, 5)
        elif how == "parts":
            line.divide([20, WIDTH])
            stream.feed("\r" + " " * 20)
        else:
            stream.feed("\r" + line.crop(0, WIDTH - 1).render(CONSOLE))
            assert look(screen) == fresh(row, PALETTES[depth])


@given(st.lists(ROWS, min_size=2, max_size=5), st.sampled_from(list(Depth)))
def test_a_repainted_frame_of_lines_looks_the_same(rows: list[Row], depth: Depth) -> None:
    lines = []
    for y, row in enumerate(rows, 1):
        lines.append(f"\x1b[{y};1H{Line(row, WIDTH, PALETTES[depth], LineSlot()).render(CONSOLE)}")
    frame = "\r\n".join(lines)
    glasses = []
    for text in (frame, repainted(frame)):
        screen = pyte.Screen(WIDTH + 4, len(rows) + 1)
        pyte.Stream(screen).feed(text)
        glasses.append([dict(screen.buffer[y]) for y in range(screen.lines)])
    assert glasses[0] == glasses[1]


def test_the_ground_is_selected_once_in_a_frame() -> None:
    palette = PALETTES[Depth.TRUE]
    line = Line([("0", "text")], WIDTH, palette, LineSlot()).render(CONSOLE)
    frame = repainted(f"\x1b[1;1H{line}\r\n\x1b[2;1H{line}")
    assert frame.count(palette.ground) == 1


def test_cells_between_two_changes_are_written_only_where_they_need_no_code() -> None:
    old = [("1", "text"), ("2", "warn"), ("3", "text"), ("4  5", "text")]
    new = [("9", "text"), ("2", "warn"), ("9", "text"), ("8  8", "text")]
    slot = LineSlot()
    line = Line(old, WIDTH, PALETTES[Depth.TRUE], slot)
    assert Line(new, WIDTH, PALETTES[Depth.TRUE], slot).changes(line) == [(0, 1), (2, 7)]


@given(ROWS)
def test_a_line_is_exactly_as_wide_as_the_widget(row: Row) -> None:
    line = Line(row, WIDTH, PALETTES[Depth.TRUE], LineSlot())
    assert line.cell_length == WIDTH
    assert sum(segment.cell_length for segment in line) == WIDTH


def test_one_digit_costs_few_bytes() -> None:
    old, new = (
        [("0 ", "text"), ("█████", "sm"), (f"{'':30}91%", "text")],
        [("0 ", "text"), ("█████", "sm"), (f"{'':30}92%", "text")],
    )
    slot = LineSlot()
    line = Line(old, WIDTH, PALETTES[Depth.TRUE], slot)
    whole = line.render(CONSOLE)
    change = Line(new, WIDTH, PALETTES[Depth.TRUE], slot)
    assert change.changes(line) == [(38, 39)]
    patch = change.crop(0, 39).render(CONSOLE)
    assert patch == "\x1b[38C\x1b[48;2;16;20;24;38;2;216;222;230m2\x1b[0m"
    assert len(patch) < len(whole) / 3


def test_no_colour_means_no_colour_code() -> None:
    palette = PALETTES[Depth.NONE]
    written = Line([(tone, tone) for tone in TONES], 300, palette, LineSlot()).render(CONSOLE)
    assert "38;" not in written
    assert "48;" not in written
    codes = {code for part in written.split("\x1b[")[1:] for code in part.partition("m")[0].split(";")}
    assert codes <= {"0", "1", "2", "4", "7"}


def test_sixteen_colours_use_the_terminals_own() -> None:
    written = Line([(tone, tone) for tone in TONES], 300, PALETTES[Depth.ANSI], LineSlot()).render(CONSOLE)
    assert "38;" not in written
    assert "48;" not in written


@each_row("text", ["–…·°≥≤×●‖█▒─│┤▁▂▃▄▅▆▇█↑↓✗✓⣿", "日本語", "é"])
def test_ascii_replaces_cell_by_cell(text: str) -> None:
    palette = Palette(THEME, Depth.TRUE, ascii=True)
    line = Line([(text, "text"), ("|", "text")], WIDTH, palette, LineSlot())
    assert line.characters.isascii()
    plain = Line([(text, "text"), ("|", "text")], WIDTH, PALETTES[Depth.TRUE], LineSlot())
    assert line.cell_length == plain.cell_length
    assert line.characters.rstrip().endswith("|")


def test_what_is_cut_is_marked() -> None:
    line = Line([("x" * 100, "text")], WIDTH, PALETTES[Depth.TRUE], LineSlot())
    assert line.characters == "x" * (WIDTH - 1) + "…"


def test_markup_is_text() -> None:
    line = Line([("[bold red]x[/] [link=a]b", "text")], WIDTH, PALETTES[Depth.TRUE], LineSlot())
    assert line.characters.startswith("[bold red]x[/] [link=a]b")
