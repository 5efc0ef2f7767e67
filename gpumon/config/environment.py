"""The environment variables that gpumon reads, and settings given as text by them or by options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from gpumon.config.errors import KeyPath, Refused, error_of_value
from gpumon.config.schema import Config
from gpumon.config.validate import allowed_values


class Override(msgspec.Struct, frozen=True):
    """One setting from elsewhere than the file. `origin` names it for the user: `GPUMON_INTERVAL`, `--interval`."""

    origin: str
    path: tuple[str, ...]
    value: Any
    """As TOML would have it; for `endpoint` a list of URLs."""


CONFIG_VARIABLES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "GPUMON_INTERVAL": (("general", "interval_s"), "seconds between two readings of the GPUs"),
    "GPUMON_ENGINE_INTERVAL": (("general", "engine_interval_s"), "seconds between two polls of an engine"),
    "GPUMON_THEME": (("general", "theme"), "name of the theme"),
    "GPUMON_ASCII": (("general", "ascii"), "1: use ASCII characters only"),
    "GPUMON_MOUSE": (("general", "mouse"), "0: do not capture the mouse"),
    "GPUMON_ENDPOINTS": (
        ("endpoint",),
        "URLs (or host:port) of the engines to poll, separated by spaces; replaces the file's",
    ),
    "GPUMON_DISCOVERY": (("discovery", "enabled"), "0: do not search for engines"),
    "GPUMON_DCGM": (("dcgm", "url"), "URL (or host:port) of a dcgm-exporter"),
    "GPUMON_PROMETHEUS": (("prometheus", "url"), "URL of a Prometheus: the screen shows its fleet"),
}
"""Variable -> setting and meaning. `GPUMON_CONFIG` names the file. Others that begin with GPUMON_ are not errors:
Kubernetes sets GPUMON_SERVICE_HOST and its like in every pod beside a service called gpumon."""

_BOOLEAN_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
"""Word -> what it says."""


def from_environment(environ: Mapping[str, str]) -> Iterator[Override]:
    """The settings that the environment overrides. An empty variable counts as not set. Raises ConfigError."""
    for variable, (path, _) in CONFIG_VARIABLES.items():
        text = environ.get(variable, "").strip()
        if text:
            value: str | list[str] = text.split() if path == ("endpoint",) else text
            yield from_text(variable, path, value)


def from_text(origin: str, path: tuple[str, ...], value: str | bool | list[str]) -> Override:
    """A setting given as text: numbers and yes/no words become what TOML would have. Raises ConfigError.

    Range and form are checked by `load`, which knows all settings.
    """
    kind = _type_of_setting(path)
    if isinstance(value, str) and str not in (kind, *get_args(kind)):
        value = _value_of_word(origin, value, kind, path)
    return Override(origin=origin, path=path, value=value)


def _type_of_setting(path: KeyPath) -> Any:
    """The type of a setting by its path, such as `("general", "interval_s")`."""
    kind: Any = Config
    for name in path:
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.name == name)
    return kind


def _value_of_word(origin: str, text: str, kind: Any, path: KeyPath) -> Any:
    """A number, or true or false, as TOML would have it. Raises ConfigError."""
    try:
        if kind is bool:
            return _BOOLEAN_WORDS[text.lower()]
        if text.isdecimal():
            return int(text)
        return float(text)
    except (KeyError, ValueError):
        allowed = "yes or no (1, 0, true, false, on, off)" if kind is bool else allowed_values(kind)
        raise error_of_value(origin, Refused(path, f"must be {allowed}", text)) from None
