"""Manifests that start the engines of a plan: Deployment, LeaderWorkerSet, Dynamo's graph, values of llm-d's chart."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gpumon.outputs.launch_commands import FIRST_PORT, model_word, option_words, program, server_options
from gpumon.outputs.yaml_text import yaml_text
from gpumon.readings.format import counted
from gpumon.readings.text import clean, free_name
from gpumon.sizing.launch import ENGINE_NAMES, Launch

Document = Mapping[str, Any]

_IMAGES: Final = MappingProxyType(
    {
        "vllm": "vllm/vllm-openai:v0.33.0",
        "sglang": "lmsysorg/sglang:v0.5.23",
        "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0",
    }
)
"""Image of each engine, of the version whose options are written."""
_DYNAMO_IMAGES: Final = MappingProxyType(
    {
        "vllm": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:my-tag",
        "sglang": "nvcr.io/nvidia/ai-dynamo/sglang-runtime:my-tag",
    }
)
"""Images as Dynamo's examples name them: the tag is that of the installed release."""
_LLM_D_IMAGE: Final = "ghcr.io/llm-d/llm-d-cuda:latest"
"""Image of llm-d's examples."""
_HEALTH: Final = "/health"
_START_S: Final = 3600
"""Seconds that an engine may take to load a model before it is started again."""
_PROBE_S: Final = 10
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME: Final = 52
"""Letters of a name: LeaderWorkerSets and Deployments add to it, and 63 are allowed."""
_DISK_FACTOR: Final = 1.2
"""Room for a model's files beside its weights."""
_LONGEST_NOTE: Final = 300
_NO_POOLS: Final = "prefill and decode on pools of their own are written as engines alone: --manifest deployment or lws"


class CannotSayError(Exception):
    """A kind of manifest has no words for a plan; the text says why and what has."""


def manifests_text(launches: Sequence[Launch], kind: str) -> str:
    """The manifests of all engines, documents behind each other, with what was assumed as comments.

    Raises CannotSayError.
    """
    texts = []
    for launch, name in zip(launches, _names_of(launches), strict=True):
        documents = _KINDS[kind](launch, name)
        texts.append("".join(f"# {line}\n" for line in _comments(launch)) + "---\n".join(map(yaml_text, documents)))
    return "---\n".join(texts)


def _comments(launch: Launch) -> Iterator[str]:
    """Lines in front of the documents of an engine, with what was assumed."""
    instances = counted(launch.instances, "instance")
    gpu = clean(launch.gpu, 60)
    yield f"{clean(launch.name, 60)}: {instances} of {clean(launch.model, 80)}, {launch.gpus} x {gpu} each"
    yield f"options of {ENGINE_NAMES[launch.engine]}; check the image, and add a node selector for {gpu}"
    for note in launch.notes:
        yield f"assumed: {clean(note, _LONGEST_NOTE)}"


def _names_of(launches: Sequence[Launch]) -> list[str]:
    """A name for each engine that no other one has: `chat 1` and `chat-1` are one to Kubernetes."""
    names: list[str] = []
    for launch in launches:
        names.append(free_name(_name_of(launch, launches), names))
    return names


def _name_of(launch: Launch, launches: Sequence[Launch]) -> str:
    """A name that Kubernetes takes."""
    base = _NOT_IN_NAMES.sub("-", launch.name.casefold()).strip("-")[:_LONGEST_NAME].strip("-") or "engine"
    if not base[0].isalpha():
        base = f"m-{base}"[:_LONGEST_NAME]
    if sum(other.name == launch.name for other in launches) > 1:  # on several types of GPU
        base = f"{base[:30]}-{_NOT_IN_NAMES.sub('-', launch.gpu.casefold()).strip('-')}"[:_LONGEST_NAME].strip("-")
    return base


def _gpu_resource(launch: Launch) -> str:
    """The resource that a container asks for."""
    return "amd.com/gpu" if launch.is_amd else "nvidia.com/gpu"


def _deployment(launch: Launch, name: str) -> list[Document]:
    """A Deployment with a Service. Raises CannotSayError for instances over several servers."""
    if launch.servers > 1:
        raise CannotSayError(f"an instance stands on {launch.servers} servers: --manifest lws")
    labels = {"app": name, "llm-engine": launch.engine}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": launch.instances,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(launch, name, _words(launch))},
        },
    }
    return [*_config_maps(launch, name), deployment, _service(name, {"app": name})]


def _lws(launch: Launch, name: str) -> list[Document]:
    """A LeaderWorkerSet, a group of pods for each instance, with a Service of the leaders. Raises CannotSayError."""
    if launch.engine == "trtllm" and launch.servers > 1:
        raise CannotSayError("TensorRT-LLM over several servers needs MPI: --commands has its mpirun")
    labels = {"app": name, "llm-engine": launch.engine}
    template: dict[str, Any] = {"size": launch.servers, "restartPolicy": "RecreateGroupOnPodRestart"}
    if launch.servers > 1:
        leader = {**labels, "role": "leader"}
        template["leaderTemplate"] = {
            "metadata": {"labels": leader},
            "spec": _pod(launch, name, _group_words(launch, is_worker=False)),
        }
        template["workerTemplate"] = {
            "metadata": {"labels": labels},
            "spec": _pod(launch, name, _group_words(launch, is_worker=True), listens=False),
        }
        selector = leader
    else:
        template["workerTemplate"] = {"metadata": {"labels": labels}, "spec": _pod(launch, name, _words(launch))}
        selector = {"app": name}
    leader_worker_set = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": launch.instances, "leaderWorkerTemplate": template},
    }
    return [*_config_maps(launch, name), leader_worker_set, _service(name, selector)]


def _dynamo(launch: Launch, name: str) -> list[Document]:
    """A graph of Dynamo: its frontend, and the engine as a worker. Raises CannotSayError for TensorRT-LLM."""
    image = _DYNAMO_IMAGES.get(launch.engine)
    if launch.pool:
        raise CannotSayError(_NO_POOLS)
    if image is None:
        raise CannotSayError(
            "TensorRT-LLM's worker takes a file of its own: engine = vllm or sglang, or --manifest lws"
        )
    module = f"dynamo.{launch.engine}"
    model_option = "--model" if launch.engine == "vllm" else "--model-path"
    arguments = [model_option, model_word(launch)]
    for option in launch.options:
        arguments += option_words(option)
    worker: dict[str, Any] = {
        "envFromSecret": "hf-token-secret",
        "componentType": "worker",
        "replicas": launch.instances,
        "resources": {"limits": {"gpu": str(launch.gpus_per_server)}},
        "extraPodSpec": {
            "mainContainer": {"image": image, "command": ["python3", "-m", module], "args": _literal(arguments)}
        },
    }
    if launch.servers > 1:
        worker["multinode"] = {"nodeCount": launch.servers}
    frontend = {
        "componentType": "frontend",
        "replicas": 1,
        "extraPodSpec": {"mainContainer": {"image": image, "command": ["python3", "-m", "dynamo.frontend"]}},
    }
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {"services": {"Frontend": frontend, "worker": worker}},
    }
    return [graph]


def _llm_d(launch: Launch, name: str) -> list[Document]:
    """Values of the chart llm-d-modelservice. Raises CannotSayError for other engines than vLLM."""
    if launch.pool:
        raise CannotSayError(_NO_POOLS)
    if launch.engine != "vllm":
        raise CannotSayError("llm-d's chart starts vLLM: engine = vllm")
    words = _words(launch) if launch.servers == 1 else _group_words(launch, is_worker=None)
    container = {
        "name": "vllm",
        "image": _LLM_D_IMAGE,
        "modelCommand": "custom",
        "command": words[:1] if launch.servers == 1 else words[:2],
        "args": words[1:] if launch.servers == 1 else words[2:],
        "ports": [{"name": "http", "containerPort": FIRST_PORT, "protocol": "TCP"}],
        "resources": {"limits": {_gpu_resource(launch): str(launch.gpus_per_server)}},
        "mountModelVolume": True,
    }
    values = {
        "fullnameOverride": name,
        "modelArtifacts": {
            "name": launch.model,
            "uri": f"hf://{launch.model}",
            "size": f"{max(1, round(_DISK_FACTOR * launch.weights_bytes / 1024**3))}Gi",
            "authSecretName": "hf-token-secret",
            "labels": {"llm-d.ai/inferenceServing": "true", "llm-d.ai/model": name},
        },
        "accelerator": {"type": "amd" if launch.is_amd else "nvidia"},
        "multinode": launch.servers > 1,
        "routing": {"servicePort": FIRST_PORT, "proxy": {"enabled": False}},
        "decode": {
            "create": True,
            "replicas": launch.instances,
            "parallelism": {"tensor": launch.gpus_per_server, "data": 1, "workers": launch.servers},
            "containers": [container],
        },
        "prefill": {"create": False},
    }
    return [values]


_KINDS: Final[Mapping[str, Callable[[Launch, str], list[Document]]]] = MappingProxyType(
    {"deployment": _deployment, "lws": _lws, "dynamo": _dynamo, "llm-d": _llm_d}
)
"""Kind of a manifest -> the documents of an engine, by its name."""


def _words(launch: Launch) -> list[str]:
    """The command of an instance on one server."""
    words = program(launch, FIRST_PORT)
    if launch.config:
        words += ["--extra_llm_api_options", "/etc/trtllm/options.yaml"]
    return _literal(words)


def _literal(words: Sequence[str]) -> list[str]:
    """Words that Kubernetes leaves as they are: it reads `$(HF_TOKEN)` as a variable's value, and `$$` as `$`."""
    return [word.replace("$", "$$") for word in words]


def _group_words(launch: Launch, *, is_worker: bool | None) -> list[str]:
    """The command of a server among several, by the variables of a LeaderWorkerSet.

    `is_worker`: None for one command that asks for its place itself.
    """
    local_ranks = launch.dp // launch.servers
    placed = server_options(
        launch, "$LWS_WORKER_INDEX", "$LWS_LEADER_ADDRESS", f"$((LWS_WORKER_INDEX * {max(1, local_ranks)}))"
    )
    script = f"exec {shlex.join(_literal(program(launch, FIRST_PORT)))} {' '.join(placed)}"
    if launch.engine == "vllm" and is_worker:
        script += " --headless"
    elif launch.engine == "vllm" and is_worker is None:
        script += ' $([ "$LWS_WORKER_INDEX" = 0 ] || echo --headless)'
    return ["/bin/sh", "-c", script]


def _pod(launch: Launch, name: str, words: Sequence[str], *, listens: bool = True) -> Document:
    """The pod of an engine; `listens`: whether it answers requests, as the first server of an instance does."""
    container: dict[str, Any] = {
        "name": launch.engine,
        "image": _IMAGES[launch.engine],
        "command": list(words),
        "env": [
            {
                "name": "HF_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "hf-token-secret", "key": "HF_TOKEN", "optional": True}},
            }
        ],
        "resources": {"limits": {_gpu_resource(launch): str(launch.gpus_per_server)}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes: list[Document] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if listens:
        probe = {"httpGet": {"path": _HEALTH, "port": "http"}, "periodSeconds": _PROBE_S}
        container["ports"] = [{"name": "http", "containerPort": FIRST_PORT}]
        container["startupProbe"] = {**probe, "failureThreshold": _START_S // _PROBE_S}
        container["readinessProbe"] = probe
    if launch.pool and launch.engine == "vllm":  # where the other pool asks for the KV cache
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["env"].append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address})
    if launch.config:
        container["volumeMounts"].append({"name": "options", "mountPath": "/etc/trtllm"})
        volumes.append({"name": "options", "configMap": {"name": f"{name}-options"}})
    return {"containers": [container], "volumes": volumes}


def _config_maps(launch: Launch, name: str) -> list[Document]:
    """The ConfigMap with TensorRT-LLM's file; none without one."""
    if not launch.config:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-options"},
            "data": {"options.yaml": yaml_text(launch.config)},
        }
    ]


def _service(name: str, selector: Mapping[str, str]) -> Document:
    """The Service in front of the engines."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": dict(selector), "ports": [{"name": "http", "port": FIRST_PORT, "targetPort": "http"}]},
    }
