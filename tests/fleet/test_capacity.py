"""What is free in a fleet, what would fit there, and one fault on many hosts as one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.fleet.capacity import capacity_of
from gpumon.fleet.common_faults import common_faults
from gpumon.fleet.free import Use, use_of
from gpumon.fleet.rows import by_host, by_model
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.outputs import fleet as printed
from gpumon.readings.frame import GpuProcess, GpuState, HostReading
from gpumon.readings.missing import Missing, Reason, number
from gpumon.readings.snapshot import Confidence, Engine, Family, Gpu, Kind, Level, Limit, Verdict
from gpumon.readings.verdict import Acknowledged
from gpumon.tui.fleet.headline import fleet_standing
from tests.outputs import shots
from tests.records import replace

H100 = "H100 SXM5 80GB"
L40S = "L40S 48GB"
TOTAL = 80e9


def gpu(index: int, *, free: bool = True, gpu_type: str = H100, **facts: Any) -> Gpu:
    """A GPU at rest with a driver's memory in use, or one with an engine."""
    base: dict[str, Any] = {
        "gpu_type": gpu_type,
        "engines": () if free else ("vllm:8000",),
        "processes": (),
        "vram_used_bytes": 0.6e9 if free else 70e9,
        "vram_total_bytes": TOTAL,
        "busy_ratio": 0.0 if free else 0.9,
        "xid": (),
    }
    return replace(shots.gpu(index=index, uuid=f"GPU-{index}"), **{**base, **facts})


def host(name: str, *gpus: Gpu, driver: str = "580.95", **facts: Any) -> HostShown:
    """A host with these GPUs, each with a UUID of its own."""
    own = tuple(replace(one, uuid=f"{name}-{one.reading.uuid}") for one in gpus)
    machine = HostReading(name, driver, "13.0", 0.1, 1e9, 2e9)
    engines: tuple[Engine, ...] = facts.pop("engines", ())
    verdicts: tuple[Verdict, ...] = facts.pop("verdicts", ())
    snapshot = shots.snapshot(host=machine, gpus=own, engines=engines, verdicts=verdicts)
    return HostShown(name, facts.pop("labels", {}), snapshot, **facts)


def fleet(*hosts: HostShown) -> FleetSnapshot:
    return FleetSnapshot("2026-11-29T12:00:00Z", 1.0, 15.0, hosts)


def taken(count: int, free: int) -> tuple[Gpu, ...]:
    """So many GPUs, the last ones free."""
    return tuple(gpu(index, free=index >= count - free) for index in range(count))


def test_scattered_gpus_hold_small_instances_alone():
    """Four free on one host, two on each of two others: eight, and no place for TP 8."""
    capacity = capacity_of(fleet(host("a", *taken(8, 4)), host("b", *taken(8, 2)), host("c", *taken(8, 2))))
    (found,) = capacity.types
    assert (found.gpus, found.uses) == (24, {"serving": 16, "free": 8})
    assert (found.largest_tp, found.largest_on) == (4, ("a",))
    assert found.fits == {1: 8, 2: 4, 4: 1, 8: 0}
    assert found.fragmented_ratio == 1.0
    assert [(domain.host, domain.free) for domain in capacity.domains] == [
        ("a", (4, 5, 6, 7)),
        ("b", (6, 7)),
        ("c", (6, 7)),
    ]


def test_a_whole_server_is_not_fragmented_and_types_are_apart():
    mixed = fleet(host("a", *taken(8, 8)), host("b", gpu(0, gpu_type=L40S), gpu(1, gpu_type=L40S, free=False)))
    h100, l40s = capacity_of(mixed).types
    assert (h100.gpu_type, h100.largest_tp, h100.fragmented_ratio) == (H100, 8, 0.0)
    assert (l40s.gpu_type, l40s.largest_tp, l40s.fragmented_ratio) == (L40S, 1, 1.0)
    assert {domain.gpu_type: domain.link for domain in capacity_of(mixed).domains} == {H100: "NVLink", L40S: "PCIe"}
    sizes = fleet(host("a", *taken(8, 0)), host("b", *taken(4, 4)), host("c", *taken(4, 2)))
    assert capacity_of(sizes).types[0].fragmented_ratio == pytest.approx(2 / 6), "a small server may be whole, too"
    (full,) = capacity_of(fleet(host("a", *taken(4, 0)))).types
    assert isinstance(full.fragmented_ratio, Missing)


PROCESS = GpuProcess(7, "python", "u", 9e9)
BROKEN = Verdict(
    "gpu 0", Limit.HARDWARE_FAULT, "", "", level=Level.CRITICAL, kind=Kind.GPU, key="a-GPU-0", family=Family.STATE
)
NOT_KNOWN = Missing(Reason.NOT_EXPOSED)


@pytest.mark.parametrize(
    ("shown", "use"),
    [
        (host("a", gpu(0)), Use.FREE),
        (host("a", gpu(0, free=False)), Use.SERVING),
        (host("a", gpu(0, vram_used_bytes=9e9, processes=(PROCESS,))), Use.HELD),
        (host("a", gpu(0, busy_ratio=0.2)), Use.HELD),
        (host("a", gpu(0, vram_used_bytes=NOT_KNOWN)), Use.UNKNOWN),
        (host("a", gpu(0), state=HostState.UNREACHABLE), Use.UNKNOWN),
        (host("a", gpu(0, state=GpuState.STALE)), Use.UNKNOWN),
        (host("a", gpu(0, state=GpuState.LOST)), Use.BROKEN),
        (host("a", gpu(0), verdicts=(BROKEN,)), Use.BROKEN),
        (host("a", gpu(0, bandwidth_peak_bytes_per_s=Missing(Reason.UNDER_MIG))), Use.SLICED),
    ],
)
def test_a_gpu_is_free_only_where_that_is_known(shown: HostShown, use: Use):
    assert use_of(shown.snapshot.gpus[0], shown) is use


def test_gpus_of_workers_of_an_engine_elsewhere_serve():
    workers = {"vllm": ("b-GPU-0",)}
    capacity = capacity_of(fleet(host("a", gpu(0, free=False), worker_gpus=workers), host("b", gpu(0), gpu(1))))
    assert {domain.host: domain.free for domain in capacity.domains} == {"a": (), "b": (1,)}


def test_room_for_a_model_is_in_free_gpus_of_its_type():
    """An engine on two GPUs: of three free ones on one host and one on another, one more fits."""
    engine = shots.engine(name="vllm:8000", gpus=(0, 1), gpu_count=2.0, model="llama")
    serving = host("a", gpu(0, free=False), gpu(1, free=False), gpu(2), gpu(3), gpu(4), engines=(engine,))
    shown = fleet(serving, host("b", gpu(0)), host("c", gpu(0, gpu_type=L40S), gpu(1, gpu_type=L40S)))
    (spare,) = capacity_of(shown, by_model(shown, {})).models
    assert (spare.model, spare.replicas, spare.gpus_each, spare.gpu_type, spare.more) == ("llama", 1, 2.0, H100, 1.0)


def test_versions_that_differ_are_told_with_their_hosts():
    engines = {version: (shots.engine(version=version),) for version in ("0.11.0", "0.12.0")}
    shown = fleet(
        host("a", gpu(0), engines=engines["0.12.0"]),
        host("b", gpu(0), engines=engines["0.12.0"]),
        host("c", gpu(0), engines=engines["0.11.0"], driver="575.64"),
    )
    skews = {skew.program: skew.versions for skew in capacity_of(shown).skews}
    assert skews["driver"] == (("580.95", ("a", "b")), ("575.64", ("c",)))
    assert skews["vllm"] == (("0.12.0", ("a", "b")), ("0.11.0", ("c",)))
    assert capacity_of(fleet(host("a", gpu(0)), host("b", gpu(0)))).skews == ()
    own = {
        name: replace(host(name, gpu(0)), gpumon_version=version) for name, version in zip("abc", "223", strict=True)
    }
    (skew,) = capacity_of(fleet(*own.values())).skews
    assert (skew.program, skew.versions) == ("gpumon", (("2", ("a", "b")), ("3", ("c",))))


def test_labels_that_group_hosts_sum_what_is_free():
    racks = {"a": "r1", "b": "r1", "c": "r2"}
    shown = fleet(*(host(name, *taken(8, 4), labels={"rack": rack, "node": name}) for name, rack in racks.items()))
    assert capacity_of(shown).groups == {"rack": {"r1": (8, 16), "r2": (4, 8)}}


def fallen(number: int, rack: str, xid: float = 79.0, **facts: Any) -> HostShown:
    """A host whose GPU has fallen off the bus."""
    name = f"gpu{number:02d}"
    verdict = Verdict(
        "gpu 0",
        Limit.HARDWARE_FAULT,
        "xid",
        "2026-11-29T11:00:00Z",
        confidence=Confidence.HIGH,
        level=Level.CRITICAL,
        kind=Kind.GPU,
        key=f"{name}-GPU-0",
        family=Family.STATE,
        parameters={"xid": xid, "processes": ""},
    )
    return host(name, gpu(0), labels={"rack": rack, "dc": "one"}, verdicts=(replace(verdict, **facts),))


def test_one_fault_on_many_hosts_is_one():
    hosts = [fallen(number, "B") for number in range(1, 6)]
    well = [host(f"gpu{number}", gpu(0), labels={"rack": "A", "dc": "one"}) for number in (20, 21)]
    (fault,) = common_faults(fleet(*hosts, *well, fallen(9, "A", xid=48.0)))
    assert fault.words == "Xid 79 on 5 hosts of rack=B"
    assert fault.hosts == ("gpu01", "gpu02", "gpu03", "gpu04", "gpu05")
    text = printed.report(fleet(*hosts, *well, fallen(9, "A", xid=48.0)), {}, 200)
    assert "Xid 79 on 5 hosts of rack=B: gpu01 gpu02 gpu03 gpu04 +1" in text
    assert "gpu01 gpu 0: hardware fault" not in text
    assert "gpu09 gpu 0: hardware fault" in text


def test_the_headline_counts_one_fault_of_many_hosts_once():
    well = host("gpu20", gpu(0), labels={"rack": "A", "dc": "one"})
    shown = fleet(*(fallen(number, "B") for number in range(1, 6)), well)
    standing = fleet_standing(shown, by_host(shown, {}))
    assert standing.numbers[Level.CRITICAL] == 1
    assert standing.worst is not None
    assert standing.worst.scope == "5 hosts of rack=B"


def test_two_hosts_and_what_is_acknowledged_are_not_folded():
    known = Acknowledged("ada", "in repair", until="2026-11-30T00:00:00Z", since="2026-11-29T11:30:00Z")
    assert common_faults(fleet(fallen(1, "B"), fallen(2, "B"))) == []
    assert common_faults(fleet(fallen(1, "B"), fallen(2, "B"), fallen(3, "B", acknowledged=known))) == []
    (everywhere,) = common_faults(fleet(*(fallen(number, "B") for number in (1, 2, 3))))
    assert everywhere.words == "Xid 79 on 3 hosts"


def test_what_is_free_is_printed_and_in_the_json():
    shown = fleet(host("a", *taken(8, 4)), host("b", *taken(8, 2), driver="575.64"))
    text = printed.report(shown, {}, 200)
    assert "TP4 on a" in text
    assert "TP1 6, TP2 3, TP4 1, TP8 0" in text
    assert "4-7" in text
    assert "driver: 575.64 on b, 580.95 on a" in text
    capacity = json.loads(printed.encode(shown, {}))["capacity"]
    assert capacity["types"][0]["fits"] == {"1": 6, "2": 3, "4": 1, "8": 0}
    assert capacity["domains"][0]["free"] == [4, 5, 6, 7]
    assert number(capacity["types"][0]["fragmented_ratio"]) == 1.0
