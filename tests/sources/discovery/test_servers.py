"""Which process of a family is the server, whose socket counts, and what is said when: families of real engines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.look import DiscoveryLook
from gpumon.sources.discovery.servers import server_in
from gpumon.sources.family import ProcessFamily, ProcessRecord, read_process
from tests.each_row import each_row
from tests.fakes.http_server import wait_until
from tests.sources.discovery.servers import Servers, free_port

FIRST = 4_100_000
"""Pids that no process has (the kernel's limit is 2^22)."""


def family(*lines: str) -> tuple[ProcessRecord, ...]:
    """A process on a GPU and its ancestors."""
    return tuple(
        ProcessRecord(FIRST + at * 1000, FIRST + (at + 1) * 1000, 1, "x", tuple(shlex.split(line)), 0)
        for at, line in enumerate(lines)
    )


@each_row(
    ("lines", "at", "kind"),
    [
        (["VLLM::Worker_TP0", "VLLM::EngineCore", "python3 /bin/vllm serve m", "bash start.sh"], 2, EngineKind.VLLM),
        (["text-generation-server serve m", "text-generation-launcher --model-id m"], 1, EngineKind.TGI),
        (["VLLM::EngineCore", "/opt/triton_python_backend_stub /m", "tritonserver --model-repository=/m"], 2,
         EngineKind.TRITON),
        (["llama-server --model /blobs/sha256-1 --port 40001", "/usr/local/bin/ollama serve"], 0,
         EngineKind.LLAMA_CPP),
        (["/usr/local/bin/ollama runner --model x --port 4", "/usr/local/bin/ollama serve"], 1, EngineKind.OLLAMA),
        (["VLLM::EngineCore", "python3 -m dynamo.vllm --model m"], 1, EngineKind.DYNAMO),
        (["python3 -m nim_llm_sdk.entrypoints.launch", "bash /opt/nim/start_server.sh"], 0, EngineKind.NIM),
        (["VLLM::EngineCore", "python3 /bin/vllm serve m", "bash /opt/nim/start_server.sh"], 1, EngineKind.VLLM),
        (["VLLM::EngineCore", "python3 /bin/vllm serve m", "ray::JobSupervisor", "raylet --metrics_export_port=1"], 1,
         EngineKind.VLLM),
        (["VLLM::EngineCore", "python3 my_server.py", "bash run.sh"], 1, EngineKind.VLLM),
        (["ray::RayWorkerWrapper", "raylet --metrics_export_port=8085"], 1, EngineKind.RAY),
    ],
)  # fmt: skip
def test_the_server_among_the_ancestors(lines: Sequence[str], at: int, kind: EngineKind) -> None:
    chain = family(*lines)
    found = server_in(chain)
    assert found is not None
    assert (found[0], found[1].kind) == (chain[at], kind)


def test_the_first_process_is_not_the_program_that_an_engine_it_adopted_runs_in() -> None:
    worker = ProcessRecord(FIRST, 1, 5, "VLLM::EngineCor", ("VLLM::EngineCore",), 0)
    supervisor = ProcessRecord(1, 0, 1, "supervisord", ("/usr/bin/python3", "/usr/bin/supervisord"), 0)
    found = server_in((worker, supervisor))
    assert found is not None
    assert found[0] == worker


@each_row("lines", [["python train.py", "torchrun train.py"], ["ray::train", "raylet --x=1"], ["Xorg"]])
def test_no_server_among_the_ancestors(lines: Sequence[str]) -> None:
    assert server_in(family(*lines)) is None


def test_workers_of_ray_whose_server_is_elsewhere_say_so(engines: Servers) -> None:
    started = engines.start("raylet", f"--metrics_export_port={free_port()}", workers=["ray::RayWorkerWrapper"])
    (chain,) = DiscoveryLook()(ProcessFamily(frozenset(started.workers)))
    assert "started through Ray by another server" in chain.broken
    serves = engines.start(
        "raylet", f"--metrics_export_port={free_port()}", workers=["ray::RayWorkerWrapper", "ray::ServeReplica:app:LLM"]
    )
    (chain,) = DiscoveryLook()(ProcessFamily(frozenset(serves.workers[:1])))
    assert (chain.broken, chain.server) == ("", read_process(serves.pid))


def test_a_socket_of_the_router_beside_the_worker_is_the_servers(engines: Servers) -> None:
    """TGI: the launcher starts the worker that holds the GPU, and a router that listens."""
    port = free_port()
    started = engines.start(
        "text-generation-launcher", "--model-id", "m", "--port", str(port), workers=["worker"], router=True
    )
    assert wait_until(lambda: DiscoveryLook()(ProcessFamily(frozenset(started.workers)))[0].listens)
    (chain,) = DiscoveryLook()(ProcessFamily(frozenset(started.workers)))
    assert started.asked == []
    assert (chain.url, chain.listens, chain.model) == (f"http://127.0.0.1:{port}", True, "m")


def test_a_wildcard_socket_is_asked_on_loopback(engines: Servers) -> None:
    for address in ("0.0.0.0", "127.0.0.9"):
        started = engines.start("vllm", "serve", "m", "--port", str(port := free_port()), address=address)
        (chain,) = DiscoveryLook()(ProcessFamily(frozenset([started.pid])))
        assert chain.url == f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}"
