"""What is above a level or a goal has a mark and a tone, and its digits stand still."""

from __future__ import annotations

import re
from typing import Any

from gpumon.config.schema import Goals, Levels
from gpumon.readings.catalogue import FIGURES_BY_RECORD
from gpumon.readings.columns import TextColumn
from gpumon.readings.format import DASH, cells, ratio
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Quantiles
from gpumon.tui import gpu_table
from gpumon.tui.host_line import host_line
from gpumon.tui.levels import LEVEL_BOUNDS
from gpumon.tui.table import text_column
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.painted import PLAIN, engine_row, gpu_row, process, seen, text, tone_of


@each_row(
    ("change", "cell", "tone"),
    [
        ({"temperature_c": 82.9}, "  83  ", "text"),
        ({"temperature_c": 83.0}, "  83! ", "warn"),
        ({"temperature_c": 90.0}, "  90! ", "critical"),
        ({"vram_used_bytes": 0.94 * 80 * scenes.GIB}, " 75.2 ", "text"),
        ({"vram_used_bytes": 0.95 * 80 * scenes.GIB}, " 76.0!", "warn"),
        ({"vram_used_bytes": 0.995 * 80 * scenes.GIB}, " 79.6!", "critical"),
        ({"power_w": 600.0, "power_limit_w": 700.0}, " 600W  ", "text"),
        ({"power_w": 699.0, "power_limit_w": 700.0}, " 699W! ", "warn"),
        ({"power_w": 699.0, "power_limit_w": Missing(Reason.NOT_SUPPORTED)}, " 699W  ", "text"),
    ],
)
def test_a_figure_of_a_gpu_above_its_level_has_a_mark_and_a_tone(
    change: dict[str, float], cell: str, tone: str
) -> None:
    gpu = scenes.gpu(0, **({"vram_total_bytes": 80 * scenes.GIB} | change))
    row = gpu_row(gpu)
    assert cell in text(row)
    assert tone_of(row, cell.strip()) == tone
    plain = text(gpu_row(scenes.gpu(0, **({"vram_total_bytes": 80 * scenes.GIB} | change)), 80, seen(levels=Levels())))
    assert [plain.index(mark) for mark in ("W", "m ")] == [text(gpu_row(scenes.gpu(0))).index(m) for m in ("W", "m ")]


@each_row(
    ("change", "cell", "tone"),
    [
        ({"kv_usage_ratio": 0.89}, "  89%", "text"),
        ({"kv_usage_ratio": 0.93}, " 93%!", "warn"),
        ({"kv_usage_ratio": 1.0}, " 100!", "critical"),
        ({"waiting": 0.0}, "    0", "text"),
        ({"waiting": 2.0}, "   2!", "warn"),
        ({"waiting": 999.0}, " 999!", "warn"),
        ({"waiting": 1240.0}, "  1k!", "warn"),
        ({"waiting": 240_000.0}, " >9k!", "warn"),
        ({"ttft_s": Quantiles(p95=0.999)}, " 999ms ", "text"),
        ({"ttft_s": Quantiles(p95=1.2)}, "  1.2s!", "warn"),
        ({"ttft_s": Quantiles(p95=2.1)}, "  2.1s!", "critical"),
        ({"itl_s": Quantiles(p95=0.041)}, "  41ms!", "warn"),
        ({"itl_s": Quantiles(p95=0.141)}, " 141ms!", "critical"),
        ({"itl_s": Quantiles(p95=0.5, p95_high=Missing(Reason.INVALID))}, ">500ms!", "critical"),
        ({"itl_s": Quantiles(p95=0.05, first_bound_s=0.06)}, " <60ms ", "text"),
        ({"itl_s": Quantiles(p95=Missing(Reason.FEW), mean=0.05)}, " ~50ms ", "text"),
    ],
)
def test_a_figure_of_an_engine_above_its_level_or_goal_has_a_mark_and_a_tone(
    change: dict[str, Any], cell: str, tone: str
) -> None:
    view = seen(goals=Goals(ttft_p95_ms=1000.0, itl_p95_ms=40.0))
    row = engine_row(scenes.engine(0, **({"waiting": 0.0} | change)), 80, view)
    assert cell in text(row)
    assert any(piece == cell and shown == tone for piece, shown in row) or tone == "text"
    assert cells(text(row)) == 80


def test_without_goals_latencies_are_held_against_where_users_wait() -> None:
    slow, fast = Quantiles(p95=3.0), Quantiles(p95=0.19)
    row = engine_row(scenes.engine(0, ttft_s=slow, itl_s=fast, e2e_s=Quantiles(p95=30.0)), 200)
    assert ("  3.0s!", "warn") in row
    assert any(piece.strip() == "190ms" and tone == "text" for piece, tone in row)
    assert "30s!" not in text(row), "how long an answer takes is its own matter"
    late = seen(goals=Goals(e2e_p95_ms=20_000.0))
    assert "30s!" in text(engine_row(scenes.engine(0, e2e_s=Quantiles(p95=30.0)), 200, late))


def test_gaps_between_the_tokens_of_answers_that_nobody_reads_along_have_a_level_by_their_goal_alone() -> None:
    """Triage counts them as late by a goal alone: `250ms!` stood beside `no problem found`."""
    gaps = Quantiles(p95=0.25)
    score = engine_row(scenes.engine(0, itl_s=gaps, answer_tokens_mean=4.0), 200)
    assert "250ms " in text(score)
    assert "250ms!" in text(engine_row(scenes.engine(0, itl_s=gaps, answer_tokens_mean=240.0), 200))
    with_goal = seen(goals=Goals(itl_p95_ms=100.0))
    assert "250ms!" in text(engine_row(scenes.engine(0, itl_s=gaps, answer_tokens_mean=4.0), 200, with_goal))


def test_what_is_measured_less_often_than_its_row_is_dim() -> None:
    for age_s, source, tones in (
        (2.0, BandwidthSource.DCGM, ("text", "text")),
        (9.0, BandwidthSource.DCGM, ("muted", "muted")),
        (9.0, BandwidthSource.ENGINE, ("muted", "text")),
    ):
        row = gpu_row(scenes.gpu(0, activity_age_s=age_s, bandwidth_source=source, sm_active_ratio=0.61))
        assert (tone_of(row, "61%"), tone_of(row, "2.3T")) == tones
        assert tone_of(row, "93%") == "text"


def test_each_level_that_a_figure_names_has_bounds() -> None:
    named = {row.level for rows in FIGURES_BY_RECORD.values() for row in rows.values() if row.level}
    assert "temperature" in named
    assert named <= set(LEVEL_BOUNDS), "each has a row of LEVEL_BOUNDS in gpumon/tui/levels.py"


def test_every_level_is_warm_before_it_is_hot() -> None:
    for of in LEVEL_BOUNDS.values():
        found = of(PLAIN)
        assert 0.0 < found.warm < found.hot


def test_the_host_stands_in_a_line_as_far_as_it_has_room() -> None:
    host = replace(
        scenes.snapshot().host, cpu_ratio=0.41, busiest_core_ratio=1.0, memory_used_bytes=500e9,
        memory_total_bytes=512e9, iowait_ratio=0.12, disk_busy_ratio=0.05,
        network_rx_bytes_per_s=1e6, network_tx_bytes_per_s=2e6,
    )  # fmt: skip
    pieces = host_line(host, PLAIN, 100)
    assert text(pieces) == "host cpu 41%  core 100%!  ram 466/477 GiB!  iowait 12%!  disk 5%  net 3.00M/s"
    assert {piece: tone for piece, tone in pieces if "!" in piece} == {
        "100%!": "warn", "466/477 GiB!": "critical", "12%!": "warn",
    }  # fmt: skip
    assert text(host_line(host, PLAIN, 30)) == "host cpu 41%  core 100%!"
    unread = replace(host, **dict.fromkeys(("cpu_ratio", "busiest_core_ratio", "iowait_ratio"), Missing(Reason.LOST)))
    assert text(host_line(unread, PLAIN, 30)) == "host ram 466/477 GiB!  disk 5%"


NONE = Missing(Reason.NO_ENGINE)
HELD: dict[str, Any] = {
    "busy_ratio": 0.0,
    "vram_used_bytes": 38e9,
    "vram_total_bytes": 80e9,
    "engines": (),
    "processes": (process(engine=""),),
    "mfu_ratio": NONE,
    "mbu_ratio": NONE,
}
"""Nothing runs, but a process that is no engine's holds memory."""


@each_row(
    ("change", "word", "tone"),
    [
        ({"busy_ratio": 0.9, "mfu_ratio": 0.02, "mbu_ratio": 0.05}, "  low eff.", "muted"),
        ({"busy_ratio": 0.5, "mfu_ratio": 0.02, "mbu_ratio": 0.05}, "  low eff.", "muted"),
        ({"busy_ratio": 0.49, "mfu_ratio": 0.02, "mbu_ratio": 0.05}, "  ok", "muted"),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.02, "mbu_ratio": 0.1}, "  ok", "muted"),
        ({"busy_ratio": 0.9, "mfu_ratio": NONE, "mbu_ratio": NONE}, "  ok", "muted"),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.02, "mbu_ratio": NONE}, "  ok", "muted"),
        ({"busy_ratio": 1.0, "mfu_ratio": 0.0, "mbu_ratio": 0.0, "tensor_active_ratio": 0.83}, "  ok", "muted"),
        ({"busy_ratio": 0.009}, "  idle", "muted"),
        (HELD, "+ VRAM held", "note"),
        (HELD | {"busy_ratio": 0.01}, "  ok", "muted"),
        (HELD | {"vram_used_bytes": 0.05 * 80e9}, "  idle", "muted"),
        (HELD | {"vram_used_bytes": NONE}, "  idle", "muted"),
        (HELD | {"engines": ("vllm:8000",)}, "  idle", "muted"),
        (HELD | {"processes": (process(engine="vllm:8000"),)}, "  idle", "muted"),
        (HELD | {"mfu_ratio": Missing(Reason.UNMAPPED)}, "  idle", "muted"),
        (HELD | {"vram_shared": True}, "  shared", "muted"),
        (HELD | {"mig_profile": "1g.10gb"}, "  1g.10gb", "muted"),
        (HELD | {"xid": (79,)}, "! Xid 79", "warn"),
        ({"busy_ratio": 0.01}, "  ok", "muted"),
        ({"busy_ratio": Missing(Reason.NOT_SUPPORTED)}, "  ok", "muted"),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.0, "mbu_ratio": 0.0, "xid": (79,)}, "! Xid 79", "warn"),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.0, "mbu_ratio": 0.0, "throttle": ("hw_slowdown",)}, "! slowdown", "warn"),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.0, "mbu_ratio": 0.0, "vram_shared": True}, "  low eff.", "muted"),
    ],
)
def test_a_gpu_that_does_little_says_so(change: dict[str, Any], word: str, tone: str) -> None:
    assert gpu_table.gpu_state(scenes.gpu(0, **change)) == (word, tone)


def test_low_use_is_what_the_settings_say() -> None:
    gpu = scenes.gpu(0, busy_ratio=0.3, mfu_ratio=0.2, mbu_ratio=0.2)
    assert gpu_table.gpu_state(gpu)[0] == "  ok"
    assert gpu_table.gpu_state(gpu, Levels(low_use=0.3, low_use_busy=0.3))[0] == "  low eff."
    assert "  low eff." in text(gpu_row(gpu, 80, seen(levels=Levels(low_use=0.3, low_use_busy=0.3))))


@each_row("figure", ["decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s"])
@each_row("size", [9.0, 40.0, 400.0, 4_000.0, 40_000.0])
def test_digits_stand_where_they_stood_while_a_rate_moves(figure: str, size: float) -> None:
    """Within one magnitude every value has as many digits, and its point in the same cell."""
    forms = set()
    for step in range(50):
        row = text(engine_row(scenes.engine(0, **{figure: size * (1.0 + step / 500)}), 120))
        forms.add(re.sub(r"\d", "0", row))
    assert len(forms) == 1 or size == 9.0
    assert len(forms) <= 2


@each_row(
    ("share", "row_tone", "cell", "tone"),
    [
        (0.89, "text", "  89% ", "text"),
        (0.93, "text", "  93%!", "warn"),
        (1.0, "strong", " 100%!", "critical"),
        (0.93, "muted", "  93% ", "muted"),
        (Missing(Reason.STALE), "text", f"    {DASH} ", "text"),
    ],
)
def test_a_column_of_plain_text_has_a_cell_for_the_mark_of_its_level(
    share: Reading, row_tone: str, cell: str, tone: str
) -> None:
    plain: TextColumn[Reading] = TextColumn("kv", "kv", 4, ratio, value=lambda value: value, level="kv")
    column = text_column(plain)
    assert column.width == len(cell)
    assert column.head == (("   kv ", "muted"),)
    assert column.cell(share, PLAIN, row_tone) == ((cell, tone),)
