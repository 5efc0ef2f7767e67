"""What sizing looks up: models, GPUs, prices, imported profiles."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from gpumon.sizing.observed import Observed
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.specs.gpus import GpuCatalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llms import LlmCatalogue


class Known(NamedTuple):
    """Catalogues and what the user added to them."""

    gpus: GpuCatalogue
    llms: LlmCatalogue
    own: Mapping[str, LlmSpec] = MappingProxyType({})
    """Model name -> dimensions that stand above the catalogue: of running engines and of the config."""
    profiles: Mapping[str, Observed] = MappingProxyType({})
    """Imported, by name."""
    prices: Mapping[str, float] = MappingProxyType({})
    """Catalogue name of a GPU -> price of one hour."""

    def llm(self, model: str) -> LlmSpec | None:
        """Dimensions of a model; None where they are not known."""
        return self.own.get(model) or self.llms.find(model)

    def seen(self, workload: Workload) -> Observed | None:
        """What was seen of its model: the profile that it names, else what the scenario itself keeps."""
        return self.profiles.get(workload.profile, workload.seen) if workload.profile else workload.seen

    def kept(self, scenario: Scenario) -> Scenario:
        """The scenario with its profiles in it, so that it gives the same answer where they were never imported."""
        workloads = (msgspec.structs.replace(each, seen=self.seen(each)) for each in scenario.workload)
        return msgspec.structs.replace(scenario, workload=tuple(workloads))
