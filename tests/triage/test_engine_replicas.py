"""One replica at its limit while others of its model have room: spread the requests; and what it differs in is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpumon.readings.frame import EndpointState, GpuState, RankReading
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.quantities import MOST_RUNNING
from gpumon.readings.snapshot import Family, Kind, Level, Limit, Quantiles, TokensTotal, Verdict
from gpumon.sources.simulator.scenarios import scenario, steady
from gpumon.triage.thresholds import Thresholds
from tests.accuracy.triage import frames, judged
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, SPINS, WORKS, Alike
from tests.triage.stage import Of, Stage, engine, gpu

QUEUED = {"queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0), "waiting": 12.0}
SIZE = {"kv_pool_tokens": 80_000.0, "context_tokens": 2000.0}
FULL: Mapping[str, Any] = {**WORKS, **QUEUED, **SIZE, "running": 40.0, "kv_usage_ratio": 0.97}
ROOMY: Mapping[str, Any] = {**WORKS, **SIZE, "running": 12.0, "kv_usage_ratio": 0.3}
SLOW: Mapping[str, Any] = {**WORKS, "deviates": ("ITL 150 ms, median of the 2 others 24 ms", "TTFT 900 ms, ... 200 ms")}
COMPUTES = {**BUSY, "tensor_active_ratio": 0.78}
READS = {**BUSY, "bandwidth_bytes_per_s": 0.81 * PEAK}


def told(
    *engines: Mapping[str, Any],
    seconds: int = 60,
    info: tuple[Mapping[str, str], ...] = (),
    card: Mapping[str, Any] = BUSY,
    last_card: Mapping[str, Any] | None = None,
    slots: float = 0.0,
    **thresholds: float,
) -> Verdict:
    """The verdict on the first of these replicas, after so long; `last_card` and `slots` are of the last one."""
    names = tuple("abcdefgh"[: len(engines)])
    stage = Stage()
    stage.triage = Alike(names, thresholds=Thresholds(**thresholds))

    def at(tick: int) -> tuple[Of, ...]:
        cards = [*[card] * (len(engines) - 1), last_card or card]
        things = [gpu(number, **{**one, "processes": ()}) for number, one in enumerate(cards)]
        for number, (name, fields) in enumerate(zip(names, engines, strict=True)):
            moved = {"tokens_total": TokensTotal(100.0 * tick, 0.0, 100.0 * tick)}
            one = engine(name=name, url=f"http://127.0.0.1:{8000 + number}", gpus=(number,), **{**moved, **fields})
            said = dict(info[number]) if info else {}
            limited = slots if number == len(engines) - 1 else 0.0
            ranks = (RankReading("0", {}, {MOST_RUNNING: limited}, {}),) if limited else ()
            things.append(Of(replace(one.read, info=said, ranks=ranks), one.shown))
        return tuple(things)

    last = stage.play(seconds, at)
    key = last.engines[0].key
    return next(each for each in last.verdicts if each.key == key and each.kind is Kind.ENGINE)


def test_one_full_kv_cache_beside_replicas_with_room_is_for_the_load_balancer() -> None:
    said = told(FULL, ROOMY, ROOMY, ROOMY)
    assert said.limit is Limit.KV_CACHE
    assert said.text.endswith("12 wait, while its 3 other replicas have room (KV cache 30 %, 12 running, none waiting)")
    assert said.action.startswith("spread its requests: its 3 other replicas have room, so look at the load balancer")
    assert "instances" not in said.action
    assert said.evidence[0].text == "its 3 other replicas: KV cache 30 %, 12 running, none waiting"


def test_it_is_said_as_soon_as_the_limit_is() -> None:
    """Means over minutes know nothing of the others yet."""
    assert "its 3 other replicas" in told(FULL, ROOMY, ROOMY, ROOMY, seconds=34).text


def test_where_all_are_full_more_instances_are_what_helps() -> None:
    said = told(FULL, FULL, FULL)
    assert said.limit is Limit.KV_CACHE
    assert "instances" in said.action
    assert "replicas" not in said.text + said.action


def test_the_one_of_them_that_has_room_is_counted() -> None:
    assert "1 of its 2 other replicas has room (KV cache 30 %" in told(FULL, FULL, ROOMY).text
    assert "while b has room" in told(FULL, ROOMY).text


@pytest.mark.parametrize(
    "other",
    [
        {**ROOMY, "waiting": 2.0},
        {**ROOMY, "kv_usage_ratio": 0.8},
        {**ROOMY, "waiting": NOT_EXPOSED},
        {**ROOMY, "kv_usage_ratio": NOT_EXPOSED},
        {**ROOMY, "state": EndpointState.TIMEOUT},
    ],
    ids=["queued", "nearly full", "queue unknown", "use unknown", "silent"],
)
def test_a_replica_that_is_not_known_to_have_room_is_not_sent_to(other: Mapping[str, Any]) -> None:
    said = told(FULL, other)
    assert said.limit is Limit.KV_CACHE
    assert "spread" not in said.action


@pytest.mark.parametrize(
    ("changes", "card"),
    [
        ({"running": 8.0, "kv_usage_ratio": 0.2, "tokens_total": TokensTotal(7.0, 0.0, 7.0)}, SPINS),
        ({"running": 0.0, "kv_usage_ratio": 0.0}, {**IDLE, "state": GpuState.LOST}),
    ],
    ids=["hangs", "its GPU is lost"],
)
def test_a_replica_that_gives_nothing_has_no_room(changes: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    said = told(FULL, {**ROOMY, **changes}, seconds=90, last_card=card)
    assert said.limit is Limit.KV_CACHE
    assert "room" not in said.text
    assert "spread" not in said.action
    beside = told(FULL, ROOMY, {**ROOMY, **changes}, seconds=90, last_card=card)
    assert "while 1 of its 2 other replicas has room (KV cache 30 %" in beside.text


def test_a_replica_that_is_told_as_stalled_has_no_room_from_then_on() -> None:
    hangs = {**ROOMY, "tokens_total": TokensTotal(7.0, 0.0, 7.0)}
    assert "while b has room" in told(FULL, hangs, seconds=20, last_card=SPINS, hold_s=5.0).text
    assert "room" not in told(FULL, hangs, seconds=20, last_card=SPINS, hold_s=5.0, stalled_s=10.0).text


def test_one_that_has_had_nothing_to_do_for_long_has_room() -> None:
    rests = {**ROOMY, "running": 0.0, "kv_usage_ratio": 0.0, "tokens_total": TokensTotal(7.0, 0.0, 7.0)}
    assert "while b has room (KV cache 0 %, 0 running" in told(FULL, rests, seconds=90, last_card=IDLE).text


@pytest.mark.parametrize(
    ("changes", "slots", "has_room"),
    [
        ({"kv_usage_ratio": NOT_EXPOSED}, 0.0, False),
        ({"kv_usage_ratio": NOT_EXPOSED}, 64.0, True),
        ({"kv_usage_ratio": NOT_EXPOSED}, 12.0, False),
        ({}, 12.0, False),
        ({}, 64.0, True),
    ],
)
def test_room_is_that_of_the_kv_cache_and_of_the_slots(
    changes: Mapping[str, Any], slots: float, has_room: bool
) -> None:
    said = told({**FULL, "kv_usage_ratio": 0.5}, {**ROOMY, **changes}, slots=slots)
    assert said.limit is Limit.QUEUE
    assert ("while b has room" in said.text, "spread" in said.action) == (has_room, has_room)


def test_a_worker_of_another_role_takes_none_of_its_requests() -> None:
    said = told(FULL, ROOMY, info=({"role": "decode"}, {"role": "prefill"}))
    assert "spread" not in said.action


@pytest.mark.parametrize(
    ("expected", "card", "rest"),
    [
        (Limit.QUEUE, BUSY, "raise --max-num-seqs"),
        (Limit.COMPUTE, COMPUTES, "more instances"),
        (Limit.BANDWIDTH, READS, "a bigger batch"),
    ],
)
def test_every_limit_under_which_requests_wait_is_spread_first(
    expected: Limit, card: Mapping[str, Any], rest: str
) -> None:
    queued = {**FULL, "kv_usage_ratio": 0.5}
    said = told(queued, ROOMY, ROOMY, card=card)
    assert said.limit is expected
    assert said.action.startswith("spread its requests: its 2 other replicas have room")
    assert rest in said.action.partition("; else ")[2]


def test_a_limit_under_which_nobody_waits_is_as_it_was() -> None:
    said = told({**WORKS, "running": 40.0}, ROOMY, card=COMPUTES)
    assert (said.limit, said.level) == (Limit.COMPUTE, Level.NOTE)
    assert "spread" not in said.action


def test_what_a_replica_differs_in_is_told_though_nothing_limits_it() -> None:
    said = told(SLOW, WORKS, WORKS)
    assert (said.limit, said.level, said.family) == (Limit.HEALTHY, Level.NOTE, Family.USE)
    assert said.text.endswith("; unlike its replicas: ITL 150 ms, median of the 2 others 24 ms")
    assert said.action.startswith("look at the load balancer")
    assert {"ITL 150 ms, median of the 2 others 24 ms", "TTFT 900 ms, ... 200 ms"} <= {
        one.text for one in said.evidence
    }


def test_one_that_gets_nothing_to_do_is_not_just_ready() -> None:
    starved = "gets 0% of the requests of the others (0.00/s, they 2.00/s each): look at the load balancer"
    rests = {"running": 0.0, "decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "tokens_total": TokensTotal()}
    said = told({**WORKS, **rests, "deviates": (starved,)}, WORKS)
    assert (said.limit, said.level) == (Limit.HEALTHY, Level.NOTE)
    assert said.text.endswith(f"unlike its replicas: {starved}")


def test_what_a_replica_differs_in_is_told_beside_its_limit() -> None:
    alone = told({**FULL, "deviates": SLOW["deviates"]}, FULL)
    assert alone.text.endswith("; unlike its replicas: ITL 150 ms, median of the 2 others 24 ms")
    assert "instances" in alone.action
    beside = told({**FULL, "deviates": SLOW["deviates"]}, ROOMY)
    assert "unlike" not in beside.text  # it says already that another has room
    assert any(one.text.startswith("ITL 150 ms") for one in beside.evidence)


def test_a_balancer_that_sends_one_replica_too_much_is_what_is_said() -> None:
    """Four simulated engines through the real path: the first gets what fills its pool, the others little."""
    (full,) = scenario("kv-cache-full").cast
    light = replace(full, demand=steady(1.0, 3000, 700))
    cast = tuple(replace(full if name == "a" else light, name=name, ranks=((at,),)) for at, name in enumerate("abcd"))
    uneven = replace(scenario("kv-cache-full"), cast=cast, gpus=4)
    *_, (_, last) = judged(uneven, frames(uneven, 130.0))
    (said,) = [each for each in last.verdicts if each.scope == "a"]
    assert said.limit is Limit.KV_CACHE
    assert "while its 3 other replicas have room (KV cache " in said.text
    assert said.action.startswith("spread its requests")
