"""The engines' own FLOPs and bytes beside gpumon's: on recordings, and by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.readings.missing import Reason
from gpumon.readings.snapshot import Engine, OwnEstimate
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from tests.accuracy.pages import Where, recorded, snapshots
from tests.efficiency.polls import INF, after, observed, only, poll, rank, there, why
from tests.efficiency.small_llm import SMALL
from tests.fakes.engine import CAPTURES

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
