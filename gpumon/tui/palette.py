"""Tones of the screen to terminal codes: resolved once per theme and colour depth, never while painting."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

import msgspec
from rich.color import Color, ColorSystem
from rich.style import Style

from gpumon.config.themes import Theme, load_theme
from gpumon.tui.terminal import Depth

Glyphs = Literal["braille", "blocks", "ascii"]
"""Characters of charts."""
Attributes = tuple[str, ...]
"""Keys of `_SGR`."""


class Tone(NamedTuple):
    """How a piece of text looks: theme keys of its colours, and its attributes.

    With the terminal's own colours bold often brightens, and where there is no colour attributes are all there is, so
    both may say their own attributes. Never bold and reverse at once there: the Linux console makes that unreadable.
    Never dim on text: how much of it is left is the terminal's choice.
    """

    colour: str
    """Theme key of the text's colour."""
    ground: str = "background"
    """Theme key of the colour behind it."""
    bold: bool = False
    own: Attributes | None = None
    """Attributes with the terminal's own colours, and where its row has no ground of its own; None: as elsewhere."""
    plain: Attributes | None = None
    """Attributes without colours; None: as elsewhere."""
    share: float = 1.0
    """How much of the colour there is, the rest is ground. Where nothing can be mixed it is dim below `_DIM_BELOW`."""
    coarse_share: float = 0.0
    """The same in 256 colours, of which there is not one for every share; 0: the same."""
    tint: float = 0.0
    """How much of the ground there is, the rest is the background; 0: the ground is used as it is. Text on a tint is
    black or white. Without tints, as with the terminal's own colours, the tone is that of plain text."""


STAGES: Final = ("busy", "sm", "tensor", "mfu")
"""Stages of a GPU's bar, the outermost first: each is a part of the one before it."""
LEVELS: Final = ("ok", "note", "warn", "critical")
"""Colours of levels, the calmest first: bars have the one of their level."""
VRAM: Final = "vram"
"""The stage of a bar of memory."""
_LEVELLED: Final = (*STAGES[:2], VRAM)
"""Stages that have the colour of a level; the others have one of their own."""
TRACK: Final = "track"
"""The rest of the bar, behind the outermost stage."""
RAIL: Final = "▁"
"""A cell of the rest of the bar."""
BODY: Final = "▇"
"""A full cell of a bar: seven eighths high, so that the bars of neighbouring rows stay apart."""
TIPS: Final = "▏▎▍▌▋▊▉"
"""One to seven eighths of a cell."""
HATCH: Final = "╱"
"""A cell of a bar in which a stage that is not measured may end."""
_BUSY_SHARE: Final = 0.68
"""Share of a level's colour in the outermost stage; the rest is the ground."""
_MIXED_COLOURS: Final[dict[str, tuple[str, str, float]]] = {
    "tensor": ("mfu", "foreground", 0.4),
    **{f"{STAGES[0]}.{level}": (level, "background", _BUSY_SHARE) for level in LEVELS},
    **{f"{stage}.{level}": (level, level, 1.0) for stage in _LEVELLED[1:] for level in LEVELS},
}
"""Colours that no theme has -> the two that they are mixed of, and the share of the first one."""
_TEXTURES: Final = dict(zip((*STAGES, VRAM), ("░", "▒", "▓", "█", BODY), strict=True))
_ASCII_TEXTURES: Final = dict(zip((*STAGES, VRAM), "-=%##", strict=True))
"""A full cell of each stage where colours do not tell the stages apart."""
_ASCII_TIP: Final = ":"
"""Less than half a cell before the rest of the bar."""


_TEXT_OF_LEVELS: Final[dict[str, Tone]] = {
    "ok": Tone("ok"),
    "note": Tone("note"),
    "warn": Tone("warn", own=("bold",), plain=("underline",)),
    "critical": Tone("critical", bold=True, own=("bold",), plain=("bold", "underline")),
}
"""Tones of texts of each level."""


def levelled(stage: str, level: str) -> str:
    """The name of a stage in the colour of a level, if it has no colour of its own."""
    return f"{stage}.{level}" if stage in _LEVELLED else stage


def bar_tone(stage: str, behind: str = "") -> str:
    """The tone of a bar's cells; `behind`: the stage that the rest of the cell shows, if any. Stages are named as by
    `levelled`."""
    return f"{stage}|{behind.replace(TRACK, '')}"


def _tones_of_bars() -> dict[str, Tone]:
    """The tones of bars by name: of each stage alone, and with the rest of the cell in another stage; those of calm
    bars come first."""
    tones = {bar_tone(TRACK): Tone("border", own=(), plain=())}
    for level in LEVELS:
        own = _TEXT_OF_LEVELS[level].own or ()
        tones[bar_tone(levelled(VRAM, level))] = Tone(levelled(VRAM, level), own=own, plain=())
        stages = [levelled(stage, level) for stage in STAGES]
        for stage in stages:
            tones[bar_tone(stage)] = Tone(stage, own=own, plain=())
            for behind in stages:
                if behind != stage:
                    tones[bar_tone(stage, behind)] = Tone(stage, behind, own=own, plain=())
    return tones


BARS: Final = _tones_of_bars()
"""Tones of bars: they are drawn, never read, and look the same in the row under the cursor."""


_TEXT_TONES: Final[dict[str, Tone]] = {
    "text": Tone("foreground"),
    "muted": Tone("muted"),
    "border": Tone("border", own=("dim",), plain=("dim",)),
    "strong": Tone("title", bold=True),
    "accent": Tone("accent", own=("bold",), plain=("bold",)),
    "focus": Tone("accent", bold=True, plain=("bold",)),
    **_TEXT_OF_LEVELS,
    "alarm": Tone("background", "critical", bold=True, own=("reverse",), plain=("underline", "reverse")),
    "busy": Tone("busy", own=("dim",), plain=("dim",)),
    "sm": Tone("sm"),
    "mfu": Tone("mfu"),
    "mbu": Tone("mbu"),
    "tokens": Tone("tokens"),
    "bar": Tone("foreground", "selected"),
    "bar_muted": Tone("muted", "selected"),
    "bar_title": Tone("title", "selected", bold=True),
    "bar_ok": Tone("ok", "selected"),
    "bar_warn": Tone("warn", "selected", bold=True, plain=("underline",)),
    "badge": Tone("background", "warn", bold=True, own=("reverse",), plain=("bold", "underline")),
    "badge_paused": Tone("background", "accent", bold=True, own=("reverse",), plain=("reverse",)),
    **BARS,
}
"""Tones of what may stand in the row under the cursor."""
_HOT_CURVE: Final = Tone("critical", own=("bold",), plain=("bold",))
"""A curve at a critical level: never reversed, for a reversed full cell is a blank; and bold only where it must be, for
a change of colour alone takes fewer bytes."""
_CURVES: Final = {
    "hot": _HOT_CURVE,
    **{name: _TEXT_TONES[name] for name in ("accent", "ok", "warn", "busy", "sm", "mfu", "mbu", "tokens")},
}
"""Tones of curves."""
_SHADES: Final = ((0.9, 1.0), (0.8, 1.0), (0.71, 0.65), (0.62, 0.65))
"""Shares of the colour in the shades below the brightest one, and in 256 colours, where there are two shades."""
SHADES: Final = len(_SHADES) + 1
"""Shades of a curve's tone, the brightest included."""
_DIM_BELOW: Final = 0.75
"""Share of a colour below which a tone is dim, where colours cannot be mixed."""
_HINT: Final = Tone("muted", share=0.8)
"""The quietest tone: notes on rules."""


def shaded(tone: str, shade: int) -> str:
    """The name of a shade of a curve's tone: 0 is the brightest, `SHADES` - 1 the darkest."""
    return tone + "-" * shade


def _tones_of_shades() -> dict[str, Tone]:
    """The tones of curves in all shades, by name."""
    shades: dict[str, Tone] = {}
    for name, tone in _CURVES.items():
        shades[name] = tone
        for shade, (share, coarse_share) in enumerate(_SHADES, 1):
            shades[shaded(name, shade)] = tone._replace(share=share, coarse_share=coarse_share)
    return shades


_TONES_BESIDE_CURSOR: Final = {**_TEXT_TONES, "hint": _HINT, **_tones_of_shades()}
"""Tones outside of the row under the cursor, with the shades of curves, for areas that are darker below."""
_KEPT_WHEN_SELECTED: Final[dict[str, Attributes]] = {
    "ok": ("reverse",),
    "note": ("reverse",),
    "warn": ("underline",),
    "critical": ("bold", "underline"),
}
"""Tones that a reversed row leaves as they are, so that they keep their colour; and how they look without any."""


def _under_cursor(name: str, tone: Tone) -> Tone:
    """The tone in the row under the cursor."""
    if tone.ground not in ("background", "selected"):
        return tone
    if name in BARS:
        return tone._replace(ground="selected")
    if name in _KEPT_WHEN_SELECTED:
        return tone._replace(ground="selected", plain=_KEPT_WHEN_SELECTED[name])
    return tone._replace(ground="selected", own=("reverse",), plain=("reverse",))


HUES: Final = ("busy", "sm", "mfu", "mbu")
"""Colours that have tints."""
TINTS: Final = 10
"""Tints of a hue: one for each tenth of a share."""


def tint(hue: str, step: int) -> str:
    """The tone whose ground is tint number `step` (0 is the faintest) of a hue."""
    return f"{hue}/{step}"


TONES: Final[dict[str, Tone]] = {
    **_TONES_BESIDE_CURSOR,
    **{f"{name}@": _under_cursor(name, tone) for name, tone in _TEXT_TONES.items()},
    **{tint(hue, step): Tone("foreground", hue, tint=(step + 1) / TINTS) for hue in HUES for step in range(TINTS)},
}
"""Every tone, as `tone@` those of text in the row under the cursor, and as `hue/step` the tints."""
NEUTRAL: Final = " "
"""Mark of a blank on the plain background: it looks the same in every tone on that ground."""
_CHARACTERS: Final = [character for character in map(chr, range(0x21, 0x180)) if character.isprintable()]
"""Characters that take one byte each in a string, then those that take two."""


def _is_rare(tone: str) -> bool:
    """Whether few screens have a tone: that of a bar above calm."""
    return any(f".{level}" in tone for level in LEVELS[1:])


MARKS: Final[dict[str, str]] = dict(zip(sorted(TONES, key=_is_rare), _CHARACTERS[: len(TONES)], strict=True))
"""Tone -> the character that stands for it, cell by cell, where the tones of two lines are compared."""


def _filler_tone(name: str) -> str:
    """The tone of blanks beside and inside of a tone: where two tones share a ground, theirs is one."""
    ground = TONES[name].ground
    if ground not in ("background", "selected"):
        return name
    if ground == "background":
        return "text"
    if name.endswith("@"):
        return "text@"
    return "bar"


FILLERS: Final = {name: _filler_tone(name) for name in TONES}
"""Tone -> the tone of blanks beside it."""
_MARKS_OF_BLANKS: Final = {name: NEUTRAL if filler == "text" else MARKS[filler] for name, filler in FILLERS.items()}
"""Tone -> the mark of a blank in it."""
_COLOUR_SYSTEMS: Final = {Depth.TRUE: ColorSystem.TRUECOLOR, Depth.PALETTE: ColorSystem.EIGHT_BIT}
_EQUAL_CONTRAST_LUMINANCE: Final = 0.179
"""Relative luminance (WCAG 2) at which black and white text have the same contrast."""
_SGR: Final = {"bold": "1", "dim": "2", "underline": "4", "reverse": "7"}
"""Attribute -> the parameter of the control sequence that sets it (select graphic rendition)."""


class Code(NamedTuple):
    """Parameters of the control sequence that selects a tone."""

    base: str
    """Parameters of the attributes and the ground."""
    colour: str
    """Parameters of the text's colour."""


class ToneStyle(msgspec.Struct, frozen=True):
    """A tone in one theme: colours as the theme has them (None: none at all), and attributes."""

    colours: tuple[str, str] | None
    """Foreground and ground."""
    attributes: Attributes


class Palette:
    """All tones of one theme, for one terminal."""

    styles: dict[str, Style]
    """Tone -> its style, as Textual has it."""
    codes: dict[str, Code]
    """Mark -> the parameters that select its tone on the terminal."""
    ground: str
    """Parameters that select the plain background."""
    textures: dict[str, dict[int, str]]
    """Tone of a bar -> other characters for its cells, where there are other ones."""

    def __init__(
        self,
        theme: Theme,
        depth: Depth,
        *,
        ascii: bool = False,  # noqa: A002 - as the setting is called
        glyphs: Glyphs | None = None,
    ) -> None:
        self.ascii = ascii
        self.glyphs: Glyphs = glyphs or ("ascii" if ascii else "braille")
        self.depth = depth
        self.use(theme)

    def use(self, theme: Theme) -> None:
        """Change all tones to those of another theme, for everything that has this palette; then draw all anew.

        A terminal of 16 colours shows its own: there `ansi` stands for every theme of `#rrggbb`. Raises ConfigError
        where gpumon is not installed completely.
        """
        if self.depth is Depth.ANSI and not theme.is_terminals_own:
            theme = load_theme("ansi")
        self.theme = theme
        tone_styles = {name: _tone_style(tone, theme, self.depth) for name, tone in TONES.items()}
        self.styles = {name: _style(style) for name, style in tone_styles.items()}
        codes = {MARKS[name]: _code(style, self.depth) for name, style in tone_styles.items()}
        has_few_colours = theme.is_terminals_own or self.depth in (Depth.NONE, Depth.ANSI)
        self.textures = _textures(ascii=self.ascii, textured=has_few_colours)
        codes[NEUTRAL] = codes[MARKS["text"]]
        self.codes = codes
        self.ground = codes[NEUTRAL].base

    @property
    def tinted(self) -> bool:
        """Whether tints of one hue can be told apart."""
        return self.depth is not Depth.NONE and not self.theme.is_terminals_own

    def mark(self, text: str, tone: str) -> str:
        """The mark of every cell of a text in `tone`."""
        if text.isspace():
            return _MARKS_OF_BLANKS[tone] * len(text)
        return MARKS[tone] * len(text)


def _textures(*, ascii: bool, textured: bool) -> dict[str, dict[int, str]]:  # noqa: A002 - as the setting is called
    """Other characters for bars, by tone: in ASCII, and where not each stage has a colour of its own (`textured`)."""
    if ascii:
        cells = _ASCII_TEXTURES
    elif textured:
        cells = _TEXTURES
    else:
        return {}
    tables = {}  # of `str.translate`
    for name in BARS:
        stage, _, behind = name.partition("|")
        if stage == TRACK:
            continue
        stage = stage.partition(".")[0]
        behind = behind.partition(".")[0]
        table = {ord(BODY): cells[stage]}
        for eighths, tip in enumerate(TIPS, start=1):
            fills_half = 2 * eighths > len(TIPS)
            if behind:
                table[ord(tip)] = cells[stage] if fills_half else cells[behind]
            elif ascii:
                table[ord(tip)] = cells[stage] if fills_half else _ASCII_TIP
        tables[name] = table
        tables[f"{name}@"] = table
    return tables


def _tone_style(tone: Tone, theme: Theme, depth: Depth) -> ToneStyle:
    """How a tone looks in a theme."""
    attributes = _attributes(tone, theme, depth)
    if depth is Depth.NONE or theme.is_colourless:
        return ToneStyle(None, attributes)
    if tone.tint:
        return _tint_style(tone, theme, depth)
    colour, ground = _colours(tone, theme, depth)
    if "reverse" in attributes:
        colour = theme.foreground if tone.ground == "selected" else ground
        ground = theme.background
    return ToneStyle((colour, ground), attributes)


def _attributes(tone: Tone, theme: Theme, depth: Depth) -> Attributes:
    """Attributes of a tone; its own ones where there are no colours, or these do not show it."""
    if depth is Depth.NONE or theme.is_colourless:
        if tone.plain is not None:
            return tone.plain
    elif tone.own is not None and _needs_own(tone, theme, depth):
        return tone.own
    if tone.share < _DIM_BELOW and (theme.is_terminals_own or depth is Depth.NONE):
        return ("dim",)
    if tone.bold:
        return ("bold",)
    return ()


def _colours(tone: Tone, theme: Theme, depth: Depth) -> tuple[str, str]:
    """Foreground and ground; the terminal's own colours do not mix."""
    colour = _theme_colour(tone.colour, theme)
    ground = _theme_colour(tone.ground, theme)
    if theme.is_terminals_own:
        if tone in _TWO_STAGES:
            ground = theme.background
        return colour, ground
    share = tone.coarse_share if depth is Depth.PALETTE and tone.coarse_share else tone.share
    if share < 1.0:
        colour = _mix(colour, ground, share)
    return colour, ground


def _needs_own(tone: Tone, theme: Theme, depth: Depth) -> bool:
    """Whether a tone needs its own attributes: of the row under the cursor where that has no ground of its own, of
    other tones where the terminal's own colours are used."""
    if tone.ground != "selected":
        return theme.is_terminals_own
    return _ground_codes(theme.selected, depth) == _ground_codes(theme.background, depth)


_TWO_STAGES: Final = frozenset(tone for tone in BARS.values() if tone.ground != "background")
"""Tones of cells that show two stages: only colours of `#rrggbb` are told apart there."""


def _theme_colour(name: str, theme: Theme) -> str:
    """A colour of a theme, or one mixed of two of them; of the terminal's own colours, which do not mix, the first."""
    if name not in _MIXED_COLOURS:
        colour: str = getattr(theme, name)
        return colour
    first, second, share = _MIXED_COLOURS[name]
    if theme.is_terminals_own:
        return _theme_colour(first, theme)
    return _mix(_theme_colour(first, theme), _theme_colour(second, theme), share)


def _tint_style(tone: Tone, theme: Theme, depth: Depth) -> ToneStyle:
    """A tint, and the text on it."""
    if theme.is_terminals_own:
        return ToneStyle((theme.foreground, theme.background), ())
    ground = _mix(getattr(theme, tone.ground), theme.background, tone.tint)
    return ToneStyle((_text_on(_in_depth(ground, depth)), ground), ())


def _text_on(ground: Color) -> str:
    """Black or white, whichever is easier to read on a ground."""
    red, green, blue = map(_linear_light, ground.get_truecolor().normalized)
    # Relative luminance as WCAG 2 defines it.
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    if luminance > _EQUAL_CONTRAST_LUMINANCE:
        return "#000000"
    return "#ffffff"


def _linear_light(part: float) -> float:
    """One part of an sRGB colour as linear light (IEC 61966-2-1)."""
    if part <= 0.04045:
        return part / 12.92
    return math.pow((part + 0.055) / 1.055, 2.4)


def _mix(colour: str, ground: str, share: float) -> str:
    """`share` of one `#rrggbb` and the rest of another."""
    mixed = [
        round(share * part + (1.0 - share) * other_part)
        for part, other_part in zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    ]
    return "#" + bytes(mixed).hex()


def _style(style: ToneStyle) -> Style:
    """A tone as rich has it."""
    colour, ground = style.colours or (None, None)
    return Style(color=colour, bgcolor=ground, **dict.fromkeys(style.attributes, True))  # type: ignore[arg-type]  # the names of attributes are rich's own


def _code(style: ToneStyle, depth: Depth) -> Code:
    """The parameters that select a tone on a terminal."""
    attributes = [_SGR[attribute] for attribute in style.attributes]
    if style.colours is None:
        return Code(";".join(attributes), "")
    colour, ground = style.colours
    codes = _in_depth(colour, depth).get_ansi_codes()
    return Code(";".join([*attributes, *_ground_codes(ground, depth)]), ";".join(codes))


def _ground_codes(name: str, depth: Depth) -> tuple[str, ...]:
    """Parameters that select a ground: they are the same for two colours that the terminal cannot tell apart."""
    return _in_depth(name, depth).get_ansi_codes(foreground=False)


def _in_depth(name: str, depth: Depth) -> Color:
    """A colour, or the one nearest to it that the terminal shows."""
    return Color.parse(name).downgrade(_COLOUR_SYSTEMS.get(depth, ColorSystem.TRUECOLOR))
