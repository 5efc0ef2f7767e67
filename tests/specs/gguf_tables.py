"""Tensor tables and metadata as llama.cpp's converter writes them for a model of given dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpumon.specs.gguf import GgufHeader, Tensor

F32, F16, Q4_K, Q6_K, BF16, MXFP4 = 0, 1, 12, 14, 30, 39
Kinds = Callable[[str], int]


def matrices(kind: int) -> Kinds:
    """Every matrix in one type."""
    return lambda _: kind


def q4_k_m(layers: int) -> Kinds:
    """llama.cpp's Q4_K_M: the output, and values and down projections of half of the layers, in Q6_K."""

    def kind(name: str) -> int:
        if name == "output.weight":
            return Q6_K
        if "attn_v." in name or "ffn_down" in name:
            layer = int(name.split(".")[1])
            more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
            return Q6_K if more else Q4_K
        return Q4_K

    return kind


def header(config: Mapping[str, Any], kinds: Kinds, architecture: str = "llama", **extra: object) -> GgufHeader:
    """The header of a model with grouped attention, dense or of experts, by the fields of its config.json."""
    hidden, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    dim = config.get("head_dim") or hidden // heads
    groups, vocab = config.get("num_key_value_heads", heads), config["vocab_size"]
    experts = config.get("num_experts") or config.get("num_local_experts") or 0
    wide = config.get("moe_intermediate_size") or config["intermediate_size"]
    tensors = [("token_embd.weight", (hidden, vocab)), ("output_norm.weight", (hidden,))]
    if not config.get("tie_word_embeddings"):
        tensors.append(("output.weight", (hidden, vocab)))
    for layer in range(layers):
        begin = f"blk.{layer}."
        tensors += [
            (f"{begin}attn_q.weight", (hidden, heads * dim)),
            (f"{begin}attn_k.weight", (hidden, groups * dim)),
            (f"{begin}attn_v.weight", (hidden, groups * dim)),
            (f"{begin}attn_output.weight", (heads * dim, hidden)),
            (f"{begin}attn_norm.weight", (hidden,)),
        ]
        if experts:
            tensors += [
                (f"{begin}ffn_gate_inp.weight", (hidden, experts)),
                (f"{begin}ffn_gate_exps.weight", (hidden, wide, experts)),
                (f"{begin}ffn_up_exps.weight", (hidden, wide, experts)),
                (f"{begin}ffn_down_exps.weight", (wide, hidden, experts)),
            ]
        else:
            tensors += [
                (f"{begin}ffn_gate.weight", (hidden, wide)),
                (f"{begin}ffn_up.weight", (hidden, wide)),
                (f"{begin}ffn_down.weight", (wide, hidden)),
            ]
    table = tuple(Tensor(name, shape, kinds(name) if len(shape) > 1 else F32) for name, shape in tensors)
    return GgufHeader(metadata(config, architecture, dim, groups, experts, extra), table)


def metadata(
    config: Mapping[str, Any], architecture: str, dim: int, groups: int, experts: int, extra: Mapping[str, object]
) -> dict[str, object]:
    """Keys as the converter names them; `extra` are keys below the architecture, with `__` for a dot."""
    own: dict[str, object] = {
        "block_count": config["num_hidden_layers"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": groups,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "context_length": 8192,
    }
    if experts:
        own |= {"expert_count": experts, "expert_used_count": config["num_experts_per_tok"]}
    own |= {name.replace("__", "."): value for name, value in extra.items()}
    return {"general.architecture": architecture, **{f"{architecture}.{name}": value for name, value in own.items()}}
