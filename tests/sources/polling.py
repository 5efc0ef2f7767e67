"""How the endpoint tests poll a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from gpumon.config.schema import Endpoint
from gpumon.sources.endpoint import BackOff, EndpointSource
from gpumon.sources.fetch import Limits
from tests.fakes.http_server import LoopbackServer, Reply, Request

PATIENT = Limits(connect_s=30.0, total_s=30.0)
"""A server that answers is waited for, however busy the machine is."""
QUICK = Limits(connect_s=0.5, total_s=0.6)
"""For servers that do not answer."""
HURRIED = BackOff(first_s=0.05, most_s=0.2)

PAGE = (
    b'vllm:generation_tokens_total{engine="0",model_name="m"} 7\n'
    b'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
    b"process_start_time_seconds 1700000000\n"
)
CARDS = b'{"object":"list","data":[{"id":"m","root":"/models/m","parent":null,"max_model_len":4096}]}'


def vllm(request: Request) -> Reply:
    """A healthy little server."""
    pages = {
        "/metrics": Reply(200, PAGE),
        "/v1/models": Reply(200, CARDS, "application/json"),
        "/version": Reply(200, b'{"version":"0.32.0"}', "application/json"),
    }
    return pages.get(request.path, Reply(404, b"no"))


def always(reply: Reply) -> Callable[[Request], Reply]:
    """A server that answers everything the same."""
    return lambda _: reply


@contextlib.asynccontextmanager
async def polling(
    url: str,
    *,
    interval_s: float = 0.05,
    limits: Limits = PATIENT,
    back_off: BackOff = HURRIED,
    **settings: Any,
) -> AsyncIterator[EndpointSource]:
    """A started source that has had its first answer or failure."""
    source = EndpointSource(Endpoint(url=url, **settings), interval_s, limits=limits, back_off=back_off)
    await source.start()
    try:
        await source.ready(60.0)
        yield source
    finally:
        await source.close()


async def first(answer: Callable[[Request], Reply], **settings: Any) -> EndpointSource:
    """The source after one poll of a scripted server, closed."""
    with LoopbackServer(answer) as server:
        async with polling(server.url, interval_s=60.0, **settings) as source:
            return source


async def until(true: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    while not true():
        if loop.time() > end_s:
            return False
        await asyncio.sleep(0.005)
    return True
