"""A process's page: who it is, what it runs, and its share of each GPU that it is on."""

from __future__ import annotations

from typing import Final

from gpumon.figures.process import PROCESS
from gpumon.readings.frame import GpuProcess
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Fact, FigureMaker, Section, Sentence
from gpumon.tui.detail.things import ProcessOnGpus, container_of
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.view import View

_TYPES: Final = {"compute": "compute (CUDA)", "graphics": "graphics", "mps": "client of an MPS server"}
_SOURCES: Final = {
    "vram_bytes": "nvmlDeviceGetComputeRunningProcesses, each 4 s",
    "sm_ratio": "nvmlDeviceGetProcessUtilization smUtil, newest sample of the last 4 s",
    "cpu_ratio": "/proc of the process",
    "rss_bytes": "/proc of the process",
}
_OF_HOST_REMARK: Final = "seen from inside a container: run gpumon on the host or with --pid=host"
"""Note on a pid of the host where gpumon runs in a container, whose /proc does not have it."""
_NO_COMMAND_REMARK: Final = (
    "the kernel hides its command line from your user (or it has none): run gpumon as its user or as root"
)


def sections(thing: ProcessOnGpus, snapshot: Snapshot, view: View) -> list[Section]:
    """All sections, in the order of a narrow screen."""
    return [_process_section(thing, snapshot, view), _gpus_section(thing, view), _command_section(thing)]


def _process_section(thing: ProcessOnGpus, snapshot: Snapshot, view: View) -> Section:
    """Who the process is, and its share of the host's CPUs and memory: these are the same on all of its GPUs."""
    process = thing.by_gpu[0][1]
    figures = FigureMaker(process, PROCESS, _SOURCES, make_explainer(Subject()))
    entries: list[Entry] = [
        Fact("pid", str(thing.pid)),
        Fact("name", process.name),
        Fact("user", _user_text(process)),
        Fact("type", _TYPES.get(process.type, process.type)),
        Fact("engine", _engine_text(process, snapshot)),
        Fact("container", container_of(process) or "none, or not told by its cgroup"),
        Fact("pod", process.pod or "none, or not told by its cgroup"),
        Fact("runs for", _run_time_text(process, snapshot)),
        # Above 100 without a warning, as a process may use several cores.
        figures.of_field("cpu_ratio", name="CPU, of one core", write=lambda share: (f"{share * 100.0:.0f}", "%")),
        figures.of_field("rss_bytes", name="host memory", write=values.memory(view)),
    ]
    return Section("process", entries)


def _run_time_text(process: GpuProcess, snapshot: Snapshot) -> str:
    """How long a process has run, where its start is known."""
    if process.started_s <= 0.0:
        return "not known"
    return values.duration_text(max(0.0, snapshot.wall_s - process.started_s))


def _user_text(process: GpuProcess) -> str:
    """The user of a process, or why it is not known."""
    if process.user:
        return process.user
    if _is_of_host(process):
        return f"not known: {_OF_HOST_REMARK}"
    return "not known: the kernel hides it"


def _engine_text(process: GpuProcess, snapshot: Snapshot) -> str:
    """The engine that a process belongs to, with its model while the engine is there."""
    for engine in snapshot.engines:
        if engine.name == process.engine:
            return f"{engine.name}: {engine.model}"
    return process.engine or "none known"


def _is_of_host(process: GpuProcess) -> bool:
    """Whether /proc did not have the pid: then the name that the source gives the process says so."""
    return process.name == f"{process.pid} (host)"


def _gpus_section(thing: ProcessOnGpus, view: View) -> Section:
    """VRAM and share of the SMs on each GPU of the process, and its VRAM in all."""
    entries: list[Entry] = []
    for gpu, process in thing.by_gpu:
        figures = FigureMaker(process, PROCESS, _SOURCES, make_explainer(Subject(gpu=gpu.reading.index)))
        name = f"GPU {gpu.reading.index} {gpu.reading.mig_profile}".strip()
        entries.append(figures.of_field("vram_bytes", name=f"{name} VRAM", write=values.memory(view)))
        entries.append(figures.of_field("sm_ratio", name=f"{name} SM share"))
    vram_bytes = values.known_numbers(*(process.vram_bytes for _, process in thing.by_gpu))
    if len(thing.by_gpu) > 1 and vram_bytes:
        size = values.figure_text(values.memory(view)(sum(vram_bytes)))
        entries.append(Sentence(f"{size} on {len(vram_bytes)} GPUs together"))
    entries.append(
        Sentence(
            "SM share: how much of the time of the GPU's SMs was this process's, as the driver samples it. Shares of "
            "all processes add up to the GPU's busy, not to 100%; it says nothing about how well the SMs were used."
        )
    )
    return Section("on the GPUs", entries, side=1)


def _command_section(thing: ProcessOnGpus) -> Section:
    """The command line, or why it is not known."""
    process = thing.by_gpu[0][1]
    command = process.command
    if not command:
        text = _OF_HOST_REMARK if _is_of_host(process) else _NO_COMMAND_REMARK
        return Section("command", [Sentence(f"? {text}", "text")])
    return Section("command", [Sentence(command, "text")])
