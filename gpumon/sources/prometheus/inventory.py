"""Inventory of a Prometheus: models, GPU types, KV pools, and GPUs of an engine, as the fleet's screen has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.config.schema import Config
from gpumon.readings.fleet import HostFrame
from gpumon.readings.missing import Missing
from gpumon.sources.engines.vllm import CACHE_CONFIG_INFO, MAMBA_SETTINGS
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.queries import TIME_FUNCTION
from gpumon.sources.prometheus.source import FleetSource

_SERVED: Final = (
    'group by (job, instance, model_name) ({__name__=~"vllm:num_requests_running|sglang:num_running_reqs|'
    'llamacpp:requests_processing"%s})'
)


_MOST_SIZE: Final = 1e15
"""Tokens or blocks from which on a number is the size of no pool."""


class KvPool(NamedTuple):
    """KV pool of one rank."""

    tokens: float = 0.0
    in_tokens: bool = False
    """The engine says it in tokens: else it is blocks x block size, which layers of several kinds share."""


class ScrapedThings(NamedTuple):
    """The things of a Prometheus that recording rules are made for."""

    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """DCGM's `modelName`s."""
    pools: Mapping[str, KvPool] = {}
    """By model, where all of its engines have the same."""
    served: bool = False
    """Some `gpumon serve-metrics` is scraped."""
    sizes: Mapping[str, Mapping[int, int]] = {}
    """Model -> GPUs of an engine -> how many of its engines have so many, as far as that is known."""
    sliced: frozenset[str] = frozenset()
    """Models of which engines run on MIG slices."""


async def ask_inventory(config: Config) -> ScrapedThings:
    """Ask the Prometheus of the config. Raises ApiFault; ValueError where its URL is malformed."""
    match = config.prometheus.match.strip().strip(",")
    more_labels = f", {match}" if match else ""
    source = FleetSource(config.prometheus, config.model, config.endpoint)
    try:
        now = await source.api.query(TIME_FUNCTION)
        frame = await source.frame(now[0].value if now else None)
        if not frame.answered:
            raise ApiFault(frame.faults[0].text)
        engines = [sample.series for sample in await source.api.query(_SERVED % more_labels)]
        served = await source.api.query(f"gpumon_build_info{{{match}}}")
        pools = [sample.series for sample in await source.api.query(f"{CACHE_CONFIG_INFO}{{{match}}}")]
    finally:
        await source.close()
    sizes, sliced = _engine_sizes(frame.hosts)
    models = {engine.labels.get("model_name", "") for engine in engines}
    gpu_types: set[str] = set()
    for host in frame.hosts:
        gpu_types.update(gpu.name for gpu in host.gpus)
    return ScrapedThings(
        models=tuple(sorted(models - {""})),
        gpus=tuple(sorted(gpu_types - {""})),
        pools=_common_pools(pools, engines),
        served=bool(served),
        sizes=sizes,
        sliced=frozenset(sliced),
    )


def _engine_sizes(hosts: Sequence[HostFrame]) -> tuple[dict[str, Counter[int]], set[str]]:
    """By model, how many engines have so many GPUs; and the models of which engines run on MIG slices."""
    sizes: dict[str, Counter[int]] = {}
    sliced: set[str] = set()
    for host in hosts:
        for reading in host.engines:
            # Where its GPUs are not known, as many as it has ranks.
            gpus = max(len(reading.gpus), reading.gpu_count)
            size = gpus or reading.tp * (reading.pp or 1) * (reading.dp or 1)
            if any(uuid.startswith("MIG-") for uuid in reading.gpus):
                sliced.add(reading.model)
            elif size and reading.model:
                sizes.setdefault(reading.model, Counter())[size] += 1
        for model, size in _own_sizes(host):
            sizes.setdefault(model, Counter())[size] += 1
    return sizes, sliced


def _own_sizes(host: HostFrame) -> list[tuple[str, int]]:
    """Model and number of GPUs of each engine that a host's own gpumon tells of."""
    if host.exported_snapshot is None:
        return []
    sizes: list[tuple[str, int]] = []
    for engine in host.exported_snapshot.engines:
        count = engine.hardware.gpu_count
        if engine.model and not isinstance(count, Missing):
            sizes.append((engine.model, round(count)))
    return sizes


def _common_pools(configs: Sequence[Series], engines: Sequence[Series]) -> dict[str, KvPool]:
    """Model -> KV pool of a rank, where all of its engines have the same."""
    models = {_target_of(engine): engine.labels.get("model_name", "") for engine in engines}
    pages: dict[tuple[str | None, str | None], list[Mapping[str, str]]] = {}
    for config in configs:
        pages.setdefault(_target_of(config), []).append(config.labels)
    sizes: dict[str, set[KvPool]] = {}
    for target, ranks in pages.items():
        pools = sizes.setdefault(models.get(target, ""), set())
        pools.update(_pool_of_rank(labels, len(ranks)) for labels in ranks)
    common = {}
    for model, pools in sizes.items():
        pool = next(iter(pools))
        if model and len(pools) == 1 and pool.tokens > 0.0:
            common[model] = pool
    return common


def _target_of(series: Series) -> tuple[str | None, str | None]:
    """Job and address of the target that a series is of."""
    return series.labels.get("job"), series.labels.get("instance")


def _pool_of_rank(labels: Mapping[str, str], ranks: int) -> KvPool:
    """The pool as the engine says it, else blocks x block size over the ranks of its page."""
    size = _positive(labels.get("kv_cache_size_tokens", ""))
    if size or any(labels.get(name, "None") != "None" for name in MAMBA_SETTINGS):
        return KvPool(size, in_tokens=True)
    blocks = _positive(labels.get("num_gpu_blocks", ""))
    return KvPool(blocks * _positive(labels.get("block_size", "")) / ranks)


def _positive(text: str) -> float:
    """The number of a label; 0 where it is none, or cannot be a size."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    if 0.0 < value < _MOST_SIZE:
        return value
    return 0.0
