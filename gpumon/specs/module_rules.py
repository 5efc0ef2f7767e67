"""Names and patterns by which a checkpoint says how single modules are stored, matched against the model's modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cached_property
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.specs.expression_cost import MOST_WAYS, ways_to_try
from gpumon.specs.fields import FieldError, json_text
from gpumon.specs.modules import (
    ATTENTION,
    EXPERTS,
    HEAD,
    INDEXER,
    MLP,
    NUMBER,
    SHARED,
    STATE,
    ModuleKind,
    ModuleList,
)

_T = TypeVar("_T")

OUTSIDE: Final = -1
"""Number of the layer of what is in none."""
_LAYER_NUMBER: Final = re.compile(r"(?:layers|blocks|h)\.(\d{1,6})(?:\.|$)")
"""The number of a layer in the name of one of its modules: no model has one of more than six digits."""
_LITERAL_LAYER: Final = re.compile(r"(?:layers|blocks|h)(?:\\\.|\.)(\d{1,6})\\\.")
"""A single layer in an expression."""
_GROUP: Final = re.compile(r"\([^()]*\)")
"""A group of an expression without one inside."""
_EXPERT_NUMBER: Final = re.compile(r"(experts)\.(\d{1,6})(?=\.|$)")
"""The number of an expert in the name of one of its modules."""
_DIGITS: Final = re.compile(r"\d{1,6}")
_MOST_WAYS_OF_ALL: Final = 2e10
"""Ways in which all expressions of a checkpoint together may be tried on the names of its model: a dozen seconds at
most. One that speaks of each layer's experts needs a thousandth for each layer."""
_LONGEST_EXPRESSION: Final = 2000
"""Characters of a regular expression that is run: it comes from outside."""
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]|\\[1-9]|\(\?[^:P]|\(\?P[^<]")
"""Repetition of a group, back references and look-arounds: those that could run for hours."""
NOT_THE_LAYERS: Final = ("vision", "visual", "audio", "mtp", "projector", "patch_merge", "embed_tokens", "eh_proj")
"""Words of modules that are no part of the language model's layers."""
_PART_WORDS: Final = (
    (("norm", "router", "mlp.gate.", "moe.gate", "shared_expert_gate"), ""),
    (("lm_head", "output_layer"), HEAD),
    (("indexer",), INDEXER),
    (("linear_attn", "mamba", "mixer.in_proj", "mixer.out_proj", "mixer.conv"), STATE),
    (("shared_expert", "shared_mlp"), SHARED),
    (("experts",), EXPERTS),
    (("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv"), ATTENTION),
    (("gate_proj", "up_proj", "down_proj", "gate_up", "mlp*", ".mlp$", "ffn", "feed_forward", "fc1", "fc2"), MLP),
)
"""Substrings of module names, and of patterns for them with `$` behind -> part; the first match counts.

The part "" is never quantised. They stand in where no module of the model has a name that a rule has.
"""


class ModuleRule(NamedTuple):
    """A name, glob or expression of modules, as a checkpoint has it."""

    text: str
    expression: re.Pattern[str] | None = None
    """Expression, or that of a glob; None for a name."""
    is_glob: bool = False
    ways: float = 1.0
    """Ways in which its expression may have to be tried on one name."""

    def could_speak_of(self, layer: int) -> bool:
        """Whether the expression may match modules of a layer, as far as a number in it tells."""
        if self.is_glob:
            numbers = _LAYER_NUMBER.findall(self.text)
        else:
            text = self.text
            while "(" in (text := _GROUP.sub("", text)) and _GROUP.search(text):
                pass
            numbers = [] if "|" in text else _LITERAL_LAYER.findall(text)
        return not numbers or str(layer) in numbers

    @property
    def has_end(self) -> bool:
        """Whether a name that goes on behind what matches may not match."""
        return self.is_glob or "$" in self.text or "\\Z" in self.text


def module_rule(text: str) -> ModuleRule:
    """The rule that a checkpoint writes so. Raises FieldError for an expression that could run for too long."""
    if _is_expression(text):
        return ModuleRule(text, _compile_expression(text), ways=ways_to_try(text.removeprefix("re:")))
    if "*" in text or "?" in text:
        # `mlp.gate.*` is meant for the weights of that module.
        return ModuleRule(text, re.compile(translate(text.removesuffix(".*"))), is_glob=True)
    return ModuleRule(text)


def _is_expression(name: str) -> bool:
    """Whether a name is a regular expression, and not a name or a glob."""
    return name.startswith(("re:", ".*")) or any(sign in name for sign in ("\\", "(", "[", "$", "^"))


def _compile_expression(expression: str) -> re.Pattern[str]:
    """The regular expression of a checkpoint. Raises FieldError where it is none, or could run for too long."""
    text = expression.removeprefix("re:")
    where = "quantization_config"
    is_cheap = len(text) <= _LONGEST_EXPRESSION and not _REPEATED_GROUP.search(text) and ways_to_try(text) <= MOST_WAYS
    if not is_cheap:
        raise FieldError(f"{where}: the expression {json_text(text[:80])} is too complicated to be tried", where)
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise FieldError(f"{where}: {json_text(text[:80])} is no regular expression", where) from None


class Assignment(Generic[_T]):
    """Values that rules give the modules of one kind, layer by layer and expert by expert; the last rule counts."""

    def __init__(self, kind: ModuleKind, default: _T) -> None:
        self._kind = kind
        self._default = default
        self._by_layer: dict[int, _T] = {}
        self._by_expert: dict[int, dict[int, _T]] = {}

    def put(self, layer: int, experts: Sequence[int] | None, value: _T) -> None:
        """Note the value of the modules of a layer: of these experts, or of all."""
        if experts is None:
            self._by_layer[layer] = value
            self._by_expert.pop(layer, None)
        else:
            self._by_expert.setdefault(layer, {}).update(dict.fromkeys(experts, value))

    def counts(self) -> Mapping[_T, int]:
        """Value -> number of modules that have it, experts counted one by one."""
        counts: Counter[_T] = Counter()
        each = max(1, self._kind.experts)
        for layer in self._kind.layers or (OUTSIDE,):
            of_experts = self._by_expert.get(layer, {})
            counts.update(of_experts.values())
            counts[self._by_layer.get(layer, self._default)] += each - len(of_experts)
        return {value: count for value, count in counts.items() if count}


def assign(
    modules: ModuleList, defaults: Mapping[str, _T], otherwise: _T, rules: Iterable[tuple[ModuleRule, _T]]
) -> list[Assignment[_T]]:
    """For each kind of `modules` what the rules say of it; `defaults`: the value of each part without a rule.

    Raises FieldError where the expressions of all rules could run for too long.
    """
    assignments = [Assignment(kind, defaults.get(kind.part, otherwise)) for kind in modules.kinds]
    index = _NameIndex(modules)
    for rule, value in rules:
        for place in index.places(rule):
            assignments[place.kind].put(place.layer, place.experts, value)
    return assignments


class _Place(NamedTuple):
    """Modules of one kind in one layer."""

    kind: int
    """Its place in the list."""
    layer: int
    experts: Sequence[int] | None
    """Numbers of the experts; None: all."""


class _Sample(NamedTuple):
    """A name that a module has, or what holds it."""

    kind: int
    """Place of the module's kind in the list."""
    expert: int | None
    """Number of the expert; None: the name is that of all."""


_SamplesByName = dict[str, list[_Sample]]


class _NameIndex:
    """The names of a model's modules, found by the names and patterns of a checkpoint."""

    def __init__(self, modules: ModuleList) -> None:
        self._kinds = modules.kinds
        self._layer_paths = modules.layer_paths
        self._tried = 0.0
        """Ways in which expressions have been tried so far, as an upper bound."""
        self._layers = [frozenset(kind.layers) or frozenset((OUTSIDE,)) for kind in modules.kinds]
        self._kinds_by_path: dict[str, list[int]] = {}
        for number, kind in enumerate(modules.kinds):
            holders = {holder for path in kind.paths() for holder in _with_holders(path)}
            for holder in holders:
                self._kinds_by_path.setdefault(holder, []).append(number)

    def places(self, rule: ModuleRule) -> Sequence[_Place]:
        """The modules that a rule speaks of."""
        if rule.expression is None:
            places = list(self._named(rule.text))
        else:
            places = list(self._matched(rule))
        if not places and (rule.expression is None or rule.is_glob):
            places = list(self._by_words(rule.text))
        return places

    def _named(self, name: str) -> Iterator[_Place]:
        """The modules of a name, and those that a module of this name holds."""
        if any(word in name for word in NOT_THE_LAYERS):
            return
        numbered = _LAYER_NUMBER.search(name)
        if numbered is None:
            yield from self._named_in_all_layers(name)
            return
        layer = int(numbered[1])
        path = name[numbered.end() :].strip(".")
        expert = _EXPERT_NUMBER.search(path)
        experts = None
        kinds: Iterable[int] = self._kinds_by_path.get(path, ()) if path else range(len(self._kinds))
        if expert is not None and not kinds:
            of_any_expert = f"{path[: expert.start(2)]}{NUMBER}{path[expert.end(2) :]}"
            kinds = self._kinds_by_path.get(of_any_expert, ())
            experts = (int(expert[2]),)
        for kind in kinds:
            has_expert = experts is None or experts[0] < self._kinds[kind].experts
            if layer in self._layers[kind] and has_expert:
                yield _Place(kind, layer, experts)

    def _named_in_all_layers(self, name: str) -> Iterator[_Place]:
        """The modules whose name has these words in it: `self_attn`, `mlp.gate`, `lm_head`."""
        words = f".{name.strip('.')}."
        for number, kind in enumerate(self._kinds):
            if any(words in f".{path}." for path in kind.paths()):
                for layer in self._layers[number]:
                    yield _Place(number, layer, None)

    def _matched(self, rule: ModuleRule) -> Iterator[_Place]:
        """The modules whose name, or that of what holds them, an expression matches."""
        for layer in self._module_names:
            if layer != OUTSIDE and not rule.could_speak_of(layer):
                continue
            samples = self._matched_samples(rule, self._module_names[layer])
            if rule.has_end:
                # Without an end, what matches the name of a holder matches those of all in it.
                samples |= self._matched_samples(rule, self._holder_names[layer])
            samples |= self._matched_experts(rule, layer)
            for kind in sorted({sample.kind for sample in samples}):
                experts = {sample.expert for sample in samples if sample.kind == kind}
                yield _Place(kind, layer, self._experts_of(kind, layer, experts, rule))

    def _matched_samples(self, rule: ModuleRule, names: _SamplesByName) -> set[_Sample]:
        """The modules with a name that the expression of a rule matches."""
        return {sample for name, samples in names.items() if self._matches(rule, name) for sample in samples}

    def _matches(self, rule: ModuleRule, name: str) -> bool:
        """Whether the expression of a rule matches a name. Raises FieldError once too much has been tried."""
        self._tried += rule.ways
        if self._tried > _MOST_WAYS_OF_ALL:
            where = "quantization_config"
            raise FieldError(f"{where}: its expressions are too complicated to be tried on all modules", where)
        return rule.expression is not None and rule.expression.match(name) is not None

    def _matched_experts(self, rule: ModuleRule, layer: int) -> set[_Sample]:
        """The modules of experts whose numbers an expression names."""
        samples: set[_Sample] = set()
        if "expert" not in rule.text:
            return samples
        numbers = {int(digits) for digits in _DIGITS.findall(rule.text)}
        for number, kind in enumerate(self._kinds):
            if layer not in self._layers[number]:
                continue
            for expert in numbers:
                if expert < kind.experts and self._has_match(number, layer, expert, rule):
                    samples.add(_Sample(number, expert))
        return samples

    def _experts_of(self, kind: int, layer: int, matched: set[int | None], rule: ModuleRule) -> Sequence[int] | None:
        """Numbers of the experts of a kind whose modules match, by those that were tried; None: all."""
        count = self._kinds[kind].experts
        if None in matched or ({0, count - 1} <= matched and len(matched) == min(count, 2)):
            return None
        return [expert for expert in range(count) if self._has_match(kind, layer, expert, rule)]

    def _has_match(self, kind: int, layer: int, expert: int, rule: ModuleRule) -> bool:
        """Whether an expression matches a name of one expert's module, or of what holds that."""
        paths = [path.replace(NUMBER, str(expert)) for path in self._kinds[kind].paths() if NUMBER in path]
        for begin in self._begins(layer):
            for path in paths:
                if any(self._matches(rule, f"{begin}{name}") for name in _with_holders(path)):
                    return True
        return False

    @cached_property
    def _module_names(self) -> dict[int, _SamplesByName]:
        """Layer -> names of its modules; of the experts of a layer those of the first and of the last."""
        return self._names_by_layer(lambda path: [path])

    @cached_property
    def _holder_names(self) -> dict[int, _SamplesByName]:
        """Layer -> names of what holds its modules."""
        return self._names_by_layer(lambda path: [*_with_holders(path)[1:], ""])

    def _names_by_layer(self, names_of: Callable[[str], list[str]]) -> dict[int, _SamplesByName]:
        """Layer -> names of its modules or of what holds them, by their paths, below all paths that layers may have."""
        by_layer: dict[int, _SamplesByName] = {}
        for number, kind in enumerate(self._kinds):
            samples = []
            for path in kind.paths():
                experts = {0, kind.experts - 1} if NUMBER in path else {None}
                for expert in experts:
                    names = names_of(path.replace(NUMBER, str(expert)))
                    samples += [(name, _Sample(number, expert if f".{expert}" in name else None)) for name in names]
            for layer in self._layers[number]:
                of_layer = by_layer.setdefault(layer, {})
                for begin in self._begins(layer):
                    for name, sample in samples:
                        of_layer.setdefault(f"{begin}{name}".rstrip("."), []).append(sample)
        return by_layer

    def _begins(self, layer: int) -> Sequence[str]:
        """The paths before the modules of a layer that checkpoints may have."""
        if layer == OUTSIDE:
            return ("", "model.", "language_model.")
        return [f"{path}{layer}." for path in self._layer_paths]

    def _by_words(self, text: str) -> Iterator[_Place]:
        """The modules of the part that a name or a glob speaks of in words that are none of this model's names."""
        if any(word in text for word in NOT_THE_LAYERS) or _EXPERT_NUMBER.search(text):
            return
        part = part_of(text)
        numbered = re.search(r"(?:layers|blocks|h)\.(\d{1,6})(?:\.|\*|$)", text)
        for number, kind in enumerate(self._kinds):
            if not part or kind.part != part:
                continue
            for layer in self._layers[number]:
                if numbered is None or layer == int(numbered[1]):
                    yield _Place(number, layer, None)


def _with_holders(path: str) -> list[str]:
    """A path, and those of all that hold the module."""
    words = path.split(".")
    return [".".join(words[:count]) for count in range(len(words), 0, -1)]


def part_of(name: str) -> str:
    """The part of a model that a module's name speaks of; empty where it is none that is quantised."""
    name_with_end = f"{name}$"
    for words, part in _PART_WORDS:
        if any(word in name_with_end for word in words):
            return part
    return ""
