"""What the screen reads and writes on disk: real files in a folder of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
import tomli
from msgspec.structs import replace

from gpumon.config.environment import from_text
from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.config.themes import Theme
from gpumon.disk import Disk
from gpumon.outputs.json import encode
from gpumon.readings.snapshot import Host
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.tui import scenes

THEME = ("general", "theme")
INTERVAL = ("general", "interval_s")


def disk_at(folder: Path, text: str | None = "") -> Disk:
    path = folder / "config.toml"
    if text is not None:
        path.write_text(text)
    return Disk(
        load(str(path) if text is not None else "", {"XDG_CONFIG_HOME": str(folder.parent)}), {"HOME": str(folder)}
    )


async def test_settings_are_saved_and_their_origin_is_the_file(tmp_path: Path) -> None:
    disk = disk_at(tmp_path, "# mine\n")
    assert await disk.save_settings({INTERVAL: 2.0}) == (True, f"saved to {tmp_path / 'config.toml'}")
    assert disk.settings.general.interval_s == 2.0
    assert disk.origins["general.interval_s"] == "file"
    await disk.save_settings({("goals", "itl_p95_ms"): 40.0})
    await disk.save_settings({("goals", "itl_p95_ms"): None})
    assert disk.settings.goals.itl_p95_ms is None
    assert not disk.origins["goals.itl_p95_ms"]
    assert tomli.loads((tmp_path / "config.toml").read_text()) == {"general": {"interval_s": 2.0}, "goals": {}}


async def test_settings_that_only_fit_together_are_saved_together(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    written, _ = await disk.save_settings({("levels", "kv_warn"): 0.99, ("levels", "kv_critical"): 0.995})
    assert written
    assert (disk.settings.levels.kv_warn, disk.settings.levels.kv_critical) == (0.99, 0.995)
    written, _ = await disk.save_settings({("levels", "kv_critical"): 0.5, ("levels", "kv_warn"): 0.4})
    assert written
    assert load(str(tmp_path / "config.toml"), {}).config == disk.settings


async def test_without_a_file_one_is_made_where_it_is_looked_for(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    disk = Disk(load("", environ), environ)
    written, said = await disk.save_settings({THEME: "light"})
    path = tmp_path / ".config" / "gpumon" / "config.toml"
    assert (written, said) == (True, f"saved to {path}")
    assert load("", environ).config.general.theme == "light"


async def test_an_option_stands_above_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    disk = Disk(load(str(path), {"GPUMON_THEME": "mono"}, [from_text("--interval", INTERVAL, "2")]), {})
    _, said = await disk.save_settings({INTERVAL: 5.0, THEME: "light", ("screen", "span_s"): 600.0})
    assert said == (
        f"saved to {path}; --interval stands above it while it is given; GPUMON_THEME stands above it while it is given"
    )
    assert disk.origins["general.interval_s"] == "--interval"
    assert disk.origins["screen.span_s"] == "file"


async def test_without_a_home_the_lines_to_paste_are_given() -> None:
    written, said = await Disk(load("", {}), {}).save_settings({INTERVAL: 2.0})
    assert not written
    assert said == "not saved: no home folder is known; lines to put there by hand:\n[general]\ninterval_s = 2.0\n"


async def test_a_snapshot_is_written_as_json_and_as_text_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = disk_at(tmp_path)
    snapshot = scenes.snapshot()
    name = "gpumon-gpu-07-20251009-085322"
    monkeypatch.setenv("TZ", "UTC")
    assert await disk.save_snapshot(snapshot, "the screen") == f"wrote {name}.json and .txt in {tmp_path}"
    assert (tmp_path / f"{name}.txt").read_text() == "the screen\n"
    assert (tmp_path / f"{name}.json").read_bytes() == encode(snapshot) + b"\n"
    assert json.loads((tmp_path / f"{name}.json").read_text())["host"]["name"] == "gpu-07"
    assert stat.S_IMODE((tmp_path / f"{name}.json").stat().st_mode) == 0o600
    assert await disk.save_snapshot(snapshot, "again") == f"wrote {name}-2.json and .txt in {tmp_path}"
    (tmp_path / f"{name}-3.txt").symlink_to("elsewhere")
    assert await disk.save_snapshot(snapshot, "third") == f"wrote {name}-4.json and .txt in {tmp_path}"
    assert sorted(file.name for file in tmp_path.glob(f"{name}-3*")) == [f"{name}-3.txt"]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("host", ["../../etc/x", "a b\x1b[31m/c", "", "ü" * 300, "..."])
async def test_a_name_from_outside_stays_in_the_folder(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    snapshot = scenes.snapshot()
    said = await disk_at(tmp_path).save_snapshot(replace(snapshot, host=replace(snapshot.host, name=host)), "")
    assert said.isprintable()
    assert len(list(inside.glob("gpumon-*"))) == 2
    assert isinstance(snapshot.host, Host)


async def test_where_the_folder_can_not_be_written_the_home_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, home = tmp_path / "gone", tmp_path / "home"
    gone.mkdir()
    home.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    disk = Disk(load("", {}), {"HOME": str(home)})
    said = await disk.save_snapshot(scenes.snapshot(), "the screen")
    assert said.startswith("wrote gpumon-gpu-07-")
    assert said.endswith(f".json and .txt in {home}")
    assert len(list(home.iterdir())) == 2
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    said = await Disk(load("", {}), {"HOME": str(tmp_path / "nobody")}).save_snapshot(scenes.snapshot(), "")
    assert said.startswith("nothing was written: .: No such file or directory; ")
    assert said.isprintable()


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/dev")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[str] = []
    opened = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        made.append(str(path))
        return opened("/dev/full", os.O_WRONLY)

    monkeypatch.setattr(os, "open", full)
    said = await Disk(load("", {}), {}).save_snapshot(scenes.snapshot(), "")
    monkeypatch.undo()
    assert "No space left on device" in said
    assert made
    assert not list(tmp_path.iterdir())


async def test_the_users_theme_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "themes"
    folder.mkdir()
    mine = folder / "mine.toml"
    mine.write_text('base = "default"\naccent = "#ff0000"\n')
    disk = disk_at(tmp_path, '[general]\ntheme = "mine"\n')
    assert disk.first_theme().accent == "#ff0000"
    assert "mine" in await disk.themes()
    assert await disk.theme_changed() is None
    mine.write_text('base = "default"\naccent = "#00ff00ff"\n')
    said = await disk.theme_changed()
    assert isinstance(said, str)
    assert "mine.toml:2: accent" in said
    assert await disk.theme_changed() is None
    mine.write_text('base = "default"\naccent = "#00ff00"\n')
    changed = await disk.theme_changed()
    assert isinstance(changed, Theme)
    assert changed.accent == "#00ff00"
    with pytest.raises(ConfigError, match="there is no theme"):
        await disk.theme("nosuch")
    await disk.theme("light")
    mine.write_text('base = "default"\naccent = "#0000ff"\n')
    assert await disk.theme_changed() is None


async def test_a_disk_that_hangs_does_not_hold_the_loop_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    disk = Disk(load("", {"XDG_CONFIG_HOME": str(tmp_path.parent)}), {})
    disk._place = str(tmp_path / "config.toml")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(disk.save_settings({INTERVAL: 2.0}), 0.2)


SCENARIO = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(Workload("openai/gpt-oss-20b", 64.0),))


async def test_a_scenario_is_saved_by_name_once_and_read_back(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    assert await disk.scenarios() == ()
    place = tmp_path / "scenarios" / "mine.toml"
    assert await disk.save_scenario(SCENARIO, "mine") == (True, f"saved to {place}")
    assert await disk.scenarios() == ("mine",)
    assert await disk.load_scenario("mine") == SCENARIO
    assert await disk.load_scenario(str(place)) == SCENARIO
    assert await disk.save_scenario(SCENARIO, "mine") == (False, f"{place} is there already")


async def test_a_scenario_at_a_path(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    written, said = await disk.save_scenario(SCENARIO, "~/own.toml")
    assert (written, said) == (True, f"saved to {tmp_path / 'own.toml'}")
    assert await disk.load_scenario("~/own.toml") == SCENARIO


@pytest.mark.parametrize("name", [".hidden", "a\x1bb"])
async def test_what_is_no_name_for_a_scenario(name: str, tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    written, said = await disk.save_scenario(SCENARIO, name)
    assert not written
    assert said.isprintable()
    with pytest.raises(ConfigError, match="is no name"):
        await disk.load_scenario(name)


async def test_an_impossible_scenario_is_not_written(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    written, said = await disk.save_scenario(Scenario(workload=(Workload("m", 0.0),)), "zero")
    assert not written
    assert "target" in said
    assert await disk.scenarios() == ()
