"""GGUF files, Ollama's store and the engine's own words in the ladder of model facts, on real files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import tomli

from gpumon.config.schema import Model
from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.model_facts import Facts, look_up
from gpumon.sources.model_files import gguf_paths, view
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.gguf import GgufHeader
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision
from tests.sources.gguf_writer import write
from tests.specs.gguf_tables import BF16, header, matrices, q4_k_m

DATA = Path(__file__).parents[1] / "data"
CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "model_configs.json").read_text("utf-8"))
LLAMA = CONFIGS["Llama-3.1-8B"]
Q4 = header(LLAMA, q4_k_m(32))
ENTRY = Model(match="mine", params_b=8.0, layers=32, hidden=4096, heads=32)


def ask(
    name: str, root: str = "", env: dict[str, str] | None = None, models: tuple[Model, ...] = (), **hints: str
) -> Facts:
    return look_up(name, root, models, llm_catalogue(), (view(env or {}),), hints)


def found(*args: Any, **kwargs: Any) -> LlmSpec:
    facts = ask(*args, **kwargs)
    assert facts.spec is not None, facts.why
    assert facts.why.startswith(facts.spec.source)
    return facts.spec


def folder(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def ollama(store: Path, name: str, tag: str, header_: GgufHeader, where: str = "registry.ollama.ai/library") -> Path:
    """As Ollama lays it out: a manifest that names blobs by their digest."""
    draft = write(store / "blobs" / "draft", header_)
    digest = hashlib.sha256(draft.read_bytes()).hexdigest()
    blob = draft.rename(store / "blobs" / f"sha256-{digest}")
    manifest = store / "manifests" / where / name / tag
    manifest.parent.mkdir(parents=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}", "size": 3},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 5},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def test_a_config_entry_comes_before_the_file_and_the_file_before_the_name(tmp_path: Path) -> None:
    path = write(tmp_path / "Qwen3-8B.gguf", Q4)
    assert found("mine", str(path), models=(ENTRY,)).source == "config [[model]] 'mine'"
    spec = found("Qwen/Qwen3-8B", str(path))
    assert (spec.vocab, spec.precision) == (128256, Precision.INT4)


def test_a_split_file_and_a_folder_with_one_model(tmp_path: Path) -> None:
    first = write(tmp_path / "m" / "llama-Q4_K_M.gguf", Q4, parts=3)
    write(tmp_path / "m" / "mmproj-F16.gguf", Q4)
    whole = found("x", str(write(tmp_path / "whole.gguf", Q4)))
    for root in (first, tmp_path / "m"):
        spec = found("x", str(root))
        assert (spec.params, spec.read_bytes) == (whole.params, whole.read_bytes)
    write(tmp_path / "m" / "llama-BF16.gguf", Q4)
    assert list(gguf_paths(str(tmp_path / "m"), view({}))) == []  # which of the two is served is not known


def test_the_hugging_face_cache_by_repository_and_tag(tmp_path: Path) -> None:
    """llama.cpp's `-hf org/name-GGUF:Q4_K_M`."""
    snapshot = tmp_path / "models--acme--llama-GGUF" / "snapshots" / "c0ffee"
    write(snapshot / "llama-Q4_K_M.gguf", Q4)
    write(snapshot / "llama-BF16.gguf", header(LLAMA, matrices(BF16)))
    env = {"HF_HUB_CACHE": str(tmp_path)}
    assert found("chat", "acme/llama-GGUF:Q4_K_M", env).precision is Precision.INT4
    assert found("chat", "acme/llama-GGUF:BF16", env).precision is Precision.BF16
    assert ask("chat", "acme/llama-GGUF", env).spec is None
    assert ask("chat", "acme/llama-GGUF:Q8_0", env).spec is None


def test_ollamas_store_by_name_and_tag(tmp_path: Path) -> None:
    blob = ollama(tmp_path / ".ollama" / "models", "llama3.1", "8b", Q4)
    for env in ({"HOME": str(tmp_path)}, {"OLLAMA_MODELS": str(tmp_path / ".ollama" / "models")}):
        spec = found("llama3.1:8b", env=env)
        assert spec.source.startswith(f"{blob} (mostly Q4_K")
        assert kv_bytes_per_token(spec) == 131072
    # A name without a tag may be anybody's: a vLLM that serves `llama3.1` has other weights.
    assert list(gguf_paths("llama3.1", view({"HOME": str(tmp_path)}))) == []
    assert list(gguf_paths("llama3.1:70b", view({"HOME": str(tmp_path)}))) == []
    assert found("chat", str(blob)).params == spec.params  # as `llama-server --model` names it


def test_weights_that_the_engine_narrows_at_load(tmp_path: Path) -> None:
    """`--quantization fp8` on a BF16 checkpoint: half of the bytes of its files are read."""
    path = folder(tmp_path / "m", LLAMA)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 16.06e9}}))
    wide, narrow = found("m", str(path)), found("m", str(path), quantization="fp8", weight_precision="bfloat16")
    head = wide.vocab * wide.hidden
    assert narrow.read_bytes == pytest.approx((wide.matmul_params - head) + 2 * head)
    assert (narrow.precision, wide.precision) == (Precision.FP8, Precision.BF16)
    assert narrow.source == f"{path}/config.json, fp8 at load as the engine says"


def test_an_engine_that_contradicts_the_name_is_believed() -> None:
    facts = ask("meta-llama/Llama-3.1-8B", layers="80", hidden="8192")
    assert facts.spec is None
    assert "catalogue row Llama-3.1-8B is another model: the engine says layers 80, the row 32" in facts.why
    assert facts.looked[-1].place == "engine"
    assert tomli.loads(facts.why[facts.why.index("[[model]]") :])["model"][0]["match"] == "meta-llama/Llama-3.1-8B"


def test_where_it_was_looked(tmp_path: Path) -> None:
    facts = ask("acme/none", "/models/none", {"HOME": str(tmp_path)}, lora="2")
    assert facts.spec is None
    assert [tuple(each) for each in facts.looked] == [
        ("config", "no [[model]] entry matches"),
        (
            "files",
            f"none in /models/none, {tmp_path}/.cache/huggingface/hub, {tmp_path}/.ollama/models, "
            "/usr/share/ollama/.ollama/models",
        ),
        ("engine", "says nothing of its dimensions"),
        ("catalogue", "no row of this name"),
    ]
