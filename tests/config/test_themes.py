"""Themes are read strictly; the user's own come before those of gpumon and may start from one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tomli
from msgspec.structs import asdict

from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.config.resources import resource
from gpumon.config.themes import COLOUR_NAMES, THEME_KEYS, Theme, known_themes, load_theme, read_theme, themes_folder
from tests.config.colour import contrast, distance, seen
from tests.each_row import each_row

FILES = sorted(path.stem for path in (Path(__file__).parents[2] / "themes").glob("*.toml"))
SHIPPED = ("default", *(name for name in FILES if name != "default"))
"""A theme is added by its file alone."""
DEFAULT = resource("themes/default.toml").read_text("utf-8")
A_COLOUR = (
    'must be a colour such as "#56b4e9", or one of the terminal\'s own: '
    "default, black, red, green, yellow, blue, magenta, cyan, white, or bright_ and one of these"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "themes").mkdir()
    return tmp_path / "themes"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def listed(*own: str) -> str:
    """The shipped themes and the user's own, in the order in which they are offered."""
    return ", ".join(("default", *sorted({*SHIPPED[1:], *own})))


def refusal(name: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load_theme(name, folder)
    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()
    return str(refused.value)


def test_these_themes_come_with_gpumon() -> None:
    assert known_themes() == SHIPPED


@each_row("name", SHIPPED)
def test_every_shipped_theme_has_the_same_keys_with_colours_of_one_kind(name: str) -> None:
    raw = tomli.loads(resource(f"themes/{name}.toml").read_text("utf-8"))
    assert tuple(raw) == THEME_KEYS
    theme = load_theme(name)
    assert asdict(theme) == raw
    named = {value in COLOUR_NAMES for value in raw.values()}
    assert named == {theme.is_terminals_own}
    assert theme.is_colourless is (name == "mono")


def test_themes_of_each_kind_come_with_gpumon() -> None:
    assert {"default", "ansi", "high-contrast", "light", "mono"} <= set(SHIPPED)
    assert load_theme("ansi").is_terminals_own
    assert not load_theme("default").is_terminals_own


def test_the_arithmetic_is_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0, abs=0.01)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known grey that just fails AA
    assert seen("#ff0000", "normal") == pytest.approx((53.2, 80.1, 67.2), abs=0.1)
    assert distance("#000000", "#ffffff", "normal") == pytest.approx(100.0, abs=0.1)
    # Red-blind eyes see pure red dark, and cannot tell it from a dark olive.
    assert distance("#ff0000", "#6e5d00", "protanopia") < 15 < distance("#ff0000", "#6e5d00", "tritanopia")


@pytest.mark.parametrize("name", ["nope", "", "../default", "default.toml", "DEFAULT", "a" * 200, "x\x1b[31m"])
def test_an_unknown_theme_names_the_known_ones(name: str, folder: Path) -> None:
    put(folder, "mine", 'base = "default"')
    assert f"themes: {listed('mine')}" in refusal(name, folder)
    assert refusal(name, folder).endswith(f" (your own go into {folder})")
    with pytest.raises(ConfigError, match=f"themes: {listed()}$"):
        load_theme(name)


@each_row(
    ("change", "expected"),
    [
        (("foreground = ", "foregruond = "), "t.toml:6: foregruond: unknown key; did you mean foreground?"),
        (('muted = "#98a3b0"', 'muted = "grey"'), f't.toml:7: muted = "grey": {A_COLOUR}'),
        (('muted = "#98a3b0"', 'muted = "#98a3b"'), f't.toml:7: muted = "#98a3b": {A_COLOUR}'),
        (('muted = "#98a3b0"', 'muted = "Red"'), f't.toml:7: muted = "Red": {A_COLOUR}'),
        (('muted = "#98a3b0"', "muted = 3"), "t.toml:7: muted = 3: must be text in quotes"),
        (
            ('muted = "#98a3b0"', 'muted = "red"'),
            't.toml:7: muted = "red": the others are #rrggbb: a theme is all #rrggbb or all names of the terminal\'s',
        ),
        (
            ('muted = "#98a3b0"', ""),
            't.toml: needs muted: a colour such as "#56b4e9"; or base = "default" for what it leaves out',
        ),
        (('muted = "#98a3b0"', "muted = ["), "t.toml:8: is not TOML: "),
        (('muted = "#98a3b0"', "base = 3"), "t.toml:7: base = 3: must be text in quotes"),
        (
            ('muted = "#98a3b0"', '[colours]\nmuted = "#98a3b0"'),
            "t.toml:7: colours: unknown key; known here: base, background",
        ),
    ],
)
def test_a_bad_theme_is_refused_with_its_line(change: tuple[str, str], expected: str) -> None:
    text = DEFAULT.replace(*change)
    assert text != DEFAULT
    with pytest.raises(ConfigError) as refused:
        read_theme(text, "t.toml", load_theme)
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


def test_a_user_s_theme_comes_before_the_shipped_one_of_its_name(folder: Path) -> None:
    put(folder, "light", DEFAULT)
    assert load_theme("light", folder) == load_theme("default")
    assert load_theme("light") != load_theme("default")
    assert known_themes(folder) == SHIPPED


def test_a_user_s_theme_may_start_from_another(folder: Path) -> None:
    put(folder, "mine", 'base = "light"\nok = "#000080"')
    put(folder, "evening", 'base = "mine"\nwarn = "#604000"')
    light = asdict(load_theme("light"))
    assert load_theme("mine", folder) == Theme(**{**light, "ok": "#000080"})
    assert load_theme("evening", folder) == Theme(**{**light, "ok": "#000080", "warn": "#604000"})
    assert ", ".join(known_themes(folder)) == listed("evening", "mine")


def test_a_user_s_theme_may_start_from_the_shipped_one_of_its_name(folder: Path) -> None:
    put(folder, "default", 'base = "default"\nok = "#80c0ff"')
    assert load_theme("default", folder) == Theme(**{**asdict(load_theme("default")), "ok": "#80c0ff"})


def test_a_theme_that_sets_everything_may_be_of_another_kind_than_its_base(folder: Path) -> None:
    put(folder, "mine", 'base = "ansi"\n' + DEFAULT)
    assert load_theme("mine", folder) == load_theme("default")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('base = "nope"', ':1: base = "nope": cannot start from it; themes: default, ansi'),
        ('\nbase = "../x"', ':2: base = "../x": cannot start from it; themes: default, ansi'),
        ('base = "mine"', ':1: base = "mine": cannot start from it; themes: '),
        ('base = "ansi"\nok = "#123456"', ':2: ok = "#123456": the others are names: a theme is all #rrggbb or all'),
        ('base = "light"\nok = "cyan"', ':2: ok = "cyan": the others are #rrggbb: a theme is all #rrggbb or all'),
        ("", ": needs background, foreground, muted"),
        ("x" * 1_100_000, ": is larger than 1 MiB: this is no theme"),
    ],
)
def test_a_bad_user_theme_names_its_file(folder: Path, text: str, expected: str) -> None:
    path = put(folder, "mine", text)
    assert refusal("mine", folder).startswith(f"{path}{expected}")


def test_themes_that_start_from_each_other_are_refused(folder: Path) -> None:
    put(folder, "one", 'base = "two"')
    put(folder, "two", 'base = "three"')
    path = put(folder, "three", '# round and round\nbase = "two"')
    expected = f'{path}:2: base = "two": cannot start from it; these themes start from each other: two -> three -> two'
    assert refusal("one", folder) == expected


def test_an_error_in_the_base_names_the_base(folder: Path) -> None:
    path = put(folder, "first", DEFAULT.replace("#f0d840", "#f0d84"))
    put(folder, "second", 'base = "first"')
    assert refusal("second", folder).startswith(f'{path}:14: warn = "#f0d84": must be a colour')


def test_what_is_no_readable_text_is_refused(folder: Path) -> None:
    (folder / "bytes.toml").write_bytes(b'base = "default"\nok = "\xff\xfe"')
    assert refusal("bytes", folder) == f"{folder}/bytes.toml:2: is not UTF-8 text"
    (folder / "dir.toml").mkdir()
    assert refusal("dir", folder) == f"{folder}/dir.toml: is not a file"
    os.mkfifo(folder / "pipe.toml")
    assert refusal("pipe", folder) == f"{folder}/pipe.toml: is not a file"
    (folder / "bom.toml").write_bytes(b'\xef\xbb\xbfbase = "default"')
    assert load_theme("bom", folder) == load_theme("default")


def test_no_folder_is_no_error(tmp_path: Path) -> None:
    for missing in (tmp_path / "none", tmp_path / "file" / "themes"):
        (tmp_path / "file").touch()
        assert known_themes(missing) == SHIPPED
        assert load_theme("light", missing) == load_theme("light")


def test_names_that_are_no_theme_s_are_not_offered(folder: Path) -> None:
    for name in ("UPPER", "two words", ".hidden", "ok"):
        put(folder, name, DEFAULT)
    assert ", ".join(known_themes(folder)) == listed("ok")


def test_the_user_s_themes_lie_beside_the_config(folder: Path) -> None:
    loaded = load("", {"XDG_CONFIG_HOME": str(folder.parent)})
    assert themes_folder(loaded.place) == folder.parent / "gpumon" / "themes"
    (folder.parent / "here.toml").touch()
    loaded = load(str(folder.parent / "here.toml"), {})
    assert themes_folder(loaded.place) == folder
    assert themes_folder(load("", {}).place) is None


def test_all_that_is_wrong_in_a_theme_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        read_theme(
            DEFAULT.replace('muted = "#98a3b0"', 'muted = "grey"').replace('ok = "', 'okay = "'), "t.toml", load_theme
        )
    assert len(refused.value.lines) == 2
