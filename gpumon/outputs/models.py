"""Models as text: the catalogue, one model with all its facts and where they are from, and all of it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_bytes_per_token, kv_read_bytes, kv_stored_bytes, weight_read_bytes
from gpumon.efficiency.weights import weight_bytes
from gpumon.outputs.tables import INDENT, ColumnSpec, columns_of, labelled, table, wrapped
from gpumon.outputs.units import NONE, as_line, as_word
from gpumon.readings.format import amount
from gpumon.readings.text import clean
from gpumon.specs.llm import Attention, LlmSpec, Reach, State
from gpumon.specs.llms import LlmRow
from gpumon.specs.precision import Precision

_SCHEMA: Final = 1
"""Version of `gpumon models --json`."""
_LABEL_CELLS: Final = 14
"""Cells of the labels in front of facts."""
_LONGEST_TEXT: Final = 1000
"""Characters of one text from outside."""
_BATCHES: Final = (1, 64)
"""Sequences that decode together, for which the weights of a mixture of experts are shown."""
_LONG_CONTEXT: Final = 32_768.0
"""Tokens of context at which the list has the cost of a further one: beyond any window."""
_LEGEND: Final = (
    "SIZE and ACTIVE: parameters, all and multiplied per token; KV kB: 1000 bytes of KV cache per further token of a "
    "long context; KIND: MoE experts, MLA latent attention, DSA indexers that pick tokens, SWA windows, LIN linear or "
    "Mamba layers, ENC encoder"
)


class ShownModel(NamedTuple):
    """One model as `gpumon models show` has it."""

    name: str
    spec: LlmSpec | None
    row: LlmRow | None
    """The catalogue's row of this name, whether its figures are used or not."""
    why: str
    """Source of the spec; or why there is none, with the lines to add to the config."""
    looked: tuple[tuple[str, str], ...]
    """Places that were looked at, and what was found at each."""
    nearest: tuple[str, ...]
    """Names of the catalogue that are most like this one; only where there is no spec."""
    context_tokens: float


def list_models(rows: Sequence[LlmRow], configured: Sequence[str], width: int = 160) -> str:
    """A line per row; then the rows that are refused, and the models of the config."""
    lines = list(table(columns_of(rows, _LIST_COLUMNS), width))
    for row in rows:
        if row.unusable:
            lines.extend(wrapped(f"no MFU and MBU for {as_word(row.name)}: {row.unusable}", width, "", INDENT))
    if configured:
        names = ", ".join(as_line(name) for name in configured)
        lines.extend(wrapped(f"in the config, ahead of these: {names}", width, "", INDENT))
    lines.extend(wrapped(_LEGEND, width, "", INDENT))
    return "\n".join(lines) + "\n"


def not_found(words: Sequence[str], nearest: Sequence[str], width: int = 160) -> str:
    """Text of a search in vain."""
    query = " ".join(as_word(word) for word in words)
    near = f"; nearest: {', '.join(map(as_word, nearest))}" if nearest else ""
    return "\n".join(wrapped(f"no model of the catalogue is named {query}{near}", width, "", INDENT)) + "\n"


def show_model(model: ShownModel, width: int = 160) -> str:
    """All facts of one model, derived figures with their units, and where it was looked for."""
    lines = [clean(model.name) or NONE]
    spec = model.spec
    if spec is None:
        facts = []
    else:
        facts = [*_facts(spec, model), *_derived_facts(spec, model.context_tokens)]
    for name, value in facts:
        lines.extend(labelled(name, value, width, room=_LABEL_CELLS))
    if spec is None:
        lines.extend(labelled("unknown", "no MFU and MBU for it, rates only", width, room=_LABEL_CELLS))
        lines.extend(labelled("nearest", ", ".join(map(as_word, model.nearest)), width, room=_LABEL_CELLS))
        if model.nearest:
            cure = f'model = "{as_word(model.nearest[0])}" in the [[endpoint]] that serves it under this name'
            lines.extend(labelled("if it is one", cure, width, room=_LABEL_CELLS))
    label = "looked at"
    for place, answer in model.looked:
        lines.extend(labelled(label, f"{place}: {as_line(answer)}", width, room=_LABEL_CELLS))
        label = ""
    if spec is None:
        why, _, add = model.why.partition("\n")
        lines.extend(("", *wrapped(as_line(why), width, "", INDENT), *map(clean, add.splitlines())))
    return "\n".join(lines) + "\n"


def model_as_json(row: LlmRow) -> dict[str, Any]:
    """A row of the catalogue as JSON has it."""
    dimensions: dict[str, Any] = _dimensions(row.spec) if not row.unusable else {}
    return {
        "name": row.name,
        "hf_id": row.hf_id,
        "aliases": [*row.aliases, *row.contexts],
        **dimensions,
        "no_figures": row.unusable or None,
        "max_context_tokens": row.max_context or None,
        "verified": row.verified,
        "published": row.config_source,
        "note": row.note,
    }


def shown_json(model: ShownModel) -> dict[str, Any]:
    """The content of `show_model` as JSON has it."""
    why, _, add = model.why.partition("\n")
    spec = model.spec
    known = None
    why_unknown: str | None = why
    if spec is not None:
        known = {"source": spec.source, **_dimensions(spec), **_derived_figures(spec, model.context_tokens)}
        why_unknown = None
    catalogue = model_as_json(model.row) if model.row is not None else None
    return {
        "name": model.name,
        "model": known,
        "catalogue": catalogue,
        "why_unknown": why_unknown,
        "nearest": list(model.nearest),
        "add": add.splitlines(),
        "looked": [{"place": place, "found": answer} for place, answer in model.looked],
    }


def encode(value: dict[str, Any]) -> bytes:
    """One JSON object on one line, with the schema of this output."""
    return msgspec.json.encode({"schema": _SCHEMA, **value}) + b"\n"


def _of_spec(text: Callable[[LlmSpec], str]) -> Callable[[LlmRow], str]:
    """A cell from the dimensions of a model; NONE for one that no figures are computed for."""

    def cell(row: LlmRow) -> str:
        if row.unusable:
            return NONE
        return text(row.spec)

    return cell


def _size_text(row: LlmRow) -> str:
    """All parameters; for a model that no figures are computed for, as its makers round them."""
    if row.unusable:
        return f"{row.params_b:.1f}B"
    return _billions_text(row.spec.params)


def _further_kilobytes_text(spec: LlmSpec) -> str:
    """KV cache of a further token."""
    kilobytes = _further_token_bytes(spec, _LONG_CONTEXT) / 1e3
    if kilobytes >= 9.95:
        return f"{kilobytes:.0f}"
    return f"{kilobytes:.1f}"


def _notes_text(row: LlmRow) -> str:
    """Remarks on a model: refused, what is not counted, unverified."""
    if row.unusable:
        return "refused"
    notes = [f"without {part}" for part in row.spec.not_modelled]
    if not row.verified:
        notes.append("unverified")
    return ", ".join(notes)


def _kind_text(spec: LlmSpec) -> str:
    """Short words for what is special about a model's layers: `MoE+MLA`."""
    kinds = (
        ("MoE", spec.experts > 0),
        ("LIN", spec.state_layers > 0),
        ("MLA", spec.latent),
        ("DSA", spec.attention_layers(Reach.TOP) > 0),
        ("SWA", spec.attention_layers(Reach.WINDOW, Reach.CHUNK) > 0),
        ("ENC", spec.attention_layers(Reach.ENCODER) > 0),
    )
    words = [word for word, is_such in kinds if is_such]
    return "+".join(words) or "dense"


def _billions_text(params: float) -> str:
    """Parameters in millions or billions: `980M`, `7.2B`, `671B`."""
    if params <= 0.0:
        return NONE
    if params < 0.995e9:
        return f"{params / 1e6:.0f}M"
    if params < 99.95e9:
        return f"{params / 1e9:.1f}B"
    return f"{params / 1e9:.0f}B"


def _params_text(count: float) -> str:
    """Parameters in three or two decimals: `7.242e9`, `135.00e6`."""
    if count >= 1e9:
        return f"{count / 1e9:.3f}e9"
    return f"{count / 1e6:.2f}e6"


def _context_text(tokens: int) -> str:
    """Tokens of a context: `512`, `128k`, `1M`; NONE where it is not known."""
    if not tokens:
        return NONE
    if tokens < 1024:
        return str(tokens)
    if tokens < 1 << 20:
        return f"{tokens / 1024:.0f}k"
    return f"{tokens / (1 << 20):.0f}M"


_LIST_COLUMNS: Final[tuple[ColumnSpec[LlmRow], ...]] = (
    ColumnSpec("NAME", lambda row: as_word(row.name)),
    ColumnSpec("SIZE", _size_text, right=True),
    ColumnSpec("ACTIVE", _of_spec(lambda spec: _billions_text(spec.matmul_params)), right=True),
    ColumnSpec("LAYERS", _of_spec(lambda spec: str(spec.layers)), right=True, keep=2),
    ColumnSpec("KV kB", _of_spec(_further_kilobytes_text), right=True),
    ColumnSpec("STORED", _of_spec(lambda spec: spec.precision.value)),
    ColumnSpec("CTX", lambda row: _context_text(row.max_context), right=True, keep=3),
    ColumnSpec("KIND", _of_spec(_kind_text)),
    ColumnSpec("NOTES", _notes_text, keep=1),
)
"""Columns of the list."""


def _facts(spec: LlmSpec, model: ShownModel) -> list[tuple[str, str]]:
    """Name and value; an empty value is left out."""
    published = ""
    note = ""
    if model.row is not None and spec.source.startswith("catalogue"):
        published = clean(model.row.config_source, _LONGEST_TEXT)
        note = clean(model.row.note, _LONGEST_TEXT)
    context = f"{spec.max_context:,} tokens as published" if spec.max_context else "not known"
    return [
        ("from", as_line(spec.source)),
        ("published in", published),
        ("note", note),
        ("parameters", f"{_params_text(spec.params)}, {_params_text(spec.matmul_params)} multiplied per token"),
        ("shape", f"{spec.layers} layers, hidden {spec.hidden:,}, vocabulary {spec.vocab:,}"),
        ("attention", _attention_text(spec)),
        ("experts", _experts_text(spec)),
        ("context", context),
        ("not counted", ", ".join(spec.not_modelled)),
    ]


def _attention_text(spec: LlmSpec) -> str:
    """Heads, caches and reach of the layers, and the states of layers without attention."""
    cached = "one latent for all (MLA)" if spec.latent else f"{spec.kv_heads} KV heads"
    parts = [f"{spec.heads} heads of {spec.head_dim}, {cached}"]
    for attention in spec.attention:
        parts.append(f"{attention.layers} layers {_reach_text(attention)}")
    for state in spec.states:
        parts.append(f"{state.layers} layers keep a {state.kind}: {state.elements:,.0f} elements")
    return "; ".join(parts)


def _reach_text(attention: Attention) -> str:
    """Which tokens layers of attention see: `see 4,096 tokens, in the cache of another layer`."""
    stride = f", one entry per {attention.stride} tokens" if attention.stride > 1 else ""
    limit = f"{attention.limit:,}"
    most = limit if attention.limit else "all"
    shared = ", in the cache of another layer" if attention.shared else ""
    text = {
        Reach.FULL: "see the whole context",
        Reach.WINDOW: f"see {limit} tokens",
        Reach.CHUNK: f"see their chunk of {limit} tokens",
        Reach.TOP: f"see the {limit} entries that an indexer picks",
        Reach.INDEX: "score the whole context to pick them",
        Reach.ENCODER: f"see {most} tokens on both sides",
        Reach.CROSS: f"see the {limit} positions of the encoder",
    }[attention.reach]
    return text + stride + shared


def _experts_text(spec: LlmSpec) -> str:
    """Experts of a token and their size; empty for a dense model."""
    if not spec.experts:
        return ""
    parameters = _params_text(spec.expert_params)
    return f"{spec.experts_per_token} of {spec.experts} per token, {parameters} parameters each over all layers"


def _derived_facts(spec: LlmSpec, context: float) -> list[tuple[str, str]]:
    """Names and texts of what a model costs: weights, KV cache, and FLOPs at `context` tokens."""
    figures = _derived_figures(spec, context)
    batches: Sequence[int] = _BATCHES[:1] if not spec.experts else _BATCHES
    reads = ", ".join(f"{amount(figures['step_read_bytes'][str(batch)])}B at batch {batch}" for batch in batches)
    stored = f"{_stored_format(spec)}{_arithmetic_format(spec)}: {amount(figures['weight_bytes'])}B"
    flops = {name: f"{amount(figures[name])}FLOP" for name in figures if "flops" in name}
    compute = _compute_text(spec, flops, context)
    if spec.attention and all(attention.reach is Reach.ENCODER for attention in spec.attention):
        # It answers with one pass over the text: no token is decoded, and nothing is kept.
        return [
            ("weights", f"{stored}, read once per batch of texts"),
            ("compute", compute),
        ]
    return [
        ("weights", f"{stored}; a step reads {reads}"),
        (
            "KV cache",
            f"a sequence of {context:,.0f} tokens holds {amount(figures['kv_stored_bytes'])}B, each further token "
            f"{figures['kv_bytes_per_further_token']:,.0f} bytes ({spec.kv_precision.value})",
        ),
        (
            "KV read",
            f"{amount(figures['kv_read_bytes_per_step'])}B per sequence and step at {context:,.0f} tokens of context, "
            "tensor parallel size 1",
        ),
        ("compute", compute),
    ]


def _compute_text(spec: LlmSpec, flops: Mapping[str, str], context: float) -> str:
    """FLOPs of a token at `context` tokens, or why they are not known."""
    if spec.flops_unknown:
        return f"not known: {spec.flops_unknown}"
    if spec.attention and all(attention.reach is Reach.ENCODER for attention in spec.attention):
        return f"{flops['prefill_flops_per_token']} per token of a text of {context:,.0f} tokens"
    return (
        f"{flops['decode_flops_per_token']} per token in decode at {context:,.0f} tokens of context; "
        f"{flops['prefill_flops_per_token']} per token of a prompt of that length, "
        f"and {flops['head_flops_per_request']} once for its LM head"
    )


def _stored_format(spec: LlmSpec) -> str:
    """The format of most weights; of integers, which may have 2 to 8 bits, also the mean over all that a step reads."""
    weights = spec.matmul_params + (spec.experts - spec.experts_per_token) * spec.expert_params
    if spec.precision not in (Precision.INT4, Precision.INT8) or weights <= 0.0:
        return spec.precision.value
    return f"{spec.precision.value} ({8.0 * spec.read_bytes / weights:.1f} bits per weight on average)"


def _arithmetic_format(spec: LlmSpec) -> str:
    """Format of the peak FLOP/s, if it is not the weights' own."""
    if spec.weight_only:
        return ", arithmetic at 16 bit"
    if spec.activations is not None:
        return f", arithmetic in {spec.activations.value} where the GPU has {spec.precision.value}, else at 16 bit"
    if spec.precision is Precision.MXFP4:
        return ", arithmetic at 16 bit assumed (activations unknown)"
    return ""


def _derived_figures(spec: LlmSpec, context: float) -> dict[str, Any]:
    """Derived figures, in the units of their names."""
    figures: dict[str, Any] = {
        "context_tokens": context,
        "weight_bytes": spec.stored_bytes or weight_bytes(spec),
        "step_read_bytes": {str(batch): weight_read_bytes(spec, batch) for batch in _BATCHES},
        "kv_stored_bytes": kv_stored_bytes(spec, context),
        "kv_bytes_per_further_token": _further_token_bytes(spec, context),
        "kv_read_bytes_per_step": kv_read_bytes(spec, context),
    }
    if not spec.flops_unknown:
        figures["decode_flops_per_token"] = decode_flops_per_token(spec, context)
        figures["prefill_flops_per_token"] = prefill_flops_per_token(spec, context)
        figures["head_flops_per_request"] = head_flops(spec)
    return figures


def _further_token_bytes(spec: LlmSpec, context: float) -> float:
    """Bytes of KV cache that one more token takes behind `context`: layers whose window is full take none."""
    return kv_stored_bytes(spec, context + 1.0) - kv_stored_bytes(spec, context)


def _dimensions(spec: LlmSpec) -> dict[str, Any]:
    """The dimensions of a model as JSON has them; bytes of the indexers are apart from those of the KV cache."""
    windows = [attention.limit for attention in spec.attention if attention.reach in (Reach.WINDOW, Reach.CHUNK)]
    indexers = tuple(attention for attention in spec.attention if attention.reach is Reach.INDEX)
    index = msgspec.structs.replace(spec, attention=indexers)
    attention_fields = [_struct_fields(attention) for attention in spec.attention]
    if spec.flops_unknown:
        for fields in attention_fields:
            fields["decode_flops"] = None
            fields["prefill_flops"] = None
    return {
        "params": spec.params,
        "active_params": spec.matmul_params or None,
        "head_params": spec.head_params,
        "expert_params": spec.expert_params * spec.experts,
        "layers": spec.layers,
        "full_layers": spec.attention_layers(Reach.FULL, Reach.ENCODER),
        "window_layers": spec.attention_layers(Reach.WINDOW, Reach.CHUNK),
        "window_tokens": max(windows, default=None),
        "sparse_layers": spec.attention_layers(Reach.TOP),
        "linear_layers": spec.state_layers,
        "attention": attention_fields,
        "states": [_struct_fields(state) for state in spec.states],
        "hidden": spec.hidden,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab": spec.vocab,
        "experts": spec.experts,
        "experts_per_token": spec.experts_per_token,
        "weight_precision": spec.precision.value,
        "kv_precision": spec.kv_precision.value,
        "kv_bytes_per_token": kv_bytes_per_token(spec) - kv_bytes_per_token(index),
        "index_bytes_per_token": kv_bytes_per_token(index),
        "not_modelled": list(spec.not_modelled),
    }


def _struct_fields(part: Attention | State) -> dict[str, Any]:
    """The fields of a part of a model by name."""
    return {name: getattr(part, name) for name in part.__struct_fields__}
