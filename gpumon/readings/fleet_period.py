"""Summary of days of a fleet: sums by host, model or label, the largest wasters, incidents. `gpumon report --by`."""

from __future__ import annotations

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Reading
from gpumon.readings.period import SpanTotals
from gpumon.readings.prices import NO_PRICE
from gpumon.readings.verdict import Level

FLEET_REPORT_SCHEMA = 1
"""Version of the JSON of `gpumon report --by`."""


class GroupPeriod(SpanTotals, frozen=True, kw_only=True):
    """GPUs and engines of one host, model or value of a label; or all of them. GPU-seconds: seconds x GPUs."""

    name: str
    """Text from outside. Empty: all that has no such label, or the total."""
    hosts: int = 0
    gpus: int = 0
    """Different GPUs, however long they were there."""
    gpu_s: float = 0.0
    """GPU-seconds in which a GPU was there and somebody told of it: what is paid for."""
    unused_gpu_s: Reading = NOT_SUPPORTED
    """GPU-seconds in which no engine on the GPU ran a request, or without one no kernel ran."""
    unused_known_s: float = 0.0
    """GPU-seconds of which it is known whether they were unused."""
    busy_known_s: float = 0.0
    """GPU-seconds of which `busy_ratio` is the mean."""
    mfu_known_s: float = 0.0
    """GPU-seconds of which `mfu_ratio` is the mean."""
    mbu_known_s: float = 0.0
    """GPU-seconds of which `mbu_ratio` is the mean."""
    energy_known_s: float = 0.0
    """GPU-seconds whose energy is in `energy_j`."""
    priced_s: float = 0.0
    """GPU-seconds of GPUs that have a price."""
    busy_ratio: Reading = NOT_SUPPORTED
    """Mean over the GPU-seconds of which it is known."""
    mfu_ratio: Reading = NOT_SUPPORTED
    """Mean weighted by the GPUs' FLOP/s peaks: FLOPs of the models / what the GPUs could do in that time."""
    mbu_ratio: Reading = NOT_SUPPORTED
    """Mean weighted by the GPUs' bandwidth peaks: bytes of the models / what the GPUs could move in that time."""
    unused_cost: Reading = NO_PRICE
    """Price of the `unused_gpu_s` of GPUs that have one."""
    tokens_per_cost: Reading = NO_PRICE
    """Decode (or trained) tokens per unit of the currency."""
    incidents: Reading = NOT_EXPOSED
    """Verdicts of `warn` and `critical`; missing where none are recorded."""
    critical_incidents: Reading = NOT_EXPOSED
    incident_s: Reading = NOT_EXPOSED
    """Lengths of the incidents together."""


class Waster(msgspec.Struct, frozen=True):
    """GPUs of one host and group with much unused time."""

    group: str
    host: str
    gpus: tuple[int, ...]
    """Indices."""
    gpu_type: str
    models: tuple[str, ...]
    """Models that engines ran there; none: no engine that is known did."""
    gpu_s: float
    unused_gpu_s: float
    unused_cost: Reading = NO_PRICE


class FleetIncident(msgspec.Struct, frozen=True):
    """A verdict of `warn` or worse, or an alert, from its first to its last moment."""

    group: str
    host: str
    scope: str
    what: str
    """Code of the verdict, or name of the alert."""
    level: Level
    begin: str
    """RFC 3339."""
    end: str
    """RFC 3339."""
    seconds: float
    ended: bool
    source: str
    """`verdict` of the host's own gpumon, or `alert` of rules in the Prometheus."""
    consequences: int = 0
    """Incidents that came of it: they are neither listed nor counted."""


class HostCoverage(msgspec.Struct, frozen=True):
    """How much of the time is known of a host."""

    host: str
    measured_s: float


class UnpricedGpus(msgspec.Struct, frozen=True):
    """GPUs without a price: they are in the GPU-hours and in no cost."""

    gpu_type: str
    """Catalogue name, else the driver's."""
    gpus: int
    gpu_s: float


class UnplacedEngines(msgspec.Struct, frozen=True):
    """Engines of a host of which it is not known on which GPUs they ran: their tokens count, and no GPU-hours."""

    host: str
    engines: tuple[str, ...]
    """Names."""
    gpus_told: bool
    """Some exporter tells of GPUs of the host."""


class FleetPeriod(msgspec.Struct, frozen=True):
    """A stretch of a fleet, or of one recorded host."""

    begin: str
    """RFC 3339."""
    end: str
    """RFC 3339."""
    seconds: float
    measured_s: float
    """Time in which at least one host told something."""
    step_s: float
    """Seconds between two looks: gauges are those of these moments."""
    by: str
    """`host`, `model`, or a label."""
    hosts: int
    """Hosts with data."""
    total: GroupPeriod
    groups: tuple[GroupPeriod, ...] = ()
    """The dearest first, without prices that with the most GPU-seconds; what has no such label last."""
    wasters: tuple[Waster, ...] = ()
    """By the price of their unused time, without prices by that time; at most 20."""
    incidents: tuple[FleetIncident, ...] = ()
    """The most urgent and longest first, at most 100."""
    incidents_left_out: int = 0
    without_data: tuple[str, ...] = ()
    """Hosts of which nothing was measured: they are in no sum."""
    partial: tuple[HostCoverage, ...] = ()
    """Hosts of which less than 98% of `measured_s` is known: of their GPUs, or their engines where they have none."""
    unpriced: tuple[UnpricedGpus, ...] = ()
    unplaced: tuple[UnplacedEngines, ...] = ()
    notes: tuple[str, ...] = ()
    """Faults of the source."""
    simulated: bool = False
