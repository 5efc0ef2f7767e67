"""A theme follows its files: each change is taken once, each error is said once, and the last good colours stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.resources import resource
from gpumon.config.theme_watch import ThemeFile
from gpumon.config.themes import Theme, load_theme

RED = 'base = "default"\nok = "#ff0000"'
GREEN = 'base = "default"\nok = "#00ff00"'
BAD = 'base = "default"\nok = "green!"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path / "mine.toml", RED)


def save(path: Path, text: str) -> Path:
    """As editors do: another file takes its place."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    return beside.replace(path)


def touched(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


def ok_of(changed: Theme | ConfigError | None) -> str:
    assert isinstance(changed, Theme), changed
    return changed.ok


def test_a_change_is_taken_once(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    assert watched.theme.ok == "#ff0000"
    assert watched.changed() is None
    save(path, GREEN)
    assert ok_of(watched.changed()) == "#00ff00"
    assert watched.theme.ok == "#00ff00"
    assert watched.changed() is None


def test_writing_in_place_is_seen_too(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    path.write_text(GREEN + "\n", encoding="utf-8")
    assert ok_of(watched.changed()) == "#00ff00"


def test_the_same_content_is_no_change(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    save(path, RED)
    assert watched.changed() is None
    touched(path)
    assert watched.changed() is None
    save(path, "# only words\n" + RED)
    assert watched.changed() is None


def test_an_error_is_said_once_per_content_and_the_last_good_theme_stays(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    save(path, BAD)
    error = watched.changed()
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f'{path}:2: ok = "green!": must be a colour')
    assert watched.theme.ok == "#ff0000"
    assert watched.changed() is None
    touched(path)
    assert watched.changed() is None
    save(path, BAD + "\n")
    assert isinstance(watched.changed(), ConfigError)
    save(path, RED)
    assert watched.changed() is None, "the colours on the screen are these"
    save(path, BAD)
    assert isinstance(watched.changed(), ConfigError)
    save(path, GREEN)
    assert ok_of(watched.changed()) == "#00ff00"


def test_a_deleted_file_is_said_once_and_looked_for(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    path.unlink()
    assert str(watched.changed()) == f"{path} is gone: its colours stay until it is back"
    assert watched.changed() is None
    assert watched.theme.ok == "#ff0000"
    save(path, GREEN)
    assert ok_of(watched.changed()) == "#00ff00"
    path.unlink()
    assert isinstance(watched.changed(), ConfigError)


def test_the_shipped_theme_does_not_take_the_place_of_a_deleted_one(tmp_path: Path) -> None:
    path = save(tmp_path / "light.toml", RED)
    watched = ThemeFile("light", tmp_path)
    path.unlink()
    assert isinstance(watched.changed(), ConfigError)
    assert watched.theme.ok == "#ff0000"
    assert watched.changed() is None


def test_what_a_theme_starts_from_is_watched(path: Path) -> None:
    save(path.parent / "child.toml", 'base = "mine"\nwarn = "#ffff00"')
    watched = ThemeFile("child", path.parent)
    save(path, GREEN)
    assert ok_of(watched.changed()) == "#00ff00"
    path.unlink()
    assert str(watched.changed()) == f"{path} is gone: its colours stay until it is back"
    save(path.parent / "child.toml", 'base = "light"')
    assert watched.changed() == load_theme("light")
    assert watched.changed() is None


def test_a_base_that_comes_later_heals_it(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    save(path, 'base = "later"')
    assert isinstance(watched.changed(), ConfigError)
    save(path.parent / "later.toml", GREEN)
    assert ok_of(watched.changed()) == "#00ff00"


def test_a_new_file_of_the_user_takes_the_shipped_one_s_place(tmp_path: Path) -> None:
    folder = tmp_path / "themes"
    watched = ThemeFile("default", folder)
    assert watched.changed() is None
    folder.mkdir()
    save(folder / "default.toml", GREEN)
    assert ok_of(watched.changed()) == "#00ff00"


def test_a_file_that_is_half_written_is_an_error_and_then_fine(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    whole = resource("themes/light.toml").read_text("utf-8")
    save(path, whole[: len(whole) // 2])
    assert isinstance(watched.changed(), ConfigError)
    save(path, whole)
    assert watched.changed() == load_theme("light")


def test_an_unreadable_file_is_said_once(path: Path) -> None:
    watched = ThemeFile("mine", path.parent)
    path.unlink()
    path.mkdir()
    assert str(watched.changed()) == f"{path}: cannot be read: Is a directory"
    assert watched.changed() is None
    path.rmdir()
    save(path, GREEN)
    assert ok_of(watched.changed()) == "#00ff00"


def test_it_starts_with_a_good_theme_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no theme"):
        ThemeFile("mine", tmp_path)
