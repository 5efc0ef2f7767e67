"""Lines of the settings page: each setting's name, its steps or choices, how it is typed, and what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from msgspec.structs import fields

from gpumon.config.schema import Config
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import CELSIUS
from gpumon.readings.format import period
from gpumon.tui.charts.series import SPANS_S
from gpumon.tui.control import INTERVALS_S

_TTFT_MS: Final = (100.0, 200.0, 300.0, 500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 5000.0, 10_000.0)
_ITL_MS: Final = (10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0)
_E2E_MS: Final = (1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0)
"""Steps of the goals for latencies."""
_SAME_STEP: Final = 1e-9
"""Largest difference of two steps that are the same."""


class Setting(NamedTuple):
    """One line of the page."""

    section: str
    """Table of the config that has its field."""
    key: str
    """Name of the field."""
    group: str
    """Heading on the page that its line stands under."""
    name: str
    """Name on the page."""
    means: str
    """Meaning in a sentence or two."""
    show: Callable[[Any], str]
    """A value as text."""
    choices: tuple[Any, ...] = ()
    """In order; of numbers these are steps, and others may be typed."""
    read: Callable[[str], float | None] | None = None
    """A typed text as the value; ValueError where it is none. None: nothing is typed here."""
    later: bool = False
    """Whether it takes effect only when gpumon starts next."""
    pane: str = ""
    """The pane whose columns it hides."""

    @property
    def id(self) -> str:
        """Identity of the line."""
        return f"{self.section}.{self.key}{self.pane}"

    def value(self, config: Config) -> Any:
        """Its value; of columns only those of its pane."""
        value = getattr(getattr(config, self.section), self.key)
        if not self.pane:
            return value
        return tuple(name for name in value if name.startswith(f"{self.pane}."))

    def text_to_type(self, value: Any) -> str:
        """The value as it may be typed: nothing is rounded away."""
        if value is None:
            return ""
        if self.show is period:
            return f"{value:g}"
        return self.show(value)

    def value_beside(self, value: Any, step: int) -> Any:
        """The value after (1) or before (-1) this one: of numbers the next step, of choices round in a circle."""
        if self.read is None:
            return self._next_choice(value, step)
        if step > 0:
            return self._next_step(value)
        return self._step_before(value)

    def _next_choice(self, value: Any, step: int) -> Any:
        """The choice after (1) or before (-1) this one, round in a circle."""
        if not self.choices:
            return value
        if value in self.choices:
            place = self.choices.index(value) + step
        elif step > 0:
            place = 0
        else:
            place = -1
        return self.choices[place % len(self.choices)]

    def _next_step(self, value: Any) -> Any:
        """The next larger step; the first one after no value."""
        steps = [choice for choice in self.choices if choice is not None]
        if value is None:
            return steps[0]
        larger = [choice for choice in steps if choice - value > _SAME_STEP]
        return min(larger, default=value)

    def _step_before(self, value: Any) -> Any:
        """The next smaller step; no value before the first one, where that is a choice."""
        if value is None:
            return None
        smaller = [choice for choice in self.choices if choice is not None and value - choice > _SAME_STEP]
        if smaller:
            return max(smaller)
        if None in self.choices:
            return None
        return value


def _parse_number(text: str, units: Mapping[str, float]) -> float:
    """`0.5`, `2 s`, `40ms`, `95%` as a number; `units`: unit that may stand behind it (empty: none) -> its factor.

    Raises ValueError.
    """
    match = re.fullmatch(r"([0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)\s*(\D*)", text.strip())
    if match is None or match[2].lower() not in units:
        raise ValueError("must be a number")
    return float(match[1].replace(",", ".")) * units[match[2].lower()]


def _parse_share(text: str) -> float:
    """A typed share: `0.95`, `95` and `95%` are the same. `1.0` is all, as the config has it, and `1` is one percent.

    Raises ValueError.
    """
    value = _parse_number(text, {"": 1.0, "%": 1.0})
    is_share = value < 1.0 or (value == 1.0 and not text.strip().isdigit())
    if is_share and "%" not in text:
        return value
    return round(value / 100.0, 6)


def _parse_goal(text: str) -> float | None:
    """A typed goal in milliseconds; None where it is empty or `none`. Raises ValueError."""
    if text.strip().lower() in ("", "none", "-", "–"):
        return None
    return _parse_number(text, {"": 1.0, "ms": 1.0, "s": 1000.0})


def _percent(value: float) -> str:
    return f"{value * 100:g}%"


class _Form(NamedTuple):
    """How the values of one kind are shown and typed; each field is as that of a `Setting`."""

    show: Callable[[Any], str]
    choices: tuple[Any, ...] = ()
    read: Callable[[str], float | None] | None = None


_TEXT: Final = _Form(str)
_SWITCH: Final = _Form(lambda value: "yes" if value else "no", (False, True))
_COLUMNS: Final = _Form(lambda columns: f"{len(columns)} hidden" if columns else "all shown")
_SHARE: Final = _Form(_percent, tuple(percent / 100.0 for percent in range(1, 101)), _parse_share)
_BY_UNIT: Final[dict[str, _Form]] = {
    "_s": _Form(period, (), partial(_parse_number, units={"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0})),
    "_c": _Form(
        lambda degrees: f"{degrees:g}{CELSIUS.symbol}",
        tuple(float(degrees) for degrees in range(30, 121)),
        partial(_parse_number, units={"": 1.0, "c": 1.0, "°c": 1.0, "°": 1.0}),
    ),
    "_ms": _Form(lambda value: "none" if value is None else f"{value:g} ms", (None,), _parse_goal),
}
"""Form of a number by the unit that its name ends with; one without a unit is a share."""


def _form_of(kind: Any, key: str, pane: str) -> _Form:
    """The form of a field, by its type, else by its name."""
    if get_origin(kind) is Literal:
        if key == "temperature_unit":
            return _Form(lambda unit: f"°{unit}", get_args(kind))
        return _Form(str, get_args(kind))
    if kind is bool:
        return _SWITCH
    if pane:
        return _COLUMNS
    if key == "theme":
        return _TEXT
    for unit, form in _BY_UNIT.items():
        if key.endswith(unit):
            return form
    return _SHARE


def _make_setting(
    *,
    section: str,
    key: str,
    group: str,
    name: str,
    means: str,
    steps: Sequence[float] = (),
    later: bool = False,
    pane: str = "",
) -> Setting:
    """The setting of a field of the schema: its type, and the unit that its name ends with, say how it is shown,
    stepped and typed. `steps`: steps, or choices, beside those of its type."""
    form = _form_of(_TYPES_OF_FIELDS[section][key], key, pane)
    return Setting(
        section=section,
        key=key,
        group=group,
        name=name,
        means=means,
        show=form.show,
        choices=(*form.choices, *steps),
        read=form.read,
        later=later,
        pane=pane,
    )


def _level_settings(row: Figure, warning: str, critical: str = "Marked as critical from here on.") -> Iterator[Setting]:
    """Both levels of a figure, with what each means."""
    unit = "_c" if row.unit is CELSIUS else ""
    for level, key, means in (("warning", "warn", warning), ("critical", "critical", critical)):
        yield _make_setting(
            section="levels",
            key=f"{row.level}_{key}{unit}",
            group="levels",
            name=f"{row.name} {level}",
            means=means,
        )


_TYPES_OF_FIELDS: Final = {
    table.name: {field.name: field.type for field in fields(table.type)}
    for table in fields(Config)
    if table.name in ("general", "prometheus", "screen", "levels", "goals")
}
"""Table of the config -> its fields -> their types."""
_GOAL_MEANS: Final = "slower engines are marked. Empty: no goal."
_MACHINE_SETTINGS: Final = (
    _make_setting(
        section="general",
        key="interval_s",
        group="readings",
        name="GPUs every",
        means="Time between two readings of the GPUs, 0.25 s to 1 h. Shorter costs gpumon more CPU.",
        steps=INTERVALS_S,
    ),
    _make_setting(
        section="general",
        key="engine_interval_s",
        group="readings",
        name="engines every",
        means="Time between two polls of an engine, 0.25 s to 1 h: each costs the engine's event loop 5 to 20 ms.",
        steps=INTERVALS_S,
        later=True,
    ),
)
_FLEET_ONLY_SETTINGS: Final = (
    _make_setting(
        section="prometheus",
        key="interval_s",
        group="readings",
        name="asked every",
        means="Time between two refreshes, 1 s to 1 h; more often than the targets are scraped shows nothing new.",
        steps=[seconds for seconds in INTERVALS_S if seconds >= 1.0],
    ),
)
_COMMON_SETTINGS: Final = (
    _make_setting(
        section="general",
        key="theme",
        group="screen",
        name="theme",
        means="Colours of the screen. Your own go into themes/ beside the config.",
    ),
    _make_setting(
        section="screen",
        key="glyphs",
        group="screen",
        name="charts drawn with",
        means="Characters of the charts; auto is braille where the terminal can show it.",
    ),
    _make_setting(
        section="general",
        key="ascii",
        group="screen",
        name="ASCII only",
        means="Draw everything with ASCII characters; always so where the terminal has no UTF-8.",
    ),
    _make_setting(
        section="general",
        key="mouse",
        group="screen",
        name="mouse",
        means="Take clicks and the wheel; `no` leaves them to the terminal, for selecting text.",
        later=True,
    ),
    _make_setting(
        section="screen",
        key="memory_unit",
        group="screen",
        name="memory in",
        means="GiB are 2^30 bytes, as GPU tools show memory; GB are 10^9 bytes, as data sheets do.",
    ),
    _make_setting(
        section="screen",
        key="temperature_unit",
        group="screen",
        name="temperatures in",
        means="Celsius or Fahrenheit. Levels are always set in Celsius.",
    ),
    _make_setting(
        section="screen",
        key="span_s",
        group="screen",
        name="charts go back",
        means="How much time the charts show, 1 minute to 2 hours, typed in seconds.",
        steps=SPANS_S,
    ),
    _make_setting(
        section="screen",
        key="hide_clients",
        group="screen",
        name="hide clients",
        means="Leave the clients' addresses out of the page of an engine's requests.",
    ),
    *(
        _make_setting(
            section="screen",
            key="hidden_columns",
            group="screen",
            name=f"columns of {pane}",
            means=f"Which columns pane {pane} shows where there is room for them.",
            pane=pane,
        )
        for pane in ("gpus", "engines", "processes")
    ),
    *_level_settings(
        GPU["vram_used_bytes"],
        "Marked from here on. Engines fill their pool on purpose, so this is high.",
        "Marked as critical from here on: the next allocation may fail.",
    ),
    *_level_settings(ENGINE["kv_usage_ratio"], "Above this, requests wait or are preempted soon."),
    *_level_settings(GPU["temperature_c"], "Data centre GPUs slow down at about 87 °C."),
    _make_setting(
        section="levels",
        key="low_use",
        group="levels",
        name="low efficiency below",
        means="A GPU that is busy with MFU and MBU both below this is marked.",
    ),
    _make_setting(
        section="levels",
        key="low_use_busy",
        group="levels",
        name="low eff.: busy from",
        means="How busy a GPU has to be for that mark.",
    ),
    *(
        _make_setting(
            section="goals",
            key=key,
            group="goals",
            name=name,
            means=f"Promised time {what}: {_GOAL_MEANS}",
            steps=steps,
        )
        for key, name, what, steps in (
            ("ttft_p95_ms", "first token (p95)", "to the first token", _TTFT_MS),
            ("tpot_p95_ms", "per token (p95)", "per token of a request, on average", _ITL_MS),
            ("itl_p95_ms", "next token (p95)", "between two tokens", _ITL_MS),
            ("itl_mean_ms", "next token (mean)", "between two tokens, on average", _ITL_MS),
            ("e2e_p95_ms", "whole answer (p95)", "for a whole answer", _E2E_MS),
        )
    ),
)
SETTINGS: Final[tuple[Setting, ...]] = (*_MACHINE_SETTINGS, *_COMMON_SETTINGS)
"""In the order of the page; the keys of the interval go through the steps of the first one."""
FLEET_SETTINGS: Final[tuple[Setting, ...]] = (*_FLEET_ONLY_SETTINGS, *_COMMON_SETTINGS)
"""Settings of a fleet's screen, and of the screen of one of its hosts."""
