"""Nodes that a scheduler has taken out, in a real Prometheus: a note, not a trouble, unless an engine still answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.capacity import capacity_of
from gpumon.fleet.rows import by_host
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.outputs import fleet as printed
from gpumon.session.fleet_host import HostOfFleet
from gpumon.session.live_fleet import LiveFleet
from gpumon.sources.prometheus.cordons import CORDONED, taken_out
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import Memory
from gpumon.tui.fleet.headline import fleet_standing
from tests.fakes.backfill import Lines, Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.sources.prometheus.test_identity import EVERY_S, Page, engine, gpus

CORDONS: Final = {
    "kube-state-metrics": 'kube_node_spec_unschedulable{{job="ksm",instance="ksm:8080",node="{}"}}',
    "kube-state-metrics, node renamed": (
        'kube_node_spec_unschedulable{{job="ksm",instance="ksm:8080",node="infra1",exported_node="{}"}}'
    ),
    "slurm": 'slurm_node_cpu_total{{job="slurm",instance="ctl:8080",node="{}",status="drained"}}',
    "slurm, draining": 'slurm_node_status{{job="slurm",instance="ctl:9341",node="{}",status="draining"}}',
}


async def shown(
    folder: Path,
    cordons: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    computing: Collection[int] = (3,),
    losing: int = 0,
) -> FleetSnapshot:
    """Four hosts: `gpu1` and `gpu4` are down, `gpu2` is idle, `gpu3` serves; `cordons`: node -> series; `computing`:
    numbers of those whose GPUs compute; `losing`: number of the one that has lost a GPU."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    now_s = time.time()
    begin_s, end_s = now_s - 900.0, now_s + 300.0
    targets = []
    for number in range(1, 5):
        page = gpus(f"g{number}", 2, held=range(2) if number in computing else ())
        then = page
        if number in (1, 4):
            then = gpus("", 0)
        elif number == losing:
            then = gpus(f"g{number}", 1, held=())

        def page_at(at_s: float, page: Page = page, then: Page = then) -> bytes:
            return then(at_s) if at_s > now_s - 400.0 else page(at_s)

        labels = {"job": "dcgm", "instance": f"10.2.0.{number}:9400", "node": f"gpu{number}"}
        targets.append(Scraped(labels, page_at, begin_s, end_s))
    serving = {"job": "vllm", "instance": "10.1.0.3:8000", "node": "gpu3"}
    targets.append(Scraped(serving, engine(400.0, now_s - 5000.0), begin_s, end_s))
    times = tuple(begin_s + EVERY_S * step for step in range(80))
    store(folder, targets, EVERY_S, [Lines(series.format(node), times) for node, series in cordons.items()])
    with Prometheus(folder) as prometheus:
        live = LiveFleet(Config(prometheus=Settings(url=prometheus.url, interval_s=EVERY_S)))
        snapshots: asyncio.Queue[FleetSnapshot] = asyncio.Queue()
        await live.begin(snapshots.put_nowait, lambda _: None)
        snapshot = await live.ask_once()
        await live.end()
    return snapshot


@pytest.mark.parametrize("name", CORDONS)
async def test_a_node_that_is_taken_out_is_a_note_and_its_gpus_are_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    # As its scheduler writes it: in another case, with a domain.
    snapshot = await shown(
        tmp_path, {"GPU1.example.com": CORDONS[name], "gpu2": CORDONS[name], "gpu3": CORDONS[name]}, monkeypatch
    )
    rows = {row.name: row for row in by_host(snapshot, {})}
    assert [host.name for host in snapshot.hosts if host.taken_out] == ["gpu1", "gpu2", "gpu3"]
    # An engine still answers on gpu3: what limits it is somebody's trouble.
    assert [host.name for host in snapshot.hosts if host.maintenance is not None] == ["gpu1", "gpu2"]
    assert fleet_standing(snapshot, [rows["gpu4"]]).worst is not None, "nobody took this one out"
    assert fleet_standing(snapshot, [rows["gpu1"], rows["gpu2"]]).worst is None
    assert not any(domain.free for domain in capacity_of(snapshot).domains)
    text = printed.report(snapshot, {}, 200)
    how = "drained in Slurm" if "slurm" in name else "cordoned in Kubernetes"
    assert f"gpu1: taken out: {how}" in text


async def test_without_a_scheduler_nothing_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    idle = 'slurm_node_cpu_total{{job="slurm",instance="ctl:8080",node="{}",status="idle"}}'
    snapshot = await shown(tmp_path, {"gpu1": idle}, monkeypatch)
    assert not any(host.taken_out or host.maintenance for host in snapshot.hosts)
    worst = fleet_standing(snapshot, [row for row in by_host(snapshot, {}) if row.name == "gpu1"]).worst
    assert worst is not None
    assert [domain.host for domain in capacity_of(snapshot).domains if domain.free] == ["gpu2"]


async def test_a_fault_of_a_node_that_is_taken_out_is_told_beside_who_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    snapshot = await shown(tmp_path, {"gpu2": CORDONS["kube-state-metrics"]}, monkeypatch, losing=2)
    (row,) = (row for row in by_host(snapshot, {}) if row.name == "gpu2")
    assert row.worst is None
    assert row.verdict.startswith("gpu 1: its scheduler knows: cordoned in Kubernetes; ")
    assert "gpu2: taken out: cordoned in Kubernetes" in printed.report(snapshot, {}, 200)
    (verdict,) = row.parts.hosts[0].snapshot.verdicts
    assert object.__new__(HostOfFleet).why_no_acknowledging(verdict) == (
        "its scheduler knows: cordoned in Kubernetes: it counts again once the host is taken in"
    )


async def test_what_goes_wrong_where_a_job_still_computes_is_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Slurm's `draining`: the job goes on until it ends.
    snapshot = await shown(tmp_path, {"gpu2": CORDONS["slurm, draining"]}, monkeypatch, computing=(2, 3))
    (host,) = (host for host in snapshot.hosts if host.name == "gpu2")
    assert host.taken_out
    assert host.maintenance is None


@pytest.mark.parametrize(
    ("node", "out"),
    [
        ("gpu1.east.example.com", ["gpu1.east.example.com"]),  # one of the same first name stands elsewhere
        ("GPU2.east.example.com", ["gpu2"]),
        ("gpu3", ["gpu3.east.example.com"]),
        ("10.0.0.1", ["10.0.0.1"]),
    ],
)
def test_a_node_is_the_machine_of_its_name_whose_domain_may_stand_on_one_side_alone(node: str, out: list[str]):
    names = ("gpu1.east.example.com", "gpu1.west.example.com", "gpu2", "gpu3.east.example.com", "10.0.0.1", "10.0.0.2")
    memory = Memory(Intervals(15.0))
    memory.cordons = {MachineId("", node): CORDONED}
    found = taken_out([MachineId("", name) for name in names], memory)
    assert [machine_id.name for machine_id in found] == out
