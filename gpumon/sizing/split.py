"""Which workload stands on which type of GPU: the order of the file, or a cheaper split where all prices are known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

import msgspec

from gpumon.readings.missing import Missing
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadSplit, fill_pools
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Catalogues, Packing, Scenario, Workload
from gpumon.sizing.servers import server_price

_MOST_TRIED: Final = 240
"""Splits times workloads that are tried at most: what a keystroke has time for."""
_LEAST_TRIED: Final = 12
"""Splits that are tried at least, however many workloads there are."""
_MOST_PERMUTED: Final = 3
"""Most pools of which every order is tried; of more each one comes first once."""
_CHEAPER: Final = 1e-9
"""Share of the price below which two splits cost the same."""


def pack_both_ways(
    pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues
) -> tuple[PackedPools, PackedPools]:
    """The packing by memory alone, and that by memory and busy share: both with the split that is found for the one
    that the scenario asks for."""
    split, asked = _cheapest(pools, scenario, catalogues, scenario.packing)
    if scenario.packing == "memory":
        return asked, fill_pools(pools, scenario, catalogues, "busy", split)
    return fill_pools(pools, scenario, catalogues, "memory", split), asked


def cheapest_packing(pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues) -> PackedPools:
    """The packing that the scenario asks for, with the cheapest split that is found."""
    _, filled = _cheapest(pools, scenario, catalogues, scenario.packing)
    return filled


class _Search:
    """Splits that were tried, and the cheapest of them; what has no place counts before money."""

    def __init__(
        self, pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues, packing: Packing
    ) -> None:
        self._pools = pools
        self._scenario = scenario
        self._catalogues = catalogues
        self._packing = packing
        # A workload that was measured on a running engine has the GPUs that it ran on for a home: a plan for what runs
        # stands on what was measured.
        homes = tuple(_home(workload, pools) for workload in scenario.workload)
        self.split = WorkloadSplit(tuple(range(len(pools))), homes, (None,) * len(scenario.server))
        self.best = fill_pools(pools, scenario, catalogues, packing, self.split)
        self._tried = {self.split}

    def try_split(self, split: WorkloadSplit) -> bool:
        """Try a split, and take it if it is cheaper than all before; returns whether it is."""
        if split in self._tried:
            return False
        self._tried.add(split)
        filled = fill_pools(self._pools, self._scenario, self._catalogues, self._packing, split)
        if _cost(filled) >= _cost(self.best):
            return False
        self.split = split
        self.best = filled
        return True

    def descend(self, most_tried: int, *, priced: bool) -> None:
        """Go on with the first split that differs in one thing and costs less, while there is one and not too many were
        tried. Without prices only until all has a place."""
        is_better = True
        while is_better:
            is_better = False
            for neighbour in _neighbours(self.split, self.best, self._pools):
                if len(self._tried) >= most_tried or not (priced or self.best.unplaced):
                    return
                if self.try_split(neighbour):
                    is_better = True
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
        for split in _splits_on_one_type(search.split, pools):
            search.try_split(split)
    return search.split, _with_saving(search.best, in_order)


def _home(workload: Workload, pools: Sequence[ServerPool]) -> tuple[int, ...]:
    """Indices of the pools with the GPUs that a workload was measured on; empty without any, or where all have them."""
    seen = workload.seen
    if seen is None or seen.origin is not Origin.LIVE or workload.profile:
        return ()
    homes = tuple(index for index, pool in enumerate(pools) if pool.gpu == seen.gpu)
    if len(homes) == len(pools):
        return ()
    return homes


def _cost(filled: PackedPools) -> tuple[float, float]:
    """Order of splits: the share without a place, then the price of an hour, which counts as infinite if not known."""
    price = filled.packed.price_per_hour
    # Sums of the same prices in another order are no saving.
    rounded_price = math.inf if isinstance(price, Missing) else float(f"{price:.9g}")
    return filled.unplaced, rounded_price


def _with_saving(best: PackedPools, in_order: PackedPools) -> PackedPools:
    """The best packing, with what the one in the order of the file would cost more."""
    price = best.packed.price_per_hour
    in_order_price = in_order.packed.price_per_hour
    if isinstance(price, Missing) or isinstance(in_order_price, Missing):
        return best
    if in_order_price <= price * (1.0 + _CHEAPER):
        return best
    packed = msgspec.structs.replace(best.packed, saving_per_hour=in_order_price - price)
    return best._replace(packed=packed)


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
    for workload in range(len(split.homes)):
        for home, pool in enumerate(pools):
            if pool.demands[workload].instances:
                yield split._replace(homes=(*split.homes[:workload], (home,), *split.homes[workload + 1 :]))


def _splits_on_one_type(split: WorkloadSplit, pools: Sequence[ServerPool]) -> Iterator[WorkloadSplit]:
    """A split for each type of GPU alone: with them tried, a plan over several is never dearer than one of them."""
    for gpu in dict.fromkeys(pool.gpu for pool in pools):
        most_servers: list[int | None] = [0] * len(split.most_servers)
        for pool in pools:
            if pool.gpu == gpu:
                for shape in pool.shapes:
                    most_servers[shape] = None
        yield WorkloadSplit(tuple(range(len(pools))), ((),) * len(split.homes), tuple(most_servers))


def _orders(number: int) -> Iterator[tuple[int, ...]]:
    """Orders of so many pools, that of the file first."""
    in_order = tuple(range(number))
    if number <= _MOST_PERMUTED:
        yield from permutations(in_order)
        return
    yield in_order
    for first in in_order[1:]:
        yield (first, *(pool for pool in in_order if pool != first))
