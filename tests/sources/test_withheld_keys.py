"""An API key goes to a port of this host only while the server there is of a user that the key was given for."""

from __future__ import annotations

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
from tests.sources.discovery.servers import free_port
from tests.sources.polling import HURRIED, PATIENT, polling, until

KEY = "open-sesame-1234"
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
    path.write_text(KEY)
    monkeypatch.setenv("THE_KEY", KEY)
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
    assert KEY not in log.read_text()
    for text in (fault, told.text):
        assert "nobody listens on this port" in text
        assert 'api_key_user = "nobody"' in text
        assert KEY not in text


@needs_root
async def test_the_user_that_the_config_names_gets_it_and_so_does_the_owner_of_its_file(
    key: Path, tmp_path: Path
) -> None:
    for given in ({"api_key_env": "THE_KEY", "api_key_user": "nobody"}, {"api_key_file": str(key)}):
        os.chown(key, OTHER.pw_uid, -1)
        log = tmp_path / "log"
        with asking_for_keys(OTHER.pw_uid, log) as url:
            async with polling(url, engine="vllm", **given):
                assert await until(lambda log=log: f"Bearer {KEY}" in log.read_text())  # type: ignore[misc]


async def test_a_server_of_ones_own_gets_it(key: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with asking_for_keys(os.geteuid(), log) as url:
        async with polling(url, engine="vllm", api_key_file=str(key)):
            assert await until(lambda: f"Bearer {KEY}" in log.read_text())
