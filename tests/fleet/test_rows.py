"""Rows per host and per model: sums by hand, weights, and what is not known."""

from __future__ import annotations

from math import fsum
from typing import Any

import pytest

from gpumon.efficiency.costs import host_costs
from gpumon.efficiency.gpu import over_window
from gpumon.efficiency.merged import merge_known
from gpumon.efficiency.quantiles import histogram_quantile
from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.fleet.order import SORTS, sort_fleet_rows
from gpumon.fleet.parts import MERGED, ONE, WORST, least_within_goal
from gpumon.fleet.row import FleetRow, is_least
from gpumon.fleet.rows import FRONT_ENDS, NO_ENGINE, NOT_PLACED, by_host, by_model, total_row
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.fleet.troubles import count_troubles
from gpumon.outputs.fleet import _latency_text
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, EngineKind, GpuState, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Level, Quantiles, WithinGoal
from gpumon.readings.verdict import Acknowledged, Limit
from tests.fleet.fleets import fed, fleet_frame
from tests.push.moments import THROTTLED
from tests.records import replace

PRICES = {"H100 SXM5 80GB": 3.0, "": 1.0}


@pytest.fixture(scope="module")
def fleet() -> FleetSnapshot:
    return fed(*(fleet_frame(at) for at in range(8)))


def gpus(fleet: FleetSnapshot) -> list[Gpu]:
    return [gpu for host in fleet.hosts for gpu in host.snapshot.gpus]


def engines(fleet: FleetSnapshot) -> list[Engine]:
    return [engine for host in fleet.hosts for engine in host.snapshot.engines]


def changed(fleet: FleetSnapshot, at: int, **changes: Any) -> FleetSnapshot:
    """The fleet with one host changed: `gpu` and `engine` are what to replace in its first GPU and engine."""
    host = fleet.hosts[at]
    shown = changes.pop("snapshot", host.snapshot)
    for field, things in (("gpu", shown.gpus), ("engine", shown.engines)):
        if field in changes:
            first = replace(things[0], **changes.pop(field))
            shown = replace(shown, **{f"{field}s": (first, *things[1:])})
    host = replace(host, snapshot=shown, **changes)
    return replace(fleet, hosts=(*fleet.hosts[:at], host, *fleet.hosts[at + 1 :]))


def known(*values: Any) -> list[float]:
    return [value for value in values if not isinstance(value, Missing)]


def test_a_host_has_the_sums_and_means_of_its_own(fleet: FleetSnapshot):
    row, shown = by_host(fleet, PRICES)[1], fleet.hosts[1].snapshot
    shown = replace(shown, gpus=tuple(map(over_window, shown.gpus)))  # as the host's own screen shows them
    assert any(
        gpu.reading.busy_ratio != fleet.hosts[1].snapshot.gpus[at].reading.busy_ratio
        for at, gpu in enumerate(shown.gpus)
    )
    assert (row.name, row.gpus, row.engines, row.silent) == ("gpu02", 8, 4, 0)
    assert row.gpu_types == (("H100 SXM5 80GB", 8),)
    assert row.busy_ratio.value == pytest.approx(fsum(known(*(gpu.reading.busy_ratio for gpu in shown.gpus))) / 8)
    assert row.power_w == (pytest.approx(fsum(known(*(gpu.power_w for gpu in shown.gpus)))), 8, 8)
    assert row.decode_tokens_per_s == pytest.approx(
        fsum(known(*(engine.rates.decode_tokens_per_s for engine in shown.engines)))
    )
    assert row.kv_usage_ratio == max(known(*(engine.load.kv_usage_ratio for engine in shown.engines)))
    assert row.idle_gpus.value == pytest.approx(8 - fsum(known(*(gpu.reading.busy_ratio for gpu in shown.gpus))))
    assert row.idle_cost_per_h.value == pytest.approx(3.0 * row.idle_gpus.value)


def test_the_worst_host_comes_first_before_any_verdict(fleet: FleetSnapshot) -> None:
    """At the first answer nothing has a verdict: a lost GPU, who waits, and what does not answer or is full."""
    first = fed(fleet_frame(0, 6))
    assert {row.level for row in by_host(first, {})} == {None}
    for at, change in (
        (5, {"gpu": {"state": GpuState.LOST}}),
        (4, {"engine": {"state": EndpointState.REFUSED}}),
        (3, {"engine": {"waiting": 40.0}}),
        (2, {"engine": {"waiting": 4.0}}),
        (1, {"engine": {"kv_usage_ratio": 1.0}}),
    ):
        first = changed(first, at, **change)
    names = [row.name for row in sort_fleet_rows(by_host(first, {}))]
    assert names == ["gpu06", "gpu04", "gpu03", "gpu02", "gpu05", "gpu01"]


def test_costs_are_sums_and_those_of_all_are_the_sums_of_the_hosts(fleet: FleetSnapshot):
    rows = by_host(fleet, PRICES)
    whole = total_row(rows)
    assert whole.cost_per_h == (24 * 3.0, 24, 24)
    for field in ("cost_per_h", "unused_gpu_s", "unused_cost", "energy_j"):
        parts = [getattr(row, field).value for row in rows]
        assert getattr(whole, field).value == pytest.approx(fsum(known(*parts))), field
    assert whole.unused_cost.value == pytest.approx(whole.unused_gpu_s.value / 3600.0 * 3.0)
    assert whole.cost_per_million_output_tokens == pytest.approx(24 * 3.0 / 3600.0 / whole.decode_tokens_per_s * 1e6)
    unpriced = total_row(by_host(fleet, {}))
    assert unpriced.cost_per_h == (Missing(Reason.NO_PRICE), 0, 24)
    assert unpriced.cost_per_million_all_tokens == Missing(Reason.NO_PRICE)


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ({"decode_tokens_per_s": Missing(Reason.STALE)}, False),
        ({"state": EndpointState.TIMEOUT, "decode_tokens_per_s": Missing(Reason.UNREACHABLE)}, False),
        ({"state": EndpointState.REFUSED, "decode_tokens_per_s": Missing(Reason.UNREACHABLE)}, True),
        ({"state": EndpointState.STARTING, "decode_tokens_per_s": Missing(Reason.UNREACHABLE)}, True),
        ({"decode_tokens_per_s": Missing(Reason.NOT_EXPOSED)}, True),
    ],
)
def test_tokens_of_some_engines_have_not_the_price_of_all_gpus(
    fleet: FleetSnapshot, change: dict[str, Any], is_known: bool
) -> None:
    """An engine that is not read for a moment generates on; one that is not there, or counts no answers, does not."""
    row = by_host(changed(fleet, 1, engine=change), PRICES)[1]
    assert isinstance(row.cost_per_h.value, float)
    assert isinstance(row.cost_per_million_output_tokens, float) is is_known
    shown = changed(fleet, 1, engine=change).hosts[1].snapshot
    costs = host_costs([replace(gpu, cost_per_hour=3.0) for gpu in shown.gpus], shown.engines)
    assert isinstance(costs.cost_per_million_output_tokens, float) is is_known


def test_all_rows_as_one_have_the_sums_of_all(fleet: FleetSnapshot):
    whole = total_row(by_host(fleet, PRICES))
    assert (whole.gpus, whole.engines, len(whole.hosts)) == (24, 12, 3)
    for field in ("decode_tokens_per_s", "prefill_tokens_per_s", "running", "requests_per_s"):
        assert getattr(whole, field) == pytest.approx(fsum(known(*(value_of(one, field) for one in engines(fleet)))))
    assert whole.vram_used_bytes.value == pytest.approx(
        fsum(known(*(gpu.reading.vram_used_bytes for gpu in gpus(fleet))))
    )
    both = [(gpu.mfu_ratio, gpu.flops_peak_per_s) for gpu in gpus(fleet)]
    pairs = [(ratio, peak) for ratio, peak in both if isinstance(ratio, float) and isinstance(peak, float)]
    mfu = fsum(ratio * peak for ratio, peak in pairs) / fsum(peak for _, peak in pairs)
    assert whole.mfu_ratio == (pytest.approx(mfu), len(pairs), 24)


def test_by_model_all_is_the_same_as_by_host(fleet: FleetSnapshot):
    hosts, models = total_row(by_host(fleet, PRICES)), total_row(by_model(fleet, PRICES))
    for field in FleetRow.__struct_fields__:
        if field not in ("parts", "models", "verdict"):
            mine, other = getattr(hosts, field), getattr(models, field)
            assert mine == pytest.approx(other) if isinstance(mine, float) else mine == other, field


def test_a_model_has_the_engines_and_gpus_of_all_hosts(fleet: FleetSnapshot):
    rows = {row.name: row for row in by_model(fleet, PRICES)}
    llama = rows["RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"]
    assert (llama.hosts, llama.gpus, llama.engines) == (("gpu01", "gpu02", "gpu03"), 12, 3)
    assert sum(row.engines for row in rows.values()) == 12


def test_gpus_without_an_engine_have_a_row_of_their_own(fleet: FleetSnapshot):
    bare = replace(fleet.hosts[0].snapshot, engines=())
    fleet = changed(fleet, 0, snapshot=bare)
    rest = by_model(fleet, PRICES)[-1]
    assert (rest.name, rest.gpus, rest.engines, rest.hosts) == (NO_ENGINE, 8, 0, ("gpu01",))
    assert total_row(by_model(fleet, PRICES)).gpus == 24


def test_a_share_is_weighted_with_its_peak_and_says_of_how_many_it_is_known():
    unknown = Missing(Reason.NO_ENGINE)
    assert merge_known(GPU["mfu_ratio"], [0.5, 0.2, unknown], [1000.0, 3000.0, 1000.0]) == (pytest.approx(0.275), 2, 3)
    assert merge_known(GPU["mfu_ratio"], [unknown, unknown], [1000.0, 1000.0]).value == unknown
    unplaced = Missing(Reason.UNMAPPED)
    assert merge_known(GPU["mfu_ratio"], [unknown, unknown, unplaced], [1.0, 1.0, 1.0]).value == unplaced, (
        "an engine is somewhere there"
    )
    assert merge_known(GPU["mfu_ratio"], [], []) == (NOT_SUPPORTED, 0, 0)


def test_what_is_not_known_is_left_out_and_never_zero(fleet: FleetSnapshot):
    lost = Missing(Reason.LOST)
    row = by_host(
        changed(fleet, 0, gpu={"state": GpuState.LOST, "busy_ratio": lost, "power_w": lost, "mfu_ratio": lost}), PRICES
    )[0]
    assert (row.busy_ratio.gpus, row.power_w.gpus, row.mfu_ratio.gpus) == (7, 7, 7)
    assert row.busy_ratio.of == row.gpus == 8
    assert by_host(fleet, {})[0].idle_cost_per_h == (Missing(Reason.NO_PRICE), 0, 8)


def test_latencies_of_many_engines_are_those_of_all_their_requests(fleet: FleetSnapshot):
    whole = total_row(by_host(fleet, PRICES))
    windows = [found.ttft for host in fleet.hosts for found in host.latencies.values() if found.ttft is not None]
    merged = HistogramReading(
        windows[0].bounds,
        tuple(sum(column) for column in zip(*(window.counts for window in windows), strict=True)),
        sum(window.sum for window in windows),
        sum(window.count for window in windows),
    )
    assert len(windows) == 12
    assert whole.ttft_p95_s == (pytest.approx(histogram_quantile(merged, 0.95)[0]), MERGED, False)


def test_a_p95_beyond_the_end_of_a_histogram_is_a_least_value_of_its_row(fleet: FleetSnapshot) -> None:
    """Nobody knows how far beyond: `>80s`."""
    beyond = Quantiles(p95=80.0, p95_low=80.0, p95_high=Missing(Reason.INVALID))
    shown = fleet.hosts[1].snapshot
    one = replace(shown, engines=(replace(shown.engines[0], ttft_s=beyond),))
    alone = by_host(changed(fleet, 1, snapshot=one), PRICES)[1]
    several = by_host(changed(fleet, 1, engine={"ttft_s": beyond}, latencies={}), PRICES)[1]
    assert alone.ttft_p95_s == (80.0, ONE, True)
    assert several.ttft_p95_s == (80.0, WORST, True)
    assert _latency_text(several.ttft_p95_s._replace(value=2560.0)) == "^>42m", "it is no 43 minutes at least"
    assert is_least(alone, ENGINE["ttft_s.p95"])
    assert not is_least(alone, ENGINE["waiting"])


def test_the_share_within_a_goal_is_over_all_requests_and_leaves_out_engines_that_observe_none(fleet: FleetSnapshot):
    whole = total_row(by_host(fleet, PRICES))
    engines = [engine for host in fleet.hosts for engine in host.snapshot.engines]
    shares = [engine.goodput.ttft_goal for engine in engines]
    counts = [share.count for share in shares if isinstance(share.count, float)]
    assert len(counts) == 12
    in_goal = sum(share.low_ratio * share.count for share in shares if isinstance(share.low_ratio, float))
    assert whole.ttft_goal_ratio == pytest.approx(in_goal / sum(counts))
    assert least_within_goal([WithinGoal(0.5, 0.6, 1.0, 10.0), WithinGoal()]) == 0.5
    assert least_within_goal([]) == NOT_EXPOSED


def test_tokens_do_not_outweigh_the_requests_of_other_engines(fleet: FleetSnapshot):
    idle = Missing(Reason.IDLE)
    host = fleet.hosts[0]
    first, second, *_ = host.snapshot.engines
    slow = replace(first, tpot_goal=WithinGoal(0.5, 0.5, 0.05, 100.0), itl_goal=WithinGoal(0.6, 0.6, 0.05, 9e4))
    streams = replace(second, tpot_goal=WithinGoal(idle, idle, 0.05, 0.0), itl_goal=WithinGoal(1.0, 1.0, 0.05, 1e5))
    mixed = changed(fleet, 0, snapshot=replace(host.snapshot, engines=(slow, streams)))
    assert by_host(mixed, PRICES)[0].itl_goal_ratio == 0.5
    alone = changed(fleet, 0, snapshot=replace(host.snapshot, engines=(streams,)))
    assert by_host(alone, PRICES)[0].itl_goal_ratio == 1.0


def test_a_host_that_is_gone_counts_for_nothing(fleet: FleetSnapshot):
    row = by_host(changed(fleet, 1, state=HostState.GONE), PRICES)[1]
    assert (row.state, row.gpus, row.engines, row.silent, row.troubled) == (HostState.GONE, 8, 4, 4, 1)
    assert isinstance(row.decode_tokens_per_s, Missing)
    assert isinstance(row.busy_ratio.value, Missing)
    assert row.level is None


def test_joules_of_a_gpu_that_two_engines_share_count_once(fleet: FleetSnapshot):
    shared = [
        replace(engine, gpus=(0,), decode_tokens_per_s=100.0, power_w=500.0)
        for engine in fleet.hosts[0].snapshot.engines[:2]
    ]
    shown = replace(fleet.hosts[0].snapshot, engines=tuple(shared))
    assert by_host(changed(fleet, 0, snapshot=shown), PRICES)[0].tokens_per_j == pytest.approx(0.4)


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "name"])
def test_missing_figures_come_last_and_equals_go_by_name(fleet: FleetSnapshot, sort: str):
    first = fleet.hosts[0]
    names = ["gpu10", "gpu9", "gpu1"]
    same = [replace(first, name=name) for name in names]
    nothing = replace(first, name="a", snapshot=replace(first.snapshot, gpus=(),
                                      engines=(), verdicts=()))  # fmt: skip
    rows = by_host(replace(fleet, hosts=(nothing, *same)), PRICES)
    assert [row.name for row in sort_fleet_rows(rows, sort)] == ["gpu1", "gpu9", "gpu10", "a"]
    assert [row.name for row in sort_fleet_rows(reversed(rows), sort)] == ["gpu1", "gpu9", "gpu10", "a"]


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "name"])
def test_what_nothing_is_known_of_comes_first_the_worst_of_it_before_all(fleet: FleetSnapshot, sort: str):
    first = fleet.hosts[0]
    states = {"a": HostState.OK, "b": HostState.STALE, "c": HostState.GONE, "e": HostState.UNREACHABLE}
    hosts = [replace(first, name=name, state=state) for name, state in states.items()]
    more = replace(hosts[-1], name="d")
    rows = by_host(replace(fleet, hosts=(*hosts, more)), PRICES)
    assert [row.name for row in sort_fleet_rows(rows, sort)] == ["c", "d", "e", "b", "a"]
    assert [row.name for row in sort_fleet_rows(reversed(rows), "name")] == ["a", "b", "c", "d", "e"]


def test_trouble_comes_first_and_is_counted(fleet: FleetSnapshot):
    quiet = replace(fleet.hosts[0], snapshot=replace(fleet.hosts[0].snapshot, verdicts=()))
    verdict = fleet.hosts[2].snapshot.verdicts[0]
    refused = replace(quiet.snapshot.engines[0], state=EndpointState.REFUSED)
    changes = {
        "well": {},
        "down": {"state": HostState.PARTIAL, "exporters_down": 1},
        "silent": {"snapshot": replace(quiet.snapshot, engines=(refused, *quiet.snapshot.engines[1:]))},
        "full": {"snapshot": replace(quiet.snapshot, verdicts=(replace(verdict, level=Level.CRITICAL),))},
        "noted": {"snapshot": replace(quiet.snapshot, verdicts=(replace(verdict, level=Level.NOTE),))},
        "gone": {"state": HostState.GONE},
    }
    hosts = tuple(replace(quiet, name=name, **change) for name, change in changes.items())
    rows = sort_fleet_rows(by_host(replace(fleet, hosts=hosts), PRICES))
    names = [row.name for row in rows]
    assert (names[:2], {*names[2:4]}, names[4:]) == (["gone", "full"], {"down", "silent"}, ["noted", "well"])
    assert count_troubles(rows) == ["1 host critical", "1 silent engine", "1 exporter down"]


def test_a_gpu_under_mig_is_as_busy_as_its_slices(fleet: FleetSnapshot):
    shown = fleet.hosts[0].snapshot
    under_mig = Missing(Reason.UNDER_MIG)
    parent = replace(shown.gpus[0], busy_ratio=under_mig, busy_window_ratio=under_mig)
    slices = tuple(
        replace(parent, uuid=f"MIG-{at}", parent_uuid=parent.reading.uuid, mig_profile=profile, busy_ratio=busy)
        for at, (profile, busy) in enumerate((("3g.40gb", 0.7), ("2g.20gb", 0.35), ("1g.10gb", 0.0)))
    )
    snapshot = replace(shown, gpus=(parent, *slices), engines=())
    busy = by_host(changed(fleet, 0, snapshot=snapshot), PRICES)[0].busy_ratio
    assert busy == (pytest.approx(0.4), 1, 1)
    silent = replace(slices[0], busy_ratio=Missing(Reason.STALE))
    partly = replace(snapshot, gpus=(parent, silent, *slices[1:]))
    busy = by_host(changed(fleet, 0, snapshot=partly), PRICES)[0].busy_ratio
    assert busy == (under_mig, 0, 1), "without one slice it would be 10% busy, and seven tenths unused"


def test_the_most_waste_comes_first(fleet: FleetSnapshot):
    rows = sort_fleet_rows(by_host(fleet, PRICES), "waste")
    costs = [round(row.idle_cost_per_h.value, 1) for row in rows]
    assert costs == sorted(costs, reverse=True)
    idle = [round(row.idle_gpus.value, 1) for row in sort_fleet_rows(by_host(fleet, {}), "waste")]
    assert idle == sorted(idle, reverse=True), "hosts within a tenth of a GPU keep their places"


def test_a_host_whose_gpus_nobody_knows_has_not_none(fleet: FleetSnapshot):
    without = replace(fleet.hosts[0].snapshot, gpus=())
    silent = changed(fleet, 0, snapshot=without, state=HostState.UNREACHABLE)
    found = by_host(silent, {})[0].gpus
    assert isinstance(found, Missing)
    assert found.reason is Reason.UNREACHABLE
    assert by_host(changed(fleet, 0, snapshot=without, own_gpumon=True), {})[0].gpus == 0


def test_gpus_that_engines_may_be_on_are_not_without_an_engine(fleet: FleetSnapshot):
    unplaced = {"mfu_ratio": Missing(Reason.UNMAPPED), "mbu_ratio": Missing(Reason.UNMAPPED)}
    shown = fleet.hosts[1].snapshot
    more = replace(shown.gpus[0], index=99, uuid="GPU-more", engines=(), **unplaced)
    bare = replace(more, index=98, uuid="GPU-bare", mfu_ratio=Missing(Reason.NO_ENGINE))
    rows = by_model(changed(fleet, 1, snapshot=replace(shown, gpus=(*shown.gpus, more, bare))), PRICES)
    assert [(row.name, row.gpus, row.hosts) for row in rows[-2:]] == [
        (NO_ENGINE, 1, ("gpu02",)),
        (NOT_PLACED, 1, ("gpu02",)),
    ]
    assert len({row.key for row in rows}) == len(rows)


def test_the_worst_verdict_comes_first(fleet: FleetSnapshot):
    verdict = fleet.hosts[2].snapshot.verdicts[0]
    critical = replace(verdict, level=Level.CRITICAL)
    shown = replace(fleet.hosts[2].snapshot, verdicts=(verdict, critical))
    rows = sort_fleet_rows(by_host(changed(fleet, 2, snapshot=shown), PRICES), "level")
    assert (rows[0].name, rows[0].level) == ("gpu03", Level.CRITICAL)
    assert rows[0].verdict.startswith(f"{critical.scope}: ")


def test_a_shared_gpu_is_in_the_row_of_each_model_with_its_part(fleet: FleetSnapshot):
    shown = fleet.hosts[0].snapshot
    one, two = (
        replace(engine, gpus=(0,), mfu_ratio=ratio) for engine, ratio in zip(shown.engines[:2], (0.1, 0.3), strict=True)
    )
    gpu = replace(shown.gpus[0], engines=(one.name, two.name), mfu_ratio=0.4, flops_peak_per_s=1e15)
    host = HostShown("h", {}, replace(shown, gpus=(gpu,), engines=(one, two)))
    rows = by_model(FleetSnapshot("", 1.0, 15.0, (host,)), PRICES)
    assert sorted(row.mfu_ratio.value for row in rows) == [pytest.approx(0.1), pytest.approx(0.3)]
    assert total_row(rows).mfu_ratio == (pytest.approx(0.4), 1, 1)


def test_a_router_is_in_the_row_of_its_model_and_in_no_sum(fleet: FleetSnapshot) -> None:
    """One under a name that no engine has is in a row of its own: an alias is no model."""
    host = fleet.hosts[0]
    backend = host.snapshot.engines[0]
    fields: dict[str, Any] = {"gpus": (), "running": 999.0, "waiting": 999.0}
    router = replace(backend, name="smg:29000", kind=EngineKind.SMG, url="http://gpu01:29000", **fields)
    other = replace(router, name="litellm:4000", kind=EngineKind.LITELLM, url="http://gpu01:4000", model="chat")
    shown = replace(host.snapshot, engines=(*host.snapshot.engines, router, other))
    routed = changed(fleet, 0, snapshot=shown)
    before = {row.name: row for row in by_model(fleet, {})}
    after = {row.name: row for row in by_model(routed, {})}
    assert after.keys() - before.keys() == {FRONT_ENDS}
    assert after[backend.model].engines == before[backend.model].engines + 1
    assert after[FRONT_ENDS].engines == 1
    assert isinstance(after[FRONT_ENDS].running, Missing)
    for field in ("running", "waiting", "requests_per_s", "decode_tokens_per_s"):
        assert getattr(after[backend.model], field) == getattr(before[backend.model], field)
        assert getattr(by_host(routed, {})[0], field) == getattr(by_host(fleet, {})[0], field)
    assert "chat" not in by_host(routed, {})[0].models


def test_a_verdict_that_is_acknowledged_on_its_host_makes_no_trouble_in_the_fleet(fleet: FleetSnapshot) -> None:
    standing = replace(THROTTLED, key=fleet.hosts[0].snapshot.gpus[0].reading.uuid)
    known = replace(
        standing, acknowledged=Acknowledged("anna", "fan ordered", "2026-11-23T06:00:00Z", "2026-11-22T22:00:00Z")
    )
    rows = {}
    for name, verdict in (("stands", standing), ("known", known)):
        shown = replace(fleet.hosts[0].snapshot, verdicts=(verdict,), faults=())
        rows[name] = by_host(changed(fleet, 0, snapshot=shown), PRICES)[0]
    assert count_troubles([rows["stands"]])[0] == "1 host critical"
    assert "1 host critical" not in count_troubles([rows["known"]])
    assert rows["known"].level is None
    assert rows["known"].verdict.startswith("gpu 3: acknowledged by anna until 06:00:00")


def test_broken_hardware_comes_before_what_is_silent_and_before_other_critical_verdicts(fleet: FleetSnapshot):
    first = fleet.hosts[0]
    verdict = replace(fleet.hosts[2].snapshot.verdicts[0], level=Level.CRITICAL)
    down = replace(verdict, code=Limit.DOWN, cause="unreachable")
    xid = replace(verdict, code=Limit.HARDWARE_FAULT, cause="xid")
    hosts = (
        replace(first, name="silent", state=HostState.UNREACHABLE),
        replace(first, name="xid", snapshot=replace(first.snapshot, verdicts=(down, xid))),
    )
    rows = sort_fleet_rows(by_host(replace(fleet, hosts=hosts), PRICES))
    assert [row.name for row in rows] == ["xid", "silent"]
    assert rows[0].worst is not None
    assert rows[0].worst.code is Limit.HARDWARE_FAULT
