"""Hosts of a fleet without gpumon: a real sshd on loopback whose logins find none, and the fake driver library."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.commands.fleet import FleetControl
from gpumon.config.schema import Config, General, Host
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.missing import Missing, Reason
from tests.fakes.nvml.driver import FakeDriver
from tests.fakes.sshd import Sshd
from tests.sources.discovery.servers import servers

LONG_S = 90.0
ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "dd", "mktemp", "sed", "grep", "head", "tr", "rm", "chmod", "cat")
"""What `host.sh` calls."""


class There:
    """The other side: where its temporary files are, and its driver."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
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

    def __init__(self, control: FleetControl) -> None:
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
    control = FleetControl(config)
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
        await asyncio.sleep(0.05)


def has_gpus(fleet: Watched) -> bool:
    return fleet.host is not None and bool(fleet.host.snapshot.gpus) and not fleet.faults


def has_gpm(fleet: Watched) -> bool:
    """Whether its own gpumon reads the driver there: nvidia-smi tells no activity of SMs."""
    return has_gpus(fleet) and isinstance(fleet.host.snapshot.gpus[0].sm_active_ratio, float)


def children(words: str, environment: Mapping[str, str]) -> list[int]:
    """Processes of logins (by their environment) whose command line has these words."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if f"TMPDIR={environment['TMPDIR']}".encode() in variables and words in command:
                found.append(int(folder.name))
    return found


async def test_gpumon_runs_from_a_private_folder_that_is_removed(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    with login(tmp_path, there) as server:
        async with watched(without_gpumon(monkeypatch, server, tmp_path)) as fleet:
            await until(lambda: has_gpm(fleet), lambda: fleet.faults)
            assert fleet.host is not None
            assert fleet.host.state is HostState.OK
            assert [gpu.name for gpu in fleet.host.snapshot.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
            (folder,) = there.folders()
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert not list(folder.rglob("textual")), "a host needs no screen"
            assert not list(folder.rglob("gpumon/tui"))
        await until(lambda: not there.folders())
        await until(lambda: not children("gpumon", there.variables()))


END = {
    "gpumon there is killed": ("-m gpumon watch", signal.SIGKILL),
    "the runner is told to end": ("def _watch_input", signal.SIGTERM),
    "the runner is killed": ("def _watch_input", signal.SIGKILL),
    "the shell is told to end": ("sh -c eval", signal.SIGHUP),
    "the shell is killed": ("sh -c eval", signal.SIGKILL),
}


@pytest.mark.parametrize("end", END)
async def test_the_folder_goes_whichever_process_there_ends(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    words, number = END[end]
    with login(tmp_path, there) as server:
        async with watched(without_gpumon(monkeypatch, server, tmp_path)) as fleet:
            await until(lambda: has_gpus(fleet), lambda: fleet.faults)
            (folder,) = there.folders()
            pids = children(words, there.variables())
            assert pids
            for pid in pids:
                os.kill(pid, number)
            await until(lambda: not folder.exists())
            await until(lambda: not any(str(folder) in command for command in commands()))
            await until(lambda: has_gpus(fleet) and folder not in there.folders(), lambda: fleet.faults)
        await until(lambda: not there.folders())


def commands() -> list[str]:
    """Working folders of all processes."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found.append(str((folder / "cwd").readlink()))
    return found


async def test_the_folder_goes_when_the_connection_drops(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh is killed here, and with it the only end of the connection that could have said good-bye."""
    with login(tmp_path, there) as server:
        async with watched(without_gpumon(monkeypatch, server, tmp_path)) as fleet:
            await until(lambda: has_gpus(fleet), lambda: fleet.faults)
            (folder,) = there.folders()
            children_here = subprocess.run(["pgrep", "-P", str(os.getpid()), "ssh"], capture_output=True, text=True)
            for pid in children_here.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            await until(lambda: not folder.exists())


async def test_nothing_runs_there_unless_it_is_asked_for(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    with login(tmp_path, there) as server:
        config = without_gpumon(monkeypatch, server, tmp_path)
        (host,) = config.host
        asked_later = Config(general=config.general, host=(Host(address=host.address),))
        async with watched(asked_later) as fleet:
            await until(lambda: "its shell finds no 'gpumon'" in fleet.faults, lambda: fleet.faults)
            assert fleet.host is not None
            assert fleet.host.state is HostState.UNREACHABLE
            assert "--host-install" in fleet.faults
            assert not there.folders()
            assert fleet.control.lacks_gpumon("bare")
            fleet.control.install("bare")
            assert not fleet.control.lacks_gpumon("bare")
            await until(lambda: has_gpus(fleet), lambda: fleet.faults)


async def test_without_python_gpus_are_read_by_nvidia_smi_and_engines_through_ssh(
    tmp_path: Path, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.put_nvidia_smi()
    started = tmp_path / "engines"
    started.mkdir()
    with servers(started) as starter, login(tmp_path, there, system=False) as server:
        port = starter_port()
        engine = starter.start(
            "vllm",
            *("serve", "meta-llama/Llama-3.1-8B-Instruct", "--port", str(port)),
            play={"scenario": "healthy-chat", "from_s": 300.0, "model": "meta-llama/Llama-3.1-8B-Instruct"},
        )
        there.driver.write(FakeDriver.busy_h100s(2, pid=engine.pid))
        config = without_gpumon(monkeypatch, server, tmp_path)
        async with watched(config) as fleet:
            await until(lambda: derived(fleet), lambda: (fleet.faults, fleet.host and fleet.host.snapshot.engines))
            assert fleet.host is not None
            assert fleet.host.state is HostState.OK
            assert "no Python 3.10 or newer there (none)" in fleet.faults
            shown = fleet.host.snapshot
            assert [gpu.name for gpu in shown.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
            first = shown.gpus[0]
            assert first.vram_total_bytes == 81559 * 2.0**20
            assert isinstance(first.busy_ratio, float)
            assert isinstance(first.power_w, float)
            assert first.throttle == ("sw_power_cap",)
            untold = first.sm_active_ratio
            assert isinstance(untold, Missing)
            assert untold.reason is Reason.NOT_EXPOSED
            assert "nvidia-smi" in untold.detail
            assert [process.pid for process in first.processes] == [engine.pid]
            (served,) = shown.engines
            assert served.model == "meta-llama/Llama-3.1-8B-Instruct"
            assert served.hardware.gpus == (0, 1)
        assert not there.folders()
        await until(lambda: not children("eval", there.variables()))


def starter_port() -> int:
    from tests.sources.discovery.servers import free_port

    return free_port()


def derived(fleet: Watched) -> bool:
    """Whether an engine of the host has its MFU and MBU."""
    engines = fleet.host.snapshot.engines if fleet.host is not None else ()
    return any(
        isinstance(engine.efficiency.mbu_ratio, float) and isinstance(engine.efficiency.mfu_ratio, float)
        for engine in engines
    )
