"""All GPUs of the machine: found, read one by one so that a bad one costs only its own row, looked for again."""

from __future__ import annotations

from typing import Any

import msgspec
import pynvml

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.nvml.calls import DOWN, DRIVER_DOWN, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.nvml.device import Gpu
from gpumon.sources.nvml.gauges import FIGURES
from gpumon.sources.nvml.gpm import Request
from gpumon.sources.nvml.processes import Names
from gpumon.sources.nvml.session import Session
from gpumon.sources.nvml.wire import Timings
from gpumon.sources.nvml.xid import XidWatch

UNPLUGGED = (GpuState.LOST, "the driver does not list it any more: unplugged or removed")
_UNOPENED: dict[int, tuple[GpuState, str]] = {
    **DOWN,
    pynvml.NVML_ERROR_NO_PERMISSION: (
        GpuState.NO_PERMISSION,
        "not open to you: check the permissions of its /dev/nvidia* node, or the container's device list",
    ),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: (GpuState.ERROR, "its external power cable is not attached"),
    pynvml.NVML_ERROR_IRQ_ISSUE: (GpuState.ERROR, "the kernel has trouble with its interrupts"),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: (
        GpuState.ERROR,
        "blocked by the operating system: in a container, pass its /dev/nvidia* node",
    ),
}
_REASONS = {GpuState.LOST: Reason.LOST, GpuState.NO_PERMISSION: Reason.NO_PERMISSION}


class _Down(msgspec.Struct, frozen=True):
    """A GPU that can not be read: what its row says, and since when."""

    index: int
    uuid: str
    name: str
    state: GpuState
    text: str
    since_s: float

    def reading(self, watch: XidWatch) -> GpuReading:
        missing = Missing(_REASONS.get(self.state, Reason.ERROR), self.text)
        figures: dict[str, Any] = dict.fromkeys(FIGURES, missing)
        return GpuReading(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            state=self.state,
            monotonic_s=self.since_s,
            state_text=self.text,
            xid=watch.of(self.uuid),
            **figures,
        )


class Fleet:
    """The GPUs of an initialised driver. A GPU that can not be had at all goes by the uuid `index:N`."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._session = Session(timings, Request(), Names())
        self._xid = XidWatch()
        self._gpus: dict[str, Gpu] = {}
        self._down: dict[str, _Down] = {}
        self._count = -1
        self._again = True
        self._probe_due_s = 0.0

    def read(self, now_s: float) -> tuple[GpuReading, ...]:
        """All rows in the order of their index. Raises DriverDownError where the driver as a whole is gone."""
        count = self._count_devices()
        if self._again or count != self._count or (self._down and now_s >= self._probe_due_s):
            self._find(count, now_s)
        rows: list[GpuReading] = []
        for gpu in list(self._gpus.values()):
            rows += self._read_one(gpu, now_s)
        rows += [down.reading(self._xid) for down in self._down.values()]
        rows.sort(key=lambda row: row.index)
        return tuple(rows)

    def _read_one(self, gpu: Gpu, now_s: float) -> tuple[GpuReading, ...]:
        try:
            rows = gpu.read(now_s, self._xid.of(gpu.uuid))
            self._down.pop(gpu.uuid, None)
            return rows
        except GpuDownError as down:
            self._give_up(gpu, (down.state, down.text), now_s)
        except HandleStaleError:
            self._give_up(gpu, (GpuState.ERROR, "its handle became invalid: looking for it again"), now_s)
            self._again = True
        return ()

    def _give_up(self, gpu: Gpu, why: tuple[GpuState, str], now_s: float) -> None:
        """A row that was down before keeps its first moment: a probe that failed again is no news."""
        del self._gpus[gpu.uuid]
        gpu.close()
        known = self._down.get(gpu.uuid)
        since_s = known.since_s if known else gpu.read_s or now_s
        name = gpu.name or (known.name if known else "")
        self._down[gpu.uuid] = _Down(gpu.index, gpu.uuid, name, why[0], why[1], since_s)

    def _find(self, count: int, now_s: float) -> None:
        """Match what the driver lists now with what is known; a healthy GPU keeps its state and its samples."""
        self._again, self._count = False, count
        self._probe_due_s = now_s + self._timings.reprobe_s
        listed: set[str] = set()
        for index in range(count):
            listed.add(self._open(index, now_s))
        for gpu in [gpu for uuid, gpu in self._gpus.items() if uuid not in listed]:
            self._give_up(gpu, UNPLUGGED, now_s)
        self._xid.watch({uuid: gpu.handle for uuid, gpu in self._gpus.items()})

    def _open(self, index: int, now_s: float) -> str:
        """Take the GPU at `index` in; gives its uuid."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        except (pynvml.NVMLError, ValueError) as error:
            return self._not_opened(index, getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN), now_s)
        self._down.pop(f"index:{index}", None)
        gpu = self._gpus.get(uuid)
        if gpu is None:
            self._gpus[uuid] = Gpu(index, handle, uuid, self._session)
        else:
            gpu.index = index
        return uuid

    def _not_opened(self, index: int, code: int, now_s: float) -> str:
        if code in DRIVER_DOWN:
            raise DriverDownError(code)
        why = _UNOPENED.get(code, (GpuState.ERROR, f"can not be opened (NVML code {code})"))
        known = next((down for down in self._down.values() if down.index == index), None)
        gpu = next((gpu for gpu in self._gpus.values() if gpu.index == index), None)
        if gpu is not None:
            self._give_up(gpu, why, now_s)
            return gpu.uuid
        uuid = known.uuid if known else f"index:{index}"
        name, since_s = (known.name, known.since_s) if known else ("", now_s)
        self._down[uuid] = _Down(index, uuid, name, why[0], why[1], since_s)
        return uuid

    def _count_devices(self) -> int:
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            if error.value in DRIVER_DOWN:
                raise DriverDownError(error.value) from error
            return max(0, self._count)
