"""How each serving engine is started: program or module, and what its options and variables say of port, model, ranks.

From the engines' own argument parsers and documentation; a name with `_` for `-` in an option is the same option.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind

Names = Mapping[str, tuple[str, ...]]
NONE: Final[Names] = MappingProxyType({})


class Catch(NamedTuple):
    """An option that leaves a process without a page of its own, unless it has one of the `harmless` values."""

    option: str
    why: str
    harmless: tuple[str, ...] = ()


class Form(NamedTuple):
    """One way to start an engine. `options` and `variables` (of the environment) are by what they say:

    host, port, address (both in one), model, served_name, tp, pp, dp (numbers), on, off (metrics), key (an API key is
    asked for), tls, prefix (path that its pages stand below), quantization and kv_dtype (in the engine's words), embeds
    (it generates nothing), file (options stand in a file too).
    """

    kind: EngineKind
    title: str
    commands: tuple[str, ...]
    """Program or Python module, and the words that follow it."""
    options: Names = NONE
    variables: Names = NONE
    positional: bool = False
    """A word that belongs to no option is the model."""
    others: tuple[str, ...] = ()
    """First words that make it another command."""
    catches: tuple[Catch, ...] = ()
    nowhere: str = ""
    """Why it has no page that gpumon can read."""
    part: bool = False
    """A process of an engine, not its server."""
    apart: tuple[EngineKind, ...] = ()
    """Children of these kinds are servers of their own, and this one only hands requests on to them."""
    wrapper: bool = False
    """Counts only where no process below it is known as a server."""
    usual: bool = True
    """It takes the kind's usual port where none is said."""
    unsaid: str = ""
    """Why it has no page where neither options nor variables name a port."""


NODE: Final = "it is one of several nodes: only the first has metrics; add that node's URL"
UNIX_SOCKET: Final = "it serves on a Unix socket only: start it with --host and --port"
NO_METRICS: Final = "has no metrics that gpumon can read: its GPUs are shown, its tokens are not"

_HOST_PORT: Final[Names] = {"host": ("--host",), "port": ("--port",)}
_VLLM: Final[Names] = {
    **_HOST_PORT,
    "model": ("--model",),
    "served_name": ("--served-model-name",),
    "tp": ("--tensor-parallel-size", "-tp"),
    "pp": ("--pipeline-parallel-size", "-pp"),
    "dp": ("--data-parallel-size", "-dp"),
    "off": ("--disable-log-stats",),
    "key": ("--api-key",),
    "tls": ("--ssl-keyfile", "--ssl-certfile"),
    "quantization": ("--quantization", "-q"),
    "kv_dtype": ("--kv-cache-dtype",),
    "file": ("--config",),
}
_SGLANG: Final[Names] = {
    **_HOST_PORT,
    "model": ("--model-path", "--model"),
    "served_name": ("--served-model-name",),
    "tp": ("--tensor-parallel-size", "--tp-size", "--tp"),
    "pp": ("--pipeline-parallel-size", "--pp-size", "--pp"),
    "dp": ("--data-parallel-size", "--dp-size", "--dp"),
    "on": ("--enable-metrics",),
    "key": ("--api-key",),
    "tls": ("--ssl-keyfile", "--ssl-certfile"),
    "quantization": ("--quantization",),
    "kv_dtype": ("--kv-cache-dtype",),
    "file": ("--config",),
}
_DYNAMO: Final[Names] = {
    "model": ("--model", "--model-path"),
    "served_name": ("--served-model-name",),
    "quantization": _VLLM["quantization"],
    "kv_dtype": _VLLM["kv_dtype"],
    **{rank: (*_VLLM[rank], *_SGLANG[rank][1:]) for rank in ("tp", "pp", "dp")},
}

FORMS: Final = (
    Form(
        EngineKind.VLLM,
        "vLLM",
        ("vllm serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main serve"),
        _VLLM,
        {"key": ("VLLM_API_KEY",)},
        positional=True,
        catches=(
            Catch("--headless", "it is a headless node: its metrics are on the head node; add that node's URL"),
            Catch("--uds", UNIX_SOCKET),
            Catch("--grpc", "it serves gRPC only: start it without --grpc"),
        ),
    ),
    Form(
        EngineKind.SGLANG,
        "SGLang",
        ("sglang.launch_server", "sglang serve"),
        _SGLANG,
        catches=(
            Catch("--node-rank", NODE, ("0",)),
            Catch("--grpc-mode", "it serves gRPC: add the URL of its HTTP port"),
        ),
    ),
    Form(
        EngineKind.LLAMA_CPP,
        "llama.cpp",
        ("llama-server", "llama serve"),
        {
            **_HOST_PORT,
            "model": ("--model", "-m", "--hf-repo", "-hf", "-hfr"),
            "served_name": ("--alias", "-a"),
            "on": ("--metrics",),
            "key": ("--api-key", "--api-key-file"),
            "tls": ("--ssl-key-file",),
            "prefix": ("--api-prefix",),
            "kv_dtype": ("--cache-type-k", "-ctk"),
            "embeds": ("--embedding", "--embeddings", "--rerank", "--reranking"),
        },
        {
            "host": ("LLAMA_ARG_HOST",),
            "port": ("LLAMA_ARG_PORT",),
            "model": ("LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"),
            "served_name": ("LLAMA_ARG_ALIAS",),
            "on": ("LLAMA_ARG_ENDPOINT_METRICS",),
            "key": ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY_FILE"),
            "tls": ("LLAMA_ARG_SSL_KEY_FILE",),
            "prefix": ("LLAMA_ARG_API_PREFIX",),
            "kv_dtype": ("LLAMA_ARG_CACHE_TYPE_K",),
            "embeds": ("LLAMA_ARG_EMBEDDINGS", "LLAMA_ARG_RERANKING"),
        },
        apart=(EngineKind.LLAMA_CPP,),
    ),
    Form(
        EngineKind.OLLAMA,
        "Ollama",
        ("ollama serve", "ollama start"),
        variables={"address": ("OLLAMA_HOST",)},
        apart=(EngineKind.LLAMA_CPP,),
    ),
    Form(EngineKind.OLLAMA, "Ollama", ("ollama runner", "ollama_llama_server"), part=True),
    Form(
        EngineKind.TRITON,
        "Triton",
        ("tritonserver",),
        {
            "host": ("--metrics-address", "--http-address"),
            "port": ("--metrics-port",),
        },
        catches=(
            Catch(
                "--allow-metrics",
                "its metrics are off: start it without --allow-metrics=false",
                ("true", "True", "1", "on"),
            ),
        ),
    ),
    Form(EngineKind.TRITON, "Triton", ("triton_python_backend_stub",), part=True),
    Form(
        EngineKind.TENSORRT_LLM,
        "TensorRT-LLM",
        ("trtllm-serve serve", "trtllm-serve", "tensorrt_llm.commands.serve serve", "tensorrt_llm.commands.serve"),
        {
            **_HOST_PORT,
            "served_name": ("--served-model-name",),
            "tp": ("--tp-size", "--tensor-parallel-size"),
            "pp": ("--pp-size", "--pipeline-parallel-size"),
            "file": ("--extra-llm-api-options", "--config"),
        },
        positional=True,
        others=("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"),
    ),
    Form(
        EngineKind.TGI,
        "TGI",
        ("text-generation-launcher", "text-generation-router"),
        {
            "host": ("--hostname",),
            "port": ("--port", "-p"),
            "model": ("--model-id",),
            "tp": ("--num-shard",),
            "key": ("--api-key",),
            "quantization": ("--quantize",),
            "kv_dtype": ("--kv-cache-dtype",),
        },
        {
            "port": ("PORT",),
            "model": ("MODEL_ID",),
            "tp": ("NUM_SHARD",),
            "key": ("API_KEY",),
            "quantization": ("QUANTIZE",),
            "kv_dtype": ("KV_CACHE_DTYPE",),
        },
    ),
    Form(EngineKind.TGI, "TGI", ("text-generation-server",), part=True),
    Form(
        EngineKind.TEI,
        "Text Embeddings Inference",
        ("text-embeddings-router",),
        {
            "host": ("--hostname",),
            "port": ("--port", "-p"),
            "model": ("--model-id",),
            "served_name": ("--served-model-name",),
            "key": ("--api-key",),
        },
        {"port": ("PORT",), "model": ("MODEL_ID",), "key": ("API_KEY",)},
    ),
    Form(
        EngineKind.NIM,
        "NIM",
        (
            "nim_llm_sdk.entrypoints.launch",
            "nim_llm_sdk.entrypoints.openai.api_server",
            "vllm_nvext.entrypoints.openai.api_server",
        ),
        _VLLM,
        {
            "port": ("NIM_SERVER_PORT", "NIM_HTTP_API_PORT"),
            "model": ("NIM_MODEL_NAME",),
            "served_name": ("NIM_SERVED_MODEL_NAME",),
        },
    ),
    Form(
        EngineKind.NIM,
        "NIM",
        ("/opt/nim/start_server.sh", "/opt/nim/start-server.sh"),
        {"port": ("--port",)},
        {
            "port": ("NIM_SERVER_PORT", "NIM_HTTP_API_PORT"),
            "model": ("NIM_MODEL_NAME",),
            "served_name": ("NIM_SERVED_MODEL_NAME",),
        },
        wrapper=True,
    ),
    Form(
        EngineKind.LMDEPLOY,
        "LMDeploy",
        ("lmdeploy serve api_server", "lmdeploy.serve.openai.api_server"),
        {
            "host": ("--server-name",),
            "port": ("--server-port",),
            "model": ("--model-path",),
            "served_name": ("--model-name",),
            "tp": ("--tp",),
            "dp": ("--dp",),
            "off": ("--disable-metrics",),
            "key": ("--api-keys",),
            "tls": ("--ssl",),
        },
        positional=True,
        catches=(Catch("--node-rank", NODE, ("0",)),),
    ),
    Form(
        EngineKind.DYNAMO,
        "Dynamo",
        ("dynamo.vllm", "dynamo.sglang", "dynamo.trtllm", "dynamo.llama_cpp", "dynamo.mocker"),
        _DYNAMO,
        {"host": ("DYN_SYSTEM_HOST",), "port": ("DYN_SYSTEM_PORT",)},
        usual=False,
        unsaid="its metrics are off: start it with DYN_SYSTEM_PORT=8081 (a free port) in its environment",
    ),
    Form(
        EngineKind.RAY,
        "Ray Serve LLM",
        ("raylet",),
        {"port": ("--metrics-export-port",), "host": ("--node-ip-address",)},
        wrapper=True,
        usual=False,
    ),
    Form(EngineKind.UNKNOWN, "transformers serve", ("transformers serve",), _HOST_PORT, nowhere=NO_METRICS),
    Form(EngineKind.UNKNOWN, "MLC LLM", ("mlc_llm serve", "mlc_llm.serve.server"), _HOST_PORT, nowhere=NO_METRICS),
    Form(EngineKind.UNKNOWN, "llama-cpp-python", ("llama_cpp.server",), _HOST_PORT, nowhere=NO_METRICS),
    Form(
        EngineKind.UNKNOWN,
        "FastChat",
        ("fastchat.serve.model_worker", "fastchat.serve.vllm_worker"),
        _HOST_PORT,
        nowhere=NO_METRICS,
    ),
    Form(EngineKind.UNKNOWN, "KoboldCpp", ("koboldcpp", "koboldcpp-linux-x64"), nowhere=NO_METRICS),
)
"""The first that fits counts."""

SEVERAL: Final = frozenset(
    {
        "--served-model-name",
        "--lora-modules",
        "--lora-paths",
        "--api-key",
        "--api-keys",
        "--allowed-origins",
        "--middleware",
        "--cudagraph-capture-sizes",
        "--cuda-graph-bs",
    }
)
"""Options that take any number of words."""

_TUNING: Final = """
--attention-backend --batch-size --block-size --chunked-prefill-size --cache-reuse --cache-type-v -ctv --context-length
--ctx-size -c --cuda-graph-max-bs --cuda-memory-fraction --data-parallel-size-local --decode-context-parallel-size -dcp
--device --disable-cuda-graph --disable-radix-cache --dtype --enable-chunked-prefill --enable-expert-parallel
--enable-prefix-caching --enforce-eager --expert-parallel-size --ep-size --ep --flash-attn -fa --gpu-memory-utilization
--kv-cache-free-gpu-memory-fraction --load-format --log-level --max-batch-prefill-tokens --max-batch-size
--max-batch-tokens --max-batch-total-tokens --max-client-batch-size --max-concurrent-requests --max-input-length
--max-input-tokens --max-model-len --max-num-batched-tokens --max-num-seqs --max-num-tokens --max-prefill-tokens
--max-running-requests --max-seq-len --max-total-tokens --max-waiting-tokens --mem-fraction-static --moe-a2a-backend
--n-gpu-layers -ngl --nnodes --node-rank --num-gpus --page-size --parallel -np --pooling --runner --runtime
--schedule-policy --seed --session-len --speculative-algorithm --speculative-num-draft-tokens --speculative-num-steps
--split-mode --swap-space --task --threads -t --tokenizer-mode --trust-remote-code --ubatch-size -ub
"""
SHOWN: Final = frozenset(_TUNING.split()) | {
    name for form in FORMS for names in form.options.values() for name in names
}
"""Options of engines that are shown with their values; of all others the names."""
