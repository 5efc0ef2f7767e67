"""What a terminal too small for tables says, and the first and last lines of one that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.keymap import COMMANDS, Keymap
from gpumon.config.schema import Config
from gpumon.readings.format import cells
from gpumon.tui.line import Row
from gpumon.tui.pages.help import GROUPS, LEGEND, QUESTIONS, HelpPage
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
        ("stale", False, "8 GPUs 8 STALE busy – mfu – mbu – 3.6k tok/s 1 fault"),
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
                assert line.startswith(" ? help")
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


def test_every_command_is_in_the_help_once() -> None:
    grouped = [name for group in GROUPS for name in group.ids]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= {command.id for command in COMMANDS}


@pytest.mark.parametrize("width", [60, 200])
async def test_the_help_shows_every_key(width: int) -> None:
    async with running("live", width, 80) as (app, pilot):
        await pilot.press("question_mark")
        page = "\n".join(text_of(app))
        keymap = Keymap()
        for command in COMMANDS:
            if command.scope == "fleet" or (command.scope == "sizing" and "sizing panel" not in page):
                continue
            assert keymap.shown(command.id) in page
            assert command.does in page or any(command.id in group.ids for group in GROUPS)
        below = page[page.index("─── help") :]
        assert "…" not in below.replace("– … n/a", "")


@pytest.mark.parametrize("width", [80, 120, 200])
async def test_no_key_of_the_help_runs_into_its_meaning(width: int) -> None:
    """In black and white a key and its meaning are told apart by two blanks, and gpumon's own cost by a blank line."""
    async with running("live", width, 50) as (app, pilot):
        await pilot.press("question_mark")
        lines = text_of(app)
        page = "\n".join(lines)
        assert "PgUp PgDn g G  a page" in page
        assert "r ctrl+l ctrl+z  read now" in page
        for group in GROUPS:
            if len(group.ids) > 1 and group.does in page:
                assert f"  {group.does}" in page
        [cost] = [number for number, line in enumerate(lines) if line.startswith(" gpumon itself")]
        assert not lines[cost - 1].strip()


async def test_questions_keys_and_marks_fit_into_80x24_and_the_glossary_is_below() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("question_mark")
        page = text_of(app)
        assert page[2].startswith("─── help ──")
        assert all(mark in "\n".join(page) for mark, _ in LEGEND)
        assert "glossary" not in "\n".join(page)
        for asked, _ in QUESTIONS:
            assert any(line.startswith(f" {asked}") for line in page[3:7])


async def test_the_help_says_how_to_scroll_where_it_does_not_fit() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await pilot.press("question_mark")
        top = text_of(app)
        assert " of " in top[2]
        assert top[2].endswith("↓ ↑ ─")
        await pilot.press("G")
        assert "assumed" in text_of(app)[-2], "the last word of the glossary"
        await pilot.press("g")
        assert text_of(app) == top
        await pilot.press("j", "k", "pagedown", "pageup")
        assert text_of(app) == top


async def test_the_next_section_may_be_asked_for_before_the_help_has_its_width_again() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("question_mark", "escape")
        app.monitor.action_do("help")
        app.monitor.action_do("pane.next")
        await until(lambda: "─── help ──" in "\n".join(text_of(app)), pilot)


async def test_the_help_names_the_users_own_keys() -> None:
    async with running("live", 80, 24, config=Config(keys={"sort": "S", "open": "d", "save": ""})) as (app, pilot):
        await pilot.press("question_mark")
        page = "\n".join(text_of(app))
        assert "1 then S: waste" in page
        assert "d on its row" in page
        assert "write what is shown" not in page


def test_help_texts_have_no_command_that_does_not_exist() -> None:
    ids = {f"{{{command.id}}}" for command in COMMANDS}
    for _, answer in QUESTIONS:
        for name in ids:
            answer = answer.replace(name, "")
        assert "{" not in answer
    assert HelpPage.COMMAND == ""
