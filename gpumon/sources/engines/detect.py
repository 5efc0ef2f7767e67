"""Kinds of an endpoint's answer, told by its status and content, and the fix where it is no page of an engine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.text import clean
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.registry import BY_KIND, ENGINE_ROWS
from gpumon.sources.engines.xinference import SUPERVISOR

INSPECTED_BYTES: Final = 4096
"""Bytes of an answer that decide whether it is text, HTML or JSON."""
_MOST_LINES: Final = 200_000
"""Lines looked at to tell an engine by its metric names."""
_MOST_LINE_BYTES: Final = 16 * 1024
"""A longer line is no sample that tells anything."""


class Refusal(NamedTuple):
    """Why an answer gives no readings: the state, and one line with the fix."""

    state: EndpointState
    text: str
    nothing_counted: bool = False
    """The page was read to its end, and is that of an engine that has counted nothing yet."""


_SWITCHES: Final = "SGLang: --enable-metrics, llama.cpp: --metrics"
"""The switches of the engines whose servers stand without a metrics page by default."""

NOT_ENGINES: Final = (
    (
        (SUPERVISOR,),
        "Xinference's supervisor",
        "no engine: add the metrics page of its workers (--metrics-exporter-port)",
    ),
    # With a colon the names are SGLang's own; its router passes on those of its workers with an underscore.
    (
        ("sglang_",),
        "the workers of SGLang's router (SMG)",
        "add the workers, and the router by its metrics port (29000 unless --prometheus-port says another)",
    ),
    (
        (
            "revision_app_request_",
            "revision_request_",
            "queue_requests_per_second",
            "queue_average_concurrent_requests",
        ),
        "KServe's queue-proxy",
        "no engine: add the port of the model's own container",
    ),
    (
        ("dynamo_component_",),
        "a Dynamo worker without its engine's",
        "start it with the option that publishes them (TensorRT-LLM: --publish-events-and-metrics)",
    ),
    (("DCGM_FI_",), "dcgm-exporter", "GPU metrics, no engine: give it with --dcgm URL"),
    (("node_",), "node_exporter", "no engine: check the port"),
    (("ray_",), "Ray", "no LLM engine in it: is log_engine_metrics on, and does a replica run on this node?"),
)
"""Beginnings of sample names, who writes them, and what to do: pages that no adapter reads."""

_WEB_SERVER_PREFIXES: Final = ("http_", "process_", "python_")
"""Beginnings of the names that a Python web server's exporter writes of itself."""

NO_ENGINE_YET: Final = Refusal(
    EndpointState.STARTING, "vLLM answers, but no engine has counted anything yet: starting?", nothing_counted=True
)

_NAME: Final = re.compile(rb'(?:\{\s*")?([a-zA-Z_:][a-zA-Z0-9_:]*)(?:"?[,}]|[ \t{])')
"""The name at the begin of a sample: before its labels, or in quotes among them."""
_JSON_BEGINS: Final = (b"{", b"[", b'"')
"""First characters of a JSON value."""


def refusal_of_status(
    status: int, location: str, kind: EngineKind = EngineKind.UNKNOWN, wrong_key: str = ""
) -> Refusal | None:
    """The refusal of an HTTP status, in the words of this kind of engine if it is known; None for 200.

    `wrong_key` is why the configured API key did not open the page; empty where none is configured.
    """
    if status == 200:
        return None
    if status in (401, 403):
        return Refusal(EndpointState.UNAUTHORIZED, f"{status}: {wrong_key or _wrong_key_text(status)}")
    if status in (404, 501):
        return Refusal(EndpointState.METRICS_OFF, f"{status}: {_no_page_text(status, kind)}")
    if status == 503:
        return Refusal(EndpointState.STARTING, "503: the server is up but not ready: still loading the model?")
    if 300 <= status < 400:
        # Without query and password, which may be secret.
        target = clean(location.split("?")[0].split("#")[0].rpartition("@")[2], 80) or "another place"
        text = f"redirected to {target}, which gpumon does not follow: give the final URL"
    elif status >= 500:
        text = "the server failed on it: see its log"
    else:
        text = "the server refuses it: check port and path"
    return Refusal(EndpointState.HTTP_ERROR, f"{status}: {text}")


def _wrong_key_text(status: int) -> str:
    """The fix where a page asks for a key, and none is configured."""
    refusal = "wants a login" if status == 401 else "is forbidden from here"
    return (
        f"the metrics page {refusal}: set api_key_env or api_key_file for this endpoint (llama.cpp guards it with "
        "--api-key), or let gpumon's host through in the proxy that guards it"
    )


def _no_page_text(status: int, kind: EngineKind) -> str:
    """The fix where there is no page at this path."""
    row = BY_KIND.get(kind)
    if row is not None and row.switch:
        return f"{row.title} has no metrics here: {row.switch}"
    if status == 501:
        return f"metrics are switched off: start it with them ({_SWITCHES})"
    return f"no metrics page here: check port and path, or switch it on ({_SWITCHES})"


def _stripped_start(body: bytes) -> bytes:
    """The begin of an answer, without a byte order mark and blanks before it."""
    return body[:INSPECTED_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")


def _media_type(content_type: str) -> str:
    """The type in the header `Content-Type`, without its parameters."""
    return content_type.split(";")[0].strip().lower()


def is_json(body: bytes, content_type: str, names: Collection[str]) -> bool:
    """Whether an answer is JSON: its content type says so, or it begins so and holds no sample (`names`)."""
    start = _stripped_start(body)
    return _media_type(content_type) == "application/json" or (start[:1] in _JSON_BEGINS and not names)


def refusal_of_content(body: bytes, content_type: str, kind: EngineKind = EngineKind.UNKNOWN) -> Refusal:
    """The refusal of a page without series of a known engine; `kind` where the config says what it should be."""
    start = _stripped_start(body)
    media_type = _media_type(content_type)
    if not start and kind in BY_KIND:
        # Some exporters write a metric only once it has a value.
        text = f"{BY_KIND[kind].title} answers with an empty page: it has served nothing yet"
        return Refusal(EndpointState.STARTING, text, nothing_counted=True)
    if not start:
        text = "the answer is empty: an engine that has served nothing yet? else check port and path"
        return Refusal(EndpointState.NOT_METRICS, text)
    if b"\0" in start:
        return Refusal(EndpointState.NOT_METRICS, "the answer is binary, not metrics: check port and path")
    if start[:1] == b"<" or media_type == "text/html":
        return Refusal(EndpointState.NOT_METRICS, "the answer is a web page (HTML), not metrics: check port and path")
    names = sample_names(body)
    if is_json(body, content_type, names):
        return Refusal(
            EndpointState.NOT_METRICS,
            "the answer is JSON, not metrics: check port and path (TensorRT-LLM: use /prometheus/metrics)",
        )
    return _refusal_of_names(names, kind)


def sample_names(body: bytes) -> list[str]:
    """Metric names of the first samples of a page."""
    names = []
    for line in body.split(b"\n", _MOST_LINES)[:_MOST_LINES]:
        if len(line) > _MOST_LINE_BYTES:
            continue
        name = _NAME.match(line)
        if name is not None and _ends_in_number(line):
            names.append(name[1].decode("ascii"))
    return names


def _ends_in_number(line: bytes) -> bool:
    """Whether the last word of a line is a number, as in a sample."""
    try:
        float(line.rsplit(None, 1)[-1])
    except ValueError:
        return False
    return True


def _refusal_of_names(names: list[str], kind: EngineKind) -> Refusal:
    """The refusal of a metrics page by the names of its samples; `kind` where the config says what it should be."""
    if not names:
        return Refusal(EndpointState.NOT_METRICS, "the answer is no metrics text: check port and path")
    for prefixes, who, fix in NOT_ENGINES:
        if any(name.startswith(prefixes) for name in names):
            return Refusal(EndpointState.WRONG_ENGINE, f"these are metrics of {who}: {fix}")
    engine = _engine_of(names)
    if engine is not None:
        return _refusal_of_engine(engine, kind)
    unclaimed = [name for name in names if not name.startswith(_WEB_SERVER_PREFIXES)]
    if not unclaimed:
        return Refusal(
            EndpointState.METRICS_OFF,
            "the server answers without engine metrics: start vLLM without --disable-log-stats",
        )
    if kind is EngineKind.VLLM:
        return NO_ENGINE_YET
    return Refusal(
        EndpointState.WRONG_ENGINE,
        f"metrics of no engine that gpumon knows (such as {clean(unclaimed[0], 60)}): check the port, or describe them "
        "in a [[feed]] of the config",
    )


def _engine_of(names: Iterable[str]) -> EngineRow | None:
    """The engine whose names these are; of several the one with the longest prefix; None where there is none.

    A router may have the prefix of the engines behind it.
    """
    longest = ""
    best_row = None
    for name in set(names):
        for row in ENGINE_ROWS:
            for prefix in row.adapter.prefixes:
                if len(prefix) > len(longest) and name.startswith(prefix):
                    longest = prefix
                    best_row = row
    return best_row


def _refusal_of_engine(row: EngineRow, kind: EngineKind) -> Refusal:
    """The refusal of a page with an engine's names and without its figures; `kind` by the config."""
    if kind in (EngineKind.UNKNOWN, row.kind):
        text = f"{row.title} answers, but no engine has counted anything yet: starting?"
        return Refusal(EndpointState.STARTING, text, nothing_counted=True)
    text = f"these are metrics of {row.title}, and the config says {BY_KIND[kind].title}: correct `engine`"
    return Refusal(EndpointState.WRONG_ENGINE, text)
