"""Pages to what is shown of them: probe, adapter, reading, deriver, snapshot, JSON, plain lines, rows of tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import pytest

from gpumon.config.schema import Config, Endpoint
from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.outputs.json import encode
from gpumon.outputs.plain import snapshot_lines
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, GpuState, HostReading
from gpumon.sources.attachment import left_out_by
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.fetch import FetchError, HttpAnswer
from gpumon.sources.file_views import view
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.sources.source import Contribution
from gpumon.specs.hints import hints_of
from gpumon.specs.llm import LlmSpec
from gpumon.tui import engine_table, gpu_table
from gpumon.tui.line import Row
from gpumon.tui.view import View
from tests.accuracy.hostile import EVERY_S, Poll
from tests.fakes.http_server import Reply
from tests.records import replace

URL: Final = "http://pages.invalid:8000"
"""A host that nobody can have: no page may come from elsewhere than the test."""
WIDTHS: Final = (80, 400)
"""Cells of the tables: the least, and one that has every column."""
NOWHERE: Final = {"HF_HOME": "/nonexistent", "HF_HUB_CACHE": "/nonexistent"}
TOLD: Final = "as the server tells it"


class Rig(NamedTuple):
    """What the engine runs on and what it serves."""

    name: str
    model: str = ""
    """Row of the catalogue; `TOLD`: what the pages say; empty: not known."""
    gpus: int = 0
    """GPUs of this host."""
    measured: bool = False
    """They have GPM."""
    remote: str = ""
    """GPU type on another host."""
    gpu: str = "NVIDIA H100 80GB HBM3"


RIGS: Final = (
    Rig("a dense model on one GPU", "meta-llama/Llama-3.1-8B-Instruct", gpus=1),
    Rig("experts on two GPUs with GPM", "Qwen/Qwen3-30B-A3B", gpus=2, measured=True),
    Rig("a latent cache on another host", "deepseek-ai/DeepSeek-V3", remote="H200 SXM 141GB"),
    Rig("what the pages tell", TOLD, gpus=1),
    Rig("no model", gpus=1),
    Rig("no GPU", "meta-llama/Llama-3.1-8B-Instruct"),
    Rig("a GPU that nobody knows", "meta-llama/Llama-3.1-8B-Instruct", gpus=1, gpu="Prototype X"),
)


class Shot:
    """One poll: what it became, and what is shown of it, which is made when it is looked at."""

    def __init__(self, readings: tuple[EngineReading, ...], derived: Derived, view: View, wall_s: float) -> None:
        self.readings = readings
        self.snapshot = derived.snapshot
        self.points: Mapping[str, float] = derived.points
        self._view = view
        self._wall_s = wall_s

    @cached_property
    def json(self) -> Any:
        """The snapshot's JSON, parsed."""
        return json.loads(encode(self.snapshot), parse_constant=_no_number)

    @cached_property
    def plain(self) -> str:
        """The plain lines."""
        return snapshot_lines(self.snapshot)

    @cached_property
    def rows(self) -> Mapping[str, tuple[str, ...]]:
        """Key of the engine, or uuid of the GPU -> its row of the table at each width."""
        rows = {}
        for engine in self.snapshot.engines:
            drawn = [engine_table.engine_row(engine, width, self._view, self._wall_s) for width in WIDTHS]
            rows[engine.key] = tuple(map(_text, drawn))
        for gpu in self.snapshot.gpus:
            rows[gpu.reading.uuid] = tuple(_text(gpu_table.gpu_row(gpu, width, self._view)) for width in WIDTHS)
        return rows

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], str]:
        """The same by column."""
        view = self._view
        cells = {}
        for column in engine_table.TABLE.columns(WIDTHS[-1], view.hidden):
            for engine in self.snapshot.engines:
                cells[engine.key, column.name] = _text(column.cell(engine, view, "text"))
        for column in gpu_table.TABLE.columns(WIDTHS[-1], view.hidden):
            for gpu in self.snapshot.gpus:
                cells[gpu.reading.uuid, column.name] = _text(column.cell(gpu, view, "text"))
        return cells


class Wire:
    """Hands over the answers of a poll as the fetcher does."""

    def __init__(self) -> None:
        self.poll: Poll = {}
        self.now_s = 0.0
        self.unverified = False

    async def get(self, url: str, key: str = "", most_bytes: int = 0) -> HttpAnswer:
        """The answer of a path. Raises FetchError where there is none."""
        reply = self.poll.get(url.removeprefix(URL), Reply(404, b"no"))
        if not reply.status:
            raise FetchError(EndpointState.REFUSED, "connection refused: is the server running?")
        assert isinstance(reply.body, bytes)
        return HttpAnswer(reply.status, reply.content_type, "", reply.body, self.now_s - 0.01, self.now_s)

    async def close(self) -> None:
        """There is nothing to close."""


class Polled(EndpointSource):
    """An endpoint that looks when it is told to, at pages that need no network."""

    def __init__(self, wire: Wire, wall_s: float) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gpumon.sources.endpoint.Fetcher", lambda *_, **__: wire)
            super().__init__(Endpoint(url=URL), EVERY_S, lambda: wire.now_s, wall=lambda: wall_s + wire.now_s)

    async def look(self, now_s: float) -> Contribution:
        """One poll, and what it is known by."""
        await self.scrape()
        if self._identity_task is not None:
            await self._identity_task
        return await self.poll(now_s)


class Chain:
    """One endpoint and the deriver, through poll after poll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rig: Rig, wall_s: float) -> None:
        self._loop = loop
        self._rig = rig
        self._wall_s = wall_s
        self._wire = Wire()
        self._source = Polled(self._wire, wall_s)
        self._deriver = Deriver(gpu_catalogue())
        self._view = View(Config())

    def run(self, polls: Sequence[Poll]) -> Iterator[Shot]:
        """What is shown after each poll."""
        for number, poll in enumerate(polls):
            self._wire.poll, self._wire.now_s = poll, float(number * EVERY_S)
            part = self._loop.run_until_complete(self._source.look(self._wire.now_s))
            yield self._shown(number, part)

    def _shown(self, number: int, part: Contribution) -> Shot:
        now_s = self._wire.now_s + 0.25
        gpus = tuple(_gpu(index, now_s, self._rig) for index in range(self._rig.gpus))
        readings = tuple(self._attached(reading, gpus) for reading in part.engines)
        wall_s = self._wall_s + now_s
        frame = Frame(number, wall_s, now_s, 1.0, HostReading(), gpus, readings, part.faults)
        return Shot(readings, self._deriver.derive(frame), self._view, wall_s)

    def _attached(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        rig = self._rig
        left_out_by(reading.info)
        return replace(
            reading,
            llm=_model(rig, reading),
            gpus=tuple(gpu.uuid for gpu in gpus),
            gpus_source="config" if gpus else "not known",
            gpu_type=rig.remote,
            gpu_count=8 if rig.remote else 0,
        )


def _text(row: Row) -> str:
    return "".join(text for text, _ in row)


def _no_number(text: str) -> float:
    raise AssertionError(f"{text} in the JSON")


def _model(rig: Rig, reading: EngineReading) -> LlmSpec | None:
    if rig.model != TOLD:
        return llm_catalogue().find(rig.model) if rig.model else None
    return _told(reading.model, reading.model_root, tuple(sorted(hints_of(reading.info).items())))


@lru_cache(maxsize=4096)
def _told(model: str, root: str, hints: tuple[tuple[str, str], ...]) -> LlmSpec | None:
    return look_up(model, root, (), llm_catalogue(), (view(NOWHERE),), dict(hints)).spec


def _gpu(index: int, now_s: float, rig: Rig) -> GpuReading:
    facts: dict[str, Any] = {"dram_active_ratio": 0.5, "sm_active_ratio": 0.6} if rig.measured else {}
    return GpuReading(
        index,
        f"GPU-{index}",
        rig.gpu,
        GpuState.OK,
        now_s,
        busy_ratio=0.9,
        memory_busy_ratio=0.5,
        vram_total_bytes=81559 * 2.0**20,
        vram_used_bytes=7e10,
        memory_clock_max_hz=2619e6,
        memory_bus_bits=5120.0,
        power_w=500.0,
        energy_j=1e6 + 500.0 * now_s,
        **facts,
    )
