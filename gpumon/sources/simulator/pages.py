"""The /metrics page of a simulated vLLM server, in the text format and order of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpumon.sources.simulator.cast import Actor
from gpumon.sources.simulator.engine_model import EngineModel
from gpumon.sources.simulator.page_table import (
    CACHE_CONFIG,
    COUNTERS,
    ESTIMATES,
    GAUGES,
    HISTOGRAMS,
    REJECTIONS,
    Family,
    Labels,
)

Block = tuple[str, tuple[str, ...], Callable[[], Iterable[float]]]
"""Header lines, the series' names with their labels, and what reads their values."""

_REQUESTS: Labels = (("handler", "/v1/chat/completions"), ("method", "POST"), ("status", "2xx"))


def go_number(value: float) -> str:
    """A number as Prometheus prints it: like Go, so that a million is 1e+06."""
    text = repr(float(value))
    if not 1e6 <= value < 1e16:
        return text
    whole, _, fraction = text.partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _series(name: str, labels: Labels) -> str:
    text = ",".join(f'{key}="{value}"' for key, value in sorted(labels))
    return f"{name}{{{text}}} " if labels else f"{name} "


def _header(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}"


class MetricsPage:
    """Everything of the page but the numbers is made once; `text` reads the ranks' counters.

    One rank is one process: the page then has `process_*` and `_created` series. Several ranks share a multiprocess
    exporter, which has neither, and puts gauges and histograms before the counters.
    """

    def __init__(self, actor: Actor, ranks: Sequence[EngineModel], started_wall_s: float) -> None:
        self._actor = actor
        self._ranks = tuple(ranks)
        self._started_wall_s = started_wall_s
        self._alone = len(self._ranks) == 1
        blocks = self._single_process() if self._alone else self._multi_process()
        self._blocks: tuple[Block, ...] = tuple(blocks)

    def text(self) -> str:
        """The page as it is now."""
        lines: list[str] = []
        for header, series, values in self._blocks:
            lines.append(header)
            lines.extend(name + go_number(value) for name, value in zip(series, values(), strict=True))
        lines.append("")
        return "\n".join(lines)

    def _single_process(self) -> Iterable[Block]:
        yield from self._process()
        for family in ESTIMATES:
            yield from self._scalars(family, "counter")
        for family in GAUGES:
            yield from self._scalars(family, "gauge")
        for family in COUNTERS:
            yield from self._scalars(family, "counter")
        yield from self._without_engine(*self._rejections())
        for at in range(len(HISTOGRAMS)):
            yield from self._histogram(at)
        yield self._cache_config()
        yield from self._without_engine(*self._http_requests())

    def _multi_process(self) -> Iterable[Block]:
        for family in GAUGES:
            yield from self._scalars(family, "gauge")
        yield self._cache_config()
        for at in range(len(HISTOGRAMS)):
            yield from self._histogram(at)
        for family in (*ESTIMATES, *COUNTERS):
            yield from self._scalars(family, "counter")
        yield from self._without_engine(*self._rejections())
        yield from self._without_engine(*self._http_requests())

    def _labels(self, rank: int, extra: Labels = ()) -> Labels:
        return (("engine", str(rank)), ("model_name", self._actor.model), *extra)

    def _process(self) -> Iterable[Block]:
        series = "python_info"
        version: Labels = (("implementation", "CPython"), ("major", "3"), ("minor", "12"), ("version", "3.12.11"))
        yield _header(series, "Python platform information", "gauge"), (_series(series, version),), lambda: (1.0,)
        name = "process_start_time_seconds"
        text = "Start time of the process since unix epoch in seconds."
        yield _header(name, text, "gauge"), (f"{name} ",), lambda: (self._started_wall_s - 75.0,)

    def _scalars(self, family: Family, kind: str) -> Iterable[Block]:
        name, text, extras, read = family
        ranks = self._ranks
        # The real exporter lists a label value for all engines before the next one.
        order = [(rank, at) for at in range(len(extras)) for rank in range(len(ranks))]
        full = f"{name}_total" if kind == "counter" else name
        series = tuple(_series(full, self._labels(rank, extras[at])) for rank, at in order)

        def values() -> Iterable[float]:
            read_of = [read(rank) for rank in ranks]
            return [read_of[rank][at] for rank, at in order]

        yield _header(full, text, kind), series, values
        if kind == "counter":
            yield from self._created(name, text, [self._labels(rank, extras[at]) for rank, at in order])

    def _created(self, name: str, text: str, labels: Sequence[Labels]) -> Iterable[Block]:
        if self._alone:
            series = tuple(_series(f"{name}_created", each) for each in labels)
            values = (self._started_wall_s,) * len(series)
            yield _header(f"{name}_created", text, "gauge"), series, lambda: values

    def _histogram(self, at: int) -> Iterable[Block]:
        name, text, of = HISTOGRAMS[at]
        histograms = tuple(of(rank) for rank in self._ranks)
        series: list[str] = []
        for rank, histogram in enumerate(histograms):
            labels = self._labels(rank)
            bounds = (*(repr(bound) for bound in histogram.bounds), "+Inf")
            buckets = [_series(f"{name}_bucket", (*labels, ("le", bound))) for bound in bounds]
            total, count = _series(f"{name}_sum", labels), _series(f"{name}_count", labels)
            series += [*buckets, count, total] if self._alone else [total, *buckets, count]

        def values() -> Iterable[float]:
            for histogram in histograms:
                head, tail = ((), (histogram.total,)) if self._alone else ((histogram.total,), ())
                yield from (*head, *histogram.cumulative(), float(histogram.count), *tail)

        yield _header(name, text, "histogram"), tuple(series), values
        yield from self._created(name, text, [self._labels(rank) for rank in range(len(histograms))])

    def _cache_config(self) -> Block:
        limits = self._ranks[0].limits
        tokens = (limits.kv_pool_blocks - 1) * 16
        config = CACHE_CONFIG | {
            "gpu_memory_utilization": str(self._actor.gpu_memory_utilization),
            # As seen on a real server with two ranks: each rank shows the blocks of both, but its own tokens.
            "num_gpu_blocks": str(limits.kv_pool_blocks * len(self._ranks)),
            "kv_cache_size_tokens": str(tokens),
            "kv_cache_max_concurrency": str(round(tokens / limits.max_model_len, 2)),
            "kv_cache_memory_bytes": str(int(self._actor.kv_pool_bytes)),
        }
        name = "vllm:cache_config_info"
        ranks = range(len(self._ranks))
        series = tuple(_series(name, (("engine", str(rank)), *config.items())) for rank in ranks)
        ones = (1.0,) * len(series)
        return _header(name, "Information of the LLMEngine CacheConfig", "gauge"), series, lambda: ones

    def _rejections(self) -> tuple[str, str, list[Labels], Callable[[], Iterable[float]]]:
        name, text, reasons = REJECTIONS
        labels: list[Labels] = [(("model_name", self._actor.model), ("reason", reason)) for reason in reasons]
        # The first reason is the one that the simulated engines have.
        return name, text, labels, lambda: (sum(rank.rejected for rank in self._ranks), *(0.0,) * (len(reasons) - 1))

    def _http_requests(self) -> tuple[str, str, list[Labels], Callable[[], Iterable[float]]]:
        text = "Total number of requests by method, status and handler."
        return "http_requests", text, [_REQUESTS], lambda: (sum(rank.counters.e2e.count for rank in self._ranks),)

    def _without_engine(
        self, name: str, text: str, labels: list[Labels], values: Callable[[], Iterable[float]]
    ) -> Iterable[Block]:
        series = tuple(_series(f"{name}_total", each) for each in labels)
        yield _header(f"{name}_total", text, "counter"), series, values
        yield from self._created(name, text, labels)
