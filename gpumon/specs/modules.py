"""The matrices of an LLM as its checkpoint names them: what each is for, in which layers it is, and its parameters.

A list is expanded once from the architecture's dimensions. Whatever counts parameters or bytes counts these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

# Parts of a model's parameters, as formats of weights name them.
ATTENTION: Final = "attention"
STATE: Final = "state layers"
INDEXER: Final = "indexer"
MLP: Final = "mlp"
"""Dense MLPs, and projections outside the layers."""
SHARED: Final = "shared"
"""Experts that every token goes through."""
ROUTER: Final = "router"
"""Routers, and mixers of residual streams: quantised checkpoints leave both as they are."""
EXPERTS: Final = "experts"
"""Experts that a router chooses."""
HEAD: Final = "head"
TABLES: Final = "tables"
"""Look-up tables, and what else is stored but multiplied with no generated token. They are narrow in GGUF alone."""

NUMBER: Final = "{}"
"""Place of an expert's number in a module's name."""
_FUSED: Final = {
    "q_proj": ("qkv_proj",),
    "k_proj": ("qkv_proj",),
    "v_proj": ("qkv_proj",),
    "gate_proj": ("gate_up_proj",),
    "up_proj": ("gate_up_proj",),
    "w1": ("w13",),
    "w3": ("w13",),
    "q_a_proj": ("fused_qkv_a_proj",),
    "kv_a_proj_with_mqa": ("fused_qkv_a_proj",),
    "in_proj_qkv": ("in_proj_qkvz",),
    "in_proj_z": ("in_proj_qkvz",),
    "in_proj_a": ("in_proj_ba",),
    "in_proj_b": ("in_proj_ba",),
}
"""Last word of a module's name -> those of the modules that engines and other checkpoints make of several."""
_NOT_DIVIDED: Final = frozenset(("q_a_proj", "kv_a_proj_with_mqa", "wq_a", "wkv", "shared_expert_gate"))
"""Last words of modules that tensor parallelism does not divide: what follows from them is that of all heads (vLLM's
`ReplicatedLinear` in its DeepSeek models)."""
_KEYS_AND_VALUES: Final = frozenset(("k_proj", "v_proj"))
"""Last words of modules that are divided over KV heads, and held once more where there are more ranks than these."""
COMMON_PATHS: Final = ("model.layers.", "model.language_model.layers.", "language_model.model.layers.", "layers.")
"""Paths before the number of a layer in most checkpoints: a release of transformers and an engine may differ in it."""


class Module(NamedTuple):
    """A matrix of one layer, or of one of its experts."""

    name: str
    """Below the layer: `self_attn.q_proj`; `{}` stands for the number of an expert."""
    part: str
    shape: tuple[int, ...]
    """Outputs before inputs."""

    @property
    def params(self) -> float:
        """Number of its parameters."""
        return float(math.prod(self.shape))


def matrix(name: str, part: str, *shape: int) -> Module:
    """A module of this shape, outputs before inputs."""
    return Module(name, part, shape)


class ModuleKind(NamedTuple):
    """The modules of one name in all layers that have it."""

    name: str
    """Below the layer, or the whole name of what is outside the layers; `{}` stands for the number of an expert."""
    part: str
    shape: tuple[int, ...]
    layers: tuple[int, ...] = ()
    """Numbers of the layers; (): it is outside of them."""
    experts: int = 0
    """Experts of each layer that have such a module; 0: it is none of an expert."""
    copies: int = 0
    """Sets of weights that all of its layers share; 0: each has its own."""

    @property
    def params(self) -> float:
        """Parameters of one of these modules."""
        return float(math.prod(self.shape))

    @property
    def places(self) -> int:
        """Number of layers that use one, experts apart; 1 for what is outside the layers."""
        return max(1, len(self.layers))

    @property
    def stored_share(self) -> float:
        """Share of the places that have weights of their own."""
        if not self.copies:
            return 1.0
        return min(1.0, self.copies / self.places)

    @property
    def all_params(self) -> float:
        """Parameters of all of them as they are used: shared weights count as often as layers use them."""
        return self.params * self.places * max(1, self.experts)

    @property
    def stored_params(self) -> float:
        """Parameters of all of them as they are stored: shared weights count once."""
        return self.all_params * self.stored_share

    @property
    def is_whole_on_each_rank(self) -> bool:
        """Whether each tensor-parallel rank holds all of it."""
        return self.part in (ROUTER, INDEXER) or self.name.rpartition(".")[2] in _NOT_DIVIDED

    @property
    def is_of_kv_heads(self) -> bool:
        """Whether it makes keys or values, head by head."""
        return self.part == ATTENTION and self.name.rpartition(".")[2] in _KEYS_AND_VALUES

    def paths(self) -> tuple[str, ...]:
        """The name and those of fused modules that it is a part of, below the layer."""
        holder, _, word = self.name.rpartition(".")
        begin = f"{holder}." if holder else ""
        fused = [f"{begin}{other}" for other in _FUSED.get(word, ())]
        if NUMBER not in self.name:
            return (self.name, *fused)
        # Experts may be one tensor: `mlp.experts.gate_up_proj`.
        stacked = [path.replace(f".{NUMBER}", "", 1) for path in (self.name, *fused)]
        return (self.name, *fused, *stacked)


class ModuleList(msgspec.Struct, frozen=True, dict=True):
    """All matrices of one LLM."""

    kinds: tuple[ModuleKind, ...]
    layer_paths: tuple[str, ...] = COMMON_PATHS
    """Paths before the number of a layer that this model's checkpoints may have, its own first."""
    experts: int = 0
    experts_per_token: int = 0

    def of_part(self, *parts: str) -> Iterator[ModuleKind]:
        """The kinds that belong to one of these parts."""
        return (kind for kind in self.kinds if kind.part in parts)

    def layers_with(self, *parts: str) -> frozenset[int]:
        """Numbers of the layers that have a module of one of these parts."""
        return frozenset(layer for kind in self.of_part(*parts) for layer in kind.layers)

    def params_of(self, *parts: str) -> float:
        """Parameters of these parts as a step uses them, every expert included."""
        return sum(kind.all_params for kind in self.of_part(*parts))

    @cached_property
    def total(self) -> float:
        """All parameters that are stored."""
        return sum(kind.stored_params for kind in self.kinds)

    @cached_property
    def head(self) -> float:
        """Parameters of the LM head; 0 for a model without one."""
        return self.params_of(HEAD)

    @cached_property
    def tables(self) -> float:
        """Parameters that are stored, but multiplied with no generated token."""
        return self.params_of(TABLES)

    @cached_property
    def expert(self) -> float:
        """Parameters of one routed expert, all layers together."""
        return self.params_of(EXPERTS) / self.experts if self.experts else 0.0

    @cached_property
    def active(self) -> float:
        """N_mm: parameters multiplied per token (routed experts, the rest, LM head; no look-up)."""
        multiplied = sum(kind.all_params for kind in self.kinds if kind.part not in (EXPERTS, TABLES))
        return multiplied + self.experts_per_token * self.expert

    def without(self, part: str) -> ModuleList:
        """This list without the modules of a part."""
        kinds = tuple(kind for kind in self.kinds if kind.part != part)
        return msgspec.structs.replace(self, kinds=kinds)


def outside_layers(modules: Iterable[Module]) -> tuple[ModuleKind, ...]:
    """The kinds of modules that are outside the layers; those without parameters are left out."""
    return tuple(ModuleKind(module.name, module.part, module.shape) for module in modules if module.params)


def counted_parts(params: dict[str, float]) -> tuple[ModuleKind, ...]:
    """Parts of which only the number of parameters is known, as one module each."""
    return outside_layers(Module(part, part, (round(count),)) for part, count in params.items())
