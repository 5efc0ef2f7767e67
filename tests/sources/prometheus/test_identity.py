"""Ways to scrape and relabel, in a real Prometheus: every engine and GPU counts once, and nothing counts for two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gpumon.cli import main
from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.rows import by_host, by_model, total_row
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.sources.prometheus.naming_schemes import SCHEMES

EVERY_S: Final = 15.0
LONG_S: Final = 300.0
MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
Page = Callable[[float], bytes]


def engine(rate: float, started_s: float, model: str = MODEL) -> Page:
    """The page of a vLLM that has given `rate` tokens/s since its start."""

    def page(at_s: float) -> bytes:
        tokens = rate * (at_s - started_s)
        own = f'{{engine="0",model_name="{model}"}}'
        return (
            f"vllm:generation_tokens_total{own} {tokens}\n"
            f"vllm:prompt_tokens_total{own} {2.0 * tokens}\n"
            f"vllm:num_requests_running{own} 8\n"
            f"process_start_time_seconds {started_s}\n"
        ).encode()

    return page


def gpus(host: str, count: int, users: Mapping[int, str] = {}, held: Iterable[int] | None = None) -> Page:
    """The page of a dcgm-exporter; `users`: index -> labels of the pod on it; `held`: GPUs with memory in use."""
    holding = set(range(count) if held is None else held)

    def page(at_s: float) -> bytes:
        lines = []
        for index in range(count):
            own = f'gpu="{index}",UUID="GPU-{host}-{index}",modelName="NVIDIA H100 80GB HBM3",{users.get(index, "")}'
            own = own.rstrip(",")
            used = 70_000 if index in holding else 0
            lines += [
                f"DCGM_FI_DEV_GPU_UTIL{{{own}}} {90 if used else 0}",
                f"DCGM_FI_DEV_FB_USED{{{own}}} {used}",
                f"DCGM_FI_DEV_FB_FREE{{{own}}} {80_000 - used}",
                f"DCGM_FI_DEV_POWER_USAGE{{{own}}} {500 + at_s % 100:.0f}",
            ]
        return "\n".join(lines).encode()

    return page


class Told(NamedTuple):
    """What a fleet's rows and notices tell."""

    snapshot: FleetSnapshot
    notices: str

    @property
    def decode(self) -> object:
        return total_row(by_host(self.snapshot, {})).decode_tokens_per_s

    @property
    def engines(self) -> int:
        return total_row(by_model(self.snapshot, {})).engines

    def hosts(self) -> dict[str, tuple[int, int]]:
        """Host -> its GPUs and engines."""
        return {host.name: (len(host.snapshot.gpus), len(host.snapshot.engines)) for host in self.snapshot.hosts}


async def told(folder: Path, targets: Iterable[tuple[Mapping[str, str], Page]], **settings: Any) -> Told:
    """The fleet of these targets after two minutes."""
    now_s = time.time()
    store(folder, [Scraped(labels, page, now_s - LONG_S, now_s) for labels, page in targets], EVERY_S)
    with Prometheus(folder) as prometheus:
        source = FleetSource(Settings(url=prometheus.url, interval_s=EVERY_S, **settings))
        fleet = Fleet(deriver_maker(Config(), None))
        for number in range(9):
            fleet.take(await source.frame(now_s - 125.0 + 15.0 * number))
        await source.close()
    return Told(fleet.snapshot, " | ".join(fault.text for fault in fleet.snapshot.faults))


@pytest.mark.parametrize("label", ["region", "prometheus"])
@pytest.mark.parametrize("exporters", [True, False])
async def test_two_clusters_with_equal_addresses_are_two(tmp_path: Path, label: str, exporters: bool):
    began_s = time.time() - 5000.0
    targets: list[tuple[dict[str, str], Page]] = []
    for number, place in enumerate(("east", "west")):
        external = {label: place}
        targets.append(
            ({"job": "vllm", "instance": "10.0.0.5:8000", **external}, engine(425.0 * (number + 1), began_s))
        )
        if exporters:
            targets.append(({"job": "dcgm", "instance": "10.0.0.5:9400", **external}, gpus(place, 2)))
    fleet = await told(tmp_path, targets)
    assert fleet.decode == pytest.approx(1275.0, rel=0.01)
    rows = [row for host in fleet.snapshot.hosts for row in host.snapshot.engines]
    assert sorted(row.rates.decode_tokens_per_s for row in rows) == pytest.approx([425.0, 850.0], rel=0.01)
    assert len({(row.key, row.name) for row in rows}) == 2 or len(fleet.snapshot.hosts) == 2
    if exporters:
        assert sorted(fleet.hosts().values()) == [(2, 1), (2, 1)]
        assert f'add to [prometheus]: cluster_labels = ["{label}", "cluster"' in fleet.notices


async def test_an_engine_that_is_scraped_by_pod_and_by_service_is_one(tmp_path: Path):
    page = engine(850.0, time.time() - 5000.0)
    other = engine(100.0, time.time() - 5000.0)
    fleet = await told(
        tmp_path,
        [
            ({"job": "pods", "instance": "10.1.0.7:8000", "namespace": "chat", "pod": "llm-0", "node": "n1"}, page),
            ({"job": "services", "instance": "llm.chat.svc:8000", "namespace": "chat", "service": "llm"}, page),
            ({"job": "pods", "instance": "10.1.0.8:8000", "namespace": "chat", "pod": "llm-1", "node": "n1"}, other),
            ({"job": "dcgm", "instance": "10.1.9.9:9400", "node": "n1"}, gpus("n1", 2)),
        ],
    )
    assert fleet.decode == pytest.approx(950.0, rel=0.01)
    assert fleet.engines == 2
    assert list(fleet.hosts()) == ["n1"]
    assert "llm.chat.svc:8000" in fleet.notices


@pytest.mark.parametrize(
    "labels",
    [
        lambda n: {"instance": f"gpu-{n}:800{n}", "node": f"gpu-{n}"},
        lambda n: {"instance": f"10.0.0.{n}:8000"},
        lambda n: {"instance": f"gpu-{n}:8000"},
        lambda n: {"instance": f"10.0.0.1:800{n}"},
        lambda n: {"instance": f"10.0.0.{n}:8000", "namespace": "chat", "pod": f"llm-{n}"},
    ],
    ids=["nodes", "addresses", "names", "ports", "pods"],
)
async def test_engines_that_were_started_in_one_moment_and_do_the_same_are_not_one(
    tmp_path: Path, labels: Callable[[int], Mapping[str, str]]
):
    began_s = time.time() - 5000.0
    fleet = await told(tmp_path, [({"job": "vllm", **labels(n)}, engine(425.0, began_s)) for n in (1, 2)])
    assert (fleet.engines, fleet.decode) == (2, pytest.approx(850.0, rel=0.01))
    assert "each counts once" not in fleet.notices


async def test_two_engines_of_one_pod_do_not_both_have_all_its_gpus(tmp_path: Path):
    pod = {"namespace": "chat", "pod": "llm-0", "node": "n1"}
    users = dict.fromkeys(range(8), 'namespace="chat",pod="llm-0",container="main"')
    targets = [
        ({"job": "vllm", "instance": f"10.1.0.7:{port}", **pod, "container": "main"}, engine(425.0, time.time() - port))
        for port in (8000, 8001)
    ]
    fleet = await told(
        tmp_path, [*targets, ({"job": "dcgm", "instance": "10.1.9.9:9400", "node": "n1"}, gpus("n1", 8, users))]
    )
    (host,) = fleet.snapshot.hosts
    assert fleet.decode == pytest.approx(850.0, rel=0.01)
    for row in host.snapshot.engines:
        assert row.hardware.gpus != tuple(range(8))
        assert "several engines run in its pod" in row.hardware.gpus_source


async def test_a_label_with_visible_devices_tells_the_engines_of_one_pod_apart(tmp_path: Path):
    pod = {"namespace": "chat", "pod": "llm-0", "node": "n1", "container": "main"}
    users = dict.fromkeys(range(2, 6), 'namespace="chat",pod="llm-0",container="main"')
    targets = [
        (
            {"job": "vllm", "instance": f"10.1.0.7:{port}", "cuda_visible_devices": visible, **pod},
            engine(425.0, 1e9 + port),
        )
        for port, visible in ((8000, "0,1"), (8001, "2,3"))
    ]
    exporter = ({"job": "dcgm", "instance": "10.1.9.9:9400", "node": "n1"}, gpus("n1", 8, users))
    (host,) = (await told(tmp_path, [*targets, exporter])).snapshot.hosts
    assert {row.hardware.gpus for row in host.snapshot.engines} == {(2, 3), (4, 5)}


def apart() -> list[tuple[Mapping[str, str], Page]]:
    """Three machines whose engines and exporters no label that is known brings together."""
    scheme = SCHEMES["k8s_node_name against Hostname"]
    targets: list[tuple[Mapping[str, str], Page]] = []
    for number in range(1, 4):
        users = dict.fromkeys(range(2), scheme.page(number))
        targets.append(({"job": "vllm", **scheme.engine(number)}, engine(100.0 * number, time.time() - 999.0 * number)))
        targets.append(({"job": "dcgm", **scheme.exporter(number)}, gpus(f"m{number}", 2, users)))
    return targets


def test_the_doctor_prints_how_targets_are_named_and_what_is_not_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    targets = apart()
    targets.append(({"job": "node", "instance": "10.2.0.1:9100"}, lambda _: b"node_load1 1"))
    now_s = time.time()
    store(tmp_path, [Scraped(labels, page, now_s - 300.0, now_s + 300.0) for labels, page in targets], EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        assert main(["doctor", "--prometheus", prometheus.url]) == 0
    printed = capfd.readouterr().out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[0] == "host named by job instance read as GPUs"
    assert "gpu-01 Hostname (page) dcgm 10.2.0.1:9400 GPU exporter 2" in lines
    assert "10.1.0.1 instance vllm 10.1.0.1:8000 vllm ?" in lines
    assert "- 3 engines: no GPU is under the name of its host" in " ".join(printed.split())
    assert "node 1 targets not read" in lines
    assert 'host_labels = ["k8s_node_name", "node",' in " ".join(printed.split())


def test_the_doctor_says_that_an_engine_is_down_beside_its_kind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """It answered until two minutes ago, so that its kind is known."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    now_s = time.time()
    scraped = []
    for number, (labels, page) in enumerate(apart()):
        is_down = number == 0

        def page_at(at_s: float, page=page, is_down=is_down) -> bytes:
            return b"" if is_down and at_s > now_s - 120.0 else page(at_s)

        scraped.append(Scraped(labels, page_at, now_s - 600.0, now_s + 300.0))
    assert "vllm" in scraped[0].labels["job"]
    store(tmp_path, scraped, EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        main(["doctor", "--prometheus", prometheus.url])
    lines = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    kinds = [line for line in lines if scraped[0].labels["instance"] in line]
    assert kinds, lines
    assert any(" vllm, down" in line for line in kinds), kinds
    assert not any("GPU exporter, down" in line for line in lines)
