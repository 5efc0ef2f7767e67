"""A fleet from a Prometheus: `--prometheus` on the screen, and printed."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.config.load import Loaded
from gpumon.config.options import Options
from gpumon.config.schema import Config


def run_fleet(loaded: Loaded, options: Options) -> int:
    """The fleet's screen; returns the exit code. Raises ConfigError."""
    raise NotImplementedError


def print_fleet(config: Config, options: Options, form: str, write: Callable[[str | bytes], None]) -> int:
    """Print the fleet, `json` or `plain`, `options.count` times (0: until a signal); returns the exit code."""
    raise NotImplementedError
