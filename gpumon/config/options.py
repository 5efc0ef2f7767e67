"""Choices of the command line for this run only: everything that is no setting of the config."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True):
    """Choices of one run. Options that change a setting (`--interval`, `--no-discovery`, ...) are in `Config`."""

    nvml: bool = True
    """Read this host's GPUs (`--no-nvml`)."""
    demo: bool = False
    """Watch the simulated server instead of this host (`gpumon demo`, `--demo`)."""
    scenario: str = ""
    """Scenario of the simulated server (`--scenario`); empty: its ordinary day."""
    window_s: float = 2.0
    """Seconds between the two readings that `snapshot` takes its rates from; 0 takes one reading."""
    count: int = 0
    """Snapshots that `watch` prints; 0 is no end."""
    duration_s: float = 0.0
    """Seconds that `watch` runs; 0 is no end."""
    for_fleet: bool = False
    """A fleet's screen has started this gpumon and waits for verdicts (`watch --fleet`)."""
    config_file: str = ""
    """Path of the config file that was read; empty where there is none."""
