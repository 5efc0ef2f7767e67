"""An endpoint that answers: its URL, what is read, when, how often, and what is sent to it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.endpoint import BackOff, parse_url
from tests.each_row import each_row
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.polling import CARDS, PAGE, always, polling, until, vllm

RAY_PAGE = Path(__file__).parents[1] / "data" / "pages" / "ray" / "vllm.prom"


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


@pytest.mark.parametrize(("asked_s", "polled_s"), [(2.0, 10.0), (60.0, 60.0)])
async def test_a_page_that_changes_every_10_s_is_not_polled_more_often(asked_s: float, polled_s: float) -> None:
    """Ray's agents get the counters of their replicas every 10 s: in between they stand still."""
    with LoopbackServer(always(Reply(200, RAY_PAGE.read_bytes()))) as server:
        async with polling(server.url, interval_s=asked_s) as source:
            assert source.reading.kind is EngineKind.RAY
            assert (source.interval_s, source.reading.interval_s) == (polled_s, polled_s)


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


async def test_failures_are_asked_for_less_and_less_often_and_stay_visible() -> None:
    with LoopbackServer(always(Reply(500, b"no"))) as server:
        began_s = time.monotonic()
        async with polling(server.url, interval_s=0.02, back_off=BackOff(0.1, 10.0)) as source:
            # At 0, 0.1, 0.3, 0.7 s.
            assert await until(lambda: len(server.requests) >= 4)
            assert time.monotonic() - began_s > 0.65
            assert source.reading.state is EndpointState.HTTP_ERROR


def test_importing_the_source_does_not_import_httpx() -> None:
    code = "import sys, gpumon.sources.endpoint; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


FORMS = {
    "http://127.0.0.1:8000": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/metrics": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/metrics/": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/v1": ("http://127.0.0.1:8000", "/metrics"),
    "http://127.0.0.1:8000/v1/": ("http://127.0.0.1:8000", "/metrics"),
    "http://nim:8000/v1/metrics": ("http://nim:8000", "/v1/metrics"),
    "http://trt:8000/prometheus/metrics": ("http://trt:8000", "/prometheus/metrics"),
    "http://gate/prometheus": ("http://gate:80/prometheus", "/prometheus/metrics"),
    "http://gate/llama/metrics": ("http://gate:80/llama", "/llama/metrics"),
    "https://gate": ("https://gate:443", "/metrics"),
    "gpu-07:8000": ("http://gpu-07:8000", "/metrics"),
    "http://[::1]:8000": ("http://[::1]:8000", "/metrics"),
    "[::1]:8000": ("http://[::1]:8000", "/metrics"),
    "  http://host:8000 ": ("http://host:8000", "/metrics"),
}


@each_row("text", FORMS)
def test_forms(text: str) -> None:
    url = parse_url(text)
    base, path = FORMS[text]
    origin = "/".join(base.split("/")[:3])
    assert (url.base, url.metrics) == (base, origin + path)
    assert url.secure is base.startswith("https")


def test_host_and_port() -> None:
    assert parse_url("http://[::1]:8001")[2:4] == ("::1", 8001)
    assert parse_url("gpu-07:8000")[2:4] == ("gpu-07", 8000)


WRONG = """
gpu-07|8000|:8000|http://|ftp://host|http://host:99999|http://host:0|http://host:x|http://ho st:8000|http://[::1:8000
http://host:8000?key=s3cret|http://host#s3cret|http://user:s3cret@host:8000|s3cret@host:8000|file:///etc/passwd
"""


@each_row(
    "text", ["", "  ", "http://host\n:8000", "http://host\x1b:8000", *WRONG.strip().replace("\n", "|").split("|")]
)
def test_a_wrong_url_is_a_value_error_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(ValueError, match="URL") as error:
        parse_url(text)
    assert "s3cret" not in str(error.value)
    assert str(error.value).isprintable()
