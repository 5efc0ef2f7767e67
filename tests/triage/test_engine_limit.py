"""What holds an engine back: each limit by hand-worked figures, told apart from its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Confidence, Family, Kind, Level, Limit, Quantiles, TokensTotal
from gpumon.readings.verdict import Evidence
from gpumon.specs.llm import LlmSpec, grouped_attention
from gpumon.triage.render import actions_text, evidence_text, signal_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import BUSY, PEAK, WORKS, EngineKind, Goals, judged, limits, of_engine, only, scene
from tests.triage.stage import GIB, Of, Stage, engine

QUEUED = {"waiting": 12.0, "queue_s": Quantiles(mean=0.9), "ttft_s": Quantiles(mean=1.0)}
FULL = {**QUEUED, "kv_usage_ratio": 0.97, "running": 48.0, "kv_pool_tokens": 100_000.0, "context_tokens": 2000.0}
READS = {**BUSY, "bandwidth_bytes_per_s": 0.81 * PEAK}
COMPUTES = {**BUSY, "tensor_active_ratio": 0.78}
NO_ACTIVITY = {
    **BUSY,
    "sm_active_ratio": NOT_SUPPORTED,
    "tensor_active_ratio": NOT_SUPPORTED,
    "bandwidth_bytes_per_s": NOT_SUPPORTED,
    "bandwidth_source": BandwidthSource.NONE,
    "activity_source": "",
}
NO_MODEL = {name: Missing(Reason.UNKNOWN_MODEL) for name in ("mfu_ratio", "mfu_prefill_ratio", "mbu_ratio")}
UNCOUPLED = {**BUSY, "tensor_active_ratio": 0.1, "bandwidth_bytes_per_s": 0.2 * PEAK, "nvlink_bytes_per_s": 3.6e11}
LOW = {"mfu_ratio": 0.06, "mfu_prefill_ratio": 0.02, "mbu_ratio": 0.15}
TP4 = {**LOW, "tp": 4}


@each_row(
    ("expected", "changes", "gpus", "slots"),
    [
        (Limit.HEALTHY, {}, BUSY, 0.0),
        (Limit.QUEUE_LIMIT, QUEUED, BUSY, 24.0),
        (Limit.QUEUE_LIMIT, QUEUED, BUSY, 0.0),  # nobody says the limit, and the number of requests stands still
        (Limit.KV_CACHE_FULL, FULL, BUSY, 0.0),
        (Limit.KV_CACHE_FULL, {"kv_usage_ratio": 0.97, "preemptions_per_s": 0.4}, BUSY, 0.0),
        (Limit.HEALTHY, {"kv_usage_ratio": 0.97}, BUSY, 0.0),  # full and nobody waits: a well used pool
        (Limit.KV_CACHE_FULL, FULL, READS, 0.0),
        (Limit.COMPUTE_BOUND, QUEUED, COMPUTES, 24.0),
        (Limit.COMPUTE_BOUND, {"mfu_ratio": 0.55, "mfu_prefill_ratio": 0.5}, BUSY, 0.0),
        (Limit.COMPUTE_BOUND, {}, {**COMPUTES, "bandwidth_bytes_per_s": 0.8 * PEAK}, 0.0),
        (Limit.COMPUTE_BOUND, {**QUEUED, "mfu_ratio": 0.36, "mfu_prefill_ratio": 0.3}, BUSY, 64.0),  # slots are free
        (Limit.BANDWIDTH_BOUND, {}, READS, 0.0),
        (Limit.BANDWIDTH_BOUND, {"mbu_ratio": 0.69}, {**BUSY, "bandwidth_bytes_per_s": 0.66 * PEAK}, 0.0),
        (Limit.HEALTHY, {"mbu_ratio": 0.69}, BUSY, 0.0),  # what is measured outweighs what is modelled
        (Limit.BANDWIDTH_BOUND, QUEUED, READS, 64.0),
        (Limit.BANDWIDTH_BOUND, {**QUEUED, "weight_bytes_per_s": 1e12, "bytes_per_s": 2.7e12}, READS, 24.0),
        (
            Limit.QUEUE_LIMIT,
            {**QUEUED, "weight_bytes_per_s": 2e12, "bytes_per_s": 2.7e12},
            READS,
            24.0,
        ),  # shared weights
        (Limit.INTERCONNECT_BOUND, TP4, (UNCOUPLED,) * 4, 0.0),
        (Limit.INTERCONNECT_BOUND, {**QUEUED, **TP4}, (UNCOUPLED,) * 4, 24.0),  # more would wait for the same links
        (Limit.QUEUE_LIMIT, {**QUEUED, **TP4}, ({**UNCOUPLED, "nvlink_bytes_per_s": 2e10},) * 4, 24.0),
        (Limit.BANDWIDTH_BOUND, TP4, ({**UNCOUPLED, "bandwidth_bytes_per_s": 0.8 * PEAK},) * 4, 0.0),
        (Limit.COMPUTE_BOUND, TP4, ({**UNCOUPLED, "tensor_active_ratio": 0.7},) * 4, 0.0),
        (Limit.HEALTHY, TP4, ({**UNCOUPLED, "nvlink_bytes_per_s": 2e10},) * 4, 24.0),
        (Limit.HEALTHY, {**LOW, "tp": 1}, UNCOUPLED, 24.0),
    ],
)
def test_each_limit_and_its_neighbours(expected: Limit, changes: dict[str, Any], gpus: Any, slots: float) -> None:
    found = only(judged(scene(changes, gpus, slots=slots)))
    assert found.code is expected, verdict_text(found)
    assert verdict_text(found)
    assert all(evidence_text(one) for one in found.evidence)


NOTHING = dict.fromkeys(
    (
        *("running", "kv_usage_ratio", "decode_tokens_per_s", "prefill_tokens_per_s"),
        *("mfu_ratio", "mfu_prefill_ratio", "mbu_ratio"),
    ),
    0.0,
)
LORA = GpuProcess(999, "python", user="bob", vram_bytes=8.0 * GIB)
TRAINS = {**COMPUTES, "processes": (*BUSY["processes"], LORA)}
READS_TOO = {**READS, "processes": (*BUSY["processes"], LORA)}


@each_row("card", [TRAINS, READS_TOO])
def test_an_engine_with_nothing_to_do_does_not_do_what_its_gpu_does(card: dict[str, Any]) -> None:
    assert limits(judged(scene(NOTHING, card, moves=False))) == (Limit.HEALTHY,)


@each_row("card", [TRAINS, READS_TOO])
def test_beside_another_its_own_figures_count(card: dict[str, Any]) -> None:
    assert limits(judged(scene({}, card))) == (Limit.HEALTHY,)
    quiet = {**card, "processes": (*BUSY["processes"], GpuProcess(999, "python", vram_bytes=0.4 * GIB))}
    assert limits(judged(scene({}, quiet)))[0] in {
        Limit.COMPUTE_BOUND,
        Limit.BANDWIDTH_BOUND,
    }  # a bare context does nothing


def test_of_two_engines_on_a_gpu_the_one_at_work_computes() -> None:
    both = {**COMPUTES, "engines": ("vllm:8000", "emb:8001")}
    first, rest = scene({"mfu_ratio": 0.6}, both), {**WORKS, **NOTHING, "tokens_total": TokensTotal(7.0, 0.0, 7.0)}
    second = engine(url="http://127.0.0.1:8001", name="emb:8001", **rest)
    found = Stage().play(60, lambda tick: (*first(tick), second))
    said = {each.scope: each for each in found.verdicts if each.kind is Kind.ENGINE}
    assert said["vllm:8000"].code is Limit.COMPUTE_BOUND
    assert said["vllm:8000"].confidence is Confidence.HIGH
    assert said["emb:8001"].code is Limit.HEALTHY


def test_llama_cpp_is_not_told_to_lower_and_raise_the_same() -> None:
    found = only(judged(scene(FULL, kind=EngineKind.LLAMA_CPP)))
    assert actions_text(found).endswith("for these 60 requests; -ctk q8_0 -ctv q8_0 (holds twice as many)")


def test_a_queue_names_the_flag_and_how_far() -> None:
    """24 run, 12 wait: 36 fit, as the KV cache at 41% has room for 2.07 times as many."""
    found = only(judged(scene(QUEUED, slots=24.0)))
    assert (
        verdict_text(found)
        == "12 wait while 24 run of 24 (--max-num-seqs 24): KV cache at 41%, its GPUs have room for a larger batch"
    )
    assert actions_text(found) == "raise --max-num-seqs from 24 to 36"
    assert (found.level, found.confidence, found.family) == (Level.WARN, Confidence.HIGH, Family.LIMIT)
    texts = [evidence_text(one) for one in found.evidence]
    assert "90% of the time to first token is queueing (900 ms)" in texts
    assert "at most 24 run at once" in texts
    assert found.evidence[0].chart == "waiting@http://127.0.0.1:8000"


def test_requests_that_are_deferred_do_not_wait_for_room() -> None:
    waits = only(judged(scene({**QUEUED, "waiting_deferred": 0.0}, slots=24.0)))
    assert waits.code is Limit.QUEUE_LIMIT
    deferred = {**QUEUED, "waiting_deferred": QUEUED["waiting"]}
    assert only(judged(scene(deferred, slots=24.0))).code is Limit.HEALTHY


def test_a_queue_goes_no_further_than_the_kv_cache() -> None:
    """0.85 / 0.7 x 24 = 29.1."""
    found = only(judged(scene({**QUEUED, "kv_usage_ratio": 0.7}, slots=24.0)))
    assert actions_text(found) == (
        "raise --max-num-seqs from 24 to 29: more do not fit into the KV cache, 70% full now; "
        "more instances for the rest"
    )


def test_the_limit_of_requests_is_read_from_the_command_line() -> None:
    process = BUSY["processes"][0]
    command = type(process)(4711, "vllm", engine="vllm:8000", command="vllm serve m --max-num-seqs 24 --port 8000")
    found = only(judged(scene(QUEUED, {**BUSY, "processes": (command,)})))
    assert "--max-num-seqs of its command line (pid 4711)" in [one.source for one in found.evidence]
    assert found.confidence is Confidence.HIGH


def test_a_full_kv_cache_says_what_it_holds_and_how_many_instances() -> None:
    """100,000 / 2,000 = 50 requests; (48 + 12) / 50 / 0.85 = 1.4, so 2 instances."""
    found = only(judged(scene(FULL, info={"gpu_memory_utilization": "0.9", "cache_dtype": "auto"})))
    assert verdict_text(found) == "12 wait: KV cache 97% full at 48 requests of 2k tokens"
    assert actions_text(found) == (
        "2 instances instead of 1 for these 60 requests; --kv-cache-dtype fp8 (holds twice as many); "
        "raise --gpu-memory-utilization (now 0.9)"
    )
    assert "it holds about 50 requests of 2k tokens" in [evidence_text(one) for one in found.evidence]
    assert (found.level, found.confidence) == (Level.WARN, Confidence.HIGH)


def test_a_queue_of_an_engine_that_tells_no_running_requests_names_none() -> None:
    found = only(judged(scene({**QUEUED, "running": NOT_EXPOSED})))
    assert verdict_text(found) == "12 wait: KV cache at 41%, its GPUs have room for a larger batch"


@each_row(
    ("changes", "said"),
    [
        ({"waiting": 12.0}, "12 wait: KV cache 97% full"),
        ({"waiting": NOT_EXPOSED, "preemptions_per_s": 0.4}, "about 24 preempted a minute: KV cache 97% full"),
    ],
)
def test_a_full_cache_of_an_engine_that_tells_no_running_requests_names_no_number(
    changes: dict[str, Any], said: str
) -> None:
    found = only(judged(scene({"kv_usage_ratio": 0.97, "running": NOT_EXPOSED, **changes})))
    assert verdict_text(found) == said
    assert actions_text(found).startswith("more instances;")


def test_the_backlog_of_an_overload_is_no_number_of_instances() -> None:
    """(48 + 150) / 50 / 0.85 = 4.7 instances, and more with every minute of the overload."""
    found = only(judged(scene({**FULL, "waiting": 150.0})))
    assert "more instances; " in actions_text(found)


def test_more_than_the_peak_is_no_share_of_the_bandwidth() -> None:
    card = {**BUSY, "bandwidth_bytes_per_s": 0.66 * PEAK}
    assert only(judged(scene({"mbu_ratio": 0.69}, card))).parameters["share"] == pytest.approx(0.69)
    assert only(judged(scene({"mbu_ratio": 1.17}, card))).parameters["share"] == pytest.approx(0.66), "what is measured"


@each_row(
    ("usage", "preemptions_per_s", "cause"),
    [(0.88, 0.2, "kv_full"), (0.88, 0.0, "queue_slots"), (0.84, 0.2, "queue_slots")],
)
def test_preemptions_tell_a_full_cache_although_they_empty_it(
    usage: float, preemptions_per_s: float, cause: str
) -> None:
    found = only(judged(scene({**FULL, "kv_usage_ratio": usage, "preemptions_per_s": preemptions_per_s})))
    assert found.cause == cause


@each_row(("moves", "level"), [(True, Level.WARN), (False, Level.NOTE)])
def test_a_queue_that_comes_with_a_pause_does_not_wait_for_the_memory(moves: bool, level: Level) -> None:
    stage = Stage()
    stage.play(60, scene({}, READS), every_s=1)
    found = only(stage.play(6, scene({"waiting": 3.0}, READS, moves=moves)))
    assert (found.code, found.level) == (Limit.BANDWIDTH_BOUND, level)


@each_row(("most", "advised"), [("4000", True), ("4001", False), ("", False), ("many", False)])
@each_row("name", ["max_model_len", "context_len"])
def test_a_lower_limit_of_the_context_helps_where_contexts_come_near_it(name: str, most: str, advised: bool) -> None:
    found = only(judged(scene(FULL, info={name: most})))
    assert ("lower --max-model-len" in actions_text(found)) is advised


@each_row(("share", "advised"), [("0.9", True), ("0.95", False)])
def test_memory_that_is_given_already_is_not_asked_for(share: str, advised: bool) -> None:
    found = only(judged(scene(FULL, info={"gpu_memory_utilization": share})))
    assert ("--gpu-memory-utilization" in actions_text(found)) is advised


@each_row(
    ("share", "used_gib", "words"),
    [
        ("0.5", 70.0, "raise --gpu-memory-utilization from 0.5 to 0.6"),
        ("0.9", 70.0, "raise --gpu-memory-utilization from 0.9 to 0.95"),
        ("0.5", 78.0, "raise --gpu-memory-utilization from 0.5 to 0.52"),
        ("0.5", 80.0, "raise --gpu-memory-utilization (now 0.5)"),
    ],
)
def test_the_memory_that_is_advised_holds_these_requests_as_far_as_the_gpu_has_it(
    share: str, used_gib: float, words: str
) -> None:
    """60 x 2,000 / 0.85 - 100,000 tokens of 131,072 bytes are 5.4 GB of 80 GiB; 40 of the 78 are the engine's."""
    attention = (grouped_attention(32, 32, 8, 128),)
    llm = LlmSpec("m", "test", 8e9, 8e9, 1e9, 1000, 4096, 32, 32, 8, 128, attention)
    own = GpuProcess(4711, "vllm", vram_bytes=(70.0 if used_gib == 70.0 else 40.0) * GIB, engine="vllm:8000")
    card = {**BUSY, "vram_used_bytes": used_gib * GIB, "processes": (own,)}
    found = only(judged(scene({**FULL, "tp": 1, "llm": llm}, card, info={"gpu_memory_utilization": share})))
    assert words in actions_text(found)


@each_row(("experts_gib", "advised"), [(8.0, True), (100.0, False)])
def test_less_tensor_parallelism_is_advised_where_the_model_fits(experts_gib: float, advised: bool) -> None:
    """Two GPUs of 80 GB and one that reads half as much; 100 GiB of weights do not fit on one of them."""
    llm = LlmSpec("m", "test", 8e9, 8e9, 1e9, 1000, 4096, 32, 32, 8, 128, stored_bytes=experts_gib * GIB)
    changes = {"tp": 2, "llm": llm, "kv_bytes_per_token": 1e5}
    cards = ({**BUSY, "processes": ()}, {**BUSY, "processes": (), "bandwidth_bytes_per_s": 0.2 * PEAK})
    found = only(judged(scene(changes, cards)))
    assert found.code is Limit.STRAGGLER
    assert ("smaller_tp" in [one.code for one in found.actions]) is advised


@each_row("kept", [{"kv_precision": "fp8"}, {}])
def test_fp8_is_no_advice_where_the_kv_cache_is_fp8(kept: dict[str, str]) -> None:
    found = only(judged(scene({**FULL, **kept}, info={} if kept else {"cache_dtype": "fp8_e4m3"})))
    assert "--kv-cache-dtype" not in actions_text(found)


def test_a_prompt_that_does_not_fit_is_a_full_kv_cache_before_90_percent() -> None:
    """A fifth of 60,000 tokens is free, and the mean prompt has 16,000."""
    changes = {**QUEUED, "kv_usage_ratio": 0.8, "prompt_tokens_mean": 16_000.0}
    found = only(judged(scene(changes, slots=64.0)))
    assert (found.code, found.confidence) == (Limit.KV_CACHE_FULL, Confidence.MEDIUM)
    assert limits(judged(scene(changes, slots=24.0))) == (Limit.QUEUE_LIMIT,)


DENSE = LlmSpec("m", "test", 70e9, 70e9, 1.05e9, 128256, 8192, 80, 64, 8, 128)
BOUND = {
    "llm": DENSE,
    "mfu_prefill_ratio": 0.02,
    "weight_bytes": 40e9,
    "kv_bytes_per_token": 1e6,
    "kv_pool_tokens": 200_000.0,
    "weight_precision": "bf16",
    "tp": 2,
}


def test_without_a_goal_the_batch_goes_as_far_as_memory_and_says_what_it_costs() -> None:
    """0.9 x 60,000 / 1,000 = 54; (40 + 54) / (40 + 24) x 24 ms = 35 ms."""
    found = only(judged(scene({**BOUND, "kv_pool_tokens": 60_000.0}, READS)))
    assert verdict_text(found) == "memory bandwidth 81% at batch 24: room to batch 54, which takes about 35 ms a token"


@each_row(
    "changes",
    [
        {"mfu_prefill_ratio": 0.2},
        {"llm": None},
        {"context_tokens": NOT_EXPOSED},
        {"itl_mean_s": 0.039},  # at the goal already
        {"kv_pool_tokens": 25_000.0},
    ],
)
def test_no_batch_is_promised_that_cannot_be_worked_out(changes: dict[str, Any]) -> None:
    found = only(judged(scene({**BOUND, **changes}, READS), goals=Goals(itl_s=0.04)))
    assert verdict_text(found) == "memory bandwidth 81% at batch 24"


@each_row("source", [BandwidthSource.ENGINE, BandwidthSource.UPPER_BOUND])
def test_modelled_bandwidth_and_upper_bounds_are_no_evidence(source: BandwidthSource) -> None:
    found = judged(scene({}, {**READS, "bandwidth_source": source}))
    assert limits(found) == (Limit.HEALTHY,)


def test_the_bucket_of_a_quantile_has_to_be_above_the_goal() -> None:
    coarse = {"itl_s": Quantiles(mean=0.03, p95=0.045, p95_low=0.025)}
    assert limits(judged(scene(coarse), goals=Goals(itl_s=0.04))) == (Limit.HEALTHY,)


def test_ranks_with_unequal_shares_are_told_in_the_engines_words() -> None:
    said = Evidence("rank_decode", 100.0, 400.0, parameters={"rank": "1"})
    found = only(judged(scene({"tp": 1, "ranks": 2, "uneven": (said,)}, (BUSY, BUSY))))
    assert found.code is Limit.STRAGGLER
    assert found.evidence[0] == said


@each_row(
    ("changes", "gpus", "lacks"),
    [
        (NO_MODEL, NO_ACTIVITY, "MFU or tensor activity (unknown LLM: add a [[model]] entry)"),
        (
            {"mbu_ratio": Missing(Reason.NO_CONTEXT)},
            NO_ACTIVITY,
            "MBU or memory bandwidth (no context: add context_tokens",
        ),
    ],
)
@each_row("queued", [True, False])
def test_what_is_missing_is_named(changes: dict[str, Any], gpus: dict[str, Any], lacks: str, queued: bool) -> None:
    found = only(judged(scene({**(QUEUED if queued else {}), **changes}, gpus, slots=24.0)))
    # A queue that stands has its name: all 24 slots are in use.
    assert found.code is (Limit.QUEUE_LIMIT if queued else Limit.UNKNOWN)
    assert any(each.startswith(lacks) for each in [signal_text(one) for one in found.unknown])


CASES: dict[Limit, tuple[dict[str, Any], Any, float]] = {
    Limit.QUEUE_LIMIT: (QUEUED, BUSY, 24.0),
    Limit.KV_CACHE_FULL: (FULL, BUSY, 0.0),
    Limit.COMPUTE_BOUND: ({**QUEUED, "mfu_ratio": 0.6, "mfu_prefill_ratio": 0.5}, COMPUTES, 24.0),
    Limit.BANDWIDTH_BOUND: ({"mbu_ratio": 0.7}, READS, 0.0),
    Limit.INTERCONNECT_BOUND: (TP4, (UNCOUPLED,) * 4, 0.0),
}
SIGNALS = (
    "running",
    "waiting",
    "kv_usage_ratio",
    "mfu_ratio",
    "mbu_ratio",
    "queue_s",
    "ttft_s",
    "kv_pool_tokens",
    "gpus",
)


@each_row("expected", CASES)
@each_row("gone", SIGNALS)
@each_row("model", [True, False])
def test_without_a_signal_it_is_the_same_or_cannot_be_told(expected: Limit, gone: str, model: bool) -> None:
    """Healthy only where the signal was all that spoke against it."""
    changes, gpus, slots = CASES[expected]
    changes = {**changes, **({} if model else NO_MODEL)}
    if gone == "gpus":
        gpus = tuple({**card, **NO_ACTIVITY} for card in (gpus if isinstance(gpus, tuple) else (gpus,)))
    else:
        changes = {**changes, gone: Quantiles() if gone.endswith("_s") else NOT_EXPOSED}
    found = of_engine(judged(scene(changes, gpus, slots=slots)), Family.LIMIT)
    if found is not None and found.code is Limit.QUEUE_LIMIT:
        # A queue that stands has its name, with the signals that would tell more.
        assert expected is Limit.QUEUE_LIMIT or found.unknown
    elif found is not None:
        assert found.code in {expected, Limit.UNKNOWN}


def test_first_tokens_that_waited_for_arithmetic_are_not_late_without_a_reason() -> None:
    """In three of five seconds the tensor cores compute all they can, on the mean they do not."""
    late = {"ttft_s": Quantiles(mean=1.0, p95=3.0)}

    def bursts(at: int) -> tuple[Of, ...]:
        return scene(late, {**BUSY, "tensor_active_ratio": 0.7 if at % 5 < 3 else 0.1})(at)

    assert Limit.UNKNOWN not in limits(Stage().play(90, bursts, every_s=1))
    assert Limit.UNKNOWN in limits(Stage().play(90, scene(late, BUSY)))
