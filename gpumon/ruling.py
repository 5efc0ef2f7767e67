"""The `rules` command: recording rules, alerts and a dashboard for a Prometheus."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from gpumon.config.errors import ConfigError
from gpumon.config.prices import running_prices
from gpumon.config.schema import Config
from gpumon.efficiency.engine import WRONG_WITHOUT
from gpumon.efficiency.flops import compute_peak
from gpumon.efficiency.promql import model_constants, peak_constants, told_constants
from gpumon.outputs.dashboard import dashboard_json
from gpumon.outputs.rules import ModelFacts, Prices, Ruled, rules_yaml
from gpumon.outputs.rules_scope import Scope, number
from gpumon.readings.text import clean
from gpumon.sources.engines.vllm import CONFIG, MAMBA_SETTINGS
from gpumon.sources.exposition import Series
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

OK: Final = 0
LABEL: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
MOST_GPUS: Final = 1024
"""Of one engine."""
MOST_MODELS: Final = 500
"""Models that rules are printed for."""
MODELS_ASKED: Final = (
    'group by (model_name) ({{__name__=~"vllm:num_requests_running|sglang:num_running_reqs'
    '|llamacpp:requests_processing"{match}}})'
)
GPUS_ASKED: Final = "group by (modelName) (DCGM_FI_DEV_GPU_UTIL{{{match}}} or DCGM_FI_DEV_FB_USED{{{match}}})"
POOLS_ASKED: Final = f"{CONFIG}{{{{{{match}}}}}}"
SERVED_ASKED: Final = "group by (job, instance, model_name) (vllm:num_requests_running{{{match}}})"
WHAT_TO_GIVE: Final = (
    "rules: of which models? Give --prometheus URL (its models are looked up), --model NAME, or [[model]] entries"
    " in the config"
)
Number = TypeVar("Number", int, float)


class Pool(NamedTuple):
    """KV pool of one rank."""

    tokens: float = 0.0
    told: bool = False
    """The engine says it in tokens: else it is blocks x block size, which layers of several kinds share."""


class Size(NamedTuple):
    """Of one engine."""

    gpus: int
    ranks: int = 0
    """Data-parallel ranks that share them; 0: as many as its page shows."""


class Seen(NamedTuple):
    """What a Prometheus has."""

    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """DCGM's `modelName`s."""
    pools: Mapping[str, Pool] = {}
    """By model, where all of its engines have the same."""


def rules_command(
    chosen: argparse.Namespace, config: Config, environ: Mapping[str, str], write: Callable[[str], None]
) -> int:
    """Print the rules, or with `--dashboard` the dashboard; returns the exit code.

    Raises ConfigError, and ApiFault where the Prometheus does not answer.
    """
    join = chosen.join or ""
    if join and not LABEL.fullmatch(join):
        raise ConfigError(f"--join {clean(join, 60)!a}: must be the name of a label, such as pod")
    scope = Scope(config.prometheus.match, config.prometheus.host_labels, chosen.scrape_s, join)
    if chosen.dashboard:
        write(dashboard_json(priced=_priced(config, chosen)))
        return OK
    seen = _seen(config) if config.prometheus.url else Seen()
    own = [entry.match for entry in config.model if not set(entry.match) & set("*?[")]
    names = [_valid(name) for name in dict.fromkeys(chosen.model or seen.models or own)]
    if not names:
        why = f"{clean(config.prometheus.url, 80)} has no series of vLLM, SGLang or llama.cpp with a model_name; "
        raise ConfigError(f"rules: {why if config.prometheus.url else ''}{WHAT_TO_GIVE.removeprefix('rules: ')}")
    gpus = _by_model("--gpu", chosen.gpu or [], names)
    counts = _by_model("--gpus-per-engine", chosen.gpus_per_engine or [], names)
    models, unknown = [], []
    for name in names[:MOST_MODELS]:
        facts = look_up(name, "", config.model, llm_catalogue(), environ if chosen.model else None)
        if facts.spec is None or WRONG_WITHOUT & set(facts.spec.not_modelled):
            unknown.append((name, facts.why if facts.spec is None else "its layers are not modelled"))
            continue
        gpu = _gpu(gpus.get(name, gpus.get("", "")) or config.sizing.gpu, seen.gpus, name)
        size = _size(counts.get(name, counts.get("", "1")))
        _check_fits(name, facts.spec, gpu, size.gpus)
        models.append(_model(name, facts.spec, gpu, size, seen.pools.get(name, Pool()), chosen.context or 0.0))
    ruled = Ruled(tuple(models), scope, _prices(config, chosen), config.triage, tuple(unknown))
    write(rules_yaml(ruled))
    for name, why in unknown:  # the rules go into a file: nobody sees its comments
        said = clean(why.partition(". Add")[0], 160)
        sys.stderr.write(f"gpumon: no MFU and MBU of {clean(name, 80)}: {said}; the file has the lines to add\n")
    return OK


def _model(name: str, llm: LlmSpec, gpu: GpuSpec | None, size: Size, pool: Pool, context: float) -> ModelFacts:
    peaks = compute_peak(gpu, llm) if gpu is not None else None
    mixed = llm.window_layers > 0 or llm.linear_layers > 0
    constants = (
        *model_constants(llm, size.gpus),
        *peak_constants(0.0 if peaks is None else peaks[0], 0.0 if gpu is None else gpu.bandwidth_bytes_per_s),
        *told_constants(0.0 if mixed and not pool.told else pool.tokens, context, size.ranks),
    )
    return ModelFacts(name, llm.source, constants, "" if gpu is None else gpu.name)


def _by_model(option: str, given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """`VALUE` under "", `MODEL=VALUE` under the model."""
    found: dict[str, str] = {}
    for text in given:
        model, _, value = text.rpartition("=")
        if model and model not in names:
            known = ", ".join(clean(name, 60) for name in names[:5])
            raise ConfigError(f"{option} {clean(text, 80)!a}: no such model here; there are: {known}")
        found[model] = value
    return found


def _gpu(asked: str, seen: Sequence[str], model: str) -> GpuSpec | None:
    """The type that was asked for, else the only one that the Prometheus has. Raises ConfigError."""
    catalogue = gpu_catalogue()
    if asked:
        try:
            return catalogue.find(asked)
        except ValueError as error:
            raise ConfigError(f"--gpu (or [sizing].gpu) {error}") from None
    if len(seen) > 1:
        several = ", ".join(clean(name, 60) for name in seen[:6])
        raise ConfigError(
            f"rules: the Prometheus has GPUs of several types ({several}): say which serve each model, "
            f"with --gpu TYPE or --gpu '{clean(model, 60)}=TYPE'"
        )
    if seen and (found := catalogue.match(seen[0])) is not None:
        return found
    raise ConfigError(
        f"rules: which GPUs serve {clean(model, 60)!a}? Give --gpu TYPE, such as --gpu 'H100 SXM 80GB', or [sizing].gpu"
    )


def _size(text: str) -> Size:
    """`GPUS` or `GPUS/RANKS`. Raises ConfigError."""
    numbers = re.fullmatch("([1-9][0-9]{0,3})(?:/([1-9][0-9]{0,3}))?", text)
    size = Size(*(int(number or 0) for number in numbers.groups())) if numbers else Size(0)
    if not 1 <= size.gpus <= MOST_GPUS or size.gpus % (size.ranks or 1):
        raise ConfigError(
            f"--gpus-per-engine {clean(text, 40)!a}: must be a whole number from 1 to {MOST_GPUS}, or GPUS/RANKS, "
            "such as 8/4: the GPUs of an engine and the data-parallel ranks that share them evenly"
        )
    return size


def _check_fits(name: str, llm: LlmSpec, gpu: GpuSpec | None, count: int) -> None:
    """Weights that are larger than the memory mean that the number of GPUs is wrong."""
    weights = llm.stored_bytes or llm.read_bytes
    if gpu is not None and gpu.memory_bytes and weights > gpu.memory_bytes * count:
        have = f"{count} x {gpu.name} {'has' if count == 1 else 'have'} {gpu.memory_bytes * count / 1e9:.0f}"
        raise ConfigError(
            f"rules: the weights of {clean(name, 80)!a} take {weights / 1e9:.0f} GB, and {have}: "
            f"give --gpus-per-engine '{clean(name, 80)}=N'"
        )


def _priced(config: Config, chosen: argparse.Namespace) -> bool:
    prices = _prices(config, chosen)
    return bool(prices.by_price or prices.any_other)


def _prices(config: Config, chosen: argparse.Namespace) -> Prices:
    """Prices by NVML name; `--price` is that of every GPU without one of its own."""
    catalogue = gpu_catalogue()
    try:
        prices = dict(running_prices(config.sizing, catalogue))
    except ValueError as error:
        raise ConfigError(f"[sizing] prices: {error}") from None
    if chosen.price is not None:
        prices[""] = chosen.price
    by_price: dict[str, list[str]] = {}
    for name, specs in catalogue.by_name.items():
        price = next((prices[spec.name] for spec in specs if spec.name in prices), None)
        if price is not None:
            by_price.setdefault(number(price), []).append(name)
    other = prices.get("")
    found = {price: tuple(names) for price, names in by_price.items()}
    return Prices(found, "" if other is None else number(other))


def _valid(name: str) -> str:
    """A label's value is UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"--model {clean(name, 80)!a}: is not UTF-8, as a label must be") from None
    return name


def _seen(config: Config) -> Seen:
    try:
        return asyncio.run(_asked(config))
    except ValueError as malformed:
        raise ConfigError(f"rules: {clean(str(malformed), 300)}") from None


async def _asked(config: Config) -> Seen:
    match = config.prometheus.match.strip().strip(",")
    more = {"match": f", {match}" if match else ""}
    only = {"match": match}
    api = PrometheusApi(config.prometheus)
    try:
        models = await api.query(MODELS_ASKED.format(**more))
        gpus = await api.query(GPUS_ASKED.format(**only))
        pools = await api.query(POOLS_ASKED.format(**only))
        served = await api.query(SERVED_ASKED.format(**only))
    finally:
        await api.close()
    return Seen(
        _values("model_name", (one.series for one in models)),
        _values("modelName", (one.series for one in gpus)),
        _pools([one.series for one in pools], [one.series for one in served]),
    )


def _values(label: str, found: Iterable[Series]) -> tuple[str, ...]:
    return tuple(sorted({value for one in found if (value := one.labels.get(label, ""))}))


def _pools(configs: Sequence[Series], served: Sequence[Series]) -> dict[str, Pool]:
    """What the engines say, else blocks x block size over the ranks of a page."""
    targets = {(one.labels.get("job"), one.labels.get("instance")): one.labels.get("model_name", "") for one in served}
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
