"""GGUF files, Ollama's store and the engine's own words in the ladder of model facts, on real files."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Model
from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.model_facts import Facts, look_up
from gpumon.sources.model_files import gguf_paths, view
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.gguf import GgufHeader
from gpumon.specs.hints import HINTS
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


def test_the_file_that_llama_cpp_names(tmp_path: Path) -> None:
    path = tmp_path / "tiny-llama.gguf"
    path.write_bytes(gzip.decompress((DATA / "gguf" / "tiny-llama.header.gz").read_bytes()))
    spec = found("tiny-llama", model_path=str(path), params="19335424", weight_bytes="38675456")
    assert spec.source == f"{path} (mostly F16, 16.00 bits per weight)"
    assert (spec.name, spec.params, spec.stored_bytes) == ("tiny-llama", 19_335_424, 38_675_456)
    assert ask("tiny-llama", model_path="tiny-llama.gguf").spec is None  # whose folder is not known


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


@pytest.mark.parametrize("name", ["hf.co/acme/llama-GGUF:Q4_K_M", "acme/llama-GGUF:Q4_K_M"])
def test_ollamas_store_of_other_registries(tmp_path: Path, name: str) -> None:
    host, owner = ("hf.co", "acme") if name.startswith("hf.co") else ("registry.ollama.ai", "acme")
    blob = ollama(tmp_path, "llama-GGUF", "Q4_K_M", Q4, f"{host}/{owner}")
    assert list(gguf_paths(name, view({"OLLAMA_MODELS": str(tmp_path)}))) == [blob]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        '{"layers": [3]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../x"}]}',
    ],
)
def test_a_broken_manifest_gives_nothing(tmp_path: Path, body: str) -> None:
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "m" / "t"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(body)
    assert list(gguf_paths("m:t", view({"OLLAMA_MODELS": str(tmp_path)}))) == []


@pytest.mark.parametrize(
    "name", ["", "..", "/etc/../x.gguf", "a/../b:t", "/proc/self/exe", "m:t\0", "m:", ":t", "a/b/c/d:t", "x" * 9000]
)
def test_absurd_names_open_nothing(tmp_path: Path, name: str) -> None:
    assert list(gguf_paths(name, view({"OLLAMA_MODELS": str(tmp_path), "HF_HUB_CACHE": str(tmp_path)}))) == []


def test_a_broken_file_is_told_and_the_name_still_helps(tmp_path: Path) -> None:
    path = tmp_path / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    path.write_bytes(write(tmp_path / "whole", Q4).read_bytes()[:5000])
    facts = ask("chat", str(path))
    assert facts.spec is not None
    assert facts.spec.source == "catalogue row Llama-3.1-8B, q4_k_m by its name"
    assert [each.place for each in facts.looked] == ["config", "files", "catalogue"]
    assert "a download that was cut off?" in facts.looked[1].found
    unknown = ask("chat", str(path.rename(tmp_path / "odd.gguf")))
    assert unknown.spec is None
    assert "a download that was cut off?" in unknown.why


def test_weights_that_the_engine_narrows_at_load(tmp_path: Path) -> None:
    """`--quantization fp8` on a BF16 checkpoint: half of the bytes of its files are read."""
    path = folder(tmp_path / "m", LLAMA)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 16.06e9}}))
    wide, narrow = found("m", str(path)), found("m", str(path), quantization="fp8", weight_precision="bfloat16")
    head = wide.vocab * wide.hidden
    assert narrow.read_bytes == pytest.approx((wide.matmul_params - head) + 2 * head)
    assert (narrow.precision, wide.precision) == (Precision.FP8, Precision.BF16)
    assert narrow.source == f"{path}/config.json, fp8 at load as the engine says"


def test_a_checkpoint_that_says_how_it_is_stored_is_believed(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    spec = found("m", str(folder(tmp_path / "m", config)), quantization="fp8")
    assert (spec.precision, spec.source) == (Precision.INT4, f"{tmp_path}/m/config.json")


def test_the_caches_format_applies_wherever_the_spec_is_from(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", LLAMA)
    for name, root in (("m", str(path)), ("Qwen/Qwen3-8B", ""), ("mine", "")):
        half = found(name, root, models=(ENTRY,), kv_dtype="fp8_e4m3")
        assert half.kv_precision is Precision.FP8
        assert kv_bytes_per_token(half) == kv_bytes_per_token(found(name, root, models=(ENTRY,))) / 2


def test_files_come_before_the_engines_words_and_those_before_the_name(tmp_path: Path) -> None:
    hints = {"params": "8030261312", "vocab": "128256", "hidden": "4096", "weight_bytes": "4912898304"}
    spec = found("Llama-3.1-8B", **hints)
    assert spec.stored_bytes == 4912898304
    assert "as the engine says" in spec.source
    path = folder(tmp_path / "m", LLAMA)
    assert found("Llama-3.1-8B", str(path), **hints).source == f"{path}/config.json"


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


@given(
    st.text(max_size=60), st.text(max_size=60), st.dictionaries(st.sampled_from(sorted(HINTS)), st.text(max_size=20))
)
def test_any_text_from_a_server_gives_an_answer(name: str, root: str, hints: dict[str, str]) -> None:
    facts = ask(name, root, **hints)
    assert facts.why
    assert facts.looked
    assert facts.spec is None or facts.spec.matmul_params > 0
