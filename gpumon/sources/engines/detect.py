"""What an endpoint's answer is, told by its status and content, and the fix where it is no vLLM page."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean

LOOKED_AT: Final = 4096
"""Bytes of an answer that decide whether it is text, HTML or JSON."""
MOST_LINES: Final = 5000
"""Lines looked at to tell an engine by its metric names."""
MOST_LINE_BYTES: Final = 16 * 1024
"""A longer line is no sample that tells anything."""


class Refusal(NamedTuple):
    """Why an answer gives no readings: the state, and one line with the fix."""

    state: EndpointState
    text: str


BY_STATUS: Final = {
    401: Refusal(
        EndpointState.UNAUTHORIZED,
        "401: the metrics page wants a login. vLLM leaves it open, so a proxy guards it: let gpumon's host through",
    ),
    403: Refusal(
        EndpointState.UNAUTHORIZED,
        "403: the metrics page is forbidden from here. vLLM leaves it open: let gpumon's host through in the proxy",
    ),
    404: Refusal(
        EndpointState.METRICS_OFF,
        "404: no metrics page here. Start SGLang with --enable-metrics, llama.cpp with --metrics; vLLM has it always: "
        "check port and path",
    ),
    501: Refusal(EndpointState.METRICS_OFF, "501: metrics are switched off. Start llama.cpp with --metrics"),
    503: Refusal(EndpointState.STARTING, "503: the server is up but not ready: still loading the model?"),
}

ENGINES: Final = (
    ("sglang:", "SGLang"),
    ("sglang_", "SGLang (router)"),
    ("trtllm_", "TensorRT-LLM"),
    ("nv_inference_", "Triton"),
    ("nv_trt_llm_", "Triton with TensorRT-LLM"),
    ("tgi_", "TGI"),
    ("te_", "TEI"),
    ("llamacpp:", "llama.cpp"),
    ("lmdeploy:", "LMDeploy"),
    ("dynamo_", "Dynamo"),
    ("ray_", "Ray"),
    ("litellm_", "LiteLLM"),
    ("DCGM_FI_", "dcgm-exporter (GPU metrics, no engine)"),
    ("node_", "node_exporter (no engine)"),
)
"""Metric prefixes of other servers, and their names."""

READ: Final = "vllm:"
"""Metric prefix of the engine that gpumon reads."""
PLAIN: Final = ("http_", "process_", "python_")
"""What a Python web server's exporter writes of itself."""

NO_ENGINE_YET: Final = Refusal(
    EndpointState.STARTING, "vLLM answers, but no engine has counted anything yet: starting?"
)

_NAME: Final = re.compile(rb'(?:\{\s*")?([a-zA-Z_:][a-zA-Z0-9_:]*)(?:"?[,}]|[ \t{])')
_JSON: Final = (b"{", b"[", b'"')


def by_status(status: int, location: str) -> Refusal | None:
    """The refusal of an HTTP status; None for 200."""
    if status == 200:
        return None
    if status in BY_STATUS:
        return BY_STATUS[status]
    if 300 <= status < 400:
        to = clean(location.split("?")[0].split("#")[0].rpartition("@")[2], 80) or "another place"
        return Refusal(
            EndpointState.HTTP_ERROR, f"{status}: redirected to {to}, which gpumon does not follow: give the final URL"
        )
    text = "the server failed on it: see its log" if status >= 500 else "the server refuses it: check port and path"
    return Refusal(EndpointState.HTTP_ERROR, f"{status}: {text}")


def by_content(body: bytes, content_type: str, is_vllm: bool = False) -> Refusal:
    """What a page without series of a known engine is; `is_vllm` where the config says that it is vLLM's."""
    start = body[:LOOKED_AT].lstrip(b"\xef\xbb\xbf \t\r\n")
    kind = content_type.split(";")[0].strip().lower()
    if not start:
        return Refusal(EndpointState.NOT_METRICS, "the answer is empty: check port and path")
    if b"\0" in start:
        return Refusal(EndpointState.NOT_METRICS, "the answer is binary, not metrics: check port and path")
    if start[:1] == b"<" or kind == "text/html":
        return Refusal(EndpointState.NOT_METRICS, "the answer is a web page (HTML), not metrics: check port and path")
    names = _names(body)
    if kind == "application/json" or (start[:1] in _JSON and not names):
        return Refusal(
            EndpointState.NOT_METRICS,
            "the answer is JSON, not metrics: check port and path (TensorRT-LLM: use /prometheus/metrics)",
        )
    return _by_names(names, is_vllm)


def _names(body: bytes) -> list[str]:
    """Metric names of the first samples of a page."""
    lines = (line for line in body.split(b"\n", MOST_LINES)[:MOST_LINES] if len(line) <= MOST_LINE_BYTES)
    return [name[1].decode("ascii") for line in lines if (name := _NAME.match(line)) and _ends_in_number(line)]


def _ends_in_number(line: bytes) -> bool:
    try:
        float(line.rsplit(None, 1)[-1])
    except ValueError:
        return False
    return True


def _by_names(names: list[str], is_vllm: bool) -> Refusal:
    if not names:
        return Refusal(EndpointState.NOT_METRICS, "the answer is no metrics text: check port and path")
    if any(name.startswith(READ) for name in names):
        return NO_ENGINE_YET
    for prefix, engine in ENGINES:
        if any(name.startswith(prefix) for name in names):
            return Refusal(
                EndpointState.WRONG_ENGINE, f"these are metrics of {engine}, which gpumon cannot read: vLLM only so far"
            )
    other = next((name for name in names if not name.startswith(PLAIN)), "")
    if is_vllm and other:
        return NO_ENGINE_YET
    if not other:
        return Refusal(
            EndpointState.METRICS_OFF,
            "the server answers without engine metrics: start vLLM without --disable-log-stats",
        )
    return Refusal(
        EndpointState.WRONG_ENGINE,
        f"metrics of no engine that gpumon knows (such as {clean(other, 60)}): check the port",
    )
