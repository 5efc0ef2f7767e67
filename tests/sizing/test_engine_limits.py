"""Limits of the engine that runs bound each plan and each simulation: told by it, or the default of its release."""

from __future__ import annotations

from typing import Any

from gpumon.readings.engine_options import ASSUMED, EngineOptions
from gpumon.readings.frame import EngineKind
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.answer import LimitKind, WorkloadPlan
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.live import from_live
from gpumon.sizing.plan import plan
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.simulate.setup import setup_of
from gpumon.specs.engine_defaults import sglang_slots, sglang_step_tokens
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.live_scenes import at, engine, gpu
from tests.sizing.questions import KNOWN

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
COMMAND = "--max-num-seqs of its command line (pid 48)"


def asked(options: EngineOptions, gpu_type: str = "H100 SXM5 80GB", **facts: Any) -> Scenario:
    """What a running engine with these options asks, seen at eight loads, for 1,000 requests in flight."""
    calibration = Calibration()
    last: Snapshot | None = None
    for number, running in enumerate((2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)):
        for tick in range(12):
            one = replace(engine(running, model=LLAMA, weight_precision="", kv_precision="", **facts), options=options)
            last = at(12 * number + tick, one, gpus=(gpu(gpu_type=gpu_type),))
            calibration.take(last)
    assert last is not None
    found = from_live(last, calibration.observed(), Scenario(itl_p95_ms=500.0))
    return replace(found, workload=tuple(replace(each, target=1000.0) for each in found.workload))


def row_of(scenario: Scenario) -> WorkloadPlan:
    [row] = plan(scenario, KNOWN).workloads
    return row


def slots_of(scenario: Scenario) -> tuple[float, str]:
    [limit] = [limit for limit in row_of(scenario).limits if limit.kind is LimitKind.MAX_NUM_SEQS]
    return limit.concurrency, limit.text


def told(slots: float = 16.0, source: str = COMMAND, **more: float) -> EngineOptions:
    return EngineOptions(slots=slots, sources={"slots": source}, **more)


def test_as_many_as_the_engine_lets_in_are_planned_and_who_says_so_is_named() -> None:
    """All 16, not 80% of them: it is no estimate."""
    row = row_of(asked(told()))
    assert (row.limit, row.capacity_per_instance, row.instances) == ("max_num_seqs", 16.0, 63)
    assert slots_of(asked(told()))[1] == f"the engine runs at most 16 requests at once: {COMMAND}"
    assert row.source.value == "measured"


def test_a_simulation_has_the_same_limits_and_says_who_told_them() -> None:
    options = EngineOptions(
        slots=16.0, step_tokens=512.0, context_tokens=4096.0,
        sources={"slots": COMMAND, "step_tokens": "chunked_prefill_size of its page"},
    )  # fmt: skip
    scenario = asked(options)
    found = setup_of(resolve(scenario.workload[0], scenario, KNOWN), scenario, KNOWN)
    assert (found.limits.max_num_seqs, found.limits.max_num_batched_tokens) == (16, 512)
    assert f"max_num_seqs 16: {COMMAND}" in found.notes
    assert "max_num_batched_tokens 512: chunked_prefill_size of its page" in found.notes


def test_what_is_typed_goes_before_what_the_engine_tells() -> None:
    scenario = asked(told())
    typed = replace(scenario, workload=(replace(scenario.workload[0], max_num_seqs=24),))
    assert slots_of(typed) == (24.0, "the engine runs at most 24 requests at once: typed")


@each_row(
    ("version", "gpu_type", "slots"),
    [
        ("0.11.0", "H100 SXM5 80GB", 1024.0),
        ("0.11.0", "A100 SXM4 80GB", 256.0),
        ("0.11.0", "L40S", 256.0),
        ("0.8.5", "H100 SXM5 80GB", 256.0),
    ],
)
def test_where_nothing_tells_it_is_the_default_of_the_release_and_the_gpu(
    version: str, gpu_type: str, slots: float
) -> None:
    """vllm/engine/arg_utils.py. A default that gpumon's own tables assume is none that the engine told."""
    assumed = told(4.0, f"vLLM's default, {ASSUMED}: its command line is not known here")
    for options in (EngineOptions(), assumed):
        found, text = slots_of(asked(options, gpu_type, version=version))
        assert found == slots
        assert text.endswith(f"vLLM's default for this GPU (vllm {version})")


def test_sglang_has_defaults_of_its_own() -> None:
    """By the tokens of the KV pool and the model's context: 400,000 / 131,072 x 512, at least 2,048."""
    found, text = slots_of(asked(EngineOptions(), kind=EngineKind.SGLANG, version="0.5.3"))
    assert (found, text.rpartition(": ")[2]) == (2048.0, "SGLang's default for this KV cache (sglang 0.5.3)")


@each_row(
    ("pool", "context", "slots"),
    [(400_000, 131_072, 2048), (2_000_000, 131_072, 4096), (800_000, 131_072, 3125), (1000, 4096, 500)],
)
def test_slots_of_sglang(pool: float, context: float, slots: int) -> None:
    assert sglang_slots(pool, context) == slots


@each_row(("gib", "tokens"), [(24, 2048), (48, 4096), (80, 8192), (141, 8192), (180, 16384)])
def test_step_of_sglang(gib: float, tokens: int) -> None:
    assert sglang_step_tokens(gib * 2**30) == tokens


def test_a_server_that_is_not_there_yet_is_started_with_what_is_planned() -> None:
    workload = Workload(LLAMA, 1e5, prompt_tokens=100.0, answer_tokens=50.0)
    row = row_of(Scenario(server=(Server("H200 SXM 141GB"),), workload=(workload,)))
    assert row.capacity_per_instance > 1024
    assert LimitKind.MAX_NUM_SEQS not in {limit.kind for limit in row.limits}


def test_an_engine_of_another_kind_has_no_default_that_is_known() -> None:
    row = row_of(asked(EngineOptions(), kind=EngineKind.LLAMA_CPP, version=""))
    assert LimitKind.MAX_NUM_SEQS not in {limit.kind for limit in row.limits}
