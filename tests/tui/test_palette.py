"""Every tone of every theme can be read and told apart: judged by what a terminal emulator shows of it."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import NamedTuple

import pyte
import pytest
from rich.console import Console

from gpumon.config.themes import Theme, known_themes, load_theme
from gpumon.tui.line import Line, LineSlot
from gpumon.tui.palette import BARS, LEVELS, MARKS, NEUTRAL, STAGES, TONES, VRAM, Palette, bar_tone, levelled
from gpumon.tui.terminal import Depth
from tests.config.colour import EYES, contrast, nearest
from tests.each_row import each_row
from tests.records import replace

CONSOLE = Console()
THEMES = {name: load_theme(name) for name in known_themes()}
HEX = sorted(name for name, theme in THEMES.items() if not theme.is_terminals_own)
COLOURFUL = (Depth.TRUE, Depth.PALETTE)
CURVES = ("sm", "mfu", "mbu", "tokens")
RULES = ("border", "border@")
"""Lines between the panes: nothing is lost where they are not seen."""
DRAWN = {*BARS, *(f"{tone}@" for tone in BARS)}
"""Cells of bars."""
GRAPHICS = ("busy", "busy@")
"""Bars and curves, never text: WCAG 1.4.11 asks 3 of them."""

# The smallest distance between any two of the levels: normal, red-blind, green-blind, blue-blind. Another theme has to
# reach the least distance alone.
FIGURES = {
    ("default", Depth.TRUE): (64.2, 27.1, 28.4, 27.3),
    ("default", Depth.PALETTE): (49.8, 26.1, 23.1, 23.9),
    ("light", Depth.TRUE): (46.5, 32.9, 30.9, 35.1),
    ("light", Depth.PALETTE): (67.4, 34.5, 42.3, 41.7),
    ("high-contrast", Depth.TRUE): (66.4, 22.3, 32.2, 22.1),
    ("high-contrast", Depth.PALETTE): (50.0, 25.1, 24.2, 18.6),
}
# The same of busy and SM active, and of SM active, MFU, MBU and tokens, in 24-bit colour.
CURVE_FIGURES = {
    "default": ((26.0, 24.8, 26.0, 27.6), (51.2, 17.5, 25.1, 16.2)),
    "light": ((48.1, 42.4, 47.9, 16.9), (50.3, 21.0, 28.3, 16.2)),
    "high-contrast": ((28.7, 25.7, 29.7, 31.6), (46.4, 20.6, 21.6, 20.6)),
}


class Terminal(NamedTuple):
    """The 16 colours that a terminal comes with (black to white, then bright), and its plain text and ground."""

    colours: str
    text: str
    ground: str
    bold_brightens: bool

    def colour(self, name: str, bold: bool) -> str:
        """The colour of text."""
        if name == "default":
            return self.text
        bright = bold and self.bold_brightens
        return self.colours.split()[ANSI.index(name) + 8 * bright]


ANSI = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
DARK = {
    "xterm": Terminal(
        "#000000 #cd0000 #00cd00 #cdcd00 #0000ee #cd00cd #00cdcd #e5e5e5 "
        "#7f7f7f #ff0000 #00ff00 #ffff00 #5c5cff #ff00ff #00ffff #ffffff",
        "#e5e5e5",
        "#000000",
        bold_brightens=True,
    ),
    "linux console": Terminal(
        "#000000 #aa0000 #00aa00 #aa5500 #0000aa #aa00aa #00aaaa #aaaaaa "
        "#555555 #ff5555 #55ff55 #ffff55 #5555ff #ff55ff #55ffff #ffffff",
        "#aaaaaa",
        "#000000",
        bold_brightens=True,
    ),
    "windows terminal": Terminal(
        "#0c0c0c #c50f1f #13a10e #c19c00 #0037da #881798 #3a96dd #cccccc "
        "#767676 #e74856 #16c60c #f9f1a5 #3b78ff #b4009e #61d6d6 #f2f2f2",
        "#cccccc",
        "#0c0c0c",
        bold_brightens=True,
    ),
}
GNOME_LIGHT = Terminal(
    "#2e3436 #cc0000 #4e9a06 #c4a000 #3465a4 #75507b #06989a #d3d7cf "
    "#555753 #ef2929 #8ae234 #fce94f #729fcf #ad7fa8 #34e2e2 #eeeeec",
    "#2e3436",
    "#ffffff",
    bold_brightens=False,
)


class Cell(NamedTuple):
    """What a terminal shows: `#rrggbb`, a name, or `default`."""

    colour: str
    ground: str
    attributes: frozenset[str]


@lru_cache(maxsize=64)
def palette_of(theme: Theme, depth: Depth) -> Palette:
    """The palette of a theme, which no test changes."""
    return Palette(theme, depth)


SCREEN = pyte.Screen(20, 1)
STREAM = pyte.Stream(SCREEN)


@lru_cache(maxsize=2048)
def painted(theme: Theme, depth: Depth, tone: str, text: str = "x") -> Cell:
    """The first cell of a text in a tone."""
    SCREEN.reset()
    STREAM.feed(Line([(text, tone)], 10, palette_of(theme, depth), LineSlot()).render(CONSOLE))
    cell = SCREEN.buffer[0][0]
    has = {"bold": cell.bold, "reverse": cell.reverse, "underline": cell.underscore}
    return Cell(_colour(cell.fg), _colour(cell.bg), frozenset(name for name, set_ in has.items() if set_))


def _colour(name: str) -> str:
    """pyte's names of colours."""
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name.replace("brown", "yellow")


def codes(theme: Theme, depth: Depth) -> set[str]:
    """Every number of the codes that select a tone; a code without one is a 0."""
    palette = Palette(theme, depth)
    written = "".join(Line([("x", tone)], 10, palette, LineSlot()).render(CONSOLE) for tone in TONES)
    return {code or "0" for part in written.split("\x1b[")[1:] for code in part.partition("m")[0].split(";")}


def reads(tone: str, name: str) -> float:
    """The contrast that a tone must have."""
    high = name == "high-contrast"
    if tone in RULES:
        return 3.0 if high else 1.4
    if tone.endswith("-"):
        return 2.0  # the lower half of an area: its upper edge is what is read
    if tone == "hint":
        return 4.5 if high else 3.5  # what nobody has to read
    if "/" in tone:
        return 4.5  # black or white on a shade between them has no more
    return 3.0 if tone in GRAPHICS and not high else 4.5 if tone in GRAPHICS else 7.0 if high else 4.5


@each_row("depth", COLOURFUL)
@each_row("name", HEX)
def test_every_tone_stands_out_from_its_ground(name: str, depth: Depth) -> None:
    for tone in TONES.keys() - DRAWN:
        cell = painted(THEMES[name], depth, tone)
        assert contrast(cell.colour, cell.ground) >= reads(tone, name), tone
    for level in LEVELS:
        for stage in (*STAGES, VRAM):
            for row in ("", "@"):
                cell = painted(THEMES[name], depth, bar_tone(levelled(stage, level)) + row)
                assert contrast(cell.colour, cell.ground) >= (2.4 if stage == "busy" else 3.0), (stage, level)


@each_row("name", HEX)
@each_row("level", LEVELS)
def test_neighbouring_stages_of_a_bar_are_told_apart(level: str, name: str) -> None:
    stages = [levelled(stage, level) for stage in STAGES]
    colours = [painted(THEMES[name], Depth.TRUE, bar_tone(stage)).colour for stage in stages]
    for outer, inner in itertools.pairwise(colours):
        assert nearest([outer, inner], [next(iter(EYES))]) >= 15
    for stage, behind in itertools.permutations(stages, 2):
        cell = painted(THEMES[name], Depth.TRUE, bar_tone(stage, behind))
        assert (cell.colour, cell.ground) == (colours[stages.index(stage)], colours[stages.index(behind)])


@each_row("depth", COLOURFUL)
@each_row("name", HEX)
def test_a_bar_has_the_colour_of_its_level(name: str, depth: Depth) -> None:
    for level in LEVELS:
        colour = painted(THEMES[name], depth, level).colour
        assert painted(THEMES[name], depth, bar_tone(levelled(VRAM, level))).colour == colour
        assert painted(THEMES[name], depth, bar_tone(levelled("sm", level))).colour == colour


@each_row("depth", Depth)
@each_row("name", ["ansi", "mono"])
def test_the_bar_of_the_row_under_the_cursor_looks_like_that_of_another_row(name: str, depth: Depth) -> None:
    for tone in BARS:
        assert painted(THEMES[name], depth, f"{tone}@") == painted(THEMES[name], depth, tone)


@each_row("depth", [Depth.ANSI, *COLOURFUL])
def test_levels_keep_their_colours_in_the_row_under_the_cursor_of_ansi(depth: Depth) -> None:
    for level in LEVELS:
        assert painted(THEMES["ansi"], depth, f"{level}@").colour == painted(THEMES["ansi"], depth, level).colour


@each_row("depth", COLOURFUL)
@each_row("name", HEX)
def test_levels_are_told_apart_by_every_eye(name: str, depth: Depth) -> None:
    for row in ("", "@"):
        colours = [painted(THEMES[name], depth, level + row).colour for level in LEVELS]
        found = [nearest(colours, [eyes]) for eyes in EYES]
        assert found == pytest.approx(FIGURES.get((name, depth), found), abs=0.06)
        assert min(found) >= (20 if depth is Depth.TRUE else 18)


@each_row("name", HEX)
def test_curves_that_stand_side_by_side_are_told_apart_by_every_eye(name: str) -> None:
    for tones, figures in zip((("busy", "sm"), CURVES), CURVE_FIGURES.get(name, ((), ())), strict=True):
        colours = [painted(THEMES[name], Depth.TRUE, tone).colour for tone in tones]
        found = [nearest(colours, [eyes]) for eyes in EYES]
        assert found == pytest.approx(figures or found, abs=0.06)
        assert min(found) >= 15


@each_row("depth", COLOURFUL)
@each_row("name", HEX)
def test_the_row_under_the_cursor_is_seen(name: str, depth: Depth) -> None:
    theme = THEMES[name]
    ground = painted(theme, depth, "text@").ground
    assert contrast(ground, painted(theme, depth, "text").ground) >= 1.2
    others = {tone: painted(theme, depth, f"{tone}@").ground for tone in TONES.keys() - DRAWN if f"{tone}@" in TONES}
    assert {tone for tone, of in others.items() if of != ground} == {"badge", "badge_paused", "alarm"}


@each_row("depth", Depth)
@each_row("name", ["ansi", "mono"])
def test_without_a_ground_of_its_own_the_row_under_the_cursor_is_reversed(name: str, depth: Depth) -> None:
    for tone in (tone for tone in TONES.keys() - DRAWN - {"ok@", "note@"} if tone.endswith("@")):
        attributes = painted(THEMES[name], depth, tone).attributes
        assert attributes & {"reverse", "bold", "underline"}, tone
    assert painted(THEMES[name], depth, "text@") == Cell("default", "default", frozenset({"reverse"}))


@each_row("name", HEX)
def test_a_ground_like_the_background_s_leaves_a_reversed_row_under_the_cursor(name: str) -> None:
    """In 256 colours, two neighbours of 24 bits are one."""
    base = THEMES[name]
    near = replace(base, background="#11151a", selected="#11151b")
    same = replace(base, selected=base.background)
    for theme, depth in ((same, Depth.TRUE), (same, Depth.PALETTE), (near, Depth.PALETTE)):
        plain, row = painted(theme, depth, "text"), painted(theme, depth, "text@")
        assert row == Cell(plain.colour, plain.ground, frozenset({"reverse"}))
        assert painted(theme, depth, "critical@") not in (row, plain)
    assert "reverse" not in painted(near, Depth.TRUE, "text@").attributes


def test_a_theme_of_names_may_have_a_ground_for_the_row_under_the_cursor() -> None:
    theme = replace(THEMES["ansi"], selected="blue")
    assert painted(theme, Depth.ANSI, "sm@") == Cell("cyan", "blue", frozenset())
    assert painted(theme, Depth.ANSI, "critical@") == Cell("red", "blue", frozenset({"bold"}))


def test_ansi_shows_text_in_the_terminal_s_own_colours() -> None:
    """What they look like is the user's choice: so plain text is plain, and no ground is set under any text."""
    theme = THEMES["ansi"]
    for depth in (Depth.ANSI, *COLOURFUL):
        assert codes(theme, depth) <= {"0", "1", "2", "7", "31", "32", "33", "36", "39", "49"}
        cells = {tone: painted(theme, depth, tone) for tone in TONES}
        assert {cell.ground for cell in cells.values()} == {"default"}
        for tone in ("text", "muted", "strong", "bar", "bar_muted", "bar_title"):
            assert cells[tone].colour == "default"
        assert [cells[level].colour for level in LEVELS] == ["cyan", "green", "yellow", "red"]
        assert [cells[level].attributes for level in LEVELS] == [frozenset(), frozenset(), {"bold"}, {"bold"}]
        assert cells["badge"] == Cell("yellow", "default", frozenset({"reverse"}))


@each_row("name", DARK)
def test_ansi_can_be_read_on_the_dark_palettes_that_terminals_come_with(name: str) -> None:
    terminal = DARK[name]
    for tone in TONES:
        cell = painted(THEMES["ansi"], Depth.ANSI, tone)
        colour = terminal.colour(cell.colour, "bold" in cell.attributes)
        brown = name == "linux console" and colour == "#aa5500"  # its yellow, where it is not bold: badges and tokens
        inverse = tone.startswith("alarm")  # a word in capitals, never bold, as that and reverse is unreadable there
        assert contrast(colour, terminal.ground) >= (2.3 if inverse else 4.0 if brown else 4.5), tone


@each_row(
    ("terminal", "figures"),
    [
        (DARK["xterm"], (110.5, 65.9, 44.6, 54.0)),
        (DARK["linux console"], (95.6, 31.8, 44.0, 53.9)),
        (DARK["windows terminal"], (81.2, 53.8, 35.7, 54.5)),
        (GNOME_LIGHT, (72.5, 43.7, 24.9, 64.3)),
    ],
)
def test_the_levels_of_ansi_are_told_apart_by_every_eye(terminal: Terminal, figures: tuple[float, ...]) -> None:
    """But for notes, which have their glyph: four of eight colours are not."""
    cells = [painted(THEMES["ansi"], Depth.ANSI, level) for level in ("ok", "warn", "critical")]
    colours = [terminal.colour(cell.colour, "bold" in cell.attributes) for cell in cells]
    found = [nearest(colours, [eyes]) for eyes in EYES]
    assert found == pytest.approx(figures, abs=0.06)
    assert min(found) >= 20


def test_ansi_on_a_light_ground_keeps_what_must_be_read_in_the_text_s_colour() -> None:
    """Yellow on white cannot be read: of what has a colour, each has a word in plain text beside it, or is a curve."""
    coloured = set()
    for tone in TONES:
        cell = painted(THEMES["ansi"], Depth.ANSI, tone)
        if contrast(GNOME_LIGHT.colour(cell.colour, "bold" in cell.attributes), GNOME_LIGHT.ground) < 4.5:
            coloured.add(re.split(r"[@|]", tone)[0].rstrip("-"))
    bars = {stage for stage in coloured if stage in {levelled(stage, level) for stage in STAGES for level in LEVELS}}
    texts = {"ok", "note", "warn", "bar_ok", "bar_warn", "sm", "mbu", "tokens", "badge"}
    assert coloured <= texts | bars | {levelled(VRAM, level) for level in LEVELS}


def test_a_terminal_of_16_colours_shows_its_own_whatever_the_theme() -> None:
    for name in HEX:
        palette = Palette(THEMES[name], Depth.ANSI)
        assert palette.codes == Palette(THEMES["ansi"], Depth.ANSI).codes
        assert palette.styles == Palette(THEMES["ansi"], Depth.ANSI).styles
    assert Palette(THEMES["mono"], Depth.ANSI).codes == Palette(THEMES["mono"], Depth.TRUE).codes


@each_row(("name", "depth"), [*((name, Depth.NONE) for name in THEMES), *(("mono", depth) for depth in Depth)])
def test_without_colour_there_is_no_colour_code_and_levels_differ_by_attribute(name: str, depth: Depth) -> None:
    theme = THEMES[name]
    assert codes(theme, depth) <= {"0", "1", "2", "4", "7", ""}
    for row in ("", "@"):
        attributes = [painted(theme, depth, level + row).attributes for level in LEVELS]
        assert attributes[0] == attributes[1], "calm and notes differ by their glyphs"
        assert len(set(attributes)) == len(LEVELS) - 1


@each_row(("name", "depth"), [*((name, Depth.NONE) for name in THEMES), *(("mono", depth) for depth in Depth)])
def test_without_colour_the_row_under_the_cursor_is_reversed_and_no_level_or_title_is(name: str, depth: Depth) -> None:
    def attributes(tone: str) -> frozenset[str]:
        return painted(THEMES[name], depth, tone).attributes

    row = attributes("text@")
    assert row == {"reverse"}
    levels = [attributes(level) for level in LEVELS]
    titles = [attributes("focus"), attributes("strong")]
    for looks in (*levels, *titles):
        assert "reverse" not in looks
    assert attributes("alarm") not in (row, *levels, *titles)
    for urgent in levels[2:]:
        assert urgent not in titles


@each_row("depth", [Depth.ANSI, *COLOURFUL])
def test_ansi_tells_levels_from_the_row_under_the_cursor_the_headline_and_titles(depth: Depth) -> None:
    looks = {tone: painted(THEMES["ansi"], depth, tone) for tone in (*LEVELS, "text@", "alarm", "strong", "focus")}
    levels = [looks[level] for level in LEVELS]
    assert len(set(levels)) == len(LEVELS)
    for other in ("text@", "alarm", "strong", "focus"):
        assert looks[other] not in levels, "calm is plain, and titles are bold"
    assert looks["alarm"] != looks["text@"]


@each_row("depth", COLOURFUL)
@each_row("name", HEX)
def test_what_has_the_focus_is_of_no_level_for_every_eye(name: str, depth: Depth) -> None:
    accent = painted(THEMES[name], depth, "accent").colour
    for level in LEVELS:
        assert nearest([accent, painted(THEMES[name], depth, level).colour]) >= 15


@each_row("name", ["ansi", "mono"])
def test_nothing_is_bold_and_reversed_at_once(name: str) -> None:
    """The Linux console shows that as dark grey on grey."""
    for tone in TONES:
        assert not painted(THEMES[name], Depth.ANSI, tone).attributes >= {"bold", "reverse"}


@each_row("depth", Depth)
@each_row("name", THEMES)
def test_a_blank_looks_the_same_in_every_tone_that_shares_a_ground(name: str, depth: Depth) -> None:
    theme = THEMES[name]
    palette = Palette(theme, depth)
    plain = painted(theme, depth, "text", " ")
    neutral = [tone for tone in TONES if palette.mark("  ", tone) == NEUTRAL * 2]
    assert set(neutral) == {tone for tone, of in TONES.items() if of.ground == "background"}
    for tone in neutral:
        assert painted(theme, depth, tone, " ") == plain
    for row in ("bar", "text@"):
        shown = painted(theme, depth, row, " ")
        sharing = [tone for tone in TONES if palette.mark(" ", tone) == MARKS[row]]
        assert len(sharing) >= 4
        for tone in sharing:
            cell = painted(theme, depth, tone, " ")
            assert (cell.ground, "reverse" in cell.attributes) == (shown.ground, "reverse" in shown.attributes)


@each_row(("tone", "end"), [("sm", "text"), ("critical", "text"), ("bar_ok", "bar"), ("warn@", "text@")])
def test_the_rest_of_a_line_has_the_ground_of_its_last_piece(tone: str, end: str) -> None:
    for name, depth in itertools.product(THEMES, Depth):
        screen = pyte.Screen(20, 1)
        pyte.Stream(screen).feed(Line([("x", tone)], 10, Palette(THEMES[name], depth), LineSlot()).render(CONSOLE))
        cell = screen.buffer[0][9]
        expected = painted(THEMES[name], depth, end, " ")
        assert (_colour(cell.bg), cell.reverse) == (expected.ground, "reverse" in expected.attributes)


def test_every_tone_has_a_mark_of_its_own() -> None:
    assert set(MARKS) == set(TONES)
    assert len(set(MARKS.values())) == len(TONES)
    assert NEUTRAL not in MARKS.values()
    for mark in MARKS.values():
        assert len(mark) == 1
        assert mark.isprintable()
        assert not mark.isspace()
    assert {
        f"{tone}@" for tone in TONES if tone[-1] not in "@-" and tone not in ("hint", "hot") and "/" not in tone
    } == {tone for tone in TONES if tone.endswith("@")}


@each_row("depth", Depth)
def test_a_palette_changes_its_theme_in_place(depth: Depth) -> None:
    palette = Palette(THEMES["default"], depth, ascii=True)
    row = [(tone[:4], tone) for tone in TONES]
    for name in ("light", "mono", "ansi", "high-contrast", "default"):
        palette.use(THEMES[name])
        fresh = Palette(THEMES[name], depth, ascii=True)
        assert (palette.styles, palette.codes, palette.ground) == (fresh.styles, fresh.codes, fresh.ground)
        line = Line(row, 600, palette, LineSlot())
        assert line.render(CONSOLE) == Line(row, 600, fresh, LineSlot()).render(CONSOLE)
        assert palette.ascii
        assert palette.depth is depth


def test_glyphs_are_braille_unless_only_ascii_can_be_shown() -> None:
    theme = THEMES["default"]
    assert Palette(theme, Depth.TRUE).glyphs == "braille"
    assert Palette(theme, Depth.TRUE, ascii=True).glyphs == "ascii"
    assert Palette(theme, Depth.TRUE, glyphs="blocks").glyphs == "blocks"
    assert not Palette(theme, Depth.TRUE, glyphs="blocks").ascii
