"""Groups of a fleet's report: the host, the model or the label value to which each GPU and engine is counted."""

from __future__ import annotations

from typing import Final, Protocol

from gpumon.efficiency.service import model_key
from gpumon.fleet.owners import OF_SCRAPED_PODS, OWNER_SEPARATOR, HostOwners
from gpumon.fleet.rows import NO_ENGINE, NO_MODEL, NOT_PLACED
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.snapshot import Engine, Gpu

BY_HOST: Final = "host"
BY_MODEL: Final = "model"
"""Ways to group a report; any other one is the name of a label."""


class Groups(Protocol):
    """Finds the group of each GPU and engine of one host, by name; an empty name: no group."""

    def gpu(self, gpu: Gpu) -> str:
        """The group of a GPU."""

    def engine(self, engine: Engine) -> str:
        """The group of an engine."""


class ByHost:
    """Puts everything under its host."""

    def __init__(self, host: str) -> None:
        self._host = host

    def gpu(self, gpu: Gpu) -> str:  # noqa: ARG002 - as all groups are asked
        """The name of the host."""
        return self._host

    def engine(self, engine: Engine) -> str:  # noqa: ARG002 - as all groups are asked
        """The name of the host."""
        return self._host


class ModelNames:
    """One name for all names of a model: the one that was seen first."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}

    def name_of(self, model: str) -> str:
        """The common name of a model that an engine calls `model`."""
        return self._names.setdefault(model_key(model), model or NO_MODEL)


class ByModel:
    """Puts engines under their models, GPUs under those of their engines; a group of several models names them all."""

    def __init__(self, shown: HostShown, names: ModelNames) -> None:
        self._names = names
        self._models_on_gpu: dict[int, set[str]] = {}
        """Index of a GPU -> names of the models on it."""
        for engine in shown.snapshot.engines:
            for index in engine.hardware.gpus:
                self._models_on_gpu.setdefault(index, set()).add(names.name_of(engine.model))

    def gpu(self, gpu: Gpu) -> str:
        """The models on a GPU."""
        models = self._models_on_gpu.get(gpu.reading.index)
        if models:
            return OWNER_SEPARATOR.join(sorted(models))
        return NOT_PLACED if gpu.is_unplaced else NO_ENGINE

    def engine(self, engine: Engine) -> str:
        """The model of an engine."""
        return self._names.name_of(engine.model)


class ReportGrouping:
    """Groups of a report by host, by model, or by a label."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.by_label = by not in (BY_HOST, BY_MODEL)
        self.labels: set[str] = set()
        """Names of the labels seen so far; empty unless it is grouped by a label."""
        self._names = ModelNames()

    def groups(self, shown: HostShown) -> Groups:
        """The groups of a host at one moment. Also notes the labels seen."""
        if self.by == BY_HOST:
            return ByHost(shown.name)
        if self.by == BY_MODEL:
            return ByModel(shown, self._names)
        self.labels |= shown.labels.keys() - OF_SCRAPED_PODS
        for labels in shown.owners.values():
            self.labels |= labels.keys()
        return HostOwners(shown, self.by, owners_of_workers={})
