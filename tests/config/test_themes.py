"""Themes are read strictly, and every shipped one can be read by colour-blind eyes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from msgspec.structs import asdict

from gpumon.config.errors import ConfigError
from gpumon.config.resources import resource
from gpumon.config.themes import KEYS, Theme, known_themes, load_theme, read_theme

DEFAULT = resource("themes/default.toml").read_text("utf-8")

Matrix = tuple[tuple[float, float, float], ...]
IDENTITY: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
# Machado, Oliveira, Fernandes 2009, severity 1.0: linear RGB as seen with the colour vision deficiency.
DEFICIENCIES: dict[str, Matrix] = {
    "none": IDENTITY,
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
TEXT = ("foreground", "muted", "title", "accent", "ok", "warn", "critical", "sm", "mfu", "mbu", "tokens")
LEVELS = ("ok", "warn", "critical")


def linear(colour: str) -> tuple[float, float, float]:
    """sRGB to linear light (IEC 61966-2-1)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue))  # type: ignore[return-value]


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    shares = (0.2126, 0.7152, 0.0722)
    dark, light = sorted(_dot(shares, linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _dot(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def seen(colour: str, deficiency: Matrix) -> tuple[float, float, float]:
    """CIE Lab (D65) of a colour as seen with a deficiency."""
    light = linear(colour)
    red, green, blue = (min(1.0, max(0.0, _dot(row, light))) for row in deficiency)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.fixture(params=known_themes())
def theme(request: pytest.FixtureRequest) -> Theme:
    return load_theme(request.param)


def test_the_default_theme_comes_with_gpumon() -> None:
    assert "default" in known_themes()


@pytest.mark.parametrize("key", TEXT)
def test_text_stands_out_from_the_background(theme: Theme, key: str) -> None:
    assert contrast(getattr(theme, key), theme.background) >= 4.5


@pytest.mark.parametrize("key", ["foreground", "muted", "title", "ok", "warn"])
def test_text_of_the_title_line_stands_out_from_it(theme: Theme, key: str) -> None:
    assert contrast(getattr(theme, key), theme.selected) >= 4.5


def test_badges_stand_out(theme: Theme) -> None:
    assert contrast(theme.background, theme.warn) >= 4.5
    assert contrast(theme.background, theme.accent) >= 4.5


def test_the_light_tone_of_the_bar_is_visible(theme: Theme) -> None:
    """WCAG 1.4.11 asks 3 of graphics."""
    assert contrast(theme.busy, theme.background) >= 3.0


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_levels_are_told_apart_by_every_eye(theme: Theme, deficiency: str) -> None:
    matrix = DEFICIENCIES[deficiency]
    for one, other in itertools.combinations(LEVELS, 2):
        assert math.dist(seen(getattr(theme, one), matrix), seen(getattr(theme, other), matrix)) >= 20, (one, other)


@pytest.mark.parametrize("deficiency", ["none", "protanopia", "deuteranopia"])
def test_the_two_tones_and_the_two_efficiencies_differ(theme: Theme, deficiency: str) -> None:
    matrix = DEFICIENCIES[deficiency]
    assert math.dist(seen(theme.busy, matrix), seen(theme.sm, matrix)) >= 20
    assert math.dist(seen(theme.mfu, matrix), seen(theme.mbu, matrix)) >= 20


def test_the_contrast_formula_is_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the well-known grey that just fails AA


@pytest.mark.parametrize("name", ["nope", "", "../default", "default.toml", "DEFAULT", "a" * 200, "x\x1b[31m"])
def test_an_unknown_theme_names_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_theme(name)
    assert "themes: " in str(refused.value)
    assert "default" in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("foreground = ", "foregruond = "), 't.toml:5: foregruond = "#d8dee6": unknown key; did you mean foreground?'),
        (('muted = "#8b96a3"', 'muted = "grey"'), 't.toml:6: muted = "grey": must be a colour such as "#56b4e9"'),
        (('muted = "#8b96a3"', 'muted = "#8b96a"'), 't.toml:6: muted = "#8b96a": must be a colour such as "#56b4e9"'),
        (('muted = "#8b96a3"', "muted = 3"), 't.toml:6: muted = 3: must be a colour such as "#56b4e9"'),
        (('muted = "#8b96a3"', ""), 't.toml: needs muted: a colour such as "#56b4e9"'),
        (('muted = "#8b96a3"', "muted = ["), "t.toml: is not TOML: "),
        (
            ('muted = "#8b96a3"', '[colours]\nmuted = "#8b96a3"'),
            "t.toml:6: colours = {...}: unknown key; known: background",
        ),
    ],
)
def test_a_bad_theme_is_refused_with_its_line(change: tuple[str, str], expected: str) -> None:
    text = DEFAULT.replace(*change)
    assert text != DEFAULT
    with pytest.raises(ConfigError) as refused:
        read_theme(text, "t.toml")
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


def test_a_theme_file_that_is_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "broken.toml").write_bytes(b"\xff\xfe")
    monkeypatch.setattr("gpumon.config.resources._PLACES", (tmp_path,))
    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8 text"):
        load_theme("broken")


def test_every_key_of_the_schema_is_in_the_file(theme: Theme) -> None:
    assert tuple(asdict(theme)) == KEYS
