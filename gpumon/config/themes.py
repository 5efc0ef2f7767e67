"""Themes: the colours of the screen, read from the TOML files in themes/."""

from __future__ import annotations

import re

import msgspec
import tomli

from gpumon.config.errors import ConfigError, shown
from gpumon.config.lines import line_of
from gpumon.config.resources import resource
from gpumon.readings.text import clean

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


class Theme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Colours as `#rrggbb`, by what they mean."""

    background: str
    foreground: str
    muted: str
    border: str
    title: str
    accent: str
    selected: str
    """Background of the title line."""
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


KEYS = tuple(field.name for field in msgspec.structs.fields(Theme))


def load_theme(name: str) -> Theme:
    """The theme `themes/<name>.toml` that comes with gpumon. Raises ConfigError in one line."""
    known = known_themes()
    if not _NAME.fullmatch(name) or name not in known:
        raise ConfigError(f"there is no theme {shown(name)}; themes: {', '.join(known) or 'none is installed'}")
    path = resource(f"themes/{name}.toml")
    try:
        return read_theme(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {why}") from None


def known_themes() -> tuple[str, ...]:
    """Names of the themes that come with gpumon."""
    try:
        folder = resource("themes")
    except FileNotFoundError:
        return ()
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def read_theme(text: str, where: str) -> Theme:
    """A theme from its TOML text; `where` is its file, for errors. Raises ConfigError in one line."""
    try:
        raw = tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError) as failure:
        raise ConfigError(f"{clean(where)}: is not TOML: {clean(str(failure))}") from None
    for key, value in raw.items():
        problem = _problem(key, value)
        if problem:
            raise ConfigError(f"{clean(where)}:{line_of(text, (key,))}: {clean(key, 40)} = {shown(value)}: {problem}")
    missing = [key for key in KEYS if key not in raw]
    if missing:
        raise ConfigError(f'{clean(where)}: needs {", ".join(missing)}: a colour such as "#56b4e9"')
    return Theme(**raw)


def _problem(key: str, value: object) -> str:
    if key not in KEYS:
        from difflib import get_close_matches

        nearest = get_close_matches(key, KEYS, n=1)
        return "unknown key; " + (f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(KEYS)}")
    if not isinstance(value, str) or not _COLOUR.fullmatch(value):
        return 'must be a colour such as "#56b4e9"'
    return ""
