"""Costs: known hours, energies and token counts, and sums that add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpumon.efficiency.costs import ONCE_SHARED_GPU, SHARED_GPU
from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.rates import NOT_LIVE
from gpumon.readings import quantities as q
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Advance, EngineReading, GpuProcess
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.prices import FREE, NO_ENERGY_PRICE, NO_PRICE, DayHours, EnergyPrice, Prices
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import engine, frame, gpu, rank
from tests.records import replace

PER_HOUR = 3.6
PER_KWH = 0.5
PRICES = Prices({"": PER_HOUR}, PER_KWH)
TICKS = 61
WATTS = 720.0
FREE_CARD = {"busy_ratio": 0.0, "vram_used_bytes": 0.0}


def polled(at_s: float, running: float, *, idle_s: float = 0.0, **facts: Any) -> EngineReading:
    """An engine on the first GPU that makes 50 tokens of output, computes 100 and finds 350 of prompts per second.

    `idle_s`: how long it was idle before.
    """
    served_s = max(0.0, at_s - idle_s)
    counters = {q.DECODE_TOKENS: 50.0, q.PREFILL_COMPUTED: 100.0, q.PREFILL_CACHED: 350.0}
    counters = {name: per_s * served_s for name, per_s in counters.items()}
    ranks = (rank(counters, {q.RUNNING: running, q.KV_USAGE: 0.01, q.POOL_TOKENS: 1e5}),)
    return replace(engine(at_s, counters, **facts), ranks=ranks)


def after(
    prices: Prices,
    idle_s: float = 0.0,
    *,
    card: Mapping[str, Any] | None = None,
    sharing: bool = False,
    brief: bool = False,
) -> Snapshot:
    """A minute of two GPUs of 720 W, the second free; the engine on the first is idle at first.

    `brief`: none of its requests runs at any poll.
    """
    deriver = Deriver(gpu_catalogue(), prices=prices)
    for tick in range(TICKS):
        at_s = float(tick)
        cards = (gpu(0, at_s, energy_j=WATTS * at_s, **(card or {})), gpu(1, at_s, energy_j=WATTS * at_s, **FREE_CARD))
        engines = [polled(at_s, 1.0 if at_s > idle_s and not brief else 0.0, idle_s=idle_s)]
        if sharing:
            engines.append(replace(engines[0], name="other", url="http://127.0.0.1:8001"))
        snapshot = deriver.derive(frame(at_s, cards, tuple(engines))).snapshot
    return snapshot


def test_known_hours_energy_and_tokens_have_known_costs() -> None:
    snapshot = after(PRICES, idle_s=40.0)
    served, unheld = snapshot.gpus
    assert (served.cost_per_hour, unheld.cost_per_hour) == (PER_HOUR, PER_HOUR)
    assert (served.unused_s, unheld.unused_s) == (40.0, 60.0)
    assert served.unused_cost == pytest.approx(40.0 * 0.001)
    assert served.energy_j == pytest.approx(60.0 * WATTS)
    assert served.energy_cost == pytest.approx(60.0 * WATTS / 3.6e6 * PER_KWH)
    costs = snapshot.engines[0].costs
    assert costs.cost_per_hour == PER_HOUR
    assert costs.cost_per_million_output_tokens == pytest.approx(0.001 / 50.0 * 1e6)
    assert costs.cost_per_million_all_tokens == pytest.approx(0.001 / 500.0 * 1e6)
    assert (costs.unused_s, costs.unused_cost) == (served.unused_s, served.unused_cost)
    assert (costs.energy_j, costs.energy_cost) == (served.energy_j, served.energy_cost)


def test_requests_that_no_poll_meets_are_use_all_the_same() -> None:
    """As of a server of embeddings: 59 requests a second, each over before the page is read."""
    snapshot = after(PRICES, idle_s=40.0, brief=True)
    (served,) = snapshot.engines
    assert served.load.running == 0.0
    assert (snapshot.gpus[0].unused_s, served.costs.unused_s) == (40.0, 40.0)
    assert served.served.seen.busy_ratio == pytest.approx(20.0 / 60.0)
    assert served.served.seen.peak_running == 1.0
    assert snapshot.costs.unused_gpu_s == 100.0


def test_where_no_gauge_tells_what_runs_a_request_that_is_not_counted_yet_is_no_unused_time() -> None:
    """As of a Triton whose backend takes 50 s for a request."""
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        at_s = float(tick)
        counters = {q.REQUESTS: float(at_s >= 55.0), q.INFERENCES: float(at_s >= 55.0)}
        polled_engine = replace(engine(at_s, counters), ranks=(rank(counters, {}),))
        snapshot = deriver.derive(frame(at_s, (gpu(0, at_s),), (polled_engine,))).snapshot
    (served,) = snapshot.engines
    for unused in (snapshot.gpus[0].unused_s, served.costs.unused_s, served.costs.unused_cost):
        assert unused == Missing(Reason.NOT_EXPOSED)
    assert isinstance(served.served.seen.busy_ratio, Missing)


def test_a_gpu_without_an_engine_is_unused_while_no_kernel_runs_whoever_holds_its_memory() -> None:
    held = {"vram_used_bytes": 4e10, "processes": (GpuProcess(7, "python"),)}
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        busy = 1.0 if tick < 21 else 0.0
        cards = (gpu(0, float(tick), busy_ratio=0.0, **held), gpu(1, float(tick), busy_ratio=busy, **held))
        snapshot = deriver.derive(frame(float(tick), cards)).snapshot
    assert [card.unused_s for card in snapshot.gpus] == [60.0, 40.0]
    assert snapshot.gpus[0].unused_cost == pytest.approx(60.0 * 0.001)


@pytest.mark.parametrize(("advance", "told"), [(Advance.LIVE, True), (Advance.END, False)])
def test_all_tokens_have_no_price_while_the_rate_of_the_cached_ones_is_not_known(advance: Advance, told: bool) -> None:
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(0, TICKS, 2):
        at_s = float(tick)
        reading = polled(at_s, 1.0, advance={q.PREFILL_CACHED: advance})
        snapshot = deriver.derive(frame(at_s, (gpu(0, at_s),), (reading,))).snapshot
    costs = snapshot.engines[0].costs
    assert costs.cost_per_million_output_tokens == pytest.approx(0.001 / 50.0 * 1e6)
    if told:
        assert costs.cost_per_million_all_tokens == pytest.approx(0.001 / 500.0 * 1e6)
    else:
        assert costs.cost_per_million_all_tokens == NOT_LIVE


def test_a_held_gpu_whose_busy_share_nobody_tells_is_neither_used_nor_unused() -> None:
    unknown = Missing(Reason.NOT_SUPPORTED, "not under MIG")
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        cards = (
            gpu(0, float(tick), busy_ratio=unknown, vram_used_bytes=4e10, processes=(GpuProcess(7, "python"),)),
            gpu(1, float(tick), **{**FREE_CARD, "busy_ratio": unknown}),
        )
        snapshot = deriver.derive(frame(float(tick), cards)).snapshot
    held, free = snapshot.gpus
    assert (held.unused_s, held.unused_cost, snapshot.costs.unused_gpu_s) == (unknown,) * 3
    assert free.unused_s == 60.0


def test_a_gpu_of_a_host_whose_engines_cannot_be_placed_is_used_while_a_kernel_runs() -> None:
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        lost = replace(polled(float(tick), 1.0), gpus=(), gpus_source="unmapped")
        cards = (gpu(0, float(tick), busy_ratio=1.0), gpu(1, float(tick), busy_ratio=0.0))
        snapshot = deriver.derive(frame(float(tick), cards, (lost,))).snapshot
    assert [card.mfu_ratio for card in snapshot.gpus] == [Missing(Reason.UNMAPPED)] * 2
    assert [card.unused_s for card in snapshot.gpus] == [0.0, 60.0]


def test_the_sums_of_the_host_are_those_of_its_gpus() -> None:
    snapshot = after(PRICES, idle_s=40.0)
    costs = snapshot.costs
    assert costs.cost_per_hour == 2 * PER_HOUR
    for total, field in (
        (costs.unused_gpu_s, "unused_s"),
        (costs.unused_cost, "unused_cost"),
        (costs.energy_j, "energy_j"),
        (costs.energy_cost, "energy_cost"),
    ):
        assert total == pytest.approx(sum(value_of(gpu, field) for gpu in snapshot.gpus))
    assert costs.cost_per_million_output_tokens == pytest.approx(2 * 0.001 / 50.0 * 1e6)


def test_without_a_price_there_is_no_cost_but_time_and_energy() -> None:
    snapshot = after(FREE, idle_s=40.0)
    served = snapshot.gpus[0]
    assert (served.cost_per_hour, served.unused_cost, served.energy_cost) == (NO_PRICE, NO_PRICE, NO_ENERGY_PRICE)
    assert served.unused_s == 40.0
    costs = snapshot.engines[0].costs
    assert (costs.cost_per_million_all_tokens, costs.energy_cost) == (NO_PRICE, NO_ENERGY_PRICE)
    assert (snapshot.costs.cost_per_hour, snapshot.costs.unused_cost) == (NO_PRICE, NO_PRICE)


def test_one_gpu_without_a_price_leaves_its_host_without_a_sum() -> None:
    snapshot = after(Prices({"H100 SXM5 80GB": PER_HOUR}), card={"name": "NVIDIA Unheard Of"})
    assert [gpu.cost_per_hour for gpu in snapshot.gpus] == [NO_PRICE, PER_HOUR]
    assert snapshot.costs.cost_per_hour == NO_PRICE


def test_an_engine_that_shares_its_gpu_has_no_cost_of_its_own() -> None:
    snapshot = after(PRICES, sharing=True)
    for served in snapshot.engines:
        assert (served.costs.cost_per_hour, served.costs.energy_cost) == (SHARED_GPU, SHARED_GPU)
    assert snapshot.costs.cost_per_hour == 2 * PER_HOUR
    for served in after(FREE, sharing=True).engines:
        assert (served.costs.cost_per_hour, served.costs.energy_cost) == (NO_PRICE, NO_ENERGY_PRICE)


def test_the_energy_of_an_engine_that_once_shared_its_gpu_stays_unknown_as_a_part_of_it_was_the_other_ones() -> None:
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        at_s = float(tick)
        engines = [polled(at_s, 1.0)]
        if tick < 30:
            engines.append(replace(engines[0], name="other", url="http://127.0.0.1:8001"))
        snapshot = deriver.derive(frame(at_s, (gpu(0, at_s, energy_j=WATTS * at_s),), tuple(engines))).snapshot
    costs = snapshot.engines[0].costs
    assert costs.cost_per_hour == PER_HOUR
    assert (costs.energy_j, costs.energy_cost) == (ONCE_SHARED_GPU, ONCE_SHARED_GPU)


def after_two_replicas(prices: Prices, **second_card: Any) -> Snapshot:
    """A minute of two replicas on a GPU each: the first runs a request all the time, the second never."""
    deriver = Deriver(gpu_catalogue(), prices=prices)
    for tick in range(TICKS):
        at_s = float(tick)
        cards = (gpu(0, at_s, energy_j=WATTS * at_s), gpu(1, at_s, energy_j=WATTS * at_s, **second_card))
        busy = replace(polled(at_s, 1.0), model="llama")
        idle = replace(
            polled(0.0, 0.0), name="other", url="http://127.0.0.1:8001", model="llama", gpus=(cards[1].uuid,)
        )
        idle = replace(idle, monotonic_s=at_s)
        snapshot = deriver.derive(frame(at_s, cards, (busy, idle))).snapshot
    return snapshot


def test_replicas_cost_what_their_gpus_cost_and_their_tokens_pay_for_all_of_them() -> None:
    snapshot = after_two_replicas(PRICES)
    (together,) = snapshot.replicas
    costs = together.costs
    assert costs.cost_per_hour == 2 * PER_HOUR
    assert costs.cost_per_million_output_tokens == pytest.approx(2 * 0.001 / 50.0 * 1e6)
    assert costs.cost_per_million_all_tokens == pytest.approx(2 * 0.001 / 500.0 * 1e6)
    assert (costs.unused_s, costs.unused_cost) == (60.0, pytest.approx(60.0 * 0.001))
    assert costs.energy_j == pytest.approx(2 * 60.0 * WATTS)
    assert costs.energy_cost == pytest.approx(2 * 60.0 * WATTS / 3.6e6 * PER_KWH)


def test_a_replica_without_a_price_leaves_all_of_them_without_a_sum() -> None:
    snapshot = after_two_replicas(Prices({"H100 SXM5 80GB": PER_HOUR}), name="NVIDIA Unheard Of")
    costs = snapshot.replicas[0].costs
    assert (costs.cost_per_hour, costs.cost_per_million_output_tokens, costs.unused_cost) == (NO_PRICE,) * 3
    assert costs.unused_s == 60.0


def test_tokens_have_no_price_while_none_are_made() -> None:
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for tick in range(TICKS):
        reading = replace(polled(0.0, 0.0), monotonic_s=float(tick))
        snapshot = deriver.derive(frame(float(tick), (gpu(0, float(tick)),), (reading,))).snapshot
    costs = snapshot.engines[0].costs
    assert costs.cost_per_million_output_tokens == Missing(Reason.IDLE)
    assert costs.cost_per_million_all_tokens == Missing(Reason.IDLE)


def test_a_pause_is_neither_used_nor_unused() -> None:
    deriver = Deriver(gpu_catalogue(), prices=PRICES)
    for at_s in (0.0, 1.0, 2.0, 602.0, 603.0):
        snapshot = deriver.derive(frame(at_s, (gpu(0, at_s, **FREE_CARD),))).snapshot
    assert snapshot.gpus[0].unused_s == 3.0


def test_energy_has_the_price_of_its_hour_and_none_in_an_hour_without_one() -> None:
    always = EnergyPrice(DayHours(0, 720), 1.0), EnergyPrice(DayHours(720, 0), 1.0)
    assert after(Prices(by_hours=always)).gpus[0].energy_cost == pytest.approx(60.0 * WATTS / 3.6e6)
    never = Prices({"": PER_HOUR})
    assert after(never).gpus[0].energy_cost == NO_ENERGY_PRICE
