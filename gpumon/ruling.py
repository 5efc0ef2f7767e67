"""The `rules` command: recording rules, alerts and a dashboard for a Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.config.options import Options
from gpumon.config.schema import Config


def rules_command(config: Config, options: Options, write: Callable[[str], None], *, dashboard: bool) -> int:
    """Print the rules, or the dashboard; returns the exit code. Raises ConfigError."""
    raise NotImplementedError
