"""TEI: an encoder's figures, /info beside the page, and over HTTP."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import EndpointState, EngineKind
from tests.fakes.http_server import Reply, Request
from tests.sources.engines.contract import PAGES
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
