"""Finds out what a server is: which engine, and where its metrics stand. Asked once for each of its processes."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.api_key import key_refused, read_key
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.engines.adapter import Page
from gpumon.sources.engines.detect import Refusal, by_content, by_status, is_json, sample_names
from gpumon.sources.engines.registry import BY_KIND, METRICS, ROWS, Row, claimed
from gpumon.sources.fetch import Answer, Fetcher, FetchError
from gpumon.sources.offload import in_daemon_thread

DRAINS: Final = EngineKind.TENSORRT_LLM
"""Its JSON /metrics gives every record once: asking a server that may be one would take them from somebody."""
SAFE: Final = BY_KIND[DRAINS].paths[0]
"""Its other page, which takes nothing from anybody, and which no other engine has."""
PATHS: Final = tuple(dict.fromkeys((SAFE, METRICS, *(path for row in ROWS for path in row.paths))))
"""Where the metrics of a server that nothing is known of may stand."""
ALL_EVERY: Final = 10
"""So many tries in vain, and all paths are asked again: a page may have come to stand at another one."""
OWNED_BY: Final = "tensorrt_llm"
"""How TensorRT-LLM signs its models (tensorrt_llm/serve/openai_protocol.py, ModelCard)."""
KEY_S: Final = 5.0
"""Longest wait for the API key's file."""
IN_TROUBLE: Final = frozenset({500, 502, 503, 504})
"""Answers of a server that is not well: no other page is asked of it now."""
WANTS_KEY: Final = frozenset({401, 403})
MOST_MODELS_BYTES: Final = 1024 * 1024
LOOKED_IN_LOOP_BYTES: Final = 256 * 1024


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


class _Vain(NamedTuple):
    """A look everywhere that found nothing."""

    path: str
    """What is asked from now on."""
    state: EndpointState
    """What its answer was."""
    signed: bool
    told: Refusal | None
    """What the user is told where that is not what this answer says."""


class _Card(msgspec.Struct):
    owned_by: str = ""


class _Cards(msgspec.Struct):
    data: list[_Card]


class Probe:
    """Looks for a server's metrics, and remembers where in vain: one that is no engine is not asked everything again.

    Two GETs a try then (one where the config says the kind), until an answer differs; every `ALL_EVERY`th try looks
    everywhere, except at what must not be asked again.
    """

    def __init__(self, fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint) -> None:
        self._fetcher = fetcher
        self._url = url
        self._endpoint = endpoint
        self._kind = EngineKind.UNKNOWN if endpoint.engine == "auto" else EngineKind(endpoint.engine)
        self._rows = ROWS if self._kind is EngineKind.UNKNOWN else (BY_KIND[self._kind],)
        self._named = url.metrics.removeprefix(url.base)
        self._paths = self._order()
        self._careful = METRICS in self._paths[1:] and self._paths[0] == SAFE
        """Whether it may be the server whose /metrics must not be asked."""
        self._vain: _Vain | None = None
        self._tries = 0

    async def __call__(self) -> tuple[Server, Answer] | Refusal:
        """The server with its first metrics page; or why there is none. Raises FetchError."""
        vain, self._vain = self._vain, None
        self._tries = 0 if vain is None else self._tries + 1
        again = vain is not None and (vain.told is not None or self._tries % ALL_EVERY)
        if vain is not None and again and await self._as_before(vain):
            answer, found = await self._ask(vain.path)
            if isinstance(found, Server):
                return found, answer
            if found.state is vain.state:
                self._vain = vain
                return vain.told or found
        return await self._everywhere()

    def _order(self) -> tuple[str, ...]:
        """Where to look, in order."""
        row = BY_KIND[DRAINS]
        may_drain = row in self._rows and row.drains(self._named)
        if self._url.named_page and not may_drain:
            return ("",)
        if len(self._rows) > 1:
            return PATHS
        row = self._rows[0]
        return tuple(path for path in row.paths if not row.drains(path))

    async def _as_before(self, vain: _Vain) -> bool:
        return not self._careful or await self._signed() is vain.signed

    async def _everywhere(self) -> tuple[Server, Answer] | Refusal:
        refusals: list[tuple[tuple[bool, bool], str, Refusal]] = []
        signed = drained = False
        for path in self._paths:
            if path == METRICS and self._careful and (signed := await self._signed()):
                break
            answer, found = await self._ask(path)
            if isinstance(found, Server):
                return found, answer
            if answer.status in IN_TROUBLE:
                return found
            json = answer.status == 200 and is_json(answer.body, answer.content_type, ())
            drained |= json and BY_KIND[DRAINS].drains(path)
            aside = path != METRICS and (len(self._rows) > 1 or path in self._rows[0].json_paths)
            last = (aside, found.state is EndpointState.METRICS_OFF)
            refusals.append((last, path, found))
        _, path, refusal = min(refusals, key=lambda each: each[0])
        state, told = refusal.state, None
        if signed and state is EndpointState.METRICS_OFF:
            row = BY_KIND[DRAINS]
            told = Refusal(state, f"{row.title} without Prometheus metrics: {row.switch}")
        elif drained and self._careful:  # its answer may have been records that somebody else waits for
            told, (_, path, (state, _)) = refusal, refusals[0]
        self._vain = _Vain(path, state, signed, told)
        return told or refusal

    async def _ask(self, path: str) -> tuple[Answer, Server | Refusal]:
        """The answer of a path, and what it says. Raises FetchError."""
        rows = tuple(row for row in self._rows if not path or path in row.paths)
        path = path or self._named
        at = f"{self._url.base}{path}"
        answer, key, wrong = await get_keyed(self._fetcher, at, self._endpoint)
        found = await _judge(answer, path, rows, self._kind, wrong)
        if isinstance(found, Refusal):
            return answer, found
        return answer, Server(found, path, at, key)

    async def _signed(self) -> bool:
        """Whether the server's model list is signed by the engine whose /metrics must not be asked.

        Raises FetchError where the answer does not come in time: it may be that engine then.
        """
        try:
            at = f"{self._url.base}/v1/models"
            answer = (await get_keyed(self._fetcher, at, self._endpoint, MOST_MODELS_BYTES)).answer
            cards: Any = msgspec.json.decode(answer.body, type=_Cards) if answer.status == 200 else None
        except FetchError as fault:
            if fault.state is EndpointState.TIMEOUT:
                raise
            return False
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return cards is not None and any(card.owned_by == OWNED_BY for card in cards.data)


async def described(
    fetcher: Fetcher, url: EndpointUrl, endpoint: Endpoint, row: Row
) -> tuple[Server, Answer] | Refusal:
    """The server at `url` of which the user says what it is, with its first page. Raises FetchError."""
    path = row.paths[0]
    at = f"{url.base}{path}" if path else url.metrics if url.named_page else url.base
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


async def _judge(answer: Answer, path: str, rows: tuple[Row, ...], kind: EngineKind, wrong: str) -> Row | Refusal:
    """The engine that an answer is of; a large page is looked at in a thread."""
    if len(answer.body) > LOOKED_IN_LOOP_BYTES:
        return await asyncio.to_thread(_judged, answer, path, rows, kind, wrong)
    return _judged(answer, path, rows, kind, wrong)


def _judged(answer: Answer, path: str, rows: tuple[Row, ...], kind: EngineKind, wrong: str) -> Row | Refusal:
    refusal = by_status(answer.status, answer.location, kind, wrong)
    if refusal is not None:
        return refusal
    page = Page(path, frozenset(sample_names(answer.body)), answer.body)
    row = claimed(page, rows)
    if row is not None and (not is_json(answer.body, answer.content_type, page.names) or path in row.json_paths):
        return row
    return by_content(answer.body, answer.content_type, kind)
