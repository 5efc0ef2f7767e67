"""FLOPs of the models that were served in tests/data/captures, counted in the real model code.

A row has what one token costs, by what it depends on. Counted by PyTorch's FLOP counter in
transformers' model at its full (small) size with random weights, eager attention and experts one by one:

- `linear_flops`: of one token through all layers, without the LM head: every product with a matrix of weights.
- `head_flops`: of the LM head for one token.
- `full_pair_flops`, `window_pair_flops`: of one query with one key, QK^T and AV, over all layers that see all and
  over those that see `window` tokens. Eager attention computes the whole square, an engine its causal half: that is why
  there are pairs here and no prompts.
- `decode_full_pair_flops`: the same in a decode step: MLA decodes against the latent itself (absorbed), which is done
  here with the model's own weights and checked to give what its own form gives. All others: as `full_pair_flops`.
- `state_flops`: of one token in all layers with a state: the arithmetic on tensors as large as the state, as the
  model's code does it for one token, and the short convolution before it.
- `chunk_flops`: what the products between activations come to in these layers when the model's code computes a prompt
  in chunks: an implementation's choice, which no test asks for.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

DATA: Final = Path(__file__).resolve().parents[1] / "data"
LENGTHS: Final = (256, 512, 1024)
"""Prompts: multiples of every chunk, beyond every window but for the first."""
CHUNK: Final = {"mamba_chunk_size", "chunk_size"}
AS_LARGE: Final = {"mul", "add", "sub", "div"}
LAYER: Final = re.compile(r"\.layers\.(\d+)$")


class Counted(NamedTuple):
    """FLOPs of one pass."""

    weights: float
    """Products with weights, the LM head among them."""
    convolutions: float
    head: float
    layers: dict[int, float]
    """Layer -> products between activations."""
    state: float


class StateArithmetic(TorchDispatchMode):
    """Counts elementwise operations on tensors of the size of a state, one FLOP an element; not matrix products."""

    def __init__(self, sizes: set[int]) -> None:
        super().__init__()
        self.sizes, self.flops = sizes, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::").partition(".")[0].rstrip("_")
        if name in AS_LARGE and isinstance(out, torch.Tensor) and out.numel() in self.sizes:
            self.flops += out.numel()
        if name == "sum" and args[0].numel() in self.sizes:
            self.flops += args[0].numel()
        return out


def load(folder: Path) -> Any:
    """The model of a capture with random weights."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    for name in CHUNK & set(vars(config)):
        setattr(config, name, LENGTHS[0])
    kinds = {"attn_implementation": "eager", "experts_implementation": "eager", "dtype": torch.float32}
    return AutoModelForCausalLM.from_config(config, **kinds).eval()


def states(cache: Any) -> set[int]:
    """Sizes of the states that layers keep in place of keys and values."""
    found = (getattr(layer, "recurrent_states", None) for layer in cache.layers)
    tensors = itertools.chain.from_iterable(one.values() if isinstance(one, dict) else (one,) for one in found)
    return {one.numel() for one in tensors if one is not None}


def counted(model: Any, tokens: int, cache: Any = None) -> tuple[Counted, Any]:
    """One pass of `tokens` after what is in the cache."""
    ids = torch.randint(300, model.config.vocab_size, (1, tokens))
    state = StateArithmetic(states(cache) if cache is not None else set())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, state:
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    weights = convolutions = head = 0.0
    layers: dict[int, float] = defaultdict(float)
    for module, operations in counter.get_flop_counts().items():
        layer = LAYER.search(module)
        for operation, flops in operations.items():
            product = "bmm" in str(operation)
            if module == "Global" and "convolution" in str(operation):
                convolutions += flops
            elif module == "Global" and not product:
                weights += flops
            if module.endswith(".lm_head") and not product:
                head += flops
            if layer and product:
                layers[int(layer[1])] += flops
    return Counted(weights, convolutions, head, layers, state.flops), out.past_key_values


def absorbed(attention: Any, keys: int) -> tuple[float, float]:
    """FLOPs of MLA's decode against the latent: of one token's own products with kv_b_proj, and of each pair.

    With the module's own weights and made-up latents and queries; AssertionError where it is not what the module's own
    form gives (expanding every key and value first).
    """
    config = attention.config
    heads, rank, rope = config.num_attention_heads, config.kv_lora_rank, config.qk_rope_head_dim
    nope, wide = config.qk_nope_head_dim, config.v_head_dim
    up = attention.kv_b_proj.weight.view(heads, nope + wide, rank)
    up_key, up_value = up[:, :nope], up[:, nope:]
    latent, shared = torch.randn(keys, rank), torch.randn(keys, rope)
    query, turned = torch.randn(heads, 1, nope), torch.randn(heads, 1, rope)
    before, pairs, after = (FlopCounterMode(display=False) for _ in range(3))
    with torch.no_grad():
        with before:
            asked = torch.bmm(query, up_key)
        with pairs:
            scores = torch.bmm(asked, latent.T.expand(heads, -1, -1))
            scores = scores + torch.bmm(turned, shared.T.expand(heads, -1, -1))
            mixed = torch.bmm(scores.softmax(-1), latent.expand(heads, -1, -1))
        with after:
            answer = torch.bmm(mixed, up_value.transpose(1, 2))
        key, value = torch.einsum("tr,hdr->htd", latent, up_key), torch.einsum("tr,hdr->htd", latent, up_value)
        plain = (query @ key.transpose(1, 2) + turned @ shared.T).softmax(-1) @ value
    torch.testing.assert_close(answer, plain, rtol=1e-3, atol=1e-4)
    return float(before.get_total_flops() + after.get_total_flops()), pairs.get_total_flops() / keys


def per_token(first: float, second: float, tokens: int) -> float:
    """Growth by each of `tokens`; whole, or it did not grow by tokens alone."""
    each = (second - first) / tokens
    if each != round(each):
        raise ValueError(f"{first} -> {second} over {tokens} tokens")
    return each


class Attended(NamedTuple):
    """FLOPs of products between activations."""

    full: float
    """Of a pair, over the layers that see everything."""
    near: float
    """Of a pair, over those with a window."""
    window: int
    chunk: float
    """Of a token, in the layers that are left."""
    with_state: frozenset[int]


def attended(passes: Sequence[Counted], step: Counted, latent: bool) -> Attended:
    """Layers told apart by how their products grow: with the square of the prompt, and with a step's context or not.

    A step of MLA does not grow by pairs alone: it has no windows.
    """
    full = near = chunk = 0.0
    window, with_state = 0, set()
    for layer, flops in passes[-1].layers.items():
        pair = flops / LENGTHS[-1] ** 2
        if passes[0].layers[layer] != pair * LENGTHS[0] ** 2:
            chunk += flops / LENGTHS[-1]
            with_state.add(layer)
        elif latent or step.layers[layer] == pair * (LENGTHS[-1] + 1):
            full += pair
        else:
            near, window = near + pair, round(step.layers[layer] / pair)
    return Attended(full, near, window, chunk, frozenset(with_state))


def row(folder: Path) -> dict[str, object]:
    """What one capture's model costs. Raises ValueError where the counts do not follow the form of the columns."""
    model = load(folder)
    passes = []
    for tokens in LENGTHS:
        done, cache = counted(model, tokens)
        passes.append(done)
    step, _ = counted(model, 1, cache)
    short, middle, long = passes
    linear = per_token(short.weights, middle.weights, LENGTHS[1] - LENGTHS[0])
    if any(done.weights != tokens * linear + short.head for done, tokens in zip(passes, LENGTHS, strict=True)):
        raise ValueError(f"{folder.name}: weights are not multiplied once a token, the LM head once")
    latent = hasattr(model.config, "kv_lora_rank")
    found = attended(passes, step, latent)
    decode_linear, decode_pair = step.weights - step.head, found.full
    if latent:
        attention = model.model.layers[0].self_attn
        own, pair = absorbed(attention, LENGTHS[-1])
        expanded = 2.0 * attention.kv_b_proj.weight.numel() * (LENGTHS[-1] + 1)
        decode_linear += len(long.layers) * (own - expanded)
        decode_pair = len(long.layers) * pair
    if decode_linear != linear:
        raise ValueError(f"{folder.name}: a decoded token multiplies {decode_linear}, one of a prompt {linear}")
    state = per_token(middle.convolutions, long.convolutions, LENGTHS[2] - LENGTHS[1]) + step.state
    return {
        "capture": folder.name,
        "model_type": model.config.model_type,
        "parameters": sum(one.numel() for one in model.parameters()),
        "linear_flops": round(linear),
        "head_flops": round(short.head),
        "full_pair_flops": round(found.full),
        "window_pair_flops": round(found.near),
        "window": found.window,
        "decode_full_pair_flops": round(decode_pair),
        "state_flops": round(state + sum(step.layers[layer] for layer in found.with_state)),
        "chunk_flops": round(found.chunk),
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}",
    }


def rows() -> Iterator[dict[str, object]]:
    """Of all captures of models that are no Llama."""
    for folder in sorted((DATA / "captures").glob("vllm-family-*")):
        yield row(folder)
