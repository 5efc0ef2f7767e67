"""The answer to the scenario of the sizing panel, and the GPUs and instances that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from gpumon.efficiency.service import model_key
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Basis, Runs, WorkloadPlan
from gpumon.sizing.compare import Comparison, compare
from gpumon.sizing.document.plan import PlanDocument, needed_packing, plan_document
from gpumon.sizing.document.workload import WorkloadDocument, workload_document
from gpumon.sizing.instance import Instance
from gpumon.sizing.live import UnevenRouting, instances_here, kv_ratios, target_origins, uneven_routing
from gpumon.sizing.live_gpus import gpus_held, gpus_here
from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.plan import DetailedPlan, detailed_plan, plan
from gpumon.sizing.running import ModelEngines, ModelKey, engines_by_model, running_instances
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.sizing.search import Demand, demand_at_own_tp, laid_out
from gpumon.sizing.simulate.experiment import Simulation, sketch
from gpumon.sizing.simulate.tails import SimulatedTails


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
    def of(cls, snapshot: Snapshot, peaks: Mapping[str, PeakLoad], minute: Mapping[str, float]) -> Here:
        """The GPUs and instances that a snapshot shows; `peaks`: requests in flight of the last minutes by model, and
        `minute`: mean running requests of the last one."""
        return cls(
            gpus=dict(gpus_here(snapshot)),
            instances=instances_here(snapshot),
            kv_ratios=kv_ratios(snapshot),
            uneven_routing=uneven_routing(snapshot),
            in_use=gpus_held(snapshot),
            served=engines_by_model(snapshot, minute),
            target_origins=target_origins(snapshot, peaks),
        )


def waits(answer: Answer) -> bool:
    """Whether an answer waits for simulated requests: until they are there, means stand for their p95."""
    goals = (goal for workload in answer.workloads for goal in workload.goals)
    return any(goal.basis is Basis.PENDING for goal in goals)


class Question(NamedTuple):
    """A scenario whose answer waits for simulated requests."""

    scenario: Scenario
    catalogues: Catalogues
    served: Mapping[ModelKey, ModelEngines] = MappingProxyType({})
    """Engines that run beside the plan, by the model that they serve."""
    is_compared: bool = False
    """Whether its comparison with other types of GPU waits for them, too."""
    is_offered: bool = False
    """Whether it is that of newer figures."""


class Calculation:
    """The answer to a scenario; worked out only where something that it depends on changed.

    A p95 that has to be simulated is not waited for: the mean stands for it, and the answer says so, until `simulate`
    has run on another thread and `take_simulated` was called.
    """

    def __init__(self, catalogues: Catalogues, *, has_configured_servers: bool = False) -> None:
        self._tails = SimulatedTails(allowed=lambda: False)
        self.catalogues = catalogues._replace(tails=self._tails)
        """The catalogues with the prices that were typed."""
        self.asked_catalogues = self.catalogues
        """These with the models that the scenario has in it."""
        self._waiting: Question | None = None
        """The present question, if it waits for simulated requests."""
        self._offered: Question | None = None
        """The question on newer figures, if it waits for simulated requests."""
        self.pending: tuple[Question, ...] = ()
        """Both of them, as far as they wait; another tuple with each change."""
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
        self._document: PlanDocument | None = None
        """The answer in words, once somebody looked at it."""
        self._workload_documents: dict[int, WorkloadDocument] = {}
        """Number of a workload -> its words, of those that somebody looked at."""
        self._simulations: dict[int, Simulation] = {}
        """Number of a workload -> its simulation, of those that somebody looked at."""
        self._plan_before: DetailedPlan | None = None
        """The plan before the last change of the question."""
        self._layout_reasons: dict[int, str] = {}
        """Number of a workload -> why it has another layout than before, of those that somebody looked at."""
        self._runs: tuple[Runs | None, ...] = ()
        """Engines that run beside each workload; None where there is none."""

    def use(self, catalogues: Catalogues, here: Here) -> bool:
        """Take over what is known and what is here; returns whether the answer depends on what changed."""
        changed = catalogues != self._catalogues_without_typed_prices
        changed = changed or (here.gpus, here.served) != (self.here.gpus, self.here.served)
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
        self.catalogues = self._with_prices(catalogues)
        self._scenario = None

    def _with_prices(self, catalogues: Catalogues) -> Catalogues:
        """Catalogues with the typed prices, and with the p95 that were simulated."""
        prices = {**catalogues.prices, **self._typed_prices}
        return catalogues._replace(prices=prices, tails=self._tails)

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failure` says so."""
        if scenario is self._scenario:
            return
        self._use_models_of(scenario)
        try:
            self._detailed_plan = detailed_plan(scenario, self.asked_catalogues, self.here.gpus, self._detailed_plan)
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failure = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        else:
            self.answer = self._detailed_plan.answer
            self.failure = ""
            self._runs = _runs_beside(self._detailed_plan, self.here.served)
        self._scenario = scenario
        self._document = None
        self._workload_documents = {}
        self._comparison = None
        self._simulations = {}
        self._layout_reasons = {}
        self._offered = None
        self._note_pending()

    def _note_pending(self) -> None:
        """Note which questions wait for simulated requests."""
        self._waiting = None
        if self._tails.pending and self._scenario is not None:
            is_compared = self._comparison is not None
            self._waiting = Question(
                self._scenario, self.asked_catalogues, served=self.here.served, is_compared=is_compared
            )
        self.pending = tuple(question for question in (self._waiting, self._offered) if question is not None)

    def simulate(self, questions: Sequence[Question], goes_on: Callable[[], bool]) -> None:
        """Simulate what the answers to some questions wait for, on any thread, as long as `goes_on` says so."""
        tails = SimulatedTails(allowed=goes_on, kept=self._tails.kept)
        for question in questions:
            catalogues = question.catalogues._replace(tails=tails)
            with suppress(Exception):  # the same bug is told where the question is asked
                _runs_beside(detailed_plan(question.scenario, catalogues), question.served)
                if question.is_compared:
                    compare(question.scenario, catalogues)

    def take_simulated(self) -> None:
        """Have the scenario asked again, with what was simulated since."""
        self._tails.pending = False
        self.asked_catalogues = self.asked_catalogues._replace()  # others than those of the demands that are kept
        self._scenario = None

    def _use_models_of(self, scenario: Scenario) -> None:
        """Take over the dimensions that a scenario has in it; the catalogues stay the same object where these are those
        of the scenario before."""
        catalogues = self.catalogues.with_models_of(scenario)
        if catalogues != self.asked_catalogues:
            self.asked_catalogues = catalogues

    def answer_on(self, scenario: Scenario, catalogues: Catalogues, gpus: Mapping[str, int] | None) -> Answer | None:
        """The answer that a scenario would have with these catalogues and GPUs here; None where that fails."""
        with_prices = self._with_prices(catalogues)
        try:
            answer = plan(scenario, with_prices.with_models_of(scenario), gpus)
        except Exception:  # the same bug is told once it is asked for
            return None
        if waits(answer):
            self._offered = Question(scenario, with_prices.with_models_of(scenario), is_offered=True)
            self._note_pending()
        return answer

    def instance(self, workload: int) -> Instance | None:
        """The instance of one workload, by its number, as the answer has it; None where there is none."""
        if self._detailed_plan is None or self.failure:
            return None
        demands = self._detailed_plan.demands
        if 0 <= workload < len(demands):
            return demands[workload].instance
        return None

    def remember_layouts(self) -> None:
        """Keep the layouts of the present plan, beside which those of the next ones are explained."""
        self._plan_before = self._detailed_plan

    def layout_reason(self, workload: int) -> str:
        """Why a workload, by its number, has another layout or type of GPU than before the last change: the needs in
        the former one now, `was TP 1, which would take 61 GPUs now`. Empty where it has the same, or it was typed."""
        if workload not in self._layout_reasons:
            self._layout_reasons[workload] = self._reason_of_layout(workload)
        return self._layout_reasons[workload]

    def _reason_of_layout(self, workload: int) -> str:
        """The text of `layout_reason`."""
        before = self._plan_before
        now = self._detailed_plan
        if before is None or now is None or self.failure or len(before.demands) != len(now.demands):
            return ""
        former = before.demands[workload]
        demand = now.demands[workload]
        former_gpu = former.instance.gpu
        gpu = demand.instance.gpu
        if former_gpu is None or gpu is None or not _was_laid_out_twice(former, demand):
            return ""
        if former_gpu.name != gpu.name:
            return f"was {former.layout.text} on {former_gpu.name}"
        if former.layout == demand.layout:
            return ""
        return f"was {former.layout.text}{self._needs_now(laid_out(demand.workload, former.layout), now.scenario)}"

    def _needs_now(self, workload: Workload, scenario: Scenario) -> str:
        """The needs of a workload in its own layout, as the end of a sentence; empty where they wait for simulated
        requests."""
        was_pending = self._tails.pending
        self._tails.pending = False
        demand = demand_at_own_tp(workload, scenario, self.asked_catalogues)
        waits_for_requests = self._tails.pending
        self._tails.pending = was_pending
        if waits_for_requests:
            return ""
        if demand.problem:
            return f": {demand.problem}"
        return f", which would take {demand.gpus:,.0f} {'GPU' if demand.gpus == 1 else 'GPUs'} now"

    def runs(self, workload: int) -> Runs | None:
        """Engines that run beside a workload, by its number; None where there is none."""
        return self._runs[workload] if 0 <= workload < len(self._runs) else None

    def plan(self, workload: int) -> WorkloadPlan | None:
        """The answer for one workload, by its number; None for one that was added since."""
        workloads = self.answer.workloads if self.answer is not None else ()
        if 0 <= workload < len(workloads):
            return workloads[workload]
        return None

    @property
    def document(self) -> PlanDocument | None:
        """The answer in words; None before the first one."""
        if self._document is None and self.answer is not None:
            self._document = plan_document(self.answer)
        return self._document

    def workload_document(self, workload: int) -> WorkloadDocument | None:
        """The answer for one workload in words, by its number; None for one that was added since."""
        plan = self.plan(workload)
        if plan is None or self._scenario is None:
            return None
        if workload not in self._workload_documents:
            instance = self.instance(workload)
            fitted = instance.fitted if instance is not None else None
            largest = fitted.high if fitted is not None else None
            self._workload_documents[workload] = workload_document(plan, self._scenario.planning_factor, largest)
        return self._workload_documents[workload]

    def servers_of(self, gpu: str) -> int:
        """Number of servers with a type of GPU that the plan takes."""
        if self.answer is None:
            return 0
        return sum(share.servers for share in needed_packing(self.answer).by_gpu if share.gpu == gpu)

    @property
    def comparison(self) -> Comparison:
        """The same question on other types of GPU."""
        if self._comparison is None:
            if self._scenario is None or self.failure:
                self._comparison = Comparison()
            else:
                self._comparison = compare(
                    self._scenario, self.asked_catalogues, planned=self.answer, before=self._last_comparison
                )
            self._last_comparison = self._comparison
            self._note_pending()
        return self._comparison

    def simulation(self, workload: int) -> Simulation | None:
        """One instance of a workload at its share of the target, simulated; None where there is no answer."""
        plan = self._detailed_plan
        if plan is None or self.failure or not 0 <= workload < len(plan.demands):
            return None
        if workload not in self._simulations:
            self._simulations[workload] = sketch(plan.demands[workload], plan.scenario, self.asked_catalogues)
        return self._simulations[workload]


def _was_laid_out_twice(former: Demand, demand: Demand) -> bool:
    """Whether two answers have a layout of the same workload that nobody typed."""
    typed = demand.workload.tp or demand.workload.pp or demand.workload.dp
    same_workload = former.workload.label == demand.workload.label
    return same_workload and not typed and not former.problem and not demand.problem


def _runs_beside(plan: DetailedPlan, served: Mapping[ModelKey, ModelEngines]) -> tuple[Runs | None, ...]:
    """Engines that run beside each workload of a plan; None where there is none."""
    runs: list[Runs | None] = []
    for demand in plan.demands:
        engines = served.get(model_key(demand.workload.model))
        runs.append(None if engines is None else running_instances(demand.instance, engines, plan.scenario))
    return tuple(runs)
