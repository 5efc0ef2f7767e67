"""Columns of the tables of GPUs, engines and processes: the one place that has them all, from left to right.

A column of plain text is whole here. One with a bar, a level or a mark has only its name here: the table of its pane
draws it (`tui/gpu_table.py`, `tui/engine_table.py`, `tui/process_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.readings.format import (
    amount,
    count,
    engine_name,
    figure,
    quantile,
    rate,
    ratio,
    short,
    spans,
    two_digits,
    watts,
    whole,
)
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Process, Quantiles

T = TypeVar("T")
_NAME_CELLS: Final = 12
"""Cells of the name of an engine."""
ROOM_OF_HISTORY: Final = 62
"""Cells that the chart in a GPU's row keeps before there is a column more."""
ROOM_OF_COMMAND: Final = 32
"""Cells that the command of a process keeps before there is a column more."""


class TextColumn(msgspec.Struct, Generic[T], frozen=True):
    """A column of plain text in `width` cells, behind `gap` blanks."""

    name: str
    """Name that hides it, behind that of its pane: `engines.url`."""
    title: str
    width: int
    text: Callable[[T], str]
    is_left: bool = False
    """Whether it is flush left, as words are; figures are flush right."""
    gap: int = 1
    keep: int = 0
    """Cells that must stay free to its right for it to be shown."""
    fixed: bool = False
    """It cannot be hidden: a row is known by it."""


class DrawnColumn(msgspec.Struct, frozen=True):
    """A column that the table of its pane draws."""

    name: str
    fixed: bool = False
    """It cannot be hidden: a row is known by it, or it is the state of a GPU."""


class PaneColumns(msgspec.Struct, Generic[T], frozen=True):
    """All columns of a pane."""

    pane: str
    base: Sequence[TextColumn[T] | DrawnColumn]
    """Columns of every screen."""
    extra: Sequence[TextColumn[T] | DrawnColumn]
    """Columns that a wider screen adds, in this order."""
    behind: Sequence[str] = ()
    """Names of what the pane adds to the right of them, which can be hidden, too."""

    def can_be_hidden(self) -> Iterator[str]:
        """The names of the columns that can be hidden, from left to right."""
        for column in (*self.base, *self.extra):
            if not column.fixed:
                yield column.name
        yield from self.behind


def _link(gpu: Gpu) -> str:
    """Generation and lanes of the PCIe link, as trained now: `5x16`."""
    generation = gpu.pcie_generation
    lanes = gpu.pcie_width
    if isinstance(generation, Missing):
        return short(generation)
    if isinstance(lanes, Missing):
        return short(lanes)
    return f"{generation:.0f}x{lanes:.0f}"


GPU_COLUMNS: Final[PaneColumns[Gpu]] = PaneColumns(
    pane="gpus",
    base=(
        DrawnColumn("index", fixed=True),
        DrawnColumn("busy"),
        DrawnColumn("sm"),
        DrawnColumn("vram"),
        DrawnColumn("memory"),
        DrawnColumn("mfu"),
        DrawnColumn("mbu"),
        DrawnColumn("power"),
        DrawnColumn("temperature"),
        DrawnColumn("state", fixed=True),
    ),
    extra=(
        TextColumn("limit", GPU["power_limit_w"].short, 5, lambda gpu: watts(gpu.power_limit_w)),
        TextColumn("tensor", GPU["tensor_active_ratio"].short, 6, lambda gpu: ratio(gpu.tensor_active_ratio)),
        TextColumn("nvlink", GPU["nvlink_bytes_per_s"].short, 6, lambda gpu: amount(gpu.nvlink_bytes_per_s)),
        TextColumn("pcie", GPU["pcie_bytes_per_s"].short, 5, lambda gpu: two_digits(gpu.pcie_bytes_per_s)),
        TextColumn("tok_j", GPU["tokens_per_j"].short, 5, lambda gpu: figure(gpu.tokens_per_j)),
        TextColumn("clock", GPU["sm_clock_hz"].short, 5, lambda gpu: amount(gpu.sm_clock_hz)),
        TextColumn("engines", "engines", 24, lambda gpu: " ".join(gpu.engines), is_left=True, gap=2),
        TextColumn("mean", "busy mean", 9, lambda gpu: ratio(gpu.busy_mean_ratio), keep=ROOM_OF_HISTORY),
        TextColumn(
            "occupancy",
            GPU["sm_occupancy_ratio"].short,
            5,
            lambda gpu: ratio(gpu.sm_occupancy_ratio),
            keep=ROOM_OF_HISTORY,
        ),
        DrawnColumn("memory_temperature"),
        TextColumn("fan", GPU["fan_ratio"].short, 5, lambda gpu: ratio(gpu.fan_ratio), keep=ROOM_OF_HISTORY),
        TextColumn("link", "link", 5, _link, keep=ROOM_OF_HISTORY),
        TextColumn("energy", GPU["energy_j"].short, 6, lambda gpu: amount(gpu.energy_j, "J"), keep=ROOM_OF_HISTORY),
        TextColumn(
            "name",
            "name",
            24,
            lambda gpu: gpu.name.removeprefix("NVIDIA "),
            is_left=True,
            gap=2,
            keep=ROOM_OF_HISTORY,
        ),
    ),
    behind=("history",),
)
"""Columns of the table of GPUs."""


def other_quantile(quantiles: Quantiles, value: Reading) -> str:
    """Text of another quantile than the p95."""
    return quantile(Quantiles(p95=value, first_bound_s=quantiles.first_bound_s))


ENGINE_COLUMNS: Final[PaneColumns[Engine]] = PaneColumns(
    pane="engines",
    base=(
        TextColumn(
            "engine",
            "engine",
            _NAME_CELLS,
            lambda engine: engine_name(engine.name, _NAME_CELLS),
            is_left=True,
            fixed=True,
        ),
        DrawnColumn("model"),
        TextColumn("running", ENGINE["running"].short, 4, lambda engine: whole(engine.load.running)),
        DrawnColumn("waiting"),
        DrawnColumn("kv"),
        DrawnColumn("decode"),
        DrawnColumn("prefill"),
        DrawnColumn("ttft"),
        DrawnColumn("itl"),
        DrawnColumn("mfu"),
        DrawnColumn("mbu"),
    ),
    extra=(
        DrawnColumn("e2e"),
        TextColumn("queue", ENGINE["queue_s.p95"].short, 9, lambda engine: quantile(engine.latency.queue_s)),
        TextColumn("req_s", ENGINE["requests_per_s"].short, 5, lambda engine: rate(engine.rates.requests_per_s)),
        DrawnColumn("ttft_ok"),
        DrawnColumn("itl_ok"),
        TextColumn(
            "cached", ENGINE["cached_tokens_per_s"].short, 6, lambda engine: rate(engine.rates.cached_tokens_per_s)
        ),
        TextColumn("step_s", ENGINE["steps_per_s"].short, 6, lambda engine: rate(engine.rates.steps_per_s)),
        TextColumn("tok_j", GPU["tokens_per_j"].short, 5, lambda engine: figure(engine.efficiency.tokens_per_j)),
        TextColumn("context", ENGINE["context_tokens"].short, 7, lambda engine: count(engine.load.context_tokens)),
        TextColumn(
            "gpus",
            "gpus",
            8,
            lambda engine: spans(engine.hardware.gpus) or engine.hardware.gpu_type,
            is_left=True,
            gap=2,
        ),
        DrawnColumn("waste"),
        TextColumn("precision", "runs in", 7, lambda engine: engine.efficiency.precision, is_left=True),
        DrawnColumn("full_model"),
        TextColumn("version", "version", 8, lambda engine: engine.version, is_left=True, gap=2),
        TextColumn("power", "power", 5, lambda engine: watts(engine.hardware.power_w)),
        TextColumn("batch", ENGINE["batch"].short, 5, lambda engine: rate(engine.rates.batch)),
        TextColumn(
            "preempt_s", ENGINE["preemptions_per_s"].short, 9, lambda engine: rate(engine.rates.preemptions_per_s)
        ),
        TextColumn(
            "ttft_p50", "ttft p50", 8, lambda engine: other_quantile(engine.latency.ttft_s, engine.latency.ttft_s.p50)
        ),
        TextColumn(
            "ttft_p99", "ttft p99", 8, lambda engine: other_quantile(engine.latency.ttft_s, engine.latency.ttft_s.p99)
        ),
        TextColumn(
            "itl_p50", "itl p50", 7, lambda engine: other_quantile(engine.latency.itl_s, engine.latency.itl_s.p50)
        ),
        TextColumn(
            "itl_p99", "itl p99", 7, lambda engine: other_quantile(engine.latency.itl_s, engine.latency.itl_s.p99)
        ),
        TextColumn("flops", "FLOP/s", 6, lambda engine: amount(engine.efficiency.flops_per_s)),
        TextColumn("traffic", "B/s", 5, lambda engine: amount(engine.efficiency.bytes_per_s)),
        TextColumn("mfu_prefill", "mfu pre", 7, lambda engine: ratio(engine.efficiency.mfu_prefill_ratio)),
        TextColumn("mfu_decode", "mfu dec", 7, lambda engine: ratio(engine.efficiency.mfu_decode_ratio)),
        TextColumn("kv_tokens", "kv tokens", 9, lambda engine: count(engine.load.kv_pool_tokens)),
        TextColumn("url", "url", 21, lambda engine: engine.url, is_left=True, gap=2),
    ),
)
"""Columns of the table of engines."""


def _cpu(process: Process) -> str:
    """CPU in percent of one core, as top has it."""
    value = process.cpu_ratio
    if isinstance(value, Missing):
        return short(value)
    return f"{min(value, 99.99) * 100.0:.0f}%"


def _container(process: Process) -> str:
    """The container by its name, else its id; the start of its pod's uid where only that is known."""
    if process.container_name:
        return process.container_name
    if process.container or not process.pod:
        return process.container
    return f"pod {process.pod[:8]}"


def _pod(process: Process) -> str:
    """The pod by its name, else its uid; the Slurm job."""
    if process.job:
        return f"job {process.job}"
    return process.pod_name or process.pod


PROCESS_COLUMNS: Final[PaneColumns[Process]] = PaneColumns(
    pane="processes",
    base=(
        TextColumn("pid", "pid", 7, lambda process: str(process.pid), fixed=True),
        TextColumn("user", "user", 9, lambda process: process.user, is_left=True),
        DrawnColumn("gpus"),
        DrawnColumn("vram"),
        DrawnColumn("sm"),
        TextColumn(
            "engine", "engine", _NAME_CELLS, lambda process: engine_name(process.engine, _NAME_CELLS), is_left=True
        ),
    ),
    extra=(
        TextColumn("cpu", "cpu", 5, _cpu, keep=ROOM_OF_COMMAND),
        DrawnColumn("rss"),
        DrawnColumn("time"),
        TextColumn("container", "container", 12, _container, is_left=True, keep=ROOM_OF_COMMAND),
        TextColumn("pod", "pod or job", 24, _pod, is_left=True, keep=ROOM_OF_COMMAND),
        TextColumn("type", "type", 8, lambda process: process.type, is_left=True, keep=ROOM_OF_COMMAND),
    ),
    behind=("command",),
)
"""Columns of the table of processes."""
