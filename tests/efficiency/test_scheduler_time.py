"""What SGLang's own clocks say of its scheduler, over real HTTP and by hand."""

from __future__ import annotations

import time

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.rates import DISAGGREGATED, IN_STAGES, UNTIMED
from gpumon.readings import quantities as q
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import after, steady
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES
from tests.sources.polling import polling, until

RUNNING = {q.RUNNING: 4.0}


def shares(per_s: dict[str, float], **facts: object) -> tuple[Reading, Reading, Reading]:
    (engine,) = after(steady(per_s, RUNNING, **facts)).engines
    return engine.rates.forward_ratio, engine.rates.scheduler_idle_ratio, engine.rates.host_ratio


def test_what_is_neither_idle_nor_a_pass_is_the_hosts() -> None:
    forward, idle, host = shares({q.FORWARD_SECONDS: 0.35, q.SCHEDULER_IDLE_SECONDS: 0.2})
    assert (forward, idle, host) == (pytest.approx(0.35), pytest.approx(0.2), pytest.approx(0.45))


def test_passes_beside_idle_time_that_is_counted_late_leave_nothing_below_zero() -> None:
    assert shares({q.FORWARD_SECONDS: 0.9, q.SCHEDULER_IDLE_SECONDS: 0.15})[2] == 0.0


def test_without_the_timer_it_says_how_to_switch_it_on() -> None:
    assert shares({q.SCHEDULER_IDLE_SECONDS: 0.2}) == (UNTIMED, pytest.approx(0.2), UNTIMED)
    assert shares({q.DECODE_TOKENS: 10.0}) == (NOT_EXPOSED, NOT_EXPOSED, NOT_EXPOSED)


@pytest.mark.parametrize(("facts", "why"), [({"pp": 2}, IN_STAGES), ({"info": {"role": "decode"}}, DISAGGREGATED)])
def test_what_else_is_waited_for_is_not_laid_to_the_host(facts: dict[str, object], why: Missing) -> None:
    forward, idle, host = shares({q.FORWARD_SECONDS: 0.35, q.SCHEDULER_IDLE_SECONDS: 0.2}, **facts)
    assert (forward, idle, host) == (pytest.approx(0.35), pytest.approx(0.2), why)


async def test_a_page_with_device_timers_is_polled_to_the_shares_of_its_clocks() -> None:
    """Its clocks run: in each second 0.5 s of decode, 0.1 s of extend and 0.1 s of idle; two ranks report the same."""
    page = (PAGES / "sglang" / "device-timer.prom").read_text()
    began_s = time.monotonic()

    def answer(request: Request) -> Reply:
        if request.path != "/metrics":
            return Reply(404, b"{}")
        ran_s, lines = time.monotonic() - began_s, []
        for line in page.splitlines():
            name, _, value = line.rpartition(" ")
            rate = 0.1 * (name.startswith("sglang:scheduler_idle") or ("forward" in name and "extend" in name))
            rate += 0.5 * ("forward_execution" in name and 'category="decode"' in name)
            lines.append(f"{name} {float(value) + rate * ran_s}" if rate and line[0] != "#" else line)
        return Reply(200, "\n".join([*lines, ""]).encode())

    deriver, frames = Deriver(gpu_catalogue()), 0
    with LoopbackServer(answer) as server:
        async with polling(server.url, interval_s=0.25) as source:
            while frames < 8:
                before = source.reading
                assert await until(lambda before=before: source.reading is not before)  # type: ignore[misc]
                reading = source.reading
                frame = Frame(frames, time.time(), reading.monotonic_s, 0.25, HostReading(), (), (reading,))
                (engine,) = deriver.derive(frame).snapshot.engines
                frames += 1
    assert engine.rates.forward_ratio == pytest.approx(0.6, abs=0.02)
    assert engine.rates.scheduler_idle_ratio == pytest.approx(0.1, abs=0.02)
    assert engine.rates.host_ratio == pytest.approx(0.3, abs=0.03)
    assert reading.ranks[0].counters[q.FAILURES] == 5.0
    assert reading.ranks[0].counters[q.ABORTS] == 6.0
