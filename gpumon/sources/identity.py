"""Which model and version a server has: `/v1/models` and `/version`, asked once for each of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.adapter import Row
from gpumon.sources.engines.json_body import count, decoded, items, mapping, text
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


async def ask(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, served: str, row: Row) -> Identity:
    """Ask where this kind of engine tells it; what fails stays empty. `served` is the model name in the metrics,
    which picks among several cards."""
    key, notice = await api_key(endpoint)
    status, cards = await _asked(fetcher, url, endpoint, row.models_path)
    if status in (401, 403) and key:
        notice = f"{row.models_path} refuses the configured API key ({status}): the model's path is not known"
    version_status, version = await _asked(fetcher, url, endpoint, row.version_path)
    found = [card for card in map(mapping, items(mapping(cards).get("data"))) if isinstance(card.get("id", ""), str)]
    # The served base model: the metrics' name, else the first that is no LoRA adapter (those have a parent).
    card = min(found, key=lambda card: (card.get("id") != served, bool(card.get("parent"))), default={})
    root, longest, meta = text(card.get("root")), count(card.get("max_model_len")), mapping(card.get("meta"))
    info = {IDENTITY: "known" if root else "none"}
    if longest:
        info["max_model_len"] = str(longest)
    if adapters := sum(bool(each.get("parent")) for each in found):
        info[LORA] = str(adapters)
    info |= {name: str(value) for key, name in META.items() if isinstance(value := meta.get(key), int)}
    complete = all(0 < code < 500 for code in (status, version_status))
    return Identity(text(card.get("id")), root, text(mapping(version).get("version")), info, notice, complete)


async def _asked(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, path: str) -> tuple[int, Any]:
    """Status (0 for no answer), and the JSON or None; an engine without such a path has nothing to tell."""
    if not path:
        return 404, None
    try:
        answer = (await get_keyed(fetcher, f"{url.base}{path}", endpoint, MOST_BYTES)).answer
    except FetchError:
        return 0, None
    return answer.status, decoded(answer.body) if answer.status == 200 else None
