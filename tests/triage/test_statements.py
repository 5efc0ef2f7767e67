"""What an engine says of itself: its scheduler, its experts and ranks, KV cache on its way, and requests put off."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import EngineKind
from gpumon.readings.quantities import KV_TRANSFERRED_BYTES
from gpumon.readings.snapshot import Level, Limit, Quantiles, Snapshot, Verdict
from gpumon.triage.render import CAUSE_WORDS, evidence_text, verdict_text
from gpumon.triage.templates import filled_sentence
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import judged, limits, scene
from tests.triage.stage import Of

LATE = {"ttft_s": Quantiles(mean=4.0, p95=8.0)}
UNEVEN = {"running": 128.0, "kv_usage_ratio": 0.3}


def one(snapshot: Snapshot, code: Limit) -> Verdict:
    """The verdict of this code."""
    (verdict,) = (verdict for verdict in snapshot.verdicts if verdict.code is code)
    return verdict


def test_a_scheduler_at_work_whose_gpus_wait_is_the_hosts_limit() -> None:
    busy = {"scheduler_idle_ratio": 0.01, "forward_ratio": 0.45}
    found = one(judged(scene(busy, kind=EngineKind.SGLANG)), Limit.HOST_CPU)
    assert (found.cause, found.level) == ("scheduler_bound", Level.NOTE)
    assert verdict_text(found).startswith(
        "its GPUs compute steps 45% of the time, while its scheduler is without requests"
    )
    assert one(judged(scene({**busy, **LATE}, kind=EngineKind.SGLANG)), Limit.HOST_CPU).level is Level.WARN


@each_row(
    "changes",
    [
        {"scheduler_idle_ratio": 0.5, "forward_ratio": 0.45},  # nobody asks half of the time
        {"scheduler_idle_ratio": 0.01, "forward_ratio": 0.9},
        {"scheduler_idle_ratio": 0.01},  # nothing times its steps
        {**UNEVEN, "expert_balance_ratio": 0.7, "rank_imbalance": 1.4},
        {"running": 24.0, "expert_balance_ratio": 0.3, "rank_imbalance": 3.0},  # few tokens: by chance
    ],
)
def test_engines_that_are_well_say_so_too(changes: dict[str, Any]) -> None:
    assert limits(judged(scene(changes, kind=EngineKind.SGLANG))) == (Limit.HEALTHY,)


@each_row(
    ("changes", "cause", "times"),
    [({"expert_balance_ratio": 0.4}, "uneven_experts", 2.5), ({"rank_imbalance": 3.0}, "uneven_attention", 3.0)],
)
def test_steps_that_wait_for_one_gpu_are_named(changes: dict[str, Any], cause: str, times: float) -> None:
    found = one(judged(scene({**UNEVEN, **changes}, kind=EngineKind.SGLANG)), Limit.STRAGGLER)
    assert (found.cause, found.level, found.parameters["times"]) == (cause, Level.NOTE, times)
    assert one(judged(scene({**UNEVEN, **changes, **LATE})), Limit.STRAGGLER).level is Level.WARN


def fetching(**load: float) -> Snapshot:
    """An engine that gets KV cache from others, with requests that wait for it and are late."""
    of = scene({**LATE, "waiting": 6.0, "waiting_deferred": 6.0, **load})

    def connected(tick: int) -> tuple[Of, ...]:
        card, decodes = of(tick)
        live = {**decodes.read.live, KV_TRANSFERRED_BYTES: "vllm:nixl"}
        return card, Of(replace(decodes.read, live=live), decodes.shown)

    return judged(connected)


def test_stages_of_kv_cache_on_its_way_are_evidence() -> None:
    found = one(fetching(kv_fetch_waiting=2.0, kv_fetch_running=4.0, kv_fetch_done=0.0), Limit.KV_TRANSFER)
    assert "2 not asked for, 4 on their way" in [*map(evidence_text, found.evidence)]
    put_off = one(fetching(prefill_retries_per_s=0.5), Limit.KV_TRANSFER)
    assert "about 30 prompts a minute are put off after their prefill began" in [*map(evidence_text, put_off.evidence)]


def test_requests_whose_kv_cache_has_come_wait_for_room_here() -> None:
    assert Limit.KV_TRANSFER not in limits(fetching(kv_fetch_waiting=0.0, kv_fetch_running=0.0, kv_fetch_done=6.0))


def test_requests_that_were_preempted_again_and_again_are_said_beside_a_full_cache() -> None:
    full = {"kv_usage_ratio": 0.97, "waiting": 8.0, "preemptions_per_s": 0.5, "preemptions_mean": 1.5}
    found = one(judged(scene(full)), Limit.KV_CACHE_FULL)
    assert "each request was preempted 1.5x before it ended" in [*map(evidence_text, found.evidence)]


@each_row(
    ("waiting", "words"),
    [(2002.0, "2,002 wait"), (14.0, "14 wait"), (1.0, "1 waits"), (0.6, "at times 1 waits"), (0.0, "0 wait")],
)
def test_requests_that_wait_are_told_in_good_english(waiting: float, words: str) -> None:
    text = filled_sentence(CAUSE_WORDS, "kv_full", {"usage": 0.99, "running": 46.0, "waiting": waiting})
    assert text == f"{words}: KV cache 99% full at 46 requests"
    alone = filled_sentence(CAUSE_WORDS, "kv_full", {"usage": 1.0, "running": 1.0, "waiting": waiting})
    assert alone == f"{words}: KV cache 100% full at 1 request"


@each_row(("others", "where"), [(2.0, "at its 2 replicas"), (None, "at its replica")])
def test_a_slower_replica_begins_with_what_its_users_feel(others: float | None, where: str) -> None:
    factors = {"now": 4.6, "before": 1.5} | ({"others": others} if others else {})
    felt = filled_sentence(CAUSE_WORDS, "slower_than_replicas", {**factors, "itl_s": 0.023, "others_itl_s": 0.0069})
    assert felt == f"ITL 23 ms, 6.9 ms {where}: a step takes 4.6x the time of its bytes, theirs 1.5x"
    unknown = filled_sentence(CAUSE_WORDS, "slower_than_replicas", {**factors})
    assert unknown == f"a step takes 4.6x the time of its bytes, {where} 1.5x"
