"""Keys that the fleet's screen shares with that of one machine: settings, commands by name, bundles, what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli

from gpumon.config.keymap import COMMANDS
from gpumon.config.schema import Config, Prometheus
from gpumon.config.themes import load_theme
from gpumon.readings.fleet import FleetFrame
from gpumon.session.fleet import FleetSession
from gpumon.tui.fleet.app import FleetApp
from gpumon.tui.fleet.moment import MODELS
from gpumon.tui.screens.palette import is_command_of
from gpumon.tui.settings_table import FLEET_SETTINGS
from tests.fleet.fleets import EVERY_S
from tests.history.frames import WALL_S
from tests.tui.fleet_feed import CONFIG, NEWEST_S, Scrapes, has_rates, lost, watching
from tests.tui.running import foot, text_of, until
from tests.tui.test_keys import disk_at

LOST_S = WALL_S + 6 * EVERY_S
"""From when on a GPU of `Losing` is lost."""


class Losing(Scrapes):
    """One GPU of a host is lost halfway."""

    async def frame(self, at_s: float | None = None, hosts: object = None) -> FleetFrame:
        """The fleet at a time."""
        self.wrong = {} if at_s is not None and at_s < LOST_S else {"gpu02": lost}
        return await super().frame(at_s)


def screen_of(app: FleetApp) -> str:
    return "\n".join(text_of(app))


async def test_keys_of_a_hosts_screen_say_that_they_are_its_own_and_c_copies_the_rows_advice() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        assert app.monitor.body.table.selected.key == "gpu02"
        for key, does in (
            ("R", "roofline"),
            ("M", "mark"),
            ("L", "log"),
            ("3", "history"),
            ("i", "why a cell"),
        ):
            await pilot.press(key)
            await until(lambda: "on the screen of a host only (Enter opens it)" in foot(app), pilot)
            assert does in foot(app)
        await pilot.press("c")
        await until(lambda: "copied" in foot(app) or app.monitor.question_bar is not None, pilot)
        await pilot.press("escape", "G", "c")
        await until(lambda: "nothing" in foot(app), pilot)


async def test_only_settings_that_change_something_here_are_offered() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        await pilot.press("f2")
        assert "asked every" in screen_of(app)
        assert "GPUs every" not in screen_of(app)
        assert "engines every" not in screen_of(app)
        assert {setting.section for setting in FLEET_SETTINGS} == {"prometheus", "general", "screen", "levels", "goals"}
        await pilot.press("right")
        assert app.control.interval_s == 30.0
        await pilot.press("enter", *"7", "enter")
        assert app.control.interval_s == 7.0
        await pilot.press("enter", *"0.2", "enter")
        assert "asked every: must be" in foot(app)
        assert app.control.interval_s == 7.0
        await pilot.press("escape", "plus")
        assert app.control.interval_s == 10.0
        await pilot.press("e")
        assert any("asked every            10 s " in line for line in text_of(app))


async def test_a_setting_holds_at_once_on_both_screens() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        assert " GiB " in text_of(app)[2]
        await pilot.press("f2", "slash", *"memory", "enter", "right", "escape", "escape")
        assert app.monitor.pages.shown is None
        assert " GB " in text_of(app)[2]
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot)
        assert any("vram GB" in line for line in text_of(app))
        await pilot.press("f2")
        assert "asked every" in screen_of(app)
        assert "GPUs every" not in screen_of(app)


async def test_settings_are_saved_into_the_file(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    (tmp_path / "config.toml").write_text('[prometheus]\nurl = "http://a:1"  # ours\n')
    app = FleetApp(
        FleetSession(CONFIG, lambda: Scrapes(3)), load_theme("default"), CONFIG, disk, unix_time=lambda: NEWEST_S
    )
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: has_rates(app), pilot)
        await pilot.press("f2", "right", "w")
        await until(lambda: "saved to" in foot(app), pilot)
    text = (tmp_path / "config.toml").read_text()
    assert tomli.loads(text) == {"prometheus": {"url": "http://a:1", "interval_s": 30.0}}
    assert "# ours" in text


async def test_commands_that_do_nothing_here_are_not_offered() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, _):
        for command in COMMANDS:
            assert is_command_of(app.monitor, command) is (command.fleet is not None and command.scope != "sizing"), (
                command.id
            )


async def test_commands_by_their_name() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        await pilot.press("colon", *"models", "enter")
        await until(lambda: app.monitor.body.table.grouping == MODELS, pilot)
        await pilot.press("colon", *"models by busy", "enter")
        await until(lambda: getattr(app.monitor.body.table.filter.order, "name", "") == "busy", pilot)
        await pilot.press("question_mark", "ctrl+p", *"settings", "enter")
        await until(lambda: app.monitor.pages.shown is app.monitor.pages.by_name["settings"], pilot)
        await pilot.press("escape")
        await until(lambda: app.monitor.pages.shown is app.monitor.pages.by_name["help"], pilot)
        await pilot.press("colon", *"by mfu", "enter")
        await until(lambda: app.monitor.pages.shown is None, pilot)
        assert app.monitor.focused is app.monitor.body.table


async def test_themes_by_their_name(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    app = FleetApp(
        FleetSession(CONFIG, lambda: Scrapes(3)), load_theme("default"), CONFIG, disk, unix_time=lambda: NEWEST_S
    )
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: has_rates(app), pilot)
        before = app.palette.codes
        await pilot.press("colon", *"theme: light")
        await until(lambda: "theme: light" in screen_of(app).replace("command: theme: light", ""), pilot)
        await pilot.press("enter")
        await until(lambda: app.view.config.general.theme == "light", pilot)
        assert app.palette.codes != before


async def test_a_bundle_of_what_is_shown_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMETHEUS_PASSWORD", "hunter2")
    config = Config(
        prometheus=Prometheus(
            url="http://reader:s3cret@prometheus.example:9090/api", password_env="PROMETHEUS_PASSWORD"
        )
    )
    control = FleetSession(config, lambda: Scrapes(5))
    app = FleetApp(control, load_theme("default"), config, disk_at(tmp_path), unix_time=lambda: NEWEST_S)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: has_rates(app), pilot)
        await pilot.press("space", "left")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot)
        shown = text_of(app)
        await pilot.press("w")
        await until(lambda: "wrote gpumon-fleet-" in foot(app), pilot)
        (folder,) = tmp_path.rglob("gpumon-fleet-*")
        assert f" wrote {folder.name}/ in {tmp_path}" in foot(app)
    files = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert sorted(files) == ["screen.svg", "screen.txt", "snapshot.json", "verdicts.md", "versions.txt"]
    assert files["screen.txt"].splitlines()[:-1] == shown[:-1]
    assert "<svg" in files["screen.svg"]
    written = json.loads(files["snapshot.json"])
    assert [host["name"] for host in written["hosts"]] == ["gpu01", "gpu02", "gpu03", "gpu04", "gpu05"]
    assert written["time"].startswith("2027-01-15T08:02:33")
    assert "### gpu02 gpu 2: hardware fault (critical)" in files["verdicts.md"]
    assert "| gpu03 | ok | 8 | 4 |" in files["verdicts.md"]
    assert "gpu01 engine vllm:8000 vllm " in files["versions.txt"]
    assert not any(secret in text for text in files.values() for secret in ("s3cret", "hunter2", "reader"))


async def test_there_is_no_bundle_before_the_first_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = Scrapes(3)
    source.fault = "http://a:1 refuses the connection"
    app = FleetApp(FleetSession(CONFIG, lambda: source), load_theme("default"), CONFIG, disk_at(tmp_path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "refuses the connection" in screen_of(app), pilot)
        await pilot.press("w")
        assert "no answer yet" in foot(app)
    assert not list(tmp_path.rglob("gpumon-*"))


async def test_what_happened_on_the_host_under_the_cursor() -> None:
    async with watching(Losing(3), 120, 40) as (app, pilot):
        names = [row.name for row in app.monitor.body.table.listed_items()]
        await pilot.press("g", *["down"] * names.index("gpu02"), "n")
        assert "this is live" in foot(app)
        await pilot.press("N")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot)
        assert app.monitor.shown is not None
        there_s = app.monitor.shown.fleet.wall_s
        assert LOST_S <= there_s < LOST_S + 3 * EVERY_S
        assert " gpu02: " in foot(app)
        moments = {there_s}
        for _ in range(3):
            await pilot.press("N")
            await until(lambda: not app.monitor.travel.seeking, pilot)
            moments.add(app.monitor.shown.fleet.wall_s)
        await until(lambda: "nothing happened before this on gpu02" in foot(app), pilot)
        assert min(moments) <= there_s
        for _ in range(len(moments) - 1):
            await pilot.press("n")
            await until(lambda: not app.monitor.travel.seeking, pilot)
        assert app.monitor.shown.fleet.wall_s == there_s
        await pilot.press("end", "m", "N")
        assert "the host under the cursor: m shows the hosts" in foot(app)


async def test_where_nothing_happened_the_screen_stays_live() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        source.left = {row.name for row in app.monitor.body.table.listed_items()}
        await pilot.press("N")
        await until(lambda: "nothing happened before this on" in foot(app), pilot)
        assert not app.monitor.travel.paused


async def test_a_search_that_is_dropped_at_once_does_not_hinder_the_next_one() -> None:
    async with watching(Losing(3), 120, 40) as (app, pilot):
        names = [row.name for row in app.monitor.body.table.listed_items()]
        await pilot.press("g", *["down"] * names.index("gpu02"), "space")
        app.monitor.action_do("time.previous")
        app.monitor.action_do("pause")  # the two keys came in one read: the search has not begun
        assert not app.monitor.travel.paused
        await pilot.press("N")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot)


async def test_what_is_looked_for_on_another_host_is_a_search_of_its_own() -> None:
    async with watching(Losing(3), 120, 40) as (app, pilot):
        names = [row.name for row in app.monitor.body.table.listed_items()]
        await pilot.press("g", *["down"] * names.index("gpu01"))
        app.monitor.action_do("time.previous")
        app.monitor.current.move(names.index("gpu02") - names.index("gpu01"))
        app.monitor.action_do("time.previous")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot)
        assert " gpu02: " in foot(app)
