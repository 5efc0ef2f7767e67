"""A tree of files as the kernel has them: PCI devices with their graphics cards, sensors, KFD and processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

HOST_NAMESPACE = "pid:[4026531836]"


class Tree:
    """The folders `sys` and `proc` below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"
        self.proc = root / "proc"
        self._drm = self.sys / "class" / "drm"
        self._drm.mkdir(parents=True)
        (self._drm / "version").write_text("drm 1.1.0 20060810\n")
        (self.proc / "self" / "ns").mkdir(parents=True)
        (self.proc / "self" / "ns" / "pid").symlink_to(HOST_NAMESPACE)

    def card(
        self,
        name: str,
        files: Mapping[str, str],
        bridges: tuple[Mapping[str, str], ...] = (),
        host_bridge: str = "pci0000:00",
        numbers: tuple[int, ...] = (1, 2, 3, 4),
    ) -> Path:
        """Add a card (`card0`); `files` are relative to its folder, of which `device` is the PCI device.

        `bridges` are the PCIe bridges above it, the outermost first, on the buses `numbers`. Returns the folder of the
        device.
        """
        slot = dict(line.split("=") for line in files["device/uevent"].splitlines())["PCI_SLOT_NAME"]
        parent = self.sys / "devices" / host_bridge
        for number, bridge in zip(numbers, bridges, strict=False):
            parent = parent / f"0000:{number:02x}:00.0"
            write(parent, bridge)
        device = parent / slot
        card = device / "drm" / name
        card.mkdir(parents=True)
        (card / "device").symlink_to("../../")
        write(card, files)
        (self._drm / name).symlink_to(card)
        connector = self._drm / f"{name}-DP-1"
        connector.mkdir()
        (connector / "status").write_text("disconnected\n")
        return device

    def unplug(self, name: str) -> None:
        """Take a card away."""
        (self._drm / name).unlink()

    def process(self, pid: int, fdinfo: Mapping[str, str], node: str = "/dev/dri/renderD128") -> None:
        """Add a process with these open files of a graphics card: number of the file -> its fdinfo."""
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        for number, text in fdinfo.items():
            link = folder / "fd" / number
            link.unlink(missing_ok=True)
            link.symlink_to(node)
            write(folder, {f"fdinfo/{number}": text})

    def link(self, start: int, end: int, kind: int, weight: int) -> None:
        """Add a link between two nodes of KFD's topology."""
        node = self.sys / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(start)
        text = f"type {kind}\nversion_major 0\nnode_from {start}\nnode_to {end}\nweight {weight}\nflags 1\n"
        write(node, {f"io_links/{end}/properties": text})

    def kfd(self, node: int, gpu_id: int, properties: str, processes: Mapping[int, int]) -> None:
        """Add a node of KFD's topology, and processes (pid -> bytes) on it."""
        kfd = self.sys / "class" / "kfd" / "kfd"
        write(kfd / "topology" / "nodes" / str(node), {"gpu_id": f"{gpu_id}\n", "properties": properties})
        for pid, used in processes.items():
            write(kfd / "proc" / str(pid), {f"vram_{gpu_id}": f"{used}\n"})


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, each as a whole: a reader sees the old one or the new one."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.rename(path)
