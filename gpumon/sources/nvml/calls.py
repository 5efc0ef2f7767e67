"""Driver calls of one GPU that give `Missing` instead of raising, and remember what is not worth asking again."""

from __future__ import annotations

import math
import time
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pynvml

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.nvml.wire import Timings

LONGEST_BACKOFF_S = 60.0
AGAIN_S = 4.0
"""Longest pause of a call that worked before: what it says now passes, or is worth a fault."""


class GpuDownError(Exception):
    """The whole GPU does not answer any more."""

    def __init__(self, state: GpuState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class HandleStaleError(Exception):
    """The handle does not name this device any more (hot unplug, MIG change): enumerate again."""


class DriverDownError(Exception):
    """The driver as a whole is gone; `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML code {code}")
        self.code = code


class Pause(Enum):
    """How long a call that failed is left alone."""

    TICK = "tick"
    BACK_OFF = "back_off"
    PERMISSION = "permission"
    FOREVER = "forever"


class Rule(NamedTuple):
    """What one return code means for one call; `state` and `text` badge the row where the whole GPU is concerned."""

    reason: Reason
    pause: Pause
    detail: str = ""
    state: GpuState | None = None
    usual: bool = False
    """Part of its normal life: no fault, however long it lasts."""
    after: int = 1
    """Failures in a row before the pause and the badge apply."""


_UNKNOWN = Rule(Reason.ERROR, Pause.BACK_OFF, "the driver keeps failing with an unknown error", GpuState.ERROR, after=3)
_CABLE = "the GPU's external power cable is not attached"
_INTERRUPTS = "the kernel has trouble with this GPU's interrupts"
_BLOCKED = "blocked by the operating system: in a container, pass the /dev/nvidia* device nodes"
_NO_VALUE = "the driver has no value right now"
_RULES: tuple[tuple[str, Rule], ...] = (
    ("INVALID_ARGUMENT NOT_SUPPORTED", Rule(Reason.NOT_SUPPORTED, Pause.FOREVER)),
    (
        "FUNCTION_NOT_FOUND ARGUMENT_VERSION_MISMATCH DEPRECATED",
        Rule(Reason.NOT_SUPPORTED, Pause.FOREVER, "this driver version does not have the call"),
    ),
    ("NO_PERMISSION", Rule(Reason.NO_PERMISSION, Pause.PERMISSION, "the driver refuses this to your user")),
    ("NOT_FOUND INSUFFICIENT_SIZE NO_DATA NOT_READY", Rule(Reason.ERROR, Pause.TICK, _NO_VALUE, usual=True)),
    ("INVALID_STATE", Rule(Reason.ERROR, Pause.TICK, _NO_VALUE)),
    ("TIMEOUT", Rule(Reason.ERROR, Pause.TICK, "the driver ran out of time")),
    ("INSUFFICIENT_POWER", Rule(Reason.ERROR, Pause.TICK, _CABLE, GpuState.ERROR)),
    ("IRQ_ISSUE", Rule(Reason.ERROR, Pause.TICK, _INTERRUPTS, GpuState.ERROR)),
    ("CORRUPTED_INFOROM", Rule(Reason.ERROR, Pause.BACK_OFF, "the GPU's InfoROM is corrupted", GpuState.OK)),
    ("OPERATING_SYSTEM", Rule(Reason.ERROR, Pause.BACK_OFF, _BLOCKED, GpuState.ERROR)),
    (
        "IN_USE MEMORY INSUFFICIENT_RESOURCES",
        Rule(Reason.ERROR, Pause.BACK_OFF, "the driver lacks resources for this call"),
    ),
    ("UNKNOWN", _UNKNOWN),
)
RULES: dict[int, Rule] = {
    getattr(pynvml, f"NVML_ERROR_{name}"): rule for names, rule in _RULES for name in names.split()
}
"""What each NVML return code means for a call; a code that is not here counts as unknown."""

DOWN: dict[int, tuple[GpuState, str]] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        GpuState.LOST,
        "fallen off the bus: see dmesg for the Xid; it needs a power cycle",
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: (
        GpuState.RESET_REQUIRED,
        "needs a reset: stop its processes, then nvidia-smi --gpu-reset or reboot",
    ),
}
"""Codes that say that the GPU itself is gone, not just one figure of it."""

DRIVER_DOWN = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class _Held(msgspec.Struct):
    """A call that failed: what to answer instead, and until when."""

    code: int
    rule: Rule
    missing: Missing
    count: int
    until_s: float
    since_wall_s: float = 0.0
    """When it began to fail, of a call that worked before; 0 for others."""


class Calls:
    """The calls of one device, each tick between `begin` and the next."""

    def __init__(self, timings: Timings, trace: list[str] | None = None) -> None:
        """`trace` gets the name of the call that runs, as its only element."""
        self.now_s = 0.0
        self._trace = [""] if trace is None else trace
        self._timings = timings
        self._held: dict[str, _Held] = {}
        self._worked: set[str] = set()
        self._answered = self._failed = False
        self._silent: tuple[GpuState, str] | None = None

    def begin(self, now_s: float) -> None:
        """A tick begins at this moment (monotonic)."""
        if self._answered or self._failed:
            self._silent = None if self._answered else self._all_failed()
        for held in self._held.values() if self._silent is not None else ():
            if held.rule.pause is Pause.PERMISSION:  # it may be lost by now
                held.until_s = min(held.until_s, now_s + AGAIN_S)
        self.now_s, self._answered, self._failed = now_s, False, False

    def read(self, key: str, name: str, *args: Any) -> Any:
        """What pynvml's function `name` gives, or Missing; `key` is the call's name in this object's memory.

        Raises GpuDownError, HandleStaleError or DriverDownError where more than this call is concerned.
        """
        held = self._held.get(key)
        if held is not None and self.now_s < held.until_s:
            return held.missing
        self._trace[0] = name
        try:
            value = getattr(pynvml, name)(*args)
        except pynvml.NVMLError as error:
            return self._refused(key, error.value)
        except (AttributeError, pynvml.NVMLLibraryMismatchError):
            return self._refused(key, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        except ValueError:
            return Missing(Reason.INVALID, "the driver sent text that is no UTF-8")
        if held is not None:
            del self._held[key]
        self._worked.add(key)
        self._answered = True
        return value

    def first(self, handle: Any, alternatives: tuple[tuple[str, str, tuple[Any, ...]], ...]) -> Any:
        """The first of several calls (key, name, arguments after the handle) that this driver and GPU support."""
        value: Any = None
        for key, name, args in alternatives:
            value = self.read(key, name, handle, *args)
            if not (isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED):
                break
        return value

    def forget(self) -> None:
        """Ask everything anew: the device is not what it was."""
        self._held.clear()
        self._worked.clear()

    def close(self, key: str, missing: Missing) -> None:
        """Never make this call; answer `missing`."""
        self._held[key] = _Held(0, RULES[pynvml.NVML_ERROR_NOT_SUPPORTED], missing, 1, math.inf)

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""
        return {key: (held.missing.detail, held.since_wall_s) for key, held in self._held.items() if held.since_wall_s}

    def badge(self) -> tuple[GpuState, str]:
        """The worst that the calls said about the GPU as a whole."""
        worst = (GpuState.OK, "")
        silent = self._silent if not (self._answered or self._failed) else None
        if silent is not None or (self._failed and not self._answered):
            return silent or self._all_failed()
        for key, held in self._held.items():
            rule = held.rule
            if rule.state is not None and held.count >= rule.after and worst[0] is GpuState.OK:
                worst = (rule.state, f"{rule.detail} ({key})")
        return worst

    def _refused(self, key: str, code: int) -> Missing:
        if code in DOWN:
            raise GpuDownError(*DOWN[code])
        if code in DRIVER_DOWN:
            raise DriverDownError(code)
        if code == pynvml.NVML_ERROR_GPU_NOT_FOUND or (
            code == pynvml.NVML_ERROR_INVALID_ARGUMENT and key in self._worked
        ):
            raise HandleStaleError(key)
        held = self._held.get(key)
        count = held.count + 1 if held is not None and held.code == code else 1
        rule = RULES.get(code, _UNKNOWN)
        missing, since_wall_s = Missing(rule.reason, rule.detail), 0.0
        if key in self._worked and not rule.usual:
            since_wall_s = (held.since_wall_s if held is not None else 0.0) or time.time()
            if rule.reason is Reason.NOT_SUPPORTED:
                missing = Missing(Reason.ERROR, "the driver says that this is not supported, and it worked before")
        self._failed |= missing.reason in (Reason.ERROR, Reason.NO_PERMISSION) and not rule.usual
        until_s = self.now_s + self._pause_s(rule, count, again=bool(since_wall_s))
        self._held[key] = _Held(code, rule, missing, count, until_s, since_wall_s)
        return missing

    def _all_failed(self) -> tuple[GpuState, str]:
        refused = all(held.rule.reason in (Reason.NO_PERMISSION, Reason.NOT_SUPPORTED) for held in self._held.values())
        detail = next(
            (held.missing.detail for held in self._held.values() if held.missing.reason is not Reason.NOT_SUPPORTED), ""
        )
        return GpuState.NO_PERMISSION if refused else GpuState.ERROR, f"no call works: {detail}"

    def _pause_s(self, rule: Rule, count: int, *, again: bool) -> float:
        if count < rule.after or rule.pause is Pause.TICK:
            return 0.0
        doubled_s = self._timings.backoff_s * 2 ** min(count - rule.after, 16)
        if again:
            return float(min(AGAIN_S, doubled_s))
        if rule.pause is Pause.BACK_OFF:
            return float(min(LONGEST_BACKOFF_S, doubled_s))
        return math.inf if rule.pause is Pause.FOREVER else self._timings.permission_s
