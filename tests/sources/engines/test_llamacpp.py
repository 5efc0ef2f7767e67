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
from gpumon.sources.engines.adapter import PATIENT, Page
from gpumon.sources.engines.llamacpp import (
    ASKED,
    PROPS,
    REFUSED,
    LiveCounts,
    LlamaCppAdapter,
    Printed,
    Slot,
    half_step_of_count,
)
from gpumon.sources.engines.ollama import OllamaAdapter
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.engine import Capture, other_pages
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


def test_another_reader_of_the_page_does_not_disturb_the_figures() -> None:
    first = recorded("llamacpp-two-scrapers", slots=False)
    capture, reader = Capture("llamacpp-two-scrapers"), Reader(ROW)
    second = [read(reader, capture.answer("metrics_b", t + 0.1).body) for t, _ in first]
    assert b"predicted_tokens_seconds 0\n" in capture.answer("metrics_b", 10.1).body
    assert second[-1].ranks == first[-1][1].ranks


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
    assert statistics.mean(errors(looks, [counter[q.STEPS] for counter in counters], "steps")) <= 0.05
    assert tokens == sorted(tokens)
    resolution = half_step_of_count(float(before)) * 2.0
    assert tokens[-1] - tokens[0] == pytest.approx(looks[-1].tokens - looks[0].tokens, abs=1.0 + 5.0 * resolution)
    assert ("between two printed values by /slots" in pages[-1].live[q.DECODE_TOKENS]) == (before >= 10**6)


@pytest.mark.parametrize("load", LOADS)
def test_without_metrics_no_tokens_are_made_up(load: str) -> None:
    look = list(MadeServer(LOADS[load], 0).looks(60.0))[-1]
    (page,) = Reader(ROW).read({"/slots": look.slots})
    assert page.ranks[0].counters == {}
    assert page.ranks[0].gauges[q.RUNNING] == sum(slot["is_processing"] for slot in json.loads(look.slots))
    assert page.info[TOKENS_OFF] == "start it with --metrics"


def test_a_restart_shows_as_a_fall() -> None:
    counts = LiveCounts()
    pages = [Printed(1000.0, 2000.0), Printed(1100.0, 2200.0), Printed(40.0, 80.0), Printed(60.0, 120.0)]
    assert [counts.read(printed, ()).tokens for printed in pages] == [2000.0, 2200.0, 80.0, 120.0]


def test_slots_that_stop_answering_neither_take_tokens_nor_add_them_twice() -> None:
    counts, slot = LiveCounts(), Slot(True, 7, 40.0, 10.0, 50.0, 2048.0, False)
    pages = [
        (Printed(110.0, 900.0), (slot,)),
        (Printed(120.0, 900.0), ()),
        (Printed(130.0, 935.0), ()),
        (Printed(140.0, 960.0), ()),
        (Printed(150.0, 960.0), (slot._replace(task=8, generated=5.0),)),
    ]
    assert [counts.read(*page).tokens for page in pages] == [940.0, 940.0, 940.0, 960.0, 965.0]


def test_an_answer_that_ended_between_the_two_pages_is_counted_all_the_same() -> None:
    counts, slot = LiveCounts(), Slot(True, 7, 40.0, 10.0, 50.0, 2048.0, False)
    ended = slot._replace(busy=False, generated=0.0, prompt=0.0, used=69.0)
    pages = [(Printed(110.0, 900.0), (slot,)), (Printed(129.0, 900.0), (ended,)), (Printed(130.0, 960.0), (ended,))]
    assert [counts.read(*page).tokens for page in pages] == [940.0, 960.0, 960.0]


def test_where_the_pages_disagree_the_decodes_tell_unless_a_prompt_was_read() -> None:
    """Seven more steps of one slot until the page; then it ended, and others had begun when /slots was asked."""
    slot = Slot(True, 7, 40.0, 10.0, 50.0, 2048.0, False)
    other = slot._replace(task=9, generated=0.0, prompt=0.0)
    first = Printed(110.0, 900.0, product=110.0, prompt=10.0, running=1.0)
    for prompt, tokens in ((10.0, 947.0), (500.0, 940.0)):
        counts = LiveCounts()
        counts.read(first, (slot, slot._replace(busy=False, generated=0.0)))
        second = first._replace(steps=117.0, product=117.0, prompt=prompt)
        assert counts.read(second, (other, other._replace(task=10))).tokens == tokens


def test_a_prompt_that_is_read_makes_no_tokens() -> None:
    """Batches of prompts, and all of an embedding, are decodes with busy slots."""
    counts, slot = LiveCounts(), Slot(True, 7, 0.0, 256.0, 256.0, 2048.0, False)
    ended = slot._replace(busy=False, prompt=0.0, used=1903.0)
    pages = [
        (Printed(1.0, 0.0), (slot,)),
        (Printed(8.0, 0.0), (slot._replace(prompt=1899.0),)),
        (Printed(9.0, 0.0), (ended,)),
    ]
    assert [counts.read(*page).tokens for page in pages] == [0.0, 0.0, 0.0]


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


def test_a_router_is_asked_for_its_list_alone() -> None:
    reader, capture = Reader(ROW), Capture("llamacpp-router")
    parts = [reader.read({"/models": scrape.body}) for scrape in capture._answers("models")]
    assert {part.part for page in parts for part in page} == {"router", "tiny-llama"}
    assert reader.adapter.companions == ()


def test_what_is_a_page_of_which() -> None:
    pages = other_pages("llamacpp")
    card = pages["/models"].body
    slots, router = (
        Capture("llamacpp-basic").answer("slots", 30.0).body,
        Capture("llamacpp-router").answer("models", 30.0).body,
    )
    claims = {
        (path, name): LlamaCppAdapter.claims(Page(path, frozenset(), body))
        for path in ("/slots", "/models", "/metrics")
        for name, body in {"card": card, "slots": slots, "router": router, "none": b"[]"}.items()
    }
    assert [key for key, claimed in claims.items() if claimed] == [("/slots", "slots"), ("/models", "router")]
    assert OllamaAdapter.claims(Page("/api/ps", frozenset(), b'{"models":[]}'))
    assert not OllamaAdapter.claims(Page("/api/ps", frozenset(), b'{"error":"not found"}'))
    assert not OllamaAdapter.claims(Page("/models", frozenset(), b'{"models":[]}'))


def test_ollama_gains_and_loses_models() -> None:
    reader = Reader(BY_KIND[EngineKind.OLLAMA])

    def parts(*names: str) -> list[str]:
        said = {"models": [{"model": name, "size": 2, "size_vram": 1} for name in names]}
        return [page.part for page in reader.read({"/api/ps": json.dumps(said).encode()})]

    assert [parts(), parts("a"), parts("a", "b"), parts()] == [[""], ["a"], ["a", "b"], [""]]
    assert parts("", "a") == ["a"]
