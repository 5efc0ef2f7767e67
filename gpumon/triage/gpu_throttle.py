"""Is a GPU held down? By heat, by the power supply, by its power limit, or by nobody who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import age, clock_utc
from gpumon.readings.snapshot import Confidence, Evidence, Gpu, Level, Limit
from gpumon.triage.engine_signals import finite, of_gpu, percent
from gpumon.triage.rule import Finding
from gpumon.triage.scene import AWAKE, Recent, Scene
from gpumon.triage.thresholds import Thresholds

WINDOW_S: Final = 60.0
REASONS: Final = "nvmlDeviceGetCurrentClocksEventReasons"
POWER_CAP: Final = "sw_power_cap"
FAR_BELOW: Final = 0.7
"""Clock, of the highest, below which a slowdown costs at least 30 % of the speed."""
GONE_S: Final = 20.0
"""Protection against heat comes and goes within seconds: after so long without it a slowdown is over."""
PAST_S: Final = 3.0
"""After so long without it the text says that it was."""
BAND: Final = 0.1
"""How far the share of a slowdown, the load and the clock may go back while it is told."""
COOLER: Final = (0.4, 0.7)
"""Least and most of the power limit in force that is advised against heat; between them what the GPU draws by now."""


class _Cause(NamedTuple):
    text: str
    action: str


_POWER: Final = (
    "the server's power supply sheds load: check its PSUs and their redundancy, cables and the rack's budget"
)
_COOLING: Final = (
    "check fans, airflow, inlet temperature and dust: nvidia-smi -q -d TEMPERATURE,PERFORMANCE -i {index}{cooler}"
)
SLOWDOWNS: Final[Mapping[str, _Cause]] = {
    "hw_thermal_slowdown": _Cause("heat (the hardware's own protection)", _COOLING),
    "hw_power_brake_slowdown": _Cause("the power brake", _POWER),
    "sw_thermal_slowdown": _Cause("heat (the driver keeps it below its limit)", _COOLING),
    "hw_slowdown": _Cause(
        "the hardware (heat or power, it does not say which)",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {index}; check cooling and power supply",
    ),
}
"""Clock event reasons that are faults, the most telling first: `hw_slowdown` comes along with the two above it."""
_SET: Final = {
    "applications_clocks_setting": "application clocks are set: nvidia-smi -i {index} -rac takes them back",
    "display_clock_setting": "display clocks hold it: no display belongs on a compute GPU",
    "sync_boost": "it waits for the slowest of its sync boost group: nvidia-smi -q -d PERFORMANCE, dcgmi group -l",
}
"""Reasons that somebody chose."""


def throttled(scene: Scene) -> Finding | None:
    """Clocks held down by a fault; else clocks far below the highest under load."""
    if scene.gpu is None or scene.gpu.mig_profile:
        return None
    band = 1.0 - (5.0 * BAND if Limit.THROTTLED in scene.near else 0.0)
    shares = {reason: _share(scene.recent, reason) for reason in SLOWDOWNS}
    told = [reason for reason, share in shares.items() if share > band * scene.thresholds.throttled_ratio]
    if told and (since_s := _past_s(scene.recent, told)) < GONE_S:
        return _slowed(scene, scene.gpu, told[0], shares, since_s)
    return _low_clock(scene, scene.gpu)


def slowed_by(recent: Recent, limits: Thresholds) -> str:
    """What a GPU was slowed down by in the last minute; empty: nothing."""
    shares = ((cause, _share(recent, reason)) for reason, cause in SLOWDOWNS.items())
    return next((cause.text.partition(" (")[0] for cause, share in shares if share > limits.throttled_ratio), "")


def _share(recent: Recent, reason: str) -> float:
    """Share of the last minute in which a clock event reason was active."""
    if recent.last(reason) == 0.0 and recent.steady_s(reason) >= min(WINDOW_S, recent.seconds):
        return 0.0
    return recent.mean(reason, WINDOW_S) or 0.0


def _past_s(recent: Recent, reasons: Sequence[str]) -> float:
    """For how long none of these has been active."""
    return min(0.0 if recent.last(reason) else recent.steady_s(reason) for reason in reasons)


def _slowed(scene: Scene, gpu: Gpu, reason: str, shares: Mapping[str, float], past_s: float) -> Finding:
    cause, over = SLOWDOWNS[reason], past_s >= PAST_S
    evidence = [
        Evidence(f"{name}: {percent(share)} of the last minute{_counted(gpu, name)}", REASONS, share)
        for name, share in shares.items()
        if share > 0.0
    ]
    temperature = finite(gpu.temperature_c)
    if temperature is not None:
        evidence.append(Evidence(f"{temperature:.0f} °C now", "NVML", temperature, of_gpu(gpu, "temp")))
    clock, busy = _clock(scene, gpu), finite(scene.recent.mean("busy_ratio", WINDOW_S))
    if clock is not None:
        evidence.append(_clock_evidence(gpu, *clock))
    if busy is not None:
        evidence.append(_busy(gpu, busy))
    evidence += _power(scene, gpu)
    cost, level = "", Level.WARN
    if busy is not None and busy < AWAKE:
        cost, level = ", but nothing runs on it", Level.NOTE
    elif over:
        cost = "" if clock is None else f"; {clock[2] / 1e9:.2f} of {clock[1] / 1e9:.2f} GHz now"
    elif clock is not None and busy is not None and busy >= scene.thresholds.loaded_ratio:
        cost = f", {clock[0] / 1e9:.2f} of {clock[1] / 1e9:.2f} GHz"
        level = Level.CRITICAL if clock[0] < FAR_BELOW * clock[1] else Level.WARN
    head = f"was slowed down until {clock_utc(scene.frame.wall_s - past_s)}" if over else "slowed down"
    action = _at(cause.action, gpu).replace("{cooler}", _cooler(scene, gpu))
    return Finding(f"{head} by {cause.text}{cost}", tuple(evidence), action, level)


def _low_clock(scene: Scene, gpu: Gpu) -> Finding | None:
    """A power limit at work is normal, unless it takes half of the clock."""
    limits, newest, most = scene.thresholds, finite(scene.recent.last("sm_clock_hz")), finite(gpu.sm_clock_max_hz)
    told = Limit.THROTTLED in scene.near
    ratio = limits.clock_low_ratio * (1.0 + BAND if told else 1.0)
    if newest is None or most is None or (newest >= ratio * most and not told):
        return None
    clock, busy = _clock(scene, gpu), finite(scene.recent.mean("busy_ratio", WINDOW_S))
    if clock is None or busy is None or scene.recent.seconds < WINDOW_S:
        return None
    if clock[0] >= ratio * clock[1] or busy < limits.loaded_ratio * (1.0 - BAND if told else 1.0):
        return None
    speed = f"clocks at {clock[0] / 1e9:.2f} of {clock[1] / 1e9:.2f} GHz under load"
    evidence = (
        _clock_evidence(gpu, *clock),
        _busy(gpu, busy),
        *_power(scene, gpu),
    )
    if _share(scene.recent, POWER_CAP) > 0.5:
        action = (
            "normal for a card with a small power limit under dense work; where the limit was lowered: nvidia-smi -q "
            f"-d POWER -i {gpu.index} shows the default, sudo nvidia-smi -i {gpu.index} -pl DEFAULT sets it"
        )
        return Finding(f"{speed}: its power limit holds it", evidence, action, Level.NOTE, Confidence.MEDIUM)
    for reason, action in _SET.items():
        if _share(scene.recent, reason) > 0.5:
            return Finding(f"{speed}: {reason}", evidence, _at(action, gpu), Level.NOTE, Confidence.MEDIUM)
    action = f"nvidia-smi -q -d CLOCK,PERFORMANCE -i {gpu.index}; nvidia-smi -i {gpu.index} -rgc lifts locked clocks"
    return Finding(f"{speed}, for no reason that the driver names", evidence, action, Level.NOTE, Confidence.MEDIUM)


def _clock(scene: Scene, gpu: Gpu) -> tuple[float, float, float] | None:
    """SM clock: its mean of the last minute, the highest, and the newest, in Hz."""
    mean_hz, most_hz = finite(scene.recent.mean("sm_clock_hz", WINDOW_S)), finite(gpu.sm_clock_max_hz)
    newest_hz = finite(scene.recent.last("sm_clock_hz"))
    return None if mean_hz is None or not most_hz else (mean_hz, most_hz, mean_hz if newest_hz is None else newest_hz)


def _busy(gpu: Gpu, busy: float) -> Evidence:
    return Evidence(f"busy {percent(busy)}, mean of 60 s", "nvmlDeviceGetUtilizationRates", busy, of_gpu(gpu, "busy"))


def _clock_evidence(gpu: Gpu, mean_hz: float, most_hz: float, newest_hz: float) -> Evidence:
    text = f"SM clock {mean_hz / 1e9:.2f} GHz, {percent(mean_hz / most_hz)} of its highest, mean of 60 s"
    text += f"; now {newest_hz / 1e9:.2f} GHz" if abs(newest_hz - mean_hz) >= 5e6 else ""
    return Evidence(text, "nvmlDeviceGetClockInfo", mean_hz, of_gpu(gpu, "clock"))


def _power(scene: Scene, gpu: Gpu) -> list[Evidence]:
    watts, limit = finite(scene.recent.mean("power_w", WINDOW_S)), finite(gpu.power_limit_w)
    if watts is None:
        return []
    text = f"{watts:.0f} W" if limit is None else f"{watts:.0f} of {limit:.0f} W"
    text += ", mean of 60 s"
    return [Evidence(text, "NVML", watts, of_gpu(gpu, "power"))]


def _counted(gpu: Gpu, reason: str) -> str:
    seconds = gpu.throttle_s.get(reason, 0.0)
    return f", {age(seconds)} since gpumon started" if seconds >= 1.0 else ""


def _cooler(scene: Scene, gpu: Gpu) -> str:
    """The power limit that it may hold without the clocks going up and down."""
    limit, draw = finite(gpu.power_limit_w), finite(scene.recent.mean("power_w", WINDOW_S))
    if not limit:
        return ""
    least, most = (share * limit for share in COOLER)
    watts = round(min(max(most if draw is None else draw, least), most) / 10.0) * 10
    set_it = f"sudo nvidia-smi -i {gpu.index} -pl"
    back = f"-pl {limit:.0f} takes it back"
    return f"; until then a lower power limit keeps the clocks steady: {set_it} {watts}, and {back}"


def _at(action: str, gpu: Gpu) -> str:
    return action.replace("{index}", str(gpu.index))
