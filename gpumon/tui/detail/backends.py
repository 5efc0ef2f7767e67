"""The backends of a front end on its page: what each gets, and which of them gpumon polls itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.backends import backend_url, short_name
from gpumon.readings.format import counted
from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Backend, Engine
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Fact, Section, Sentence
from gpumon.tui.detail.values import formula_text

_MOST: Final = 32
"""Backends that have a line."""
_MOST_ADDED: Final = 4
"""Backends whose lines for the config are printed."""
_IDLE: Final = {EngineKind.LITELLM: "its last request failed"}
"""Meaning of a backend that is not ready, for kinds whose backends then still get requests."""
_NO_REQUESTS: Final = "gets no requests"
_LEFT_OUT: Final = {
    EngineKind.VLLM_STACK: "running requests are left out: this router goes on counting those that were cut off",
}
"""Figures of a kind of front end that gpumon does not show, and why."""


def backend_sections(engine: Engine) -> list[Section]:
    """The backends of a front end; no section where it names none."""
    if not engine.backends:
        return []
    entries: list[Entry] = []
    for backend in engine.backends[:_MOST]:
        entries.append(_line(backend, engine.kind))
    if len(engine.backends) > _MOST:
        entries.append(Sentence(f"and {len(engine.backends) - _MOST} more"))
    if engine.kind in _LEFT_OUT:
        entries.append(Sentence(_LEFT_OUT[engine.kind]))
    entries += _to_add([backend for backend in engine.backends if not backend.engine])
    return [Section("backends", entries)]


def _line(backend: Backend, kind: EngineKind) -> Entry:
    """Figures that a front end has of one backend, and the name under which that is polled."""
    parts = [
        formula_text("{}", (backend.requests_per_s, _requests)),
        formula_text("running {}", (backend.running, values.whole)),
        formula_text("waiting {}", (backend.waiting, values.whole)),
    ]
    if number(backend.failures_per_s):
        parts.append(formula_text("{} failed", (backend.failures_per_s, _requests)))
    is_out = backend.ready == 0.0
    tone = "text"
    if is_out:
        parts.insert(0, _IDLE.get(kind, _NO_REQUESTS))
        tone = "warn"
    elif not isinstance(backend.ready, Missing):
        parts.insert(0, "ready")
    if backend.engine:
        parts.append(f"polled as {backend.engine}")
    else:
        parts.append("not polled")
    text = " · ".join(part for part in parts if part)
    return Fact(short_name(backend.address), text, tone=tone)


def _requests(per_s: float) -> values.WrittenFigure:
    """A rate of requests."""
    return values.with_decimals(per_s, 1, "req/s", prefixes=False)


def _to_add(others: Sequence[Backend]) -> list[Entry]:
    """How the backends that are not polled are added: a front end's word alone makes gpumon ask nobody."""
    if not others:
        return []
    urls = []
    for backend in others:
        url = backend_url(backend.address)
        if url:
            urls.append(url)
    if not urls:
        text = "no URLs: add their engines by the URLs of their metrics ([[endpoint]]), or by a Prometheus"
        return [Sentence(text)]
    add = "for the MFU and MBU of engines of yours add to the config:"
    entries: list[Entry] = [Sentence(f"{counted(len(others), 'backend')} not polled; {add}")]
    for url in dict.fromkeys(urls[:_MOST_ADDED]):
        entries.append(Sentence(f'[[endpoint]] url = "{url}"', "text", indent=4))
    if len(urls) > _MOST_ADDED:
        entries.append(Sentence(f"and {len(urls) - _MOST_ADDED} more", indent=4))
    return entries
