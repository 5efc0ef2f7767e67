"""A load client that keeps account of every token and of the moment it arrived; all moments on one monotonic clock.

Phases are written as `idle:10,c4:20:64:256,p3:20:128:64:jitter`: 10 s of nothing, then four clients in a closed loop
for 20 s (prompts of 64 tokens, answers of at most 256), then Poisson arrivals, 3 a second. Options of a phase:
`shared=N` (first N tokens of all prompts are the same), `period=N` (the prompt repeats itself every N tokens), `greedy`
(no sampling), `jitter` (answers of a quarter to the full length), `abort=SHARE` (cut by the client half-way),
`refused=SHARE` (prompts that are longer than the context of the test models).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import httpx

STALL_S: Final = 0.1
"""A client that is held up for longer stamps its tokens too late."""
VOCABULARY: Final = range(300, 9999)
TOO_LONG: Final = 4096
"""Tokens of a prompt that no engine of `tests.real.engines` takes: their contexts have 2,048."""


class Phase(NamedTuple):
    """A stretch of load; seconds from the start of the run."""

    name: str
    t0: float
    dur: float
    kind: str
    """idle, c (closed loop) or p (Poisson arrivals)."""
    clients: int = 0
    rate: float = 0.0
    prompt: int = 0
    answer: int = 0
    """Most tokens of an answer; items of a batch for Triton."""
    options: dict[str, float] = {}  # noqa: RUF012


def phases(pattern: str) -> list[Phase]:
    """Reads a pattern. Raises ValueError."""
    found, t0 = [], 0.0
    for at, text in enumerate(pattern.split(",")):
        kind, *words = text.split(":")
        name, dur = f"{at}-{kind}", float(words[0])
        if kind == "idle":
            found.append(Phase(name, t0, dur, "idle"))
        elif kind[:1] in ("c", "p") and len(words) >= 3:
            pairs = (word.partition("=") for word in words[3:])
            options = {key: float(value or 1) for key, _, value in pairs}
            how_much = float(kind[1:])
            clients, rate = (int(how_much), 0.0) if kind[0] == "c" else (0, how_much)
            found.append(Phase(name, t0, dur, kind[0], clients, rate, int(words[1]), int(words[2]), options))
        else:
            raise ValueError(f"phase {text!r}: allowed are idle:S, cN:S:PROMPT:ANSWER and pRATE:S:PROMPT:ANSWER")
        t0 += dur
    return found


@dataclass
class Request:
    """The client's account of one request: the fields of truth.jsonl.gz."""

    id: int
    phase: str
    model: str
    prompt_len: int
    max_tokens: int
    t_start: float = 0.0
    t_first: float | None = None
    t_end: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int = 0
    status: int = 0
    events: list[tuple[float, int]] = field(default_factory=list)
    batch: int | None = None
    error: str = ""
    aborted_by_client: bool = False
    server_timings: dict[str, Any] | None = None

    def took(self, t: float, total: int) -> None:
        """By `t` the answer has grown to `total` tokens."""
        new = total - self.output_tokens
        if new > 0:
            self.t_first = t if self.t_first is None else self.t_first
            self.output_tokens = total
            self.events.append((t, new))


def _completions(request: Request, ids: list[int], temperature: float) -> dict[str, Any]:
    return {
        "model": request.model,
        "prompt": ids,
        "max_tokens": request.max_tokens,
        "ignore_eos": True,
        "temperature": temperature,
        "seed": request.id,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _completion(request: Request, ids: list[int], temperature: float) -> dict[str, Any]:
    body = {"prompt": ids, "n_predict": request.max_tokens, "ignore_eos": True, "stream": True}
    return {"model": request.model, **body, "cache_prompt": True, "temperature": temperature}


def _generate(request: Request, ids: list[int], temperature: float) -> dict[str, Any]:
    sampling = {"max_new_tokens": request.max_tokens, "ignore_eos": True, "temperature": temperature}
    # SGLang refuses a stream inside an answer with status 200, which no counter has.
    return {"input_ids": ids, "stream": len(ids) < TOO_LONG, "sampling_params": sampling}


def _infer(request: Request, ids: list[int], temperature: float) -> dict[str, Any]:
    request.batch = request.max_tokens
    shape = [request.max_tokens, request.prompt_len]
    values = [0.5] * (shape[0] * shape[1])
    return {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": values}]}


def _usage(request: Request, t: float, chunk: dict[str, Any]) -> None:
    if usage := chunk.get("usage"):
        request.prompt_tokens = usage["prompt_tokens"]
        request.took(t, usage["completion_tokens"])


def _predicted(request: Request, t: float, chunk: dict[str, Any]) -> None:
    request.took(t, chunk.get("tokens_predicted", 0))
    if chunk.get("stop"):
        request.prompt_tokens, request.server_timings = chunk.get("tokens_evaluated"), chunk.get("timings")


def _meta(request: Request, t: float, chunk: dict[str, Any]) -> None:
    meta = chunk.get("meta_info", {})
    request.prompt_tokens = meta.get("prompt_tokens")
    request.took(t, meta.get("completion_tokens", 0))


class Api(NamedTuple):
    """How an engine is asked, and how a chunk of its stream tells the tokens so far (None: one answer, no stream)."""

    path: str
    body: Callable[[Request, list[int], float], dict[str, Any]]
    read: Callable[[Request, float, dict[str, Any]], None] | None


APIS: Final = {
    "openai": Api("/v1/completions", _completions, _usage),
    "llamacpp": Api("/completion", _completion, _predicted),
    "sglang": Api("/generate", _generate, _meta),
    "triton": Api("/v2/models/{model}/infer", _infer, None),
}


class Load:
    """One client of one server; `requests` grows while it runs."""

    def __init__(self, url: str, api: str, model: str, t0: float, *, seed: int = 1, fresh: bool = False) -> None:
        """`t0` is the monotonic time that all moments count from; `fresh` opens a connection for each request."""
        self.requests: list[Request] = []
        self._url, self._api, self._model, self._t0, self._fresh = url, APIS[api], model, t0, fresh
        self._chance = random.Random(seed)
        self._common = self._chance.choices(VOCABULARY, k=4096)

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._t0

    async def run(self, plan: list[Phase], drain_s: float = 60.0) -> None:
        """All phases; requests in flight at a phase's end run on, and at the last one's for `drain_s` at most."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0 if self._fresh else 64)
        open_: list[asyncio.Task[None]] = []
        async with httpx.AsyncClient(limits=limits, timeout=120, trust_env=False) as client:
            for phase in plan:
                await asyncio.sleep(max(0.0, phase.t0 - self.now()))
                open_ += [task async for task in self._tasks(client, phase)]
                await asyncio.sleep(max(0.0, phase.t0 + phase.dur - self.now()))
            if open_:
                _, late = await asyncio.wait(open_, timeout=drain_s)
                for task in late:
                    task.cancel()
            for task in open_:
                if task.done() and not task.cancelled():
                    task.result()

    async def _tasks(self, client: httpx.AsyncClient, phase: Phase) -> AsyncIterator[asyncio.Task[None]]:
        for _ in range(phase.clients):
            yield asyncio.create_task(self._loop(client, phase))
        while phase.rate and self.now() < phase.t0 + phase.dur:
            await asyncio.sleep(self._chance.expovariate(phase.rate))
            yield asyncio.create_task(self._one(client, phase))

    async def _loop(self, client: httpx.AsyncClient, phase: Phase) -> None:
        """One request at least, however short the phase is."""
        await self._one(client, phase)
        while self.now() < phase.t0 + phase.dur:
            await self._one(client, phase)

    def _prompt(self, phase: Phase) -> list[int]:
        period = int(phase.options.get("period", phase.prompt))
        shared = self._common[: min(int(phase.options.get("shared", 0)), period)]
        once = shared + self._chance.choices(VOCABULARY, k=period - len(shared))
        return (once * (phase.prompt // max(1, period) + 1))[: phase.prompt]

    async def _one(self, client: httpx.AsyncClient, phase: Phase) -> None:
        most = phase.answer
        if "jitter" in phase.options:
            most = self._chance.randint(max(1, most // 4), most)
        if self._chance.random() < phase.options.get("refused", 0.0):
            phase = phase._replace(prompt=TOO_LONG)
        request = Request(len(self.requests) + 1, phase.name, self._model, phase.prompt, most)
        self.requests.append(request)
        cut = self._chance.random() < phase.options.get("abort", 0.0)
        temperature = 0.0 if "greedy" in phase.options else 1.0
        body = self._api.body(request, self._prompt(phase), temperature)
        request.t_start = round(self.now(), 4)
        try:
            await self._ask(client, request, body, most / 2 if cut else None)
        except httpx.HTTPError as wrong:
            request.error = f"{type(wrong).__name__}: {wrong}"[:200]
            await asyncio.sleep(0.2)
        request.t_end = round(self.now(), 4)

    async def _ask(
        self, client: httpx.AsyncClient, request: Request, body: dict[str, Any], cut_at: float | None
    ) -> None:
        url = self._url + self._api.path.format(model=request.model)
        async with client.stream("POST", url, json=body) as answer:
            request.status = answer.status_code
            if answer.status_code != 200:
                request.error = (await answer.aread()).decode(errors="replace")[:300]
                await asyncio.sleep(0.05)
                return
            if self._api.read is None:
                await answer.aread()
                request.t_first = round(self.now(), 4)
                return
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                self._api.read(request, round(self.now(), 4), json.loads(line[6:]))
                if cut_at is not None and request.output_tokens >= cut_at:
                    request.aborted_by_client = True
                    return


class Stalls:
    """Watches whether the client itself is held up: `[t, seconds, of those on the run queue]` for each time."""

    def __init__(self, t0: float) -> None:
        self.found: list[list[float]] = []
        self._t0 = t0

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            before_s, queued_s = time.monotonic(), _queued_s()
            await asyncio.sleep(0.02)
            if (held_s := time.monotonic() - before_s - 0.02) > STALL_S:
                moment = [before_s - self._t0, held_s, _queued_s() - queued_s]
                self.found.append([round(number, 3) for number in moment])


def _queued_s() -> float:
    """Seconds that this process has waited for a core."""
    with open("/proc/self/schedstat") as file:  # noqa: PTH123 - fifty times a second
        return int(file.read().split()[1]) / 1e9


@contextlib.contextmanager
def first_in_line() -> Iterator[bool]:
    """Real-time priority for the client, where it is permitted: on a busy host it would stamp tokens too late.

    Children do not inherit it. Gives whether it was permitted.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def written(request: Request) -> dict[str, Any]:
    """A line of truth.jsonl.gz: what is not known is left out, but for the columns that every line has."""
    always = {"t_first", "t_end", "prompt_tokens", "output_tokens", "status", "events"}
    return {key: value for key, value in vars(request).items() if key in always or value not in (None, "", False)}
