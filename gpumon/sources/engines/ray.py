"""Ray Serve LLM: vLLM's series under Ray's names, exported by each node's agent for all its replicas (Ray 2.10 on)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, RankReading
from gpumon.sources.engines.adapter import MOST_PARTS, Adapter, EngineRow
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import MOST_RANKS, NO_BODIES, Bodies
from gpumon.sources.engines.tables import Tables
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scan, Series

_MODEL: Final = "model_name"
_PREFIX: Final = "ray_vllm_"
RAYS_OWN: Final = frozenset(("Component", "NodeAddress", "ReplicaId", "SessionName", "Version", "WorkerId"))
"""Labels that Ray adds to those of the engine."""
_EXPORTED_EACH_S: Final = 10.0
"""Seconds between two exports of a replica's metrics to its node's agent: Ray's `metrics_report_interval_ms`, which has
been 10,000 by default."""
_ID_CHARS: Final = 12
"""Characters that are kept of the id of a replica or a worker: the id is random, and a part of it is enough."""


_PagesByReplica = dict[tuple[str, str], dict[Series, float]]
"""Model and replica -> the series of its page."""


class _Replica(VllmAdapter):
    """vLLM inside one replica: it has no API server but Ray's."""

    def _one_api_server(self, started_wall_s: float) -> bool:  # noqa: ARG002 - the signature of the vLLM adapter
        """True: Ray starts each engine without further API servers."""
        return True


class RayAdapter(Adapter):
    """One node's agent: an engine for each model, and a rank for each replica of it.

    Ray writes each counter a second time as a gauge without `_total`; that one is never read.
    """

    kind = EngineKind.RAY
    tables = Tables("", part_label=_MODEL)
    prefixes = (_PREFIX,)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._adapters: dict[tuple[str, str], VllmAdapter] = {}
        """Model and replica -> its adapter."""
        self._renamed: dict[Series, Series] = {}
        """The series of the last page -> the same under vLLM's names."""

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of vLLM's samples, under Ray's names."""
        names = set()
        for name in VllmAdapter().wanted_names:
            if ":" in name:  # not those of its API server, such as http_requests_total
                names.add(_PREFIX + name.removeprefix("vllm:"))
        return frozenset(names)

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A reading for each model; replicas that write none of their engine's figures are left out."""
        pages = self._pages_by_replica(scan)
        keys = sorted(pages)[:MOST_RANKS]
        self._adapters = {key: self._adapters.get(key) or _Replica() for key in keys}
        readings_by_model: dict[str, dict[str, EngineReading]] = {}
        for model, replica in keys:
            adapter = self._adapters[model, replica]
            replica_reading = adapter.read(scan._replace(values=pages[model, replica]), bodies)
            if replica_reading.ranks:
                readings_by_model.setdefault(model, {})[replica] = replica_reading
        version = _version(scan)
        self.cut = len(pages) > MOST_RANKS or len(readings_by_model) > MOST_PARTS
        readings = []
        for model, replica_readings in list(readings_by_model.items())[:MOST_PARTS]:
            reading = msgspec.structs.replace(
                _join_replicas(replica_readings),
                kind=self.kind,
                from_documentation=self.from_documentation,
                part=model,
                model=model,
                version=version,
            )
            readings.append(reading)
        return tuple(readings)

    def _pages_by_replica(self, scan: Scan) -> _PagesByReplica:
        """The series of each model and replica under the engine's own names.

        Those without a model (an engine's settings) go to their replica, or to the only one that there is. Engines
        before vLLM 0.14 know of no replica.
        """
        renamed: dict[Series, Series] = {}
        pages: _PagesByReplica = {}
        settings: list[tuple[str, Series, float]] = []
        for series, value in scan.values.items():
            labels = series.labels
            vllm_series = self._renamed.get(series) or _vllm_series(series)
            renamed[series] = vllm_series
            replica = (labels.get("ReplicaId") or labels.get("WorkerId") or "")[:_ID_CHARS]
            model = labels.get(_MODEL, "")
            if model:
                pages.setdefault((model, replica), {})[vllm_series] = value
            else:
                settings.append((replica, vllm_series, value))
        self._renamed = renamed
        for replica, vllm_series, value in settings:
            page = _page_of(replica, pages)
            if page is not None:
                page[vllm_series] = value
        return pages


def _version(scan: Scan) -> str:
    """Version of Ray; empty where no series has it."""
    for series in scan.values:
        if series.labels.get("Version"):
            return series.labels["Version"]
    return ""


def _page_of(replica: str, pages: _PagesByReplica) -> dict[Series, float] | None:
    """The page of the only model of a replica, or of the only replica; None where several may be meant."""
    candidates = [page for (_, name), page in pages.items() if name == replica]
    if not candidates:
        candidates = list(pages.values())
    if len(candidates) == 1:
        return candidates[0]
    return None


def _vllm_series(series: Series) -> Series:
    """The series under vLLM's own name, without the labels that Ray adds."""
    labels = {name: text for name, text in series.labels.items() if name not in RAYS_OWN}
    return Series(f"vllm:{series.name.removeprefix(_PREFIX)}", labels)


def _join_replicas(readings: Mapping[str, EngineReading]) -> EngineReading:
    """The readings of one model's replicas (by replica) as one engine with a rank for each."""
    live: dict[str, str] = {}
    advance: dict[str, Advance] = {}
    ranks: list[RankReading] = []
    for replica, reading in readings.items():
        live |= reading.live
        advance |= reading.advance
        ranks += [msgspec.structs.replace(rank, rank=_rank_name(replica, rank.rank)) for rank in reading.ranks]
    # A replica that has not decoded yet counts no steps, and says nothing about the others.
    counting = [reading for reading in readings.values() if q.STEPS in reading.live]
    is_any_exact = any(reading.exact_steps for reading in readings.values())
    is_exact = is_any_exact and all(reading.exact_steps for reading in counting)
    return msgspec.structs.replace(
        next(iter(readings.values())),
        ranks=tuple(ranks),
        live={name: metric.replace("vllm:", _PREFIX) for name, metric in live.items()},
        advance=advance,
        exact_steps=is_exact,
    )


def _rank_name(replica: str, rank: str) -> str:
    """Name of a replica's rank: `REPLICA`, or `REPLICA/RANK` for all but the first."""
    name = replica or "0"
    if rank == "0":
        return name
    return f"{name}/{rank}"


ENGINE: Final = EngineRow(
    "Ray Serve LLM",
    RayAdapter,
    port=8080,
    models_path="",
    names_from="2.54",
    changes_each_s=_EXPORTED_EACH_S,
    forms=(
        LaunchForm(
            EngineKind.RAY,
            "Ray Serve LLM",
            ("raylet",),
            options={"port": "--metrics-export-port", "host": "--node-ip-address"},
            wrapper=True,
            takes_usual_port=False,
        ),
    ),
)
