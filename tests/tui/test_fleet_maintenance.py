"""Maintenance of hosts: what is wrong there counts for nobody until it is over."""

from __future__ import annotations

import re

import pytest

from gpumon.fleet.common_faults import common_faults
from gpumon.fleet.free import Use, use_of
from gpumon.fleet.order import sort_fleet_rows
from gpumon.fleet.rows import by_host
from gpumon.fleet.snapshot import HostShown, HostState
from gpumon.fleet.troubles import count_troubles
from gpumon.outputs import fleet as printed
from gpumon.readings.format import wall_of
from gpumon.readings.verdict import Acknowledged
from gpumon.triage.acknowledgement import in_maintenance, maintenance, maintenance_of
from gpumon.tui.fleet.app import FleetApp
from gpumon.tui.fleet.headline import fleet_standing
from gpumon.tui.fleet.row_words import row_sentence
from tests.fleet.test_capacity import fallen, fleet, gpu, host
from tests.records import replace
from tests.tui.fleet_feed import Scrapes, watching
from tests.tui.running import foot, text_of, until

WORK = Acknowledged("ada", "new fans", until="2026-11-30T08:00:00Z", since="2026-11-29T12:00:00Z")


def silenced(number: int, rack: str = "B") -> HostShown:
    """A host with a fault that is in maintenance."""
    shown = fallen(number, rack)
    return replace(shown, snapshot=in_maintenance(shown.snapshot, WORK), maintenance=WORK)


def test_maintenance_is_that_of_the_host_or_of_one_of_its_labels() -> None:
    of_host = maintenance("gpu07", "ada", "fans", 1000.0, 3600.0)
    of_rack = maintenance("rack=B", "bob", "power", 1000.0, 7200.0)
    records = (of_host, of_rack)
    assert maintenance_of("gpu07", {"rack": "A"}, records, 2000.0) == of_host
    assert maintenance_of("gpu07", {"rack": "B"}, records, 2000.0) == of_rack  # it ends later
    assert maintenance_of("gpu08", {"rack": "B"}, records, 2000.0) == of_rack
    assert maintenance_of("gpu08", {"rack": "A"}, records, 2000.0) is None
    assert maintenance_of("gpu07", {"rack": "B"}, records, 8200.0) is None


def test_what_is_wrong_on_a_host_in_maintenance_counts_for_nobody() -> None:
    gone = replace(host("gpu09", gpu(0)), state=HostState.UNREACHABLE, maintenance=WORK)
    shown = fleet(silenced(1), silenced(2), silenced(3), gone, host("gpu10", gpu(0)))
    rows = by_host(shown, {})
    assert count_troubles(rows) == []
    assert fleet_standing(shown, rows).worst is None
    assert common_faults(shown) == []
    assert sort_fleet_rows(rows)[0].name == "gpu10"
    assert use_of(shown.hosts[0].snapshot.gpus[0], shown.hosts[0]) is Use.OUT
    text = printed.report(shown, {}, 200)
    assert "gpu01: in maintenance until 2026-11-30T08:00:00Z: new fans" in text
    assert "hardware fault" not in text.partition("trouble")[2]
    counted = by_host(fleet(fallen(1, "B")), {})
    assert count_troubles(counted) == ["1 host critical"]
    assert "new fans" in row_sentence(rows[0], 0.0).text


def test_the_end_of_a_maintenance_has_its_date_where_that_is_another_day() -> None:
    ends_s = wall_of(WORK.until)
    (row,) = by_host(fleet(silenced(1)), {})
    same_day = row_sentence(row, ends_s - 60.0).text
    other_day = row_sentence(row, ends_s - 5 * 86400.0).text
    assert re.search(r"maintenance until \d\d:\d\d: new fans", same_day)
    assert re.search(r"maintenance until 2026-1\d-\d\d \d\d:\d\d: new fans", other_day)


def screen_of(app: FleetApp) -> str:
    return "\n".join(text_of(app))


async def test_a_host_and_a_label_are_silenced_by_a_key_and_counted_again() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        assert app.monitor.body.table.selected.key == "gpu02"
        assert "critical" in screen_of(app) or "✗" in screen_of(app)
        await pilot.press("a", *"new fans", "enter")
        await until(lambda: "in maintenance until" in foot(app), pilot)
        await until(lambda: "maintenance until" in "\n".join(text_of(app)[:-1]), pilot)
        row = next(row for row in app.monitor.shown.hosts if row.key == "gpu02")
        assert row.parts.hosts[0].maintenance.reason == "new fans"
        app.monitor.body.table.go_to("gpu02")
        await pilot.press("a", "enter")
        await until(lambda: "not in maintenance any more" in foot(app), pilot)
        row = next(row for row in app.monitor.shown.hosts if row.key == "gpu02")
        assert row.parts.hosts[0].maintenance is None


async def test_hours_that_are_chosen_stay_while_the_reason_is_typed() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        await pilot.press("a", "down", *"new fans", "enter")
        await until(lambda: "in maintenance until" in foot(app), pilot)
        row = next(row for row in app.monitor.shown.hosts if row.key == "gpu02")
        silence = row.parts.hosts[0].maintenance
        assert wall_of(silence.until) - wall_of(silence.since) == pytest.approx(8 * 3600.0, abs=1.0)


async def test_a_host_in_maintenance_is_named_as_such_and_not_as_a_host_in_trouble() -> None:
    async with watching(Scrapes(5), 80, 24) as (app, pilot):
        await pilot.press("a", "enter")
        await until(lambda: "in maintenance: gpu02" in screen_of(app), pilot)
        assert " silenced" in screen_of(app)


async def test_rows_of_models_have_no_maintenance() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        await pilot.press("m", "a")
        await until(lambda: "maintenance is for hosts" in foot(app), pilot)
