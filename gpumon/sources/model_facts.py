"""What is known of a served model: config entry, else the model's own files, else the catalogue, else what to add."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from gpumon.config.schema import Model
from gpumon.sources.model_files import model_folders, read_config, read_weights
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.llms import LlmCatalogue
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.quantization import UnknownFormatError

_SHOWN = 200


def resolve(
    model_id: str, root: str, config_models: Sequence[Model], llms: LlmCatalogue, env: Mapping[str, str]
) -> tuple[LlmSpec | None, str]:
    """The model's spec and where it comes from; or None, and why with the `[[model]]` lines that would tell it.

    `model_id` is the served name, `root` the path or Hugging Face id that it was loaded from; both are text from a
    server. Reads files: run it in a thread. First hit of: config entry, own files, catalogue row. Never raises for
    what a file or a name holds.
    """
    try:
        entry = configured(model_id, config_models)
    except ValueError as error:
        return None, str(error)
    if entry is not None:
        return entry, entry.source
    names = [each for each in dict.fromkeys((root, model_id)) if each]
    try:
        spec, problems = _from_files(names, model_id, env)
    except UnknownFormatError as error:
        # Its dimensions may be in the catalogue, but not how these weights are stored: MBU would be made up.
        return None, _what_to_add(model_id, [f"config.json: {error}"[:_SHOWN]])
    if spec is not None:
        return spec, spec.source
    for name in names:
        spec = llms.find(name)
        if spec is not None:
            return spec, spec.source
        row = llms.row(name)
        if row is not None:
            problems.append(f"catalogue row {row.name}: {row.unusable}")
    return None, _what_to_add(model_id, problems)


def configured(model_id: str, config_models: Sequence[Model]) -> LlmSpec | None:
    """The spec by the first `[[model]]` entry that is meant for this model; None where none is.

    Raises ValueError for an entry that contradicts itself.
    """
    entry = next((each for each in config_models if _matches(each.match, model_id)), None)
    if entry is None:
        return None
    try:
        return from_entry(entry, model_id)
    except ValueError as error:
        raise ValueError(f"config [[model]] {entry.match!r}: {error}") from None


def from_entry(model: Model, name: str) -> LlmSpec:
    """The spec that a `[[model]]` entry describes; ValueError names the field that does not fit the others.

    With `vocab`, the look-up table (vocab x hidden) is taken off the multiplied parameters, unless the embeddings are
    tied: then it is the LM head, which is multiplied. One expert's size follows from the difference between all and
    active parameters.
    """
    active = (model.active_params_b or model.params_b) * 1e9
    total = model.params_b * 1e9
    table = 0.0 if model.tied_embeddings else float(model.vocab * model.hidden)
    expert = _expert_params(model, total, active)
    _check(model, total, active, table)
    precision = Precision(model.weight_precision)
    width = BYTES_PER_ELEMENT[precision]
    return LlmSpec(
        name=name,
        source=f"config [[model]] {model.match!r}",
        params=total,
        matmul_params=active - table,
        vocab=model.vocab,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads or model.heads,
        head_dim=model.head_dim or model.hidden // model.heads,
        full_layers=model.layers - model.window_layers,
        window_layers=model.window_layers,
        window=model.window,
        kv_lora_rank=model.kv_lora_rank,
        rope_dim=model.rope_dim,
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        expert_params=expert,
        precision=precision,
        weight_only=precision is Precision.INT4 if model.weight_only is None else model.weight_only,
        kv_precision=Precision(model.kv_precision),
        read_bytes=(total - table) * width,
        expert_read_bytes=expert * width,
    )


def _expert_params(model: Model, total: float, active: float) -> float:
    """All experts less the active ones are what is left between all and active parameters."""
    if not model.experts:
        return 0.0
    if model.active_params_b is None:
        raise ValueError("active_params_b is missing: the parameters used per token")
    if not 0 < model.experts_per_token < model.experts:
        raise ValueError(f"experts_per_token {model.experts_per_token} is not from 1 to {model.experts - 1}")
    expert = (total - active) / (model.experts - model.experts_per_token)
    if active < model.experts_per_token * expert:
        raise ValueError("active_params_b is less than its experts alone")
    return expert


def _check(model: Model, total: float, active: float, table: float) -> None:
    if active > total:
        raise ValueError("active_params_b is more than params_b")
    head = float(model.vocab * model.hidden)
    if active <= head + table:
        field = "params_b" if model.active_params_b is None else "active_params_b"
        twice = "" if model.tied_embeddings else ", and untied embeddings have it twice (or is tied_embeddings true?)"
        raise ValueError(f"vocab x hidden is {head / 1e9:.3f}e9{twice}: {field} {active / 1e9:g} is too small for that")
    if model.window_layers > model.layers:
        raise ValueError(f"window_layers {model.window_layers} is more than layers {model.layers}")
    if model.window_layers and not model.window:
        raise ValueError("window is missing: the tokens that the window_layers see")
    if model.head_dim is None and model.hidden % model.heads:
        raise ValueError("head_dim is missing: hidden is no multiple of heads")


def _from_files(names: Sequence[str], model_id: str, env: Mapping[str, str]) -> tuple[LlmSpec | None, list[str]]:
    problems: list[str] = []
    for name in names:
        for folder in model_folders(name, env):
            source = f"{folder}/config.json"
            try:
                config, weights = read_config(folder), _weights(folder)
                return llm_from_config(config, model_id, source, weights), problems
            except UnknownFormatError:
                raise
            except (ValueError, OSError, RecursionError, msgspec.MsgspecError) as error:
                problems.append(f"{source}: {error}"[:_SHOWN])
    return None, problems


def _weights(folder: Path) -> dict[str, float]:
    """The bytes of the weights; without them the dimensions still tell, so what is wrong there does not matter."""
    try:
        return read_weights(folder)
    except (ValueError, OSError, msgspec.MsgspecError):
        return {}


def _matches(pattern: str, model_id: str) -> bool:
    return pattern == model_id or fnmatchcase(model_id, pattern)


def _what_to_add(model_id: str, problems: Sequence[str]) -> str:
    known = "; ".join(problems) or "no config entry, no local config.json, no catalogue row of this name"
    lines = (
        f"unknown model ({known}). Add to the config, with the figures of its config.json:",
        "[[model]]",
        f"match = {json.dumps(model_id[:_SHOWN], ensure_ascii=False)}",
        "params_b = 0.0    # all parameters, in 1e9",
        "layers = 0        # num_hidden_layers",
        "hidden = 0        # hidden_size",
        "heads = 0         # num_attention_heads",
        "kv_heads = 0      # num_key_value_heads",
        "head_dim = 0      # head_dim",
        "vocab = 0         # vocab_size",
        "tied_embeddings = false    # tie_word_embeddings",
        'weight_precision = "bf16"',
        "# mixture of experts also: active_params_b, experts, experts_per_token",
    )
    return "\n".join(lines)
