"""Lists in the real application: what the cursor stays on, and what the mouse can reach."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.config.schema import Levels
from gpumon.config.validate import with_setting
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui.app import MonitorApp
from gpumon.tui.widgets.list_pane import ListPane
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of


def gpus_of(app: MonitorApp) -> ListPane[Any]:
    found = app.monitor.panes["gpus"]
    assert isinstance(found, ListPane)
    return found


def marked_row(app: MonitorApp) -> list[str]:
    return next(line for line in text_of(app) if line.startswith("▸")).removeprefix("▸").split()


async def sort_by(app: MonitorApp, pilot: Pilot[int], name: str) -> None:
    found = gpus_of(app)
    found.sort(next(order for order in found.listing.orders if order.name == name))
    await pilot.pause()


def mixed() -> Snapshot:
    """Four GPUs, the last one with the most VRAM in use."""
    of = scenes.snapshot(4, 1)
    gpus = tuple(replace(gpu, vram_used_bytes=(gpu.reading.index + 1.0) * scenes.GIB) for gpu in of.gpus)
    return replace(of, gpus=gpus)


async def test_a_cursor_that_was_never_moved_stays_on_the_first_row() -> None:
    async with running(Still(mixed()), 120, 40) as (app, pilot):
        await sort_by(app, pilot, "VRAM")
        assert gpus_of(app).selected.reading.index == 3
        assert marked_row(app)[0] == "3"
        assert text_of(app)[4].startswith("▸ 3")
        await pilot.press("j", "k")
        await sort_by(app, pilot, "VRAM")
        assert gpus_of(app).selected.reading.index == 3
        assert marked_row(app)[0] == "3"
        assert text_of(app)[7].startswith("▸ 3")


async def test_a_cursor_whose_gpu_is_gone_stays_on_the_next() -> None:
    of = mixed()
    without = replace(of, gpus=tuple(gpu for gpu in of.gpus if gpu.reading.index != 2))
    async with running(Still(of), 120, 40) as (app, pilot):
        await pilot.press("j", "j")
        app.monitor.paint(without)
        assert gpus_of(app).selected.reading.index == 3
        app.monitor.paint(replace(without, gpus=without.gpus[::-1]))
        assert gpus_of(app).selected.reading.index == 3


async def test_a_filter_gives_the_cursor_back() -> None:
    async with running(Still(mixed()), 120, 40) as (app, pilot):
        await pilot.press("j", "j", "slash", *"00000001", "enter")
        await pilot.pause()
        assert gpus_of(app).selected.reading.index == 1
        await pilot.press("escape")
        assert gpus_of(app).selected.reading.index == 2


async def test_the_wheel_scrolls_a_list_without_the_focus() -> None:
    async with running("sixteen_gpus", 80, 24) as (app, pilot):
        await pilot.press("W", "2")
        before = text_of(app)[4:7]
        await pilot._post_mouse_events([events.MouseScrollDown], offset=(5, 5), button=0)
        await pilot.pause()
        after = text_of(app)[4:7]
        assert [line.split()[0] for line in before] == ["0", "1", "2"]
        assert [line.split()[0] for line in after] == ["3", "4", "5"]
        await pilot.press("1")
        assert gpus_of(app).selected.reading.index == 0


@pytest.mark.parametrize("y", [1, 2])
async def test_a_click_on_the_rule_or_the_header_chooses_nothing(y: int) -> None:
    async with running("sixteen_gpus", 80, 24) as (app, pilot):
        await pilot.press("W", "G")
        before = gpus_of(app).selected.reading.index
        await pilot.click(offset=(10, y))
        await pilot.pause()
        assert gpus_of(app).selected.reading.index == before


async def test_a_click_below_the_settings_chooses_nothing() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("f2")
        page = app.monitor.pages.by_name["settings"]
        assert isinstance(page, ListPane)
        await pilot.click(offset=(10, page.region.bottom - 1))
        await pilot.pause()
        assert page.selected is page.listed_items()[0]
        await pilot.click(offset=(10, page.region.y + 3))
        await pilot.pause()
        assert page.selected is page.listed_items()[2]


def with_slices() -> Snapshot:
    """Two GPUs, each with a slice behind it."""

    def slice_of(gpu: Gpu, used_gib: float) -> Gpu:
        used = {"busy_ratio": NOT_SUPPORTED, "vram_used_bytes": used_gib * scenes.GIB}
        return scenes.gpu(
            gpu.reading.index,
            uuid=f"MIG-{gpu.reading.index}",
            parent_uuid=gpu.reading.uuid,
            mig_profile="1g.10gb",
            processes=(),
            **used,
        )

    of = scenes.snapshot(2, 1)
    first, second = of.gpus
    return replace(of, gpus=(first, slice_of(first, 3.0), second, slice_of(second, 5.0)))


async def test_a_sorted_or_filtered_slice_says_whose_it_is() -> None:
    async with running(Still(with_slices()), 80, 24) as (app, pilot):
        assert [line[1:4] for line in text_of(app)[4:8]] == [" 0 ", "0.0", " 1 ", "1.0"]
        await sort_by(app, pilot, "VRAM")
        assert [line[1:4] for line in text_of(app)[4:8]] == [" 1 ", " 0 ", "1.0", "0.0"]
        found = gpus_of(app)
        found.filter.text = "1g"
        found.update()
        assert [line[1:4] for line in text_of(app)[4:6]] == ["1.0", "0.0"]


async def test_other_levels_are_found_while_paused() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("space")
        found = gpus_of(app)
        found.filter.text = "low eff."
        found.update()
        assert found.listed_items() == []
        assert Levels().low_use < 0.9
        app.monitor.screen_settings.apply(with_setting(app.view.config, "levels", "low_use", 0.9))
        await pilot.pause()
        assert len(found.listed_items()) == 8
        assert "8 of 8" in text_of(app)[2]


async def test_the_histories_of_the_gpus_go_back_as_far_as_the_charts() -> None:
    snapshot = scenes.snapshot(4, 2)
    async with running(Still(snapshot, scenes.history(snapshot)), 300, 60) as (app, pilot):
        assert "last 5 min" in text_of(app)[3]
        before = text_of(app)[4]
        await pilot.press("space", "less_than_sign")
        assert "last 2 min" in text_of(app)[3]
        assert text_of(app)[4] != before
        at = text_of(app)[3].index("mfu 0-")
        assert text_of(app)[4][:at] == before[:at]
