"""Names of containers, from a server that answers on a socket as Docker's daemon does."""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpumon.sources.driver import container_names
from gpumon.sources.driver.container_names import ContainerNames
from gpumon.sources.driver.names import ProcessNames
from tests.sources.last_seen.test_causes import cgroup_root

ID = "a1b2c3d4e5f6" * 5 + "abcd"
CGROUPS = (f"0::/system.slice/docker-{ID}.scope\n", f"12:pids:/docker/{ID}\n0::/docker/{ID}/init.scope\n")


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Docker's daemon as far as it lists containers."""

    daemon_threads = True

    def __init__(self, path: Path, body: str, status: int) -> None:
        super().__init__(str(path), _Handler)
        self.body = body
        self.status = status
        self.asked: list[str] = []
        self.holds = threading.Event()
        self.holds.set()


class _Handler(BaseHTTPRequestHandler):
    server: Daemon

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.holds.wait()
        with contextlib.suppress(BrokenPipeError):  # a held answer comes when its reader has given up
            self.send_response(self.server.status)
            self.end_headers()
            self.wfile.write(self.server.body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of http.server
        """Quiet."""


@contextmanager
def daemon(path: Path, body: str, status: int = 200) -> Iterator[Daemon]:
    with Daemon(path, body, status) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield server
        finally:
            server.holds.set()
            server.shutdown()
            serving.join()


def listing(names: Sequence[object], container: str = ID) -> str:
    return json.dumps([{"Id": container, "Names": names, "Image": "vllm/vllm-openai"}])


@pytest.mark.parametrize("cgroup", CGROUPS)
def test_a_container_is_named_once_by_the_daemon(tmp_path: Path, cgroup: str) -> None:
    with daemon(tmp_path / "docker.sock", listing(["/router/vllm", "/vllm-prod"])) as server:
        names = ContainerNames(tmp_path / "docker.sock")
        assert [names.of(cgroup), names.of(cgroup)] == ["vllm-prod", "vllm-prod"]
    (asked,) = server.asked
    assert urlsplit(asked).path == "/containers/json"
    assert json.loads(parse_qs(urlsplit(asked).query)["filters"][0]) == {"id": [ID]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (listing(["/vllm-prod"], "b" * 64), 200),
        (listing(["/\x1b[31mevil", 7, "no-slash", "/" + "x" * 200]), 200),
        (json.dumps([{"Id": ID, "Names": None}, 7]), 200),
        (json.dumps({"message": "no"}), 200),
        (listing(["/vllm-prod"]), 403),
        ("[" * 100_000, 200),
        ("x" * 1_000_000, 200),
        ("", 200),
    ],
)
def test_an_answer_without_a_name_gives_none(tmp_path: Path, body: str, status: int) -> None:
    with daemon(tmp_path / "docker.sock", body, status):
        assert ContainerNames(tmp_path / "docker.sock").of(CGROUPS[0]) == ""


def test_a_daemon_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_names, "DEADLINE_S", 0.05)
    with daemon(tmp_path / "docker.sock", listing(["/vllm-prod"])) as server:
        server.holds.clear()
        names = ContainerNames(tmp_path / "docker.sock")
        assert [names.of(CGROUPS[0]), names.of(CGROUPS[1].replace("a1", "b1"))] == ["", ""]
        assert len(server.asked) <= 1


def test_nobody_is_asked_for_what_is_no_container_of_docker(tmp_path: Path) -> None:
    with daemon(tmp_path / "docker.sock", listing(["/vllm-prod"])) as server:
        names = ContainerNames(tmp_path / "docker.sock")
        for cgroup in ("0::/user.slice\n", f"0::/kubepods/pod1/{ID}\n", f"0::/machine.slice/libpod-{ID}.scope\n"):
            assert names.of(cgroup) == ""
        assert server.asked == []


@pytest.mark.skipif(cgroup_root() is None, reason="making a cgroup is not permitted here (needs root)")
@pytest.mark.parametrize(("uid", "name"), [(0, "vllm-prod"), (1, "")], ids=["own", "of another user"])
def test_nobody_is_asked_for_a_container_that_another_user_has_named(uid: int, name: str, tmp_path: Path) -> None:
    root = cgroup_root()
    assert root is not None
    manager = root / f"test-{os.getpid()}" / f"user@{os.geteuid() + uid}.service"
    scope = manager / f"docker-{ID}.scope"
    with (
        daemon(tmp_path / "docker.sock", listing(["/vllm-prod"])) as server,
        subprocess.Popen(["sleep", "600"]) as process,
    ):
        try:
            scope.mkdir(parents=True)
            (scope / "cgroup.procs").write_text(str(process.pid))
            found = ProcessNames(ContainerNames(tmp_path / "docker.sock")).of(process.pid, 1.0)
        finally:
            process.kill()
            process.wait()
            for folder in (scope, manager, manager.parent):
                folder.rmdir()
    assert (found.container_name, bool(found.container), bool(server.asked)) == (name, bool(name), bool(name))


def test_a_file_or_nothing_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert ContainerNames(tmp_path / "file").of(CGROUPS[0]) == ""
    assert ContainerNames(tmp_path / "none").of(CGROUPS[0]) == ""


def test_a_process_outside_of_docker_has_no_name(tmp_path: Path) -> None:
    found = ProcessNames(ContainerNames(tmp_path / "none")).of(os.getpid(), 1.0)
    assert found.container_name == ""
