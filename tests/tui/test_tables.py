"""Tables show what there is in words and marks, whatever the figures are."""

from __future__ import annotations

import re

from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles
from gpumon.tui import gpu_table
from gpumon.tui.table import spans
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.painted import PLAIN, engine_row, gpu_row, text, tone_of
from tests.tui.running import running, text_of, until

GPUS = [gpu for scene in scenes.SCENES.values() for gpu in scene().gpus]
ENGINES = [engine for scene in scenes.SCENES.values() for engine in scene().engines]


@each_row(
    ("source", "shown"),
    [
        (BandwidthSource.GPM, "  2.3T  69%m"),
        (BandwidthSource.DCGM, "  2.3T  69%m"),
        (BandwidthSource.ENGINE, "≥2.3T  69% "),
        (BandwidthSource.ENGINE_MEAN, "~2.3T  69% "),
        (BandwidthSource.UPPER_BOUND, "≤2.3T  69% "),
    ],
)
def test_bandwidth_says_where_it_comes_from(source: BandwidthSource, shown: str) -> None:
    gpu = scenes.gpu(0, bandwidth_bytes_per_s=2.31e12, bandwidth_source=source)
    assert shown in text(gpu_row(gpu, 80))


@each_row(
    ("change", "word", "tone"),
    [
        ({}, "  ok", "muted"),
        ({"state": GpuState.LOST, "age_s": 14.2}, "✗ LOST 14s", "alarm"),
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
    assert gpu_table.gpu_state(scenes.gpu(0, **change)) == (word, tone)


@each_row("state", GpuState)
def test_every_gpu_state_fits_its_column(state: GpuState) -> None:
    for age_s in (0.0, 59.0, 3.0e3, 8.0e4, 1.0e9):
        assert cells(text(gpu_row(scenes.gpu(0, state=state, age_s=age_s), 80))) == 80
        assert cells(gpu_table.gpu_state(scenes.gpu(0, state=state, age_s=age_s))[0]) <= 11


def test_a_lost_gpu_shows_no_figure() -> None:
    row = text(gpu_row(scenes.dead_gpu(7, GpuState.LOST, 14.0, scenes.LOST), 120))
    assert not any(character.isdigit() for character in row.replace("LOST 14s", "")[4:])


def test_more_than_100_percent_stands_out() -> None:
    row = gpu_row(scenes.gpu(0, mfu_ratio=1.04), 80)
    assert tone_of(row, "104%!") == "warn"
    row = engine_row(scenes.engine(0, mfu_ratio=1.04), 80)
    assert tone_of(row, "104%!") == "warn"


BRIEF = {"unknown LLM": " LLM?"}
"""Words that do not fit into the ten cells of an engine's MFU and MBU."""


@each_row(
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
    assert words in text(gpu_row(scenes.gpu(0, mfu_ratio=missing, mbu_ratio=missing), 80))
    assert BRIEF.get(words, words) in text(engine_row(scenes.engine(0, mfu_ratio=missing, mbu_ratio=missing), 80))


@each_row("state", [state for state in EndpointState if state is not EndpointState.OK])
def test_an_engine_that_does_not_answer_says_why(state: EndpointState) -> None:
    row = engine_row(scenes.engine(0, state=state, fault="the fix"), 80)
    assert text(row).startswith(" vllm:8000    Llama…70B 0-3  ")
    assert "the fix" in text(row)
    assert not any(word in text(row) for word in ("1.1k", "210ms", "31%"))


def test_an_engine_that_went_stale_says_since_when() -> None:
    stale = Missing(Reason.STALE)
    fields: dict[str, object] = dict.fromkeys(
        ("running", "waiting", "mfu_ratio", "mbu_ratio", "decode_tokens_per_s"), stale
    )
    row = engine_row(scenes.engine(0, age_s=14.0, **fields))
    assert text(row).rstrip() == " vllm:8000    Llama…70B 0-3  ! STALE 14s"
    assert tone_of(row, "STALE") == "warn"


@each_row(
    ("since", "said"),
    [
        ("2025-10-09T08:50:22Z", "! REFUSED 3m  the fix"),
        ("2025-10-09T08:53:14.500Z", "! REFUSED 8s  the fix"),
        ("2025-10-09T11:53:22+02:00", "! REFUSED 0s  the fix"),
        ("", "! REFUSED  the fix"),
        ("not a time", "! REFUSED  the fix"),
    ],
)
def test_an_engine_that_is_down_says_since_when(since: str, said: str) -> None:
    row = engine_row(scenes.engine(0, state=EndpointState.REFUSED, fault="the fix", since=since))
    assert text(row).endswith(said)
    assert tone_of(row, "REFUSED") == "warn"


def test_a_long_model_id_shows_its_last_part() -> None:
    engine: Engine = replace(scenes.engine(0), model="meta-llama/Llama-3.1-8B", gpus=())
    assert " Llama-3.1-8B " in text(engine_row(engine, 80))
    assert "meta-llama/Llama-3.1-8B" in text(engine_row(engine, 200))


def test_a_model_is_called_the_same_whether_its_gpus_are_known_or_not() -> None:
    for gpus in ((0,), ()):
        assert " Qwen3-8B " in text(engine_row(replace(scenes.engine(0), model="Qwen/Qwen3-8B", gpus=gpus), 80))


def test_latencies_of_an_engine_without_a_token_are_of_the_past() -> None:
    for rate, tone in ((0.0, "muted"), (3.0, "text")):
        engine = scenes.engine(0, decode_tokens_per_s=rate, prefill_tokens_per_s=0.0)
        assert tone_of(engine_row(engine, 80), "210ms") == tone
        assert tone_of(engine_row(engine, 80), "24ms") == tone


@each_row(("numbers", "shown"), [((), ""), ((0, 1, 2, 3), "0-3"), ((0, 2, 3, 6), "0 2-3 6")])
def test_runs_of_gpu_numbers_are_joined(numbers: tuple[int, ...], shown: str) -> None:
    assert spans(numbers) == shown


def test_all_gpus_were_seen() -> None:
    assert {gpu.reading.state for gpu in GPUS} >= {GpuState.OK, GpuState.LOST, GpuState.STALE, GpuState.RESET_REQUIRED}
    assert all(isinstance(gpu, Gpu) for gpu in GPUS)


def test_a_share_of_an_unverified_peak_is_marked() -> None:
    doubt = {"peak_unverified": True, "bandwidth_peak_unverified": True}
    known = text(gpu_row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, bandwidth_bytes_per_s=2.31e12), 80))
    shown = text(gpu_row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, bandwidth_bytes_per_s=2.31e12, **doubt), 80))
    assert "2.3T  69%m   31%   62% " in known
    assert "2.3T  69%?  31%?  62%? " in shown
    assert cells(shown) == 80
    one = text(gpu_row(scenes.gpu(0, mfu_ratio=0.31, mbu_ratio=0.62, peak_unverified=True), 80))
    assert "%m  31%?   62% " in one
    engine = text(engine_row(scenes.engine(0, mfu_ratio=1.0, mbu_ratio=1.04, **doubt), 80))
    assert engine.endswith(" 100%?104%!")


def test_a_share_above_100_percent_keeps_its_mark_in_four_cells() -> None:
    row = gpu_row(scenes.gpu(0, bandwidth_bytes_per_s=1.04 * scenes.PEAK, bandwidth_peak_unverified=True), 80)
    assert " 104!m" in text(row)
    assert tone_of(row, "104!") == "warn"
    engine = engine_row(scenes.engine(0, kv_usage_ratio=1.5), 80)
    assert tone_of(engine, "150!") == "critical"


@each_row("reason", Reason)
def test_no_cell_is_cut(reason: Reason) -> None:
    missing = Missing(reason)
    gpu = scenes.gpu(0, **{name: missing for name in scenes.FIGURES if name != "vram_total_bytes"})
    fields = dict.fromkeys(("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "requests_per_s"), missing)
    latency = dict.fromkeys(("ttft_s", "itl_s", "e2e_s", "queue_s"), Quantiles(p95=missing))
    for row in (gpu_row(gpu, 120), engine_row(scenes.engine(0, model="m", **fields, **latency), 120)):
        assert not re.search(r"\w…", text(row))


UNDER_MIG = Missing(Reason.UNDER_MIG)
OF_GPU_ALONE = (
    "busy_ratio",
    "bandwidth_bytes_per_s",
    "mfu_ratio",
    "mbu_ratio",
    "power_w",
    "temperature_c",
    "power_limit_w",
)
"""Figures that a MIG slice does not have."""


def split_gpu(index: int, slices: int) -> tuple[Gpu, ...]:
    """A GPU with MIG slices, as the driver lists them."""
    per_slice = dict.fromkeys(
        ("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "mfu_ratio", "mbu_ratio"), UNDER_MIG
    )
    parent = scenes.gpu(index, **per_slice)
    without = dict.fromkeys(OF_GPU_ALONE, UNDER_MIG)
    parts = [
        scenes.gpu(index, uuid=f"MIG-{index}-{part}", parent_uuid=parent.reading.uuid, mig_profile="1g.10gb", **without)
        for part in range(slices)
    ]
    return (parent, *parts)


@each_row(("index", "first"), [(0, [" 0.0", " 0.1", " 0.6"]), (12, ["12.0", "12.1", "12.6"])])
def test_each_slice_has_its_own_number_and_its_profile(index: int, first: list[str]) -> None:
    gpus = (scenes.gpu(index + 1), *split_gpu(index, 7))
    rows = [text(gpu_table.gpu_row(gpu, 80, PLAIN, gpus=gpus)) for gpu in gpus]
    assert rows[1].startswith(f" {index:2} ")
    assert [rows[place][:4] for place in (2, 3, 8)] == first
    assert all(row.rstrip().endswith("1g.10gb") for row in rows[2:])
    assert len({row[:4] for row in rows}) == 9


def test_that_figures_are_not_known_under_mig_is_said_once_a_row() -> None:
    for gpu in split_gpu(0, 2):
        assert text(gpu_row(gpu, 200)).count("MIG") == 1


async def test_slices_are_told_apart_in_the_filter_and_on_the_rule() -> None:
    gpus = [*split_gpu(0, 3), scenes.gpu(1)]
    gpus[2] = replace(gpus[2], state=GpuState.LOST, age_s=14.0)
    async with running(Still(replace(scenes.snapshot(), gpus=tuple(gpus))), 80, 24) as (app, pilot):
        assert next(line for line in text_of(app) if "LOST" in line).startswith(" 0.1")
        await pilot.press("1", "slash", *"0.2", "enter")
        assert [line[:4] for line in text_of(app) if line[1:4] == "0.2"]
        await until(lambda: not any(line.startswith(" 0.1") for line in text_of(app)), pilot)


@each_row("value", [1e308, float("inf")])
def test_an_absurd_figure_costs_its_cell_only(value: float) -> None:
    figures = dict.fromkeys(("running", "waiting", "kv_usage_ratio", "decode_tokens_per_s", "mfu_ratio"), value)
    engines = tuple(scenes.engine(at, **figures) for at in range(2))
    figures = dict.fromkeys(("busy_ratio", "mfu_ratio", "power_w", "bandwidth_bytes_per_s", "vram_used_bytes"), value)
    gpus = tuple(scenes.gpu(at, **figures) for at in range(2))
    assert cells(text(engine_row(engines[0], 80))) == 80
    assert cells(text(gpu_row(gpus[0], 80))) == 80


def test_a_share_of_no_known_peak_has_three_digits_of_its_amount() -> None:
    known = scenes.gpu(0, bandwidth_bytes_per_s=2.312e12)
    assert "  2.3T  69%m" in text(gpu_row(known))
    assert " 2.31T     m" in text(gpu_row(replace(known, bandwidth_peak_bytes_per_s=Missing(Reason.UNKNOWN_GPU))))
    lost = replace(known, bandwidth_bytes_per_s=Missing(Reason.NO_PERMISSION), bandwidth_source=BandwidthSource.NONE)
    assert "  perm    – " in text(gpu_row(lost))


def test_other_quantiles_say_that_they_are_in_the_first_bucket() -> None:
    engine = scenes.engine(0, itl_s=Quantiles(p50=0.004, p95=0.02, p99=0.03, mean=0.01, first_bound_s=0.01))
    row = text(engine_row(engine, 300))
    assert "  <10ms    30ms" in row


def test_quantiles_in_the_last_bucket_are_told_as_least_values() -> None:
    """A histogram of TTFT that ends at 40 s: half of the requests took longer, by as much as nobody knows."""
    end = Missing(Reason.INVALID)
    ttft = {"p50": 40.0, "p95": 40.0, "p99": 40.0, "p90": 40.0, "p50_high": end, "p95_high": end, "p99_high": end}
    lows = dict.fromkeys(("p50_low", "p95_low", "p99_low"), 40.0)
    row = text(engine_row(scenes.engine(0, ttft_s=Quantiles(**ttft, **lows, mean=55.0, first_bound_s=0.01)), 300))
    assert " >40s" in row
    assert not re.search(r"(?<!>)\b40s", row), row


def test_an_engine_that_sleeps_says_so_in_place_of_its_figures() -> None:
    how = "weights in the host's memory (sleep level 1)"
    row = text(engine_row(scenes.engine(0, asleep=how), 120))
    assert "… asleep" in row
    assert how in row
    down = text(engine_row(scenes.engine(0, asleep=how, state=EndpointState.REFUSED, fault="is it running?"), 120))
    assert "REFUSED" in down
    assert "is it running?" in down
