"""Three hours of a simulated fleet in a Prometheus, and what the simulator knows of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.fakes.backfill import Lines, Scraped, store
from tests.perf.farm import MODELS
from tests.perf.farm_pages import DcgmPages, EnginePages, Gpu, Load, Model, gpu_of

SCRAPE_S: Final = 120.0
HOURS: Final = 3.0
SPAN_S: Final = HOURS * 3600.0
RESTART_S: Final = 3600.0
IDLE_S: Final = 1.5 * 3600.0
SILENT_S: Final = (2.0 * 3600.0, 2.5 * 3600.0)
"""When an engine restarts, another has nothing to do any more, and an exporter does not answer: since the begin."""
USUAL: Final = Load("usual", 1.0, 1.0, 0.0, 0.45)
PRICES: Final = "[prices]\ngpu_hour = 2.0\nkwh = 0.25\n"

_FIRING: Final = 'alertstate="firing",'
KV_FULL: Final = (
    f'alertname="GpumonKvCacheFull",{_FIRING}severity="warning",job="vllm",instance="gpu-0:8000",node="gpu-0",'
    'namespace="chat",model_name="meta-llama/Llama-3.1-8B-Instruct"'
)
KV_FULL_S: Final = (3600.0, 5400.0)
XID: Final = (
    f'alertname="GpumonXid",{_FIRING}severity="critical",job="dcgm",instance="gpu-1:9400",node="gpu-1",gpu="2",'
    'UUID="GPU-1-2",Hostname="gpu-1"'
)
XID_S: Final = (7200.0, 7320.0)
IDLE: Final = f'alertname="GpumonGpuIdleVramHeld",{_FIRING}severity="info",job="dcgm",instance="gpu-0:9400",gpu="1"'
"""Alerts as the rules of gpumon make them; the last one is about money, and no incident."""

QUEUE: Final = (
    'kind="engine",thing="gpu-2:8000",family="limit",scope="vllm:8000",code="queue_limit",cause="max_num_seqs",'
    'level="warn",confidence="high",job="gpumon",instance="gpu-2:9836",node="gpu-2"'
)
"""A verdict as the gpumon of a host exports it."""
QUEUE_S: Final = (3000.0, 3600.0)
_OF_QUEUE: Final = 'kind="engine",thing="gpu-2:8001",family="limit",job="gpumon",instance="gpu-2:9836",node="gpu-2"'
FROM_QUEUE: Final = f'{_OF_QUEUE},scope="vllm:8001",code="kv_cache_full",cause="kv_full",level="warn",confidence="high"'
CAUSED_BY_QUEUE: Final = f'{_OF_QUEUE},id="engine:gpu-2:8000:limit"'
"""A verdict that came of it a little later."""
_OF_THAT: Final = 'kind="engine",thing="gpu-2:8002",family="limit",job="gpumon",instance="gpu-2:9836",node="gpu-2"'
FROM_THAT: Final = f'{_OF_THAT},scope="vllm:8002",code="queue_limit",cause="slots",level="warn",confidence="high"'
CAUSED_BY_THAT: Final = f'{_OF_THAT},id="engine:gpu-2:8001:limit"'
"""A verdict that came of that one, as it was said while nothing was known of the first."""

Page = Callable[[float], bytes]


class Truth(NamedTuple):
    """What the simulator knows of a group."""

    gpu_hours: float
    unused_hours: float
    decode_tokens: float
    prompt_tokens: float
    requests: float
    within_1s: float
    """Requests with a TTFT of at most 1 s, as far as a bucket of the page tells it."""
    kwh: float


class Served(NamedTuple):
    """One engine: its pages, when it ran since the begin, and when it works."""

    page: Page
    spans: tuple[tuple[float, float], ...]
    """Unix times from which to which its counters grow, a restart between two of them."""


class PastFleet:
    """The fleet from `begin_s` on (Unix time)."""

    def __init__(self, begin_s: float) -> None:
        self.begin_s = begin_s
        self.end_s = begin_s + SPAN_S
        self.targets: list[Scraped] = []
        self._free = Gpu("", 0.0, 0.0, 0.0, 0.0, 71.0)
        chat = self._engine(MODELS["8b"], "gpu-0", 8000, "chat", {"team": "apps"})
        search = self._idle_later(MODELS["moe"], "gpu-0", 8001, "search", {"team": "apps"})
        large = self._restarted(MODELS["70b"], "gpu-1", 8000, "search", {"team": "research"})
        bare = self._engine(MODELS["8b"], "gpu-2", 8000, "", {"team": "edge"})
        on_0 = [*self._cards("8b", 1, 0, 0, "chat"), *self._cards("moe", 2, 0, 1, "search"), self._card(0, 3)]
        on_1 = self._cards("70b", 4, 1, 0, "search")
        on_2 = [*self._cards("8b", 1, 2, 0, ""), self._card(2, 1)]
        idle_h = HOURS - IDLE_S / 3600.0
        silent_h = (SILENT_S[1] - SILENT_S[0]) / 3600.0
        watts = self._exporter("gpu-0", on_0, {})
        watts_1 = self._exporter("gpu-1", on_1, {}, silent=True)
        watts_2 = self._exporter("gpu-2", on_2, {"team": "edge"})
        self.truth: Mapping[str, Truth] = {
            "chat": self._truth(1, HOURS, 0.0, watts[:1], HOURS, chat),
            "search": self._truth(6, HOURS, 2 * idle_h, watts[1:3], HOURS, search, large),
            "": self._truth(3, HOURS, 2 * HOURS, [watts[3], *watts_2], HOURS, bare),
        }
        seen_h = HOURS - silent_h
        silent = self._truth(4, -silent_h, 0.0, watts_1, seen_h)
        whole = self.truth["search"]
        both = whole._replace(gpu_hours=whole.gpu_hours + silent.gpu_hours, kwh=whole.kwh + silent.kwh)
        self.truth = {**self.truth, "search": both}

    def store(self, folder: Path, *, rules: bool = True) -> None:
        """Write it into the storage of a Prometheus; with `rules` as if those of gpumon had been evaluated."""
        lines = []
        late_s = self._times(QUEUE_S[0] + 60.0, QUEUE_S[1])
        if rules:
            lines = [
                Lines('gpumon:gpu_busy:ratio{job="dcgm",instance="gpu-0:9400"}', self._times(0.0, SPAN_S)),
                Lines(f"ALERTS{{{KV_FULL}}}", self._times(*KV_FULL_S)),
                Lines(f"ALERTS{{{XID}}}", self._times(*XID_S)),
                Lines(f"ALERTS{{{IDLE}}}", self._times(0.0, SPAN_S)),
                Lines(f"gpumon_verdict{{{QUEUE}}}", self._times(*QUEUE_S)),
                Lines(f"gpumon_verdict{{{FROM_QUEUE}}}", late_s),
                Lines(f"gpumon_verdict_caused_by_info{{{CAUSED_BY_QUEUE}}}", late_s),
                Lines(f"gpumon_verdict{{{FROM_THAT}}}", late_s),
                Lines(f"gpumon_verdict_caused_by_info{{{CAUSED_BY_THAT}}}", late_s),
            ]
        store(folder, self.targets, SCRAPE_S, lines)

    def _times(self, from_s: float, to_s: float) -> tuple[float, ...]:
        return tuple(self.begin_s + from_s + number * SCRAPE_S for number in range(int((to_s - from_s) / SCRAPE_S) + 1))

    def _engine(self, model: Model, host: str, port: int, namespace: str, labels: Mapping[str, str]) -> Served:
        pages = EnginePages(model, USUAL, phase=port % 7, started_s=self.begin_s - 86400.0)
        return self._served(pages.page, host, port, namespace, labels, ((self.begin_s, self.end_s),))

    def _idle_later(self, model: Model, host: str, port: int, namespace: str, labels: Mapping[str, str]) -> Served:
        pages = EnginePages(model, USUAL, phase=1.0, started_s=self.begin_s - 86400.0)
        idle_s = self.begin_s + IDLE_S

        def page(at_s: float) -> bytes:
            if at_s <= idle_s:
                return pages.page(at_s)
            return re.sub(rb"(vllm:num_requests_running\{[^}]*\}) \S+", rb"\1 0.0", pages.page(idle_s))

        return self._served(page, host, port, namespace, labels, ((self.begin_s, idle_s),))

    def _restarted(self, model: Model, host: str, port: int, namespace: str, labels: Mapping[str, str]) -> Served:
        began_s = self.begin_s + RESTART_S
        before = EnginePages(model, USUAL, phase=2.0, started_s=self.begin_s - 86400.0)
        after = EnginePages(model, USUAL, phase=2.0, started_s=began_s)

        def page(at_s: float) -> bytes:
            return (after if at_s >= began_s else before).page(at_s)

        spans = ((self.begin_s, began_s - 1e-3), (began_s, self.end_s))
        return self._served(page, host, port, namespace, labels, spans)

    def _served(
        self,
        page: Page,
        host: str,
        port: int,
        namespace: str,
        labels: Mapping[str, str],
        spans: tuple[tuple[float, float], ...],
    ) -> Served:
        target = {"job": "vllm", "instance": f"{host}:{port}", "node": host, **labels}
        if namespace:
            target |= {"namespace": namespace, "pod": f"{namespace}-{host}-{port}"}
        self.targets.append(Scraped(target, page, self.begin_s, self.end_s))
        return Served(page, spans)

    def _cards(self, kind: str, count: int, host: int, first: int, namespace: str) -> list[Gpu]:
        model = MODELS[kind]
        port = 8001 if kind == "moe" else 8000
        pod = f"{namespace}-gpu-{host}-{port}"
        cards = []
        for number in range(count):
            uuid = f"GPU-{host}-{first + number}"
            cards.append(gpu_of(model, USUAL, uuid, pod if namespace else ""))
        return cards

    def _card(self, host: int, number: int) -> Gpu:
        return self._free._replace(uuid=f"GPU-{host}-{number}")

    def _exporter(self, host: str, cards: list[Gpu], labels: Mapping[str, str], *, silent: bool = False) -> list[float]:
        """Adds the exporter, whose page has the namespace of each pod; mean watts of its GPUs."""
        by_namespace = {card.pod.partition("-")[0] for card in cards if card.pod}
        pages = DcgmPages(host, cards, started_s=self.begin_s - 86400.0, namespace="NAMESPACE" if by_namespace else "")

        def page(at_s: float) -> bytes:
            if silent and SILENT_S[0] < at_s - self.begin_s < SILENT_S[1]:
                return b""
            return re.sub(rb'namespace="NAMESPACE",pod="(\w+)-', rb'namespace="\1",pod="\1-', pages.page(at_s))

        target = {"job": "dcgm", "instance": f"{host}:9400", "node": host, **labels}
        self.targets.append(Scraped(target, page, self.begin_s, self.end_s))
        return [card.power_w for card in cards]

    def _truth(
        self, gpus: int, hours: float, unused: float, watts: list[float], powered_h: float, *engines: Served
    ) -> Truth:
        return Truth(
            gpu_hours=gpus * hours,
            unused_hours=unused,
            decode_tokens=sum(_grown(engine, rb"vllm:generation_tokens_total{") for engine in engines),
            prompt_tokens=sum(_grown(engine, rb"vllm:prompt_tokens_total{") for engine in engines),
            requests=sum(_grown(engine, rb"vllm:time_to_first_token_seconds_count{") for engine in engines),
            within_1s=sum(
                _grown(engine, b"vllm:time_to_first_token_seconds_bucket{", b'le="1.0"') for engine in engines
            ),
            kwh=sum(watts) * powered_h / 1000.0,
        )


def _grown(engine: Served, name: bytes, label: bytes = b"") -> float:
    """Growth of a counter over the spans in which its engine ran."""
    grown = 0.0
    for begin_s, end_s in engine.spans:
        grown += _value(engine.page(end_s), name, label) - _value(engine.page(begin_s), name, label)
    return grown


def _value(page: bytes, name: bytes, label: bytes) -> float:
    for line in page.splitlines():
        if line.startswith(name) and label in line:
            return float(line.rpartition(b" ")[2])
    raise AssertionError(name)
