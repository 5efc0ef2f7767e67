"""One model run on the meta device at full size: what its layers multiply, and what its cache holds.

The meta device computes shapes and no values, so a model of a trillion parameters runs in seconds and its code is the
code that real weights would run. Experts run in the form that multiplies the chosen experts only (`batched_mm`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

from tests.oracle.model import Language

_STATE = re.compile(
    r"Mixer$|MambaLayer$|GatedDeltaNet$|DeltaAttention$|LightningAttention$|TextLinearAttention$|RecurrentBlock$|Rglru$"
    r"|ShortConv(olution)?$|RwkvSelfAttention$|RwkvLinearAttention$|mLSTM|xLSTMLayer$"
)
PAIRED = (
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart", "trocr",
)  # fmt: skip
"""Decoders of text pairs: they attend to what an encoder makes of another text."""
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_EXPERTS = re.compile(r"Experts$")
_INDEXER = re.compile(r"Indexer|Compressor")
_SOURCE_TOKENS = 1024
"""Tokens of the text that a decoder of text pairs attends to: any number, as no config has one. More than the new
tokens of any run, so that the projections of them are told apart (`linear_cached`)."""

_ELEMENTWISE = {
    torch.ops.aten.mul, torch.ops.aten.add, torch.ops.aten.sub, torch.ops.aten.div, torch.ops.aten.add_,
    torch.ops.aten.mul_, torch.ops.aten.exp, torch.ops.aten.addcmul,
}  # fmt: skip
_COPIES = {torch.ops.aten._to_copy, torch.ops.aten.clone}


class SplitCounter(FlopCounterMode):
    """PyTorch's counter, split by what is multiplied.

    `head` the output head; `experts` routed experts; `linear` any other weight, by each of the `tokens` new tokens;
    `linear_cached` a weight by more rows than there are new tokens: what is projected anew from the cache at each step.
    `indexer`, `state`, `cross` and `attention` are activations by activations: in an indexer or compressor of
    sparse attention, in a layer that keeps a recurrent state, with what an encoder made, and elsewhere.
    `convolution`. `state_elementwise`, which PyTorch doesn't count: results of additions and multiplications, and
    terms of sums, in layers that keep a recurrent state.
    """

    def __init__(self, language: Language, tokens: int) -> None:
        super().__init__(display=False)
        self.split: Counter[str] = Counter()
        self._tokens = tokens
        self._copies: list[torch.Tensor] = []
        self._weights = {
            parameter.untyped_storage()._cdata: "linear" for part in language.parts for parameter in part.parameters()
        }
        head = language.head or language.body.get_output_embeddings()  # type: ignore[operator,union-attr]
        if head is not None:
            self._weights[head.weight.untyped_storage()._cdata] = "head"
        self._inside: list[str] = []
        self._hooks = [
            hook
            for part in language.parts
            for name, module in part.named_modules()
            if (kind := _kind(name, type(module).__name__)) is not None
            for hook in (
                module.register_forward_pre_hook(self._enter(kind)),
                module.register_forward_hook(self._leave, always_call=True),
            )
        ]

    def _enter(self, kind: str) -> Callable[..., None]:
        def enter(module: torch.nn.Module, args: object) -> None:
            self._inside.append(kind)

        return enter

    def _leave(self, module: torch.nn.Module, args: object, out: object) -> None:
        self._inside.pop()

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        before = self.flop_counts["Global"][func_packet]
        out = super()._count_flops(func_packet, out, args, kwargs)
        flops = self.flop_counts["Global"][func_packet] - before
        inside = self._inside[-1] if self._inside else "attention"
        if func_packet in _COPIES and args[0].untyped_storage()._cdata in self._weights:
            self._copies.append(out)  # kept, so that no other tensor gets its storage
            self._weights[out.untyped_storage()._cdata] = self._weights[args[0].untyped_storage()._cdata]
        if flops:
            self.split[self._operands(func_packet, args, inside)] += flops
        elif inside == "state":
            if func_packet in _ELEMENTWISE and isinstance(out, torch.Tensor):
                self.split["state_elementwise"] += out.numel()
            elif func_packet is torch.ops.aten.sum:
                self.split["state_elementwise"] += args[0].numel()
        return out

    def _operands(self, func_packet: Any, args: Any, inside: str) -> str:
        if func_packet is torch.ops.aten.convolution:
            return "convolution"
        if inside == "experts":
            return "experts"
        operands = [operand for operand in args if isinstance(operand, torch.Tensor)][-2:]
        for operand, other in zip(operands, reversed(operands), strict=True):
            kind = self._weights.get(operand.untyped_storage()._cdata)
            if kind is not None:
                rows = other.numel() // operand.shape[-2] if other.ndim > 1 else 1
                return "linear_cached" if kind == "linear" and operand.ndim == 2 and rows > self._tokens else kind
        return inside


def _kind(path: str, name: str) -> str | None:
    if path.endswith(".encoder_attn"):
        return "cross"
    for kind, pattern in (("experts", _EXPERTS), ("indexer", _INDEXER), ("state", _STATE), ("attention", _ATTENTION)):
        if pattern.search(name):
            return kind
    return None


@contextmanager
def counting(language: Language, tokens: int) -> Iterator[SplitCounter]:
    counter = SplitCounter(language, tokens)
    try:
        with counter:
            yield counter
    finally:
        counter.remove()


def forward(language: Language, tokens: int, cache: dict[str, Any]) -> dict[str, Any]:
    """One pass over `tokens` new tokens behind those in `cache`. Returns the cache, under its argument's name."""
    table = language.input_table
    ids = torch.zeros(1, tokens, dtype=torch.long, device=table.device)
    if not cache and hasattr(language.body, "_setup_cache"):  # RecurrentGemma: states in its layers, keys in a cache
        language.body.model._setup_cache(language.config, 1, table.device, table.dtype)  # type: ignore[operator,union-attr]
        cache = {"cache": DynamicCache(config=language.config)}
    heard: dict[str, Any] = {}
    positions = getattr(language.config, "max_source_positions", None)
    if positions:  # Whisper: what its encoder makes of 30 s of sound
        made = torch.zeros(1, positions, language.config.d_model, dtype=table.dtype, device=table.device)
        heard = {"encoder_outputs": (made,)}
    elif language.config.model_type in PAIRED:
        made = torch.zeros(1, _SOURCE_TOKENS, width(language), dtype=table.dtype, device=table.device)
        heard = {"encoder_hidden_states": made}
    with torch.no_grad():
        out = language.body(input_ids=ids, **({"use_cache": True} if language.decodes else {}), **heard, **cache)
        if language.head is not None:
            language.head(out[0])
    returned = {name: getattr(out, name, None) for name in ("cache", "state")}
    return {name: kept for name, kept in returned.items() if kept is not None} or cache


def width(language: Language) -> int:
    """Elements that the encoder beside a decoder makes of a token."""
    return int(getattr(language.config, "cross_attention_hidden_size", None) or language.config.d_model)


def held(cache: Any, language: Language) -> dict[str, Counter[str]]:
    """Elements that a cache (and RecurrentGemma's layers) hold: by the class of layer cache, by name of the tensor."""
    found: dict[str, Counter[str]] = {}
    crossed = getattr(cache, "cross_attention_cache", None)
    own_cache = cache if crossed is None else cache.self_attention_cache
    layers = [("", layer) for layer in (own_cache, *getattr(own_cache, "layers", ()))]
    layers += [("cross_", layer) for layer in getattr(crossed, "layers", ())]
    for prefix, layer in layers:
        tensors: Counter[str] = found.setdefault(type(layer).__name__, Counter())
        own = (
            {key: value for key, value in vars(layer).items() if key != "layers"}
            if hasattr(layer, "__dict__")
            else layer
        )
        for name, tensor in _tensors(own):
            tensors[f"{prefix}{name}:{str(tensor.dtype).removeprefix('torch.')}"] += tensor.numel()
    for module in language.body.modules():
        for attribute, column in (("conv1d_state", "conv_states"), ("recurrent_states", "recurrent_states")):
            if isinstance(state := getattr(module, attribute, None), torch.Tensor):
                name = f"{column}:{str(state.dtype).removeprefix('torch.')}"
                found.setdefault(type(module).__name__, Counter())[name] += state.numel()
    return {name: tensors for name, tensors in found.items() if tensors}


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.ndim > 1:
            yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, name if isinstance(key, int) else f"{name}{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner, name)
