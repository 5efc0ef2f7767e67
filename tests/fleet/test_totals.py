"""A host with GPUs of two types, of which not all is known: a report and a row over it, beside totals by hand.

GPU 0 is an H100 with a peak of 1,000 FLOP/s and 3,000 B/s, GPU 1 an A100 with 300 FLOP/s and 2,000 B/s; one engine runs
on both. There are three looks, 100 s apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from gpumon.config.prices import goals_of
from gpumon.config.schema import Config
from gpumon.efficiency.merged import common_reason, merge_all
from gpumon.figures.gpu import GPU
from gpumon.fleet.grouping import BY_HOST, ReportGrouping
from gpumon.fleet.period import Basis, HostLook, HostSums, RecordedIncidents, ReportedTime, fleet_period
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import by_host
from gpumon.fleet.snapshot import FleetSnapshot, HostShown
from gpumon.outputs.fleet_period import report
from gpumon.readings.fleet_period import FleetPeriod
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.prices import NO_PRICE, Prices
from gpumon.readings.snapshot import BandwidthSource, Gpu, TokensTotal
from tests.fleet.fleets import fed, fleet_frame
from tests.records import make_gpu, replace

STEP_S = 100.0
UNKNOWN = Missing(Reason.NOT_SUPPORTED)
PRICES = {"H100 SXM 80GB": 3.0, "A100 SXM 40GB": 1.5}
H100 = make_gpu(
    0, "h", "H100", GpuState.OK, 0.0, gpu_type="H100 SXM 80GB", flops_peak_per_s=1000.0,
    bandwidth_peak_bytes_per_s=3000.0,
)  # fmt: skip
A100 = make_gpu(
    1, "a", "A100", GpuState.OK, 0.0, gpu_type="A100 SXM 40GB", flops_peak_per_s=300.0,
    bandwidth_peak_bytes_per_s=2000.0,
)  # fmt: skip
ROWS: Sequence[tuple[dict[str, Any], dict[str, Any]]] = (
    (
        {"energy_j": 0.0, "unused_s": 0.0},
        {"energy_j": UNKNOWN, "unused_s": 0.0},
    ),
    (
        {"busy_ratio": 0.9, "mfu_ratio": 0.4, "mbu_ratio": 0.2, "energy_j": 4000.0, "unused_s": 10.0},
        {"busy_ratio": 0.5, "mfu_ratio": 0.1, "mbu_ratio": 0.6, "energy_j": 1000.0, "unused_s": 60.0},
    ),
    (
        {"busy_ratio": 0.7, "mfu_ratio": 0.6, "mbu_ratio": 0.3, "energy_j": 9000.0, "unused_s": 10.0},
        {"busy_ratio": 0.5, "mfu_ratio": UNKNOWN, "mbu_ratio": 0.5, "energy_j": 3000.0, "unused_s": 100.0},
    ),
)
"""What the H100 and the A100 say at each look."""


@cache
def shown_host() -> HostShown:
    """The host whose GPUs and tokens the looks replace."""
    return fed(*(fleet_frame(at, hosts=1) for at in range(8))).hosts[0]


def looks(*, whole_energy: bool = False, others: Sequence[Gpu] = (), **changed: dict[str, Any]) -> list[HostLook]:
    """The looks at the host; `whole_energy`: with the A100's energy from the first one on; `others`: more GPUs.

    `changed`: UUID of a GPU -> what it says at every look in place of what it says in `ROWS`.
    """
    shown = shown_host()
    engine = shown.snapshot.engines[0]
    found = []
    for number, (first, second) in enumerate(ROWS):
        if whole_energy and number == 0:
            second = {**second, "energy_j": 0.0}
        tokens = TokensTotal(prefill_computed=2000.0 * number, prefill_cached=1000.0 * number, decode=1000.0 * number)
        engines = (replace(engine, gpus=(0, 1), tokens_total=tokens),)
        gpus = (replace(H100, **{**first, **changed.get("h", {})}), replace(A100, **{**second, **changed.get("a", {})}))
        snapshot = replace(shown.snapshot, gpus=(*gpus, *others), engines=engines)
        host = replace(shown, snapshot=snapshot, worker_gpus={}, owners={})
        found.append(HostLook(1e9 + number * STEP_S, host))
    return found


def reported(prices: dict[str, float], **given: Any) -> FleetPeriod:
    """The report over the looks; energy costs 3.6 a kWh: a millionth a joule."""
    basis = Basis(STEP_S, Prices(prices, 3.6), goals_of(Config().goals), ReportGrouping(BY_HOST).groups)
    sums = HostSums(basis)
    for look in looks(**given):
        sums.take(look)
    time = ReportedTime(1e9, 1e9 + 200.0, BY_HOST)
    return fleet_period({shown_host().name: sums}, time, basis, RecordedIncidents())


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


def test_shares_of_peaks_are_weighted_with_the_peaks_and_say_for_how_long_they_are_known():
    total = reported(PRICES).total
    assert total.gpu_s == total.busy_known_s == total.mbu_known_s == 400.0
    assert total.mfu_known_s == 300.0
    assert total.mfu_ratio == near((0.4 * 1000 + 0.6 * 1000 + 0.1 * 300) * 100 / (1000 * 200 + 300 * 100))
    assert total.mbu_ratio == near((0.2 * 3000 + 0.3 * 3000 + 0.6 * 2000 + 0.5 * 2000) / (2 * 5000))
    assert total.busy_ratio == near((0.9 + 0.7 + 0.5 + 0.5) / 4)


def test_energy_of_a_part_of_the_time_is_told_with_that_time_and_divides_no_tokens():
    total = reported(PRICES).total
    assert (total.energy_j, total.energy_known_s) == (11_000.0, 300.0)
    assert total.energy_cost == near(0.011)
    assert isinstance(total.tokens_per_j, Missing)
    whole = reported(PRICES, whole_energy=True).total
    assert (whole.energy_j, whole.energy_known_s) == (12_000.0, 400.0)
    assert whole.tokens_per_j == near(2000.0 / 12_000.0)


def test_money_is_that_of_each_type_and_of_unused_time_that_of_each_gpu():
    total = reported(PRICES).total
    assert total.cost == near((3.0 * 200 + 1.5 * 200) / 3600)
    assert total.priced_s == 400.0
    assert total.cost_per_million_tokens == near(0.25 / 2000 * 1e6)
    assert total.cost_per_million_all_tokens == near(0.25 / 8000 * 1e6)
    assert total.tokens_per_cost == near(8000.0)
    assert total.unused_gpu_s == near(110.0)
    assert total.unused_cost == near((3.0 * 10 + 1.5 * 100) / 3600)


def test_without_the_price_of_one_type_tokens_have_none_and_the_known_costs_stay():
    period = reported({"H100 SXM 80GB": 3.0})
    total = period.total
    assert total.cost == near(3.0 * 200 / 3600)
    assert total.priced_s == 200.0
    prices: tuple[Reading, ...] = (total.cost_per_million_tokens, total.cost_per_million_all_tokens)
    assert prices == (NO_PRICE, NO_PRICE)
    assert isinstance(total.tokens_per_cost, Missing)
    assert total.unused_cost == near(3.0 * 10 / 3600)
    assert [(one.gpu_type, one.gpus, one.gpu_s) for one in period.unpriced] == [("A100 SXM 40GB", 1, 200.0)]


def row_of_last_look(
    prices: dict[str, float], *, changed: dict[str, dict[str, Any]] | None = None, **engine_fields: Any
) -> FleetRow:
    """The row of the host at the last look; `engine_fields`: other figures of its engine, `changed`: of its GPUs."""
    host = looks(**(changed or {}))[-1].shown
    engine = replace(host.snapshot.engines[0], **engine_fields)
    host = replace(host, snapshot=replace(host.snapshot, engines=(engine,)))
    return by_host(FleetSnapshot("", 0.0, STEP_S, (host,)), prices)[0]


def test_a_row_weighs_each_share_with_its_own_peak_and_says_of_how_many_gpus_it_is():
    row = row_of_last_look(PRICES)
    assert row.mfu_ratio == (near(0.6), 1, 2)
    assert row.mbu_ratio == (near((0.3 * 3000 + 0.5 * 2000) / 5000), 2, 2)
    assert row.busy_ratio == (near(0.6), 2, 2)
    assert row.energy_j == (12_000.0, 2, 2)
    assert row.idle_gpus.value == near(0.3 + 0.5)


def test_a_row_has_a_price_of_tokens_only_with_the_price_of_each_gpu():
    rates = {"decode_tokens_per_s": 100.0, "prefill_tokens_per_s": 300.0, "cached_tokens_per_s": 0.0}
    row = row_of_last_look(PRICES, **rates)
    assert row.cost_per_h == (near(4.5), 2, 2)
    assert row.cost_per_million_output_tokens == near(4.5 / 3600 / 100 * 1e6)
    assert row.cost_per_million_all_tokens == near(4.5 / 3600 / 400 * 1e6)
    assert row.idle_cost_per_h.value == near(3.0 * 0.3 + 1.5 * 0.5)
    assert row.unused_cost.value == near((3.0 * 10 + 1.5 * 100) / 3600)
    row = row_of_last_look({"H100 SXM 80GB": 3.0}, **rates)
    assert row.cost_per_h == (near(3.0), 1, 2)
    assert (row.cost_per_million_output_tokens, row.cost_per_million_all_tokens) == (NO_PRICE, NO_PRICE)


def test_tokens_per_joule_of_a_row_are_over_the_watts_of_both_gpus():
    row = row_of_last_look(PRICES, decode_tokens_per_s=100.0, power_w=800.0)
    assert row.tokens_per_j == near(100.0 / 800.0)


def test_a_gpu_without_a_known_peak_is_in_no_share_of_peaks():
    total = reported(PRICES, a={"flops_peak_per_s": UNKNOWN}).total
    assert (total.mfu_ratio, total.mfu_known_s) == (near((0.4 + 0.6) / 2), 200.0)
    row = row_of_last_look(
        PRICES,
        changed={
            "h": {"bandwidth_bytes_per_s": 1500.0},
            "a": {"bandwidth_bytes_per_s": 1000.0, "bandwidth_peak_bytes_per_s": UNKNOWN, "mbu_ratio": UNKNOWN},
        },
    )
    assert row.bandwidth_ratio == (near(0.5), 1, 2)
    assert row.mbu_ratio == (near(0.3), 1, 2)
    assert merge_all(GPU["mfu_ratio"], [0.4, 0.1], [1000.0, 300.0]) == near((0.4 * 1000 + 0.1 * 300) / 1300)
    assert merge_all(GPU["mfu_ratio"], [0.4, 0.1], [1000.0, UNKNOWN]) == UNKNOWN


def test_bandwidth_of_two_types_is_held_against_both_peaks_and_as_sure_as_the_less_sure_one():
    row = row_of_last_look(
        PRICES,
        changed={
            "h": {"bandwidth_bytes_per_s": 1500.0, "bandwidth_source": BandwidthSource.GPM},
            "a": {"bandwidth_bytes_per_s": 500.0, "bandwidth_source": BandwidthSource.ENGINE},
        },
    )
    assert row.bandwidth_ratio == (near(2000 / 5000), 2, 2)
    assert row.bandwidth_source is BandwidthSource.ENGINE


def test_a_gpu_whose_busy_share_is_not_known_is_neither_idle_nor_busy():
    row = row_of_last_look(PRICES, changed={"a": {"busy_ratio": UNKNOWN}})
    assert row.busy_ratio == (near(0.7), 1, 2)
    assert row.idle_gpus == (near(0.3), 1, 2)
    assert row.idle_cost_per_h == (near(3.0 * 0.3), 1, 2)
    assert row.gpu_types == (("H100 SXM 80GB", 1), ("A100 SXM 40GB", 1))


def test_that_there_is_no_engine_is_the_reason_of_all_gpus_only_where_all_say_so():
    nobody = Missing(Reason.NO_ENGINE)
    assert common_reason([nobody, nobody, UNKNOWN]) == UNKNOWN
    assert common_reason([nobody, nobody]) == nobody


def test_what_no_gpu_tells_costs_nothing_that_is_known():
    unknown = {"energy_j": UNKNOWN, "unused_s": UNKNOWN}
    total = reported(PRICES, h=unknown, a=unknown).total
    assert isinstance(total.energy_cost, Missing)
    assert isinstance(total.unused_cost, Missing)
    assert isinstance(total.unused_gpu_s, Missing)
    assert total.cost == near((3.0 * 200 + 1.5 * 200) / 3600)


def test_waste_and_hours_without_a_price_are_those_of_all_gpus_of_both_types():
    second = replace(A100, index=2, uuid="b")
    period = reported({"H100 SXM 80GB": 3.0}, others=[second])
    assert [(one.gpu_type, one.gpus, one.gpu_s) for one in period.unpriced] == [("A100 SXM 40GB", 2, 400.0)]
    (waster,) = reported(PRICES).wasters
    assert waster.gpu_type == "A100 SXM 40GB, H100 SXM 80GB"
    assert (waster.gpus, waster.gpu_s, waster.unused_gpu_s) == ((0, 1), 400.0, near(110.0))
    assert waster.unused_cost == near((3.0 * 10 + 1.5 * 100) / 3600)


def test_unused_time_of_a_gpu_without_an_engine_is_not_said_to_be_all_of_it():
    """A training run computes for 290 of these 400 GPU-seconds: no model of an engine is known of it."""
    period = reported(PRICES)
    (waster,) = period.wasters
    without_models = replace(period, wasters=(replace(waster, models=()),))
    text = report(without_models, 160)
    assert "no model known" in text
    assert "nothing ran" not in text


def test_tokens_of_an_engine_whose_watts_are_not_known_are_divided_by_none():
    host = looks()[-1].shown
    known = replace(host.snapshot.engines[0], gpus=(0,), decode_tokens_per_s=100.0, power_w=800.0)
    other = replace(known, name="other", url="http://127.0.0.1:1", gpus=(1,), decode_tokens_per_s=50.0, power_w=UNKNOWN)
    host = replace(host, snapshot=replace(host.snapshot, engines=(known, other)))
    row = by_host(FleetSnapshot("", 0.0, STEP_S, (host,)), PRICES)[0]
    assert row.tokens_per_j == near(100.0 / 800.0)
