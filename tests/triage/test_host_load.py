"""The host as the limit: memory, cores, disks; a host whose figures are not there says nothing."""

from __future__ import annotations

from gpumon.readings.frame import HostProcess
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Confidence, Family, Kind, Level, Limit
from gpumon.triage.render import actions_text, verdict_text
from tests.records import replace
from tests.triage.stage import CALM, GIB, Stage, gpu, process, said


def test_memory_that_runs_out_is_critical_where_tasks_wait_for_it() -> None:
    full = {"memory_used_bytes": 62 * GIB, "memory_total_bytes": 64 * GIB}
    calm = said(Stage().play(60, (), **full, memory_pressure_ratio=0.0), Family.USE, Kind.HOST)
    assert (calm.code, calm.level) == (Limit.MEMORY_FULL, Level.WARN)
    assert "2.0 GiB left" in verdict_text(calm)
    hard = said(Stage().play(60, (), **full, memory_pressure_ratio=0.4), Family.USE, Kind.HOST)
    assert hard.level is Level.CRITICAL


def test_a_host_that_swaps_before_it_is_full_is_a_warning() -> None:
    found = said(Stage().play(60, (), memory_used_bytes=56 * GIB, memory_pressure_ratio=0.3), Family.USE, Kind.HOST)
    assert (found.code, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.WARN, Confidence.MEDIUM)
    assert "30% of the time" in verdict_text(found)


def test_tasks_that_wait_for_memory_beside_an_empty_host_have_a_limit_of_their_own() -> None:
    found = said(Stage().play(60, (), memory_pressure_ratio=0.12), Family.USE, Kind.HOST)
    assert (found.code, found.level, found.confidence) == (Limit.MEMORY_FULL, Level.NOTE, Confidence.LOW)
    assert "56 GiB left: likely a container's limit" in verdict_text(found)
    assert "memory.events" in actions_text(found)


def test_a_calm_host_and_one_without_figures_have_no_verdict() -> None:
    for host in (CALM, dict.fromkeys((*CALM, "memory_used_bytes", "memory_total_bytes"), NOT_SUPPORTED)):
        assert Stage().play(90, (), **host).verdicts == ()


FULL = {**CALM, "cpu_ratio": 0.97, "cpu_pressure_ratio": 0.7}


def test_a_full_cpu_names_who_uses_it() -> None:
    """Programs on the GPUs are known anyway, with their scripts; the others come from the host's own list."""
    loader = process(20, "python", user="ada", command="python train.py", cpu_ratio=3.0)
    on_gpu = gpu(busy_ratio=0.95, processes=(loader,))
    shown = on_gpu.shown.reading.processes[0]
    card = on_gpu._replace(shown=replace(on_gpu.shown, processes=(replace(shown, cpu_ratio=3.0),)))
    consumers = (HostProcess(7, "cc1plus", "build", 5.6), HostProcess(20, "python", "ada", 3.1))
    found = said(Stage().play(60, (card,), reading={"consumers": consumers}, **FULL), Family.LIMIT, Kind.HOST)
    named = [(one.parameters["process"], one.value) for one in found.evidence if one.quantity == "cpu_process"]
    assert named == [("cc1plus (pid 7) of build", 5.6), ("python train.py (pid 20) of ada", 3.0)]
    assert "cc1plus (pid 7) of build uses 5.6 cores" in verdict_text(found)


def test_a_load_of_most_cores_is_not_one_of_all_and_a_gpu_that_nobody_asks_is_not_called_unaffected() -> None:
    """12 of 14 cores are taken by what is pinned there, and the GPU is at work less than half of the time."""
    host = {**CALM, "cpu_ratio": 0.86, "cpu_pressure_ratio": 0.5}
    works = gpu(busy_ratio=0.4, processes=(process(command="python answer_batches.py"),))
    found = said(Stage().play(60, (works,), **host), Family.LIMIT, Kind.HOST)
    assert verdict_text(found) == (
        "CPU 86% of all cores; tasks wait for a core 50% of the time; no GPU is seen to wait for it"
    )


def test_one_core_is_a_core() -> None:
    reading = {"consumers": (HostProcess(8, "rsync", "ops", 1.0),)}
    found = said(Stage().play(60, (), reading=reading, **FULL), Family.LIMIT, Kind.HOST)
    assert "rsync (pid 8) of ops uses 1 core;" in verdict_text(found)


def test_a_full_cpu_of_which_nobody_is_known_names_nobody() -> None:
    found = said(Stage().play(60, (), **FULL), Family.LIMIT, Kind.HOST)
    assert found.cause == "cpu_full"
    assert "uses" not in verdict_text(found)
    assert actions_text(found).startswith("host: move other jobs away"), "no GPU waits where there is none"
