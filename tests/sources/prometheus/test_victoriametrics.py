"""A fleet from a real VictoriaMetrics of before 1.80, which does not know `latency_offset`."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.readings.fleet import FleetFrame
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.clock import BEHIND
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes.victoriametrics import VictoriaMetrics
from tests.sources.prometheus.test_fleet_source import framed, one

EVERY_S = 5.0
RATE = 50.0
TARGET = {"job": "vllm", "instance": "127.0.0.1:8000", "node": "gpu-07"}
IGNORES = BEHIND.partition(": ")[2]
"""The advice to a server that ignores `latency_offset`."""


def page(seconds: float) -> bytes:
    """An engine that has made `RATE` tokens a second for so long."""
    labels = '{engine="0",model_name="tiny-llama"}'
    lines = (
        "up 1",
        f"vllm:generation_tokens_total{labels} {RATE * seconds}",
        f"vllm:num_requests_running{labels} 4",
        "process_start_time_seconds 1700000000",
    )
    return "\n".join((*lines, "")).encode()


def texts(frame: FleetFrame) -> str:
    return "; ".join(fault.text for fault in frame.faults)


class Case(NamedTuple):
    """Options of a server, and what is seen of it."""

    options: tuple[str, ...]
    least_s: float
    """Least and most age of the newest figures that it gives."""
    most_s: float
    is_advised: bool


CASES = (Case((), 28.0, 45.0, True), Case(("-search.latencyOffset=1s",), 0.0, 15.0, False))


async def test_it_is_not_accused_of_a_wrong_clock(tmp_path_factory: pytest.TempPathFactory):
    """Both servers at once: it takes some seconds until one finds what it was given."""
    with contextlib.ExitStack() as stack:
        servers = []
        for case in CASES:
            server = VictoriaMetrics(tmp_path_factory.mktemp("data"), *case.options)
            servers.append(stack.enter_context(server))
        now_s = time.time()
        for number in range(36):
            for server in servers:
                server.load(page(EVERY_S * number), now_s - 180.0 + EVERY_S * (number + 1), TARGET)
        for server, case in zip(servers, CASES, strict=True):
            await assert_is_not_accused(server, case, now_s)


async def assert_is_not_accused(server: VictoriaMetrics, case: Case, now_s: float) -> None:
    source = FleetSource(Settings(url=server.url, interval_s=EVERY_S))
    try:
        frame = await framed(source, lambda frame: [host.name for host in frame.hosts] == ["gpu-07"])
        before = await source.frame(frame.wall_s - 2.0 * EVERY_S)
        asked_s = time.time()
    finally:
        await source.close()
    assert "this machine's clock is" not in texts(frame)
    assert (IGNORES in texts(frame)) is case.is_advised
    assert case.least_s < asked_s - frame.wall_s < case.most_s + asked_s - now_s
    assert one(frame).name == "gpu-07"
    fleet = Fleet(deriver_maker(Config()), EVERY_S)
    for moment in (before, frame):
        for _ in fleet.steps(moment):
            pass
    (engine,) = fleet.snapshot.hosts[0].snapshot.engines
    assert engine.rates.decode_tokens_per_s == pytest.approx(RATE, rel=0.01)
    assert engine.load.running == 4.0
