"""The settings of a command: the config file, with the environment and the options above it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.commands.options import UsageError

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]
    from gpumon.config.environment import Override
    from gpumon.config.load import Loaded
    from gpumon.config.options import Options


class _SettingOption(NamedTuple):
    """An option that overrides a setting."""

    option: str
    path: tuple[str, ...]
    """Key path of the setting."""
    switch_value: bool | None = None
    """Value that a switch stands for; None: the option has a value of its own."""

    @property
    def name(self) -> str:
        """Name of the option in argparse's namespace."""
        return self.option.removeprefix("--").replace("-", "_")


_SETTING_OPTIONS: Final = (
    _SettingOption("--endpoint", ("endpoint",)),
    _SettingOption("--interval", ("general", "interval_s")),
    _SettingOption("--dcgm", ("dcgm", "url")),
    _SettingOption("--prometheus", ("prometheus", "url")),
    _SettingOption("--host", ("host",)),
    _SettingOption("--no-discovery", ("discovery", "enabled"), switch_value=False),
    _SettingOption("--ascii", ("general", "ascii"), switch_value=True),
    _SettingOption("--no-mouse", ("general", "mouse"), switch_value=False),
    _SettingOption("--theme", ("general", "theme")),
    _SettingOption("--listen", ("exporter", "listen")),
    _SettingOption("--detail", ("exporter", "detail"), switch_value=True),
    _SettingOption("--keep-days", ("recorder", "keep_days")),
    _SettingOption("--keep-gb", ("recorder", "keep_gb")),
)
_DEFAULTS: Final[Mapping[str, object]] = {
    "interval": None,
    "no_nvml": False,
    "host": None,
    "host_install": False,
    "host_wheels": None,
    "prometheus": None,
    "demo": False,
    "scenario": None,
    "window": 2.0,
    "count": 0,
    "duration": 0.0,
}
"""Values that `settings` takes for options which a command does not have."""


class Settings(NamedTuple):
    """Settings that a command works with."""

    loaded: Loaded
    options: Options


def _with_host_options(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of hosts without gpumon. Raises UsageError."""
    changes: dict[str, object] = {}
    if chosen.host_install:
        changes["install"] = True
    if chosen.host_wheels is not None:
        changes["wheels"] = chosen.host_wheels
    if not changes:
        return loaded
    if not loaded.config.host:
        raise UsageError("--host-install and --host-wheels: go with --host, or [[host]] of the config")
    from msgspec.structs import replace

    hosts = tuple(replace(host, **changes) for host in loaded.config.host)
    return replace(loaded, config=replace(loaded.config, host=hosts))


def settings(chosen: argparse.Namespace) -> Settings:
    """The config file with the environment and the options above it. Raises UsageError and ConfigError."""
    from gpumon.config.load import load
    from gpumon.config.options import Options

    chosen = argparse.Namespace(**{**_DEFAULTS, **vars(chosen)})
    if chosen.host and chosen.prometheus:
        raise UsageError("--host and --prometheus are two ways to the same screen: give one of them")
    loaded = load(chosen.config or "", os.environ, _overrides(chosen))
    loaded = _with_fleet_options(loaded, chosen)
    loaded = _with_host_options(loaded, chosen)
    if chosen.scenario and not chosen.demo:
        raise UsageError("--scenario is for the simulated server: add --demo")
    options = Options(
        nvml=not chosen.no_nvml,
        demo=chosen.demo,
        scenario=chosen.scenario or "",
        window_s=chosen.window,
        count=chosen.count,
        duration_s=chosen.duration,
        config_file=loaded.file,
    )
    return Settings(loaded, options)


def _overrides(chosen: argparse.Namespace) -> list[Override]:
    """The settings that options stand for. A command has only some of the options. Raises ConfigError."""
    from gpumon.config.environment import from_text

    overrides = []
    values = vars(chosen)
    for setting in _SETTING_OPTIONS:
        value = values.get(setting.name)
        if value is None or value is False:  # the option is not there, or a switch that was not given
            continue
        if setting.switch_value is not None:
            value = setting.switch_value
        overrides.append(from_text(setting.option, setting.path, value))
    return overrides


def _with_fleet_options(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of a fleet."""
    from msgspec.structs import replace

    config = loaded.config
    if chosen.interval is not None:  # an interval also sets the fleet's, which is a second at least
        interval_s = max(1.0, config.general.interval_s)
        config = replace(config, prometheus=replace(config.prometheus, interval_s=interval_s))
    if chosen.prometheus:  # the option goes before [[host]] of the file
        config = replace(config, host=())
    return replace(loaded, config=config)
