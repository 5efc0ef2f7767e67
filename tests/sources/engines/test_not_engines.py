"""Gateways, routers and exporters: each is named, with what to add instead, and is never read as an engine."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import EndpointState
from gpumon.sources.engines.adapter import Page
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.registry import claimed
from tests.fakes.http_server import Reply
from tests.sources.engines.contract import PAGES
from tests.sources.polling import always, first

FOLDER = PAGES / "not_engines"
SAID = {
    "litellm": ("LiteLLM", "add the engines behind it"),
    "production-stack": ("vLLM's router", "add the vLLM servers behind it"),
    "smg": ("SGLang's router", "add the SGLang servers behind it"),
    "smg-engine-metrics": ("SGLang's router", "add the SGLang servers behind it"),
    "inference-gateway": ("an inference gateway", "add the servers behind it"),
    "queue-proxy": ("KServe's queue-proxy", "add the port of the model's own container"),
    "dynamo-worker": ("a Dynamo worker without its engine's", "start it with the option that publishes them"),
    "ray-without-llm": ("Ray", "is log_engine_metrics on"),
    "generic-names": ("no engine that gpumon knows", "[[feed]]"),
}


def test_every_page_has_its_words():
    assert {file.stem for file in FOLDER.iterdir()} == SAID.keys()


@pytest.mark.parametrize("name", SAID)
async def test_it_is_named_with_what_to_do_instead(name: str):
    body = (FOLDER / f"{name}.prom").read_bytes()
    assert claimed(Page("/metrics", frozenset(sample_names(body)), body)) is None
    source = await first(always(Reply(200, body)))
    assert source.reading.state is EndpointState.WRONG_ENGINE
    assert all(words in source.reading.fault for words in SAID[name]), source.reading.fault
    assert source.reading.ranks == ()
