"""Rows of the tables as they are painted, with the settings that a test wants."""

from __future__ import annotations

from typing import Any

from gpumon.config.schema import Config
from gpumon.readings.frame import GpuProcess
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.tui import engine_table, gpu_table, process_table
from gpumon.tui.line import Row
from gpumon.tui.table import Table
from gpumon.tui.view import View
from tests.tui import scenes

PLAIN = View(Config())
"""The default settings."""
TABLES: tuple[Table[Any], ...] = (gpu_table.TABLE, engine_table.TABLE, process_table.TABLE)


def seen(**settings: object) -> View:
    """Settings in effect, by section."""
    return View(Config(**settings))  # type: ignore[arg-type]


def gpu_row(gpu: Gpu, width: int = 80, view: View = PLAIN) -> Row:
    return gpu_table.gpu_row(gpu, width, view)


def engine_row(engine: Engine, width: int = 80, view: View = PLAIN) -> Row:
    return engine_table.engine_row(engine, width, view, scenes.WALL_S)


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def tone_of(row: Row, part: str) -> str:
    return next(tone for piece, tone in row if part in piece)


def process(pid: int = 4242, **fields: Any) -> GpuProcess:
    values: dict[str, Any] = {"vram_bytes": 70.0 * scenes.GIB, "sm_ratio": 0.6, "engine": "vllm:8000", "user": "llm"}
    values |= {"command": "python3 -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.3-70B"}
    values |= {"name": "python3", "container": "51b1a7ed0c0d"}
    return GpuProcess(pid=pid, **(values | fields))
