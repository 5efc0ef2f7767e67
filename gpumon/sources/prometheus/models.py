"""The models of a fleet's engines, and what the config says of single engines: no file of another machine is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.config.schema import Endpoint, Model
from gpumon.config.urls import with_scheme
from gpumon.efficiency.service import ROUTER_KINDS
from gpumon.readings.frame import EngineReading
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.sources.attachment import NAMELESS, with_extra_work
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.hints import SPEC_HINTS, STORAGE_HINTS, hints_of
from gpumon.specs.llm import LlmSpec

_MOST_MODELS: Final = 4096
"""Models whose dimensions are kept."""
_NOTHING: Final = Endpoint(url="http://nothing")


class Models:
    """Looks models up in the config and the catalogue, and by what the engine says; each once."""

    def __init__(self, models: Sequence[Model], endpoints: Sequence[Endpoint]) -> None:
        self._models = tuple(models)
        self._endpoints: dict[str, Endpoint] = {}
        self._globs: list[tuple[Callable[[str], object], Endpoint]] = []
        for endpoint in endpoints:
            if "*" in endpoint.url:
                self._globs.append((_glob(endpoint.url), endpoint))
            else:
                self._endpoints[_address(endpoint.url)] = endpoint
        self._unused = {endpoint.url: None for endpoint in endpoints}
        self._known: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[LlmSpec | None, str]] = {}

    def endpoint(self, instance: str) -> Endpoint:
        """The config's entry for the engine at this address, as a Prometheus names it: by that, else by a glob."""
        endpoint = self._endpoints.get(instance)
        if endpoint is None:
            endpoint = self._by_glob(instance)
        self._unused.pop(endpoint.url, None)
        return endpoint

    def _by_glob(self, instance: str) -> Endpoint:
        for matches, endpoint in self._globs:
            if matches(instance):
                return endpoint
        return _NOTHING

    @property
    def unused(self) -> tuple[str, ...]:
        """URLs of the config that no engine was found at so far."""
        return tuple(self._unused)

    def attach(self, reading: EngineReading, endpoint: Endpoint) -> EngineReading:
        """The reading with its model, as far as that is known."""
        if reading.kind in ROUTER_KINDS:
            return reading
        model, root = (endpoint.model, "") if endpoint.model else (reading.model, reading.model_root)
        known_hints = hints_of(reading.info)
        names: tuple[str, ...] = STORAGE_HINTS if endpoint.model else SPEC_HINTS
        hints = {}
        for key in names:
            if key in known_hints:
                hints[key] = known_hints[key]
        llm, why = self._look(model, root, hints)
        return msgspec.structs.replace(
            reading,
            llm=with_extra_work(llm, reading),
            info=reading.info if llm is not None else {**reading.info, "model_missing": why},
            gpu_type=endpoint.gpu_type,
            gpu_count=endpoint.gpu_count,
            context_tokens=NOT_EXPOSED if endpoint.context_tokens is None else endpoint.context_tokens,
        )

    def _look(self, model: str, root: str, hints: Mapping[str, str]) -> tuple[LlmSpec | None, str]:
        if not model:
            return None, NAMELESS
        key = (model, root, tuple(sorted(hints.items())))
        if key not in self._known:
            if len(self._known) >= _MOST_MODELS:
                self._known.clear()
            facts = look_up(model, root, self._models, llm_catalogue(), (), hints)
            self._known[key] = (facts.spec, facts.why)
        return self._known[key]


def _glob(url: str) -> Callable[[str], object]:
    """`http://gpu-*:8000` as a pattern of addresses; a `*` stands for anything."""
    address = with_scheme(url).partition("://")[2].partition("/")[0]
    return re.compile(".*".join(map(re.escape, address.split("*")))).fullmatch


def _address(url: str) -> str:
    parsed = parse_url(url)
    if ":" in parsed.host:
        return f"[{parsed.host}]:{parsed.port}"
    return f"{parsed.host}:{parsed.port}"
