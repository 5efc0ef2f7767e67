"""Starts that end before a token came: one loop with a count, and the healthy neighbours that are none."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from gpumon.readings.frame import EndpointState, EngineReading, RankReading
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING
from gpumon.sources.last_seen.causes import Cause
from gpumon.sources.last_seen.memory.attempts import LOOP_S, SERVED_S
from gpumon.sources.last_seen.records import EngineOrigin
from tests.records import replace
from tests.sources.last_seen.test_memory import DOWN, REFUSED, STARTING, URL, VLLM, Host


@pytest.fixture
def host() -> Host:
    return Host()


def process(number: int, command: str = VLLM.command) -> EngineOrigin:
    """The process of a start."""
    return replace(VLLM, pid=5000 + number, started=number, gpu_pids=(), command=command)


def tick(host: Host, seconds: float, *readings: EngineReading) -> list[EngineReading]:
    """The newest readings after so many seconds in which these are polled again and again."""
    end_s = host.now_s + seconds
    while host.now_s < end_s:
        host.now_s += 1.0
        shown = host.see(*(replace(reading, monotonic_s=host.now_s) for reading in readings))
    return shown


def fail(host: Host, origin: EngineOrigin, seconds: float = 60.0) -> list[EngineReading]:
    """A start that ends so many seconds later."""
    host.runs(origin, listens=False)
    tick(host, seconds, host.reading(STARTING))
    host.ends(origin)
    return tick(host, 4, host.reading(REFUSED))


def test_starts_that_end_while_they_load_are_one_loop_from_the_third_on(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    host.ends(VLLM)
    tick(host, 4, host.reading(REFUSED))
    (first,) = fail(host, process(1))
    assert first.state is DOWN
    assert first.departure is not None
    assert first.departure.pid == 5001, "not the pid of the process that served"
    (second,) = fail(host, process(2))
    assert second.failed_starts is not None
    assert (second.failed_starts.ended, second.failed_starts.runs) == (2, False)
    host.runs(process(3), listens=False)
    (third,) = tick(host, 30, host.reading(STARTING))
    failed = third.failed_starts
    assert failed is not None
    assert third.state is STARTING
    assert (failed.ended, failed.pid, failed.runs) == (2, 5003, True)
    assert 58.0 <= failed.length_s <= 64.0
    assert failed.log == "journalctl -u vllm.service -n 100"


def test_a_loop_keeps_its_row_while_nothing_runs(host: Host) -> None:
    for number in (1, 2):
        fail(host, process(number))
    (shown,) = tick(host, 300)
    assert shown.state is DOWN
    assert shown.departure is not None
    assert (shown.departure.pid, shown.url) == (5002, URL)
    assert tick(host, LOOP_S) == []


@pytest.mark.parametrize(("tokens", "seconds"), [(7.0, 4.0), (0.0, SERVED_S + 4.0)])
def test_a_token_or_a_minute_of_answers_ends_it(host: Host, tokens: float, seconds: float) -> None:
    for number in (1, 2):
        fail(host, process(number))
    host.runs(process(3))
    ranks = (RankReading("0", {DECODE_TOKENS: 0.0}, {RUNNING: 0.0}, {}),)
    (shown,) = tick(host, 10, host.reading(ranks=ranks))
    assert shown.failed_starts is not None, "it answers, and whether it serves is not known yet"
    ranks = (RankReading("0", {DECODE_TOKENS: tokens}, {RUNNING: 0.0}, {}),)
    (shown,) = tick(host, seconds, host.reading(ranks=ranks))
    assert (shown.state, shown.failed_starts) == (EndpointState.OK, None)


def test_another_command_begins_anew(host: Host) -> None:
    fail(host, process(1))
    fail(host, process(2, "vllm serve m --max-model-len 4096"))
    host.runs(process(3, "vllm serve m --max-model-len 2048"), listens=False)
    (shown,) = tick(host, 10, host.reading(STARTING))
    assert shown.failed_starts is None


def test_a_start_that_somebody_stopped_is_no_failed_one() -> None:
    answer: Future[Cause] = Future()
    answer.set_result(Cause("unit_stopped", planned=True))
    host = Host(ask=lambda _: answer)
    fail(host, process(1))
    host.runs(process(2), listens=False)
    (shown,) = tick(host, 10, host.reading(STARTING))
    assert shown.failed_starts is None
    fail(host, process(2))
    host.runs(process(3), listens=False)
    (shown,) = tick(host, 10, host.reading(STARTING))
    assert shown.failed_starts is not None, "a script around it may hide its status"


def test_an_engine_that_is_restarted_and_serves_each_time_is_no_loop(host: Host) -> None:
    for number in range(4):
        origin = process(number)
        host.runs(origin, listens=False)
        tick(host, 30, host.reading(STARTING))
        host.runs(origin)
        ranks = (RankReading("0", {DECODE_TOKENS: 9.0}, {RUNNING: 0.0}, {}),)
        (shown,) = tick(host, 20, host.reading(ranks=ranks))
        assert shown.failed_starts is None
        host.ends(origin)
        (shown,) = tick(host, 3, host.reading(REFUSED))
        assert shown.failed_starts is None
