"""The catalogue of links between GPUs: every row, the names that find it, and the network that is usual with a GPU."""

from __future__ import annotations

import pytest

from gpumon.sources.packaged import gpu_catalogue, network_catalogue
from gpumon.specs.networks import HOST_STAGED_HOP_S, PEER_TO_PEER_HOP_S, LinkKind, parse_networks
from tests.each_row import each_row

KNOWN = network_catalogue()


def test_every_row_has_a_source_and_a_latency() -> None:
    for row in KNOWN.by_name.values():
        assert row.source
        assert 0.0 < row.hop_s < 1e-3
        assert (row.bytes_per_s > 0.0) == (row.kind in (LinkKind.RDMA, LinkKind.TCP))


@each_row(
    ("gpu", "network", "gb_per_s"),
    [
        ("H200 SXM 141GB", "InfiniBand NDR 400", 50.0),
        ("B200 SXM 180GB", "InfiniBand NDR 400", 50.0),
        ("A100 SXM4 80GB", "InfiniBand HDR 200", 25.0),
        ("Instinct MI300X", "InfiniBand NDR 400", 50.0),
        ("L40S", "RoCE 100", 12.5),
        ("GeForce RTX 4090", "RoCE 100", 12.5),
    ],
)
def test_usual_network(gpu: str, network: str, gb_per_s: float) -> None:
    usual = KNOWN.usual(gpu_catalogue().find(gpu))
    assert usual is not None
    assert (usual.name, usual.bytes_per_s) == (network, gb_per_s * 1e9)


@each_row(
    ("gpu", "link", "gb_per_s"),
    [
        ("H200 SXM 141GB", "NVLink", 450.0),
        ("L40S", "PCIe peer-to-peer", 31.5),
        ("GeForce RTX 4090", "PCIe through host memory", 31.5 / 2.6),
        ("RTX PRO 6000 Blackwell Server", "PCIe peer-to-peer", 63.0),
    ],
)
def test_link_of_a_server(gpu: str, link: str, gb_per_s: float) -> None:
    found = KNOWN.of_server(gpu_catalogue().find(gpu))
    assert found is not None
    assert found.name == link
    assert found.bytes_per_s == pytest.approx(gb_per_s * 1e9)


def test_hops_over_pcie_are_those_of_the_catalogue() -> None:
    assert KNOWN.by_name["pcie host"].hop_s == HOST_STAGED_HOP_S
    assert KNOWN.by_name["pcie p2p"].hop_s == PEER_TO_PEER_HOP_S


def test_names() -> None:
    assert KNOWN.find("infiniband").name == "InfiniBand NDR 400"
    assert KNOWN.find("EFA").name == "EFA 400"
    with pytest.raises(ValueError, match=r"unknown network 'NVLink': one of .*InfiniBand"):
        KNOWN.find("NVLink")
    with pytest.raises(ValueError, match=r"unknown network 'RoCE 40': one of .*RoCE 400"):
        KNOWN.find("RoCE 40")


@each_row(
    ("line", "fault"),
    [
        ("X,,rdma,50,5,,,", "line 2: name or source is empty"),
        ("X,,wifi,50,5,,data sheet,", "line 2: 'wifi' is not a valid LinkKind"),
        ("X,,rdma,fast,5,,data sheet,", "line 2: could not convert"),
    ],
)
def test_broken_rows(line: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_networks("name,other_names,kind,gb_per_s,hop_us,usual_nvlink_gbs,source,notes\n" + line)
