"""What a Prometheus has that rules are made for: models, GPU types, KV pools, and GPUs of an engine, as the fleet's
screen has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.config.schema import Config
from gpumon.readings.missing import Missing
from gpumon.sources.engines.vllm import CONFIG, MAMBA_SETTINGS
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.queries import CLOCK
from gpumon.sources.prometheus.source import FleetSource

SERVED: Final = (
    'group by (job, instance, model_name) ({__name__=~"vllm:num_requests_running|sglang:num_running_reqs|'
    'llamacpp:requests_processing"%s})'
)


class Pool(NamedTuple):
    """KV pool of one rank."""

    tokens: float = 0.0
    told: bool = False
    """The engine says it in tokens: else it is blocks x block size, which layers of several kinds share."""


class Seen(NamedTuple):
    """What a Prometheus has."""

    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """DCGM's `modelName`s."""
    pools: Mapping[str, Pool] = {}
    """By model, where all of its engines have the same."""
    served: bool = False
    """Some `gpumon serve-metrics` is scraped."""
    sizes: Mapping[str, Mapping[int, int]] = {}
    """Model -> GPUs of an engine -> how many of its engines have so many, as far as that is known."""
    sliced: frozenset[str] = frozenset()
    """Models of which engines run on MIG slices."""


async def seen(config: Config) -> Seen:
    """Ask it. Raises ApiFault; ValueError where the URL is malformed."""
    match = config.prometheus.match.strip().strip(",")
    source = FleetSource(config.prometheus, config.model, config.endpoint)
    try:
        now = await source.api.query(CLOCK)
        frame = await source.frame(now[0].value if now else None)
        if not frame.answered:
            raise ApiFault(frame.faults[0].text)
        engines = [one.series for one in await source.api.query(SERVED % (f", {match}" if match else ""))]
        served = await source.api.query(f"gpumon_build_info{{{match}}}")
        pools = [one.series for one in await source.api.query(f"{CONFIG}{{{match}}}")]
    finally:
        await source.close()
    sizes: dict[str, Counter[int]] = {}
    sliced: set[str] = set()
    for host in frame.hosts:
        for reading in host.engines:
            size = max(len(reading.gpus), reading.gpu_count) or reading.tp * (reading.pp or 1) * (reading.dp or 1)
            if any(uuid.startswith("MIG-") for uuid in reading.gpus):
                sliced.add(reading.model)
            elif size and reading.model:
                sizes.setdefault(reading.model, Counter())[size] += 1
        for engine in host.ready.engines if host.ready is not None else ():
            count = engine.hardware.gpu_count
            if engine.model and not isinstance(count, Missing):
                sizes.setdefault(engine.model, Counter())[round(count)] += 1
    return Seen(
        tuple(sorted({name for one in engines if (name := one.labels.get("model_name", ""))})),
        tuple(sorted({gpu.name for host in frame.hosts for gpu in host.gpus if gpu.name})),
        _pools(pools, engines),
        bool(served),
        sizes,
        frozenset(sliced),
    )


def _pools(configs: Sequence[Series], engines: Sequence[Series]) -> dict[str, Pool]:
    """What the engines say, else blocks x block size over the ranks of a page."""
    targets = {(one.labels.get("job"), one.labels.get("instance")): one.labels.get("model_name", "") for one in engines}
    pages: dict[tuple[str | None, str | None], list[Mapping[str, str]]] = {}
    for one in configs:
        pages.setdefault((one.labels.get("job"), one.labels.get("instance")), []).append(one.labels)
    sizes: dict[str, set[Pool]] = {}
    for target, labels in pages.items():
        sizes.setdefault(targets.get(target, ""), set()).update(_pool(one, len(labels)) for one in labels)
    return {model: size for model, (size, *others) in sizes.items() if model and size.tokens > 0.0 and not others}


def _pool(labels: Mapping[str, str], ranks: int) -> Pool:
    size = _positive(labels.get("kv_cache_size_tokens", ""))
    if size or any(labels.get(name, "None") != "None" for name in MAMBA_SETTINGS):
        return Pool(size, told=True)
    return Pool(_positive(labels.get("num_gpu_blocks", "")) * _positive(labels.get("block_size", "")) / ranks)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 < value < 1e15 else 0.0
