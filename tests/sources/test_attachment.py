"""What is joined to an engine's poll: its model, what it marks on it, and the reason for no GPU."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.config.schema import Endpoint
from gpumon.readings.check import CheckState
from gpumon.readings.frame import EndpointState, EngineReading, GpuReading, GpuState, RankReading
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.diagnosis import engine_checks
from gpumon.sources.endpoint import EndpointSource
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.polling import CARDS, PAGE, PATIENT, until, vllm

CONFIGS = json.loads((Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8"))
LABEL = b"meta-llama/Llama-3.1-70B"
HUNG = """
import asyncio, os, time
from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.sources import attachment, model_facts

real = os.open
def hanging(path, *args, **how):
    if path == "dead":
        time.sleep(600)
    return real(path, *args, **how)
os.open = hanging

def reading(n, root):
    info = {"identity": "known"}
    name, url = f"meta-llama/Llama-3.1-8B-{n}", f"http://127.0.0.1:{n}"
    return EngineReading("e", url, EndpointState.OK, 0.0, model="meta-llama/Llama-3.1-8B", model_root=root, info=info)

async def main():
    attachment._SILENT_S = 0.2
    model_facts.TURN_S = 0.2
    facts = attachment.EngineResolver({}, (), None)
    dead = [reading(n, f"/dead/{n}") for n in range(1, 41)]
    for one in dead:
        facts.attach(one, ())
    end = time.monotonic() + 60
    while (good := facts.attach(reading(99, "/none"), ())).llm is None and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    print(good.llm is not None, facts.attach(dead[0], ()).info.get("model_missing"), flush=True)

asyncio.run(main())
"""


def test_model_files_that_hang_hold_up_neither_the_exit_nor_other_models() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("True its files do not answer (/dead/1)"), done.stderr
    assert done.stderr == ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An 8B model's own files, served under a label that says 70B."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["Llama-3.1-8B"]))
    return tmp_path


def labelled(cards: Reply) -> object:
    """A server whose metrics name the label, and what it answers on /v1/models."""

    def answer(request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply(200, PAGE.replace(b'"m"', b'"%s"' % LABEL))
        return cards if request.path == "/v1/models" else vllm(request)

    return answer


async def params(cards: Reply, model: str = "") -> list[float]:
    """Parameters (in 1e9) of the models that were resolved, in their order, until a second after the identity came."""
    seen: list[float] = []
    with LoopbackServer(labelled(cards)) as server:  # type: ignore[arg-type]
        endpoint = Endpoint(url=server.url, model=model)
        source = EndpointSource(endpoint, 0.05, limits=PATIENT)
        facts = EngineResolver({source.reading.url: endpoint}, (), None)
        await source.start()
        assert await until(lambda: source.reading.state is EndpointState.OK)
        end_s = time.monotonic() + 1.2
        while time.monotonic() < end_s or (not seen and time.monotonic() < end_s + 60.0):
            llm = facts.attach(source.reading, ()).llm
            if llm is not None and round(llm.params / 1e9, 2) not in seen[-1:]:
                seen.append(round(llm.params / 1e9, 2))
            await asyncio.sleep(0.01)
        await source.close()
    return seen


async def test_the_label_is_not_believed_while_the_root_is_still_to_come(folder: Path) -> None:
    cards = CARDS.replace(b'"m"', b'"%s"' % LABEL).replace(b"/models/m", bytes(folder))
    assert await params(Reply(200, cards, "application/json", delay_s=0.3)) == [8.03]


class Told:
    """An owner that is told the processes, and knows no GPU."""

    pids: frozenset[int] = frozenset()

    def gpus_of(self, url: str, gpus: tuple[GpuReading, ...]) -> tuple[tuple[str, ...], str]:
        return (), ""

    def pids_of(self, url: str) -> frozenset[int]:
        return self.pids


@pytest.fixture
def listening() -> Iterator[str]:
    """URL of a port at which this user listens: the rights of that user count for what its server names."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


async def test_a_model_stays_known_while_the_processes_of_its_server_are_found(folder: Path, listening: str) -> None:
    owner = Told()
    facts = EngineResolver({}, (), owner, os.environ)

    def poll() -> EngineReading:
        told = {"model": "m", "model_root": str(folder), "info": {"identity": "known"}}
        return facts.attach(EngineReading("e", listening, EndpointState.OK, 0.0, **told), ())

    assert await until(lambda: poll().llm is not None)
    owner.pids = frozenset([os.getpid()])
    for _ in range(50):
        assert poll().llm is not None
        await asyncio.sleep(0.002)


def why_no_gpu(*gpus: GpuReading, nvml: bool = True, **settings: object) -> str:
    endpoint = Endpoint(url="http://127.0.0.1:1", **settings)  # type: ignore[arg-type]
    reading = EngineReading("e", endpoint.url, EndpointState.OK, 0.0)
    found = EngineResolver({endpoint.url: endpoint}, (), None, nvml=nvml).attach(reading, gpus)
    assert found.gpus == ()
    return found.gpus_source


def test_why_there_is_no_gpu() -> None:
    gpu = GpuReading(0, "GPU-0", "H100", GpuState.OK, 0.0)
    assert why_no_gpu().startswith("no GPU of this host is known yet")
    assert why_no_gpu(gpus=(0,)).startswith("no GPU of this host is known yet")
    assert why_no_gpu(nvml=False).startswith("GPUs are not read (--no-nvml): set gpu_type")
    assert why_no_gpu(nvml=False, gpu_type="H100 SXM 80GB") == "config (another host)"
    assert "discovery is off" in why_no_gpu(gpu)
    assert why_no_gpu(gpu, gpus=(3,)) == "the config names GPU 3, its host has [0]"


URL = "http://127.0.0.1:8080"
REAL = Path(__file__).parents[1] / "data" / "gguf" / "tiny-llama.header.gz"
ASKED = {"identity": "none"}


def reading(model: str, drafts: float = 0.0, **info: str) -> EngineReading:
    rank = RankReading("0", {"drafts": drafts} if drafts else {}, {}, {})
    return EngineReading("e", URL, EndpointState.OK, 0.0, model=model, info={**ASKED, **info}, ranks=(rank,))


async def attached(facts: EngineResolver, one: EngineReading) -> EngineReading:
    """The reading once its model was looked for."""
    for _ in range(500):
        done = facts.attach(one, ())
        if done.llm is not None or "model_missing" in done.info:
            return done
        await asyncio.sleep(0.01)
    raise AssertionError("the model is still looked for")


@pytest.fixture
def facts() -> EngineResolver:
    return EngineResolver({}, (), None, {})


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may read: whose server it is is not known here."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_llama_cpp_server_with_its_file_on_this_host(facts: EngineResolver, public: Path) -> None:
    path = public / "tiny-llama.gguf"
    path.write_bytes(gzip.decompress(REAL.read_bytes()))
    first = await attached(facts, reading("tiny-llama", params="19335424", weight_bytes="38675456", hidden="256"))
    assert first.llm is None
    assert "lack layers, heads" in first.info["model_missing"]
    # /props was answered by now: what was not known is looked for again.
    one = reading("tiny-llama", params="19335424", weight_bytes="38675456", hidden="256", model_path=str(path))
    done = await attached(facts, one)
    assert done.llm is not None
    assert (done.llm.params, done.llm.stored_bytes) == (19_335_424, 38_675_456)
    assert "model_missing" not in done.info
    model = next(check for check in engine_checks([done], (), ()) if check.name == "e model")
    assert model.state is CheckState.OK
    assert f"4 layers, fp16 (from {path} (mostly F16, 16.00 bits per weight))" in model.text


async def test_what_runs_beside_the_forward_pass_is_marked_and_not_looked_up_again(facts: EngineResolver) -> None:
    plain = await attached(facts, reading("Qwen/Qwen3-8B"))
    assert plain.llm is not None
    assert plain.llm.not_modelled == ()
    marked = facts.attach(reading("Qwen/Qwen3-8B", drafts=3.0, lora="2", modalities="vision", context_len="9"), ())
    assert marked.llm is not None
    assert marked.llm.not_modelled == ("LoRA adapters", "vision encoder", "speculative drafts")
    again = facts.attach(reading("Qwen/Qwen3-8B", drafts=3.0, speculation="EAGLE"), ())
    assert again.llm is not None
    assert again.llm.not_modelled == ("speculative drafts",)
    assert facts.attach(reading("Qwen/Qwen3-8B"), ()).llm is plain.llm
