"""The engines' own FLOPs and bytes beside gpumon's: on recordings, and the known reasons for a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.readings.missing import Reason
from gpumon.readings.snapshot import Engine, OwnEstimate
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import LlmSpec, State
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from tests.accuracy.pages import Where, recorded, snapshots
from tests.efficiency.polls import INF, after, observed, only, poll, rank, steady, there, why
from tests.efficiency.small_llm import FULL, SMALL
from tests.fakes.engine import CAPTURES
from tests.records import replace

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
        assert shown.efficiency.own.notes == ()


def test_the_mean_of_two_real_ranks_counts_for_both_gpus():
    *_, last = recording("vllm-dp2", 28.0, 36.0, gpus=2)
    assert last.hardware.ranks == 2
    assert there(last.efficiency.own.flops_ratio) == pytest.approx(1.0, abs=0.03)


def test_a_real_vllm_without_the_flag_is_off_and_not_idle():
    *_, last = recording("vllm-basic", 20.0, 30.0)
    own = last.efficiency.own
    readings = (own.flops_per_s, own.read_bytes_per_s, own.write_bytes_per_s, own.flops_ratio, own.read_bytes_ratio)
    assert {why(reading) for reading in readings} == {Reason.OFF}
    assert own.notes == ()


def test_before_the_first_request_nobody_knows():
    first = recording("prometheus-api", 0.0, 8.0)[-1]
    assert why(first.efficiency.own.flops_per_s) is Reason.IDLE


# Reasons.


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


def catalogue(name: str) -> LlmSpec:
    found = llm_catalogue().find(name)
    assert found is not None
    return found


def small(**fields: Any) -> LlmSpec:
    return replace(SMALL, **fields)


def test_within_a_quarter_nothing_is_said():
    own = beside(1.24, 0.76)
    assert (there(own.flops_ratio), there(own.read_bytes_ratio)) == pytest.approx((1.24, 0.76))
    assert own.notes == ()


def test_what_nobody_knows_is_called_so_with_its_figure():
    assert beside(1.5, 1.0, version="0.28.0").notes == ("its own FLOPs: 1.5 times gpumon's: reason not known",)


def test_so_far_apart_the_model_is_doubted():
    (note,) = beside(0.002, 1.0).notes
    assert note.endswith("reason not known; so far apart, the model's dimensions may be wrong")


STATE = State("delta net", 4, elements=1.0, flops=7.0)


@pytest.mark.parametrize(
    ("version", "facts", "apart", "said"),
    [
        ("0.20.0", {}, (1.4, 1.0), "sliding-window"),
        ("0.24.0", {}, (1.4, 1.0), "reason not known"),
        ("", {}, (1.4, 1.0), "reason not known"),
        ("v0.18.1", {"llm": "deepseek-ai/DeepSeek-V3"}, (3.0, 1.0), "plain multi-head attention"),
        ("0.28.0", {"llm": "deepseek-ai/DeepSeek-V3"}, (0.5, 1.0), "absorbed form"),
        ("0.28.0", {"ranks": 4}, (0.4, 1.0), "data-parallel ranks"),
        ("0.32.0", {"linear": True}, (1.6, 1.0), "as if they were attention"),
        ("", {"linear": True}, (1.0, 1.6), "as if they were attention"),
        ("0.32.0", {"linear": True}, (0.6, 1.0), "as if they were attention"),
        ("0.32.0", {"llm": "deepseek-ai/DeepSeek-V3.2"}, (1.6, 1.0), "sparse attention as dense"),
        ("0.32.0", {"llm": "deepseek-ai/DeepSeek-V3.2"}, (1.0, 1.6), "sparse attention as dense"),
        ("0.17.0", {"precision": Precision.INT4}, (0.05, 1.0), "before 0.19"),
        ("0.19.0", {"precision": Precision.INT4}, (0.3, 1.0), "does not know"),
        ("0.28.0", {"precision": Precision.FP8}, (1.0, 0.5), "half of their bytes"),
        ("0.28.0", {"llm": "Qwen/Qwen3-30B-A3B"}, (1.0, 1.5), "experts of its own"),
        ("0.28.0", {"prompts": 5.0, "length": 20_000.0}, (1.35, 1.0), "causal half"),
        ("0.28.0", {"prompts": 50.0}, (1.0, 2.0), "reads of prefill"),
        ("0.28.0", {"extra": {q.DRAFTS: 100.0, q.ACCEPTED_TOKENS: 100.0}}, (1.8, 1.0), "refused"),
        ("0.28.0", {"extra": {q.PREEMPTIONS: 1.0}}, (1.3, 1.0), "after a preemption"),
    ],
)
def test_a_known_reason_is_given_by_version_and_model(
    version: str, facts: dict[str, Any], apart: tuple[float, float], said: str
):
    given = dict(facts)
    precision = given.pop("precision", Precision.BF16)
    layers = {"attention": (FULL,), "states": (STATE,)} if given.pop("linear", False) else {}
    llm = catalogue(given.pop("llm")) if "llm" in given else small(precision=precision, **layers)
    (note,) = beside(*apart, llm=llm, version=version, **given).notes
    assert said in note
    assert note.startswith("its own FLOPs" if apart[0] != 1.0 else "its own bytes read")


def sglang(flops: float, read: float, llm: LlmSpec = SMALL, **facts: Any) -> OwnEstimate:
    live = {name: text.replace("vllm", "sglang") for name, text in LIVE.items()}
    return beside(flops, read, llm, kind=EngineKind.SGLANG, live=live, **facts)


@pytest.mark.parametrize(
    ("llm", "facts", "ratio", "said"),
    [
        (SMALL, {"tp": 4, "gpu_count": 4}, 3.5, "does not divide the feed-forward layers"),
        (SMALL, {"pp": 2, "gpu_count": 2}, 2.0, "pipeline stages"),
        ("Qwen/Qwen3-30B-A3B", {}, 0.4, "mixture of experts"),
        (SMALL, {}, 0.7, "LM head"),
        (SMALL, {"prompts": 1.0, "extra": {q.PREFILL_CACHED: 900.0}}, 0.5, "prefix cache"),
        (SMALL, {}, 2.0, "reason not known"),
    ],
)
def test_sglangs_reasons(llm: LlmSpec | str, facts: dict[str, Any], ratio: float, said: str):
    own = sglang(ratio, 28.0, catalogue(llm) if isinstance(llm, str) else llm, **facts)
    (note,) = own.notes
    assert said in note


def test_the_bytes_that_sglang_says_it_read_are_never_used():
    own = sglang(1.0, 28.0)
    assert why(own.read_bytes_per_s) is why(own.read_bytes_ratio) is Reason.INVALID
    assert own.notes == ()


def test_a_wrapper_is_told_by_the_name_of_the_metric():
    live = {q.OWN_FLOPS: "ray_sglang_estimated_flops_per_gpu_total"}
    own = beside(1.0, 28.0, kind=EngineKind.RAY, live=live)
    assert why(own.read_bytes_ratio) is Reason.INVALID


def test_without_gpus_or_a_model_there_is_nothing_to_compare():
    def of(**facts: Any) -> OwnEstimate:
        counters = {q.OWN_FLOPS: 1e12, q.DECODE_TOKENS: 400.0, q.STEPS: 100.0}
        grown = lambda at_s: rank({name: at_s * rate for name, rate in counters.items()}, {q.RUNNING: 1.0})  # noqa: E731
        return only(after(lambda at_s: poll(at_s, grown(at_s), **facts))).efficiency.own

    assert why(of(gpu_type="", gpu_count=0).flops_per_s) is Reason.NO_GPU
    unknown = of(llm=None)
    assert there(unknown.flops_per_s) == pytest.approx(1e12)
    assert why(unknown.flops_ratio) is Reason.UNKNOWN_MODEL
    assert unknown.notes == ()


def test_an_engine_without_such_counters_has_none():
    assert only(after(steady({q.DECODE_TOKENS: 1.0}))).efficiency.own == OwnEstimate()
