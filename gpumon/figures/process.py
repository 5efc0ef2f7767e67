"""Figures of a process on a GPU."""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import ROOM_OF_COMMAND, Column, Figure, Figures
from gpumon.figures.unit import BYTES, SHARE

MOST_CORES: Final = 1e5
"""Cores of a host."""
PROCESS: Final = Figures(
    Figure("vram_bytes", BYTES, most=2.0**43, short="vram", name="VRAM", column=Column("vram", 30, sorts=True)),
    Figure("sm_ratio", SHARE, most=1.0, short="sm", name="SM", column=Column("sm", 40, sorts=True)),
    Figure(
        "cpu_ratio",
        SHARE,
        most=MOST_CORES,
        short="cpu",
        name="CPU",
        column=Column("cpu", 110, keep=ROOM_OF_COMMAND, sorts=True),
    ),
    Figure("rss_bytes", BYTES, most=2.0**50, short="rss", name="RSS", column=Column("rss", 120, keep=ROOM_OF_COMMAND)),
    Figure("children_cpu_ratio", SHARE, most=MOST_CORES),
)
"""Figures of a process on a GPU."""
