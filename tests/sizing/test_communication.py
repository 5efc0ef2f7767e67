"""Exchanges between the GPUs of an instance, by hand-worked seconds and by DeepEP's own measurements."""

from __future__ import annotations

import math

import pytest

from gpumon.sizing.communication import (
    ALL_TO_ALL_HOPS,
    Fabric,
    all_to_all_s,
    delay_s,
    exchange_s,
    fabric_of,
    own_links,
    stages_delay_s,
    stages_s,
)
from gpumon.sources.packaged import gpu_catalogue, network_catalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.networks import HOST_STAGED_HOP_S, HOST_STAGED_TIMES
from tests.each_row import each_row
from tests.sizing.questions import KNOWN

GPUS = gpu_catalogue()
NETWORKS = network_catalogue()
H200 = GPUS.find("H200 SXM 141GB")
CARD = GPUS.find("GeForce RTX 4090")


def model(name: str) -> LlmSpec:
    spec = KNOWN.llm(name)
    assert spec is not None
    return spec


DENSE = model("meta-llama/Llama-3.1-405B-Instruct")
DEEPSEEK = model("deepseek-ai/DeepSeek-V3")


def fabric(gpu: str = "H200 SXM 141GB", gpus: int = 8, domain: int = 8, network: str = "InfiniBand") -> Fabric:
    return fabric_of(GPUS.find(gpu), gpus, domain, NETWORKS.find(network), NETWORKS)


def test_all_reduce_over_servers_is_bound_by_their_ports() -> None:
    """16 GPUs: 2 * 15/16 of 16 MB; 8 ports of 50 GB/s carry it side by side, NVLink each 450 GB/s alone."""
    sent = 2.0 * 15.0 / 16.0 * 16e6
    assert fabric().all_reduce_s(16, 16e6) == pytest.approx(max(sent / 450e9, sent / (8 * 50e9)))
    assert fabric().all_reduce_s(8, 16e6) == pytest.approx(2.0 * 7.0 / 8.0 * 16e6 / 450e9)
    assert fabric().all_reduce_s(1, 16e6) == 0.0
    slow = fabric(network="RoCE 100").all_reduce_s(16, 16e6)
    assert slow == pytest.approx(sent / (8 * 12.5e9))


def test_delay_of_a_tree_over_servers() -> None:
    """Up and down a tree over 2 servers: 2 hops of 5 us, of which the fitted cost of a layer has 0.52 us each."""
    assert fabric().all_reduce_delay_s(8) == 0.0
    assert fabric().all_reduce_delay_s(16) == pytest.approx(2.0 * (5.0 - 0.52) * 1e-6)
    assert fabric().all_reduce_delay_s(32) == pytest.approx(4.0 * (5.0 - 0.52) * 1e-6)
    assert delay_s(DENSE, fabric(), 16, 16) == pytest.approx(126 * 2 * 2.0 * (5.0 - 0.52) * 1e-6)


def test_bridged_pairs_go_on_over_pcie() -> None:
    """NVLink in pairs, PCIe 4 between the pairs of a server: two lanes of 31.5 GB/s."""
    pairs = fabric("A100 PCIe 80GB", gpus=4, domain=2)
    assert pairs.all_reduce_s(2, 1e6) == pytest.approx(1e6 / (GPUS.find("A100 PCIe 80GB").link_bytes_per_s))
    assert pairs.all_reduce_s(4, 1e6) == pytest.approx(1.5e6 / (2 * 31.5e9))


def test_no_link() -> None:
    alone = fabric_of(H200, 8, 8, None, NETWORKS)
    assert alone.all_reduce_s(8, 1.0) > 0.0
    with pytest.raises(ValueError, match="no link joins 16 GPUs"):
        alone.all_reduce_s(16, 1.0)


def test_cards_without_peer_to_peer_send_through_the_host() -> None:
    assert own_links(GPUS.find("GeForce RTX 4090")).tiers[0].link.bytes_per_s == 31.5e9 / HOST_STAGED_TIMES
    assert own_links(GPUS.find("L40S")).tiers[0].link.bytes_per_s == 31.5e9


@each_row(
    ("gpus", "dispatch_us", "combine_us"),
    [(16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)],
)
def test_all_to_all_beside_deepep(gpus: int, dispatch_us: float, combine_us: float) -> None:
    """128 tokens of each GPU to 8 experts and back; the first row was fitted to, the others were not."""
    bytes_s = 128 * all_to_all_s(DEEPSEEK, fabric(), 1, gpus) / DEEPSEEK.layers
    hops_s = delay_s(DEEPSEEK, fabric(), 1, gpus) / DEEPSEEK.layers
    assert hops_s == pytest.approx(2 * ALL_TO_ALL_HOPS * 5e-6)
    measured_s = (dispatch_us + combine_us) * 1e-6
    assert bytes_s + hops_s == pytest.approx(measured_s, rel=0.11)


def test_experts_of_one_server_are_reduced() -> None:
    """8 ranks of one GPU: one all-reduce of the tokens of all of them, no all-to-all."""
    ring = 2.0 * 7.0 / 8.0 * 8 * DEEPSEEK.hidden * 2.0 / 450e9
    assert exchange_s(DEEPSEEK, fabric(), 1, 8) == pytest.approx(DEEPSEEK.layers * ring)
    assert all_to_all_s(DEEPSEEK, fabric(), 1, 8) == 0.0


def test_ranks_on_pcie_wait_for_the_experts_of_each_other() -> None:
    """8 ranks of one GPU without NVLink: no all-reduce behind attention, one of three doublings behind the MLP."""
    links = own_links(CARD)
    tree_s = 2.0 * 3.0 * (HOST_STAGED_HOP_S - 0.52e-6)
    assert delay_s(DEEPSEEK, links, 1, 8) == pytest.approx(DEEPSEEK.layers * tree_s)
    assert delay_s(DEEPSEEK, links, 8, 8) == pytest.approx(2.0 * DEEPSEEK.layers * tree_s)


def test_stages_send_hidden_states_and_residual() -> None:
    """Two tensors of 16,384 elements of 2 bytes, each of 8 GPUs an eighth of it, to one more stage."""
    assert stages_s(DENSE, fabric(), 8, 2, 16) == pytest.approx(2 * 16_384 * 2.0 / 8 / 50e9)
    assert stages_s(DENSE, fabric(), 8, 1, 8) == 0.0
    assert stages_delay_s(fabric(), 2, 16) == pytest.approx(6.6e-6 + 5e-6)
    assert math.isclose(stages_delay_s(fabric(), 4, 8), 3 * (6.6e-6 + 0.52e-6))
