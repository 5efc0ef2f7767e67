"""Engines that serve one model: sums, latencies by buckets, and which of them stands apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.quantiles import histogram_quantile, merge, merge_common
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, HistogramReading, Phase, Training
from gpumon.readings.missing import Reason
from gpumon.readings.snapshot import Replicas, Snapshot
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import INF, after, frame, gpu, observed, poll, rank, there, why
from tests.records import replace

Engine = Callable[[float], EngineReading]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BOUNDS = (0.1, 0.2, 0.5, 1.0, 2.0, INF)


def replica(name: str, decode: float = 100.0, model: str = MODEL, **facts: Any) -> Engine:
    """An engine with 4 requests and a steady TTFT; `gauges` and `seen` (latency -> (per second, value)) to change."""
    gauges = {q.RUNNING: 4.0, q.WAITING: 0.0, q.KV_USAGE: 0.4, q.USED_TOKENS: 400.0, **facts.pop("gauges", {})}
    seen: dict[str, tuple[float, float]] = {q.TTFT: (2.0, 0.15), q.ITL: (100.0, 0.04), **facts.pop("seen", {})}
    bounds = facts.pop("bounds", BOUNDS)

    def engine(at_s: float) -> EngineReading:
        counters = {q.DECODE_TOKENS: decode, q.PREFILL_COMPUTED: 50.0, q.REQUESTS: 2.0, q.STEPS: 25.0}
        histograms = {of: observed(at_s * per_s, value, bounds) for of, (per_s, value) in seen.items()}
        one = rank({of: at_s * per_s for of, per_s in counters.items()}, gauges, histograms)
        base = {"name": name, "url": f"http://{name}", "model": model, "exact_steps": True}
        return poll(at_s, one, **{**base, **facts})

    return engine


def group(snapshot: Snapshot) -> Replicas:
    (found,) = snapshot.replicas
    return found


# Groups and sums.


def test_two_engines_of_one_model_are_summed():
    found = group(after(replica("a"), replica("b", 300.0)))
    assert (found.model, found.engines, found.answering) == (MODEL, ("a", "b"), 2)
    assert there(found.decode_tokens_per_s) == pytest.approx(400.0)
    assert there(found.prefill_tokens_per_s) == pytest.approx(100.0)
    assert there(found.requests_per_s) == pytest.approx(4.0)
    assert (found.running, found.waiting, found.kv_usage_ratio) == (8.0, 0.0, pytest.approx(0.4))


def test_mfu_is_that_of_the_replicas_whose_gpus_are_known():
    alone = group(after(replica("a", gpu_count=1), replica("b", gpu_count=2)))
    nowhere = replica("c", gpu_type="", gpu_count=0)
    found = group(after(replica("a", gpu_count=1), replica("b", gpu_count=2), nowhere))
    assert (alone.mapped, found.mapped, found.answering) == (2, 2, 3)
    assert (found.mfu_ratio, found.mbu_ratio) == (alone.mfu_ratio, alone.mbu_ratio)
    assert there(found.decode_tokens_per_s) == pytest.approx(300.0)
    lost = group(after(nowhere, replica("d", gpu_type="", gpu_count=0)))
    assert (lost.mapped, why(lost.mfu_ratio), why(lost.mbu_ratio)) == (0, Reason.NO_GPU, Reason.NO_GPU)


def test_a_gpu_that_two_replicas_share_counts_once():
    deriver = Deriver(gpu_catalogue())
    shared = {"gpus": ("GPU-0",), "gpu_type": "", "gpu_count": 0}
    for at in range(0, 20, 2):
        engines = tuple(replica(name, **shared)(float(at)) for name in "ab")
        snapshot = deriver.derive(frame(at, (gpu(at_s=float(at)),), engines)).snapshot
    assert there(group(snapshot).mfu_ratio) == pytest.approx(there(snapshot.gpus[0].mfu_ratio))
    assert there(group(snapshot).mbu_ratio) == pytest.approx(there(snapshot.gpus[0].mbu_ratio))


@each_row(
    ("names", "together"),
    [
        ((MODEL, "llama-3.1-8b-instruct"), True),
        ((MODEL, "/models/Llama-3.1-8B-Instruct-FP8"), True),
        ((MODEL, "meta-llama/Llama-3.1-70B-Instruct"), False),
        ((MODEL, ""), False),
        (("", ""), False),
    ],
)
def test_one_model_goes_by_many_names(names: tuple[str, str], together: bool):
    assert bool(after(replica("a", model=names[0]), replica("b", model=names[1])).replicas) == together


def test_training_runs_and_frontends_are_no_replicas():
    runs = {"phase": Phase.TRAINING, "training": Training(1e9)}
    assert after(replica("a"), replica("b", **runs)).replicas == ()
    frontend = replica("front", 200.0, kind=EngineKind.DYNAMO)
    assert after(replica("a"), frontend).replicas == ()
    found = group(after(replica("a"), replica("b"), frontend))
    assert found.engines == ("a", "b")
    assert there(found.decode_tokens_per_s) == pytest.approx(200.0)
    alone = group(after(frontend, replica("other", kind=EngineKind.DYNAMO)))
    assert alone.engines == ("front", "other")


def down(engine: Engine, since_s: float = 0.0) -> Engine:
    return lambda at_s: replace(engine(at_s), state=EndpointState.REFUSED if at_s >= since_s else EndpointState.OK)


def test_one_that_does_not_answer_is_counted_and_not_summed():
    found = group(after(replica("a"), replica("b"), down(replica("c"), 10.0)))
    assert (found.engines, found.answering) == (("a", "b", "c"), 2)
    assert there(found.decode_tokens_per_s) == pytest.approx(200.0)
    nobody = group(after(down(replica("a")), down(replica("b"))))
    assert nobody.answering == 0
    readings = (nobody.decode_tokens_per_s, nobody.mfu_ratio, nobody.kv_usage_ratio, nobody.ttft_s.p50)
    assert {why(reading) for reading in readings} == {Reason.UNREACHABLE}


def test_one_that_does_not_tell_makes_the_sum_unknown():
    def silent(at_s: float) -> EngineReading:
        whole = replica("b")(at_s)
        (one,) = whole.ranks
        return replace(whole, ranks=(replace(one, gauges={}, histograms={}),))

    found = group(after(replica("a"), silent))
    assert why(found.running) is why(found.kv_usage_ratio) is why(found.ttft_s.p95) is Reason.NOT_EXPOSED
    assert there(found.decode_tokens_per_s) == pytest.approx(200.0)


# Latencies.


def test_latencies_are_those_of_all_requests():
    """300 requests in 0.15 s and 100 in 1.5 s: the median of all is the first, the p95 the second."""
    fast, slow = replica("a", seen={q.TTFT: (15.0, 0.15)}), replica("b", seen={q.TTFT: (5.0, 1.5)})
    found = group(after(fast, slow, seconds=22)).ttft_s
    assert (found.p50_low, found.p50_high) == (0.1, 0.2)
    assert (found.p95_low, found.p95_high) == (1.0, 2.0)
    assert there(found.mean) == pytest.approx((3 * 0.15 + 1.5) / 4)


def test_bounds_with_nothing_in_common_leave_the_mean():
    other = replica("b", bounds=(0.3, 0.7, 3.0, INF), seen={q.TTFT: (15.0, 0.45)})
    found = group(after(replica("a", seen={q.TTFT: (5.0, 0.15)}), other, seconds=22)).ttft_s
    assert why(found.p50) is why(found.p95_low) is Reason.NOT_SUPPORTED
    assert there(found.mean) == pytest.approx((0.15 + 3 * 0.45) / 4)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=6, max_size=6), min_size=1, max_size=5),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_merging_on_common_bounds_is_merging_where_all_are_common(counts: list[list[int]], share: float):
    histograms = []
    for each in counts:
        cumulative = tuple(float(sum(each[: at + 1])) for at in range(6))
        histograms.append(HistogramReading(BOUNDS, cumulative, cumulative[-1], cumulative[-1]))
    whole = merge(histograms)
    assert whole is not None
    assert merge_common(histograms) == whole
    coarser = [
        HistogramReading(one.bounds[1:], one.counts[1:], one.sum, one.count) if at % 2 else one
        for at, one in enumerate(histograms)
    ]
    common = merge_common(coarser)
    assert common is not None
    assert (common.count, common.sum, common.counts[-1]) == (whole.count, whole.sum, whole.counts[-1])
    if whole.count > 0 and histogram_quantile(whole, share)[0] > BOUNDS[1]:
        assert histogram_quantile(common, share)[0] == pytest.approx(histogram_quantile(whole, share)[0])
