"""Hosts of a fleet without gpumon: a real sshd on loopback whose logins find none, and the fake driver library."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from gpumon.config.schema import Config, General, Host
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing, Reason
from gpumon.session.fleet import FleetSession
from tests.fakes.nvml.driver import FakeDriver
from tests.fakes.sshd import Sshd
from tests.program import run_gpumon, started
from tests.sources.discovery.servers import free_port, servers

LONG_S = 90.0
LOOKS_S = 0.2
"""Between two looks, each of which may read all of /proc."""
ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "dd", "mktemp", "sed", "grep", "head", "tr", "rm", "chmod", "cat")
"""What `host.sh` calls."""


class There:
    """The other side: its programs (this machine's Python without its packages), temporary files and driver."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        (self.programs / "python3").symlink_to(Path(sys.executable).resolve())
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.driver = FakeDriver(folder)
        self.driver.write(FakeDriver.busy_h100s(2))

    def variables(self, **more: str) -> dict[str, str]:
        """Environment of a login."""
        told = self.driver.env()
        names = ("LD_LIBRARY_PATH", "GPUMON_FAKE_NVML")
        return {"TMPDIR": str(self.temporary), **{name: told[name] for name in names}, **more}

    def put_nvidia_smi(self) -> None:
        """A login finds the nvidia-smi of the tests."""
        program = self.programs / "nvidia-smi"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.fakes.nvidia_smi "$@"\n')
        program.chmod(0o755)

    def folders(self) -> list[Path]:
        """Temporary folders of gpumon there."""
        return list(self.temporary.glob("gpumon.*"))


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


@contextlib.contextmanager
def login(tmp_path: Path, there: There, *, system: bool = True, **more: str) -> Iterator[Sshd]:
    """An sshd whose logins find no gpumon; without `system` no Python either."""
    if not system:
        (there.programs / "python3").unlink()
        for tool in TOOLS:
            (there.programs / tool).symlink_to(str(shutil.which(tool)))
    folder = tmp_path / "ssh"
    folder.mkdir()
    with Sshd(folder, there.programs, {"bare": ""}, there.variables(**more), system=system) as server:
        yield server


def without_gpumon(monkeypatch: pytest.MonkeyPatch, server: Sshd, tmp_path: Path, **more: object) -> Config:
    """The config of a fleet of that host."""
    monkeypatch.setenv("PATH", server.client_path)
    host = Host(address="bare", install=True, wheels=str(tmp_path / "wheels"), **more)  # type: ignore[arg-type]
    return Config(general=General(interval_s=1.0), host=(host,))


class Watched:
    """A running fleet and its newest snapshot."""

    def __init__(self, control: FleetSession) -> None:
        self.control = control
        self.snapshots: list[FleetSnapshot] = []

    @property
    def host(self) -> HostShown | None:
        """The host now."""
        return self.snapshots[-1].host("bare") if self.snapshots else None

    @property
    def faults(self) -> str:
        """All that is said of it."""
        return " ".join(fault.text for fault in self.host.snapshot.faults) if self.host is not None else ""


@contextlib.asynccontextmanager
async def watched(config: Config) -> AsyncIterator[Watched]:
    control = FleetSession(config)
    fleet = Watched(control)
    await control.start(fleet.snapshots.append)
    try:
        yield fleet
    finally:
        await control.stop()


async def until(done: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    end_s = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < end_s, why()
        await asyncio.sleep(LOOKS_S)


def has_gpus(fleet: Watched) -> bool:
    return fleet.host is not None and bool(fleet.host.snapshot.gpus) and not fleet.faults


def has_gpm(fleet: Watched) -> bool:
    """Whether its own gpumon reads the driver there: nvidia-smi tells no activity of SMs."""
    return has_gpus(fleet) and isinstance(fleet.host.snapshot.gpus[0].reading.sm_active_ratio, float)


def children(words: str, environment: Mapping[str, str]) -> list[int]:
    """Processes of logins (by their environment) whose command line has these words."""
    login = f"TMPDIR={environment['TMPDIR']}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name)
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if words in command and login in (folder / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


ENDS = {
    "the runner is killed": ("def _watch_input", signal.SIGKILL),
    "the shell is killed": ("sh -c eval", signal.SIGKILL),
}
"""Words of the command line of what gets a signal, and the signal. The shell alone can remove the folder of the first
one, the runner alone that of the second one.
"""
MORE_ENDS = {
    "the connection drops": ("", signal.SIGKILL),
    "gpumon there is killed": ("-m gpumon watch", signal.SIGKILL),
    "the runner is told to end": ("def _watch_input", signal.SIGTERM),
    "the shell is told to end": ("sh -c eval", signal.SIGHUP),
}
"""Further ends, for `make properties`. No words: ssh here, the only end of the connection that could have said
good-bye; a gpumon here that is killed drops the connection, too.
"""


def assert_nothing_runs(there: There, fleet: Watched) -> None:
    """The host's row says what would be needed, and there is nothing of gpumon there."""
    assert fleet.host is not None
    assert fleet.host.state is HostState.UNREACHABLE
    assert "--host-install" in fleet.faults
    assert not there.folders()
    assert fleet.control.fleet.lacks_gpumon("bare")


def assert_private(there: There, fleet: Watched) -> None:
    """What runs there is in a folder of its user's own, and brings no screen along."""
    assert fleet.host is not None
    assert fleet.host.state is HostState.OK
    assert [gpu.reading.name for gpu in fleet.host.snapshot.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
    (folder,) = there.folders()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not list(folder.rglob("textual")), "a host needs no screen"
    assert not list(folder.rglob("gpumon/tui"))


@pytest.mark.parametrize("ends", [ENDS, pytest.param(MORE_ENDS, marks=pytest.mark.wide)], ids=["killed", "told"])
async def test_nothing_runs_there_unless_asked_for_and_the_folder_goes_whatever_ends(
    tmp_path: Path,
    there: There,
    monkeypatch: pytest.MonkeyPatch,
    ends: Mapping[str, tuple[str, signal.Signals]],
) -> None:
    monkeypatch.setattr("gpumon.sources.remote.BACK_OFF_S", (0.1,))
    with login(tmp_path, there) as server:
        config = without_gpumon(monkeypatch, server, tmp_path)
        host = msgspec.structs.replace(config.host[0], install=False)
        async with watched(msgspec.structs.replace(config, host=(host,))) as fleet:
            await until(lambda: "its shell finds no 'gpumon'" in fleet.faults, lambda: fleet.faults)
            assert_nothing_runs(there, fleet)
            fleet.control.fleet.install("bare")
            assert not fleet.control.fleet.lacks_gpumon("bare")
            await until(lambda: has_gpm(fleet), lambda: fleet.faults)
            assert_private(there, fleet)
            for what, (words, number) in ends.items():
                await until(lambda: children("-m gpumon watch", there.variables()), lambda what=what: what)
                (folder,) = there.folders()
                pids = children(words, there.variables()) if words else ssh_here()
                assert pids, what
                for pid in pids:
                    os.kill(pid, number)
                await until(lambda folder=folder: not folder.exists(), lambda what=what: what)
                await until(lambda folder=folder: not works_in(folder), lambda what=what: what)
            await until(lambda: has_gpus(fleet), lambda: fleet.faults)
        await until(lambda: not there.folders())
        await until(lambda: not children("gpumon", there.variables()))


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.wide)])
async def test_the_folder_goes_when_gpumon_here_ends(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    with login(tmp_path, there) as server:
        monkeypatch.setenv("PATH", server.client_path)
        command = [sys.executable, "-m", "gpumon", "watch", "--json", "--host", "bare", "--host-install"]
        process = started(command, stdout=subprocess.DEVNULL)
        try:
            await until(lambda: children("-m gpumon watch", there.variables()))
            (folder,) = there.folders()
            process.send_signal(number)
            await until(lambda: not folder.exists())
            await until(lambda: not works_in(folder))
            await until(lambda: process.poll() is not None)
        finally:
            process.kill()
            process.wait()


def ssh_here() -> list[int]:
    """Every ssh that this process has started."""
    tasks = Path("/proc/self/task").iterdir()
    started = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in started if Path(f"/proc/{pid}/comm").read_text() == "ssh\n"]


def works_in(folder: Path) -> list[int]:
    """Processes that work in a folder, even if it was removed."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if str(folder) in str((process / "cwd").readlink()):
                found.append(int(process.name))
    return found


async def test_without_python_gpus_are_read_by_nvidia_smi_and_engines_through_ssh(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.put_nvidia_smi()
    started = tmp_path / "engines"
    started.mkdir()
    with servers(started) as starter, login(tmp_path, there, system=False) as server:
        engine = starter.start(
            "vllm",
            *("serve", "meta-llama/Llama-3.1-8B-Instruct", "--port", str(free_port())),
            play={"scenario": "healthy-chat", "from_s": 300.0, "model": "meta-llama/Llama-3.1-8B-Instruct"},
        )
        closed = starter.start("vllm", "serve", "Qwen/Qwen3-8B", "--port", str(free_port()), "--api-key", "x", key="x")
        there.driver.write(f"{FakeDriver.busy_h100s(2, pid=engine.pid)}gpu 1 process {closed.pid} 1000\n")
        config = without_gpumon(monkeypatch, server, tmp_path)
        async with watched(config) as fleet:
            await until(lambda: derived(fleet), lambda: (fleet.faults, fleet.host and fleet.host.snapshot.engines))
            assert fleet.host is not None
            assert fleet.host.state is HostState.OK
            assert "no Python 3.10 or newer there (none)" in fleet.faults
            shown = fleet.host.snapshot
            assert [gpu.reading.name for gpu in shown.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
            first = shown.gpus[0]
            assert first.reading.vram_total_bytes == 81559 * 2.0**20
            assert isinstance(first.reading.busy_ratio, float)
            assert isinstance(first.power_w, float)
            assert first.reading.throttle == ("sw_power_cap",)
            untold = first.reading.sm_active_ratio
            assert isinstance(untold, Missing)
            assert untold.reason is Reason.NOT_EXPOSED
            assert "nvidia-smi" in untold.detail
            assert [process.pid for process in first.reading.processes] == [engine.pid]
            private = tuple(Path(tempfile.gettempdir()).glob("gpumon-ssh-*"))
            assert private
            assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in private)
            served, refused = sorted(shown.engines, key=lambda engine: engine.state is not EndpointState.OK)
            assert refused.state is EndpointState.UNAUTHORIZED
            assert "no key is sent through ssh" in refused.fault
            assert served.model == "meta-llama/Llama-3.1-8B-Instruct"
            assert served.hardware.gpus == (0, 1)
        arguments = ("snapshot", "--json", "--host", "bare", "--host-install")
        done = await asyncio.to_thread(run_gpumon, *arguments, timeout_s=LONG_S)
        assert done.returncode == 0, done.stderr
        total = json.loads(done.stdout)["total"]
        assert total["gpus"] == 2
        assert total["running"] > 0
        assert not there.folders()
        await until(lambda: not children("eval", there.variables()))


def derived(fleet: Watched) -> bool:
    """Whether an engine of the host has its MFU and MBU."""
    engines = fleet.host.snapshot.engines if fleet.host is not None else ()
    return any(
        isinstance(engine.efficiency.mbu_ratio, float) and isinstance(engine.efficiency.mfu_ratio, float)
        for engine in engines
    )
