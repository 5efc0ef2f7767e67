"""All GPUs of the machine, each read in a thread of its own, so that one that hangs or fails costs only its own row."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pynvml

from gpumon.readings.frame import Fault, GpuReading, GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.sources.nvml import figures
from gpumon.sources.nvml.calls import DOWN, DRIVER_DOWN, DriverDownError, GpuDownError, HandleStaleError
from gpumon.sources.nvml.gpm import Request
from gpumon.sources.nvml.gpu import Gpu, Session
from gpumon.sources.nvml.processes import Names
from gpumon.sources.nvml.wire import Timings
from gpumon.sources.nvml.xid import XidWatch

PATIENCE_S = 0.2
"""How long one tick waits for one GPU, while the others wait for their turn."""
MOST_WAIT_S = 0.5
"""The same for all of them together; those that answer later are in the next report."""
HANGS_S = 1.0
"""A call that takes longer is named as a fault."""
OPENS_S = 30.0
"""The same while a GPU is opened for the first time."""
SOURCE = "nvml"
MOST_NAMED = 3
"""Calls that one fault names."""
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
        blank: dict[str, Any] = dict.fromkeys(figures.FIGURES, missing)
        return GpuReading(
            index=self.index,
            uuid=self.uuid,
            name=self.name,
            state=self.state,
            monotonic_s=self.since_s,
            state_text=self.text,
            xid=watch.of(self.uuid),
            **blank,
        )


class _Slot:
    """The GPU at one index, and the thread that reads it. Between `ask` and `answered` only that thread touches it."""

    def __init__(self, index: int, timings: Timings, xid: XidWatch) -> None:
        self.index = index
        self.rows: tuple[GpuReading, ...] = ()
        """As they were read last."""
        self.gpu: Gpu | None = None
        self.down: _Down | None = None
        self.error: Exception | None = None
        """Ends the worker's session with the driver, or shows a fault of gpumon's own."""
        self.stale = False
        """Its handle does not name its device any more: all are looked for again."""
        self.asked: tuple[float, float] | None = None
        """When the question was put that is not answered yet: monotonic, and Unix time."""
        self.troubles: dict[str, tuple[str, float]] = {}
        self._timings = timings
        self._xid = xid
        self._trace = [""]
        self._again = True
        self._ended = False
        self._probe_due_s = 0.0
        self._question = threading.Semaphore(0)
        self._answer = threading.Event()
        self._now_s = 0.0
        threading.Thread(target=self._run, name=f"gpu {index}", daemon=True).start()

    def look_again(self) -> None:
        """Ask the driver anew which GPU stands at this index, at the next question."""
        self._again = True

    def end(self) -> None:
        """End its thread, once it is not reading."""
        self._ended = True
        self._question.release()

    def ask(self, now_s: float) -> None:
        """Let it be read, unless it is still being read."""
        if self.asked is None:
            self._now_s, self.asked = now_s, (now_s, time.time())
            self._answer.clear()
            self._question.release()

    def answered(self, patience_s: float) -> bool:
        """Whether it is read, after waiting so long for it."""
        if self.asked is not None and self._answer.wait(patience_s):
            self.asked = None
        return self.asked is None

    def opening(self, now_s: float) -> GpuReading:
        """The row of a GPU that was never read: what the driver does for it."""
        blank: dict[str, Any] = dict.fromkeys(figures.FIGURES, WARMING_UP)
        text = f"the driver is opening it ({self._trace[0]})"
        return GpuReading(self.index, f"index:{self.index}", "", GpuState.INITIALISING, now_s, text, **blank)

    def faults(self, now_s: float) -> list[Fault]:
        """What does not answer, or fails and worked before; each with the moment when that began."""
        found = []
        if self.asked is not None and now_s - self.asked[0] >= (HANGS_S if self.rows else OPENS_S):
            text = f"GPU {self.index}: {self._trace[0]} does not return: its row is old until it does"
            found.append(Fault(SOURCE, text, self.asked[1]))
        if self.troubles:
            names = ", ".join(sorted(self.troubles)[:MOST_NAMED]) + (" ..." if len(self.troubles) > MOST_NAMED else "")
            why = next(iter(self.troubles.values()))[0]
            begun_s = min(since_s for _, since_s in self.troubles.values())
            found.append(Fault(SOURCE, f"GPU {self.index}: {names} worked before and fails now: {why}", begun_s))
        return found

    def _run(self) -> None:
        while True:
            self._question.acquire()
            if self._ended:
                return
            try:
                self._read(self._now_s)
            except Exception as error:  # raised where the rows are asked for
                self.error = error
            self._answer.set()

    def _read(self, now_s: float) -> None:
        if self._again or (self.gpu is None and now_s >= self._probe_due_s):
            self._open(now_s)
        if self.gpu is not None:
            try:
                self.rows = self.gpu.read(now_s, self._xid.of(self.gpu.uuid))
                self.troubles = self.gpu.troubles()
                self.down = None
                return
            except GpuDownError as down:
                self._give_up((down.state, down.text), now_s)
            except HandleStaleError:
                self._give_up((GpuState.ERROR, "its handle became invalid: looking for it again"), now_s)
                self.stale = True
        if self.down is not None:
            self.rows = (self.down.reading(self._xid),)

    def _open(self, now_s: float) -> None:
        self._again, self.stale, self._probe_due_s = False, False, now_s + self._timings.reprobe_s
        self._trace[0] = "nvmlDeviceGetHandleByIndex"
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            self._trace[0] = "nvmlDeviceGetUUID"
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        except (pynvml.NVMLError, ValueError) as error:
            code = getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)
            if code in DRIVER_DOWN:
                raise DriverDownError(code) from error
            self._give_up(_UNOPENED.get(code, (GpuState.ERROR, f"can not be opened (NVML code {code})")), now_s)
            return
        if self.gpu is None or self.gpu.uuid != uuid:
            if self.gpu is not None:
                self.gpu.close()
            self.down = self.down if self.down is not None and self.down.uuid == uuid else None
            self.gpu = Gpu(self.index, handle, uuid, Session(self._timings, Request(), Names(), self._trace))

    def _give_up(self, why: tuple[GpuState, str], now_s: float) -> None:
        """A row that was down before keeps its first moment: a probe that failed again is no news."""
        gpu, known, self.gpu, self.troubles = self.gpu, self.down, None, {}
        if gpu is not None:
            gpu.close()
        uuid = gpu.uuid if gpu is not None else known.uuid if known is not None else f"index:{self.index}"
        name = (gpu.name if gpu is not None else "") or (known.name if known is not None else "")
        since_s = known.since_s if known is not None else (gpu.read_s if gpu is not None else 0.0) or now_s
        self.down = _Down(self.index, uuid, name, why[0], why[1], since_s)


class Fleet:
    """The GPUs of an initialised driver. A GPU that can not be had at all goes by the uuid `index:N`."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._xid = XidWatch()
        self._slots: list[_Slot] = []
        self._listed: dict[str, GpuReading] = {}
        """The rows of the last report by uuid, slices left out."""
        self._gone: dict[str, _Down] = {}
        """GPUs that the driver does not list any more, by uuid."""
        self.faults: tuple[Fault, ...] = ()
        """What is wrong with single GPUs right now."""
        self.silent_s = 0.0
        """For how long calls have hung on every GPU that is not down; 0 while one answers."""

    def read(self, now_s: float) -> tuple[GpuReading, ...]:
        """All rows in the order of their index. Raises DriverDownError where the driver as a whole is gone."""
        count, first = self._count_devices(), not self._slots
        enumerates = count != len(self._slots) or any(slot.stale for slot in self._slots)
        if enumerates:
            for slot in self._slots[count:]:
                slot.end()
            more = (_Slot(index, self._timings, self._xid) for index in range(len(self._slots), count))
            self._slots = [*self._slots[:count], *more]
            for slot in self._slots:
                slot.look_again()
        end_s = time.monotonic() + (self._timings.open_s if first else MOST_WAIT_S)
        for slot in self._slots:
            hung = not slot.answered(0.0)
            slot.ask(now_s)
            left_s = max(0.0, end_s - time.monotonic())
            slot.answered(0.0 if hung else left_s if first else min(PATIENCE_S, left_s))
        if error := next((slot.error for slot in self._slots if slot.error is not None), None):
            for slot in self._slots:
                slot.end()
            raise error
        rows = [row for slot in self._slots for row in slot.rows or (slot.opening(now_s),)]
        listed = {row.uuid: row for row in rows if not row.parent_uuid}
        for uuid, row in self._listed.items() if enumerates else ():
            if uuid not in listed and not uuid.startswith("index:"):
                self._gone[uuid] = _Down(row.index, uuid, row.name, *UNPLUGGED, row.monotonic_s)
        for uuid in listed:
            self._gone.pop(uuid, None)
        self._listed = listed
        self._xid.watch({slot.gpu.uuid: slot.gpu.handle for slot in self._slots if slot.gpu is not None})
        asked_s = [slot.asked[0] for slot in self._slots if slot.asked is not None]
        silent = bool(asked_s) and all(slot.asked is not None or slot.gpu is None for slot in self._slots)
        self.silent_s = time.monotonic() - max(asked_s) if silent else 0.0
        self.faults = tuple(fault for slot in self._slots for fault in slot.faults(now_s))
        rows += [down.reading(self._xid) for down in self._gone.values()]
        return tuple(sorted(rows, key=lambda row: row.index))

    def _count_devices(self) -> int:
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            if error.value in DRIVER_DOWN:
                raise DriverDownError(error.value) from error
            return len(self._slots)
