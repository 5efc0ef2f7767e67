"""The page of snapshots: worked out once, gone when the collector is stuck, counting what happens in between."""

from __future__ import annotations

import gzip
import math

import pytest

from gpumon.history.frame_store import Tick
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.readings import quantities as q
from gpumon.readings.exported import ExportedSample
from gpumon.readings.frame import EndpointState, EngineReading, Frame, HistogramReading, HostReading, RankReading
from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import Event, EventKind
from tests.exporter.served import MODERN, classic, modern, ups
from tests.outputs import shots
from tests.records import replace


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def page(clock: Clock) -> MetricsPage:
    return MetricsPage(clock, lambda: 1_767_000_000.5, detail=True)


def read(page: MetricsPage) -> list[ExportedSample]:
    return modern(page.page(MODERN, "").body)


def test_a_page_is_worked_out_once_per_snapshot_and_form(page: MetricsPage) -> None:
    bodies: list[bytes] = []
    for number in range(1, 4):
        page.take(shots.snapshot())
        for _ in range(5):
            plain, packed = page.page(MODERN, ""), page.page(MODERN, "br, gzip")
            old = page.page("text/plain", "gzip;q=0")
            bodies += [plain.body, packed.body, old.body]
        assert len({id(body) for body in bodies}) == 3 * number
        assert page.json() is page.json()
    assert gzip.decompress(packed.body) == plain.body
    assert (packed.encoding, plain.encoding) == ("gzip", "")


def test_every_page_is_of_the_newest_snapshot_however_many_came_between_two(page: MetricsPage) -> None:
    shot, wall_s = shots.snapshot(), 1_000_000.0
    for between in (1, 2, 3, 2, 3, 1) * 10:
        for _ in range(between):
            wall_s += 1.0  # the page alone holds it: the next one may come to lie where it lay
            page.take(replace(shot, wall_s=wall_s))
        (shown,) = (one.value for one in read(page) if one.name == "gpumon_snapshot_timestamp_seconds")
        assert shown == wall_s


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (MODERN, "application/openmetrics-text"),
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("application/vnd.google.protobuf;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", "application/open"),
    ],
)
def test_the_client_chooses_the_form(page: MetricsPage, accept: str, kind: str) -> None:
    page.take(shots.snapshot())
    assert page.page(accept, "").content_type.startswith(kind)


def test_nothing_is_shown_before_the_first_snapshot(page: MetricsPage) -> None:
    assert ups(read(page)) == {("collector", ""): 0.0}
    assert page.trouble().startswith("no snapshot yet")


@pytest.mark.parametrize(("interval_s", "fresh_s"), [(0.25, 3.0), (1.0, 3.0), (10.0, 30.0)])
def test_a_stuck_collector_leaves_no_figure(page: MetricsPage, clock: Clock, interval_s: float, fresh_s: float) -> None:
    page.take(shots.snapshot(interval_s=interval_s))
    clock.now_s += fresh_s
    assert page.trouble() == ""
    assert ups(read(page))["collector", ""] == 1.0
    clock.now_s += 0.5
    assert "gpumon is stuck" in page.trouble()
    left = read(page)
    assert ups(left) == {("collector", ""): 0.0}
    assert {one.name for one in left} == {
        "gpumon_source_up",
        "gpumon_build_info",
        "gpumon_process_start_time_seconds",
    }
    page.take(shots.snapshot(interval_s=interval_s))
    assert ups(read(page))["collector", ""] == 1.0


def test_events_and_restarts_are_counted_since_the_start(page: MetricsPage) -> None:
    engine = shots.engine()
    events = (
        Event(1.0, EventKind.RESTART, engine.name, "restarted", key=engine.key),
        Event(1.0, EventKind.XID, "gpu 0", "Xid 79"),
    )
    for _ in range(3):
        page.take(shots.snapshot(events=events))
    page.take(shots.snapshot())
    counts = {one.labels.get("kind", "restarts"): one.value for one in read(page) if "events" in one.name}
    restarts = [one.value for one in read(page) if one.name == "gpumon_engine_restarts_total"]
    assert (counts["restart"], counts["xid"], counts["model"], restarts) == (3.0, 3.0, 0.0, [3.0])


def test_hostile_text_stays_in_its_label_in_both_forms(page: MetricsPage) -> None:
    gpu = shots.gpu(name=shots.HOSTILE, uuid=shots.HOSTILE)
    engine = shots.engine(name=shots.HOSTILE, model=shots.HOSTILE, fault=shots.HOSTILE, url=shots.HOSTILE)
    page.take(shots.snapshot(gpus=(gpu,), engines=(engine, replace(engine, name="b"))))
    new, old = read(page), classic(page.page("", "").body)
    assert new == old
    assert all(text.isprintable() and len(text) <= 1024 for one in new for text in one.labels.values())
    assert len({one.labels["engine"] for one in new if one.name == "gpumon_engine_info"}) == 2


def test_latencies_are_histograms_of_all_ranks_that_may_be_averaged(page: MetricsPage) -> None:
    inf = float("inf")
    rank = RankReading("0", {}, {}, {"ttft_s": HistogramReading((0.1, 0.5, inf), (2.0, 5.0, 6.0), 3.0, 6.0)})
    other = RankReading("1", {}, {}, {"ttft_s": HistogramReading((0.1, 0.5, inf), (1.0, 1.0, 1.0), 0.1, 1.0)})
    engine = shots.engine()
    reading = EngineReading(engine.name, engine.url, EndpointState.OK, 1.0, ranks=(rank, other))
    page.keep(Tick(Frame(0, 1.0, 1.0, 1.0, HostReading(), (), (reading,)), {}, ()))
    page.take(shots.snapshot(engines=(engine,)))
    found = {
        (one.name.rpartition("_")[2], one.labels.get("le", "")): one.value
        for one in read(page)
        if "ttft_distribution" in one.name
    }
    assert found == {
        ("bucket", "0.1"): 3.0,
        ("bucket", "0.5"): 6.0,
        ("bucket", "+Inf"): 7.0,
        ("count", ""): 7.0,
        ("sum", ""): 3.1,
    }
    page.take(shots.snapshot(engines=(shots.engine(state=EndpointState.REFUSED),)))
    assert not [one for one in read(page) if "distribution" in one.name], "an engine that does not answer has none"


def test_what_misses_a_promised_goal_is_counted_over_all_ranks() -> None:
    """A TTFT goal between two bounds: only what is above the next one has missed it for certain. Of the time between
    tokens requests are counted, not tokens; without a goal nothing is."""
    engine = shots.engine()
    ttft = HistogramReading((0.5, 1.0, math.inf), (2.0, 5.0, 6.0), 4.0, 6.0)
    tpot = HistogramReading((0.05, math.inf), (7.0, 10.0), 1.0, 10.0)
    histograms = {q.TTFT: ttft, q.TPOT: tpot, q.ITL: tpot}
    ranks = tuple(RankReading(str(rank), {}, {}, histograms) for rank in range(2))
    reading = EngineReading(engine.name, engine.url, EndpointState.OK, 1.0, kind=engine.kind, ranks=ranks)
    counted = {}
    for goals in (Goals(), Goals(ttft_s=0.7), Goals(ttft_s=0.7, tpot_s=0.05)):
        page = MetricsPage(goals=goals)
        page.keep(Tick(Frame(0, 1.0, 1.0, 1.0, HostReading(), (), (reading,)), {}, ()))
        page.take(shots.snapshot(engines=(engine,)))
        found = {
            (one.name, one.labels["latency"]): one.value
            for one in read(page)
            if one.name.startswith(("gpumon_engine_goal_missed", "gpumon_engine_goal_counted"))
        }
        counted[goals] = found
    missed, total = "gpumon_engine_goal_missed_total", "gpumon_engine_goal_counted_total"
    assert list(counted.values()) == [
        {},
        {(total, "ttft"): 12.0, (missed, "ttft"): 2.0},
        {(total, "ttft"): 12.0, (missed, "ttft"): 2.0, (total, "tpot"): 20.0, (missed, "tpot"): 6.0},
    ]
