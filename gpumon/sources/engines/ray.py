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
_ID_CHARS: Final = 12
"""Characters replica_ids of the id of a replica or a worker, which is random."""


_Replicas = dict[tuple[str, str], dict[Series, float]]
"""Model and replica -> its page."""


class _Replica(VllmAdapter):
    """vLLM inside one replica: it has no API server but Ray's."""

    def _one_api_server(self, started_wall_s: float) -> bool:  # noqa: ARG002 - the signature of the vLLM adapter
        """Always: Ray starts each engine without further API servers."""
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
        self._replicas: dict[tuple[str, str], VllmAdapter] = {}
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
        replicas = self._by_replica(scan)
        replica_ids = sorted(replicas)[:MOST_RANKS]
        self._replicas = {replica_id: self._replicas.get(replica_id) or _Replica() for replica_id in replica_ids}
        models: dict[str, dict[str, EngineReading]] = {}
        for model, replica in replica_ids:
            page = self._replicas[model, replica].read(scan._replace(values=replicas[model, replica]), bodies)
            if page.ranks:
                models.setdefault(model, {})[replica] = page
        version = _version(scan)
        self.cut = len(replicas) > MOST_RANKS or len(models) > MOST_PARTS
        readings = []
        for model, pages in list(models.items())[:MOST_PARTS]:
            reading = msgspec.structs.replace(
                _join_replicas(pages),
                kind=self.kind,
                from_documentation=self.from_documentation,
                part=model,
                model=model,
                version=version,
            )
            readings.append(reading)
        return tuple(readings)

    def _by_replica(self, scan: Scan) -> _Replicas:
        """The series of each model and replica under the engine's own names.

        Those without a model (an engine's settings) go to their replica, or to the only one that there is. Engines
        before vLLM 0.14 know of no replica.
        """
        renamed: dict[Series, Series] = {}
        replicas: _Replicas = {}
        settings: list[tuple[str, Series, float]] = []
        for series, value in scan.values.items():
            labels = series.labels
            vllm_series = self._renamed.get(series) or _vllm_series(series)
            renamed[series] = vllm_series
            replica = (labels.get("ReplicaId") or labels.get("WorkerId") or "")[:_ID_CHARS]
            model = labels.get(_MODEL, "")
            if model:
                replicas.setdefault((model, replica), {})[vllm_series] = value
            else:
                settings.append((replica, vllm_series, value))
        self._renamed = renamed
        for replica, vllm_series, value in settings:
            page = _page_of(replica, replicas)
            if page is not None:
                page[vllm_series] = value
        return replicas


def _version(scan: Scan) -> str:
    """Version of Ray; empty where no series has it."""
    for series in scan.values:
        if series.labels.get("Version"):
            return series.labels["Version"]
    return ""


def _page_of(replica: str, replicas: _Replicas) -> dict[Series, float] | None:
    """The page of the only model of a replica, or of the only replica; None where several may be meant."""
    pages = [page for (_, name), page in replicas.items() if name == replica]
    if not pages:
        pages = list(replicas.values())
    if len(pages) == 1:
        return pages[0]
    return None


def _vllm_series(series: Series) -> Series:
    """The series under vLLM's own name, without the labels that Ray adds."""
    labels = {}
    for name, text in series.labels.items():
        if name not in RAYS_OWN:
            labels[name] = text
    return Series(f"vllm:{series.name.removeprefix(_PREFIX)}", labels)


def _join_replicas(pages: Mapping[str, EngineReading]) -> EngineReading:
    """The replicas of one model as one engine."""
    live: dict[str, str] = {}
    advance: dict[str, Advance] = {}
    ranks: list[RankReading] = []
    for replica, page in pages.items():
        live |= page.live
        advance |= page.advance
        ranks += [msgspec.structs.replace(rank, rank=_rank_name(replica, rank.rank)) for rank in page.ranks]
    # A replica that has not decoded yet counts no steps, and says nothing about the others.
    counting = [page for page in pages.values() if q.STEPS in page.live]
    return msgspec.structs.replace(
        next(iter(pages.values())),
        ranks=tuple(ranks),
        live={name: metric.replace("vllm:", _PREFIX) for name, metric in live.items()},
        advance=advance,
        exact_steps=any(page.exact_steps for page in pages.values()) and all(page.exact_steps for page in counting),
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
