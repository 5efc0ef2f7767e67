"""Finds out what a server is: which engine, where its metrics are, which model and version. Asked once per process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.api_key import key_refused, read_key
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.adapter import METRICS, Page, Row
from gpumon.sources.engines.detect import Refusal, by_content, by_status, is_json, sample_names
from gpumon.sources.engines.json_body import count, decoded, items, mapping, text
from gpumon.sources.engines.registry import BY_KIND, ROWS, claimed
from gpumon.sources.fetch import Answer, Fetcher, FetchError
from gpumon.sources.offload import in_daemon_thread
from gpumon.specs.hints import LORA

DRAINS: Final = BY_KIND[EngineKind.TENSORRT_LLM]
"""Asking a server that may be one for its JSON /metrics would take records from somebody."""
SAFE: Final = DRAINS.paths[0]
"""Its other page, which takes nothing from anybody, and which no other engine has."""
PATHS: Final = tuple(dict.fromkeys((SAFE, METRICS, *(path for row in ROWS for path in row.paths))))
"""Where the metrics of a server that nothing is known of may stand."""
OWNED_BY: Final = "tensorrt_llm"
"""How TensorRT-LLM signs its models (tensorrt_llm/serve/openai_protocol.py, ModelCard)."""
KEY_S: Final = 5.0
"""Longest wait for the API key's file."""
IN_TROUBLE: Final = frozenset({500, 502, 503, 504})
"""Answers of a server that is not well: no other page is asked of it now."""
WANTS_KEY: Final = frozenset({401, 403})
MOST_BYTES: Final = 1024 * 1024
"""Of a list of models or a version."""


class Server(NamedTuple):
    """What is known of a server's process."""

    row: Row
    path: str
    """Of its metrics page below the base URL; empty: a feed's URL, which is that page."""
    url: str
    key: str
    """API key that its metrics want; empty where they want none. A secret."""


class Keyed(NamedTuple):
    """An answer, and what became of the API key."""

    answer: Answer
    key: str = ""
    """The key if it took one; a secret."""
    wrong: str = ""
    """Why the configured key did not open the page, in one line."""


async def find(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, taken: list[Refusal]
) -> tuple[Server, Answer] | Refusal:
    """The server with its first metrics page; or why there is none. Raises FetchError.

    It is looked for at one page where the config says the kind, else wherever an engine has one. TensorRT-LLM's JSON
    /metrics gives every record once: a server that may be one is asked for its other page first, and then for its model
    list, which it signs. What an unsigned /metrics with JSON came to is kept in `taken`: its records may have been
    somebody else's, so it is not asked again.
    """
    kind = EngineKind.UNKNOWN if endpoint.engine == "auto" else EngineKind(endpoint.engine)
    rows: tuple[Row, ...] = ROWS if kind is EngineKind.UNKNOWN else (BY_KIND[kind],)
    named = url.metrics.removeprefix(url.base)
    paths = PATHS if len(rows) > 1 else tuple(path for path in rows[0].paths if path not in rows[0].drain_paths)
    if url.named_page and not (DRAINS in rows and named in DRAINS.drain_paths):
        paths = (named,)
        rows_of = {named: rows}
    else:
        rows_of = {path: tuple(row for row in rows if path in row.paths) for path in paths}
    refusals: list[tuple[tuple[bool, bool], Refusal]] = []
    for path in paths:
        careful = path == METRICS and paths[0] == SAFE
        if careful and taken:
            refusals.append(((False, False), taken[0]))
            continue
        if careful and await _signed(fetcher, url, endpoint):
            off = f"{DRAINS.title} without Prometheus metrics: {DRAINS.switch}"
            (_, asked) = refusals[0]
            return Refusal(asked.state, off) if asked.state is EndpointState.METRICS_OFF else asked
        at = f"{url.base}{path}"
        answer, key, wrong = await get_keyed(fetcher, at, endpoint)
        # In a thread: a page may be large.
        found = await asyncio.to_thread(_judged, answer, path, rows_of[path], kind, wrong)
        if not isinstance(found, Refusal):
            return Server(found, path, at, key), answer
        if answer.status in IN_TROUBLE:
            return found
        if careful and answer.status == 200 and is_json(answer.body, answer.content_type, ()):
            taken.append(found)
        aside = path != METRICS and (len(rows) > 1 or path in rows[0].json_paths)
        refusals.append(((aside, found.state is EndpointState.METRICS_OFF), found))
    return min(refusals, key=lambda each: each[0])[1]


async def _signed(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint) -> bool:
    """Whether the server's model list is signed by the engine whose /metrics must not be asked.

    Raises FetchError where the answer does not come in time: it may be that engine then.
    """
    try:
        answer = (await get_keyed(fetcher, f"{url.base}/v1/models", endpoint, MOST_BYTES)).answer
    except FetchError as fault:
        if fault.state is EndpointState.TIMEOUT:
            raise
        return False
    cards = items(mapping(decoded(answer.body)).get("data")) if answer.status == 200 else []
    return any(mapping(card).get("owned_by") == OWNED_BY for card in cards)


async def described(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, row: Row
) -> tuple[Server, Answer] | Refusal:
    """The server at `url` of which the user says what it is, with its first page. Raises FetchError."""
    path = row.paths[0]
    at = url.metrics if url.named_page else url.base
    if path:
        at = f"{url.base}{path}"
    answer, key, wrong = await get_keyed(fetcher, at, endpoint)
    return by_status(answer.status, answer.location, row.kind, wrong) or (Server(row, path, at, key), answer)


async def get_keyed(fetcher: Fetcher, url: str, endpoint: Endpoint, most_bytes: int = 0) -> Keyed:
    """The answer, and the API key if it took one: the key goes out only where it is asked for."""
    answer = await fetcher.get(url, "", most_bytes)
    if answer.status not in WANTS_KEY or not (endpoint.api_key_env or endpoint.api_key_file):
        return Keyed(answer)
    key, wrong = await api_key(endpoint)
    if not key:
        return Keyed(answer, wrong=wrong)
    keyed = await fetcher.get(url, key, most_bytes)
    if keyed.status == 200:
        return Keyed(keyed, key)
    return Keyed(keyed, wrong=key_refused(endpoint) if keyed.status in WANTS_KEY else "")


async def api_key(endpoint: Endpoint, setting: str = "api_key") -> tuple[str, str]:
    """The configured API key (empty where there is none), and what is wrong with it in one line.

    `setting` is what the config calls it, before `_env` and `_file`.
    """
    if not (endpoint.api_key_env or endpoint.api_key_file):
        return "", ""
    try:
        return await asyncio.wait_for(in_daemon_thread(read_key, endpoint, setting), KEY_S)
    except asyncio.TimeoutError:
        return "", f"{setting}_file: its file system does not answer within {KEY_S:g} s: is that a mount that hangs?"


def _judged(answer: Answer, path: str, rows: tuple[Row, ...], kind: EngineKind, wrong: str) -> Row | Refusal:
    refusal = by_status(answer.status, answer.location, kind, wrong)
    if refusal is not None:
        return refusal
    page = Page(path, frozenset(sample_names(answer.body)), answer.body)
    row = claimed(page, rows)
    if row is not None and (not is_json(answer.body, answer.content_type, page.names) or path in row.json_paths):
        return row
    return by_content(answer.body, answer.content_type, kind)


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
    root = text(card.get("root"))
    longest = count(card.get("max_model_len"))
    meta = mapping(card.get("meta"))
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
