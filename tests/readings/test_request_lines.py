"""Requests in logs: real lines of every kind of engine, and lines that were made to mislead."""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.access_log import ACCESS_LOG_HINTS, SWITCHES, silence_of
from gpumon.readings.frame import EngineKind
from gpumon.readings.request_feed import MOST_FEED_REQUESTS, RequestFeed
from gpumon.readings.request_lines import (
    LINE_FORMS,
    MOST_PATH,
    LoggedRequest,
    TimeOrigin,
    forms_of,
    request_of,
    stamp_of,
)
from tests.each_row import each_row

LINES: list[dict[str, Any]] = tomli.loads((Path(__file__).parents[1] / "data/request_lines.toml").read_text())["line"]
ANY = forms_of(EngineKind.UNKNOWN)
SECRET = "swordfish"
ACCESS = 'INFO:     127.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK'


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unix times of lines as UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def of(text: str, kind: EngineKind = EngineKind.VLLM) -> LoggedRequest | None:
    return request_of(text, forms_of(kind))


@each_row("line", LINES, named=[f"{line['kind']}: {line['text'][:40]}" for line in LINES])
def test_a_line_of_an_engine_is_read(line: dict[str, Any]) -> None:
    request = of(line["text"], EngineKind(line["kind"]))
    expected = LoggedRequest(
        line["method"],
        line["path"],
        line.get("status"),
        has_failed=line.get("failed", False),
        client=line.get("client", ""),
        took_s=line.get("took_s"),
        time=line.get("time", ""),
        clock=TimeOrigin.LINE if "time" in line else TimeOrigin.NONE,
    )
    assert request is not None
    assert request._replace(took_s=None) == expected._replace(took_s=None)
    assert request.took_s == pytest.approx(expected.took_s)
    assert request.is_poll is line.get("poll", False)
    assert request_of(line["text"], ANY) == request, "a kind that is not known may write any form"


def test_each_form_has_a_real_line() -> None:
    for form in ANY:
        read = [line for line in LINES if request_of(line["text"], [form]) is not None]
        assert read, form.mark
        assert all(form in LINE_FORMS[EngineKind(line["kind"])] or line["text"][0] == "{" for line in read)


@each_row(
    "text",
    [
        "INFO 11-26 18:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 2123.9 tokens/s, Running: 3 reqs",
        f"INFO 11-26 18:00:00 Received request c-1: prompt: '{ACCESS}', params: None",
        f'INFO 11-26 18:00:00 body={{"content": "{ACCESS}"}}',
        f'INFO 11-26 18:00:00 Received request c-1: prompt: "tell me {ACCESS}',
        f"{ACCESS}, params: None",
        'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 20 OK',
        'INFO:     127.0.0.1:1 - "POST  HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "post /v1 HTTP/1.1" 200 OK',
        'srv  log_server_r: request:  {"messages":[{"role":"user","content":"POST /v1/x 127.0.0.1 200"}]}',
        '{"message": "HTTP/ is spoken here"}',
        '{"message": ["HTTP/"], "msg": 1}',
        '{"function": "log_server_request", "status": "200", "method": "GET", "path": "/"}',
        '{"function": "log_server_request", "status": 200, "method": 1, "path": "/"}',
        '["HTTP/"]',
        '{"HTTP/',
        "2024-12-10T21:49:50.317182Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected",
        "2024-12-10T21:49:50.317182Z  INFO tokenize{}: text_generation_router::server: router/src/server.rs:1: Success",
        "I0304 11:43:47.985271 1 http_server.cc:4509] Started HTTPService at 0.0.0.0:8000",
    ],
)
def test_what_is_no_request_line_is_none(text: str) -> None:
    assert request_of(text, ANY) is None


def test_json_around_a_request_line_gives_its_time() -> None:
    access = '127.0.0.1:1 - "POST /v1 HTTP/1.1" 400'
    request = of(json.dumps({"timestamp": "2026-05-14T22:36:21.379Z", "level": "INFO", "message": access}))
    assert request is not None
    assert (request.path, request.status, request.time) == ("/v1", 400, "05-14 22:36:21Z")


@each_row(
    ("target", "shown"),
    [
        ("/generate?prompt=swordfish", "/generate"),
        ("/generate?a=1&prompt=swordfish#x", "/generate"),
        ('/generate?a="swordfish"', "/generate"),
        ("/v1/files/sk-swordfishswordfish", "/v1/files/***"),
        ("/v1/responses/resp_68a5c1swordfish0123456789", "/v1/responses/***"),
        ("/v1/files/6f1c1b0a-1111-2222-3333-444455556666", "/v1/files/***"),
        ("/api_key=swordfish/x", "/api_key=***"),
        ("/v2/models/llama-3.1-8b-instruct-fp8/infer", "/v2/models/llama-3.1-8b-instruct-fp8/infer"),
        ("/text_generation_inference_router", "/text_generation_inference_router"),
        ("/\u202eevil\u200b", "/\\u202eevil\\u200b"),
    ],
)
def test_queries_keys_and_identifiers_are_left_out(target: str, shown: str) -> None:
    request = of(f'INFO:     127.0.0.1:1 - "GET {target} HTTP/1.1" 404 Not Found')
    assert request is not None
    assert request.path == shown
    assert SECRET not in str(request)


@each_row(
    ("text", "kind"),
    [
        ('[GIN] 2025/03/21 - 08:52:32 | 200 | 1s | ::1 | GET "/x?prompt=swordfish"', EngineKind.OLLAMA),
        ("I0304 11:43:47.985271 1 http_server.cc:4509] HTTP request: 0 /x?prompt=swordfish", EngineKind.TRITON),
        ("srv  log_server_r: request: GET /x?prompt=swordfish ::1 200", EngineKind.LLAMA_CPP),
    ],
)
def test_queries_are_left_out_of_every_form(text: str, kind: EngineKind) -> None:
    request = of(text, kind)
    assert request is not None
    assert request.path == "/x"


def test_a_client_does_not_hide_by_a_long_query() -> None:
    view = feed_of(f'INFO:     127.0.0.1:1 - "GET /generate?a={"x" * 60_000} HTTP/1.1" 414 URI Too Long').view()
    assert [(request.path, request.status) for request in view.newest] == [("/generate", 414)]


@each_row("status", ["-50", "99", "1000", "200.0", '"200"', "true", "[200]", "9" * 400])
def test_what_is_no_status_makes_no_request_and_no_count_of_its_own(status: str) -> None:
    line = f'{{"function": "log_server_request", "method": "GET", "path": "/completion", "status": {status}}}'
    assert feed_of(line, kind=EngineKind.LLAMA_CPP).view().counts == {}
    assert feed_of(line.replace(status, "200"), kind=EngineKind.LLAMA_CPP).view().counts == {"200": 1}


def test_texts_are_bounded() -> None:
    request = of(f'INFO:     {"c" * 60} - "GET /{"a-" * 1000} HTTP/1.1" 404 Not Found')
    assert request is not None
    assert (len(request.path), len(request.client)) == (MOST_PATH, 45)


@each_row(
    ("logged", "shown"),
    [
        ("10.1.2.3:5", "10.1.2.3"),
        ("2001:db8::5:36100", "2001:db8::5"),
        ("[::1]:80", "::1"),
        ("::1", "::1"),
        ("", ""),
        ("unix:", "unix:"),
        ("\x07evil", "\\x07evil"),
    ],
)
def test_a_client_is_an_address_without_port(logged: str, shown: str) -> None:
    request = of(f'INFO:     {logged} - "POST /v1 HTTP/1.1" 200 OK')
    assert request is not None
    assert request.client == shown


@each_row(
    ("text", "took_s"),
    [("0s", 0.0), ("512.3µs", 0.0005123), ("1m3.5s", 63.5), ("2h45m0s", 9900.0), ("1h", 3600.0), ("x", None)],
)
def test_durations_of_go(text: str, took_s: float | None) -> None:
    request = of(f'[GIN] 2025/03/21 - 08:52:32 | 200 | {text} | ::1 | POST "/api/chat"', EngineKind.OLLAMA)
    assert request is not None
    assert request.took_s == pytest.approx(took_s)


@each_row(
    ("text", "stamp"),
    [
        ("INFO 11-26 18:00:00 [core.py:1] up", "11-26 18:00:00"),
        ("[2025-11-26 18:00:00 TP0] up", "11-26 18:00:00"),
        ("2025-11-26T18:00:00.123456789Z", "11-26 18:00:00Z"),
        ("2025-11-26T18:00:00.123456789+00:00", "11-26 18:00:00Z"),
        ("2025-11-26 18:00:00,123 INFO up", "11-26 18:00:00"),
        ("W1126 18:00:00.1 1 x.cc:1] up", "11-26 18:00:00"),
        ("Nov  6 18:00:00 gpu07 vllm[1]: up", "11-06 18:00:00"),
        ("Foo  6 18:00:00 gpu07 vllm[1]: up", ""),
        ("up 18:00:00", ""),
        ("x" * 200 + " 2025-11-26 18:00:00", ""),
    ],
)
def test_the_time_of_a_line(text: str, stamp: str) -> None:
    assert stamp_of(text) == stamp


def feed_of(*lines: str, kind: EngineKind = EngineKind.VLLM, read: str = "") -> RequestFeed:
    feed = RequestFeed(kind)
    feed.take(lines, read_time=read)
    return feed


def test_errors_are_kept_longer_than_other_requests() -> None:
    feed = feed_of(ACCESS.replace("200 OK", "503 Service Unavailable"))
    feed.take([ACCESS] * (MOST_FEED_REQUESTS + 1))
    view = feed.view()
    assert (len(view.newest), [request.status for request in view.errors]) == (MOST_FEED_REQUESTS, [503])
    assert view.counts == {"200": MOST_FEED_REQUESTS + 1, "503": 1}
    feed.take([ACCESS.replace("200 OK", "400 Bad Request")] * (MOST_FEED_REQUESTS + 1))
    assert len(feed.view().errors) == MOST_FEED_REQUESTS


def test_health_checks_and_scrapes_are_counted_apart() -> None:
    view = feed_of(
        ACCESS,
        'INFO:     127.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:1 - "GET /prometheus/metrics/ HTTP/1.1" 404 Not Found',
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
        'INFO:     127.0.0.1:1 - "POST /health HTTP/1.1" 405 Method Not Allowed',
    ).view()
    assert (view.polls, view.failed_polls, view.lines) == (3, 2, 5)
    assert [(request.method, request.path) for request in view.newest] == [
        ("POST", "/health"),
        ("POST", "/v1/completions"),
    ]


def test_a_time_is_that_of_the_line_else_of_reading_else_of_a_line_before() -> None:
    feed = RequestFeed(EngineKind.VLLM)
    feed.take([ACCESS, "INFO 11-26 18:00:00 Engine 000: Running: 3 reqs", ACCESS])
    feed.take([ACCESS], read_time="18:00:07")
    feed.take([ACCESS], ["2025-11-26T18:00:08.1Z"], read_time="18:00:09")
    feed.take([f"[2025-11-26 18:00:10] {ACCESS}"], ["2025-11-26T18:00:11Z"], read_time="18:00:12")
    feed.take([ACCESS])
    assert [(request.time, request.clock) for request in feed.view().newest] == [
        ("11-26 18:00:10", TimeOrigin.AFTER),
        ("11-26 18:00:10", TimeOrigin.LINE),
        ("11-26 18:00:08Z", TimeOrigin.LINE),
        ("18:00:07", TimeOrigin.READ),
        ("11-26 18:00:00", TimeOrigin.AFTER),
        ("", TimeOrigin.NONE),
    ]


def test_a_prompt_of_several_lines_is_no_request() -> None:
    forged = '127.0.0.1:1 - "POST /forged HTTP/1.1" 500'
    assert feed_of("INFO prompt: tell me", forged, "", forged).view().newest == ()
    lines = (ACCESS, "INFO prompt: tell me", forged, ACCESS, forged)
    assert len(feed_of(*lines).view().newest) == 3, "a record in a form of this log ends it"


def test_a_request_ends_a_prompt_in_its_own_query() -> None:
    query = 'INFO:     127.0.0.1:1 - "GET /generate?prompt=swordfish HTTP/1.1" 200 OK'
    view = feed_of(query, '127.0.0.1:1 - "POST /next HTTP/1.1" 200').view()
    assert [request.path for request in view.newest] == ["/next", "/generate"]


def test_colours_and_progress_bars_are_no_hindrance() -> None:
    asked = '\x1b[32mINFO\x1b[0m:     127.0.0.1:1 - "\x1b[1mPOST /v1 HTTP/1.1\x1b[0m"'
    coloured = f"{asked} \x1b[31m500 Internal Server Error\x1b[0m\r\n"
    view = feed_of(coloured, f"Loading: 10%\r{ACCESS}").view()
    assert [request.status for request in view.newest] == [200, 500]


@given(st.text(string.printable + "\x1b\u202e\\'\"[]{}", max_size=200))
def test_no_line_of_a_stranger_breaks_it(text: str) -> None:
    prompt = f"INFO 11-26 18:00:00 Received request c: prompt: {(text + ACCESS)!r}, params: {{}}"
    for kind in (EngineKind.UNKNOWN, EngineKind.VLLM):
        assert feed_of(prompt, kind=kind).view().newest == ()
    for request in feed_of(*text.split("\n"), kind=EngineKind.UNKNOWN).view().newest:
        assert request.path.isprintable()
        assert request.client.isprintable()


def test_hostile_lines_cost_by_their_length() -> None:
    rng = random.Random(1)
    made = [
        *(
            "[GIN] " * 900,
            'HTTP/ - "' * 500,
            "log_server_r: " * 300,
            "{" * 5000 + "HTTP/",
            '{"message":' * 400 + "HTTP/",
        ),
        *(
            ' - "' * 1200 + "HTTP/",
            "srv " * 1000 + "log_server_r",
            "x_router" + ": text_generation_router::infer: " * 120,
        ),
        *("".join(rng.choices('HTTP/ -"{:}[GIN]|srv', k=4096)) for _ in range(20)),
        "a" * 10_000_000,
    ]
    assert feed_of(*made, kind=EngineKind.UNKNOWN).view().lines == len(made), "no pattern goes back and forth"


@each_row(
    ("kind", "command", "reason"),
    [
        (EngineKind.VLLM, "vllm serve m --port 8000", ""),
        (
            EngineKind.VLLM,
            "vllm serve m --disable-uvicorn-access-log",
            "its request lines are off by --disable-uvicorn-access-log: start it without that option",
        ),
        (EngineKind.VLLM, "vllm serve m --disable_uvicorn_access_log --port 1", "its request lines are off by"),
        (
            EngineKind.VLLM,
            "vllm serve m --uvicorn-log-level=WARNING",
            "its request lines are off by --uvicorn-log-level warning: --uvicorn-log-level info writes them",
        ),
        (EngineKind.VLLM, "vllm serve m --uvicorn-log-level debug", ""),
        (EngineKind.VLLM, "vllm serve m --disable-log-requests", ""),
        (EngineKind.VLLM_STACK, "vllm-router --port 8001 --log-level warning", "off by --log-level warning"),
        (EngineKind.SGLANG, "python -m sglang.launch_server --log-level error", "off by --log-level error"),
        (EngineKind.SGLANG, "python -m sglang.launch_server --log-level error --log-level-http info", ""),
        (EngineKind.SGLANG, "python -m sglang.launch_server --log-level-http", ""),
        (EngineKind.LLAMA_CPP, "llama-server -m m.gguf --log-disable", "off by --log-disable"),
        (EngineKind.OLLAMA, "ollama serve --log-disable", ""),
    ],
)
def test_a_command_line_tells_why_there_are_no_request_lines(kind: EngineKind, command: str, reason: str) -> None:
    said = silence_of(kind, command.split())
    assert reason in said
    assert bool(reason) is bool(said)


def test_what_is_said_of_a_silent_log_is_said_of_kinds_with_forms() -> None:
    assert set(SWITCHES) <= set(LINE_FORMS)
    assert set(ACCESS_LOG_HINTS) - set(LINE_FORMS) == {EngineKind.DYNAMO, EngineKind.RAY}, (
        "these two have forms that are not known"
    )
