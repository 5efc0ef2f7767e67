"""The catalogue of LLMs: `llms.jsonl`, a published config for each model -> LlmSpec by normalised model id."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property

import msgspec

from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import Described, describe_llm
from gpumon.specs.llm_names import NameKey, is_gguf_name, llm_name
from gpumon.specs.modules import EXPERTS, ModuleList
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import WeightFormat, with_weights
from gpumon.specs.weight_words import MXFP4_MOE, weights_named

_COMPARED_CHARACTERS = 200
"""Most characters of a name that are compared."""
_LONG_WORD = 4
"""Characters from which on a word is found across dashes, too: shorter ones would be found by chance."""
_LEAST_LIKENESS = 0.6
"""From this likeness on a name is near without a word in common."""
_SHARED_WORD_GAIN = 0.2
"""Gain of likeness by a word in common."""


class LlmRow(msgspec.Struct, frozen=True, dict=True):
    """One model of the catalogue; its config is read when it is first asked for."""

    name: str
    hf_id: str
    aliases: tuple[str, ...]
    config_source: str = msgspec.field(name="source")
    verified: bool
    """False: one source only, or documentation from memory."""
    max_context: int
    """Tokens, as published with `hf_id`."""
    params_b: float
    """Published total in billions, of encoders and draft layers too."""
    active_b: float | None
    """Published billions per token; None for a dense model."""
    config: msgspec.Raw
    """The fields of its config.json that the formulas need."""
    contexts: dict[str, int] = {}
    """Other releases with these dimensions -> the tokens that their own config.json allows."""
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All that this model is called."""
        return (self.name, self.hf_id, *self.aliases, *self.contexts)

    @cached_property
    def _described_or_error(self) -> Described | ValueError:
        """The model that the config describes, or why it cannot be used; read once."""
        source = f"catalogue row {self.name}"
        if not self.verified:
            source = f"{source} (unverified)"
        try:
            config = msgspec.json.decode(self.config, type=dict[str, object])
            return describe_llm(config, self.name, source)
        except ValueError as error:
            return error

    @property
    def _described_or_raise(self) -> Described:
        """The model that the config describes; ValueError where it cannot be used."""
        if isinstance(self._described_or_error, ValueError):
            raise self._described_or_error
        return self._described_or_error

    @property
    def unusable(self) -> str:
        """Why the formulas cannot use this row; empty where they can."""
        if isinstance(self._described_or_error, ValueError):
            return str(self._described_or_error)
        return ""

    @property
    def spec(self) -> LlmSpec:
        """The model as published; ValueError where the row is not usable."""
        return self._described_or_raise.spec

    @property
    def modules(self) -> ModuleList:
        """Its matrices; ValueError where the row is not usable."""
        return self._described_or_raise.modules

    @property
    def native(self) -> WeightFormat:
        """How its published weights are stored; ValueError where the row is not usable."""
        return self._described_or_raise.weights

    def stored_as(self, weights: WeightFormat, authority: str) -> LlmSpec:
        """The row's spec with its weights in another format than the published one; `authority` tells who says so."""
        # The method that stores MXFP4 alone, that of gpt-oss, narrows nothing but the experts.
        if self.modules.experts and weights.narrowest.precision is Precision.MXFP4:
            weights = weights.only((EXPERTS,))
        stored = with_weights(self.spec, self.modules, weights)
        return msgspec.structs.replace(stored, source=f"{self.spec.source}, {authority}")


class LlmCatalogue(msgspec.Struct, frozen=True):
    """All rows, and the keys (`llm_names`) that lead to them."""

    rows: tuple[LlmRow, ...]
    by_key: dict[NameKey, int]
    contexts: dict[NameKey, int | None]
    """Exact key of a release whose context is known -> tokens; None: those of its row."""

    def row(self, model_id: str) -> LlmRow | None:
        """The row of this model, whatever its quantisation; None where there is none. Never another size."""
        name = llm_name(model_id)
        index = self.by_key.get(name.exact, self.by_key.get(name.key))
        if index is None:
            return None
        return self.rows[index]

    def find(self, model_id: str) -> LlmSpec | None:
        """The spec of this model id, path or file name, its stored precision taken from the name where it tells.

        None also where the name has a format whose bits are not known.
        """
        row = self.row(model_id)
        name = llm_name(model_id)
        if row is None or row.unusable:
            return None
        weights = name.weights
        if is_gguf_name(model_id) and row.native.narrowest.precision is Precision.MXFP4:
            weights = _with_native_experts(row, weights)
        if name.hint and weights is None:
            return None
        if weights is None:
            spec = row.spec
        else:
            spec = row.stored_as(weights, f"{name.hint} by its name")
        return msgspec.structs.replace(spec, max_context=self.context((model_id,)))

    def context(self, names: Sequence[str]) -> int:
        """Tokens that the release of the first of these names allows, as published; 0 where that is not known.

        Releases of one model differ in it: Qwen3-4B has 40,960, Qwen3-4B-Instruct-2507 has 262,144.
        """
        for name in names:
            row = self.row(name)
            key = llm_name(name).exact
            if row is None or row.unusable:
                continue
            if key not in self.contexts:
                return 0
            tokens = self.contexts[key]
            if tokens is None:
                # Not all configs tell it: then it is the published one.
                return row.spec.max_context or row.max_context
            return tokens
        return 0

    def search(self, words: Sequence[str]) -> tuple[LlmRow, ...]:
        """Rows in whose names each of the words occurs, whatever the case and the dashes; in catalogue order."""
        return tuple(row for row in self.rows if all(_has_word(row, word) for word in words))

    def nearest(self, model_id: str, most: int = 5) -> tuple[LlmRow, ...]:
        """Rows whose names are most like this one, the likest first; only those that share something with it."""
        key = llm_name(model_id[:_COMPARED_CHARACTERS]).key
        words = " ".join(key)
        likeness_by_index: dict[int, float] = {}
        for index, row in enumerate(self.rows):
            row_key = llm_name(row.name).key
            shared = len(set(key) & set(row_key))
            likeness = SequenceMatcher(None, words, " ".join(row_key)).ratio()
            if shared or likeness > _LEAST_LIKENESS:
                likeness_by_index[index] = likeness + _SHARED_WORD_GAIN * shared
        indices = sorted(likeness_by_index, key=lambda index: -likeness_by_index[index])
        return tuple(self.rows[index] for index in indices[:most])


def _with_native_experts(row: LlmRow, weights: WeightFormat | None) -> WeightFormat | None:
    """A GGUF file of gpt-oss: its experts are in MXFP4 whatever the file's type is, as their rows fit into no K-quant.

    Without a type of the name's own, it is that of the publisher's file.
    """
    if weights is None or weights.narrowest.precision is Precision.MXFP4:
        weights = weights_named(MXFP4_MOE) or row.native
    experts = row.native.storage_of(EXPERTS)
    return msgspec.structs.replace(weights, parts={**weights.parts, EXPERTS: experts})


def _has_word(row: LlmRow, word: str) -> bool:
    """Whether a name of the row has the word in it; a long one also where dashes stand elsewhere (`gptoss`)."""
    names = "\n".join(row.names).lower()
    word = word[:_COMPARED_CHARACTERS].lower()
    if word in names:
        return True
    plain_word = _without_punctuation(word)
    return len(plain_word) >= _LONG_WORD and plain_word in _without_punctuation(names)


def _without_punctuation(text: str) -> str:
    """The letters and digits of a text, its dots (`3.1`), and its line ends, which part names."""
    return "".join(letter for letter in text if letter.isalnum() or letter in ".\n")


def parse_llms(text: str) -> LlmCatalogue:
    """Reads the catalogue; ValueError names the line of a bad row, or a name that two rows claim."""
    decoder = msgspec.json.Decoder(LlmRow)
    rows: list[LlmRow] = []
    by_key: dict[NameKey, int] = {}
    rows_by_untuned_key: dict[NameKey, set[int]] = {}
    contexts: dict[NameKey, int | None] = {}
    for index, row_text in enumerate(text.splitlines()):
        try:
            row = decoder.decode(row_text)
        except msgspec.MsgspecError as error:
            raise ValueError(f"llms.jsonl line {index + 1}: {error}") from None
        rows.append(row)
        for name in map(llm_name, row.names):
            if by_key.setdefault(name.exact, index) != index:
                other = rows[by_key[name.exact]]
                raise ValueError(f"llms.jsonl line {index + 1}: {row.name} has a name of {other.name}")
            rows_by_untuned_key.setdefault(name.key, set()).add(index)
        for release, tokens in row.contexts.items():
            contexts[llm_name(release).exact] = tokens
        for own_name in (row.name, row.hf_id):
            contexts[llm_name(own_name).exact] = None
    for key, indices in rows_by_untuned_key.items():
        # Without its tuning a name may be that of several rows: then of the one that is called so, or of none.
        if len(indices) == 1:
            by_key.setdefault(key, next(iter(indices)))
    return LlmCatalogue(tuple(rows), by_key, contexts)
