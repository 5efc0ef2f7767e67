"""Figures of a process on a GPU."""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import Figure, Figures
from gpumon.figures.unit import (
    BYTES,
    SHARE,
)

PROCESS: Final = Figures(
    Figure("vram_bytes", BYTES),
    Figure("sm_ratio", SHARE),
    Figure("cpu_ratio", SHARE),
    Figure("rss_bytes", BYTES),
    Figure("children_cpu_ratio", SHARE),
)
"""Figures of a process on a GPU."""
