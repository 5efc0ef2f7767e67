"""Aphrodite: a fork of vLLM that writes vLLM's series under a prefix of its own.

Names: aphrodite/v1/metrics/loggers.py of aphrodite-engine/aphrodite-engine at b42eeec (April 2026).
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.sources.engines.adapter import NO_BODIES, Bodies, Form, Page, Row
from gpumon.sources.engines.vllm import CATCHES, OPTIONS, VllmAdapter
from gpumon.sources.exposition import Scan, Series

PREFIX: Final = "aphrodite:"
VLLM: Final = "vllm:"


class AphroditeAdapter(VllmAdapter):
    """One Aphrodite server, read as vLLM's."""

    kind = EngineKind.APHRODITE
    prefixes = (PREFIX,)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._renamed: dict[Series, Series] = {}
        """The series of the last page -> the same under vLLM's name."""

    @classmethod
    def claims(cls, page: Page) -> bool:
        """Whether vLLM would claim it, had it vLLM's names."""
        names = frozenset(name.replace(PREFIX, VLLM, 1) for name in page.names if name.startswith(PREFIX))
        return super().claims(page._replace(names=names))

    @property
    def wanted(self) -> frozenset[str]:
        """Names of vLLM's samples, under Aphrodite's prefix."""
        return frozenset(name.replace(VLLM, PREFIX, 1) for name in super().wanted)

    def read(
        self, scan: Scan, bodies: Bodies = NO_BODIES, part: str = "", started_wall_s: float = 0.0
    ) -> EngineReading:
        """The page as a reading, whose sources have the names that the page has."""
        renamed = {}
        values = {}
        for series, value in scan.values.items():
            own = self._renamed.get(series) or Series(series.name.replace(PREFIX, VLLM, 1), series.labels)
            renamed[series] = own
            values[own] = value
        self._renamed = renamed
        reading = super().read(scan._replace(values=values), bodies, part, started_wall_s)
        live = {name: source.replace(VLLM, PREFIX) for name, source in reading.live.items()}
        return msgspec.structs.replace(reading, live=live)


ENGINE: Final = Row(
    "Aphrodite",
    AphroditeAdapter,
    2242,
    version_path="/version",
    forms=(
        Form(
            EngineKind.APHRODITE,
            "Aphrodite",
            ("aphrodite run", "aphrodite serve", "aphrodite.entrypoints.openai.api_server"),
            OPTIONS,
            {"key": "APHRODITE_API_KEY"},
            positional=True,
            catches=CATCHES,
        ),
    ),
)
