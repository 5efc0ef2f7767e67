"""Driver calls of one GPU that give `Missing` instead of raising, and remember what is not worth asking again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.wire import Timings

LONGEST_BACKOFF_S = 60.0
_AGAIN_S = 4.0
"""Longest pause of a call that worked before: what it says now passes, or is worth a fault."""
NOT_ANY_MORE = Missing(Reason.ERROR, "the driver says that this is not supported, and it worked before")


class GpuDownError(Exception):
    """The whole GPU does not answer any more: its row has this state and text."""

    def __init__(self, state: GpuState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class HandleStaleError(Exception):
    """The handle does not name this device any more (hot unplug, MIG change): enumerate again."""


class DriverDownError(Exception):
    """The driver as a whole is gone; `code` is the library's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class CallPause(Enum):
    """How long a call that failed is left alone."""

    TICK = "tick"
    BACK_OFF = "back_off"
    PERMISSION = "permission"
    FOREVER = "forever"


class CallRule(NamedTuple):
    """Meaning of one return code for one call; `state` and `detail` badge the row where the whole GPU is concerned."""

    reason: Reason
    pause: CallPause
    detail: str = ""
    state: GpuState | None = None
    usual: bool = False
    """Part of its normal life: no fault, however long it lasts."""
    after: int = 1
    """Failures in a row before the pause and the badge apply."""


UNKNOWN_CODE = CallRule(
    Reason.ERROR, CallPause.BACK_OFF, "the driver keeps failing with an unknown error", GpuState.ERROR, after=3
)
NEVER = CallRule(Reason.NOT_SUPPORTED, CallPause.FOREVER)


class Api(NamedTuple):
    """A driver library: its functions, and what its return codes mean."""

    functions: Any
    code_of: Callable[[Exception], int | None]
    """The return code that an exception stands for; None: it is none of the library's."""
    rules: Mapping[int, CallRule]
    """Code -> its meaning for a call; one that is not here counts as unknown."""
    down: Mapping[int, tuple[GpuState, str]]
    """Codes that say that the GPU itself is gone."""
    refused: Mapping[int, tuple[GpuState, str]]
    """Code -> state and text of the row of a GPU that cannot be opened."""
    driver_down: frozenset[int]
    stale: frozenset[int] = frozenset()
    """Codes of a handle that names nothing."""
    stale_if_worked: frozenset[int] = frozenset()
    """Codes that say the same of a call that worked before."""


class _Held(msgspec.Struct):
    """A call that failed: what to answer instead, and until when."""

    code: int
    rule: CallRule
    missing: Missing
    count: int
    until_s: float
    since_wall_s: float = 0.0
    """When it began to fail, of a call that worked before; 0 for others."""


def _since(held: _Held | None) -> float:
    """Unix time since when a call fails that worked before."""
    if held is not None and held.since_wall_s:
        return held.since_wall_s
    return time.time()


class Calls:
    """The calls of one device, each tick between `begin` and the next."""

    def __init__(self, api: Api, timings: Timings, trace: list[str]) -> None:
        """`trace` gets the name of the call that runs, as its only element."""
        self.now_s = 0.0
        self._api = api
        self._trace = trace
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
            if held.rule.pause is CallPause.PERMISSION:  # it may be lost by now
                held.until_s = min(held.until_s, now_s + _AGAIN_S)
        self.now_s = now_s
        self._answered = False
        self._failed = False

    def read(self, name: str, *args: Any, key: str = "") -> Any:
        """The result of the library's function `name`, or Missing; `key` tells calls of one function apart.

        Raises GpuDownError, HandleStaleError or DriverDownError where more than this call is concerned.
        """
        key = key or name
        held = self._held.get(key)
        if held is not None and self.now_s < held.until_s:
            return held.missing
        self._trace[0] = name
        try:
            value = getattr(self._api.functions, name)(*args)
        except Exception as error:  # each library has exceptions of its own; one without a code is raised again
            code = self._api.code_of(error)
            if code is None:
                raise
            return self._refused(key, code)
        if held is not None:
            del self._held[key]
        self._worked.add(key)
        self._answered = True
        return value

    def first(self, handle: Any, alternatives: tuple[tuple[str, str, tuple[Any, ...]], ...]) -> Any:
        """The first of several calls (key, name, arguments after the handle) that this driver and GPU support."""
        value: Any = None
        for key, name, args in alternatives:
            value = self.read(name, handle, *args, key=key)
            if not (isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED):
                break
        return value

    def meaning(self, code: int) -> Missing:
        """Meaning of a return code that stands beside one figure of several."""
        rule = self._api.rules.get(code)
        if rule is not None:
            return Missing(rule.reason, rule.detail)
        return Missing(Reason.ERROR)

    def forget(self) -> None:
        """Ask everything anew: the device is not what it was."""
        self._held.clear()
        self._worked.clear()

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""
        troubles = {}
        for key, held in self._held.items():
            if held.since_wall_s:
                troubles[key] = (held.missing.detail, held.since_wall_s)
        return troubles

    def badge(self) -> tuple[GpuState, str]:
        """The worst that the calls said about the GPU as a whole."""
        if not self._answered:
            if self._failed:
                return self._all_failed()
            if self._silent is not None:
                return self._silent
        advice = (GpuState.OK, "")
        for key, held in self._held.items():
            rule = held.rule
            if rule.state is None or held.count < rule.after:
                continue
            badge = (rule.state, f"{rule.detail} ({key})")
            if rule.state is not GpuState.OK:
                return badge
            advice = badge
        return advice

    def _refused(self, key: str, code: int) -> Missing:
        """Note that a call gave an error, and say why its figure is missing. Raises what the whole GPU or driver is."""
        worked = key in self._worked
        self._raise_if_down(key, code, worked=worked)
        held = self._held.get(key)
        if held is not None and held.code == code:
            count = held.count + 1
        else:
            count = 1
        rule = self._api.rules.get(code, UNKNOWN_CODE)
        missing = Missing(rule.reason, rule.detail)
        since_wall_s = 0.0
        if worked and not rule.usual:
            since_wall_s = _since(held)
            if rule.reason is Reason.NOT_SUPPORTED:
                missing = NOT_ANY_MORE
        if missing.reason in (Reason.ERROR, Reason.NO_PERMISSION) and not rule.usual:
            self._failed = True
        until_s = self.now_s + self._pause_s(rule, count, again=bool(since_wall_s))
        self._held[key] = _Held(code, rule, missing, count, until_s, since_wall_s)
        return missing

    def _raise_if_down(self, key: str, code: int, *, worked: bool) -> None:
        """Raises GpuDownError, DriverDownError or HandleStaleError if the code says that of more than this call."""
        api = self._api
        if code in api.down:
            raise GpuDownError(*api.down[code])
        if code in api.driver_down:
            raise DriverDownError(code)
        if code in api.stale or (worked and code in api.stale_if_worked):
            raise HandleStaleError(key)

    def _all_failed(self) -> tuple[GpuState, str]:
        reasons = {held.rule.reason for held in self._held.values()}
        refused = Reason.NO_PERMISSION in reasons and reasons <= {Reason.NO_PERMISSION, Reason.NOT_SUPPORTED}
        state = GpuState.NO_PERMISSION if refused else GpuState.ERROR
        return state, f"no call works: {self._first_detail()}"

    def _first_detail(self) -> str:
        """Why the first call fails that the GPU should support."""
        for held in self._held.values():
            if held.missing.reason is not Reason.NOT_SUPPORTED:
                return held.missing.detail
        return ""

    def _pause_s(self, rule: CallRule, count: int, *, again: bool) -> float:
        if count < rule.after or rule.pause is CallPause.TICK:
            return 0.0
        doubled_s = self._timings.backoff_s * 2 ** min(count - rule.after, 16)
        if again:
            return float(min(_AGAIN_S, doubled_s))
        if rule.pause is CallPause.BACK_OFF:
            return float(min(LONGEST_BACKOFF_S, doubled_s))
        return math.inf if rule.pause is CallPause.FOREVER else self._timings.permission_s
