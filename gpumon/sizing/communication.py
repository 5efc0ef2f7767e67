"""Exchanges between the GPUs of an instance: all-reduces of TP, all-to-alls of experts, stages of a pipeline.

Groups of GPUs lie in tiers of links: an NVLink domain, PCIe of a server, a network between servers. Rates are peaks of
one GPU in one direction; the share of them that all-reduces reach is `accuracy.EngineEfficiency.link`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.networks import (
    HOST_STAGED_HOP_S,
    HOST_STAGED_TIMES,
    PEER_TO_PEER_HOP_S,
    LinkKind,
    Network,
    NetworkCatalogue,
    has_peer_to_peer,
)

ACTIVATION_BYTES: Final = 2.0
"""Bytes of an element that ranks exchange: engines do so at 16 bit."""
_DISPATCH_BYTES: Final = 1.0
"""Bytes of an element on its way to the experts, which engines send at 8 bit (DeepEP); back it has 16 bit."""
_STAGE_TENSORS: Final = 2.0
"""Tensors of the hidden size that a pipeline stage sends of each token: hidden states and the residual (vLLM)."""
_NVLINK_HOP_S: Final = 0.52e-6
"""Latency of a hop that the cost of a layer by TP, fitted on NVLink servers, has in it already (networks.csv)."""
_SEND_S: Final = 6.6e-6
"""Latency of a message beside its hop: base latency of NCCL's ring (NVIDIA/nccl src/graph/tuning.cc, baseLat)."""
ALL_TO_ALL_HOPS: Final = 9.0
"""Hops that one all-to-all between servers takes beside its bytes.

Fitted on DeepEP's low-latency kernels over 16 GPUs (docs/legacy.md: 128 tokens of 7,168, 8 experts, ConnectX-7: 118 us
there and 195 us back, of which 73 and 147 us are bytes); those over 32 to 256 GPUs come out 0 to 13% below theirs.
"""
_ALL_TO_ALLS: Final = 2.0
"""All-to-alls of a layer: to its experts, and back."""


class Tier(NamedTuple):
    """GPUs that one kind of link joins."""

    gpus: float
    """Most GPUs that it joins; infinite: of a network."""
    link: Network


class Fabric(msgspec.Struct, frozen=True):
    """Tiers of links between the GPUs that an instance may stand on, the innermost first; each joins whole groups of
    the one before."""

    tiers: tuple[Tier, ...]

    def tiers_of(self, gpus: int) -> Iterator[tuple[float, float, Tier]]:
        """For each tier that a group of so many GPUs crosses: GPUs that send side by side over it, groups that it
        joins, and the tier. ValueError where no link joins so many."""
        inside = 1.0
        for tier in self.tiers:
            if inside >= gpus:
                return
            yield inside, min(float(gpus), tier.gpus) / inside, tier
            inside = max(inside, tier.gpus)
        if inside < gpus:
            raise ValueError(f"no link joins {gpus} GPUs: network of [[server]] names the one between servers")

    def widest(self, gpus: int) -> Tier:
        """The tier that joins so many GPUs. ValueError where none does."""
        crossed = list(self.tiers_of(gpus))
        if not crossed:
            return self.tiers[0]
        return crossed[-1][2]

    def all_reduce_s(self, ranks: int, size_bytes: float) -> float:
        """Seconds that a ring all-reduce takes at the peak rates: the slowest tier, over all links side by side."""
        sent_bytes = 2.0 * (ranks - 1) / ranks * size_bytes  # by each rank, in both rounds
        return max((sent_bytes / (lanes * tier.link.bytes_per_s) for lanes, _, tier in self.tiers_of(ranks)), default=0)

    def all_reduce_delay_s(self, ranks: int) -> float:
        """Seconds that an all-reduce of any size takes beyond one over NVLink: a tree, up and down (NCCL's model)."""
        delay_s = 0.0
        for _, groups, tier in self.tiers_of(ranks):
            delay_s += 2.0 * math.log2(groups) * max(0.0, tier.link.hop_s - _NVLINK_HOP_S)
        return delay_s


def fabric_of(gpu: GpuSpec, server_gpus: int, domain: int, network: Network | None, known: NetworkCatalogue) -> Fabric:
    """The links of servers with such GPUs: NVLink inside domains of so many, PCIe beyond, then the network."""
    tiers = []
    if gpu.has_nvlink and domain > 1:
        inner = known.of_server(gpu)
        if inner is not None:
            tiers.append(Tier(domain, inner))
    if not tiers or domain < server_gpus:
        outer = known.over_pcie(gpu)
        if outer is not None and server_gpus > 1:
            tiers.append(Tier(server_gpus, outer))
    if network is not None:
        tiers.append(Tier(math.inf, network))
    return Fabric(tuple(tiers))


def own_links(gpu: GpuSpec) -> Fabric:
    """One tier of the GPU's own link, for instances of one server: NVLink, else PCIe, staged through the host where the
    driver has no peer-to-peer. ValueError where its rate is not known."""
    if gpu.link_bytes_per_s <= 0.0:
        raise ValueError(f"the link between {gpu.name} GPUs is not known")
    if gpu.has_nvlink:
        link = Network("NVLink", LinkKind.NVLINK, gpu.link_bytes_per_s, _NVLINK_HOP_S, source="")
    elif has_peer_to_peer(gpu):
        link = Network("PCIe", LinkKind.PCIE, gpu.link_bytes_per_s, PEER_TO_PEER_HOP_S, source="")
    else:
        rate = gpu.link_bytes_per_s / HOST_STAGED_TIMES
        link = Network("PCIe through host memory", LinkKind.PCIE, rate, HOST_STAGED_HOP_S, source="")
    return Fabric((Tier(math.inf, link),))


def exchange_s(llm: LlmSpec, fabric: Fabric, tp: int, expert_gpus: int) -> float:
    """Seconds that the all-reduces of one token of each rank take at the peak rates, all layers; 0 of a single GPU.

    A layer has two: behind attention among the ranks of a tensor-parallel group, and behind the MLP among the GPUs
    that share it. Where data-parallel ranks of one server share the experts, the second one has the tokens of all of
    them; over several servers engines use all-to-alls instead (`all_to_all_s`). ValueError where no link joins them.
    """
    token_bytes = llm.hidden * ACTIVATION_BYTES
    second_s = 0.0
    if not uses_all_to_all(fabric, tp, expert_gpus):
        second_s = fabric.all_reduce_s(expert_gpus, token_bytes * expert_gpus / tp)
    return llm.layers * (fabric.all_reduce_s(tp, token_bytes) + second_s)


def uses_all_to_all(fabric: Fabric, tp: int, expert_gpus: int) -> bool:
    """Whether experts of several data-parallel ranks are spread over servers."""
    return expert_gpus > tp and fabric.widest(expert_gpus).link.kind in (LinkKind.RDMA, LinkKind.TCP)


def all_to_all_s(llm: LlmSpec, fabric: Fabric, tp: int, expert_gpus: int) -> float:
    """Seconds that sending one token of each rank to its experts and back takes at the peak rate, all layers.

    Each goes to `experts_per_token` GPUs, those of its own server left out, whose links are many times as fast. DeepEP
    reaches the peak rate of its network.
    """
    if not uses_all_to_all(fabric, tp, expert_gpus):
        return 0.0
    lanes, _, tier = list(fabric.tiers_of(expert_gpus))[-1]
    outside_ratio = 1.0 - lanes / expert_gpus
    sent_bytes = llm.hidden * (_DISPATCH_BYTES + ACTIVATION_BYTES) * llm.experts_per_token * outside_ratio / tp
    return llm.layers * sent_bytes / tier.link.bytes_per_s


def delay_s(llm: LlmSpec, fabric: Fabric, tp: int, expert_gpus: int) -> float:
    """Seconds that the exchanges of a step take whatever their size, beyond those over NVLink, all layers."""
    if not uses_all_to_all(fabric, tp, expert_gpus):
        return llm.layers * (fabric.all_reduce_delay_s(tp) + fabric.all_reduce_delay_s(expert_gpus))
    hop_s = fabric.widest(expert_gpus).link.hop_s
    return llm.layers * (fabric.all_reduce_delay_s(tp) + _ALL_TO_ALLS * ALL_TO_ALL_HOPS * hop_s)


def stages_s(llm: LlmSpec, fabric: Fabric, tp: int, stages: int, gpus: int) -> float:
    """Seconds that sending one token from stage to stage takes at the peak rate; each GPU of a stage sends its part."""
    if stages == 1:
        return 0.0
    sent_bytes = _STAGE_TENSORS * llm.hidden * ACTIVATION_BYTES / tp
    return (stages - 1) * sent_bytes / fabric.widest(gpus).link.bytes_per_s


def stages_delay_s(fabric: Fabric, stages: int, gpus: int) -> float:
    """Seconds that the messages between the stages of one step take whatever their size."""
    if stages == 1:
        return 0.0
    return (stages - 1) * (_SEND_S + fabric.widest(gpus).link.hop_s)
