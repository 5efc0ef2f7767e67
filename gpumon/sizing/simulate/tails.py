"""p95 of the latencies of one instance at its share of the target, from simulated requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from gpumon.readings.missing import number
from gpumon.sizing.engine_limits import longest_request
from gpumon.sizing.instance import Instance
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.search import Demand
from gpumon.sizing.simulate.conditions import Conditions, bounded, source_of
from gpumon.sizing.simulate.experiment import SKETCH_REQUESTS, simulate_replicas
from gpumon.sizing.simulate.setup import Setup, setup_of
from gpumon.sizing.tails import P95, InstanceTails, PendingError

_MOST_USERS: Final = 20_000.0
"""Users of one instance beyond which their questions are taken to arrive as those of ever more users do: at random."""
_ROUNDING: Final = 1e-9
"""Part of a client that rounding may add."""
_MOST_KEPT: Final = 2_000
"""Instances whose p95 are kept."""

Loads = dict[Hashable, P95]
"""Load of one instance -> its p95."""


class SimulatedTails:
    """p95 of instances by simulation; each load of an instance is simulated once."""

    def __init__(
        self, *, allowed: Callable[[], bool] = lambda: True, kept: dict[Hashable, Loads] | None = None
    ) -> None:
        """`allowed`: whether a load that is not known yet may be simulated now; where it may not, it is pending. It is
        asked while a load is simulated, too.
        `kept`: the p95 that are known already, to which others are added."""
        self._allowed = allowed
        self.kept: dict[Hashable, Loads] = {} if kept is None else kept
        """Instance -> its loads."""
        self.pending = False
        """Whether a load was asked for since this was set to False that may not be simulated now."""

    def __call__(self, instance: Instance, scenario: Scenario, catalogues: Catalogues) -> InstanceTails | None:
        """The p95 of an instance; None where it cannot be simulated."""
        if instance.problem or instance.mix is None or instance.response_s(1.0) is None:
            return None
        try:
            setup = setup_of(instance, scenario, catalogues)
        except ValueError:  # no curve, no size of the KV cache: formulas say of it what they can
            return None
        return _Simulated(instance, setup, self)

    def loads_of(self, instance: Hashable) -> Loads:
        """The loads of an instance that were simulated; others are added to them."""
        if len(self.kept) >= _MOST_KEPT and instance not in self.kept:
            self.kept.clear()
        return self.kept.setdefault(instance, {})

    def tell(self, _what: str, _share: float) -> None:
        """Take the progress of a simulation. Raises PendingError where it may not go on."""
        self.require_allowed()

    def require_allowed(self) -> None:
        """Raises PendingError where nothing may be simulated now."""
        if not self._allowed():
            self.pending = True
            raise PendingError


class _Simulated:
    """p95 of one instance."""

    def __init__(self, instance: Instance, setup: Setup, tails: SimulatedTails) -> None:
        self._instance = instance
        self._setup = setup
        self._tails = tails
        workload = instance.workload
        # All that the requests and the engine depend on, but for the load.
        self._loads = tails.loads_of(
            (
                *(setup.cost, setup.limits, setup.delay_s, instance.mix, instance.seen, longest_request(instance)),
                *(workload.lengths, workload.think_s, workload.target_kind),
            )
        )
        self._known: dict[float, P95] = {}
        """Load -> its p95, of the loads that were asked for."""

    def at(self, running: float) -> P95:
        """The p95 with so many requests in flight on average. Raises PendingError while it is not worked out."""
        known = self._known.get(running)
        if known is None:
            known = self._look_up(running)
            self._known[running] = known
        return known

    def _look_up(self, running: float) -> P95:
        """The p95 at a load that was not asked for yet. Raises PendingError while it is not worked out."""
        demand = _at_load(self._instance, running)
        conditions = bounded(
            demand, Conditions(replicas=1, tell=self._tails.tell), recorded=None, most_requests=SKETCH_REQUESTS
        )
        key = (demand.workload.target, demand.workload.target_kind, conditions.seconds)
        if key not in self._loads:
            self._tails.require_allowed()
            self._loads[key] = _p95_of(demand, self._setup, conditions)
        return self._loads[key]


def _at_load(instance: Instance, running: float) -> Demand:
    """One instance at the part of the target with which so many requests are in flight."""
    demand = Demand(instance.workload, instance, planned_running=running)
    target = demand.target_served(running)
    kind = instance.workload.target_kind
    if kind == "users" and target > _MOST_USERS:
        kind = "requests_per_s"
        target = running / (instance.response_s(running) or 1.0)
    if kind != "requests_per_s":
        target = math.ceil(target - _ROUNDING)
    if kind == "concurrency":  # of which no part is played, so that 17.6 in flight are the 18 of the limit
        running = float(target)
    share = msgspec.structs.replace(instance.workload, target=target, target_kind=kind)
    return demand._replace(workload=share, planned_running=running)


def _p95_of(demand: Demand, setup: Setup, conditions: Conditions) -> P95:
    """Simulate one instance. Without an answer, as more requests arrive than can be simulated, it does not keep up."""
    try:
        figures = simulate_replicas(demand, setup, source_of(demand, conditions), conditions, replicas=1)
    except ValueError:
        return P95(keeps_up=False)
    return P95(
        ttft_s=number(figures.ttft_s.p95),
        tpot_s=number(figures.tpot_s.p95),
        itl_s=number(figures.itl_s.p95),
        e2e_s=number(figures.e2e_s.p95),
        keeps_up=bool(figures.requests) and not figures.refused and not figures.queue_grows,
    )
