"""What the settings page can change: each setting's name, its steps or choices, how it is typed, and what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from msgspec.structs import fields

from gpumon.config.schema import Config
from gpumon.readings.format import period
from gpumon.tui.charts.series import SPANS_S
from gpumon.tui.control import INTERVALS_S

_TTFT_MS: Final = (100.0, 200.0, 300.0, 500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 5000.0, 10_000.0)
_ITL_MS: Final = (10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0)
_E2E_MS: Final = (1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0)
"""Steps of what is promised."""


class Setting(NamedTuple):
    """One line of the page."""

    section: str
    key: str
    group: str
    name: str
    means: str
    show: Callable[[Any], str]
    choices: tuple[Any, ...] = ()
    """In order; of numbers these are steps, and others may be typed."""
    read: Callable[[str], float | None] | None = None
    """A typed text as the value; ValueError where it is none. None: nothing is typed here."""
    later: bool = False
    """Takes effect when gpumon starts next."""
    pane: str = ""
    """The pane whose columns it hides."""

    @property
    def id(self) -> str:
        """What the line is known by."""
        return f"{self.section}.{self.key}{self.pane}"

    def value(self, config: Config) -> Any:
        """Its value; of columns only those of its pane."""
        value = getattr(getattr(config, self.section), self.key)
        return tuple(name for name in value if name.startswith(f"{self.pane}.")) if self.pane else value

    def typed(self, value: Any) -> str:
        """The value as it may be typed: nothing is rounded away."""
        return "" if value is None else f"{value:g}" if self.show is period else self.show(value)

    def stepped(self, value: Any, step: int) -> Any:
        """The value after (1) or before (-1) this one: of numbers the next step, of choices round in a circle."""
        if self.read is None:
            at = self.choices.index(value) if value in self.choices else -1 if step > 0 else 0
            return self.choices[(at + step) % len(self.choices)] if self.choices else value
        steps = [choice for choice in self.choices if choice is not None]
        if value is None:
            return steps[0] if step > 0 else None
        beyond = [choice for choice in steps if (choice - value) * step > 1e-9]
        if not beyond:
            return None if step < 0 and None in self.choices else value
        return min(beyond) if step > 0 else max(beyond)


def number(text: str, units: Mapping[str, float]) -> float:
    """`0.5`, `2 s`, `40ms`, `95 %` as a number; `units` are the factors of what may stand behind it, "" among them.

    Raises ValueError.
    """
    found = re.fullmatch(r"([0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)\s*(\D*)", text.strip())
    if found is None or found[2].lower() not in units:
        raise ValueError("must be a number")
    return float(found[1].replace(",", ".")) * units[found[2].lower()]


def _share(text: str) -> float:
    """Below 1, and as `1.0`, it is the share itself, as the config has it; `1` is in percent, as all with the sign."""
    value = number(text, {"": 1.0, "%": 1.0})
    itself = value < 1.0 or (value == 1.0 and not text.strip().isdigit())
    return value if itself and "%" not in text else round(value / 100.0, 6)


def _goal(text: str) -> float | None:
    if text.strip().lower() in ("", "none", "-", "–"):
        return None
    return number(text, {"": 1.0, "ms": 1.0, "s": 1000.0})


def _setting(
    section: str,
    key: str,
    group: str,
    name: str,
    means: str,
    *,
    steps: Sequence[float] = (),
    later: bool = False,
    pane: str = "",
) -> Setting:
    """How a field of the schema is shown, stepped and typed, by its type and the unit that its name ends with."""
    kind = _FIELDS[section][key]
    show: Callable[[Any], str] = str
    choices: tuple[Any, ...] = tuple(steps)
    read: Callable[[str], float | None] | None = None
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        show = (lambda value: f"°{value}") if key == "temperature_unit" else str
    elif kind is bool:
        choices, show = (False, True), lambda value: "yes" if value else "no"
    elif pane:
        show = lambda value: f"{len(value)} hidden" if value else "all shown"  # noqa: E731
    elif key.endswith("_s"):
        show, read = period, partial(number, units={"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0})
    elif key.endswith("_c"):
        show, read = (lambda value: f"{value:g}°C"), partial(number, units={"": 1.0, "c": 1.0, "°c": 1.0, "°": 1.0})
        choices = tuple(float(degrees) for degrees in range(30, 121))
    elif key.endswith("_ms"):
        show, read = (lambda value: "none" if value is None else f"{value:g} ms"), _goal
        choices = (None, *steps)
    elif key != "theme":
        show, read = (lambda value: f"{value * 100:g}%"), _share
        choices = tuple(percent / 100.0 for percent in range(1, 101))
    return Setting(section, key, group, name, means, show, choices, read, later, pane)


_FIELDS: Final = {
    table.name: {field.name: field.type for field in fields(table.type)}
    for table in fields(Config)
    if table.name in ("general", "prometheus", "screen", "levels", "goals")
}
_CRITICAL: Final = "Marked as critical from here on."
_SLOWER: Final = "slower engines are marked. Empty: no goal."
_OF_A_MACHINE: Final = (
    _setting(
        *("general", "interval_s", "readings", "GPUs every"),
        "Time between two readings of the GPUs, 0.25 s to 1 h. Shorter costs gpumon more CPU.",
        steps=INTERVALS_S,
    ),
    _setting(
        *("general", "engine_interval_s", "readings", "engines every"),
        "Time between two polls of an engine, 0.25 s to 1 h: each costs the engine's event loop 5 to 20 ms.",
        steps=INTERVALS_S,
        later=True,
    ),
)
_OF_A_FLEET: Final = (
    _setting(
        *("prometheus", "interval_s", "readings", "asked every"),
        "Time between two refreshes, 1 s to 1 h; more often than the targets are scraped shows nothing new.",
        steps=[seconds for seconds in INTERVALS_S if seconds >= 1.0],
    ),
)
_OF_BOTH: Final = (
    _setting(
        *("general", "theme", "screen", "theme"),
        "Colours of the screen. Your own go into themes/ beside the config.",
    ),
    _setting(
        *("screen", "glyphs", "screen", "charts drawn with"),
        "Characters of the charts; auto is braille where the terminal can show it.",
    ),
    _setting(
        *("general", "ascii", "screen", "ASCII only"),
        "Draw everything with ASCII characters; always so where the terminal has no UTF-8.",
    ),
    _setting(
        *("general", "mouse", "screen", "mouse"),
        "Take clicks and the wheel; `no` leaves them to the terminal, for selecting text.",
        later=True,
    ),
    _setting(
        *("screen", "memory_unit", "screen", "memory in"),
        "GiB are 2^30 bytes, as GPU tools show memory; GB are 10^9 bytes, as data sheets do.",
    ),
    _setting(
        *("screen", "temperature_unit", "screen", "temperatures in"),
        "Celsius or Fahrenheit. Levels are always set in Celsius.",
    ),
    _setting(
        *("screen", "span_s", "screen", "charts go back"),
        "How much time the charts show, 1 minute to 2 hours, typed in seconds.",
        steps=SPANS_S,
    ),
    *(
        _setting(
            *("screen", "hidden_columns", "screen", f"columns of {pane}"),
            f"Which columns pane {pane} shows where there is room for them.",
            pane=pane,
        )
        for pane in ("gpus", "engines", "processes")
    ),
    *(
        _setting("levels", key, "levels", name, means)
        for key, name, means in (
            ("vram_warn", "VRAM warning", "Marked from here on. Engines fill their pool on purpose, so this is high."),
            ("vram_critical", "VRAM critical", f"{_CRITICAL[:-1]}: the next allocation may fail."),
            ("kv_warn", "KV cache warning", "Above this, requests wait or are preempted soon."),
            ("kv_critical", "KV cache critical", _CRITICAL),
            ("temperature_warn_c", "temperature warning", "Data centre GPUs slow down at about 87 °C."),
            ("temperature_critical_c", "temperature critical", _CRITICAL),
            ("low_use", "low efficiency below", "A GPU that is busy with MFU and MBU both below this is marked."),
            ("low_use_busy", "low eff.: busy from", "How busy a GPU has to be for that mark."),
        )
    ),
    *(
        _setting("goals", key, "goals", name, f"Promised time {what}: {_SLOWER}", steps=steps)
        for key, name, what, steps in (
            ("ttft_p95_ms", "first token (p95)", "to the first token", _TTFT_MS),
            ("itl_p95_ms", "next token (p95)", "between two tokens", _ITL_MS),
            ("e2e_p95_ms", "whole answer (p95)", "for a whole answer", _E2E_MS),
        )
    ),
)
SETTINGS: Final[tuple[Setting, ...]] = (*_OF_A_MACHINE, *_OF_BOTH)
"""In the order of the page; the keys of the interval go through the steps of the first one."""
FLEET_SETTINGS: Final[tuple[Setting, ...]] = (*_OF_A_FLEET, *_OF_BOTH)
"""Those that change something on a fleet's screen, or on the screen of one of its hosts."""
