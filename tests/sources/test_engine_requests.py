"""Requests in logs of real processes, commands and pods: read while they are looked at, and counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpumon.readings.frame import EngineKind
from gpumon.readings.request_feed import RequestView
from gpumon.readings.request_lines import TimeOrigin
from gpumon.sources.engine_log.log import EngineLogReader
from gpumon.sources.engine_log.requests import EngineRequestsReader
from gpumon.sources.engine_log.tails import shared_lines
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin
from tests.each_row import each_row
from tests.sources.test_engine_log import CONTAINER, engine, pod_of, program, programs, wait_for

__all__ = ("programs",)
ACCESS = 'INFO:     127.0.0.1:{port} - "POST /v1/completions HTTP/1.1" {status}'


def access(port: int, status: str = "200 OK") -> str:
    return ACCESS.format(port=port, status=status)


def requests_of(
    origin: EngineOrigin, kind: EngineKind = EngineKind.VLLM, logs: Path = Path("/nowhere")
) -> EngineRequestsReader:
    return EngineLogReader(lambda: origin, logs).requests(kind)


async def read_until(requests: EngineRequestsReader, condition: Callable[[RequestView], bool]) -> RequestView:
    """The first view of which something holds."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        view = await requests.read()
        if view is not None and condition(view):
            return view
        time.sleep(0.01)
    raise AssertionError("it never came to hold")


async def test_requests_are_read_as_an_engine_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    with path.open("a") as file, engine(file) as serving:
        serving.write(access(1), "INFO prompt: 'swordfish'", access(2, "404 Not Found"))
        wait_for(lambda: path.read_text().count("\n") == 3)
        requests = requests_of(serving.origin)
        view = await requests.read()
        assert view is not None
        assert [(request.status, request.clock) for request in view.newest] == [
            (404, TimeOrigin.NONE),
            (200, TimeOrigin.NONE),
        ]
        assert (view.place, view.fault, view.counts) == (f"file {path}", "", {"200": 1, "404": 1})
        assert "swordfish" not in str(view)
        serving.write(access(3))
        view = await read_until(requests, lambda view: view.lines == 4)
        assert (view.newest[0].clock, len(view.newest), view.generation) == (TimeOrigin.READ, 3, 2)
        file.write(access(4)[:-3])
        file.flush()
        view = await read_until(requests, lambda view: True)
        assert view.lines == 4, "a line without its end may be of a longer one"
        os.truncate(path, 0)
        serving.write(access(5, "500 Internal Server Error"))
        view = await read_until(requests, lambda view: view.generation == 3 and view.lines == 1)
        assert view.counts == {"500": 1}


async def test_an_engine_that_was_told_to_log_no_requests_says_so(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file, engine(file, words=["--uvicorn-log-level", "warning"]) as serving:
        serving.write("INFO up")
        requests = requests_of(serving.origin)
        view = await read_until(requests, lambda view: view.lines == 1)
        assert view.silence.startswith("its request lines are off by --uvicorn-log-level warning")
        other = await requests_of(serving.origin, EngineKind.TRITON).read()
        assert other is not None
        assert "--log-verbose=1" in other.silence


async def test_an_engine_of_nobody_known_has_no_requests() -> None:
    view = await requests_of(NO_ORIGIN).read()
    assert view is not None
    assert view.fault == "no process of this host is known that serves it"


async def test_error_output_is_a_second_log_of_requests(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "error").open("w") as error, engine(out, error) as serving:
        serving.write(access(1), f"ERROR {access(2, '500 Internal Server Error')}")
        requests = requests_of(serving.origin)
        view = await read_until(requests, lambda view: view.lines == 1)
        assert (view.logs, view.counts) == (2, {"200": 1})
        requests.turn(1)
        assert (await read_until(requests, lambda view: view.lines == 1)).counts == {"500": 1}


async def test_what_a_container_printed_since_is_counted_once_and_has_its_time(programs: Path) -> None:
    stamp = "2025-11-26T18:00:00.123456789Z"
    lines = [f"{stamp} {access(1)}", f"{stamp} {access(1)}", f"{stamp} INFO up"]
    (programs / "printed").write_text("\n".join(lines) + "\n")
    program(programs, "docker", f"cat {programs}/printed")
    requests = requests_of(EngineOrigin(container=CONTAINER))
    view = await requests.read()
    assert view is not None
    assert [(request.time, request.clock) for request in view.newest] == [("11-26 18:00:00Z", TimeOrigin.LINE)] * 2
    (programs / "printed").write_text("\n".join([*lines[1:], f"2025-11-26T18:00:09Z {access(2)}"]) + "\n")
    view = await requests.read()
    assert view is not None
    assert (view.counts, view.lines, view.generation, view.newest[0].time) == ({"200": 3}, 4, 2, "11-26 18:00:09Z")
    (programs / "printed").write_text(f"{stamp} another container's line\n")
    view = await requests.read()
    assert view is not None
    assert (view.counts, view.lines, view.generation) == ({}, 1, 3)


async def test_the_kubelet_tells_when_a_request_was_logged(tmp_path: Path) -> None:
    origin = pod_of(tmp_path, f"2025-11-26T18:00:00.123456789Z stdout F {access(1)}\n")
    view = await requests_of(origin, logs=tmp_path).read()
    assert view is not None
    assert [request.time for request in view.newest] == ["11-26 18:00:00Z"]


async def test_a_flood_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "flood.log"
    with path.open("w") as file, engine(file) as serving:
        requests = requests_of(serving.origin)
        await requests.read()
        file.write(f"{access(1)}\n" * 100_000)
        file.write("\x00\xff" * 10_000 + "\n" + access(2, "500 x") + "\n")
        file.flush()
        view = await requests.read()
        assert view is not None
        assert 0 < view.lines < 4_000
        assert view.errors[0].status == 500


def test_a_program_that_writes_by_itself_is_followed(tmp_path: Path) -> None:
    """The lines of a loop of another process, each flushed by itself, come whole and once."""
    path = tmp_path / "loop.log"
    writes = (
        "import sys\n"
        "for port in range(2000):\n"
        "    line = f'INFO:     127.0.0.1:{port} - \"POST /v1/{port} HTTP/1.1\" 200 OK\\n'\n"
        "    sys.stdout.write(line[:30]); sys.stdout.flush(); sys.stdout.write(line[30:]); sys.stdout.flush()\n"
    )
    with path.open("w") as file, subprocess.Popen([sys.executable, "-c", writes], stdout=file) as writer:
        requests = requests_of(EngineOrigin(output=str(path), uid=os.geteuid()))
        end_s = time.monotonic() + 60.0
        while requests._read().lines < 2000:
            assert time.monotonic() < end_s
        assert writer.wait() == 0
    view = requests._read()
    assert view.counts == {"200": 2000}
    assert [request.path for request in view.newest] == [f"/v1/{port}" for port in range(1999, 1499, -1)]


@each_row(
    ("before", "after", "shared"),
    [
        ("", "abc", 0),
        ("abc", "", 0),
        ("abc", "abcde", 3),
        ("abc", "cde", 1),
        ("abc", "bcd", 2),
        ("abc", "def", 0),
        ("aaa", "aaaa", 3),
        ("aba", "abac", 3),
        ("xab", "abxab", 2),
    ],
)
def test_lines_that_were_printed_before_are_found(before: str, after: str, shared: int) -> None:
    assert (
        shared_lines([bytes([byte]) for byte in before.encode()], [bytes([byte]) for byte in after.encode()]) == shared
    )
