"""A fleet printed: what is not well stands there as sentences, the worst first."""

from __future__ import annotations

import msgspec

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.outputs.fleet import report
from gpumon.readings.format import cells
from gpumon.readings.snapshot import Kind, Level, Limit, Verdict
from gpumon.readings.verdict import Confidence
from tests.fleet.fleets import fed, fleet_frame


def said(limit: Limit, level: Level, text: str, action: str = "") -> Verdict:
    return Verdict("vllm:8000", limit, (), action, Confidence.HIGH, "", Kind.ENGINE, "e", level=level, text=text)


def with_verdicts(*verdicts: tuple[Verdict, ...]) -> FleetSnapshot:
    fleet = fed(fleet_frame(0))
    hosts = tuple(
        msgspec.structs.replace(host, snapshot=msgspec.structs.replace(host.snapshot, verdicts=found))
        for host, found in zip(fleet.hosts, verdicts, strict=True)
    )
    return msgspec.structs.replace(fleet, hosts=hosts)


def test_verdicts_are_listed_worst_first_with_what_to_do():
    healthy = said(Limit.HEALTHY, Level.OK, "all is well")
    unknown = said(Limit.CANNOT_TELL, Level.NOTE, "cannot tell: no figures")
    queue = said(Limit.QUEUE, Level.WARN, "34 wait\nwhile 84 run", "add an instance")
    full = said(Limit.KV_CACHE, Level.CRITICAL, "KV cache at 99 %")
    lines = report(with_verdicts((healthy, queue), (unknown,), (full,)), {}, 80).splitlines()
    at = lines.index("verdicts, worst first")
    assert lines[at + 1] == "  gpu03 vllm:8000: KV cache at 99 %"
    assert lines[at + 2].startswith("  gpu01 vllm:8000: 34 wait")
    assert lines[at + 2].endswith("while 84 run - add an instance")
    assert len(lines) == at + 3


def test_of_many_verdicts_twenty_are_listed_and_the_others_counted():
    many = tuple(said(Limit.QUEUE, Level.WARN, f"{number} wait") for number in range(25))
    lines = report(with_verdicts(many, (), ()), {}).splitlines()
    at = lines.index("verdicts, worst first")
    assert len(lines[at + 1 : -1]) == 20
    assert lines[-1] == "  +5 more"


def test_the_tables_have_the_width_that_is_asked_for():
    for width in (80, 120):
        lines = report(with_verdicts((), (), ()), {}, width).splitlines()
        assert max(cells(line) for line in lines[3:]) <= width
