"""Groups of a report: to which host, model or value of a label each GPU and engine of a host is counted."""

from __future__ import annotations

from typing import Final, Protocol

from gpumon.efficiency.service import model_key
from gpumon.fleet.owners import BETWEEN, OF_SCRAPED_PODS, HostOwners
from gpumon.fleet.rows import NO_ENGINE, NO_MODEL, NOT_PLACED
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu

BY_HOST: Final = "host"
BY_MODEL: Final = "model"


class Groups(Protocol):
    """Groups of the GPUs and engines of one host; an empty name: no group."""

    def gpu(self, gpu: Gpu) -> str:
        """The group of a GPU."""

    def engine(self, engine: Engine) -> str:
        """The group of an engine."""


class ByHost:
    """Everything is its host's."""

    def __init__(self, host: str) -> None:
        self._host = host

    def gpu(self, gpu: Gpu) -> str:  # noqa: ARG002 - as all groups are asked
        """The host."""
        return self._host

    def engine(self, engine: Engine) -> str:  # noqa: ARG002 - as all groups are asked
        """The host."""
        return self._host


class ModelNames:
    """One name for all names of a model: the one that was seen first."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}

    def of(self, model: str) -> str:
        """The name of a model."""
        return self._names.setdefault(model_key(model), model or NO_MODEL)


class ByModel:
    """Engines by their models, GPUs by the engines on them; a GPU of several models is in a group that names them."""

    def __init__(self, shown: HostShown, names: ModelNames) -> None:
        self._names = names
        self._on_gpu: dict[int, set[str]] = {}
        for engine in shown.snapshot.engines:
            for index in engine.hardware.gpus:
                self._on_gpu.setdefault(index, set()).add(names.of(engine.model))

    def gpu(self, gpu: Gpu) -> str:
        """The models on a GPU."""
        models = self._on_gpu.get(gpu.index)
        if models:
            return BETWEEN.join(sorted(models))
        if isinstance(gpu.mfu_ratio, Missing) and gpu.mfu_ratio.reason is Reason.UNMAPPED:
            return NOT_PLACED
        return NO_ENGINE

    def engine(self, engine: Engine) -> str:
        """Its model."""
        return self._names.of(engine.model)


class ReportGrouping:
    """Groups of a report by host, by model, or by a label."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.by_label = by not in (BY_HOST, BY_MODEL)
        self.labels: set[str] = set()
        """Names of the labels that were seen, where it is grouped by one."""
        self._names = ModelNames()

    def groups(self, shown: HostShown) -> Groups:
        """The groups of a host at one moment."""
        if self.by == BY_HOST:
            return ByHost(shown.name)
        if self.by == BY_MODEL:
            return ByModel(shown, self._names)
        self.labels |= shown.labels.keys() - OF_SCRAPED_PODS
        for labels in shown.owners.values():
            self.labels |= labels.keys()
        return HostOwners(shown, self.by, {})
