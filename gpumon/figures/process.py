"""Figures of a process on a GPU."""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import ROOM_OF_COMMAND, Column, Figure, Figures
from gpumon.figures.unit import BYTES, SHARE

PROCESS: Final = Figures(
    Figure("vram_bytes", BYTES, short="vram", name="VRAM", column=Column("vram", 30, sorts=True)),
    Figure("sm_ratio", SHARE, short="sm", name="SM", column=Column("sm", 40, sorts=True)),
    Figure("cpu_ratio", SHARE, short="cpu", name="CPU", column=Column("cpu", 110, keep=ROOM_OF_COMMAND, sorts=True)),
    Figure("rss_bytes", BYTES, short="rss", name="RSS", column=Column("rss", 120, keep=ROOM_OF_COMMAND)),
    Figure("children_cpu_ratio", SHARE),
)
"""Figures of a process on a GPU."""
