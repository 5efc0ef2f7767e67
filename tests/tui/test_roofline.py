"""The roofline on the screen: marks, trails, roofs and the list of engines, live and in the past."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import llm_catalogue
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Glyphs
from gpumon.tui.roofline import roofline_rows
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.fleet_feed import Scrapes, opened, watching
from tests.tui.running import running, text_of, until

SIZE = (120, 36)
PICTURE = SIZE[0] - 46
RIDGE = 989e12 / scenes.PEAK


def served(**figures: object) -> Snapshot:
    """Three engines, the first of them with other figures."""
    of = scenes.snapshot(8, 3)
    first, *rest = of.engines
    return replace(of, engines=(replace(first, **figures), *rest))


def alone(**figures: object) -> Snapshot:
    of = served(**figures)
    return replace(of, engines=of.engines[:1])


def at(intensity: float, tflops: float, **figures: object) -> Snapshot:
    """An engine with this FLOP/byte, of which each GPU achieves so many TFLOP/s."""
    mfu = tflops * 1e12 / 989e12
    return alone(mfu_ratio=mfu, mbu_ratio=mfu * RIDGE / intensity, mfu_decode_ratio=mfu / 4, **figures)


def drawn(
    snapshot: Snapshot,
    history: History | None = None,
    glyphs: Glyphs = "braille",
    size: tuple[int, int] = SIZE,
    chosen: str = "",
) -> list[str]:
    rows = roofline_rows(snapshot.engines, history, snapshot.wall_s, size, glyphs, chosen)
    assert len(rows) == size[1]
    return ["".join(text for text, _ in row) for row in rows]


def inside(lines: list[str]) -> list[str]:
    """The picture alone, with its labels at the left."""
    end = next(number for number, line in enumerate(lines) if line.lstrip().startswith(("└", "`")))
    return [line[:PICTURE] for line in lines[1:end]]


def place_of(lines: list[str], letter: str) -> tuple[int, int]:
    """Line and column of a mark in the picture."""
    for number, line in enumerate(inside(lines), 1):
        column = line.find(letter, 4)
        if column >= 0:
            return number, column
    raise AssertionError(f"no {letter} in the picture")


def tick_column(lines: list[str], label: str) -> int:
    ruler = next(line for line in lines if line.lstrip().startswith(("└", "`")))[:PICTURE]
    return next(at for at in range(len(ruler)) if ruler[at:].split("─")[0] == label and ruler[at - 1] in "└─")


def tick_line(lines: list[str], label: str) -> int:
    return next(number for number, line in enumerate(lines) if line.lstrip().startswith(f"{label}┤"))


@each_row(("intensity", "tflops"), [(10, 20), (100, 20), (100, 200), (500, 500)])
def test_an_engine_stands_at_its_flop_per_byte_and_the_tflops_of_a_gpu(intensity: int, tflops: int) -> None:
    lines = drawn(at(intensity, tflops))
    assert place_of(lines, "A") == (tick_line(lines, str(tflops)), tick_column(lines, str(intensity)))
    assert "TFLOP/s of a GPU over FLOP/byte" in lines[0]
    assert f"A: {intensity} FLOP/byte, ridge 295" in "\n".join(lines)


def test_the_roofs_are_the_peak_bandwidth_and_the_peak_of_the_precision_in_use() -> None:
    text = "\n".join(drawn(alone()))
    assert "989 TFLOP/s BF16" in text
    assert "3.35 TB/s" in text
    lines = inside(drawn(at(100, 200)))
    roof = [line.find("┄", 4) for line in lines if "┄" in line]
    assert roof == sorted(roof, reverse=True), "it falls to the left"
    assert lines[next(number for number, line in enumerate(lines) if "┄" in line)].count("┄") > 5


def test_precisions_have_a_roof_each_and_their_bandwidth_is_named_once() -> None:
    of = scenes.snapshot(8, 2)
    first, second = of.engines
    fp8 = replace(first, precision="fp8", peak_flops_per_s=4 * 1979e12)
    text = "\n".join(drawn(replace(of, engines=(fp8, second))))
    assert "1,979 TFLOP/s FP8" in text
    assert "989 TFLOP/s BF16" in text
    assert text.count("3.35 TB/s") == 1


def test_the_headroom_is_explained_by_a_number_that_stands_there() -> None:
    text = " ".join(line[76:].strip() for line in drawn(served(mbu_ratio=0.5, mfu_ratio=0.1)))
    assert "A: 59 FLOP/byte, ridge 295" in text
    assert "At the same FLOP/byte it could do 2.0 times as much until bandwidth is at its peak" in text


def test_decode_alone_has_the_small_letter_of_its_engine_which_the_legend_names() -> None:
    lines = drawn(at(100, 200))
    whole = place_of(lines, "A")
    decode = place_of(lines, "a")
    assert decode[0] > whole[0], "a part of the FLOP/s"
    assert decode[1] < whole[1], "and of the FLOP/byte, as the bytes are the same"
    assert decode == (tick_line(lines, "50"), decode[1])
    assert any("a decode of A alone; up to A: prefill" in line for line in lines)


def test_a_share_above_100_percent_is_beyond_the_roof_and_not_clamped() -> None:
    lines = drawn(alone(mbu_ratio=0.5, mfu_ratio=1.6))
    roof = next(number for number, line in enumerate(lines) if "┄┄┄┄" in line)
    assert place_of(lines, "A")[0] < roof
    text = " ".join(line[76:].strip() for line in lines)
    assert "It is beyond the roof, by compute: the dimensions of its model or the peak are wrong" in text
    assert "times as much" not in text


def test_an_engine_without_a_figure_is_listed_with_the_reason_and_not_drawn() -> None:
    unknown = Missing(Reason.UNKNOWN_MODEL)
    lines = drawn(served(mfu_ratio=unknown, mbu_ratio=unknown))
    line = next(line for line in lines if "A vllm:8000" in line)
    assert "MFU unknown" in line
    assert "0%" not in line
    assert not any("A" in line[4:] for line in inside(lines))
    assert place_of(lines, "B")
    assert "A has no place: MFU unknown LLM, MBU unknown LLM" in " ".join(line[76:].strip() for line in lines)


def test_without_any_roof_the_reason_stands_in_place_of_the_picture() -> None:
    no_gpu = Missing(Reason.NO_GPU)
    peaks = {"peak_flops_per_s": no_gpu, "peak_bandwidth_bytes_per_s": no_gpu, "mfu_ratio": no_gpu, "mbu_ratio": no_gpu}
    lines = drawn(alone(**peaks))
    assert "no roof: unmapped" in lines[1]
    assert "A has no place: MFU unmapped, MBU unmapped" in " ".join(lines)


def test_the_trail_has_the_last_five_minutes_and_nothing_after_the_moment() -> None:
    snapshot = alone(mbu_ratio=0.5, mfu_ratio=0.5)
    key = snapshot.engines[0].key
    history = History()
    for ago_s in range(900, -60, -5):
        share = 0.2 if ago_s >= 0 else 0.9
        share = 0.05 if ago_s > 310 else share
        history.append(snapshot.wall_s - ago_s, {f"mbu@{key}": share, f"mfu@{key}": share}, 5.0)
    lines = inside(drawn(snapshot, history))
    dots = [(number, column) for number, line in enumerate(lines) for column, one in enumerate(line) if one == "•"]
    whole = drawn(snapshot, history)
    assert len(dots) == 1, "one place, at a fifth of both peaks"
    assert dots[0][0] + 1 == tick_line(whole, "200")
    assert abs(dots[0][1] - place_of(whole, "A")[1]) <= 1, "its FLOP/byte are those of now"


def test_a_trail_does_not_cross_a_word() -> None:
    snapshot = alone(mbu_ratio=0.7, mfu_ratio=0.08)
    key = snapshot.engines[0].key
    history = History()
    for ago_s in range(300, -5, -5):
        history.append(snapshot.wall_s - ago_s, {f"mbu@{key}": 1.0, f"mfu@{key}": 0.01 + ago_s / 400.0}, 5.0)
    assert any("3.35 TB/s" in line for line in drawn(snapshot, history))


def test_engines_at_one_place_stand_side_by_side() -> None:
    of = alone()
    first = of.engines[0]
    lines = drawn(replace(of, engines=(first, replace(first, name="vllm:9000", url="http://127.0.0.1:9000"))))
    line, column = place_of(lines, "A")
    assert lines[line][column : column + 2] == "AB"


def test_characters_of_terminals_without_unicode() -> None:
    lines = drawn(served(mbu_ratio=0.3, mfu_ratio=0.2), glyphs="ascii")
    assert "".join(lines).replace("▸", "").isascii()
    assert place_of(lines, "A")


@each_row(("engines", "shown", "more"), [(3, 3, ""), (9, 9, ""), (26, 22, "+4 more")])
def test_engines_without_room_are_counted_and_the_chosen_one_is_in_view(engines: int, shown: int, more: str) -> None:
    snapshot = scenes.snapshot(8, engines)
    last = snapshot.engines[-1]
    lines = drawn(snapshot, size=(120, 30), chosen=last.key)
    beside = [line[-44:] for line in lines]
    assert sum("vllm:" in line for line in beside) == shown
    assert ([line.strip() for line in beside if "more" in line] or [""])[-1].endswith(more)
    assert any(line.startswith("▸") and last.name in line for line in beside)


async def press(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


def title(app: MonitorApp) -> str:
    return next(line for line in text_of(app) if line.startswith("─3─"))


async def test_a_key_shows_it_in_the_place_of_the_charts_and_escape_brings_them_back() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await press(pilot, "R")
        assert "history · roofline" in title(app)
        assert any("A: 1" in line and "FLOP/byte" in line for line in text_of(app))
        await press(pilot, "escape")
        assert "roofline" not in title(app)


async def test_enter_turns_to_the_map_and_back_and_arrows_choose_an_engine() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await press(pilot, "R", "down")
        assert any("▸ B vllm:8001" in line for line in text_of(app))
        await press(pilot, "right")
        assert any("▸ C vllm:8002" in line for line in text_of(app))
        assert "Enter: map of GPUs" in title(app)
        await press(pilot, "enter", "down", "down")
        assert "history · map of GPUs" in title(app)
        assert any("▸  2 " in line for line in text_of(app))
        await press(pilot, "enter")
        assert any("▸ C vllm:8002" in line for line in text_of(app)), "each keeps what was chosen"


async def test_the_same_key_gives_the_pane_its_size_back() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 24) as (app, pilot):
        await press(pilot, "R")
        assert app.monitor.body.zoomed == "history"
        await press(pilot, "R")
        assert app.monitor.body.zoomed == ""
        await press(pilot, "3", "z", "R", "R")
        assert app.monitor.body.zoomed == "history"


@pytest.mark.parametrize("way_back", ["escape", "q", "up"])
@pytest.mark.parametrize("width", [80, 120])
async def test_it_comes_after_the_last_chart_and_every_way_back_gives_the_pane_its_size_back(
    width: int, way_back: str
) -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), width, 24) as (app, pilot):
        await press(pilot, "3", "G")
        assert "roofline" not in title(app)
        await press(pilot, "down")
        assert "history · roofline" in title(app)
        assert app.monitor.body.zoomed == "history"
        await press(pilot, "down", "up")
        assert "history · roofline" in title(app)
        await press(pilot, way_back)
        assert "roofline" not in title(app)
        assert app.monitor.body.zoomed == ""
        await press(pilot, "2", "down", "escape")
        assert "roofline" not in title(app)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_it_fills_every_size_and_names_the_chosen_engine(width: int, height: int) -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), width, height) as (app, pilot):
        await press(pilot, "R")
        text = "\n".join(text_of(app))
        assert "▸ A vllm:8000" in text
        assert "ridge 295" in text
        assert "989 TFLOP/s BF16" in text
        assert text_of(app)[-1].count("↑ ↓") == 1, "the arrows choose, and scroll nothing"


LLM = llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct")
KNOWN = {
    "llm": LLM,
    "prompt_tokens_mean": 1000.0,
    "answer_tokens_mean": 300.0,
    "weight_bytes_per_s": 1.2e12,
    "kv_bytes_per_s": 0.3e12,
}


def on_one_gpu(**figures: object) -> Snapshot:
    """An engine of an 8B model on one H100, whose type the GPU tells."""
    one = {"gpus": (0,), "gpu_count": 1.0, "tp": 1, "peak_flops_per_s": 989e12, "peak_bandwidth_bytes_per_s": 3.35e12}
    of = alone(**KNOWN | one | {"batch": 16.0, "mfu_ratio": 0.05, "mbu_ratio": 0.45} | figures)
    return replace(of, gpus=tuple(replace(gpu, gpu_type="H100 SXM 80GB") for gpu in of.gpus))


async def test_twice_the_batch_is_drawn_as_an_estimate_of_sizing() -> None:
    snapshot = on_one_gpu()
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await press(pilot, "R")
        text = " ".join(line[76:].strip() for line in text_of(app))
        assert "A2, twice the batch (32 sequences): 1." in text
        assert "an estimate by the formulas of sizing" in text
        line, column = place_of(text_of(app)[3:-1], "A2")
        now = place_of([row.ljust(120).replace("A2", "  ") for row in text_of(app)[3:-1]], "A")
        assert line < now[0]
        assert column > now[1], "it reads its weights once for twice the tokens"


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({"llm": None}, "the dimensions of its model are not known"),
        ({"prompt_tokens_mean": Missing(Reason.FEW)}, "the lengths of its requests are not known"),
        ({"kv_bytes_per_s": Missing(Reason.NO_CONTEXT)}, "what its steps read is not known"),
    ],
)
async def test_twice_the_batch_is_not_known_without_what_it_stands_on(figures: dict[str, object], why: str) -> None:
    snapshot = on_one_gpu(**figures)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await press(pilot, "R")
        text = " ".join(line[76:].strip() for line in text_of(app))
        assert f"Twice the batch: not known, {why}" in text
        assert not any("A2" in line for line in text_of(app))


async def test_the_unfolded_page_of_an_engine_ends_with_its_roofline() -> None:
    snapshot = scenes.snapshot(8, 3)
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 50) as (app, pilot):
        await press(pilot, "2", "enter", "x", "G")
        lines = text_of(app)
        assert " roofline" in lines
        assert any("A vllm:8000" in line for line in lines)


async def test_a_host_of_a_fleet_has_it_too() -> None:
    async with watching(Scrapes(3), 120, 50) as (app, pilot):
        await opened(app, pilot)
        await press(pilot, "R")
        await until(lambda: any("history · roofline" in line for line in text_of(app)), pilot)
        assert any("FLOP/byte, ridge" in line for line in text_of(app))


@each_row(("intensity", "tflops"), [(150, 480), (250, 500), (330, 500), (420, 480), (480, 500), (700, 400), (10, 20)])
def test_words_hide_no_mark_and_no_mark_hides_a_word(intensity: int, tflops: int) -> None:
    snapshot = at(intensity, tflops)
    fp8 = replace(
        snapshot.engines[0], name="b", url="http://127.0.0.1:1", precision="fp8", peak_flops_per_s=4 * 1979e12
    )
    two = replace(snapshot, engines=(*snapshot.engines, fp8))
    history = History()
    for ago_s in range(0, 300, 5):
        mfu = tflops / 989.0 * (1.0 - ago_s / 400.0)
        key = snapshot.engines[0].key
        history.append(snapshot.wall_s - 300.0 + ago_s, {f"mfu@{key}": mfu, f"mbu@{key}": mfu * RIDGE / intensity}, 5.0)
    for height in (14, 19, 24, 36):
        lines = drawn(two, history, size=(80, height))
        end = next(number for number, line in enumerate(lines) if line.lstrip().startswith("└"))
        picture = "\n".join(lines[1:end])
        for word in ("989 TFLOP/s BF16", "1,979 TFLOP/s FP8", "3.35 TB/s"):
            assert word in picture
            picture = picture.replace(word, "")
        assert picture.count("B") == 1
        assert picture.count("A") == 1


def test_engines_at_the_right_edge_stand_in_the_picture() -> None:
    of = alone(mbu_ratio=1e-3, mfu_ratio=0.5)
    first = of.engines[0]
    others = [replace(first, name=f"vllm:{number}", url=f"http://127.0.0.1:{number}") for number in range(12)]
    picture = "".join(inside(drawn(replace(of, engines=(first, *others)))))
    for letter in "CDEGHIJKLM":
        assert letter in picture
