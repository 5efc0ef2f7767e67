"""The `web` command: the screen in a browser, through textual-serve."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gpumon.config.load import Loaded


def web_command(chosen: argparse.Namespace, loaded: Loaded, write: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code. Raises ConfigError."""
    raise NotImplementedError
