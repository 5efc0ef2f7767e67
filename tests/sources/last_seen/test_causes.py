"""How a process ended, by what systemd, Docker, the kernel's log and its cgroup say."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumon.readings.frame import EndpointState, EngineReading, PartState
from gpumon.sources.engine_log.places import places_of
from gpumon.sources.family import read_process
from gpumon.sources.last_seen import causes
from gpumon.sources.last_seen.causes import NO_CAUSE, Cause, cause_of, container_cause, look_up_cause, unit_cause
from gpumon.sources.last_seen.processes import origin as processes_origin
from gpumon.sources.last_seen.processes.look import LookOrder, RestartScan, ServerProcesses, look_at_processes, works
from gpumon.sources.last_seen.processes.origin import origin_of, pod_by_kubelet, unit_of
from gpumon.sources.last_seen.processes.tree import PartsScan, has_ended
from gpumon.sources.last_seen.records import EngineOrigin, KnownEngine
from tests.each_row import each_row
from tests.records import replace
from tests.sources.discovery.test_namespaces import permitted

CONTAINER = "a1b2c3d4e5f6" * 5 + "abcd"


def unit(**told: str) -> dict[str, str]:
    return {"Result": "success", "ExecMainCode": "1", "ExecMainStatus": "0", **told}


@each_row(
    ("told", "cause"),
    [
        (unit(), Cause("stopped", 0, planned=True, source="s")),
        (unit(ExecMainCode="2", ExecMainStatus="15"), Cause("stopped", 0, planned=True, source="s")),
        (unit(Result="signal", ExecMainCode="2", ExecMainStatus="9"), Cause("signal", 9, source="s")),
        (unit(Result="core-dump", ExecMainCode="3", ExecMainStatus="11"), Cause("signal", 11, source="s")),
        (unit(Result="exit-code", ExecMainStatus="1"), Cause("exit", 1, source="s")),
        (unit(Result="oom-kill", ExecMainCode="2", ExecMainStatus="9"), Cause("oom", source="s")),
        (unit(ExecMainCode="0"), NO_CAUSE),
        ({}, NO_CAUSE),
    ],
)
def test_a_unit_tells_its_result(told: dict[str, str], cause: Cause) -> None:
    assert unit_cause(told, "s") == cause


@each_row(
    ("state", "cause"),
    [
        ({"Running": True, "ExitCode": 0}, NO_CAUSE),
        ({"Running": False, "ExitCode": 0}, Cause("stopped", 0, planned=True, source="docker")),
        ({"Running": False, "ExitCode": 143}, Cause("stopped", 143, planned=True, source="docker")),
        ({"Running": False, "ExitCode": 137}, Cause("exit", 137, source="docker")),
        ({"Running": False, "ExitCode": 137, "OOMKilled": True}, Cause("oom", source="docker")),
        ({"Running": False, "ExitCode": 1, "FinishedAt": "2026-01-01T00:00:00.123456789Z"},
         Cause("exit", 1, source="docker", wall_s=1767225600.123456)),
        ({"ExitCode": "x"}, NO_CAUSE),
    ],
)  # fmt: skip
def test_a_container_tells_its_exit_code(state: dict[str, object], cause: Cause) -> None:
    assert container_cause(state, "docker") == cause


def served(origin: EngineOrigin) -> KnownEngine:
    return KnownEngine(EngineReading("e", "http://127.0.0.1:1", EndpointState.OK, 0.0), 1e9, 1e9, origin=origin)


def told(answers: dict[str, str], asked: list[Sequence[str]]) -> causes.RunProgram:
    def run(command: Sequence[str]) -> str:
        asked.append(command)
        return answers.get(command[0], "")

    return run


@pytest.fixture
def silent_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not read the kernel's buffer."""
    monkeypatch.setattr(causes, "kernel_messages", lambda _since_s: "")


@pytest.mark.usefixtures("silent_kernel")
def test_the_kernels_log_stands_before_a_signal_that_nobody_explains() -> None:
    origin = EngineOrigin(pid=4121, started=1, gpu_pids=(4122,), unit="vllm.service")
    show = "Result=signal\nExecMainPID=4121\nExecMainCode=2\nExecMainStatus=9\nActiveState=failed\n"
    log = "Memory cgroup out of memory: Killed process 4122 (VLLM::EngineCor) total-vm:1kB\n"
    assert look_up_cause(served(origin), told({"systemctl": show, "journalctl": log}, [])).code == "oom"
    other = log.replace("4122", "41220")
    assert look_up_cause(served(origin), told({"systemctl": show, "journalctl": other}, [])) == Cause(
        "signal", 9, source="systemd vllm.service"
    )


@pytest.mark.usefixtures("silent_kernel")
def test_the_kernels_log_is_asked_for_from_two_minutes_before_the_last_answer() -> None:
    asked: list[Sequence[str]] = []
    look_up_cause(served(EngineOrigin(pid=4121, started=1)), told({}, asked))
    (command,) = [command for command in asked if "-k" in command]
    assert command[-1] == "@999999880"


def test_messages_of_before_the_start_of_the_engine_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe in packet mode gives one message a read, as the kernel's buffer does."""
    buffer = tmp_path / "kmsg"
    os.mkfifo(buffer)
    monkeypatch.setattr(causes, "KERNEL_BUFFER", str(buffer))
    writer = os.open(buffer, os.O_RDWR)
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_DIRECT)
    killed = "Out of memory: Killed process 4121 (vllm) total-vm:1kB"
    try:
        for moment_us in (99_000_000, 101_000_000):
            os.write(writer, f"6,{moment_us},{moment_us},-;at {moment_us}: {killed}\n".encode())
        assert causes.kernel_messages(100.0).count("Killed process") == 1
        os.write(writer, f"6,1,99000000,-;{killed}\n".encode())
        origin = EngineOrigin(pid=4121, started=100 * os.sysconf("SC_CLK_TCK"))
        assert causes.cause_by_kernel_log(origin, 1e9, told({}, [])) == NO_CAUSE
        os.write(writer, f"6,1,101000000,-;{killed}\n".encode())
        assert causes.cause_by_kernel_log(origin, 1e9, told({}, [])).code == "oom"
    finally:
        os.close(writer)


@each_row(("before", "now", "code"), [(0, 1, "oom"), (3, 4, "oom"), (3, 3, ""), (-1, 1, ""), (-1, 0, ""), (0, 0, "")])
def test_a_kill_counts_where_it_was_counted_before(
    before: int, now: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-1: nobody could read the count while the engine lived, so that it is not known when the kill was."""
    (tmp_path / "vllm").mkdir(exist_ok=True)
    (tmp_path / "vllm" / "memory.events").write_text(f"low 0\noom 9\noom_kill {now}\n")
    monkeypatch.setattr(processes_origin, "_CGROUPS", tmp_path)
    assert causes.cause_by_cgroup(EngineOrigin(cgroup="/vllm", oom_kills=before)).code == code


@pytest.mark.usefixtures("silent_kernel")
def test_a_unit_that_goes_on_tells_nothing_of_another_process() -> None:
    origin = EngineOrigin(pid=4121, started=1, unit="vllm.service")
    show = "Result=success\nExecMainPID=9\nExecMainCode=1\nExecMainStatus=0\nActiveState=active\n"
    assert look_up_cause(served(origin), told({"systemctl": show}, [])) == NO_CAUSE


@pytest.mark.usefixtures("silent_kernel")
def test_names_from_outside_never_become_options() -> None:
    asked: list[Sequence[str]] = []
    for origin in (
        EngineOrigin(pid=1, unit="--root=/x.service; reboot"),
        EngineOrigin(pid=1, container="--format"),
        EngineOrigin(pid=1, container=CONTAINER, unit=""),
    ):
        look_up_cause(served(origin), told({}, asked))
    assert [command for command in asked if command[0] != "journalctl"] == [
        (runtime, "inspect", "--format", "{{json .State}}", CONTAINER) for runtime in ("docker", "podman")
    ]


def test_a_command_that_hangs_or_fails_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in (("slow", "sleep 600"), ("wrong", "echo no; exit 3"), ("well", "echo yes")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(causes, "_COMMAND_S", 60.0)
    assert [causes.program_output([name]) for name in ("wrong", "well", "not-there")] == ["", "yes\n", ""]
    monkeypatch.setattr(causes, "_COMMAND_S", 0.3)
    assert causes.program_output(["slow"]) == ""


@each_row(
    ("cgroup", "unit"),
    [
        ("/system.slice/vllm.service", ("vllm.service", False)),
        ("/system.slice/system-vllm.slice/vllm@a.service/payload", ("vllm@a.service", False)),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service", ("vllm.service", True)),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", ("", False)),
        ("/user.slice/user-1000.slice/session-3.scope", ("", False)),
        ("/system.slice/a b.service", ("", False)),
        ("/", ("", False)),
    ],
)
def test_the_unit_is_the_innermost_service(cgroup: str, unit: tuple[str, bool]) -> None:
    assert unit_of(cgroup) == unit


@each_row(
    ("uid", "relaunch", "told"),
    [
        (os.geteuid(), "", "vllm serve m"),
        (-1, "", "vllm serve m"),
        (os.geteuid() + 1, "", ""),
        (os.geteuid() + 1, "sudo -u bob env vllm serve m", "sudo -u bob env vllm serve m"),
    ],
)
def test_the_command_of_another_user_is_told_with_him_or_not_at_all(uid: int, relaunch: str, told: str) -> None:
    assert causes.command_of(EngineOrigin(command="vllm serve m", relaunch=relaunch, uid=uid)) == told


def test_a_pod_is_named_by_the_kubelet_where_that_tells(tmp_path: Path) -> None:
    """A pod may set its variables, and the file of its namespace, to those of somebody else's."""
    uid = "8f2a4b6c-1d3e-4f50-9a7b-6c5d4e3f2a1b"
    assert pod_by_kubelet(uid, "kube-system/coredns", tmp_path / "none") == "kube-system/coredns"
    (tmp_path / "kube-system_coredns_11111111-1d3e-4f50-9a7b-6c5d4e3f2a1b").mkdir()
    assert pod_by_kubelet(uid, "kube-system/coredns", tmp_path) == ""
    (tmp_path / f"tenant_vllm-0_{uid}").mkdir()
    assert pod_by_kubelet(uid, "kube-system/coredns", tmp_path) == "tenant/vllm-0"
    assert pod_by_kubelet("", "kube-system/coredns", tmp_path) == ""


def cgroup_root() -> Path | None:
    """The folder of cgroups of version 2, if this user may make some there."""
    for line in Path("/proc/mounts").read_text().splitlines():
        place, kind = line.split()[1:3]
        if kind == "cgroup2" and os.access(place, os.W_OK) and os.access(f"{place}/cgroup.procs", os.W_OK):
            return Path(place)
    return None


@pytest.mark.skipif(cgroup_root() is None, reason="making a cgroup is not permitted here (needs root)")
@pytest.mark.parametrize(("uid", "is_taken"), [(0, True), (1, False)], ids=["own", "of another user"])
def test_a_cgroup_that_another_user_has_named_is_no_container_no_pod_and_no_unit(uid: int, *, is_taken: bool) -> None:
    """Any user may name those below his systemd as the container or the unit of somebody else."""
    root = cgroup_root()
    assert root is not None
    own = root / f"test-{os.getpid()}"
    manager = own / f"user@{os.geteuid() + uid}.service"
    ends = [manager / f"docker-{'0123456789abcdef' * 4}.scope", manager / "vllm.service", manager / "kubepods"]
    environment = {"POD_NAME": "coredns", **os.environ}
    with subprocess.Popen(["sleep", "600"], env=environment) as process:
        try:
            origins = []
            for end in ends:
                end.mkdir(parents=True)
                (end / "cgroup.procs").write_text(str(process.pid))
                server = read_process(process.pid)
                assert server is not None
                origins.append(origin_of(server))
        finally:
            process.kill()
            process.wait()
            for folder in (*ends, manager, own):
                if folder.exists():
                    folder.rmdir()
    told = [bool(origins[0].container), bool(origins[1].unit), bool(origins[2].pod)]
    assert told == [is_taken] * 3
    assert [bool(causes.restart_command(origin)) for origin in origins] == [is_taken] * 3


def test_a_real_process_is_seen_to_work_and_to_end(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    with log.open("w") as output:
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=output)
    server = read_process(child.pid)
    assert server is not None
    origin = origin_of(server)
    assert origin.output == str(log)
    scan = PartsScan()
    servers = {origin.id: ServerProcesses(server, ())}
    order = LookOrder(servers, {}, [origin], [origin.id])
    first = second = look_at_processes(order, scan, RestartScan())
    cores: float | None = 0.0
    end_s = time.monotonic() + 30.0
    while cores is not None and cores <= 0.05 and time.monotonic() < end_s:  # a full host may not let it run at first
        first = second
        time.sleep(0.5)
        second = look_at_processes(order._replace(known_origins=first.origins), scan, RestartScan())
        cores = works(first.uses, second.uses)[origin.id].cpu_cores
    assert cores is not None
    assert cores > 0.05
    assert not second.states
    assert has_ended((child.pid, origin.started + 1))
    child.send_signal(signal.SIGKILL)
    end_s = time.monotonic() + 30.0
    while not has_ended(origin.id):  # a zombie, before anybody waits for it
        assert time.monotonic() < end_s
    watched = LookOrder({}, {}, [origin])
    assert look_at_processes(watched, scan, RestartScan()).states == {origin.id: PartState.GONE}
    child.wait()
    assert look_at_processes(watched, scan, RestartScan()).states == {origin.id: PartState.GONE}
    assert cause_of(served(replace(origin, unit="", container=""))) == NO_CAUSE


UVICORN = (
    "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\n"
    "INFO:     Application shutdown complete.\nINFO:     Finished server process [4711]\n"
)
API = "(APIServer pid=4711) INFO 11-29 07:24:21 [launcher.py:100] [shutdown] API server: "
CLIENT = "(APIServer pid=4711) WARNING 11-29 07:24:21 [core_client.py:702] [shutdown] MPClient: "
CORE = "(EngineCore pid=4712) INFO 11-29 07:24:21 [core.py:1313] [shutdown] EngineCore: "
FAULT = "(APIServer pid=4711) ERROR 11-29 07:24:21 [async_llm.py:704] "
TOLD = (
    f"{CORE}trigger received signal=SIGTERM\n{API}shutdown triggered\n"
    f"{API}stopping engine client mode=abort timeout=0s\n{CORE}start mode=abort timeout=0s\n"
    f"{CORE}aborting in-flight requests count=16\n{CORE}request processing complete; starting resource teardown\n"
    f"{CORE}exiting busy loop\n{CLIENT}start timeout=0s\n"
)
"""A vLLM that gets SIGTERM with 16 requests in flight: the messages of its source and of a server's journal."""
LEFT = "WARNING 11-29 07:24:21 [utils.py:626] [shutdown] Process manager: force killing remaining processes count=1\n"
DEAD = (
    f"{FAULT}AsyncLLM output_handler failed.\n{FAULT}Traceback (most recent call last):\n"
    f"{FAULT}vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)\n"
)
"""Requests in flight lose their engine, whether that failed or was told to end."""
ENDED = (
    f"{API}shutting down FastAPI HTTP server\n{UVICORN}"
    "UserWarning: resource_tracker: There appear to be 2 leaked semaphore objects to clean up at shutdown\n"
)
FAILS = (
    "(EngineCore pid=4712) ERROR 11-29 07:24:20 [core.py:1335] EngineCore encountered a fatal error.\n"
    "(EngineCore pid=4712) ERROR 11-29 07:24:20 [core.py:1335] Traceback (most recent call last):\n"
)
GONE = f"{CLIENT}engine core exited unexpectedly; starting cleanup\n"
GONE_BEFORE = f"{FAULT}Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
"""The same in older versions."""
OTHER_RANK = f"{CORE}trigger received signal=SIGTERM\n"
TOLD_BEFORE = "INFO 11-29 07:24:21 [launcher.py:110] Shutting down FastAPI HTTP server.\n"
STARTS_AGAIN = "(APIServer pid=4811) INFO 11-29 07:25:02 [api_utils.py:273] non-default args: {'model_tag': 'm'}\n"


@pytest.mark.parametrize(
    ("output", "is_stop"),
    [
        (TOLD + ENDED, True),
        (TOLD + LEFT + ENDED, True),
        (TOLD + DEAD + LEFT + ENDED, True),
        (TOLD, True),
        (TOLD_BEFORE + GONE_BEFORE + DEAD + ENDED, True),
        # The other engines of a data-parallel server are told to end by the failure of one.
        (FAILS + DEAD + ENDED, False),
        (GONE + DEAD + ENDED, False),
        (GONE + OTHER_RANK + ENDED, False),
        (GONE + ENDED, False),
        (GONE_BEFORE + ENDED, False),
        (TOLD + DEAD + ENDED + STARTS_AGAIN + FAILS + DEAD + ENDED, False),
        (TOLD + ENDED + STARTS_AGAIN, False),
        (FAILS + ENDED + STARTS_AGAIN + TOLD + ENDED, True),
        (f"INFO 12:00:00 metrics: 3 running\n{UVICORN}", True),
        ("SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n", True),
        ("srv  operator(): operator(): cleaning up before exit...\n", True),
        # As its engine fails, the server ends in the same words.
        (f"Traceback (most recent call last):\nvllm.v1.engine.exceptions.EngineDeadError\n{UVICORN}", False),
        (f"Received sigquit from a child process. It usually means the child failed.\n{UVICORN}", False),
        ("INFO 12:00:00 metrics: 3 running\n", False),
        ("", False),
    ],
)
def test_a_server_that_says_it_has_shut_down_was_told_to(tmp_path: Path, output: str, is_stop: bool) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("x" * 50_000 + "\n" + output)
    origin = EngineOrigin(pid=4711, uid=os.getuid(), output=str(log))
    expected = Cause("stopped", 0, planned=True, source="its log") if is_stop else NO_CAUSE
    assert look_up_cause(served(origin), told({}, [])) == expected
    log.rename(tmp_path / "other")
    log.symlink_to(tmp_path / "other")
    assert look_up_cause(served(origin), told({}, [])) == NO_CAUSE, "a link stands in its place"


IN_A_ROOT_OF_ITS_OWN = """
set -e
mount -t tmpfs none "$0"
mkdir -p "$0/usr" "$0/old" "$0/tmp"
for folder in bin lib lib64 sbin; do
  [ -L "/$folder" ] && cp -P "/$folder" "$0/$folder" || { mkdir -p "$0/$folder"; mount --bind "/$folder" "$0/$folder"; }
done
mount --bind /usr "$0/usr"
cd "$0"
pivot_root . old
cd /
exec >/tmp/engine.log
printf ready >/tmp/engine.log
exec sleep 60
"""
"""A script as a runtime of containers starts a program: `/proc/PID/root` of it reads `/`, as that of all others."""


@pytest.mark.skipif(not permitted("unshare", "--mount"), reason="a mount namespace is not permitted here (needs root)")
def test_a_program_of_a_container_is_no_command_to_type_on_this_host(tmp_path: Path) -> None:
    """Its path names another file here: whoever is root in a container would have root run a program of this host."""
    child = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", IN_A_ROOT_OF_ITS_OWN, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        end_s = time.monotonic() + 20.0
        server = read_process(child.pid)
        while server is None or server.argv[:1] != ("sleep",):
            assert time.monotonic() < end_s
            time.sleep(0.05)
            server = read_process(child.pid)
        assert Path(f"/proc/{child.pid}/root").readlink() == Path("/")
        origin = origin_of(server)
        (log,) = places_of(replace(origin, container=""))
        assert log.command == f"tail -n 100 /proc/{child.pid}/fd/1"
    finally:
        child.kill()
        child.wait()
    assert origin.command == "sleep ***"
    assert origin.output == "", "the file of this name here is another one"
    assert causes.command_of(origin) == ""
