"""An endpoint that answers: what is read, when, how often, and what is sent to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from gpumon.config.schema import Endpoint
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources import endpoint
from gpumon.sources.endpoint import BackOff, EndpointSource
from gpumon.sources.engines.adapter import MOST_RANKS
from gpumon.sources.fetch import Limits
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.polling import CARDS, PAGE, always, first, polling, until, vllm


async def test_a_vllm_server_is_read_with_its_model_and_version() -> None:
    with FakeEngine("vllm-basic", start_s=40.0) as engine:
        before = time.monotonic()
        async with polling(engine.url, interval_s=60.0) as source:
            after = time.monotonic()
            (reading,) = (await source.poll(after)).engines
    assert reading.state is EndpointState.OK
    assert reading.kind is EngineKind.VLLM
    assert reading.name == f"vllm:{engine.server.port}"
    assert reading.url == engine.url
    assert reading.fault == ""
    assert (reading.model, reading.model_root, reading.version) == ("tiny-llama", "./tiny-llama", "0.32.0")
    assert reading.info["max_model_len"] == "2048"
    assert reading.exact_steps
    assert reading.interval_s == 60.0
    assert before < reading.monotonic_s < after
    assert 0.0 < reading.latency_s < after - before
    assert reading.ranks[0].counters[q.DECODE_TOKENS] > 0
    assert reading.live[q.DECODE_TOKENS] == "vllm:generation_tokens_total"


async def test_there_is_a_reading_before_the_first_poll() -> None:
    source = EndpointSource(Endpoint(url="http://127.0.0.1:8000"), 2.0)
    (reading,) = (await source.poll(0.0)).engines
    assert (reading.state, reading.name, reading.ranks) == (EndpointState.STARTING, "engine:8000", ())
    await source.close()


async def test_what_a_server_did_before_the_first_poll_is_not_counted() -> None:
    track = Track()
    with FakeEngine("vllm-basic", start_s=58.0) as engine:
        source = EndpointSource(Endpoint(url=engine.url), 60.0)
        track.add(source.reading, time.time())
        await source.start()
        await source.ready(60.0)
        assert track.add(source.reading, time.time())
        await source.close()
    assert source.reading.ranks[0].counters[q.DECODE_TOKENS] > 0
    assert track.totals[q.DECODE_TOKENS] == 0.0


async def test_a_configured_name_stays() -> None:
    source = await first(vllm, name="chat")
    assert source.reading.name == "chat"


async def test_the_request_is_plain_and_asks_for_plain_text() -> None:
    with LoopbackServer(vllm) as server:
        async with polling(server.url, engine="vllm"):
            pass
        request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers["accept"] == "text/plain;version=0.0.4"
    assert request.headers["accept-encoding"] == "identity"
    assert {one.method for one in server.requests} == {"GET"}
    assert {one.path for one in server.requests} == {"/metrics", "/v1/models", "/version"}


async def test_one_connection_is_kept_for_all_polls() -> None:
    with LoopbackServer(vllm) as server:
        async with polling(server.url) as source:
            assert await until(lambda: len(server.requests) > 8)
            assert source.reading.state is EndpointState.OK
        assert server.connections <= 2


async def test_the_moment_of_a_reading_is_the_middle_of_its_poll() -> None:
    slow = Reply(200, PAGE, delay_s=0.3)
    source = await first(lambda request: slow if request.path == "/metrics" else vllm(request))
    assert source.reading.latency_s >= 0.3
    # The answer ended a moment ago at most; its middle is at least half the delay before now.
    assert time.monotonic() - source.reading.monotonic_s >= 0.15


async def test_polls_are_anchored_and_a_missed_slot_is_skipped() -> None:
    under_way, most = 0, 0
    lock = threading.Lock()

    def slow(request: Request) -> Reply:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.15 if request.path == "/metrics" else 0.0)
        with lock:
            under_way -= 1
        return Reply(200, PAGE) if request.path == "/metrics" else Reply(401, b"")

    with LoopbackServer(slow) as server:

        def polls() -> int:
            return len([r for r in server.requests if r.path == "/metrics"])

        async with polling(server.url, interval_s=0.1):
            began, began_s = polls(), time.monotonic()
            assert await until(lambda: polls() >= began + 5)
            took_s = time.monotonic() - began_s
    assert most <= 2
    # A slot every 0.1 s, each answer takes 0.15 s: every second slot is used, so five polls lie in 0.8 s or more.
    assert took_s > 0.7


async def test_one_slow_endpoint_does_not_hold_up_another() -> None:
    hang = threading.Event()

    def hanging(request: Request) -> Reply:
        hang.wait(60.0)
        return Reply(raw=b"")

    try:
        with LoopbackServer(hanging) as slow, LoopbackServer(vllm) as quick:
            stuck = EndpointSource(Endpoint(url=slow.url), 0.05, limits=Limits(60.0, 60.0))
            await stuck.start()
            async with polling(quick.url) as source:
                assert await until(lambda: len(quick.requests) > 10, 20.0)
                assert source.reading.state is EndpointState.OK
            assert stuck.reading.state is EndpointState.STARTING
            began = time.monotonic()
            await stuck.close()
            assert time.monotonic() - began < 20.0
            hang.set()
    finally:
        hang.set()


async def test_poll_returns_at_once_while_the_server_hangs() -> None:
    hang = threading.Event()

    def hanging(request: Request) -> Reply:
        hang.wait(60.0)
        return Reply(raw=b"")

    with LoopbackServer(hanging) as server:
        source = EndpointSource(Endpoint(url=server.url), 0.05, limits=Limits(60.0, 60.0))
        await source.start()
        assert await until(lambda: server.requests)
        began = time.monotonic()
        assert (await source.poll(began)).engines[0].state is EndpointState.STARTING
        assert time.monotonic() - began < 20.0
        await source.close()
        hang.set()


async def test_a_server_that_is_killed_and_comes_back_is_seen_both_times() -> None:
    with LoopbackServer(vllm) as server:
        async with polling(server.url) as source:
            good = source.reading
            assert good.state is EndpointState.OK
            server.refuse()
            assert await until(lambda: source.reading.state is EndpointState.REFUSED)
            down = source.reading
            assert down.ranks == good.ranks
            assert down.kind is EngineKind.VLLM
            asked = len([r for r in server.requests if r.path == "/v1/models"])
            server.listen()
            assert await until(lambda: source.reading.state is EndpointState.OK)
            assert source.reading.fault == ""
            assert source.reading.monotonic_s > good.monotonic_s
            assert await until(lambda: len([r for r in server.requests if r.path == "/v1/models"]) > asked)


async def test_a_restart_between_two_polls_is_noticed_and_the_model_asked_for_again() -> None:
    started, model = b"1700000000", b"m"

    def server_of_two_lives(request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply(200, PAGE.replace(b"1700000000", started).replace(b'"m"', b'"%s"' % model))
        return Reply(200, CARDS.replace(b'"m"', b'"%s"' % model)) if request.path == "/v1/models" else Reply(404)

    with LoopbackServer(server_of_two_lives) as server:
        async with polling(server.url, engine="vllm") as source:
            assert source.reading.model == "m"
            started, model = b"1700000999", b"other"
            assert await until(lambda: source.reading.started_wall_s == 1700000999.0)
            assert await until(lambda: source.reading.model == "other")
            assert await until(lambda: len([r for r in server.requests if r.path == "/v1/models"]) == 2)


def hits(prompt: int, cached: int, started: int = 1700000000) -> Reply:
    """A page of a server before 0.16, whose computed prefill is worked out from two counters."""
    labels = '{engine="0",model_name="m"}'
    text = (
        f"vllm:prompt_tokens_total{labels} {prompt}\nvllm:prefix_cache_hits_total{labels} {cached}\n"
        f"process_start_time_seconds {started}\n"
    )
    return Reply(200, text.encode())


@pytest.mark.parametrize(
    ("between", "after", "computed"),
    [
        (Reply(500), hits(500, 1100), 400.0),
        (Reply(503), hits(500, 1100), 400.0),
        (Reply(200, b"", delay_s=2.0), hits(500, 1100), 400.0),
        (None, hits(600, 500, started=1700000999), 100.0),
    ],
    ids=["500", "503", "time-out", "restart"],
)
async def test_what_was_learnt_of_a_process_outlives_a_failure_but_not_the_process(
    between: Reply | None, after: Reply, computed: float
) -> None:
    now = hits(500, 100)
    with LoopbackServer(lambda request: now if request.path == "/metrics" else vllm(request)) as server:
        async with polling(server.url) as source:
            before = source.reading
            asked = len([r for r in server.requests if r.path == "/v1/models"])
            if between is not None:
                now = between
                assert await until(lambda: source.reading.state is not EndpointState.OK)
            now = after
            assert await until(
                lambda: source.reading.state is EndpointState.OK and source.reading.ranks != before.ranks
            )
            assert before.ranks[0].counters[q.PREFILL_COMPUTED] == 400.0
            assert source.reading.ranks[0].counters[q.PREFILL_COMPUTED] == computed
            again = len([r for r in server.requests if r.path == "/v1/models"]) - asked
    assert between is None or again == 0


async def test_what_the_process_before_said_of_itself_is_not_believed_of_the_next() -> None:
    started, asked = b"1700000000", 0

    def slow_to_tell(request: Request) -> Reply:
        nonlocal asked
        if request.path == "/metrics":
            return Reply(200, PAGE.replace(b"1700000000", started))
        if request.path != "/v1/models":
            return Reply(404)
        asked += 1
        return Reply(200, CARDS.replace(b"/models/m", b"/old" if asked == 1 else b"/new"), delay_s=0.4)

    roots = set()
    with LoopbackServer(slow_to_tell) as server:
        source = EndpointSource(Endpoint(url=server.url, engine="vllm"), 0.05)
        await source.start()
        assert await until(lambda: asked == 1)
        started = b"1700000999"
        end_s = time.monotonic() + 60.0
        while source.reading.model_root != "/new":
            assert time.monotonic() < end_s
            roots.add(source.reading.model_root)
            await asyncio.sleep(0.01)
        await source.close()
    assert roots == {""}


async def test_a_model_list_that_is_not_ready_is_asked_for_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def not_ready(request: Request) -> Reply:
        nonlocal asked
        if request.path == "/v1/models":
            asked += 1
            return vllm(request) if asked > 1 else Reply(500)
        return vllm(request)

    with LoopbackServer(not_ready) as server:
        async with polling(server.url, engine="vllm") as source:
            assert await until(lambda: len(server.requests) > 10)
            assert (asked, source.reading.model_root) == (1, "")
        asked = 0
        monkeypatch.setattr(endpoint, "ASK_AGAIN_S", 0.1)
        async with polling(server.url, engine="vllm") as source:
            assert await until(lambda: source.reading.model_root == "/models/m")


async def test_a_recorded_restart_is_followed_through_refusal_to_the_new_process() -> None:
    states, starts = [], set()
    end_s = time.monotonic() + 60.0
    with FakeEngine("vllm-lifecycle", start_s=100.0, speed=20.0) as engine:
        async with polling(engine.url, back_off=BackOff(0.02, 0.05)) as source:
            while len(starts) < 2 and time.monotonic() < end_s:
                reading = source.reading
                if reading.state not in states[-1:]:
                    states.append(reading.state)
                if reading.state is EndpointState.OK:
                    starts.add(reading.started_wall_s)
                await asyncio.sleep(0.005)
    assert states == [EndpointState.OK, EndpointState.REFUSED, EndpointState.OK]
    assert len(starts) == 2


async def test_a_recorded_hang_is_a_timeout_and_then_over() -> None:
    with FakeEngine("vllm-hang-and-dead-engine", start_s=8.0, speed=4.0) as engine:
        async with polling(engine.url, limits=Limits(0.3, 0.3)) as source:
            assert source.reading.state is EndpointState.OK
            assert await until(lambda: source.reading.state is EndpointState.TIMEOUT)
            assert source.reading.ranks
            assert await until(lambda: source.reading.state is EndpointState.OK)
            assert 10.0 < engine.t < 24.0


async def test_back_off_doubles_from_two_to_thirty_seconds() -> None:
    assert [BackOff().pause_s(failures) for failures in range(8)] == [0.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


async def test_failures_are_asked_for_less_and_less_often_and_stay_visible() -> None:
    with LoopbackServer(always(Reply(500, b"no"))) as server:
        began_s = time.monotonic()
        async with polling(server.url, interval_s=0.02, back_off=BackOff(0.1, 10.0)) as source:
            # At 0, 0.1, 0.3, 0.7 s.
            assert await until(lambda: len(server.requests) >= 4)
            assert time.monotonic() - began_s > 0.65
            assert source.reading.state is EndpointState.HTTP_ERROR


async def test_proxy_settings_of_the_environment_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await first(vllm)).reading.state is EndpointState.OK


async def test_duplicates_are_flagged() -> None:
    source = await first(always(Reply(200, PAGE + PAGE)))
    (notice,) = (await source.poll(0.0)).faults
    assert "stand twice" in notice.text
    assert source.reading.info["duplicate_series"] == "3"
    assert source.reading.ranks[0].counters[q.DECODE_TOKENS] == 7.0


async def test_more_ranks_than_are_read_are_flagged() -> None:
    page = "".join(f'vllm:generation_tokens_total{{engine="{n}"}} 1\n' for n in range(MOST_RANKS + 1)).encode()
    source = await first(lambda request: Reply(200, page) if request.path == "/metrics" else vllm(request))
    (notice,) = (await source.poll(0.0)).faults
    assert "more than 256 data-parallel ranks" in notice.text


async def test_a_large_page_is_read_too() -> None:
    filler = b"".join(b'other_metric{n="%d"} 1\n' % n for n in range(40_000))
    source = await first(lambda request: Reply(200, filler + PAGE) if request.path == "/metrics" else vllm(request))
    assert len(filler) > 512 * 1024
    assert source.reading.state is EndpointState.OK
    assert source.reading.ranks[0].counters[q.DECODE_TOKENS] == 7.0


async def test_a_cookie_is_not_sent_back() -> None:
    def biscuit(request: Request) -> Reply:
        return vllm(request)._replace(headers={"Set-Cookie": "session=1"})

    with LoopbackServer(biscuit) as server:
        async with polling(server.url):
            assert await until(lambda: len(server.requests) > 5)
    assert not any("cookie" in request.headers for request in server.requests)


def test_many_endpoints_lie_evenly_in_the_interval() -> None:
    urls = [f"http://gpu-{host:02}:{port}" for host in range(16) for port in range(8000, 8008)]
    fifths = Counter(int(5 * EndpointSource(Endpoint(url=url), 5.0, spread=True)._place) for url in urls)
    assert set(fifths) == set(range(5))
    assert all(15 <= count <= 36 for count in fifths.values())


async def test_an_endpoint_moves_to_its_place_without_a_gap() -> None:
    interval_s, moments = 0.5, list[float]()

    def answer(request: Request) -> Reply:
        if request.path == "/metrics":
            moments.append(time.monotonic())
        return vllm(request)

    with LoopbackServer(answer) as server:
        for _ in range(5):  # a machine that is busy may hold any of the two moments up
            moments.clear()
            async with polling(server.url, interval_s=interval_s, spread=True) as source:
                assert await until(lambda: len(moments) >= 7)
            moved_s = 6 * interval_s - (moments[6] - moments[0])
            if moved_s == pytest.approx(source._place * interval_s, abs=0.15):
                break
    assert moved_s == pytest.approx(source._place * interval_s, abs=0.15)


def test_importing_the_source_does_not_import_httpx() -> None:
    code = "import sys, gpumon.sources.endpoint; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_many_endpoints_are_polled_at_common_moments() -> None:
    many, few = (EndpointSource(Endpoint(url="http://gpu-1:8000"), 5.0, spread=spread) for spread in (True, False))
    found = [many._together(at_s) for at_s in (100.0, 100.01, 100.4, 100.51)]
    assert found == pytest.approx([100.0, 100.5, 100.5, 101.0])
    assert few._together(100.01) == 100.01


async def test_a_server_that_closes_its_connections_is_read_all_the_same() -> None:
    """As uvicorn does after 5 s without a request; here after each answer."""

    def closing(request: Request) -> Reply:
        reply = vllm(request)
        kind, size = reply.content_type, len(reply.body)
        head = f"HTTP/1.1 {reply.status} OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
        return Reply(raw=head.encode() + reply.body)

    with LoopbackServer(closing) as server:
        async with polling(server.url, interval_s=0.1) as source:
            assert await until(lambda: sum(one.path == "/metrics" for one in server.requests) > 5)
            assert source.reading.state is EndpointState.OK
        assert server.connections > 5
