"""Waits for Xid error events of all GPUs in a thread of its own."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Any

import pynvml

from gpumon.readings.frame import XidEvent
from gpumon.sources.nvml.calls import DRIVER_DOWN

MOST = 16
"""Events kept per GPU, newest last."""
WAIT_MS = 5000
LONGEST_RETRY_S = 60.0


class XidWatch:
    """Events by UUID since the watch began: the driver keeps no history. Safe to read from another thread."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._events: dict[str, tuple[XidEvent, ...]] = {}
        self._set: Any = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def watch(self, handles: dict[str, Any]) -> None:
        """Register the GPUs (UUID -> handle) that are not watched yet; starts the thread where there is something."""
        with self._lock:
            known = {_address(handle) for handle in self._handles.values()}
            added = [handle for handle in handles.values() if _address(handle) not in known]
            self._handles = dict(handles)
            if self._set is None:
                self._set = self._new_set()
            elif added:
                self._register(self._set, added)
        if self._set is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="xid", daemon=True)
            self._thread.start()

    def of(self, uuid: str) -> tuple[XidEvent, ...]:
        """The GPU's events so far."""
        return self._events.get(uuid, ())

    def _new_set(self) -> Any:
        try:
            event_set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return None
        return event_set if self._register(event_set, list(self._handles.values())) else None

    @staticmethod
    def _register(event_set: Any, handles: list[Any]) -> bool:
        """Register what can be registered; a GPU that refuses (lost, vGPU) is left out."""
        return sum(_registered(event_set, handle) for handle in handles) > 0

    def _run(self) -> None:
        failures = 0
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    failures = 0
                    continue
                if error.value in DRIVER_DOWN:
                    return
                failures += 1
                time.sleep(min(LONGEST_RETRY_S, failures))
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                    self._leave_lost_out()
                continue
            failures = 0
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._note(event)

    def _leave_lost_out(self) -> None:
        """One lost GPU makes every wait fail: go on with a set of the others."""
        with self._lock:
            fresh = self._new_set()
            if fresh is None:
                return
            old, self._set = self._set, fresh
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(old)

    def _note(self, event: Any) -> None:
        for uuid, handle in list(self._handles.items()):
            if _address(handle) == _address(event.device):
                known = self._events.get(uuid, ())
                self._events[uuid] = (*known, XidEvent(int(event.eventData), time.time()))[-MOST:]


def _registered(event_set: Any, handle: Any) -> bool:
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, event_set)
    except pynvml.NVMLError:
        return False
    return True


def _address(handle: Any) -> int:
    """What the opaque handle points to: two handles of one device are two objects with one address."""
    return ctypes.addressof(handle.contents) if handle else 0
