"""Finds out what a server is: which engine, where its metrics are, which model and version. Asked once per process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.deadline import timeout
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.api_key import read_key, refused_key_text
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.adapter import METRICS_PATH, EngineRow, FirstAnswer
from gpumon.sources.engines.detect import Refusal, is_json, refusal_of_content, refusal_of_status, sample_names
from gpumon.sources.engines.json_body import first_items, mapping, parse_json, positive_count, text
from gpumon.sources.engines.registry import BY_KIND, ENGINE_ROWS, claiming_row
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer
from gpumon.sources.offload import in_daemon_thread
from gpumon.specs.hints import LORA

DRAINING_ENGINE: Final = BY_KIND[EngineKind.TENSORRT_LLM]
"""The engine whose JSON /metrics gives every record once: to ask for it takes records from somebody."""
SAFE_PATH: Final = DRAINING_ENGINE.paths[0]
"""Path of its other page, which takes nothing from anybody, and which no other engine has."""
PATHS: Final = tuple(dict.fromkeys((SAFE_PATH, METRICS_PATH, *chain.from_iterable(row.paths for row in ENGINE_ROWS))))
"""Paths at which an unknown server may have its metrics."""
OWNED_BY: Final = "tensorrt_llm"
"""How TensorRT-LLM signs its models (tensorrt_llm/serve/openai_protocol.py, ModelCard)."""
KEY_S: Final = 5.0
"""Longest wait for the API key's file."""
IN_TROUBLE: Final = frozenset({500, 502, 503, 504})
"""Answers of a server that is not well: no other page is asked of it now."""
WANTS_KEY: Final = frozenset({401, 403})
"""Answers that ask for an API key, or refuse the one that was sent."""
MOST_IDENTITY_BYTES: Final = 1024 * 1024
"""Largest answer with a list of models or a version."""


class ProbedServer(NamedTuple):
    """The engine that a server is, and how its metrics are asked for."""

    row: EngineRow
    path: str
    """Path of its metrics page below the base URL; empty for a feed, whose URL is that page."""
    url: str
    key: str
    """API key that its metrics want; empty where they want none. A secret."""


class KeyedAnswer(NamedTuple):
    """An answer, and what became of the API key."""

    answer: HttpAnswer
    key: str = ""
    """The key if it took one; a secret."""
    wrong: str = ""
    """Why the configured key did not open the page, in one line."""


class _PageRefusal(NamedTuple):
    """Why one page is not the metrics page of the server; the refusal of the lowest rank is shown."""

    rank: tuple[bool, bool]
    """Whether the page is an aside, and whether the metrics are only off or elsewhere: either says little."""
    refusal: Refusal


_MOST_TELLING: Final = (False, False)


async def find(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, record_refusals: list[Refusal]
) -> tuple[ProbedServer, HttpAnswer] | Refusal:
    """The server with its first metrics page; or why there is none. Raises FetchError.

    It is looked for at one page where the config says the kind, else wherever an engine has one. TensorRT-LLM's JSON
    /metrics gives every record once: a server that may be one is asked for its other page first, and then for its model
    list, which it signs. The refusal of an unsigned /metrics with JSON is kept in `record_refusals`: its records may
    have been somebody else's, so it is not asked again.
    """
    kind = configured_kind(endpoint)
    engines = _engines_of(kind)
    pages = _candidates(url, engines)
    # Where the first page is the safe one, /metrics gives each record once.
    page_of_records = METRICS_PATH if next(iter(pages)) == SAFE_PATH else ""
    refusals: list[_PageRefusal] = []
    for path, rows in pages.items():
        may_take_records = path == page_of_records
        if may_take_records and record_refusals:
            refusals.append(_PageRefusal(_MOST_TELLING, record_refusals[0]))
            continue
        if may_take_records and await _is_signed(fetcher, url, endpoint):
            return _without_prometheus_page(refusals[0].refusal)  # the safe page was the first to be asked
        page_url = f"{url.base}{path}"
        answer, key, wrong = await get_keyed(fetcher, page_url, endpoint)
        # In a thread: a page may be large.
        row = await asyncio.to_thread(_row_or_refusal, answer, path, rows, kind, wrong)
        if not isinstance(row, Refusal):
            return ProbedServer(row, path, page_url, key), answer
        refusal = row
        if answer.status in IN_TROUBLE:
            return refusal
        if may_take_records and _has_records(answer):
            record_refusals.append(refusal)
        rank = (_is_aside(path, engines), _says_little(refusal, answer.status))
        refusals.append(_PageRefusal(rank, refusal))
    return min(refusals, key=attrgetter("rank")).refusal


def _has_records(answer: HttpAnswer) -> bool:
    """Whether an answer is JSON: records that nobody else gets any more."""
    return answer.status == 200 and is_json(answer.body, answer.content_type, ())


def _says_little(refusal: Refusal, status: int) -> bool:
    """Whether the metrics are only off, or elsewhere: the page that a redirect leads to counts, if it is asked, too."""
    return refusal.state is EndpointState.METRICS_OFF or 300 <= status < 400


def _engines_of(kind: EngineKind) -> tuple[EngineRow, ...]:
    """The engines that the server may be."""
    if kind is EngineKind.UNKNOWN:
        return ENGINE_ROWS
    kinds = (kind, *BY_KIND[kind].instead)
    return tuple(row for row in ENGINE_ROWS if row.kind in kinds)


def configured_kind(endpoint: Endpoint) -> EngineKind:
    """The kind that the config says; UNKNOWN for `auto`."""
    return EngineKind.UNKNOWN if endpoint.engine == "auto" else EngineKind(endpoint.engine)


def _candidates(url: EndpointUrl, engines: tuple[EngineRow, ...]) -> dict[str, tuple[EngineRow, ...]]:
    """The pages to ask, in this order, each with the engines whose metrics it may be.

    A page that the user named is the only one, unless asking it takes records from somebody.
    """
    named_path = url.metrics.removeprefix(url.base)
    takes_records = DRAINING_ENGINE in engines and named_path in DRAINING_ENGINE.drain_paths
    if url.named_page and not takes_records:
        return {named_path: engines}
    first, *others = engines
    if all(other.paths == first.paths for other in others):
        return {path: engines for path in first.paths if path not in first.drain_paths}
    return {path: tuple(row for row in engines if path in row.paths) for path in PATHS}


def _is_aside(path: str, engines: tuple[EngineRow, ...]) -> bool:
    """Whether a refusal of this page says less than one of /metrics."""
    if path.rstrip("/") == METRICS_PATH:
        return False
    return len(engines) > 1 or path in engines[0].json_paths


def _without_prometheus_page(refusal: Refusal) -> Refusal:
    """The refusal of a server that signed itself as TensorRT-LLM; `refusal` is that of its Prometheus page."""
    if refusal.state is not EndpointState.METRICS_OFF:
        return refusal
    return Refusal(refusal.state, f"{DRAINING_ENGINE.title} without Prometheus metrics: {DRAINING_ENGINE.switch}")


async def _is_signed(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint) -> bool:
    """Whether the server's model list is signed by the engine whose /metrics must not be asked.

    Raises FetchError where the answer does not come in time: it may be that engine then.
    """
    try:
        answer = (await get_keyed(fetcher, f"{url.base}/v1/models", endpoint, MOST_IDENTITY_BYTES)).answer
    except FetchError as fault:
        if fault.state is EndpointState.TIMEOUT:
            raise
        return False
    if answer.status != 200:
        return False
    cards = first_items(mapping(parse_json(answer.body)).get("data"))
    return any(mapping(card).get("owned_by") == OWNED_BY for card in cards)


async def probe_configured(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, row: EngineRow
) -> tuple[ProbedServer, HttpAnswer] | Refusal:
    """The server at `url` of which the user says what it is, with its first page. Raises FetchError."""
    path = row.paths[0]
    if path:
        page_url = f"{url.base}{path}"
    elif url.named_page:
        page_url = url.metrics
    else:
        page_url = url.base
    answer, key, wrong = await get_keyed(fetcher, page_url, endpoint)
    refusal = refusal_of_status(answer.status, answer.location, row.kind, wrong)
    if refusal is not None:
        return refusal
    return ProbedServer(row, path, page_url, key), answer


async def get_keyed(fetcher: Fetcher, url: str, endpoint: Endpoint, most_bytes: int = 0) -> KeyedAnswer:
    """The answer, and the API key if it took one: the key goes out only where it is asked for."""
    answer = await fetcher.get(url, "", most_bytes)
    if answer.status not in WANTS_KEY or not (endpoint.api_key_env or endpoint.api_key_file):
        return KeyedAnswer(answer)
    key, wrong = await api_key(endpoint)
    if not key:
        return KeyedAnswer(answer, wrong=wrong)
    keyed = await fetcher.get(url, key, most_bytes)
    if keyed.status == 200:
        return KeyedAnswer(keyed, key)
    if keyed.status in WANTS_KEY:
        return KeyedAnswer(keyed, wrong=refused_key_text(endpoint))
    return KeyedAnswer(keyed)


async def api_key(endpoint: Endpoint, setting: str = "api_key") -> tuple[str, str]:
    """The configured API key (empty where there is none), and what is wrong with it in one line.

    `setting` is what the config calls it, before `_env` and `_file`.
    """
    if not (endpoint.api_key_env or endpoint.api_key_file):
        return "", ""
    try:
        async with timeout(KEY_S):
            return await in_daemon_thread(read_key, endpoint, setting)
    except asyncio.TimeoutError:
        return "", f"{setting}_file: its file system does not answer within {KEY_S:g} s: is that a mount that hangs?"


def _row_or_refusal(
    answer: HttpAnswer, path: str, rows: tuple[EngineRow, ...], kind: EngineKind, wrong: str
) -> EngineRow | Refusal:
    """The engine whose metrics page an answer is, or why it is none; `wrong` is the fault of the API key."""
    refusal = refusal_of_status(answer.status, answer.location, kind, wrong)
    if refusal is not None:
        return refusal
    page = FirstAnswer(path, frozenset(sample_names(answer.body)), answer.body)
    row = claiming_row(page, rows)
    if row is not None and (not is_json(answer.body, answer.content_type, page.names) or path in row.json_paths):
        return row
    return refusal_of_content(answer.body, answer.content_type, kind)


_INFO_OF_META: Final = {
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
    """Identity by the server's own words; text from outside, empty where it did not say."""

    model: str = ""
    root: str = ""
    """Path or Hugging Face id that the model was loaded from."""
    version: str = ""
    info: Mapping[str, str] = {IDENTITY: "none"}
    notice: str = ""
    """Fault of the API key, in one line."""
    complete: bool = True
    """Whether both were answered, with what is asked for or with a refusal; else asking again makes sense."""


UNASKED: Final = Identity(info={}, complete=False)
"""The identity of a server before it was asked."""


async def ask_engine(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, served: str, row: EngineRow) -> Identity:
    """The identity by the server's list of models and its version; what fails stays empty.

    `served`: the model's name in the metrics, which picks among several cards.
    """
    key, notice = await api_key(endpoint)
    status, models = await _get_json(fetcher, url, endpoint, row.models_path)
    if status in WANTS_KEY and key:
        notice = f"{row.models_path} refuses the configured API key ({status}): the model's path is not known"
    version_status, version = await _get_json(fetcher, url, endpoint, row.version_path)
    cards = _cards_of(models)
    card = _served_card(cards, served)
    return Identity(
        model=text(card.get("id")),
        root=text(card.get("root")),
        version=text(mapping(version).get("version")),
        info=_facts_of(card, cards),
        notice=notice,
        complete=0 < status < 500 and 0 < version_status < 500,
    )


def _cards_of(models: Any) -> list[Mapping[str, Any]]:
    """The cards of a model list whose names are texts, or missing."""
    cards = map(mapping, first_items(mapping(models).get("data")))
    return [card for card in cards if isinstance(card.get("id", ""), str)]


def _served_card(cards: Sequence[Mapping[str, Any]], served: str) -> Mapping[str, Any]:
    """The card of the served base model; empty if there are no cards.

    It is the one with the metrics' name, else the first that is no LoRA adapter (those have a parent).
    """
    return min(cards, key=lambda card: (card.get("id") != served, bool(card.get("parent"))), default={})


def _facts_of(card: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The facts of the served model's card, as `info` of a reading has them."""
    info = {IDENTITY: "known" if text(card.get("root")) else "none"}
    longest = positive_count(card.get("max_model_len"))
    if longest:
        info["max_model_len"] = str(longest)
    adapters = sum(bool(other.get("parent")) for other in cards)
    if adapters:
        info[LORA] = str(adapters)
    meta = mapping(card.get("meta"))
    for key, info_key in _INFO_OF_META.items():
        value = meta.get(key)
        if isinstance(value, int):
            info[info_key] = str(value)
    return info


async def _get_json(fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, path: str) -> tuple[int, Any]:
    """Status (0 for no answer), and the JSON or None; an engine without such a path has nothing to tell."""
    if not path:
        return 404, None
    try:
        answer = (await get_keyed(fetcher, f"{url.base}{path}", endpoint, MOST_IDENTITY_BYTES)).answer
    except FetchError:
        return 0, None
    if answer.status != 200:
        return answer.status, None
    return answer.status, parse_json(answer.body)
