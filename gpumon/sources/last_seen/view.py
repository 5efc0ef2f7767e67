"""The part of a host's GPUs that a process may see, as far as its surroundings tell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpumon.readings.text import clean

_LIMITING_VARIABLES: Final = (
    *("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "PBS_JOBID", "LSB_JOBID"),
)
"""Variables by which containers and schedulers limit the GPUs of a process, or say that they do."""
_NODE: Final = re.compile(r"nvidia\d+|renderD\d+")
"""Names of the device nodes of GPUs, in /dev and /dev/dri."""
_NODE_FOLDERS: Final = ("", "dri")


class View(msgspec.Struct, frozen=True):
    """Limits of a process to some of the GPUs of its host, as far as its surroundings tell."""

    variables: dict[str, str] = {}
    """The variables that limit it -> their values."""
    nodes: tuple[str, ...] = ()
    """Device nodes of GPUs that it may open."""


def view_of_process(environ: Mapping[str, str], dev: Path = Path("/dev")) -> View:
    """The view of this process. Nodes are not opened: that would wake a GPU; access(2) asks the cgroup, too."""
    variables = {name: clean(environ[name], 80) for name in _LIMITING_VARIABLES if name in environ}
    nodes = []
    for folder in _NODE_FOLDERS:
        for name in names_in(dev / folder):
            path = dev / folder / name
            if _NODE.fullmatch(name) and os.access(path, os.R_OK | os.W_OK):
                nodes.append(str(path.relative_to(dev)))
    return View(variables, tuple(sorted(nodes)))


def view_change(before: View, now: View) -> str:
    """The limits of a process that another one did not have; empty: it may see all that the other one might."""
    parts = []
    for name, value in now.variables.items():
        if before.variables.get(name) != value:
            parts.append(f"{name}={value}")
    missing = set(before.nodes) - set(now.nodes)
    if missing:
        parts.append(f"{len(missing)} of {len(before.nodes)} device nodes closed to it")
    for name, value in before.variables.items():
        if name not in now.variables:
            parts.append(f"{name} not set (was {value})")
    return ", ".join(parts)


def names_in(folder: Path) -> Iterable[str]:
    """Names in a folder; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return ()
