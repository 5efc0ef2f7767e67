"""The processes of real engines, as ps showed them: the server is found from the one that runs the model."""

from __future__ import annotations

from pathlib import Path

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import ranks
from gpumon.sources.discovery.servers import server_in
from gpumon.sources.family import ProcessRecord
from tests.each_row import each_row

TREES = Path(__file__).resolve().parents[1] / "data" / "process_trees"
VLLM, LLAMA, TRITON = EngineKind.VLLM, EngineKind.LLAMA_CPP, EngineKind.TRITON
FOUND = [
    ("vllm", "VLLM::Worker", VLLM, "tiny-llama", 60773),
    ("vllm", "VLLM::EngineCore", VLLM, "tiny-llama", 60773),
    ("vllm-ngram", "VLLM::Worker", VLLM, "tiny-llama", 48949),
    ("vllm-tp2", "VLLM::Worker_TP1", VLLM, "tiny-llama", 40083),
    ("vllm-dp2", "VLLM::Worker", VLLM, "tiny-llama", 47633),
    ("vllm-0.9", "multiprocessing.spawn", VLLM, "tiny-llama", 36077),
    ("sglang", "sglang::scheduler", EngineKind.SGLANG, "tiny-llama", 50727),
    ("llamacpp", "llama-server", LLAMA, "small-llama", 58177),
    ("llamacpp-router", "--alias tiny-llama", LLAMA, "tiny-llama", 60547),
    ("triton", "/bin/tritonserver", TRITON, "", 46397),
    ("triton", "triton_python_backend_stub", TRITON, "", 46397),
]


def tree(name: str) -> dict[int, ProcessRecord]:
    """The processes of a file, by pid."""
    lines = [line.split(" ", 2) for line in (TREES / f"{name}.txt").read_text().splitlines()[1:]]
    return {
        int(pid): ProcessRecord(int(pid), int(parent), 0, "", tuple(title.strip().split(" ")), 0)
        for pid, parent, title in lines
    }


def chain(name: str, title: str) -> list[ProcessRecord]:
    """A process by a part of its title, and its ancestors, itself first."""
    processes = tree(name)
    one = next(process for process in processes.values() if title in " ".join(process.argv))
    found = [one]
    while (parent := processes.get(found[-1].parent)) is not None:
        found.append(parent)
    return found


@each_row(("name", "title", "kind", "model", "port"), FOUND)
def test_the_server_is_found_from_the_process_that_runs_the_model(
    name: str, title: str, kind: EngineKind, model: str, port: int
) -> None:
    found = server_in(chain(name, title))
    assert found is not None
    _, said = found
    assert (said.kind, said.served_name, said.port) == (kind, model, port)


def test_the_size_of_a_tensor_parallel_group_stands_in_its_titles() -> None:
    titles = [" ".join(process.argv) for process in tree("vllm-tp2").values()]
    assert ranks(titles)[0] == 2


def test_no_recorded_tree_holds_a_secret() -> None:
    texts = [file.read_text() for file in TREES.glob("*.txt")]
    assert len(texts) >= 10
    assert all(word.startswith("token=xxx") for text in texts for word in text.split("access-")[1:])
