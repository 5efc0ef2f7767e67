"""What /proc tells about a GPU's processes: command line, container and pod, and what the kernel hides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpumon.sources.nvml.processes import Names, groups
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import running

ID = "0123456789abcdef" * 4
UID = "8f2a4b6c-1d3e-4f50-9a7b-6c5d4e3f2a1b"


async def test_the_command_line_comes_from_the_real_process(fake_driver: FakeDriver) -> None:
    code = "import sys; print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "--model", "m", "x" * 900, "--signing-key", "hunter2", "-k", "hunter2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        async with running(fake_driver, f"gpu 0 process {process.pid} 4096 compute 60\n") as rig:
            (gpu,) = await rig.gpus(0)
        process.communicate()
    (found,) = gpu.processes
    assert found.command == f"{sys.executable} -c *** --model *** --signing-key *** -k ***"
    assert found.sm_ratio == pytest.approx(0.6)


async def test_a_process_of_another_namespace_has_neither_command_nor_pod(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 process 2000000000 4096\n") as rig:
        (gpu,) = await rig.gpus(0)
    (found,) = gpu.processes
    assert (found.name, found.command, found.pod, found.container) == ("2000000000 (host)", "", "", "")


def test_a_command_line_that_the_kernel_hides_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", refused)
    found = Names().of(os.getpid(), 1.0)
    assert found.command == ""
    assert found.user == psutil.Process().username()


def test_a_process_that_has_ended_has_no_command_line() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = Names().of(child.pid, 1.0)
    finally:
        child.wait()
    assert zombie.command == ""
    assert zombie.name


@pytest.mark.parametrize(
    ("path", "container", "pod"),
    [
        (f"/kubepods/burstable/pod{UID}/{ID}", ID[:12], UID),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice/"
            f"cri-containerd-{ID}.scope",
            ID[:12],
            UID,
        ),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope", ID[:12], UID),
        (f"/../../kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope", ID[:12], UID),
        (f"/kubepods/besteffort/pod{ID[:32]}/{ID}", ID[:12], ID[:32]),
        (f"/system.slice/docker-{ID}.scope", ID[:12], ""),
        ("/user.slice/user-1000.slice/session-3.scope", "", ""),
        ("/kubepods/podcast/server", "", ""),
        (f"/machine.slice/libpod-{ID}.scope", ID[:12], ""),
        (f"/machine.slice/libpod-{ID}.scope/container", ID[:12], ""),
        (f"/system.slice/docker-{ID}.scope/init.scope", ID[:12], ""),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope/container", ID[:12], UID),
        (f"/system.slice/docker-{'9' * 64}.scope/kubelet/kubepods/pod{UID}/{ID}", ID[:12], UID),
        (f"/docker/{'9' * 64}/{ID}/init", ID[:12], ""),
        (f"/system.slice/build-{ID}0.scope", "", ""),
    ],
)
def test_container_and_pod_are_read_from_the_cgroup_path(path: str, container: str, pod: str) -> None:
    for text in (f"0::{path}\n", f"12:memory:{path}\n11:devices:{path}\n0::/init.scope\n"):
        assert groups(text) == (container, pod)


def test_the_own_cgroup_can_be_read() -> None:
    own = Path("/proc/self/cgroup").read_text()
    found = Names().of(os.getpid(), 1.0)
    assert (found.container, found.pod) == groups(own)
