"""The llama.cpp and Ollama adapters on recorded servers, and on made ones that have run for days.

What one page gives is in tests/data/pages/llamacpp and tests/data/pages/ollama (test_contract.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.llamacpp import MOST_UNANSWERED_POLLS, PROPS, SLOTS_PAGE, SLOTS_PAGE_SELDOM
from gpumon.sources.engines.registry import BY_KIND
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.sources.engines.contract import Reader

ROW = BY_KIND[EngineKind.LLAMA_CPP]


def read(reader: Reader, metrics: bytes, slots: bytes = b"", props: bytes = b"") -> EngineReading:
    bodies = {"/metrics": metrics, "/slots": slots, "/props": props}
    (part,) = reader.read({path: body for path, body in bodies.items() if body})
    return part


def recorded(name: str, *, slots: bool = True, every_s: float = 1.0) -> list[tuple[float, EngineReading]]:
    """What the adapter read of a capture, second by second."""
    capture, reader, pages, due_s = Capture(name), Reader(ROW), [], 0.0
    for scrape in capture.scrapes:
        if scrape.status == 200 and scrape.t >= due_s:
            due_s = scrape.t + every_s - 0.5
            told = capture.answer("slots", scrape.t + 0.1).body if slots else b""
            pages.append((scrape.t, read(reader, scrape.body, told)))
    return pages


@cache
def events(name: str) -> list[tuple[float, float]]:
    return [(at, tokens) for request in Capture(name).truth for at, tokens in request["events"]]


def received(name: str, until_s: float) -> float:
    return sum(tokens for at, tokens in events(name) if at <= until_s)


def grown(pages: Sequence[tuple[float, EngineReading]], quantity: str) -> float:
    first, last = (page.ranks[0].counters[quantity] for _, page in (pages[0], pages[-1]))
    return last - first


LATE = 8.0
"""Tokens that are with the client a moment before or after the page says so."""


@each_row("name", ["llamacpp-basic", "llamacpp-slots", "llamacpp-long-prompts"])
def test_tokens_are_what_the_client_has_received_at_every_second(name: str) -> None:
    """Also at 20 s of llamacpp-basic, where /slots answered 2 s after /metrics."""
    pages = recorded(name)
    for t, page in pages:
        assert page.ranks[0].counters[q.DECODE_TOKENS] == pytest.approx(received(name, t), abs=LATE)
        assert page.advance[q.DECODE_TOKENS] is Advance.DERIVED
        assert page.exact_steps
    assert grown(pages, q.DECODE_TOKENS) == received(name, 1e9)
    assert grown(pages, q.PROMPT_TOKENS) == sum(request["prompt_tokens"] for request in Capture(name).truth)


@each_row("name", ["llamacpp-basic", "llamacpp-slots", "llamacpp-long-prompts"])
def test_without_slots_tokens_are_those_of_ended_answers(name: str) -> None:
    """Busy slots of all decodes would be three times the tokens of llamacpp-long-prompts."""
    pages = recorded(name, slots=False)
    assert all(page.ranks[0].counters[q.DECODE_TOKENS] <= received(name, t) + LATE for t, page in pages)
    assert grown(pages, q.DECODE_TOKENS) == received(name, 1e9)
    assert {page.advance[q.DECODE_TOKENS] for _, page in pages} == {Advance.END}


# A server that has run for days: its counters are printed with six digits.


def test_slots_that_do_not_answer_are_asked_rarely() -> None:
    reader, capture = Reader(ROW), Capture("llamacpp-basic")
    read(reader, capture.at(30.0).body)
    assert reader.adapter.companions == (SLOTS_PAGE_SELDOM, PROPS)
    read(reader, capture.at(31.0).body, capture.answer("slots", 31.01).body)
    assert reader.adapter.companions == (SLOTS_PAGE, PROPS)
    for _ in range(MOST_UNANSWERED_POLLS):
        assert reader.adapter.companions == (SLOTS_PAGE, PROPS)
        read(reader, capture.at(31.0).body)
    assert reader.adapter.companions == (SLOTS_PAGE_SELDOM, PROPS)
    reader.read({"/slots": capture.answer("slots", 31.01).body})
    assert reader.adapter.companions == (PROPS,)


def test_ollama_gains_and_loses_models() -> None:
    reader = Reader(BY_KIND[EngineKind.OLLAMA])

    def parts(*names: str) -> list[str]:
        said = {"models": [{"model": name, "size": 2, "size_vram": 1} for name in names]}
        return [page.part for page in reader.read({"/api/ps": json.dumps(said).encode()})]

    assert [parts(), parts("a"), parts("a", "b"), parts()] == [[""], ["a"], ["a", "b"], [""]]
    assert parts("", "a") == ["a"]


@each_row(("name", "most"), [("llamacpp-basic", 0.01), ("llamacpp-slots", 0.02)])
def test_the_time_per_token_of_ended_answers_is_that_of_the_clients(name: str, most: float):
    capture = Capture(name)
    pages = [scrape.body for scrape in capture.scrapes if scrape.status == 200]
    reader = Reader(BY_KIND[EngineKind.LLAMA_CPP])
    (first,), (last,) = (reader.read({"/metrics": page}) for page in (pages[0], pages[-1]))
    before, after = first.ranks[0].histograms[q.TPOT], last.ranks[0].histograms[q.TPOT]
    seconds = 0.0
    gaps = 0.0
    for request in capture.truth:
        events = request.get("events") or []
        tokens = sum(count for _, count in events)
        if tokens > 1 and not request.get("aborted_by_client"):
            seconds += events[-1][0] - events[0][0]
            gaps += tokens - 1
    assert (after.sum - before.sum) / (after.count - before.count) == pytest.approx(seconds / gaps, rel=most)
