"""Models of engines that are found: what only the command line, the working folder or Ollama's store tell of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.model_files import ollama_name
from gpumon.specs.precision import Precision
from tests.sources.discovery.servers import Servers, free_port, gpus
from tests.sources.discovery.test_following import CORE, PAGES, Followed, following
from tests.sources.discovery.test_namespaces import permitted
from tests.sources.gguf_writer import write
from tests.specs.gguf_tables import F16, header, matrices

DIGEST = "0123456789abcdef" * 4
SLOTS = '[{"id": 0, "n_ctx": 512, "is_processing": false, "next_token": [{"n_decoded": 0}]}]'
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
TINY = header(CONFIG, matrices(F16))


async def modelled(followed: Followed, pid: int, env: Mapping[str, str] | None = None) -> EngineReading:
    """The engine's reading once its model is known; `env` is that of gpumon."""
    facts = EngineResolver(followed.endpoints, (), followed.owner, env or {})
    followed.see(gpus([pid]))
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        for reading in await followed.look():
            attached = facts.attach(reading, followed.gpus)
            if attached.llm is not None:
                return attached
        await asyncio.sleep(0.02)
    raise AssertionError(f"no model: {followed.readings} {followed.faults}")


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    """A model's file in a store of Ollama, with a manifest beside one of another model."""
    store = tmp_path / "models"
    for name, digest in (("other/1b", "f" * 64), ("tiny/2b", DIGEST)):
        path = store / "manifests" / "registry.ollama.ai" / "library" / name
        path.parent.mkdir(parents=True)
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
        path.write_text(json.dumps({"layers": [layer]}))
    return write(store / "blobs" / f"sha256-{DIGEST}", TINY)


async def test_the_server_that_ollama_started_is_read_under_the_models_name(
    engines: Servers, blob: Path, tmp_path: Path
) -> None:
    ollama = tmp_path / "ollama"
    ollama.write_text("import subprocess, sys, time; subprocess.call(sys.argv[2:]); time.sleep(600)")
    server = engines.start(
        "llama-server", "--model", str(blob), "--port", str(free_port()), "-ctk", "q8_0",
        pages={"/slots": [200, SLOTS]}, inside=[sys.executable, str(ollama), "serve"],
    )  # fmt: skip
    assert server.pid != server.process.pid
    async with following(grace_s=60.0) as followed:
        reading = await modelled(followed, server.pid)
        os.kill(server.pid, signal.SIGKILL)
        followed.see(gpus([]))
        await followed.until(lambda: followed.readings == ())  # unloaded: nothing that could be mended
    assert (reading.kind, reading.url, reading.model) == (EngineKind.LLAMA_CPP, server.url, "tiny:2b")
    assert reading.llm is not None
    assert reading.llm.source.startswith(f"{blob} (mostly F16")
    assert reading.llm.kv_precision is Precision.INT8


@pytest.mark.parametrize(
    ("below", "name"),
    [
        ("registry.ollama.ai/library/llama3/8b", "llama3:8b"),
        ("registry.ollama.ai/me/llama3/8b", "me/llama3:8b"),
        ("hf.co/org/Llama-GGUF/Q4_K_M", "hf.co/org/Llama-GGUF:Q4_K_M"),
    ],
)
def test_a_file_of_ollamas_store_has_the_name_that_ollama_takes(tmp_path: Path, below: str, name: str) -> None:
    path = tmp_path / "manifests" / below
    path.parent.mkdir(parents=True)
    blob = tmp_path / "blobs" / f"sha256-{DIGEST}"
    assert ollama_name(blob) == ""
    path.write_text(json.dumps({"layers": [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'a' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}"},
    ]}))  # fmt: skip
    assert ollama_name(blob) == name
    assert ollama_name(tmp_path / "blobs" / f"sha256-{'a' * 64}") == ""
    assert ollama_name(tmp_path / f"sha256-{DIGEST}") == ""


needs_mounts = pytest.mark.skipif(
    not permitted("unshare", "--mount"), reason="making a mount namespace is not permitted here (needs root)"
)


def contained(folder: Path, inside: Path) -> list[str]:
    """The words to run in a file system of its own, where `inside` stands in the place of `folder`."""
    script = f'mount --bind "{inside}" "{folder}"; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


@needs_mounts
@pytest.mark.parametrize("way", ["path", "cache", "link"])
async def test_files_of_a_container_are_read_where_its_engine_reads_them(
    engines: Servers, tmp_path: Path, way: str
) -> None:
    """On this host another model lies at the same path, and another snapshot in the cache of this user.

    A link of the container leads to that path.
    """
    for place, layers in (("mounted", 4), ("inside", 2)):
        folder = tmp_path / place / "hub" / "models--acme--one" / "snapshots" / "main"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    mounted = tmp_path / "mounted"
    folder = mounted / "hub" / "models--acme--one" / "snapshots" / "main"
    (tmp_path / "link").symlink_to(folder)
    root = {"path": str(folder), "cache": "acme/one", "link": str(tmp_path / "link")}[way]
    card = {"data": [{"id": "m", "root": root}]}
    server = engines.start(
        "vllm", "serve", root, "--port", str(free_port()), pages={**PAGES, "/v1/models": [200, json.dumps(card)]},
        inside=contained(mounted, tmp_path / "inside"), env={"HF_HOME": str(mounted)}, workers=CORE,
    )  # fmt: skip
    async with following() as followed:
        reading = await modelled(followed, server.workers[0], {"HF_HOME": str(mounted)})
    assert reading.llm is not None
    assert reading.llm.layers == 2
    place = tmp_path / "link" if way == "link" else folder
    assert reading.llm.source == f"/proc/{server.workers[0]}/root{place}/config.json"
