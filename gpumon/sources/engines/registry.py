"""The engines that gpumon reads, a row each: their adapter, where their metrics stand, and how they are switched on."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.sources.engines.adapter import Adapter, Page
from gpumon.sources.engines.dynamo import DynamoAdapter
from gpumon.sources.engines.llamacpp import MODELS, SLOTS, LlamaCppAdapter
from gpumon.sources.engines.lmdeploy import LmdeployAdapter
from gpumon.sources.engines.nim import NimAdapter
from gpumon.sources.engines.ollama import LOADED, VERSION, OllamaAdapter
from gpumon.sources.engines.ray import RayAdapter
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.tei import TeiAdapter
from gpumon.sources.engines.tgi import TgiAdapter
from gpumon.sources.engines.triton import TritonAdapter
from gpumon.sources.engines.trtllm import PROMETHEUS, RECORDS, SWITCH, TrtllmAdapter
from gpumon.sources.engines.vllm import VllmAdapter

METRICS: Final = "/metrics"


class Row(NamedTuple):
    """One kind of engine."""

    title: str
    """As its makers write it."""
    adapter: type[Adapter]
    port: int
    """Where it listens by default; never a sign of what it is."""
    paths: tuple[str, ...] = (METRICS,)
    """Where its metrics may stand below the base URL, the best first."""
    switch: str = ""
    """What switches its metrics on; empty where they are on unless switched off."""
    models_path: str = "/v1/models"
    """Where it tells which model it serves; empty where nowhere."""
    json_paths: tuple[str, ...] = ()
    """Those of `paths` that answer JSON: the adapter reads it from the bodies."""
    drain_paths: tuple[str, ...] = ()
    """Those of `paths` that may give what they have only once: never asked where that is known."""
    version_path: str = "/version"
    """Where it tells its version as JSON `{"version": ...}`; empty where nowhere, or where the adapter finds it."""

    @property
    def kind(self) -> EngineKind:
        """The kind that the adapter reads."""
        return self.adapter.kind

    def drains(self, path: str) -> bool:
        """Whether reading this path takes something from other readers."""
        return path in self.drain_paths


ROWS: Final = (
    # These hold other engines' names, or wrap them.
    Row("NIM", NimAdapter, 8000, paths=("/v1/metrics", METRICS), version_path=""),
    Row("Ray Serve LLM", RayAdapter, 8080, models_path="", version_path=""),
    Row("Dynamo", DynamoAdapter, 8000, models_path="", version_path=""),
    Row("Triton", TritonAdapter, 8002, models_path="", version_path=""),
    Row("vLLM", VllmAdapter, 8000),
    Row("LMDeploy", LmdeployAdapter, 23333, version_path=""),
    Row("SGLang", SglangAdapter, 30000, switch="start it with --enable-metrics", version_path=""),
    Row(
        "llama.cpp",
        LlamaCppAdapter,
        8080,
        paths=(METRICS, SLOTS, MODELS),
        switch="start it with --metrics",
        json_paths=(SLOTS, MODELS),
        version_path="",
    ),
    Row(
        "Ollama",
        OllamaAdapter,
        11434,
        paths=(LOADED,),
        json_paths=(LOADED,),
        models_path="",
        version_path=VERSION,
    ),
    Row(
        "TensorRT-LLM",
        TrtllmAdapter,
        8000,
        paths=(PROMETHEUS, RECORDS),
        switch=SWITCH,
        drain_paths=(RECORDS,),
    ),
    Row("TGI", TgiAdapter, 3000, models_path="", version_path=""),
    Row("TEI", TeiAdapter, 3000, models_path="", version_path=""),
)
"""In the order in which a page is offered to them: the first that claims it reads it."""
BY_KIND: Final = {row.kind: row for row in ROWS}


def claimed(page: Page, rows: tuple[Row, ...] = ROWS) -> Row | None:
    """The engine that a page is of; None where none knows it."""
    row = next((row for row in rows if row.adapter.claims(page)), None)
    adapter = row.adapter.of(page) if row is not None else None
    return row if row is None or adapter in (None, row.adapter) else row._replace(adapter=adapter)
