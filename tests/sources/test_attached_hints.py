"""What an engine says of its model, joined to its polls: the spec it gives, what it marks, when it is asked anew."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.readings.check import CheckState
from gpumon.readings.frame import EndpointState, EngineReading, RankReading
from gpumon.sources.attachment import EngineFacts
from gpumon.sources.diagnosis import engine_checks

URL = "http://127.0.0.1:8080"
REAL = Path(__file__).parents[1] / "data" / "gguf" / "tiny-llama.header.gz"
ASKED = {"identity": "none"}


def reading(model: str, drafts: float = 0.0, **info: str) -> EngineReading:
    rank = RankReading("0", {"drafts": drafts} if drafts else {}, {}, {})
    return EngineReading("e", URL, EndpointState.OK, 0.0, model=model, info={**ASKED, **info}, ranks=(rank,))


async def attached(facts: EngineFacts, one: EngineReading) -> EngineReading:
    """The reading once its model was looked for."""
    for _ in range(500):
        done = facts.attach(one, ())
        if done.llm is not None or "model_missing" in done.info:
            return done
        await asyncio.sleep(0.01)
    raise AssertionError("the model is still looked for")


@pytest.fixture
def facts() -> EngineFacts:
    return EngineFacts({}, (), None, {})


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may read: whose server it is is not known here."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_llama_cpp_server_with_its_file_on_this_host(facts: EngineFacts, public: Path) -> None:
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


async def test_what_runs_beside_the_forward_pass_is_marked_and_not_looked_up_again(facts: EngineFacts) -> None:
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
