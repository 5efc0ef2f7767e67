"""A fleet printed: what is not well stands there as sentences, the worst first."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.outputs.fleet import encode, report
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Kind, Level, Limit, Verdict
from gpumon.readings.verdict import Action, Confidence
from tests.fleet.fleets import fed, fleet_frame
from tests.records import replace


def said(limit: Limit, level: Level, text: str, action: str = "") -> Verdict:
    return Verdict(
        "vllm:8000",
        limit,
        text,
        "",
        actions=(Action(action),) if action else (),
        confidence=Confidence.HIGH,
        kind=Kind.ENGINE,
        key="e",
        level=level,
    )


def with_verdicts(*verdicts: tuple[Verdict, ...]) -> FleetSnapshot:
    fleet = fed(fleet_frame(0))
    hosts = tuple(
        replace(host, snapshot=replace(host.snapshot, verdicts=found))
        for host, found in zip(fleet.hosts, verdicts, strict=True)
    )
    return replace(fleet, hosts=hosts)


def test_verdicts_are_listed_worst_first_with_what_to_do():
    healthy = said(Limit.HEALTHY, Level.OK, "all is well")
    unknown = said(Limit.UNKNOWN, Level.NOTE, "no figures")
    queue = said(Limit.QUEUE_LIMIT, Level.WARN, "34 wait\nwhile 84 run", "add an instance")
    full = said(Limit.KV_CACHE_FULL, Level.CRITICAL, "KV cache at 99%")
    lines = report(with_verdicts((healthy, queue), (unknown,), (full,)), {}, 80).splitlines()
    at = lines.index("trouble, worst first")
    assert lines[at + 1] == "  gpu03 vllm:8000: KV cache full: KV cache at 99%"
    assert lines[at + 2].startswith("  gpu01 vllm:8000: queue limit: 34 wait")
    assert lines[at + 2].endswith("while 84 run - add an instance")
    assert len(lines) == at + 3


def test_what_the_gpus_of_a_host_have_alike_is_one_line():
    gpus = tuple(
        replace(said(Limit.MEMORY_FULL, Level.WARN, "VRAM 89%", "less"), scope=f"gpu {at}", key=f"{at}")
        for at in (0, 1, 2, 7)
    )
    other = replace(gpus[0], scope="gpu 4", cause="VRAM 97%")
    lines = report(with_verdicts((*gpus, other), gpus[:1], ()), {}).splitlines()
    at = lines.index("trouble, worst first")
    assert lines[at + 1 :] == [
        "  gpu01 GPUs 0-2 7: memory full: VRAM 89% - less",
        "  gpu01 gpu 4: memory full: VRAM 97% - less",
        "  gpu02 gpu 0: memory full: VRAM 89% - less",
    ]


def test_the_state_says_what_it_counts():
    fleet = with_verdicts((), (), ())
    first, second, third = fleet.hosts
    silent = replace(second.snapshot.engines[0], state=EndpointState.REFUSED)
    engines = (silent, *second.snapshot.engines[1:])
    hosts = (
        replace(first, state=HostState.UNREACHABLE),
        replace(second, snapshot=replace(second.snapshot, engines=engines)),
        third,
    )
    lines = report(replace(fleet, hosts=hosts), {}).splitlines()
    states = {line.split()[0]: line for line in lines[5:9]}
    assert " unreachable " in states["gpu01"]
    assert " ok 3/4 engines " in states["gpu02"]
    assert " ok " in states["gpu03"]
    assert " ok 2/3 hosts " in states["total"]
    assert lines[1] == "! 1 silent engine"
    at = lines.index("trouble, worst first")
    assert lines[at + 1] == "  gpu01: unreachable"
    assert lines[at + 2].startswith(f"  gpu02 {silent.name}: does not answer")


def test_of_many_verdicts_thirty_are_listed_and_the_others_counted():
    many = tuple(said(Limit.QUEUE_LIMIT, Level.WARN, f"{number} wait") for number in range(35))
    lines = report(with_verdicts(many, (), ()), {}).splitlines()
    at = lines.index("trouble, worst first")
    assert len(lines[at + 1 : -1]) == 30
    assert lines[-1] == "  +5 more"


def test_the_tables_have_the_width_that_is_asked_for():
    for width in (80, 120):
        lines = report(with_verdicts((), (), ()), {}, width).splitlines()
        assert max(cells(line) for line in lines[3:]) <= width


def owned() -> FleetSnapshot:
    """Four GPUs of the first host are `chat`'s; nobody owns the others."""
    fleet = fed(*(fleet_frame(at) for at in range(6)))
    first, *others = fleet.hosts
    owners = {gpu.reading.uuid: {"namespace": "chat"} for gpu in first.snapshot.gpus[:4]}
    return replace(fleet, hosts=(replace(first, owners=owners), *others))


def test_each_label_of_the_config_has_a_table_that_adds_up_to_the_total():
    lines = report(owned(), {"": 2.0}, 200, ("namespace",)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("namespace"))
    assert lines[at].split()[:5] == ["namespace", "hosts", "gpus", "busy", "cost"]
    rows = {line[:20].strip(): line[20:].split() for line in lines[at + 1 : at + 4]}
    assert list(rows) == ["chat", "no namespace label", "total"]
    assert [row[1] for row in rows.values()] == ["4", "20", "24"]
    assert [row[3] for row in rows.values()] == ["8.00/h", "40.00/h", "48.00/h"]
    assert not any(line.startswith("namespace") for line in report(owned(), {}, 200).splitlines())
    assert "cost" not in report(owned(), {}, 200)


def test_the_json_of_a_fleet_has_a_row_per_owner():
    decoded = msgspec.json.decode(encode(owned(), {"": 2.0}))
    rows = {row["name"]: row for row in decoded["owners"]["namespace"]}
    assert {name: row["gpus"] for name, row in rows.items()} == {"chat": 4, "no namespace label": 20}
    assert rows["chat"]["cost_per_h"] == {"value": 8.0, "gpus": 4, "of": 4}
    whole = decoded["total"]["energy_j"]["value"]
    assert sum(row["energy_j"]["value"] for row in rows.values()) == pytest.approx(whole)
    assert list(msgspec.json.decode(encode(owned(), {}, ("team", "rack")))["owners"]) == ["team", "rack"]
