"""What the screen reads and writes on disk: real files in a folder of the test's own."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from pathlib import Path

import pytest
import tomli

import gpumon
from gpumon.commands.files import ScreenFiles
from gpumon.config.environment import from_text
from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.history.file import RECORDING
from gpumon.outputs.json import encode
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Event, EventKind, Level
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.control import BundleFacts
from tests.records import replace
from tests.tui import scenes
from tests.tui.past import Kept

THEME = ("general", "theme")
INTERVAL = ("general", "interval_s")


def disk_at(folder: Path, text: str | None = "") -> ScreenFiles:
    path = folder / "config.toml"
    if text is not None:
        path.write_text(text)
    return ScreenFiles(
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
    disk = ScreenFiles(load("", environ), environ)
    written, said = await disk.save_settings({THEME: "light"})
    path = tmp_path / ".config" / "gpumon" / "config.toml"
    assert (written, said) == (True, f"saved to {path}")
    assert load("", environ).config.general.theme == "light"


async def test_an_option_stands_above_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    disk = ScreenFiles(load(str(path), {"GPUMON_THEME": "mono"}, [from_text("--interval", INTERVAL, "2")]), {})
    _, said = await disk.save_settings({INTERVAL: 5.0, THEME: "light", ("screen", "span_s"): 600.0})
    assert said == (
        f"saved to {path}; --interval stands above it while it is given; GPUMON_THEME stands above it while it is given"
    )
    assert disk.origins["general.interval_s"] == "--interval"
    assert disk.origins["screen.span_s"] == "file"


async def test_without_a_home_the_lines_to_paste_are_given() -> None:
    written, said = await ScreenFiles(load("", {}), {}).save_settings({INTERVAL: 2.0})
    assert not written
    assert said == "not saved: no home folder is known; lines to put there by hand:\n[general]\ninterval_s = 2.0\n"


def incident(snapshot: Snapshot | None = None, timeline: Kept | None = None) -> BundleFacts:
    event = Event(scenes.WALL_S - 5.0, EventKind.XID, "gpu 3", "Xid 79", level=Level.CRITICAL)
    return BundleFacts(snapshot or scenes.snapshot(), "the screen", lambda: "<svg/>", (event,), timeline)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_a_bundle_holds_it_all_for_the_user_alone_and_is_never_written_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    disk = disk_at(tmp_path)
    name = "gpumon-gpu-07-20251009-085322"
    snapshot = scenes.snapshot()
    said = await disk.save_bundle(incident(snapshot, Kept([snapshot])))
    kept = tmp_path / ".local" / "state" / "gpumon" / "bundles"
    assert said == f"wrote {name}/ in {kept}"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    folder = kept / name
    texts = ("screen.svg", "screen.txt", "snapshot.json", "verdicts.md", "versions.txt")
    assert modes(folder) == dict.fromkeys((RECORDING, *texts), 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "screen.txt").read_text() == "the screen\n"
    assert (folder / "screen.svg").read_text() == "<svg/>\n"
    assert (folder / "snapshot.json").read_bytes() == encode(snapshot) + b"\n"
    assert (folder / RECORDING).read_text() == "1 frames"
    assert "| 2025-10-09 08:53:17+00:00 | critical | xid | gpu 3 | Xid 79 |" in (folder / "verdicts.md").read_text()
    versions = (folder / "versions.txt").read_text().splitlines()
    assert f"gpumon {gpumon.__version__}" in versions
    assert "driver 580.95.05" in versions
    assert any(line.startswith("engine vllm:8000 vllm ") for line in versions)
    assert await disk.save_bundle(incident()) == f"wrote {name}-2/ in {kept}, without a recording: no past is kept"
    assert sorted(modes(kept / f"{name}-2")) == sorted(texts)
    (kept / f"{name}-3").symlink_to("elsewhere")
    assert f"{name}-4/" in await disk.save_bundle(incident())
    assert not (kept / "elsewhere").exists()
    with_card = await disk.save_bundle(incident()._replace(card=lambda: "<svg>card</svg>"))
    assert (kept / with_card.split("/")[0].removeprefix("wrote ") / "card.svg").read_text() == "<svg>card</svg>\n"


@pytest.mark.parametrize("host", ["../../etc/x", "a b\x1b[31m/c", "", "ü" * 300, "..."])
async def test_a_name_from_outside_stays_in_the_folder(host: str, tmp_path: Path) -> None:
    inside = tmp_path / ".local" / "state" / "gpumon" / "bundles"
    snapshot = scenes.snapshot()
    said = await disk_at(tmp_path).save_bundle(incident(replace(snapshot, host=replace(snapshot.host, name=host))))
    assert said.isprintable()
    assert len(list(inside.glob("gpumon-*"))) == 1


async def test_where_the_state_folder_can_not_be_written_the_home_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "file").touch()
    disk = ScreenFiles(load("", {}), {"HOME": str(home), "XDG_STATE_HOME": str(tmp_path / "file")})
    said = await disk.save_bundle(incident(timeline=Kept([scenes.snapshot()])))
    assert said.startswith("wrote gpumon-gpu-07-")
    assert said.endswith(f"/ in {home}")
    assert len(list(home.iterdir())) == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    said = await ScreenFiles(load("", {}), {"HOME": str(tmp_path / "file")}).save_bundle(incident())
    assert said.startswith(f"nothing was written: {tmp_path}"[:60])
    assert ": Not a directory; " in said
    assert said.isprintable()


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[str] = []
    opened = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        made.append(str(path))
        return opened(path if "screen" not in str(path) else "/dev/full", flags & ~os.O_EXCL, mode)

    monkeypatch.setattr(os, "open", full)
    said = await ScreenFiles(load("", {}), {}).save_bundle(incident())
    monkeypatch.undo()
    assert "No space left on device" in said
    assert len(made) > 2
    assert not list(tmp_path.iterdir())


async def test_a_recording_that_can_not_be_written_is_named_and_the_rest_is_kept(
    tmp_path: Path,
) -> None:
    class Full(Kept):
        async def write(self, path: str) -> None:
            Path(path).write_text("half of it")
            Path(f"{path}-journal").write_text("and this")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    said = await disk_at(tmp_path).save_bundle(incident(timeline=Full([scenes.snapshot()])))
    assert said.startswith(f"WITHOUT {RECORDING} (No space left on device): wrote gpumon-gpu-07-")
    (folder,) = tmp_path.rglob("gpumon-*")
    assert len(modes(folder)) == 5


async def test_the_users_own_theme_is_read_when_it_is_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "themes"
    folder.mkdir()
    mine = folder / "mine.toml"
    mine.write_text('base = "default"\naccent = "#ff0000"\n')
    disk = disk_at(tmp_path, '[general]\ntheme = "mine"\n')
    assert disk.first_theme().accent == "#ff0000"
    assert "mine" in await disk.themes()
    mine.write_text('base = "default"\naccent = "#00ff00ff"\n')
    with pytest.raises(ConfigError, match=r"mine\.toml:2: accent"):
        await disk.theme("mine")
    mine.write_text('base = "default"\naccent = "#00ff00"\n')
    assert (await disk.theme("mine")).accent == "#00ff00"
    with pytest.raises(ConfigError, match="there is no theme"):
        await disk.theme("nosuch")


async def test_a_disk_that_hangs_does_not_hold_the_loop_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    disk = ScreenFiles(load("", {"XDG_CONFIG_HOME": str(tmp_path.parent)}), {})
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
