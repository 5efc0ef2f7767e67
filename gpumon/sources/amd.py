"""AMD's driver library, by its own binding amdsmi: a driver of the worker. Not verified on hardware.

Where the binding or the library is missing, the driver is that of the kernel's files: `gpumon.sources.sysfs.amdgpu`.

Units are those of amdsmi.h (ROCm 7): activity in %, VRAM in MiB, socket power in W, power caps in uW, clocks in MHz,
temperatures in degrees Celsius, memory of processes in bytes, energy in steps of `counter_resolution` uJ, speed of the
PCIe link in MT/s, peak bandwidth in GB/s (2^64-1 where the firmware does not have it: all before MI300), traffic of
XGMI links in KB. A call for throttling takes 0.1 s: the library compares two samples.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from gpumon.readings.amd import (
    AMDSMI,
    AMDSMI_FIGURES,
    BAD_PAGES,
    ENERGY,
    PCIE_LINK,
    PROCESSES,
    VIOLATIONS,
    XGMI_LINKS,
    XGMI_TRAFFIC,
    AmdSmiFigure,
)
from gpumon.readings.cadence import MINUTE, TICK
from gpumon.readings.frame import GPU_FIGURES, GpuProcess, GpuReading, GpuState, XidEvent
from gpumon.readings.missing import NOT_IN_AMDSMI, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.sources.driver.bounds import EnergyCheck, drop_implausible
from gpumon.sources.driver.calls import NEVER, UNKNOWN_CODE, Api, CallPause, CallRule, Calls, CallTrace
from gpumon.sources.driver.fleet import Driver, DriverGpu, Pcie
from gpumon.sources.driver.names import ProcessNames, largest_first
from gpumon.sources.driver.wire import Timings
from gpumon.sources.sysfs.amdgpu import INSTALL, NO_AMD_GPU, amdgpu
from gpumon.sources.sysfs.driver import UNVERIFIED_HARDWARE, NoEvents
from gpumon.sources.sysfs.gpu import GENERATIONS
from gpumon.sources.sysfs.rates import GrowthRate
from gpumon.specs.units import MICRO

try:  # without the driver's library the binding raises KeyError, after a word on stdout
    import amdsmi
except (ImportError, KeyError, OSError, AttributeError) as error:
    amdsmi = None
    LOAD_ERROR = f"{type(error).__name__}: {error}"

_MOST_PROCESSES = 256
"""Processes of a GPU that are looked up."""
_UNREADABLE = -1
"""Our code of an answer that cannot be read. AMD's codes begin at 1."""
_NO_VALUE = CallRule(Reason.ERROR, CallPause.TICK, "the driver has no value right now", usual=True)
_FAILED = CallRule(Reason.ERROR, CallPause.BACK_OFF, "the driver fails on this call: see dmesg (amdgpu)")
# Values of AMDSMI_STATUS_*.
_NOT_FOUND = 31
_NOT_INIT = 32
_NOT_LOADED = 34
_RULES: dict[int, CallRule] = {
    **dict.fromkeys((1, 2, 3, 4, 5, 55), NEVER),  # INVAL, NOT_SUPPORTED, NOT_YET_IMPLEMENTED, FAIL_LOAD_*, SETTING_...
    **dict.fromkeys((6, 7, 12, 13, 14, 15, 16, 20, 52, 56), _FAILED),  # DRM_ERROR, API_FAILED, IO, FILE_ERROR, ...
    **dict.fromkeys((9, 11, 30, 39, 40, 41, 42, 43), _NO_VALUE),  # RETRY, INTERRUPT, BUSY, NO_DATA, UNEXPECTED_*, ...
    8: CallRule(Reason.ERROR, CallPause.TICK, "the driver ran out of time"),
    10: CallRule(Reason.NO_PERMISSION, CallPause.PERMISSION, "the driver refuses this to your user"),
    0xFFFFFFFF: UNKNOWN_CODE,
    _UNREADABLE: CallRule(Reason.INVALID, CallPause.TICK, "the driver sent what cannot be read", usual=True),
}
"""By AMDSMI_STATUS_*."""
_FIXES = {
    4: "no AMD driver library can be used: install ROCm's amd-smi-lib of the same version as the Python package amdsmi",
    10: "no permission to open the AMD driver: join render and video; in a container, pass /dev/kfd and /dev/dri",
    _NOT_LOADED: "the AMD kernel driver is not loaded: sudo modprobe amdgpu, then see dmesg",
    _NOT_INIT: "the AMD driver closed its session",
}


def _code_of(error: Exception) -> int | None:
    """AMD's status code that an exception of amdsmi stands for."""
    if isinstance(error, (ValueError, KeyError)):
        return _UNREADABLE
    if amdsmi is None or not isinstance(error, amdsmi.AmdSmiLibraryException):
        return None
    return int(error.get_error_code())


def _gauges(when: str) -> tuple[tuple[AmdSmiFigure, ...], ...]:
    """The numbers that are read together, those of one answer in a group."""
    by_call: dict[str, list[AmdSmiFigure]] = {}
    for figure in AMDSMI_FIGURES:
        if figure.when == when and not figure.computed:
            by_call.setdefault(figure.key, []).append(figure)
    return tuple(tuple(figures) for figures in by_call.values())


_TICK_GAUGES = _gauges(TICK)
_MINUTE_GAUGES = _gauges(MINUTE)
_VIOLATIONS = {
    "active_ppt_pwr": "sw_power_cap",
    "active_socket_thrm": "sw_thermal_slowdown",
    "active_prochot_thrm": "hw_thermal_slowdown",
    "active_vr_thrm": "hw_thermal_slowdown",
    "active_hbm_thrm": "hw_thermal_slowdown",
}
"""Violations that amdsmi_get_violation_status tells as active -> the name that NVIDIA's driver has for such a cause.

PPT is the limit of the package's power. The firmware keeps the socket below its limit of heat; PROCHOT, voltage
regulators and HBM have limits of their own, at which the hardware slows down.
"""
_THROTTLE_TURNS = 4
"""Groups of GPUs that are asked for throttling at different ticks, so that calls of 0.1 s do not add up in one."""
_PENDING = 1
"""AMDSMI_MEM_PAGE_STATUS_PENDING."""
_BYTES_PER_LINK_KB = 1000.0
"""Traffic over links is told in KB, taken as 1000 bytes."""
_NO_LINK_COUNT = 0xFFFFFFFFFFFFFFFF
"""Stands for a link whose traffic is not counted."""
_NO_LINKS = Missing(Reason.NOT_SUPPORTED, "this GPU has no XGMI links")


class AmdGpu:
    """One GPU, or one partition or die that the driver lists as a GPU."""

    def __init__(self, index: int, handle: Any, uuid: str, calls: Calls, timings: Timings) -> None:
        self.handle = handle
        self.uuid = uuid
        self.read_s = 0.0
        self._index = index
        self._calls = calls
        self._timings = timings
        self._names = ProcessNames()
        self._energy = EnergyCheck()
        self._sent = GrowthRate()
        """Bytes that it has sent over its XGMI links; the next are those that it has received."""
        self._received = GrowthRate()
        self._values: dict[str, Any] = {"name": ""}
        """Its market name, and fields of a GpuReading, each as it was read last."""
        self._slow_due_s = 0.0
        self._minute_due_s = 0.0
        self._throttle_due_s = 0.0

    @property
    def name(self) -> str:
        """Market name."""
        return str(self._values["name"])

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""
        return self._calls.troubles()

    def close(self) -> None:
        """Do nothing: amdsmi has no handle to give back."""

    def read(self, now_s: float, xid: tuple[XidEvent, ...], pcie: Pcie) -> tuple[GpuReading, ...]:  # noqa: ARG002 - the signature of a driver's GPU
        """Read all that is due. Returns one row; amdsmi has no call for PCIe traffic, so `pcie` changes nothing."""
        values = self._values
        self._calls.begin(now_s)
        if now_s >= self._minute_due_s:
            self._minute_due_s = now_s + self._timings.minute_s
            self._read_minute()
        if now_s >= self._slow_due_s:
            self._slow_due_s = now_s + self._timings.slow_s
            values["processes"] = self._read_processes(now_s)
            values |= self._read_pcie_link()
            values |= self._read_xgmi_traffic()
        if now_s >= self._throttle_due_s:
            self._plan_throttle(now_s)
            values["throttle"] = self._read_throttle()
        self._read_gauges(_TICK_GAUGES)
        self.read_s = time.monotonic()
        values["energy_j"] = self._read_energy_j()
        drop_implausible(values)
        self._energy.check(values, self.read_s)
        state, text = self._calls.badge()
        figures: dict[str, Any] = dict.fromkeys(GPU_FIGURES, NOT_IN_AMDSMI)
        for field, value in values.items():
            if field != "name" and value != NOT_SUPPORTED:
                figures[field] = value
        reading = GpuReading(
            index=self._index,
            uuid=self.uuid,
            name=values["name"],
            state=state,
            monotonic_s=self.read_s,
            state_text=text,
            source=AMDSMI,
            xid=xid,
            **figures,
        )
        return (reading,)

    def _read_minute(self) -> None:
        """Read its name, limits, counts of errors and links."""
        values = self._values
        card = self._read("amdsmi_get_gpu_asic_info")
        if not isinstance(card, Missing):
            values["name"] = str(card.get("market_name", ""))
            values["sm_count"] = _number(card.get("num_compute_units"))
        self._read_gauges(_MINUTE_GAUGES)
        if values["memory_peak_bytes_per_s"] == 0.0:  # 0 stands for "not known"
            values["memory_peak_bytes_per_s"] = NOT_SUPPORTED
        values |= self._read_bad_pages()
        values |= self._read_xgmi_links()

    def _read_energy_j(self) -> Reading:
        """Its energy counter in J: steps x their size."""
        counter = self._read(ENERGY)
        if isinstance(counter, Missing):
            return counter
        steps = _first_number(counter, ("energy_accumulator",), 1.0)
        step_j = _first_number(counter, ("counter_resolution",), MICRO)
        if isinstance(steps, Missing):
            return steps
        if isinstance(step_j, Missing):
            return step_j
        return steps * step_j

    def _read(self, call: str, *args: Any, key: str = "") -> Any:
        """The answer of a call for this GPU, or why there is none. Calls of one `key` pause together."""
        return self._calls.read(call, self.handle, *args, key=key)

    def _read_gauges(self, gauges: tuple[tuple[AmdSmiFigure, ...], ...]) -> None:
        """Read numbers into the values. A call pauses by itself for each clock or sensor."""
        for figures in gauges:
            first = figures[0]
            args = [_enumerator(argument) for argument in first.arguments]
            answer = self._read(first.call, *args, key=first.key)
            for figure in figures:
                if isinstance(answer, Missing):
                    self._values[figure.field] = answer
                else:
                    self._values[figure.field] = _first_number(answer, figure.keys, figure.factor)

    def _plan_throttle(self, now_s: float) -> None:
        """Plan the next look at throttling. After the first one the GPUs have theirs at different ticks."""
        wait_s = self._timings.slow_s
        if not self._throttle_due_s:
            turn = self._index % _THROTTLE_TURNS
            wait_s *= 1.0 + turn / _THROTTLE_TURNS
        self._throttle_due_s = now_s + wait_s

    def _read_throttle(self) -> tuple[str, ...]:
        """Names of what holds its clocks down."""
        status = self._read(VIOLATIONS)
        if isinstance(status, Missing):
            return ()
        names = [name for violation, name in _VIOLATIONS.items() if status.get(violation) is True]
        return tuple(dict.fromkeys(names))

    def _read_bad_pages(self) -> dict[str, Reading]:
        """Fields of its bad pages: all, and those that wait for a reset to be taken out of use."""
        pages = self._read(BAD_PAGES)
        if isinstance(pages, Missing):
            return {"bad_pages": pages, "bad_pages_pending": pages}
        pending = [page for page in pages if page.get("status") == _PENDING]
        return {"bad_pages": float(len(pages)), "bad_pages_pending": float(len(pending))}

    def _read_xgmi_links(self) -> dict[str, Reading]:
        """Fields of its links to other GPUs: all, and those that are up."""
        answer = self._read(XGMI_LINKS)
        if isinstance(answer, Missing):
            return {"xgmi_links": answer, "xgmi_links_up": answer}
        links, up = _count_links(answer["status"])
        if not links:
            return {"xgmi_links": _NO_LINKS, "xgmi_links_up": _NO_LINKS}
        return {"xgmi_links": float(links), "xgmi_links_up": float(up)}

    def _read_pcie_link(self) -> dict[str, Reading]:
        """Lanes and generation of its PCIe link, now and possible."""
        link = self._read(PCIE_LINK)
        if isinstance(link, Missing):
            return dict.fromkeys(("pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"), link)
        present = link["pcie_metric"]
        possible = link["pcie_static"]
        return {
            "pcie_width": _positive_number(present.get("pcie_width")),
            "pcie_width_max": _positive_number(possible.get("max_pcie_width")),
            "pcie_generation": _generation(present.get("pcie_speed")),
            "pcie_generation_max": _generation(possible.get("max_pcie_speed")),
        }

    def _read_xgmi_traffic(self) -> dict[str, Reading]:
        """Rates of all XGMI links together: what it sends, and what it receives."""
        metrics = self._read(XGMI_TRAFFIC)
        read_s = time.monotonic()
        if isinstance(metrics, Missing):
            return {"nvlink_tx_bytes_per_s": metrics, "nvlink_rx_bytes_per_s": metrics}
        xgmi = amdsmi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI  # its number depends on the version of the library
        links = [link for link in metrics["links"][: metrics["num_links"]] if link["link_type"] == xgmi]
        return {
            "nvlink_tx_bytes_per_s": self._sent.update(_moved_bytes(links, "write"), read_s),
            "nvlink_rx_bytes_per_s": self._received.update(_moved_bytes(links, "read"), read_s),
        }

    def _read_processes(self, now_s: float) -> tuple[GpuProcess, ...]:
        """Its processes, the one with most VRAM first, those whose VRAM is not known last."""
        processes = self._read(PROCESSES)
        if isinstance(processes, Missing):
            return ()
        rows = []
        for process in processes[:_MOST_PROCESSES]:
            identity = self._names.of(int(process["pid"]), now_s)
            vram = _number(process["memory_usage"]["vram_mem"])
            rows.append(GpuProcess(int(process["pid"]), vram_bytes=vram, **identity._asdict()))
        rows.sort(key=largest_first)
        return tuple(rows)


def _enumerator(qualified_name: str) -> Any:
    """The enumerator of amdsmi with a name such as `AmdSmiClkType.GFX`."""
    enumeration, _, name = qualified_name.partition(".")
    return getattr(getattr(amdsmi, enumeration), name)


def _number(raw: Any) -> Reading:
    """A number of an answer; the binding says N/A where the driver has no value."""
    if isinstance(raw, (int, float)):
        return float(raw)
    return NOT_SUPPORTED


def _positive_number(raw: Any) -> Reading:
    """A number above 0: lanes and generations begin at 1."""
    value = _number(raw)
    if isinstance(value, Missing) or value > 0.0:
        return value
    return NOT_SUPPORTED


def _generation(raw: Any) -> Reading:
    """Generation of a link by the speed of a lane in MT/s."""
    speed = _number(raw)
    if isinstance(speed, Missing):
        return speed
    generation = GENERATIONS.get(speed / 1000.0)
    if generation is None:
        return NOT_SUPPORTED
    return float(generation)


def _count_links(states: list[str]) -> tuple[int, int]:
    """Number of links that are not switched off, and of those that are up. A state is U(p), D(own) or X (off)."""
    up = states.count("U")
    return up + states.count("D"), up


def _moved_bytes(links: list[dict[str, Any]], direction: str) -> Reading:
    """Bytes that links have moved so far in one direction, `read` or `write`."""
    if not links:
        return _NO_LINKS
    counts = [float(link[direction]) for link in links if link[direction] != _NO_LINK_COUNT]
    if not counts:
        return NOT_SUPPORTED
    return sum(counts) * _BYTES_PER_LINK_KB


def _first_number(answer: Any, keys: tuple[str, ...], scale: float) -> Reading:
    """The first number among these keys of an answer (the answer itself where there are none), times `scale`."""
    candidates = [answer.get(key) for key in keys] if keys else [answer]
    for raw in candidates:
        value = _number(raw)
        if not isinstance(value, Missing):
            return value * scale
    return NOT_SUPPORTED


class Amd:
    """The AMD driver."""

    source = AMDSMI
    api = Api(
        functions=amdsmi,
        code_of=_code_of,
        rules=_RULES,
        down={},
        refused={10: (GpuState.NO_PERMISSION, "not open to you: join the groups render and video")},
        driver_down=frozenset({_NOT_INIT, _NOT_LOADED}),
        stale=frozenset({_NOT_FOUND}),
    )
    no_gpu = "the AMD driver runs but lists no GPU: see lspci and dmesg; in a container, pass /dev/kfd and /dev/dri"
    reload: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identities: dict[int, str] = {}
        """Index -> identity. Under the lock: GPUs are opened in threads of their own."""

    def start(self) -> int:
        """Initialise the library. Returns its status code; 0: it can be used."""
        try:
            amdsmi.amdsmi_init()
        except amdsmi.AmdSmiLibraryException as error:
            return int(error.get_error_code())
        return 0

    def explain(self, code: int) -> str:
        """The fault behind a return code, and the fix."""
        return _FIXES.get(code, f"the AMD driver cannot be used (AMD SMI status {code}): see dmesg (amdgpu)")

    def versions(self) -> tuple[str, str]:
        """Version of the driver, marked as not verified on hardware, and no version of ROCm."""
        try:
            version = amdsmi.amdsmi_get_gpu_driver_info(amdsmi.amdsmi_get_processor_handles()[0])["driver_version"]
        except Exception as error:  # amdsmi's classes cannot be named: it may be missing
            if _code_of(error) is None and not isinstance(error, IndexError):
                raise
            version = ""
        return f"{UNVERIFIED_HARDWARE} {version}".rstrip(), ""

    def events(self) -> NoEvents:
        """The library is not watched for errors."""
        return NoEvents()

    def count(self) -> int:
        """Number of GPUs that it lists."""
        count = len(amdsmi.amdsmi_get_processor_handles())
        with self._lock:
            for index in [index for index in self._identities if index >= count]:
                del self._identities[index]
        return count

    def open(self, index: int, last: DriverGpu | None, timings: Timings, trace: CallTrace) -> DriverGpu:
        """The GPU at an index; `last`, if it is still the one that stood there before."""
        trace.begin("amdsmi_get_processor_handles")
        handle = amdsmi.amdsmi_get_processor_handles()[index]
        trace.begin("amdsmi_get_gpu_device_uuid")
        uuid = self._unique_identity(index, str(amdsmi.amdsmi_get_gpu_device_uuid(handle)), handle)
        if last is not None and last.uuid == uuid:
            return last
        return AmdGpu(index, handle, uuid, Calls(self.api, timings, trace), timings)

    def _unique_identity(self, index: int, uuid: str, handle: Any) -> str:
        """The UUID, with the partition and, if another GPU has that as well, the PCI address behind it.

        The library makes the UUID of the serial number: the partitions of a card share it. Older ones number them by
        the function of the PCI address.
        """
        slot = str(_optional_answer("amdsmi_get_gpu_device_bdf", handle) or "")
        kfd = _optional_answer("amdsmi_get_gpu_kfd_info", handle) or {}
        partition = str(kfd.get("current_partition_id", "N/A"))
        if not partition.isdecimal():
            partition = slot.rpartition(".")[2]
        identity = f"{uuid}/{partition}" if partition.isdecimal() and partition != "0" else uuid
        with self._lock:
            others = [taken for other, taken in self._identities.items() if other != index]
            if identity in others and slot:
                identity = f"{identity}@{slot}"
            self._identities[index] = identity
        return identity


def _optional_answer(call: str, handle: Any) -> Any:
    """The answer of a call that may fail; None where it does."""
    try:
        return getattr(amdsmi, call)(handle)
    except Exception as error:  # amdsmi's classes cannot be named: it may be missing
        if _code_of(error) is None:
            raise
        return None


def xgmi_states() -> dict[str, tuple[int, int]]:
    """PCI address -> XGMI links, and those that are up; none where the library is missing or cannot be used."""
    states: dict[str, tuple[int, int]] = {}
    if amdsmi is None or Amd().start() != 0:
        return states
    for handle in amdsmi.amdsmi_get_processor_handles():
        slot = _optional_answer("amdsmi_get_gpu_device_bdf", handle)
        links = _optional_answer(XGMI_LINKS, handle)
        if slot and links and links["status"]:
            states[str(slot)] = _count_links(links["status"])
    return states


def driver_here() -> Driver:
    """AMD's own library, else the files of the kernel."""
    if amdsmi is None:
        return amdgpu(no_gpu=f"{NO_AMD_GPU}; AMD SMI cannot be used either ({LOAD_ERROR}): {INSTALL}")
    return Amd()


DRIVER = driver_here()
