"""The log of an engine on the screen: found from every row about it, followed, searched, never written down."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpumon.readings.format import cells
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engine_log.log import EngineLogReader
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin
from gpumon.tui.app import MonitorApp
from gpumon.tui.pages import followed
from gpumon.tui.pages.log import LogPage, _pieces
from tests.each_row import each_row
from tests.tui import scenes
from tests.tui.feed import Still, file_log
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import disk_at, type_keys
from tests.tui.test_pages import page_of, resized

LINES = [
    "INFO 11-26 18:00:00 vLLM API server version 0.11",
    *(f"INFO 11-26 18:00:{at % 60:02} Engine 000: step {at}" for at in range(40)),
    "ERROR 11-26 18:01:00 [core.py:1] EngineCore failed",
    "Traceback (most recent call last):",
    '  File "core.py", line 1',
    "torch.OutOfMemoryError: CUDA out of memory",
    "WARNING 11-26 18:01:01 Received request c-1: prompt: 'swordfish', params: {}",
    *(f"INFO 11-26 18:02:{at % 60:02} Engine 000: step {at}" for at in range(40, 60)),
    "ERROR 11-26 18:03:00 second",
    *(f"INFO 11-26 18:03:{at % 60:02} Engine 000: step {at}" for at in range(60, 80)),
    "\x1b[31mINFO\x1b[0m 11-26 18:03:01 " + "long " * 40 + "end",
]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are looked at ten times a second: tests wait for what is added."""
    monkeypatch.setattr(followed, "_POLL_S", 0.1)


def feed_with(path: Path, snapshot: Snapshot | None = None) -> Still:
    """A feed whose engines all write that file."""
    path.write_text("\n".join(LINES) + "\n")
    shown = snapshot if snapshot is not None else scenes.SCENES["live"]()
    feed = Still(shown, scenes.history(shown))
    feed.logs = {engine.key: file_log(path) for engine in shown.engines}
    return feed


async def opened(app: MonitorApp, pilot: Pilot[int], *keys: str) -> LogPage:
    """The page, once its log was read."""
    await type_keys(app, pilot, *keys, "L")
    await until(lambda: page_of(app) == "log" and "reading …" not in "".join(text_of(app)), pilot)
    page = app.monitor.pages.by_name["log"]
    assert isinstance(page, LogPage)
    return page


async def test_the_log_is_followed_at_its_end_and_read_on(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        await opened(app, pilot, "2")
        shown = "\n".join(text_of(app))
        assert f"{path.parent.name}/{path.name}  prompts, answers: …, keys: ***" in shown
        assert "2 errors: e · follows" in shown
        assert text_of(app)[-2].endswith("long end"), "a long line goes on in the next rows"
        with path.open("a") as file:
            file.write("INFO 11-26 18:04:00 new line\n")
        await until(lambda: "new line" in "\n".join(text_of(app)), pilot)


async def test_moving_up_stops_following_and_the_end_follows_again(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        page = await opened(app, pilot, "2")
        await type_keys(app, pilot, "g")
        assert "vLLM API server version" in "\n".join(text_of(app))
        assert not page.follows
        before = text_of(app)[4:-1]
        with path.open("a") as file:
            file.write("INFO 11-26 18:04:00 new line\n")
        await until(lambda: page.reading is not None and "new line" in page.reading.lines[-1].text, pilot)
        assert text_of(app)[4:-1] == before, "the view stays where it is"
        await type_keys(app, pilot, "G")
        assert page.follows
        assert "new line" in "\n".join(text_of(app))
        await type_keys(app, pilot, "F")
        assert not page.follows


async def test_the_errors_are_gone_through_from_the_first_one(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log"), 120, 24) as (app, pilot):
        await opened(app, pilot, "2")
        tops = []
        for _ in range(3):
            await type_keys(app, pilot, "e")
            rows = text_of(app)
            head = next(at for at, row in enumerate(rows) if "prompts, answers: …" in row)
            tops.append(next(row for row in rows[head + 1 :] if row.strip()))
        assert "EngineCore failed" in tops[0]
        assert "second" in tops[1]
        assert tops[2] == tops[0], "after the last one comes the first one again"
        assert "swordfish" not in "\n".join(text_of(app))


async def test_words_are_found(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log")) as (app, pilot):
        page = await opened(app, pilot, "2")
        await type_keys(app, pilot, "/", *"step 7", "enter")
        await until(lambda: "step 7" in "\n".join(text_of(app)), pilot)
        assert not page.follows


async def test_a_log_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    feed = feed_with(tmp_path / "vllm.log")
    answers = threading.Event()

    def hang() -> EngineOrigin:
        answers.wait()
        return NO_ORIGIN

    async with running(feed) as (app, pilot):
        page = await opened(app, pilot, "2")
        page.look_at("hung", EngineLogReader(hang))
        page.look_at("other", file_log(tmp_path / "vllm.log"))
        await until(lambda: page.reading is not None and len(page.reading.lines) > 1, pilot)
        answers.set()


@each_row("letter", ["x", "é", "語"])
@each_row("room", [8, 79])
def test_a_long_line_is_cut_into_pieces_that_fill_the_width(letter: str, room: int) -> None:
    text = letter * 200
    first, *rest = _pieces(text, room)
    assert first + "".join(rest) == text
    size = cells(letter)
    assert len(first) == room // size
    assert {len(piece) for piece in rest[:-1]} == {(room - 2) // size}


async def test_the_log_goes_with_the_page(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log")) as (app, pilot):
        page = await opened(app, pilot, "2")
        await type_keys(app, pilot, "escape")
        await until(lambda: page_of(app) == "", pilot)
        assert page.reading is None
        await opened(app, pilot, "2", "enter")
        await type_keys(app, pilot, "escape")
        await until(lambda: page_of(app) == "detail", pilot)


async def test_every_row_and_page_about_an_engine_leads_to_its_log(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log"), 120, 50) as (app, pilot):
        for keys in (("1",), ("2",), ("2", "enter"), ("4",), ("5",), ("5", "enter")):
            page = await opened(app, pilot, *keys)
            assert page.title().startswith("log of engine "), keys
            await type_keys(app, pilot, "escape", "escape")
            await until(lambda: page_of(app) == "", pilot)


async def test_why_there_is_no_log_is_said() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "2", "L")
        await until(lambda: "has no log" in foot(app), pilot)
        assert page_of(app) == ""


async def test_a_log_that_can_not_be_read_says_why_and_what_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    feed = feed_with(path)
    path.unlink()
    async with running(feed) as (app, pilot):
        await opened(app, pilot, "2")
        shown = "\n".join(text_of(app))
        assert "No such file or directory" in shown
        assert "this command shows it: tail -n 100" in shown


async def test_no_line_of_a_log_is_in_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(feed_with(tmp_path / "vllm.log"), files=disk_at(tmp_path)) as (app, pilot):
        await opened(app, pilot, "2")
        await type_keys(app, pilot, "w")
        await until(lambda: "wrote " in foot(app), pilot)
    written = [file for folder in tmp_path.glob("**/gpumon-*") for file in folder.rglob("*") if file.is_file()]
    assert {"screen.txt", "screen.svg"} <= {file.name for file in written}
    for file in written:
        assert b"Engine 000" not in file.read_bytes()
        assert b"EngineCore" not in file.read_bytes()


async def test_another_width_sets_the_lines_anew(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log"), 200, 60) as (app, pilot):
        await opened(app, pilot, "2")
        await resized(app, pilot, 60, 24)
        rows = text_of(app)
        assert rows[-2].endswith("long end")
        assert max(map(len, rows)) <= 60
