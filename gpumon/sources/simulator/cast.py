"""Who stands on the simulated stage: the GPU type, the engines with their models and traffic, the leftover process."""

from __future__ import annotations

import msgspec

from gpumon.sources.simulator.engine_model import Held, Limits
from gpumon.sources.simulator.gpus import Work
from gpumon.sources.simulator.kv_blocks import BLOCK_TOKENS
from gpumon.sources.simulator.physics import Chip, Instance, Shape, Speed
from gpumon.sources.simulator.traffic import Demand, Lengths

GIB = float(1 << 30)
MIB = float(1 << 20)

H100 = Chip(
    name="NVIDIA H100 80GB HBM3",
    bf16_flops_per_s=989.4e12,
    fp8_flops_per_s=1978.9e12,
    bytes_per_s=2619e6 * 2 * 5120 / 8,
    memory_bytes=81559 * MIB,
    sm_count=132,
    sm_clock_hz=1980e6,
    memory_clock_hz=2619e6,
    memory_bus_bits=5120,
    power_limit_w=700.0,
)
"""Peaks of the data sheet, dense; memory as nvidia-smi shows it."""
H100_PCIE = Chip(
    name="NVIDIA H100 PCIe",
    bf16_flops_per_s=756.5e12,
    fp8_flops_per_s=1513e12,
    bytes_per_s=1593e6 * 2 * 5120 / 8,
    memory_bytes=81559 * MIB,
    sm_count=114,
    sm_clock_hz=1755e6,
    memory_clock_hz=1593e6,
    memory_bus_bits=5120,
    power_limit_w=350.0,
    nvlink=False,
    pcie_generation=4.0,
)
"""The card, without NVLink bridges, in a server of the PCIe generation before its own."""


MAX_NUM_SEQS = 256
"""vLLM's default."""


class Actor(msgspec.Struct, frozen=True):
    """One simulated vLLM server. Each rank of it has its own GPUs, scheduler and share of the traffic."""

    name: str
    model: str
    """Served model name, and `root` in /v1/models."""
    shape: Shape
    speed: Speed
    ranks: tuple[tuple[int, ...], ...]
    """GPU indices of each data-parallel rank."""
    demand: Demand
    """Of one rank."""
    activation_gib: float
    other_gib: float
    """Memory per GPU of what is neither weights, KV nor activations: NCCL and CUDA buffers."""
    max_model_len: int
    max_num_seqs: int = MAX_NUM_SEQS
    max_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.9
    version: str = "0.32.0"
    user: str = "simulated"
    container: str = ""
    pod: str = ""
    chip: Chip = H100
    shares: tuple[float, ...] = ()
    """How the traffic falls on the data-parallel ranks, as factors; empty: evenly."""
    most_waiting: int = 0
    """Requests in the queue beyond which new ones are turned away; 0: none is."""
    held: Held | None = None
    """What keeps it from its steps on the host."""
    hidden: tuple[str, ...] = ()
    """Metrics that its page does not have."""

    @property
    def command(self) -> str:
        """The command line that started it."""
        parts = [
            "sim:vllm serve",
            self.model,
            f"--tensor-parallel-size {len(self.ranks[0])}" if len(self.ranks[0]) > 1 else "",
            f"--data-parallel-size {len(self.ranks)}" if len(self.ranks) > 1 else "",
            f"--max-model-len {self.max_model_len}",
            f"--max-num-batched-tokens {self.max_batched_tokens}",
            f"--max-num-seqs {self.max_num_seqs}" if self.max_num_seqs != MAX_NUM_SEQS else "",
        ]
        return " ".join(part for part in parts if part)

    @property
    def gpus(self) -> tuple[int, ...]:
        """All GPU indices."""
        return tuple(gpu for rank in self.ranks for gpu in rank)

    @property
    def instance(self) -> Instance:
        """The hardware and model of one rank."""
        return Instance(self.shape, self.chip, self.speed, len(self.ranks[0]))

    @property
    def kv_pool_bytes(self) -> float:
        """KV pool of one GPU: the share that vLLM may take, less weights, activations and the rest."""
        weights = self.shape.file_bytes / len(self.ranks[0])
        given = self.gpu_memory_utilization * self.chip.memory_bytes
        return given - weights - (self.activation_gib + self.other_gib) * GIB

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The traffic of each rank."""
        shares = self.shares or (1.0,) * len(self.ranks)
        rate = self.demand.requests_per_s
        return tuple(msgspec.structs.replace(self.demand, requests_per_s=rate * share) for share in shares)

    @property
    def limits(self) -> Limits:
        """What its scheduler may do. Data-parallel vLLM starts as many API servers as ranks."""
        block_bytes = BLOCK_TOKENS * self.shape.kv_bytes / len(self.ranks[0])
        blocks = int(self.kv_pool_bytes / block_bytes)
        return Limits(
            self.max_num_seqs,
            self.max_batched_tokens,
            self.max_model_len,
            blocks,
            len(self.ranks),
            self.most_waiting,
        )


class Leftover(msgspec.Struct, frozen=True):
    """A process that is no engine: it holds memory of a GPU, and does nothing where no work is given."""

    gpu: int
    name: str
    vram_bytes: float
    command: str = ""
    user: str = "simulated"
    work: Work = Work()


LLAMA_70B = Shape(80, 8192, 64, 8, 128, 28672, 128256, weight_bytes=1.0)
LLAMA_8B = Shape(32, 4096, 32, 8, 128, 14336, 128256, weight_bytes=2.0)
QWEN_30B_A3B = Shape(48, 2048, 32, 4, 128, 768, 151936, weight_bytes=2.0, experts=128, experts_per_token=8)

CAST: tuple[Actor, ...] = (
    # Chat and retrieval, healthy load: a TP4 step costs about 2 ms in launches and all-reduces.
    Actor(
        name="llama-70b",
        model="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
        shape=LLAMA_70B,
        speed=Speed(0.52, 0.78, 2.2e-3, 30e-6),
        ranks=((0, 1, 2, 3),),
        demand=Demand(
            requests_per_s=4.0,
            prompt=Lengths(1900.0, 0.8, 64, 12000),
            output=Lengths(400.0, 0.7, 16, 2048),
            swing=0.25,
            period_s=900.0,
            returning=0.6,
            hit_share=0.6,
        ),
        activation_gib=4.84,
        other_gib=0.55,
        max_model_len=32768,
        max_batched_tokens=2048,
    ),
    # An agent's model with few users at a time: memory bound at almost no arithmetic.
    Actor(
        name="qwen-moe",
        model="Qwen/Qwen3-30B-A3B",
        shape=QWEN_30B_A3B,
        speed=Speed(0.40, 0.78, 2.4e-3, 40e-6),
        ranks=((4,),),
        demand=Demand(
            requests_per_s=0.45,
            prompt=Lengths(700.0, 0.8, 32, 8000),
            output=Lengths(520.0, 0.7, 32, 4096),
            swing=0.5,
            period_s=700.0,
            phase=0.4,
            returning=0.3,
            hit_share=0.5,
        ),
        container="51b1a7ed0c0d",
        activation_gib=7.38,
        other_gib=0.13,
        max_model_len=32768,
    ),
    # Classification and extraction over long texts: two replicas that mostly read prompts.
    Actor(
        name="llama-8b",
        model="meta-llama/Llama-3.1-8B-Instruct",
        shape=LLAMA_8B,
        speed=Speed(0.62, 0.80, 0.7e-3, 20e-6),
        ranks=((5,), (6,)),
        demand=Demand(
            requests_per_s=4.6,
            prompt=Lengths(3000.0, 0.7, 128, 16000),
            output=Lengths(120.0, 0.6, 8, 1024),
            swing=0.3,
            period_s=1100.0,
            phase=0.7,
            returning=0.2,
            hit_share=0.4,
        ),
        container="51b1a7ed0b0b",
        pod="51b1a7ed-0000-4000-8000-00000000d1ce",
        activation_gib=4.76,
        other_gib=0.13,
        max_model_len=32768,
    ),
)

LEFTOVERS: tuple[Leftover, ...] = (
    Leftover(7, "sim:python", 38.4 * GIB, "sim:python train_lora.py --base Llama-3.1-8B --epochs 3 --rank 16"),
)
"""GPU 7: memory is taken, nothing runs."""
