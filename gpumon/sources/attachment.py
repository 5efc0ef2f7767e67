"""Joins an engine's poll with what its endpoint can not tell: the model's dimensions and the GPUs it runs on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from gpumon.config.schema import Endpoint, Model
from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.sources.model_facts import resolve
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import LlmSpec

NOT_LOOKED = "processes are not looked at (discovery is off): set gpus = [..] for this endpoint in the config"


class Owner(Protocol):
    """Finds the GPUs of the process that listens at a URL."""

    def gpus_of(self, url: str, gpus: tuple[GpuReading, ...]) -> tuple[tuple[str, ...], str]:
        """UUIDs and where they come from, or the reason why there are none; returns at once."""


class EngineFacts:
    """Model files are read in a thread, once a model; until then the model is unknown."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        models: Sequence[Model],
        owner: Owner | None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._models = tuple(models)
        self._owner = owner
        self._env = os.environ if env is None else env
        self._known: dict[tuple[str, str], tuple[LlmSpec | None, str]] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[tuple[LlmSpec | None, str]]] = {}

    def attach(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        """The reading with its model and GPUs, as far as they are known by now."""
        endpoint = self._endpoints.get(reading.url, Endpoint(url=reading.url))
        llm, why = self._model(endpoint.model or reading.model, reading.model_root)
        uuids, source = self._gpus(endpoint, reading, gpus)
        return msgspec.structs.replace(
            reading,
            llm=llm,
            info={**reading.info, "model_missing": why} if llm is None and why else reading.info,
            gpus=uuids,
            gpus_source=source,
            gpu_type=endpoint.gpu_type,
            gpu_count=endpoint.gpu_count,
            context_tokens=NOT_EXPOSED if endpoint.context_tokens is None else endpoint.context_tokens,
        )

    def _gpus(
        self, endpoint: Endpoint, reading: EngineReading, gpus: tuple[GpuReading, ...]
    ) -> tuple[tuple[str, ...], str]:
        if endpoint.gpus != "auto":
            by_index = {gpu.index: gpu.uuid for gpu in gpus if not gpu.parent_uuid}
            missing = [index for index in endpoint.gpus if index not in by_index]
            if missing and gpus:
                return (), f"the config names GPU {missing[0]}, this host has {sorted(by_index)}"
            return tuple(by_index[index] for index in endpoint.gpus if index in by_index), "config"
        if endpoint.gpu_type:
            return (), "config (another host)"
        if not gpus:
            return (), "this host has no GPU: set gpu_type and gpu_count for this endpoint in the config"
        if self._owner is None:
            return (), NOT_LOOKED
        return self._owner.gpus_of(reading.url, gpus)

    def _model(self, model: str, root: str) -> tuple[LlmSpec | None, str]:
        if not model:
            return None, ""
        key = (model, root)
        if key in self._known:
            return self._known[key]
        task = self._tasks.get(key)
        if task is None:
            if len(self._tasks) > 256:
                return None, "too many models"
            self._tasks[key] = asyncio.create_task(
                asyncio.to_thread(resolve, model, root, self._models, llm_catalogue(), self._env)
            )
        elif task.done():
            error = task.exception()
            self._known[key] = (None, f"{type(error).__name__}: {error}") if error else task.result()
            return self._known[key]
        return None, ""
