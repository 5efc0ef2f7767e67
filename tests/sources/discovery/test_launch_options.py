"""Options of command lines, as the engines' own parsers read them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Final

from gpumon.readings.engine_options import OPTION_NAMES, EngineOptions, is_told
from gpumon.sources.discovery.command_line import Launch, launch
from gpumon.sources.discovery.launch_options import canonical_option
from tests.each_row import each_row

ANSWERS: Final = Path(__file__).parents[2] / "data" / "engine_parsers.jsonl"
"""What the argparse of vLLM and SGLang makes of command lines (`make parsers`)."""


def told(options: EngineOptions) -> dict[str, Any]:
    """The options that are known."""
    return {name: getattr(options, name) for name in OPTION_NAMES if is_told(getattr(options, name))}


def options_of(command: str, **variables: str) -> EngineOptions:
    launched = launch(shlex.split(command), variables)
    assert launched is not None
    return launched.options


ROWS: list[tuple[str, dict[str, Any]]] = [
    ("vllm serve m", {}),
    ("vllm serve m --max-num-seqs 16", {"slots": 16.0}),
    ("vllm serve m --max-num-seqs=16", {"slots": 16.0}),
    ("vllm serve m --max_num_seqs 16", {"slots": 16.0}),
    ("vllm serve m --max-num-seq 16", {"slots": 16.0}),
    # Two options begin so: vLLM would not have started.
    ("vllm serve m --max-num-s 16", {}),
    ("vllm serve m --max-num-seqs 8 --max-num-seqs 16", {"slots": 16.0}),
    ("vllm serve m --max-num-seqs nonsense", {}),
    ("vllm serve m --tensor-parallel 8", {"tp": 8.0}),
    ("vllm serve m -tp=8 -pp 2 -dp 4 -ep", {"tp": 8.0, "pp": 2.0, "dp": 4.0, "expert_parallel": 1.0}),
    (
        "vllm serve m --max-model-len 32k --max-num-batched-tokens 1K",
        {"context_tokens": 32000.0, "step_tokens": 1024.0},
    ),
    ("vllm serve m --max-model-len auto", {}),
    ("vllm serve m --gpu-memory-utilization 0.45", {"memory_share_ratio": 0.45}),
    ("vllm serve m --enforce-eager", {"eager": 1.0}),
    ("vllm serve m --enforce-eager --no-enforce-eager", {"eager": 0.0}),
    ("vllm serve m --enforce-eager=False", {"eager": 0.0}),
    ("vllm serve m -O0", {"eager": 1.0}),
    ("vllm serve m -O3 --no-enable-prefix-caching", {"prefix_caching": 0.0}),
    ('vllm serve m -cc \'{"cudagraph_mode": "NONE"}\'', {"eager": 1.0}),
    ("vllm serve m -cc.cudagraph_mode=FULL", {}),
    ("vllm serve m --compilation-config.cudagraph_mode NONE", {"eager": 1.0}),
    ("vllm serve m --no-enable-chunked-prefill --dtype float32", {"chunked_prefill": 0.0, "dtype": "float32"}),
    ("vllm serve m --dtype auto --kv-cache-dtype fp8 -q fp8", {"kv_dtype": "fp8", "quantization": "fp8"}),
    (
        'vllm serve m --speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'',
        {"speculation": "ngram", "draft_tokens": 4.0},
    ),
    (
        "vllm serve m --speculative-config.method eagle3 --speculative_config.num_speculative_tokens 3",
        {"speculation": "eagle3", "draft_tokens": 3.0},
    ),
    ("vllm serve m --speculative-config '{[[['", {}),
    ("vllm serve m --enable-lora --max-loras 4", {"lora_slots": 4.0}),
    (
        "python -m sglang.launch_server --model-path m --max-running-requests 48 --mem-fraction-static 0.8 --tp 4",
        {"slots": 48.0, "memory_share_ratio": 0.8, "tp": 4.0},
    ),
    (
        "python -m sglang.launch_server --model-path m --disable-radix-cache --disable-cuda-graph",
        {"prefix_caching": 0.0, "eager": 1.0},
    ),
    ("python -m sglang.launch_server --model m --chunked-prefill-size -1", {"chunked_prefill": 0.0}),
    (
        "python -m sglang.launch_server --model m --chunked-prefill-size 4096 --ep-size 8",
        {"chunked_prefill": 1.0, "step_tokens": 4096.0, "expert_parallel": 1.0},
    ),
    (
        "python -m sglang.launch_server --model m --speculative-algorithm EAGLE3 --speculative-num-draft-tokens 8",
        {"speculation": "EAGLE3", "draft_tokens": 8.0},
    ),
    ("llama-server -m m.gguf -np 4 -c 32768", {"slots": 4.0, "context_tokens": 8192.0}),
    ("text-generation-launcher --model-id m --max-batch-size 32 --num-shard 2", {"slots": 32.0, "tp": 2.0}),
    ("trtllm-serve m --max_batch_size 64 --max_num_tokens 8192", {"slots": 64.0, "step_tokens": 8192.0}),
    ("lmdeploy serve api_server m --max-batch-size 96 --eager-mode", {"slots": 96.0, "eager": 1.0}),
]


@each_row(("command", "expected"), ROWS)
def test_options_are_read_as_the_engine_reads_them(command: str, expected: dict[str, Any]) -> None:
    assert told(options_of(command)) == expected


@each_row(
    ("word", "option"),
    [
        ("--max-num-se", "--max-num-seqs"),
        ("--max-num-s", "--max-num-s"),
        ("--max-num-s.key", "--max-num-s.key"),
        ("--max", "--max"),
    ],
)
def test_the_beginning_of_several_names_is_none_of_them(word: str, option: str) -> None:
    names = frozenset({"--max-num-seqs", "--max-num-scheduler-steps", "--max-model-len"})
    assert canonical_option(word, names, abbreviates=True) == (option, True)


def test_who_tells_an_option_is_named() -> None:
    assert options_of("vllm serve m --max-num-seq=16").sources == {"slots": "--max-num-seqs of its command line"}
    of_llama = options_of("llama-server -m m.gguf", LLAMA_ARG_N_PARALLEL="3")
    assert (of_llama.slots, of_llama.sources["slots"]) == (3.0, "LLAMA_ARG_N_PARALLEL of its environment")
    both = options_of("llama-server -m m.gguf -np 2", LLAMA_ARG_N_PARALLEL="3")
    assert (both.slots, both.sources["slots"]) == (2.0, "-np of its command line")


FIELDS: Final = {
    "host": "host",
    "served_model_name": "served_name",
    "quantization": "quantization",
    "port": "port",
    "tensor_parallel_size": "tp",
    "tp_size": "tp",
    "pipeline_parallel_size": "pp",
    "pp_size": "pp",
    "data_parallel_size": "dp",
    "dp_size": "dp",
}
"""Value of the real parser -> field of a launch."""
DEFAULTS: Final = {"port": (8000, 30000), "host": ("127.0.0.1",), "tp": (1,), "pp": (1,), "dp": (1,)}
"""What the real parser has where the line says nothing."""


def as_read(launched: Launch) -> dict[str, object]:
    """The fields that the line gives."""
    fields = {name: getattr(launched, name) for name in {*FIELDS.values(), "model"}}
    return {name: value for name, value in fields.items() if value}


def as_parsed(values: dict[str, Any], line: str) -> dict[str, object]:
    """The same fields as the real parser has them; vLLM's default model is none that the line gives."""
    fields: dict[str, object] = {}
    for name, field in FIELDS.items():
        value = values.get(name)
        value = value[0] if isinstance(value, list) else value
        if value is not None and value not in DEFAULTS.get(field, ()):
            fields[field] = value
    model = values.get("model_tag") if line.startswith("vllm") else values.get("model_path")
    if model:
        fields["model"] = model
    return fields


def answers() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]


@each_row("answer", [answer for answer in answers() if answer["values"] is not None], lambda answer: answer["line"])
def test_lines_are_read_as_by_the_real_argparse(answer: dict[str, Any]) -> None:
    line = answer["line"].replace("sglang ", "python -m sglang.launch_server ", 1)
    launched = launch(shlex.split(line), {})
    assert launched is not None
    parsed = as_parsed(answer["values"], line)
    told_defaults = {name: value for name, value in as_read(launched).items() if value not in DEFAULTS.get(name, ())}
    assert told_defaults == parsed


def test_an_old_entry_point_is_vllm_without_a_page() -> None:
    launched = launch(shlex.split("python -m vllm.entrypoints.api_server --model m --port 8001"), {})
    assert launched is not None
    assert (launched.model, launched.port) == ("m", 8001)
    assert "vllm serve" in launched.why_no_page
