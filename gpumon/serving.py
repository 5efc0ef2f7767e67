"""The `serve-metrics` command: everything in the snapshot as OpenMetrics, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpumon.config.options import Options
from gpumon.config.schema import Config


def serve_command(config: Config, options: Options, environ: Mapping[str, str], write: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code. Raises ConfigError."""
    raise NotImplementedError
