"""What engines say of their models: real answers, with and without a catalogue row, contradictions, any text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.flops import decode_flops_per_token
from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.hints import HINTS, hints_of
from gpumon.specs.llm import LlmSpec, Reach
from gpumon.specs.llm_hints import from_hints, left_out_by, quantised_at_load, with_kv_dtype
from gpumon.specs.precision import Precision
from gpumon.specs.weight_words import says_nothing, weights_named
from tests.each_row import each_row

ENDPOINTS = Path(__file__).parents[1] / "data" / "captures" / "endpoints"
LLMS = llm_catalogue()
LLAMA = {"params": "8030261312", "vocab": "128256", "hidden": "4096"}
"""As llama.cpp's `/v1/models` has it for Llama-3.1-8B (`n_params`, `n_vocab`, `n_embd`)."""
Q4_K_M = {**LLAMA, "weight_bytes": "4912898304", "weight_precision": "Q4_K - Medium"}
FULL = {
    "architecture": "llama",
    "params": "7000000000",
    "layers": "30",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "vocab": "50000",
    "weight_precision": "fp8",
}


def body(file: str, path: str) -> dict[str, object]:
    """The recorded JSON answer of this path."""
    answer = (ENDPOINTS / file).read_text("utf-8").split(f"== {path}\n", 1)[1].split("\n\n", 1)[1]
    found: dict[str, object] = json.JSONDecoder().raw_decode(answer)[0]
    return found


def ask(hints: dict[str, str], *names: str) -> tuple[LlmSpec | None, list[str]]:
    return from_hints(hints, names[0] if names else "served", names, LLMS)


def found(hints: dict[str, str], *names: str) -> LlmSpec:
    spec, problems = ask(hints, *names)
    assert spec is not None, problems
    return spec


def test_a_recorded_llama_cpp_answer_lacks_layers_and_heads() -> None:
    """Its model has no row, and `/props` and `/v1/models` do not tell the layers: no figure rather than a guess."""
    meta = body("llamacpp-endpoints.txt", "/v1/models")["data"][0]["meta"]  # type: ignore[index]
    props = body("llamacpp-endpoints.txt", "/props")
    hints = {
        "params": str(meta["n_params"]),
        "weight_bytes": str(meta["size"]),
        "vocab": str(meta["n_vocab"]),
        "hidden": str(meta["n_embd"]),
        "model_path": str(props["model_path"]),
        "weight_precision": str(props["model_ftype"]),
    }
    spec, problems = ask(hints, "tiny-llama")
    assert spec is None
    assert problems == [
        "no catalogue row of this name or these figures; the engine's own words lack layers, heads, architecture"
    ]


def test_a_recorded_sglang_answer_lacks_dimensions_and_bytes() -> None:
    info = body("sglang-endpoints.txt", "/model_info")
    hints = {"architecture": str(info["architectures"][0]), "model_path": str(info["model_path"])}  # type: ignore[index]
    assert ask(hints, "tiny-llama") == (None, [])
    hints |= {"weight_precision": "bfloat16", "params": "19335424"}
    assert "weight_bytes or a weight_precision that tells the bits" in ask(hints, "tiny-llama")[1][0]


@each_row("name", ["Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "llama3.1:8b", "meta-llama/Llama-3.1-8B"])
def test_the_catalogues_dimensions_with_the_engines_bytes(name: str) -> None:
    spec, row = found(Q4_K_M, name), LLMS.find("meta-llama/Llama-3.1-8B")
    assert row is not None
    assert (spec.layers, spec.heads, spec.matmul_params) == (row.layers, row.heads, row.matmul_params)
    assert kv_bytes_per_token(spec) == kv_bytes_per_token(row)
    assert spec.stored_bytes == 4912898304
    table_bytes = 128_256 * 4096 * 4.5 / 8
    assert spec.read_bytes == pytest.approx(4912898304 - table_bytes, rel=0.001)
    assert (spec.precision, spec.weight_only) == (Precision.INT4, True)
    assert spec.source.startswith("catalogue row Llama-3.1-8B, ")
    assert "4.91 GB as the engine says" in spec.source


def test_any_name_is_found_by_figures_that_only_one_shape_has() -> None:
    spec = found(Q4_K_M, "my-assistant")
    assert (spec.layers, spec.heads, spec.kv_heads) == (32, 32, 8)
    assert spec.source.endswith(
        "Q4_K - Medium as the engine says, 4.91 GB as the engine says, found by the engine's figures"
    )
    assert ask({**Q4_K_M, "params": "8300000000"}, "my-assistant")[0] is None
    assert ask({**Q4_K_M, "vocab": "128000"}, "my-assistant")[0] is None


def test_figures_that_models_of_different_shape_share_decide_nothing() -> None:
    """DeepSeek-V3 and V3.2: the same weights, another attention."""
    hints = {"params": "671026419200", "vocab": "129280", "hidden": "7168", "weight_bytes": "687000000000"}
    assert ask(hints, "chat")[0] is None
    assert found(hints, "deepseek-ai/DeepSeek-V3.2").attention_layers(Reach.TOP) == 61
    assert found(hints, "deepseek-ai/DeepSeek-V3").attention_layers(Reach.FULL) == 61


def test_bytes_that_fit_the_published_split_keep_it() -> None:
    """gpt-oss-120b: experts at 4.25 bit, the rest at 16; a mean would read too little at small batches."""
    hints = {"params": "116829156672", "weight_bytes": "65248815744", "weight_precision": "MXFP4 MoE"}
    spec, row = found(hints, "openai/gpt-oss-120b"), LLMS.find("openai/gpt-oss-120b")
    assert row is not None
    assert (spec.read_bytes, spec.expert_read_bytes) == (row.read_bytes, row.expert_read_bytes)
    assert spec.source == "catalogue row gpt-oss-120b, 65.25 GB as the engine says"


def test_a_format_that_the_name_does_not_tell() -> None:
    """AWQ served under the name of the base model."""
    spec, row = (
        found({"quantization": "awq_marlin", "weight_precision": "float16"}, "Qwen/Qwen2.5-72B-Instruct"),
        (LLMS.find("Qwen/Qwen2.5-72B-Instruct")),
    )
    assert row is not None
    assert (spec.precision, spec.weight_only) == (Precision.INT4, True)
    assert spec.read_bytes < 0.3 * row.read_bytes
    assert spec.source == "catalogue row Qwen2.5-72B, awq_marlin as the engine says"


SAYS = "as the engine says"


@each_row(
    ("hints", "name", "precision", "source"),
    [
        # A 16-bit type is that of the arithmetic: DeepSeek-V3 is FP8 all the same.
        ({"weight_precision": "bfloat16"}, "deepseek-ai/DeepSeek-V3", Precision.FP8, "DeepSeek-V3"),
        ({"weight_precision": "torch.bfloat16"}, "Qwen/Qwen3-8B", Precision.BF16, "Qwen3-8B"),
        ({"quantization": "fp8"}, "deepseek-ai/DeepSeek-V3", Precision.FP8, "DeepSeek-V3"),
        (
            {"quantization": "compressed-tensors"},
            "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
            Precision.FP8,
            "Llama-3.3-70B, fp8 by its name",
        ),
        (
            {"quantization": "gptq_marlin"},
            "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8",
            Precision.INT8,
            "Qwen2.5-7B, int8 by its name",
        ),
        ({"quantization": "modelopt_fp4"}, "Qwen/Qwen3-32B", Precision.NVFP4, f"Qwen3-32B, modelopt_fp4 {SAYS}"),
        (
            {"parameter_size": "8.0B", "quantization": "Q8_0"},
            "llama3.1:8b",
            Precision.INT8,
            f"Llama-3.1-8B, Q8_0 {SAYS}",
        ),
        (
            {"parameter_size": "4.3B", "quantization": "Q4_K_M"},
            "gemma3:4b",
            Precision.INT4,
            f"Gemma-3-4B, Q4_K_M {SAYS}",
        ),
        (
            {"layers": "47", "weight_precision": "fp8"},
            "zai-org/GLM-4.5-Air",
            Precision.FP8,
            f"GLM-4.5-Air, fp8 {SAYS}",
        ),
    ],
)
def test_how_the_weights_are_stored(hints: dict[str, str], name: str, precision: Precision, source: str) -> None:
    spec = found(hints, name)
    assert (spec.precision, spec.source) == (precision, f"catalogue row {source}")


def test_an_engine_that_says_nothing_leaves_it_to_the_catalogue() -> None:
    assert ask({"quantization": "none", "weight_precision": "auto", "context_len": "4096"}, "Qwen/Qwen3-8B") == (
        None,
        [],
    )


@each_row("word", ["compressed-tensors", "gptq_marlin", "quark", "bitsandbytes", "torchao"])
def test_a_method_that_leaves_the_bits_open_gives_no_figure(word: str) -> None:
    spec, problems = ask({"quantization": word}, "Qwen/Qwen3-8B")
    assert spec is None
    assert problems == [
        f"catalogue row Qwen3-8B: the engine calls its weights {word!r}, which leaves open how many bits they have"
    ]


@each_row(
    ("hints", "problem"),
    [
        ({"layers": "28"}, "the engine says layers 28, the row 32"),
        ({"layers": "34"}, "the engine says layers 34, the row 32"),
        ({"hidden": "5120"}, "the engine says hidden 5120, the row 4096"),
        ({"kv_heads": "32"}, "the engine says kv_heads 32, the row 8"),
        ({"vocab": "32000"}, "the engine says vocab 32000, the row 128256"),
        ({"experts": "8"}, "the engine says experts 8, the row 0"),
        ({"params": "7100000000"}, "the engine says 7.10e9 parameters, the row 8.03e9"),
        ({"parameter_size": "3.2B"}, "the engine says 3.20e9 parameters, the row 8.03e9"),
    ],
)
def test_a_row_that_the_engine_contradicts_is_not_used(hints: dict[str, str], problem: str) -> None:
    spec, problems = ask(hints, "meta-llama/Llama-3.1-8B")
    assert spec is None
    assert problems[0] == f"catalogue row Llama-3.1-8B is another model: {problem}"
    assert problems[1].startswith("the engine's own words lack ")


def test_a_row_that_can_not_be_used_says_so() -> None:
    problems = ask({"quantization": "fp8"}, "google/diffusiongemma-26B-A4B-it")[1]
    assert problems[0] == (
        "catalogue row diffusiongemma-26B-A4B: config.json: model_type 'diffusion_gemma_text' is not modelled: "
        "it computes a block of tokens several times over (diffusion), and no counter says how often"
    )
    assert problems[1].startswith("the engine's own words lack layers, hidden, heads")


@each_row("kv_heads", ["16", "4"])
def test_of_heads_that_differ_by_layer_any_number_is_told(kv_heads: str) -> None:
    """Gemma 4 31B has 16 KV heads in its window layers and 4 in the others."""
    spec = found({"layers": "60", "kv_heads": kv_heads, "weight_precision": "fp8"}, "google/gemma-4-31B-it")
    assert {each.kv_heads for each in spec.attention} == {16, 4}


def test_full_dimensions_of_equal_layers_are_enough() -> None:
    spec = found(FULL, "acme/new")
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim) == (30, 4096, 32, 8, 128)
    assert spec.matmul_params == 7e9
    assert spec.read_bytes == pytest.approx(7e9 + 50000 * 4096)  # the LM head stays at 16 bit
    assert decode_flops_per_token(spec, 1000) == 14e9 + 4 * 32 * 128 * 30 * 1000
    assert found({**FULL, "weight_bytes": "4000000000"}, "acme/new").read_bytes == pytest.approx(4e9)


@each_row(
    ("change", "lacking"),
    [
        ({"layers": ""}, "layers"),
        ({"heads": "many"}, "heads"),
        ({"params": "-1"}, "params"),
        ({"weight_precision": ""}, "weight_bytes or a weight_precision that tells the bits"),
        ({"weight_precision": "bf16"}, "weight_bytes or a weight_precision that tells the bits"),
        ({"architecture": ""}, "architecture"),
        ({"architecture": "qwen3next"}, "the layers of 'qwen3next'"),
        ({"architecture": "Gemma3ForCausalLM"}, "the layers of 'gemma3'"),
        ({"experts": "64"}, "the size of an expert"),
    ],
)
def test_what_full_dimensions_lack_is_named(change: dict[str, str], lacking: str) -> None:
    spec, problems = ask({**FULL, **change}, "acme/new")
    assert spec is None
    assert problems == [f"no catalogue row of this name or these figures; the engine's own words lack {lacking}"]


def test_a_16_bit_type_is_enough_where_the_engine_says_that_nothing_is_quantised() -> None:
    assert found({**FULL, "weight_precision": "bf16", "quantization": "none"}, "x").precision is Precision.BF16


def test_absurd_bytes_are_left_out_and_said() -> None:
    spec = found({"weight_bytes": "12"}, "Qwen/Qwen3-8B")
    assert spec.precision is Precision.BF16
    assert "without the engine's 12 bytes" in spec.source
    assert spec.stored_bytes == 2.0 * spec.params


@each_row(
    ("word", "precision"),
    [
        ("fp8_e4m3", Precision.FP8),
        ("torch.float8_e4m3fn", Precision.FP8),
        ("q8_0", Precision.INT8),
        ("auto", Precision.BF16),
        ("bfloat16", Precision.BF16),
        ("", Precision.BF16),
        ("\x1b[31m", Precision.BF16),
    ],
)
def test_the_format_of_the_cache(word: str, precision: Precision) -> None:
    row = LLMS.find("Qwen/Qwen3-8B")
    assert row is not None
    assert with_kv_dtype(row, {"kv_dtype": word}).kv_precision is precision


@each_row(
    ("hints", "notes"),
    [
        ({}, ()),
        ({"speculation": "EAGLE3"}, ("speculative drafts",)),
        ({"speculation": "none", "lora": "0"}, ()),
        ({"lora": "sql,chat"}, ("LoRA adapters",)),
        ({"modalities": "vision,audio"}, ("vision encoder", "audio encoder")),
    ],
)
def test_what_an_engine_does_beside_the_forward_pass(hints: dict[str, str], notes: tuple[str, ...]) -> None:
    assert left_out_by(hints) == notes


def test_only_a_narrow_format_is_one_that_weights_get_at_load() -> None:
    assert quantised_at_load({"quantization": "fp8", "weight_precision": "bfloat16"})[1] == "fp8"
    for hints in ({"weight_precision": "bfloat16"}, {"quantization": "none"}, {"quantization": "quark"}, {}):
        assert quantised_at_load(hints)[0] is None


@each_row(
    ("word", "bits"),
    [
        ("Q4_K_M", 4.844),
        ("Q4_K - Medium", 4.844),
        ("(guessed) Q4_K - Medium", 4.844),
        ("IQ4_XS - 4.25 bpw", 4.302),
        ("all F32", 32),
        ("F16", 16),
        ("MXFP4 MoE", 4.25),
        ("torch.bfloat16", 16),
        ("w8a8_int8", 8),
        ("AWQ", 4.16),
    ],
)
def test_words_of_formats(word: str, bits: float) -> None:
    weights = weights_named(word)
    assert weights is not None
    assert weights.storage_of("mlp").bytes_per_weight * 8 == pytest.approx(bits)
    assert weights.storage_of("mlp") == weights.storage_of("experts")


def test_words_that_tell_nothing() -> None:
    assert [word for word in ("none", "NULL", " auto ", "", "fp8") if says_nothing(word)] == [
        "none",
        "NULL",
        " auto ",
        "",
    ]
    assert weights_named("compressed-tensors") is None
    assert weights_named("\x00" * 9999) is None


@each_row("size", ["8\u212a", "inf", "-8B", "1e400", "9" * 5000, "8 B B", "\ud800"])
def test_a_size_that_is_none_is_left_out(size: str) -> None:
    """The Kelvin sign is a K to a regular expression that does not mind case, but no unit."""
    said = {"parameter_size": size, "quantization": "Q8_0"}
    assert (
        from_hints(said, "m", ["Qwen/Qwen3-8B"], LLMS)[0]
        == from_hints({"quantization": "Q8_0"}, "m", ["Qwen/Qwen3-8B"], LLMS)[0]
    )


def test_only_known_keys_with_a_value_are_hints() -> None:
    assert hints_of({"layers": "3", "identity": "known", "heads": "", "cache_dtype": "auto"}) == {"layers": "3"}


@given(
    st.dictionaries(st.sampled_from(sorted(HINTS)), st.text(max_size=30) | st.integers().map(str), max_size=8),
    st.text(),
)
def test_any_words_give_a_spec_or_reasons(hints: dict[str, str], name: str) -> None:
    spec, problems = from_hints(hints, name, [name, "Qwen/Qwen3-8B"], LLMS)
    assert all(isinstance(each, str) for each in problems)
    if spec is not None:
        assert decode_flops_per_token(with_kv_dtype(spec, hints), 10) > 0
        assert spec.read_bytes > 0
    assert isinstance(left_out_by(hints), tuple)
    quantised_at_load(hints)
