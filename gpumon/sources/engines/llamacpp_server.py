"""What llama.cpp's /props says of its model, and what a router's /models says of the models that it has loaded."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.readings.frame import SLEEPING, RankReading
from gpumon.sources.engines.adapter import EnginePage
from gpumon.sources.engines.json_body import count, decoded, items, mapping, text
from gpumon.specs import hints

ROUTER: Final = "router"
"""What stands where no model is loaded."""
LOADED: Final = ("loaded", "sleeping")
"""A router's models that have a process."""
UNLOADED: Final = "its model is unloaded until the next request (--sleep-idle-seconds)"
WHY_NOTHING: Final = (
    "a router: asking a model for its metrics keeps it loaded, so gpumon does not; "
    "give the port of the model's own process as an endpoint to watch it"
)
OPTIONS: Final = {
    "--port": "port",
    "--parallel": "slots",
    "--model": hints.MODEL_PATH,
    "--cache-type-k": hints.KV_DTYPE,
}
"""Option of a router's child, as the router writes it -> key in `info`."""
META: Final = {
    "n_params": hints.PARAMS,
    "size": hints.WEIGHT_BYTES,
    "n_vocab": hints.VOCAB,
    "n_embd": hints.HIDDEN,
    "n_ctx": hints.CONTEXT_LEN,
    "ftype": hints.WEIGHT_PRECISION,
}
"""Fact of a loaded model -> key in `info`."""


class Server(NamedTuple):
    """The settings of one server; empty and 0: it does not say."""

    info: Mapping[str, str] = MappingProxyType({})
    model: str = ""
    model_path: str = ""
    version: str = ""
    slots: int = 0


def server_of(body: bytes) -> Server:
    """The answer of /props; empty where it is none. Raises nothing."""
    said = mapping(decoded(body))
    path = text(said.get("model_path"))
    context = count(mapping(said.get("default_generation_settings")).get("n_ctx"))
    modalities = [name for name, there in mapping(said.get("modalities")).items() if there is True]
    info = {
        hints.MODEL_PATH: path,
        hints.WEIGHT_PRECISION: text(said.get("model_ftype")),
        hints.CONTEXT_LEN: str(context or ""),
        hints.MODALITIES: text(",".join(modalities)),
        "slots": str(count(said.get("total_slots")) or ""),
        SLEEPING: UNLOADED if said.get("is_sleeping") is True else "",
    }
    return Server(
        info={key: value for key, value in info.items() if value},
        model=text(said.get("model_alias")) or PurePosixPath(path).stem,
        model_path=path,
        version=text(said.get("build_info")),
        slots=count(said.get("total_slots")),
    )


def is_router(body: bytes) -> bool:
    """Whether this is the model list of a router: it tells the state of each."""
    return any(_state(mapping(card)) for card in items(mapping(decoded(body)).get("data"), 8))


def router_models(body: bytes) -> tuple[EnginePage, ...]:
    """A page without figures for each model that is loaded; one without a model where none is."""
    cards = [mapping(card) for card in items(mapping(decoded(body)).get("data"))]
    if not any(_state(card) for card in cards):
        return ()
    pages = {text(card.get("id")): _page(card) for card in cards if _state(card) in LOADED and text(card.get("id"))}
    if pages:
        return tuple(pages.values())
    return (_bare("", {"models": "none is loaded", "figures": WHY_NOTHING})._replace(part=ROUTER),)


def _page(card: Mapping[str, Any]) -> EnginePage:
    state = _state(card)
    info = {"state": state, "figures": WHY_NOTHING, **({SLEEPING: UNLOADED} if state == SLEEPING else {})}
    words = [text(word) for word in items(mapping(card.get("status")).get("args"), 256)]
    for word, value in pairwise(words):
        if word in OPTIONS and value != "0":
            info[OPTIONS[word]] = value
    meta = mapping(card.get("meta"))
    info |= {key: value for name, key in META.items() if (value := text(meta.get(name)))}
    page = _bare(text(card.get("id")), info)
    return page._replace(model_root=info.get(hints.MODEL_PATH, ""))


def _bare(model: str, info: Mapping[str, str]) -> EnginePage:
    rank = RankReading("0", {}, {}, {})
    return EnginePage((rank,), {}, info, model, started_wall_s=0.0, exact_steps=False, part=model)


def _state(card: Mapping[str, Any]) -> str:
    value = mapping(card.get("status")).get("value")
    return value if isinstance(value, str) else ""
