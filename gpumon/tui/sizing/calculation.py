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
from gpumon.sizing.live import UnevenRouting, instances_here, kv_ratios, target_origins, uneven_routing
from gpumon.sizing.live_gpus import gpus_held, gpus_here
from gpumon.sizing.peaks import PeakLoad
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
    uneven_routing: Mapping[str, UnevenRouting] = MappingProxyType({})
    """Served model name -> its replicas at their limit and those with room, where triage finds both."""
    in_use: tuple[str, ...] = ()
    """GPUs that something else than an engine uses."""
    served: Mapping[ModelKey, ModelEngines] = MappingProxyType({})
    """Engines by the model that they serve."""
    target_origins: Mapping[str, str] = MappingProxyType({})
    """Served model name -> origin of a target that follows what runs, in words."""

    @classmethod
    def of(cls, snapshot: Snapshot, peaks: Mapping[str, PeakLoad]) -> Here:
        """The GPUs and instances that a snapshot shows; `peaks`: requests in flight of the last minutes by model."""
        return cls(
            gpus=dict(gpus_here(snapshot)),
            instances=instances_here(snapshot),
            kv_ratios=kv_ratios(snapshot),
            uneven_routing=uneven_routing(snapshot),
            in_use=gpus_held(snapshot),
            served=engines_by_model(snapshot),
            target_origins=target_origins(snapshot, peaks),
        )


class Calculation:
    """The answer to a scenario; worked out only where something that it depends on changed."""

    def __init__(self, catalogues: Catalogues, *, has_configured_servers: bool = False) -> None:
        self.catalogues = catalogues
        """The catalogues with the prices that were typed."""
        self._catalogues_without_typed_prices = catalogues
        self._typed_prices: dict[str, float] = {}
        """Catalogue name of a GPU -> price that was typed for it since the panel was opened first."""
        self.has_configured_servers = has_configured_servers
        """Whether the servers at the start are those of the settings, not those of this machine."""
        self.here = Here()
        self.answer: Answer | None = None
        """The newest answer; None before the first one."""
        self.failure = ""
        """The bug of ours that kept the newest scenario from being answered; empty: there was none."""
        self._scenario: Scenario | None = None
        """The scenario that was asked last; None: it has to be asked again."""
        self._detailed_plan: DetailedPlan | None = None
        self._comparison: Comparison | None = None
        """The comparison of the present scenario; None until somebody looks at it."""
        self._last_comparison: Comparison | None = None
        """An older comparison, from which the next one takes what did not change."""
        self._simulations: dict[int, Simulation] = {}
        """Number of a workload -> its simulation, of those that somebody looked at."""

    def use(self, catalogues: Catalogues, here: Here) -> bool:
        """Take over what is known and what is here; returns whether the answer depends on what changed."""
        changed = catalogues != self._catalogues_without_typed_prices or here.gpus != self.here.gpus
        self.here = here
        if changed:
            self._catalogues_without_typed_prices = catalogues
            self._put_typed_prices()
        return changed

    def typed_price(self, gpu: str) -> float | None:
        """Price that was typed for a type of GPU, by any of its names; None where none was."""
        return self._typed_prices.get(self.catalogues.gpu_name(gpu))

    def keep_price(self, gpu: str, price: float) -> None:
        """Keep a price that was typed for a type of GPU, also for comparisons."""
        self._typed_prices[self.catalogues.gpu_name(gpu)] = price
        self._put_typed_prices()

    def forget_price(self, gpu: str) -> None:
        """Forget the price that was typed for a type of GPU."""
        self._typed_prices.pop(self.catalogues.gpu_name(gpu), None)
        self._put_typed_prices()

    def _put_typed_prices(self) -> None:
        """Put the typed prices above those of the settings, and have the scenario asked again."""
        catalogues = self._catalogues_without_typed_prices
        self.catalogues = catalogues._replace(prices={**catalogues.prices, **self._typed_prices})
        self._scenario = None

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failure` says so."""
        if scenario is self._scenario:
            return
        try:
            self._detailed_plan = detailed_plan(scenario, self.catalogues, self.here.gpus, self._detailed_plan)
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failure = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        else:
            self.answer = self._detailed_plan.answer
            self.failure = ""
        self._scenario = scenario
        self._comparison = None
        self._simulations = {}

    def instance(self, workload: int) -> Instance | None:
        """The instance of one workload, by its number, as the answer has it; None where there is none."""
        if self._detailed_plan is None or self.failure:
            return None
        demands = self._detailed_plan.demands
        if 0 <= workload < len(demands):
            return demands[workload].instance
        return None

    def plan(self, workload: int) -> WorkloadPlan | None:
        """The answer for one workload, by its number; None for one that was added since."""
        workloads = self.answer.workloads if self.answer is not None else ()
        if 0 <= workload < len(workloads):
            return workloads[workload]
        return None

    def servers_of(self, gpu: str) -> int:
        """Number of servers with a type of GPU that the plan takes."""
        if self.answer is None:
            return 0
        plans = self.answer.plans
        packed = plans.memory_only if self.answer.packing == "memory" else plans.busy_aware
        return sum(share.servers for share in packed.by_gpu if share.gpu == gpu)

    @property
    def comparison(self) -> Comparison:
        """The same question on other types of GPU."""
        if self._comparison is None:
            if self._scenario is None or self.failure:
                self._comparison = Comparison()
            else:
                self._comparison = compare(
                    self._scenario, self.catalogues, now=self.answer, before=self._last_comparison
                )
            self._last_comparison = self._comparison
        return self._comparison

    def simulation(self, workload: int) -> Simulation | None:
        """One instance of a workload at its share of the target, simulated; None where there is no answer."""
        plan = self._detailed_plan
        if plan is None or self.failure or not 0 <= workload < len(plan.demands):
            return None
        if workload not in self._simulations:
            self._simulations[workload] = sketch(plan.demands[workload], plan.scenario, self.catalogues)
        return self._simulations[workload]
