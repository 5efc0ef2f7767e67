"""A Llama of 8 billion random parameters on the GPU, whose counters are served as vLLM serves its own.

    python -m tests.gpu.llama {decode,prefill} SECONDS [--batch 48]        # needs torch with CUDA

The arithmetic, the weights and the KV cache are real, so a GPU's own counters can be compared with what gpumon derives
from the tokens. It prints `ready URL`, then a line of JSON: what it did, by its own count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
from torch.utils.flop_counter import FlopCounterMode

from tests.fakes.http_server import LoopbackServer, Reply, Request

CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Llama 3.1 8B's."""

HIDDEN: Final = 4096
INNER: Final = 14336
LAYERS: Final = 32
HEADS: Final = 32
KV_HEADS: Final = 8
HEAD: Final = 128
VOCABULARY: Final = 128256
BLOCK: Final = 16
"""Tokens of a block of the KV cache."""

CONTEXT: Final = 2048
"""Tokens of context that each decoding sequence keeps."""

POOL: Final = 192 * CONTEXT
"""Tokens for which the KV cache would have room."""

PROMPT: Final = 4096
"""Tokens of a prompt, one at a time."""

REPORT_S: Final = 0.1
"""The GPU is waited for this often, and the counters follow: engines do it at each step."""


class Served:
    """vLLM's counters of one engine, and the pages that gpumon asks for."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        self._folder = folder
        self._registry = CollectorRegistry()
        self.prompt_tokens = self._counter("prompt_tokens")
        by_source = Counter(
            "vllm:prompt_tokens_by_source", "", ["engine", "model_name", "source"], registry=self._registry
        )
        self.computed = by_source.labels("0", "llama-8b", "local_compute")
        self.generated = self._counter("generation_tokens")
        self.running = self._gauge("num_requests_running")
        self.waiting = self._gauge("num_requests_waiting")
        self.kv_usage = self._gauge("kv_cache_usage_perc")
        self.steps = self._histogram("iteration_tokens_total", (1, 64, 16384))
        self.prompts = self._histogram("request_prompt_tokens", (1, PROMPT, 10000))
        self.ttft = self._histogram("time_to_first_token_seconds", (0.01, 0.1, 1.0))
        self.itl = self._histogram("inter_token_latency_seconds", (0.001, 0.01, 0.1))
        labels = {"engine": "0", "block_size": str(BLOCK), "num_gpu_blocks": str(POOL // BLOCK)}
        info = Gauge("vllm:cache_config_info", "", [*labels, "cache_dtype"], registry=self._registry)
        info.labels(**labels, cache_dtype="auto").set(1)
        self.server = LoopbackServer(self._answer)

    def _counter(self, name: str) -> Counter:
        return Counter(f"vllm:{name}", "", ["engine", "model_name"], registry=self._registry).labels("0", "llama-8b")

    def _gauge(self, name: str) -> Gauge:
        return Gauge(f"vllm:{name}", "", ["engine", "model_name"], registry=self._registry).labels("0", "llama-8b")

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        made = Histogram(f"vllm:{name}", "", ["engine", "model_name"], registry=self._registry, buckets=bounds)
        return made.labels("0", "llama-8b")

    def _answer(self, request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply(200, generate_latest(self._registry))
        if request.path == "/v1/models":
            model = {"id": "llama-8b", "object": "model", "root": str(self._folder), "max_model_len": 8192}
            return Reply(200, json.dumps({"object": "list", "data": [model]}).encode(), "application/json")
        if request.path == "/version":
            return Reply(200, b'{"version": "0.14.0"}', "application/json")
        return Reply(404, b"{}", "application/json")


class Llama:
    """Weights as an engine holds them: projections fused, the embedding and the LM head apart."""

    def __init__(self) -> None:
        self.embedding = self._weights(VOCABULARY, HIDDEN)
        self.qkv = [self._weights((HEADS + 2 * KV_HEADS) * HEAD, HIDDEN) for _ in range(LAYERS)]
        self.out = [self._weights(HIDDEN, HEADS * HEAD) for _ in range(LAYERS)]
        self.gate_up = [self._weights(2 * INNER, HIDDEN) for _ in range(LAYERS)]
        self.down = [self._weights(HIDDEN, INNER) for _ in range(LAYERS)]
        self.head = self._weights(VOCABULARY, HIDDEN)

    @staticmethod
    def _weights(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda") / columns**0.5

    def forward(self, tokens: torch.Tensor, attend: Attention) -> torch.Tensor:
        """Return hidden states, [rows, HIDDEN]. Positions are left out: they cost no bytes worth counting."""
        hidden = self.embedding[tokens]
        for layer in range(LAYERS):
            mixed = rms_norm(hidden, (HIDDEN,)) @ self.qkv[layer].T
            hidden = hidden + attend(layer, mixed) @ self.out[layer].T
            gate, up = (rms_norm(hidden, (HIDDEN,)) @ self.gate_up[layer].T).chunk(2, dim=-1)
            hidden = hidden + (silu(gate) * up) @ self.down[layer].T
        return rms_norm(hidden, (HIDDEN,))


class Attention(Protocol):
    """Attention of one layer over rows of query, key and value."""

    def __call__(self, layer: int, mixed: torch.Tensor, /) -> torch.Tensor: ...


class Cache:
    """The KV cache of `batch` sequences with CONTEXT tokens each; the newest token takes the last place."""

    def __init__(self, batch: int) -> None:
        shape = (LAYERS, 2, batch, KV_HEADS, CONTEXT, HEAD)
        self._kept = torch.randn(shape, dtype=torch.bfloat16, device="cuda")

    def __call__(self, layer: int, mixed: torch.Tensor) -> torch.Tensor:
        """Return the attention's output, [batch, HEADS * HEAD]."""
        query, key, value = mixed.split([HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=-1)
        keys, values = self._kept[layer]
        keys[:, :, -1] = key.view(-1, KV_HEADS, HEAD)
        values[:, :, -1] = value.view(-1, KV_HEADS, HEAD)
        # The heads that share a KV head are rows of one product: the cache is read once.
        grouped = query.view(-1, KV_HEADS, HEADS // KV_HEADS, HEAD)
        return scaled_dot_product_attention(grouped, keys, values).reshape(-1, HEADS * HEAD)


def whole_prompt(_layer: int, mixed: torch.Tensor) -> torch.Tensor:
    """Return the causal attention of one prompt over itself, [PROMPT, HEADS * HEAD]."""
    query, key, value = mixed.split([HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=-1)
    by_head = [rows.view(PROMPT, -1, HEAD).transpose(0, 1)[None] for rows in (query, key, value)]
    shared = HEADS // KV_HEADS
    keys, values = (rows.repeat_interleave(shared, dim=1) for rows in by_head[1:])
    seen = scaled_dot_product_attention(by_head[0], keys, values, is_causal=True)
    return seen[0].transpose(0, 1).reshape(PROMPT, HEADS * HEAD)


def decode(served: Served, model: Llama, seconds: float, batch: int) -> dict[str, Any]:
    """Decode with all sequences for `seconds`, and return the steps and their time."""
    cache = Cache(batch)
    tokens = torch.zeros(batch, dtype=torch.long, device="cuda")

    def step() -> None:
        tokens.copy_((model.forward(tokens, cache) @ model.head.T).argmax(dim=-1))

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    served.running.set(batch)
    served.kv_usage.set(batch * CONTEXT / POOL)
    print("ready", served.server.url, flush=True)
    began_s = last_s = time.monotonic()
    steps = 0
    while last_s - began_s < seconds:
        at_once = 0
        while time.monotonic() - last_s < REPORT_S:
            graph.replay()
            at_once += 1
            torch.cuda.synchronize()
        now_s = time.monotonic()
        for _ in range(at_once):
            served.steps.observe(batch)
        for _ in range(at_once * batch):
            served.itl.observe((now_s - last_s) / at_once)
        served.generated.inc(at_once * batch)
        steps += at_once
        last_s = now_s
    return {"steps": steps, "seconds": last_s - began_s, "tokens": steps * batch}


def prefill(served: Served, model: Llama, seconds: float, _batch: int) -> dict[str, Any]:
    """Compute one prompt after another for `seconds`; return them, their time, and the FLOPs of one as torch counts."""
    tokens = torch.randint(VOCABULARY, (PROMPT,), device="cuda")

    def prompt() -> int:
        return int((model.forward(tokens, whole_prompt)[-1:] @ model.head.T).argmax())

    counter = FlopCounterMode(display=False)
    with counter:
        prompt()
    counted = counter.get_flop_counts()["Global"]
    # torch counts causal attention as if all tokens saw all others.
    causal = sum(flops / 2 for operation, flops in counted.items() if "attention" in str(operation))
    served.running.set(1)
    served.kv_usage.set(PROMPT / POOL)
    print("ready", served.server.url, flush=True)
    began_s = last_s = time.monotonic()
    prompts = 0
    while last_s - began_s < seconds:
        prompt()
        now_s = time.monotonic()
        served.prompt_tokens.inc(PROMPT)
        served.computed.inc(PROMPT)
        served.generated.inc()
        served.prompts.observe(PROMPT)
        served.steps.observe(PROMPT)
        served.ttft.observe(now_s - last_s)
        prompts += 1
        last_s = now_s
    return {"prompts": prompts, "seconds": last_s - began_s, "flops": sum(counted.values()) - causal}


def main() -> None:
    """Serve, work, and print what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("decode", "prefill"))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--batch", type=int, default=48, help="sequences that decode at once")
    options = parser.parse_args()
    work = {"decode": decode, "prefill": prefill}[options.work]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        served = Served(Path(folder))
        with served.server:
            print(json.dumps(work(served, Llama(), options.seconds, options.batch)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
