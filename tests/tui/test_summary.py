"""What a terminal too small for tables says, and the first and last lines of one that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.keymap import Keymap
from gpumon.config.schema import Config
from gpumon.readings.format import cells
from gpumon.tui.line import Row
from gpumon.tui.palette import TONES
from gpumon.tui.summary import summary
from gpumon.tui.widgets.key_line import KeyHolder, hints_for
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import foot, running, text_of, until


def text(rows: list[Row]) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


@each_row(
    ("scene", "paused", "said"),
    [
        ("live", False, "8 GPUs ! memory-bandwidth-bound vllm:8000 busy 93% mfu 32% mbu 64% 3.6k tok/s 4921W"),
        ("triage", False, "8 GPUs ✗ KV cache full vllm:8001 busy 82% mfu 28% mbu 55% 3.6k tok/s 3983W 1 fault"),
        ("simulated", True, "SIM PAUSED 8 GPUs busy 93% mfu 32% mbu 64% 3.6k tok/s 4921W"),
        ("one_lost", False, "8 GPUs 1 DOWN busy 94% mfu 32% mbu 64% 4.7k tok/s 4341W 1 fault"),
        ("stale", False, "8 GPUs 8 STALE busy – 3.6k tok/s 1 fault"),
        (
            "engines_down",
            False,
            "8 GPUs 1 engine DOWN 2 engines without figures busy 93% mfu 32% mbu 64% 1.1k tok/s 4921W 3 faults",
        ),
        ("engines_only", False, "3 engines mfu 32% mbu 63% 3.6k tok/s"),
        ("empty", False, "0 GPUs"),
    ],
)
def test_the_most_important_first(scene: str, paused: bool, said: str) -> None:
    assert text(summary(scenes.SCENES[scene](), 200, 1, paused=paused)) == [said]


@given(
    st.sampled_from(sorted(scenes.SCENES)), st.integers(1, 120), st.integers(1, 14), st.booleans(), st.integers(0, 119)
)
def test_only_whole_parts_and_a_start_of_what_a_large_terminal_says(
    scene: str, width: int, height: int, paused: bool, at: int
) -> None:
    snapshot = scenes.SCENES[scene]()
    whole = text(summary(snapshot, 1000, 1, paused=paused))[0]
    lines = text(summary(snapshot, width, height, paused=paused))
    assert 1 <= len(lines) <= height
    assert all(cells(line) <= width for line in lines)
    said = " ".join(lines)
    if len(said) == 1:
        assert said in "✗!‖●"
    else:
        assert f"{whole} ".startswith(f"{said} ")


@each_row(
    ("scene", "paused", "glyph"),
    [
        ("live", False, "●"),
        ("live", True, "‖"),
        ("one_lost", True, "✗"),
        ("engines_down", False, "✗"),
        ("stale", 0, "!"),
    ],
)
def test_one_cell_says_whether_all_is_well(scene: str, paused: bool, glyph: str) -> None:
    ((piece,),) = summary(scenes.SCENES[scene](), 1, 1, paused=paused)
    assert piece[0] == glyph
    assert piece[1] in TONES


def test_starting() -> None:
    assert text(summary(None, 40, 3, paused=False)) == ["gpumon starting …"]
    assert text(summary(None, 3, 3, paused=False)) == ["…"]


SMALL = ((1, 1), (2, 3), (20, 3), (40, 5), (59, 14), (59, 60), (300, 14), (60, 1))


@pytest.mark.parametrize("scene", ["live", "hostile", "empty"])
async def test_any_small_size(scene: str) -> None:
    async with running(scene, *SMALL[0]) as (app, pilot):
        for width, height in SMALL:
            await pilot.resize_terminal(width, height)
            lines = text_of(app)
            assert len(lines) == height
            assert lines[0], (width, height)
            assert all(cells(line) <= width for line in lines)
            if height > 5 and width > 10:
                assert "60x15" in "".join(lines)


async def test_a_small_screen_names_the_users_key_to_quit() -> None:
    for own, said in ((Config(), "q quits"), (Config(keys={"quit": "Q, x"}), "Q quits")):
        async with running("live", 40, 5, config=own) as (app, _):
            assert f"60x15 or more shows tables, {said}" in text_of(app)


LONG = "ai-inference-node-042.eu-west-1.cluster.example.com"


def named(host: str, scene: str = "live") -> Still:
    snapshot = scenes.SCENES[scene]()
    return Still(replace(snapshot, host=replace(snapshot.host, name=host)), scenes.history(snapshot))


@pytest.mark.parametrize(
    ("width", "host", "said"),
    [
        (60, "gpu-07", "gpu-07 · 8x H100 80GB HBM3 · 580.95.05  ●"),
        (80, "gpu-07", "gpu-07 · 8x H100 80GB HBM3 · 580.95.05"),
        (60, LONG, "ai-inference-node… · 8x H100 80GB HBM3  ●"),
        (80, LONG, "ai-inference-node-042 · 8x H100 80GB HBM3"),
        (120, LONG, f"{LONG} · 8x H100 80GB HBM3"),
        (80, "x" * 63, "x" * 37 + "… · 8x H100 80GB HBM3  ●"),
    ],
)
async def test_the_title_names_the_machine_as_well_as_it_fits(width: int, host: str, said: str) -> None:
    async with running(named(host), width, 24) as (app, _):
        title = text_of(app)[0]
        assert title.startswith(f" gpumon  {said}")
        assert title.endswith("  ● 08:53:22")


@pytest.mark.parametrize("host", ["demo", LONG, "ホスト" * 40])
async def test_the_title_always_says_simulated_paused_and_when(host: str) -> None:
    async with running(named(host, "simulated"), 60, 24) as (app, pilot):
        await pilot.press("space")
        for width in (60, 70, 80, 120):
            await pilot.resize_terminal(width, 24)
            await until(lambda: "PAUSED at 08:53:22" in text_of(app)[0], pilot)
            title = text_of(app)[0]
            assert " SIMULATED " in title
            assert title.startswith(" gpumon  ")
            assert cells(title) <= width


KEYS_AND_LAST: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("1",), (), "q quit"),
    (("2",), (), "q quit"),
    (("3",), (), "q quit"),
    (("5",), ("1",), "q quit"),
    (("question_mark",), ("escape",), "ctrl+c quit"),
    (("z",), ("z",), "ctrl+c quit"),
    (("f2",), ("escape",), "ctrl+c quit"),
)
"""Keys to a place, those back, and the end of the line of keys there."""


async def test_the_key_line_fits_and_ends_with_how_to_quit() -> None:
    async with running("sixteen_gpus", 60, 24) as (app, pilot):
        for width in (60, 80, 120, 200):
            await pilot.resize_terminal(width, 24)
            for keys, back, last in KEYS_AND_LAST:
                await pilot.press(*keys)
                line = foot(app)
                assert "? help  " in line
                assert line.endswith(f"  {last}")
                assert cells(line) == width - 1
                assert "…" not in line
                await pilot.press(*back)


def test_hints_come_from_the_users_own_keys() -> None:
    keys = Keymap({"help": "h", "quit": "", "sort": "S, o", "pane.next": "n", "slower": ""})
    said = hints_for(keys, KeyHolder("gpus"))
    assert said[0] == ("h", "help", ("h",))
    assert said[-1] == ("ctrl+c", "quit", ("ctrl+c",))
    assert ("S", "sort", ("S",)) in said
    assert ("-", "every 1 s", ("-",)) in said
    assert all(hint.key and hint.does and hint.presses for hint in said)


@each_row(
    ("place", "word", "there"),
    [
        (KeyHolder("gpus"), "detail", True),
        (KeyHolder("triage"), "detail", True),
        (KeyHolder("triage"), "sort", False),
        (KeyHolder("history"), "time span", True),
        (KeyHolder("history"), "one chart", True),
        (KeyHolder("history", opened=True), "one chart", False),
        (KeyHolder("history", opened=True), "all charts", True),
        (KeyHolder("history", opened=True), "time span", True),
        (KeyHolder("help", page=True), "back", True),
        (KeyHolder("help", page=True), "zoom", False),
        (KeyHolder("gpus", paused=True), "resume", True),
        (KeyHolder("gpus", paused=True), "quit", False),
        (KeyHolder("gpus", paused=True, speed=1.0), "quit", True),
        (KeyHolder("gpus", zoomed=True), "all panes", True),
        (KeyHolder("gpus", scrolls=True), "scroll", True),
        (KeyHolder("gpus"), "scroll", False),
        (KeyHolder("gpus", interval="0.5 s"), "every 0.5 s", True),
    ],
)
def test_only_keys_that_do_something_here_are_named(place: KeyHolder, word: str, there: bool) -> None:
    assert (word in [hint.does for hint in hints_for(Keymap(), place)]) == there
