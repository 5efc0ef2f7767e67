"""GPUs that are not listed any more: which are lost, and which are only not to be seen."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import GpuReading, GpuState, UnseenGpus, XidEvent
from gpumon.sources.driver.bus import short_bus_id
from gpumon.sources.driver.fleet import UNPLUGGED
from gpumon.sources.last_seen.memory.gpus import LastListed
from gpumon.sources.last_seen.memory.hardware import HardwareLook, look_at_hardware, view_of_process
from gpumon.sources.last_seen.store import LastSeenStore
from tests.each_row import each_row
from tests.records import replace

WALL_S = time.time()
DRIVER = "580.65.06"


def bus_id(index: int) -> str:
    return f"0000:{0x41 + index:02x}:00.0"


def card(index: int, **more: Any) -> GpuReading:
    values = {"source": "nvml", "bus_id": bus_id(index), **more}
    return GpuReading(index, f"GPU-{index}", "H100", GpuState.OK, 0.0, **values)


def cards(count: int) -> tuple[GpuReading, ...]:
    return tuple(card(index) for index in range(count))


class Machine:
    """The files of a host's kernel on its GPUs, and the state folder of a user of it."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.dev = folder / "dev"
        self.sys = folder / "sys"
        self.store = LastSeenStore(folder / "state" / "engines-host.json")
        self.environ: dict[str, str] = {}
        self.log = ""
        self.wall_s = WALL_S
        self.dev.mkdir()
        for index in range(gpus):
            (self.dev / f"nvidia{index}").touch()
            device = self.sys / "bus/pci/devices" / bus_id(index)
            device.mkdir(parents=True)
            (device / "class").write_text("0x030200\n")
            self.bind(index, "nvidia")

    def bind(self, index: int, driver: str) -> None:
        """Bind a GPU to a kernel driver."""
        link = self.sys / "bus/pci/devices" / bus_id(index) / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../bus/pci/drivers/{driver}")

    def take_out(self, index: int) -> None:
        """Remove the PCI device of a GPU."""
        device = self.sys / "bus/pci/devices" / bus_id(index)
        for file in device.iterdir():
            file.unlink()
        device.rmdir()

    def fall(self, index: int) -> None:
        """Let the driver write into the kernel's log that a GPU fell off the bus, now."""
        microseconds = round(time.monotonic() * 1e6)
        address = bus_id(index).rpartition(".")[0]
        self.log += f"4,901,{microseconds},-;NVRM: Xid (PCI:{address}): 79, GPU has fallen off the bus.\n"

    def look(self) -> HardwareLook:
        return look_at_hardware(self.environ, self.dev, self.sys, self.log)

    def begin_look(self) -> Future[HardwareLook]:
        done: Future[HardwareLook] = Future()
        done.set_result(self.look())
        return done

    def run(self, exporter: str = "") -> Run:
        return Run(self, exporter)


class Run:
    """One run of gpumon on it."""

    def __init__(self, machine: Machine, exporter: str) -> None:
        self._machine = machine
        self.listed = LastListed(machine.begin_look, exporter)
        self.listed.see_hardware(machine.look())
        self.listed.load(machine.store.read(machine.wall_s).sights)

    def see(self, gpus: tuple[GpuReading, ...], driver: str = DRIVER) -> tuple[GpuReading, ...]:
        """A tick, after which the file is written."""
        self._machine.wall_s += 1.0
        rows = self.listed.take(gpus, driver, self._machine.wall_s, self._machine.wall_s)
        assert self._machine.store.write([], self.listed.sights(), {}, self._machine.wall_s)
        return rows

    @property
    def note(self) -> UnseenGpus:
        (note,) = self.listed.unseen
        return note


def lost(rows: tuple[GpuReading, ...]) -> list[int]:
    return [gpu.index for gpu in rows if gpu.state is GpuState.LOST]


@pytest.mark.parametrize(
    ("before", "now", "unseen"),
    [(4, 1, (1, 2, 3)), (64, 2, tuple(range(2, 64))), (2, 64, ()), (4, 4, ())],
)
def test_gpus_that_an_earlier_run_saw_are_not_lost(
    before: int, now: int, unseen: tuple[int, ...], tmp_path: Path
) -> None:
    machine = Machine(tmp_path, 64)
    machine.run().see(cards(before))
    later = machine.run()
    assert later.see(cards(now)) == cards(now)
    assert [note.indices for note in later.listed.unseen] == ([unseen] if unseen else [])
    if unseen:
        assert (later.note.count, later.note.in_this_run, later.note.why) == (before, False, "")


def test_the_note_says_what_hides_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    machine.run().see(cards(4))
    machine.environ = {"SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": "0"}
    (machine.dev / "nvidia3").unlink()
    job = machine.run()
    assert job.see(cards(1)) == cards(1)
    assert job.note.why == "CUDA_VISIBLE_DEVICES=0, SLURM_JOB_ID=77, 1 of 4 device nodes closed to it"
    machine.environ = {}
    again = machine.run()
    assert again.see(cards(4)) == cards(4)
    assert again.listed.unseen == ()


def test_a_container_that_is_started_anew_on_another_gpu_names_the_old_one_by_its_uuid(tmp_path: Path) -> None:
    """Index 0 is that of the new one."""
    machine = Machine(tmp_path, 2)
    machine.run().see((card(0),))
    run = machine.run()
    other = replace(card(1), index=0)
    assert run.see((other,)) == (other,)
    assert (run.note.indices, run.note.uuids) == ((), ("GPU-0",))


def test_the_second_of_two_small_runs_still_knows_who_saw_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    machine.run().see(cards(4))
    machine.run().see(cards(1))
    third = machine.run()
    third.see(cards(1))
    assert (third.note.indices, third.note.count) == ((1, 2, 3), 4)
    machine.wall_s += 86_401.0
    fourth = machine.run()
    fourth.see(cards(1))
    assert fourth.listed.unseen == (), "a day is over"


def test_a_gpu_that_leaves_the_list_within_a_run_is_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    run = machine.run()
    run.see(cards(4))
    rows = run.see(cards(2))
    assert lost(rows) == [2, 3]
    assert "unplugged or removed" in rows[3].state_text
    assert run.listed.unseen == ()
    assert run.see(cards(4)) == cards(4), "and is back"


def test_the_row_of_the_drivers_worker_is_judged_in_the_same_way(tmp_path: Path) -> None:
    """The worker says that it misses a GPU; a container that was given fewer has lost none."""
    state, text = UNPLUGGED
    machine = Machine(tmp_path, 2)
    run = machine.run()
    run.see(cards(2))
    missed = replace(card(1), state=state, state_text=text, xid=(XidEvent(48, WALL_S),))
    rows = run.see((card(0), missed))
    assert (lost(rows), rows[1].xid) == ([1], missed.xid)
    run.see(cards(2))
    (machine.dev / "nvidia1").unlink()
    assert run.see((card(0), missed)) == (card(0),)
    assert (run.note.in_this_run, run.note.why) == (True, "1 of 2 device nodes closed to it")


def test_all_gpus_may_be_taken_from_a_container_at_once(tmp_path: Path) -> None:
    state, text = UNPLUGGED
    machine = Machine(tmp_path, 2)
    run = machine.run()
    run.see(cards(2))
    for index in range(2):
        (machine.dev / f"nvidia{index}").unlink()
    assert run.see(tuple(replace(gpu, state=state, state_text=text) for gpu in cards(2))) == ()
    assert run.note.indices == (0, 1)


def test_until_it_is_known_why_a_gpu_is_missed_its_row_is_stale(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    looking: Future[HardwareLook] = Future()
    listed = LastListed(lambda: looking)
    listed.take(cards(2), DRIVER, WALL_S, 10.0)
    assert listed.take(cards(1), DRIVER, WALL_S + 1.0, 11.0)[1].state is GpuState.STALE
    machine.take_out(1)
    looking.set_result(machine.look())
    assert lost(listed.take(cards(1), DRIVER, WALL_S + 2.0, 12.0)) == [1]


def test_a_look_that_was_not_needed_in_the_end_judges_no_later_absence(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    looks: list[Future[HardwareLook]] = []

    def begin_look() -> Future[HardwareLook]:
        looks.append(Future())
        return looks[-1]

    listed = LastListed(begin_look)
    listed.take(cards(2), DRIVER, WALL_S, 10.0)
    listed.take(cards(1), DRIVER, WALL_S + 1.0, 11.0)
    looks[-1].set_result(machine.look())
    listed.take(cards(2), DRIVER, WALL_S + 2.0, 12.0)
    machine.bind(1, "vfio-pci")
    listed.take(cards(1), DRIVER, WALL_S + 60.0, 70.0)
    if not looks[-1].done():
        looks[-1].set_result(machine.look())
    assert lost(listed.take(cards(1), DRIVER, WALL_S + 61.0, 71.0)) == []


def test_a_gpu_whose_pci_device_is_gone_is_lost_over_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    machine.run().see(cards(4))
    machine.take_out(2)
    for _ in range(2):
        run = machine.run()
        rows = run.see((card(0), card(1)))
        assert lost(rows) == [2]
        assert "its PCI device 0000:43:00.0 is gone" in rows[2].state_text
        assert run.note.indices == (3,), "that one is there"


def test_a_container_without_pci_devices_tells_nothing_of_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.run().see(cards(2))
    machine.sys = tmp_path / "another"
    assert lost(machine.run().see(cards(1))) == []


def test_a_gpu_that_fell_off_the_bus_is_lost_over_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    machine.run().see(cards(4))
    machine.fall(3)
    rows = machine.run().see(cards(2))
    assert lost(rows) == [3]
    assert "Xid 79" in rows[2].state_text


def test_an_xid_from_before_it_was_listed_last_is_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.fall(1)
    machine.wall_s += 3600.0
    machine.run().see(cards(2))
    assert lost(machine.run().see(cards(1))) == []


def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    run = machine.run()
    run.see(cards(2))
    machine.bind(1, "vfio-pci")
    assert run.see(cards(1)) == cards(1)
    assert run.note.why == "its PCI device is given to vfio-pci"


def exported_card(index: int, host: str) -> GpuReading:
    return GpuReading(index, f"{host}-{index}", "H100", GpuState.OK, 0.0, source=DCGM, host=host)


def test_another_exporter_is_another_question(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0)
    machine.run("http://a:9400").see((exported_card(0, "a"), exported_card(1, "a")))
    other = machine.run("http://b:9400")
    assert other.see((exported_card(0, "b"),)) == (exported_card(0, "b"),)
    assert other.listed.unseen == ()
    tunnel = machine.run("http://a:9400")
    tunnel.see((exported_card(0, "c"),))
    assert tunnel.listed.unseen == (), "the same URL, another host behind it"


def test_an_exporter_that_was_started_with_fewer_gpus_has_lost_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0)
    run = machine.run("http://a:9400")
    run.see((exported_card(0, "a"), exported_card(1, "a")))
    assert run.see((exported_card(0, "a"),)) == (exported_card(0, "a"),)
    assert (run.note.indices, run.note.asked) == ((1,), "dcgm-exporter http://a:9400")
    later = machine.run("http://a:9400")
    assert later.see((exported_card(0, "a"),)) == (exported_card(0, "a"),)
    assert later.note.in_this_run is False


def test_an_exporters_gpu_that_fell_off_the_bus_is_lost(tmp_path: Path) -> None:
    run = Machine(tmp_path, 0).run("http://a:9400")
    fallen = replace(exported_card(1, "a"), xid=(XidEvent(79, WALL_S),))
    run.see((exported_card(0, "a"), fallen))
    assert lost(run.see((exported_card(0, "a"),))) == [1]


def test_slices_that_an_admin_took_away_are_not_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    run = machine.run()
    parent = replace(card(0), mig=True)
    slices = tuple(replace(card(0), uuid=f"MIG-{n}", parent_uuid="GPU-0") for n in range(7))
    run.see((parent, *slices))
    assert run.see((parent, slices[0])) == (parent, slices[0])
    assert run.see((card(0),)) == (card(0),)
    assert run.listed.unseen == ()


def test_another_driver_is_another_question(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4)
    run = machine.run()
    run.see(cards(4))
    assert run.see(cards(1), driver="590.1") == cards(1)
    assert run.listed.unseen == ()


def test_nothing_is_said_of_single_gpus_where_the_driver_is_gone(tmp_path: Path) -> None:
    run = Machine(tmp_path, 2).run()
    run.see(cards(2))
    assert run.see((), driver="") == ()
    nameless = (card(0), replace(card(1), uuid="index:1", state=GpuState.ERROR))
    assert run.see(nameless) == nameless


def test_a_lost_gpu_that_the_driver_lists_is_no_news(tmp_path: Path) -> None:
    """The driver's code says so; the day after which it is forgotten counts from when it was well."""
    machine = Machine(tmp_path, 2)
    run = machine.run()
    run.see(cards(2))
    fallen = replace(card(1), state=GpuState.LOST, state_text="fallen off the bus")
    assert run.see((card(0), fallen)) == (card(0), fallen)


@each_row(
    "text, short",
    [
        ("00000000:41:00.0", "0000:41:00.0"),
        ("00004CE9:00:00.0", "4ce9:00:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("0000:03:00.0", "0000:03:00.0"),
        ("", ""),
        ("../../etc", ""),
    ],
)
def test_pci_addresses_have_one_spelling(text: str, short: str) -> None:
    assert short_bus_id(text) == short


def test_a_view_holds_what_limits_a_process(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "dri/renderD128", "dri/card0"):
        (tmp_path / name).touch()
    view = view_of_process({"CUDA_VISIBLE_DEVICES": "0,\x1b[2J1", "SECRET": "x"}, tmp_path)
    assert view.nodes == ("dri/renderD128", "nvidia0", "nvidia10")
    assert list(view.variables) == ["CUDA_VISIBLE_DEVICES"]
    assert "\x1b" not in view.variables["CUDA_VISIBLE_DEVICES"]


def test_a_damaged_sight_costs_the_memory_and_no_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.run().see(cards(2))
    path = tmp_path / "state" / "engines-host.json"
    path.write_text(path.read_text().replace('"sights":[{', '"sights":[{"asked":7,'))
    run = machine.run()
    assert run.see(cards(1)) == cards(1)
    assert run.listed.unseen == ()


@pytest.mark.parametrize("driver", ["nvidia", ""])
def test_a_device_that_is_there_says_nothing_of_a_gpu_of_before(driver: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.run().see(cards(2))
    if not driver:
        (machine.sys / "bus/pci/devices" / bus_id(1) / "driver").unlink()
    run = machine.run()
    assert run.see(cards(1)) == cards(1)
    assert run.note.indices == (1,)
