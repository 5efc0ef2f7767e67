"""The client of Prometheus' HTTP API, against recorded answers of a real one and against every way to fail."""

from __future__ import annotations

import gzip
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Prometheus
from gpumon.sources.prometheus.api import ApiFault, PrometheusApi
from gpumon.sources.prometheus.clock import ServerClock
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply, Request, self_signed
from tests.sources.prometheus.answering import asked, fault_at, fault_of, success, vector

RECORDED = Path(__file__).parents[2] / "data" / "captures" / "prometheus-api" / "api.jsonl.gz"
with gzip.open(RECORDED, "rt", encoding="utf-8") as _file:
    LINES: list[dict[str, Any]] = [json.loads(line) for line in _file]
SECRET = "s3cr3t-token"


def replayed(line: dict[str, Any]) -> Reply:
    body = line["body"].encode()
    headers = {}
    if line["headers"].get("content-encoding") == "gzip":
        body, headers = gzip.compress(body), {"Content-Encoding": "gzip"}
    return Reply(line["status"], body, line["headers"]["content-type"], headers)


def pairs(points: list[Any]) -> list[tuple[float, str]]:
    """Comparable also where a value is no number."""
    return [(at_s, repr(float(value))) for at_s, value in points]


def labels(metric: dict[str, str]) -> tuple[str, dict[str, str]]:
    return metric.get("__name__", ""), {name: value for name, value in metric.items() if name != "__name__" and value}


async def what_comes_of(line: dict[str, Any], server: LoopbackServer) -> Any:
    api = PrometheusApi(Prometheus(url=server.url))
    asks = line["params"]
    try:
        if "start" in asks:
            return await api.query_range(asks["query"], asks["start"], asks["start"] + 60.0, 1.0)
        return await api.query(asks.get("query", ""), asks.get("time"))
    except ApiFault as fault:
        return fault.text
    finally:
        await api.close()


@pytest.mark.parametrize("line", LINES, ids=[line["name"] for line in LINES])
async def test_every_recorded_answer_is_told_as_it_is(line: dict[str, Any]):
    with LoopbackServer(lambda _: replayed(line)) as server:
        found = await what_comes_of(line, server)
    try:
        body = json.loads(line["body"])
    except ValueError:
        assert isinstance(found, str)
        assert ("404" in found) if line["status"] == 404 else ("not that of a Prometheus API" in found)
        return
    if body["status"] == "error":
        assert found.startswith(f"{line['status']}: ")
        assert found.endswith(body["error"])
        return
    data = body["data"] if isinstance(body["data"], dict) else {}
    kind, result = data.get("resultType"), data.get("result")
    if kind == "vector":
        assert [(one.series.name, one.series.labels) for one in found] == [labels(one["metric"]) for one in result]
        assert pairs([(one.at_s, one.value) for one in found]) == pairs([one["value"] for one in result])
    elif kind == "matrix" and "start" in line["params"]:
        assert [(one.series.name, one.series.labels) for one in found] == [labels(one["metric"]) for one in result]
        assert [pairs(one.points) for one in found] == [pairs(one["values"]) for one in result]
    elif kind == "scalar":
        assert [(one.series.labels, one.value) for one in found] == [({}, float(result[1]))]
    else:
        assert "is it a Prometheus?" in found or "not that of a Prometheus API" in found


async def test_a_range_vector_is_read_as_samples():
    line = next(line for line in LINES if line["name"] == "query:range_vector")
    with LoopbackServer(lambda _: replayed(line)) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        (found,) = await api.samples("vllm:generation_tokens_total[10s]", 1.0)
        await api.close()
    assert pairs(found.points) == pairs(json.loads(line["body"])["data"]["result"][0]["values"])
    assert len(found.points) > 5


async def test_a_series_keeps_its_object_from_answer_to_answer():
    line = next(line for line in LINES if line["name"] == "query:gzip")
    with LoopbackServer(lambda _: replayed(line)) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        first = await api.query("{}", 1.0)
        api.reader.forget()
        second = await api.query("{}", 1.0)
        await api.close()
    assert len(first) > 100
    assert all(one.series is other.series for one, other in zip(first, second, strict=True))


async def test_queries_are_posted_with_their_time_tenant_and_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", SECRET)
    with LoopbackServer(lambda _: vector([({"a": "b"}, "1")])) as server:
        api = PrometheusApi(Prometheus(url=f"{server.url}/prom/", tenant="team-a", api_key_env="TOKEN"))
        found = await api.query('up{a="ü b"}', 1234.5678)
        await api.close()
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/prom/api/v1/query")
    assert asked(request) == {"query": 'up{a="ü b"}', "time": "1234.568", "latency_offset": "1s"}
    assert request.headers["x-scope-orgid"] == "team-a"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert [one.value for one in found] == [1.0]
    assert SECRET not in repr(api)


async def test_basic_auth_from_a_file(tmp_path: Path):
    (tmp_path / "password").write_text("pass-word\n")
    with LoopbackServer(lambda _: vector([])) as server:
        settings = Prometheus(url=server.url, user="me", password_file=str(tmp_path / "password"))
        api = PrometheusApi(settings)
        assert await api.query("up", 1.0) == []
        await api.close()
    assert server.requests[0].headers["authorization"] == "Basic bWU6cGFzcy13b3Jk"


async def test_a_changed_token_is_read_anew(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("old")

    def answer(request: Request) -> Reply:
        return vector([]) if request.headers["authorization"] == f"Bearer {good[0]}" else Reply(401)

    good = ["old"]
    with LoopbackServer(answer) as server:
        api = PrometheusApi(Prometheus(url=server.url, api_key_file=str(file)))
        assert await api.query("up", 1.0) == []
        good[0] = "new"
        file.write_text("new")
        assert await api.query("up", 1.0) == []
        await api.close()


@pytest.mark.parametrize("status", [403, 405])
async def test_where_post_is_refused_queries_go_by_get(status: int):
    def answer(request: Request) -> Reply:
        return Reply(status) if request.method == "POST" else vector([({}, asked(request)["time"])])

    with LoopbackServer(answer) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        for at_s in (1.0, 2.0):
            assert [one.value for one in await api.query("up", at_s)] == [at_s]
        await api.close()
    assert [request.method for request in server.requests] == ["POST", "GET", "GET"]


async def test_a_partial_answer_of_victoriametrics_is_a_fault_and_its_latency_offset_is_short():
    with LoopbackServer(lambda _: vector([({}, "1")], isPartial=True)) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        assert len(await api.query("up", 1.0)) == 1
        (told,) = api.take_warnings()
        await api.close()
    assert "isPartial" in told
    assert asked(server.requests[0])["latency_offset"] == "1s"


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "1e308", "-0"])
async def test_every_number_of_prometheus_is_read(text: str):
    with LoopbackServer(lambda _: vector([({"a": "b"}, text)])) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        (found,) = await api.query("up", 1.0)
        await api.close()
    assert repr(found.value) == repr(float(text))


async def test_native_histograms_and_odd_items_are_left_out():
    result = [
        {"metric": {"__name__": "h"}, "histogram": [1.0, {"count": "5", "sum": "2", "buckets": [[0, "1", "2", "3"]]}]},
        {"metric": {"__name__": "a"}, "value": [1.0, "7"], "histogram": None},
        {"metric": {"__name__": "b"}, "value": [1.0, "no number"]},
        {"value": [1.0, "3"]},
        7,
    ]
    with LoopbackServer(lambda _: success({"resultType": "vector", "result": result}, infos=["x"])) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        found = await api.query("up", 1.0)
        await api.close()
    assert [(one.series.name, one.value) for one in found if not math.isnan(one.value)] == [("a", 7.0), ("", 3.0)]


@pytest.mark.parametrize("scalar", [None, [], [1.0], ["x", "1"], {}, [1.0, 2.0]])
async def test_a_scalar_that_is_none_is_left_out(scalar: object) -> None:
    with LoopbackServer(lambda _: success({"resultType": "scalar", "result": scalar})) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        assert await api.query("time()", 1.0) == []
        await api.close()


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN"])
async def test_a_time_that_is_no_number_sets_no_clock(value: str) -> None:
    with LoopbackServer(lambda _: success({"resultType": "scalar", "result": [1.0, value]})) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        clock = ServerClock(api, time.time, time.monotonic)
        await clock.measure()
        await api.close()
    assert (clock.answers_ahead_s, clock.notices()) == (0.0, ())


async def test_a_value_that_looks_like_the_end_of_an_item_is_a_label():
    hostile = {"__name__": "up", "a": '"},"value":[1,"2"]}', "b": "\\", "c": "\x1b[31m\u202e", "d": "[red]"}
    with LoopbackServer(lambda _: vector([(hostile, "5")])) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        found = [(await api.query("up", 1.0))[0] for _ in range(2)]
        await api.close()
    assert [(one.series.name, one.series.labels, one.value) for one in found] == [("up", labels(hostile)[1], 5.0)] * 2


async def test_partial_answers_are_told_once_taken():
    with LoopbackServer(lambda _: vector([], warnings=["store \x1b[31mdown", "slow"])) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        await api.query("up", 1.0)
        await api.query("up", 1.0)
        warnings = api.take_warnings(), api.take_warnings()
        await api.close()
    assert warnings == (("store \\x1b[31mdown", "slow"), ())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(401), "401: it wants a login"),
        (Reply(401, b"no org id"), "401: it wants a tenant (no org id): set [prometheus].tenant"),
        (Reply(403), "403: it is forbidden"),
        (Reply(404, b"404 page not found"), "path prefix (Mimir: /prometheus"),
        (Reply(422, b'{"status":"error","errorType":"execution","error":"many\\nseries"}'), "many\\x0aseries"),
        (Reply(422, b"<html>"), "422: 127.0.0.1:"),
        (Reply(429), "raise [prometheus].interval_s"),
        (Reply(503, b"Service Unavailable"), "is it still reading its log"),
        (Reply(503, b'{"status":"error","error":"query timed out"}'), "query timed out"),
        (
            Reply(302, headers={"Location": "https://me:pw@sso.example/login?token=x"}),
            "redirected to sso.example/login,",
        ),
        (Reply(200, b"<!doctype html><title>Sign in", "text/html"), "answers with a web page: a login"),
        (Reply(200, b"vllm:x 1\n"), "not that of a Prometheus API"),
        (Reply(200, b""), "not that of a Prometheus API"),
        (Reply(200, b'{"status":"success","data":{"resultType":"streams","result":[]}}'), "with a streams, not with"),
        (Reply(200, b'{"status":"error","error":"no"}'), "refuses the query: no"),
        (Reply(200, b"[" * 100_000), "not that of a Prometheus API"),
        (Reply(200, b'{"status":"success"}', headers={"Content-Encoding": "br"}), "is compressed (br)"),
        (Reply(200, b"not packed", headers={"Content-Encoding": "gzip"}), "marked as compressed and is not"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), "broke off in the middle"),
    ],
)
async def test_every_failure_is_one_line_with_its_fix(reply: Reply, words: str):
    assert words in await fault_of(lambda _: reply)


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (
            {"user": "me", "password_file": "secret"},
            "401: [prometheus] the login of user and password was refused: check what file",
        ),
        ({"api_key_file": "secret"}, "401: [prometheus] the key was refused: check what file"),
    ],
)
async def test_a_login_that_is_refused_is_not_one_that_is_missing(tmp_path: Path, login: dict[str, str], words: str):
    (tmp_path / "secret").write_text(SECRET)
    settings = {name: str(tmp_path / value) if name.endswith("file") else value for name, value in login.items()}
    said = await fault_of(lambda _: Reply(401), **settings)
    assert words in said
    assert SECRET not in said


async def test_a_server_that_is_not_there_or_silent_or_no_server_of_plain_http(tmp_path: Path):
    with LoopbackServer(lambda _: Reply()) as server:
        server.refuse()
        assert "is the Prometheus up? Its port is 9090" in await fault_at(server.url)
    slow = await fault_of(lambda _: Reply(body=b"x", delay_s=3.0), timeout_s=1.0)
    assert "within 1 s: raise [prometheus].timeout_s" in slow
    certificate = self_signed(tmp_path)
    with LoopbackServer(lambda _: vector([]), tls=certificate) as server:
        assert "tls_ca" in await fault_at(server.url)
        api = PrometheusApi(Prometheus(url=server.url, tls_ca=str(certificate[0])))
        assert await api.query("up", 1.0) == []
        await api.close()
    assert "host name not known" in await fault_at("http://no-such-host.invalid:9090")


async def test_a_secret_that_can_not_be_had_is_named_and_never_shown(tmp_path: Path):
    with LoopbackServer(lambda _: vector([])) as server:
        missing = await fault_at(server.url, api_key_env="NO_SUCH_VARIABLE")
        (tmp_path / "key").write_text(f"{SECRET} and more")
        wrong = await fault_at(server.url, user="me", password_file=str(tmp_path / "key"))
    assert "NO_SUCH_VARIABLE is not set" in missing
    assert wrong.startswith("[prometheus] the password in file")
    assert SECRET not in wrong
    assert not server.requests


async def test_a_range_with_too_many_points_is_not_asked_for():
    api = PrometheusApi(Prometheus(url="http://127.0.0.1:1"))
    for start_s, end_s, step_s in ((0.0, 11_000.0, 1.0), (2.0, 1.0, 1.0), (0.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match="points"):
            await api.query_range("up", start_s, end_s, step_s)


@each_row(
    ("url", "base"),
    [
        ("http://h:9090", "http://h:9090"),
        ("https://h/prometheus/", "https://h:443/prometheus"),
        ("http://h/api/v1", "http://h:80"),
        ("http://h:1/select/0/prometheus/api/v1", "http://h:1/select/0/prometheus"),
        ("http://h:1/a/metrics", "http://h:1/a/metrics"),
        ("http://[::1]:9090/graph", "http://[::1]:9090"),
        ("h:9090", "http://h:9090"),
    ],
)
def test_the_base_url_keeps_the_path_prefix(url: str, base: str):
    assert PrometheusApi(Prometheus(url=url)).base == base
