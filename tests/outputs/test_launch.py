"""From a plan to a start: command lines by the engines' own parsers, manifests by the fields that their kinds have."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.outputs.yaml_text import yaml_text
from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.engine_parsers import parser_options
from tests import yaml_blocks
from tests.program import run_gpumon, user_environment

ROOT = Path(__file__).parents[2]
TRTLLM = frozenset(
    {
        *("--tokenizer", "--host", "--port", "--backend", "--log_level", "--max_beam_width", "--max_batch_size"),
        *("--max_num_tokens", "--max_seq_len", "--tp_size", "--pp_size", "--cp_size", "--ep_size", "--cluster_size"),
        *("--gpus_per_node", "--kv_cache_free_gpu_memory_fraction", "--num_postprocess_workers"),
        *("--extra_llm_api_options", "--config", "--reasoning_parser"),
    }
)
"""Options of `trtllm-serve`, each with one value: tensorrt_llm/commands/serve.py (click) of TensorRT-LLM."""
PROGRAMS = {
    "vllm": (["vllm", "serve"], EngineKind.VLLM),
    "sglang": (["python3", "-m", "sglang.launch_server"], EngineKind.SGLANG),
    "trtllm": (["trtllm-serve"], None),
}
DENSE = """
[[server]]
gpu = "H100"
[[workload]]
name = "chat 1"
model = "Qwen/Qwen3-32B"
target = 600
prompt_tokens = 1000
answer_tokens = 200
prefix_hit_ratio = 0.25
"""
EXPERTS = """
[[server]]
gpu = "H200"
[[workload]]
name = "experts"
model = "deepseek-ai/DeepSeek-V3"
target = 200
tp = 1
dp = 8
prompt_tokens = 1000
answer_tokens = 200
kv_precision = "fp8"
speculative = { tokens = 1, accepted = 0.8 }
"""
STAGES = """
[[server]]
gpu = "H100"
[[workload]]
name = "stages"
model = "meta-llama/Llama-3.1-405B-Instruct"
target = 32
tp = 8
pp = 2
prompt_tokens = 1000
answer_tokens = 200
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config and no profiles of the user."""
    return user_environment(tmp_path, TERM="xterm-256color")


def size(text: str, *options: str, env: dict[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_gpumon("size", "-", *options, env=env, cwd=ROOT, text=text)
    assert done.returncode == code, done.stderr
    return done


def with_engine(text: str, engine: str) -> str:
    return f'{text}engine = "{engine}"\n' if engine else text


def commands(text: str) -> list[list[str]]:
    """The words of each command of a shell's text, without variables and comments."""
    lines = text.replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and "=" in words[0] and not words[0].startswith("-"):
            words = words[1:]
        if words and words[0] in ("vllm", "python3", "trtllm-serve", "mpirun"):
            found.append(words)
    return found


def options(words: list[str], engine: str) -> dict[str, str]:
    """The options of a command by the engine's own parser: each is one of them, with as many words as it takes."""
    if words[0] == "mpirun":
        words = words[words.index("trtllm-llmapi-launch") + 1 :]
    begin, kind = PROGRAMS[engine]
    assert words[: len(begin)] == begin
    table = parser_options(kind) if kind is not None else dict.fromkeys(TRTLLM, 1)
    rest = words[len(begin) :]
    if not rest[0].startswith("-"):  # the model
        rest = rest[1:]
    values = {}
    while rest:
        name, *rest = rest
        assert name in table, name
        assert name not in values
        count = table[name]
        assert len(rest) >= count
        values[name] = " ".join(rest[:count])
        rest = rest[count:]
    return values


def test_commands_of_several_models_say_that_each_counts_gpus_and_ports_from_the_first(env: dict[str, str]) -> None:
    """Two models on one server would else both be started on its GPU 0 and at port 8000 without a word."""
    alone = "each of the groups below counts GPUs from 0 and ports from 8000"
    several = DENSE + DENSE[DENSE.index("[[workload]]") :].replace("chat 1", "chat 2")
    assert size(several, "--commands", env=env).stdout.startswith(f"# {alone}")
    assert alone not in size(DENSE, "--commands", env=env).stdout


def test_a_dense_model_of_vllm(env: dict[str, str]) -> None:
    text = size(DENSE, "--commands", env=env).stdout
    first, *others = commands(text)
    assert first[:3] == ["vllm", "serve", "Qwen/Qwen3-32B"]
    values = options(first, "vllm")
    assert values["--gpu-memory-utilization"] == "0.92"
    assert values["--max-model-len"] == "40960"
    assert (values["--max-num-seqs"], values["--max-num-batched-tokens"]) == ("1024", "8192")
    tp = int(values["--tensor-parallel-size"])
    assert len(others) == 8 // tp - 1
    assert [options(words, "vllm")["--port"] for words in others] == [str(8001 + place) for place in range(8 // tp - 1)]
    assert f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(tp)))} vllm serve" in text
    assert "# assumed: no engine is given: vLLM" in text
    assert "# assumed: 25% prefix hits are planned with" in text


def test_each_type_of_gpu_has_its_own_stages(env: dict[str, str]) -> None:
    """405B at 16 bit stands on eight H200, and on two stages of eight H100."""
    text = """
[[server]]
gpu = "H200"
count = 1
[[server]]
gpu = "H100"
count = 6
[[workload]]
name = "mixed"
model = "meta-llama/Llama-3.1-405B-Instruct"
target = 150
prompt_tokens = 2000
answer_tokens = 400
"""
    whole, first, second = (options(words, "vllm") for words in commands(size(text, "--commands", env=env).stdout))
    assert "--pipeline-parallel-size" not in whole
    assert (first["--pipeline-parallel-size"], second["--pipeline-parallel-size"]) == ("2", "2")
    assert "on H100 SXM5 80GB (TP 8 x PP 2)" in size(text, env=env).stdout


def test_the_options_say_the_plan_that_is_printed_as_json(env: dict[str, str]) -> None:
    plan = json.loads(size(DENSE, "--json", env=env).stdout)["workloads"][0]
    text = size(DENSE, "--commands", env=env).stdout
    assert options(commands(text)[0], "vllm")["--tensor-parallel-size"] == str(plan["tp"])
    assert f"# chat 1: {plan['instances']:.0f} instances of Qwen/Qwen3-32B" in text


def test_what_was_typed_is_what_starts(env: dict[str, str]) -> None:
    typed = DENSE + 'weight_precision = "fp8"\nkv_precision = "fp8"\nmax_num_seqs = 96\nmax_num_batched_tokens = 2048\n'
    values = options(commands(size("usable_memory_ratio = 0.85\n" + typed, "--commands", env=env).stdout)[0], "vllm")
    assert (values["--max-num-seqs"], values["--max-num-batched-tokens"]) == ("96", "2048")
    assert (values["--quantization"], values["--kv-cache-dtype"]) == ("fp8", "fp8")
    assert values["--gpu-memory-utilization"] == "0.85"
    sglang = commands(size(with_engine(typed, "sglang"), "--commands", env=env).stdout)[0]
    values = options(sglang, "sglang")
    assert (values["--kv-cache-dtype"], values["--max-running-requests"]) == ("fp8_e4m3", "96")
    int4 = size(DENSE + 'weight_precision = "int4"\n', "--commands", env=env).stdout
    assert "# assumed: a checkpoint with int4 weights is needed" in int4
    assert "--quantization" not in int4


def test_experts_over_data_parallel_ranks_with_speculation(env: dict[str, str]) -> None:
    vllm = options(commands(size(EXPERTS, "--commands", env=env).stdout)[0], "vllm")
    assert (vllm["--tensor-parallel-size"], vllm["--data-parallel-size"]) == ("1", "8")
    assert "--enable-expert-parallel" in vllm
    assert json.loads(vllm["--speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 1}
    assert "--quantization" not in vllm  # the model's own files are FP8
    sglang = options(commands(size(with_engine(EXPERTS, "sglang"), "--commands", env=env).stdout)[0], "sglang")
    assert (sglang["--tp-size"], sglang["--dp-size"], sglang["--ep-size"]) == ("8", "8", "8")
    assert "--enable-dp-attention" in sglang
    assert (sglang["--speculative-algorithm"], sglang["--speculative-num-draft-tokens"]) == ("EAGLE", "2")
    text = size(with_engine(EXPERTS, "trtllm"), "--commands", env=env).stdout
    trtllm = options(commands(text)[0], "trtllm")
    assert (trtllm["--tp_size"], trtllm["--ep_size"]) == ("8", "8")
    config = yaml_blocks.documents(text.partition("<<'END'\n")[2].partition("END\n")[0])[0]
    assert config == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8"},
        "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 1},
    }


def test_an_instance_on_two_servers_has_a_command_for_each(env: dict[str, str]) -> None:
    head, worker = commands(size(STAGES, "--commands", env=env).stdout)
    first, second = options(head, "vllm"), options(worker, "vllm")
    assert (first["--pipeline-parallel-size"], first["--nnodes"], first["--node-rank"]) == ("2", "2", "0")
    assert (second["--node-rank"], second["--master-addr"]) == ("1", "$HEAD")
    assert "--headless" in second
    assert "--headless" not in first
    ranks = [
        options(words, "sglang")
        for words in commands(size(with_engine(STAGES, "sglang"), "--commands", env=env).stdout)
    ]
    assert [rank["--node-rank"] for rank in ranks] == ["0", "1"]
    assert {rank["--dist-init-addr"] for rank in ranks} == {"$HEAD:20000"}
    (mpi,) = commands(size(with_engine(STAGES, "trtllm"), "--commands", env=env).stdout)
    assert mpi[:3] == ["mpirun", "-n", "16"]
    assert options(mpi, "trtllm")["--gpus_per_node"] == "8"


POOLS = """
[[server]]
gpu = "H200"
[[workload]]
name = "apart"
model = "Qwen/Qwen3-32B"
target = 6
target_kind = "requests_per_s"
tpot_p95_ms = 40
prompt_tokens = 6000
answer_tokens = 300
"""


def test_pools_of_prefill_and_decode_are_started_apart(env: dict[str, str]) -> None:
    plan = json.loads(size(POOLS, "--pools", "--json", env=env).stdout)["workloads"]
    assert [workload["pool"] for workload in plan] == ["prefill", "decode"]
    vllm = size(POOLS, "--pools", "--commands", env=env).stdout
    found = {}
    for block, workload in zip(vllm.split("\n\n"), plan, strict=True):
        values = options(commands(block)[0], "vllm")
        assert json.loads(values["--kv-transfer-config"])["kv_connector"] == "NixlConnector"
        assert values["--tensor-parallel-size"] == str(workload["tp"])
        assert "VLLM_NIXL_SIDE_CHANNEL_PORT=5600 vllm serve" in block
        assert f"# apart: {workload['pool']}: {workload['instances']:.0f} instance" in block
    sglang = size(with_engine(POOLS, "sglang"), "--pools", "--commands", env=env).stdout
    for words in commands(sglang):
        values = options(words, "sglang")
        found[values["--disaggregation-mode"]] = values["--disaggregation-transfer-backend"]
    assert found == {"prefill": "nixl", "decode": "nixl"}
    trtllm = size(with_engine(POOLS, "trtllm"), "--pools", "--commands", env=env).stdout
    assert trtllm.count("cache_transceiver_config:\n  backend: DEFAULT") == 2
    assert len(checked(size(POOLS, "--pools", "--manifest", "deployment", env=env).stdout)) == 4
    refused = size(POOLS, "--pools", "--manifest", "dynamo", env=env, code=1)
    assert "--manifest deployment or lws" in refused.stderr


def test_a_name_from_a_file_starts_nothing_else(env: dict[str, str]) -> None:
    hostile = DENSE.replace("Qwen/Qwen3-32B", "x; rm -rf $HOME `id`").replace("chat 1", "a\\nrm -rf /")
    typed = hostile + "capacity_per_instance = 10\nmemory_gb = 20\n"
    text = size(typed, "--commands", env=env).stdout
    for words in commands(text):
        assert words[:3] == ["vllm", "serve", "x; rm -rf $HOME `id`"]
    assert not any(line.startswith("rm") for line in text.splitlines())
    (document, _) = yaml_blocks.documents(size(typed, "--manifest", "deployment", env=env).stdout)
    assert document["metadata"]["name"] == "a-rm-rf"


def test_a_name_from_an_engine_is_no_option_and_no_variable(env: dict[str, str]) -> None:
    model = "--middleware=$(HF_TOKEN)\\n\\r- \\U0001F600" + "x" * 400
    typed = DENSE.replace("Qwen/Qwen3-32B", model) + "capacity_per_instance = 10\nmemory_gb = 20\n"
    (words, *_) = commands(size(typed, "--commands", env=env).stdout)
    assert words[2] == "./--middleware=$(HF_TOKEN)\\x0a\\x0d- \U0001f600" + "x" * 400
    for kind in ("deployment", "lws", "dynamo", "llm-d"):
        text = size(typed, "--manifest", kind, env=env).stdout
        assert "./--middleware=$$(HF_TOKEN)" in text
        assert "\r" not in text
        assert "\\ud83d" not in text
    (document, _) = yaml_blocks.documents(size(typed, "--manifest", "deployment", env=env).stdout)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["command"][2] == "./--middleware=$$(HF_TOKEN)\n\r- \U0001f600" + "x" * 400


def test_names_that_kubernetes_takes_for_one_are_told_apart(env: dict[str, str]) -> None:
    twice = DENSE + DENSE.partition('gpu = "H100"\n')[2].replace("chat 1", "chat-1")
    documents = yaml_blocks.documents(size(twice, "--manifest", "deployment", env=env).stdout)
    assert [document["metadata"]["name"] for document in documents] == ["chat-1", "chat-1", "chat-1-2", "chat-1-2"]


ANY: Any = ...
"""A field whose value is a text, a number or a truth."""
TEXTS: Any = {"*": ANY}
PROBE = {"httpGet": {"path": ANY, "port": ANY}, "periodSeconds": ANY, "failureThreshold": ANY}
VALUE_FROM = {"secretKeyRef": {"name": ANY, "key": ANY, "optional": ANY}, "fieldRef": {"fieldPath": ANY}}
CONTAINER = {
    "name": ANY, "image": ANY, "command": [ANY], "args": [ANY], "resources": {"limits": TEXTS, "requests": TEXTS},
    "env": [{"name": ANY, "value": ANY, "valueFrom": VALUE_FROM}],
    "ports": [{"name": ANY, "containerPort": ANY, "protocol": ANY}], "startupProbe": PROBE, "readinessProbe": PROBE,
    "volumeMounts": [{"name": ANY, "mountPath": ANY}],
}  # fmt: skip
POD = {
    "containers": [CONTAINER],
    "volumes": [{"name": ANY, "emptyDir": {"medium": ANY, "sizeLimit": ANY}, "configMap": {"name": ANY}}],
}
TEMPLATE = {"metadata": {"labels": TEXTS}, "spec": POD}
METADATA = {"name": ANY, "labels": TEXTS}
DYNAMO_SERVICE = {
    "componentType": ANY, "replicas": ANY, "envFromSecret": ANY, "resources": {"limits": {"gpu": ANY}},
    "multinode": {"nodeCount": ANY}, "extraPodSpec": {"mainContainer": CONTAINER},
}  # fmt: skip
FIELDS: dict[tuple[str, str], Any] = {
    # Kubernetes 1.34, API reference.
    ("apps/v1", "Deployment"): {
        "replicas": ANY, "selector": {"matchLabels": TEXTS}, "template": TEMPLATE,
    },
    ("v1", "Service"): {"selector": TEXTS, "ports": [{"name": ANY, "port": ANY, "targetPort": ANY}]},
    # leaderworkerset.x-k8s.io/v1, LWS's API reference.
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): {
        "replicas": ANY,
        "leaderWorkerTemplate": {
            "size": ANY, "restartPolicy": ANY, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE,
        },
    },
    # examples/backends/*/deploy of ai-dynamo/dynamo.
    ("nvidia.com/v1alpha1", "DynamoGraphDeployment"): {"services": {"*": DYNAMO_SERVICE}},
}  # fmt: skip
LLM_D = {
    # charts/llm-d-modelservice/values.yaml of llm-d-incubation/llm-d-modelservice.
    "fullnameOverride": ANY, "multinode": ANY, "accelerator": {"type": ANY},
    "modelArtifacts": {"name": ANY, "uri": ANY, "size": ANY, "authSecretName": ANY, "labels": TEXTS},
    "routing": {"servicePort": ANY, "proxy": {"enabled": ANY}}, "prefill": {"create": ANY},
    "decode": {
        "create": ANY, "replicas": ANY, "parallelism": {"tensor": ANY, "data": ANY, "dataLocal": ANY, "workers": ANY},
        "containers": [{**CONTAINER, "modelCommand": ANY, "mountModelVolume": ANY}],
    },
}  # fmt: skip


def check(value: Any, fields: Any, place: str = "") -> None:
    """Each field is one that its kind has, and of its shape."""
    if fields is ANY:
        assert isinstance(value, str | int | bool), place
    elif isinstance(fields, list):
        assert isinstance(value, list), place
        for number, entry in enumerate(value):
            check(entry, fields[0], f"{place}[{number}]")
    else:
        assert isinstance(value, Mapping), place
        for name, entry in value.items():
            assert name in fields or "*" in fields, f"{place}.{name}"
            check(entry, fields.get(name, fields.get("*")), f"{place}.{name}")


def checked(text: str) -> list[Any]:
    """The documents of a manifest, each with the fields of its kind alone."""
    found = yaml_blocks.documents(text)
    for document in found:
        kind = (document["apiVersion"], document["kind"])
        if kind == ("v1", "ConfigMap"):
            check(document["data"], TEXTS)
            continue
        check(document["spec"], FIELDS[kind], document["kind"])
        check(document["metadata"], METADATA)
    return found


def test_a_deployment_for_each_workload(env: dict[str, str]) -> None:
    text = run_gpumon("size", "docs/examples/users.toml", "--manifest", "deployment", env=env, cwd=ROOT).stdout
    deployment, service = checked(text)
    assert deployment["spec"]["template"]["metadata"]["labels"]["app"] == service["spec"]["selector"]["app"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    values = options(container["command"], "vllm")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": values["--tensor-parallel-size"]}
    assert text.startswith("# assistant: ")
    assert "# assumed: weights are made FP8" in text


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_leader_worker_set_for_instances_over_servers(engine: str, env: dict[str, str]) -> None:
    text = size(with_engine(STAGES, engine), "--manifest", "lws", env=env).stdout
    group, service = checked(text)
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    assert service["spec"]["selector"] == template["leaderTemplate"]["metadata"]["labels"]
    for name, is_worker in (("leaderTemplate", False), ("workerTemplate", True)):
        (container,) = template[name]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert container["command"][:2] == ["/bin/sh", "-c"]
        words = shlex.split(container["command"][2])[1:]
        assert ("--headless" in options(words, engine)) == (is_worker and engine == "vllm")
        assert ("ports" in container) == (not is_worker)


def test_what_a_kind_cannot_say_names_the_one_that_can(env: dict[str, str]) -> None:
    done = size(STAGES, "--manifest", "deployment", env=env, code=1)
    assert "an instance stands on 2 servers: --manifest lws" in done.stderr
    trtllm = size(with_engine(DENSE, "trtllm"), "--manifest", "dynamo", env=env, code=1)
    assert "engine = vllm or sglang" in trtllm.stderr
    assert (
        "llm-d's chart starts vLLM" in size(with_engine(DENSE, "sglang"), "--manifest", "llm-d", env=env, code=1).stderr
    )
    assert "needs MPI" in size(with_engine(STAGES, "trtllm"), "--manifest", "lws", env=env, code=1).stderr


def test_trtllm_has_its_further_options_in_a_config_map(env: dict[str, str]) -> None:
    options_map, deployment, _ = checked(
        size(with_engine(EXPERTS, "trtllm"), "--manifest", "deployment", env=env).stdout
    )
    assert yaml_blocks.documents(options_map["data"]["options.yaml"])[0]["enable_attention_dp"] is True
    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"][1]["configMap"]["name"] == options_map["metadata"]["name"]
    values = options(pod["containers"][0]["command"], "trtllm")
    assert values["--extra_llm_api_options"] == "/etc/trtllm/options.yaml"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_graph_of_dynamo(engine: str, env: dict[str, str]) -> None:
    (graph,) = checked(size(with_engine(STAGES, engine), "--manifest", "dynamo", env=env).stdout)
    worker = graph["spec"]["services"]["worker"]
    assert worker["multinode"] == {"nodeCount": 2}
    container = worker["extraPodSpec"]["mainContainer"]
    assert container["command"] == ["python3", "-m", f"dynamo.{engine}"]
    model_option = "--model" if engine == "vllm" else "--model-path"
    assert container["args"][:2] == [model_option, "meta-llama/Llama-3.1-405B-Instruct"]
    assert options([*PROGRAMS[engine][0], *container["args"]], engine)


def test_values_of_llm_d(env: dict[str, str]) -> None:
    (values,) = yaml_blocks.documents(size(DENSE, "--manifest", "llm-d", env=env).stdout)
    check(values, LLM_D)
    (container,) = values["decode"]["containers"]
    assert options([*container["command"], *container["args"]], "vllm")
    assert values["modelArtifacts"]["uri"] == "hf://Qwen/Qwen3-32B"
    assert values["modelArtifacts"]["size"] == "73Gi"
    (several,) = yaml_blocks.documents(size(STAGES, "--manifest", "llm-d", env=env).stdout)
    check(several, LLM_D)
    assert (several["multinode"], several["decode"]["parallelism"]["workers"]) == (True, 2)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--manifest", "helm"), "argument --manifest: invalid choice: 'helm'"),
        (("--manifest", "lws", "--json"), "--manifest and --json: one of them at a time"),
        (("--commands", "--compare", "H200"), "one of them at a time"),
    ],
)
def test_usage(arguments: tuple[str, ...], why: str, env: dict[str, str]) -> None:
    assert why in size(DENSE, *arguments, env=env, code=2).stderr


def test_a_plan_without_an_answer_starts_nothing(env: dict[str, str]) -> None:
    done = size(DENSE + "itl_p95_ms = 0.1\n", "--commands", env=env, code=1)
    assert done.stdout == ""
    assert "nothing to start: " in done.stderr


LINE = st.text(max_size=30).filter(lambda text: "\n" not in text)
VALUES = st.recursive(
    st.text(max_size=30) | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(LINE, inner, min_size=1, max_size=4),
    max_leaves=12,
)


def nested_list(value: Any) -> bool:
    """Whether a list is directly in a list, which no manifest has."""
    if isinstance(value, Mapping):
        return any(map(nested_list, value.values()))
    return isinstance(value, list) and any(isinstance(entry, list) or nested_list(entry) for entry in value)


@given(st.dictionaries(st.just("a") | st.just("a b") | st.just("yes"), VALUES, min_size=1))
def test_whatever_is_written_reads_back(document: dict[str, Any]) -> None:
    if not nested_list(document):
        assert yaml_blocks.documents(yaml_text(document)) == [document]
