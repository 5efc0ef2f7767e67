"""Engines that a Prometheus had in the last day: the kind of each target, and models that nobody serves any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.readings.text import clean
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import kind_of
from gpumon.sources.prometheus.queries import series_of_names, sign_names

MODEL_GONE: Final = "no engine serves {} any more: {} did in the last day, such as {}"
_STEP_S: Final = 600
"""Seconds between two moments of the last day at which it is asked which engines there were."""


class KnownEngines(NamedTuple):
    """The engines of the last day, by job and address."""

    rows: Mapping[tuple[str, str], EngineRow]
    """Kind of each."""
    models: Mapping[tuple[str, str], str]
    """Model of each, where its page names one. Text from outside."""


NO_ENGINES: Final = KnownEngines({}, {})


def engines_query(match: str) -> str:
    """The query for the engines of the last day: a series for each name by which an engine is known."""
    series = series_of_names(sign_names(), match)
    return f"count by (__name__, job, instance, model_name) (last_over_time({series}[1d:{_STEP_S}s]))"


def known_engines(answer: Iterable[Vector]) -> KnownEngines:
    """The engines of this answer."""
    pages: dict[tuple[str, str], list[Series]] = {}
    models: dict[tuple[str, str], str] = {}
    for vector in answer:
        labels = vector.series.labels
        address = labels.get("job", ""), labels.get("instance", "")
        pages.setdefault(address, []).append(vector.series)
        if labels.get("model_name"):
            models[address] = labels["model_name"]
    rows = {address: kind_of(page) for address, page in pages.items()}
    return KnownEngines({address: row for address, row in rows.items() if row is not None}, models)


def models_gone(known: KnownEngines, models_now: Iterable[str]) -> list[str]:
    """A notice for each model that engines served in the last day and none does now, down or not."""
    present = set(models_now)
    gone = Counter(model for model in known.models.values() if model not in present)
    notices = []
    for model, number in sorted(gone.items()):
        address = next(instance for (_, instance), served in known.models.items() if served == model)
        notices.append(MODEL_GONE.format(clean(model, 80), number, clean(address, 80)))
    return notices
