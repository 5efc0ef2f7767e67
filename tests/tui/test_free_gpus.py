"""GPUs without an engine: idle ones, and those with a process that is none."""

from __future__ import annotations

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Gpu
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, page_of
from tests.tui.painted import process

IDLE = {"busy_ratio": 0.0, "sm_active_ratio": 0.0, "vram_used_bytes": 0.4 * scenes.GIB}
TRAIN = process(30, engine="", name="python3", command="/usr/bin/python3 train.py --gpus {gpu}", user="ann")


def page(**fields: object) -> str:
    gpu: Gpu = scenes.gpu(3, engines=(), **{**scenes.NO_ENGINE, "processes": (), **fields})
    return flat(page_of(replace(scenes.snapshot(), gpus=(gpu,)), "gpu", gpu.reading.uuid), 139)


def test_an_idle_gpu_needs_nothing() -> None:
    said = page(**IDLE)
    assert "nothing runs on this GPU" in said
    assert "--endpoint" not in said
    assert "[[feed]]" not in said


def test_a_process_that_is_no_engine_is_named_with_both_ways_to_watch_it() -> None:
    said = page(processes=(TRAIN,))
    assert "python3 train.py --gpus {gpu} (pid 30) runs here, and is no engine that gpumon polls" in said
    assert "[[feed]] in the config, with gpus = [3]" in said
    assert "gpumon --endpoint http://127.0.0.1:PORT" in said
    assert "8000" not in said
    assert "python3 train.py --gpus {gpu} ann" in said


def test_a_busy_gpu_without_a_process_that_is_seen_says_how_an_engine_is_named() -> None:
    assert "no engine that gpumon polls runs on this GPU → if one does: gpumon --endpoint" in page()


@each_row(
    ("busy", "sm", "said", "not_said"),
    [
        (0.0, 0.04, "SM active is of another interval", "stood idle"),
        (0.0, 0.0, "idle: no kernel ran in the last sample", "another interval"),
        (0.5, 0.5, "while a kernel ran, about all SMs had work", "stood idle"),
        (0.5, 0.2, "30 points of the chip stood idle", "whenever"),
    ],
)
def test_busy_and_sm_activity_are_compared_where_that_says_something(
    busy: float, sm: float, said: str, not_said: str
) -> None:
    shown = page(busy_ratio=busy, sm_active_ratio=sm)
    assert said in shown
    assert not_said not in shown


def test_a_gpu_that_trains_has_no_decode_figure() -> None:
    trains = Missing(Reason.NOT_SUPPORTED, "it trains")
    said = page(tokens_per_j=trains)
    assert "decode tok/J" not in said
    assert "it trains" not in said
