"""Ray Serve LLM: vLLM's and SGLang's series under Ray's names, exported by each node's agent for all its replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    MOST_PARTS,
    MOST_RANKS,
    NO_BODIES,
    Adapter,
    Bodies,
    Found,
    Tables,
    by_name,
)
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scan, Series

MODEL: Final = "model_name"
RAYS_OWN: Final = frozenset(("Component", "NodeAddress", "ReplicaId", "SessionName", "Version", "WorkerId"))
"""Labels that Ray adds to those of the engine."""
MOST_CHARS: Final = 12
"""Kept of the id of a replica or a worker, which is random."""
Of = tuple[str, str, str]
"""Engine, model and replica that a series is of."""


class _Replica(VllmAdapter):
    """vLLM inside one replica: it has no API server but Ray's."""

    def _one_api_server(self, started_wall_s: float) -> bool:  # noqa: ARG002
        return True


INSIDE: Final[Mapping[str, type[Adapter]]] = {"vllm": _Replica, "sglang": SglangAdapter}
"""Beginning of an engine's names -> who reads them."""


class RayAdapter(Adapter):
    """One node's agent: an engine for each model, and a rank for each replica of it."""

    kind = EngineKind.RAY
    tables = Tables(rank_label="", counters=(), gauges=(), histograms=(), part_label=MODEL)
    prefixes = tuple(f"ray_{engine}{mark}" for engine in INSIDE for mark in "_:")
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._spellings = {engine: _spellings(engine) for engine in INSIDE}
        self._replicas: dict[Of, Adapter] = {}
        self._renamed: dict[Series, Series] = {}

    @property
    def wanted(self) -> frozenset[str]:
        """Every spelling of every name that the adapters inside use."""
        return frozenset(one for names in self._spellings.values() for each in names.values() for one in each)

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A page for each model; of a replica that writes none of its engine's figures, nothing."""
        found = self._by_replica(scan)
        kept = sorted(found)[:MOST_RANKS]
        self._replicas = {of: self._replicas.get(of) or INSIDE[of[0]]() for of in kept}
        models: dict[tuple[str, str], dict[str, EngineReading]] = {}
        for of in kept:
            for reading in self._replicas[of].read_all(scan._replace(values=found[of]), bodies):
                models.setdefault(of[:2], {})[of[2]] = reading
        version = next((one.labels["Version"] for one in scan.values if one.labels.get("Version")), "")
        self.cut = len(found) > MOST_RANKS or len(models) > MOST_PARTS
        self.unsupported = next((one.unsupported for one in self._replicas.values() if one.unsupported), "")
        twice = len({model for _, model in models}) < len(models)
        return tuple(
            msgspec.structs.replace(
                _joined(engine, readings),
                kind=self.kind,
                from_documentation=self.from_documentation,
                part=f"{model} ({engine})" if twice else model,
                model=model,
                version=version,
            )
            for (engine, model), readings in [*models.items()][:MOST_PARTS]
        )

    def _by_replica(self, scan: Scan) -> dict[Of, dict[Series, float]]:
        """The series of each replica under the engine's own names."""
        page, renamed = by_name(scan), {}
        found: dict[Of, dict[Series, float]] = {}
        for engine, spellings in self._spellings.items():
            series = [*_picked(page, spellings)]
            lone = engine == "sglang" and len({one.labels.get("WorkerId") for _, one, _ in series if _leads(one)}) < 2
            nobodys = []
            for name, one, value in series:
                renamed[one] = self._renamed.get(one) or Series(name, _own(one.labels))
                of = (engine, one.labels.get(MODEL, ""), "" if lone else _replica(one.labels))
                if not of[1]:
                    nobodys.append((of[2], renamed[one], value))
                elif lone or engine == "vllm" or one.labels.get("tp_rank", "0") == "0":
                    found.setdefault(of, {})[renamed[one]] = value
            _give(nobodys, {of: values for of, values in found.items() if of[0] == engine})
        self._renamed = renamed
        return found


def _spellings(engine: str) -> dict[str, tuple[str, ...]]:
    """Name of a series of the engine -> its names under Ray, the best first.

    The colon became an underscore with vLLM 0.11. Each counter is written a second time as a gauge without `_total`,
    which was the only form before Ray 2.10: never both.
    """
    spellings = {}
    for name in INSIDE[engine]().wanted:
        begin, colon, rest = name.partition(":")
        if begin == engine and colon:
            both = (f"ray_{engine}_{rest}", f"ray_{engine}:{rest}")
            twins = tuple(each.removesuffix("_total") for each in both) if rest.endswith("_total") else ()
            spellings[name] = both + twins
    return spellings


def _picked(page: Mapping[str, Found], spellings: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Series, float]]:
    """The series under the best spelling of each name, with the engine's own name."""
    for name, names in spellings.items():
        for one, value in next((page[each] for each in names if each in page), ()):
            yield name, one, value


def _own(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name not in RAYS_OWN}


def _replica(labels: Mapping[str, str]) -> str:
    """Engines before vLLM 0.14 know of no replica, and Ray can be told to leave the worker's id away."""
    return (labels.get("ReplicaId") or labels.get("WorkerId") or "")[:MOST_CHARS]


def _leads(series: Series) -> bool:
    """Whether it is one of SGLang's tokeniser, of which each replica has one; its schedulers are workers, too."""
    return "tp_rank" not in series.labels


def _give(nobodys: list[tuple[str, Series, float]], found: Mapping[Of, dict[Series, float]]) -> None:
    """Give series without a model (an engine's settings) to their replica, or to the only one that there is."""
    for replica, series, value in nobodys:
        theirs = [values for of, values in found.items() if of[2] == replica]
        if len(theirs) == 1 or len(found) == 1:
            (theirs or [*found.values()])[0][series] = value


def _joined(engine: str, pages: Mapping[str, EngineReading]) -> EngineReading:
    """The replicas of one model as one engine."""
    first = next(iter(pages.values()))
    live = {quantity: metric for page in pages.values() for quantity, metric in page.live.items()}
    ranks = tuple(
        msgspec.structs.replace(rank, rank=(replica or "0") + (f"/{rank.rank}" if rank.rank != "0" else ""))
        for replica, page in pages.items()
        for rank in page.ranks
    )
    return msgspec.structs.replace(
        first,
        ranks=ranks,
        live={name: metric.replace(f"{engine}:", f"ray_{engine}_") for name, metric in live.items()},
        advance={quantity: advance for page in pages.values() for quantity, advance in page.advance.items()},
        exact_steps=all(page.exact_steps or q.STEPS not in page.live for page in pages.values())
        and any(page.exact_steps for page in pages.values()),
    )
