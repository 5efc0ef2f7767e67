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
"""Longest pause of a call that keeps failing."""
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
    """It is made again at the next tick."""
    BACK_OFF = "back_off"
    """The pause doubles with each failure, up to `LONGEST_BACKOFF_S`."""
    PERMISSION = "permission"
    """`Timings.permission_s`: somebody may grant it meanwhile."""
    FOREVER = "forever"
    """It is never made again for this device."""


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


class CallTrace:
    """The driver call of one GPU that runs now, or ran last."""

    def __init__(self) -> None:
        self.name = ""
        self.since_s = 0.0
        """When it began (monotonic)."""

    def begin(self, name: str) -> None:
        """A call begins now."""
        self.since_s = time.monotonic()
        self.name = name


class _FailedCall(msgspec.Struct):
    """A call that failed: what to answer instead, and until when."""

    code: int
    rule: CallRule
    missing: Missing
    """The answer in its place."""
    count: int
    """Failures in a row with this code."""
    until_s: float
    """When it is made again (monotonic)."""
    since_wall_s: float = 0.0
    """When it began to fail, of a call that worked before; 0 for others."""


def _failing_since(failed: _FailedCall | None) -> float:
    """Unix time since when a call fails that worked before; now where this is its first failure."""
    if failed is not None and failed.since_wall_s:
        return failed.since_wall_s
    return time.time()


class Calls:
    """The calls of one device, each tick between `begin` and the next."""

    def __init__(self, api: Api, timings: Timings, trace: CallTrace) -> None:
        self.now_s = 0.0
        self._api = api
        self._trace = trace
        self._timings = timings
        self._failing: dict[str, _FailedCall] = {}
        """Key of a call -> its failure, until it works."""
        self._worked: set[str] = set()
        """Keys of the calls that have worked."""
        self._answered = False
        """A call has worked in this tick."""
        self._failed = False
        """A call has failed in this tick that the GPU should support."""
        self._silent: tuple[GpuState, str] | None = None
        """The badge of a GPU none of whose calls worked when some were last made; None: one did."""

    def begin(self, now_s: float) -> None:
        """A tick begins at this moment (monotonic)."""
        if self._answered:
            self._silent = None
        elif self._failed:
            self._silent = self._all_failed_badge()
        if self._silent is not None:
            for failed in self._failing.values():
                if failed.rule.pause is CallPause.PERMISSION:
                    # The GPU may be lost by now: the long pause would hide it.
                    failed.until_s = min(failed.until_s, now_s + _AGAIN_S)
        self.now_s = now_s
        self._answered = False
        self._failed = False

    def read(self, name: str, *args: Any, key: str = "") -> Any:
        """The result of the library's function `name`, or Missing; `key` tells calls of one function apart.

        Raises GpuDownError, HandleStaleError or DriverDownError where more than this call is concerned.
        """
        key = key or name
        failed = self._failing.get(key)
        if failed is not None and self.now_s < failed.until_s:
            return failed.missing
        self._trace.begin(name)
        try:
            value = getattr(self._api.functions, name)(*args)
        except Exception as error:  # each library has exceptions of its own; one without a code is raised again
            code = self._api.code_of(error)
            if code is None:
                raise
            return self._note_failure(key, code)
        if failed is not None:
            del self._failing[key]
        self._worked.add(key)
        self._answered = True
        return value

    def first_supported(self, handle: Any, alternatives: tuple[tuple[str, str, tuple[Any, ...]], ...]) -> Any:
        """The result of the first of several calls (key, name, arguments after the handle) that this driver and GPU
        support, or Missing."""
        value: Any = None
        for key, name, args in alternatives:
            value = self.read(name, handle, *args, key=key)
            if not (isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED):
                break
        return value

    def meaning(self, code: int) -> Missing:
        """Why a figure is missing, by the return code that stands beside it where one call gives several."""
        rule = self._api.rules.get(code)
        if rule is not None:
            return Missing(rule.reason, rule.detail)
        return Missing(Reason.ERROR)

    def forget(self) -> None:
        """Ask everything anew: the device is not what it was."""
        self._failing.clear()
        self._worked.clear()

    def troubles(self) -> dict[str, tuple[str, float]]:
        """The calls that worked before and fail now: why, and since when (Unix time)."""
        return {
            key: (failed.missing.detail, failed.since_wall_s)
            for key, failed in self._failing.items()
            if failed.since_wall_s
        }

    def badge(self) -> tuple[GpuState, str]:
        """State and text of the GPU's row, by what its calls say of it as a whole: trouble before advice."""
        if not self._answered:
            if self._failed:
                return self._all_failed_badge()
            if self._silent is not None:
                return self._silent
        advice = (GpuState.OK, "")
        for key, failed in self._failing.items():
            rule = failed.rule
            if rule.state is None or failed.count < rule.after:
                continue
            state_and_text = (rule.state, f"{rule.detail} ({key})")
            if rule.state is not GpuState.OK:
                return state_and_text
            advice = state_and_text
        return advice

    def _note_failure(self, key: str, code: int) -> Missing:
        """Note that a call gave an error; returns why its figure is missing.

        Raises GpuDownError, HandleStaleError or DriverDownError where more than this call is concerned.
        """
        worked = key in self._worked
        self._raise_if_down(key, code, worked=worked)
        failed = self._failing.get(key)
        count = failed.count + 1 if failed is not None and failed.code == code else 1
        rule = self._api.rules.get(code, UNKNOWN_CODE)
        missing = Missing(rule.reason, rule.detail)
        since_wall_s = 0.0
        if worked and not rule.usual:
            since_wall_s = _failing_since(failed)
            if rule.reason is Reason.NOT_SUPPORTED:
                missing = NOT_ANY_MORE
        if missing.reason in (Reason.ERROR, Reason.NO_PERMISSION) and not rule.usual:
            self._failed = True
        pause_s = self._pause_s(rule, count, worked_before=bool(since_wall_s))
        self._failing[key] = _FailedCall(
            code=code,
            rule=rule,
            missing=missing,
            count=count,
            until_s=self.now_s + pause_s,
            since_wall_s=since_wall_s,
        )
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

    def _all_failed_badge(self) -> tuple[GpuState, str]:
        """State and text of the row of a GPU none of whose calls works."""
        reasons = {failed.rule.reason for failed in self._failing.values()}
        refused = Reason.NO_PERMISSION in reasons and reasons <= {Reason.NO_PERMISSION, Reason.NOT_SUPPORTED}
        state = GpuState.NO_PERMISSION if refused else GpuState.ERROR
        return state, f"no call works: {self._first_detail()}"

    def _first_detail(self) -> str:
        """Why the first call fails that the GPU should support."""
        for failed in self._failing.values():
            if failed.missing.reason is not Reason.NOT_SUPPORTED:
                return failed.missing.detail
        return ""

    def _pause_s(self, rule: CallRule, count: int, *, worked_before: bool) -> float:
        """Seconds until a call is made again that has failed `count` times in a row."""
        if count < rule.after or rule.pause is CallPause.TICK:
            return 0.0
        doubled_s = self._timings.backoff_s * 2 ** min(count - rule.after, 16)
        if worked_before:
            return float(min(_AGAIN_S, doubled_s))
        if rule.pause is CallPause.BACK_OFF:
            return float(min(LONGEST_BACKOFF_S, doubled_s))
        if rule.pause is CallPause.FOREVER:
            return math.inf
        return self._timings.permission_s
