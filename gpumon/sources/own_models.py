"""Dimensions of the models that the catalogue is not asked for: those of running engines, and those of the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpumon.config.schema import Model
from gpumon.sources.model_facts import configured
from gpumon.specs.llm import LlmSpec


class OwnModels(Mapping[str, LlmSpec]):
    """By served name. Engines come first; a `[[model]]` entry serves every name that its glob matches."""

    def __init__(self, served: Mapping[str, LlmSpec], entries: Sequence[Model]) -> None:
        self._served = dict(served)
        self._entries = tuple(entries)
        self._found: dict[str, LlmSpec | None] = {}

    def __getitem__(self, model: str) -> LlmSpec:
        found = self._served.get(model) or self._configured(model)
        if found is None:
            raise KeyError(model)
        return found

    def _configured(self, model: str) -> LlmSpec | None:
        """An entry that contradicts itself says so where its engine is shown; here it is none."""
        if model not in self._found:
            try:
                self._found[model] = configured(model, self._entries)
            except ValueError:
                self._found[model] = None
        return self._found[model]

    def __iter__(self) -> Iterator[str]:
        """Names that are known: of globs there is none."""
        named = (entry.match for entry in self._entries if not set(entry.match) & set("*?["))
        return iter(dict.fromkeys((*self._served, *named)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OwnModels):
            return NotImplemented
        return self._served == other._served and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]
