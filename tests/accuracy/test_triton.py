"""Triton's requests, inferences, failures and mean latency against the client's own account of a recorded run."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.packaged import gpu_catalogue
from tests.accuracy.pages import WALL_S, recorded
from tests.fakes.engine import Capture
from tests.sources.engines.contract import Reader

CAPTURE: Final = Capture("triton-basic")
URL: Final = "http://127.0.0.1:8002"
WINDOW_S: Final = 10.0
SCRAPE_S: Final = 1.0


class Tick(NamedTuple):
    """What one poll read and what was shown of it, by model."""

    t: float
    readings: Mapping[str, EngineReading]
    engines: Mapping[str, Engine]


def ticks() -> Iterator[Tick]:
    """The recording, polled each second, through the real adapter and deriver."""
    reader, deriver = Reader(BY_KIND[EngineKind.TRITON]), Deriver(gpu_catalogue())
    for number, page in enumerate(recorded("triton-basic", SCRAPE_S)):
        assert page.body is not None
        readings = tuple(
            EngineReading(
                name=f"triton:8002/{part.part}",
                url=URL,
                state=EndpointState.OK,
                monotonic_s=page.t,
                kind=EngineKind.TRITON,
                interval_s=SCRAPE_S,
                model=part.model,
                live=dict(part.live),
                ranks=part.ranks,
                part=part.part,
            )
            for part in reader.read({"/metrics": page.body})
        )
        shown = deriver.derive(Frame(number, WALL_S + page.t, page.t, 1.0, HostReading(), (), readings)).snapshot
        yield Tick(
            page.t,
            {reading.part: reading for reading in readings},
            dict(zip((reading.part for reading in readings), shown.engines, strict=True)),
        )


@functools.cache
def all_ticks() -> list[Tick]:
    """All ticks, worked out once."""
    return list(ticks())


def ended(model: str, since_s: float, until_s: float) -> list[Mapping[str, Any]]:
    """The client's requests that ended in (since, until]."""
    return [line for line in CAPTURE.truth if line["model"] == model and since_s < line["t_end"] <= until_s]


def steady() -> list[tuple[Tick, float]]:
    """Ticks whose whole window lies in one phase of load, with the beginning of the window."""
    found = []
    for tick in all_ticks():
        inside = [other.t for other in all_ticks() if tick.t - WINDOW_S - 0.5 <= other.t <= tick.t]
        for phase in CAPTURE.meta["phases"]:
            whole = phase["t0"] + 0.2 <= inside[0] and tick.t <= phase["t0"] + phase["dur"]
            if phase["kind"] != "idle" and whole and tick.t - inside[0] > WINDOW_S - 1.5:
                found.append((tick, inside[0]))
    return found


def test_totals_are_what_the_client_counted() -> None:
    embed, flaky = (all_ticks()[-1].readings[model].ranks[0].counters for model in ("embed", "flaky"))
    served = ended("embed", 0.0, 1e9)
    # The first scrape that has them already shows what the server answered while it warmed up.
    before = next(tick.readings["embed"].ranks[0].counters for tick in all_ticks() if "embed" in tick.readings)
    assert embed[q.REQUESTS] - before[q.REQUESTS] == len(served)
    assert embed[q.INFERENCES] - before[q.INFERENCES] == sum(line["batch"] for line in served)
    assert embed[q.FAILURES] == 0.0
    failed = ended("flaky", 0.0, 1e9)
    assert all(line["status"] == 500 for line in failed)
    assert flaky[q.FAILURES] == flaky[q.REQUESTS] == len(failed)
    assert flaky[q.INFERENCES] == 0.0


def test_rates_are_what_the_client_saw() -> None:
    compared = steady()
    assert len(compared) >= 5
    for tick, since_s in compared:
        lines = ended("embed", since_s, tick.t)
        shown, span_s = tick.engines["embed"], tick.t - since_s
        assert shown.rates.requests_per_s == pytest.approx(len(lines) / span_s, rel=0.01)
        assert shown.rates.inferences_per_s == pytest.approx(sum(line["batch"] for line in lines) / span_s, rel=0.01)


def test_failures_are_those_of_the_model_that_failed() -> None:
    busy = [tick for tick, _ in steady() if tick.t < 32.5 and tick.t > 27.0]
    assert busy
    for tick in busy:
        lines = ended("flaky", tick.t - WINDOW_S, tick.t)
        assert tick.engines["flaky"].rates.failures_per_s == pytest.approx(len(lines) / WINDOW_S, rel=0.05)
        assert tick.engines["embed"].rates.failures_per_s == 0.0


def test_the_mean_latency_is_the_clients() -> None:
    tick = [tick for tick, _ in steady()][-1]
    shown = tick.engines["embed"].latency.e2e_s
    lines = ended("embed", 0.0, tick.t)
    assert shown.mean == pytest.approx(sum(line["t_end"] - line["t_start"] for line in lines) / len(lines), rel=0.03)


def test_a_mean_alone_has_no_quantiles() -> None:
    shown = all_ticks()[-1].engines["embed"].latency.e2e_s
    assert all(isinstance(quantile, Missing) for quantile in (shown.p50, shown.p95, shown.p99))


def test_waiting_requests_are_fewer_than_the_client_has_open() -> None:
    for tick in all_ticks():
        for model, reading in tick.readings.items():
            open_now = sum(
                line["t_start"] - 0.05 <= tick.t <= line["t_end"] + 0.05
                for line in CAPTURE.truth
                if line["model"] == model
            )
            assert 0.0 <= reading.ranks[0].gauges[q.WAITING] <= open_now


def test_a_model_that_is_no_llm_has_no_tokens() -> None:
    shown = all_ticks()[-1].engines["embed"]
    for rate in (shown.rates.decode_tokens_per_s, shown.rates.prefill_tokens_per_s):
        assert isinstance(rate, Missing)
        assert rate.reason is not Reason.IDLE
