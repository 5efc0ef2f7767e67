"""Origin of an engine: its unit, container, pod and output, and the command that started it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from itertools import islice
from pathlib import Path
from typing import Final

from gpumon.config.ownership import user_name
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.discovery.shown_command import STRUCK, shown_command, shown_words, speaks_of_secret, strike_secrets
from gpumon.sources.driver.names import CONTAINER, container_and_pod, is_of_other_user, pod_and_job
from gpumon.sources.engine_log.outputs import targets_of
from gpumon.sources.family import ProcessRecord, matching_variables
from gpumon.sources.file_views import has_own_root
from gpumon.sources.last_seen.records import EngineOrigin

UNIT: Final = re.compile(r"[A-Za-z0-9@._:\\-]{1,200}\.service")
"""A systemd unit's name that needs no quoting."""
POD: Final = re.compile(r"(?:[a-z0-9.-]{1,63}/)?[a-z0-9.-]{1,253}")
_FILE: Final = re.compile(r"/[A-Za-z0-9_@%+=:,./-]{1,250}")
"""A path that needs no quoting."""
_MANAGER: Final = re.compile(r"user@\d+\.service")
"""The unit of a user's own systemd: what runs under it are units of that one."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PREFIXES: Final = (
    *("VLLM_", "SGLANG_", "SGL_", "LLAMA_ARG_", "OLLAMA_", "TRTLLM_", "TLLM_", "HF_", "HUGGINGFACE_HUB_"),
    *("TRANSFORMERS_", "NCCL_", "RCCL_", "UCX_", "NVSHMEM_", "TORCH_NCCL_", "TORCHINDUCTOR_", "FLASHINFER_", "NIM_"),
)
"""Begins of the names of variables that change how an engine runs."""
_NAMES: Final = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"),
        *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"),
        *("TRITON_CACHE_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"),
    }
)
"""Further ones."""
_GPU_UUIDS: Final = re.compile(r"(?:(?:GPU|MIG)-[0-9a-f-]{1,36}(?:,|$))+", re.ASCII)
"""UUIDs of GPUs and slices: long and of hexadecimal digits, and no secret."""
_PODS: Final = Path("/var/log/pods")
"""Folders of the kubelet's, one per pod of this host: `NAMESPACE_NAME_UID`."""
_MOST_PODS: Final = 10_000
"""Folders that are looked at."""
_MOST_COMMAND: Final = 1536
"""Characters of a command."""
_MOST_VARIABLES: Final = 24
"""Variables of a command."""


def origin_of(server: ProcessRecord) -> EngineOrigin:
    """Origin of a process, as far as this user may read it."""
    cgroup = _cgroup(server.pid)
    # Another user may give his cgroups the names of somebody else's container, pod or unit.
    trusted_cgroup = "" if is_of_other_user(cgroup) else cgroup
    container = CONTAINER.search(trusted_cgroup)
    claimed_pod, _ = pod_and_job(server.pid, in_pod="kubepods" in trusted_cgroup)
    pod = pod_by_kubelet(container_and_pod(trusted_cgroup)[1], claimed_pod)
    unit = ""
    is_user_unit = False
    container_id = ""
    if container is None:
        unit, is_user_unit = unit_of(trusted_cgroup)
    else:
        # The unit of a process in a container is that of the runtime.
        container_id = container.group(1)
    if not POD.fullmatch(pod):
        pod = ""
    return EngineOrigin(
        pid=server.pid,
        started=server.started,
        command=shown_command(server.argv),
        unit=unit,
        is_user_unit=is_user_unit,
        container=container_id,
        pod=pod,
        output=_output(server.pid),
        uid=server.uid,
        cgroup=cgroup,
        oom_kills=oom_kills(cgroup),
        relaunch=relaunch_command(server),
        runs_elsewhere=_runs_elsewhere(server.pid),
    )


def pod_by_kubelet(uid: str, claimed: str, pods: Path = _PODS) -> str:
    """`namespace/name` of a pod by its uid, as the kubelet names its folder of logs; empty where it has none such.

    Where there are no such folders, as in most containers, it is what the pod claims to be: it could name another one,
    whose end would be advised.
    """
    if not claimed:
        return ""
    try:
        folders = [entry.name for entry in islice(os.scandir(pods), _MOST_PODS)]
    except OSError:
        return claimed
    for folder in folders:
        namespace, _, rest = folder.partition("_")
        name, _, folder_uid = rest.rpartition("_")
        if uid and folder_uid == uid:
            return f"{namespace}/{name}"
    return ""


def unit_of(cgroup: str) -> tuple[str, bool]:
    """The innermost systemd service of a cgroup path, and whether it belongs to a user's own systemd."""
    parts = [part for part in cgroup.split("/") if part]
    for part in reversed(parts):
        if UNIT.fullmatch(part) and not _MANAGER.fullmatch(part):
            return part, any(_MANAGER.fullmatch(other) for other in parts)
    return "", False


def oom_kills(cgroup: str) -> int:
    """Processes of a cgroup that the kernel killed for want of memory; -1: not readable."""
    if not cgroup or ".." in cgroup.split("/"):
        return -1
    try:
        text = (_CGROUPS / cgroup.lstrip("/") / "memory.events").read_text()
    except OSError:
        return -1
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdecimal():
            return int(count)
    return -1


def is_frozen(cgroup: str) -> bool:
    """Whether a cgroup is frozen, as `docker pause` and `systemctl freeze` do."""
    if not cgroup or ".." in cgroup.split("/"):
        return False
    try:
        text = (_CGROUPS / cgroup.lstrip("/") / "cgroup.events").read_text()
    except OSError:
        return False
    return "frozen 1" in text.splitlines()


def boot_id() -> str:
    """Id of this boot of the host; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def place() -> str:
    """Place in which this process runs: its namespaces of pids and networks, which give pids and ports their meaning.

    The number of a namespace may be given again once it has ended: the start of its first process is told, too. Empty
    where it is not known.
    """
    try:
        pids = Path("/proc/self/ns/pid").readlink()
        networks = Path("/proc/self/ns/net").readlink()
    except OSError:
        return ""
    started = ""
    with contextlib.suppress(OSError, IndexError):
        started = Path("/proc/1/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return f"{pids} {started} {networks}"


def _cgroup(pid: int) -> str:
    """The process's path in the unified hierarchy; with cgroups of version 1 that of the first controller."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    paths = {}
    for line in lines:
        # `hierarchy:controllers:path`; hierarchy 0 is the unified one.
        if line.count(":") >= 2:
            hierarchy, _, path = line.split(":", 2)
            paths[hierarchy] = path
    path = paths.get("0") or next(iter(paths.values()), "")
    if len(path) < 512 and path.isprintable():
        return path
    return ""


def _output(pid: int) -> str:
    """The file that a process writes its log into, by its name on this host; of several the first one."""
    try:
        if has_own_root(pid):
            return ""
    except OSError:
        return ""
    for target in targets_of(pid).values():
        if _FILE.fullmatch(target) and not target.startswith("/dev/"):
            return target
    return ""


def relaunch_command(server: ProcessRecord) -> str:
    """Folder, variables and command line of a server as a shell takes them, as far as this user may read them.

    What may be a secret is `***`. One of another user is started as that user: its program is his, and whoever copies
    the command would run it with rights of his own. Empty where its arguments are only a title that it gave itself, and
    for one of another file system: whoever is root in a container would have root run a program on this host.
    """
    if len(server.argv) < 2 or _runs_elsewhere(server.pid):
        return ""
    words = [*_assignments(server.pid), *(_quoted(word) for word in shown_words(server.argv))]
    folder = _folder(server.pid)
    place = shlex.quote(folder)
    if server.uid != os.geteuid():
        words = ["sudo", "-u", _sudo_user(server.uid), "env", *(("-C", place) if folder else ()), *words]
    elif folder:
        words = ["cd", place, "&&", *words]
    command = " ".join(words)
    return command if len(command) <= _MOST_COMMAND else ""


def _runs_elsewhere(pid: int) -> bool:
    """Whether a process has a file system of its own; False where Linux hides that from this user."""
    try:
        return has_own_root(pid)
    except OSError:
        return False


def _sudo_user(uid: int) -> str:
    """A user as sudo takes one, for a shell; by his number where he has no plain name."""
    name = user_name(uid)
    plain_name = "" if name.isdecimal() else Untrusted(name).of_form("name")
    return plain_name or shlex.quote(f"#{uid}")


def _quoted(word: str) -> str:
    """A word as a shell takes it; `***` stays what everybody knows as left out."""
    return STRUCK.join(part and shlex.quote(part) for part in word.split(STRUCK))


def _assignments(pid: int) -> list[str]:
    """The variables that matter to an engine, as they stand before a command."""
    variables = matching_variables(pid, _matters) or {}
    assignments = []
    for name, value in sorted(variables.items())[:_MOST_VARIABLES]:
        shown = value
        if speaks_of_secret(name):
            shown = STRUCK
        elif not _GPU_UUIDS.fullmatch(value):
            shown = strike_secrets(value)
        assignments.append(f"{name}={_quoted(shown)}")
    return assignments


def _matters(name: str) -> bool:
    """Whether a variable changes how an engine runs."""
    is_name = name.isascii() and name.isidentifier()
    return is_name and (name in _NAMES or name.startswith(_PREFIXES))


def _folder(pid: int) -> str:
    """The folder that a process runs in; empty where Linux hides it, or where it is of another file system."""
    try:
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
    return "" if folder.endswith(" (deleted)") or not folder.isprintable() else folder
