"""The answer to the scenario of the sizing panel, and the GPUs and instances that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.compare import Comparison, compare
from gpumon.sizing.instance import Instance
from gpumon.sizing.live import gpus_held, gpus_here, instances_here, kv_ratios
from gpumon.sizing.plan import DetailedPlan, detailed_plan
from gpumon.sizing.running import ModelEngines, ModelKey, engines_by_model
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.simulate.experiment import Simulation, sketch


class Here(NamedTuple):
    """GPUs and instances that run here."""

    gpus: Mapping[str, int] | None = None
    """Type -> GPUs that can be planned with; None: not looked yet."""
    instances: Mapping[str, int] = MappingProxyType({})
    """Served model name -> instances that answer."""
    kv_ratios: Mapping[str, float] = MappingProxyType({})
    """Served model name -> how full the fullest KV cache of its instances is."""
    in_use: tuple[str, ...] = ()
    """GPUs that something else than an engine uses."""
    served: Mapping[ModelKey, ModelEngines] = MappingProxyType({})
    """Engines by the model that they serve."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Here:
        """The GPUs and instances that a snapshot shows."""
        return cls(
            gpus=dict(gpus_here(snapshot)),
            instances=instances_here(snapshot),
            kv_ratios=kv_ratios(snapshot),
            in_use=gpus_held(snapshot),
            served=engines_by_model(snapshot),
        )


class Calculation:
    """The answer to a scenario; worked out only where something that it depends on changed."""

    def __init__(self, catalogues: Catalogues, configured: bool = False) -> None:
        self.catalogues = catalogues
        self._given = catalogues
        self._prices: dict[str, float] = {}
        """Catalogue name of a GPU -> price that was typed for it since the panel was opened first."""
        self.configured = configured
        """Whether the servers at the start are those of the settings."""
        self.here = Here()
        self.answer: Answer | None = None
        self.failed = ""
        """A bug of ours that kept the newest scenario from being answered."""
        self._scenario: Scenario | None = None
        self._planned: DetailedPlan | None = None
        self._comparison: Comparison | None = None
        self._comparison_before: Comparison | None = None
        self._simulations: dict[int, Simulation] = {}

    def use(self, catalogues: Catalogues, here: Here) -> bool:
        """Take over what is known and what is here; returns whether the answer depends on what changed."""
        changed = catalogues != self._given or here.gpus != self.here.gpus
        self.here = here
        if changed:
            self._given = catalogues
            self._with_prices()
        return changed

    def typed_price(self, gpu: str) -> float | None:
        """Price that was typed for a type of GPU, by any of its names; None where none was."""
        return self._prices.get(self.catalogues.gpu_name(gpu))

    def keep_price(self, gpu: str, price: float | None) -> None:
        """Keep a price that was typed for a type of GPU, also for comparisons; None: forget it."""
        name = self.catalogues.gpu_name(gpu)
        self._prices.pop(name, None)
        if price is not None:
            self._prices[name] = price
        self._with_prices()

    def _with_prices(self) -> None:
        """Typed prices stand above those of the settings."""
        self.catalogues = self._given._replace(prices={**self._given.prices, **self._prices})
        self._scenario = None

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failed` says so."""
        if scenario is self._scenario:
            return
        try:
            self._planned = detailed_plan(scenario, self.catalogues, self.here.gpus, self._planned)
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failed = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        else:
            self.answer = self._planned.answer
            self.failed = ""
        self._scenario = scenario
        self._comparison = None
        self._simulations = {}

    def instance(self, workload: int) -> Instance | None:
        """One workload's instance as the answer has it; None where there is none."""
        if self._planned is not None and not self.failed:
            demands = self._planned.demands
        else:
            demands = ()
        if 0 <= workload < len(demands):
            return demands[workload].instance
        return None

    def plan(self, workload: int) -> WorkloadPlan | None:
        """The answer for one workload; None for one that was added since."""
        workloads = self.answer.workloads if self.answer is not None else ()
        if 0 <= workload < len(workloads):
            return workloads[workload]
        return None

    def servers_of(self, gpu: str) -> int:
        """Servers with a type of GPU that the plan takes."""
        if self.answer is None:
            return 0
        plans = self.answer.plans
        packed = plans.memory_only if self.answer.packing == "memory" else plans.busy_aware
        return sum(share.servers for share in packed.by_gpu if share.gpu == gpu)

    @property
    def comparison(self) -> Comparison:
        """The same question on other types of GPU."""
        if self._comparison is None:
            asked = self._scenario if not self.failed else None
            before = self._comparison_before
            if asked is None:
                self._comparison = Comparison()
            else:
                self._comparison = compare(asked, self.catalogues, None, self.answer, before)
            self._comparison_before = self._comparison
        return self._comparison

    def simulation(self, workload: int) -> Simulation | None:
        """One instance of a workload at its share of the target, simulated; None where there is no answer."""
        plan = self._planned
        if plan is None or self.failed or not 0 <= workload < len(plan.demands):
            return None
        if workload not in self._simulations:
            self._simulations[workload] = sketch(plan.demands[workload], plan.scenario, self.catalogues)
        return self._simulations[workload]
