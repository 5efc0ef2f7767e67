"""TEI: an encoder's figures, /info beside the page, and over HTTP."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.http_server import Reply, Request
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import first

METRICS, INFO = "/metrics", "/info"
FOLDER = PAGES / "tei"
EMBED = (FOLDER / "embed.prom").read_bytes()


def server(request: Request) -> Reply:
    info = (FOLDER / "info.json").read_bytes()
    pages = {METRICS: Reply(200, EMBED, "text/plain; charset=utf-8"), INFO: Reply(200, info, "application/json")}
    return pages.get(request.path, Reply(404, b""))


@pytest.mark.parametrize("engine", ["auto", "tei"])
async def test_model_and_version_come_from_its_own_page(engine: str) -> None:
    reading = (await first(server, engine=engine)).reading
    assert (reading.state, reading.kind, reading.version) == (EndpointState.OK, EngineKind.TEI, "1.9.3")
    assert reading.model == "BAAI/bge-large-en-v1.5"
    assert reading.info["max_batch_tokens"] == "16384"
    assert reading.from_documentation


def test_an_encoder_has_prefill_and_no_decode() -> None:
    (page,) = Reader(BY_KIND[EngineKind.TEI]).read({METRICS: EMBED})
    assert page.ranks[0].counters[q.PREFILL_COMPUTED] == 20000.0
    for quantity in (q.DECODE_TOKENS, q.STEPS, q.TTFT, q.ITL, q.OUTPUT_LENGTH, q.KV_USAGE, q.RUNNING):
        assert quantity not in page.live


def test_computed_tokens_are_those_that_went_to_the_gpu() -> None:
    """A text is measured as it is tokenised; four of them wait here, or were dropped."""
    (page,) = Reader(BY_KIND[EngineKind.TEI]).read({METRICS: EMBED})
    counters = page.ranks[0].counters
    assert counters[q.PROMPT_TOKENS] - counters[q.PREFILL_COMPUTED] == 4 * 100.0
    assert q.PREFILL_COMPUTED not in page.advance


def test_failed_texts_are_not_added_to_requests() -> None:
    (page,) = Reader(BY_KIND[EngineKind.TEI]).read({METRICS: EMBED})
    assert page.ranks[0].counters[q.REQUESTS] == 63.0
    assert page.ranks[0].counters[q.FAILURES] == 2.0
    assert page.info["failures_by_cause"] == "dropped 2, overloaded 1, tokenization 1"
