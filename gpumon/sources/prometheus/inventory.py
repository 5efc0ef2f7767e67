"""What a Prometheus has that rules are made for: models, GPU types, KV pools, and GPUs of an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.config.schema import Prometheus
from gpumon.sources.engines.vllm import CONFIG, MAMBA_SETTINGS
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.hosts import CLUSTER, PODS, Seats, User, user_of
from gpumon.sources.prometheus.targets import EXPORTED

ENGINES: Final = '{{__name__=~"vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing"{more}}}'
_OF_PODS: Final = ", ".join(prefix + label for names in PODS for label in names for prefix in ("", EXPORTED))
_ENGINE: Final = "cluster, job, instance, engine"
_TARGET: Final = "cluster, job, instance, model_name"
_SCHEDULERS: Final = 'sglang:num_running_reqs{{tp_rank!=""{more}}}'
"""One process each, with a GPU of its own; by default the first one alone tells its figures."""
QUESTIONS: Final = {
    "engines": f"group by (cluster, job, instance, model_name, {_OF_PODS}) ({ENGINES})",
    "gpus": (
        f"group by (cluster, Hostname, modelName, UUID, GPU_I_ID, {_OF_PODS}) "
        "(DCGM_FI_DEV_GPU_UTIL{{{only}}} or DCGM_FI_DEV_FB_USED{{{only}}})"
    ),
    "pools": f"{CONFIG}{{{{{{only}}}}}}",
    "served": "gpumon_build_info{{{only}}}",
    "told": (
        f"max by ({_ENGINE}) (gpumon_engine_gpus{{{{{{only}}}}}}) * on ({_ENGINE}) group_right () "
        f"max by ({_ENGINE}, model) (gpumon_engine_info{{{{{{only}}}}}})"
    ),
    "schedulers": (
        f"count by ({_TARGET}) (group by ({_TARGET}, dp_rank, tp_rank, pp_rank, moe_ep_rank) ({_SCHEDULERS}))"
        f" and count by ({_TARGET}) (group by ({_TARGET}, tp_rank) ({_SCHEDULERS})) > 1"
    ),
}
"""Name -> PromQL; `more` and `only` are the matchers of the config, after others and alone."""


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
    """Model -> GPUs of an engine -> how many of its engines have so many, as far as labels tell."""


async def seen(settings: Prometheus) -> Seen:
    """Ask it. Raises ApiFault; ValueError where the URL is malformed."""
    match = settings.match.strip().strip(",")
    words = {"more": f", {match}" if match else "", "only": match}
    api = PrometheusApi(settings)
    try:
        found = {name: await api.query(asked.format(**words)) for name, asked in QUESTIONS.items()}
    finally:
        await api.close()
    series = {name: [one.series for one in vectors] for name, vectors in found.items()}
    told = [(one.series.labels.get("model", ""), one.value) for one in found["told"]]
    schedulers = [(one.series.labels.get("model_name", ""), one.value) for one in found["schedulers"]]
    return Seen(
        _values("model_name", series["engines"]),
        _values("modelName", series["gpus"]),
        _pools(series["pools"], series["engines"]),
        bool(series["served"]),
        _first(_by_pods(series["engines"], series["gpus"]), _counted(schedulers), _counted(told)),
    )


def _values(label: str, found: Iterable[Series]) -> tuple[str, ...]:
    return tuple(sorted({value for one in found if (value := one.labels.get(label, ""))}))


Sizes = dict[str, Counter[int]]


def _first(*sources: Sizes) -> Sizes:
    """Of each model what the first source says that knows it."""
    return {model: sizes for source in reversed(sources) for model, sizes in source.items()}


def _by_pods(engines: Sequence[Series], gpus: Sequence[Series]) -> Sizes:
    """GPUs that a dcgm-exporter says the pod of an engine uses; of slices of a GPU nothing is said."""
    seats = Seats()
    for one in gpus:
        if (user := _user(one.labels)) is not None and not one.labels.get("GPU_I_ID"):
            seats.take(user, one.labels.get("Hostname", ""), one.labels.get("UUID", ""))
    placed = {(user, one.labels.get("instance", "")): one for one in engines if (user := _user(one.labels)) is not None}
    together = Counter(user.pod for user, _ in placed)
    sizes: Sizes = {}
    for (user, _), one in placed.items():
        uuids, _ = seats.gpus(user, together[user.pod])
        if uuids and (model := one.labels.get("model_name", "")):
            sizes.setdefault(model, Counter())[len(uuids)] += 1
    return sizes


def _user(labels: Mapping[str, str]) -> User | None:
    """The pod of a series: where the target has a label of that name itself, the other one is the workload's."""
    cluster = labels.get(CLUSTER, "")
    theirs = {name.removeprefix(EXPORTED): value for name, value in labels.items() if name.startswith(EXPORTED)}
    return user_of(theirs, cluster) or user_of(labels, cluster)


def _counted(told: Iterable[tuple[str, float]]) -> Sizes:
    sizes: Sizes = {}
    for model, count in told:
        if model and count >= 1.0:
            sizes.setdefault(model, Counter())[round(count)] += 1
    return sizes


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
