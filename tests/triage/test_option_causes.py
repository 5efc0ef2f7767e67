"""Options that cost speed: each with the neighbours in which it costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.readings.engine_options import EngineOptions
from gpumon.readings.frame import SERVER_COMMAND, STARTS, EndpointState, GpuProcess, Start
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Family, Limit, Quantiles, TokensTotal
from gpumon.readings.verdict import Level
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, judged, of_engine, scene
from tests.triage.stage import Of, Stage, engine, gpu

SLOW_STEPS = {
    "running": 3.0,
    "steps_per_s": 40.0,
    "itl_mean_s": 0.024,
    "mfu_ratio": 0.01,
    "mfu_prefill_ratio": 0.002,
    "mbu_ratio": 0.18,
}
"""Steps of 24 ms, of which reads take 0.18 / 40 / 0.75 = 6 ms."""
QUIET = {**BUSY, "tensor_active_ratio": 0.05, "bandwidth_bytes_per_s": 0.0}


def with_options(options: str) -> dict[str, Any]:
    """A GPU whose engine was started with these options."""
    command = f"vllm serve m --port 8000 {options}"
    process = GpuProcess(4711, "vllm", vram_bytes=70e9, engine="vllm:8000", command=command)
    return {**QUIET, "processes": (process,)}


@each_row(
    ("options", "changes", "expected"),
    [
        ("--enforce-eager", {}, "eager_mode"),
        ("-O0", {}, "eager_mode"),
        ("", {}, ""),
        ("--no-enforce-eager", {}, ""),
        # It rests most of the time.
        ("--enforce-eager", {"running": 0.2}, ""),
        # Its reads are most of a step: a large batch, or a large model.
        ("--enforce-eager", {"itl_mean_s": 0.011}, ""),
        ("--enforce-eager", {"steps_per_s": 0.0}, ""),
    ],
)
def test_eager_mode_is_named_where_launching_kernels_takes_the_time(
    options: str, changes: Mapping[str, Any], expected: str
) -> None:
    found = of_engine(judged(scene({**SLOW_STEPS, **changes}, with_options(options)), 150), Family.LIMIT)
    assert (found.cause if found else "") == expected
    if found is not None:
        assert (found.code, found.level) == (Limit.LOW_EFFICIENCY, Level.NOTE)
        assert verdict_text(found).startswith("eager mode: a token takes 24 ms, its reads 6.0 ms")
        assert "off its command line" in actions_text(found)
        sources = [one.source for one in found.evidence]
        assert any(source.endswith("of its command line (pid 4711)") for source in sources), sources
        assert all(evidence_text(one) for one in found.evidence)


@each_row(
    ("options", "changes", "expected"),
    [
        ("--dtype float32", {"weight_precision": "fp32"}, ["narrow_dtype"]),
        ("--dtype bfloat16", {"weight_precision": "bf16"}, []),
        # The checkpoint has 32 bits, and nobody says that the engine keeps them.
        ("", {"weight_precision": "fp32"}, []),
    ],
)
def test_weights_in_32_bits(options: str, changes: Mapping[str, Any], expected: list[str]) -> None:
    found = of_engine(judged(scene({**SLOW_STEPS, **changes}, with_options(options)), 150), Family.LIMIT)
    assert [one.code for one in (found.actions if found else ())] == expected


LATE = {"itl_s": Quantiles(mean=0.1, p95=0.9, p95_low=0.5), "prefill_tokens_per_s": 5000.0}


@each_row(
    ("options", "changes", "expected"),
    [
        ("--no-enable-chunked-prefill", LATE, "whole_prompts"),
        ("--no-enable-chunked-prefill", {}, ""),
        ("--no-enable-chunked-prefill", {**LATE, "prefill_tokens_per_s": 0.0}, "unknown"),
        ("", LATE, "unknown"),
    ],
)
def test_prompts_in_one_piece(options: str, changes: Mapping[str, Any], expected: str) -> None:
    found = of_engine(judged(scene({**SLOW_STEPS, **changes}, with_options(options)), 150), Family.LIMIT)
    assert (found.cause or found.code.value if found else "") == expected


@each_row(
    ("slots", "running", "expected"),
    [(8, 7.0, "few_slots"), (8, 2.0, ""), (64, 40.0, "")],
)
def test_few_slots_beside_a_kv_cache_for_many(slots: int, running: float, expected: str) -> None:
    """60,000 tokens of 1,000 each: 60 requests fit."""
    changes = {**SLOW_STEPS, "running": running, "kv_pool_tokens": 60_000.0, "context_tokens": 1000.0}
    found = of_engine(judged(scene(changes, with_options(f"--max-num-seqs {slots}")), 150), Family.LIMIT)
    assert (found.cause if found else "") == expected


@each_row(
    ("changes", "expected"),
    [
        ({}, "prefixes_not_kept"),
        ({"mfu_prefill_ratio": 0.09}, ""),
        # What else its arithmetic does is not known: prompts may be a small part of it.
        ({"mfu_ratio": NOT_EXPOSED}, ""),
    ],
)
def test_prefixes_that_are_not_kept_matter_where_prompts_are_most_of_the_work(
    changes: Mapping[str, Any], expected: str
) -> None:
    off = with_options("--no-enable-prefix-caching")
    found = of_engine(judged(scene(changes, off), 150), Family.LIMIT)
    assert (found.cause if found else "") == expected
    if found is not None:
        assert "60% of its arithmetic is prompts" in verdict_text(found)


def test_a_queue_is_never_called_unknown_where_nothing_of_its_gpus_is_measured() -> None:
    """A real vLLM on a CPU: 15 of 16 run, 20 wait, and neither model nor GPUs are known."""
    unmeasured = {"mfu_ratio": 0.0, "mbu_ratio": 0.0}
    queued = {"running": 15.0, "waiting": 20.0, "ttft_s": Quantiles(mean=9.0, p95=19.0), "queue_s": Quantiles(mean=8.8)}
    found = of_engine(judged(scene({**unmeasured, **queued}, with_options("--max-num-seqs 16")), 90), Family.LIMIT)
    assert found is not None
    assert (found.cause, found.actions[0].code) == ("queue_slots", "raise_slots")
    assert "of 16 (--max-num-seqs 16)" in verdict_text(found)


@each_row(
    ("options", "words"),
    [("", ["compiling?", "compiles kernels and graphs"]), ("--enforce-eager", ["first kernels", "loads its kernels"])],
)
def test_nothing_is_said_to_compile_in_eager_mode(options: str, words: list[str]) -> None:
    """It still gets the time that its first request may take."""
    stops = {"decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0, "tokens_total": TokensTotal(0.0, 0.0, 0.0)}
    card = {**IDLE, "processes": with_options(options)["processes"]}
    found = of_engine(judged(scene(stops, card, moves=False), 160), Family.STATE)
    assert found is not None
    assert (found.cause, found.level) == ("hung_compiling", Level.NOTE)
    assert all(word in f"{verdict_text(found)} {actions_text(found)}" for word in words)
    assert "compil" not in f"{verdict_text(found)} {actions_text(found)}" or not options


def test_a_start_in_eager_mode_does_not_compile() -> None:
    info = {STARTS: Start.COMPILING.value, SERVER_COMMAND: "vllm serve m --enforce-eager"}
    eager = EngineOptions(eager=1.0, sources={"eager": "--enforce-eager of its command line (pid 48)"})
    starting = engine(state=EndpointState.STARTING)
    read = replace(starting.read, info=info, options=eager)
    found = of_engine(Stage().play(5, (gpu(), Of(read, starting.shown))), Family.STATE)
    assert found is not None
    assert found.cause == "starting"


@each_row(
    ("changes", "options", "first"),
    [
        # Six tokens a step for 1.6: MFU 25% is 94% of the arithmetic.
        ({}, "--speculative-config.num_speculative_tokens=5", "stop_speculation"),
        # The same by the share that is accepted.
        ({"acceptance_ratio": 0.12}, "", "stop_speculation"),
        # Most of the drafts are of use.
        ({"tokens_per_step": 4.5, "acceptance_ratio": 0.7}, "--speculative-config.num_speculative_tokens=5", ""),
    ],
)
def test_drafts_that_fill_the_arithmetic_are_switched_off_first(
    changes: Mapping[str, Any], options: str, first: str
) -> None:
    drafts = {"tokens_per_step": 1.6, "mfu_ratio": 0.25, "mfu_prefill_ratio": 0.02, **changes}
    found = of_engine(
        judged(scene(drafts, {**BUSY, "processes": with_options(options)["processes"]}), 60), Family.LIMIT
    )
    assert (found.actions[0].code if found and found.code is Limit.COMPUTE_BOUND else "") == first
