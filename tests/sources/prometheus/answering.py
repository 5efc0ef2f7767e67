"""A scripted Prometheus API on loopback, for what no real one is made to say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gpumon.config.schema import Prometheus
from gpumon.sources.prometheus.api import ApiFault, PrometheusApi
from tests.fakes.http_server import LoopbackServer, Reply, Request


def vector(series: Iterable[tuple[Mapping[str, str], str]], at_s: float = 1000.0, **more: Any) -> Reply:
    """The answer to an instant query."""
    result = [{"metric": dict(labels), "value": [at_s, value]} for labels, value in series]
    return success({"resultType": "vector", "result": result}, **more)


def success(data: object, **more: Any) -> Reply:
    """An answer of Prometheus' API."""
    body = json.dumps({"status": "success", "data": data, **more}, separators=(",", ":"))
    return Reply(body=body.encode(), content_type="application/json")


def asked(request: Request) -> dict[str, str]:
    """The parameters of a query, however it was sent."""
    text = request.body.decode() or urlsplit(request.path).query
    return {name: values[0] for name, values in parse_qs(text).items()}


async def fault_of(answer: Callable[[Request], Reply], **settings: Any) -> str:
    """The fault that a query comes to."""
    with LoopbackServer(answer) as server:
        return await fault_at(server.url, **settings)


async def fault_at(url: str, **settings: Any) -> str:
    """The fault that a query to this server comes to."""
    api = PrometheusApi(Prometheus(url=url, **settings))
    with pytest.raises(ApiFault) as found:
        await api.query("up", 1000.0)
    await api.close()
    text = found.value.text
    assert text.isprintable()
    assert len(text) < 330
    return text


class Api:
    """A Prometheus with just these series at every moment, scraped at `scraped_s`. Labels as Prometheus stores them."""

    def __init__(self) -> None:
        self.up: list[tuple[dict[str, str], float, float]] = []
        """Labels, value, Unix time of the scrape."""
        self.series: dict[str, list[tuple[dict[str, str], str]]] = {"engines": [], "gpus": [], "own": [], "started": []}
        self.day_before: dict[str, list[tuple[dict[str, str], str]]] = {}
        """Begin of a query of the day before -> its answer."""
        self.refused: set[str] = set()
        """Kinds of queries that it does not want."""
        self.limited: tuple[str, ...] = ()
        """Begins of the queries that are beyond its limit of series."""
        self.warnings: list[str] = []
        """What it says of each answer with the series of pages."""
        self.up_warnings: list[str] = []
        """The same of each answer with `up`."""
        self.scrape_s = 15.0
        """Seconds between the scrapes that a range query of `up` shows."""
        self.up_once: list[dict[str, str]] = []
        self.exporters_once: list[tuple[dict[str, str], str]] = []
        self.queries: list[str] = []
        self.asked_s: list[float] = []
        """Moments that were asked for."""
        self.now_s: Callable[[], float] = time.time
        """What it takes for now: its clock, unless it answers as of a while ago."""
        self.date_s: Callable[[], float] | None = None
        """Its clock, where it tells that in a header."""
        self.undated: list[tuple[dict[str, str], float]] = []
        """Labels and Unix time of the pages without `up`."""
        self.server = LoopbackServer(self._dated)

    def target(self, labels: dict[str, str], scraped_s: float = 990.0, up: float = 1.0) -> dict[str, str]:
        """A target that was scraped; returns its labels."""
        self.up.append((labels, up, scraped_s))
        return labels

    def engine(self, labels: dict[str, str], tokens: float = 7.0, **more: str) -> None:
        """A little vLLM."""
        own = {"engine": "0", "model_name": "m", **more}
        for name, value in (("vllm:generation_tokens_total", tokens), ("vllm:num_requests_running", 1.0)):
            self.series["engines"].append(({"__name__": name, **own, **labels}, str(value)))

    def gpu(self, labels: dict[str, str], uuid: str, index: int = 0, **more: str) -> None:
        """A GPU of a dcgm-exporter."""
        own = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": str(index), "UUID": uuid, "modelName": "NVIDIA H100", **more}
        self.series["gpus"].append(({**own, **labels}, "50"))

    def _dated(self, request: Request) -> Reply:
        reply = self._answer(request)
        date = {} if self.date_s is None else {"Date": formatdate(self.date_s(), usegmt=True)}
        return reply._replace(headers={**reply.headers, **date})

    def _answer(self, request: Request) -> Reply:
        query = asked(request)["query"]
        self.queries.append(query)
        if query == "time()":
            now_s = self.now_s()
            return success({"resultType": "scalar", "result": [now_s, str(now_s)]})
        if "start" in asked(request):
            return success({"resultType": "matrix", "result": []})
        at_s = float(asked(request)["time"])
        self.asked_s.append(at_s)
        if any(query.startswith(begin) for begin in self.limited):
            wrong = {"status": "error", "errorType": "execution", "error": "the query hit the max number of series"}
            return Reply(422, json.dumps(wrong).encode(), "application/json")
        if query.startswith("timestamp("):
            pages = self.undated if " or max by (" in query else []
            return vector([(labels, str(at)) for labels, at in [(one[0], one[2]) for one in self.up] + pages], at_s)
        if query.endswith("s]"):
            values = [[990.0 + self.scrape_s * each, "1"] for each in range(-4, 1)]
            result = [{"metric": labels, "values": values} for labels, _, _ in self.up]
            return success({"resultType": "matrix", "result": result})
        if "[1d:" in query or "[2d:" in query:
            kinds = (series for begin, series in self.day_before.items() if query.startswith(begin))
            return vector(next(kinds, []), at_s)
        if query.startswith("kube_node_spec_unschedulable"):
            return vector([], at_s)
        if query.startswith("count by "):
            return vector([], at_s)
        if query.startswith("group by "):
            return vector(self.exporters_once, at_s)
        if query.startswith("last_over_time(up"):
            return vector([({"__name__": "up", **labels}, "1") for labels in self.up_once], at_s)
        if query.startswith("up"):
            up = [({"__name__": "up", **labels}, str(value)) for labels, value, _ in self.up]
            return vector(up, at_s, warnings=self.up_warnings)
        kinds = (("gpumon_", "own"), ("process_start", "started"), ("DCGM_FI", "gpus"), ("vllm:", "engines"))
        kind = next(kind for mark, kind in kinds if mark in query)
        if kind in self.refused:
            wrong = {"status": "error", "errorType": "bad_data", "error": "regular expressions on names are off"}
            return Reply(400, json.dumps(wrong).encode(), "application/json")
        return vector(self.series[kind], at_s, warnings=self.warnings)
