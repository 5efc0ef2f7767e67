"""The GPUs of this host as the kernel has them, and the part of them that a process may see."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpumon.readings.text import clean
from gpumon.sources.driver.bus import short_bus_id
from gpumon.sources.last_seen.causes import kernel_messages
from gpumon.sources.last_seen.records import View

_FELL_OFF: Final = re.compile(r"^\d+,\d+,(\d{1,18}),[^;\n]*;.*Xid \(PCI:([0-9a-fA-F:.]+)\): 79\b", re.MULTILINE)
"""The driver's message on a GPU that has fallen off the bus: its time in microseconds, and the PCI address."""
_SAME_MOMENT_S: Final = 60.0
"""Seconds by which a message may come before the GPU was listed last: the memory's file is written every 30 s."""
_DISPLAY_CLASS: Final = "0x03"
"""Begin of the PCI class of display controllers, which GPUs without outputs (3D controllers) are, too."""
_OWN_DRIVERS: Final = frozenset({"nvidia", "amdgpu", "i915", "xe"})
"""Kernel drivers under which the libraries that gpumon asks list a GPU."""
_LIMITING_VARIABLES: Final = (
    *("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "PBS_JOBID", "LSB_JOBID"),
)
"""Variables by which containers and schedulers limit the GPUs of a process, or say that they do."""
_NODE: Final = re.compile(r"nvidia\d+|renderD\d+")
"""Names of the device nodes of GPUs, in /dev and /dev/dri."""
_NODE_FOLDERS: Final = ("", "dri")


class HardwareLook(msgspec.Struct, frozen=True):
    """State of the GPUs at a moment, as the kernel shows it."""

    view: View = View()
    shows_gpus: bool = False
    """Whether sysfs has PCI devices of GPUs at all: else that one is missing there says nothing."""
    drivers: dict[str, str] = {}
    """PCI address of each GPU that is there -> name of the kernel's driver that it is bound to; empty: none."""
    fallen: dict[str, float] = {}
    """PCI address, without its function, of each GPU that fell off the bus by the kernel's log -> when (Unix time)."""

    def has_device(self, bus_id: str) -> bool:
        """Whether there is a PCI device of a GPU at an address."""
        return bus_id in self.drivers

    def has_fallen(self, bus_id: str, since_wall_s: float) -> bool:
        """Whether the kernel's log says that the GPU at an address fell off the bus after a Unix time."""
        fell_wall_s = self.fallen.get(bus_id.rpartition(".")[0])
        return fell_wall_s is not None and fell_wall_s >= since_wall_s - _SAME_MOMENT_S

    def other_driver(self, bus_id: str) -> str:
        """The driver to which the GPU at an address was given, such as `vfio-pci`; empty: it is none other."""
        driver = self.drivers.get(bus_id, "")
        return "" if driver in _OWN_DRIVERS else driver


def look_at_hardware(
    environ: Mapping[str, str], dev: Path = Path("/dev"), sys: Path = Path("/sys"), log: str | None = None
) -> HardwareLook:
    """The look. `log`: messages of the kernel; None: they are read. Blocks: for a thread."""
    drivers = {}
    devices = sys / "bus/pci/devices"
    for name in names_in(devices):
        if not _first_line(devices / name / "class").startswith(_DISPLAY_CLASS):
            continue
        try:
            drivers[name.lower()] = (devices / name / "driver").readlink().name
        except OSError:
            drivers[name.lower()] = ""
    fallen = _fallen_gpus(kernel_messages(0.0) if log is None else log)
    return HardwareLook(view_of_process(environ, dev), bool(drivers), drivers, fallen)


def _fallen_gpus(log: str) -> dict[str, float]:
    """`HardwareLook.fallen` by messages of the kernel, whose time is that of the monotonic clock."""
    booted_wall_s = time.time() - time.monotonic()
    fallen = {}
    for microseconds, address in _FELL_OFF.findall(log):
        bus_id = short_bus_id(f"{address.partition('.')[0]}.0")
        if bus_id:
            fallen[bus_id.rpartition(".")[0]] = booted_wall_s + int(microseconds) / 1e6
    return fallen


def _first_line(path: Path) -> str:
    """The first line of a small file; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""


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
    parts = [f"{name}={value}" for name, value in now.variables.items() if before.variables.get(name) != value]
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
