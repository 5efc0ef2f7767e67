"""Ways to lay an instance over GPUs: TP, pipeline stages, data-parallel ranks with the experts spread over them.

The space is that of one server and of several: every TP of one NVLink domain; TP over two servers; stages of the
largest TP over up to eight; ranks of one GPU in a domain, and experts over up to four servers. Inside an NVLink domain
TP does what stages do, and is measured: stages are tried there only where the heads do not divide further. Over PCIe
both are tried. Context parallelism is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.efficiency.traffic import kv_stored_bytes
from gpumon.sizing import memory
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.networks import LinkKind, Network

MOST_STAGES: Final = 8
"""Pipeline stages, and servers of one pipeline, that are tried at most."""
_MOST_TP_SERVERS: Final = 2
"""Servers that a TP group is tried over."""
_MOST_EXPERT_SERVERS: Final = 4
"""Servers that the experts of one instance are tried over."""
_LEAST_NETWORK_BYTES_PER_S: Final = 25e9
"""Rate of a GPU's network from which TP and experts are tried over it: 200 Gb/s, by RDMA."""


class Layout(NamedTuple):
    """How an instance is split over its GPUs."""

    tp: int
    pp: int = 1
    dp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp * self.dp

    @property
    def text(self) -> str:
        """The layout in words: `TP 8 x PP 2`."""
        words = [f"TP {self.tp}"]
        if self.pp > 1:
            words.append(f"PP {self.pp}")
        if self.dp > 1:
            words.append(f"DP {self.dp}")
        return " x ".join(words)

    def kind(self, domain: int) -> tuple[bool, bool, bool]:
        """Kind of the layout, of which the cheapest is told beside the plan: beyond one domain, stages, ranks."""
        return self.gpus > domain, self.pp > 1, self.dp > 1


class Ground(NamedTuple):
    """The model of a workload and the servers that it is planned on."""

    llm: LlmSpec
    gpu: GpuSpec
    server_gpus: int
    domain: int
    """GPUs that NVLink joins."""
    network: Network | None
    """Between servers; None: nothing is known of one."""
    most_gpus: float
    """GPUs that there are; infinite: as many as it takes."""

    @property
    def is_network_fast(self) -> bool:
        """Whether TP and experts are tried over the network."""
        network = self.network
        if network is None or network.kind is not LinkKind.RDMA:
            return False
        return network.bytes_per_s >= _LEAST_NETWORK_BYTES_PER_S

    def held_requests(self, layout: Layout, context_tokens: float, usable_ratio: float, engine: str) -> float:
        """Requests of so many tokens that the KV caches of an instance hold, by the formula; below 1 where not even
        one per rank has room."""
        startup = memory.startup_of(self.gpu, engine)
        held_bytes = memory.pool_bytes(
            self.llm, self.gpu.memory_bytes, layout.gpus, usable_ratio, layout.dp, startup, layout.tp
        )
        request_bytes = kv_stored_bytes(self.llm, context_tokens, layout.tp)
        if request_bytes <= 0.0:
            return math.inf if held_bytes > 0.0 else 0.0
        running = held_bytes * KV_SHARE / request_bytes
        return running if running >= layout.dp else 0.0

    def tensor_parallels(self, most_gpus: int) -> list[int]:
        """Powers of two up to so many GPUs that engines split the model's heads over."""
        sizes = [1 << power for power in range(most_gpus.bit_length())]
        return [size for size in sizes if size <= most_gpus and not memory.tp_problem(self.llm, size)]


def layouts_of(ground: Ground) -> tuple[Layout, ...]:
    """All layouts that are tried, those of the fewest GPUs first."""
    layouts = dict.fromkeys((*_tensor_layouts(ground), *_stage_layouts(ground), *_expert_layouts(ground)))
    there = [layout for layout in layouts if layout.gpus <= ground.most_gpus]
    return tuple(sorted(there, key=lambda layout: (layout.gpus, layout.pp, layout.dp)))


def searched_text(layouts: Sequence[Layout]) -> str:
    """The sizes that were tried, as a plan says it: `TP 1 to 16, PP 2 to 8, DP 2 to 32`."""
    words = []
    for name, sizes in (
        ("TP", {layout.tp for layout in layouts}),
        ("PP", {layout.pp for layout in layouts} - {1}),
        ("DP", {layout.dp for layout in layouts} - {1}),
    ):
        if not sizes:
            continue
        least = min(sizes)
        most = max(sizes)
        words.append(f"{name} {least} to {most}" if most > least else f"{name} {least}")
    return ", ".join(words)


def _tensor_layouts(ground: Ground) -> Iterator[Layout]:
    """TP alone: of one domain, of one server over PCIe, and over servers where the network is fast."""
    most = ground.server_gpus
    if ground.is_network_fast and ground.domain == ground.server_gpus:
        most *= _MOST_TP_SERVERS
    for tp in ground.tensor_parallels(most):
        yield Layout(tp)


def _stage_layouts(ground: Ground) -> Iterator[Layout]:
    """Pipeline stages: of the largest TP of a domain, where that is NVLink; else of each TP of the server."""
    sizes = ground.tensor_parallels(ground.domain)
    if not sizes:
        return
    if ground.gpu.has_nvlink:
        sizes = sizes[-1:]
    stages = 2
    while stages <= min(MOST_STAGES, ground.llm.layers):
        for tp in sizes:
            if ground.network is not None or tp * stages <= ground.server_gpus:
                yield Layout(tp, stages)
        stages *= 2


def _expert_layouts(ground: Ground) -> Iterator[Layout]:
    """Data-parallel ranks that share experts: of one GPU in a domain; over servers of any TP where the network is
    fast. None of a dense model."""
    if not ground.llm.experts:
        return
    ranks = 2
    while ranks <= min(ground.domain, ground.llm.experts):
        yield Layout(1, dp=ranks)
        ranks *= 2
    if not ground.is_network_fast:
        return
    servers = 2
    while servers <= _MOST_EXPERT_SERVERS:
        gpus = servers * ground.server_gpus
        for tp in ground.tensor_parallels(ground.domain):
            if gpus % tp == 0 and gpus <= ground.llm.experts:
                yield Layout(tp, dp=gpus // tp)
        servers *= 2
