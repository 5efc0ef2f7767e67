"""A simulated training run: a data loader, steps that wait for it, and the page of metrics that its loop serves."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from gpumon.config.schema import Feed
from gpumon.demo.gpus import AverageWork, GpuPace
from gpumon.demo.physics import Chip, ModelShape
from gpumon.demo.server import NOT_FOUND, PageAnswer
from gpumon.readings.quantities import STEPS, TRAINED_TOKENS

DRAM_SHARE = 0.38
"""Share of the HBM peak that a training step keeps busy: activations and optimizer states."""
KERNEL_SHARE = 0.93
"""Share of a step in which kernels compute; the rest is all-gather and reduce-scatter that nothing hides."""
_BATCH_BYTES_PER_S = 2e7
"""PCIe traffic of a GPU that trains: its batches."""
_FLOPS_PER_PARAMETER = 6.0
"""FLOPs per parameter and token: 2 forward and 4 backward (Kaplan et al. 2020, section 2.1)."""


class Loader(msgspec.Struct, frozen=True):
    """A data loader: it reads shards of some batches, the next shard while the GPUs work on the last."""

    batches: int
    """Batches of a shard; each is the data of one step."""
    every_s: float
    """Time to read and decode a shard."""


class TrainingRun(msgspec.Struct, frozen=True):
    """A training run over some GPUs, sharded (FSDP)."""

    name: str
    shape: ModelShape
    chip: Chip
    gpus: tuple[int, ...]
    tokens_per_step: float
    """Tokens of one step on all GPUs together."""
    flops_share: float
    """Share of the peak while a step runs: its MFU where it waits for nothing."""
    vram_bytes: float
    """Bytes that the run holds on each GPU."""
    loader: Loader
    command: str = "sim:torchrun train.py"

    @property
    def params(self) -> float:
        """Weights that a token meets."""
        return self.shape.shared_params + 2 * self.shape.head_params

    @property
    def step_s(self) -> float:
        """Seconds of a step that waits for nothing."""
        peak = len(self.gpus) * self.chip.bf16_flops_per_s
        return _FLOPS_PER_PARAMETER * self.params * self.tokens_per_step / (peak * self.flops_share)

    def feed(self, url: str) -> Feed:
        """The run as a [[feed]] of the config, at a URL."""
        return Feed(
            url=url,
            name=self.name,
            phase="training",
            gpus=self.gpus,
            params_b=self.params / 1e9,
            quantities={STEPS: "train_steps_total", TRAINED_TOKENS: "train_tokens_total"},
        )


class SimulatedRun:
    """A `TrainingRun` on simulated time that begins at `start_s` (its wall time is `started_wall_s`)."""

    def __init__(self, run: TrainingRun, start_s: float, started_wall_s: float) -> None:
        self.run = run
        # As a `SimulatedEngine` has them: the page of a run always answers.
        self.up = True
        self.mute = False
        self.closed = False
        self._start_s = start_s
        self._at_s = start_s
        self._started_wall_s = started_wall_s
        self._begun_s = start_s + run.loader.every_s
        """Simulated time at which the step in progress began, or the next one will."""
        self.steps = 0
        """Number of finished steps."""
        self._busy_s = 0.0
        """Seconds that the finished steps took."""
        self._measured_busy_s = 0.0
        """Busy seconds at the last call of `works`."""
        self._measured_s = start_s
        """Simulated time of the last call of `works`."""
        self._clock = 1.0
        """Clock of its slowest GPU, for which the others wait, as a share of the highest."""

    def advance(self, to_s: float) -> None:
        """Work until `to_s`; a time that is past already changes nothing."""
        self._at_s = max(self._at_s, to_s)
        step_s = self.run.step_s / self._clock
        while self._begun_s + step_s <= self._at_s:
            self.steps += 1
            self._busy_s += step_s
            self._begun_s = max(self._begun_s + step_s, self._data_ready_s(self.steps))

    def works(self, pace: Callable[[int], GpuPace]) -> dict[int, AverageWork]:
        """Average work of each of its GPUs since the last call, at the clocks of then; `pace` gives those of now."""
        busy_s = self._busy_s + max(0.0, self._at_s - self._begun_s)
        seconds = self._at_s - self._measured_s
        busy_ratio = min(1.0, (busy_s - self._measured_busy_s) / seconds) if seconds > 0.0 else 0.0
        self._measured_busy_s = busy_s
        self._measured_s = self._at_s
        run = self.run
        # FSDP moves 2 bytes for each parameter three times a step: two all-gathers and a reduce-scatter.
        work_ratio = busy_ratio * self._clock
        moved_bytes = 3 * 2.0 * run.params * (len(run.gpus) - 1) / len(run.gpus)
        work = AverageWork(
            busy_ratio=busy_ratio,
            kernel_ratio=busy_ratio * KERNEL_SHARE,
            mfu_ratio=work_ratio * run.flops_share,
            flops_per_s=work_ratio * run.flops_share * run.chip.bf16_flops_per_s,
            dram_ratio=work_ratio * DRAM_SHARE,
            nvlink_bytes_per_s=work_ratio * moved_bytes / run.step_s,
            pcie_bytes_per_s=work_ratio * _BATCH_BYTES_PER_S,
        )
        self._clock = min(pace(gpu).clock for gpu in run.gpus)
        return dict.fromkeys(run.gpus, work)

    def answer(self, path: str) -> PageAnswer:
        """Answer of the loop's metrics server to GET `path`."""
        if path != "/metrics":
            return NOT_FOUND
        tokens = self.steps * self.run.tokens_per_step
        text = (
            f"# TYPE train_steps_total counter\ntrain_steps_total {self.steps}\n"
            f"# TYPE train_tokens_total counter\ntrain_tokens_total {tokens:.0f}\n"
            f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {self._started_wall_s}\n"
        )
        return PageAnswer(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())

    def _data_ready_s(self, step: int) -> float:
        """Simulated time at which the data of a step is there: with the shard that holds its batch."""
        loader = self.run.loader
        return self._start_s + (math.floor(step / loader.batches) + 1) * loader.every_s
