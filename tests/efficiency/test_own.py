"""The engines' own FLOPs and bytes beside gpumon's: on recordings, and by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.readings.missing import Reason
from gpumon.readings.snapshot import Engine, OwnEstimate, OwnMemory
from gpumon.sources.engines.registry import BY_KIND
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from tests.accuracy.pages import Where, recorded, snapshots
from tests.each_row import each_row
from tests.efficiency.polls import INF, after, observed, only, poll, rank, there, why
from tests.efficiency.small_llm import FULL, SMALL
from tests.fakes.engine import CAPTURES, Capture
from tests.records import replace
from tests.sources.engines.contract import Reader

DENSE = replace(SMALL, attention=(FULL,))
LIVE = {name: f"vllm:{name}_per_gpu_total" for name in (q.OWN_FLOPS, q.OWN_READ_BYTES, q.OWN_WRITE_BYTES)}


def recording(name: str, start_s: float, end_s: float, gpus: int = 1) -> list[Engine]:
    config = json.loads((CAPTURES / name / "config.json").read_text())
    where = Where(llm_from_config(config, name, "test"), "H100 SXM 80GB", gpus)
    pages = [page for page in recorded(name) if page.t < end_s]
    found = zip(pages, snapshots(pages, where), strict=True)
    return [shown.engines[0] for page, shown in found if page.t >= start_s]


# Recordings of real engines, vLLM with --enable-mfu-metrics.


def test_a_real_vllm_counts_the_same_flops_and_bytes():
    for shown in recording("prometheus-api", 50.0, 90.0):
        assert there(shown.efficiency.own.flops_ratio) == pytest.approx(1.0, abs=0.02)
        assert there(shown.efficiency.own.read_bytes_ratio) == pytest.approx(1.0, abs=0.1)
        assert there(shown.efficiency.own.write_bytes_per_s) > 0


def test_a_real_vllm_without_the_flag_is_off_and_not_idle():
    *_, last = recording("vllm-basic", 20.0, 30.0)
    own = last.efficiency.own
    readings = (own.flops_per_s, own.read_bytes_per_s, own.write_bytes_per_s, own.flops_ratio, own.read_bytes_ratio)
    assert {why(reading) for reading in readings} == {Reason.OFF}


# By hand.


def beside(
    flops: float,
    read: float,
    llm: LlmSpec | None = SMALL,
    *,
    ranks: int = 1,
    prompts: float = 0.0,
    length: float = 100.0,
    extra: dict[str, float] | None = None,
    **facts: Any,
) -> OwnEstimate:
    """An engine whose own count is so many times gpumon's: first gpumon's is taken, then the counters are set to it."""

    def engine(at_s: float, per_s: tuple[float, float]) -> EngineReading:
        counters = {
            q.DECODE_TOKENS: at_s * 400.0, q.STEPS: at_s * 100.0, q.PREFILL_COMPUTED: at_s * prompts * length,
            q.OWN_FLOPS: at_s * per_s[0], q.OWN_READ_BYTES: at_s * per_s[1],
            **{name: at_s * rate for name, rate in (extra or {}).items()},
        }  # fmt: skip
        gauges = {q.RUNNING: 4.0, q.USED_TOKENS: 400.0}
        prompt = observed(at_s * prompts, length, (length, 1e6, INF))
        parts = [rank(counters, gauges, {q.PROMPT_LENGTH: prompt}, str(number)) for number in range(ranks)]
        base: dict[str, Any] = {"kind": EngineKind.VLLM, "exact_steps": True, "gpu_count": ranks, "live": LIVE}
        return poll(at_s, *parts, llm=llm, **{**base, **facts})

    bare = only(after(lambda at_s: engine(at_s, (1.0, 1.0))))
    gpus = there(bare.hardware.gpu_count)
    per_gpu = there(bare.efficiency.flops_per_s) / gpus, there(bare.efficiency.bytes_per_s) / gpus
    return only(after(lambda at_s: engine(at_s, (per_gpu[0] * flops, per_gpu[1] * read)))).efficiency.own


def test_both_are_shown_however_far_apart():
    own = beside(1.5, 0.76)
    assert (there(own.flops_ratio), there(own.read_bytes_ratio)) == pytest.approx((1.5, 0.76))


def sglang(flops: float, read: float, llm: LlmSpec = SMALL, **facts: Any) -> OwnEstimate:
    live = {name: text.replace("vllm", "sglang") for name, text in LIVE.items()}
    return beside(flops, read, llm, kind=EngineKind.SGLANG, live=live, **facts)


def test_the_bytes_that_sglang_says_it_read_are_never_used():
    own = sglang(1.0, 28.0)
    assert why(own.read_bytes_per_s) is why(own.read_bytes_ratio) is Reason.INVALID


# Why they differ.


@each_row(
    ("flops", "facts", "llm", "reason"),
    [
        (1.05, {}, SMALL, ""),
        (1.4, {}, DENSE, "attention inside a chunk in full"),
        (1.4, {}, SMALL, "states, windows and sparse attention as dense"),
        (0.6, {"ranks": 2}, DENSE, "by the data-parallel ranks"),
        (0.6, {}, DENSE, "no known reason: check the model"),
    ],
)
def test_a_count_of_vllm_that_is_far_off_has_its_reason(flops: float, facts: dict[str, Any], llm: LlmSpec, reason: str):
    own = beside(flops, 1.0, llm, **facts)
    assert reason in own.flops_reason
    assert bool(own.flops_reason) is bool(reason)
    assert own.read_bytes_reason == ""


def test_bytes_have_a_reason_of_their_own():
    assert beside(1.0, 1.5, DENSE).read_bytes_reason == "it counts reads of prefill and of activations, too"
    assert "4 bit" in beside(1.0, 0.6, replace(DENSE, precision=Precision.FP8)).read_bytes_reason
    assert sglang(1.0, 28.0).read_bytes_reason == "", "the bytes of SGLang are not shown"


@each_row(
    ("flops", "facts", "llm", "reason"),
    [
        (3.5, {"tp": 4, "gpu_count": 4}, DENSE, "tensor-parallel GPUs"),
        (0.8, {}, DENSE, "leaves out the LM head"),
        (2.0, {}, replace(DENSE, experts=8, experts_per_token=2), "by its dense size"),
    ],
)
def test_a_count_of_sglang_that_is_far_off_has_its_reason(
    flops: float, facts: dict[str, Any], llm: LlmSpec, reason: str
):
    assert reason in sglang(flops, 1.0, llm, **facts).flops_reason


# The engine's own table of memory.


def table(llm: LlmSpec = DENSE, ranks: int = 1, **facts: Any) -> OwnMemory:
    """The memory of an engine that says that a GPU has 3,000 bytes of weights, 40,000 of KV cache, 500 of graphs."""
    gauges = {
        q.RUNNING: 1.0, q.POOL_TOKENS: 100.0, q.OWN_WEIGHT_BYTES: 3000.0, q.OWN_KV_BYTES: 40_000.0,
        q.OWN_GRAPH_BYTES: 500.0,
    }  # fmt: skip

    def engine(at_s: float) -> EngineReading:
        parts = [rank({q.DECODE_TOKENS: at_s}, gauges, name=str(number)) for number in range(ranks)]
        return poll(at_s, *parts, llm=llm, **facts)

    return only(after(engine)).efficiency.own_memory


def test_weights_and_kv_cache_of_a_gpu_stand_beside_what_the_model_needs():
    memory = table()
    # 2,000 bytes that a step reads and a look-up table of 200 parameters; of a token 3 layers x 2 x 2 heads x 8 x 2.
    assert (memory.weight_bytes, memory.kv_bytes, memory.graph_bytes) == (3000.0, 40_000.0, 500.0)
    assert there(memory.weight_ratio) == pytest.approx(3000.0 / 2400.0)
    assert there(memory.kv_ratio) == pytest.approx(40_000.0 / (100.0 * 192.0))


def test_a_gpu_of_several_has_its_part_of_both():
    memory = table(tp=2, gpu_count=2)
    assert there(memory.weight_ratio) == pytest.approx(3000.0 / 1200.0)
    assert there(memory.kv_ratio) == pytest.approx(40_000.0 / (100.0 * 96.0))
    # Each rank has all weights of a dense model, and a pool of its own.
    memory = table(ranks=2, tp=1, gpu_count=2)
    assert there(memory.weight_ratio) == pytest.approx(3000.0 / 2400.0)
    assert there(memory.kv_ratio) == pytest.approx(40_000.0 / (100.0 * 192.0))


def test_pools_of_several_kinds_are_not_worked_out():
    memory = table(SMALL)
    assert why(memory.kv_ratio) is Reason.NOT_MODELLED
    assert there(memory.kv_bytes) == 40_000.0


def test_a_recorded_sglang_holds_the_kv_cache_that_is_worked_out():
    config = json.loads((CAPTURES / "sglang-basic" / "config.json").read_text())
    (page,) = Reader(BY_KIND[EngineKind.SGLANG]).read({"/metrics": Capture("sglang-basic").at(20.0).body})
    facts = {"llm": llm_from_config(config, "tiny", "test"), "live": page.live, "gpu_count": 1, "tp": 1}
    memory = only(after(lambda at_s: poll(at_s, *page.ranks, **facts))).efficiency.own_memory
    assert there(memory.kv_ratio) == pytest.approx(1.0, abs=0.001)
    assert there(memory.weight_bytes) == 29_630_464.0
