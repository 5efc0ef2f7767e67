"""Each process is one row, however many GPUs it runs on."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reason
from gpumon.tui import process_table
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, page_of
from tests.tui.painted import PLAIN, process, text


def test_a_process_on_several_gpus_is_one_row() -> None:
    half = process(vram_bytes=40.0 * scenes.GIB, sm_ratio=0.4)
    other = process(7, vram_bytes=2.0 * scenes.GIB, engine="", command="", sm_ratio=Missing(Reason.NO_PERMISSION))
    gpus_ = [scenes.gpu(at, processes=(half,)) for at in (3, 0, 1, 2)] + [scenes.gpu(5, processes=(half, other))]
    running, second = process_table.running_processes(gpus_)
    assert (running.gpus, running.vram_bytes, running.vram_partial) == ((0, 1, 2, 3, 5), 200.0 * scenes.GIB, False)
    assert running.sm_ratio == pytest.approx(0.4)
    row = text(process_table.process_row(running, 80, PLAIN))
    assert row.startswith("    4242 llm       0-3 5   200  40% vllm:8000    python3 -m vllm.entrypoints")
    assert (
        text(process_table.process_row(second, 80, PLAIN)).rstrip()
        == "       7 llm       5       2.0 perm              python3"
    )
    assert text(process_table.process_head(80, PLAIN)) == "     pid user      gpus    GiB   sm engine       command"


def test_what_a_process_holds_is_a_lower_bound_where_a_gpu_does_not_tell() -> None:
    hides = process(vram_bytes=Missing(Reason.NO_PERMISSION), sm_ratio=0.5)
    (running,) = process_table.running_processes(
        [scenes.gpu(0, processes=(hides,)), scenes.gpu(1, processes=(process(),))]
    )
    assert "  ≥70.0 " in text(process_table.process_row(running, 80, PLAIN)).replace(" ≥", "  ≥")
    assert running.sm_ratio == pytest.approx(0.55)
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(hides,))])
    assert " perm " in text(process_table.process_row(running, 80, PLAIN))


def test_a_process_without_a_sample_is_idle_as_on_its_page() -> None:
    none = process(sm_ratio=Missing(Reason.IDLE))
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(none,))])
    assert " 70.0 idle vllm:8000 " in text(process_table.process_row(running, 80, PLAIN))
    of = replace(scenes.snapshot(1, 0), gpus=(scenes.gpu(0, processes=(none,)),))
    page = flat(page_of(of, "process", str(none.pid)))
    assert "GPU 0 SM share – idle" in page
    assert "no sample of this process in the last seconds: it did nothing on this GPU" in page
    assert " idle SM " in flat(page_of(of, "gpu", of.gpus[0].reading.uuid))


def test_a_wider_screen_adds_what_it_takes_of_the_host_and_where_it_runs_before_the_command() -> None:
    pod = "51b1a7ed-0000-4000-8000-00000000d1ce"
    known = process(pod=pod, cpu_ratio=1.5, rss_bytes=12.0 * scenes.GIB, started_s=scenes.WALL_S - 7200.0)

    def shown(width: int, **changes: object) -> str:
        (running,) = process_table.running_processes(
            [scenes.gpu(0, processes=(replace(known, **changes),))], scenes.WALL_S
        )
        return text(process_table.process_row(running, width, PLAIN))

    assert "51b1a7ed" not in shown(80)
    assert " vllm:8000     150%    12.0    2h 51b1a7ed0c0d python3 -m" in shown(120)
    assert f" 51b1a7ed0c0d {pod[:23]}… compute  python3 -m" in shown(200)
    assert " ml/llama-0 " in shown(200, pod_name="ml/llama-0")
    assert " job 4711 " in shown(200, job="4711", pod_name="ml/llama-0")
    assert " pod 51b1a7ed " in shown(120, container="")
    assert "llm " not in shown(60).replace("vllm", "")
    assert "python3" in shown(60)


def test_a_process_of_the_host_says_why_it_has_no_command() -> None:
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(process(command="", user=""),))])
    assert text(process_table.process_row(running, 80, PLAIN)).endswith(" python3")
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(GpuProcess(99, "99 (host)", "", 1e9),))])
    assert "hidden from this container" in text(process_table.process_row(running, 120, PLAIN))


@each_row(
    ("command", "shown"),
    [
        ("/opt/venv/bin/python3 -m vllm.entrypoints", "python3 -m vllm.entrypoints"),
        ("VLLM::EngineCore", "VLLM::EngineCore"),
        ("/usr/bin/nvidia-smi", "nvidia-smi"),
        ("a/ --b/c", " --b/c"),
        ("", "python3"),
    ],
)
def test_the_command_says_what_runs(command: str, shown: str) -> None:
    assert process_table.command_text(process(command=command)) == shown


def test_the_name_of_a_container_stands_before_its_id() -> None:
    named = process(container="3f2a9c71d0be", container_name="vllm-prod")
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(named,))])
    row = text(process_table.process_row(running, 120, PLAIN))
    assert " vllm-prod " in row
    assert "3f2a9c71d0be" not in row
    of = replace(scenes.snapshot(1, 1), gpus=(scenes.gpu(0, processes=(named,)),))
    for kind, key in (("process", str(named.pid)), ("engine", of.engines[0].key)):
        assert "container vllm-prod (3f2a9c71d0be)" in flat(page_of(of, kind, key))
