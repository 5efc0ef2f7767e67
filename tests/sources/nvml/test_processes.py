"""What /proc tells about a GPU's processes: command line, container and pod, and what the kernel hides."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpumon.readings.missing import Missing, number
from gpumon.sources.driver.names import ProcessNames, container_and_pod, pod_and_job
from tests.each_row import each_row
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import running

ID = "0123456789abcdef" * 4
MANAGER = "/user.slice/user-1.slice/user@{}.service"
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
    found = ProcessNames().of(os.getpid(), 1.0)
    assert found.command == ""
    assert found.user == psutil.Process().username()


def test_a_process_that_has_ended_has_no_command_line() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = ProcessNames().of(child.pid, 1.0)
    finally:
        child.wait()
    assert zombie.command == ""
    assert zombie.name


@each_row(
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
        (f"{MANAGER.format(os.geteuid())}/user.slice/libpod-{ID}.scope/container", ID[:12], ""),
        (f"{MANAGER.format(os.geteuid() + 1)}/app.slice/docker-{ID}.scope", "", ""),
        (f"{MANAGER.format(os.geteuid() + 1)}/kubepods/burstable/pod{UID}/{ID}", "", ""),
    ],
)
def test_container_and_pod_are_read_from_the_cgroup_path(path: str, container: str, pod: str) -> None:
    for text in (f"0::{path}\n", f"12:memory:{path}\n11:devices:{path}\n0::/init.scope\n"):
        assert container_and_pod(text) == (container, pod)


def test_the_own_cgroup_can_be_read() -> None:
    own = Path("/proc/self/cgroup").read_text()
    found = ProcessNames().of(os.getpid(), 1.0)
    assert (found.container, found.pod) == container_and_pod(own)


def test_a_process_says_what_it_takes_of_the_host_and_in_which_job_it_runs() -> None:
    code = "kept = bytearray(1 << 26); print(1, flush=True)\nwhile True: pass"
    told = {"SLURM_JOB_ID": "4711", "POD_NAME": "not-in-a-pod", "SECRET": "x"}
    with subprocess.Popen([sys.executable, "-c", code], env=told, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            names = ProcessNames()
            first = names.of(process.pid, 1.0)
            time.sleep(0.3)
            second = names.of(process.pid, 2.0)
        finally:
            process.kill()
    assert isinstance(first.cpu_ratio, Missing)
    assert isinstance(second.cpu_ratio, float)
    assert 0.0 < second.cpu_ratio < 3.0, "one core, and what a busy machine does between two files of /proc"
    assert second.rss_bytes > 1 << 26
    assert abs(second.started_s - time.time()) < 600.0
    assert (second.job, second.pod_name) == ("4711", "")


def test_what_it_started_counts_apart_while_it_sleeps_itself() -> None:
    """A compiler below the engine's process: its child, and a child of that."""
    busy = "while True: pass"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    code = f"import subprocess, sys; print(1, flush=True); subprocess.run([sys.executable, '-c', {middle!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            names = ProcessNames()
            seen = [names.of(process.pid, 1.0)]
            end_s = time.monotonic() + 60.0
            while time.monotonic() < end_s and not (number(seen[-1].children_cpu_ratio) or 0.0) > 0.1:
                time.sleep(0.3)
                seen.append(names.of(process.pid, 1.0 + len(seen)))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    last = seen[-1]
    assert isinstance(seen[0].children_cpu_ratio, Missing)
    assert isinstance(last.children_cpu_ratio, float)
    assert last.children_cpu_ratio > 0.1
    assert isinstance(last.cpu_ratio, float)
    assert last.cpu_ratio < last.children_cpu_ratio


IN_ITS_OWN_ROOT = "import os, sys; os.chroot(sys.argv[1]); print(1, flush=True); sys.stdin.read()"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process another root")
def test_a_pods_namespace_is_read_in_its_own_root_alone(tmp_path: Path) -> None:
    """Whoever owns that root can put a link there: gpumon of root must not show what it leads to on the host."""
    secret, root = tmp_path / "shadow", tmp_path / "root"
    secret.write_text("swordfish-of-root")
    account = root / "var/run/secrets/kubernetes.io/serviceaccount"
    (account / "..now").mkdir(parents=True)
    (account / "..now" / "namespace").write_text("team-a")
    (account / "..data").symlink_to("..now")
    (account / "namespace").symlink_to("..data/namespace")  # as Kubernetes has it
    command, env = [sys.executable, "-c", IN_ITS_OWN_ROOT, str(root)], {**os.environ, "POD_NAME": "llm-0"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        honest = pod_and_job(process.pid, in_pod=True)[0]
        (account / "namespace").unlink()
        (account / "namespace").symlink_to(secret)
        forged = pod_and_job(process.pid, in_pod=True)[0]
        (account / "namespace").unlink()
        os.mkfifo(account / "namespace")
        waits = pod_and_job(process.pid, in_pod=True)[0]
        process.communicate()
    assert (honest, forged, waits) == ("team-a/llm-0", "llm-0", "llm-0")


async def test_a_list_that_the_driver_does_not_give_is_no_empty_list(fake_driver: FakeDriver) -> None:
    calls = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    refused = "".join(f"gpu 1 call {call} not_supported\n" for call in calls)
    async with running(fake_driver, f"gpus 2\n{refused}") as rig:
        listed, unlisted = await rig.gpus()
    assert (listed.processes, listed.lists_processes) == ((), True)
    assert (unlisted.processes, unlisted.lists_processes) == ((), False)
