"""One GPU as the worker reads it, tier by tier."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from gpumon.readings.frame import GpuReading, GpuState, XidEvent
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sources.nvml import fields, gauges
from gpumon.sources.nvml.calls import Calls, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.nvml.gpm import METRICS, Gpm
from gpumon.sources.nvml.memory import read_memory
from gpumon.sources.nvml.mig import Slices
from gpumon.sources.nvml.processes import Processes, avoid_wrong_records
from gpumon.sources.nvml.session import Session

STAGGER = 4
"""The slow tiers of neighbouring GPUs fall on this many different ticks."""
_PER_SLICE = Missing(Reason.UNDER_MIG, "exists per slice only")
_UNIFIED = Missing(Reason.NOT_SUPPORTED, "this GPU uses the host's memory and has no such figure")
_LINK = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
_NVLINK = {"nvlink_tx_bytes_per_s": fields.NVLINK_TX_KIB, "nvlink_rx_bytes_per_s": fields.NVLINK_RX_KIB}


class Gpu:
    """One physical GPU. Its reads raise GpuDownError, HandleStaleError or DriverDownError where nothing can be read."""

    def __init__(self, index: int, handle: Any, uuid: str, session: Session) -> None:
        self.index = index
        self.handle = handle
        self.uuid = uuid
        self.read_s = 0.0
        """When its energy counter was last read, on the monotonic clock."""
        self._session = session
        self._calls = Calls(session.timings)
        avoid_wrong_records(self._calls)
        self._gpm = Gpm(self._calls, handle, session.request)
        self._slices = Slices(self._calls, handle, session)
        self._processes = Processes(self._calls, handle, session.names, session.timings.slow_s)
        self._values: dict[str, Any] = {"name": ""}
        self._slow_fields = fields.Batch(fields.SLOW)
        self._minute_fields = fields.Batch(fields.MINUTE)
        self._rates = {field: fields.CounterRate() for field in _NVLINK}
        self._nvlink: dict[str, Reading] = {}
        self._throttle: dict[int, tuple[str, ...]] = {}
        self._advice = (GpuState.OK, "")
        self._slow_due_s = 0.0
        self._minute_due_s = 0.0

    @property
    def name(self) -> str:
        """The driver's name of it; empty until it was read."""
        return str(self._values["name"])

    def read(self, now_s: float, xid: tuple[XidEvent, ...]) -> tuple[GpuReading, ...]:
        """This GPU, then its MIG slices; reads all tiers that are due."""
        self._calls.now_s = now_s
        timings = self._session.timings
        if now_s >= self._minute_due_s:
            self._read_minute()
            self._minute_due_s = now_s + timings.minute_s
        if now_s >= self._slow_due_s or self._slices.changed:
            self._read_slow(now_s)
            spread = 0.0 if self._slow_due_s else self.index % STAGGER / STAGGER
            self._slow_due_s = now_s + timings.slow_s * (1.0 + spread)
        self._read_tick(now_s)
        badge = self._calls.badge()
        state, text = self._advice if badge[0] is GpuState.OK and self._advice[1] else badge
        own = GpuReading(
            index=self.index,
            uuid=self.uuid,
            state=state,
            monotonic_s=self.read_s,
            state_text=text or self._slices.text,
            xid=xid,
            mig=self._slices.enabled,
            activity_source=self._gpm.source,
            **self._values,
        )
        return (own, *self._slices.read(now_s, self.index, self.uuid)) if self._slices.enabled else (own,)

    def close(self) -> None:
        """Give the driver's records back, as far as the driver still answers."""
        with contextlib.suppress(GpuDownError, HandleStaleError, DriverDownError):
            self._gpm.free()
            self._slices.close()

    def _read_tick(self, now_s: float) -> None:
        calls, handle, values = self._calls, self.handle, self._values
        memory = read_memory(calls, handle, values["name"])
        values["vram_used_bytes"], values["vram_total_bytes"] = memory.used, memory.total
        values["vram_reserved_bytes"], values["vram_shared"] = memory.reserved, memory.shared
        self._read_busy()
        if memory.shared:
            self._drop_what_unified_memory_lacks()
        # Right beside the energy counter, whose difference over time is the power: what was read of this GPU and of
        # those before it took milliseconds, and not the same at every tick.
        self.read_s = time.monotonic()
        gauges.read_gauges(calls, handle, gauges.TICK, values)
        mask = calls.first(handle, gauges.THROTTLE_CALLS)
        values["throttle"] = () if isinstance(mask, Missing) else self._throttle_names(mask)
        if self._slices.enabled:
            for metric in METRICS:
                values[metric.field] = _PER_SLICE
            return
        values.update(self._gpm.read(now_s))
        for field, rate in self._nvlink.items():
            if isinstance(values[field], Missing) and values[field].reason is Reason.NOT_SUPPORTED:
                values[field] = rate

    def _read_busy(self) -> None:
        busy: Reading = _PER_SLICE
        memory_busy: Reading = _PER_SLICE
        if not self._slices.enabled:
            rates = self._calls.read("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetUtilizationRates", self.handle)
            if isinstance(rates, Missing):
                busy = memory_busy = rates
            else:
                busy = rates.gpu / 100.0 if rates.gpu <= 100 else gauges.INVALID
                memory_busy = rates.memory / 100.0 if rates.memory <= 100 else gauges.INVALID
        self._values["busy_ratio"], self._values["memory_busy_ratio"] = busy, memory_busy

    def _drop_what_unified_memory_lacks(self) -> None:
        """GB10 and its kin report a memory utilisation stuck at 0 and a PCIe link that is none."""
        if self._values["memory_busy_ratio"] == 0.0:
            self._values["memory_busy_ratio"] = _UNIFIED
        self._values.update(dict.fromkeys(_LINK, _UNIFIED))

    def _throttle_names(self, mask: int) -> tuple[str, ...]:
        names = self._throttle.get(mask)
        if names is None:
            names = self._throttle[mask] = gauges.throttle_names(mask)
        return names

    def _read_slow(self, now_s: float) -> None:
        calls, handle, values = self._calls, self.handle, self._values
        was_sliced = self._slices.enabled
        self._slices.refresh(now_s)
        if self._slices.enabled is not was_sliced:
            self._begin_anew()
        values["processes"] = () if self._slices.enabled else self._processes.read()
        gauges.read_gauges(calls, handle, gauges.SLOW, values)
        found = self._slow_fields.read(calls, handle)
        values["throttle_s"] = fields.throttle_s(found)
        values["memory_temperature_c"] = found[fields.MEMORY_TEMPERATURE][0]
        self._nvlink = {field: self._rates[field].bytes_per_s(found[number]) for field, number in _NVLINK.items()}

    def _begin_anew(self) -> None:
        """With MIG on or off other calls work than before."""
        self._calls.forget()
        self._slow_fields.forget()
        self._minute_fields.forget()
        avoid_wrong_records(self._calls)
        self._gpm.free()
        self._gpm = Gpm(self._calls, self.handle, self._session.request)

    def _read_minute(self) -> None:
        calls, handle, values = self._calls, self.handle, self._values
        name = calls.read("nvmlDeviceGetName", "nvmlDeviceGetName", handle)
        values["name"] = values["name"] if isinstance(name, Missing) else name
        capability = calls.read("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetCudaComputeCapability", handle)
        known = None if isinstance(capability, Missing) else (capability[0], capability[1])
        values["compute_capability"] = f"{known[0]}.{known[1]}" if known else ""
        architecture = calls.read("nvmlDeviceGetArchitecture", "nvmlDeviceGetArchitecture", handle)
        values["architecture"] = 0 if isinstance(architecture, Missing) else int(architecture)
        cores = calls.read("nvmlDeviceGetNumGpuCores", "nvmlDeviceGetNumGpuCores", handle)
        values["sm_count"] = gauges.cores_to_sms(cores, known)
        gauges.read_gauges(calls, handle, gauges.MINUTE, values)
        rows = calls.read("nvmlDeviceGetRemappedRows", "nvmlDeviceGetRemappedRows", handle)
        pending, failed = (rows, rows) if isinstance(rows, Missing) else (float(rows[2]), float(rows[3]))
        values["remap_pending"], values["remap_failed"] = pending, failed
        action = self._minute_fields.read(calls, handle)[fields.RECOVERY_ACTION][0]
        self._advice = fields.RECOVERY.get(0 if isinstance(action, Missing) else int(action), (GpuState.OK, ""))
