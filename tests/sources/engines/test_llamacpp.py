"""The llama.cpp and Ollama adapters on recorded servers, and on made ones that have run for days.

What one page gives is in tests/data/pages/llamacpp and tests/data/pages/ollama (test_contract.py).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import cache

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import TOKENS_OFF, Advance, EngineKind, EngineReading
from gpumon.sources.engines.llamacpp import (
    ASKED,
    PATIENT,
    PROPS,
    REFUSED,
    half_step_of_count,
)
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.engine import Capture
from tests.sources.engines.contract import Reader
from tests.sources.engines.llamacpp_made import Load, Look, MadeServer

ROW = BY_KIND[EngineKind.LLAMA_CPP]
RATE_S = 10.0


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


@pytest.mark.parametrize("name", ["llamacpp-basic", "llamacpp-slots", "llamacpp-long-prompts"])
def test_tokens_are_what_the_client_has_received_at_every_second(name: str) -> None:
    """Also at 20 s of llamacpp-basic, where /slots answered 2 s after /metrics."""
    pages = recorded(name)
    for t, page in pages:
        assert page.ranks[0].counters[q.DECODE_TOKENS] == pytest.approx(received(name, t), abs=LATE)
        assert page.advance[q.DECODE_TOKENS] is Advance.DERIVED
        assert page.exact_steps
    assert grown(pages, q.DECODE_TOKENS) == received(name, 1e9)
    assert grown(pages, q.PROMPT_TOKENS) == sum(request["prompt_tokens"] for request in Capture(name).truth)


@pytest.mark.parametrize("name", ["llamacpp-basic", "llamacpp-slots", "llamacpp-long-prompts"])
def test_without_slots_tokens_are_those_of_ended_answers(name: str) -> None:
    """Busy slots of all decodes would be three times the tokens of llamacpp-long-prompts."""
    pages = recorded(name, slots=False)
    assert all(page.ranks[0].counters[q.DECODE_TOKENS] <= received(name, t) + LATE for t, page in pages)
    assert grown(pages, q.DECODE_TOKENS) == received(name, 1e9)
    assert {page.advance[q.DECODE_TOKENS] for _, page in pages} == {Advance.END}


def test_tokens_of_answers_that_the_client_cut_are_counted() -> None:
    pages = recorded("llamacpp-two-scrapers", slots=False)
    assert grown(pages, q.DECODE_TOKENS) == 33662 - 22272
    assert grown(pages, q.DECODE_TOKENS) == pytest.approx(received("llamacpp-two-scrapers", 1e9), rel=0.005)


def test_counters_of_a_recorded_server_never_fall_but_for_its_restart() -> None:
    falls, last = 0, 0.0
    for _, page in recorded("llamacpp-lifecycle", slots=False, every_s=0.25):
        tokens = page.ranks[0].counters[q.DECODE_TOKENS]
        falls, last = falls + (tokens < last), tokens
    assert falls == 1


# A server that has run for days: its counters are printed with six digits.

LOADS = {
    "one user": Load(clients=1, slots=1, speed=50.0, answer=400.0, think_s=5.0),
    "full": Load(clients=4, slots=4, speed=25.0, answer=300.0),
    "queueing": Load(clients=8, slots=4, speed=200.0, answer=250.0),
    "half idle": Load(clients=3, slots=4, speed=40.0, answer=200.0, think_s=6.0),
}


def errors(looks: Sequence[Look], values: Sequence[float], what: str) -> list[float]:
    """Errors of the 10 s rates, of the windows in which something was generated."""
    apart = round(RATE_S / 2.0)
    found = []
    for at in range(apart, len(looks)):
        truth = getattr(looks[at], what) - getattr(looks[at - apart], what)
        if truth > 100:
            found.append(abs(values[at] - values[at - apart] - truth) / truth)
    return found


def watched(looks: Sequence[Look], *, slots: bool) -> list[EngineReading]:
    reader = Reader(ROW)
    return [read(reader, look.metrics, look.slots if slots else b"") for look in looks]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("before", [0, 10**6, 10**7, 10**8])
def test_rates_of_an_old_server_come_from_its_slots_where_its_counters_are_too_coarse(load: str, before: int) -> None:
    looks = list(MadeServer(LOADS[load], before).looks(300.0))
    pages = watched(looks, slots=True)
    counters = [page.ranks[0].counters for page in pages]
    tokens = [counter[q.DECODE_TOKENS] for counter in counters]
    assert statistics.mean(errors(looks, tokens, "tokens")) <= (0.001 if not before else 0.05)
    assert tokens == sorted(tokens)
    resolution = half_step_of_count(float(before)) * 2.0
    assert tokens[-1] - tokens[0] == pytest.approx(looks[-1].tokens - looks[0].tokens, abs=1.0 + 5.0 * resolution)
    assert pages[-1].exact_steps == (before < 10**8)


@pytest.mark.parametrize("load", LOADS)
def test_without_metrics_no_tokens_are_made_up(load: str) -> None:
    look = list(MadeServer(LOADS[load], 0).looks(60.0))[-1]
    (page,) = Reader(ROW).read({"/slots": look.slots})
    assert page.ranks[0].counters == {}
    assert page.ranks[0].gauges[q.RUNNING] == sum(slot["is_processing"] for slot in json.loads(look.slots))
    assert page.info[TOKENS_OFF] == "start it with --metrics"


def test_slots_that_do_not_answer_are_asked_rarely() -> None:
    reader, capture = Reader(ROW), Capture("llamacpp-basic")
    read(reader, capture.at(30.0).body)
    assert reader.adapter.companions == (REFUSED, PROPS)
    read(reader, capture.at(31.0).body, capture.answer("slots", 31.01).body)
    assert reader.adapter.companions == (ASKED, PROPS)
    for _ in range(PATIENT):
        assert reader.adapter.companions == (ASKED, PROPS)
        read(reader, capture.at(31.0).body)
    assert reader.adapter.companions == (REFUSED, PROPS)
    reader.read({"/slots": capture.answer("slots", 31.01).body})
    assert reader.adapter.companions == (PROPS,)


def test_ollama_gains_and_loses_models() -> None:
    reader = Reader(BY_KIND[EngineKind.OLLAMA])

    def parts(*names: str) -> list[str]:
        said = {"models": [{"model": name, "size": 2, "size_vram": 1} for name in names]}
        return [page.part for page in reader.read({"/api/ps": json.dumps(said).encode()})]

    assert [parts(), parts("a"), parts("a", "b"), parts()] == [[""], ["a"], ["a", "b"], [""]]
    assert parts("", "a") == ["a"]
