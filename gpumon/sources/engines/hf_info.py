"""/info of Hugging Face's servers (TGI, TEI): which model they serve, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import Bodies, Companion
from gpumon.specs import hints

PATH: Final = "/info"
COMPANION: Final = Companion(PATH, 30.0)
"""It does not change while the process lives."""


class Told(NamedTuple):
    """What /info says; text from outside, empty where it does not say."""

    model: str
    """Hugging Face id, or the folder that it was loaded from."""
    version: str
    info: Mapping[str, str]


def told(bodies: Bodies, kept: Mapping[str, str]) -> Told:
    """The answer, with its fields `kept` under their keys in `info`."""
    said = json_body.mapping(json_body.decoded(bodies.get(PATH, b"")))
    model = json_body.text(said.get("model_id"))
    info = {key: text for field, key in kept.items() if (text := json_body.text(said.get(field)))}
    if model:
        info[hints.MODEL_PATH] = model
    kind = said.get("model_type")
    named = next(iter(kind), "") if isinstance(kind, dict) else kind
    if isinstance(named, str) and named:
        info["model_type"] = named[: json_body.MOST_CHARS]
    return Told(model, json_body.text(said.get("version")), info)
