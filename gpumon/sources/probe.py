"""Finds out what a server is: which engine, and where its metrics stand. Asked once for each of its processes."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.api_key import read_key
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.adapter import Page
from gpumon.sources.engines.detect import Refusal, by_content, by_status, is_json, sample_names
from gpumon.sources.engines.registry import BY_KIND, METRICS, ROWS, Row, claimed
from gpumon.sources.fetch import Answer, Fetcher
from gpumon.sources.http_faults import FetchError
from gpumon.sources.offload import in_daemon_thread

PATHS: Final = tuple(dict.fromkeys((METRICS, *(path for row in ROWS for path in row.paths))))
"""Where the metrics of a server that nothing is known of may stand."""
DRAINS: Final = EngineKind.TENSORRT_LLM
"""Its JSON /metrics gives every record once: asking a server that may be one would take them from somebody."""
OWNED_BY: Final = "tensorrt_llm"
"""How TensorRT-LLM signs its models (tensorrt_llm/serve/openai_protocol.py, ModelCard)."""
KEY_S: Final = 5.0
"""Longest wait for the API key's file."""
IN_TROUBLE: Final = frozenset({500, 502, 503, 504})
"""Answers of a server that is not well: no other page is asked of it now."""
MOST_MODELS_BYTES: Final = 1024 * 1024
LOOKED_IN_LOOP_BYTES: Final = 256 * 1024


class Server(NamedTuple):
    """What is known of a server's process."""

    row: Row
    path: str
    """Of its metrics page below the base URL; empty: the URL names the page itself."""
    url: str
    key: str
    """API key that its metrics want; empty where they want none. A secret."""


class _Card(msgspec.Struct):
    owned_by: str = ""


class _Cards(msgspec.Struct):
    data: list[_Card]


async def probe(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint) -> tuple[Server, Answer] | Refusal:
    """The server at `url` with its first metrics page; or why there is none. Raises FetchError."""
    kind = EngineKind.UNKNOWN if endpoint.engine == "auto" else EngineKind(endpoint.engine)
    rows = ROWS if kind is EngineKind.UNKNOWN else (BY_KIND[kind],)
    refusals: list[tuple[bool, Refusal]] = []
    for path in await _paths(fetcher, url, endpoint, rows):
        if isinstance(path, Refusal):
            return path
        at = f"{url.base}{path}" if path else url.metrics
        answer, key = await get_keyed(fetcher, at, endpoint)
        if answer.status in IN_TROUBLE and (refusal := by_status(answer.status, "", kind)) is not None:
            return refusal
        found = await _judge(answer, path, rows, kind)
        if isinstance(found, Row):
            taken = found.drains(path) and is_json(answer.body, answer.content_type, ())
            if endpoint.drain_metrics or not taken:
                return Server(found, path, at, key), answer
            found = by_content(answer.body, answer.content_type, kind)
        aside = path != METRICS and (len(rows) > 1 or path in rows[0].json_paths)
        refusals.append((aside, found))
    return min(refusals, key=lambda each: (each[0], each[1].state is EndpointState.METRICS_OFF))[1]


async def described(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, row: Row
) -> tuple[Server, Answer] | Refusal:
    """The server at `url` of which the user says what it is, with its first page. Raises FetchError."""
    path = row.paths[0]
    at = f"{url.base}{path}" if path else url.metrics if url.named_page else url.base
    answer, key = await get_keyed(fetcher, at, endpoint)
    return by_status(answer.status, answer.location, row.kind) or (Server(row, path, at, key), answer)


async def _paths(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, rows: tuple[Row, ...]) -> list[str | Refusal]:
    """Where to look, in order; with a refusal where a path must not be asked."""
    row = BY_KIND[DRAINS]
    if url.named_page and not (row in rows and url.metrics in [f"{url.base}{path}" for path in row.drain_paths]):
        return [""]
    if len(rows) == 1:
        paths = [path for path in rows[0].paths if not rows[0].drains(path) or endpoint.drain_metrics]
        return list(paths)
    first = row.paths[0]
    rest: list[str | Refusal] = [path for path in PATHS if path != first]
    status = (await fetcher.get(f"{url.base}{first}")).status
    if status in IN_TROUBLE and (refusal := by_status(status, "")) is not None:
        return [refusal]
    signed = not endpoint.drain_metrics and await _signed(fetcher, url, endpoint)
    if status == 200:
        return [first] if signed else [first, *rest]
    if signed:
        text = f"{row.title} without Prometheus metrics: {row.switch}; or drain_metrics = true"
        return [Refusal(EndpointState.METRICS_OFF, text)]
    return rest


async def _signed(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint) -> bool:
    """Whether the server's model list is signed by the engine whose /metrics must not be asked."""
    try:
        answer, _ = await get_keyed(fetcher, f"{url.base}/v1/models", endpoint, MOST_MODELS_BYTES)
        cards: Any = msgspec.json.decode(answer.body, type=_Cards) if answer.status == 200 else None
    except (FetchError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return cards is not None and any(card.owned_by == OWNED_BY for card in cards.data)


async def get_keyed(fetcher: Fetcher, url: str, endpoint: Endpoint, most_bytes: int = 0) -> tuple[Answer, str]:
    """The answer, and the API key if it took one: the key goes out only where it is asked for."""
    answer = await fetcher.get(url, "", most_bytes)
    if answer.status not in (401, 403) or not (endpoint.api_key_env or endpoint.api_key_file):
        return answer, ""
    key = await api_key(endpoint)
    if not key[0]:
        return answer, ""
    keyed = await fetcher.get(url, key[0], most_bytes)
    return (keyed, key[0]) if keyed.status == 200 else (keyed, "")


async def api_key(endpoint: Endpoint) -> tuple[str, str]:
    """The configured API key (empty where there is none), and what is wrong with it in one line."""
    try:
        return await asyncio.wait_for(in_daemon_thread(read_key, endpoint), KEY_S)
    except asyncio.TimeoutError:
        return "", f"api_key_file: its file system does not answer within {KEY_S:g} s: is that a mount that hangs?"


async def _judge(answer: Answer, path: str, rows: tuple[Row, ...], kind: EngineKind) -> Row | Refusal:
    """The engine that an answer is of; a large page is looked at in a thread."""
    if len(answer.body) > LOOKED_IN_LOOP_BYTES:
        return await asyncio.to_thread(_judged, answer, path, rows, kind)
    return _judged(answer, path, rows, kind)


def _judged(answer: Answer, path: str, rows: tuple[Row, ...], kind: EngineKind) -> Row | Refusal:
    refusal = by_status(answer.status, answer.location, kind)
    if refusal is not None:
        return refusal
    page = Page(path, frozenset(sample_names(answer.body)), answer.body)
    offered = tuple(row for row in rows if not path or path in row.paths)
    row = claimed(page, offered)
    if row is not None and (not is_json(answer.body, answer.content_type, page.names) or path in row.json_paths):
        return row
    return by_content(answer.body, answer.content_type, kind)
