"""What command lines and process titles of real engines say, as they stand in their documentation and bug reports."""

from __future__ import annotations

import shlex
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import Launch, launch, ranks, with_file
from gpumon.sources.discovery.shown_command import shown_command
from tests.each_row import each_row

VLLM, SGLANG, LLAMA, OLLAMA = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMA_CPP, EngineKind.OLLAMA
TRITON, TRTLLM, TGI, TEI = EngineKind.TRITON, EngineKind.TENSORRT_LLM, EngineKind.TGI, EngineKind.TEI
NIM, LMDEPLOY, DYNAMO, RAY = EngineKind.NIM, EngineKind.LMDEPLOY, EngineKind.DYNAMO, EngineKind.RAY

Said = dict[str, Any]
API = "-m vllm.entrypoints.openai.api_server"

SERVERS: list[tuple[str, EngineKind, Said]] = [
    ("vllm serve Qwen/Qwen3-8B", VLLM, {"model": "Qwen/Qwen3-8B", "metrics": True, "command": "vllm serve"}),
    (
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve /models/llama --port 8100 -tp 4",
        VLLM,
        {"model": "/models/llama", "port": 8100, "tp": 4},
    ),
    ("vllm serve m --served-model-name fast slow --tensor_parallel_size 8", VLLM, {"served_name": "fast", "tp": 8}),
    ("vllm serve m -q fp8 --kv-cache-dtype fp8_e4m3", VLLM, {"quantization": "fp8", "kv_dtype": "fp8_e4m3"}),
    ("vllm serve m --disable-log-stats", VLLM, {"metrics": False}),
    ("aphrodite run m --port 2243 -tp 2", EngineKind.APHRODITE, {"model": "m", "port": 2243, "tp": 2}),
    ("vllm-omni serve m --omni --port 8091", VLLM, {"model": "m", "port": 8091}),
    (
        "ts serve --model m --enable-metrics --metrics-port 9100 --tensor-parallel-size 4",
        EngineKind.TOKENSPEED,
        {"model": "m", "port": 9100, "tp": 4, "metrics": True},
    ),
    (
        "python -m fastdeploy.entrypoints.openai.api_server --model baidu/ERNIE-4.5-21B --port 8180 "
        "--metrics-port 8181 --tensor-parallel-size 2",
        EngineKind.FASTDEPLOY,
        {"model": "baidu/ERNIE-4.5-21B", "port": 8181, "tp": 2},
    ),
    ("fastdeploy serve --model m --port 8180", EngineKind.FASTDEPLOY, {"port": 8180}),
    (
        "max serve --model google/gemma-3-12b-it --port 9000",
        EngineKind.MAX,
        {"model": "google/gemma-3-12b-it", "port": 0},
    ),
    (
        "xinference-local --host 0.0.0.0 --port 9997 --metrics-exporter-port 9998",
        EngineKind.XINFERENCE,
        {"host": "0.0.0.0", "port": 9998},
    ),
    ("vllm serve m --api-key sk-secret --ssl-keyfile k.pem", VLLM, {"secure": True}),
    ("vllm serve --config /etc/vllm.yaml", VLLM, {"model": "", "metrics": None}),
    ("vllm serve --enforce-eager m", VLLM, {"model": "m"}),
    (f"python {API} --model m --port 8001", VLLM, {"model": "m", "port": 8001}),
    (
        f"python3 -u -X dev {API} --host 0.0.0.0 --port 8000 --served-model-name Llama-3-70B --model /data/model/ "
        "--tensor-parallel-size 8 --trust-remote-code",
        VLLM,
        {"served_name": "Llama-3-70B", "tp": 8, "host": "0.0.0.0"},
    ),
    ("python /opt/vllm/vllm/entrypoints/openai/api_server.py --model m", VLLM, {"model": "m"}),
    ("python -W default::UserWarning -Wignore --check-hash-based-pycs never /bin/vllm serve m", VLLM, {"model": "m"}),
    (
        "python3 -m sglang.launch_server --served-model-name ReSearch --model-path Qwen/Qwen2.5-1.5B-Instruct --tp 4 "
        "--enable-metrics --host 127.0.0.1 --port 80",
        SGLANG,
        {"served_name": "ReSearch", "model": "Qwen/Qwen2.5-1.5B-Instruct", "tp": 4, "port": 80, "metrics": True},
    ),
    ("/usr/bin/python3 /usr/local/bin/sglang serve --model m --api-key k", SGLANG, {}),
    (
        "llama-server -m /models/gemma.gguf --port 8094",
        LLAMA,
        {"model": "/models/gemma.gguf", "port": 8094, "metrics": False},
    ),
    (
        "/usr/local/bin/llama-server --host 127.0.0.1 --jinja --metrics --port 43091 "
        "--alias empero-ai/Qwen3.8-9B:Q5_K_M --ctx-size 262144 --parallel 2",
        LLAMA,
        {"served_name": "empero-ai/Qwen3.8-9B:Q5_K_M", "port": 43091, "metrics": True},
    ),
    ("llama-server -m m.gguf --api-prefix /chat/ --port 8080", LLAMA, {"prefix": "/chat", "port": 8080}),
    ("llama-server -m m.gguf --api-prefix '/?x#y'", LLAMA, {"prefix": ""}),
    ("/usr/local/bin/ollama serve", OLLAMA, {"port": 0, "command": "ollama serve"}),
    ("tritonserver --model-repository=/models --http-port=8000 --metrics-port=9002", TRITON, {"port": 9002}),
    (
        "python3 /usr/local/bin/trtllm-serve serve /path/to/Qwen3-1.7B --host 127.0.0.1 --port 8000 --backend pytorch "
        "--extra_llm_api_options llm_opts.yaml",
        TRTLLM,
        {"model": "/path/to/Qwen3-1.7B", "port": 8000, "metrics": None},
    ),
    (
        "text-generation-launcher --model-id tiiuae/falcon-7b-instruct -p 8080 --num-shard 2",
        TGI,
        {"model": "tiiuae/falcon-7b-instruct", "port": 8080, "tp": 2},
    ),
    (
        "text-embeddings-router --model-id BAAI/bge-m3 --port 8081 --hostname 0.0.0.0",
        TEI,
        {"model": "BAAI/bge-m3", "port": 8081},
    ),
    ("/opt/nim/llm/.venv/bin/python3 -m nim_llm_sdk.entrypoints.openai.api_server", NIM, {"port": 0}),
    ("/bin/bash /opt/nim/start_server.sh --port 1977", NIM, {"port": 1977, "wrapper": True}),
    (
        "/root/.local/bin/lmdeploy serve api_server --server-port 23334 --tp 1 --backend pytorch /models/internlm2 "
        "--dtype float16",
        LMDEPLOY,
        {"model": "/models/internlm2", "port": 23334, "tp": 1, "metrics": True},
    ),
    ("python3 -m dynamo.vllm --model Qwen/Qwen3-0.6B -tp 2", DYNAMO, {"model": "Qwen/Qwen3-0.6B", "tp": 2}),
    (
        "/usr/lib/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp/x --metrics-agent-port=44278 "
        "--metrics_export_port=64810 --node_ip_address=10.128.0.46",
        RAY,
        {"port": 64810, "wrapper": True},
    ),
]


@each_row(("line", "kind", "said"), SERVERS, named=[line[:60] for line, _, _ in SERVERS])
def test_a_server_by_its_command_line(line: str, kind: EngineKind, said: Said) -> None:
    found = launch(shlex.split(line))
    assert found is not None
    assert (found.kind, found.part) == (kind, False)
    assert {name: getattr(found, name) for name in said} == said


@each_row(
    ("line", "words"),
    [
        ("vllm serve m --headless --data-parallel-size-local 4", "head node"),
        ("vllm serve m --uds /run/vllm.sock", "Unix socket"),
        ("python -m sglang.launch_server --model m --nnodes 2 --node-rank 1", "several nodes"),
        ("python -m sglang.launch_server --model m --grpc-mode", "gRPC"),
        ("llama-server -m m.gguf --host /run/llama.sock", "Unix socket"),
        ("tritonserver --model-repository=/m --allow-metrics=false", "without --allow-metrics=false"),
        ("transformers serve --port 8000", "no metrics that gpumon can read"),
    ],
)
def test_a_server_without_a_page_says_why(line: str, words: str) -> None:
    found = launch(shlex.split(line))
    assert found is not None
    assert words in found.why_no_page


@each_row(
    ("line", "variables", "said"),
    [
        (
            "llama-server",
            {"LLAMA_ARG_PORT": "9001", "LLAMA_ARG_ENDPOINT_METRICS": "1"},
            {"port": 9001, "metrics": True},
        ),
        (
            "llama-server",
            {"LLAMA_ARG_ENDPOINT_METRICS": "0", "LLAMA_ARG_MODEL": "/m"},
            {"metrics": False, "model": "/m"},
        ),
        ("vllm serve m", {"VLLM_API_KEY": "set"}, {}),
        ("ollama serve", {"OLLAMA_HOST": "0.0.0.0:12000"}, {"host": "0.0.0.0", "port": 12000}),
        ("ollama serve", {"OLLAMA_HOST": "http://127.0.0.1:11500/"}, {"host": "127.0.0.1", "port": 11500}),
        ("ollama serve", {"OLLAMA_HOST": "[::]:11600"}, {"host": "::", "port": 11600}),
        ("ollama serve", {"OLLAMA_HOST": "gpu-box"}, {"host": "gpu-box", "port": 0}),
        (
            "text-generation-launcher",
            {"PORT": "80", "MODEL_ID": "m", "NUM_SHARD": "4"},
            {"port": 80, "model": "m", "tp": 4},
        ),
        ("python3 -m dynamo.vllm --model m", {"DYN_SYSTEM_PORT": "8081"}, {"port": 8081, "why_no_page": ""}),
        (
            "python3 -m nim_llm_sdk.entrypoints.launch",
            {"NIM_SERVER_PORT": "8010", "NIM_MODEL_NAME": "m"},
            {"port": 8010, "model": "m"},
        ),
    ],
)
def test_what_the_environment_says_counts_below_the_options(line: str, variables: dict[str, str], said: Said) -> None:
    found = launch(shlex.split(line), variables)
    assert found is not None
    assert {name: getattr(found, name) for name in said} == said


def test_a_dynamo_worker_without_a_system_port_names_the_variable() -> None:
    words = shlex.split("python3 -m dynamo.vllm --model m")
    known, unknown, off = launch(words, {}), launch(words), launch(words, {"DYN_SYSTEM_PORT": "-1"})
    assert known is not None
    assert off is not None
    assert unknown is not None
    assert "DYN_SYSTEM_PORT=8081" in known.why_no_page
    assert off.why_no_page == known.why_no_page
    assert unknown.why_no_page == ""


@each_row(
    ("line", "words"),
    [
        ("ts serve --model m", "--metrics-port"),
        ("xinference-worker -e http://10.0.0.1:9997", "--metrics-exporter-port"),
    ],
)
def test_an_engine_whose_metrics_have_a_port_only_if_one_is_given(line: str, words: str) -> None:
    found = launch(shlex.split(line), {})
    assert found is not None
    assert words in found.why_no_page


def test_the_metrics_of_max_are_on_the_port_of_a_variable() -> None:
    found = launch(shlex.split("max serve --model m"), {"MAX_SERVE_METRICS_ENDPOINT_PORT": "9001"})
    assert found is not None
    assert (found.port, found.why_no_page) == (9001, "")


@each_row(
    ("title", "kind"),
    [
        ("tokenspeed::scheduler_0", EngineKind.TOKENSPEED),
        ("VLLM::EngineCore", VLLM),
        ("APHRODITE::EngineCore", EngineKind.APHRODITE),
        ("chatbot::Worker_TP0", VLLM),
        ("sglang::scheduler_TP1", SGLANG),
        ("ray::ServeReplica:app:LLMServer", RAY),
        ("/usr/local/bin/ollama runner --model /root/.ollama/models/blobs/sha256-dde5 --port 40001", OLLAMA),
        ("/usr/bin/python3 /opt/conda/bin/text-generation-server serve m --shard-uds", TGI),
        ("/opt/tritonserver/backends/python/triton_python_backend_stub /models/m/1/model.py", TRITON),
    ],
)
def test_a_part_of_an_engine_by_its_title(title: str, kind: EngineKind) -> None:
    for argv in ([title] if "::" in title else title.split(), title.split(" ")):
        found = launch(argv)
        assert found is not None
        assert (found.kind, found.part, found.port) == (kind, True, 0)


@each_row(
    "line",
    [
        "python train.py --model meta-llama/Llama-3.1-8B",
        "litellm --model ollama/llama3 --port 4000",
        "vllm bench serve --model m",
        "ollama run llama3",
        "trtllm-serve disaggregated -c config.yaml",
        "bash -c 'vllm serve m'",
        "python -c 'import vllm' serve m",
        "ray::train_fn",
        "ray::WorkerDict.actor_rollout_generate_sequences",
        "docker run vllm/vllm-openai vllm serve m",
        "",
    ],
)
def test_what_is_no_engine(line: str) -> None:
    assert launch(shlex.split(line)) is None


@each_row("port", ["0", "65536", "-1", "8000x", "٨٠٠٠", "99999999999", ""])
def test_a_port_that_is_none_is_not_taken(port: str) -> None:
    found = launch(["vllm", "serve", "m", f"--port={port}"])
    assert found is not None
    assert found.port == 0


def test_no_key_ever_stands_in_what_is_told() -> None:
    lines = (
        "vllm serve m --api-key sk-secret",
        "vllm serve m --api-key=sk-secret --served-model-name a",
        "llama-server --api-key sk-secret -m m",
        "python -m sglang.launch_server --api-key sk-secret --model-path m",
        "lmdeploy serve api_server m --api-keys sk-secret",
    )
    for line in lines:
        found = launch(shlex.split(line), {"VLLM_API_KEY": "sk-secret"})
        assert isinstance(found, Launch)
        assert "sk-secret" not in repr(found)


@each_row(
    ("titles", "sizes"),
    [
        (["VLLM::EngineCore"], (0, 0, 0)),
        (["VLLM::Worker_TP0", "VLLM::Worker_TP1"], (2, 0, 0)),
        (["sglang::scheduler_DP0_TP0_EP0", "sglang::scheduler_DP1_TP1_EP1"], (2, 0, 2)),
        (["sglang::scheduler_PP1_ATTN_CP1_MOE_DP1_TP3_EP1"], (4, 2, 0)),
        ([], (0, 0, 0)),
    ],
)
def test_ranks_by_worker_titles(titles: list[str], sizes: tuple[int, int, int]) -> None:
    assert ranks(titles) == sizes


@each_row(
    ("line", "shown"),
    [
        ("vllm serve Qwen/Qwen3-8B --port 8000 --max-num-seqs=256",) * 2,
        ("/opt/venv/bin/python -m vllm.entrypoints.openai.api_server --model m -tp 4",) * 2,
        ("vllm serve m --max_num_seqs 8 --gpu-memory-utilization 0.9 --tokenizer-mode slow",) * 2,
        (
            "vllm serve m --served-model-name a b --api-key one two",
            "vllm serve m --served-model-name a b --api-key ***",
        ),
        ("vllm serve m --api-key=sesame --hf-token sesame -v", "vllm serve m --api-key=*** --hf-token *** -v"),
        ("vllm serve m sesame --new-option sesame -k sesame", "vllm serve m *** --new-option *** -k ***"),
        ('vllm serve m -ksesame --speculative-config {"key":1}', "vllm serve m -k*** --speculative-config ***"),
        ("vllm serve https://me:sesame@h/m --port 1", "vllm serve *** --port 1"),
        ("vllm serve /hub/snapshots/0123456789abcdef0123456789abcdef01234567", "vllm serve /hub/snapshots/***"),
        (
            "llama-server -m /m/a.gguf -c 8192 -np 4 --ssl-key-file /x",
            "llama-server -m /m/a.gguf -c 8192 -np 4 --ssl-key-file ***",
        ),
        ("sglang serve --model-path m --encryption-key sesame", "sglang serve --model-path m --encryption-key ***"),
        ("python train.py sesame --lr 3 --license-key sesame", "python train.py *** --lr *** --license-key ***"),
        ("python -u -m train --auth=sesame --signing-key sesame", "python -u -m train --auth=*** --signing-key ***"),
        ("python -c sesame --passphrase sesame", "python -c *** --passphrase ***"),
        ("bash run.sh sesame", "bash run.sh ***"),
        ("./serve token=sesame hf_sesamesesame", "./serve ***"),
        ("./serve --sk0123456789abcdefsesame=1", "./serve ***=***"),
        ("VLLM::EngineCore_DP0",) * 2,
        ("", ""),
    ],
)
def test_what_is_shown_of_a_command_line(line: str, shown: str) -> None:
    assert shown_command(line.split(" ") if line else []) == shown
    assert shown_command([line]) == shown, "as a title that the process gave itself"


OPTIONS = """
--encryption-key --signing_key --x.license --sign --auth-file --hf-token --db-password --AWS-Secret --credentials
--api-keys -k --tls-key-path --pw
"""


@pytest.mark.parametrize("option", OPTIONS.split())
@given(secret=st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), min_size=8), glued=st.booleans())
def test_no_value_of_such_an_option_is_shown(option: str, secret: str, glued: bool) -> None:
    secret = f"s3same{secret}"
    for begin in (["vllm", "serve", "m"], ["python", "train.py"], ["./x"]):
        argv = [*begin, f"{option}={secret}"] if glued else [*begin, option, secret, secret]
        assert "s3same" not in shown_command(argv)


@each_row("part", ["-", "-a", "--api-key ", "token=", "a1", '"', "'a", "--x=", "/a1", "-a "])
def test_a_hostile_command_line_takes_no_time(part: str) -> None:
    line = part * (100_000 // len(part))
    began_s = time.process_time()
    for begin in (["vllm", "serve"], ["x"]):
        shown_command([*begin, line])
        shown_command([*begin, *line.split(" ")])
        shown_command([line])
    assert time.process_time() - began_s < 5.0


def test_a_file_gives_what_its_command_line_does_not() -> None:
    """vLLM's `--config` has the model and the ranks of some servers; SGLang's says whether there are metrics."""
    argv = shlex.split("vllm serve --config /etc/vllm.yaml --port 8001")
    launched = launch(argv, {})
    assert launched is not None
    words = ("--model=org/m", "--tensor-parallel-size=4", "--port=1", "--served-model-name=m")
    whole = with_file(launched, argv, words)
    assert (whole.model, whole.tp, whole.port, whole.served_name, whole.file) == ("org/m", 4, 8001, "m", "")
    argv = shlex.split("python -m sglang.launch_server --model-path m --config /etc/sglang.yaml")
    launched = launch(argv, {})
    assert launched is not None
    assert launched.metrics is None
    assert with_file(launched, argv, ("--enable-metrics=true", "--tp-size=2")).metrics is True
    assert with_file(launched, argv, ("--tp-size=2",)).metrics is False
