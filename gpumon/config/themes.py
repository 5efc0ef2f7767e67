"""Themes: the colours of the screen, from TOML files: those that come with gpumon, and the user's own before them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gpumon.config.errors import ConfigError, shown
from gpumon.config.lines import line_of
from gpumon.config.load import parsed
from gpumon.config.resources import resource
from gpumon.readings.text import clean

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HEX: Final = re.compile(r"#[0-9A-Fa-f]{6}")
_EIGHT: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
NAMES: Final = ("default", *_EIGHT, *(f"bright_{name}" for name in _EIGHT))
"""The terminal's own colours; `default` is that of its plain text or ground."""
_MOST_BYTES: Final = 1 << 16
"""A theme file larger than this is refused unread."""


class Theme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours by what they mean: all `#rrggbb`, or all names of the terminal's own (`NAMES`)."""

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
    warn: str
    critical: str
    busy: str
    """Light tone of the two-tone bar."""
    sm: str
    """Solid tone of the two-tone bar."""
    mfu: str
    mbu: str
    tokens: str

    @property
    def named(self) -> bool:
        """Whether the colours are the terminal's own."""
        return not self.background.startswith("#")

    @property
    def colourless(self) -> bool:
        """Whether there is no colour at all: every one is the terminal's default."""
        return set(msgspec.structs.astuple(self)) == {"default"}


KEYS: Final = tuple(field.name for field in msgspec.structs.fields(Theme))


def load_theme(name: str, folder: Path | None = None) -> Theme:
    """The theme of that name: `folder`'s (the user's), else the one that comes with gpumon. Raises ConfigError."""
    found = _found(name, folder, ())
    if isinstance(found, str):
        more = f" (your own go into {clean(str(folder))})" if folder is not None else ""
        raise ConfigError(f"there is no theme {shown(name)}; {found}{more}")
    return found


def known_themes(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the themes in `folder` and of those that come with gpumon: `default` first, then by the alphabet."""
    names = {name for place in _folders(folder) for name in _names(place)}
    return tuple(sorted(names, key=lambda name: (name != "default", name)))


def _names(folder: Path) -> list[str]:
    try:
        return [path.stem for path in folder.glob("*.toml") if _NAME.fullmatch(path.stem)]
    except OSError:
        return []


def themes_folder(config: str) -> Path | None:
    """The folder of the user's own themes: beside the config file, whether that is there or not (empty: no place)."""
    return Path(config).parent / "themes" if config else None


def _found(name: str, own: Path | None, above: tuple[Path, ...]) -> Theme | str:
    """A theme, or why there is none. `above`: the files that start from it, the nearest last."""
    for folder in _folders(own) if _NAME.fullmatch(name) else ():
        path = folder / f"{name}.toml"
        if above[-1:] == (path,):
            continue
        if path in above:
            names = [place.stem for place in above[above.index(path) :]]
            return f"these themes start from each other: {' -> '.join([*names, name])}"
        text = _text(path)
        if text is not None:
            return read_theme(text, str(path), partial(_found, own=own, above=(*above, path)))
    return f"themes: {', '.join(known_themes(own)) or 'none is installed'}"


def _text(path: Path) -> str | None:
    """What a theme's file holds; None where there is none. Raises ConfigError."""
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(f"{clean(str(path))}: is not a file")
            content = stream.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        raise ConfigError(f"{clean(str(path))}: cannot be read: {failure.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{clean(str(path))}: is larger than 64 KiB: this is no theme")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content[: failure.start].count(b"\n") + 1
        raise ConfigError(f"{clean(str(path))}:{line}: is not UTF-8 text") from None


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe, too, at once."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_theme(text: str, where: str, base_of: Callable[[str], Theme | str] = load_theme) -> Theme:
    """A theme from its TOML text; `where` is its file, for errors. Raises ConfigError in one line.

    `base_of` gives the theme that `base` names, or says why not.
    """
    raw = parsed(text, where)

    def refused(key: str, problem: str) -> ConfigError:
        return ConfigError(f"{clean(where)}:{line_of(text, (key,))}: {clean(key, 40)} = {shown(raw[key])}: {problem}")

    for key, value in raw.items():
        if problem := _problem(key, value):
            raise refused(key, problem)
    own = {key: value for key, value in raw.items() if key != "base"}
    colours: dict[str, str] = dict(own)
    if "base" in raw:
        base = base_of(raw["base"])
        if isinstance(base, str):
            raise refused("base", f"cannot start from it; {base}")
        colours = {**msgspec.structs.asdict(base), **own}
    if missing := [key for key in KEYS if key not in colours]:
        raise ConfigError(
            f'{clean(where)}: needs {", ".join(missing)}: a colour such as "#56b4e9"; '
            'or base = "default" for what it leaves out'
        )
    if odd := _odd_one(colours, own):
        others = "names" if colours[odd].startswith("#") else "#rrggbb"
        raise refused(odd, f"the others are {others}: a theme is all #rrggbb or all names of the terminal's colours")
    return Theme(**colours)


def _folders(folder: Path | None) -> list[Path]:
    """The user's folder, then gpumon's."""
    places = [folder] if folder is not None else []
    try:
        return [*places, resource("themes")]
    except FileNotFoundError:
        return places


def _odd_one(colours: Mapping[str, str], own: Mapping[str, str]) -> str:
    """The first of a file's own keys that is of another kind than what it starts from, or else than its first."""
    inherited = [value for key, value in colours.items() if key not in own]
    kinds = [value.startswith("#") for value in (*inherited, *own.values())]
    return next((key for key, value in own.items() if value.startswith("#") is not kinds[0]), "")


def _problem(key: str, value: Any) -> str:
    if key == "base":
        return "" if isinstance(value, str) else 'must be the name of a theme, such as "default"'
    if key not in KEYS:
        from difflib import get_close_matches

        nearest = get_close_matches(key, (*KEYS, "base"), n=1)
        return "unknown key; " + (f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(KEYS)}, base")
    if not isinstance(value, str) or not (_HEX.fullmatch(value) or value in NAMES):
        return (
            'must be a colour such as "#56b4e9", or one of the terminal\'s own: '
            f"{', '.join(NAMES[:9])}, or bright_ and one of these"
        )
    return ""
