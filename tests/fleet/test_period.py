"""Moments of hosts summed up by group: against the counters of the frames, gaps, restarts and shared GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from gpumon.config.prices import goals_of
from gpumon.config.schema import Config
from gpumon.efficiency.span_counters import GpuGrowth
from gpumon.fleet.grouping import BY_HOST, BY_MODEL, ReportGrouping
from gpumon.fleet.period import (
    ALERT_SOURCE,
    VERDICT_SOURCE,
    Basis,
    HostLook,
    HostSums,
    IncidentSeen,
    RecordedIncidents,
    ReportedTime,
    fleet_period,
)
from gpumon.fleet.pipeline import HostPipeline
from gpumon.fleet.snapshot import HostShown
from gpumon.fleet.tally import GpuTally, GroupTally
from gpumon.outputs.fleet_period import markdown, report
from gpumon.readings.fleet import HostFrame
from gpumon.readings.fleet_period import FleetPeriod, GroupPeriod
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.prices import Prices
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING, TTFT
from gpumon.readings.verdict import Level
from tests.fleet.fleets import EVERY_S, SCRAPES, host, make, scrape
from tests.history.frames import WALL_S
from tests.records import replace
from tests.triage import stage

STEP_S = float(EVERY_S)
SPAN_S = STEP_S * (SCRAPES - 1)
PRICES = Prices({"": 2.0}, 0.25)
NOTHING = RecordedIncidents()


def looks(name: str, frames: Iterable[HostFrame | None], *, own_gpumon: bool = False) -> Iterator[HostLook]:
    """Looks at a host every 15 s; None: nothing was scraped. With `own_gpumon` as its own gpumon would export it."""
    pipeline = HostPipeline(make(), charted=False)
    for at, frame in enumerate(frames):
        if frame is None:
            continue
        at_s = WALL_S + STEP_S * at
        shown = HostShown(
            name=name,
            labels=frame.labels,
            snapshot=pipeline.take(frame, at_s, STEP_S).snapshot,
            worker_gpus=frame.worker_gpus,
            owners=frame.owners,
            own_gpumon=own_gpumon,
        )
        yield HostLook(at_s, shown) if own_gpumon else HostLook(at_s, shown, frame.engines, frame.gpus)


def frames_of(name: str) -> list[HostFrame]:
    return [host(name, scrape(1, at)) for at in range(SCRAPES)]


def told(by: str, recorded: RecordedIncidents = NOTHING, **hosts: Iterable[HostLook]) -> FleetPeriod:
    basis = Basis(STEP_S, PRICES, goals_of(Config().goals), ReportGrouping(by).groups)
    sums = {}
    for name, of_host in hosts.items():
        sums[name] = HostSums(basis)
        for look in of_host:
            sums[name].take(look)
    return fleet_period(sums, ReportedTime(WALL_S, WALL_S + SPAN_S, by), basis, recorded)


def group(period: FleetPeriod, name: str) -> GroupPeriod:
    (found,) = [one for one in period.groups if one.name == name]
    return found


def counted(frames: list[HostFrame], first: int = 0, last: int = -1) -> float:
    """Decode tokens that all engines counted between two frames."""
    ends = []
    for frame in (frames[first], frames[last]):
        ranks = [rank for engine in frame.engines for rank in engine.ranks]
        ends.append(sum(rank.counters[DECODE_TOKENS] for rank in ranks))
    return ends[1] - ends[0]


def first_tokens(frame: HostFrame) -> float:
    """Requests that ever got a first token."""
    return sum(rank.histograms[TTFT].count for engine in frame.engines for rank in engine.ranks)


def test_the_groups_of_every_kind_add_up_to_what_the_counters_say() -> None:
    frames = frames_of("a")
    requests = first_tokens(frames[-1]) - first_tokens(frames[0])
    for by in (BY_HOST, BY_MODEL, "cluster", "rack"):
        period = told(by, a=looks("a", frames))
        whole = period.total
        assert whole.gpu_s == pytest.approx(8 * SPAN_S), by
        assert sum(one.gpu_s for one in period.groups) == pytest.approx(whole.gpu_s)
        assert whole.decode_tokens == pytest.approx(counted(frames)), by
        assert whole.goodput.ttft_goal.count == requests
        assert whole.cost == pytest.approx(2.0 * 8 * SPAN_S / 3600.0)
        tokens = [one.decode_tokens for one in period.groups if not isinstance(one.decode_tokens, Missing)]
        assert sum(tokens) == pytest.approx(float(whole.decode_tokens))
    assert [one.name for one in told("rack", a=looks("a", frames)).groups] == [""]
    assert [one.name for one in told("cluster", a=looks("a", frames)).groups] == ["a"]


def test_a_gap_enters_no_sum_and_an_early_look_counts_anew() -> None:
    frames = frames_of("a")
    with_gap = [frame if not 4 <= at <= 7 else None for at, frame in enumerate(frames)]
    period = told(BY_HOST, a=looks("a", with_gap))
    assert period.partial == ()
    seen = counted(frames, 0, 3) + counted(frames, 8)
    assert period.measured_s == pytest.approx(SPAN_S - 5 * STEP_S)
    assert period.total.gpu_s == pytest.approx(8 * (SPAN_S - 5 * STEP_S))
    assert period.total.decode_tokens == pytest.approx(seen)
    both = told(BY_HOST, a=looks("a", with_gap), b=looks("b", frames_of("b")))
    assert [(one.host, one.measured_s) for one in both.partial] == [("a", pytest.approx(SPAN_S - 5 * STEP_S))]
    assert both.measured_s == pytest.approx(SPAN_S)
    back = [*looks("a", frames[:4]), *looks("a", frames[:3])]
    assert told(BY_HOST, a=back).total.gpu_s == pytest.approx(8 * 5 * STEP_S)


def test_an_engine_that_was_away_counts_anew_its_requests_as_its_tokens() -> None:
    frames = frames_of("a")
    away = [replace(frame, engines=()) if 3 <= at <= 7 else frame for at, frame in enumerate(frames)]
    period = told(BY_HOST, a=looks("a", away))
    assert period.total.decode_tokens == pytest.approx(counted(frames, 0, 2) + counted(frames, 8))
    requests = first_tokens(frames[2]) - first_tokens(frames[0]) + first_tokens(frames[-1]) - first_tokens(frames[8])
    assert period.total.goodput.ttft_goal.count == requests


def test_a_host_with_one_look_is_without_data_and_in_no_sum() -> None:
    period = told(BY_HOST, a=looks("a", frames_of("a")), b=looks("b", frames_of("b")[:1]))
    assert (period.hosts, period.without_data) == (1, ("b",))
    assert [one.name for one in period.groups] == ["a"]


def test_a_silent_exporter_tells_of_no_gpu_while_its_engines_are_counted() -> None:
    frames = frames_of("a")
    fresh = [look._replace(fresh_s=45.0) for look in looks("a", frames)]
    old = tuple(replace(gpu, age_s=50.0) for gpu in fresh[6].shown.snapshot.gpus)
    silent = fresh[6]._replace(shown=replace(fresh[6].shown, snapshot=replace(fresh[6].shown.snapshot, gpus=old)))
    period = told(BY_HOST, a=[*fresh[:6], silent, *fresh[7:]])
    assert period.total.gpu_s == pytest.approx(8 * (SPAN_S - 2 * STEP_S))
    assert period.total.decode_tokens == pytest.approx(counted(frames))


def test_unused_time_is_that_of_looks_at_which_no_engine_of_the_gpu_ran_a_request() -> None:
    frames = frames_of("a")
    resting = []
    for at, frame in enumerate(frames):
        engines = list(frame.engines)
        if at % 2:
            before = frames[at - 1].engines[0].ranks  # nothing was counted since
            ranks = tuple(replace(rank, gauges={**rank.gauges, RUNNING: 0.0}) for rank in before)
            engines[0] = replace(engines[0], ranks=ranks)
        resting.append(replace(frame, engines=tuple(engines)))
    period = told(BY_MODEL, a=looks("a", resting))
    model = engines[0].model
    idle_looks = len([at for at in range(1, len(frames)) if at % 2])
    waster = next(one for one in period.wasters if one.models == (model,))
    assert waster.unused_gpu_s == pytest.approx(len(engines[0].gpus) * idle_looks * STEP_S)
    assert waster.unused_cost == pytest.approx(2.0 * waster.unused_gpu_s / 3600.0)
    down = [replace(frame, engines=(replace(frame.engines[0], state=EndpointState.REFUSED),)) for frame in frames]
    unknown = told(BY_MODEL, a=looks("a", down))
    busy = group(unknown, model)
    assert busy.unused_known_s < busy.gpu_s


def test_a_hosts_own_gpumon_gives_the_same_sums() -> None:
    frames = frames_of("a")
    here = told(BY_MODEL, a=looks("a", frames))
    own_gpumon = told(BY_MODEL, a=looks("a", frames, own_gpumon=True))
    assert [one.name for one in own_gpumon.groups] == [one.name for one in here.groups]
    for field in ("gpu_s", "decode_tokens", "cost", "mfu_ratio"):
        assert getattr(own_gpumon.total, field) == pytest.approx(getattr(here.total, field)), field
    # It began with the first of 12 looks, and counts energy from its second reading on.
    assert own_gpumon.total.energy_j == pytest.approx(float(here.total.energy_j), rel=0.1)
    requests = float(here.total.goodput.ttft_goal.count)
    assert own_gpumon.total.goodput.ttft_goal.count == pytest.approx(requests, rel=0.35)  # rates of 30 s, in 165 s
    assert own_gpumon.total.incidents == 0.0
    assert isinstance(here.total.incidents, Missing)


def test_tokens_have_no_price_where_the_gpus_of_their_engines_are_in_another_group() -> None:
    frames = frames_of("a")
    first = frames[0].engines[0]
    other = f"{first.gpus[0]}"
    named = [replace(frame, owners={first.key: {"team": "x"}, other: {"team": "y"}}) for frame in frames]
    period = told("team", a=looks("a", named))
    assert group(period, "x").cost_per_million_tokens == Missing(
        Reason.NOT_MODELLED, "another engine runs on one of its GPUs"
    )
    assert group(period, "y").gpus == 1
    assert isinstance(period.total.cost_per_million_tokens, float)


def test_gpus_of_worker_pods_are_their_engines_on_whatever_host() -> None:
    serving = frames_of("a")
    idle = [replace(frame, engines=()) for frame in frames_of("b")]
    first = serving[0].engines[0]
    lent = idle[0].gpus[0].uuid
    named = [replace(frame, worker_gpus={first.key: (lent,)}) for frame in serving]
    alone = told(BY_MODEL, a=looks("a", serving), b=looks("b", idle))
    together = told(BY_MODEL, a=looks("a", named), b=looks("b", idle))
    gained = group(together, first.model).gpu_s - group(alone, first.model).gpu_s
    assert gained == pytest.approx(SPAN_S)
    assert together.total.gpu_s == pytest.approx(alone.total.gpu_s)
    unheld = []
    for frame in idle:
        gpus = tuple(replace(gpu, processes=(), vram_used_bytes=0.0, busy_ratio=0.0) for gpu in frame.gpus)
        unheld.append(replace(frame, gpus=gpus))
    wasters = told(BY_MODEL, a=looks("a", named), b=looks("b", unheld)).wasters
    lent_index = idle[0].gpus[0].index
    assert [one.group for one in wasters if one.host == "b" and lent_index in one.gpus] == [first.model]


def test_energy_is_of_the_time_between_two_looks_that_tell_it() -> None:
    """Neither a counter that begins late nor one that is silent for a look has a time without energy."""
    frames = frames_of("a")
    watts = per_second(told(BY_HOST, a=looks("a", frames)))
    for silent in (range(6), range(6, 7)):
        parts = []
        for at, frame in enumerate(frames):
            gpus = frame.gpus
            if at in silent:
                gpus = tuple(replace(gpu, energy_j=NOT_SUPPORTED) for gpu in gpus)
            parts.append(replace(frame, gpus=gpus))
        period = told(BY_HOST, a=looks("a", parts))
        assert period.total.energy_known_s < period.total.gpu_s
        assert per_second(period) == pytest.approx(watts, rel=0.03)


def per_second(period: FleetPeriod) -> float:
    """Watts of a GPU."""
    return float(period.total.energy_j) / period.total.energy_known_s


def test_engines_whose_gpus_are_not_known_have_no_cost_unless_their_group_has_the_whole_host() -> None:
    frames = []
    for frame in frames_of("a"):
        frames.append(replace(frame, engines=tuple(replace(engine, gpus=()) for engine in frame.engines)))
    by_model = told(BY_MODEL, a=looks("a", frames))
    assert by_model.unplaced[0].host == "a"
    assert by_model.unplaced[0].gpus_told
    model = frames[0].engines[0].model
    assert isinstance(group(by_model, model).cost_per_million_tokens, Missing)
    by_host = told(BY_HOST, a=looks("a", frames))
    assert isinstance(by_host.groups[0].cost_per_million_tokens, float)
    without_gpus = told(BY_HOST, a=looks("a", [replace(frame, gpus=()) for frame in frames]))
    assert isinstance(without_gpus.total.cost_per_million_tokens, Missing)
    assert not without_gpus.unplaced[0].gpus_told


def test_incidents_are_of_the_thing_they_name_else_of_their_label_else_of_their_host() -> None:
    frames = frames_of("a")
    engine = frames[0].engines[0]
    at_s = WALL_S + 30.0
    seen = []
    for key, labels, host_name, source in (
        (engine.key, {}, "a", ALERT_SOURCE),
        ("", {"model_name": "other"}, "gone", ALERT_SOURCE),
        ("", {}, "a", ALERT_SOURCE),
        ("", {}, "own", ALERT_SOURCE),
        ("", {"model_name": "other"}, "own", VERDICT_SOURCE),
    ):
        seen.append(IncidentSeen(host_name, key, labels, "s", "w", Level.WARN, at_s, at_s + 60.0, True, source))
    own = looks("own", frames_of("own"), own_gpumon=True)
    period = told(BY_MODEL, RecordedIncidents(tuple(seen)), a=looks("a", frames), own=own)
    assert sorted(one.group for one in period.incidents) == sorted([engine.model, "other", "", "other"])
    assert group(period, "other").incidents == 2.0
    assert group(period, "other").incident_s == 120.0
    assert period.total.incidents == 4.0
    by_host = told(BY_HOST, RecordedIncidents(tuple(seen[:1]), known_everywhere=True), a=looks("a", frames))
    assert by_host.groups[0].incidents == 1.0
    assert by_host.groups[0].critical_incidents == 0.0


def test_texts_of_another_gpumon_are_safe_in_a_report() -> None:
    evil = "m\x1b]0;x\x07"
    hostile = []
    for at, look in enumerate(looks("a", frames_of("a"), own_gpumon=True)):
        snapshot = look.shown.snapshot
        engines = tuple(replace(engine, model=evil) for engine in snapshot.engines)
        gpus = tuple(replace(gpu, name=evil, gpu_type=evil, unused_s=5.0 * at) for gpu in snapshot.gpus)
        shown = replace(look.shown, snapshot=replace(snapshot, engines=engines, gpus=gpus))
        hostile.append(look._replace(shown=shown))
    period = told(BY_MODEL, a=hostile)
    assert any(waster.models for waster in period.wasters)
    for text in (report(period), markdown(period)):
        assert text.replace("\n", "").isprintable()


def test_the_time_of_which_energy_is_known_is_in_seconds_whatever_the_interval() -> None:
    tally = GpuTally(0, "H100", 2.0)
    shown = stage.gpu().shown
    tally.take(shown, GpuGrowth(700.0, 0.1, 0.0), 15.0)
    tally.take(shown, GpuGrowth(NOT_SUPPORTED, NOT_SUPPORTED, 0.0), 45.0)
    group = GroupTally("a")
    group.add_gpu("h", "GPU-0", tally)
    period = group.period()
    assert (period.gpu_s, period.energy_known_s, period.unused_known_s) == (60.0, 15.0, 60.0)


@pytest.mark.parametrize("known_first", [True, False])
def test_incidents_of_a_group_are_known_if_those_of_a_part_are(known_first: bool) -> None:
    known = GroupTally("a")
    known.incidents_known = True
    known.incidents = 2
    parts = [known, GroupTally("b")]
    whole = GroupTally("")
    for part in parts if known_first else reversed(parts):
        whole.add_group(part)
    assert whole.period().incidents == 2.0
