"""Tallies of a fleet's report: sums over time for one GPU, and for one group of GPUs and engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpumon.efficiency.costs import SHARED_GPU
from gpumon.efficiency.merged import merge_known
from gpumon.efficiency.money import cost_of
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.span_counters import GpuGrowth, generated_tokens, per_token
from gpumon.efficiency.sums import TOKEN_FIELDS, GoodputTotal, KnownTotal, TimeMean, sum_of_known
from gpumon.figures.gpu import GPU, USE
from gpumon.readings.flat import value_of
from gpumon.readings.fleet_period import GroupPeriod
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.period import known_s_field
from gpumon.readings.prices import NO_ENERGY_PRICE, NO_PRICE
from gpumon.readings.snapshot import Gpu

UNPLACED: Final = Missing(Reason.NO_GPU)
"""Cost of tokens of engines whose GPUs are not known."""


TOTALS: Final = ("energy_j", "unused_s")
"""Figures of a GPU that grow, and whose growth a report has."""


class GpuTally:
    """Sums over the time that one GPU was in one group."""

    __slots__ = ("energy_cost", "gpu_type", "index", "means", "models", "per_hour", "seconds", "totals")

    def __init__(self, index: int, gpu_type: str, per_hour: Reading) -> None:
        self.index = index
        self.gpu_type = gpu_type
        self.per_hour = per_hour
        """Price of an hour."""
        self.seconds = 0.0
        self.means = {field: TimeMean() for field in USE}
        self.totals = {field: KnownTotal() for field in TOTALS}
        self.energy_cost: Reading = 0.0
        """Price of the energy; missing where some of it has none."""
        self.models: dict[str, None] = {}
        """Names of the models on it, in the order in which they came."""

    def take(self, gpu: Gpu, growth: GpuGrowth, seconds: float) -> None:
        """Add the seconds since the look before, with what was counted in them and the figures of this look."""
        self.seconds += seconds
        for field, mean in self.means.items():
            value: Reading = value_of(gpu, field)
            weighted_by = GPU[field].weight
            weight: Reading = value_of(gpu, weighted_by) if weighted_by else 1.0
            if not isinstance(value, Missing) and not isinstance(weight, Missing):
                mean.add(value, seconds, weight)
        for field, total in self.totals.items():
            total.add(getattr(growth, field), seconds)
        if not isinstance(growth.energy_j, Missing):
            self.energy_cost = plus(self.energy_cost, growth.energy_cost)

    @property
    def unused_s(self) -> float:
        """Seconds in which it was unused, as far as that is known."""
        return self.totals["unused_s"].total

    @property
    def cost(self) -> Reading:
        """The price of its hours."""
        return cost_of(self.per_hour, self.seconds)

    @property
    def unused_cost(self) -> Reading:
        """The price of its unused hours."""
        return cost_of(self.per_hour, self.totals["unused_s"].reading)


class GroupTally:
    """Sums over the GPUs and engines of one group, or of all groups."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: set[str] = set()
        self.gpus: dict[tuple[str, str], None] = {}
        """Host and UUID of each GPU."""
        self.tokens: dict[str, float] = {}
        """Field of the report (`TOKEN_FIELDS`) -> tokens that engines counted."""
        self.goodput = GoodputTotal()
        self.shared = False
        """Whether some of its engines ran on GPUs that are counted to another group."""
        self.unplaced = False
        """Whether it is not known on which GPUs some of its engines ran."""
        self.incidents = 0
        """Incidents in this group; their seconds are in `incident_s`."""
        self.critical = 0
        """Incidents of level critical."""
        self.incident_s = 0.0
        self.incidents_known = False
        """Whether it is known of some of its hosts what incidents they had: then 0 of them are a finding."""
        self._gpu_tallies: list[GpuTally] = []

    def add_gpu(self, host: str, uuid: str, tally: GpuTally) -> None:
        """Add the time of a GPU in this group."""
        self.hosts.add(host)
        self.gpus[host, uuid] = None
        self._gpu_tallies.append(tally)

    def add_tokens(self, tokens: Mapping[str, float]) -> None:
        """Add tokens that engines counted, by field of the report."""
        for field, count in tokens.items():
            self.tokens[field] = self.tokens.get(field, 0.0) + count

    def add_group(self, other: GroupTally) -> None:
        """Add the engines and incidents of another group; its GPUs are added one by one (`add_gpu`)."""
        self.hosts |= other.hosts
        self.add_tokens(other.tokens)
        self.goodput.add_sum(other.goodput)
        self.incidents_known = self.incidents_known or other.incidents_known
        self.incidents += other.incidents
        self.critical += other.critical
        self.incident_s += other.incident_s

    def period(self) -> GroupPeriod:
        """The group as a record of the report."""
        return GroupPeriod(
            name=self.name,
            hosts=len(self.hosts),
            gpus=len(self.gpus),
            **self._hours(),
            **self._use(),
            **self._money(),
            goodput=self.goodput.period(),
            incidents=self._if_known(float(self.incidents)),
            critical_incidents=self._if_known(float(self.critical)),
            incident_s=self._if_known(self.incident_s),
        )

    def _hours(self) -> dict[str, Any]:
        """GPU-seconds, and for each figure those of which it is known."""
        tallies = self._gpu_tallies
        return {
            "gpu_s": _seconds(tallies),
            "unused_gpu_s": self._total("unused_s"),
            "priced_s": _seconds(tally for tally in tallies if not isinstance(tally.per_hour, Missing)),
            **{known_s_field(field): sum(tally.totals[field].seconds for tally in tallies) for field in TOTALS},
            **{known_s_field(field): sum(tally.means[field].seconds for tally in tallies) for field in USE},
        }

    def _use(self) -> dict[str, Any]:
        """Means over the GPU-seconds."""
        return {field: _mean(tally.means[field] for tally in self._gpu_tallies) for field in USE}

    def _total(self, field: str) -> Reading:
        """A figure of the GPUs of which it is known, together."""
        return merge_known(GPU[field], [tally.totals[field].reading for tally in self._gpu_tallies]).value

    def _money(self) -> dict[str, Any]:
        """Tokens, energy, prices, and their quotients."""
        tallies = self._gpu_tallies
        tokens = {field: self.tokens.get(field, NOT_EXPOSED) for field in TOKEN_FIELDS}
        cost = _known_sum((tally.cost for tally in tallies), NO_PRICE)
        cost_of_tokens = self._cost_of_tokens(cost)
        energy_j = self._total("energy_j")
        # The tokens are of all the time: energy of a part of it is not theirs.
        lacks_energy = any(tally.totals["energy_j"].seconds < tally.seconds for tally in tallies)
        energy_of_tokens_j = NOT_EXPOSED if lacks_energy else energy_j
        return {
            **tokens,
            "energy_j": energy_j,
            "energy_cost": _known_sum(
                (tally.energy_cost for tally in tallies if tally.totals["energy_j"].seconds), NO_ENERGY_PRICE
            ),
            "cost": cost,
            "unused_cost": _known_sum((tally.unused_cost for tally in tallies), NO_PRICE),
            "tokens_per_cost": divide(generated_tokens(tokens), cost_of_tokens, NO_PRICE),
            **per_token(tokens, energy_of_tokens_j, cost_of_tokens)._asdict(),
        }

    def _if_known(self, figure: float) -> Reading:
        """A figure of incidents; missing if it is not known what incidents this group had."""
        if self.incidents_known:
            return figure
        return NOT_EXPOSED

    def _cost_of_tokens(self, cost: Reading) -> Reading:
        """The cost of the group's GPUs, if it is that of all its tokens: missing where GPUs of its engines are not in
        it, or have no price."""
        if self.shared:
            return SHARED_GPU
        if self.unplaced or not self._gpu_tallies:
            return UNPLACED
        return plus(cost, *(times(tally.per_hour, 0.0) for tally in self._gpu_tallies))  # adds 0, or a missing price


def _seconds(tallies: Iterable[GpuTally]) -> float:
    """GPU-seconds of some GPUs."""
    return sum(tally.seconds for tally in tallies)


def _mean(means: Iterable[TimeMean]) -> Reading:
    """The mean over everything that these means are over."""
    whole = TimeMean()
    for mean in means:
        whole.add_mean(mean)
    return whole.reading(NOT_SUPPORTED)


def _known_sum(readings: Iterable[Reading], otherwise: Missing) -> Reading:
    """The sum of what is known; `otherwise` where nothing is."""
    total = sum_of_known(readings)
    if isinstance(total, Missing):
        return otherwise
    return total
