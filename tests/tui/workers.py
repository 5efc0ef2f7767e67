"""Processes on the GPUs of a made-up server: workers of engines, people's own work, and what hides."""

from __future__ import annotations

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reading, Reason

GIB = float(1 << 30)

_SERVE = "/opt/venv/bin/python3 -m vllm.entrypoints.openai.api_server --model {} --tensor-parallel-size {} --port {}"
_LLAMA = _SERVE.format("meta-llama/Llama-3.3-70B", 4, 8000)
_QWEN = _SERVE.format("Qwen/Qwen3-30B-A3B", 2, 8001)
_MISTRAL = _SERVE.format("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 2, 8002)


def worker(
    pid: int, engine: str, command: str, vram: float, sm: Reading, *, user: str = "vllm", container: str = ""
) -> GpuProcess:
    """One process of an engine; `vram` in GiB."""
    return GpuProcess(pid, "VLLM::Worker", user, vram * GIB, container, engine=engine, command=command, sm_ratio=sm)


def on(index: int) -> tuple[GpuProcess, ...]:
    """The processes on one GPU of eight: Qwen's worker, 42100, runs on two of them."""
    if index < 4:
        return (worker(41200 + index, "vllm:8000", _LLAMA, 70.4, 0.61, container="docker 3f2a9c71d0be"),)
    if index < 6:
        return (worker(42100, "vllm:8001", _QWEN, 69.8, 0.55, container="k8s 8d1f0e2b9a47"),)
    serving = worker(43300 + index, "vllm:8002", _MISTRAL, 64.9, 0.58)
    if index != 7:
        return (serving,)
    hidden = Missing(Reason.NO_PERMISSION)
    jupyter = "python3 -m ipykernel_launcher -f kernel.json"
    notebook = GpuProcess(51877, "python3", "ada", 5.6 * GIB, command=jupyter, sm_ratio=0.03)
    return (serving, notebook, GpuProcess(977, "nv-hostengine", "root", hidden))


def crowd(index: int, number: int) -> tuple[GpuProcess, ...]:
    """Some small processes of several people on one GPU."""
    return tuple(
        GpuProcess(
            pid=60000 + 100 * index + at,
            name=("python3", "train.py", "Xorg", "ollama")[at % 4],
            user=("ada", "grace", "a-rather-long-user-name", "1001")[at % 4],
            vram_bytes=(0.4 + 0.3 * at) * GIB,
            container="" if at % 2 else f"docker {index:012x}",
            engine="",
            command="" if at == 2 else f"python3 train.py --config runs/{index}/{at}.yaml --seed {at}",
            sm_ratio=0.01 * at,
            type="graphics" if at == 2 else "compute",
        )
        for at in range(number)
    )
