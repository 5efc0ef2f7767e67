"""The /metrics page of a simulated vLLM 0.32 server, in the text format and order of the real one.

`vllm_page.txt` has its metrics: each with the attributes of an `EngineModel` that it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from operator import add, attrgetter
from typing import Any, Final, NamedTuple

from gpumon.demo.engine_model import EngineModel
from gpumon.demo.scenario import Actor

PageLabels = tuple[tuple[str, str], ...]
"""Names and values of the labels of one series."""
_Values = Callable[[], Iterable[float]]


class PageBlock(NamedTuple):
    """The lines of one metric."""

    header: str
    """The lines HELP and TYPE."""
    series: tuple[str, ...]
    """Names with labels, each with the space before its value."""
    values: _Values
    """Reads the value of each series."""


STARTING_S: Final = 75.0
"""Seconds from the start of a process to its first answer: weights, compilation, CUDA graphs."""
_REJECTIONS: Final = ("max_num_queued_reqs", "max_num_queued_tokens")
"""Reasons of vllm:admission_rejections, the one vLLM counter without an `engine` label."""
CACHE_CONFIG: Final = dict(
    re.findall(
        r"(\S+)=(\S+)",
        """
        _block_size_resolved=True block_size=16 cache_dtype=auto cache_hit_alignment_tokens=None
        effective_attention_block_size=16 enable_mamba_shared_prefix_checkpoint=False enable_prefix_caching=True
        hash_block_size=None is_attention_free=False kv_cache_dtype_skip_layers=[] kv_cache_layout=None
        kv_offloading_backend=native kv_offloading_size=None kv_sharing_fast_prefill=False mamba_block_size=None
        mamba_cache_dtype=auto mamba_cache_mode=none mamba_page_size_padded=None mamba_ssm_cache_dtype=float32
        num_cpu_blocks=None num_gpu_blocks_override=None prefix_cache_retention_interval=0
        prefix_caching_hash_algo=sha256 prefix_match_unit=None replayssm_buffer_len=16 skip_page_size_padded=None
        sliding_window=None swa_bounded_replay=True use_kda_recoverssm=False use_replayssm=False
        user_specified_block_size=False""",
    )
)
"""Labels of vllm:cache_config_info that do not depend on the server."""
_BLOCK_SIZE: Final = int(CACHE_CONFIG["block_size"])
"""Tokens of a KV block."""


MOST_LORA_SERIES: Final = 32
"""Series of vllm:lora_requests_info that are kept: the real exporter keeps all that ever were."""


class PageFamily(NamedTuple):
    """One metric of each rank."""

    kind: str
    """counter, gauge, histogram; or estimate, a counter that stays 0 without --enable-mfu-metrics."""
    feature: str
    """Feature that a server must be set up with to have it; empty: none."""
    name: str
    label: str
    """`LABEL=VALUE,VALUE`: what tells its series apart; empty where it has one."""
    attributes: str
    """Attribute of a rank for each series; 0: nothing counts it."""
    text: str

    def readers(self) -> list[Callable[[EngineModel], Any]]:
        """Functions that read the value of each series from a rank."""
        readers: list[Callable[[EngineModel], Any]] = []
        for name in self.attributes.split():
            if name == "0":
                readers.append(lambda _: 0.0)
            else:
                readers.append(attrgetter(name))
        return readers


_LINES: Final = files(__package__).joinpath("vllm_page.txt").read_text(encoding="utf-8").splitlines()


def _family(line: str) -> PageFamily:
    """The metric of a line of `vllm_page.txt`; its first lines name the columns."""
    kind, *others = map(str.strip, line.split("|", 4))
    kind, _, feature = kind.partition("/")
    return PageFamily(kind, feature, *others)


FAMILIES: Final = [_family(line) for line in _LINES if not line.startswith("#")]


@lru_cache(maxsize=4096)
def go_number(value: float) -> str:
    """A number as Prometheus prints it: like Go, so that a million is 1e+06."""
    text = repr(float(value))
    if not 1e6 <= value < 1e16:
        return text
    whole, _, fraction = text.partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _block(name: str, text: str, kind: str, labels: Iterable[PageLabels], values: _Values) -> PageBlock:
    """The block of a metric with one series for each of the labels."""
    series = tuple(_series(name, series_labels) for series_labels in labels)
    return PageBlock(f"# HELP {name} {text}\n# TYPE {name} {kind}", series, values)


def _series(name: str, labels: PageLabels) -> str:
    """The line of a series up to its value."""
    text = ",".join(f'{key}="{value}"' for key, value in sorted(labels))
    if labels:
        return f"{name}{{{text}}} "
    return f"{name} "


def _text(block: PageBlock, values: Iterable[float]) -> str:
    """Lines of a block with these values."""
    lines = [block.header]
    lines += map(add, block.series, map(go_number, values))
    lines.append("")
    return "\n".join(lines)


def _is_hidden(block: PageBlock, actor: Actor) -> bool:
    """Whether the actor's page does not have this metric."""
    first_series = block.series[0]
    return any(name in first_series for name in actor.hidden)


class VllmPage:
    """Everything of the page but the numbers is made once; `text` reads the ranks' counters.

    One rank is one process: the page then has `process_*` and `_created` series. Several ranks share a multiprocess
    exporter, which has neither, and puts gauges and histograms before the counters.
    """

    def __init__(
        self, actor: Actor, ranks: Sequence[EngineModel], started_wall_s: float, loading_s: float = STARTING_S
    ) -> None:
        """It serves since `started_wall_s`, and its process started `loading_s` before."""
        self._loading_s = loading_s
        self._actor = actor
        self._ranks = tuple(ranks)
        self._started_wall_s = started_wall_s
        self._alone = len(self._ranks) == 1
        blocks_of_kind: dict[str, list[PageBlock]] = {"estimate": [], "gauge": [], "counter": [], "histogram": []}
        for family in FAMILIES:
            if not family.feature or family.feature in actor.features:
                family_blocks = self._histogram if family.kind == "histogram" else self._scalars
                blocks_of_kind[family.kind] += family_blocks(family)
        blocks_of_kind["counter"] += self._accepted_by_position()
        self._loras: dict[PageLabels, float] = {}
        self._weight_updates: float | None = None
        """Operations of a weight update in flight; None before the first, as the real server makes the series then."""
        config = self._cache_config()
        rejections = self._rejections()
        if self._alone:
            blocks = (
                *self._process(),
                *blocks_of_kind["estimate"],
                *blocks_of_kind["gauge"],
                *blocks_of_kind["counter"],
                *rejections,
                *blocks_of_kind["histogram"],
                config,
            )
        else:
            blocks = (
                *blocks_of_kind["gauge"],
                config,
                *blocks_of_kind["histogram"],
                *blocks_of_kind["estimate"],
                *blocks_of_kind["counter"],
                *rejections,
            )
        self._blocks = tuple(block for block in blocks if not _is_hidden(block, actor))
        self._written: list[tuple[tuple[float, ...], str]] = [((), "")] * len(self._blocks)
        """Values and text of each block when the page was read last: between two polls many stay the same."""

    def text(self, wall_s: float = 0.0) -> str:
        """The page as it is at a Unix time."""
        parts: list[str] = []
        for index, block in enumerate(self._blocks):
            values = tuple(block.values())
            if self._written[index][0] != values:
                self._written[index] = values, _text(block, values)
            parts.append(self._written[index][1])
        # Which series these have changes while the server runs.
        for block in (*self._lora_requests(wall_s), *self._answers(), *self._operations()):
            parts.append(_text(block, block.values()))
        return "".join(parts)

    def _labels(self, rank: int, *extra: tuple[str, str]) -> PageLabels:
        """The labels of a series of one rank."""
        return (("engine", str(rank)), ("model_name", self._actor.model), *extra)

    def _labels_of_ranks(self, *extra: tuple[str, str]) -> list[PageLabels]:
        """The labels of one series for each rank."""
        return [self._labels(rank, *extra) for rank in range(len(self._ranks))]

    def _process(self) -> Iterable[PageBlock]:
        """The series of the Python process."""
        version: PageLabels = (("implementation", "CPython"), ("major", "3"), ("minor", "12"), ("version", "3.12.11"))
        yield _block("python_info", "Python platform information", "gauge", (version,), lambda: (1.0,))
        text = "Start time of the process since unix epoch in seconds."
        started_s = self._started_wall_s - self._loading_s
        yield _block("process_start_time_seconds", text, "gauge", ((),), lambda: (started_s,))

    def _scalars(self, family: PageFamily) -> Iterable[PageBlock]:
        """The series of a counter or gauge."""
        ranks = self._ranks
        (label, _, values) = family.label.partition("=")
        labels: list[PageLabels] = []
        # The real exporter lists a label value for all engines before the next one.
        for value in values.split(","):
            if label:
                labels += self._labels_of_ranks((label, value))
            else:
                labels += self._labels_of_ranks()
        readers = family.readers()

        def read() -> Iterable[float]:
            for reader in readers:
                yield from map(reader, ranks)

        name = f"vllm:{family.name}"
        if family.kind == "gauge":
            return (_block(name, family.text, "gauge", labels, read),)
        return self._counter(name, family.text, labels, read)

    def _counter(self, name: str, text: str, labels: Sequence[PageLabels], values: _Values) -> Iterable[PageBlock]:
        """The series of a counter, with the times of their creation."""
        yield _block(f"{name}_total", text, "counter", labels, values)
        yield from self._created(name, text, labels)

    def _created(self, name: str, text: str, labels: Sequence[PageLabels]) -> Iterable[PageBlock]:
        """When each series was created: with the process. Several ranks do not show it."""
        if self._alone:
            values = (self._started_wall_s,) * len(labels)
            yield _block(f"{name}_created", text, "gauge", labels, lambda: values)

    def _histogram(self, family: PageFamily) -> Iterable[PageBlock]:
        """The series of a histogram. With one rank, the real exporter writes the sum last; with several, first."""
        name = f"vllm:{family.name}"
        alone = self._alone
        (reader,) = family.readers()
        histograms = [reader(rank) for rank in self._ranks]
        series: list[str] = []
        for rank, histogram in enumerate(histograms):
            labels = self._labels(rank)
            bounds = (*(repr(bound) for bound in histogram.bounds), "+Inf")
            buckets = [_series(f"{name}_bucket", (*labels, ("le", bound))) for bound in bounds]
            total = _series(f"{name}_sum", labels)
            count = _series(f"{name}_count", labels)
            if alone:
                series += [*buckets, count, total]
            else:
                series += [total, *buckets, count]

        def values() -> Iterable[float]:
            for histogram in histograms:
                if not alone:
                    yield histogram.total
                yield from histogram.cumulative()
                yield float(histogram.count)
                if alone:
                    yield histogram.total

        block = _block(name, family.text, "histogram", (), values)
        yield block._replace(series=tuple(series))
        yield from self._created(name, family.text, self._labels_of_ranks())

    def _cache_config(self) -> PageBlock:
        """The series whose labels are the settings of the KV cache."""
        limits = self._ranks[0].limits
        ranks = range(len(self._ranks))
        tokens = (limits.kv_pool_blocks - 1) * _BLOCK_SIZE  # without the null block
        config = CACHE_CONFIG | {
            "enable_prefix_caching": str("--no-enable-prefix-caching" not in self._actor.options),
            "gpu_memory_utilization": str(self._actor.gpu_memory_utilization),
            # As seen on a real server with two ranks: each rank shows the blocks of both, but its own tokens.
            "num_gpu_blocks": str(limits.kv_pool_blocks * len(ranks)),
            "kv_cache_size_tokens": str(tokens),
            "kv_cache_max_concurrency": str(round(tokens / limits.max_model_len, 2)),
            "kv_cache_memory_bytes": str(int(self._actor.kv_pool_bytes)),
        }
        labels = [(("engine", str(rank)), *config.items()) for rank in ranks]
        text = "Information of the LLMEngine CacheConfig"
        return _block("vllm:cache_config_info", text, "gauge", labels, lambda: (1.0,) * len(ranks))

    def _rejections(self) -> Iterable[PageBlock]:
        """Rejected requests, of which the simulated engines have the first reason only."""
        ranks = self._ranks
        model = ("model_name", self._actor.model)
        return self._counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            [(model, ("reason", reason)) for reason in _REJECTIONS],
            lambda: (sum(rank.rejected for rank in ranks), 0.0),
        )

    def _answers(self) -> Iterable[PageBlock]:
        """Answers by HTTP status, each from its first on."""
        counts = {
            "2xx": sum(rank.counters.answered for rank in self._ranks),
            "4xx": sum(rank.counters.refused for rank in self._ranks),
            "5xx": sum(rank.counters.failed for rank in self._ranks),
        }
        shown = {status: count for status, count in counts.items() if count or status == "2xx"}
        labels = [(("handler", "/v1/chat/completions"), ("method", "POST"), ("status", status)) for status in shown]
        text = "Total number of requests by method, status and handler."
        return self._counter("http_requests", text, labels, shown.values)

    def note_weight_updates(self, operations: int) -> None:
        """Show so many operations of a weight update in flight from now on."""
        if operations or self._weight_updates is not None:
            self._weight_updates = float(operations)

    def _operations(self) -> Iterable[PageBlock]:
        """Operations of a weight update that are in flight."""
        updates = self._weight_updates
        if updates is not None:
            name = "vllm:rl_weight_update_operations_in_flight"
            text = "Weight-transfer operations currently awaited."
            yield _block(name, text, "gauge", ((("operation", "update"),),), lambda: (updates,))

    def _accepted_by_position(self) -> Iterable[PageBlock]:
        """Accepted tokens by their place in the draft, of a server with speculation."""
        speculation = self._actor.speculation
        if speculation is None:
            return ()
        ranks = self._ranks
        positions = range(speculation.draft_tokens)

        def values() -> Iterable[float]:
            for position in positions:
                for rank in ranks:
                    yield float(int(rank.counters.accepted_at[position]))

        labels = [label for position in positions for label in self._labels_of_ranks(("position", str(position)))]
        text = "Accepted tokens per draft position."
        return self._counter("vllm:spec_decode_num_accepted_tokens_per_pos", text, labels, values)

    def _lora_requests(self, wall_s: float) -> Iterable[PageBlock]:
        """Adapters of the requests that run and wait, as labels; the value is when it was so, and the newest counts."""
        max_loras = self._ranks[0].limits.max_loras
        if not max_loras:
            return
        running: set[str] = set()
        waiting: set[str] = set()
        for rank in self._ranks:
            running.update(rank.running_adapters)
            waiting.update(rank.waiting_adapters)
        labels: PageLabels = (
            ("max_lora", str(max_loras)),
            ("running_lora_adapters", ",".join(sorted(running))),
            ("waiting_lora_adapters", ",".join(sorted(waiting))),
        )
        self._loras.pop(labels, None)  # what is set anew goes to the end: the oldest are dropped first
        self._loras[labels] = wall_s
        while len(self._loras) > MOST_LORA_SERIES:
            del self._loras[next(iter(self._loras))]
        text = "Running stats on lora requests."
        yield _block("vllm:lora_requests_info", text, "gauge", self._loras, self._loras.values)
