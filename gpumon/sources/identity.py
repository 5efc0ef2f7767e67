"""Which model and version a server has: `/v1/models` and `/version`, asked once for each of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.registry import Row
from gpumon.sources.fetch import Fetcher, FetchError
from gpumon.sources.probe import api_key, get_keyed
from gpumon.specs.hints import LORA

MOST_BYTES: Final = 1024 * 1024
META: Final = {
    "n_params": "params",
    "size": "weight_bytes",
    "n_vocab": "vocab",
    "n_embd": "hidden",
    "n_ctx_train": "context_len",
}
"""llama.cpp's facts of the model file -> key in `info`."""
MOST_CHARS: Final = 1024
IDENTITY: Final = "identity"
"""Stands in `info` once the server was asked: `known` where it told what its model was loaded from, else `none`."""


class Identity(NamedTuple):
    """What a server says of itself; text from outside, empty where it did not say."""

    model: str = ""
    root: str = ""
    """Path or Hugging Face id that the model was loaded from."""
    version: str = ""
    info: Mapping[str, str] = {IDENTITY: "none"}
    notice: str = ""
    """What is wrong with the API key, in one line."""
    complete: bool = True
    """Whether both were answered, with what is asked for or with a refusal; else asking again makes sense."""


UNASKED: Final = Identity(info={}, complete=False)
"""What is known of a server before it was asked."""


class _Card(msgspec.Struct):
    id: str = ""
    root: str | None = None
    parent: str | None = None
    """The base model of a LoRA adapter."""
    max_model_len: int | None = None
    meta: dict[str, Any] | None = None
    """llama.cpp's facts of the model file."""


class _Cards(msgspec.Struct):
    data: list[_Card]


class _Version(msgspec.Struct):
    version: str


async def ask(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, served: str, row: Row) -> Identity:
    """Ask where this kind of engine tells it; what fails stays empty. `served` is the model name in the metrics,
    which picks among several cards."""
    key, notice = await api_key(endpoint)
    status, cards = await _asked(fetcher, url, endpoint, row.models_path, _Cards)
    if status in (401, 403) and key:
        notice = f"{row.models_path} refuses the configured API key ({status}): the model's path is not known"
    version_status, version = await _asked(fetcher, url, endpoint, row.version_path, _Version)
    card = _of(cards.data, served) if isinstance(cards, _Cards) else _Card()
    info = {IDENTITY: "known" if card.root else "none"}
    if card.max_model_len:
        info["max_model_len"] = str(card.max_model_len)
    adapters = sum(bool(each.parent) for each in cards.data) if isinstance(cards, _Cards) else 0
    if adapters:
        info[LORA] = str(adapters)
    info |= {name: str(value) for key, name in META.items() if isinstance(value := (card.meta or {}).get(key), int)}
    number = version.version if isinstance(version, _Version) else ""
    complete = all(0 < code < 500 for code in (status, version_status))
    return Identity(_cut(card.id), _cut(card.root or ""), _cut(number), info, notice, complete)


async def _asked(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, path: str, kind: type[Any]) -> tuple[int, Any]:
    """Status (0 for no answer), and the answer as `kind` or None; an engine without such a path has nothing to tell."""
    if not path:
        return 404, None
    try:
        answer = (await get_keyed(fetcher, f"{url.base}{path}", endpoint, MOST_BYTES)).answer
    except FetchError:
        return 0, None
    if answer.status != 200:
        return answer.status, None
    try:
        return 200, msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 200, None


def _of(cards: list[_Card], served: str) -> _Card:
    """The card of the served base model: the metrics' name, else the first that is no LoRA adapter."""
    ordered = sorted(cards, key=lambda card: (card.id != served, bool(card.parent)))
    return ordered[0] if ordered else _Card()


def _cut(text: str) -> str:
    return text[:MOST_CHARS]
