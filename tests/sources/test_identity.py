"""Who a server says it is, and the API key that it takes to ask: where it goes, to whom, and that it never shows."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import pytest

from gpumon.readings.frame import EndpointState
from gpumon.sources.endpoint import EndpointSource
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.polling import first, polling, until, vllm

KEY = "sk-very-secret-4711"


def guarded(request: Request) -> Reply:
    """A server with an API key: /metrics is open, /v1 is not."""
    if request.path.startswith("/v1") and request.headers.get("authorization") != f"Bearer {KEY}":
        return Reply(401, b'{"error":"Unauthorized"}', "application/json")
    return vllm(request)


def text_of(source: EndpointSource, notices: object) -> str:
    return f"{source!r} {source} {source.reading!r} {notices!r} {source.endpoint!r}"


async def test_the_key_goes_to_v1_only_and_is_in_no_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPUMON_TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with LoopbackServer(guarded) as server:
        async with polling(server.url, api_key_env="GPUMON_TEST_KEY") as source:
            assert await until(lambda: source.reading.model_root == "/models/m")
            notices = await source.poll(0.0)
            server.refuse()
            assert await until(lambda: source.reading.state is EndpointState.REFUSED)
            assert KEY not in text_of(source, notices) + caplog.text
    assert caplog.text
    sent = {request.path for request in server.requests if KEY in str(request.headers)}
    assert sent == {"/v1/models"}
    assert notices.faults == ()


async def test_a_redirect_does_not_carry_the_key_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_TEST_KEY", KEY)
    with LoopbackServer(vllm) as thief:

        def sending_on(request: Request) -> Reply:
            away = Reply(302, b"", headers={"Location": f"{thief.url}/v1/models"})
            return away if request.path == "/v1/models" else vllm(request)

        source = await first(sending_on, api_key_env="GPUMON_TEST_KEY")
        assert thief.requests == []
    assert source.reading.model == "m"
    assert source.reading.model_root == ""


@pytest.mark.parametrize(
    ("key", "words"),
    [(None, "is not set"), ("wrong-key-99", "refuses"), ("two words", "not one word"), ("ключ", "not one word")],
)
async def test_a_key_that_does_not_work_is_a_notice_beside_a_working_engine(
    key: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUMON_TEST_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("GPUMON_TEST_KEY", key)
    source = await first(guarded, api_key_env="GPUMON_TEST_KEY")
    (notice,) = (await source.poll(0.0)).faults
    assert source.reading.state is EndpointState.OK
    assert words in notice.text
    assert (notice.source, "\n" in notice.text) == (source.reading.name, False)
    assert key is None or key not in text_of(source, notice)


@pytest.mark.parametrize("kind", ["~no-such-user/key", "nul", "pipe", "folder"])
async def test_a_key_file_that_can_be_none_is_one_notice_and_no_storm(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = {"nul": "/tmp/k\0ey", "pipe": str(tmp_path / "pipe"), "folder": str(tmp_path)}.get(kind, kind)
    os.mkfifo(tmp_path / "pipe")
    with LoopbackServer(vllm) as server:
        async with polling(server.url, engine="vllm", api_key_file=file) as source:
            assert await until(lambda: len(server.requests) > 10)
            (notice,) = (await source.poll(0.0)).faults
        asked = [request for request in server.requests if request.path == "/v1/models"]
    assert "api_key_file: file" in notice.text
    assert "cannot be read" in notice.text
    assert notice.text.isprintable()
    assert len(asked) == 1
    assert source.reading.state is EndpointState.OK
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
