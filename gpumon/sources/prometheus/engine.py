"""One engine's page as a Prometheus keeps it, read by the very adapter that reads the page itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import LAST_ANSWER, SCRAPED, EndpointState, EngineReading, part_of_name
from gpumon.sources.endpoint import NO_SCAN, restarted
from gpumon.sources.engines.adapter import METRICS_PATH, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.engines.registry import claiming_row
from gpumon.sources.exposition import MOST_SAMPLES, Scan, Series
from gpumon.sources.probe import IDENTITY
from gpumon.sources.prometheus.hosts import port_of
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.queries import ENDS, FLEET_BUCKETS, TABLED, left_out
from gpumon.sources.prometheus.targets import Target

_FOUND_BY: Final = SCRAPED
_DOWN: Final = Refusal(
    EndpointState.REFUSED, "the Prometheus cannot scrape it (up is 0): see its page /targets for the reason"
)
_BUCKETS_OF_COUNT: Final = {name[: -len(ENDS[0])] + ENDS[1]: name for name in left_out(FLEET_BUCKETS)}
"""Name of a histogram's count -> that of its buckets, where a fleet is not asked for these."""
TOO_MANY_SERIES: Final = "more series than gpumon reads: figures may be too low"


class Scrape(NamedTuple):
    """The series that the Prometheus has of one page at one moment."""

    target: Target
    values: dict[Series, float]
    scraped_s: float
    """Unix time."""
    interval_s: float


def kind_of(values: Iterable[Series]) -> EngineRow | None:
    """The engine that a page with these series is of; None where it is of none."""
    return claiming_row(FirstAnswer(METRICS_PATH, frozenset(series.name for series in values), b""), TABLED)


class EngineTarget:
    """One target. It keeps the adapter, which remembers; a scrape is read once, however often it is asked for."""

    def __init__(self, row: EngineRow) -> None:
        self.row = row
        self.readings: tuple[EngineReading, ...] = ()
        """The newest, one for each model; what stands in them of GPUs is another's."""
        self.cut = False
        """The newest page has more series than are read."""
        self.counts: Mapping[str, float] = {}
        """Each counter of the newest page, over all its models and ranks."""
        self._counts_before: tuple[float, Mapping[str, float]] = (0.0, {})
        """Unix time and counters of the scrape before the newest."""
        self._adapter: Adapter = row.adapter()
        self._last_scrape = (0.0, 0)
        """Time and number of series of the scrape that was read last: of the same one there are more once its host is
        looked at."""
        self._open: dict[Series, Series] = {}
        """A histogram's count -> the bucket +Inf, which is as high, where no bucket was asked for."""

    def take(self, scrape: Scrape, models: Models) -> bool:
        """Read a scrape into `readings`, unless it is the last one. Returns whether it is a page of this engine."""
        scrape_id = (scrape.scraped_s, len(scrape.values))
        if scrape_id == self._last_scrape and self.readings and self.readings[0].state is EndpointState.OK:
            return True
        self.cut = len(scrape.values) > MOST_SAMPLES
        values = dict(list(scrape.values.items())[:MOST_SAMPLES]) if self.cut else scrape.values
        scan = NO_SCAN._replace(values=self._with_buckets(values), cut=self.cut)
        pages = self._read(scan)
        if not pages:
            return False
        if restarted(self.readings, pages):
            self._adapter = self.row.adapter()
            pages = self._read(scan)
        if scrape.scraped_s != self.read_s:
            self._counts_before = (self.read_s, self.counts)
        self._last_scrape = scrape_id
        self.counts = _counts(pages)
        endpoint = models.endpoint(scrape.target.instance)
        self.readings = tuple(models.attach(self._named_reading(page, scrape, endpoint), endpoint) for page in pages)
        return True

    @property
    def read_s(self) -> float:
        """Unix time of the newest scrape that was read; 0 where none was."""
        return self._last_scrape[0]

    def growth_per_s(self, counter: str) -> float:
        """How fast a counter grows: since the scrape before or since the engine's start, whichever is more."""
        count = self.counts.get(counter, 0.0)
        growth = count / max(1.0, self.read_s - self.readings[0].started_wall_s)
        before_s, counts = self._counts_before
        if counts and self.read_s > before_s:
            growth = max(growth, (count - counts.get(counter, 0.0)) / (self.read_s - before_s))
        return growth

    def fail(self, target: Target, at_s: float, interval_s: float, why: Refusal = _DOWN) -> None:
        """Note that nothing was read of the target: what was read last stays, as of then. `at_s` is the time of the row
        where nothing was ever read."""
        blank = EngineReading(
            name=self._name(target, Endpoint(url="http://nothing")),
            url=target_identity(target),
            state=why.state,
            monotonic_s=at_s,
            kind=self.row.kind,
            found_by=_FOUND_BY,
        )
        changes = {"state": why.state, "fault": why.text, "interval_s": interval_s}
        served: dict[str, str] = {LAST_ANSWER: f"{self.read_s:.0f}"} if self.read_s else {}
        self.readings = tuple(
            msgspec.structs.replace(reading, info={**reading.info, **served}, **changes)
            for reading in self.readings or (blank,)
        )

    def _with_buckets(self, values: dict[Series, float]) -> dict[Series, float]:
        """The page, in which each histogram has a bucket: without one an adapter takes it for none."""
        names = {series.name for series in values}
        without_buckets = [
            series
            for series in values
            if series.name in _BUCKETS_OF_COUNT and _BUCKETS_OF_COUNT[series.name] not in names
        ]
        if not without_buckets:
            return values
        self._open = {count: self._open.get(count) or _open_bucket(count) for count in without_buckets}
        return values | {bucket: values[count] for count, bucket in self._open.items()}

    def _read(self, scan: Scan) -> tuple[EngineReading, ...]:
        """A reading for each model of a page, by name."""
        return tuple(sorted(self._adapter.read_all(scan), key=lambda page: page.part))

    def _name(self, target: Target, endpoint: Endpoint, part: str = "") -> str:
        """Name of the engine: the config's, else its kind and port; with the model where the server has several."""
        port = port_of(target.instance)
        kind = self.row.kind.value
        name = endpoint.name or (f"{kind}:{port}" if port else kind)
        return name + part_of_name(part)

    def _named_reading(self, page: EngineReading, scrape: Scrape, endpoint: Endpoint) -> EngineReading:
        """The reading with its name, its address, and the time of its scrape."""
        return msgspec.structs.replace(
            page,
            name=self._name(scrape.target, endpoint, page.part),
            url=target_identity(scrape.target),
            monotonic_s=scrape.scraped_s,
            interval_s=scrape.interval_s,
            info={IDENTITY: "none", **page.info},
            found_by=_FOUND_BY,
        )


def _counts(pages: Iterable[EngineReading]) -> Mapping[str, float]:
    """Each counter over all models and ranks of a page."""
    counts = Counter[str]()
    for page in pages:
        for rank in page.ranks:
            counts.update(rank.counters)
    return counts


def _open_bucket(count: Series) -> Series:
    """The bucket +Inf of the histogram that a count is of."""
    return Series(_BUCKETS_OF_COUNT[count.name], {**count.labels, "le": "+Inf"})


def target_identity(target: Target) -> str:
    """Identity of a target of a host: the address, or where that names no port, all that is known."""
    if port_of(target.instance):
        return target.instance
    values = [target.labels.get(name, "") for name in ("instance", "job", "namespace", "pod")]
    return " ".join(filter(None, values))
