"""Ollama: the models that it has loaded, from /api/ps. It counts nothing that can be asked for (api/types.go, 0.33).

What a model does right now is told by the llama-server process that Ollama starts for it: discovery finds that one, and
reads its /slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.readings.frame import ON_GPU_RATIO, EngineKind, EngineReading
from gpumon.sources.engines.adapter import MOST_PARTS, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.json_body import finite_number, first_items, mapping, parse_json, text
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import NO_BODIES, Bodies, PageFigures, Rank
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

_LOADED: Final = "/api/ps"
"""Page of the loaded models. To ask for it neither loads a model nor keeps one loaded."""
WHY_NOTHING: Final = (
    "Ollama tells its loaded models, and no rates: its llama-server does, which discovery finds on its host"
)


class OllamaAdapter(Adapter):
    """One Ollama server: a part without figures for each loaded model."""

    kind = EngineKind.OLLAMA
    from_documentation = True

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether this is the list of its loaded models, even an empty one."""
        return page.path == _LOADED and isinstance(mapping(parse_json(page.body)).get("models"), list)

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:  # noqa: ARG002 - the signature of Adapter
        """A reading for each loaded model; one without a model where none is loaded."""
        models = mapping(parse_json(bodies.get(_LOADED, b""))).get("models")
        if not isinstance(models, list):
            return ()
        self.cut = len(models) > MOST_PARTS
        readings: dict[str, EngineReading] = {}
        for model in first_items(models, MOST_PARTS):
            reading = self._model_reading(mapping(model))
            if reading is not None:
                readings[reading.part] = reading
        return tuple(readings.values()) or (self._without_figures("", {"models": "none is loaded"}),)

    def _model_reading(self, entry: Mapping[str, Any]) -> EngineReading | None:
        """The reading of one loaded model; None where it has no name."""
        name = text(entry.get("model")) or text(entry.get("name"))
        if not name:
            return None
        details = mapping(entry.get("details"))
        size = finite_number(entry.get("size"))
        on_gpu = finite_number(entry.get("size_vram"))
        info = {
            hints.PARAMETER_SIZE: text(details.get("parameter_size")),
            hints.WEIGHT_PRECISION: text(details.get("quantization_level")),
            hints.ARCHITECTURE: text(details.get("family")),
            hints.CONTEXT_LEN: text(entry.get("context_length")),
        }
        if size:
            info["loaded_bytes"] = f"{size:.0f}"
        if on_gpu is not None:
            info["vram_bytes"] = f"{on_gpu:.0f}"
        if size and on_gpu is not None:
            info[ON_GPU_RATIO] = f"{min(1.0, on_gpu / size):.3f}"
        info["expires_at"] = text(entry.get("expires_at"))
        return self._without_figures(name, {key: value for key, value in info.items() if value})

    def _without_figures(self, model: str, info: dict[str, str]) -> EngineReading:
        """The reading of a model, which has no figures."""
        figures = PageFigures({"0": Rank("0")}, {}, {})
        figures.model = model
        figures.info = {**info, "figures": WHY_NOTHING}
        figures.part = model
        return self.reading(figures)


ENGINE: Final = EngineRow(
    "Ollama",
    OllamaAdapter,
    port=11434,
    paths=(_LOADED,),
    json_paths=(_LOADED,),
    models_path="",
    version_path="/api/version",
    names_from="0.33",
    forms=(
        LaunchForm(
            EngineKind.OLLAMA,
            "Ollama",
            ("ollama serve", "ollama start"),
            variables={"address": "OLLAMA_HOST"},
            servers_below=(EngineKind.LLAMA_CPP,),
        ),
        LaunchForm(EngineKind.OLLAMA, "Ollama", ("ollama runner", "ollama_llama_server"), part=True),
    ),
)
