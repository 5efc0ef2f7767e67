"""Headers of safetensors files as published checkpoints have them: names, types and shapes, without the weights."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gpumon.specs.stored_tensors import StoredTensors

Tensor = tuple[str, str, tuple[int, ...]]
WIDTHS: Final = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}


def size(tensor: Tensor) -> int:
    """Bytes of a tensor."""
    return WIDTHS[tensor[1]] * math.prod(tensor[2])


def stored(tensors: Iterable[Tensor]) -> StoredTensors:
    """The tensors as the reader of headers hands them on."""
    all_tensors = StoredTensors()
    for tensor in tensors:
        all_tensors.add(*tensor, float(size(tensor)))
    return all_tensors


def write(folder: Path, tensors: Iterable[Tensor], files: int = 1) -> None:
    """Files with these tensors, their weights left out."""
    listed = list(tensors)
    for number in range(files):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for tensor in listed[number::files]:
            name, dtype, shape = tensor
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size(tensor)]}
            offset += size(tensor)
        body = json.dumps(header).encode()
        name = "model.safetensors" if files == 1 else f"model-{number + 1:05}-of-{files:05}.safetensors"
        (folder / name).write_bytes(struct.pack("<Q", len(body)) + body)
    if files > 1:
        total = sum(map(size, listed))
        index = {"metadata": {"total_size": total}, "weight_map": {}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def plain(name: str, outputs: int, inputs: int, dtype: str = "BF16") -> Iterator[Tensor]:
    """A matrix that is not quantised."""
    yield f"{name}.weight", dtype, (outputs, inputs)


def block_fp8(name: str, outputs: int, inputs: int) -> Iterator[Tensor]:
    """DeepSeek's FP8 in blocks of 128 x 128."""
    yield f"{name}.weight", "F8_E4M3", (outputs, inputs)
    yield f"{name}.weight_scale_inv", "F32", (math.ceil(outputs / 128), math.ceil(inputs / 128))


def gptq(name: str, outputs: int, inputs: int, group: int = 128) -> Iterator[Tensor]:
    """GPTQ at 4 bits, zero points included."""
    yield f"{name}.qweight", "I32", (inputs // 8, outputs)
    yield f"{name}.qzeros", "I32", (inputs // group, outputs // 8)
    yield f"{name}.scales", "F16", (inputs // group, outputs)
    yield f"{name}.g_idx", "I32", (inputs,)


def nvfp4(name: str, outputs: int, inputs: int) -> Iterator[Tensor]:
    """ModelOpt's NVFP4."""
    yield f"{name}.weight", "U8", (outputs, inputs // 2)
    yield f"{name}.weight_scale", "F8_E4M3", (outputs, inputs // 16)
    yield f"{name}.weight_scale_2", "F32", ()
    yield f"{name}.input_scale", "F32", ()


def norms(layer: str, hidden: int) -> Iterator[Tensor]:
    """The two norms of a layer."""
    yield f"{layer}.input_layernorm.weight", "BF16", (hidden,)
    yield f"{layer}.post_attention_layernorm.weight", "BF16", (hidden,)


def llama(
    config: dict[str, Any], linear: Any = plain, path: str = "model.", *, head: bool = True, names: str = "llama"
) -> Iterator[Tensor]:
    """A dense model of Llama's kin, its linear layers stored in one way; `names`: llama or phi3 (fused)."""
    hidden = config["hidden_size"]
    width = config["intermediate_size"]
    dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = dim * config["num_attention_heads"]
    keys = dim * config["num_key_value_heads"]
    yield from plain(f"{path}embed_tokens", config["vocab_size"], hidden)
    if head:
        yield from plain("lm_head", config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"{path}layers.{number}"
        yield from norms(layer, hidden)
        if names == "phi3":
            yield from linear(f"{layer}.self_attn.qkv_proj", queries + 2 * keys, hidden)
            yield from linear(f"{layer}.mlp.gate_up_proj", 2 * width, hidden)
        else:
            yield from linear(f"{layer}.self_attn.q_proj", queries, hidden)
            yield from linear(f"{layer}.self_attn.k_proj", keys, hidden)
            yield from linear(f"{layer}.self_attn.v_proj", keys, hidden)
            yield from linear(f"{layer}.mlp.gate_proj", width, hidden)
            yield from linear(f"{layer}.mlp.up_proj", width, hidden)
        yield from linear(f"{layer}.self_attn.o_proj", hidden, queries)
        yield from linear(f"{layer}.mlp.down_proj", hidden, width)
    yield f"{path}norm.weight", "BF16", (hidden,)


def qwen35_moe(config: dict[str, Any], experts: Any = plain, *, encoder: bool = True) -> Iterator[Tensor]:
    """Qwen3.5's mixtures of experts: state layers, gated attention, a shared expert, a draft layer and an encoder."""
    text = config["text_config"]
    hidden = text["hidden_size"]
    width = text["moe_intermediate_size"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    queries = text["num_attention_heads"] * text["head_dim"]
    key_values = text["num_key_value_heads"] * text["head_dim"]
    yield from plain("model.language_model.embed_tokens", text["vocab_size"], hidden)
    yield from plain("lm_head", text["vocab_size"], hidden)
    layers = [(f"model.language_model.layers.{number}", kind) for number, kind in enumerate(text["layer_types"])]
    for layer, kind in [*layers, ("mtp.layers.0", "full_attention")]:
        yield from norms(layer, hidden)
        if kind == "linear_attention":
            yield from plain(f"{layer}.linear_attn.in_proj_qkv", 2 * keys + values, hidden)
            yield from plain(f"{layer}.linear_attn.in_proj_z", values, hidden)
            yield from plain(f"{layer}.linear_attn.in_proj_a", text["linear_num_value_heads"], hidden)
            yield from plain(f"{layer}.linear_attn.in_proj_b", text["linear_num_value_heads"], hidden)
            yield from plain(f"{layer}.linear_attn.out_proj", hidden, values)
            yield f"{layer}.linear_attn.conv1d.weight", "BF16", (2 * keys + values, 1, 4)
            yield f"{layer}.linear_attn.A_log", "F32", (text["linear_num_value_heads"],)
        else:
            yield from plain(f"{layer}.self_attn.q_proj", 2 * queries, hidden)
            yield from plain(f"{layer}.self_attn.k_proj", key_values, hidden)
            yield from plain(f"{layer}.self_attn.v_proj", key_values, hidden)
            yield from plain(f"{layer}.self_attn.o_proj", hidden, queries)
        yield from plain(f"{layer}.mlp.gate", text["num_experts"], hidden)
        yield from plain(f"{layer}.mlp.shared_expert_gate", 1, hidden)
        shared = text["shared_expert_intermediate_size"]
        for name in ("gate", "up", "down"):
            into = name != "down"
            yield from plain(
                f"{layer}.mlp.shared_expert.{name}_proj", *((shared, hidden) if into else (hidden, shared))
            )
            for expert in range(text["num_experts"]):
                shape = (width, hidden) if into else (hidden, width)
                yield from experts(f"{layer}.mlp.experts.{expert}.{name}_proj", *shape)
    if encoder:
        for number in range(config["vision_config"]["depth"]):
            yield from plain(f"model.visual.blocks.{number}.mlp.linear_fc1", 4304, 1152)


def gpt_oss(config: dict[str, Any]) -> Iterator[Tensor]:
    """gpt-oss: all experts of a layer in one tensor of MXFP4, with its scales."""
    hidden = config["hidden_size"]
    width = config["intermediate_size"]
    experts = config["num_local_experts"]
    queries = config["head_dim"] * config["num_attention_heads"]
    keys = config["head_dim"] * config["num_key_value_heads"]
    yield from plain("model.embed_tokens", config["vocab_size"], hidden)
    yield from plain("lm_head", config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        yield from norms(layer, hidden)
        for name, outputs, inputs in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden)):
            yield from plain(f"{layer}.self_attn.{name}_proj", outputs, inputs)
            yield f"{layer}.self_attn.{name}_proj.bias", "BF16", (outputs,)
        yield from plain(f"{layer}.self_attn.o_proj", hidden, queries)
        yield f"{layer}.self_attn.sinks", "BF16", (config["num_attention_heads"],)
        yield from plain(f"{layer}.mlp.router", experts, hidden)
        for name, outputs, inputs in (("gate_up", 2 * width, hidden), ("down", hidden, width)):
            yield f"{layer}.mlp.experts.{name}_proj_blocks", "U8", (experts, outputs, inputs // 32, 16)
            yield f"{layer}.mlp.experts.{name}_proj_scales", "U8", (experts, outputs, inputs // 32)
            yield f"{layer}.mlp.experts.{name}_proj_bias", "BF16", (experts, outputs)


def whisper(config: dict[str, Any]) -> Iterator[Tensor]:
    """Whisper: an encoder that may be larger than the decoder."""
    hidden = config["d_model"]
    yield from plain("model.decoder.embed_tokens", config["vocab_size"], hidden)
    yield from plain("model.decoder.embed_positions", config["max_target_positions"], hidden)
    for stack, layers in (("encoder", config["encoder_layers"]), ("decoder", config["decoder_layers"])):
        for number in range(layers):
            layer = f"model.{stack}.layers.{number}"
            for block in ("self_attn", "encoder_attn") if stack == "decoder" else ("self_attn",):
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield from plain(f"{layer}.{block}.{name}", hidden, hidden, "F16")
            yield from plain(f"{layer}.fc1", 4 * hidden, hidden, "F16")
            yield from plain(f"{layer}.fc2", hidden, 4 * hidden, "F16")
