"""Logs of engines: real processes that write to files, pipes and named pipes, real commands, real links."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.readings.log_text import LogLevel, LogView
from gpumon.sources.engine_log import follow, tails
from gpumon.sources.engine_log.log import MOST_LOG_LINES, EngineLogReader, serving_origin
from gpumon.sources.engine_log.places import LogAccessError, LogFile, NoLog, open_kept, places_of
from gpumon.sources.engine_log.tails import MOST_LOG_BYTES, FileTail, log_tail, run_bounded
from gpumon.sources.family import read_process
from gpumon.sources.last_seen.processes.origin import origin_of
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin
from gpumon.sources.reading_user import ReadingUser
from tests.records import replace
from tests.sources.discovery.servers import free_port

ENGINE = """
import sys
for line in sys.stdin:
    stream = sys.stderr if line.startswith("ERROR") else sys.stdout
    stream.write(line)
    stream.flush()
"""
CONTAINER = "a1b2c3d4e5f6" * 5 + "abcd"
STRANGER = ReadingUser(54321)
needs_root = os.geteuid() == 0


class Engine:
    """A process that writes each line that it is told to."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self.running = running
        server = read_process(running.pid)
        assert server is not None
        self.origin = origin_of(server)

    def write(self, *lines: str) -> None:
        """Have it write; it may not have done so by the end of this call."""
        assert self.running.stdin is not None
        self.running.stdin.write("".join(f"{line}\n" for line in lines))
        self.running.stdin.flush()

    def end(self) -> None:
        """End it, and wait for that."""
        self.running.communicate()


@contextmanager
def engine(out: object, error: object = subprocess.STDOUT, words: Sequence[str] = ()) -> Iterator[Engine]:
    """A running one; `words` are arguments that its program does not look at."""
    command = [sys.executable, "-c", ENGINE, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=error, text=True) as running:  # type: ignore[call-overload]
        wait_for(lambda: Path(f"/proc/{running.pid}/exe").readlink() == Path(sys.executable).resolve())
        try:
            yield Engine(running)
        finally:
            if running.poll() is None:
                running.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something holds."""
    end_s = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end_s, "it never came to hold"
        time.sleep(0.01)


def log_of(origin: EngineOrigin, logs: Path = Path("/nowhere")) -> EngineLogReader:
    return EngineLogReader(lambda: origin, logs)


async def read_until(log: EngineLogReader, condition: Callable[[LogView], bool]) -> LogView:
    """The first view of which something holds."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        view = await log.read()
        if view is not None and condition(view):
            return view
        time.sleep(0.01)
    raise AssertionError("it never came to hold")


def texts(view: LogView) -> list[str]:
    return [line.text for line in view.lines]


async def test_the_file_that_a_process_writes_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    with path.open("a") as file, engine(file) as serving:
        log = log_of(serving.origin)
        serving.write("INFO one", "ERROR two", "INFO prompt: 'swordfish'")
        view = await read_until(log, lambda view: len(view.lines) == 3)
        assert texts(view) == ["INFO one", "ERROR two", "INFO prompt: …(11 characters)"]
        assert view.lines[1].level is LogLevel.ERROR
        assert view.place == f"file {path}"
        assert view.command == f"tail -n 100 {path}"
        serving.write("INFO four")
        view = await read_until(log, lambda view: len(view.lines) == 4)
        assert (view.generation, view.dropped, view.fault) == (2, 0, "")
        os.truncate(path, 0)
        file.write("INFO anew\n")
        file.flush()
        assert serving.running.poll() is None
        view = await read_until(log, lambda view: view.generation == 3)
        assert "swordfish" not in str(view)


async def test_the_log_of_a_dead_engine_is_read_by_what_was_remembered(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    with path.open("w") as file, engine(file) as serving:
        assert serving.origin.output == str(path)
        log = log_of(serving.origin)
        serving.write("INFO one", "ERROR CUDA out of memory")
        await read_until(log, lambda view: len(view.lines) == 2)
        serving.end()
        view = await read_until(log, lambda view: view.generation == 3)
        assert texts(view) == ["INFO one", "ERROR CUDA out of memory"]
    remembered = await log_of(serving.origin).read()
    assert remembered is not None
    assert texts(remembered) == ["INFO one", "ERROR CUDA out of memory"]
    path.unlink()
    gone = await log_of(serving.origin).read()
    assert gone is not None
    assert gone.fault == "No such file or directory"


async def test_standard_error_is_a_second_log(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "error").open("w") as error, engine(out, error) as serving:
        serving.write("INFO one", "ERROR two")
        log = log_of(serving.origin)
        view = await read_until(log, lambda view: texts(view) == ["INFO one"])
        assert view.logs == 2
        log.turn(1)
        assert await read_until(log, lambda view: texts(view) == ["ERROR two"])
        log.turn(1)
        assert await read_until(log, lambda view: texts(view) == ["INFO one"])


async def test_a_pipe_to_tee_leads_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "copy.log"
    with subprocess.Popen(["tee", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as tee:
        with engine(tee.stdin) as serving:
            serving.write("INFO one")
            log = log_of(serving.origin)
            view = await read_until(log, lambda view: texts(view) == ["INFO one"])
            assert view.place == f"file {path}"
        assert tee.stdin is not None
        tee.stdin.close()


async def test_a_pipe_without_a_file_behind_it_is_not_read(tmp_path: Path) -> None:
    with engine(subprocess.PIPE) as serving:
        serving.write("INFO one")
        view = await log_of(serving.origin).read()
        assert view is not None
        assert view.fault.startswith("its output goes to a pipe (pipe:[")
        assert serving.running.stdout is not None
        assert serving.running.stdout.readline() == "INFO one\n", "its own reader gets all of it"


@pytest.mark.parametrize(
    ("target", "told"),
    [("/dev/null", "its output goes to /dev/null: it is not kept"), ("fifo", "its output goes to a pipe")],
)
async def test_devices_and_named_pipes_are_not_read(tmp_path: Path, target: str, told: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    descriptor = os.open(tmp_path / target, os.O_RDWR)
    try:
        with engine(descriptor) as serving:
            view = await log_of(serving.origin).read()
    finally:
        os.close(descriptor)
    assert view is not None
    assert view.fault.startswith(told)
    ended = await log_of(serving.origin).read()
    assert ended is not None
    assert ended.fault


async def test_a_file_of_a_file_system_of_the_kernel_is_not_read() -> None:
    with open("/proc/self/comm", "r+") as file, engine(file) as serving:  # noqa: PTH123
        view = await log_of(serving.origin).read()
    assert view is not None
    assert view.fault == "is no regular file"


async def test_the_file_of_an_option_comes_first(tmp_path: Path) -> None:
    opened = (
        "import sys; file = open(sys.argv[2], 'w'); file.write('INFO by option\\n'); file.flush(); sys.stdin.read()"
    )
    words = [sys.executable, "-c", opened, "--log-file", "llama.log"]
    with (
        (tmp_path / "out").open("w") as out,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=tmp_path) as server,
    ):
        wait_for(lambda: (tmp_path / "llama.log").exists() and bool((tmp_path / "llama.log").read_text()))
        found = read_process(server.pid)
        assert found is not None
        origin = origin_of(found)
        assert origin.output == str(tmp_path / "llama.log")
        view = await log_of(origin).read()
        server.communicate()
    assert view is not None
    assert (texts(view), view.logs) == (["INFO by option"], 2)


async def test_a_deleted_file_is_read_while_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "gone.log"
    with path.open("w") as file, engine(file) as serving:
        path.unlink()
        serving.write("INFO one")
        view = await read_until(log_of(serving.origin), lambda view: texts(view) == ["INFO one"])
        assert view.command == f"tail -n 100 /proc/{serving.running.pid}/fd/1"


async def test_a_huge_file_costs_no_more_than_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    with path.open("wb") as file, engine(file) as serving:
        file.truncate(50 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"secret end of a prompt\n" + b"".join(b"INFO line %d\n" % at for at in range(MOST_LOG_LINES // 2)))
        file.write(b"INFO " + b"x" * 4096 * 100)
        file.flush()
        read: list[int] = []
        tail = FileTail(next(place for place in places_of(serving.origin) if isinstance(place, LogFile)))
        added = tail.read()
        read.append(sum(len(line) for line in added.lines) + len(added.rest))
        assert (added.anew, added.cut) == (True, True)
        assert read[0] <= MOST_LOG_BYTES
        view = await log_of(serving.origin).read()
        assert view is not None
        assert not [text for text in texts(view) if "secret" in text]


async def test_the_end_of_a_line_whose_beginning_was_not_read_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as file, engine(file) as serving:
        file.write(b"INFO prompt: '" + b"swordfish " * MOST_LOG_BYTES)
        file.flush()
        log = log_of(serving.origin)
        shown: list[str] = []
        for written in (b"", b"swordfish ", b"swordfish'\nINFO next\nINFO open"):
            file.write(written)
            file.flush()
            view = await log.read()
            assert view is not None
            shown.append("\n".join(texts(view)))
        assert shown == ["", "", "INFO next\nINFO open"]


async def test_lines_that_are_not_kept_are_looked_at_for_prompts(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    with path.open("w") as file, engine(file) as serving:
        file.write("INFO prompt: tell me\n" + "swordfish\n" * (MOST_LOG_LINES + 100) + "INFO next\n")
        file.flush()
        view = await log_of(serving.origin).read()
        assert view is not None
        assert (len(view.lines), view.lines[-1].text) == (MOST_LOG_LINES, "INFO next")
        assert "swordfish" not in "\n".join(texts(view))


async def test_a_log_whose_descriptor_is_another_one_by_now_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotates = (
        "import os, sys; name = sys.argv[2]; old = open(name, 'w'); old.write('INFO old\\n'); old.flush();"
        "sys.stdin.readline(); os.rename(name, name + '.1'); new = open(name, 'w'); old.close();"
        "new.write('INFO new\\n'); new.flush(); sys.stdin.read()"
    )
    words = [sys.executable, "-c", rotates, "--log-file", str(tmp_path / "llama.log")]
    with (
        (tmp_path / "out").open("w") as out,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True) as server,
    ):
        assert server.stdin is not None
        wait_for(lambda: (tmp_path / "llama.log").exists() and bool((tmp_path / "llama.log").read_text()))
        found = read_process(server.pid)
        assert found is not None
        log = log_of(origin_of(found))
        view = await log.read()
        server.stdin.write("\n")
        server.stdin.flush()
        wait_for(lambda: (tmp_path / "llama.log.1").exists() and bool((tmp_path / "llama.log").read_text()))
        monkeypatch.setattr(follow, "_SEARCH_AGAIN_S", 0.0)
        later = await read_until(log, lambda view: not view.fault and texts(view) == ["INFO new"])
        server.communicate()
    assert view is not None
    assert texts(view) == ["INFO old"]
    assert later.place == view.place


async def test_lines_are_kept_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "busy.log"
    with path.open("w") as file, engine(file) as serving:
        log = log_of(serving.origin)
        total = 0
        while total < MOST_LOG_LINES + 3000:
            file.write("".join(f"INFO {at}\n" for at in range(total, total + 2000)))
            file.flush()
            total += 2000
            view = await log.read()
        assert view is not None
        assert (len(view.lines), view.dropped) == (MOST_LOG_LINES, total - MOST_LOG_LINES)
        assert view.lines[-1].text == f"INFO {total - 1}"
        file.write("INFO without its end")
        file.flush()
        view = await log.read()
        assert view is not None
        assert (view.lines[-1].text, view.unfinished) == ("INFO without its end", 1)
        file.write(" and its end\n")
        file.flush()
        view = await log.read()
        assert view is not None
        assert (view.lines[-1].text, view.unfinished) == ("INFO without its end and its end", 0)


def test_what_another_user_may_not_read_is_not_read_for_him(tmp_path: Path) -> None:
    path = tmp_path / "root.log"
    path.write_text("INFO swordfish\n")
    path.chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    with pytest.raises(LogAccessError, match="may not read it, so gpumon does not"):
        open_kept(path, STRANGER)
    path.chmod(0o604)
    with open_kept(path, STRANGER) as file:
        assert file.read() == b"INFO swordfish\n"


@pytest.mark.parametrize("kind", ["file", "folder", "fifo", "missing"])
def test_a_remembered_name_that_leads_elsewhere_is_not_followed(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "vllm.log").write_text("INFO swordfish\n")
    path = tmp_path / "logs" / "vllm.log"
    if kind == "folder":
        path.parent.symlink_to(other)
    else:
        path.parent.mkdir()
    if kind == "file":
        path.symlink_to(other / "vllm.log")
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(LogAccessError, match=r"a link stands in its place|is no regular file|No such file"):
        open_kept(path, None)


def stranger_with(path: Path) -> Iterator[Engine]:
    """An engine of another user that was given an open file."""
    words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", sys.executable, "-c", ENGINE]
    with path.open("a") as file, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file, text=True) as running:
        # Before it becomes setpriv the child is a copy of this very Python, with this user.
        wait_for(lambda: "Uid:\t54321" in Path(f"/proc/{running.pid}/status").read_text())
        wait_for(lambda: Path(f"/proc/{running.pid}/comm").read_text().startswith("python"))
        yield Engine(running)
        running.communicate()


async def test_root_reads_for_an_engine_no_more_than_its_user_may(tmp_path: Path) -> None:
    path = tmp_path / "wrapper.log"
    path.write_text("INFO swordfish\n")
    path.chmod(0o600)
    if os.geteuid() != 0:  # nobody else's process can be started, and nobody else's output can be seen
        first = places_of(
            EngineOrigin(pid=1, started=int(Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]))
        )
        assert isinstance(first[0], NoLog)
        return
    for serving in stranger_with(path):
        log = log_of(serving.origin)
        view = await log.read()
        assert view is not None
        assert (view.lines, view.fault) == ((), "the engine's user 54321 may not read it, so gpumon does not")
        path.chmod(0o644)
        view = await log.read()
        assert view is not None
        assert texts(view) == ["INFO swordfish"]


def program(folder: Path, name: str, text: str) -> None:
    """A program of that name, first in the path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stands first in the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tails, "_RUN_AGAIN_S", 0.0)
    return folder


@pytest.mark.parametrize(
    ("origin", "asked", "words", "command"),
    [
        (EngineOrigin(unit="vllm.service"), "-u vllm.service -n 2000 -o cat --no-pager -q", "journal of vllm.service",
         "journalctl -u vllm.service -n 100"),
        (EngineOrigin(unit="vllm.service", is_user_unit=True), "--user -u vllm.service -n 2000 -o cat --no-pager -q",
         "journal of vllm.service", "journalctl --user -u vllm.service -n 100"),
    ],
)  # fmt: skip
async def test_the_journal_of_its_unit(
    programs: Path, origin: EngineOrigin, asked: str, words: str, command: str
) -> None:
    program(programs, "journalctl", f'[ "$*" = "{asked}" ] && echo "INFO one" && cat {programs}/more 2>/dev/null; true')
    log = log_of(origin)
    view = await log.read()
    assert view is not None
    assert (view.place, view.command, texts(view)) == (words, command, ["INFO one"])
    (programs / "more").write_text("ERROR two\n")
    view = await log.read()
    assert view is not None
    assert texts(view) == ["INFO one", "ERROR two"]


@pytest.mark.parametrize("lines", [2000, 300])
async def test_what_stands_before_the_first_record_of_a_cut_journal_is_not_shown(programs: Path, lines: int) -> None:
    program(programs, "journalctl", f"echo swordfish in a prompt; for i in $(seq {lines - 1}); do echo INFO $i; done")
    view = await log_of(EngineOrigin(unit="vllm.service")).read()
    assert view is not None
    assert view.lines[-1].text == f"INFO {lines - 1}"
    assert ("swordfish" in "\n".join(texts(view))) == (lines < 2000)


async def test_a_container_is_asked_of_the_runtime_that_knows_it(programs: Path) -> None:
    program(programs, "docker", 'echo "permission denied while trying to connect" >&2; exit 1')
    log = log_of(EngineOrigin(container=CONTAINER))
    view = await log.read()
    assert view is not None
    assert (view.fault, view.command) == (
        "permission denied while trying to connect",
        f"docker logs --tail 100 {CONTAINER[:12]}",
    )
    program(
        programs,
        "podman",
        f'[ "$*" = "logs --timestamps --tail 2000 {CONTAINER}" ] && '
        'echo "2025-11-26T18:00:00.123456789Z INFO out" && echo "2025-11-26T18:00:00+00:00 ERROR error" >&2',
    )
    view = await log.read()
    assert view is not None
    assert (view.fault, texts(view)) == ("", ["INFO out", "ERROR error"])


def test_a_command_is_bounded_in_time_and_size(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_COMMAND_S", 0.3)
    program(programs, "hangs", "exec sleep 600")
    assert run_bounded(["hangs"]) == (b"", "hangs did not end within 0 s, or printed too much")
    monkeypatch.setattr(tails, "_COMMAND_S", 60.0)
    program(programs, "floods", "exec yes 0123456789")
    assert run_bounded(["floods"])[1].startswith("floods did not end")
    program(programs, "prints", "seq 100000")
    printed, fault = run_bounded(["prints"])
    assert (len(printed), printed[-7:], fault) == (MOST_LOG_BYTES, b"100000\n", "")


def pod_of(logs: Path, text: str, form: str = "0.log") -> EngineOrigin:
    """A pod's log as the kubelet keeps it."""
    folder = logs / "pods" / "llm_vllm-0_11111111-2222-3333-4444-555555555555" / "vllm"
    folder.mkdir(parents=True)
    (folder / form).write_text(text)
    (logs / "containers").mkdir()
    (logs / "containers" / f"vllm-0_llm_vllm-{CONTAINER}.log").symlink_to(folder / form)
    return EngineOrigin(pod="llm/vllm-0", container=CONTAINER)


async def test_the_log_of_a_pod_is_the_kubelets_file(tmp_path: Path) -> None:
    stamp = "2025-11-26T18:00:00.123456789Z"
    origin = pod_of(
        tmp_path, f"{stamp} stdout F INFO one\n{stamp} stderr P INFO prompt: 'swordfish\n{stamp} stderr F end'\n"
    )
    view = await log_of(origin, tmp_path).read()
    assert view is not None
    assert view.place == "log of pod llm/vllm-0"
    assert texts(view) == ["INFO one", "INFO prompt: …(10 characters)", "  …(4 characters)"]


async def test_a_pod_that_can_not_be_read_gives_the_command_and_runs_nothing(programs: Path, tmp_path: Path) -> None:
    program(programs, "kubectl", f"touch {tmp_path}/ran")
    view = await log_of(EngineOrigin(pod="llm/vllm-0", container=CONTAINER), tmp_path / "none").read()
    assert view is not None
    assert view.command == "kubectl logs -n llm vllm-0 --tail=100 --previous"
    assert "cannot read" in view.fault
    assert not (tmp_path / "ran").exists()


async def test_a_link_in_the_kubelets_folder_leads_nowhere_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("INFO swordfish\n")
    origin = pod_of(tmp_path, "INFO one\n")
    link = tmp_path / "containers" / f"vllm-0_llm_vllm-{CONTAINER}.log"
    file = link.readlink()
    file.unlink()
    file.symlink_to(secret)
    view = await log_of(origin, tmp_path).read()
    assert view is not None
    assert (view.lines, view.command) == ((), "kubectl logs -n llm vllm-0 --tail=100 --previous")
    link.unlink()
    link.symlink_to(secret)
    view = await log_of(origin, tmp_path).read()
    assert view is not None
    assert view.lines == ()


def test_a_process_that_came_in_the_place_of_another_is_not_it(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file, engine(file) as serving:
        place = places_of(serving.origin)[0]
        assert isinstance(place, LogFile)
        earlier = replace(serving.origin, started=serving.origin.started - 1)
        assert isinstance(places_of(replace(earlier, output=""))[0], NoLog)
    assert log_tail(place)().fault == "its process has ended"


async def test_an_engine_of_nobody_known_says_so() -> None:
    view = await log_of(NO_ORIGIN).read()
    assert view is not None
    assert view.fault == "no process of this host is known that serves it"


def test_the_server_at_a_url_is_found_by_its_socket(tmp_path: Path) -> None:
    port = free_port()
    listens = (
        "import socket, sys; server = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
        "print('up', flush=True); sys.stdin.read()"
    )
    with (tmp_path / "log").open("w+") as file:
        words = [sys.executable, "-c", listens, str(port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file) as server:
            wait_for(lambda: bool((tmp_path / "log").read_text()))
            origin = serving_origin(f"http://127.0.0.1:{port}")
            server.communicate()
    assert (origin.pid, origin.output, origin.uid) == (server.pid, str(tmp_path / "log"), os.geteuid())
    assert serving_origin(f"http://127.0.0.1:{port}") == NO_ORIGIN
    assert serving_origin("http://192.0.2.1:8000") == NO_ORIGIN


def test_a_program_that_ends_its_output_and_lives_on_is_not_waited_for() -> None:
    lives_on = "import os, sys, time; print('a line', flush=True); os.close(1); os.close(2); time.sleep(600)"
    assert run_bounded([sys.executable, "-c", lives_on]) == (b"a line\n", "")
