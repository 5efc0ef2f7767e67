"""The incident bundle by its key: what is on the screen lies in real files, and the screen never waits for them."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gpumon.commands.files import ScreenFiles
from gpumon.config.errors import ConfigError
from gpumon.config.load import Loaded
from gpumon.config.schema import Config
from gpumon.history.file import RECORDING
from gpumon.tui.control import BundleFacts
from tests.tui import scenes
from tests.tui.past import Kept, Player, recorded
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import disk_at, event, type_keys


def bundles(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("gpumon-*") if path.is_dir())


def svg_text(path: Path) -> str:
    """What a reader of the picture sees, without the spaces that a picture has of another kind."""
    return "".join(ElementTree.parse(path).getroot().itertext()).replace("\xa0", " ")


@pytest.mark.parametrize("key", ["w", "f12"])
async def test_what_is_shown_is_what_is_written(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(recorded(), 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "[")
        await until(lambda: "10s AGO" in text_of(app)[0], pilot)
        shown = text_of(app)
        await type_keys(app, pilot, key)
        await until(lambda: "wrote gpumon-" in foot(app), pilot)
        (folder,) = bundles(tmp_path)
        assert f" wrote {folder.name}/ in {tmp_path}/.local/state/gpumon/bundles" in foot(app)
        assert folder.name == "gpumon-gpu-07-20251009-085312"
        assert (folder / "screen.txt").read_text().splitlines()[:-1] == shown[:-1]
        assert json.loads((folder / "snapshot.json").read_bytes())["host"]["name"] == "gpu-07"
        assert (folder / RECORDING).read_text() == "120 frames"
        assert (folder / "verdicts.md").read_text().startswith("# gpu-07, 2025-10-09 08:53:12+00:00")
        picture = svg_text(folder / "screen.svg")
        assert "10s AGO 08:53:12" in picture
        assert "Llama" in picture


async def test_a_slow_recording_holds_nothing_up_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = recorded()
    assert isinstance(feed.timeline, Kept)
    feed.timeline.delay_s = 0.5
    async with running(feed, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "w")
        assert "writing an incident bundle" in foot(app)
        await type_keys(app, pilot, "w")
        assert "still writing" in foot(app)
        await type_keys(app, pilot, "2")
        assert app.monitor.panes["engines"].has_focus
        await until(lambda: "wrote gpumon-" in foot(app), pilot)
        assert len(bundles(tmp_path)) == 1
        feed.timeline = None
        await type_keys(app, pilot, "w")
        await until(lambda: len(bundles(tmp_path)) == 2, pilot)


async def test_what_is_written_while_gpumon_ends_is_said_nowhere_and_harms_nothing() -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    class WrittenTooLate(ScreenFiles):
        """Files whose bundle is written when the last screen has gone."""

        async def save_bundle(self, incident: BundleFacts) -> str:
            begun.set()
            while app.screen_stack:
                await asyncio.sleep(0)
            ended.append(incident.snapshot.host.name)
            return "wrote"

    async with running(recorded(), files=WrittenTooLate(Loaded(Config(), "", {}), {})) as (app, _):
        app.post_message(event("w"))
        await begun.wait()
    assert ended == ["gpu-07"]


class Unreadable(Kept):
    """A past in a file that is damaged."""

    async def write(self, path: str) -> None:
        raise ConfigError("r.sqlite: is damaged or cut off; take another copy of it")


async def test_a_past_that_can_not_be_read_costs_the_recording_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = recorded()
    feed.timeline = Unreadable([scenes.snapshot()])
    async with running(feed, 160, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "w")
        await until(lambda: "WITHOUT recording.gpumon (r.sqlite: is damaged" in foot(app), pilot)
        (folder,) = bundles(tmp_path)
        assert not list(folder.glob(f"{RECORDING}*"))
        assert (folder / "snapshot.json").exists()


async def test_whatever_goes_wrong_is_said_and_the_screen_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unwilling(ScreenFiles):
        """Files that fail as nobody expected."""

        async def save_bundle(self, incident: BundleFacts) -> str:
            raise ValueError("oops\x1b[31m")

    monkeypatch.chdir(tmp_path)
    text = "the bundle cannot be written: ValueError: oops\\x1b[31m"
    async with running(recorded(), 120, 40, files=Unwilling(Loaded(Config(), "", {}), {})) as (app, pilot):
        for _ in range(2):
            await type_keys(app, pilot, "w")
            await until(lambda: text in foot(app), pilot)


async def test_a_replay_has_a_bundle_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    feed = Player([scenes.snapshot(tick=tick) for tick in range(60)])
    async with running(feed, 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "w")
        await until(lambda: "wrote gpumon-" in foot(app), pilot)
        (folder,) = bundles(tmp_path)
        assert (folder / RECORDING).read_text() == "60 frames"
        assert "REPLAY 2025-10-09 08:53:22" in (folder / "screen.txt").read_text()


async def test_settings_and_sizing_keep_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(recorded(), 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "f2", "w", "escape", "s", "w", "escape", "escape")
        await pilot.pause(0.1)
        assert bundles(tmp_path) == []


@pytest.mark.parametrize(("keys", "title"), [((), "vllm:8000: memory-bandwidth-bound"), (("5", "j", "enter"), "")])
async def test_the_verdict_is_on_a_card_with_its_charts(keys: tuple[str, ...], title: str, tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, *keys)
        page = app.monitor.pages.shown
        await type_keys(app, pilot, "w")
        await until(lambda: "wrote gpumon-" in foot(app), pilot)
        title = title or (page.title() if page is not None else "?").partition(" · ")[0]
    (folder,) = bundles(tmp_path)
    card = svg_text(folder / "card.svg")
    assert title in card
    assert "what to do" in card
    assert "evidence" in card


async def test_without_a_verdict_there_is_no_card(tmp_path: Path) -> None:
    async with running(recorded(), 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, "w")
        await until(lambda: "wrote gpumon-" in foot(app), pilot)
    (folder,) = bundles(tmp_path)
    assert not (folder / "card.svg").exists()
