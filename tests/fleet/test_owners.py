"""Rows per owner: each GPU and engine in one of them, whatever names its owner, and none dropped."""

from __future__ import annotations

from math import fsum
from typing import Any

import pytest

from gpumon.fleet.owners import by_owner, owner_labels
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import by_host, total_row
from gpumon.fleet.select import Selection
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing
from tests.fleet.fleets import fed, fleet_frame
from tests.records import replace

PRICES = {"": 2.0}
SUMS = ("power_w", "idle_gpus", "idle_cost_per_h", "cost_per_h", "unused_cost", "energy_j", "vram_used_bytes")
RATES = ("decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s", "running", "waiting")


def labelled(frame: FleetFrame) -> FleetFrame:
    """Two GPUs of `chat`, two of `search` by their engine's series alone, one that both use; the others of nobody."""
    first, second, *others = frame.hosts
    return replace(frame, hosts=(_by_gpus(first), _by_engine(second), *others))


def _by_gpus(host: HostFrame) -> HostFrame:
    owners = {gpu.uuid: {"namespace": "chat"} for gpu in host.gpus[:2]}
    owners[host.gpus[2].uuid] = {"namespace": "chat + search"}
    return replace(host, owners=owners)


def _by_engine(host: HostFrame) -> HostFrame:
    engine = host.engines[0]
    return replace(host, owners={engine.key: {"namespace": "search", "team": "web"}})


@pytest.fixture(scope="module")
def fleet() -> FleetSnapshot:
    return fed(*(labelled(fleet_frame(at)) for at in range(6)))


def by_name(fleet: FleetSnapshot, label: str = "namespace") -> dict[str, FleetRow]:
    return {row.name: row for row in by_owner(fleet, label, PRICES)}


def known(values: list[Any]) -> list[float]:
    return [value for value in values if not isinstance(value, Missing)]


@pytest.mark.parametrize("label", ["namespace", "rack", "cluster", "team", "nothing"])
def test_the_rows_add_up_to_the_fleet(fleet: FleetSnapshot, label: str) -> None:
    rows = by_owner(fleet, label, PRICES)
    whole = total_row(by_host(fleet, PRICES))
    assert sum(known([row.gpus for row in rows])) == whole.gpus == 24
    assert sum(row.engines for row in rows) == whole.engines == 12
    for name in SUMS:
        figures = [getattr(row, name) for row in rows]
        assert fsum(known([figure.value for figure in figures])) == pytest.approx(getattr(whole, name).value), name
        assert sum(figure.of for figure in figures) == 24
    for name in RATES:
        assert fsum(known([getattr(row, name) for row in rows])) == pytest.approx(getattr(whole, name)), name


def test_gpus_are_their_pods_or_else_those_of_the_engine_on_them(fleet: FleetSnapshot) -> None:
    rows = by_name(fleet)
    assert list(rows) == ["chat", "chat + search", "search", "no namespace label"]
    assert (rows["chat"].gpus, rows["chat"].hosts) == (2, ("gpu01",))
    assert rows["chat + search"].gpus == 1
    engine = fleet.hosts[1].snapshot.engines[0]
    assert rows["search"].gpus == len(engine.hardware.gpus)
    assert rows["search"].decode_tokens_per_s == engine.rates.decode_tokens_per_s
    assert rows["search"].cost_per_h.value == 2.0 * len(engine.hardware.gpus)


def test_what_nobody_owns_has_a_row_with_the_hosts_that_have_nothing(fleet: FleetSnapshot) -> None:
    bare = replace(fleet.hosts[2], snapshot=replace(fleet.hosts[2].snapshot, gpus=(), engines=()))
    rows = by_name(replace(fleet, hosts=(*fleet.hosts[:2], bare)))
    assert rows["no namespace label"].hosts == ("gpu01", "gpu02", "gpu03")


def test_a_label_of_the_host_names_the_owner_but_not_the_namespace_of_its_monitoring(fleet: FleetSnapshot) -> None:
    hosts = [replace(host, labels={**host.labels, "namespace": "monitoring"}) for host in fleet.hosts]
    fleet = replace(fleet, hosts=tuple(hosts))
    assert "monitoring" not in by_name(fleet)
    racks = by_name(fleet, "rack")
    assert {name: row.gpus for name, row in racks.items()} == {"0": 16, "1": 8}


def test_processes_of_a_host_name_namespace_and_user(fleet: FleetSnapshot) -> None:
    host = fleet.hosts[2]
    held = GpuProcess(7, "python", "ada", 1e9, pod_name="batch/job-1")
    gpus = (replace(host.snapshot.gpus[0], processes=(held,)), *host.snapshot.gpus[1:])
    fleet = replace(fleet, hosts=(*fleet.hosts[:2], replace(host, snapshot=replace(host.snapshot, gpus=gpus))))
    assert by_name(fleet)["batch"].gpus == 1
    assert by_name(fleet, "user")["ada"].gpus == 1


def test_a_row_has_the_worst_verdict_on_what_it_holds(fleet: FleetSnapshot) -> None:
    for name, row in by_name(fleet).items():
        uuids = {row_gpu.gpu.reading.uuid for row_gpu in row.parts.gpus}
        keys = uuids | {row_engine.engine.key for row_engine in row.parts.engines} | {""}
        assert row.worst is None or row.worst.key in keys, name
    assert any(row.worst is not None for row in by_name(fleet).values())


def test_labels_that_group_are_offered_unless_the_config_names_some(fleet: FleetSnapshot) -> None:
    assert owner_labels(fleet) == ("namespace",)  # racks of three hosts group nothing, and there is one cluster
    assert owner_labels(fleet, ("team", "rack")) == ("team", "rack")
    wide = fed(*(fleet_frame(at, 8) for at in range(2)))
    assert owner_labels(wide) == ("rack",)


def test_a_filter_finds_the_hosts_of_an_owner(fleet: FleetSnapshot) -> None:
    def hosts(text: str) -> list[str]:
        return [host.name for host in Selection.parse(text).hosts(fleet)]

    assert hosts("namespace=chat") == ["gpu01"]
    assert hosts("namespace=search") == ["gpu02"]
    assert hosts('namespace="chat ? search"') == ["gpu01"]
    assert hosts('namespace=""') == ["gpu01", "gpu02", "gpu03"]
    assert [row.name for row in by_owner(fleet, "namespace", {}) if Selection.parse("team=web").matches(row)] == [
        "search",
        "no namespace label",
    ]
