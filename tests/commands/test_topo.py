"""`gpumon topo` on the fake driver, through the real pynvml in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil

from gpumon.outputs.topology import report
from gpumon.readings.topology import XGMI_LINK, LinkPath, Pair, Topology, TopologyGpu
from tests.fakes.http_server import wait_until
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon

HGX = """
gpus 8
profile h100-sxm
gpu * numa 0
gpu 4 numa 1
gpu 5 numa 1
gpu 6 numa 1
gpu 7 numa 1
gpu * persistence 1
gpu 1 mig 2 3g.40gb
gpu 2 pcie_width 8
gpu 3 nvlink_down 2
gpu 3 ecc_uncorrected 4
gpu 5 fault lost
"""
BRIDGED = """
gpus 4
profile a100-sxm
gpu 0 nvlink_peer 1
gpu 1 nvlink_peer 0
gpu 2 nvlink_peer 3
gpu 3 nvlink_peer 2
"""
PLAIN = """
gpus 3
profile l4
gpu 0 pcie_switch 1
gpu 1 pcie_switch 1
gpu 0 numa 0
gpu 1 numa 0
gpu 2 numa 1
gpu * persistence 0
"""


def topo(driver: FakeDriver, script: str, *arguments: str) -> tuple[int, str, str]:
    driver.write(script)
    done = run_gpumon("topo", *arguments, env=driver.env())
    return done.returncode, done.stdout, done.stderr


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_an_nvswitch_board_with_what_is_wrong_on_it(fake_driver: FakeDriver) -> None:
    code, out, err = topo(fake_driver, HGX)
    assert (code, err) == (0, "")
    rows = cells(out)
    assert rows[0] == ["driver", "580.95.05", "CUDA", "13.0"]
    assert "0000:0f:00.0 0 0-31 5 of 5 16 of 16 18 of 18 on 0 0 on off" in " ".join(rows[3])
    assert " ".join(rows[4]).endswith("on 2x 3g.40gb")
    assert ["gpu", "0", "X", "NV18", "NV18", "NV16", "NV18", "-", "NV18", "NV18"] in rows
    for line in (
        "NV18   18 NVLinks, directly or through NVSwitches",
        "! gpu 2: PCIe x8 of x16 lanes: a riser, a slot or a dirty contact, if it stays so under load",
        "! gpu 3: 16 of 18 NVLinks active: see dmesg, and nvidia-smi nvlink -s",
        "! gpu 3: 4 uncorrected ECC errors since the driver was loaded",
        "! gpu 5: fallen off the bus: see dmesg for the Xid; it needs a power cycle",
    ):
        assert line in out.splitlines()
    assert "groups that NVLinks connect" not in out
    assert "persistence mode is off" not in out


def test_bridged_pairs_are_groups_and_stand_in_the_json(fake_driver: FakeDriver) -> None:
    _, out, _ = topo(fake_driver, BRIDGED)
    assert "groups that NVLinks connect: 0-1 | 2-3; keep the GPUs of one engine within a group" in out
    assert ["gpu", "0", "X", "NV12", "NODE", "NODE"] in cells(out)
    code, out, _ = topo(fake_driver, BRIDGED, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["pairs"][0] == {"first": 0, "second": 1, "path": "NODE", "nvlinks": 12}
    assert (told["boards"][0]["nvlinks"], told["boards"][0]["nvlinks_to_switch"]) == (12, 0)


def test_boards_of_amd_without_a_bridge_are_looked_at_with_amds_command() -> None:
    boards = []
    for index in range(2):
        boards.append(TopologyGpu(index, f"uuid-{index}", "AMD Instinct MI210", f"0000:0{index}:00.0", nvlinks=3))
    topology = Topology("amdgpu", "", tuple(boards), (Pair(0, 1, LinkPath.NODE),), XGMI_LINK)
    (remark,) = [line for line in report(topology, 120).splitlines() if "is active" in line]
    assert remark.startswith("none of the XGMI links of gpu 0-1 is active")
    assert remark.endswith("amd-smi xgmi")


def test_boards_without_a_bridge_are_not_broken(fake_driver: FakeDriver) -> None:
    """A PCIe board lists its NVLinks as inactive where no bridge is plugged in."""
    code, out, _ = topo(fake_driver, "gpus 2\nprofile a100-sxm\ngpu * nvlink_down 12\n")
    assert code == 0
    assert "0 of 12" in out
    assert "NVLinks active: see dmesg" not in out
    assert "none of the NVLinks of gpu 0-1 is active" in out


def test_gpus_without_nvlinks(fake_driver: FakeDriver) -> None:
    _, out, _ = topo(fake_driver, PLAIN)
    assert ["gpu", "0", "X", "PIX", "SYS"] in cells(out)
    assert "SYS   across the connection between NUMA nodes" in out
    assert "no NVLinks, and some GPUs are on different NUMA nodes" in out
    assert "persistence mode is off on gpu 0-2: " in out


def test_an_old_driver_tells_less_and_none_a_reason(fake_driver: FakeDriver) -> None:
    missing = "gpu * call nvmlDeviceGetTopologyCommonAncestor function_not_found\ngpu * ecc unsupported\n"
    code, out, _ = topo(fake_driver, f"gpus 2\nprofile l4\n{missing}", "--json")
    told = json.loads(out)
    assert (code, told["pairs"][0]["path"]) == (0, "?")
    assert told["boards"][0]["missing"]["ecc"] == "not_supported"
    code, out, err = topo(fake_driver, "init driver_not_loaded\n")
    assert (code, out) == (1, "")
    assert err.startswith("gpumon: the NVIDIA kernel driver is not loaded: sudo modprobe nvidia")


def test_ctrl_c_ends_a_reading_that_hangs(fake_driver: FakeDriver) -> None:
    fake_driver.write("init hang\n")
    command = (sys.executable, "-m", "gpumon", "topo")
    with subprocess.Popen(command, env=fake_driver.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert wait_until(fake_driver.calls), "the reading hangs now"
        readers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        process.wait(60.0)
        _, alive = psutil.wait_procs(readers, timeout=10.0)
        for reader in alive:
            reader.kill()
    assert readers
    assert alive == []
