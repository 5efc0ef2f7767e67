"""The settings page: what it shows, what its keys change at once, and what it writes into the user's file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from gpumon.commands.files import ScreenFiles
from gpumon.config.load import load
from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Palette
from gpumon.tui.settings_table import SETTINGS, Setting
from gpumon.tui.terminal import Depth
from tests.each_row import each_row
from tests.tui.running import commands_of, foot, names_of, question_of, run_named, running, text_of, until
from tests.tui.test_keys import disk_at, feed_of, type_keys

BY_KEY = {setting.id: setting for setting in SETTINGS}


def line_of(app: MonitorApp, name: str) -> str:
    return next(line for line in text_of(app) if f" {name} " in line)


def keys_to(name: str) -> list[str]:
    """From the page's top to a setting."""
    return ["g", *["j"] * [setting.id for setting in SETTINGS].index(name)]


def test_every_setting_is_in_the_schema_and_shows_its_default() -> None:
    config = Config()
    for setting in SETTINGS:
        assert hasattr(getattr(config, setting.section), setting.key)
        assert setting.show(setting.value(config))
        assert setting.means.endswith(".")
    assert len(BY_KEY) == len(SETTINGS)
    for section in ("screen", "levels", "goals"):
        fields = {field.name for field in msgspec.structs.fields(getattr(config, section))}
        assert {setting.key for setting in SETTINGS if setting.section == section} == fields


@each_row(
    ("name", "text", "value"),
    [
        ("general.interval_s", "0.5", 0.5),
        ("general.interval_s", "2 min", 120.0),
        ("screen.span_s", "1h", 3600.0),
        ("levels.vram_warn", "95", 0.95),
        ("levels.vram_warn", "95%", 0.95),
        ("levels.vram_warn", "0,9", 0.9),
        ("levels.vram_warn", "1.0", 1.0),
        ("levels.vram_warn", "1", 0.01),
        ("levels.vram_warn", "1.0%", 0.01),
        ("levels.vram_warn", "1.5", 0.015),
        ("levels.temperature_warn_c", "83 °C", 83.0),
        ("goals.ttft_p95_ms", "1.5 s", 1500.0),
        ("goals.ttft_p95_ms", "400", 400.0),
        ("goals.ttft_p95_ms", "none", None),
        ("goals.ttft_p95_ms", " ", None),
    ],
)
def test_numbers_are_typed_with_or_without_their_unit(name: str, text: str, value: float | None) -> None:
    read = BY_KEY[name].read
    assert read is not None
    assert read(text) == value


@each_row("text", ["x", "1 kg", "1 2", "--1", "-1", "nan", "inf", "1e9", "0x1"])
@each_row("name", ["general.interval_s", "levels.vram_warn", "levels.temperature_warn_c", "goals.itl_p95_ms"])
def test_what_is_no_number_is_refused(name: str, text: str) -> None:
    read = BY_KEY[name].read
    assert read is not None
    with pytest.raises(ValueError, match="must be a number"):
        read(text)


@each_row("setting", [setting for setting in SETTINGS if setting.read])
def test_what_is_shown_may_be_typed(setting: Setting) -> None:
    assert setting.read is not None
    for value in setting.choices:
        assert setting.read(setting.text_to_type(value)) == value


def test_steps_go_on_from_any_value_and_end_at_the_last() -> None:
    interval, goal = BY_KEY["general.interval_s"], BY_KEY["goals.itl_p95_ms"]
    assert [interval.value_beside(3.0, step) for step in (1, -1)] == [5.0, 2.0]
    assert [interval.value_beside(0.25, -1), interval.value_beside(3000.0, 1)] == [0.25, 3000.0]
    assert [goal.value_beside(None, 1), goal.value_beside(10.0, -1), goal.value_beside(None, -1)] == [10.0, None, None]
    glyphs = BY_KEY["screen.glyphs"]
    assert [glyphs.value_beside("auto", -1), glyphs.value_beside("ascii", 1)] == ["ascii", "auto"]


async def test_every_setting_changes_at_once_and_goes_back_to_its_default(tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "f2")
        for setting in SETTINGS:
            await type_keys(app, pilot, *keys_to(setting.id))
            before = line_of(app, setting.name)
            assert "default" in before
            await type_keys(app, pilot, *(("enter", "enter", "escape") if setting.pane else ("right",)))
            await until(lambda setting=setting: setting.value(app.view.config) != setting.value(Config()), pilot)  # type: ignore[misc]
            after = line_of(app, setting.name)
            assert "changed, not saved" in after
            assert ("from the next start" in after) is setting.later
            assert "1 not saved" in text_of(app)[2]
            await type_keys(app, pilot, "delete")
            await until(lambda: app.view.config == Config(), pilot)
            assert line_of(app, setting.name) == before


async def test_an_interval_that_is_changed_holds_at_once() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "f2", "right")
        assert feed.interval_s == 2.0
        await type_keys(app, pilot, "+")
        assert feed.interval_s == 5.0
        await type_keys(app, pilot, "-", "left", "right")
        assert feed.interval_s == 2.0
        await type_keys(app, pilot, "enter", *"7.5", "enter")
        assert feed.interval_s == 7.5
        await type_keys(app, pilot, "escape")
        assert "1 change holds until gpumon ends" in foot(app)
        assert not app.monitor.travel.paused


async def test_the_display_is_paused_here_as_everywhere() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "f2", "space")
        assert app.monitor.travel.paused
        assert "resume" in foot(app)
        assert app.view.config == Config()
        await type_keys(app, pilot, "p")
        assert not app.monitor.travel.paused


async def test_the_first_key_typed_replaces_the_number_and_a_cursor_key_keeps_it() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("levels.temperature_warn_c"), "enter", "8")
        assert "temperature warning: 8 " in question_of(app)[0]
        await type_keys(app, pilot, "0", "enter")
        assert app.view.config.levels.temperature_warn_c == 80.0
        await type_keys(app, pilot, "enter")
        assert "temperature warning: 80°C " in question_of(app)[0]
        await type_keys(app, pilot, "home", "delete", "7", "enter")
        assert app.view.config.levels.temperature_warn_c == 70.0


@pytest.mark.parametrize(
    ("width", "name", "said"),
    [
        (120, "general.mouse", "changed, not saved: from the next start once saved"),
        (80, "general.mouse", "not saved: from next start"),
        (80, "screen.memory_unit", "changed, not saved"),
        (60, "general.mouse", "not saved"),
        (60, "screen.memory_unit", "not saved"),
    ],
)
async def test_what_is_said_of_a_change_fits_the_width(width: int, name: str, said: str) -> None:
    async with running("live", width, 24) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to(name), "right")
        assert line_of(app, BY_KEY[name].name)[49:].strip() == said


async def test_a_rate_changed_by_its_key_is_seen_on_the_page_and_no_other_change_undoes_it() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "+", ">", "f2")
        assert "changed, not saved" in line_of(app, "GPUs every")
        assert "changed, not saved" in line_of(app, "charts go back")
        await type_keys(app, pilot, *keys_to("levels.kv_warn"), "left")
        assert feed.interval_s == 2.0


REFUSED = [
    ("general.interval_s", "0.1", "must be a number from 0.25 to 3600"),
    ("general.interval_s", "soon", "must be a number, such as 1 s"),
    ("levels.vram_warn", "99.5", "must be at least vram_warn"),
    ("goals.itl_p95_ms", "0", "must be a number above 0"),
]
"""A setting, what is typed for it, and what is said then."""


async def test_what_is_not_allowed_is_said_and_changes_nothing() -> None:
    async with running("live", 120, 40) as (app, pilot):
        for name, typed, said in REFUSED:
            await type_keys(app, pilot, "f2", *keys_to(name), "enter", "ctrl+u", *typed, "enter")
            assert said in foot(app)
            assert app.view.config == Config()
            await type_keys(app, pilot, "escape", "escape")


async def test_units_and_columns_change_the_panes() -> None:
    async with running("live", 120, 40) as (app, pilot):
        head = text_of(app)[3]
        assert "GiB" in head
        assert "power" in head
        await type_keys(app, pilot, "f2", *keys_to("screen.memory_unit"), "right", "escape")
        assert "GiB" not in text_of(app)[3]
        await type_keys(app, pilot, "f2", *keys_to("screen.hidden_columnsgpus"), "enter")
        names = [
            choice.name for choice in (app.monitor.question_bar.choices if app.monitor.question_bar is not None else ())
        ]
        await type_keys(app, pilot, *["j"] * names.index("power"), "space", "escape", "escape")
        assert "power" not in text_of(app)[3]
        assert app.view.config.screen.hidden_columns == ("gpus.power",)


async def test_a_theme_is_shown_while_it_is_chosen_and_escape_brings_the_old_one_back(tmp_path: Path) -> None:
    codes = {name: Palette(load_theme(name), Depth.TRUE).codes for name in ("default", "light")}
    async with running("live", 80, 24, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("general.theme"), "enter")
        await until(lambda: len(names_of(app)) > 1, pilot)
        names = [
            choice.name for choice in (app.monitor.question_bar.choices if app.monitor.question_bar is not None else ())
        ]
        await type_keys(app, pilot, *["j"] * names.index("light"))
        await until(lambda: app.palette.codes == codes["light"], pilot)
        await type_keys(app, pilot, "escape")
        await until(lambda: app.palette.codes == codes["default"], pilot)
        assert app.view.config == Config()
        await type_keys(app, pilot, "enter", *["j"] * names.index("light"), "enter")
        await until(lambda: app.palette.codes == codes["light"], pilot)
        assert app.view.config.general.theme == "light"


def own_theme(folder: Path, name: str, text: str) -> None:
    (folder / "themes").mkdir(exist_ok=True)
    (folder / "themes" / f"{name}.toml").write_text(text)


async def test_a_theme_that_can_not_be_read_never_becomes_the_setting(tmp_path: Path) -> None:
    own_theme(tmp_path, "aaa", "accent = 7\n")
    disk = disk_at(tmp_path)
    async with running("live", 200, 40, files=disk) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("general.theme"))
        await until(lambda: "aaa" in app.monitor.screen_settings.themes, pilot)
        await type_keys(app, pilot, "right")
        await until(lambda: "aaa.toml:1" in foot(app), pilot)
        assert app.view.config == Config()
        await type_keys(app, pilot, "w")
        assert "nothing is changed" in foot(app)
        await type_keys(app, pilot, "right")
        await until(lambda: app.view.config.general.theme == app.monitor.screen_settings.themes[2], pilot)
        await type_keys(app, pilot, "escape")
        await run_named(app, pilot, "theme: aaa")
        await until(lambda: "aaa.toml:1" in foot(app), pilot)
        assert app.view.config.general.theme == app.monitor.screen_settings.themes[2]
    assert (tmp_path / "config.toml").read_text() == ""


async def test_what_is_wrong_with_a_theme_is_said_each_time_that_it_is_asked_for(tmp_path: Path) -> None:
    own_theme(tmp_path, "aaa", "accent = 7\n")
    async with running("live", 200, 40, files=disk_at(tmp_path)) as (app, pilot):
        for _ in range(2):
            await run_named(app, pilot, "theme: aaa")
            await until(lambda: "aaa.toml:1" in foot(app), pilot)
            await type_keys(app, pilot, "j")
            assert "aaa.toml:1" not in foot(app)
        await type_keys(app, pilot, "f2", *keys_to("general.theme"))
        for _ in range(2):
            await type_keys(app, pilot, "enter", "j", "enter")
            await until(lambda: "aaa.toml:1" in foot(app), pilot)


async def test_a_theme_stepped_to_and_left_at_once_is_not_the_setting_afterwards(tmp_path: Path) -> None:
    async with running("live", 80, 24, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("general.theme"))
        await until(lambda: len(app.monitor.screen_settings.themes) > 3, pilot)
        await type_keys(app, pilot, "right", "right", "right")
        await until(lambda: app.view.config.general.theme == app.monitor.screen_settings.themes[3], pilot)
        await type_keys(app, pilot, "delete")
        await until(lambda: app.view.config == Config(), pilot)
        await type_keys(app, pilot, "enter", "j", "escape")
        await until(lambda: app.view.config == Config(), pilot)
        await asyncio.sleep(0.1)
        assert app.view.config == Config()


async def test_a_theme_made_meanwhile_is_there_at_the_next_opening(tmp_path: Path) -> None:
    async with running("live", 80, 24, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "f2")
        await until(lambda: app.monitor.screen_settings.themes != (), pilot)
        await type_keys(app, pilot, "escape")
        own_theme(tmp_path, "mine", 'base = "default"\n')
        await type_keys(app, pilot, ":", *"theme")
        await until(lambda: any(name.endswith(" mine") for name in commands_of(app)), pilot)
        own_theme(tmp_path, "other", 'base = "default"\n')
        await type_keys(app, pilot, "escape")
        await until(lambda: app.screen is app.monitor, pilot)
        await type_keys(app, pilot, "f2", *keys_to("general.theme"), "enter")
        await until(lambda: {"mine", "other"} <= set(names_of(app)), pilot)


async def test_plain_characters_at_once() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("general.ascii"), "right")
        await until(lambda: "\n".join(text_of(app)).isascii(), pilot)
        await type_keys(app, pilot, "left")
        await until(lambda: not "\n".join(text_of(app)).isascii(), pilot)


async def test_changes_are_saved_with_one_key_and_comments_stay(tmp_path: Path) -> None:
    disk = disk_at(tmp_path, "# mine\n[general]\ninterval_s = 2.0  # slow\n")
    async with running("live", 80, 24, config=disk.settings, files=disk) as (app, pilot):
        await type_keys(app, pilot, "f2")
        assert line_of(app, "GPUs every").endswith("file")
        await type_keys(app, pilot, "right", *keys_to("goals.itl_p95_ms"), "right")
        assert "save 2" in text_of(app)[-2]
        await type_keys(app, pilot, "w")
        await until(lambda: "saved to" in foot(app), pilot)
        assert line_of(app, "next token (p95)").endswith("file")
        assert "not saved" not in "\n".join(text_of(app))
        await type_keys(app, pilot, "w")
        assert "nothing is changed" in foot(app)
        await type_keys(app, pilot, "escape")
        assert "until gpumon ends" not in foot(app)
    text = (tmp_path / "config.toml").read_text()
    assert text == "# mine\n[general]\ninterval_s = 5.0  # slow\n\n[goals]\nitl_p95_ms = 10.0\n"


async def test_an_option_that_stands_above_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    disk = ScreenFiles(load(str(path), {"GPUMON_INTERVAL": "2"}), {})
    async with running("live", 240, 40, config=disk.settings, files=disk) as (app, pilot):
        await type_keys(app, pilot, "f2")
        assert line_of(app, "GPUs every").endswith("GPUMON_INTERVAL")
        await type_keys(app, pilot, "right", "w")
        await until(lambda: "GPUMON_INTERVAL stands above it" in foot(app), pilot)
    assert path.read_text() == "[general]\ninterval_s = 5.0\n"


async def test_where_nothing_can_be_written_the_lines_to_paste_are_shown(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    path = tmp_path / "config.toml"
    async with running("live", 100, 30, files=disk) as (app, pilot):
        path.write_text("[general]\nintervall_s = 1\n")
        await type_keys(app, pilot, "f2", "right", "w")
        await until(lambda: "interval_s = 2.0" in "\n".join(text_of(app)), pilot)
        shown = "\n".join(text_of(app))
        assert "not saved" in shown
        assert "did you mean interval_s?" in shown
        assert "[general]" in shown
        await type_keys(app, pilot, "escape")
        assert "changed, not saved" in line_of(app, "GPUs every")
    assert path.read_text() == "[general]\nintervall_s = 1\n"


async def test_no_key_acts_on_the_list_under_the_lines_to_paste(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    async with running("live", 100, 30, files=disk) as (app, pilot):
        (tmp_path / "config.toml").write_text("[general]\nintervall_s = 1\n")
        await type_keys(app, pilot, "f2", "right", "w")
        await until(lambda: "interval_s = 2.0" in "\n".join(text_of(app)), pilot)
        shown, config = text_of(app), app.view.config
        await type_keys(app, pilot, "delete", "/", "j", "enter", "+", "left", "o", "j", "j")
        assert text_of(app) == shown
        assert app.view.config == config
        await type_keys(app, pilot, "escape")
        assert line_of(app, "GPUs every").startswith("▸")


@pytest.mark.parametrize("column", [0, 1])
async def test_columns_hidden_and_shown_again_are_no_change(column: int, tmp_path: Path) -> None:
    disk = disk_at(tmp_path, '[screen]\nhidden_columns = ["gpus.power", "engines.kv"]\n')
    async with running("live", 100, 40, config=disk.settings, files=disk) as (app, pilot):
        await type_keys(app, pilot, "f2", *keys_to("screen.hidden_columnsgpus"), "enter")
        at = names_of(app).index("power") if column else 0
        await type_keys(app, pilot, *["j"] * at, "enter")
        assert "1 not saved" in text_of(app)[2]
        await type_keys(app, pilot, "enter", "escape")
        assert app.view.config == disk.settings
        assert "not saved" not in text_of(app)[2]


async def test_both_levels_raised_are_saved(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    async with running("live", 100, 30, files=disk) as (app, pilot):
        for name, typed in (("levels.kv_critical", "99.5"), ("levels.kv_warn", "99")):
            await type_keys(
                app, pilot, *(() if app.monitor.pages.shown else ("f2",)), *keys_to(name), "enter", "ctrl+u"
            )
            await type_keys(app, pilot, *typed, "enter")
        await type_keys(app, pilot, "w")
        await until(lambda: "saved to" in foot(app), pilot)
        assert "not saved" not in text_of(app)[2]
    assert (tmp_path / "config.toml").read_text() == "[levels]\nkv_warn = 0.99\nkv_critical = 0.995\n"


async def test_the_page_can_be_filtered_and_says_what_a_setting_means() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "f2", "/", *"temperature", "enter")
        names = [line for line in text_of(app)[3:-4] if line.strip()]
        assert 2 <= len(names) <= 6
        assert "Celsius" in "\n".join(text_of(app))
        await type_keys(app, pilot, "escape")
        assert line_of(app, "GPUs every")
        await type_keys(app, pilot, "/", *"zzz", "enter", "right", "enter", "delete", "space", "down")
        assert 'matches "zzz"' in "\n".join(text_of(app))
        assert app.view.config == Config()
        assert app.monitor.pages.shown is not None


@pytest.mark.parametrize(("width", "height"), [(60, 15), (300, 80)])
async def test_it_fits_and_scrolls(width: int, height: int) -> None:
    async with running("live", width, height) as (app, pilot):
        await type_keys(app, pilot, "f2")
        assert "settings" in text_of(app)[2]
        assert text_of(app)[3].startswith("▸ readings")
        await type_keys(app, pilot, "G")
        assert "whole answer (p95)" in "\n".join(text_of(app))
        assert "Promised time" in "\n".join(text_of(app))
        await type_keys(app, pilot, "enter")
        await until(lambda: bool(question_of(app)), pilot)
        assert question_of(app)[0].startswith(" whole answer (p95):")
        assert "▸           whole answer (p95)" in "\n".join(text_of(app))


async def test_before_the_first_snapshot_it_works() -> None:
    feed = feed_of("live")
    feed._snapshot = None
    app = MonitorApp(feed, load_theme("default"))
    async with app.run_test(size=(80, 24)) as pilot:
        await type_keys(app, pilot, "f2", "right")
        assert "GPUs every" in "\n".join(text_of(app))
        assert feed.interval_s == 2.0
