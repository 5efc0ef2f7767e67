"""Servers as blocks in the sizing panel: they light up with the target, which the mouse moves, too."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpumon.readings.missing import number
from gpumon.sizing.answer import GpuRange
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.app import MonitorApp
from gpumon.tui.sizing.answer import BLOCKS_LABEL
from gpumon.tui.sizing.server_blocks import block_pieces, block_scale
from tests.sizing.questions import KNOWN
from tests.tui.running import foot, names_of, running, text_of, until
from tests.tui.sizing_scenes import desk_of, panel_of, watched
from tests.tui.test_keys import type_keys

CHAT = Workload(
    "meta-llama/Llama-3.1-8B-Instruct", 60.0, tp=2, capacity_per_instance=20.0, prompt_tokens=2000, answer_tokens=300
)
ASKED = Scenario(server=(Server("H100 SXM5 80GB", gpus=4),), workload=(CHAT,))


def drawn(scenario: Scenario, room: int = 60) -> str:
    answer = plan(scenario, KNOWN)
    scale = block_scale(answer, answer.workloads[0], room)
    assert scale is not None
    return "".join(text for text, _ in block_pieces(answer, scale, "ascii"))


def blocks(app: MonitorApp) -> str:
    (line,) = [line for line in text_of(app) if f"{BLOCKS_LABEL}█" in line]
    return line


def test_six_gpus_of_two_servers_light_up_and_further_servers_are_there_to_go_to() -> None:
    """60 in flight are three instances of 20 on two GPUs each."""
    assert drawn(ASKED).startswith("#### ##__ .... ")
    assert drawn(replace(ASKED, workload=(replace(CHAT, target=80.0),))).startswith("#### #### .... ")


def test_a_spare_server_is_no_used_one_and_counts_as_needed() -> None:
    assert drawn(replace(ASKED, spare_servers=1)).startswith("#### ##__ ____ .... ")


def test_what_may_be_needed_is_shaded_between_the_ends_of_the_range() -> None:
    answer = plan(ASKED, KNOWN)
    ends = GpuRange(low=4.0, high=10.0, servers_low=1.0, servers_high=3.0, reason="measured at one load only")
    ranged = replace(answer, gpus_range=ends)
    scale = block_scale(ranged, ranged.workloads[0], 60)
    assert scale is not None
    text = "".join(text for text, _ in block_pieces(ranged, scale, "ascii"))
    assert text.startswith("#### ??__ ??.. " if "??.." in text else "#### ??__ ????")
    assert text.count("?") == 6, "ten at most, four for certain"


def test_many_servers_are_a_cell_each_or_several_a_cell() -> None:
    many = replace(ASKED, workload=(replace(CHAT, target=2000.0),))
    assert re.fullmatch(r"#{50}\.+", drawn(many))
    answer = plan(replace(ASKED, workload=(replace(CHAT, target=20_000.0),)), KNOWN)
    scale = block_scale(answer, answer.workloads[0], 60)
    assert scale is not None
    assert scale.servers_per_cell > 1
    text = "".join(text for text, _ in block_pieces(answer, scale, "ascii"))
    assert text.count("#") == -(-500 // scale.servers_per_cell)
    assert len(text) == scale.cells <= 60


@pytest.mark.parametrize("cell", [0, 2, 5, 8, 12])
def test_the_target_of_a_cell_lights_up_that_cell(cell: int) -> None:
    """Instances of two GPUs light up together."""
    answer = plan(ASKED, KNOWN)
    scale = block_scale(answer, answer.workloads[0], 60)
    assert scale is not None
    target = scale.target_at(cell)
    assert target is not None
    then = drawn(replace(ASKED, workload=(replace(CHAT, target=target),)))
    assert then[cell] == "#"
    assert "#" not in then[cell + 2 :]


def test_a_plan_without_an_answer_has_no_blocks() -> None:
    answer = plan(replace(ASKED, workload=(Workload("nobody/knows-it", 8.0),)), KNOWN)
    assert answer.problem
    assert block_scale(answer, answer.workloads[0], 60) is None


async def drag(app: MonitorApp, pilot: Pilot[None], *places: int) -> None:
    """Press on the first cell of the blocks, drag over the others, and let go on the last."""
    line = next(at for at, text in enumerate(text_of(app)) if f"{BLOCKS_LABEL}█" in text)
    offsets = [
        (panel_of(app).region.x + panel_of(app)._edge_cells + len(BLOCKS_LABEL) + place, line) for place in places
    ]
    await pilot.mouse_down(offset=offsets[0])
    for offset in offsets[1:]:
        await pilot.hover(offset=offset)
    await pilot.mouse_up(offset=offsets[-1])
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_mouse_drags_the_target_and_one_undo_takes_it_back(size: tuple[int, int]) -> None:
    async with running(watched(), *size) as (app, pilot):
        await type_keys(app, pilot, "s")
        assert "████████ ········" in blocks(app)
        await drag(app, pilot, 3, 9, 12, 16)
        # Two servers of eight, of which the other two models have four GPUs: 12 GPUs of 32 in flight each.
        assert desk_of(app).scenario.workload[0].target == 384.0
        assert "████████ ████████ ········" in blocks(app)
        assert "need   16 GPUs  2 servers" in "\n".join(text_of(app))
        assert "40.00 per hour" in blocks(app)
        await type_keys(app, pilot, "u")
        assert desk_of(app).scenario.workload[0].target == 24.0
        assert "████████ ········" in blocks(app)


async def test_a_drag_moves_the_workload_under_the_cursor_and_keys_light_up_the_same_blocks() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s", "down")
        await drag(app, pilot, 16)
        assert desk_of(app).scenario.workload[0].target == 24.0
        dragged = blocks(app)
        target = desk_of(app).scenario.workload[1].target
        await type_keys(app, pilot, "u", *f"{target:.0f}", "enter")
        assert blocks(app) == dragged


async def test_a_motion_without_a_button_changes_nothing() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        before = text_of(app)
        await pilot.hover(offset=(30, 11))
        await pilot.click(offset=(30, 15))
        assert text_of(app) == before


async def test_a_click_goes_to_the_goal_under_the_mouse_and_a_second_one_begins_to_type() -> None:
    async with running(watched(), 80, 24) as (app, pilot):
        await type_keys(app, pilot, "s")
        goals = text_of(app)[3]
        assert "goals" in goals
        at = goals.index("TTFT") + 2
        await pilot.click(offset=(at, 3))
        assert desk_of(app).place.field.key == "ttft_p95_ms"
        await pilot.click(offset=(at, 3), times=2)
        assert desk_of(app).edit is not None
        await type_keys(app, pilot, *"900", "enter")
        assert desk_of(app).scenario.ttft_p95_ms == 900.0
        await until(lambda: re.search(r"TTFT ≤ \[?900 ms\]? (mean )?\d+ms", text_of(app)[3]) is not None, pilot, 20.0)


async def test_a_click_on_the_type_of_gpu_goes_to_it_and_a_second_one_opens_the_list() -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        at = text_of(app)[4].index("H100") + 1
        await pilot.click(offset=(at, 4))
        assert desk_of(app).place.field.key == "gpu"
        await pilot.click(offset=(at, 4), times=2)
        await until(lambda: "H200" in " ".join(names_of(app)), pilot)


async def test_a_goal_has_the_figure_that_it_judges_beside_it() -> None:
    """The p95 of the chosen model, which is simulated a moment later; of an engine that tells p95 / mean at once."""
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "i")
        await until(lambda: re.search(r"TPOT ≤ \[100 ms\] \d+ms ", text_of(app)[3]) is not None, pilot, 20.0)
        plans = desk_of(app).calculation.answer
        assert plans is not None
        value_s = number(plans.workloads[0].goals[0].value_s)
        assert value_s is not None
        assert f"TPOT ≤ [100 ms] {value_s * 1e3:.0f}ms" in text_of(app)[3]


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_a_letter_without_a_command_says_so_and_one_of_the_panes_leaves_them_alone(size: tuple[int, int]) -> None:
    """Somebody who types the name of a model neither marks a moment nor turns a wall on behind the panel."""
    async with running(watched(), *size) as (app, pilot):
        await type_keys(app, pilot, "s")
        before = text_of(app)[:-1]
        for key in ("b", "y", "J", "Z"):
            await type_keys(app, pilot, key)
            assert f"{key} does nothing here; ? has the keys, a adds a model" in foot(app)
        way = "Tab leads there" if size[0] >= 140 else "s closes sizing"
        for key in ("W", "M", "c", "L", "F", "H", "o", "/", "\\", "<"):
            await type_keys(app, pilot, key)
            assert f"{key} is a key of the panes: {way}" in foot(app)
            assert app.monitor.focused is panel_of(app)
        assert text_of(app)[:-1] == before
        await type_keys(app, pilot, "j", "k", "q")
        assert app.monitor.focused is not panel_of(app)
