"""One GPU as the worker reads it, tier by tier, with its MIG slices and the processes on each."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any, NamedTuple

import pynvml

from gpumon.figures.gpu import GPU
from gpumon.readings.bounds import why_impossible
from gpumon.readings.frame import GPU_FIGURES, GpuProcess, GpuReading, GpuState, XidEvent
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.throttle import throttle_names
from gpumon.sources.driver.bounds import EnergyCheck, drop_implausible
from gpumon.sources.driver.bus import most_lanes, short_bus_id, slot_lanes
from gpumon.sources.driver.calls import Api, Calls, CallTrace, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.driver.fleet import Pcie
from gpumon.sources.driver.names import ProcessNames, largest_first
from gpumon.sources.driver.wire import Timings
from gpumon.sources.nvml import figures
from gpumon.sources.nvml.gpm import GPM_METRICS, WHOLE_GPU, Gpm, GpmRequest

STAGGER = 4
"""The slow tiers of neighbouring GPUs fall on this many different ticks."""
_FIRST_ENERGY_S = 1.0
"""Seconds from the first reading of the energy counter to the second, before which no energy is known."""
_PER_SLICE = Missing(Reason.UNDER_MIG, "exists per slice only")
_UNIFIED = Missing(Reason.NOT_SUPPORTED, "this GPU uses the host's memory and has no such figure")
_PCIE_LINK_FIELDS = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
_NVLINK = {"nvlink_tx_bytes_per_s": figures.NVLINK_TX_KIB, "nvlink_rx_bytes_per_s": figures.NVLINK_RX_KIB}
_PCIE = {
    "pcie_tx_bytes_per_s": pynvml.NVML_PCIE_UTIL_TX_BYTES,
    "pcie_rx_bytes_per_s": pynvml.NVML_PCIE_UTIL_RX_BYTES,
}
"""Counter of `nvmlDeviceGetPcieThroughput` by field."""
_KIB = 1024.0
_PROFILE = re.compile(r"\bMIG (\S+)")
_SLICES_REFUSED = "its MIG slices are not open to you: in a container, pass the /dev/nvidia-caps device nodes"
_MOST_PROCESSES = 256
"""Processes kept of one GPU."""
_LIST_STANDS_S = 60.0
"""How long a list stands in for calls that fail: as long as the longest pause between them."""
_COMPUTE = "Compute"
_TYPES = {_COMPUTE: "compute", "Graphics": "graphics", "MPSCompute": "mps"}
"""Kind of process in the names of NVML's calls -> `GpuProcess.type`."""


def _list_calls(kind: str) -> tuple[tuple[str, str, tuple[()]], ...]:
    """The calls that list processes of a kind, the newest first."""
    calls = (f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
    return tuple((call, call, ()) for call in calls)


_LIST_CALLS = {kind: _list_calls(kind) for kind in _TYPES}
_NO_SAMPLE = Missing(Reason.IDLE, "no sample of this process in the last seconds")


class NvmlSession(NamedTuple):
    """The library and the settings that a GPU and its slices share."""

    api: Api
    timings: Timings
    request: GpmRequest
    """The GPM request record: one for each GPU, as a call that hangs keeps it."""
    names: ProcessNames
    trace: CallTrace
    """The call of this GPU that runs now, or ran last."""
    own_namespace: bool
    """As in `GpuReading`."""


class NvmlGpu:
    """One physical GPU. Its reads raise GpuDownError, HandleStaleError or DriverDownError where nothing can be read."""

    def __init__(self, index: int, handle: Any, uuid: str, session: NvmlSession) -> None:
        self.index = index
        self.handle = handle
        self.uuid = uuid
        self.read_s = 0.0
        """When it was last read, on the monotonic clock."""
        self._session = session
        self._calls = Calls(session.api, session.timings, session.trace)
        self._gpm = Gpm(self._calls, handle, session.request)
        self._slices = Slices(self._calls, handle, session)
        self._processes = Processes(self._calls, handle, session.names, session.timings.slow_s)
        self._values: dict[str, Any] = {"name": ""}
        self._slow_fields = figures.FieldBatch(figures.SLOW_FIELDS)
        self._minute_fields = figures.FieldBatch(figures.MINUTE_FIELDS)
        self._link_fields = figures.FieldBatch(figures.LINK_FIELDS)
        self._rates = {field: figures.CounterRate() for field in _NVLINK}
        self._nvlink: dict[str, Reading] = {}
        self._pcie: dict[str, Reading] = {}
        """PCIe traffic as it was measured last, while the GPU is watched."""
        self._advice = (GpuState.OK, "")
        """State and text of the recovery that the driver advises."""
        self._slot_lanes: float | None = None
        """PCIe lanes of its slot; None: not told."""
        self._energy = EnergyCheck()
        self._slow_due_s = 0.0
        self._links_due_s = 0.0
        self._energy_due_s = 0.0
        self._minute_due_s = 0.0

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""
        return self._calls.troubles()

    @property
    def name(self) -> str:
        """The driver's name of it; empty until it was read."""
        return str(self._values["name"])

    def read(self, now_s: float, xid: tuple[XidEvent, ...], pcie: Pcie) -> tuple[GpuReading, ...]:
        """Read all tiers that are due; returns this GPU, then its MIG slices."""
        self._calls.begin(now_s)
        timings = self._session.timings
        if now_s >= self._minute_due_s:
            self._read_minute()
            self._minute_due_s = now_s + timings.minute_s
        if now_s >= self._slow_due_s or self._slices.changed:
            self._read_slow(now_s)
            self._slow_due_s = self._next_due_s(self._slow_due_s, now_s, timings.slow_s, timings.slow_s)
        if now_s >= self._links_due_s:
            self._read_links()
            self._links_due_s = self._next_due_s(self._links_due_s, now_s, timings.links_s, timings.links_s)
        if now_s >= self._energy_due_s:
            self._read_energy(now_s)
        self._read_tick(pcie)
        self._drop_implausible()
        values = self._values
        values["pcie_width_max"] = most_lanes(values["pcie_width_max"], values["pcie_width"], self._slot_lanes)
        state, text = self._calls.badge()
        _, advice = self._advice
        if state is GpuState.OK and advice:
            state, text = self._advice
        reading = GpuReading(
            index=self.index,
            uuid=self.uuid,
            state=state,
            monotonic_s=self.read_s,
            state_text=text or self._slices.text,
            xid=xid,
            mig=self._slices.enabled,
            activity_source=self._gpm.source,
            lists_processes=self._processes.are_listed,
            own_namespace=self._session.own_namespace,
            **self._values,
        )
        if self._slices.enabled:
            return (reading, *self._slices.read(now_s, self.index, self.uuid))
        return (reading,)

    def _next_due_s(self, due_s: float, now_s: float, first_s: float, period_s: float) -> float:
        """When to read again what was due at `due_s`, 0 at first: not all GPUs in one tick."""
        if due_s:
            return now_s + period_s
        return now_s + first_s * (1.0 + self.index % STAGGER / STAGGER)

    def close(self) -> None:
        """Give the driver's records back, as far as the driver still answers."""
        with contextlib.suppress(GpuDownError, HandleStaleError, DriverDownError):
            self._gpm.free()
            self._slices.close()

    def _read_tick(self, pcie: Pcie) -> None:
        """Read what is read at every tick."""
        calls = self._calls
        handle = self.handle
        values = self._values
        memory = figures.read_memory(calls, handle, values["name"])
        values["vram_used_bytes"] = memory.used
        values["vram_total_bytes"] = memory.total
        values["vram_reserved_bytes"] = memory.reserved
        values["vram_shared"] = memory.shared
        self._read_busy()
        if memory.shared:
            self._drop_what_unified_memory_lacks()
        self.read_s = time.monotonic()
        figures.read_gauges(calls, handle, figures.TICK, values)
        mask = calls.first_supported(handle, figures.THROTTLE_CALLS)
        values["throttle"] = ()
        if not isinstance(mask, Missing):
            values["throttle"] = throttle_names(mask)
        if self._slices.enabled:
            for metric in GPM_METRICS:
                values[metric.field] = _PER_SLICE
            return
        values.update(self._gpm.read())
        self._read_pcie(pcie)
        for field, rate in (*self._nvlink.items(), *self._pcie.items()):
            if self._has_no_gpm(field):
                values[field] = rate

    def _has_no_gpm(self, field: str) -> bool:
        """Whether this GPU has no GPM metric of a field."""
        value = self._values[field]
        return isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED

    def _read_pcie(self, pcie: Pcie) -> None:
        """Measure PCIe traffic where GPM does not. Each call blocks for 20 ms, so it is made only when asked for."""
        if pcie is Pcie.OFF:
            self._pcie = {}
        elif pcie is Pcie.MEASURE and not self._values["vram_shared"]:
            self._pcie = {}
            for field, counter in _PCIE.items():
                if self._has_no_gpm(field):
                    kib_per_s = self._calls.read("nvmlDeviceGetPcieThroughput", self.handle, counter, key=field)
                    self._pcie[field] = kib_per_s if isinstance(kib_per_s, Missing) else float(kib_per_s * _KIB)

    def _read_busy(self) -> None:
        """Read the shares of time in which kernels ran and memory was accessed: of the whole GPU only."""
        busy: Reading = _PER_SLICE
        memory_busy: Reading = _PER_SLICE
        if not self._slices.enabled:
            rates = self._calls.read("nvmlDeviceGetUtilizationRates", self.handle)
            if isinstance(rates, Missing):
                busy = rates
                memory_busy = rates
            else:
                busy = rates.gpu / 100.0
                memory_busy = rates.memory / 100.0
        self._values["busy_ratio"] = busy
        self._values["memory_busy_ratio"] = memory_busy

    def _drop_implausible(self) -> None:
        """Put a reason in the place of numbers that no GPU has. A limit that was raised is read again first."""
        values = self._values
        if why_impossible(GPU, "power_w", values):
            figures.read_gauges(self._calls, self.handle, figures.POWER_LIMIT, values)
        drop_implausible(values)

    def _drop_what_unified_memory_lacks(self) -> None:
        """Put the reason in the place of figures that GB10 and its kin report, and do not have.

        Their memory utilisation is stuck at 0, and their PCIe link is none.
        """
        if self._values["memory_busy_ratio"] == 0.0:
            self._values["memory_busy_ratio"] = _UNIFIED
        self._values.update(dict.fromkeys(_PCIE_LINK_FIELDS, _UNIFIED))

    def _read_slow(self, now_s: float) -> None:
        """Read slices, processes and what else changes within seconds."""
        calls = self._calls
        handle = self.handle
        values = self._values
        was_sliced = self._slices.enabled
        self._slices.refresh(now_s)
        if self._slices.enabled is not was_sliced:
            self._begin_anew()
        values["processes"] = ()
        if not self._slices.enabled:
            values["processes"] = self._processes.read()
        figures.read_gauges(calls, handle, figures.SLOW, values)
        stamped = self._slow_fields.read(calls, handle)
        values["throttle_s"] = figures.throttle_s(stamped)
        values["memory_temperature_c"] = stamped[figures.MEMORY_TEMPERATURE_FIELD][0]
        self._nvlink = {field: self._rates[field].bytes_per_s(stamped[number]) for field, number in _NVLINK.items()}

    def _read_energy(self, now_s: float) -> None:
        """Read the energy counter right before the tick, whose moment is taken for that of the counter.

        One that cannot be read is tried again at the next tick.
        """
        figures.read_gauges(self._calls, self.handle, figures.ENERGY, self._values)
        self._energy.check(self._values, time.monotonic())
        if not isinstance(self._values["energy_j"], Missing):
            period_s = self._session.timings.energy_s
            self._energy_due_s = self._next_due_s(self._energy_due_s, now_s, _FIRST_ENERGY_S, period_s)

    def _read_links(self) -> None:
        """Read which NVLinks are up, and the error counters of all links."""
        values = self._values
        states: dict[int, bool] = {}
        why: Reading = NOT_SUPPORTED
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            state = self._calls.read("nvmlDeviceGetNvLinkState", self.handle, link, key=f"NVLink {link}")
            if not isinstance(state, Missing):
                states[link] = bool(state)
            elif state.reason is not Reason.NOT_SUPPORTED:
                why = state
        if why is not NOT_SUPPORTED:
            states.clear()  # a link that cannot be read now is not one that is down
        values["nvlinks"] = float(len(states)) if states else why
        values["nvlinks_active"] = float(sum(states.values())) if states else why
        values["nvlinks_down"] = tuple(link for link, is_up in states.items() if not is_up)
        stamped = self._link_fields.read(self._calls, self.handle)
        values["pcie_replays"], values["nvlink_errors"] = figures.link_errors(stamped)
        if not states:
            values["nvlink_errors"] = why

    def _begin_anew(self) -> None:
        """Ask for everything again: with MIG on, other calls work than with MIG off."""
        self._calls.forget()
        self._slow_fields.forget()
        self._minute_fields.forget()
        self._link_fields.forget()
        self._gpm.free()
        self._gpm = Gpm(self._calls, self.handle, self._session.request)

    def _read_minute(self) -> None:
        """Read what seldom changes: name, kind, limits, errors of its memory, and the driver's advice."""
        calls = self._calls
        handle = self.handle
        values = self._values
        name = calls.read("nvmlDeviceGetName", handle)
        if not isinstance(name, Missing):
            values["name"] = name
        self._read_kind()
        figures.read_gauges(calls, handle, figures.MINUTE, values)
        action, _ = self._minute_fields.read(calls, handle)[figures.RECOVERY_ACTION]
        self._advice = (GpuState.OK, "")
        if not isinstance(action, Missing):
            self._advice = figures.RECOVERY.get(int(action), self._advice)

    def _read_kind(self) -> None:
        """Read compute capability, architecture and number of SMs."""
        calls = self._calls
        values = self._values
        answer = calls.read("nvmlDeviceGetCudaComputeCapability", self.handle)
        capability: tuple[int, int] | None = None
        values["compute_capability"] = ""
        if not isinstance(answer, Missing):
            capability = (answer[0], answer[1])
            values["compute_capability"] = f"{answer[0]}.{answer[1]}"
        architecture = calls.read("nvmlDeviceGetArchitecture", self.handle)
        values["architecture"] = 0 if isinstance(architecture, Missing) else int(architecture)
        address = calls.read("nvmlDeviceGetPciInfo", self.handle)
        values["bus_id"] = "" if isinstance(address, Missing) else short_bus_id(str(address.busId))
        self._slot_lanes = slot_lanes(values["bus_id"])
        cores = calls.read("nvmlDeviceGetNumGpuCores", self.handle)
        values["sm_count"] = figures.cores_to_sms(cores, capability)


class Slice:
    """One MIG device. Only memory, processes and part of GPM exist per slice; the rest belongs to the whole GPU."""

    def __init__(self, parent: Any, handle: Any, uuid: str, session: NvmlSession) -> None:
        self.handle = handle
        self.uuid = uuid
        self.is_stale = False
        """Its handle names no slice any more: look for slices again."""
        self._calls = Calls(session.api, session.timings, session.trace)
        self._processes = Processes(self._calls, handle, session.names, session.timings.slow_s)
        self._values: dict[str, Any] = dict.fromkeys(GPU_FIGURES, WHOLE_GPU)
        self._instance = ""
        self._gpm: Gpm | None = None
        instance = self._calls.read("nvmlDeviceGetGpuInstanceId", handle)
        if not isinstance(instance, Missing):
            self._instance = str(instance)
            self._gpm = Gpm(self._calls, handle, session.request, slice_of=(parent, instance))

    def refresh(self, now_s: float) -> None:
        """Read what changes slowly: name, size, processes."""
        calls = self._calls
        values = self._values
        calls.begin(now_s)
        with contextlib.suppress(HandleStaleError):
            name = calls.read("nvmlDeviceGetName", self.handle)
            values["name"] = "" if isinstance(name, Missing) else name
            profile = _PROFILE.search(values["name"])
            values["mig_profile"] = ""
            if profile:
                values["mig_profile"] = profile.group(1)
            size = calls.read("nvmlDeviceGetAttributes_v2", self.handle)
            values["sm_count"] = size
            if not isinstance(size, Missing):
                values["sm_count"] = float(size.multiprocessorCount)
            values["processes"] = self._processes.read()

    def read(self, now_s: float, index: int, parent_uuid: str) -> GpuReading | None:
        """The slice under its GPU's index; None where it is not there any more."""
        self._calls.begin(now_s)
        try:
            return self._read(now_s, index, parent_uuid)
        except HandleStaleError:
            self.is_stale = True
            return None

    def _read(self, now_s: float, index: int, parent_uuid: str) -> GpuReading:
        """The slice as it is now. Raises HandleStaleError."""
        values = self._values
        memory = figures.read_memory(self._calls, self.handle, "")
        values.update(vram_used_bytes=memory.used, vram_total_bytes=memory.total, vram_reserved_bytes=memory.reserved)
        if self._gpm is not None:
            values.update(self._gpm.read())
        drop_implausible(values)
        state, text = self._calls.badge()
        return GpuReading(
            index=index,
            uuid=self.uuid,
            state=state,
            monotonic_s=now_s,
            state_text=text,
            parent_uuid=parent_uuid,
            mig_instance=self._instance,
            activity_source=self._gpm.source if self._gpm is not None else "",
            **values,
        )

    def close(self) -> None:
        """Give the driver's records back."""
        if self._gpm is not None:
            self._gpm.free()


class Slices:
    """The slices of one GPU. They come and go while the machine runs, and their handles are used again."""

    def __init__(self, calls: Calls, handle: Any, session: NvmlSession) -> None:
        self.enabled = False
        """MIG is on."""
        self.text = ""
        """Text about its slices in the row of the GPU; empty while they can be read."""
        self.changed = False
        """A slice went away since the last refresh."""
        self._calls = calls
        self._handle = handle
        self._session = session
        self._slices: dict[str, Slice] = {}

    def refresh(self, now_s: float) -> None:
        """Look for slices again, and read what changes slowly of each."""
        mode = self._calls.read("nvmlDeviceGetMigMode", self._handle)
        if not isinstance(mode, Missing):
            self.enabled = bool(mode[0])
        elif mode.reason is Reason.NOT_SUPPORTED:
            self.enabled = False
        self.changed = False
        self.text = ""
        last_slices = self._slices
        self._slices = self._find_slices() if self.enabled else {}
        for uuid, part in last_slices.items():
            if self._slices.get(uuid) is not part:
                part.close()
        for part in self._slices.values():
            part.refresh(now_s)

    def _find_slices(self) -> dict[str, Slice]:
        """The slices that the driver lists now, by UUID; those that are there already are the same objects."""
        read = self._calls.read
        most = read("nvmlDeviceGetMaxMigDeviceCount", self._handle)
        if isinstance(most, Missing):
            return {}
        slices: dict[str, Slice] = {}
        for number in range(most):
            key = f"MIG slice {number}"
            handle = read("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, number, key=key)
            if isinstance(handle, Missing):
                uuid = handle
            else:
                uuid = read("nvmlDeviceGetUUID", handle, key=f"{key} UUID")
            if isinstance(uuid, Missing):
                if uuid.reason is Reason.NO_PERMISSION:
                    self.text = _SLICES_REFUSED
                continue
            part = self._slices.get(uuid)
            if part is None or part.is_stale:
                part = Slice(self._handle, handle, uuid, self._session)
            slices[uuid] = part
        return slices

    def read(self, now_s: float, index: int, parent_uuid: str) -> tuple[GpuReading, ...]:
        """A reading per slice; one whose handle went stale is left out until the next refresh."""
        readings = [part.read(now_s, index, parent_uuid) for part in self._slices.values()]
        self.changed = any(part.is_stale for part in self._slices.values())
        return tuple(reading for reading in readings if reading is not None)

    def close(self) -> None:
        """Give the driver's records back."""
        for part in self._slices.values():
            part.close()


class Processes:
    """The processes on one device."""

    def __init__(self, calls: Calls, handle: Any, names: ProcessNames, window_s: float) -> None:
        self._calls = calls
        self._handle = handle
        self._names = names
        self._window_s = window_s
        self.are_listed = True
        """The driver gives the list of those that compute."""
        self._last_lists: dict[str, tuple[float, Any]] = {}
        """Kind -> when the driver last gave its list of processes (monotonic), and that list."""

    def read(self) -> tuple[GpuProcess, ...]:
        """All processes, biggest first; the SM share is the newest sample of the last `window_s`."""
        processes = self._listed_processes()
        if not processes:
            return ()
        shares = _sm_shares(self._calls, self._handle, self._window_s)
        rows = []
        for pid, (kind, vram) in list(processes.items())[:_MOST_PROCESSES]:
            share: Reading = shares if isinstance(shares, Missing) else shares.get(pid, _NO_SAMPLE)
            facts = self._names.of(pid, self._calls.now_s)
            rows.append(GpuProcess(pid, vram_bytes=vram, sm_ratio=share, type=kind, **facts._asdict()))
        rows.sort(key=largest_first)
        return tuple(rows)

    def _listed_processes(self) -> dict[int, tuple[str, Reading]]:
        """Pid -> type of the process by the first list that has it, and its memory by the first list that tells it."""
        processes: dict[int, tuple[str, Reading]] = {}
        for kind in _TYPES:
            for record in self._records(kind):
                vram: Reading = float(record.usedGpuMemory) if record.usedGpuMemory is not None else NOT_SUPPORTED
                known_type, known_vram = processes.get(record.pid, (_TYPES[kind], NOT_SUPPORTED))
                if isinstance(known_vram, Missing):
                    processes[record.pid] = (known_type, vram)
        return processes

    def _records(self, kind: str) -> Any:
        """The driver's list. A call that fails says nothing about the processes: the last list stands for a while."""
        records = self._calls.first_supported(self._handle, _LIST_CALLS[kind])
        now_s = self._calls.now_s
        if kind == _COMPUTE:
            self.are_listed = not isinstance(records, Missing) or records.reason is Reason.ERROR
        if not isinstance(records, Missing):
            self._last_lists[kind] = (now_s, records)
            return records
        listed_s, last_records = self._last_lists.get(kind, (0.0, ()))
        if records.reason is Reason.ERROR and now_s - listed_s <= _LIST_STANDS_S:
            return last_records
        return ()


def _sm_shares(calls: Calls, handle: Any, window_s: float) -> dict[int, float] | Missing:
    """Pid -> SM share, or why there is none.

    The driver's list also holds processes that are gone and values above 100%: both are noise.
    """
    since_us = int((time.time() - window_s) * 1e6)
    samples = calls.read("nvmlDeviceGetProcessUtilization", handle, since_us)
    if isinstance(samples, Missing):
        # NVML fails where no process has a sample: the call itself works.
        return {} if samples.reason is Reason.ERROR else samples
    newest: dict[int, tuple[int, float]] = {}
    """Pid -> time stamp and share of its newest sample."""
    for sample in samples:
        last_us, _ = newest.get(sample.pid, (since_us, 0.0))
        if sample.smUtil <= 100 and sample.timeStamp > last_us:
            newest[sample.pid] = (sample.timeStamp, sample.smUtil / 100.0)
    return {pid: share for pid, (_, share) in newest.items()}
