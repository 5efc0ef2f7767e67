"""Imported profiles on disk: real files in a folder of the test's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.profile_store import (
    absence_reason,
    all_profiles,
    builtin_profiles,
    checked_name,
    profile_folder,
    remove_profile,
    safe_name,
    store_profiles,
    stored_profiles,
)
from gpumon.config.save import NotSavedError
from gpumon.sizing.profile import Observed, Origin, Point
from tests.each_row import each_row
from tests.records import replace

SWEPT = Observed(
    origin=Origin.SWEEP,
    name="mine",
    model="Qwen/Qwen3-32B",
    points=(Point(running=1.0, offered=1.0, itl_s=0.01, tokens_per_s=100.0), Point(running=7.9, offered=8.0, weight=3)),
    gpu="H100 SXM5 80GB",
    gpus=2,
    prompt_tokens=1024.0,
    concurrency=8.0,
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"GPUMON_PROFILES": str(tmp_path / "profiles")}


def place(environ: dict[str, str]) -> Path:
    return Path(environ["GPUMON_PROFILES"])


def test_the_folder_is_the_variable_then_xdg_then_home() -> None:
    assert profile_folder({"GPUMON_PROFILES": "/a", "XDG_DATA_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert profile_folder({"XDG_DATA_HOME": "/b", "HOME": "/c"}) == Path("/b/gpumon/profiles")
    assert profile_folder({"XDG_DATA_HOME": "relative", "HOME": "/c"}) == Path("/c/.local/share/gpumon/profiles")
    assert profile_folder({}) is None
    assert all_profiles({}) == builtin_profiles()
    with pytest.raises(ConfigError, match="set GPUMON_PROFILES"):
        store_profiles([SWEPT], {})


def test_what_is_stored_comes_back_exactly(environ: dict[str, str]) -> None:
    (path,) = store_profiles([SWEPT], environ, notes=("a note",))
    assert path == place(environ) / "mine.json"
    assert all_profiles(environ)["mine"] == SWEPT
    assert stored_profiles(environ).profiles["mine"].notes == ("a note",)
    assert json.loads(path.read_text())["schema"] == 1
    assert [each.name for each in place(environ).iterdir()] == ["mine.json"]


def test_the_guides_tables_are_there_and_stay(environ: dict[str, str]) -> None:
    assert all_profiles(environ)["guide-nemo-5b"].memory_bytes == 12.41e9
    assert all_profiles(environ)["guide-nemo-20b"].concurrency == 16.0
    with pytest.raises(ConfigError, match="comes with gpumon and cannot be removed"):
        remove_profile("guide-nemo-5b", environ)
    with pytest.raises(ConfigError, match="belongs to a profile that comes with gpumon"):
        store_profiles([replace(SWEPT, name="Guide-NeMo-5B")], environ, replace=True)


def test_a_file_that_hides_one_of_gpumons_profiles_can_be_removed(environ: dict[str, str]) -> None:
    (own,) = store_profiles([SWEPT], environ)
    own.rename(own.with_name("guide-nemo-5b.json"))
    assert all_profiles(environ)["guide-nemo-5b"].model == SWEPT.model
    remove_profile("guide-nemo-5b", environ)
    assert all_profiles(environ) == builtin_profiles()


def test_a_taken_name_is_refused_without_replace(environ: dict[str, str]) -> None:
    store_profiles([SWEPT], environ)
    other = replace(SWEPT, model="other")
    with pytest.raises(ConfigError, match=r"mine: a profile of this name is there; --replace overwrites"):
        store_profiles([replace(SWEPT, name="new"), other], environ)
    assert sorted(stored_profiles(environ).profiles) == ["mine"]
    assert all_profiles(environ)["mine"].model == "Qwen/Qwen3-32B"
    store_profiles([other], environ, replace=True)
    assert all_profiles(environ)["mine"].model == "other"
    for replace_taken in (False, True):
        with pytest.raises(ConfigError, match=r"^mine: there is a profile of this name in other letter case$"):
            store_profiles([replace(SWEPT, name="MINE")], environ, replace=replace_taken)
    with pytest.raises(ConfigError, match="two profiles of this name"):
        store_profiles([replace(SWEPT, name="a"), replace(SWEPT, name="A")], environ)


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSavedError, match=r"profiles/mine\.json cannot be written: Not a directory"):
        store_profiles([SWEPT], {"GPUMON_PROFILES": str(tmp_path / "file" / "profiles")})


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into a folder that is read-only")
def test_a_folder_that_is_read_only_is_named(environ: dict[str, str]) -> None:
    place(environ).mkdir()
    place(environ).chmod(0o500)
    with pytest.raises(NotSavedError, match="cannot be written: Permission denied"):
        store_profiles([SWEPT], environ)


BROKEN = {
    "cut.json": (b'{"schema": 1, "profile": {"origin"', "is no profile: "),
    "newer.json": (
        b'{"schema": 2, "profile": {"future": 1}}',
        "was written by a newer gpumon (schema 2; this one reads 1)",
    ),
    "field.json": (
        b'{"schema": 1, "profile": {"origin": "sweep", "name": "x", "model": 5}}',
        "Expected `str`, got `int`",
    ),
    "figure.json": (
        b'{"schema": 1, "profile": {"origin": "sweep", "name": "x", "model": "m", "tp": -2}}',
        "is no profile: tp = -2: must be a whole number from 0 to 100000",
    ),
    "point.json": (
        b'{"schema": 1, "profile": {"origin": "sweep", "name": "x", "model": "m", "points": [{"running": -1}]}}',
        "is no profile: points[0].running = -1.0: must be a number from 0 to 1e+15",
    ),
    "deep.json": (b'{"schema": 1, "profile": ' + b"[" * 100_000, "is no profile: "),
    "binary.json": (b"\x00\xff\x00", "is no profile: "),
    "large.json": (b" " * (5 << 20), "larger than 4 MiB"),
    "bad name.json": (
        b'{"schema": 1, "profile": {"origin": "sweep", "name": "x", "model": "m"}}',
        "has a name that no profile may have",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_can_not_be_read_is_named_and_the_others_still_work(environ: dict[str, str], name: str) -> None:
    store_profiles([SWEPT], environ)
    content, why = BROKEN[name]
    (place(environ) / name).write_bytes(content)
    found = stored_profiles(environ)
    assert list(found.profiles) == ["mine"]
    (line,) = found.broken.values()
    assert name in line
    assert why in line
    assert "mine" in all_profiles(environ)


def test_a_pipe_is_no_profile_and_is_not_waited_for(environ: dict[str, str]) -> None:
    place(environ).mkdir()
    os.mkfifo(place(environ) / "pipe.json")
    path = place(environ) / "pipe.json"
    assert stored_profiles(environ).broken == {path: f"{path}: is no file"}


def test_what_could_not_be_read_again_is_not_stored(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^profile other: gpus = 1: must be at least tp x pp, or 0$"):
        store_profiles([SWEPT, replace(SWEPT, name="other", gpus=1, tp=2)], environ)
    assert not place(environ).exists()


def test_a_profile_that_is_absent_is_explained(environ: dict[str, str]) -> None:
    store_profiles([SWEPT], environ)
    (place(environ) / "cut.json").write_text("{")
    stored = stored_profiles(environ)
    assert absence_reason("mime", stored) == "there is no profile 'mime'; did you mean mine?"
    assert absence_reason("guide-nemo-6b", stored).startswith(
        "there is no profile 'guide-nemo-6b'; did you mean guide-nemo-5b"
    )
    assert absence_reason("cut", stored).startswith(f"{place(environ)}/cut.json: is no profile")


def test_a_broken_file_of_a_relative_folder_is_explained(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place(environ).mkdir()
    monkeypatch.chdir(place(environ))
    Path("cut.json").write_text("{")
    assert absence_reason("cut", stored_profiles({"GPUMON_PROFILES": "."})).startswith("cut.json: is no profile")


def test_other_files_and_unfinished_ones_are_no_profiles(environ: dict[str, str]) -> None:
    store_profiles([SWEPT], environ)
    (place(environ) / ".mine.json.123.abc").write_text("{")
    (place(environ) / ".hidden.json").write_text("{")
    (place(environ) / "README.md").write_text("x")
    (place(environ) / "folder.json").mkdir()
    found = stored_profiles(environ)
    assert list(found.profiles) == ["mine"]
    (line,) = found.broken.values()
    assert "folder.json: cannot be read: Is a directory" in line


def test_removing(environ: dict[str, str]) -> None:
    store_profiles([SWEPT], environ)
    with pytest.raises(ConfigError, match="there is no profile 'mime'; did you mean mine"):
        remove_profile("mime", environ)
    with pytest.raises(ConfigError, match="is no name for a profile"):
        remove_profile("../mine", environ)
    assert remove_profile("mine", environ) == place(environ) / "mine.json"
    assert all_profiles(environ) == builtin_profiles()


def test_texts_of_a_file_are_made_safe_to_print(environ: dict[str, str]) -> None:
    place(environ).mkdir()
    evil = {
        "schema": 1,
        "profile": {"origin": "sweep", "name": "x", "model": "a\x1b[2J", "tool": "\u202e"},
        "notes": ["\u202e"],
    }
    (place(environ) / "evil.json").write_text(json.dumps(evil))
    found = all_profiles(environ)["evil"]
    assert (found.name, found.model, found.tool) == ("evil", "a\\x1b[2J", "\\u202e")
    assert stored_profiles(environ).profiles["evil"].notes == ("\\u202e",)


@each_row(
    ("text", "name"),
    [
        ("Qwen/Qwen3-32B", "Qwen-Qwen3-32B"),
        ("../../etc/passwd", "etc-passwd"),
        ("-rf *", "rf"),
        ("\x1b[2J", "2J"),
        ("模型", "profile"),
        ("a" * 200, "a" * 80),
        (".", "profile"),
    ],
)
def test_any_text_makes_a_safe_name(text: str, name: str) -> None:
    assert safe_name(text) == name
    assert checked_name(safe_name(text)) == name


@each_row("text", ["", "a/b", "..", "-x", "a b", "x" * 81, "a\n"])
def test_a_typed_name_has_to_be_one(text: str) -> None:
    with pytest.raises(ConfigError, match="is no name for a profile; allowed: letters, digits"):
        checked_name(text)


def test_where_the_disk_refuses_one_profile_none_of_them_is_left(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync
    calls = []

    def full_at_the_second_file(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:  # the first file and its folder came before
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_the_second_file)
    with pytest.raises(NotSavedError, match="No space left on device"):
        store_profiles([SWEPT, replace(SWEPT, name="other")], environ)
    assert len(calls) == 3
    assert list(place(environ).iterdir()) == []
