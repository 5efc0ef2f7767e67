"""Tallies of a report: what one GPU, and what one group of GPUs and engines, comes to over a stretch of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpumon.efficiency.costs import MILLION, SHARED_GPU, cost_of
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.sums import TOKEN_FIELDS, GoodputSum, TimeMean, all_tokens, quotient, sum_of_known
from gpumon.readings.fleet_period import GroupPeriod
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.prices import NO_ENERGY_PRICE, NO_PRICE

UNPLACED: Final = Missing(Reason.NO_GPU)


class GpuTally:
    """One GPU while it was in one group."""

    __slots__ = (
        *("busy", "energy_cost", "energy_j", "energy_s", "gpu_type", "index", "mbu", "mbu_s", "mfu", "mfu_s"),
        *("models", "per_hour", "seconds", "unused", "unused_s"),
    )

    def __init__(self, index: int, gpu_type: str, per_hour: Reading) -> None:
        self.index = index
        self.gpu_type = gpu_type
        self.per_hour = per_hour
        """Price of an hour."""
        self.seconds = 0.0
        self.unused = 0.0
        """Seconds in which it was unused, of the `unused_s` of which that is known."""
        self.unused_s = 0.0
        self.busy = TimeMean()
        self.mfu = TimeMean()
        """Weighted with seconds x peak; `mfu_s` are the seconds. So `mbu`."""
        self.mfu_s = 0.0
        self.mbu = TimeMean()
        self.mbu_s = 0.0
        self.energy_j = 0.0
        self.energy_s = 0.0
        self.energy_cost: Reading = 0.0
        self.models: dict[str, None] = {}

    @property
    def cost(self) -> Reading:
        """The price of its hours."""
        return cost_of(self.per_hour, self.seconds)

    @property
    def unused_cost(self) -> Reading:
        """The price of its unused hours."""
        if not self.unused_s:
            return NOT_SUPPORTED
        return cost_of(self.per_hour, self.unused)


class GroupTally:
    """GPUs and engines of one group, or of all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: set[str] = set()
        self.gpus: dict[tuple[str, str], None] = {}
        """Host and UUID of each GPU."""
        self.tokens: dict[str, float] = {}
        self.goodput = GoodputSum()
        self.shared = False
        """Some of its engines ran on GPUs that are counted to another group."""
        self.unplaced = False
        """It is not known on which GPUs some of its engines ran."""
        self.incidents = 0
        self.critical = 0
        self.incident_s = 0.0
        self.recorded = False
        """Incidents of some of its hosts are recorded."""
        self._cards: list[GpuTally] = []

    def add_gpu(self, host: str, uuid: str, card: GpuTally) -> None:
        """Take in a GPU while it was in this group."""
        self.hosts.add(host)
        self.gpus[host, uuid] = None
        self._cards.append(card)

    def add_tokens(self, tokens: Mapping[str, float]) -> None:
        """Take in what engines counted."""
        for field, count in tokens.items():
            self.tokens[field] = self.tokens.get(field, 0.0) + count

    def add_group(self, other: GroupTally) -> None:
        """Take in what the engines of another group served; its GPUs are added one by one."""
        self.hosts |= other.hosts
        self.add_tokens(other.tokens)
        self.goodput.add_sum(other.goodput)
        self.recorded = self.recorded or other.recorded
        self.incidents += other.incidents
        self.critical += other.critical
        self.incident_s += other.incident_s

    def period(self) -> GroupPeriod:
        """The group as it is told."""
        return GroupPeriod(
            name=self.name,
            hosts=len(self.hosts),
            gpus=len(self.gpus),
            **self._hours(),
            **self._use(),
            **self._money(),
            goodput=self.goodput.period(),
            incidents=self._recorded(float(self.incidents)),
            critical_incidents=self._recorded(float(self.critical)),
            incident_s=self._recorded(self.incident_s),
        )

    def _hours(self) -> dict[str, Any]:
        """GPU-seconds, and of how many of them each figure is known."""
        cards = self._cards
        return {
            "gpu_s": _seconds(cards),
            "unused_gpu_s": self._unused(),
            "unused_known_s": sum(card.unused_s for card in cards),
            "busy_known_s": sum(card.busy.seconds for card in cards),
            "mfu_known_s": sum(card.mfu_s for card in cards),
            "mbu_known_s": sum(card.mbu_s for card in cards),
            "energy_known_s": sum(card.energy_s for card in cards),
            "priced_s": _seconds(card for card in cards if not isinstance(card.per_hour, Missing)),
        }

    def _use(self) -> dict[str, Any]:
        """Means over the GPU-seconds."""
        return {
            "busy_ratio": _mean(card.busy for card in self._cards),
            "mfu_ratio": _mean(card.mfu for card in self._cards),
            "mbu_ratio": _mean(card.mbu for card in self._cards),
        }

    def _money(self) -> dict[str, Any]:
        """Tokens, energy, prices, and their quotients."""
        cards = self._cards
        tokens = {field: self.tokens.get(field, NOT_EXPOSED) for field in TOKEN_FIELDS}
        made = sum_of_known([tokens["decode_tokens"], tokens["trained_tokens"]])
        cost = _known_sum((card.cost for card in cards), NO_PRICE)
        whole_cost = self._whole_cost(cost)
        energy_j = self._energy()
        whole_energy_j = energy_j
        if any(card.energy_s < card.seconds for card in cards):
            whole_energy_j = NOT_EXPOSED
        return {
            **tokens,
            "energy_j": energy_j,
            "energy_cost": _known_sum((card.energy_cost for card in cards if card.energy_s), NO_ENERGY_PRICE),
            "cost": cost,
            "unused_cost": _known_sum((card.unused_cost for card in cards), NO_PRICE),
            "cost_per_million_tokens": times(quotient(whole_cost, made), MILLION),
            "cost_per_million_all_tokens": times(quotient(whole_cost, all_tokens(tokens)), MILLION),
            "tokens_per_cost": divide(made, whole_cost, NO_PRICE),
            "tokens_per_j": quotient(made, whole_energy_j),
        }

    def _recorded(self, figure: float) -> Reading:
        if self.recorded:
            return figure
        return NOT_EXPOSED

    def _unused(self) -> Reading:
        known = [card for card in self._cards if card.unused_s]
        if known:
            return sum(card.unused for card in known)
        return NOT_SUPPORTED

    def _energy(self) -> Reading:
        """The energy of the GPUs that tell it."""
        if any(card.energy_s for card in self._cards):
            return sum(card.energy_j for card in self._cards)
        return NOT_SUPPORTED

    def _whole_cost(self, cost: Reading) -> Reading:
        """The cost that all tokens of the group had; missing where some GPUs of its engines are not in it."""
        if self.shared:
            return SHARED_GPU
        if self.unplaced or not self._cards:
            return UNPLACED
        return plus(cost, *(times(card.per_hour, 0.0) for card in self._cards))


def _seconds(cards: Iterable[GpuTally]) -> float:
    return sum(card.seconds for card in cards)


def _mean(means: Iterable[TimeMean]) -> Reading:
    """The mean over all that the means are made of."""
    whole = TimeMean()
    for mean in means:
        whole.add_mean(mean)
    return whole.reading(NOT_SUPPORTED)


def _known_sum(readings: Iterable[Reading], otherwise: Missing) -> Reading:
    """The sum of what is known; `otherwise` where nothing is."""
    known = sum_of_known(readings)
    if isinstance(known, Missing):
        return otherwise
    return known
