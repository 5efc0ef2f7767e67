"""Each way in which an endpoint fails: its state, its one line with the fix, and bounded time and memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.fetch import Limits
from tests.fakes.http_server import LoopbackServer, Reply, Request, self_signed
from tests.sources.polling import PAGE, PATIENT, QUICK, always, first, polling, until, vllm

S = EndpointState


def shows(source: EndpointSource, state: EndpointState, *words: str) -> None:
    """The state and the words of the fault, which is one printable line."""
    reading = source.reading
    assert reading.state is state, reading.fault
    assert all(word in reading.fault for word in words), reading.fault
    assert reading.fault.isprintable()
    assert len(reading.fault) <= 200
    assert reading.ranks == ()


def page(body: bytes, content_type: str = "text/plain; version=0.0.4") -> Reply:
    return Reply(200, body, content_type)


ANSWERS = {
    "not found": (Reply(404, b'{"detail":"Not Found"}'), S.METRICS_OFF, ("404", "--enable-metrics", "--metrics")),
    "llama.cpp without metrics": (Reply(501, b"{}"), S.METRICS_OFF, ("501", "--metrics")),
    "login": (Reply(401, b"who are you"), S.UNAUTHORIZED, ("401", "proxy")),
    "broken": (Reply(500, b"Internal Server Error"), S.HTTP_ERROR, ("500", "log")),
    "loading": (Reply(503, b'{"error":{"message":"Loading model"}}'), S.STARTING, ("503", "loading")),
    "html": (page(b"<!DOCTYPE html>\n<html>Grafana</html>", "text/html"), S.NOT_METRICS, ("HTML", "port")),
    "json": (page(b'{"object":"list"}', "application/json"), S.NOT_METRICS, ("JSON", "/prometheus/metrics")),
    "binary": (page(b"\x7fELF\x02\x01\x01\x00\x00"), S.NOT_METRICS, ("binary",)),
    "empty": (page(b""), S.NOT_METRICS, ("empty",)),
    "control characters": (page(b"\x1b[2J\x1b]0;x\x07 1\n"), S.NOT_METRICS, ("no metrics text",)),
    "dcgm": (page(b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5\n'), S.WRONG_ENGINE, ("dcgm-exporter",)),
    "statistics off": (page(b"python_info 1\nhttp_requests_total 2\n"), S.METRICS_OFF, ("--disable-log-stats",)),
    "vllm before its first figure": (page(b'vllm:cache_config_info{a="b"} 1\n'), S.STARTING, ("no engine",)),
    "brotli": (Reply(200, PAGE, headers={"Content-Encoding": "br"}), S.NOT_METRICS, ("br", "compressed")),
    "broken gzip": (Reply(200, PAGE, headers={"Content-Encoding": "gzip"}), S.NOT_METRICS, ("compressed",)),
    "redirect": (
        Reply(302, b"", headers={"Location": "https://user:pw@sso.example/login?token=abc"}),
        S.HTTP_ERROR,
        ("302", "sso.example/login", "final URL"),
    ),
    "hostile redirect": (
        Reply(307, b"", headers={"Location": "\x9b2Jx" + "y" * 5000}),
        S.HTTP_ERROR,
        ("307", "\\x9b2Jxyy"),
    ),
    "no HTTP": (Reply(raw=b"\x15\x03\x01\x00\x02\x02\x16"), S.ERROR, ("closed the connection (restarting?)",)),
    "nothing": (Reply(raw=b""), S.ERROR, ("closed the connection (restarting?)",)),
    "half a body": (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nvllm:"), S.ERROR, ("middle",)),
}


async def test_a_line_that_only_looks_like_a_sample_takes_no_time() -> None:
    began = time.monotonic()
    source = await first(always(page(b"a " + b"1" * 400_000 + b" x\n" + b"b " + b"1" * 120_000 + b" x")))
    shows(source, S.NOT_METRICS, "no metrics text")
    assert time.monotonic() - began < 55.0


@pytest.mark.parametrize("raw", [b"\x15\x03\x01\x00\x02\x02\x16", b""])
async def test_a_port_that_never_spoke_http_may_speak_tls(raw: bytes) -> None:
    source = await first(always(Reply(raw=raw)))
    shows(source, S.ERROR, "no valid HTTP answer", "https://")


async def test_a_host_without_a_route_is_as_silent_as_one_that_times_out() -> None:
    async with polling("http://127.255.255.255:8000", interval_s=60.0) as source:  # no TCP to a broadcast address
        shows(source, S.TIMEOUT, "no route to 127.255.255.255:8000", "ENETUNREACH", "check host and network")


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_without_readings_is_named_with_the_fix(name: str) -> None:
    reply, state, words = ANSWERS[name]
    source = await first(lambda request: reply if request.path == "/metrics" else Reply(404))
    shows(source, state, *words)
    assert source.reading.kind is EngineKind.UNKNOWN
    assert "token=abc" not in source.reading.fault
    assert "pw" not in source.reading.fault


async def test_nothing_listens() -> None:
    server = LoopbackServer(vllm)
    try:
        async with polling(server.url) as source:
            shows(source, S.REFUSED, f"127.0.0.1:{server.port}", "down, or still loading")
    finally:
        server.close()


async def test_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60.0))
    began = time.monotonic()
    async with polling("http://gpu-07:8000", limits=QUICK) as source:
        shows(source, S.DNS, "gpu-07", "name server")
    assert time.monotonic() - began < 55.0
    over.set()


async def test_a_server_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with polling(f"http://127.0.0.1:{silent.getsockname()[1]}", limits=QUICK) as source:
            shows(source, S.TIMEOUT, "within 0.6 s")


def drip() -> Iterator[bytes]:
    while True:
        yield b"vllm:x 1\n"


async def test_a_body_that_drips_without_end_is_cut_off_in_time() -> None:
    began = time.monotonic()
    with LoopbackServer(always(Reply(200, drip(), delay_s=0.05))) as server:
        async with polling(server.url, limits=QUICK) as source:
            shows(source, S.TIMEOUT, "no complete answer")
    assert time.monotonic() - began < 55.0


def flood() -> Iterator[bytes]:
    line = b"vllm:generation_tokens_total 1\n" * 2000
    while True:
        yield line


def large(size: int) -> Iterator[bytes]:
    return (b"x" * 2**16 for _ in range(size // 2**16))


@pytest.mark.parametrize("kind", ["flood", "50 MB"])
async def test_a_body_beyond_the_bound_is_cut_off_at_once(kind: str) -> None:
    def answer(_: Request) -> Reply:
        return Reply(200, flood() if kind == "flood" else large(50 * 2**20))

    with LoopbackServer(answer) as server:
        tracemalloc.start()
        try:
            async with polling(server.url, interval_s=60.0, limits=Limits(2.0, 10.0)) as source:
                shows(source, S.TOO_LARGE, "8 MiB")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 40 * 2**20


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
UNENDING = {
    "103": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 12_000, "the head of its answer is larger than 256 KiB"),
    "bytes": (CHUNKED + b"1\r\n#\r\n" * 12_000, "pieces of a few bytes"),
}
"""Begin of an answer that takes a core as long as it goes on, and what is said of it."""


@pytest.mark.parametrize("kind", sorted(UNENDING))
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_answer_that_is_dear_to_read_is_given_up(kind: str, scheme: str, tmp_path: Path) -> None:
    begin, words = UNENDING[kind]
    end = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + PAGE
    tls = self_signed(tmp_path) if scheme == "https" else None
    with LoopbackServer(always(Reply(raw=begin + (end if kind == "103" else b"0\r\n\r\n"))), tls=tls) as server:
        async with polling(server.url, tls_verify=False, limits=PATIENT) as source:
            shows(source, S.NOT_METRICS, words)


async def test_a_page_that_comes_line_by_line_is_read() -> None:
    lines = [b"http_requests_total 10\n"] * 12_000 + PAGE.splitlines(keepends=True)
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines)
    source = await first(always(Reply(raw=CHUNKED + pieces + b"0\r\n\r\n")))
    assert source.reading.state is S.OK, source.reading.fault


async def test_a_kept_connection_that_the_server_closed_is_no_failure() -> None:
    answered = 0

    def closing(request: Request) -> Reply:
        nonlocal answered
        if request.path != "/metrics":
            return Reply(401)
        answered += 1
        # Every third request meets a connection that ends without a word.
        return Reply(raw=b"") if answered % 3 == 0 else Reply(200, PAGE)

    states = set()
    with LoopbackServer(closing) as server:
        async with polling(server.url) as source:
            while answered < 10:
                states.add(source.reading.state)
                assert await until(lambda now=answered: answered > now)
    assert states == {S.OK}


async def test_a_failure_after_readings_keeps_them_with_their_moment() -> None:
    healthy = True
    with LoopbackServer(lambda request: vllm(request) if healthy else Reply(500)) as server:
        async with polling(server.url) as source:
            healthy = False
            assert await until(lambda: source.reading.state is S.HTTP_ERROR)
            failed = source.reading
            assert await until(lambda: len(server.requests) > 8)
            assert failed.ranks
            assert source.reading.monotonic_s == failed.monotonic_s
            assert source.reading.model == "m"


async def test_series_that_stand_twice_and_lines_that_are_none_are_said() -> None:
    body = PAGE + PAGE.splitlines(keepends=True)[-1] + b'vllm:num_requests_running{engine="0",engine="1"} 3\n'
    source = await first(lambda request: page(body) if request.path == "/metrics" else Reply(404))
    assert source.reading.state is S.OK
    assert source.reading.info["duplicate_series"] == "1"
    assert source.reading.info["skipped_lines"] == "1"


async def test_an_untrusted_certificate_and_the_two_ways_to_trust_it(tmp_path: Path) -> None:
    files = self_signed(tmp_path)
    with LoopbackServer(vllm, tls=files) as server:
        async with polling(server.url) as source:
            shows(source, S.TLS, "self-signed", "tls_ca", "tls_verify = false")
        async with polling(server.url, tls_ca=str(files[0])) as source:
            assert source.reading.state is S.OK
        async with polling(server.url, tls_verify=False) as source:
            assert source.reading.state is S.OK
        async with polling(server.url.replace("https", "http")) as source:
            shows(source, S.ERROR, "TLS only", "https://")


async def test_authorities_that_others_choose_are_not_trusted_and_a_pipe_holds_up_nobody(tmp_path: Path) -> None:
    files = self_signed(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    deep = tmp_path / ("d" * 200)
    deep.mkdir()
    chosen = deep / "chosen.pem"
    shutil.copy(files[0], chosen)
    chosen.chmod(0o666)
    with LoopbackServer(vllm, tls=files) as server:
        async with polling(server.url, tls_ca=str(pipe)) as source:
            shows(source, S.TLS, "tls_ca is no readable PEM file", "no regular file")
        async with polling(server.url, tls_ca=str(chosen)) as source:
            assert source.reading.state is S.TLS
            assert source.reading.fault == f"tls_ca: can be written by everybody: chmod o-w {chosen}"
        async with polling(server.url, tls_ca=str(files[0])) as source:
            assert source.reading.state is S.OK


async def test_tls_to_a_server_that_waits_for_the_rest_of_the_line() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        port = silent.getsockname()[1]
        # The whole answer has long: on a busy machine it ended first, 0.1 s after the connection.
        async with polling(f"https://127.0.0.1:{port}", limits=Limits(connect_s=0.5, total_s=60.0)) as source:
            shows(source, S.TIMEOUT, f"no TLS connection to 127.0.0.1:{port}", "try http://", "firewall")
    finally:
        silent.close()


async def test_a_tls_handshake_that_is_cut_off_leaves_no_connection_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        source = EndpointSource(Endpoint(url=f"https://127.0.0.1:{port}"), 2.0, limits=PATIENT)
        await source.start()
        accepted, _ = await asyncio.to_thread(silent.accept)
        with accepted:
            accepted.settimeout(60.0)
            assert await asyncio.to_thread(accepted.recv, 65536)
            await source.close()
            accepted.settimeout(10.0)
            assert await asyncio.to_thread(accepted.recv, 65536) == b""


async def test_a_wrong_url_is_refused_when_the_source_is_made() -> None:
    with pytest.raises(ValueError, match="user or password"):
        EndpointSource(Endpoint(url="http://user:secret@host:8000"), 2.0, limits=QUICK)
