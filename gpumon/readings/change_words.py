"""Two spans side by side in words: names of figures and settings, amounts, and what a difference is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST
from gpumon.readings import format as human
from gpumon.readings.before_after import FactChange, FigureChange, Judgement, SeenOn, ThingChange
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.verdict import Kind

ARROW: Final = "->"
_NO_FIGURE: Final = "-"
NOTHING_DIFFERS: Final = "nothing known was set differently"
"""Stands for the settings of a thing that are the same in both spans."""
_ROWS: Final = {row.flat_name: row for rows in (HOST, GPU, ENGINE) for row in rows.values() if row.name}
"""Code of a figure -> its row."""
FACT_NAMES: Final[Mapping[str, str]] = {
    "version": "version",
    "model": "model",
    "model_root": "model files",
    "weights": "weights",
    "kv_cache": "KV cache format",
    "gpu_type": "GPU type",
    "gpus": "GPUs",
    "tp": "tensor parallel",
    "pp": "pipeline stages",
    "ranks": "ranks",
    "slots": "request slots",
    "kv_pool": "KV pool tokens",
    "block_size": "KV block size",
    "memory_share": "memory share",
    "prefix_caching": "prefix caching",
    "sliding_window": "sliding window",
    "cpu_offload": "CPU offload GiB",
    "gpu_name": "GPU",
    "mig": "MIG profile",
    "power_limit": "power limit",
    "clock": "SM clock under load",
    "clock_limit": "highest SM clock",
    "memory_clock_limit": "highest memory clock",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes",
    "nvlinks": "NVLink count",
    "ecc": "ECC",
    "persistence": "persistence mode",
    "driver": "driver",
    "cuda": "CUDA",
    "replicas": "engines of this model that answer",
    "clock_reason": "throttle reason",
    "host_cpu": "CPU of the host in use",
    "cpu_pressure": "time in which tasks wait for a core",
    "prompt_tokens": "tokens of a prompt",
    "answer_tokens": "tokens of an answer",
    "cached": "prompt tokens from the prefix cache",
}
"""Setting -> its name."""
_HIDDEN_AT_ZERO: Final = frozenset(
    {"preemptions_per_s", "failures_per_s", "rejections_per_s", "acceptance_ratio", "cached_tokens_per_s"}
)
"""Figures that are left out where both sides are 0."""
_SAME_SHARE: Final = 0.03
"""Share of a figure up to which a difference within the noise is called `same`."""
_SAME_LOAD_RATIOS: Final = (0.95, 1.05)
"""Load ratios between these are called the same."""


def _money_text(value: Reading) -> str:
    """An amount of money; two digits below 0.1."""
    money = number(value)
    if money is None:
        return _NO_FIGURE
    if money == 0.0 or money >= 0.1:
        return f"{money:,.2f}"
    return f"{money:.2g}"


def _ratio_text(value: Reading) -> str:
    """A share as percent, with a decimal below 10%."""
    share = number(value)
    if share is None:
        return _NO_FIGURE
    if 0.0 < share < 0.0995:  # above this a decimal would be rounded to 10.0
        return f"{share * 100:.1f}%"
    return f"{share * 100:.0f}%"


def _clock_text(value: Reading) -> str:
    """A clock in MHz."""
    clock_hz = number(value)
    if clock_hz is None:
        return _NO_FIGURE
    return f"{clock_hz / 1e6:.0f} MHz"


def _gibibytes_text(value: Reading) -> str:
    """Bytes in GiB."""
    return f"{human.memory(value)} GiB"


def _celsius_text(value: Reading) -> str:
    """A temperature in degrees Celsius."""
    return f"{human.celsius(value)}°C"


_TEXT_BY_UNIT: Final[Mapping[str, Callable[[Reading], str]]] = {
    "ratio": _ratio_text,
    "s": human.seconds,
    "per_s": human.figure,
    "number": human.rate,
    "tokens_per_s": human.rate,
    "tokens_per_j": human.figure,
    "bytes_per_s": lambda value: human.amount(value, "B/s"),
    "bytes": _gibibytes_text,
    "w": human.watts,
    "c": _celsius_text,
    "hz": _clock_text,
    "money": _money_text,
}
"""Unit of a figure -> what writes it."""


def amount_text(unit: str, value: Reading) -> str:
    """A figure with its unit; `-` where it is missing."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return _NO_FIGURE
    return _TEXT_BY_UNIT[unit](value)


def before_text(figure: FigureChange) -> str:
    """The figure before; `>80s` where it may be longer."""
    return human.least_time(figure.before) if figure.before_is_least else amount_text(figure.unit, figure.before)


def after_text(figure: FigureChange) -> str:
    """The figure after; `>80s` where it may be longer."""
    return human.least_time(figure.after) if figure.after_is_least else amount_text(figure.unit, figure.after)


def figure_name(figure: FigureChange) -> str:
    """Name of a figure, with its goal where it is a share within one."""
    name = _ROWS[figure.code].full_name
    goal_s = number(figure.goal_s)
    if goal_s is None:
        return name
    return f"{name.removesuffix('in goal')}<= {human.seconds(goal_s)}"


def difference_text(figure: FigureChange) -> str:
    """`-38%`, `x2.1`, `+7 points`; `in noise`, or `same` where hardly anything differs; with `?` where the noise is not
    known; empty with one side. `>x2.1` and `<-38%` where one side may be longer."""
    before = number(figure.before)
    after = number(figure.after)
    if before is None or after is None:
        return ""
    if figure.judgement is Judgement.WITHIN_NOISE:
        is_least = figure.before_is_least or figure.after_is_least
        if abs(after - before) <= _SAME_SHARE * max(abs(before), abs(after)) and not is_least:
            return "same"
        return "in noise"
    text = _difference_words(figure.unit, before, after)
    if figure.after_is_least:
        text = f">{text}"
    elif figure.before_is_least:
        text = f"<{text}"
    if figure.judgement is Judgement.NOT_JUDGED:
        return f"{text} ?"
    return text


def _difference_words(unit: str, before: float, after: float) -> str:
    """How far two figures are apart: in points, in degrees, as a factor or in percent."""
    if unit == "ratio":
        return f"{(after - before) * 100:+.0f} points"
    if unit == "c":
        return f"{after - before:+.0f}°C"
    if before <= 0.0:
        return "from 0"
    ratio = after / before
    if ratio >= 2.0:
        return f"x{human.figure(ratio)}"
    return f"{(ratio - 1.0) * 100:+.0f}%"


def is_better(figure: FigureChange) -> bool | None:
    """Whether a change is an improvement; None for no change, and for figures that are neither good nor bad."""
    before = number(figure.before)
    after = number(figure.after)
    if figure.judgement is not Judgement.CHANGED or not figure.better or before is None or after is None:
        return None
    return (after > before) is (figure.better == "higher")


def effect_text(thing: ThingChange) -> str:
    """Figures that became better and worse: `better: TTFT p95 -99%; worse: power +9%`. Empty: none that can be better
    is judged."""
    better = []
    worse = []
    judged = [figure.judgement is not Judgement.NOT_JUDGED for figure in thing.figures if figure.better]
    for figure in thing.figures:
        has_improved = is_better(figure)
        words = f"{figure_name(figure)} {difference_text(figure)}"
        if has_improved is True:
            better.append(words)
        elif has_improved is False:
            worse.append(words)
    parts = []
    if better:
        parts.append(f"better: {', '.join(better)}")
    if worse:
        parts.append(f"worse: {', '.join(worse)}")
    if parts:
        return "; ".join(parts)
    if not any(judged):
        return ""
    what = "nothing" if all(judged) else "nothing that could be judged"
    return f"{what} became better or worse by more than its noise"


def is_shown(figure: FigureChange) -> bool:
    """Whether a figure is worth a line: rare ones are left out while both sides are 0."""
    return not (figure.code in _HIDDEN_AT_ZERO and figure.before == 0.0 and figure.after == 0.0)


def load_text(thing: ThingChange) -> str:
    """How the loads compare: `at 1.4 times the load (requests/s): latencies are not comparable`; empty: not known."""
    if thing.seen is not SeenOn.BOTH:
        return f"seen {thing.seen.value} only"
    ratio = number(thing.load_ratio)
    if ratio is None:
        if thing.kind is Kind.GPU:
            return ""
        return "no load is known on both sides"
    load = _load_name(thing)
    least, most = _SAME_LOAD_RATIOS
    if least <= ratio <= most:
        return f"at the same load ({load})"
    text = f"at {human.figure(ratio)} times the load ({load})"
    if thing.is_comparable:
        return text
    return f"{text}: latencies are not comparable"


def _load_name(thing: ThingChange) -> str:
    """The figure that the load is taken from; `offered requests/s` where it counts some that were turned away, too."""
    name = _ROWS[thing.load].full_name
    turned_away = any(figure.code == "rejections_per_s" and is_shown(figure) for figure in thing.figures)
    return f"offered {name}" if thing.load == "requests_per_s" and turned_away else name


def fact_text(change: FactChange, time_text: Callable[[str], str] = str) -> str:
    """A setting in words: `--max-num-seqs 64 -> 256`. `time_text` words the time of a restart (RFC 3339)."""
    addition = " (within a span)" if change.inside else ""
    if change.code == "started":
        return f"restarted {time_text(change.after)}{addition}"
    if change.code == "option":
        return f"{_option_text(change)}{addition}"
    return f"{FACT_NAMES[change.code]} {change.before} {ARROW} {change.after}{addition}"


def _option_text(change: FactChange) -> str:
    """An option of the command line that is another, or that is given on one side alone."""
    if not change.before:
        return f"{change.name} {_value_before_words(change.after)}(not given before)"
    if not change.after:
        return f"{change.name} {_value_before_words(change.before)}is not given any more"
    return f"{change.name} {change.before} {ARROW} {change.after}"


def _value_before_words(value: str) -> str:
    """The value of an option, with a blank behind; empty for a switch."""
    if value == "on":
        return ""
    return f"{value} "


def changed_figures(figures: Sequence[FigureChange]) -> list[FigureChange]:
    """The figures that differ by more than the noise."""
    return [figure for figure in figures if figure.judgement is Judgement.CHANGED]


def is_changed(thing: ThingChange) -> bool:
    """Whether a thing is worth a look: seen on one side only, another load, another setting, a figure that changed.

    An engine or a host with figures of which none could be judged is, too: that nothing changed is not known.
    """
    if thing.seen is not SeenOn.BOTH or not thing.is_comparable or thing.changes:
        return True
    judgements = {figure.judgement for figure in thing.figures}
    if judgements == {Judgement.NOT_JUDGED} and thing.kind is not Kind.GPU:
        return True
    return Judgement.CHANGED in judgements
