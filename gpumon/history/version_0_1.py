"""Recordings of version 0.1: dimensions of an LLM as flat fields, before layers were data; events as text."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.frame import EngineReading
from gpumon.readings.verdict import Event, EventKind, Level
from gpumon.specs.llm import Attention, LlmSpec, Reach, State, grouped_attention, latent_attention
from gpumon.specs.precision import Precision

_LLM_PLACE: Final = EngineReading.__struct_fields__.index("llm")
"""Place of the model's dimensions in a reading, which is recorded as an array."""


class _FlatLlmSpec(msgspec.Struct, frozen=True, array_like=True):
    """`LlmSpec` of version 0.1: layers of each kind as a field."""

    name: str
    source: str
    params: float
    matmul_params: float
    vocab: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    full_layers: int
    window_layers: int = 0
    window: int = 0
    linear_layers: int = 0
    linear_state_elements: float = 0.0
    kv_lora_rank: int = 0
    rope_dim: int = 0
    qk_head_dim: int = 0
    v_head_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_params: float = 0.0
    precision: Precision = Precision.BF16
    weight_only: bool = False
    kv_precision: Precision = Precision.BF16
    read_bytes: float = 0.0
    expert_read_bytes: float = 0.0
    not_modelled: tuple[str, ...] = ()
    full_kv_elements: int = 0
    stored_bytes: float = 0.0


def unpack_engine_0_1(data: bytes) -> EngineReading:
    """The reading that version 0.1 packed as `data`. Raises msgspec.MsgspecError where it is none."""
    fields = msgspec.msgpack.decode(data, type=list[object])
    if len(fields) <= _LLM_PLACE or fields[_LLM_PLACE] is None:
        raise msgspec.ValidationError("not a reading of version 0.1")
    flat = msgspec.convert(fields[_LLM_PLACE], _FlatLlmSpec)
    fields[_LLM_PLACE] = None
    return msgspec.structs.replace(msgspec.convert(fields, EngineReading), llm=_spec_with_layers(flat))


class _Event(msgspec.Struct, frozen=True):
    """`Event` of version 0.1, whose text was a sentence."""

    wall_s: float
    kind: EventKind
    scope: str
    text: str
    level: Level = Level.NOTE
    key: str = ""
    since_s: float = 0.0


def unpack_events_0_1(data: bytes) -> list[Event]:
    """The events that version 0.1 packed: their sentences stand for their codes. Raises msgspec.MsgspecError."""
    return [
        Event(event.wall_s, event.kind, event.scope, event.text, event.level, event.key, since_s=event.since_s)
        for event in msgspec.msgpack.decode(data, type=list[_Event])
    ]


def _spec_with_layers(flat: _FlatLlmSpec) -> LlmSpec:
    """The dimensions in the form of now: layers as data."""
    names = set(LlmSpec.__struct_fields__) & set(_FlatLlmSpec.__struct_fields__)
    states: tuple[State, ...] = ()
    if flat.linear_layers:
        elements = flat.linear_state_elements / flat.linear_layers
        states = (State(kind="state", layers=flat.linear_layers, elements=elements, flops=0.0),)
    return LlmSpec(
        **{name: getattr(flat, name) for name in names},
        head_params=float(flat.vocab * flat.hidden),
        layers=flat.full_layers + flat.window_layers + flat.linear_layers,
        attention=tuple(_attention_layers(flat)),
        states=states,
    )


def _attention_layers(flat: _FlatLlmSpec) -> list[Attention]:
    """Attention layers of a model: those that look at all tokens, then those with a window."""
    attentions = []
    for layers, reach, limit in ((flat.full_layers, Reach.FULL, 0), (flat.window_layers, Reach.WINDOW, flat.window)):
        if not layers:
            continue
        if flat.kv_lora_rank:
            key = flat.qk_head_dim or flat.head_dim + flat.rope_dim
            value = flat.v_head_dim or flat.head_dim
            attention = latent_attention(
                layers,
                heads=flat.heads,
                rank=flat.kv_lora_rank,
                rope_dim=flat.rope_dim,
                key_dim=key,
                value_dim=value,
                reach=reach,
                limit=limit,
            )
        else:
            attention = grouped_attention(
                layers, heads=flat.heads, kv_heads=flat.kv_heads, head_dim=flat.head_dim, reach=reach, limit=limit
            )
        if flat.full_kv_elements and reach is Reach.FULL:
            attention = msgspec.structs.replace(attention, elements=float(flat.full_kv_elements))
        attentions.append(attention)
    return attentions
