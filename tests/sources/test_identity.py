"""Who a server says it is, and the API key that it takes to ask: where it goes, to whom, and that it never shows."""

from __future__ import annotations

import gc
import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.config.schema import Dcgm
from gpumon.readings.frame import EndpointState
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.endpoint import EndpointSource
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.discovery.servers import free_port
from tests.sources.polling import HURRIED, PATIENT, first, polling, until, vllm

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


SESAME = "open-sesame-1234"
OTHER = pwd.getpwnam("nobody")
SERVER = """
import encodings.idna, http.server, os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))

class Thief(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        print(self.path, self.headers.get("Authorization"), flush=True)
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Thief)
print("listens", flush=True)
server.serve_forever()
"""


@contextmanager
def asking_for_keys(uid: int, log: Path) -> Iterator[str]:
    """The URL of a server of this user that answers everything with 401 and writes down the keys that it gets."""
    port = free_port()
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", SERVER, str(port), str(uid)], stdout=file)
    try:
        while b"listens" not in log.read_bytes():
            assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "key"
    path.write_text(SESAME)
    monkeypatch.setenv("THE_KEY", SESAME)
    return path


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user as well")


@needs_root
@pytest.mark.parametrize("where", ["env", "file"])
async def test_who_took_the_port_of_a_server_that_is_down_gets_no_key(key: Path, tmp_path: Path, where: str) -> None:
    given = {"api_key_env": "THE_KEY"} if where == "env" else {"api_key_file": str(key)}
    log = tmp_path / "log"
    with asking_for_keys(OTHER.pw_uid, log) as url:
        async with polling(url, engine="vllm", **given) as source:
            assert await until(lambda: source.reading.state is EndpointState.UNAUTHORIZED)
            assert await until(lambda: log.read_text().count("/metrics") > 3)
            fault = source.reading.fault
        dcgm = DcgmSource(Dcgm(url=url, interval_s=0.5, **given), limits=PATIENT, back_off=HURRIED)
        await dcgm.start()
        await dcgm.ready(60.0)
        (told,) = (await dcgm.poll(0.0)).faults
        await dcgm.close()
    assert SESAME not in log.read_text()
    for text in (fault, told.text):
        assert "the server on this port belongs to nobody" in text
        assert 'api_key_user = "nobody"' in text
        assert SESAME not in text


@needs_root
async def test_the_user_that_the_config_names_gets_it_and_so_does_the_owner_of_its_file(
    key: Path, tmp_path: Path
) -> None:
    for given in ({"api_key_env": "THE_KEY", "api_key_user": "nobody"}, {"api_key_file": str(key)}):
        os.chown(key, OTHER.pw_uid, -1)
        log = tmp_path / "log"
        with asking_for_keys(OTHER.pw_uid, log) as url:
            async with polling(url, engine="vllm", **given):
                assert await until(lambda log=log: f"Bearer {SESAME}" in log.read_text())  # type: ignore[misc]


async def test_a_server_of_ones_own_gets_it(key: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with asking_for_keys(os.geteuid(), log) as url:
        async with polling(url, engine="vllm", api_key_file=str(key)):
            assert await until(lambda: f"Bearer {SESAME}" in log.read_text())
