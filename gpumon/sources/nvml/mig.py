"""MIG: the slices of one GPU, each a reading of its own."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.nvml.calls import Calls, HandleStaleError
from gpumon.sources.nvml.gauges import FIGURES
from gpumon.sources.nvml.gpm import WHOLE_GPU, Gpm
from gpumon.sources.nvml.memory import read_memory
from gpumon.sources.nvml.processes import Processes, avoid_wrong_records
from gpumon.sources.nvml.session import Session

_PROFILE = re.compile(r"\bMIG (\S+)")
_REFUSED = "its MIG slices are not open to you: in a container, pass the /dev/nvidia-caps device nodes"


class Slice:
    """One MIG device. Only memory, processes and part of GPM exist per slice; the rest belongs to the whole GPU."""

    def __init__(self, parent: Any, handle: Any, uuid: str, session: Session) -> None:
        self.handle = handle
        self.uuid = uuid
        self.gone = False
        """Its handle went stale: look for slices again."""
        self._calls = Calls(session.timings)
        avoid_wrong_records(self._calls)
        self._processes = Processes(self._calls, handle, session.names, session.timings.slow_s)
        self._values: dict[str, Any] = dict.fromkeys(FIGURES, WHOLE_GPU)
        instance = self._calls.read("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetGpuInstanceId", handle)
        place = None if isinstance(instance, Missing) else (parent, instance)
        self._instance = "" if isinstance(instance, Missing) else str(instance)
        self._gpm = Gpm(self._calls, handle, session.request, place) if place else None

    def refresh(self, now_s: float) -> None:
        """What changes slowly: name, size, processes."""
        self._calls.now_s = now_s
        with contextlib.suppress(HandleStaleError):
            self._refresh()

    def _refresh(self) -> None:
        calls, values = self._calls, self._values
        name = calls.read("nvmlDeviceGetName", "nvmlDeviceGetName", self.handle)
        values["name"] = "" if isinstance(name, Missing) else name
        found = _PROFILE.search(values["name"])
        values["mig_profile"] = found.group(1) if found else ""
        attributes = calls.read("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes_v2", self.handle)
        values["sm_count"] = attributes if isinstance(attributes, Missing) else float(attributes.multiprocessorCount)
        values["processes"] = self._processes.read()

    def read(self, now_s: float, index: int, parent_uuid: str) -> GpuReading | None:
        """The slice under its GPU's index; None where it is not there any more."""
        self._calls.now_s = now_s
        try:
            return self._read(now_s, index, parent_uuid)
        except HandleStaleError:
            self.gone = True
            return None

    def _read(self, now_s: float, index: int, parent_uuid: str) -> GpuReading:
        values = self._values
        memory = read_memory(self._calls, self.handle, "")
        values.update(vram_used_bytes=memory.used, vram_total_bytes=memory.total, vram_reserved_bytes=memory.reserved)
        if self._gpm is not None:
            values.update(self._gpm.read(now_s))
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

    def __init__(self, calls: Calls, handle: Any, session: Session) -> None:
        self.enabled = False
        self.text = ""
        self.changed = False
        """A slice went away since the last refresh."""
        self._calls = calls
        self._handle = handle
        self._session = session
        self._slices: dict[str, Slice] = {}

    def refresh(self, now_s: float) -> None:
        """Look for slices again, and read what changes slowly of each."""
        mode = self._calls.read("nvmlDeviceGetMigMode", "nvmlDeviceGetMigMode", self._handle)
        self.enabled = not isinstance(mode, Missing) and bool(mode[0])
        self.changed, self.text = False, ""
        before, self._slices = self._slices, self._find() if self.enabled else {}
        for uuid, part in before.items():
            if self._slices.get(uuid) is not part:
                part.close()
        for part in self._slices.values():
            part.refresh(now_s)

    def _find(self) -> dict[str, Slice]:
        read = self._calls.read
        most = read("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMaxMigDeviceCount", self._handle)
        found = {}
        for i in range(0 if isinstance(most, Missing) else most):
            key = f"MIG slice {i}"
            handle = read(key, "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, i)
            uuid = handle if isinstance(handle, Missing) else read(f"{key} UUID", "nvmlDeviceGetUUID", handle)
            if isinstance(uuid, Missing):
                self.text = _REFUSED if uuid.reason is Reason.NO_PERMISSION else self.text
                continue
            known = self._slices.get(uuid)
            found[uuid] = known if known and not known.gone else Slice(self._handle, handle, uuid, self._session)
        return found

    def read(self, now_s: float, index: int, parent_uuid: str) -> tuple[GpuReading, ...]:
        """A reading per slice; one whose handle went stale is left out until the next refresh."""
        readings = [part.read(now_s, index, parent_uuid) for part in self._slices.values()]
        self.changed = any(part.gone for part in self._slices.values())
        return tuple(reading for reading in readings if reading is not None)

    def close(self) -> None:
        """Give the driver's records back."""
        for part in self._slices.values():
            part.close()
