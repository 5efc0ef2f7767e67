"""Which workload stands on which type of GPU: the order of the file, or a cheaper split where all prices are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

import msgspec

from gpumon.readings.missing import Missing
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadSplit, fill_pools, first_demands
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Catalogues, Packing, Scenario, Workload
from gpumon.sizing.servers import server_price

_MOST_TRIED: Final = 240
"""Splits times workloads that are tried at most: what a keystroke has time for."""
_LEAST_TRIED: Final = 12
"""Splits that are tried at least, however many workloads there are."""
_PERMUTED: Final = 3
"""Pools of which every order is tried; of more each one comes first once."""
_CHEAPER: Final = 1e-9
"""Share of the price below which two splits cost the same."""


def pack_both_ways(
    pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues
) -> tuple[PackedPools, PackedPools]:
    """By memory alone, and by memory and busy share: both with the split that is found for the packing asked for."""
    split, needed = _cheapest(pools, scenario, catalogues, scenario.packing)
    other: Packing = "memory" if scenario.packing == "busy" else "busy"
    by_other = fill_pools(pools, scenario, catalogues, other, split)
    return (needed, by_other) if scenario.packing == "memory" else (by_other, needed)


def cheapest_packing(pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues) -> PackedPools:
    """The packing that was asked for."""
    return _cheapest(pools, scenario, catalogues, scenario.packing)[1]


class _Search:
    """Splits that were tried, and the cheapest of them; what has no place counts before money."""

    def __init__(
        self, pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues, packing: Packing
    ) -> None:
        self._pools = pools
        self._scenario = scenario
        self._known = catalogues
        self._packing = packing
        self.split = _of_the_file(pools, scenario)
        self.best = fill_pools(pools, scenario, catalogues, packing, self.split)
        self._tried = {self.split}

    def accept(self, split: WorkloadSplit) -> bool:
        """Try a split; returns whether it is cheaper than all before."""
        if split in self._tried:
            return False
        self._tried.add(split)
        filled = fill_pools(self._pools, self._scenario, self._known, self._packing, split)
        if _cost(filled) >= _cost(self.best):
            return False
        self.split = split
        self.best = filled
        return True

    def descend(self, most: int, *, priced: bool) -> None:
        """Go on with the first split that differs in one thing and costs less, while there is one; at most so many are
        tried. Without prices only until all has a place."""
        better = True
        while better:
            better = False
            for other in _neighbours(self.split, self.best, self._pools):
                if len(self._tried) >= most or not (priced or self.best.unplaced):
                    return
                if self.accept(other):
                    better = True
                    break


def _cheapest(
    pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues, packing: Packing
) -> tuple[WorkloadSplit, PackedPools]:
    """The split in the order of the file with its packing, or a cheaper one; or one that has room where it has none."""
    search = _Search(pools, scenario, catalogues, packing)
    in_order = search.best
    if len(pools) == 1 or not scenario.workload:
        return search.split, in_order
    priced = all(not isinstance(server_price(server, catalogues), Missing) for server in scenario.server)
    search.descend(max(_LEAST_TRIED, _MOST_TRIED // len(scenario.workload)), priced=priced)
    if priced:
        for alone in _on_one_type(search.split, pools):
            search.accept(alone)
    return search.split, _with_saving(search.best, in_order)


def _of_the_file(pools: Sequence[ServerPool], scenario: Scenario) -> WorkloadSplit:
    """Pools in their order. A workload that was measured on a running engine has the GPUs that it ran on for a home:
    a plan for what runs stands on what was measured."""
    homes = tuple(_home(workload, pools) for workload in scenario.workload)
    return WorkloadSplit(tuple(range(len(pools))), homes, (None,) * len(scenario.server))


def _home(workload: Workload, pools: Sequence[ServerPool]) -> tuple[int, ...]:
    seen = workload.seen
    if seen is None or seen.origin is not Origin.LIVE or workload.profile:
        return ()
    homes = tuple(at for at, pool in enumerate(pools) if pool.gpu == seen.gpu)
    if len(homes) == len(pools):
        return ()
    return homes


def _cost(filled: PackedPools) -> tuple[float, float]:
    """Order of splits: the share without a place counts before money."""
    price = filled.packed.price_per_hour
    if isinstance(price, Missing):
        rounded = math.inf
    else:
        rounded = float(f"{price:.9g}")
    return filled.unplaced, rounded


def _with_saving(best: PackedPools, in_order: PackedPools) -> PackedPools:
    """With what the order of the file would cost more."""
    now = best.packed.price_per_hour
    before = in_order.packed.price_per_hour
    if isinstance(now, Missing) or isinstance(before, Missing) or before <= now * (1.0 + _CHEAPER):
        return best
    return best._replace(packed=msgspec.structs.replace(best.packed, saving_per_hour=before - now))


def _neighbours(split: WorkloadSplit, filled: PackedPools, pools: Sequence[ServerPool]) -> Iterator[WorkloadSplit]:
    """Splits that differ in one thing: the order of the pools, the servers used of a shape, the home of a workload."""
    for order in _orders(len(pools)):
        yield split._replace(order=order)
    for shape, used in enumerate(filled.servers_by_shape):
        for number in dict.fromkeys((used - 1, used // 2, 0)):
            if 0 <= number < used:
                yield split._replace(
                    most_servers=(*split.most_servers[:shape], number, *split.most_servers[shape + 1 :])
                )
    for at, _ in enumerate(first_demands(pools)):
        for home, pool in enumerate(pools):
            if pool.demands[at].instances:
                yield split._replace(homes=(*split.homes[:at], (home,), *split.homes[at + 1 :]))


def _on_one_type(split: WorkloadSplit, pools: Sequence[ServerPool]) -> Iterator[WorkloadSplit]:
    """Each type of GPU alone: a plan over several is never dearer than one of them."""
    for gpu in dict.fromkeys(pool.gpu for pool in pools):
        most: list[int | None] = [0] * len(split.most_servers)
        for pool in pools:
            if pool.gpu == gpu:
                for shape in pool.shapes:
                    most[shape] = None
        yield WorkloadSplit(tuple(range(len(pools))), ((),) * len(split.homes), tuple(most))


def _orders(number: int) -> Iterator[tuple[int, ...]]:
    """Orders of so many pools, that of the file first."""
    every = tuple(range(number))
    if number <= _PERMUTED:
        yield from permutations(every)
        return
    yield every
    for first in every[1:]:
        yield (first, *(at for at in every if at != first))
