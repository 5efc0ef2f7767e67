"""One replica at its limit while others of its model have room: spread the requests; and what it differs in is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.readings.frame import EndpointState, RankReading
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.quantities import MOST_RUNNING
from gpumon.readings.snapshot import Kind, Level, Limit, Quantiles, Snapshot, TokensTotal, Verdict
from gpumon.triage.render import actions_text, verdict_text
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, WORKS, Alike
from tests.triage.stage import Of, Stage, engine, gpu

QUEUED = {"queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0), "waiting": 12.0}
SIZE = {"kv_pool_tokens": 80_000.0, "context_tokens": 2000.0}
FULL: Mapping[str, Any] = {**WORKS, **QUEUED, **SIZE, "running": 40.0, "kv_usage_ratio": 0.97}
ROOMY: Mapping[str, Any] = {**WORKS, **SIZE, "running": 12.0, "kv_usage_ratio": 0.3}
COMPUTES = {**BUSY, "tensor_active_ratio": 0.78}


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
    last = played(
        *engines, seconds=seconds, info=info, card=card, last_card=last_card, slots=slots, thresholds=thresholds
    )
    key = last.engines[0].key
    return next(each for each in last.verdicts if each.key == key and each.kind is Kind.ENGINE)


def played(
    *engines: Mapping[str, Any],
    seconds: int = 60,
    info: tuple[Mapping[str, str], ...] = (),
    card: Mapping[str, Any] = BUSY,
    last_card: Mapping[str, Any] | None = None,
    slots: float = 0.0,
    thresholds: Mapping[str, float] | None = None,
) -> Snapshot:
    """The last snapshot of these replicas, judged so long; `last_card` and `slots` are of the last one."""
    names = tuple("abcdefgh"[: len(engines)])
    stage = Stage()
    stage.triage = Alike(names, thresholds=Thresholds(**(thresholds or {})))

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

    return stage.play(seconds, at)


@each_row(
    "other",
    [
        {**ROOMY, "waiting": 2.0},
        {**ROOMY, "kv_usage_ratio": 0.8},
        {**ROOMY, "waiting": NOT_EXPOSED},
        {**ROOMY, "kv_usage_ratio": NOT_EXPOSED},
        {**ROOMY, "state": EndpointState.TIMEOUT},
        {**ROOMY, "running": 0.0, "kv_usage_ratio": 0.0, "asleep": "weights offloaded"},
    ],
    named=["queued", "nearly full", "queue unknown", "use unknown", "silent", "asleep"],
)
def test_a_replica_that_is_not_known_to_have_room_is_not_sent_to(other: Mapping[str, Any]) -> None:
    said = told(FULL, other)
    assert said.code is Limit.KV_CACHE_FULL
    assert "spread" not in actions_text(said)


@each_row(
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
    assert said.code is Limit.QUEUE_LIMIT
    assert ("while b has room" in verdict_text(said), "spread" in actions_text(said)) == (has_room, has_room)


def test_a_worker_of_another_role_takes_none_of_its_requests() -> None:
    said = told(FULL, ROOMY, info=({"role": "decode"}, {"role": "prefill"}))
    assert "spread" not in actions_text(said)


def test_a_limit_under_which_nobody_waits_is_as_it_was() -> None:
    said = told({**WORKS, "running": 40.0}, ROOMY, card=COMPUTES)
    assert (said.code, said.level) == (Limit.COMPUTE_BOUND, Level.NOTE)
    assert "spread" not in actions_text(said)
