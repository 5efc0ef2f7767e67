"""Whatever engines and GPUs report, triage judges it: it never fails, and what it says is whole and clean."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.frame import EndpointState, EngineKind, Phase
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Kind, Limit, Quantiles, TokensTotal
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.readings.verdict import Evidence
from gpumon.specs.llm import LlmSpec
from gpumon.triage.render import actions_text, evidence_text, signal_text, verdict_text
from gpumon.triage.triage import Triage
from tests.records import replace
from tests.triage.engines import BUSY, WORKS, scene
from tests.triage.stage import Of, Stage, engine, gpu

ODD = [0.0, 1e-300, 1e-9, 0.5, 1.0, 3.0, 24.0, 1e6, 1e18, 1e308, -1.0, float("nan"), float("inf"), float("-inf")]
READINGS = st.one_of(st.sampled_from(ODD), st.floats(0.0, 1.0), st.sampled_from([Missing(why) for why in Reason]))
LLM = LlmSpec("m", "test", 8e9, 8e9, 0.525e9, 128256, 4096, 32, 32, 8, 128, read_bytes=16e9)
FIGURES = (
    *(name for name, value in WORKS.items() if isinstance(value, float) and name not in ("tp", "ranks")),
    *(
        "weight_bytes",
        "kv_bytes_per_token",
        "weight_bytes_per_s",
        "bytes_per_s",
        "kv_bytes_per_s",
        "prompt_tokens_mean",
    ),
    *("answer_tokens_mean", "trained_tokens_per_s", "samples_per_s", "inferences_per_s"),
)
ENGINES = st.fixed_dictionaries(
    dict.fromkeys(FIGURES, READINGS),
    optional={
        "ttft_s": st.builds(Quantiles, mean=READINGS, p95=READINGS, p95_low=READINGS),
        "itl_s": st.builds(Quantiles, mean=READINGS, p95=READINGS),
        "queue_s": st.builds(Quantiles, mean=READINGS),
        "tokens_total": st.builds(TokensTotal, READINGS, READINGS, READINGS, READINGS),
        "llm": st.sampled_from([None, LLM]),
        "kv_precision": st.sampled_from(["", "bf16", "fp8"]),
        "uneven": st.sampled_from([(), (Evidence("rank_decode", 100.0, 400.0),)]),
    },
)
CARDS = st.fixed_dictionaries(
    dict.fromkeys(
        (
            *("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "bandwidth_bytes_per_s", "nvlink_bytes_per_s"),
            *("bandwidth_peak_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_generation", "pcie_width", "vram_used_bytes"),
        ),
        READINGS,
    ),
    optional={"bandwidth_source": st.sampled_from(BandwidthSource), "sm_clock_hz": READINGS},
)


@given(
    ENGINES,
    st.lists(CARDS, min_size=0, max_size=3),
    st.sampled_from(EngineKind),
    st.sampled_from(Phase),
    st.sampled_from([EndpointState.OK, EndpointState.OK, EndpointState.TIMEOUT, EndpointState.REFUSED]),
    READINGS.filter(lambda value: not isinstance(value, Missing)),
    st.integers(0, 8),
)
def test_no_reading_breaks_it_and_every_verdict_is_whole(
    figures: dict[str, Any],
    cards: list[dict[str, Any]],
    kind: EngineKind,
    phase: Phase,
    state: EndpointState,
    slots: float,
    tp: int,
) -> None:
    stage = Stage()
    stage.triage = Triage(prices={"": 2.0}, goals=Goals(0.5, 0.04, 10.0))
    gpus = tuple({**BUSY, **card} for card in cards)
    fields = {**figures, "tp": tp, "ranks": tp}
    for seconds in (1.0, 29.0, 40.0, 60.0, 200.0, 400.0):
        things = scene(fields, gpus, slots=slots, kind=kind, phase=phase, state=state, moves=False)(3)
        silent = replace(things[-1].shown, age_s=float(stage.at))
        last = stage.tick(*things[:-1], Of(things[-1].read, silent), seconds=seconds)
        for each in (each for each in last.verdicts if each.kind is Kind.ENGINE):
            assert verdict_text(each)
            assert each.evidence or each.unknown
            assert (each.code is Limit.UNKNOWN) == bool(each.unknown)
            for text in (
                verdict_text(each),
                actions_text(each),
                *(evidence_text(one) for one in each.evidence),
                *(signal_text(one) for one in each.unknown),
            ):
                assert "nan" not in text.split()
                assert "inf" not in text.split()
                assert clean(text, MOST_FAULT) == text


def test_engines_that_come_and_go_are_judged_anew() -> None:
    stage = Stage()
    both = (gpu(**BUSY), engine(**WORKS), engine(**{**WORKS, "url": "http://b", "name": "b"}))
    stage.play(60, both)
    assert {each.scope for each in stage.tick(*both).verdicts if each.kind is Kind.ENGINE} == {"vllm:8000", "b"}
    assert {each.scope for each in stage.tick(*both[:2]).verdicts if each.kind is Kind.ENGINE} == {"vllm:8000"}
    assert {each.scope for each in stage.tick(*both).verdicts if each.kind is Kind.ENGINE} == {"vllm:8000"}
