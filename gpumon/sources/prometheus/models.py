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
from gpumon.sources.engine_options import with_options
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.hints import DTYPE, SPEC_HINTS, STORAGE_HINTS, hints_of
from gpumon.specs.llm import LlmSpec

_MOST_MODELS: Final = 4096
"""Models whose dimensions are kept."""
_NO_ENDPOINT: Final = Endpoint(url="http://nothing")


class Models:
    """Looks models up in the config and the catalogue, and by what the engine says; each once."""

    def __init__(self, models: Sequence[Model], endpoints: Sequence[Endpoint]) -> None:
        self._models = tuple(models)
        self._endpoints: dict[str, Endpoint] = {}
        self._globs: list[tuple[Callable[[str], object], Endpoint]] = []
        for endpoint in endpoints:
            if "*" in endpoint.url:
                self._globs.append((_compile_glob(endpoint.url), endpoint))
            else:
                self._endpoints[_address(endpoint.url)] = endpoint
        self._unused = {endpoint.url: None for endpoint in endpoints}
        """URLs of the config that no engine was found at so far."""
        self._looked_up: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[LlmSpec | None, str]] = {}

    def endpoint(self, instance: str) -> Endpoint:
        """The config's entry for the engine at this address, as a Prometheus names it: by that, else by a glob."""
        entry = self._endpoints.get(instance)
        if entry is None:
            entry = next((endpoint for matches, endpoint in self._globs if matches(instance)), _NO_ENDPOINT)
        self._unused.pop(entry.url, None)
        return entry

    @property
    def unused(self) -> tuple[str, ...]:
        """URLs of the config that no engine was found at so far."""
        return tuple(self._unused)

    def attach(self, reading: EngineReading, endpoint: Endpoint) -> EngineReading:
        """The reading with its model, as far as that is known."""
        if reading.kind in ROUTER_KINDS:
            return reading
        reading = with_options(reading)
        model = reading.model
        root = reading.model_root
        hint_names: tuple[str, ...] = SPEC_HINTS
        if endpoint.model:
            # What the engine says of its model holds of another one only as far as it is about storage.
            model = endpoint.model
            root = ""
            hint_names = STORAGE_HINTS
        all_hints = hints_of({DTYPE: reading.options.dtype, **reading.info})
        hints = {name: all_hints[name] for name in hint_names if name in all_hints}
        llm, why = self._look_up(model, root, hints)
        info = reading.info if llm is not None else {**reading.info, "model_missing": why}
        return msgspec.structs.replace(
            reading,
            llm=with_extra_work(llm, reading),
            info=info,
            gpu_type=endpoint.gpu_type,
            gpu_count=endpoint.gpu_count,
            context_tokens=NOT_EXPOSED if endpoint.context_tokens is None else endpoint.context_tokens,
        )

    def _look_up(self, model: str, root: str, hints: Mapping[str, str]) -> tuple[LlmSpec | None, str]:
        """The dimensions of a model; None where they are not known, and why not."""
        if not model:
            return None, NAMELESS
        key = (model, root, tuple(sorted(hints.items())))
        if key not in self._looked_up:
            if len(self._looked_up) >= _MOST_MODELS:
                self._looked_up.clear()
            facts = look_up(model, root, self._models, llm_catalogue(), (), hints)
            self._looked_up[key] = (facts.spec, facts.why)
        return self._looked_up[key]


def _compile_glob(url: str) -> Callable[[str], object]:
    """`http://gpu-*:8000` as a pattern of addresses; a `*` stands for anything."""
    address = with_scheme(url).partition("://")[2].partition("/")[0]
    return re.compile(".*".join(map(re.escape, address.split("*")))).fullmatch


def _address(url: str) -> str:
    """Host and port of a URL, as a Prometheus names them."""
    parsed = parse_url(url)
    if ":" in parsed.host:
        return f"[{parsed.host}]:{parsed.port}"
    return f"{parsed.host}:{parsed.port}"
