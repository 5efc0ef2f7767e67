"""The topology of AMD's and Intel's GPUs: the real reading, in its process, of files in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpumon.outputs.topology import report
from gpumon.readings.missing import Missing
from gpumon.readings.topology import Topology
from tests.fakes.amd.library import FakeAmd
from tests.fakes.sysfs import Tree, write
from tests.sources.sysfs import dumps

PORT = {"vendor": "0x1022\n"}
SWITCH = {"vendor": "0x1000\n"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def topology(tree: Tree, source: str, env: dict[str, str] | None = None) -> Topology:
    command = [sys.executable, "-m", "gpumon.sources.sysfs.topology", source, str(tree.root)]
    done = subprocess.run(command, env=env or dict(os.environ), capture_output=True, check=True, timeout=60)
    return msgspec.msgpack.decode(done.stdout, type=Topology)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def add_instinct(tree: Tree, number: int, bus: int, numa: int, host_bridge: str, numbers: tuple[int, ...]) -> None:
    slot = f"0000:{bus:02x}:00.0"
    event = dumps.MI300X["device/uevent"].replace("0000:05:00.0", slot)
    files = {**dumps.MI300X, "device/uevent": event, "device/numa_node": f"{numa}\n"}
    files["device/local_cpulist"] = f"{numa * 4}-{numa * 4 + 3}\n"
    bridges = (PORT, SWITCH, SWITCH)[: len(numbers)]
    tree.card(f"card{number}", files, bridges, host_bridge, numbers)
    node = dumps.MI300X_NODE.replace("location_id 1280", f"location_id {bus << 8}")
    tree.kfd(number + 1, 50000 + number, node, {})


def test_xgmi_links_and_the_ways_through_pcie(tree: Tree) -> None:
    add_instinct(tree, 0, 0x05, 0, "pci0000:00", (1, 2, 3))
    add_instinct(tree, 1, 0x06, 0, "pci0000:00", (1, 2, 4))
    add_instinct(tree, 2, 0x07, 0, "pci0000:00", (0x11,))
    add_instinct(tree, 3, 0x85, 1, "pci0000:80", (0x81,))
    for start, end, weight in ((1, 2, 15), (2, 1, 15), (1, 3, 30), (3, 1, 30)):
        tree.link(start, end, 11, weight)
    tree.link(1, 0, 2, 20)
    without_library = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    found = topology(tree, "amdsmi", without_library)
    words = {(pair.first, pair.second): pair.word for pair in found.pairs}
    assert words == {(0, 1): "XGMI", (0, 2): "XGMI+", (0, 3): "SYS", (1, 2): "PHB", (1, 3): "SYS", (2, 3): "SYS"}
    board = found.boards[3]
    assert (board.bus_id, board.numa_nodes, board.cpus) == ("0000:85:00.0", (1,), (4, 5, 6, 7))
    assert (board.pcie_generation, board.pcie_width_max) == (5.0, 16.0)
    assert [board.nvlinks for board in found.boards] == [1, 1, 0, 0]
    text = report(found, 160)
    assert "XGMI links" in text
    assert "groups that XGMI links connect: 0-2 | 3; keep the GPUs of one engine within a group" in text
    assert ["gpu", "0", "X", "XGMI", "XGMI+", "SYS"] in cells(text)
    assert "! gpu 0: 1 uncorrected ECC errors since the driver was loaded" in text
    assert "MIG" not in text
    assert "CUDA" not in text


def test_gpus_behind_one_switch(tree: Tree) -> None:
    add_instinct(tree, 0, 0x05, 0, "pci0000:00", (1, 2, 3))
    add_instinct(tree, 1, 0x06, 0, "pci0000:00", (1, 2, 4))
    write(tree.sys / "devices/pci0000:00/0000:01:00.0/0000:02:00.0/0000:03:00.0", {"vendor": "0x1000\n"})
    found = topology(tree, "amdsmi")
    assert found.pairs[0].word == "PIX"
    assert "PIX   across one PCIe bridge at most" in report(found, 120)


def test_amd_smi_tells_which_links_are_up(tree: Tree, tmp_path: Path) -> None:
    amd = FakeAmd(tmp_path)
    amd.write("gpus 2\n* xgmi 7\n* xgmi_up 7\n1 xgmi_up 5\n")
    add_instinct(tree, 0, 0x05, 0, "pci0000:00", (1,))
    add_instinct(tree, 1, 0x06, 0, "pci0000:00", (2,))
    tree.link(1, 2, 11, 15)
    found = topology(tree, "amdsmi", amd.env())
    assert [(board.nvlinks, board.nvlinks_active) for board in found.boards] == [(7, 7), (7, 5)]
    assert "! gpu 1: 5 of 7 XGMI links active: see dmesg, and amd-smi xgmi" in report(found, 120)


def test_links_of_a_card_that_kfd_does_not_list_are_not_known(tree: Tree) -> None:
    add_instinct(tree, 0, 0x05, 0, "pci0000:00", (1,))
    add_instinct(tree, 1, 0x85, 1, "pci0000:80", (0x81,))
    (tree.sys / "class/kfd/kfd/topology/nodes/2/gpu_id").unlink()
    without_library = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    found = topology(tree, "amdsmi", without_library)
    listed, unlisted = found.boards
    assert (listed.nvlinks, listed.nvlinks_active) == (0.0, 0.0)
    assert isinstance(unlisted.nvlinks, Missing)
    assert isinstance(unlisted.nvlinks_active, Missing)
    rows = report(found, 200).splitlines()
    links = rows[2].index("XGMI links")
    assert [row[links : links + 10].split("  ")[0].strip() for row in rows[3:5]] == ["none", "not known"]
    assert any(row.startswith("XGMI links of gpu 1 are not known") for row in rows)
    assert not any(row.startswith("no XGMI links") for row in rows)


def test_intel_cards_have_no_links_of_their_own(tree: Tree) -> None:
    tree.card("card0", dumps.B580)
    text = report(topology(tree, "sysfs"), 120)
    assert "Intel Arc B580" in text
    assert "links" not in text


def test_without_a_card_the_process_says_so(tree: Tree) -> None:
    command = [sys.executable, "-m", "gpumon.sources.sysfs.topology", "sysfs", str(tree.root)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 3
    assert b"no Intel graphics card" in done.stdout
