"""The map of GPUs: where a GPU stands by its own counters, what is said of it, and where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpumon.config.options import Options
from gpumon.config.schema import Config, Dcgm, Discovery
from gpumon.readings.dcgm import DCGM, NOT_ON_PAGE
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Gpu, Snapshot
from gpumon.session.hardware import start_worker
from gpumon.session.host import HostSession, ThisHost
from gpumon.triage.thresholds import Thresholds
from gpumon.tui.activity_map import bounds_of, map_rows
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Glyphs
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.nvml.driver import FakeDriver
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import type_keys
from tests.tui.test_on_call import monitor

SIZE = (120, 36)
PICTURE = SIZE[0] - 46
BOUNDS = bounds_of(Thresholds())


def at(index: int, tensor: float, dram: float, **others: object) -> Gpu:
    """A GPU without an engine, at this tensor activity and share of the memory bandwidth."""
    usual = {"engines": (), "sm_active_ratio": 0.6, "busy_ratio": 1.0}
    figures = {"tensor_active_ratio": tensor, "bandwidth_bytes_per_s": dram * scenes.PEAK}
    return scenes.gpu(index, **(usual | figures | others))


def host(*gpus: Gpu) -> Snapshot:
    return replace(scenes.snapshot(1, 0), gpus=gpus)


def drawn(
    snapshot: Snapshot,
    history: History | None = None,
    *,
    chosen: int = 0,
    size: tuple[int, int] = SIZE,
    glyphs: Glyphs = "braille",
) -> list[str]:
    rows = map_rows(snapshot, history, BOUNDS, snapshot.gpus[chosen].reading.uuid, size, glyphs)
    assert len(rows) <= size[1]
    return ["".join(text for text, _ in row) for row in rows]


def inside(lines: list[str]) -> list[str]:
    """The picture alone, with its labels at the left; the first line is the title."""
    end = next(number for number, line in enumerate(lines) if line.lstrip().startswith(("└", "`")))
    return [line[:PICTURE] for line in lines[:end]]


def beside(lines: list[str]) -> str:
    """The list beside the picture, as one text."""
    return " ".join(" ".join(line[PICTURE:] for line in lines).split())


def tick_column(lines: list[str], label: str) -> int:
    ruler = next(line for line in lines if line.lstrip().startswith(("└", "`")))[:PICTURE]
    return next(at for at in range(len(ruler)) if ruler[at:].split("─")[0] == label and ruler[at - 1] in "└─")


def tick_line(lines: list[str], label: str) -> int:
    return next(number for number, line in enumerate(lines) if line.lstrip().startswith(f"{label}┤"))


@pytest.mark.parametrize(("tensor", "dram"), [(30, 50), (80, 20), (10, 80), (90, 90), (0, 0)])
def test_a_gpu_stands_at_its_memory_bandwidth_and_its_tensor_activity(tensor: int, dram: int) -> None:
    lines = drawn(host(at(7, tensor / 100, dram / 100)))
    line, column = tick_line(lines, str(tensor)), tick_column(lines, str(dram))
    assert lines[line][column] == "7"


@pytest.mark.parametrize(
    ("tensor", "dram", "others", "region", "sentence"),
    [
        (0.72, 0.30, {}, "compute-bound", "tensor cores are the limit (tensor cores 72% active"),
        (0.12, 0.81, {}, "memory-bound", "memory is the limit (tensor cores 12% active, memory 81% of its bandwidth)"),
        (0.70, 0.80, {}, "compute-, memory-bound", "are both at their limit"),
        (0.05, 0.10, {"sm_active_ratio": 0.2}, "launch- or input-bound", "while busy 100%: small kernels, or it waits"),
        (0.00, 0.05, {"sm_active_ratio": 0.95}, "without tensor cores", "its counters do not tell which"),
        (0.00, 0.00, {"sm_active_ratio": 0.0, "busy_ratio": 0.0}, "idle", "no kernel runs (busy 0%)"),
        (0.40, 0.50, {}, "below all bounds", "at work, below all bounds"),
    ],
)
def test_the_region_of_a_gpu_is_named_and_explained_by_its_figures(
    tensor: float, dram: float, others: dict[str, object], region: str, sentence: str
) -> None:
    text = beside(drawn(host(at(0, tensor, dram, **others))))
    assert f"▸ 0 {region}" in text
    assert sentence in text


def test_the_regions_and_their_bounds_are_written_into_the_picture() -> None:
    lines = drawn(host(at(0, 0.9, 0.9)))
    picture = "\n".join(inside(lines))
    for name in ("compute-bound", "memory-bound", "below all bounds", "launch- or input-bound", "or idle"):
        assert name in picture
    legend = "\n".join(lines)
    for bound in ("compute-bound: tensor from 60%", "memory-bound: mem from 75%", "tensor < 25%, mem < 40%"):
        assert bound in legend
    assert inside(lines)[tick_line(lines, "60")].count("┄") > 60
    assert all(line[tick_column(lines, "70") + 3 :].count("┊") <= 1 for line in inside(lines)[1:])


def test_where_tensor_cores_are_not_told_sm_active_stands_there_and_says_so() -> None:
    unknown = Missing(Reason.NOT_SUPPORTED)
    lines = drawn(host(at(0, 0.0, 0.5, tensor_active_ratio=unknown, sm_active_ratio=0.8)))
    assert lines[0].startswith("SM active % over memory bandwidth %")
    assert lines[tick_line(lines, "80")][tick_column(lines, "50")] == "0"
    text = beside(lines)
    assert "SM 80%" in text
    assert "Nothing tells the activity of its tensor cores" in text
    assert "▸ 0 compute-bound" not in text


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (
            {"tensor_active_ratio": NOT_SUPPORTED, "sm_active_ratio": NOT_SUPPORTED, "activity_source": ""},
            ["on Hopper and newer", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "[dcgm]"],
        ),
        (
            {"tensor_active_ratio": NOT_ON_PAGE, "sm_active_ratio": NOT_ON_PAGE, "activity_source": DCGM},
            ["tensor activity is not measured", "its counters file (option -f) needs DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"],
        ),
        (
            {"tensor_active_ratio": Missing(Reason.NO_PERMISSION), "sm_active_ratio": Missing(Reason.NO_PERMISSION)},
            ["for administrators", "NVreg_RestrictProfilingToAdminUsers=0"],
        ),
    ],
)
def test_a_host_without_such_counters_says_what_gives_them(others: dict[str, object], said: list[str]) -> None:
    bound = {"bandwidth_source": BandwidthSource.UPPER_BOUND} if others.get("activity_source") == "" else {}
    text = " ".join(" ".join(drawn(host(at(0, 0.5, 0.5, **others, **bound)))).split())
    assert text.startswith("no map: gpu 0, tensor activity")
    for part in said:
        assert part in text


def fleet_of_64(straggler: int = 17) -> Snapshot:
    gpus = [at(index, 0.62, 0.38) for index in range(64)]
    gpus[straggler] = at(straggler, 0.02, 0.03, sm_active_ratio=0.1)
    return host(*gpus)


def test_one_straggler_of_sixty_four_stands_alone_and_is_named_first() -> None:
    lines = drawn(fleet_of_64())
    picture = inside(lines)
    text = beside(lines)
    assert "0(+62)" in "\n".join(picture), "the chosen one by its number, and how many are there besides"
    assert picture[tick_line(lines, "0")][4:8].count("17") == 1
    first, second = text.index("1 launch- or input-bound: gpu 17"), text.index("63 compute-bound: gpu 0-16 18-63")
    assert first < second
    assert "more" in text


def test_gpus_in_one_cell_are_counted() -> None:
    lines = drawn(fleet_of_64(), chosen=17)
    assert "(63)" in "\n".join(inside(lines))
    assert "▸ 17 launch- or input-bound" in beside(lines)


def with_past(snapshot: Snapshot, index: int) -> History:
    """Ten minutes of a GPU: at 20 and 70 percent five minutes ago and less, before at 90 and 90; then at 50 and 10."""
    history = History()
    for ago_s in range(600, -60, -5):
        tensor, dram = 0.205, 0.705
        if ago_s > 310:
            tensor, dram = 0.9, 0.9
        elif ago_s < 0:
            tensor, dram = 0.5, 0.1
        history.append(snapshot.wall_s - ago_s, {f"tensor:{index}": tensor, f"dram:{index}": dram}, 5.0)
    return history


def test_the_trail_has_the_last_five_minutes_and_nothing_after_the_moment() -> None:
    snapshot = host(at(3, 0.4, 0.6))
    lines = drawn(snapshot, with_past(snapshot, 3))
    dots = [(number, line.find("•")) for number, line in enumerate(inside(lines)) if "•" in line]
    assert dots == [(tick_line(lines, "20"), tick_column(lines, "70"))]


def test_a_gpu_that_was_in_several_regions_says_how_much_of_its_last_minutes() -> None:
    snapshot = host(at(3, 0.7, 0.3))
    history = History()
    for ago_s in range(300, -5, -5):
        tensor = 0.02 if ago_s % 20 < 5 else 0.7
        history.append(snapshot.wall_s - ago_s, {"tensor:3": tensor, "dram:3": 0.3}, 5.0)
    text = beside(drawn(snapshot, history))
    assert "Last 5 min: compute-bound 75%, launch- or input-bound or idle 25%" in text
    assert "Last 5 min:" not in beside(drawn(snapshot, with_past(snapshot, 3))), "it was in one alone"


def test_of_many_gpus_the_chosen_one_alone_has_its_trail() -> None:
    snapshot = fleet_of_64()
    history = with_past(snapshot, 40)
    assert not any("•" in line for line in inside(drawn(snapshot, history, chosen=17)))
    assert any("•" in line for line in inside(drawn(snapshot, history, chosen=40)))


def test_without_colours_and_unicode_marks_tell_the_gpus_and_the_chosen_trail_apart() -> None:
    snapshot = host(at(0, 0.4, 0.6), at(1, 0.8, 0.2))
    history = with_past(snapshot, 0)
    picture = "\n".join(inside(drawn(snapshot, history, glyphs="ascii")))
    assert picture.isascii()
    assert "*" in picture
    assert "0" in picture
    assert "1" in picture


async def press(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize("theme", ["default", "mono"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
async def test_a_host_without_an_engine_has_its_map_on_every_size(width: int, height: int, theme: str) -> None:
    snapshot = host(*(at(index, 0.62, 0.38) for index in range(8)))
    async with running(Still(snapshot, scenes.history(snapshot)), width, height, theme=theme) as (app, pilot):
        await press(pilot, "R", "down", "down")
        lines = text_of(app)
        text = "\n".join(lines)
        assert "history · map of GPUs" in text
        assert "roofline" not in text
        assert "▸  2 compute-bound" in text
        assert "gpu 2, " in text
        assert "2(+7)" in text
        assert "compute-bound: tensor from 60%" in text
        await press(pilot, "enter")
        assert text_of(app)[3:10] == lines[3:10], "there is no other picture"
        await press(pilot, "escape")
        assert not any("map of GPUs" in line for line in text_of(app))


def shown_text(app: MonitorApp) -> str:
    return "\n".join(text_of(app))


async def test_in_the_past_the_map_is_that_of_the_moment_and_so_is_its_trail() -> None:
    """Eight GPUs train, and hang in a collective from second 60 on."""
    app = await asyncio.to_thread(monitor, "nccl-hang", 200)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "R")
        await until(lambda: "map of GPUs" in shown_text(app), pilot)
        assert "compute-bound" in shown_text(app)
        assert "Triage: hung, " in " ".join(shown_text(app).split())
        assert "•" in "\n".join(line[:PICTURE] for line in text_of(app)), "where it computed before"
        await type_keys(app, pilot, "{", "{", "{")
        await until(lambda: "0 below all bounds 56% 38%" in " ".join(shown_text(app).split()), pilot)
        assert "Triage: hung" not in shown_text(app)


async def test_without_gpm_the_map_names_the_lines_of_an_exporter() -> None:
    app = await asyncio.to_thread(monitor, "nccl-hang-without-gpm", 60)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        await type_keys(app, pilot, "R")
        await until(lambda: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in shown_text(app), pilot)
        assert "no map: gpu 0" in shown_text(app)


async def test_through_the_driver_one_gpu_that_waits_stands_apart(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["gpus 16", "profile h100-sxm"]
    for gpu in range(16):
        tensor, dram, sm = (2, 3, 12) if gpu == 5 else (64, 38, 90)
        lines += [f"gpu {gpu} busy 100", f"gpu {gpu} sm {sm}", f"gpu {gpu} tensor {tensor}", f"gpu {gpu} dram {dram}"]
    fake_driver.write("\n".join(lines) + "\n")
    for name, value in fake_driver.env(XDG_STATE_HOME=str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    config = Config(discovery=Discovery(enabled=False))
    session = HostSession(config, ThisHost(config, Options(), start_worker(Options())))
    measured: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()

    def sink(snapshot: Snapshot) -> None:
        known = [gpu for gpu in snapshot.gpus if isinstance(gpu.reading.tensor_active_ratio, float)]
        if len(known) == 16 and not measured.done():
            measured.set_result(snapshot)

    await session.start(sink)
    snapshot = await asyncio.wait_for(measured, 60.0)
    await session.stop()
    text = beside(drawn(snapshot, session.history, chosen=5))
    assert "1 launch- or input-bound: gpu 5" in text
    assert "15 compute-bound: gpu 0-4 6-15" in text
    assert "▸ 5 launch- or input-bound 2% 3%" in text


async def scraped(page: bytes, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Snapshot:
    """A host without a driver, whose GPUs a dcgm-exporter tells."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    with LoopbackServer(lambda _: Reply(body=page)) as server:
        config = Config(discovery=Discovery(enabled=False), dcgm=Dcgm(url=server.url))
        session = HostSession(config, ThisHost(config, Options(nvml=False)))
        seen: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()

        def sink(snapshot: Snapshot) -> None:
            if len(snapshot.gpus) == 2 and not seen.done():
                seen.set_result(snapshot)

        await session.start(sink)
        snapshot = await asyncio.wait_for(seen, 60.0)
        await session.stop()
    return snapshot


PAGE = (Path(__file__).parents[1] / "data/pages/dcgm/a100-all.prom").read_bytes()


def without(*counters: str) -> bytes:
    """The page of an exporter whose counters file lacks these."""
    return b"".join(line for line in PAGE.splitlines(True) if not any(name.encode() in line for name in counters))


async def test_gpus_before_hopper_have_their_map_by_a_dcgm_exporter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    snapshot = await scraped(PAGE, monkeypatch, tmp_path)
    lines = drawn(snapshot)
    assert "▸ 0 below all bounds 18% 60%" in beside(lines)
    assert "1 idle 0% <1%" in beside(lines)
    by_sm = beside(drawn(await scraped(without("PIPE_TENSOR_ACTIVE"), monkeypatch, tmp_path)))
    assert "▸ 0 below all bounds SM 71% 60%" in by_sm


async def test_an_exporter_without_the_counter_is_told_which_line_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    snapshot = await scraped(without("DRAM_ACTIVE"), monkeypatch, tmp_path)
    text = " ".join(" ".join(drawn(snapshot)).split())
    assert text.startswith("no map: gpu 0, memory bandwidth is not measured")
    assert "its counters file (option -f) needs DCGM_FI_PROF_DRAM_ACTIVE" in text


def test_marks_side_by_side_do_not_read_as_another_gpu() -> None:
    gpus = [at(index, 0.5, 0.3 + 0.012 * place) for place, index in enumerate((9, 10, 1, 11, 12, 2))]
    lines = drawn(host(*gpus), chosen=2)
    assert inside(lines)[tick_line(lines, "50")].split("┤")[1].split() == ["1(+5)", "┊"]
    lines = drawn(host(*(at(index, 0.5, 0.3 + 0.1 * place) for place, index in enumerate((9, 10, 1)))))
    assert inside(lines)[tick_line(lines, "50")].split("┤")[1].split() == ["9", "10", "1", "┊"]


@pytest.mark.parametrize("height", [9, 12, 16, 19, 36])
def test_names_of_regions_hide_no_gpu_and_no_gpu_hides_them(height: int) -> None:
    corners = [(0.99, 0.02), (0.99, 0.8), (0.59, 0.8), (0.59, 0.02), (0.24, 0.02), (0.01, 0.02)]
    lines = drawn(host(*(at(index, *place) for index, place in enumerate(corners))), size=(80, height))
    picture = "\n".join(inside(lines)[1:])
    for index in range(4):
        assert any(str(index) in line[4:] for line in picture.split("\n"))
    assert "memory-bound" in picture
    if height >= 12:
        assert "compute-bound" in picture
        assert "both" in picture
    if height >= 19:
        assert "below all bounds" in picture
        assert "launch- or input-bound" in picture
