"""Cost of one forward pass on given GPUs: FLOPs, bytes, seconds. The simulator's truth, from first principles."""

from __future__ import annotations

import math
from functools import cached_property

import msgspec

from gpumon.specs.units import MIB


class Chip(msgspec.Struct, frozen=True):
    """Peaks of one GPU: dense FLOP/s by number format, bytes/s and bytes of HBM."""

    name: str
    bf16_flops_per_s: float
    fp8_flops_per_s: float
    bytes_per_s: float
    memory_bytes: float
    sm_count: int
    """Streaming multiprocessors."""
    sm_clock_hz: float
    """Highest clock of the SMs."""
    memory_clock_hz: float
    memory_bus_bits: int
    power_limit_w: float
    """Power limit as delivered."""
    nvlink: bool = True
    """Whether GPUs are joined by NVLink; without it tensor parallelism goes over PCIe."""
    pcie_generation: float = 5.0
    """PCIe generation of the slot."""
    fp32_flops_per_s: float = 66.9e12
    """Peak without tensor cores."""


_BYTES_16_BIT = 2.0
_BYTES_32_BIT = 4.0

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


class ModelShape(msgspec.Struct, frozen=True, dict=True):
    """Dimensions of a decoder-only model, and costs of a token that follow from them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Width of the MLP, or of one expert."""
    vocab: int
    """Number of tokens that the model knows."""
    weight_bytes: float
    """Bytes of one weight of the layers."""
    experts: int = 0
    """Routed experts of each layer; 0: the model is dense."""
    experts_per_token: int = 0
    wide_bytes: float = _BYTES_16_BIT
    """Bytes of an element of the LM head, the embedding table, the KV cache and the activations."""

    @cached_property
    def shared_params(self) -> float:
        """Number of weights of the layers that every token meets: attention, and the dense MLP or the router."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        if self.experts:
            beside_attention = self.hidden * self.experts  # the router
        else:
            beside_attention = 3 * self.hidden * self.intermediate  # gate, up and down projection
        return float(self.layers * (attention + beside_attention))

    @cached_property
    def expert_params(self) -> float:
        """Number of weights of one routed expert, summed up over all layers; 0 for a dense model."""
        if self.experts:
            return float(3 * self.hidden * self.intermediate * self.layers)
        return 0.0

    @cached_property
    def head_params(self) -> float:
        """Number of weights of the LM head (the embedding table has as many)."""
        return float(self.vocab * self.hidden)

    @cached_property
    def file_bytes(self) -> float:
        """Bytes of all weights in memory, embedding table included."""
        layer_params = self.shared_params + self.experts * self.expert_params
        # LM head and embedding table.
        return layer_params * self.weight_bytes + 2 * self.head_params * self.wide_bytes

    @cached_property
    def token_flops(self) -> float:
        """Matrix FLOPs of one token through the layers, without attention scores and LM head."""
        return 2.0 * (self.shared_params + self.experts_per_token * self.expert_params)

    @cached_property
    def score_flops(self) -> float:
        """FLOPs of one query token against one token in its context: QK and AV."""
        return 4.0 * self.layers * self.heads * self.head_dim

    @cached_property
    def kv_bytes(self) -> float:
        """Bytes of the keys and values of one token in all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * self.wide_bytes

    @cached_property
    def activation_bytes(self) -> float:
        """HBM bytes of one token's activations: about ten passes of the hidden state a layer, four of the MLP."""
        mlp_width = self.intermediate * max(1, self.experts_per_token)
        return self.wide_bytes * self.layers * (10 * self.hidden + 4 * mlp_width)

    @cached_property
    def _always_read_bytes(self) -> float:
        """Bytes of weights that every step reads: all but the routed experts and the embedding table."""
        return self.shared_params * self.weight_bytes + self.head_params * self.wide_bytes

    def weight_read_bytes(self, tokens: float) -> float:
        """Bytes of weights that a step over `tokens` tokens reads.

        Of a MoE those are the experts that at least one token is routed to: the expected number of them.
        """
        if not self.experts:
            return self._always_read_bytes
        unused_share = math.pow(1.0 - self.experts_per_token / self.experts, tokens)
        read_experts = self.experts * (1.0 - unused_share)
        return self._always_read_bytes + read_experts * self.expert_params * self.weight_bytes


class Speed(msgspec.Struct, frozen=True):
    """Speed of a model copy: shares of the peaks in its kernels, and the time of a step in which no kernel works."""

    flops_share: float
    """Share of the peak FLOP/s that a compute-bound kernel reaches."""
    bytes_share: float
    """Share of the peak bytes/s that a memory-bound kernel reaches."""
    step_overhead_s: float
    """Overhead of every step."""
    sequence_overhead_s: float
    """Overhead of a step for each of its sequences."""
    token_overhead_s: float = 0.0
    """Overhead of a step for each of its tokens: that of the all-reduces, which is large over PCIe."""


EXTRA_TRAFFIC = 0.05
"""HBM traffic beside weights, KV and activations (logits, sampling, norms, KV writes), as a share of weights and KV."""


class EngineStep(msgspec.Struct):
    """Sizes of one step: of its decoding sequences, and of the prefill chunks beside them, summed up."""

    decoding: int
    """Number of decoding sequences."""
    context_tokens: float
    """Tokens that the decoding sequences attend to, added up, themselves included."""
    chunk_tokens: int = 0
    """Tokens of the prefill chunks."""
    chunk_pairs: float = 0.0
    """Query-key pairs of the chunks: n * (cached + n / 2) each."""
    chunk_context_tokens: float = 0.0
    """Tokens whose KV the chunks read, cached ones and their own."""
    chunks: int = 0
    """Number of prefill chunks."""
    logits: int = 0
    """Number of sequences whose prefill ends here: the LM head runs for their last token."""
    verified: int = 1
    """Tokens of each decoding sequence that go through the model: with speculation the drafted ones, and one more."""

    @property
    def tokens(self) -> int:
        """Tokens that go through the layers."""
        return self.decoding * self.verified + self.chunk_tokens


class Cost(msgspec.Struct):
    """Cost of a step: FLOPs and bytes of the whole model copy (all its GPUs), and seconds."""

    flops: float
    weight_bytes: float
    kv_bytes: float
    dram_bytes: float
    """All HBM traffic: weights, KV, activations and the rest."""
    kernel_s: float
    """Time in which kernels work."""
    overhead_s: float
    """Time in which no kernel works."""
    memory_bound: bool
    """Whether reading memory takes longer than the arithmetic."""

    @property
    def seconds(self) -> float:
        """Duration of the step."""
        return self.kernel_s + self.overhead_s


class ModelCopy(msgspec.Struct, frozen=True, dict=True):
    """One copy of a model on `gpus` chips that work as one (tensor parallel)."""

    shape: ModelShape
    chip: Chip
    speed: Speed
    gpus: int

    @cached_property
    def peak_flops_per_s(self) -> float:
        """Dense peak of all chips in the format that the layers' arithmetic runs in."""
        if self.shape.weight_bytes == 1.0:
            return self.gpus * self.chip.fp8_flops_per_s
        if self.shape.weight_bytes == _BYTES_32_BIT:
            return self.gpus * self.chip.fp32_flops_per_s
        return self.gpus * self.chip.bf16_flops_per_s

    @cached_property
    def reached_flops_per_s(self) -> float:
        """FLOP/s of a compute-bound kernel."""
        return self.peak_flops_per_s * self.speed.flops_share

    @cached_property
    def reached_bytes_per_s(self) -> float:
        """Bytes/s of a memory-bound kernel."""
        return self.gpus * self.chip.bytes_per_s * self.speed.bytes_share

    def cost(self, step: EngineStep) -> Cost:
        """Cost of one step: the slower of arithmetic and memory, then the overhead."""
        shape = self.shape
        tokens = step.tokens
        flops = (
            shape.token_flops * tokens
            + 2.0 * shape.head_params * (step.decoding * step.verified + step.logits)
            + shape.score_flops * (step.context_tokens * step.verified + step.chunk_pairs)
        )
        weight_bytes = shape.weight_read_bytes(tokens)
        kv_bytes = shape.kv_bytes * (step.context_tokens + step.chunk_context_tokens)
        dram_bytes = (1.0 + EXTRA_TRAFFIC) * (weight_bytes + kv_bytes) + shape.activation_bytes * tokens
        compute_s = flops / self.reached_flops_per_s
        memory_s = dram_bytes / self.reached_bytes_per_s
        speed = self.speed
        overhead_s = (
            speed.step_overhead_s
            + speed.sequence_overhead_s * (step.decoding + step.chunks)
            + speed.token_overhead_s * tokens
        )
        return Cost(
            flops=flops,
            weight_bytes=weight_bytes,
            kv_bytes=kv_bytes,
            dram_bytes=dram_bytes,
            kernel_s=max(compute_s, memory_s),
            overhead_s=overhead_s,
            memory_bound=memory_s >= compute_s,
        )

    def growth_s(self, decoding: int, memory_bound: bool) -> float:
        """Seconds by which each pure decode step is longer than the one before: every sequence has one token more."""
        shape = self.shape
        if memory_bound:
            return (1.0 + EXTRA_TRAFFIC) * shape.kv_bytes * decoding / self.reached_bytes_per_s
        return shape.score_flops * decoding / self.reached_flops_per_s


LLAMA_70B = ModelShape(
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128256,
    weight_bytes=1.0,
)
LLAMA_8B = ModelShape(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=14336,
    vocab=128256,
    weight_bytes=2.0,
)
LLAMA_8B_FP32 = msgspec.structs.replace(LLAMA_8B, weight_bytes=_BYTES_32_BIT, wide_bytes=_BYTES_32_BIT)
QWEN_30B_A3B = ModelShape(
    layers=48,
    hidden=2048,
    heads=32,
    kv_heads=4,
    head_dim=128,
    intermediate=768,
    vocab=151936,
    weight_bytes=2.0,
    experts=128,
    experts_per_token=8,
)
