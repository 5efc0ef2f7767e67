"""NIM: names that anybody may use are its own only beside its signs, and 2.x is the engine inside."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.engines.adapter import Page
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.registry import BY_KIND, claimed
from tests.fakes.http_server import Reply, Request
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import first

ROW = BY_KIND[EngineKind.NIM]


def body(name: str) -> bytes:
    return (PAGES / "nim" / f"{name}.prom").read_bytes()


def page(text: bytes, path: str = "/metrics") -> Page:
    return Page(path, frozenset(sample_names(text)), text)


def test_names_without_a_prefix_alone_are_nobodys():
    generic = (PAGES / "not_engines" / "generic-names.prom").read_bytes()
    assert claimed(page(generic)) is None
    assert claimed(page(generic + b'gpu_cache_usage_perc{model_name="m"} 0.5\n')) is ROW
    assert claimed(page(generic + b'num_request_max{model_name="m"} 64\n')) is ROW
    assert claimed(page(b"gpu_cache_usage_perc 0.5\n")) is None


def test_the_engine_inside_a_newer_container_is_told_by_the_path():
    vllm = [line for line in body("2.0-vllm").splitlines(keepends=True) if b"num_request_max" not in line]
    text = b"".join(vllm)
    assert claimed(page(text, "/v1/metrics")) is ROW
    assert claimed(page(text, "/metrics")) is BY_KIND[EngineKind.VLLM]


def test_aborted_requests_are_failures_and_the_source_says_what_prefill_counts():
    (found,) = Reader(ROW).read({"/v1/metrics": body("1.8")})
    assert found.ranks[0].counters[q.FAILURES] == 5.0
    assert "NIM_ENABLE_KV_CACHE_REUSE" in found.live[q.PREFILL_COMPUTED]


@pytest.mark.parametrize(
    ("version", "shown"),
    [(b'{"release":"1.8.4"}', "1.8.4"), (b"<html>", ""), (b'{"release":[1]}', ""), (b"\xff", ""), (b"7", "")],
)
def test_the_version_is_what_it_says_or_nothing(version: bytes, shown: str):
    (found,) = Reader(ROW).read({"/v1/metrics": body("1.8"), "/v1/version": version})
    assert found.version == shown


@pytest.mark.parametrize("name", ["1.8", "2.0-vllm", "2.0-sglang"])
async def test_it_is_found_on_its_own_path_over_http(name: str):
    def container(request: Request) -> Reply:
        pages = {
            "/v1/metrics": Reply(200, body(name)),
            "/v1/version": Reply(200, b'{"release":"1.8.4","api":"3.1.0"}', "application/json"),
            "/v1/models": Reply(200, b'{"data":[{"id":"meta/llama-3.1-8b-instruct"}]}', "application/json"),
        }
        return pages.get(request.path, Reply(404, b"no"))

    source = await first(container)
    reading = source.reading
    assert (reading.kind, reading.state, reading.version) == (EngineKind.NIM, EndpointState.OK, "1.8.4")
    assert reading.ranks[0].counters[q.DECODE_TOKENS] > 0
    assert reading.from_documentation
