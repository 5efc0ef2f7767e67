"""Rules on the clocks of a GPU: held down by heat, power, a lowered limit or a lock."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Family, Level, Limit, Parameters, Team
from gpumon.triage.change import Change, TimedValue, find_change
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.gpu_figures import gpu_of
from gpumon.triage.harm import is_slow, overload_is_hopeless
from gpumon.triage.hour import SLOT_S
from gpumon.triage.marks import URGENT
from gpumon.triage.onset import (
    SAMPLE_S,
    actions_against,
    means_around,
    turn_parameters,
    turns_around,
    turns_evidence,
    wall_s,
)
from gpumon.triage.samples import AWAKE, KEPT_S, Recent
from gpumon.triage.saturation import arithmetic_is_full
from gpumon.triage.sentences import (
    BUSY,
    CHECK_COOLING,
    CHECK_COOLING_AND_POWER,
    CHECK_POWER_SUPPLY,
    CLOCK,
    INSPECT_GPU,
    RESET_APPLICATION_CLOCKS,
    RESET_LOCKED_CLOCKS,
    RESTORE_POWER_LIMIT,
    TURNED,
    WINDOW,
)
from gpumon.triage.signals import MINUTE_S, NOW_S, Case, finite
from gpumon.triage.thresholds import Thresholds

_FELL_UNTIL: Final = "[, {clock_before_hz:ghz} GHz until {fell:clock}]"
POWER_CAP: Final = "sw_power_cap"
"""Clock event reason: the power limit holds the clock."""
_FAR_BELOW: Final = 0.7
"""Clock, of the highest, below which a slowdown costs at least 30% of the speed."""
SLOWDOWN_OVER_S: Final = 20.0
"""Seconds without it after which a slowdown is over: protection against heat comes and goes within seconds."""
PAST_S: Final = 3.0
"""Seconds without it after which the verdict says that it was."""
_BAND: Final = 0.1
"""Share by which the load and the clock may go back while a verdict stands."""
_SHARE_BAND: Final = 0.5
"""Share by which the time slowed down may go back while a verdict stands: it is of one minute, and comes in bursts."""
_LEAST_WINDOW_S: Final = 6.0
"""Least seconds since a power limit was changed after which its effect is judged: a few samples, and a poll of its
engine's users."""
_STEADY: Final = 0.02
"""Most that a locked clock moves, as a share of the highest: one that power or heat decides goes up and down."""
_LEAST_STILL: Final = 5
"""Samples without which a clock is not known to stand still: two that are alike are so by chance."""
_AT_ITS_LIMIT: Final = 0.95
"""Power, of its limit, from which on that may hold a clock where nothing tells what does."""
_MOST_OF_THE_TIME: Final = 0.5
"""Share of the last minute in which the power limit, or a setting, must have held a clock to explain it."""
_LOWERED: Final = 0.95
"""Power limit, of the card's default, below which somebody lowered it."""
_LEAST_COOLER_SHARE: Final = 0.4
"""Share of the power limit in force below which no lower one is advised against heat: the driver may refuse it."""
_MOST_COOLER_SHARE: Final = 0.7
"""Largest share of the power limit in force that is advised against heat: more would hardly help."""
_VISIBLE_HZ: Final = 5e6
"""Difference of two clocks that shows: they are written in GHz with two decimals."""
_FELL_SHARE: Final = 0.85
"""Clock under load, of that before, up to which it fell. A choice: heavier work at the same limits takes a tenth."""
_MORE_POWER: Final = 1.1
"""Power, of that before, from which on heavier work may be why a clock is lower: the same work takes less at it."""
_HARDLY: Final = 0.2
"""Share of the time up to which the power limit does not hold a clock."""
BELOW_DRAW: Final = 0.9
"""A power limit against heat is at most this much of what the GPU draws: one above it changes nothing."""


THROTTLE_SHARE: Final = Quantity(
    "throttle_share",
    "{reason}: {value:percent} of the last minute[, {counted:age} since gpumon started]",
    field="throttle",
)
TEMPERATURE: Final = Quantity("temperature", "{value:count} °C now", field="temperature_c")
SM_CLOCK: Final = Quantity(
    "sm_clock", "SM clock {value:ghz} of {limit:ghz} GHz" + WINDOW + "[; now {newest:ghz} GHz]", field="sm_clock_hz"
)
POWER: Final = Quantity("power", "{value:count}[ of {limit:count}] W" + WINDOW, field="power_w")
LOWER_POWER_LIMIT: Final = Remedy(
    "lower_power_limit",
    (
        "until then a lower power limit keeps the clocks steady: sudo nvidia-smi -i {index:count} "
        "-pl {watts:count}, and -pl {limit_w:count} takes it back"
    ),
    team=Team.HOST,
)

THERMAL: Final = Cause(
    "thermal",
    Limit.THROTTLED,
    (
        "[was slowed down until {ended:clock} by heat (the hardware's own protection)|slowed down by "
        "heat (the hardware's own protection)][, {idle=yes}but nothing runs on it][, "
        + CLOCK
        + "][, {celsius:count} °C]"
    ),
)
THERMAL_DRIVER: Final = Cause(
    "thermal_driver",
    Limit.THROTTLED,
    (
        "[was slowed down until {ended:clock} by heat (the driver keeps it below the limit)|slowed "
        "down by heat (the driver keeps it below the limit)][, {idle=yes}but nothing runs on it][, "
        + CLOCK
        + "][, {celsius:count} °C]"
    ),
)
POWER_BRAKE: Final = Cause(
    "power_brake",
    Limit.THROTTLED,
    (
        "[was slowed down until {ended:clock} by the power brake|slowed down by the power brake][, "
        "{idle=yes}but nothing runs on it][, " + CLOCK + "][, {celsius:count} °C]"
    ),
)
HARDWARE_SLOWDOWN: Final = Cause(
    "hardware_slowdown",
    Limit.THROTTLED,
    (
        "[was slowed down until {ended:clock} by the hardware (heat or power: it does not report "
        "which)|slowed down by the hardware (heat or power: it does not report which)][, "
        "{idle=yes}but nothing runs on it][, " + CLOCK + "][, {celsius:count} °C]"
    ),
)
POWER_LIMIT: Final = Cause(
    "power_cap",
    Limit.THROTTLED,
    (
        "its power limit[ of {limit_w:count} W][ ({before_w:count} W before)| (default "
        "{default_w:count} W)] holds its clock at " + CLOCK + " under load" + _FELL_UNTIL
    ),
)
LOCKED_CLOCK: Final = Cause(
    "locked_clock",
    Limit.THROTTLED,
    "clock locked at " + CLOCK + " under load" + _FELL_UNTIL,
)
LOW_CLOCK: Final = Cause(
    "low_clock",
    Limit.THROTTLED,
    (
        "clock at " + CLOCK + " under load; [{untold=yes}nothing here tells why: a lock, a setting, power or heat"
        "|the driver names no reason]" + _FELL_UNTIL
    ),
)
APPLICATION_CLOCKS: Final = Cause(
    "application_clocks",
    Limit.THROTTLED,
    "application clocks hold it at " + CLOCK + " under load" + _FELL_UNTIL,
)
CLOCK_FELL: Final = Cause(
    "clock_fell",
    Limit.THROTTLED,
    ("SM clock {clock_before_hz:ghz} -> {clock_hz:ghz} GHz under load since {fell:clock}" + TURNED),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
SLOWDOWNS: Final[Mapping[str, Cause]] = {
    "hw_thermal_slowdown": THERMAL,
    "hw_power_brake_slowdown": POWER_BRAKE,
    "sw_thermal_slowdown": THERMAL_DRIVER,
    "hw_slowdown": HARDWARE_SLOWDOWN,
}
"""Clock event reasons that are faults -> cause, the most telling first: `hw_slowdown` comes with the two above."""
_SET_BY_SOMEBODY: Final = {"applications_clocks_setting": APPLICATION_CLOCKS}
"""Clock event reasons that are settings -> cause."""
_FIXES: Final = {
    THERMAL: CHECK_COOLING,
    THERMAL_DRIVER: CHECK_COOLING,
    POWER_BRAKE: CHECK_POWER_SUPPLY,
    HARDWARE_SLOWDOWN: CHECK_COOLING_AND_POWER,
    APPLICATION_CLOCKS: RESET_APPLICATION_CLOCKS,
}
"""Cause -> code of the action against it."""


def throttled(case: Case) -> Finding | None:
    """Rule: clocks are held down by a fault, a lowered power limit or a lock; else far below the highest under load."""
    gpu = gpu_of(case)
    if gpu.reading.mig_profile:
        return None
    least_share = case.thresholds.throttled_ratio
    if Limit.THROTTLED in case.limits_before:
        least_share *= 1.0 - _SHARE_BAND
    shares = {}
    active = []
    for reason in SLOWDOWNS:
        shares[reason] = _active_share(case.recent, reason)
        if shares[reason] > least_share:
            active.append(reason)
    if active:
        # Seconds since one of them held the clock last.
        past_s = min(0.0 if case.recent.last(reason) else case.recent.steady_s(reason) for reason in active)
        if past_s < SLOWDOWN_OVER_S:
            return _slowed_finding(case, gpu, active[0], shares, past_s)
    return _held_down_finding(case, gpu)


def slowed_lately(recent: Recent, limits: Thresholds) -> bool:
    """Whether a fault held its clocks down in the last minute."""
    return any(_active_share(recent, reason) > limits.throttled_ratio for reason in SLOWDOWNS)


def _active_share(recent: Recent, reason: str, seconds: float = MINUTE_S) -> float:
    """Share of the last seconds in which a clock event reason was active."""
    if recent.last(reason) == 0.0 and recent.steady_s(reason) >= min(seconds, recent.seconds):
        return 0.0
    return recent.mean(reason, seconds) or 0.0


def _window_s(recent: Recent) -> float:
    """Seconds of the past that tell of the clock of now: a minute, or those since the power limit was changed."""
    return min(MINUTE_S, max(_LEAST_WINDOW_S, recent.steady_s("power_limit_w")))


class _Clock(NamedTuple):
    """SM clock of a GPU, in Hz."""

    mean: float
    most: float
    """The highest that the card has."""
    newest: float


def _clock(case: Case, gpu: Gpu, seconds: float = MINUTE_S) -> _Clock | None:
    """The clock of a GPU, with its mean of the last seconds; None where it is not known."""
    mean_hz = finite(case.recent.mean("sm_clock_hz", seconds))
    most_hz = finite(gpu.reading.sm_clock_max_hz)
    newest_hz = finite(case.recent.last("sm_clock_hz"))
    if mean_hz is None or not most_hz:
        return None
    return _Clock(mean=mean_hz, most=most_hz, newest=newest_hz or mean_hz)


def _slowed_finding(case: Case, gpu: Gpu, reason: str, shares: Mapping[str, float], past_s: float) -> Finding:
    """The finding on a clock that the driver slows down for `reason`, or did until `past_s` ago."""
    cause = SLOWDOWNS[reason]
    is_over = past_s >= PAST_S
    clock = _clock(case, gpu)
    busy = finite(case.recent.mean("busy_ratio", MINUTE_S))
    level = _level_of_slowdown(case, clock, busy, is_over=is_over)
    parameters = params(was=yes_if(is_over), idle=yes_if(level is Level.NOTE))
    if is_over:
        parameters |= params(ended=case.frame.wall_s - past_s)
    if clock is not None and level is not Level.NOTE:
        clock_hz = clock.newest if is_over else clock.mean
        parameters |= params(clock_hz=clock_hz, clock_max_hz=clock.most)
    actions = [_FIXES[cause].action(index=float(gpu.reading.index))]
    if cause in (THERMAL, THERMAL_DRIVER):
        parameters |= params(celsius=finite(gpu.reading.temperature_c))
        actions += _cooler_actions(case, gpu)
    evidence = (*_evidence_of_slowdown(case, gpu, shares), *_load_evidence(case, gpu, clock, busy))
    return cause.finding(parameters=parameters, evidence=evidence, actions=tuple(actions), level=level)


def _evidence_of_slowdown(case: Case, gpu: Gpu, shares: Mapping[str, float]) -> Iterator[Evidence]:
    """The driver's reasons with their share of the time, and the temperature."""
    limit = case.thresholds.throttled_ratio
    for reason, share in shares.items():
        if share > 0.0:
            counted = gpu.throttle_s.get(reason, 0.0) or None
            yield case.evidence(THROTTLE_SHARE, share, limit=limit, reason=reason, counted=counted)
    temperature = finite(gpu.reading.temperature_c)
    if temperature is not None:
        yield case.evidence(TEMPERATURE, temperature)


def _level_of_slowdown(case: Case, clock: _Clock | None, busy: float | None, *, is_over: bool) -> Level:
    """Critical while it costs users or much of a loaded GPU's clock; a note where the GPU does nothing."""
    if busy is not None and busy < AWAKE:
        return Level.NOTE
    if is_over:
        return Level.WARN
    if _is_felt(case):
        return Level.CRITICAL
    is_loaded = (busy or 0.0) >= case.thresholds.loaded_ratio
    if is_loaded and clock is not None and clock.mean < _FAR_BELOW * clock.most:
        return Level.CRITICAL
    return Level.WARN


def _is_felt(case: Case) -> bool:
    """Whether users of an engine on the GPU wait for what it does."""
    return any(case.suffers(engine) for engine in case.engines)


def _load_evidence(
    case: Case, gpu: Gpu, clock: _Clock | None, busy: float | None, window_s: float = MINUTE_S
) -> Iterator[Evidence]:
    """Clock, busy share and power of the last `window_s`."""
    if clock is not None:
        newest = clock.newest if abs(clock.newest - clock.mean) >= _VISIBLE_HZ else None
        yield case.evidence(SM_CLOCK, clock.mean, limit=clock.most, window_s=window_s, newest=newest)
    if busy is not None:
        yield case.evidence(BUSY, busy, window_s=window_s)
    watts = finite(case.recent.mean("power_w", window_s))
    if watts is not None:
        yield case.evidence(POWER, watts, limit=finite(gpu.reading.power_limit_w), window_s=window_s)


class _HeldClock(NamedTuple):
    """A clock under load below the highest, and what is known of why."""

    clock: _Clock
    busy: float
    """Mean of the last minute."""
    is_capped: bool
    """The power limit holds it most of the time."""
    has_lowered_limit: bool
    """The power limit is below the card's default."""
    is_locked: bool
    """It stands still, and no power limit explains that."""
    setting: Cause | None
    """Cause by a setting that the driver names."""
    peers_wait: bool
    """Other GPUs of its instance run faster, and wait for it."""
    limit_before_w: float | None
    """Power limit before it was changed, of a limit that was lowered while it was watched."""
    is_told: bool
    """The driver's reasons are read: else that it names none says nothing."""

    @property
    def is_sure(self) -> bool:
        """Whether a setting explains the clock."""
        return self.has_lowered_limit or (self.is_locked and self.setting is not None)

    @property
    def cause(self) -> Cause:
        """The cause of its verdict."""
        if self.is_capped:
            return POWER_LIMIT
        if self.setting:
            return self.setting
        if self.is_locked and self.is_told:
            return LOCKED_CLOCK
        return LOW_CLOCK


def _held_down_finding(case: Case, gpu: Gpu) -> Finding | None:
    """The finding on clocks below the highest under load without a fault: by a power limit, a lock, or unexplained."""
    held = _held_clock(case, gpu)
    fall = _clock_fall(case, gpu)
    if held is None or not _is_worth_saying(case, held):
        return _fallen_finding(case, gpu, fall) if fall is not None else None
    confidence = Confidence.HIGH if held.is_sure else Confidence.MEDIUM
    if not held.is_told:
        confidence = Confidence.LOW
    began_s = math.inf
    was_lowered = held.has_lowered_limit and held.limit_before_w is not None
    if was_lowered:
        began_s = case.now_s - case.recent.steady_s("power_limit_w")
    return held.cause.finding(
        parameters=_held_parameters(gpu, held) | _fall_parameters(case, fall),
        evidence=tuple(_load_evidence(case, gpu, held.clock, held.busy, _window_s(case.recent))),
        actions=(_unlock_action(gpu, held),),
        level=_level_of_held_clock(case, held),
        confidence=confidence,
        began_s=began_s,
        is_sure=was_lowered,
    )


def _clock_fall(case: Case, gpu: Gpu) -> Change | None:
    """The change of the time of a cycle (s) on a GPU under load whose clock is lower than before; None of any other."""
    recent = case.recent
    now_hz = recent.mean("sm_clock_hz", SLOT_S)
    most_hz = finite(gpu.reading.sm_clock_max_hz)
    loaded = case.thresholds.loaded_ratio
    if (
        not now_hz
        or (most_hz and now_hz > _FELL_SHARE * most_hz)
        or (recent.mean("busy_ratio", SLOT_S) or 0.0) < loaded
    ):
        return None
    busy = dict(recent.hour.timed_values("busy_ratio"))
    clocks = recent.hour.timed_values("sm_clock_hz")
    slots = _cycles([clock for clock in clocks if busy.get(clock[0], 0.0) >= loaded])

    def samples() -> list[TimedValue]:
        return _cycles(recent.values("sm_clock_hz", recent.seconds))

    return find_change(slots, samples, 1.0 / now_hz, 1.0 / _FELL_SHARE, SAMPLE_S)


def _cycles(clocks: Sequence[TimedValue]) -> list[TimedValue]:
    """The time of a cycle in s, of clocks in Hz."""
    return [(at_s, 1.0 / hz) for at_s, hz in clocks if hz]


def _fallen_finding(case: Case, gpu: Gpu, fall: Change) -> Finding | None:
    """The finding on a clock that fell under load while neither more power nor its limit explains it; None where one of
    them does, and on the GPU of an engine, which is slower for it or not."""
    power = means_around(case.recent, "power_w", fall.began_s)
    takes_more = power is not None and power[1] > _MORE_POWER * power[0]
    if case.engines or takes_more or _active_share(case.recent, POWER_CAP, SLOT_S) > _HARDLY:
        return None
    clock = _clock(case, gpu, SLOT_S)
    busy = finite(case.recent.mean("busy_ratio", MINUTE_S))
    if clock is None or case.now_s - fall.began_s < SLOT_S:
        return None
    turns = [turn for turn in turns_around(case, (gpu,), fall.began_s) if turn.setting != "clock"]
    parameters = params(index=float(gpu.reading.index), clock_hz=clock.mean, clock_max_hz=clock.most)
    return CLOCK_FELL.finding(
        parameters=parameters | _fall_parameters(case, fall) | turn_parameters(turns),
        evidence=(*turns_evidence(case, turns), *_load_evidence(case, gpu, clock, busy, SLOT_S)),
        actions=actions_against(turns) or (INSPECT_GPU.action(index=float(gpu.reading.index)),),
        began_s=fall.began_s,
    )


def _fall_parameters(case: Case, fall: Change | None) -> Parameters:
    """The clock before it fell, and when that was, for a sentence; empty where it is not known to have fallen."""
    if fall is None:
        return {}
    return params(clock_before_hz=1.0 / fall.before, fell=wall_s(case, fall.began_s))


def _level_of_held_clock(case: Case, held: _HeldClock) -> Level:
    """A warning where somebody feels a setting that nobody needs; critical where the overload of an engine that makes
    its users wait for tens of seconds comes of it.

    Users feel it at each wave of their load: once felt, it is a warning for as long as it holds the clock.
    """
    is_felt = held.peers_wait or _is_felt(case)
    is_wrong = held.has_lowered_limit or held.cause is not POWER_LIMIT
    if not is_wrong or not (is_felt or _was_felt(case, held)):
        return Level.NOTE
    if is_felt and held.is_sure and is_slow(held.clock.mean, held.clock.most) and _is_hopeless(case):
        return Level.CRITICAL
    return Level.WARN


def _was_felt(case: Case, held: _HeldClock) -> bool:
    """Whether somebody felt this setting since the verdict on it stands."""
    verdict = case.stood.get(Family.STATE)
    return verdict is not None and verdict.cause == held.cause.code and verdict.level in URGENT


def _is_hopeless(case: Case) -> bool:
    """Whether users of an engine suffer so much that it is critical, and the GPU's own speed is what they wait for."""
    for engine in case.engines:
        engine_case = case.case_of(engine)
        if engine_case is None or not case.suffers(engine):
            continue
        # A full KV cache or batch waits for room, and memory bandwidth does not fall with the clock of the SMs.
        is_full = arithmetic_is_full(engine_case, engine_case.activity())
        if is_full and overload_is_hopeless(engine_case, engine):
            return True
    return False


def _is_worth_saying(case: Case, held: _HeldClock) -> bool:
    """Whether the clock is lowered by a setting, or so low that it matters; in the first minute a setting has to be
    sure."""
    is_explained = held.has_lowered_limit or (held.is_locked and held.peers_wait)
    if case.recent.seconds < MINUTE_S and not is_explained:
        return False
    if not held.is_told and _draws_its_limit(case):
        return False
    if held.has_lowered_limit or held.is_locked:
        return True
    return held.clock.mean < case.thresholds.clock_low_ratio * _clock_band(case) * held.clock.most


def _draws_its_limit(case: Case) -> bool:
    """Whether a GPU draws as much as its power limit allows, which then may hold its clock."""
    limit_w = finite(gpu_of(case).reading.power_limit_w)
    watts = finite(case.recent.mean("power_w", _window_s(case.recent)))
    return limit_w is not None and watts is not None and watts >= _AT_ITS_LIMIT * limit_w


def _clock_band(case: Case) -> float:
    """Factor of the thresholds of a clock: while the verdict stands it may rise a little further, unless it is on one
    that fell."""
    if Limit.THROTTLED in case.limits_before and _clock_fall(case, gpu_of(case)) is None:
        return 1.0 + _BAND
    return 1.0


def _held_clock(case: Case, gpu: Gpu) -> _HeldClock | None:
    """State of a loaded GPU's clock; None where there is nothing to look back for, as nearly always."""
    if _runs_freely(case, gpu):
        return None
    window_s = _window_s(case.recent)
    clock = _clock(case, gpu, window_s)
    busy = finite(case.recent.mean("busy_ratio", window_s))
    if clock is None or busy is None or case.recent.seconds < NOW_S:
        return None
    limit_w = finite(gpu.reading.power_limit_w)
    default_w = finite(gpu.reading.power_default_w)
    limit_before_w = _limit_before(case.recent, gpu)
    is_capped = _active_share(case.recent, POWER_CAP, window_s) > _MOST_OF_THE_TIME
    if not _is_loaded(case, busy) and not (is_capped and limit_before_w is not None):
        return None
    return _HeldClock(
        clock=clock,
        busy=busy,
        is_capped=is_capped,
        has_lowered_limit=bool(is_capped and limit_w and default_w and limit_w < _LOWERED * default_w),
        is_locked=not is_capped and _stands_low(case, clock),
        setting=_setting_cause(case.recent),
        peers_wait=any(_peers_wait(case, gpu, engine, clock, window_s) for engine in case.engines),
        limit_before_w=limit_before_w,
        is_told=gpu.is_told("throttle"),
    )


def _is_loaded(case: Case, busy: float) -> bool:
    """Whether a GPU with this share of busy time is loaded; one whose clock was low before is so a little longer."""
    band = _BAND if Limit.THROTTLED in case.limits_before else 0.0
    return busy >= case.thresholds.loaded_ratio * (1.0 - band)


def _runs_freely(case: Case, gpu: Gpu) -> bool:
    """Whether the newest clock gives no reason to look back: it is not known, or high and not capped."""
    newest_hz = finite(case.recent.last("sm_clock_hz"))
    most_hz = finite(gpu.reading.sm_clock_max_hz)
    if newest_hz is None or not most_hz:
        return True
    if Limit.THROTTLED in case.limits_before or newest_hz < case.thresholds.clock_locked_ratio * most_hz:
        return False
    return not case.recent.last(POWER_CAP)


def _setting_cause(recent: Recent) -> Cause | None:
    """Cause by a setting that the driver named most of the time."""
    for reason, cause in _SET_BY_SOMEBODY.items():
        if _active_share(recent, reason) > _MOST_OF_THE_TIME:
            return cause
    return None


def _limit_before(recent: Recent, gpu: Gpu) -> float | None:
    """The power limit before the one that is in force, where that is lower and was set while it was watched."""
    limit_w = finite(gpu.reading.power_limit_w)
    before_w = recent.previous("power_limit_w")
    return before_w if limit_w and before_w and limit_w < _LOWERED * before_w else None


def _stands_low(case: Case, clock: _Clock) -> bool:
    """Whether the clock of the last minute stood still, far below the highest; of samples that come seldom, that of the
    last minutes."""
    values = [value for _, value in case.recent.values("sm_clock_hz", MINUTE_S)]
    if len(values) < _LEAST_STILL:
        values = [value for _, value in case.recent.values("sm_clock_hz", KEPT_S)]
    is_still = len(values) >= _LEAST_STILL and max(values) - min(values) <= _STEADY * clock.most
    return is_still and clock.mean < case.thresholds.clock_locked_ratio * _clock_band(case) * clock.most


def _held_parameters(gpu: Gpu, held: _HeldClock) -> Parameters:
    """Figures of its sentence."""
    parameters = params(index=float(gpu.reading.index), clock_hz=held.clock.mean, clock_max_hz=held.clock.most)
    parameters |= params(untold=yes_if(not held.is_told))
    if held.is_capped:
        parameters |= params(limit_w=finite(gpu.reading.power_limit_w))
    if held.has_lowered_limit:
        parameters |= params(default_w=finite(gpu.reading.power_default_w))
    if held.is_capped and held.limit_before_w is not None:
        parameters |= params(before_w=held.limit_before_w)
    return parameters


def _unlock_action(gpu: Gpu, held: _HeldClock) -> Action:
    """Action that gives the GPU its clock back."""
    index = float(gpu.reading.index)
    if held.cause is POWER_LIMIT:
        return RESTORE_POWER_LIMIT.action(index=index, watts=finite(gpu.reading.power_default_w))
    if not held.is_told:
        return INSPECT_GPU.action(index=index)
    return _FIXES.get(held.cause, RESET_LOCKED_CLOCKS).action(index=index)


def _peers_wait(case: Case, gpu: Gpu, engine: Engine, clock: _Clock, window_s: float) -> bool:
    """Whether other GPUs of the same tensor-parallel instance run at higher clocks in the same `window_s`: they wait
    for this one."""
    if engine.hardware.tp < 2:
        return False
    for peer in case.snapshot.gpus:
        if peer.reading.uuid == gpu.reading.uuid or engine.name not in peer.engines:
            continue
        peer_hz = case.gpu_mean(peer, "sm_clock_hz", window_s) or 0.0
        if peer_hz > clock.mean / _FAR_BELOW:
            return True
    return False


def _cooler_actions(case: Case, gpu: Gpu) -> Iterator[Action]:
    """The action to lower the power limit below what the GPU draws, so that its clock holds still; none if that is too
    low."""
    limit = finite(gpu.reading.power_limit_w)
    draw = finite(case.recent.mean("power_w", MINUTE_S))
    if not limit or not draw:
        return
    # A multiple of 10 W; products that lie a rounding error below one are that one.
    watts = math.floor(min(BELOW_DRAW * draw, _MOST_COOLER_SHARE * limit) / 10.0 + 1e-9) * 10.0
    if watts >= _LEAST_COOLER_SHARE * limit:
        yield LOWER_POWER_LIMIT.action(index=float(gpu.reading.index), watts=watts, limit_w=limit)
