"""The load client against a scripted server: every token is counted once, at the moment it came."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import pytest

from tests.real.load import TOO_LONG, Load, Phase, phases, written

CHUNK_S = 0.02


@contextlib.asynccontextmanager
async def server(answer: list[bytes], status: str = "200 OK") -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """Streams these chunks to whoever asks, `CHUNK_S` apart; gives its URL, and the bodies that it was sent."""
    asked: list[dict[str, object]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].split()[0])
            asked.append(json.loads(await reader.readexactly(length)))
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode())
            with contextlib.suppress(OSError):
                for chunk in answer:
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(CHUNK_S)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", asked


def usage(tokens: int) -> bytes:
    """A chunk of vLLM's stream."""
    return b"data: " + json.dumps({"usage": {"prompt_tokens": 8, "completion_tokens": tokens}}).encode() + b"\n\n"


def once(prompt: int = 8, answer: int = 16, **options: float) -> Phase:
    """One request."""
    return Phase("once", 0.0, 0.001, "c", 1, 0.0, prompt, answer, options)


async def test_tokens_are_what_the_server_says_not_the_number_of_chunks() -> None:
    stream = [usage(1), usage(1), usage(4), b": a comment\n\n", usage(6), b"data: [DONE]\n\n"]
    async with server(stream) as (url, asked):
        load = Load(url, "openai", "m", time.monotonic())
        await load.run([once()])
    (request,) = load.requests
    assert [tokens for _, tokens in request.events] == [1, 3, 2]
    assert (request.output_tokens, request.prompt_tokens, request.status) == (6, 8, 200)
    assert request.t_first == request.events[0][0]
    assert request.events[-1][0] - request.events[0][0] >= 3 * CHUNK_S
    (body,) = asked
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert len(body["prompt"]) == 8  # type: ignore[arg-type]


async def test_llama_server_tells_its_timings_at_the_end() -> None:
    parts = [{"tokens_predicted": 1}, {"tokens_predicted": 3, "tokens_evaluated": 8, "stop": True, "timings": {"n": 3}}]
    async with server([b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts]) as (url, _):
        load = Load(url, "llamacpp", "m", time.monotonic())
        await load.run([once()])
    (request,) = load.requests
    assert (request.output_tokens, request.prompt_tokens, request.server_timings) == (3, 8, {"n": 3})


async def test_a_refused_request_has_no_tokens_and_says_why() -> None:
    async with server([b"no such model"], "404 Not Found") as (url, _):
        load = Load(url, "openai", "m", time.monotonic())
        await load.run([once()])
    line = written(load.requests[0])
    assert (line["status"], line["output_tokens"], line["events"], line["error"]) == (404, 0, [], "no such model")


async def test_an_abort_ends_the_stream_half_way() -> None:
    async with server([usage(total) for total in range(1, 17)]) as (url, _):
        load = Load(url, "openai", "m", time.monotonic())
        await load.run([once(abort=1.0)])
    (request,) = load.requests
    assert request.aborted_by_client
    assert request.output_tokens == 8


async def test_a_share_of_prompts_is_too_long_for_any_engine() -> None:
    async with server([b"too long"], "400 Bad Request") as (url, asked):
        load = Load(url, "openai", "m", time.monotonic())
        await load.run([once(refused=1.0)])
    assert [len(body["prompt"]) for body in asked] == [TOO_LONG]  # type: ignore[arg-type]
    assert [request.status for request in load.requests] == [400]


async def test_prompts_share_what_they_should_and_repeat_where_asked() -> None:
    async with server([usage(1)]) as (url, asked):
        load = Load(url, "openai", "m", time.monotonic())
        await load.run([once(12, shared=4), once(12, shared=4), once(12, period=5)])
    first, second, third = (body["prompt"] for body in asked)
    assert first[:4] == second[:4]  # type: ignore[index]
    assert first[4:] != second[4:]  # type: ignore[index]
    assert third == (third[:5] * 3)[:12]  # type: ignore[index]


def test_a_pattern_is_read_and_a_wrong_one_refused() -> None:
    idle, closed, poisson = phases("idle:5,c4:20:64:256:shared=32:greedy,p2.5:10:8:16")
    assert (idle.kind, idle.dur) == ("idle", 5.0)
    assert (closed.t0, closed.clients, closed.prompt, closed.answer) == (5.0, 4, 64, 256)
    assert closed.options == {"shared": 32.0, "greedy": 1.0}
    assert (poisson.t0, poisson.rate) == (25.0, 2.5)
    with pytest.raises(ValueError, match="allowed are idle:S"):
        phases("x4:20")
