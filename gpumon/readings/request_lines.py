"""Requests as engines' logs have them: one line each, read by a table of forms per kind of engine.

Of a line only method, path, status, time, client and duration are kept. Queries, bodies and messages are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.readings.log_masking import STRUCK, without_keys
from gpumon.readings.text import clean, is_address

MOST_PATH: Final = 120
"""Most characters of a path that are kept."""
_MOST_CLIENT: Final = 45
"""Most characters of a client's address: an IPv6 address has at most 45."""
_STAMP_CHARACTERS: Final = 160
"""Characters of the beginning of a line in which its time stands."""


class TimeOrigin(str, Enum):
    """Origin of a request's time."""

    LINE = "line"
    """The line itself, or what a container's runtime writes before it."""
    READ = "read"
    """The line has none: gpumon read it at that time."""
    AFTER = "after"
    """The line has none: an earlier line of the log has this one."""
    NONE = "none"
    """Neither the line nor one before it has a time."""


class LoggedRequest(NamedTuple):
    """One request of an engine's log, safe to show."""

    method: str
    path: str
    """Without query."""
    status: int | None
    """HTTP status; None: the line has none."""
    has_failed: bool = False
    """Whether the line says so without a status."""
    client: str = ""
    """Address without port; empty: the line has none."""
    took_s: float | None = None
    """Seconds that it took; None: the line does not say."""
    time: str = ""
    """Month, day and time as the log has them (`11-26 18:00:00`, a `Z` behind it for UTC), or the time alone."""
    clock: TimeOrigin = TimeOrigin.NONE

    @property
    def is_error(self) -> bool:
        """Whether it was refused or failed: status 400 and above, or a line that says so."""
        if self.status is None:
            return self.has_failed
        return self.status >= 400

    @property
    def outcome(self) -> str:
        """Status as a person reads it: `200`, `ok` or `error` where the log has words alone; empty: not told."""
        if self.status is not None:
            return str(self.status)
        if self.has_failed:
            return "error"
        if self.took_s is not None:
            return "ok"
        return ""

    @property
    def is_poll(self) -> bool:
        """Whether it is a health check, a scrape or another question about the server itself."""
        path = self.path.rstrip("/")
        return self.method in _POLL_METHODS and (path in _POLL_PATHS or path.endswith("/metrics"))


_POLL_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods of requests that only look whether an engine is well."""
_POLL_PATHS: Final = frozenset(
    (
        *("/health", "/healthz", "/health_generate", "/v1/health", "/v2/health/live", "/v2/health/ready", "/ping"),
        *("/live", "/livez", "/ready", "/readyz", "/load", "/version", "/api/version", "/v1/version"),
        *("/models", "/v1/models", "/api/tags", "/api/ps", "/props", "/slots", "/info"),
        *("/get_model_info", "/model_info", "/get_server_info", "/server_info"),
    )
)
"""Paths of health checks, scrapes and other questions about the server, gpumon's own among them."""


class LineForm(NamedTuple):
    """A form of request lines."""

    mark: str
    """Stands in every such line, and in few others: lines without it are not looked at further."""
    pattern: re.Pattern[str]
    """The whole line. Groups: `method`, `path`, `status`, `client`, `took`, `unix`, `span`, `level`."""
    routes: Mapping[str, str] = MappingProxyType({})
    """Path of each `span`, if the line names the handler in its place."""
    methods: Mapping[str, str] = MappingProxyType({})
    """Method of each number, if the line has a number in its place."""


_BEFORE: Final = r"[^\"'{}]{0,160}?"
"""Level, time, process, file: before the request, and without quotes, so that no quoted text is taken for a request."""
_UVICORN: Final = LineForm(
    "HTTP/",
    re.compile(
        rf"{_BEFORE}(?<!\S)(?P<client>[^\s\"]{{0,64}}) - \"(?P<method>[A-Z]{{3,10}}) (?P<path>[^\s\"?]{{1,4096}})"
        r"(?:\?\S{0,4096})? HTTP/[\d.]{1,4}\" (?P<status>\d{3})(?: [A-Za-z' -]{0,40})?"
    ),
)
"""`INFO:     127.0.0.1:54321 - "POST /v1/chat/completions HTTP/1.1" 200 OK` (uvicorn's AccessFormatter)."""
_LLAMA_CPP: Final = LineForm(
    "log_server_r",
    re.compile(
        rf"{_BEFORE}srv\s{{1,12}}log_server_r\w{{0,8}}: (?:done )?request: (?P<method>[A-Z]{{3,10}})"
        r" (?P<path>/.{0,2048}) (?P<client>\S{1,64}) (?P<status>\d{3})"
    ),
)
"""`srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200` (llama.cpp, tools/server)."""
_LLAMA_CPP_2024: Final = LineForm(
    "log_server_request",
    re.compile(
        r"INFO \[\s{0,40}log_server_request\] request \| tid=\"\d{1,20}\" timestamp=(?P<unix>\d{9,11})"
        r" remote_addr=\"(?P<client>[^\"]{0,64})\" remote_port=-?\d{1,6} status=(?P<status>\d{3})"
        r" method=\"(?P<method>[A-Z]{3,10})\" path=\"(?P<path>[^\"]{1,2048})\" params=.{0,2048}"
    ),
)
"""llama.cpp of 2024 and ik_llama.cpp: `INFO [log_server_request] request | ... status=200 method="POST" path=...`."""
_GIN: Final = LineForm(
    "[GIN]",
    re.compile(
        r"\[GIN\] [\d/]{10} - [\d:]{8} \|\s{0,3}(?P<status>\d{3})\s{0,3}\|\s{0,16}(?P<took>[\d.a-zµ]{1,24})\s{0,3}\|"
        r"\s{0,45}(?P<client>[^\s|]{0,64})\s{0,3}\| (?P<method>[A-Z]{3,10})\s{1,10}"
        r"\"(?P<path>(?:[^\"\\]|\\.){1,2048})\""
    ),
)
"""`[GIN] 2025/03/21 - 08:52:32 | 200 |    1.3560275s |       127.0.0.1 | POST     "/api/chat"` (Ollama)."""
_TGI: Final = LineForm(
    "_router",
    re.compile(
        r"\d{4}-\d\d-\d\dT[\d:.]{8,18}Z\s{1,3}(?:(?P<level>ERROR)|INFO) "
        r"(?:HTTP request\{[^{}]{0,1024}\}:)?(?P<span>[a-z_]{1,40})\b.{0,4096}"
        r": text_(?:generation_router::(?:server|infer|validation)|embeddings_router::http::server): "
        r"[\w/.]{1,64}:\d{1,6}: (?(level).{1,1024}|Success)"
    ),
    routes={
        "compat_generate": "/",
        "generate": "/generate",
        "generate_stream": "/generate_stream",
        "completions": "/v1/completions",
        "chat_completions": "/v1/chat/completions",
        "vertex_compatibility": "/vertex",
        "sagemaker_compatibility": "/invocations",
        "embed": "/embed",
        "embed_all": "/embed_all",
        "embed_sparse": "/embed_sparse",
        "openai_embed": "/v1/embeddings",
        "predict": "/predict",
        "rerank": "/rerank",
        "similarity": "/similarity",
    },
)
"""`2024-12-10T21:50:03.478010Z  INFO chat_completions{total_time="735ms" ...}: text_generation_router::server: ...:
Success`: TGI and TEI name the handler, and no status and no client."""
_TRITON: Final = LineForm(
    "HTTP request:",
    re.compile(
        r"[IWEF]\d{4} [\d:.]{8,15} \d{1,10} http_server\.cc:\d{1,6}\] \"?HTTP request: (?P<method>\d{1,2})"
        r" (?P<path>/[^\s\"]{0,2048})\"?"
    ),
    methods={"0": "GET", "1": "HEAD", "2": "POST", "3": "PUT", "4": "DELETE"},
)
"""`I0304 11:43:47.985271 1 http_server.cc:4509] HTTP request: 2 /v2/models/NAME/infer`: when it arrives, without status
and client; the number is libevhtp's method."""

_BY_UVICORN: Final = (_UVICORN,)
_BY_LLAMA_CPP: Final = (_LLAMA_CPP, _LLAMA_CPP_2024)
_ALL_FORMS: Final = (_UVICORN, *_BY_LLAMA_CPP, _GIN, _TGI, _TRITON)
"""Forms of the lines of engines whose kind is not known."""
LINE_FORMS: Final[Mapping[EngineKind, tuple[LineForm, ...]]] = {
    EngineKind.VLLM: _BY_UVICORN,
    EngineKind.APHRODITE: _BY_UVICORN,
    EngineKind.VLLM_OMNI: _BY_UVICORN,
    EngineKind.VLLM_STACK: _BY_UVICORN,
    EngineKind.SGLANG: _BY_UVICORN,
    EngineKind.SGLANG_DIFFUSION: _BY_UVICORN,
    EngineKind.LMDEPLOY: _BY_UVICORN,
    EngineKind.TENSORRT_LLM: _BY_UVICORN,
    EngineKind.NIM: _BY_UVICORN,
    EngineKind.LLAMA_CPP: _BY_LLAMA_CPP,
    EngineKind.OLLAMA: (_GIN,),
    EngineKind.TGI: (_TGI,),
    EngineKind.TEI: (_TGI,),
    EngineKind.TRITON: (_TRITON,),
}
"""Forms of each kind of engine. A kind that is not here may write any of them: front ends, feeds, new engines."""

_DATED_TIME: Final = re.compile(
    r"(?<![\d.])(?:\d{4}[-/])?(?P<month>\d\d)[-/](?P<day>\d\d)(?:T| - | )(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?"
    r"(?P<utc>Z|\+00:00)?"
)
"""A date, with or without its year, and a time."""
_GLOG: Final = re.compile(r"[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)")
"""Date and time as Google's logs begin a line."""
_SYSLOG: Final = re.compile(r"(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)\s")
"""Date and time as syslog begins a line."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DURATION: Final = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,3})m(?!s))?(?:(\d{1,12}(?:\.\d{1,9})?)(ns|µs|us|ms|s))?")
"""A duration as Go and Rust write it: `1m2.5s`, `350ms`."""
_UNITS_S: Final = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TOTAL_TIME: Final = re.compile(r".*\btotal_time=\"(?P<took>[^\"]{1,24})\" [a-z]{1,20}_time=")
"""The whole duration in a line of TGI."""
_IDENTIFIERS: Final = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|(?=[A-Za-z_]{0,64}\d)(?=[\d_]{0,64}[A-Za-z])[A-Za-z0-9_]{20,}"
)
"""Parts of a path that identify an object or a user, or are keys."""
_ACCESS_FUNCTION: Final = "log_server_request"
"""`function` of llama.cpp's request lines in JSON."""
_MESSAGE_FIELDS: Final = ("message", "msg")
"""Keys of a JSON line that hold its text."""
_STATUSES: Final = range(100, 1000)
"""Status codes of HTTP."""
_TIME_FIELDS: Final = ("timestamp", "time", "asctime", "ts")
"""Keys of a JSON line that hold its time."""


def forms_of(kind: EngineKind) -> tuple[LineForm, ...]:
    """The forms of request lines that a kind of engine writes."""
    return LINE_FORMS.get(kind, _ALL_FORMS)


def request_of(text: str, forms: Sequence[LineForm]) -> LoggedRequest | None:
    """The request that a line is about; None for any other line. `text` has no escape sequences."""
    if text.startswith("{"):
        return _request_in_json(text, forms)
    for form in forms:
        if form.mark not in text:
            continue
        match = form.pattern.fullmatch(text.rstrip())
        if match is not None:
            return _request_of_groups(match.groupdict(), form, text)
    return None


def stamp_of(text: str) -> str:
    """Month, day and time of a line as it has them, with a `Z` for UTC; empty where it has none."""
    beginning = text[:_STAMP_CHARACTERS]
    match = _DATED_TIME.search(beginning) or _GLOG.match(beginning)
    if match is not None:
        stamp = f"{match['month']}-{match['day']} {match['clock']}"
        if match.groupdict().get("utc"):
            return f"{stamp}Z"
        return stamp
    match = _SYSLOG.match(beginning)
    if match is not None and match["month"] in _MONTHS:
        month = _MONTHS.index(match["month"]) + 1
        return f"{month:02}-{int(match['day']):02} {match['clock']}"
    return ""


def _request_of_groups(groups: Mapping[str, str | None], form: LineForm, text: str) -> LoggedRequest | None:
    """The request that the groups of a pattern describe."""
    path = groups.get("path")
    method = groups.get("method")
    took = groups.get("took")
    span = groups.get("span")
    if span is not None:
        path = form.routes.get(span)
        method = "POST"
        took = None
        total = _TOTAL_TIME.match(text)
        if total is not None:
            took = total["took"]
    if path is None or method is None:
        return None
    status_text = groups.get("status")
    status = int(status_text) if status_text else None
    time = _local_time(groups.get("unix")) or stamp_of(text.partition('"')[0])
    clock = TimeOrigin.LINE if time else TimeOrigin.NONE
    return LoggedRequest(
        method=form.methods.get(method, method),
        path=_shown_path(path),
        status=status,
        has_failed=groups.get("level") is not None,
        client=_shown_client(groups.get("client") or ""),
        took_s=_duration_s(took or ""),
        time=time,
        clock=clock,
    )


def _request_in_json(text: str, forms: Sequence[LineForm]) -> LoggedRequest | None:
    """The request of a line of JSON: llama.cpp's own fields, or another form as its message."""
    if not any(form.mark in text for form in forms):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("function") == _ACCESS_FUNCTION:
        return _request_of_groups(_groups_of_llama_cpp(fields), _LLAMA_CPP_2024, "")
    message = _first_text(fields, _MESSAGE_FIELDS)
    if message.startswith("{"):
        return None
    request = request_of(message, forms)
    stamp = stamp_of(_first_text(fields, _TIME_FIELDS))
    if request is None or request.time or not stamp:
        return request
    return request._replace(time=stamp, clock=TimeOrigin.LINE)


def _groups_of_llama_cpp(fields: Mapping[str, object]) -> dict[str, str | None]:
    """The fields of llama.cpp's JSON as the groups of its text form; none where one is of another type."""
    method = fields.get("method")
    path = fields.get("path")
    status = fields.get("status")
    client = fields.get("remote_addr")
    unix = fields.get("timestamp")
    if not isinstance(method, str) or not isinstance(path, str):
        return {}
    if not isinstance(status, int) or status not in _STATUSES:
        return {}
    if not isinstance(client, str):
        client = None
    unix_text = str(unix) if isinstance(unix, int) else None
    return {
        "method": clean(method, 10),
        "path": path,
        "status": str(status),
        "client": client,
        "unix": unix_text,
    }


def _first_text(fields: Mapping[str, object], names: Sequence[str]) -> str:
    """The first of these fields that is a text; empty where none is."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str):
            return value
    return ""


def _local_time(unix: str | None) -> str:
    """A Unix time as month, day and time of the local zone; empty where there is none."""
    if unix is None:
        return ""
    try:
        return datetime.fromtimestamp(int(unix)).astimezone().strftime("%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""


def _shown_path(path: str) -> str:
    """A path without query, keys and identifiers, safe to show."""
    path = path.partition("?")[0].partition("#")[0]
    return clean(_IDENTIFIERS.sub(STRUCK, without_keys(path)), MOST_PATH)


def _shown_client(client: str) -> str:
    """A client's address without its port."""
    host, _, port = client.rpartition(":")
    if port.isdecimal() and is_address(host.strip("[]")):
        client = host.strip("[]")
    return clean(without_keys(client), _MOST_CLIENT)


def _duration_s(text: str) -> float | None:
    """Seconds of a duration as Go and Rust print it (`1m3.5s`, `512.3µs`); None of anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    hours, minutes, number, unit = match.groups()
    seconds = int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0
    if number is not None:
        seconds += float(number) * _UNITS_S[unit]
    return seconds
