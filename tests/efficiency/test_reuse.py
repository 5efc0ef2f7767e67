"""What is reused of the tick before changes no figure: all is as of a deriver that works out everything."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import msgspec

from gpumon.demo.scenarios import DEMO
from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import frame, gpu
from tests.fakes.engine import Capture
from tests.history.frames import served
from tests.records import replace

CAPTURES = ("vllm-lifecycle", "vllm-hang-and-dead-engine", "vllm-dp2", "vllm-poisson", "sglang-basic", "prometheus-api")
EVERY = 3
"""Frames for each poll."""


def polled(name: str) -> Iterator[Frame]:
    """A frame a second; one engine on a GPU here and one elsewhere, polled every third second, answering or not."""
    capture = Capture(name)
    kind = EngineKind.SGLANG if name.startswith("sglang") else EngineKind.VLLM
    adapter = BY_KIND[kind].adapter()
    scanner = Scanner(adapter.wanted_names)
    here: EngineReading | None = None
    for at, scrape in enumerate(capture.scrapes[:: EVERY + 2]):
        pages = adapter.read_all(scanner.scan(scrape.body)) if scrape.status == 200 else ()
        if pages:
            page = pages[0]
            here = EngineReading(
                "here", "http://127.0.0.1:1", EndpointState.OK, scrape.t, kind=kind, interval_s=float(EVERY),
                ranks=page.ranks, live=dict(page.live), advance=dict(page.advance), info=dict(page.info),
                started_wall_s=page.started_wall_s, exact_steps=page.exact_steps, model="m", gpus=("GPU-0",),
                llm=llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct"),
            )  # fmt: skip
        elif here is not None:
            here = replace(here, state=EndpointState.TIMEOUT, fault="silent")
        if here is None:
            continue
        away = {"name": "away", "url": "http://gpu-2:1", "gpus": (), "gpu_type": "H100 SXM 80GB", "gpu_count": 2}
        engines = (here, replace(here, **away))
        for second in range(EVERY):
            at_s = scrape.t + second
            watts = 300.0 + (7 * at + second) % 50
            yield frame(at_s, (gpu(at_s=at_s, power_w=watts),), engines)


def read_anew(frame: Frame) -> Frame:
    """The same readings in other objects: nothing of the tick before is known to be the same."""
    return msgspec.structs.replace(frame, engines=tuple(map(copy, frame.engines)), gpus=tuple(map(copy, frame.gpus)))


def said(derived: Derived) -> tuple[bytes, str]:
    """All of it, gaps (NaN) included."""
    return msgspec.json.encode(derived.snapshot), repr(derived.points)


def assert_same(frames: Iterator[Frame]) -> None:
    kept, fresh, ages = Deriver(gpu_catalogue()), Deriver(gpu_catalogue()), set()
    for each in frames:
        derived = kept.derive(each)
        assert said(derived) == said(fresh.derive(read_anew(each)))
        ages |= {round(engine.age_s) for engine in derived.snapshot.engines}
    assert len(ages) > 1


@each_row("name", CAPTURES)
def test_a_recorded_engine_reads_the_same(name: str) -> None:
    assert_same(polled(name))


def test_the_simulated_server_reads_the_same() -> None:
    assert_same(served(45, cast=DEMO.cast[1:3]))
