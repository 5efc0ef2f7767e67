"""The figures of the detail page: their formulas by the numbers, and what is said of those that are missing."""

from __future__ import annotations

import math
import re
import time

import pytest
from msgspec.structs import fields

from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.format import DASH, bucket_text, cells
from gpumon.readings.frame import EngineKind, GpuProcess
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.prices import NO_ENERGY_PRICE
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles, TokensTotal
from gpumon.readings.verdict import Evidence
from gpumon.tui.detail import engine as engine_page
from gpumon.tui.detail import gpu as gpu_page
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Figure, Section, folded
from gpumon.tui.detail.why import Subject, make_explainer
from tests.each_row import each_row
from tests.tui import scenes
from tests.tui.detail_scenes import KV, NOW_S, VIEW, flat, full_engine, full_gpu, full_snapshot, page_of

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def number(text: str) -> float:
    """A figure as it is printed: `1.328 PFLOP/s`, `2,074.4 tok/s`, `69.500 billion`, `31.24%`, `3,000`."""
    found = re.fullmatch(r"([\d,.]+)(?: ?(billion|%|[kMGTP]?)(?:FLOP/s|FLOP/J|FLOP|B/s|B|tok/s|tok/J|/s|W)?)?", text)
    assert found, text
    scale = {"billion": 1e9, "%": 0.01}.get(found[2] or "", UNITS.get(found[2] or "", 1.0))
    return float(found[1].replace(",", "")) * scale


def evaluated(formula: str) -> float:
    """The value of a printed formula: its words are taken out, its figures put in."""
    for words in (
        " fp8 dense",
        "prefill ",
        "decode ",
        "weights ",
        "KV ",
        " per token on average",
        " sequences",
        " tokens",
    ):
        formula = formula.replace(words, "")
    formula = re.sub(r" attention over.*", "", formula).replace(" bytes", "").replace(" x ", " * ")
    printed = re.sub(
        r"[\d,.]+(?: (?:billion|%|[kMGTP]?(?:FLOP/s|FLOP/J|FLOP|B/s|B|tok/s|tok/J|W)|/s))?",
        lambda match: repr(number(match[0])),
        formula,
    )
    assert re.fullmatch(r"[\d.e+*/() -]+", printed), printed
    return float(eval(printed))


def figures_of(sections: list[Section]) -> dict[str, Figure]:
    return {each.name: each for section in sections for each in section.entries if isinstance(each, Figure)}


@each_row(
    "name",
    [
        "MFU",
        "MBU",
        "prefill FLOP/s",
        "decode FLOP/s",
        "FLOPs per token",
        "peak FLOP/s",
        "peak bandwidth",
        "weights B/s",
        "KV cache B/s",
        "tokens per joule",
        "FLOPs per joule",
        "batch",
    ],
)
def test_a_formula_gives_the_figure_that_it_stands_under(name: str) -> None:
    snapshot = full_snapshot()
    figure = figures_of(engine_page.sections(snapshot.engines[0], snapshot, VIEW))[name]
    value = number(f"{figure.number} {figure.unit}".replace(" seq", "").strip())
    assert evaluated(figure.formula) == pytest.approx(value, rel=2e-3)


def test_mfu_and_mbu_by_hand() -> None:
    """(8000 x 142 G + 1600 x 146.864 G) / (4 x 1978.9 T); (50 x 70.55 GB + 1600 x 983 MB) / (4 x 3.352 TB/s)."""
    text = flat(page_of(full_snapshot(), "engine", full_engine().url), 80)
    assert "MFU 17.32% derived" in text
    assert "= (prefill 1.136 PFLOP/s + decode 235.0 TFLOP/s) / (4 x 1.979 PFLOP/s fp8 dense)" in text
    assert "MBU 38.04% derived" in text
    assert "= (weights 3.527 TB/s + KV 1.573 TB/s) / (4 x 3.352 TB/s)" in text
    assert "single-stream form" not in text


def test_the_single_stream_form_stands_where_one_sequence_runs() -> None:
    engine = full_engine(batch=1.0)
    figure = figures_of(engine_page.sections(engine, full_snapshot(), VIEW))["single-stream form"]
    assert evaluated(figure.formula) == pytest.approx(number(f"{figure.number} {figure.unit}"), rel=2e-3)


def test_what_does_not_multiply_says_by_which_factor() -> None:
    windowed = full_engine(kv_bytes_per_s=KV / 2)
    figure = figures_of(engine_page.sections(windowed, full_snapshot(), VIEW))["KV cache B/s"]
    assert figure.formula.endswith(" x 0.500 (layers with a window read less)")
    speculating = full_engine(batch=16.0)
    assert (
        "/ 2.00 tokens per step"
        in figures_of(engine_page.sections(speculating, full_snapshot(), VIEW))["batch"].formula
    )
    sparse = full_engine(weight_bytes=13e9, batch=1.0)
    assert "as a step reads only the experts" in flat(page_of(full_snapshot(engines=(sparse,)), "engine", sparse.url))


def test_no_division_by_what_is_zero() -> None:
    nothing = {
        name: 0.0
        for name in flat_fields(Engine)
        if isinstance(value_of(full_engine(), name), float) and name != "age_s"
    }
    none = full_engine(**nothing)
    zeros = {
        name: 0.0 for name in flat_fields(Gpu) if isinstance(value_of(full_gpu(), name), float) and name != "age_s"
    }
    snapshot = full_snapshot(engines=(none,), gpus=(full_gpu(**zeros),))
    assert "MFU 0.00%" in flat(page_of(snapshot, "engine", none.url))
    assert "busy 0.00%" in flat(page_of(snapshot, "gpu", snapshot.gpus[0].reading.uuid))


# --- what is missing --------------------------------------------------------------------------------------------------


@each_row("reason", Reason)
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    names = {name for kind in (Gpu, Engine, GpuProcess) for name in flat_fields(kind)} | {""}
    for name in names:
        why = make_explainer(Subject(gpu=3, url="http://h:1", gpus_source="no process"))(Missing(reason), name)
        assert len(why.sentence) > 15
        assert "{" not in why.sentence + why.todo


@each_row(
    ("reason", "field", "fix"),
    [
        (Reason.UNKNOWN_MODEL, "mfu_ratio", "`gpumon doctor` prints the [[model]] lines"),
        (Reason.NO_GPU, "mfu_ratio", 'url = "http://h:1"): gpus = [0, 1]'),
        (Reason.NO_CONTEXT, "mbu_ratio", "context_tokens = 2000"),
        (Reason.UNMAPPED, "mfu_ratio", "gpus = [3]"),
        (Reason.NO_ENGINE, "mfu_ratio", "gpumon --endpoint http://"),
        (Reason.NO_PERMISSION, "sm_active_ratio", "NVreg_RestrictProfilingToAdminUsers=0"),
        (Reason.NOT_EXPOSED, "itl_s", "--disable-log-stats"),
        (Reason.NOT_EXPOSED, "steps_per_s", "--api-server-count"),
    ],
)
def test_what_to_do_names_the_exact_line(reason: Reason, field: str, fix: str) -> None:
    assert fix in make_explainer(Subject(gpu=3, url="http://h:1", kind=EngineKind.VLLM))(Missing(reason), field).todo


@each_row("reason", Reason)
def test_nothing_prints_a_figure_for_what_is_missing(reason: Reason) -> None:
    gone = Missing(reason)
    engine = full_engine(
        **{
            name: gone
            for name in flat_fields(Engine)
            if isinstance(value_of(full_engine(), name), float | Missing) and name != "age_s"
        },
        **dict.fromkeys(("ttft_s", "itl_s", "queue_s", "e2e_s"), Quantiles(*[gone] * len(fields(Quantiles)))),
        tokens_total=TokensTotal(gone, gone, gone),
    )
    gpu = full_gpu(
        **{
            name: gone
            for name in flat_fields(Gpu)
            if isinstance(value_of(full_gpu(), name), float | Missing) and name != "age_s"
        },
        throttle_s={},
    )
    snapshot = full_snapshot(gpus=(gpu,), engines=(engine,))
    for sections in (engine_page.sections(engine, snapshot, VIEW), gpu_page.sections(gpu, snapshot, VIEW, None)):
        figures = figures_of(sections)
        assert len(figures) > 25
        for figure in figures.values():
            assert figure.why is not None
            assert (figure.number, figure.formula) == (DASH, "")
            assert not re.search(r"\d", figure.unit)
    for kind, key in (("gpu", gpu.reading.uuid), ("engine", engine.url)):
        text = flat(page_of(snapshot, kind, key))
        assert not re.search(r"\b0(\.0+)? (%|W|tok/s|MHz|GiB|s)\b", text)
    if reason in (Reason.LOST, Reason.STALE, Reason.UNREACHABLE):
        said = make_explainer(Subject())(gone, "running").sentence
        assert flat(page_of(snapshot, "engine", engine.url)).count(said) == 1


def test_a_reason_of_its_own_is_shown_cleaned() -> None:
    why = Missing(Reason.NOT_SUPPORTED, "GPM does not work inside a vGPU\x1b[31m")
    text = flat(page_of(full_snapshot(gpus=(full_gpu(sm_active_ratio=why),)), "gpu", full_gpu().reading.uuid))
    assert "? SM active: GPM does not work inside a vGPU\\x1b[31m" in text


def test_few_observations_leave_the_mean() -> None:
    few = Missing(Reason.FEW)
    engine = full_engine(ttft_s=Quantiles(few, few, few, 0.15, few, few, 0.001, few, few, few, few))
    text = flat(page_of(full_snapshot(engines=(engine,)), "engine", engine.url))
    assert "TTFT 150.0 ms few few few" in text
    assert "? TTFT p50, TTFT p95, TTFT p99: fewer than 20 observations in 60 s" in text


# --- single parts -----------------------------------------------------------------------------------------------------


def test_buckets_of_quantiles() -> None:
    assert bucket_text(0.025, 0.05) == "25–50 ms"
    assert bucket_text(5.0, 10.0) == "5–10 s"
    assert bucket_text(0.75, 1.0) == "0.75–1 s"
    assert bucket_text(0.0, 0.3) == "below 300 ms"
    assert bucket_text(40.0, Missing(Reason.INVALID)) == "above 40 s"
    assert bucket_text(Missing(Reason.FEW), Missing(Reason.FEW)) == ""
    text = flat(page_of(full_snapshot(), "engine", full_engine().url))
    assert "TTFT 150.0 ms 140.0 ms 210.0 ms 400.0 ms buckets p50 100–250 ms · p95 100–250 ms · p99 250–500 ms" in text
    assert "queue 50.00 ms <300 ms <300 ms <300 ms" in text
    assert "p99 above 40 s" in text


def test_long_names_break_behind_their_marks() -> None:
    name = "vllm:prompt_tokens_by_source_total"
    assert "".join(folded(name, 24)) == name
    assert folded(name, 24)[0] == "vllm:prompt_tokens_by_"
    assert folded("", 10) == ("",)
    assert folded("busy for 62% of it", 11) == ("busy for", "62% of it")
    assert all(cells(line) <= 5 for line in folded("日本語日本語", 5))


def test_memory_that_is_held_is_explained() -> None:
    none = dict.fromkeys(("mfu_ratio", "mbu_ratio"), Missing(Reason.NO_ENGINE))
    gpu = full_gpu(busy_ratio=0.0, busy_window_ratio=0.0, engines=(), processes=(), **none)
    held = "! VRAM held: no engine is known on it and it is below 1% busy, but the memory is not free"
    assert held in flat(page_of(full_snapshot(gpus=(gpu,)), "gpu", gpu.reading.uuid))
    between = full_gpu(busy_ratio=0.0, busy_window_ratio=0.6, engines=(), processes=(), **none)
    assert "! VRAM held" not in flat(page_of(full_snapshot(gpus=(between,)), "gpu", gpu.reading.uuid)), (
        "a sample between two kernels of a program is no proof that nothing runs"
    )
    served = full_gpu(busy_ratio=0.0)
    assert "! VRAM held" not in flat(page_of(full_snapshot(gpus=(served,)), "gpu", served.reading.uuid))


def test_a_gpu_on_which_nothing_ran_is_idle_and_no_gap() -> None:
    idle = full_gpu(busy_ratio=0.0, sm_active_ratio=0.0)
    text = flat(page_of(full_snapshot(gpus=(idle,)), "gpu", idle.reading.uuid))
    assert "idle: no kernel ran" in text
    assert "a kernel ran 0%" not in text


def test_a_narrow_link_and_a_slow_one_are_told_apart() -> None:
    text = flat(page_of(full_snapshot(), "gpu", full_gpu().reading.uuid))
    assert "! x8 of x16 lanes" in text
    assert "generation 1 of 5: an idle GPU trains its link down" in text
    wide = full_gpu(pcie_width=16.0, pcie_generation=5.0)
    text = flat(page_of(full_snapshot(gpus=(wide,)), "gpu", wide.reading.uuid))
    assert "lanes:" not in text
    assert "trains its link down" not in text.replace("idle GPUs train the link down", "")


def test_the_sum_over_the_engines_of_a_gpu() -> None:
    second = full_engine(name="other:1", url="http://127.0.0.1:1", mfu_ratio=0.02, gpus=(0,))
    gpu = full_gpu(engines=("vllm:8000", "other:1"))
    text = flat(page_of(full_snapshot(gpus=(gpu,), engines=(full_engine(), second)), "gpu", gpu.reading.uuid))
    assert "= vllm:8000 17.32% + other:1 2.00%" in text


def test_what_is_no_rate_has_no_unit_of_one_and_what_is_looked_up_is_no_estimate() -> None:
    engine = full_engine(tokens_per_step=2.5, model_source="catalogue: some-model")
    text = flat(page_of(full_snapshot(engines=(engine,)), "engine", engine.url))
    assert re.search(r"tokens per step +2\.50 tok +", text)
    assert re.search(r"parameters +[\d.]+ billion +catalogue", text)


def test_mbu_is_held_against_what_the_gpus_measure() -> None:
    url = full_engine().url
    assert "✓ MBU 38.04%, and its GPUs measure" in flat(page_of(full_snapshot(), "engine", url))
    little = flat(page_of(full_snapshot(engines=(full_engine(mbu_ratio=0.2),)), "engine", url))
    assert "MBU 20.00%, and its GPUs measure 70.43% of their peak memory bandwidth: only an upper bound" in little
    assert "✓" not in little
    wrong = full_snapshot(engines=(full_engine(mbu_ratio=1.2),))
    text = flat(page_of(wrong, "engine", url))
    assert "MBU 120.00%!, and its GPUs measure 70.43% of their peak memory bandwidth: caches may explain that" in text
    assert "! MBU 120.00%!, and its GPUs" not in text
    lasting = full_snapshot(
        engines=(full_engine(mbu_ratio=1.2, contradicts=(Evidence("mbu_beside_measured", 1.2, 0.6),)),)
    )
    assert "! MBU 120.00%!, and its GPUs measure 70.43%" in flat(page_of(lasting, "engine", url))
    assert "! above 100%: steps, the bytes of the model or the peak are wrong" in text
    modelled = tuple(full_gpu(index, bandwidth_source=BandwidthSource.ENGINE) for index in range(4))
    assert "and its GPUs measure" not in flat(page_of(full_snapshot(gpus=modelled), "engine", url))


def test_the_mbu_of_several_engines_together_is_held_against_what_their_gpus_measure() -> None:
    def text(own: float, together: float) -> str:
        measured = {"bandwidth_bytes_per_s": 0.4 * 3.352e12, "bandwidth_peak_bytes_per_s": 3.352e12}
        gpus = tuple(full_gpu(at, engines=("a", "b"), mbu_ratio=together, **measured) for at in range(4))
        engine = full_engine(mbu_ratio=own)
        return flat(page_of(full_snapshot(gpus=gpus, engines=(engine,)), "engine", engine.url))

    assert "✓ MBU of all engines on its GPUs 38.00%, and its GPUs measure 40.00%" in text(0.2, 0.38)
    assert "45.00%, and its GPUs measure 40.00% of their peak memory bandwidth: about the same" in text(0.2, 0.45)
    assert "! MBU of all engines on its GPUs 80.00%, and its GPUs measure 40.00%" in text(0.2, 0.8)


def test_a_process_on_several_gpus() -> None:
    def on(index: int, share: float) -> Gpu:
        return full_gpu(
            index,
            processes=(GpuProcess(77, "python", "bob", 10 * scenes.GIB, command="python train.py", sm_ratio=share),),
        )

    page = page_of(full_snapshot(gpus=(on(0, 0.5), on(1, 0.25))), "process", "77")
    text = flat(page)
    assert page.title() == "process 77 · python"
    assert "GPU 0 VRAM 10.00 GiB" in text
    assert "GPU 1 SM share 25.00%" in text
    assert "20.00 GiB on 2 GPUs together" in text
    assert "command python train.py" in text


def test_age_and_units() -> None:
    assert values.duration_text(0.44) == "0.4 s"
    assert values.duration_text(14.2) == "14 s"
    assert values.duration_text(600.0) == "10 min"
    assert values.duration_text(9000.0) == "2.5 h"
    assert values.duration_text(4 * 86400.0) == "4 days"
    assert values.shown_time_of_rfc3339("no time", NOW_S) is None
    moment = values.shown_time(NOW_S - 3 * 86400.0, NOW_S)
    assert moment.clock == time.strftime("%d %b %H:%M", time.localtime(NOW_S - 3 * 86400.0))
    assert math.isclose(moment.ago_s, 3 * 86400.0)


def test_what_only_some_engines_have_stands_on_their_pages_alone() -> None:
    names = (
        "deferred",
        "held by its router",
        "turned away",
        "KV stored",
        "KV loaded",
        "KV transferred",
        "TPOT",
    )
    plain = flat(page_of(full_snapshot(engines=(full_engine(),)), "engine", full_engine().key))
    assert not [name for name in names if name in plain]
    engine = full_engine(
        waiting_deferred=3.0, router_queue=2.0, rejections_per_s=1.5, tpot_s=Quantiles(mean=0.02, p50=0.02),
        kv_stored_bytes_per_s=3e9, kv_loaded_bytes_per_s=1e9, kv_transferred_bytes_per_s=5e8,
        kv_transfer_failures_per_s=0.1, asleep="weights in the host's memory (sleep level 1)",
    )  # fmt: skip
    shown = flat(page_of(full_snapshot(engines=(engine,)), "engine", engine.key))
    assert [name for name in names if name not in shown] == []
    assert "3.000 GB/s" in shown
    assert "… asleep" in shown
    assert "sleep level 1" in shown


def test_a_price_makes_figures_of_costs_and_without_one_the_page_says_how_to_give_one() -> None:
    priced = full_gpu(cost_per_hour=3.6, unused_s=1800.0, unused_cost=1.8, energy_j=7.2e6, energy_cost=0.5)
    lines = flat(page_of(full_snapshot(gpus=(priced,)), "gpu", priced.reading.uuid))
    cost = lines[lines.index("cost") :]
    for figure in ("3.60 per h", "0.50 h", "= 3.60 per h x 0.50 h", "2.000 kWh", "in your currency"):
        assert figure in cost, figure
    without_kwh = full_gpu(cost_per_hour=3.6, energy_cost=NO_ENERGY_PRICE)
    assert "set kwh of [prices] in the config" in flat(
        page_of(full_snapshot(gpus=(without_kwh,)), "gpu", priced.reading.uuid)
    )
    served = full_engine(cost_per_hour=7.2, cost_per_million_output_tokens=1.25, cost_per_million_all_tokens=0.5)
    page = flat(page_of(full_snapshot(engines=(served,)), "engine", served.key))
    assert "per 1M output" in page
    assert "1.25" in page[page.index("per 1M output") :]
    free = full_gpu()
    page = flat(page_of(full_snapshot(gpus=(free,)), "gpu", free.reading.uuid))
    assert "unused time" not in page
    assert "no price: set gpu_hour and kwh of [prices] in the config" in page
