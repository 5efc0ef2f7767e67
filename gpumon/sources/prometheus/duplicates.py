"""Engines that are scraped under two addresses, such as that of a pod and that of its service: each counts once.

Two targets are one engine if they count the same since the same start, and nothing says that they are two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.prometheus.contents import ScrapedEngine
from gpumon.sources.prometheus.hosts import same_pod, user_of, without_port
from gpumon.sources.prometheus.naming import MachineNaming
from gpumon.sources.prometheus.scraped import job_of

TWO_ADDRESSES: Final = "{} engines are scraped under two addresses, such as {} and {}: each counts once"
_GROWTH: Final = 2.0
"""Between the scrapes of two targets a counter may grow so many times as fast as it did on average, or just before."""
_SLACK_S: Final = 2.0
"""Seconds of growth that are allowed besides: a page is written a while after its scrape begins."""


class Distinct(NamedTuple):
    """The engines of a moment, each once."""

    engines: Sequence[ScrapedEngine]
    notices: Sequence[str]


def engines_once(engines: Sequence[ScrapedEngine], machines: MachineNaming) -> Distinct:
    """Leave out the second account of an engine; the one whose labels tell most of its place stays."""
    by_start: dict[tuple[object, ...], list[ScrapedEngine]] = {}
    for scraped in engines:
        reading = scraped.engine.readings[0]
        if reading.started_wall_s and reading.state is EndpointState.OK:
            by_start.setdefault((reading.kind, reading.model, reading.started_wall_s), []).append(scraped)
    repeated: dict[int, tuple[str, str]] = {}
    for group in by_start.values():
        if len(group) > 1:
            repeated |= _second_accounts(group, machines)
    if not repeated:
        return Distinct(engines, ())
    addresses = (clean(address, 80) for address in next(iter(repeated.values())))
    notice = TWO_ADDRESSES.format(len(repeated), *addresses)
    return Distinct([scraped for scraped in engines if id(scraped.engine) not in repeated], (notice,))


def _second_accounts(group: list[ScrapedEngine], machines: MachineNaming) -> dict[int, tuple[str, str]]:
    """Id of each second account among engines with one start time -> the address of the first, and its own."""
    repeated: dict[int, tuple[str, str]] = {}
    bare = [scraped for scraped in group if _is_bare(scraped, machines)]
    for kept, other in product(sorted(group, key=lambda scraped: _placed_last(scraped, machines)), bare):
        if kept.engine is other.engine or id(kept.engine) in repeated or id(other.engine) in repeated:
            continue
        if _may_be_one(kept, other, are_bare=kept in bare) and _count_the_same(kept, other):
            repeated[id(other.engine)] = (kept.target.instance, other.target.instance)
    return repeated


def _is_bare(scraped: ScrapedEngine, machines: MachineNaming) -> bool:
    """Whether no label but its address names the place of a target."""
    return not machines.is_named(scraped.target) and user_of(scraped.target.labels, "") is None


def _placed_last(scraped: ScrapedEngine, machines: MachineNaming) -> tuple[bool, bool, object]:
    """Sort key of the accounts of one engine: first those whose labels name its machine, then its pod."""
    target = scraped.target
    return _is_bare(scraped, machines), user_of(target.labels, "") is None, target.key


def _may_be_one(scraped: ScrapedEngine, other: ScrapedEngine, *, are_bare: bool) -> bool:
    """Whether nothing says that two targets with one start time are two engines.

    Two jobs at one address are not looked at here: they are one engine whatever they count. Two ports of one address
    are two servers, and so are two bare addresses, but a name and a number: a service and its pod.
    """
    instance = scraped.target.instance
    other_instance = other.target.instance
    if instance == other_instance:
        return job_of(scraped.target) == job_of(other.target)
    address = without_port(instance)
    other_address = without_port(other_instance)
    if address == other_address or not same_pod(scraped.target.labels, other.target.labels):
        return False
    return not are_bare or _is_numeric(address) != _is_numeric(other_address)


def _count_the_same(scraped: ScrapedEngine, other: ScrapedEngine) -> bool:
    """Whether all counters of two targets are equal but for what came between their scrapes."""
    counts = scraped.engine.counts
    other_counts = other.engine.counts
    shared = counts.keys() & other_counts.keys()
    seconds = abs(scraped.engine.read_s - other.engine.read_s) + _SLACK_S
    for name in shared:
        rate = max(engine.growth_per_s(name) for engine in (scraped.engine, other.engine))
        if abs(counts[name] - other_counts[name]) > _GROWTH * seconds * rate:
            return False
    return any(counts[name] > 0.0 for name in shared)


def _is_numeric(address: str) -> bool:
    """Whether an address is an IP address, not a name."""
    return ":" in address or address.replace(".", "").isdecimal()
