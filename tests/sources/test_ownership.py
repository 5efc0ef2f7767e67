"""Which GPUs an endpoint runs on, by real listening processes with real children; and what Linux hides of sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.readings.frame import GpuProcess, GpuReading, GpuState
from gpumon.sources.family import ProcessFamily
from gpumon.sources.held_gpus import LEAVING_S
from gpumon.sources.ownership import OWNED, Ownership
from gpumon.sources.sockets import OURS, find_listeners, sockets_of
from tests.each_row import each_row
from tests.fakes.nvml.driver import FakeDriver
from tests.records import replace
from tests.sources.nvml.rig import running

SERVER = """
import json, multiprocessing, os, socket, subprocess, sys, time

def report(**pids):
    print(json.dumps(pids), flush=True)

def family(listening):
    '''A server whose child's child would hold the GPU.'''
    child = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); "
         "print(p.pid, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    grandchild = int(child.stdout.readline())
    report(port=listening.getsockname()[1], server=os.getpid(), child=child.pid, grandchild=grandchild)
    sys.stdin.read()

def api_worker(listening, pipe):
    listening.listen()
    pipe.send(os.getpid())
    time.sleep(600)

def core(pipe):
    pipe.send(os.getpid())
    time.sleep(600)

def api_workers(listening):
    '''A server whose API workers listen, and whose engine core is their sibling.'''
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=api_worker, args=(listening, there), daemon=True)
    worker.start()
    worker_pid = here.recv()
    engine = context.Process(target=core, args=(there,), daemon=True)
    engine.start()
    port = listening.getsockname()[1]
    listening.close()
    report(port=port, server=os.getpid(), worker=worker_pid, core=here.recv())
    sys.stdin.read()

if __name__ == "__main__":
    listening = socket.socket(getattr(socket, sys.argv[2]))
    listening.bind((sys.argv[3], 0))
    if sys.argv[1] == "family":
        listening.listen()
    {"family": family, "api_workers": api_workers}[sys.argv[1]](listening)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., dict[str, int]]]:
    """Starts servers; gives their port and pids."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    made: list[subprocess.Popen[str]] = []
    told: list[dict[str, int]] = []

    def start(kind: str = "family", family: str = "AF_INET", address: str = "127.0.0.1") -> dict[str, int]:
        process = subprocess.Popen(
            [sys.executable, program, kind, family, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made.append(process)
        assert process.stdout is not None
        told.append(json.loads(process.stdout.readline()))
        return told[-1]

    yield start
    for pids in told:
        for name, pid in pids.items():
            if name not in ("port", "server"):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
    for process in made:
        process.kill()
        process.communicate()


def gpus(*pids_of: tuple[int, ...]) -> tuple[GpuReading, ...]:
    """A reading per GPU, with these processes."""
    return tuple(
        GpuReading(i, f"GPU-{i}", "H100", GpuState.OK, 0.0, processes=tuple(GpuProcess(pid) for pid in pids))
        for i, pids in enumerate(pids_of)
    )


def settled(ownership: Ownership, url: str, readings: tuple[GpuReading, ...]) -> tuple[tuple[str, ...], str]:
    """What a look finds."""
    ownership.look([url], ProcessFamily(each.pid for gpu in readings for each in gpu.processes))
    return ownership.gpus_of(url, readings)


async def test_a_server_owns_the_gpu_of_its_grandchild(
    fake_driver: FakeDriver, server: Callable[..., dict[str, int]]
) -> None:
    pids = server()
    script = f"gpus 4\ngpu 3 process {pids['grandchild']} 70000\ngpu 0 process {os.getpid()} 100\n"
    async with running(fake_driver, script) as rig:
        readings = await rig.gpus(0)
    uuids, text = settled(Ownership(), f"http://127.0.0.1:{pids['port']}/metrics", readings)
    assert (uuids, text) == ((readings[3].uuid,), OWNED)


def test_api_workers_own_the_gpu_of_their_sibling(server: Callable[..., dict[str, int]]) -> None:
    pids = server("api_workers")
    answer = settled(Ownership(), f"http://localhost:{pids['port']}", gpus((), (pids["core"],)))
    assert answer == (("GPU-1",), OWNED)


@each_row(
    ("url", "text"),
    [
        ("http://127.0.0.1:1", "no process of this host listens on port 1: it may be in a container; set gpus = [..]"),
        ("http://192.0.2.7:8000", "another host: set gpu_type"),
        ("http://no-such-host.invalid:8000", "cannot be resolved"),
        ("http://127.0.0.1:99999", "cannot be read"),
        ("http://[::1:8000", "cannot be read"),
    ],
)
def test_why_there_is_no_gpu(url: str, text: str) -> None:
    uuids, why = settled(Ownership(), url, gpus((1,)))
    assert uuids == ()
    assert text in why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_server_is_hidden_and_said_to_be(server: Callable[..., dict[str, int]]) -> None:
    pids = server()
    url = f"http://127.0.0.1:{pids['port']}"
    code = (
        "import os, psutil, time\nfrom gpumon.sources.family import ProcessFamily\n"
        "from gpumon.sources.ownership import Ownership\n"
        "from gpumon.sources.sockets import locate\n"
        f"locate({url!r}); os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        f"o = Ownership()\no.look([{url!r}], ProcessFamily(()))\nprint(o.gpus_of({url!r}, ()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "belongs to user root" in done.stdout, done.stderr
    assert "set gpus = [..]" in done.stdout


def test_a_gpu_that_is_lost_stays_its_engines(
    server: Callable[..., dict[str, int]],
) -> None:
    pids, ownership = server(), Ownership()
    url = f"http://127.0.0.1:{pids['port']}"
    both = gpus((pids["child"],), (pids["grandchild"],))
    assert settled(ownership, url, both) == (("GPU-0", "GPU-1"), OWNED)
    assert ownership.pids_of(url) == {pids["child"], pids["grandchild"]}
    assert ownership.pids_of("http://127.0.0.1:1") == frozenset()
    one_lost = (both[0], replace(both[1], state=GpuState.LOST, processes=()))
    for _ in range(3):
        assert settled(ownership, url, one_lost) == (("GPU-0", "GPU-1"), OWNED)
    idle = (both[0], replace(both[1], processes=()))
    assert ownership.gpus_of(url, idle) == (("GPU-0", "GPU-1"), OWNED), "for a while"
    assert ownership.gpus_of(url, later(idle, LEAVING_S)) == (("GPU-0",), OWNED)


def later(readings: tuple[GpuReading, ...], seconds: float) -> tuple[GpuReading, ...]:
    """The same readings so many seconds later."""
    return tuple(replace(gpu, monotonic_s=gpu.monotonic_s + seconds) for gpu in readings)


def test_an_engine_that_is_torn_down_keeps_its_gpus_for_ten_seconds_and_is_not_told_to_set_them(
    server: Callable[..., dict[str, int]],
) -> None:
    """As the driver lists a process that was killed: its socket listens on while it is on no GPU any more."""
    pids, ownership = server(), Ownership()
    url = f"http://127.0.0.1:{pids['port']}"
    both = gpus((pids["grandchild"],), (1,))
    assert settled(ownership, url, both) == (("GPU-0",), OWNED)
    left = (replace(both[0], processes=()), both[1])
    for seconds in (1.0, 5.0, 9.0):
        assert settled(ownership, url, later(left, seconds)) == (("GPU-0",), OWNED)
    gone = f"its process {pids['grandchild']} no longer runs on a GPU"
    for seconds in (10.0, 60.0):
        assert settled(ownership, url, later(left, seconds)) == ((), gone)
    assert settled(ownership, url, later(both, 70.0)) == (("GPU-0",), OWNED), "it is on its GPU again"


def test_an_engine_that_never_ran_on_a_gpu_is_told_at_once_what_to_set(server: Callable[..., dict[str, int]]) -> None:
    pids = server()
    uuids, why = settled(Ownership(), f"http://127.0.0.1:{pids['port']}", gpus((1,)))
    assert uuids == ()
    assert "runs nothing on a GPU of this host; set gpus = [..]" in why


def test_another_engine_on_the_same_port_does_not_inherit_the_gpus() -> None:
    ownership = Ownership()
    url = "http://127.0.0.1:1"
    ownership.tell(url, frozenset({71, 72}))
    both = gpus((71,), (72,), ())
    assert ownership.gpus_of(url, both) == (("GPU-0", "GPU-1"), OWNED)
    ownership.tell(url, frozenset({90}))
    assert ownership.gpus_of(url, later(gpus((), (), (90,)), 1.0)) == (("GPU-2",), OWNED)
    ownership.tell(url, frozenset({71, 72}))
    assert ownership.gpus_of(url, later(both, 2.0)) == (("GPU-0", "GPU-1"), OWNED)
    ownership.tell(url, frozenset())
    assert ownership.gpus_of(url, later(gpus((), (), ()), 20.0)) == (
        (),
        "its processes 71, 72 no longer run on a GPU",
    )


def test_a_gpu_with_programs_of_others_is_not_an_engines() -> None:
    """A GPU belongs to an engine by the engine's own processes; one that is lost only while those still live."""
    url = "http://127.0.0.1:1"
    ownership = Ownership()
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    first, second, stranger = (process.pid for process in started)
    try:
        ownership.tell(url, frozenset({first, second}))
        shared = gpus((first, stranger), (stranger,), (second,), ())
        assert ownership.gpus_of(url, shared) == (("GPU-0", "GPU-2"), OWNED)
        lost = tuple(replace(gpu, state=GpuState.LOST, processes=()) for gpu in shared)
        assert ownership.gpus_of(url, lost) == (("GPU-0", "GPU-2"), OWNED)
        with_strangers = replace(shared[0], state=GpuState.LOST, processes=shared[1].processes)
        assert ownership.gpus_of(url, (with_strangers, lost[2])) == (("GPU-2",), OWNED)
        assert ownership.gpus_of(url, shared) == (("GPU-0", "GPU-2"), OWNED)
        started[1].kill()
        started[1].wait()
        assert ownership.gpus_of(url, lost) == (("GPU-0",), OWNED)
    finally:
        for process in started:
            process.kill()
            process.wait()


ASK = "import sys; from gpumon.sources.sockets import sockets_of; print(sockets_of(int(sys.argv[1])))"
WITHOUT_PTRACE = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
"""Root in a container: it lists the open files of any process, and may read none of the links."""


def test_sockets_that_linux_hides_are_not_none_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inode = os.fstat(listening.fileno()).st_ino
        assert inode in (sockets_of(os.getpid()) or ())
        pid, lowered = (os.getpid(), WITHOUT_PTRACE) if os.geteuid() == 0 else (1, [])
        asked = subprocess.run(
            [*lowered, sys.executable, "-c", ASK, str(pid)], capture_output=True, text=True, check=True
        )
    assert asked.stdout.strip() == "None"


def test_listening_sockets_are_those_of_proc() -> None:
    """The kernel's answer by netlink against its own table in /proc, which is read for other namespaces."""
    kinds = (("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6))
    opened = [socket.create_server((address, 0), family=family) for address, family in kinds]
    opened.append(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
    ports = {each.getsockname()[1] for each in opened}
    client = socket.create_connection(opened[0].getsockname())
    inodes = {os.fstat(each.fileno()).st_ino for each in opened}
    try:
        asked, printed = ({each for each in find_listeners(pid) if each.port in ports} for pid in (OURS, os.getpid()))
    finally:
        for each in (client, *opened):
            each.close()
    assert {each.inode for each in asked} == inodes
    assert asked == printed


def test_a_process_that_has_ended_is_on_no_lost_gpu() -> None:
    url = "http://127.0.0.1:1"
    ownership = Ownership()
    with subprocess.Popen(["sleep", "60"]) as worker:
        ownership.tell(url, frozenset({worker.pid}))
        before = gpus((worker.pid,), (os.getpid(),))
        assert ownership.gpus_of(url, before) == (("GPU-0",), OWNED)
        lost = (replace(before[0], state=GpuState.LOST, processes=()), before[1])
        assert ownership.gpus_of(url, lost) == (("GPU-0",), OWNED)
        worker.kill()
    assert ownership.gpus_of(url, lost) == ((), f"its process {worker.pid} no longer runs on a GPU")
