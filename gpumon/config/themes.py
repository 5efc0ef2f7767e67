"""Themes: the colours of the screen, from TOML files: those that come with gpumon, and the user's own before them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpumon.config.checks import pattern_rule
from gpumon.config.errors import ConfigError, Refused, toml_value
from gpumon.config.load import config_error, parse_toml, read_file
from gpumon.config.resources import resource
from gpumon.config.rules import Rulebook
from gpumon.config.validate import validated
from gpumon.readings.text import clean

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""A name of a theme."""
_EIGHT: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
"""Colours that every terminal has."""
COLOUR_NAMES: Final = ("default", *_EIGHT, *(f"bright_{name}" for name in _EIGHT))
"""The terminal's own colours; `default` is that of its plain text or ground."""


class Theme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours by what they mean: all `#rrggbb`, or all names of the terminal's own (`COLOUR_NAMES`)."""

    background: str
    foreground: str
    muted: str
    border: str
    title: str
    accent: str
    selected: str
    """Background of the title line and of the row under the cursor; where it is no other than `background`, that row is
    reversed."""
    ok: str
    """Calm; like the three that follow also the colour of bars at this level."""
    note: str
    """Worth a look."""
    warn: str
    critical: str
    busy: str
    """Curve of the time in which a kernel ran."""
    sm: str
    """Curve of the SMs at work."""
    mfu: str
    mbu: str
    tokens: str

    @property
    def is_terminals_own(self) -> bool:
        """Whether the colours are the terminal's own."""
        return not self.background.startswith("#")

    @property
    def is_colourless(self) -> bool:
        """Whether there is no colour at all: every one is the terminal's default."""
        return set(msgspec.structs.astuple(self)) == {"default"}


THEME_KEYS: Final = tuple(field.name for field in msgspec.structs.fields(Theme))
_COLOUR_HINT: Final = (
    'must be a colour such as "#56b4e9", or one of the terminal\'s own: '
    f"{', '.join(('default', *_EIGHT))}, or bright_ and one of these"
)
_ColourText = Annotated[str, pattern_rule(rf"#[0-9A-Fa-f]{{6}}|{'|'.join(COLOUR_NAMES)}", _COLOUR_HINT)]
_ThemeFile = msgspec.defstruct(
    "_ThemeFile", [("base", str, ""), *((key, _ColourText, "") for key in THEME_KEYS)], frozen=True
)
"""Content of a theme's file. It may leave out any colour, which `base` gives then: no default is ever read."""
_THEME_RULES: Final = Rulebook(_ThemeFile)


def load_theme(name: str, folder: Path | None = None) -> Theme:
    """The theme of that name: `folder`'s (the user's), else the one that comes with gpumon. Raises ConfigError."""
    theme_or_reason = _theme_or_reason(name, folder, ())
    if isinstance(theme_or_reason, str):
        advice = f" (your own go into {clean(str(folder))})" if folder is not None else ""
        raise ConfigError(f"there is no theme {toml_value(name)}; {theme_or_reason}{advice}")
    return theme_or_reason


def known_themes(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the themes in `folder` and of those that come with gpumon: `default` first, then by the alphabet."""
    stems = set()
    for themes in _folders(folder):
        for path in themes.glob("*.toml"):
            stems.add(path.stem)
    names = filter(_NAME.fullmatch, stems)
    return tuple(sorted(names, key=lambda name: (name != "default", name)))


def themes_folder(config: str) -> Path | None:
    """The folder of the user's own themes: beside the config file, whether that is there or not (empty: no place)."""
    if config:
        return Path(config).parent / "themes"
    return None


def _theme_or_reason(name: str, own_folder: Path | None, descendants: tuple[Path, ...]) -> Theme | str:
    """A theme, or why there is none. `descendants`: the files that start from it, the nearest last."""
    if _NAME.fullmatch(name):
        for folder in _folders(own_folder):
            path = folder / f"{name}.toml"
            if descendants[-1:] == (path,):
                continue  # the user's `default` may start from the `default` that comes with gpumon
            if path in descendants:
                names = [descendant.stem for descendant in descendants[descendants.index(path) :]]
                return f"these themes start from each other: {' -> '.join([*names, name])}"
            text = _read_theme_file(path)
            if text is not None:
                # `read_theme` calls this function again for the theme that the file names as its base.
                base_of = partial(_theme_or_reason, own_folder=own_folder, descendants=(*descendants, path))
                return read_theme(text, str(path), base_of)
    return f"themes: {', '.join(known_themes(own_folder)) or 'none is installed'}"


def _read_theme_file(path: Path) -> str | None:
    """Text of a theme's file; None if there is none. Raises ConfigError."""
    if path.exists() and not path.is_file():  # a pipe would wait for its writer
        raise ConfigError(f"{clean(str(path))}: is not a file")
    return read_file(path, must_exist=False, what="theme")


def read_theme(text: str, where: str, base_of: Callable[[str], Theme | str]) -> Theme:
    """A theme from its TOML text; `where` is its file, for errors. Raises ConfigError with a line for each.

    `base_of` gives the theme that `base` names, or says why not.
    """
    raw = parse_toml(text, where)
    try:
        settings = msgspec.structs.asdict(validated(raw, _ThemeFile, book=_THEME_RULES))
        own_colours = {key: value for key, value in settings.items() if key in raw}
        base = _base_colours(own_colours.pop("base", None), base_of)
        colours = {**base, **own_colours}
        _check_complete(colours, where)
        _check_one_kind(own_colours, base)
    except Refused as refused:
        raise config_error(refused, where, text) from None
    return Theme(**colours)


def _check_complete(colours: Mapping[str, str], where: str) -> None:
    """Refuse a theme without some of the colours. Raises ConfigError."""
    missing = [key for key in THEME_KEYS if key not in colours]
    if missing:
        fault = f'needs {", ".join(missing)}: a colour such as "#56b4e9"; or base = "default" for what it leaves out'
        raise ConfigError(f"{clean(where)}: {fault}")


def _base_colours(name: str | None, base_of: Callable[[str], Theme | str]) -> dict[str, str]:
    """Colours of the theme that another one starts from; none where it starts from nothing. Raises Refused."""
    if name is None:
        return {}
    base = base_of(name)
    if isinstance(base, str):
        raise Refused(("base",), f"cannot start from it; {base}", name)
    return msgspec.structs.asdict(base)


def _check_one_kind(own_colours: Mapping[str, str], base: Mapping[str, str]) -> None:
    """Refuse colours of two kinds: all are like those that come from the base, else like the first. Raises Refused."""
    inherited = [colour for key, colour in base.items() if key not in own_colours]
    first_colour = next(iter((*inherited, *own_colours.values())))  # it is there: the colours are complete
    expected_kind = _kind(first_colour)
    for key, colour in own_colours.items():
        if _kind(colour) != expected_kind:
            rule = "a theme is all #rrggbb or all names of the terminal's colours"
            raise Refused((key,), f"the others are {expected_kind}: {rule}", colour)


def _kind(colour: str) -> str:
    """How a colour is written, as errors say it."""
    if colour.startswith("#"):
        return "#rrggbb"
    return "names"


def _folders(folder: Path | None) -> list[Path]:
    """The user's folder of themes, if there is one, then gpumon's."""
    folders = []
    if folder is not None:
        folders.append(folder)
    with contextlib.suppress(FileNotFoundError):
        folders.append(resource("themes"))
    return folders
