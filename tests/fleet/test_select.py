"""Selections as they are typed, and what they match."""

from __future__ import annotations

import pytest

from gpumon.fleet.rows import by_host, by_model
from gpumon.fleet.select import Selection, SelectionError
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Kind, Level, Limit, Verdict
from gpumon.readings.verdict import Confidence
from tests.each_row import each_row
from tests.fleet.fleets import fed, fleet_frame
from tests.records import replace


@pytest.fixture(scope="module")
def fleet() -> FleetSnapshot:
    return fed(fleet_frame(0))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", "gpu01 gpu02 gpu03"),
        ("  ", "gpu01 gpu02 gpu03"),
        ("gpu02", "gpu02"),
        ("GPU0", "gpu01 gpu02 gpu03"),
        ("h100 llama", "gpu01 gpu02 gpu03"),
        ("h200", ""),
        ("gpu*3", "gpu03"),
        ("gpu0[12]", "gpu01 gpu02"),
        ("host=gpu0? host!=*2", "gpu01 gpu03"),
        ("rack=0", "gpu01 gpu02"),
        ("rack!=0", "gpu03"),
        ("Rack=0", ""),
        ("cluster=A", "gpu01 gpu02 gpu03"),
        ("nowhere=", "gpu01 gpu02 gpu03"),
        ("nowhere=x", ""),
        ("nowhere!=x", "gpu01 gpu02 gpu03"),
        ("model=*llama*", "gpu01 gpu02 gpu03"),
        ("model!=*llama*", ""),
        ("model=llama", ""),
        ("gpu=*h100*", "gpu01 gpu02 gpu03"),
        ("engine=vllm", "gpu01 gpu02 gpu03"),
        ("engine='vllm:8000' gpu01", "gpu01"),
        ('"gpu01"', "gpu01"),
    ],
)
def test_hosts(fleet: FleetSnapshot, text: str, hosts: str):
    assert " ".join(host.name for host in Selection.parse(text).hosts(fleet)) == hosts


@pytest.mark.parametrize("text", ["host=gpu02", "rack=1", "qwen", "model=*70b*", "h100"])
def test_a_row_of_a_host_matches_as_the_host_does(fleet: FleetSnapshot, text: str):
    selection = Selection.parse(text)
    assert [selection.matches(row) for row in by_host(fleet, {})] == [selection.matches(one) for one in fleet.hosts]


def test_a_row_of_a_model_matches_by_the_model(fleet: FleetSnapshot):
    selection = Selection.parse("model=*qwen*")
    assert [row.name for row in by_model(fleet, {}) if selection.matches(row)] == ["Qwen/Qwen3-30B-A3B"]


@each_row(
    ("text", "says"),
    [
        ("=x", "no label stands before the ="),
        ("!=x", "no label stands before the ="),
        ("1a=x", "write label=value"),
        ('host="gpu', "a quote is not closed"),
        ("host==x", "only = and != are known"),
        ("host=~gpu.*", "only = and != are known"),
        ("x" * 501, "at most 500 characters"),
    ],
)
def test_what_is_no_selection_is_told_in_one_line(text: str, says: str):
    with pytest.raises(SelectionError, match=says) as wrong:
        Selection.parse(text)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("verdict=KV*", "gpu02"),
        ("verdict=kv_cache_full", "gpu02"),
        ('verdict="KV cache full"', "gpu02"),
        ("verdict!=kv*", "gpu01 gpu03"),
        ("verdict=queue", ""),
        ("kv", ""),
    ],
)
def test_a_verdict_matches_by_its_name(fleet: FleetSnapshot, text: str, hosts: str):
    engine = fleet.hosts[1].snapshot.engines[0]
    full = Verdict(
        engine.name,
        Limit.KV_CACHE_FULL,
        "",
        "",
        confidence=Confidence.HIGH,
        kind=Kind.ENGINE,
        key=engine.key,
        level=Level.WARN,
    )
    snapshot = replace(fleet.hosts[1].snapshot, verdicts=(full,))
    host = replace(fleet.hosts[1], snapshot=snapshot)
    troubled = replace(fleet, hosts=(fleet.hosts[0], host, fleet.hosts[2]))
    selection = Selection.parse(text)
    assert " ".join(host.name for host in selection.hosts(troubled)) == hosts
    assert " ".join(row.name for row in by_host(troubled, {}) if selection.matches(row)) == hosts
