"""Processes of an engine that end or stand still while others live: what is remembered, told, and left untold."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.readings.frame import EngineKind, EngineReading, PartState
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.family import ProcessRecord, children_by_parent, read_process
from gpumon.sources.last_seen.memory.parts import HELD_S, PartsWatch
from gpumon.sources.last_seen.processes.origin import relaunch_command
from gpumon.sources.last_seen.processes.process_state import ProcessState, Tick
from gpumon.sources.last_seen.processes.tree import PartsScan, ThreadsScan, merge_parts, part_state, role_of
from gpumon.sources.last_seen.records import EngineOrigin, ProcessPart
from tests.each_row import each_row
from tests.records import replace
from tests.sources.last_seen.test_memory import Host

SERVER = ProcessPart("API server", 47, 1)
CORE = ProcessPart("engine core", 48, 2)
NEW_CORE = ProcessPart("engine core", 99, 9)
VLLM = EngineOrigin(pid=47, started=1, command="vllm serve m", relaunch="cd /srv && vllm serve m", parts=(SERVER, CORE))
GONE, STOPPED, UNINTERRUPTIBLE = PartState.GONE, PartState.STOPPED, PartState.UNINTERRUPTIBLE


@pytest.fixture
def host() -> Host:
    made = Host()
    made.runs(VLLM)
    return made


def set_states(host: Host, **states: PartState) -> None:
    """From now on its core (`core`) or its server is in this state; all others run."""
    ids = {"core": CORE.id, "server": SERVER.id}
    told = {ids[name]: state for name, state in states.items()}
    gone = frozenset(key for key, state in told.items() if state is GONE)
    host.processes = host.processes._replace(states=told, ended=gone)


def told_after(host: Host, seconds: float) -> EngineReading:
    """Its reading after so many seconds in which it goes on to answer."""
    end_s = host.now_s + seconds
    while host.now_s < end_s:
        host.now_s += 1.0
        (shown,) = host.see(host.reading())
    return shown


def test_a_core_that_is_gone_while_its_server_lives_is_told_after_half_a_minute(host: Host) -> None:
    host.serve(20, gpus=("GPU-1",))
    set_states(host, core=GONE)
    assert told_after(host, 29).parts is None
    report = told_after(host, 3).parts
    assert report is not None
    assert [(part.role, part.pid, part.state) for part in report.parts] == [
        ("engine core", 48, GONE),
        ("API server", 47, PartState.RUNS),
    ]
    assert report.command == "cd /srv && vllm serve m"
    assert told_after(host, 1).gpus == ("GPU-1",), "its memory is free, and yet it is its GPU"


def test_a_core_that_another_takes_the_place_of_is_not_missed(host: Host) -> None:
    host.serve(20)
    set_states(host, core=GONE)
    told_after(host, 12)
    host.runs(replace(VLLM, parts=(SERVER, NEW_CORE)))
    assert told_after(host, 60).parts is None


def test_an_engine_that_ends_as_a_whole_lacks_no_part(host: Host) -> None:
    host.serve(20)
    set_states(host, core=GONE)
    told_after(host, 20)
    set_states(host, core=GONE, server=GONE)
    host.now_s += 30.0
    for shown in host.see():
        assert shown.parts is None


@each_row(
    ("state", "seconds"),
    [
        (STOPPED, 3),
        (PartState.FROZEN, 3),
        (PartState.TRACED, 22),
        (UNINTERRUPTIBLE, 32),
        (PartState.THREAD_UNINTERRUPTIBLE, 22),
        (GONE, 32),
    ],
)
def test_a_state_is_told_once_it_has_lasted_and_not_after_it(state: PartState, seconds: int) -> None:
    host = Host()
    host.runs(VLLM)
    host.serve(30)
    set_states(host, core=state)
    assert told_after(host, HELD_S[state] - 1).parts is None
    report = told_after(host, seconds - HELD_S[state] + 2).parts
    assert report is not None
    assert report.parts[0].state is state
    set_states(host)
    assert told_after(host, 1).parts is None


def test_a_process_that_was_stopped_before_gpumon_came_is_told_at_the_second_look(host: Host) -> None:
    set_states(host, core=STOPPED)
    assert told_after(host, 1).parts is None
    assert told_after(host, 2).parts is not None


def test_a_process_that_waits_for_its_disk_when_gpumon_comes_may_do_so_for_a_moment(host: Host) -> None:
    set_states(host, core=UNINTERRUPTIBLE)
    assert told_after(host, 20).parts is None
    assert told_after(host, 12).parts is not None


@each_row(
    ("remembered", "living", "ended", "kept"),
    [
        ((SERVER, CORE), (SERVER, CORE), {NEW_CORE.id}, (SERVER, CORE)),
        ((SERVER, CORE), (SERVER,), {CORE.id}, (SERVER, CORE)),
        ((SERVER, CORE), (SERVER, NEW_CORE), {CORE.id}, (SERVER, NEW_CORE)),
        # Not seen under the server, and yet alive: both are there.
        ((SERVER, CORE), (SERVER, NEW_CORE), set(), (SERVER, NEW_CORE, CORE)),
        # A core that this run never saw is the one that an earlier run did.
        ((SERVER, CORE), (SERVER, ProcessPart("engine core", 0, 0)), {CORE.id, (0, 0)}, (SERVER, CORE)),
        ((SERVER, ProcessPart("engine core", 0, 0)), (SERVER, NEW_CORE), {(0, 0)}, (SERVER, NEW_CORE)),
    ],
)
def test_parts_are_remembered_until_they_are_replaced(
    remembered: tuple[ProcessPart, ...],
    living: tuple[ProcessPart, ...],
    ended: set[tuple[int, int]],
    kept: tuple[ProcessPart, ...],
) -> None:
    assert merge_parts(remembered, living, ended) == kept


@each_row(
    ("title", "role"),
    [
        ("VLLM::EngineCore", "engine core"),
        ("VLLM::EngineCore_DP1", "engine core DP1"),
        ("VLLM::Worker_DP0_TP3_EP3", "worker DP0 TP3 EP3"),
        ("VLLM::APIServer_1", "API server 1"),
        ("VLLM::DPCoordinator", "DP coordinator"),
        ("sglang::scheduler_TP0", "scheduler TP0"),
        ("sglang::detokenizer", "detokenizer"),
        ("python -c from multiprocessing.resource_tracker import main;main(31)", ""),
        ("ray::RayWorkerWrapper", "RayWorkerWrapper"),
    ],
)
def test_the_role_of_a_process_is_what_it_calls_itself(title: str, role: str) -> None:
    assert role_of(ProcessRecord(1, 0, 1, "x", (title,), 0)) == role


def test_a_real_tree_is_followed_through_stop_end_and_zombie(tmp_path: Path) -> None:
    script = tmp_path / "tree.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['VLLM::EngineCore'], executable='/bin/bash', stdin=subprocess.PIPE)\n"
        "helper = subprocess.Popen(['helper'], executable='/bin/bash', stdin=subprocess.PIPE)\n"
        "print(child.pid, helper.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    server = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    core_pid, helper_pid = map(int, server.stdout.readline().split())
    record = read_process(server.pid)
    assert record is not None
    scan = PartsScan()
    parts = scan.parts(record, EngineKind.VLLM, {core_pid}, children_by_parent(), 0.0)
    assert [(part.role, part.pid) for part in parts] == [("API server", server.pid), ("engine core", core_pid)]
    with_helper = [
        scan.parts(record, EngineKind.VLLM, {core_pid, helper_pid}, children_by_parent(), at_s)[-1].role
        for at_s in (0.0, 59.0, 61.0)
    ]
    assert with_helper == ["engine core", "engine core", "GPU process"]
    core = parts[1]
    assert part_state(core.id) is PartState.RUNS
    for signal_name, wanted in (("STOP", STOPPED), ("CONT", PartState.RUNS), ("KILL", GONE)):
        subprocess.run(["/bin/kill", f"-{signal_name}", str(core_pid)], check=True)
        end_s = time.monotonic() + 20.0
        while part_state(core.id) is not wanted:
            assert time.monotonic() < end_s
            time.sleep(0.02)
    assert Path(f"/proc/{core_pid}").exists(), "a zombie: nobody has waited for it"
    assert [part.pid for part in scan.parts(record, EngineKind.VLLM, (), children_by_parent(), 0.0)] == [server.pid]
    server.communicate()


def test_a_thread_that_waits_in_the_kernel_is_seen_at_the_second_look(tmp_path: Path) -> None:
    """A thread that starts a process waits for its exec in state D: here the child opens a pipe first that has no other
    end. The first thread sleeps as ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "import ctypes, os, sys, threading\n"
        "libc = ctypes.CDLL(None)\n"
        "actions = ctypes.create_string_buffer(1024)\n"
        "libc.posix_spawn_file_actions_init(actions)\n"
        f"libc.posix_spawn_file_actions_addopen(actions, 0, {os.fsencode(pipe)!r}, os.O_RDONLY, 0)\n"
        "words = (ctypes.c_char_p * 2)(b'true', None)\n"
        "args = (ctypes.byref(ctypes.c_int()), b'/bin/true', actions, None, words, None)\n"
        "threading.Thread(target=libc.posix_spawn, args=args, daemon=True).start()\n"
        "print('on', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    record = read_process(child.pid)
    assert record is not None
    process_id = (record.pid, record.started)
    end_s = time.monotonic() + 10.0
    while not any(b") D " in stat.read_bytes() for stat in Path(f"/proc/{child.pid}/task").glob("*/stat")):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    scan = ThreadsScan()
    assert part_state(process_id) is PartState.RUNS
    waits = [scan.has_one_that_waits(process_id, at_s) for at_s in (0.0, 5.0, 10.0, 12.0)]
    assert waits == [False, False, True, True], "a look of 10 s before is needed, and none is made between"
    with pipe.open("w"):
        child.communicate()
    assert not scan.has_one_that_waits(process_id, 20.0)


def test_what_cannot_be_read_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert part_state((1, 1)) is PartState.RUNS


def test_a_leader_that_ended_before_its_threads_is_no_zombie() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n"
        "print('on', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    record = read_process(child.pid)
    assert record is not None
    end_s = time.monotonic() + 10.0
    while b") Z " not in Path(f"/proc/{child.pid}/stat").read_bytes() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert part_state((record.pid, record.started)) is PartState.RUNS
    child.kill()
    child.communicate()


def test_a_command_to_start_anew_has_folder_and_variables_and_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    program = folder / "vllm"
    program.write_text("import sys; sys.stdin.read()")
    variables = {
        "CUDA_VISIBLE_DEVICES": "2,3",
        "HF_HOME": "/data/hf",
        "HF_TOKEN": "hf_abcdefghijklmnop",
        "VLLM_API_KEY": "hunter2",
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
        "NCCL_PROXY": "http://me:hunter2@proxy",
        "EDITOR": "vi",
    }
    argv = [sys.executable, str(program), "serve", "m", "--max-model-len", "8192", "--api-key", "hunter2"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=folder, env=variables)
    record = read_process(child.pid)
    end_s = time.monotonic() + 10.0
    while record is None or len(record.argv) < 2:
        assert time.monotonic() < end_s
        record = read_process(child.pid)
    command = relaunch_command(record)
    child.communicate()
    # A path with blanks is struck out of a command line: it may hold anything.
    assert command == (
        f"cd '{folder}' && CUDA_VISIBLE_DEVICES=2,3 HF_HOME=/data/hf HF_TOKEN=*** NCCL_PROXY=*** VLLM_API_KEY=*** "
        f"VLLM_ATTENTION_BACKEND=FLASHINFER {sys.executable} *** serve m --max-model-len 8192 --api-key ***"
    )
    assert "hunter2" not in command


def test_a_word_with_something_struck_out_runs_nothing() -> None:
    """Any user may start a program by any words, and somebody else may copy its command into a shell."""
    model = "$(reboot);id/abcdef0123456789abcd"
    record = ProcessRecord(os.getpid(), 1, 1, "vllm", ("vllm", "serve", model), os.getuid())
    assert relaunch_command(record).endswith("vllm serve '$(reboot);id/'***")


@each_row(("uid", "user"), [(65534, "nobody"), (4_000_123, "'#4000123'")])
def test_a_program_of_another_user_is_started_anew_as_that_user(uid: int, user: str) -> None:
    """Whoever copies the command, such as root, would run a program of somebody else's with rights of his own."""
    record = ProcessRecord(os.getpid(), 1, 1, "vllm", ("/home/bob/vllm", "serve", "m"), uid)
    command = relaunch_command(record)
    assert command.startswith(f"sudo -u {user} env -C {shlex.quote(str(Path.cwd()))} ")
    assert command.endswith(" /home/bob/vllm serve m")
    assert Untrusted(command).of_form("struck_relaunch") == command


def test_a_core_that_was_never_seen_is_one_of_its_own_server(host: Host) -> None:
    """None of them has a pid: what is known of the first is not known of the second."""
    watch = PartsWatch()
    unseen = ProcessPart("engine core", 0, 0)
    processes = ProcessState(looks=True, states={unseen.id: GONE}, ended=frozenset({unseen.id}))

    def told(port: int, second: float) -> bool:
        origin = replace(VLLM, pid=port, started=port, parts=(ProcessPart("API server", port, port), unseen))
        reading = replace(host.reading(url=f"http://127.0.0.1:{port}"), name=f"vllm:{port}")
        return watch.with_parts(reading, origin, (), Tick(processes, second, second)).parts is not None

    assert not told(8000, 100.0)
    assert told(8000, 102.0), "so it was when this gpumon came"
    assert not told(8001, 200.0)
    assert not told(8001, 200.0 + HELD_S[GONE] - 1.0)
    assert told(8001, 200.0 + HELD_S[GONE])
