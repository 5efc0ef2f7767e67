"""The backends of a front end on its page: what each gets, and which of them gpumon polls itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.backends import backend_url, short_name
from gpumon.readings.format import counted
from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Backend, Engine
from gpumon.readings.untrusted import MOST_URL, Untrusted
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Fact, Section, Sentence
from gpumon.tui.detail.values import formula_text

_MOST_BACKENDS: Final = 32
"""Backends that have a line."""
_MOST_URLS: Final = 4
"""Backends whose lines for the config are printed."""
_URL_INDENT: Final = 4
"""Cells before a line for the config."""
_NOT_READY: Final = "gets no requests"
"""Meaning of a backend that is not ready."""
_NOT_READY_OF_KIND: Final = {EngineKind.LITELLM: "its last request failed"}
"""Meaning of a backend that is not ready, for kinds of front ends that send requests to it all the same."""
_REMARKS: Final = {
    EngineKind.VLLM_STACK: "running requests are left out: this router goes on counting those that were cut off",
}
"""Figures of a kind of front end that gpumon leaves out, and why."""


def backend_sections(engine: Engine) -> list[Section]:
    """The backends of a front end; no section where it names none."""
    if not engine.backends:
        return []
    entries: list[Entry] = [_backend_fact(backend, engine.kind) for backend in engine.backends[:_MOST_BACKENDS]]
    if len(engine.backends) > _MOST_BACKENDS:
        entries.append(Sentence(f"and {len(engine.backends) - _MOST_BACKENDS} more"))
    if engine.kind in _REMARKS:
        entries.append(Sentence(_REMARKS[engine.kind]))
    entries += _config_lines([backend for backend in engine.backends if not backend.engine])
    return [Section("backends", entries)]


def _backend_fact(backend: Backend, kind: EngineKind) -> Fact:
    """Figures that a front end has of one backend, and the name under which gpumon polls that backend."""
    parts = [
        formula_text("{}", (backend.requests_per_s, _request_rate)),
        formula_text("running {}", (backend.running, values.whole)),
        formula_text("waiting {}", (backend.waiting, values.whole)),
    ]
    if number(backend.failures_per_s):
        parts.append(formula_text("{} failed", (backend.failures_per_s, _request_rate)))
    tone = "text"
    if backend.ready == 0.0:
        parts.insert(0, _NOT_READY_OF_KIND.get(kind, _NOT_READY))
        tone = "warn"
    elif not isinstance(backend.ready, Missing):
        parts.insert(0, "ready")
    if backend.engine:
        parts.append(f"polled as {backend.engine}")
    else:
        parts.append("not polled")
    text = " · ".join(part for part in parts if part)
    return Fact(short_name(backend.address), text, tone=tone)


def _request_rate(per_s: float) -> values.WrittenFigure:
    """A rate of requests: `12.5`, `req/s`."""
    return values.with_decimals(per_s, 1, "req/s", prefixes=False)


def _config_lines(unpolled: Sequence[Backend]) -> list[Entry]:
    """The lines for the config that add the backends which gpumon does not poll.

    gpumon does not add them by itself: it polls no address only because a front end names it.
    """
    if not unpolled:
        return []
    urls = list(filter(None, [backend_url(backend.address) for backend in unpolled]))
    if not urls:
        text = "no URLs: add their engines by the URLs of their metrics ([[endpoint]]), or by a Prometheus"
        return [Sentence(text)]
    todo = "for the MFU and MBU of engines of yours add to the config:"
    entries: list[Entry] = [Sentence(f"{counted(len(unpolled), 'backend')} not polled; {todo}")]
    for url in dict.fromkeys(urls[:_MOST_URLS]):
        line = f"[[endpoint]] url = {Untrusted(url).in_config(MOST_URL)}"
        entries.append(Sentence(line, "text", indent=_URL_INDENT))
    if len(urls) > _MOST_URLS:
        entries.append(Sentence(f"and {len(urls) - _MOST_URLS} more", indent=_URL_INDENT))
    return entries
