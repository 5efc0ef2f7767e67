"""The ladder of model facts on real files: config entry, own files, Hugging Face cache, catalogue, what to add."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Model
from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.file_views import view
from gpumon.sources.model_contents import MOST_MODEL_CONFIG_BYTES, read_weights
from gpumon.sources.model_facts import ModelLookUp, from_entry, look_up
from gpumon.sources.model_files import gguf_paths, model_folders
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.gguf import GgufHeader
from gpumon.specs.llm import LlmSpec
from tests.each_row import each_row
from tests.records import replace
from tests.sources.gguf_writer import write
from tests.specs import checkpoint_files
from tests.specs.gguf_tables import header, q4_k_m

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8")
)
LLAMA = CONFIGS["Llama-3.1-8B"]
Q4 = header(LLAMA, q4_k_m(32))
ENTRY = Model(
    match="acme/*-8b",
    params_b=8.03,
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    vocab=128256,
)


def ask(
    model_id: str, root: str = "", models: tuple[Model, ...] = (), env: dict[str, str] | None = None, **hints: str
) -> ModelLookUp:
    return look_up(model_id, root, models, llm_catalogue(), (view(env or {}),), hints)


def found(*args: Any, **kwargs: Any) -> LlmSpec:
    facts = ask(*args, **kwargs)
    assert facts.spec is not None, facts.why
    assert facts.why == facts.spec.source
    return facts.spec


def folder(path: Path, config: dict[str, Any] | str, index: float | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.joinpath("config.json").write_text(config if isinstance(config, str) else json.dumps(config), "utf-8")
    if index is not None:
        body = {"metadata": {"total_size": index}, "weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
        path.joinpath("model.safetensors.index.json").write_text(json.dumps(body), "utf-8")
    return path


def cached(hub: Path, name: str, commit: str, config: dict[str, Any], main: bool = True) -> Path:
    """As huggingface_hub lays it out: files are links into `blobs`."""
    repository = hub / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    (repository / "blobs" / f"{commit}-config").write_text(json.dumps(config), "utf-8")
    (snapshot / "config.json").symlink_to(Path("../../blobs") / f"{commit}-config")
    if main:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
    return snapshot


def test_a_config_entry_comes_first(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", LLAMA)
    spec = found("acme/llama-8b", str(path), (ENTRY,))
    assert spec.source == "config [[model]] 'acme/*-8b'"
    assert spec.name == "acme/llama-8b"
    real = found("x", str(path))
    assert spec.matmul_params == pytest.approx(real.matmul_params, rel=0.001)
    assert spec.read_bytes == pytest.approx(real.read_bytes, rel=0.001)
    assert kv_bytes_per_token(spec) == kv_bytes_per_token(real)


def test_the_models_own_files_at_its_root(tmp_path: Path) -> None:
    exact = found("m", str(folder(tmp_path / "plain", LLAMA)))
    path = folder(tmp_path / "m", LLAMA, index=16.2e9)
    spec = found("served-name", str(path))
    assert spec.source == f"{path}/config.json"
    assert (spec.read_bytes, spec.params) == (exact.read_bytes, exact.params)  # files of 1% more agree with them


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_the_hugging_face_cache(tmp_path: Path, variable: str) -> None:
    below = {"HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub", "HOME": ".cache/huggingface/hub"}
    snapshot = cached(tmp_path / below.get(variable, "."), "acme/eight", "c0ffee", LLAMA)
    spec = found("acme/eight", "acme/eight", env={variable: str(tmp_path)})
    assert spec.source == f"{snapshot}/config.json"
    assert ask("acme/eight").spec is None


def test_of_several_snapshots_the_one_of_main_then_the_newest(tmp_path: Path) -> None:
    old = cached(tmp_path, "acme/eight", "aaa", LLAMA)
    new = cached(tmp_path, "acme/eight", "bbb", LLAMA, main=False)
    os.utime(old, (1, 1))
    env = {"HF_HUB_CACHE": str(tmp_path)}
    assert list(model_folders("acme/eight", view(env))) == [old, new]
    (tmp_path / "models--acme--eight" / "refs" / "main").unlink()
    assert list(model_folders("acme/eight", view(env))) == [new, old]


def test_a_path_in_the_cache_of_a_container_is_found_in_the_cache_of_this_host(tmp_path: Path) -> None:
    newest = cached(tmp_path, "acme/eight--b", "c0ffee", LLAMA)
    older = cached(tmp_path, "acme/eight--b", "0dd", LLAMA, main=False)
    below = "/absent/.cache/huggingface/hub/models--acme--eight--b/snapshots"
    env = {"HF_HUB_CACHE": str(tmp_path)}
    assert found("x", f"{below}/0dd", env=env).source == f"{older}/config.json"
    assert found("x", f"{below}/gone/", env=env).source == f"{newest}/config.json"


def test_files_that_can_not_be_read_fall_through_to_the_catalogue(tmp_path: Path) -> None:
    path = folder(tmp_path / "Llama-3.1-8B", LLAMA)
    (path / "config.json").write_text("{", "utf-8")
    assert found("x", str(path)).source == "catalogue row Llama-3.1-8B"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model_type": "new_llama"}, "model_type 'new_llama' is not a known architecture"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"model_type": "diffusion_gemma"}, "model_type 'diffusion_gemma' is not modelled: it computes a block"),
    ],
)
def test_no_catalogue_row_stands_in_for_files_of_another_architecture(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    path = folder(tmp_path / "Llama-3.1-8B", {**LLAMA, **change})
    spec, why, _ = ask("meta-llama/Llama-3.1-8B", str(path))
    assert spec is None
    assert problem in why
    assert "[[model]]" in why


@pytest.mark.parametrize("content", ["{", json.dumps({**LLAMA, "num_hidden_layers": "\n[[alert]]"})])
def test_the_name_and_the_values_of_a_file_are_no_lines_of_the_config(tmp_path: Path, content: str) -> None:
    path = folder(tmp_path / "m\n[[alert]]\ncommand = ['reboot']", content)
    spec, why, _ = ask("acme/odd", str(path))
    assert spec is None
    first, _, lines = why.partition("\n")
    assert first.startswith("unknown model (")
    assert set(tomli.loads(lines)) <= {"model"}


def test_an_unknown_model_says_what_was_wrong_and_which_lines_to_add(tmp_path: Path) -> None:
    path = folder(tmp_path / "odd", {**LLAMA, "num_hidden_layers": 0})
    spec, why, _ = ask('acme/"odd"\n7b', str(path))
    assert spec is None
    assert "num_hidden_layers 0 is not a whole number" in why
    lines = why[why.index("[[model]]") :]
    table = tomli.loads(lines)["model"][0]
    assert table.pop("match") == 'acme/"odd"\n7b'
    typed = {"params_b": 7.0, "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}
    assert set(table) == {*typed, "vocab", "tied_embeddings", "weight_precision"}
    assert from_entry(msgspec.convert({**table, **typed, "match": "x"}, Model), "x").layers == 32


def test_the_header_of_a_single_safetensors_file(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", LLAMA)
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [32, 40]},
        "h.0.attn.bias": {"dtype": "F32", "shape": [1, 1, 8, 8], "data_offsets": [40, 296]},
    }
    body = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(body)) + body + bytes(40))
    assert read_weights(path) == {"BF16": 32.0, "F32": 8.0}  # GPT-2's causal mask is no weight


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack("<Q", 5) + b"{]}",
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 446) + b'{"a":{"dtype":"BF16","data_offsets":[0,1%s]}}' % (b"0" * 403),
    ],
)
def test_broken_weights_do_not_hide_the_dimensions(tmp_path: Path, body: bytes) -> None:
    path = folder(tmp_path / "m", LLAMA)
    (path / "model.safetensors").write_bytes(body)
    assert found("m", str(path)).params == pytest.approx(8.03e9, rel=0.001)


@pytest.mark.parametrize(
    "body", ["", "[]", "null", "{", "\x00", "[" * 100_000, '{"a": "' + "x" * MOST_MODEL_CONFIG_BYTES + '"}']
)
def test_a_config_that_is_none_is_told(tmp_path: Path, body: str) -> None:
    path = folder(tmp_path / "odd", body)
    spec, why, _ = ask("odd", str(path))
    assert spec is None
    assert f"{path}/config.json" in why or "config.json" in why
    assert len(why) < 1500


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../../etc",
        "a/../b",
        "/proc/self",
        "a" * 5000,
        "nul\0byte",
        "org/name/more",
        "~/models",
    ],
)
def test_absurd_paths_and_ids_open_nothing(tmp_path: Path, name: str) -> None:
    assert list(model_folders(name, view({"HF_HUB_CACHE": str(tmp_path), "HOME": "/"}))) == []


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_from_a_server_gives_an_answer(model_id: str, root: str) -> None:
    spec, why, _ = ask(model_id, root)
    assert why
    assert spec is None or spec.matmul_params > 0


MOE = Model(
    match="moe",
    params_b=30.53,
    active_params_b=3.35,
    layers=48,
    hidden=2048,
    heads=32,
    kv_heads=4,
    head_dim=128,
    vocab=151936,
    experts=128,
    experts_per_token=8,
)


GEMMA = Model(match="gemma", params_b=0.268, hidden=640, layers=18, vocab=262144, heads=4, kv_heads=1, head_dim=256)
"""Gemma-3-270M as one fills it in without a thought to its tied embeddings."""


def test_tied_embeddings_are_multiplied_once() -> None:
    """Llama-3.2-1B: taking the table off as for untied embeddings would lose 21% of N_mm."""
    row = llm_catalogue().find("meta-llama/Llama-3.2-1B")
    assert row is not None
    entry = Model(
        match="x", params_b=1.2358, layers=16, hidden=2048, heads=32, kv_heads=8, vocab=128256, tied_embeddings=True
    )
    spec = from_entry(entry, "x")
    assert spec.matmul_params == pytest.approx(row.matmul_params, rel=0.005)
    assert spec.read_bytes == pytest.approx(row.read_bytes, rel=0.005)
    untied = from_entry(replace(entry, tied_embeddings=False), "x")
    assert untied.matmul_params == pytest.approx(0.79 * spec.matmul_params, rel=0.01)


def test_an_experts_size_follows_from_all_and_active_parameters() -> None:
    """Qwen3-30B-A3B as its model card gives it: 30.5 B, 3.3 B active with the look-up table."""
    spec, row = from_entry(MOE, "moe"), llm_catalogue().find("Qwen/Qwen3-30B-A3B")
    assert row is not None
    assert spec.expert_params == pytest.approx(row.expert_params, rel=0.001)
    assert spec.matmul_params == pytest.approx(row.matmul_params, rel=0.01)
    assert spec.read_bytes == pytest.approx(row.read_bytes, rel=0.01)
    assert spec.expert_read_bytes == spec.expert_params * 2


@each_row(
    ("entry", "problem"),
    [
        (replace(MOE, active_params_b=None), "active_params_b is missing"),
        (replace(MOE, active_params_b=1.0), "active_params_b is less than its experts alone"),
        (replace(MOE, experts_per_token=0), "experts_per_token 0 is not from 1 to 127"),
        (replace(ENTRY, active_params_b=9.0), "active_params_b is more than params_b"),
        (replace(ENTRY, params_b=0.1), "params_b 0.1 is too small for that"),
        (
            GEMMA,
            "vocab x hidden is 0.168e9, and untied embeddings have it twice (or is tied_embeddings true?): "
            "params_b 0.268 is too small for that",
        ),
        (
            replace(GEMMA, params_b=0.1, tied_embeddings=True),
            "vocab x hidden is 0.168e9: params_b 0.1 is too small for that",
        ),
        (
            replace(MOE, params_b=30.53, active_params_b=0.6, experts_per_token=1, experts=65),
            "active_params_b 0.6 is too small",
        ),
        (replace(ENTRY, window_layers=33, window=10), "window_layers 33 is more than layers 32"),
        (replace(ENTRY, window_layers=16), "window is missing"),
    ],
)
def test_an_entry_that_contradicts_itself_is_named(entry: Model, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        from_entry(entry, "x")
    spec, why, _ = ask(entry.match.replace("*", "x"), models=(entry,))
    assert spec is None
    assert problem in why
    assert why.startswith("config [[model]]")


# GGUF files, Ollama's store and the engine's own words


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


def test_a_split_file_and_a_folder_with_one_model(tmp_path: Path) -> None:
    first = write(tmp_path / "m" / "llama-Q4_K_M.gguf", Q4, parts=3)
    write(tmp_path / "m" / "mmproj-F16.gguf", Q4)
    whole = found("x", str(write(tmp_path / "whole.gguf", Q4)))
    for root in (first, tmp_path / "m"):
        spec = found("x", str(root))
        assert (spec.params, spec.read_bytes) == (whole.params, whole.read_bytes)
    write(tmp_path / "m" / "llama-BF16.gguf", Q4)
    assert list(gguf_paths(str(tmp_path / "m"), view({}))) == []  # which of the two is served is not known


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


def test_an_engine_that_contradicts_the_name_is_believed() -> None:
    facts = ask("meta-llama/Llama-3.1-8B", layers="80", hidden="8192")
    assert facts.spec is None
    assert "catalogue row Llama-3.1-8B is another model: the engine says layers 80, the row 32" in facts.why
    assert facts.looked[-1].place == "engine"
    assert tomli.loads(facts.why[facts.why.index("[[model]]") :])["model"][0]["match"] == "meta-llama/Llama-3.1-8B"


def test_where_it_was_looked(tmp_path: Path) -> None:
    facts = ask("acme/none", "/models/none", env={"HOME": str(tmp_path)}, lora="2")
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


def test_headers_of_all_files_are_held_against_the_config(tmp_path: Path) -> None:
    """Two files of a model; of three layers more than the config has they tell, where the index has the bytes alone."""
    path = folder(tmp_path / "m", LLAMA)
    checkpoint_files.write(path, checkpoint_files.llama(LLAMA), files=2)
    assert found("m", str(path)).params == pytest.approx(8.03e9, rel=0.001)
    deeper = folder(tmp_path / "deeper", LLAMA)
    checkpoint_files.write(deeper, checkpoint_files.llama({**LLAMA, "num_hidden_layers": 35}), files=2)
    spec, why, _ = ask("deeper", str(deeper))
    assert spec is None
    assert "num_hidden_layers is 32, and the files have 35 layers" in why
    (deeper / "model-00002-of-00002.safetensors").unlink()
    spec, why, _ = ask("deeper", str(deeper))
    assert spec is None
    assert "config.json gives 16.060 GB of weights, and the files hold 17.369 GB" in why


def test_a_module_that_the_files_hold_otherwise_is_named_in_the_source(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["mlp"]}}
    path = folder(tmp_path / "m", config)
    checkpoint_files.write(path, checkpoint_files.llama(LLAMA, checkpoint_files.block_fp8))
    spec = found("m", str(path))
    assert spec.read_bytes == pytest.approx(8.03e9, rel=0.001)
    assert "mlp.gate_proj 1.880 GB in the files, 3.758 by config.json" in spec.source


def test_an_unknown_architecture_is_told_by_the_headers_of_its_files_if_all_are_there(tmp_path: Path) -> None:
    config = {**LLAMA, "model_type": "llama_next"}
    path = folder(tmp_path / "m", config)
    checkpoint_files.write(path, checkpoint_files.llama(LLAMA), files=3)
    spec = found("m", str(path))
    assert spec.stored_bytes == pytest.approx(16.06e9, rel=0.001)
    assert spec.flops_unknown
    assert "by the names of its tensors" in spec.source
    (path / "model-00003-of-00003.safetensors").unlink()
    assert "model_type 'llama_next' is not a known architecture" in ask("m", str(path))[1]
