"""From where on a figure is warm, and from where on hot: one table, with the reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gpumon.config.schema import Config
from gpumon.readings.missing import Missing, Reading
from gpumon.tui.view import View

CALM: Final = "ok"
NOTE: Final = "note"
WARM: Final = "warn"
HOT: Final = "critical"
"""Tones of the levels. Bars and curves have the tone of calm, figures that are calm that of their row; above a note a
`!` stands behind the figure, which is what terminals without colours show."""
PLAIN_TONES: Final = ("text", "strong")
"""Tones of rows whose figures are coloured by their levels; a dim row stays dim."""
_NEVER_S: Final = 1e9
"""A latency that is never reached."""


class LevelBounds(msgspec.Struct, frozen=True):
    """The least value that is warm, and the least that is hot."""

    warm: float
    hot: float


_BOUNDS_OF_CONFIG: Final[dict[str, tuple[Config, LevelBounds]]] = {}
"""Name of a figure -> the settings that its bounds were worked out for, and these bounds."""


def _late_bounds(goal_ms: float | None, default_s: float) -> LevelBounds:
    """The bounds of a latency: its goal, else a default, and twice as much."""
    limit_s = goal_ms / 1e3 if goal_ms is not None else default_s
    return LevelBounds(warm=limit_s, hot=2.0 * limit_s)


def _late_gap_s(view: View) -> float:
    """Gap between two tokens from which it is late without a goal of its own; never where the TPOT has a goal."""
    if view.goals.tpot_p95_ms is not None:
        return _NEVER_S
    return view.config.triage.late_itl_s


LEVEL_BOUNDS: Final[dict[str, Callable[[View], LevelBounds]]] = {
    # [levels] of the config, whose schema has the reasons
    "vram": lambda view: LevelBounds(view.levels.vram_warn, view.levels.vram_critical),
    "kv": lambda view: LevelBounds(view.levels.kv_warn, view.levels.kv_critical),
    "temperature": lambda view: LevelBounds(view.levels.temperature_warn_c, view.levels.temperature_critical_c),
    # share of the limit: from here on the clock gives way; a reading above it is a spike, and nothing breaks by it
    "power": lambda _: LevelBounds(0.97, float("inf")),
    # one request that waits is seen; a queue as long as what runs doubles the time that everybody needs
    "waiting": lambda _: LevelBounds(0.5, float("inf")),
    # goals of the config, else where users wait (MLPerf Inference's limits); hot is twice as long
    "ttft": lambda view: _late_bounds(view.goals.ttft_p95_ms, view.config.triage.late_ttft_s),
    "itl": lambda view: _late_bounds(view.goals.itl_p95_ms, _late_gap_s(view)),
    "e2e": lambda view: _late_bounds(view.goals.e2e_p95_ms, _NEVER_S),
    # [triage] of the config: above it threads wait for each other
    "cpu": lambda view: LevelBounds(view.config.triage.cpu_high_ratio, 0.97),
    # one thread at its limit: usual, and by itself no harm
    "core": lambda view: LevelBounds(view.config.triage.core_high_ratio, float("inf")),
    # [triage]: one data loader of 16 cores that only waits is 6%; a third of all cores is a stuck file system
    "iowait": lambda view: LevelBounds(view.config.triage.iowait_high_ratio, 0.33),
    # [triage]: near its limit, though an NVMe may take more beside
    "disk": lambda view: LevelBounds(view.config.triage.disk_busy_ratio, float("inf")),
    # [triage]: above the second the kernel may soon kill a process
    "memory": lambda view: LevelBounds(
        view.config.triage.host_memory_tight_ratio, view.config.triage.host_memory_ratio
    ),
}


def level_of(name: str, view: View) -> LevelBounds:
    """The bounds of a figure in the settings of a view; worked out once for them."""
    remembered = _BOUNDS_OF_CONFIG.get(name)
    if remembered is not None and remembered[0] is view.config:
        return remembered[1]
    bounds = LEVEL_BOUNDS[name](view)
    _BOUNDS_OF_CONFIG[name] = (view.config, bounds)
    return bounds


def levels_in(view: View) -> dict[str, LevelBounds]:
    """The bounds of all figures in the settings of a view, by name."""
    return {name: level_of(name, view) for name in LEVEL_BOUNDS}


def tone_of(name: str, value: Reading, view: View, calm_tone: str = "text") -> str:
    """The tone of a figure by its level; `calm_tone` where it is calm, or not known."""
    if isinstance(value, Missing):
        return calm_tone
    level = level_of(name, view)
    if value < level.warm:
        return calm_tone
    if value < level.hot:
        return WARM
    return HOT


def is_high(tone: str) -> bool:
    """Whether a figure of this tone has a mark."""
    return tone in (WARM, HOT)
