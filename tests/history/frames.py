"""Frames of the simulated server in fast time, with the noise that real readings have in every moving field."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from gpumon.demo.scenario import Actor
from gpumon.demo.scenarios import DEMO
from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.source import SimulatedServer
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, HostReading
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.units import GIB
from tests.fakes.engine import Capture
from tests.records import replace

WALL_S = 1.8e9
FOURTH = replace(DEMO.cast[1], name="qwen-agent", ranks=((7,),))
"""A fourth engine beside the three of the demo, on the GPU of the leftover process."""
_SMALL_LEFTOVERS = tuple(replace(leftover, vram_bytes=3 * GIB) for leftover in DEMO.leftovers)
"""What the demo's process holds does not fit beside an engine."""


def served(
    seconds: int, *, seed: int = 1, cast: tuple[Actor, ...] = (*DEMO.cast, FOURTH), every: int = 1
) -> Iterator[Frame]:
    """A frame every so many seconds: eight simulated GPUs, their engines' pages read by the real adapter.

    Pages are read in even seconds; those that no frame shows are not read.

    The physics is the simulator's. Laid on it: jitter of every clock, of the activity counters (real ones differ
    between GPUs in their last digits), and a host at work.
    """
    noise = random.Random(seed)
    scenario = replace(DEMO, cast=cast, leftovers=_SMALL_LEFTOVERS, warm_s=0.0)
    server = SimulatedServer(scenario, seed, clock=lambda: 0.0, wall_clock=lambda: WALL_S)
    with ThreadPoolExecutor(1) as other:  # a test may run in an event loop
        other.submit(asyncio.run, server.close()).result()  # the pages are read without HTTP
    polls = [_Poll(actor, number, seed) for number, actor in enumerate(cast)]
    engines: tuple[EngineReading, ...] = ()
    for at in range(seconds):
        at_s = at + noise.uniform(0.0, 0.004)
        is_shown = at % every == 0
        if at % 2 == 0 and (is_shown or (at + 1) % every == 0):
            engines = tuple(poll.read(at_s, noise) for poll in polls)
        if not is_shown:
            continue
        server.advance(at_s)
        gpus = tuple(_noisy(gpu.reading(at_s - noise.uniform(0.0, 0.05)), noise) for gpu in server.gpus)
        host = _host(noise)
        yield Frame(at + 1, WALL_S + at_s, 5000.0 + at_s, 1.0, host, gpus, engines, simulated=True)


def silent(frame: Frame) -> Frame:
    """The frame of a moment at which the first engine does not answer."""
    gone = replace(frame.engines[0], state=EndpointState.REFUSED, fault="refused", ranks=())
    return replace(frame, engines=(gone, *frame.engines[1:]))


class _Poll:
    """One engine, polled: its pages read by the adapter, as the endpoint source does."""

    def __init__(self, actor: Actor, number: int, seed: int) -> None:
        self._engine = SimulatedEngine(actor, seed + number, 0.0, WALL_S)
        self._adapter = VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted_names)
        self._blank = EngineReading(
            f"vllm:{8000 + number}",
            f"http://127.0.0.1:{8000 + number}",
            EndpointState.OK,
            0.0,
            llm=llm_catalogue().find(actor.model),
            gpus=tuple(f"GPU-00000000-0000-4000-8000-{at:012d}" for rank in actor.ranks for at in rank),
            gpus_source="config",
        )

    def read(self, at_s: float, noise: random.Random) -> EngineReading:
        self._engine.advance(at_s)
        latency_s = noise.uniform(2e-3, 6e-3)
        body = self._engine.answer("/metrics").body
        return page_reading(self._blank, body, at_s, latency_s, self._adapter, self._scanner)


def page_reading(
    blank: EngineReading, body: bytes, at_s: float, latency_s: float, adapter: VllmAdapter, scanner: Scanner
) -> EngineReading:
    """What the real adapter reads on a metrics page."""
    found = adapter.read(scanner.scan(body))
    return replace(
        blank,
        monotonic_s=5000.0 + at_s + latency_s / 2,
        latency_s=latency_s,
        kind=adapter.kind,
        model=found.model,
        started_wall_s=found.started_wall_s,
        exact_steps=found.exact_steps,
        live=dict(found.live),
        advance=dict(found.advance),
        info=dict(found.info),
        ranks=found.ranks,
    )


def captured(name: str) -> Iterator[Frame]:
    """The frames of a recorded vLLM server, a frame per scrape, without GPUs."""
    adapter = VllmAdapter()
    scanner = Scanner(adapter.wanted_names)
    blank = EngineReading("vllm:8000", "http://127.0.0.1:8000", EndpointState.OK, 0.0)
    for number, scrape in enumerate(Capture(name).scrapes):
        engines = (
            (page_reading(blank, scrape.body, scrape.t, scrape.latency_s, adapter, scanner),)
            if scrape.status == 200
            else (replace(blank, state=EndpointState.REFUSED, fault="refused"),)
        )
        yield Frame(number + 1, WALL_S + scrape.t, 5000.0 + scrape.t, 1.0, HostReading("box"), (), engines)


def _noisy(gpu: GpuReading, noise: random.Random) -> GpuReading:
    def shaken(value: object) -> float:
        assert isinstance(value, float)
        return value * noise.uniform(0.97, 1.03)

    moving = ("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio")
    links = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    changes: dict[str, object] = {name: shaken(getattr(gpu, name)) for name in (*moving, *links)}
    changes["power_w"] = round(shaken(gpu.power_w), 3)
    return replace(gpu, monotonic_s=5000.0 + gpu.monotonic_s, **changes)


def _host(noise: random.Random) -> HostReading:
    return HostReading(
        "box",
        "580.95.05",
        "13.0",
        noise.uniform(0.2, 0.3),
        round(2e11 + noise.gauss(0, 1e8)) // 4096 * 4096.0,
        1.08e12,
        noise.uniform(0.01, 0.02),
        6.1e7,
        noise.uniform(0.5, 1.0),
        noise.uniform(0.0, 0.01),
        round(noise.uniform(0, 0.05), 4),
        round(noise.uniform(0, 0.05), 4),
        0.0,
        noise.uniform(0, 1e7),
        noise.uniform(0, 1e8),
        noise.uniform(0, 0.2),
        noise.uniform(1e5, 1e7),
        noise.uniform(1e5, 1e7),
    )
