"""What holds an engine back: each limit by hand-worked figures, told apart from its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Confidence, Family, Kind, Level, Limit, Quantiles, TokensTotal
from gpumon.specs.llm import LlmSpec
from tests.triage.engines import BUSY, PEAK, WORKS, EngineKind, Goals, judged, limits, of_engine, only, scene
from tests.triage.stage import GIB, Stage, engine

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


@pytest.mark.parametrize(
    ("expected", "changes", "gpus", "slots"),
    [
        (Limit.HEALTHY, {}, BUSY, 0.0),
        (Limit.QUEUE, QUEUED, BUSY, 24.0),
        (Limit.QUEUE, QUEUED, BUSY, 0.0),  # nobody says the limit, and the number of requests stands still
        (Limit.KV_CACHE, FULL, BUSY, 0.0),
        (Limit.KV_CACHE, {"kv_usage_ratio": 0.97, "preemptions_per_s": 0.4}, BUSY, 0.0),
        (Limit.HEALTHY, {"kv_usage_ratio": 0.97}, BUSY, 0.0),  # full and nobody waits: a well used pool
        (Limit.KV_CACHE, FULL, READS, 0.0),
        (Limit.COMPUTE, QUEUED, COMPUTES, 24.0),
        (Limit.COMPUTE, {"mfu_ratio": 0.55, "mfu_prefill_ratio": 0.5}, BUSY, 0.0),
        (Limit.COMPUTE, {}, {**COMPUTES, "bandwidth_bytes_per_s": 0.8 * PEAK}, 0.0),
        (Limit.COMPUTE, {**QUEUED, "mfu_ratio": 0.36, "mfu_prefill_ratio": 0.3}, BUSY, 64.0),  # slots are free
        (Limit.BANDWIDTH, {}, READS, 0.0),
        (Limit.BANDWIDTH, {"mbu_ratio": 0.69}, {**BUSY, "bandwidth_bytes_per_s": 0.66 * PEAK}, 0.0),
        (Limit.HEALTHY, {"mbu_ratio": 0.69}, BUSY, 0.0),  # what is measured outweighs what is modelled
        (Limit.BANDWIDTH, QUEUED, READS, 64.0),
        (Limit.BANDWIDTH, {**QUEUED, "weight_bytes_per_s": 1e12, "bytes_per_s": 2.7e12}, READS, 24.0),
        (Limit.QUEUE, {**QUEUED, "weight_bytes_per_s": 2e12, "bytes_per_s": 2.7e12}, READS, 24.0),  # shared weights
        (Limit.COMMUNICATION, TP4, (UNCOUPLED,) * 4, 0.0),
        (Limit.BANDWIDTH, TP4, ({**UNCOUPLED, "bandwidth_bytes_per_s": 0.8 * PEAK},) * 4, 0.0),
        (Limit.COMPUTE, TP4, ({**UNCOUPLED, "tensor_active_ratio": 0.7},) * 4, 0.0),
        (Limit.HEALTHY, TP4, ({**UNCOUPLED, "nvlink_bytes_per_s": 2e10},) * 4, 24.0),
        (Limit.HEALTHY, {**LOW, "tp": 1}, UNCOUPLED, 24.0),
    ],
)
def test_each_limit_and_its_neighbours(expected: Limit, changes: dict[str, Any], gpus: Any, slots: float) -> None:
    found = only(judged(scene(changes, gpus, slots=slots)))
    assert found.limit is expected, found.text
    assert found.text
    assert all(one.text for one in found.evidence)


NOTHING = dict.fromkeys(
    ("running", "decode_tokens_per_s", "prefill_tokens_per_s", "mfu_ratio", "mfu_prefill_ratio", "mbu_ratio"), 0.0
)
LORA = GpuProcess(999, "python", user="bob", vram_bytes=8.0 * GIB)
TRAINS = {**COMPUTES, "processes": (*BUSY["processes"], LORA)}
READS_TOO = {**READS, "processes": (*BUSY["processes"], LORA)}


@pytest.mark.parametrize("card", [TRAINS, READS_TOO])
def test_an_engine_with_nothing_to_do_does_not_do_what_its_gpu_does(card: dict[str, Any]) -> None:
    assert limits(judged(scene(NOTHING, card, moves=False))) == (Limit.HEALTHY,)


@pytest.mark.parametrize("card", [TRAINS, READS_TOO])
def test_beside_another_its_own_figures_count(card: dict[str, Any]) -> None:
    assert limits(judged(scene({}, card))) == (Limit.HEALTHY,)
    quiet = {**card, "processes": (*BUSY["processes"], GpuProcess(999, "python", vram_bytes=0.4 * GIB))}
    assert limits(judged(scene({}, quiet)))[0] in {Limit.COMPUTE, Limit.BANDWIDTH}  # a bare context does nothing


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (TRAINS, "computes at its limit: tensor cores 78 % active, shared with python (pid 999), 60 % of it prefill"),
        (READS_TOO, "reads 81 % of HBM, shared with python (pid 999) at batch 24"),
    ],
)
def test_where_users_wait_for_a_shared_gpu_it_is_said_with_doubt(card: dict[str, Any], said: str) -> None:
    found = only(judged(scene(QUEUED, card, slots=64.0)))
    assert found.text.startswith(said)
    assert (found.level, found.confidence) == (Level.WARN, Confidence.LOW)
    assert found.action.startswith("GPUs that it does not share with python (pid 999); ")


def test_of_two_engines_on_a_gpu_the_one_at_work_computes() -> None:
    both = {**COMPUTES, "engines": ("vllm:8000", "emb:8001")}
    first, rest = scene({"mfu_ratio": 0.6}, both), {**WORKS, **NOTHING, "tokens_total": TokensTotal(7.0, 0.0, 7.0)}
    second = engine(url="http://127.0.0.1:8001", name="emb:8001", **rest)
    found = Stage().play(60, lambda tick: (*first(tick), second))
    said = {each.scope: each for each in found.verdicts if each.kind is Kind.ENGINE}
    assert said["vllm:8000"].limit is Limit.COMPUTE
    assert said["vllm:8000"].confidence is Confidence.HIGH
    assert said["emb:8001"].limit is Limit.HEALTHY


@pytest.mark.parametrize(
    ("running", "prefill", "limit"),
    [
        (1.3, 0.41, Limit.COMPUTE),  # long prompts take turns
        (24.0, 0.41, Limit.COMPUTE),  # they stand still beside much prefill
        (2.0, 0.1, Limit.QUEUE),
    ],
)
def test_a_few_prompts_that_take_turns_are_no_limit_of_the_scheduler(
    running: float, prefill: float, limit: Limit
) -> None:
    changes = {**QUEUED, "running": running, "mfu_ratio": prefill + 0.01, "mfu_prefill_ratio": prefill}
    found = only(judged(scene(changes, BUSY)))
    assert found.limit is limit
    assert "--max-num-seqs" not in found.action


def test_llama_cpp_is_not_told_to_lower_and_raise_the_same() -> None:
    found = only(judged(scene(FULL, kind=EngineKind.LLAMA_CPP)))
    assert found.action.endswith("for these 60 requests; -ctk q8_0 -ctv q8_0 (holds twice as many)")


def test_a_queue_names_the_flag_and_how_far() -> None:
    """24 run, 12 wait: 36 fit, as the KV cache at 41 % has room for 2.07 times as many."""
    found = only(judged(scene(QUEUED, slots=24.0)))
    assert found.text == "12 wait while 24 run of 24: KV cache at 41 %, compute and bandwidth have room"
    assert found.action == "raise --max-num-seqs from 24 to 36"
    assert (found.level, found.confidence, found.family) == (Level.WARN, Confidence.HIGH, Family.LIMIT)
    texts = [one.text for one in found.evidence]
    assert "90 % of the time to first token is queueing (900 ms)" in texts
    assert "at most 24 run at once" in texts
    assert found.evidence[0].chart == "waiting@http://127.0.0.1:8000"


def test_requests_that_are_deferred_do_not_wait_for_room() -> None:
    waits = only(judged(scene({**QUEUED, "waiting_deferred": 0.0}, slots=24.0)))
    assert waits.limit is Limit.QUEUE
    deferred = {**QUEUED, "waiting_deferred": QUEUED["waiting"]}
    assert only(judged(scene(deferred, slots=24.0))).limit is Limit.HEALTHY


def test_a_queue_that_turns_requests_away_says_how_many() -> None:
    found = only(judged(scene({**QUEUED, "rejections_per_s": 2.5}, slots=24.0)))
    assert "2.5 requests/s are turned away" in [one.text for one in found.evidence]


def test_a_queue_goes_no_further_than_the_kv_cache() -> None:
    """0.85 / 0.7 x 24 = 29.1."""
    found = only(judged(scene({**QUEUED, "kv_usage_ratio": 0.7}, slots=24.0)))
    assert found.action == (
        "raise --max-num-seqs from 24 to 29: the KV cache at 70 % has no room for more; more instances for the rest"
    )


def test_each_engine_has_its_own_flag() -> None:
    said = {
        kind: only(judged(scene(QUEUED, slots=24.0, kind=kind, name=kind.value))).action
        for kind in (EngineKind.SGLANG, EngineKind.LLAMA_CPP, EngineKind.GENERIC)
    }
    assert said[EngineKind.SGLANG] == "raise --max-running-requests from 24 to 36"
    assert said[EngineKind.LLAMA_CPP] == "raise -np from 24 to 36"
    assert said[EngineKind.GENERIC] == "raise the limit of requests that run at once from 24 to 36"


def test_the_limit_of_requests_is_read_from_the_command_line() -> None:
    process = BUSY["processes"][0]
    command = type(process)(4711, "vllm", engine="vllm:8000", command="vllm serve m --max-num-seqs 24 --port 8000")
    found = only(judged(scene(QUEUED, {**BUSY, "processes": (command,)})))
    assert "--max-num-seqs of its command line" in [one.source for one in found.evidence]
    assert found.confidence is Confidence.HIGH


def test_a_short_wait_before_a_long_prefill_is_no_queue() -> None:
    waits = {**QUEUED, "queue_s": Quantiles(mean=0.1)}
    assert limits(judged(scene(waits, slots=24.0))) == (Limit.HEALTHY,)


def test_a_full_kv_cache_says_what_it_holds_and_how_many_instances() -> None:
    """100,000 / 2,000 = 50 requests; (48 + 12) / 50 / 0.85 = 1.4, so 2 instances."""
    found = only(judged(scene(FULL, info={"gpu_memory_utilization": "0.9", "cache_dtype": "auto"})))
    assert found.text == "KV cache 97 % full at 48 requests of 2k tokens: 12 wait"
    assert found.action == (
        "2 instances instead of 1 for these 60 requests; --kv-cache-dtype fp8 (holds twice as many); "
        "raise --gpu-memory-utilization (now 0.9)"
    )
    assert "it holds about 50 requests of 2k tokens" in [one.text for one in found.evidence]
    assert (found.level, found.confidence) == (Level.WARN, Confidence.HIGH)


@pytest.mark.parametrize(("most", "advised"), [("4000", True), ("4001", False), ("", False), ("many", False)])
@pytest.mark.parametrize("name", ["max_model_len", "context_len"])
def test_a_lower_limit_of_the_context_helps_where_contexts_come_near_it(name: str, most: str, advised: bool) -> None:
    found = only(judged(scene(FULL, info={name: most})))
    assert ("lower --max-model-len" in found.action) is advised


def test_preemptions_are_told_as_exactly_as_they_are_known() -> None:
    found = only(judged(scene({**FULL, "waiting": 0.0, "preemptions_per_s": 0.64})))
    assert found.text.endswith(": about 38 thrown out a minute")
    assert "about 38 preemptions a minute" in [one.text for one in found.evidence]


@pytest.mark.parametrize("kept", [{"kv_precision": "fp8"}, {}])
def test_fp8_is_no_advice_where_the_kv_cache_is_fp8(kept: dict[str, str]) -> None:
    found = only(judged(scene({**FULL, **kept}, info={} if kept else {"cache_dtype": "fp8_e4m3"})))
    assert "--kv-cache-dtype" not in found.action


def test_a_prompt_that_does_not_fit_is_a_full_kv_cache_before_90_percent() -> None:
    """A fifth of 60,000 tokens is free, and the mean prompt has 16,000."""
    changes = {**QUEUED, "kv_usage_ratio": 0.8, "prompt_tokens_mean": 16_000.0}
    found = only(judged(scene(changes, slots=64.0)))
    assert (found.limit, found.confidence) == (Limit.KV_CACHE, Confidence.MEDIUM)
    assert limits(judged(scene(changes, slots=24.0))) == (Limit.QUEUE,)


DENSE = LlmSpec("m", "test", 70e9, 70e9, 128256, 8192, 64, 8, 128, 80)
BOUND = {
    "llm": DENSE,
    "mfu_prefill_ratio": 0.02,
    "weight_bytes": 40e9,
    "kv_bytes_per_token": 1e6,
    "kv_pool_tokens": 200_000.0,
    "weight_precision": "bf16",
    "tp": 2,
}


def test_a_bigger_batch_is_promised_as_far_as_the_goal_allows() -> None:
    """40 GB + 24 x 1 GB take 24 ms; 40 ms read 106.7 GB, which are 66 sequences. The pool holds 180."""
    found = only(judged(scene(BOUND, (READS, READS)), goals=Goals(itl_s=0.04)))
    assert found.text == "reads 81 % of HBM at batch 24: batch 66 still meets 40 ms"
    assert found.action == (
        "a bigger batch (send it more requests at once): up to 66; --quantization fp8 halves the weights; "
        "more GPUs per instance (--tensor-parallel-size, now 2)"
    )
    assert (found.level, found.confidence) == (Level.NOTE, Confidence.HIGH)


def test_without_a_goal_the_batch_goes_as_far_as_memory_and_says_what_it_costs() -> None:
    """0.9 x 60,000 / 1,000 = 54; (40 + 54) / (40 + 24) x 24 ms = 35 ms."""
    found = only(judged(scene({**BOUND, "kv_pool_tokens": 60_000.0}, READS)))
    assert found.text == "reads 81 % of HBM at batch 24: batch 54 still fits, about 35 ms a token"


@pytest.mark.parametrize(
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
    assert found.text == "reads 81 % of HBM at batch 24"


def test_weights_of_8_bit_are_not_to_be_quantised() -> None:
    found = only(judged(scene({**BOUND, "weight_precision": "fp8"}, READS)))
    assert "--quantization" not in found.action


@pytest.mark.parametrize("source", [BandwidthSource.ENGINE, BandwidthSource.UPPER_BOUND])
def test_modelled_bandwidth_and_upper_bounds_are_no_evidence(source: BandwidthSource) -> None:
    found = judged(scene({}, {**READS, "bandwidth_source": source}))
    assert limits(found) == (Limit.HEALTHY,)


def test_a_missed_goal_makes_a_limit_urgent_and_without_one_nobody_knows_why() -> None:
    late = {"itl_s": Quantiles(mean=0.05, p95=0.09)}
    found = only(judged(scene(late, READS), goals=Goals(itl_s=0.04)))
    assert (found.limit, found.level) == (Limit.BANDWIDTH, Level.WARN)
    assert "ITL p95 90 ms misses 40 ms" in [one.text for one in found.evidence]
    found = only(judged(scene(late), goals=Goals(itl_s=0.04)))
    assert found.limit is Limit.CANNOT_TELL
    assert found.text == "cannot tell: why ITL p95 90 ms misses 40 ms: no figure is near its limit"


def test_the_bucket_of_a_quantile_has_to_be_above_the_goal() -> None:
    coarse = {"itl_s": Quantiles(mean=0.03, p95=0.045, p95_low=0.025)}
    assert limits(judged(scene(coarse), goals=Goals(itl_s=0.04))) == (Limit.HEALTHY,)


def test_prefill_that_computes_at_its_limit_is_to_be_cached_chunked_and_quantised() -> None:
    changes = {"mfu_ratio": 0.5, "mfu_prefill_ratio": 0.4, "weight_precision": "bf16", "waiting": 3.0}
    found = only(judged(scene(changes, COMPUTES)))
    assert found.text == "computes at its limit: tensor cores 78 % active, 80 % of it prefill: 3 wait"
    assert found.level is Level.WARN
    for word in ("--enable-prefix-caching", "--enable-chunked-prefill", "--quantization fp8", "GPUs of their own"):
        assert word in found.action


def test_a_gpu_that_lags_is_named_with_its_clock() -> None:
    slow = {**BUSY, "sm_active_ratio": 0.93, "sm_clock_hz": 1.09e9}
    fast = {**BUSY, "sm_active_ratio": 0.62, "sm_clock_hz": 1.98e9}
    found = only(judged(scene({"tp": 4}, (fast, slow, fast, fast))))
    assert found.limit is Limit.COMMUNICATION
    assert found.text == "GPU 1 is at 93 % SM activity, the others at 62 %: they wait for it"
    assert "its clock is at 1.09 GHz, others are at 1.98 GHz" in [one.text for one in found.evidence]
    assert found.evidence[0].chart == "sm:1"


def test_replicas_of_one_engine_on_their_own_gpus_are_not_compared() -> None:
    idle = {**BUSY, "sm_active_ratio": 0.2}
    assert limits(judged(scene({"tp": 1, "ranks": 2}, (BUSY, idle)))) == (Limit.HEALTHY,)


def test_tensor_parallelism_over_pcie() -> None:
    """Generation 5 x 16 lanes carry 63 GB/s in a direction: 25 GB/s are 40 %."""
    link = {"pcie_rx_bytes_per_s": 25.2e9, "pcie_tx_bytes_per_s": 20e9, "pcie_generation": 5.0, "pcie_width": 16.0}
    card = {**UNCOUPLED, **link, "nvlink_bytes_per_s": NOT_SUPPORTED, "gpu_type": "H100 PCIe 80GB"}
    found = only(judged(scene(TP4, (card,) * 4)))
    assert found.text.endswith("PCIe carries 25.2 GB/s, 40 % of its peak: tensor parallelism over PCIe")
    assert found.action.startswith("lower --tensor-parallel-size from 4 to 2 with twice the instances, if the model")


@pytest.mark.parametrize(
    ("weights", "action"),
    [
        (
            139e9,
            "--quantization fp8 halves the weights, or --pipeline-parallel-size 2 with --tensor-parallel-size 1 "
            "(stages talk less than ranks), or data parallelism instead",
        ),
        (16e9, "lower --tensor-parallel-size from 2 to 1 with twice the instances, or data parallelism instead"),
    ],
)
def test_fewer_ranks_are_advised_where_the_model_fits_on_them(weights: float, action: str) -> None:
    """A GPU has 0.9 x 85.9 - 7.5 = 69.8 GB for weights and KV cache."""
    llm = LlmSpec("m", "test", 70e9, 70e9, 128256, 8192, 64, 8, 128, 80, read_bytes=weights)
    changes = {**LOW, "tp": 2, "llm": llm, "kv_bytes_per_token": 1e6, "weight_precision": "bf16"}
    found = only(judged(scene(changes, (UNCOUPLED,) * 2)))
    assert (found.limit, found.action) == (Limit.COMMUNICATION, action)


@pytest.mark.parametrize(
    ("kind", "limit", "confidence"),
    [
        ("A100 SXM4 80GB", Limit.CANNOT_TELL, Confidence.LOW),  # its board has NVLink, which nobody counts
        ("A100 PCIe 80GB", Limit.COMMUNICATION, Confidence.MEDIUM),  # it may have a bridge
        ("L40S", Limit.COMMUNICATION, Confidence.HIGH),
    ],
)
def test_pcie_carries_the_ranks_only_where_no_nvlink_does(kind: str, limit: Limit, confidence: Confidence) -> None:
    """Generation 4 x 16 lanes carry 31.5 GB/s in a direction: 9 GB/s are 29 %, and may be an offloaded KV cache."""
    link = {"pcie_rx_bytes_per_s": 9e9, "pcie_tx_bytes_per_s": 9e9, "pcie_generation": 4.0, "pcie_width": 16.0}
    card = {**NO_ACTIVITY, **link, "nvlink_bytes_per_s": NOT_SUPPORTED, "gpu_type": kind}
    found = only(judged(scene(TP4, (card,) * 4)))
    assert (found.limit, found.confidence) == (limit, confidence)
    if limit is Limit.CANNOT_TELL:
        assert "bytes over NVLink and PCIe between its GPUs" in found.unknown


def test_ranks_with_unequal_shares_are_told_in_the_engines_words() -> None:
    said = "decode: rank 1 gives 100 tok/s, the mean of the ranks is 400"
    found = only(judged(scene({"tp": 1, "ranks": 2, "uneven": (said,)}, (BUSY, BUSY))))
    assert found.limit is Limit.COMMUNICATION
    assert found.evidence[0].text == said


@pytest.mark.parametrize(
    ("changes", "gpus", "lacks"),
    [
        (NO_MODEL, NO_ACTIVITY, "MFU or tensor activity (unknown LLM: add a [[model]] entry)"),
        (
            {"mbu_ratio": Missing(Reason.NO_CONTEXT)},
            NO_ACTIVITY,
            "MBU or DRAM activity (no context: add context_tokens",
        ),
    ],
)
@pytest.mark.parametrize("queued", [True, False])
def test_what_is_missing_is_named(changes: dict[str, Any], gpus: dict[str, Any], lacks: str, queued: bool) -> None:
    found = only(judged(scene({**(QUEUED if queued else {}), **changes}, gpus, slots=24.0)))
    assert found.limit is Limit.CANNOT_TELL
    assert any(each.startswith(lacks) for each in found.unknown)


CASES: dict[Limit, tuple[dict[str, Any], Any, float]] = {
    Limit.QUEUE: (QUEUED, BUSY, 24.0),
    Limit.KV_CACHE: (FULL, BUSY, 0.0),
    Limit.COMPUTE: ({**QUEUED, "mfu_ratio": 0.6, "mfu_prefill_ratio": 0.5}, COMPUTES, 24.0),
    Limit.BANDWIDTH: ({"mbu_ratio": 0.7}, READS, 0.0),
    Limit.COMMUNICATION: (TP4, (UNCOUPLED,) * 4, 0.0),
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


@pytest.mark.parametrize("expected", CASES)
@pytest.mark.parametrize("gone", SIGNALS)
@pytest.mark.parametrize("model", [True, False])
def test_without_a_signal_it_is_the_same_or_cannot_be_told(expected: Limit, gone: str, model: bool) -> None:
    """Healthy only where the signal was all that spoke against it."""
    changes, gpus, slots = CASES[expected]
    changes = {**changes, **({} if model else NO_MODEL)}
    if gone == "gpus":
        gpus = tuple({**card, **NO_ACTIVITY} for card in (gpus if isinstance(gpus, tuple) else (gpus,)))
    else:
        changes = {**changes, gone: Quantiles() if gone.endswith("_s") else NOT_EXPOSED}
    found = of_engine(judged(scene(changes, gpus, slots=slots)), Family.LIMIT)
    if found is not None:
        assert found.limit in {expected, Limit.CANNOT_TELL}


def test_a_burst_is_no_verdict() -> None:
    def at(tick: int) -> tuple[Any, ...]:
        return scene({**QUEUED, "waiting": 60.0} if 40 <= tick < 45 else {}, slots=24.0)(tick)

    assert [limits(judged(at, seconds)) for seconds in (44, 50, 60, 75, 90)] == [(Limit.HEALTHY,)] * 5


def test_flapping_around_a_threshold_does_not_flap() -> None:
    def at(tick: int) -> tuple[Any, ...]:
        share = 0.74 if tick % 20 < 10 and tick > 60 else 0.77
        return scene({}, {**BUSY, "bandwidth_bytes_per_s": share * PEAK})(tick)

    assert {limits(judged(at, seconds)) for seconds in range(60, 200, 7)} == {(Limit.BANDWIDTH,)}


def test_memory_that_was_not_given_comes_first() -> None:
    first, usual = (
        only(judged(scene(FULL, info={"gpu_memory_utilization": share, "cache_dtype": "auto"}))).action
        for share in ("0.45", "0.9")
    )
    assert first.startswith("raise --gpu-memory-utilization (now 0.45); ")
    assert usual.endswith("; raise --gpu-memory-utilization (now 0.9)")
