"""Tables keep their columns where they are, at every width and whatever the figures are."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles
from gpumon.tui import engine_table, gpu_table
from gpumon.tui.line import Row
from gpumon.tui.summary import summary
from gpumon.tui.table import unseen
from tests.tui import scenes

GPUS = [gpu for scene in scenes.SCENES.values() for gpu in scene().gpus]
ENGINES = [engine for scene in scenes.SCENES.values() for engine in scene().engines]
UP = [engine for engine in ENGINES if engine.state is EndpointState.OK]


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def tone_of(row: Row, part: str) -> str:
    return next(tone for piece, tone in row if part in piece)


@pytest.mark.parametrize("width", [80, 86, 100, 120, 160, 200, 300])
def test_a_wider_screen_adds_columns_and_moves_none(width: int) -> None:
    for gpu in GPUS:
        narrow, wide = text(gpu_table.row(gpu, 80)), text(gpu_table.row(gpu, width))
        assert cells(narrow) == 80
        assert wide.startswith(narrow)
        assert cells(wide) <= width
    for engine in UP:
        narrow, wide = text(engine_table.row(engine, 80)), text(engine_table.row(engine, width))
        assert cells(narrow) == 80
        assert wide.startswith(narrow)
        assert cells(wide) <= width
    assert text(gpu_table.head(width)).startswith(text(gpu_table.head(80)))
    assert text(engine_table.head(width)).startswith(text(engine_table.head(80)))


@pytest.mark.parametrize("width", [60, 66, 70, 76, 79])
def test_a_narrow_screen_leaves_out_whole_columns_and_names_them(width: int) -> None:
    for gpu in GPUS:
        assert cells(text(gpu_table.row(gpu, width))) <= width
    for engine in UP:
        assert cells(text(engine_table.row(engine, width))) <= width
    assert cells(text(gpu_table.head(width))) == cells(text(gpu_table.row(GPUS[0], width)))
    assert gpu_table.narrow(width)
    assert engine_table.narrow(width)


def test_the_fixed_order_of_what_a_wider_screen_adds() -> None:
    assert [column.title for column in gpu_table.EXTRA][:5] == ["limit", "tensor", "nvlink", "pcie", "tok/J"]
    assert [column.title for column in engine_table.EXTRA][:6] == [
        "e2e",
        "queue",
        "req/s",
        "version",
        "cached",
        "step/s",
    ]


@pytest.mark.parametrize(
    ("busy", "sm", "bar"),
    [
        (0.91, 0.64, "█████▒▒·"),
        (1.0, 1.0, "████████"),
        (0.99, 0.02, "█▒▒▒▒▒▒·"),
        (0.0, 0.0, "········"),
        (0.001, 0.0, "▒·······"),
        (0.5, Missing(Reason.NOT_SUPPORTED), "▒▒▒▒····"),
        (Missing(Reason.LOST), Missing(Reason.LOST), "········"),
    ],
)
def test_the_bar_shows_sm_activity_within_busy(busy: float | Missing, sm: float | Missing, bar: str) -> None:
    row = gpu_table.row(scenes.gpu(0, busy_ratio=busy, sm_active_ratio=sm), 80)
    assert text(row)[4:12] == bar


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (BandwidthSource.GPM, " 2.31T  69% m"),
        (BandwidthSource.DCGM, " 2.31T  69% m"),
        (BandwidthSource.ENGINE, "≥2.31T  69%  "),
        (BandwidthSource.UPPER_BOUND, "≤2.31T  69%  "),
    ],
)
def test_bandwidth_says_where_it_comes_from(source: BandwidthSource, shown: str) -> None:
    gpu = scenes.gpu(0, bandwidth_bytes_per_s=2.31e12, bandwidth_source=source)
    assert shown in text(gpu_table.row(gpu, 80))


@pytest.mark.parametrize(
    ("change", "word", "tone"),
    [
        ({}, "  ok", "muted"),
        ({"state": GpuState.LOST, "age_s": 14.2}, "✗ LOST 14s", "critical"),
        ({"state": GpuState.STALE, "age_s": 4.0}, "! STALE 4s", "warn"),
        ({"state": GpuState.STALE, "age_s": 3000.0}, "! STALE 50m", "warn"),
        ({"state": GpuState.INITIALISING}, "  starting", "muted"),
        ({"throttle": ("sw_power_cap",)}, "  power cap", "muted"),
        ({"throttle": ("sw_power_cap", "hw_thermal_slowdown")}, "! hot (hw)", "warn"),
        ({"throttle": ("applications_clocks_setting",)}, "  ok", "muted"),
        ({"xid": (31, 79), "throttle": ("hw_slowdown",)}, "! Xid 79", "warn"),
        ({"ecc_uncorrected": 0.0}, "  ok", "muted"),
        ({"remap_pending": 1.0}, "! row remap", "warn"),
        ({"vram_shared": True}, "  shared", "muted"),
    ],
)
def test_a_state_is_a_glyph_and_a_word(change: dict[str, object], word: str, tone: str) -> None:
    assert gpu_table.state(scenes.gpu(0, **change)) == (word, tone)


@pytest.mark.parametrize("state", GpuState)
def test_every_gpu_state_fits_its_column(state: GpuState) -> None:
    for age_s in (0.0, 59.0, 3.0e3, 8.0e4, 1.0e9):
        assert cells(text(gpu_table.row(scenes.gpu(0, state=state, age_s=age_s), 80))) == 80
        assert cells(gpu_table.state(scenes.gpu(0, state=state, age_s=age_s))[0]) <= 11


def test_a_lost_gpu_shows_no_figure() -> None:
    row = text(gpu_table.row(scenes.dead_gpu(7, GpuState.LOST, 14.0, scenes.LOST), 120))
    assert not any(character.isdigit() for character in row.replace("LOST 14s", "")[4:])


def test_more_than_100_percent_stands_out() -> None:
    row = gpu_table.row(scenes.gpu(0, mfu_ratio=1.04), 80)
    assert tone_of(row, "104%!") == "warn"
    row = engine_table.row(scenes.engine(0, mfu_ratio=1.04), 80)
    assert tone_of(row, "104%!") == "warn"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.NO_ENGINE, "no engine"),
        (Reason.UNKNOWN_MODEL, "unknown LLM"),
        (Reason.UNDER_MIG, "under MIG"),
        (Reason.WARMING_UP, "warming up"),
    ],
)
def test_why_there_is_no_efficiency_is_said_in_words(reason: Reason, words: str) -> None:
    missing = Missing(reason)
    assert words in text(gpu_table.row(scenes.gpu(0, mfu_ratio=missing, mbu_ratio=missing), 80))
    assert words in text(engine_table.row(scenes.engine(0, mfu_ratio=missing, mbu_ratio=missing), 80))


@pytest.mark.parametrize("state", [state for state in EndpointState if state is not EndpointState.OK])
def test_an_engine_that_does_not_answer_says_why(state: EndpointState) -> None:
    row = engine_table.row(scenes.engine(0, state=state, fault="the fix"), 80)
    assert text(row).startswith(" vllm:8000    Llama-3.3-70B  ")
    assert "the fix" in text(row)
    assert not any(word in text(row) for word in ("1.1k", "210m", "31%"))


def test_an_engine_that_went_stale_says_since_when() -> None:
    stale = Missing(Reason.STALE)
    fields: dict[str, object] = dict.fromkeys(
        ("running", "waiting", "mfu_ratio", "mbu_ratio", "decode_tokens_per_s"), stale
    )
    row = engine_table.row(scenes.engine(0, age_s=14.0, **fields), 80)
    assert "stale 14s" in text(row)
    assert cells(text(row)) == 80


def test_a_long_model_id_shows_its_last_part() -> None:
    engine: Engine = replace(scenes.engine(0), model="meta-llama/Llama-3.1-8B")
    assert " Llama-3.1-8B " in text(engine_table.row(engine, 80))
    assert "meta-llama/Llama-3.1-8B" in text(engine_table.row(engine, 200))


@pytest.mark.parametrize(("numbers", "shown"), [((), ""), ((0, 1, 2, 3), "0-3"), ((0, 2, 3, 6), "0 2-3 6")])
def test_runs_of_gpu_numbers_are_joined(numbers: tuple[int, ...], shown: str) -> None:
    assert engine_table.spans(numbers) == shown


def test_all_gpus_were_seen() -> None:
    assert {gpu.state for gpu in GPUS} >= {GpuState.OK, GpuState.LOST, GpuState.STALE, GpuState.RESET_REQUIRED}
    assert all(isinstance(gpu, Gpu) for gpu in GPUS)


def test_a_share_of_an_unverified_peak_is_marked() -> None:
    doubt = {"peak_unverified": True, "bandwidth_peak_unverified": True}
    known = text(gpu_table.row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, bandwidth_bytes_per_s=2.31e12), 80))
    shown = text(
        gpu_table.row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, bandwidth_bytes_per_s=2.31e12, **doubt), 80)
    )
    assert "2.31T  69% m   31%   62% " in known
    assert "2.31T  69% ?  31%?  62%? " in shown
    assert cells(shown) == 80
    one = text(gpu_table.row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, peak_unverified=True), 80))
    assert " m  31%?   62% " in one
    engine = text(engine_table.row(scenes.engine(0, mfu_ratio=1.0, mbu_ratio=1.04, **doubt), 80))
    assert engine.endswith(" 100%? 104%!")


def test_a_share_above_100_percent_keeps_its_mark_in_four_cells() -> None:
    row = gpu_table.row(scenes.gpu(0, bandwidth_bytes_per_s=1.04 * scenes.PEAK, bandwidth_peak_unverified=True), 80)
    assert " 104! m" in text(row)
    assert tone_of(row, "104!") == "warn"
    engine = engine_table.row(scenes.engine(0, kv_usage_ratio=1.5), 80)
    assert tone_of(engine, "150!") == "warn"


@pytest.mark.parametrize("reason", Reason)
def test_no_cell_is_cut(reason: Reason) -> None:
    missing = Missing(reason)
    gpu = scenes.gpu(0, **{name: missing for name in scenes.FIGURES if name != "vram_total_bytes"})
    fields = dict.fromkeys(("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "requests_per_s"), missing)
    latency = dict.fromkeys(("ttft_s", "itl_s", "e2e_s", "queue_s"), Quantiles(p95=missing))
    for row in (gpu_table.row(gpu, 120), engine_table.row(scenes.engine(0, **fields, **latency), 120)):
        assert not re.search(r"\w…", text(row))


def test_a_slice_has_no_number_of_its_own() -> None:
    row = text(gpu_table.row(scenes.gpu(1, parent_uuid="GPU-1", mig_profile="1g.10gb"), 80))
    assert row.startswith("  └ ")


def test_the_summary_counts_gpus_and_not_their_slices() -> None:
    parent = scenes.gpu(0, busy_ratio=0.5, mfu_ratio=0.5, power_w=500.0)
    part = scenes.gpu(0, busy_ratio=1.0, mfu_ratio=0.1, power_w=400.0, parent_uuid="GPU-0", state=GpuState.LOST)
    said = text(summary(replace(scenes.snapshot(), gpus=(parent, part, part)), 80, paused=False))
    assert said.startswith("1 GPU busy 50% mfu 50%")
    assert "500W" in said
    assert "DOWN" not in said


@pytest.mark.parametrize("value", [1e308, float("inf")])
def test_an_absurd_figure_costs_its_cell_only(value: float) -> None:
    figures = dict.fromkeys(("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "mfu_ratio"), value)
    engines = tuple(scenes.engine(at, **figures) for at in range(2))
    figures = dict.fromkeys(("busy_ratio", "mfu_ratio", "power_w", "bandwidth_bytes_per_s", "vram_used_bytes"), value)
    gpus = tuple(scenes.gpu(at, **figures) for at in range(2))
    assert cells(text(engine_table.row(engines[0], 80))) == 80
    assert cells(text(gpu_table.row(gpus[0], 80))) == 80
    said = text(summary(replace(scenes.snapshot(), gpus=gpus, engines=engines), 80, paused=False))
    assert said.startswith("2 GPU busy")


def test_columns_left_out_are_named_as_far_as_they_fit() -> None:
    names = gpu_table.left_out(80)
    assert names == tuple(column.title for column in gpu_table.EXTRA)
    assert unseen(names, 40) == "limit tensor nvlink +4: wider window"
    assert unseen(names, 10) == "+7: wider window"
    assert unseen(names, 90) == "limit tensor nvlink pcie tok/J clock engines: wider window"
    assert unseen((), 90) == ""
    assert gpu_table.left_out(60)[:3] == ("°C", "power", "vram")
    assert gpu_table.left_out(200) == ()
