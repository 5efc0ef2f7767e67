"""Waits for Xid error events of all GPUs in a thread of its own: each wait blocks in the driver."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Any

import pynvml

from gpumon.readings.frame import XidEvent

_MOST_EVENTS = 16
"""Events kept per GPU, newest last."""
WAIT_MS = 5000
"""Longest wait for one event, in milliseconds: after it, new GPUs are registered."""
LONGEST_RETRY_S = 60.0
"""Longest pause after a wait that failed; it grows by a second with each failure in a row."""


class XidWatch:
    """Collects the Xid events of each GPU since the watch began: the driver keeps no history.

    Only its own thread calls the driver, where any call may hang. `events_of` may be called from another.
    """

    def __init__(self, final_codes: frozenset[int]) -> None:
        """`final_codes`: the driver's error codes after which there is nothing to wait for."""
        self._final_codes = final_codes
        self._handles: dict[str, Any] = {}
        """UUID -> NVML's handle of the GPU."""
        self._events: dict[str, tuple[XidEvent, ...]] = {}
        """UUID -> its events, the newest last."""
        self._thread: threading.Thread | None = None

    def watch(self, handles: dict[str, Any]) -> None:
        """Watch these GPUs (UUID -> handle) from now on; new ones are registered within `WAIT_MS`."""
        self._handles = handles
        if self._thread is None and handles:
            self._thread = threading.Thread(target=self._run, name="xid", daemon=True)
            self._thread.start()

    def events_of(self, uuid: str) -> tuple[XidEvent, ...]:
        """The GPU's events so far, the newest last."""
        return self._events.get(uuid, ())

    def _run(self) -> None:
        """Wait for events until the driver is gone; runs in the thread."""
        failures = 0
        event_set = None
        registered: set[int] = set()
        while True:
            try:
                event_set = event_set or pynvml.nvmlEventSetCreate()
                self._register(event_set, registered)
                event = pynvml.nvmlEventSetWait_v2(event_set, WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    failures = 0
                    continue
                if error.value in self._final_codes:
                    return
                failures += 1
                time.sleep(min(LONGEST_RETRY_S, failures))
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST and event_set is not None:
                    # One lost GPU makes every wait fail: go on with a set of the others.
                    with contextlib.suppress(pynvml.NVMLError):
                        pynvml.nvmlEventSetFree(event_set)
                    event_set = None
                    registered.clear()
                continue
            failures = 0
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._add_event(event)

    def _register(self, event_set: Any, registered: set[int]) -> None:
        """Add the GPUs that are not in the set yet; `registered` holds the addresses of those that were tried.

        One that refuses (lost, vGPU) is not tried again.
        """
        for handle in self._handles.values():
            if _address(handle) not in registered:
                registered.add(_address(handle))
                with contextlib.suppress(pynvml.NVMLError):
                    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, event_set)

    def _add_event(self, event: Any) -> None:
        """Add an event of NVML to those of its GPU."""
        for uuid, handle in list(self._handles.items()):
            if _address(handle) == _address(event.device):
                earlier = self._events.get(uuid, ())
                xid = XidEvent(int(event.eventData), time.time())
                self._events[uuid] = (*earlier, xid)[-_MOST_EVENTS:]


def _address(handle: Any) -> int:
    """The address in an opaque handle (two handles of one device are two objects with one address); 0 for none."""
    if handle:
        return ctypes.addressof(handle.contents)
    return 0
