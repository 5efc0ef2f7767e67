"""Metrics pages as text, with the moment of each, to snapshots: a replay that does not wait for the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, HostReading
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.llm import LlmSpec
from tests.fakes.engine import Capture

WALL_S = 1.8e9


class Page(NamedTuple):
    """What a server answered at `t` seconds; None is no answer."""

    t: float
    body: bytes | None


class Where(NamedTuple):
    """What an engine runs on and which model it serves, as the config or the process table would tell."""

    llm: LlmSpec | None = None
    gpu_type: str = ""
    gpu_count: int = 0
    name: str = "vllm:8000"
    url: str = "http://127.0.0.1:8000"


def recorded(name: str, every_s: float = 2.0) -> Iterator[Page]:
    """The pages of a capture as a poll each `every_s` seconds would have met them."""
    due_s = 0.0
    for scrape in Capture(name).scrapes:
        if scrape.t >= due_s:
            due_s = scrape.t + every_s - 0.5
            yield Page(scrape.t + scrape.latency_s / 2, scrape.body if scrape.status == 200 else None)


def snapshots(
    pages: Iterable[Page], where: Where, *, poll_s: float = 2.0, gpus: Sequence[GpuReading] = ()
) -> Iterator[Snapshot]:
    """The snapshot after each page, by the real adapter and deriver."""
    adapter, deriver = VllmAdapter(), Deriver(gpu_catalogue())
    scanner = Scanner(adapter.wanted_names)
    reading = EngineReading(
        name=where.name,
        url=where.url,
        state=EndpointState.STARTING,
        monotonic_s=0.0,
        interval_s=poll_s,
        llm=where.llm,
        gpu_type=where.gpu_type,
        gpu_count=where.gpu_count,
    )
    for number, page in enumerate(pages):
        reading = _read(reading, page, adapter, scanner)
        frame = Frame(number, WALL_S + page.t, page.t, 1.0, HostReading(), tuple(gpus), (reading,))
        yield deriver.derive(frame).snapshot


def _read(reading: EngineReading, page: Page, adapter: VllmAdapter, scanner: Scanner) -> EngineReading:
    values = {name: getattr(reading, name) for name in reading.__struct_fields__}
    if page.body is None:
        return EngineReading(**{**values, "state": EndpointState.REFUSED, "fault": "refused"})
    found = adapter.read(scanner.scan(page.body))
    if not found.ranks:
        return EngineReading(**{**values, "state": EndpointState.METRICS_OFF})
    told = {
        name: getattr(found, name)
        for name in ("ranks", "live", "advance", "info", "model", "started_wall_s", "exact_steps")
    }
    return EngineReading(
        **{**values, **told, "kind": adapter.kind, "state": EndpointState.OK, "monotonic_s": page.t, "fault": ""}
    )
