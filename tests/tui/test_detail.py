"""The detail page: what it says at every width, how it follows its thing, and where it leads."""

from __future__ import annotations

import re
from pathlib import Path

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.snapshot import (
    Evidence,
    Family,
    FaultShown,
    Kind,
    Level,
    Limit,
    Snapshot,
    Verdict,
)
from gpumon.readings.verdict import Action
from gpumon.sources.dcgm_gpus import ExporterGpus
from gpumon.sources.dcgm_page import WANTED, read_page
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue
from gpumon.tui.pages.detail import DetailPage
from tests.each_row import each_row
from tests.efficiency.polls import frame
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import NOW_S, flat, full_engine, full_gpu, full_snapshot, page_of, things, whole
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until
from tests.tui.snapshot_files import REWRITTEN, UPDATE

FOLDER = Path(__file__).parent / "detail_snapshots"


def one_of_each_sort(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Keys of one GPU of each state, one engine of each kind and state, and one process."""
    chosen: dict[object, tuple[str, str]] = {}
    for gpu in snapshot.gpus:
        chosen["gpu", gpu.reading.state, bool(gpu.reading.processes), gpu.reading.parent_uuid == ""] = (
            "gpu",
            gpu.reading.uuid,
        )
    for engine in snapshot.engines:
        chosen["engine", engine.state, engine.kind, bool(engine.departure)] = ("engine", engine.url)
    for kind, key in things(snapshot):
        if kind == "process":
            chosen[kind] = (kind, key)
    return list(chosen.values())


@each_row("scene", scenes.SCENES)
def test_every_scene_paints_at_every_width(scene: str) -> None:
    snapshot = scenes.SCENES[scene]()
    for kind, key in one_of_each_sort(snapshot):
        page = page_of(snapshot, kind, key)
        for width in (60, 80, 139, 140):
            lines = whole(page, width)
            assert len(lines) > 5
            assert all(line.isprintable() for line in lines)


@each_row("width", [60, 80, 160])
@each_row("kind", ["gpu", "engine", "process"])
def test_whole_pages(kind: str, width: int) -> None:
    snapshot = full_snapshot()
    key = {"gpu": snapshot.gpus[0].reading.uuid, "engine": snapshot.engines[0].url, "process": "4242"}[kind]
    text = "\n".join(whole(page_of(snapshot, kind, key), width)) + "\n"
    path = FOLDER / f"{kind}-{width}.txt"
    if UPDATE:
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text, REWRITTEN


def test_what_is_wrong_stands_at_the_top() -> None:
    down = full_engine(
        state=EndpointState.REFUSED, fault="connection refused: start it", running=Missing(Reason.UNREACHABLE)
    )
    verdict = Verdict(
        *("vllm:8000", Limit.QUEUE_LIMIT, "12 wait while KV has room", "2025-10-09T08:50:22Z"),
        *(Kind.ENGINE, down.key, Family.LIMIT, Level.WARN),
        evidence=(Evidence("12 waiting"),),
        actions=(Action("add an instance"),),
    )
    snapshot = full_snapshot(
        engines=(down,),
        faults=(FaultShown("vllm:8000", down.fault, "2025-10-09T08:52:22Z"), FaultShown("gpu 1", "hot", "x")),
        verdicts=(verdict,),
    )
    lines = whole(page_of(snapshot, "engine", down.url), 100)
    assert lines[1] == " ! REFUSED · read 0.4 s ago · since 08:50:22 (3 min)"
    assert lines[2] == " what does not work"
    assert lines[3].split() == ["!", "since", "08:52:22", "connection", "refused:", "start", "it"]
    assert [line.strip() for line in lines[4:9]] == [
        *("", "what limits it", "! queue limit     12 wait while KV has room", "→ add an instance", "· 12 waiting")
    ]
    assert "hot" not in " ".join(lines)


def test_titles() -> None:
    snapshot = full_snapshot()
    assert page_of(snapshot, "gpu", snapshot.gpus[3].reading.uuid).title() == "gpu 3 · NVIDIA H100 80GB HBM3"
    assert page_of(snapshot, "engine", snapshot.engines[0].url).title() == "engine vllm:8000 · Llama-3.3-70B"
    part = full_gpu(uuid="MIG-1", parent_uuid="GPU-0", mig_profile="1g.10gb")
    assert page_of(full_snapshot(gpus=(part,)), "gpu", "MIG-1").title().startswith("slice 1g.10gb of gpu 0 · ")


def test_a_whole_gpu_lists_its_mig_slices() -> None:
    parent = full_gpu()
    sizes = ("3g.40gb", "3g.40gb", "1g.10gb")
    slices = [
        full_gpu(uuid=f"MIG-{number}", parent_uuid=parent.reading.uuid, mig_profile=size)
        for number, size in enumerate(sizes)
    ]
    snapshot = full_snapshot(gpus=(parent, *slices))
    assert "MIG slices 2x 3g.40gb, 1x 1g.10gb" in flat(page_of(snapshot, "gpu", parent.reading.uuid))
    assert "MIG slices" not in flat(page_of(snapshot, "gpu", "MIG-0"))


def test_a_lost_gpu_keeps_its_last_figures_marked_as_old() -> None:
    first = full_snapshot()
    page = page_of(first, "gpu", first.gpus[0].reading.uuid)
    lost = scenes.dead_gpu(0, GpuState.LOST, 14.0, scenes.LOST)
    page.show(full_snapshot(gpus=(lost,), wall_s=NOW_S + 14.0))
    lines = whole(page, 120)
    assert lines[1] == " ✗ LOST 14s · has not answered since 08:53:22"
    assert lines[2] == " the figures below are OLD: read at 08:53:21, 14 s ago"
    assert "busy 93.00%" in flat(page)
    tones = {tone for row in page.body(120, 20) for _, tone in row}
    assert "text" not in {tone for row in page.body(120, 20)[8:] for text, tone in row if text.strip()}, tones
    page.show(replace(first, wall_s=NOW_S + 20.0))
    assert whole(page, 120)[1] == " ● power cap · read 0.2 s ago"
    assert "OLD" not in flat(page)


def test_a_process_that_ended_says_since_when() -> None:
    first = full_snapshot()
    page = page_of(first, "process", "4242")
    for seconds in (5.0, 9.0):
        page.show(full_snapshot(gpus=(full_gpu(processes=()),), wall_s=NOW_S + seconds))
    lines = whole(page, 120)
    assert lines[0] == "process 4242 · VLLM::Worker_TP0"
    assert lines[1] == " ✗ GONE · no longer on a GPU · since 08:53:27 (4.0 s)"
    assert "OLD" in lines[2]
    dark = scenes.dead_gpu(0, GpuState.STALE, 6.0, scenes.STALE)
    page.show(full_snapshot(gpus=(dark,), wall_s=NOW_S + 12.0))
    assert "its GPU does not answer" in whole(page, 120)[1]


def test_what_was_never_there() -> None:
    lines = whole(page_of(full_snapshot(), "engine", "http://nowhere"), 80)
    assert lines == ["engine http://nowhere", " ✗ not there at 08:53:22"]


def test_a_lost_gpu_opened_late_says_why_once() -> None:
    lost = scenes.dead_gpu(0, GpuState.LOST, 14.0, scenes.LOST)
    text = flat(page_of(full_snapshot(gpus=(lost,)), "gpu", lost.reading.uuid))
    assert text.count("the GPU no longer answers") == 1
    assert "power-cycle it" in text
    assert "busy" not in text
    assert "nothing slows the clocks" not in text


def test_a_gpu_by_an_exporter_alone_does_not_say_that_nothing_slows_it() -> None:
    """A dcgm-exporter tells neither causes nor throttled time; nobody looked."""
    text = flat(page_of_exporters_gpu())
    assert "not known: what this GPU is read from does not tell what slows its clocks" in text
    assert "nothing slows the clocks" not in text
    assert "keeps no counters" not in text
    by_driver = scenes.gpu(0, throttle=())
    assert "nothing slows the clocks" in flat(page_of(full_snapshot(gpus=(by_driver,)), "gpu", by_driver.reading.uuid))


def test_a_gpu_by_an_exporter_alone_says_which_counters_to_add() -> None:
    """Once for all figures that follow each other; nothing is said of the hardware that nobody asked."""
    text = flat(page_of_exporters_gpu())
    advice = "→ its counters file (option -f) needs "
    assert f"? power limit: not on the page of the dcgm-exporter {advice}DCGM_FI_DEV_ENFORCED_POWER_LIMIT ?" in text
    assert (
        "? ECC uncorrected, ECC corrected, remap pending: not on the page of the dcgm-exporter "
        f"{advice}DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FI_DEV_ROW_REMAP_PENDING "
    ) in text
    assert "ECC – not exposed" in text
    not_read = "gpumon does not read it from a dcgm-exporter → gpumon on that host asks the driver for it"
    sentences = text.split(f": {not_read}")[:-1]
    unread = [sentence.rpartition("? ")[2] for sentence in sentences]
    links = "PCIe replays, NVLinks, NVLinks up, NVLink errors"
    assert unread == ["fan", "ECC", links, "persistence mode"], "what DCGM_METRICS has no row of"
    assert "gpumon doctor" not in text
    assert "no counter" not in text
    assert "error correction" not in text


def test_a_counter_that_the_exporter_has_of_another_gpu_is_not_asked_for() -> None:
    """Its counters file has it: of a GPU in slices, or one without what is counted, there is no value."""
    text = flat(page_of_exporters_gpu("mig", "GPU-c07a51be-3e9f-4d4b-9e2a-4b7d10f3aa00"))
    assert "? busy, memory busy: on the page of the dcgm-exporter for other GPUs only ?" in text
    assert "? remap failed: on the page of the dcgm-exporter for other GPUs only " in text
    assert "needs DCGM_FI_DEV_ENFORCED_POWER_LIMIT ?" in text
    advised = " ".join(re.findall(r" needs ((?:DCGM_\w+,? )+)", text))
    for counter in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"):
        assert counter not in advised


def test_a_figure_that_another_host_does_not_tell_of_its_gpu_is_no_engines() -> None:
    """Snapshots and metrics of another host have no sources and no sentences: the reason alone has come."""
    gpu = replace(full_gpu(), ecc_mode=NOT_EXPOSED, power_limit_w=NOT_EXPOSED, mfu_ratio=NOT_EXPOSED, sources={})
    text = flat(page_of(full_snapshot(gpus=(gpu,)), "gpu", gpu.reading.uuid))
    advice = "what this GPU is read from does not export it → its page in the gpumon of its host says why"
    assert f"? power limit: {advice}" in text
    assert f"? ECC: {advice}" in text
    assert "? MFU: the engine does not export it → `gpumon doctor` lists" in text
    assert text.count("gpumon doctor") == 1


def page_of_exporters_gpu(page: str = "a100-default", uuid: str = "") -> DetailPage:
    """The page of a GPU that only a dcgm-exporter tells of; `uuid`: empty for the first one."""
    path = Path(__file__).parents[1] / "data" / "pages" / "dcgm" / f"{page}.prom"
    exporter = ExporterGpus(shortest_s=1.0)
    exporter.follow(read_page(Scanner(WANTED).scan(path.read_bytes())), now_s=100.0, wall_s=NOW_S)
    snapshot = Deriver(gpu_catalogue()).derive(frame(100.0, exporter.readings)).snapshot
    return page_of(snapshot, "gpu", uuid or snapshot.gpus[0].reading.uuid)


def test_neighbours_and_the_way_back() -> None:
    snapshot = full_snapshot()
    page = page_of(snapshot, "gpu", snapshot.gpus[3].reading.uuid)
    assert page.note(60) == "4/4 · Enter: engine vllm:8000"
    assert page.step_sideways(1)
    assert page.title().startswith("gpu 0 ")
    assert page.step_sideways(-1)
    assert page.title().startswith("gpu 3 ")
    engine = page_of(snapshot, "engine", snapshot.engines[0].url)
    assert not engine.step_sideways(1)
    assert engine.open() == ("gpu", snapshot.gpus[0].reading.uuid)


def test_nothing_below_moves_when_a_number_gets_shorter() -> None:
    long = full_snapshot(engines=(full_engine(prefill_tokens_per_s=1_234_567.8),))
    page = page_of(long, "engine", full_engine().url)
    before = whole(page, 80)
    page.show(full_snapshot(engines=(full_engine(prefill_tokens_per_s=1.2),)))
    after = whole(page, 80)
    titles = (" MFU: arithmetic", " MBU: memory bandwidth", " tokens since gpumon started")
    assert [before.index(title) for title in titles] == [after.index(title) for title in titles]


async def test_enter_follows_and_escape_goes_back() -> None:
    first = full_snapshot()
    feed = Still(first)
    async with running(feed, 100, 30) as (app, pilot):
        await pilot.press("2", "enter")
        assert " engine vllm:8000 · Llama-3.3-70B " in text_of(app)[2]
        await pilot.press("enter")
        assert " gpu 0 · NVIDIA H100" in text_of(app)[2]
        await pilot.press("escape")
        assert " engine vllm:8000 · Llama-3.3-70B " in text_of(app)[2]
        feed.give(full_snapshot(engines=(full_engine(running=7.0),)))
        await until(lambda: any(re.match(r"  running +7 ", line) for line in text_of(app)), pilot)
        await pilot.press("escape")
        assert any("decode" in line for line in text_of(app))
        assert "pane failed" not in "\n".join(text_of(app))


async def test_going_round_makes_the_way_back_no_longer() -> None:
    async with running(Still(full_snapshot()), 100, 30) as (app, pilot):
        await pilot.press("1", *["enter"] * 8)
        assert " engine vllm:8000 " in text_of(app)[2]
        await pilot.press("escape")
        assert " gpu 0 " in text_of(app)[2]
        await pilot.press("escape")
        assert app.monitor.pages.shown is None
