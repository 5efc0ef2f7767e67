"""The same load seen at every interval: right figures, no gap, and windows that say how long they truly are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.readings.frame import MODEL_AWAITED, EngineReading, Frame, GpuReading, HistogramReading
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.quantities import DECODE_TOKENS, ITL, PREFILL_CACHED, PREFILL_COMPUTED, PROMPT_TOKENS, STEPS, TTFT
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import engine, frame, gpu
from tests.records import replace

RATE = 100.0
"""Tokens and steps a second."""
JITTER_S = (0.0, 0.013, -0.021, 0.034, -0.008)


def polled(at_s: float, every_s: float, ttft_s: float = 0.5) -> EngineReading:
    """The poll made `at_s` seconds after the engine's start."""
    tokens, prompts = at_s * RATE, at_s * 20
    counters = {
        DECODE_TOKENS: tokens,
        STEPS: tokens,
        PREFILL_COMPUTED: 20 * at_s,
        PREFILL_CACHED: 0.0,
        PROMPT_TOKENS: 20 * at_s,
    }
    histograms = {
        ITL: HistogramReading((0.01, 0.02, float("inf")), (0.0, tokens, tokens), tokens / RATE, tokens),
        TTFT: HistogramReading(
            (ttft_s / 2, ttft_s, float("inf")), (0.0, prompts, prompts), 0.7 * ttft_s * prompts, prompts
        ),
    }
    return engine(at_s, counters, histograms=histograms, interval_s=every_s)


def frames(
    spacing: Sequence[tuple[float, int]],
    every_s: float,
    phase_s: float = 0.9,
    ttft_s: float = 0.5,
    watts: float = 400.0,
) -> Iterator[Frame]:
    """Ticks of (interval, number), each with the newest poll of an engine asked every `every_s`."""
    now_s, number = 1000.0, 0
    for interval_s, count in spacing:
        for _ in range(count):
            at_s = now_s + JITTER_S[number % len(JITTER_S)] * min(1.0, interval_s)
            newest_s = (at_s - phase_s) // every_s * every_s + phase_s + JITTER_S[number % 3] / 10
            reading = polled(newest_s, every_s, ttft_s)
            shown = frame(at_s, (card(at_s, watts),), (reading,))
            yield replace(shown, interval_s=interval_s)
            now_s, number = now_s + interval_s, number + 1


def card(at_s: float, watts: float) -> GpuReading:
    return gpu(at_s=at_s, power_w=watts, energy_j=watts * at_s, dram_active_ratio=0.5, busy_ratio=0.25)


def derived(of: Iterator[Frame]) -> list[Derived]:
    deriver = Deriver(gpu_catalogue())
    return [deriver.derive(each) for each in of]


def check(found: Derived, interval_s: float) -> None:
    shown, card = found.snapshot.engines[0], found.snapshot.gpus[0]
    assert shown.rates.decode_tokens_per_s == pytest.approx(RATE, rel=1e-6)
    assert shown.rates.prefill_tokens_per_s == pytest.approx(20.0, rel=1e-6)
    assert shown.rates.steps_per_s == pytest.approx(RATE, rel=1e-6)
    assert shown.efficiency.tokens_per_j == pytest.approx(RATE / 400.0, rel=1e-6)
    assert 0.0 < shown.efficiency.mfu_ratio < shown.efficiency.mbu_ratio < 1.0
    for latency in (shown.latency.ttft_s, shown.latency.itl_s):
        assert not isinstance(latency.p50, Missing)
    assert card.mbu_ratio == shown.efficiency.mbu_ratio
    assert card.power_w == pytest.approx(400.0, rel=1e-6)
    assert card.busy_mean_ratio == pytest.approx(0.25)
    assert card.bandwidth_bytes_per_s == pytest.approx(0.5 * card.bandwidth_peak_bytes_per_s)
    for series in ("decode", "prefill", "mfu", "mbu", "bandwidth", "power", "running"):
        assert found.points[series] == found.points[series], (series, interval_s)


@each_row("own", [False, True], named=["polled every 2 s", "polled at the tick's interval"])
@each_row("interval_s", [0.25, 1.0, 2.5, 7.0, 10.0, 60.0, 3600.0])
def test_figures_are_right_at_every_interval(interval_s: float, own: bool) -> None:
    every_s = max(2.0, interval_s) if own else 2.0
    warm = 3 + round(2 * every_s / interval_s)
    for found in derived(frames([(interval_s, warm + 24)], every_s))[warm:]:
        check(found, interval_s)


@each_row("every_s", [5.0, 10.0, 30.0, 60.0])
def test_an_engine_that_is_polled_seldom_keeps_its_figures(every_s: float) -> None:
    for found in derived(frames([(1.0, 200)], every_s))[int(2 * every_s) + 3 :]:
        check(found, 1.0)


@each_row(
    "course",
    [(1.0, 10.0), (10.0, 1.0), (1.0, 60.0), (60.0, 1.0), (0.25, 5.0), (30.0, 0.25), (1.0, 5.0, 30.0, 60.0, 2.0)],
)
def test_a_changed_interval_blanks_nothing(course: tuple[float, ...]) -> None:
    spacing = [(interval_s, max(6, round(12 / interval_s))) for interval_s in course]
    warm = spacing[0][1] - 1
    for found in derived(frames(spacing, 2.0))[warm:]:
        check(found, found.snapshot.interval_s)


@each_row("interval_s", [1.0, 5.0, 10.0, 30.0])
def test_a_prefill_longer_than_the_window_does_not_flap(interval_s: float) -> None:
    spacing = [(interval_s, round(80 / interval_s) + 20)]
    for found in derived(frames(spacing, 2.0, ttft_s=25.0))[-18:]:
        assert found.snapshot.engines[0].rates.prefill_tokens_per_s == pytest.approx(20.0, rel=1e-6)


def test_a_model_that_is_looked_for_is_no_unknown_one() -> None:
    def shown(info: dict[str, str], gpus: tuple[str, ...]) -> tuple[object, ...]:
        deriver = Deriver(gpu_catalogue())
        for each in frames([(1.0, 20)], 2.0):
            engines = tuple(replace(one, llm=None, info=info, gpus=gpus) for one in each.engines)
            snapshot = deriver.derive(replace(each, engines=engines)).snapshot
        row, card = snapshot.engines[0], snapshot.gpus[0]
        found = (
            row.efficiency.mfu_ratio,
            row.efficiency.mbu_ratio,
            row.efficiency.flops_per_s,
            row.dimensions.params,
            row.dimensions.layers,
        )
        return (*found, card.mfu_ratio, card.flops_peak_per_s) if gpus else found

    for gpus in ((), ("GPU-0",)):
        assert set(shown({MODEL_AWAITED: ""}, gpus)) == {WARMING_UP}
        assert set(shown({"model_missing": "no row"}, gpus)) == {Missing(Reason.UNKNOWN_MODEL)}
