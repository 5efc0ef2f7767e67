"""The requests of an engine on the screen: from its log, errors first, as they come, never written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpumon.config.load import load
from gpumon.readings.frame import EngineKind
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.app import MonitorApp
from gpumon.tui.pages import followed
from gpumon.tui.pages.requests import RequestsPage
from tests.tui import scenes
from tests.tui.feed import Still, file_log
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import disk_at, type_keys
from tests.tui.test_pages import page_of, resized

LINES = [
    "INFO 11-26 18:00:00 vLLM API server version 0.11",
    'INFO:     10.0.0.9:1 - "POST /v1/chat/completions?user=swordfish HTTP/1.1" 503 Service Unavailable',
    *(f'INFO:     10.0.0.{at % 8}:{at} - "POST /v1/completions HTTP/1.1" 200 OK' for at in range(60)),
    'INFO:     10.0.0.7:1 - "GET /metrics HTTP/1.1" 200 OK',
    "INFO 11-26 18:01:00 Received request c-1: prompt: 'swordfish', params: {}",
    'INFO:     10.0.0.8:1 - "POST /v1/rerank HTTP/1.1" 404 Not Found',
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


async def opened(app: MonitorApp, pilot: Pilot[int], *keys: str) -> RequestsPage:
    """The page, once its log was read."""
    await type_keys(app, pilot, *keys, "F")
    await until(lambda: page_of(app) == "requests" and "reading …" not in shown(app), pilot)
    page = app.monitor.pages.by_name["requests"]
    assert isinstance(page, RequestsPage)
    return page


def shown(app: MonitorApp) -> str:
    return "\n".join(text_of(app))


def rows_of(app: MonitorApp) -> list[str]:
    """The rows below the names of the columns."""
    rows = text_of(app)
    head = next(place for place, row in enumerate(rows) if "method" in row and "path" in row)
    return rows[head + 1 : -1]


async def test_errors_come_first_and_then_the_newest(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log"), 80, 24) as (app, pilot):
        await opened(app, pilot, "2")
        for width, height in ((80, 24), (120, 40), (200, 60)):
            await resized(app, pilot, width, height)
            rows = [" ".join(row.split()) for row in rows_of(app)]
            assert rows[:4] == [
                "errors: 2, the newest first",
                "after 11-26 18:01:00 404 POST /v1/rerank 10.0.0.8",
                "after 11-26 18:00:00 503 POST /v1/chat/completions 10.0.0.9",
                "others, the newest first",
            ]
            assert "62 requests: 503 ×1  404 ×1  200 ×60  1 poll not listed" in shown(app)
            assert "requests are kept nowhere" in shown(app)
            assert "swordfish" not in shown(app)
            assert max(map(len, text_of(app))) <= width


async def test_new_requests_come_in_at_the_top_until_the_page_is_scrolled(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        page = await opened(app, pilot, "2")
        await type_keys(app, pilot, "e")
        assert rows_of(app)[0].split()[3] == "404"
        with path.open("a") as file:
            file.write('INFO:     10.0.0.5:1 - "POST /v1/embeddings HTTP/1.1" 200 OK\n')
        await until(lambda: "/v1/embeddings" in rows_of(app)[0], pilot)
        assert rows_of(app)[0].split()[0] == "read", "the line has no time of its own"
        await type_keys(app, pilot, "down")
        before = rows_of(app)
        with path.open("a") as file:
            file.write('INFO:     10.0.0.5:1 - "POST /v1/responses HTTP/1.1" 500 Internal Server Error\n')
        await until(lambda: "500 ×1" in shown(app), pilot)
        assert rows_of(app) == before, "the rows stay where they are"
        await type_keys(app, pilot, "g")
        assert page._held is None
        await until(lambda: "/v1/responses" in rows_of(app)[0], pilot)


async def test_another_log_ends_what_was_held(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        await opened(app, pilot, "2")
        await type_keys(app, pilot, "down")
        path.write_text('INFO:     10.0.0.5:1 - "POST /v1/anew HTTP/1.1" 200 OK\n')
        await until(lambda: "/v1/anew" in shown(app), pilot)


async def test_paths_are_found(tmp_path: Path) -> None:
    async with running(feed_with(tmp_path / "vllm.log")) as (app, pilot):
        page = await opened(app, pilot, "2")
        await type_keys(app, pilot, "/", *"rerank", "enter")
        await until(lambda: '"rerank" 1' in shown(app), pilot)
        assert page._held is not None


async def test_clients_are_hidden_by_a_setting(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[screen]\nhide_clients = true\n")
    config = load(str(tmp_path / "own.toml"), {}).config
    async with running(feed_with(tmp_path / "vllm.log"), config=config) as (app, pilot):
        await opened(app, pilot, "2")
        assert not [row for row in text_of(app) if "method" in row and "client" in row]
        assert "10.0.0." not in shown(app)


async def test_durations_and_words_stand_where_a_log_has_them(tmp_path: Path) -> None:
    feed = feed_with(tmp_path / "log")
    (tmp_path / "log").write_text(
        '2024-12-10T21:50:03.4Z  INFO chat_completions{total_time="735.2ms" validation_time="955µs"}: '
        "text_generation_router::server: router/src/server.rs:622: Success\n"
        "I0304 11:43:47.985271 1 http_server.cc:4509] HTTP request: 2 /v2/models/m/infer\n"
        "2024-12-10T21:50:04.4Z ERROR generate: text_generation_router::infer: router/src/infer.rs:1: swordfish\n"
    )
    async with running(feed) as (app, pilot):
        page = await opened(app, pilot, "2")
        log = file_log(tmp_path / "log")
        page.look_at("any", log.requests(EngineKind.UNKNOWN))
        await until(lambda: "/v2/models/m/infer" in shown(app), pilot)
        rows = [" ".join(row.split()) for row in rows_of(app)]
        assert rows[1] == "12-10 21:50:04Z error POST /generate –"
        assert rows[3:5] == [
            "03-04 11:43:47 – POST /v2/models/m/infer –",
            "12-10 21:50:03Z ok POST /v1/chat/completions 735ms",
        ]
        assert "3 requests: error ×1  no status ×1  ok ×1" in shown(app)
        assert not [row for row in text_of(app) if "method" in row and "client" in row]


async def test_why_there_is_no_request_is_said(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    feed = feed_with(path)
    path.write_text("INFO 11-26 18:00:00 up\n")
    async with running(feed) as (app, pilot):
        await opened(app, pilot, "2")
        assert "no request among 1 line that was read" in shown(app)
        assert "VLLM_LOGGING_CONFIG_PATH" in shown(app)
        path.unlink()
        await until(lambda: "this command shows it: tail -n 100" in shown(app), pilot)


async def test_requests_that_were_read_stay_when_the_log_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        await opened(app, pilot, "2")
        path.unlink()
        await until(lambda: "No such file or directory" in shown(app), pilot)
        assert "/v1/rerank" in shown(app)


async def test_an_engine_without_log_opens_no_page() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "2", "F")
        await until(lambda: "has no log" in foot(app), pilot)
        assert page_of(app) == ""


async def test_nothing_is_read_or_kept_once_the_page_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    async with running(feed_with(path)) as (app, pilot):
        page = await opened(app, pilot, "2", "enter")
        await type_keys(app, pilot, "escape")
        await until(lambda: page_of(app) == "detail", pilot)
        assert (page.reading, page._source, page._held) == (None, None, None)


async def test_no_request_is_in_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(feed_with(tmp_path / "vllm.log"), files=disk_at(tmp_path)) as (app, pilot):
        await opened(app, pilot, "2")
        await type_keys(app, pilot, "w")
        await until(lambda: "wrote " in foot(app), pilot)
    written = [file for folder in tmp_path.glob("**/gpumon-*") for file in folder.rglob("*") if file.is_file()]
    assert {"screen.txt", "screen.svg"} <= {file.name for file in written}
    for file in written:
        assert b"/v1/rerank" not in file.read_bytes()
